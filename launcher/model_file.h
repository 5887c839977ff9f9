/* SPDX-License-Identifier: Apache-2.0 */
/** @file model_file.h  Checks of a model file before any worker starts, so that
 *  a problem is reported once and not by every worker. */
#ifndef BT_LAUNCHER_MODEL_FILE_H
#define BT_LAUNCHER_MODEL_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"
#include "common/config/config.h"

#define BT_MODEL_FILE_ORIGIN_BYTES 1024

/** Checks that the file, or the folder, can be opened.
 *  @param [out] why  On failure: the reason, for a person.
 *  @retval BT_ERR_IO */
BT_MUST_CHECK bt_status_t bt_model_file_check(const char *path, char *why,
                                              size_t why_bytes);

/** Describes where the path of a model comes from, for the end of a message: ""
 *  if not from the model repository.
 *  @param [out] out  BT_MODEL_FILE_ORIGIN_BYTES are enough for most paths; cut
 */
void bt_model_file_origin(const bt_config_t *config, const char *path,
                          char *out, size_t out_bytes);

/** True when both paths are one file. */
bool bt_model_file_is_same(const char *path, const char *other);

#endif
