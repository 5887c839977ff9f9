/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of groups; sizes worked by hand. */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/kv/kv_groups.h"
#include "tests/support/testsupport.h"

/* 2 x 3 layers x 1 head x 4 slots x (6 dims x 1 byte + 4 of a scale). */
static const bt_kv_shape_t small = {.n_layers = 3,
                                    .n_kv_heads = 1,
                                    .tokens_per_block = 4,
                                    .head_dim = 6,
                                    .elem_bytes = 1,
                                    .scale_bytes = 4};
#define SMALL_BYTES (2 * 3 * 1 * 4 * (6 * 1 + 4))

static const uint8_t mixed[] = {1, 0, 0, 2, 1, 0};

static void three(bt_kv_group_t list[3])
{
    memset(list, 0, 3 * sizeof(*list));
    list[0].shape = small;
    list[1].shape = small;
    list[1].shape.n_layers = 2;
    list[1].window_tokens = 6;
    list[2].kind = BT_KV_STATE;
    list[2].shape.n_layers = 1;
    list[2].shape.tokens_per_block = 4;
    list[2].state_bytes = 1000;
}

static void equal_layers_form_one_group(void **state)
{
    bt_kv_groups_t groups;
    bt_hash128_t id;
    const bt_hash128_t before = bt_kv_layout_identity(&small, 3, 3);

    (void)state;
    assert_int_equal(
        bt_kv_groups_init(&(bt_kv_group_t){.kind = BT_KV_PAGED, .shape = small},
                          1, NULL, small.n_layers, &groups),
        BT_OK);
    assert_int_equal(groups.n, 1);
    assert_int_equal(groups.n_layers, 3);
    assert_int_equal(groups.page_bytes, SMALL_BYTES);
    assert_int_equal(groups.block_bytes[0], SMALL_BYTES);
    assert_int_equal(bt_kv_layer_slot(&groups, 2).group, 0);
    assert_int_equal(bt_kv_layer_slot(&groups, 2).index, 2);
    assert_int_equal(bt_kv_groups_layer_bytes(&groups), 2 * 4 * 6);
    assert_int_equal(bt_kv_group_bytes_of(&groups, 0, 0), 0);
    assert_int_equal(bt_kv_group_bytes_of(&groups, 0, 2), 2 * 2 * 4 * 6);
    assert_int_equal(bt_kv_group_bytes_of(&groups, 0, 3), SMALL_BYTES);
    /* To builds that know no groups it is what it was. */
    id = bt_kv_groups_identity(&groups, 3, 3);
    assert_memory_equal(&id, &before, sizeof(id));
    bt_kv_groups_fini(&groups);
}

static void layers_map_to_groups_and_pages_hold_any_group(void **state)
{
    bt_kv_group_t list[3];
    bt_kv_groups_t groups;

    (void)state;
    three(list);
    assert_int_equal(bt_kv_groups_init(list, 3, mixed, 6, &groups), BT_OK);
    assert_int_equal(groups.n, 3);
    assert_int_equal(groups.tokens_per_block, 4);
    for (uint32_t i = 0; i < 6; i++) {
        static const uint32_t index[] = {0, 0, 1, 0, 1, 2};

        assert_int_equal(bt_kv_layer_slot(&groups, i).group, mixed[i]);
        assert_int_equal(bt_kv_layer_slot(&groups, i).index, index[i]);
    }
    assert_int_equal(groups.block_bytes[0], SMALL_BYTES);
    assert_int_equal(groups.block_bytes[1], SMALL_BYTES / 3 * 2);
    assert_int_equal(groups.block_bytes[2], 1000);
    assert_int_equal(groups.page_bytes, 1000);
    /* (5 layers of 48 and a state of 1000) / 6 */
    assert_int_equal(bt_kv_groups_layer_bytes(&groups), 1240 / 6);
    /* Layers 0, 1, 2 are there: both of group 0 in sight, one of group 1. */
    assert_int_equal(bt_kv_group_bytes_of(&groups, 0, 3), 2 * 48);
    assert_int_equal(bt_kv_group_bytes_of(&groups, 1, 3), 48);
    assert_int_equal(bt_kv_group_bytes_of(&groups, 2, 3), 0);
    assert_int_equal(bt_kv_group_bytes_of(&groups, 2, 4), 1000);
    assert_int_equal(bt_kv_group_bytes_of(&groups, 1, 5), SMALL_BYTES / 3 * 2);
    bt_kv_groups_fini(&groups);
}

