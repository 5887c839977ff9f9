/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_core.h
 *
 * Internals of kvtransfer: shared by the protocol and a transport.
 *
 *     kvt.c         open, progress, poll; timers; dispatch of messages
 *     kvt_link.c    one link per other process: hello, keepalive, loss
 *     kvt_region.c  the receiving side      kvt_xfer.c  the sending side
 *     kvt_records.c pieces that arrive, and pieces that are posted
 *     kvt_life.c    state machines of both
 *     kvt_pages.c   large pages for the pool, prepared by a thread
 *     kvt_stage.c   staging slots for device memory; synchronous copies
 *     kvt_share.c   ...and copies from device to device without them
 *     ───────────── bt_kvt_transport_t ─────────────
 *     kvt_ucx*.c    shared memory and network      tests/support/kvt_mem.c
 *
 * Rules for direct writers (through shared memory, or by a device):
 *
 *  1. A process maps another's pool only for a link whose HELLO it sends, and
 *     writes nothing before HELLO_ACK. So every possible writer is known, with
 *     its process id, before it can write; both need a valid tag.
 *  2. A descriptor names the *session*: our incarnation of the link to the
 *     sender that it was made for. The sender writes without asking only when
 *     that is its current session. Any other descriptor (made before the first
 *     hello, or before a link was lost) costs one BEGIN / BEGIN_ACK round trip,
 *     and the receiver refuses when the region is not open.
 *  3. A region with a possible direct writer is closed by REVOKE / CONFIRM
 *     (repeated until answered), unless it is complete, the sender has reported
 *     that it stopped (CANCEL, the last PART, BYE), a new HELLO shows that the
 *     sender has given up the old link, or its process is proven dead. In
 *     kvt_life.h these are LAST, CONFIRM and STOP: the inputs that leave the
 *     states in which the sender may write.
 *  4. The sender remembers the grants that are over and refuses their
 *     descriptors. RESULT and REVOKE carry the receiver's lowest open grant, so
 *     that this memory stays small.
 *
 * The network needs none of this: the receiver decides piece by piece, see
 * bt_kvt_region_take().
 *
 * Threads: the thread that owns the bt_kvt_t; no callbacks into the caller.
 */
#ifndef BT_KVTRANSFER_KVT_CORE_H
#define BT_KVTRANSFER_KVT_CORE_H

#include "common/base/containers.h"
#include "common/base/hash.h"
#include "common/base/process.h"
#include "kvtransfer/kvt.h"
#include "kvtransfer/kvt_life.h"
#include "kvtransfer/kvt_pages.h"
#include "kvtransfer/kvt_plan.h"
#include "kvtransfer/kvt_wire.h"

/** Most ended transfers whose memory is kept for reuse; none under
 *  AddressSanitizer, so that it finds a use after the end. */
#if defined(__SANITIZE_ADDRESS__)
#define BT_KVT_MAX_SPARE 0u
#else
#define BT_KVT_MAX_SPARE 64u
#endif

/** Largest record: pieces are cut so that a step of progress stays short. */
#define BT_KVT_MAX_RECORD_BYTES (1u << 20)
/** Most bytes in flight on the network per link: a ping waits behind them. */
#define BT_KVT_MAX_INFLIGHT_BYTES (8u << 20)
#define BT_KVT_N_BUCKETS          256u

#define BT_KVT_KEY_GRACE_MS 600000u

#define BT_KVT_AT_BYTES  96u
#define BT_KVT_WHY_BYTES 128u

typedef struct bt_kvt_link bt_kvt_link_t;
typedef struct bt_kvt_stage bt_kvt_stage_t;
typedef struct bt_kvt_slot bt_kvt_slot_t;

/** Functions of a transport. None of them blocks. */
struct bt_kvt_transport {
    uint32_t id; /**< BT_KVT_TRANSPORT_; must be equal on both sides */

