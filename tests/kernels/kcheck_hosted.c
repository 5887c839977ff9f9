/* SPDX-License-Identifier: Apache-2.0 */
/* A back end with memory of its own, to be called with the host's: every
 * operation's arrays are brought there, between guards, and back again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "tests/kernels/kcheck.h"

#define GUARD_BYTES  256u
#define GUARD_BYTE   0x3c
#define MAX_WEIGHTS  8u
#define MAX_ADAPTERS 64u

typedef struct shape {
    const bt_weight_t *weight;
    uint32_t n_out;
    uint32_t n_in;
} shape_t;

typedef struct hosted {
    bt_backend_t base; /* first */
    bt_kernels_ops_t ops;
    bt_kernels_caps_t caps;
    bt_backend_t *real;
    shape_t shapes[MAX_WEIGHTS];
    uint32_t n_packed;
    bool is_begun; /* the batch of the next operation */
} hosted_t;

static hosted_t *self(bt_backend_t *be)
{
    return (hosted_t *)(void *)be;
}

static void must(bt_status_t status, const char *what)
{
    if (status != BT_OK) {
        fprintf(stderr, "kcheck: %s: %s\n", what, bt_status_str(status));
        exit(2);
    }
}

/* ---- arrays there and back ---- */

/* A copy over there; NULL stays NULL. */
static void *there(const hosted_t *h, const void *host, size_t bytes)
{
    const bt_kernels_ops_t *ops = h->real->ops;
    uint8_t guard[GUARD_BYTES];
    void *ptr = NULL;

    if (host == NULL) {
        return NULL;
    }
    memset(guard, GUARD_BYTE, sizeof(guard));
    must(ops->buffer_alloc(h->real, bytes + 2 * (size_t)GUARD_BYTES, &ptr),
         "memory of the back end");
    must(ops->copy_in(h->real, ptr, guard, GUARD_BYTES), "copy_in");
    must(ops->copy_in(h->real, (uint8_t *)ptr + GUARD_BYTES, host, bytes),
         "copy_in");
    must(ops->copy_in(h->real, (uint8_t *)ptr + GUARD_BYTES + bytes, guard,
                      GUARD_BYTES),
         "copy_in");
    must(ops->sync(h->real), "copy_in");
    return (uint8_t *)ptr + GUARD_BYTES;
}

static void check_guard(const hosted_t *h, const void *ptr)
{
    uint8_t guard[GUARD_BYTES];
    bool ok = true;

    must(h->real->ops->copy_out(h->real, guard, ptr, GUARD_BYTES), "copy_out");
    for (uint32_t i = 0; i < GUARD_BYTES; i++) {
        ok = ok && (guard[i] == GUARD_BYTE);
    }
    kc_expect(ok, "%s wrote outside an array", h->caps.name);
}

/* Into host, unless it is NULL, and free. */
static void back(const hosted_t *h, void *host, const void *ptr, size_t bytes)
{
    const bt_kernels_ops_t *ops = h->real->ops;
    const uint8_t *data = ptr;

    if (ptr == NULL) {
        return;
    }
    must(ops->sync(h->real), "an operation");
    check_guard(h, data - GUARD_BYTES);
    check_guard(h, data + bytes);
    if (host != NULL) {
        must(ops->copy_out(h->real, host, ptr, bytes), "copy_out");
    }
    must(ops->sync(h->real), "copy_out");
    ops->buffer_free(h->real, (void *)(uintptr_t)(data - GUARD_BYTES));
}

static size_t floats(size_t rows, size_t dim)
{
    return rows * dim * sizeof(float);
}

static void begin(hosted_t *h, const bt_batch_t *batch)
{
    if ((h->real->ops->batch_begin != NULL) && !h->is_begun) {
        must(h->real->ops->batch_begin(h->real, batch), "batch_begin");
    }
    h->is_begun = false;
}

/* ---- weights: their shapes are remembered ---- */

static shape_t *shape_of(hosted_t *h, const bt_weight_t *weight)
{
    for (uint32_t i = 0; i < MAX_WEIGHTS; i++) {
        if (h->shapes[i].weight == weight) {
            return &h->shapes[i];
        }
    }
    fprintf(stderr, "kcheck: too many weights\n");
    exit(2);
}

