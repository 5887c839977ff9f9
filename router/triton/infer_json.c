/* SPDX-License-Identifier: Apache-2.0 */
#include "router/triton/infer_json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "common/base/alloc.h"
#include "common/base/json.h"
#include "common/base/json_doc.h"
#include "router/triton/json_in.h"

#define INVALID       "invalid_request_error"
#define SCRATCH_BYTES 384 /* longer than any known key or name */

/* ---- reading ---- */

/* Position of an input's data. */
typedef struct place {
    bool has_data;
    bt_json_in_t data; /* before the value */
    bool has_size;     /* raw, after the JSON */
    uint64_t size;
} place_t;

typedef struct parse {
    bt_json_in_t in;
    const char *raw; /* raw data of the next inputs */
    size_t raw_bytes;
    bt_infer_request_t *request;
    bt_api_error_t *error;
    bt_status_t status;  /* first error, or BT_OK; the error is filled */
    bt_strbuf_t scratch; /* a key or a name; fixed size */
} parse_t;

#define REFUSE(parse, ...)                                                     \
    do {                                                                       \
        if ((parse)->status == BT_OK) {                                        \
            (parse)->status = BT_ERR_INVALID_PARAM;                            \
            bt_api_error_set((parse)->error, 400, INVALID, NULL, __VA_ARGS__); \
        }                                                                      \
    } while (0)

static void no_memory(parse_t *parse)
{
    if (parse->status == BT_OK) {
        parse->status = BT_ERR_NO_MEMORY;
        bt_api_error_set(parse->error, 503, "server_error", NULL,
                         "out of memory for this request, try again later");
    }
}

/* True while there is no error; reports the JSON reader's. */
static bool fine(parse_t *parse)
{
    if (parse->in.why != NULL) {
        REFUSE(parse,
               "failed to parse the request JSON buffer: %s, at byte %zu",
               parse->in.why, parse->in.at);
    }
    return parse->status == BT_OK;
}

/* Reads a short string into its own memory. */
static void read_name(parse_t *parse, const char *what, char *out, size_t size)
{
    bt_strbuf_reset(&parse->scratch);
    bt_json_in_string(&parse->in, &parse->scratch);
    if (!fine(parse)) {
        return;
    }
    if ((parse->scratch.status != BT_OK) || (parse->scratch.len >= size) ||
        ((parse->scratch.len > 0) &&
         (strlen(parse->scratch.data) != parse->scratch.len))) {
        REFUSE(parse, "%s has more than %zu bytes, or a zero among them", what,
               size - 1);
        return;
    }
    memset(out, 0, size);
    if (parse->scratch.len > 0) {
        memcpy(out, parse->scratch.data, parse->scratch.len);
    }
}

/* Number of bytes of a number's text to print. */
static int shown(const bt_json_number_t *number)
{
    return (number->bytes > 64) ? 64 : (int)number->bytes;
}

static uint64_t read_size(parse_t *parse, const char *what)
{
    bt_json_number_t number;

    bt_json_in_number(&parse->in, &number);
    if (fine(parse) && (!number.is_integer || number.negative)) {
        REFUSE(parse, "%s must be an integer from 0 to %" PRIu64 ", got %.*s",
               what, UINT64_MAX, shown(&number), number.text);
    }
    return number.magnitude;
}

static void read_text_param(parse_t *parse, bt_infer_param_t *param)
{
    bt_strbuf_t text;

    bt_strbuf_init(&text, parse->in.bytes + 1);
    bt_json_in_string(&parse->in, &text);
    param->kind = BT_INFER_STRING;
    param->text =
        (text.len > 0) ? bt_memdup(text.data, text.len) : bt_strdup("");
    if ((bt_strbuf_status(&text) != BT_OK) || (param->text == NULL)) {
        no_memory(parse);
    }
    bt_strbuf_fini(&text);
}

