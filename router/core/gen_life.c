/* SPDX-License-Identifier: Apache-2.0 */
#include "router/core/gen_life.h"

#include <stdint.h>

/* Table cells: 0 means "refused". */
#define G(state) (BT_GEN_IS_##state + 1)
#define A(state) (BT_ATTEMPT_IS_##state + 1)
#define L(state) (BT_LEG_IS_##state + 1)

/* clang-format off */
static const uint8_t gen_edges[BT_GEN_N_STATES][BT_GEN_N_INPUTS] = {
    [BT_GEN_IS_NEW] = {
        [BT_GEN_ON_SUBMIT] = G(WAITING),
    },
    [BT_GEN_IS_WAITING] = {
        [BT_GEN_ON_SENT] = G(RUNNING),
        [BT_GEN_ON_END] = G(ENDED),
    },
    [BT_GEN_IS_RUNNING] = {
        [BT_GEN_ON_LOST] = G(WAITING),
        [BT_GEN_ON_END] = G(ENDED),
    },
    [BT_GEN_IS_ENDED] = {
        [BT_GEN_ON_LEDGER] = G(SETTLED),
    },
    [BT_GEN_IS_SETTLED] = {
        [BT_GEN_ON_RECORD] = G(RECORDED),
    },
};

static const uint8_t
    attempt_edges[BT_ATTEMPT_N_STATES][BT_ATTEMPT_N_INPUTS] = {
    [BT_ATTEMPT_IS_OVER] = {
        [BT_ATTEMPT_ON_SEND_PAIR] = A(SENT),
        [BT_ATTEMPT_ON_SEND_LOCAL] = A(LOCAL),
        [BT_ATTEMPT_ON_SEND_ONE_TOKEN] = A(ONE_TOKEN),
    },
    [BT_ATTEMPT_IS_SENT] = {
        [BT_ATTEMPT_ON_TOKEN] = A(TRANSFER),
        [BT_ATTEMPT_ON_JOINED] = A(JOINED),
        [BT_ATTEMPT_ON_WITHDREW] = A(WITHDRAWN),
        [BT_ATTEMPT_ON_PREFILL_ENDED] = A(LOST),
        [BT_ATTEMPT_ON_PREFILL_LOST] = A(LOST),
        [BT_ATTEMPT_ON_DECODE_LEFT] = A(LOST),
        [BT_ATTEMPT_ON_CLOSE] = A(OVER),
    },
    [BT_ATTEMPT_IS_TRANSFER] = {
        [BT_ATTEMPT_ON_TOKEN] = A(TRANSFER),
        [BT_ATTEMPT_ON_JOINED] = A(DECODE),
        [BT_ATTEMPT_ON_WITHDREW] = A(WITHDRAWN_TOKEN),
        [BT_ATTEMPT_ON_PREFILL_ENDED] = A(TRANSFER),
        [BT_ATTEMPT_ON_PREFILL_LOST] = A(LOST),
        [BT_ATTEMPT_ON_DECODE_LEFT] = A(LOST),
        [BT_ATTEMPT_ON_CLOSE] = A(OVER),
    },
    [BT_ATTEMPT_IS_JOINED] = {
        [BT_ATTEMPT_ON_TOKEN] = A(DECODE),
        [BT_ATTEMPT_ON_PREFILL_ENDED] = A(LOST),
        [BT_ATTEMPT_ON_PREFILL_LOST] = A(LOST),
        [BT_ATTEMPT_ON_DECODE_LEFT] = A(LOST),
        [BT_ATTEMPT_ON_CLOSE] = A(OVER),
    },
    [BT_ATTEMPT_IS_DECODE] = {
        [BT_ATTEMPT_ON_TOKEN] = A(DECODE),
        [BT_ATTEMPT_ON_PREFILL_ENDED] = A(DECODE),
        [BT_ATTEMPT_ON_PREFILL_LOST] = A(DECODE),
        [BT_ATTEMPT_ON_DECODE_LEFT] = A(LOST),
        [BT_ATTEMPT_ON_CLOSE] = A(OVER),
    },
    [BT_ATTEMPT_IS_WITHDRAWN] = {
        [BT_ATTEMPT_ON_TOKEN] = A(WITHDRAWN_TOKEN),
        [BT_ATTEMPT_ON_PREFILL_ENDED] = A(LOST),
        [BT_ATTEMPT_ON_PREFILL_LOST] = A(LOST),
        [BT_ATTEMPT_ON_DECODE_LEFT] = A(WITHDRAWN),
        [BT_ATTEMPT_ON_CLOSE] = A(OVER),
    },
    [BT_ATTEMPT_IS_WITHDRAWN_TOKEN] = {
        [BT_ATTEMPT_ON_TOKEN] = A(WITHDRAWN_TOKEN),
        [BT_ATTEMPT_ON_PREFILL_ENDED] = A(LOST),
        [BT_ATTEMPT_ON_PREFILL_LOST] = A(LOST),
        [BT_ATTEMPT_ON_DECODE_LEFT] = A(WITHDRAWN_TOKEN),
        [BT_ATTEMPT_ON_CLOSE] = A(OVER),
    },
    [BT_ATTEMPT_IS_LOCAL] = {
        [BT_ATTEMPT_ON_TOKEN] = A(DECODE),
        [BT_ATTEMPT_ON_DECODE_LEFT] = A(LOST),
        [BT_ATTEMPT_ON_CLOSE] = A(OVER),
    },
    [BT_ATTEMPT_IS_ONE_TOKEN] = {
        [BT_ATTEMPT_ON_TOKEN] = A(ONE_TOKEN), /* CLOSE is next */
        [BT_ATTEMPT_ON_PREFILL_ENDED] = A(LOST),
        [BT_ATTEMPT_ON_PREFILL_LOST] = A(LOST),
        [BT_ATTEMPT_ON_CLOSE] = A(OVER),
    },
    [BT_ATTEMPT_IS_LOST] = {
        [BT_ATTEMPT_ON_CLOSE] = A(OVER),
    },
};

