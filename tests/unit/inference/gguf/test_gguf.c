/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/text.h"
#include "inference/gguf/gguf.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/inference/gguf/writing.h"

static char why[256];

/* Opens and frees; for files that must be refused. */
static bt_status_t refuse(bt_strbuf_t *buf)
{
    bt_gguf_t *gguf = NULL;
    bt_status_t status;

    assert_int_equal(bt_strbuf_status(buf), BT_OK);
    why[0] = '\0';
    status = bt_gguf_open_memory(buf->data, buf->len, why, sizeof(why), &gguf);
    assert_int_not_equal(status, BT_OK);
    assert_null(gguf);
    assert_true(strlen(why) > 10);
    bt_strbuf_fini(buf);
    return status;
}

static bt_gguf_t *accept_file(const bt_strbuf_t *buf)
{
    bt_gguf_t *gguf = NULL;

    assert_int_equal(
        bt_gguf_open_memory(buf->data, buf->len, why, sizeof(why), &gguf),
        BT_OK);
    assert_string_equal(why, "");
    return gguf;
}

static void assert_str(bt_gguf_str_t str, const char *text)
{
    assert_int_equal(str.len, strlen(text));
    assert_memory_equal(str.data, text, str.len);
}

/* ---- metadata ---- */

static void put_one_of_each(bt_strbuf_t *buf)
{
    put_header(buf, 0, 10);
    put_scalar(buf, "u8", U8, 200, 1);
    put_scalar(buf, "i8", I8, 0xFE, 1); /* -2 */
    put_scalar(buf, "u16", U16, 65535, 2);
    put_scalar(buf, "u64", U64, 1ull << 40, 8);
    put_scalar(buf, "f32", F32, 0x3FC00000, 4);         /* 1.5 */
    put_scalar(buf, "f64", F64, 0x4004000000000000, 8); /* 2.5 */
    put_scalar(buf, "bool", BOOL, 1, 1);
    put_str(buf, "str");
    put(buf, STRING, 4);
    put_str(buf, "hello");
    put_str(buf, "strs");
    put(buf, ARRAY, 4);
    put(buf, STRING, 4);
    put(buf, 3, 8);
    put_str(buf, "a");
    put_str(buf, "");
    put_str(buf, "bcd");
    put_str(buf, "ints");
    put(buf, ARRAY, 4);
    put(buf, I32, 4);
    put(buf, 2, 8);
    put(buf, 0xFFFFFFFF, 4); /* -1 */
    put(buf, 7, 4);
}

static void gguf_scalars_of_each_type_are_read(void **state)
{
    bt_strbuf_t buf;
    bt_gguf_t *gguf;
    uint32_t u32 = 0;
    uint64_t u64 = 0;
    float f32 = 0.0f;
    bool truth = false;
    bt_gguf_str_t str;

    (void)state;
    put_one_of_each(&buf);
    gguf = accept_file(&buf);
    assert_int_equal(bt_gguf_get_u32(gguf, "u8", &u32), BT_OK);
    assert_int_equal(u32, 200);
    assert_int_equal(bt_gguf_get_u32(gguf, "u16", &u32), BT_OK);
    assert_int_equal(u32, 65535);
    assert_int_equal(bt_gguf_get_u64(gguf, "u64", &u64), BT_OK);
    assert_true(u64 == 1ull << 40);
    assert_int_equal(bt_gguf_get_f32(gguf, "f32", &f32), BT_OK);
    assert_true(f32 == 1.5f);
    assert_int_equal(bt_gguf_get_f32(gguf, "f64", &f32), BT_OK);
    assert_true(f32 == 2.5f);
    assert_int_equal(bt_gguf_get_bool(gguf, "bool", &truth), BT_OK);
    assert_true(truth);
    assert_int_equal(bt_gguf_get_str(gguf, "str", &str), BT_OK);
    assert_str(str, "hello");
    assert_true(bt_gguf_has(gguf, "ints"));
    assert_false(bt_gguf_has(gguf, "int"));
    bt_gguf_close(gguf);
    bt_strbuf_fini(&buf);
}

