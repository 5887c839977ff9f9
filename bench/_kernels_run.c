/* SPDX-License-Identifier: Apache-2.0 */
/* Runs single operations of the CPU back end, for bench/kernels.py.
 *
 *     kernels-run THREADS MAX_ROWS LIMIT_MIB
 *
 * Prints a line of JSON about the back end, then answers commands with
 * {"seconds": [of each call …]}; MS is the time for which each is repeated:
 *
 *     weight TYPE N_OUT N_IN COPIES   random matrices, for the next matmuls:
 *                                     {"bytes": in the file, "packed_bytes"}
 *     matmul ROWS MS                  the copies one after the other
 *     kv TYPE HEADS KV_HEADS DIM ROWS POS SEQS   SEQS sequences with ROWS new
 *                                     tokens from position POS each
 *     attention MS | rope_store MS    over the KV cache
 *     rmsnorm|silu_mul|add DIM ROWS MS
 *     limit NAME MS                   see _half.h */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/_half.h"
#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/kv/kv_groups.h"

#define TOKENS_PER_BLOCK 16u
#define MAX_CALLS        4000u
#define MIN_CALLS        3u
#define MAX_COUNT        (1u << 20)
#define MAX_COPIES       1024u

typedef struct run {
    bt_backend_t *be;
    bt_limits_t *limits;
    uint32_t n_threads;
    uint32_t max_rows;
    uint64_t random;

    bt_weight_t *weights[MAX_COPIES];
    uint32_t n_copies;
    uint32_t at; /* the copy of the next call */
    uint32_t n_out;
    uint32_t n_in;

    bt_kv_view_t kv;
    uint32_t n_heads;
    uint32_t n_seqs;
    bt_ragged_seq_t *seqs;
    uint32_t *ids;
    float *cos_sin;
    bt_rotation_t rotation;

    float *x; /* inputs and outputs of the current operation */
    float *out;
    uint32_t dim;
    uint32_t n_rows;
} run_t;

typedef void (*call_t)(run_t *r);

static float *floats(run_t *r, size_t n)
{
    void *ptr = NULL;
    const bt_status_t status =
        r->be->ops->buffer_alloc(r->be, n * sizeof(float), &ptr);
    float *const x = ptr;

    if (status != BT_OK) {
        bt_half_die(status, "%zu floats", n);
    }
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)bt_half_random(&r->random, 4096) / 1024.0f - 2.0f;
    }
    return x;
}

static void release(run_t *r, float **x)
{
    if (*x != NULL) {
        r->be->ops->buffer_free(r->be, *x);
    }
    *x = NULL;
}

/* Repeats for about ms and prints the time of each call but the first. */
static void measure(run_t *r, call_t call, uint32_t ms)
{
    const uint64_t end = bt_now_ns() + (uint64_t)ms * 1000000u;
    const char *between = "";
    uint64_t now;

    call(r);
    printf("{\"seconds\": [");
    now = bt_now_ns();
    for (uint32_t i = 0; (i < MIN_CALLS) || ((i < MAX_CALLS) && (now < end));
         i++) {
        const uint64_t start = bt_now_ns();

        call(r);
        now = bt_now_ns();
        printf("%s%.9f", between, (double)(now - start) * 1e-9);
        between = ", ";
    }
    printf("]}\n");
}

/* ---- matmul ---- */

static void free_weights(run_t *r)
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

/* Random bits whose 16- and 32-bit floats are ordinary numbers wherever a block
 * may have one: the second byte of each pair loses its high exponent bits. */
static void fill(run_t *r, uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)bt_half_random(&r->random, 256);
        data[i] = (i % 2 == 1) ? (data[i] & 0xbfu) : data[i];
    }
}

static void set_weight(run_t *r, const char *const *words)
{
    const uint32_t type = type_named(words[1]);
    uint32_t n_elems = 0;
    uint32_t n_bytes = 0;
    size_t bytes;
    uint8_t *data;
    bt_status_t status = bt_ktype_block(type, &n_elems, &n_bytes);
    const uint32_t n_copies = bt_half_number(words[4], 1, MAX_COPIES);

    free_weights(r);
    r->n_out = bt_half_number(words[2], 1, MAX_COUNT);
    r->n_in = bt_half_number(words[3], 1, MAX_COUNT);
    bytes = (size_t)r->n_out * r->n_in / n_elems * n_bytes;
    data = bt_calloc(bytes, 1);
    if (data == NULL) {
        bt_half_die(BT_ERR_NO_MEMORY, "%zu bytes of weights", bytes);
    }
    fill(r, data, bytes);
    while ((status == BT_OK) && (r->n_copies < n_copies)) {
        status =
            r->be->ops->weight_pack(r->be, (bt_ktype_t)type, r->n_out, r->n_in,
                                    data, &r->weights[r->n_copies]);
        r->n_copies += (status == BT_OK) ? 1 : 0;
    }
    bt_free(data);
    if (status != BT_OK) {
        bt_half_die(status, "%s %u x %u", words[1], r->n_out, r->n_in);
    }
    printf("{\"bytes\": %zu, \"packed_bytes\": %zu}\n", bytes,
           r->be->ops->weight_bytes((bt_ktype_t)type, r->n_out, r->n_in));
}

