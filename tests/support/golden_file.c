/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/golden_file.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/testsupport.h"

#include "common/base/alloc.h"
#include "common/zip/zip.h"

#define MAX_BYTES (16u << 20)

static char *read_plain(const char *relative, size_t *bytes_p)
{
    FILE *file = fopen(bt_test_path(relative), "rbe");
    char *data;
    long bytes;

    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    bytes = ftell(file);
    assert_in_range(bytes, 1, MAX_BYTES);
    rewind(file);
    data = bt_calloc((size_t)bytes + 1, 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)bytes, file), bytes);
    fclose(file);
    *bytes_p = (size_t)bytes;
    return data;
}

char *bt_golden_read(const char *relative, size_t *bytes_p)
{
    const size_t n = strlen(relative);
    size_t bytes;
    char *const data = read_plain(relative, &bytes);
    bt_strbuf_t text;
    char *copy;

    if ((n < 3) || (strcmp(relative + n - 3, ".gz") != 0)) {
        *bytes_p = bytes;
        return data;
    }
    bt_strbuf_init(&text, MAX_BYTES);
    assert_int_equal(bt_unzip(BT_ZIP_GZIP, data, bytes, &text), BT_OK);
    bt_free(data);
    copy = bt_calloc(text.len + 1, 1);
    assert_non_null(copy);
    memcpy(copy, text.data, text.len);
    *bytes_p = text.len;
    bt_strbuf_fini(&text);
    return copy;
}
