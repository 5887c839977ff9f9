/* SPDX-License-Identifier: Apache-2.0 */
#include <grpc_service.pb-c.h>

#include "common/base/status.h"
#include "router/grpc/pb.h"
#include "router/grpc/pb_infer.h"

typedef Inference__ModelInferResponse response_pb_t;
typedef Inference__ModelInferResponse__InferOutputTensor output_pb_t;
typedef Inference__InferParameter param_pb_t;
typedef Inference__ModelInferResponse__InferOutputTensor__ParametersEntry
    region_entry_t;

/* Parameters of an output in shared memory: region, bytes and, unless it is 0,
 * the offset. */
#define N_REGION_PARAMS 3
typedef struct region_form {
    region_entry_t entries[N_REGION_PARAMS], *list[N_REGION_PARAMS];
    param_pb_t values[N_REGION_PARAMS];
} region_form_t;

#define MAX_PARAMS 2

/* Parameters of a response. */
typedef struct params_form {
    Inference__ModelInferResponse__ParametersEntry entries[MAX_PARAMS];
    Inference__ModelInferResponse__ParametersEntry *list[MAX_PARAMS];
    param_pb_t values[MAX_PARAMS];
} params_form_t;

/* Borrows everything; the arrays hold BT_INFER_MAX_OUTPUTS. */
typedef struct response_form {
    response_pb_t message;
    output_pb_t outputs[BT_INFER_MAX_OUTPUTS];
    output_pb_t *output_list[BT_INFER_MAX_OUTPUTS];
    ProtobufCBinaryData raw[BT_INFER_MAX_OUTPUTS];
    int64_t shapes[BT_INFER_MAX_OUTPUTS][BT_TENSOR_MAX_DIMS];
    region_form_t regions[BT_INFER_MAX_OUTPUTS];
    params_form_t params;
} response_form_t;

/* protobuf-c has no const. */
static uint8_t *bytes_of(const void *borrowed)
{
    union {
        const void *from;
        uint8_t *to;
    } cast = {.from = borrowed};

    return cast.to;
}

/* @return the value to set */
static param_pb_t *add_param(params_form_t *form, response_pb_t *message,
                             const char *key)
{
    const size_t i = message->n_parameters++;

    BT_ASSERT(i < MAX_PARAMS);
    form->entries[i] = (Inference__ModelInferResponse__ParametersEntry)
        INFERENCE__MODEL_INFER_RESPONSE__PARAMETERS_ENTRY__INIT;
    form->values[i] = (param_pb_t)INFERENCE__INFER_PARAMETER__INIT;
    form->entries[i].key = bt_pb_text(key);
    form->entries[i].value = &form->values[i];
    form->list[i] = &form->entries[i];
    message->parameters = form->list;
    return &form->values[i];
}

static void set_final(params_form_t *form, bool final, response_pb_t *message)
{
    param_pb_t *value = add_param(form, message, "triton_final_response");

    value->parameter_choice_case =
        INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
    value->bool_param = final;
}

static void set_weights(params_form_t *form, const char *version,
                        response_pb_t *message)
{
    param_pb_t *value = add_param(form, message, "weight_version");

    value->parameter_choice_case =
        INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
    value->string_param = bt_pb_text(version);
}

/* @return the value to set */
static param_pb_t *add_region_param(region_form_t *form, output_pb_t *out,
                                    const char *key)
{
    const size_t i = out->n_parameters++;

    form->entries[i] = (region_entry_t)
        INFERENCE__MODEL_INFER_RESPONSE__INFER_OUTPUT_TENSOR__PARAMETERS_ENTRY__INIT;
    form->values[i] = (param_pb_t)INFERENCE__INFER_PARAMETER__INIT;
    form->entries[i].key = bt_pb_text(key);
    form->entries[i].value = &form->values[i];
    form->list[i] = &form->entries[i];
    out->parameters = form->list;
    return &form->values[i];
}

