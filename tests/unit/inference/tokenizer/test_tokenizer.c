/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "tests/support/testsupport.h"

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "inference/tokenizer/tokenizer_priv.h"
#include "tests/unit/inference/tokenizer/build_gguf.h"

#define NO_LIMIT SIZE_MAX

/* ---------------------------------------------------------------- fixtures */

static build_t file; /* too large for the stack */

static const char *const bpe_tokens[] = {
    "<s>", "</s>", "<s>x",    "[tool]", "a",          "b", "c",      "Ġ",
    "ab",  "abc",  "\u0120a", "[",      "<|eot_id|>", "t", "<0x41>",
};
static const int32_t bpe_types[] = {3, 3, 3, 4, 1, 1, 1, 1,
                                    1, 1, 1, 1, 3, 1, 1};
static const char *const bpe_merges[] = {"a b", "ab c", "Ġ a"};

enum {
    BPE_BOS,
    BPE_EOS,
    BPE_BOS_X,
    BPE_TOOL,
    BPE_A,
    BPE_B,
    BPE_C,
    BPE_SPACE,
    BPE_AB,
    BPE_ABC,
    BPE_SPACE_A,
    BPE_BRACKET,
    BPE_EOT,
};

static const char *const spm_tokens[] = {
    "<unk>", "<s>", "</s>", "<0xC3>", "<0xA9>", "<0x0A>", "▁",
    "h",     "i",   "▁h",   "hi",     "▁hi",    "<0xFF>", "<0xF0>",
};
static const int32_t spm_types[] = {2, 3, 3, 6, 6, 6, 1, 1, 1, 1, 1, 1, 6, 6};
static const float spm_scores[] = {0,  0,  0,  0,  0,  0, -5,
                                   -6, -7, -2, -1, -3, 0, 0};

enum {
    SPM_UNK,
    SPM_BOS,
    SPM_EOS,
    SPM_C3,
    SPM_A9,
    SPM_NEWLINE,
    SPM_SPACE,
    SPM_H,
    SPM_I,
    SPM_SPACE_H,
    SPM_HI,
    SPM_SPACE_HI,
    SPM_FF,
    SPM_F0,
};

static void put_bpe_head(build_t *b)
{
    build_start(b);
    build_kv_str(b, "tokenizer.ggml.model", "gpt2");
    build_kv_str(b, "tokenizer.ggml.pre", "gpt-2");
}

static void put_bpe_vocab(build_t *b)
{
    build_kv_strs(b, "tokenizer.ggml.tokens", bpe_tokens,
                  BT_ARRAY_LEN(bpe_tokens));
    build_kv_i32s(b, "tokenizer.ggml.token_type", bpe_types,
                  BT_ARRAY_LEN(bpe_types));
    build_kv_strs(b, "tokenizer.ggml.merges", bpe_merges,
                  BT_ARRAY_LEN(bpe_merges));
}

static void build_bpe(build_t *b)
{
    put_bpe_head(b);
    put_bpe_vocab(b);
    build_kv_u32(b, "tokenizer.ggml.bos_token_id", BPE_BOS);
    build_kv_u32(b, "tokenizer.ggml.eos_token_id", BPE_EOS);
    build_kv_bool(b, "tokenizer.ggml.add_bos_token", true);
    build_kv_bool(b, "tokenizer.ggml.add_eos_token", true);
    build_end(b);
}

static void build_spm(build_t *b)
{
    build_start(b);
    build_kv_str(b, "tokenizer.ggml.model", "llama");
    build_kv_strs(b, "tokenizer.ggml.tokens", spm_tokens,
                  BT_ARRAY_LEN(spm_tokens));
    build_kv_i32s(b, "tokenizer.ggml.token_type", spm_types,
                  BT_ARRAY_LEN(spm_types));
    build_kv_f32s(b, "tokenizer.ggml.scores", spm_scores,
                  BT_ARRAY_LEN(spm_scores));
    build_kv_u32(b, "tokenizer.ggml.bos_token_id", SPM_BOS);
    build_kv_u32(b, "tokenizer.ggml.eos_token_id", SPM_EOS);
    build_end(b);
}

