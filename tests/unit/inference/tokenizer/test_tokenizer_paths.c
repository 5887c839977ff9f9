/* SPDX-License-Identifier: Apache-2.0 */
/* The short ways of the tokenizer (tables and caches of words, cuts, heaps)
 * against the plain definition in plain.h, over random texts made of what is
 * hard to cut: BATON_TEST_CASES texts for each vocabulary and pre-tokenizer. */
#include <stdlib.h>

#include "common/base/status.h"
#include "tests/unit/inference/tokenizer/build_gguf.h"
#include "tests/unit/inference/tokenizer/golden.h"
#include "tests/unit/inference/tokenizer/plain.h"

#define CASES      15000u
#define MAX_BYTES  2000u
#define N_WORDS    220u /* tokens of the random vocabulary */
#define WORD_BYTES 16u

static uint64_t seed = 88172645463325252u; /* xorshift64 */

static uint32_t below(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 32) % n;
}

static const char *const pieces[] = {
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\r\n",
    "\r",
    "\n\n",
    "\x0b",
    "\u00a0",
    "\u3000",
    "\u2028",
    "\xC2\x85",
    "'",
    "'s",
    "'t",
    "'ll",
    "'LL",
    "'Re",
    "'ve",
    "'\u017f",
    "\u2019s",
    "0",
    "1",
    "234",
    "99999",
    "\u00bd",
    "\u0664",
    "\u216b",
    "a",
    "b",
    "e",
    "the",
    " the",
    "ing",
    "tion",
    " and",
    " I",
    "x",
    "q",
    "z",
    "Z",
    "ABC",
    "_",
    "-",
    "--",
    ".",
    ",",
    "(",
    "){",
    "==",
    "//",
    "\u00e9",
    "\u00df",
    "\u0301",
    "\u0438",
    "\u4e2d",
    "\u6587",
    "\u3002",
    "\ud55c",
    "\u0e01",
    "\u200d",
    "\ufeff",
    "\ufffd",
    "\u2581",
    "\u2581a",
    "\x01",
    "\x7f",
    "\x1c",
    "\u0378",
    "<",
    "<|",
    "|>",
    "<|im_",
    "[UD",
    "[UD]",
    "[UDX]",
    "<s>",
    "</s>",
    "<0x41>",
    "\U0001F600",
    "\U0001F44D\U0001F3FD",
    "\U00020000",
    "\U0010FFFF",
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "internationalization",
    "                    ",
    "aaaaaaaaaaaaaaaa",
};

/* Mostly short, sometimes of one or two pieces alone, sometimes long. */
static size_t random_text(uint8_t *text)
{
    const uint32_t n = (below(200) == 0) ? 200 + below(100) : below(24);
    const uint32_t few = below(4);
    const uint32_t first = below((uint32_t)BT_ARRAY_LEN(pieces));
    size_t bytes = 0;

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t which =
            (few == 0) ? (first + below(3)) % (uint32_t)BT_ARRAY_LEN(pieces)
                       : below((uint32_t)BT_ARRAY_LEN(pieces));
        const size_t len = strlen(pieces[which]);

        if (len > MAX_BYTES - bytes) {
            break;
        }
        memcpy(text + bytes, pieces[which], len);
        bytes += len;
    }
    if ((bytes > 0) && (below(8) == 0)) { /* often no UTF-8 any more */
        text[below((uint32_t)bytes)] = (uint8_t)below(256);
    }
    if ((bytes > 0) && (below(16) == 0)) {
        bytes = below((uint32_t)bytes); /* the end of a character missing */
    }
    return bytes;
}

static uint32_t n_cases(void)
{
    const char *text = getenv("BATON_TEST_CASES");

    return (text == NULL) ? CASES / bt_test_stride(4)
                          : (uint32_t)strtoul(text, NULL, 10);
}

static void show_and_fail(const uint8_t *text, size_t bytes,
                          const bt_token_vec_t *got, const plain_ids_t *want)
{
    print_error("text:");
    for (size_t i = 0; i < bytes; i++) {
        print_error(" %02x", text[i]);
    }
    print_error("\ngot: ");
    for (size_t i = 0; i < got->n; i++) {
        print_error(" %u", got->ids[i]);
    }
    print_error("\nwant:");
    for (size_t i = 0; i < want->n; i++) {
        print_error(" %u", want->ids[i]);
    }
    fail_msg("the ids differ");
}

