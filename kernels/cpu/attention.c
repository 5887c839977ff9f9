/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over the paged cache. */
#include <math.h>
#include <string.h>

#include "common/base/status.h"
#include "kernels/cpu/backend.h"
#include "kernels/cpu/cpu.h"

#define PREFETCH_PAIRS 16u
#define ROWS_OF_THREAD 4u
#define ITEMS_SHARE    8u /* pieces that a thread's items are split into */

typedef struct attn_job {
    cpu_backend_t *cpu;
    const bt_attention_t *attention;
    const bt_ragged_seq_t *seqs;
    uint32_t n_seqs;
    const bt_kv_view_t *kv;
    uint32_t layer;
    uint32_t n_heads;
    size_t row_floats; /* of a qkv row */
    const float *q;
    float *out;
    uint32_t pairs_per_item;
} attn_job_t;

/* First query head of KV head @a kv_head: the smallest h with
 * h * n_kv / n_heads >= kv_head. */
static uint32_t first_head(const attn_job_t *job, uint32_t kv_head)
{
    const uint64_t n_kv = job->kv->n_kv_heads;

    return (uint32_t)(((uint64_t)kv_head * job->n_heads + n_kv - 1) / n_kv);
}

/* (row, head) pairs of one sequence and one KV head. Pair p is row p / group,
 * head p % group of the group. */
typedef struct attn_item {
    const bt_ragged_seq_t *seq;
    uint32_t kv_head;
    uint32_t group; /* query heads that read this KV head */
    uint32_t first; /* pair */
    uint32_t n_pairs;
} attn_item_t;

/* Layout of a thread's scratch; see ATTN_SCRATCH_FLOATS. */
typedef struct attn_scratch {
    uint16_t *keys;        /* bt_cpu_isa_t.load_keys */
    uint16_t *values;      /* load_values */
    float *key_scales;     /* (32), for types with scales */
    float *value_scales;   /* (32), for types with scales */
    uint16_t *q;           /* (pairs, dim) in bf16 */
    float *acc;            /* (pairs, dim) */
    const uint8_t **ahead; /* lines to prefetch during the next tile */
    uint32_t n_ahead;
} attn_scratch_t;

/* First position visible from a position. */
static uint32_t first_seen(const attn_job_t *job, uint32_t position)
{
    const uint32_t window = job->attention->window;

    return ((window == 0) || (position < window)) ? 0 : position + 1 - window;
}

/* First position of the tile visible to a pair of the item, relative to the
 * tile, made even as values are stored in pairs: nothing before it may be
 * read. */
static uint32_t seen_from(const attn_job_t *job, const attn_item_t *item,
                          uint32_t at)
{
    const uint32_t first =
        first_seen(job, item->seq->pos + item->first / item->group);

    return (first > at) ? (first - at) / 2 * 2 : 0;
}

/* Positions at .. at + n - 1, limited to the visible ones. */
static void load_tile(const attn_job_t *job, const attn_item_t *item,
                      uint32_t at, uint32_t n, const attn_scratch_t *s)
{
    const bt_cpu_isa_t *isa = job->cpu->isa;
    const uint32_t dim = job->kv->head_dim;
    const uint32_t t = job->kv->tokens_per_block;
    uint32_t i = seen_from(job, item, at);

    while (i < n) {
        const uint32_t left = t - (at + i) % t;
        const uint32_t run = (left > n - i) ? n - i : left;
        const kv_slot_t key =
            kv_slot(job->kv, job->layer, item->seq, 0, item->kv_head, at + i);
        const kv_slot_t value =
            kv_slot(job->kv, job->layer, item->seq, 1, item->kv_head, at + i);

        isa->load_keys(job->kv->type, key.elems, t, i, run, dim, s->keys);
        isa->load_values(job->kv->type, value.elems, i, run, dim, s->values);
        if (bt_cpu_kv_scaled(job->kv->type)) {
            memcpy(s->key_scales + i, key.scale, run * sizeof(float));
            memcpy(s->value_scales + i, value.scale, run * sizeof(float));
        }
        i += run;
    }
}

static void point_at_loaded(const attn_job_t *job, const attn_scratch_t *s,
                            bt_attn_tile_t *tile)
{
    tile->elem = BT_ATTN_LOADED;
    tile->keys[0] = s->keys;
    tile->values[0] = s->values;
    if (bt_cpu_kv_scaled(job->kv->type)) {
        for (uint32_t v = 0; v < 2; v++) {
            tile->key_scales[v] = s->key_scales + 16 * v;
            tile->value_scales[v] = s->value_scales + 16 * v;
        }
    }
}