static void load(build_t *b, bt_gguf_t **gguf_p, bt_tokenizer_t **tok_p)
{
    char why[256] = "unset";

    assert_int_equal(
        bt_gguf_open_memory(b->bytes, b->n, why, sizeof(why), gguf_p), BT_OK);
    if (bt_tokenizer_load(*gguf_p, why, sizeof(why), tok_p) != BT_OK) {
        fail_msg("%s", why);
    }
    assert_string_equal(why, "");
}

static void unload(bt_gguf_t *gguf, bt_tokenizer_t *tok)
{
    bt_tokenizer_destroy(tok);
    bt_gguf_close(gguf);
}

static void assert_ids(const bt_tokenizer_t *tok, const char *text,
                       unsigned flags, const uint32_t *want, size_t n_want)
{
    bt_token_vec_t got = {0};

    assert_int_equal(
        bt_tokenize(tok, text, strlen(text), flags, NO_LIMIT, &got), BT_OK);
    assert_int_equal(got.n, n_want);
    for (size_t i = 0; i < n_want; i++) {
        assert_int_equal(got.ids[i], want[i]);
    }
    bt_free(got.ids);
}

#define ASSERT_IDS(tok, text, flags, ...)                               \
    do {                                                                \
        const uint32_t want_[] = {__VA_ARGS__};                         \
        assert_ids((tok), (text), (flags), want_, BT_ARRAY_LEN(want_)); \
    } while (0)

/* ----------------------------------------------------------------- merging */

/* A quadratic merge would take hours, and the test's time limit ends it. The
 * x has no token and is left out, and no cut is made beside it. */
static void eight_million_letters_without_a_space_are_one_word(void **state)
{
    const size_t n = (size_t)8 << 20;
    char *text = bt_calloc(n, 1);
    bt_token_vec_t ids = {0};
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;

    (void)state;
    assert_non_null(text);
    build_bpe(&file);
    load(&file, &gguf, &tok);
    for (size_t i = 0; i < n; i++) {
        text[i] = "axaxbxcx"[i % 8];
    }
    assert_int_equal(bt_tokenize(tok, text, n, 0, NO_LIMIT, &ids), BT_OK);
    assert_int_equal(ids.n, n / 4); /* a, abc, a, abc … */
    assert_int_equal(ids.ids[0], BPE_A);
    assert_int_equal(ids.ids[n / 4 - 1], BPE_ABC);
    bt_free(ids.ids);
    bt_free(text);
    unload(gguf, tok);
}

/* ------------------------------------------------------- byte-level tokens */

static void special_tokens_are_text_unless_asked_for(void **state)
{
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;

    (void)state;
    build_bpe(&file);
    load(&file, &gguf, &tok);
    ASSERT_IDS(tok, "abc a", 0, BPE_ABC, BPE_SPACE_A);
    /* "<", "s", ">" are no tokens here and are left out, as by the reference.
     */
    assert_ids(tok, "<s>", 0, NULL, 0);
    ASSERT_IDS(tok, "<s>", BT_TOK_PARSE_SPECIAL, BPE_BOS);
    ASSERT_IDS(tok, "a<s>xb<s>", BT_TOK_PARSE_SPECIAL, BPE_A, BPE_BOS_X, BPE_B,
               BPE_BOS);
    ASSERT_IDS(tok, "<<s></s>", BT_TOK_PARSE_SPECIAL, BPE_BOS, BPE_EOS);
    unload(gguf, tok);
}

static void user_defined_tokens_always_match(void **state)
{
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;

    (void)state;
    build_bpe(&file);
    load(&file, &gguf, &tok);
    ASSERT_IDS(tok, "a[tool]b", 0, BPE_A, BPE_TOOL, BPE_B);
    ASSERT_IDS(tok, "[[tool][", BT_TOK_PARSE_SPECIAL, BPE_BRACKET, BPE_TOOL,
               BPE_BRACKET);
    unload(gguf, tok);
}

