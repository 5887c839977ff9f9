/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files: what is copied, what changes, what is continued. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "kernels/kernels.h"
#include "tests/support/tiny_model.h"
#include "tools/convert/convert.h"

#define PATH 256

static char dir[PATH];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/test_convert.XXXXXX");
    return (mkdtemp(dir) == NULL) ? 1 : 0;
}

static int remove_dir(void **state)
{
    static const char *const names[] = {"in.gguf", "out.gguf", "out.gguf.part",
                                        "again.gguf"};
    char path[PATH * 2];

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        (void)unlink(path);
    }
    return rmdir(dir);
}

static const char *in_dir(const char *name)
{
    static char paths[4][PATH * 2];
    static unsigned next;
    char *const path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
    return path;
}

static bt_gguf_t *open_file(const char *name)
{
    char why[256] = "";
    bt_gguf_t *gguf = NULL;

    if (bt_gguf_open(in_dir(name), why, sizeof(why), &gguf) != BT_OK) {
        fail_msg("%s: %s", name, why);
    }
    return gguf;
}

/* 256 wide, so that K types fit, but for ffn_down, which has rows of 96. */
static bt_gguf_t *make_in(void)
{
    bt_tiny_model_t model = bt_tiny_model_default();

    model.dim = 256;
    model.ffn_dim = 96;
    model.n_layers = 8;
    model.tied = true;
    assert_int_equal(bt_tiny_model_write(&model, in_dir("in.gguf")), BT_OK);
    return open_file("in.gguf");
}

/* 20 tensors. */
static bt_gguf_t *make_small(void)
{
    bt_tiny_model_t model = bt_tiny_model_default();

    model.tied = true;
    assert_int_equal(bt_tiny_model_write(&model, in_dir("in.gguf")), BT_OK);
    return open_file("in.gguf");
}

typedef struct stop {
    uint64_t after; /* steps */
    uint64_t n_kept;
    uint64_t n_done;
} stop_t;

static bool count(void *ctx, const bt_convert_progress_t *progress)
{
    stop_t *const stop = ctx;

    stop->n_kept += (progress->is_done && progress->is_kept) ? 1 : 0;
    stop->n_done += progress->is_done ? 1 : 0;
    return stop->n_done < stop->after;
}

static const bt_imatrix_t *imatrix; /* of the next conversions */

static bt_status_t convert(const bt_gguf_t *gguf, const char *type,
                           const char *out, uint32_t n_threads, stop_t *stop,
                           char *why, size_t why_bytes)
{
    const bt_convert_options_t options = {.mix = bt_quantize_mix_find(type),
                                          .n_threads = n_threads,
                                          .imatrix = imatrix,
                                          .on_progress = count,
                                          .ctx = stop};

    assert_non_null(options.mix);
    return bt_convert(gguf, in_dir(out), &options, why, why_bytes);
}

static void convert_all(const bt_gguf_t *gguf, const char *type,
                        const char *out, uint32_t n_threads)
{
    stop_t stop = {.after = UINT64_MAX};
    char why[256] = "";

    if (convert(gguf, type, out, n_threads, &stop, why, sizeof(why)) != BT_OK) {
        fail_msg("%s: %s", type, why);
    }
}

static uint32_t type_of(const bt_gguf_t *gguf, const char *name)
{
    const bt_gguf_tensor_t *const tensor = bt_gguf_tensor(gguf, name);

    assert_non_null(tensor);
    return tensor->type;
}

/* The mixes of docs/CONVERT.md over 8 layers: an eighth is layer 0; 2, 5 or
 * more bits in 0, 3, 6 (every third from the second after it) and 7. */