static void gguf_key_of_another_type_is_an_error(void **state)
{
    bt_strbuf_t buf;
    bt_gguf_t *gguf;
    uint32_t u32 = 77;
    uint64_t u64 = 77;
    float f32 = 77.0f;
    bool truth = true;
    bt_gguf_str_t str = {.data = NULL, .len = 77};

    (void)state;
    put_one_of_each(&buf);
    gguf = accept_file(&buf);
    assert_int_equal(bt_gguf_get_u32(gguf, "u64", &u32), BT_ERR_BAD_FILE);
    assert_int_equal(bt_gguf_get_u64(gguf, "i8", &u64), BT_ERR_BAD_FILE);
    assert_int_equal(bt_gguf_get_u64(gguf, "str", &u64), BT_ERR_BAD_FILE);
    assert_int_equal(bt_gguf_get_u64(gguf, "ints", &u64), BT_ERR_BAD_FILE);
    assert_int_equal(bt_gguf_get_f32(gguf, "u8", &f32), BT_ERR_BAD_FILE);
    assert_int_equal(bt_gguf_get_bool(gguf, "u8", &truth), BT_ERR_BAD_FILE);
    assert_int_equal(bt_gguf_get_str(gguf, "strs", &str), BT_ERR_BAD_FILE);
    assert_int_equal(bt_gguf_get_u32(gguf, "none", &u32), BT_ERR_NOT_FOUND);
    assert_int_equal(u32, 77);
    assert_int_equal(u64, 77);
    assert_true(f32 == 77.0f);
    assert_int_equal(str.len, 77);
    bt_gguf_close(gguf);
    bt_strbuf_fini(&buf);
}

static void gguf_arrays_are_read_within_their_length(void **state)
{
    bt_strbuf_t buf;
    bt_gguf_t *gguf;
    uint64_t n = 0;
    int64_t i64 = 0;
    double f64 = 0.0;
    bt_gguf_str_t str;

    (void)state;
    put_one_of_each(&buf);
    gguf = accept_file(&buf);
    assert_int_equal(bt_gguf_array_len(gguf, "strs", &n), BT_OK);
    assert_int_equal(n, 3);
    assert_int_equal(bt_gguf_array_str(gguf, "strs", 2, &str), BT_OK);
    assert_str(str, "bcd");
    assert_int_equal(bt_gguf_array_str(gguf, "strs", 1, &str), BT_OK);
    assert_str(str, "");
    assert_int_equal(bt_gguf_array_str(gguf, "strs", 3, &str),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_gguf_array_i64(gguf, "ints", 0, &i64), BT_OK);
    assert_int_equal(i64, -1);
    assert_int_equal(bt_gguf_array_i64(gguf, "ints", 1, &i64), BT_OK);
    assert_int_equal(i64, 7);
    assert_int_equal(bt_gguf_array_i64(gguf, "ints", 2, &i64),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_gguf_array_f64(gguf, "ints", 0, &f64), BT_ERR_BAD_FILE);
    assert_int_equal(bt_gguf_array_str(gguf, "ints", 0, &str), BT_ERR_BAD_FILE);
    assert_int_equal(bt_gguf_array_len(gguf, "u8", &n), BT_ERR_BAD_FILE);
    assert_int_equal(bt_gguf_array_len(gguf, "none", &n), BT_ERR_NOT_FOUND);
    bt_gguf_close(gguf);
    bt_strbuf_fini(&buf);
}

/* ---- refusals: each names its reason ---- */

static void non_gguf_file_is_refused(void **state)
{
    bt_strbuf_t buf;

    (void)state;
    bt_strbuf_init(&buf, 100);
    bt_strbuf_puts(&buf, "ggml and some more bytes");
    assert_int_equal(refuse(&buf), BT_ERR_BAD_FILE);
    assert_non_null(strstr(why, "not a GGUF file"));

    bt_strbuf_init(&buf, 100);
    bt_strbuf_puts(&buf, "GG");
    assert_int_equal(refuse(&buf), BT_ERR_BAD_FILE);
}