static void read_number_param(parse_t *parse, bt_infer_param_t *param)
{
    bt_json_number_t number;

    bt_json_in_number(&parse->in, &number);
    param->real = number.real;
    param->kind = BT_INFER_DOUBLE;
    if (number.is_integer) {
        const int64_t size = (number.magnitude > INT64_MAX)
                                 ? INT64_MAX
                                 : (int64_t)number.magnitude;

        param->kind = BT_INFER_INT;
        param->integer = number.negative ? -size : size;
    }
}

/* Objects and arrays are not valid parameters, and are ignored. */
static void read_param(parse_t *parse, bt_infer_params_t *params)
{
    bt_infer_param_t *param = NULL;
    const bt_json_in_kind_t kind = bt_json_in_peek(&parse->in);
    bt_status_t status;

    if ((kind != BT_JSON_IN_STRING) && (kind != BT_JSON_IN_NUMBER) &&
        (kind != BT_JSON_IN_BOOL)) {
        bt_json_in_skip(&parse->in);
        return;
    }
    status =
        (bt_strbuf_status(&parse->scratch) != BT_OK)
            ? BT_ERR_TOO_LARGE
            : bt_infer_param_add(
                  params, (parse->scratch.len > 0) ? parse->scratch.data : "",
                  parse->scratch.len, &param);
    if (status == BT_ERR_NO_MEMORY) {
        no_memory(parse);
    } else if (status != BT_OK) {
        REFUSE(parse,
               "more than %d parameters, or a name of more than %d bytes",
               BT_INFER_MAX_PARAMS, BT_TENSOR_NAME_BYTES - 1);
    }
    if (status != BT_OK) {
        return;
    }
    if (kind == BT_JSON_IN_STRING) {
        read_text_param(parse, param);
    } else if (kind == BT_JSON_IN_NUMBER) {
        read_number_param(parse, param);
    } else {
        param->kind = BT_INFER_BOOL;
        param->boolean = bt_json_in_bool(&parse->in);
    }
}

static bool key_is(const parse_t *parse, const char *name)
{
    return (parse->scratch.status == BT_OK) && (parse->scratch.len > 0) &&
           (strcmp(parse->scratch.data, name) == 0);
}

/* Reads the next key of an object into the scratch. */
static bool next_key(parse_t *parse, bool *first)
{
    if (!fine(parse)) {
        return false;
    }
    if (bt_json_in_key(&parse->in, first, &parse->scratch)) {
        return true;
    }
    (void)fine(parse);
    return false;
}

/* ---- the data of an input, in JSON ---- */

/* State while a tensor's elements are filled. */
typedef struct fill {
    parse_t *parse;
    bt_tensor_t *tensor;
    uint64_t n, count;   /* elements so far, and in total */
    uint8_t *at;         /* all datatypes but BYTES */
    bt_strbuf_t strings; /* BYTES */
} fill_t;

static bool number_fits(bt_dtype_t dtype, const bt_json_number_t *number)
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
static bool seed_of(const bt_tensor_t *tensor, const bt_json_number_t *number,
                    uint64_t *seed_p)
{
    const bt_json_node_t node = {.text = number->text,
                                 .len = (uint32_t)number->bytes,
                                 .kind = BT_JSON_NUMBER};
    bt_json_whole_t whole;

    if ((strcasecmp(tensor->name, "random_seed") != 0) ||
        (bt_dtype_bytes(tensor->dtype) != sizeof(*seed_p)) ||
        !bt_json_as_whole(&node, &whole)) {
        return false;
    }
    *seed_p = whole.negative ? 0 - whole.magnitude : whole.magnitude;
    return true;
}

