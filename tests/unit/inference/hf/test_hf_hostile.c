/* SPDX-License-Identifier: Apache-2.0 */
/* Folders that are wrong are refused with a sentence that says what is. */
#include "tests/support/testsupport.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "inference/hf/safetensors.h"
#include "tests/fuzz/hf_files.h"
#include "tests/support/hf_folder.h"

static char why[512];

/* ---- safetensors ---- */

static bt_status_t parse(const char *header, size_t n_data)
{
    uint8_t file[2048] = {0};
    const uint64_t n = strlen(header);
    bt_safetensors_t st = {0};
    bt_status_t status;

    memcpy(file, &n, sizeof(n));
    memcpy(file + 8, header, n);
    status = bt_safetensors_parse(file, 8 + n + n_data, why, sizeof(why), &st);
    bt_safetensors_fini(&st);
    return status;
}

static void bad_safetensors_file_is_refused_with_the_reason(void **state)
{
    static const struct {
        const char *header;
        size_t n_data;
        bt_status_t status;
        const char *says;
    } cases[] = {
        {"[]", 0, BT_ERR_BAD_FILE, "no JSON object"},
        {"{\"a\":1}", 0, BT_ERR_BAD_FILE, "tensor a is not described"},
        {"{\"a\":{\"shape\":[],\"data_offsets\":[0,1]}}", 1, BT_ERR_BAD_FILE,
         "tensor a has no dtype"},
        {"{\"a\":{\"dtype\":\"Q9\",\"shape\":[],\"data_offsets\":[0,1]}}", 1,
         BT_ERR_UNSUPPORTED, "tensor a has the dtype Q9"},
        {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1,
         BT_ERR_BAD_FILE, "tensor a has no shape"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", 1,
         BT_ERR_BAD_FILE, "tensor a has an absurd shape"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],"
         "\"data_offsets\":[0,1]}}",
         1, BT_ERR_BAD_FILE, "tensor a has an absurd shape"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],"
         "\"data_offsets\":[0,1]}}",
         1, BT_ERR_UNSUPPORTED, "tensor a has 9 dimensions"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,0]}}", 1,
         BT_ERR_BAD_FILE, "tensor a has data_offsets that are no range"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 1,
         BT_ERR_BAD_FILE, "tensor a ends at byte 2 of the data"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
         BT_ERR_BAD_FILE, "another number of bytes than its shape"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
         3, BT_ERR_BAD_FILE, "tensor b overlaps another"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", 2,
         BT_ERR_BAD_FILE, "tensor a begins behind bytes of no tensor"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 3,
         BT_ERR_BAD_FILE, "2 bytes at the end are of no tensor"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
         "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
         1, BT_ERR_BAD_FILE, "the key \"a\" stands twice"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}", 1,
         BT_ERR_BAD_FILE, "in its header, neither a comma nor an end"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(parse(cases[i].header, cases[i].n_data),
                         cases[i].status);
        if (strstr(why, cases[i].says) == NULL) {
            fail_msg("\"%s\" does not say \"%s\"", why, cases[i].says);
        }
    }
}

static void safetensors_header_over_the_file_size_is_refused(void **state)
{
    const uint64_t n = UINT64_MAX - 7;
    bt_safetensors_t st = {0};

    (void)state;
    assert_int_equal(bt_safetensors_parse(&n, sizeof(n), why, sizeof(why), &st),
                     BT_ERR_BAD_FILE);
    assert_non_null(strstr(why, "18446744073709551608"));
    assert_int_equal(bt_safetensors_parse(&n, 3, why, sizeof(why), &st),
                     BT_ERR_BAD_FILE);
}

/* ---- one file of a folder at a time ---- */

