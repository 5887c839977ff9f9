/* SPDX-License-Identifier: Apache-2.0 */
/** @file exit_code.h
 *
 * With what Baton's programs end, so that whoever started one knows whether to
 * start it again. Numbers from 64 on are those of sysexits.h.
 *
 *     0         it did what it was told to, or was told to stop
 *     1         a failure that may pass: start it again
 *     2         its options cannot be understood or met       final
 *     70        it got stuck, or its device failed: start it again
 *     78        this machine, model or file is not as the
 *               options need it: the memory is not there, an
 *               architecture is not supported, no device, an
 *               address in use, a key file that is refused    final
 *     126, 127  there is no such program to execute           final
 *
 * What is final would end the same way again. That holds for a first start
 * only: what was there once (memory, an address) may come back.
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
    BT_EXIT_CANNOT_EXECUTE = 126, /* as shells have it */
    BT_EXIT_NO_SUCH_PROGRAM = 127,
} bt_exit_t;

/** @return with what a program ends whose start came to @a status; OK and
 *  BT_ERR_CANCELED (told to stop meanwhile) are no failure. */
int bt_exit_of_start(bt_status_t status);

/** Would a first start that ended so end the same way again? */
bool bt_exit_is_final(int code);

#endif
