/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/lora_pass.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"

#define LINE_BYTES 64u

/* Packed matrices of one product; a is NULL where the adapter has none. */
typedef struct lora_matrices {
    const uint8_t *a, *b; /* in the adapter's data: bt_lora_rows_t */
    bt_ktype_t type;
    uint32_t rank;
    float scale;
} lora_matrices_t;

struct bt_lora {
    lora_matrices_t *matrices; /* (n_layers, BT_ADAPTER_N_PRODUCTS) */
    size_t n_matrices;
    /* Back end, all matrices in the order of their use, so that what is read
     * behind one is wanted next, and large adapters lie in large pages. */
    uint8_t *data;
    size_t bytes;
    bool is_on_host; /* data is memory of the host: bt_lora_copy_in() */
};

/* ---- products of the decoder ---- */

typedef struct outputs {
    uint32_t n_in, n_out;
    size_t at, row_floats; /* in the row of the products beside it */
} outputs_t;

/* n_out is 0 where the decoder has no such product. */
static outputs_t outputs_of(const bt_model_t *model,
                            bt_adapter_product_t product)
{
    const bt_hparams_t *const hp = &model->own;
    const uint32_t q = hp->n_heads * hp->head_dim;
    const uint32_t kv = hp->n_kv_heads * hp->head_dim;
    const bool plain = model->family->plain_ffn;
    const size_t qkv = q + 2 * (size_t)kv;
    const size_t up = bt_decoder_up_dim(model->family, hp);
    const outputs_t all[BT_ADAPTER_N_PRODUCTS] = {
        [BT_ADAPTER_Q] = {hp->dim, q, 0, qkv},
        [BT_ADAPTER_K] = {hp->dim, kv, q, qkv},
        [BT_ADAPTER_V] = {hp->dim, kv, (size_t)q + kv, qkv},
        [BT_ADAPTER_OUTPUT] = {q, hp->dim, 0, hp->dim},
        [BT_ADAPTER_GATE] = {hp->dim, plain ? 0 : hp->ffn_dim, 0, up},
        [BT_ADAPTER_UP] = {hp->dim, hp->ffn_dim, plain ? 0 : hp->ffn_dim, up},
        [BT_ADAPTER_DOWN] = {hp->ffn_dim, hp->dim, 0, hp->dim},
    };

    return all[product];
}

/* ---- loading ---- */

static bt_status_t check_part(const bt_model_t *model,
                              const bt_adapter_part_t *part, char *why,
                              size_t why_bytes)
{
    const bt_decoder_t *const d = model->state;
    const outputs_t o = outputs_of(model, part->product);

    if (part->rank > model->config.max_lora_rank) {
        snprintf(why, why_bytes,
                 "it has rank %u, and adapters of at most %u are taken "
                 "(--max-lora-rank)",
                 part->rank, model->config.max_lora_rank);
        return BT_ERR_UNSUPPORTED;
    }
    if ((part->layer < d->n_layers) &&
        (d->layers[part->layer].experts != NULL) &&
        ((part->product == BT_ADAPTER_GATE) ||
         (part->product == BT_ADAPTER_UP) ||
         (part->product == BT_ADAPTER_DOWN))) {
        snprintf(why, why_bytes,
                 "%s of layer %u: the layer has experts, of which adapters are "
                 "not computed",
                 bt_adapter_product_name(part->product), part->layer);
        return BT_ERR_UNSUPPORTED;
    }
    if ((part->layer >= d->n_layers) || (part->n_in != o.n_in) ||
        (part->n_out != o.n_out)) {
        snprintf(why, why_bytes,
                 "%s of layer %u is of a %u x %u matrix, the model's is "
                 "%u x %u",
                 bt_adapter_product_name(part->product), part->layer,
                 part->n_out, part->n_in, o.n_out, o.n_in);
        return BT_ERR_MISMATCH;
    }
    return BT_OK;
}

