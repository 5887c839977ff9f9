/* SPDX-License-Identifier: Apache-2.0 */
/** @file gen_life.h
 *
 * State machines of a generation, of its attempt, and of a leg: which input is
 * allowed in which state, and which state follows. Pure; the actions on leaving
 * and entering a state are in transitions.c.
 *
 * A generation, for its client and its record:
 *
 *              ┌──────── LOST ─────────┐
 *              ▼                       │
 *     NEW ─▶ WAITING ── SENT ───▶ RUNNING
 *      SUBMIT  │                       │
 *              └─ END ─▶ ENDED ◀─ END ─┘     client: informed, or gone
 *                          │ LEDGER          no PREFILLED is due any more
 *                          ▼
 *                       SETTLED
 *                          │ RECORD          no leg is open
 *                          ▼
 *                       RECORDED ─▶ freed
 *
 * The attempt of a generation that is RUNNING (otherwise OVER). Token #1 comes
 * from the prefill worker and JOINED from the decode worker, on two links, so
 * either may arrive first:
 *
 *     ONE_TOKEN ◀─ SEND_ONE_ ─── OVER ─────── SEND_LOCAL ──────▶ LOCAL
 *                  TOKEN          │ SEND_PAIR                      │
 *                                 ▼                                │
 *     WITHDRAWN ◀── WITHDREW ─── SENT ──── JOINED ──▶ JOINED       │
 *         │                       │                     │          │
 *         │ TOKEN                 │ TOKEN               │ TOKEN    │ TOKEN
 *         ▼                       ▼                     ▼          │
 *     WITHDRAWN_ ◀─ WITHDREW ─ TRANSFER ── JOINED ──▶ DECODE ◀─────┘
 *     TOKEN
 *
 *     ═══ the attempt needed the worker that released it: LOST ═════════════
 *
 *                 PREFILL_ENDED  PREFILL_LOST  DECODE_LEFT
 *     SENT             LOST           LOST         LOST
 *     TRANSFER          ─             LOST         LOST
 *     JOINED           LOST           LOST         LOST
 *     DECODE            ─              ─           LOST
 *     WITHDRAWN        LOST           LOST          ─
 *     WITHDRAWN_TOKEN  LOST           LOST          ─
 *     LOCAL                                        LOST
 *     ONE_TOKEN        LOST           LOST
 *
 *     ═══ CLOSE of any of these, and of LOST: OVER ═════════════════════════
 *
 * Allowed without a change of state: TOKEN again in TRANSFER, DECODE and
 * WITHDRAWN_TOKEN, and in ONE_TOKEN, which that token closes; "─" above. All
 * other inputs are refused.
 *
 * A prefill worker ends when its transfer is complete, which may be before
 * JOINED arrives, but not before its token; it withdraws a transfer that nobody
 * needs because its token is the last. The decode worker may report that
 * withdrawal first, so the prefill worker's own message is awaited.
 *
 * A leg, one attempt at one worker:
 *
 *     prefill, local                                     decode
 *       │                                                  │
 *       ▼                                                  ▼
 *     COMPUTING ── TOKEN ─▶ SAMPLED ── PREFILLED ─▶ COMPUTED ── CLOSE ─▶ CLOSED
 *       │ │                    │                    ▲                  ▲
 *       │ └─────── PREFILLED ──│────────────────────┘                  │
 *       └──────── CLOSE ───────┴───────────────────────────────────────┘
 *
 * Also allowed: TOKEN in SAMPLED and COMPUTED. A second PREFILLED is refused.
 */
#ifndef BT_ROUTER_CORE_GEN_LIFE_H
#define BT_ROUTER_CORE_GEN_LIFE_H

#include <stdbool.h>

#include "common/base/status.h"

/* ---- a generation ---- */

typedef enum bt_gen_state {
    BT_GEN_IS_NEW,
    BT_GEN_IS_WAITING, /**< no workers yet, or not again */
    BT_GEN_IS_RUNNING, /**< an attempt is under way */
    BT_GEN_IS_ENDED,   /**< ended for the client; legs may still be open */
    BT_GEN_IS_SETTLED, /**< timing record is closed */
    BT_GEN_IS_RECORDED,
    BT_GEN_N_STATES
} bt_gen_state_t;

/** Inputs of a generation; all are the router's own actions. */
typedef enum bt_gen_input {
    BT_GEN_ON_SUBMIT,
    BT_GEN_ON_SENT, /**< workers were found */
    BT_GEN_ON_LOST, /**< attempt was lost; another is to be made */
    BT_GEN_ON_END,  /**< finished, failed or canceled */
    BT_GEN_ON_LEDGER,
    BT_GEN_ON_RECORD,
    BT_GEN_N_INPUTS
} bt_gen_input_t;

