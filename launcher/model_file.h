/* SPDX-License-Identifier: Apache-2.0 */
/** @file model_file.h  What every worker would fail on is said once, and before
 *  any is started. */
#ifndef BT_LAUNCHER_MODEL_FILE_H
#define BT_LAUNCHER_MODEL_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/status.h"

/** Can the file, or the folder, be opened?
 *  @param [out] why  For a person, when not.
 *  @retval BT_ERR_IO */
BT_MUST_CHECK bt_status_t bt_model_file_check(const char *path, char *why,
                                              size_t why_bytes);

/** Are both the same file, by whatever path? */
bool bt_model_file_is_same(const char *path, const char *other);

#endif
