/* SPDX-License-Identifier: Apache-2.0 */
#include "kvtransfer/kvt_life.h"

#include <stdint.h>

#include "common/base/status.h"

/* Cells of the tables: 0 is "refused". */
#define L(state) (BT_KVT_LINK_IS_##state + 1)
#define R(state) (BT_KVT_REGION_IS_##state + 1)
#define X(state) (BT_KVT_XFER_IS_##state + 1)

#define FIRST_OF_OURS BT_KVT_REGION_ON_PROVEN

/* clang-format off */
static const uint8_t link_edges[BT_KVT_LINK_N_STATES][BT_KVT_LINK_N_INPUTS] = {
    [BT_KVT_LINK_IS_NEW] = {
        [BT_KVT_LINK_ON_HELLO] = L(GREETING),
        [BT_KVT_LINK_ON_SEND_FAILED] = L(BROKEN),
        [BT_KVT_LINK_ON_LOSE] = L(LOST),
        [BT_KVT_LINK_ON_GONE] = L(GONE),
    },
    [BT_KVT_LINK_IS_GREETING] = {
        [BT_KVT_LINK_ON_ACK] = L(OPEN),
        [BT_KVT_LINK_ON_HELLO] = L(GREETING),
        [BT_KVT_LINK_ON_SEND_FAILED] = L(BROKEN),
        [BT_KVT_LINK_ON_LOSE] = L(LOST),
        [BT_KVT_LINK_ON_GONE] = L(GONE),
    },
    [BT_KVT_LINK_IS_OPEN] = {
        [BT_KVT_LINK_ON_SEND_FAILED] = L(BROKEN),
        [BT_KVT_LINK_ON_LOSE] = L(LOST),
        [BT_KVT_LINK_ON_GONE] = L(GONE),
    },
    [BT_KVT_LINK_IS_BROKEN] = {
        [BT_KVT_LINK_ON_LOSE] = L(LOST),
        [BT_KVT_LINK_ON_GONE] = L(GONE),
    },
    [BT_KVT_LINK_IS_LOST] = {
        [BT_KVT_LINK_ON_GONE] = L(GONE),
    },
};

static const uint8_t region_edges[BT_KVT_REGION_N_STATES]
                                 [BT_KVT_REGION_N_INPUTS] = {
    [BT_KVT_REGION_IS_OPEN] = {
        [BT_KVT_REGION_ON_BEGIN] = R(DIRECT),
        [BT_KVT_REGION_ON_PIECE] = R(OPEN),
        [BT_KVT_REGION_ON_PART] = R(OPEN),
        [BT_KVT_REGION_ON_LAST] = R(LISTED),
        [BT_KVT_REGION_ON_STOP] = R(FAILED),
        [BT_KVT_REGION_ON_FAIL] = R(FAILED),
        [BT_KVT_REGION_ON_CLOSE] = R(DRAINING),
    },
    [BT_KVT_REGION_IS_DIRECT] = {
        [BT_KVT_REGION_ON_BEGIN] = R(DIRECT), /* sent until answered */
        [BT_KVT_REGION_ON_PIECE] = R(DIRECT),
        [BT_KVT_REGION_ON_PART] = R(DIRECT),
        [BT_KVT_REGION_ON_LAST] = R(LISTED),
        [BT_KVT_REGION_ON_STOP] = R(FAILED),
        [BT_KVT_REGION_ON_FAIL] = R(FAILED_DIRECT),
        [BT_KVT_REGION_ON_CLOSE] = R(QUARANTINED),
    },
    [BT_KVT_REGION_IS_LISTED] = {
        [BT_KVT_REGION_ON_PIECE] = R(LISTED), /* listed before it arrived */
        [BT_KVT_REGION_ON_STOP] = R(FAILED),
        [BT_KVT_REGION_ON_PROVEN] = R(DONE),
        [BT_KVT_REGION_ON_FAIL] = R(FAILED),
        [BT_KVT_REGION_ON_CLOSE] = R(DRAINING),
    },
    [BT_KVT_REGION_IS_DONE] = {
        [BT_KVT_REGION_ON_STOP] = R(DONE),
        [BT_KVT_REGION_ON_CLOSE] = R(DRAINING),
    },
    [BT_KVT_REGION_IS_FAILED] = {
        [BT_KVT_REGION_ON_STOP] = R(FAILED),
        [BT_KVT_REGION_ON_CLOSE] = R(DRAINING),
    },
    [BT_KVT_REGION_IS_FAILED_DIRECT] = {
        [BT_KVT_REGION_ON_STOP] = R(FAILED),
        [BT_KVT_REGION_ON_CLOSE] = R(QUARANTINED),
    },
    [BT_KVT_REGION_IS_DRAINING] = {
        [BT_KVT_REGION_ON_CONFIRM] = R(DRAINING),
        [BT_KVT_REGION_ON_STOP] = R(DRAINING),
        [BT_KVT_REGION_ON_DRAINED] = R(CLOSED),
        [BT_KVT_REGION_ON_LATE] = R(OVERDUE),
    },
    [BT_KVT_REGION_IS_OVERDUE] = {
        [BT_KVT_REGION_ON_CONFIRM] = R(OVERDUE),
        [BT_KVT_REGION_ON_STOP] = R(OVERDUE),
        [BT_KVT_REGION_ON_DRAINED] = R(CLOSED),
    },
    [BT_KVT_REGION_IS_QUARANTINED] = {
        [BT_KVT_REGION_ON_CONFIRM] = R(DRAINING),
        [BT_KVT_REGION_ON_STOP] = R(DRAINING),
        [BT_KVT_REGION_ON_LATE] = R(STUCK),
    },
    [BT_KVT_REGION_IS_STUCK] = {
        [BT_KVT_REGION_ON_CONFIRM] = R(OVERDUE),
        [BT_KVT_REGION_ON_STOP] = R(OVERDUE),
    },
};