static bt_status_t open_with(const char *name, const char *text)
{
    static uint8_t weights[8192];
    const size_t n = hf_weights(weights, sizeof(weights));
    bt_folder_entry_t entries[] = {
        {"config.json", HF_CONFIG, strlen(HF_CONFIG)},
        {"tokenizer.json", HF_TOKENIZER, strlen(HF_TOKENIZER)},
        {"model.safetensors", weights, n},
        {name, text, strlen(text)},
    };
    bt_gguf_t *gguf = NULL;
    bt_status_t status;

    for (uint32_t i = 0; i < 3; i++) {
        if (strcmp(entries[i].name, name) == 0) {
            entries[i] = entries[3];
        }
    }
    status = bt_hf_open_memory(entries, 4, why, sizeof(why), &gguf);
    if (status == BT_OK) {
        bt_gguf_close(gguf);
    } else {
        assert_null(gguf);
    }
    return status;
}

typedef struct wrong {
    const char *text;
    bt_status_t status;
    const char *says;
} wrong_t;

static void check(const char *name, const wrong_t *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const bt_status_t status = open_with(name, cases[i].text);

        if ((status != cases[i].status) ||
            (strstr(why, cases[i].says) == NULL)) {
            fail_msg("%s: %s \"%s\", not \"%s\"", cases[i].text,
                     bt_status_str(status), why, cases[i].says);
        }
    }
}

#define CONFIG(more)                                                      \
    "{\"model_type\":\"llama\",\"intermediate_size\":4,\"rms_norm_eps\":" \
    "1e-5,\"vocab_size\":4,\"tie_word_embeddings\":true," more "}"
#define SHAPE                                                              \
    "\"hidden_size\":4,\"num_hidden_layers\":1,\"num_attention_heads\":2," \
    "\"max_position_embeddings\":8"

