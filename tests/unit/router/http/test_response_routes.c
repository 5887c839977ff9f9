/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/responses/ID: stored responses are read, listed and deleted, by their own
 * tenant. Forms: OpenAI's API reference, "Get a model response", "Delete a
 * model response", "List input items". */
#include "common/base/status.h"
#include "tests/unit/router/stored_fixture.h"

#include <errno.h>
#include <semaphore.h>
#include <sys/syscall.h>

/* The system's, which fails while this says so. */
static _Atomic bool unlink_fails;

int unlinkat(int fd, const char *path, int flags)
{
    if (unlink_fails) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_unlinkat, fd, path, flags);
}

static void path_of(const char *id, const char *end, char path[128])
{
    snprintf(path, 128, RESPONSES "/%.63s%.20s", id, end);
}

static void response_is_read_and_deleted(void **state)
{
    world_t *w = &world;
    char id[ID_BYTES], path[128], said[4096];
    bt_exchange_t ex;

    (void)state;
    for (int place = 0; place < N_PLACES; place++) {
        open_stored(w, place);
        respond_as(w, &ex, NULL, "{\"store\":true,\"input\":\"Hi\"}", "yesX");
        assert_int_equal(ex.status, 200);
        has(&ex, "\"text\":\"yes\"");
        id_from(&ex, id);
        snprintf(said, sizeof(said), "%.4000s", ex.out);
        path_of(id, "", path);
        call_as(w, &ex, BT_HTTP_GET, NULL, path, NULL);
        assert_int_equal(ex.status, 200);
        assert_string_equal(ex.type, "application/json");
        assert_string_equal(ex.out, said);
        call_as(w, &ex, BT_HTTP_DELETE, NULL, path, NULL);
        assert_int_equal(ex.status, 200);
        snprintf(said, sizeof(said),
                 "{\"id\":\"%s\",\"object\":\"response\",\"deleted\":true}",
                 id);
        assert_string_equal(ex.out, said);
        for (int i = 0; i < 4; i++) {
            path_of(id,
                    (i == 2)   ? "/input_items"
                    : (i == 3) ? "/cancel"
                               : "",
                    path);
            call_as(w, &ex,
                    (i == 1)   ? BT_HTTP_DELETE
                    : (i == 3) ? BT_HTTP_POST
                               : BT_HTTP_GET,
                    NULL, path, NULL);
            assert_int_equal(ex.status, 404);
            snprintf(said, sizeof(said),
                     "\"message\":\"Response with id '%s' not found.\"", id);
            has(&ex, said);
            has(&ex, "\"type\":\"invalid_request_error\"");
        }
        if (place != IN_MEMORY) {
            assert_int_equal(responses_on_disk(), 0);
        }
        close_stored(w);
    }
}

static void response_cannot_be_cancelled_or_streamed(void **state)
{
    static const struct {
        const char *query;
        int status;
    } cases[] = {
        {"stream=true", 400},
        {"stream=false", 200},
        {"stream=", 400},
        {"starting_after=1", 400},
        {"include[]=reasoning.encrypted_content", 200},
        {"include=a&include_obfuscation=true", 200},
        {"limit=1", 400},
        {"a=%zz", 400},
    };
    world_t *w = &world;
    char id[ID_BYTES], path[128];
    bt_exchange_t ex;

    (void)state;
    open_stored(w, IN_MEMORY);
    keep_as(w, NULL, ",\"input\":\"Hi\"", "yesX", id);
    path_of(id, "/cancel", path);
    call_as(w, &ex, BT_HTTP_POST, NULL, path, NULL);
    assert_int_equal(ex.status, 400);
    has(&ex, "\"message\":\"Cannot cancel a synchronous response");
    path_of(id, "", path);
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        call_as(w, &ex, BT_HTTP_GET, NULL, path, cases[i].query);
        if (ex.status != cases[i].status) {
            fail_msg("%s: %d %s", cases[i].query, ex.status, ex.out);
        }
    }
    call_as(w, &ex, BT_HTTP_POST, NULL, path, NULL);
    assert_int_equal(ex.status, 405);
    assert_non_null(strstr(ex.headers, "Allow: GET, HEAD, DELETE\n"));
    close_stored(w);
}

