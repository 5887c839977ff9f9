/* SPDX-License-Identifier: Apache-2.0 */
/** @file ledger.h
 *
 * Where the time of one generation went. The first block partitions the
 * router's own interval along the critical path, so its parts sum to the time
 * to first token and to the total; workers report durations only, and what
 * they did not report is the remainder.
 *
 *     parse | tokenize | wait | P queue | P compute | rest  = first token
 *     first token | handover (to token #2) | decode         = total
 *
 * The second block is what overlapped (hidden) or is part of the handover. Of
 * a transfer the tail is on the critical path; data time beyond it was hidden
 * behind the context phase.
 */
#ifndef BT_ROUTER_OBSERVE_LEDGER_H
#define BT_ROUTER_OBSERVE_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bt_ledger {
    uint64_t parse_us;
    uint64_t tokenize_us;
    uint64_t wait_us;            /**< in the router, for a pair of workers */
    uint64_t prefill_queue_us;   /**< at P: arrival to the first chunk */
    uint64_t prefill_compute_us; /**< at P: its chunks */
    uint64_t first_rest_us;      /**< rest of the time to token #1 */
    uint64_t handover_us;        /**< token #1 to token #2 */
    uint64_t decode_us;          /**< token #2 to the end */

    /* Sums over the attempts. Where on_ledger() comes before a worker's last
     * word, on_record() has what that word brings. */
    uint64_t decode_queue_us; /**< at D: arrival to grant */
    uint64_t grant_wait_us;   /**< at P: KV ready, no grant yet */
    uint64_t transfer_us;     /**< data time of its transfers */
    uint64_t transfer_bytes;
    uint64_t transfer_pieces;  /**< descriptors */
    uint64_t transfer_tail_us; /**< at P: KV and grant there to all arrived */
    uint64_t kv_handover_us;   /**< at D: last byte's arrival to "may join" */
    uint64_t join_wait_us;     /**< at D: for the end of an iteration */
    uint64_t worker_decode_us; /**< in D's running batch */
    uint64_t paused_us;        /**< at D: out of it, for others */
    uint32_t n_pauses;
    uint32_t n_transfers;
    uint32_t n_chunks;   /**< of the context phase */
    uint32_t n_cached;   /**< prompt tokens not computed there */
    uint32_t n_kept;     /**< ...computed there and kept in its prefix cache */
    uint64_t max_gap_us; /**< longest time between two tokens */

    /** Its targets; 0: none. The second is of the mean of an answer. */
    uint64_t ttft_target_us, itl_target_us;
    uint64_t first_token_us; /**< sum of the first six; 0 when none came */
    uint64_t total_us;
    uint32_t n_prompt, n_output;
    uint32_t n_attempts;
    uint32_t n_of_request; /**< sequences of its client's request */
    bool ok;               /**< ended with STOP or LENGTH */
    bool canceled;         /**< its client gave it up */
} bt_ledger_t;

#endif
