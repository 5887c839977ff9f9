/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters that are loaded while their model is served: read by the pool, then
 * by the workers. */
#include "common/base/status.h"
#include "router/frontend/adapter_loads.h"
#include "tests/support/hf_folder.h"
#include "tests/unit/router/request_fixture.h"

static char dir[128];
static int n_done;
static bt_api_error_t last_error;

static void done(void *ctx, const bt_api_error_t *error)
{
    assert_ptr_equal(ctx, &n_done);
    n_done++;
    last_error = *error;
}

static void start_with(world_t *w)
{
    static const float numbers[64] = {1.0f};
    bt_st_file_t file;

    snprintf(dir, sizeof(dir), "%s", bt_hf_folder_make());
    bt_hf_folder_text(dir, "adapter_config.json",
                      "{\"peft_type\":\"LORA\",\"lora_alpha\":1}");
    bt_st_file_init(&file);
    bt_st_file_add(
        &file, "base_model.model.model.layers.0.self_attn.o_proj.lora_A.weight",
        "F32", "1,64", numbers, sizeof(numbers));
    bt_st_file_add(
        &file, "base_model.model.model.layers.0.self_attn.o_proj.lora_B.weight",
        "F32", "64,1", numbers, sizeof(numbers));
    bt_st_file_write(&file, dir, "adapter_model.safetensors");
    tenant_header = "x-tenant";
    start(w, true);
    w->config.lora_dir = "/tmp";
    w->p->hello.flags |= BT_HELLO_ADAPTER_UPDATES;
    w->d->hello.flags |= BT_HELLO_ADAPTER_UPDATES;
    n_done = 0;
}

static void stop_with(world_t *w)
{
    stop(w);
    tenant_header = "";
    bt_hf_folder_remove(dir);
}

