/* SPDX-License-Identifier: Apache-2.0 */
/** @file messages.h
 *
 * The messages of a request as values. A template gets each message as the
 * client sent it, but for the arguments of calls, a text of JSON, which are an
 * object where one is wanted and that text elsewhere, as transformers' and
 * vLLM's templates need them; and for what its own text cannot show:
 *
 *     content   a list of parts    joined by line ends, where it shows strings
 *               a string           a list of one part, where it shows parts
 *               null               "", where it raises or prints "None"
 *     role      developer          system, where it does not know developer
 *     reasoning, reasoning_content    under the other name too, where it knows
 *                                     the other one alone
 *
 * Which of them a template needs is learned when it is read (chat_probe.c).
 *
 * Threads: as value.h.
 */
#ifndef BT_INFERENCE_TEMPLATE_MESSAGES_H
#define BT_INFERENCE_TEMPLATE_MESSAGES_H

#include "common/base/strbuf.h"
#include "inference/template/value.h"

typedef enum bt_tmpl_role {
    BT_ROLE_SYSTEM,
    BT_ROLE_USER, /**< and each role that is none of the others */
    BT_ROLE_ASSISTANT,
    BT_ROLE_TOOL,
    BT_N_ROLES,
} bt_tmpl_role_t;

typedef enum bt_tmpl_parts {
    BT_PARTS_NONE, /**< a list is not shown, or as Python prints it */
    BT_PARTS_ONE,  /**< of a list one part is shown */
    BT_PARTS_ALL,
} bt_tmpl_parts_t;

/** The forms of a message that a template can show. */
typedef struct bt_tmpl_forms {
    bool strings[BT_N_ROLES]; /**< a content that is a string */
    bt_tmpl_parts_t parts[BT_N_ROLES];
    bool null_calls; /**< a content that is null, beside calls of tools */
    bool null_alone; /**< ... without them */
    bool developer;  /**< the role */
    bool reasoning, reasoning_content; /**< the member */
} bt_tmpl_forms_t;

/** Strings alone: what families of templates show. */
extern const bt_tmpl_forms_t bt_tmpl_forms_strings;

bt_tmpl_role_t bt_tmpl_role_of(const char *role, size_t bytes);

/** Changes what @a forms say cannot be shown; messages that are not as OpenAI's
 *  API has them stay as they are.
 *  @param [in,out] unused  bt_tmpl_unused() of what is in a list that became a
 *                          string; NULL: nobody asks
 *  @return false: run->status says why */
bool bt_tmpl_messages_adapt(bt_tmpl_run_t *run, bt_tmpl_value_t messages,
                            const bt_tmpl_forms_t *forms, bt_strbuf_t *unused);
/** Arguments of calls (tool_calls[].function.arguments) that are a text of a
 *  JSON object become that object, with the text beside it; an empty text is
 *  one of {}. @return false: run->status says why */
bool bt_tmpl_messages_open_arguments(bt_tmpl_run_t *run,
                                     bt_tmpl_value_t messages);
/** The roles that templates know may become part of a special token. */
void bt_tmpl_messages_trust(bt_tmpl_value_t messages);

/** Append the places of a client's members that no template has looked at, one
 *  a line, as messages[1].foo. Not told: what has no value (null, "", [], {})
 *  and members that say how OpenAI's own form hangs together (role, type, id,
 *  index, tool_call_id, strict).
 *  @param [in] path  of @a value */
void bt_tmpl_unused(bt_tmpl_value_t value, const char *path, bt_strbuf_t *out);

#endif
