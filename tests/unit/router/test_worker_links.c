/* SPDX-License-Identifier: Apache-2.0 */
/* The router's end of real control links, with workers of another age at the
 * other end: what they send is written by hand, as msgpack. */
#include "tests/support/testsupport.h"

#include <event2/event.h>
#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/crypt/key.h"
#include "router/request/request.h"
#include "router/worker_links.h"
#include "tests/support/tiny_model.h"

#define LIMIT_MS 60000 /* against hanging only */

typedef struct world {
    const bt_config_t *config;
    bt_config_store_t *store;
    bt_frontend_t front;
    bt_worker_links_t links;
    struct event_base *base;
    bt_hash128_t identity; /* of the worker's file */
    bt_control_t *worker;
    bt_link_t *link; /* of the worker's end */
    unsigned n_down;
    char why[256]; /* of the last DOWN */
    char bound[256];
} world_t;

static const uint8_t key[BT_KEY_BYTES] = {1, 2, 3};
static char dir[64];
static char model_path[96], other_path[96];
static unsigned n_routers; /* each has an address of its own */

static void open_router(world_t *w)
{
    char program[] = "router", model[128], run_dir[128];
    char template[] = "--chat-template=chatml";
    char *args[] = {program, model, run_dir, template};
    char url[128];

    memset(w, 0, sizeof(*w));
    snprintf(model, sizeof(model), "--model=tiny=%s", model_path);
    snprintf(run_dir, sizeof(run_dir), "--run-dir=%s", dir);
    assert_int_equal(bt_config_load(BT_PROG_ROUTER, false,
                                    (int)BT_ARRAY_LEN(args), args, &w->config,
                                    &w->store),
                     BT_OK);
    w->base = event_base_new();
    assert_non_null(w->base);
    assert_int_equal(bt_frontend_open(&w->front, w->config,
                                      &bt_request_frontend_ops,
                                      bt_worker_links_send, &w->links),
                     BT_OK);
    assert_int_equal(bt_worker_links_open(&w->links, w->base, &w->front),
                     BT_OK);
    w->identity = bt_registry_find(&w->front.models, NULL)->identity;
    snprintf(url, sizeof(url), "ipc://%s/router-%u", dir, n_routers++);
    assert_int_equal(bt_worker_links_listen(&w->links, w->base, url, key,
                                            sizeof(key), w->bound,
                                            sizeof(w->bound)),
                     BT_OK);
}

/* @param [in] worker_key  the router's, or another one
 * @param [in] range       of the handshake
 * @param [in] change  what is done to the bytes of its hello; NULL: nothing */
static void open_worker_of(world_t *w, const uint8_t worker_key[BT_KEY_BYTES],
                           bt_wire_range_t range, uint32_t protocol,
                           uint32_t protocol_min,
                           void (*change)(bt_strbuf_t *hello))
{
    bt_msg_t msg = {.type = BT_MSG_HELLO};
    bt_control_config_t config = {.key = worker_key,
                                  .key_bytes = BT_KEY_BYTES,
                                  .name = "decode-0",
                                  .range = range,
                                  .heartbeat_ms = w->config->heartbeat_ms,
                                  .suspect_ms = w->config->suspect_ms,
                                  .dead_ms = w->config->dead_ms,
                                  .max_queue_bytes = 1u << 20};
    bt_strbuf_t hello;

    msg.u.hello = (bt_msg_hello_t){
        .protocol = protocol,
        .protocol_min = protocol_min,
        .role = BT_ROLE_DECODE,
        .instance = 7,
        .name = "decode-0",
        .model = w->identity,
        .tokens_per_block = 16,
        .context_tokens = 64,
        .max_batch = 4,
        .n_blocks = 100,
        .tp = 1,
        .pp = 1,
    };
    bt_strbuf_init(&hello, BT_LINK_MAX_PAYLOAD);
    bt_wire_encode(&msg, &hello);
    assert_int_equal(bt_strbuf_status(&hello), BT_OK);
    if (change != NULL) {
        change(&hello);
    }
    config.hello = hello.data;
    config.hello_bytes = hello.len;
    assert_int_equal(bt_control_open(&config, &w->worker), BT_OK);
    bt_strbuf_fini(&hello);
    assert_int_equal(bt_control_join(w->worker, w->bound), BT_OK);
}

