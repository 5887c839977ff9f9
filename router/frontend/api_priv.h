/* SPDX-License-Identifier: Apache-2.0 */
/** @file api_priv.h  Shared by the files api_*.c of this folder only. */
#ifndef BT_ROUTER_FRONTEND_API_PRIV_H
#define BT_ROUTER_FRONTEND_API_PRIV_H

#include "common/base/json.h"
#include "common/base/json_doc.h"
#include "router/frontend/api.h"

/* ---- api_values.c: values with their limits, and errors that name them ----
 */

#define BT_API_G 1u  /**< generate */
#define BT_API_C 2u  /**< completions */
#define BT_API_H 4u  /**< chat */
#define BT_API_T 8u  /**< tokenize */
#define BT_API_D 16u /**< detokenize */
#define BT_API_R 32u /**< responses */
#define BT_API_O (BT_API_C | BT_API_H)
#define BT_API_A (BT_API_G | BT_API_O)

typedef struct bt_api_parse {
    const bt_json_doc_t *doc; /**< body; NULL: none is read */
    bt_api_request_t *request;
    bt_api_error_t *error;
    bool only_the_best; /**< top_p 0 */
    bool has_max_completion_tokens;
    bool has_top_logprobs;
    bool says_generation_prompt, says_special_tokens;
    bool says_no_tools;      /**< tool_choice is "none" */
    uint32_t best_of;        /**< 0 = absent */
    uint32_t n_bias_weights; /**< number of weights for request->bias_words, in
                                their order */
} bt_api_parse_t;

/** Known field of a body. */
typedef struct bt_api_field {
    const char *name;
    uint32_t dialects; /**< BT_API_G … */
    bt_status_t (*read)(bt_api_parse_t *parse, const struct bt_api_field *field,
                        const bt_json_node_t *value);
    size_t offset;   /**< offset in bt_api_request_t */
    double min, max; /**< range of a number */
} bt_api_field_t;

