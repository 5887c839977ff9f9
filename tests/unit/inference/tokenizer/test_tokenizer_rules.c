/* SPDX-License-Identifier: Apache-2.0 */
/* Every rule of pretok.c, Unigram, normalizers and the rules of added
 * tokens against the Hugging Face library and SentencePiece:
 * tests/golden/make_tokenizer_rules_golden.py says how. What patterns mean is
 * also compared with the scanners that were written by hand for four of them,
 * over random texts. */
#include "tests/unit/inference/tokenizer/build_gguf.h"
#include "tests/unit/inference/tokenizer/golden.h"

#include "common/base/status.h"
#include "inference/tokenizer/pretok.h"

#define STEP      6u /* of the script */
#define MAX_BYTES 400u

static uint64_t seed = 88172645463325252u; /* xorshift64 */

static uint32_t below(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 32) % n;
}

/* The same vocabulary, cut by a rule's own splits. */
static void use_rule(bt_tokenizer_t *tok, const bt_pretok_rule_t *rule)
{
    char why[256];

    bt_splits_destroy(tok->splits);
    tok->splits = NULL;
    if (bt_splits_create(rule->splits, rule->n_splits, why, sizeof(why),
                         &tok->splits) != BT_OK) {
        fail_msg("%s: %s", rule->name, why);
    }
    golden_use(tok, BT_PRETOK_SPLITS, false);
}

static const bt_pretok_rule_t *rule_named(const char *name)
{
    for (size_t i = 0; bt_pretok_names_at(i) != NULL; i++) {
        const bt_pretok_rule_t *rule = &bt_pretok_names_at(i)->rule;

        if ((rule->splits != NULL) && (strcmp(rule->name, name) == 0)) {
            return rule;
        }
    }
    fail_msg("no name has rule %s", name);
    return NULL;
}

static void every_rule_gives_the_reference_ids(void **state)
{
    golden_lines_t corpus;
    golden_lines_t expected;
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;
    size_t n_rules = 0;

    (void)state;
    golden_load(bt_test_path("golden/tok_small.gguf"), &gguf, &tok);
    golden_read_corpus(&corpus);
    golden_read("golden/tok_rules.ids.gz", &expected);
    for (size_t i = 0; i < expected.n; i++) {
        if (strncmp(expected.lines[i], "= ", 2) == 0) {
            use_rule(tok, rule_named(expected.lines[i] + 2));
            golden_compare(tok, &corpus, STEP, &expected, expected.lines[i] + 2,
                           BT_TOK_PARSE_SPECIAL);
            n_rules++;
        }
    }
    assert_int_equal(n_rules, 28);
    golden_free(&corpus);
    golden_free(&expected);
    bt_tokenizer_destroy(tok);
    bt_gguf_close(gguf);
}

/* And each rule that a name has was one of these. */
static void every_name_has_a_rule_that_was_compared(void **state)
{
    golden_lines_t expected;
    size_t n = 0;

    (void)state;
    golden_read("golden/tok_rules.ids.gz", &expected);
    for (size_t i = 0; bt_pretok_names_at(i) != NULL; i++) {
        const bt_pretok_names_t *kind = bt_pretok_names_at(i);

        for (const char *const *name = kind->names; *name != NULL; name++) {
            assert_ptr_equal(bt_pretok_find(*name, strlen(*name)), kind);
            n++;
        }
        assert_int_equal(kind->rule.splits == NULL, kind->plain_text);
        if (kind->rule.splits != NULL) {
            (void)golden_section(&expected, kind->rule.name);
        }
    }
    assert_true(n > 70);
    assert_null(bt_pretok_find("qwen", 4));
    assert_null(bt_pretok_find("", 0));
    golden_free(&expected);
}

static size_t random_text(uint8_t *text)
{
    static const char *const pieces[] = {
        " ",      "  ",     "\t",     "\n",     "\r\n",      "\x0b",   "\u00a0",
        "\u3000", "'",      "'s",     "'LL",    "'\u017f",   "0",      "12",
        "345",    "\u00bd", "a",      "the",    "Q",         "\u00e9", "\u0301",
        "\u4e2d", "_",      "-",      "--",     "(",         "\u3002", "\x01",
        "\u200d", "\u0378", "\u01c5", "\u2028", "\U0001F600"};
    const uint32_t n = below(24);
    size_t bytes = 0;

    for (uint32_t i = 0; i < n; i++) {
        const char *piece = pieces[below((uint32_t)BT_ARRAY_LEN(pieces))];

        memcpy(text + bytes, piece, strlen(piece));
        bytes += strlen(piece);
    }
    return bytes;
}