/* By its packed bytes, which are gone when it is used. */
static bt_status_t weight_by_bytes(bt_backend_t *real, bt_ktype_t type,
                                   uint32_t n_out, uint32_t n_in,
                                   const void *data, bt_weight_t **weight_p)
{
    const bt_kernels_ops_t *ops = real->ops;
    bt_weight_t *here = NULL;
    bt_status_t status =
        ops->weight_pack_here(real, type, n_out, n_in, data, &here);

    if (status == BT_OK) {
        status =
            ops->weight_adopt(real, type, n_out, n_in, ops->weight_data(here),
                              ops->weight_bytes(type, n_out, n_in), weight_p);
        ops->weight_free(real, here);
    }
    return status;
}

/* Every other one by its bytes, where there is that. */
static bt_status_t weight_pack(bt_backend_t *be, bt_ktype_t type,
                               uint32_t n_out, uint32_t n_in, const void *data,
                               bt_weight_t **weight_p)
{
    hosted_t *h = self(be);
    const bool by_bytes =
        (h->real->ops->weight_pack_here != NULL) && (h->n_packed++ % 2 == 1);
    const bt_status_t status =
        (by_bytes ? weight_by_bytes : h->real->ops->weight_pack)(
            h->real, type, n_out, n_in, data, weight_p);

    if (status == BT_OK) {
        *shape_of(h, NULL) = (shape_t){*weight_p, n_out, n_in};
    }
    return status;
}

static void weight_free(bt_backend_t *be, bt_weight_t *weight)
{
    hosted_t *h = self(be);

    if (weight != NULL) {
        shape_of(h, weight)->weight = NULL;
        h->real->ops->weight_free(h->real, weight);
    }
}

/* ---- operations ---- */

static void embed(bt_backend_t *be, const bt_weight_t *w,
                  const bt_batch_t *batch, float *out)
{
    hosted_t *h = self(be);
    const size_t bytes = floats(batch->n_rows, shape_of(h, w)->n_in);
    float *out_there = there(h, out, bytes);

    begin(h, batch);
    h->real->ops->embed(h->real, w, batch, out_there);
    back(h, out, out_there, bytes);
}

/* ids: one for each row. The next operation is given the same batch. */
static void take_tokens(bt_backend_t *be, const bt_batch_t *batch,
                        const uint32_t *ids)
{
    hosted_t *h = self(be);
    const size_t bytes = batch->n_rows * sizeof(*ids);
    uint32_t *ids_there = there(h, ids, bytes);

    begin(h, batch);
    h->real->ops->take_tokens(h->real, batch, ids_there);
    back(h, NULL, ids_there, bytes);
    h->is_begun = true;
}

static void matmul(bt_backend_t *be, const bt_weight_t *w, const float *x,
                   uint32_t n_rows, float *out)
{
    hosted_t *h = self(be);
    const shape_t *shape = shape_of(h, w);
    const size_t x_bytes = floats(n_rows, shape->n_in);
    const size_t out_bytes = floats(n_rows, shape->n_out);
    float *x_there = there(h, x, x_bytes);
    float *out_there = there(h, out, out_bytes);

    h->real->ops->matmul(h->real, w, x_there, n_rows, out_there);
    back(h, NULL, x_there, x_bytes);
    back(h, out, out_there, out_bytes);
}

static void rmsnorm(bt_backend_t *be, const float *x, const float *weight,
                    float eps, uint32_t n_rows, uint32_t dim, float *out)
{
    const hosted_t *h = self(be);
    const size_t bytes = floats(n_rows, dim);
    float *x_there = there(h, x, bytes);
    float *weight_there = there(h, weight, floats(1, dim));
    float *out_there = (x == out) ? x_there : there(h, out, bytes);

    h->real->ops->rmsnorm(h->real, x_there, weight_there, eps, n_rows, dim,
                          out_there);
    back(h, out, out_there, bytes);
    back(h, NULL, weight_there, floats(1, dim));
    back(h, NULL, (x == out) ? NULL : x_there, bytes);
}