static void add_number(region_form_t *form, output_pb_t *out, const char *key,
                       uint64_t number)
{
    param_pb_t *value = add_region_param(form, out, key);

    value->parameter_choice_case =
        INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM;
    value->int64_param = (int64_t)number;
}

static void fill_region(region_form_t *form, const bt_infer_region_t *region,
                        size_t bytes, output_pb_t *out)
{
    param_pb_t *value;

    add_number(form, out, "shared_memory_byte_size", bytes);
    if (region->offset > 0) {
        add_number(form, out, "shared_memory_offset", region->offset);
    }
    value = add_region_param(form, out, "shared_memory_region");
    value->parameter_choice_case =
        INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
    value->string_param = bt_pb_text(region->name);
}

static void fill_response(response_form_t *form,
                          const bt_infer_response_t *from)
{
    response_pb_t *message = &form->message;

    BT_ASSERT(from->n_outputs <= BT_INFER_MAX_OUTPUTS);
    *message = (response_pb_t)INFERENCE__MODEL_INFER_RESPONSE__INIT;
    message->model_name = bt_pb_text(from->model);
    message->model_version = bt_pb_text(from->version);
    message->id = bt_pb_text(from->id);
    for (size_t i = 0; i < from->n_outputs; i++) {
        const bt_tensor_t *tensor = &from->outputs[i];
        output_pb_t *out = &form->outputs[i];
        const bt_infer_region_t *region;

        *out = (output_pb_t)
            INFERENCE__MODEL_INFER_RESPONSE__INFER_OUTPUT_TENSOR__INIT;
        out->name = bt_pb_text(tensor->name);
        out->datatype = bt_pb_text(bt_dtype_name(tensor->dtype));
        for (uint32_t k = 0; k < tensor->n_dims; k++) {
            form->shapes[i][k] = (int64_t)tensor->dims[k];
        }
        out->n_shape = tensor->n_dims;
        out->shape = form->shapes[i];
        region = (from->request == NULL)
                     ? NULL
                     : bt_infer_output_region(from->request, tensor->name);
        form->raw[i] = (ProtobufCBinaryData){0}; /* one for each, also here */
        if (region != NULL) {
            fill_region(&form->regions[i], region, tensor->bytes, out);
        } else {
            form->raw[i].len = tensor->bytes;
            form->raw[i].data = bytes_of(tensor->data);
        }
        form->output_list[i] = out;
    }
    message->n_outputs = from->n_outputs;
    message->outputs = form->output_list;
    message->n_raw_output_contents = from->n_outputs;
    message->raw_output_contents = form->raw;
    if (from->weight_version != NULL) {
        set_weights(&form->params, from->weight_version, message);
    }
}

void bt_pb_infer_write(const bt_infer_response_t *response, bt_strbuf_t *out)
{
    response_form_t form;

    fill_response(&form, response);
    bt_pb_write(&form.message.base, out);
}

void bt_pb_infer_write_piece(const bt_infer_response_t *response, bool final,
                             bt_strbuf_t *out)
{
    Inference__ModelStreamInferResponse piece =
        INFERENCE__MODEL_STREAM_INFER_RESPONSE__INIT;
    response_form_t form;

    fill_response(&form, response);
    set_final(&form.params, final, &form.message);
    piece.infer_response = &form.message;
    bt_pb_write(&piece.base, out);
}

void bt_pb_infer_write_error(const char *message, const char *id,
                             bt_strbuf_t *out)
{
    Inference__ModelStreamInferResponse piece =
        INFERENCE__MODEL_STREAM_INFER_RESPONSE__INIT;
    response_pb_t response = INFERENCE__MODEL_INFER_RESPONSE__INIT;
    params_form_t param;

    set_final(&param, true, &response);
    piece.error_message = bt_pb_text((message[0] == '\0') ? "failed" : message);
    response.id = bt_pb_text(id);
    piece.infer_response = &response;
    bt_pb_write(&piece.base, out);
}
