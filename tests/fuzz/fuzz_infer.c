/* SPDX-License-Identifier: Apache-2.0 */
/* A body of infer, two bytes in front of it saying where its JSON ends: what
 * is parsed is sane, is read where it is in shared memory, lowers or is refused
 * for each model, and writes. */
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/status.h"
#include "router/triton/infer_json.h"
#include "router/triton/shm_tensors.h"
#include "router/triton/tensors_to_requests.h"

#define OBJECT_BYTES 64
#define MOST         4096u

/* One region, "r": all but the first four bytes of an object that has a text, a
 * few numbers and zeros. Made once. */
static bt_regions_t *regions_of_all(void)
{
    static const uint8_t bytes[OBJECT_BYTES] = {9,   9,   9, 9, 2, 0, 0, 0,
                                                'H', 'i', 1, 0, 0, 0, 5};
    static bt_regions_t *regions;
    bt_api_error_t error = {0};
    char key[64];
    int fd;

    if (regions != NULL) {
        return regions;
    }
    snprintf(key, sizeof(key), "/fuzz-infer-%d", (int)getpid());
    fd = shm_open(key, O_RDWR | O_CREAT | O_EXCL, 0600);
    BT_ASSERT_ALWAYS(fd >= 0);
    BT_ASSERT_ALWAYS(write(fd, bytes, sizeof(bytes)) == OBJECT_BYTES);
    BT_ASSERT_ALWAYS(bt_regions_create(MOST, &regions) == BT_OK);
    BT_ASSERT_ALWAYS(bt_regions_register(regions, "r", key, 4, OBJECT_BYTES - 4,
                                         &error) == BT_OK);
    shm_unlink(key);
    close(fd);
    return regions;
}

static void check_lowered(const bt_tensor_requests_t *lowered)
{
    BT_ASSERT_ALWAYS(lowered->n_rows <= BT_API_MAX_PROMPTS);
    for (size_t i = 0; i < lowered->n_rows; i++) {
        const bt_api_request_t *row = &lowered->rows[i];

        BT_ASSERT_ALWAYS((row->n_prompts == 1) &&
                         (row->n_stops <= BT_API_MAX_STOPS) &&
                         (row->n_bad_words <= BT_MAX_BAD_WORDS));
        BT_ASSERT_ALWAYS((row->prompts[0].text != NULL) ||
                         (row->prompts[0].n_ids > 0));
        BT_ASSERT_ALWAYS((row->table.rows == NULL) ||
                         ((bt_table_width(&row->table.rows->rows) > 0) &&
                          bt_table_is_finite(&row->table.rows->rows) &&
                          (row->table.vocab_size == row->table.rows->rows.n)));
        for (uint32_t k = 0; k < row->n_stop_ids; k++) {
            BT_ASSERT_ALWAYS((row->stop_ids[k].n > 0) &&
                             (row->stop_ids[k].n <= BT_MAX_BAD_WORD_TOKENS));
        }
    }
}

static void lower(const bt_model_spec_t *spec,
                  const bt_infer_request_t *request)
{
    bt_tensor_requests_t lowered;
    bt_api_error_t error = {0};

    (void)!bt_infer_check_outputs(spec, request, &error);
    if (spec->role == BT_ROLE_POSTPROCESS) {
        (void)!bt_infer_check_inputs(spec, request, &error);
    } else if (bt_tensors_to_requests(spec, request, &lowered, &error) ==
               BT_OK) {
        check_lowered(&lowered);
        bt_tensor_requests_fini(&lowered);
    } else {
        BT_ASSERT_ALWAYS((error.http_status >= 400) &&
                         (error.message[0] != '\0'));
    }
}

/* The inputs, as if they were the outputs. */
static void write_json(const bt_infer_request_t *request)
{
    bt_tensor_t outputs[BT_INFER_MAX_INPUTS];
    bt_infer_response_t response = {.model = "m",
                                    .version = "1",
                                    .id = request->id,
                                    .request = request,
                                    .outputs = outputs};
    bt_strbuf_t out;
    bt_json_t json;

    for (size_t i = 0; i < request->n_inputs; i++) {
        outputs[response.n_outputs++] = request->inputs[i].tensor;
    }
    bt_strbuf_init(&out, 16u << 20);
    bt_json_init(&json, &out);
    (void)bt_infer_put_json(&response, &json);
    bt_infer_append_raw(&response, &out);
    bt_strbuf_fini(&out);
}

static void check(const bt_infer_request_t *request)
{
    for (size_t i = 0; i < request->n_inputs; i++) {
        char why[BT_TENSOR_WHY_BYTES];

        BT_ASSERT_ALWAYS(bt_tensor_check(&request->inputs[i].tensor, why) ==
                         BT_OK);
    }
    for (size_t i = 0; i < BT_N_MODEL_SPECS; i++) {
        lower(&bt_model_specs[i], request);
    }
    write_json(request);
}

/* A copy of the first input as if it were the first output, so that it is found
 * in shared memory or not. */
static void put_back(const bt_shm_tensors_t *uses,
                     const bt_infer_request_t *request)
{
    const bt_tensor_t *from = &request->inputs[0].tensor;
    bt_tensor_t output;
    bt_api_error_t error = {0};

    if ((request->n_inputs == 0) || (request->n_wanted == 0) ||
        (bt_tensor_make(request->wanted[0].name, from->dtype, from->dims,
                        from->n_dims, from->bytes, &output) != BT_OK)) {
        return;
    }
    if (from->bytes > 0) {
        memcpy(output.owned, from->data, from->bytes);
    }
    if (bt_shm_tensors_write(uses, request, &output, 1, MOST, &error) ==
        BT_OK) {
        BT_ASSERT_ALWAYS(output.bytes == from->bytes);
    } else {
        BT_ASSERT_ALWAYS(error.http_status == 400);
    }
    bt_tensor_fini(&output);
}

/* @return false: it is refused, or memory that is not there */
static bool read_shared(bt_infer_request_t *request)
{
    bt_regions_t *regions = regions_of_all();
    bt_shm_tensors_t *uses;
    bt_api_error_t error = {0};
    bool ok;

    if (!bt_shm_tensors_any(request)) {
        return true;
    }
    if (bt_shm_tensors_begin(regions, request, MOST, &uses, &error) != BT_OK) {
        BT_ASSERT_ALWAYS((error.http_status >= 400) &&
                         (error.message[0] != '\0'));
        return false;
    }
    BT_ASSERT_ALWAYS(bt_shm_tensors_input_bytes(uses) <= MOST);
    ok = bt_shm_tensors_read(uses, request, &error) == BT_OK;
    BT_ASSERT_ALWAYS(ok || (error.http_status == 400));
    if (ok) {
        put_back(uses, request);
    }
    bt_shm_tensors_end(uses);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bt_infer_http_t http = {0};
    bt_infer_request_t request;
    bt_api_error_t error = {0};
    bt_strbuf_t body;

    if (size < 2) {
        return 0;
    }
    http.json_bytes = (uint64_t)(data[0] | (data[1] << 8));
    http.has_json_bytes = http.json_bytes != 0xFFFF;
    bt_strbuf_init(&body, size);
    bt_strbuf_append(&body, data + 2, size - 2);
    if (bt_infer_parse_json(&http, &body, &request, &error) == BT_OK) {
        if (read_shared(&request)) {
            check(&request);
        }
        bt_infer_request_fini(&request);
    } else {
        BT_ASSERT_ALWAYS((error.http_status >= 400) &&
                         (error.message[0] != '\0'));
    }
    bt_strbuf_fini(&body);
    return 0;
}
