/* SPDX-License-Identifier: Apache-2.0 */
/** @file plane.h
 *
 * The hand-overs of an instance: those of all its ranks (lanes.h) as one.
 *
 *     handlers ─ bt_plane_in_open ─┬─ lanes of rank 0
 *                                  └─ IN_OPEN ─▶ rank 1: its lanes
 *              ◀──── OPENED ───────┬─ windows of rank 0
 *                                  └─ OPENED ◀─ rank 1: its windows
 *
 * What takes all ranks has happened when it has at all: OPENED, IN_DONE,
 * IN_CLOSED, OUT_DONE; what fails anywhere has failed. Of an instance of one
 * rank all is done at once, and OPENED never comes: bt_plane_in_open() returns
 * the windows.
 *
 * Rank 0 has a plane, the others follow (follow.h).
 *
 * Threads: the control thread.
 */
#ifndef BT_WORKER_PLANE_H
#define BT_WORKER_PLANE_H

#include "worker/lanes.h"
#include "worker/rank_link.h"

#define BT_PLANE_TEXT_BYTES 160u

typedef struct bt_plane bt_plane_t;
typedef struct bt_plane_peer bt_plane_peer_t;
typedef struct bt_plane_in bt_plane_in_t;
typedef struct bt_plane_out bt_plane_out_t;

typedef enum bt_plane_event_type {
    BT_PLANE_OPENED, /**< windows of all ranks; or a status, and then close it
                        next */
    BT_PLANE_IN_DONE,
    BT_PLANE_IN_FAILED,
    BT_PLANE_IN_CLOSED,
    BT_PLANE_OUT_DONE,
    BT_PLANE_PEER_LOST,
    BT_PLANE_PEER_UP, /**< it has answered to all ranks */
    BT_PLANE_STUCK,
} bt_plane_event_type_t;

typedef struct bt_plane_event {
    bt_plane_event_type_t type;
    bt_lanes_event_t lanes; /**< status, user and all else */
    const bt_wire_window_t *windows;
    uint32_t n_windows;
} bt_plane_event_t;

typedef struct bt_plane_config {
    bt_lanes_t *lanes;     /**< of this rank; borrowed */
    bt_rank_link_t *links; /**< to ranks 1 … n_others; borrowed */
    uint32_t n_others;
    uint32_t heartbeat_ms, dead_ms; /**< of those links */
    void (*on_event)(void *ctx, const bt_plane_event_t *event);
    void *ctx;
} bt_plane_config_t;

/** @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_plane_open(const bt_plane_config_t *config,
                                        bt_plane_t **plane_p);
/** Before the kvt is closed. NULL is allowed. */
void bt_plane_close(bt_plane_t *plane);

/**
 * What others need to send to a rank, which it says once, when it has its pool:
 * wait for it.
 * @param [out] rank_p  Its blob is good as long as the plane.
 * @retval BT_ERR_PEER_LOST  it ended
 */
BT_MUST_CHECK bt_status_t bt_plane_await_export(bt_plane_t *plane,
                                                uint32_t rank,
                                                bt_wire_rank_t *rank_p);
/** Of this rank's kvt; calls on_event(). */
void bt_plane_take_kvt(bt_plane_t *plane, const bt_kvt_event_t *event);
/** What the other ranks say. @return false: one of them is lost, and so is the
 *  instance */
bool bt_plane_take_ranks(bt_plane_t *plane);

/** To wait for: links to other ranks. */
uint32_t bt_plane_n_links(const bt_plane_t *plane);
int bt_plane_link_fd(const bt_plane_t *plane, uint32_t i);

/** These ranks of a sender may connect to ours. */
void bt_plane_admit(bt_plane_t *plane, const bt_wire_rank_t *ranks,
                    uint32_t n_ranks);

/**
 * Windows for all pairs of ranks; as bt_lanes_in_open().
 * @retval BT_OK          the windows are in windows, good until the next call
 * @retval BT_INPROGRESS  OPENED follows
 */
BT_MUST_CHECK bt_status_t bt_plane_in_open(
    bt_plane_t *plane, uint64_t lease, uint32_t generation,
    const bt_lanes_job_t *job, const uint32_t *table, uint32_t n_spans,
    void *user, const bt_wire_window_t **windows_p, uint32_t *n_windows_p,
    bt_plane_in_t **in_p);
/** IN_CLOSED follows. */
void bt_plane_in_close(bt_plane_in_t *in);

/** Connect to an instance; as bt_lanes_connect(). */
BT_MUST_CHECK bt_status_t bt_plane_connect(bt_plane_t *plane,
                                           bt_kv_split_t theirs,
                                           const bt_wire_rank_t *ranks,
                                           uint32_t n_ranks, void *user,
                                           bt_plane_peer_t **peer_p);
void bt_plane_disconnect(bt_plane_peer_t *peer); /**< NULL is allowed. */
const char *bt_plane_path(const bt_plane_peer_t *peer);

/** As bt_lanes_out_begin() and so on; what another rank fails is told by
 *  OUT_DONE. */
BT_MUST_CHECK bt_status_t bt_plane_out_begin(bt_plane_peer_t *peer,
                                             const bt_lanes_job_t *job,
                                             const bt_wire_window_t *windows,
                                             uint32_t n_windows, void *user,
                                             bt_plane_out_t **out_p);
BT_MUST_CHECK bt_status_t bt_plane_out_post(bt_plane_out_t *out,
                                            const uint32_t *table,
                                            uint32_t first, uint32_t end,
                                            uint32_t from, uint32_t to);
BT_MUST_CHECK bt_status_t bt_plane_out_finish(bt_plane_out_t *out,
                                              const void *note,
                                              size_t note_bytes);
void bt_plane_out_cancel(bt_plane_out_t *out);

/* What both sides put into frames. */

void bt_plane_put_ranks(bt_strbuf_t *out, const bt_wire_rank_t *ranks,
                        uint32_t n);
/** @return how many, at most BT_WIRE_MAX_RANKS; blobs in place */
uint32_t bt_plane_read_ranks(bt_rank_reader_t *reader, bt_wire_rank_t *ranks);
void bt_plane_put_windows(bt_strbuf_t *out, const bt_wire_window_t *windows,
                          uint32_t n);
/** NULL: as "". What is longer than BT_PLANE_TEXT_BYTES is cut. */
void bt_plane_put_text(bt_strbuf_t *out, const char *text);
uint32_t bt_plane_read_windows(bt_rank_reader_t *reader,
                               bt_wire_window_t *windows, uint32_t max);

#endif
