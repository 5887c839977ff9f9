/* SPDX-License-Identifier: Apache-2.0 */
/** @file probe.h
 *
 * Runs another program of Baton's to its end and collects its output, up to a
 * limit; a program that takes too long is killed.
 */
#ifndef BT_LAUNCHER_PROBE_H
#define BT_LAUNCHER_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/strbuf.h"

#define BT_PROBE_BYTES (1u << 20) /**< limit of each of the two outputs */

typedef struct bt_probe {
    bt_strbuf_t out, err; /**< cut at the limit */
    int exit_status;      /**< exit status; 128 and the number of a signal */
    bool took_too_long;
} bt_probe_t;

/** Runs a program.
 *  @param [in] argv  argv[0] is the program's path; ends with NULL
 *  @retval BT_ERR_IO  No pipe or process; logged. Otherwise call
 *                     bt_probe_fini(). */
BT_MUST_CHECK bt_status_t bt_probe_run(char *const *argv, uint32_t timeout_ms,
                                       bt_probe_t *probe_p);
void bt_probe_fini(bt_probe_t *probe);

#endif
