/* SPDX-License-Identifier: Apache-2.0 */
/** @file packed_dir.h
 *
 * Folder of packed weights: creates it, and removes files that are no longer
 * used.
 */
#ifndef BT_INFERENCE_PACKED_PACKED_DIR_H
#define BT_INFERENCE_PACKED_PACKED_DIR_H

#include <stdint.h>

#define BT_PACKED_UNUSED_S (INT64_C(30) * 86400)

/** Creates @a dir and its missing parents, for this user alone.
 *  @return 0 or an errno */
int bt_packed_dir_make(const char *dir);

/** Removes files of this format that no process has opened for
 *  BT_PACKED_UNUSED_S before @a now_s (seconds since 1970). @a keep: a name
 *  that stays. */
void bt_packed_dir_clear(const char *dir, const char *keep, int64_t now_s);

#endif
