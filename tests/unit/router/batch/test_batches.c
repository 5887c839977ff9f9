/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of several tenants, and how one is made. */
#include "tests/unit/router/batch/batch_fixture.h"

#define BODY                                                      \
    "{\"input_file_id\":\"%s\",\"endpoint\":\"/v1/completions\"," \
    "\"completion_window\":\"24h\"}"

static bt_batch_t *found;

static void note(void *ctx, const bt_batch_t *b, const bt_api_error_t *error)
{
    (void)ctx;
    (void)error;
    found = (b != NULL) ? bt_batch_of(b->object) : NULL;
}

/* Begins a batch of a tenant. */
static bt_batch_t *begin_as(world_t *w, const char *tenant_name,
                            const char *text)
{
    bt_tenant_t tenant = {.is_named = true};
    bt_api_error_t error;
    bt_batch_params_t params = {
        .tenant = &tenant, .input_id = input_id, .endpoint = "/v1/completions"};

    snprintf(tenant.name, sizeof(tenant.name), "%s", tenant_name);
    put_input_as(w, tenant_name, text);
    found = NULL;
    assert_int_equal(
        bt_batch_begin(w->door.batches, &params, note, NULL, &error), BT_OK);
    settle(w);
    assert_non_null(found);
    return found;
}

/* printf %s first-key | b2sum -l 256 */
static const char keys[] =
    "tenant a\ntenant b\ntenant c\n"
    "key a blake2b:"
    "744e3f2db4a90571dfd3944ca68929d55a8d5dfb973c2eb7ffdd3b8d3aa541dc\n";

static void open_keyed_world(world_t *w, uint32_t in_flight)
{
    static char path[64];
    int fd;

    snprintf(path, sizeof(path), "/tmp/baton-test-keys-XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, keys, sizeof(keys) - 1),
                     (ssize_t)sizeof(keys) - 1);
    close(fd);
    api_keys = path;
    open_world(w, in_flight);
}

static void close_keyed_world(world_t *w)
{
    close_world(w);
    remove_folder();
    assert_int_equal(unlink(api_keys), 0);
    api_keys = "";
}

#define LINES LINE("1", "") LINE("2", "") LINE("3", "")

/* However many batches one of them has. */
static void tenants_take_turns(void **state)
{
    world_t *w = &world;
    bt_batch_t *a[3], *b;
    uint32_t n_of_b = 0;

    (void)state;
    open_keyed_world(w, 1);
    for (int i = 0; i < 3; i++) {
        a[i] = begin_as(w, "a", LINES);
    }
    b = begin_as(w, "b", LINES);
    assert_int_equal(b->n_running, 0);
    for (uint32_t i = 0; i < 7; i++) {
        answer(w, i, "Yes.", BT_FINISH_STOP);
        settle(w);
        n_of_b += b->n_running;
        assert_int_equal(a[0]->n_running + a[1]->n_running + a[2]->n_running +
                             b->n_running,
                         1);
    }
    assert_int_equal(n_of_b, 3);
    assert_int_equal(b->status, BT_BATCH_COMPLETED);
    /* So do the batches of one. */
    for (int i = 0; i < 3; i++) {
        assert_true(a[i]->n_ok >= 1);
    }
    close_keyed_world(w);
}

/* One that has many to check does not keep others from it. */
static void checks_take_turns(void **state)
{
    world_t *w = &world;
    bt_batch_t *a[2], *b;

    (void)state;
    open_keyed_world(w, 0);
    for (int i = 0; i < 2; i++) {
        a[i] = begin_as(w, "a", LINES);
    }
    b = begin_as(w, "b", LINES);
    a[0]->status = a[1]->status = b->status = BT_BATCH_VALIDATING;
    bt_batch_input_close(a[0]);
    bt_batch_input_close(a[1]);
    bt_batch_input_close(b);
    hold_files(w);
    for (int i = 0; i < 2; i++) {
        bt_batches_tick(w->door.batches, bt_now_us());
        assert_true(a[0]->has_job);
        assert_false(a[1]->has_job);
        assert_true(b->has_job);
    }
    release_files();
    settle(w);
    assert_int_equal(w->door.batches->n_checks, 0);
    assert_int_equal(a[1]->status, BT_BATCH_IN_PROGRESS);
    close_keyed_world(w);
}

