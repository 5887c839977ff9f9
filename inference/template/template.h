/* SPDX-License-Identifier: Apache-2.0 */
/** @file template.h
 *
 * Jinja as chat templates use it: docs/TEMPLATES.md lists the supported
 * features. A template is parsed once; each rendering has memory of its own.
 *
 *     text ──lexer──▶ tokens ──parser──▶ tree ──exec, eval──▶ text + quotes
 *                                          ▲
 *                       variables (JSON) ──┘
 *
 * Steps, memory and nesting depth are bounded, whatever template and variables
 * contain. A rendering has no access to the outside; the clock is a parameter.
 * Every byte of the result that comes from a client's variable is in a quote,
 * however it was cut, joined, escaped or changed on its way (text.h).
 *
 * Threads: a parsed template is constant; any number of threads may render it.
 */
#ifndef BT_INFERENCE_TEMPLATE_TEMPLATE_H
#define BT_INFERENCE_TEMPLATE_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "inference/tokenizer/tokenizer.h"

struct bt_tmpl_forms; /* chat_priv.h */

typedef struct bt_template bt_template_t;

/** Most bytes of a template's text. */
#define BT_TEMPLATE_MAX_BYTES ((size_t)1 << 20)

/** Most bytes of all variables' text; a rendering with more is refused. */
#define BT_TEMPLATE_MAX_VALUES ((size_t)64 << 20)

typedef enum bt_template_var_kind {
    BT_VAR_TEXT,     /**< from the model: may be special tokens */
    BT_VAR_TRUTH,    /**< from the model */
    BT_VAR_JSON,     /**< from a client */
    BT_VAR_MESSAGES, /**< from a client; roles that templates know may become
                          part of a special token, as in "<|user|>" */
    BT_VAR_MEMBERS,  /**< a client's object: each member becomes a variable
                          of its name, unless an earlier variable has it;
                          built-in names are excluded */
} bt_template_var_kind_t;

typedef struct bt_template_var {
    bt_template_var_kind_t kind;
    const char *name; /**< NULL for members */
    const char *text; /**< text or JSON; borrowed */
    size_t bytes;
    bool truth;
    const struct bt_tmpl_forms *forms; /**< forms for messages; NULL:
                                            unchanged */
    /** Messages: tools, calls and results become text
     *  (bt_tmpl_messages_write_tools()); with forms alone. */
    bool writes_tools;
    const char *tools; /**< JSON of a list; NULL: none */
    size_t tools_bytes;
    /** JSON: receives bt_tmpl_unused() of the variable, with paths below this
     *  one; NULL: not collected. */
    bt_strbuf_t *unused;
    const char *path;
} bt_template_var_t;

/** Parses a template.
 *  @param [out] why  On failure "line N: …".
 *  @retval BT_OK
 *  @retval BT_ERR_UNSUPPORTED  the template uses an unsupported feature
 *  @retval BT_ERR_TOO_LARGE, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_template_parse(const char *source, size_t bytes,
                                            char *why, size_t why_bytes,
                                            bt_template_t **tmpl_p);
void bt_template_destroy(bt_template_t *tmpl);

/** True when the template has this name somewhere: of a variable, of a filter,
 *  or of what it sets itself. */
bool bt_template_has_name(const bt_template_t *tmpl, const char *name);

/** Renders the template with @a vars and appends the result. On failure @a out
 *  is unchanged.
 *  @param [in] now_s   for strftime_now(), seconds since 1970, as UTC
 *  @param [in,out] quotes  as for bt_chat_render(); NULL is allowed
 *  @param [out] why    On failure: the message that the template itself raised,
 *          or "line N: …".
 *  @retval BT_ERR_INVALID_PARAM  raised by the template, or its variables are
 *          not as it expects
 *  @retval BT_ERR_UNSUPPORTED    the template uses an unsupported feature
 *  @retval BT_ERR_TOO_LARGE      more steps, memory or depth than allowed
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_template_render(const bt_template_t *tmpl,
                                             const bt_template_var_t *vars,
                                             size_t n_vars, int64_t now_s,
                                             bt_strbuf_t *out,
                                             bt_quotes_t *quotes, char *why,
                                             size_t why_bytes);

#endif
