/* SPDX-License-Identifier: Apache-2.0 */
/* Opening back ends, packing, and the thread group. */
#include "tests/support/testsupport.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/status.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pool.h"
#include "kernels/kernels.h"

static const bt_backend_config_t two_threads = {.n_threads = 2, .max_rows = 4};

static void unknown_back_end_is_not_found(void **state)
{
    bt_backend_t *be = NULL;

    (void)state;
    assert_int_equal(bt_backend_open("tpu", &two_threads, &be),
                     BT_ERR_NOT_FOUND);
    assert_null(be);
    bt_backend_close(NULL);
}

/* Of 4097 devices none has this ordinal, with a driver or without. */
static void cuda_back_end_reports_no_device_or_no_plugin(void **state)
{
    bt_backend_config_t config = two_threads;
    bt_backend_t *be = NULL;
    bt_status_t status;

    (void)state;
    config.device = 4096;
    status = bt_backend_open("cuda", &config, &be);
    assert_int_equal(status,
                     CUDA_PLUGIN_BUILT ? BT_ERR_NO_DEVICE : BT_ERR_NOT_FOUND);
    assert_null(be);
}

static void zeroed_back_end_configuration_is_refused(void **state)
{
    bt_backend_config_t config = two_threads;
    bt_backend_t *be = NULL;

    (void)state;
    config.n_threads = 0;
    assert_int_equal(bt_backend_open("cpu", &config, &be),
                     BT_ERR_INVALID_PARAM);
    config.n_threads = 100000;
    assert_int_equal(bt_backend_open("cpu", &config, &be),
                     BT_ERR_INVALID_PARAM);
    config = two_threads;
    config.max_rows = 0;
    assert_int_equal(bt_backend_open("cpu", &config, &be),
                     BT_ERR_INVALID_PARAM);
    assert_null(be);
}

static void cpu_has_no_tensor_cores(void **state)
{
    bt_backend_config_t config = two_threads;
    bt_backend_t *be = NULL;
    char why[128] = "";

    (void)state;
    config.numerics = BT_NUMERICS_TENSOR;
    assert_int_equal(bt_backend_open("cpu", &config, &be), BT_ERR_UNSUPPORTED);
    config.why = why;
    config.why_bytes = sizeof(why);
    assert_int_equal(bt_backend_open("cpu", &config, &be), BT_ERR_UNSUPPORTED);
    assert_string_equal(why, "the CPU has exact numerics only, no tensor cores "
                             "(--numerics)");
    assert_null(be);
}

static const char *name_of_opened(void)
{
    bt_backend_t *be = NULL;
    const char *name;

    assert_int_equal(bt_backend_open("cpu", &two_threads, &be), BT_OK);
    name = be->caps->name;
    bt_backend_close(be);
    return name;
}

static void environment_variable_caps_the_tier(void **state)
{
    (void)state;
    assert_int_equal(setenv("BATON_CPU_TIER", "plain", 1), 0);
    assert_string_equal(name_of_opened(), "cpu/plain");

    bt_test_expect_log_lines(1);
    assert_int_equal(setenv("BATON_CPU_TIER", "mmx", 1), 0);
    assert_string_equal(name_of_opened(),
                        (bt_cpu_tier_detect() == BT_CPU_AVX512) ? "cpu/avx512"
                        : (bt_cpu_tier_detect() == BT_CPU_AVX2) ? "cpu/avx2"
                                                                : "cpu/plain");
    assert_int_equal(unsetenv("BATON_CPU_TIER"), 0);
}

static void cpu_capabilities_list_supported_types(void **state)
{
    bt_backend_t *be = NULL;

    (void)state;
    assert_int_equal(bt_backend_open("cpu", &two_threads, &be), BT_OK);
    assert_string_equal(be->caps->profile, "q8-bf16");
    assert_int_equal(be->caps->kv_types, 1u << BT_KV_F16 | 1u << BT_KV_BF16 |
                                             1u << BT_KV_INT8 |
                                             1u << BT_KV_FP8);
    assert_int_equal(be->caps->max_head_dim, 256);
    for (uint32_t type = 0; type < 64; type++) {
        uint32_t n_elems;
        uint32_t n_bytes;
        bool known = bt_ktype_block(type, &n_elems, &n_bytes) == BT_OK;

        assert_int_equal((be->caps->weight_types >> type) & 1u, known);
    }
    bt_backend_close(be);
}

