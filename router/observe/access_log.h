/* SPDX-License-Identifier: Apache-2.0 */
/** @file access_log.h
 *
 * The file of --access-log: one line for each exchange that is over, answered
 * or left by its client. Never text of prompt or answer.
 *
 *     time=2026-11-22T14:03:07.123+00:00 id=0af7… client=127.0.0.1
 *     method=POST route=/v1/completions path=/v1/completions status=200
 *     model=tiny prompt=12 output=34 ttft_ms=31.250 total_ms=410.007
 *     prefill=prefill-0 decode=decode-1 finish=length         (in one line)
 *
 * All fields are in each line in this order, so that columns can be counted;
 * what is unknown is "-", and a value that holds a space, quote, backslash or
 * control character is a string as in JSON. With --log-format json a line is
 * one object with the same names; what is unknown is left out.
 *
 * Threads: one thread owns it.
 */
#ifndef BT_ROUTER_OBSERVE_ACCESS_LOG_H
#define BT_ROUTER_OBSERVE_ACCESS_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct bt_access_log bt_access_log_t;

/** An exchange that is over. Everything is borrowed; text may be NULL or ""
 *  where it is unknown. */
typedef struct bt_access {
    int64_t unix_ms; /**< its end */
    const char *id;  /**< X-Request-Id */
    const char *client;
    const char *method, *route, *path;
    uint32_t status; /**< 499: the client left before it was answered */
    const char *model;
    bool generated;              /**< a call that generates text, and began */
    uint64_t n_prompt, n_output; /**< tokens of all its choices */
    uint64_t first_us;           /**< to token #1 of any; 0 = none came */
    uint64_t total_us;
    const char *prefill, *decode; /**< workers, of the last attempt */
    const char *finish;           /**< stop, length, canceled, error */
    const char *tenant;
    const char *answer_id;   /**< of the call's answer */
    const uint8_t *trace_id; /**< 16 bytes; NULL or zeros: it has none */
} bt_access_t;

/** See bt_line_file_open(). @param [in] json  lines as objects */
BT_MUST_CHECK bt_status_t bt_access_log_open(const char *path, bool json,
                                             bt_access_log_t **log_p);
/** Writes what is left; warns when that fails. NULL is allowed. */
void bt_access_log_close(bt_access_log_t *log);

/** One line, in memory. */
void bt_access_log_add(bt_access_log_t *log, const bt_access_t *access);
/** See bt_line_file_flush(). @return lines lost since the last call */
uint64_t bt_access_log_flush(bt_access_log_t *log, uint64_t now_ms);
/** For SIGHUP: the file was moved aside. */
void bt_access_log_reopen(bt_access_log_t *log);

#endif
