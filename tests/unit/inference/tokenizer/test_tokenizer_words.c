/* SPDX-License-Identifier: Apache-2.0 */
/* The parts below a vocabulary: UTF-8 and character classes, the cutting of
 * words, and merging. */
#include <string.h>

#include "tests/support/testsupport.h"

#include "common/base/status.h"
#include "inference/tokenizer/encode.h"
#include "inference/tokenizer/pretok.h"
#include "inference/tokenizer/unicode.h"
#include "tests/unit/inference/tokenizer/plain.h"

/* ----------------------------------------------------------------- unicode */

static void utf8_follows_the_unicode_table(void **state)
{
    /* Whole characters at the edges of table 3-7, and what is just outside. */
    static const struct {
        const char *bytes;
        int scan;
    } cases[] = {
        {"a", 1},
        {"\xC2\x80", 2},
        {"\xDF\xBF", 2},
        {"\xE0\xA0\x80", 3},
        {"\xED\x9F\xBF", 3},
        {"\xEE\x80\x80", 3},
        {"\xEF\xBF\xBF", 3},
        {"\xF0\x90\x80\x80", 4},
        {"\xF4\x8F\xBF\xBF", 4},
        {"\x80", -1},             /* continuation alone */
        {"\xC0\xAF", -1},         /* overlong */
        {"\xC1\xBF", -1},         /* overlong */
        {"\xE0\x9F\xBF", -1},     /* overlong */
        {"\xED\xA0\x80", -1},     /* surrogate */
        {"\xF0\x8F\xBF\xBF", -1}, /* overlong */
        {"\xF4\x90\x80\x80", -1}, /* past U+10FFFF */
        {"\xF5\x80\x80\x80", -1}, /* past U+10FFFF */
        {"\xFF", -1},
        {"\xC3"
         "a",
         -1},
        {"\xE2\x82"
         "a",
         -2},
        {"\xF0\x9F\x98"
         "a",
         -3},
        {"\xC3", 0},
        {"\xE2\x82", 0},
        {"\xF0\x9F\x98", 0},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        const uint8_t *bytes = (const uint8_t *)cases[i].bytes;
        const size_t n = strlen(cases[i].bytes);

        assert_int_equal(bt_utf8_scan(bytes, n), cases[i].scan);
        assert_int_equal(bt_utf8_valid(bytes, n), cases[i].scan > 0);
    }
    assert_false(bt_utf8_valid((const uint8_t *)"12345678\xFF", 9));
    assert_true(bt_utf8_valid((const uint8_t *)"1234567\xC3\xA9", 9));
    assert_true(bt_utf8_valid(NULL, 0));
}

static void every_code_point_survives_encoding_and_decoding(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        uint8_t bytes[4];
        uint32_t back;
        unsigned n;

        if ((cp >= 0xD800) && (cp <= 0xDFFF)) {
            continue;
        }
        n = bt_utf8_encode(cp, bytes);
        assert_int_equal(bt_utf8_scan(bytes, n), n);
        assert_int_equal(bt_utf8_decode(bytes, &back), n);
        assert_int_equal(back, cp);
    }
}

static void character_classes_match_the_unicode_database(void **state)
{
    /* From UnicodeData.txt and PropList.txt. The counts of U+0000 … U+10FFFF:
     * 141,028 of category L* and 1,911 of N* in Unicode 16.0, 25 White_Space.
     */
    static const struct {
        uint32_t cp;
        bt_unicode_class_t cls;
    } cases[] = {
        {'a', BT_UNICODE_LETTER},       {'Z', BT_UNICODE_LETTER},
        {'@', BT_UNICODE_OTHER},        {'[', BT_UNICODE_OTHER},
        {'`', BT_UNICODE_OTHER},        {'{', BT_UNICODE_OTHER},
        {'/', BT_UNICODE_OTHER},        {':', BT_UNICODE_OTHER},
        {'0', BT_UNICODE_NUMBER},       {0x1C, BT_UNICODE_OTHER},
        {0x85, BT_UNICODE_SPACE},       {0xA0, BT_UNICODE_SPACE},
        {0xAA, BT_UNICODE_LETTER},      {0xB2, BT_UNICODE_NUMBER},
        {0x301, BT_UNICODE_OTHER},      {0x660, BT_UNICODE_NUMBER},
        {0x200B, BT_UNICODE_OTHER},     {0x3000, BT_UNICODE_SPACE},
        {0x4E00, BT_UNICODE_LETTER},    {0x1F600, BT_UNICODE_OTHER},
        {0x31350, BT_UNICODE_LETTER}, /* since 15.0 */
        {0x10FFFF, BT_UNICODE_OTHER},   {0x110000, BT_UNICODE_OTHER},
        {UINT32_MAX, BT_UNICODE_OTHER},
    };
    uint32_t counts[4] = {0};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        assert_int_equal(bt_unicode_class(cases[i].cp), cases[i].cls);
    }
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        counts[bt_unicode_class(cp)]++;
    }
    assert_int_equal(counts[BT_UNICODE_LETTER], 141028);
    assert_int_equal(counts[BT_UNICODE_NUMBER], 1911);
    assert_int_equal(counts[BT_UNICODE_SPACE], 25);
}

/* ---------------------------------------------------------- pre-tokenizers */

/* The words of a text, "|" between them. Worked by hand from the regular
 * expressions in pretok.h. */
