/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt.h
 *
 * Moves byte extents from the pool of one process into receive *regions* that
 * another process has opened. Knows extents, never layers or tokens.
 *
 *     receiver                                  sender
 *     register (pool)   export ──blob──▶        import → peer
 *     region_open(id, generation, extents)
 *        └─ descriptor ───(by any channel)───▶  prep(peer, descriptor) → xfer
 *                                               post(xfer, piece) …
 *     data lands in the extents          ◀═══   (shared memory or network)
 *                                               finish(xfer, note)
 *     manifest checked  → REGION_DONE    ◀───   manifest: pieces + checksums
 *                                        ───▶   XFER_DONE (ok, corrupt, stale…)
 *     region_close                              release(xfer)
 *
 * A region is one lease: (id, generation). Its bytes are numbered 0 .. n-1
 * through its extents in order; a piece names such a range. A sender reports
 * exactly which pieces it wrote, each with XXH3-64 over (id, generation,
 * offset, length, bytes); the receiver accepts the region only when the pieces
 * cover it exactly once and every checksum matches what lies in the pool.
 *
 * Closing a region before it is done *revokes* it. Where the sender writes
 * directly (shared memory) the bytes stay quarantined, and REGION_CLOSED comes
 * only when the sender has confirmed that no write is in flight, or is proven
 * dead. Where data comes by active message, (id, generation, range) is checked
 * before a buffer is given, so REGION_CLOSED comes at once; stale data is
 * discarded and counted. Every region has a random secret, which the
 * descriptor carries to the sender and every piece carries back: a process
 * without the descriptor cannot write, and its attempts are counted.
 *
 * Processes authenticate each other under the key of the KV plane, and each
 * message has a tag under a key of its link. A process without that key cannot
 * become a peer, and a message is accepted only on the connection of its own
 * link.
 *
 * Posting never blocks. Every transfer completes exactly once. After a cancel
 * the source bytes belong to the transfer until that completion.
 *
 * The transport is a table (kvt_core.h) named in the configuration:
 * bt_kvt_transport_ucx, which uses shared memory when both processes are on
 * one host and a probe write proves it, else UCX TCP or RDMA by active
 * message. The tests have a scripted one; the same contract tests run on both.
 *
 * Threads: one thread owns a bt_kvt_t and everything made from it.
 */
#ifndef BT_KVTRANSFER_KVT_H
#define BT_KVTRANSFER_KVT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/crypt/key.h"
#include "kernels/copier.h"

#define BT_KVT_MAX_NOTE    4096  /**< bytes of the sender's note */
#define BT_KVT_MAX_EXPORT  65536 /**< bytes of an export blob */
#define BT_KVT_MAX_EXTENTS 65536

typedef struct bt_kvt bt_kvt_t;
typedef struct bt_kvt_transport bt_kvt_transport_t;
typedef struct bt_kvt_peer bt_kvt_peer_t;     /**< a process that we send to */
typedef struct bt_kvt_region bt_kvt_region_t; /**< where a sender writes */
typedef struct bt_kvt_xfer bt_kvt_xfer_t;     /**< our side of a region */

typedef enum bt_kvt_path {
    BT_KVT_PATH_AUTO,    /**< shared memory (between devices: kvt_stage.h) when
                            possible, else network */
    BT_KVT_PATH_SHM,     /**< shared memory or fail */
    BT_KVT_PATH_NETWORK, /**< active messages, also on one host */
} bt_kvt_path_t;

/** Memory that holds the pool and the sources of posts. */
typedef enum bt_kvt_memory {
    BT_KVT_MEMORY_HOST,   /**< host memory, allocated by kvt */
    BT_KVT_MEMORY_DEVICE, /**< device memory that the CPU cannot read: UCX
                             registers it and uses the network only. If UCX
                             cannot and device.copier is given: STAGED, with a
                             log line */
    BT_KVT_MEMORY_STAGED, /**< device memory that UCX never accesses: all bytes
                             are copied through slots of host memory, overlapped
                             with sending. Sends directly into shared pools of
                             this host; receives by the network, or, where
                             devices of this host can share memory, from device
                             to device (kvt_stage.h) */
} bt_kvt_memory_t;

/** Bytes behind a pool that others can map, reserved for the probe. */
#define BT_KVT_PROBE_BYTES 4096u

/** Size of a staging slot, and of one piece over TCP; measurements of other
 *  sizes and numbers are in docs/KV_TRANSFER.md. */
#define BT_KVT_STAGE_SLOT_BYTES (256u << 10)
#define BT_KVT_STAGE_SLOTS      16u /**< default number per direction */
#define BT_KVT_STAGE_MAX_SLOTS  256u

