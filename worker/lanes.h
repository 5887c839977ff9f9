/* SPDX-License-Identifier: Apache-2.0 */
/** @file lanes.h
 *
 * KV transfers of one rank: each has one receive window or transfer per lane
 * (kv_route.h), that is per peer rank. All lanes of a transfer begin, end and
 * fail together.
 *
 *     rank of the receiver                      rank of a sender
 *     bt_lanes_in_open ── windows ──(plane.h)──▶ bt_lanes_out_begin
 *       one per sender rank                       one per receiver rank
 *                      ◀══════ pieces ═══════    bt_lanes_out_post …
 *     IN_DONE          ◀────── manifests ────    bt_lanes_out_finish
 *     bt_lanes_in_close                          OUT_DONE
 *     IN_CLOSED
 *
 * IN_DONE follows when the windows of all lanes are verified, IN_FAILED when
 * the first one fails, IN_CLOSED when no peer can write to any of them.
 * OUT_DONE follows when all transfers have ended, with the status of the first
 * one that failed.
 *
 * Between instances of one rank each there is one lane: a plain kvt.h
 * transfer.
 *
 * Threads: the control thread.
 */
#ifndef BT_WORKER_LANES_H
#define BT_WORKER_LANES_H

#include "common/kv/kv_route.h"
#include "common/wire/wire.h"
#include "kvtransfer/kvt.h"

typedef struct bt_lanes bt_lanes_t;
typedef struct bt_lanes_peer bt_lanes_peer_t; /**< an instance to send to */
typedef struct bt_lanes_in bt_lanes_in_t;
typedef struct bt_lanes_out bt_lanes_out_t;

typedef struct bt_lanes_config {
    bt_kvt_t *kvt; /**< borrowed */
    const bt_kv_groups_t
        *groups; /**< layer groups of the whole model; borrowed */
    const bt_kv_groups_t
        *own;            /**< layer groups of this rank's share; borrowed */
    bt_kv_split_t split; /**< how this instance splits the model */
    uint32_t rank;       /**< this rank in the instance */
    uint8_t *base;       /**< base address of this rank's pool */
} bt_lanes_config_t;

/** KV of one sequence to transfer. */
typedef struct bt_lanes_job {
    uint64_t instance;    /**< the other instance */
    bt_kv_split_t theirs; /**< how the other instance splits the model */
    uint32_t n_tokens;    /**< tokens that have K and V */
    uint32_t n_cached;    /**< leading spans that the receiver already has */
} bt_lanes_job_t;

typedef enum bt_lanes_event_type {
    BT_LANES_IN_DONE,
    BT_LANES_IN_FAILED,
    BT_LANES_IN_CLOSED, /**< the handle is invalid afterwards */
    BT_LANES_OUT_DONE,  /**< the handle is invalid afterwards */
    BT_LANES_PEER_LOST,
    BT_LANES_PEER_UP, /**< the peer has answered on all lanes */
    BT_LANES_STUCK,   /**< BT_KVT_QUARANTINE_STUCK */
} bt_lanes_event_type_t;

typedef struct bt_lanes_event {
    bt_lanes_event_type_t type;
    bt_status_t status;
    void *user; /**< user pointer of the transfer or peer */
    /** IN_DONE: the note of the first lane's sender; valid until IN_CLOSED. */
    const void *note;
    size_t note_bytes;
    uint64_t elapsed_us; /**< IN_DONE: time of the longest lane */
    uint64_t arrived_us; /**< IN_DONE: arrival of the last lane */
    uint64_t bytes;      /**< IN_DONE, OUT_DONE: sum of all lanes */
    uint32_t n_descriptors;
    int32_t pid;
    const char *at, *why; /**< PEER_LOST: see bt_kvt_event_t */
} bt_lanes_event_t;

/** Returns the instance id of a rank's process, as in bt_kvt_config_t.instance.
 */
static inline uint64_t bt_lanes_instance(uint64_t instance, uint32_t rank)
{
    return instance + rank;
}

/** Creates the lanes of this rank.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_lanes_open(const bt_lanes_config_t *config,
                                        bt_lanes_t **lanes_p);
/** Frees the lanes. Call after the kvt was closed. NULL is allowed. */
void bt_lanes_close(bt_lanes_t *lanes);

