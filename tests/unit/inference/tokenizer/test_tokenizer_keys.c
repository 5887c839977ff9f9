/* SPDX-License-Identifier: Apache-2.0 */
/* What the keys baton.tokenizer.* make of a text, and which of their values are
 * refused. docs/TOKENIZER.md */
#include "tests/unit/inference/tokenizer/build_gguf.h"
#include "tests/unit/inference/tokenizer/golden.h"

#include "common/base/status.h"

/* -------------------------------------------------------------- loading */

static build_t file; /* too large for the stack */

enum { T_UNK, T_S, T_A, T_B, T_AB, T_SPACE, T_C, N_TOKENS };

/* Plain text: <unk>, a special token, a, b, ab, a space and c. */
static void start_plain(void)
{
    static const char *const tokens[N_TOKENS] = {"<unk>", "<|s|>",  "a", "b",
                                                 "ab",    "\u2581", "c"};
    static const int32_t types[N_TOKENS] = {2, 3, 1, 1, 1, 1, 1};
    static const char *const merges[] = {"a b"};

    build_start(&file);
    build_kv_str(&file, "tokenizer.ggml.model", "gpt2");
    build_kv_bool(&file, "baton.tokenizer.plain_text", true);
    build_kv_strs(&file, "tokenizer.ggml.tokens", tokens, N_TOKENS);
    build_kv_i32s(&file, "tokenizer.ggml.token_type", types, N_TOKENS);
    build_kv_strs(&file, "tokenizer.ggml.merges", merges, 1);
}

static bt_status_t load_file(bt_gguf_t **gguf_p, bt_tokenizer_t **tok_p,
                             char *why, size_t why_bytes)
{
    build_end(&file);
    assert_int_equal(
        bt_gguf_open_memory(file.bytes, file.n, why, why_bytes, gguf_p), BT_OK);
    return bt_tokenizer_load(*gguf_p, why, why_bytes, tok_p);
}

static void assert_refused(bt_status_t want, const char *mentions)
{
    char why[256] = "";
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok = NULL;

    assert_int_equal(load_file(&gguf, &tok, why, sizeof(why)), want);
    assert_null(tok);
    if (strstr(why, mentions) == NULL) {
        fail_msg("\"%s\" does not mention \"%s\"", why, mentions);
    }
    bt_gguf_close(gguf);
}

static void assert_ids(const char *text, const uint32_t *want, size_t n)
{
    char why[256] = "";
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok = NULL;
    bt_token_vec_t got = {0};

    if (load_file(&gguf, &tok, why, sizeof(why)) != BT_OK) {
        fail_msg("%s", why);
    }
    assert_int_equal(
        bt_tokenize(tok, text, strlen(text), BT_TOK_PARSE_SPECIAL, 100, &got),
        BT_OK);
    assert_int_equal(got.n, n);
    assert_memory_equal(got.ids, want, n * sizeof(*want));
    bt_free(got.ids);
    bt_tokenizer_destroy(tok);
    bt_gguf_close(gguf);
}

#define IDS(...)                     \
    (const uint32_t[]){__VA_ARGS__}, \
        sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)

/* Expected ids worked by hand. */
static void tokenizer_keys_change_the_ids(void **state)
{
    static const char *const removed[] = {"removed", "text", "c"};
    static const char *const previous[] = {"merged_with_previous", "pattern",
                                           "a"};
    static const char *const replaced[] = {"replace", "c", "a", "prepend", "b"};
    static const int32_t special[] = {T_S};
    static const uint32_t joined[] = {T_AB, T_SPACE, T_S, T_SPACE, T_C};

    (void)state;
    start_plain();
    assert_ids("ab <|s|> c", joined, 5);
    start_plain();
    build_kv_strs(&file, "baton.tokenizer.splits", removed, 3);
    assert_ids("acb", (const uint32_t[]){T_A, T_B}, 2);
    start_plain();
    build_kv_strs(&file, "baton.tokenizer.splits", previous, 3);
    assert_ids("cab", (const uint32_t[]){T_C, T_A, T_B}, 3);
    start_plain();
    build_kv_strs(&file, "baton.tokenizer.normalizers", replaced, 5);
    assert_ids("cb", (const uint32_t[]){T_B, T_AB}, 2);
    start_plain();
    build_kv_i32s(&file, "baton.tokenizer.lstrip", special, 1);
    assert_ids("ab \n<|s|> c", (const uint32_t[]){T_AB, T_S, T_SPACE, T_C}, 4);
    start_plain();
    build_kv_i32s(&file, "baton.tokenizer.single_word", special, 1);
    assert_ids("<|s|>c", (const uint32_t[]){T_UNK, T_C}, 2);
}

