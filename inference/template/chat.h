/* SPDX-License-Identifier: Apache-2.0 */
/** @file chat.h
 *
 * Chat templates: a model's own Jinja text, interpreted (template.h), or one of
 * the common families by name, whose C renders byte for byte what their Jinja
 * texts render with add_generation_prompt; where such a text would drop a
 * message without a word, the family refuses it.
 *
 * Threads: a template is never changed once it is there; any number of threads
 * may render it.
 */
#ifndef BT_INFERENCE_TOKENIZER_CHAT_H
#define BT_INFERENCE_TOKENIZER_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/strbuf.h"
#include "inference/tokenizer/tokenizer.h"

typedef struct bt_chat_template bt_chat_template_t;

/** "chatml", "smollm", "llama2", "llama3", "gemma", "mistral", "zephyr", "phi"
 *  and their variants (see bt_chat_template_names()).
 *  @return NULL when unknown. */
const bt_chat_template_t *bt_chat_template_by_name(const char *name);
/** Of the family that it is; "own": a model's. */
const char *bt_chat_template_name(const bt_chat_template_t *tmpl);
/** Names of all families, comma separated, for error texts. */
const char *bt_chat_template_names(void);

/** What a model's own template may print as special tokens; NULL: it has none.
 */
typedef struct bt_chat_tokens {
    const char *bos, *eos, *unk, *pad;
} bt_chat_tokens_t;

/** How contents of messages are given to a template: as strings, or as lists of
 *  parts. Auto: as the client sent them, where the template shows that. */
typedef enum bt_chat_content {
    BT_CHAT_CONTENT_AUTO,
    BT_CHAT_CONTENT_STRING,
    BT_CHAT_CONTENT_OPENAI,
} bt_chat_content_t;

/** The Jinja texts of a model. */
typedef struct bt_chat_source {
    const char *jinja;
    size_t bytes;
    /** For requests with tools, where a model has a text of its own for them
     *  (transformers' "tool_use"); NULL: it has none. */
    const char *tools_jinja;
    size_t tools_bytes;
    bt_chat_tokens_t tokens;
    bt_chat_content_t content;
} bt_chat_source_t;

/** @param [out] why  On failure "line N: …".
 *  @retval BT_ERR_UNSUPPORTED  not understood
 *  @retval BT_ERR_TOO_LARGE, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t
bt_chat_template_read(const bt_chat_source_t *source, char *why,
                      size_t why_bytes, const bt_chat_template_t **tmpl_p);
/** NULL and families are allowed, and left alone. */
void bt_chat_template_free(const bt_chat_template_t *tmpl);

/** A conversation. The JSON texts are what clients sent: nothing of theirs
 *  becomes a special token. Borrowed. */
typedef struct bt_chat_request {
    /** A list of messages, as OpenAI's API has them: each has a role, and a
     *  content that is a string, null, or a list of parts with a text. */
    const char *messages_json;
    const char *tools_json;     /**< a list; NULL: none */
    const char *documents_json; /**< a list; NULL: none */
    const char *kwargs_json;    /**< an object: further variables; NULL: none */
    bool no_generation_prompt;  /**< do not end where the assistant speaks */
    int64_t now_s; /**< for templates that print the date; since 1970, UTC */
    /** Gets the places of members that the template has not looked at
     *  (bt_tmpl_unused()), one a line; NULL: nobody asks. */
    bt_strbuf_t *unused;
} bt_chat_request_t;

#define BT_CHAT_WHY_BYTES 512

/** Append the prompt for @a request, ending where the assistant speaks. To be
 *  tokenized with bt_tokenize_quoting(): special tokens come from the template
 *  alone, what looks like one in a message is text. BOS is in the text where
 *  the template has it; none is to be added. On failure @a out holds what it
 *  held.
 *  @param [in,out] quotes  gets the places in @a out of what the messages say;
 *                      of no use after a failure. NULL is allowed.
 *  @param [out] why    Written only on failure, for the client.
 *  @retval BT_ERR_NO_MEMORY
 *  @retval BT_ERR_TOO_LARGE      of @a out, or beyond a template's bounds
 *  @retval BT_ERR_INVALID_PARAM  why says what (empty list, role order; what a
 *                      model's template raises)
 *  @retval BT_ERR_UNSUPPORTED    role the family does not know; tools,
 * documents and the like, for families */
BT_MUST_CHECK bt_status_t bt_chat_render(const bt_chat_template_t *tmpl,
                                         const bt_chat_request_t *request,
                                         bt_strbuf_t *out, bt_quotes_t *quotes,
                                         char *why, size_t why_bytes);

/** Of a family's rendering, the bytes at its end that do no more than open the
 *  answer; 0 where it opens it with nothing, and for models' own. */
size_t bt_chat_opening_bytes(const bt_chat_template_t *tmpl, const char *text,
                             size_t bytes);

#endif