    /** Opens the transport from kvt->config; sets kvt->pool (zeroed, with
     *  BT_KVT_PROBE_BYTES behind the pool; or the device's) and kvt->transport.
     *  May turn config.memory from DEVICE to STAGED. */
    bt_status_t (*open)(bt_kvt_t *kvt);
    /** Closes the transport; no callback comes afterwards. Also after a failed
     *  open. */
    void (*close)(bt_kvt_t *kvt);
    /** Fills addresses, shm and host of our own export; borrowed memory. */
    void (*describe)(bt_kvt_t *kvt, bt_kvt_export_info_t *info_p);

    /** Allows connections from the addresses of @a info. NULL: from anywhere.
     */
    void (*admit)(bt_kvt_t *kvt, const bt_kvt_export_info_t *info);
    /** Sets link->transport. @retval BT_ERR_PEER_LOST, BT_ERR_NO_MEMORY */
    bt_status_t (*connect)(bt_kvt_link_t *link,
                           const bt_kvt_export_info_t *info);
    /** Describes the location of a process: "10.0.0.2:4711 on eth0". NULL: the
     *  transport has no locations. */
    void (*locate)(const bt_kvt_t *kvt, const bt_kvt_export_info_t *info,
                   char at[BT_KVT_AT_BYTES]);
    /** Stops communication; data in flight completes (bt_kvt_xfer_sent) later.
     *  The watch on the process stays. */
    void (*disconnect)(bt_kvt_link_t *link);
    /** Frees link->transport; after disconnect. */
    void (*forget)(bt_kvt_link_t *link);

    /** Maps the pool of @a info and proves it by the probe: link->map.
     *  @retval BT_ERR_UNSUPPORTED  not reachable by shared memory */
    bt_status_t (*map)(bt_kvt_link_t *link, const bt_kvt_export_info_t *info);
    void (*unmap)(bt_kvt_link_t *link);
    /** Watches for the end of the process of @a info: bt_kvt_link_lost(gone).
     *  @retval BT_ERR_UNSUPPORTED  cannot be watched */
    bt_status_t (*watch)(bt_kvt_link_t *link, const bt_kvt_export_info_t *info);

    /** Sends a message; copied. Order is kept per link. */
    bt_status_t (*send)(bt_kvt_link_t *link, const void *msg, size_t bytes);
    /** Sends a piece; bt_kvt_xfer_sent() follows, later or before return. slot:
     *  the slot with @a src, returned by that call; NULL: not staged. */
    bt_status_t (*send_data)(bt_kvt_xfer_t *xfer,
                             const uint8_t header[BT_KVT_PIECE_BYTES],
                             const void *src, size_t bytes,
                             bt_kvt_slot_t *slot);
    /** Copies pieces to their dst in link->map, and returns the hash of the
     *  bytes. */
    uint64_t (*copy)(bt_kvt_link_t *link, const bt_hash_piece_t *pieces,
                     uint32_t n_pieces, uint64_t seed);

    /** Runs callbacks. @return true when something happened */
    bool (*progress)(bt_kvt_t *kvt, uint64_t now_ms);
    int (*fd)(const bt_kvt_t *kvt);
    bt_status_t (*arm)(bt_kvt_t *kvt);
};

/** Entry of the event queue, embedded in the objects that raise events. */
typedef struct bt_kvt_event_entry {
    bt_list_t link;
    bt_kvt_event_type_t type;
    void *owner; /**< region, xfer or peer */
} bt_kvt_event_entry_t;

/** Newest link incarnation in which an instance sent a HELLO: recorded messages
 *  of older ones (replays) are refused. */
typedef struct bt_kvt_seen {
    uint64_t instance, nonce;
} bt_kvt_seen_t;

/** Most entries of bt_kvt.seen; beyond that the oldest entry is dropped. A
 *  replayed HELLO of a dropped instance makes a link that no region waits for
 *  (an instance id is one process), or, on a link that still exists, at most an
 *  answer. */
#define BT_KVT_MAX_SEEN 4096u