/** Device that holds the pool. */
typedef struct bt_kvt_device {
    void *pool; /**< pool_bytes of device memory; owned by the caller, outlives
                   kvt */
    /** Bytes behind the pool, in the allocation that begins with the pool; for
     *  kvt. BT_KVT_PROBE_BYTES: the pool may be shared with devices of this
     *  host; 0: not. */
    size_t spare_bytes;
    /** STAGED: required; DEVICE: allows the fallback. Borrowed, outlives kvt;
     *  has at least two tickets for each slot (of each direction), and one more
     *  to share memory. */
    const bt_copier_t *copier;
    /** STAGED: slots of BT_KVT_STAGE_SLOT_BYTES per direction; 0 =
     *  BT_KVT_STAGE_SLOTS. */
    uint32_t n_slots;
    /** DEVICE: synchronous copies, for checksums and for data that arrived in
     *  host memory; NULL, both: by the copier. STAGED does not need them. */
    bt_status_t (*read)(void *user, void *host, const void *device,
                        size_t bytes);
    bt_status_t (*write)(void *user, void *device, const void *host,
                         size_t bytes);
    void *user;
} bt_kvt_device_t;

typedef struct bt_kvt_config {
    const bt_kvt_transport_t *transport; /**< outlives kvt */
    void *transport_arg; /**< borrowed argument of the transport. UCX: none */
    bt_kvt_path_t path;
    const char *net_device; /**< UCX device (interface) name; NULL = "lo" */
    uint16_t first_port, last_port; /**< network ports; 0 and 0: any */
    size_t pool_bytes;              /**< size of the registered pool */
    bt_kvt_memory_t memory;         /**< DEVICE: AUTO means NETWORK */
    bt_kvt_device_t device;         /**< DEVICE, STAGED */
    uint64_t instance;              /**< random id of this process instance */
    /** Key of the KV plane (WIRE.md): a process with another key cannot become
     *  a peer. Copied. */
    uint8_t key[BT_KEY_BYTES];
    uint32_t keepalive_ms; /**< network peers: ping interval */
    uint32_t dead_ms; /**< network peers: silence after which a peer is lost */
    /** Time that a peer on this host waits for a core does not count as silence
     *  (process.h). */
    bool tells_starved;
    uint32_t quarantine_ms; /**< longest quarantine before QUARANTINE_STUCK */
} bt_kvt_config_t;

/** Transport over UCX: shared memory, TCP, RDMA. */
extern const bt_kvt_transport_t bt_kvt_transport_ucx;

/** Returns the version of the UCX library that is loaded, such as "1.13.1". */
const char *bt_kvt_ucx_version(void);

typedef struct bt_kvt_extent {
    uint64_t offset; /**< in the pool, bytes */
    uint64_t bytes;
} bt_kvt_extent_t;

typedef enum bt_kvt_event_type {
    BT_KVT_REGION_DONE,   /**< region, status OK, note = the sender's */
    BT_KVT_REGION_FAILED, /**< region, status CORRUPT, BAD_MESSAGE (coverage),
                             CANCELED (by the sender), PEER_LOST, NO_MEMORY or
                             an error of the device's copy; close it next */
    BT_KVT_REGION_CLOSED, /**< region: the bytes are free; the handle is invalid
                             afterwards */
    BT_KVT_XFER_DONE,     /**< xfer, status OK, CORRUPT, BAD_MESSAGE (coverage),
                             STALE, CANCELED, PEER_LOST, NO_MEMORY, DEVICE (or
                             another error of the own device's copy); release it
                             next */
    BT_KVT_PEER_LOST,     /**< peer; each open transfer completes separately */
    BT_KVT_PEER_UP, /**< peer: it has answered, both ways are authenticated */
    BT_KVT_QUARANTINE_STUCK, /**< region: a silent sender may still write; pid
                                in `pid` (0 unknown): end that process */
} bt_kvt_event_type_t;

typedef struct bt_kvt_event {
    bt_kvt_event_type_t type;
    bt_status_t status;
    bt_kvt_region_t *region;
    bt_kvt_xfer_t *xfer;
    bt_kvt_peer_t *peer;
    void *user;       /**< user pointer of the region, xfer or peer */
    const void *note; /**< valid until the next call */
    size_t note_bytes;
    uint64_t elapsed_us; /**< REGION_DONE: time with posted data in flight at
                            the sender, plus our manifest check */
    uint64_t arrived_us; /**< REGION_DONE: when the last byte arrived, or
                            (direct write) the message about it */
    uint64_t bytes;      /**< REGION_DONE, XFER_DONE: payload moved */
    uint32_t n_descriptors;
    int32_t pid;
    /** PEER_LOST: location of the peer, "10.0.0.2:4711 on eth0" ("": unknown),
     *  and what happened; valid until the peer is released. */
    const char *at, *why;
} bt_kvt_event_t;