static void type_mix_gives_each_tensor_its_type(void **state)
{
    bt_gguf_t *const in = make_in();
    bt_gguf_t *out;
    uint32_t file_type = 0;

    (void)state;
    convert_all(in, "Q4_K_M", "out.gguf", 2);
    out = open_file("out.gguf");
    assert_int_equal(bt_gguf_get_u32(out, "general.file_type", &file_type),
                     BT_OK);
    assert_int_equal(file_type, 15);
    assert_int_equal(type_of(out, "token_embd.weight"), BT_QTYPE_Q6_K);
    assert_int_equal(type_of(out, "output_norm.weight"), BT_QTYPE_F32);
    assert_int_equal(type_of(out, "blk.1.attn_q.weight"), BT_QTYPE_Q4_K);
    assert_int_equal(type_of(out, "blk.0.attn_v.weight"), BT_QTYPE_Q6_K);
    assert_int_equal(type_of(out, "blk.1.attn_v.weight"), BT_QTYPE_Q4_K);
    assert_int_equal(type_of(out, "blk.2.attn_v.weight"), BT_QTYPE_Q4_K);
    assert_int_equal(type_of(out, "blk.3.attn_v.weight"), BT_QTYPE_Q6_K);
    assert_int_equal(type_of(out, "blk.7.attn_v.weight"), BT_QTYPE_Q6_K);
    /* rows of 96: three blocks of 32 */
    assert_int_equal(type_of(out, "blk.1.ffn_down.weight"), BT_QTYPE_Q5_0);
    assert_int_equal(type_of(out, "blk.0.ffn_down.weight"), BT_QTYPE_Q8_0);
    bt_gguf_close(out);
    bt_gguf_close(in);
}

/* Experts have the types of the one feed-forward; their router stays as it
 * is. */
static void experts_have_the_types_of_a_feed_forward(void **state)
{
    bt_tiny_model_t model = bt_tiny_model_default();
    bt_gguf_t *in;
    bt_gguf_t *out;

    (void)state;
    model.dim = 256;
    model.ffn_dim = 256;
    model.n_layers = 8;
    model.n_experts = 4;
    model.n_experts_used = 2;
    assert_int_equal(bt_tiny_model_write(&model, in_dir("in.gguf")), BT_OK);
    in = open_file("in.gguf");
    convert_all(in, "Q4_K_M", "out.gguf", 2);
    out = open_file("out.gguf");
    assert_int_equal(type_of(out, "blk.1.ffn_gate_inp.weight"), BT_QTYPE_F32);
    assert_int_equal(type_of(out, "blk.1.ffn_gate_exps.weight"), BT_QTYPE_Q4_K);
    assert_int_equal(type_of(out, "blk.1.ffn_up_exps.weight"), BT_QTYPE_Q4_K);
    assert_int_equal(type_of(out, "blk.1.ffn_down_exps.weight"), BT_QTYPE_Q4_K);
    assert_int_equal(type_of(out, "blk.0.ffn_down_exps.weight"), BT_QTYPE_Q6_K);
    bt_gguf_close(out);
    bt_gguf_close(in);
}

static void assert_same_pair(const bt_gguf_t *from, const bt_gguf_t *to,
                             uint64_t i)
{
    const bt_gguf_pair_t a = bt_gguf_pair_at(from, i);

    for (uint64_t j = 0; j < bt_gguf_n_pairs(to); j++) {
        const bt_gguf_pair_t b = bt_gguf_pair_at(to, j);

        if ((a.key.len == b.key.len) &&
            (memcmp(a.key.data, b.key.data, a.key.len) == 0)) {
            assert_int_equal(a.type, b.type);
            assert_int_equal(a.is_array, b.is_array);
            assert_int_equal(a.n, b.n);
            assert_int_equal(a.bytes, b.bytes);
            assert_memory_equal(a.value, b.value, a.bytes);
            return;
        }
    }
    fail_msg("no key %.*s", (int)a.key.len, a.key.data);
}

static bool is_key(bt_gguf_str_t key, const char *text)
{
    return (key.len == strlen(text)) && (memcmp(key.data, text, key.len) == 0);
}

