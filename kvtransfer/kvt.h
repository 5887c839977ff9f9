/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt.h
 *
 * Moves byte extents from one process' pool into *windows* that another
 * process has opened for it. Knows extents, never layers or tokens.
 *
 *     receiver                                  sender
 *     register (pool)   export ──blob──▶        import → peer
 *     window_open(id, generation, extents)
 *        └─ descriptor ───(by any channel)───▶  prep(peer, descriptor) → xfer
 *                                               post(xfer, piece) …
 *     data lands in the extents          ◀═══   (shared memory or network)
 *                                               finish(xfer, note)
 *     manifest checked  → WINDOW_DONE    ◀───   manifest: pieces + checksums
 *                                        ───▶   XFER_DONE (ok, corrupt, stale…)
 *     window_close                              release(xfer)
 *
 * A window is one lease: (id, generation). Its bytes are numbered 0 .. n-1
 * through its extents in order; a piece names such a range. A sender reports
 * exactly which pieces it wrote, each with XXH3-64 over (id, generation,
 * offset, length, bytes); the receiver accepts the window only when the pieces
 * cover it exactly once and every checksum matches what lies in the pool.
 *
 * Closing a window before it is done *revokes* it. Where the sender writes
 * directly (shared memory) its bytes stay quarantined, and WINDOW_CLOSED comes
 * only when the sender has confirmed that nothing is under way, or is proven
 * gone. Where data comes by active message the check (id, generation, range)
 * is made before a buffer is given, so WINDOW_CLOSED comes at once; stale data
 * is discarded and counted. Every window has a secret, drawn at random, which
 * its descriptor takes to the sender and every piece brings back: whoever was
 * not given the descriptor writes nothing, and is counted.
 *
 * Processes greet each other with proofs under the key of the KV plane, and
 * each message has a tag under a key of its link: whoever has not that key is
 * nobody's peer, and a message counts only on the connection of its own link.
 *
 * Posting never blocks. Every transfer completes exactly once. After cancel
 * the source bytes belong to the transfer until that completion.
 *
 * The transport is a table (kvt_core.h) that the configuration names: here
 * bt_kvt_transport_ucx, which is shared memory when both are on one host and a
 * probe write proves it, else UCX TCP or RDMA by active message. The tests
 * bring another, scripted one; the same contract tests run on both.
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
typedef struct bt_kvt_peer bt_kvt_peer_t;     /**< somebody we send to */
typedef struct bt_kvt_window bt_kvt_window_t; /**< somewhere others write */
typedef struct bt_kvt_xfer bt_kvt_xfer_t;     /**< our side of one window */

typedef enum bt_kvt_path {
    BT_KVT_PATH_AUTO,    /**< shared memory (of devices: kvt_share.h) when
                              possible, else network */
    BT_KVT_PATH_SHM,     /**< shared memory or fail */
    BT_KVT_PATH_NETWORK, /**< active messages, also on one host */
} bt_kvt_path_t;

/** Where the pool, and the sources of posts, lie. */
typedef enum bt_kvt_memory {
    BT_KVT_MEMORY_HOST,   /**< the pool is allocated here */
    BT_KVT_MEMORY_DEVICE, /**< an accelerator's, which the processor cannot
                               read: UCX registers it and goes over the network
                               only. Where UCX cannot, and device.copier is
                               given: STAGED, with a line in the log */
    BT_KVT_MEMORY_STAGED, /**< an accelerator's that UCX never sees: all bytes
                               are copied through slots of host memory, while
                               others are on their way. Sends into shared pools
                               of this host directly; receives by the network,
                               or, where devices of this host can share memory,
                               from device to device (kvt_share.h) */
} bt_kvt_memory_t;

/** A pool that others reach is followed by this much for the probe. */
#define BT_KVT_PROBE_BYTES 4096u

/** One piece of TCP; docs/KV_TRANSFER.md has what other sizes and numbers came
 *  to. */
#define BT_KVT_STAGE_SLOT_BYTES (256u << 10)
#define BT_KVT_STAGE_SLOTS      16u /**< each way, unless told */
#define BT_KVT_STAGE_MAX_SLOTS  256u

