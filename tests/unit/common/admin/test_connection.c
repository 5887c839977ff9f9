/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/admin/connection.h"
#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/process.h"

#define DEADLINE_MS 60000

/* A launcher that says what the test says. */
typedef struct fake {
    char dir[32];
    char path[64];
    int listener;
    int peer; /* its side of the connection */
    bt_admin_client_t *client;
} fake_t;

static void listen_at(fake_t *fake)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    snprintf(fake->dir, sizeof(fake->dir), "/tmp/baton-admin-XXXXXX");
    assert_non_null(mkdtemp(fake->dir));
    snprintf(fake->path, sizeof(fake->path), "%s/admin.sock", fake->dir);
    memcpy(address.sun_path, fake->path, strlen(fake->path));
    fake->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fake->listener, (const struct sockaddr *)&address,
                          sizeof(address)),
                     0);
    assert_int_equal(listen(fake->listener, 1), 0);
}

static void setup(fake_t *fake)
{
    listen_at(fake);
    assert_int_equal(bt_admin_client_connect(fake->path, &fake->client), BT_OK);
    fake->peer = accept(fake->listener, NULL, NULL);
    assert_true(fake->peer >= 0);
}

static void teardown(fake_t *fake)
{
    bt_admin_client_close(fake->client);
    if (fake->peer >= 0) {
        close(fake->peer);
    }
    close(fake->listener);
    unlink(fake->path);
    rmdir(fake->dir);
}

static void say(const fake_t *fake, const char *text)
{
    assert_int_equal(write(fake->peer, text, strlen(text)), strlen(text));
}

static bt_status_t next_reply(const fake_t *fake, bt_admin_reply_t *reply)
{
    return bt_admin_client_wait(fake->client, bt_now_ms() + DEADLINE_MS, reply);
}

static void command_goes_out_and_replies_come_in_pieces(void **state)
{
    const bt_admin_command_t command = {.verb = BT_ADMIN_VERB_STOP,
                                        .name = "decode-0",
                                        .prefill = BT_ADMIN_UNSET,
                                        .decode = BT_ADMIN_UNSET};
    bt_admin_reply_t reply;
    char got[64] = "";
    const char *text;
    size_t n;
    fake_t fake;

    (void)state;
    setup(&fake);
    assert_int_equal(bt_admin_client_send(fake.client, &command), BT_OK);
    assert_false(bt_admin_client_wants_write(fake.client));
    assert_int_equal(read(fake.peer, got, sizeof(got) - 1), 37);
    assert_string_equal(got, "{\"command\":\"stop\",\"name\":\"decode-0\"}\n");

    say(&fake, "{\"processes\":[{\"name\":\"decode-0\",\"state\":\"sto");
    bt_admin_client_step(fake.client);
    assert_int_equal(bt_admin_client_status(fake.client), BT_OK);
    assert_false(bt_admin_client_next(fake.client, &reply));
    say(&fake, "pping\"}]}\n{\"ok\":true}\n{\"ok\":false,\"error\":\"x\"}\n");
    assert_int_equal(next_reply(&fake, &reply), BT_OK);
    assert_int_equal(reply.result, BT_ADMIN_CHANGE);
    assert_int_equal(reply.document.processes[0].state,
                     BT_ADMIN_PROCESS_STOPPING);
    bt_admin_document_fini(&reply.document);
    assert_int_equal(next_reply(&fake, &reply), BT_OK);
    assert_int_equal(reply.result, BT_ADMIN_OK);
    text = bt_admin_client_text(fake.client, &n);
    assert_int_equal(n, 11);
    assert_memory_equal(text, "{\"ok\":true}", 11);
    assert_int_equal(next_reply(&fake, &reply), BT_OK);
    assert_string_equal(reply.error, "x");
    assert_int_equal(bt_admin_client_wait(fake.client, bt_now_ms() + 1, &reply),
                     BT_ERR_TIMED_OUT);
    teardown(&fake);
}

static void what_came_before_the_end_is_still_there(void **state)
{
    const bt_admin_command_t command = {.verb = BT_ADMIN_VERB_STATUS,
                                        .prefill = BT_ADMIN_UNSET,
                                        .decode = BT_ADMIN_UNSET};
    bt_admin_reply_t reply;
    fake_t fake;

    (void)state;
    setup(&fake);
    say(&fake, "{\"ok\":false,\"error\":\"go away\"}\n{\"processes\":");
    close(fake.peer);
    fake.peer = -1;
    assert_int_equal(bt_admin_client_send(fake.client, &command), BT_OK);
    assert_int_equal(next_reply(&fake, &reply), BT_OK);
    assert_string_equal(reply.error, "go away");
    assert_int_equal(next_reply(&fake, &reply), BT_ERR_PEER_LOST);
    assert_int_equal(bt_admin_client_send(fake.client, &command),
                     BT_ERR_PEER_LOST);
    teardown(&fake);
}