static void call_matmul(run_t *r)
{
    r->be->ops->matmul(r->be, r->weights[r->at++ % r->n_copies], r->x,
                       r->n_rows, r->out);
}

/* ---- attention ---- */

static void free_kv(run_t *r)
{
    if (r->kv.base != NULL) {
        r->be->ops->buffer_free(r->be, r->kv.base);
    }
    r->kv.base = NULL;
    bt_free(r->seqs);
    bt_free(r->ids);
    r->seqs = NULL;
    r->ids = NULL;
    release(r, &r->cos_sin);
}

static size_t qkv_floats(const run_t *r)
{
    return (size_t)(r->n_heads + 2 * r->kv.n_kv_heads) * r->kv.head_dim;
}

static bt_batch_t batch_of(const bt_ragged_seq_t *seqs, uint32_t n_seqs,
                           uint32_t n_rows)
{
    return (bt_batch_t){.seqs = seqs,
                        .n_seqs = n_seqs,
                        .n_rows = n_rows,
                        .tokens_per_block = TOKENS_PER_BLOCK};
}

static void call_rope_store(run_t *r)
{
    const bt_batch_t batch = batch_of(r->seqs, r->n_seqs, r->n_rows);

    r->be->ops->rope_store(r->be, r->x, r->n_heads, &r->rotation, &batch,
                           &r->kv, 0);
}

static void call_attention(run_t *r)
{
    const bt_batch_t batch = batch_of(r->seqs, r->n_seqs, r->n_rows);
    const bt_attention_t attention = {.n_heads = r->n_heads,
                                      .key_dim = r->kv.head_dim,
                                      .value_dim = r->kv.head_dim,
                                      .scale =
                                          1.0f / sqrtf((float)r->kv.head_dim)};

    r->be->ops->attention(r->be, &attention, r->x, &batch, &r->kv, 0, r->out);
}

/* Ordinary keys and values at all positions before the new ones: stored by
 * rope_store itself, a piece at a time. */
static void fill_cache(run_t *r, uint32_t pos)
{
    float *const x = floats(r, (size_t)r->max_rows * qkv_floats(r));

    for (uint32_t s = 0; s < r->n_seqs; s++) {
        for (uint32_t p = 0; p < pos; p += r->max_rows) {
            const bt_ragged_seq_t seq = {
                .n_rows = (pos - p < r->max_rows) ? pos - p : r->max_rows,
                .pos = p,
                .blocks = r->seqs[s].blocks};
            const bt_batch_t batch = batch_of(&seq, 1, seq.n_rows);

            r->be->ops->rope_store(r->be, x, r->n_heads, &r->rotation, &batch,
                                   &r->kv, 0);
        }
    }
    r->be->ops->buffer_free(r->be, x);
}

static void set_kv(run_t *r, const char *const *words)
{
    const uint32_t n_kv = bt_half_number(words[3], 1, MAX_COUNT);
    const uint32_t dim = bt_half_number(words[4], 2, 1024);
    const uint32_t rows = bt_half_number(words[5], 1, r->max_rows);
    const uint32_t pos = bt_half_number(words[6], 0, MAX_COUNT);
    const uint32_t per_seq = bt_kv_blocks_for(pos + rows, TOKENS_PER_BLOCK);
    bt_kv_type_t type = BT_KV_F16;

    free_kv(r);
    r->n_heads = bt_half_number(words[2], 1, MAX_COUNT);
    r->n_seqs = bt_half_number(words[7], 1, r->max_rows / rows);
    if (bt_kv_type_parse(words[1], &type) != BT_OK) {
        bt_half_die(BT_OK, "no KV type is called %s", words[1]);
    }
    r->kv = bt_half_kv(r->be, type, 1, n_kv, dim, TOKENS_PER_BLOCK,
                       per_seq * r->n_seqs);
    r->seqs = bt_calloc(r->n_seqs, sizeof(*r->seqs));
    r->ids = bt_calloc((size_t)r->n_seqs * per_seq, sizeof(*r->ids));
    if ((r->seqs == NULL) || (r->ids == NULL)) {
        bt_half_die(BT_ERR_NO_MEMORY, "%u sequences", r->n_seqs);
    }
    for (uint32_t s = 0; s < r->n_seqs; s++) {
        r->seqs[s] = (bt_ragged_seq_t){.row = s * rows,
                                       .n_rows = rows,
                                       .pos = pos,
                                       .blocks = r->ids + (size_t)s * per_seq};
        for (uint32_t b = 0; b < per_seq; b++) {
            r->ids[(size_t)s * per_seq + b] = b * r->n_seqs + s;
        }
    }
    r->cos_sin = floats(r, (size_t)(pos + rows) * dim);
    for (size_t i = 0; i < (size_t)(pos + rows) * dim; i++) {
        r->cos_sin[i] = (i % 2 == 0) ? 0.8f : 0.6f; /* values keep their size */
    }
    r->rotation = (bt_rotation_t){
        .cos_sin = r->cos_sin, .dims = dim, .interleaved = true};
    fill_cache(r, pos);
    r->n_rows = rows * r->n_seqs;
    printf("{\"kv_token_bytes\": %zu}\n", r->kv.block_bytes / TOKENS_PER_BLOCK);
}

