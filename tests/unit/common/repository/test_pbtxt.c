/* SPDX-License-Identifier: Apache-2.0 */
/* Expected trees are worked by hand from the language's specification. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/repository/pbtxt.h"

static char why[256];

static bt_status_t read_text(const char *text, bt_pbtxt_t *tree)
{
    memset(why, 0, sizeof(why));
    return bt_pbtxt_read(text, strlen(text), tree, why, sizeof(why));
}

/* Append a tree as "name=text ", a message as "name{ ... }". */
static void print(const bt_pbtxt_t *tree, uint32_t first, char *out, size_t n)
{
    BT_PBTXT_FOR_EACH(field, tree, first)
    {
        size_t at = strlen(out);

        if (field->kind == BT_PBTXT_MESSAGE) {
            snprintf(out + at, n - at, "%s{ ", field->name);
            print(tree, field->first, out, n);
            at = strlen(out);
            snprintf(out + at, n - at, "} ");
        } else {
            snprintf(out + at, n - at,
                     (field->kind == BT_PBTXT_STRING) ? "%s=\"%s\" " : "%s=%s ",
                     field->name, field->text);
        }
    }
}

static void reads_as(const char *text, const char *want)
{
    char got[1024] = "";
    bt_pbtxt_t tree;

    if (read_text(text, &tree) != BT_OK) {
        fail_msg("%s: %s", text, why);
    }
    print(&tree, tree.first, got, sizeof(got));
    assert_string_equal(got, want);
    bt_pbtxt_fini(&tree);
}

static void pbtxt_fields_messages_and_lists_form_one_tree(void **state)
{
    (void)state;
    reads_as("", "");
    reads_as(" # nothing\n", "");
    reads_as("a: 1", "a=1 ");
    reads_as("a:1 b:-2.5e+3,c:TYPE_X;d:true", "a=1 b=-2.5e+3 c=TYPE_X d=true ");
    reads_as("m { a: 1 }", "m{ a=1 } ");
    reads_as("m: { a: 1 }", "m{ a=1 } ");
    reads_as("m < a: 1 > n: <>", "m{ a=1 } n{ } ");
    reads_as("d: [ 1, -1 ]", "d=1 d=-1 ");
    reads_as("d: []", "");
    reads_as("m [ { a: 1 }, { a: 2 } ]", "m{ a=1 } m{ a=2 } ");
    reads_as("m: [{}] a: 'x'", "m{ } a=\"x\" ");
    reads_as("a: 1 # b: 2\nc: 3", "a=1 c=3 ");
}

static void pbtxt_strings_are_unescaped_and_concatenated(void **state)
{
    bt_pbtxt_t tree;

    (void)state;
    reads_as("a: \"x\\ty\\\"z\\\\\" 'q\\x41\\101'", "a=\"x\ty\"z\\qAA\" ");
    reads_as("a: \"# no comment\"", "a=\"# no comment\" ");
    assert_int_equal(read_text("a: \"x\\0y\"", &tree), BT_OK);
    assert_int_equal(tree.fields[0].bytes, 3);
    assert_memory_equal(tree.fields[0].text, "x\0y", 4);
    bt_pbtxt_fini(&tree);
}

static void pbtxt_template_placeholders_are_marked_values(void **state)
{
    bt_pbtxt_t tree;

    (void)state;
    reads_as("a: ${b_c} d: \"x${e}\"", "a=${b_c} d=\"x${e}\" ");
    assert_int_equal(read_text("a: ${b} c: [ ${d} ] e: 'f'", &tree), BT_OK);
    assert_true(tree.fields[0].unfilled && tree.fields[1].unfilled);
    assert_false(tree.fields[2].unfilled);
    bt_pbtxt_fini(&tree);
}

static void pbtxt_field_is_found_by_name_and_knows_its_line(void **state)
{
    const bt_pbtxt_field_t *field;
    bt_pbtxt_t tree;

    (void)state;
    assert_int_equal(read_text("a: 1\n\nm {\n  b: 2\n}\na: 3", &tree), BT_OK);
    field = bt_pbtxt_find(&tree, tree.first, "a");
    assert_string_equal(field->text, "1");
    assert_int_equal(field->line, 1);
    field = bt_pbtxt_find(&tree, tree.first, "m");
    assert_int_equal(field->line, 3);
    assert_int_equal(bt_pbtxt_find(&tree, field->first, "b")->line, 4);
    assert_null(bt_pbtxt_find(&tree, tree.first, "b"));
    bt_pbtxt_fini(&tree);
}

