/* SPDX-License-Identifier: Apache-2.0 */
/* Token ids of the whole corpus with the default model's vocabulary, against
 * the Hugging Face tokenizers library. Needs the model: BATON_TEST_MODEL. */
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/inference/tokenizer/golden.h"

#define SKIP 77

static const char *model_path;

static void corpus_gives_the_reference_ids_and_round_trips(void **state)
{
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;
    golden_lines_t corpus;
    golden_lines_t expected;

    (void)state;
    golden_load(model_path, &gguf, &tok);
    golden_read_corpus(&corpus);
    golden_read("golden/tok_model.ids.gz", &expected);
    assert_true(corpus.n >= 1000);

    golden_compare(tok, &corpus, 1, &expected, "smollm", BT_TOK_PARSE_SPECIAL);
    golden_compare(tok, &corpus, 1, &expected, "smollm as text", 0);
    assert_true(golden_round_trip(tok, &corpus) > corpus.n * 9 / 10);
    golden_use(tok, BT_PRETOK_GPT2, false);
    golden_compare(tok, &corpus, 1, &expected, "gpt-2", BT_TOK_PARSE_SPECIAL);
    golden_use(tok, BT_PRETOK_QWEN2, false);
    golden_compare(tok, &corpus, 1, &expected, "qwen2", BT_TOK_PARSE_SPECIAL);
    golden_use(tok, BT_PRETOK_LLAMA_BPE, true);
    golden_compare(tok, &corpus, 1, &expected, "llama-bpe",
                   BT_TOK_PARSE_SPECIAL);

    golden_free(&corpus);
    golden_free(&expected);
    bt_tokenizer_destroy(tok);
    bt_gguf_close(gguf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(corpus_gives_the_reference_ids_and_round_trips),
    };

    model_path = getenv("BATON_TEST_MODEL");
    if ((model_path == NULL) || (access(model_path, R_OK) != 0)) {
        fprintf(stderr, "skipped: BATON_TEST_MODEL does not name the default "
                        "model's file\n");
        return SKIP;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