struct bt_kvt {
    bt_kvt_config_t config;
    const bt_kvt_transport_t *ops;
    void *transport;
    uint8_t *pool;
    bt_kvt_warmer_t *warmer; /**< shared memory pool; else NULL */
    size_t net_piece_bytes;  /**< largest piece for send_data() */
    uint64_t now_ms, last_tick_ms;
    bool ticked;
    bool closing; /**< inside bt_kvt_close() */
    bool frozen;  /**< set by a transport: progress does nothing */
    bool broken;  /**< some link is BT_KVT_LINK_IS_BROKEN */
    uint8_t key_before[BT_KEY_BYTES]; /**< previous config.key */
    uint64_t before_until_ms; /**< end of the previous key's validity; 0 = there
                                 is none */
    uint64_t next_grant, next_nonce;
    bt_kvt_seen_t *seen; /**< owned; instances that have sent a HELLO */
    uint32_t n_seen, seen_cap, next_seen;
    bt_list_t links;   /**< bt_kvt_link.all */
    bt_list_t regions; /**< bt_kvt_region.all, by grant, until closed */
    bt_list_t closed;  /**< bt_kvt_region.all, until the REGION_CLOSED event is
                          polled */
    bt_list_t verify;  /**< bt_kvt_region.todo: records to verify */
    bt_list_t closing_regions; /**< bt_kvt_region.todo */
    bt_list_t xfers;           /**< bt_kvt_xfer.all */
    bt_list_t busy;            /**< bt_kvt_xfer.busy: something to send */
    bt_list_t events;          /**< bt_kvt_event_entry.link */
    bt_hmap_t regions_by_id;   /**< bt_kvt_region.by_id */
    bt_list_t region_buckets[BT_KVT_N_BUCKETS];
    bt_kvt_counters_t counters;
    void *export_blob; /**< owned; result of bt_kvt_export() */
    size_t export_bytes;
    uint8_t *scratch;   /**< BT_KVT_MAX_MSG bytes for encoding */
    bt_kvt_desc_t desc; /**< scratch; extents owned */
    /** Ended transfers and regions kept for reuse with their memory
     *  (bt_kvt_xfer.all, bt_kvt_region.all), so that a new transfer allocates
     *  nothing. */
    bt_list_t spare_xfers, spare_regions;
    uint32_t n_spare_xfers, n_spare_regions;
    bt_kvt_path_t asked_path; /**< as configured; config.path is in use */
    uint8_t *bounce;          /**< DEVICE: BT_KVT_MAX_RECORD_BYTES; else NULL */
    void *pinned;             /**< DEVICE, kvt_stage.h; else NULL */
    bt_kvt_stage_t *stage;    /**< STAGED; else NULL */
    bt_kvt_host_t host;       /**< this process, as in its export */
    bt_kvt_aside_t aside;     /**< list of bt_kvt_region.writer */
    /** Benchmarks: no checksums are made or checked, except from device to
     *  device, where the copy makes them. */
    bool unhashed;
};

/** Permission of the peer on our pool. */
typedef enum bt_kvt_remote {
    BT_KVT_REMOTE_UNKNOWN, /**< no HELLO of the peer was accepted */
    BT_KVT_REMOTE_SENDS,   /**< the peer may send to us */
    BT_KVT_REMOTE_WRITES,  /**< the peer may also write directly */
} bt_kvt_remote_t;

/** Watch over a silent peer. */
typedef enum bt_kvt_probe {
    BT_KVT_PROBE_IDLE,      /**< nothing is in flight */
    BT_KVT_PROBE_ASKED,     /**< idle; a ping is unanswered */
    BT_KVT_PROBE_KEEPALIVE, /**< greeting, or something is in flight */
} bt_kvt_probe_t;