/**
 * Computes the state of a generation after @a input in @a state.
 * @retval BT_OK
 * @retval BT_ERR_INVALID_PARAM  refused: a bug in the router
 */
BT_MUST_CHECK bt_status_t bt_gen_next(bt_gen_state_t state,
                                      bt_gen_input_t input,
                                      bt_gen_state_t *next_p);

/** True while a client waits for a generation in this state. */
bool bt_gen_state_is_live(bt_gen_state_t state);

/* ---- its attempt ---- */

typedef enum bt_attempt_state {
    BT_ATTEMPT_IS_OVER,      /**< no attempt is under way */
    BT_ATTEMPT_IS_SENT,      /**< both workers have the request */
    BT_ATTEMPT_IS_TRANSFER,  /**< token #1 received, KV not yet transferred */
    BT_ATTEMPT_IS_JOINED,    /**< KV transferred, token #1 not yet received */
    BT_ATTEMPT_IS_DECODE,    /**< prefill worker's part is over */
    BT_ATTEMPT_IS_WITHDRAWN, /**< no KV will come: decode is over */
    BT_ATTEMPT_IS_WITHDRAWN_TOKEN, /**< and token #1 was received */
    BT_ATTEMPT_IS_LOCAL,           /**< one worker does both phases */
    BT_ATTEMPT_IS_ONE_TOKEN,       /**< prefill worker alone has the request */
    BT_ATTEMPT_IS_LOST, /**< failed; the generation waits or ends next */
    BT_ATTEMPT_N_STATES
} bt_attempt_state_t;

typedef enum bt_attempt_input {
    /* Inputs from workers: */
    BT_ATTEMPT_ON_TOKEN,         /**< next token in order was received */
    BT_ATTEMPT_ON_JOINED,        /**< decode worker has the KV */
    BT_ATTEMPT_ON_WITHDREW,      /**< sender withdrew the transfer, says D */
    BT_ATTEMPT_ON_PREFILL_ENDED, /**< regular end at the prefill worker */
    BT_ATTEMPT_ON_PREFILL_LOST,  /**< prefill worker failed, or is gone */
    BT_ATTEMPT_ON_DECODE_LEFT, /**< decode or local worker released the request
                                  before its last token arrived */
    /* Inputs from the router: */
    BT_ATTEMPT_ON_SEND_PAIR,
    BT_ATTEMPT_ON_SEND_LOCAL,
    BT_ATTEMPT_ON_SEND_ONE_TOKEN,
    BT_ATTEMPT_ON_CLOSE, /**< generation is no longer running */
    BT_ATTEMPT_N_INPUTS
} bt_attempt_input_t;

/**
 * Computes the state of an attempt after @a input in @a state.
 * @retval BT_OK
 * @retval BT_ERR_STALE          refused; a worker can cause it: no action
 *   follows
 * @retval BT_ERR_INVALID_PARAM  refused: a bug in the router
 */
BT_MUST_CHECK bt_status_t bt_attempt_next(bt_attempt_state_t state,
                                          bt_attempt_input_t input,
                                          bt_attempt_state_t *next_p);

/** Returns the phase for texts: "prefill", "KV transfer" or "decode"; "lost"
 *  and "over" for these two states. */
const char *bt_attempt_state_name(bt_attempt_state_t state);

/* ---- a leg ---- */

typedef enum bt_leg_state {
    BT_LEG_IS_COMPUTING, /**< prompt counts towards the worker's load */
    BT_LEG_IS_SAMPLED,   /**< token received, PREFILLED is due */
    BT_LEG_IS_COMPUTED,  /**< only ENDED is due */
    BT_LEG_IS_CLOSED,    /**< ENDED received, or the worker is gone */
    BT_LEG_N_STATES
} bt_leg_state_t;

typedef enum bt_leg_input {
    /* Inputs from the worker: */
    BT_LEG_ON_TOKEN,
    BT_LEG_ON_PREFILLED,
    /* Inputs from the router: */
    BT_LEG_ON_CLOSE,
    BT_LEG_N_INPUTS
} bt_leg_input_t;

/**
 * Computes the state of a leg after @a input in @a state.
 * @retval BT_OK
 * @retval BT_ERR_STALE          refused; a worker can cause it: no action
 *   follows
 * @retval BT_ERR_INVALID_PARAM  refused: a bug in the router
 */
BT_MUST_CHECK bt_status_t bt_leg_next(bt_leg_state_t state,
                                      bt_leg_input_t input,
                                      bt_leg_state_t *next_p);

#endif
