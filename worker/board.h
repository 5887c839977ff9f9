/* SPDX-License-Identifier: Apache-2.0 */
/** @file board.h
 *
 * What workers of one host tell each other about their cores: a file in the
 * launcher's run directory, mapped by all of them, with a word for each core of
 * the host. Who computes on others' cores while these are idle writes there
 * until when it wants them altogether (common/sched/sched_core_donation.h); who
 * owns the core reads it. A word runs out by itself, so nothing has to be
 * undone for a process that dies.
 *
 * Words are only hints: whatever stands there costs its reader some time,
 * within the bounds of sched_core_donation.h.
 *
 * Threads: open and close by the owner; the rest by the compute thread alone.
 */
#ifndef BT_WORKER_BOARD_H
#define BT_WORKER_BOARD_H

#include <stdint.h>

#include "common/base/status.h"

typedef struct bt_board bt_board_t;

/**
 * @param [in] dir         The run directory.
 * @param [in] own         Cores of this worker, n_own of them, each below
 *                         BT_MAX_CORES.
 * @param [in] lent        Cores of others.
 * @param [out] board_p
 * @retval BT_ERR_NO_MEMORY, BT_ERR_IO
 */
BT_MUST_CHECK bt_status_t bt_board_open(const char *dir, const uint32_t *own,
                                        uint32_t n_own, const uint32_t *lent,
                                        uint32_t n_lent, bt_board_t **board_p);
/** NULL is allowed. */
void bt_board_close(bt_board_t *board);

/** @a board is a bt_board_t: all lent cores are wanted until then, by
 *  bt_now_ns(); 0: not any more. No system call. */
void bt_board_want(void *board, uint64_t until_ns);
/** Until when somebody wants one of the own cores; 0, or in the past: nobody
 *  does. No system call. */
uint64_t bt_board_wanted(void *board);

#endif
