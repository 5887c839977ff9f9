/* SPDX-License-Identifier: Apache-2.0 */
/** @file read_file.h
 *
 * Reads whole files of bounded size.
 */
#ifndef BT_COMMON_BASE_READ_FILE_H
#define BT_COMMON_BASE_READ_FILE_H

#include <stddef.h>

#include "common/base/status.h"

/**
 * Reads the rest of a file that does not block, whatever size is reported for
 * it.
 *
 * @param [out] data  Capacity of max_bytes + 1; partly written on failure.
 * @param [out] n_p   Bytes; max_bytes + 1 when there are more than max_bytes.
 * @retval BT_ERR_IO  errno has the reason
 */
BT_MUST_CHECK bt_status_t bt_read_file(int fd, void *data, size_t max_bytes,
                                       size_t *n_p);

#endif
