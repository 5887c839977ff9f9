/* SPDX-License-Identifier: Apache-2.0 */
/** @file ready.h
 *
 * What a process says on its readiness descriptor (number in the variable
 * BATON_READY_FD): lines `KEY ADDRESS`, then the line `ready`.
 *
 *     router:  http 127.0.0.1:8000 \n (with TLS: http https://127.0.0.1:8000)
 *              metrics 127.0.0.1:8002 \n ... ready \n
 *     worker:  role decode \n ready \n ... role both \n ...
 *              joined 0 1 ipc:///run/r: it is there but does not answer \n
 *              joined 1 1 \n ...
 *              joined 1 1 prefill-0 cannot reach decode-0 ... \n ...
 *
 * A worker says its role again whenever it has changed; one of an older build
 * says none, and cannot change it. It says how many of its routers it is linked
 * with, and what keeps the first other one, or, where there is none, what else
 * is wrong, whenever that has changed, where
 * BATON_READY_JOINED is set: who does not know that line would keep each.
 */
#ifndef BT_LAUNCHER_READY_H
#define BT_LAUNCHER_READY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/strbuf.h"

#define BT_READY_BYTES      2048
#define BT_READY_ROLE_BYTES 16
#define BT_READY_WHY_BYTES  900

typedef struct bt_ready {
    char text[BT_READY_BYTES]; /**< what has come so far */
    size_t len;
    char role[BT_READY_ROLE_BYTES]; /**< that it said last, or "" */
    /** What keeps it from some of its routers, or from all, or what else is
     *  wrong; "": nothing. */
    char why[BT_READY_WHY_BYTES];
    bool said_joined; /**< a line of that kind has come */
} bt_ready_t;

void bt_ready_reset(bt_ready_t *ready);

/** Add a piece. What does not fit any more is dropped: then it never becomes
 *  ready, which is noticed. */
void bt_ready_add(bt_ready_t *ready, const char *data, size_t n);

/** Has the line `ready` come? */
bool bt_ready_is_done(const bt_ready_t *ready);

/** Has any whole line come (so its sockets are bound)? */
bool bt_ready_has_line(const bt_ready_t *ready);

/** Copy the address behind @a key. @return false when it is not there. */
bool bt_ready_address(const bt_ready_t *ready, const char *key, char *out,
                      size_t bytes);

/** Append what a person reads when everything runs: the addresses of all
 *  @a n routers, the models by their names, and lines to paste. */
void bt_ready_announce(const bt_ready_t *const *routers, uint32_t n,
                       const char *const *models, uint32_t n_models,
                       bt_strbuf_t *out);

#endif
