/* SPDX-License-Identifier: Apache-2.0 */
/** @file orders.h
 *
 * What is said on the launcher's socket, BT_ORDERS_SOCKET in the run directory.
 * Lines of words; a word's bytes beyond printable ASCII, and `%`, are written
 * %XX. The client sends requests and reads events:
 *
 *     status                        ─▶  launcher..., model..., process..., ok
 *     watch                         ─▶  the same; after the ok a line for each
 *                                       change, until the client leaves
 *     start|stop|restart NAME       ─▶  ok | error TEXT
 *     drain NAME                    ─▶  the same, once the process has ended
 *     load MODEL[=PATH] [prefill=N] [decode=N]
 *     unload MODEL
 *     role NAME prefill|decode|both
 *
 *     launcher pid=7 version=0.1.0 run_dir=/tmp/baton-a1b2c3 state=running
 *     model name=a path=/m/a.gguf prefill=1 decode=1 state=loaded
 *     process name=a.decode-0 program=decode role=both model=a state=ready
 *             pid=9 restarts=0 since_ms=1700000000000
 *             why=0%20of%201%20routers%20...
 *
 * role: the launcher tells its routers, which tell the worker, which goes on
 * serving and says when it is so.
 *
 * With `wait=yes` after it an order is answered when it has come true: what
 * starts is ready, what stops has ended. Without, when it was taken. A client
 * may send several; they are answered one after the other.
 *
 * A key that is missing has its default (0, "", the first choice); unknown keys
 * and lines with unknown words are skipped, so that both sides may be of
 * different versions.
 * Expected workers of a model and role: its processes that are not stopped and
 * are meant to be of it.
 *
 * Pure: text in, records out. Every byte is checked. The client is in client.h.
 */
#ifndef BT_COMMON_ORDERS_ORDERS_H
#define BT_COMMON_ORDERS_ORDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/strbuf.h"

#define BT_ORDERS_SOCKET        "orders"
#define BT_ORDERS_LINE_BYTES    16384 /**< longest line, its newline included */
#define BT_ORDERS_NAME_BYTES    64    /**< with the zero byte, as all below */
#define BT_ORDERS_PATH_BYTES    4096
#define BT_ORDERS_ADDRESS_BYTES 128
#define BT_ORDERS_TEXT_BYTES    2048
#define BT_ORDERS_WHY_BYTES     1280
#define BT_ORDERS_UNSET         UINT32_MAX /**< a count that was not given */

typedef enum bt_orders_verb {
    BT_ORDERS_STATUS,
    BT_ORDERS_WATCH,
    BT_ORDERS_START,
    BT_ORDERS_STOP,
    BT_ORDERS_DRAIN,
    BT_ORDERS_RESTART,
    BT_ORDERS_LOAD,
    BT_ORDERS_UNLOAD,
    BT_ORDERS_ROLE,
} bt_orders_verb_t;

typedef enum bt_orders_program {
    BT_ORDERS_ROUTER,
    BT_ORDERS_PREFILL,
    BT_ORDERS_DECODE,
    BT_ORDERS_STANDBY, /**< no worker yet: it waits for the place of one */
} bt_orders_program_t;

/** What a worker is meant to be: bits, as bt_role_t in common/wire/wire.h. */
typedef enum bt_orders_role {
    BT_ORDERS_NO_ROLE, /**< a router; an older launcher does not say it */
    BT_ORDERS_ROLE_PREFILL,
    BT_ORDERS_ROLE_DECODE,
    BT_ORDERS_ROLE_BOTH,
} bt_orders_role_t;

/** Of a process. */
typedef enum bt_orders_state {
    BT_ORDERS_STOPPED,  /**< by an order, or given up; stays so */
    BT_ORDERS_STARTING, /**< runs, has not said that it is ready */
    BT_ORDERS_READY,
    BT_ORDERS_STOPPING, /**< finishes its requests */
    BT_ORDERS_WAITING,  /**< ended by itself, starts again after a pause */
} bt_orders_state_t;

