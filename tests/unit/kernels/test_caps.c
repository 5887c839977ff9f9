/* SPDX-License-Identifier: Apache-2.0 */
/* What a back end lacks is said by name. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/kernels.h"

static char why[256];

static bt_kernels_caps_t some_caps(void)
{
    return (bt_kernels_caps_t){.name = "test/some",
                               .kv_types = 1u << BT_KV_BF16 | 1u << BT_KV_INT8,
                               .max_head_dim = 128,
                               .kv_layout = BT_KV_LAYOUT_PAIRS,
                               .kv_align_bytes = 256,
                               .kv_block_tokens = 16,
                               .max_block_tokens = 64};
}

/* 2 layers, 2 heads of 64: 2 * 2 * 2 * 16 * 64 * 2 bytes */
static bt_kv_view_t good_view(void)
{
    static _Alignas(256) uint8_t pool[256];

    return (bt_kv_view_t){.base = pool,
                          .block_bytes = 16384,
                          .type = BT_KV_BF16,
                          .n_layers = 2,
                          .n_kv_heads = 2,
                          .head_dim = 64,
                          .tokens_per_block = 16};
}

static void assert_refused(const bt_kv_view_t *kv, const char *reason)
{
    const bt_kernels_caps_t caps = some_caps();

    why[0] = '\0';
    assert_int_equal(bt_kernels_check_kv(&caps, kv, why, sizeof(why)),
                     BT_ERR_UNSUPPORTED);
    assert_string_equal(why, reason);
}

static void unsupported_kv_type_is_refused_by_name(void **state)
{
    const bt_kernels_caps_t caps = some_caps();
    bt_kv_view_t kv = good_view();

    (void)state;
    assert_int_equal(bt_kernels_check_kv(&caps, &kv, why, sizeof(why)), BT_OK);
    kv.type = BT_KV_F16;
    assert_refused(&kv, "the test/some back end does not have kv-dtype f16");
    kv.type = (bt_kv_type_t)4;
    assert_refused(&kv,
                   "the test/some back end does not have kv-dtype (unknown)");
    kv = good_view();
    kv.head_dim = 192;
    assert_refused(&kv, "the test/some back end supports heads of at most 128 "
                        "dimensions; the model's have 192");
    kv = good_view();
    kv.tokens_per_block = 24;
    assert_refused(&kv, "tokens-per-block is 24; the test/some back end needs "
                        "a multiple of 16");
    kv.tokens_per_block = 0;
    assert_refused(&kv, "tokens-per-block is 0; the test/some back end needs "
                        "a multiple of 16");
    kv.tokens_per_block = 80;
    assert_refused(&kv, "tokens-per-block is 80; the test/some back end takes "
                        "at most 64");
    kv = good_view();
    kv.block_bytes += 128;
    assert_refused(&kv, "KV blocks of 16512 bytes do not all begin on 256 "
                        "bytes, as the test/some back end needs");
    kv = good_view();
    kv.base = (uint8_t *)kv.base + 64;
    assert_refused(&kv, "KV blocks of 16384 bytes do not all begin on 256 "
                        "bytes, as the test/some back end needs");
    kv.base = NULL; /* not yet known */
    assert_int_equal(bt_kernels_check_kv(&caps, &kv, why, sizeof(why)), BT_OK);
}

static void missing_attention_features_are_named(void **state)
{
    static const float sinks[2] = {0};
    static const char *const names[] = {
        "a sliding window", "a soft cap of its scores", "sinks",
        "values of another width than keys", "linear biases of its scores"};
    const bt_attention_t plain = {
        .n_heads = 2, .key_dim = 64, .value_dim = 64, .scale = 0.125f};
    bt_kernels_caps_t caps = some_caps();
    char want[256];

    (void)state;
    for (uint32_t part = 0; part < 5; part++) {
        bt_attention_t a = plain;

        a.window = (part == 0) ? 1 : 0;
        a.soft_cap = (part == 1) ? 0.5f : 0.0f;
        a.sinks = (part == 2) ? sinks : NULL;
        a.value_dim = (part == 3) ? 32 : 64;
        a.slopes = (part == 4) ? sinks : NULL;
        caps.attention = 0;
        assert_int_equal(
            bt_kernels_check_attention(&caps, &plain, why, sizeof(why)), BT_OK);
        caps.attention = 31u & ~(1u << part);
        assert_int_equal(
            bt_kernels_check_attention(&caps, &a, why, sizeof(why)),
            BT_ERR_UNSUPPORTED);
        snprintf(want, sizeof(want),
                 "the test/some back end does not compute attention with %s",
                 names[part]);
        assert_string_equal(why, want);
        caps.attention = 1u << part;
        assert_int_equal(
            bt_kernels_check_attention(&caps, &a, why, sizeof(why)), BT_OK);
    }
}

static void every_tier_reads_the_documented_layout(void **state)
{
    (void)state;
    for (int tier = 0; tier <= (int)bt_cpu_tier_detect(); tier++) {
        const bt_backend_config_t config = {.n_threads = 1, .max_rows = 1};
        bt_kv_view_t kv = good_view();
        bt_backend_t *be = NULL;

        assert_int_equal(
            bt_cpu_open(bt_cpu_isa((bt_cpu_tier_t)tier), &config, &be), BT_OK);
        assert_int_equal(be->caps->kv_layout, 3);
        assert_int_equal(be->caps->attention,
                         BT_ATTENTION_WINDOW | BT_ATTENTION_SOFT_CAP |
                             BT_ATTENTION_SINKS | BT_ATTENTION_SLOPES);
        assert_false(bt_backend_owns_memory(be));
        assert_null(be->ops->batch_begin); /* it reads the host's arrays */
        assert_int_equal(bt_kernels_check_kv(be->caps, &kv, why, sizeof(why)),
                         BT_OK);
        kv.tokens_per_block = 3;
        assert_int_equal(bt_kernels_check_kv(be->caps, &kv, why, sizeof(why)),
                         BT_ERR_UNSUPPORTED);
        assert_non_null(strstr(why, "needs a multiple of 2"));
        bt_backend_close(be);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(unsupported_kv_type_is_refused_by_name),
        BT_TEST(missing_attention_features_are_named),
        BT_TEST(every_tier_reads_the_documented_layout),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
