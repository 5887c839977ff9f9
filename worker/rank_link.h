/* SPDX-License-Identifier: Apache-2.0 */
/** @file rank_link.h
 *
 * Link between rank 0 and another rank of its instance, beside the links of
 * the compute threads (transfer.h, start.h): frames on a stream socket.
 *
 *     kind u32 │ bytes u32 │ id u64 │ payload        both run the same program
 *
 * A rank that does not read its frames within BT_RANK_LINK_WAIT_MS, that is
 * silent for too long, or that closes its end, is lost, and the instance with
 * it.
 *
 * Threads: the control thread.
 */
#ifndef BT_WORKER_RANK_LINK_H
#define BT_WORKER_RANK_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/process.h"
#include "common/base/text.h"
#include "common/wire/wire.h"

#define BT_RANK_LINK_WAIT_MS   3000
#define BT_RANK_LINK_MAX_BYTES (16u << 20) /**< largest frame */

typedef enum bt_rank_kind {
    BT_RANK_BEAT = 0, /**< both directions, every heartbeat */
    /* from rank 0 */
    BT_RANK_PEER = 1,   /**< id: a peer; split, ranks */
    BT_RANK_PEER_GONE,  /**< id */
    BT_RANK_ADMIT,      /**< ranks that may connect */
    BT_RANK_IN_OPEN,    /**< id: a lease; job, table */
    BT_RANK_IN_CLOSE,   /**< id */
    BT_RANK_OUT_BEGIN,  /**< id: a transfer; peer, job, regions */
    BT_RANK_OUT_POST,   /**< id; spans, layers, table */
    BT_RANK_OUT_FINISH, /**< id; note */
    BT_RANK_OUT_CANCEL, /**< id */
    /* from the other rank */
    BT_RANK_EXPORT, /**< block bytes, blob */
    BT_RANK_OPENED, /**< id: a lease; status, regions */
    BT_RANK_EVENT,  /**< id: of the transfer or peer; bt_transfer_event_t,
                       note */
} bt_rank_kind_t;

typedef struct bt_rank_link {
    int fd;
    bool is_lost;
    bt_strbuf_t in;     /**< bytes received */
    size_t taken;       /**< bytes of in already returned */
    uint64_t beat_ms;   /**< when our last beat was sent */
    uint64_t looked_ms; /**< last call of bt_rank_link_beat() */
    uint64_t silent_ms;
    pid_t pid; /**< process at the other end, on this host; 0: not known */
    bt_core_wait_t wait; /**< CPU wait of pid, while it is silent */
} bt_rank_link_t;

typedef struct bt_rank_frame {
    bt_rank_kind_t kind;
    uint64_t id;
    const uint8_t *data; /**< valid until the next call */
    size_t bytes;
} bt_rank_frame_t;

/** Initialises a link. @param [in] fd A connected stream socket; owned from now
 *  on. */
void bt_rank_link_init(bt_rank_link_t *link, int fd);
/** Sets the process at the other end, on this host. Time that it spends waiting
 *  for a core does not count as silence. */
void bt_rank_link_is_with(bt_rank_link_t *link, pid_t pid);
void bt_rank_link_fini(bt_rank_link_t *link);

/** Sends a frame. Afterwards the kernel has all of it, or the link is lost. */
void bt_rank_link_send(bt_rank_link_t *link, bt_rank_kind_t kind, uint64_t id,
                       const bt_strbuf_t *payload);
/** Takes the next frame. @return false: no whole frame has arrived */
bool bt_rank_link_next(bt_rank_link_t *link, bt_rank_frame_t *frame_p);

/**
 * Sends a beat when due, and checks the other end: a peer silent for
 * @a dead_ms is lost. Time between two calls counts at most an eighth of that,
 * since this process may itself have been stopped.
 */
void bt_rank_link_beat(bt_rank_link_t *link, uint64_t now_ms,
                       uint32_t heartbeat_ms, uint32_t dead_ms);

/** Reader of a frame's payload, from its beginning on. */
typedef struct bt_rank_reader {
    const uint8_t *data;
    size_t left;
    bool is_short; /**< a read went past the end, and returned zeros */
} bt_rank_reader_t;

static inline bt_rank_reader_t bt_rank_reader(const bt_rank_frame_t *frame)
{
    return (bt_rank_reader_t){.data = frame->data, .left = frame->bytes};
}
void bt_rank_read(bt_rank_reader_t *reader, void *out, size_t bytes);

/* Fields of payloads. */

#define BT_RANK_TEXT_BYTES 160u

void bt_rank_put_ranks(bt_strbuf_t *out, const bt_wire_rank_t *ranks,
                       uint32_t n);
/** Reads a list of ranks. @return how many, at most BT_WIRE_MAX_RANKS; blobs
 *  point into the frame */
uint32_t bt_rank_read_ranks(bt_rank_reader_t *reader, bt_wire_rank_t *ranks);
void bt_rank_put_regions(bt_strbuf_t *out, const bt_wire_region_t *regions,
                         uint32_t n);
/** Reads a list of regions. @return how many, at most @a max; blobs point into
 *  the frame */
uint32_t bt_rank_read_regions(bt_rank_reader_t *reader,
                              bt_wire_region_t *regions, uint32_t max);
/** Appends a text; NULL counts as "". Text longer than BT_RANK_TEXT_BYTES is
 *  cut. */
void bt_rank_put_text(bt_strbuf_t *out, const char *text);
void bt_rank_read_text(bt_rank_reader_t *reader, char text[BT_RANK_TEXT_BYTES]);

#endif
