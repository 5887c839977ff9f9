/* SPDX-License-Identifier: Apache-2.0 */
/** @file lanes.h
 *
 * What one rank does of its instance's hand-overs: a window or a transfer for
 * each lane (kv_route.h), which begin, end and fail together.
 *
 *     rank of the receiver                      rank of a sender
 *     bt_lanes_in_open ── windows ──(plane.h)──▶ bt_lanes_out_begin
 *       one of each sender's rank                 one to each receiver's rank
 *                      ◀══════ pieces ═══════    bt_lanes_out_post …
 *     IN_DONE          ◀────── manifests ────    bt_lanes_out_finish
 *     bt_lanes_in_close                          OUT_DONE
 *     IN_CLOSED
 *
 * IN_DONE when the windows of all lanes are proven, IN_FAILED with the first
 * that fails, IN_CLOSED when nobody can write to any of them; OUT_DONE when all
 * transfers have ended, with what the first of them to fail said.
 *
 * Between one rank and one there is one lane, and all this is kvt.h.
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
    bt_kvt_t *kvt;                /**< borrowed */
    const bt_kv_groups_t *groups; /**< of the whole model; borrowed */
    const bt_kv_groups_t *own;    /**< of this rank's share; borrowed */
    bt_kv_split_t split;          /**< of the model in this instance */
    uint32_t rank;                /**< in it */
    uint8_t *base;                /**< of this rank's pool */
} bt_lanes_config_t;

/** What a sequence hands over. */
typedef struct bt_lanes_job {
    uint64_t instance;    /**< the other one */
    bt_kv_split_t theirs; /**< how it splits the model */
    uint32_t n_tokens;    /**< that have K and V */
    uint32_t n_cached;    /**< leading spans that the receiver has */
} bt_lanes_job_t;

typedef enum bt_lanes_event_type {
    BT_LANES_IN_DONE,
    BT_LANES_IN_FAILED,
    BT_LANES_IN_CLOSED, /**< the handle is gone after */
    BT_LANES_OUT_DONE,  /**< likewise */
    BT_LANES_PEER_LOST,
    BT_LANES_PEER_UP, /**< it has answered on all lanes */
    BT_LANES_STUCK,   /**< BT_KVT_QUARANTINE_STUCK */
} bt_lanes_event_type_t;

typedef struct bt_lanes_event {
    bt_lanes_event_type_t type;
    bt_status_t status;
    void *user; /**< of what it is about */
    /** IN_DONE: of the sender's rank that comes first; there until IN_CLOSED.
     */
    const void *note;
    size_t note_bytes;
    uint64_t elapsed_us; /**< IN_DONE: of the longest lane */
    uint64_t arrived_us; /**< IN_DONE: of the last one */
    uint64_t bytes;      /**< IN_DONE, OUT_DONE: of all */
    uint32_t n_descriptors;
    int32_t pid;
    const char *at, *why; /**< PEER_LOST: as bt_kvt_event_t has them */
} bt_lanes_event_t;

/** The process of a rank, as bt_kvt_config_t.instance. */
static inline uint64_t bt_lanes_instance(uint64_t instance, uint32_t rank)
{
    return instance + rank;
}

/** @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_lanes_open(const bt_lanes_config_t *config,
                                        bt_lanes_t **lanes_p);
/** After the kvt was closed. NULL is allowed. */
void bt_lanes_close(bt_lanes_t *lanes);

/** Of the model: ids of a span in a table. */
uint32_t bt_lanes_n_groups(const bt_lanes_t *lanes);

/** What a kvt event comes to for the hand-over that it is of.
 *  @return false: nothing yet */
bool bt_lanes_take(const bt_kvt_event_t *event, bt_lanes_event_t *event_p);

/** The way to an instance that splits the model so.
 *  @param [out] route_p  Lives as long as @a lanes.
 *  @retval BT_ERR_INVALID_PARAM  the model cannot be split like that
 *  @retval BT_ERR_UNSUPPORTED, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_lanes_route(bt_lanes_t *lanes, bt_kv_end_t end,
                                         bt_kv_split_t theirs,
                                         const bt_kv_route_t **route_p);

/* ---- receiving ---- */

/**
 * Open a window for each lane.
 *
 * @param [in]  lease       Never used before here.
 * @param [in]  table       bt_kv_groups_t ids of n_spans spans; the receiver's.
 * @param [out] windows     BT_WIRE_MAX_RANKS of them, with blobs that are good
 *                          until the next call.
 * @param [out] in_p        Until IN_CLOSED.
 * @retval  of bt_lanes_route(), bt_kvt_window_open()
 */
BT_MUST_CHECK bt_status_t
bt_lanes_in_open(bt_lanes_t *lanes, uint64_t lease, uint32_t generation,
                 const bt_lanes_job_t *job, const uint32_t *table,
                 uint32_t n_spans, void *user, bt_wire_window_t *windows,
                 uint32_t *n_windows_p, bt_lanes_in_t **in_p);
/** IN_CLOSED follows. */
void bt_lanes_in_close(bt_lanes_in_t *in);

/* ---- sending ---- */

/**
 * Connect to the ranks of an instance that this one has something for.
 *
 * @param [in] ranks  Of that instance, all.
 * @retval  of bt_lanes_route(), bt_kvt_import()
 */
BT_MUST_CHECK bt_status_t bt_lanes_connect(bt_lanes_t *lanes,
                                           bt_kv_split_t theirs,
                                           const bt_wire_rank_t *ranks,
                                           uint32_t n_ranks, void *user,
                                           bt_lanes_peer_t **peer_p);
void bt_lanes_disconnect(bt_lanes_peer_t *peer); /**< NULL is allowed. */
/** Of its first lane, as bt_kvt_peer_path(). */
const char *bt_lanes_path(const bt_lanes_peer_t *peer);

/**
 * Begin a transfer into each window of the grant that is from this rank.
 *
 * @retval BT_ERR_MISMATCH  the windows are not those of our lanes, or of
 *                          another size
 * @retval  of bt_kvt_prep(), BT_ERR_NO_MEMORY; nothing was begun
 */
BT_MUST_CHECK bt_status_t bt_lanes_out_begin(bt_lanes_peer_t *peer,
                                             const bt_lanes_job_t *job,
                                             const bt_wire_window_t *windows,
                                             uint32_t n_windows, void *user,
                                             bt_lanes_out_t **out_p);
/**
 * Of the spans [first, end) layers [from, to) of the model, as far as they are
 * this rank's; with the last layer of a block goes what lies behind it.
 * @param [in] table  From span 0 on; entries of spans before @a first are not
 *                    read.
 * @retval  of bt_kvt_post()
 */
BT_MUST_CHECK bt_status_t bt_lanes_out_post(bt_lanes_out_t *out,
                                            const uint32_t *table,
                                            uint32_t first, uint32_t end,
                                            uint32_t from, uint32_t to);
/** @retval  of bt_kvt_finish() */
BT_MUST_CHECK bt_status_t bt_lanes_out_finish(bt_lanes_out_t *out,
                                              const void *note,
                                              size_t note_bytes);
/** OUT_DONE follows. */
void bt_lanes_out_cancel(bt_lanes_out_t *out);

#endif