/* Bytes of a packed matrix: whole cache lines. */
static size_t packed_bytes(const bt_adapter_part_t *part, size_t n_rows,
                           size_t lanes)
{
    const size_t elem = (part->type == BT_ADAPTER_F32) ? 4 : 2;

    return (n_rows * lanes * elem + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

static size_t a_bytes(const bt_adapter_part_t *part)
{
    return packed_bytes(part, bt_lora_rows_in(part->n_in),
                        bt_lora_rank_lanes(part->rank));
}

static size_t b_bytes(const bt_adapter_part_t *part)
{
    return packed_bytes(part, part->rank, bt_lora_lanes(part->n_out));
}

static size_t part_bytes(const bt_adapter_part_t *part)
{
    return a_bytes(part) + b_bytes(part);
}

/* Copies a matrix (n_rows, n_columns), transposed: rows of `lanes` values, of
 * which the rest stays 0. */
static void transpose(const void *matrix, size_t elem, size_t n_rows,
                      size_t n_columns, size_t lanes, uint8_t *to)
{
    const uint8_t *const from = matrix;

    for (size_t r = 0; r < n_rows; r++) {
        for (size_t c = 0; c < n_columns; c++) {
            memcpy(to + (c * lanes + r) * elem,
                   from + (r * n_columns + c) * elem, elem);
        }
    }
}

/* Packs a part at byte `at` of the matrices, which are zeros. */
static void pack_part(bt_lora_t *lora, const bt_adapter_part_t *part, size_t at)
{
    lora_matrices_t *const m =
        &lora->matrices[(size_t)part->layer * BT_ADAPTER_N_PRODUCTS +
                        part->product];
    const size_t elem = (part->type == BT_ADAPTER_F32) ? 4 : 2;
    uint8_t *const a = lora->data + at;
    uint8_t *const b = a + a_bytes(part);

    transpose(part->a, elem, part->rank, part->n_in,
              bt_lora_rank_lanes(part->rank), a);
    transpose(part->b, elem, part->n_out, part->rank,
              bt_lora_lanes(part->n_out), b);
    *m = (lora_matrices_t){.a = a,
                           .b = b,
                           .type = (bt_ktype_t)part->type,
                           .rank = part->rank,
                           .scale = part->scale};
}

/* Allocates memory of the host that the back end may read, or that is copied to
 * the back end later. */
static bt_status_t alloc_host(bt_model_t *model, bt_lora_t *lora)
{
    void *data = NULL;
    bt_status_t status = BT_OK;

    if (!bt_backend_owns_memory(model->be)) {
        status = model->be->ops->buffer_alloc(model->be, lora->bytes, &data);
    } else {
        data = bt_calloc_aligned(1, lora->bytes);
        status = (data != NULL) ? BT_OK : BT_ERR_NO_MEMORY;
        lora->is_on_host = status == BT_OK;
    }
    lora->data = data;
    return status;
}

static bt_status_t load_parts(bt_model_t *model, bt_lora_t *lora,
                              const bt_adapter_t *adapter)
{
    const bt_decoder_t *const d = model->state;
    size_t at = 0;
    bt_status_t status;

    lora->n_matrices = (size_t)d->n_layers * BT_ADAPTER_N_PRODUCTS;
    lora->matrices = bt_calloc(lora->n_matrices, sizeof(*lora->matrices));
    if (lora->matrices == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    lora->bytes = (size_t)bt_lora_bytes_of(adapter);
    status = alloc_host(model, lora);
    for (uint32_t i = 0; (status == BT_OK) && (i < adapter->n_parts); i++) {
        pack_part(lora, &adapter->parts[i], at);
        at += part_bytes(&adapter->parts[i]);
    }
    return status;
}

bt_status_t bt_lora_copy_in(bt_model_t *model, bt_lora_t *lora)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    uint8_t *const host = lora->data;
    void *data = NULL;
    bt_status_t status;

    if (!lora->is_on_host) {
        return BT_OK;
    }
    status = ops->buffer_alloc(model->be, lora->bytes, &data);
    if (status != BT_OK) {
        return status;
    }
    status = ops->copy_in(model->be, data, host, lora->bytes);
    if (status != BT_OK) {
        ops->buffer_free(model->be, data);
        return status;
    }
    for (size_t i = 0; i < lora->n_matrices; i++) {
        lora_matrices_t *const m = &lora->matrices[i];

        if (m->a != NULL) {
            m->a = (const uint8_t *)data + (m->a - host);
            m->b = (const uint8_t *)data + (m->b - host);
        }
    }
    lora->data = data;
    lora->is_on_host = false;
    bt_free(host);
    return BT_OK;
}

bt_status_t bt_lora_load(bt_model_t *model, const bt_adapter_t *adapter,
                         char *why, size_t why_bytes, bt_lora_t **lora_p)
{
    const bt_decoder_t *const d = model->state;
    bt_lora_t *lora;
    bt_status_t status = BT_OK;

    if (d->lora == NULL) {
        snprintf(why, why_bytes,
                 "this model was loaded without room for "
                 "adapters");
        return BT_ERR_UNSUPPORTED;
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < adapter->n_parts); i++) {
        status = check_part(model, &adapter->parts[i], why, why_bytes);
    }
    if (status != BT_OK) {
        return status;
    }
    lora = bt_calloc(1, sizeof(*lora));
    if (lora == NULL) {
        status = BT_ERR_NO_MEMORY;
    } else {
        status = load_parts(model, lora, adapter);
    }
    if (status != BT_OK) {
        snprintf(why, why_bytes, "%s",
                 (status == BT_ERR_NO_MEMORY) ? "out of memory"
                                              : bt_status_str(status));
        bt_lora_free(model, lora);
        return status;
    }
    *lora_p = lora;
    return BT_OK;
}

void bt_lora_free(bt_model_t *model, bt_lora_t *lora)
{
    if (lora == NULL) {
        return;
    }
    if (lora->is_on_host) {
        bt_free(lora->data);
    } else {
        bt_model_buffer_free(model->be, lora->data);
    }
    bt_free(lora->matrices);
    bt_free(lora);
}

uint64_t bt_lora_bytes_of(const bt_adapter_t *adapter)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < adapter->n_parts; i++) {
        bytes += part_bytes(&adapter->parts[i]);
    }
    return bytes;
}

