/* SPDX-License-Identifier: Apache-2.0 */
/* Every call of the run time fails once, the whole way from opening the back
 * end to closing it: somebody is told, and nothing is left. The argument is
 * baton_cuda_sim.so. */
#include "tests/simt/plugin.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/batch.h"
#include "kernels/kernels.h"

#define ROWS   3u
#define DIM    40u
#define FLOATS (ROWS * DIM)
#define BYTES  (FLOATS * sizeof(float))

static const bt_backend_config_t config = {.n_threads = 1, .max_rows = 8};

/* A matrix of one row of ones: the scale 1 as f16, then 32 codes. */
static const uint8_t ones[34] = {0, 0x3c, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                 1, 1,    1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                 1, 1,    1, 1, 1, 1, 1, 1, 1, 1};

/* What is open, to be closed whatever failed. */
typedef struct walk {
    bt_backend_t *be;
    void *x, *y, *sums;
    bt_weight_t *weight;
    bt_copier_t copier;
    void *pinned;
    bt_returns_t returns;
    bool answered; /* the numbers came out right */
} walk_t;

/* By its bytes, as from a file. */
static bt_status_t adopt_ones(walk_t *w)
{
    const bt_kernels_ops_t *ops = w->be->ops;
    bt_weight_t *here = NULL;
    bt_status_t status =
        ops->weight_pack_here(w->be, BT_KTYPE_Q8_0, 1, 32, ones, &here);

    if (status == BT_OK) {
        status = ops->weight_adopt(
            w->be, BT_KTYPE_Q8_0, 1, 32, ops->weight_data(here),
            ops->weight_bytes(BT_KTYPE_Q8_0, 1, 32), &w->weight);
        ops->weight_free(w->be, here);
    }
    return status;
}

static bt_status_t open_all(walk_t *w)
{
    static const bt_batch_limits_t limits = {
        .max_rows = 8, .max_seqs = 2, .max_logit_rows = 8, .max_blocks = 8};
    /* More than the weight has taken. */
    static const bt_workload_t workload = {.max_rows = 8, .dense_n_in = 64};
    bt_status_t status = bt_backend_open("cuda_sim", &config, &w->be);
    uint64_t left;

    if (status == BT_OK) {
        status = w->be->ops->memory_left(w->be, &left);
    }
    if (status == BT_OK) {
        status = w->be->ops->buffer_alloc(w->be, BYTES, &w->x);
    }
    if (status == BT_OK) {
        status = w->be->ops->buffer_alloc(w->be, BYTES, &w->y);
    }
    if (status == BT_OK) {
        status = w->be->ops->buffer_alloc(w->be, sizeof(float), &w->sums);
    }
    if (status == BT_OK) {
        status = adopt_ones(w);
    }
    if (status == BT_OK) {
        status = w->be->ops->workload_reserve(w->be, &workload);
    }
    if (status == BT_OK) {
        status = w->be->ops->batch_reserve(w->be, &limits);
    }
    if (status == BT_OK) {
        status = w->be->ops->copier_open(w->be, 2, &w->copier);
    }
    if (status == BT_OK) {
        status = w->copier.host_alloc(w->copier.user, BYTES, &w->pinned);
    }
    if (status == BT_OK) {
        status = w->be->ops->returns_open(w->be, 2, BYTES, &w->returns);
    }
    return status;
}

#define TIMES                                                      \
    3u /* that a step is asked for: the second makes a graph of it \
        */

/* A step: tables, kernels with and without them. */
static bt_status_t step(walk_t *w, const float *in, float factor)
{
    static const uint32_t tokens[ROWS] = {1, 2, 3};
    static const uint32_t blocks[] = {0};
    static const uint32_t logit_rows[] = {2, 0};
    static const bt_ragged_seq_t seq = {.n_rows = ROWS, .blocks = blocks};
    const bt_batch_t batch = {.tokens = tokens,
                              .seqs = &seq,
                              .logit_rows = logit_rows,
                              .n_rows = ROWS,
                              .n_seqs = 1,
                              .n_logit_rows = 2,
                              .tokens_per_block = 16};
    const bt_kernels_ops_t *ops = w->be->ops;
    bt_status_t status = ops->copy_in(w->be, w->x, in, BYTES);

    if (status == BT_OK) {
        status = ops->batch_begin(w->be, &batch);
    }
    if (status == BT_OK) {
        ops->clear(w->be, w->y, BYTES);
        for (uint32_t i = 0; i < 4; i++) { /* by the factor in the end */
            ops->scale(w->be, w->x, (i < 3) ? 0.5f : 8.0f * factor, FLOATS);
        }
        ops->gather_rows(w->be, w->x, &batch, DIM, w->y);
        ops->copy_columns(w->be, w->x, 1, 2, w->y, DIM, 1);
        ops->matmul(w->be, w->weight, w->x, 1, w->sums);
        status = ops->sync(w->be);
    }
    return status;
}