static void bad_config_json_is_refused_with_the_reason(void **state)
{
    static const wrong_t cases[] = {
        {"[1]", BT_ERR_BAD_FILE, "config.json is not a JSON object"},
        {"{", BT_ERR_BAD_FILE, "config.json: no key where one is due"},
        {"{\"a\":1,\"a\":2}", BT_ERR_BAD_FILE, "\"a\" stands twice"},
        {"{\"a\":\"\xFF\"}", BT_ERR_BAD_FILE, "config.json: it is not UTF-8"},
        {"{\"a\":\"\\ud800\"}", BT_ERR_BAD_FILE, "surrogate"},
        {"{}", BT_ERR_BAD_FILE, "does not name its model_type"},
        {"{\"model_type\":\"bert\"}", BT_ERR_UNSUPPORTED,
         "models of the type bert are not supported; supported: llama"},
        {"{\"model_type\":\"phimoe\"}", BT_ERR_UNSUPPORTED,
         "models of the type phimoe are not supported"},
        {"{\"model_type\":\"llama4\",\"text_config\":{\"model_type\":"
         "\"llama4_text\"}}",
         BT_ERR_UNSUPPORTED, "models of the type llama4 are not supported"},
        {"{\"model_type\":\"llama4_text\"}", BT_ERR_UNSUPPORTED,
         "models of the type llama4_text are not supported"},
        {CONFIG("\"hidden_size\":4"), BT_ERR_BAD_FILE,
         "num_hidden_layers is missing"},
        {CONFIG("\"num_hidden_layers\":1e9"), BT_ERR_BAD_FILE,
         "num_hidden_layers is 1e9, which is absurd"},
        {CONFIG("\"num_hidden_layers\":-1"), BT_ERR_BAD_FILE,
         "num_hidden_layers is -1, which is absurd"},
        {CONFIG("\"num_hidden_layers\":1.5"), BT_ERR_BAD_FILE,
         "num_hidden_layers is 1.5, which is absurd"},
        {CONFIG("\"num_hidden_layers\":\"1\""), BT_ERR_BAD_FILE,
         "num_hidden_layers is not a number"},
        {CONFIG(SHAPE ",\"num_key_value_heads\":3"), BT_ERR_BAD_FILE,
         "2 query heads cannot share 3"},
        {CONFIG(SHAPE ",\"num_key_value_heads\":0"), BT_ERR_BAD_FILE,
         "num_key_value_heads is 0, which is absurd"},
        {CONFIG(SHAPE ",\"hidden_act\":\"gelu\""), BT_ERR_UNSUPPORTED,
         "the activation gelu is not supported for llama models"},
        {CONFIG(SHAPE ",\"rope_theta\":1e999"), BT_ERR_BAD_FILE, "rope_theta"},
        {CONFIG(SHAPE ",\"rope_scaling\":{\"rope_type\":\"dynamic\","
                      "\"original_max_position_embeddings\":4}"),
         BT_ERR_UNSUPPORTED, "positions of the type dynamic whose original_"},
        {CONFIG(SHAPE ",\"rope_scaling\":{\"rope_type\":\"su\"}"),
         BT_ERR_UNSUPPORTED, "positions of the type su are not supported"},
        {CONFIG(SHAPE ",\"rope_scaling\":{\"rope_type\":\"yarn\","
                      "\"factor\":4,\"truncate\":0,"
                      "\"original_max_position_embeddings\":4}"),
         BT_ERR_BAD_FILE, "truncate is not true or false"},
        {"{\"model_type\":\"mistral3\"}", BT_ERR_BAD_FILE,
         "text_config, which models of the type mistral3 have, is missing"},
        {"{\"model_type\":\"gemma3\",\"text_config\":{\"model_type\":"
         "\"gemma2\"}}",
         BT_ERR_UNSUPPORTED, "a text_config of the type gemma2"},
        {"{\"model_type\":\"mpt\",\"attn_config\":{\"alibi\":false}}",
         BT_ERR_UNSUPPORTED, "attn_config.alibi is not true"},
        {"{\"model_type\":\"mpt\",\"attn_config\":{\"qk_ln\":true}}",
         BT_ERR_UNSUPPORTED, "attn_config.qk_ln is not false"},
        {CONFIG(SHAPE ",\"rope_scaling\":{\"rope_type\":\"llama3\","
                      "\"factor\":-1}"),
         BT_ERR_BAD_FILE, "the numbers of rope_type llama3"},
        {CONFIG(SHAPE ",\"layer_types\":[\"sliding_attention\"]"),
         BT_ERR_UNSUPPORTED, "layer_types has sliding_attention for layer 0"},
        {CONFIG(SHAPE ",\"layer_types\":[]"), BT_ERR_BAD_FILE,
         "layer_types is not a list of the 1 layers"},
        {CONFIG(SHAPE ",\"eos_token_id\":9"), BT_ERR_BAD_FILE,
         "eos_token_id is not one of the 4 tokens"},
        {CONFIG(SHAPE ",\"quantization_config\":{\"quant_method\":\"hqq\"}"),
         BT_ERR_UNSUPPORTED, "quant_method hqq is not supported"},
        {CONFIG(SHAPE ",\"quantization_config\":{\"quant_method\":"
                      "\"compressed-tensors\",\"format\":\"float-quantized\","
                      "\"config_groups\":{\"group_0\":{\"weights\":"
                      "{\"num_bits\":8}}},"
                      "\"transform_config\":{\"config_groups\":{\"R1\":1}}}"),
         BT_ERR_UNSUPPORTED, "transform_config so is not supported"},
        {CONFIG(SHAPE ",\"quantization_config\":{\"quant_method\":\"gptq\","
                      "\"bits\":3}"),
         BT_ERR_UNSUPPORTED, "bits 3 is not supported"},
        {CONFIG("\"hidden_size\":4,\"num_hidden_layers\":2,"
                "\"num_attention_heads\":4,\"max_position_embeddings\":8,"
                "\"head_dim\":2"),
         BT_ERR_BAD_FILE,
         "k_proj.weight has not the rows that config.json calls for"},
    };

    (void)state;
    check("config.json", cases, sizeof(cases) / sizeof(cases[0]));
}

static void json_nested_too_deeply_is_refused(void **state)
{
    char text[256] = "{\"a\":";

    (void)state;
    memset(text + 5, '[', 64);
    assert_int_equal(open_with("config.json", text), BT_ERR_BAD_FILE);
    assert_non_null(strstr(why, "nested too deeply"));
}

