/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/grammars.h"

#include "tests/support/testsupport.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/grammar/compile.h"
#include "tests/support/tiny_model.h"

static char model_path[] = "/tmp/baton-test-grammars-XXXXXX";
static bt_gguf_t *gguf;

static int open_model(void **state)
{
    const bt_tiny_model_t tiny = bt_tiny_model_default();
    const int fd = mkstemp(model_path);
    char why[256];

    (void)state;
    if (fd < 0) {
        return -1;
    }
    close(fd);
    if (bt_tiny_model_write(&tiny, model_path) != BT_OK) {
        return -1;
    }
    return (bt_gguf_open(model_path, why, sizeof(why), &gguf) == BT_OK) ? 0
                                                                        : -1;
}

static int close_model(void **state)
{
    (void)state;
    bt_gguf_close(gguf);
    return unlink(model_path);
}

static bt_grammars_t *grammars_of(uint64_t max_bytes)
{
    bt_grammars_t *g = NULL;
    char why[256] = "";

    assert_int_equal(bt_grammars_create(gguf, bt_tiny_model_default().n_vocab,
                                        max_bytes, &g),
                     BT_OK);
    if (bt_grammars_wait(g, why, sizeof(why)) != BT_OK) {
        fail_msg("%s", why);
    }
    return g;
}

static bt_job_grammar_t *take_of(bt_grammars_t *g, uint64_t space,
                                 const char *choices, bool completes)
{
    const bt_grammar_source_t source = {
        .kind = BT_GRAMMAR_CHOICE, .text = choices, .bytes = strlen(choices)};
    const bt_hash128_t in = {space, 0};
    bt_job_grammar_t *grammar = NULL;
    const char *take_why = "";
    char why[BT_GRAMMAR_WHY_BYTES];
    uint8_t *program = NULL;
    size_t bytes = 0;

    assert_int_equal(
        bt_grammar_compile(&source, &program, &bytes, why, sizeof(why)), BT_OK);
    if (bt_grammars_take(g, in, program, (uint32_t)bytes, completes, &take_why,
                         &grammar) != BT_OK) {
        fail_msg("%s", take_why);
    }
    bt_free(program); /* borrowed for the call */
    return grammar;
}

static bt_job_grammar_t *take(bt_grammars_t *g, uint64_t space,
                              const char *choices)
{
    return take_of(g, space, choices, false);
}

/* What distances need is for those alone that ask for it. */
static void answers_that_must_be_whole_have_a_matcher_of_their_own(void **state)
{
    bt_grammars_t *g = grammars_of(64 << 20);
    bt_job_grammar_t *a = take(g, 0, "[\"yes\"]");
    bt_job_grammar_t *b = take_of(g, 0, "[\"yes\"]", true);
    bt_matcher_cursor_t cursor = {0};

    (void)state;
    assert_ptr_not_equal(a, b);
    assert_ptr_equal(take_of(g, 0, "[\"yes\"]", true), b);
    assert_true(bt_matcher_move(bt_job_grammar_matcher(b), &cursor, NULL, 0));
    assert_int_equal(
        bt_matcher_min_bytes(bt_job_grammar_matcher(b), cursor.state), 3);
    bt_job_grammar_release(a);
    bt_job_grammar_release(b);
    bt_job_grammar_release(b);
    bt_grammars_destroy(g);
}