static bt_status_t begin(world_t *w, const char *name, const char *path,
                         const char *tenant)
{
    const bt_adapter_load_spec_t spec = {
        .name = name, .path = path, .tenant = tenant};

    last_error = (bt_api_error_t){0};
    return bt_adapter_load_begin(w->served, &spec, done, &n_done, &last_error);
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

static void adapter_is_offered_when_the_workers_have_it(void **state)
{
    world_t *w = &world;
    const uint64_t now_us = bt_now_us();

    (void)state;
    start_with(w);
    assert_int_equal(begin(w, "sql", dir, "acme"), BT_OK);
    assert_int_equal(begin(w, "sql2", dir, NULL), BT_ERR_BUSY);
    assert_int_equal(last_error.http_status, 409);
    drain_pool(w);
    assert_int_equal(count(w, BT_MSG_ADAPTER), 2);
    bt_adapter_load_tick(w->served, now_us);
    say(w, w->p, BT_OK);
    bt_adapter_load_tick(w->served, now_us);
    assert_int_equal(n_done, 0);
    say(w, w->d, BT_OK);
    bt_adapter_load_tick(w->served, now_us);
    assert_int_equal(n_done, 1);
    assert_int_equal(last_error.http_status, 0);
    assert_int_equal(w->served->n_adapters, 1);
    assert_int_equal(begin(w, "sql", dir, NULL), BT_ERR_EXISTS);
    assert_int_equal(bt_adapter_unload(w->served, "other"), BT_ERR_NOT_FOUND);
    assert_int_equal(bt_adapter_unload(w->served, "sql"), BT_OK);
    assert_int_equal(w->served->n_adapters, 0);
    assert_int_equal(count(w, BT_MSG_ADAPTER), 4);
    stop_with(w);
}

static void adapter_that_a_worker_cannot_load_is_dropped(void **state)
{
    world_t *w = &world;

    (void)state;
    start_with(w);
    bt_test_expect_log_lines(2);
    assert_int_equal(begin(w, "sql", dir, NULL), BT_OK);
    drain_pool(w);
    say(w, w->p, BT_OK);
    say(w, w->d, BT_ERR_NO_MEMORY);
    bt_adapter_load_tick(w->served, bt_now_us());
    assert_int_equal(n_done, 1);
    assert_int_equal(last_error.http_status, 400);
    assert_string_equal(last_error.message, "worker decode-0: no");
    assert_int_equal(w->served->n_adapters, 0);
    assert_int_equal(count(w, BT_MSG_ADAPTER), 4); /* and two to drop it */
    /* One that nobody waits for any more, and no worker answers. */
    assert_int_equal(begin(w, "sql", dir, NULL), BT_OK);
    drain_pool(w);
    bt_adapter_load_leave(w->served, &n_done);
    bt_adapter_load_tick(w->served, bt_now_us() + 2 * BT_ADAPTER_LOAD_US);
    assert_int_equal(n_done, 1);
    assert_null(w->served->adapter_load);
    stop_with(w);
}

/* A content that a load waits for stays, whatever is unloaded meanwhile. */
static void
load_goes_on_when_its_content_is_unloaded_by_another_name(void **state)
{
    world_t *w = &world;

    (void)state;
    start_with(w);
    assert_int_equal(begin(w, "one", dir, NULL), BT_OK);
    drain_pool(w);
    say(w, w->p, BT_OK);
    say(w, w->d, BT_OK);
    bt_adapter_load_tick(w->served, bt_now_us());
    assert_int_equal(begin(w, "two", dir, NULL), BT_OK);
    drain_pool(w);
    assert_int_equal(bt_adapter_unload(w->served, "one"), BT_OK);
    assert_int_equal(count(w, BT_MSG_ADAPTER), 2); /* and none to drop it */
    bt_adapter_load_tick(w->served, bt_now_us());
    assert_int_equal(n_done, 2);
    assert_int_equal(last_error.http_status, 0);
    assert_int_equal(w->served->n_adapters, 1);
    assert_int_equal(bt_adapter_unload(w->served, "two"), BT_OK);
    assert_int_equal(count(w, BT_MSG_ADAPTER), 4);
    stop_with(w);
}

static void request_keeps_its_adapter_after_the_unload(void **state)
{
    static bt_exchange_t ex;
    world_t *w = &world;

    (void)state;
    start_with(w);
    w->p->hello.flags |= BT_HELLO_ADAPTERS;
    w->d->hello.flags |= BT_HELLO_ADAPTERS;
    assert_int_equal(begin(w, "sql", dir, NULL), BT_OK);
    drain_pool(w);
    say(w, w->p, BT_OK);
    say(w, w->d, BT_OK);
    bt_adapter_load_tick(w->served, bt_now_us());
    post(w, &ex, COMPLETIONS,
         "{\"model\":\"sql\",\"prompt\":\"Hi\",\"max_tokens\":3}");
    assert_int_equal(bt_adapter_unload(w->served, "sql"), BT_OK);
    assert_int_equal(w->served->n_adapters, 0);
    assert_int_equal(count(w, BT_MSG_ADAPTER), 2);
    answer(w, 0, "yes", BT_FINISH_LENGTH);
    has(&ex, "\"model\":\"sql\"");
    assert_int_equal(count(w, BT_MSG_ADAPTER), 4);
    stop_with(w);
}

static void tenant_sees_its_own_adapters_only(void **state)
{
    const bt_tenant_t acme = {.name = "acme", .is_named = true};
    const bt_tenant_t other = {.name = "other", .is_named = true};
    const bt_tenant_t plain = {.name = "acme"};
    const bt_served_adapter_t of_acme = {.tenant = "acme"};
    const bt_served_adapter_t of_all = {.tenant = ""};

    (void)state;
    assert_true(bt_served_adapter_is_for(&of_acme, &acme));
    assert_false(bt_served_adapter_is_for(&of_acme, &other));
    assert_false(bt_served_adapter_is_for(&of_acme, &plain));
    assert_true(bt_served_adapter_is_for(&of_acme, NULL));
    assert_true(bt_served_adapter_is_for(&of_all, &other));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(adapter_is_offered_when_the_workers_have_it),
        BT_TEST(adapter_that_a_worker_cannot_load_is_dropped),
        BT_TEST(load_goes_on_when_its_content_is_unloaded_by_another_name),
        BT_TEST(request_keeps_its_adapter_after_the_unload),
        BT_TEST(tenant_sees_its_own_adapters_only),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