static void put_integer(fill_t *fill, bt_json_number_t *number)
{
    const bt_tensor_t *tensor = fill->tensor;
    uint64_t bits;

    if (seed_of(tensor, number, &bits)) {
        memcpy(fill->at, &bits, sizeof(bits));
        fill->at += sizeof(bits);
        return;
    }

    if (!number->is_integer && (number->real == floor(number->real)) &&
        (fabs(number->real) < 0x1p63)) {
        number->is_integer = true; /* 3.0 is an integer */
        number->magnitude = (uint64_t)fabs(number->real);
    }
    if (!number->is_integer || !number_fits(tensor->dtype, number)) {
        REFUSE(fill->parse, "input '%s': %.*s is no value of datatype %s",
               tensor->name, shown(number), number->text,
               bt_dtype_name(tensor->dtype));
        return;
    }
    bits = number->negative ? 0 - number->magnitude : number->magnitude;
    memcpy(fill->at, &bits, bt_dtype_bytes(tensor->dtype));
    fill->at += bt_dtype_bytes(tensor->dtype);
}

static void put_real(fill_t *fill, const bt_json_number_t *number)
{
    const bt_tensor_t *tensor = fill->tensor;
    const bool wide = tensor->dtype == BT_DTYPE_FP64;
    const float single = (float)number->real;

    if (wide ? !isfinite(number->real) : !isfinite(single)) {
        REFUSE(fill->parse, "input '%s': %.*s is no value of datatype %s",
               tensor->name, shown(number), number->text,
               bt_dtype_name(tensor->dtype));
    } else if (wide) {
        memcpy(fill->at, &number->real, sizeof(number->real));
        fill->at += sizeof(number->real);
    } else {
        memcpy(fill->at, &single, sizeof(single));
        fill->at += sizeof(single);
    }
}

static void put_string(fill_t *fill)
{
    parse_t *parse = fill->parse;
    const size_t from = fill->strings.len;
    uint32_t bytes = 0;

    bt_strbuf_append(&fill->strings, &bytes, sizeof(bytes));
    bt_json_in_string(&parse->in, &fill->strings);
    if (bt_strbuf_status(&fill->strings) != BT_OK) {
        no_memory(parse);
        return;
    }
    bytes = (uint32_t)(fill->strings.len - from - sizeof(bytes));
    memcpy(fill->strings.data + from, &bytes, sizeof(bytes));
}

static void put_bool(fill_t *fill)
{
    bt_json_number_t number;

    if (bt_json_in_peek(&fill->parse->in) == BT_JSON_IN_NUMBER) {
        bt_json_in_number(&fill->parse->in, &number);
        *fill->at++ = number.real != 0.0;
    } else {
        *fill->at++ = bt_json_in_bool(&fill->parse->in);
    }
}

/* Stores one value that is not an array. */
static void put_element(fill_t *fill)
{
    parse_t *parse = fill->parse;
    bt_json_number_t number;

    if (fill->n++ == fill->count) {
        REFUSE(parse,
               "unable to parse 'data': input '%s' has more than the %" PRIu64
               " elements of its shape",
               fill->tensor->name, fill->count);
        return;
    }
    if (fill->tensor->dtype == BT_DTYPE_BYTES) {
        put_string(fill);
        return;
    }
    if (fill->tensor->dtype == BT_DTYPE_BOOL) {
        put_bool(fill);
        return;
    }
    bt_json_in_number(&parse->in, &number);
    if (!fine(parse)) {
        return;
    }
    if (bt_dtype_is_float(fill->tensor->dtype)) {
        put_real(fill, &number);
    } else {
        put_integer(fill, &number);
    }
}

/* Stores nested arrays, row-major; their shape is not checked. */
static void put_elements(fill_t *fill)
{
    parse_t *parse = fill->parse;
    bool first[BT_JSON_IN_MAX_DEPTH + 1];
    size_t n = 0;

    do {
        if (bt_json_in_peek(&parse->in) == BT_JSON_IN_ARRAY) {
            bt_json_in_enter(&parse->in, BT_JSON_IN_ARRAY);
            first[n++] = true;
        } else {
            put_element(fill);
        }
        while (fine(parse) && (n > 0) &&
               !bt_json_in_next(&parse->in, &first[n - 1])) {
            n--;
        }
    } while (fine(parse) && (n > 0));
}

