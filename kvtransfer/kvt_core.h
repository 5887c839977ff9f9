/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_core.h
 *
 * Inside of kvtransfer: what the protocol and a transport share.
 *
 *     kvt.c         open, progress, poll; timers; dispatch of messages
 *     kvt_link.c    one link per other process: hello, keepalive, loss
 *     kvt_window.c  the receiving side      kvt_xfer.c  the sending side
 *     kvt_arrive.c  ...what comes           kvt_post.c  ...what it is given
 *     kvt_verify.c  ...checks
 *     kvt_life.c    the states of both
 *     kvt_pages.c   large pages for the pool, kvt_warmer.c ...beside its owner
 *     kvt_stage.c   slots between these two and the memory of a device
 *     kvt_share.c   ...from device to device, past them
 *     kvt_sync.c    copies for a pool that the transport reaches itself
 *     ───────────── bt_kvt_transport_t ─────────────
 *     kvt_ucx*.c    shared memory and network      tests/support/kvt_mem.c
 *
 * Who may write directly (through shared memory, or by its device), and until
 * when:
 *
 *  1. A process maps another's pool only for a link whose HELLO it sends, and
 *     writes nothing before HELLO_ACK. So whoever may write is known, with
 *     its process id, before it can; both are believed only with the proof.
 *  2. A descriptor names the *session*: our incarnation of the link to the
 *     sender that it was made for. The sender writes unasked only when that is
 *     the session it has. Any other descriptor (made before the first hello,
 *     or before a link was lost) costs one BEGIN / BEGIN_ACK round trip, and
 *     the receiver refuses when the window is not open.
 *  3. A window with a possible direct writer is closed by REVOKE / CONFIRM
 *     (repeated until answered), unless it is complete, the sender has said
 *     that it stopped (CANCEL, the last PART, BYE), a new HELLO shows that the
 *     sender has given up the old link, or its process is proven gone. In
 *     kvt_life.h these are LAST, CONFIRM and STOP: what leads out of the states
 *     in which the sender may write.
 *  4. The sender remembers the grants that are over and refuses a descriptor
 *     of theirs. RESULT and REVOKE carry the receiver's lowest open grant, so
 *     that this memory stays small.
 *
 * Over the network none of that is needed: the receiver decides piece by
 * piece, see bt_kvt_window_take().
 *
 * Threads: the thread that owns the bt_kvt_t; no callbacks into the caller.
 */
#ifndef BT_KVTRANSFER_KVT_CORE_H
#define BT_KVTRANSFER_KVT_CORE_H

#include "common/base/core_wait.h"
#include "common/base/hash.h"
#include "common/base/hmap.h"
#include "common/base/list.h"
#include "kvtransfer/kvt.h"
#include "kvtransfer/kvt_aside.h"
#include "kvtransfer/kvt_life.h"
#include "kvtransfer/kvt_plan.h"
#include "kvtransfer/kvt_warmer.h"
#include "kvtransfer/kvt_wire.h"

/** Ended transfers whose memory is kept; none where a use of them afterwards is
 *  to be found. */
#if defined(__SANITIZE_ADDRESS__)
#define BT_KVT_MAX_SPARE 0u
#else
#define BT_KVT_MAX_SPARE 64u
#endif

/** Pieces are cut so that a step of progress stays short. */
#define BT_KVT_MAX_RECORD_BYTES (1u << 20)
/** Most bytes handed to the network for one link and not completed yet: a
 *  ping waits behind them. */
#define BT_KVT_MAX_INFLIGHT_BYTES (8u << 20)
#define BT_KVT_N_BUCKETS          256u

#define BT_KVT_KEY_GRACE_MS 600000u

#define BT_KVT_AT_BYTES  96u
#define BT_KVT_WHY_BYTES 128u

typedef struct bt_kvt_link bt_kvt_link_t;
typedef struct bt_kvt_stage bt_kvt_stage_t;
typedef struct bt_kvt_slot bt_kvt_slot_t;

/** What a transport does for the core. Nothing here blocks. */
struct bt_kvt_transport {
    uint32_t id; /**< BT_KVT_TRANSPORT_; both sides must have the same */