static void kv_types_have_names_and_sizes(void **state)
{
    static const bt_kv_type_info_t want[] = {
        {"f16", 2, 0}, {"bf16", 2, 0}, {"int8", 1, 4}, {"fp8", 1, 4}};
    bt_kv_type_t type = BT_KV_F16;

    (void)state;
    for (uint32_t i = 0; i < BT_ARRAY_LEN(want); i++) {
        const bt_kv_type_info_t *info = bt_kv_type_info(i);

        assert_non_null(info);
        assert_string_equal(info->name, want[i].name);
        assert_int_equal(info->elem_bytes, want[i].elem_bytes);
        assert_int_equal(info->scale_bytes, want[i].scale_bytes);
        assert_int_equal(bt_kv_type_parse(want[i].name, &type), BT_OK);
        assert_int_equal(type, i);
    }
    assert_null(bt_kv_type_info(4));
    assert_null(bt_kv_type_info(UINT32_MAX));
    assert_int_equal(bt_kv_type_parse("fp4", &type), BT_ERR_NOT_FOUND);
    assert_int_equal(bt_kv_type_parse("", &type), BT_ERR_NOT_FOUND);
    assert_int_equal(type, BT_KV_FP8);
}

static void shapes_that_are_not_whole_blocks_are_refused(void **state)
{
    static const uint8_t data[4096];
    bt_backend_t *be = NULL;
    bt_weight_t *w = NULL;

    (void)state;
    assert_int_equal(bt_backend_open("cpu", &two_threads, &be), BT_OK);
    assert_int_equal(be->ops->weight_pack(be, BT_KTYPE_Q8_0, 4, 33, data, &w),
                     BT_ERR_UNSUPPORTED);
    assert_int_equal(be->ops->weight_pack(be, BT_KTYPE_Q4_K, 4, 128, data, &w),
                     BT_ERR_UNSUPPORTED);
    assert_int_equal(be->ops->weight_pack(be, BT_KTYPE_F32, 0, 32, data, &w),
                     BT_ERR_UNSUPPORTED);
    assert_int_equal(be->ops->weight_pack(be, BT_KTYPE_F32, 32, 0, data, &w),
                     BT_ERR_UNSUPPORTED);
    assert_int_equal(be->ops->weight_pack(be, (bt_ktype_t)77, 32, 32, data, &w),
                     BT_ERR_UNSUPPORTED);
    assert_null(w);
    assert_int_equal(be->ops->weight_bytes(BT_KTYPE_Q8_0, 4, 33), 0);
    /* one panel of 32 outputs: 1024 codes and 32 scales of 2 bytes */
    assert_int_equal(be->ops->weight_bytes(BT_KTYPE_Q8_0, 4, 32), 1088);
    /* two panels, 18 groups: 512 bytes of codes, 64 of scales, 64 of minima */
    assert_int_equal(be->ops->weight_bytes(BT_KTYPE_Q4_1, 33, 576),
                     2 * 18 * 640);
    /* 256 k: units and minima's units of 64 bytes each, 8 groups of 512 bytes
     * of codes, 32 scales and 32 minima of a byte */
    assert_int_equal(be->ops->weight_bytes(BT_KTYPE_Q4_K, 32, 256),
                     128 + 8 * (512 + 64));
    /* units of 64 bytes, 8 groups of 768 bytes of codes and two scales */
    assert_int_equal(be->ops->weight_bytes(BT_KTYPE_Q6_K, 32, 256),
                     64 + 8 * (768 + 64));
    /* three groups are two pairs, of 512 bytes of codes and 32 scales each */
    assert_int_equal(be->ops->weight_bytes(BT_KTYPE_MXFP4, 32, 96),
                     4 * (512 + 32));
    be->ops->weight_free(be, NULL);
    bt_backend_close(be);
}

