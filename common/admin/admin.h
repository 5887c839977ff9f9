/* SPDX-License-Identifier: Apache-2.0 */
/** @file admin.h
 *
 * Protocol of the launcher's control socket, BT_ADMIN_SOCKET in the run
 * directory: JSON objects, one in a line. A client sends commands; the launcher
 * answers each, in their order:
 *
 *     {"command":"status"}                     the document
 *     {"command":"watch"}                      the document; then each change,
 *                                              until the client disconnects
 *     {"command":"start","name":"decode-0"}    also stop, restart
 *     {"command":"drain","name":"decode-0"}    answered when it has ended
 *     {"command":"load-model","name":"m","path":"/m.gguf","prefill":1,
 *      "decode":1}                             path, prefill, decode: optional
 *     {"command":"unload-model","name":"m"}
 *     {"command":"role","name":"decode-0","role":"both"}
 *
 *     {"ok":true}          {"ok":false,"error":"no process 'x'; there are: …"}
 *
 * With "wait":true a command is answered when it is complete: a started process
 * is ready, a stopped one has ended. Without, when it is accepted.
 *
 * The document of status and watch; a change has no "ok" and only what changed,
 * entries being told apart by their names:
 *
 *     {"ok":true,"now_unix_ms":1700000000000,
 *      "launcher":{"pid":7,"version":"0.2.0","run_dir":"/tmp/baton-a1b2c3",
 *                  "state":"running"},
 *      "models":[{"name":"m","loaded":true,"path":"/m.gguf","prefill":1,
 *                 "decode":1,"both":0}],
 *      "processes":[{"name":"decode-0","program":"decode","role":"decode",
 *                    "model":"m","state":"ready","pid":9,"restarts":0,
 *                    "since_ms":1700000000000,"http":null,"metrics":null,
 *                    "why":null}]}
 *
 * GET /v2/cluster has the same members by the same writer
 * (docs/CLUSTER_API.md).
 *
 * role: the launcher notifies its routers, which notify the worker; the worker
 * keeps serving and reports when its role has changed.
 *
 * A missing or null member has its default (0, "", the first choice). In a
 * document, unknown members and entries with unknown words are skipped, so that
 * both sides may be of different versions.
 *
 * Expected workers of a model and role: its processes that are not stopped and
 * are assigned that role.
 *
 * Pure: text in, records out. Every byte is checked. connection.h has the
 * sockets.
 */
#ifndef BT_COMMON_ADMIN_ADMIN_H
#define BT_COMMON_ADMIN_ADMIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/json.h"
#include "common/base/status.h"
#include "common/base/text.h"

#define BT_ADMIN_SOCKET        "admin.sock"
#define BT_ADMIN_COMMAND_BYTES 32768       /**< longest line of a command */
#define BT_ADMIN_REPLY_BYTES   (16u << 20) /**< longest line of a reply */
#define BT_ADMIN_NAME_BYTES    64 /**< with the zero byte, as all below */
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
    BT_ADMIN_ROLE_NONE, /**< no worker */
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

/** Command of a client. */
typedef struct bt_admin_command {
    bt_admin_verb_t verb;
    bool wait;                      /**< answer when complete */
    char name[BT_ADMIN_NAME_BYTES]; /**< name of a process or model, or "" */
    char path[BT_ADMIN_PATH_BYTES]; /**< load: "" = not given */
    uint32_t prefill, decode;       /**< load: or BT_ADMIN_UNSET */
    bt_admin_role_t role;           /**< role */
} bt_admin_command_t;

typedef struct bt_admin_launcher {
    uint64_t pid;
    char version[BT_ADMIN_NAME_BYTES];
    char run_dir[BT_ADMIN_PATH_BYTES];
    uint32_t stopping; /**< 0 running, 1 stopping */
} bt_admin_launcher_t;

typedef struct bt_admin_process {
    char name[BT_ADMIN_NAME_BYTES];
    uint32_t program;                /**< bt_admin_program_t */
    uint32_t role;                   /**< bt_admin_role_t */
    char model[BT_ADMIN_NAME_BYTES]; /**< "" for a router */
    uint32_t state;                  /**< bt_admin_process_state_t */
    uint64_t pid;                    /**< 0 = not running */
    uint64_t restarts;               /**< automatic restarts since the launch */
    uint64_t since_ms;               /**< Unix time when its state began */
    /** Addresses of a router, once reported, else ""; http begins with
     *  https:// if it speaks TLS. */
    char http[BT_ADMIN_ADDRESS_BYTES], metrics[BT_ADMIN_ADDRESS_BYTES];
    /** Reason why it does not serve, for people; "": none known. */
    char why[BT_ADMIN_WHY_BYTES];
} bt_admin_process_t;