static void bos_and_eos_are_added_once_and_only_when_asked_for(void **state)
{
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;

    (void)state;
    build_bpe(&file);
    load(&file, &gguf, &tok);
    ASSERT_IDS(tok, "b", BT_TOK_ADD_BOS, BPE_BOS, BPE_B, BPE_EOS);
    ASSERT_IDS(tok, "", BT_TOK_ADD_BOS, BPE_BOS, BPE_EOS);
    ASSERT_IDS(tok, "<s>b", BT_TOK_ADD_BOS | BT_TOK_PARSE_SPECIAL, BPE_BOS,
               BPE_B, BPE_EOS);
    ASSERT_IDS(tok, "<s>xb", BT_TOK_ADD_BOS | BT_TOK_PARSE_SPECIAL, BPE_BOS,
               BPE_BOS_X, BPE_B, BPE_EOS);
    assert_ids(tok, "", 0, NULL, 0);
    unload(gguf, tok);
}

static void invalid_or_too_long_text_adds_no_ids(void **state)
{
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;
    bt_token_vec_t ids = {0};

    (void)state;
    build_bpe(&file);
    load(&file, &gguf, &tok);
    assert_int_equal(bt_tokenize(tok, "a", 1, 0, 3, &ids), BT_OK);
    assert_int_equal(bt_tokenize(tok, "b\xED\xA0\x80", 4, 0, 9, &ids),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_tokenize(tok, "b\xC3", 2, 0, 9, &ids),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_tokenize(tok, "bbb", 3, 0, 3, &ids), BT_ERR_TOO_LARGE);
    assert_int_equal(bt_tokenize(tok, "b", 1, BT_TOK_ADD_BOS, 3, &ids),
                     BT_ERR_TOO_LARGE);
    assert_int_equal(ids.n, 1);
    assert_int_equal(bt_tokenize(tok, "bb", 2, 0, 3, &ids), BT_OK);
    assert_int_equal(ids.n, 3);
    assert_int_equal(ids.ids[0], BPE_A);
    bt_free(ids.ids);
    unload(gguf, tok);
}

/* The longest token has 6 bytes ("[tool]"): 4,096 letters cannot become 10
 * tokens, which is known before any memory is taken. */
static void word_over_the_token_limit_is_refused_early(void **state)
{
    static char text[4096];
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;
    bt_token_vec_t ids = {0};

    (void)state;
    memset(text, 'a', sizeof(text));
    build_bpe(&file);
    load(&file, &gguf, &tok);
    bt_alloc_fail_at(1);
    assert_int_equal(bt_tokenize(tok, text, sizeof(text), 0, 10, &ids),
                     BT_ERR_TOO_LARGE);
    bt_alloc_fail_at(0);
    bt_free(ids.ids);
    unload(gguf, tok);
}

/* No merge leads to "cab"; llama-bpe knows it as a word all the same. */
static void llama_bpe_keeps_a_word_that_is_a_token(void **state)
{
    static const char *const tokens[] = {"a", "b", "c", "ab", "cab", "<s>"};
    static const int32_t types[] = {1, 1, 1, 1, 1, 3};
    static const char *const merges[] = {"a b"};
    static const char *const pre[] = {"llama-bpe", "qwen2"};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(pre); i++) {
        bt_gguf_t *gguf;
        bt_tokenizer_t *tok;

        build_start(&file);
        build_kv_str(&file, "tokenizer.ggml.model", "gpt2");
        build_kv_str(&file, "tokenizer.ggml.pre", pre[i]);
        build_kv_strs(&file, "tokenizer.ggml.tokens", tokens, 6);
        build_kv_i32s(&file, "tokenizer.ggml.token_type", types, 6);
        build_kv_strs(&file, "tokenizer.ggml.merges", merges, 1);
        build_kv_u32(&file, "tokenizer.ggml.bos_token_id", 5);
        build_end(&file);
        load(&file, &gguf, &tok);
        if (i == 0) { /* whose files begin with BOS unless they say no */
            ASSERT_IDS(tok, "cab", BT_TOK_ADD_BOS, 5, 4);
        } else {
            ASSERT_IDS(tok, "cab", BT_TOK_ADD_BOS, 2, 3);
        }
        unload(gguf, tok);
    }
}

