/* SPDX-License-Identifier: Apache-2.0 */
#include "router/triton/infer_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/base/alloc.h"
#include "common/base/json.h"
#include "common/base/json_doc.h"
#include "common/base/task.h"

#define BOM "\xEF\xBB\xBF"

/* ---- reading: each function returns false after the first error ---- */

typedef struct parse {
    const bt_json_doc_t *doc;
    const char *raw; /* raw data of the next inputs */
    size_t raw_bytes;
    bool has_raw; /* an input points into the body */
    bt_infer_request_t *request;
    bt_api_error_t *error;
    bt_status_t status; /* of the error, which is filled */
} parse_t;

static bool refuse(parse_t *parse, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

static bool refuse(parse_t *parse, const char *fmt, ...)
{
    char text[sizeof(parse->error->message)];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    bt_api_error_set(parse->error, 400, NULL, "%s", text);
    parse->status = BT_ERR_INVALID_PARAM;
    return false;
}

static bool no_memory(parse_t *parse)
{
    parse->status = bt_api_error_no_memory(parse->error);
    return false;
}

static bool check_kind(parse_t *parse, const char *what,
                       const bt_json_node_t *value, bt_json_kind_t kind)
{
    static const char *const kinds[] = {
        [BT_JSON_TRUE] = "true or false", [BT_JSON_NUMBER] = "a number",
        [BT_JSON_STRING] = "a string",    [BT_JSON_ARRAY] = "an array",
        [BT_JSON_OBJECT] = "an object",
    };

    if (bt_json_is_kind(value, kind) ||
        ((kind == BT_JSON_TRUE) && bt_json_is_bool(value))) {
        return true;
    }
    return refuse(parse,
                  "failed to parse the request JSON buffer: %s: %s is expected",
                  what, kinds[kind]);
}

/* Copies a short string. */
static bool read_name(parse_t *parse, const char *what,
                      const bt_json_node_t *value, char *out, size_t size)
{
    if (!check_kind(parse, what, value, BT_JSON_STRING)) {
        return false;
    }
    if ((value->len >= size) ||
        (memchr(value->text, '\0', value->len) != NULL)) {
        return refuse(parse, "%s has more than %zu bytes, or a zero among them",
                      what, size - 1);
    }
    memcpy(out, value->text, value->len);
    out[value->len] = '\0';
    return true;
}

/* Number of bytes of a number's text to print. */
static int shown(const bt_json_node_t *number)
{
    return (number->len > 64) ? 64 : (int)number->len;
}

static bool read_size(parse_t *parse, const char *what,
                      const bt_json_node_t *value, uint64_t *size_p)
{
    if (!check_kind(parse, what, value, BT_JSON_NUMBER)) {
        return false;
    }
    return bt_json_as_u64(value, size_p) ||
           refuse(parse,
                  "%s must be an integer from 0 to %" PRIu64 ", got %.*s", what,
                  UINT64_MAX, shown(value), value->text);
}

/* Reads a member that may be absent. @param [in,out] size_p  kept then */
static bool read_member_size(parse_t *parse, const bt_json_node_t *object,
                             const char *key, uint64_t *size_p)
{
    const bt_json_node_t *value = bt_json_get(parse->doc, object, key);

    return (value == NULL) || read_size(parse, key, value, size_p);
}

/* ---- parameters ---- */

static void set_number(bt_infer_param_t *param, const bt_json_node_t *value)
{
    bt_json_whole_t whole;

    if (!bt_json_as_double(value, &param->real)) {
        param->real = (value->text[0] == '-') ? -INFINITY : INFINITY;
    }
    param->kind = BT_INFER_DOUBLE;
    if (!bt_json_is_fraction(value) && bt_json_as_whole(value, &whole) &&
        whole.fits) {
        const int64_t size = (whole.magnitude > INT64_MAX)
                                 ? INT64_MAX
                                 : (int64_t)whole.magnitude;

        param->kind = BT_INFER_INT;
        param->integer = whole.negative ? -size : size;
    }
}

/* Objects, arrays and null are not valid parameters, and are ignored. */
static bool read_param(parse_t *parse, const bt_json_node_t *key)
{
    const bt_json_node_t *value = key + 1;
    bt_infer_param_t *param = NULL;
    bt_status_t status;

    if ((value->kind == BT_JSON_NULL) || (value->kind >= BT_JSON_ARRAY)) {
        return true;
    }
    status = bt_infer_param_add(&parse->request->params, key->text, key->len,
                                &param);
    if (status == BT_ERR_NO_MEMORY) {
        return no_memory(parse);
    }
    if (status != BT_OK) {
        return refuse(
            parse, "more than %d parameters, or a name of more than %d bytes",
            BT_INFER_MAX_PARAMS, BT_TENSOR_NAME_BYTES - 1);
    }
    if (value->kind == BT_JSON_STRING) {
        param->kind = BT_INFER_STRING;
        param->text = bt_memdup(value->text, value->len);
        return (param->text != NULL) || no_memory(parse);
    }
    if (value->kind == BT_JSON_NUMBER) {
        set_number(param, value);
    } else {
        param->kind = BT_INFER_BOOL;
        param->boolean = value->kind == BT_JSON_TRUE;
    }
    return true;
}

static bool read_params(parse_t *parse, const bt_json_node_t *params)
{
    const bt_json_node_t *key = bt_json_first(params);

    if (!check_kind(parse, "'parameters'", params, BT_JSON_OBJECT)) {
        return false;
    }
    for (uint32_t i = 0; i < params->n; i++) {
        if (!read_param(parse, key)) {
            return false;
        }
        key = bt_json_next(parse->doc, key + 1);
    }
    return true;
}

/* Reads a tensor's region of shared memory from its parameters. */
static bool read_region(parse_t *parse, const bt_json_node_t *params,
                        bt_infer_region_t *region)
{
    static const char key[] = "shared_memory_region";
    const bt_json_node_t *name = bt_json_get(parse->doc, params, key);

    return ((name == NULL) ||
            read_name(parse, key, name, region->name, sizeof(region->name))) &&
           read_member_size(parse, params, "shared_memory_offset",
                            &region->offset) &&
           read_member_size(parse, params, "shared_memory_byte_size",
                            &region->bytes);
}

/* ---- the data of an input, in JSON ---- */

/* State while a tensor's elements are filled. */
typedef struct fill {
    parse_t *parse;
    bt_tensor_t *tensor;
    uint8_t *at;         /* all datatypes but BYTES */
    bt_strbuf_t strings; /* BYTES */
} fill_t;

static bool check_element(fill_t *fill, const bt_json_node_t *value,
                          bt_json_kind_t kind)
{
    char what[sizeof("input ''") + BT_TENSOR_NAME_BYTES];

    if (bt_json_is_kind(value, kind)) {
        return true;
    }
    snprintf(what, sizeof(what), "input '%s'", fill->tensor->name);
    return check_kind(fill->parse, what, value, kind);
}

static bool no_value(fill_t *fill, const bt_json_node_t *number)
{
    return refuse(fill->parse, "input '%s': %.*s is no value of datatype %s",
                  fill->tensor->name, shown(number), number->text,
                  bt_dtype_name(fill->tensor->dtype));
}

static void put(fill_t *fill, const void *value, size_t bytes)
{
    memcpy(fill->at, value, bytes);
    fill->at += bytes;
}

static bool number_fits(bt_dtype_t dtype, const bt_json_whole_t *number)
{
    const unsigned bits = (unsigned)(8 * bt_dtype_bytes(dtype));
    const bool is_signed =
        (dtype >= BT_DTYPE_INT8) && (dtype <= BT_DTYPE_INT64);
    const uint64_t half = UINT64_C(1) << (bits - 1);

    if (is_signed) {
        return number->magnitude <= half - (number->negative ? 0 : 1);
    }
    return (number->magnitude == 0) ||
           (!number->negative && (number->magnitude <= (half - 1) * 2 + 1));
}

/* Seeds count modulo 2^64 in all protocols, for any datatype. */
static bool is_seed(const bt_tensor_t *tensor)
{
    return (strcasecmp(tensor->name, "random_seed") == 0) &&
           (bt_dtype_bytes(tensor->dtype) == sizeof(uint64_t));
}

static bool put_integer(fill_t *fill, const bt_json_node_t *value)
{
    const bt_tensor_t *tensor = fill->tensor;
    bt_json_whole_t number;
    uint64_t bits;

    if (!bt_json_as_whole(value, &number) ||
        (!is_seed(tensor) &&
         (!number.fits || !number_fits(tensor->dtype, &number)))) {
        return no_value(fill, value);
    }
    bits = number.negative ? 0 - number.magnitude : number.magnitude;
    put(fill, &bits, bt_dtype_bytes(tensor->dtype));
    return true;
}

static bool put_real(fill_t *fill, const bt_json_node_t *value)
{
    double real = INFINITY;
    float single;

    if (!bt_json_as_double(value, &real)) {
        return no_value(fill, value);
    }
    if (fill->tensor->dtype == BT_DTYPE_FP64) {
        put(fill, &real, sizeof(real));
        return true;
    }
    single = (float)real;
    if (!isfinite(single)) {
        return no_value(fill, value);
    }
    put(fill, &single, sizeof(single));
    return true;
}

static bool put_string(fill_t *fill, const bt_json_node_t *value)
{
    if (!check_element(fill, value, BT_JSON_STRING)) {
        return false;
    }
    bt_strbuf_append(&fill->strings, &value->len, sizeof(value->len));
    bt_strbuf_append(&fill->strings, value->text, value->len);
    return (bt_strbuf_status(&fill->strings) == BT_OK) ||
           no_memory(fill->parse);
}

static bool put_bool(fill_t *fill, const bt_json_node_t *value)
{
    double real = 1.0; /* a number beyond a double is not 0 either */

    if (bt_json_is_kind(value, BT_JSON_NUMBER)) {
        (void)bt_json_as_double(value, &real);
        *fill->at++ = real != 0.0;
        return true;
    }
    *fill->at++ = bt_json_is_kind(value, BT_JSON_TRUE);
    return bt_json_is_bool(value) || check_element(fill, value, BT_JSON_TRUE);
}

/* Stores one value that is not an array. */
static bool put_element(fill_t *fill, const bt_json_node_t *value)
{
    if (fill->tensor->dtype == BT_DTYPE_BYTES) {
        return put_string(fill, value);
    }
    if (fill->tensor->dtype == BT_DTYPE_BOOL) {
        return put_bool(fill, value);
    }
    return check_element(fill, value, BT_JSON_NUMBER) &&
           (bt_dtype_is_float(fill->tensor->dtype) ? put_real(fill, value)
                                                   : put_integer(fill, value));
}

/* Stores nested arrays, row-major; their shape is not checked. The values of an
 * array follow it in the list of the document. */
static bool put_elements(fill_t *fill, const bt_json_node_t *data,
                         uint64_t count)
{
    const bt_json_node_t *end = bt_json_next(fill->parse->doc, data);
    uint32_t steps = 0;
    uint64_t n = 0;

    for (const bt_json_node_t *value = data; value < end; value++) {
        if (bt_task_poll_every(&steps)) {
            return no_memory(fill->parse);
        }
        if (value->kind == BT_JSON_ARRAY) {
            continue;
        }
        if (n++ == count) {
            return refuse(fill->parse,
                          "unable to parse 'data': input '%s' has more than "
                          "the %" PRIu64 " elements of its shape",
                          fill->tensor->name, count);
        }
        if (!put_element(fill, value)) {
            return false;
        }
    }
    return (n == count) ||
           refuse(fill->parse,
                  "unable to parse 'data': input '%s' has %" PRIu64
                  " elements, but its shape says %" PRIu64,
                  fill->tensor->name, n, count);
}

static bool fill_from_json(parse_t *parse, const bt_json_node_t *data,
                           bt_tensor_t *tensor, uint64_t count)
{
    fill_t fill = {.parse = parse, .tensor = tensor};
    bool ok;

    if ((tensor->dtype == BT_DTYPE_FP16) || (tensor->dtype == BT_DTYPE_BF16)) {
        return refuse(parse,
                      "receiving %s data via JSON is not supported, use the "
                      "binary data format for input '%s'",
                      bt_dtype_name(tensor->dtype), tensor->name);
    }
    if (count > (uint64_t)(bt_json_next(parse->doc, data) - data)) {
        return refuse(parse,
                      "unable to parse 'data': input '%s' has fewer than the "
                      "%" PRIu64 " elements of its shape",
                      tensor->name, count);
    }
    bt_strbuf_init(&fill.strings, SIZE_MAX / 4);
    if (tensor->dtype != BT_DTYPE_BYTES) {
        tensor->bytes = (size_t)count * bt_dtype_bytes(tensor->dtype);
        tensor->owned = bt_calloc(tensor->bytes + 1, 1);
        tensor->data = tensor->owned;
        fill.at = tensor->owned;
        if (fill.at == NULL) {
            return no_memory(parse);
        }
    }
    ok = put_elements(&fill, data, count);
    if (tensor->dtype == BT_DTYPE_BYTES) { /* takes the memory */
        tensor->owned = fill.strings.data;
        tensor->data = fill.strings.data;
        tensor->bytes = fill.strings.len;
    }
    return ok;
}

/* ---- inputs ---- */

static bool take_raw(parse_t *parse, uint64_t size, bt_tensor_t *tensor)
{
    char why[BT_TENSOR_WHY_BYTES];

    if (size > parse->raw_bytes) {
        return refuse(parse,
                      "input '%s' has binary_data_size %" PRIu64
                      ", but %zu bytes are left behind the JSON",
                      tensor->name, size, parse->raw_bytes);
    }
    tensor->data = (size > 0) ? parse->raw : NULL;
    parse->has_raw = parse->has_raw || (size > 0);
    tensor->bytes = (size_t)size;
    parse->raw += size;
    parse->raw_bytes -= (size_t)size;
    return (bt_tensor_check(tensor, why) == BT_OK) ||
           refuse(parse, "input '%s' %s", tensor->name, why);
}

static bool read_shape(parse_t *parse, const bt_json_node_t *shape,
                       bt_tensor_t *tensor)
{
    const bt_json_node_t *dim = bt_json_first(shape);

    if (!check_kind(parse, "'shape'", shape, BT_JSON_ARRAY)) {
        return false;
    }
    if (shape->n > BT_TENSOR_MAX_DIMS) {
        return refuse(parse, "'shape' has more than %d dimensions",
                      BT_TENSOR_MAX_DIMS);
    }
    for (; tensor->n_dims < shape->n; tensor->n_dims++) {
        if (!read_size(parse, "'shape'", dim, &tensor->dims[tensor->n_dims])) {
            return false;
        }
        dim = bt_json_next(parse->doc, dim);
    }
    return true;
}

static bool read_datatype(parse_t *parse, const bt_json_node_t *value,
                          bt_tensor_t *tensor)
{
    char name[16];

    return read_name(parse, "'datatype'", value, name, sizeof(name)) &&
           (bt_dtype_find(name, strlen(name), &tensor->dtype) ||
            refuse(parse, "datatype '%s' is unknown", name));
}

static bool read_tensor(parse_t *parse, const bt_json_node_t *object,
                        bt_tensor_t *tensor)
{
    const bt_json_node_t *name = bt_json_get(parse->doc, object, "name");
    const bt_json_node_t *datatype =
        bt_json_get(parse->doc, object, "datatype");
    const bt_json_node_t *shape = bt_json_get(parse->doc, object, "shape");

    if ((name != NULL) && !read_name(parse, "the name of an input", name,
                                     tensor->name, sizeof(tensor->name))) {
        return false;
    }
    if ((name == NULL) || (datatype == NULL) || (shape == NULL)) {
        return refuse(parse, "unable to find '%s' of input '%s'",
                      (name == NULL)       ? "name"
                      : (datatype == NULL) ? "datatype"
                                           : "shape",
                      tensor->name);
    }
    return read_datatype(parse, datatype, tensor) &&
           read_shape(parse, shape, tensor);
}

static bool read_input(parse_t *parse, const bt_json_node_t *object,
                       bt_infer_input_t *input)
{
    const bt_json_node_t *params =
        bt_json_get(parse->doc, object, "parameters");
    const bt_json_node_t *data = bt_json_get(parse->doc, object, "data");
    bt_tensor_t *tensor = &input->tensor;
    uint64_t size = 0;
    uint64_t count = 0;

    if (!check_kind(parse, "an input", object, BT_JSON_OBJECT) ||
        !read_tensor(parse, object, tensor) ||
        ((params != NULL) &&
         !check_kind(parse, "'parameters'", params, BT_JSON_OBJECT)) ||
        !read_region(parse, params, &input->region) ||
        !read_member_size(parse, params, "binary_data_size", &size)) {
        return false;
    }
    if (bt_tensor_count(tensor->dims, tensor->n_dims, &count) != BT_OK) {
        return refuse(parse, "input '%s' has a shape that is too large",
                      tensor->name);
    }
    if (input->region.name[0] != '\0') {
        return true; /* read with the region later */
    }
    if (bt_json_get(parse->doc, params, "binary_data_size") != NULL) {
        return take_raw(parse, size, tensor);
    }
    return (data != NULL) ? fill_from_json(parse, data, tensor, count)
                          : refuse(parse, "unable to find 'data' of input '%s'",
                                   tensor->name);
}

/* Checks a list, and allocates its elements. @return NULL: it is refused */
static void *make_list(parse_t *parse, const char *name,
                       const bt_json_node_t *list, uint32_t most, size_t size)
{
    void *elements;

    if (!check_kind(parse, name, list, BT_JSON_ARRAY)) {
        return NULL;
    }
    if (list->n > most) {
        (void)refuse(parse, "more than %u %s", most, name);
        return NULL;
    }
    elements = bt_calloc((size_t)list->n + 1, size);
    if (elements == NULL) {
        (void)no_memory(parse);
    }
    return elements;
}

static bool read_inputs(parse_t *parse, const bt_json_node_t *list)
{
    bt_infer_request_t *request = parse->request;
    const bt_json_node_t *input = bt_json_first(list);

    request->inputs = make_list(parse, "inputs", list, BT_INFER_MAX_INPUTS,
                                sizeof(*request->inputs));
    for (uint32_t i = 0; (request->inputs != NULL) && (i < list->n); i++) {
        if (!read_input(parse, input, &request->inputs[request->n_inputs++])) {
            return false;
        }
        input = bt_json_next(parse->doc, input);
    }
    return request->inputs != NULL;
}

/* ---- outputs that are named, and the whole ---- */

static bool read_wanted_params(parse_t *parse, const bt_json_node_t *params,
                               bt_infer_wanted_t *wanted)
{
    const bt_json_node_t *binary =
        bt_json_get(parse->doc, params, "binary_data");
    uint64_t n_classes = 0;

    if (!check_kind(parse, "'parameters'", params, BT_JSON_OBJECT) ||
        ((binary != NULL) &&
         !check_kind(parse, "'binary_data'", binary, BT_JSON_TRUE)) ||
        !read_member_size(parse, params, "classification", &n_classes) ||
        !read_region(parse, params, &wanted->region)) {
        return false;
    }
    wanted->binary = bt_json_is_kind(binary, BT_JSON_TRUE);
    return (n_classes == 0) ||
           refuse(parse, "output '%s': classification is not supported",
                  wanted->name);
}

static bool read_wanted(parse_t *parse, const bt_json_node_t *object,
                        bt_infer_wanted_t *wanted)
{
    const bt_json_node_t *name = bt_json_get(parse->doc, object, "name");
    const bt_json_node_t *params =
        bt_json_get(parse->doc, object, "parameters");

    if (!check_kind(parse, "an output", object, BT_JSON_OBJECT) ||
        ((name != NULL) && !read_name(parse, "the name of an output", name,
                                      wanted->name, sizeof(wanted->name)))) {
        return false;
    }
    if (wanted->name[0] == '\0') {
        return refuse(parse, "unable to find 'name' of an output");
    }
    return (params == NULL) || read_wanted_params(parse, params, wanted);
}

static bool read_outputs(parse_t *parse, const bt_json_node_t *list)
{
    bt_infer_request_t *request = parse->request;
    const bt_json_node_t *output = bt_json_first(list);

    request->wanted = make_list(parse, "outputs", list, BT_INFER_MAX_OUTPUTS,
                                sizeof(*request->wanted));
    for (uint32_t i = 0; (request->wanted != NULL) && (i < list->n); i++) {
        if (!read_wanted(parse, output,
                         &request->wanted[request->n_wanted++])) {
            return false;
        }
        output = bt_json_next(parse->doc, output);
    }
    return request->wanted != NULL;
}

static bool read_id(parse_t *parse, const bt_json_node_t *value)
{
    return read_name(parse, "'id'", value, parse->request->id,
                     sizeof(parse->request->id));
}

/* null means absent. */
static bool read_root(parse_t *parse)
{
    static const struct {
        const char *name;
        bool (*read)(parse_t *parse, const bt_json_node_t *value);
    } members[] = {{"id", read_id},
                   {"parameters", read_params},
                   {"inputs", read_inputs},
                   {"outputs", read_outputs}};
    const bt_json_node_t *root = bt_json_doc_root(parse->doc);
    const bt_json_node_t *key = bt_json_first(root);

    if (!check_kind(parse, "the body", root, BT_JSON_OBJECT)) {
        return false;
    }
    for (uint32_t i = 0; i < root->n; i++) {
        if (!bt_json_counts(key) && (key[1].kind != BT_JSON_NULL) &&
            (bt_json_is(key, "inputs") || bt_json_is(key, "outputs"))) {
            return refuse(parse, "'%.*s' is there twice", (int)key->len,
                          key->text);
        }
        key = bt_json_next(parse->doc, key + 1);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(members); i++) {
        const bt_json_node_t *value =
            bt_json_get(parse->doc, root, members[i].name);

        if ((value != NULL) && (value->kind != BT_JSON_NULL) &&
            !members[i].read(parse, value)) {
            return false;
        }
    }
    if (parse->request->inputs == NULL) {
        return refuse(parse, "failed to parse the request JSON buffer: unable "
                             "to find 'inputs'");
    }
    return (parse->raw_bytes == 0) ||
           refuse(parse,
                  "%zu bytes behind the JSON belong to no input: each raw "
                  "input needs its binary_data_size",
                  parse->raw_bytes);
}

/* Splits the body into JSON and raw data, and reads both. */
static bool parse_body(parse_t *parse, const bt_infer_http_t *http,
                       const bt_strbuf_t *body)
{
    const char *text = (body->data != NULL) ? body->data : "";
    size_t bytes = body->len;
    bt_json_doc_t *doc = NULL;
    bt_json_fault_t fault;
    size_t skipped;
    bool ok;

    if (http->has_json_bytes) {
        if (http->json_bytes > body->len) {
            return refuse(parse,
                          BT_INFER_LENGTH_HEADER " is %" PRIu64
                                                 ", but the body has %zu bytes",
                          http->json_bytes, body->len);
        }
        bytes = (size_t)http->json_bytes;
    }
    parse->raw = text + bytes;
    parse->raw_bytes = body->len - bytes;
    skipped = ((bytes >= strlen(BOM)) && (memcmp(text, BOM, strlen(BOM)) == 0))
                  ? strlen(BOM)
                  : 0;
    bytes -= skipped;
    /* What the values take is counted by the account. */
    parse->status = bt_json_doc_parse_client(text + skipped, bytes, UINT32_MAX,
                                             &fault, &doc);
    if (parse->status == BT_ERR_NO_MEMORY) {
        return no_memory(parse);
    }
    if (parse->status != BT_OK) {
        return refuse(parse,
                      "failed to parse the request JSON buffer: %s, at byte "
                      "%zu",
                      fault.what, skipped + fault.at);
    }
    parse->doc = doc;
    ok = read_root(parse);
    bt_json_doc_free(doc);
    return ok;
}

bt_status_t bt_infer_parse_json(const void *http, bt_strbuf_t *body,
                                bt_infer_request_t *request_p,
                                bt_api_error_t *error_p)
{
    bt_infer_request_t request = {0};
    parse_t parse = {.request = &request, .error = error_p};

    if (!parse_body(&parse, http, body)) {
        bt_infer_request_fini(&request);
        return parse.status;
    }
    request.binary = bt_infer_flag(&request.params, "binary_data_output");
    if (parse.has_raw) {
        request.body = *body; /* raw tensors point into it */
        bt_strbuf_init(body, body->limit);
    }
    *request_p = request;
    return BT_OK;
}

/* ---- writing ---- */

static void put_shape(bt_json_t *json, const bt_tensor_t *tensor)
{
    bt_json_array(json, "shape");
    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        bt_json_u64(json, NULL, tensor->dims[i]);
    }
    bt_json_end_array(json);
}

