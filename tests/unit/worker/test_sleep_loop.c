/* SPDX-License-Identifier: Apache-2.0 */
/* A worker that sleeps, and a router in another thread. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/process.h"
#include "common/link/link.h"
#include "tests/support/testsupport.h"
#include "worker/start.h"

static char folder[] = "/tmp/baton-test-sleep-loop-XXXXXX";
static char url[64], key_path[64];

/* What the router does when the worker's first STATS are there, and what it
 * has seen then. */
typedef struct router {
    pthread_t thread;
    const bt_msg_t *orders;
    size_t n_orders;
    uint32_t flags, duty, roles, n_stats, n_drains, n_failed;
    bool is_gone;
} router_t;

static void send_to(bt_link_t *link, const bt_msg_t *msg)
{
    bt_strbuf_t out;

    bt_strbuf_init(&out, 1 << 16);
    bt_wire_encode(msg, &out);
    assert_int_equal(bt_strbuf_status(&out), BT_OK);
    assert_int_equal(bt_link_post(link, out.data, out.len), BT_OK);
    bt_strbuf_fini(&out);
}

static void take(router_t *r, bt_wire_decoder_t *decoder,
                 const bt_link_event_t *event)
{
    bt_msg_t msg;

    if (event->type == BT_LINK_DOWN) {
        r->is_gone = true;
    }
    if ((event->type != BT_LINK_UP) && (event->type != BT_LINK_MESSAGE)) {
        return;
    }
    assert_int_equal(bt_wire_decode(decoder, event->data, event->bytes, &msg),
                     BT_OK);
    if (msg.type == BT_MSG_HELLO) {
        r->flags = msg.u.hello.flags;
    }
    r->n_drains += (msg.type == BT_MSG_DRAIN) ? 1 : 0;
    r->n_failed += (msg.type == BT_MSG_FAILED) ? 1 : 0;
    if (msg.type == BT_MSG_STATS) {
        r->duty = msg.u.stats.duty;
        r->roles = msg.u.stats.roles;
        for (size_t i = 0; (r->n_stats == 0) && (i < r->n_orders); i++) {
            send_to(event->link, &r->orders[i]);
        }
        r->n_stats++;
    }
}

static void *run_router(void *arg)
{
    router_t *r = arg;
    bt_msg_t msg = {.type = BT_MSG_HELLO,
                    .u.hello = {.protocol = BT_WIRE_PROTOCOL,
                                .protocol_min = BT_WIRE_PROTOCOL_MIN,
                                .name = "router",
                                .tp = 1,
                                .pp = 1}};
    uint8_t key[BT_KEY_BYTES];
    bt_control_config_t config = {.key = key,
                                  .key_bytes = sizeof(key),
                                  .name = "router",
                                  .range = bt_wire_range_ours(),
                                  .heartbeat_ms = 50,
                                  .suspect_ms = 30000,
                                  .dead_ms = 60000,
                                  .max_queue_bytes = 1u << 20};
    bt_wire_decoder_t *decoder;
    bt_control_t *control;
    bt_link_event_t event;
    bt_strbuf_t hello;
    char bound[64];

    assert_int_equal(bt_key_load(key_path, "", key), BT_OK);
    bt_strbuf_init(&hello, 1 << 16);
    bt_wire_encode(&msg, &hello);
    config.hello = hello.data;
    config.hello_bytes = hello.len;
    assert_int_equal(bt_wire_decoder_create(&decoder), BT_OK);
    assert_int_equal(bt_control_open(&config, &control), BT_OK);
    assert_int_equal(bt_control_listen(control, url, bound, sizeof(bound)),
                     BT_OK);
    while (!r->is_gone) {
        bt_control_tick(control, bt_now_ms());
        while (bt_control_next(control, bt_now_ms(), &event)) {
            take(r, decoder, &event);
        }
        bt_control_flush(control);
        sched_yield();
    }
    bt_control_close(control);
    bt_wire_decoder_destroy(decoder);
    bt_strbuf_fini(&hello);
    return NULL;
}