    /** Take kvt->config; set kvt->pool (zeroed, with BT_KVT_PROBE_BYTES behind
     *  it; or the device's) and kvt->transport. May turn config.memory from
     *  DEVICE to STAGED. */
    bt_status_t (*open)(bt_kvt_t *kvt);
    /** Afterwards no callback comes. Also after a failed open. */
    void (*close)(bt_kvt_t *kvt);
    /** Fill addresses, shm and host of our own export; borrowed memory. */
    void (*describe)(bt_kvt_t *kvt, bt_kvt_export_info_t *info_p);

    /** Connections may come from the addresses of @a info. NULL: from
     *  everywhere. */
    void (*admit)(bt_kvt_t *kvt, const bt_kvt_export_info_t *info);
    /** Make link->transport. @retval BT_ERR_PEER_LOST, BT_ERR_NO_MEMORY */
    bt_status_t (*connect)(bt_kvt_link_t *link,
                           const bt_kvt_export_info_t *info);
    /** Where that is, in words: "10.0.0.2:4711 on eth0". NULL: nowhere that
     *  could be named. */
    void (*locate)(const bt_kvt_t *kvt, const bt_kvt_export_info_t *info,
                   char at[BT_KVT_AT_BYTES]);
    /** Stop talking; data under way completes (bt_kvt_xfer_sent) later. The
     *  watch on the process stays. */
    void (*disconnect)(bt_kvt_link_t *link);
    /** The core drops link->transport; after disconnect. */
    void (*forget)(bt_kvt_link_t *link);

    /** Map the pool of @a info and prove it by the probe: link->map.
     *  @retval BT_ERR_UNSUPPORTED  not reachable by shared memory */
    bt_status_t (*map)(bt_kvt_link_t *link, const bt_kvt_export_info_t *info);
    void (*unmap)(bt_kvt_link_t *link);
    /** Notice the end of the process of @a info: bt_kvt_link_lost(gone).
     *  @retval BT_ERR_UNSUPPORTED  cannot be watched */
    bt_status_t (*watch)(bt_kvt_link_t *link, const bt_kvt_export_info_t *info);

    /** Send a message; copied. Order is kept per link. */
    bt_status_t (*send)(bt_kvt_link_t *link, const void *msg, size_t bytes);
    /** Send a piece; bt_kvt_xfer_sent() follows, later or before return.
     *  slot: where @a src lies, given back with it; NULL: not staged. */
    bt_status_t (*send_data)(bt_kvt_xfer_t *xfer,
                             const uint8_t header[BT_KVT_PIECE_BYTES],
                             const void *src, size_t bytes,
                             bt_kvt_slot_t *slot);
    /** Copy pieces into link->map, where their dst is, and return the bytes'
     *  hash. */
    uint64_t (*copy)(bt_kvt_link_t *link, const bt_hash_piece_t *pieces,
                     uint32_t n_pieces, uint64_t seed);

    /** Run callbacks. @return true when something happened */
    bool (*progress)(bt_kvt_t *kvt, uint64_t now_ms);
    int (*fd)(const bt_kvt_t *kvt);
    bt_status_t (*arm)(bt_kvt_t *kvt);
};

/** A place in the event queue, embedded where events come from. */
typedef struct bt_kvt_event_entry {
    bt_list_t link;
    bt_kvt_event_type_t type;
    void *owner; /**< window, xfer or peer */
} bt_kvt_event_entry_t;

/** The newest incarnation of a link that an instance has greeted with: what
 *  was recorded of older ones is refused. */
typedef struct bt_kvt_seen {
    uint64_t instance, nonce;
} bt_kvt_seen_t;

/** So many; then the one first seen is forgotten. What was recorded of it leads
 *  to a link that no window waits for (instances are lives of processes), or,
 *  where it still has one, to nothing but an answer on that. */
#define BT_KVT_MAX_SEEN 4096u

