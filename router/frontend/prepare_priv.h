/* SPDX-License-Identifier: Apache-2.0 */
/** @file prepare_priv.h
 *
 * Shared by the files prepare*.c only.
 */
#ifndef BT_ROUTER_FRONTEND_PREPARE_PRIV_H
#define BT_ROUTER_FRONTEND_PREPARE_PRIV_H

#include "router/frontend/prepare.h"

/** One request that is being prepared. */
typedef struct bt_prepare {
    const bt_served_t *served;
    uint32_t context; /**< tokens of the longest sequence */
    bt_api_request_t *request;
    bt_prepared_t *out;
    bt_api_error_t *error; /**< for the client */
} bt_prepare_t;

/* ---- prepare.c ---- */

/** Returns the field names for errors, the request's own where it has them. */
bt_api_names_t bt_prepare_names(const bt_api_request_t *request);
/** Tokenizes a text into at most @a most tokens; fills the error, which names
 *  @a param. */
BT_MUST_CHECK bt_status_t bt_prepare_tokenize(bt_prepare_t *w, uint32_t most,
                                              const char *text, size_t bytes,
                                              unsigned flags, const char *param,
                                              bt_token_vec_t *out);

/* ---- prepare_words.c ---- */

/** Tokenizes banned words, with and without a leading space. */
BT_MUST_CHECK bt_status_t bt_prepare_bad_words(bt_prepare_t *w);
/** Checks that all ids with a bias are in the model's vocabulary. */
BT_MUST_CHECK bt_status_t bt_prepare_check_biases(bt_prepare_t *w,
                                                  const bt_sampling_t *sampling,
                                                  const char *name);
/** Tokenizes words whose tokens get a bias. */
BT_MUST_CHECK bt_status_t bt_prepare_bias_words(bt_prepare_t *w);

/** Makes the lists of ids of the logits processors. */
BT_MUST_CHECK bt_status_t bt_prepare_processors(bt_prepare_t *w);
/** Returns how many of the prompt's last tokens the presence and the frequency
 *  penalty count: with Triton's API all but prompt_ignore_length, as
 *  TensorRT-LLM; with OpenAI's none. */
uint32_t bt_prepare_penalized(const bt_api_request_t *request,
                              uint32_t n_prompt);

/* ---- prepare_ids.c ---- */

/** Copies a prompt of ids. Those from the vocabulary's size on are rows of the
 *  request's prompt table, if it has one.
 *  @param [in]  name  of the prompt, for errors
 *  @param [in]  hint  appended to the refusal of an unknown id; NULL: such ids
 *    count modulo the vocabulary
 *  @param [out] out   ids for the caller to free, also after a failure */
BT_MUST_CHECK bt_status_t bt_prepare_ids(bt_prepare_t *w,
                                         const bt_api_prompt_t *prompt,
                                         const char *name, const char *hint,
                                         bt_token_vec_t *out);
/** Gives a prompt its request's table, if some of its ids are rows of it. */
void bt_prepare_hold_table(const bt_api_request_t *request,
                           bt_prompt_t *prompt);

/* ---- prepare_format.c ---- */

/** Description of a whole answer. Borrowed. */
typedef struct bt_prepare_format {
    const bt_served_t *served;
    const bt_api_request_t *request;
    bool opens_reasoning, may_reason; /**< as in bt_prepared_t */
    bool no_schemas; /**< arguments of tools that are not strict are any
                          object */
} bt_prepare_format_t;

/** True when the answer's calls follow a grammar: calls are required, a tool is
 *  strict, or the request describes the answer that calls none. */
bool bt_prepare_follows_tools(const bt_served_t *served,
                              const bt_api_request_t *request);
/** Writes a structural tag of thinking, calls and the description, whose text
 *  compiles by itself.
 *  @retval BT_ERR_NO_MEMORY, BT_ERR_TOO_LARGE */
BT_MUST_CHECK bt_status_t bt_prepare_format(const bt_prepare_format_t *f,
                                            bt_strbuf_t *out);

#endif
