/* SPDX-License-Identifier: Apache-2.0 */
/** @file notify.h
 *
 * Tells a service manager (systemd, Type=notify) how it stands, in datagrams to
 * the socket that NOTIFY_SOCKET names: READY=1 once, STOPPING=1 once, STATUS=
 * whenever it is another, WATCHDOG=1 three times in WATCHDOG_USEC while the
 * cluster is alive. sd_notify(3) has the protocol.
 *
 * Alive means that the launcher does its work and somebody could be served:
 * its loop turns, and for the last BT_NOTIFY_UNSERVED_MS a router was ready
 * now and then, unless none is meant to run. A worker or router that hangs or
 * dies is the launcher's own to start again; the manager, which would end the
 * requests of all the others with it, comes in where that has led to nothing.
 *
 * Nothing waits for the manager: what its socket has no room for is sent later.
 * The time comes in as a parameter. One thread.
 */
#ifndef BT_LAUNCHER_NOTIFY_H
#define BT_LAUNCHER_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

#include "common/base/status.h"

#define BT_NOTIFY_STATUS_BYTES 256

/** Four of the longest pauses before a restart (restart.h). */
#define BT_NOTIFY_UNSERVED_MS 120000u

typedef struct bt_notify {
    int fd; /**< -1: nobody is to be told */
    struct sockaddr_un address;
    uint32_t address_bytes;
    uint32_t beat_every_ms; /**< 0 = no heartbeats are wanted */
    uint64_t beat_ms;       /**< when the next one is due */
    uint64_t again_ms;      /**< when to try again what was not sent; 0 = all
                                 was */
    uint64_t unserved_ms;   /**< since when no router has been ready; 0 = one
                                 is, or none is meant to be */
    bool said_ready;
    bool said_stopping;
    bool complained;
    char said_status[BT_NOTIFY_STATUS_BYTES];
} bt_notify_t;

/** How it stands. */
typedef struct bt_notify_state {
    bool is_ready;      /**< everything has started, once */
    bool is_stopping;   /**< of its own accord or told to */
    uint32_t stop_ms;   /**< the longest that stopping takes */
    uint32_t n_routers; /**< that are meant to run */
    uint32_t n_serving; /**< of these, ready */
    const char *status; /**< a line for a person */
} bt_notify_state_t;

/** Take NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID out of the environment,
 *  which children must not have.
 *  @retval BT_OK  Also where there is no manager: nobody is told then.
 *  @retval BT_ERR_INVALID_PARAM  One of them cannot be understood; logged.
 *  @retval BT_ERR_IO  There is no socket to send by; logged. */
BT_MUST_CHECK bt_status_t bt_notify_open(bt_notify_t *notify);

/** Tell what is new of @a state, and that it lives where that is due. */
void bt_notify_tell(bt_notify_t *notify, const bt_notify_state_t *state,
                    uint64_t now_ms);

/** @return when bt_notify_tell() has something to do though nothing is new;
 *  UINT64_MAX = never */
uint64_t bt_notify_due_ms(const bt_notify_t *notify);

void bt_notify_close(bt_notify_t *notify);

#endif
