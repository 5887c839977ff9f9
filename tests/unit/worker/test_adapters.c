/* SPDX-License-Identifier: Apache-2.0 */
/* The adapters of a worker's options, by the digests of their content. */
#include "worker/adapters.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/link/link_priv.h"
#include "inference/adapter/adapter.h"
#include "inference/adapter/adapter_tensors.h"
#include "tests/support/hf_folder.h"
#include "tests/support/testsupport.h"
#include "tests/support/tiny_model.h"
#include "worker/start.h"

typedef struct bench {
    bt_config_t config;
    bt_worker_t w;
    bt_start_t s;
    bt_control_t control;
    bt_link_t links[2]; /* keep what is posted */
    bt_worker_link_t routers[2];
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
    bt_list_init(&b->control.dirty);
    b->control.max_queue_bytes = 1u << 20;
    bt_strbuf_init(&b->w.out, 1u << 20);
    for (size_t i = 0; i < BT_ARRAY_LEN(b->links); i++) {
        b->links[i].control = &b->control;
        b->links[i].state = LINK_UP;
        bt_list_init(&b->links[i].in_dirty);
        bt_strbuf_init(&b->links[i].out, 1u << 20);
        b->routers[i].control = &b->links[i];
    }
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
    bt_strbuf_fini(&b->links[0].out);
    bt_strbuf_fini(&b->links[1].out);
    bt_strbuf_fini(&b->w.out);
    free(b);
}

/* Adapter of one matrix, whose A has numbers of that type and size.
 * @return its folder */
static const char *write_adapter_of(uint32_t rank, const char *a_type,
                                    size_t a_bytes)
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
        a_type, a, numbers, rank * 64 * a_bytes);
    bt_st_file_add(
        &file, "base_model.model.model.layers.0.self_attn.o_proj.lora_B.weight",
        "F32", b, numbers, rank * 64 * sizeof(float));
    bt_st_file_write(&file, dir, "adapter_model.safetensors");
    return dir;
}

