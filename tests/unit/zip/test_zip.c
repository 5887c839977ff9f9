/* SPDX-License-Identifier: Apache-2.0 */
#include "common/zip/zip.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "tests/support/testsupport.h"

#define TEXT "hello hello hello"

/* Made by Python: gzip.compress(TEXT, mtime=0), zlib.compress(TEXT), and
 * zlib.compressobj(wbits=-15). */
static const char by_gzip[] =
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xcb\x48\xcd\xc9\xc9\x57\xc8\x40"
    "\x90\x00\x80\x88\xf9\xe5\x11\x00\x00\x00";
static const char by_zlib[] =
    "\x78\x9c\xcb\x48\xcd\xc9\xc9\x57\xc8\x40\x90\x00\x3a\x2e\x06\x7d";
static const char bare[] = "\xcb\x48\xcd\xc9\xc9\x57\xc8\x40\x90\x00";

static bt_status_t unpack(bt_zip_kind_t kind, const void *data, size_t bytes,
                          size_t limit, bt_strbuf_t *out)
{
    bt_strbuf_init(out, limit);
    return bt_zip_unpack(kind, data, bytes, out);
}

static void assert_hello(bt_zip_kind_t kind, const void *data, size_t bytes)
{
    bt_strbuf_t out;

    assert_int_equal(unpack(kind, data, bytes, 100, &out), BT_OK);
    assert_string_equal(out.data, TEXT);
    bt_strbuf_fini(&out);
}

static void what_others_pack_is_unpacked(void **state)
{
    (void)state;
    assert_hello(BT_ZIP_GZIP, by_gzip, sizeof(by_gzip) - 1);
    assert_hello(BT_ZIP_DEFLATE, by_zlib, sizeof(by_zlib) - 1);
    assert_hello(BT_ZIP_DEFLATE, bare, sizeof(bare) - 1);
}

static void what_is_cut_or_changed_is_refused(void **state)
{
    bt_strbuf_t out;

    (void)state;
    for (size_t n = 0; n < sizeof(by_gzip) - 1; n++) {
        char changed[sizeof(by_gzip)];

        assert_int_equal(unpack(BT_ZIP_GZIP, by_gzip, n, 100, &out),
                         BT_ERR_BAD_MESSAGE);
        bt_strbuf_fini(&out);
        memcpy(changed, by_gzip, sizeof(changed));
        changed[n] ^= 0x10;
        /* Time, operating system and flags of the head say nothing. */
        if ((n < 2) || (n > 9)) {
            assert_int_equal(
                unpack(BT_ZIP_GZIP, changed, sizeof(by_gzip) - 1, 100, &out),
                BT_ERR_BAD_MESSAGE);
            bt_strbuf_fini(&out);
        }
    }
    assert_int_equal(
        unpack(BT_ZIP_GZIP, by_zlib, sizeof(by_zlib) - 1, 100, &out),
        BT_ERR_BAD_MESSAGE);
    bt_strbuf_fini(&out);
    /* Something behind the end. */
    assert_int_equal(unpack(BT_ZIP_GZIP, by_gzip, sizeof(by_gzip), 100, &out),
                     BT_ERR_BAD_MESSAGE);
    bt_strbuf_fini(&out);
}

static void the_limit_holds_whatever_is_packed(void **state)
{
    static char zeros[1 << 20];
    bt_strbuf_t packed;
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&packed, 1 << 20);
    assert_int_equal(bt_zip_pack(BT_ZIP_GZIP, zeros, sizeof(zeros), &packed),
                     BT_OK);
    assert_true(packed.len < 8192);
    assert_int_equal(
        unpack(BT_ZIP_GZIP, packed.data, packed.len, sizeof(zeros), &out),
        BT_OK);
    assert_int_equal(out.len, sizeof(zeros));
    assert_memory_equal(out.data, zeros, sizeof(zeros));
    bt_strbuf_fini(&out);
    assert_int_equal(
        unpack(BT_ZIP_GZIP, packed.data, packed.len, sizeof(zeros) - 1, &out),
        BT_ERR_TOO_LARGE);
    assert_true(out.cap <= 2 * sizeof(zeros));
    bt_strbuf_fini(&out);
    bt_strbuf_fini(&packed);
}

static void what_is_packed_comes_back(void **state)
{
    static const bt_zip_kind_t kinds[] = {BT_ZIP_GZIP, BT_ZIP_DEFLATE};
    char text[40000];

    (void)state;
    for (size_t i = 0; i < sizeof(text); i++) {
        text[i] = (char)((i * i) >> 3);
    }
    for (size_t k = 0; k < BT_ARRAY_LEN(kinds); k++) {
        for (size_t n = 0; n <= sizeof(text); n += 13333) {
            bt_strbuf_t packed;
            bt_strbuf_t out;

            bt_strbuf_init(&packed, 1 << 20);
            assert_int_equal(bt_zip_pack(kinds[k], text, n, &packed), BT_OK);
            assert_int_equal(unpack(kinds[k], packed.data, packed.len, n, &out),
                             BT_OK);
            assert_int_equal(out.len, n);
            if (n > 0) {
                assert_memory_equal(out.data, text, n);
            }
            bt_strbuf_fini(&out);
            bt_strbuf_fini(&packed);
        }
    }
}

static void without_memory_it_says_so(void **state)
{
    bt_strbuf_t out;

    (void)state;
    for (int nth = 1; nth < 3; nth++) {
        bt_alloc_fail_at(nth);
        assert_int_equal(
            unpack(BT_ZIP_GZIP, by_gzip, sizeof(by_gzip) - 1, 100, &out),
            BT_ERR_NO_MEMORY);
        bt_alloc_fail_at(0);
        bt_strbuf_fini(&out);
        bt_strbuf_init(&out, 100);
        bt_alloc_fail_at(nth);
        assert_int_equal(bt_zip_pack(BT_ZIP_GZIP, TEXT, 17, &out),
                         BT_ERR_NO_MEMORY);
        bt_alloc_fail_at(0);
        bt_strbuf_fini(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(what_others_pack_is_unpacked),
        BT_TEST(what_is_cut_or_changed_is_refused),
        BT_TEST(the_limit_holds_whatever_is_packed),
        BT_TEST(what_is_packed_comes_back),
        BT_TEST(without_memory_it_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