static void ids_that_end_a_turn_are_found(void **state)
{
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;
    uint32_t ids[4] = {99, 99, 99, 99};

    (void)state;
    build_bpe(&file);
    load(&file, &gguf, &tok);
    assert_int_equal(bt_tokenizer_n_vocab(tok), BT_ARRAY_LEN(bpe_tokens));
    assert_int_equal(bt_tokenizer_end_ids(tok, ids, 4), 2);
    assert_int_equal(ids[0], BPE_EOS);
    assert_int_equal(ids[1], BPE_EOT); /* known by its text */
    assert_int_equal(ids[2], 99);
    assert_int_equal(bt_tokenizer_end_ids(tok, ids, 1), 1);
    unload(gguf, tok);
}

/* gpt-oss: <|end|> ends a message, <|call|> and <|return|> an answer. */
static void ids_that_end_an_answer_of_messages_are_found(void **state)
{
    static const char *const names[] = {"<|channel|>", "<|end|>", "<|call|>",
                                        "<|return|>"};
    const char *tokens[BT_ARRAY_LEN(bpe_tokens) + BT_ARRAY_LEN(names)];
    int32_t types[BT_ARRAY_LEN(tokens)];
    const uint32_t n = BT_ARRAY_LEN(bpe_tokens);

    (void)state;
    memcpy(tokens, bpe_tokens, sizeof(bpe_tokens));
    memcpy(types, bpe_types, sizeof(bpe_types));
    for (uint32_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        tokens[n + i] = names[i];
        types[n + i] = 3;
    }
    for (uint32_t n_names = 2; n_names <= 4; n_names += 2) {
        uint32_t ids[8] = {0};
        bt_gguf_t *gguf;
        bt_tokenizer_t *tok;

        put_bpe_head(&file);
        build_kv_strs(&file, "tokenizer.ggml.tokens", tokens, n + n_names);
        build_kv_i32s(&file, "tokenizer.ggml.token_type", types, n + n_names);
        build_kv_strs(&file, "tokenizer.ggml.merges", bpe_merges,
                      BT_ARRAY_LEN(bpe_merges));
        build_kv_u32(&file, "tokenizer.ggml.eos_token_id", BPE_EOS);
        build_end(&file);
        load(&file, &gguf, &tok);
        if (n_names == 2) { /* another family's <|end|> */
            assert_int_equal(bt_tokenizer_end_ids(tok, ids, 8), 3);
            assert_int_equal(ids[2], n + 1);
        } else {
            assert_int_equal(bt_tokenizer_end_ids(tok, ids, 8), 4);
            assert_int_equal(ids[2], n + 3);
            assert_int_equal(ids[3], n + 2);
        }
        unload(gguf, tok);
    }
}

static void special_tokens_and_ids_outside_give_no_text(void **state)
{
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;
    bt_detok_t detok;
    bt_strbuf_t out;

    (void)state;
    build_bpe(&file);
    load(&file, &gguf, &tok);
    bt_strbuf_init(&out, 100);
    bt_detok_init(&detok, tok);
    bt_detok_push(&detok, BPE_SPACE_A, &out);
    bt_detok_push(&detok, BPE_EOT, &out);
    bt_detok_push(&detok, 1000, &out);
    assert_string_equal(out.data, " a");
    bt_detok_push(&detok, BPE_TOOL, &out); /* of the user: not special */
    bt_detok_finish(&detok, &out);
    assert_string_equal(out.data, " a[tool]");
    assert_int_equal(bt_strbuf_status(&out), BT_OK);
    bt_strbuf_fini(&out);
    unload(gguf, tok);
}

/* ----------------------------------------------------------- SentencePiece */

static void sentencepiece_merges_the_best_score_first(void **state)
{
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;

    (void)state;
    build_spm(&file);
    load(&file, &gguf, &tok);
    /* _ h i: "hi" (-1) before "_h" (-2), then "_hi" (-3) */
    ASSERT_IDS(tok, "hi", 0, SPM_SPACE_HI);
    ASSERT_IDS(tok, "h hi", 0, SPM_SPACE_H, SPM_SPACE_HI);
    ASSERT_IDS(tok, "hi", BT_TOK_ADD_BOS, SPM_BOS, SPM_SPACE_HI);
    ASSERT_IDS(tok, "\u00e9\n", 0, SPM_SPACE, SPM_C3, SPM_A9, SPM_NEWLINE);
    /* No byte tokens for these: one unknown token for the run. */
    ASSERT_IDS(tok, "xyhz", 0, SPM_SPACE, SPM_UNK, SPM_H, SPM_UNK);
    /* A text after a special token gets its space as well. */
    ASSERT_IDS(tok, "<s>hi</s>h", BT_TOK_PARSE_SPECIAL, SPM_BOS, SPM_SPACE_HI,
               SPM_EOS, SPM_SPACE_H);
    unload(gguf, tok);
}

