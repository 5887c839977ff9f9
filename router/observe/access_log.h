/* SPDX-License-Identifier: Apache-2.0 */
/** @file access_log.h
 *
 * Writes the file of --access-log: one line for each exchange that is over,
 * whether answered or abandoned by the client. Never contains text of prompts
 * or answers.
 *
 *     time=2026-11-22T14:03:07.123+00:00 id=0af7… client=127.0.0.1
 *     method=POST route=/v1/completions path=/v1/completions status=200
 *     model=tiny prompt=12 output=34 ttft_ms=31.250 total_ms=410.007
 *     prefill=prefill-0 decode=decode-1 finish=length         (in one line)
 *
 * Each line has all fields in this order, so that columns can be counted; an
 * unknown value is "-", and a value with a space, quote, backslash or control
 * character is a JSON string. A line of a batch has method=BATCH, its endpoint
 * as route, and the batch's path. With --log-format json, a line is one object
 * with these names; unknown values are left out.
 *
 * Threads: one thread owns it.
 */
#ifndef BT_ROUTER_OBSERVE_ACCESS_LOG_H
#define BT_ROUTER_OBSERVE_ACCESS_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct bt_access_log bt_access_log_t;

/** Exchange that is over. Everything is borrowed; an unknown text may be NULL
 *  or "". */
typedef struct bt_access {
    int64_t unix_ms; /**< end of the exchange */
    const char *id;  /**< X-Request-Id */
    const char *client;
    const char *method, *route, *path;
    uint32_t status; /**< 499: the client left before the answer */
    const char *model;
    bool generated;              /**< true: a generation call that began */
    uint64_t n_prompt, n_output; /**< tokens of all choices */
    uint64_t first_us; /**< to the first token of any choice; 0 = none */
    uint64_t total_us;
    const char *prefill, *decode; /**< workers of the last attempt */
    const char *finish;           /**< stop, length, canceled, error */
    const char *tenant;
    const char *answer_id;   /**< id of the call's answer */
    const uint8_t *trace_id; /**< 16 bytes; NULL or zeros: none */
} bt_access_t;

/** Opens the log; see bt_append_log_open().
 *  @param [in] json  lines as JSON objects */
BT_MUST_CHECK bt_status_t bt_access_log_open(const char *path, bool json,
                                             bt_access_log_t **log_p);
/** Writes the remaining lines and closes the log; warns on failure. NULL is
 *  allowed. */
void bt_access_log_close(bt_access_log_t *log);

/** Adds one line, in memory. */
void bt_access_log_add(bt_access_log_t *log, const bt_access_t *access);
/** Writes pending lines; see bt_append_log_flush().
 *  @return lines lost since the last call */
uint64_t bt_access_log_flush(bt_access_log_t *log, uint64_t now_ms);
/** Reopens the path, for SIGHUP: the file was moved aside. */
void bt_access_log_reopen(bt_access_log_t *log);

#endif
