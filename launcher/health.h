/* SPDX-License-Identifier: Apache-2.0 */
/** @file health.h
 *
 * Readiness and liveness of a child.
 *
 * Readiness protocol: lines that a process writes on its readiness descriptor
 * (number in the variable BATON_READY_FD): `KEY ADDRESS`, then `ready`.
 *
 *     router:  http 127.0.0.1:8000 \n (with TLS: http https://127.0.0.1:8000)
 *              metrics 127.0.0.1:8002 \n ... ready \n
 *     worker:  role decode \n ready \n ... role both \n ...
 *              joined 0 1 ipc:///run/r: it is there but does not answer \n
 *              joined 1 1 \n ...
 *              joined 1 1 prefill-0 cannot reach decode-0 ... \n ...
 *
 * A worker reports its role again whenever it changes, and, where
 * BATON_READY_JOINED is set, on each change how many of its routers it is
 * linked with, and why the first other one is not; if all are linked, any other
 * problem.
 *
 * Watchdog: detects hung processes by missing heartbeats
 * (common/base/process.h). Pure: the caller passes the time.
 *
 *     launcher looks:   ·     ·     ·     ·     ·     ·     ·
 *     heartbeats:       ||||  |||   ....stopped............
 *     silent for:       0     0     p    2p    3p  … limit: hung
 *
 * A process that waits for a core is starved, not hung: that time
 * (common/base/process.h) does not count as silence.
 *
 * A process is watched from its first heartbeat on, so not while it loads a
 * model. Time in which the launcher itself did not run (the machine slept, the
 * launcher was stopped) counts at most two periods of silence.
 *
 * Threads of a process, logged to explain why the process was killed:
 *
 *     prefill-0 thread 4711 (baton-prefill-w): state S, waits in futex_do_wait,
 *     ran 1204 ms, waited 31 ms for a core in 210 turns
 *     prefill-0 thread 4711 is in: futex_do_wait < __futex_wait < do_futex
 *
 * Source: /proc/PID/task/TID/{stat,wchan,schedstat,stack}, as in proc(5). Only
 * root can read the kernel stack.
 */
#ifndef BT_LAUNCHER_HEALTH_H
#define BT_LAUNCHER_HEALTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/process.h"
#include "common/base/text.h"

#define BT_READY_BYTES      2048
#define BT_READY_ROLE_BYTES 16
#define BT_READY_WHY_BYTES  900

typedef struct bt_ready {
    char text[BT_READY_BYTES]; /**< text received so far */
    size_t len;
    char role[BT_READY_ROLE_BYTES]; /**< last reported role, or "" */
    /** Why the worker is not linked with some or all routers, or any other
     *  problem; "": none. */
    char why[BT_READY_WHY_BYTES];
    bool said_joined; /**< a `joined` line was received */
    bool is_loading;  /**< loads other weights: its loop stands meanwhile */
} bt_ready_t;

void bt_ready_reset(bt_ready_t *ready);

/** Adds a piece of text. Text beyond the buffer is dropped: the process then
 *  never becomes ready, which is noticed. */
void bt_ready_add(bt_ready_t *ready, const char *data, size_t n);

/** True when the line `ready` was received. */
bool bt_ready_is_done(const bt_ready_t *ready);

/** True when a whole line was received (so the sockets are bound). */
bool bt_ready_has_line(const bt_ready_t *ready);

/** Copies the address after @a key. @return false when there is none. */
bool bt_ready_address(const bt_ready_t *ready, const char *key, char *out,
                      size_t bytes);

/** Appends the text shown when all processes run: the addresses of all @a n
 *  routers, the names of the models, and example commands. */
void bt_ready_announce(const bt_ready_t *const *routers, uint32_t n,
                       const char *const *models, uint32_t n_models,
                       bt_strbuf_t *out);

/** Least value of --watchdog-ms, other than 0: programs send a heartbeat every
 *  BT_HEARTBEAT_EVERY_MS. */
#define BT_WATCHDOG_LEAST_MS (5u * BT_HEARTBEAT_EVERY_MS)

typedef struct bt_watchdog {
    uint64_t looked_ms;
    uint64_t silent_ms;
    uint64_t waited_ms;  /**< wait for a core, since the last heartbeat */
    uint64_t loading_ms; /**< time that it has loaded other weights for */
    bool is_watched;
} bt_watchdog_t;

/** True when --watchdog-ms may have this value. */
bool bt_watchdog_is_long_enough(uint32_t limit_ms);

/** Initialises the watchdog of a process that has started. */
void bt_watchdog_init(bt_watchdog_t *watchdog, uint64_t now_ms);

/** Returns the interval of checks: a tenth of @a limit_ms, 20 ms to 1 s. */
uint32_t bt_watchdog_period_ms(uint32_t limit_ms);

/** Checks a process; call once per period.
 *  @param [in] has_beaten  since the last look
 *  @param [in] waited_ms   wait for a core since then
 *  @return whether the process hangs: silent for @a limit_ms. True once per
 *          process. */
bool bt_watchdog_look(bt_watchdog_t *watchdog, uint64_t now_ms, bool has_beaten,
                      uint64_t waited_ms, uint32_t limit_ms);

/** Most time to load other weights, which a process does without heartbeats:
 *  that of the router for a replacement. */
#define BT_LOADING_MOST_MS 1800000u

/** Checks a process that loads other weights, in place of bt_watchdog_look():
 *  it is as at its start, and hangs after BT_LOADING_MOST_MS. */
bool bt_watchdog_look_loading(bt_watchdog_t *watchdog, uint64_t now_ms,
                              uint32_t limit_ms);

/** True when the silence is a wait for a core: half of the time, and longer
 *  than one period. */
bool bt_watchdog_is_starved(const bt_watchdog_t *watchdog, uint32_t limit_ms);

/** Logs the threads of a process, at most 64. Takes some 50 us per thread. */
void bt_threads_log(const char *name, pid_t pid);

#endif
