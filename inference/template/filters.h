/* SPDX-License-Identifier: Apache-2.0 */
/** @file filters.h
 *
 * The filters, by name. filters.c has the table and those of one value,
 * filters_seq.c those that walk.
 *
 * Source: jinja2 3.1, filters.py; tojson is transformers'.
 * Threads: the table is constant.
 */
#ifndef BT_INFERENCE_TEMPLATE_FILTERS_H
#define BT_INFERENCE_TEMPLATE_FILTERS_H

#include "inference/template/exec.h"

typedef bt_value_t bt_filter_fn_t(bt_exec_t *x, bt_value_t value,
                                  const bt_args_t *args);

typedef struct bt_filter {
    const char *name;
    bt_filter_fn_t *fn;
    bt_params_t params;
} bt_filter_t;

/** @return NULL: none is named so */
const bt_filter_t *bt_filter_find(const bt_text_t *name);
bt_value_t bt_filter_call(bt_exec_t *x, const bt_filter_t *filter,
                          bt_value_t value, bt_args_t *args);

/* filters_seq.c */
bt_filter_fn_t bt_filter_batch, bt_filter_dictsort, bt_filter_first,
    bt_filter_items, bt_filter_join, bt_filter_last, bt_filter_list,
    bt_filter_map, bt_filter_max, bt_filter_min, bt_filter_reject,
    bt_filter_rejectattr, bt_filter_reverse, bt_filter_select,
    bt_filter_selectattr, bt_filter_slice, bt_filter_sort, bt_filter_sum,
    bt_filter_unique;

#endif