static bt_kv_view_t view_there(const hosted_t *h, const bt_kv_view_t *kv)
{
    bt_kv_view_t view = *kv;

    view.base = there(h, kv->base, kc_size(kv->base) * sizeof(float));
    return view;
}

static void rope_store(bt_backend_t *be, float *qkv, uint32_t n_heads,
                       const bt_rotation_t *rotation, const bt_batch_t *batch,
                       const bt_kv_view_t *kv, uint32_t layer)
{
    hosted_t *h = self(be);
    const size_t row = (n_heads + 2 * (size_t)kv->n_kv_heads) * kv->head_dim;
    const size_t qkv_bytes = floats(batch->n_rows, row);
    const size_t table_bytes =
        (rotation->dims == 0) ? 0 : floats(1, kc_size(rotation->cos_sin));
    const bt_kv_view_t view = view_there(h, kv);
    float *qkv_there = there(h, qkv, qkv_bytes);
    bt_rotation_t rotation_there = *rotation;
    float *table_there = NULL;

    if (rotation->dims > 0) {
        table_there = there(h, rotation->cos_sin, table_bytes);
        rotation_there.cos_sin = table_there;
    }
    begin(h, batch);
    h->real->ops->rope_store(h->real, qkv_there, n_heads, &rotation_there,
                             batch, &view, layer);
    back(h, qkv, qkv_there, qkv_bytes);
    back(h, NULL, table_there, table_bytes);
    back(h, kv->base, view.base, kc_size(kv->base) * sizeof(float));
}

static void attention(bt_backend_t *be, const bt_attention_t *a,
                      const float *qkv, const bt_batch_t *batch,
                      const bt_kv_view_t *kv, uint32_t layer, float *out)
{
    hosted_t *h = self(be);
    const size_t row = (a->n_heads + 2 * (size_t)kv->n_kv_heads) * kv->head_dim;
    const size_t qkv_bytes = floats(batch->n_rows, row);
    const size_t out_bytes =
        floats(batch->n_rows, (size_t)a->n_heads * a->value_dim);
    const bt_kv_view_t view = view_there(h, kv);
    float *qkv_there = there(h, qkv, qkv_bytes);
    float *sinks_there = there(h, a->sinks, floats(1, a->n_heads));
    float *slopes_there = there(h, a->slopes, floats(1, a->n_heads));
    float *out_there = there(h, out, out_bytes);
    bt_attention_t a_there = *a;

    a_there.sinks = sinks_there;
    a_there.slopes = slopes_there;
    begin(h, batch);
    h->real->ops->attention(h->real, &a_there, qkv_there, batch, &view, layer,
                            out_there);
    back(h, out, out_there, out_bytes);
    back(h, NULL, sinks_there, floats(1, a->n_heads));
    back(h, NULL, slopes_there, floats(1, a->n_heads));
    back(h, NULL, qkv_there, qkv_bytes);
    back(h, NULL, view.base, kc_size(kv->base) * sizeof(float));
}

static void layer_norm(bt_backend_t *be, const float *x, const float *weight,
                       const float *bias, float eps, uint32_t n_rows,
                       uint32_t dim, float *out)
{
    hosted_t *h = self(be);
    const size_t bytes = floats(n_rows, dim);
    float *x_there = there(h, x, bytes);
    float *weight_there = there(h, weight, floats(1, dim));
    float *bias_there = there(h, bias, floats(1, dim));
    float *out_there = (x == out) ? x_there : there(h, out, bytes);

    h->real->ops->layer_norm(h->real, x_there, weight_there, bias_there, eps,
                             n_rows, dim, out_there);
    back(h, out, out_there, bytes);
    back(h, NULL, weight_there, floats(1, dim));
    back(h, NULL, bias_there, floats(1, dim));
    back(h, NULL, (x == out) ? NULL : x_there, bytes);
}

