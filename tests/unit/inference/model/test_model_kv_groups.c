/* SPDX-License-Identifier: Apache-2.0 */
/* A cache whose layers are in groups holds the bytes of one that is not, and
 * what is computed from it is the same: the same model, prompt and steps, with
 * one group as the expected value. */
#include "tests/unit/inference/model/rig.h"

#include "common/base/status.h"
#include "tests/support/trap_backend.h"

#define LAYERS   5u
#define N_SPANS  ((N_TOKENS + T - 1) / T)
#define N_TABLES 3u /* sequences that have room in the pool */

/* Whose layers are where; the second wastes some of each page. */
static const struct {
    uint32_t n;
    uint8_t group_of[LAYERS];
    uint32_t n_in[3];
} cuts[] = {
    {2, {0, 1, 0, 1, 0}, {3, 2}},
    {3, {1, 0, 0, 2, 0}, {3, 1, 1}},
    {1, {0, 0, 0, 0, 0}, {5}},
};

static bt_tiny_model_t five_layers(int i)
{
    bt_tiny_model_t tiny = variant(i);

    tiny.n_layers = LAYERS;
    return tiny;
}

static bt_kv_groups_t groups_of(const bt_kv_view_t *kv, size_t cut)
{
    const bt_kv_type_info_t *const info = bt_kv_type_info(kv->type);
    bt_kv_group_t list[3] = {0};
    bt_kv_groups_t groups;

    for (uint32_t g = 0; g < cuts[cut].n; g++) {
        list[g].shape = (bt_kv_shape_t){
            cuts[cut].n_in[g], kv->n_kv_heads,   T,
            kv->head_dim,      info->elem_bytes, info->scale_bytes};
    }
    assert_int_equal(bt_kv_groups_init(list, cuts[cut].n, cuts[cut].group_of,
                                       LAYERS, &groups),
                     BT_OK);
    return groups;
}

typedef struct side {
    bt_backend_t *be;
    bt_model_t *model;
    bt_kv_view_t kv;
    const bt_kv_groups_t *groups; /* NULL: one */
    uint32_t table[N_SPANS * 3];
    size_t pool_bytes;
} side_t;

/* @param [in] traps  a back end whose memory is not the host's */
static side_t open_side(const bt_tiny_model_t *tiny, bt_kv_type_t type,
                        const bt_kv_groups_t *groups, bool traps)
{
    const bt_backend_config_t be_config = {.n_threads = 2,
                                           .max_rows = MAX_ROWS};
    const bt_model_config_t config = {.max_rows = MAX_ROWS,
                                      .max_logit_rows = MAX_ROWS,
                                      .context_tokens = 256,
                                      .tokens_per_block = T,
                                      .n_other_groups =
                                          (groups == NULL) ? 0 : groups->n - 1};
    const uint32_t n_groups = (groups == NULL) ? 1 : groups->n;
    bt_gguf_t *const gguf = open_tiny(tiny);
    rig_t like = make_rig_of(tiny, 1, type);
    side_t s = {.kv = like.kv, .groups = groups};

    free_rig(&like);
    if (traps) {
        assert_int_equal(bt_trap_backend_open(&be_config, &s.be), BT_OK);
    } else {
        s.be = open_backend(2);
    }
    assert_int_equal(
        bt_model_load(gguf, s.be, &config, why, sizeof(why), &s.model), BT_OK);
    bt_gguf_close(gguf);
    if (groups != NULL) {
        s.kv.block_bytes = groups->page_bytes;
    }
    /* Any pages, in no order. */
    for (uint32_t i = 0; i < N_SPANS * n_groups; i++) {
        s.table[i] = (i * 7u + 3u) % (N_SPANS * n_groups * N_TABLES);
    }
    s.pool_bytes = N_SPANS * n_groups * N_TABLES * s.kv.block_bytes;
    assert_int_equal(s.be->ops->buffer_alloc(s.be, s.pool_bytes, &s.kv.base),
                     BT_OK);
    return s;
}

static void close_side(side_t *s)
{
    bt_model_destroy(s->model);
    s->be->ops->buffer_free(s->be, s->kv.base);
    bt_backend_close(s->be);
}