static void unsupported_gguf_version_is_named(void **state)
{
    bt_strbuf_t buf;

    (void)state;
    put_header(&buf, 0, 0);
    buf.data[4] = 2;
    assert_int_equal(refuse(&buf), BT_ERR_UNSUPPORTED);
    assert_string_equal(why, "this is GGUF version 2; version 3 is supported");

    put_header(&buf, 0, 0);
    memcpy(&buf.data[4], "\0\0\0\3", 4);
    assert_int_equal(refuse(&buf), BT_ERR_UNSUPPORTED);
    assert_non_null(strstr(why, "big-endian"));
}

static void
counts_beyond_the_file_are_refused_before_memory_is_taken(void **state)
{
    bt_strbuf_t buf;

    (void)state;
    put_header(&buf, 0, UINT64_MAX);
    assert_int_equal(refuse(&buf), BT_ERR_BAD_FILE);
    assert_non_null(strstr(why, "18446744073709551615 metadata keys"));
    put_header(&buf, UINT64_MAX, 0);
    assert_int_equal(refuse(&buf), BT_ERR_BAD_FILE);
    assert_non_null(strstr(why, "18446744073709551615 tensors"));

    put_header(&buf, 0, 1);
    put_str(&buf, "long");
    put(&buf, ARRAY, 4);
    put(&buf, STRING, 4);
    put(&buf, 1ull << 61, 8);
    put_str(&buf, "x");
    assert_int_equal(refuse(&buf), BT_ERR_BAD_FILE);
    assert_non_null(strstr(why, "key long claims 2305843009213693952"));

    put_header(&buf, 0, 1);
    put_str(&buf, "long");
    put(&buf, ARRAY, 4);
    put(&buf, U64, 4);
    put(&buf, (1ull << 61) + 1, 8); /* * 8 would wrap to 8 */
    put(&buf, 0, 8);
    assert_int_equal(refuse(&buf), BT_ERR_BAD_FILE);
}

static void invalid_metadata_is_refused_by_key(void **state)
{
    bt_strbuf_t buf;

    (void)state;
    put_header(&buf, 0, 1);
    put_str(&buf, "deep");
    put(&buf, ARRAY, 4);
    put(&buf, ARRAY, 4);
    put(&buf, 1, 8);
    put(&buf, 0, 8);
    assert_int_equal(refuse(&buf), BT_ERR_UNSUPPORTED);
    assert_non_null(strstr(why, "key deep is an array of arrays"));

    put_header(&buf, 0, 1);
    put_scalar(&buf, "odd\n", 13, 0, 8);
    assert_int_equal(refuse(&buf), BT_ERR_BAD_FILE);
    assert_string_equal(why, "key odd? has the unknown type 13");

    put_header(&buf, 0, 1);
    put_scalar(&buf, "flag", BOOL, 2, 1);
    assert_int_equal(refuse(&buf), BT_ERR_BAD_FILE);

    put_header(&buf, 0, 2);
    put_scalar(&buf, "twin", U8, 0, 1);
    put_scalar(&buf, "twin", U8, 0, 1);
    assert_int_equal(refuse(&buf), BT_ERR_BAD_FILE);
    assert_string_equal(why, "key twin occurs twice");

    put_header(&buf, 0, 1);
    put_scalar(&buf, "general.alignment", U32, 48, 4);
    assert_int_equal(refuse(&buf), BT_ERR_BAD_FILE);
    assert_non_null(strstr(why, "power of two"));
}

/* A file with one F32 tensor "w" of 4 x 2, and how it is spoilt. */
static void one_tensor(bt_strbuf_t *buf, uint64_t n_in, uint64_t n_out,
                       uint32_t type, uint64_t offset, size_t data_bytes)
{
    put_header(buf, 1, 0);
    put_tensor(buf, "w", n_in, n_out, type, offset);
    pad(buf);
    for (size_t i = 0; i < data_bytes; i++) {
        put(buf, i, 1);
    }
}

