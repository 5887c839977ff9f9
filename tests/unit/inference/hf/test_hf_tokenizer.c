/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers of folders against the libraries that they are of: ids of
 * golden/make_hf_tokenizer_golden.py. And the other files of texts. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/json_doc.h"
#include "inference/tokenizer/tokenizer.h"
#include "tests/fuzz/hf_files.h"

#define FILE_BYTES (64u << 10)
#define MAX_IDS    200

static char why[512];

static size_t read_golden(const char *name, char *out)
{
    char path[128];
    FILE *in;
    size_t n;

    snprintf(path, sizeof(path), "golden/%s", name);
    in = fopen(bt_test_path(path), "re");
    assert_non_null(in);
    n = fread(out, 1, FILE_BYTES - 1, in);
    fclose(in);
    out[n] = '\0';
    return n;
}

/* A folder with this file of a vocabulary and small other ones. */
static bt_gguf_t *open_with(const char *file, const char *text, size_t n,
                            const char *more_name, const char *more)
{
    static uint8_t weights[8192];
    static const char config[] =
        "{\"model_type\":\"llama\",\"hidden_size\":4,\"intermediate_size\":4,"
        "\"num_hidden_layers\":1,\"num_attention_heads\":2,"
        "\"max_position_embeddings\":8,\"rms_norm_eps\":1e-5,"
        "\"bos_token_id\":1,\"eos_token_id\":2}";
    const bt_folder_entry_t entries[] = {
        {"config.json", config, strlen(config)},
        {file, text, n},
        {"model.safetensors", weights, hf_weights(weights, sizeof(weights))},
        {more_name, more, strlen(more)},
    };
    bt_gguf_t *gguf = NULL;

    if (bt_hf_open_memory(entries, 4, why, sizeof(why), &gguf) != BT_OK) {
        fail_msg("%s: %s", file, why);
    }
    return gguf;
}

/* One line: the text as JSON, a tab, ids. */
static void check_line(const bt_tokenizer_t *tok, char *line)
{
    char *const tab = strchr(line, '\t');
    char *save = NULL;
    bt_json_doc_t *doc = NULL;
    bt_token_vec_t ids = {0};
    const bt_json_node_t *text;
    size_t i = 0;

    assert_non_null(tab);
    *tab = '\0';
    assert_int_equal(
        bt_json_doc_parse(line, strlen(line), why, sizeof(why), &doc), BT_OK);
    text = bt_json_doc_root(doc);
    assert_int_equal(bt_tokenize(tok, text->text, text->len,
                                 BT_TOK_PARSE_SPECIAL, MAX_IDS, &ids),
                     BT_OK);
    for (const char *id = strtok_r(tab + 1, " ", &save); id != NULL;
         id = strtok_r(NULL, " ", &save)) {
        if ((i >= ids.n) || (ids.ids[i] != strtoul(id, NULL, 10))) {
            fail_msg("id %zu of %s is not %s", i, line, id);
        }
        i++;
    }
    assert_int_equal(i, ids.n);
    bt_free(ids.ids);
    bt_json_doc_free(doc);
}

static void check_ids(const char *file, const char *golden, const char *ids)
{
    char *const text = bt_calloc(FILE_BYTES, 1);
    char *const lines = bt_calloc(FILE_BYTES, 1);
    bt_tokenizer_t *tok = NULL;
    char *save = NULL;
    bt_gguf_t *gguf;

    assert_non_null(text);
    assert_non_null(lines);
    gguf = open_with(file, text, read_golden(golden, text), "none", "");
    if (bt_tokenizer_load(gguf, why, sizeof(why), &tok) != BT_OK) {
        fail_msg("%s: %s", golden, why);
    }
    (void)read_golden(ids, lines);
    for (char *line = strtok_r(lines, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        check_line(tok, line);
    }
    bt_tokenizer_destroy(tok);
    bt_gguf_close(gguf);
    bt_free(lines);
    bt_free(text);
}

static void byte_level_vocabularies_give_the_librarys_ids(void **state)
{
    (void)state;
    check_ids("tokenizer.json", "hf_tok_gpt2.json", "hf_tok_gpt2.ids");
    check_ids("tokenizer.json", "hf_tok_smollm.json", "hf_tok_smollm.ids");
    check_ids("tokenizer.json", "hf_tok_split.json", "hf_tok_split.ids");
}

static void byte_fallback_merges_give_the_librarys_ids(void **state)
{
    (void)state;
    check_ids("tokenizer.json", "hf_tok_merges.json", "hf_tok_merges.ids");
}

static void sentencepiece_models_give_the_librarys_ids(void **state)
{
    (void)state;
    check_ids("tokenizer.model", "hf_tok_spm.model", "hf_tok_spm.ids");
    check_ids("tokenizer.model", "hf_tok_unigram.model", "hf_tok_unigram.ids");
}

static bool str_is(const bt_gguf_t *gguf, const char *key, const char *text)
{
    bt_gguf_str_t str = {0};

    return (bt_gguf_get_str(gguf, key, &str) == BT_OK) &&
           (str.len == strlen(text)) && (memcmp(str.data, text, str.len) == 0);
}

static void chat_templates_and_settings_are_read(void **state)
{
    bt_gguf_t *gguf =
        open_with("tokenizer.json", HF_TOKENIZER, strlen(HF_TOKENIZER),
                  "chat_template.jinja", "{{ a }}");
    uint32_t u32 = 0;
    float f32 = 0;

    (void)state;
    assert_true(str_is(gguf, "tokenizer.chat_template", "{{ a }}"));
    bt_gguf_close(gguf);

    gguf = open_with("tokenizer.json", HF_TOKENIZER, strlen(HF_TOKENIZER),
                     "tokenizer_config.json",
                     "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":"
                     "\"t\"},{\"name\":\"default\",\"template\":\"d\"}],"
                     "\"eos_token\":{\"content\":\"c\"},\"bos_token\":\"b\","
                     "\"add_bos_token\":true}");
    assert_true(str_is(gguf, "tokenizer.chat_template", "d"));
    assert_true(str_is(gguf, "tokenizer.chat_template.tool_use", "t"));
    assert_int_equal(bt_gguf_get_u32(gguf, "tokenizer.ggml.eos_token_id", &u32),
                     BT_OK);
    assert_int_equal(u32, 2);
    bt_gguf_close(gguf);

    gguf = open_with("tokenizer.json", HF_TOKENIZER, strlen(HF_TOKENIZER),
                     "generation_config.json",
                     "{\"do_sample\":true,\"temperature\":0.6,\"top_k\":20,"
                     "\"eos_token_id\":[2,3,1]}");
    assert_int_equal(bt_gguf_get_f32(gguf, "general.sampling.temp", &f32),
                     BT_OK);
    assert_true(f32 == 0.6f);
    assert_int_equal(bt_gguf_get_u32(gguf, "general.sampling.top_k", &u32),
                     BT_OK);
    assert_int_equal(u32, 20);
    assert_int_equal(bt_gguf_get_u32(gguf, "tokenizer.ggml.eot_token_id", &u32),
                     BT_OK);
    assert_int_equal(u32, 3);
    assert_int_equal(bt_gguf_get_u32(gguf, "tokenizer.ggml.eom_token_id", &u32),
                     BT_OK);
    assert_int_equal(u32, 1);
    bt_gguf_close(gguf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(byte_level_vocabularies_give_the_librarys_ids),
        BT_TEST(byte_fallback_merges_give_the_librarys_ids),
        BT_TEST(sentencepiece_models_give_the_librarys_ids),
        BT_TEST(chat_templates_and_settings_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
