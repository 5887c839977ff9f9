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
    const bt_json_doc_t *doc; /**< the body; NULL: none is read */
    bt_api_request_t *request;
    bt_api_error_t *error;
    bool only_the_best; /**< top_p 0 */
    bool has_max_completion_tokens;
    bool has_top_logprobs;
    bool says_generation_prompt, says_special_tokens;
    bool says_no_tools;      /**< tool_choice */
    uint32_t best_of;        /**< 0 = absent */
    uint32_t n_bias_weights; /**< of request->bias_words, in their order */
} bt_api_parse_t;

/** One known field of a body. */
typedef struct bt_api_field {
    const char *name;
    uint32_t dialects; /**< BT_API_G … */
    bt_status_t (*read)(bt_api_parse_t *parse, const struct bt_api_field *field,
                        const bt_json_node_t *value);
    size_t offset;   /**< in bt_api_request_t */
    double min, max; /**< of a number */
} bt_api_field_t;

/** Fill the error: 400, invalid_request_error. @return BT_ERR_INVALID_PARAM */
bt_status_t bt_api_refuse(bt_api_parse_t *parse, const char *param,
                          const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bt_status_t bt_api_no_memory(bt_api_parse_t *parse);
#define BT_API_SHOWN_BYTES 96

/** A value for an error's text: numbers, words and the beginning of a string as
 *  they were sent; "an array" or "an object". */
const char *bt_api_show(const bt_json_node_t *value,
                        char shown[BT_API_SHOWN_BYTES]);
/** bt_api_show() in memory of the block that the macro is used in. */
#define BT_API_SHOW(value) bt_api_show(value, (char[BT_API_SHOWN_BYTES]){0})

/** An integer from min to max, however it is written: 3.0 and 3e0 are 3. */
BT_MUST_CHECK bt_status_t bt_api_integer(bt_api_parse_t *parse,
                                         const char *name,
                                         const bt_json_node_t *value,
                                         int64_t min, int64_t max,
                                         int64_t *number_p);
/** Any integer, modulo 2^64. */
BT_MUST_CHECK bt_status_t bt_api_integer_mod_2_64(bt_api_parse_t *parse,
                                                  const char *name,
                                                  const bt_json_node_t *value,
                                                  uint64_t *number_p);
/** A number; beyond what a double holds it is infinite. @return false: none */
bool bt_api_real(const bt_json_node_t *value, double *real_p);
/** The text of an array or object without white space between its tokens, so
 *  that it is one line; numbers and strings as they were written. */
BT_MUST_CHECK bt_status_t bt_api_raw(bt_api_parse_t *parse,
                                     const bt_json_node_t *value,
                                     char **text_p);
/** Copy of a string, owned by the caller; without a zero character. @a where:
 *  what the error's text calls it, @a param: the field that it is of. */
BT_MUST_CHECK bt_status_t bt_api_string_in(bt_api_parse_t *parse,
                                           const char *param, const char *where,
                                           const bt_json_node_t *value,
                                           size_t max_bytes, char **text_p);
/** bt_api_string_in() of a field, which errors call by its own name. */
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
/** A short string into a char *. */
bt_status_t bt_api_read_name(bt_api_parse_t *parse, const bt_api_field_t *field,
                             const bt_json_node_t *value);
/** A list or an object (min: BT_JSON_ARRAY or BT_JSON_OBJECT), as its JSON text
 *  in a char *; an empty one is none. */
bt_status_t bt_api_read_json(bt_api_parse_t *parse, const bt_api_field_t *field,
                             const bt_json_node_t *value);
/** {"token id": bias, …} */
bt_status_t bt_api_read_logit_bias(bt_api_parse_t *parse,
                                   const bt_api_field_t *field,
                                   const bt_json_node_t *value);
/** embedding_bias_words and embedding_bias_weights: lists as long as each
 *  other, which bt_api_check_biases() looks at in the end. */
bt_status_t bt_api_read_bias_words(bt_api_parse_t *parse,
                                   const bt_api_field_t *field,
                                   const bt_json_node_t *value);
bt_status_t bt_api_read_bias_weights(bt_api_parse_t *parse,
                                     const bt_api_field_t *field,
                                     const bt_json_node_t *value);
BT_MUST_CHECK bt_status_t bt_api_check_biases(bt_api_parse_t *parse);
/** Known, and of no consequence here: any value. */
bt_status_t bt_api_read_ignored(bt_api_parse_t *parse,
                                const bt_api_field_t *field,
                                const bt_json_node_t *value);
/** A bool that is true when the field is false. */
bt_status_t bt_api_read_not(bt_api_parse_t *parse, const bt_api_field_t *field,
                            const bt_json_node_t *value);
/** Known but not supported: only a value that changes nothing may come
 *  (false, 0, "", [] or {}). */
bt_status_t bt_api_read_unsupported(bt_api_parse_t *parse,
                                    const bt_api_field_t *field,
                                    const bt_json_node_t *value);

/* ---- api_unknown.c ---- */

/** A field that is not known: its name is kept for the client. */
void bt_api_note_unknown(bt_api_request_t *request, const char *name,
                         size_t bytes);
/** Note a member of an object as ignored. @param [in] path  stands before its
 *  key */
void bt_api_note_at(bt_api_request_t *request, const char *path,
                    const bt_json_node_t *key);
/** Notes the members of an object that are none of @a known, and not null.
 *  @param [in] path   of the object, as "stream_options"
 *  @param [in] known  ends with NULL */
void bt_api_note_members(bt_api_parse_t *parse, const char *path,
                         const bt_json_node_t *object,
                         const char *const *known);
/** BT_API_G … of a dialect. */
uint32_t bt_api_dialect_bit(bt_api_dialect_t dialect);

/* ---- api_tools.c ---- */

bt_status_t bt_api_read_tools(bt_api_parse_t *parse,
                              const bt_api_field_t *field,
                              const bt_json_node_t *value);
bt_status_t bt_api_read_tool_choice(bt_api_parse_t *parse,
                                    const bt_api_field_t *field,
                                    const bt_json_node_t *value);
/** Of a message: "tool_calls", as the assistant made them.
 *  @param [in] where  "messages[3]", for errors
 *  @param [in,out] json  gets the list as a value */
BT_MUST_CHECK bt_status_t bt_api_write_calls(bt_api_parse_t *parse,
                                             const char *where,
                                             const bt_json_node_t *value,
                                             bt_json_t *json);
/** A value as it was sent. @param [in] key  NULL: of an array, or written */
void bt_api_put_value(bt_json_t *json, const char *key,
                      const bt_json_node_t *value);
/** Does tool_choice go with the tools? */
BT_MUST_CHECK bt_status_t bt_api_check_tools(bt_api_parse_t *parse);
void bt_api_tools_fini(bt_api_tools_t *tools);
/** Has it calls, or arguments, that were not told yet? */
bool bt_api_has_new_calls(const bt_api_choice_t *choice);
/** Calls of tools, of a message or of a piece's delta; nothing for none. */
void bt_api_put_calls(const bt_api_answer_t *answer,
                      const bt_api_choice_t *choice, bool piece,
                      bt_json_t *json);

/* ---- api_scores.c ---- */

/** The member "logprobs" of a choice in its dialect, null where none is asked
 *  for. */
void bt_api_put_logprobs(const bt_api_answer_t *answer,
                         const bt_api_choice_t *choice, bt_json_t *json);
/** Those of generate, as Triton names them; nothing where none is asked for. */
void bt_api_put_rows(const bt_api_choice_t *choice, bt_json_t *json);

/* ---- api_responses.c ---- */

/** A whole response, of its only choice. */
void bt_api_put_response(const bt_api_answer_t *answer,
                         const bt_api_choice_t *choice,
                         const bt_api_usage_t *usage, bt_json_t *json);

/* ---- api_tokens.c ---- */

/** The answers of tokenize and detokenize. */
void bt_api_put_tokens(const bt_api_answer_t *answer,
                       const bt_api_choice_t *choice, bt_json_t *json);

/* ---- api_fields.c ---- */

/** NULL when the @a n bytes of @a name are not known in this dialect. */
const bt_api_field_t *bt_api_find_field(uint32_t dialect, const char *name,
                                        size_t n);
/** The name of a field of this dialect that is meant by @a name, or NULL. */
const char *bt_api_nearest_field(uint32_t dialect, const char *name, size_t n);

#endif
