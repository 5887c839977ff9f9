/* SPDX-License-Identifier: Apache-2.0 */
/** @file rank_transfer.h
 *
 * KV transfers of one rank: one receive region or send for each rank of the
 * other instance with which this rank shares heads or layers (kv_route.h). All
 * parts of a transfer begin, end and fail together.
 *
 *     rank of the receiver                      rank of a sender
 *     bt_rank_transfer_in_open ─ regions ──────▶ bt_rank_transfer_out_begin
 *       one per sender rank       (transfer.h)    one per receiver rank
 *                      ◀══════ pieces ═══════    bt_rank_transfer_out_post …
 *     IN_DONE          ◀────── manifests ────    bt_rank_transfer_out_finish
 *     bt_rank_transfer_in_close                  OUT_DONE
 *     IN_CLOSED
 *
 * IN_DONE follows when all regions are verified, IN_FAILED when the first one
 * fails, IN_CLOSED when no peer can write to any of them. OUT_DONE follows when
 * all sends have ended, with the status of the first one that failed.
 *
 * Between instances of one rank each a transfer has one part: a plain kvt.h
 * transfer.
 *
 * Threads: the control thread.
 */
#ifndef BT_WORKER_RANK_TRANSFER_H
#define BT_WORKER_RANK_TRANSFER_H

#include "common/base/containers.h"
#include "common/kv/kv_route.h"
#include "common/wire/wire.h"
#include "kvtransfer/kvt.h"

typedef struct bt_rank_transfer bt_rank_transfer_t;
typedef struct bt_rank_transfer_peer
    bt_rank_transfer_peer_t; /**< an instance to send to */
typedef struct bt_rank_transfer_in bt_rank_transfer_in_t;
typedef struct bt_rank_transfer_out bt_rank_transfer_out_t;

typedef struct bt_rank_transfer_config {
    bt_kvt_t *kvt; /**< borrowed */
    const bt_kv_groups_t
        *groups; /**< layer groups of the whole model; borrowed */
    const bt_kv_groups_t
        *own;            /**< layer groups of this rank's share; borrowed */
    bt_kv_split_t split; /**< how this instance splits the model */
    uint32_t rank;       /**< this rank in the instance */
    uint8_t *base;       /**< base address of this rank's pool */
} bt_rank_transfer_config_t;

/** KV of one sequence to transfer. */
typedef struct bt_transfer_job {
    uint64_t instance;    /**< the other instance */
    bt_kv_split_t theirs; /**< how the other instance splits the model */
    uint32_t n_tokens;    /**< tokens that have K and V */
    uint32_t n_cached;    /**< leading spans that the receiver already has */
} bt_transfer_job_t;

typedef enum bt_transfer_event_type {
    BT_TRANSFER_OPENED, /**< coordinator only: regions of all ranks; or an
                           error status, and then close it next */
    BT_TRANSFER_IN_DONE,
    BT_TRANSFER_IN_FAILED,
    BT_TRANSFER_IN_CLOSED, /**< the handle is invalid afterwards */
    BT_TRANSFER_OUT_DONE,  /**< the handle is invalid afterwards */
    BT_TRANSFER_PEER_LOST,
    BT_TRANSFER_PEER_UP, /**< all ranks of the peer have answered */
    BT_TRANSFER_STUCK,   /**< BT_KVT_QUARANTINE_STUCK */
} bt_transfer_event_type_t;

typedef struct bt_transfer_event {
    bt_transfer_event_type_t type;
    bt_status_t status;
    void *user;  /**< user pointer of the transfer or peer */
    uint64_t id; /**< id of the transfer or peer; the lease of a receive */
    /** IN_DONE: the note of the first rank's sender; valid until IN_CLOSED. */
    const void *note;
    size_t note_bytes;
    uint64_t elapsed_us; /**< IN_DONE: time of the longest part */
    uint64_t arrived_us; /**< IN_DONE: arrival of the last part */
    uint64_t bytes;      /**< IN_DONE, OUT_DONE: sum of all parts */
    uint32_t n_descriptors;
    int32_t pid;
    const char *at, *why;            /**< PEER_LOST: see bt_kvt_event_t */
    const bt_wire_region_t *regions; /**< OPENED */
    uint32_t n_regions;
} bt_transfer_event_t;

/** State of a receive.
 *
 *     OPEN ──▶ FAILED ──▶ CLOSING ──▶ IN_CLOSED
 *      └─────────────────────▲
 *      └──▶ ABANDONED: its open failed, nothing is reported
 */
typedef enum bt_transfer_in_state {
    BT_TRANSFER_IN_STATE_OPEN,
    BT_TRANSFER_IN_STATE_FAILED, /**< IN_FAILED was reported */
    BT_TRANSFER_IN_STATE_CLOSING,
    BT_TRANSFER_IN_STATE_ABANDONED,
} bt_transfer_in_state_t;

/** State of a peer: CONNECTING ──▶ UP ──▶ LOST, or LOST at once. */
typedef enum bt_transfer_peer_state {
    BT_TRANSFER_PEER_STATE_CONNECTING,
    BT_TRANSFER_PEER_STATE_UP,   /**< PEER_UP was reported */
    BT_TRANSFER_PEER_STATE_LOST, /**< PEER_LOST was reported */
} bt_transfer_peer_state_t;

/** Returns the instance id of a rank's process, as in bt_kvt_config_t.instance.
 */
static inline uint64_t bt_rank_transfer_instance(uint64_t instance,
                                                 uint32_t rank)
{
    return instance + rank;
}

