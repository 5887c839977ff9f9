/* SPDX-License-Identifier: Apache-2.0 */
/* Tries of vocabularies, read back node by node. */
#include <string.h>

#include "common/base/alloc.h"
#include "inference/matcher/token_trie.h"
#include "tests/support/draw.h"
#include "tests/support/testsupport.h"

typedef struct vocab {
    uint32_t n;
    size_t lens[600];
    uint8_t bytes[600][8];
} vocab_t;

static const uint8_t *bytes_of_vocab(void *ctx, uint32_t id, size_t *n_p)
{
    const vocab_t *vocab = ctx;

    *n_p = vocab->lens[id];
    return vocab->bytes[id];
}

static const uint8_t *bytes_of_texts(void *ctx, uint32_t id, size_t *n_p)
{
    const char *const *texts = ctx;

    *n_p = strlen(texts[id]);
    return (const uint8_t *)texts[id];
}

static bt_token_trie_t *trie_of(const char **texts, uint32_t n)
{
    bt_token_trie_t *trie = NULL;

    assert_int_equal(
        bt_token_trie_create(n, bytes_of_texts, texts, NULL, 0, &trie), BT_OK);
    return trie;
}

static void expect_node(const bt_trie_node_t *node, char byte, uint32_t depth,
                        uint32_t skip, uint32_t token)
{
    assert_int_equal(node->byte, byte);
    assert_int_equal(node->depth, depth);
    assert_int_equal(node->skip, skip);
    assert_int_equal(node->token, token);
}

static void nodes_are_depth_first(void **state)
{
    const char *texts[] = {"b", "", "abc", "a", "abd", "ca"};
    bt_token_trie_t *trie = trie_of(texts, 6);

    (void)state;
    assert_int_equal(trie->all.n_nodes, 7);
    expect_node(&trie->all.nodes[0], 'a', 0, 4, 3);
    expect_node(&trie->all.nodes[1], 'b', 1, 3, trie->no_token);
    expect_node(&trie->all.nodes[2], 'c', 2, 1, 2);
    expect_node(&trie->all.nodes[3], 'd', 2, 1, 4);
    expect_node(&trie->all.nodes[4], 'b', 0, 1, 0);
    expect_node(&trie->all.nodes[5], 'c', 0, 2, trie->no_token);
    expect_node(&trie->all.nodes[6], 'a', 1, 1, 5);
    assert_int_equal(trie->others.n_nodes, 0);
    assert_int_equal(trie->max_bytes, 3);
    bt_token_trie_destroy(trie);
}

static void tokens_with_the_same_bytes_share_a_node(void **state)
{
    const char *texts[] = {"x\n", "y", "x\n", "y", "y", "z"};
    bt_token_trie_t *trie = trie_of(texts, 6);

    (void)state;
    assert_int_equal(trie->n_aliases, 2);
    assert_int_equal(trie->all.n_nodes, 4);
    expect_node(&trie->all.nodes[1], '\n', 1, 1, 64 + 1 + 0);
    expect_node(&trie->all.nodes[2], 'y', 0, 1, 64 + 1 + 1);
    expect_node(&trie->all.nodes[3], 'z', 0, 1, 5);
    assert_int_equal(trie->alias_first[1], 2);
    assert_int_equal(trie->alias_first[2], 5);
    assert_int_equal(trie->alias_ids[0], 0);
    assert_int_equal(trie->alias_ids[1], 2);
    assert_int_equal(trie->alias_ids[2], 1);
    assert_int_equal(trie->alias_ids[4], 4);
    /* Those that are not plain have their group too. */
    assert_int_equal(trie->others.n_nodes, 2);
    expect_node(&trie->others.nodes[1], '\n', 1, 1, 64 + 1 + 0);
    bt_token_trie_destroy(trie);
}

static void end_ids_and_special_tokens_have_no_bytes(void **state)
{
    const char *texts[] = {"a", "</s>", "", "b"};
    const uint32_t end_ids[] = {1, 2};
    bt_token_trie_t *trie = NULL;
    size_t n;

    (void)state;
    assert_int_equal(
        bt_token_trie_create(4, bytes_of_texts, texts, end_ids, 2, &trie),
        BT_OK);
    assert_int_equal(trie->all.n_nodes, 2);
    for (uint32_t id = 0; id < 5; id++) {
        (void)bt_token_trie_bytes(trie, id, &n);
        assert_int_equal(n, ((id == 0) || (id == 3)) ? 1 : 0);
        assert_true(bt_token_trie_is_end(trie, id) == ((id == 1) || (id == 2)));
    }
    bt_token_trie_destroy(trie);
}