static void tensor_pointers_are_those_of_the_file(void **state)
{
    const bt_gguf_tensor_t *t;
    bt_strbuf_t buf;
    bt_gguf_t *gguf;

    (void)state;
    one_tensor(&buf, 4, 2, 0, 32, 64);
    gguf = accept_file(&buf);
    t = bt_gguf_tensor(gguf, "w");
    assert_non_null(t);
    assert_int_equal(t->bytes, 32);
    assert_int_equal(((const uint8_t *)t->data)[0], 32);
    assert_int_equal(t->dims[0], 4);
    assert_int_equal(t->dims[1], 2);
    assert_int_equal(t->dims[3], 1);
    assert_ptr_equal(bt_gguf_tensor_at(gguf, 0), t);
    assert_null(bt_gguf_tensor_at(gguf, 1));
    assert_null(bt_gguf_tensor(gguf, "v"));
    assert_int_equal(bt_gguf_bytes(gguf), buf.len);
    bt_gguf_close(gguf);
    bt_strbuf_fini(&buf);
}

static void tensors_outside_the_file_are_refused_by_name(void **state)
{
    bt_strbuf_t buf;

    (void)state;
    one_tensor(&buf, 4, 2, 0, 0, 31);
    assert_int_equal(refuse(&buf), BT_ERR_BAD_FILE);
    /* 24 header + 9 name + 4 + 16 + 4 + 8 = 65, padded to 96, + 32 = 128 */
    assert_non_null(
        strstr(why, "tensor w ends at byte 128, but the file has 127"));
    one_tensor(&buf, 4, 2, 0, UINT64_MAX - 31, 32);
    assert_int_equal(refuse(&buf), BT_ERR_BAD_FILE);
    one_tensor(&buf, 4, 2, 0, 4, 64);
    assert_int_equal(refuse(&buf), BT_ERR_BAD_FILE);
    assert_non_null(strstr(why, "alignment 32"));
    /* Sizes whose product wraps. */
    one_tensor(&buf, 1ull << 33, 1ull << 33, 0, 0, 32);
    assert_int_equal(refuse(&buf), BT_ERR_BAD_FILE);
    one_tensor(&buf, 1ull << 31, 1ull << 31, 0, 0, 32);
    assert_int_equal(refuse(&buf), BT_ERR_BAD_FILE);
    one_tensor(&buf, 0, 2, 0, 0, 32);
    assert_int_equal(refuse(&buf), BT_ERR_BAD_FILE);
}

static void unsupported_tensor_type_is_named(void **state)
{
    bt_strbuf_t buf;

    (void)state;
    one_tensor(&buf, 256, 1, 15, 0, 300);
    assert_int_equal(refuse(&buf), BT_ERR_UNSUPPORTED);
    assert_string_equal(
        why, "tensor w has the type 15 (Q8_K), which is not supported");
    one_tensor(&buf, 256, 1, 4000000000u, 0, 300);
    assert_int_equal(refuse(&buf), BT_ERR_UNSUPPORTED);
    assert_non_null(strstr(why, "4000000000 (unknown)"));
    one_tensor(&buf, 33, 1, 8, 0, 300); /* a block of Q8_0 has 32 */
    assert_int_equal(refuse(&buf), BT_ERR_BAD_FILE);
    assert_non_null(strstr(why, "not a multiple of the 32"));
}