/* The memory of one is counted; where it is short, one goes on at a time. */
static void checks_need_memory(void **state)
{
    world_t *w = &world;
    uint64_t before;
    bt_batch_t *b[2];

    (void)state;
    open_keyed_world(w, 0);
    b[0] = begin_as(w, "a", LINES);
    b[1] = begin_as(w, "b", LINES);
    for (int i = 0; i < 2; i++) {
        b[i]->status = BT_BATCH_VALIDATING;
        bt_batch_input_close(b[i]);
    }
    before = w->door.batches->held_bytes;
    w->front.requests.limit = before + (1u << 20);
    hold_files(w);
    bt_batches_tick(w->door.batches, bt_now_us());
    assert_int_equal(w->door.batches->n_checks, 1);
    assert_true(w->door.batches->held_bytes >
                before + w->config.max_body_bytes);
    release_files();
    for (int i = 0; i < 4; i++) {
        settle(w);
    }
    assert_int_equal(b[0]->status, BT_BATCH_IN_PROGRESS);
    assert_int_equal(b[1]->status, BT_BATCH_IN_PROGRESS);
    /* Their lines were read twice. */
    assert_in_range(w->door.batches->held_bytes, before, before + 10000);
    close_keyed_world(w);
}

/* Also while they are being made. */
static void batches_of_a_tenant_are_bounded(void **state)
{
    static bt_exchange_t ex[BT_BATCH_MAX_OPEN + 1];
    world_t *w = &world;
    char body[256];

    (void)state;
    open_world(w, 0);
    put_input(w, LINES);
    snprintf(body, sizeof(body), BODY, input_id);
    hold_files(w);
    for (size_t i = 0; i <= BT_BATCH_MAX_OPEN; i++) {
        send_to(w, &ex[i], BT_HTTP_POST, BATCHES, body);
        assert_int_equal(ex[i].n_ends, i == BT_BATCH_MAX_OPEN);
    }
    assert_int_equal(ex[BT_BATCH_MAX_OPEN].status, 429);
    release_files();
    settle(w);
    for (size_t i = 0; i < BT_BATCH_MAX_OPEN; i++) {
        assert_int_equal(ex[i].status, 200);
    }
    close_world(w);
    remove_folder();
}

/* A batch that was refused is not there, nor does it begin later. */
static void batch_is_made_or_refused(void **state)
{
    world_t *w = &world;
    bool is_over = false;
    bt_exchange_t ex;
    char body[256];

    (void)state;
    for (int nth = 1; !is_over; nth++) {
        open_world(w, 0);
        put_input(w, LINES);
        snprintf(body, sizeof(body), BODY, input_id);
        call(w, &ex, BT_HTTP_POST, BATCHES, body); /* memory for answers */
        settle(w);
        send_to(w, &ex, BT_HTTP_POST, BATCHES, body);
        hold_files(w); /* it is on the disk; nobody knows yet */
        bt_alloc_fail_at(nth);
        run_one_job(w);
        is_over = bt_alloc_fail_at(0) > 0;
        assert_int_equal(ex.n_ends, 1);
        assert_int_equal(ex.status, 200);
        release_files();
        settle(w);
        call(w, &ex, BT_HTTP_GET, BATCHES, "");
        assert_int_equal(times(ex.out, "\"status\":\"in_progress\""), 2);
        close_world(w);
        remove_folder();
    }
}

static void batch_without_memory_is_not_begun(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;
    char body[256];

    (void)state;
    open_world(w, 0);
    put_input(w, LINES);
    snprintf(body, sizeof(body), BODY, input_id);
    w->front.requests.limit = 100000;
    call(w, &ex, BT_HTTP_POST, BATCHES, body);
    assert_int_equal(ex.status, 503);
    has(&ex, "no memory for a batch more");
    w->front.requests.limit = UINT64_MAX;
    call(w, &ex, BT_HTTP_POST, BATCHES, body);
    assert_int_equal(ex.status, 200);
    settle(w);
    assert_true(w->door.batches->held_bytes > BT_BATCH_OPEN_BYTES);
    assert_true(w->front.requests.used >= w->door.batches->held_bytes);
    close_world(w);
    remove_folder();
}

/* Lines that are read, and answers, until they are on the disk. */
static void memory_of_lines_and_answers_is_counted(void **state)
{
    world_t *w = &world;
    uint64_t with_lines;

    (void)state;
    open_world(w, 1);
    begin(w, LINE("1", "") LINE("2", ""));
    with_lines = w->door.batches->held_bytes;
    answer(w, 0, "Yes.", BT_FINISH_STOP);
    assert_true(w->door.batches->held_bytes > with_lines - 1000);
    settle(w);
    assert_true(w->door.batches->held_bytes < with_lines);
    assert_true(w->door.batches->held_bytes > BT_BATCH_OPEN_BYTES);
    answer(w, 1, "Yes.", BT_FINISH_STOP);
    settle(w);
    shows(w, "\"status\":\"completed\"");
    assert_int_equal(w->door.batches->held_bytes, 0);
    /* Where there is none, lines wait. */
    w->front.requests.limit = 204800;
    begin(w, LINE("1", ""));
    shows(w, "\"status\":\"in_progress\"");
    assert_int_equal(batch(w)->n_running, 0);
    w->front.requests.limit = UINT64_MAX;
    settle(w);
    assert_int_equal(batch(w)->n_running, 1);
    close_world(w);
    remove_folder();
}

