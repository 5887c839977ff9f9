/* SPDX-License-Identifier: Apache-2.0 */
/* Ends of processes: which are killed, and whether one is restarted. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "launcher/document.h"
#include "launcher/supervisor_priv.h"

/* An end counts as a kill by the OOM killer if the kernel's counter rose within
 * this time. */
#define OOM_MS 2000u

/* Gives up a child that could not start and is not retried. Ends the launch,
 * with that status and cause (a phrase), unless an admin command started the
 * child. */
static void give_up(bt_supervisor_t *s, bt_child_t *child, int exit_status,
                    const char *cause)
{
    child->has_given_up = true;
    bt_supervisor_apply(s, child, BT_PROCESS_EVENT_GAVE_UP);
    if (child->is_by_command) { /* the client of the command is notified */
        return;
    }
    if (s->cause[0] == '\0') { /* others may follow from it */
        snprintf(s->cause, sizeof(s->cause), "%s could not start: %s",
                 child->process->name, cause);
    }
    bt_supervisor_stop(s, exit_status);
}

/* The exit status of the launch if it ends because of this end. */
static int status_of_launch(int wait_status)
{
    const int code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 0;

    if (!bt_exit_is_final(code)) {
        return BT_EXIT_FAILURE;
    }
    return (code == BT_EXIT_USAGE) ? BT_EXIT_USAGE : BT_EXIT_CONFIG;
}

static void give_up_after(bt_supervisor_t *s, bt_child_t *child,
                          int wait_status, bool is_final)
{
    const char *const name = child->process->name;
    char why[BT_STDERR_TAIL_BYTES];

    if (is_final) {
        BT_LOG_ERROR("%s could not start: it ended %s; its last log lines:",
                     name, child->end);
    } else {
        BT_LOG_ERROR(
            "%s could not start %u times, the last time it ended %s; its last log lines:",
            name, child->restart.early_exits, child->end);
    }
    bt_child_print_tail(child, s->options->log);
    bt_stderr_tail_cause(&child->tail, why);
    if (why[0] == '\0') {
        snprintf(why, sizeof(why), "it ended %s", child->end);
    }
    give_up(s, child, status_of_launch(wait_status), why);
}

bt_child_t *bt_supervisor_standby_for(const bt_supervisor_t *s,
                                      const bt_child_t *child)
{
    if (bt_child_is_router(child) || !child->restart.was_ever_ready) {
        return NULL;
    }
    for (uint32_t i = 0; i < s->n_children; i++) {
        bt_child_t *const other = s->children[i];

        if ((other->state == BT_PROCESS_READY) && (other->assignment_fd >= 0) &&
            bt_plan_may_replace(s->plan, other->process, child->process)) {
            return other;
        }
    }
    return NULL;
}

/* Sets the reason why the process is not there. */
static void note_trouble(bt_child_t *child)
{
    char why[BT_STDERR_TAIL_BYTES];

    bt_stderr_tail_cause(&child->tail, why);
    snprintf(child->trouble, sizeof(child->trouble), "ended %s%s%s", child->end,
             (why[0] != '\0') ? ": " : "", why);
}

/* A process killed by the OOM killer leaves no message, and the kernel's
 * counter does not name it: it is any that ended by SIGKILL at about the time
 * when the counter rose, or that had a rank that may have. */
static void note_memory(bt_supervisor_t *s, bt_child_t *child, int wait_status)
{
    const bool was_killed =
        WIFSIGNALED(wait_status) && (WTERMSIG(wait_status) == SIGKILL);
    const uint64_t n = bt_cgroup_oom_kills("");
    const size_t len = strlen(child->end);
    bt_limit_t limit;

    if (n > s->oom_kills) {
        s->oom_kills = n;
        s->oom_ms = bt_now_ms();
    }
    if ((!was_killed && (bt_plan_ranks(s->plan, child->process) == 1)) ||
        (s->oom_ms == 0) || (bt_now_ms() - s->oom_ms > OOM_MS)) {
        return;
    }
    bt_cgroup_memory("", &limit);
    if (limit.by[0] == '\0') {
        snprintf(child->end + len, sizeof(child->end) - len, ", out of memory");
        BT_LOG_ERROR("%s was killed: this machine is out of memory",
                     child->process->name);
        return;
    }
    snprintf(child->end + len, sizeof(child->end) - len,
             ", out of memory: the cgroup has %" PRIu64 " MiB",
             (limit.most >> 20));
    BT_LOG_ERROR("%s was killed: its cgroup is out of memory (limit %" PRIu64
                 " MiB, %s)",
                 child->process->name, (limit.most >> 20), limit.by);
}

/* A process ended by itself while all else runs. */
static void on_own_end(bt_supervisor_t *s, bt_child_t *child, int wait_status)
{
    const uint64_t now_ms = bt_now_ms();
    /* A router that ends before it has bound its sockets will fail again,
     * whatever its exit status. */
    const bool is_final =
        (WIFEXITED(wait_status) &&
         bt_exit_is_final(WEXITSTATUS(wait_status))) ||
        (bt_child_is_router(child) && !bt_ready_has_line(&child->ready));
    uint32_t pause_ms;

    note_trouble(child);
    if (!bt_restart_exited(&child->restart, now_ms, is_final, &pause_ms)) {
        give_up_after(s, child, wait_status, is_final);
        return;
    }
    child->may_be_replaced = true;
    if (bt_supervisor_standby_for(s, child) != NULL) {
        pause_ms = 0;
    }
    BT_LOG_WARN("%s ended %s; restarting in %u.%u s", child->process->name,
                child->end, pause_ms / 1000, pause_ms % 1000 / 100);
    child->due_ms = now_ms + pause_ms;
    bt_supervisor_apply(s, child, BT_PROCESS_EVENT_ENDED);
}

