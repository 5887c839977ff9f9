/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a worker that serves could start from another file. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "tests/support/testsupport.h"
#include "tests/support/tiny_model.h"
#include "worker/start.h"

static char path[] = "/tmp/baton-test-start-trial-XXXXXX";

typedef struct trial_bench {
    bt_config_store_t *store;
    bt_worker_t w;
    bt_start_t s;
} trial_bench_t;

/* A worker that serves, of a pool of this many bytes. */
static trial_bench_t *open_worker(const char *kv_memory)
{
    trial_bench_t *b = calloc(1, sizeof(*b));
    char name[] = "test", cache[] = "--weight-cache=off";
    char draft[] = "--draft=off", of_kv[64];
    char *argv[] = {name, of_kv, cache, draft, NULL};

    assert_non_null(b);
    snprintf(of_kv, sizeof(of_kv), "--kv-memory=%s", kv_memory);
    assert_int_equal(
        bt_config_load(BT_PROG_DECODE, false, 4, argv, &b->w.config, &b->store),
        BT_OK);
    b->s.team.size = b->s.team.tp = 1;
    b->s.n_threads = 1;
    b->w.weights.start = &b->s;
    return b;
}

static void close_worker(trial_bench_t *b)
{
    bt_config_destroy(b->store);
    free(b);
}

static bt_status_t try_file(const trial_bench_t *b, const char *file)
{
    void *trial = bt_start_trial_ops.create(&b->w);
    bt_status_t status;

    assert_non_null(trial);
    status = bt_start_trial_ops.run(trial, file);
    bt_start_trial_ops.destroy(trial);
    return status;
}

static void file_that_cannot_be_opened_is_refused(void **state)
{
    trial_bench_t *b = open_worker("1M");

    (void)state;
    assert_int_equal(try_file(b, path), BT_OK);
    bt_test_expect_log_lines(1);
    assert_int_not_equal(try_file(b, "/nonexistent/model.gguf"), BT_OK);
    close_worker(b);
}

static void memory_that_the_worker_gives_back_counts_as_free(void **state)
{
    trial_bench_t *b = open_worker("64T");

    (void)state;
    bt_test_expect_log_lines(2);
    assert_int_equal(try_file(b, path), BT_ERR_NO_MEMORY);
    b->s.pool_bytes = 65ull << 40;
    assert_int_equal(try_file(b, path), BT_OK);

    /* Pages of a shared file are available as it is; private ones are not. */
    b->s.pool_bytes = 0;
    b->s.memory.weight_bytes = 65ull << 40;
    assert_int_equal(try_file(b, path), BT_OK);
    snprintf(b->s.weight_dir, sizeof(b->s.weight_dir), "/tmp");
    assert_int_equal(try_file(b, path), BT_ERR_NO_MEMORY);
    close_worker(b);
}

static void trial_survives_every_failed_allocation(void **state)
{
    trial_bench_t *b = open_worker("1M");

    (void)state;
    bt_alloc_fail_at(1);
    assert_null(bt_start_trial_ops.create(&b->w));
    bt_alloc_fail_at(0);
    bt_start_trial_ops.destroy(NULL);
    close_worker(b);
}

static int write_model(void **state)
{
    const bt_tiny_model_t tiny = bt_tiny_model_default();
    const int fd = mkstemp(path);

    (void)state;
    if (fd < 0) {
        return -1;
    }
    close(fd);
    return (bt_tiny_model_write(&tiny, path) == BT_OK) ? 0 : -1;
}

static int remove_model(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(file_that_cannot_be_opened_is_refused),
        BT_TEST(memory_that_the_worker_gives_back_counts_as_free),
        BT_TEST(trial_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, write_model, remove_model);
}