static void open_worker(world_t *w, uint32_t protocol, uint32_t protocol_min,
                        void (*change)(bt_strbuf_t *hello))
{
    open_worker_of(w, key, bt_wire_range_ours(), protocol, protocol_min,
                   change);
}

static void turn(world_t *w)
{
    struct pollfd fds[] = {
        {.fd = bt_control_fd(w->worker), .events = POLLIN},
        {.fd = bt_control_fd(w->links.control), .events = POLLIN}};
    bt_link_event_t event;

    (void)poll(fds, 2, 10);
    (void)event_base_loop(w->base, EVLOOP_NONBLOCK);
    (void)bt_pool_next(w->front.pool);
    bt_worker_links_tick(&w->links, bt_now_ms());
    bt_control_tick(w->worker, bt_now_ms());
    while (bt_control_next(w->worker, bt_now_ms(), &event)) {
        if (event.type == BT_LINK_UP) {
            w->link = event.link;
        } else if (event.type == BT_LINK_DOWN) {
            w->link = NULL;
            w->n_down++;
            snprintf(w->why, sizeof(w->why), "%.*s", (int)event.bytes,
                     (const char *)event.data);
        }
    }
    bt_control_flush(w->worker);
}

#define UNTIL(w, condition)                                \
    do {                                                   \
        const uint64_t limit_ms_ = bt_now_ms() + LIMIT_MS; \
                                                           \
        while (!(condition)) {                             \
            assert_true(bt_now_ms() < limit_ms_);          \
            turn(w);                                       \
        }                                                  \
    } while (0)

static const bt_instance_t *worker_of(const world_t *w)
{
    const bt_served_t *served = bt_registry_find(&w->front.models, NULL);

    return bt_table_find(bt_core_table(served->core), 7);
}

static void close_all(world_t *w)
{
    bt_control_close(w->worker);
    bt_worker_links_close(&w->links);
    bt_frontend_close(&w->front);
    event_base_free(w->base);
    bt_config_destroy(w->store);
}

/* Elements after the last that this build knows. By hand: nil, {1: 2}; the
 * count of an array 16 is its second and third byte. */
static void add_future(bt_strbuf_t *message)
{
    static const uint8_t more[] = {0xc0, 0x81, 1, 2};

    bt_strbuf_append(message, more, sizeof(more));
    assert_int_equal(bt_strbuf_status(message), BT_OK);
    assert_int_equal((uint8_t)message->data[0], 0xdc);
    message->data[2] = (char)(message->data[2] + 2);
}

/* A hello of the landed version has 17 elements. By hand: each later one that
 * is small or empty is a byte. */
static void cut_to_first(bt_strbuf_t *hello)
{
    assert_in_range(hello->data[2], 17 + 3, 127);
    hello->len -= (size_t)(hello->data[2] - 17);
    hello->data[2] = 17;
}

static void worker_of_a_newer_version_is_served(void **state)
{
    const bt_msg_t stats = {.type = BT_MSG_STATS,
                            .u.stats = {.start_unix_s = 5}};
    const uint8_t later_type[] = {0x92, 77, 0xc0};
    bt_strbuf_t message;
    world_t w;

    (void)state;
    bt_test_expect_log_lines(1); /* of nine messages one is said */
    open_router(&w);
    open_worker(&w, 9, BT_WIRE_PROTOCOL, add_future);
    UNTIL(&w, (w.link != NULL) && (worker_of(&w) != NULL));
    for (int i = 0; i < 9; i++) {
        assert_int_equal(bt_link_post(w.link, later_type, sizeof(later_type)),
                         BT_OK);
    }
    bt_strbuf_init(&message, BT_WIRE_MAX_BYTES);
    bt_wire_encode(&stats, &message);
    add_future(&message);
    assert_int_equal(bt_link_post(w.link, message.data, message.len), BT_OK);
    bt_strbuf_fini(&message);
    UNTIL(&w,
          (worker_of(&w) == NULL) || (worker_of(&w)->stats.start_unix_s == 5));
    assert_non_null(worker_of(&w));
    assert_int_equal(w.n_down, 0);
    close_all(&w);
}