static void own_strings(fill_t *fill)
{
    fill->tensor->owned = fill->strings.data;
    fill->tensor->data = fill->strings.data;
    fill->tensor->bytes = fill->strings.len;
    bt_strbuf_init(&fill->strings, 0);
}

/* Fills a tensor from the JSON value at `place`. The reader's position is
 * restored. */
static void fill_from_json(parse_t *parse, const place_t *place,
                           bt_tensor_t *tensor, uint64_t count)
{
    const bt_json_in_t after = parse->in;
    fill_t fill = {.parse = parse, .tensor = tensor, .count = count};

    if ((tensor->dtype == BT_DTYPE_FP16) || (tensor->dtype == BT_DTYPE_BF16)) {
        REFUSE(parse,
               "receiving %s data via JSON is not supported, use the binary "
               "data format for input '%s'",
               bt_dtype_name(tensor->dtype), tensor->name);
        return;
    }
    /* An element takes at least one byte of text. */
    if (count > parse->in.bytes) {
        REFUSE(parse,
               "unable to parse 'data': input '%s' has fewer than the %" PRIu64
               " elements of its shape",
               tensor->name, count);
        return;
    }
    bt_strbuf_init(&fill.strings, SIZE_MAX / 4);
    if (tensor->dtype != BT_DTYPE_BYTES) {
        tensor->bytes = (size_t)count * bt_dtype_bytes(tensor->dtype);
        tensor->owned = bt_calloc(tensor->bytes + 1, 1);
        tensor->data = tensor->owned;
        fill.at = tensor->owned;
        if (fill.at == NULL) {
            no_memory(parse);
            return;
        }
    }
    parse->in = place->data;
    put_elements(&fill);
    if (fine(parse) && (fill.n != count)) {
        REFUSE(parse,
               "unable to parse 'data': input '%s' has %" PRIu64
               " elements, but its shape says %" PRIu64,
               tensor->name, fill.n, count);
    }
    if (tensor->dtype == BT_DTYPE_BYTES) {
        own_strings(&fill);
    }
    bt_strbuf_fini(&fill.strings);
    if (parse->status == BT_OK) {
        parse->in = after;
    }
}

/* ---- inputs ---- */

static void take_raw(parse_t *parse, const place_t *place, bt_tensor_t *tensor)
{
    char why[BT_TENSOR_WHY_BYTES];

    if (place->size > parse->raw_bytes) {
        REFUSE(parse,
               "input '%s' has binary_data_size %" PRIu64
               ", but %zu bytes are left "
               "behind the JSON",
               tensor->name, place->size, parse->raw_bytes);
        return;
    }
    tensor->data = (place->size > 0) ? parse->raw : NULL;
    tensor->bytes = (size_t)place->size;
    parse->raw += place->size;
    parse->raw_bytes -= (size_t)place->size;
    if (bt_tensor_check(tensor, why) != BT_OK) {
        REFUSE(parse, "input '%s' %s", tensor->name, why);
    }
}

static void read_shape(parse_t *parse, bt_tensor_t *tensor)
{
    bool first = true;

    bt_json_in_enter(&parse->in, BT_JSON_IN_ARRAY);
    tensor->n_dims = 0;
    while (fine(parse) && bt_json_in_next(&parse->in, &first)) {
        if (tensor->n_dims == BT_TENSOR_MAX_DIMS) {
            REFUSE(parse, "'shape' has more than %d dimensions",
                   BT_TENSOR_MAX_DIMS);
            return;
        }
        tensor->dims[tensor->n_dims++] = read_size(parse, "'shape'");
    }
}