/* "bc" comes before "ab" in the vocabulary, but not in the text. */
static void of_equal_scores_the_leftmost_pair_merges(void **state)
{
    static const char *const tokens[] = {"<unk>", "a", "b", "c", "bc", "ab"};
    static const int32_t types[] = {2, 1, 1, 1, 1, 1};
    static const float scores[] = {0, -3, -3, -3, -1, -1};
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;

    (void)state;
    build_start(&file);
    build_kv_str(&file, "tokenizer.ggml.model", "llama");
    build_kv_bool(&file, "tokenizer.ggml.add_bos_token", false);
    build_kv_bool(&file, "tokenizer.ggml.add_space_prefix", false);
    build_kv_strs(&file, "tokenizer.ggml.tokens", tokens, 6);
    build_kv_i32s(&file, "tokenizer.ggml.token_type", types, 6);
    build_kv_f32s(&file, "tokenizer.ggml.scores", scores, 6);
    build_end(&file);
    load(&file, &gguf, &tok);
    ASSERT_IDS(tok, "abc", 0, 5, 3);
    ASSERT_IDS(tok, "bcab", 0, 4, 5);
    unload(gguf, tok);
}

static void assert_text(const bt_tokenizer_t *tok, const uint32_t *ids,
                        size_t n, const char *want)
{
    bt_strbuf_t out;
    bt_detok_t detok;

    bt_strbuf_init(&out, 1000);
    bt_strbuf_append(&out, "", 0);
    bt_detok_init(&detok, tok);
    for (size_t i = 0; i < n; i++) {
        bt_detok_push(&detok, ids[i], &out);
    }
    bt_detok_finish(&detok, &out);
    assert_string_equal(out.data, want);
    bt_strbuf_fini(&out);
}

#define ASSERT_TEXT(tok, want, ...)                           \
    do {                                                      \
        const uint32_t ids_[] = {__VA_ARGS__};                \
        assert_text((tok), ids_, BT_ARRAY_LEN(ids_), (want)); \
    } while (0)

/* Expected texts: SentencePieceProcessor.decode() of a model with these bytes;
 * each byte that is of no character is a replacement. */
static void decoded_bytes_are_whole_characters_or_replacements(void **state)
{
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;

    (void)state;
    build_spm(&file);
    load(&file, &gguf, &tok);
    ASSERT_TEXT(tok, "\u00e9", SPM_C3, SPM_A9);
    ASSERT_TEXT(tok, "\uFFFDh", SPM_C3, SPM_H);
    ASSERT_TEXT(tok, "\uFFFD\u00e9", SPM_C3, SPM_C3, SPM_A9);
    ASSERT_TEXT(tok, "\uFFFD\uFFFD\uFFFD", SPM_FF, SPM_A9, SPM_C3);
    ASSERT_TEXT(tok, "\uFFFD", SPM_F0);
    /* F0 A9 is the beginning of a character; F0 A9 68 is not. */
    ASSERT_TEXT(tok, "\uFFFD\uFFFDh", SPM_F0, SPM_A9, SPM_H);
    ASSERT_TEXT(tok, "\uFFFD\uFFFD\uFFFD", SPM_F0, SPM_A9, SPM_A9);
    /* A special token between two halves gives nothing and breaks nothing. */
    ASSERT_TEXT(tok, "\u00e9", SPM_C3, SPM_EOS, SPM_A9);
    unload(gguf, tok);
}

