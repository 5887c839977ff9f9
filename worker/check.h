/* SPDX-License-Identifier: Apache-2.0 */
/** @file check.h
 *
 * Dry run of a worker's start-up: with `--check` as the first argument, in
 * front of the options, a worker checks whether it could start, and does not
 * start. Problems are JSON log lines on standard error, as at a start. If the
 * check gets that far, one object on standard output has the resources a start
 * would take:
 *
 *     {"weight_bytes":…,"weights_shared":true,"own_bytes":…,"pool_bytes":…,
 *       "ranks":1}
 *
 * Bytes are per rank. Nothing is allocated or bound: no port, no pool, no
 * weights.
 */
#ifndef BT_WORKER_CHECK_H
#define BT_WORKER_CHECK_H

#include "worker/worker.h"

/** Runs the check.
 *  @param [in] w  Zero but for what bt_worker_main() sets; NULL: no memory.
 *  @param [in] argc, argv  Options; the first one is ignored.
 *  @return the exit code that a start would have ended with, or 0 */
int bt_worker_check(bt_worker_t *w, unsigned program, int argc, char **argv);

#endif
