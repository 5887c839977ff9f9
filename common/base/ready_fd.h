/* SPDX-License-Identifier: Apache-2.0 */
/** @file ready_fd.h
 *
 * Readiness notification of a program to the process that started it: lines of
 * text written to the descriptor that BATON_READY_FD names, the last of them
 * `ready`. launcher/health.h defines the lines.
 *
 * The program keeps the descriptor in an int, -1 if no notification was
 * requested. No failure here stops a program: a warning is logged, and no more
 * is written. SIGPIPE must be ignored. One thread.
 */
#ifndef BT_COMMON_BASE_READY_FD_H
#define BT_COMMON_BASE_READY_FD_H

/** Returns the descriptor that the environment names, owned by the caller,
 *  or -1 when it names none. Warns about a value that is no number from 3
 *  on. */
int bt_ready_fd_open(void);

/** Writes @a text, whole lines of at most PIPE_BUF bytes. On failure the
 *  descriptor is closed and set to -1. */
void bt_ready_fd_say(int *fd, const char *text);

/** Closes the descriptor, also when it is -1 already. */
void bt_ready_fd_close(int *fd);

#endif