struct bt_kvt {
    bt_kvt_config_t config;
    const bt_kvt_transport_t *ops;
    void *transport;
    uint8_t *pool;
    bt_kvt_warmer_t *warmer; /**< of a pool in shared memory; else NULL */
    size_t net_piece_bytes;  /**< most that send_data() is given at a time */
    uint64_t now_ms, last_tick_ms;
    bool ticked;
    bool closing; /**< within bt_kvt_close() */
    bool frozen;  /**< set by a transport: progress does nothing meanwhile */
    bool broken;  /**< some link is; see bt_kvt_link.broken */
    uint8_t key_before[BT_KEY_BYTES]; /**< than config.key */
    uint64_t before_until_ms;         /**< 0 = there is none */
    uint64_t next_grant, next_nonce;
    bt_kvt_seen_t *seen; /**< owned; of those who said hello */
    uint32_t n_seen, seen_cap, next_seen;
    bt_list_t links;           /**< bt_kvt_link.all */
    bt_list_t windows;         /**< bt_kvt_window.all, by grant, until closed */
    bt_list_t closed;          /**< bt_kvt_window.all, until that is polled */
    bt_list_t verify;          /**< bt_kvt_window.todo: something to check */
    bt_list_t closing_windows; /**< bt_kvt_window.todo */
    bt_list_t xfers;           /**< bt_kvt_xfer.all */
    bt_list_t busy;            /**< bt_kvt_xfer.busy: something to send */
    bt_list_t events;          /**< bt_kvt_event_entry.link */
    bt_hmap_t windows_by_id;   /**< bt_kvt_window.by_id */
    bt_list_t window_buckets[BT_KVT_N_BUCKETS];
    bt_kvt_counters_t counters;
    void *export_blob; /**< owned; what bt_kvt_export() returns */
    size_t export_bytes;
    uint8_t *scratch;   /**< BT_KVT_MAX_MSG bytes for encoding */
    bt_kvt_desc_t desc; /**< scratch; extents owned */
    /** Of earlier transfers, with their memory: bt_kvt_xfer.all and
     *  bt_kvt_window.all. A transfer allocates nothing once there are some. */
    bt_list_t spare_xfers, spare_windows;
    uint32_t n_spare_xfers, n_spare_windows;
    bt_kvt_path_t asked_path; /**< config.path is what it came to */
    uint8_t *bounce;          /**< DEVICE: BT_KVT_MAX_RECORD_BYTES; else NULL */
    void *pinned;             /**< DEVICE, kvt_sync.h; else NULL */
    bt_kvt_stage_t *stage;    /**< STAGED; else NULL */
    bt_kvt_host_t host;       /**< the own, as its export says it */
    bt_kvt_aside_t aside;     /**< bt_kvt_window.writer */
    /** Benchmarks: checksums are neither made nor checked, but from device to
     *  device, where a copy makes them. */
    bool unhashed;
};

struct bt_kvt_link {
    bt_list_t all;
    bt_kvt_t *kvt;
    uint64_t instance;
    uint64_t nonce;      /**< ours: this incarnation; the session we give */
    uint64_t peer_nonce; /**< theirs; 0 = not heard yet */
    uint8_t random[BT_KVT_RANDOM_BYTES]; /**< ours */
    uint8_t plane_key[BT_KEY_BYTES];     /**< that it is opened under */
    /** Of the tags of what we say, and (with peer_nonce) of what they do. */
    uint8_t key[BT_KEY_BYTES], peer_key[BT_KEY_BYTES];
    bool broken; /**< a send failed; lost at the next progress */
    bool lost;
    bool gone;          /**< its process, or at least the session, is over */
    bool hello_sent;    /**< we send to it... */
    bool acked;         /**< ...and may */
    bool hello_taken;   /**< it sends to us */
    bool remote_direct; /**< ...directly, into our pool */
    bool active;        /**< keepalive runs */
    uint8_t *map;       /**< its pool, when we write directly... */
    bool by_device;     /**< ...which our device does; only it reaches `map` */
    uint64_t pool_bytes;
    int32_t pid;         /**< on this host; 0 = not known */
    bt_core_wait_t wait; /**< of that process, while it is silent */
    bt_list_t peers, xfers, windows;
    uint32_t max_record_bytes; /**< cut for it to that */
    uint32_t max_record_runs;  /**< written directly: in so many of its runs */
    uint32_t n_slots;          /**< of ours that hold bytes for it */
    bt_list_t waiting;         /**< bt_kvt_xfer.waiting: for a slot */
    bool stalled;              /**< transfers wait for inflight_bytes to fall */
    uint64_t inflight_bytes;
    uint64_t last_heard_ms, last_ping_ms;
    bool asked; /**< while nothing is under way, whether it is there... */
    uint64_t asked_ms;          /**< ...at that time first */
    char at[BT_KVT_AT_BYTES];   /**< where it is */
    char why[BT_KVT_WHY_BYTES]; /**< lost: what happened */
    uint64_t *over; /**< owned: grants that we must not write to any more */
    uint32_t n_over, over_cap;
    uint64_t over_floor; /**< all grants below it are over */
    bool over_lost;      /**< some could not be remembered: always ask first */
    void *transport;
};