static void sentencepiece_decoding_drops_the_leading_space(void **state)
{
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;
    bt_detok_t detok;
    bt_strbuf_t out;

    (void)state;
    build_spm(&file);
    load(&file, &gguf, &tok);
    ASSERT_TEXT(tok, "hi hi", SPM_BOS, SPM_SPACE_HI, SPM_SPACE_HI);
    ASSERT_TEXT(tok, " h", SPM_SPACE, SPM_SPACE_H);
    ASSERT_TEXT(tok, "i h", SPM_I, SPM_SPACE_H);
    ASSERT_TEXT(tok, "h", 4000000000u, SPM_SPACE_H);
    bt_strbuf_init(&out, 100);
    bt_detok_init(&detok, tok);
    detok.at_start = false; /* goes on with a prompt */
    bt_detok_push(&detok, SPM_SPACE_HI, &out);
    assert_string_equal(out.data, " hi");
    bt_strbuf_fini(&out);
    unload(gguf, tok);
}

/* ------------------------------------------------------------------ loading */

static void assert_refused(build_t *b, bt_status_t want, const char *mentions)
{
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok = NULL;
    char why[256] = "unset";

    build_end(b);
    assert_int_equal(
        bt_gguf_open_memory(b->bytes, b->n, why, sizeof(why), &gguf), BT_OK);
    assert_int_equal(bt_tokenizer_load(gguf, why, sizeof(why), &tok), want);
    assert_null(tok);
    if (strstr(why, mentions) == NULL) {
        fail_msg("\"%s\" does not mention \"%s\"", why, mentions);
    }
    bt_gguf_close(gguf);
}

static void unsupported_tokenizers_are_named(void **state)
{
    (void)state;
    build_start(&file);
    assert_refused(&file, BT_ERR_BAD_FILE, "tokenizer.ggml.model");
    build_start(&file);
    build_kv_str(&file, "tokenizer.ggml.model", "bert");
    assert_refused(&file, BT_ERR_UNSUPPORTED, "\"bert\"");
    build_start(&file);
    build_kv_str(&file, "tokenizer.ggml.model", "gpt2");
    assert_refused(&file, BT_ERR_UNSUPPORTED, "tokenizer.ggml.pre");
    build_start(&file);
    build_kv_str(&file, "tokenizer.ggml.model", "gpt2");
    build_kv_str(&file, "tokenizer.ggml.pre", "no-such-rule");
    assert_refused(&file, BT_ERR_UNSUPPORTED, "\"no-such-rule\"");
    put_bpe_head(&file);
    put_bpe_vocab(&file);
    build_kv_bool(&file, "tokenizer.ggml.add_space_prefix", true);
    assert_refused(&file, BT_ERR_UNSUPPORTED, "add_space_prefix");
}

static void inconsistent_vocabularies_are_refused(void **state)
{
    static const int32_t bad_types[BT_ARRAY_LEN(bpe_types)] = {7};
    static const char *const bad_merges[] = {"a b", "a z"};
    static const char *const no_space[] = {"ab"};
    static char long_token[2050];
    const char *const long_tokens[] = {long_token};

    (void)state;
    put_bpe_head(&file);
    assert_refused(&file, BT_ERR_BAD_FILE, "tokenizer.ggml.tokens");
    put_bpe_head(&file);
    build_kv_strs(&file, "tokenizer.ggml.tokens", bpe_tokens, 0);
    assert_refused(&file, BT_ERR_BAD_FILE, "tokenizer.ggml.tokens");
    put_bpe_head(&file);
    build_kv_i32s(&file, "tokenizer.ggml.tokens", bpe_types, 4);
    assert_refused(&file, BT_ERR_BAD_FILE, "does not hold strings");
    put_bpe_head(&file);
    memset(long_token, 'a', sizeof(long_token) - 1);
    build_kv_strs(&file, "tokenizer.ggml.tokens", long_tokens, 1);
    assert_refused(&file, BT_ERR_BAD_FILE, "2049 bytes");

    put_bpe_head(&file);
    build_kv_strs(&file, "tokenizer.ggml.tokens", bpe_tokens,
                  BT_ARRAY_LEN(bpe_tokens));
    assert_refused(&file, BT_ERR_BAD_FILE, "tokenizer.ggml.merges");
    put_bpe_head(&file);
    build_kv_strs(&file, "tokenizer.ggml.tokens", bpe_tokens,
                  BT_ARRAY_LEN(bpe_tokens));
    build_kv_i32s(&file, "tokenizer.ggml.token_type", bpe_types, 3);
    assert_refused(&file, BT_ERR_BAD_FILE, "does not fit the 15 tokens");
    put_bpe_head(&file);
    build_kv_strs(&file, "tokenizer.ggml.tokens", bpe_tokens,
                  BT_ARRAY_LEN(bpe_tokens));
    build_kv_i32s(&file, "tokenizer.ggml.token_type", bad_types,
                  BT_ARRAY_LEN(bad_types));
    assert_refused(&file, BT_ERR_BAD_FILE, "token 0");

    put_bpe_head(&file);
    build_kv_strs(&file, "tokenizer.ggml.tokens", bpe_tokens,
                  BT_ARRAY_LEN(bpe_tokens));
    build_kv_strs(&file, "tokenizer.ggml.merges", bad_merges, 2);
    assert_refused(&file, BT_ERR_BAD_FILE, "merge 1");
    put_bpe_head(&file);
    build_kv_strs(&file, "tokenizer.ggml.tokens", bpe_tokens,
                  BT_ARRAY_LEN(bpe_tokens));
    build_kv_strs(&file, "tokenizer.ggml.merges", no_space, 1);
    assert_refused(&file, BT_ERR_BAD_FILE, "merge 0");
}