static void patterns_split_as_their_hand_written_scanners(void **state)
{
    static const char *const names[] = {"gpt2", "smollm", "llama3", "qwen2"};

    (void)state;
    for (size_t r = 0; r < BT_ARRAY_LEN(names); r++) {
        const bt_pretok_rule_t *rule = rule_named(names[r]);
        bt_splits_t *splits;
        char why[256];

        assert_int_equal(bt_splits_create(rule->splits, rule->n_splits, why,
                                          sizeof(why), &splits),
                         BT_OK);
        for (uint32_t i = 0; i < 1500; i++) {
            uint8_t text[MAX_BYTES];
            const size_t bytes = random_text(text);
            bt_splits_scan_t scan;
            size_t at = 0;
            size_t from;
            size_t to;

            bt_splits_start(&scan, splits, text, bytes);
            while (at < bytes) {
                assert_true(bt_splits_next(&scan, &from, &to));
                assert_int_equal(from, at);
                assert_int_equal(
                    to - from,
                    bt_pretok_next(rule->scanner, text + at, bytes - at));
                at = to;
            }
            assert_false(bt_splits_next(&scan, &from, &to));
        }
        bt_splits_destroy(splits);
    }
}

static void compare_file(const char *gguf_name, const char *ids,
                         const char *section, const char *texts, size_t step,
                         unsigned flags)
{
    golden_lines_t corpus;
    golden_lines_t expected;
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;

    golden_load(bt_test_path(gguf_name), &gguf, &tok);
    golden_read(texts, &corpus);
    for (size_t i = 0; i < corpus.n; i++) {
        corpus.bytes[i] = golden_unescape(corpus.lines[i], corpus.bytes[i]);
    }
    golden_read(ids, &expected);
    golden_compare(tok, &corpus, step, &expected, section, flags);
    golden_free(&corpus);
    golden_free(&expected);
    bt_tokenizer_destroy(tok);
    bt_gguf_close(gguf);
}

static void unigram_gives_the_reference_ids(void **state)
{
    (void)state;
    compare_file("golden/tok_unigram.gguf", "golden/tok_unigram.ids.gz",
                 "unigram", "golden/tok_corpus.txt", STEP, 0);
}

static void
plain_text_with_normalizers_and_byte_fallback_gives_the_reference_ids(
    void **state)
{
    (void)state;
    compare_file("golden/tok_plain.gguf", "golden/tok_plain.ids.gz", "plain",
                 "golden/tok_corpus.txt", STEP, BT_TOK_PARSE_SPECIAL);
}

static void added_tokens_take_white_space_as_in_the_reference(void **state)
{
    (void)state;
    compare_file("golden/tok_plain.gguf", "golden/tok_plain.ids.gz", "ruled",
                 "golden/tok_ruled.txt", 1, BT_TOK_PARSE_SPECIAL);
}

