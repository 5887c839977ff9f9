/* SPDX-License-Identifier: Apache-2.0 */
/** @file batch_fixture.h  Batches from the route to the last line of their
 *  files, with scripted workers. For one test program each. */
#ifndef BT_TESTS_UNIT_ROUTER_BATCH_FIXTURE_H
#define BT_TESTS_UNIT_ROUTER_BATCH_FIXTURE_H

#include "common/base/status.h"
#include "router/batch/batch_priv.h"
#include "tests/unit/router/request_fixture.h"

#include <dirent.h>
#include <semaphore.h>

#define BATCHES "/v1/batches"
#define LINE(id, more)                                                     \
    "{\"custom_id\":\"" id                                                 \
    "\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"model" \
    "\":\"tiny\",\"prompt\":\"Hi\",\"max_tokens\":4" more "}}\n"

static char folder[64];
static char batch_path[96], batch_id[64], input_id[64];

static inline void reopen(world_t *w, uint32_t in_flight)
{
    store_path = folder;
    start(w, true);
    w->config.batch_lines_in_flight = in_flight;
    assert_int_equal(bt_batches_create(&w->front, &w->door.batches), BT_OK);
}

static inline void open_world(world_t *w, uint32_t in_flight)
{
    snprintf(folder, sizeof(folder), "/tmp/baton-batch-XXXXXX");
    assert_non_null(mkdtemp(folder));
    reopen(w, in_flight);
}

/* As a process that is killed: what was not written is not. */
static inline void close_world(world_t *w)
{
    bt_pool_stop(w->front.pool);
    bt_batches_destroy(w->door.batches);
    stop(w);
    store_path = "";
}

static inline void remove_folder(void)
{
    char command[96];

    snprintf(command, sizeof(command), "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

/* Runs jobs and news until nothing is left to do without workers. */
static inline void settle(world_t *w)
{
    for (int i = 0; i < 6; i++) {
        drain_pool(w);
        bt_turn_finish(&w->front.turn);
        bt_batches_tick(w->door.batches, bt_now_us());
    }
    drain_pool(w);
}

static inline void call(world_t *w, bt_exchange_t *ex, bt_http_method_t method,
                        const char *path, const char *body)
{
    send_to(w, ex, method, path, body);
    drain_pool(w);
    assert_int_equal(ex->n_ends, 1);
}

static inline void put_input_as(world_t *w, const char *space, const char *text)
{
    static const char label[] = "batch\0in.jsonl";
    bt_store_put_t *put;

    assert_int_equal(bt_store_put_begin(w->front.store, BT_STORE_FILE, space,
                                        strlen(text), bt_unix_us(), &put),
                     BT_OK);
    assert_int_equal(bt_store_put_describe(put, label, sizeof(label) - 1, 0),
                     BT_OK);
    assert_int_equal(bt_store_put_write(put, text, strlen(text)), BT_OK);
    assert_int_equal(bt_store_put_commit(put), BT_OK);
    snprintf(input_id, sizeof(input_id), "%s", bt_store_put_end(put)->id);
}

static inline void put_input(world_t *w, const char *text)
{
    put_input_as(w, "", text);
}

static inline void begin(world_t *w, const char *text)
{
    char body[256];
    bt_exchange_t ex;

    put_input(w, text);
    snprintf(body, sizeof(body),
             "{\"input_file_id\":\"%s\",\"endpoint\":\"/v1/completions\","
             "\"completion_window\":\"24h\"}",
             input_id);
    call(w, &ex, BT_HTTP_POST, BATCHES, body);
    assert_int_equal(ex.status, 200);
    has(&ex, "\"object\":\"batch\",\"endpoint\":\"/v1/completions\",\"errors\""
             ":null");
    has(&ex, "\"status\":\"validating\"");
    snprintf(batch_id, sizeof(batch_id), "%.38s", strstr(ex.out, "batch_"));
    snprintf(batch_path, sizeof(batch_path), BATCHES "/%s", batch_id);
    settle(w);
}

static inline bt_batch_t *batch(world_t *w)
{
    bt_stored_t *object =
        bt_store_find(w->front.store, BT_STORE_BATCH, "", batch_id);

    assert_non_null(object);
    assert_non_null(bt_batch_of(object));
    return bt_batch_of(object);
}

static inline void shows(world_t *w, const char *part)
{
    bt_exchange_t ex;

    call(w, &ex, BT_HTTP_GET, batch_path, "");
    assert_int_equal(ex.status, 200);
    has(&ex, part);
}

/* Begins a batch whose lines are with the pool then. */
static inline void begin_unchecked(world_t *w, const char *text)
{
    bt_exchange_t ex;
    char body[256];

    put_input(w, text);
    snprintf(body, sizeof(body),
             "{\"input_file_id\":\"%s\",\"endpoint\":\"/v1/completions\","
             "\"completion_window\":\"24h\"}",
             input_id);
    call(w, &ex, BT_HTTP_POST, BATCHES, body);
    snprintf(batch_id, sizeof(batch_id), "%.38s", strstr(ex.out, "batch_"));
    snprintf(batch_path, sizeof(batch_path), BATCHES "/%s", batch_id);
    bt_turn_finish(&w->front.turn);
    assert_true(batch(w)->has_job);
}

static inline void run_one_job(world_t *w)
{
    struct pollfd p = {.fd = bt_pool_fd(w->front.pool), .events = POLLIN};

    while (!bt_pool_next(w->front.pool)) {
        assert_int_equal(poll(&p, 1, 60000), 1);
    }
}

/* Lets the pool's files thread wait, so that what is posted is not run. */
static bt_work_t holder;
static sem_t held, reached;

static void run_holder(bt_pool_job_t *job)
{
    (void)job;
    (void)sem_post(&reached);
    while (sem_wait(&held) != 0) {
    }
}

static void holder_done(bt_pool_job_t *job)
{
    (void)job;
}

/* Returns once all jobs that were posted before have run; their done() are not
 * called. */
static inline void hold_files(world_t *w)
{
    assert_int_equal(sem_init(&held, 0, 0), 0);
    assert_int_equal(sem_init(&reached, 0, 0), 0);
    holder = (bt_work_t){.job = {.run = run_holder, .done = holder_done}};
    bt_work_init(&holder, NULL, &(bt_work_client_t){0});
    bt_work_post(&holder, w->front.pool, BT_POOL_FILES, 0);
    while (sem_wait(&reached) != 0) {
    }
}

static inline void release_files(void)
{
    assert_int_equal(sem_post(&held), 0);
}

/* Reads the output, or the error file. */
static inline void read_file(world_t *w, bool errors, bt_exchange_t *ex)
{
    const bt_batch_t *b = batch(w);
    char path[96];

    snprintf(path, sizeof(path), "/v1/files/%s/content",
             errors ? b->error_id : b->output_id);
    call(w, ex, BT_HTTP_GET, path, "");
    assert_int_equal(ex->status, 200);
}

static inline unsigned times(const char *text, const char *part)
{
    unsigned n = 0;

    for (const char *at = text; (at = strstr(at, part)) != NULL; at++) {
        n++;
    }
    return n;
}

#endif