typedef struct bt_orders_request {
    bt_orders_verb_t verb;
    bool wait;                       /**< answer when it has come true */
    char name[BT_ORDERS_NAME_BYTES]; /**< of a process or model, or "" */
    char path[BT_ORDERS_PATH_BYTES]; /**< load: "" = not given */
    uint32_t prefill, decode;        /**< load: or BT_ORDERS_UNSET */
    bt_orders_role_t role;           /**< role */
} bt_orders_request_t;

typedef struct bt_orders_launcher {
    uint64_t pid;
    char version[BT_ORDERS_NAME_BYTES];
    char run_dir[BT_ORDERS_PATH_BYTES];
    uint32_t stopping; /**< 0 running, 1 stopping */
} bt_orders_launcher_t;

typedef struct bt_orders_process {
    char name[BT_ORDERS_NAME_BYTES];
    uint32_t program;                 /**< bt_orders_program_t */
    uint32_t role;                    /**< bt_orders_role_t */
    char model[BT_ORDERS_NAME_BYTES]; /**< "" of a router */
    uint32_t state;                   /**< bt_orders_state_t */
    uint64_t pid;                     /**< 0 = does not run */
    uint64_t restarts;                /**< by itself, since the launch */
    uint64_t since_ms;                /**< Unix time of its state's begin */
    /** A router's, when it said them, else ""; http begins with https:// where
     *  it speaks TLS. */
    char http[BT_ORDERS_ADDRESS_BYTES], metrics[BT_ORDERS_ADDRESS_BYTES];
    /** What keeps it from serving, for a person; "": nothing that is known. */
    char why[BT_ORDERS_WHY_BYTES];
} bt_orders_process_t;

typedef struct bt_orders_model {
    char name[BT_ORDERS_NAME_BYTES];
    char path[BT_ORDERS_PATH_BYTES];
    uint64_t prefill, decode, both; /**< workers by role, running or not */
    uint32_t unloaded;              /**< 0 loaded, 1 unloaded */
} bt_orders_model_t;

typedef enum bt_orders_event_kind {
    BT_ORDERS_EVENT_OK,
    BT_ORDERS_EVENT_ERROR,
    BT_ORDERS_EVENT_LAUNCHER,
    BT_ORDERS_EVENT_MODEL,
    BT_ORDERS_EVENT_PROCESS,
} bt_orders_event_kind_t;

typedef struct bt_orders_event {
    bt_orders_event_kind_t kind;
    union {
        char error[BT_ORDERS_TEXT_BYTES];
        bt_orders_launcher_t launcher;
        bt_orders_model_t model;
        bt_orders_process_t process;
    } u;
} bt_orders_event_t;

/**
 * Read a request from words, such as a command line's.
 *
 * @param [in]  words  The verb, then what stands behind it.
 * @param [out] why    What is wrong, for a person; names what there is.
 * @retval BT_ERR_INVALID_PARAM  why was written, *request_p was not.
 */
BT_MUST_CHECK bt_status_t bt_orders_request_from_words(
    uint32_t n_words, const char *const *words, bt_orders_request_t *request_p,
    char *why, size_t why_bytes);

/** The same from one line without its newline. */
BT_MUST_CHECK bt_status_t bt_orders_request_read(const char *line, size_t n,
                                                 bt_orders_request_t *request_p,
                                                 char *why, size_t why_bytes);

/** Append the line, with its newline. Errors stick in @a out. */
void bt_orders_request_write(const bt_orders_request_t *request,
                             bt_strbuf_t *out);

/**
 * Read one line without its newline.
 *
 * @retval BT_ERR_UNSUPPORTED  A kind of line, or a word in it, that is not
 *                             known: skip it.
 * @retval BT_ERR_BAD_MESSAGE  Not a line of this protocol: leave.
 */
BT_MUST_CHECK bt_status_t bt_orders_event_read(const char *line, size_t n,
                                               bt_orders_event_t *event_p);

/** Append the line, with its newline. Errors stick in @a out. */
void bt_orders_event_write(const bt_orders_event_t *event, bt_strbuf_t *out);

/** The word of a verb, program, role or state; never NULL. */
const char *bt_orders_verb_name(bt_orders_verb_t verb);
const char *bt_orders_program_name(uint32_t program);
const char *bt_orders_role_name(uint32_t role);
const char *bt_orders_state_name(uint32_t state);

#endif