static void overlapping_or_duplicate_tensors_are_refused(void **state)
{
    bt_strbuf_t buf;

    (void)state;
    put_header(&buf, 2, 0);
    put_tensor(&buf, "first", 16, 1, 0, 0); /* 64 bytes */
    put_tensor(&buf, "second", 8, 1, 0, 32);
    pad(&buf);
    for (int i = 0; i < 200; i++) {
        put(&buf, 0, 1);
    }
    assert_int_equal(refuse(&buf), BT_ERR_BAD_FILE);
    assert_string_equal(why, "tensors first and second overlap in the file");

    put_header(&buf, 2, 0);
    put_tensor(&buf, "w", 8, 1, 0, 0);
    put_tensor(&buf, "w", 8, 1, 0, 32);
    pad(&buf);
    for (int i = 0; i < 200; i++) {
        put(&buf, 0, 1);
    }
    assert_int_equal(refuse(&buf), BT_ERR_BAD_FILE);
    assert_string_equal(why, "tensor w occurs twice");
}

/* ---- whole files ---- */

static const char *write_tiny(const bt_tiny_model_t *model)
{
    static char path[64];
    int fd;

    snprintf(path, sizeof(path), "/tmp/baton-test-gguf-XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(bt_tiny_model_write(model, path), BT_OK);
    return path;
}

static void tiny_model_of_every_type_opens(void **state)
{
    /* Source of the sizes: blocks of ggml-common.h; rows of 256. */
    static const struct {
        uint32_t type;
        size_t row_bytes;
    } rows[] = {{0, 1024}, {1, 512},  {2, 144},  {3, 160},  {6, 176},
                {7, 192},  {8, 272},  {10, 84},  {11, 110}, {12, 144},
                {13, 176}, {14, 210}, {16, 66},  {17, 74},  {18, 98},
                {19, 50},  {20, 144}, {21, 110}, {22, 82},  {23, 136},
                {29, 56},  {30, 512}, {34, 54},  {35, 66},  {39, 136},
                {40, 144}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bt_tiny_model_t model = bt_tiny_model_default();
        bt_gguf_t *gguf = NULL;
        const char *path;
        uint64_t n_tokens = 0;

        model.dim = 256;
        model.ffn_dim = 512;
        model.type = rows[i].type;
        path = write_tiny(&model);
        assert_int_equal(bt_gguf_open(path, why, sizeof(why), &gguf), BT_OK);
        assert_int_equal(bt_gguf_tensor(gguf, "blk.1.attn_q.weight")->bytes,
                         256 * rows[i].row_bytes);
        assert_int_equal(
            bt_gguf_array_len(gguf, "tokenizer.ggml.tokens", &n_tokens), BT_OK);
        assert_int_equal(n_tokens, 288);
        bt_gguf_close(gguf);
        unlink(path);
    }
}

/* Reads the whole file at @a path; freed with bt_free(). */
static uint8_t *slurp(const char *path, size_t *bytes_p)
{
    FILE *const file = fopen(path, "re");
    struct stat st;
    uint8_t *data;

    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &st), 0);
    data = bt_calloc((size_t)st.st_size, 1);
    assert_int_equal(fread(data, (size_t)st.st_size, 1, file), 1);
    fclose(file);
    *bytes_p = (size_t)st.st_size;
    return data;
}

/* Under ASan an unchecked size shows: each length is an exact allocation. */
static void gguf_file_truncated_anywhere_is_refused(void **state)
{
    bt_tiny_model_t model = bt_tiny_model_default();
    const char *path;
    uint8_t *data;
    size_t bytes = 0;
    size_t step = 1;

    (void)state;
    model.n_layers = 1;
    path = write_tiny(&model);
    data = slurp(path, &bytes);
    unlink(path);
    for (size_t n = 0; n < bytes; n += step) {
        uint8_t *const cut = bt_memdup(data, n);
        bt_gguf_t *gguf = NULL;

        why[0] = '\0';
        assert_int_equal(bt_gguf_open_memory(cut, n, why, sizeof(why), &gguf),
                         BT_ERR_BAD_FILE);
        assert_true(strlen(why) > 10);
        bt_free(cut);
        /* The head byte by byte, the weights in strides. */
        step = (n < 12000) ? 1 : 997;
    }
    bt_free(data);
}