static void special_ids_outside_the_vocabulary_are_refused(void **state)
{
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;

    (void)state;
    put_bpe_head(&file);
    put_bpe_vocab(&file);
    build_kv_u32(&file, "tokenizer.ggml.eos_token_id", 15);
    assert_refused(&file, BT_ERR_BAD_FILE, "eos_token_id is not one of the 15");
    put_bpe_head(&file);
    put_bpe_vocab(&file);
    build_kv_bool(&file, "tokenizer.ggml.add_bos_token", true);
    assert_refused(&file, BT_ERR_BAD_FILE, "BOS");
    put_bpe_head(&file);
    put_bpe_vocab(&file);
    build_kv_u32(&file, "tokenizer.ggml.add_eos_token", 1);
    assert_refused(&file, BT_ERR_BAD_FILE, "add_eos_token");

    put_bpe_head(&file); /* all ones is how some files say "none" */
    put_bpe_vocab(&file);
    build_kv_u32(&file, "tokenizer.ggml.eos_token_id", UINT32_MAX);
    build_end(&file);
    load(&file, &gguf, &tok);
    unload(gguf, tok);
}

static void inconsistent_pieces_are_refused(void **state)
{
    static const char *const tokens[] = {"a", "<0xZZ>"};
    static const char *const not_utf8[] = {"a", "b\xFF"};
    static const int32_t types[] = {1, 6};
    static const int32_t normal[] = {1, 1};
    static const float scores[] = {0, 0};
    const float nan_scores[] = {0, NAN};
    const struct {
        const char *const *tokens;
        const int32_t *types;
        const float *scores;
        size_t n_scores;
        const char *mentions;
    } cases[] = {
        {tokens, types, scores, 2, "byte token 1"},
        {tokens, normal, scores, 1, "tokenizer.ggml.scores"},
        {tokens, normal, nan_scores, 2, "token 1"},
        {not_utf8, normal, scores, 2, "token 1 is not UTF-8"},
        {tokens, normal, scores, 2, "neither all byte tokens"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        build_start(&file);
        build_kv_str(&file, "tokenizer.ggml.model", "llama");
        build_kv_bool(&file, "tokenizer.ggml.add_bos_token", false);
        build_kv_strs(&file, "tokenizer.ggml.tokens", cases[i].tokens, 2);
        build_kv_i32s(&file, "tokenizer.ggml.token_type", cases[i].types, 2);
        build_kv_f32s(&file, "tokenizer.ggml.scores", cases[i].scores,
                      cases[i].n_scores);
        assert_refused(&file, BT_ERR_BAD_FILE, cases[i].mentions);
    }
}

static void named_tokens_are_special_where_the_file_has_no_types(void **state)
{
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;

    (void)state;
    put_bpe_head(&file);
    build_kv_strs(&file, "tokenizer.ggml.tokens", bpe_tokens,
                  BT_ARRAY_LEN(bpe_tokens));
    build_kv_strs(&file, "tokenizer.ggml.merges", bpe_merges,
                  BT_ARRAY_LEN(bpe_merges));
    build_kv_u32(&file, "tokenizer.ggml.bos_token_id", BPE_BOS);
    build_kv_u32(&file, "tokenizer.ggml.eos_token_id", BPE_EOS);
    build_end(&file);
    load(&file, &gguf, &tok);
    ASSERT_IDS(tok, "<s>b</s>", BT_TOK_PARSE_SPECIAL, BPE_BOS, BPE_B, BPE_EOS);
    unload(gguf, tok);
}

static void tokenizer_load_survives_every_failed_allocation(void **state)
{
    void (*const builders[])(build_t *) = {build_bpe, build_spm};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(builders); i++) {
        bt_gguf_t *gguf;
        bt_tokenizer_t *tok = NULL;
        bt_status_t status;
        char why[256];
        int nth = 0;

        builders[i](&file);
        assert_int_equal(
            bt_gguf_open_memory(file.bytes, file.n, why, sizeof(why), &gguf),
            BT_OK);
        do {
            bt_alloc_fail_at(++nth);
            status = bt_tokenizer_load(gguf, why, sizeof(why), &tok);
            if (status != BT_OK) {
                assert_int_equal(status, BT_ERR_NO_MEMORY);
                assert_null(tok);
                assert_string_equal(why, "out of memory for the tokenizer");
            }
        } while (status != BT_OK);
        bt_alloc_fail_at(0);
        assert_true(nth > 6);
        unload(gguf, tok);
    }
}

