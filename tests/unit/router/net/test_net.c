/* SPDX-License-Identifier: Apache-2.0 */
/* A protocol plugged onto router/net: the least one, which greets and then says
 * everything again, plain and over TLS. */
#include "tests/unit/router/net/tls_fixture.h"

#include "router/net/net.h"

typedef struct echo {
    bt_net_t *net;
    struct event_base *base;
    uint16_t port;
    bt_stream_t *last; /* NULL: closed */
    uint32_t n_streams, n_closed, n_freed, n_stops, n_timers, n_gathers;
    size_t charged;
    bool refuses;     /* has no memory for a user */
    bool greets;      /* sends first, as HTTP/2 does */
    bool file_busily; /* files anew whatever happens */
} echo_t;

static void flush(echo_t *e)
{
    if (bt_stream_flush(e->last, BT_NET_SEND_BYTES) == BT_ERR_PEER_LOST) {
        bt_stream_close(e->last);
    }
}

static void on_readable(void *user)
{
    echo_t *e = user;
    const char *data;
    size_t n;

    switch (bt_stream_read(e->last, &data, &n)) {
    case BT_OK:
        if (n == 0) {
            bt_stream_close(e->last);
            return;
        }
        bt_strbuf_append(bt_stream_out(e->last), data, n);
        if (data[0] == 'l') {
            bt_stream_flush_later(e->last);
        } else {
            flush(e);
        }
        break;
    case BT_INPROGRESS:
        break;
    default:
        bt_stream_close(e->last);
        break;
    }
}

static void on_writable(void *user)
{
    flush(user);
}

static void on_timer(void *user)
{
    echo_t *e = user;

    e->n_timers++;
    bt_stream_close(e->last);
}

static void on_stop(void *user)
{
    echo_t *e = user;

    e->n_stops++;
    if (e->file_busily) {
        bt_stream_set_class(e->last, BT_STREAM_BUSY);
    }
}

static void on_closed(void *user)
{
    echo_t *e = user;

    e->n_closed++;
    assert_int_equal(e->n_freed, e->n_closed - 1);
    assert_int_equal(bt_stream_unsent(e->last), 0);
    bt_stream_close(e->last); /* nothing */
}

static void on_free(void *user)
{
    echo_t *e = user;

    e->n_freed++;
    e->last = NULL;
}

static bt_status_t on_stream(void *ctx, bt_stream_t *stream)
{
    static const bt_stream_handlers_t handlers = {.on_readable = on_readable,
                                                  .on_writable = on_writable,
                                                  .on_timer = on_timer,
                                                  .on_stop = on_stop,
                                                  .on_closed = on_closed,
                                                  .on_free = on_free};
    echo_t *e = ctx;

    if (e->refuses) {
        return BT_ERR_NO_MEMORY;
    }
    assert_null(e->last);
    e->n_streams++;
    e->last = stream;
    bt_stream_attach(stream, &handlers, e);
    if (e->greets) {
        bt_strbuf_puts(bt_stream_out(stream), "hello ");
        assert_true(bt_stream_flush(stream, SIZE_MAX) != BT_ERR_PEER_LOST);
    }
    return BT_OK;
}

static void note_gather(void *ctx)
{
    ((echo_t *)ctx)->n_gathers++;
}

static void net_start(echo_t *e, fixture_t *f, bt_tls_t *tls, bool gathers)
{
    const bt_net_config_t config = {.max_connections = 4,
                                    .memory_bytes = 4u << 20,
                                    .tls = tls,
                                    .protocol = "echo"};
    const bt_net_handlers_t handlers = {.on_stream = on_stream,
                                        .on_gather =
                                            gathers ? note_gather : NULL,
                                        .ctx = e,
                                        .turn_ctx = e};
    const struct timeval tick = {.tv_usec = 1000};
    char why[BT_NET_WHY_BYTES];

    memset(e, 0, sizeof(*e));
    memset(f, 0, sizeof(*f));
    e->base = bt_net_loop_create();
    assert_non_null(e->base);
    assert_int_equal(bt_net_create(e->base, &config, &handlers, &e->net),
                     BT_OK);
    assert_int_equal(bt_net_listen(e->net, "127.0.0.1", 0, &e->port, why),
                     BT_OK);
    f->base = e->base; /* for the clients of the fixtures */
    f->port = e->port;
    f->tick = event_new(f->base, -1, EV_PERSIST, on_tick, NULL);
    assert_int_equal(event_add(f->tick, &tick), 0);
}