/* No right value, but a reminder: files of packed weights outlive the program.
 * When this fails, raise BT_PACK_VERSION and write the new sum beside it. */
static void packed_layout_has_one_version(void **state)
{
    enum { N_OUT = 33, N_IN = 256 };
    static uint8_t data[N_OUT * N_IN * 4];
    bt_backend_t *be = NULL;
    uint64_t sums[2] = {0}; /* of GGUF's types, and of ours */

    (void)state;
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t)((i * 131 + (i >> 7) * 29 + (i >> 13)) % 60);
    }
    assert_int_equal(bt_backend_open("cpu", &two_threads, &be), BT_OK);
    for (uint32_t type = 0; type < 64; type++) {
        const size_t bytes =
            be->ops->weight_bytes((bt_ktype_t)type, N_OUT, N_IN);
        bt_weight_t *w = NULL;

        if ((be->caps->weight_types & (1ull << type)) == 0) {
            continue;
        }
        assert_int_equal(
            be->ops->weight_pack(be, (bt_ktype_t)type, N_OUT, N_IN, data, &w),
            BT_OK);
        sums[type >= BT_KTYPE_E4M3] = bt_hash64(be->ops->weight_data(w), bytes,
                                                sums[type >= BT_KTYPE_E4M3]);
        be->ops->weight_free(be, w);
    }
    assert_int_equal(be->caps->pack_version, 6);
    assert_true(sums[0] == UINT64_C(0x28d78d119f596928));
    assert_true(sums[1] == UINT64_C(0x987f5619a137c68d));
    bt_backend_close(be);
}

/* Products of a weight and of another over a copy of its bytes. */
static void adopted_bytes_give_the_same_weight(void **state)
{
    enum { N_OUT = 33, N_IN = 64 };
    static _Alignas(64) uint8_t copy[65536];
    static uint8_t data[N_OUT * N_IN * 4];
    static const bt_ktype_t types[] = {BT_KTYPE_Q8_0, BT_KTYPE_Q4_0,
                                       BT_KTYPE_BF16, BT_KTYPE_F16,
                                       BT_KTYPE_F32};
    float x[N_IN];
    float out[2][N_OUT];
    bt_backend_t *be = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t)((i * 37) % 60); /* small exponents: finite */
    }
    for (uint32_t i = 0; i < N_IN; i++) {
        x[i] = (float)i - 20.0f;
    }
    assert_int_equal(bt_backend_open("cpu", &two_threads, &be), BT_OK);
    assert_true(be->caps->pack_version > 0);
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        const size_t bytes = be->ops->weight_bytes(types[t], N_OUT, N_IN);
        bt_weight_t *w[2] = {NULL, NULL};

        assert_in_range(bytes, 1, sizeof(copy) - 64);
        assert_int_equal(
            be->ops->weight_pack(be, types[t], N_OUT, N_IN, data, &w[0]),
            BT_OK);
        memcpy(copy, be->ops->weight_data(w[0]), bytes);
        assert_int_equal(be->ops->weight_adopt(be, types[t], N_OUT, N_IN, copy,
                                               bytes - 1, &w[1]),
                         BT_ERR_INVALID_PARAM);
        assert_int_equal(be->ops->weight_adopt(be, types[t], N_OUT, N_IN,
                                               copy + 32, bytes, &w[1]),
                         BT_ERR_INVALID_PARAM);
        assert_int_equal(be->ops->weight_adopt(be, types[t], N_OUT, N_IN, NULL,
                                               bytes, &w[1]),
                         BT_ERR_INVALID_PARAM);
        assert_int_equal(be->ops->weight_adopt(be, (bt_ktype_t)77, N_OUT, N_IN,
                                               copy, bytes, &w[1]),
                         BT_ERR_UNSUPPORTED);
        assert_null(w[1]);
        assert_int_equal(be->ops->weight_adopt(be, types[t], N_OUT, N_IN, copy,
                                               bytes, &w[1]),
                         BT_OK);
        assert_ptr_equal(be->ops->weight_data(w[1]), copy); /* not copied */
        for (int i = 0; i < 2; i++) {
            be->ops->matmul(be, w[i], x, 1, out[i]);
            be->ops->weight_free(be, w[i]);
        }
        assert_memory_equal(out[0], out[1], sizeof(out[0]));
        assert_true(out[0][0] != out[0][1]);
    }
    bt_backend_close(be);
}