static void input_items_are_listed_in_pages(void **state)
{
    static const char input[] =
        ",\"input\":[{\"role\":\"user\",\"content\":\"a\",\"id\":\"m1\"},"
        "{\"type\":\"message\",\"role\":\"assistant\",\"content\":\"b\","
        "\"id\":\"m1\"},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"input_text\","
        "\"text\":\"c\"}]}]";
    static const struct {
        const char *query;
        int status;
        const char *part;
    } cases[] = {
        {"limit=0", 400, "limit must be a number from 1 to 100"},
        {"limit=101", 400, "\"param\":\"limit\""},
        {"limit=x", 400, "\"param\":\"limit\""},
        {"order=up", 400, "order must be asc or desc"},
        {"after=none", 400, "\"param\":\"after\""},
        {"before=m1", 400, "before is no parameter of this list"},
        {"after=m1&order=desc", 200,
         "{\"object\":\"list\",\"data\":[],\"first_id\":null,"
         "\"last_id\":null,\"has_more\":false}"},
    };
    world_t *w = &world;
    char id[ID_BYTES], path[128], text[1024], query[128];
    bt_exchange_t ex;

    (void)state;
    open_stored(w, IN_MEMORY);
    keep_as(w, NULL, input, "yesX", id);
    path_of(id, "/input_items", path);
    call_as(w, &ex, BT_HTTP_GET, NULL, path, "order=asc");
    assert_int_equal(ex.status, 200);
    snprintf(text, sizeof(text),
             "{\"object\":\"list\",\"data\":["
             "{\"id\":\"m1\",\"type\":\"message\",\"status\":\"completed\","
             "\"role\":\"user\",\"content\":[{\"type\":\"input_text\","
             "\"text\":\"a\"}]},"
             "{\"id\":\"msg_%s_in1\",\"type\":\"message\","
             "\"status\":\"completed\",\"role\":\"assistant\",\"content\":["
             "{\"type\":\"output_text\",\"text\":\"b\",\"annotations\":[]}]},"
             "{\"id\":\"msg_%s_in2\",\"type\":\"message\","
             "\"status\":\"completed\",\"role\":\"user\",\"content\":["
             "{\"type\":\"input_text\",\"text\":\"c\"}]}],"
             "\"first_id\":\"m1\",\"last_id\":\"msg_%s_in2\","
             "\"has_more\":false}",
             id + 5, id + 5, id + 5);
    assert_string_equal(ex.out, text);
    /* The newest first, as at OpenAI; two pages. */
    call_as(w, &ex, BT_HTTP_GET, NULL, path, "limit=2");
    snprintf(text, sizeof(text),
             "\"first_id\":\"msg_%s_in2\",\"last_id\":\"msg_%s_in1\","
             "\"has_more\":true}",
             id + 5, id + 5);
    has(&ex, text);
    snprintf(query, sizeof(query), "limit=2&after=msg_%s_in1", id + 5);
    call_as(w, &ex, BT_HTTP_GET, NULL, path, query);
    has(&ex, "\"first_id\":\"m1\",\"last_id\":\"m1\",\"has_more\":false}");
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        call_as(w, &ex, BT_HTTP_GET, NULL, path, cases[i].query);
        if (ex.status != cases[i].status) {
            fail_msg("%s: %d %s", cases[i].query, ex.status, ex.out);
        }
        has(&ex, cases[i].part);
    }
    /* A text is one message. */
    keep_as(w, NULL, ",\"input\":\"x\\\"y\"", "yesX", id);
    path_of(id, "/input_items", path);
    call_as(w, &ex, BT_HTTP_GET, NULL, path, NULL);
    has(&ex, "\"role\":\"user\",\"content\":[{\"type\":\"input_text\","
             "\"text\":\"x\\\"y\"}]}],");
    close_stored(w);
}

/* printf %s first-key | b2sum -l 256; the same of second-key */
static const char keys[] =
    "tenant a\ntenant b\n"
    "key a blake2b:"
    "744e3f2db4a90571dfd3944ca68929d55a8d5dfb973c2eb7ffdd3b8d3aa541dc\n"
    "key b blake2b:"
    "b403ac760ffbe9c42139816644770e85e55a2b13822d72508807979399f87ca8\n";

