/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_wire.h
 *
 * The byte layouts of kvtransfer: fixed, little-endian, versioned, with a
 * checksum (against accidents; against strangers the tag of a message and the
 * secret of a piece). Every decoder takes any bytes and reads none outside
 * them; decoded structures borrow from the input.
 *
 *     export      who a process is and how to reach its pool
 *     descriptor  one window: lease, grant, session, extents
 *     message     HELLO … BYE between two processes
 *     piece       header in front of data that goes over the network
 *
 * All but the piece have a fixed part that says how long it is: readers pass
 * over what they do not know at its end, so that fields can be added there. Any
 * other change of layout or meaning raises BT_KVT_WIRE_VERSION. Who speaks
 * several versions says so in its export, and uses the newest that its peer
 * speaks too.
 */
#ifndef BT_KVTRANSFER_KVT_WIRE_H
#define BT_KVTRANSFER_KVT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/crypt/key.h"
#include "kvtransfer/kvt.h"

#define BT_KVT_WIRE_VERSION 3u     /**< the newest that this build speaks */
#define BT_KVT_WIRE_OLDEST  3u     /**< ...and the oldest */
#define BT_KVT_MAX_MSG      73728u /**< bytes; a HELLO holds an export */
#define BT_KVT_PIECE_BYTES  80u
/** Random for each window: who may write into it knows it from the control
 *  plane, which carries the descriptor. */
#define BT_KVT_SECRET_BYTES 16u
/** Drawn for each incarnation of a link; the writer's tags are under a key made
 *  of it. */
#define BT_KVT_RANDOM_BYTES     16u
#define BT_KVT_RECORD_BYTES     24u
#define BT_KVT_MAX_RECORD_RUNS  64u /**< that this build reads */
#define BT_KVT_MAX_PART_RECORDS 1024u

/** Where a process runs, to tell whether memory can be shared with it. */
typedef struct bt_kvt_host {
    uint8_t boot_id[16];
    uint64_t ipc_ns;
    uint64_t pid_ns;
    uint64_t start_time; /**< field 22 of /proc/PID/stat, clock ticks */
    uint32_t pid;
    uint32_t uid;
} bt_kvt_host_t;

#define BT_KVT_SOURCE_BYTES 16u
#define BT_KVT_MAX_SOURCES  64u

typedef struct bt_kvt_blob {
    const void *data;
    uint32_t bytes;
} bt_kvt_blob_t;

typedef struct bt_kvt_export_info {
    uint16_t oldest, newest; /**< versions that it speaks */
    uint16_t transport;      /**< BT_KVT_TRANSPORT_ */
    /** Most KiB of a record that goes there over the network, each in one
     *  piece (see kvt_stage.h); 0 = BT_KVT_MAX_RECORD_BYTES, in pieces as the
     *  sender likes. Up to 256 KiB are one piece of every sender. */
    uint16_t record_kib;
    /** Most runs of its pool that a record may lie in which is written
     *  directly; 0, of who does not say: 1. */
    uint32_t record_runs;
    /** BT_KVT_SHARED_BY_HANDLE: devices of this host open the pool by `handle`
     *  (kernels/copier.h), and `probe` stands at probe_offset behind its
     *  beginning. 0, of who does not say: none does. */
    uint32_t shared;
    uint8_t handle[BT_COPIER_HANDLE_BYTES];
    uint64_t instance;
    uint64_t pool_bytes;
    uint64_t shm_base;     /**< address of the pool in its process; 0 = none */
    uint8_t probe[16];     /**< stands at the pool + probe_offset */
    uint64_t probe_offset; /**< bytes */
    bt_kvt_host_t host;
    bt_kvt_blob_t net_addr;
    bt_kvt_blob_t shm_file; /**< the transport's: what opens its pool */
    /** Where its connections may come from: IPv6 addresses, IPv4 mapped, of
     *  BT_KVT_SOURCE_BYTES each. */
    bt_kvt_blob_t sources;
} bt_kvt_export_info_t;

enum { BT_KVT_SHARED_BY_HANDLE = 1 };
enum { BT_KVT_TRANSPORT_UCX = 1 }; /* 2: the scripted one of the tests */

/** @retval BT_ERR_TOO_LARGE  more than @a cap */
BT_MUST_CHECK bt_status_t bt_kvt_export_encode(const bt_kvt_export_info_t *info,
                                               void *buf, size_t cap,
                                               size_t *bytes_p);
/** @retval BT_ERR_BAD_MESSAGE */
BT_MUST_CHECK bt_status_t bt_kvt_export_decode(const void *buf, size_t bytes,
                                               bt_kvt_export_info_t *info_p);

/** A lease as the receiver knows it; all three must match. */
typedef struct bt_kvt_lease {
    uint64_t id;
    uint32_t generation;
    uint64_t grant; /**< the receiver's own count of windows, never reused */
} bt_kvt_lease_t;

typedef struct bt_kvt_desc {
    bt_kvt_lease_t lease;
    uint64_t receiver; /**< instance */
    uint64_t session;  /**< link that may write directly unasked; 0 = none */
    uint8_t secret[BT_KVT_SECRET_BYTES];
    uint32_t n_extents;
    uint32_t cap; /**< decode: of extents */
    /** decode: owned by the caller, bt_free(); on input NULL with cap 0, or
     *  memory that is used again. */
    bt_kvt_extent_t *extents;
} bt_kvt_desc_t;

/** @retval BT_ERR_TOO_LARGE */
BT_MUST_CHECK bt_status_t bt_kvt_desc_encode(const bt_kvt_desc_t *desc,
                                             void *buf, size_t cap,
                                             size_t *bytes_p);