#define MODEL(more)                                                         \
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":"      \
    "\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"ab\":3},\"merges\":" more \
    "}"

static void bad_tokenizer_json_is_refused_with_the_reason(void **state)
{
    static const wrong_t cases[] = {
        {"{}", BT_ERR_BAD_FILE, "tokenizer.json has no model"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}",
         BT_ERR_UNSUPPORTED, "the model WordPiece is not supported"},
        {"{\"model\":{\"vocab\":{\"a\":0}}}", BT_ERR_UNSUPPORTED,
         "the model without a name"},
        {"{\"model\":{\"type\":\"Unigram\"}}", BT_ERR_BAD_FILE, "vocab"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",\"b\"]]}}",
         BT_ERR_BAD_FILE, "token 0 is no pair of a text and its score"},
        {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":5,\"vocab\":[[\"a\","
         "1]]}}",
         BT_ERR_BAD_FILE, "unk_token or unk_id"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",1e300]]}}",
         BT_ERR_BAD_FILE, "token 0 is no pair of a text and its score"},
        {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":"
         "\"Unigram\",\"vocab\":[[\"a\",1]]}}",
         BT_ERR_UNSUPPORTED, "Unigram with ByteLevel"},
        {"{\"model\":{\"type\":\"BPE\"}}", BT_ERR_BAD_FILE, "vocab"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0}}}",
         BT_ERR_BAD_FILE, "two tokens have the id 0"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":4000000000}}}",
         BT_ERR_BAD_FILE, "the id of token a is absurd"},
        {MODEL("[[\"a\",\"x y\"]]}"), BT_ERR_UNSUPPORTED,
         "merges of tokens with spaces are not supported (merge 0)"},
        {MODEL("[\"ab\"]}"), BT_ERR_BAD_FILE,
         "merge 0 does not join two tokens"},
        {MODEL("[],\"dropout\":0.1}"), BT_ERR_UNSUPPORTED, "dropout"},
        {MODEL("[],\"end_of_word_suffix\":\"</w>\"}"), BT_ERR_UNSUPPORTED,
         "end_of_word_suffix is not supported"},
        {MODEL("[],\"unk_token\":\"a\"}"), BT_ERR_UNSUPPORTED,
         "no token for byte 0"},
        {MODEL("[],\"unk_token\":\"z\"}"), BT_ERR_BAD_FILE, "unk_token"},
        {MODEL("[]},\"normalizer\":{\"type\":\"BertNormalizer\"}"),
         BT_ERR_UNSUPPORTED, "the normalizer BertNormalizer is not supported"},
        {MODEL("[]},\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":7}"),
         BT_ERR_BAD_FILE, "a Sequence has no normalizers"},
        {MODEL("[]},\"normalizer\":{\"type\":\"Replace\"}"), BT_ERR_BAD_FILE,
         "a Replace has no pattern or content"},
        {MODEL("[]},\"normalizer\":{\"type\":\"Precompiled\","
               "\"precompiled_charsmap\":\"a-b\"}"),
         BT_ERR_BAD_FILE, "precompiled_charsmap is not base64"},
        {MODEL("[]},\"decoder\":{\"type\":\"WordPiece\"}"), BT_ERR_UNSUPPORTED,
         "the decoder WordPiece is not supported"},
        {MODEL("[]},\"decoder\":{\"type\":\"Strip\",\"content\":\" \","
               "\"start\":1,\"stop\":0}"),
         BT_ERR_UNSUPPORTED, "a Strip of the decoder"},
        {MODEL("[]},\"added_tokens\":[{\"id\":0,\"content\":\"<m>\"}]"),
         BT_ERR_BAD_FILE, "the added token <m> has the id of another"},
        {MODEL("[]},\"post_processor\":{\"type\":\"BertProcessing\"}"),
         BT_ERR_UNSUPPORTED, "the beginning before a text without a name"},
        {MODEL("[]},\"post_processor\":{\"type\":\"Other\"}"),
         BT_ERR_UNSUPPORTED, "the post-processor Other"},
        {MODEL("[]},\"post_processor\":{\"type\":\"TemplateProcessing\","
               "\"single\":[{\"SpecialToken\":{\"id\":\"[CLS]\"}}]}"),
         BT_ERR_UNSUPPORTED, "the beginning before a text [CLS] is"},
        {MODEL("[]},\"post_processor\":{\"type\":\"TemplateProcessing\","
               "\"single\":[{\"Sequence\":{}},{\"Sequence\":{}}]}"),
         BT_ERR_UNSUPPORTED, "the end behind a text"},
        {"{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"},\"model\":{\"type\":"
         "\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
         BT_ERR_UNSUPPORTED, "the pre-tokenizer UnicodeScripts"},
        {"{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{"
         "\"type\":\"ByteLevel\"},{\"type\":\"ByteLevel\"}]},\"model\":{"
         "\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
         BT_ERR_UNSUPPORTED, "a second ByteLevel"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Glued\","
         "\"pattern\":{\"String\":\"a\"}},\"model\":{\"type\":"
         "\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
         BT_ERR_UNSUPPORTED, "the behavior of a Split Glued"},
        {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"},"
         "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}",
         BT_ERR_UNSUPPORTED, "the replacement of Metaspace _"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a \":0,\"b\":1,\"a b\":2},"
         "\"merges\":[[\"a \",\"b\"]]}}",
         BT_ERR_UNSUPPORTED, "merges of tokens with spaces"},
    };

    (void)state;
    check("tokenizer.json", cases, sizeof(cases) / sizeof(cases[0]));
}

