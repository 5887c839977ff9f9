/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and responses as messages. The bytes were made by the Python classes
 * of tritonclient 2.73.0 (service_pb2), SerializeToString(deterministic=True).
 */
#include "router/grpc/pb_infer.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/zip/zip.h"
#include "tests/support/testsupport.h"

/* InferInput text_input [[b"The capital"], [b"B"]], max_tokens [[8], [-2]],
 * output text_output, parameters a: true, b: 7, c: "x". */
static const char raw_request[] =
    "0a08656e73656d626c651201311a0361626322070a0161120208"
    "0122070a01621202100722080a016312031a01782a170a0a7465"
    "78745f696e707574120542595445531a0202012a170a0a6d6178"
    "5f746f6b656e731205494e5433321a020201320d0a0b74657874"
    "5f6f75747075743a140b000000546865206361706974616c0100"
    "0000423a0808000000feffffff";
/* i8 INT8 [3] 1, -1, -128; by BYTES [2] "abc", ""; b BOOL [1, 2] true, false;
 * f FP32 [] 0.5; u UINT64 [1] 2^63; sh FP32 [2] in shared memory "reg", offset
 * and size 8. All in contents. */
static const char contents_request[] =
    "0a016d1a01392a260a0269381204494e54381a01032a17121501"
    "ffffffffffffffffff0180ffffffffffffffff012a170a026279"
    "120542595445531a01022a07420361626342002a130a01621204"
    "424f4f4c1a0201022a040a0201002a110a01661204465033322a"
    "0632040000003f2a1c0a0175120655494e5436341a01012a0c2a"
    "0a808080808080808080012a670a0273681204465033321a0102"
    "221d0a177368617265645f6d656d6f72795f627974655f73697a"
    "6512021008221a0a147368617265645f6d656d6f72795f6f6666"
    "73657412021008221d0a147368617265645f6d656d6f72795f72"
    "6567696f6e12051a03726567";

static void unhex(const char *hex, bt_strbuf_t *out)
{
    bt_strbuf_init(out, 1 << 20);
    for (; *hex != '\0'; hex += 2) {
        const char pair[] = {hex[0], hex[1], '\0'};
        const uint8_t byte = (uint8_t)strtoul(pair, NULL, 16);

        bt_strbuf_append(out, &byte, 1);
    }
}

static bt_status_t parse(bt_strbuf_t *body, bt_infer_request_t *request,
                         bt_api_error_t *error)
{
    const bt_pb_infer_form_t form = {.max_bytes = 1 << 20};

    *request = (bt_infer_request_t){0};
    *error = (bt_api_error_t){0};
    return bt_pb_infer_parse(&form, body, request, error);
}

static void assert_tensor(const bt_infer_request_t *request, size_t i,
                          const char *name, bt_dtype_t dtype, const void *data,
                          size_t bytes)
{
    const bt_tensor_t *t = &request->inputs[i].tensor;

    assert_string_equal(t->name, name);
    assert_int_equal(t->dtype, dtype);
    assert_int_equal(t->bytes, bytes);
    assert_memory_equal(t->data, data, bytes);
}

static void raw_tensors_are_read(void **state)
{
    bt_infer_request_t r;
    bt_api_error_t error;
    bt_strbuf_t body;
    char id[BT_INFER_NAME_BYTES];

    (void)state;
    unhex(raw_request, &body);
    bt_pb_infer_id(body.data, body.len, id);
    assert_string_equal(id, "abc");
    assert_int_equal(parse(&body, &r, &error), BT_OK);
    bt_strbuf_fini(&body); /* nothing borrows from it */
    assert_string_equal(r.model, "ensemble");
    assert_string_equal(r.version, "1");
    assert_string_equal(r.id, "abc");
    assert_int_equal(r.params.n, 3);
    assert_true(bt_infer_param(&r.params, "a")->boolean);
    assert_int_equal(bt_infer_param(&r.params, "b")->integer, 7);
    assert_string_equal(bt_infer_param(&r.params, "c")->text, "x");
    assert_int_equal(r.n_wanted, 1);
    assert_string_equal(r.wanted[0].name, "text_output");
    assert_int_equal(r.n_inputs, 2);
    assert_tensor(&r, 0, "text_input", BT_DTYPE_BYTES,
                  "\x0b\0\0\0The capital\1\0\0\0B", 20);
    assert_int_equal(r.inputs[0].tensor.n_dims, 2);
    assert_true((r.inputs[0].tensor.dims[0] == 2) &&
                (r.inputs[0].tensor.dims[1] == 1));
    assert_tensor(&r, 1, "max_tokens", BT_DTYPE_INT32,
                  "\x08\0\0\0\xfe\xff\xff\xff", 8);
    bt_infer_request_fini(&r);
}

