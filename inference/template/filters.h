/* SPDX-License-Identifier: Apache-2.0 */
/** @file filters.h
 *
 * Filters, by name. filters.c has the table and the filters of one value,
 * filters_seq.c those that iterate.
 *
 * Source: jinja2 3.1, filters.py; tojson is transformers'.
 * Threads: the table is constant.
 */
#ifndef BT_INFERENCE_TEMPLATE_FILTERS_H
#define BT_INFERENCE_TEMPLATE_FILTERS_H

#include "inference/template/exec.h"

typedef bt_tmpl_value_t bt_tmpl_filter_fn_t(bt_tmpl_exec_t *x,
                                            bt_tmpl_value_t value,
                                            const bt_tmpl_args_t *args);

typedef struct bt_tmpl_filter {
    const char *name;
    bt_tmpl_filter_fn_t *fn;
    bt_tmpl_params_t params;
} bt_tmpl_filter_t;

/** Finds a filter by name. @return NULL: there is none */
const bt_tmpl_filter_t *bt_tmpl_filter_find(const bt_tmpl_text_t *name);
bt_tmpl_value_t bt_tmpl_filter_call(bt_tmpl_exec_t *x,
                                    const bt_tmpl_filter_t *filter,
                                    bt_tmpl_value_t value,
                                    bt_tmpl_args_t *args);

/* filters_seq.c */
bt_tmpl_filter_fn_t bt_tmpl_filter_batch, bt_tmpl_filter_dictsort,
    bt_tmpl_filter_first, bt_tmpl_filter_items, bt_tmpl_filter_join,
    bt_tmpl_filter_last, bt_tmpl_filter_list, bt_tmpl_filter_map,
    bt_tmpl_filter_max, bt_tmpl_filter_min, bt_tmpl_filter_reject,
    bt_tmpl_filter_rejectattr, bt_tmpl_filter_reverse, bt_tmpl_filter_select,
    bt_tmpl_filter_selectattr, bt_tmpl_filter_slice, bt_tmpl_filter_sort,
    bt_tmpl_filter_sum, bt_tmpl_filter_unique;

#endif