static void head_norm(bt_backend_t *be, float *x, const float *weight,
                      float eps, uint32_t n_rows, size_t row_floats, size_t at,
                      uint32_t n_heads, uint32_t dim)
{
    hosted_t *h = self(be);
    const size_t bytes = floats(n_rows, row_floats);
    float *x_there = there(h, x, bytes);
    float *weight_there = there(h, weight, floats(1, dim));

    h->real->ops->head_norm(h->real, x_there, weight_there, eps, n_rows,
                            row_floats, at, n_heads, dim);
    back(h, x, x_there, bytes);
    back(h, NULL, weight_there, floats(1, dim));
}

static void add_positions(bt_backend_t *be, const bt_weight_t *w,
                          const bt_batch_t *batch, float *x)
{
    hosted_t *h = self(be);
    const size_t bytes = floats(batch->n_rows, shape_of(h, w)->n_in);
    float *x_there = there(h, x, bytes);

    begin(h, batch);
    h->real->ops->add_positions(h->real, w, batch, x_there);
    back(h, x, x_there, bytes);
}

static void activate(bt_backend_t *be, bt_activation_t act, bool gated,
                     const float *x, uint32_t n_rows, uint32_t dim, float *out)
{
    hosted_t *h = self(be);
    const size_t x_bytes = floats(n_rows, (gated ? 2 : 1) * (size_t)dim);
    float *x_there = there(h, x, x_bytes);
    float *out_there = there(h, out, floats(n_rows, dim));

    h->real->ops->activate(h->real, act, gated, x_there, n_rows, dim,
                           out_there);
    back(h, NULL, x_there, x_bytes);
    back(h, out, out_there, floats(n_rows, dim));
}

static void add_bias(bt_backend_t *be, float *x, const float *bias,
                     uint32_t n_rows, uint32_t dim)
{
    hosted_t *h = self(be);
    float *x_there = there(h, x, floats(n_rows, dim));
    float *bias_there = there(h, bias, floats(1, dim));

    h->real->ops->add_bias(h->real, x_there, bias_there, n_rows, dim);
    back(h, x, x_there, floats(n_rows, dim));
    back(h, NULL, bias_there, floats(1, dim));
}

static void scale(bt_backend_t *be, float *x, float factor, size_t n)
{
    hosted_t *h = self(be);
    float *x_there = there(h, x, floats(1, n));

    h->real->ops->scale(h->real, x_there, factor, n);
    back(h, x, x_there, floats(1, n));
}

static void soft_cap(bt_backend_t *be, float *x, float cap, size_t n)
{
    hosted_t *h = self(be);
    float *x_there = there(h, x, floats(1, n));

    h->real->ops->soft_cap(h->real, x_there, cap, n);
    back(h, x, x_there, floats(1, n));
}

static void clamp(bt_backend_t *be, float *x, float limit, size_t n)
{
    hosted_t *h = self(be);
    float *x_there = there(h, x, floats(1, n));

    h->real->ops->clamp(h->real, x_there, limit, n);
    back(h, x, x_there, floats(1, n));
}

static void scale_positions(bt_backend_t *be, float *x, const float *factors,
                            const bt_batch_t *batch, size_t row_floats,
                            uint32_t dim)
{
    hosted_t *h = self(be);
    const size_t x_bytes = floats(batch->n_rows, row_floats);
    const size_t factor_bytes = kc_size(factors) * sizeof(float);
    float *x_there = there(h, x, x_bytes);
    float *factors_there = there(h, factors, factor_bytes);

    begin(h, batch);
    h->real->ops->scale_positions(h->real, x_there, factors_there, batch,
                                  row_floats, dim);
    back(h, x, x_there, x_bytes);
    back(h, NULL, factors_there, factor_bytes);
}

static void add(bt_backend_t *be, float *x, const float *y, size_t n)
{
    hosted_t *h = self(be);
    float *x_there = there(h, x, floats(1, n));
    float *y_there = there(h, y, floats(1, n));

    h->real->ops->add(h->real, x_there, y_there, n);
    back(h, x, x_there, floats(1, n));
    back(h, NULL, y_there, floats(1, n));
}

static void gather_rows(bt_backend_t *be, const float *x,
                        const bt_batch_t *batch, uint32_t dim, float *out)
{
    hosted_t *h = self(be);
    const size_t x_bytes = floats(batch->n_rows, dim);
    const size_t out_bytes = floats(batch->n_logit_rows, dim);
    float *x_there = there(h, x, x_bytes);
    float *out_there = there(h, out, out_bytes);

    begin(h, batch);
    h->real->ops->gather_rows(h->real, x_there, batch, dim, out_there);
    back(h, NULL, x_there, x_bytes);
    back(h, out, out_there, out_bytes);
}

