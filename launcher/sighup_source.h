/* SPDX-License-Identifier: Apache-2.0 */
/** @file sighup_source.h
 *
 * Meaning of a SIGHUP: the terminal is gone (from the kernel or a shell), or
 * the logs are to be opened anew. The state of the terminal decides.
 */
#ifndef BT_LAUNCHER_SIGHUP_SOURCE_H
#define BT_LAUNCHER_SIGHUP_SOURCE_H

#include <stdbool.h>

/** True when there is a terminal whose loss is to end the launch. Call before
 *  SIGHUP is blocked or handled: if it is ignored at the start (nohup), the
 *  launch is to stay. */
bool bt_terminal_is_ours(void);

/** True when the terminal of the start is gone. */
bool bt_terminal_is_gone(void);

#endif
