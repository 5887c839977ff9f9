/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_life.h
 *
 * The lives of a window and of a transfer: in which state what may happen, and
 * what comes of it. Pure; who does what on entering a state stands in
 * kvt_window.c and kvt_xfer.c, in one place each.
 *
 * A window:
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
 *     ═══ CLOSE: of DIRECT and FAILED_DIRECT to the right, else ════
 *         ▼ to the left                          ▼
 *         DRAINING ◀──── STOP, CONFIRM ──── QUARANTINED
 *          │    │                                │
 *          │  LATE                              LATE
 *          │    ▼                                ▼
 *          │  OVERDUE ◀──── STOP, CONFIRM ──── STUCK
 *          │    │
 *          └────┴─ DRAINED ─▶ CLOSED
 *
 * Besides, without a change of state: PIECE in OPEN, DIRECT and LISTED; PART in
 * OPEN and DIRECT; BEGIN again in DIRECT; STOP wherever nobody writes any more
 * (DONE, FAILED, DRAINING, OVERDUE), and CONFIRM in the latter two. All else is
 * refused.
 *
 * So a window's bytes become free (CLOSED) from states alone in which nobody
 * writes to them (I2), and who has leave to write loses it by its own word
 * (LAST, STOP, CONFIRM) or by its end (STOP).
 *
 * A transfer:
 *
 *     POSTING ─ FINISH ─▶ FINISHED ─ LISTED ─▶ LISTED ─ PROVEN ─▶ ENDING
 *        │                    │                   │               ▲    │
 *        └────────────────────┴─────── END ───────┴───────────────┘ RETURNED
 *                                                                      ▼
 *                                                                    ENDED
 *
 * Besides: POST in POSTING.
 */
#ifndef BT_KVTRANSFER_KVT_LIFE_H
#define BT_KVTRANSFER_KVT_LIFE_H

#include <stdbool.h>

#include "common/base/status.h"

typedef enum bt_kvt_window_state {
    BT_KVT_WINDOW_IS_OPEN,
    BT_KVT_WINDOW_IS_DIRECT, /**< open, and the sender has leave to write */
    BT_KVT_WINDOW_IS_LISTED, /**< the manifest is whole: to be proven */
    BT_KVT_WINDOW_IS_DONE,
    BT_KVT_WINDOW_IS_FAILED,
    BT_KVT_WINDOW_IS_FAILED_DIRECT, /**< ...and who had leave may write on */
    BT_KVT_WINDOW_IS_DRAINING,      /**< closed; what we gave buffers to, or the
                                         own device, still writes */
    BT_KVT_WINDOW_IS_OVERDUE,       /**< ...for long, and that was said */
    BT_KVT_WINDOW_IS_QUARANTINED,   /**< closed; the sender may write on */
    BT_KVT_WINDOW_IS_STUCK,         /**< ...for long, and that was said */
    BT_KVT_WINDOW_IS_CLOSED,        /**< its bytes are free */
    BT_KVT_WINDOW_N_STATES
} bt_kvt_window_state_t;

typedef enum bt_kvt_window_input {
    /* The sender's: */
    BT_KVT_WINDOW_ON_BEGIN,   /**< it asks for leave to write (or has it) */
    BT_KVT_WINDOW_ON_PIECE,   /**< data by message */
    BT_KVT_WINDOW_ON_PART,    /**< a part of the manifest... */
    BT_KVT_WINDOW_ON_LAST,    /**< ...the last: it writes no more */
    BT_KVT_WINDOW_ON_CONFIRM, /**< it has seen the REVOKE: likewise */
    BT_KVT_WINDOW_ON_STOP,    /**< it gave up, or is gone: likewise */
    /* Ours: */
    BT_KVT_WINDOW_ON_PROVEN,  /**< coverage and checksums are right */
    BT_KVT_WINDOW_ON_FAIL,    /**< they are not, or its link is lost */
    BT_KVT_WINDOW_ON_CLOSE,   /**< the owner's wish */
    BT_KVT_WINDOW_ON_DRAINED, /**< no buffer is being written */
    BT_KVT_WINDOW_ON_LATE,    /**< it took longer than quarantine_ms */
    BT_KVT_WINDOW_N_INPUTS
} bt_kvt_window_input_t;

/**
 * What @a input makes of a window in @a state.
 *
 * @retval BT_OK
 * @retval BT_ERR_STALE          refused; a sender can cause it: drop what came
 * @retval BT_ERR_INVALID_PARAM  refused; our own fault
 */
BT_MUST_CHECK bt_status_t bt_kvt_window_next(bt_kvt_window_state_t state,
                                             bt_kvt_window_input_t input,
                                             bt_kvt_window_state_t *next_p);

/** @return true while its sender may be writing into the pool itself */
bool bt_kvt_window_is_written(bt_kvt_window_state_t state);
/** @return true once its owner has closed it */
bool bt_kvt_window_is_closing(bt_kvt_window_state_t state);

typedef enum bt_kvt_xfer_state {
    BT_KVT_XFER_IS_POSTING,  /**< more pieces may come */
    BT_KVT_XFER_IS_FINISHED, /**< no more; some are on their way */
    BT_KVT_XFER_IS_LISTED,   /**< the manifest is away: the receiver decides */
    BT_KVT_XFER_IS_ENDING,   /**< the outcome is known; the network or the own
                                  device may still read the source */
    BT_KVT_XFER_IS_ENDED,    /**< XFER_DONE; to be released */
    BT_KVT_XFER_N_STATES
} bt_kvt_xfer_state_t;

typedef enum bt_kvt_xfer_input {
    BT_KVT_XFER_ON_PROVEN, /**< the receiver's: all is there. Else ours: */
    BT_KVT_XFER_ON_POST,
    BT_KVT_XFER_ON_FINISH,
    BT_KVT_XFER_ON_LISTED,   /**< the last part of the manifest was sent */
    BT_KVT_XFER_ON_END,      /**< any other outcome, whoever decided it */
    BT_KVT_XFER_ON_RETURNED, /**< nobody reads the source any more */
    BT_KVT_XFER_N_INPUTS
} bt_kvt_xfer_input_t;

/**
 * What @a input makes of a transfer in @a state.
 *
 * @retval BT_OK
 * @retval BT_ERR_STALE          refused; a receiver can cause it
 * @retval BT_ERR_INVALID_PARAM  refused; our own, or our user's, fault
 */
BT_MUST_CHECK bt_status_t bt_kvt_xfer_next(bt_kvt_xfer_state_t state,
                                           bt_kvt_xfer_input_t input,
                                           bt_kvt_xfer_state_t *next_p);

#endif