/* By the copier, on a stream of its own. */
static bt_status_t bring(walk_t *w)
{
    const bt_status_t status =
        w->copier.to_host(w->copier.user, w->pinned, w->y, BYTES, 1);

    return (status == BT_OK) ? bt_copier_wait(&w->copier, 1) : status;
}

/* What is sent comes as it was then, whatever is queued behind it. */
static bt_status_t return_two(walk_t *w, bool *same_p)
{
    float out[2][FLOATS] = {{0}};
    const void *host = NULL;
    bt_status_t status = BT_OK;

    for (uint32_t i = 0; i < 2; i++) {
        w->returns.send(w->returns.user, i, w->x, BYTES);
        w->be->ops->scale(w->be, w->x, 2.0f, FLOATS);
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < 2); i++) {
        status = w->returns.wait(w->returns.user, i, &host);
        if (status == BT_OK) {
            memcpy(out[i], host, BYTES);
        }
    }
    *same_p = out[0][FLOATS - 1] != 0.0f;
    for (uint32_t i = 0; i < FLOATS; i++) {
        *same_p = *same_p && (out[1][i] == 2.0f * out[0][i]);
    }
    return status;
}

static bt_status_t compute(walk_t *w)
{
    bool two = false;
    float in[FLOATS], out[FLOATS];
    float sum = 0.0f;
    const float *pinned = w->pinned;
    bt_status_t status;

    for (uint32_t i = 0; i < FLOATS; i++) {
        in[i] = (float)i;
    }
    status = BT_OK;
    for (uint32_t i = 0; (status == BT_OK) && (i < TIMES); i++) {
        status = step(w, in, 2.0f);
    }
    if (status == BT_OK) {
        status = w->be->ops->copy_out(w->be, out, w->y, BYTES);
    }
    if (status == BT_OK) {
        status = w->be->ops->copy_out(w->be, &sum, w->sums, sizeof(sum));
    }
    if (status == BT_OK) {
        status = bring(w);
    }
    if (status == BT_OK) {
        status = return_two(w, &two);
    }
    if (status == BT_OK) {
        /* Row 2 doubled, with two columns of row 0 in it; row 0; zeros. And
         * twice 0 + 1 + … + 31, of rows in 8 bits. */
        w->answered = two && (out[0] == 2.0f * 2 * DIM) && (out[1] == 0.0f) &&
                      (out[2] == 2.0f) && (out[DIM + 5] == 10.0f) &&
                      (out[2 * DIM + 7] == 0.0f) &&
                      (fabsf(sum - 992.0f) < 2.0f) &&
                      (memcmp(out, pinned, BYTES) == 0);
    }
    return status;
}

static void close_all(walk_t *w)
{
    if (w->be == NULL) {
        return;
    }
    if (w->pinned != NULL) {
        w->copier.host_free(w->copier.user, w->pinned);
    }
    if (w->copier.user != NULL) {
        w->be->ops->copier_close(&w->copier);
    }
    w->be->ops->returns_close(&w->returns);
    w->be->ops->buffer_free(w->be, w->x);
    w->be->ops->buffer_free(w->be, w->y);
    w->be->ops->buffer_free(w->be, w->sums);
    w->be->ops->weight_free(w->be, w->weight);
    bt_backend_close(w->be);
}

/* @return what it was told, BT_OK: all went well */
static bt_status_t walk(uint64_t failing, bt_simt_state_t *after)
{
    bt_simt_state_t left;
    walk_t w = {0};
    bt_status_t status;

    fail_at(failing);
    status = open_all(&w);
    if (status == BT_OK) {
        status = compute(&w);
    }
    state_of(after); /* calls until here */
    assert_int_equal(w.answered, status == BT_OK);
    close_all(&w);
    state_of(&left);
    if ((left.bytes != 0) || (left.n_pinned != 0) || (left.n_streams != 0) ||
        (left.n_events != 0) || (left.n_graphs != 0)) {
        fail_msg("call %u failed: %zu bytes, %u pinned, %u streams, %u events "
                 "and %u graphs are left",
                 (unsigned)failing, left.bytes, left.n_pinned, left.n_streams,
                 left.n_events, left.n_graphs);
    }
    return status;
}