static void copy_columns(bt_backend_t *be, const float *x, uint32_t n_rows,
                         uint32_t dim, float *out, uint32_t out_dim,
                         uint32_t at)
{
    const hosted_t *h = self(be);
    float *x_there = there(h, x, floats(n_rows, dim));
    float *out_there = there(h, out, floats(n_rows, out_dim));

    h->real->ops->copy_columns(h->real, x_there, n_rows, dim, out_there,
                               out_dim, at);
    back(h, NULL, x_there, floats(n_rows, dim));
    back(h, out, out_there, floats(n_rows, out_dim));
}

static void cut_columns(bt_backend_t *be, const float *x, uint32_t n_rows,
                        uint32_t x_dim, uint32_t at, uint32_t dim, float *out)
{
    const hosted_t *h = self(be);
    float *x_there = there(h, x, floats(n_rows, x_dim));
    float *out_there = there(h, out, floats(n_rows, dim));

    h->real->ops->cut_columns(h->real, x_there, n_rows, x_dim, at, dim,
                              out_there);
    back(h, NULL, x_there, floats(n_rows, x_dim));
    back(h, out, out_there, floats(n_rows, dim));
}

static void argmax(bt_backend_t *be, const float *x, uint32_t n_rows,
                   uint32_t dim, uint32_t *ids)
{
    const hosted_t *h = self(be);
    float *x_there = there(h, x, floats(n_rows, dim));
    uint32_t *ids_there = there(h, ids, n_rows * sizeof(*ids));

    h->real->ops->argmax(h->real, x_there, n_rows, dim, ids_there);
    back(h, NULL, x_there, floats(n_rows, dim));
    back(h, ids, ids_there, n_rows * sizeof(*ids));
}

static void top(bt_backend_t *be, const float *x, uint32_t n_rows, uint32_t dim,
                uint32_t k, uint32_t *ids, float *values)
{
    const hosted_t *h = self(be);
    float *x_there = there(h, x, floats(n_rows, dim));
    uint32_t *ids_there = there(h, ids, floats(n_rows, k));
    float *values_there = there(h, values, floats(n_rows, k));

    h->real->ops->top(h->real, x_there, n_rows, dim, k, ids_there,
                      values_there);
    back(h, NULL, x_there, floats(n_rows, dim));
    back(h, ids, ids_there, floats(n_rows, k));
    back(h, values, values_there, floats(n_rows, k));
}

static void draw(bt_backend_t *be, float *logits, const bt_batch_t *batch,
                 uint32_t dim, uint32_t *ids)
{
    hosted_t *h = self(be);
    const size_t bytes = floats(batch->n_logit_rows, dim);
    const size_t id_bytes = batch->n_draws * sizeof(*ids);
    float *logits_there = there(h, logits, bytes);
    uint32_t *ids_there = there(h, ids, id_bytes);

    begin(h, batch);
    h->real->ops->draw(h->real, logits_there, batch, dim, ids_there);
    back(h, logits, logits_there, bytes);
    back(h, ids, ids_there, id_bytes);
}

static void score(bt_backend_t *be, const float *logits,
                  const bt_batch_t *batch, uint32_t dim, const uint32_t *ids,
                  bt_scored_t *out)
{
    hosted_t *h = self(be);
    const size_t bytes = floats(batch->n_logit_rows, dim);
    const size_t out_bytes = batch->n_scorings * sizeof(*out);
    uint32_t n_ids = 0;
    float *logits_there = there(h, logits, bytes);
    bt_scored_t *out_there = there(h, out, out_bytes);
    uint32_t *ids_there;

    for (uint32_t i = 0; i < batch->n_scorings; i++) {
        const uint32_t draw = batch->scorings[i].draw;

        n_ids = ((draw != BT_SCORING_NO_DRAW) && (draw >= n_ids)) ? draw + 1
                                                                  : n_ids;
    }
    ids_there = there(h, ids, n_ids * sizeof(*ids));
    begin(h, batch);
    h->real->ops->score(h->real, logits_there, batch, dim, ids_there,
                        out_there);
    back(h, NULL, logits_there, bytes);
    back(h, out, out_there, out_bytes);
    back(h, NULL, ids_there, n_ids * sizeof(*ids));
}

