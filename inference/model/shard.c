/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/shard.h"

#include <stdio.h>

#include "common/base/status.h"
#include "common/coll/coll_shm.h"
#include "inference/model/model_priv.h"

#define MAX_EP BT_EXPERT_LEAVES

/* Options of the number of groups, of a worker and of baton serve. */
#define EP_OPTIONS "--ep, --prefill-ep, --decode-ep"

bt_share_t bt_share_of(uint32_t n, uint32_t unit, uint32_t rank, uint32_t size)
{
    const uint64_t n_units = n / unit;
    const uint64_t from = n_units * rank / size;
    const uint64_t to = n_units * (rank + 1) / size;

    return (bt_share_t){.first = (uint32_t)from * unit,
                        .n = (uint32_t)(to - from) * unit};
}

/* True when all rows of some layer go through a feed-forward of ffn_dim. */
static bool has_dense(const bt_hparams_t *hp)
{
    return (hp->experts.n == 0) || (hp->experts.n_dense > 0);
}

/* Checks that the model can be split into this many parts. */
static bt_status_t check_parts(const bt_hparams_t *hp, uint32_t n_parts,
                               const bt_shard_sums_t *sums, uint32_t size,
                               char *why, size_t why_bytes)
{
    const uint32_t shared_dim = hp->experts.shared_dim;

    if (n_parts > hp->n_kv_heads) {
        snprintf(why, why_bytes,
                 "tensor parallelism over %u ranks: the model has %u KV heads, "
                 "and each rank needs one",
                 n_parts, hp->n_kv_heads);
        return BT_ERR_UNSUPPORTED;
    }
    if (has_dense(hp) && (n_parts > hp->ffn_dim / sums->ffn_unit)) {
        snprintf(why, why_bytes,
                 "tensor parallelism over %u ranks: the feed-forward's %u "
                 "columns are %u blocks of the matrix's type",
                 n_parts, hp->ffn_dim, hp->ffn_dim / sums->ffn_unit);
        return BT_ERR_UNSUPPORTED;
    }
    if ((shared_dim > 0) && (n_parts > shared_dim / sums->shared_unit)) {
        snprintf(why, why_bytes,
                 "tensor parallelism over %u ranks: the shared expert's %u "
                 "columns are %u blocks of the matrix's type",
                 n_parts, shared_dim, shared_dim / sums->shared_unit);
        return BT_ERR_UNSUPPORTED;
    }
    if ((n_parts > BT_MAX_SUM_PARTS) || !bt_coll_tree_divides(n_parts, size)) {
        snprintf(
            why, why_bytes,
            "sums of %u parts (--reduction-parts) cannot be divided among %u "
            "ranks",
            n_parts, size);
        return BT_ERR_UNSUPPORTED;
    }
    return BT_OK;
}

/* Checks that the experts can be dealt to ep groups of the stage's ranks. */
static bt_status_t check_ep(const bt_hparams_t *hp, uint32_t ep, uint32_t size,
                            char *why, size_t why_bytes)
{
    if ((ep == 0) || (ep > MAX_EP) || ((ep & (ep - 1)) != 0) ||
        (size % ep != 0) || !bt_coll_tree_divides(size, size / ep)) {
        snprintf(why, why_bytes,
                 "expert parallelism in %u groups (" EP_OPTIONS
                 "): their number is 1, 2, 4, 8 or 16, and divides the %u "
                 "ranks (--tp) in halves",
                 ep, size);
        return BT_ERR_INVALID_PARAM;
    }
    if ((ep > 1) && (hp->experts.n == 0)) {
        snprintf(why, why_bytes,
                 "expert parallelism in %u groups (" EP_OPTIONS
                 "): the model has no experts",
                 ep);
        return BT_ERR_UNSUPPORTED;
    }
    if ((ep > 1) && (ep > hp->experts.n)) {
        snprintf(why, why_bytes,
                 "expert parallelism in %u groups (" EP_OPTIONS
                 "): the model has %u experts, and each rank needs one",
                 ep, hp->experts.n);
        return BT_ERR_UNSUPPORTED;
    }
    return BT_OK;
}

