/* SPDX-License-Identifier: Apache-2.0 */
/* Model controls of clients, before a launcher that says what the test says. */
#include "tests/support/testsupport.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/process.h"
#include "router/request/request.h"
#include "router/triton/model_control.h"

#define PATIENCE_MS 60000

typedef struct world {
    bt_config_t config;
    bt_frontend_t front;
    struct event_base *base;
    char dir[32], path[64];
    int listener, peer; /* the launcher's */
    bt_model_control_t *control;
    int n_done, status; /* status: of the last error, 0: none */
    char message[512];
} world_t;

static void done(void *ctx, const bt_api_error_t *error)
{
    world_t *w = ctx;

    w->n_done++;
    w->control = NULL;
    w->status = (error == NULL) ? 0 : error->http_status;
    snprintf(w->message, sizeof(w->message), "%s",
             (error == NULL) ? "" : error->message);
}

static void world_start(world_t *w)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    *w = (world_t){.peer = -1, .dir = "/tmp/baton-control-XXXXXX"};
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->path, sizeof(w->path), "%s/admin.sock", w->dir);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", w->path);
    w->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(
        bind(w->listener, (const struct sockaddr *)&address, sizeof(address)),
        0);
    assert_int_equal(listen(w->listener, BT_MODEL_CONTROL_MAX), 0);
    w->base = bt_net_loop_create();
    assert_non_null(w->base);
    w->config.launcher = w->path;
    w->front.ops = &bt_request_frontend_ops;
    w->front.config = &w->config;
    bt_list_init(&w->front.models.models);
    bt_list_init(&w->front.placed);
    bt_turn_init(&w->front.turn);
    assert_int_equal(bt_router_metrics_create(&w->front.metrics), BT_OK);
}

static void world_stop(world_t *w)
{
    assert_int_equal(w->front.n_model_controls, 0);
    event_base_free(w->base);
    bt_router_metrics_destroy(w->front.metrics);
    if (w->peer >= 0) {
        close(w->peer);
    }
    close(w->listener);
    unlink(w->path);
    rmdir(w->dir);
}

static bt_status_t begin(world_t *w, const char *name, bool load)
{
    bt_api_error_t error = {0};
    const bt_status_t status = bt_model_control_begin(
        &w->front, w->base, name, load, done, w, &w->control, &error);

    w->status = error.http_status;
    snprintf(w->message, sizeof(w->message), "%s", error.message);
    return status;
}

/* The launcher reads a command, which must be this. */
static void expect_command(world_t *w, const char *words)
{
    char got[256] = "";
    ssize_t n;

    w->peer = accept(w->listener, NULL, NULL);
    assert_true(w->peer >= 0);
    n = recv(w->peer, got, sizeof(got) - 1, 0);
    assert_true(n > 0);
    if (strncmp(got, words, strlen(words)) != 0) {
        fail_msg("%s is not %s", got, words);
    }
}

static void say(const world_t *w, const char *text)
{
    assert_int_equal(write(w->peer, text, strlen(text)), strlen(text));
}

static void wait_done(world_t *w)
{
    const uint64_t end_ms = bt_now_ms() + PATIENCE_MS;

    while (w->n_done == 0) {
        assert_true(bt_now_ms() < end_ms);
        event_base_loop(w->base,
                        EVLOOP_ONCE); /* the control's own timer ends it */
    }
    assert_int_equal(w->n_done, 1);
    assert_int_equal(w->front.n_model_controls, 0);
}

static void command_completes_after_launcher_and_router_agree(void **state)
{
    world_t w;

    (void)state;
    world_start(&w);
    assert_int_equal(begin(&w, "b", false), BT_OK);
    assert_int_equal(w.front.n_model_controls, 1);
    expect_command(&w, "{\"command\":\"unload-model\",\"name\":\"b\",");
    event_base_loop(w.base, EVLOOP_ONCE); /* its timer: nothing was said */
    assert_int_equal(w.n_done, 0);
    say(&w, "{\"ok\":true}\n");
    wait_done(&w);
    assert_int_equal(w.status, 0);
    world_stop(&w);
}

static void launcher_error_is_passed_to_client(void **state)
{
    world_t w;

    (void)state;
    world_start(&w);
    assert_int_equal(begin(&w, "b", true), BT_OK);
    expect_command(&w, "{\"command\":\"load-model\",\"name\":\"b\",");
    say(&w, "{\"ok\":false,\"error\":\"there is no model b\"}\n");
    wait_done(&w);
    assert_int_equal(w.status, 400);
    assert_string_equal(w.message, "failed to load 'b', there is no model b");
    world_stop(&w);
}

static void launcher_that_ends_gives_503(void **state)
{
    world_t w;

    (void)state;
    world_start(&w);
    assert_int_equal(begin(&w, "b", true), BT_OK);
    expect_command(&w, "{\"command\":\"load-model\",\"name\":\"b\",");
    close(w.peer);
    w.peer = -1;
    wait_done(&w);
    assert_int_equal(w.status, 503);
    assert_non_null(strstr(w.message, "the launcher is not there any more"));
    world_stop(&w);
}

static void invalid_command_is_refused_at_once(void **state)
{
    bt_model_control_t *controls[BT_MODEL_CONTROL_MAX];
    bt_api_error_t error = {0};
    world_t w;

    (void)state;
    world_start(&w);
    assert_int_equal(begin(&w, "", true), BT_ERR_INVALID_PARAM);
    assert_int_equal(begin(&w, "a/b", true), BT_ERR_INVALID_PARAM);
    assert_int_equal(w.status, 400);
    assert_int_equal(
        bt_model_control_check_parameter("unload_dependents", &error), BT_OK);
    assert_int_equal(bt_model_control_check_parameter("config", &error),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(error.http_status, 400);
    for (int i = 0; i < BT_MODEL_CONTROL_MAX; i++) {
        assert_int_equal(begin(&w, "b", true), BT_OK);
        controls[i] = w.control;
    }
    assert_int_equal(begin(&w, "b", true), BT_ERR_BUSY);
    assert_int_equal(w.status, 429);
    for (int i = 0; i < BT_MODEL_CONTROL_MAX; i++) {
        bt_model_control_leave(controls[i]);
    }
    w.config.launcher = "";
    assert_int_not_equal(begin(&w, "b", true), BT_OK);
    assert_int_equal(w.status, 400);
    assert_non_null(strstr(w.message, "no launcher"));
    w.config.launcher = "/nowhere/admin.sock";
    assert_int_not_equal(begin(&w, "b", false), BT_OK);
    assert_int_equal(w.status, 503);
    assert_int_equal(w.n_done, 0);
    world_stop(&w);
}

static void command_survives_failed_allocations_without_leak(void **state)
{
    const uint32_t n_fds = bt_count_open_fds();
    world_t w;
    int nth = 1;

    (void)state;
    world_start(&w);
    for (;; nth++) {
        bt_alloc_fail_at(nth);
        if (begin(&w, "b", true) == BT_OK) {
            break;
        }
        assert_int_equal(w.status, 503);
        assert_int_equal(w.front.n_model_controls, 0);
    }
    bt_alloc_fail_at(0);
    assert_true(nth > 2); /* the control, its client, what it says */
    bt_model_control_leave(w.control);
    world_stop(&w);
    assert_int_equal(bt_count_open_fds(), n_fds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(command_completes_after_launcher_and_router_agree),
        BT_TEST(launcher_error_is_passed_to_client),
        BT_TEST(launcher_that_ends_gives_503),
        BT_TEST(invalid_command_is_refused_at_once),
        BT_TEST(command_survives_failed_allocations_without_leak),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