static void contents_are_read_by_datatype(void **state)
{
    bt_infer_request_t r;
    bt_api_error_t error;
    bt_strbuf_t body;

    (void)state;
    unhex(contents_request, &body);
    if (parse(&body, &r, &error) != BT_OK) {
        fail_msg("%s", error.message);
    }
    bt_strbuf_fini(&body);
    assert_int_equal(r.n_inputs, 6);
    assert_tensor(&r, 0, "i8", BT_DTYPE_INT8, "\1\xff\x80", 3);
    assert_tensor(&r, 1, "by", BT_DTYPE_BYTES, "\3\0\0\0abc\0\0\0\0", 11);
    assert_tensor(&r, 2, "b", BT_DTYPE_BOOL, "\1\0", 2);
    assert_tensor(&r, 3, "f", BT_DTYPE_FP32, "\0\0\0\x3f", 4);
    assert_int_equal(r.inputs[3].tensor.n_dims, 0);
    assert_tensor(&r, 4, "u", BT_DTYPE_UINT64, "\0\0\0\0\0\0\0\x80", 8);
    assert_string_equal(r.inputs[5].region.name, "reg");
    assert_true((r.inputs[5].region.offset == 8) &&
                (r.inputs[5].region.bytes == 8));
    bt_infer_request_fini(&r);
}

static void parameter_above_int64_is_clamped(void **state)
{
    bt_infer_request_t r;
    bt_api_error_t error;
    bt_strbuf_t body;

    (void)state;
    /* model_name "m", parameters {"a": uint64_param 2^63} */
    unhex("0a016d22100a0161120b2880808080808080808001", &body);
    assert_int_equal(parse(&body, &r, &error), BT_OK);
    bt_strbuf_fini(&body);
    assert_true(bt_infer_param(&r.params, "a")->integer == INT64_MAX);
    bt_infer_request_fini(&r);
}

/* @param more  behind model_name "m" */
static void refused(const char *more, int http_status, const char *words)
{
    bt_infer_request_t r;
    bt_api_error_t error;
    bt_strbuf_t body;

    unhex(more, &body);
    assert_int_not_equal(parse(&body, &r, &error), BT_OK);
    assert_int_equal(error.http_status, http_status);
    if (strstr(error.message, words) == NULL) {
        fail_msg("\"%s\" is not in: %s", words, error.message);
    }
    assert_int_equal(r.n_inputs, 0);
    bt_strbuf_fini(&body);
}

static void malformed_requests_name_the_fault(void **state)
{
    (void)state;
    refused("0a0541", 400, "no ModelInferRequest");
    refused("ff", 400, "no ModelInferRequest");
    /* inputs {name: "a", datatype: "INT31"} */
    refused("2a0a0a01611205494e543331", 400, "INT31");
    /* the same of INT32, shape [-1] */
    refused("2a160a01611205494e5433321a0affffffffffffffffff01", 400,
            "dimension -1");
    /* shape [2], one number */
    refused("2a120a01611205494e5433321a01022a03120105", 400,
            "its shape says 2 elements, int_contents has 1");
    /* INT8 of 128 */
    refused("2a120a01611204494e54381a01012a0412028001", 400, "does not fit");
    /* raw of three bytes for INT32 [1] */
    refused("2a0d0a01611205494e5433321a01013a03010203", 400, "3 bytes");
    /* raw, and contents */
    refused("2a120a01611205494e5433321a01012a031201053a0401020304", 400,
            "while raw_input_contents");
    /* one raw for no input */
    refused("3a0101", 400, "more entries");
    /* two inputs of INT32 [1], one raw */
    refused("2a0d0a01611205494e5433321a01012a0d0a01621205494e5433321a01013a04"
            "01020304",
            400, "fewer entries");
    /* parameters {"a": nothing} */
    refused("22030a0161", 400, "parameter a has no value");
    /* outputs {name: "o", parameters {"classification": 3}} */
    refused("32190a016f12140a0e636c617373696669636174696f6e12021003", 400,
            "classification");
}