/* Checks that an expert can be split into this many parts over m ranks. */
static bt_status_t check_expert_parts(const bt_hparams_t *hp, uint32_t n_parts,
                                      uint32_t unit, uint32_t m, char *why,
                                      size_t why_bytes)
{
    if (n_parts > hp->experts.dim / unit) {
        snprintf(why, why_bytes,
                 "tensor parallelism of experts in %u parts (--tp / --ep, or "
                 "--moe-reduction-parts): an expert's %u columns are %u blocks "
                 "of %u, which are not cut; use a larger --ep",
                 n_parts, hp->experts.dim, hp->experts.dim / unit, unit);
        return BT_ERR_UNSUPPORTED;
    }
    if ((n_parts > BT_MAX_SUM_PARTS) || (n_parts % m != 0) ||
        !bt_coll_tree_divides(n_parts, n_parts / m)) {
        snprintf(why, why_bytes,
                 "sums of %u parts (--moe-reduction-parts) cannot be divided "
                 "among the %u ranks of an expert (--tp / --ep)",
                 n_parts, m);
        return BT_ERR_UNSUPPORTED;
    }
    return BT_OK;
}

/* Computes the experts of a rank of the stage. */
static bt_status_t shard_experts(const bt_hparams_t *hp,
                                 const bt_shard_sums_t *sums, uint32_t ep,
                                 char *why, size_t why_bytes, bt_shard_t *shard)
{
    bt_expert_shard_t *const own = &shard->experts;
    bt_status_t status = check_ep(hp, ep, shard->size, why, why_bytes);
    uint32_t m, n_parts;

    if ((status != BT_OK) || (hp->experts.n == 0)) {
        return status;
    }
    m = shard->size / ep;
    n_parts = (sums->expert_parts == 0) ? m : sums->expert_parts;
    status =
        check_expert_parts(hp, n_parts, sums->expert_unit, m, why, why_bytes);
    if (status != BT_OK) {
        return status;
    }
    own->ep = ep;
    own->n_leaves = BT_EXPERT_LEAVES / ep;
    own->first_leaf = shard->rank % ep * own->n_leaves;
    own->experts = bt_share_of(hp->experts.n, 1, shard->rank % ep, ep);
    own->n_parts = n_parts / m;
    for (uint32_t i = 0; i < own->n_parts; i++) {
        own->part_dim[i] = bt_share_of(hp->experts.dim, sums->expert_unit,
                                       i * m + shard->rank / ep, n_parts);
    }
    return BT_OK;
}

/* Returns the range of contiguous parts. */
static bt_share_t together(const bt_share_t *parts, uint32_t n)
{
    const bt_share_t *last = &parts[n - 1];

    return (bt_share_t){.first = parts[0].first,
                        .n = last->first + last->n - parts[0].first};
}

/* Checks that its layers can be split into stages. */
static bt_status_t check_stages(const bt_hparams_t *hp,
                                const bt_shard_position_t *position, char *why,
                                size_t why_bytes)
{
    if (position->n_stages > hp->n_layers) {
        snprintf(why, why_bytes,
                 "pipeline parallelism over %u stages: the model has %u "
                 "layers, and each stage needs one",
                 position->n_stages, hp->n_layers);
        return BT_ERR_UNSUPPORTED;
    }
    if ((position->n_stages == 0) ||
        (position->size % position->n_stages != 0)) {
        snprintf(why, why_bytes, "%u ranks are no %u stages of as many each",
                 position->size, position->n_stages);
        return BT_ERR_INVALID_PARAM;
    }
    return BT_OK;
}

