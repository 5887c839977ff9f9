/* SPDX-License-Identifier: Apache-2.0 */
/** @file rpc_pipe.h
 *
 * Private to common/rpc: one connection that carries whole messages, over a
 * byte stream of nng, in the format of nng's own sockets (rpc_sp.h).
 *
 *     dial ───┐
 *             ├─▶ greetings ─▶ on_open ─▶ on_message … ─▶ on_end
 *     accept ─┘       │
 *        ▲            │ a stranger's, none in time,
 *        └────────────┘ or somebody else calls before
 *
 * A pair0 socket does the same, and in nng 1.5 cannot be used: when its pipe
 * is closed between two parts of a message, which a failed send does at any
 * time, the rest is submitted on an aio that is stopped already and completes
 * nothing. nng's one reaper then waits for ever: no end of any connection is
 * told in that process any more, and each nng_close() hangs. A byte stream has
 * one aio for each direction and nothing above it, so it always ends.
 *
 * Threads: on_open, on_message, on_sent and on_end are called by nng's threads,
 * or from bt_rpc_pipe_resume(); no lock of the pipe is held. None comes after
 * bt_rpc_pipe_free().
 */
#ifndef BT_COMMON_RPC_RPC_PIPE_H
#define BT_COMMON_RPC_RPC_PIPE_H

#include <stdbool.h>
#include <stddef.h>

#include <nng/nng.h>

#include "common/base/status.h"
#include "common/rpc/rpc_sp.h"

typedef struct rpc_pipe rpc_pipe_t;

typedef struct rpc_pipe_ops {
    rpc_sp_protocol_t ours, theirs;
    /** Both have greeted: messages may be sent. */
    void (*on_open)(void *ctx);
    /** Owns msg. @return false: no more before bt_rpc_pipe_resume() */
    bool (*on_message)(void *ctx, nng_msg *msg);
    /** Another message may be sent. */
    void (*on_sent)(void *ctx);
    /** Nothing comes any more; once. */
    void (*on_end)(void *ctx);
} rpc_pipe_ops_t;

/** @param max_bytes  a longer message ends the pipe */
BT_MUST_CHECK bt_status_t bt_rpc_pipe_create(const rpc_pipe_ops_t *ops,
                                             void *ctx, size_t max_bytes,
                                             rpc_pipe_t **pipe_p);
/** Waits for callbacks that run; not to be called by one. NULL is allowed. */
void bt_rpc_pipe_free(rpc_pipe_t *pipe);

/** Take one peer at ipc://PATH or tcp://HOST:PORT; once for a pipe, and not
 *  with a dial.
 *  @param [out] port_p  for tcp, the real one; otherwise untouched
 *  @retval BT_ERR_IO, BT_ERR_NO_MEMORY  logged */
BT_MUST_CHECK bt_status_t bt_rpc_pipe_listen(rpc_pipe_t *pipe, const char *url,
                                             int *port_p);
/** Never blocks; nobody there is an on_end. @retval as above */
BT_MUST_CHECK bt_status_t bt_rpc_pipe_dial(rpc_pipe_t *pipe, const char *url);

/** After an on_message that returned false. */
void bt_rpc_pipe_resume(rpc_pipe_t *pipe);

/** After a false, on_open or on_sent says when to ask again. */
bool bt_rpc_pipe_can_send(rpc_pipe_t *pipe);
/** By one thread. @return false when it cannot send; otherwise it owns msg */
bool bt_rpc_pipe_send(rpc_pipe_t *pipe, nng_msg *msg);

#endif
