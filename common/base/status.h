/* SPDX-License-Identifier: Apache-2.0 */
/** @file status.h
 *
 * Return type of everything that can fail.
 */
#ifndef BT_COMMON_BASE_STATUS_H
#define BT_COMMON_BASE_STATUS_H

/* Grouped by the largest thing a failure breaks, so a caller can decide from
 * the range alone: fail one request, drop one peer, or stop the process.
 * The numbers cross the wire: never renumber, only add. */
#define BT_STATUS_MAP(X)                                    \
    X(OK, 0, "ok")                                          \
    X(INPROGRESS, 1, "still in progress")                   \
    /* -1 .. -39: this request only */                      \
    X(ERR_INVALID_PARAM, -1, "invalid parameter")           \
    X(ERR_OVERFLOW, -2, "size does not fit")                \
    X(ERR_NO_BLOCKS, -3, "no free KV blocks")               \
    X(ERR_CANCELED, -4, "canceled")                         \
    X(ERR_NOT_FOUND, -5, "not found")                       \
    X(ERR_UNSUPPORTED, -6, "not supported")                 \
    X(ERR_BUSY, -7, "busy, try again later")                \
    X(ERR_TIMED_OUT, -8, "timed out")                       \
    X(ERR_TOO_LARGE, -9, "too large")                       \
    X(ERR_CORRUPT, -10, "data does not match its checksum") \
    X(ERR_STALE, -11, "generation is over")                 \
    X(ERR_EXISTS, -12, "already exists")                    \
    /* -40 .. -59: this peer connection */                  \
    X(ERR_PEER_LOST, -40, "peer lost")                      \
    X(ERR_BAD_MESSAGE, -41, "malformed message")            \
    X(ERR_MISMATCH, -42, "peer does not match")             \
    X(ERR_UNAUTHORIZED, -43, "cluster key not proven")      \
    /* -60 .. -79: this process */                          \
    X(ERR_NO_MEMORY, -60, "out of memory")                  \
    X(ERR_DEVICE, -61, "accelerator failure")               \
    X(ERR_NO_DEVICE, -62, "no device")                      \
    X(ERR_IO, -63, "input/output error")                    \
    X(ERR_BAD_FILE, -64, "malformed file")                  \
    X(ERR_INTERNAL, -65, "internal error")

typedef enum bt_status {
#define BT_STATUS_ENUM(name, value, text) BT_##name = (value),
    BT_STATUS_MAP(BT_STATUS_ENUM)
#undef BT_STATUS_ENUM
} bt_status_t;

#define BT_MUST_CHECK __attribute__((warn_unused_result))

/**
 * Converts errno after bind() or listen() on an address.
 * @retval BT_ERR_EXISTS        in use
 * @retval BT_ERR_NOT_FOUND     not an address of this machine
 * @retval BT_ERR_UNAUTHORIZED  this user may not use it
 * @retval BT_ERR_IO            anything else
 */
bt_status_t bt_status_of_bind(int error_number);

/** Returns static English text; never NULL, also for unknown values. */
const char *bt_status_str(bt_status_t status);

#endif
