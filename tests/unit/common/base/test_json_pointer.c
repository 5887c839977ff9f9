/* SPDX-License-Identifier: Apache-2.0 */
/* Pointers of RFC 6901; expected ones are worked out by hand from it. */
#include "common/base/json_pointer.h"

#include <string.h>

#include "tests/support/testsupport.h"

static const char text[] =
    "{\"a/b\":[1,{\"m~n\":2,\"\":[[3]]}],\"\\n\":4,\"c\":5}";

static bt_json_doc_t *parse(void)
{
    bt_json_fault_t fault;
    bt_json_doc_t *doc = NULL;

    assert_int_equal(
        bt_json_doc_parse_client(text, strlen(text), UINT32_MAX, &fault, &doc),
        BT_OK);
    return doc;
}

static void a_node_has_the_pointer_of_its_value(void **state)
{
    static const struct {
        double number;
        const char *pointer;
    } cases[] = {
        {1, "/a~1b/0"}, {2, "/a~1b/1/m~0n"}, {3, "/a~1b/1//0/0"},
        {4, "/?"},      {5, "/c"},
    };
    bt_json_doc_t *doc = parse();
    const bt_json_node_t *const root = bt_json_doc_root(doc);
    const bt_json_node_t *const end = bt_json_next(doc, root);
    size_t n_found = 0;
    char pointer[64];

    (void)state;
    for (const bt_json_node_t *node = root; node < end; node++) {
        double number;

        for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
            if (bt_json_as_double(node, &number) &&
                (number == cases[i].number)) {
                bt_json_pointer(doc, root, node, pointer, sizeof(pointer));
                assert_string_equal(pointer, cases[i].pointer);
                n_found++;
            }
        }
    }
    assert_int_equal(n_found, BT_ARRAY_LEN(cases));
    bt_json_pointer(doc, root, root, pointer, sizeof(pointer));
    assert_string_equal(pointer, "");
    bt_json_doc_free(doc);
}

static void a_key_has_the_pointer_of_its_value(void **state)
{
    bt_json_doc_t *doc = parse();
    const bt_json_node_t *const root = bt_json_doc_root(doc);
    char pointer[64];

    (void)state;
    bt_json_pointer(doc, root, bt_json_get(doc, root, "c") - 1, pointer,
                    sizeof(pointer));
    assert_string_equal(pointer, "/c");
    bt_json_doc_free(doc);
}

static void a_long_pointer_is_cut(void **state)
{
    bt_json_doc_t *doc = parse();
    const bt_json_node_t *const root = bt_json_doc_root(doc);
    const bt_json_node_t *const list = bt_json_get(doc, root, "a/b");

    (void)state;
    for (size_t cap = 1; cap < 12; cap++) {
        char pointer[16];

        memset(pointer, 'x', sizeof(pointer));
        bt_json_pointer(doc, root, bt_json_first(list), pointer, cap);
        assert_true(strlen(pointer) < cap);
        assert_memory_equal(pointer, "/a~1b/0", strlen(pointer) > 2 ? 2 : 0);
        assert_int_equal(pointer[cap], 'x');
    }
    bt_json_doc_free(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(a_node_has_the_pointer_of_its_value),
        BT_TEST(a_key_has_the_pointer_of_its_value),
        BT_TEST(a_long_pointer_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