struct bt_kvt_link {
    bt_list_t all;
    bt_kvt_t *kvt;
    uint64_t instance;
    uint64_t nonce; /**< our incarnation of this link; the session that we give
                       out */
    uint64_t peer_nonce; /**< the peer's incarnation; 0 = not received yet */
    uint8_t random[BT_KVT_RANDOM_BYTES]; /**< our random bytes */
    uint8_t plane_key[BT_KEY_BYTES];     /**< plane key that the link was opened
                                            under */
    /** Keys of the tags on our messages, and (with peer_nonce) on those of the
     *  peer. */
    uint8_t key[BT_KEY_BYTES], peer_key[BT_KEY_BYTES];
    bt_kvt_link_state_t state; /**< kvt_life.h; bt_kvt_link_move() */
    bt_kvt_remote_t remote;
    bt_kvt_probe_t probe;
    uint8_t *map;   /**< the peer's pool, if we write directly */
    bool by_device; /**< our device writes to `map`; only the device can access
                       it */
    uint64_t pool_bytes;
    int32_t pid;         /**< peer's process on this host; 0 = not known */
    bt_core_wait_t wait; /**< CPU wait of pid, while it is silent */
    bt_list_t peers, xfers, regions;
    uint32_t max_record_bytes; /**< largest record for this peer */
    uint32_t max_record_runs;  /**< directly written: most runs of one record */
    uint32_t n_slots;          /**< our slots that hold bytes for this peer */
    bt_list_t waiting; /**< bt_kvt_xfer.waiting: transfers waiting for a slot */
    bool stalled;      /**< transfers wait for inflight_bytes to fall */
    uint64_t inflight_bytes;
    uint64_t last_heard_ms, last_ping_ms;
    uint64_t asked_ms;          /**< ASKED: since when a ping is unanswered */
    char at[BT_KVT_AT_BYTES];   /**< location of the peer */
    char why[BT_KVT_WHY_BYTES]; /**< lost: reason */
    uint64_t *over; /**< owned: grants to which we must not write any more */
    uint32_t n_over, over_cap;
    uint64_t over_floor; /**< all grants below it are over */
    bool over_lost;      /**< some grants were forgotten: always ask */
    void *transport;
};

struct bt_kvt_peer {
    bt_list_t of_link;
    bt_kvt_link_t *link;
    void *user;
    bt_kvt_event_entry_t lost, up;
};

/** Value of bt_kvt_region.close_ms: closed, and no tick since. */
#define BT_KVT_UNTIMED UINT64_MAX

struct bt_kvt_region {
    bt_list_t all, by_id, todo, of_link;
    bt_kvt_t *kvt;
    bt_kvt_link_t *link; /**< link to the sender; NULL until known */
    bt_kvt_lease_t lease;
    uint8_t secret[BT_KVT_SECRET_BYTES];
    uint64_t sender_instance; /**< 0 = first to come */
    void *user;
    bt_kvt_map_t map;
    bt_kvt_region_state_t state; /**< kvt_life.h; bt_kvt_region_move() */
    bt_status_t status;          /**< error of a failed region */
    bool direct; /**< written directly: records need no landing */
    uint64_t close_ms, revoke_ms;
    bt_kvt_ranges_t given;  /**< network: ranges for which a buffer was given */
    bt_kvt_ranges_t landed; /**< network: ranges complete in the pool */
    bt_kvt_ranges_t proven; /**< ranges whose checksum matched */
    /** Network: buffers that may still be written; device: checks in flight. */
    uint32_t n_receiving;
    /** Staged: pieces that arrived, with the hash computed in the slot. */
    bt_kvt_record_t *arrivals;
    uint32_t n_arrivals, arrivals_cap;
    uint32_t next_arrival; /**< likely index of the next match */
    bt_kvt_record_t *records;
    uint32_t n_records, records_cap, n_verified;
    uint32_t n_begun;    /**< records whose check by the device has begun */
    uint64_t checked_us; /**< since when checks of the device are in flight */
    bt_kvt_writer_t writer; /**< entry in kvt->aside while the sender copies */
    uint64_t record_bytes;  /**< sum over records */
    uint64_t sender_us, verify_us;
    /** When the last byte arrived, or the message about it. */
    uint64_t arrived_us;
    uint32_t note_bytes;
    uint8_t note[BT_KVT_MAX_NOTE];
    bt_kvt_event_entry_t result, stuck, gone;
};