/* True when few pairs may read the cache in place. A block boundary must not
 * split 16 positions. */
static bool is_direct(const attn_job_t *job, const attn_item_t *item)
{
    return (item->n_pairs <= BT_ATTN_TOGETHER) &&
           (job->kv->tokens_per_block % 16 == 0) &&
           (job->kv->head_dim % 16 == 0) &&
           (job->cpu->isa->direct_kv != NULL) &&
           ((job->cpu->isa->direct_kv() >> job->kv->type & 1u) != 0);
}

static void point_into_cache(const attn_job_t *job, const attn_item_t *item,
                             uint32_t at, uint32_t n, bt_attn_tile_t *tile)
{
    static const bt_attn_elem_t elems[] = {[BT_KV_F16] = BT_ATTN_F16,
                                           [BT_KV_BF16] = BT_ATTN_BF16,
                                           [BT_KV_INT8] = BT_ATTN_I8,
                                           [BT_KV_FP8] = BT_ATTN_E4M3};

    tile->elem = elems[job->kv->type];
    tile->key_stride = job->kv->tokens_per_block;
    for (uint32_t v = 0; v < 2; v++) {
        const uint32_t first = (n > 16) ? at + 16 * v : at;
        const kv_slot_t key =
            kv_slot(job->kv, job->layer, item->seq, 0, item->kv_head, first);
        const kv_slot_t value =
            kv_slot(job->kv, job->layer, item->seq, 1, item->kv_head, first);

        tile->keys[v] = key.elems;
        tile->key_scales[v] = key.scale;
        tile->values[v] = value.elems;
        tile->value_scales[v] = value.scale;
    }
}

/* End of the positions visible to the last pair. */
static uint32_t positions_of(const attn_item_t *item)
{
    return item->seq->pos + (item->first + item->n_pairs - 1) / item->group + 1;
}

/* Tile of the first position visible to the first pair. */
static uint32_t first_tile_of(const attn_job_t *job, const attn_item_t *item)
{
    return first_seen(job, item->seq->pos + item->first / item->group) /
           BT_ATTN_TILE * BT_ATTN_TILE;
}

/* True when a pair's window begins within the tile. The last pair's begins
 * last. */
static bool is_cut(const attn_job_t *job, const attn_item_t *item, uint32_t at)
{
    return first_seen(job, positions_of(item) - 1) > at;
}

/* Cache lines of n adjacent heads of a part that begin at slot, of run
 * positions. @return the number of lines so far */
static uint32_t lines_of_heads(const attn_job_t *job, uint32_t part,
                               kv_slot_t slot, uint32_t n_heads, uint32_t run,
                               const uint8_t **lines, uint32_t n)
{
    const uint32_t dim = job->kv->head_dim;
    const size_t pair = 2 * kv_elem_bytes(job->kv);
    const size_t head = job->kv->tokens_per_block * pair * dim / 2;
    /* A few positions of keys are one piece in each of dim / 2 rows. */
    const size_t across = job->kv->tokens_per_block * pair;
    const bool pieces = (part == 0) && (across > 64);
    const uint32_t n_pieces = pieces ? n_heads * dim / 2 : n_heads;
    const size_t step = pieces ? across : head;
    const size_t bytes = pieces        ? run * pair
                         : (part == 0) ? head
                                       : (run + 1) / 2 * pair * dim;

    for (uint32_t p = 0; p < n_pieces; p++) {
        const uint8_t *at = (const uint8_t *)slot.elems + p * step;

        for (size_t i = 0; (i < bytes) && (n < BT_ATTN_AHEAD); i += 64) {
            lines[n++] = at + i;
        }
    }
    return n;
}

/* A decoding sequence has little to compute on a tile, and its blocks are
 * scattered: without prefetch the core would wait for each of them. @return
 * lines of the tile of position, from position on, of n_heads KV heads from the
 * item's on; 0 where there is enough to compute */