/* What another tenant reads differs in the id that it has given itself. */
static void same_but_for_id(const bt_exchange_t *a, const char *id_a,
                            const bt_exchange_t *b, const char *id_b)
{
    const char *at_a = strstr(a->out, id_a), *at_b = strstr(b->out, id_b);

    assert_int_equal(a->status, b->status);
    assert_non_null(at_a);
    assert_non_null(at_b);
    assert_int_equal(at_a - a->out, at_b - b->out);
    assert_memory_equal(a->out, b->out, (size_t)(at_a - a->out));
    assert_string_equal(at_a + strlen(id_a), at_b + strlen(id_b));
}

static void tenant_never_sees_responses_of_another(void **state)
{
    static const char never[] = "resp_00000000000000000000000000000000";
    static const struct {
        bt_http_method_t method;
        const char *end;
    } calls[] = {{BT_HTTP_GET, ""},
                 {BT_HTTP_DELETE, ""},
                 {BT_HTTP_GET, "/input_items"},
                 {BT_HTTP_POST, "/cancel"}};
    char keys_path[] = "/tmp/baton-test-keys-XXXXXX";
    const int fd = mkstemp(keys_path);
    char id[ID_BYTES], path[128], body[256];
    world_t *w = &world;
    bt_exchange_t ex, other;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, keys, sizeof(keys) - 1),
                     (ssize_t)sizeof(keys) - 1);
    close(fd);
    for (int place = 0; place < N_PLACES; place++) {
        api_keys = keys_path;
        open_stored(w, place);
        keep_as(w, "first-key", ",\"input\":\"secret\"", "yesX", id);
        for (size_t i = 0; i < BT_ARRAY_LEN(calls); i++) {
            path_of(id, calls[i].end, path);
            call_as(w, &ex, calls[i].method, "second-key", path, NULL);
            assert_int_equal(ex.status, 404);
            path_of(never, calls[i].end, path);
            call_as(w, &other, calls[i].method, "second-key", path, NULL);
            same_but_for_id(&ex, id, &other, never);
        }
        snprintf(body, sizeof(body),
                 "{\"input\":\"a\",\"previous_response_id\":\"%s\"}", id);
        respond_as(w, &ex, "second-key", body, "yesX");
        assert_int_equal(ex.status, 400);
        has(&ex, "\"code\":\"previous_response_not_found\"");
        snprintf(body, sizeof(body),
                 "{\"input\":\"a\",\"previous_response_id\":\"%s\"}", never);
        respond_as(w, &other, "second-key", body, "yesX");
        same_but_for_id(&ex, id, &other, never);
        path_of(id, "", path);
        call_as(w, &ex, BT_HTTP_GET, NULL, path, NULL);
        assert_int_equal(ex.status, 401);
        call_as(w, &ex, BT_HTTP_GET, "first-key", path, NULL);
        assert_int_equal(ex.status, 200);
        close_stored(w);
    }
    unlink(keys_path);
}

/* ---- the thread that accesses files ---- */

typedef struct held {
    bt_pool_job_t job;
    sem_t began, gate;
} held_t;

static void hold(bt_pool_job_t *job)
{
    held_t *held = BT_CONTAINER_OF(job, held_t, job);

    sem_post(&held->began);
    sem_wait(&held->gate);
}

static void held_done(bt_pool_job_t *job)
{
    (void)job;
}

/* Returns once the thread waits. */
static void hold_files(world_t *w, held_t *held)
{
    held->job = (bt_pool_job_t){.run = hold, .done = held_done};
    sem_init(&held->began, 0, 0);
    sem_init(&held->gate, 0, 0);
    bt_pool_post(w->front.pool, &held->job, BT_POOL_FILES);
    sem_wait(&held->began);
}

static void let_files_go(world_t *w, held_t *held)
{
    sem_post(&held->gate);
    drain_pool(w);
    sem_destroy(&held->gate);
    sem_destroy(&held->began);
}