static void conversion_keeps_metadata_and_shapes(void **state)
{
    bt_gguf_t *const in = make_small();
    bt_gguf_t *out;

    (void)state;
    convert_all(in, "f32", "out.gguf", 1);
    out = open_file("out.gguf");
    for (uint64_t i = 0; i < bt_gguf_n_pairs(in); i++) {
        const bt_gguf_str_t key = bt_gguf_pair_at(in, i).key;

        /* written anew */
        if (!is_key(key, "general.file_type") &&
            !is_key(key, "general.alignment")) {
            assert_same_pair(in, out, i);
        }
    }
    assert_int_equal(bt_gguf_n_tensors(out), bt_gguf_n_tensors(in));
    for (uint64_t i = 0; i < bt_gguf_n_tensors(in); i++) {
        const bt_gguf_tensor_t *const a = bt_gguf_tensor_at(in, i);
        const bt_gguf_tensor_t *const b = bt_gguf_tensor_at(out, i);

        assert_memory_equal(a->dims, b->dims, sizeof(a->dims));
        assert_int_equal(a->bytes, b->bytes); /* the tiny model is F32 */
        assert_memory_equal(a->data, b->data, a->bytes);
    }
    bt_gguf_close(out);
    bt_gguf_close(in);
}

/* Also of a type that can only be read. */
static void tensors_keep_their_types_on_request(void **state)
{
    bt_tiny_model_t model = bt_tiny_model_default();
    bt_gguf_t *in;
    bt_gguf_t *out;
    uint32_t file_type = 0;

    (void)state;
    model.dim = 256;
    model.ffn_dim = 256;
    model.type = 10; /* Q2_K */
    assert_int_equal(bt_tiny_model_write(&model, in_dir("in.gguf")), BT_OK);
    in = open_file("in.gguf");
    convert_all(in, "same", "out.gguf", 2);
    out = open_file("out.gguf");
    assert_int_equal(type_of(out, "blk.1.attn_q.weight"), 10);
    for (uint64_t i = 0; i < bt_gguf_n_tensors(in); i++) {
        const bt_gguf_tensor_t *const a = bt_gguf_tensor_at(in, i);
        const bt_gguf_tensor_t *const b = bt_gguf_tensor_at(out, i);

        assert_int_equal(a->type, b->type);
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(a->data, b->data, a->bytes);
    }
    /* The tiny model has none, and none is made up. */
    assert_int_equal(bt_gguf_get_u32(in, "general.file_type", &file_type),
                     BT_ERR_NOT_FOUND);
    assert_int_equal(bt_gguf_get_u32(out, "general.file_type", &file_type),
                     BT_ERR_NOT_FOUND);
    bt_gguf_close(out);
    bt_gguf_close(in);
}

static void assert_same_file(const char *a, const char *b)
{
    bt_gguf_t *const one = open_file(a);
    bt_gguf_t *const other = open_file(b);
    const bt_hash128_t x = bt_gguf_content(one);
    const bt_hash128_t y = bt_gguf_content(other);

    assert_memory_equal(&x, &y, sizeof(x));
    bt_gguf_close(one);
    bt_gguf_close(other);
}

static void interrupted_conversion_resumes_to_the_same_file(void **state)
{
    bt_gguf_t *const in = make_small();
    stop_t stop = {.after = 10};
    char why[256] = "";
    struct stat st;

    (void)state;
    convert_all(in, "q5_0", "again.gguf", 3);
    assert_int_equal(
        convert(in, "q5_0", "out.gguf", 2, &stop, why, sizeof(why)),
        BT_ERR_CANCELED);
    assert_int_equal(stat(in_dir("out.gguf"), &st), -1);
    assert_int_equal(stat(in_dir("out.gguf.part"), &st), 0);
    /* Half of the last tensor is gone: it is made again. */
    assert_int_equal(truncate(in_dir("out.gguf.part"), st.st_size - 100), 0);
    stop = (stop_t){.after = UINT64_MAX};
    assert_int_equal(
        convert(in, "q5_0", "out.gguf", 1, &stop, why, sizeof(why)), BT_OK);
    assert_int_equal(stop.n_kept, 9);
    assert_int_equal(stat(in_dir("out.gguf.part"), &st), -1);
    assert_same_file("out.gguf", "again.gguf");
    bt_gguf_close(in);
}

static void partial_file_of_another_type_is_not_resumed(void **state)
{
    bt_gguf_t *const in = make_small();
    stop_t stop = {.after = 10};
    char why[256] = "";

    (void)state;
    assert_int_equal(
        convert(in, "q8_0", "out.gguf", 2, &stop, why, sizeof(why)),
        BT_ERR_CANCELED);
    stop = (stop_t){.after = UINT64_MAX};
    assert_int_equal(
        convert(in, "q4_0", "out.gguf", 2, &stop, why, sizeof(why)), BT_OK);
    assert_int_equal(stop.n_kept, 0);
    convert_all(in, "q4_0", "again.gguf", 1);
    assert_same_file("out.gguf", "again.gguf");
    bt_gguf_close(in);
}