static uint32_t lines_of_tile(const attn_job_t *job, const attn_item_t *item,
                              uint32_t n_heads, uint32_t position,
                              const uint8_t **lines)
{
    const uint32_t n_positions = positions_of(item);
    const uint32_t left_in_tile = BT_ATTN_TILE - position % BT_ATTN_TILE;
    const uint32_t end = (n_positions - position > left_in_tile)
                             ? position + left_in_tile
                             : n_positions;
    const uint32_t t = job->kv->tokens_per_block;
    uint32_t n = 0;

    if (item->n_pairs > PREFETCH_PAIRS) {
        return 0;
    }
    while (position < end) {
        const uint32_t left = t - position % t;
        const uint32_t run = (left > end - position) ? end - position : left;

        for (uint32_t part = 0; part < 2; part++) {
            n = lines_of_heads(job, part,
                               kv_slot(job->kv, job->layer, item->seq, part,
                                       item->kv_head, position),
                               n_heads, run, lines, n);
        }
        position += run;
    }
    return n;
}

static void store_pairs(const attn_job_t *job, const attn_item_t *item,
                        const bt_attn_state_t *states, const float *acc)
{
    const uint32_t dim = job->kv->head_dim;
    const uint32_t head0 = first_head(job, item->kv_head);

    for (uint32_t i = 0; i < item->n_pairs; i++) {
        size_t row = item->seq->row + (item->first + i) / item->group;
        uint32_t head = head0 + (item->first + i) % item->group;
        float *out = job->out + (row * job->n_heads + head) * dim;
        float factor = 1.0f / states[i].sum;

        for (uint32_t d = 0; d < dim; d++) {
            out[d] = acc[(size_t)i * dim + d] * factor;
        }
    }
}

/* Query head and row of pair i of the item. */
static const float *query_of(const attn_job_t *job, const attn_item_t *item,
                             uint32_t i)
{
    const size_t row = item->seq->row + (item->first + i) / item->group;
    const uint32_t head =
        first_head(job, item->kv_head) + (item->first + i) % item->group;

    return job->q + row * job->row_floats + (size_t)head * job->kv->head_dim;
}

/* Processes all pairs of the item with positions at .. at + n_tile - 1. */
static void attend_tile(const attn_job_t *job, const attn_item_t *item,
                        const attn_scratch_t *s, bt_attn_state_t *states,
                        uint32_t at, uint32_t n_tile)
{
    const uint32_t dim = job->kv->head_dim;
    const bt_attention_t *attention = job->attention;
    bt_attn_tile_t tile = {.dim = dim,
                           .scale = attention->scale,
                           .soft_cap = attention->soft_cap,
                           .sloped = attention->slopes != NULL,
                           .cut = is_cut(job, item, at),
                           .ahead = s->ahead,
                           .n_ahead = s->n_ahead};

    if (attention->soft_cap > 0.0f) {
        tile.cap_factor = 2.0f / attention->soft_cap;
    }
    if (is_direct(job, item) && !tile.cut) {
        point_into_cache(job, item, at, n_tile, &tile);
    } else {
        load_tile(job, item, at, n_tile, s);
        point_at_loaded(job, s, &tile);
    }
    for (uint32_t i = 0; i < item->n_pairs; i++) {
        const uint32_t end =
            item->seq->pos + (item->first + i) / item->group + 1;
        const uint32_t first = first_seen(job, end - 1);

        /* Pairs that see nothing of it come before or after the others. */
        if ((end > at) && (first < at + n_tile)) {
            if (tile.n_pairs == 0) {
                tile.q = s->q + (size_t)i * dim;
                tile.state = &states[i];
                tile.acc = s->acc + (size_t)i * dim;
            }
            if (tile.sloped) {
                tile.slope[tile.n_pairs] =
                    attention->slopes[first_head(job, item->kv_head) +
                                      (item->first + i) % item->group];
                tile.before[tile.n_pairs] = (float)at - (float)(end - 1);
            }
            tile.from[tile.n_pairs] = (first > at) ? first - at : 0;
            tile.n[tile.n_pairs++] = (end - at < n_tile) ? end - at : n_tile;
        }
        if ((tile.n_pairs == BT_ATTN_TOGETHER) ||
            ((tile.n_pairs > 0) && (i + 1 == item->n_pairs))) {
            job->cpu->isa->attn_tile(&tile);
            tile.n_pairs = 0;
            tile.n_ahead = 0;
        }
    }
}

/* Initial state: empty, or the sink of the pair's head. */
static bt_attn_state_t first_state(const attn_job_t *job,
                                   const attn_item_t *item, uint32_t i)
{
    const float *sinks = job->attention->sinks;
    bt_attn_state_t state = {.max = -INFINITY};

    if (sinks != NULL) {
        state.max = sinks[first_head(job, item->kv_head) +
                          (item->first + i) % item->group];
        state.sum = 1.0f;
    }
    return state;
}

