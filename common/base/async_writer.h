/* SPDX-License-Identifier: Apache-2.0 */
/** @file async_writer.h
 *
 * Lines for a descriptor whose reader may be slow or stopped (a pipe to a
 * pager, a terminal after Ctrl-S), or for a disk. Who adds a line never waits.
 *
 *     add ─┬─ nothing waits ──▶ descriptor, as much as it takes at once
 *          └─ otherwise ──▶ memory ── thread of its own ──▶ descriptor
 *                             └─ full: the line is dropped and counted
 *
 * So a line is out when bt_async_writer_add() returns, whatever the process
 * dies of afterwards, unless the reader is behind. Where lines were dropped,
 * one that says how many stands in their place. With `by_thread` nothing goes
 * the upper way: for many lines, and for disks, which may be slow to take any.
 *
 * O_NONBLOCK belongs to what a descriptor leads to, which other processes may
 * have in common with us, so it is not touched: pipes and terminals are opened
 * anew through /proc. Where that is not allowed (a pipe of another user's) the
 * thread writes everything, and waits. Files are not opened anew, because their
 * offset is common too; they never wait for a reader.
 *
 * Threads: any may add. Not in a signal handler, nor in a forked child before
 * it executes another program.
 */
#ifndef BT_COMMON_BASE_ASYNC_WRITER_H
#define BT_COMMON_BASE_ASYNC_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct bt_async_writer bt_async_writer_t;

/** Makes the line that tells of @a n dropped ones, with its end; called by the
 *  writer's thread. @return bytes, at most @a cap */
typedef size_t (*bt_async_writer_report_fn)(uint64_t n, char *line, size_t cap);

typedef struct bt_async_writer_options {
    int fd;
    bool owns_fd; /**< closed with the writer, and where that cannot be opened;
                       else borrowed until then, or for ever where
                       bt_async_writer_close() says so */
    bool by_thread; /**< bt_async_writer_start() says when there is something to
                       do */
    size_t room;    /**< bytes of lines that may wait; twice that is taken */
    uint32_t retry_ms; /**< after an error (a full disk) try again; 0: what
                            waits is dropped */
    bt_async_writer_report_fn
        tell; /**< NULL: dropped lines are counted alone */
} bt_async_writer_options_t;

/**
 * @param [in] options  Copied.
 * @retval BT_ERR_NO_MEMORY
 * @retval BT_ERR_IO  No thread could be made.
 */
BT_MUST_CHECK bt_status_t bt_async_writer_open(
    const bt_async_writer_options_t *options, bt_async_writer_t **writer_p);

/** Whole lines. They go out together or not at all, except that a reader of a
 *  pipe may see other processes' lines in those beyond PIPE_BUF bytes. */
void bt_async_writer_add(bt_async_writer_t *writer, const char *lines,
                         size_t bytes);

/** The thread may begin with what was added; one system call at most. It does
 *  so by itself when half of the room is taken. */
void bt_async_writer_start(bt_async_writer_t *writer);

/** What is added from now on goes to @a fd, owned; so does what waits, where
 *  the old one does not take it: of a line whose beginning it has the rest is
 *  dropped. */
void bt_async_writer_reopen(bt_async_writer_t *writer, int fd);

/** Wait until all that was added is out; what met an error is tried once more.
 *  @return false when that took longer */
bool bt_async_writer_flush(bt_async_writer_t *writer, uint32_t timeout_ms);

/** So many lines were dropped so far. */
uint64_t bt_async_writer_dropped(bt_async_writer_t *writer);
/** Why what waits is not out yet: EAGAIN: its reader is behind; 0: it is going,
 *  or nothing waits. */
int bt_async_writer_fault(bt_async_writer_t *writer);
/** So many bytes are not out yet. */
size_t bt_async_writer_waiting(bt_async_writer_t *writer);

/** Waits for what was added so long at most; the rest is lost. A thread that
 *  waits in write() then is left behind, with @a writer and its descriptor; it
 *  ends with the write. NULL is allowed. */
void bt_async_writer_close(bt_async_writer_t *writer, uint32_t timeout_ms);

#endif