size_t bt_lora_bytes(const bt_lora_t *lora)
{
    return lora->bytes;
}

/* ---- the memory of a pass ---- */

static void check_model(bt_loader_t *ld)
{
    if (ld->be->ops->lora == NULL) {
        bt_loader_fail(ld, BT_ERR_UNSUPPORTED,
                       "the %s back end does not compute LoRA adapters "
                       "(--lora); the cpu back end does",
                       ld->be->caps->name);
    }
    if ((ld->shard.size > 1) || (ld->shard.n_parts > 1) ||
        (ld->shard.n_stages > 1)) {
        bt_loader_fail(ld, BT_ERR_UNSUPPORTED,
                       "LoRA adapters (--lora) are not computed by several "
                       "ranks, nor with --reduction-parts");
    }
}

void bt_lora_pass_load(bt_loader_t *ld, bt_decoder_t *d)
{
    const bt_model_config_t *const c = ld->config;
    const size_t rows =
        (c->max_rows > c->max_logit_rows) ? c->max_rows : c->max_logit_rows;
    bt_lora_pass_t *pass;

    if ((c->max_lora_rank == 0) || (d->head != NULL)) {
        return;
    }
    check_model(ld);
    pass = bt_calloc(1, sizeof(*pass));
    d->lora = pass;
    if (pass == NULL) {
        bt_loader_fail(ld, BT_ERR_NO_MEMORY, "out of memory");
        return;
    }
    pass->max_rank = (uint32_t)bt_lora_lanes(c->max_lora_rank);
    bt_loader_buffer(ld, rows, pass->max_rank, &pass->down);
    ld->host_bytes += rows * (2 * sizeof(*pass->spans) + sizeof(*pass->groups));
    if (ld->dry) {
        return;
    }
    pass->spans = bt_calloc(rows, sizeof(*pass->spans));
    pass->last = bt_calloc(rows, sizeof(*pass->last));
    pass->groups = bt_calloc(rows, sizeof(*pass->groups));
    if ((pass->spans == NULL) || (pass->last == NULL) ||
        (pass->groups == NULL)) {
        bt_loader_fail(ld, BT_ERR_NO_MEMORY, "out of memory");
    }
}

void bt_lora_pass_free(bt_backend_t *be, bt_decoder_t *d)
{
    bt_lora_pass_t *const pass = d->lora;

    if (pass == NULL) {
        return;
    }
    bt_model_buffer_free(be, pass->down);
    bt_free(pass->spans);
    bt_free(pass->last);
    bt_free(pass->groups);
    bt_free(pass);
}

/* ---- the current rows ---- */

/* Appends rows, to the last span where it is of the same adapter. */
static void add_rows(bt_lora_span_t *spans, uint32_t *n, const bt_lora_t *lora,
                     uint32_t row, uint32_t n_rows)
{
    bt_lora_span_t *const last = (*n > 0) ? &spans[*n - 1] : NULL;

    if ((last != NULL) && (last->lora == lora) &&
        (last->row + last->n_rows == row)) {
        last->n_rows += n_rows;
    } else {
        spans[(*n)++] =
            (bt_lora_span_t){.lora = lora, .row = row, .n_rows = n_rows};
    }
}

static void take(bt_model_t *model, const bt_forward_t *fwd, uint32_t first_seq,
                 const bt_ragged_seq_t *seqs, uint32_t n_seqs,
                 bt_lora_span_t *spans)
{
    const bt_decoder_t *const d = model->state;
    uint32_t n = 0;

    for (uint32_t i = 0; i < n_seqs; i++) {
        const bt_lora_t *const lora = fwd->loras[first_seq + i];

        if (lora != NULL) {
            add_rows(spans, &n, lora, seqs[i].row, seqs[i].n_rows);
        }
    }
    d->lora->at = spans;
    d->lora->n = n;
}