/* As its tokenizer.json says it, which GGUF files do not. */
static void phi_3_special_tokens_strip_the_space_behind(void **state)
{
    static const uint32_t bare[] = {T_A, T_SPACE, T_S, T_C};

    (void)state;
    start_plain();
    build_kv_str(&file, "general.name", "Phi-3-mini-4k-instruct");
    assert_ids("a <|s|> \nc", bare, 4);
    start_plain();
    build_kv_str(&file, "general.name", "phi3");
    assert_ids("a <|s|> c", bare, 4);
}

/* ------------------------------------------- what the library does as well */

/* Expected ids worked by hand: a prefix goes before each piece of the steps
 * before it, unless this begins with it; with "first" only before the text. */
static void space_prefix_is_added_only_if_missing(void **state)
{
    static const char *const always[] = {"always", "prefix", "a"};
    static const char *const first[] = {"first", "prefix", "a"};
    static const char *const of_parts[] = {"removed",  "text",   "c",
                                           "always",   "prefix", "a",
                                           "isolated", "text",   "b"};

    (void)state;
    start_plain();
    build_kv_strs(&file, "baton.tokenizer.splits", always, 3);
    assert_ids("b<|s|>b<|s|>ab", IDS(T_AB, T_S, T_AB, T_S, T_AB));
    start_plain();
    build_kv_strs(&file, "baton.tokenizer.splits", first, 3);
    assert_ids("b<|s|>b", IDS(T_AB, T_S, T_B));
    start_plain();
    build_kv_strs(&file, "baton.tokenizer.splits", first, 3);
    assert_ids("<|s|>b", IDS(T_S, T_B));
    start_plain();
    build_kv_strs(&file, "baton.tokenizer.splits", of_parts, 9);
    assert_ids("bcacbb", IDS(T_A, T_B, T_A, T_A, T_B, T_B));
}

/* A token of white space is found in what the token before it took. */
static void added_token_is_found_in_space_stripped_by_another(void **state)
{
    static const char *const tokens[] = {"<unk>", "<|s|>", "a", " ", "\n"};
    static const int32_t types[] = {2, 3, 1, 4, 1};
    static const int32_t rstrip[] = {1};

    (void)state;
    build_start(&file);
    build_kv_str(&file, "tokenizer.ggml.model", "gpt2");
    build_kv_bool(&file, "baton.tokenizer.plain_text", true);
    build_kv_strs(&file, "tokenizer.ggml.tokens", tokens, 5);
    build_kv_i32s(&file, "tokenizer.ggml.token_type", types, 5);
    build_kv_strs(&file, "tokenizer.ggml.merges", NULL, 0);
    build_kv_i32s(&file, "baton.tokenizer.rstrip", rstrip, 1);
    /* <|s|> takes " \n"; the space is found in it; what is left is text. */
    assert_ids("<|s|> \na", IDS(1, 3, 4, 2));
}

/* Tokens found in normalized text, by their own normal form. */
static void start_normalized(const char *const *steps, size_t n)
{
    static const int32_t ids[] = {T_S};

    start_plain();
    build_kv_strs(&file, "baton.tokenizer.normalizers", steps, n);
    build_kv_i32s(&file, "baton.tokenizer.normalized", ids, 1);
}

static void normalized_tokens_are_found_in_normalized_text(void **state)
{
    static const char *const lower[] = {"lowercase"};
    static const char *const replaced[] = {"replace", "S", "s"};
    static const char *const removed[] = {"replace_pattern", "[-_]+", ""};

    (void)state;
    start_normalized(lower, 1);
    assert_ids("A<|S|>b", IDS(T_A, T_S, T_B));
    start_normalized(replaced, 3);
    assert_ids("a<|S|><|s|>", IDS(T_A, T_S, T_S));
    start_normalized(removed, 3);
    assert_ids("a<|-s_-|>b", IDS(T_A, T_S, T_B));
}

/* What a client wrote is no special token, whatever normalizers make of it; and
 * a token that stands before it stays one. Each text is "<|S|>", what is quoted
 * and "<|S|>". */