/* ---- mixtures of experts ---- */

/* The tables of @a n_rows rows over there. */
static bt_expert_rows_t
tables_there(const hosted_t *h, const bt_expert_rows_t *rows, uint32_t n_rows)
{
    const size_t bytes = floats(n_rows, rows->n_used);
    bt_expert_rows_t own = *rows;

    own.ids = there(h, rows->ids, bytes);
    own.weights = there(h, rows->weights, bytes);
    own.slots = there(h, rows->slots, bytes);
    own.first = there(h, rows->first, floats(1, (size_t)rows->n_experts + 1));
    own.rows = there(h, rows->rows, bytes);
    return own;
}

/* @param host  where they go; NULL: nowhere */
static void tables_back(const hosted_t *h, const bt_expert_rows_t *host,
                        const bt_expert_rows_t *own, uint32_t n_rows)
{
    const size_t bytes = floats(n_rows, own->n_used);
    const bool wanted = host != NULL;

    back(h, wanted ? host->ids : NULL, own->ids, bytes);
    back(h, wanted ? host->weights : NULL, own->weights, bytes);
    back(h, wanted ? host->slots : NULL, own->slots, bytes);
    back(h, wanted ? host->first : NULL, own->first,
         floats(1, (size_t)own->n_experts + 1));
    back(h, wanted ? host->rows : NULL, own->rows, bytes);
}

static void route(bt_backend_t *be, const bt_routing_t *routing, const float *z,
                  uint32_t n_rows, const bt_expert_rows_t *rows)
{
    const hosted_t *h = self(be);
    const size_t bytes = floats(n_rows, routing->n_experts);
    const size_t bias_bytes = floats(1, routing->n_experts);
    const bt_expert_rows_t own = tables_there(h, rows, n_rows);
    float *z_there = there(h, z, bytes);
    float *bias_there = there(h, routing->bias, bias_bytes);
    bt_routing_t routing_there = *routing;

    routing_there.bias = bias_there;
    h->real->ops->route(h->real, &routing_there, z_there, n_rows, &own);
    back(h, NULL, z_there, bytes);
    back(h, NULL, bias_there, bias_bytes);
    tables_back(h, rows, &own, n_rows);
}

static void matmul_experts(bt_backend_t *be, const bt_weight_t *const *weights,
                           uint32_t n_weights, const bt_expert_rows_t *rows,
                           uint32_t n_rows, const float *x, bool by_row,
                           float *out)
{
    hosted_t *h = self(be);
    const shape_t *const shape = shape_of(h, weights[0]);
    const size_t n_slots = (size_t)n_rows * rows->n_used;
    const size_t x_bytes = floats(by_row ? n_rows : n_slots, shape->n_in);
    const size_t out_bytes =
        floats(n_slots * n_weights, shape->n_out / bt_own_experts(rows));
    const bt_expert_rows_t own = tables_there(h, rows, n_rows);
    float *x_there = there(h, x, x_bytes);
    float *out_there = there(h, out, out_bytes);

    h->real->ops->matmul_experts(h->real, weights, n_weights, &own, n_rows,
                                 x_there, by_row, out_there);
    back(h, NULL, x_there, x_bytes);
    back(h, out, out_there, out_bytes);
    tables_back(h, NULL, &own, n_rows);
}

static void add_expert_bias(bt_backend_t *be, const bt_expert_rows_t *rows,
                            uint32_t n_rows, const float *bias, uint32_t dim,
                            float *x)
{
    const hosted_t *h = self(be);
    const size_t bytes = floats((size_t)n_rows * rows->n_used, dim);
    const size_t bias_bytes = floats(bt_own_experts(rows), dim);
    const bt_expert_rows_t own = tables_there(h, rows, n_rows);
    float *x_there = there(h, x, bytes);
    float *bias_there = there(h, bias, bias_bytes);

    h->real->ops->add_expert_bias(h->real, &own, n_rows, bias_there, dim,
                                  x_there);
    back(h, x, x_there, bytes);
    back(h, NULL, bias_there, bias_bytes);
    tables_back(h, NULL, &own, n_rows);
}