/** The device of a pool. */
typedef struct bt_kvt_device {
    void *pool; /**< pool_bytes of device memory; the caller's, outlives kvt */
    /** Behind the pool, in the same allocation, of which the pool is the
     *  beginning: kvt's own. BT_KVT_PROBE_BYTES: the pool may be shared with
     *  devices of this host; 0: not. */
    size_t spare_bytes;
    /** STAGED: required; DEVICE: allows to fall back. Borrowed, outlives kvt;
     *  with at least two tickets for each slot (of each way), and one more to
     *  share memory. */
    const bt_copier_t *copier;
    /** STAGED: slots of BT_KVT_STAGE_SLOT_BYTES each way; 0 =
     *  BT_KVT_STAGE_SLOTS. */
    uint32_t n_slots;
    /** DEVICE: copies that are done when they return, for checksums and for
     *  data that came to the host; NULL, both: by the copier. STAGED does not
     *  need them. */
    bt_status_t (*read)(void *user, void *host, const void *device,
                        size_t bytes);
    bt_status_t (*write)(void *user, void *device, const void *host,
                         size_t bytes);
    void *user;
} bt_kvt_device_t;

typedef struct bt_kvt_config {
    const bt_kvt_transport_t *transport; /**< outlives kvt */
    void *transport_arg; /**< borrowed; what that one needs. UCX: nothing */
    bt_kvt_path_t path;
    const char *net_device; /**< UCX device (interface) name; NULL = "lo" */
    uint16_t first_port, last_port; /**< of the network; 0 and 0: any */
    size_t pool_bytes;              /**< the registered pool */
    bt_kvt_memory_t memory;         /**< DEVICE: AUTO means NETWORK */
    bt_kvt_device_t device;         /**< DEVICE, STAGED */
    uint64_t instance;              /**< this process' life, random */
    /** Of the KV plane (WIRE.md): who has another one is no peer. Copied. */
    uint8_t key[BT_KEY_BYTES];
    uint32_t keepalive_ms; /**< network peers: ping interval */
    uint32_t dead_ms;      /**< network peers: silence that means lost */
    /** Time in which a peer on this host waits for a core is not its silence
     *  (core_wait.h). */
    bool tells_starved;
    uint32_t quarantine_ms; /**< longest quarantine before QUARANTINE_STUCK */
} bt_kvt_config_t;

/** UCX: shared memory, TCP, RDMA. */
extern const bt_kvt_transport_t bt_kvt_transport_ucx;

/** Of the library that is loaded, such as "1.13.1". */
const char *bt_kvt_ucx_version(void);

typedef struct bt_kvt_extent {
    uint64_t offset; /**< in the pool, bytes */
    uint64_t bytes;
} bt_kvt_extent_t;

typedef enum bt_kvt_event_type {
    BT_KVT_WINDOW_DONE,   /**< window, status OK, note = sender's */
    BT_KVT_WINDOW_FAILED, /**< window, status CORRUPT, BAD_MESSAGE (coverage),
                               CANCELED (the sender gave up), PEER_LOST,
                               NO_MEMORY or what the device's copy answered;
                               close it next */
    BT_KVT_WINDOW_CLOSED, /**< window: its bytes are free; handle gone after */
    BT_KVT_XFER_DONE,     /**< xfer, status OK, CORRUPT, BAD_MESSAGE
                               (coverage), STALE, CANCELED, PEER_LOST,
                               NO_MEMORY, DEVICE (or what the own device's copy
                               answered); release it next */
    BT_KVT_PEER_LOST,     /**< peer; its transfers complete separately */
    BT_KVT_PEER_UP,       /**< peer: it has answered, both ways are proven */
    BT_KVT_QUARANTINE_STUCK, /**< window: a silent sender may still write;
                               pid in `pid` (0 unknown): end that process */
} bt_kvt_event_type_t;

typedef struct bt_kvt_event {
    bt_kvt_event_type_t type;
    bt_status_t status;
    bt_kvt_window_t *window;
    bt_kvt_xfer_t *xfer;
    bt_kvt_peer_t *peer;
    void *user;       /**< of the window, xfer or peer */
    const void *note; /**< valid until the next call */
    size_t note_bytes;
    uint64_t elapsed_us; /**< WINDOW_DONE: while the sender had posted data
                              under way, plus our manifest check */
    uint64_t arrived_us; /**< WINDOW_DONE: when the last byte was here, or (a
                              direct write) the word that it is */
    uint64_t bytes;      /**< WINDOW_DONE, XFER_DONE: payload moved */
    uint32_t n_descriptors;
    int32_t pid;
    /** PEER_LOST: where it was, "10.0.0.2:4711 on eth0" (or "", unknown), and
     *  what happened; there until the peer is released. */
    const char *at, *why;
} bt_kvt_event_t;

