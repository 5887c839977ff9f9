/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher's desk with clients of its own process. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/admin/connection.h"
#include "common/base/alloc.h"
#include "common/base/fd_limit.h"
#include "launcher/control_socket.h"
#include "launcher/run_dir.h"

/* A desk, and the last order that came to it. */
typedef struct office {
    bt_run_dir_t dir;
    char path[128];
    bt_control_socket_t *desk;
    uint64_t client; /* who ordered last; 0 = nobody */
    uint32_t n_orders;
    bt_admin_command_t request;
} office_t;

static void on_order(void *arg, uint64_t client,
                     const bt_admin_command_t *request)
{
    office_t *const office = arg;

    office->client = client;
    office->n_orders++;
    office->request = *request;
}

static void setup(office_t *office)
{
    memset(office, 0, sizeof(*office));
    assert_int_equal(bt_run_dir_create(&office->dir), BT_OK);
    snprintf(office->path, sizeof(office->path), "%s/%s", office->dir.path,
             BT_ADMIN_SOCKET);
    assert_int_equal(bt_control_socket_create(office->dir.path, on_order,
                                              office, &office->desk),
                     BT_OK);
}

static void teardown(office_t *office)
{
    bt_control_socket_destroy(office->desk);
    bt_run_dir_remove(&office->dir);
}

static bt_admin_client_t *enter(office_t *office)
{
    bt_admin_client_t *client = NULL;

    assert_int_equal(bt_admin_client_connect(office->path, &client), BT_OK);
    bt_control_socket_run(office->desk);
    return client;
}

static void ask(office_t *office, bt_admin_client_t *client,
                bt_admin_verb_t verb)
{
    bt_admin_command_t request = {
        .verb = verb, .prefill = BT_ADMIN_UNSET, .decode = BT_ADMIN_UNSET};

    if (verb == BT_ADMIN_VERB_STOP) {
        strncpy(request.name, "decode-0", sizeof(request.name) - 1);
    }
    assert_int_equal(bt_admin_client_send(client, &request), BT_OK);
    bt_control_socket_run(office->desk);
}

/* All that the desk has for it by now. */
static bool next_event(office_t *office, bt_admin_client_t *client,
                       bt_admin_event_t *event)
{
    bt_status_t status;

    bt_control_socket_run(office->desk);
    status = bt_admin_client_step(client);
    assert_true((status == BT_OK) || (status == BT_ERR_PEER_LOST));
    return bt_admin_client_next(client, event);
}

static uint32_t count_fds(const office_t *office)
{
    struct pollfd fds[BT_DESK_FDS];

    return (uint32_t)bt_control_socket_poll_fds(office->desk, fds);
}

static void an_order_is_answered_when_it_is_done(void **state)
{
    bt_admin_client_t *client;
    bt_admin_event_t event;
    office_t office;

    (void)state;
    setup(&office);
    client = enter(&office);
    ask(&office, client, BT_ADMIN_VERB_STOP);
    ask(&office, client, BT_ADMIN_VERB_STATUS); /* waits for the first */
    assert_int_equal(office.n_orders, 1);
    assert_string_equal(office.request.name, "decode-0");
    assert_false(next_event(&office, client, &event));
    bt_control_socket_answer(office.desk, office.client, "not today");
    assert_true(next_event(&office, client, &event));
    assert_string_equal(event.u.error, "not today");
    bt_control_socket_run(office.desk);
    assert_int_equal(office.n_orders, 2);
    bt_control_socket_answer(office.desk, office.client, NULL);
    assert_true(next_event(&office, client, &event));
    assert_int_equal(event.kind, BT_ADMIN_EVENT_OK);
    bt_admin_client_close(client);
    bt_control_socket_run(office.desk);
    assert_int_equal(count_fds(&office), 1);
    teardown(&office);
}

static void an_answer_to_one_who_left_goes_nowhere(void **state)
{
    bt_admin_client_t *client;
    office_t office;

    (void)state;
    setup(&office);
    client = enter(&office);
    ask(&office, client, BT_ADMIN_VERB_STOP);
    bt_admin_client_close(client);
    bt_control_socket_run(office.desk);
    assert_int_equal(count_fds(&office), 1); /* nothing to spin on */
    client = enter(&office); /* in the same seat, with a number of its own */
    bt_control_socket_answer(office.desk, office.client, NULL);
    bt_control_socket_watch(office.desk, office.client);
    assert_int_equal(bt_admin_client_step(client), BT_OK);
    bt_admin_client_close(client);
    teardown(&office);
}