static void identity_differs_with_any_weight_sampled_or_key(void **state)
{
    bt_tiny_model_t model = bt_tiny_model_default();
    bt_hash128_t hashes[4];

    (void)state;
    for (int i = 0; i < 4; i++) {
        bt_gguf_t *gguf = NULL;
        const char *path;

        model.seed = (i == 2) ? 2 : 1;
        model.rope_base = (i == 3) ? 500.0f : 10000.0f;
        path = write_tiny(&model);
        assert_int_equal(bt_gguf_open(path, why, sizeof(why), &gguf), BT_OK);
        hashes[i] = bt_gguf_identity(gguf);
        bt_gguf_close(gguf);
        unlink(path);
    }
    assert_memory_equal(&hashes[0], &hashes[1], sizeof(hashes[0]));
    assert_memory_not_equal(&hashes[0], &hashes[2], sizeof(hashes[0]));
    assert_memory_not_equal(&hashes[0], &hashes[3], sizeof(hashes[0]));
}

static void non_model_paths_have_distinct_errors(void **state)
{
    char path[] = "/tmp/baton-test-empty-XXXXXX";
    bt_gguf_t *gguf = NULL;
    int fd;

    (void)state;
    assert_int_equal(
        bt_gguf_open("/nowhere/model.gguf", why, sizeof(why), &gguf),
        BT_ERR_NOT_FOUND);
    assert_string_equal(why, "/nowhere/model.gguf: No such file or directory");
    assert_int_equal(bt_gguf_open("/tmp", why, sizeof(why), &gguf), BT_ERR_IO);
    assert_string_equal(why, "/tmp is not a regular file");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(bt_gguf_open(path, why, sizeof(why), &gguf),
                     BT_ERR_BAD_FILE);
    assert_non_null(strstr(why, "is empty"));
    unlink(path);
    assert_null(gguf);
}

static void gguf_open_survives_every_failed_allocation(void **state)
{
    bt_strbuf_t buf;
    bt_gguf_t *gguf = NULL;
    bt_status_t status;
    int nth = 0;

    (void)state;
    put_one_of_each(&buf);
    buf.data[8] = 1; /* one tensor */
    put_tensor(&buf, "w", 4, 2, 0, 0);
    pad(&buf);
    put_str(&buf, "24 bytes of the tensor's");
    assert_int_equal(bt_strbuf_status(&buf), BT_OK);
    do {
        bt_alloc_fail_at(++nth);
        status =
            bt_gguf_open_memory(buf.data, buf.len, why, sizeof(why), &gguf);
        if (status != BT_OK) {
            assert_int_equal(status, BT_ERR_NO_MEMORY);
            assert_non_null(strstr(why, "out of memory"));
            assert_null(gguf);
        }
    } while (status != BT_OK);
    bt_alloc_fail_at(0);
    /* The list of parts, the object, keys, strings, offsets, tensors, names;
     * then success. */
    assert_int_equal(nth, 8);
    bt_gguf_close(gguf);
    bt_gguf_close(NULL);
    bt_strbuf_fini(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(gguf_scalars_of_each_type_are_read),
        BT_TEST(gguf_key_of_another_type_is_an_error),
        BT_TEST(gguf_arrays_are_read_within_their_length),
        BT_TEST(non_gguf_file_is_refused),
        BT_TEST(unsupported_gguf_version_is_named),
        BT_TEST(counts_beyond_the_file_are_refused_before_memory_is_taken),
        BT_TEST(invalid_metadata_is_refused_by_key),
        BT_TEST(tensor_pointers_are_those_of_the_file),
        BT_TEST(tensors_outside_the_file_are_refused_by_name),
        BT_TEST(unsupported_tensor_type_is_named),
        BT_TEST(overlapping_or_duplicate_tensors_are_refused),
        BT_TEST(tiny_model_of_every_type_opens),
        BT_TEST(gguf_file_truncated_anywhere_is_refused),
        BT_TEST(identity_differs_with_any_weight_sampled_or_key),
        BT_TEST(non_model_paths_have_distinct_errors),
        BT_TEST(gguf_open_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