static void quoted_text_is_normalized(void **state)
{
    static const struct {
        const char *steps[5];
        size_t n;
        const char *quoted;
        size_t n_unk; /* runs of unknown characters in it */
    } cases[] = {
        {{"lowercase"}, 1, "<|S|>a<|s|>", 2},
        {{"replace", "S", "s"}, 3, "<|S|>a", 1},
        {{"replace_pattern", "S", "s"}, 3, "<|S|>a", 1},
        {{"nfkc", "lowercase"}, 2, "\uFF1C|S|>a", 1}, /* a wide < */
        {{"nfkc", "lowercase"}, 2, "\u00e9<|S|>a", 1},
        {{"nfd", "lowercase"}, 2, "\u00e9<|S|>a", 1},
        {{"nfc", "lowercase"}, 2, "e\u0301<|S|>a", 1},
        {{"strip_left", "one_space", "lowercase"}, 3, "<|S|>a", 1},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        const size_t n = strlen(cases[i].quoted);
        bt_quote_t quote = {5, 5 + n};
        const bt_quotes_t quotes = {&quote, 1, 1};
        char why[256] = "";
        char text[64];
        bt_gguf_t *gguf;
        bt_tokenizer_t *tok = NULL;
        bt_token_vec_t got = {0};
        size_t n_special = 0;
        size_t n_unk = 0;

        start_normalized(cases[i].steps, cases[i].n);
        if (load_file(&gguf, &tok, why, sizeof(why)) != BT_OK) {
            fail_msg("%zu: %s", i, why);
        }
        snprintf(text, sizeof(text), "<|S|>%s<|S|>", cases[i].quoted);
        assert_int_equal(
            bt_tokenize_quoting(tok, text, strlen(text), &quotes, 100, &got),
            BT_OK);
        for (size_t k = 0; k < got.n; k++) {
            n_special += (got.ids[k] == T_S);
            n_unk += (got.ids[k] == T_UNK);
        }
        if ((n_special != 2) || (n_unk != cases[i].n_unk) ||
            (got.ids[got.n - 1] != T_S)) {
            fail_msg("case %zu: %zu special tokens, %zu unknown", i, n_special,
                     n_unk);
        }
        bt_free(got.ids);
        bt_tokenizer_destroy(tok);
        bt_gguf_close(gguf);
    }
}

static void unknown_characters_fuse_only_where_the_file_says_so(void **state)
{
    static const char *const tokens[] = {"a", "b", "ab"};
    static const char *const merges[] = {"a b"};
    static const int32_t types[] = {1, 1, 1};

    (void)state;
    start_plain();
    assert_ids("axyb", IDS(T_A, T_UNK, T_B));
    start_plain();
    build_kv_bool(&file, "baton.tokenizer.fuse_unknown", false);
    assert_ids("axyb", IDS(T_A, T_UNK, T_UNK, T_B));
    /* Without a token for them they are left out, and what was around them
     * merges. */
    build_start(&file);
    build_kv_str(&file, "tokenizer.ggml.model", "gpt2");
    build_kv_bool(&file, "baton.tokenizer.plain_text", true);
    build_kv_strs(&file, "tokenizer.ggml.tokens", tokens, 3);
    build_kv_i32s(&file, "tokenizer.ggml.token_type", types, 3);
    build_kv_strs(&file, "tokenizer.ggml.merges", merges, 1);
    assert_ids("axyb\u00e9", IDS(2));
}

static void space_mark_is_a_space_or_itself(void **state)
{
    (void)state;
    start_plain();
    assert_ids("a \u2581", IDS(T_A, T_SPACE, T_SPACE));
    start_plain();
    build_kv_bool(&file, "baton.tokenizer.space_mark", false);
    assert_ids("a \u2581", IDS(T_A, T_UNK, T_SPACE));
}

