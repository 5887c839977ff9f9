/* SPDX-License-Identifier: Apache-2.0 */
/* What a byte costs does not grow with the text, by counting; and several
 * threads with one tokenizer. Nothing here is timed. */
#include <pthread.h>

#include "common/base/status.h"
#include "common/base/task.h"
#include "tests/unit/inference/tokenizer/build_gguf.h"
#include "tests/unit/inference/tokenizer/golden.h"

#define THREADS 6u /* more than there are caches */

static build_t file; /* too large for the stack */

/* All strings of up to 8 letters a and b are tokens, made in every way: no text
 * of these letters is ever cut, and all of it is merged. */
static void build_two_letters(build_t *b)
{
    static char tokens[510][9];
    static char merges[4096][10];
    const char *token_list[510];
    const char *merge_list[4096];
    size_t n = 0;
    size_t n_merges = 0;

    for (unsigned len = 1; len <= 8; len++) {
        for (unsigned bits = 0; bits < 1u << len; bits++, n++) {
            for (unsigned i = 0; i < len; i++) {
                tokens[n][i] = (bits >> i & 1) ? 'b' : 'a';
            }
            token_list[n] = tokens[n];
            for (unsigned cut = 1; cut < len; cut++, n_merges++) {
                snprintf(merges[n_merges], sizeof(merges[0]), "%.*s %s",
                         (int)cut, tokens[n], tokens[n] + cut);
                merge_list[n_merges] = merges[n_merges];
            }
        }
    }
    build_bpe_of(b, token_list, n, merge_list, n_merges);
}

static double steps_per_byte(bt_tokenizer_t *tok, const char *text, size_t n)
{
    bt_token_vec_t ids = {0};

    bt_word_pool_clear(tok->pool);
    assert_int_equal(bt_tokenize(tok, text, n, 0, SIZE_MAX, &ids), BT_OK);
    assert_true((ids.n >= n / 8) && (ids.n <= n / 2));
    assert_int_equal(tok->pool->caches[0].n_merged, 1); /* one word */
    bt_free(ids.ids);
    return (double)tok->pool->caches[0].n_steps / (double)n;
}

/* 1 pair a byte at first; each merge, of which there is at most one a byte,
 * looks up 2 more; 3 entries a byte come up, down a heap of 3 n: in all at most
 * 3 + 3 * 2 * log2(3 n) steps a byte. Quadratic would be n / 8. */
static void merging_a_word_costs_n_log_n(void **state)
{
    const size_t most = (size_t)1 << 18;
    char *text = bt_calloc(most, 1);
    uint64_t seed = 88172645463325252u; /* xorshift64 */
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;
    char why[256];

    (void)state;
    assert_non_null(text);
    build_two_letters(&file);
    assert_int_equal(
        bt_gguf_open_memory(file.bytes, file.n, why, sizeof(why), &gguf),
        BT_OK);
    assert_int_equal(bt_tokenizer_load(gguf, why, sizeof(why), &tok), BT_OK);
    for (unsigned kind = 0; kind < 3; kind++) {
        for (size_t i = 0; i < most; i++) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            text[i] = (kind == 0)   ? 'a'
                      : (kind == 1) ? "ab"[i % 2]
                                    : "ab"[seed >> 40 & 1];
        }
        for (unsigned log2 = 10; log2 <= 18; log2 += 4) {
            const double steps = steps_per_byte(tok, text, (size_t)1 << log2);

            assert_true(steps >= 1.0);
            assert_true(steps <= 3.0 + 6.0 * (log2 + 1.6));
        }
    }
    bt_free(text);
    bt_tokenizer_destroy(tok);
    bt_gguf_close(gguf);
}

/* With the words of a real vocabulary a random word is cut every few letters,
 * so the cost does not even grow with the logarithm: the most bytes that are
 * merged at once stay few. */
static void random_letters_are_merged_in_short_parts(void **state)
{
    const size_t n = (size_t)1 << 20;
    char *text = bt_calloc(n, 1);
    uint64_t seed = 88172645463325252u; /* xorshift64 */
    bt_token_vec_t ids = {0};
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;
    const bt_word_cache_t *cache;

    (void)state;
    assert_non_null(text);
    golden_load(bt_test_path("golden/tok_small.gguf"), &gguf, &tok);
    for (size_t i = 0; i < n; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        text[i] = (char)('a' + (seed >> 32) % 26);
    }
    assert_int_equal(bt_tokenize(tok, text, n, 0, SIZE_MAX, &ids), BT_OK);
    cache = &tok->pool->caches[0];
    assert_true(cache->n_table + cache->n_hits + cache->n_merged > n / 16);
    assert_true(cache->n_steps < n);
    bt_free(ids.ids);
    bt_free(text);
    bt_tokenizer_destroy(tok);
    bt_gguf_close(gguf);
}

