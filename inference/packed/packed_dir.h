/* SPDX-License-Identifier: Apache-2.0 */
/** @file packed_dir.h  The folder of packed weights: made, and cleared of files
 *  that nobody uses. */
#ifndef BT_INFERENCE_PACKED_PACKED_DIR_H
#define BT_INFERENCE_PACKED_PACKED_DIR_H

#include <stdint.h>

#define BT_PACKED_UNUSED_S (INT64_C(30) * 86400)

/** Make @a dir and what is missing above it, for this user alone.
 *  @return 0 or an errno */
int bt_packed_dir_make(const char *dir);

/** Remove files of this format that nobody has opened for BT_PACKED_UNUSED_S
 *  before @a now_s (seconds since 1970). @a keep: a name that stays. */
void bt_packed_dir_clear(const char *dir, const char *keep, int64_t now_s);

#endif
