/* SPDX-License-Identifier: Apache-2.0 */
/** @file output.h
 *
 * Output of a child, passed on line by line: to its file, or to standard error
 * between our own lines, without waiting for the reader (log.h). Lines longer
 * than any of ours are broken; allocates nothing.
 */
#ifndef BT_LAUNCHER_OUTPUT_H
#define BT_LAUNCHER_OUTPUT_H

#include <stddef.h>

#include "launcher/log_file.h"

#define BT_OUTPUT_LINE_BYTES 8192

typedef struct bt_output {
    bt_log_file_t *file; /**< borrowed; without a file: standard error */
    size_t len;          /**< length of the incomplete line */
    char line[BT_OUTPUT_LINE_BYTES];
} bt_output_t;

void bt_output_init(bt_output_t *output, bt_log_file_t *file);

/** Adds output as it arrives, in pieces of any size. */
void bt_output_add(bt_output_t *output, const char *data, size_t n);

/** Ends a line that has no newline yet, after the last output. */
void bt_output_finish(bt_output_t *output);

#endif
