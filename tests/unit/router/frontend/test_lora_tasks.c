/* SPDX-License-Identifier: Apache-2.0 */
/* Cache of adapters that clients send: what is found, what is loaded, and who
 * makes room. Messages of workers are written by the test. */
#include <dirent.h>
#include <unistd.h>

#include "common/base/status.h"
#include "inference/adapter/adapter_tensors.h"
#include "router/frontend/lora_tasks.h"
#include "tests/support/hf_folder.h"
#include "tests/unit/router/request_fixture.h"

/* What the workers get of a rank 1 adapter of attn_dense, 64 by 64. */
#define CONTENT (4u + 28u + 128u * 4u)

typedef struct wait {
    bt_lora_waiter_t waiter;
    int n_done;
    bt_hash128_t digest;
    bt_api_error_t error;
} wait_t;

static bt_tenant_t acme = {.name = "acme", .is_named = true};
static bt_tenant_t other = {.name = "other", .is_named = true};
static bt_tenant_t plain = {.name = "default"};
static bt_api_error_t last_error;
static bt_hash128_t digest;

static void done(bt_lora_waiter_t *waiter, bt_hash128_t of,
                 const bt_api_error_t *error)
{
    wait_t *const wait = BT_CONTAINER_OF(waiter, wait_t, waiter);

    wait->n_done++;
    wait->digest = of;
    wait->error = (error != NULL) ? *error : (bt_api_error_t){0};
}

static void start_with(world_t *w, uint64_t bytes)
{
    start(w, true);
    w->config.lora_cache_host_bytes = bytes;
    w->config.max_lora_rank = 4;
    w->p->hello.flags |= BT_HELLO_ADAPTER_UPDATES | BT_HELLO_ADAPTER_CONTENT;
    w->d->hello.flags |= BT_HELLO_ADAPTER_UPDATES | BT_HELLO_ADAPTER_CONTENT;
}

/* Tensors of attn_dense whose first number is @a number. */
static bt_adapter_tensors_t *tensors_of(float number, int32_t layer)
{
    const int32_t config[3] = {4, layer, 1};
    const bt_adapter_tensors_t shape = {.type = BT_ADAPTER_F32,
                                        .n_rows = 1,
                                        .n_columns = 3,
                                        .width = 128,
                                        .weights_bytes = 512};
    float weights[128] = {number, 1.0f};
    bt_adapter_tensors_t *t = NULL;

    weights[127] = 1.0f;
    assert_int_equal(bt_adapter_tensors_create(&shape, config, weights, &t),
                     BT_OK);
    return t;
}

/* @param number  0: the id alone */
static bt_status_t ask(world_t *w, const bt_tenant_t *tenant, uint64_t id,
                       float number, wait_t *wait)
{
    bt_api_lora_t lora = {.has_task = true, .task_id = id};
    bt_status_t status;

    lora.tensors = (number > 0.0f) ? tensors_of(number, 0) : NULL;
    *wait = (wait_t){.waiter = {.done = done}};
    last_error = (bt_api_error_t){0};
    status = bt_lora_task_find(w->served, tenant, &lora, &wait->waiter, &digest,
                               &last_error);
    bt_free(lora.tensors);
    return status;
}

static void say(world_t *w, bt_instance_t *from, bt_status_t status)
{
    bt_msg_t msg = {.type = BT_MSG_ADAPTER_READY};

    for (uint32_t i = 0; i < w->n_sent; i++) {
        if (w->sent[i].type == BT_MSG_ADAPTER) {
            msg.u.adapter_ready.adapter = w->sent[i].adapter;
        }
    }
    msg.u.adapter_ready.status = status;
    snprintf(msg.u.adapter_ready.text, sizeof(msg.u.adapter_ready.text), "no");
    assert_int_equal(bt_core_message(w->core, from, &msg, bt_now_us()), BT_OK);
}

/* Has both workers load what was ordered last. */
static void load(world_t *w, wait_t *wait)
{
    drain_pool(w);
    bt_lora_tasks_tick(w->served, bt_now_us());
    assert_int_equal(wait->n_done, 0);
    say(w, w->p, BT_OK);
    say(w, w->d, BT_OK);
    bt_lora_tasks_tick(w->served, bt_now_us());
    assert_int_equal(wait->n_done, 1);
    assert_int_equal(wait->error.http_status, 0);
}

