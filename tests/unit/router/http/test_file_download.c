/* SPDX-License-Identifier: Apache-2.0 */
/* Files of any size, in pieces; what the server's sockets do with pieces has
 * tests of its own (test_http_pieces.c). */
#include "tests/unit/router/batch/batch_fixture.h"

#include <fcntl.h>

#define PIECE (256u * 1024u)

static char path[96];

static void open_files(world_t *w, size_t bytes)
{
    static char text[2u << 20];

    assert_true(bytes < sizeof(text));
    memset(text, 'x', bytes);
    text[bytes] = '\0';
    store_limit = 8u << 20;
    open_world(w, 0);
    put_input(w, text);
    snprintf(path, sizeof(path), "/v1/files/%s/content", input_id);
}

static void close_files(world_t *w)
{
    close_world(w);
    remove_folder();
    store_limit = 1u << 20;
}

static void ask(world_t *w, bt_exchange_t *ex)
{
    *ex = (bt_exchange_t){.method = BT_HTTP_GET,
                          .path = path,
                          .body = "",
                          .is_long = true,
                          .door = &w->door};
}

static void file_is_sent_whole(void **state)
{
    static const struct {
        size_t bytes;
        unsigned n_pieces; /* before the last one */
    } cases[] = {{0, 0},         {1, 0},         {PIECE - 1, 0},    {PIECE, 0},
                 {PIECE + 1, 1}, {2 * PIECE, 1}, {5 * PIECE + 7, 5}};
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        open_files(w, cases[i].bytes);
        ask(w, &ex);
        bt_door_request(&w->door, &ex);
        drain_pool(w);
        assert_int_equal(ex.n_ends, 1);
        assert_int_equal(ex.status, 200);
        assert_int_equal(ex.length, cases[i].bytes);
        assert_int_equal(ex.out_bytes, cases[i].bytes);
        assert_int_equal(ex.n_writes, cases[i].n_pieces);
        assert_string_equal(ex.type, "application/octet-stream");
        assert_non_null(strstr(ex.headers, "Content-Disposition: attachment"));
        ask(w, &ex);
        ex.method = BT_HTTP_HEAD;
        bt_door_request(&w->door, &ex);
        assert_int_equal(ex.n_ends, 1);
        assert_int_equal(ex.length, cases[i].bytes);
        assert_int_equal(ex.out_bytes, 0);
        close_files(w);
    }
}

/* What it has not taken is one piece; nothing more is read meanwhile. */
static void slow_client_has_one_piece(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    open_files(w, 3 * PIECE + 1);
    ask(w, &ex);
    ex.is_slow = true;
    bt_door_request(&w->door, &ex);
    for (unsigned i = 1; i <= 3; i++) {
        drain_pool(w);
        assert_int_equal(bt_pool_n_jobs(w->front.pool), 0);
        assert_int_equal(ex.n_writes, i);
        assert_int_equal(ex.out_bytes, i * PIECE);
        assert_int_equal(ex.n_ends, 0);
        ex.is_sending = false;
        bt_door_sent(&w->door, &ex);
    }
    drain_pool(w);
    assert_int_equal(ex.n_ends, 1);
    assert_int_equal(ex.out_bytes, 3 * PIECE + 1);
    close_files(w);
}

static void client_may_leave_at_any_time(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    open_files(w, 3 * PIECE);
    for (int when = 0; when < 4; when++) {
        ask(w, &ex);
        ex.is_slow = true;
        ex.breaks = when == 3; /* by itself, while a piece is sent */
        bt_door_request(&w->door, &ex);
        if (when > 0) { /* else while the first one is read */
            drain_pool(w);
        }
        if (when == 2) { /* while the next one is read */
            ex.is_sending = false;
            bt_door_sent(&w->door, &ex);
        }
        if (when < 3) {
            bt_door_gone(&w->door, &ex);
        }
        drain_pool(w);
        assert_int_equal(ex.n_ends, (when == 3) ? 1 : 0);
        assert_int_equal(ex.n_writes, (when == 0) ? 0 : 1);
    }
    close_files(w);
}

/* Its length has been sent: the client sees that bytes are missing. */
static void answer_ends_early_where_the_file_does(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    for (int i = 0; i < 2; i++) {
        char file[160];

        open_files(w, 3 * PIECE);
        snprintf(file, sizeof(file), "%s/%s", folder, input_id);
        ask(w, &ex);
        ex.is_slow = true;
        bt_door_request(&w->door, &ex);
        drain_pool(w);
        if (i == 0) {
            const int fd = open(file, O_WRONLY);

            assert_int_equal(pwrite(fd, "y", 1, PIECE + 70000), 1);
            close(fd);
        } else {
            assert_int_equal(unlink(file), 0);
        }
        ex.is_sending = false;
        bt_door_sent(&w->door, &ex);
        drain_pool(w);
        assert_int_equal(ex.n_ends, 1);
        assert_int_equal(ex.out_bytes, PIECE);
        close_files(w);
    }
}

static void memory_that_is_short_is_told(void **state)
{
    world_t *w = &world;
    bool is_over = false;
    unsigned n_served = 0;
    bt_exchange_t ex;

    (void)state;
    open_files(w, 100);
    ask(w, &ex);
    bt_door_request(&w->door, &ex); /* has memory for answers */
    drain_pool(w);
    for (int nth = 1; !is_over; nth++) {
        ask(w, &ex);
        bt_alloc_fail_at(nth);
        bt_door_request(&w->door, &ex);
        drain_pool(w);
        is_over = bt_alloc_fail_at(0) > 0;
        assert_int_equal(ex.n_ends, 1);
        assert_true((ex.status == 200) || (ex.status == 503));
        n_served += ex.status == 200;
        assert_true(nth < 50);
    }
    /* The last one, and those for which the order of the files' thread had no
     * memory for a tenant, an address or a connection: they go without it. */
    assert_in_range(n_served, 1, 5);
    close_files(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(file_is_sent_whole),
        BT_TEST(slow_client_has_one_piece),
        BT_TEST(client_may_leave_at_any_time),
        BT_TEST(answer_ends_early_where_the_file_does),
        BT_TEST(memory_that_is_short_is_told),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