/** Returns the number of the model's layer groups: block ids per span. */
uint32_t bt_lanes_n_groups(const bt_lanes_t *lanes);

/** Converts a kvt event to an event of the transfer it belongs to.
 *  @return false: no event for the caller yet */
bool bt_lanes_take(const bt_kvt_event_t *event, bt_lanes_event_t *event_p);

/** Returns the route to an instance that splits the model as @a theirs.
 *  @param [out] route_p  Lives as long as @a lanes.
 *  @retval BT_ERR_INVALID_PARAM  the model cannot be split like that
 *  @retval BT_ERR_UNSUPPORTED, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_lanes_route(bt_lanes_t *lanes, bt_kv_end_t end,
                                         bt_kv_split_t theirs,
                                         const bt_kv_route_t **route_p);

/* ---- receiving ---- */

/**
 * Opens a receive window for each lane.
 *
 * @param [in]  lease       Never used before here.
 * @param [in]  table       The receiver's block ids: bt_kv_groups_t ids of
 *                          n_spans spans.
 * @param [out] windows     BT_WIRE_MAX_RANKS entries; their blobs are valid
 *                          until the next call.
 * @param [out] in_p        Valid until IN_CLOSED.
 * @retval  any of bt_lanes_route(), bt_kvt_window_open()
 */
BT_MUST_CHECK bt_status_t
bt_lanes_in_open(bt_lanes_t *lanes, uint64_t lease, uint32_t generation,
                 const bt_lanes_job_t *job, const uint32_t *table,
                 uint32_t n_spans, void *user, bt_wire_window_t *windows,
                 uint32_t *n_windows_p, bt_lanes_in_t **in_p);
/** Closes the windows. IN_CLOSED follows. */
void bt_lanes_in_close(bt_lanes_in_t *in);

/* ---- sending ---- */

/**
 * Connects to the ranks of an instance that this rank sends to.
 *
 * @param [in] ranks  All ranks of that instance.
 * @retval  any of bt_lanes_route(), bt_kvt_import()
 */
BT_MUST_CHECK bt_status_t bt_lanes_connect(bt_lanes_t *lanes,
                                           bt_kv_split_t theirs,
                                           const bt_wire_rank_t *ranks,
                                           uint32_t n_ranks, void *user,
                                           bt_lanes_peer_t **peer_p);
void bt_lanes_disconnect(bt_lanes_peer_t *peer); /**< NULL is allowed. */
/** Returns the path of the peer's first lane; see bt_kvt_peer_path(). */
const char *bt_lanes_path(const bt_lanes_peer_t *peer);

/**
 * Begins a transfer into each window of the grant that is for this rank.
 *
 * @retval BT_ERR_MISMATCH  the windows do not match our lanes in number, ranks
 *                          or size
 * @retval  any of bt_kvt_prep(), BT_ERR_NO_MEMORY; nothing was begun
 */
BT_MUST_CHECK bt_status_t bt_lanes_out_begin(bt_lanes_peer_t *peer,
                                             const bt_lanes_job_t *job,
                                             const bt_wire_window_t *windows,
                                             uint32_t n_windows, void *user,
                                             bt_lanes_out_t **out_p);
/**
 * Posts layers [from, to) of the model for spans [first, end), as far as this
 * rank holds them. The last layer of a block also carries the data behind it.
 * @param [in] table  Block ids from span 0 on; entries before span @a first are
 *                    not read.
 * @retval  any of bt_kvt_post()
 */
BT_MUST_CHECK bt_status_t bt_lanes_out_post(bt_lanes_out_t *out,
                                            const uint32_t *table,
                                            uint32_t first, uint32_t end,
                                            uint32_t from, uint32_t to);
/** Ends a transfer with its manifest and @a note.
 *  @retval  any of bt_kvt_finish() */
BT_MUST_CHECK bt_status_t bt_lanes_out_finish(bt_lanes_out_t *out,
                                              const void *note,
                                              size_t note_bytes);
/** Cancels a transfer. OUT_DONE follows. */
void bt_lanes_out_cancel(bt_lanes_out_t *out);

#endif
