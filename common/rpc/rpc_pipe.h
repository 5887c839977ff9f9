/* SPDX-License-Identifier: Apache-2.0 */
/** @file rpc_pipe.h
 *
 * Private to common/rpc: one connection that carries whole messages, over a
 * byte stream of nng, in the format of nng's own sockets (rpc_sp.h).
 *
 *     dial ───┐
 *             ├─▶ greetings ─▶ OPEN ─▶ on_message … ─▶ ENDED
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
 * Threads: the callbacks are called by nng's threads, or from
 * bt_rpc_pipe_resume(); no lock of the pipe is held. None comes after
 * bt_rpc_pipe_free().
 */
#ifndef BT_COMMON_RPC_RPC_PIPE_H
#define BT_COMMON_RPC_RPC_PIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <nng/nng.h>

#include "common/base/status.h"
#include "common/rpc/rpc_sp.h"

typedef struct rpc_pipe rpc_pipe_t;

typedef struct rpc_pipe_ops {
    rpc_sp_protocol_t ours, theirs;
    /** Owns msg. @return false: no more before bt_rpc_pipe_resume() */
    bool (*on_message)(void *ctx, nng_msg *msg);
    /** bt_rpc_pipe_state() is another one. May be NULL, as on_sent. */
    void (*on_change)(void *ctx);
    /** Another message may be sent. */
    void (*on_sent)(void *ctx);
} rpc_pipe_ops_t;

typedef enum rpc_pipe_state {
    RPC_PIPE_CONNECTING,
    RPC_PIPE_OPEN,  /* both have greeted: messages may be sent */
    RPC_PIPE_ENDED, /* nothing comes any more; all that came was told */
} rpc_pipe_state_t;

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
/** Never blocks; where nobody is, the pipe ends. @retval as above */
BT_MUST_CHECK bt_status_t bt_rpc_pipe_dial(rpc_pipe_t *pipe, const char *url);

rpc_pipe_state_t bt_rpc_pipe_state(rpc_pipe_t *pipe);

/** @return the process at the other end of an open pipe over ipc; 0: it is not
 *  over ipc, or that process has no number here (proc namespaces) */
pid_t bt_rpc_pipe_peer(rpc_pipe_t *pipe);
/** @return false: it is not open, or not over tcp */
bool bt_rpc_pipe_addresses(rpc_pipe_t *pipe, nng_sockaddr *local_p,
                           nng_sockaddr *remote_p);

/** After an on_message that returned false. */
void bt_rpc_pipe_resume(rpc_pipe_t *pipe);

/** After a false, on_change or on_sent says when to ask again. */
bool bt_rpc_pipe_can_send(rpc_pipe_t *pipe);
/** By one thread. @return false when it cannot send; otherwise it owns msg */
bool bt_rpc_pipe_send(rpc_pipe_t *pipe, nng_msg *msg);

#endif
