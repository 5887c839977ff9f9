/* SPDX-License-Identifier: Apache-2.0 */
/** @file notify.h
 *
 * Reports state to a service manager (systemd, Type=notify), in datagrams to
 * the socket in NOTIFY_SOCKET: READY=1 once, STOPPING=1 once, STATUS= when it
 * changes, WATCHDOG=1 three times per WATCHDOG_USEC while the cluster is
 * alive. The protocol is in sd_notify(3).
 *
 * Alive means that the launcher works and clients could be served: its loop
 * turns, and within the last BT_NOTIFY_UNSERVED_MS a router was ready at some
 * time, unless none is meant to run. The launcher itself restarts a worker or
 * router that hangs or dies; the manager, which would end the requests of all
 * the others too, acts only where that did not help.
 *
 * Sending never blocks: a datagram that does not fit into the socket's buffer
 * is sent later. The caller passes the time. One thread.
 */
#ifndef BT_LAUNCHER_NOTIFY_H
#define BT_LAUNCHER_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/un.h>

#include "common/base/status.h"

#define BT_NOTIFY_STATUS_BYTES 256

/** Time without a ready router after which the cluster is not alive: four of
 *  the longest pauses before a restart (process_state.h). */
#define BT_NOTIFY_UNSERVED_MS 120000u

typedef struct bt_notify {
    int fd; /**< -1: no service manager */
    struct sockaddr_un address;
    uint32_t address_bytes;
    uint32_t beat_every_ms; /**< 0 = no watchdog heartbeats wanted */
    uint64_t beat_ms;       /**< when the next one is due */
    uint64_t again_ms;      /**< when to retry what was not sent; 0 = all was */
    uint64_t unserved_ms; /**< since when no router has been ready; 0 = one is,
                             or none is meant to be */
    bool said_ready;
    bool said_stopping;
    bool complained;
    char said_status[BT_NOTIFY_STATUS_BYTES];
} bt_notify_t;

/** State to report. */
typedef struct bt_notify_state {
    bool is_ready;      /**< everything has started, once */
    bool is_stopping;   /**< by itself or by a command */
    uint32_t stop_ms;   /**< longest time that stopping takes */
    uint32_t n_routers; /**< routers that are meant to run */
    uint32_t n_serving; /**< routers that are ready */
    const char *status; /**< one line for a person */
} bt_notify_state_t;

/** Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID and removes them from
 *  the environment, since children must not have them.
 *  @retval BT_OK  Also without a service manager: nothing is sent then.
 *  @retval BT_ERR_INVALID_PARAM  One of them is malformed; logged.
 *  @retval BT_ERR_IO  There is no socket to send by; logged. */
BT_MUST_CHECK bt_status_t bt_notify_open(bt_notify_t *notify);

/** Sends the changes of @a state, and a watchdog heartbeat when due. */
void bt_notify_tell(bt_notify_t *notify, const bt_notify_state_t *state,
                    uint64_t now_ms);

/** @return when to call bt_notify_tell() next even without a change; UINT64_MAX
 *          = never */
uint64_t bt_notify_due_ms(const bt_notify_t *notify);

void bt_notify_close(bt_notify_t *notify);

#endif
