/* SPDX-License-Identifier: Apache-2.0 */
/* Machines that speculative decoding is simulated on. */
#ifndef BT_TESTS_UNIT_COMMON_SCHED_DRAFT_TIMES_H
#define BT_TESTS_UNIT_COMMON_SCHED_DRAFT_TIMES_H

#include "common/sched/sched_draft.h"
#include "tests/support/draw.h"

#define MOST 16u

static inline double chance(uint64_t *rng)
{
    return (double)draw_below(rng, 1u << 30) / (1u << 30);
}

/* Time of r rows, relative to one: measured for files of two types (BF16: 8
 * rows cost 1.12 of one, Q4_1: 4 rows 1.39 and 8 rows 2.44), a device of equal
 * times, and one row after the other. */
typedef enum cost_table { BF16, Q4_1, FLAT, LINEAR, N_TABLES } cost_table_t;

static inline double time_of(cost_table_t table, uint32_t r)
{
    switch (table) {
    case BF16:
        return 1 + 0.12 * (r - 1) / 7 + ((r > 8) ? 0.05 * (r - 8) : 0);
    case Q4_1:
        return 1 + 0.13 * (r - 1) + ((r > 4) ? 0.13 * (r - 4) : 0);
    case FLAT:
        return 1;
    default:
        return r;
    }
}

static inline bt_sched_row_times_t measured(cost_table_t table)
{
    bt_sched_row_times_t times = {0};

    for (uint32_t r = 1; r <= BT_SCHED_ROW_TIMES; r++) {
        bt_sched_row_times_learn(&times, r, 10000 * time_of(table, r));
    }
    return times;
}

#endif
