/* SPDX-License-Identifier: Apache-2.0 */
/** @file metrics_priv.h
 *
 * Cells of the metrics, shared by the event functions and the page.
 */
#ifndef BT_ROUTER_OBSERVE_METRICS_PRIV_H
#define BT_ROUTER_OBSERVE_METRICS_PRIV_H

#include "common/base/containers.h"
#include "router/observe/metrics.h"

/** Number of answers of one kind. */
typedef struct bt_http_count {
    const char *route, *method; /* literals */
    int code;
    double n;
} bt_http_count_t;

/** Series that the launcher reported. */
typedef struct bt_fleet_cell {
    bt_series_scope_t scope; /* EXPECTED or RESTARTS */
    char *labels;            /* owned */
    double value;
} bt_fleet_cell_t;

/** All series that the launcher reported. Immutable: a new report makes a new
 *  object. */
typedef struct bt_fleet_cells {
    uint32_t n_refs; /* metrics and snapshots; on the owner's thread */
    uint32_t n;
    bt_fleet_cell_t cells[];
} bt_fleet_cells_t;

/** Counted values of a model. */
typedef struct bt_model_values {
    double cells[BT_MC_N]; /* NaN: unknown, not printed */
    bt_histogram_t hists[BT_MH_N];
} bt_model_values_t;

/** Counted values of a LoRA adapter. */
struct bt_adapter_metrics {
    bt_list_t link;     /* in bt_model_metrics.adapters */
    char *name;         /* owned */
    bt_strbuf_t labels; /* model="NAME",adapter="NAME"; never changes */
    double cells[BT_AC_N];
};

struct bt_model_metrics {
    bt_list_t link;     /* in bt_router_metrics.models */
    char *name;         /* owned; NULL: requests that named no model */
    bt_strbuf_t labels; /* model="NAME", "" without a name; never changes */
    uint32_t index;     /* in the order of creation */
    bool has_series;    /* for a name that is no model: has nv_inference_* */
    bt_model_values_t values; /* gauges are in the snapshots */
    uint64_t last_ms;         /* Unix time of the last end; 0: none */
    bt_duration_t responses[BT_STATISTICS_RESPONSES];
    bt_list_t adapters; /* in order of creation */
    uint32_t n_adapters;
    uint32_t n_sent_adapters; /* among these */
};

/** Counted values of a tenant. */
struct bt_tenant_metrics {
    char name[64];
    char labels[96]; /* tenant="NAME" */
    double cells[BT_TC_N];
};

struct bt_router_metrics {
    bt_list_t models; /* in order of creation */
    uint32_t n_models;
    bt_list_t names;  /* names that are no models of their own */
    uint32_t n_names; /* those with series */
    bool v1;
    bool seed_is_taken;         /* a model has the name BT_METRICS_SEED_MODEL */
    bt_model_metrics_t nowhere; /* counts requests without a model */
    double cells[BT_PC_N];
    bt_histogram_t loop[BT_LH_N];
    uint64_t turn_end_ns; /* end of the last turn; 0: none yet */
    uint64_t turn_ns;     /* CPU time at the end of the last long turn... */
    uint64_t short_ns;    /* ...and what short ones have taken since */
    bt_strbuf_t build;    /* labels of BT_SCOPE_BUILD */
    bt_http_count_t *http;
    uint32_t n_http, cap_http;
    bt_fleet_cells_t *fleet; /* NULL: no report yet */
    /* The last one is "other". */
    bt_tenant_metrics_t tenants[BT_METRICS_MAX_TENANTS + 1];
    uint32_t n_tenants;
    bt_strbuf_t labels; /* scratch for one series */
};

/* ---- a snapshot ---- */

typedef struct bt_model_row {
    const char *labels; /* borrowed from the model, which stays */
    bool is_seed;   /* exported as BT_METRICS_SEED_MODEL in the nv_* families */
    bool is_served; /* a view was given */
    bt_metrics_view_t view;    /* whose workers and cuts are copied: */
    uint32_t first, first_cut; /* contiguous in the snapshot's */
    bt_model_values_t values;
} bt_model_row_t;

typedef struct bt_worker_row {
    char name[BT_WIRE_MAX_NAME];
    uint64_t instance;
    uint32_t model; /* index */
    uint32_t role;  /* bits of bt_role_t */
    uint32_t tokens_per_block, max_batch, state;
    bool has_stats;
    bt_msg_stats_t stats;
} bt_worker_row_t;

typedef struct bt_adapter_row {
    const char *labels; /* borrowed from the adapter's series, which stay */
    double cells[BT_AC_N];
} bt_adapter_row_t;

struct bt_metrics_snapshot {
    bt_model_row_t *models; /* in order of creation */
    uint32_t n_models;
    bt_model_row_t *names; /* bt_router_metrics.names, those with series */
    uint32_t n_names;
    bt_worker_row_t *workers; /* in the views' order; rendering sorts them */
    uint32_t n_workers;
    bt_metrics_cut_t *cuts; /* contiguous per model */
    uint32_t n_cuts;
    bt_http_count_t *http;
    uint32_t n_http;
    bt_fleet_cells_t *fleet; /* a reference, or NULL */
    bt_tenant_metrics_t *tenants;
    uint32_t n_tenants;
    bt_adapter_row_t *adapters; /* contiguous per model */
    uint32_t n_adapters;
    const char *build; /* borrowed from the metrics, which stay */
    bt_model_values_t nowhere;
    double cells[BT_PC_N];
    bt_histogram_t loop[BT_LH_N];
    bool v1;
};

/** Frees the series of a model's adapters. */
void bt_metrics_adapters_free(bt_model_metrics_t *mm);

/** Drops a reference; NULL is allowed. */
void bt_metrics_fleet_drop(bt_fleet_cells_t *fleet);

/** Returns the start time of this process, as wall-clock time; NAN if unknown.
 *  Determined once, because setting the clock would change the result. */
double bt_metrics_process_start(void);

#endif
