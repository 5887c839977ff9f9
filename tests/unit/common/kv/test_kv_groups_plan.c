/* SPDX-License-Identifier: Apache-2.0 */
/* Which layers share a group. Shapes and windows are those of published models'
 * config.json; the divisions are worked by hand. */
#include "tests/support/testsupport.h"

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/kv/kv_groups.h"

#define MOST_LAYERS 64u

static const bt_kv_shape_t one_layer = {.n_layers = 1,
                                        .n_kv_heads = 2,
                                        .tokens_per_block = 16,
                                        .head_dim = 64,
                                        .elem_bytes = 2};
#define LAYER_BYTES (2u * 2 * 16 * 64 * 2)

/* All layers but each n-th have the window; 0: all of them. */
static bt_kv_groups_t plan(uint32_t n_layers, uint32_t window, uint32_t each,
                           uint32_t context_tokens)
{
    uint32_t windows[MOST_LAYERS] = {0};
    bt_kv_shape_t shape = one_layer;
    bt_kv_groups_t groups;

    shape.n_layers = n_layers;
    for (uint32_t i = 0; i < n_layers; i++) {
        windows[i] = ((each != 0) && ((i + 1) % each == 0)) ? 0 : window;
    }
    assert_int_equal(
        bt_kv_groups_plan(&shape, windows, context_tokens, &groups), BT_OK);
    for (uint32_t i = 0; i < n_layers; i++) {
        const bt_kv_layer_slot_t slot = bt_kv_layer_slot(&groups, i);

        assert_int_equal(groups.group[slot.group].window_tokens,
                         (windows[i] >= context_tokens) ? 0 : windows[i]);
    }
    return groups;
}

/* Gemma 3 1B: 26 layers, each sixth sees all (6, 12, 18, 24): 4 and 22. With 4
 * layers a page there are 6 groups of windows, with 2 layers it would be 11. */
static void five_of_six_windowed_layers_fill_pages_like_the_sixth(void **state)
{
    static const uint32_t n_in[] = {4, 4, 4, 4, 3, 3, 4};
    bt_kv_groups_t groups = plan(26, 512, 6, 32768);

    (void)state;
    assert_int_equal(groups.n, 7);
    assert_int_equal(groups.page_bytes, 4 * LAYER_BYTES);
    for (uint32_t g = 0; g < 7; g++) {
        assert_int_equal(groups.group[g].shape.n_layers, n_in[g]);
        assert_int_equal(groups.group[g].window_tokens, (g < 6) ? 512 : 0);
    }
    assert_int_equal(bt_kv_groups_n_whole(&groups), 1);
    assert_int_equal(bt_kv_layer_slot(&groups, 5).group, 6);
    assert_int_equal(bt_kv_layer_slot(&groups, 4).group,
                     1); /* 0 .. 3 are in 0 */
    assert_int_equal(bt_kv_layer_slot(&groups, 4).index, 0);
    assert_int_equal(bt_kv_layer_slot(&groups, 25).group, 5);
    bt_kv_groups_fini(&groups);
}

static void page_plans_of_other_families_need_no_padding(void **state)
{
    static const struct {
        uint32_t n_layers, window, each, context, n_groups, page_layers;
    } cases[] = {
        {26, 4096, 2, 8192, 2, 13},   /* Gemma 2 2B: 13 and 13 */
        {34, 1024, 6, 131072, 7, 5},  /* Gemma 3 4B: 5, 29 in 6 */
        {48, 1024, 6, 131072, 6, 8},  /* Gemma 3 12B: 8, 40 in 5 */
        {62, 1024, 6, 131072, 7, 10}, /* Gemma 3 27B: 10, 52 in 6 */
        {32, 4096, 4, 131072, 4, 8},  /* Command R7B: 8, 24 in 3 */
        {32, 4096, 0, 32768, 1, 32},  /* Mistral 7B v0.1: all */
        {32, 2047, 0, 4096, 1, 32},   /* Phi-3 mini: all */
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        bt_kv_groups_t groups = plan(cases[i].n_layers, cases[i].window,
                                     cases[i].each, cases[i].context);

        assert_int_equal(groups.n, cases[i].n_groups);
        assert_int_equal(groups.page_bytes, cases[i].page_layers * LAYER_BYTES);
        bt_kv_groups_fini(&groups);
    }
}

