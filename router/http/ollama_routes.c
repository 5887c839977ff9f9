/* SPDX-License-Identifier: Apache-2.0 */
/* Models as Ollama's clients list, show and manage them. The list does not
 * change by their requests: models are those that the server was started with,
 * or that admin commands load. Source: Ollama's API reference, and the types of
 * its Python package. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/json_doc.h"
#include "common/base/status.h"
#include "router/frontend/served_adapters.h"
#include "router/http/routes_priv.h"

#define MAX_INFO_BYTES 256 /* of a text of the model's file that is shown */

/* A model stays until an operator unloads it: as Ollama's keep_alive -1. */
#define NEVER "2318-01-01T00:00:00Z"

/* ---- what a model is ---- */

/* Names of GGUF's general.file_type, from llama.cpp's enum llama_ftype. */
static const char *const file_types[] = {
    [0] = "F32",     [1] = "F16",     [2] = "Q4_0",    [3] = "Q4_1",
    [7] = "Q8_0",    [8] = "Q5_0",    [9] = "Q5_1",    [10] = "Q2_K",
    [11] = "Q3_K_S", [12] = "Q3_K_M", [13] = "Q3_K_L", [14] = "Q4_K_S",
    [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M", [18] = "Q6_K",
    [32] = "BF16"};

/* Weights of a model: how many, and the tensor type that most of them have. */
typedef struct weights {
    uint64_t n;
    uint32_t type;
} weights_t;

static weights_t weights_of(const bt_gguf_t *gguf)
{
    weights_t all = {0};
    uint64_t most = 0;
    uint64_t by_type[64] = {0};

    for (uint64_t i = 0; i < bt_gguf_n_tensors(gguf); i++) {
        const bt_gguf_tensor_t *tensor = bt_gguf_tensor_at(gguf, i);
        uint64_t n = 1;

        for (size_t k = 0; k < BT_GGUF_MAX_DIMS; k++) {
            n *= tensor->dims[k]; /* of a file that was checked */
        }
        all.n += n;
        if (tensor->type < BT_ARRAY_LEN(by_type)) {
            by_type[tensor->type] += n;
            if (by_type[tensor->type] > most) {
                most = by_type[tensor->type];
                all.type = tensor->type;
            }
        }
    }
    return all;
}

static const char *quantization(const bt_gguf_t *gguf, const weights_t *weights)
{
    uint32_t type = 0;

    if ((bt_gguf_get_u32(gguf, "general.file_type", &type) == BT_OK) &&
        (type < BT_ARRAY_LEN(file_types)) && (file_types[type] != NULL)) {
        return file_types[type];
    }
    return bt_gguf_type_name(weights->type);
}

/* Writes a number as Ollama does: "7.6B", "134.52M". */
static void format_count(uint64_t n, char text[32])
{
    const double billions = (double)n / 1e9;
    const double millions = (double)n / 1e6;

    if (n >= 1000000000) {
        snprintf(text, 32, "%.*fB", (floor(billions) < billions) ? 1 : 0,
                 billions);
    } else if (n >= 1000000) {
        snprintf(text, 32, "%.*fM", (floor(millions) < millions) ? 2 : 0,
                 millions);
    } else if (n >= 1000) {
        snprintf(text, 32, "%.0fK", (double)n / 1e3);
    } else {
        snprintf(text, 32, "%" PRIu64, n);
    }
}

static bt_gguf_str_t architecture(const bt_gguf_t *gguf)
{
    bt_gguf_str_t arch = {.data = "unknown", .len = 7};

    (void)!bt_gguf_get_str(gguf, "general.architecture", &arch);
    return arch;
}

static void put_details(const bt_served_entry_t *entry, bt_json_t *json)
{
    const bt_served_t *const served = entry->served;
    const bt_gguf_str_t arch = architecture(served->gguf);
    const weights_t weights = weights_of(served->gguf);
    char count[32];

    format_count(weights.n, count);
    bt_json_object(json, "details");
    bt_json_str(json, "parent_model",
                (entry->adapter != NULL) ? served->name : "");
    bt_json_str(json, "format", "gguf");
    bt_json_strn(json, "family", arch.data, arch.len);
    bt_json_array(json, "families");
    bt_json_strn(json, NULL, arch.data, arch.len);
    bt_json_end_array(json);
    bt_json_str(json, "parameter_size", count);
    bt_json_str(json, "quantization_level",
                quantization(served->gguf, &weights));
    bt_json_end_object(json);
}

/* Writes the members by which a list names a model; its object stays open. */
static void open_model(const bt_served_entry_t *entry, bt_json_t *json)
{
    const bt_served_t *const served = entry->served;
    const char *const name = bt_served_entry_name(entry);
    const bt_hash128_t id =
        (entry->adapter != NULL) ? entry->adapter->digest : served->identity;
    char digest[33];

    snprintf(digest, sizeof(digest), "%016" PRIx64 "%016" PRIx64, id.hi, id.lo);
    bt_json_object(json, NULL);
    bt_json_str(json, "name", name);
    bt_json_str(json, "model", name);
    bt_json_u64(json, "size", bt_gguf_bytes(served->gguf));
    bt_json_str(json, "digest", digest);
    put_details(entry, json);
}

static int64_t created(const bt_served_entry_t *entry)
{
    return (entry->adapter != NULL) ? entry->adapter->created
                                    : entry->served->created;
}

/* ---- lists ---- */

static void list(bt_http_request_t *r, bool running)
{
    char time[BT_API_TIME_BYTES];
    bt_served_entry_t *entries = NULL;
    size_t n = 0;
    bt_json_t json;

    if (bt_served_list(&r->door->front->models, r->base.tenant, &entries, &n) !=
        BT_OK) {
        bt_http_request_refuse(r, 503, "out of memory for this answer");
        return;
    }
    bt_http_request_begin_json(r, &json);
    bt_json_object(&json, NULL);
    bt_json_array(&json, "models");
    for (size_t i = 0; i < n; i++) {
        const bt_served_t *const served = entries[i].served;

        if (served->unloaded || (running && !bt_served_ready(served))) {
            continue;
        }
        open_model(&entries[i], &json);
        if (running) {
            bt_json_str(&json, "expires_at", NEVER);
            bt_json_u64(&json, "context_length",
                        bt_served_context_tokens(served));
        } else {
            bt_json_str(&json, "modified_at",
                        bt_api_format_time(created(&entries[i]), time));
        }
        bt_json_end_object(&json);
    }
    bt_free(entries);
    bt_json_end_array(&json);
    bt_json_end_object(&json);
    bt_http_request_respond_json(r);
}

void bt_route_ollama_tags(bt_http_request_t *r)
{
    list(r, false);
}

void bt_route_ollama_ps(bt_http_request_t *r)
{
    list(r, true);
}

/* ---- one model ---- */

/* Writes the sampling defaults as lines of a Modelfile. */
static void put_parameters(const bt_served_t *served, bt_json_t *json)
{
    const bt_sampling_defaults_t *s = &served->sampling;
    char text[256];

    snprintf(text, sizeof(text),
             "min_p %g\nrepeat_penalty %g\ntemperature %g\ntop_k %u\ntop_p %g",
             (double)s->min_p, (double)s->repetition_penalty,
             (double)s->temperature, s->top_k, (double)s->top_p);
    bt_json_str(json, "parameters", text);
}

/* Writes a value of the model's file, unless it is an array or a long text.
 * @return false: it was not written */
static void put_info(const bt_gguf_t *gguf, const bt_gguf_pair_t *pair,
                     bt_json_t *json)
{
    bt_gguf_str_t text = {0};
    uint64_t whole = 0;
    float real = 0.0f;
    bool truth = false;
    char key[MAX_INFO_BYTES];

    if (pair->is_array || (pair->key.len >= sizeof(key))) {
        return;
    }
    memcpy(key, pair->key.data, pair->key.len);
    key[pair->key.len] = '\0';
    if (bt_gguf_get_str(gguf, key, &text) == BT_OK) {
        if (text.len <= MAX_INFO_BYTES) {
            bt_json_key(json, key, pair->key.len);
            bt_json_strn(json, NULL, text.data, text.len);
        }
    } else if (bt_gguf_get_bool(gguf, key, &truth) == BT_OK) {
        bt_json_key(json, key, pair->key.len);
        bt_json_bool(json, NULL, truth);
    } else if (bt_gguf_get_u64(gguf, key, &whole) == BT_OK) {
        bt_json_key(json, key, pair->key.len);
        bt_json_u64(json, NULL, whole);
    } else if (bt_gguf_get_f32(gguf, key, &real) == BT_OK) {
        bt_json_key(json, key, pair->key.len);
        bt_json_float(json, NULL, real);
    }
}

static void put_model_info(const bt_served_t *served, bt_json_t *json)
{
    const weights_t weights = weights_of(served->gguf);

    bt_json_object(json, "model_info");
    bt_json_u64(json, "general.parameter_count", weights.n);
    for (uint64_t i = 0; i < bt_gguf_n_pairs(served->gguf); i++) {
        const bt_gguf_pair_t pair = bt_gguf_pair_at(served->gguf, i);

        put_info(served->gguf, &pair, json);
    }
    bt_json_end_object(json);
}

static void put_capabilities(const bt_served_t *served, bt_json_t *json)
{
    bt_json_array(json, "capabilities");
    bt_json_str(json, NULL, "completion");
    if ((served->tools != NULL) &&
        (served->shows_tools || served->tools_as_text)) {
        bt_json_str(json, NULL, "tools");
    }
    if (served->reason != NULL) {
        bt_json_str(json, NULL, "thinking");
    }
    bt_json_end_array(json);
}

static void respond_model(bt_http_request_t *r, const bt_served_entry_t *entry)
{
    const bt_served_t *const served = entry->served;
    char time[BT_API_TIME_BYTES];
    bt_json_t json;

    bt_http_request_begin_json(r, &json);
    bt_json_object(&json, NULL);
    put_parameters(served, &json);
    put_details(entry, &json);
    put_model_info(served, &json);
    put_capabilities(served, &json);
    bt_json_str(&json, "modified_at", bt_api_format_time(created(entry), time));
    bt_json_end_object(&json);
    bt_http_request_respond_json(r);
}

/* Reads the name in a body: its member model, or the older name.
 * @retval others  error_p is filled */
static bt_status_t read_name(const bt_strbuf_t *body,
                             char name[BT_API_MAX_NAME_BYTES + 1],
                             bt_api_error_t *error_p)
{
    bt_json_doc_t *doc = NULL;
    const bt_json_node_t *value;
    bt_json_fault_t fault;
    bt_status_t status =
        bt_json_doc_parse_client((body->len > 0) ? body->data : "", body->len,
                                 BT_API_MAX_VALUES, &fault, &doc);

    if (status == BT_ERR_NO_MEMORY) {
        return bt_api_error_no_memory(error_p);
    }
    if (status != BT_OK) {
        return bt_api_error_invalid(error_p, NULL,
                                    "the body is not valid JSON at byte %zu: "
                                    "%s",
                                    fault.at, fault.what);
    }
    value = bt_json_get(doc, bt_json_doc_root(doc), "model");
    if (value == NULL) {
        value = bt_json_get(doc, bt_json_doc_root(doc), "name");
    }
    if (bt_json_is_kind(value, BT_JSON_STRING) && (value->len > 0) &&
        (value->len <= BT_API_MAX_NAME_BYTES)) {
        memcpy(name, value->text, value->len);
        name[value->len] = '\0';
    } else {
        status = bt_api_error_invalid(error_p, "model",
                                      "model must be a string of 1 to %d bytes",
                                      BT_API_MAX_NAME_BYTES);
    }
    bt_json_doc_free(doc);
    return status;
}

void bt_route_ollama_show(bt_http_request_t *r)
{
    char name[BT_API_MAX_NAME_BYTES + 1] = "";
    bt_served_entry_t entry = {.served = NULL};
    bt_api_error_t error = {0};
    bt_strbuf_t body;
    const size_t held = bt_exchange_take_body(r->ex, &body);
    bt_status_t status = bt_unpack_short(r->ex, &body, &error);

    if (status == BT_OK) {
        status = read_name(&body, name, &error);
    }
    bt_strbuf_fini(&body);
    bt_http_give_back(r->door->http, held);
    if ((status == BT_OK) && bt_served_find(&r->door->front->models, name,
                                            r->base.tenant, true, &entry)) {
        respond_model(r, &entry);
        return;
    }
    if (status == BT_OK) {
        bt_registry_refuse(&r->door->front->models, name, &error);
    }
    bt_http_request_fail(r, &error);
}

/* ---- what is not here ---- */

void bt_route_ollama_refuse(bt_http_request_t *r)
{
    bt_http_request_refuse(r, 501,
                           "models cannot be pulled, pushed, created, copied "
                           "or deleted here: they are those that the server "
                           "was started with");
}

void bt_route_ollama_embed(bt_http_request_t *r)
{
    bt_http_request_refuse(r, 501, "there are no embeddings yet");
}
