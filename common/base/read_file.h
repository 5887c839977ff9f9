/* SPDX-License-Identifier: Apache-2.0 */
/** @file read_file.h  Files that are read whole, within a bound. */
#ifndef BT_COMMON_BASE_READ_FILE_H
#define BT_COMMON_BASE_READ_FILE_H

#include <stddef.h>

#include "common/base/status.h"

/**
 * Read what is left of a file that does not block, whatever its size was said
 * to be.
 *
 * @param [out] data  Room for max_bytes + 1; on failure some may be written.
 * @param [out] n_p   Bytes; max_bytes + 1 where there are more than max_bytes.
 * @retval BT_ERR_IO  errno says why
 */
BT_MUST_CHECK bt_status_t bt_read_file(int fd, void *data, size_t max_bytes,
                                       size_t *n_p);

#endif
