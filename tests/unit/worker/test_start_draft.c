/* SPDX-License-Identifier: Apache-2.0 */
/* The draft model of a worker: which there may be, and its memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/support/testsupport.h"
#include "tests/support/tiny_model.h"
#include "worker/start.h"

#define T 16u

static char said[4096];

/* Standard error goes to a file from here on. @return what it was */
static int hear(int *file_p)
{
    const int was = dup(STDERR_FILENO);

    *file_p = memfd_create("stderr", 0);
    assert_true((was >= 0) && (*file_p >= 0));
    assert_int_equal(dup2(*file_p, STDERR_FILENO), STDERR_FILENO);
    return was;
}

static void stop_hearing(int file, int was)
{
    const ssize_t n = pread(file, said, sizeof(said) - 1, 0);

    said[(n > 0) ? n : 0] = '\0';
    assert_int_equal(dup2(was, STDERR_FILENO), STDERR_FILENO);
    close(file);
    close(was);
}

typedef struct start_bench {
    bt_config_t config;
    bt_worker_t w;
    bt_start_t s;
    char path[64];
} start_bench_t;

/* A worker that has its model open. @param [in] type  of its matrices */
static start_bench_t *open_worker(const char *draft, const char *draft_model,
                                  uint32_t type)
{
    start_bench_t *b = calloc(1, sizeof(*b));
    bt_tiny_model_t tiny = bt_tiny_model_default();
    char why[256];
    int fd;

    assert_non_null(b);
    snprintf(b->path, sizeof(b->path), "/tmp/baton-test-start-draft-XXXXXX");
    fd = mkstemp(b->path);
    assert_true(fd >= 0);
    close(fd);
    tiny.type = tiny.embd_type = type;
    assert_int_equal(bt_tiny_model_write(&tiny, b->path), BT_OK);
    assert_int_equal(bt_gguf_open(b->path, why, sizeof(why), &b->s.gguf),
                     BT_OK);
    assert_int_equal(bt_hparams_read(b->s.gguf, why, sizeof(why), &b->s.hp),
                     BT_OK);
    b->config.draft = draft;
    b->config.draft_model = draft_model;
    b->config.model = b->path;
    b->config.backend = "cpu";
    b->w.config = &b->config;
    b->w.max_seqs = 4;
    b->w.groups.n = 1;
    b->s.team.size = b->s.team.tp = 1;
    b->s.n_threads = 1;
    return b;
}

static void close_worker(start_bench_t *b)
{
    bt_start_draft_close(&b->s);
    bt_gguf_close(b->s.gguf);
    unlink(b->path);
    free(b);
}

static void assert_refused(start_bench_t *b, bt_status_t status,
                           const char *words)
{
    int file;
    const int was = hear(&file);
    const bt_status_t got = bt_start_draft_open(&b->w, &b->s);

    stop_hearing(file, was);
    assert_int_equal(got, status);
    assert_null(b->s.draft.gguf);
    assert_non_null(strstr(said, words));
    close_worker(b);
}

static void weights_are_of_the_first_type_that_is_small_enough(void **state)
{
    static const struct {
        uint32_t of;
        const char *draft, *type;
    } cases[] = {{0, "self", "q5_1"}, /* F32 */
                 {1, "self", "q5_1"}, /* F16 */
                 {8, "self", "q4_0"}, /* Q8_0: q5_1 is 6/8.5 of it */
                 {0, "self:q8_0", "q8_0"},
                 {1, "self:mxfp4", "mxfp4"}};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(cases); i++) {
        start_bench_t *b = open_worker(cases[i].draft, "", cases[i].of);

        assert_int_equal(bt_start_draft_open(&b->w, &b->s), BT_OK);
        assert_non_null(b->s.draft.gguf);
        assert_string_equal(b->s.draft.type, cases[i].type);
        close_worker(b);
    }
}

