/* SPDX-License-Identifier: Apache-2.0 */
/** @file record.h
 *
 * Record of a generation for metrics, trace and log: its origin, its attempts,
 * its timing record. The core fills it in; nothing here calls back into the
 * core.
 */
#ifndef BT_ROUTER_OBSERVE_RECORD_H
#define BT_ROUTER_OBSERVE_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/wire/wire.h"
#include "router/observe/ids.h"

#define BT_GEN_MAX_ATTEMPTS 3u /**< the first attempt and two retries */

/** Returns the name of a finish reason: "stop", "length" …; for traces and
 *  pages. */
const char *bt_finish_name(bt_finish_t finish);

/** Timing record of one generation. The first block partitions the router's
 *  interval along the critical path, so its parts sum to the time to first
 *  token and to the total; workers report durations only, and the time they did
 *  not report is the remainder.
 *
 *      parse | tokenize | wait | P queue | P compute | rest  = first token
 *      first token | handover (to token #2) | decode         = total
 *
 *  P and D are the prefill and the decode worker. The second block is time that
 *  overlapped the critical path (hidden) or is part of the hand-over. The tail
 *  of a transfer is on the critical path; data time before the tail was hidden
 *  behind the prefill. */
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
    uint32_t n_drafted;  /**< drafts that were verified */
    uint32_t n_accepted; /**< drafts that were right */
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

/** Attainment of a sequence's latency targets, as counted by
 *  baton_slo_sequences_total. A sequence canceled by its client has no
 *  targets. */
typedef struct bt_slo_attainment {
    bool has_ttft, met_ttft, has_itl, met_itl;
} bt_slo_attainment_t;
bt_slo_attainment_t bt_slo_attainment_of(const bt_ledger_t *ledger);

/** Data that a generation carries from its call to its record; opaque to the
 *  core. */
typedef struct bt_gen_origin {
    uint8_t trace_id[16]; /**< all zero: none yet */
    uint8_t parent_id[8]; /**< span of the client; all zero: none */
    bool chat;            /**< chat; else plain text completion */
    bool stream;
    uint8_t name;       /**< model name that the client used: bt_name_t */
    uint32_t choice;    /**< index in the call */
    char answer_id[64]; /**< "" = none */
    uint64_t number;    /**< number in this router, from 1 on; 0: none */
    char tenant[64];    /**< name, or "" */
    char request_id[BT_REQUEST_ID_BYTES]; /**< X-Request-Id, or "" */
} bt_gen_origin_t;

/** Information that placement based its choice on; 0 for a worker that was not
 *  chosen. */
typedef struct bt_gen_knew {
    uint32_t n_prefill, n_decode; /**< workers that accept requests */
    /* Of the prefill worker: */
    uint32_t ahead_requests; /**< requests at the worker */
    uint32_t ahead_tokens;   /**< prompt tokens that it has yet to compute */
    uint64_t ahead_us;       /**< estimated time for them */
    uint32_t prefill_held_tokens; /**< estimated cached tokens of the prompt */
    /* Of the decode worker: */
    uint32_t decode_held_tokens;
    uint32_t seats_used, seats, blocks_used, blocks;
} bt_gen_knew_t;

/** One attempt: one placement of a sequence on workers. */
typedef struct bt_gen_attempt {
    uint64_t at_us;                 /**< time it was sent to workers */
    char prefill[BT_WIRE_MAX_NAME]; /**< "": prefill at the decode worker */
    char decode[BT_WIRE_MAX_NAME];  /**< "": one token, from prefill */
    /** Reasons for this placement and these workers, static text; NULL for a
     *  worker that is not used. */
    const char *cause, *prefill_why, *decode_why;
    bt_gen_knew_t knew;
    char *ended; /**< why it failed, or NULL; the generation's */
} bt_gen_attempt_t;

/** Phase of the hand-over of KV from one worker to another. */
typedef enum bt_handover_phase {
    BT_HANDOVER_BEGUN,    /**< the decode worker granted a lease */
    BT_HANDOVER_ENDED,    /**< the decode worker has verified the KV */
    BT_HANDOVER_GIVEN_UP, /**< given up without KV */
} bt_handover_phase_t;

/** Record of a generation that is over, for the trace. Borrowed. */
typedef struct bt_gen_record {
    const bt_ledger_t *ledger;
    const bt_gen_origin_t *origin;
    const bt_sampling_t *sampling;
    uint32_t max_new;
    uint64_t arrived_us; /**< start, after parsing and tokenizing */
    bt_finish_t finish;  /**< STOP, LENGTH, CANCELED (client left) or ERROR */
    int http_status;     /**< for an ERROR, else 0 */
    const char *trouble; /**< for an ERROR, the message to the client; else why
                            the attempt before failed, or "" */
    uint32_t n_attempts;
    const bt_gen_attempt_t *attempts;
    /** Token ids: ledger->n_prompt and ledger->n_output of them. */
    const uint32_t *prompt, *output;
} bt_gen_record_t;

/** Times that are recorded in histograms when they become known. */
typedef enum bt_gen_time_kind {
    BT_TIME_FIRST_TOKEN, /**< from the first byte parsed to token #1 */
    BT_TIME_NEXT_TOKEN,  /**< between two tokens, as the router receives them */
    BT_TIME_QUEUE,       /**< in the router and at P, to the first chunk */
    BT_TIME_JOIN_WAIT,   /**< "may join" to the next iteration's start */
    BT_TIME_TAIL,    /**< end of a transfer, after KV and grant were there */
    BT_TIME_REQUEST, /**< total, of requests that succeeded */
    BT_N_TIMES,
} bt_gen_time_kind_t;

/** Reason for which an attempt failed. */
typedef enum bt_gen_loss {
    BT_LOSS_LEASE_EXPIRED, /**< a lease ended before its KV arrived */
    BT_LOSS_TRANSFER,      /**< KV could not be sent, or failed verification */
    BT_LOSS_REFUSED,       /**< a worker rejected the request */
    BT_LOSS_WORKER,        /**< the control link to a worker ended */
    BT_LOSS_DEADLINE,      /**< client's deadline, and no lease waited for KV */
    BT_LOSS_OTHER,         /**< a device, memory, an error in a worker */
    BT_N_LOSSES,
} bt_gen_loss_t;

#endif