static void texts_become_the_reference_forms(void **state)
{
    static const struct {
        const char *name;
        bt_normal_kind_t kind;
        bt_normal_form_t form;
    } forms[] = {
        {"nfc", BT_NORMAL_FORM, BT_NORMAL_NFC},
        {"nfd", BT_NORMAL_FORM, BT_NORMAL_NFD},
        {"nfkc", BT_NORMAL_FORM, BT_NORMAL_NFKC},
        {"nfkd", BT_NORMAL_FORM, BT_NORMAL_NFKD},
        {"lowercase", BT_NORMAL_LOWERCASE, BT_NORMAL_NONE},
        {"strip_left", BT_NORMAL_STRIP_LEFT, BT_NORMAL_NONE},
        {"strip_right", BT_NORMAL_STRIP_RIGHT, BT_NORMAL_NONE},
    };
    bt_normal_work_t work = {0};
    golden_lines_t lines;
    size_t n_changed = 0;

    (void)state;
    golden_read("golden/tok_normal.txt", &lines);
    for (size_t i = 0; i < lines.n; i++) {
        char *text = strchr(lines.lines[i], '\t');
        char *want = (text == NULL) ? NULL : strchr(text + 1, '\t');
        bt_normal_t normal = {0};
        const uint8_t *got;
        size_t bytes;
        size_t n_want;
        size_t n;
        size_t f = 0;

        assert_non_null(want);
        *text++ = '\0';
        *want++ = '\0';
        bytes = golden_unescape(text, strlen(text));
        n_want = golden_unescape(want, strlen(want));
        while (strcmp(lines.lines[i], forms[f].name) != 0) {
            assert_true(++f < BT_ARRAY_LEN(forms));
        }
        assert_int_equal(bt_normal_add(&normal, forms[f].kind, forms[f].form,
                                       NULL, NULL, NULL, 0),
                         BT_OK);
        assert_int_equal(bt_normalize(&normal, &work, (const uint8_t *)text,
                                      bytes, &got, &n, NULL),
                         BT_OK);
        assert_int_equal(n, n_want);
        if (n > 0) {
            assert_memory_equal(got, want, n);
        }
        n_changed += (n != bytes) || ((n > 0) && (memcmp(got, text, n) != 0));
        bt_normal_fini(&normal);
    }
    assert_true(n_changed > lines.n / 4);
    bt_normal_work_fini(&work);
    golden_free(&lines);
}

/* ----------------------------------------------------------------- cost */

/* What is looked at, for each byte and step: 1 if nothing was looked at twice.
 * The patterns look ahead by one character, but for runs that they remember,
 * and jais2 by up to 512 white spaces once for what comes before a word. */
#define MOST_STEPS 4.0

static double steps_per_byte(const bt_splits_t *splits, size_t n_steps,
                             const uint8_t *text, size_t bytes)
{
    bt_splits_scan_t scan;
    uint64_t sum = 0;
    size_t from;
    size_t to;

    bt_splits_start(&scan, splits, text, bytes);
    while (bt_splits_next(&scan, &from, &to)) {
    }
    for (size_t i = 0; i < n_steps; i++) {
        sum += scan.levels[i].runs.n_steps;
    }
    return (double)sum / (double)(bytes * n_steps);
}

static void pretokenizer_scans_any_text_a_bounded_number_of_times(void **state)
{
    static const char *const repeated[] = {
        " ",       "\n",     "\t",          "\r\n",   " a",
        "a",       "A",      "aA",          "1",      "1a",
        "'",       "'l",     "-",           "\u4e2d", "\u00e9",
        "\u4e2dA", "\u0301", "<sentinel:1", "IMGIMG", "  \u0301"};
    static const char *const ends[] = {"", "x", "1"};
    static uint8_t text[1 << 12];

    (void)state;
    for (size_t i = 0; bt_pretok_names_at(i) != NULL; i++) {
        const bt_pretok_rule_t *rule = &bt_pretok_names_at(i)->rule;
        bt_splits_t *splits;
        char why[256];

        if ((rule->splits == NULL) ||
            ((i > 0) &&
             (rule->splits == bt_pretok_names_at(i - 1)->rule.splits))) {
            continue;
        }
        assert_int_equal(bt_splits_create(rule->splits, rule->n_splits, why,
                                          sizeof(why), &splits),
                         BT_OK);
        for (size_t k = 0; k < BT_ARRAY_LEN(repeated) * BT_ARRAY_LEN(ends);
             k++) {
            const char *piece = repeated[k / BT_ARRAY_LEN(ends)];
            const char *end = ends[k % BT_ARRAY_LEN(ends)];
            const size_t len = strlen(piece);
            size_t n = 0;
            double steps;

            while (n + len + strlen(end) <= sizeof(text)) {
                memcpy(text + n, piece, len);
                n += len;
            }
            memcpy(text + n, end, strlen(end));
            n += strlen(end);
            steps = steps_per_byte(splits, rule->n_splits, text, n);
            if (steps > MOST_STEPS) {
                fail_msg("%s: %.1f steps a byte of \"%s\"", rule->name, steps,
                         piece);
            }
        }
        bt_splits_destroy(splits);
    }
}

/* A pattern that must look at all of a run before it knows: without its memory
 * it would do so from each place in it. */