static void read_input_params(parse_t *parse, place_t *place,
                              bt_infer_region_t *region)
{
    bool first = true;

    bt_json_in_enter(&parse->in, BT_JSON_IN_OBJECT);
    while (next_key(parse, &first)) {
        if (key_is(parse, "binary_data_size")) {
            place->size = read_size(parse, "binary_data_size");
            place->has_size = true;
        } else if (key_is(parse, "shared_memory_region")) {
            read_name(parse, "shared_memory_region", region->name,
                      sizeof(region->name));
        } else if (key_is(parse, "shared_memory_offset")) {
            region->offset = read_size(parse, "shared_memory_offset");
        } else if (key_is(parse, "shared_memory_byte_size")) {
            region->bytes = read_size(parse, "shared_memory_byte_size");
        } else {
            bt_json_in_skip(&parse->in);
        }
    }
}

static void read_datatype(parse_t *parse, bt_tensor_t *tensor)
{
    char name[16];

    read_name(parse, "'datatype'", name, sizeof(name));
    if (fine(parse) && !bt_dtype_find(name, strlen(name), &tensor->dtype)) {
        REFUSE(parse, "datatype '%s' is unknown", name);
    }
}

/* @return set of the fields name, datatype and shape that were present. */
static unsigned read_input_fields(parse_t *parse, bt_infer_input_t *input,
                                  place_t *place)
{
    unsigned seen = 0;
    bool first = true;

    bt_json_in_enter(&parse->in, BT_JSON_IN_OBJECT);
    while (next_key(parse, &first)) {
        if (key_is(parse, "name")) {
            read_name(parse, "the name of an input", input->tensor.name,
                      sizeof(input->tensor.name));
            seen |= 1u;
        } else if (key_is(parse, "datatype")) {
            read_datatype(parse, &input->tensor);
            seen |= 2u;
        } else if (key_is(parse, "shape")) {
            read_shape(parse, &input->tensor);
            seen |= 4u;
        } else if (key_is(parse, "parameters")) {
            read_input_params(parse, place, &input->region);
        } else if (key_is(parse, "data")) {
            place->has_data = true;
            place->data = parse->in;
            bt_json_in_skip(&parse->in);
        } else {
            bt_json_in_skip(&parse->in);
        }
    }
    return seen;
}

static void read_input(parse_t *parse, bt_infer_input_t *input)
{
    place_t place = {0};
    uint64_t count = 0;
    const unsigned seen = read_input_fields(parse, input, &place);
    const char *name = input->tensor.name;

    if (!fine(parse)) {
        return;
    }
    if (seen != 7) {
        REFUSE(parse, "unable to find '%s' of input '%s'",
               ((seen & 1) == 0)   ? "name"
               : ((seen & 2) == 0) ? "datatype"
                                   : "shape",
               name);
    } else if (bt_tensor_count(input->tensor.dims, input->tensor.n_dims,
                               &count) != BT_OK) {
        REFUSE(parse, "input '%s' has a shape that is too large", name);
    } else if (input->region.name[0] != '\0') {
        return; /* read with the region later */
    } else if (place.has_size) {
        take_raw(parse, &place, &input->tensor);
    } else if (place.has_data) {
        fill_from_json(parse, &place, &input->tensor, count);
    } else {
        REFUSE(parse, "unable to find 'data' of input '%s'", name);
    }
}

static void read_inputs(parse_t *parse)
{
    bt_infer_request_t *request = parse->request;
    bool first = true;

    if (request->inputs != NULL) {
        REFUSE(parse, "'inputs' is there twice");
        return;
    }
    bt_json_in_enter(&parse->in, BT_JSON_IN_ARRAY);
    if (!fine(parse)) {
        return;
    }
    request->inputs = bt_calloc(BT_INFER_MAX_INPUTS, sizeof(*request->inputs));
    if (request->inputs == NULL) {
        no_memory(parse);
        return;
    }
    while (fine(parse) && bt_json_in_next(&parse->in, &first)) {
        if (request->n_inputs == BT_INFER_MAX_INPUTS) {
            REFUSE(parse, "more than %d inputs", BT_INFER_MAX_INPUTS);
            return;
        }
        read_input(parse, &request->inputs[request->n_inputs++]);
    }
}