/* Two bytes each, hundreds of bytes here. */
static void message_is_limited_to_its_memory_budget(void **state)
{
    bt_infer_request_t r;
    bt_api_error_t error;
    bt_strbuf_t body;

    (void)state;
    bt_strbuf_init(&body, 1 << 20);
    for (int i = 0; i < 200000; i++) {
        bt_strbuf_append(&body, "\x2a\0", 2);
    }
    assert_int_not_equal(parse(&body, &r, &error), BT_OK);
    assert_int_equal(error.http_status, 413);
    body.len = 2 * 97; /* those that fit are too many */
    assert_int_not_equal(parse(&body, &r, &error), BT_OK);
    assert_int_equal(error.http_status, 400);
    assert_non_null(strstr(error.message, "96 inputs"));
    bt_strbuf_fini(&body);
}

static void compressed_request_is_read_within_the_limit(void **state)
{
    bt_pb_infer_form_t form = {.compressed = true, .max_bytes = 1 << 20};
    bt_infer_request_t r = {0};
    bt_api_error_t error = {0};
    bt_strbuf_t body;
    bt_strbuf_t packed;

    (void)state;
    unhex(raw_request, &body);
    bt_strbuf_init(&packed, 4096);
    assert_int_equal(bt_zip(BT_ZIP_GZIP, body.data, body.len, &packed), BT_OK);
    assert_int_equal(bt_pb_infer_parse(&form, &packed, &r, &error), BT_OK);
    assert_int_equal(r.n_inputs, 2);
    bt_infer_request_fini(&r);
    form.max_bytes = body.len - 1;
    assert_int_not_equal(bt_pb_infer_parse(&form, &packed, &r, &error), BT_OK);
    assert_int_equal(error.http_status, 413);
    assert_non_null(strstr(error.message, "--max-body-bytes"));
    form.max_bytes = 1 << 20;
    assert_int_not_equal(bt_pb_infer_parse(&form, &body, &r, &error), BT_OK);
    assert_int_equal(error.http_status, 400);
    bt_strbuf_fini(&packed);
    bt_strbuf_fini(&body);
}

static void short_memory_leaks_nothing(void **state)
{
    static const char *const requests[] = {raw_request, contents_request};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(requests); i++) {
        bt_status_t status = BT_ERR_NO_MEMORY;
        bt_strbuf_t body;

        unhex(requests[i], &body);
        for (int nth = 1; status != BT_OK; nth++) {
            bt_infer_request_t r;
            bt_api_error_t error;

            assert_true(nth < 500);
            bt_alloc_fail_at(nth);
            status = parse(&body, &r, &error);
            bt_alloc_fail_at(0);
            if (status == BT_OK) {
                bt_infer_request_fini(&r);
            } else {
                assert_true((error.http_status == 503) ||
                            (error.http_status == 413));
            }
        }
        bt_strbuf_fini(&body);
    }
}

/* Cut anywhere and with any byte changed it is read or refused, no more. */
static void hostile_bytes_do_no_harm(void **state)
{
    static const char *const requests[] = {raw_request, contents_request};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(requests); i++) {
        bt_strbuf_t body;

        unhex(requests[i], &body);
        for (size_t at = 0; at < body.len; at++) {
            for (unsigned bits = 1; bits < 256; bits += 37) {
                bt_infer_request_t r;
                bt_api_error_t error;

                body.data[at] = (char)(body.data[at] ^ (char)bits);
                if (parse(&body, &r, &error) == BT_OK) {
                    bt_infer_request_fini(&r);
                }
                body.data[at] = (char)(body.data[at] ^ (char)bits);
            }
        }
        while (body.len > 0) {
            bt_infer_request_t r;
            bt_api_error_t error;

            body.len--;
            if (parse(&body, &r, &error) == BT_OK) {
                bt_infer_request_fini(&r);
            }
        }
        bt_strbuf_fini(&body);
    }
}

/* ---- responses ---- */

static void assert_written(const bt_strbuf_t *out, const char *hex)
{
    bt_strbuf_t expected;

    unhex(hex, &expected);
    assert_int_equal(out->len, expected.len);
    assert_memory_equal(out->data, expected.data, expected.len);
    bt_strbuf_fini(&expected);
}