/** Creates the transfers of this rank.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_rank_transfer_open(
    const bt_rank_transfer_config_t *config, bt_rank_transfer_t **own_p);
/** Frees all transfers. Call after the kvt was closed. NULL is allowed. */
void bt_rank_transfer_close(bt_rank_transfer_t *own);

/** Returns the number of the model's layer groups: block ids per span. */
uint32_t bt_rank_transfer_n_groups(const bt_rank_transfer_t *own);

/** Converts a kvt event to an event of the transfer it belongs to.
 *  @return false: no event for the caller yet */
bool bt_rank_transfer_take(const bt_kvt_event_t *event,
                           bt_transfer_event_t *event_p);

/** Returns the route to an instance that splits the model as @a theirs.
 *  @param [out] route_p  Lives as long as @a own.
 *  @retval BT_ERR_INVALID_PARAM  the model cannot be split like that
 *  @retval BT_ERR_UNSUPPORTED, BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_rank_transfer_route(bt_rank_transfer_t *own,
                                                 bt_kv_end_t end,
                                                 bt_kv_split_t theirs,
                                                 const bt_kv_route_t **route_p);

/** Object in a list, found by its id; first member of it. */
typedef struct bt_transfer_object {
    bt_list_t link;
    uint64_t id;
} bt_transfer_object_t;

/** Finds an object of a list. @return NULL: there is none */
void *bt_transfer_find(const bt_list_t *list, uint64_t id);

/** Finds an open receive, an open send or a peer by its id.
 *  @return NULL: there is none, or it has ended */
bt_rank_transfer_in_t *bt_rank_transfer_find_in(bt_rank_transfer_t *own,
                                                uint64_t id);
bt_rank_transfer_out_t *bt_rank_transfer_find_out(bt_rank_transfer_t *own,
                                                  uint64_t id);
bt_rank_transfer_peer_t *bt_rank_transfer_find_peer(bt_rank_transfer_t *own,
                                                    uint64_t id);

/* ---- receiving ---- */

/**
 * Opens a receive region for each rank that sends to this one.
 *
 * @param [in]  lease       Never used before here; the id of the receive.
 * @param [in]  table       The receiver's block ids: bt_kv_groups_t ids of
 *                          n_spans spans.
 * @param [out] regions     BT_WIRE_MAX_RANKS entries; their blobs are valid
 *                          until the next call.
 * @param [out] in_p        Valid until IN_CLOSED.
 * @retval  any of bt_rank_transfer_route(), bt_kvt_region_open()
 */
BT_MUST_CHECK bt_status_t bt_rank_transfer_in_open(
    bt_rank_transfer_t *own, uint64_t lease, uint32_t generation,
    const bt_transfer_job_t *job, const uint32_t *table, uint32_t n_spans,
    void *user, bt_wire_region_t *regions, uint32_t *n_regions_p,
    bt_rank_transfer_in_t **in_p);
/** Closes the regions. IN_CLOSED follows. */
void bt_rank_transfer_in_close(bt_rank_transfer_in_t *in);

/* ---- sending ---- */

/**
 * Connects to the ranks of an instance that this rank sends to.
 *
 * @param [in] id     Never used before here.
 * @param [in] ranks  All ranks of that instance.
 * @retval  any of bt_rank_transfer_route(), bt_kvt_import()
 */
BT_MUST_CHECK bt_status_t bt_rank_transfer_connect(
    bt_rank_transfer_t *own, uint64_t id, bt_kv_split_t theirs,
    const bt_wire_rank_t *ranks, uint32_t n_ranks, void *user,
    bt_rank_transfer_peer_t **peer_p);
void bt_rank_transfer_disconnect(
    bt_rank_transfer_peer_t *peer); /**< NULL is allowed. */
/** Disconnects all peers, before the kvt is closed. */
void bt_rank_transfer_disconnect_all(bt_rank_transfer_t *own);
/** Returns the path to the peer's first rank; see bt_kvt_peer_path(). */
const char *bt_rank_transfer_path(const bt_rank_transfer_peer_t *peer);

/**
 * Begins a transfer into each region of the grant that is for this rank.
 *
 * @retval BT_ERR_MISMATCH  the regions do not match our route in number, ranks
 *                          or size
 * @retval  any of bt_kvt_prep(), BT_ERR_NO_MEMORY; nothing was begun
 */
BT_MUST_CHECK bt_status_t bt_rank_transfer_out_begin(
    bt_rank_transfer_peer_t *peer, uint64_t id, const bt_transfer_job_t *job,
    const bt_wire_region_t *regions, uint32_t n_regions, void *user,
    bt_rank_transfer_out_t **out_p);
/**
 * Posts layers [from, to) of the model for spans [first, end), as far as this
 * rank holds them. The last layer of a block also carries the data behind it.
 * @param [in] table  Block ids from span 0 on; entries before span @a first are
 *                    not read.
 * @retval  any of bt_kvt_post()
 */
BT_MUST_CHECK bt_status_t bt_rank_transfer_out_post(bt_rank_transfer_out_t *out,
                                                    const uint32_t *table,
                                                    uint32_t first,
                                                    uint32_t end, uint32_t from,
                                                    uint32_t to);
/** Ends a transfer with its manifest and @a note.
 *  @retval  any of bt_kvt_finish() */
BT_MUST_CHECK bt_status_t bt_rank_transfer_out_finish(
    bt_rank_transfer_out_t *out, const void *note, size_t note_bytes);
/** Cancels a transfer. OUT_DONE follows. */
void bt_rank_transfer_out_cancel(bt_rank_transfer_out_t *out);

#endif
