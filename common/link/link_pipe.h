/* SPDX-License-Identifier: Apache-2.0 */
/** @file link_pipe.h
 *
 * Private to common/link: one connection for whole frames, over a byte stream
 * of nng. Each frame follows its length in 4 bytes, little endian.
 *
 *     dial ──▶ CONNECTING ──┐
 *                           ├─▶ OPEN ─▶ on_frame … ─▶ ENDED
 *     accepted stream ──────┘
 *
 * Sockets of nng 1.5 cannot be used (docs/adr/0011, 0023): when a pipe is
 * closed between two parts of a message, which a failed send does at any time,
 * the rest is submitted on an aio that is stopped already and never completes;
 * and a listener stops accepting when a peer hangs up in the negotiation. A
 * byte stream has one aio for each direction and nothing above it, so it always
 * ends.
 *
 * Threads: the callbacks are called by nng's threads, or from
 *          bt_link_pipe_resume(); no lock of the pipe is held. None is called
 *          after bt_link_pipe_free().
 */
#ifndef BT_COMMON_LINK_LINK_PIPE_H
#define BT_COMMON_LINK_LINK_PIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <nng/nng.h>

#include "common/base/status.h"

typedef struct link_pipe link_pipe_t;

/** Callbacks of a pipe. */
typedef struct link_pipe_ops {
    /** Callback with a frame, which takes ownership of msg. @return false: no
     *  more before bt_link_pipe_resume() */
    bool (*on_frame)(void *ctx, nng_msg *msg);
    /** Callback when bt_link_pipe_state() has changed. */
    void (*on_change)(void *ctx);
    /** Callback when another frame may be sent. */
    void (*on_sent)(void *ctx);
} link_pipe_ops_t;

typedef enum link_pipe_state {
    LINK_PIPE_CONNECTING,
    LINK_PIPE_OPEN,  /* frames may be sent */
    LINK_PIPE_ENDED, /* nothing more arrives; everything received was
                       delivered */
} link_pipe_state_t;

/**
 * Creates a pipe.
 * @param max_bytes  a longer frame ends the pipe
 */
BT_MUST_CHECK bt_status_t bt_link_pipe_create(const link_pipe_ops_t *ops,
                                              void *ctx, size_t max_bytes,
                                              link_pipe_t **pipe_p);
/** Frees a pipe. Waits for running callbacks; must not be called by one.
 *  NULL is allowed. */
void bt_link_pipe_free(link_pipe_t *pipe);

/**
 * Dials ipc://PATH or tcp://HOST:PORT; once for a pipe. Never blocks; without
 * a listener there, the pipe ends.
 * @retval BT_ERR_IO, BT_ERR_NO_MEMORY  logged
 */
BT_MUST_CHECK bt_status_t bt_link_pipe_dial(link_pipe_t *pipe, const char *url);
/** Takes over an accepted stream; once for a pipe, and not with a dial. Nothing
 *  is read before bt_link_pipe_resume(). */
void bt_link_pipe_adopt(link_pipe_t *pipe, nng_stream *stream, bool is_ipc);

link_pipe_state_t bt_link_pipe_state(link_pipe_t *pipe);
/** Changes the length of the longest frame. */
void bt_link_pipe_allow(link_pipe_t *pipe, size_t max_bytes);
bool bt_link_pipe_is_ipc(const link_pipe_t *pipe);
/** Returns the process at the other end of an open ipc pipe; 0: not ipc, or
 *  that process has no number here (pid namespaces). */
pid_t bt_link_pipe_peer(link_pipe_t *pipe);
/** Returns both addresses. @return false: not open, or not tcp */
bool bt_link_pipe_addresses(link_pipe_t *pipe, nng_sockaddr *local_p,
                            nng_sockaddr *remote_p);

/** Resumes delivery after an on_frame that returned false. */
void bt_link_pipe_resume(link_pipe_t *pipe);

/** True when a frame can be sent. After false, on_change or on_sent signals
 *  when to ask again. */
bool bt_link_pipe_can_send(link_pipe_t *pipe);
/** Sends a frame. For one thread. @return false when it cannot send; otherwise
 *  the pipe owns msg */
bool bt_link_pipe_send(link_pipe_t *pipe, nng_msg *msg);

#endif
