/* SPDX-License-Identifier: Apache-2.0 */
/* TLS's own messages among a client's data: KeyUpdates of RFC 8446, 4.6.3. */
#include <netinet/tcp.h>

#include "tests/unit/router/net/tls_fixture.h"

static bt_tls_t *tls; /* of the whole file */

/* A record of 27 bytes. */
static void update_key(tls_client_t *t, int type)
{
    ssl_owner = CLIENT;
    assert_int_equal(SSL_key_update(t->ssl, type), 1);
    assert_int_equal(SSL_do_handshake(t->ssl), 1);
    ssl_owner = SERVER;
}

/* All of it is in the server's socket before the server looks. */
static void send_at_once(const tls_client_t *t)
{
    static const int on = 1;

    assert_int_equal(
        setsockopt(t->c.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), 0);
}

/* OpenSSL has read it together with the KeyUpdate: no socket tells of it. */
static void data_right_after_a_key_update_is_read(void **state)
{
    static const int types[] = {SSL_KEY_UPDATE_NOT_REQUESTED,
                                SSL_KEY_UPDATE_REQUESTED};
    uint32_t n = 0;
    fixture_t f;
    tls_client_t t;

    (void)state;
    tls_start(&f, tls, &normal);
    tls_open(&f, &t);
    send_at_once(&t);
    for (size_t i = 0; i < BT_ARRAY_LEN(types); i++) {
        expect_echo(&f, &t);
        n++;
        update_key(&t, types[i]);
        tls_puts(&f, &t, GET("/empty"));
        WAIT_FOR(&f, f.n_requests == n + 1);
        n++;
        tls_next(&t);
        tls_puts(&f, &t, POST_5 "he"); /* and between two of data */
        update_key(&t, types[i]);
        tls_puts(&f, &t, "llo");
        WAIT_FOR(&f, tls_has(&t, NL NL "hello"));
        n++;
    }
    assert_int_equal(f.n_requests, n);
    tls_close(&t);
    stop(&f);
}

/* The server's end of its connection. */
static int server_end(const tls_client_t *t)
{
    struct sockaddr_in client;
    struct sockaddr_in peer;
    socklen_t bytes = sizeof(client);

    assert_int_equal(getsockname(t->c.fd, (struct sockaddr *)&client, &bytes),
                     0);
    for (int fd = 0; fd < 1024; fd++) {
        bytes = sizeof(peer);
        if ((getpeername(fd, (struct sockaddr *)&peer, &bytes) == 0) &&
            (peer.sin_family == AF_INET) &&
            (peer.sin_port == client.sin_port)) {
            return fd;
        }
    }
    fail();
    return -1;
}

/* Until not even a byte fits, now and a while later. @return how many it took
 */
static size_t fill(int fd)
{
    static const int small = 16 * 1024;
    static const char junk[64 * 1024];
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    size_t n = 0;

    assert_int_equal(
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
    do {
        for (size_t bytes = sizeof(junk); bytes > 0; bytes /= 2) {
            ssize_t some;

            while ((some = send(fd, junk, bytes, MSG_DONTWAIT)) > 0) {
                n += (size_t)some;
            }
        }
    } while (poll(&room, 1, 100) == 1);
    return n;
}

static void note_time(evutil_socket_t fd, short what, void *is_over)
{
    (void)fd;
    (void)what;
    *(bool *)is_over = true;
}

/* @return how often the loop wakes in 50 ms. */
static uint32_t turns_of_a_while(fixture_t *f)
{
    const struct timeval a_while = {.tv_usec = 50000};
    bool is_over = false;
    struct event *timer = evtimer_new(f->base, note_time, &is_over);
    uint32_t turns = 0;

    assert_non_null(timer);
    assert_int_equal(evtimer_add(timer, &a_while), 0);
    while (!is_over) {
        event_base_loop(f->base, EVLOOP_ONCE);
        turns++;
    }
    event_free(timer);
    return turns;
}

/* A KeyUpdate that asks for the server's own is answered by a read, which waits
 * for room in a socket that nothing else waits for. */
static void key_update_answer_waits_for_a_full_socket(void **state)
{
    static char junk[64 * 1024];
    uint32_t n = 1;
    fixture_t f;
    tls_client_t t;

    (void)state;
    tls_start(&f, tls, &normal);
    tls_open(&f, &t);
    send_at_once(&t);
    expect_echo(&f, &t);
    for (int more = 1; more >= 0; more--) {
        size_t full = fill(server_end(&t));
        ssize_t some;

        update_key(&t, SSL_KEY_UPDATE_REQUESTED);
        update_key(&t, SSL_KEY_UPDATE_REQUESTED);
        tls_puts(&f, &t, GET("/empty"));
        (void)turns_of_a_while(&f);
        if (more == 1) { /* so that its socket has something all the time */
            tls_puts(&f, &t, GET("/empty"));
        }
        assert_true(turns_of_a_while(&f) < 100);
        assert_int_equal(f.n_requests, n);
        while (full > 0) { /* it is no TLS: past OpenSSL */
            some = recv(t.c.fd, junk,
                        (full < sizeof(junk)) ? full : sizeof(junk), 0);
            full -= (some > 0) ? (size_t)some : 0;
        }
        n += 1 + (uint32_t)more;
        WAIT_FOR(&f, f.n_requests == n);
        expect_echo(&f, &t);
        n++;
    }
    tls_close(&t);
    stop(&f);
}

/* What is no data takes its turns as well; all of it is there before the server
 * looks. */
static void many_key_updates_take_many_turns(void **state)
{
    enum { N = 3000 };
    fixture_t f;
    tls_client_t t;
    uint32_t turns;

    (void)state;
    tls_start(&f, tls, &normal);
    tls_open(&f, &t);
    expect_echo(&f, &t);
    for (int i = 0; i < N; i++) {
        update_key(&t, SSL_KEY_UPDATE_NOT_REQUESTED);
    }
    tls_puts(&f, &t, GET("/empty"));
    for (turns = 0; f.n_requests == 1; turns++) {
        assert_true(turns < 10000);
        event_base_loop(f.base, EVLOOP_ONCE);
    }
    assert_in_range(turns, 4, 1000); /* 20 KiB in a turn; no spinning */
    tls_close(&t);
    stop(&f);
}

static int make_identity(void **state)
{
    (void)state;
    tls = tls_make_with_dir();
    return 0;
}

static int drop_identity(void **state)
{
    (void)state;
    bt_tls_destroy(tls);
    remove_tls_dir();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(data_right_after_a_key_update_is_read),
        BT_TEST(key_update_answer_waits_for_a_full_socket),
        BT_TEST(many_key_updates_take_many_turns),
    };

    tls_begin_tests();
    return cmocka_run_group_tests(tests, make_identity, drop_identity);
}
