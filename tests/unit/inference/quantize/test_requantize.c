/* SPDX-License-Identifier: Apache-2.0 */
/* Models whose tensors are quantized as they are read. What they have to be is
 * what the quantizer makes of each row (test_quantize.c). */
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "inference/model/model.h"
#include "inference/quantize/quantize.h"
#include "kernels/kernels.h"
#include "tests/support/testsupport.h"
#include "tests/support/tiny_model.h"

#define MOST_ROW 1024u

static char why[512];

static bt_gguf_t *open_tiny(const bt_tiny_model_t *tiny)
{
    char path[] = "/tmp/baton-test-requantize-XXXXXX";
    const int fd = mkstemp(path);
    bt_gguf_t *gguf = NULL;

    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(bt_tiny_model_write(tiny, path), BT_OK);
    assert_int_equal(bt_gguf_open(path, why, sizeof(why), &gguf), BT_OK);
    assert_int_equal(unlink(path), 0);
    return gguf;
}

static bt_gguf_t *smaller(const bt_gguf_t *gguf, const char *type)
{
    bt_gguf_t *out = NULL;

    assert_int_equal(bt_requantize_open(gguf, bt_quantize_mix_find(type), 3,
                                        NULL, why, sizeof(why), &out),
                     BT_OK);
    return out;
}

static void assert_rows(const bt_gguf_tensor_t *from,
                        const bt_gguf_tensor_t *tensor)
{
    const size_t dim = (size_t)tensor->dims[0];
    const size_t n_rows = (size_t)tensor->dims[1];
    const size_t from_bytes = from->bytes / n_rows;
    const size_t row_bytes = tensor->bytes / n_rows;
    uint8_t *got = malloc(tensor->bytes);
    uint8_t want[MOST_ROW * sizeof(float)];
    float x[MOST_ROW];

    assert_non_null(got);
    assert_true((dim <= MOST_ROW) && (tensor->n_dims <= 2));
    assert_int_equal(bt_gguf_tensor_copy(tensor, got), BT_OK);
    for (size_t i = 0; i < n_rows; i++) {
        assert_int_equal(
            bt_dequantize(from->type,
                          (const uint8_t *)from->data + i * from_bytes, dim, x),
            BT_OK);
        assert_int_equal(bt_quantize(tensor->type, x, NULL, dim, want), BT_OK);
        assert_memory_equal(got + i * row_bytes, want, row_bytes);
    }
    free(got);
}

static void tensors_are_those_of_the_quantizer(void **state)
{
    const bt_tiny_model_t tiny = bt_tiny_model_default();
    bt_gguf_t *const gguf = open_tiny(&tiny);
    bt_gguf_t *const out = smaller(gguf, "q4_1");
    uint64_t n_quantized = 0;

    (void)state;
    assert_int_equal(bt_gguf_n_tensors(out), bt_gguf_n_tensors(gguf));
    assert_int_equal(bt_gguf_n_pairs(out), bt_gguf_n_pairs(gguf) + 1);
    for (uint64_t i = 0; i < bt_gguf_n_tensors(gguf); i++) {
        const bt_gguf_tensor_t *const from = bt_gguf_tensor_at(gguf, i);
        const bt_gguf_tensor_t *const tensor = bt_gguf_tensor_at(out, i);

        assert_int_equal(from->name.len, tensor->name.len);
        assert_memory_equal(from->name.data, tensor->name.data, from->name.len);
        if (tensor->type != BT_QTYPE_F32) {
            assert_rows(from, tensor);
            n_quantized++;
        } else {
            assert_ptr_equal(from->data, tensor->data);
        }
    }
    assert_true(n_quantized >= 14); /* 7 matrices of 2 layers */
    bt_gguf_close(out);
    bt_gguf_close(gguf);
}

