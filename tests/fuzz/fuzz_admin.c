/* SPDX-License-Identifier: Apache-2.0 */
/* Input: lines as on the launcher's socket. Each is read as a request and as an
 * event; what is read is written, and then reads as the same again. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/admin/admin.h"
#include "common/base/assert.h"

#define OUT_BYTES (2 * BT_ADMIN_LINE_BYTES)

static void try_request(const char *line, size_t n)
{
    bt_admin_command_t request;
    bt_admin_command_t again;
    bt_strbuf_t out;
    char why[300] = "";

    memset(&request, 0, sizeof(request));
    memset(&again, 0, sizeof(again));
    if (bt_admin_command_read(line, n, &request, why, sizeof(why)) != BT_OK) {
        BT_ASSERT_ALWAYS(why[0] != '\0');
        return;
    }
    bt_strbuf_init(&out, OUT_BYTES);
    bt_admin_command_write(&request, &out);
    BT_ASSERT_ALWAYS(bt_strbuf_status(&out) == BT_OK);
    BT_ASSERT_ALWAYS(out.len <= BT_ADMIN_LINE_BYTES);
    BT_ASSERT_ALWAYS(bt_admin_command_read(out.data, out.len - 1, &again, why,
                                           sizeof(why)) == BT_OK);
    BT_ASSERT_ALWAYS(memcmp(&request, &again, sizeof(request)) == 0);
    bt_strbuf_fini(&out);
}

static void try_event(const char *line, size_t n)
{
    bt_admin_event_t event;
    bt_admin_event_t again;
    bt_strbuf_t first;
    bt_strbuf_t second;

    if (bt_admin_event_read(line, n, &event) != BT_OK) {
        return;
    }
    bt_strbuf_init(&first, OUT_BYTES);
    bt_strbuf_init(&second, OUT_BYTES);
    bt_admin_event_write(&event, &first);
    BT_ASSERT_ALWAYS(bt_strbuf_status(&first) == BT_OK);
    BT_ASSERT_ALWAYS(first.len <= BT_ADMIN_LINE_BYTES);
    BT_ASSERT_ALWAYS(bt_admin_event_read(first.data, first.len - 1, &again) ==
                     BT_OK);
    bt_admin_event_write(&again, &second);
    BT_ASSERT_ALWAYS((first.len == second.len) &&
                     (memcmp(first.data, second.data, first.len) == 0));
    bt_strbuf_fini(&first);
    bt_strbuf_fini(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *line = (const char *)data;

    while (size > 0) {
        const char *const end = memchr(line, '\n', size);
        const size_t n = (end == NULL) ? size : (size_t)(end - line);

        try_request(line, n);
        try_event(line, n);
        size -= (end == NULL) ? n : n + 1;
        line += (end == NULL) ? n : n + 1;
    }
    return 0;
}
