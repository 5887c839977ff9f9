/* SPDX-License-Identifier: Apache-2.0 */
/* Packed bodies: what others packed, what we pack, and what is none. */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/zip/zip.h"

/* Made by Python 3.11: gzip.compress(b"hello hello hello", mtime=0),
 * zlib.compress(b"hello hello hello"), and zlib.compressobj(wbits=-15). */
static const uint8_t gzipped[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00,
                                  0x00, 0x02, 0x03, 0xcb, 0x48, 0xcd, 0xc9,
                                  0xc9, 0x57, 0xc8, 0x40, 0x90, 0x00, 0x80,
                                  0x88, 0xf9, 0xe5, 0x11, 0x00, 0x00, 0x00};
static const uint8_t zlibbed[] = {0x78, 0x9c, 0xcb, 0x48, 0xcd, 0xc9,
                                  0xc9, 0x57, 0xc8, 0x40, 0x90, 0x00,
                                  0x3a, 0x2e, 0x06, 0x7d};
static const uint8_t bare[] = {0xcb, 0x48, 0xcd, 0xc9, 0xc9,
                               0x57, 0xc8, 0x40, 0x90, 0x00};
#define HELLO "hello hello hello"

static void gives(bt_zip_t format, const uint8_t *data, size_t bytes,
                  const char *text)
{
    bt_strbuf_t out;

    bt_strbuf_init(&out, 1024);
    assert_int_equal(bt_unzip(format, data, bytes, &out), BT_OK);
    assert_int_equal(out.len, strlen(text));
    assert_memory_equal(out.data, text, out.len);
    bt_strbuf_fini(&out);
}

static void is(bt_zip_t format, const uint8_t *data, size_t bytes, size_t limit,
               bt_status_t status)
{
    bt_strbuf_t out;

    bt_strbuf_init(&out, limit);
    assert_int_equal(bt_unzip(format, data, bytes, &out), status);
    assert_true(out.len <= limit);
    bt_strbuf_fini(&out);
}

static void foreign_gzip_and_deflate_are_decompressed(void **state)
{
    uint8_t twice[2 * sizeof(gzipped)];

    (void)state;
    gives(BT_ZIP_GZIP, gzipped, sizeof(gzipped), HELLO);
    gives(BT_ZIP_DEFLATE, zlibbed, sizeof(zlibbed), HELLO);
    gives(BT_ZIP_DEFLATE, bare, sizeof(bare), HELLO);
    memcpy(twice, gzipped, sizeof(gzipped));
    memcpy(twice + sizeof(gzipped), gzipped, sizeof(gzipped));
    gives(BT_ZIP_GZIP, twice, sizeof(twice), HELLO HELLO);
}

static void truncated_altered_or_trailing_data_is_refused(void **state)
{
    uint8_t more[sizeof(zlibbed) + 1] = {0};

    (void)state;
    for (size_t n = 0; n < sizeof(gzipped); n++) {
        is(BT_ZIP_GZIP, gzipped, n, 1024, BT_ERR_CORRUPT);
    }
    for (size_t n = 0; n < sizeof(zlibbed); n++) {
        is(BT_ZIP_DEFLATE, zlibbed, n, 1024, BT_ERR_CORRUPT);
    }
    memcpy(more, zlibbed, sizeof(zlibbed));
    is(BT_ZIP_DEFLATE, more, sizeof(more), 1024, BT_ERR_CORRUPT);
    more[sizeof(zlibbed) - 1] ^= 1; /* its checksum */
    is(BT_ZIP_DEFLATE, more, sizeof(zlibbed), 1024, BT_ERR_CORRUPT);
    is(BT_ZIP_GZIP, zlibbed, sizeof(zlibbed), 1024, BT_ERR_CORRUPT);
}

