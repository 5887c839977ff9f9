/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/_ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/kv/kv_groups.h"

void bt_ops_obey(bt_ops_run_t *r, const bt_ops_command_t *commands, size_t n,
                 const char *const *words)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(words[0], commands[i].name) == 0) {
            commands[i].run(r, words);
            return;
        }
    }
    bt_half_die(BT_OK, "no command %s here", words[0]);
}

float *bt_ops_floats(bt_ops_run_t *r, size_t n)
{
    const bt_kernels_ops_t *const ops = r->be->ops;
    float *host = bt_half_zeros(n, sizeof(*host));
    void *ptr = NULL;

    for (size_t i = 0; i < n; i++) {
        host[i] = (float)bt_half_random(&r->random, 4096) / 1024.0f - 2.0f;
    }
    bt_half_must(ops->buffer_alloc(r->be, n * sizeof(*host), &ptr), "memory");
    bt_half_must(ops->copy_in(r->be, ptr, host, n * sizeof(*host)), "a copy");
    bt_free(host);
    return ptr;
}

void bt_ops_measure(bt_ops_run_t *r, size_t n_x, size_t n_out,
                    bt_ops_call_t call, const char *const *words)
{
    r->x = bt_ops_floats(r, n_x);
    r->out = bt_ops_floats(r, n_out);
    r->measure(r, call, words);
    r->be->ops->buffer_free(r->be, r->x);
    r->be->ops->buffer_free(r->be, r->out);
}

/* ---- matmul ---- */

static void free_weights(bt_ops_run_t *r)
{
    for (uint32_t i = 0; i < r->n_copies; i++) {
        r->be->ops->weight_free(r->be, r->weights[i]);
    }
    r->n_copies = 0;
}

static uint32_t type_named(const char *name)
{
    uint32_t n_elems;
    uint32_t n_bytes;

    for (uint32_t type = 0; type < 64; type++) {
        if ((bt_ktype_block(type, &n_elems, &n_bytes) == BT_OK) &&
            (strcmp(bt_ktype_name(type), name) == 0)) {
            return type;
        }
    }
    bt_half_die(BT_OK, "no weight type is called %s", name);
}

/* Bits whose 16- and 32-bit floats are ordinary numbers wherever a block may
 * have one: the second byte of each pair loses its high exponent bit. */
static uint8_t *weight_bits(bt_ops_run_t *r, size_t bytes)
{
    uint8_t *data = bt_half_zeros(bytes, 1);

    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)bt_half_random(&r->random, 256);
        data[i] = (i % 2 == 1) ? (data[i] & 0xbfu) : data[i];
    }
    return data;
}

void bt_ops_weight(bt_ops_run_t *r, const char *const *words)
{
    const uint32_t type = type_named(words[1]);
    const uint32_t n_copies = bt_half_number(words[4], 1, BT_OPS_MAX_COPIES);
    uint32_t n_elems = 1;
    uint32_t n_bytes = 1;
    uint8_t *data;
    size_t bytes;

    free_weights(r);
    bt_half_must(bt_ktype_block(type, &n_elems, &n_bytes), words[1]);
    r->n_out = bt_half_number(words[2], 1, BT_OPS_MAX_COUNT);
    r->n_in = bt_half_number(words[3], 1, BT_OPS_MAX_COUNT);
    bytes = (size_t)r->n_out * r->n_in / n_elems * n_bytes;
    data = weight_bits(r, bytes);
    while (r->n_copies < n_copies) {
        bt_half_must(r->be->ops->weight_pack(r->be, (bt_ktype_t)type, r->n_out,
                                             r->n_in, data,
                                             &r->weights[r->n_copies]),
                     words[1]);
        r->n_copies++;
    }
    bt_free(data);
    printf("{\"bytes\": %zu, \"packed_bytes\": %zu}\n", bytes,
           r->be->ops->weight_bytes((bt_ktype_t)type, r->n_out, r->n_in));
}

static void call_matmul(bt_ops_run_t *r)
{
    r->be->ops->matmul(r->be, r->weights[r->at++ % r->n_copies], r->x,
                       r->n_rows, r->out);
}

