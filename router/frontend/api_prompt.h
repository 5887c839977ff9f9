/* SPDX-License-Identifier: Apache-2.0 */
/** @file api_prompt.h
 *
 * Readers of text_input, prompt and messages.
 */
#ifndef BT_ROUTER_FRONTEND_API_PROMPT_H
#define BT_ROUTER_FRONTEND_API_PROMPT_H

#include "router/frontend/api_priv.h"

bt_status_t bt_api_read_text_input(bt_api_parse_t *parse,
                                   const bt_api_field_t *field,
                                   const bt_json_node_t *value);
bt_status_t bt_api_read_prompt(bt_api_parse_t *parse,
                               const bt_api_field_t *field,
                               const bt_json_node_t *value);

/* ---- api_messages.c ---- */

bt_status_t bt_api_read_messages(bt_api_parse_t *parse,
                                 const bt_api_field_t *field,
                                 const bt_json_node_t *value);
/** Creates a conversation of one message. @param [in] role  static */
BT_MUST_CHECK bt_status_t bt_api_take_message(bt_api_parse_t *parse,
                                              const char *role,
                                              const bt_json_node_t *text);
/** Inserts a system message before the others. */
BT_MUST_CHECK bt_status_t bt_api_prepend_system(bt_api_parse_t *parse,
                                                const char *text);
void bt_api_messages_fini(bt_api_request_t *request);

/* ---- api_responses.c ---- */

bt_status_t bt_api_read_input(bt_api_parse_t *parse,
                              const bt_api_field_t *field,
                              const bt_json_node_t *value);
bt_status_t bt_api_read_instructions(bt_api_parse_t *parse,
                                     const bt_api_field_t *field,
                                     const bt_json_node_t *value);
bt_status_t bt_api_read_store(bt_api_parse_t *parse,
                              const bt_api_field_t *field,
                              const bt_json_node_t *value);
bt_status_t bt_api_read_truncation(bt_api_parse_t *parse,
                                   const bt_api_field_t *field,
                                   const bt_json_node_t *value);
bt_status_t bt_api_read_text(bt_api_parse_t *parse, const bt_api_field_t *field,
                             const bt_json_node_t *value);
bt_status_t bt_api_read_metadata(bt_api_parse_t *parse,
                                 const bt_api_field_t *field,
                                 const bt_json_node_t *value);
/** Turns the instructions into the first message. */
BT_MUST_CHECK bt_status_t bt_api_check_responses(bt_api_parse_t *parse);

/* ---- api_prompt.c ---- */

/** Frees prompts and messages, also half-built ones. */
void bt_api_prompts_fini(bt_api_request_t *request);

#endif
