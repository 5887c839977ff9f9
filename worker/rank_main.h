/* SPDX-License-Identifier: Apache-2.0 */
/** @file rank_main.h  A rank other than 0 of an instance: runs its share of the
 *  model and of the KV pool, and serves the requests of rank 0 (rank_group.h).
 */
#ifndef BT_WORKER_RANK_MAIN_H
#define BT_WORKER_RANK_MAIN_H

#include "worker/start.h"

/** Runs a rank other than 0 to its end, in place of the worker's own main loop.
 *  @return the exit code */
int bt_rank_main_run(bt_worker_t *w, bt_start_t *s);

#endif
