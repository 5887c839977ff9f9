/* SPDX-License-Identifier: Apache-2.0 */
/** @file gen_life.h
 *
 * The lives of a generation, of its attempt, and of a leg: in which state what
 * may happen, and what comes of it. Pure; what is done on leaving and entering
 * a state stands in moves.c.
 *
 * A generation, for its client and its record:
 *
 *              ┌──────── LOST ─────────┐
 *              ▼                       │
 *     NEW ─▶ WAITING ── SENT ───▶ RUNNING
 *      SUBMIT  │                       │
 *              └─ END ─▶ ENDED ◀─ END ─┘     client: told, or gone
 *                          │ LEDGER          no PREFILLED is due any more
 *                          ▼
 *                       SETTLED
 *                          │ RECORD          no leg is open
 *                          ▼
 *                       RECORDED ─▶ freed
 *
 * Its attempt, while the generation is RUNNING (else it is OVER). Token #1
 * comes from the prefill worker and JOINED from the decode worker, on two
 * links, so either may be first:
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
 *     ═══ the attempt needed the worker that lets go: LOST ═════════════════
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
 * Besides, without a change of state: TOKEN again in TRANSFER, DECODE and
 * WITHDRAWN_TOKEN, and in ONE_TOKEN, which that closes; "─" above. All else is
 * refused.
 *
 * A prefill worker ends when its transfer is complete, which may be before
 * JOINED is here, but not before its token; it withdraws a transfer that nobody
 * needs since its token is the last. The decode worker may tell of that first,
 * so the prefill worker's own word is awaited.
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
 * Besides: TOKEN in SAMPLED and COMPUTED. A second PREFILLED is refused.
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
    BT_GEN_IS_ENDED,   /**< for the client; legs may be open from here on */
    BT_GEN_IS_SETTLED, /**< its ledger is closed */
    BT_GEN_IS_RECORDED,
    BT_GEN_N_STATES
} bt_gen_state_t;

/** All of them our own doing. */
typedef enum bt_gen_input {
    BT_GEN_ON_SUBMIT,
    BT_GEN_ON_SENT, /**< workers are found */
    BT_GEN_ON_LOST, /**< the attempt was; another is to be made */
    BT_GEN_ON_END,  /**< finished, failed or canceled */
    BT_GEN_ON_LEDGER,
    BT_GEN_ON_RECORD,
    BT_GEN_N_INPUTS
} bt_gen_input_t;

/**
 * What @a input makes of a generation in @a state.
 * @retval BT_OK
 * @retval BT_ERR_INVALID_PARAM  refused: our own fault
 */
BT_MUST_CHECK bt_status_t bt_gen_next(bt_gen_state_t state,
                                      bt_gen_input_t input,
                                      bt_gen_state_t *next_p);

/** @return true while a client waits for it */
bool bt_gen_state_is_live(bt_gen_state_t state);

/* ---- its attempt ---- */

typedef enum bt_attempt_state {
    BT_ATTEMPT_IS_OVER,      /**< none is under way */
    BT_ATTEMPT_IS_SENT,      /**< both workers have it */
    BT_ATTEMPT_IS_TRANSFER,  /**< token #1 is here, KV is not there yet */
    BT_ATTEMPT_IS_JOINED,    /**< KV is there, token #1 is not here yet */
    BT_ATTEMPT_IS_DECODE,    /**< the prefill worker's part is over */
    BT_ATTEMPT_IS_WITHDRAWN, /**< no KV will come: the decode worker's is */
    BT_ATTEMPT_IS_WITHDRAWN_TOKEN, /**< ...and token #1 is here */
    BT_ATTEMPT_IS_LOCAL,           /**< one worker for both phases has it */
    BT_ATTEMPT_IS_ONE_TOKEN,       /**< a prefill worker alone has it */
    BT_ATTEMPT_IS_LOST,            /**< its generation waits, or ends, next */
    BT_ATTEMPT_N_STATES
} bt_attempt_state_t;

typedef enum bt_attempt_input {
    /* The workers': */
    BT_ATTEMPT_ON_TOKEN,         /**< the next in order is here */
    BT_ATTEMPT_ON_JOINED,        /**< the decode worker has the KV */
    BT_ATTEMPT_ON_WITHDREW,      /**< it says that the sender took it back */
    BT_ATTEMPT_ON_PREFILL_ENDED, /**< the prefill worker let go, as it should */
    BT_ATTEMPT_ON_PREFILL_LOST,  /**< ...for a failure, or is gone */
    BT_ATTEMPT_ON_DECODE_LEFT,   /**< the decode or local worker let go, before
                                      its last token was here */
    /* Ours: */
    BT_ATTEMPT_ON_SEND_PAIR,
    BT_ATTEMPT_ON_SEND_LOCAL,
    BT_ATTEMPT_ON_SEND_ONE_TOKEN,
    BT_ATTEMPT_ON_CLOSE, /**< the generation runs no more */
    BT_ATTEMPT_N_INPUTS
} bt_attempt_input_t;

/**
 * What @a input makes of an attempt in @a state.
 * @retval BT_OK
 * @retval BT_ERR_STALE          refused; a worker can cause it: no more is done
 * @retval BT_ERR_INVALID_PARAM  refused: our own fault
 */
BT_MUST_CHECK bt_status_t bt_attempt_next(bt_attempt_state_t state,
                                          bt_attempt_input_t input,
                                          bt_attempt_state_t *next_p);

/** The phase, for texts: "prefill", "KV transfer" or "decode"; "lost" and
 *  "over" for those two. */
const char *bt_attempt_state_name(bt_attempt_state_t state);

/* ---- a leg ---- */

typedef enum bt_leg_state {
    BT_LEG_IS_COMPUTING, /**< its prompt is counted at the worker */
    BT_LEG_IS_SAMPLED,   /**< a token is here, PREFILLED is due */
    BT_LEG_IS_COMPUTED,  /**< nothing is due but its end */
    BT_LEG_IS_CLOSED,    /**< ENDED, or the worker is gone */
    BT_LEG_N_STATES
} bt_leg_state_t;

typedef enum bt_leg_input {
    /* The worker's: */
    BT_LEG_ON_TOKEN,
    BT_LEG_ON_PREFILLED,
    /* Ours: */
    BT_LEG_ON_CLOSE,
    BT_LEG_N_INPUTS
} bt_leg_input_t;

/**
 * What @a input makes of a leg in @a state.
 * @retval BT_OK
 * @retval BT_ERR_STALE          refused; a worker can cause it: no more is done
 * @retval BT_ERR_INVALID_PARAM  refused: our own fault
 */
BT_MUST_CHECK bt_status_t bt_leg_next(bt_leg_state_t state,
                                      bt_leg_input_t input,
                                      bt_leg_state_t *next_p);

#endif