void bt_supervisor_no_start(bt_supervisor_t *s, bt_child_t *child,
                            bt_status_t why)
{
    const uint64_t now_ms = bt_now_ms();
    uint32_t pause_ms;

    snprintf(child->trouble, sizeof(child->trouble), "cannot be started: %s",
             bt_status_str(why));
    if (!bt_restart_exited(&child->restart, now_ms, true, &pause_ms)) {
        give_up(s, child, BT_EXIT_FAILURE, bt_status_str(why));
        return;
    }
    BT_LOG_WARN("%s could not be started: %s; retrying in %u.%u s",
                child->process->name, bt_status_str(why), pause_ms / 1000,
                pause_ms % 1000 / 100);
    child->due_ms = now_ms + pause_ms;
    bt_supervisor_apply(s, child, BT_PROCESS_EVENT_ENDED);
}

/* A process ended by an admin command, or because everything stops. */
static void on_ordered_end(bt_supervisor_t *s, bt_child_t *child,
                           int wait_status)
{
    /* SIGTERM is ours, received before the child could handle it; if SIGKILL is
     * ours, that was logged. */
    const bool is_well =
        (wait_status == 0) ||
        (WIFSIGNALED(wait_status) && (WTERMSIG(wait_status) == SIGTERM));

    if ((s->phase != BT_SUPERVISOR_KILL) && !is_well && !child->was_killed) {
        BT_LOG_WARN("%s ended %s while stopping", child->process->name,
                    child->end);
    }
    bt_supervisor_apply(s, child, BT_PROCESS_EVENT_ENDED);
    if (s->phase != BT_SUPERVISOR_RUNNING) {
        bt_supervisor_apply(s, child, BT_PROCESS_EVENT_STOP);
    }
}

void bt_supervisor_reap(bt_supervisor_t *s)
{
    for (uint32_t i = 0; i < s->n_children; i++) {
        bt_child_t *const child = s->children[i];
        const bool was_told = (child->state == BT_PROCESS_STOPPING) ||
                              (child->state == BT_PROCESS_CHANGING);
        int wait_status;

        if (!bt_child_reap(child, &wait_status)) {
            continue;
        }
        if (!child->was_killed && (wait_status != 0)) {
            note_memory(s, child, wait_status);
        }
        if (was_told || (s->phase != BT_SUPERVISOR_RUNNING)) {
            on_ordered_end(s, child, wait_status);
        } else {
            on_own_end(s, child, wait_status);
        }
    }
}

/* A process waiting for a core is not hung, however long: others use the cores,
 * or its CPU time quota is used up. */
static void tell_starved(bt_supervisor_t *s, bt_child_t *child)
{
    const bool is_starved =
        bt_watchdog_is_starved(&child->watchdog, s->options->watchdog_ms);

    if (is_starved == child->is_starved) {
        return;
    }
    child->is_starved = is_starved;
    if (is_starved) {
        BT_LOG_WARN("%s is starved: it waits for a core and is not hung",
                    child->process->name);
    } else {
        BT_LOG_INFO("%s is no longer starved", child->process->name);
    }
    bt_supervisor_publish_process(s, child);
}

void bt_supervisor_watch(bt_supervisor_t *s, uint64_t now_ms)
{
    const uint32_t limit_ms = s->options->watchdog_ms;

    s->look_ms = now_ms + bt_watchdog_period_ms(limit_ms);
    for (uint32_t i = 0; i < s->n_children; i++) {
        bt_child_t *const child = s->children[i];
        const bool has_beaten = bt_child_take_beat(child);
        const uint64_t waited_ms =
            bt_child_core_wait_ms(child, has_beaten, now_ms);

        if ((child->state != BT_PROCESS_STARTING) &&
            (child->state != BT_PROCESS_READY)) {
            continue;
        }
        if (child->ready.is_loading) {
            if (bt_watchdog_look_loading(&child->watchdog, now_ms, limit_ms)) {
                bt_child_log_threads(child);
                BT_LOG_WARN("%s has loaded weights for %u min and is hung; "
                            "killing it",
                            child->process->name, BT_LOADING_MOST_MS / 60000);
                bt_child_signal(child, SIGKILL);
            }
            continue;
        }
        if (bt_watchdog_look(&child->watchdog, now_ms, has_beaten, waited_ms,
                             limit_ms)) {
            bt_child_log_threads(child);
            BT_LOG_WARN(
                "%s is hung (stopped, blocked or spinning): silent for %u.%u s; killing it",
                child->process->name, limit_ms / 1000, limit_ms % 1000 / 100);
            bt_child_signal(child, SIGKILL);
        }
        tell_starved(s, child);
    }
}