/* ---- outputs that are named, and the whole ---- */

static void read_wanted_params(parse_t *parse, bt_infer_wanted_t *wanted)
{
    bool first = true;

    bt_json_in_enter(&parse->in, BT_JSON_IN_OBJECT);
    while (next_key(parse, &first)) {
        if (key_is(parse, "binary_data")) {
            wanted->binary = bt_json_in_bool(&parse->in);
        } else if (key_is(parse, "classification")) {
            /* Rejected by name, unless off. */
            if (read_size(parse, "classification") > 0) {
                REFUSE(parse, "output '%s': classification is not supported",
                       wanted->name);
            }
        } else if (key_is(parse, "shared_memory_region")) {
            read_name(parse, "shared_memory_region", wanted->region.name,
                      sizeof(wanted->region.name));
        } else if (key_is(parse, "shared_memory_offset")) {
            wanted->region.offset = read_size(parse, "shared_memory_offset");
        } else if (key_is(parse, "shared_memory_byte_size")) {
            wanted->region.bytes = read_size(parse, "shared_memory_byte_size");
        } else {
            bt_json_in_skip(&parse->in);
        }
    }
}

static void read_wanted(parse_t *parse, bt_infer_wanted_t *wanted)
{
    bool first = true;

    /* Settings of the whole request are read before, or set afterwards. */
    bt_json_in_enter(&parse->in, BT_JSON_IN_OBJECT);
    while (next_key(parse, &first)) {
        if (key_is(parse, "name")) {
            read_name(parse, "the name of an output", wanted->name,
                      sizeof(wanted->name));
        } else if (key_is(parse, "parameters")) {
            read_wanted_params(parse, wanted);
        } else {
            bt_json_in_skip(&parse->in);
        }
    }
    if (fine(parse) && (wanted->name[0] == '\0')) {
        REFUSE(parse, "unable to find 'name' of an output");
    }
}

static void read_outputs(parse_t *parse)
{
    bt_infer_request_t *request = parse->request;
    bool first = true;

    if (request->wanted != NULL) {
        REFUSE(parse, "'outputs' is there twice");
        return;
    }
    bt_json_in_enter(&parse->in, BT_JSON_IN_ARRAY);
    if (!fine(parse)) {
        return;
    }
    request->wanted = bt_calloc(BT_INFER_MAX_OUTPUTS, sizeof(*request->wanted));
    if (request->wanted == NULL) {
        no_memory(parse);
        return;
    }
    while (fine(parse) && bt_json_in_next(&parse->in, &first)) {
        if (request->n_wanted == BT_INFER_MAX_OUTPUTS) {
            REFUSE(parse, "more than %d outputs", BT_INFER_MAX_OUTPUTS);
            return;
        }
        read_wanted(parse, &request->wanted[request->n_wanted++]);
    }
}

static void read_params(parse_t *parse)
{
    bool first = true;

    bt_json_in_enter(&parse->in, BT_JSON_IN_OBJECT);
    while (next_key(parse, &first)) {
        read_param(parse, &parse->request->params);
    }
}

static void read_root(parse_t *parse)
{
    bool first = true;

    bt_json_in_enter(&parse->in, BT_JSON_IN_OBJECT);
    while (next_key(parse, &first)) {
        if (bt_json_in_peek(&parse->in) == BT_JSON_IN_NULL) {
            bt_json_in_skip(&parse->in); /* null means absent */
        } else if (key_is(parse, "id")) {
            read_name(parse, "'id'", parse->request->id,
                      sizeof(parse->request->id));
        } else if (key_is(parse, "parameters")) {
            read_params(parse);
        } else if (key_is(parse, "inputs")) {
            read_inputs(parse);
        } else if (key_is(parse, "outputs")) {
            read_outputs(parse);
        } else {
            bt_json_in_skip(&parse->in);
        }
    }
    bt_json_in_end(&parse->in);
    if (fine(parse) && (parse->request->inputs == NULL)) {
        REFUSE(parse, "failed to parse the request JSON buffer: unable to "
                      "find 'inputs'");
    }
    if (fine(parse) && (parse->raw_bytes > 0)) {
        REFUSE(parse,
               "%zu bytes behind the JSON belong to no input: each raw input "
               "needs its binary_data_size",
               parse->raw_bytes);
    }
}