static void
every_failing_allocation_is_reported_and_leaves_nothing(void **state)
{
    static const float data[32] = {1.0f};
    bt_backend_t *be = NULL;
    bt_weight_t *w = NULL;
    bt_status_t status = BT_ERR_NO_MEMORY;
    int nth;

    (void)state;
    for (nth = 1; status != BT_OK; nth++) {
        assert_true(nth < 20);
        bt_alloc_fail_at(nth);
        status = bt_backend_open("cpu", &two_threads, &be);
        bt_alloc_fail_at(0);
        assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
    }
    assert_true(nth > 3);
    status = BT_ERR_NO_MEMORY;
    for (nth = 1; status != BT_OK; nth++) {
        assert_true(nth < 20);
        bt_alloc_fail_at(nth);
        status = be->ops->weight_pack(be, BT_KTYPE_F32, 1, 32, data, &w);
        bt_alloc_fail_at(0);
        assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
    }
    assert_true(nth > 3);
    be->ops->weight_free(be, w);
    bt_backend_close(be);
}

#define N_ITEMS 1000u

static void count_item(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    _Atomic uint32_t *counts = ctx;

    if (thread >= 3) {
        return; /* shows as an item that was not done */
    }
    for (uint32_t i = begin; i < end; i++) {
        atomic_fetch_add(&counts[i], 1);
    }
}

static void pool_runs_every_item_once_at_any_grain(void **state)
{
    static _Atomic uint32_t counts[N_ITEMS];
    static const uint32_t grains[] = {1, 7, 999, 1000, 5000, UINT32_MAX};
    bt_cpu_pool_t *pool = NULL;
    uint32_t done = 0;

    (void)state;
    assert_int_equal(bt_cpu_pool_create(3, NULL, &pool), BT_OK);
    assert_int_equal(bt_cpu_pool_slots(pool), 3);
    for (uint32_t round = 0; round < 2000; round++) {
        uint32_t n = (round % 3 == 0) ? N_ITEMS : round % 50;

        bt_cpu_pool_run(pool, n, grains[round % BT_ARRAY_LEN(grains)],
                        count_item, counts);
        done += n;
        if (round % 100 == 0) {
            usleep(300); /* lets helpers fall asleep: both ways to wake */
        }
    }
    for (uint32_t i = 0; i < N_ITEMS; i++) {
        done -= atomic_load(&counts[i]);
    }
    assert_int_equal(done, 0);
    assert_int_equal(atomic_load(&counts[N_ITEMS - 1]), 667);
    bt_cpu_pool_destroy(pool);
    bt_cpu_pool_destroy(NULL);
}

#define N_SHARED  302u
#define N_THREADS 3u

typedef struct shares {
    _Atomic uint32_t n_threads; /* that have begun */
    uint32_t first[N_THREADS];
    _Atomic uint32_t counts[N_SHARED];
} shares_t;

/* Nobody goes on before all have begun. */
static void begin_together(void *ctx, uint32_t thread, uint32_t begin,
                           uint32_t end)
{
    shares_t *shares = ctx;
    const uint64_t end_ms = bt_now_ms() + 60000;

    if (shares->first[thread] == UINT32_MAX) {
        shares->first[thread] = begin;
        atomic_fetch_add(&shares->n_threads, 1);
    }
    while ((atomic_load(&shares->n_threads) < N_THREADS) &&
           (bt_now_ms() < end_ms)) {
        sched_yield();
    }
    for (uint32_t i = begin; i < end; i++) {
        atomic_fetch_add(&shares->counts[i], 1);
    }
}