static double square_error(const bt_gguf_tensor_t *made,
                           const bt_gguf_tensor_t *tensor, uint32_t step)
{
    const uint32_t n = (uint32_t)(tensor->dims[0] * tensor->dims[1]);
    float *const y = calloc(n, sizeof(*y));
    double sum = 0.0;

    assert_non_null(y);
    assert_int_equal(bt_dequantize(made->type, made->data, n, y), BT_OK);
    for (uint32_t i = 0; i < n; i += step) {
        const double off =
            (double)y[i] - (double)((const float *)tensor->data)[i];

        sum += off * off;
    }
    free(y);
    return sum;
}

/* Every fourth column of one matrix counts ten times: its errors there become
 * smaller; other matrices stay as they were, byte for byte. */
static void importance_matrix_weighs_columns(void **state)
{
    static const char *const name = "blk.1.attn_q.weight";
    static const char *const other = "blk.1.attn_k.weight";
    bt_gguf_t *const in = make_small();
    const bt_gguf_tensor_t *const tensor = bt_gguf_tensor(in, name);
    stop_t stop = {.after = 10};
    bt_imatrix_t m = {0};
    bt_gguf_t *with;
    bt_gguf_t *without;
    char why[256] = "";
    uint32_t i = 0;
    uint32_t n_entries = 0;

    (void)state;
    convert_all(in, "q4_0", "again.gguf", 1);
    assert_int_equal(bt_imatrix_add(&m, name, strlen(name),
                                    (uint32_t)tensor->dims[0], 1, &i),
                     BT_OK);
    for (uint32_t k = 0; k < tensor->dims[0]; k++) {
        m.entries[i].sums[k] = (k % 4 == 0) ? 100.0f : 10.0f;
    }
    m.entries[i].counts[0] = 7.0f;
    /* What a conversion without it left is not continued. */
    assert_int_equal(
        convert(in, "q4_0", "out.gguf", 1, &stop, why, sizeof(why)),
        BT_ERR_CANCELED);
    imatrix = &m;
    stop = (stop_t){.after = UINT64_MAX};
    assert_int_equal(
        convert(in, "q4_0", "out.gguf", 2, &stop, why, sizeof(why)), BT_OK);
    imatrix = NULL;
    assert_int_equal(stop.n_kept, 0);
    with = open_file("out.gguf");
    without = open_file("again.gguf");
    assert_true(square_error(bt_gguf_tensor(with, name), tensor, 4) <
                0.8 * square_error(bt_gguf_tensor(without, name), tensor, 4));
    assert_memory_equal(bt_gguf_tensor(with, other)->data,
                        bt_gguf_tensor(without, other)->data,
                        bt_gguf_tensor(with, other)->bytes);
    assert_int_equal(
        bt_gguf_get_u32(with, "quantize.imatrix.entries_count", &n_entries),
        BT_OK);
    assert_int_equal(n_entries, 1);
    bt_gguf_close(with);
    bt_gguf_close(without);
    bt_imatrix_fini(&m);
    bt_gguf_close(in);
}

