/* SPDX-License-Identifier: Apache-2.0 */
/* Input: lines as on the launcher's control socket. Each is read as a command
 * and as a reply; what is read is written, and then reads as the same again. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/admin/admin.h"
#include "common/base/status.h"

static void try_command(const char *line, size_t n)
{
    bt_admin_command_t command;
    bt_admin_command_t again;
    bt_strbuf_t out;
    char why[300] = "";

    memset(&command, 0, sizeof(command));
    memset(&again, 0, sizeof(again));
    if (bt_admin_command_read(line, n, &command, why, sizeof(why)) != BT_OK) {
        BT_ASSERT_ALWAYS(why[0] != '\0');
        return;
    }
    bt_strbuf_init(&out, BT_ADMIN_COMMAND_BYTES);
    bt_admin_command_write(&command, &out);
    BT_ASSERT_ALWAYS(bt_strbuf_status(&out) == BT_OK);
    BT_ASSERT_ALWAYS(bt_admin_command_read(out.data, out.len - 1, &again, why,
                                           sizeof(why)) == BT_OK);
    BT_ASSERT_ALWAYS(memcmp(&command, &again, sizeof(command)) == 0);
    bt_strbuf_fini(&out);
}

static void try_reply(const char *line, size_t n)
{
    bt_admin_reply_t reply;
    bt_admin_reply_t again;
    bt_strbuf_t first;
    bt_strbuf_t second;

    if (bt_admin_reply_read(line, n, &reply) != BT_OK) {
        return;
    }
    bt_strbuf_init(&first, BT_ADMIN_REPLY_BYTES);
    bt_strbuf_init(&second, BT_ADMIN_REPLY_BYTES);
    bt_admin_reply_write(&reply, &first);
    BT_ASSERT_ALWAYS(bt_strbuf_status(&first) == BT_OK);
    BT_ASSERT_ALWAYS(bt_admin_reply_read(first.data, first.len - 1, &again) ==
                     BT_OK);
    bt_admin_reply_write(&again, &second);
    BT_ASSERT_ALWAYS((first.len == second.len) &&
                     (memcmp(first.data, second.data, first.len) == 0));
    bt_admin_document_fini(&reply.document);
    bt_admin_document_fini(&again.document);
    bt_strbuf_fini(&first);
    bt_strbuf_fini(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *line = (const char *)data;

    while (size > 0) {
        const char *const end = memchr(line, '\n', size);
        const size_t n = (end == NULL) ? size : (size_t)(end - line);

        try_command(line, n);
        try_reply(line, n);
        size -= (end == NULL) ? n : n + 1;
        line += (end == NULL) ? n : n + 1;
    }
    return 0;
}