static void each_thread_begins_with_a_contiguous_share(void **state)
{
    shares_t shares = {.first = {UINT32_MAX, UINT32_MAX, UINT32_MAX}};
    bt_cpu_pool_t *pool = NULL;

    (void)state;
    assert_int_equal(bt_cpu_pool_create(N_THREADS, NULL, &pool), BT_OK);
    bt_cpu_pool_run(pool, N_SHARED, 2, begin_together, &shares);
    assert_int_equal(shares.first[0], 0);
    assert_int_equal(shares.first[1], 100);
    assert_int_equal(shares.first[2], 201);
    for (uint32_t i = 0; i < N_SHARED; i++) {
        assert_int_equal(atomic_load(&shares.counts[i]), 1);
    }
    bt_cpu_pool_destroy(pool);
}

typedef struct preparation {
    uint32_t n[N_THREADS];       /* prepare() calls; each thread's own */
    _Atomic uint32_t unprepared; /* chunks that came too early */
    _Atomic uint32_t counts[N_SHARED];
} preparation_t;

static void prepare_once(void *ctx, uint32_t thread)
{
    preparation_t *p = ctx;

    p->n[thread]++;
}

static void count_prepared(void *ctx, uint32_t thread, uint32_t begin,
                           uint32_t end)
{
    preparation_t *p = ctx;

    if (p->n[thread] != 1) {
        atomic_fetch_add(&p->unprepared, 1);
    }
    for (uint32_t i = begin; i < end; i++) {
        atomic_fetch_add(&p->counts[i], 1);
    }
}

static void thread_prepares_once_before_its_first_items(void **state)
{
    static const uint32_t grains[] = {1, 7, N_SHARED};
    bt_cpu_pool_t *pool = NULL;

    (void)state;
    assert_int_equal(bt_cpu_pool_create(N_THREADS, NULL, &pool), BT_OK);
    for (uint32_t round = 0; round < 300; round++) {
        preparation_t p = {.unprepared = 0};
        const bt_cpu_job_t job = {.prepare = prepare_once,
                                  .fn = count_prepared,
                                  .ctx = &p,
                                  .n_items = N_SHARED,
                                  .grain = grains[round % 3]};

        bt_cpu_pool_run_job(pool, &job);
        assert_int_equal(atomic_load(&p.unprepared), 0);
        for (uint32_t i = 0; i < N_SHARED; i++) {
            assert_int_equal(atomic_load(&p.counts[i]), 1);
        }
    }
    bt_cpu_pool_destroy(pool);
}

static void missing_core_is_a_warning(void **state)
{
    static const uint32_t cores[] = {100000, 100001};
    bt_cpu_pool_t *pool = NULL;

    (void)state;
    bt_test_expect_log_lines(2);
    assert_int_equal(bt_cpu_pool_create(2, cores, &pool), BT_OK);
    bt_cpu_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(unknown_back_end_is_not_found),
        BT_TEST(cuda_back_end_reports_no_device_or_no_plugin),
        BT_TEST(zeroed_back_end_configuration_is_refused),
        BT_TEST(cpu_has_no_tensor_cores),
        BT_TEST(environment_variable_caps_the_tier),
        BT_TEST(cpu_capabilities_list_supported_types),
        BT_TEST(kv_types_have_names_and_sizes),
        BT_TEST(shapes_that_are_not_whole_blocks_are_refused),
        BT_TEST(packed_layout_has_one_version),
        BT_TEST(adopted_bytes_give_the_same_weight),
        BT_TEST(every_failing_allocation_is_reported_and_leaves_nothing),
        BT_TEST(pool_runs_every_item_once_at_any_grain),
        BT_TEST(each_thread_begins_with_a_contiguous_share),
        BT_TEST(thread_prepares_once_before_its_first_items),
        BT_TEST(missing_core_is_a_warning),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
