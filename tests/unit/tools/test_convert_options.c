/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "tools/convert_options.h"

#define MAX_WORDS 16

static bt_convert_args_t args;
static char why[512];
static char notes[2048];

/* The words of a line, as a shell would have them. */
static bt_status_t parse(const char *line)
{
    static char words[512];
    const char *argv[MAX_WORDS] = {"convert"};
    char *rest = words;
    int n = 1;
    FILE *file = fmemopen(notes, sizeof(notes), "w");
    bt_status_t status;

    assert_non_null(file);
    memset(notes, 0, sizeof(notes));
    memset(&args, 0, sizeof(args));
    snprintf(words, sizeof(words), "%s", line);
    while ((rest != NULL) && (n < MAX_WORDS)) {
        argv[n++] = strsep(&rest, " ");
    }
    status = bt_convert_args_parse(n, argv, file, why, sizeof(why), &args);
    fclose(file);
    return status;
}

static void assert_refused(const char *line, const char *reason)
{
    assert_int_equal(parse(line), BT_ERR_INVALID_PARAM);
    if (strstr(why, reason) == NULL) {
        fail_msg("%s: %s", line, why);
    }
}

static void line_names_model_file_and_type(void **state)
{
    (void)state;
    assert_int_equal(parse("a.gguf b.gguf --type=Q4_K --threads 3"), BT_OK);
    assert_string_equal(args.in, "a.gguf");
    assert_string_equal(args.out, "b.gguf");
    assert_ptr_equal(args.mix, bt_quantize_mix_find("q4_k"));
    assert_int_equal(args.n_threads, 3);
    assert_false(args.overwrite);
}

static void importance_matrix_is_read_or_made(void **state)
{
    (void)state;
    assert_int_equal(parse("a b.gguf --type q4_k --imatrix f.dat"), BT_OK);
    assert_string_equal(args.imatrix, "f.dat");
    assert_null(args.imatrix_text);
    assert_int_equal(parse("a b.gguf --type q4_k --imatrix-text t"), BT_OK);
    assert_string_equal(args.imatrix, "b.gguf.imatrix.gguf");
    assert_string_equal(args.imatrix_text, "t");
    assert_int_equal(
        parse(
            "a b --type q4_k --imatrix-text=t --imatrix f --imatrix-window 64"),
        BT_OK);
    assert_string_equal(args.imatrix, "f");
    assert_int_equal(args.imatrix_window, 64);
    assert_int_equal(parse("a b --type f16 --imatrix f"), BT_OK);
    assert_string_equal(args.imatrix, "");
    assert_non_null(strstr(notes, "an importance matrix has no effect"));
}

/* The lines of TensorRT-LLM backend's readme for gpt2. */
static void lines_of_convert_checkpoint_and_trtllm_build_work(void **state)
{
    (void)state;
    assert_int_equal(parse("--model_dir gpt2 --dtype float16 --tp_size 4 "
                           "--output_dir ./c-model/gpt2/fp16/4-gpu"),
                     BT_OK);
    assert_string_equal(args.in, "gpt2");
    assert_string_equal(args.out, "./c-model/gpt2/fp16/4-gpu/model.gguf");
    assert_int_equal(bt_quantize_mix_file_type(args.mix), 1);
    assert_non_null(strstr(notes, "--tp_size 4 has no effect: one file"));
    assert_int_equal(parse("--checkpoint_dir c --gpt_attention_plugin float16 "
                           "--remove_input_padding enable --paged_kv_cache "
                           "enable --gemm_plugin float16 --output_dir e "
                           "--type q8_0"),
                     BT_OK);
    assert_non_null(strstr(notes, "--gemm_plugin float16 has no effect"));
    /* As there, the type is the checkpoint's where none is named. */
    assert_int_equal(parse("--checkpoint_dir c --kv_cache_type paged "
                           "--gather_all_token_logits --output_dir e"),
                     BT_OK);
    assert_ptr_equal(args.mix, bt_quantize_mix_find("same"));
    assert_non_null(
        strstr(notes, "--gather_all_token_logits has no effect: logits"));
    assert_refused("--checkpoint_dir c --paged_kv_cache disable",
                   "the KV cache is always paged");
}

static void what_cannot_be_understood_is_named(void **state)
{
    (void)state;
    assert_refused("a.gguf b.gguf", "--type is not given");
    assert_refused("a.gguf --type q8_0", "the new file is not named");
    assert_refused("--type q8_0", "the model is not named");
    assert_refused("a b --type q3", "--type q3 is none of f32 f16");
    assert_refused("a b --dtype int8", "float16 bfloat16 float32");
    assert_refused("a b c --type q8_0", "c: the new file is named already");
    assert_refused("a b --tipe q8_0", "did you mean --type?");
    assert_refused("a b --type", "--type needs a value");
    assert_refused("a b --threads 0 --type q8_0", "--threads 0 is not");
    assert_refused("a b --imatrix-window 64 --type q8_0", "which is not given");
    assert_refused("a b --imatrix-text t --imatrix-window 1 --type q8_0",
                   "--imatrix-window 1 is not from 2 to 131072");
    assert_refused("a b --type q8_0 --dtype float16", "given twice");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(line_names_model_file_and_type),
        BT_TEST(importance_matrix_is_read_or_made),
        BT_TEST(lines_of_convert_checkpoint_and_trtllm_build_work),
        BT_TEST(what_cannot_be_understood_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