/* @return the worker's exit code */
static int sleep_with(router_t *r, bt_worker_t *w, int signal_fd)
{
    const bt_config_t config = {.model = "m",
                                .join = url,
                                .join_dir = "",
                                .cluster_key_file = key_path,
                                .munge_socket = "",
                                .link_transport = "auto",
                                .heartbeat_ms = 50,
                                .suspect_ms = 30000,
                                .dead_ms = 60000};
    bt_start_t *s = calloc(1, sizeof(*s));
    char name[] = "test";
    char *words[] = {name, NULL};
    char **argv = words;
    int argc = 1;
    int code;

    assert_non_null(s);
    assert_int_equal(bt_cluster_open(BT_ROLE_DECODE, &argc, &argv, &s->cluster),
                     BT_OK);
    s->team.size = s->team.tp = 1;
    *w = (bt_worker_t){.config = &config, .ready_fd = -1, .instance = 7};
    snprintf(w->name, sizeof(w->name), "decode-0");
    w->admin.hangup_fd = -1;
    w->roles = BT_ROLE_DECODE;
    w->sleep =
        (bt_worker_sleep_t){.is_possible = true,
                            .is_asleep = true,
                            .order = 5,
                            .hello = {.protocol = BT_WIRE_PROTOCOL,
                                      .protocol_min = BT_WIRE_PROTOCOL_MIN,
                                      .role = BT_ROLE_DECODE,
                                      .name = "decode-0",
                                      .flags = BT_HELLO_SLEEPS,
                                      .tp = 1,
                                      .pp = 1}};
    bt_strbuf_init(&w->out, BT_LINK_MAX_MESSAGE);
    assert_int_equal(pthread_create(&r->thread, NULL, run_router, r), 0);
    code = bt_sleep_run(w, s, signal_fd);
    bt_control_close(w->control);
    assert_int_equal(pthread_join(r->thread, NULL), 0);
    for (uint32_t i = 0; i < w->n_links; i++) {
        bt_free(w->links[i]);
    }
    bt_wire_decoder_destroy(w->decoder);
    bt_strbuf_fini(&w->out);
    bt_cluster_close(s->cluster);
    free(s);
    w->config = NULL;
    return code;
}

static void sleeper_refuses_requests_and_wakes(void **state)
{
    static const uint32_t tokens[] = {1};
    const bt_msg_t orders[] = {
        {.type = BT_MSG_PEER_GONE, .u.peer_gone = {.instance = 3}},
        {.type = BT_MSG_REQUEST,
         .u.request = {.key = {1, 1},
                       .n_prompt = 1,
                       .tokens = tokens,
                       .n_tokens = 1,
                       .max_new = 1,
                       .sampling = bt_sampling_default()}},
        {.type = BT_MSG_ROLE, .u.role = {.roles = BT_ROLES_BOTH}},
        {.type = BT_MSG_SLEEP, .u.sleep = {.order = 4}}, /* an earlier one */
        {.type = BT_MSG_SLEEP, .u.sleep = {.order = 6}},
    };
    router_t r = {.orders = orders, .n_orders = BT_ARRAY_LEN(orders)};
    bt_worker_t *w = calloc(1, sizeof(*w));

    (void)state;
    assert_non_null(w);
    assert_int_equal(sleep_with(&r, w, -1), BT_EXIT_OK);
    assert_true(w->sleep.is_due);
    assert_int_equal(w->sleep.next.order, 6);
    assert_false(w->draining);
    assert_int_equal(w->roles, BT_ROLES_BOTH); /* when it wakes */
    assert_int_equal(r.flags, BT_HELLO_SLEEPS | BT_HELLO_ASLEEP);
    assert_int_equal(r.duty, BT_ADMIN_STATE_OFF);
    assert_true(r.n_stats > 0);
    assert_int_equal(r.n_drains, 1);
    assert_int_equal(r.n_failed, 1);
    free(w);
}

static void sleeper_ends_by_an_order_or_a_signal(void **state)
{
    const bt_msg_t orders[] = {
        {.type = BT_MSG_ROLE, .u.role = {.duty = BT_ADMIN_STATE_ON}},
        {.type = BT_MSG_ROLE, .u.role = {.duty = BT_ADMIN_STATE_END}},
    };
    router_t r = {.orders = orders, .n_orders = BT_ARRAY_LEN(orders)};
    router_t other = {.n_orders = 0};
    bt_worker_t *w = calloc(1, sizeof(*w));
    int signal_fd;

    (void)state;
    assert_non_null(w);
    assert_int_equal(sleep_with(&r, w, -1), BT_EXIT_OK);
    assert_true(w->draining);
    assert_false(w->sleep.is_due);

    bt_stop_block();
    signal_fd = bt_stop_open();
    assert_true(signal_fd >= 0);
    assert_int_equal(raise(SIGTERM), 0);
    other.is_gone = true; /* the worker is, before it is linked */
    assert_int_equal(sleep_with(&other, w, signal_fd), BT_EXIT_OK);
    assert_true(w->draining);
    close(signal_fd);
    free(w);
}

static int make_folder(void **state)
{
    FILE *file;

    (void)state;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    snprintf(url, sizeof(url), "ipc://%s/router", folder);
    snprintf(key_path, sizeof(key_path), "%s/key", folder);
    file = fopen(key_path, "w");
    if ((file == NULL) || (chmod(key_path, 0600) != 0)) {
        return -1;
    }
    for (unsigned i = 0; i < BT_KEY_BYTES; i++) {
        fprintf(file, "%02x", i);
    }
    return fclose(file);
}

static int remove_folder(void **state)
{
    char path[96];

    (void)state;
    snprintf(path, sizeof(path), "%s/router", folder);
    (void)unlink(path);
    return unlink(key_path) + rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(sleeper_refuses_requests_and_wakes),
        BT_TEST(sleeper_ends_by_an_order_or_a_signal),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
