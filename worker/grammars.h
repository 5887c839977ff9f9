/* SPDX-License-Identifier: Apache-2.0 */
/** @file grammars.h
 *
 * Grammars of a worker: the trie of the vocabulary, made by a thread of its own
 * while the weights are loaded, and a matcher for each grammar that jobs have.
 *
 *     REQUEST ─ program, space ─┬ known ───▶ +1 ─┬▶ job, and its sequence
 *                               └ load, create ──┘        │ ends
 *                                                         ▼
 *              the least recently used ◀── idle, kept ◀── -1
 *              is freed beyond max_bytes
 *
 * Jobs of one space with equal programs share a matcher, so the masks that one
 * answer needed are there for the next. Those of different spaces share none:
 * nobody can tell from the time of an answer what others asked for.
 *
 * Threads: the control thread. The compute thread uses the matcher of a
 *          sequence that is submitted.
 */
#ifndef BT_WORKER_GRAMMARS_H
#define BT_WORKER_GRAMMARS_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "inference/gguf/gguf.h"
#include "inference/matcher/matcher.h"

/** Most memory of one matcher. It becomes resident as it is used. */
#define BT_GRAMMARS_MATCHER_BYTES ((size_t)16 << 20)

/** Why a job with bt_seq_grammar_t.has_failed fails, with BT_ERR_AMBIGUOUS. */
#define BT_JOB_GRAMMAR_FAILED                                               \
    "the grammar of the request is too ambiguous, or its masks too large, " \
    "to be followed further"

typedef struct bt_grammars bt_grammars_t;
typedef struct bt_job_grammar bt_job_grammar_t; /**< one reference of a job */

/** Begins to make the trie of a file's vocabulary.
 *  @param [in] gguf       borrowed until bt_grammars_wait() or _destroy()
 *  @param [in] n_vocab    of the model's logits
 *  @param [in] max_bytes  of matchers that no job has */
BT_MUST_CHECK bt_status_t bt_grammars_create(const bt_gguf_t *gguf,
                                             uint32_t n_vocab,
                                             uint64_t max_bytes,
                                             bt_grammars_t **grammars_p);
/** Waits until the trie is there.
 *  @param [out] why  On failure the reason, for the log.
 *  @retval any of bt_tokenizer_load(), bt_token_trie_create(): the worker can
 *          restrict no answer */
BT_MUST_CHECK bt_status_t bt_grammars_wait(bt_grammars_t *grammars, char *why,
                                           size_t why_bytes);
/** Frees everything; no job has a grammar any more. NULL is allowed. */
void bt_grammars_destroy(bt_grammars_t *grammars);

/** Finds or makes the grammar of a program, after bt_grammars_wait() was
 *  successful.
 *  @param [in]  program    borrowed for the call
 *  @param [in]  completes  its matcher knows distances
 *         (bt_matcher_know_distances())
 *  @param [out] why_p      On failure: static text for the router.
 *  @param [out] grammar_p  for bt_job_grammar_release()
 *  @retval any of bt_grammar_load(), bt_matcher_create(),
 *          bt_matcher_know_distances() */
BT_MUST_CHECK bt_status_t bt_grammars_take(bt_grammars_t *grammars,
                                           bt_hash128_t space,
                                           const uint8_t *program,
                                           uint32_t bytes, bool completes,
                                           const char **why_p,
                                           bt_job_grammar_t **grammar_p);
/** Returns a reference. NULL is allowed. */
void bt_job_grammar_release(bt_job_grammar_t *grammar);
bt_matcher_t *bt_job_grammar_matcher(const bt_job_grammar_t *grammar);

const bt_token_trie_t *bt_grammars_trie(const bt_grammars_t *grammars);
/** Returns how many programs were loaded since the start. */
uint64_t bt_grammars_n_loaded(const bt_grammars_t *grammars);

#endif
