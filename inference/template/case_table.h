/* SPDX-License-Identifier: Apache-2.0 */
/** @file case_table.h
 *
 * The tables of case_table.c, which make_case_table.py makes; for cases.c.
 *
 * Threads: constants.
 */
#ifndef BT_INFERENCE_TEMPLATE_CASE_TABLE_H
#define BT_INFERENCE_TEMPLATE_CASE_TABLE_H

#include <stdint.h>

/** Every step-th character of a range moves by delta. Rising. */
typedef struct bt_tmpl_case_run {
    uint32_t first, last;
    uint32_t step;
    int32_t delta;
} bt_tmpl_case_run_t;

/** One character that becomes several; zeros behind. Rising. */
typedef struct bt_tmpl_case_many {
    uint32_t cp;
    uint32_t to; /**< bt_tmpl_case_t */
    uint32_t made[3];
} bt_tmpl_case_many_t;

typedef struct bt_tmpl_cp_range {
    uint32_t first, last;
} bt_tmpl_cp_range_t;

extern const bt_tmpl_case_run_t bt_tmpl_case_lower[], bt_tmpl_case_upper[],
    bt_tmpl_case_title[];
extern const unsigned bt_tmpl_case_lower_n, bt_tmpl_case_upper_n,
    bt_tmpl_case_title_n;
extern const bt_tmpl_case_many_t bt_tmpl_case_many[];
extern const unsigned bt_tmpl_case_many_n;
extern const bt_tmpl_cp_range_t bt_tmpl_cp_cased[], bt_tmpl_cp_decimal[],
    bt_tmpl_cp_digit[], bt_tmpl_cp_numeric[];
extern const unsigned bt_tmpl_cp_cased_n, bt_tmpl_cp_decimal_n,
    bt_tmpl_cp_digit_n, bt_tmpl_cp_numeric_n;

#endif
