/* SPDX-License-Identifier: Apache-2.0 */
/** @file sleep.h
 *
 * Sleep of a worker: it gives back the memory of weights, scratch and KV pool,
 * and keeps its process and its place among the workers. As for other weights
 * (weights.h), it becomes another instance each time, so that nothing of
 * before is left by mistake: the KV pool of a woken worker is empty.
 *
 *     serving ── SLEEP ──▶ drains ── no job ──▶ closed ──▶ asleep
 *        ▲                                                   │ SLEEP: wake
 *        └────── started again with the weights of before ◀──┘
 *                           │ it cannot be: asleep again, with that number
 *
 * A worker that sleeps is linked with its routers by a HELLO that says so
 * (BT_HELLO_ASLEEP): that of the instance before, with a number of its own. It
 * takes no requests.
 *
 * Orders have numbers that only grow, on whatever router; of two, the larger
 * one counts.
 *
 * Threads: the control thread.
 */
#ifndef BT_WORKER_SLEEP_H
#define BT_WORKER_SLEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/wire/wire.h"
#include "inference/gguf/gguf.h"

typedef struct bt_start bt_start_t;
typedef struct bt_worker bt_worker_t;

/** Part of a worker. */
typedef struct bt_worker_sleep {
    bool is_possible; /**< set by the owner: this instance can */
    uint64_t order;   /**< number of the last order; 0: there was none */
    bool is_asleep;   /**< this instance sleeps */
    bool is_waking;   /**< started after a sleep, and not ready yet */
    bool is_due;      /**< `next` is to be carried out */
    bt_msg_sleep_t next;
    bt_msg_hello_t hello; /**< that of the last instance that served; without
                               its ranks */
} bt_worker_sleep_t;

/** Handles SLEEP: the control loop ends when no job is left, where the worker
 *  is not as ordered. Harmless when repeated. */
void bt_sleep_on_order(bt_worker_t *w, const bt_msg_sleep_t *order);
/** Makes the state of a worker that is started anew that of its order. */
void bt_sleep_go(bt_worker_sleep_t *sleep);
/** Checks the file that a woken worker has opened.
 *  @retval BT_ERR_MISMATCH  it is not the one of before the sleep, or, instead
 *    of that of replaced weights, the one of --model; logged */
BT_MUST_CHECK bt_status_t bt_sleep_opened(const bt_worker_t *w,
                                          const bt_gguf_t *gguf);
/** Records that a worker could not be woken: it is to sleep again, or, where it
 *  was not for want of memory, to wake with the weights of --model instead of
 *  replaced ones (bt_weights_failed()), which other weights can replace.
 *  @return false: it was not being woken, or was stopped */
BT_MUST_CHECK bool bt_sleep_failed(bt_worker_t *w, bt_status_t status);
/** Encodes the HELLO of a worker that sleeps. @retval any of
 *  bt_strbuf_status() */
BT_MUST_CHECK bt_status_t bt_sleep_hello(const bt_worker_t *w,
                                         bt_strbuf_t *out);

/* sleep_loop.c */

/** Links a worker that sleeps with its routers and serves their orders, until
 *  it is to wake (w->sleep.is_due) or to end.
 *  @return the exit code of the process */
int bt_sleep_run(bt_worker_t *w, bt_start_t *s, int signal_fd);
#endif