/* Rows [from, from + n) with the logits of all of them. */
static void step(side_t *s, const uint32_t *tokens, uint32_t from, uint32_t n,
                 float *out)
{
    const size_t n_vocab = bt_model_hparams(s->model)->n_vocab;
    const bt_ragged_seq_t seq = {.n_rows = n, .pos = from, .blocks = s->table};
    uint32_t rows[MAX_ROWS];
    const bt_forward_t fwd = {.seqs = &seq,
                              .n_seqs = 1,
                              .tokens = tokens + from,
                              .n_rows = n,
                              .logit_rows = rows,
                              .n_logit_rows = n,
                              .kv = s->kv,
                              .groups = s->groups};
    float *logits = NULL;

    for (uint32_t i = 0; i < n; i++) {
        rows[i] = i;
    }
    assert_int_equal(bt_model_forward(s->model, &fwd, &logits), BT_OK);
    memcpy(out, logits, n * n_vocab * sizeof(*out));
}

/* K and V of a layer in a block: elements, then scales. */
static void layer_of(const side_t *s, const uint8_t *pool, uint32_t layer,
                     uint32_t span, const uint8_t **elems_p,
                     const uint8_t **scales_p)
{
    const bt_kv_type_info_t *const info = bt_kv_type_info(s->kv.type);
    const uint32_t n_groups = (s->groups == NULL) ? 1 : s->groups->n;
    bt_kv_layer_slot_t slot = {.group = 0, .index = layer};
    uint32_t n_layers = LAYERS;
    const uint8_t *block;
    size_t vectors; /* of one layer */

    if (s->groups != NULL) {
        slot = bt_kv_layer_slot(s->groups, layer);
        n_layers = s->groups->group[slot.group].shape.n_layers;
    }
    block = pool + s->table[span * n_groups + slot.group] * s->kv.block_bytes;
    vectors = (size_t)2 * s->kv.n_kv_heads * T;
    *elems_p = block + slot.index * vectors * s->kv.head_dim * info->elem_bytes;
    *scales_p = block + n_layers * vectors * s->kv.head_dim * info->elem_bytes +
                slot.index * vectors * info->scale_bytes;
}

static void compare_caches(const side_t *one, const side_t *grouped)
{
    const bt_kv_type_info_t *const info = bt_kv_type_info(one->kv.type);
    const size_t vectors = (size_t)2 * one->kv.n_kv_heads * T;
    uint8_t *pool = bt_calloc(grouped->pool_bytes, 1);

    assert_non_null(pool);
    assert_int_equal(grouped->be->ops->copy_out(grouped->be, pool,
                                                grouped->kv.base,
                                                grouped->pool_bytes),
                     BT_OK);
    assert_int_equal(grouped->be->ops->sync(grouped->be), BT_OK);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        for (uint32_t span = 0; span < N_SPANS; span++) {
            const uint8_t *want, *want_scales, *got, *got_scales;

            layer_of(one, one->kv.base, layer, span, &want, &want_scales);
            layer_of(grouped, pool, layer, span, &got, &got_scales);
            assert_memory_equal(got, want,
                                vectors * one->kv.head_dim * info->elem_bytes);
            assert_memory_equal(got_scales, want_scales,
                                vectors * info->scale_bytes);
        }
    }
    bt_free(pool);
}

/* Whole prompt in one group; grouped: one row at a time, then chunks that end
 * anywhere. */
static void check_same(int i, bt_kv_type_t type, size_t cut, bool traps)
{
    const bt_tiny_model_t tiny = five_layers(i);
    side_t one = open_side(&tiny, type, NULL, false);
    bt_kv_groups_t groups = groups_of(&one.kv, cut);
    side_t grouped = open_side(&tiny, type, &groups, traps);
    const size_t n_vocab = bt_model_hparams(one.model)->n_vocab;
    float *want = bt_calloc(N_TOKENS * n_vocab, sizeof(*want));
    float *got = bt_calloc(N_TOKENS * n_vocab, sizeof(*got));
    uint32_t tokens[N_TOKENS];
    uint32_t at = 0;

    assert_non_null(want);
    assert_non_null(got);
    fill_tokens(tokens, N_TOKENS, (uint32_t)n_vocab);
    step(&one, tokens, 0, N_TOKENS, want);
    assert_memory_not_equal(want, want + n_vocab, n_vocab * sizeof(*want));
    while (at < N_TOKENS) {
        const uint32_t n = (at < 20) ? 1 : (at % 3) * 11 + 2;
        const uint32_t left = N_TOKENS - at;

        step(&grouped, tokens, at, (n < left) ? n : left, got + at * n_vocab);
        at += (n < left) ? n : left;
    }
    assert_memory_equal(got, want, N_TOKENS * n_vocab * sizeof(*got));
    compare_caches(&one, &grouped);
    bt_free(got);
    bt_free(want);
    close_side(&grouped);
    close_side(&one);
    bt_kv_groups_fini(&groups);
}