static inline bool bt_kvt_region_takes(const bt_kvt_region_t *region,
                                       bt_kvt_region_input_t input)
{
    bt_kvt_region_state_t next;

    return bt_kvt_region_next(region->state, input, &next) == BT_OK;
}

/** True while the region is neither decided nor closing: data for it is still
 *  accepted. */
static inline bool bt_kvt_region_is_live(const bt_kvt_region_t *region)
{
    return bt_kvt_region_takes(region, BT_KVT_REGION_ON_PIECE);
}

/** Permission of a transfer to write into the receiver's pool. */
typedef enum bt_kvt_leave {
    BT_KVT_LEAVE_NONE,
    BT_KVT_LEAVE_ASKED, /**< BEGIN was sent, not answered yet */
    BT_KVT_LEAVE_GIVEN,
} bt_kvt_leave_t;

/** Source and destination of one record of a transfer. */
typedef struct bt_kvt_move {
    const uint8_t *src;
    uint64_t pool_offset; /**< in the receiver's pool */
} bt_kvt_move_t;

struct bt_kvt_xfer {
    bt_list_t all, of_link, busy;
    bt_kvt_t *kvt;
    bt_kvt_link_t *link; /**< NULL once done */
    bt_kvt_peer_t *peer; /**< NULL once released */
    void *user;
    bt_kvt_lease_t lease;
    uint8_t secret[BT_KVT_SECRET_BYTES]; /**< secret of the region */
    uint64_t session;
    bt_kvt_map_t map;
    bt_kvt_ranges_t posted;
    /** First n_joined records with their hash, as the manifest lists them; from
     *  n_moved on posted ranges, cut to records, with their location. Small
     *  ones are merged into one (joined). */
    bt_kvt_record_t *records;
    bt_kvt_move_t *moves;
    uint32_t n_records, records_cap;
    uint32_t n_moved;  /**< records copied or handed to the network */
    uint32_t n_joined; /**< records after merging; at most n_moved */
    uint32_t n_listed; /**< joined records that were sent in PARTs */
    uint32_t n_flying; /**< network: sends not completed */
    /** Staged: records n_moved .. n_fetched - 1 have a slot here, in order. */
    bt_list_t slots;
    uint32_t n_fetched;
    uint32_t n_fetching; /**< copies from the device in flight */
    /** Messages to send once the device has stopped writing. */
    bool owes_cancel, owes_confirm;
    bt_list_t waiting;         /**< in bt_kvt_link.waiting: for a slot */
    bt_kvt_xfer_state_t state; /**< kvt_life.h; bt_kvt_xfer_move() */
    bt_kvt_leave_t leave;
    bt_status_t outcome; /**< final status once over */
    uint64_t bytes_moved;
    uint64_t bytes_listed; /**< bytes_moved when the last PART was sent */
    uint64_t begin_ms;     /**< when BEGIN was last sent */
    /** Since when posted data is in flight (0: none is); sum of earlier such
     *  times. */
    uint64_t busy_us, moved_us;
    uint32_t note_bytes;
    uint8_t note[BT_KVT_MAX_NOTE];
    bt_kvt_event_entry_t done;
};

/** True while the outcome of a transfer is not known. */
static inline bool bt_kvt_xfer_is_live(const bt_kvt_xfer_t *xfer)
{
    return xfer->state < BT_KVT_XFER_IS_ENDING;
}

/* kvt.c */
/** Handles a received message; borrowed. Not from within `send`.
 *  @param over  the link of the connection that it came on; NULL: none yet
 *  @return the link of the message, or NULL when it was dropped */
bt_kvt_link_t *bt_kvt_take_message(bt_kvt_t *kvt, bt_kvt_link_t *over,
                                   const void *data, size_t bytes);