static void tokenizing_survives_every_failed_allocation(void **state)
{
    static char text[600]; /* long enough for the heap */
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;
    bt_token_vec_t ids = {0};
    bt_status_t status;
    int nth = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(text); i++) {
        text[i] = "bx"[i % 2]; /* x has no token: no cut beside it */
    }
    build_bpe(&file);
    load(&file, &gguf, &tok);
    do {
        bt_alloc_fail_at(++nth);
        status = bt_tokenize(tok, text, sizeof(text), 0, NO_LIMIT, &ids);
        if (status != BT_OK) {
            assert_int_equal(status, BT_ERR_NO_MEMORY);
            assert_int_equal(ids.n, 0);
        }
    } while (status != BT_OK);
    bt_alloc_fail_at(0);
    assert_true(nth > 4);
    assert_int_equal(ids.n, sizeof(text) / 2);
    bt_free(ids.ids);
    unload(gguf, tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(eight_million_letters_without_a_space_are_one_word),
        BT_TEST(special_tokens_are_text_unless_asked_for),
        BT_TEST(user_defined_tokens_always_match),
        BT_TEST(bos_and_eos_are_added_once_and_only_when_asked_for),
        BT_TEST(invalid_or_too_long_text_adds_no_ids),
        BT_TEST(word_over_the_token_limit_is_refused_early),
        BT_TEST(llama_bpe_keeps_a_word_that_is_a_token),
        BT_TEST(ids_that_end_a_turn_are_found),
        BT_TEST(ids_that_end_an_answer_of_messages_are_found),
        BT_TEST(special_tokens_and_ids_outside_give_no_text),
        BT_TEST(sentencepiece_merges_the_best_score_first),
        BT_TEST(of_equal_scores_the_leftmost_pair_merges),
        BT_TEST(decoded_bytes_are_whole_characters_or_replacements),
        BT_TEST(sentencepiece_decoding_drops_the_leading_space),
        BT_TEST(unsupported_tokenizers_are_named),
        BT_TEST(inconsistent_vocabularies_are_refused),
        BT_TEST(special_ids_outside_the_vocabulary_are_refused),
        BT_TEST(inconsistent_pieces_are_refused),
        BT_TEST(named_tokens_are_special_where_the_file_has_no_types),
        BT_TEST(tokenizer_load_survives_every_failed_allocation),
        BT_TEST(tokenizing_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
