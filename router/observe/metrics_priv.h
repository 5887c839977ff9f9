/* SPDX-License-Identifier: Apache-2.0 */
/** @file metrics_priv.h
 *
 * What the events and the page share: the cells.
 */
#ifndef BT_ROUTER_OBSERVE_METRICS_PRIV_H
#define BT_ROUTER_OBSERVE_METRICS_PRIV_H

#include "common/base/list.h"
#include "router/observe/metrics.h"
#include "router/observe/metrics_table.h"

/** Answers of one kind. */
typedef struct bt_http_count {
    const char *route, *method; /* literals */
    int code;
    double n;
} bt_http_count_t;

/** A series that the launcher told of. */
typedef struct bt_fleet_cell {
    bt_series_scope_t scope; /* EXPECTED or RESTARTS */
    char *labels;            /* owned */
    double value;
} bt_fleet_cell_t;

struct bt_model_metrics {
    bt_list_t link;     /* in bt_router_metrics.models */
    char *name;         /* owned; NULL: of requests that named no model */
    bt_strbuf_t labels; /* model="NAME", "" without a name */
    bool is_first;
    double cells[BT_MC_N]; /* NaN: unknown, not printed */
    bt_histogram_t hists[BT_MH_N];
};

struct bt_router_metrics {
    bt_list_t models;   /* in order of creation */
    bool seed_is_taken; /* a model is called as the seeds call the first */
    bt_model_metrics_t nowhere; /* counts what no model can */
    double cells[BT_PC_N];
    bt_histogram_t loop[BT_LH_N];
    uint64_t turn_ns;  /* CPU time at the end of the last turn; 0: none yet */
    bt_strbuf_t build; /* labels of BT_SCOPE_BUILD */
    bt_http_count_t *http;
    uint32_t n_http, cap_http;
    bt_fleet_cell_t *fleet;
    uint32_t n_fleet;
    /* Scratch of one page. */
    bt_strbuf_t labels;  /* of one series */
    bt_strbuf_t workers; /* of each worker, zero-ended, in the views' order */
};

/** "prefill" or "decode". */
const char *bt_metrics_role_name(uint32_t role);
/** When this process started, on the wall clock; NAN when nobody knows. It is
 *  asked once, because a clock that is set would move it. */
double bt_metrics_process_start(void);

#endif
