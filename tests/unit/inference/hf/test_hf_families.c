/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.json of every pipeline that families have: ids of hostile texts,
 * and texts of ids, by their hashes, against the tokenizers library:
 * golden/make_hf_tokenizer_golden.py. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/json_doc.h"
#include "inference/tokenizer/tokenizer.h"
#include "tests/fuzz/hf_files.h"

#define MAX_LINES 400u
#define MAX_IDS   4000u

static char why[512];

typedef struct lines {
    char *text;
    char *at[MAX_LINES];
    size_t n;
} lines_t;

static void read_lines(const char *name, lines_t *lines)
{
    char path[128];
    FILE *in;
    long n;

    snprintf(path, sizeof(path), "golden/%s", name);
    in = fopen(bt_test_path(path), "re");
    assert_non_null(in);
    assert_int_equal(fseek(in, 0, SEEK_END), 0);
    n = ftell(in);
    rewind(in);
    lines->text = bt_calloc((size_t)n + 1, 1);
    assert_non_null(lines->text);
    assert_int_equal(fread(lines->text, 1, (size_t)n, in), n);
    fclose(in);
    lines->n = 0;
    for (char *p = lines->text; *p != '\0';) {
        char *const end = strchr(p, '\n');

        assert_true((end != NULL) && (lines->n < MAX_LINES));
        *end = '\0';
        lines->at[lines->n++] = p;
        p = end + 1;
    }
}

static uint32_t fnv1a(const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    uint32_t value = 2166136261u;

    for (size_t i = 0; i < n; i++) {
        value = (value ^ p[i]) * 16777619u;
    }
    return value;
}

/* A folder whose tokenizer.json is this. */
static bt_tokenizer_t *open_tokenizer(const char *name, const char *json)
{
    static uint8_t weights[8192];
    static const char config[] =
        "{\"model_type\":\"llama\",\"hidden_size\":4,\"intermediate_size\":4,"
        "\"num_hidden_layers\":1,\"num_attention_heads\":2,"
        "\"max_position_embeddings\":8,\"rms_norm_eps\":1e-5}";
    const bt_folder_entry_t entries[] = {
        {"config.json", config, strlen(config)},
        {"tokenizer.json", json, strlen(json)},
        {"model.safetensors", weights, hf_weights(weights, sizeof(weights))},
    };
    bt_gguf_t *gguf = NULL;
    bt_tokenizer_t *tok = NULL;

    if ((bt_hf_open_memory(entries, 3, why, sizeof(why), &gguf) != BT_OK) ||
        (bt_tokenizer_load(gguf, why, sizeof(why), &tok) != BT_OK)) {
        fail_msg("%s: %s", name, why);
    }
    bt_gguf_close(gguf);
    return tok;
}

/* @param [in] text  JSON of it */
static uint32_t hash_of_ids(const bt_tokenizer_t *tok, const char *text)
{
    bt_json_doc_t *doc = NULL;
    bt_token_vec_t ids = {0};
    const bt_json_node_t *node;
    uint32_t hash;

    assert_int_equal(
        bt_json_doc_parse(text, strlen(text), why, sizeof(why), &doc), BT_OK);
    node = bt_json_doc_root(doc);
    assert_int_equal(bt_tokenize(tok, node->text, node->len,
                                 BT_TOK_PARSE_SPECIAL, MAX_IDS, &ids),
                     BT_OK);
    hash = fnv1a(ids.ids, ids.n * sizeof(*ids.ids));
    bt_free(ids.ids);
    bt_json_doc_free(doc);
    return hash;
}

static uint32_t hash_of_text(const bt_tokenizer_t *tok, const char *ids)
{
    bt_strbuf_t out;
    bt_detok_t detok;
    uint32_t hash;

    bt_strbuf_init(&out, 1u << 16);
    bt_detok_init(&detok, tok);
    while (*ids != '\0') {
        char *end = NULL;

        bt_detok_push(&detok, (uint32_t)strtoul(ids, &end, 10), &out);
        ids = end + (*end == ' ');
    }
    bt_detok_finish(&detok, &out);
    assert_int_equal(bt_strbuf_status(&out), BT_OK);
    hash = fnv1a(out.data, out.len);
    bt_strbuf_fini(&out);
    return hash;
}

/* Hashes that stand in one line; "-": not compared.
 * @return how many were compared */
static size_t compare(const char *name, const bt_tokenizer_t *tok, char *hashes,
                      char *const *given, size_t n,
                      uint32_t (*hash_of)(const bt_tokenizer_t *, const char *))
{
    char *save = NULL;
    const char *want = strtok_r(hashes, " ", &save);
    size_t n_compared = 0;

    for (size_t i = 0; i < n; i++) {
        assert_non_null(want);
        if (strcmp(want, "-") != 0) {
            n_compared++;
            if (hash_of(tok, given[i]) != strtoul(want, NULL, 16)) {
                fail_msg("%s: not the library's for %s", name, given[i]);
            }
        }
        want = strtok_r(NULL, " ", &save);
    }
    assert_null(want);
    return n_compared;
}

static const char *model_named(const lines_t *models, const char *name)
{
    for (size_t i = 0; i + 1 < models->n; i += 2) {
        if (strcmp(models->at[i], name) == 0) {
            return models->at[i + 1];
        }
    }
    fail_msg("no vocabulary %s", name);
    return NULL;
}

static void every_pipeline_gives_the_librarys_ids_and_texts(void **state)
{
    static lines_t texts, models, families;
    size_t n_texts = 0;
    size_t n_families = 0;
    size_t n_decoded = 0;

    (void)state;
    read_lines("hf_tok_texts.txt", &texts);
    read_lines("hf_tok_models.txt", &models);
    read_lines("hf_tok_families.txt", &families);
    while (strcmp(texts.at[n_texts], "=") != 0) {
        n_texts++;
    }
    for (size_t i = 0; i + 5 < families.n; i += 6) {
        char **const f = &families.at[i];
        const char *const vocabulary = model_named(&models, f[1]);
        const size_t n = strlen(f[2]) + strlen(f[3]) + strlen(vocabulary) + 32;
        char *const json = bt_calloc(n, 1);
        bt_tokenizer_t *tok;

        assert_non_null(json);
        snprintf(json, n, "{%s,\"model\":{%s,%s}}", f[2], f[3], vocabulary);
        tok = open_tokenizer(f[0], json);
        (void)compare(f[0], tok, f[4], texts.at, n_texts, hash_of_ids);
        n_decoded += compare(f[0], tok, f[5], texts.at + n_texts + 1,
                             texts.n - n_texts - 1, hash_of_text);
        bt_tokenizer_destroy(tok);
        bt_free(json);
        n_families++;
    }
    assert_int_equal(n_families, 44);
    assert_true(n_decoded > 40 * n_families);
    bt_free(texts.text);
    bt_free(models.text);
    bt_free(families.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(every_pipeline_gives_the_librarys_ids_and_texts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
