/* SPDX-License-Identifier: Apache-2.0 */
/* A ModelInferRequest, plain or packed by the first byte: what is taken has
 * tensors that are what their shapes say, what is not has a reason. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/status.h"
#include "router/grpc/pb_infer.h"

static void check(const bt_infer_request_t *request)
{
    char why[BT_TENSOR_WHY_BYTES];

    BT_ASSERT_ALWAYS((request->n_inputs <= BT_INFER_MAX_INPUTS) &&
                     (request->n_wanted <= BT_INFER_MAX_OUTPUTS) &&
                     (request->params.n <= BT_INFER_MAX_PARAMS));
    for (size_t i = 0; i < request->n_inputs; i++) {
        BT_ASSERT_ALWAYS(
            (request->inputs[i].region.name[0] != '\0') ||
            (bt_tensor_check(&request->inputs[i].tensor, why) == BT_OK));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const bt_pb_infer_form_t form = {
        .compressed = (size > 0) && ((data[0] & 1) != 0), .max_bytes = 65536};
    bt_infer_request_t request = {0};
    bt_api_error_t error = {0};
    char id[BT_INFER_NAME_BYTES];
    bt_strbuf_t body;

    bt_strbuf_init(&body, size);
    if (size > 0) {
        bt_strbuf_append(&body, data + 1, size - 1);
    }
    bt_pb_infer_id((body.len > 0) ? body.data : "", body.len, id);
    if (bt_pb_infer_parse(&form, &body, &request, &error) == BT_OK) {
        check(&request);
        bt_infer_request_fini(&request);
    } else {
        BT_ASSERT_ALWAYS((error.http_status >= 400) &&
                         (error.message[0] != '\0'));
    }
    bt_strbuf_fini(&body);
    return 0;
}