/* 64 KiB before its end the file has a matrix of F32. */
static void model_with_a_nan_is_refused_by_name(void **state)
{
    static const float nan_bits = __builtin_nanf("");
    bt_gguf_t *in = make_small();
    stop_t stop = {.after = UINT64_MAX};
    char why[256] = "";
    FILE *file;
    long at;

    (void)state;
    bt_gguf_close(in);
    file = fopen(in_dir("in.gguf"), "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    at = ftell(file) - 65536;
    assert_int_equal(fseek(file, at - at % 4, SEEK_SET), 0);
    assert_int_equal(fwrite(&nan_bits, sizeof(nan_bits), 1, file), 1);
    assert_int_equal(fclose(file), 0);
    in = open_file("in.gguf");
    assert_int_equal(
        convert(in, "q8_0", "out.gguf", 2, &stop, why, sizeof(why)),
        BT_ERR_INVALID_PARAM);
    assert_non_null(strstr(why, ".weight has an infinity or a NaN"));
    bt_gguf_close(in);
}

/* A name that is there is not one of several files: a link is another name. */
static void conversion_never_overwrites_the_source(void **state)
{
    bt_gguf_t *const in = make_small();
    const bt_hash128_t before = bt_gguf_content(in);
    stop_t stop = {.after = UINT64_MAX};
    char why[256] = "";
    char from[256];
    bt_hash128_t after;

    (void)state;
    snprintf(from, sizeof(from), "%s", in_dir("in.gguf"));
    assert_int_equal(convert(in, "q8_0", "in.gguf", 1, &stop, why, sizeof(why)),
                     BT_ERR_INVALID_PARAM);
    assert_non_null(strstr(why, "in.gguf is a file of the model itself"));
    assert_int_equal(link(from, in_dir("out.gguf.part")), 0);
    assert_int_equal(
        convert(in, "q8_0", "out.gguf", 1, &stop, why, sizeof(why)),
        BT_ERR_INVALID_PARAM);
    assert_non_null(strstr(why, "out.gguf.part is a file of the model itself"));
    assert_int_equal(unlink(in_dir("out.gguf.part")), 0);
    /* Nor what a link in its place leads to. */
    assert_int_equal(symlink(from, in_dir("b.gguf.part")), 0);
    assert_int_equal(convert(in, "q8_0", "b.gguf", 1, &stop, why, sizeof(why)),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(unlink(in_dir("b.gguf.part")), 0);
    assert_int_equal(symlink("victim", in_dir("b.gguf.part")), 0);
    assert_int_equal(convert(in, "q8_0", "b.gguf", 1, &stop, why, sizeof(why)),
                     BT_ERR_IO);
    assert_int_equal(access(in_dir("victim"), F_OK), -1);
    assert_int_equal(unlink(in_dir("b.gguf.part")), 0);
    assert_int_equal(stop.n_done, 0);
    after = bt_gguf_content(in);
    assert_memory_equal(&after, &before, sizeof(before));
    bt_gguf_close(in);
}

/* Every tensor gets a name that would clear the screen. */
static void tensor_names_are_printed_without_control_characters(void **state)
{
    bt_gguf_t *in = make_small();
    const size_t bytes = bt_gguf_bytes(in);
    char *const text = bt_calloc(1, bytes);
    stop_t stop = {.after = UINT64_MAX};
    char why[256] = "";
    FILE *file;

    (void)state;
    bt_gguf_close(in);
    file = fopen(in_dir("in.gguf"), "r+");
    assert_non_null(file);
    assert_int_equal(fread(text, 1, bytes, file), bytes);
    for (size_t i = 0; i + 4 <= bytes; i++) {
        if (memcmp(&text[i], "blk.", 4) == 0) {
            memcpy(&text[i], "\x1b[2J", 4);
        }
    }
    memset(&text[bytes - 65536], 0xff, 4096); /* NaN */
    rewind(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    bt_free(text);
    in = open_file("in.gguf");
    assert_int_equal(
        convert(in, "q8_0", "out.gguf", 2, &stop, why, sizeof(why)),
        BT_ERR_INVALID_PARAM);
    assert_non_null(strstr(why, "tensor ?[2J"));
    assert_non_null(strstr(why, ".weight has an infinity or a NaN"));
    bt_gguf_close(in);
}

#define IN_DIR(fn) cmocka_unit_test_setup_teardown(fn, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIR(type_mix_gives_each_tensor_its_type),
        IN_DIR(experts_have_the_types_of_a_feed_forward),
        IN_DIR(conversion_keeps_metadata_and_shapes),
        IN_DIR(tensors_keep_their_types_on_request),
        IN_DIR(interrupted_conversion_resumes_to_the_same_file),
        IN_DIR(partial_file_of_another_type_is_not_resumed),
        IN_DIR(importance_matrix_weighs_columns),
        IN_DIR(model_with_a_nan_is_refused_by_name),
        IN_DIR(conversion_never_overwrites_the_source),
        IN_DIR(tensor_names_are_printed_without_control_characters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
