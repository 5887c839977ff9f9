/* SPDX-License-Identifier: Apache-2.0 */
/** @file transfer.h
 *
 * KV transfers of an instance: the transfer coordinator makes one transfer of
 * those of all ranks (rank_transfer.h). An instance of a single rank has a
 * coordinator of one.
 *
 *     handlers ─ bt_transfer_in_open ─┬─ regions of rank 0
 *                                     └─ IN_OPEN ─▶ rank 1: its regions
 *              ◀──── OPENED ──────────┬─ regions of rank 0
 *                                     └─ OPENED ◀── rank 1
 *
 * OPENED, IN_DONE, IN_CLOSED and OUT_DONE are reported when all ranks have
 * reached them; a failure at any rank fails the transfer. With one rank all
 * happens at once, and OPENED never comes: bt_transfer_in_open() returns the
 * regions.
 *
 * Rank 0 has a coordinator, the other ranks serve it (start.h).
 *
 * Threads: the control thread.
 */
#ifndef BT_WORKER_TRANSFER_H
#define BT_WORKER_TRANSFER_H

#include "worker/rank_link.h"
#include "worker/rank_transfer.h"

typedef struct bt_transfer_coordinator bt_transfer_coordinator_t;
typedef struct bt_transfer_peer bt_transfer_peer_t;
typedef struct bt_transfer_in bt_transfer_in_t;
typedef struct bt_transfer_out bt_transfer_out_t;

typedef struct bt_transfer_config {
    bt_rank_transfer_t *own_rank; /**< transfers of rank 0; borrowed */
    bt_rank_link_t *links;        /**< to ranks 1 … n_others; borrowed */
    uint32_t n_others;
    uint32_t heartbeat_ms, dead_ms; /**< links to other ranks */
    void (*on_event)(void *ctx, const bt_transfer_event_t *event);
    void *ctx;
} bt_transfer_config_t;

/** Creates the coordinator of an instance. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t
bt_transfer_open(const bt_transfer_config_t *config,
                 bt_transfer_coordinator_t **coordinator_p);
/** Closes the coordinator. Call before the kvt is closed. NULL is allowed. */
void bt_transfer_close(bt_transfer_coordinator_t *coordinator);

/**
 * Waits for a rank's export, which others need to send to that rank. The rank
 * reports it once, when its pool is open.
 * @param [out] rank_p  Its blob is valid as long as the coordinator.
 * @retval BT_ERR_PEER_LOST  the rank ended
 */
BT_MUST_CHECK bt_status_t
bt_transfer_await_export(bt_transfer_coordinator_t *coordinator, uint32_t rank,
                         bt_wire_rank_t *rank_p);
/** Handles an event of this rank's kvt; calls on_event(). */
void bt_transfer_take_kvt(bt_transfer_coordinator_t *coordinator,
                          const bt_kvt_event_t *event);
/** Handles frames from the other ranks. @return false: a rank is lost, and with
 *  it the instance */
bool bt_transfer_take_ranks(bt_transfer_coordinator_t *coordinator);

/** Returns the number of links to other ranks, to poll. */
uint32_t bt_transfer_n_links(const bt_transfer_coordinator_t *coordinator);
int bt_transfer_link_fd(const bt_transfer_coordinator_t *coordinator,
                        uint32_t i);

/** Allows these ranks of a sender to connect to the ranks of this instance. */
void bt_transfer_admit(bt_transfer_coordinator_t *coordinator,
                       const bt_wire_rank_t *ranks, uint32_t n_ranks);

/**
 * Opens receive regions for all pairs of ranks; see bt_rank_transfer_in_open().
 * @retval BT_OK          the regions are in regions, valid until the next call
 * @retval BT_INPROGRESS  OPENED follows
 */
BT_MUST_CHECK bt_status_t bt_transfer_in_open(
    bt_transfer_coordinator_t *coordinator, uint64_t lease, uint32_t generation,
    const bt_transfer_job_t *job, const uint32_t *table, uint32_t n_spans,
    void *user, const bt_wire_region_t **regions_p, uint32_t *n_regions_p,
    bt_transfer_in_t **in_p);
/** Closes the regions. IN_CLOSED follows. */
void bt_transfer_in_close(bt_transfer_in_t *in);

/** Connects to an instance; see bt_rank_transfer_connect(). */
BT_MUST_CHECK bt_status_t
bt_transfer_connect(bt_transfer_coordinator_t *coordinator,
                    bt_kv_split_t theirs, const bt_wire_rank_t *ranks,
                    uint32_t n_ranks, void *user, bt_transfer_peer_t **peer_p);
void bt_transfer_disconnect(bt_transfer_peer_t *peer); /**< NULL is allowed. */
const char *bt_transfer_path(const bt_transfer_peer_t *peer);

/** Begins a transfer; see bt_rank_transfer_out_begin(), and
 * bt_rank_transfer_out_post() and so on for the functions below. Errors of
 * other ranks are reported by OUT_DONE.
 */
BT_MUST_CHECK bt_status_t bt_transfer_out_begin(bt_transfer_peer_t *peer,
                                                const bt_transfer_job_t *job,
                                                const bt_wire_region_t *regions,
                                                uint32_t n_regions, void *user,
                                                bt_transfer_out_t **out_p);
BT_MUST_CHECK bt_status_t bt_transfer_out_post(bt_transfer_out_t *out,
                                               const uint32_t *table,
                                               uint32_t first, uint32_t end,
                                               uint32_t from, uint32_t to);
BT_MUST_CHECK bt_status_t bt_transfer_out_finish(bt_transfer_out_t *out,
                                                 const void *note,
                                                 size_t note_bytes);
void bt_transfer_out_cancel(bt_transfer_out_t *out);

#endif
