/* SPDX-License-Identifier: Apache-2.0 */
/** @file pb.h
 *
 * Messages of the protocol, in and out. Those that are made from proto/ stand
 * in pb_messages.h, whose includers are the files named pb_*.c and the
 * services.
 *
 * A message of a few bytes may ask for much memory when it is read (each empty
 * submessage is a structure here), so it is read from a room of its own.
 *
 * Threads: pure functions.
 */
#ifndef BT_ROUTER_GRPC_PB_H
#define BT_ROUTER_GRPC_PB_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

#include "common/base/status.h"
#include "common/base/strbuf.h"

/** Room for reading one message: so many times its bytes, and some. */
#define BT_PB_ROOM_FACTOR 8u
#define BT_PB_ROOM_BYTES  ((size_t)64 * 1024)

/** What a message's memory is taken from. Memory of a field that is set to NULL
 *  stays, and is then freed with bt_free(). */
typedef struct bt_pb_room {
    ProtobufCAllocator allocator;
    size_t left;
    bool refused; /**< there was not enough */
} bt_pb_room_t;

/** For a message of so many bytes. */
void bt_pb_room_init(bt_pb_room_t *room, size_t message_bytes);
/** @param [out] message_p  bt_pb_free() it with the same room
 *  @retval BT_OK
 *  @retval BT_ERR_TOO_LARGE    It wants more than the room, or memory is short.
 *  @retval BT_ERR_BAD_MESSAGE  These bytes are no such message. */
BT_MUST_CHECK bt_status_t bt_pb_read(bt_pb_room_t *room,
                                     const ProtobufCMessageDescriptor *what,
                                     const void *data, size_t bytes,
                                     ProtobufCMessage **message_p);
void bt_pb_free(bt_pb_room_t *room, ProtobufCMessage *message);
/** protobuf-c has no const: a text that is written from, NULL for "". */
char *bt_pb_text(const char *borrowed);
/** Append its bytes; the buffer has the status. */
void bt_pb_write(const ProtobufCMessage *message, bt_strbuf_t *out);

/* ---- memory of a message that is being made ---- */

/** All of it is freed at once. Zero-initialise. */
typedef struct bt_pb_scratch {
    struct bt_pb_block *blocks;
    bool failed; /**< memory was short: the message is not to be used */
} bt_pb_scratch_t;

/** Zeroed. @return NULL: memory is short, now or before */
void *bt_pb_scratch_take(bt_pb_scratch_t *scratch, size_t n, size_t size);
void bt_pb_scratch_fini(bt_pb_scratch_t *scratch);

#endif
