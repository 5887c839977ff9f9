/* SPDX-License-Identifier: Apache-2.0 */
/** @file pb.h
 *
 * Reads and writes protobuf messages, as they are generated from proto/.
 *
 * A message of a few bytes may need much memory when it is parsed (each empty
 * submessage is a structure), so parsing has a memory budget per message.
 *
 * Threads: pure functions.
 */
#ifndef BT_ROUTER_GRPC_PB_H
#define BT_ROUTER_GRPC_PB_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "common/repository/repository.h"
#include "router/observe/metrics.h"

/** Memory budget for parsing a message: a multiple of its bytes, plus a
 *  constant. */
#define BT_PB_BUDGET_FACTOR 8u
#define BT_PB_BUDGET_BYTES  ((size_t)64 * 1024)

/** Memory budget for parsing one message. If a field is set to NULL, its
 *  memory is not freed with the message; free it with bt_free(). */
typedef struct bt_pb_budget {
    ProtobufCAllocator allocator;
    size_t left;
    bool refused; /**< budget exceeded, or memory short */
} bt_pb_budget_t;

/** Initialises the budget for a message of the given size. */
void bt_pb_budget_init(bt_pb_budget_t *budget, size_t message_bytes);
/** Parses a message.
 *  @param [out] message_p  free with bt_pb_free() and @a room
 *  @retval BT_OK
 *  @retval BT_ERR_TOO_LARGE    The message exceeds the budget, or memory is
 *                            short.
 *  @retval BT_ERR_BAD_MESSAGE  The bytes are not a valid message. */
BT_MUST_CHECK bt_status_t bt_pb_read(bt_pb_budget_t *budget,
                                     const ProtobufCMessageDescriptor *what,
                                     const void *data, size_t bytes,
                                     ProtobufCMessage **message_p);
void bt_pb_free(bt_pb_budget_t *budget, ProtobufCMessage *message);
/** Casts away const, which protobuf-c's messages lack: for text that is only
 *  read. NULL becomes "". */
char *bt_pb_text(const char *borrowed);
/** Appends the bytes of a message; errors are recorded in the buffer's
 *  status. */
void bt_pb_write(const ProtobufCMessage *message, bt_strbuf_t *out);

/* ---- memory for building a message ---- */

/** Memory for building a message; all of it is freed at once.
 *  Zero-initialise. */
typedef struct bt_pb_scratch {
    struct bt_pb_block *blocks;
    bool failed; /**< memory was short: the message must not be used */
} bt_pb_scratch_t;

/** Allocates zeroed memory.
 *  @return NULL: this or an earlier allocation failed */
void *bt_pb_scratch_take(bt_pb_scratch_t *scratch, size_t n, size_t size);
void bt_pb_scratch_fini(bt_pb_scratch_t *scratch);

/* ---- pb_model.c: a model's description and statistics ----
 *
 * The messages live in the scratch memory and borrow the model's strings. */

/** Makes a ModelMetadataResponse.
 *  @return NULL: memory is short */
ProtobufCMessage *bt_pb_metadata(bt_pb_scratch_t *scratch,
                                 const bt_repo_model_t *model,
                                 const char *version);
/** Makes a ModelConfigResponse.
 *  @return NULL: memory is short */
ProtobufCMessage *bt_pb_config(bt_pb_scratch_t *scratch,
                               const bt_repo_model_t *model, bool decoupled);
/** Makes a ModelStatistics.
 *  @return NULL: memory is short */
ProtobufCMessage *bt_pb_statistics(bt_pb_scratch_t *scratch, const char *name,
                                   const char *version,
                                   const bt_statistics_t *statistics);

#endif
