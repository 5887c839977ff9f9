/* SPDX-License-Identifier: Apache-2.0 */
/** @file kvt_wire.h
 *
 * Byte layouts of kvtransfer: fixed, little-endian, versioned, with a checksum
 * (against accidents; against attackers the tag of a message and the secret of
 * a piece). Every decoder accepts any bytes and reads none outside them;
 * decoded structures borrow from the input.
 *
 *     export      identity of a process, and how to reach its pool
 *     descriptor  one region: lease, grant, session, extents
 *     message     HELLO … BYE between two processes
 *     piece       header in front of data that goes over the network
 *
 * All but the piece have a fixed part with its length in front: readers skip
 * unknown fields at its end, so that fields can be added there. Any other
 * change of layout or meaning raises BT_KVT_WIRE_VERSION. A process that
 * speaks several versions lists them in its export, and uses the newest common
 * one.
 */
#ifndef BT_KVTRANSFER_KVT_WIRE_H
#define BT_KVTRANSFER_KVT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/crypt/key.h"
#include "kvtransfer/kvt.h"

#define BT_KVT_WIRE_VERSION 3u     /**< newest version of this build */
#define BT_KVT_WIRE_OLDEST  3u     /**< oldest version of this build */
#define BT_KVT_MAX_MSG      73728u /**< bytes; a HELLO holds an export */
#define BT_KVT_PIECE_BYTES  80u
/** Size of a region's random secret, which permits writing into it: the
 *  descriptor carries the secret over the control plane. */
#define BT_KVT_SECRET_BYTES 16u
/** Size of the random bytes of a link incarnation; the key of the writer's tags
 *  is derived from them. */
#define BT_KVT_RANDOM_BYTES     16u
#define BT_KVT_RECORD_BYTES     24u
#define BT_KVT_MAX_RECORD_RUNS  64u /**< limit of this build's reader */
#define BT_KVT_MAX_PART_RECORDS 1024u

/** Identity of a process on its host, to decide whether memory can be shared.
 */
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
    uint16_t oldest, newest; /**< supported versions */
    uint16_t transport;      /**< BT_KVT_TRANSPORT_ */
    /** Most KiB of a record sent to the exporting process over the network,
     *  each in one piece (see kvt_stage.h); 0 = BT_KVT_MAX_RECORD_BYTES, in
     *  pieces of any size. Every sender sends up to 256 KiB in one piece. */
    uint16_t record_kib;
    /** Most runs of the exporting process' pool in one directly written record;
     *  0 (field absent): 1. */
    uint32_t record_runs;
    /** BT_KVT_SHARED_BY_HANDLE: devices of this host open the pool by `handle`
     *  (kernels/copier.h), and `probe` stands at probe_offset from its
     *  beginning. 0 (also if the field is absent): not shared. */
    uint32_t shared;
    uint8_t handle[BT_COPIER_HANDLE_BYTES];
    uint64_t instance;
    uint64_t pool_bytes;
    uint64_t shm_base; /**< pool address in the exporting process; 0 = none */
    uint8_t probe[16]; /**< contents of the pool at probe_offset */
    uint64_t probe_offset; /**< bytes */
    bt_kvt_host_t host;
    bt_kvt_blob_t net_addr;
    bt_kvt_blob_t shm_file; /**< transport data by which peers open the pool */
    /** Addresses from which the exporting process connects: IPv6, IPv4 mapped,
     *  of BT_KVT_SOURCE_BYTES each. */
    bt_kvt_blob_t sources;
} bt_kvt_export_info_t;

enum { BT_KVT_SHARED_BY_HANDLE = 1 };
enum { BT_KVT_TRANSPORT_UCX = 1 }; /* 2: scripted transport of the tests */

/** Encodes an export. @retval BT_ERR_TOO_LARGE  more than @a cap */
BT_MUST_CHECK bt_status_t bt_kvt_export_encode(const bt_kvt_export_info_t *info,
                                               void *buf, size_t cap,
                                               size_t *bytes_p);
/** Decodes an export. @retval BT_ERR_BAD_MESSAGE */
BT_MUST_CHECK bt_status_t bt_kvt_export_decode(const void *buf, size_t bytes,
                                               bt_kvt_export_info_t *info_p);

/** Identity of a lease at the receiver; all three must match. */
typedef struct bt_kvt_lease {
    uint64_t id;
    uint32_t generation;
    uint64_t grant; /**< the receiver's own count of regions, never reused */
} bt_kvt_lease_t;

typedef struct bt_kvt_desc {
    bt_kvt_lease_t lease;
    uint64_t receiver; /**< instance of the receiver */
    uint64_t session;  /**< link that may write directly unasked; 0 = none */
    uint8_t secret[BT_KVT_SECRET_BYTES];
    uint32_t n_extents;
    uint32_t cap; /**< decode: allocated extents */
    /** decode: owned by the caller, bt_free(); on input NULL with cap 0, or
     *  memory to reuse. */
    bt_kvt_extent_t *extents;
} bt_kvt_desc_t;

/** Encodes a descriptor. @retval BT_ERR_TOO_LARGE */
BT_MUST_CHECK bt_status_t bt_kvt_desc_encode(const bt_kvt_desc_t *desc,
                                             void *buf, size_t cap,
                                             size_t *bytes_p);