/* So it is to builds that know no groups, and to those who keep all. */
static void window_as_long_as_the_context_counts_as_full_attention(void **state)
{
    bt_kv_groups_t all, none, shorter;
    bt_kv_shape_t shape = one_layer;
    bt_hash128_t id, want;

    (void)state;
    shape.n_layers = 26;
    want = bt_kv_layout_identity(&shape, 1, 3);
    all = plan(26, 4096, 2, 4096);
    none = plan(26, 0, 0, 4096);
    shorter = plan(26, 4096, 2, 4097);
    assert_int_equal(all.n, 1);
    assert_null(all.layer_slots);
    id = bt_kv_groups_identity(&all, 1, 3);
    assert_memory_equal(&id, &want, sizeof(id));
    id = bt_kv_groups_identity(&none, 1, 3);
    assert_memory_equal(&id, &want, sizeof(id));
    assert_int_equal(shorter.n, 2);
    id = bt_kv_groups_identity(&shorter, 1, 3);
    assert_memory_not_equal(&id, &want, sizeof(id));
    bt_kv_groups_fini(&all);
    bt_kv_groups_fini(&none);
    bt_kv_groups_fini(&shorter);
}

/* No division into at most eight groups takes fewer bytes of the longest
 * sequence: all of one size of page, which is all that matters, are tried. */
static void chosen_page_size_is_minimal(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= MOST_LAYERS; n++) {
        for (uint32_t each = 1; each <= 9; each++) {
            bt_kv_groups_t groups = plan(n, 512, each, 8192);
            const uint64_t n_all = n / each;
            const uint64_t n_windowed = n - n_all;
            uint64_t least = UINT64_MAX;
            uint64_t got = 0;

            for (uint64_t page = 1; page <= n; page++) {
                const uint64_t whole = (n_all + page - 1) / page;
                const uint64_t windowed = (n_windowed + page - 1) / page;
                const uint64_t cost = page * (whole * 8192 + windowed * 512);

                if ((whole + windowed <= BT_KV_MAX_GROUPS) && (cost < least)) {
                    least = cost;
                }
            }
            for (uint32_t g = 0; g < groups.n; g++) {
                got += groups.page_bytes / LAYER_BYTES *
                       ((groups.group[g].window_tokens == 0) ? 8192 : 512);
            }
            assert_int_equal(got, least);
            bt_kv_groups_fini(&groups);
        }
    }
}

static void impossible_page_plans_are_refused(void **state)
{
    uint32_t windows[BT_KV_MAX_GROUPS + 1] = {0};
    bt_kv_shape_t shape = one_layer;
    bt_kv_groups_t groups;
    int nth = 0;
    bt_status_t status;

    (void)state;
    shape.n_layers = 0;
    assert_int_equal(bt_kv_groups_plan(&shape, windows, 100, &groups),
                     BT_ERR_INVALID_PARAM);
    shape.n_layers = BT_KV_MAX_GROUPS + 1;
    for (uint32_t i = 0; i <= BT_KV_MAX_GROUPS; i++) {
        windows[i] = 10 + i;
    }
    assert_int_equal(bt_kv_groups_plan(&shape, windows, 100, &groups),
                     BT_ERR_UNSUPPORTED);
    windows[3] = windows[1];
    do {
        bt_alloc_fail_at(++nth);
        status = bt_kv_groups_plan(&shape, windows, 100, &groups);
        assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
    } while (status != BT_OK);
    bt_alloc_fail_at(0);
    assert_int_equal(nth, 3);
    assert_int_equal(groups.n, 8);
    bt_kv_groups_fini(&groups);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(five_of_six_windowed_layers_fill_pages_like_the_sixth),
        BT_TEST(page_plans_of_other_families_need_no_padding),
        BT_TEST(window_as_long_as_the_context_counts_as_full_attention),
        BT_TEST(chosen_page_size_is_minimal),
        BT_TEST(impossible_page_plans_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