static void worker_of_an_older_version_is_served(void **state)
{
    const uint8_t stats[] = {0xdc, 0, 26, 10, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5,
                             5,    5, 5,  5,  5, 5, 5, 5, 5, 5, 5, 5, 5, 5};
    world_t w;

    (void)state;
    open_router(&w);
    open_worker(&w, BT_WIRE_PROTOCOL, BT_WIRE_PROTOCOL, cut_to_first);
    UNTIL(&w, (w.link != NULL) && (worker_of(&w) != NULL));
    assert_int_equal(bt_link_post(w.link, stats, sizeof(stats)), BT_OK);
    UNTIL(&w, (worker_of(&w) == NULL) ||
                  (worker_of(&w)->stats.kv_checksum_failures == 5));
    assert_non_null(worker_of(&w));
    assert_int_equal(worker_of(&w)->stats.tokens_generated, 0);
    assert_int_equal(worker_of(&w)->hello.protocol_min, BT_WIRE_PROTOCOL);
    assert_string_equal(worker_of(&w)->hello.version_text, "");
    close_all(&w);
}

static void worker_of_another_protocol_is_refused_by_name(void **state)
{
    world_t w;

    (void)state;
    bt_test_expect_log_lines(1);
    open_router(&w);
    open_worker(&w, 9, 7, NULL);
    UNTIL(&w, w.n_down == 1);
    assert_string_equal(
        w.why, "decode-0 speaks protocol 7 to 9, this router speaks 4");
    assert_null(worker_of(&w));
    close_all(&w);
}

/* True when GET /v2/cluster would list a refused worker with this member. */
static bool is_listed_refused(const world_t *w, const char *member)
{
    bt_strbuf_t text;
    bt_json_t json;
    const char *list;
    bool found;

    bt_strbuf_init(&text, 1u << 20);
    bt_json_init(&json, &text);
    bt_json_object(&json, NULL);
    bt_members_write(&w->front.members, (uint64_t)bt_walltime_ms(), &json);
    bt_json_end_object(&json);
    assert_int_equal(bt_strbuf_status(&text), BT_OK);
    list = strstr(text.data, "\"refused\":[");
    assert_non_null(list);
    found = strstr(list, member) != NULL;
    bt_strbuf_fini(&text);
    return found;
}

static void worker_of_another_key_is_listed_as_refused(void **state)
{
    static const uint8_t other[BT_KEY_BYTES] = {3, 2, 1};
    world_t w;

    (void)state;
    bt_test_expect_log_lines(1);
    open_router(&w);
    open_worker_of(&w, other, bt_wire_range_ours(), BT_WIRE_PROTOCOL,
                   BT_WIRE_PROTOCOL, NULL);
    assert_false(is_listed_refused(&w, "another cluster key"));
    UNTIL(&w, is_listed_refused(&w, "another cluster key"));
    assert_true(is_listed_refused(&w, "\"decode-0\""));
    close_all(&w);
}

static void worker_of_another_protocol_is_listed_as_refused(void **state)
{
    const bt_wire_range_t later = {.oldest = 7, .newest = 9};
    world_t w;

    (void)state;
    bt_test_expect_log_lines(2);
    open_router(&w);
    open_worker_of(&w, key, later, 9, 7, NULL);
    UNTIL(&w, is_listed_refused(&w, "decode-0 speaks 7 to 9"));
    assert_true(is_listed_refused(&w, "\"decode-0\""));
    assert_null(worker_of(&w));
    close_all(&w);
}