static void launcher_that_speaks_something_else_is_left(void **state)
{
    bt_admin_reply_t reply;
    static char bytes[1u << 16];
    fake_t fake;

    (void)state;
    setup(&fake);
    say(&fake, "HTTP/1.1  400\n");
    assert_int_equal(next_reply(&fake, &reply), BT_ERR_BAD_MESSAGE);
    bt_admin_client_step(fake.client);
    assert_int_equal(bt_admin_client_status(fake.client), BT_ERR_BAD_MESSAGE);
    teardown(&fake);

    setup(&fake);
    memset(bytes, 'x', sizeof(bytes) - 1);
    for (size_t n = 0; n <= BT_ADMIN_REPLY_BYTES; n += sizeof(bytes) - 1) {
        bt_admin_client_step(fake.client);
        assert_int_equal(bt_admin_client_status(fake.client), BT_OK);
        assert_false(bt_admin_client_next(fake.client, &reply));
        say(&fake, bytes); /* and no end of the line */
    }
    assert_int_equal(next_reply(&fake, &reply), BT_ERR_BAD_MESSAGE);
    teardown(&fake);
}

/* The peer reads nothing: the socket fills, then the queue; no command is
 * ever cut. */
static void commands_that_nobody_reads_are_rejected_whole(void **state)
{
    bt_admin_command_t command = {.verb = BT_ADMIN_VERB_LOAD,
                                  .name = "a",
                                  .prefill = BT_ADMIN_UNSET,
                                  .decode = BT_ADMIN_UNSET};
    bt_status_t status;
    char got[4096];
    size_t n_read = 0;
    int n_sent = 0;
    fake_t fake;

    (void)state;
    setup(&fake);
    memset(command.path, 'p', sizeof(command.path) - 1);
    while ((status = bt_admin_client_send(fake.client, &command)) == BT_OK) {
        n_sent++;
    }
    assert_int_equal(status, BT_ERR_TOO_LARGE);
    assert_true(bt_admin_client_wants_write(fake.client));
    while (bt_admin_client_wants_write(fake.client)) {
        n_read += (size_t)read(fake.peer, got, sizeof(got));
        bt_admin_client_step(fake.client);
        assert_int_equal(bt_admin_client_status(fake.client), BT_OK);
    }
    bt_admin_client_close(fake.client);
    fake.client = NULL;
    for (ssize_t n; (n = read(fake.peer, got, sizeof(got))) > 0;) {
        n_read += (size_t)n;
    }
    /* {"command":"load-model","name":"a","path":""} and the newline around
     * 4095 bytes */
    assert_int_equal(n_read, (size_t)n_sent * (46 + 4095));
    teardown(&fake);
}

static void socket_without_a_launcher_is_not_found(void **state)
{
    bt_admin_client_t *client = NULL;
    char path[200];
    fake_t fake;

    (void)state;
    assert_int_equal(bt_admin_client_connect("/nowhere/admin.sock", &client),
                     BT_ERR_NOT_FOUND);
    assert_int_equal(bt_admin_client_connect("/dev/null/admin.sock", &client),
                     BT_ERR_NOT_FOUND);
    memset(path, 'x', sizeof(path));
    path[sizeof(path) - 1] = '\0';
    assert_int_equal(bt_admin_client_connect(path, &client), BT_ERR_TOO_LARGE);
    listen_at(&fake);
    close(fake.listener); /* as after a launcher that was killed */
    assert_int_equal(bt_admin_client_connect(fake.path, &client),
                     BT_ERR_NOT_FOUND);
    assert_null(client);
    unlink(fake.path);
    rmdir(fake.dir);
}

static void
a_client_survives_failed_allocations_and_leaves_nothing(void **state)
{
    const uint32_t n_fds = bt_count_open_fds();
    const bt_admin_command_t command = {.verb = BT_ADMIN_VERB_WATCH,
                                        .prefill = BT_ADMIN_UNSET,
                                        .decode = BT_ADMIN_UNSET};
    bt_admin_client_t *client = NULL;
    fake_t fake;

    (void)state;
    setup(&fake);
    bt_alloc_fail_at(1);
    assert_int_equal(bt_admin_client_connect(fake.path, &client),
                     BT_ERR_NO_MEMORY);
    for (int nth = 1; nth <= 2; nth++) {
        bt_alloc_fail_at(nth);
        assert_int_equal(bt_admin_client_send(fake.client, &command),
                         BT_ERR_NO_MEMORY);
    }
    bt_alloc_fail_at(0);
    teardown(&fake);
    bt_admin_client_close(NULL);
    assert_int_equal(bt_count_open_fds(), n_fds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(command_goes_out_and_replies_come_in_pieces),
        BT_TEST(what_came_before_the_end_is_still_there),
        BT_TEST(launcher_that_speaks_something_else_is_left),
        BT_TEST(commands_that_nobody_reads_are_rejected_whole),
        BT_TEST(socket_without_a_launcher_is_not_found),
        BT_TEST(a_client_survives_failed_allocations_and_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
