/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of the launcher, with the system's own programs. */
#include "tests/support/testsupport.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "launcher/child.h"

#define DEADLINE_MS 60000u

/* What the launcher's kill() met. */
static const bt_log_dir_t no_logs = {.path = ""};

static struct {
    unsigned n;
    bool was_reaped; /* before a signal went to its number */
} groups;

/* Stands before the C library's: is the group's leader still there, if only to
 * be reaped? Then nobody else can have its number. */
int kill(pid_t pid, int signal_number)
{
    if (pid < -1) {
        siginfo_t info = {0};

        groups.n++;
        if ((waitid(P_PID, (id_t)-pid, &info, WEXITED | WNOHANG | WNOWAIT) !=
             0) ||
            (info.si_pid != -pid)) {
            groups.was_reaped = true;
        }
    }
    return (int)syscall(SYS_kill, pid, signal_number);
}

static void add_arg(bt_plan_process_t *process, const char *text)
{
    bt_strbuf_puts(&process->args, text);
    bt_strbuf_append(&process->args, "", 1);
}

static int reap(bt_child_t *child)
{
    const uint64_t end_ms = bt_now_ms() + DEADLINE_MS;
    int wait_status = -1;

    while (!bt_child_reap(child, &wait_status)) {
        assert_true(bt_now_ms() < end_ms);
        usleep(1000);
    }
    return wait_status;
}

static void open_child(bt_child_t *child, bt_plan_process_t *process)
{
    memset(process, 0, sizeof(*process));
    snprintf(process->name, sizeof(process->name), "one");
    bt_strbuf_init(&process->args, 4096);
    assert_int_equal(bt_child_init(child, process, &no_logs), BT_OK);
}

static void a_group_is_signalled_before_its_number_is_given_back(void **state)
{
    bt_child_t *child = bt_calloc(1, sizeof(*child));
    bt_plan_process_t process;

    (void)state;
    assert_non_null(child);
    open_child(child, &process);
    add_arg(&process, "-c");
    add_arg(&process, "exit 7");
    groups.n = 0;
    assert_int_equal(bt_child_start(child, "/bin/sh"), BT_OK);
    assert_int_equal(WEXITSTATUS(reap(child)), 7);
    assert_string_equal(child->end, "with exit status 7");
    assert_int_equal(child->pid, 0);
    assert_int_equal(groups.n, 1);
    assert_false(groups.was_reaped);
    bt_child_fini(child);
    bt_strbuf_fini(&process.args);
    bt_free(child);
}

/* What it started and left behind ends with it. */
static void nobody_of_its_group_outlives_it(void **state)
{
    bt_child_t *child = bt_calloc(1, sizeof(*child));
    const uint64_t end_ms = bt_now_ms() + DEADLINE_MS;
    bt_plan_process_t process;
    int left = 0;

    (void)state;
    assert_non_null(child);
    open_child(child, &process);
    add_arg(&process, "-c");
    add_arg(&process, "sleep 1000 & echo $!");
    assert_int_equal(bt_child_start(child, "/bin/sh"), BT_OK);
    assert_int_equal(WEXITSTATUS(reap(child)), 0);
    left = (int)strtol(bt_stderr_tail_line(&child->tail, 0), NULL, 10);
    assert_true(left > 1);
    while (true) { /* a zombie is whoever's it is now */
        char path[64];
        char text[256] = "";
        FILE *file;
        const char *at;

        snprintf(path, sizeof(path), "/proc/%d/stat", left);
        file = fopen(path, "r");
        if (file == NULL) {
            break;
        }
        if (fgets(text, sizeof(text), file) == NULL) {
            text[0] = '\0';
        }
        fclose(file);
        at = strrchr(text, ')');
        if ((at == NULL) || (at[2] == 'Z')) {
            break;
        }
        assert_true(bt_now_ms() < end_ms);
        usleep(1000);
    }
    bt_child_fini(child);
    bt_strbuf_fini(&process.args);
    bt_free(child);
}

static bool said(const bt_child_t *child, const char *text)
{
    const char *line;

    for (uint32_t i = 0; (line = bt_stderr_tail_line(&child->tail, i)) != NULL;
         i++) {
        if (strcmp(line, text) == 0) {
            return true;
        }
    }
    return false;
}

static void readiness_and_heartbeats_have_their_descriptors(void **state)
{
    bt_child_t *child = bt_calloc(1, sizeof(*child));
    bt_plan_process_t process;
    char numbers[] = "ls -l /proc/self/fd | sed -n 's/.* \\([0-9]*\\) -> "
                     "\\([a-z_:]*\\).*/\\1 \\2/p'; "
                     "printf '\\001\\0\\0\\0\\0\\0\\0\\0' >&4; exit 0";

    (void)state;
    assert_non_null(child);
    open_child(child, &process);
    add_arg(&process, "-c");
    add_arg(&process, numbers);
    assert_int_equal(bt_child_start(child, "/bin/sh"), BT_OK);
    {
        const uint64_t end_ms = bt_now_ms() + DEADLINE_MS;

        while (!bt_child_take_beat(child)) {
            assert_true(bt_now_ms() < end_ms);
            usleep(1000);
        }
    }
    assert_false(bt_child_take_beat(child));
    assert_int_equal(WEXITSTATUS(reap(child)), 0);
    assert_false(bt_child_take_beat(child));
    assert_true(said(child, "3 pipe:"));
    assert_true(said(child, "4 anon_inode:"));
    bt_child_fini(child);
    bt_strbuf_fini(&process.args);
    bt_free(child);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(a_group_is_signalled_before_its_number_is_given_back),
        BT_TEST(nobody_of_its_group_outlives_it),
        BT_TEST(readiness_and_heartbeats_have_their_descriptors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
