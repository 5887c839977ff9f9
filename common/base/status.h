/* SPDX-License-Identifier: Apache-2.0 */
/** @file status.h
 *
 * Outcomes: status codes of functions, exit codes of programs, and assertions.
 */
#ifndef BT_COMMON_BASE_STATUS_H
#define BT_COMMON_BASE_STATUS_H

#include <stdbool.h>

/*
 * Assertions of our own invariants, never of outside input.
 */

void bt_assert_fail(const char *expr, const char *file, int line)
    __attribute__((noreturn));

/** Assertion that stays in release builds: only where continuing would leak
 *  or corrupt another tenant's data. */
#define BT_ASSERT_ALWAYS(expr) \
    ((expr) ? (void)0 : bt_assert_fail(#expr, __FILE__, __LINE__))

#ifdef NDEBUG
#define BT_ASSERT(expr) ((void)sizeof((expr) ? 1 : 0))
#else
#define BT_ASSERT(expr) BT_ASSERT_ALWAYS(expr)
#endif

#define BT_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/*
 * Return type of everything that can fail.
 */

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
    X(ERR_AMBIGUOUS, -13, "grammar is too ambiguous")       \
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

/*
 * Exit codes of Baton's programs, which show the parent process whether to
 * restart one. Numbers from 64 on are those of sysexits.h.
 *
 *     0         success, or stopped on request
 *     1         a failure that may pass: restart
 *     2         options cannot be understood or met           final
 *     70        stuck, or its device failed: restart
 *     78        this machine, model or file does not meet
 *               the options: not enough memory, unsupported
 *               architecture, no device, address in use, key
 *               file refused                                  final
 *     126, 127  no such program to execute                    final
 *
 * A final failure would repeat on a restart. That holds for a first start only:
 * what was available once (memory, an address) may come back.
 */

typedef enum bt_exit {
    BT_EXIT_OK = 0,
    BT_EXIT_FAILURE = 1,
    BT_EXIT_USAGE = 2,
    BT_EXIT_STUCK = 70,           /* EX_SOFTWARE */
    BT_EXIT_CONFIG = 78,          /* EX_CONFIG */
    BT_EXIT_CANNOT_EXECUTE = 126, /* as shells do */
    BT_EXIT_NO_SUCH_PROGRAM = 127,
} bt_exit_t;

/** Returns the exit code of a program whose start ended with @a status; OK
 *  and BT_ERR_CANCELED (stopped meanwhile) are no failure. */
int bt_exit_of_start(bt_status_t status);

/** True when a first start that ended with this code would end so again. */
bool bt_exit_is_final(int code);

#endif
