/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the page's files, and tags that clients have. */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/zip/zip.h"
#include "router/page/page.h"

/* Python packed them; zlib unpacks them. */
static void each_page_file_equals_its_compressed_form(void **state)
{
    (void)state;
    assert_true(bt_page_n_files > 10);
    for (size_t i = 0; i < bt_page_n_files; i++) {
        const bt_page_file_t *const file = &bt_page_files[i];
        bt_strbuf_t out;

        bt_strbuf_init(&out, 1u << 20);
        assert_int_equal(
            bt_unzip(BT_ZIP_GZIP, file->packed, file->packed_bytes, &out),
            BT_OK);
        assert_int_equal(out.len, file->plain_bytes);
        assert_memory_equal(out.data, file->plain, out.len);
        bt_strbuf_fini(&out);
        assert_ptr_equal(bt_page_find(file->name), file);
    }
    assert_non_null(bt_page_find(BT_PAGE_INDEX));
    assert_string_equal(bt_page_find(BT_PAGE_OPENAPI)->type,
                        "application/json");
    assert_null(bt_page_find("nothing"));
    assert_null(bt_page_find(""));
}

/* The page fits into a first look over a slow line. */
static void page_size_is_limited(void **state)
{
    size_t bytes = 0;

    (void)state;
    for (size_t i = 0; i < bt_page_n_files; i++) {
        if (strcmp(bt_page_files[i].name, BT_PAGE_OPENAPI) != 0) {
            bytes += bt_page_files[i].packed_bytes;
        }
    }
    assert_true(bytes < (size_t)100 * 1024);
}

static void etags_differ_by_content_and_coding(void **state)
{
    (void)state;
    for (size_t i = 0; i < bt_page_n_files; i++) {
        const bt_page_file_t *const a = &bt_page_files[i];
        const size_t n = strlen(a->tag);

        assert_true((n > 12) && (a->tag[0] == '"') && (a->tag[n - 1] == '"'));
        assert_string_not_equal(a->tag, a->tag_packed);
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(a->tag, bt_page_files[j].tag);
        }
    }
}

/* RFC 9110, 13.1.2: a list, weak or strong, or a star. */
static void if_none_match_finds_etag(void **state)
{
    static const char *const yes[] = {
        "\"a1\"", "W/\"a1\"", "\"b2\", \"a1\"", "\"b2\",W/\"a1\" , \"c\"",
        "*",      "  \"a1\""};
    static const char *const no[] = {"",   "\"a\"",   "\"a12\"",
                                     "a1", "\"b2\"",  ",,,",
                                     "W/", "\"xa1\"", "\"a1-gz\""};

    (void)state;
    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
        assert_true(bt_page_is_known(yes[i], "\"a1\""));
    }
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
        assert_false(bt_page_is_known(no[i], "\"a1\""));
    }
    assert_false(bt_page_is_known(NULL, "\"a1\""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(each_page_file_equals_its_compressed_form),
        BT_TEST(page_size_is_limited),
        BT_TEST(etags_differ_by_content_and_coding),
        BT_TEST(if_none_match_finds_etag),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
