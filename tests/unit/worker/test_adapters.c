/* SPDX-License-Identifier: Apache-2.0 */
/* The adapters of a worker's options, by the digests of their content. */
#include "worker/adapters.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "inference/adapter/adapter.h"
#include "tests/support/hf_folder.h"
#include "tests/support/testsupport.h"
#include "tests/support/tiny_model.h"
#include "worker/start.h"

typedef struct bench {
    bt_config_t config;
    bt_worker_t w;
    bt_start_t s;
    char lora[512];
} bench_t;

static bench_t *open_bench(void)
{
    const bt_backend_config_t be_config = {.n_threads = 1, .max_rows = 8};
    const bt_model_config_t config = {.max_rows = 8,
                                      .max_logit_rows = 8,
                                      .context_tokens = 64,
                                      .max_lora_rank = 4};
    const bt_tiny_model_t tiny = bt_tiny_model_default();
    char path[] = "/tmp/baton-test-adapters-XXXXXX";
    const int fd = mkstemp(path);
    bench_t *const b = calloc(1, sizeof(*b));
    char why[256];

    assert_true((fd >= 0) && (b != NULL));
    close(fd);
    assert_int_equal(bt_tiny_model_write(&tiny, path), BT_OK);
    assert_int_equal(bt_gguf_open(path, why, sizeof(why), &b->s.gguf), BT_OK);
    unlink(path);
    assert_int_equal(bt_backend_open("cpu", &be_config, &b->w.backend), BT_OK);
    assert_int_equal(bt_model_load(b->s.gguf, b->w.backend, &config, why,
                                   sizeof(why), &b->w.model),
                     BT_OK);
    b->w.config = &b->config;
    b->config.lora = b->lora;
    b->config.max_lora_rank = 4;
    return b;
}

static void close_bench(bench_t *b)
{
    bt_adapters_close(&b->w);
    bt_model_destroy(b->w.model);
    bt_backend_close(b->w.backend);
    bt_gguf_close(b->s.gguf);
    free(b);
}

/* Adapter of one matrix. @return its folder */
static const char *write_adapter(uint32_t rank)
{
    static const float numbers[64 * 8] = {1.0f};
    const char *const dir = bt_hf_folder_make();
    bt_st_file_t file;
    char a[16], b[16];

    snprintf(a, sizeof(a), "%u,64", rank);
    snprintf(b, sizeof(b), "64,%u", rank);
    bt_hf_folder_text(dir, "adapter_config.json",
                      "{\"peft_type\":\"LORA\",\"lora_alpha\":1}");
    bt_st_file_init(&file);
    bt_st_file_add(
        &file, "base_model.model.model.layers.0.self_attn.o_proj.lora_A.weight",
        "F32", a, numbers, rank * 64 * sizeof(float));
    bt_st_file_add(
        &file, "base_model.model.model.layers.0.self_attn.o_proj.lora_B.weight",
        "F32", b, numbers, rank * 64 * sizeof(float));
    bt_st_file_write(&file, dir, "adapter_model.safetensors");
    return dir;
}

static void adapter_is_found_by_its_digest(void **state)
{
    bench_t *const b = open_bench();
    bt_adapter_t *adapter = NULL;
    char dir[128];
    char why[256];

    (void)state;
    snprintf(dir, sizeof(dir), "%s", write_adapter(2));
    assert_int_equal(bt_adapters_max_rank(&b->config), 0);
    assert_int_equal(bt_adapters_open(&b->w, &b->s), BT_OK);
    assert_int_equal(b->w.adapters.n, 0);
    snprintf(b->lora, sizeof(b->lora), "a=%s;b=%s", dir, dir);
    assert_int_equal(bt_adapters_max_rank(&b->config), 4);
    assert_true(bt_adapters_estimate(&b->config) > 2 * 2 * 2 * 64 * 4);
    assert_int_equal(bt_adapters_open(&b->w, &b->s), BT_OK);
    assert_int_equal(b->w.adapters.n, 1); /* equal content is there once */
    assert_int_equal(
        bt_adapter_open(dir, b->s.gguf, why, sizeof(why), &adapter), BT_OK);
    assert_string_equal(bt_adapters_find(&b->w, adapter->digest)->name, "a");
    adapter->digest.lo++;
    assert_null(bt_adapters_find(&b->w, adapter->digest));
    bt_adapter_free(adapter);
    close_bench(b);
    bt_hf_folder_remove(dir);
}

