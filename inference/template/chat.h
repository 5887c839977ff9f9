/* SPDX-License-Identifier: Apache-2.0 */
/** @file chat.h
 *
 * Chat templates: Jinja texts (template.h), a model's own or one of the common
 * families by name. A family renders byte for byte what its published text
 * renders; where that text would silently drop a message, the family refuses
 * it.
 *
 * Threads: a template is constant once made; any number of threads may render
 *         it.
 */
#ifndef BT_INFERENCE_TOKENIZER_CHAT_H
#define BT_INFERENCE_TOKENIZER_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "inference/tokenizer/tokenizer.h"

typedef struct bt_chat_template bt_chat_template_t;

/** Makes the template of a family: "chatml", "llama3" and others (see
 *  bt_chat_family_names()).
 *  @param [out] tmpl_p  ended by bt_chat_template_free()
 *  @retval BT_ERR_NOT_FOUND  unknown name
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_chat_template_of_family(
    const char *family, const bt_chat_template_t **tmpl_p);
/** Returns the name of the template's family; "own": a model's. */
const char *bt_chat_template_name(const bt_chat_template_t *tmpl);
/** True when a request's tools are in the prompts that the template renders. */
bool bt_chat_template_shows_tools(const bt_chat_template_t *tmpl);
/** Returns the names of all families, comma separated, for error messages. */
const char *bt_chat_family_names(void);

/** Special tokens that a model's own template may print; NULL: the model lacks
 *  the token. */
typedef struct bt_chat_tokens {
    const char *bos, *eos, *unk, *pad;
} bt_chat_tokens_t;

/** Form in which message contents are given to a template: strings, or lists of
 *  parts. Auto: as the client sent them, where the template can render that. */
typedef enum bt_chat_content {
    BT_CHAT_CONTENT_AUTO,
    BT_CHAT_CONTENT_STRING,
    BT_CHAT_CONTENT_OPENAI,
} bt_chat_content_t;

/** Jinja texts of a model. */
typedef struct bt_chat_source {
    const char *jinja;
    size_t bytes;
    /** Template for requests with tools, where a model has a separate one
     *  (transformers' "tool_use"); NULL: none. */
    const char *tools_jinja;
    size_t tools_bytes;
    bt_chat_tokens_t tokens;
    bt_chat_content_t content;
} bt_chat_source_t;

/** Parses a model's own template.
 *  @param [out] why  On failure "line N: …".
 *  @retval BT_ERR_UNSUPPORTED  not understood
 *  @retval BT_ERR_TOO_LARGE, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t
bt_chat_template_read(const bt_chat_source_t *source, char *why,
                      size_t why_bytes, const bt_chat_template_t **tmpl_p);
/** Frees a template. NULL is allowed. */
void bt_chat_template_free(const bt_chat_template_t *tmpl);

/** Conversation to render. The JSON texts come from clients: none of their
 *  content becomes a special token. Borrowed. */
typedef struct bt_chat_request {
    /** List of messages, as in OpenAI's API: each has a role, and a content
     *  that is a string, null, or a list of parts with a text. */
    const char *messages_json;
    const char *tools_json;     /**< a list; NULL: none */
    const char *documents_json; /**< a list; NULL: none */
    const char *kwargs_json;    /**< an object: additional variables; NULL:
                                     none */
    const char *defaults_json;  /**< an object: variables that no other one
                                     sets; NULL: none */
    /** The tools, and calls and results of the messages, become text of the
     *  messages: for templates that do not show tools, or show them for calls
     *  of an unknown form. Calls are those of Hermes then. */
    bool tools_as_text;
    bool no_generation_prompt; /**< omit the opening of the assistant's turn
                                    at the end */
    int64_t now_s; /**< seconds since 1970, UTC, for templates that print the
                        date */
    /** Receives the paths of members that the template has not read
     *  (bt_tmpl_unused()), one per line; NULL: not collected. */
    bt_strbuf_t *unused;
} bt_chat_request_t;

/** True when a template has a variable of this name, which a request may set;
 *  false for a family.
 *  @param [in] tools  the request has tools */
bool bt_chat_template_has_name(const bt_chat_template_t *tmpl, bool tools,
                               const char *name);

#define BT_CHAT_WHY_BYTES 512

/** Appends the prompt for @a request, ending with the opening of the
 *  assistant's turn. To be tokenized with bt_tokenize_quoting(): special tokens
 *  come only from the template; text in a message that looks like one is plain
 *  text. BOS is in the text where the template has it; do not add another. On
 *  failure @a out is unchanged.
 *  @param [in,out] quotes  receives the ranges of @a out that come from
 *          messages; undefined after a failure. NULL is allowed.
 *  @param [out] why    Written only on failure, for the client.
 *  @retval BT_ERR_NO_MEMORY
 *  @retval BT_ERR_TOO_LARGE      @a out is too large, or a limit of the
 *          template is exceeded
 *  @retval BT_ERR_INVALID_PARAM  reason in why (empty list, role order; an
 *          error that a model's template raises)
 *  @retval BT_ERR_UNSUPPORTED    documents, kwargs, or tools that are not text,
 *          for a family */
BT_MUST_CHECK bt_status_t bt_chat_render(const bt_chat_template_t *tmpl,
                                         const bt_chat_request_t *request,
                                         bt_strbuf_t *out, bt_quotes_t *quotes,
                                         char *why, size_t why_bytes);

#endif