struct bt_kvt_peer {
    bt_list_t of_link;
    bt_kvt_link_t *link;
    void *user;
    bt_kvt_event_entry_t lost, up;
};

/** bt_kvt_window.close_ms: closed, and no tick since. */
#define BT_KVT_UNTIMED UINT64_MAX

struct bt_kvt_window {
    bt_list_t all, by_id, todo, of_link;
    bt_kvt_t *kvt;
    bt_kvt_link_t *link; /**< of the sender; NULL until known */
    bt_kvt_lease_t lease;
    uint8_t secret[BT_KVT_SECRET_BYTES];
    uint64_t sender_instance; /**< 0 = first to come */
    void *user;
    bt_kvt_map_t map;
    bt_kvt_window_state_t state; /**< kvt_life.h; bt_kvt_window_move() */
    bt_status_t status;          /**< of a failed one */
    bool direct; /**< records need no landing: written directly */
    uint64_t close_ms, revoke_ms;
    bt_kvt_ranges_t given;  /**< network: a buffer was given for these */
    bt_kvt_ranges_t landed; /**< network: whole in the pool */
    bt_kvt_ranges_t proven; /**< checksum is right */
    /** Network: buffers that may still be written; checks of the device. */
    uint32_t n_receiving;
    /** Staged: what came, with the hash that it had in its slot. */
    bt_kvt_record_t *arrivals;
    uint32_t n_arrivals, arrivals_cap;
    uint32_t next_arrival; /**< where the next is likely to be */
    bt_kvt_record_t *records;
    uint32_t n_records, records_cap, n_verified;
    uint32_t n_begun;       /**< checked by the device: these, or soon... */
    uint64_t checked_us;    /**< ...since when some are under way */
    bt_kvt_writer_t writer; /**< in kvt->aside while that copies */
    uint64_t record_bytes;  /**< sum over records */
    uint64_t sender_us, verify_us;
    /** When the last byte was here, or the word of it. */
    uint64_t arrived_us;
    uint32_t note_bytes;
    uint8_t note[BT_KVT_MAX_NOTE];
    bt_kvt_event_entry_t result, stuck, gone;
};

static inline bool bt_kvt_window_takes(const bt_kvt_window_t *window,
                                       bt_kvt_window_input_t input)
{
    bt_kvt_window_state_t next;

    return bt_kvt_window_next(window->state, input, &next) == BT_OK;
}

/** Neither decided nor being closed: what comes for it is wanted. */
static inline bool bt_kvt_window_is_live(const bt_kvt_window_t *window)
{
    return bt_kvt_window_takes(window, BT_KVT_WINDOW_ON_PIECE);
}

/** Leave to write into the receiver's pool; for this transfer. */
typedef enum bt_kvt_leave {
    BT_KVT_LEAVE_NONE,
    BT_KVT_LEAVE_ASKED, /**< BEGIN is on its way, or its answer */
    BT_KVT_LEAVE_GIVEN,
} bt_kvt_leave_t;

/** What a record of a transfer moves. */
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
    uint8_t secret[BT_KVT_SECRET_BYTES]; /**< of the window */
    uint64_t session;
    bt_kvt_map_t map;
    bt_kvt_ranges_t posted;
    /** First n_joined with their hash, as they are told; from n_moved on what
     *  was posted, cut, and where it lies. Small ones become one (joined). */
    bt_kvt_record_t *records;
    bt_kvt_move_t *moves;
    uint32_t n_records, records_cap;
    uint32_t n_moved;  /**< copied or handed to the network */
    uint32_t n_joined; /**< at most as many */
    uint32_t n_listed; /**< of these, told in PARTs */
    uint32_t n_flying; /**< network: sends not completed */
    /** Staged: records n_moved .. n_fetched - 1 have a slot here, in order. */
    bt_list_t slots;
    uint32_t n_fetched;
    uint32_t n_fetching; /**< copies from the device under way */
    /** To be said when the device writes no more. */
    bool owes_cancel, owes_confirm;
    bt_list_t waiting;         /**< in bt_kvt_link.waiting: for a slot */
    bt_kvt_xfer_state_t state; /**< kvt_life.h; bt_kvt_xfer_move() */
    bt_kvt_leave_t leave;
    bt_status_t outcome; /**< of one that is over */
    uint64_t bytes_moved;
    uint64_t bytes_listed; /**< bytes_moved when the last PART went */
    uint64_t begin_ms;     /**< when BEGIN was sent last */
    /** Since when posted data is under way (0: none is); such times before. */
    uint64_t busy_us, moved_us;
    uint32_t note_bytes;
    uint8_t note[BT_KVT_MAX_NOTE];
    bt_kvt_event_entry_t done;
};

