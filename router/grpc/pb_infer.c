/* SPDX-License-Identifier: Apache-2.0 */
#include "router/grpc/pb_infer.h"

#include <grpc_service.pb-c.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/zip/zip.h"
#include "router/grpc/pb.h"

typedef Inference__ModelInferRequest request_pb_t;
typedef Inference__ModelInferRequest__InferInputTensor input_pb_t;
typedef Inference__ModelInferRequest__InferRequestedOutputTensor wanted_pb_t;
typedef Inference__InferParameter param_pb_t;
typedef Inference__InferTensorContents contents_pb_t;

/* ---- parameters ---- */

/* Names with Triton's prefix are reserved; with its error text. */
static bt_status_t check_reserved(const bt_infer_param_t *param,
                                  bt_api_error_t *error)
{
    if (strncmp(param->name, "triton_", strlen("triton_")) != 0) {
        return BT_OK;
    }
    if (strcmp(param->name, BT_INFER_EMPTY_FINAL) != 0) {
        return BT_API_INVALID(
            error, "parameter keys starting with 'triton_' are reserved "
                   "for Triton usage. Only the following keys starting "
                   "with 'triton_' are allowed: " BT_INFER_EMPTY_FINAL);
    }
    if (param->kind != BT_INFER_BOOL) {
        return BT_API_INVALID(error,
                              "invalid value type for '%s' parameter, expected "
                              "bool_param.",
                              param->name);
    }
    return BT_OK;
}

static bt_status_t add_param(bt_infer_params_t *params, const char *name,
                             const param_pb_t *value, bt_api_error_t *error)
{
    bt_infer_param_t *param = NULL;
    const bt_status_t status =
        bt_infer_param_add(params, name, strlen(name), &param);

    if (status == BT_ERR_NO_MEMORY) {
        return bt_api_error_no_memory(error);
    }
    if (status != BT_OK) {
        return BT_API_INVALID(
            error,
            "there are more than %d parameters, or the name of "
            "one has more than %d bytes",
            BT_INFER_MAX_PARAMS, BT_TENSOR_NAME_BYTES - 1);
    }
    switch ((value == NULL)
                ? INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE__NOT_SET
                : value->parameter_choice_case) {
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM:
        param->kind = BT_INFER_BOOL;
        param->boolean = value->bool_param != 0;
        return BT_OK;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM:
        param->kind = BT_INFER_INT;
        param->integer = value->int64_param;
        return BT_OK;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM:
        param->kind = BT_INFER_INT;
        param->integer = (value->uint64_param > INT64_MAX)
                             ? INT64_MAX
                             : (int64_t)value->uint64_param;
        return BT_OK;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_DOUBLE_PARAM:
        param->kind = BT_INFER_DOUBLE;
        param->real = value->double_param;
        return BT_OK;
    case INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM:
        param->kind = BT_INFER_STRING;
        param->text = bt_strdup(value->string_param);
        return (param->text == NULL) ? bt_api_error_no_memory(error) : BT_OK;
    default:
        return BT_API_INVALID(error, "parameter %s has no value", name);
    }
}

/* Reads a tensor's parameters: its range in shared memory. Others are
 * unsupported and rejected. */
static bt_status_t set_region(bt_infer_region_t *region, const char *name,
                              const param_pb_t *value, bt_api_error_t *error)
{
    const int kind = (value == NULL) ? 0 : (int)value->parameter_choice_case;

    if ((strcmp(name, "shared_memory_region") == 0) &&
        (kind == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM) &&
        (strlen(value->string_param) < sizeof(region->name))) {
        snprintf(region->name, sizeof(region->name), "%s", value->string_param);
        return BT_OK;
    }
    if ((kind == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM) &&
        (value->int64_param >= 0)) {
        if (strcmp(name, "shared_memory_offset") == 0) {
            region->offset = (uint64_t)value->int64_param;
            return BT_OK;
        }
        if (strcmp(name, "shared_memory_byte_size") == 0) {
            region->bytes = (uint64_t)value->int64_param;
            return BT_OK;
        }
        if ((strcmp(name, "classification") == 0) &&
            (value->int64_param == 0)) {
            return BT_OK;
        }
    }
    return BT_API_INVALID(
        error,
        "parameter %.100s of a tensor is not known here, or is of a wrong type",
        name);
}