/* ab is a token that no merge makes. */
static void whole_pieces_are_tokens_without_merges(void **state)
{
    static const char *const tokens[] = {"<unk>", "a", "b", "ab"};
    static const char *const splits[] = {"removed", "text", "c"};
    static const int32_t types[] = {2, 1, 1, 1};

    (void)state;
    for (uint32_t whole = 0; whole < 2; whole++) {
        build_start(&file);
        build_kv_str(&file, "tokenizer.ggml.model", "gpt2");
        build_kv_bool(&file, "baton.tokenizer.plain_text", true);
        build_kv_strs(&file, "tokenizer.ggml.tokens", tokens, 4);
        build_kv_i32s(&file, "tokenizer.ggml.token_type", types, 4);
        build_kv_strs(&file, "tokenizer.ggml.merges", NULL, 0);
        build_kv_strs(&file, "baton.tokenizer.splits", splits, 3);
        build_kv_bool(&file, "baton.tokenizer.ignore_merges", whole == 1);
        if (whole == 1) {
            assert_ids("abcaab", IDS(3, 1, 1, 2));
        } else {
            assert_ids("abcaab", IDS(1, 2, 1, 1, 2));
        }
    }
}

/* The steps that a scan for tokens takes over white space that they strip: each
 * run once, whatever stands around it. */
static void white_space_is_scanned_once(void **state)
{
    static uint8_t text[1 << 15];
    bt_special_t special;
    bt_special_scan_t scan;
    bt_special_match_t match;
    size_t n = 0;

    (void)state;
    memset(text, ' ', sizeof(text));
    assert_int_equal(bt_special_init(&special), BT_OK);
    assert_int_equal(bt_special_add(&special, (const uint8_t *)" ", 1, 7, false,
                                    BT_SPECIAL_LSTRIP | BT_SPECIAL_RSTRIP),
                     BT_OK);
    bt_special_start(&scan, text, sizeof(text), true, NULL);
    while (bt_special_next(&special, &scan, &match)) {
        assert_int_equal(match.end, sizeof(text));
        n++;
    }
    assert_int_equal(n, sizeof(text));
    assert_true(scan.n_steps <= 2 * sizeof(text));
    bt_special_fini(&special);
}

static void invalid_tokenizer_keys_are_named(void **state)
{
    static const char *const norm[] = {"nfc", "bert"};
    static const char *const half[] = {"replace", "a"};
    static const char *const nothing[] = {"replace", "", "a"};
    static const char *const map[] = {"charsmap"};
    static const char *const many[] = {"nfc", "nfc", "nfc", "nfc", "nfc", "nfc",
                                       "nfc", "nfc", "nfc", "nfc", "nfc", "nfc",
                                       "nfc", "nfc", "nfc", "nfc", "nfc"};
    static const char *const keep[] = {"kept", "pattern", "a"};
    static const char *const kind[] = {"isolated", "glob", "a"};
    static const char *const two[] = {"isolated", "pattern"};
    static const char *const twice[] = {"always", "prefix", "a",
                                        "first",  "prefix", "b"};
    static const char *const long_one[] = {"always", "prefix", "ab"};
    static const char *const bad_pattern[] = {"replace_pattern", "a+?", "b"};
    static const char *const lazy[] = {"isolated", "pattern", "a+?"};
    static const int32_t normal[] = {T_A};
    static const int32_t bytes[] = {8, 0, 0, 0, 0, 0, 0, 0, 65};

    (void)state;
    start_plain();
    build_kv_strs(&file, "baton.tokenizer.normalizers", norm, 2);
    assert_refused(BT_ERR_UNSUPPORTED, "\"bert\"");
    start_plain();
    build_kv_strs(&file, "baton.tokenizer.normalizers", half, 2);
    assert_refused(BT_ERR_BAD_FILE, "baton.tokenizer.normalizers");
    start_plain();
    build_kv_strs(&file, "baton.tokenizer.normalizers", nothing, 3);
    assert_refused(BT_ERR_BAD_FILE, "nothing to find");
    start_plain();
    build_kv_strs(&file, "baton.tokenizer.normalizers", map, 1);
    assert_refused(BT_ERR_BAD_FILE, "nothing to find");
    start_plain();
    build_kv_strs(&file, "baton.tokenizer.normalizers", many, 17);
    assert_refused(BT_ERR_TOO_LARGE, "more than 16 steps");
    start_plain();
    build_kv_strs(&file, "baton.tokenizer.splits", keep, 3);
    assert_refused(BT_ERR_UNSUPPORTED, "kept");
    start_plain();
    build_kv_strs(&file, "baton.tokenizer.splits", kind, 3);
    assert_refused(BT_ERR_UNSUPPORTED, "glob");
    start_plain();
    build_kv_strs(&file, "baton.tokenizer.splits", two, 2);
    assert_refused(BT_ERR_BAD_FILE, "baton.tokenizer.splits");
    start_plain();
    build_kv_strs(&file, "baton.tokenizer.splits", lazy, 3);
    assert_refused(BT_ERR_UNSUPPORTED, "lazy");
    start_plain();
    build_kv_i32s(&file, "baton.tokenizer.rstrip", normal, 1);
    assert_refused(BT_ERR_BAD_FILE, "baton.tokenizer.rstrip");
    start_plain();
    build_kv_i32s(&file, "tokenizer.ggml.precompiled_charsmap", bytes, 9);
    assert_refused(BT_ERR_BAD_FILE, "precompiled_charsmap");
    start_plain();
    build_kv_strs(&file, "baton.tokenizer.splits", twice, 6);
    assert_refused(BT_ERR_UNSUPPORTED, "first prefix");
    start_plain();
    build_kv_strs(&file, "baton.tokenizer.splits", long_one, 3);
    assert_refused(BT_ERR_UNSUPPORTED, "always prefix");
    start_plain();
    build_kv_str(&file, "baton.tokenizer.first_space", "maybe");
    assert_refused(BT_ERR_UNSUPPORTED, "first_space");
    start_plain();
    build_kv_i32s(&file, "baton.tokenizer.normalized", normal, 1);
    assert_refused(BT_ERR_BAD_FILE, "baton.tokenizer.normalized");
    start_plain();
    build_kv_strs(&file, "baton.tokenizer.normalizers", bad_pattern, 3);
    assert_refused(BT_ERR_UNSUPPORTED, "lazy");
}