/* Prompts for a worker that does not read: what is over the window stays in the
 * router, its link stays, and all come when it reads again. */
static void burst_for_a_slow_worker_waits_in_the_router(void **state)
{
    static uint32_t many[200000];
    bt_msg_t msg = {.type = BT_MSG_REQUEST,
                    .u.request = {.key = {.id = 1, .attempt = 1},
                                  .kind = BT_REQUEST_LOCAL,
                                  .max_new = 1,
                                  .deadline_ms = 1000,
                                  .sampling = bt_sampling_default(),
                                  .tokens = many,
                                  .n_tokens = BT_ARRAY_LEN(many),
                                  .n_prompt = BT_ARRAY_LEN(many)}};
    bt_instance_t *worker;
    uint64_t limit_ms;
    unsigned n = 0;
    world_t w;

    (void)state;
    open_router(&w);
    open_worker(&w, BT_WIRE_PROTOCOL, BT_WIRE_PROTOCOL_MIN, NULL);
    UNTIL(&w, (w.link != NULL) && (worker_of(&w) != NULL));
    worker = bt_table_find(
        bt_core_table(bt_registry_find(&w.front.models, NULL)->core), 7);
    memset(many, 0x05, sizeof(many)); /* ids of 5 bytes */
    limit_ms = bt_now_ms() + LIMIT_MS;
    while (!worker->sched.is_behind) {
        assert_true(bt_now_ms() < limit_ms);
        assert_true(n < 100);
        bt_worker_links_send(&w.links, worker, &msg);
        n++;
        (void)event_base_loop(w.base, EVLOOP_NONBLOCK);
    }
    assert_int_equal(w.n_down, 0);
    UNTIL(&w, !worker->sched.is_behind);
    assert_int_equal(w.n_down, 0);
    close_all(&w);
}

/* ---- models that are being read ---- */

typedef struct held {
    bt_pool_job_t job;
    sem_t gate;
} held_t;

static void hold(bt_pool_job_t *job)
{
    sem_wait(&BT_CONTAINER_OF(job, held_t, job)->gate);
}

static void held_done(bt_pool_job_t *job)
{
    (void)job;
}

/* A disk that is slow until the gate is opened. */
static void begin_load(world_t *w, held_t *held, const char *path)
{
    *held = (held_t){.job = {.run = hold, .done = held_done}};
    sem_init(&held->gate, 0, 0);
    bt_pool_post(w->front.pool, &held->job, BT_POOL_FILES);
    bt_loads_want(&w->front.loads, "other", path, false);
}

static void identity_of(const char *path, bt_hash128_t *identity_p)
{
    const bt_served_options_t options = {
        .name = "x", .path = path, .chat_template = "chatml"};
    bt_served_t *served = NULL;

    assert_int_equal(bt_served_read(&options, &served), BT_OK);
    *identity_p = served->identity;
    bt_served_free(served);
}

static void worker_waits_for_its_model_to_be_read(void **state)
{
    const bt_served_t *served;
    held_t held;
    world_t w;

    (void)state;
    open_router(&w);
    begin_load(&w, &held, other_path);
    identity_of(other_path, &w.identity);
    open_worker(&w, BT_WIRE_PROTOCOL, BT_WIRE_PROTOCOL_MIN, NULL);
    UNTIL(&w, !bt_list_empty(&w.links.waiting) || (w.n_down > 0));
    UNTIL(&w, (w.link != NULL) || (w.n_down > 0));
    assert_int_equal(w.n_down, 0);
    sem_post(&held.gate);
    UNTIL(&w, bt_registry_named(&w.front.models, "other") != NULL);
    served = bt_registry_named(&w.front.models, "other");
    UNTIL(&w, bt_table_find(bt_core_table(served->core), 7) != NULL);
    assert_null(worker_of(&w));
    assert_int_equal(w.n_down, 0);
    assert_true(bt_list_empty(&w.links.waiting));
    close_all(&w);
    sem_destroy(&held.gate);
}