void bt_lora_rows_of(bt_model_t *model, const bt_forward_t *fwd)
{
    const bt_decoder_t *const d = model->state;

    if ((d->lora != NULL) && (fwd->loras != NULL)) {
        take(model, fwd, 0, fwd->seqs, fwd->n_seqs,
             d->lora->spans + fwd->first_row);
    } else if (d->lora != NULL) {
        d->lora->n = 0;
    }
}

void bt_lora_rows_late(bt_model_t *model, const bt_forward_t *fwd,
                       const bt_model_late_t *late)
{
    const bt_decoder_t *const d = model->state;
    const uint32_t n = late->batch.n_seqs;

    if ((d->lora != NULL) && (fwd->loras != NULL)) {
        take(model, fwd, fwd->n_seqs - n, late->batch.seqs, n,
             d->lora->spans + fwd->first_row + late->row);
    }
}

/* Returns the adapter of a current row; NULL: none. */
static const bt_lora_t *lora_of(const bt_lora_pass_t *pass, uint32_t row,
                                uint32_t *hint)
{
    for (uint32_t i = 0; i < pass->n; i++) {
        const uint32_t k = (*hint + i) % pass->n;
        const bt_lora_span_t *const span = &pass->at[k];

        if ((row >= span->row) && (row - span->row < span->n_rows)) {
            *hint = k;
            return span->lora;
        }
    }
    return NULL;
}

void bt_lora_rows_last(bt_model_t *model, const bt_batch_t *batch)
{
    const bt_decoder_t *const d = model->state;
    bt_lora_pass_t *const pass = d->lora;
    uint32_t hint = 0;
    uint32_t n = 0;

    if (!bt_lora_any(model)) {
        return;
    }
    for (uint32_t i = 0; i < batch->n_logit_rows; i++) {
        const bt_lora_t *const lora =
            lora_of(pass, batch->logit_rows[i], &hint);

        if (lora != NULL) {
            add_rows(pass->last, &n, lora, i, 1);
        }
    }
    pass->at = pass->last;
    pass->n = n;
}

void bt_lora_layer(bt_model_t *model, uint32_t layer)
{
    const bt_decoder_t *const d = model->state;

    if (d->lora != NULL) {
        d->lora->layer = layer;
    }
}

bool bt_lora_any(const bt_model_t *model)
{
    const bt_decoder_t *const d = model->state;

    return (d->lora != NULL) && (d->lora->n > 0);
}

/* ---- products ---- */

static void add_product(bt_model_t *model, bt_adapter_product_t product,
                        const float *in, float *y)
{
    const bt_decoder_t *const d = model->state;
    bt_lora_pass_t *const pass = d->lora;
    const outputs_t o = outputs_of(model, product);
    bt_lora_step_t step = {
        .groups = pass->groups,
        .x = in,
        .n_in = o.n_in,
        .down = pass->down,
        .max_rank = pass->max_rank,
        .y = y,
        .row_floats = o.row_floats,
        .at = o.at,
        .n_out = o.n_out,
    };

    for (uint32_t i = 0; i < pass->n; i++) {
        const bt_lora_span_t *const span = &pass->at[i];
        const lora_matrices_t *const m =
            &span->lora->matrices[(size_t)pass->layer * BT_ADAPTER_N_PRODUCTS +
                                  product];

        if (m->a != NULL) {
            pass->groups[step.n_groups++] = (bt_lora_rows_t){
                .a = m->a,
                .b = m->b,
                .type = m->type,
                .rank = m->rank,
                .scale = m->scale,
                .row = span->row,
                .n_rows = span->n_rows,
            };
        }
    }
    if (step.n_groups > 0) {
        model->be->ops->lora(model->be, &step);
    }
}

void bt_lora_add(bt_model_t *model, bt_adapter_product_t first, uint32_t n,
                 const float *in, float *y)
{
    for (uint32_t i = 0; bt_lora_any(model) && (i < n); i++) {
        add_product(model, (bt_adapter_product_t)(first + i), in, y);
    }
}

void bt_lora_norm_linear(bt_model_t *model, const bt_linear_t *linear,
                         bt_adapter_product_t first, uint32_t n, const float *x,
                         const bt_norm_t *norm, uint32_t n_rows,
                         const bt_weight_t *next, float *tmp, float *out)
{
    const bt_decoder_t *const d = model->state;
    const bt_norm_t nothing = {0};

    if (!bt_lora_any(model)) {
        bt_step_norm_linear(model->be, linear, d->part, x, norm, n_rows, next,
                            tmp, out);
        return;
    }
    if (norm->weight != NULL) {
        bt_step_norm(model->be, x, norm, n_rows, tmp);
        x = tmp;
    }
    bt_step_norm_linear(model->be, linear, d->part, x, &nothing, n_rows, next,
                        tmp, out);
    bt_lora_add(model, first, n, x, out);
}
