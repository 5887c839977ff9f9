/* SPDX-License-Identifier: Apache-2.0 */
/** @file exit_code.h
 *
 * Exit codes of Baton's programs, which show the parent process whether to
 * restart one. Numbers from 64 on are those of sysexits.h.
 *
 *     0         success, or stopped on request
 *     1         a failure that may pass: restart
 *     2         options cannot be understood or met           final
 *     70        stuck, or its device failed: restart
 *     78        this machine, model or file does not meet
 *               the options: not enough memory, unsupported
 *               architecture, no device, address in use, key
 *               file refused                                  final
 *     126, 127  no such program to execute                    final
 *
 * A final failure would repeat on a restart. That holds for a first start only:
 * what was available once (memory, an address) may come back.
 */
#ifndef BT_COMMON_BASE_EXIT_CODE_H
#define BT_COMMON_BASE_EXIT_CODE_H

#include <stdbool.h>

#include "common/base/status.h"

typedef enum bt_exit {
    BT_EXIT_OK = 0,
    BT_EXIT_FAILURE = 1,
    BT_EXIT_USAGE = 2,
    BT_EXIT_STUCK = 70,           /* EX_SOFTWARE */
    BT_EXIT_CONFIG = 78,          /* EX_CONFIG */
    BT_EXIT_CANNOT_EXECUTE = 126, /* as shells do */
    BT_EXIT_NO_SUCH_PROGRAM = 127,
} bt_exit_t;

/** Returns the exit code of a program whose start ended with @a status; OK
 *  and BT_ERR_CANCELED (stopped meanwhile) are no failure. */
int bt_exit_of_start(bt_status_t status);

/** True when a first start that ended with this code would end so again. */
bool bt_exit_is_final(int code);

#endif