typedef struct bt_admin_model {
    char name[BT_ADMIN_NAME_BYTES];
    char path[BT_ADMIN_PATH_BYTES];
    uint64_t prefill, decode, both; /**< workers by role, running or not */
    bool loaded;
} bt_admin_model_t;

/** Document of a launcher, or a change of it. All zero: empty. */
typedef struct bt_admin_document {
    uint64_t now_unix_ms; /**< 0: unknown */
    bool has_launcher;
    bt_admin_launcher_t launcher;
    bt_admin_model_t *models; /**< owned; NULL: not a part of it */
    uint32_t n_models;
    bt_admin_process_t *processes; /**< owned; NULL: not a part of it */
    uint32_t n_processes;
} bt_admin_document_t;

typedef enum bt_admin_result {
    BT_ADMIN_CHANGE, /**< no answer: a change, for a client that watches */
    BT_ADMIN_OK,
    BT_ADMIN_ERROR,
} bt_admin_result_t;

/** Line of the launcher. */
typedef struct bt_admin_reply {
    bt_admin_result_t result;
    char error[BT_ADMIN_TEXT_BYTES];
    bt_admin_document_t document;
} bt_admin_reply_t;

/**
 * Reads a command from words, such as those of a command line: the verb, then
 * its operands: NAME, MODEL[=PATH] [prefill=N] [decode=N], NAME ROLE; at last
 * wait=yes.
 *
 * @param [out] why    The error, for people; lists the valid choices.
 * @retval BT_ERR_INVALID_PARAM  why was written, *command_p was not.
 */
BT_MUST_CHECK bt_status_t bt_admin_command_from_words(
    uint32_t n_words, const char *const *words, bt_admin_command_t *command_p,
    char *why, size_t why_bytes);

/**
 * Reads a command from one line without its newline.
 * @param [out] why    The error, for people; lists the valid choices.
 * @retval BT_ERR_INVALID_PARAM  why was written, *command_p was not.
 * @retval BT_ERR_NO_MEMORY      As above.
 */
BT_MUST_CHECK bt_status_t bt_admin_command_read(const char *line, size_t n,
                                                bt_admin_command_t *command_p,
                                                char *why, size_t why_bytes);

/** Appends a command's line, with its newline. Errors stick in @a out. */
void bt_admin_command_write(const bt_admin_command_t *command,
                            bt_strbuf_t *out);

/**
 * Reads one line of the launcher without its newline.
 *
 * @param [out] reply_p  Free with bt_admin_document_fini() of its document.
 * @retval BT_ERR_BAD_MESSAGE  Not a line of this protocol: disconnect.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_admin_reply_read(const char *line, size_t n,
                                              bt_admin_reply_t *reply_p);

/** Appends a reply's line, with its newline. Errors stick in @a out. */
void bt_admin_reply_write(const bt_admin_reply_t *reply, bt_strbuf_t *out);

/** Frees the entries of a document, which is empty afterwards. */
void bt_admin_document_fini(bt_admin_document_t *document);

/** Applies a change: replaces entries of the same name, appends others.
 *  @retval BT_ERR_NO_MEMORY  A part of the change may have been applied. */
BT_MUST_CHECK bt_status_t bt_admin_document_merge(
    bt_admin_document_t *document, const bt_admin_document_t *change);

/** Write a member "launcher", or "processes", of an object. */
void bt_admin_write_launcher(const bt_admin_launcher_t *launcher,
                             bt_json_t *json);
void bt_admin_write_processes(const bt_admin_process_t *processes, uint32_t n,
                              bt_json_t *json);
/** Writes the members of a model's object. */
void bt_admin_write_model_members(const bt_admin_model_t *model,
                                  bt_json_t *json);

/** Returns the word of a verb, program, role or state; never NULL. */
const char *bt_admin_verb_name(bt_admin_verb_t verb);
const char *bt_admin_program_name(uint32_t program);
const char *bt_admin_role_name(uint32_t role);
const char *bt_admin_process_state_name(uint32_t state);

#endif