/* Bits of a mask of fewer than 64 tokens. */
static uint64_t plain_bits(const bt_token_trie_t *trie, uint32_t n_chars)
{
    assert_int_equal(trie->n_words, 1);
    assert_int_equal(__builtin_popcountll(trie->plain[n_chars * trie->n_words]),
                     trie->n_plain[n_chars]);
    return trie->plain[n_chars * trie->n_words];
}

static void plain_tokens_are_known_by_their_characters(void **state)
{
    char text_31[32];
    char text_32[33];
    char text_40[41];
    const char *texts[] = {
        "a",           /* 0: 1 character */
        "a\xc3\xa9 b", /* 1: 4 */
        "a\"",         /* 2: quote */
        "\xc3",        /* 3: half a character */
        "\xa9",        /* 4: the other half */
        "a\nb",        /* 5: control */
        text_40,       /* 6 */
        text_31,       /* 7 */
        text_32,       /* 8 */
        "\\",          /* 9 */
        "\x7f",        /* 10 */
        "\xe2\x80\xa8" /* 11: U+2028 */
    };
    bt_token_trie_t *trie;

    (void)state;
    memset(text_31, '=', sizeof(text_31));
    memset(text_32, '=', sizeof(text_32));
    memset(text_40, '=', sizeof(text_40));
    text_31[31] = text_32[32] = text_40[40] = '\0';
    trie = trie_of(texts, BT_ARRAY_LEN(texts));
    assert_int_equal(plain_bits(trie, 0), 0);
    assert_int_equal(plain_bits(trie, 1), 1 << 0);
    assert_int_equal(plain_bits(trie, 3), 1 << 0);
    assert_int_equal(plain_bits(trie, 4), 1 << 0 | 1 << 1);
    assert_int_equal(plain_bits(trie, 30), 1 << 0 | 1 << 1);
    assert_int_equal(plain_bits(trie, 31), 1 << 0 | 1 << 1 | 1 << 7);
    assert_int_equal(plain_bits(trie, 32),
                     1 << 0 | 1 << 1 | 1 << 6 | 1 << 7 | 1 << 8);
    assert_int_equal(trie->n_plain_long, 2);
    assert_int_equal(trie->plain_long[0].id, 8);
    assert_int_equal(trie->plain_long[0].n_chars, 32);
    assert_int_equal(trie->plain_long[1].id, 6);
    assert_int_equal(trie->plain_long[1].n_chars, 40);
    /* The trie of the others has 2, 3, 4, 5, 9, 10 and 11. */
    assert_int_equal(trie->others.n_nodes, 4 + 1 + 1 + 1 + 1 + 1 + 2 + 0);
    bt_token_trie_destroy(trie);
}