typedef struct bt_kvt_counters {
    uint64_t bytes_sent, bytes_received, descriptors;
    uint64_t stale_discarded, checksum_failures;
    uint64_t foreign_pieces; /**< pieces for a region without its secret, and
                                messages without a valid tag */
    uint64_t regions_open, regions_quarantined, xfers_open, peers;
    uint64_t bytes_staged; /**< copied between slots and the device */
    uint64_t bytes_shared; /**< sent by the own device into the pool of another
                              process */
    uint64_t stage_slots;  /**< in use now, both directions */
    uint64_t stage_waits;  /**< times that no slot was free */
    uint64_t stage_most_held; /**< peak of bytes waiting for a slot */
} bt_kvt_counters_t;

/** Derives config.key from the cluster key. */
void bt_kvt_plane_key(const uint8_t cluster_key[BT_KEY_BYTES],
                      uint8_t key[BT_KEY_BYTES]);

/** Opens a transport and registers a pool of pool_bytes.
 *  @retval BT_ERR_BUSY         the network device has no link: try again later
 *  @retval BT_ERR_UNSUPPORTED  no such network device; or a pool in device
 *                              memory that this UCX cannot register (DEVICE
 *                              without a copier), or for which shared memory is
 *                              demanded
 *  @retval BT_ERR_NO_MEMORY    the pool does not fit */
BT_MUST_CHECK bt_status_t bt_kvt_open(const bt_kvt_config_t *config,
                                      bt_kvt_t **kvt_p);
/** Closes peers and regions without waiting for them (except for copies of the
 *  own device in flight). NULL is allowed. */
void bt_kvt_close(bt_kvt_t *kvt);

/** Replaces the key for new links; for ten minutes the previous key is also
 *  accepted. Existing links stay as they are. */
void bt_kvt_rekey(bt_kvt_t *kvt, const uint8_t key[BT_KEY_BYTES],
                  uint64_t now_ms);

/** Returns the pool, initially zeroed (of a device: config.device.pool); lives
 *  as long as @a kvt. */
void *bt_kvt_pool(const bt_kvt_t *kvt);

/** Prepares the first @a bytes of the pool, which come into use: a background
 *  thread gives a shared pool large pages (kvt_pages.h) instead of small ones
 *  at each first touch. Contents stay, and prepared pages cost nothing. */
void bt_kvt_pool_ready(bt_kvt_t *kvt, uint64_t bytes);

/** Prepares some more of the pool, like bt_kvt_pool_ready(), in idle moments.
 *  Does not wait.
 *  @return true: there is more to do */
bool bt_kvt_pool_warm(bt_kvt_t *kvt);

/** Writes the export blob: what others need to send to us.
 *  @retval BT_ERR_TOO_LARGE */
BT_MUST_CHECK bt_status_t bt_kvt_export(const bt_kvt_t *kvt, void *blob,
                                        size_t cap, size_t *bytes_p);

/** Allows the owner of an export blob to connect to us. Where the transport can
 *  see the source address (UCX over TCP, on a device that is not loopback),
 *  only the addresses of admitted and imported processes can connect.
 *  Permanent.
 *  @retval BT_ERR_BAD_MESSAGE  malformed */
BT_MUST_CHECK bt_status_t bt_kvt_admit(bt_kvt_t *kvt, const void *blob,
                                       size_t bytes);

/** Connects to the owner of an export blob. Does not block: PEER_UP follows
 *  when the peer has answered, PEER_LOST if it cannot be reached. While nothing
 *  is sent, a network peer is pinged every dead_ms, and PEER_LOST follows if it
 *  does not answer.
 *  @retval BT_ERR_BAD_MESSAGE  malformed
 *  @retval BT_ERR_UNSUPPORTED  the configured path cannot reach the owner, or
 *                              there is no common version */
BT_MUST_CHECK bt_status_t bt_kvt_import(bt_kvt_t *kvt, const void *blob,
                                        size_t bytes, void *user,
                                        bt_kvt_peer_t **peer_p);
/** Releases a peer. Open transfers complete with PEER_LOST or CANCELED; then
 *  the peer is freed. */
void bt_kvt_peer_release(bt_kvt_peer_t *peer);
/** Returns the path to a peer, for logs and tests: "shm", "network", or the
 *  copier's name of the path to other devices ("cuda_ipc"). */
