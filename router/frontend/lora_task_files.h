/* SPDX-License-Identifier: Apache-2.0 */
/** @file lora_task_files.h
 *
 * Folder by which routers know the same LoRA tasks (--lora-task-dir). A file is
 * one adapter that a client sent, named by a keyed hash of tenant, task id and
 * model:
 *
 *     first router ─ write ─▶ DIR/KEY.lora ◀─ read ─ any router, by the id
 *
 * A file is whole or not there: it is written under another name, synced and
 * linked; of two that write one key, the second is told that there is one. What
 * a killed router leaves half written is removed at a later write. The time of
 * a file is that of its last use, and the oldest make way for new ones. Files
 * are of mode 0600, in a folder of mode 0700.
 *
 * Threads: any; they may block.
 */
#ifndef BT_ROUTER_FRONTEND_LORA_TASK_FILES_H
#define BT_ROUTER_FRONTEND_LORA_TASK_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/base/status.h"

/** Adapter of a task. */
typedef struct bt_lora_file {
    bt_hash128_t hash;   /**< hash of the client's tensors */
    bt_hash128_t digest; /**< digest of the adapter */
    uint8_t *content;    /**< bt_adapter_pack() */
    size_t bytes;        /**< size of content */
} bt_lora_file_t;

/** Creates the folder, if only it is missing, and checks that it is this
 *  user's and closed to others. A failure is logged.
 *  @retval BT_ERR_IO, BT_ERR_UNAUTHORIZED */
BT_MUST_CHECK bt_status_t bt_lora_files_open(const char *dir);
/**
 * Reads a task's file, and notes its use.
 *
 * @param [in]  known   NULL, or a hash of tensors whose adapter the caller has
 * @param [out] file_p  content is owned: bt_free(); NULL if the hash is *known
 * @retval BT_ERR_NOT_FOUND  there is none, or it is not whole
 * @retval BT_ERR_IO, BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_lora_file_read(const char *dir, bt_hash128_t key,
                                            const bt_hash128_t *known,
                                            bt_lora_file_t *file_p);
/**
 * Writes a task's file, after removing the oldest ones of the folder until all
 * are at most @a limit bytes.
 *
 * @retval BT_ERR_EXISTS  there is one, which stays
 * @retval BT_ERR_IO      also: it is larger than @a limit
 */
BT_MUST_CHECK bt_status_t bt_lora_file_write(const char *dir, bt_hash128_t key,
                                             const bt_lora_file_t *file,
                                             uint64_t limit);

#endif
