/* SPDX-License-Identifier: Apache-2.0 */
/** @file ready.h
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
 * A worker reports its role again whenever it changes; one of an older build
 * reports none, and cannot change it. Where BATON_READY_JOINED is set, it also
 * reports, on each change, how many of its routers it is linked with, and why
 * the first other one is not; if all are linked, any other problem. (A
 * launcher that does not know that line would keep all of them.)
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
    char text[BT_READY_BYTES]; /**< text received so far */
    size_t len;
    char role[BT_READY_ROLE_BYTES]; /**< last reported role, or "" */
    /** Why the worker is not linked with some or all routers, or any other
     *  problem; "": none. */
    char why[BT_READY_WHY_BYTES];
    bool said_joined; /**< a `joined` line was received */
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

#endif
