/* SPDX-License-Identifier: Apache-2.0 */
/** @file slo_attainment.h
 *
 * Attainment of a sequence's latency targets; pure.
 */
#ifndef BT_ROUTER_OBSERVE_SLO_ATTAINMENT_H
#define BT_ROUTER_OBSERVE_SLO_ATTAINMENT_H

#include <stdbool.h>

#include "router/observe/ledger.h"

/** Attainment of the targets, as counted by baton_slo_sequences_total. A
 *  sequence canceled by its client has no targets. */
typedef struct bt_slo_attainment {
    bool has_ttft, met_ttft, has_itl, met_itl;
} bt_slo_attainment_t;
bt_slo_attainment_t bt_slo_attainment_of(const bt_ledger_t *ledger);

#endif