static void pbtxt_syntax_error_names_its_line(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"a", "line 1: a has no ':'"},
        {"a:", "line 1: a has no value"},
        {"\na: }", "line 2: a has no value"},
        {"a 1", "line 1: a has no ':'"},
        {"m {", "line 1: the file ends before a '}'"},
        {"m {\n a: 1\n", "line 3: the file ends before a '}'"},
        {"m { > ", "line 1: here should be a field's name"},
        {"}", "line 1: here should be a field's name"},
        {"a: [ 1", "line 1: the list of a goes on with neither ',' nor ']'"},
        {"a: [ 1, ]", "line 1: a has no value"},
        {"a: \"x", "line 1: a string without its end"},
        {"a: \"x\ny\"", "line 1: a string without its end"},
        {"a: \"\\q\"", "line 1: an unknown escape in a string"},
        {"a: \"\\x\"", "line 1: an escape without a byte's value"},
        {"a: \"\\777\"", "line 1: an escape without a byte's value"},
        {"a: $b", "line 1: a '$' without {name}"},
        {"a: ${b", "line 1: a '$' without {name}"},
        {"a: ${b\n}", "line 1: a '$' without {name}"},
        {"[a.b]: 1", "line 1: here should be a field's name"},
        {"1: 2", "line 1: here should be a field's name"},
    };
    bt_pbtxt_t tree;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        if (read_text(cases[i].text, &tree) != BT_ERR_BAD_FILE) {
            fail_msg("%s was read", cases[i].text);
        }
        assert_string_equal(why, cases[i].why);
    }
}

static void pbtxt_size_and_depth_are_bounded(void **state)
{
    static char text[BT_PBTXT_MAX_BYTES + 2];
    bt_pbtxt_t tree;

    (void)state;
    for (size_t i = 0; i < BT_PBTXT_MAX_DEPTH; i++) {
        memcpy(text + 2 * i, "m{", 2);
        text[2 * (size_t)BT_PBTXT_MAX_DEPTH + i] = '}';
    }
    assert_int_equal(read_text(text, &tree), BT_OK);
    bt_pbtxt_fini(&tree);
    memset(text, 0, sizeof(text));
    for (size_t i = 0; i <= BT_PBTXT_MAX_DEPTH; i++) {
        memcpy(text + 2 * i, "m{", 2);
    }
    assert_int_equal(read_text(text, &tree), BT_ERR_TOO_LARGE);
    assert_string_equal(why, "line 1: more than 16 messages deep");
    memset(text, ' ', sizeof(text));
    assert_int_equal(
        bt_pbtxt_read(text, BT_PBTXT_MAX_BYTES, &tree, why, sizeof(why)),
        BT_OK);
    bt_pbtxt_fini(&tree);
    assert_int_equal(
        bt_pbtxt_read(text, BT_PBTXT_MAX_BYTES + 1, &tree, why, sizeof(why)),
        BT_ERR_TOO_LARGE);
    for (size_t i = 0; i < 4 * (size_t)BT_PBTXT_MAX_FIELDS + 4; i += 4) {
        memcpy(text + i, "a:1 ", 4);
    }
    assert_int_equal(bt_pbtxt_read(text, 4 * (size_t)BT_PBTXT_MAX_FIELDS, &tree,
                                   why, sizeof(why)),
                     BT_OK);
    assert_int_equal(tree.n, BT_PBTXT_MAX_FIELDS);
    bt_pbtxt_fini(&tree);
    assert_int_equal(bt_pbtxt_read(text, 4 * (size_t)BT_PBTXT_MAX_FIELDS + 4,
                                   &tree, why, sizeof(why)),
                     BT_ERR_TOO_LARGE);
}

static void pbtxt_reader_reports_a_failed_allocation(void **state)
{
    bt_pbtxt_t tree = {0};

    (void)state;
    for (int nth = 1; nth <= 2; nth++) {
        bt_alloc_fail_at(nth);
        assert_int_equal(read_text("a: 1", &tree), BT_ERR_NO_MEMORY);
        bt_alloc_fail_at(0);
        assert_null(tree.arena);
        assert_non_null(strstr(why, "out of memory"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(pbtxt_fields_messages_and_lists_form_one_tree),
        BT_TEST(pbtxt_strings_are_unescaped_and_concatenated),
        BT_TEST(pbtxt_template_placeholders_are_marked_values),
        BT_TEST(pbtxt_field_is_found_by_name_and_knows_its_line),
        BT_TEST(pbtxt_syntax_error_names_its_line),
        BT_TEST(pbtxt_size_and_depth_are_bounded),
        BT_TEST(pbtxt_reader_reports_a_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