/** Fills the error: 400, invalid_request_error. @return BT_ERR_INVALID_PARAM */
bt_status_t bt_api_refuse(bt_api_parse_t *parse, const char *param,
                          const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
#define BT_API_SHOWN_BYTES 96

/** Formats a value for an error's text: numbers, words and the beginning of a
 *  string as received; "an array" or "an object". */
const char *bt_api_show(const bt_json_node_t *value,
                        char shown[BT_API_SHOWN_BYTES]);
/** bt_api_show() into memory of the block in which the macro is used. */
#define BT_API_SHOW(value) bt_api_show(value, (char[BT_API_SHOWN_BYTES]){0})

/** Reads an integer from min to max in any notation: 3.0 and 3e0 are 3. */
BT_MUST_CHECK bt_status_t bt_api_integer(bt_api_parse_t *parse,
                                         const char *name,
                                         const bt_json_node_t *value,
                                         int64_t min, int64_t max,
                                         int64_t *number_p);
/** Reads any integer, modulo 2^64. */
BT_MUST_CHECK bt_status_t bt_api_integer_mod_2_64(bt_api_parse_t *parse,
                                                  const char *name,
                                                  const bt_json_node_t *value,
                                                  uint64_t *number_p);
/** Reads a number; infinite beyond the range of a double. @return false: not a
 *  number */
bool bt_api_real(const bt_json_node_t *value, double *real_p);
/** Copies the text of an array or object without white space between its
 *  tokens, so that the copy is one line; numbers and strings as received. */
BT_MUST_CHECK bt_status_t bt_api_raw(bt_api_parse_t *parse,
                                     const bt_json_node_t *value,
                                     char **text_p);
/** Copies a string without zero characters; the caller owns the copy. @a where
 *  is the name used in the error's text, @a param the field. */
BT_MUST_CHECK bt_status_t bt_api_string_in(bt_api_parse_t *parse,
                                           const char *param, const char *where,
                                           const bt_json_node_t *value,
                                           size_t max_bytes, char **text_p);
/** Copies the string of a field, with its name in errors: bt_api_string_in().
 */
BT_MUST_CHECK bt_status_t bt_api_string(bt_api_parse_t *parse, const char *name,
                                        const bt_json_node_t *value,
                                        size_t max_bytes, char **text_p);

/* Readers for the field table. */
bt_status_t bt_api_read_bool(bt_api_parse_t *parse, const bt_api_field_t *field,
                             const bt_json_node_t *value);
bt_status_t bt_api_read_u32(bt_api_parse_t *parse, const bt_api_field_t *field,
                            const bt_json_node_t *value);
bt_status_t bt_api_read_float(bt_api_parse_t *parse,
                              const bt_api_field_t *field,
                              const bt_json_node_t *value);
/** Reads a short string into a char *. */
bt_status_t bt_api_read_name(bt_api_parse_t *parse, const bt_api_field_t *field,
                             const bt_json_node_t *value);
/** Reads a list or an object (min: BT_JSON_ARRAY or BT_JSON_OBJECT) as JSON
 *  text into a char *; an empty one counts as absent. */
bt_status_t bt_api_read_json(bt_api_parse_t *parse, const bt_api_field_t *field,
                             const bt_json_node_t *value);
/** Reads {"token id": bias, …}. */
bt_status_t bt_api_read_logit_bias(bt_api_parse_t *parse,
                                   const bt_api_field_t *field,
                                   const bt_json_node_t *value);
/** Reads embedding_bias_words and embedding_bias_weights: lists of equal
 *  length, which bt_api_check_biases() checks in the end. */
bt_status_t bt_api_read_bias_words(bt_api_parse_t *parse,
                                   const bt_api_field_t *field,
                                   const bt_json_node_t *value);
bt_status_t bt_api_read_bias_weights(bt_api_parse_t *parse,
                                     const bt_api_field_t *field,
                                     const bt_json_node_t *value);
BT_MUST_CHECK bt_status_t bt_api_check_biases(bt_api_parse_t *parse);
/** Accepts any value of a known field that has no effect. */
bt_status_t bt_api_read_ignored(bt_api_parse_t *parse,
                                const bt_api_field_t *field,
                                const bt_json_node_t *value);
/** Reads a bool that is true when the field is false. */
bt_status_t bt_api_read_not(bt_api_parse_t *parse, const bt_api_field_t *field,
                            const bt_json_node_t *value);
/** Refuses a known but unsupported field, unless its value changes nothing
 *  (false, 0, "", [] or {}). */
bt_status_t bt_api_read_unsupported(bt_api_parse_t *parse,
                                    const bt_api_field_t *field,
                                    const bt_json_node_t *value);

/* ---- api_unknown.c ---- */

/** Stores the name of an unknown field for the client. */
void bt_api_note_unknown(bt_api_request_t *request, const char *name,
                         size_t bytes);
/** Notes a member of an object as ignored. @param [in] path  prefix of the key
 */
void bt_api_note_at(bt_api_request_t *request, const char *path,
                    const bt_json_node_t *key);
/** Notes the members of an object that are not in @a known, and not null.
 *  @param [in] path   path of the object, as "stream_options"
 *  @param [in] known  ends with NULL */
void bt_api_note_members(bt_api_parse_t *parse, const char *path,
                         const bt_json_node_t *object,
                         const char *const *known);
/** Returns BT_API_G … of a dialect. */
uint32_t bt_api_dialect_bit(bt_api_dialect_t dialect);

/* ---- api_tools.c ---- */

bt_status_t bt_api_read_tools(bt_api_parse_t *parse,
                              const bt_api_field_t *field,
                              const bt_json_node_t *value);
bt_status_t bt_api_read_tool_choice(bt_api_parse_t *parse,
                                    const bt_api_field_t *field,
                                    const bt_json_node_t *value);
/** Writes the "tool_calls" of an assistant's message.
 *  @param [in] where  "messages[3]", for errors
 *  @param [in,out] json  gets the list as a value */
BT_MUST_CHECK bt_status_t bt_api_write_calls(bt_api_parse_t *parse,
                                             const char *where,
                                             const bt_json_node_t *value,
                                             bt_json_t *json);
/** Writes a value as received. @param [in] key  NULL: in an array, or already
 *  written */
void bt_api_put_value(bt_json_t *json, const char *key,
                      const bt_json_node_t *value);
/** Checks that tool_choice matches the tools. */
BT_MUST_CHECK bt_status_t bt_api_check_tools(bt_api_parse_t *parse);
void bt_api_tools_fini(bt_api_tools_t *tools);
/** True when the choice has calls, or arguments, that were not sent yet. */
bool bt_api_has_new_calls(const bt_api_choice_t *choice);
/** Writes the tool calls of a message or of a piece's delta; nothing if there
 *  are none. */
void bt_api_put_calls(const bt_api_answer_t *answer,
                      const bt_api_choice_t *choice, bool piece,
                      bt_json_t *json);

/* ---- api_scores.c ---- */

/** Writes the member "logprobs" of a choice in its dialect, null where not
 *  requested. */
void bt_api_put_logprobs(const bt_api_answer_t *answer,
                         const bt_api_choice_t *choice, bt_json_t *json);
/** Writes the log-probs and logits of generate under Triton's names; nothing
 *  where not requested. */
void bt_api_put_rows(const bt_api_choice_t *choice, bt_json_t *json);

/* ---- api_responses.c ---- */

/** Writes a whole response, from its only choice. */
void bt_api_put_response(const bt_api_answer_t *answer,
                         const bt_api_choice_t *choice,
                         const bt_api_usage_t *usage, bt_json_t *json);

/* ---- api_tokens.c ---- */

/** Writes the answers of tokenize and detokenize. */
void bt_api_put_tokens(const bt_api_answer_t *answer,
                       const bt_api_choice_t *choice, bt_json_t *json);

/* ---- api_fields.c ---- */

/** Returns a field by name, or NULL when the @a n bytes of @a name are unknown
 *  in this dialect. */
const bt_api_field_t *bt_api_find_field(uint32_t dialect, const char *name,
                                        size_t n);
/** Returns the field name of this dialect that is closest to @a name, or NULL.
 */
const char *bt_api_nearest_field(uint32_t dialect, const char *name, size_t n);

#endif
