/* SPDX-License-Identifier: Apache-2.0 */
/* Token ids against the Hugging Face tokenizers library and SentencePiece, with
 * small committed vocabularies; tests/golden/make_tokenizer_golden.py says
 * how they were made. */
#include "tests/unit/inference/tokenizer/golden.h"

typedef struct files {
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;
    golden_lines_t corpus;
    golden_lines_t expected;
} files_t;

static void open_files(files_t *f, const char *gguf, const char *ids)
{
    golden_load(bt_test_path(gguf), &f->gguf, &f->tok);
    golden_read_corpus(&f->corpus);
    golden_read(ids, &f->expected);
}

static void close_files(files_t *f)
{
    golden_free(&f->corpus);
    golden_free(&f->expected);
    bt_tokenizer_destroy(f->tok);
    bt_gguf_close(f->gguf);
}

static void small_vocabulary_gives_the_reference_ids(void **state)
{
    files_t f;

    (void)state;
    open_files(&f, "golden/tok_small.gguf", "golden/tok_small.ids.gz");
    golden_compare(f.tok, &f.corpus, GOLDEN_STEP, &f.expected, "smollm",
                   BT_TOK_PARSE_SPECIAL);
    golden_compare(f.tok, &f.corpus, GOLDEN_STEP, &f.expected, "smollm as text",
                   0);
    golden_use(f.tok, BT_PRETOK_GPT2, false);
    golden_compare(f.tok, &f.corpus, GOLDEN_STEP, &f.expected, "gpt-2",
                   BT_TOK_PARSE_SPECIAL);
    golden_use(f.tok, BT_PRETOK_QWEN2, false);
    golden_compare(f.tok, &f.corpus, GOLDEN_STEP, &f.expected, "qwen2",
                   BT_TOK_PARSE_SPECIAL);
    golden_use(f.tok, BT_PRETOK_LLAMA_BPE, true);
    golden_compare(f.tok, &f.corpus, GOLDEN_STEP, &f.expected, "llama-bpe",
                   BT_TOK_PARSE_SPECIAL);
    close_files(&f);
}

static void small_vocabulary_round_trips(void **state)
{
    files_t f;

    (void)state;
    open_files(&f, "golden/tok_small.gguf", "golden/tok_small.ids.gz");
    assert_true(golden_round_trip(f.tok, &f.corpus) > f.corpus.n * 9 / 10);
    close_files(&f);
}

static void random_ids_decode_as_the_reference(void **state)
{
    files_t f;
    uint32_t ids[GOLDEN_MAX_IDS];
    bt_strbuf_t out;

    (void)state;
    open_files(&f, "golden/tok_small.gguf", "golden/tok_detok.txt");
    bt_strbuf_init(&out, 1u << 20);
    for (size_t i = 0; i < f.expected.n; i++) {
        char *want = strchr(f.expected.lines[i], '\t');
        const size_t n = golden_ids(f.expected.lines[i], ids);
        bt_detok_t detok;
        size_t bytes;

        assert_non_null(want);
        want++;
        bytes = golden_unescape(want, strlen(want));
        bt_strbuf_reset(&out);
        bt_detok_init(&detok, f.tok);
        for (size_t k = 0; k < n; k++) {
            bt_detok_push(&detok, ids[k], &out);
        }
        bt_detok_finish(&detok, &out);
        assert_int_equal(out.len, bytes);
        if (bytes > 0) {
            assert_memory_equal(out.data, want, bytes);
        }
    }
    bt_strbuf_fini(&out);
    close_files(&f);
}

static void
sentencepiece_with_byte_fallback_gives_the_reference_ids(void **state)
{
    files_t f;

    (void)state;
    open_files(&f, "golden/tok_spm_bytes.gguf", "golden/tok_spm_bytes.ids.gz");
    golden_compare(f.tok, &f.corpus, GOLDEN_STEP, &f.expected, "spm", 0);
    assert_int_equal(golden_round_trip(f.tok, &f.corpus), f.corpus.n);
    close_files(&f);
}

static void
sentencepiece_with_unknown_token_gives_the_reference_ids(void **state)
{
    files_t f;

    (void)state;
    open_files(&f, "golden/tok_spm_plain.gguf", "golden/tok_spm_plain.ids.gz");
    golden_compare(f.tok, &f.corpus, GOLDEN_STEP, &f.expected, "spm", 0);
    close_files(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(small_vocabulary_gives_the_reference_ids),
        BT_TEST(small_vocabulary_round_trips),
        BT_TEST(random_ids_decode_as_the_reference),
        BT_TEST(sentencepiece_with_byte_fallback_gives_the_reference_ids),
        BT_TEST(sentencepiece_with_unknown_token_gives_the_reference_ids),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
