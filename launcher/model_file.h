/* SPDX-License-Identifier: Apache-2.0 */
/** @file model_file.h  What every worker would fail on is said once, and before
 *  any is started. */
#ifndef BT_LAUNCHER_MODEL_FILE_H
#define BT_LAUNCHER_MODEL_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"
#include "common/config/config.h"

#define BT_MODEL_FILE_ORIGIN_BYTES 1024

/** Can the file, or the folder, be opened?
 *  @param [out] why  For a person, when not.
 *  @retval BT_ERR_IO */
BT_MUST_CHECK bt_status_t bt_model_file_check(const char *path, char *why,
                                              size_t why_bytes);

/** Where the path of a model comes from, for the end of a message about it:
 *  "" unless the model repository says it.
 *  @param [out] out  BT_MODEL_FILE_ORIGIN_BYTES are enough for most paths; cut
 */
void bt_model_file_origin(const bt_config_t *config, const char *path,
                          char *out, size_t out_bytes);

/** Are both the same file, by whatever path? */
bool bt_model_file_is_same(const char *path, const char *other);

#endif