static void net_stop(echo_t *e, fixture_t *f)
{
    bt_net_destroy(e->net);
    assert_int_equal(e->n_closed, e->n_streams);
    assert_int_equal(e->n_freed, e->n_streams);
    event_free(f->tick);
    event_base_free(e->base);
}

static bt_tls_t *make_tls(void)
{
    identity_t id = identity_make("net", NULL, false, 2);
    bt_tls_t *tls;

    make_tls_dir();
    write_pair(&id);
    identity_free(&id);
    tls = tls_make(&tls_files);
    remove_tls_dir();
    return tls;
}

static void stream_is_attached_and_ends_in_two_steps(void **state)
{
    char peer[BT_NET_PEER_BYTES];
    fixture_t f;
    client_t c;
    echo_t e;

    (void)state;
    net_start(&e, &f, NULL, false);
    client_open(&f, &c);
    client_puts(&f, &c, "over");
    WAIT_FOR(&f, has(&c, "over"));
    client_puts(&f, &c, "later");
    WAIT_FOR(&f, has(&c, "overlater"));
    bt_stream_peer(e.last, peer);
    assert_string_equal(peer, "127.0.0.1");
    bt_stream_close(e.last);
    assert_int_equal(e.n_closed, 1);
    assert_int_equal(e.n_freed, 0);
    assert_int_equal(bt_net_n_connections(e.net), 0);
    WAIT_FOR(&f, e.n_freed == 1);
    assert_true(at_eof(&c));
    client_close(&c);
    net_stop(&e, &f);
}

static void early_output_waits_for_the_handshake(void **state)
{
    bt_tls_t *tls = make_tls();
    fixture_t f;
    tls_client_t t;
    echo_t e;

    (void)state;
    net_start(&e, &f, tls, false);
    e.greets = true;
    tls_connect(&f, &t, client_ctx());
    WAIT_FOR(&f, e.n_streams == 1);
    assert_int_equal(bt_stream_unsent(e.last), 6);
    WAIT_FOR(&f, tls_has(&t, "hello "));
    assert_int_equal(bt_stream_unsent(e.last), 0);
    tls_puts(&f, &t, "world");
    WAIT_FOR(&f, tls_has(&t, "hello world"));
    tls_puts(&f, &t, "later");
    WAIT_FOR(&f, tls_has(&t, "hello worldlater"));
    tls_close(&t);
    WAIT_FOR(&f, e.n_freed == 1);
    net_stop(&e, &f);
    bt_tls_destroy(tls);
}

static void user_timer_ends_a_handshake(void **state)
{
    bt_tls_t *tls = make_tls();
    fixture_t f;
    client_t c;
    echo_t e;

    (void)state;
    net_start(&e, &f, tls, false);
    client_open(&f, &c);
    WAIT_FOR(&f, e.n_streams == 1);
    bt_stream_set_timer(e.last, LONG_MS);
    bt_stream_set_timer(e.last, 1); /* moves it */
    WAIT_FOR(&f, at_eof(&c));
    assert_int_equal(e.n_timers, 1);
    client_close(&c);
    net_stop(&e, &f);
    bt_tls_destroy(tls);
}