static const char *write_adapter(uint32_t rank)
{
    return write_adapter_of(rank, "F32", sizeof(float));
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

/* A's rows are padded to 16 numbers, and where one matrix is F16 and the other
 * F32, both are F32. */
static void memory_is_known_before_the_adapters_are_read(void **state)
{
    bench_t *const b = open_bench();
    char dirs[3][128];
    uint64_t bytes = 0;

    (void)state;
    snprintf(dirs[0], sizeof(dirs[0]), "%s", write_adapter(1));
    snprintf(dirs[1], sizeof(dirs[1]), "%s", write_adapter(4));
    snprintf(dirs[2], sizeof(dirs[2]), "%s", write_adapter_of(3, "F16", 2));
    snprintf(b->lora, sizeof(b->lora), "a=%s;b=%s;c=%s", dirs[0], dirs[1],
             dirs[2]);
    assert_int_equal(bt_adapters_open(&b->w, &b->s), BT_OK);
    BT_LIST_FOR_EACH_ENTRY(bt_worker_adapter_t, at, &b->w.adapters.list, link) {
        bytes += bt_lora_bytes(at->lora);
    }
    /* A (64, 8) thrice, and B (1, 64), (4, 64), (3, 64). */
    assert_int_equal(bytes, 3 * 64 * 8 * 4 + (1 + 4 + 3) * 64 * 4);
    /* While it is read, the largest is there twice: A (4, 64), B (64, 4). */
    assert_int_equal(bt_adapters_estimate(&b->config, b->s.gguf),
                     bytes + 2 * 4 * 64 * 4);
    b->config.lora_dir = "/tmp";
    b->config.lora_memory_bytes = 1000;
    assert_int_equal(bt_adapters_estimate(&b->config, b->s.gguf),
                     bytes + 2 * 4 * 64 * 4 + 1000);
    close_bench(b);
    for (uint32_t i = 0; i < 3; i++) {
        bt_hf_folder_remove(dirs[i]);
    }
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
    assert_int_equal(bt_adapters_estimate(&b->config, b->s.gguf), 0);
    bt_adapters_close(&b->w);
    assert_int_equal(bt_adapters_open(&b->w, &b->s), BT_ERR_NOT_FOUND);
    close_bench(b);
    bt_hf_folder_remove(dir);
}

/* Carries out all that routers ordered. @return adapters that are here then */
static uint32_t run(bench_t *b)
{
    const uint64_t end_ms = bt_now_ms() + 60000;

    while (!bt_list_empty(&b->w.adapters.loads)) {
        assert_true(bt_now_ms() < end_ms);
        bt_adapters_step(&b->w);
        sched_yield();
    }
    return b->w.adapters.n;
}

static void say(bench_t *b, uint32_t router, uint32_t loads,
                bt_hash128_t digest, const char *path)
{
    bt_msg_adapter_t msg = {.adapter = digest, .loads = loads, .name = "later"};

    snprintf(msg.path, sizeof(msg.path), "%s", path);
    bt_adapters_on_order(&b->w, &b->routers[router], &msg);
}

static uint32_t order(bench_t *b, bt_hash128_t digest, const char *path)
{
    say(b, 0, 1, digest, path);
    return run(b);
}

static bt_hash128_t digest_of(const bench_t *b, const char *dir)
{
    bt_adapter_t *adapter = NULL;
    bt_hash128_t digest;
    char why[256];

    assert_int_equal(
        bt_adapter_open(dir, b->s.gguf, why, sizeof(why), &adapter), BT_OK);
    digest = adapter->digest;
    bt_adapter_free(adapter);
    return digest;
}

static void open_for_orders(bench_t *b)
{
    b->config.lora_dir = "/tmp";
    b->config.lora_memory_bytes = 4096 + 2048; /* one, as padded */
    assert_int_equal(bt_adapters_max_rank(&b->config), 4);
    assert_int_equal(bt_adapters_open(&b->w, &b->s), BT_OK);
}

static void adapter_is_loaded_on_order_and_dropped_when_unused(void **state)
{
    bench_t *const b = open_bench();
    bt_worker_adapter_t *at;
    bt_hash128_t digest;
    char dir[128];

    (void)state;
    snprintf(dir, sizeof(dir), "%s", write_adapter(2));
    open_for_orders(b);
    digest = digest_of(b, dir);
    bt_test_expect_log_lines(3);
    assert_int_equal(order(b, (bt_hash128_t){1, 2}, dir), 0); /* others */
    assert_int_equal(order(b, digest, "/etc"), 0);
    b->config.lora_memory_bytes = 100;
    assert_int_equal(order(b, digest, dir), 0);
    b->config.lora_memory_bytes = 4096 + 2048;
    assert_int_equal(order(b, digest, dir), 1);
    assert_int_equal(order(b, digest, dir), 1); /* again */
    at = bt_adapters_find(&b->w, digest);
    at->n_jobs = 1;
    say(b, 0, 0, digest, "");
    bt_adapters_step(&b->w);
    assert_int_equal(b->w.adapters.n, 1); /* a job has it */
    at->n_jobs = 0;
    bt_adapters_step(&b->w);
    assert_int_equal(b->w.adapters.n, 0);
    assert_int_equal(b->w.adapters.bytes, 0);
    assert_int_equal(order(b, digest, dir), 1);
    say(b, 1, 1, digest, dir);
    bt_adapters_router_gone(&b->w, &b->routers[0]);
    bt_adapters_step(&b->w);
    assert_int_equal(b->w.adapters.n, 1); /* the other router has it */
    bt_adapters_router_gone(&b->w, &b->routers[1]);
    bt_adapters_step(&b->w);
    assert_int_equal(b->w.adapters.n, 0);
    close_bench(b);
    bt_hf_folder_remove(dir);
}

/* A router takes an order back, or goes, before the load is begun, and while
 * it is read: no claim stays. */
static void order_that_is_taken_back_leaves_nothing(void **state)
{
    bench_t *const b = open_bench();
    bt_hash128_t digest;
    char dir[128];

    (void)state;
    snprintf(dir, sizeof(dir), "%s", write_adapter(2));
    open_for_orders(b);
    digest = digest_of(b, dir);
    for (uint32_t begun = 0; begun < 2; begun++) {
        for (uint32_t gone = 0; gone < 2; gone++) {
            say(b, 0, 1, digest, dir);
            if (begun) {
                bt_adapters_step(&b->w);
            }
            if (gone) {
                bt_adapters_router_gone(&b->w, &b->routers[0]);
            } else {
                say(b, 0, 0, digest, "");
            }
            assert_int_equal(bt_list_empty(&b->w.adapters.loads), !begun);
            assert_int_equal(run(b), begun);
            bt_adapters_step(&b->w); /* a sweep */
            assert_int_equal(b->w.adapters.n, 0);
            assert_int_equal(b->w.adapters.bytes, 0);
            assert_int_equal(b->links[0].out.len, 0); /* nobody asks */
        }
    }
    /* Another router's order of the same is carried out. */
    say(b, 0, 1, digest, dir);
    say(b, 1, 1, digest, dir);
    bt_adapters_step(&b->w);
    say(b, 0, 0, digest, "");
    assert_int_equal(run(b), 1);
    bt_adapters_step(&b->w);
    assert_int_equal(b->w.adapters.n, 1);
    assert_int_equal(b->links[0].out.len, 0);
    assert_true(b->links[1].out.len > 0);
    /* Ordered again while the first load is read: claimed once. */
    say(b, 1, 0, digest, "");
    bt_adapters_step(&b->w);
    assert_int_equal(b->w.adapters.n, 0);
    say(b, 0, 1, digest, dir);
    bt_adapters_step(&b->w);
    say(b, 0, 0, digest, "");
    say(b, 0, 1, digest, dir);
    assert_int_equal(run(b), 1);
    bt_adapters_step(&b->w);
    assert_int_equal(b->w.adapters.n, 1);
    say(b, 0, 0, digest, "");
    bt_adapters_step(&b->w);
    assert_int_equal(b->w.adapters.n, 0);
    close_bench(b);
    bt_hf_folder_remove(dir);
}

/* The memory of an adapter that was dropped while another's load was queued is
 * that one's. */
static void dropped_adapter_makes_room_for_the_next(void **state)
{
    bench_t *const b = open_bench();
    bt_hash128_t one, two;
    char dirs[2][128];

    (void)state;
    snprintf(dirs[0], sizeof(dirs[0]), "%s", write_adapter(2));
    snprintf(dirs[1], sizeof(dirs[1]), "%s", write_adapter(3));
    open_for_orders(b); /* for one of them */
    one = digest_of(b, dirs[0]);
    two = digest_of(b, dirs[1]);
    assert_int_equal(order(b, one, dirs[0]), 1);
    say(b, 0, 0, one, "");
    assert_int_equal(order(b, two, dirs[1]), 1);
    assert_null(bt_adapters_find(&b->w, one));
    assert_non_null(bt_adapters_find(&b->w, two));
    close_bench(b);
    bt_hf_folder_remove(dirs[0]);
    bt_hf_folder_remove(dirs[1]);
}

/* Content of one matrix, 64 wide, of rank 2.
 * @return owned: free() */
static uint8_t *pack_content(const bench_t *b, bt_hash128_t *digest_p,
                             size_t *bytes_p)
{
    char dir[128];
    char why[256];
    bt_adapter_t *adapter = NULL;
    uint8_t *data;

    snprintf(dir, sizeof(dir), "%s", write_adapter(2));
    assert_int_equal(
        bt_adapter_open(dir, b->s.gguf, why, sizeof(why), &adapter), BT_OK);
    *digest_p = adapter->digest;
    *bytes_p = bt_adapter_packed_bytes(adapter);
    data = malloc(*bytes_p);
    assert_non_null(data);
    bt_adapter_pack(adapter, data);
    bt_adapter_free(adapter);
    bt_hf_folder_remove(dir);
    return data;
}

static void order_content(bench_t *b, bt_hash128_t digest, uint64_t bytes)
{
    const bt_msg_adapter_t msg = {
        .adapter = digest, .loads = 1, .name = "task", .bytes = bytes};

    bt_adapters_on_order(&b->w, &b->routers[0], &msg);
    bt_adapters_step(&b->w);
}

static void send_part(bench_t *b, uint32_t router, bt_hash128_t digest,
                      const uint8_t *data, uint64_t offset, uint32_t n)
{
    const bt_msg_adapter_part_t part = {.adapter = digest,
                                        .offset = offset,
                                        .data = data + offset,
                                        .data_bytes = n};

    bt_adapters_on_part(&b->w, &b->routers[router], &part);
}

static void content_comes_in_parts_from_the_router_that_ordered(void **state)
{
    bench_t *const b = open_bench();
    bt_hash128_t digest;
    size_t bytes;
    uint8_t *data;

    (void)state;
    open_for_orders(b);
    data = pack_content(b, &digest, &bytes);
    /* Not without its option. */
    order_content(b, digest, bytes);
    assert_true(bt_list_empty(&b->w.adapters.loads));
    b->config.lora_cache_host_bytes = 1;
    assert_true(bt_adapters_are_sent(&b->config));
    order_content(b, digest, bytes);
    send_part(b, 1, digest, data, 0, 100);               /* a stranger */
    send_part(b, 0, (bt_hash128_t){1, 2}, data, 0, 100); /* another */
    send_part(b, 0, digest, data, 8, 100);               /* not this one */
    send_part(b, 0, digest, data, 0, 100);
    send_part(b, 0, digest, data, 0, 100); /* again */
    send_part(b, 0, digest, data, 100, (uint32_t)bytes - 100);
    assert_int_equal(run(b), 1);
    assert_string_equal(bt_adapters_find(&b->w, digest)->name, "task");
    say(b, 0, 0, digest, "");
    bt_adapters_step(&b->w);
    assert_int_equal(b->w.adapters.n, 0);
    close_bench(b);
    free(data);
}

static void content_that_is_not_as_ordered_is_refused(void **state)
{
    bench_t *const b = open_bench();
    bt_hash128_t digest;
    size_t bytes;
    uint8_t *data;

    (void)state;
    b->config.lora_cache_host_bytes = 1;
    open_for_orders(b);
    data = pack_content(b, &digest, &bytes);
    bt_test_expect_log_lines(2);
    /* More than there is room for; more than was ordered; nothing. */
    order_content(b, digest, UINT64_MAX);
    assert_true(bt_list_empty(&b->w.adapters.loads));
    order_content(b, digest, bytes - 1);
    send_part(b, 0, digest, data, 0, (uint32_t)bytes);
    assert_true(bt_list_empty(&b->w.adapters.loads));
    order_content(b, digest, bytes);
    send_part(b, 0, digest, data, 0, 0);
    assert_true(bt_list_empty(&b->w.adapters.loads));
    /* Cut off, and changed. */
    order_content(b, digest, bytes - 1);
    send_part(b, 0, digest, data, 0, (uint32_t)bytes - 1);
    assert_int_equal(run(b), 0);
    data[bytes - 1] ^= 1;
    order_content(b, digest, bytes);
    send_part(b, 0, digest, data, 0, (uint32_t)bytes);
    assert_int_equal(run(b), 0);
    data[bytes - 1] ^= 1;
    /* Taken back, and a router gone, between parts. */
    order_content(b, digest, bytes);
    send_part(b, 0, digest, data, 0, 100);
    say(b, 0, 0, digest, "");
    assert_true(bt_list_empty(&b->w.adapters.loads));
    order_content(b, digest, bytes);
    send_part(b, 0, digest, data, 0, 100);
    bt_adapters_router_gone(&b->w, &b->routers[0]);
    assert_true(bt_list_empty(&b->w.adapters.loads));
    order_content(b, digest, bytes); /* left for the close */
    close_bench(b);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(adapter_is_found_by_its_digest),
        BT_TEST(adapter_is_loaded_on_order_and_dropped_when_unused),
        BT_TEST(adapter_of_too_large_a_rank_ends_the_start),
        BT_TEST(memory_is_known_before_the_adapters_are_read),
        BT_TEST(order_that_is_taken_back_leaves_nothing),
        BT_TEST(dropped_adapter_makes_room_for_the_next),
        BT_TEST(content_comes_in_parts_from_the_router_that_ordered),
        BT_TEST(content_that_is_not_as_ordered_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
