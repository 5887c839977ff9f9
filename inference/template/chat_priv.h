/* SPDX-License-Identifier: Apache-2.0 */
/** @file chat_priv.h
 *
 * Parts of chat.c: the texts of families (chat_families.c) and the probe that
 * finds which message forms a model's own text can render (chat_families.c).
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

/** Error of a family for tools and for calls in messages. */
#define BT_CHAT_NO_TOOLS                                                     \
    "tools need the model's own chat template; the server was started with " \
    "--chat-template and the name of a family"

struct bt_chat_template {
    const char *name; /**< name of the family; "own": a model's */
    bool is_family;
    bt_template_t *jinja;       /**< owned */
    bt_template_t *tools_jinja; /**< owned; for requests with tools, or NULL */
    bt_tmpl_forms_t forms, tools_forms; /**< message forms that the two
                                             templates can render */
    char *tokens[BT_CHAT_N_TOKENS];     /**< owned; NULL: the model lacks the
                                             token */
};

/** Returns the Jinja text of a family; NULL: unknown.
 *  @param [out] name_p  static name; unchanged when unknown */
const char *bt_chat_family_jinja(const char *name, const char **name_p);
/** Renders one of the Jinja texts of a template.
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