static void jobs_of_one_space_share_a_grammar(void **state)
{
    bt_grammars_t *g = grammars_of(64 << 20);
    bt_job_grammar_t *a = take(g, 0, "[\"yes\"]");
    bt_job_grammar_t *b = take(g, 0, "[\"yes\"]");
    bt_job_grammar_t *other = take(g, 0, "[\"no\"]");
    bt_job_grammar_t *foreign = take(g, 1, "[\"yes\"]");

    (void)state;
    assert_ptr_equal(a, b);
    assert_ptr_not_equal(a, other);
    assert_ptr_not_equal(a, foreign);
    assert_ptr_not_equal(bt_job_grammar_matcher(a),
                         bt_job_grammar_matcher(foreign));
    assert_int_equal(bt_grammars_n_loaded(g), 3);
    bt_job_grammar_release(a);
    bt_job_grammar_release(b);
    assert_ptr_equal(take(g, 0, "[\"yes\"]"), a); /* kept meanwhile */
    assert_int_equal(bt_grammars_n_loaded(g), 3);
    bt_job_grammar_release(a);
    bt_job_grammar_release(other);
    bt_job_grammar_release(foreign);
    bt_job_grammar_release(NULL);
    bt_grammars_destroy(g);
    bt_grammars_destroy(NULL);
}

/* Memory for two; those of jobs do not count. */
static void least_recently_used_grammars_are_dropped(void **state)
{
    bt_grammars_t *g = grammars_of(2 * BT_GRAMMARS_MATCHER_BYTES);
    bt_job_grammar_t *used = take(g, 0, "[\"a\"]");

    (void)state;
    bt_job_grammar_release(take(g, 0, "[\"b\"]"));
    bt_job_grammar_release(take(g, 0, "[\"c\"]"));
    bt_job_grammar_release(take(g, 0, "[\"b\"]"));
    assert_int_equal(bt_grammars_n_loaded(g), 3);
    bt_job_grammar_release(take(g, 0, "[\"d\"]")); /* drops c */
    bt_job_grammar_release(take(g, 0, "[\"b\"]"));
    assert_int_equal(bt_grammars_n_loaded(g), 4);
    bt_job_grammar_release(take(g, 0, "[\"c\"]"));
    assert_int_equal(bt_grammars_n_loaded(g), 5);
    assert_ptr_equal(take(g, 0, "[\"a\"]"), used);
    bt_job_grammar_release(used);
    bt_job_grammar_release(used);
    bt_grammars_destroy(g);

    g = grammars_of(0); /* none is kept */
    bt_job_grammar_release(take(g, 0, "[\"a\"]"));
    bt_job_grammar_release(take(g, 0, "[\"a\"]"));
    assert_int_equal(bt_grammars_n_loaded(g), 2);
    bt_grammars_destroy(g);
}

static void vocabulary_is_that_of_the_file(void **state)
{
    bt_grammars_t *g = grammars_of(0);
    const bt_token_trie_t *trie = bt_grammars_trie(g);

    (void)state;
    assert_int_equal(trie->n_vocab, bt_tiny_model_default().n_vocab);
    assert_in_range(trie->n_end_ids, 1, 64);
    bt_grammars_destroy(g);

    /* Without waiting. */
    assert_int_equal(bt_grammars_create(gguf, 288, 0, &g), BT_OK);
    bt_grammars_destroy(g);
}

static void malformed_program_is_refused_with_its_reason(void **state)
{
    static const uint8_t bad[] = {'B', 'T', 'G', 99, 1, 2, 3};
    const bt_hash128_t space = {0, 0};
    bt_grammars_t *g = grammars_of(0);
    bt_job_grammar_t *grammar = NULL;
    const char *why = NULL;

    (void)state;
    assert_int_not_equal(
        bt_grammars_take(g, space, bad, sizeof(bad), false, &why, &grammar),
        BT_OK);
    assert_non_null(why);
    assert_null(grammar);
    assert_int_equal(bt_grammars_take(g, space, bad, 2, false, &why, &grammar),
                     BT_ERR_BAD_MESSAGE);
    assert_int_equal(bt_grammars_n_loaded(g), 0);
    bt_grammars_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(jobs_of_one_space_share_a_grammar),
        BT_TEST(answers_that_must_be_whole_have_a_matcher_of_their_own),
        BT_TEST(least_recently_used_grammars_are_dropped),
        BT_TEST(vocabulary_is_that_of_the_file),
        BT_TEST(malformed_program_is_refused_with_its_reason),
    };

    return cmocka_run_group_tests(tests, open_model, close_model);
}
