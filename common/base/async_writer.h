/* SPDX-License-Identifier: Apache-2.0 */
/** @file async_writer.h
 *
 * Asynchronous writer of lines, for a descriptor whose reader may be slow or
 * stopped (a pipe to a pager, a terminal after Ctrl-S), or for a disk. Adding a
 * line never blocks.
 *
 *     add ─┬─ nothing queued ──▶ descriptor, as much as it takes at once
 *          └─ otherwise ──▶ memory ── the writer's thread ──▶ descriptor
 *                             └─ full: the line is dropped and counted
 *
 * So a line is written when bt_async_writer_add() returns, even if the process
 * dies right afterwards, unless the reader is behind. A line with the number of
 * dropped lines replaces those dropped. With `by_thread` nothing is written
 * directly: for many lines, and for disks, which may be slow to accept any.
 *
 * O_NONBLOCK belongs to the open file description, which other processes may
 * share, so it is not changed: pipes and terminals are reopened through /proc.
 * If that is not allowed (a pipe of another user) the thread writes everything,
 * and blocks. Files are not reopened, because their offset is shared too; they
 * never wait for a reader.
 *
 * Threads: any may add. Not in a signal handler, nor in a forked child before
 *          it executes another program.
 */
#ifndef BT_COMMON_BASE_ASYNC_WRITER_H
#define BT_COMMON_BASE_ASYNC_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct bt_async_writer bt_async_writer_t;

/** Formats the line that reports @a n dropped lines, with its newline;
 *  called by the writer's thread. @return bytes, at most @a cap */
typedef size_t (*bt_async_writer_report_fn)(uint64_t n, char *line, size_t cap);

typedef struct bt_async_writer_options {
    int fd;
    bool owns_fd;      /**< closed with the writer, and if opening fails;
                            otherwise borrowed until then, or permanently if
                            bt_async_writer_close() leaves it behind */
    bool by_thread;    /**< only the thread writes, after
                            bt_async_writer_start() */
    size_t capacity;   /**< capacity for queued lines in bytes; twice that is
                        allocated */
    uint32_t retry_ms; /**< interval of retries after an error (a full disk);
                            0: queued lines are dropped */
    bt_async_writer_report_fn tell; /**< NULL: dropped lines are only counted */
} bt_async_writer_options_t;

/**
 * Opens a writer.
 * @param [in] options  Copied.
 * @retval BT_ERR_NO_MEMORY
 * @retval BT_ERR_IO  No thread could be created.
 */
BT_MUST_CHECK bt_status_t bt_async_writer_open(
    const bt_async_writer_options_t *options, bt_async_writer_t **writer_p);

/** Adds whole lines. They are written together or not at all, except that a
 *  reader of a pipe may see lines of other processes among those beyond
 *  PIPE_BUF bytes. */
void bt_async_writer_add(bt_async_writer_t *writer, const char *lines,
                         size_t bytes);

/** Lets the thread write what was added; at most one system call. Happens
 *  automatically when half of the capacity is used. */
void bt_async_writer_start(bt_async_writer_t *writer);

/** Redirects the writer to @a fd, owned; queued lines go there too if the
 *  old one does not accept them, and the rest of a partly written line is
 *  dropped. */
void bt_async_writer_reopen(bt_async_writer_t *writer, int fd);

/**
 * Waits until everything added is written; after an error it is tried once
 * more.
 * @return false when that took longer
 */
bool bt_async_writer_flush(bt_async_writer_t *writer, uint32_t timeout_ms);

typedef struct bt_async_writer_state {
    uint64_t n_dropped; /**< lines dropped so far */
    size_t n_waiting;   /**< bytes not written yet */
    int fault;          /**< why queued lines are not written yet: EAGAIN: the
                             reader is behind; 0: writing, or nothing is
                             queued */
} bt_async_writer_state_t;

bt_async_writer_state_t bt_async_writer_state(bt_async_writer_t *writer);

/**
 * Closes the writer after waiting for queued lines, at most timeout_ms; the
 * rest is lost. A thread that still blocks in write() then is left behind, with
 * @a writer and its descriptor, until the write returns. NULL is allowed.
 */
void bt_async_writer_close(bt_async_writer_t *writer, uint32_t timeout_ms);

#endif
