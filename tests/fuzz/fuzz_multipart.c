/* SPDX-License-Identifier: Apache-2.0 */
/* A header Content-Type up to the first line end, and the body after it: parts
 * lie in the body, in order, and do not overlap. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "router/http/multipart.h"

static void check_parts(const char *type, const char *body, size_t bytes)
{
    const char *why = NULL;
    const char *at = body;
    bt_multipart_part_t part;
    bt_multipart_t m;
    bt_status_t status = bt_multipart_init(&m, type, body, bytes, &why);

    while ((status == BT_OK) &&
           ((status = bt_multipart_next(&m, &part, &why)) == BT_OK)) {
        BT_ASSERT_ALWAYS((part.data > at) &&
                         (part.data + part.bytes <= body + bytes));
        BT_ASSERT_ALWAYS(strlen(part.name) < sizeof(part.name));
        BT_ASSERT_ALWAYS(strlen(part.filename) < sizeof(part.filename));
        BT_ASSERT_ALWAYS(part.is_file || (part.filename[0] == '\0'));
        BT_ASSERT_ALWAYS(bt_utf8_valid((const uint8_t *)part.filename,
                                       strlen(part.filename)));
        BT_ASSERT_ALWAYS(memmem(part.data, part.bytes, m.delimiter,
                                m.delimiter_bytes) == NULL);
        at = part.data + part.bytes;
    }
    BT_ASSERT_ALWAYS((status == BT_ERR_NOT_FOUND) ||
                     ((why != NULL) && ((status == BT_ERR_BAD_MESSAGE) ||
                                        (status == BT_ERR_UNSUPPORTED))));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *const text = (const char *)data;
    const char *const end = (size > 0) ? memchr(text, '\n', size) : NULL;
    const size_t n = (end != NULL) ? (size_t)(end - text) : size;
    char *const type = bt_memdup((size > 0) ? text : "", n);
    /* A copy of its own: a sanitizer sees reads beyond it. */
    char *const body = (end != NULL) ? bt_memdup(end + 1, size - n - 1) : NULL;

    if ((type != NULL) && (body != NULL)) {
        check_parts(type, body, size - n - 1);
    }
    bt_free(type);
    bt_free(body);
    return 0;
}
