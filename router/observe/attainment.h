/* SPDX-License-Identifier: Apache-2.0 */
/** @file attainment.h  How a sequence's targets went; pure. */
#ifndef BT_ROUTER_OBSERVE_ATTAINMENT_H
#define BT_ROUTER_OBSERVE_ATTAINMENT_H

#include <stdbool.h>

#include "router/observe/ledger.h"

/** As baton_target_sequences_total counts them: one that its client gave up has
 *  none. */
typedef struct bt_attainment {
    bool has_ttft, met_ttft, has_itl, met_itl;
} bt_attainment_t;
bt_attainment_t bt_attainment_of(const bt_ledger_t *ledger);

#endif