/* Waits for one job to be done. */
static void next_job(world_t *w)
{
    while (!bt_pool_next(w->front.pool)) {
        struct pollfd p = {.fd = bt_pool_fd(w->front.pool), .events = POLLIN};

        assert_int_equal(poll(&p, 1, 60000), 1);
    }
}

static void begin_as(world_t *w, bt_exchange_t *ex, const char *key,
                     const char *path)
{
    memset(ex, 0, sizeof(*ex));
    ex->method = BT_HTTP_GET;
    ex->path = path;
    ex->body = "";
    ex->api_key = key;
    ex->door = &w->door;
    bt_door_request(&w->door, ex);
    assert_int_equal(ex->n_ends, 0);
}

/* Who asks first and often is not ahead of all others. */
static void tenants_take_turns_at_the_files(void **state)
{
    char keys_path[] = "/tmp/baton-test-keys-XXXXXX";
    const int fd = mkstemp(keys_path);
    char id[ID_BYTES], path[128], other_id[ID_BYTES], b_path[128];
    world_t *w = &world;
    bt_exchange_t ex[4], other;
    held_t held;
    unsigned n_ends = 0;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, keys, sizeof(keys) - 1),
                     (ssize_t)sizeof(keys) - 1);
    close(fd);
    api_keys = keys_path;
    open_stored(w, ON_DISK);
    keep_as(w, "first-key", ",\"input\":\"a\"", "yesX", id);
    keep_as(w, "second-key", ",\"input\":\"b\"", "yesX", other_id);
    path_of(id, "", path);
    path_of(other_id, "", b_path);
    hold_files(w, &held);
    for (size_t i = 0; i < BT_ARRAY_LEN(ex); i++) {
        begin_as(w, &ex[i], "first-key", path);
    }
    begin_as(w, &other, "second-key", b_path);
    sem_post(&held.gate);
    while (other.n_ends == 0) {
        next_job(w);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(ex); i++) {
        n_ends += ex[i].n_ends;
    }
    assert_in_range(n_ends, 0, 1);
    assert_int_equal(other.status, 200);
    let_files_go(w, &held);
    assert_int_equal(ex[3].status, 200);
    close_stored(w);
    unlink(keys_path);
}

/* The one thread of all files is not held up by a long list. */
static void items_are_listed_by_another_thread(void **state)
{
    world_t *w = &world;
    char id[ID_BYTES], path[128];
    bt_exchange_t ex;
    held_t held;

    (void)state;
    for (int place = 0; place < N_PLACES; place++) {
        open_stored(w, place);
        keep_as(w, NULL, ",\"input\":\"Hi\"", "yesX", id);
        path_of(id, "/input_items", path);
        if (place == IN_MEMORY) { /* there are no files */
            hold_files(w, &held);
            begin_as(w, &ex, NULL, path);
            while (ex.n_ends == 0) {
                next_job(w);
            }
            let_files_go(w, &held);
        } else {
            begin_as(w, &ex, NULL, path);
            next_job(w);
            assert_int_equal(ex.n_ends, 0); /* it was read */
            next_job(w);
            assert_int_equal(ex.n_ends, 1);
        }
        assert_int_equal(ex.status, 200);
        close_stored(w);
    }
}

static void reading_ends_when_its_client_leaves(void **state)
{
    world_t *w = &world;
    char id[ID_BYTES], path[128];
    bt_exchange_t ex;
    held_t held;

    (void)state;
    for (int place = ON_DISK; place < N_PLACES; place++) {
        open_stored(w, place);
        keep_as(w, NULL, ",\"input\":\"Hi\"", "yesX", id);
        path_of(id, "/input_items", path);
        hold_files(w, &held);
        begin_as(w, &ex, NULL, path);
        bt_door_gone(&w->door, &ex);
        assert_int_equal(bt_pool_canceled(w->front.pool).queued, 1);
        let_files_go(w, &held);
        /* After its turn, before the page: there is no further step. */
        begin_as(w, &ex, NULL, path);
        bt_door_gone(&w->door, &ex);
        drain_pool(w);
        assert_int_equal(ex.n_ends, 0);
        close_stored(w);
    }
}

