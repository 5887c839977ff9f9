/* SPDX-License-Identifier: Apache-2.0 */
/* A router before a launcher that says what the test says. */
#include "tests/unit/router/request_fixture.h"

#include <event2/event.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "router/core/core_priv.h"
#include "router/launcher_client.h"

#define LAUNCHER                                                    \
    "\"launcher\":{\"pid\":7,\"version\":\"0\",\"run_dir\":\"/r\"," \
    "\"state\":\"running\"},\"models\":[]"

typedef struct side {
    struct event_base *base;
    bt_launcher_client_t client;
    char dir[40], path[64];
    int listener, peer; /* the launcher's */
} side_t;

static void side_start(side_t *side, world_t *w)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    *side = (side_t){.dir = "/tmp/baton-test-launcher-XXXXXX"};
    assert_non_null(mkdtemp(side->dir));
    snprintf(side->path, sizeof(side->path), "%s/admin.sock", side->dir);
    memcpy(address.sun_path, side->path, strlen(side->path) + 1);
    side->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(side->listener, (const struct sockaddr *)&address,
                          sizeof(address)),
                     0);
    assert_int_equal(listen(side->listener, 4), 0);
    side->base = event_base_new();
    assert_non_null(side->base);
    w->config.launcher = side->path;
    bt_launcher_client_init(&side->client, side->base, &w->front);
}

static void side_stop(side_t *side)
{
    bt_launcher_client_fini(&side->client);
    event_base_free(side->base);
    close(side->peer);
    close(side->listener);
    unlink(side->path);
    rmdir(side->dir);
}

/* The router connects and asks for the document and its changes. */
static void connects(side_t *side, uint64_t now_ms)
{
    char asked[256] = "";

    bt_launcher_client_tick(&side->client, now_ms);
    bt_launcher_client_tick(&side->client, now_ms);
    side->peer = accept(side->listener, NULL, NULL);
    assert_true(side->peer >= 0);
    assert_true(recv(side->peer, asked, sizeof(asked) - 1, 0) > 0);
    assert_non_null(strstr(asked, "\"watch\""));
}

static void says(side_t *side, const char *text)
{
    assert_int_equal(write(side->peer, text, strlen(text)), strlen(text));
    assert_int_equal(event_base_loop(side->base, EVLOOP_ONCE), 0);
}

/* A change of the worker decode-0. */
static void says_state(side_t *side, const char *state)
{
    char text[512];

    snprintf(text, sizeof(text),
             "{\"processes\":[{\"name\":\"decode-0\",\"program\":\"decode\","
             "\"role\":\"decode\",\"model\":\"tiny\",\"state\":\"%s\","
             "\"pid\":9}]}\n",
             state);
    says(side, text);
}

/* True when this tick makes requests wait on. */
static bool is_expected(side_t *side, world_t *w)
{
    w->core->expected_us = 0;
    bt_launcher_client_tick(&side->client, 1);
    return w->core->expected_us > 0;
}

static void launcher_workers_are_expected_until_stopped(void **state)
{
    static const struct {
        const char *state;
        bool expected;
    } cases[] = {{"waiting", true},   {"starting", true}, {"ready", true},
                 {"stopping", false}, {"stopped", false}, {"starting", true}};
    world_t *w = &world;
    side_t side;

    (void)state;
    start(w, false);
    side_start(&side, w);
    connects(&side, 1);
    says(&side, "{\"ok\":true," LAUNCHER ",\"processes\":[]}\n");
    assert_false(is_expected(&side, w));
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        says_state(&side, cases[i].state);
        if (is_expected(&side, w) != cases[i].expected) {
            fail_msg("%s", cases[i].state);
        }
    }
    side_stop(&side);
    stop(w);
}

static void ready_worker_is_expected_briefly_after_a_loss(void **state)
{
    world_t *w = &world;
    side_t side;

    (void)state;
    bt_test_expect_log_lines(1);
    start(w, false);
    side_start(&side, w);
    connects(&side, 1);
    says(&side, "{\"ok\":true," LAUNCHER ",\"processes\":[]}\n");
    says_state(&side, "ready");
    assert_true(is_expected(&side, w)); /* lost with the router before */
    side.client.start_us -= 30000000;
    assert_false(is_expected(&side, w));
    w_join(w, "decode-0", BT_ROLE_DECODE, &w->d);
    assert_false(is_expected(&side, w));
    bt_core_worker_down(w->core, w->d, "killed", bt_now_us());
    assert_true(is_expected(&side, w)); /* the launcher does not know yet */
    w->core->lost_us -= 30000000;
    assert_false(
        is_expected(&side, w)); /* it is ready, and cannot be reached */
    side_stop(&side);
    stop(w);
}

static void
change_without_memory_is_followed_by_the_whole_document(void **state)
{
    static const char change[] =
        "{\"processes\":[{\"name\":\"decode-0\",\"program\":\"decode\","
        "\"role\":\"decode\",\"model\":\"tiny\",\"state\":\"starting\"}]}\n";
    world_t *w = &world;
    int n_lost = -1;
    bool is_lost;

    (void)state;
    start(w, false);
    do {
        side_t side;

        side_start(&side, w);
        connects(&side, 1);
        says(&side, "{\"ok\":true," LAUNCHER ",\"processes\":[]}\n");
        assert_int_equal(write(side.peer, change, strlen(change)),
                         strlen(change));
        n_lost++;
        bt_alloc_fail_at(n_lost + 1);
        assert_int_equal(event_base_loop(side.base, EVLOOP_ONCE), 0);
        bt_alloc_fail_at(0);
        /* Either the router knows of it, or it asks again. */
        is_lost = (side.client.client == NULL);
        if (is_lost) {
            close(side.peer);
            connects(&side, UINT64_MAX / 2);
            says(&side, "{\"ok\":true," LAUNCHER ",\"processes\":[]}\n");
            says_state(&side, "starting");
        }
        assert_int_equal(side.client.document.n_processes, 1);
        side_stop(&side);
    } while (is_lost);
    assert_true(n_lost > 0);
    bt_test_expect_log_lines((unsigned long)n_lost + 1); /* and the metrics */
    stop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(launcher_workers_are_expected_until_stopped),
        BT_TEST(ready_worker_is_expected_briefly_after_a_loss),
        BT_TEST(change_without_memory_is_followed_by_the_whole_document),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