static void count(void *ctx)
{
    ++*(unsigned *)ctx;
}

/* A word of a megabyte that is too many tokens is looked at to its end, and
 * lets others run meanwhile (task.h). */
static void endless_word_yields_to_other_tasks(void **state)
{
    static const bt_pretok_t pretoks[] = {BT_PRETOK_GPT2, BT_PRETOK_SMOLLM,
                                          BT_PRETOK_LLAMA_BPE, BT_PRETOK_QWEN2};
    const size_t n = (size_t)1 << 20;
    char *text = bt_calloc(n, 1);
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;

    (void)state;
    assert_non_null(text);
    memset(text, ' ', n);
    golden_load(bt_test_path("golden/tok_small.gguf"), &gguf, &tok);
    for (size_t i = 0; i < BT_ARRAY_LEN(pretoks); i++) {
        bt_token_vec_t ids = {0};
        unsigned n_polls = 0;
        bt_task_t *before;
        bt_task_t task;

        bt_task_init(&task);
        task.yield = count;
        task.ctx = &n_polls;
        tok->pretok = pretoks[i];
        before = bt_task_enter(&task);
        assert_int_equal(bt_tokenize(tok, text, n, 0, 1, &ids),
                         BT_ERR_TOO_LARGE);
        bt_task_leave(before);
        assert_true(n_polls >= n / BT_TASK_POLL_STEPS);
        bt_free(ids.ids);
    }
    bt_free(text);
    bt_tokenizer_destroy(tok);
    bt_gguf_close(gguf);
}

/* What looks ahead (white space, beginnings of special tokens) must not do so
 * again for each byte: a quadratic one would take hours, and the time limit of
 * the test ends it. */
static void regex_lookahead_runs_once(void **state)
{
    static const char *const repeated[] = {
        " ", "\n", "\n ", " \t", "'", "'l", "<", "<|im_", "[UD", "\u3000", "1",
    };
    static const bt_pretok_t pretoks[] = {BT_PRETOK_GPT2, BT_PRETOK_SMOLLM,
                                          BT_PRETOK_LLAMA_BPE, BT_PRETOK_QWEN2};
    const size_t n = (size_t)1 << 20;
    char *text = bt_calloc(n, 1);
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;

    (void)state;
    assert_non_null(text);
    golden_load(bt_test_path("golden/tok_small.gguf"), &gguf, &tok);
    for (size_t k = 0; k < BT_ARRAY_LEN(repeated); k++) {
        const size_t len = strlen(repeated[k]);
        const size_t bytes = n / len * len;

        for (size_t i = 0; i < bytes; i++) {
            text[i] = repeated[k][i % len];
        }
        for (size_t i = 0; i < BT_ARRAY_LEN(pretoks); i++) {
            bt_token_vec_t ids = {0};

            golden_use(tok, pretoks[i], false);
            assert_int_equal(bt_tokenize(tok, text, bytes, BT_TOK_PARSE_SPECIAL,
                                         SIZE_MAX, &ids),
                             BT_OK);
            assert_true(ids.n > 0);
            bt_free(ids.ids);
        }
    }
    bt_free(text);
    bt_tokenizer_destroy(tok);
    bt_gguf_close(gguf);
}

/* ---------------------------------------------------------------- threads */

typedef struct shared {
    const bt_tokenizer_t *tok;
    const golden_lines_t *corpus;
    const golden_lines_t *expected;
    size_t section_at;
} shared_t;

