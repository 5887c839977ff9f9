/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/shard.h"

#include <stdio.h>

#include "common/coll/coll_shm.h"

bt_share_t bt_share_of(uint32_t n, uint32_t unit, uint32_t rank, uint32_t size)
{
    const uint64_t n_units = n / unit;
    const uint64_t from = n_units * rank / size;
    const uint64_t to = n_units * (rank + 1) / size;

    return (bt_share_t){.first = (uint32_t)from * unit,
                        .n = (uint32_t)(to - from) * unit};
}

/* Checks that the model can be split into this many parts. */
static bt_status_t check_parts(const bt_hparams_t *hp, uint32_t n_parts,
                               uint32_t ffn_unit, uint32_t size, char *why,
                               size_t why_bytes)
{
    if (n_parts > hp->n_kv_heads) {
        snprintf(why, why_bytes,
                 "tensor parallelism over %u ranks: the model has %u KV heads, "
                 "and each rank needs one",
                 n_parts, hp->n_kv_heads);
        return BT_ERR_UNSUPPORTED;
    }
    if (n_parts > hp->ffn_dim / ffn_unit) {
        snprintf(why, why_bytes,
                 "tensor parallelism over %u ranks: the feed-forward's %u "
                 "columns are %u blocks of the matrix's type",
                 n_parts, hp->ffn_dim, hp->ffn_dim / ffn_unit);
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

/* Returns the range of contiguous parts. */
static bt_share_t together(const bt_share_t *parts, uint32_t n)
{
    const bt_share_t *last = &parts[n - 1];

    return (bt_share_t){.first = parts[0].first,
                        .n = last->first + last->n - parts[0].first};
}

/* Checks that its layers can be split into stages. */
static bt_status_t check_stages(const bt_hparams_t *hp,
                                const bt_shard_place_t *place, char *why,
                                size_t why_bytes)
{
    if (place->n_stages > hp->n_layers) {
        snprintf(why, why_bytes,
                 "pipeline parallelism over %u stages: the model has %u "
                 "layers, and each stage needs one",
                 place->n_stages, hp->n_layers);
        return BT_ERR_UNSUPPORTED;
    }
    if ((place->n_stages == 0) || (place->size % place->n_stages != 0)) {
        snprintf(why, why_bytes, "%u ranks are no %u stages of as many each",
                 place->size, place->n_stages);
        return BT_ERR_INVALID_PARAM;
    }
    return BT_OK;
}

bt_status_t bt_shard_of(const bt_hparams_t *hp, uint32_t sum_parts,
                        uint32_t ffn_unit, const bt_shard_place_t *place,
                        char *why, size_t why_bytes, bt_shard_t *shard_p)
{
    const uint32_t queries = hp->n_heads / hp->n_kv_heads;
    bt_status_t status = check_stages(hp, place, why, why_bytes);
    bt_shard_t shard = {.n_stages = place->n_stages};
    uint32_t size, rank, n_parts;

    if (status != BT_OK) {
        return status;
    }
    shard.size = size = place->size / place->n_stages;
    shard.rank = rank = place->rank % size;
    shard.stage = place->rank / size;
    shard.layers = bt_share_of(hp->n_layers, 1, shard.stage, shard.n_stages);
    n_parts = (sum_parts == 0) ? size : sum_parts;
    shard.n_parts = n_parts / size;
    status = check_parts(hp, n_parts, ffn_unit, size, why, why_bytes);

    if (status != BT_OK) {
        return status;
    }
    for (uint32_t i = 0; i < shard.n_parts; i++) {
        const uint32_t part = rank * shard.n_parts + i;
        const bt_share_t kv = bt_share_of(hp->n_kv_heads, 1, part, n_parts);

        shard.part_heads[i] =
            (bt_share_t){.first = kv.first * queries, .n = kv.n * queries};
        shard.part_ffn[i] = bt_share_of(hp->ffn_dim, ffn_unit, part, n_parts);
    }
    shard.kv_heads = bt_share_of(hp->n_kv_heads, 1, rank, size);
    shard.heads = together(shard.part_heads, shard.n_parts);
    shard.ffn = together(shard.part_ffn, shard.n_parts);
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
    own.n_vocab = shard->words.n;
    own.n_layers = shard->layers.n;
    own.windowed = own_layers(&hp->windowed, shard->layers);
    own.turned = own_layers(&hp->turned, shard->layers);
    return own;
}
