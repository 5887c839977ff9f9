/* SPDX-License-Identifier: Apache-2.0 */
/** @file chat_priv.h
 *
 * Parts of chat.c: the texts of families (chat.c) and the probe that
 * finds which message forms a model's own text can render (chat.c).
 *
 * Threads: as chat.h.
 */
#ifndef BT_INFERENCE_TEMPLATE_CHAT_PRIV_H
#define BT_INFERENCE_TEMPLATE_CHAT_PRIV_H

#include "common/base/text.h"
#include "inference/template/chat.h"
#include "inference/template/template.h"
#include "inference/template/value.h"

/*
 * Messages of a request as template values. A template gets each message as the
 * client sent it, with two exceptions. Arguments of tool calls, a JSON text,
 * are an object where the template needs one, and that text elsewhere, as
 * transformers' and vLLM's templates need them. And forms that the template
 * cannot render are converted:
 *
 *     content   a list of parts    joined by newlines, if it takes strings
 *               a string           a list of one part, if it takes parts
 *               null               "", if it raises or prints "None"
 *     role      developer          system, if it does not know developer
 *     reasoning, reasoning_content    copied to the name that it knows, if it
 *                                     knows one of the two, or `thinking`
 *
 * Which conversions a template needs is detected when it is loaded (probe.c).
 *
 * Threads: as value.h.
 */

typedef enum bt_tmpl_role {
    BT_ROLE_SYSTEM,
    BT_ROLE_USER, /**< also any role other than these */
    BT_ROLE_ASSISTANT,
    BT_ROLE_TOOL,
    BT_N_ROLES,
} bt_tmpl_role_t;

typedef enum bt_tmpl_parts {
    BT_PARTS_NONE, /**< a list is not rendered, or printed like a Python list */
    BT_PARTS_ONE,  /**< only one part of a list is rendered */
    BT_PARTS_ALL,
} bt_tmpl_parts_t;

/** Message forms that a template can render. */
typedef struct bt_tmpl_forms {
    bool strings[BT_N_ROLES]; /**< content is a string */
    bt_tmpl_parts_t parts[BT_N_ROLES];
    bool null_calls; /**< content is null, beside tool calls */
    bool null_alone; /**< content is null, without tool calls */
    bool developer;  /**< the role "developer" */
    bool reasoning, reasoning_content; /**< the message member */
    bool thinking;   /**< gpt-oss' name of it, which is not beside content in a
                          message with calls */
    bool system;     /**< messages of the role "system" */
    bool tools;      /**< the request's tools */
    bool history;    /**< calls of the assistant, and messages of role "tool" */
    bool alternates; /**< a message of the user behind another raises */
} bt_tmpl_forms_t;

/** Converts messages whose form @a forms excludes; messages that do not follow
 *  OpenAI's API stay as they are.
 *  @param [in,out] unused  bt_tmpl_unused() of the content of lists that became
 *          strings; NULL: not collected
 *  @return false: the reason is in run->status */
bool bt_tmpl_messages_adapt(bt_tmpl_run_t *run, bt_tmpl_value_t messages,
                            const bt_tmpl_forms_t *forms, bt_strbuf_t *unused);
/** Parses arguments of tool calls (tool_calls[].function.arguments): the text
 *  of a JSON object becomes that object, with the text kept beside it; an empty
 *  text becomes {}.
 *  @return false: the reason is in run->status */
bool bt_tmpl_messages_open_arguments(bt_tmpl_run_t *run,
                                     bt_tmpl_value_t messages);
/** Returns a member of a message, without recording that it was read; NULL: it
 *  has none. */
bt_tmpl_value_t *bt_tmpl_message_member(const bt_tmpl_dict_t *message,
                                        const char *name);
/** Returns a content as a string: parts are joined by newlines, null is empty.
 *  @return NULL: the reason is in run->status */
const bt_tmpl_text_t *bt_tmpl_content_text(bt_tmpl_run_t *run,
                                           bt_tmpl_value_t content);

/** Message that was sent, and the one that shows it in its place. */
typedef struct bt_tmpl_written {
    bt_tmpl_dict_t *sent;
    const bt_tmpl_dict_t *made;
    struct bt_tmpl_written *next;
} bt_tmpl_written_t;

/** Writes tools, calls and results into the texts of messages, for templates
 *  that show none (tools_text.c has the form). Messages that have none of these
 *  stay as they are. After bt_tmpl_messages_adapt().
 *  @param [in,out] messages  the list is replaced by a new one
 *  @param [in] tools  JSON of a list; NULL: none
 *  @param [out] written_p  for bt_tmpl_written_settle()
 *  @return false: the reason is in run->status */
bool bt_tmpl_messages_write_tools(bt_tmpl_run_t *run, bt_tmpl_value_t *messages,
                                  const bt_tmpl_forms_t *forms,
                                  const char *tools, size_t tools_bytes,
                                  bt_tmpl_written_t **written_p);
/** Records in the messages that were sent which members the template has read
 *  of those made of them; before bt_tmpl_unused(). NULL is allowed. */
void bt_tmpl_written_settle(const bt_tmpl_written_t *written);

/** Allows roles that templates know to become part of a special token. */
void bt_tmpl_messages_trust(bt_tmpl_value_t messages);

/** Appends the paths of a client's members that no template has read, one per
 *  line, as messages[1].foo. Omits members without a value (null, "", [], {})
 *  and structural members of OpenAI's format (role, type, id, index,
 *  tool_call_id, strict).
 *  @param [in] path  path of @a value */
void bt_tmpl_unused(bt_tmpl_value_t value, const char *path, bt_strbuf_t *out);

enum {
    BT_CHAT_BOS,
    BT_CHAT_EOS,
    BT_CHAT_UNK,
    BT_CHAT_PAD,
    BT_CHAT_N_TOKENS,
};

/* ---- probe.c ---- */

/** Detects the message forms that a template can render, by rendering short
 *  conversations with one of its texts.
 *  @param [in] source  the text; NULL: a family's, which takes strings alone */
void bt_chat_probe(const bt_chat_template_t *tmpl, const bt_template_t *jinja,
                   const char *source, size_t bytes, bt_chat_content_t content,
                   bt_tmpl_forms_t *forms_p);

/* ---- chat.c ---- */

/** Renders one of the Jinja texts of a template.
 *  @param [in] forms  message forms that it can render */
BT_MUST_CHECK bt_status_t bt_chat_render_text(
    const bt_chat_template_t *tmpl, const bt_template_t *jinja,
    const bt_tmpl_forms_t *forms, const bt_chat_request_t *request,
    bt_strbuf_t *out, bt_quotes_t *quotes, char *why, size_t why_bytes);

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

#endif