static void responses_on_disk_outlive_the_server(void **state)
{
    world_t *w = &world;
    char id[ID_BYTES], path[128], said[4096];
    bt_exchange_t ex;

    (void)state;
    open_stored(w, ON_DISK);
    /* With a folder, one that does not say store is stored, too. */
    respond_as(w, &ex, NULL, "{\"input\":\"Hi\"}", "yesX");
    has(&ex, "\"store\":true,");
    id_from(&ex, id);
    snprintf(said, sizeof(said), "%.4000s", ex.out);
    respond_as(w, &ex, NULL, "{\"input\":\"Hi\",\"store\":false}", "yesX");
    has(&ex, "\"store\":false,");
    assert_int_equal(responses_on_disk(), 1);
    reopen_stored(w);
    path_of(id, "", path);
    call_as(w, &ex, BT_HTTP_GET, NULL, path, NULL);
    assert_string_equal(ex.out, said);
    close_stored(w);
    /* In memory, one that does not say store is not. */
    open_stored(w, IN_MEMORY);
    respond_as(w, &ex, NULL, "{\"input\":\"Hi\"}", "yesX");
    has(&ex, "\"store\":false,");
    id_from(&ex, id);
    path_of(id, "", path);
    call_as(w, &ex, BT_HTTP_GET, NULL, path, NULL);
    assert_int_equal(ex.status, 404);
    close_stored(w);
}

/* Another router deletes its file. */
static void response_whose_file_is_gone_was_never_there(void **state)
{
    static const char *const ends[] = {"", "/input_items", "/cancel", ""};
    world_t *w = &world;
    char id[ID_BYTES], path[128], file[STORED_PATH_BYTES];
    bt_exchange_t ex;

    (void)state;
    open_stored(w, SHARED);
    keep_as(w, NULL, ",\"input\":\"Hi\"", "yesX", id);
    stored_path(id, file);
    assert_int_equal(unlink(file), 0);
    for (size_t i = 0; i < BT_ARRAY_LEN(ends); i++) {
        path_of(id, ends[i], path);
        call_as(w, &ex,
                (i == 3)   ? BT_HTTP_DELETE
                : (i == 2) ? BT_HTTP_POST
                           : BT_HTTP_GET,
                NULL, path, NULL);
        assert_int_equal(ex.status, 404);
        has(&ex, "not found.");
    }
    close_stored(w);
}

/* A client that was told so deletes it again. */
static void response_counts_until_it_is_gone(void **state)
{
    world_t *w = &world;
    char id[ID_BYTES], path[128];
    bt_exchange_t ex, other;

    (void)state;
    for (int place = ON_DISK; place < N_PLACES; place++) {
        open_stored(w, place);
        keep_as(w, NULL, ",\"input\":\"Hi\"", "yesX", id);
        path_of(id, "", path);
        unlink_fails = true;
        call_as(w, &ex, BT_HTTP_DELETE, NULL, path, NULL);
        assert_int_equal(ex.status, 503);
        unlink_fails = false;
        assert_int_equal(responses_on_disk(), 1);
        call_as(w, &ex, BT_HTTP_GET, NULL, path, NULL);
        assert_int_equal(ex.status, 200);
        assert_true(bt_store_use(w->front.responses).bytes > 4096);
        /* One whose client leaves is deleted all the same. */
        ex = (bt_exchange_t){.method = BT_HTTP_DELETE,
                             .path = path,
                             .body = "",
                             .door = &w->door};
        bt_door_request(&w->door, &ex);
        bt_door_gone(&w->door, &ex);
        drain_pool(w);
        assert_int_equal(responses_on_disk(), 0);
        assert_int_equal(bt_store_use(w->front.responses).bytes, 0);
        call_as(w, &other, BT_HTTP_DELETE, NULL, path, NULL);
        assert_int_equal(other.status, 404);
        close_stored(w);
    }
}