static void gate_rows(bt_backend_t *be, float *x, const float *z,
                      uint32_t n_rows, uint32_t dim)
{
    const hosted_t *h = self(be);
    float *x_there = there(h, x, floats(n_rows, dim));
    float *z_there = there(h, z, floats(1, n_rows));

    h->real->ops->gate_rows(h->real, x_there, z_there, n_rows, dim);
    back(h, x, x_there, floats(n_rows, dim));
    back(h, NULL, z_there, floats(1, n_rows));
}

static void combine(bt_backend_t *be, const bt_expert_rows_t *rows,
                    uint32_t n_rows, const float *x, uint32_t dim, float *out)
{
    const hosted_t *h = self(be);
    const size_t bytes = floats((size_t)n_rows * rows->n_used, dim);
    const bt_expert_rows_t own = tables_there(h, rows, n_rows);
    float *x_there = there(h, x, bytes);
    float *out_there = there(h, out, floats(n_rows, dim));

    h->real->ops->combine(h->real, &own, n_rows, x_there, dim, out_there);
    back(h, NULL, x_there, bytes);
    back(h, out, out_there, floats(n_rows, dim));
    tables_back(h, NULL, &own, n_rows);
}

/* ---- adapters ---- */

static size_t a_bytes(const bt_lora_rows_t *rows, uint32_t n_in)
{
    return bt_lora_rows_in(n_in) * bt_lora_rank_lanes(rows->rank) *
           ((rows->type == BT_KTYPE_F32) ? 4 : 2);
}

static size_t b_bytes(const bt_lora_rows_t *rows, uint32_t n_out)
{
    return rows->rank * bt_lora_lanes(n_out) *
           ((rows->type == BT_KTYPE_F32) ? 4 : 2);
}

static void lora(bt_backend_t *be, const bt_lora_step_t *step)
{
    const hosted_t *h = self(be);
    bt_lora_rows_t groups[MAX_ADAPTERS];
    bt_lora_step_t own = *step;

    kc_expect(step->n_groups <= MAX_ADAPTERS, "too many adapters");
    for (uint32_t i = 0; i < step->n_groups; i++) {
        const bt_lora_rows_t *const g = &step->groups[i];

        groups[i] = *g;
        groups[i].a = there(h, g->a, a_bytes(g, step->n_in));
        groups[i].b = there(h, g->b, b_bytes(g, step->n_out));
    }
    own.groups = groups;
    own.x = there(h, step->x, floats(1, kc_size(step->x)));
    own.down = there(h, step->down, floats(1, kc_size(step->down)));
    own.y = there(h, step->y, floats(1, kc_size(step->y)));
    h->real->ops->lora(h->real, &own);
    back(h, NULL, own.x, floats(1, kc_size(step->x)));
    back(h, NULL, own.down, floats(1, kc_size(step->down)));
    back(h, step->y, own.y, floats(1, kc_size(step->y)));
    for (uint32_t i = 0; i < step->n_groups; i++) {
        const bt_lora_rows_t *const g = &step->groups[i];

        back(h, NULL, groups[i].a, a_bytes(g, step->n_in));
        back(h, NULL, groups[i].b, b_bytes(g, step->n_out));
    }
}

static void hosted_close(bt_backend_t *be)
{
    bt_backend_close(self(be)->real);
    bt_free(be);
}

/* ---- fused steps ---- */

/* x (n_rows, x_dim) there; out there and back. */
typedef struct step_arrays {
    float *x, *out;
    size_t x_bytes, out_bytes;
} step_arrays_t;

