/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher's control socket with clients of its own process. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/admin/connection.h"
#include "common/base/alloc.h"
#include "common/base/process.h"
#include "launcher/control_socket.h"
#include "launcher/run_dir.h"

/* A control socket, and its last command. */
typedef struct server {
    bt_run_dir_t dir;
    char path[128];
    bt_control_socket_t *control;
    uint64_t client; /* of the last command; 0 = none */
    uint32_t n_commands;
    bt_admin_command_t command;
} server_t;

static void on_command(void *arg, uint64_t client,
                       const bt_admin_command_t *command)
{
    server_t *const server = arg;

    server->client = client;
    server->n_commands++;
    server->command = *command;
}

static void setup(server_t *server)
{
    memset(server, 0, sizeof(*server));
    assert_int_equal(bt_run_dir_create(&server->dir), BT_OK);
    snprintf(server->path, sizeof(server->path), "%s/%s", server->dir.path,
             BT_ADMIN_SOCKET);
    assert_int_equal(bt_control_socket_create(server->dir.path, on_command,
                                              server, &server->control),
                     BT_OK);
}

static void teardown(server_t *server)
{
    bt_control_socket_destroy(server->control);
    bt_run_dir_remove(&server->dir);
}

static bt_admin_client_t *enter(server_t *server)
{
    bt_admin_client_t *client = NULL;

    assert_int_equal(bt_admin_client_connect(server->path, &client), BT_OK);
    bt_control_socket_run(server->control);
    return client;
}

static void ask(server_t *server, bt_admin_client_t *client,
                bt_admin_verb_t verb)
{
    bt_admin_command_t command = {
        .verb = verb, .prefill = BT_ADMIN_UNSET, .decode = BT_ADMIN_UNSET};

    if (verb == BT_ADMIN_VERB_STOP) {
        strncpy(command.name, "decode-0", sizeof(command.name) - 1);
    }
    assert_int_equal(bt_admin_client_send(client, &command), BT_OK);
    bt_control_socket_run(server->control);
}

static void answer(server_t *server, const char *error)
{
    bt_admin_reply_t reply = {.result = (error == NULL) ? BT_ADMIN_OK
                                                        : BT_ADMIN_ERROR};

    if (error != NULL) {
        strncpy(reply.error, error, sizeof(reply.error) - 1);
    }
    bt_control_socket_answer(server->control, server->client, &reply);
}

/* Takes the next reply that has been sent so far. */
static bool next_reply(server_t *server, bt_admin_client_t *client,
                       bt_admin_reply_t *reply)
{
    bt_status_t status;

    bt_control_socket_run(server->control);
    bt_admin_client_step(client);
    status = bt_admin_client_status(client);
    assert_true((status == BT_OK) || (status == BT_ERR_PEER_LOST));
    return bt_admin_client_next(client, reply);
}

static uint32_t count_fds(const server_t *server)
{
    struct pollfd fds[BT_CONTROL_SOCKET_FDS];

    return (uint32_t)bt_control_socket_poll_fds(server->control, fds);
}

static void a_command_is_answered_when_it_is_done(void **state)
{
    bt_admin_client_t *client;
    bt_admin_reply_t reply;
    server_t server;

    (void)state;
    setup(&server);
    client = enter(&server);
    ask(&server, client, BT_ADMIN_VERB_STOP);
    ask(&server, client, BT_ADMIN_VERB_STATUS); /* waits for the first */
    assert_int_equal(server.n_commands, 1);
    assert_string_equal(server.command.name, "decode-0");
    assert_false(next_reply(&server, client, &reply));
    answer(&server, "not today");
    assert_true(next_reply(&server, client, &reply));
    assert_string_equal(reply.error, "not today");
    bt_control_socket_run(server.control);
    assert_int_equal(server.n_commands, 2);
    answer(&server, NULL);
    assert_true(next_reply(&server, client, &reply));
    assert_int_equal(reply.result, BT_ADMIN_OK);
    bt_admin_client_close(client);
    bt_control_socket_run(server.control);
    assert_int_equal(count_fds(&server), 1);
    teardown(&server);
}

static void an_answer_to_a_client_that_left_is_dropped(void **state)
{
    bt_admin_client_t *client;
    server_t server;

    (void)state;
    setup(&server);
    client = enter(&server);
    ask(&server, client, BT_ADMIN_VERB_STOP);
    bt_admin_client_close(client);
    bt_control_socket_run(server.control);
    assert_int_equal(count_fds(&server), 1); /* nothing to spin on */
    client = enter(&server); /* in the same seat, with a number of its own */
    answer(&server, NULL);
    bt_control_socket_watch(server.control, server.client);
    bt_admin_client_step(client);
    assert_int_equal(bt_admin_client_status(client), BT_OK);
    bt_admin_client_close(client);
    teardown(&server);
}