/* Spans of 4 tokens. */
/* Layers 2 … 4 of the model are in groups 0, 2 and 1; layer 4 alone leaves two
 * of them empty. */
static void rank_share_has_its_layers_of_each_group(void **state)
{
    bt_kv_group_t list[3];
    bt_kv_groups_t whole;
    bt_kv_groups_t own;

    (void)state;
    three(list);
    assert_int_equal(bt_kv_groups_init(list, 3, mixed, 6, &whole), BT_OK);
    assert_int_equal(bt_kv_groups_share(&whole, 2, 3, 1, &own), BT_OK);
    assert_int_equal(own.n, 3);
    assert_int_equal(own.n_layers, 3);
    assert_int_equal(own.block_bytes[0], SMALL_BYTES / 3);
    assert_int_equal(own.block_bytes[1], SMALL_BYTES / 3);
    assert_int_equal(own.block_bytes[2], 1000);
    assert_int_equal(own.page_bytes, 1000);
    assert_int_equal(bt_kv_layer_slot(&own, 0).group, 0);
    assert_int_equal(bt_kv_layer_slot(&own, 1).group, 2);
    assert_int_equal(bt_kv_layer_slot(&own, 2).group, 1);
    assert_int_equal(bt_kv_layer_slot(&own, 2).index, 0);
    /* What is done of the model before, within and behind them. */
    assert_int_equal(bt_kv_group_bytes_of(&own, 0, 2), 0);
    assert_int_equal(bt_kv_group_bytes_of(&own, 0, 3), SMALL_BYTES / 3);
    assert_int_equal(bt_kv_group_bytes_of(&own, 1, 4), 0);
    assert_int_equal(bt_kv_group_bytes_of(&own, 1, 6), SMALL_BYTES / 3);
    bt_kv_groups_fini(&own);

    assert_int_equal(bt_kv_groups_share(&whole, 4, 1, 2, &own), BT_OK);
    assert_int_equal(own.group[0].shape.n_layers, 0);
    assert_int_equal(own.block_bytes[0], 0);
    assert_int_equal(own.block_bytes[2], 0);
    assert_int_equal(own.page_bytes, 2 * SMALL_BYTES / 3);
    assert_int_equal(bt_kv_group_bytes_of(&own, 0, 6), 0);
    bt_kv_groups_fini(&own);
    assert_int_equal(bt_kv_groups_share(&whole, 4, 3, 1, &own),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_kv_groups_share(&whole, 4, 0, 1, &own),
                     BT_ERR_INVALID_PARAM);
    bt_kv_groups_fini(&whole);
}

static void group_keeps_positions_that_later_tokens_attend_to(void **state)
{
    static const struct {
        uint64_t n_tokens;
        uint32_t all, window, state;
    } cases[] = {
        {0, 0, 0, 0},
        {1, 0, 0, 0},
        {4, 0, 0, 0},
        {5, 0, 0, 1},
        {8, 0, 0, 1},                 /* token 8 sees 3 .. 8 */
        {9, 0, 1, 2},                 /* token 9 sees 4 .. 9 */
        {12, 0, 1, 2},                /* 7 .. 12 */
        {13, 0, 2, 3},                /* 8 .. 13 */
        {1000001, 0, 249999, 250000}, /* 999996 .. 1000001 */
    };
    bt_kv_group_t list[3];
    bt_kv_group_t narrow;

    (void)state;
    three(list);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        const uint64_t n = cases[i].n_tokens;

        assert_int_equal(bt_kv_group_first_span(&list[0], n), cases[i].all);
        assert_int_equal(bt_kv_group_first_span(&list[1], n), cases[i].window);
        assert_int_equal(bt_kv_group_first_span(&list[2], n), cases[i].state);
    }
    narrow = list[1];
    narrow.window_tokens = 1; /* a token sees itself */
    assert_int_equal(bt_kv_group_first_span(&narrow, 8), 2);
    assert_int_equal(bt_kv_group_first_span(&narrow, 7), 1);
}