static const uint8_t xfer_edges[BT_KVT_XFER_N_STATES][BT_KVT_XFER_N_INPUTS] = {
    [BT_KVT_XFER_IS_POSTING] = {
        [BT_KVT_XFER_ON_POST] = X(POSTING),
        [BT_KVT_XFER_ON_FINISH] = X(FINISHED),
        [BT_KVT_XFER_ON_END] = X(ENDING),
    },
    [BT_KVT_XFER_IS_FINISHED] = {
        [BT_KVT_XFER_ON_LISTED] = X(LISTED),
        [BT_KVT_XFER_ON_END] = X(ENDING),
    },
    [BT_KVT_XFER_IS_LISTED] = {
        [BT_KVT_XFER_ON_PROVEN] = X(ENDING),
        [BT_KVT_XFER_ON_END] = X(ENDING),
    },
    [BT_KVT_XFER_IS_ENDING] = {
        [BT_KVT_XFER_ON_RETURNED] = X(ENDED),
    },
};
/* clang-format on */

bt_status_t bt_kvt_link_next(bt_kvt_link_state_t state,
                             bt_kvt_link_input_t input,
                             bt_kvt_link_state_t *next_p)
{
    const uint8_t cell = link_edges[state][input];

    if (cell == 0) {
        return BT_ERR_STALE;
    }
    *next_p = (bt_kvt_link_state_t)(cell - 1);
    return BT_OK;
}

bt_status_t bt_kvt_region_next(bt_kvt_region_state_t state,
                               bt_kvt_region_input_t input,
                               bt_kvt_region_state_t *next_p)
{
    const uint8_t cell = region_edges[state][input];

    if (cell == 0) {
        return (input < FIRST_OF_OURS) ? BT_ERR_STALE : BT_ERR_INVALID_PARAM;
    }
    *next_p = (bt_kvt_region_state_t)(cell - 1);
    return BT_OK;
}

bool bt_kvt_region_is_written(bt_kvt_region_state_t state)
{
    return (state == BT_KVT_REGION_IS_DIRECT) ||
           (state == BT_KVT_REGION_IS_FAILED_DIRECT) ||
           (state == BT_KVT_REGION_IS_QUARANTINED) ||
           (state == BT_KVT_REGION_IS_STUCK);
}

bool bt_kvt_region_is_closing(bt_kvt_region_state_t state)
{
    return state >= BT_KVT_REGION_IS_DRAINING;
}

bt_status_t bt_kvt_xfer_next(bt_kvt_xfer_state_t state,
                             bt_kvt_xfer_input_t input,
                             bt_kvt_xfer_state_t *next_p)
{
    const uint8_t cell = xfer_edges[state][input];

    if (cell == 0) {
        return (input == BT_KVT_XFER_ON_PROVEN) ? BT_ERR_STALE
                                                : BT_ERR_INVALID_PARAM;
    }
    *next_p = (bt_kvt_xfer_state_t)(cell - 1);
    return BT_OK;
}
