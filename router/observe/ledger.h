/* SPDX-License-Identifier: Apache-2.0 */
/** @file ledger.h
 *
 * Timing record of one generation. The first block partitions the router's
 * interval along the critical path, so its parts sum to the time to first
 * token and to the total; workers report durations only, and the time they did
 * not report is the remainder.
 *
 *     parse | tokenize | wait | P queue | P compute | rest  = first token
 *     first token | handover (to token #2) | decode         = total
 *
 * P and D are the prefill and the decode worker. The second block is time that
 * overlapped the critical path (hidden) or is part of the hand-over. The tail
 * of a transfer is on the critical path; data time before the tail was hidden
 * behind the prefill.
 */
#ifndef BT_ROUTER_OBSERVE_LEDGER_H
#define BT_ROUTER_OBSERVE_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bt_ledger {
    uint64_t parse_us;
    uint64_t tokenize_us;
    uint64_t queue_us;         /**< in the router, for a pair of workers */
    uint64_t prefill_queue_us; /**< at P: arrival to the first chunk */
    uint64_t prefill_us;       /**< at P: its chunks */
    uint64_t first_token_us;   /**< remaining time to token #1 */
    uint64_t handover_us;      /**< token #1 to token #2 */
    uint64_t decode_us;        /**< token #2 to the end */

    /* Sums over the attempts. If on_ledger() is called before a worker's last
     * message, on_record() has the values of that message. */
    uint64_t decode_queue_us; /**< at D: arrival to grant */
    uint64_t grant_wait_us;   /**< at P: KV ready, no grant yet */
    uint64_t transfer_us;     /**< data time of the transfers */
    uint64_t transfer_bytes;
    uint64_t transfer_pieces;  /**< descriptors */
    uint64_t transfer_tail_us; /**< at P: KV and grant present to all arrived */
    uint64_t kv_verify_us;     /**< at D: last byte's arrival to "may join" */
    uint64_t join_wait_us;     /**< at D: waiting for the end of an iteration */
    uint64_t worker_decode_us; /**< in D's running batch */
    uint64_t paused_us;        /**< at D: preempted */
    uint32_t n_pauses;
    uint32_t n_transfers;
    uint32_t n_chunks;   /**< chunks of the prefill */
    uint32_t n_cached;   /**< prompt tokens not computed at P */
    uint32_t n_kept;     /**< ...computed at P and kept in its prefix cache */
    uint64_t max_gap_us; /**< longest time between two tokens */

    /** Latency targets; 0: none. The ITL target is for the mean of an
     *  answer. */
    uint64_t ttft_target_us, itl_target_us;
    uint64_t ttft_us; /**< sum of the first six; 0: no token came */
    uint64_t total_us;
    uint32_t n_prompt, n_output;
    uint32_t n_attempts;
    uint32_t n_of_request; /**< sequences of the client's request */
    bool ok;               /**< ended with STOP or LENGTH */
    bool canceled;         /**< canceled by the client */
} bt_ledger_t;

#endif