/* @return lines that came out wrong */
static void *tokenize_corpus(void *arg)
{
    const shared_t *shared = arg;
    const size_t n_lines = (shared->corpus->n + GOLDEN_STEP - 1) / GOLDEN_STEP;
    uint32_t *want = bt_calloc(GOLDEN_MAX_IDS, sizeof(*want));
    bt_token_vec_t got = {0};
    uintptr_t n_bad = (want == NULL);

    for (size_t i = 0; (n_bad == 0) && (i < n_lines * 4); i++) {
        const size_t line = i % n_lines * GOLDEN_STEP;
        const size_t n = golden_expected(shared->expected, shared->section_at,
                                         n_lines, i % n_lines, want);

        got.n = 0;
        n_bad += (bt_tokenize(shared->tok, shared->corpus->lines[line],
                              shared->corpus->bytes[line], BT_TOK_PARSE_SPECIAL,
                              GOLDEN_MAX_IDS, &got) != BT_OK) ||
                 (got.n != n) ||
                 ((n > 0) && (memcmp(got.ids, want, n * sizeof(*want)) != 0));
    }
    bt_free(got.ids);
    bt_free(want);
    return (void *)n_bad;
}

static void threads_that_share_a_tokenizer_get_the_reference_ids(void **state)
{
    pthread_t threads[THREADS];
    golden_lines_t corpus;
    golden_lines_t expected;
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;
    shared_t shared;

    (void)state;
    golden_load(bt_test_path("golden/tok_small.gguf"), &gguf, &tok);
    golden_read_corpus(&corpus);
    golden_read("golden/tok_small.ids.gz", &expected);
    shared.tok = tok;
    shared.corpus = &corpus;
    shared.expected = &expected;
    shared.section_at = golden_section(&expected, "smollm");
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(
            pthread_create(&threads[i], NULL, tokenize_corpus, &shared), 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        void *n_bad;

        assert_int_equal(pthread_join(threads[i], &n_bad), 0);
        assert_null(n_bad);
    }
    assert_int_equal(atomic_load(&tok->pool->taken), 0); /* all given back */
    golden_free(&corpus);
    golden_free(&expected);
    bt_tokenizer_destroy(tok);
    bt_gguf_close(gguf);
}

/* ------------------------------------------------------------------- cache */

static void word_cache_has_one_owner_and_evicts_the_older_entry(void **state)
{
    static const uint32_t ids[] = {1, 2, 3};
    bt_word_pool_t pool;
    bt_word_cache_t *caches[BT_WORD_POOL + 1];
    uint8_t word[BT_WORD_SLACK] = "word 0000";
    size_t n_known = 0;

    (void)state;
    assert_int_equal(bt_word_pool_init(&pool, 16), BT_OK); /* 8 sets of 2 */
    for (size_t i = 0; i <= BT_WORD_POOL; i++) {
        caches[i] = bt_word_pool_take(&pool);
        assert_int_equal(caches[i] == NULL, i == BT_WORD_POOL);
    }
    bt_word_pool_give(&pool, NULL);
    bt_word_pool_give(&pool, caches[2]);
    assert_ptr_equal(bt_word_pool_take(&pool), caches[2]);

    for (unsigned i = 0; i < 1000; i++) {
        const bt_word_entry_t *entry;

        word[5] = (uint8_t)('0' + i / 100);
        word[6] = (uint8_t)('0' + i / 10 % 10);
        word[7] = (uint8_t)('0' + i % 10);
        assert_null(bt_word_cache_get(caches[0], word, 9));
        bt_word_cache_put(caches[0], word, 9, ids, i % 4);
        entry = bt_word_cache_get(caches[0], word, 9);
        assert_non_null(entry);
        assert_int_equal(entry->n, i % 4);
        assert_null(bt_word_cache_get(caches[0], word, 8)); /* not its head */
        assert_null(bt_word_cache_get(caches[1], word, 9)); /* not another's */
    }
    for (unsigned i = 0; i < 1000; i++) {
        word[5] = (uint8_t)('0' + i / 100);
        word[6] = (uint8_t)('0' + i / 10 % 10);
        word[7] = (uint8_t)('0' + i % 10);
        n_known += (bt_word_cache_get(caches[0], word, 9) != NULL);
    }
    assert_int_equal(n_known, 16); /* full, and not more than that */
    bt_word_pool_clear(&pool);
    assert_null(bt_word_cache_get(caches[0], word, 9));
    bt_word_pool_fini(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(merging_a_word_costs_n_log_n),
        BT_TEST(random_letters_are_merged_in_short_parts),
        BT_TEST(endless_word_yields_to_other_tasks),
        BT_TEST(regex_lookahead_runs_once),
        BT_TEST(threads_that_share_a_tokenizer_get_the_reference_ids),
        BT_TEST(word_cache_has_one_owner_and_evicts_the_older_entry),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
