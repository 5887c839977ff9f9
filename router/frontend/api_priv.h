/* SPDX-License-Identifier: Apache-2.0 */
/** @file api_priv.h  Shared by the files api_*.c of this folder only. */
#ifndef BT_ROUTER_FRONTEND_API_PRIV_H
#define BT_ROUTER_FRONTEND_API_PRIV_H

#include <jansson.h>

#include "common/base/json.h"
#include "router/frontend/api.h"
#include "router/frontend/api_lift.h"

/* ---- api_scan.c ---- */

/** Before the parser takes memory: is it UTF-8, not too deep, not too many
 *  values (one costs the parser up to 64 bytes)? */
BT_MUST_CHECK bt_status_t bt_api_scan(const char *text, size_t bytes,
                                      bt_api_error_t *error_p);

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
    bt_api_request_t *request;
    bt_api_error_t *error;
    bool has_max_completion_tokens;
    bool has_top_logprobs;
    bool says_generation_prompt, says_special_tokens;
    bool says_no_tools;      /**< tool_choice */
    uint32_t best_of;        /**< 0 = absent */
    uint32_t n_bias_weights; /**< of request->bias_words, in their order */
    bt_api_lift_t *lift;     /**< ids that are not in the JSON; NULL: none */
} bt_api_parse_t;

/** One known field of a body. */
typedef struct bt_api_field {
    const char *name;
    uint32_t dialects; /**< BT_API_G … */
    bt_status_t (*read)(bt_api_parse_t *parse, const struct bt_api_field *field,
                        const json_t *value);
    size_t offset;   /**< in bt_api_request_t */
    double min, max; /**< of a number */
} bt_api_field_t;

/** Fill the error: 400, invalid_request_error. @return BT_ERR_INVALID_PARAM */
bt_status_t bt_api_refuse(bt_api_parse_t *parse, const char *param,
                          const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bt_status_t bt_api_no_memory(bt_api_parse_t *parse);
/** "an integer", "a string" … of what was found. */
const char *bt_api_type_of(const json_t *value);

/** An integer from min to max; 3.0 is one. */
BT_MUST_CHECK bt_status_t bt_api_integer(bt_api_parse_t *parse,
                                         const char *name, const json_t *value,
                                         double min, double max,
                                         int64_t *number_p);
/** Copy of a string, owned by the caller; refuses empty ones if told. */
BT_MUST_CHECK bt_status_t bt_api_string(bt_api_parse_t *parse, const char *name,
                                        const json_t *value, size_t max_bytes,
                                        char **text_p);

/* Readers for the field table. */
bt_status_t bt_api_read_bool(bt_api_parse_t *parse, const bt_api_field_t *field,
                             const json_t *value);
bt_status_t bt_api_read_u32(bt_api_parse_t *parse, const bt_api_field_t *field,
                            const json_t *value);
bt_status_t bt_api_read_i64(bt_api_parse_t *parse, const bt_api_field_t *field,
                            const json_t *value);
bt_status_t bt_api_read_float(bt_api_parse_t *parse,
                              const bt_api_field_t *field, const json_t *value);
/** A short string into a char *. */
bt_status_t bt_api_read_name(bt_api_parse_t *parse, const bt_api_field_t *field,
                             const json_t *value);
/** A list or an object (min: JSON_ARRAY or JSON_OBJECT), as its JSON text in a
 *  char *; an empty one is none. */
bt_status_t bt_api_read_json(bt_api_parse_t *parse, const bt_api_field_t *field,
                             const json_t *value);
/** {"token id": bias, …} */
bt_status_t bt_api_read_logit_bias(bt_api_parse_t *parse,
                                   const bt_api_field_t *field,
                                   const json_t *value);
/** embedding_bias_words and embedding_bias_weights: lists as long as each
 *  other, which bt_api_check_biases() looks at in the end. */
bt_status_t bt_api_read_bias_words(bt_api_parse_t *parse,
                                   const bt_api_field_t *field,
                                   const json_t *value);
bt_status_t bt_api_read_bias_weights(bt_api_parse_t *parse,
                                     const bt_api_field_t *field,
                                     const json_t *value);
BT_MUST_CHECK bt_status_t bt_api_check_biases(bt_api_parse_t *parse);
/** Known, and of no consequence here: any value. */
bt_status_t bt_api_read_ignored(bt_api_parse_t *parse,
                                const bt_api_field_t *field,
                                const json_t *value);
/** A bool that is true when the field is false. */
bt_status_t bt_api_read_not(bt_api_parse_t *parse, const bt_api_field_t *field,
                            const json_t *value);
/** Known but not supported: only a value that changes nothing may come
 *  (false, 0, "", [] or {}). */
bt_status_t bt_api_read_unsupported(bt_api_parse_t *parse,
                                    const bt_api_field_t *field,
                                    const json_t *value);

/* ---- api_unknown.c ---- */

/** A field that is not known: its name is kept for the client. */
void bt_api_note_unknown(bt_api_request_t *request, const char *name);
/** BT_API_G … of a dialect. */
uint32_t bt_api_dialect_bit(bt_api_dialect_t dialect);

/* ---- api_tools.c ---- */

bt_status_t bt_api_read_tools(bt_api_parse_t *parse,
                              const bt_api_field_t *field, const json_t *value);
bt_status_t bt_api_read_tool_choice(bt_api_parse_t *parse,
                                    const bt_api_field_t *field,
                                    const json_t *value);
/** Of a message: "tool_calls", as the assistant made them.
 *  @param [in] where  "messages[3]", for errors */
BT_MUST_CHECK bt_status_t bt_api_read_calls(bt_api_parse_t *parse,
                                            const char *where,
                                            const json_t *value,
                                            char **calls_json_p);
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

/** NULL when @a name is not known in this dialect. */
const bt_api_field_t *bt_api_find_field(uint32_t dialect, const char *name);
/** The name of a field of this dialect that is meant by @a name, or NULL. */
const char *bt_api_nearest_field(uint32_t dialect, const char *name, size_t n);

#endif