/* One leaves while it waits, and another computes what no model is. */
static void worker_of_no_model_is_refused_when_all_are_read(void **state)
{
    held_t held;
    world_t w;

    (void)state;
    bt_test_expect_log_lines(2); /* no such file, and the refusal */
    open_router(&w);
    begin_load(&w, &held, "/nowhere/at/all.gguf");
    identity_of(other_path, &w.identity);
    open_worker(&w, BT_WIRE_PROTOCOL, BT_WIRE_PROTOCOL_MIN, NULL);
    UNTIL(&w, !bt_list_empty(&w.links.waiting) && (w.link != NULL));
    bt_link_close(w.link, "it leaves");
    UNTIL(&w, bt_list_empty(&w.links.waiting));
    bt_control_close(w.worker);
    w.link = NULL;
    open_worker(&w, BT_WIRE_PROTOCOL, BT_WIRE_PROTOCOL_MIN, NULL);
    w.n_down = 0;
    UNTIL(&w, !bt_list_empty(&w.links.waiting) && (w.link != NULL));
    sem_post(&held.gate);
    UNTIL(&w, w.n_down == 1);
    assert_non_null(strstr(w.why, "runs another model"));
    assert_true(bt_list_empty(&w.links.waiting));
    close_all(&w);

    open_router(&w); /* it waits when the router ends */
    begin_load(&w, &held, other_path);
    identity_of(other_path, &w.identity);
    open_worker(&w, BT_WIRE_PROTOCOL, BT_WIRE_PROTOCOL_MIN, NULL);
    UNTIL(&w, !bt_list_empty(&w.links.waiting));
    sem_post(&held.gate);
    close_all(&w);
    sem_destroy(&held.gate);
}

static void links_that_failed_to_open_can_be_closed(void **state)
{
    bt_worker_links_t links = {0};
    bt_frontend_t front = {0};
    struct event_base *base = event_base_new();
    bt_status_t status = BT_ERR_NO_MEMORY;

    (void)state;
    bt_worker_links_close(&links); /* zeroed */
    for (int nth = 1; status != BT_OK; nth++) {
        bt_alloc_fail_at(nth);
        status = bt_worker_links_open(&links, base, &front);
        bt_alloc_fail_at(0);
        if (status != BT_OK) {
            bt_test_expect_log_lines((unsigned long)nth);
        }
        bt_worker_links_close(&links);
    }
    event_base_free(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(links_that_failed_to_open_can_be_closed),
        BT_TEST(worker_of_a_newer_version_is_served),
        BT_TEST(worker_of_an_older_version_is_served),
        BT_TEST(worker_of_another_protocol_is_refused_by_name),
        BT_TEST(burst_for_a_slow_worker_waits_in_the_router),
        BT_TEST(worker_waits_for_its_model_to_be_read),
        BT_TEST(worker_of_no_model_is_refused_when_all_are_read),
        BT_TEST(worker_of_another_key_is_listed_as_refused),
        BT_TEST(worker_of_another_protocol_is_listed_as_refused),
    };
    bt_tiny_model_t shape = bt_tiny_model_default();
    int failed;

    snprintf(dir, sizeof(dir), "/tmp/baton-test-links-XXXXXX");
    if (mkdtemp(dir) == NULL) {
        return 1;
    }
    snprintf(model_path, sizeof(model_path), "%s/tiny.gguf", dir);
    if (bt_tiny_model_write(&shape, model_path) != BT_OK) {
        return 1;
    }
    shape.seed++;
    snprintf(other_path, sizeof(other_path), "%s/other.gguf", dir);
    if (bt_tiny_model_write(&shape, other_path) != BT_OK) {
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(other_path);
    (void)unlink(model_path);
    (void)rmdir(dir);
    return failed;
}
