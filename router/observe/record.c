/* SPDX-License-Identifier: Apache-2.0 */
#include "router/observe/record.h"

const char *bt_finish_name(bt_finish_t finish)
{
    static const char *const names[] = {
        [BT_FINISH_NONE] = "none",     [BT_FINISH_STOP] = "stop",
        [BT_FINISH_LENGTH] = "length", [BT_FINISH_CANCELED] = "canceled",
        [BT_FINISH_ERROR] = "error",   [BT_FINISH_REPETITION] = "repetition",
    };

    return names[finish];
}

bt_slo_attainment_t bt_slo_attainment_of(const bt_ledger_t *ledger)
{
    const uint64_t between_us = ledger->handover_us + ledger->decode_us;
    const bool counts = !ledger->canceled;

    return (bt_slo_attainment_t){
        .has_ttft = counts && (ledger->ttft_target_us > 0),
        .has_itl = counts && (ledger->itl_target_us > 0),
        .met_ttft = ledger->ok && (ledger->ttft_us > 0) &&
                    (ledger->ttft_us <= ledger->ttft_target_us),
        .met_itl = ledger->ok &&
                   ((ledger->n_output < 2) ||
                    (between_us <=
                     (uint64_t)(ledger->n_output - 1) * ledger->itl_target_us)),
    };
}
