/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_life.h
 *
 * State machines of a link, a region and a transfer. Pure; the actions on
 * entering a state are in kvt_link.c, kvt_region.c and kvt_xfer.c, in one place
 * each.
 *
 * A link:
 *
 *     NEW ── HELLO ──▶ GREETING ── ACK ──▶ OPEN
 *      │                  │                 │
 *      └───────────────── SEND_FAILED ──────┘
 *                         ▼
 *                       BROKEN ── LOSE ──▶ LOST ── GONE ──▶ GONE
 *
 * HELLO is repeated in GREETING until it is answered. LOSE and GONE end a link
 * in any state; GONE says that the peer cannot write any more.
 *
 * A region:
 *
 *     the sender writes through          the sender may write our
 *     messages alone                     pool itself
 *
 *         OPEN ─────────── BEGIN ───────────▶ DIRECT
 *          │ │                                │ │ │
 *          │ └─ LAST ─▶ LISTED ◀──── LAST ────┘ │ │
 *          │             │  │                   │ │
 *          │   ┌ PROVEN ─┘  │ FAIL, STOP        │ │
 *          │   ▼            │                   │ │
 *          │  DONE          │                   │ │
 *          │                ▼                   │ │
 *          └─ FAIL, STOP ─▶ FAILED ◀─── STOP ───┘ │ FAIL
 *                             ▲                   ▼
 *                             └──── STOP ──── FAILED_DIRECT
 *
 *     ═══ CLOSE: from DIRECT and FAILED_DIRECT to the right, else ═══
 *         ▼ to the left                          ▼
 *         DRAINING ◀──── STOP, CONFIRM ──── QUARANTINED
 *          │    │                                │
 *          │  LATE                              LATE
 *          │    ▼                                ▼
 *          │  OVERDUE ◀──── STOP, CONFIRM ──── STUCK
 *          │    │
 *          └────┴─ DRAINED ─▶ CLOSED
 *
 * Inputs that do not change the state: PIECE in OPEN, DIRECT and LISTED; PART
 * in OPEN and DIRECT; BEGIN again in DIRECT; STOP in the states without a
 * writer (DONE, FAILED, DRAINING, OVERDUE), and CONFIRM in the latter two. All
 * others are refused.
 *
 * So a region's bytes become free (CLOSED) only from states in which no sender
 * writes to them (I2), and a sender with permission to write loses it by its
 * own message (LAST, STOP, CONFIRM) or by its end (STOP).
 *
 * A transfer:
 *
 *     POSTING ─ FINISH ─▶ FINISHED ─ LISTED ─▶ LISTED ─ PROVEN ─▶ ENDING
 *        │                    │                   │               ▲    │
 *        └────────────────────┴─────── END ───────┴───────────────┘ RETURNED
 *                                                                      ▼
 *                                                                    ENDED
 *
 * POST is allowed in POSTING and does not change the state.
 */
#ifndef BT_KVTRANSFER_KVT_LIFE_H
#define BT_KVTRANSFER_KVT_LIFE_H

#include <stdbool.h>

#include "common/base/status.h"

typedef enum bt_kvt_link_state {
    BT_KVT_LINK_IS_NEW,      /**< no HELLO was sent: the peer connected to us */
    BT_KVT_LINK_IS_GREETING, /**< our HELLO was sent, and is unanswered */
    BT_KVT_LINK_IS_OPEN,     /**< our HELLO was answered: we may write */
    BT_KVT_LINK_IS_BROKEN,   /**< a send failed; lost at the next progress */
    BT_KVT_LINK_IS_LOST,     /**< the peer may still be writing */
    BT_KVT_LINK_IS_GONE,     /**< lost; the peer's process, or at least the
                                session, is over */
    BT_KVT_LINK_N_STATES
} bt_kvt_link_state_t;

typedef enum bt_kvt_link_input {
    BT_KVT_LINK_ON_ACK,   /**< from the peer. All others are from this side: */
    BT_KVT_LINK_ON_HELLO, /**< a HELLO is sent */
    BT_KVT_LINK_ON_SEND_FAILED,
    BT_KVT_LINK_ON_LOSE, /**< the link is given up */
    BT_KVT_LINK_ON_GONE, /**< LOSE, with the proof that the peer cannot write */
    BT_KVT_LINK_N_INPUTS
} bt_kvt_link_input_t;

/**
 * Computes the state of a link after @a input in @a state.
 *
 * @retval BT_OK
 * @retval BT_ERR_STALE  refused: nothing changes
 */
BT_MUST_CHECK bt_status_t bt_kvt_link_next(bt_kvt_link_state_t state,
                                           bt_kvt_link_input_t input,
                                           bt_kvt_link_state_t *next_p);

/** True once a link is lost. */
static inline bool bt_kvt_link_is_lost(bt_kvt_link_state_t state)
{
    return state >= BT_KVT_LINK_IS_LOST;
}