/** Decodes a descriptor.
 *  @param [in,out] desc  Unchanged on failure.
 *  @retval BT_ERR_BAD_MESSAGE  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_kvt_desc_decode(const void *buf, size_t bytes,
                                             bt_kvt_desc_t *desc);

typedef enum bt_kvt_msg_type {
    BT_KVT_MSG_HELLO = 1, /**< sender's first message: its export */
    BT_KVT_MSG_HELLO_ACK, /**< the sender may write (directly: `direct`) */
    BT_KVT_MSG_BEGIN,     /**< sender: request to write directly */
    BT_KVT_MSG_BEGIN_ACK, /**< receiver: status of a BEGIN */
    BT_KVT_MSG_PART,    /**< part of the manifest; the last one has the note */
    BT_KVT_MSG_RESULT,  /**< status of the whole region */
    BT_KVT_MSG_CANCEL,  /**< sender: nothing more will be written */
    BT_KVT_MSG_REVOKE,  /**< receiver: stop writing */
    BT_KVT_MSG_CONFIRM, /**< sender: stopped writing, after a REVOKE */
    BT_KVT_MSG_PING,
    BT_KVT_MSG_PONG,
    BT_KVT_MSG_BYE, /**< this process writes nothing any more */
    BT_KVT_MSG_END_
} bt_kvt_msg_type_t;

/** True for messages sent before the reader knows the writer's random bytes. */
static inline bool bt_kvt_msg_greets(bt_kvt_msg_type_t type)
{
    return (type == BT_KVT_MSG_HELLO) || (type == BT_KVT_MSG_HELLO_ACK);
}

/** Manifest entry: bytes of the region within one pool run. */
typedef struct bt_kvt_record {
    uint64_t offset; /**< in the region */
    uint64_t bytes;
    uint64_t hash; /**< XXH3-64 with bt_kvt_record_seed(); from device to device
                      bt_device_hash() with that seed */
} bt_kvt_record_t;

/** Decoded message. Fields after the first three belong to the types named. */
typedef struct bt_kvt_msg {
    bt_kvt_msg_type_t type;
    uint64_t from;  /**< instance of the writer of this message */
    uint64_t nonce; /**< the writer's incarnation of this link, from 1 */

    bool direct;   /**< HELLO, HELLO_ACK, PART: through shared memory, or by the
                      sender's device */
    uint64_t to;   /**< HELLO, HELLO_ACK: instance of the reader */
    uint64_t echo; /**< HELLO_ACK: nonce of the HELLO */
    uint8_t random[BT_KVT_RANDOM_BYTES]; /**< HELLO, HELLO_ACK: random bytes of
                                            the writer */
    bt_kvt_blob_t export;                /**< HELLO */

    bt_kvt_lease_t lease; /**< BEGIN … CONFIRM */
    bt_status_t status;   /**< BEGIN_ACK, RESULT */
    uint64_t floor;       /**< RESULT, REVOKE: all grants below it are over */

    /* PART */
    bool last;
    uint32_t first_record, n_records;
    const void *records; /**< decode: bt_kvt_record_get() */
    uint64_t elapsed_us; /**< last: time with posted data in flight */
    uint32_t cpu; /**< direct: the sender goes on copying, on that processor
                     (from 1 on); 0: does not, or unknown */
    bt_kvt_blob_t note; /**< last */
} bt_kvt_msg_t;

/** Encodes a message. A PART takes `records` as an array of bt_kvt_record_t.
 *  @param key  key of the tag; see bt_kvt_link_key()
 *  @retval BT_ERR_TOO_LARGE */
BT_MUST_CHECK bt_status_t bt_kvt_msg_encode(const bt_kvt_msg_t *msg,
                                            const uint8_t key[BT_KEY_BYTES],
                                            void *buf, size_t cap,
                                            size_t *bytes_p);
/** Decodes a message without authenticating it; see bt_kvt_msg_is_proven().
 *  @retval BT_ERR_BAD_MESSAGE */
BT_MUST_CHECK bt_status_t bt_kvt_msg_decode(const void *buf, size_t bytes,
                                            bt_kvt_msg_t *msg_p);
/** True when the tag of the decoded message @a buf was made with @a key. */
bool bt_kvt_msg_is_proven(const void *buf, size_t bytes,
                          const uint8_t key[BT_KEY_BYTES]);
/** Returns record @a i < n_records of a decoded PART. */
bt_kvt_record_t bt_kvt_record_get(const bt_kvt_msg_t *msg, uint32_t i);

typedef struct bt_kvt_piece {
    uint64_t from; /**< instance of the sender */
    bt_kvt_lease_t lease;
    uint64_t offset, bytes;              /**< in the region */
    uint8_t secret[BT_KVT_SECRET_BYTES]; /**< secret of the region */
} bt_kvt_piece_t;

/** Derives the key for the tags of messages. HELLO and HELLO_ACK use the KV
 *  plane's own key, as they carry the inputs for the others. The other messages
 *  use BLAKE2b-256, keyed with the plane key, of "baton 3 kv says", from, to,
 *  nonce (u64 each) and random of the writer's incarnation of the link. An
 *  instance never reuses a nonce, and no two processes have one instance, so no
 *  key is used twice. */
void bt_kvt_link_key(const uint8_t plane_key[BT_KEY_BYTES], uint64_t from,
                     uint64_t to, uint64_t nonce,
                     const uint8_t random[BT_KVT_RANDOM_BYTES],
                     uint8_t key[BT_KEY_BYTES]);

void bt_kvt_piece_encode(const bt_kvt_piece_t *piece,
                         uint8_t buf[BT_KVT_PIECE_BYTES]);
/** Decodes a piece header. @retval BT_ERR_BAD_MESSAGE */
BT_MUST_CHECK bt_status_t bt_kvt_piece_decode(const void *buf, size_t bytes,
                                              bt_kvt_piece_t *piece_p);

/** Returns the seed that ties a checksum to its place: XXH3-64 over the 32
 *  bytes (id, generation, offset, length), each a little-endian u64. The
 *  checksum of a record is XXH3-64 of its bytes with this seed. */
uint64_t bt_kvt_record_seed(const bt_kvt_lease_t *lease, uint64_t offset,
                            uint64_t bytes);

#endif