/* Where no graph can be made of a step its calls are launched one by one, which
 * nobody need be told: the beginning and the end of a capture, the launches in
 * it, and the graph itself. */
#define UNTOLD 16u

static void every_call_that_fails_is_told_or_no_matter(void **state)
{
    bt_simt_state_t well, after;
    uint32_t n_untold = 0;

    (void)state;
    assert_int_equal(walk(0, &well), BT_OK);
    assert_true(well.n_calls >= 50);
    for (uint64_t n = 1; n <= well.n_calls; n += BT_SIMT_EVERY) {
        const bt_status_t status = walk(n, &after);

        n_untold += (status == BT_OK); /* and the answer is right */
        if ((status != BT_ERR_NO_MEMORY) && (status != BT_ERR_DEVICE) &&
            (status != BT_ERR_NO_DEVICE) && (status != BT_OK)) {
            fail_msg("call %u of %u failed: \"%s\"", (unsigned)n,
                     (unsigned)well.n_calls, bt_status_str(status));
        }
        assert_int_equal(walk(0, &after), BT_OK); /* and it is over */
    }
    assert_in_range(n_untold, (BT_SIMT_EVERY == 1) ? 3 : 0, UNTOLD);
}

static float first_of_step(walk_t *w, float factor)
{
    const float in[FLOATS] = {[2 * DIM + 3] = 1.0f};
    float out[FLOATS];

    assert_int_equal(step(w, in, factor), BT_OK);
    assert_int_equal(w->be->ops->copy_out(w->be, out, w->y, BYTES), BT_OK);
    return out[3];
}

/* The second time that a step is asked for it becomes a graph; another one,
 * which differs in one number, is not taken for it. */
static void a_step_that_comes_again_is_one_launch(void **state)
{
    bt_simt_state_t before, after;
    walk_t w = {0};

    (void)state;
    fail_at(0);
    assert_int_equal(open_all(&w), BT_OK);
    state_of(&before);
    for (uint32_t i = 0; i < 5; i++) {
        assert_true(first_of_step(&w, 2.0f) == 2.0f);
        state_of(&after);
        assert_int_equal(after.n_graph_launches - before.n_graph_launches, i);
    }
    assert_true(first_of_step(&w, 3.0f) == 3.0f);
    state_of(&after);
    assert_int_equal(after.n_graph_launches - before.n_graph_launches, 4);
    assert_true(first_of_step(&w, 3.0f) == 3.0f);
    assert_true(first_of_step(&w, 2.0f) == 2.0f);
    state_of(&after);
    assert_int_equal(after.n_graph_launches - before.n_graph_launches, 6);
    /* More than are kept: those that are asked for again are made again. */
    for (uint32_t i = 0; i < 2 * 70; i++) {
        const float factor = 4.0f + (float)(i / 2);

        assert_true(first_of_step(&w, factor) == factor);
    }
    assert_true(first_of_step(&w, 2.0f) == 2.0f);
    state_of(&after);
    assert_int_equal(after.n_graph_launches - before.n_graph_launches, 77);
    close_all(&w);
}

/* Streams have no order between them: a buffer must be zero before the copier
 * can write to it, or what came is wiped. */
static void what_the_copier_brings_into_a_new_buffer_stays(void **state)
{
    float out[FLOATS] = {0};
    void *made = NULL;
    float *pinned;
    walk_t w = {0};

    (void)state;
    fail_at(0);
    assert_int_equal(open_all(&w), BT_OK);
    pinned = w.pinned;
    for (uint32_t i = 0; i < FLOATS; i++) {
        pinned[i] = (float)i;
    }
    assert_int_equal(w.be->ops->buffer_alloc(w.be, BYTES, &made), BT_OK);
    assert_int_equal(w.copier.to_device(w.copier.user, made, pinned, BYTES, 0),
                     BT_OK);
    assert_int_equal(bt_copier_wait(&w.copier, 0), BT_OK);
    assert_int_equal(w.be->ops->copy_out(w.be, out, made, BYTES), BT_OK);
    assert_memory_equal(out, pinned, BYTES);
    w.be->ops->buffer_free(w.be, made);
    close_all(&w);
}

/* One row at a position of the third part of a sequence, by tensor cores. */
#define PART_POS    300u
#define PART_DIM    16u
#define PART_BLOCKS 20u