static step_arrays_t bring_step(hosted_t *h, const bt_weight_t *w,
                                const float *x, uint32_t x_wide,
                                uint32_t n_rows, const float *out)
{
    const shape_t *shape = shape_of(h, w);
    step_arrays_t a = {
        .x_bytes = floats(n_rows, (size_t)x_wide * shape->n_in),
        .out_bytes = floats(n_rows, shape->n_out),
    };

    a.x = there(h, x, a.x_bytes);
    a.out = there(h, out, a.out_bytes);
    return a;
}

static void end_step(hosted_t *h, const step_arrays_t *a, float *out)
{
    back(h, NULL, a->x, a->x_bytes);
    back(h, out, a->out, a->out_bytes);
}

static void norm_matmul(bt_backend_t *be, const bt_weight_t *w, const float *x,
                        const float *norm, float eps, uint32_t n_rows,
                        float *out)
{
    hosted_t *h = self(be);
    const step_arrays_t a = bring_step(h, w, x, 1, n_rows, out);
    const size_t norm_bytes = floats(1, shape_of(h, w)->n_in);
    float *norm_there = there(h, norm, norm_bytes);

    h->real->ops->norm_matmul(h->real, w, a.x, norm_there, eps, n_rows, a.out);
    back(h, NULL, norm_there, norm_bytes);
    end_step(h, &a, out);
}

static void matmul_add(bt_backend_t *be, const bt_weight_t *w, const float *x,
                       uint32_t n_rows, float *out)
{
    hosted_t *h = self(be);
    const step_arrays_t a = bring_step(h, w, x, 1, n_rows, out);

    h->real->ops->matmul_add(h->real, w, a.x, n_rows, a.out);
    end_step(h, &a, out);
}

static void silu_matmul_add(bt_backend_t *be, const bt_weight_t *w,
                            const float *gate_up, uint32_t n_rows, float *out)
{
    hosted_t *h = self(be);
    const step_arrays_t a = bring_step(h, w, gate_up, 2, n_rows, out);

    h->real->ops->silu_matmul_add(h->real, w, a.x, n_rows, a.out);
    end_step(h, &a, out);
}

#define SAME_IF(name) .name = (real->ops->name != NULL) ? name : NULL

bt_backend_t *kc_hosted(bt_backend_t *real)
{
    /* Of every test. */
    const bt_batch_limits_t limits = {.max_rows = 1024,
                                      .max_seqs = 64,
                                      .max_logit_rows = 64,
                                      .max_draws = 16,
                                      .max_edits = 32768,
                                      .max_scorings = 16,
                                      .max_blocks = 64 * 256};
    hosted_t *h = bt_calloc(1, sizeof(*h));

    if (h == NULL) {
        must(BT_ERR_NO_MEMORY, "a back end");
    }
    if (real->ops->batch_reserve != NULL) {
        must(real->ops->batch_reserve(real, &limits), "batch_reserve");
    }
    h->real = real;
    h->caps = *real->caps;
    h->ops = (bt_kernels_ops_t){
        SAME_IF(weight_pack),
        SAME_IF(weight_free),
        .weight_bytes = real->ops->weight_bytes,
        SAME_IF(embed),
        SAME_IF(take_tokens),
        SAME_IF(matmul),
        SAME_IF(lora),
        SAME_IF(route),
        SAME_IF(matmul_experts),
        SAME_IF(add_expert_bias),
        SAME_IF(gate_rows),
        SAME_IF(combine),
        SAME_IF(rmsnorm),
        SAME_IF(layer_norm),
        SAME_IF(head_norm),
        SAME_IF(rope_store),
        SAME_IF(add_positions),
        SAME_IF(attention),
        SAME_IF(activate),
        SAME_IF(add_bias),
        SAME_IF(scale),
        SAME_IF(soft_cap),
        SAME_IF(clamp),
        SAME_IF(scale_positions),
        SAME_IF(add),
        SAME_IF(gather_rows),
        SAME_IF(copy_columns),
        SAME_IF(cut_columns),
        SAME_IF(argmax),
        SAME_IF(top),
        SAME_IF(draw),
        SAME_IF(score),
        SAME_IF(norm_matmul),
        SAME_IF(matmul_add),
        SAME_IF(silu_matmul_add),
        .close = hosted_close,
    };
    h->base.ops = &h->ops;
    h->base.caps = &h->caps;
    return &h->base;
}