static void task_is_found_once_the_workers_have_it(void **state)
{
    world_t *w = &world;
    wait_t first, second;

    (void)state;
    start_with(w, 10000);
    assert_int_equal(ask(w, &plain, 7, 0, &first), BT_ERR_NOT_FOUND);
    assert_int_equal(last_error.http_status, 400);
    assert_string_equal(last_error.message,
                        "LoRA task 7 not found in cache. Please send LoRA "
                        "weights with request");
    assert_int_equal(ask(w, &plain, 7, 1, &first), BT_ERR_BUSY);
    assert_int_equal(ask(w, &plain, 7, 1, &second), BT_ERR_BUSY); /* equal */
    load(w, &first);
    assert_int_equal(second.n_done, 1);
    assert_int_equal(count(w, BT_MSG_ADAPTER), 2);
    assert_true(bt_lora_tasks_have(w->served, first.digest));
    assert_int_equal(ask(w, &plain, 7, 0, &second), BT_OK);
    assert_true(bt_hash128_equal(digest, first.digest));
    assert_int_equal(ask(w, &plain, 7, 1, &second), BT_OK);
    assert_int_equal(count(w, BT_MSG_ADAPTER), 2);
    stop(w);
}

static void task_is_of_its_tenant(void **state)
{
    world_t *w = &world;
    wait_t wait;

    (void)state;
    start_with(w, 10000);
    assert_int_equal(ask(w, &acme, 7, 1, &wait), BT_ERR_BUSY);
    load(w, &wait);
    assert_int_equal(ask(w, &other, 7, 0, &wait), BT_ERR_NOT_FOUND);
    assert_int_equal(ask(w, &plain, 7, 0, &wait), BT_ERR_NOT_FOUND);
    assert_int_equal(ask(w, &acme, 7, 0, &wait), BT_OK);
    /* Equal content of another one is another task, with the same adapter. */
    assert_int_equal(ask(w, &other, 7, 1, &wait), BT_ERR_BUSY);
    drain_pool(w);
    bt_lora_tasks_tick(w->served, bt_now_us());
    assert_int_equal(wait.n_done, 1);
    assert_int_equal(count(w, BT_MSG_ADAPTER), 2);
    stop(w);
}

static void oldest_task_that_is_not_in_use_makes_room(void **state)
{
    world_t *w = &world;
    bt_core_adapter_t *held;
    wait_t wait;

    (void)state;
    start_with(w, 2 * CONTENT);
    assert_int_equal(ask(w, &plain, 1, 1, &wait), BT_ERR_BUSY);
    load(w, &wait);
    held = bt_core_adapter_ref(w->core, wait.digest);
    assert_int_equal(ask(w, &plain, 2, 2, &wait), BT_ERR_BUSY);
    load(w, &wait);
    assert_int_equal(ask(w, &plain, 3, 3, &wait), BT_ERR_BUSY);
    load(w, &wait);
    /* 1 is the oldest, but a request has it. */
    assert_int_equal(ask(w, &plain, 2, 0, &wait), BT_ERR_NOT_FOUND);
    assert_int_equal(ask(w, &plain, 1, 0, &wait), BT_OK);
    (void)bt_core_adapter_ref(w->core, bt_lora_tasks_have(w->served, digest)
                                           ? digest
                                           : (bt_hash128_t){0, 0});
    assert_int_equal(ask(w, &plain, 3, 0, &wait), BT_OK);
    (void)bt_core_adapter_ref(w->core, digest);
    assert_int_equal(ask(w, &plain, 4, 4, &wait), BT_ERR_NO_MEMORY);
    assert_int_equal(last_error.http_status, 503);
    assert_string_equal(last_error.message,
                        "Cache is full. There are no done tasks to evict");
    /* Other weights of a task that is in use. */
    assert_int_equal(ask(w, &plain, 1, 9, &wait), BT_ERR_EXISTS);
    assert_int_equal(last_error.http_status, 409);
    bt_core_adapter_unref(w->core, held);
    bt_core_adapter_unref(w->core, held);
    assert_int_equal(ask(w, &plain, 1, 9, &wait), BT_ERR_BUSY);
    load(w, &wait);
    stop(w);
}

static void adapter_that_never_fits_is_refused(void **state)
{
    world_t *w = &world;
    wait_t wait;

    (void)state;
    start_with(w, CONTENT - 1); /* the tensors fit, the content does not */
    bt_test_expect_log_lines(1);
    assert_int_equal(ask(w, &plain, 1, 1, &wait), BT_ERR_BUSY);
    drain_pool(w);
    assert_int_equal(wait.n_done, 1);
    assert_int_equal(wait.error.http_status, 400);
    stop(w);
    start_with(w, 511);
    assert_int_equal(ask(w, &plain, 1, 1, &wait), BT_ERR_TOO_LARGE);
    stop(w);
    start_with(w, 0);
    assert_int_equal(ask(w, &plain, 1, 1, &wait), BT_ERR_UNSUPPORTED);
    assert_non_null(strstr(last_error.message, "--lora-cache-host-memory"));
    stop(w);
}