void bt_ops_matmul(bt_ops_run_t *r, const char *const *words)
{
    if (r->n_copies == 0) {
        bt_half_die(BT_OK, "a matmul before a weight");
    }
    r->n_rows = bt_half_number(words[1], 1, r->max_rows);
    bt_ops_measure(r, (size_t)r->n_rows * r->n_in, (size_t)r->n_rows * r->n_out,
                   call_matmul, words + 2);
}

/* ---- experts ---- */

static void *zeros_there(bt_ops_run_t *r, size_t n)
{
    void *ptr = NULL;

    bt_half_must(r->be->ops->buffer_alloc(r->be, n * sizeof(uint32_t), &ptr),
                 "memory");
    return ptr;
}

/* Fills what a step of rows knows of its experts, by random scores. */
static void draw_experts(bt_ops_run_t *r, uint32_t n_experts, uint32_t n_used,
                         bt_expert_rows_t *rows)
{
    const size_t n = (size_t)r->n_rows * n_used;
    const bt_routing_t routing = {.n_experts = n_experts, .n_used = n_used};
    float *const z = bt_ops_floats(r, (size_t)r->n_rows * n_experts);

    *rows = (bt_expert_rows_t){
        .n_experts = n_experts,
        .n_used = n_used,
        .ids = zeros_there(r, n),
        .weights = zeros_there(r, n),
        .slots = zeros_there(r, n),
        .first = zeros_there(r, (size_t)n_experts + 1),
        .rows = zeros_there(r, n),
    };
    r->be->ops->route(r->be, &routing, z, r->n_rows, rows);
    r->be->ops->buffer_free(r->be, z);
}

static void free_experts(bt_ops_run_t *r, const bt_expert_rows_t *rows)
{
    r->be->ops->buffer_free(r->be, rows->ids);
    r->be->ops->buffer_free(r->be, rows->weights);
    r->be->ops->buffer_free(r->be, rows->slots);
    r->be->ops->buffer_free(r->be, rows->first);
    r->be->ops->buffer_free(r->be, rows->rows);
}

static void call_experts(bt_ops_run_t *r)
{
    const bt_weight_t *const weight = r->weights[r->at % r->n_copies];

    r->be->ops->matmul_experts(r->be, &weight, 1,
                               &r->draws[r->at++ % BT_OPS_DRAWS], r->n_rows,
                               r->x, true, r->out);
}

void bt_ops_experts(bt_ops_run_t *r, const char *const *words)
{
    const uint32_t n_experts = bt_half_number(words[1], 1, BT_MAX_EXPERTS);
    const uint32_t n_used = bt_half_number(
        words[2], 1,
        (n_experts < BT_MAX_EXPERTS_USED) ? n_experts : BT_MAX_EXPERTS_USED);

    if ((r->n_copies == 0) || (r->n_out % (n_experts * 32) != 0)) {
        bt_half_die(BT_OK, "experts before their matrix");
    }
    r->n_rows = bt_half_number(words[3], 1, r->max_rows);
    for (uint32_t i = 0; i < BT_OPS_DRAWS; i++) {
        draw_experts(r, n_experts, n_used, &r->draws[i]);
    }
    bt_ops_measure(r, (size_t)r->n_rows * r->n_in,
                   (size_t)r->n_rows * n_used * (r->n_out / n_experts),
                   call_experts, words + 4);
    for (uint32_t i = 0; i < BT_OPS_DRAWS; i++) {
        free_experts(r, &r->draws[i]);
    }
}

/* ---- attention ---- */

static void free_kv(bt_ops_run_t *r)
{
    if (r->kv.base != NULL) {
        r->be->ops->buffer_free(r->be, r->kv.base);
    }
    r->kv.base = NULL;
    bt_free(r->seqs);
    bt_free(r->ids);
    bt_free(r->tokens);
    r->seqs = NULL;
    r->ids = NULL;
    r->tokens = NULL;
}

