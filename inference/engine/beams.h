/* SPDX-License-Identifier: Apache-2.0 */
/** @file beams.h
 *
 * Beams of one sequence: their tokens and KV, while the engine searches for the
 * best answers (common/sched/sched_beam.h has the rules).
 *
 *     prompt ── whole blocks, shared by all beams ── part of a block
 *                                                       │ first step
 *        ┌─────────────┬─────────────┬──────────────────┤
 *      beam 0        beam 1        beam 2            beam 3      a row each in
 *        │ ╲            │ (dropped)    │                │        one iteration
 *      beam 0  beam 1                beam 2           beam 3
 *
 * The sequence is one to its owner: it has one place in the order, one block
 * table, and leaves once, with all answers. Its table has the blocks of the
 * prompt first and behind them blocks that any beam may take, as many as all
 * beams may ever hold. Each beam has a table of its own. A beam that continues
 * another one shares the full blocks, which are counted, and copies the one
 * that is filled in part, unless it is the only one to continue.
 *
 * A sequence that leaves before its end, because it is preempted or canceled,
 * forgets its beams. Submitted again, it begins at the prompt, and gives equal
 * answers (I1). Then the whole blocks of the prompt still have their KV, but
 * not the one that it fills in part, which beams write behind it.
 *
 * Threads: the owner creates and destroys, and reads the answers after the LEFT
 *          item; the compute thread has it in between.
 */
#ifndef BT_INFERENCE_ENGINE_BEAMS_H
#define BT_INFERENCE_ENGINE_BEAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/sched/sched_beam.h"

typedef struct bt_beams bt_beams_t;

/** Parameters of a sequence's beams. */
typedef struct bt_beams_config {
    bt_sched_beam_params_t params; /**< width at least 1 */
    const uint32_t *tokens;        /**< [n_tokens] the prompt; copied */
    uint32_t n_tokens;             /**< at least 1 */
    uint32_t max_new;              /**< greatest length of an answer */
    uint32_t n_end_ids;
    uint32_t tokens_per_block;
    uint32_t n_vocab;
} bt_beams_config_t;

/** One of the answers. */
typedef struct bt_beams_answer {
    const uint32_t *ids;    /**< [n], an end id included */
    const double *logprobs; /**< [n] the model's own log-prob of each */
    uint32_t n;
    bool ends; /**< the last id is an end id */
} bt_beams_answer_t;

/** Returns the number of blocks of a sequence with beams: those of its prompt,
 *  then as many as the beams may hold beyond the blocks that they share. */
uint64_t bt_beams_n_blocks(uint32_t width, uint32_t n_tokens, uint32_t max_new,
                           uint32_t tokens_per_block);

/** Creates the beams of a sequence that has not begun.
 *  @param [out] beams_p  the caller's; free with bt_beams_destroy()
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_beams_create(const bt_beams_config_t *config,
                                          bt_beams_t **beams_p);
void bt_beams_destroy(bt_beams_t *beams); /**< NULL is allowed */

/** Returns the number of beams, which is that of the sequence's seats. */
uint32_t bt_beams_width(const bt_beams_t *beams);

/** Returns the number of answers; after LEFT with STOP or LENGTH. */
uint32_t bt_beams_n_answers(const bt_beams_t *beams);
/** Returns an answer, the best one first. Valid while the beams exist and the
 *  sequence is not submitted again.
 *  @param [in] i  below bt_beams_n_answers() */
bt_beams_answer_t bt_beams_answer(const bt_beams_t *beams, uint32_t i);

#endif