static void no_draft_model_is_opened_for_n_grams(void **state)
{
    start_bench_t *b = open_worker("ngram", "", 0);
    bt_model_memory_t memory = {.weight_bytes = 7};
    const bt_model_config_t config = {.max_rows = 32};

    (void)state;
    assert_int_equal(bt_start_draft_open(&b->w, &b->s), BT_OK);
    assert_null(b->s.draft.gguf);
    assert_int_equal(bt_start_draft_memory(&b->w, &b->s, &config, &memory),
                     BT_OK);
    assert_int_equal(memory.weight_bytes, 7);
    assert_int_equal(bt_start_draft_load(&b->w, &b->s, &config), BT_OK);
    assert_null(b->w.draft_model);
    close_worker(b);
}

static void what_has_no_draft_model_is_refused_by_name(void **state)
{
    start_bench_t *b = open_worker("self", "", 2); /* Q4_0 */

    (void)state;
    bt_test_expect_log_lines(6);
    assert_refused(b, BT_ERR_INVALID_PARAM, "which drafts no faster");
    assert_refused(open_worker("self:q3_x", "", 0), BT_ERR_INVALID_PARAM,
                   "--draft self:q3_x: there is no such type");
    assert_refused(open_worker("self:bf16", "", 0), BT_ERR_INVALID_PARAM,
                   "--draft self:bf16: there is no such type");
    b = open_worker("self", "", 0);
    b->s.team.size = 2;
    assert_refused(
        b, BT_ERR_UNSUPPORTED,
        "--draft self: a model in 2 pipeline stages has no draft model");
    b = open_worker("ngram", "/nowhere", 0);
    b->w.groups.group[0].kind = BT_KV_STATE;
    assert_refused(b, BT_ERR_UNSUPPORTED,
                   "--draft-model: the recurrent state of model");
    assert_refused(open_worker("ngram", "/nowhere.gguf", 0), BT_ERR_NOT_FOUND,
                   "--draft-model /nowhere.gguf: ");
}

static void memory_of_the_draft_model_is_added(void **state)
{
    const bt_model_config_t config = {.max_rows = 64,
                                      .max_logit_rows = 32,
                                      .context_tokens = 512,
                                      .tokens_per_block = T};
    start_bench_t *b = open_worker("self:q4_0", "", 0);
    const bt_model_memory_t target = {
        .weight_bytes = 1000, .private_bytes = 100, .load_bytes = 10};
    bt_model_memory_t memory = target;
    (void)state;
    assert_int_equal(bt_start_draft_open(&b->w, &b->s), BT_OK);
    assert_int_equal(bt_start_draft_memory(&b->w, &b->s, &config, &memory),
                     BT_OK);
    /* Two layers, 64 wide: 7 matrices of 64 x 64 at most twice as wide, and
     * 288 words, in blocks of 18 bytes for 32 weights and packed wider. */
    assert_in_range(memory.weight_bytes - target.weight_bytes, 30000, 300000);
    assert_true(memory.private_bytes > target.private_bytes);
    assert_true(memory.load_bytes > b->s.draft.scratch_bytes);
    close_worker(b);
}