static void responses_are_written_with_raw_tensors(void **state)
{
    bt_tensor_t outputs[] = {
        {.name = "output_ids",
         .dtype = BT_DTYPE_INT32,
         .n_dims = 2,
         .dims = {1, 2},
         .data = "\1\0\0\0\2\0\0\0",
         .bytes = 8},
        {.name = "text_output",
         .dtype = BT_DTYPE_BYTES,
         .n_dims = 1,
         .dims = {1},
         .data = "\1\0\0\0x",
         .bytes = 5},
    };
    const bt_infer_response_t response = {.model = "ensemble",
                                          .version = "1",
                                          .id = "abc",
                                          .outputs = outputs,
                                          .n_outputs = 2};
    const bt_infer_response_t empty = {.model = "m", .version = "1", .id = ""};
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    bt_pb_infer_write(&response, &out);
    assert_written(&out,
                   "0a08656e73656d626c651201311a036162632a170a0a6f75747075745f"
                   "6964731205494e5433321a0201022a170a0b746578745f6f7574707574"
                   "120542595445531a01013208010000000200000032050100000078");
    bt_strbuf_reset(&out);
    bt_pb_infer_write_piece(&response, false, &out);
    assert_written(
        &out, "12720a08656e73656d626c651201311a03616263221b0a15747269746f"
              "6e5f66696e616c5f726573706f6e7365120208002a170a0a6f75747075"
              "745f6964731205494e5433321a0201022a170a0b746578745f6f757470"
              "7574120542595445531a01013208010000000200000032050100000078");
    bt_strbuf_reset(&out);
    bt_pb_infer_write_piece(&empty, true, &out);
    assert_written(&out,
                   "12230a016d120131221b0a15747269746f6e5f66696e616c5f7265"
                   "73706f6e736512020801");
    bt_strbuf_reset(&out);
    bt_pb_infer_write_error("no", "7", &out);
    assert_written(&out,
                   "0a026e6f12201a0137221b0a15747269746f6e5f66696e616c5f7265"
                   "73706f6e736512020801");
    bt_strbuf_fini(&out);
}

/* a FP32 [2] at 8 of "reg", b BYTES [1] at its start, c INT32 [1] raw: an entry
 * of raw_output_contents for each. */
static void output_in_shared_memory_names_its_region(void **state)
{
    bt_infer_wanted_t wanted[] = {
        {.name = "b", .region = {.name = "reg", .bytes = 100}},
        {.name = "a", .region = {.name = "reg", .offset = 8, .bytes = 100}},
        {.name = "c"},
    };
    const bt_infer_request_t request = {.wanted = wanted, .n_wanted = 3};
    /* What was written there has no data any more. */
    bt_tensor_t outputs[] = {
        {.name = "a",
         .dtype = BT_DTYPE_FP32,
         .n_dims = 1,
         .dims = {2},
         .bytes = 8},
        {.name = "b",
         .dtype = BT_DTYPE_BYTES,
         .n_dims = 1,
         .dims = {1},
         .bytes = 5},
        {.name = "c",
         .dtype = BT_DTYPE_INT32,
         .n_dims = 1,
         .dims = {1},
         .data = "\1\0\0\0",
         .bytes = 4},
    };
    const bt_infer_response_t response = {.model = "m",
                                          .version = "1",
                                          .id = "",
                                          .request = &request,
                                          .outputs = outputs,
                                          .n_outputs = 3};
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 4096);
    bt_pb_infer_write(&response, &out);
    assert_written(&out, "0a016d1201312a660a01611204465033321a0102221d0a177368"
                         "617265645f6d656d6f72795f627974655f73697a651202100822"
                         "1a0a147368617265645f6d656d6f72795f6f6666736574120210"
                         "08221d0a147368617265645f6d656d6f72795f726567696f6e12"
                         "051a037265672a4b0a0162120542595445531a0101221d0a1773"
                         "68617265645f6d656d6f72795f627974655f73697a6512021005"
                         "221d0a147368617265645f6d656d6f72795f726567696f6e1205"
                         "1a037265672a0d0a01631205494e5433321a0101320032003204"
                         "01000000");
    bt_strbuf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(raw_tensors_are_read),
        BT_TEST(parameter_above_int64_is_clamped),
        BT_TEST(contents_are_read_by_datatype),
        BT_TEST(malformed_requests_name_the_fault),
        BT_TEST(message_is_limited_to_its_memory_budget),
        BT_TEST(compressed_request_is_read_within_the_limit),
        BT_TEST(short_memory_leaks_nothing),
        BT_TEST(hostile_bytes_do_no_harm),
        BT_TEST(responses_are_written_with_raw_tensors),
        BT_TEST(output_in_shared_memory_names_its_region),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
