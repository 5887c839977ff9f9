/* SPDX-License-Identifier: Apache-2.0 */
/** @file record.h
 *
 * What is known of a generation for metrics, trace and log: where it came from,
 * its attempts, its ledger. The core fills it; nothing here leads back.
 */
#ifndef BT_ROUTER_OBSERVE_RECORD_H
#define BT_ROUTER_OBSERVE_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/wire/wire.h"
#include "router/observe/ids.h"
#include "router/observe/ledger.h"

#define BT_GEN_MAX_ATTEMPTS 3u /**< the first and two re-runs */

/** "stop", "length" …; for traces and pages. */
const char *bt_finish_name(bt_finish_t finish);

/** What a generation carries from its call to its record; the core does not
 * look at it. */
typedef struct bt_gen_origin {
    uint8_t trace_id[16]; /**< all zero: none yet */
    uint8_t parent_id[8]; /**< span of the client; all zero: none */
    bool chat;            /**< else plain text */
    bool stream;
    uint8_t name;       /**< by which it was called: bt_name_t */
    uint32_t choice;    /**< of its call */
    char answer_id[64]; /**< "" = none */
    uint64_t number;    /**< of this router's generations, from 1 on; 0: none */
    char tenant[64];    /**< its name, or "" */
    char request_id[BT_REQUEST_ID_BYTES]; /**< X-Request-Id, or "" */
} bt_gen_origin_t;

/** What placement went by when it chose. Of a part that is not there, 0. */
typedef struct bt_gen_knew {
    uint32_t n_prefill, n_decode; /**< workers of the role that take requests */
    /* Of the prefill worker. */
    uint32_t ahead_requests; /**< that it has */
    uint32_t ahead_tokens;   /**< of prompts that it has to compute */
    uint64_t ahead_us;       /**< which take there so long, it is thought */
    uint32_t prefill_held_tokens; /**< of the prompt: thought to be there */
    /* Of the decode worker. */
    uint32_t decode_held_tokens;
    uint32_t seats_used, seats, blocks_used, blocks;
} bt_gen_knew_t;

/** One attempt. */
typedef struct bt_gen_attempt {
    uint64_t at_us;                 /**< when it was sent to workers */
    char prefill[BT_WIRE_MAX_NAME]; /**< "": the decode worker does both */
    char decode[BT_WIRE_MAX_NAME];  /**< "": one token, the prefill worker's */
    /** Why this way and these workers, static text; NULL of one that is not
     *  there. */
    const char *cause, *prefill_why, *decode_why;
    bt_gen_knew_t knew;
    char *ended; /**< why it was given up, or NULL; the generation's */
} bt_gen_attempt_t;

/** Of KV that goes from one worker to another. */
typedef enum bt_handover_phase {
    BT_HANDOVER_BEGUN,    /**< the decode worker gave its lease */
    BT_HANDOVER_ENDED,    /**< it has proven the KV */
    BT_HANDOVER_GIVEN_UP, /**< neither; nobody waits for it any more */
} bt_handover_phase_t;

/** Everything about a generation that is over, for the trace. Borrowed. */
typedef struct bt_gen_record {
    const bt_ledger_t *ledger;
    const bt_gen_origin_t *origin;
    const bt_sampling_t *sampling;
    uint32_t max_new;
    uint64_t arrived_us; /**< parsing and tokenizing came before */
    bt_finish_t finish;  /**< STOP, LENGTH, CANCELED (client left) or ERROR */
    int http_status;     /**< of an ERROR, else 0 */
    const char *trouble; /**< of an ERROR what the client heard; else why the
                              attempt before was given up, or "" */
    uint32_t n_attempts;
    const bt_gen_attempt_t *attempts;
    /** Token ids: ledger->n_prompt and n_output of them. */
    const uint32_t *prompt, *output;
} bt_gen_record_t;

/** Times that are known at a moment, for histograms. */
typedef enum bt_gen_time_kind {
    BT_TIME_FIRST_TOKEN, /**< from the first byte parsed to token #1 */
    BT_TIME_NEXT_TOKEN,  /**< between two tokens, as the router gets them */
    BT_TIME_QUEUE,       /**< in the router and at P, to the first chunk */
    BT_TIME_JOIN_WAIT,   /**< "may join" to the next iteration's start */
    BT_TIME_TAIL,        /**< of a transfer, after KV and grant were there */
    BT_TIME_REQUEST,     /**< whole, of those that ended well */
    BT_N_TIMES,
} bt_gen_time_kind_t;

/** Why an attempt failed. */
typedef enum bt_gen_loss {
    BT_LOSS_LEASE_EXPIRED, /**< a lease ended before its KV had come: taken back
                                by its worker, or at the deadline */
    BT_LOSS_TRANSFER, /**< KV could not be sent, or was not what was sent */
    BT_LOSS_REFUSED,  /**< a worker did not take the request */
    BT_LOSS_WORKER,   /**< the link to a worker ended */
    BT_LOSS_DEADLINE, /**< the client's, and no lease waited for KV */
    BT_LOSS_OTHER,    /**< a device, memory, a worker's own fault */
    BT_N_LOSSES,
} bt_gen_loss_t;

#endif