typedef enum bt_kvt_region_state {
    BT_KVT_REGION_IS_OPEN,
    BT_KVT_REGION_IS_DIRECT, /**< open; the sender has permission to write */
    BT_KVT_REGION_IS_LISTED, /**< the manifest is complete: to be verified */
    BT_KVT_REGION_IS_DONE,
    BT_KVT_REGION_IS_FAILED,
    BT_KVT_REGION_IS_FAILED_DIRECT, /**< failed; the sender may still write */
    BT_KVT_REGION_IS_DRAINING, /**< closed; buffers in flight or the own device
                                  still write */
    BT_KVT_REGION_IS_OVERDUE,  /**< draining for too long, which was reported */
    BT_KVT_REGION_IS_QUARANTINED, /**< closed; the sender may still write */
    BT_KVT_REGION_IS_STUCK, /**< quarantined for too long, which was reported */
    BT_KVT_REGION_IS_CLOSED, /**< the bytes are free */
    BT_KVT_REGION_N_STATES
} bt_kvt_region_state_t;

typedef enum bt_kvt_region_input {
    /* From the sender: */
    BT_KVT_REGION_ON_BEGIN, /**< requests permission to write (or has it) */
    BT_KVT_REGION_ON_PIECE, /**< data by message */
    BT_KVT_REGION_ON_PART,  /**< part of the manifest */
    BT_KVT_REGION_ON_LAST,  /**< last part of the manifest: the sender writes no
                               more */
    BT_KVT_REGION_ON_CONFIRM, /**< the sender has seen the REVOKE and writes no
                                 more */
    BT_KVT_REGION_ON_STOP,    /**< the sender gave up, or is gone, and writes no
                                 more */
    /* From this side: */
    BT_KVT_REGION_ON_PROVEN, /**< coverage and checksums are right */
    BT_KVT_REGION_ON_FAIL,  /**< coverage or checksums are wrong, or the link is
                               lost */
    BT_KVT_REGION_ON_CLOSE, /**< requested by the owner */
    BT_KVT_REGION_ON_DRAINED, /**< no buffer is being written */
    BT_KVT_REGION_ON_LATE,    /**< the state lasted longer than quarantine_ms */
    BT_KVT_REGION_N_INPUTS
} bt_kvt_region_input_t;

/**
 * Computes the state of a region after @a input in @a state.
 *
 * @retval BT_OK
 * @retval BT_ERR_STALE          refused; a sender can cause it: drop its
 *                               message
 * @retval BT_ERR_INVALID_PARAM  refused; a bug of this side
 */
BT_MUST_CHECK bt_status_t bt_kvt_region_next(bt_kvt_region_state_t state,
                                             bt_kvt_region_input_t input,
                                             bt_kvt_region_state_t *next_p);

/** @return true while the sender may be writing into the pool itself */
bool bt_kvt_region_is_written(bt_kvt_region_state_t state);
/** @return true once the owner has closed the region */
bool bt_kvt_region_is_closing(bt_kvt_region_state_t state);

typedef enum bt_kvt_xfer_state {
    BT_KVT_XFER_IS_POSTING,  /**< more pieces may come */
    BT_KVT_XFER_IS_FINISHED, /**< no more pieces; some are in flight */
    BT_KVT_XFER_IS_LISTED,   /**< the manifest was sent: the receiver decides */
    BT_KVT_XFER_IS_ENDING,   /**< the outcome is known; the network or the own
                                device may still read the source */
    BT_KVT_XFER_IS_ENDED,    /**< XFER_DONE; to be released */
    BT_KVT_XFER_N_STATES
} bt_kvt_xfer_state_t;

typedef enum bt_kvt_xfer_input {
    BT_KVT_XFER_ON_PROVEN, /**< from the receiver: all has arrived. All others
                              are from this side: */
    BT_KVT_XFER_ON_POST,
    BT_KVT_XFER_ON_FINISH,
    BT_KVT_XFER_ON_LISTED,   /**< the last part of the manifest was sent */
    BT_KVT_XFER_ON_END,      /**< any other outcome */
    BT_KVT_XFER_ON_RETURNED, /**< the source is no longer read */
    BT_KVT_XFER_N_INPUTS
} bt_kvt_xfer_input_t;

/**
 * Computes the state of a transfer after @a input in @a state.
 *
 * @retval BT_OK
 * @retval BT_ERR_STALE          refused; a receiver can cause it
 * @retval BT_ERR_INVALID_PARAM  refused; a bug of this side or of the caller
 */
BT_MUST_CHECK bt_status_t bt_kvt_xfer_next(bt_kvt_xfer_state_t state,
                                           bt_kvt_xfer_input_t input,
                                           bt_kvt_xfer_state_t *next_p);

#endif
