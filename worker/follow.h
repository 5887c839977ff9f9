/* SPDX-License-Identifier: Apache-2.0 */
/** @file follow.h  A rank other than 0 of an instance: its share of the model
 *  and of the KV pool, and what rank 0 asks of them (team.h). */
#ifndef BT_WORKER_FOLLOW_H
#define BT_WORKER_FOLLOW_H

#include "worker/start.h"

/** All of it, in the place of what a worker does else.
 *  @return the exit code */
int bt_follow_run(bt_worker_t *w, bt_start_t *s);

#endif
