/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "common/base/status.h"
#include "router/http/multipart.h"

#define TYPE "multipart/form-data; boundary=B"
#define NL   "\r\n"
#define NAME "Content-Disposition: form-data; name=\"a\"" NL

static const char *why;

static bt_status_t begin(bt_multipart_t *m, const char *type, const char *body)
{
    why = NULL;
    return bt_multipart_init(m, type, body, strlen(body), &why);
}

/* Reads all parts. @return the status that ends them, or init's */
static bt_status_t read_all(const char *type, const char *body, unsigned *n_p)
{
    bt_multipart_part_t part;
    bt_multipart_t m;
    bt_status_t status = begin(&m, type, body);

    *n_p = 0;
    while ((status == BT_OK) &&
           ((status = bt_multipart_next(&m, &part, &why)) == BT_OK)) {
        (*n_p)++;
    }
    return status;
}

static void assert_bad(const char *body, const char *reason)
{
    unsigned n;

    assert_int_equal(read_all(TYPE, body, &n), BT_ERR_BAD_MESSAGE);
    assert_string_equal(why, reason);
}

/* As curl -F purpose=batch -F file=@x.jsonl writes it. */
static void parts_are_read_in_order(void **state)
{
    static const char body[] =
        "--------------------------d74496d66958873e" NL
        "Content-Disposition: form-data; name=\"purpose\"" NL NL "batch" NL
        "--------------------------d74496d66958873e" NL
        "Content-Disposition: form-data; name=\"file\"; "
        "filename=\"x.jsonl\"" NL "Content-Type: application/octet-stream" NL NL
        "{}\r\n-- \r\n--d\n" NL
        "--------------------------d74496d66958873e--" NL;
    bt_multipart_part_t part;
    bt_multipart_t m;

    (void)state;
    assert_int_equal(begin(&m,
                           "multipart/form-data; boundary="
                           "------------------------d74496d66958873e",
                           body),
                     BT_OK);
    assert_int_equal(bt_multipart_next(&m, &part, &why), BT_OK);
    assert_string_equal(part.name, "purpose");
    assert_false(part.is_file);
    assert_int_equal(part.bytes, 5);
    assert_memory_equal(part.data, "batch", 5);
    assert_int_equal(bt_multipart_next(&m, &part, &why), BT_OK);
    assert_string_equal(part.name, "file");
    assert_true(part.is_file);
    assert_string_equal(part.filename, "x.jsonl");
    assert_int_equal(part.bytes, 13);
    assert_memory_equal(part.data, "{}\r\n-- \r\n--d\n", 13);
    assert_int_equal(bt_multipart_next(&m, &part, &why), BT_ERR_NOT_FOUND);
    assert_int_equal(bt_multipart_next(&m, &part, &why), BT_ERR_NOT_FOUND);
}

static void empty_part_and_empty_form_are_allowed(void **state)
{
    bt_multipart_part_t part;
    bt_multipart_t m;
    unsigned n;

    (void)state;
    assert_int_equal(begin(&m, TYPE, "--B" NL NAME NL NL "--B--"), BT_OK);
    assert_int_equal(bt_multipart_next(&m, &part, &why), BT_OK);
    assert_int_equal(part.bytes, 0);
    assert_int_equal(bt_multipart_next(&m, &part, &why), BT_ERR_NOT_FOUND);
    assert_int_equal(read_all(TYPE, "--B--" NL, &n), BT_ERR_NOT_FOUND);
    assert_int_equal(n, 0);
}

static void content_type_has_one_boundary(void **state)
{
    static const struct {
        const char *type;
        bt_status_t status;
    } cases[] = {
        {"multipart/form-data; boundary=\"B\"", BT_ERR_NOT_FOUND},
        {"Multipart/Form-Data ; charset=utf-8; Boundary=B", BT_ERR_NOT_FOUND},
        {"multipart/form-data; boundary=B;", BT_ERR_NOT_FOUND},
        {"multipart/form-data; boundary=B; boundary=B", BT_ERR_BAD_MESSAGE},
        {"multipart/form-data", BT_ERR_BAD_MESSAGE},
        {"multipart/form-data; boundary=", BT_ERR_BAD_MESSAGE},
        {"multipart/form-data; boundary=\"\"", BT_ERR_BAD_MESSAGE},
        {"multipart/form-data; boundary=\"B", BT_ERR_BAD_MESSAGE},
        {"multipart/form-data; boundary=\"B \"", BT_ERR_BAD_MESSAGE},
        {"multipart/form-data; boundary=\"B;\"", BT_ERR_BAD_MESSAGE},
        {"multipart/form-data boundary=B", BT_ERR_BAD_MESSAGE},
        {"multipart/form-data; boundary=C", BT_ERR_BAD_MESSAGE},
        {"multipart/form-datax; boundary=B", BT_ERR_UNSUPPORTED},
        {"multipart/mixed; boundary=B", BT_ERR_UNSUPPORTED},
        {"application/json", BT_ERR_UNSUPPORTED},
        {"", BT_ERR_UNSUPPORTED},
        {NULL, BT_ERR_UNSUPPORTED},
    };
    char type[160];
    unsigned n;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        assert_int_equal(read_all(cases[i].type, "--B--", &n), cases[i].status);
    }
    for (int length = 69; length <= 71; length++) {
        char body[160], boundary[80];

        memset(boundary, 'b', sizeof(boundary));
        boundary[length] = '\0';
        snprintf(type, sizeof(type), "multipart/form-data; boundary=%s",
                 boundary);
        snprintf(body, sizeof(body), "--%s--", boundary);
        assert_int_equal(read_all(type, body, &n), (length <= 70)
                                                       ? BT_ERR_NOT_FOUND
                                                       : BT_ERR_BAD_MESSAGE);
    }
}

