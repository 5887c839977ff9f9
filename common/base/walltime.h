/* SPDX-License-Identifier: Apache-2.0 */
/** @file walltime.h
 *
 * Time of day, for human readers: logs and what they are compared with. Code
 * that waits or measures uses clock.h.
 */
#ifndef BT_COMMON_BASE_WALLTIME_H
#define BT_COMMON_BASE_WALLTIME_H

#include <stdint.h>

#define BT_WALLTIME_BYTES 32

int64_t bt_walltime_ms(void); /**< since 1970 */
/** Prints ISO 8601 in UTC: `2026-11-22T14:03:07.123+00:00`. */
void bt_walltime_print(int64_t unix_ms, char text[BT_WALLTIME_BYTES]);

#endif
