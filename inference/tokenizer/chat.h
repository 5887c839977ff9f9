/* SPDX-License-Identifier: Apache-2.0 */
/** @file chat.h
 *
 * Chat templates of the common families, chosen by name or recognised from the
 * file's tokenizer.chat_template. Each renders byte for byte what its Jinja
 * text renders with add_generation_prompt; where that text would drop a message
 * without a word, this module refuses it.
 *
 * Threads: pure functions over constant tables.
 */
#ifndef BT_INFERENCE_TOKENIZER_CHAT_H
#define BT_INFERENCE_TOKENIZER_CHAT_H

#include <stddef.h>

#include "common/base/status.h"
#include "common/base/strbuf.h"
#include "inference/tokenizer/tokenizer.h"

typedef struct bt_chat_template bt_chat_template_t; /**< static, never freed */

typedef struct bt_chat_message {
    const char *role;    /**< "system", "user", "assistant" (others: the
                              family decides, or BT_ERR_UNSUPPORTED) */
    const char *content; /**< UTF-8 */
} bt_chat_message_t;

/** "chatml", "smollm", "llama2", "llama3", "gemma", "mistral", "zephyr", "phi"
 *  and their variants (see bt_chat_template_names()).
 *  @return NULL when unknown. */
const bt_chat_template_t *bt_chat_template_by_name(const char *name);
/** From the text of a Jinja template. @return NULL when not recognised. */
const bt_chat_template_t *bt_chat_template_recognise(const char *jinja,
                                                     size_t bytes);
/** Of the family that it is. */
const char *bt_chat_template_name(const bt_chat_template_t *tmpl);
/** Names of all families, comma separated, for error texts. */
const char *bt_chat_template_names(void);

/** Append the prompt for @a messages, ending where the assistant speaks. To be
 *  tokenized with bt_tokenize_quoting(): special tokens come from the template
 *  alone, what looks like one in a message is text. BOS is in the text where
 * the family has it, so BT_TOK_ADD_BOS is for those whose template leaves it
 * out. On failure @a out holds what it held.
 *  @param [in,out] quotes  gets the places in @a out of what the messages say;
 *                      of no use after a failure. NULL is allowed.
 *  @param [out] why_p  Static text; written only on failure.
 *  @retval BT_ERR_TOO_LARGE, BT_ERR_NO_MEMORY  of @a out
 *  @retval BT_ERR_INVALID_PARAM  *why_p says what (empty list, role order)
 *  @retval BT_ERR_UNSUPPORTED    role the family does not know */
BT_MUST_CHECK bt_status_t bt_chat_render(const bt_chat_template_t *tmpl,
                                         const bt_chat_message_t *messages,
                                         size_t n_messages, bt_strbuf_t *out,
                                         bt_quotes_t *quotes,
                                         const char **why_p);

/** Of a rendering, the bytes at its end that do no more than open the answer; 0
 *  where a family opens it with nothing. */
size_t bt_chat_opening_bytes(const bt_chat_template_t *tmpl, const char *text,
                             size_t bytes);

#endif