static attn_scratch_t scratch_of(float *scratch, uint32_t dim)
{
    const size_t tile_floats = (size_t)BT_ATTN_TILE * dim / 2;
    attn_scratch_t s = {.acc = scratch};

    scratch += (size_t)BT_ATTN_PAIRS * dim;
    s.key_scales = scratch;
    s.value_scales = scratch + BT_ATTN_TILE;
    scratch += (size_t)2 * BT_ATTN_TILE;
    s.keys = (uint16_t *)(void *)scratch;
    s.values = (uint16_t *)(void *)(scratch + tile_floats);
    s.q = (uint16_t *)(void *)(scratch + 2 * tile_floats);
    return s;
}

/* Processes n items of one sequence with adjacent KV heads, tile by tile: the
 * data they read of a block is adjacent. @a next: the first of as many items
 * that follow, or NULL. */
static void attend(const attn_job_t *job, const attn_item_t *items, uint32_t n,
                   const attn_item_t *next, float *scratch)
{
    const uint32_t dim = job->kv->head_dim;
    const uint32_t n_positions = positions_of(&items[0]);
    const attn_scratch_t all = scratch_of(scratch, dim);
    const uint8_t *lines[BT_ATTN_AHEAD];
    bt_attn_state_t states[BT_ATTN_PAIRS];
    uint32_t first = 0; /* pair of an item, among all */

    for (uint32_t h = 0; h < n; h++) {
        for (uint32_t i = 0; i < items[h].n_pairs; i++) {
            states[first] = first_state(job, &items[h], i);
            job->cpu->isa->to_bf16(query_of(job, &items[h], i), dim,
                                   all.q + (size_t)first * dim);
            first++;
        }
    }
    memset(all.acc, 0, (size_t)first * dim * sizeof(float));
    for (uint32_t at = first_tile_of(job, &items[0]); at < n_positions;
         at += BT_ATTN_TILE) {
        const uint32_t left = n_positions - at;
        uint32_t n_lines = 0;

        if (left > BT_ATTN_TILE) {
            n_lines =
                lines_of_tile(job, &items[0], n, at + BT_ATTN_TILE, lines);
        } else if (next != NULL) {
            const uint32_t tile = first_tile_of(job, next);

            n_lines = lines_of_tile(job, next, n,
                                    tile + seen_from(job, next, tile), lines);
        }
        first = 0;
        for (uint32_t h = 0; h < n; h++) {
            attn_scratch_t s = all;

            s.q += (size_t)first * dim;
            s.acc += (size_t)first * dim;
            s.ahead = lines + n_lines * h / n;
            s.n_ahead = n_lines * (h + 1) / n - n_lines * h / n;
            attend_tile(job, &items[h], &s, states + first, at,
                        (left > BT_ATTN_TILE) ? BT_ATTN_TILE : left);
            first += items[h].n_pairs;
        }
    }
    first = 0;
    for (uint32_t h = 0; h < n; h++) {
        store_pairs(job, &items[h], states + first,
                    all.acc + (size_t)first * dim);
        first += items[h].n_pairs;
    }
}

/* Number of pairs of one row that read a KV head. */
static attn_item_t item_of_head(const attn_job_t *job,
                                const bt_ragged_seq_t *seq, uint32_t kv_head)
{
    const uint32_t group =
        first_head(job, kv_head + 1) - first_head(job, kv_head);

    return (attn_item_t){
        .seq = seq, .kv_head = kv_head, .group = group, .n_pairs = group};
}

/* An item is the one row of a sequence, all its heads. */
static void attn_rows(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    const attn_job_t *job = ctx;
    const uint32_t n_kv = job->kv->n_kv_heads;
    float *scratch = bt_cpu_scratch_row(&job->cpu->attn, thread);
    attn_item_t items[BT_ATTN_PAIRS];

    for (uint32_t h = 0; h < n_kv; h++) {
        items[h] = item_of_head(job, &job->seqs[begin], h);
    }
    for (uint32_t i = begin; i < end; i++) {
        attn_item_t next = items[0];

        for (uint32_t h = 0; h < n_kv; h++) {
            items[h].seq = &job->seqs[i];
        }
        next.seq = &job->seqs[i] + 1;
        attend(job, items, n_kv, (i + 1 < end) ? &next : NULL, scratch);
    }
}

/* True when each sequence has one row, and there are enough of them for all
 * threads. */