static void assert_words(bt_pretok_t pretok, const char *text, const char *want)
{
    const size_t bytes = strlen(text);
    char got[256];
    size_t n = 0;
    size_t at = 0;

    while (at < bytes) {
        const size_t len =
            bt_pretok_next(pretok, (const uint8_t *)text + at, bytes - at);

        assert_true((len > 0) && (len <= bytes - at));
        if (at > 0) {
            got[n++] = '|';
        }
        memcpy(got + n, text + at, len);
        n += len;
        at += len;
    }
    got[n] = '\0';
    assert_string_equal(got, want);
}

static void gpt2_words_split_as_its_pattern(void **state)
{
    (void)state;
    assert_words(BT_PRETOK_GPT2, "Hello world", "Hello| world");
    assert_words(BT_PRETOK_GPT2, "it's we'll I'D", "it|'s| we|'ll| I|'|D");
    assert_words(BT_PRETOK_GPT2, "a  b", "a| | b");
    assert_words(BT_PRETOK_GPT2, "a \n b  ", "a| \n| b|  ");
    assert_words(BT_PRETOK_GPT2, "a\tb", "a|\t|b");
    assert_words(BT_PRETOK_GPT2, "a\t b", "a|\t| b");
    assert_words(BT_PRETOK_GPT2, "x 12ab!? ", "x| 12|ab|!?| ");
    assert_words(BT_PRETOK_GPT2, " ' 's", " '| '|s");
    assert_words(BT_PRETOK_GPT2, "a\u00a0b", "a|\u00a0|b");
    assert_words(BT_PRETOK_GPT2, "e\u0301t", "e|\u0301|t");
}

static void smollm_cuts_around_every_number_first(void **state)
{
    (void)state;
    assert_words(BT_PRETOK_SMOLLM, "x 12ab", "x| |1|2|ab");
    assert_words(BT_PRETOK_SMOLLM, "a  1", "a|  |1");
    assert_words(BT_PRETOK_SMOLLM, "a  b1", "a| | b|1");
    assert_words(BT_PRETOK_SMOLLM, "\n\n7\n", "\n\n|7|\n");
    assert_words(BT_PRETOK_SMOLLM, "½'s 's", "½|'s| '|s");
}

static void llama_bpe_words_split_as_its_pattern(void **state)
{
    (void)state;
    assert_words(BT_PRETOK_LLAMA_BPE, "Hello world", "Hello| world");
    assert_words(BT_PRETOK_LLAMA_BPE, "I'D 'lLx 's", "I|'D| '|lLx| '|s");
    assert_words(BT_PRETOK_LLAMA_BPE, "12345 6", "123|45| |6");
    assert_words(BT_PRETOK_LLAMA_BPE, "a\tb", "a|\tb");
    assert_words(BT_PRETOK_LLAMA_BPE, "(a) !\n\nb", "(a|)| !\n\n|b");
    assert_words(BT_PRETOK_LLAMA_BPE, "a \n \n  b", "a| \n \n| | b");
    assert_words(BT_PRETOK_LLAMA_BPE, "a\nb", "a|\n|b");
    assert_words(BT_PRETOK_LLAMA_BPE, "x   ", "x|   ");
    /* U+017F folds to s: (?i:'s) takes it before '\p{L}+ would. */
    assert_words(BT_PRETOK_LLAMA_BPE, "'\u017fx", "'\u017f|x");
    assert_words(BT_PRETOK_QWEN2, "12345 6", "1|2|3|4|5| |6");
}

/* ----------------------------------------------------------------- merging */

static void short_and_long_words_merge_as_defined(void **state)
{
    /* Symbols 0 … 3 and random pairs of them and of what they make. */
    bt_pair_table_t pairs;
    bt_merge_work_t work = {0};
    uint64_t seed = 88172645463325252u; /* xorshift64 */
    uint32_t want[300];

    (void)state;
    assert_int_equal(bt_pair_table_init(&pairs, 4), BT_OK);
    for (uint32_t i = 0; i < 60; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        assert_int_equal(bt_pair_table_put(&pairs, (uint32_t)seed % (4 + i / 4),
                                           (uint32_t)(seed >> 32) % (4 + i / 4),
                                           i / 2, 4 + i),
                         BT_OK);
    }
    for (size_t round = 0; round < 400; round++) {
        const size_t n = (round < 200) ? round % 40 : round - 150;
        size_t n_got;

        assert_int_equal(bt_merge_reserve(&work, n + 1), BT_OK);
        for (size_t i = 0; i < n; i++) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            want[i] = work.syms[i] = (uint32_t)(seed >> 20) % 4;
        }
        assert_int_equal(bt_merge(&work, &pairs, n, &n_got), BT_OK);
        assert_int_equal(n_got, plain_merge(&pairs, want, n));
        if (n_got > 0) {
            assert_memory_equal(work.syms, want, n_got * sizeof(want[0]));
        }
    }
    bt_merge_fini(&work);
    bt_pair_table_fini(&pairs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(utf8_follows_the_unicode_table),
        BT_TEST(every_code_point_survives_encoding_and_decoding),
        BT_TEST(character_classes_match_the_unicode_database),
        BT_TEST(gpt2_words_split_as_its_pattern),
        BT_TEST(smollm_cuts_around_every_number_first),
        BT_TEST(llama_bpe_words_split_as_its_pattern),
        BT_TEST(short_and_long_words_merge_as_defined),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