static void failed_lookahead_is_remembered(void **state)
{
    static const char *const patterns[] = {"a+b", "\\s+$", "x?a*[bc]"};
    static const char *const pieces[] = {"a", " ", "a"};
    static uint8_t text[1 << 15];

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(patterns); i++) {
        const bt_split_t split = {BT_SPLIT_PATTERN, patterns[i],
                                  BT_SPLIT_ISOLATED, false};
        bt_splits_t *splits;
        char why[256];

        assert_int_equal(bt_splits_create(&split, 1, why, sizeof(why), &splits),
                         BT_OK);
        memset(text, pieces[i][0], sizeof(text));
        text[sizeof(text) - 1] = 'z';
        assert_true(steps_per_byte(splits, 1, text, sizeof(text)) <=
                    MOST_STEPS);
        bt_splits_destroy(splits);
    }
}

/* ------------------------------------------------------------- refusals */

static void assert_pattern(const char *pattern, bt_status_t want,
                           const char *mentions)
{
    const bt_split_t split = {BT_SPLIT_PATTERN, pattern, BT_SPLIT_ISOLATED,
                              false};
    bt_splits_t *splits = NULL;
    char why[256] = "";
    const bt_status_t status =
        bt_splits_create(&split, 1, why, sizeof(why), &splits);

    if ((status != want) || (strstr(why, mentions) == NULL)) {
        fail_msg("%s: %d, \"%s\"", pattern, (int)status, why);
    }
    bt_splits_destroy(splits);
}

static void unsupported_patterns_are_named(void **state)
{
    (void)state;
    assert_pattern("a|bc+", BT_OK, "");
    assert_pattern("a++b", BT_OK, "");
    assert_pattern("a++a", BT_ERR_UNSUPPORTED, "possessive");
    assert_pattern("(ab)++", BT_ERR_UNSUPPORTED, "possessive");
    assert_pattern("a*", BT_ERR_UNSUPPORTED, "empty text");
    assert_pattern("a+?", BT_ERR_UNSUPPORTED, "lazy");
    assert_pattern("\\bword", BT_ERR_UNSUPPORTED, "\\b");
    assert_pattern("(a)\\1", BT_ERR_UNSUPPORTED, "\\1");
    assert_pattern("a(?!bc)", BT_ERR_UNSUPPORTED, "one character");
    assert_pattern("(?<=a)b", BT_ERR_UNSUPPORTED, "(?<=");
    assert_pattern("\\p{Greek}", BT_ERR_UNSUPPORTED, "\\p{Greek}");
    assert_pattern("\\p{Lx}", BT_ERR_UNSUPPORTED, "\\p{Lx}");
    assert_pattern("\\p{}", BT_ERR_UNSUPPORTED, "\\p{}");
    assert_pattern("[[:punct:]]", BT_ERR_UNSUPPORTED, "[:");
    assert_pattern("(?i)\u00e9", BT_ERR_UNSUPPORTED, "(?i)");
    assert_pattern("^a", BT_ERR_UNSUPPORTED, "^");
    assert_pattern("(ab)*c", BT_ERR_UNSUPPORTED, "look ahead");
    assert_pattern("[b-a]", BT_ERR_BAD_FILE, "range");
    assert_pattern("[a", BT_ERR_BAD_FILE, "[");
    assert_pattern("(a", BT_ERR_BAD_FILE, "(");
    assert_pattern("a)", BT_ERR_BAD_FILE, ")");
    assert_pattern("\\p{L", BT_ERR_BAD_FILE, "\\p");
    assert_pattern("a{1001}", BT_ERR_TOO_LARGE, "repeats");
    assert_pattern("(a{1000}){1000}", BT_ERR_TOO_LARGE, "repeats");
    assert_pattern("((((((((((((((((((a))))))))))))))))))", BT_ERR_TOO_LARGE,
                   "deeper");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(every_rule_gives_the_reference_ids),
        BT_TEST(every_name_has_a_rule_that_was_compared),
        BT_TEST(patterns_split_as_their_hand_written_scanners),
        BT_TEST(unigram_gives_the_reference_ids),
        BT_TEST(
            plain_text_with_normalizers_and_byte_fallback_gives_the_reference_ids),
        BT_TEST(added_tokens_take_white_space_as_in_the_reference),
        BT_TEST(texts_become_the_reference_forms),
        BT_TEST(pretokenizer_scans_any_text_a_bounded_number_of_times),
        BT_TEST(failed_lookahead_is_remembered),
        BT_TEST(unsupported_patterns_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