/* However little there is for all, some of it is for lines. */
static void little_memory_is_enough_for_some_lines(void **state)
{
    static char text[32 * 10000];
    world_t *w = &world;
    size_t n = 0;

    (void)state;
    for (unsigned i = 0; i < 32; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n,
                              LINE("%u", ",\"x\":\"%09000u\""), i, i);
    }
    open_world(w, 0);
    w->front.requests.limit = 500000;
    begin(w, text);
    shows(w, "\"status\":\"in_progress\"");
    assert_in_range(batch(w)->ready_bytes, 500000 / 8, 500000 / 8 + 10000);
    close_world(w);
    remove_folder();
}

/* It is there until its time in the store is over. */
static void batch_that_has_ended_is_left_alone(void **state)
{
    world_t *w = &world;
    bt_batches_t *all;

    (void)state;
    open_world(w, 0);
    begin(w, "");
    begin(w, LINES);
    all = w->door.batches;
    assert_false(bt_list_empty(&all->ended));
    assert_false(bt_list_empty(&all->owners));
    for (int i = 0; i < 2; i++) {
        bt_store_tick(w->front.store, w->front.pool,
                      bt_unix_us() + UINT64_C(2592001000000));
        settle(w);
        assert_true(bt_list_empty(&all->ended));
        assert_true(bt_list_empty(&all->owners));
        assert_true(bt_list_empty(&all->gone));
    }
    assert_int_equal(all->held_bytes, 0);
    close_world(w);
    remove_folder();
}

static void store_that_is_full_is_waited_for(void **state)
{
    bt_store_put_t *puts[2];
    world_t *w = &world;
    bt_batch_t *b;

    (void)state;
    open_keyed_world(w, 1);
    b = begin_as(w, "a", LINE("1", ""));
    for (int i = 0; i < 2; i++) {
        const uint64_t used = bt_store_use(w->front.store).bytes;

        assert_int_equal(
            bt_store_put_begin(w->front.store, BT_STORE_FILE,
                               (i == 0) ? "b" : "c",
                               (1u << 20) / 2 - BT_STORE_OBJECT_BYTES -
                                   ((i == 0) ? 0 : used - (1u << 19) + 100),
                               bt_unix_us(), &puts[i]),
            BT_OK);
    }
    answer(w, 0, "Yes.", BT_FINISH_STOP);
    settle(w);
    assert_int_equal(b->status, BT_BATCH_IN_PROGRESS);
    assert_int_equal(b->n_ok, 0);
    for (int i = 0; i < 2; i++) {
        assert_null(bt_store_put_end(puts[i]));
    }
    b->wait_until_us = 0;
    settle(w);
    assert_int_equal(b->status, BT_BATCH_COMPLETED);
    assert_int_equal(b->n_ok, 1);
    close_keyed_world(w);
}

static const char *name_of(const void *ctx, const char *name)
{
    return (strcmp(name, "x-tenant") == 0) ? ctx : NULL;
}

/* Of those that a header names, there are so many at a time. */
static void tenant_that_finds_no_room_is_waited_for(void **state)
{
    bt_tenant_t *others[BT_TENANTS_MAX_NAMED];
    world_t *w = &world;
    bt_batch_t *b;

    (void)state;
    tenant_header = "x-tenant";
    open_world(w, 1);
    for (uint32_t i = 0; i < BT_TENANTS_MAX_NAMED; i++) {
        const char *why = NULL;
        char name[16];

        snprintf(name, sizeof(name), "t%u", i);
        assert_int_equal(
            bt_tenants_find(&w->front.tenants, name_of, name, &others[i], &why),
            BT_OK);
        (void)bt_tenant_ref(others[i]);
    }
    b = begin_as(w, "late", LINE("1", ""));
    assert_int_equal(b->status, BT_BATCH_IN_PROGRESS);
    assert_int_equal(b->n_running, 0);
    for (uint32_t i = 0; i < BT_TENANTS_MAX_NAMED; i++) {
        bt_tenant_unref(others[i]);
    }
    b->wait_until_us = 0;
    settle(w);
    assert_int_equal(b->n_running, 1);
    close_world(w);
    remove_folder();
    tenant_header = "";
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(tenants_take_turns),
        BT_TEST(checks_take_turns),
        BT_TEST(checks_need_memory),
        BT_TEST(batches_of_a_tenant_are_bounded),
        BT_TEST(batch_is_made_or_refused),
        BT_TEST(batch_without_memory_is_not_begun),
        BT_TEST(memory_of_lines_and_answers_is_counted),
        BT_TEST(little_memory_is_enough_for_some_lines),
        BT_TEST(batch_that_has_ended_is_left_alone),
        BT_TEST(store_that_is_full_is_waited_for),
        BT_TEST(tenant_that_finds_no_room_is_waited_for),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
