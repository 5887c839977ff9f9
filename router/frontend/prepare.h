/* SPDX-License-Identifier: Apache-2.0 */
/** @file prepare.h
 *
 * Turns a parsed request into tokens and limits: chat template, tokenizing, bad
 * words, end ids, seed, and all length checks against the context.
 *
 * Bad words are banned with and without a leading space, because a vocabulary
 * has different tokens for a word at the start of a text and inside it. Without
 * max_tokens a completion or generate call gets 16 tokens and a chat answer
 * what fits, at most 1024.
 *
 * Threads: one thread; a served model is never changed.
 */
#ifndef BT_ROUTER_FRONTEND_PREPARE_H
#define BT_ROUTER_FRONTEND_PREPARE_H

#include <stdint.h>

#include "common/base/status.h"
#include "common/wire/request.h"
#include "inference/tokenizer/tokenizer.h"
#include "router/api/api.h"
#include "router/core/rows.h"
#include "router/frontend/grammar_cache.h"
#include "router/frontend/registry.h"

#define BT_DEFAULT_MAX_TOKENS      16
#define BT_DEFAULT_CHAT_MAX_TOKENS 1024

typedef struct bt_prepared_prompt {
    bt_prompt_t *prompt; /**< one reference */
    uint32_t max_new;
    uint32_t n_penalized; /**< bt_processor_options_t.n_penalized_prompt */
    bool is_thinking;     /**< bt_processor_options_t.is_thinking */
} bt_prepared_prompt_t;

/** Tokenized prompts and sampling of a request. Zero-initialise; free with
 *  bt_prepared_fini(). */
typedef struct bt_prepared {
    bt_prepared_prompt_t *prompts; /**< owned */
    size_t n_prompts;
    /** Bad words are owned here, biases by the request. */
    bt_sampling_t sampling;
    bt_bad_word_t *bad_words; /**< owned */
    bt_logit_bias_t *biases;  /**< owned; biases made of words, or NULL */
    /** Cache namespace of the KV blocks (space.h); set by the caller. */
    bt_hash128_t space;
    bt_tenant_t *tenant;  /**< borrowed, set by the caller: charged for grammars
                               that are compiled; NULL: nobody is */
    bool opens_reasoning; /**< bt_reason_is_opened() */
    bool may_reason; /**< the answer may begin with reasoning, and its mark */
    /** Format of tool calls in the answers; NULL: there are none. */
    const bt_tool_format_t *tools;
    bt_strbuf_t tool_opening; /**< owned; beginning of a tool call at the
                                 prompt's end */
    bt_token_vec_t tokens;    /**< owned; result of tokenize */
    bt_strbuf_t text;         /**< owned; result of detokenize */
} bt_prepared_t;

/**
 * Prepares a request.
 *
 * @param [in,out] request  gets the names of members that the chat template
 *   ignores
 * @param [in]  context_tokens  Longest sequence that model and workers take.
 * @param [out] prepared_p      Only on BT_OK.
 * @param [out] error_p         Otherwise the error for the client.
 * @retval BT_OK, BT_ERR_INVALID_PARAM, BT_ERR_NO_MEMORY
 * @retval BT_ERR_TOO_LARGE the prompt is longer than the context
 * @retval BT_ERR_IO        no random numbers
 * @retval BT_ERR_CANCELED  the thread's task was canceled (common/base/task.h)
 */
BT_MUST_CHECK bt_status_t bt_prepare(const bt_served_t *served,
                                     uint32_t context_tokens,
                                     bt_api_request_t *request,
                                     bt_prepared_t *prepared_p,
                                     bt_api_error_t *error_p);
void bt_prepared_fini(bt_prepared_t *prepared);

/** True when a request's answer follows a grammar: that of its description, or
 *  of its tools. */
bool bt_prepare_has_grammar(const bt_served_t *served,
                            const bt_api_request_t *request);
/** Returns the description of a request's grammar; with a field. */
bt_grammar_source_t bt_prepare_grammar_source(const bt_api_request_t *request);
/**
 * Gives all prompts of a prepared request the compiled grammar, if it has a
 * description, or tools whose calls follow one; prepared->space is final.
 *
 * @param [out] made_p  time and result, for metrics; without the program;
 *     cpu_us is that of all compilations
 * @retval BT_ERR_INVALID_PARAM, BT_ERR_NO_MEMORY  error_p is filled
 * @retval BT_ERR_BUSY  prepared->tenant may compile none now
 */
BT_MUST_CHECK bt_status_t bt_prepare_grammar(bt_grammar_cache_t *cache,
                                             const bt_served_t *served,
                                             const bt_api_request_t *request,
                                             bt_prepared_t *prepared,
                                             bt_grammar_made_t *made_p,
                                             bt_api_error_t *error_p);

#endif