static bool are_rows(const attn_job_t *job, uint32_t n_threads)
{
    bool ok = (job->n_heads <= BT_ATTN_PAIRS) &&
              (job->n_seqs >= n_threads * ROWS_OF_THREAD);

    for (uint32_t s = 0; ok && (s < job->n_seqs); s++) {
        ok = job->seqs[s].n_rows == 1;
    }
    return ok;
}

static uint32_t items_of_pairs(const attn_job_t *job, uint64_t n_pairs)
{
    return (uint32_t)((n_pairs + job->pairs_per_item - 1) /
                      job->pairs_per_item);
}

static uint32_t count_items(const attn_job_t *job)
{
    uint32_t n = 0;

    for (uint32_t h = 0; h < job->kv->n_kv_heads; h++) {
        uint64_t group = first_head(job, h + 1) - first_head(job, h);

        for (uint32_t s = 0; s < job->n_seqs; s++) {
            n += items_of_pairs(job, job->seqs[s].n_rows * group);
        }
    }
    return n;
}

static attn_item_t find_item(const attn_job_t *job, uint32_t index)
{
    attn_item_t item = {0};

    for (uint32_t s = 0; s < job->n_seqs; s++) {
        item.seq = &job->seqs[s];
        for (item.kv_head = 0; item.kv_head < job->kv->n_kv_heads;
             item.kv_head++) {
            uint32_t n_pairs;
            uint32_t n;

            item.group = first_head(job, item.kv_head + 1) -
                         first_head(job, item.kv_head);
            n_pairs = item.seq->n_rows * item.group;
            n = items_of_pairs(job, n_pairs);
            if (index < n) {
                /* The last rows see the most positions: begin with them. */
                item.first = (n - 1 - index) * job->pairs_per_item;
                item.n_pairs = n_pairs - item.first;
                if (item.n_pairs > job->pairs_per_item) {
                    item.n_pairs = job->pairs_per_item;
                }
                return item;
            }
            index -= n;
        }
    }
    BT_ASSERT_ALWAYS(false);
}

static void attn_items(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    const attn_job_t *job = ctx;
    float *scratch = bt_cpu_scratch_row(&job->cpu->attn, thread);

    attn_item_t item = find_item(job, begin);

    for (uint32_t i = begin; i < end; i++) {
        attn_item_t next = {0};

        if (i + 1 < end) {
            next = find_item(job, i + 1);
        }
        attend(job, &item, 1, (i + 1 < end) ? &next : NULL, scratch);
        item = next;
    }
}

void bt_cpu_attention(bt_backend_t *be, const bt_attention_t *attention,
                      const float *qkv, const bt_batch_t *batch,
                      const bt_kv_view_t *kv, uint32_t layer, float *out)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    const uint32_t n_threads = bt_cpu_pool_slots(cpu->pool);
    attn_job_t job = {
        .cpu = cpu,
        .attention = attention,
        .seqs = batch->seqs,
        .n_seqs = batch->n_seqs,
        .kv = kv,
        .layer = layer,
        .n_heads = attention->n_heads,
        .row_floats =
            ((size_t)attention->n_heads + 2 * kv->n_kv_heads) * kv->head_dim,
        .q = qkv,
        .out = out,
        .pairs_per_item = BT_ATTN_PAIRS,
    };
    uint64_t positions = 0;
    uint32_t n_items;
    uint32_t grain;

    kv_check_view(be, kv);
    BT_ASSERT((attention->key_dim == kv->head_dim) &&
              (attention->value_dim == kv->head_dim));
    if (are_rows(&job, n_threads)) {
        /* Two: the first prefetches the second's tile, and no thread waits long
         * for the last item of another. */
        bt_cpu_pool_run_lent(cpu->pool, job.n_seqs, 2, attn_rows, &job);
        return;
    }
    for (uint32_t s = 0; s < job.n_seqs; s++) {
        positions += job.seqs[s].n_rows * ((uint64_t)job.seqs[s].pos + 1);
    }
    n_items = count_items(&job);
    while ((n_threads > 1) && (n_items < 2 * n_threads) &&
           (job.pairs_per_item > 1)) {
        job.pairs_per_item = (job.pairs_per_item + 1) / 2;
        n_items = count_items(&job);
    }
    /* A short context is computed faster than a helper is woken. A thread gets
     * several consecutive items, so that each can prefetch for the next one. */
    grain = n_items / (n_threads * ITEMS_SHARE);
    grain = (grain == 0) ? 1 : grain;
    bt_cpu_pool_run_lent(cpu->pool, n_items,
                         (positions * job.row_floats < 16384) ? n_items : grain,
                         attn_items, &job);
}