void bt_kvt_event_push(bt_kvt_t *kvt, bt_kvt_event_entry_t *entry);
/** Computes bt_hash64_pieces() of pool or source bytes, in host or device
 *  memory.
 *  @retval BT_ERR_BAD_MESSAGE  in a device: several pieces, or more than a
 *                              record
 *  @retval any error of the device's copy */
BT_MUST_CHECK bt_status_t bt_kvt_memory_hash(const bt_kvt_t *kvt,
                                             const bt_hash_piece_t *pieces,
                                             uint32_t n_pieces, uint64_t seed,
                                             uint64_t *hash_p);
/** Benchmarks: switches checksums off; see bt_kvt.unhashed. Set both sides
 *  alike. The bytes are not verified then. */
void bt_kvt_test_unhashed(bt_kvt_t *kvt, bool unhashed);

/* kvt_link.c */
/** Finds the link to an instance. @return a link that is not lost, or NULL. */
bt_kvt_link_t *bt_kvt_link_find(bt_kvt_t *kvt, uint64_t instance);
/** Moves a link by @a input. @return false: refused (bt_kvt_link_next()) */
bool bt_kvt_link_move(bt_kvt_link_t *link, bt_kvt_link_input_t input);
/** Fills in from and nonce, and sends a message. A failure loses the link. */
void bt_kvt_link_send(bt_kvt_link_t *link, bt_kvt_msg_t *msg);
/** Sends a message about a lease. */
void bt_kvt_link_send_lease(bt_kvt_link_t *link, bt_kvt_msg_type_t type,
                            const bt_kvt_lease_t *lease, bt_status_t status);
/** Marks a link as lost and notifies its transfers and regions. @a gone: the
 *  peer is proven unable to write again. May be called again to add that proof.
 */
void bt_kvt_link_lost(bt_kvt_link_t *link, bool gone, const char *why);
/** Handles a HELLO @a msg, authenticated under @a key. @param over see
 *  bt_kvt_take_message()
 *  @return the link, or NULL when there is none */
bt_kvt_link_t *bt_kvt_link_hello(bt_kvt_t *kvt, bt_kvt_link_t *over,
                                 const bt_kvt_msg_t *msg,
                                 const uint8_t key[BT_KEY_BYTES]);
/** Handles a HELLO_ACK @a msg, authenticated under @a key. */
void bt_kvt_link_hello_ack(bt_kvt_link_t *link, const bt_kvt_msg_t *msg,
                           const uint8_t key[BT_KEY_BYTES]);
/** Marks links whose send failed as lost. */
void bt_kvt_links_mend(bt_kvt_t *kvt);
/** Extends the peers' timeouts after this process did not run for @a pause_ms
 *  (stopped, starved, suspended), since it received nothing meanwhile. */
void bt_kvt_links_slept(bt_kvt_t *kvt, uint64_t pause_ms);
/** Sends keepalives and repeated hellos; frees links no longer needed. */
void bt_kvt_links_tick(bt_kvt_t *kvt);
void bt_kvt_link_free(bt_kvt_link_t *link);
/** Remembers that a grant is over / forgets grants below the floor / looks one
 *  up. */
void bt_kvt_link_over_add(bt_kvt_link_t *link, uint64_t grant);
void bt_kvt_link_over_trim(bt_kvt_link_t *link, uint64_t floor);
bool bt_kvt_link_over_has(const bt_kvt_link_t *link, uint64_t grant);

/* kvt_region.c */
/** Finds a region. @return the region that is not closed, or NULL */
bt_kvt_region_t *bt_kvt_region_find(const bt_kvt_t *kvt,
                                    const bt_kvt_lease_t *lease);
/** Binds a region to the link of its sender. */
void bt_kvt_region_bind(bt_kvt_region_t *region, bt_kvt_link_t *link);
/** Takes one step of a region's state machine, with its effects. @a why: reason
 *  of a failure.
 *  @return false: refused; a sender's message changes nothing */
bool bt_kvt_region_move(bt_kvt_region_t *region, bt_kvt_region_input_t input,
                        bt_status_t why);
