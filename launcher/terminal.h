/* SPDX-License-Identifier: Apache-2.0 */
/** @file terminal.h
 *
 * SIGHUP is the kernel's or a shell's word that the terminal is gone, or
 * somebody's wish that the logs are opened anew: the terminal itself tells
 * which.
 */
#ifndef BT_LAUNCHER_TERMINAL_H
#define BT_LAUNCHER_TERMINAL_H

#include <stdbool.h>

/** Is there one to lose? Before SIGHUP is blocked or handled: who started us
 *  with it ignored (nohup) wants us to stay. */
bool bt_terminal_is_ours(void);

/** Is the one that was there gone? */
bool bt_terminal_is_gone(void);

#endif
