/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the listed tokens are ids at all. */
#include "tests/unit/inference/tokenizer/build_gguf.h"

#include "common/base/status.h"
#include "inference/tokenizer/tokenizer.h"

#define N 8u

static build_t file;

/* A vocabulary of N tokens of these types. */
static void put_types(const int32_t *types)
{
    static const char *const tokens[N] = {"a",  "b",  "<s>", "ab",
                                          "[0", "[1", "[2",  "[3"};
    static const char *const merges[] = {"a b"};

    build_start(&file);
    build_kv_str(&file, "tokenizer.ggml.model", "gpt2");
    build_kv_str(&file, "tokenizer.ggml.pre", "gpt-2");
    build_kv_strs(&file, "tokenizer.ggml.tokens", tokens, N);
    build_kv_i32s(&file, "tokenizer.ggml.token_type", types, N);
    build_kv_strs(&file, "tokenizer.ggml.merges", merges, 1);
}

/* What the model and the router each take as the number of ids. */
static uint32_t count(void)
{
    char why[256];
    bt_gguf_t *gguf = NULL;
    bt_tokenizer_t *tok = NULL;
    uint64_t n = 0;
    uint32_t n_vocab;

    build_end(&file);
    assert_int_equal(
        bt_gguf_open_memory(file.bytes, file.n, why, sizeof(why), &gguf),
        BT_OK);
    assert_int_equal(bt_gguf_n_vocab(gguf, &n), BT_OK);
    assert_int_equal(bt_tokenizer_load(gguf, why, sizeof(why), &tok), BT_OK);
    n_vocab = bt_tokenizer_n_vocab(tok);
    assert_int_equal(n_vocab, n);
    bt_tokenizer_destroy(tok);
    bt_gguf_close(gguf);
    return n_vocab;
}

static void trailing_unused_tokens_are_not_ids(void **state)
{
    static const struct {
        int32_t types[N];
        uint32_t n;
    } cases[] = {
        {{1, 1, 3, 1, 1, 1, 1, 1}, 8}, /* none */
        {{1, 1, 3, 1, 1, 1, 1, 5}, 7}, {{1, 1, 3, 1, 5, 5, 5, 5}, 4},
        {{1, 1, 3, 1, 5, 5, 1, 5}, 7}, /* inside they stay */
        {{1, 1, 3, 1, 5, 5, 5, 4}, 8}, /* the last is somebody's own */
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        put_types(cases[i].types);
        assert_int_equal(count(), cases[i].n);
    }
}

static void unused_token_named_by_the_file_stays_an_id(void **state)
{
    static const int32_t types[N] = {1, 1, 3, 1, 5, 5, 5, 5};

    (void)state;
    put_types(types);
    build_kv_u32(&file, "tokenizer.ggml.eos_token_id", 5);
    assert_int_equal(count(), 6);
    put_types(types);
    build_kv_u32(&file, "tokenizer.ggml.bos_token_id", 2);
    build_kv_u32(&file, "tokenizer.ggml.eot_token_id", UINT32_MAX); /* none */
    assert_int_equal(count(), 4);
    put_types(types);
    build_kv_u32(&file, "tokenizer.ggml.eom_token_id", 7);
    assert_int_equal(count(), 8);
}

static bt_status_t count_listed(uint64_t *n_p)
{
    char why[256];
    bt_gguf_t *gguf = NULL;
    bt_status_t status;

    build_end(&file);
    assert_int_equal(
        bt_gguf_open_memory(file.bytes, file.n, why, sizeof(why), &gguf),
        BT_OK);
    status = bt_gguf_n_vocab(gguf, n_p);
    bt_gguf_close(gguf);
    return status;
}

static void vocabulary_of_unused_tokens_is_kept(void **state)
{
    static const int32_t unused[N] = {5, 5, 5, 5, 5, 5, 5, 5};
    uint64_t n = 77;

    (void)state;
    build_start(&file);
    build_kv_str(&file, "tokenizer.ggml.model", "gpt2");
    assert_int_equal(count_listed(&n), BT_ERR_NOT_FOUND);
    assert_int_equal(n, 77);
    build_start(&file);
    build_kv_u32(&file, "tokenizer.ggml.tokens", 3);
    assert_int_equal(count_listed(&n), BT_ERR_BAD_FILE);
    assert_int_equal(n, 77);
    put_types(unused);
    assert_int_equal(count_listed(&n), BT_OK);
    assert_int_equal(n, N);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(trailing_unused_tokens_are_not_ids),
        BT_TEST(unused_token_named_by_the_file_stays_an_id),
        BT_TEST(vocabulary_of_unused_tokens_is_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
