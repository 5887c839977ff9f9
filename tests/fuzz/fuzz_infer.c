/* SPDX-License-Identifier: Apache-2.0 */
/* A body of infer, two bytes in front of it saying where its JSON ends: what
 * is parsed is sane, lowers or is refused for each model, and writes. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/assert.h"
#include "router/triton/infer_json.h"
#include "router/triton/lower.h"

static void check_lowered(const bt_lowered_t *lowered)
{
    BT_ASSERT_ALWAYS(lowered->n_rows <= BT_API_MAX_PROMPTS);
    for (size_t i = 0; i < lowered->n_rows; i++) {
        const bt_api_request_t *row = &lowered->rows[i];

        BT_ASSERT_ALWAYS((row->n_prompts == 1) &&
                         (row->n_stops <= BT_API_MAX_STOPS) &&
                         (row->n_bad_words <= BT_MAX_BAD_WORDS));
        BT_ASSERT_ALWAYS((row->prompts[0].text != NULL) ||
                         (row->prompts[0].n_ids > 0));
        for (uint32_t k = 0; k < row->n_stop_ids; k++) {
            BT_ASSERT_ALWAYS((row->stop_ids[k].n > 0) &&
                             (row->stop_ids[k].n <= BT_MAX_BAD_WORD_TOKENS));
        }
    }
}

static void lower(const bt_model_spec_t *spec,
                  const bt_infer_request_t *request)
{
    bt_lowered_t lowered;
    bt_api_error_t error = {0};

    (void)!bt_infer_check_outputs(spec, request, &error);
    if (spec->role == BT_ROLE_POSTPROCESS) {
        (void)!bt_infer_check_inputs(spec, request, &error);
    } else if (bt_infer_lower(spec, request, &lowered, &error) == BT_OK) {
        check_lowered(&lowered);
        bt_lowered_fini(&lowered);
    } else {
        BT_ASSERT_ALWAYS((error.http_status >= 400) &&
                         (error.message[0] != '\0'));
    }
}

/* The inputs, as if they were the outputs. */
static void write(const bt_infer_request_t *request)
{
    bt_tensor_t outputs[BT_INFER_MAX_INPUTS];
    bt_infer_response_t response = {.model = "m",
                                    .version = "1",
                                    .id = request->id,
                                    .request = request,
                                    .outputs = outputs};
    bt_strbuf_t out;
    size_t json_bytes;

    for (size_t i = 0; i < request->n_inputs; i++) {
        if (request->inputs[i].region.name[0] == '\0') {
            outputs[response.n_outputs++] = request->inputs[i].tensor;
        }
    }
    bt_strbuf_init(&out, 16u << 20);
    bt_infer_write_json(&response, &out, &json_bytes);
    BT_ASSERT_ALWAYS(json_bytes <= out.len);
    bt_strbuf_fini(&out);
}

static void check(const bt_infer_request_t *request)
{
    for (size_t i = 0; i < request->n_inputs; i++) {
        char why[BT_TENSOR_WHY_BYTES];

        BT_ASSERT_ALWAYS(
            (request->inputs[i].region.name[0] != '\0') ||
            (bt_tensor_check(&request->inputs[i].tensor, why) == BT_OK));
    }
    for (size_t i = 0; i < BT_N_MODEL_SPECS; i++) {
        lower(&bt_model_specs[i], request);
    }
    write(request);
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
        check(&request);
        bt_infer_request_fini(&request);
    } else {
        BT_ASSERT_ALWAYS((error.http_status >= 400) &&
                         (error.message[0] != '\0'));
    }
    bt_strbuf_fini(&body);
    return 0;
}