/* A file of another shape, with a short context. @return its path */
static const char *make_other(char path[64])
{
    bt_tiny_model_t tiny = bt_tiny_model_default();
    int fd;

    snprintf(path, 64, "/tmp/baton-test-start-other-XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    tiny.n_layers = 1;
    tiny.n_kv_heads = 1;
    tiny.context_tokens = 100;
    assert_int_equal(bt_tiny_model_write(&tiny, path), BT_OK);
    return path;
}

/* A span of the model: 1000 bytes; of the draft model: 1 layer, 1 head, K and V
 * of 16 tokens x 16 dims x 2 bytes, 1024 bytes. 4 slots of 100 tokens are 28
 * blocks of 16 at most. */
static void
kv_memory_is_divided_with_a_draft_model_of_another_shape(void **state)
{
    char path[64];
    start_bench_t *b = open_worker("ngram", make_other(path), 0);
    const bt_model_config_t config = {.max_rows = 64,
                                      .max_logit_rows = 32,
                                      .context_tokens = 512,
                                      .tokens_per_block = T};
    bt_model_memory_t memory = {0};
    bt_model_memory_t device = {.own_memory = true};
    bt_status_t got;
    int file;
    int was;

    (void)state;
    b->w.tokens_per_block = T;
    b->w.context_tokens = 512;
    b->w.block_bytes = 1000;
    b->s.kv_type = BT_KV_BF16;
    assert_int_equal(bt_start_draft_rows(&b->w, &b->s), 0);
    assert_int_equal(bt_start_draft_open(&b->w, &b->s), BT_OK);
    assert_true(b->s.draft.has_cache);
    assert_int_equal(b->s.draft.block_bytes, 1024);
    assert_int_equal(b->s.draft.cache.n_slots, 4);
    assert_int_equal(b->s.draft.cache.context_tokens, 100);
    assert_int_equal(bt_start_draft_rows(&b->w, &b->s), 128);
    bt_start_draft_divide(&b->w, &b->s, 20240);
    assert_int_equal(b->s.draft.cache.n_blocks, 10);
    assert_int_equal(b->w.n_blocks, 10);
    bt_start_draft_divide(&b->w, &b->s, 100000);
    assert_int_equal(b->s.draft.cache.n_blocks, 28);
    assert_int_equal(b->w.n_blocks, (100000 - 28 * 1024) / 1000);
    bt_start_draft_divide(&b->w, &b->s, 2000); /* none for the draft model */
    assert_int_equal(b->w.n_blocks, 0);
    assert_int_equal(bt_start_draft_memory(&b->w, &b->s, &config, &memory),
                     BT_OK);
    /* 4 slots of 100 tokens, beside rows and weights */
    assert_true(memory.private_bytes > 4 * 100 * sizeof(uint32_t));
    bt_test_expect_log_lines(2);
    was = hear(&file);
    got = bt_start_draft_memory(&b->w, &b->s, &config, &device);
    stop_hearing(file, was);
    assert_int_equal(got, BT_ERR_UNSUPPORTED);
    assert_non_null(
        strstr(said, "the model's shape and context, and this one"));
    unlink(path);
    close_worker(b);

    b = open_worker("ngram", "", 0);
    b->w.block_bytes = 1000;
    bt_start_draft_divide(&b->w, &b->s, 20240);
    assert_int_equal(b->w.n_blocks, 20);
    close_worker(b);

    b = open_worker("ngram", make_other(path), 0);
    b->s.team.size = b->s.team.tp = 2;
    assert_refused(b, BT_ERR_UNSUPPORTED,
                   "which a model over 2 ranks does not support");
    unlink(path);
}

/* A file of equal shape cannot use the model's KV behind its own context; where
 * no sequence is longer than that it does. */
static void draft_model_with_a_shorter_context_has_a_cache(void **state)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();
    char path[] = "/tmp/baton-test-start-short-XXXXXX";
    const int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    tiny.context_tokens = 100;
    assert_int_equal(bt_tiny_model_write(&tiny, path), BT_OK);
    for (uint32_t i = 0; i < 2; i++) {
        start_bench_t *b = open_worker("ngram", path, 0);

        b->w.tokens_per_block = T;
        b->w.context_tokens = 100 + i;
        b->s.kv_type = BT_KV_BF16;
        assert_int_equal(bt_start_draft_open(&b->w, &b->s), BT_OK);
        assert_true(b->s.draft.has_cache == (i == 1));
        close_worker(b);
    }
    unlink(path);
}

