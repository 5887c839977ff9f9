/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns and texts of tests/golden/regex.jsonl: answers of V8 and of Python's
 * re (tests/golden/make_regex_golden.py). */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/json_doc.h"
#include "common/grammar/compile.h"
#include "common/grammar/regex_syntax.h"
#include "tests/support/golden_file.h"
#include "tests/support/grammar_text.h"
#include "tests/support/testsupport.h"

/* Calls a function with each line of the file. @return lines */
static uint32_t for_each_pattern(void (*check)(const bt_json_doc_t *doc,
                                               const bt_json_node_t *row))
{
    size_t bytes;
    char *file = bt_golden_read("golden/regex.jsonl", &bytes);
    uint32_t n = 0;

    for (const char *line = file; *line != '\0'; n++) {
        const size_t len = strcspn(line, "\n");
        char why[200];
        bt_json_doc_t *doc;

        assert_int_equal(bt_json_doc_parse(line, len, why, sizeof(why), &doc),
                         BT_OK);
        check(doc, bt_json_doc_root(doc));
        bt_json_doc_free(doc);
        line += len + (line[len] == '\n');
    }
    bt_free(file);
    return n;
}

static uint32_t n_matches, n_others;

static void check_automaton(const bt_json_doc_t *doc,
                            const bt_json_node_t *pattern,
                            const bt_json_node_t *lists, bt_regex_match_t match)
{
    const bt_json_node_t *list = bt_json_first(lists);
    bt_grammar_compiler_t c;
    const bt_dfa_t *dfa;

    bt_grammar_compiler_init(&c);
    dfa = bt_regex_dfa(&c, pattern->text, pattern->len, match);
    if (dfa == NULL) {
        fail_msg("%.*s: %s", (int)pattern->len, pattern->text, c.why);
    }
    for (int want = 1; want >= 0; want--, list = bt_json_next(doc, list)) {
        const bt_json_node_t *text = bt_json_first(list);

        for (uint32_t i = 0; i < bt_json_size(list, BT_JSON_ARRAY); i++) {
            if (bt_dfa_accepts(dfa, text->text, text->len) != want) {
                fail_msg("%.*s: \"%.*s\" (%s), not %d", (int)pattern->len,
                         pattern->text, (int)text->len, text->text,
                         (match == BT_REGEX_WHOLE) ? "whole" : "search", want);
            }
            n_matches += want == 1;
            n_others += want == 0;
            text = bt_json_next(doc, text);
        }
    }
    bt_grammar_compiler_fini(&c);
}

static void check_pattern(const bt_json_doc_t *doc, const bt_json_node_t *row)
{
    const bt_json_node_t *pattern = bt_json_get(doc, row, "pattern");

    check_automaton(doc, pattern, bt_json_get(doc, row, "whole"),
                    BT_REGEX_WHOLE);
    check_automaton(doc, pattern, bt_json_get(doc, row, "search"),
                    BT_REGEX_SEARCH);
}

static void automata_answer_as_v8_and_python_do(void **state)
{
    (void)state;
    n_matches = n_others = 0;
    assert_true(for_each_pattern(check_pattern) > 300);
    assert_true((n_matches > 2000) && (n_others > 2000));
}

static void check_program(const bt_json_doc_t *doc, const bt_json_node_t *row)
{
    const bt_json_node_t *pattern = bt_json_get(doc, row, "pattern");
    const bt_json_node_t *lists = bt_json_get(doc, row, "whole");
    const bt_json_node_t *list = bt_json_first(lists);
    const bt_grammar_source_t source = {
        .kind = BT_GRAMMAR_REGEX, .text = pattern->text, .bytes = pattern->len};
    char why[BT_GRAMMAR_WHY_BYTES];
    bt_grammar_t *g = NULL;
    const char *fault;
    uint8_t *program;
    size_t bytes;
    bt_status_t status;

    status = bt_grammar_compile(&source, &program, &bytes, why, sizeof(why));
    if (status != BT_OK) {
        /* A pattern that matches nothing is refused. */
        assert_int_equal(status, BT_ERR_INVALID_PARAM);
        assert_int_equal(bt_json_size(list, BT_JSON_ARRAY), 0);
        return;
    }
    assert_int_equal(bt_grammar_load(program, bytes, &fault, &g), BT_OK);
    for (int want = 1; want >= 0; want--, list = bt_json_next(doc, list)) {
        const bt_json_node_t *text = bt_json_first(list);

        for (uint32_t i = 0; i < bt_json_size(list, BT_JSON_ARRAY); i++) {
            if (grammar_has_text(g, text->text, text->len) != want) {
                fail_msg("%.*s: \"%.*s\", not %d", (int)pattern->len,
                         pattern->text, (int)text->len, text->text, want);
            }
            n_matches += want == 1;
            text = bt_json_next(doc, text);
        }
    }
    bt_grammar_free(g);
    bt_free(program);
}

static void programs_answer_as_v8_and_python_do(void **state)
{
    (void)state;
    n_matches = 0;
    assert_true(for_each_pattern(check_program) > 300);
    assert_true(n_matches > 800);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(automata_answer_as_v8_and_python_do),
        BT_TEST(programs_answer_as_v8_and_python_do),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