bt_kv_view_t bt_ops_kv_view(bt_backend_t *be, bt_kv_type_t type,
                            uint32_t n_layers, uint32_t n_kv_heads,
                            uint32_t head_dim, uint32_t tokens_per_block,
                            uint32_t n_blocks)
{
    const bt_kv_type_info_t *const info = bt_kv_type_info(type);
    const bt_kv_shape_t shape = {.n_layers = n_layers,
                                 .n_kv_heads = n_kv_heads,
                                 .tokens_per_block = tokens_per_block,
                                 .head_dim = head_dim,
                                 .elem_bytes = info->elem_bytes,
                                 .scale_bytes = info->scale_bytes};
    bt_kv_view_t kv = {.type = type,
                       .n_layers = n_layers,
                       .n_kv_heads = n_kv_heads,
                       .head_dim = head_dim,
                       .tokens_per_block = tokens_per_block};
    bt_status_t status = bt_kv_block_bytes(&shape, &kv.block_bytes);

    if (status == BT_OK) {
        status = be->ops->buffer_alloc(be, kv.block_bytes * n_blocks, &kv.base);
    }
    if (status != BT_OK) {
        bt_half_die(status, "a KV cache of %u blocks", n_blocks);
    }
    return kv;
}

void bt_ops_kv(bt_ops_run_t *r, const char *const *words, uint32_t n_layers)
{
    const uint32_t n_kv = bt_half_number(words[3], 1, BT_OPS_MAX_COUNT);
    const uint32_t dim = bt_half_number(words[4], 2, 1024);
    const uint32_t rows = bt_half_number(words[5], 1, r->max_rows);
    const uint32_t pos = bt_half_number(words[6], 0, BT_OPS_MAX_COUNT);
    const uint32_t per_seq =
        bt_kv_blocks_for(pos + rows, BT_OPS_TOKENS_PER_BLOCK);
    bt_kv_type_t type = BT_KV_F16;

    free_kv(r);
    bt_half_must(bt_kv_type_parse(words[1], &type), words[1]);
    r->n_heads = bt_half_number(words[2], 1, BT_OPS_MAX_COUNT);
    r->n_seqs = bt_half_number(words[7], 1, r->max_rows / rows);
    r->n_rows = rows * r->n_seqs;
    r->n_blocks = per_seq * r->n_seqs;
    r->kv = bt_ops_kv_view(r->be, type, n_layers, n_kv, dim,
                           BT_OPS_TOKENS_PER_BLOCK, r->n_blocks);
    r->seqs = bt_half_zeros(r->n_seqs, sizeof(*r->seqs));
    r->ids = bt_half_zeros(r->n_blocks, sizeof(*r->ids));
    r->tokens = bt_half_zeros(r->n_rows, sizeof(*r->tokens));
    for (uint32_t s = 0; s < r->n_seqs; s++) {
        uint32_t *ids = r->ids + (size_t)s * per_seq;

        r->seqs[s] = (bt_ragged_seq_t){
            .row = s * rows, .n_rows = rows, .pos = pos, .blocks = ids};
        for (uint32_t b = 0; b < per_seq; b++) { /* alternate, as in serving */
            ids[b] = b * r->n_seqs + s;
        }
    }
}

bt_batch_t bt_ops_batch(const bt_ops_run_t *r)
{
    return (bt_batch_t){.tokens = r->tokens,
                        .seqs = r->seqs,
                        .n_seqs = r->n_seqs,
                        .n_rows = r->n_rows,
                        .tokens_per_block = BT_OPS_TOKENS_PER_BLOCK};
}

static void call_attention(bt_ops_run_t *r)
{
    const bt_batch_t batch = bt_ops_batch(r);
    const bt_attention_t attention = {.n_heads = r->n_heads,
                                      .key_dim = r->kv.head_dim,
                                      .value_dim = r->kv.head_dim,
                                      .scale =
                                          1.0f / sqrtf((float)r->kv.head_dim)};

    r->be->ops->attention(r->be, &attention, r->x, &batch, &r->kv,
                          r->at++ % r->kv.n_layers, r->out);
}

void bt_ops_measure_kv(bt_ops_run_t *r, bt_ops_call_t call,
                       const char *const *words)
{
    const size_t heads = r->n_heads + (size_t)2 * r->kv.n_kv_heads;

    if (r->seqs == NULL) {
        bt_half_die(BT_OK, "%s before a cache", words[0]);
    }
    bt_ops_measure(r, r->n_rows * heads * r->kv.head_dim,
                   (size_t)r->n_rows * r->n_heads * r->kv.head_dim, call,
                   words + 1);
}

void bt_ops_attention(bt_ops_run_t *r, const char *const *words)
{
    bt_ops_measure_kv(r, call_attention, words);
}

void bt_ops_fini(bt_ops_run_t *r)
{
    free_weights(r);
    free_kv(r);
    bt_backend_close(r->be);
}