static void failure_leaves_the_id_unknown(void **state)
{
    world_t *w = &world;
    bt_api_lora_t lora = {.has_task = true, .task_id = 1};
    wait_t wait;

    (void)state;
    start_with(w, 10000);
    bt_test_expect_log_lines(3);
    /* A worker refuses; workers do not answer; there is no such layer. */
    assert_int_equal(ask(w, &plain, 1, 1, &wait), BT_ERR_BUSY);
    drain_pool(w);
    say(w, w->p, BT_ERR_UNSUPPORTED);
    bt_lora_tasks_tick(w->served, bt_now_us());
    assert_int_equal(wait.n_done, 1);
    assert_int_equal(wait.error.http_status, 400);
    assert_string_equal(wait.error.message, "worker prefill-0: no");
    assert_int_equal(ask(w, &plain, 1, 1, &wait), BT_ERR_BUSY);
    drain_pool(w);
    bt_lora_tasks_tick(w->served, bt_now_us() + 130000000);
    assert_int_equal(wait.n_done, 1);
    assert_int_equal(wait.error.http_status, 504);
    lora.tensors = tensors_of(1, 99);
    wait = (wait_t){.waiter = {.done = done}};
    assert_int_equal(bt_lora_task_find(w->served, &plain, &lora, &wait.waiter,
                                       &digest, &last_error),
                     BT_ERR_BUSY);
    assert_null(lora.tensors);
    drain_pool(w);
    assert_int_equal(wait.n_done, 1);
    assert_int_equal(wait.error.http_status, 400);
    assert_int_equal(ask(w, &plain, 1, 0, &wait), BT_ERR_NOT_FOUND);
    stop(w);
}

/* A worker has no room: the oldest task goes, and it is ordered again. */
static void full_worker_gets_room(void **state)
{
    world_t *w = &world;
    wait_t wait;

    (void)state;
    start_with(w, 10000);
    assert_int_equal(ask(w, &plain, 1, 1, &wait), BT_ERR_BUSY);
    load(w, &wait);
    assert_int_equal(ask(w, &plain, 2, 2, &wait), BT_ERR_BUSY);
    drain_pool(w);
    say(w, w->p, BT_OK);
    say(w, w->d, BT_ERR_NO_MEMORY);
    bt_lora_tasks_tick(w->served, bt_now_us());
    assert_int_equal(wait.n_done, 0);
    say(w, w->d, BT_OK);
    bt_lora_tasks_tick(w->served, bt_now_us());
    assert_int_equal(wait.n_done, 1);
    assert_int_equal(wait.error.http_status, 0);
    assert_int_equal(ask(w, &plain, 1, 0, &wait), BT_ERR_NOT_FOUND);
    /* Nothing is left that could go. */
    bt_test_expect_log_lines(1);
    assert_int_equal(ask(w, &plain, 2, 0, &wait), BT_OK);
    (void)bt_core_adapter_ref(w->core, digest);
    assert_int_equal(ask(w, &plain, 3, 3, &wait), BT_ERR_BUSY);
    drain_pool(w);
    say(w, w->d, BT_ERR_NO_MEMORY);
    bt_lora_tasks_tick(w->served, bt_now_us());
    assert_int_equal(wait.error.http_status, 503);
    /* Whoever waits when the server stops is told. */
    assert_int_equal(ask(w, &plain, 4, 4, &wait), BT_ERR_BUSY);
    drain_pool(w);
    stop(w);
    assert_int_equal(wait.n_done, 1);
    assert_int_equal(wait.error.http_status, 503);
}

/* Removes all files of a folder, as another router does that evicts. */
static void empty_folder(const char *dir)
{
    DIR *const folder = opendir(dir);
    const struct dirent *entry;

    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL) {
        (void)unlinkat(dirfd(folder), entry->d_name, 0);
    }
    closedir(folder);
}

