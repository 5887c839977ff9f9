/* SPDX-License-Identifier: Apache-2.0 */
/** @file probe.h
 *
 * Another program of Baton's is asked something and ends. What it writes is
 * kept, up to a bound; it is killed when it takes too long.
 */
#ifndef BT_LAUNCHER_PROBE_H
#define BT_LAUNCHER_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/strbuf.h"

#define BT_PROBE_BYTES (1u << 20) /**< of each of the two outputs */

typedef struct bt_probe {
    bt_strbuf_t out, err; /**< what is over the bound is cut off */
    int exit_status;      /**< of a signal 128 and its number */
    bool took_too_long;
} bt_probe_t;

/** @param [in] argv  argv[0] is the program's path; ends with NULL
 *  @retval BT_ERR_IO  No pipe or process; logged. Otherwise bt_probe_fini(). */
BT_MUST_CHECK bt_status_t bt_probe_run(char *const *argv, uint32_t timeout_ms,
                                       bt_probe_t *probe_p);
void bt_probe_fini(bt_probe_t *probe);

#endif
