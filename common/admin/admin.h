/* SPDX-License-Identifier: Apache-2.0 */
/** @file orders.h
 *
 * Protocol of the launcher's control socket, BT_ADMIN_SOCKET in the run
 * directory. Lines of words; a word's bytes beyond printable ASCII, and `%`,
 * are written %XX. The client sends requests and reads events:
 *
 *     status                        ─▶  launcher..., model..., process..., ok
 *     watch                         ─▶  as status; after the ok a line for each
 *                                       change, until the client disconnects
 *     start|stop|restart NAME       ─▶  ok | error TEXT
 *     drain NAME                    ─▶  ok | error TEXT, once the process has
 *                                       ended
 *     load-model MODEL[=PATH] [prefill=N] [decode=N]
 *     unload-model MODEL
 *     role NAME prefill|decode|both
 *
 *     launcher pid=7 version=0.2.0 run_dir=/tmp/baton-a1b2c3 state=running
 *     model name=a path=/m/a.gguf prefill=1 decode=1 state=loaded
 *     process name=a.decode-0 program=decode role=both model=a state=ready
 *             pid=9 restarts=0 since_ms=1700000000000
 *             why=0%20of%201%20routers%20...
 *
 * role: the launcher notifies its routers, which notify the worker; the worker
 * keeps serving and reports when its role has changed.
 *
 * With `wait=yes` after it a request is answered when it is complete: a started
 * process is ready, a stopped one has ended. Without, when it is accepted. A
 * client may send several; they are answered in order.
 *
 * A missing key has its default (0, "", the first choice); unknown keys and
 * lines with unknown words are skipped, so that both sides may be of different
 * versions.
 *
 * Expected workers of a model and role: its processes that are not stopped and
 * are assigned that role.
 *
 * Pure: text in, records out. Every byte is checked. The client is in client.h.
 */
#ifndef BT_COMMON_ADMIN_ADMIN_H
#define BT_COMMON_ADMIN_ADMIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/strbuf.h"

#define BT_ADMIN_SOCKET        "orders"
#define BT_ADMIN_LINE_BYTES    16384 /**< longest line, its newline included */
#define BT_ADMIN_NAME_BYTES    64    /**< with the zero byte, as all below */
#define BT_ADMIN_PATH_BYTES    4096
#define BT_ADMIN_ADDRESS_BYTES 128
#define BT_ADMIN_TEXT_BYTES    2048
#define BT_ADMIN_WHY_BYTES     1280
#define BT_ADMIN_UNSET         UINT32_MAX /**< a count that was not given */

typedef enum bt_admin_verb {
    BT_ADMIN_VERB_STATUS,
    BT_ADMIN_VERB_WATCH,
    BT_ADMIN_VERB_START,
    BT_ADMIN_VERB_STOP,
    BT_ADMIN_VERB_DRAIN,
    BT_ADMIN_VERB_RESTART,
    BT_ADMIN_VERB_LOAD,
    BT_ADMIN_VERB_UNLOAD,
    BT_ADMIN_VERB_ROLE,
} bt_admin_verb_t;

typedef enum bt_admin_program {
    BT_ADMIN_PROGRAM_ROUTER,
    BT_ADMIN_PROGRAM_PREFILL,
    BT_ADMIN_PROGRAM_DECODE,
    BT_ADMIN_PROGRAM_STANDBY, /**< not a worker yet: waits to replace one */
} bt_admin_program_t;

/** Assigned role of a worker: bits, as bt_role_t in common/wire/wire.h. */
typedef enum bt_admin_role {
    BT_ADMIN_ROLE_NONE, /**< a router; an older launcher sends none */
    BT_ADMIN_ROLE_PREFILL,
    BT_ADMIN_ROLE_DECODE,
    BT_ADMIN_ROLE_BOTH,
} bt_admin_role_t;

/** State of a process. */
typedef enum bt_admin_process_state {
    BT_ADMIN_PROCESS_STOPPED,  /**< by request, or given up; stays stopped */
    BT_ADMIN_PROCESS_STARTING, /**< runs, has not reported ready */
    BT_ADMIN_PROCESS_READY,
    BT_ADMIN_PROCESS_STOPPING, /**< finishes its requests */
    BT_ADMIN_PROCESS_WAITING, /**< ended unexpectedly, restarts after a pause */
} bt_admin_process_state_t;