/* Writes an element of a tensor. */
static void put_value(bt_json_t *json, const void *tensor_p, const void *none,
                      size_t i)
{
    const bt_tensor_t *tensor = tensor_p;
    uint64_t bits = 0;
    int64_t integer = 0;
    double real = 0.0;
    bt_status_t status;

    (void)none;
    if (tensor->dtype == BT_DTYPE_FP64) {
        status = bt_tensor_f64(tensor, i, &real);
        bt_json_double(json, NULL, real);
    } else if (bt_dtype_is_float(tensor->dtype)) { /* shorter ones are exact */
        status = bt_tensor_f64(tensor, i, &real);
        bt_json_float(json, NULL, (float)real);
    } else if (tensor->dtype == BT_DTYPE_UINT64) {
        status = bt_tensor_u64(tensor, i, &bits);
        bt_json_u64(json, NULL, bits);
    } else {
        status = bt_tensor_i64(tensor, i, &integer);
        if (tensor->dtype == BT_DTYPE_BOOL) {
            bt_json_bool(json, NULL, integer != 0);
        } else {
            bt_json_i64(json, NULL, integer);
        }
    }
    (void)status; /* each type was read with its own function */
}

static void put_data(bt_json_t *json, const bt_tensor_t *tensor)
{
    const uint64_t n = bt_tensor_elements(tensor);
    const char *text;
    size_t bytes;
    size_t at = 0;

    if (tensor->dtype != BT_DTYPE_BYTES) {
        bt_json_array_of(json, "data", 0, (size_t)n, put_value, tensor, NULL);
        return;
    }
    bt_json_array(json, "data");
    while (bt_tensor_next_bytes(tensor, &at, &text, &bytes)) {
        bt_json_strn(json, NULL, text, bytes);
    }
    bt_json_end_array(json);
}

