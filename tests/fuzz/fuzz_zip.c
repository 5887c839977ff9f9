/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the bytes: no more comes out than the limit, and what is packed
 * here unpacks to the same. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/status.h"
#include "common/zip/zip.h"

#define LIMIT ((size_t)64 * 1024)

static void unpack(bt_zip_t format, const uint8_t *data, size_t size)
{
    bt_strbuf_t out;

    bt_strbuf_init(&out, LIMIT);
    (void)!bt_unzip(format, data, size, &out);
    BT_ASSERT_ALWAYS(out.len <= LIMIT);
    bt_strbuf_fini(&out);
}

static void there_and_back(bt_zip_t format, const uint8_t *data, size_t size)
{
    bt_strbuf_t packed;
    bt_strbuf_t back;

    bt_strbuf_init(&packed, 2 * size + LIMIT);
    bt_strbuf_init(&back, size);
    BT_ASSERT_ALWAYS(bt_zip(format, data, size, &packed) == BT_OK);
    BT_ASSERT_ALWAYS(bt_unzip(format, packed.data, packed.len, &back) == BT_OK);
    BT_ASSERT_ALWAYS((back.len == size) &&
                     ((size == 0) || (memcmp(back.data, data, size) == 0)));
    bt_strbuf_fini(&packed);
    bt_strbuf_fini(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unpack(BT_ZIP_GZIP, data, size);
    unpack(BT_ZIP_DEFLATE, data, size);
    there_and_back(BT_ZIP_GZIP, data, size);
    there_and_back(BT_ZIP_DEFLATE, data, size);
    return 0;
}
