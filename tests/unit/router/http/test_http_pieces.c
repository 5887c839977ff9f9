/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP server: answers in pieces. */
#include "tests/unit/router/http/http_fixture.h"

#define PIECE    (256u * 1024u)
#define N_PIECES 100u /* more than sockets hold */
#define PERIOD   23u

static char pattern[PIECE + PERIOD];

typedef struct sender {
    uint64_t sent, total;
    unsigned n_pieces, n_waits;
    bool is_gone;
} sender_t;

static sender_t sender;

/* Sends pieces until one has to wait. */
static void go_on(bt_exchange_t *ex)
{
    bt_status_t status = BT_OK;

    while (status == BT_OK) {
        const uint64_t left = sender.total - sender.sent;
        bt_strbuf_t piece;

        bt_strbuf_init(&piece, PIECE);
        bt_strbuf_reserve(&piece, PIECE); /* exactly */
        bt_strbuf_append(&piece, pattern + sender.sent % PERIOD,
                         (left < PIECE) ? (size_t)left : PIECE);
        sender.sent += piece.len;
        sender.n_pieces++;
        if (sender.sent == sender.total) {
            bt_exchange_pieces_end(ex, &piece);
            return;
        }
        status = bt_exchange_send_piece(ex, &piece);
        assert_int_equal(piece.len, 0);
    }
    sender.n_waits += status == BT_INPROGRESS;
}

static void on_pieces(void *ctx, bt_exchange_t *ex)
{
    bt_strbuf_t none;

    bt_strbuf_init(&none, 0);
    if (strcmp(bt_exchange_path(ex), "/pieces") != 0) {
        on_request(ctx, ex);
        return;
    }
    bt_exchange_set_user(ex, ctx);
    if (!bt_exchange_pieces_begin(ex, "text/plain", sender.total)) {
        return;
    }
    if (bt_exchange_method(ex) == BT_HTTP_HEAD) {
        bt_exchange_pieces_end(ex, &none);
    } else {
        go_on(ex);
    }
}

static void on_sent(void *ctx, bt_exchange_t *ex)
{
    assert_ptr_equal(bt_exchange_user(ex), ctx);
    go_on(ex);
}

static void on_left(void *ctx, bt_exchange_t *ex)
{
    (void)ctx;
    sender.is_gone = true;
    assert_int_equal(bt_exchange_unsent(ex), 0);
}

static void begin(fixture_t *f, const bt_http_config_t *config, uint64_t total)
{
    const bt_http_handlers_t handlers = {.on_request = on_pieces,
                                         .on_gone = on_left,
                                         .on_sent = on_sent,
                                         .ctx = f};
    char why[BT_NET_WHY_BYTES];

    for (size_t i = 0; i < sizeof(pattern); i++) {
        pattern[i] = (char)('a' + i % PERIOD);
    }
    sender = (sender_t){.total = total};
    start(f, config);
    bt_http_destroy(f->http);
    assert_int_equal(bt_http_create(f->base, config, &handlers, &f->http),
                     BT_OK);
    assert_int_equal(
        bt_net_listen(bt_http_net(f->http), "127.0.0.1", 0, &f->port, why),
        BT_OK);
}

/* Also the next request of the connection. */
static void pieces_arrive_in_order(void **state)
{
    const uint64_t total = (uint64_t)PIECE * N_PIECES + 5;
    uint64_t at = 0;
    fixture_t f;
    client_t c;

    (void)state;
    begin(&f, &normal, total);
    client_open(&f, &c);
    client_puts(&f, &c, GET("/pieces") GET("/empty"));
    WAIT_FOR(&f, has(&c, NL NL));
    assert_non_null(strstr(c.got.data, "Content-Length: 26214405" NL));
    assert_null(strstr(c.got.data, "Transfer-Encoding"));
    bt_strbuf_consume(&c.got,
                      (size_t)(strstr(c.got.data, NL NL) - c.got.data) + 4);
    while (at < total) {
        size_t n;

        WAIT_FOR(&f, (read_some(&c), c.got.len > 0));
        n = (c.got.len < PIECE) ? c.got.len : PIECE;
        n = (n < total - at) ? n : (size_t)(total - at);
        assert_memory_equal(c.got.data, pattern + at % PERIOD, n);
        bt_strbuf_consume(&c.got, n);
        at += n;
    }
    WAIT_FOR(&f, has(&c, "HTTP/1.1 204"));
    assert_memory_equal(c.got.data, "HTTP/1.1 204", 12);
    assert_int_equal(sender.n_pieces, N_PIECES + 1);
    client_close(&c);
    stop(&f);
}

/* Whatever it takes, at most one piece waits for it. */
static void slow_reader_holds_one_piece(void **state)
{
    const uint64_t total = (uint64_t)PIECE * N_PIECES;
    fixture_t f;
    client_t c;
    bt_net_use_t use;
    uint64_t before;

    (void)state;
    begin(&f, &normal, total);
    client_open(&f, &c);
    client_puts(&f, &c, GET("/pieces"));
    do { /* until the sockets are full */
        before = sender.sent;
        for (int i = 0; i < 100; i++) {
            assert_int_equal(event_base_loop(f.base, EVLOOP_ONCE), 0);
        }
    } while (sender.sent > before);
    assert_true(sender.n_waits > 0);
    assert_true(sender.sent < total / 2);
    bt_net_use(bt_http_net(f.http), &use);
    assert_in_range(use.answer_bytes, 1, PIECE + 65536);
    WAIT_FOR(&f, (read_some(&c), sender.sent == total));
    client_close(&c);
    stop(&f);
}

static void client_that_takes_nothing_is_disconnected(void **state)
{
    bt_http_config_t config = normal;
    fixture_t f;
    client_t c;

    (void)state;
    config.idle_timeout_ms = SHORT_MS;
    begin(&f, &config, (uint64_t)PIECE * N_PIECES);
    client_open(&f, &c);
    client_puts(&f, &c, GET("/pieces"));
    WAIT_FOR(&f, sender.is_gone);
    assert_true(sender.sent < sender.total);
    client_close(&c);
    stop(&f);
}

static void client_that_leaves_is_noticed(void **state)
{
    fixture_t f;
    client_t c;

    (void)state;
    begin(&f, &normal, (uint64_t)PIECE * N_PIECES);
    client_open(&f, &c);
    client_puts(&f, &c, GET("/pieces"));
    WAIT_FOR(&f, sender.n_waits > 0);
    client_reset(&c);
    WAIT_FOR(&f, sender.is_gone);
    stop(&f);
}

static void head_has_the_length_only(void **state)
{
    fixture_t f;
    client_t c;

    (void)state;
    begin(&f, &normal, 12345678);
    client_open(&f, &c);
    client_puts(&f, &c, "HEAD /pieces HTTP/1.1" NL "Host: h" NL NL);
    WAIT_FOR(&f, has(&c, NL NL));
    assert_non_null(strstr(c.got.data, "Content-Length: 12345678" NL));
    bt_strbuf_reset(&c.got);
    client_puts(&f, &c, GET("/empty"));
    WAIT_FOR(&f, has(&c, NL NL));
    assert_memory_equal(c.got.data, "HTTP/1.1 204", 12);
    client_close(&c);
    stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(pieces_arrive_in_order),
        BT_TEST(slow_reader_holds_one_piece),
        BT_TEST(client_that_takes_nothing_is_disconnected),
        BT_TEST(client_that_leaves_is_noticed),
        BT_TEST(head_has_the_length_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