static void each_type_is_a_model_of_its_own(void **state)
{
    const bt_tiny_model_t tiny = bt_tiny_model_default();
    bt_gguf_t *const gguf = open_tiny(&tiny);
    bt_gguf_t *const a = smaller(gguf, "q4_1");
    bt_gguf_t *const again = smaller(gguf, "q4_1");
    bt_gguf_t *const b = smaller(gguf, "q4_0");
    bt_gguf_stamp_t stamps[2];

    (void)state;
    assert_true(bt_hash128_equal(bt_gguf_identity(a), bt_gguf_identity(again)));
    assert_true(bt_hash128_equal(bt_gguf_content(a), bt_gguf_content(again)));
    assert_false(bt_hash128_equal(bt_gguf_identity(a), bt_gguf_identity(b)));
    assert_false(bt_hash128_equal(bt_gguf_identity(a), bt_gguf_identity(gguf)));
    assert_false(bt_hash128_equal(bt_gguf_content(a), bt_gguf_content(b)));
    assert_int_equal(bt_gguf_stamp(gguf, &stamps[0]), BT_OK);
    assert_int_equal(bt_gguf_stamp(a, &stamps[1]), BT_OK);
    assert_int_equal(stamps[0].mtime_ns, stamps[1].mtime_ns);
    /* The cache of packed weights believes the stamp of no other file. */
    assert_int_equal(stamps[1].bytes, bt_gguf_bytes(a));
    bt_gguf_close(b);
    bt_gguf_close(again);
    bt_gguf_close(a);
    bt_gguf_close(gguf);
}

static size_t heap_bytes(void)
{
    const struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

/* What a worker adds to its prediction for a draft model. */
static void predicted_memory_of_the_copy_equals_allocated_memory(void **state)
{
    static const bt_model_config_t config = {
        .max_rows = 16, .max_logit_rows = 16, .context_tokens = 512};
    const bt_backend_config_t be_config = {.n_threads = 1, .max_rows = 16};
    bt_tiny_model_t tiny = bt_tiny_model_default();
    bt_backend_t *be = NULL;
    bt_model_t *model = NULL;
    bt_model_memory_t memory;
    bt_gguf_t *gguf;
    bt_gguf_t *out;
    size_t before;
    size_t taken;

    (void)state;
    if (heap_bytes() == 0) {
        skip(); /* a sanitizer's allocator does not tell */
    }
    tiny.n_layers = 8;
    gguf = open_tiny(&tiny);
    out = smaller(gguf, "q4_1");
    assert_int_equal(bt_backend_open("cpu", &be_config, &be), BT_OK);
    assert_int_equal(
        bt_model_memory(out, "cpu", &config, why, sizeof(why), &memory), BT_OK);
    assert_int_equal(bt_model_load(out, be, &config, why, sizeof(why), &model),
                     BT_OK);
    bt_model_destroy(model); /* scratch of the back end has grown */
    before = heap_bytes();
    assert_int_equal(bt_model_load(out, be, &config, why, sizeof(why), &model),
                     BT_OK);
    taken = heap_bytes() - before;
    assert_in_range(memory.weight_bytes + memory.private_bytes,
                    taken - taken / 20, taken + taken / 20);
    bt_model_destroy(model);
    bt_backend_close(be);
    bt_gguf_close(out);
    bt_gguf_close(gguf);
}

static void requantize_survives_every_failed_allocation(void **state)
{
    const bt_tiny_model_t tiny = bt_tiny_model_default();
    bt_gguf_t *const gguf = open_tiny(&tiny);
    bt_gguf_t *out = NULL;
    uint8_t *data;
    bt_status_t status;
    int nth = 0;

    (void)state;
    do {
        bt_alloc_fail_at(++nth);
        status = bt_requantize_open(gguf, bt_quantize_mix_find("q8_0"), 2, NULL,
                                    why, sizeof(why), &out);
        if (status != BT_OK) {
            assert_int_equal(status, BT_ERR_NO_MEMORY);
            assert_true(strlen(why) > 0);
            assert_null(out);
        }
    } while (status != BT_OK);
    assert_true(nth > 4);
    data = malloc(bt_gguf_tensor(out, "blk.0.attn_q.weight")->bytes);
    assert_non_null(data);
    nth = 0;
    do {
        bt_alloc_fail_at(++nth);
        status = bt_gguf_tensor_copy(bt_gguf_tensor(out, "blk.0.attn_q.weight"),
                                     data);
        assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
    } while (status != BT_OK);
    bt_alloc_fail_at(0);
    assert_true(nth > 1);
    free(data);
    bt_gguf_close(out);
    bt_gguf_close(gguf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(tensors_are_those_of_the_quantizer),
        BT_TEST(each_type_is_a_model_of_its_own),
        BT_TEST(predicted_memory_of_the_copy_equals_allocated_memory),
        BT_TEST(requantize_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