/** Its outcome is not known. */
static inline bool bt_kvt_xfer_is_live(const bt_kvt_xfer_t *xfer)
{
    return xfer->state < BT_KVT_XFER_IS_ENDING;
}

/* kvt.c */
/** A message came in; borrowed. Not from within `send`.
 *  @param over  the link whose connection it came on; NULL: nobody's yet
 *  @return the link that it is of, or NULL when it was dropped */
bt_kvt_link_t *bt_kvt_take_message(bt_kvt_t *kvt, bt_kvt_link_t *over,
                                   const void *data, size_t bytes);
void bt_kvt_event_push(bt_kvt_t *kvt, bt_kvt_event_entry_t *entry);
/** bt_hash64_pieces() of pool or source bytes, wherever they lie.
 *  @retval BT_ERR_BAD_MESSAGE  in a device: several, or more than a record
 *  @retval of the device's copy */
BT_MUST_CHECK bt_status_t bt_kvt_memory_hash(const bt_kvt_t *kvt,
                                             const bt_hash_piece_t *pieces,
                                             uint32_t n_pieces, uint64_t seed,
                                             uint64_t *hash_p);
/** Benchmarks: see bt_kvt.unhashed; the same on both sides. Nothing proves the
 *  bytes then. */
void bt_kvt_test_unhashed(bt_kvt_t *kvt, bool unhashed);

/* kvt_link.c */
/** @return the link that is not lost, or NULL. */
bt_kvt_link_t *bt_kvt_link_find(bt_kvt_t *kvt, uint64_t instance);
/** Fill in from and nonce, and send. A failure loses the link. */
void bt_kvt_link_send(bt_kvt_link_t *link, bt_kvt_msg_t *msg);
/** A message of the lease family. */
void bt_kvt_link_send_lease(bt_kvt_link_t *link, bt_kvt_msg_type_t type,
                            const bt_kvt_lease_t *lease, bt_status_t status);
/** The link is no more; all of its transfers and windows learn. @a gone: it
 *  will not write again, proven. May be called again to add that proof. */
void bt_kvt_link_lost(bt_kvt_link_t *link, bool gone, const char *why);
/** @a msg is proven, under @a key. @param over  as of bt_kvt_take_message()
 *  @return the link, or NULL when there is none */
bt_kvt_link_t *bt_kvt_link_hello(bt_kvt_t *kvt, bt_kvt_link_t *over,
                                 const bt_kvt_msg_t *msg,
                                 const uint8_t key[BT_KEY_BYTES]);
/** @a msg is proven, under @a key. */
void bt_kvt_link_hello_ack(bt_kvt_link_t *link, const bt_kvt_msg_t *msg,
                           const uint8_t key[BT_KEY_BYTES]);
/** Links whose send failed become lost. */
void bt_kvt_links_mend(bt_kvt_t *kvt);
/** We did not run for so long (stopped, starved, suspended): what was not heard
 *  meanwhile is not the peers' silence. */
void bt_kvt_links_slept(bt_kvt_t *kvt, uint64_t pause_ms);
/** Keepalive, repeated hellos; frees what nobody needs. */
void bt_kvt_links_tick(bt_kvt_t *kvt);
void bt_kvt_link_free(bt_kvt_link_t *link);
/** Remember that a grant is over / forget those below the floor / ask. */
void bt_kvt_link_over_add(bt_kvt_link_t *link, uint64_t grant);
void bt_kvt_link_over_trim(bt_kvt_link_t *link, uint64_t floor);
bool bt_kvt_link_over_has(const bt_kvt_link_t *link, uint64_t grant);