static size_t encode(uint32_t c, uint8_t *bytes)
{
    if (c < 0x80) {
        bytes[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        bytes[0] = (uint8_t)(0xc0 | c >> 6);
        bytes[1] = (uint8_t)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        bytes[0] = (uint8_t)(0xe0 | c >> 12);
        bytes[1] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
        bytes[2] = (uint8_t)(0x80 | (c & 0x3f));
        return 3;
    }
    bytes[0] = (uint8_t)(0xf0 | c >> 18);
    bytes[1] = (uint8_t)(0x80 | (c >> 12 & 0x3f));
    bytes[2] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
    bytes[3] = (uint8_t)(0x80 | (c & 0x3f));
    return 4;
}

static bool is_plain(uint32_t c)
{
    return (c >= 0x20) && (c != 0x22) && (c != 0x5c) && (c != 0x7f) &&
           ((c < 0xd800) || (c > 0xdfff)) && (c != 0x2028) && (c != 0x2029) &&
           (c <= 0x10ffff);
}

static void plain_texts_are_valid_utf8(void **state)
{
    uint8_t bytes[8];
    uint32_t n_encoded = 0;
    uint32_t n_plain = 0;

    (void)state;
    for (uint32_t c = 0; c < 0x1fffff; c++) {
        const size_t n = encode(c, bytes);

        assert_int_equal(bt_plain_chars(bytes, n), is_plain(c) ? 1 : 0);
        n_encoded += is_plain(c) ? 1 : 0;
    }
    /* There are no more than those. */
    for (uint32_t i = 0; i < 0x10000; i++) {
        bytes[0] = (uint8_t)(i >> 8);
        bytes[1] = (uint8_t)i;
        n_plain += (bt_plain_chars(bytes, 2) == 1) ? 1 : 0;
    }
    assert_int_equal(n_plain, 0x800 - 0x80);
    n_plain = 0;
    for (uint32_t i = 0xe00000; i < 0xf00000; i++) {
        bytes[0] = (uint8_t)(i >> 16);
        bytes[1] = (uint8_t)(i >> 8);
        bytes[2] = (uint8_t)i;
        n_plain += (bt_plain_chars(bytes, 3) == 1) ? 1 : 0;
    }
    assert_int_equal(n_plain, 0x10000 - 0x800 - 0x800 - 2);
    n_plain = 0;
    for (uint32_t i = 0; i < 0x400000; i++) { /* F0 to FF, three more */
        bytes[0] = (uint8_t)(0xf0 + (i >> 18 & 0xf));
        bytes[1] = (uint8_t)(i >> 12 << 2);
        bytes[2] = (uint8_t)(i >> 6 << 2);
        bytes[3] = (uint8_t)(i << 2);
        n_plain += (bt_plain_chars(bytes, 4) == 1) ? 1 : 0;
    }
    /* Every fourth value of the last three bytes: of the second one 12 behind
     * F0, 16 behind F1 to F3, and 4 behind F4. */
    assert_int_equal(n_plain, (12 + 3 * 16 + 4) * 16 * 16);
    assert_int_equal(n_encoded, 0x110000 - 0x20 - 3 - 0x800 - 2);
    assert_int_equal(bt_plain_chars(bytes, 0), 0);
}

/* Reads a trie back and compares it with the tokens that it is of. */
static void check_part(const bt_token_trie_t *trie, const bt_trie_part_t *part,
                       const vocab_t *vocab, bool others)
{
    uint32_t n_found[600] = {0};
    uint8_t path[256];
    uint32_t ends[257];
    uint32_t depth = 0;

    ends[0] = part->n_nodes;
    for (uint32_t i = 0; i < part->n_nodes; i++) {
        const bt_trie_node_t *node = &part->nodes[i];

        while (i == ends[depth]) {
            depth--;
        }
        assert_int_equal(node->depth, depth);
        assert_true(node->skip >= 1);
        assert_true(i + node->skip <= ends[depth]);
        path[depth++] = (uint8_t)node->byte;
        ends[depth] = i + node->skip;
        assert_true((node->skip > 1) || (node->token != trie->no_token));
        if (node->token == trie->no_token) {
            continue;
        }
        for (uint32_t id = 0; id < vocab->n; id++) {
            bool here = node->token == id;

            if (node->token > trie->no_token) {
                const uint32_t g = node->token - trie->no_token - 1;

                for (uint32_t k = trie->alias_first[g];
                     k < trie->alias_first[g + 1]; k++) {
                    here = here || (trie->alias_ids[k] == id);
                }
            }
            if (here) {
                assert_int_equal(vocab->lens[id], depth);
                assert_memory_equal(vocab->bytes[id], path, depth);
                n_found[id]++;
            }
        }
    }
    for (uint32_t id = 0; id < vocab->n; id++) {
        const bool plain =
            bt_plain_chars(vocab->bytes[id], vocab->lens[id]) > 0;

        assert_int_equal(n_found[id],
                         (vocab->lens[id] > 0) && (!others || !plain) ? 1 : 0);
    }
}

static void random_vocabularies_are_read_back(void **state)
{
    static vocab_t vocab;
    uint64_t rng = 4711;

    (void)state;
    for (uint32_t round = 0; round < 40; round++) {
        bt_token_trie_t *trie = NULL;
        const uint32_t n_letters = 1 + (uint32_t)draw_below(&rng, 6);

        vocab.n = 1 + (uint32_t)draw_below(&rng, 600);
        for (uint32_t id = 0; id < vocab.n; id++) {
            vocab.lens[id] = (size_t)draw_below(&rng, 8);
            for (size_t k = 0; k < vocab.lens[id]; k++) {
                vocab.bytes[id][k] =
                    (uint8_t) "ab\"\xc3\xa9\xf0"[draw_below(&rng, n_letters)];
            }
        }
        assert_int_equal(bt_token_trie_create(vocab.n, bytes_of_vocab, &vocab,
                                              NULL, 0, &trie),
                         BT_OK);
        check_part(trie, &trie->all, &vocab, false);
        check_part(trie, &trie->others, &vocab, true);
        bt_token_trie_destroy(trie);
    }
}

typedef struct long_vocab {
    uint8_t *bytes;
    size_t lens[4];
} long_vocab_t;

static const uint8_t *bytes_of_long(void *ctx, uint32_t id, size_t *n_p)
{
    const long_vocab_t *vocab = ctx;

    *n_p = vocab->lens[id];
    return vocab->bytes;
}

static void long_tokens_are_in_no_trie(void **state)
{
    long_vocab_t vocab = {.lens = {255, 256, 1, 65536}};
    bt_token_trie_t *trie = NULL;

    (void)state;
    vocab.bytes = bt_calloc(1, 1 << 17);
    memset(vocab.bytes, ' ', 1 << 17);
    assert_int_equal(
        bt_token_trie_create(4, bytes_of_long, &vocab, NULL, 0, &trie), BT_OK);
    assert_int_equal(trie->n_long, 2);
    assert_int_equal(trie->long_ids[0], 1);
    assert_int_equal(trie->long_ids[1], 3);
    assert_int_equal(trie->all.n_nodes, 255);
    assert_int_equal(trie->max_bytes, 65536);
    assert_int_equal(plain_bits(trie, 32), 1 << 0 | 1 << 2);
    bt_token_trie_destroy(trie);

    vocab.lens[3] = 65537;
    assert_int_equal(
        bt_token_trie_create(4, bytes_of_long, &vocab, NULL, 0, &trie),
        BT_ERR_TOO_LARGE);
    bt_free(vocab.bytes);
}

static void wrong_vocabularies_are_refused(void **state)
{
    const char *texts[] = {"a", "b"};
    const uint32_t end_id = 2;
    bt_token_trie_t *trie = NULL;

    (void)state;
    assert_int_equal(
        bt_token_trie_create(0, bytes_of_texts, texts, NULL, 0, &trie),
        BT_ERR_INVALID_PARAM);
    assert_int_equal(
        bt_token_trie_create(2, bytes_of_texts, texts, &end_id, 1, &trie),
        BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_token_trie_create(BT_TRIE_MAX_VOCAB + 1, bytes_of_texts,
                                          texts, NULL, 0, &trie),
                     BT_ERR_TOO_LARGE);
    assert_null(trie);
    bt_token_trie_destroy(NULL);
}

static void every_failed_allocation_is_reported(void **state)
{
    const char *texts[] = {"a", "b", "a", "\""};
    bt_token_trie_t *trie = NULL;
    int nth = 1;

    (void)state;
    for (;; nth++) {
        bt_status_t status;

        bt_alloc_fail_at(nth);
        status = bt_token_trie_create(4, bytes_of_texts, texts, NULL, 0, &trie);
        if (bt_alloc_fail_at(0) > 0) {
            assert_int_equal(status, BT_OK);
            break;
        }
        assert_int_equal(status, BT_ERR_NO_MEMORY);
        assert_null(trie);
    }
    assert_true(nth > 10);
    bt_token_trie_destroy(trie);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(nodes_are_depth_first),
        BT_TEST(tokens_with_the_same_bytes_share_a_node),
        BT_TEST(end_ids_and_special_tokens_have_no_bytes),
        BT_TEST(plain_tokens_are_known_by_their_characters),
        BT_TEST(plain_texts_are_valid_utf8),
        BT_TEST(random_vocabularies_are_read_back),
        BT_TEST(long_tokens_are_in_no_trie),
        BT_TEST(wrong_vocabularies_are_refused),
        BT_TEST(every_failed_allocation_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
