/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/shard.h"

#include <stdio.h>

bt_share_t bt_share_of(uint32_t n, uint32_t unit, uint32_t rank, uint32_t size)
{
    const uint64_t n_units = n / unit;
    const uint64_t from = n_units * rank / size;
    const uint64_t to = n_units * (rank + 1) / size;

    return (bt_share_t){.first = (uint32_t)from * unit,
                        .n = (uint32_t)(to - from) * unit};
}

bt_status_t bt_shard_of(const bt_hparams_t *hp, uint32_t ffn_unit,
                        uint32_t rank, uint32_t size, char *why,
                        size_t why_bytes, bt_shard_t *shard_p)
{
    const uint32_t queries = hp->n_heads / hp->n_kv_heads;
    bt_shard_t shard = {.rank = rank, .size = size};

    if (size > hp->n_kv_heads) {
        snprintf(why, why_bytes,
                 "tensor parallelism over %u ranks: the model has %u KV heads, "
                 "and each rank needs one",
                 size, hp->n_kv_heads);
        return BT_ERR_UNSUPPORTED;
    }
    if (size > hp->ffn_dim / ffn_unit) {
        snprintf(why, why_bytes,
                 "tensor parallelism over %u ranks: the feed-forward's %u "
                 "columns are %u blocks of the matrix's type",
                 size, hp->ffn_dim, hp->ffn_dim / ffn_unit);
        return BT_ERR_UNSUPPORTED;
    }
    shard.kv_heads = bt_share_of(hp->n_kv_heads, 1, rank, size);
    shard.heads = (bt_share_t){.first = shard.kv_heads.first * queries,
                               .n = shard.kv_heads.n * queries};
    shard.ffn = bt_share_of(hp->ffn_dim, ffn_unit, rank, size);
    shard.words = bt_share_of(hp->n_vocab, 1, rank, size);
    *shard_p = shard;
    return BT_OK;
}

bt_hparams_t bt_shard_hparams(const bt_hparams_t *hp, const bt_shard_t *shard)
{
    bt_hparams_t own = *hp;

    own.n_heads = shard->heads.n;
    own.n_kv_heads = shard->kv_heads.n;
    own.ffn_dim = shard->ffn.n;
    own.n_vocab = shard->words.n;
    return own;
}