/* ---- operations on rows ---- */

static void call_rmsnorm(run_t *r)
{
    r->be->ops->rmsnorm(r->be, r->x, r->x, 1e-5f, r->n_rows, r->dim, r->out);
}

static void call_silu_mul(run_t *r)
{
    r->be->ops->silu_mul(r->be, r->x, r->n_rows, r->dim, r->out);
}

static void call_add(run_t *r)
{
    r->be->ops->add(r->be, r->out, r->x, (size_t)r->n_rows * r->dim);
}

/* ---- commands ---- */

static void with_buffers(run_t *r, size_t n_x, size_t n_out, call_t call,
                         uint32_t ms)
{
    r->x = floats(r, n_x);
    r->out = floats(r, n_out);
    measure(r, call, ms);
    release(r, &r->x);
    release(r, &r->out);
}

static void run_row_op(run_t *r, const char *const *words, call_t call)
{
    r->dim = bt_half_number(words[1], 1, MAX_COUNT);
    r->n_rows = bt_half_number(words[2], 1, r->max_rows);
    with_buffers(r, (size_t)2 * r->n_rows * r->dim, (size_t)r->n_rows * r->dim,
                 call, bt_half_number(words[3], 1, 60000));
}

static void run_command(run_t *r, const char *const *words)
{
    const char *const name = words[0];

    if (strcmp(name, "weight") == 0) {
        set_weight(r, words);
    } else if (strcmp(name, "kv") == 0) {
        set_kv(r, words);
    } else if ((strcmp(name, "matmul") == 0) && (r->n_copies > 0)) {
        r->n_rows = bt_half_number(words[1], 1, r->max_rows);
        with_buffers(r, (size_t)r->n_rows * r->n_in,
                     (size_t)r->n_rows * r->n_out, call_matmul,
                     bt_half_number(words[2], 1, 60000));
    } else if (((strcmp(name, "attention") == 0) ||
                (strcmp(name, "rope_store") == 0)) &&
               (r->seqs != NULL)) {
        with_buffers(r, r->n_rows * qkv_floats(r),
                     (size_t)r->n_rows * r->n_heads * r->kv.head_dim,
                     (name[0] == 'a') ? call_attention : call_rope_store,
                     bt_half_number(words[1], 1, 60000));
    } else if (strcmp(name, "rmsnorm") == 0) {
        run_row_op(r, words, call_rmsnorm);
    } else if (strcmp(name, "silu_mul") == 0) {
        run_row_op(r, words, call_silu_mul);
    } else if (strcmp(name, "add") == 0) {
        run_row_op(r, words, call_add);
    } else if ((strcmp(name, "limit") == 0) && (words[1] != NULL)) {
        bt_half_limit(r->limits, words[1], bt_half_number(words[2], 1, 60000));
    } else {
        bt_half_die(BT_OK, "no command %s here", name);
    }
}

int main(int argc, char **argv)
{
    const char *words[BT_HALF_MAX_WORDS];
    run_t r = {.random = 1};
    bt_backend_config_t config = {.max_dim = MAX_COUNT / 8};
    uint32_t mib;
    bt_status_t status;

    bt_log_init("kernels-run", BT_LOG_LEVEL_WARN);
    if (argc != 4) {
        bt_half_die(BT_OK, "it is run by bench/kernels.py");
    }
    r.n_threads = config.n_threads = bt_half_number(argv[1], 1, 1024);
    r.max_rows = config.max_rows = bt_half_number(argv[2], 1, 65536);
    mib = bt_half_number(argv[3], 1, 65536);
    status = bt_limits_create(r.n_threads, (size_t)mib << 20, &r.limits);
    if (status == BT_OK) {
        status = bt_backend_open("cpu", &config, &r.be);
    }
    if (status != BT_OK) {
        bt_half_die(status, "%u threads", r.n_threads);
    }
    printf("{\"backend\": \"%s\", \"profile\": \"%s\", \"threads\": %u}\n",
           r.be->caps->name, r.be->caps->profile, r.n_threads);
    while (bt_half_command(words) > 0) {
        run_command(&r, words);
    }
    free_weights(&r);
    free_kv(&r);
    bt_backend_close(r.be);
    bt_limits_destroy(r.limits);
    return 0;
}