static void kv_groups_give_the_bytes_of_one_group(void **state)
{
    static const bt_kv_type_t types[] = {BT_KV_F16, BT_KV_BF16, BT_KV_INT8,
                                         BT_KV_FP8};

    (void)state;
    for (int i = 0; i < N_VARIANTS; i++) {
        for (size_t cut = 0; cut < BT_ARRAY_LEN(cuts); cut++) {
            check_same(i, types[((size_t)i + cut) % 4], cut, false);
        }
    }
}

/* The tables of all groups cross over in the one upload of a step. */
static void kv_groups_give_the_same_bytes_in_device_memory(void **state)
{
    (void)state;
    for (size_t cut = 0; cut < BT_ARRAY_LEN(cuts); cut++) {
        check_same(1, BT_KV_INT8, cut, true);
        check_same(2, BT_KV_FP8, cut, true);
        check_same(0, BT_KV_F16, cut, true);
    }
}

static void impossible_kv_groups_are_refused_by_name(void **state)
{
    const bt_tiny_model_t tiny = five_layers(0);
    side_t one = open_side(&tiny, BT_KV_F16, NULL, false);
    static const char *const names[] = {
        "group 1 keeps a state", "layer 0 sees all tokens, and its KV group",
        "group 1 has 1 heads", "dimensions", "5 layers and its KV 4"};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        bt_kv_groups_t groups = groups_of(&one.kv, 0);
        bt_kv_group_t *first = &groups.group[0];
        bt_kv_group_t *second = &groups.group[1];
        const bt_status_t want =
            (i == 0) ? BT_ERR_UNSUPPORTED : BT_ERR_INVALID_PARAM;
        uint32_t token = 3;
        const bt_ragged_seq_t seq = {.n_rows = 1, .blocks = one.table};
        bt_forward_t fwd = {.seqs = &seq,
                            .n_seqs = 1,
                            .tokens = &token,
                            .n_rows = 1,
                            .kv = one.kv,
                            .groups = &groups};
        float *logits = NULL;

        if (i == 0) {
            second->kind = BT_KV_STATE;
        } else if (i == 1) {
            first->window_tokens = 64;
        } else if (i == 2) {
            second->shape.n_kv_heads = 1;
        } else if (i == 3) {
            first->shape.head_dim += 2;
        } else {
            groups.n_layers = 4;
        }
        assert_int_equal(
            bt_model_check_groups(one.model, &groups, why, sizeof(why)), want);
        assert_non_null(strstr(why, names[i]));
        assert_int_equal(bt_model_forward(one.model, &fwd, &logits),
                         BT_ERR_INVALID_PARAM);
        bt_kv_groups_fini(&groups);
    }
    close_side(&one);
}

/* A model that was loaded for one group has no room for the tables of two, and
 * pages have to hold the largest group. */
static void kv_cache_too_small_is_refused(void **state)
{
    const bt_tiny_model_t tiny = five_layers(0);
    side_t one = open_side(&tiny, BT_KV_F16, NULL, false);
    bt_kv_groups_t groups = groups_of(&one.kv, 0);
    side_t two = open_side(&tiny, BT_KV_F16, &groups, false);
    const size_t n_vocab = bt_model_hparams(one.model)->n_vocab;
    uint32_t token = 3;
    const bt_ragged_seq_t seq = {.n_rows = 1, .blocks = two.table};
    bt_forward_t fwd = {.seqs = &seq,
                        .n_seqs = 1,
                        .tokens = &token,
                        .n_rows = 1,
                        .kv = two.kv,
                        .groups = &groups};
    float *out = bt_calloc(n_vocab, sizeof(*out));
    float *logits = NULL;

    (void)state;
    assert_non_null(out);
    assert_int_equal(bt_model_check_groups(one.model, &groups, why, 4), BT_OK);
    assert_int_equal(bt_model_forward(one.model, &fwd, &logits),
                     BT_ERR_INVALID_PARAM);
    step(&two, &token, 0, 1, out);
    fwd.kv.block_bytes -= 64;
    assert_int_equal(bt_model_forward(two.model, &fwd, &logits),
                     BT_ERR_INVALID_PARAM);
    bt_free(out);
    close_side(&two);
    close_side(&one);
    bt_kv_groups_fini(&groups);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(kv_groups_give_the_bytes_of_one_group),
        BT_TEST(kv_groups_give_the_same_bytes_in_device_memory),
        BT_TEST(impossible_kv_groups_are_refused_by_name),
        BT_TEST(kv_cache_too_small_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