static void group_list_identity_covers_every_field(void **state)
{
    static const uint8_t turned[] = {0, 1, 0, 2, 1, 0};
    bt_hash128_t ids[9];
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < 8; i++) {
        bt_kv_group_t list[3];
        bt_kv_groups_t groups;

        three(list);
        list[0].shape.head_dim += (i == 1) ? 2 : 0;
        list[1].window_tokens += (i == 2) ? 1 : 0;
        list[1].window_tokens = (i == 3) ? 0 : list[1].window_tokens;
        list[2].state_bytes += (i == 4);
        list[1].shape.n_kv_heads += (i == 5);
        assert_int_equal(
            bt_kv_groups_init(list, 3, (i == 6) ? turned : mixed, 6, &groups),
            BT_OK);
        ids[n++] = bt_kv_groups_identity(&groups, (i == 7) ? 2 : 3, 3);
        bt_kv_groups_fini(&groups);
    }
    { /* one group with a window is not one without */
        bt_kv_group_t alone = {.shape = small, .window_tokens = 64};
        bt_kv_groups_t groups;

        assert_int_equal(bt_kv_groups_init(&alone, 1, NULL, 3, &groups), BT_OK);
        ids[n++] = bt_kv_groups_identity(&groups, 3, 3);
        bt_kv_groups_fini(&groups);
    }
    for (size_t i = 0; i < n; i++) {
        const bt_hash128_t plain = bt_kv_layout_identity(&small, 3, 3);

        assert_memory_not_equal(&ids[i], &plain, sizeof(plain));
        for (size_t k = 0; k < i; k++) {
            assert_memory_not_equal(&ids[i], &ids[k], sizeof(ids[i]));
        }
    }
}

static void invalid_group_list_is_refused(void **state)
{
    static const uint8_t beyond[] = {1, 0, 0, 3, 1, 0};
    bt_kv_groups_t groups = {.n = 77};

    (void)state;
    for (size_t i = 0; i < 12; i++) {
        bt_kv_group_t list[BT_KV_MAX_GROUPS + 1] = {0};
        const uint8_t *group_of = (i == 1) ? beyond : mixed;
        uint32_t n = 3;

        three(list);
        switch (i) {
        case 0:
            n = 0;
            break;
        case 2:
            n = BT_KV_MAX_GROUPS + 1;
            break;
        case 3:
            list[0].shape.n_layers = 2; /* there are three */
            break;
        case 4:
            list[1].shape.tokens_per_block = 8;
            break;
        case 5:
            list[2].state_bytes = 0;
            break;
        case 6:
            list[2].kind = (bt_kv_kind_t)2;
            break;
        case 7:
            list[1].shape.head_dim = 0;
            break;
        case 8:
            list[2].window_tokens = 4; /* of a state */
            break;
        case 9:
            list[0].shape.tokens_per_block = 0;
            break;
        case 10:
            n = 1; /* but more layers */
            break;
        case 11:
            list[2].shape.n_layers = 0;
            break;
        default:
            break;
        }
        assert_int_equal(bt_kv_groups_init(list, n, group_of, 6, &groups),
                         BT_ERR_INVALID_PARAM);
    }
    {
        bt_kv_group_t list[3];

        three(list);
        list[2].shape.n_layers = 2;
        list[2].state_bytes = SIZE_MAX / 2 + 1;
        assert_int_equal(bt_kv_groups_init(list, 3, mixed, 6, &groups),
                         BT_ERR_OVERFLOW);
        three(list);
        bt_alloc_fail_at(1);
        assert_int_equal(bt_kv_groups_init(list, 3, mixed, 6, &groups),
                         BT_ERR_NO_MEMORY);
        bt_alloc_fail_at(0);
    }
    assert_int_equal(groups.n, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(equal_layers_form_one_group),
        BT_TEST(layers_map_to_groups_and_pages_hold_any_group),
        BT_TEST(rank_share_has_its_layers_of_each_group),
        BT_TEST(group_keeps_positions_that_later_tokens_attend_to),
        BT_TEST(group_list_identity_covers_every_field),
        BT_TEST(invalid_group_list_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