/** Request of a client. */
typedef struct bt_admin_command {
    bt_admin_verb_t verb;
    bool wait;                      /**< answer when complete */
    char name[BT_ADMIN_NAME_BYTES]; /**< name of a process or model, or "" */
    char path[BT_ADMIN_PATH_BYTES]; /**< load: "" = not given */
    uint32_t prefill, decode;       /**< load: or BT_ADMIN_UNSET */
    bt_admin_role_t role;           /**< role */
} bt_admin_command_t;

/** Launcher of a `launcher` line. */
typedef struct bt_admin_launcher {
    uint64_t pid;
    char version[BT_ADMIN_NAME_BYTES];
    char run_dir[BT_ADMIN_PATH_BYTES];
    uint32_t stopping; /**< 0 running, 1 stopping */
} bt_admin_launcher_t;

/** Process of a `process` line. */
typedef struct bt_admin_process {
    char name[BT_ADMIN_NAME_BYTES];
    uint32_t program;                /**< bt_admin_program_t */
    uint32_t role;                   /**< bt_admin_role_t */
    char model[BT_ADMIN_NAME_BYTES]; /**< "" for a router */
    uint32_t state;                  /**< bt_admin_process_state_t */
    uint64_t pid;                    /**< 0 = not running */
    uint64_t restarts;               /**< automatic restarts, since the
                                          launch */
    uint64_t since_ms;               /**< Unix time when its state began */
    /** Addresses of a router, once reported, else ""; http begins with
     *  https:// if it speaks TLS. */
    char http[BT_ADMIN_ADDRESS_BYTES], metrics[BT_ADMIN_ADDRESS_BYTES];
    /** Reason why it does not serve, for people; "": none known. */
    char why[BT_ADMIN_WHY_BYTES];
} bt_admin_process_t;

/** Model of a `model` line. */
typedef struct bt_admin_model {
    char name[BT_ADMIN_NAME_BYTES];
    char path[BT_ADMIN_PATH_BYTES];
    uint64_t prefill, decode, both; /**< workers by role, running or not */
    uint32_t unloaded;              /**< 0 loaded, 1 unloaded */
} bt_admin_model_t;

typedef enum bt_admin_event_kind {
    BT_ADMIN_EVENT_OK,
    BT_ADMIN_EVENT_ERROR,
    BT_ADMIN_EVENT_LAUNCHER,
    BT_ADMIN_EVENT_MODEL,
    BT_ADMIN_EVENT_PROCESS,
} bt_admin_event_kind_t;

/** Event of the launcher. */
typedef struct bt_admin_event {
    bt_admin_event_kind_t kind;
    union {
        char error[BT_ADMIN_TEXT_BYTES];
        bt_admin_launcher_t launcher;
        bt_admin_model_t model;
        bt_admin_process_t process;
    } u;
} bt_admin_event_t;

/**
 * Reads a request from words, such as those of a command line.
 *
 * @param [in]  words  The verb, then its arguments.
 * @param [out] why    The error, for people; lists the valid choices.
 * @retval BT_ERR_INVALID_PARAM  why was written, *request_p was not.
 */
BT_MUST_CHECK bt_status_t bt_admin_command_from_words(
    uint32_t n_words, const char *const *words, bt_admin_command_t *request_p,
    char *why, size_t why_bytes);

/**
 * Reads a request from one line without its newline.
 * @param [out] why    The error, for people; lists the valid choices.
 * @retval BT_ERR_INVALID_PARAM  why was written, *request_p was not.
 */
BT_MUST_CHECK bt_status_t bt_admin_command_read(const char *line, size_t n,
                                                bt_admin_command_t *request_p,
                                                char *why, size_t why_bytes);

/** Appends a request's line, with its newline. Errors stick in @a out. */
void bt_admin_command_write(const bt_admin_command_t *request,
                            bt_strbuf_t *out);

/**
 * Reads one line without its newline.
 *
 * @retval BT_ERR_UNSUPPORTED  An unknown kind of line, or an unknown word in
 *                             it: skip it.
 * @retval BT_ERR_BAD_MESSAGE  Not a line of this protocol: disconnect.
 */
BT_MUST_CHECK bt_status_t bt_admin_event_read(const char *line, size_t n,
                                              bt_admin_event_t *event_p);

/** Appends an event's line, with its newline. Errors stick in @a out. */
void bt_admin_event_write(const bt_admin_event_t *event, bt_strbuf_t *out);

/** Return the word of a verb, program, role or state; never NULL. */
const char *bt_admin_verb_name(bt_admin_verb_t verb);
const char *bt_admin_program_name(uint32_t program);
const char *bt_admin_role_name(uint32_t role);
const char *bt_admin_process_state_name(uint32_t state);

#endif