/* ---- the folder itself ---- */

static bt_status_t open_dir(const char *dir)
{
    bt_gguf_t *gguf = NULL;
    const bt_status_t status = bt_hf_open(dir, why, sizeof(why), &gguf);

    bt_gguf_close(gguf);
    return status;
}

static void says(const char *text)
{
    if (strstr(why, text) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", why, text);
    }
}

static void path_in(char path[PATH_MAX], const char *dir, const char *name)
{
    snprintf(path, PATH_MAX, "%.2000s/%s", dir, name);
}

static void incomplete_folder_error_names_the_missing_file(void **state)
{
    const char *const dir = bt_hf_folder_make();
    uint8_t weights[8192];
    const size_t n = hf_weights(weights, sizeof(weights));

    (void)state;
    assert_int_equal(open_dir(dir), BT_ERR_NOT_FOUND);
    says("no config.json");
    bt_hf_folder_text(dir, "config.json", HF_CONFIG);
    assert_int_equal(open_dir(dir), BT_ERR_BAD_FILE);
    says("no tokenizer");
    bt_hf_folder_text(dir, "tokenizer.json", HF_TOKENIZER);
    assert_int_equal(open_dir(dir), BT_ERR_BAD_FILE);
    says("no weights");
    bt_hf_folder_text(dir, "pytorch_model.bin", "x");
    assert_int_equal(open_dir(dir), BT_ERR_UNSUPPORTED);
    says("pickled");
    bt_hf_folder_write(dir, "model-00001-of-00002.safetensors", weights, n);
    assert_int_equal(open_dir(dir), BT_ERR_BAD_FILE);
    says("not the list of them");
    bt_hf_folder_text(dir, "model.safetensors.index.json",
                      "{\"weight_map\":{\"model.norm.weight\":\"../x\"}}");
    assert_int_equal(open_dir(dir), BT_ERR_BAD_FILE);
    says("\"../x\" is not the name of a file");
    bt_hf_folder_text(
        dir, "model.safetensors.index.json",
        "{\"weight_map\":{\"a\":\"model-00002-of-00002.safetensors\"}}");
    assert_int_equal(open_dir(dir), BT_ERR_BAD_FILE);
    says("the shard model-00002-of-00002.safetensors is missing");
    bt_hf_folder_text(
        dir, "model.safetensors.index.json",
        "{\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\"}}");
    assert_int_equal(open_dir(dir), BT_ERR_BAD_FILE);
    says("tensor a of model.safetensors.index.json is in none");
    bt_hf_folder_text(dir, "model.safetensors.index.json",
                      "{\"weight_map\":{\"model.norm.weight\":\"model-00001-"
                      "of-00002.safetensors\"}}");
    assert_int_equal(open_dir(dir), BT_OK);
    bt_hf_folder_remove(dir);
}