/* Each use of a task asks its file. */
static void shared_task_is_what_its_file_says(void **state)
{
    world_t *w = &world;
    char dir[128];
    wait_t wait, other_wait;

    (void)state;
    snprintf(dir, sizeof(dir), "%s", bt_hf_folder_make());
    start_with(w, 10000);
    w->config.lora_task_dir = dir;
    assert_int_equal(bt_lora_tasks_open(w->served), BT_OK);
    assert_int_equal(ask(w, &plain, 7, 0, &wait), BT_ERR_BUSY);
    /* Tensors come while the id is looked up. */
    assert_int_equal(ask(w, &plain, 7, 1, &other_wait), BT_ERR_NO_MEMORY);
    assert_int_equal(last_error.http_status, 503);
    drain_pool(w);
    assert_int_equal(wait.n_done, 1);
    assert_int_equal(wait.error.http_status, 400);
    assert_string_equal(wait.error.message,
                        "LoRA task 7 not found in cache. Please send LoRA "
                        "weights with request");
    assert_int_equal(ask(w, &plain, 7, 1, &wait), BT_ERR_BUSY);
    assert_int_equal(ask(w, &plain, 7, 0, &other_wait), BT_ERR_BUSY);
    load(w, &wait);
    assert_int_equal(other_wait.n_done, 1);
    assert_int_equal(other_wait.error.http_status, 0);
    /* The same again, without a new order; another tenant's is another. */
    assert_int_equal(ask(w, &plain, 7, 0, &wait), BT_ERR_BUSY);
    drain_pool(w);
    assert_int_equal(wait.n_done, 1);
    assert_int_equal(wait.error.http_status, 0);
    assert_true(bt_hash128_equal(wait.digest, other_wait.digest));
    assert_int_equal(count(w, BT_MSG_ADAPTER), 2);
    assert_int_equal(ask(w, &acme, 7, 0, &wait), BT_ERR_BUSY);
    drain_pool(w);
    assert_int_equal(wait.error.http_status, 400);
    /* Other weights, while the file is there. */
    assert_int_equal(ask(w, &plain, 7, 2, &wait), BT_ERR_BUSY);
    drain_pool(w);
    assert_int_equal(wait.error.http_status, 409);
    assert_int_equal(ask(w, &plain, 7, 0, &wait), BT_ERR_BUSY);
    load(w, &wait); /* read again */
    /* Evicted by another router. */
    empty_folder(dir);
    assert_int_equal(ask(w, &plain, 7, 0, &wait), BT_ERR_BUSY);
    drain_pool(w);
    assert_int_equal(wait.error.http_status, 400);
    assert_false(bt_lora_tasks_have(w->served, wait.digest));
    /* A folder that is gone is no answer. */
    bt_hf_folder_remove(dir);
    bt_test_expect_log_lines(1);
    assert_int_equal(ask(w, &plain, 7, 1, &wait), BT_ERR_BUSY);
    drain_pool(w);
    assert_int_equal(wait.error.http_status, 503);
    stop(w);
}

static void folder_that_is_no_cache_of_tasks_is_refused(void **state)
{
    static const char *const names[] = {"x", "-1", "1x",
                                        "18446744073709551616"};
    world_t *w = &world;
    const char *dir = bt_hf_folder_make();

    (void)state;
    start_with(w, 10000);
    bt_test_expect_log_lines(6);
    assert_int_equal(bt_lora_tasks_open(w->served), BT_OK); /* no option */
    w->config.lora_prefetch_dir = "/nowhere";
    assert_int_equal(bt_lora_tasks_open(w->served), BT_ERR_NOT_FOUND);
    w->config.lora_prefetch_dir = dir;
    assert_int_equal(bt_lora_tasks_open(w->served), BT_OK); /* empty */
    bt_hf_folder_text(dir, "7", "no folder");
    assert_int_equal(bt_lora_tasks_open(w->served), BT_ERR_NOT_FOUND);
    bt_hf_folder_remove(dir);
    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        dir = bt_hf_folder_make();
        w->config.lora_prefetch_dir = dir;
        bt_hf_folder_text(dir, names[i], "");
        assert_int_equal(bt_lora_tasks_open(w->served), BT_ERR_INVALID_PARAM);
        bt_hf_folder_remove(dir);
    }
    stop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(task_is_found_once_the_workers_have_it),
        BT_TEST(task_is_of_its_tenant),
        BT_TEST(oldest_task_that_is_not_in_use_makes_room),
        BT_TEST(adapter_that_never_fits_is_refused),
        BT_TEST(failure_leaves_the_id_unknown),
        BT_TEST(full_worker_gets_room),
        BT_TEST(shared_task_is_what_its_file_says),
        BT_TEST(folder_that_is_no_cache_of_tasks_is_refused),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
