/* SPDX-License-Identifier: Apache-2.0 */
/** @file rank_link.h
 *
 * What rank 0 and another rank of its instance say to each other beside the
 * compute threads (plane.h, follow.h): frames on a stream socket.
 *
 *     kind u32 │ bytes u32 │ id u64 │ payload        both run the same program
 *
 * A rank that does not take its frames within BT_RANK_LINK_WAIT_MS, that says
 * nothing for too long, or that closes its end, is lost, and the instance with
 * it.
 *
 * Threads: the control thread.
 */
#ifndef BT_WORKER_RANK_LINK_H
#define BT_WORKER_RANK_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/core_wait.h"
#include "common/base/strbuf.h"

#define BT_RANK_LINK_WAIT_MS   3000
#define BT_RANK_LINK_MAX_BYTES (16u << 20) /**< of a frame */

typedef enum bt_rank_kind {
    BT_RANK_BEAT = 0, /**< both, every heartbeat: I live */
    /* rank 0 asks */
    BT_RANK_PEER = 1,   /**< id: a peer; split, ranks */
    BT_RANK_PEER_GONE,  /**< id */
    BT_RANK_ADMIT,      /**< ranks: they may connect */
    BT_RANK_IN_OPEN,    /**< id: a lease; job, table */
    BT_RANK_IN_CLOSE,   /**< id */
    BT_RANK_OUT_BEGIN,  /**< id: a transfer; peer, job, windows */
    BT_RANK_OUT_POST,   /**< id; spans, layers, table */
    BT_RANK_OUT_FINISH, /**< id; note */
    BT_RANK_OUT_CANCEL, /**< id */
    /* the other answers */
    BT_RANK_EXPORT, /**< block bytes, blob */
    BT_RANK_OPENED, /**< id: a lease; status, windows */
    BT_RANK_EVENT,  /**< id: of what it is about; bt_lanes_event_t, note */
} bt_rank_kind_t;

typedef struct bt_rank_link {
    int fd;
    bool is_lost;
    bt_strbuf_t in;     /**< what came and is not taken */
    size_t taken;       /**< bytes of it */
    uint64_t beat_ms;   /**< when we said so last */
    uint64_t looked_ms; /**< bt_rank_link_beat() */
    uint64_t silent_ms;
    pid_t pid;           /**< the other's, on this host; 0: not known */
    bt_core_wait_t wait; /**< of that process, while it is silent */
} bt_rank_link_t;

typedef struct bt_rank_frame {
    bt_rank_kind_t kind;
    uint64_t id;
    const uint8_t *data; /**< until the next call */
    size_t bytes;
} bt_rank_frame_t;

/** @param [in] fd  A connected stream socket; owned from now on. */
void bt_rank_link_init(bt_rank_link_t *link, int fd);
/** The other end is this process of this host: what it waits for a core is not
 *  its silence. */
void bt_rank_link_is_with(bt_rank_link_t *link, pid_t pid);
void bt_rank_link_fini(bt_rank_link_t *link);

/** All of it is with the kernel, or the link is lost. */
void bt_rank_link_send(bt_rank_link_t *link, bt_rank_kind_t kind, uint64_t id,
                       const bt_strbuf_t *payload);
/** @return false: no whole frame is there */
bool bt_rank_link_next(bt_rank_link_t *link, bt_rank_frame_t *frame_p);

/**
 * Say that we live, where it is time to, and see whether the other does: one
 * that says nothing for @a dead_ms is lost. What time passed unseen, because
 * this process was stopped itself, counts as an eighth of that at most.
 */
void bt_rank_link_beat(bt_rank_link_t *link, uint64_t now_ms,
                       uint32_t heartbeat_ms, uint32_t dead_ms);

/** The payload of a frame, from its begin on. */
typedef struct bt_rank_reader {
    const uint8_t *data;
    size_t left;
    bool is_short; /**< something was not there, and read as zeros */
} bt_rank_reader_t;

static inline bt_rank_reader_t bt_rank_reader(const bt_rank_frame_t *frame)
{
    return (bt_rank_reader_t){.data = frame->data, .left = frame->bytes};
}
void bt_rank_read(bt_rank_reader_t *reader, void *out, size_t bytes);
/** Bytes in place; NULL: they are not there. */
const void *bt_rank_read_bytes(bt_rank_reader_t *reader, size_t bytes);

#endif