/* ---- data ---- */

typedef struct numbers {
    const char *field;
    const void *data;
    size_t n, bytes; /* of a source element */
} numbers_t;

#define NUMBERS(member) \
    ((numbers_t){#member, c->member, c->n_##member, sizeof(*c->member)})

/* Returns the field of `contents` for a datatype's elements. */
static numbers_t numbers_of(const contents_pb_t *c, bt_dtype_t dtype)
{
    switch (dtype) {
    case BT_DTYPE_BOOL:
        return NUMBERS(bool_contents);
    case BT_DTYPE_INT8:
    case BT_DTYPE_INT16:
    case BT_DTYPE_INT32:
        return NUMBERS(int_contents);
    case BT_DTYPE_INT64:
        return NUMBERS(int64_contents);
    case BT_DTYPE_UINT8:
    case BT_DTYPE_UINT16:
    case BT_DTYPE_UINT32:
        return NUMBERS(uint_contents);
    case BT_DTYPE_UINT64:
        return NUMBERS(uint64_contents);
    case BT_DTYPE_FP32:
        return NUMBERS(fp32_contents);
    case BT_DTYPE_FP64:
        return NUMBERS(fp64_contents);
    case BT_DTYPE_BYTES:
        return NUMBERS(bytes_contents);
    default:
        return (numbers_t){NULL, NULL, 0, 0};
    }
}

static size_t n_in_all(const contents_pb_t *c)
{
    return c->n_bool_contents + c->n_int_contents + c->n_int64_contents +
           c->n_uint_contents + c->n_uint64_contents + c->n_fp32_contents +
           c->n_fp64_contents + c->n_bytes_contents;
}

static size_t bytes_of_strings(const contents_pb_t *c)
{
    size_t bytes = 0;

    for (size_t i = 0; i < c->n_bytes_contents; i++) {
        bytes += sizeof(uint32_t) + c->bytes_contents[i].len;
    }
    return bytes;
}

/* Little-endian: the first bytes of a wider number are the narrower one. */
static void fill(bt_tensor_t *tensor, const contents_pb_t *c,
                 const numbers_t *numbers)
{
    const size_t width = bt_dtype_bytes(tensor->dtype);
    uint8_t *at = tensor->owned;

    if (tensor->dtype == BT_DTYPE_BYTES) {
        for (size_t i = 0; i < c->n_bytes_contents; i++) {
            at =
                bt_tensor_put_bytes(at, (const char *)c->bytes_contents[i].data,
                                    c->bytes_contents[i].len);
        }
        return;
    }
    if (width == numbers->bytes) {
        memcpy(at, numbers->data, numbers->n * width);
        return;
    }
    for (size_t i = 0; i < numbers->n; i++) {
        memcpy(at + i * width,
               (const uint8_t *)numbers->data + i * numbers->bytes, width);
    }
}

/* Checks numbers that are wider here than in their datatype. */
static bool fits(bt_dtype_t dtype, const contents_pb_t *c)
{
    const size_t bits = 8 * bt_dtype_bytes(dtype);

    if ((dtype == BT_DTYPE_INT8) || (dtype == BT_DTYPE_INT16)) {
        for (size_t i = 0; i < c->n_int_contents; i++) {
            const int64_t top = (int64_t)1 << (bits - 1);

            if ((c->int_contents[i] < -top) || (c->int_contents[i] >= top)) {
                return false;
            }
        }
    } else if ((dtype == BT_DTYPE_UINT8) || (dtype == BT_DTYPE_UINT16)) {
        for (size_t i = 0; i < c->n_uint_contents; i++) {
            if ((c->uint_contents[i] >> bits) != 0) {
                return false;
            }
        }
    }
    return true;
}

static bt_status_t take_contents(bt_tensor_t *tensor, const contents_pb_t *c,
                                 bt_api_error_t *error)
{
    const numbers_t numbers = numbers_of(c, tensor->dtype);
    bt_tensor_t made = {0};
    uint64_t count = 0;
    bt_status_t status;

    if (numbers.field == NULL) {
        return BT_API_INVALID(error,
                              "input %s: %s comes in raw_input_contents alone",
                              tensor->name, bt_dtype_name(tensor->dtype));
    }
    status = bt_tensor_count(tensor->dims, tensor->n_dims, &count);
    if ((status != BT_OK) || (numbers.n != count) ||
        (n_in_all(c) != numbers.n) || !fits(tensor->dtype, c)) {
        return BT_API_INVALID(
            error,
            "input %s: its shape says %" PRIu64 " elements, %s has %zu "
            "(%zu in all of contents), or one does not fit %s",
            tensor->name, count, numbers.field, numbers.n, n_in_all(c),
            bt_dtype_name(tensor->dtype));
    }
    status = bt_tensor_make(tensor->name, tensor->dtype, tensor->dims,
                            tensor->n_dims, bytes_of_strings(c), &made);
    if (status != BT_OK) {
        return bt_api_error_no_memory(error);
    }
    if (numbers.n > 0) {
        fill(&made, c, &numbers);
    }
    *tensor = made;
    return BT_OK;
}

/* ---- the request ---- */

static bt_status_t set_shape(bt_tensor_t *tensor, const input_pb_t *from,
                             bt_api_error_t *error)
{
    if (from->n_shape > BT_TENSOR_MAX_DIMS) {
        return BT_API_INVALID(error, "input %s has more than %d dimensions",
                              tensor->name, BT_TENSOR_MAX_DIMS);
    }
    tensor->n_dims = (uint32_t)from->n_shape;
    for (size_t i = 0; i < from->n_shape; i++) {
        if (from->shape[i] < 0) {
            return BT_API_INVALID(
                error, "input %s: dimension %" PRId64 " in its shape",
                tensor->name, from->shape[i]);
        }
        tensor->dims[i] = (uint64_t)from->shape[i];
    }
    return BT_OK;
}

static bt_status_t take_head(bt_infer_input_t *input, const input_pb_t *from,
                             bt_api_error_t *error)
{
    bt_tensor_t *tensor = &input->tensor;
    bt_status_t status = BT_OK;

    if (strlen(from->name) >= sizeof(tensor->name)) {
        return BT_API_INVALID(error, "an input's name is too long");
    }
    snprintf(tensor->name, sizeof(tensor->name), "%s", from->name);
    if (!bt_dtype_find(from->datatype, strlen(from->datatype),
                       &tensor->dtype)) {
        return BT_API_INVALID(error, "input %s: \"%.40s\" is no datatype",
                              tensor->name, from->datatype);
    }
    for (size_t i = 0; (i < from->n_parameters) && (status == BT_OK); i++) {
        status = set_region(&input->region, from->parameters[i]->key,
                            from->parameters[i]->value, error);
    }
    return (status == BT_OK) ? set_shape(tensor, from, error) : status;
}

/* Moves the bytes to the tensor; they were allocated from the budget. */
static void steal(bt_tensor_t *tensor, ProtobufCBinaryData *raw)
{
    tensor->owned = raw->data;
    tensor->data = (raw->len > 0) ? raw->data : NULL;
    tensor->bytes = raw->len;
    *raw = (ProtobufCBinaryData){0};
}

static bt_status_t take_data(bt_infer_input_t *input, const input_pb_t *from,
                             ProtobufCBinaryData *raw, bt_api_error_t *error)
{
    static const contents_pb_t none = INFERENCE__INFER_TENSOR_CONTENTS__INIT;
    char why[BT_TENSOR_WHY_BYTES];
    const contents_pb_t *contents =
        (from->contents == NULL) ? &none : from->contents;

    if (raw == NULL) {
        const bt_status_t status =
            take_contents(&input->tensor, contents, error);

        if (status != BT_OK) {
            return status;
        }
    } else if (n_in_all(contents) > 0) {
        return BT_API_INVALID(
            error, "input %s has contents, while raw_input_contents are given",
            input->tensor.name);
    } else {
        steal(&input->tensor, raw);
    }
    if (bt_tensor_check(&input->tensor, why) != BT_OK) {
        return BT_API_INVALID(error, "input %s %s", input->tensor.name, why);
    }
    return BT_OK;
}

static bt_status_t take_inputs(request_pb_t *from, bt_infer_request_t *to,
                               bt_api_error_t *error)
{
    size_t n_raw = 0;
    bt_status_t status = BT_OK;

    if (from->n_inputs > BT_INFER_MAX_INPUTS) {
        return BT_API_INVALID(error, "there are more than 96 inputs");
    }
    to->inputs = bt_calloc(from->n_inputs + 1, sizeof(*to->inputs));
    if (to->inputs == NULL) {
        return bt_api_error_no_memory(error);
    }
    for (size_t i = 0; (i < from->n_inputs) && (status == BT_OK); i++) {
        bt_infer_input_t *input = &to->inputs[i];
        ProtobufCBinaryData *raw = NULL;

        to->n_inputs = i + 1;
        status = take_head(input, from->inputs[i], error);
        if ((status != BT_OK) || (input->region.name[0] != '\0')) {
            continue;
        }
        if (from->n_raw_input_contents > 0) {
            if (n_raw == from->n_raw_input_contents) {
                return BT_API_INVALID(
                    error, "raw_input_contents has fewer entries than there "
                           "are inputs");
            }
            raw = &from->raw_input_contents[n_raw++];
        }
        status = take_data(input, from->inputs[i], raw, error);
    }
    if ((status == BT_OK) && (n_raw != from->n_raw_input_contents)) {
        return BT_API_INVALID(
            error, "raw_input_contents has more entries than there are inputs");
    }
    return status;
}

static bt_status_t take_wanted(const request_pb_t *from, bt_infer_request_t *to,
                               bt_api_error_t *error)
{
    bt_status_t status = BT_OK;

    if (from->n_outputs > BT_INFER_MAX_OUTPUTS) {
        return BT_API_INVALID(error, "more than 32 outputs are asked for");
    }
    to->wanted = bt_calloc(from->n_outputs + 1, sizeof(*to->wanted));
    if (to->wanted == NULL) {
        return bt_api_error_no_memory(error);
    }
    for (size_t i = 0; (i < from->n_outputs) && (status == BT_OK); i++) {
        const wanted_pb_t *wanted = from->outputs[i];
        bt_infer_wanted_t *out = &to->wanted[i];

        to->n_wanted = i + 1;
        if (strlen(wanted->name) >= sizeof(out->name)) {
            return BT_API_INVALID(error, "an output's name is too long");
        }
        snprintf(out->name, sizeof(out->name), "%s", wanted->name);
        out->binary = true;
        for (size_t k = 0; (k < wanted->n_parameters) && (status == BT_OK);
             k++) {
            status = set_region(&out->region, wanted->parameters[k]->key,
                                wanted->parameters[k]->value, error);
        }
    }
    return status;
}

static bt_status_t take_name(const char *from, char to[BT_INFER_NAME_BYTES],
                             const char *field, bt_api_error_t *error)
{
    if (strlen(from) >= BT_INFER_NAME_BYTES) {
        return BT_API_INVALID(error, "%s has more than %d bytes", field,
                              BT_INFER_NAME_BYTES - 1);
    }
    snprintf(to, BT_INFER_NAME_BYTES, "%s", from);
    return BT_OK;
}

static bt_status_t take_request(request_pb_t *from, bt_infer_request_t *to,
                                bt_api_error_t *error)
{
    bt_status_t status;

    if ((status = take_name(from->id, to->id, "id", error)) != BT_OK ||
        (status = take_name(from->model_name, to->model, "model_name",
                            error)) != BT_OK ||
        (status = take_name(from->model_version, to->version, "model_version",
                            error)) != BT_OK) {
        return status;
    }
    to->binary = true;
    for (size_t i = 0; (i < from->n_parameters) && (status == BT_OK); i++) {
        status = add_param(&to->params, from->parameters[i]->key,
                           from->parameters[i]->value, error);
        if (status == BT_OK) {
            status = check_reserved(
                bt_infer_param(&to->params, from->parameters[i]->key), error);
        }
    }
    if (status == BT_OK) {
        status = take_wanted(from, to, error);
    }
    return (status == BT_OK) ? take_inputs(from, to, error) : status;
}

static bt_status_t read_request(const void *data, size_t bytes,
                                bt_infer_request_t *request_p,
                                bt_api_error_t *error)
{
    ProtobufCMessage *message = NULL;
    bt_infer_request_t request = {0};
    bt_pb_budget_t budget;
    bt_status_t status;

    bt_pb_budget_init(&budget, bytes);
    status = bt_pb_read(&budget, &inference__model_infer_request__descriptor,
                        data, bytes, &message);
    if (status == BT_ERR_TOO_LARGE) {
        bt_api_error_set(
            error, 413, NULL,
            "the request needs too much memory when it is read: send "
            "the tensors in raw_input_contents");
        return BT_ERR_INVALID_PARAM;
    }
    if (status != BT_OK) {
        return BT_API_INVALID(error, "the message is no ModelInferRequest");
    }
    status = take_request((request_pb_t *)message, &request, error);
    bt_pb_free(&budget, message);
    if (status != BT_OK) {
        bt_infer_request_fini(&request);
        return status;
    }
    *request_p = request;
    return BT_OK;
}

static bt_status_t unpack(const bt_pb_infer_form_t *form,
                          const bt_strbuf_t *body, bt_strbuf_t *plain,
                          bt_api_error_t *error)
{
    const bt_status_t status =
        bt_unzip(BT_ZIP_GZIP, body->data, body->len, plain);

    if (status == BT_ERR_TOO_LARGE) {
        bt_api_error_set(error, 413, NULL,
                         "the message is over the limit of %" PRIu64
                         " bytes when it "
                         "is unpacked (--max-body-bytes)",
                         form->max_bytes);
        return status;
    }
    if (status == BT_ERR_NO_MEMORY) {
        return bt_api_error_no_memory(error);
    }
    return (status == BT_OK)
               ? BT_OK
               : BT_API_INVALID(error, "the message is not gzip's");
}

bt_status_t bt_pb_infer_parse(const void *ctx, bt_strbuf_t *body,
                              bt_infer_request_t *request_p,
                              bt_api_error_t *error_p)
{
    const bt_pb_infer_form_t *form = ctx;
    bt_strbuf_t plain;
    bt_status_t status;

    if (!form->compressed) {
        return read_request(body->data, body->len, request_p, error_p);
    }
    bt_strbuf_init(&plain, (size_t)form->max_bytes);
    status = unpack(form, body, &plain, error_p);
    if (status == BT_OK) {
        status = read_request(plain.data, plain.len, request_p, error_p);
    }
    bt_strbuf_fini(&plain);
    return status;
}

/* All known writers order fields by number: name, version, id. */
void bt_pb_infer_id(const void *data, size_t bytes,
                    char id[BT_INFER_NAME_BYTES])
{
    const uint8_t *p = data;

    id[0] = '\0';
    for (int i = 0; (i < 3) && (bytes >= 2); i++) {
        const unsigned tag = p[0];
        size_t n = p[1];
        size_t at = 2;

        if ((n >= 0x80) && (bytes >= 3) && (p[2] < 0x80)) {
            n = (n & 0x7f) | ((size_t)p[2] << 7);
            at = 3;
        }
        if (((tag & 7) != 2) || (n > bytes - at)) {
            return;
        }
        if ((tag >> 3) == 3) {
            if (n < BT_INFER_NAME_BYTES) {
                memcpy(id, p + at, n);
                id[n] = '\0';
            }
            return;
        }
        p += at + n;
        bytes -= at + n;
    }
}