/* kvt_window.c */
/** @return the window that is not closed, or NULL */
bt_kvt_window_t *bt_kvt_window_find(const bt_kvt_t *kvt,
                                    const bt_kvt_lease_t *lease);
/** @a link is its sender's. */
void bt_kvt_window_bind(bt_kvt_window_t *window, bt_kvt_link_t *link);
/** One step of its life, with what comes of it. @a why: of one that fails.
 *  @return false: refused; what the sender sent changes nothing */
bool bt_kvt_window_move(bt_kvt_window_t *window, bt_kvt_window_input_t input,
                        bt_status_t why);
/** Its bytes are free, once it is closed and nobody can write to them. */
void bt_kvt_window_settle(bt_kvt_window_t *window);
/** Its result, unless there is one. */
void bt_kvt_window_fail(bt_kvt_window_t *window, bt_status_t status);
void bt_kvt_window_done(bt_kvt_window_t *window);
/** The sender of @a window is unreachable; gone: it cannot write either. */
void bt_kvt_window_link_lost(bt_kvt_window_t *window, bool gone);
/** A sender said hello: windows that wait for it. */
void bt_kvt_windows_bind(bt_kvt_link_t *link);
void bt_kvt_windows_tick(bt_kvt_t *kvt);
/** Kept for another one, within limits; not while the transport closes. */
void bt_kvt_window_free(bt_kvt_window_t *window);
uint64_t bt_kvt_windows_floor(const bt_kvt_t *kvt);

/* kvt_arrive.c */
/**
 * Network data for a window: is there a buffer for it?
 * @return where to put all of piece.bytes, with bt_kvt_window_landed() to
 *         follow; NULL = throw it away (counted).
 */
uint8_t *bt_kvt_window_take(bt_kvt_t *kvt, const void *header,
                            size_t header_bytes, uint64_t data_bytes,
                            bt_kvt_piece_t *piece_p,
                            bt_kvt_window_t **window_p);
void bt_kvt_window_landed(bt_kvt_window_t *window, uint64_t offset,
                          uint64_t bytes, bool ok);
/** bt_kvt_window_landed(), at once or later, for bytes that came to the host:
 *  put them there. */
void bt_kvt_window_put(bt_kvt_window_t *window, uint8_t *dst, const void *src,
                       uint64_t offset, uint64_t bytes);
void bt_kvt_window_message(bt_kvt_link_t *link, const bt_kvt_msg_t *msg);

/* kvt_verify.c */
/** Is @a hash, of what lies in the pool, the record's? Then it is proven; else
 *  the window failed. */
bool bt_kvt_window_prove(bt_kvt_window_t *window, const bt_kvt_record_t *record,
                         uint64_t hash);
/** Its result, once all is listed and proven, or listed and with a hole. */
void bt_kvt_window_decide(bt_kvt_window_t *window);
/** Verify up to *budget_p bytes. */
void bt_kvt_windows_verify(bt_kvt_t *kvt, size_t *budget_p);

/* kvt_xfer.c */
/** @a slot: as given to send_data(). */
void bt_kvt_xfer_sent(bt_kvt_xfer_t *xfer, uint64_t bytes, bt_kvt_slot_t *slot);
/** The device has copied for @a xfer, or (not BT_OK) failed to. */
void bt_kvt_xfer_fetched(bt_kvt_xfer_t *xfer, bt_status_t status);
/** It may be able to go on. */
void bt_kvt_xfer_wake(bt_kvt_xfer_t *xfer);
void bt_kvt_xfer_message(bt_kvt_link_t *link, const bt_kvt_msg_t *msg);
/** One step of its life; asserts that it is one. */
void bt_kvt_xfer_move(bt_kvt_xfer_t *xfer, bt_kvt_xfer_input_t input);
/** Decide the outcome, unless it is decided. */
void bt_kvt_xfer_end(bt_kvt_xfer_t *xfer, bt_status_t outcome);
/** The link is acknowledged: transfers may move. */
void bt_kvt_xfers_wake(bt_kvt_link_t *link);
/** Copy or send up to *budget_p bytes. */
void bt_kvt_xfers_move(bt_kvt_t *kvt, size_t *budget_p);
void bt_kvt_xfers_tick(bt_kvt_t *kvt);
/** Kept for another one, within limits; not while the transport closes. */
void bt_kvt_xfer_free(bt_kvt_xfer_t *xfer);

#endif