typedef struct bt_kvt_counters {
    uint64_t bytes_sent, bytes_received, descriptors;
    uint64_t stale_discarded, checksum_failures;
    uint64_t foreign_pieces; /**< for a window, without its secret; and
                                  messages without the proof of their writer */
    uint64_t windows_open, windows_quarantined, xfers_open, peers;
    uint64_t bytes_staged; /**< copied between slots and the device */
    uint64_t bytes_shared; /**< sent by the own device into another's pool */
    uint64_t stage_slots;  /**< in use now, both ways */
    uint64_t stage_waits;  /**< times that there was no slot to go on with */
    uint64_t
        stage_most_held; /**< bytes that came and waited for a slot: most */
} bt_kvt_counters_t;

/** config.key, of the cluster's. */
void bt_kvt_plane_key(const uint8_t cluster_key[BT_KEY_BYTES],
                      uint8_t key[BT_KEY_BYTES]);

/** Open a transport and register a pool of pool_bytes.
 *  @retval BT_ERR_BUSY         the network device has no link: try again later
 *  @retval BT_ERR_UNSUPPORTED  no such network device, or a pool in device
 *                              memory that this UCX cannot register
 *                              (DEVICE without a copier) or that shared memory
 *                              is demanded for
 *  @retval BT_ERR_NO_MEMORY    the pool does not fit */
BT_MUST_CHECK bt_status_t bt_kvt_open(const bt_kvt_config_t *config,
                                      bt_kvt_t **kvt_p);
/** Closes peers and windows without waiting for anybody (but for copies of the
 *  own device that are under way). NULL is allowed. */
void bt_kvt_close(bt_kvt_t *kvt);

/** Links are opened under this key from now on, and for ten minutes also under
 *  the one before; those that are there stay as they are. */
void bt_kvt_rekey(bt_kvt_t *kvt, const uint8_t key[BT_KEY_BYTES],
                  uint64_t now_ms);

/** The pool, zeroed at first (of a device: config.device.pool); lives as long
 * as @a kvt. */
void *bt_kvt_pool(const bt_kvt_t *kvt);

/** The first @a bytes of the pool are in use from now on: a shared pool gets
 * its large pages (kvt_pages.h) rather than small ones at each first touch, by
 * a thread beside this one. Contents stay, and what is ready costs nothing. */
void bt_kvt_pool_ready(bt_kvt_t *kvt, uint64_t bytes);

/** For idle moments: the same for some more of it. Does not wait.
 *  @return true: there is more to do */
bool bt_kvt_pool_warm(bt_kvt_t *kvt);

/** What others need to send to us. @retval BT_ERR_TOO_LARGE */
BT_MUST_CHECK bt_status_t bt_kvt_export(const bt_kvt_t *kvt, void *blob,
                                        size_t cap, size_t *bytes_p);

/** Let the owner of an export blob connect to us. Where the transport can tell
 *  who knocks (UCX over TCP, on a device that is not loopback), connections
 * come from addresses of those alone, and of those imported; for good.
 *  @retval BT_ERR_BAD_MESSAGE  malformed */
BT_MUST_CHECK bt_status_t bt_kvt_admit(bt_kvt_t *kvt, const void *blob,
                                       size_t bytes);

/** Connect to the owner of an export blob. Does not block: PEER_UP tells that
 *  the peer has answered; one that cannot be reached is reported as PEER_LOST
 *  later. While nothing is sent, a peer of the network is asked every dead_ms
 *  whether it is there, and PEER_LOST follows if it does not answer.
 *  @retval BT_ERR_BAD_MESSAGE  malformed
 *  @retval BT_ERR_UNSUPPORTED  the configured path cannot reach it, or it
 *                              speaks no version that we do */
BT_MUST_CHECK bt_status_t bt_kvt_import(bt_kvt_t *kvt, const void *blob,
                                        size_t bytes, void *user,
                                        bt_kvt_peer_t **peer_p);
/** Its open transfers complete with PEER_LOST or CANCELED; then it is gone. */
void bt_kvt_peer_release(bt_kvt_peer_t *peer);
/** "shm", "network", or what the copier calls its way to other devices
 *  ("cuda_ipc"); for logs and tests. */