/** Frees the bytes of a region that is closed and has no possible writer. */
void bt_kvt_region_settle(bt_kvt_region_t *region);
/** Fails a region, unless it has a result. */
void bt_kvt_region_fail(bt_kvt_region_t *region, bt_status_t status);
/** Handles the loss of the link to the region's sender; gone: the sender cannot
 *  write either. */
void bt_kvt_region_link_lost(bt_kvt_region_t *region, bool gone);
/** Binds the regions that wait for this sender after its HELLO. */
void bt_kvt_regions_bind(bt_kvt_link_t *link);
void bt_kvt_regions_tick(bt_kvt_t *kvt);
/** Frees a region, or keeps its memory for reuse, within limits; not while the
 *  transport closes. */
void bt_kvt_region_free(bt_kvt_region_t *region);
uint64_t bt_kvt_regions_floor(const bt_kvt_t *kvt);

/* kvt_records.c */
/**
 * Returns a buffer for network data of a region, if it may be written.
 * @return buffer for all of piece.bytes, with bt_kvt_region_landed() to follow;
 *         NULL = discard the data (counted).
 */
uint8_t *bt_kvt_region_take(bt_kvt_t *kvt, const void *header,
                            size_t header_bytes, uint64_t data_bytes,
                            bt_kvt_piece_t *piece_p,
                            bt_kvt_region_t **region_p);
void bt_kvt_region_landed(bt_kvt_region_t *region, uint64_t offset,
                          uint64_t bytes, bool ok);
/** Writes bytes that arrived in host memory to the pool; calls
 *  bt_kvt_region_landed(), at once or later. */
void bt_kvt_region_put(bt_kvt_region_t *region, uint8_t *dst, const void *src,
                       uint64_t offset, uint64_t bytes);
void bt_kvt_region_message(bt_kvt_link_t *link, const bt_kvt_msg_t *msg);

/* kvt_region.c */
/** Compares @a hash of the pool bytes with the record. A match marks the record
 *  as verified; a mismatch fails the region. */
bool bt_kvt_region_prove(bt_kvt_region_t *region, const bt_kvt_record_t *record,
                         uint64_t hash);
/** Decides the result of a region: done once all bytes are listed and verified,
 *  failed if all is listed and a range is missing. */
void bt_kvt_region_decide(bt_kvt_region_t *region);
/** Verifies up to *budget_p bytes. */
void bt_kvt_regions_verify(bt_kvt_t *kvt, size_t *budget_p);

/* kvt_xfer.c */
/** Handles the completion of a send. @a slot: as given to send_data(). */
void bt_kvt_xfer_sent(bt_kvt_xfer_t *xfer, uint64_t bytes, bt_kvt_slot_t *slot);
/** Handles the end of a device copy for @a xfer; not BT_OK: it failed. */
void bt_kvt_xfer_fetched(bt_kvt_xfer_t *xfer, bt_status_t status);
/** Queues a transfer that may be able to proceed. */
void bt_kvt_xfer_wake(bt_kvt_xfer_t *xfer);
void bt_kvt_xfer_message(bt_kvt_link_t *link, const bt_kvt_msg_t *msg);
/** Takes one step of a transfer's state machine; asserts that it is allowed. */
void bt_kvt_xfer_move(bt_kvt_xfer_t *xfer, bt_kvt_xfer_input_t input);
/** Decides the outcome, unless it is decided. */
void bt_kvt_xfer_end(bt_kvt_xfer_t *xfer, bt_status_t outcome);
/** Wakes the transfers of a link that is now acknowledged. */
void bt_kvt_xfers_wake(bt_kvt_link_t *link);
/** Copies or sends up to *budget_p bytes. */
void bt_kvt_xfers_move(bt_kvt_t *kvt, size_t *budget_p);
void bt_kvt_xfers_tick(bt_kvt_t *kvt);
/** Frees a transfer, or keeps its memory for reuse, within limits; not while
 *  the transport closes. */
void bt_kvt_xfer_free(bt_kvt_xfer_t *xfer);

#endif
