/* SPDX-License-Identifier: Apache-2.0 */
/* Peers that really die: the other end is this program again, started with
 * arguments. It is spawned, never forked: nng aborts in a forked child. */
#include "tests/unit/common/link/link_side.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>

extern char **environ;

/* A busy machine is not silent for so long: who is down before has died. A dial
 * that is lost is tried again after as much, so it is less than our patience.
 */
#define NO_SILENCE_MS 20000u

static const char *program;
static char url[256];

static void open_side(side_t *side, const char *hello, uint32_t suspect_ms,
                      uint32_t dead_ms)
{
    bt_control_config_t config = side_config(key_a, hello);

    memset(side, 0, sizeof(*side));
    side->in_order = true;
    config.suspect_ms = suspect_ms;
    config.dead_ms = dead_ms;
    assert_int_equal(bt_control_open(&config, &side->control), BT_OK);
}

/* ---- the child: an end that sends everything back ---- */

static int run_child(bool router, const char *where)
{
    char bound[256];
    side_t side;
    const uint64_t end_ms = bt_now_ms() + 10 * PATIENCE_MS;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    open_side(&side, router ? "child router" : "child worker",
              NO_SILENCE_MS / 2, NO_SILENCE_MS);
    side.echo = true;
    if (router) {
        if (bt_control_listen(side.control, where, bound, sizeof(bound)) !=
            BT_OK) {
            return 2;
        }
    } else if (bt_control_join(side.control, where) != BT_OK) {
        return 3;
    }
    while (bt_now_ms() < end_ms) {
        side_t *const sides[] = {&side};

        sides_turn(sides, 1);
    }
    bt_control_close(side.control);
    return 4; /* nobody ended us in time */
}

static pid_t spawn(const char *role, const char *where)
{
    char a0[] = "peer";
    char *const argv[] = {a0, strdup(role), strdup(where), NULL};
    pid_t pid;

    assert_int_equal(posix_spawn(&pid, program, NULL, NULL, argv, environ), 0);
    free(argv[1]);
    free(argv[2]);
    return pid;
}

static void end_child(pid_t pid)
{
    int status;

    (void)kill(pid, SIGKILL);
    while ((waitpid(pid, &status, 0) < 0) && (errno == EINTR)) {
    }
    assert_true(WIFSIGNALED(status)); /* it had no reason to end before */
}

/* The same, and wait until this end knows. */
static void end_peer(side_t *side, pid_t pid)
{
    const uint32_t n_down = side->n_down;

    end_child(pid);
    UNTIL(side, NULL, side->n_down == n_down + 1);
}

static void open_router(side_t *router, bool ipc)
{
    open_side(router, "the router", NO_SILENCE_MS / 2, NO_SILENCE_MS);
    assert_int_equal(
        bt_control_listen(router->control, fresh_url(ipc), url, sizeof(url)),
        BT_OK);
}

static void messages_cross_processes_in_order(void **state)
{
    static const bool ipc[] = {false, true};

    (void)state;
    for (size_t k = 0; k < 2; k++) {
        side_t router;
        pid_t pid;

        open_router(&router, ipc[k]);
        pid = spawn("worker", url);
        UNTIL(&router, NULL, router.n_up == 1);
        assert_string_equal(router.hello, "child worker");
        for (uint32_t i = 0; i < 10000; i++) {
            assert_int_equal(bt_link_post(router.link, &i, sizeof(i)), BT_OK);
            if (i % 10 == 0) {
                bt_control_flush(router.control);
            }
        }
        UNTIL(&router, NULL, router.n_messages == 10000);
        assert_true(router.in_order);
        end_peer(&router, pid);
        bt_control_close(router.control);
    }
}

/* Its silence would tell later: the broken connection does. */
static void
a_killed_peer_is_down_in_time_and_its_successor_comes_up(void **state)
{
    static const bool ipc[] = {false, true};

    (void)state;
    for (size_t k = 0; k < 2; k++) {
        side_t router;
        uint64_t first;
        uint64_t killed_ms;
        pid_t pid;

        open_router(&router, ipc[k]);
        pid = spawn("worker", url);
        UNTIL(&router, NULL, router.n_up == 1);
        first = router.incarnation;
        killed_ms = bt_now_ms();
        end_child(pid);
        UNTIL(&router, NULL, router.n_down == 1);
        assert_true(router.down_ms - killed_ms < NO_SILENCE_MS / 2);

        pid = spawn("worker", url);
        UNTIL(&router, NULL, router.n_up == 2);
        assert_true(router.incarnation != first);
        end_peer(&router, pid);
        bt_control_close(router.control);
    }
}