/** @param [in,out] desc  After a failure as before.
 *  @retval BT_ERR_BAD_MESSAGE  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_kvt_desc_decode(const void *buf, size_t bytes,
                                             bt_kvt_desc_t *desc);
/** Room for @a n extents. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_kvt_desc_reserve(bt_kvt_desc_t *desc, uint32_t n);

typedef enum bt_kvt_msg_type {
    BT_KVT_MSG_HELLO = 1, /**< a sender's first word: who it is, its export */
    BT_KVT_MSG_HELLO_ACK, /**< may write from now on (directly: `direct`) */
    BT_KVT_MSG_BEGIN,     /**< sender asks before it writes directly */
    BT_KVT_MSG_BEGIN_ACK, /**< status */
    BT_KVT_MSG_PART,      /**< a piece of the manifest; the last has the note */
    BT_KVT_MSG_RESULT,    /**< status of the whole window */
    BT_KVT_MSG_CANCEL,    /**< sender: nothing more will be written */
    BT_KVT_MSG_REVOKE,    /**< receiver: stop writing... */
    BT_KVT_MSG_CONFIRM,   /**< ...sender: stopped */
    BT_KVT_MSG_PING,
    BT_KVT_MSG_PONG,
    BT_KVT_MSG_BYE, /**< this process writes nothing any more */
    BT_KVT_MSG_END_
} bt_kvt_msg_type_t;

/** One entry of a manifest: bytes of the window within one pool run. */
typedef struct bt_kvt_record {
    uint64_t offset; /**< in the window */
    uint64_t bytes;
    uint64_t hash; /**< XXH3-64 with bt_kvt_record_seed(); from device to
                        device bt_device_hash() with it */
} bt_kvt_record_t;

/** Fields beyond the first three are of the types named. */
typedef struct bt_kvt_msg {
    bt_kvt_msg_type_t type;
    uint64_t from;  /**< instance of the writer of this message */
    uint64_t nonce; /**< the writer's incarnation of this link, from 1 */

    bool direct;   /**< HELLO, HELLO_ACK, PART: through shared memory, or by
                        the sender's device */
    uint64_t to;   /**< HELLO, HELLO_ACK: instance of the reader */
    uint64_t echo; /**< HELLO_ACK: nonce of the HELLO */
    uint8_t random[BT_KVT_RANDOM_BYTES]; /**< HELLO, HELLO_ACK: the writer's */
    bt_kvt_blob_t export;                /**< HELLO */

    bt_kvt_lease_t lease; /**< BEGIN … CONFIRM */
    bt_status_t status;   /**< BEGIN_ACK, RESULT */
    uint64_t floor;       /**< RESULT, REVOKE: every grant below it is over */

    /* PART */
    bool last;
    uint32_t first_record, n_records;
    const void *records; /**< decode: bt_kvt_record_get() */
    uint64_t elapsed_us; /**< last: while posted data was under way */
    uint32_t cpu; /**< direct: the sender copies on, on that processor (from 1
                       on); 0: not, or unknown */
    bt_kvt_blob_t note; /**< last */
} bt_kvt_msg_t;

/** Encoding a PART takes `records` as an array of bt_kvt_record_t.
 *  @param key  of the tag; see bt_kvt_link_key()
 *  @retval BT_ERR_TOO_LARGE */
BT_MUST_CHECK bt_status_t bt_kvt_msg_encode(const bt_kvt_msg_t *msg,
                                            const uint8_t key[BT_KEY_BYTES],
                                            void *buf, size_t cap,
                                            size_t *bytes_p);
/** What it says; who says so is bt_kvt_msg_is_proven()'s.
 *  @retval BT_ERR_BAD_MESSAGE */
BT_MUST_CHECK bt_status_t bt_kvt_msg_decode(const void *buf, size_t bytes,
                                            bt_kvt_msg_t *msg_p);
/** Is the tag of the decoded message @a buf made with @a key? */
bool bt_kvt_msg_is_proven(const void *buf, size_t bytes,
                          const uint8_t key[BT_KEY_BYTES]);
/** Record @a i < n_records of a decoded PART. */
bt_kvt_record_t bt_kvt_record_get(const bt_kvt_msg_t *msg, uint32_t i);

typedef struct bt_kvt_piece {
    uint64_t from; /**< instance */
    bt_kvt_lease_t lease;
    uint64_t offset, bytes;              /**< in the window */
    uint8_t secret[BT_KVT_SECRET_BYTES]; /**< the window's */
} bt_kvt_piece_t;

/** Which key the tags of messages are made with. HELLO and HELLO_ACK: the KV
 *  plane's own, as they tell what is needed for the others. Those: BLAKE2b-256
 *  under that one of "baton 3 kv says", from, to, nonce (u64 each) and random
 *  of the writer's incarnation of the link. A nonce is never used twice by one
 *  instance, nor an instance by two processes, so neither is this key. */
void bt_kvt_link_key(const uint8_t plane_key[BT_KEY_BYTES], uint64_t from,
                     uint64_t to, uint64_t nonce,
                     const uint8_t random[BT_KVT_RANDOM_BYTES],
                     uint8_t key[BT_KEY_BYTES]);

void bt_kvt_piece_encode(const bt_kvt_piece_t *piece,
                         uint8_t buf[BT_KVT_PIECE_BYTES]);
/** @retval BT_ERR_BAD_MESSAGE */
BT_MUST_CHECK bt_status_t bt_kvt_piece_decode(const void *buf, size_t bytes,
                                              bt_kvt_piece_t *piece_p);

/** Seed that ties a checksum to its place: XXH3-64 over the 32 bytes (id,
 *  generation, offset, length), each a little-endian u64. The checksum of a
 *  record is XXH3-64 of its bytes with this seed. */
uint64_t bt_kvt_record_seed(const bt_kvt_lease_t *lease, uint64_t offset,
                            uint64_t bytes);

#endif