static bt_ragged_seq_t one_long_sequence(uint32_t ids[PART_BLOCKS])
{
    for (uint32_t i = 0; i < PART_BLOCKS; i++) {
        ids[i] = PART_BLOCKS - 1 - i;
    }
    return (bt_ragged_seq_t){.n_rows = 1, .pos = PART_POS, .blocks = ids};
}

/* A cache of one layer and head, of ordinary numbers. */
static bt_kv_view_t long_cache(bt_backend_t *be)
{
    uint16_t words[PART_BLOCKS * 2 * 16 * PART_DIM];
    bt_kv_view_t kv = {.block_bytes = sizeof(words) / PART_BLOCKS,
                       .type = BT_KV_BF16,
                       .n_layers = 1,
                       .n_kv_heads = 1,
                       .head_dim = PART_DIM,
                       .tokens_per_block = 16};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        words[i] = (uint16_t)(0x3f00u | (i * 2654435761u >> 7 & 0x80ffu));
    }
    assert_int_equal(be->ops->buffer_alloc(be, sizeof(words), &kv.base), BT_OK);
    assert_int_equal(be->ops->copy_in(be, kv.base, words, sizeof(words)),
                     BT_OK);
    return kv;
}

/* @param reserved  is there scratch for parts?
 * @return bytes of the device that are taken in the end */
static size_t attend(bool reserved, float out[PART_DIM])
{
    static const bt_workload_t workload = {.max_rows = 1,
                                           .max_seqs = 1,
                                           .context_tokens = PART_POS + 1,
                                           .n_heads = 1,
                                           .n_kv_heads = 1,
                                           .head_dim = PART_DIM};
    static const bt_backend_config_t tensor = {
        .n_threads = 1, .max_rows = 1, .numerics = BT_NUMERICS_TENSOR};
    static const bt_batch_limits_t limits = {.max_rows = 1,
                                             .max_seqs = 1,
                                             .max_logit_rows = 1,
                                             .max_blocks = PART_BLOCKS};
    static const uint32_t tokens[1];
    static const bt_attention_t attention = {.n_heads = 1,
                                             .key_dim = PART_DIM,
                                             .value_dim = PART_DIM,
                                             .scale = 0.25f};
    uint32_t ids[PART_BLOCKS];
    const bt_ragged_seq_t seq = one_long_sequence(ids);
    const bt_batch_t batch = {.tokens = tokens,
                              .seqs = &seq,
                              .n_seqs = 1,
                              .n_rows = 1,
                              .tokens_per_block = 16};
    float qkv[3 * PART_DIM];
    bt_simt_state_t before, left;
    bt_backend_t *be = NULL;
    bt_kv_view_t kv;
    void *q, *made;

    for (uint32_t i = 0; i < 3 * PART_DIM; i++) {
        qkv[i] = 0.3f - 0.05f * (float)i;
    }
    fail_at(0);
    assert_int_equal(bt_backend_open("cuda_sim", &tensor, &be), BT_OK);
    assert_int_equal(be->ops->batch_reserve(be, &limits), BT_OK);
    kv = long_cache(be);
    assert_int_equal(be->ops->buffer_alloc(be, sizeof(qkv), &q), BT_OK);
    assert_int_equal(be->ops->buffer_alloc(be, PART_DIM * sizeof(*out), &made),
                     BT_OK);
    assert_int_equal(be->ops->copy_in(be, q, qkv, sizeof(qkv)), BT_OK);
    assert_int_equal(be->ops->batch_begin(be, &batch), BT_OK);
    if (reserved) {
        assert_int_equal(be->ops->workload_reserve(be, &workload), BT_OK);
    }
    state_of(&before);
    be->ops->attention(be, &attention, q, &batch, &kv, 0, made);
    assert_int_equal(be->ops->copy_out(be, out, made, PART_DIM * sizeof(*out)),
                     BT_OK);
    state_of(&left);
    assert_int_equal(left.bytes, before.bytes); /* an operation takes none */
    be->ops->buffer_free(be, kv.base);
    be->ops->buffer_free(be, q);
    be->ops->buffer_free(be, made);
    bt_backend_close(be);
    return left.bytes;
}

static void without_memory_for_parts_attention_is_the_same(void **state)
{
    float split[PART_DIM], whole[PART_DIM];
    size_t bytes;

    (void)state;
    bytes = attend(true, split);
    assert_true(attend(false, whole) < bytes);
    assert_memory_equal(split, whole, sizeof(split));
    assert_true(split[0] != split[1]);
}

