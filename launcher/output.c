/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/output.h"

#include <string.h>

#include "common/base/log.h"

void bt_output_init(bt_output_t *output, bt_log_file_t *file)
{
    output->file = file;
    output->len = 0;
}

static void put(const bt_output_t *output, const char *lines, size_t n)
{
    if (bt_log_file_is_open(output->file)) {
        bt_log_file_write(output->file, lines, n);
    } else {
        bt_log_pass_on(lines, n);
    }
}

/* Keeps bytes of a line; there is always space for its end. */
static size_t keep(bt_output_t *output, const char *data, size_t n)
{
    const size_t room = sizeof(output->line) - 1 - output->len;
    const size_t take = (n < room) ? n : room;

    memcpy(output->line + output->len, data, take);
    output->len += take;
    return take;
}

void bt_output_finish(bt_output_t *output)
{
    if (output->len > 0) {
        output->line[output->len++] = '\n';
        put(output, output->line, output->len);
        output->len = 0;
    }
}

void bt_output_add(bt_output_t *output, const char *data, size_t n)
{
    while (n > 0) {
        const char *const end = memchr(data, '\n', n);
        const char *const last = memrchr(data, '\n', n);
        size_t done;

        if ((output->len == 0) && (last != NULL)) {
            done = (size_t)(last + 1 - data); /* whole lines, at once */
            put(output, data, done);
        } else {
            done = keep(output, data, (end != NULL) ? (size_t)(end - data) : n);
            if ((end != NULL) && (data + done == end)) {
                done++;
                output->line[output->len++] = '\n';
                put(output, output->line, output->len);
                output->len = 0;
            } else if (output->len == sizeof(output->line) - 1) {
                bt_output_finish(output);
            }
        }
        data += done;
        n -= done;
    }
}