static void tensor_in_two_shards_is_refused(void **state)
{
    const char *const dir = bt_hf_folder_make();
    uint8_t weights[8192];
    const size_t n = hf_weights(weights, sizeof(weights));

    (void)state;
    bt_hf_folder_text(dir, "config.json", HF_CONFIG);
    bt_hf_folder_text(dir, "tokenizer.json", HF_TOKENIZER);
    bt_hf_folder_write(dir, "a.safetensors", weights, n);
    bt_hf_folder_write(dir, "b.safetensors", weights, n);
    bt_hf_folder_text(dir, "model.safetensors.index.json",
                      "{\"weight_map\":{\"model.norm.weight\":"
                      "\"a.safetensors\",\"x\":\"b.safetensors\"}}");
    assert_int_equal(open_dir(dir), BT_ERR_BAD_FILE);
    says("is in two shards");
    bt_hf_folder_remove(dir);
}

static void symlinks_out_of_the_folder_are_not_followed(void **state)
{
    const char *const dir = bt_hf_folder_make();
    uint8_t weights[8192];
    const size_t n = hf_weights(weights, sizeof(weights));
    char path[PATH_MAX];

    (void)state;
    bt_hf_folder_text(dir, "config.json", HF_CONFIG);
    bt_hf_folder_write(dir, "model.safetensors", weights, n);
    bt_hf_folder_text(dir, "inside", HF_TOKENIZER);
    path_in(path, dir, "tokenizer.json");
    assert_int_equal(symlink("inside", path), 0);
    assert_int_equal(open_dir(dir), BT_OK);
    path_in(path, dir, "chat_template.jinja");
    assert_int_equal(symlink("/etc/hostname", path), 0);
    assert_int_equal(open_dir(dir), BT_ERR_UNSUPPORTED);
    says("chat_template.jinja is a link to outside of the folder");
    bt_hf_folder_remove(dir);
}

/* ---- the whole under failing memory ---- */

static void every_failing_allocation_is_reported(void **state)
{
    static uint8_t weights[8192];
    const size_t n = hf_weights(weights, sizeof(weights));
    const bt_folder_entry_t entries[] = {
        {"config.json", HF_CONFIG, strlen(HF_CONFIG)},
        {"tokenizer.json", HF_TOKENIZER, strlen(HF_TOKENIZER)},
        {"model.safetensors", weights, n},
    };
    bt_status_t status = BT_ERR_NO_MEMORY;
    int nth = 0;

    (void)state;
    while (status == BT_ERR_NO_MEMORY) {
        bt_gguf_t *gguf = NULL;

        bt_alloc_fail_at(++nth);
        status = bt_hf_open_memory(entries, 3, why, sizeof(why), &gguf);
        bt_alloc_fail_at(0);
        bt_gguf_close(gguf);
    }
    assert_int_equal(status, BT_OK);
    assert_true(nth > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(bad_safetensors_file_is_refused_with_the_reason),
        BT_TEST(safetensors_header_over_the_file_size_is_refused),
        BT_TEST(bad_config_json_is_refused_with_the_reason),
        BT_TEST(json_nested_too_deeply_is_refused),
        BT_TEST(bad_tokenizer_json_is_refused_with_the_reason),
        BT_TEST(incomplete_folder_error_names_the_missing_file),
        BT_TEST(tensor_in_two_shards_is_refused),
        BT_TEST(symlinks_out_of_the_folder_are_not_followed),
        BT_TEST(every_failing_allocation_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