static void adapter_of_too_large_a_rank_ends_the_start(void **state)
{
    bench_t *const b = open_bench();
    char dir[128];

    (void)state;
    snprintf(dir, sizeof(dir), "%s", write_adapter(5));
    snprintf(b->lora, sizeof(b->lora), "a=%s", dir);
    bt_test_expect_log_lines(2);
    assert_int_equal(bt_adapters_open(&b->w, &b->s), BT_ERR_UNSUPPORTED);
    snprintf(b->lora, sizeof(b->lora), "a=/nowhere");
    assert_int_equal(bt_adapters_estimate(&b->config), 0);
    bt_adapters_close(&b->w);
    assert_int_equal(bt_adapters_open(&b->w, &b->s), BT_ERR_NOT_FOUND);
    close_bench(b);
    bt_hf_folder_remove(dir);
}

/* Carries an order out. @return adapters that are here then */
static uint32_t order(bench_t *b, bt_hash128_t digest, const char *path)
{
    bt_msg_adapter_t msg = {.adapter = digest, .loads = 1, .name = "later"};
    const uint64_t end_ms = bt_now_ms() + 60000;

    snprintf(msg.path, sizeof(msg.path), "%s", path);
    bt_adapters_on_order(&b->w, NULL, &msg);
    while (!bt_list_empty(&b->w.adapters.loads)) {
        assert_true(bt_now_ms() < end_ms);
        bt_adapters_step(&b->w);
        sched_yield();
    }
    return b->w.adapters.n;
}

static void adapter_is_loaded_on_order_and_dropped_when_unused(void **state)
{
    const bt_msg_adapter_t drop = {.loads = 0};
    bench_t *const b = open_bench();
    bt_msg_adapter_t msg = drop;
    bt_adapter_t *adapter = NULL;
    bt_worker_adapter_t *at;
    char dir[128];
    char why[256];

    (void)state;
    snprintf(dir, sizeof(dir), "%s", write_adapter(2));
    b->config.lora_dir = "/tmp";
    b->config.lora_memory_bytes = 4096 + 2048; /* one, as padded */
    assert_int_equal(bt_adapters_max_rank(&b->config), 4);
    assert_int_equal(bt_adapters_open(&b->w, &b->s), BT_OK);
    assert_int_equal(
        bt_adapter_open(dir, b->s.gguf, why, sizeof(why), &adapter), BT_OK);
    msg.adapter = adapter->digest;
    bt_test_expect_log_lines(3);
    assert_int_equal(order(b, (bt_hash128_t){1, 2}, dir), 0); /* others */
    assert_int_equal(order(b, adapter->digest, "/etc"), 0);
    b->config.lora_memory_bytes = 100;
    assert_int_equal(order(b, adapter->digest, dir), 0);
    b->config.lora_memory_bytes = 4096 + 2048;
    assert_int_equal(order(b, adapter->digest, dir), 1);
    assert_int_equal(order(b, adapter->digest, dir), 1); /* again */
    at = bt_adapters_find(&b->w, adapter->digest);
    at->n_jobs = 1;
    bt_adapters_on_order(&b->w, NULL, &msg);
    bt_adapters_step(&b->w);
    assert_int_equal(b->w.adapters.n, 1); /* a job has it */
    at->n_jobs = 0;
    bt_adapters_step(&b->w);
    assert_int_equal(b->w.adapters.n, 0);
    assert_int_equal(b->w.adapters.bytes, 0);
    assert_int_equal(order(b, adapter->digest, dir), 1);
    bt_adapters_router_gone(&b->w, NULL);
    bt_adapters_step(&b->w);
    assert_int_equal(b->w.adapters.n, 0);
    bt_adapter_free(adapter);
    close_bench(b);
    bt_hf_folder_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(adapter_is_found_by_its_digest),
        BT_TEST(adapter_is_loaded_on_order_and_dropped_when_unused),
        BT_TEST(adapter_of_too_large_a_rank_ends_the_start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