const char *bt_kvt_peer_path(const bt_kvt_peer_t *peer);

/** Sufficient size for the descriptor of a region of @a n_extents. */
#define BT_KVT_DESC_BYTES(n_extents) (80u + 16u * (size_t)(n_extents))

/**
 * Opens a region: lets one sender write @a extents of our pool.
 *
 * @param [in]  id, generation  The lease; the pair is never used twice.
 * @param [in]  sender_instance  config.instance of the one process that may
 *                               write; 0 = the first process that presents the
 *                               descriptor. With 0, and until that process has
 *                               connected to us, its first write through shared
 *                               memory costs a round trip.
 * @param [out] desc     Descriptor for the sender's prep().
 * @retval BT_ERR_INVALID_PARAM  an extent is empty, outside the pool, or
 *                               overlaps another
 * @retval BT_ERR_EXISTS         (id) is open already
 * @retval BT_ERR_TOO_LARGE      the descriptor does not fit in cap
 */
BT_MUST_CHECK bt_status_t bt_kvt_region_open(
    bt_kvt_t *kvt, uint64_t id, uint32_t generation, uint64_t sender_instance,
    const bt_kvt_extent_t *extents, uint32_t n_extents, void *user, void *desc,
    size_t cap, size_t *desc_bytes_p, bt_kvt_region_t **region_p);

/** Closes a region: after REGION_DONE or _FAILED, or at any time to revoke it.
 *  REGION_CLOSED follows exactly once (possibly much later: quarantine); until
 *  then the bytes must not be used. After REGION_DONE there is no writer left
 *  and REGION_CLOSED comes on the next poll. */
void bt_kvt_region_close(bt_kvt_region_t *region);

/** Begins a transfer into a region of @a peer. No bytes move yet.
 *  @retval BT_ERR_BAD_MESSAGE  malformed descriptor or not of this peer
 *  @retval BT_ERR_STALE        the region was revoked already
 *  @retval BT_ERR_EXISTS       a transfer into this region was begun before
 *  @retval BT_ERR_PEER_LOST */
BT_MUST_CHECK bt_status_t bt_kvt_prep(bt_kvt_peer_t *peer, const void *desc,
                                      size_t desc_bytes, void *user,
                                      bt_kvt_xfer_t **xfer_p);
/** Returns the size of the whole region. */
uint64_t bt_kvt_xfer_region_bytes(const bt_kvt_xfer_t *xfer);

/** Sends @a bytes at @a src to region offset @a offset. The source must stay
 *  unchanged until XFER_DONE; a source in device memory must already be
 *  complete (no writer in flight). Never blocks.
 *  @retval BT_ERR_INVALID_PARAM  outside the region, or overlaps a piece posted
 *                                before
 *  @retval BT_ERR_CANCELED, BT_ERR_PEER_LOST  too late; see XFER_DONE */
BT_MUST_CHECK bt_status_t bt_kvt_post(bt_kvt_xfer_t *xfer, const void *src,
                                      uint64_t offset, uint64_t bytes);

/** Ends posting: sends the manifest after all data, with @a note (at most
 *  BT_KVT_MAX_NOTE bytes, copied). XFER_DONE follows. */
BT_MUST_CHECK bt_status_t bt_kvt_finish(bt_kvt_xfer_t *xfer, const void *note,
                                        size_t note_bytes);

/** Cancels a transfer: data in flight completes or is dropped, and the receiver
 *  is notified that nothing more will come; XFER_DONE (CANCELED) follows. */
void bt_kvt_cancel(bt_kvt_xfer_t *xfer);
/** Frees a transfer. Only after XFER_DONE. */
void bt_kvt_release(bt_kvt_xfer_t *xfer);

/** Moves data and handles messages; copies at most @a budget_bytes.
 *  @return true when there is more to do at once. */
bool bt_kvt_progress(bt_kvt_t *kvt, uint64_t now_ms, size_t budget_bytes);

/** Takes the next event. @return true and an event, or false. */
bool bt_kvt_poll(bt_kvt_t *kvt, bt_kvt_event_t *event_p);

/** Returns a descriptor that becomes readable when progress is needed, once
 *  bt_kvt_arm() has returned BT_OK. */
int bt_kvt_fd(const bt_kvt_t *kvt);
/** Arms the descriptor of bt_kvt_fd(). BT_INPROGRESS: do not sleep, progress
 *  again. */
BT_MUST_CHECK bt_status_t bt_kvt_arm(bt_kvt_t *kvt);

void bt_kvt_counters(const bt_kvt_t *kvt, bt_kvt_counters_t *counters_p);

#endif