const char *bt_kvt_peer_path(const bt_kvt_peer_t *peer);

/** Enough room for the descriptor of a window of @a n_extents. */
#define BT_KVT_DESC_BYTES(n_extents) (80u + 16u * (size_t)(n_extents))

/**
 * Let one sender write @a extents of our pool.
 *
 * @param [in]  id, generation  The lease; the pair is never used twice.
 * @param [in]  sender_instance  config.instance of the one process that may
 *                       write; 0 = whoever shows the descriptor first. With 0,
 *                       and until that process has connected to us, its first
 *                       write through shared memory costs a round trip.
 * @param [out] desc     Descriptor for the sender's prep().
 * @retval BT_ERR_INVALID_PARAM  an extent is empty, outside the pool, or
 *                               overlaps another
 * @retval BT_ERR_EXISTS         (id) is open already
 * @retval BT_ERR_TOO_LARGE      the descriptor does not fit in cap
 */
BT_MUST_CHECK bt_status_t bt_kvt_window_open(
    bt_kvt_t *kvt, uint64_t id, uint32_t generation, uint64_t sender_instance,
    const bt_kvt_extent_t *extents, uint32_t n_extents, void *user, void *desc,
    size_t cap, size_t *desc_bytes_p, bt_kvt_window_t **window_p);

/** End a window: after WINDOW_DONE or _FAILED, or at any time to revoke it.
 *  WINDOW_CLOSED follows exactly once (possibly much later: quarantine);
 *  until then its bytes must not be used. After WINDOW_DONE there is no
 *  writer left and WINDOW_CLOSED comes on the next poll. */
void bt_kvt_window_close(bt_kvt_window_t *window);

/** Begin sending into a window of @a peer. No bytes move yet.
 *  @retval BT_ERR_BAD_MESSAGE  malformed descriptor or not of this peer
 *  @retval BT_ERR_STALE        the window was revoked already
 *  @retval BT_ERR_EXISTS       a transfer into this window was begun before
 *  @retval BT_ERR_PEER_LOST */
BT_MUST_CHECK bt_status_t bt_kvt_prep(bt_kvt_peer_t *peer, const void *desc,
                                      size_t desc_bytes, void *user,
                                      bt_kvt_xfer_t **xfer_p);
/** Bytes of the whole window. */
uint64_t bt_kvt_xfer_window_bytes(const bt_kvt_xfer_t *xfer);

/** Send @a bytes at @a src to window offset @a offset. The source must stay
 *  unchanged until XFER_DONE; one in a device is complete there (whoever wrote
 *  it was waited for). Never blocks.
 *  @retval BT_ERR_INVALID_PARAM  outside the window, or overlaps a piece
 *                                posted before
 *  @retval BT_ERR_CANCELED, BT_ERR_PEER_LOST  too late; XFER_DONE tells */
BT_MUST_CHECK bt_status_t bt_kvt_post(bt_kvt_xfer_t *xfer, const void *src,
                                      uint64_t offset, uint64_t bytes);

/** No more pieces: send the manifest after all data, with @a note (at most
 *  BT_KVT_MAX_NOTE bytes, copied). XFER_DONE follows. */
BT_MUST_CHECK bt_status_t bt_kvt_finish(bt_kvt_xfer_t *xfer, const void *note,
                                        size_t note_bytes);

/** Stop: what is under way completes or is dropped, the receiver learns that
 *  nothing more will come; XFER_DONE (CANCELED) follows. */
void bt_kvt_cancel(bt_kvt_xfer_t *xfer);
/** After XFER_DONE only. */
void bt_kvt_release(bt_kvt_xfer_t *xfer);

/** Move data and take in messages; at most @a budget_bytes of copying.
 *  @return true when there is more to do at once. */
bool bt_kvt_progress(bt_kvt_t *kvt, uint64_t now_ms, size_t budget_bytes);

/** @return true and an event, or false. */
bool bt_kvt_poll(bt_kvt_t *kvt, bt_kvt_event_t *event_p);

/** Descriptor that becomes readable when progress is needed... */
int bt_kvt_fd(const bt_kvt_t *kvt);
/** ...after this said BT_OK; BT_INPROGRESS: do not sleep, progress again. */
BT_MUST_CHECK bt_status_t bt_kvt_arm(bt_kvt_t *kvt);

void bt_kvt_counters(const bt_kvt_t *kvt, bt_kvt_counters_t *counters_p);

#endif
