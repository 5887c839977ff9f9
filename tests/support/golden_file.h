/* SPDX-License-Identifier: Apache-2.0 */
/** @file golden_file.h
 *
 * Expected values under tests/golden, which are plain or, where they are long
 * lists of numbers, gzip's.
 */
#ifndef BT_TESTS_SUPPORT_GOLDEN_FILE_H
#define BT_TESTS_SUPPORT_GOLDEN_FILE_H

#include <stddef.h>

/** Reads a whole file under tests/, uncompressed when its name ends in ".gz".
 *  The test fails when it cannot be read.
 *  @param [out] bytes_p  without the NUL behind them
 *  @return the bytes, to be released by bt_free() */
char *bt_golden_read(const char *relative, size_t *bytes_p);

#endif