static void decompression_stops_at_the_limit(void **state)
{
    const size_t bytes = 1000000;
    char *zeros = bt_calloc(1, bytes);
    bt_strbuf_t packed;

    (void)state;
    is(BT_ZIP_GZIP, gzipped, sizeof(gzipped), strlen(HELLO), BT_OK);
    is(BT_ZIP_GZIP, gzipped, sizeof(gzipped), strlen(HELLO) - 1,
       BT_ERR_TOO_LARGE);
    bt_strbuf_init(&packed, bytes);
    assert_int_equal(bt_zip(BT_ZIP_DEFLATE, zeros, bytes, &packed), BT_OK);
    assert_true(packed.len * 100 < bytes);
    assert_true(packed.len * BT_ZIP_MAX_RATIO > bytes);
    is(BT_ZIP_DEFLATE, (const uint8_t *)packed.data, packed.len, 65536,
       BT_ERR_TOO_LARGE);
    is(BT_ZIP_DEFLATE, (const uint8_t *)packed.data, packed.len, bytes, BT_OK);
    bt_strbuf_fini(&packed);
    bt_strbuf_init(&packed, 100);
    assert_int_equal(bt_zip(BT_ZIP_GZIP, zeros, bytes, &packed),
                     BT_ERR_TOO_LARGE);
    bt_strbuf_fini(&packed);
    bt_free(zeros);
}

static void compressed_data_round_trips(void **state)
{
    static const bt_zip_t formats[] = {BT_ZIP_GZIP, BT_ZIP_DEFLATE};
    char text[100000];

    (void)state;
    for (size_t i = 0; i < sizeof(text); i++) {
        text[i] = (char)(i * i >> 3);
    }
    for (size_t f = 0; f < BT_ARRAY_LEN(formats); f++) {
        for (size_t n = 0; n <= sizeof(text); n = 7 * n + 1) {
            bt_strbuf_t packed;
            bt_strbuf_t back;

            bt_strbuf_init(&packed, 2 * sizeof(text));
            bt_strbuf_init(&back, n);
            assert_int_equal(bt_zip(formats[f], text, n, &packed), BT_OK);
            assert_int_equal(
                bt_unzip(formats[f], packed.data, packed.len, &back), BT_OK);
            assert_int_equal(back.len, n);
            assert_true((n == 0) || (memcmp(back.data, text, n) == 0));
            bt_strbuf_fini(&packed);
            bt_strbuf_fini(&back);
        }
    }
}

static void streamed_decompression_works_with_parts_of_any_size(void **state)
{
    static const size_t parts[] = {1, 100, 40000, 100000, 200000};
    char text[100000];

    (void)state;
    for (size_t i = 0; i < sizeof(text); i++) {
        text[i] = (char)(i * i >> 3);
    }
    for (size_t k = 0; k < BT_ARRAY_LEN(parts); k++) {
        const size_t n = (parts[k] == 1) ? 500 : sizeof(text);
        bt_zipper_t *zipper = NULL;
        bt_strbuf_t packed;
        bt_strbuf_t back;

        bt_strbuf_init(&packed, 2 * sizeof(text));
        bt_strbuf_init(&back, n);
        assert_int_equal(bt_zipper_create(BT_ZIP_GZIP, &zipper), BT_OK);
        for (size_t at = 0; at < n; at += parts[k]) {
            const size_t rest = n - at;

            assert_int_equal(bt_zipper_add(zipper, text + at,
                                           (rest < parts[k]) ? rest : parts[k],
                                           rest <= parts[k], &packed),
                             BT_OK);
        }
        bt_zipper_destroy(zipper);
        assert_int_equal(bt_unzip(BT_ZIP_GZIP, packed.data, packed.len, &back),
                         BT_OK);
        assert_int_equal(back.len, n);
        assert_memory_equal(back.data, text, n);
        bt_strbuf_fini(&packed);
        bt_strbuf_fini(&back);
    }
}

static void zip_reports_a_failed_allocation(void **state)
{
    bt_status_t status = BT_ERR_NO_MEMORY;
    int n = 0;

    (void)state;
    while (status != BT_OK) {
        bt_strbuf_t out;

        bt_strbuf_init(&out, 1024);
        bt_alloc_fail_at(++n);
        status = bt_unzip(BT_ZIP_GZIP, gzipped, sizeof(gzipped), &out);
        if (status == BT_OK) {
            bt_strbuf_reset(&out);
            status = bt_zip(BT_ZIP_GZIP, HELLO, strlen(HELLO), &out);
        }
        bt_alloc_fail_at(0);
        assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
        bt_strbuf_fini(&out);
    }
    assert_true(n > 4); /* each of them was met */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(foreign_gzip_and_deflate_are_decompressed),
        cmocka_unit_test(truncated_altered_or_trailing_data_is_refused),
        cmocka_unit_test(decompression_stops_at_the_limit),
        cmocka_unit_test(compressed_data_round_trips),
        cmocka_unit_test(streamed_decompression_works_with_parts_of_any_size),
        cmocka_unit_test(zip_reports_a_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