static const uint8_t leg_edges[BT_LEG_N_STATES][BT_LEG_N_INPUTS] = {
    [BT_LEG_IS_COMPUTING] = {
        [BT_LEG_ON_TOKEN] = L(SAMPLED),
        [BT_LEG_ON_PREFILLED] = L(COMPUTED),
        [BT_LEG_ON_CLOSE] = L(CLOSED),
    },
    [BT_LEG_IS_SAMPLED] = {
        [BT_LEG_ON_TOKEN] = L(SAMPLED),
        [BT_LEG_ON_PREFILLED] = L(COMPUTED),
        [BT_LEG_ON_CLOSE] = L(CLOSED),
    },
    [BT_LEG_IS_COMPUTED] = {
        [BT_LEG_ON_TOKEN] = L(COMPUTED),
        [BT_LEG_ON_CLOSE] = L(CLOSED),
    },
};
/* clang-format on */

bt_status_t bt_gen_next(bt_gen_state_t state, bt_gen_input_t input,
                        bt_gen_state_t *next_p)
{
    const uint8_t cell = gen_edges[state][input];

    if (cell == 0) {
        return BT_ERR_INVALID_PARAM;
    }
    *next_p = (bt_gen_state_t)(cell - 1);
    return BT_OK;
}

bool bt_gen_state_is_live(bt_gen_state_t state)
{
    return (state == BT_GEN_IS_WAITING) || (state == BT_GEN_IS_RUNNING);
}

bt_status_t bt_attempt_next(bt_attempt_state_t state, bt_attempt_input_t input,
                            bt_attempt_state_t *next_p)
{
    const uint8_t cell = attempt_edges[state][input];

    if (cell == 0) {
        return (input < BT_ATTEMPT_ON_SEND_PAIR) ? BT_ERR_STALE
                                                 : BT_ERR_INVALID_PARAM;
    }
    *next_p = (bt_attempt_state_t)(cell - 1);
    return BT_OK;
}

const char *bt_attempt_state_name(bt_attempt_state_t state)
{
    static const char *const names[BT_ATTEMPT_N_STATES] = {
        [BT_ATTEMPT_IS_OVER] = "over",
        [BT_ATTEMPT_IS_SENT] = "prefill",
        [BT_ATTEMPT_IS_TRANSFER] = "KV transfer",
        [BT_ATTEMPT_IS_JOINED] = "decode",
        [BT_ATTEMPT_IS_DECODE] = "decode",
        [BT_ATTEMPT_IS_WITHDRAWN] = "prefill",
        [BT_ATTEMPT_IS_WITHDRAWN_TOKEN] = "KV transfer",
        [BT_ATTEMPT_IS_LOCAL] = "prefill",
        [BT_ATTEMPT_IS_ONE_TOKEN] = "prefill",
        [BT_ATTEMPT_IS_LOST] = "lost",
    };

    return names[state];
}

bt_status_t bt_leg_next(bt_leg_state_t state, bt_leg_input_t input,
                        bt_leg_state_t *next_p)
{
    const uint8_t cell = leg_edges[state][input];

    if (cell == 0) {
        return (input < BT_LEG_ON_CLOSE) ? BT_ERR_STALE : BT_ERR_INVALID_PARAM;
    }
    *next_p = (bt_leg_state_t)(cell - 1);
    return BT_OK;
}
