/* SPDX-License-Identifier: Apache-2.0 */
/** @file framing.h
 *
 * gRPC's wire format within an HTTP/2 stream: messages with a prefix of five
 * bytes (compressed or not, length), timeouts, status codes and their text. No
 * sockets.
 *
 *     ┌─ 1 byte ─┬─ 4 bytes, big-endian ─┬──────────────┐
 *     │ 0 or 1   │ length                │ message      │ … again
 *     └──────────┴───────────────────────┴──────────────┘
 *
 * Threads: pure functions.
 * Source: the public document "gRPC over HTTP2".
 */
#ifndef BT_ROUTER_GRPC_FRAMING_H
#define BT_ROUTER_GRPC_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/text.h"

#define BT_GRPC_PREFIX_BYTES 5

typedef enum bt_grpc_code {
    BT_GRPC_OK = 0,
    BT_GRPC_CANCELLED = 1,
    BT_GRPC_UNKNOWN = 2,
    BT_GRPC_INVALID_ARGUMENT = 3,
    BT_GRPC_DEADLINE_EXCEEDED = 4,
    BT_GRPC_NOT_FOUND = 5,
    BT_GRPC_ALREADY_EXISTS = 6,
    BT_GRPC_PERMISSION_DENIED = 7,
    BT_GRPC_RESOURCE_EXHAUSTED = 8,
    BT_GRPC_FAILED_PRECONDITION = 9,
    BT_GRPC_UNIMPLEMENTED = 12,
    BT_GRPC_INTERNAL = 13,
    BT_GRPC_UNAVAILABLE = 14,
    BT_GRPC_UNAUTHENTICATED = 16,
} bt_grpc_code_t;

/** Returns the gRPC status code for an error with the given HTTP status. */
bt_grpc_code_t bt_grpc_code_of_http(int status);
/** Returns the nearest HTTP status, for logs and metrics that use HTTP
 *  statuses. */
int bt_grpc_http_of_code(bt_grpc_code_t code);

/** Splits a client's byte stream into messages. Zero-initialise, set limit;
 *  free with bt_grpc_reader_fini(). */
typedef struct bt_grpc_reader {
    size_t limit; /**< most bytes of one message, as transferred */
    uint8_t prefix[BT_GRPC_PREFIX_BYTES];
    size_t n_prefix;
    bool compressed;  /**< the current message is compressed */
    uint32_t length;  /**< length of the current message */
    bt_strbuf_t body; /**< received part of the message; memory grows with this
                         part, not with the announced length */
} bt_grpc_reader_t;

/**
 * Consumes bytes of the stream.
 *
 * @param [out] used_p  consumed bytes of @a data: all, unless a message ends
 *                      earlier
 * @retval BT_OK          a message is complete: bt_grpc_reader_take() it.
 * @retval BT_INPROGRESS  more bytes are needed.
 * @retval BT_ERR_TOO_LARGE    the message exceeds the limit; returned before
 *                           the message is read.
 * @retval BT_ERR_BAD_MESSAGE  the first byte is neither 0 nor 1
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_grpc_reader_feed(bt_grpc_reader_t *reader,
                                              const void *data, size_t bytes,
                                              size_t *used_p);
/** Moves the complete message to the caller; the next message may be read.
 *  @return true when the message is compressed */
bool bt_grpc_reader_take(bt_grpc_reader_t *reader, bt_strbuf_t *body_p);
/** True in the middle of a message. */
bool bt_grpc_reader_is_busy(const bt_grpc_reader_t *reader);
void bt_grpc_reader_fini(bt_grpc_reader_t *reader);

void bt_grpc_prefix_write(uint8_t prefix[BT_GRPC_PREFIX_BYTES], bool compressed,
                          uint32_t bytes);

/** Parses a grpc-timeout such as "100m": at most eight digits and a unit of H
 *  M S m u n.
 *  @param [out] us_p  rounded up
 *  @retval BT_OK, BT_ERR_INVALID_PARAM */
BT_MUST_CHECK bt_status_t bt_grpc_timeout_parse(const char *text,
                                                uint64_t *us_p);

/** Appends a text in the encoding of grpc-message: '%' and everything except
 *  printable ASCII as %XX. Truncates the output to @a most bytes. */
void bt_grpc_message_encode(const char *text, size_t most, bt_strbuf_t *out);

/** True for a content type of gRPC with protobuf. */
bool bt_grpc_is_content_type(const char *text);
/** True when a list such as "identity, deflate, gzip" contains gzip. */
bool bt_grpc_accepts_gzip(const char *list);

#endif