/* Suspect after longer than a busy machine does not run a process. */
static void a_stopped_peer_is_suspect_and_healthy_again(void **state)
{
    side_t router;
    pid_t pid;

    (void)state;
    open_side(&router, "the router", 1500, NO_SILENCE_MS);
    assert_int_equal(
        bt_control_listen(router.control, fresh_url(false), url, sizeof(url)),
        BT_OK);
    pid = spawn("worker", url);
    UNTIL(&router, NULL, router.n_up == 1);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    UNTIL(&router, NULL, router.n_suspect == router.n_healthy + 1);
    run_for(&router, NULL, 500);
    assert_int_equal(router.n_suspect, router.n_healthy + 1);
    assert_int_equal(kill(pid, SIGCONT), 0);
    UNTIL(&router, NULL, router.n_healthy == router.n_suspect);
    assert_int_equal(router.n_down, 0);
    end_peer(&router, pid);
    bt_control_close(router.control);
}

static void a_peer_that_stays_stopped_is_dead(void **state)
{
    side_t router;
    pid_t pid;

    (void)state;
    open_side(&router, "the router", 1000, 2000);
    assert_int_equal(
        bt_control_listen(router.control, fresh_url(true), url, sizeof(url)),
        BT_OK);
    pid = spawn("worker", url);
    UNTIL(&router, NULL, router.n_up == 1);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    UNTIL(&router, NULL, router.n_down == 1);
    assert_non_null(strstr(router.reason, "silent for"));
    /* it thinks that it was up all the time; it finds out and comes back */
    assert_int_equal(kill(pid, SIGCONT), 0);
    UNTIL(&router, NULL, router.n_up == 2);
    end_peer(&router, pid);
    bt_control_close(router.control);
}

/* It wakes up to what was sent to it, to the end of the connection and to a
 * heartbeat of its own that is due, all at once: whichever it sees first, it
 * must see the end. */
static void a_peer_that_was_stopped_sees_its_lost_link_at_once(void **state)
{
    side_t router;
    pid_t pid;

    (void)state;
    open_router(&router, true);
    pid = spawn("worker", url);
    for (unsigned round = 0; round < 12; round++) {
        uint64_t woken_ms;
        unsigned was;

        UNTIL(&router, NULL, router.n_up > router.n_down);
        run_for(&router, NULL, 1000); /* so that it comes back without pause */
        was = router.n_down;
        assert_int_equal(kill(pid, SIGSTOP), 0);
        for (uint32_t i = 0; (i < 40) && (router.link != NULL); i++) {
            assert_int_equal(bt_link_post(router.link, &i, sizeof(i)), BT_OK);
            run_for(&router, NULL, 1);
        }
        assert_non_null(router.link);
        bt_link_over(router.link, "lost"); /* without a BYE */
        UNTIL(&router, NULL, router.n_down > was);
        was = router.n_up;
        run_for(&router, NULL, 110); /* our side of it is closed by now */
        assert_int_equal(kill(pid, SIGCONT), 0);
        woken_ms = bt_now_ms();
        UNTIL(&router, NULL, router.n_up > was);
        assert_true(router.up_ms - woken_ms < NO_SILENCE_MS / 2);
    }
    end_peer(&router, pid);
    bt_control_close(router.control);
}

static void a_worker_rejoins_a_router_that_was_killed(void **state)
{
    static const bool ipc[] = {false, true};

    (void)state;
    for (size_t k = 0; k < 2; k++) {
        side_t scout;
        side_t worker;
        pid_t pid;

        open_router(&scout, ipc[k]); /* finds a free address */
        bt_control_close(scout.control);
        side_open(&worker, key_a, "w");
        assert_int_equal(bt_control_join(worker.control, url), BT_OK);
        pid = spawn("router", url);
        UNTIL(&worker, NULL, worker.n_up == 1);
        end_peer(&worker, pid); /* over ipc its socket file stays behind */
        pid = spawn("router", url);
        UNTIL(&worker, NULL, worker.n_up == 2);
        assert_int_equal(bt_link_post(worker.link, "\0\0\0", 4), BT_OK);
        UNTIL(&worker, NULL, worker.n_messages == 1);
        end_peer(&worker, pid);
        bt_control_close(worker.control);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(messages_cross_processes_in_order),
        BT_TEST(a_killed_peer_is_down_in_time_and_its_successor_comes_up),
        BT_TEST(a_stopped_peer_is_suspect_and_healthy_again),
        BT_TEST(a_peer_that_stays_stopped_is_dead),
        BT_TEST(a_peer_that_was_stopped_sees_its_lost_link_at_once),
        BT_TEST(a_worker_rejoins_a_router_that_was_killed),
    };
    int failed;

    if (argc == 3) {
        return run_child(strcmp(argv[1], "router") == 0, argv[2]);
    }
    program = argv[0];
    if (test_dir_make() != 0) {
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_dir_remove();
    return failed;
}
