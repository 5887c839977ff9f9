/* SPDX-License-Identifier: Apache-2.0 */
/** @file ready_fd.h
 *
 * The word of a program to whoever started it: lines of text written to the
 * descriptor that BATON_READY_FD names, the last of them `ready`. What the
 * lines are is in launcher/ready.h.
 *
 * Whoever opened it keeps the descriptor in an int, -1 for nobody asks. No
 * failure here stops a program: it is warned about, and nothing more is said.
 * SIGPIPE must be ignored. One thread.
 */
#ifndef BT_COMMON_BASE_READY_FD_H
#define BT_COMMON_BASE_READY_FD_H

/** @return the descriptor that the environment names, owned by the caller, or
 *  -1 when it names none. A value that is no number from 3 on is warned
 *  about. */
int bt_ready_fd_open(void);

/** Write @a text, whole lines of at most PIPE_BUF bytes. When that fails the
 *  descriptor is closed and -1. */
void bt_ready_fd_say(int *fd, const char *text);

/** Close it, also when it is -1 already. */
void bt_ready_fd_close(int *fd);

#endif