/* Browsers write %22 for a quote, which stays; curl and Python a backslash. */
static void names_are_unescaped(void **state)
{
    static const struct {
        const char *given, *name;
    } cases[] = {
        {"\"a b.txt\"", "a b.txt"},
        {"\"a\\\"b\"", "a\"b"},
        {"\"a\\\\b\"", "a\\b"},
        {"\"C:\\dir\\x\"", "C:\\dir\\x"},
        {"\"a%22b\"", "a%22b"},
        {"plain.txt", "plain.txt"},
        {"\"a;b=c\"", "a;b=c"},
        {"\"\"", ""},
        {"\"\xc3\xa4.txt\"", "\xc3\xa4.txt"},
    };
    bt_multipart_part_t part;
    bt_multipart_t m;
    char body[256];

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        snprintf(body, sizeof(body),
                 "--B" NL "content-disposition:form-data; name=file;"
                 "filename=%s \t" NL NL "x" NL "--B--",
                 cases[i].given);
        assert_int_equal(begin(&m, TYPE, body), BT_OK);
        assert_int_equal(bt_multipart_next(&m, &part, &why), BT_OK);
        assert_string_equal(part.filename, cases[i].name);
        assert_string_equal(part.name, "file");
    }
}

static void malformed_body_is_refused_with_its_cause(void **state)
{
    char body[BT_MULTIPART_HEAD_BYTES + 200];
    unsigned n;

    (void)state;
    assert_bad("", "the body does not begin with its boundary");
    assert_bad("x" NL "--B--", "the body does not begin with its boundary");
    assert_bad("--B", "the first boundary is not a line");
    assert_bad("--B-", "the first boundary is not a line");
    assert_bad("--B--x", "the first boundary is not a line");
    assert_bad("--B\n" NAME, "the first boundary is not a line");
    assert_bad("--B" NL, "the headers of a part do not end, or are over 4096 "
                         "bytes");
    assert_bad("--B" NL NL "x" NL "--B--", "a part has no Content-Disposition");
    assert_bad("--B" NL "X: y" NL NL "x" NL "--B--",
               "a part has no Content-Disposition");
    assert_bad("--B" NL NAME NAME NL "x" NL "--B--",
               "Content-Disposition of a part is given twice");
    assert_bad("--B" NL NAME NL "x", "the body ends within a part");
    assert_bad("--B" NL NAME NL "x" NL "--B", "a boundary is not a line");
    assert_bad("--B" NL NAME NL "x" NL "--Bx" NL "--B--",
               "a boundary is not a line");
    assert_bad("--B" NL NAME NL "x" NL "--B--" NL "more",
               "a boundary is not a line");
    assert_bad("--B" NL NAME NL "--B--",
               "a part has no line between its headers and its boundary");
    assert_bad("--B" NL "Content-Disposition: form-data; name=\"a\";"
               " filename*=utf-8''x" NL NL "x" NL "--B--",
               "Content-Disposition of a part has more than name and filename");
    assert_bad("--B" NL "Content-Disposition: form-data; name=\"a\";"
               " name=\"b\"" NL NL "x" NL "--B--",
               "a part's name is given twice, or too long");
    assert_bad("--B" NL "Content-Disposition: form-data; name=\"a\";"
               " filename=b; filename=c" NL NL "x" NL "--B--",
               "a part's filename is given twice");
    assert_bad("--B" NL "Content-Disposition: form-data" NL NL "x" NL "--B--",
               "Content-Disposition of a part has no name, or is malformed");
    assert_bad("--B" NL "Content-Disposition: form-data; name=\"a" NL NL "x" NL
               "--B--",
               "Content-Disposition of a part has no name, or is malformed");
    assert_bad("--B" NL "Content-Disposition: attachment; name=\"a\"" NL NL
               "x" NL "--B--",
               "Content-Disposition of a part is not form-data");
    assert_bad("--B" NL NAME "Content-Transfer-Encoding: base64" NL NL "x" NL
               "--B--",
               "Content-Transfer-Encoding of a part is not binary, 8bit or "
               "7bit");
    assert_bad("--B" NL NAME "folded" NL NL "x" NL "--B--",
               "a header of a part has no name");
    assert_bad("--B" NL NAME " X: y" NL NL "x" NL "--B--",
               "a header of a part has a malformed name");
    assert_bad("--B" NL NAME "X: a\nb" NL NL "x" NL "--B--",
               "a header of a part has a control character");
    assert_bad("--B" NL "Content-Disposition: form-data; name=\"\xff\"" NL NL
               "x" NL "--B--",
               "a name is not UTF-8");

    snprintf(body, sizeof(body), "--B" NL NAME "X: %*s" NL NL NL "--B--",
             (int)BT_MULTIPART_HEAD_BYTES - 49, "y");
    assert_int_equal(read_all(TYPE, body, &n), BT_ERR_NOT_FOUND);
    assert_int_equal(n, 1);
    snprintf(body, sizeof(body), "--B" NL NAME "X: %*s" NL NL NL "--B--",
             (int)BT_MULTIPART_HEAD_BYTES - 48, "y");
    assert_bad(body, "the headers of a part do not end, or are over 4096 "
                     "bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(parts_are_read_in_order),
        BT_TEST(empty_part_and_empty_form_are_allowed),
        BT_TEST(content_type_has_one_boundary),
        BT_TEST(names_are_unescaped),
        BT_TEST(malformed_body_is_refused_with_its_cause),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