/* More than the two slots that weights cross by, one after the other. */
static void a_large_weight_comes_whole(void **state)
{
    enum { N_OUT = 2400, N_IN = 1024 };
    static const uint32_t tokens[] = {0, 1023, 1024, 2047, 2048, N_OUT - 1};
    static const bt_batch_limits_t limits = {
        .max_rows = 8, .max_seqs = 1, .max_blocks = 1};
    static const uint32_t blocks[1];
    static const bt_ragged_seq_t seq = {.n_rows = 6, .blocks = blocks};
    static float got[6][N_IN];
    const bt_batch_t batch = {.tokens = tokens,
                              .seqs = &seq,
                              .n_rows = 6,
                              .n_seqs = 1,
                              .tokens_per_block = 16};
    float *const values = malloc(sizeof(*values) * N_OUT * N_IN);
    bt_weight_t *w = NULL;
    bt_backend_t *be = NULL;
    void *rows;

    (void)state;
    fail_at(0);
    assert_non_null(values);
    for (uint32_t i = 0; i < N_OUT * N_IN; i++) {
        values[i] = (float)i;
    }
    assert_int_equal(bt_backend_open("cuda_sim", &config, &be), BT_OK);
    assert_int_equal(be->ops->batch_reserve(be, &limits), BT_OK);
    assert_int_equal(
        be->ops->weight_pack(be, BT_KTYPE_F32, N_OUT, N_IN, values, &w), BT_OK);
    assert_int_equal(be->ops->buffer_alloc(be, sizeof(got), &rows), BT_OK);
    assert_int_equal(be->ops->batch_begin(be, &batch), BT_OK);
    be->ops->embed(be, w, &batch, rows);
    assert_int_equal(be->ops->copy_out(be, got, rows, sizeof(got)), BT_OK);
    for (uint32_t i = 0; i < 6; i++) {
        assert_memory_equal(got[i], values + (size_t)tokens[i] * N_IN,
                            sizeof(got[i]));
    }
    be->ops->buffer_free(be, rows);
    be->ops->weight_free(be, w);
    bt_backend_close(be);
    free(values);
}

static void a_host_that_cannot_is_told_why(void **state)
{
    static const struct {
        const char *host, *visible, *why;
        uint32_t device;
    } hosts[] = {
        {"without-driver", NULL, "this host has no NVIDIA driver", 0},
        {"with-old-driver", NULL,
         "the NVIDIA driver of this host is for CUDA 11.8, this build needs one "
         "for 13.0",
         0},
        {"without-device", NULL, "the NVIDIA driver shows no device", 0},
        {"without-device", "7",
         "the NVIDIA driver shows no device: CUDA_VISIBLE_DEVICES=7", 0},
        {"of-turing", NULL,
         "device 0, a device of the tests, is an sm_75; sm_80 is the least", 0},
        {"", NULL, "device 3 is not there: 1 are", 3},
    };
    char why[200];

    (void)state;
    fail_at(0);
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        const bt_backend_config_t asked = {.n_threads = 1,
                                           .max_rows = 1,
                                           .device = hosts[i].device,
                                           .why = why,
                                           .why_bytes = sizeof(why)};
        bt_backend_t *be = NULL;

        assert_int_equal(setenv("BATON_SIMT_HOST", hosts[i].host, 1), 0);
        assert_int_equal(
            (hosts[i].visible == NULL)
                ? unsetenv("CUDA_VISIBLE_DEVICES")
                : setenv("CUDA_VISIBLE_DEVICES", hosts[i].visible, 1),
            0);
        assert_int_equal(bt_backend_open("cuda_sim", &asked, &be),
                         BT_ERR_NO_DEVICE);
        assert_string_equal(why, hosts[i].why);
        assert_null(be);
    }
    assert_int_equal(unsetenv("BATON_SIMT_HOST"), 0);
    assert_int_equal(unsetenv("CUDA_VISIBLE_DEVICES"), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(every_call_that_fails_is_told_or_no_matter),
        BT_TEST(a_step_that_comes_again_is_one_launch),
        BT_TEST(without_memory_for_parts_attention_is_the_same),
        BT_TEST(a_large_weight_comes_whole),
        BT_TEST(a_host_that_cannot_is_told_why),
        BT_TEST(what_the_copier_brings_into_a_new_buffer_stays),
    };

    plugin_open(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