/* Each allocation of loading and of tokenizing fails once. */
static void every_tokenizer_kind_survives_failed_allocations(void **state)
{
    static const char *const names[] = {"golden/tok_unigram.gguf",
                                        "golden/tok_plain.gguf"};
    static const char text[] = "A \uFB01e\u0301 <mask> the \u00bd\u00c9 x";

    (void)state;
    for (size_t i = 0; i <= BT_ARRAY_LEN(names); i++) {
        char why[256];
        bt_gguf_t *gguf;
        bt_tokenizer_t *tok = NULL;
        bt_token_vec_t ids = {0};
        bt_status_t status;
        int nth = 0;

        if (i < BT_ARRAY_LEN(names)) {
            assert_int_equal(
                bt_gguf_open(bt_test_path(names[i]), why, sizeof(why), &gguf),
                BT_OK);
        } else {
            static const char *const split[] = {"isolated", "pattern", "a|b"};

            start_plain();
            build_kv_strs(&file, "baton.tokenizer.splits", split, 3);
            build_end(&file);
            assert_int_equal(bt_gguf_open_memory(file.bytes, file.n, why,
                                                 sizeof(why), &gguf),
                             BT_OK);
        }
        do {
            bt_alloc_fail_at(++nth);
            status = bt_tokenizer_load(gguf, why, sizeof(why), &tok);
            assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
        } while (status != BT_OK);
        assert_true(nth > 6);
        nth = 0;
        do {
            bt_alloc_fail_at(++nth);
            status = bt_tokenize(tok, text, sizeof(text) - 1,
                                 BT_TOK_PARSE_SPECIAL, 100, &ids);
            assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
            assert_true((status == BT_OK) || (ids.n == 0));
        } while (status != BT_OK);
        bt_alloc_fail_at(0);
        assert_true(nth > 1);
        bt_free(ids.ids);
        bt_tokenizer_destroy(tok);
        bt_gguf_close(gguf);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(tokenizer_keys_change_the_ids),
        BT_TEST(phi_3_special_tokens_strip_the_space_behind),
        BT_TEST(space_prefix_is_added_only_if_missing),
        BT_TEST(added_token_is_found_in_space_stripped_by_another),
        BT_TEST(normalized_tokens_are_found_in_normalized_text),
        BT_TEST(quoted_text_is_normalized),
        BT_TEST(unknown_characters_fuse_only_where_the_file_says_so),
        BT_TEST(space_mark_is_a_space_or_itself),
        BT_TEST(whole_pieces_are_tokens_without_merges),
        BT_TEST(white_space_is_scanned_once),
        BT_TEST(invalid_tokenizer_keys_are_named),
        BT_TEST(every_tokenizer_kind_survives_failed_allocations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