static void put_region(bt_json_t *json, const bt_infer_region_t *region,
                       const bt_tensor_t *tensor)
{
    bt_json_object(json, "parameters");
    bt_json_str(json, "shared_memory_region", region->name);
    if (region->offset > 0) {
        bt_json_u64(json, "shared_memory_offset", region->offset);
    }
    bt_json_u64(json, "shared_memory_byte_size", tensor->bytes);
    bt_json_end_object(json);
}

static void put_output(bt_json_t *json, const bt_tensor_t *tensor, bool raw,
                       const bt_infer_region_t *region)
{
    bt_json_object(json, NULL);
    bt_json_str(json, "name", tensor->name);
    bt_json_str(json, "datatype", bt_dtype_name(tensor->dtype));
    put_shape(json, tensor);
    if (region != NULL) {
        put_region(json, region, tensor);
    } else if (raw) {
        bt_json_object(json, "parameters");
        bt_json_u64(json, "binary_data_size", tensor->bytes);
        bt_json_end_object(json);
    } else {
        put_data(json, tensor);
    }
    bt_json_end_object(json);
}

bool bt_infer_put_json(const bt_infer_response_t *response, bt_json_t *json)
{
    bool any_raw = false;

    bt_json_object(json, NULL);
    if (response->id[0] != '\0') {
        bt_json_str(json, "id", response->id);
    }
    bt_json_str(json, "model_name", response->model);
    bt_json_str(json, "model_version", response->version);
    if (response->weight_version != NULL) {
        bt_json_object(json, "parameters");
        bt_json_str(json, "weight_version", response->weight_version);
        bt_json_end_object(json);
    }
    bt_json_array(json, "outputs");
    for (size_t i = 0; i < response->n_outputs; i++) {
        const bt_tensor_t *tensor = &response->outputs[i];
        const bool raw = bt_infer_is_raw(response->request, tensor->name);

        any_raw = any_raw || raw;
        put_output(json, tensor, raw,
                   bt_infer_output_region(response->request, tensor->name));
    }
    bt_json_end_array(json);
    bt_json_end_object(json);
    return any_raw;
}

void bt_infer_append_raw(const bt_infer_response_t *response, bt_strbuf_t *out)
{
    for (size_t i = 0; i < response->n_outputs; i++) {
        const bt_tensor_t *tensor = &response->outputs[i];

        if (bt_infer_is_raw(response->request, tensor->name)) {
            bt_strbuf_append(out, tensor->data, tensor->bytes);
        }
    }
}
