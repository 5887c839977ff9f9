/* SPDX-License-Identifier: Apache-2.0 */
/** @file chat_priv.h
 *
 * Shared parts of the two kinds of chat templates: families (chat.c), static,
 * and models' own (chat_own.c), whose supported message forms chat_probe.c
 * detects.
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

struct bt_chat_call; /* see chat.c */

struct bt_chat_template {
    const char *name; /**< name of the family; "own": a model's */
    bt_status_t (*render)(struct bt_chat_call *call);
    const char *extra;          /**< text that only this variant has */
    bt_template_t *jinja;       /**< owned; a model's own template */
    bt_template_t *tools_jinja; /**< owned; for requests with tools, or NULL */
    bt_tmpl_forms_t forms, tools_forms; /**< message forms that the two
                                             templates can render */
    char *tokens[BT_CHAT_N_TOKENS];     /**< owned; NULL: the model lacks the
                                             token */
};

/** Renders a model's own template: bt_chat_render(). */
BT_MUST_CHECK bt_status_t bt_chat_render_own(const bt_chat_template_t *tmpl,
                                             const bt_chat_request_t *request,
                                             bt_strbuf_t *out,
                                             bt_quotes_t *quotes, char *why,
                                             size_t why_bytes);
/** Renders one of the Jinja texts of a model's own template.
 *  @param [in] forms  message forms that it can render */
BT_MUST_CHECK bt_status_t bt_chat_render_text(
    const bt_chat_template_t *tmpl, const bt_template_t *jinja,
    const bt_tmpl_forms_t *forms, const bt_chat_request_t *request,
    bt_strbuf_t *out, bt_quotes_t *quotes, char *why, size_t why_bytes);

/** Detects the message forms that a template can render, by rendering short
 *  conversations with it.
 *  @param [in] jinja   one of @a tmpl's texts; its tokens are set
 *  @param [in] source  text of @a jinja */
void bt_chat_probe(const bt_chat_template_t *tmpl, const bt_template_t *jinja,
                   const char *source, size_t bytes, bt_chat_content_t content,
                   bt_tmpl_forms_t *forms_p);

#endif