static void find_binary(bt_infer_request_t *request)
{
    const bt_infer_param_t *param =
        bt_infer_param(&request->params, "binary_data_output");

    request->binary =
        (param != NULL) && (param->kind == BT_INFER_BOOL) && param->boolean;
}

/* Splits the body into JSON and raw data. */
static void split(parse_t *parse, const bt_infer_http_t *http,
                  const bt_strbuf_t *body)
{
    const char *text = (body->data != NULL) ? body->data : "";
    size_t json_bytes = body->len;

    if (http->has_json_bytes) {
        if (http->json_bytes > body->len) {
            REFUSE(parse,
                   BT_INFER_LENGTH_HEADER " is %" PRIu64
                                          ", but the body has %zu "
                                          "bytes",
                   http->json_bytes, body->len);
            return;
        }
        json_bytes = (size_t)http->json_bytes;
    }
    bt_json_in_init(&parse->in, text, json_bytes);
    parse->raw = text + json_bytes;
    parse->raw_bytes = body->len - json_bytes;
}

bt_status_t bt_infer_parse_json(const void *http, bt_strbuf_t *body,
                                bt_infer_request_t *request_p,
                                bt_api_error_t *error_p)
{
    bt_infer_request_t request = {0};
    parse_t parse = {.request = &request, .error = error_p};
    char scratch[SCRATCH_BYTES];

    bt_strbuf_init_fixed(&parse.scratch, scratch, sizeof(scratch));
    split(&parse, http, body);
    if (parse.status == BT_OK) {
        read_root(&parse);
    }
    if (parse.status != BT_OK) {
        bt_infer_request_fini(&request);
        return parse.status;
    }
    find_binary(&request);
    if (parse.raw != parse.in.text + parse.in.bytes) {
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

static void put_place(bt_json_t *json, const bt_infer_region_t *place,
                      const bt_tensor_t *tensor)
{
    bt_json_object(json, "parameters");
    bt_json_str(json, "shared_memory_region", place->name);
    if (place->offset > 0) {
        bt_json_u64(json, "shared_memory_offset", place->offset);
    }
    bt_json_u64(json, "shared_memory_byte_size", tensor->bytes);
    bt_json_end_object(json);
}

static void put_output(bt_json_t *json, const bt_tensor_t *tensor, bool raw,
                       const bt_infer_region_t *place)
{
    bt_json_object(json, NULL);
    bt_json_str(json, "name", tensor->name);
    bt_json_str(json, "datatype", bt_dtype_name(tensor->dtype));
    put_shape(json, tensor);
    if (place != NULL) {
        put_place(json, place, tensor);
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
    bt_json_array(json, "outputs");
    for (size_t i = 0; i < response->n_outputs; i++) {
        const bt_tensor_t *tensor = &response->outputs[i];
        const bool raw = bt_infer_is_raw(response->request, tensor->name);

        any_raw = any_raw || raw;
        put_output(json, tensor, raw,
                   bt_infer_place(response->request, tensor->name));
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

void bt_infer_write_json(const bt_infer_response_t *response, bt_strbuf_t *out,
                         size_t *json_bytes_p)
{
    const size_t from = out->len;
    bool any_raw;
    bt_json_t json;

    bt_json_init(&json, out);
    any_raw = bt_infer_put_json(response, &json);
    *json_bytes_p = any_raw ? out->len - from : 0;
    bt_infer_append_raw(response, out);
}
