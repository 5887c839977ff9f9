/* SPDX-License-Identifier: Apache-2.0 */
/** @file output.h
 *
 * What a child writes, passed on line by line: to its file, or among our own
 * lines on standard error, whose reader nobody waits for (log.h). A line that
 * is longer than any of ours is broken; allocates nothing.
 */
#ifndef BT_LAUNCHER_OUTPUT_H
#define BT_LAUNCHER_OUTPUT_H

#include <stddef.h>

#include "launcher/log_file.h"

#define BT_OUTPUT_LINE_BYTES 8192

typedef struct bt_output {
    bt_log_file_t *file; /**< borrowed; without a file: standard error */
    size_t len;          /**< of the line that has no end yet */
    char line[BT_OUTPUT_LINE_BYTES];
} bt_output_t;

void bt_output_init(bt_output_t *output, bt_log_file_t *file);

/** Add output as it comes, in pieces of any size. */
void bt_output_add(bt_output_t *output, const char *data, size_t n);

/** Nothing more comes: end a line that has no newline yet. */
void bt_output_finish(bt_output_t *output);

#endif