/* One tenant's number of responses is limited by those that are free. */
static void tenant_with_many_responses_replaces_its_own(void **state)
{
    bt_store_config_t config = {.path = "",
                                .key_path = "",
                                .munge_socket = "",
                                .limit_bytes = 1 << 20,
                                .space_bytes = 1 << 20,
                                .limit_objects = 51,
                                .has_spaces = true,
                                .ttl_s = 60};
    char ids[5][BT_STORE_ID_BYTES];
    bt_strbuf_t response;
    bt_store_put_t *put;
    bt_store_t *store;

    (void)state;
    bt_strbuf_init(&response, 1024);
    bt_strbuf_puts(&response, "{}");
    assert_int_equal(bt_store_open(&config, 1, &store), BT_OK);
    for (size_t i = 0; i < BT_ARRAY_LEN(ids); i++) {
        bt_store_id_make(BT_STORE_RESPONSE, ids[i]);
        assert_int_equal(
            bt_api_stored_reserve(store, "a", ids[i], 4, i + 1, &put), BT_OK);
        assert_int_equal(bt_api_stored_write(put, NULL, "[]", &response),
                         BT_OK);
        assert_non_null(bt_store_put_end(put));
    }
    /* With 3 of its own there are 48 free, a sixteenth of which are 3. */
    for (size_t i = 0; i < BT_ARRAY_LEN(ids); i++) {
        assert_int_equal(bt_store_find(store, BT_STORE_RESPONSE, "a", ids[i]) !=
                             NULL,
                         i >= 2);
    }
    bt_strbuf_fini(&response);
    bt_store_close(store);
}

static void oldest_responses_make_room(void **state)
{
    world_t *w = &world;
    char ids[3][ID_BYTES], path[128];
    bt_exchange_t ex;

    (void)state;
    /* Each counts 4 KiB and some 800 bytes: two fit. */
    response_limit = 2 * (4096 + 1200);
    for (int place = 0; place < N_PLACES; place++) {
        response_limit = 2 * (4096 + 1200);
        open_stored(w, place);
        for (int i = 0; i < 3; i++) {
            keep_as(w, NULL, ",\"input\":\"Hi\"", "yesX", ids[i]);
        }
        if (place == SHARED) { /* files go at the next tick */
            bt_frontend_tick(&w->front, bt_now_us());
            drain_pool(w);
        }
        for (int i = 0; i < 3; i++) {
            path_of(ids[i], "", path);
            call_as(w, &ex, BT_HTTP_GET, NULL, path, NULL);
            assert_int_equal(ex.status, (i == 0) ? 404 : 200);
        }
        if (place != IN_MEMORY) {
            bt_frontend_tick(&w->front, bt_now_us());
            drain_pool(w);
            assert_int_equal(responses_on_disk(), 2);
        }
        close_stored(w);
    }
}

static void server_without_stored_responses_names_the_option(void **state)
{
    static const char *const ends[] = {"", "/input_items"};
    world_t *w = &world;
    char path[128];
    bt_exchange_t ex;

    (void)state;
    start(w, true);
    for (size_t i = 0; i < BT_ARRAY_LEN(ends); i++) {
        path_of("resp_1", ends[i], path);
        call_as(w, &ex, BT_HTTP_GET, NULL, path, NULL);
        assert_int_equal(ex.status, 501);
        has(&ex, "--response-store-limit");
    }
    path_of("resp_1", "/cancel", path);
    call_as(w, &ex, BT_HTTP_POST, NULL, path, NULL);
    assert_int_equal(ex.status, 501);
    stop(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(response_is_read_and_deleted),
        BT_TEST(response_cannot_be_cancelled_or_streamed),
        BT_TEST(input_items_are_listed_in_pages),
        BT_TEST(tenant_never_sees_responses_of_another),
        BT_TEST(tenants_take_turns_at_the_files),
        BT_TEST(items_are_listed_by_another_thread),
        BT_TEST(reading_ends_when_its_client_leaves),
        BT_TEST(responses_on_disk_outlive_the_server),
        BT_TEST(response_whose_file_is_gone_was_never_there),
        BT_TEST(response_counts_until_it_is_gone),
        BT_TEST(tenant_with_many_responses_replaces_its_own),
        BT_TEST(oldest_responses_make_room),
        BT_TEST(server_without_stored_responses_names_the_option),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