/* Each text with what the cache has learned, and every third without it. */
static void compare(bt_tokenizer_t *tok)
{
    static plain_ids_t want;
    const uint32_t n = n_cases();
    bt_token_vec_t got = {0};
    uint32_t n_valid = 0;

    for (uint32_t i = 0; i < n; i++) {
        /* Just as large as the text, so that a sanitizer sees a read past. */
        static uint8_t buf[MAX_BYTES];
        const size_t bytes = random_text(buf);
        const unsigned flags = below(2) ? BT_TOK_PARSE_SPECIAL : 0;
        const bool valid = plain_utf8_valid(buf, bytes);
        uint8_t *text = bt_calloc((bytes == 0) ? 1 : bytes, 1);
        bt_status_t status;

        assert_non_null(text);
        memcpy(text, buf, bytes);
        if (!tok->is_spm) {
            atomic_store(&tok->pool->taken, (i % 3 == 0) ? UINT32_MAX : 0);
        }
        got.n = 0;
        status =
            bt_tokenize(tok, (const char *)text, bytes, flags, PLAIN_MAX, &got);
        assert_int_equal(status, valid ? BT_OK : BT_ERR_INVALID_PARAM);
        if (valid) {
            n_valid++;
            plain_tokenize(tok, text, bytes, flags != 0, &want);
            if ((got.n != want.n) ||
                ((got.n > 0) &&
                 (memcmp(got.ids, want.ids, got.n * sizeof(*got.ids)) != 0))) {
                show_and_fail(text, bytes, &got, &want);
            }
        }
        bt_free(text);
    }
    if (!tok->is_spm) {
        atomic_store(&tok->pool->taken, 0);
        /* All ways were gone. */
        assert_true(tok->pool->caches[0].n_table > n / 10);
        assert_true(tok->pool->caches[0].n_hits > n / 10);
        assert_true(tok->pool->caches[0].n_merged > n / 100);
    }
    assert_true(n_valid > n / 2);
    bt_free(got.ids);
}

static void compare_all_pretoks(bt_tokenizer_t *tok)
{
    golden_use(tok, BT_PRETOK_SMOLLM, false);
    compare(tok);
    golden_use(tok, BT_PRETOK_GPT2, false);
    compare(tok);
    golden_use(tok, BT_PRETOK_QWEN2, false);
    compare(tok);
    golden_use(tok, BT_PRETOK_LLAMA_BPE, true);
    compare(tok);
}

static void trained_vocabulary_equals_the_definition(void **state)
{
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;

    (void)state;
    golden_load(bt_test_path("golden/tok_small.gguf"), &gguf, &tok);
    compare_all_pretoks(tok);
    bt_tokenizer_destroy(tok);
    bt_gguf_close(gguf);
}

static void sentencepiece_equals_the_definition(void **state)
{
    static const char *const names[] = {"golden/tok_spm_bytes.gguf",
                                        "golden/tok_spm_plain.gguf"};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        bt_gguf_t *gguf;
        bt_tokenizer_t *tok;

        golden_load(bt_test_path(names[i]), &gguf, &tok);
        compare(tok);
        bt_tokenizer_destroy(tok);
        bt_gguf_close(gguf);
    }
}

static build_t file; /* too large for the stack */

/* Tokens that no training gives: joined at random, and merged in an order that
 * has nothing to do with it, so that many are not what their text becomes; some
 * bytes have no token. "Ġ" is the space of byte-level vocabularies, "Ċ" the
 * newline, "Ã" and "©" are the bytes of é. */
static void build_random(build_t *b)
{
    static char tokens[N_WORDS][WORD_BYTES + 1];
    static char merges[N_WORDS][2 * WORD_BYTES];
    static const char *const singles[] = {"a", "b", "e",      "t",     "h",
                                          "x", "'", "\u0120", "s",     "\u010a",
                                          "1", "-", "\u00c3", "\u00a9"};
    const char *token_list[N_WORDS];
    const char *merge_list[N_WORDS];
    const size_t n_singles = BT_ARRAY_LEN(singles);
    size_t n = 0;
    size_t n_merges = 0;

    for (; n < n_singles; n++) {
        memcpy(tokens[n], singles[n], strlen(singles[n]) + 1);
        token_list[n] = tokens[n];
    }
    while (n < N_WORDS) {
        const char *left = tokens[below((uint32_t)n)];
        const char *right = tokens[below((uint32_t)n)];
        char joined[2 * WORD_BYTES + 1];
        bool have = false;

        if (strlen(left) + strlen(right) > WORD_BYTES) {
            continue;
        }
        snprintf(joined, sizeof(joined), "%s%s", left, right);
        for (size_t i = 0; !have && (i < n); i++) {
            have = (strcmp(tokens[i], joined) == 0);
        }
        if (!have) {
            memcpy(tokens[n], joined, strlen(joined) + 1);
            token_list[n] = tokens[n];
            n++;
        }
        snprintf(merges[n_merges], sizeof(merges[0]), "%s %s", left, right);
        merge_list[n_merges] = merges[n_merges];
        n_merges += (n_merges + 1 < N_WORDS);
    }
    for (size_t i = n_merges; i > 1; i--) {
        const size_t k = below((uint32_t)i);
        const char *other = merge_list[k];

        merge_list[k] = merge_list[i - 1];
        merge_list[i - 1] = other;
    }
    build_bpe_of(b, token_list, n, merge_list, n_merges);
}

static void random_vocabulary_equals_the_definition(void **state)
{
    (void)state;
    for (size_t round = 0; round < 3; round++) {
        bt_gguf_t *gguf;
        bt_tokenizer_t *tok;
        char why[256];

        build_random(&file);
        assert_int_equal(
            bt_gguf_open_memory(file.bytes, file.n, why, sizeof(why), &gguf),
            BT_OK);
        if (bt_tokenizer_load(gguf, why, sizeof(why), &tok) != BT_OK) {
            fail_msg("%s", why);
        }
        compare_all_pretoks(tok);
        bt_tokenizer_destroy(tok);
        bt_gguf_close(gguf);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(trained_vocabulary_equals_the_definition),
        BT_TEST(sentencepiece_equals_the_definition),
        BT_TEST(random_vocabulary_equals_the_definition),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