/* 4 MiB is what one may leave unread. The others get every line meanwhile. */
static void a_watcher_that_never_reads_is_dropped(void **state)
{
    bt_admin_event_t event = {.kind = BT_ADMIN_EVENT_PROCESS};
    bt_admin_event_t got;
    bt_admin_client_t *deaf;
    bt_admin_client_t *client;
    uint32_t n = 0;
    office_t office;

    (void)state;
    setup(&office);
    deaf = enter(&office);
    ask(&office, deaf, BT_ADMIN_VERB_WATCH);
    bt_control_socket_watch(office.desk, office.client);
    bt_control_socket_answer(office.desk, office.client, NULL);
    client = enter(&office);
    ask(&office, client, BT_ADMIN_VERB_WATCH);
    bt_control_socket_watch(office.desk, office.client);
    bt_control_socket_answer(office.desk, office.client, NULL);
    assert_true(next_event(&office, client, &got));
    assert_int_equal(count_fds(&office), 3);

    bt_test_expect_log_lines(1);
    memset(event.u.process.model, 'm', sizeof(event.u.process.model) - 1);
    while (count_fds(&office) == 3) {
        bt_control_socket_tell(office.desk, &event);
        assert_true(next_event(&office, client, &got));
        assert_string_equal(got.u.process.model, event.u.process.model);
        n++;
    }
    assert_true(n > (4u << 20) / 512);
    bt_control_socket_tell(office.desk, &event);
    assert_true(next_event(&office, client, &got));
    bt_admin_client_close(client);
    bt_admin_client_close(deaf);
    teardown(&office);
}

/* One who asks and does not read is not asked for more. */
static void answers_do_not_pile_up(void **state)
{
    bt_admin_event_t event = {.kind = BT_ADMIN_EVENT_MODEL};
    bt_admin_client_t *client;
    uint32_t n_orders = 0;
    office_t office;

    (void)state;
    setup(&office);
    client = enter(&office);
    memset(event.u.model.path, 0xff, sizeof(event.u.model.path) - 1);
    for (int i = 0; i < 1000; i++) {
        ask(&office, client, BT_ADMIN_VERB_STATUS);
        if (office.client != 0) {
            bt_control_socket_say(office.desk, office.client, &event);
            bt_control_socket_answer(office.desk, office.client, NULL);
            office.client = 0;
            n_orders++;
        }
    }
    /* A socket holds some 200 KiB, an answer has 12. */
    assert_true((n_orders > 1) && (n_orders < 200));
    bt_admin_client_close(client);
    bt_control_socket_run(office.desk);
    assert_int_equal(count_fds(&office), 1);
    teardown(&office);
}

static void the_socket_is_private_whatever_the_umask(void **state)
{
    const uint32_t n_fds = bt_count_open_fds();
    struct stat info;
    office_t office;
    mode_t mask;

    (void)state;
    mask = umask(0);
    setup(&office);
    assert_int_equal(umask(mask), 0);
    assert_int_equal(stat(office.path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
    teardown(&office);
    assert_int_equal(bt_count_open_fds(), n_fds);
}

static void a_desk_that_cannot_be_set_up_leaves_nothing(void **state)
{
    const uint32_t n_fds = bt_count_open_fds();
    bt_control_socket_t *desk = NULL;

    (void)state;
    bt_test_expect_log_lines(1);
    assert_int_equal(
        bt_control_socket_create("/nowhere", on_order, NULL, &desk), BT_ERR_IO);
    bt_alloc_fail_at(1);
    assert_int_equal(
        bt_control_socket_create("/nowhere", on_order, NULL, &desk),
        BT_ERR_NO_MEMORY);
    bt_alloc_fail_at(0);
    assert_null(desk);
    bt_control_socket_destroy(NULL);
    assert_int_equal(bt_count_open_fds(), n_fds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(an_order_is_answered_when_it_is_done),
        BT_TEST(an_answer_to_one_who_left_goes_nowhere),
        BT_TEST(a_watcher_that_never_reads_is_dropped),
        BT_TEST(answers_do_not_pile_up),
        BT_TEST(the_socket_is_private_whatever_the_umask),
        BT_TEST(a_desk_that_cannot_be_set_up_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