bt_status_t bt_shard_of(const bt_hparams_t *hp, const bt_shard_sums_t *sums,
                        const bt_shard_position_t *position, char *why,
                        size_t why_bytes, bt_shard_t *shard_p)
{
    const uint32_t queries = hp->n_heads / hp->n_kv_heads;
    bt_status_t status = check_stages(hp, position, why, why_bytes);
    bt_shard_t shard = {.n_stages = position->n_stages};
    uint32_t size, rank, n_parts;

    if (status != BT_OK) {
        return status;
    }
    shard.size = size = position->size / position->n_stages;
    shard.rank = rank = position->rank % size;
    shard.stage = position->rank / size;
    shard.layers = bt_share_of(hp->n_layers, 1, shard.stage, shard.n_stages);
    n_parts = (sums->parts == 0) ? size : sums->parts;
    shard.n_parts = n_parts / size;
    status = check_parts(hp, n_parts, sums, size, why, why_bytes);
    if (status == BT_OK) {
        status = shard_experts(hp, sums, (position->ep == 0) ? 1 : position->ep,
                               why, why_bytes, &shard);
    }
    if (status != BT_OK) {
        return status;
    }
    for (uint32_t i = 0; i < shard.n_parts; i++) {
        const uint32_t part = rank * shard.n_parts + i;
        const bt_share_t kv = bt_share_of(hp->n_kv_heads, 1, part, n_parts);

        shard.part_heads[i] =
            (bt_share_t){.first = kv.first * queries, .n = kv.n * queries};
        shard.part_ffn[i] =
            bt_share_of(hp->ffn_dim, sums->ffn_unit, part, n_parts);
        shard.part_shared[i] = bt_share_of(hp->experts.shared_dim,
                                           sums->shared_unit, part, n_parts);
    }
    shard.kv_heads = bt_share_of(hp->n_kv_heads, 1, rank, size);
    shard.heads = together(shard.part_heads, shard.n_parts);
    shard.ffn = together(shard.part_ffn, shard.n_parts);
    shard.shared = together(shard.part_shared, shard.n_parts);
    shard.words = bt_share_of(hp->n_vocab, 1, rank, size);
    *shard_p = shard;
    return BT_OK;
}

/* Renumbers the layers of a set to those of the stage. */
static bt_layer_set_t own_layers(const bt_layer_set_t *set, bt_share_t layers)
{
    bt_layer_set_t own = {0};

    for (uint32_t i = 0; i < layers.n; i++) {
        if (bt_layer_in(set, layers.first + i)) {
            bt_layer_add(&own, i);
        }
    }
    return own;
}

bt_hparams_t bt_shard_hparams(const bt_hparams_t *hp, const bt_shard_t *shard)
{
    bt_hparams_t own = *hp;

    own.n_heads = shard->heads.n;
    own.n_kv_heads = shard->kv_heads.n;
    own.ffn_dim = shard->ffn.n;
    own.experts.shared_dim = shard->shared.n;
    own.n_vocab = shard->words.n;
    own.n_layers = shard->layers.n;
    own.windowed = own_layers(&hp->windowed, shard->layers);
    own.turned = own_layers(&hp->turned, shard->layers);
    own.sparse = own_layers(&hp->sparse, shard->layers);
    return own;
}

void bt_model_weight_free(bt_backend_t *be, bt_weight_t *weight)
{
    if (weight != NULL) {
        be->ops->weight_free(be, weight);
    }
}

void bt_model_buffer_free(bt_backend_t *be, void *ptr)
{
    if (ptr != NULL) {
        be->ops->buffer_free(be, ptr);
    }
}

void bt_linear_free(bt_backend_t *be, bt_linear_t *linear)
{
    for (uint32_t i = 0; i < BT_MAX_PARTS; i++) {
        bt_model_weight_free(be, linear->weights[i]);
    }
}

void bt_step_ahead(bt_backend_t *be, const bt_weight_t *w)
{
    if (be->ops->ahead != NULL) {
        be->ops->ahead(be, w);
    }
}