static void gathered_streams_wait_for_the_flush(void **state)
{
    bt_tls_t *const kinds[] = {NULL, make_tls()};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(kinds); i++) {
        fixture_t f;
        tls_client_t t;
        echo_t e;

        net_start(&e, &f, kinds[i], true);
        if (kinds[i] == NULL) {
            memset(&t, 0, sizeof(t));
            client_open(&f, &t.c);
            client_puts(&f, &t.c, "later");
        } else {
            tls_open(&f, &t);
            tls_puts(&f, &t, "later");
        }
        WAIT_FOR(&f, e.n_gathers == 1);
        assert_int_equal(bt_stream_unsent(e.last), 5);
        bt_net_flush(e.net);
        assert_int_equal(bt_stream_unsent(e.last), 0);
        bt_strbuf_puts(bt_stream_out(e.last), "never");
        bt_stream_flush_later(e.last);
        assert_int_equal(e.n_gathers, 2);
        bt_stream_forget_flush(e.last);
        bt_net_flush(e.net);
        assert_int_equal(bt_stream_unsent(e.last), 5);
        if (kinds[i] == NULL) {
            client_close(&t.c);
        } else {
            tls_close(&t);
        }
        net_stop(&e, &f);
    }
    bt_tls_destroy(kinds[1]);
}

static void each_stream_is_told_once_that_the_net_stops(void **state)
{
    fixture_t f;
    client_t c;
    echo_t e;

    (void)state;
    net_start(&e, &f, NULL, false);
    e.file_busily = true;
    client_open(&f, &c);
    WAIT_FOR(&f, e.n_streams == 1);
    assert_false(bt_net_stopped(e.net));
    bt_net_stop_listening(e.net);
    assert_true(bt_net_stopped(e.net));
    assert_int_equal(e.n_stops, 1);
    client_puts(&f, &c, "goes on");
    WAIT_FOR(&f, has(&c, "goes on"));
    client_close(&c);
    net_stop(&e, &f);
    assert_int_equal(e.n_stops, 1);
}

static void refused_stream_is_turned_away(void **state)
{
    bt_tls_t *const kinds[] = {NULL, make_tls()};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(kinds); i++) {
        bt_net_use_t use;
        fixture_t f;
        client_t c;
        echo_t e;

        net_start(&e, &f, kinds[i], false);
        e.refuses = true;
        client_open(&f, &c);
        WAIT_FOR(&f, at_eof(&c));
        bt_net_use(e.net, &use);
        assert_int_equal(use.n_turned_away, 1);
        assert_int_equal(use.request_bytes, 0);
        assert_int_equal(bt_net_n_connections(e.net), 0);
        client_close(&c);
        net_stop(&e, &f);
    }
    bt_tls_destroy(kinds[1]);
}

/* Sessions count as requests do: where these have it all, nobody shakes hands.
 */
static void handshake_without_memory_is_refused(void **state)
{
    bt_tls_t *tls = make_tls();
    bt_net_use_t use;
    fixture_t f;
    client_t c;
    echo_t e;

    (void)state;
    net_start(&e, &f, tls, false);
    bt_net_charge(e.net, &e.charged, (4u << 20) - 1);
    client_open(&f, &c);
    WAIT_FOR(&f, at_eof(&c));
    assert_int_equal(e.n_streams, 0);
    bt_net_use(e.net, &use);
    assert_int_equal(use.n_turned_away, 1);
    assert_int_equal(use.request_bytes, (4u << 20) - 1);
    client_close(&c);
    bt_net_charge(e.net, &e.charged, 0);
    client_open(&f, &c);
    WAIT_FOR(&f, e.n_streams == 1);
    client_close(&c);
    net_stop(&e, &f);
    bt_tls_destroy(tls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(stream_is_attached_and_ends_in_two_steps),
        BT_TEST(early_output_waits_for_the_handshake),
        BT_TEST(user_timer_ends_a_handshake),
        BT_TEST(gathered_streams_wait_for_the_flush),
        BT_TEST(each_stream_is_told_once_that_the_net_stops),
        BT_TEST(refused_stream_is_turned_away),
        BT_TEST(handshake_without_memory_is_refused),
    };

    tls_begin_tests();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