static void watch(server_t *server, bt_admin_client_t *client)
{
    ask(server, client, BT_ADMIN_VERB_WATCH);
    bt_control_socket_watch(server->control, server->client);
    answer(server, NULL);
}

/* 4 MiB is what one may leave unread. The others get every line meanwhile. */
static void a_watcher_that_never_reads_is_dropped(void **state)
{
    bt_admin_process_t process = {.name = "decode-0"};
    const bt_admin_reply_t change = {
        .document = {.processes = &process, .n_processes = 1}};
    bt_admin_reply_t got;
    bt_admin_client_t *deaf;
    bt_admin_client_t *client;
    uint32_t n = 0;
    server_t server;

    (void)state;
    setup(&server);
    deaf = enter(&server);
    watch(&server, deaf);
    client = enter(&server);
    watch(&server, client);
    assert_true(next_reply(&server, client, &got));
    assert_int_equal(count_fds(&server), 3);

    bt_test_expect_log_lines(1);
    memset(process.model, 'm', sizeof(process.model) - 1);
    while (count_fds(&server) == 3) {
        bt_control_socket_publish(server.control, &change);
        assert_true(next_reply(&server, client, &got));
        assert_string_equal(got.document.processes[0].model, process.model);
        bt_admin_document_fini(&got.document);
        n++;
    }
    assert_true(n > (4u << 20) / 512);
    bt_control_socket_publish(server.control, &change);
    assert_true(next_reply(&server, client, &got));
    bt_admin_document_fini(&got.document);
    bt_admin_client_close(client);
    bt_admin_client_close(deaf);
    teardown(&server);
}

/* A client that sends and does not read is not read from. */
static void answers_do_not_pile_up(void **state)
{
    bt_admin_reply_t reply = {.result = BT_ADMIN_ERROR};
    bt_admin_client_t *client;
    uint32_t n_commands = 0;
    server_t server;

    (void)state;
    setup(&server);
    client = enter(&server);
    memset(reply.error, 1, sizeof(reply.error) - 1);
    for (int i = 0; i < 1000; i++) {
        ask(&server, client, BT_ADMIN_VERB_STATUS);
        if (server.client != 0) {
            bt_control_socket_answer(server.control, server.client, &reply);
            server.client = 0;
            n_commands++;
        }
    }
    /* A socket holds some 200 KiB, an answer has 12. */
    assert_true((n_commands > 1) && (n_commands < 200));
    bt_admin_client_close(client);
    bt_control_socket_run(server.control);
    assert_int_equal(count_fds(&server), 1);
    teardown(&server);
}

static void the_socket_is_private_whatever_the_umask(void **state)
{
    const uint32_t n_fds = bt_count_open_fds();
    struct stat info;
    server_t server;
    mode_t mask;

    (void)state;
    mask = umask(0);
    setup(&server);
    assert_int_equal(umask(mask), 0);
    assert_int_equal(stat(server.path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    teardown(&server);
    assert_int_equal(bt_count_open_fds(), n_fds);
}

static void a_socket_that_cannot_be_created_leaves_nothing(void **state)
{
    const uint32_t n_fds = bt_count_open_fds();
    bt_control_socket_t *control = NULL;

    (void)state;
    bt_test_expect_log_lines(1);
    assert_int_equal(
        bt_control_socket_create("/nowhere", on_command, NULL, &control),
        BT_ERR_IO);
    bt_alloc_fail_at(1);
    assert_int_equal(
        bt_control_socket_create("/nowhere", on_command, NULL, &control),
        BT_ERR_NO_MEMORY);
    bt_alloc_fail_at(0);
    assert_null(control);
    bt_control_socket_destroy(NULL);
    assert_int_equal(bt_count_open_fds(), n_fds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(a_command_is_answered_when_it_is_done),
        BT_TEST(an_answer_to_a_client_that_left_is_dropped),
        BT_TEST(a_watcher_that_never_reads_is_dropped),
        BT_TEST(answers_do_not_pile_up),
        BT_TEST(the_socket_is_private_whatever_the_umask),
        BT_TEST(a_socket_that_cannot_be_created_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