/* Computes each part as a matrix of its own (n_rows, n_out[i]), then places it
 * beside the previous ones. */
static void run_parts(bt_backend_t *be, const bt_linear_t *linear, float *part,
                      const float *x, uint32_t n_rows, const bt_weight_t *next,
                      float *out)
{
    uint32_t width = 0;
    uint32_t at = 0;

    BT_ASSERT(part != NULL);
    for (uint32_t i = 0; i < linear->n_parts; i++) {
        width += linear->n_out[i];
    }
    for (uint32_t i = 0; i < linear->n_parts; i++) {
        bt_step_ahead(be, (i + 1 < linear->n_parts) ? linear->weights[i + 1]
                                                    : next);
        be->ops->matmul(be, linear->weights[i], x, n_rows, part);
        be->ops->copy_columns(be, part, n_rows, linear->n_out[i], out, width,
                              at);
        at += linear->n_out[i];
    }
}

void bt_step_norm(bt_backend_t *be, const float *x, const bt_norm_t *norm,
                  uint32_t n_rows, float *out)
{
    if (norm->layer) {
        be->ops->layer_norm(be, x, norm->weight, norm->bias, norm->eps, n_rows,
                            norm->dim, out);
    } else {
        be->ops->rmsnorm(be, x, norm->weight, norm->eps, n_rows, norm->dim,
                         out);
    }
}

void bt_step_norm_matmul(bt_backend_t *be, const bt_weight_t *w, const float *x,
                         const bt_norm_t *norm, uint32_t n_rows, float *tmp,
                         float *out)
{
    const bt_kernels_ops_t *const ops = be->ops;

    if (norm->weight == NULL) {
        ops->matmul(be, w, x, n_rows, out);
        return;
    }
    if (!norm->layer && (ops->norm_matmul != NULL)) {
        ops->norm_matmul(be, w, x, norm->weight, norm->eps, n_rows, out);
        return;
    }
    bt_step_norm(be, x, norm, n_rows, tmp);
    ops->matmul(be, w, tmp, n_rows, out);
}

/* Computes several parts that share one norm. */
void bt_step_norm_linear(bt_backend_t *be, const bt_linear_t *linear,
                         float *part, const float *x, const bt_norm_t *norm,
                         uint32_t n_rows, const bt_weight_t *next, float *tmp,
                         float *out)
{
    if (linear->n_parts == 1) {
        bt_step_ahead(be, next);
        bt_step_norm_matmul(be, linear->weights[0], x, norm, n_rows, tmp, out);
        return;
    }
    if (norm->weight != NULL) {
        bt_step_norm(be, x, norm, n_rows, tmp);
        x = tmp;
    }
    run_parts(be, linear, part, x, n_rows, next, out);
}

void bt_step_matmul_add(bt_backend_t *be, const bt_weight_t *w, const float *a,
                        uint32_t n_rows, uint32_t n_out, float *tmp, float *x)
{
    const bt_kernels_ops_t *const ops = be->ops;

    if (ops->matmul_add != NULL) {
        ops->matmul_add(be, w, a, n_rows, x);
        return;
    }
    ops->matmul(be, w, a, n_rows, tmp);
    ops->add(be, x, tmp, (size_t)n_rows * n_out);
}

void bt_step_silu_matmul_add(bt_backend_t *be, const bt_weight_t *w,
                             float *gate_up, uint32_t n_rows, uint32_t n_in,
                             uint32_t n_out, float *tmp, float *x)
{
    const bt_kernels_ops_t *const ops = be->ops;

    if (ops->silu_matmul_add != NULL) {
        ops->silu_matmul_add(be, w, gate_up, n_rows, x);
        return;
    }
    ops->activate(be, BT_ACT_SILU, true, gate_up, n_rows, n_in, tmp);
    bt_step_matmul_add(be, w, tmp, n_rows, n_out, gate_up, x);
}
