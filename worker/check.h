/* SPDX-License-Identifier: Apache-2.0 */
/** @file check.h
 *
 * A worker that is asked whether it could start, and does not: as the first
 * argument, `--check` in front of its options. What it finds wrong are lines of
 * its log on standard error, as they would be of a start, in JSON. On standard
 * output, if it came so far, one object has what it would take:
 *
 *     {"weight_bytes":…,"weights_shared":true,"own_bytes":…,"pool_bytes":…,
 *       "ranks":1}
 *
 * Bytes are of one rank. Nothing is taken: no port, no pool, no weights.
 */
#ifndef BT_WORKER_CHECK_H
#define BT_WORKER_CHECK_H

#include "worker/worker.h"

/** @param [in] w  Zero but for what bt_worker_main() gives it; NULL: no memory.
 *  @param [in] argc, argv  Options, with anything as the first one.
 *  @return the exit code that a start would have ended with, or 0 */
int bt_worker_check(bt_worker_t *w, unsigned program, int argc, char **argv);

#endif