/* An EAGLE-3 head of the model of open_worker(). @return its path */
static const char *make_head(char path[64])
{
    bt_tiny_model_t tiny = bt_tiny_model_default();
    int fd;

    snprintf(path, 64, "/tmp/baton-test-start-head-XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    tiny.architecture = "eagle3";
    tiny.n_layers = 1;
    tiny.n_kv_heads = 1;
    tiny.context_tokens = 100;
    tiny.tied = true;
    tiny.draft_vocab = 96;
    tiny.keys[tiny.n_keys++] = (bt_tiny_key_t){"target_layers", 'l', "0,1,2"};
    tiny.keys[tiny.n_keys++] = (bt_tiny_key_t){"target_hidden_size", 'u', "64"};
    assert_int_equal(bt_tiny_model_write(&tiny, path), BT_OK);
    return path;
}

/* Its context is the model's, whatever its file says. */
static void head_has_a_cache_and_memory_for_hidden_states(void **state)
{
    char path[64];
    start_bench_t *b = open_worker("ngram", make_head(path), 0);
    const bt_model_config_t config = {.max_rows = 64,
                                      .max_logit_rows = 32,
                                      .context_tokens = 512,
                                      .tokens_per_block = T};
    bt_model_memory_t memory = {0};
    bt_status_t got;
    int file;
    int was;

    (void)state;
    b->w.tokens_per_block = T;
    b->w.context_tokens = 512;
    b->s.kv_type = BT_KV_BF16;
    assert_int_equal(bt_start_draft_open(&b->w, &b->s), BT_OK);
    assert_int_equal(b->s.draft.head, BT_HEAD_EAGLE3);
    assert_true(b->s.draft.has_cache);
    assert_int_equal(b->s.draft.block_bytes, 1024);
    assert_int_equal(b->s.draft.cache.context_tokens, 512);
    assert_int_equal(b->s.draft.cache.n_slots, 4);
    assert_int_equal(bt_start_draft_memory(&b->w, &b->s, &config, &memory),
                     BT_OK);
    /* 4 sequences of 25 tokens, and 32 rows, of 3 x 64 floats each */
    assert_true(memory.private_bytes > (4 * 25 + 32) * 3 * 64 * sizeof(float));
    /* fc 192 x 64, queries, keys and values 128 x 96, output 64 x 96 … */
    assert_true(memory.weight_bytes >
                (192 * 64 + 128 * 96 + 64 * 96) * sizeof(float));
    memory.own_memory = true;
    bt_test_expect_log_lines(1);
    was = hear(&file);
    got = bt_start_draft_memory(&b->w, &b->s, &config, &memory);
    stop_hearing(file, was);
    assert_int_equal(got, BT_ERR_UNSUPPORTED);
    assert_non_null(strstr(said, "--draft-model: a draft head reads hidden"));
    close_worker(b);

    b = open_worker("ngram", path, 0);
    b->s.team.size = b->s.team.tp = 2;
    bt_test_expect_log_lines(4);
    assert_refused(b, BT_ERR_UNSUPPORTED,
                   "a model over 2 ranks has no draft head");
    b = open_worker("ngram", path, 0);
    b->config.reduction_parts = 2;
    assert_refused(b, BT_ERR_UNSUPPORTED,
                   "--draft-model /tmp/baton-test-start-head-");
    assert_non_null(strstr(said, "with --reduction-parts 2 there is no draft "
                                 "head"));
    unlink(path);
    assert_refused(open_worker("mtp", "", 0), BT_ERR_UNSUPPORTED,
                   "--draft mtp: model");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(weights_are_of_the_first_type_that_is_small_enough),
        BT_TEST(no_draft_model_is_opened_for_n_grams),
        BT_TEST(what_has_no_draft_model_is_refused_by_name),
        BT_TEST(memory_of_the_draft_model_is_added),
        BT_TEST(draft_model_with_a_shorter_context_has_a_cache),
        BT_TEST(kv_memory_is_divided_with_a_draft_model_of_another_shape),
        BT_TEST(head_has_a_cache_and_memory_for_hidden_states),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
