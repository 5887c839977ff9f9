/* SPDX-License-Identifier: Apache-2.0 */
/** @file chat_priv.h
 *
 * The two kinds of chat templates: families (chat.c), static, and models' own
 * (chat_own.c), of which chat_probe.c learns what messages they can show.
 *
 * Threads: as chat.h.
 */
#ifndef BT_INFERENCE_TEMPLATE_CHAT_PRIV_H
#define BT_INFERENCE_TEMPLATE_CHAT_PRIV_H

#include "inference/template/chat.h"
#include "inference/template/messages.h"
#include "inference/template/template.h"

enum {
    BT_CHAT_BOS,
    BT_CHAT_EOS,
    BT_CHAT_UNK,
    BT_CHAT_PAD,
    BT_CHAT_N_TOKENS,
};

struct bt_chat_call; /* of chat.c */

struct bt_chat_template {
    const char *name; /**< of the family; "own": a model's */
    bt_status_t (*render)(struct bt_chat_call *call);
    const char *extra;          /**< what this one of a family has of its own */
    bt_template_t *jinja;       /**< owned; of a model's own */
    bt_template_t *tools_jinja; /**< owned; for requests with tools, or NULL */
    bt_tmpl_forms_t forms, tools_forms; /**< what the two show */
    char *tokens[BT_CHAT_N_TOKENS];     /**< owned; NULL: it has none */
};

/** bt_chat_render() of a model's own. */
BT_MUST_CHECK bt_status_t bt_chat_render_own(const bt_chat_template_t *tmpl,
                                             const bt_chat_request_t *request,
                                             bt_strbuf_t *out,
                                             bt_quotes_t *quotes, char *why,
                                             size_t why_bytes);
/** bt_chat_render_own() with one of its texts. @param [in] forms  what it shows
 */
BT_MUST_CHECK bt_status_t bt_chat_render_text(
    const bt_chat_template_t *tmpl, const bt_template_t *jinja,
    const bt_tmpl_forms_t *forms, const bt_chat_request_t *request,
    bt_strbuf_t *out, bt_quotes_t *quotes, char *why, size_t why_bytes);

/** Learns what a template shows by rendering short conversations with it.
 *  @param [in] jinja   one of @a tmpl's texts, whose tokens are there
 *  @param [in] source  its text */
void bt_chat_probe(const bt_chat_template_t *tmpl, const bt_template_t *jinja,
                   const char *source, size_t bytes, bt_chat_content_t content,
                   bt_tmpl_forms_t *forms_p);

#endif
