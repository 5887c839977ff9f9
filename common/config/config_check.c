/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of the options, the first or all; and the effective values with
 * their sources. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/json_doc.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/config/config_options.h"

#define TEXT_BYTES  1024
#define VALUE_BYTES 16384
#define WHERE_BYTES 8192

/* ---- errors and notes ---- */

static void keep(bt_config_findings_t *findings, bool is_error,
                 const char *text)
{
    bt_config_finding_t *const list = bt_realloc_array(
        findings->list, (size_t)findings->n + 1, sizeof(*list));

    if (list == NULL) {
        findings->are_cut = true;
        return;
    }
    findings->list = list;
    list[findings->n] =
        (bt_config_finding_t){.is_error = is_error, .text = bt_strdup(text)};
    if (list[findings->n].text == NULL) {
        findings->are_cut = true;
        return;
    }
    findings->n++;
}

/* Kept, if all are collected; else printed. */
__attribute__((format(printf, 3, 0))) static void
tell(const bt_config_store_t *store, bool is_error, const char *fmt,
     va_list args)
{
    char text[TEXT_BYTES];

    vsnprintf(text, sizeof(text), fmt, args);
    if (store->findings != NULL) {
        keep(store->findings, is_error, text);
    } else {
        fprintf(stderr, "%s: %s%s\n", bt_config_program_name(store->program),
                is_error ? "" : "note: ", text);
    }
}

void bt_config_complain(const bt_config_store_t *store, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    tell(store, true, fmt, args);
    va_end(args);
}

void bt_config_note(const bt_config_store_t *store, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    tell(store, false, fmt, args);
    va_end(args);
}

bt_status_t bt_config_log_findings(const bt_config_store_t *store)
{
    const bt_config_finding_t *finding;
    bt_status_t status = BT_OK;

    for (uint32_t i = 0; (finding = bt_config_finding(store, i)) != NULL; i++) {
        if (finding->is_error) {
            BT_LOG_ERROR("%s", finding->text);
            status = BT_ERR_INVALID_PARAM;
        }
    }
    return status;
}

bt_status_t bt_config_go_on(const bt_config_store_t *store, bt_status_t status)
{
    if ((store->findings == NULL) || (status != BT_ERR_INVALID_PARAM)) {
        return status;
    }
    return store->findings->are_cut ? BT_ERR_NO_MEMORY : BT_OK;
}

void bt_config_findings_destroy(bt_config_findings_t *findings)
{
    if (findings != NULL) {
        for (uint32_t i = 0; i < findings->n; i++) {
            bt_free(findings->list[i].text);
        }
        bt_free(findings->list);
        bt_free(findings);
    }
}

const bt_config_finding_t *bt_config_finding(const bt_config_store_t *store,
                                             uint32_t i)
{
    return ((store->findings != NULL) && (i < store->findings->n))
               ? &store->findings->list[i]
               : NULL;
}

/* ---- effective values ---- */

static const char *source_name(bt_config_source_t source)
{
    switch (source) {
    case BT_CONFIG_DEFAULT:
        break;
    case BT_CONFIG_REPOSITORY:
        return "model repository";
    case BT_CONFIG_FILE:
        return "file";
    case BT_CONFIG_ENVIRONMENT:
        return "environment";
    case BT_CONFIG_COMMAND_LINE:
        return "command line";
    }
    return "default";
}

/* Omits the key's name behind a position in a file: it is printed already. */
static void print_where(const char *where, bt_strbuf_t *out)
{
    const char *last = NULL;

    if (where == NULL) {
        return;
    }
    for (const char *at = where; (at = strstr(at, ": ")) != NULL; at += 2) {
        last = at;
    }
    if ((last != NULL) &&
        (bt_config_option_find(last + 2, strlen(last + 2)) != NULL)) {
        bt_strbuf_append(out, where, (size_t)(last - where));
    } else {
        bt_strbuf_puts(out, where);
    }
}

/* Hides a name and a password that a user put into a URL from others who may
 * see the options. */
static void hide_user(bt_strbuf_t *value)
{
    char *const scheme = (value->len > 0) ? strstr(value->data, "://") : NULL;
    char *at;
    size_t n;

    if (scheme == NULL) {
        return;
    }
    at = memchr(scheme + 3, '@', strcspn(scheme + 3, "/?#"));
    if (at == NULL) {
        return;
    }
    n = (size_t)(at - (scheme + 3));
    memset(scheme + 3, '*', n);
}

bool bt_config_next_effect(const bt_config_store_t *store, uint32_t *at_io,
                           bt_config_effect_t *effect_p)
{
    const bt_config_t *const c = &store->config;
    const bt_option_t *option = &bt_config_options[0]; /* --model */
    const char *where = NULL;
    uint32_t i = *at_io;

    BT_ASSERT(option->type == BT_OPTION_MODELS);
    if (i >= c->n_models) { /* behind the models */
        i = i - c->n_models + ((c->n_models > 0) ? 1 : 0);
        while ((i < BT_CONFIG_N_OPTIONS) &&
               ((bt_config_options[i].programs & store->program) == 0)) {
            i++;
            ++*at_io;
        }
        if (i >= BT_CONFIG_N_OPTIONS) {
            return false;
        }
        option = &bt_config_options[i];
    }
    ++*at_io;
    effect_p->name = option->name;
    effect_p->source = source_name(store->sources[option - bt_config_options]);
    bt_strbuf_init(&effect_p->value, VALUE_BYTES);
    bt_strbuf_init(&effect_p->where, WHERE_BYTES);
    if ((option->type == BT_OPTION_MODELS) && (c->n_models > 0)) {
        bt_config_print_model(c->models[i].name, c->models[i].path,
                              &effect_p->value);
        where = store->model_wheres[i];
    } else {
        bt_config_option_print(c, option, &effect_p->value);
        hide_user(&effect_p->value);
        where = store->wheres[option - bt_config_options];
    }
    print_where(where, &effect_p->where);
    return true;
}

/* Constraints between options that no single row of the table can express. */

static bt_status_t check_times(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;

    if ((c->suspect_ms > c->heartbeat_ms) && (c->dead_ms > c->suspect_ms)) {
        return BT_OK;
    }
    bt_config_complain(store,
                       "--heartbeat-ms %u, --suspect-ms %u and --dead-ms %u "
                       "must rise in this order",
                       c->heartbeat_ms, c->suspect_ms, c->dead_ms);
    return BT_ERR_INVALID_PARAM;
}

static bt_status_t check_block(const bt_config_store_t *store)
{
    const uint32_t tokens = store->config.tokens_per_block;

    if (tokens % 2 == 0) { /* values lie by pairs of tokens */
        return BT_OK;
    }
    bt_config_complain(store, "--tokens-per-block %u must be an even number",
                       tokens);
    return BT_ERR_INVALID_PARAM;
}

static bt_status_t check_chunk(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;

    if ((c->chunk_tokens == 0) || (c->chunk_tokens >= c->tokens_per_block)) {
        return BT_OK;
    }
    bt_config_complain(store,
                       "--chunk-tokens %u is less than one block: "
                       "--tokens-per-block %u",
                       c->chunk_tokens, c->tokens_per_block);
    return BT_ERR_INVALID_PARAM;
}

static bt_status_t check_devices(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;

    if ((c->devices[0] == '\0') || (strcmp(c->backend, "cpu") != 0)) {
        return BT_OK;
    }
    bt_config_complain(store,
                       "--devices: the back end cpu has none; --backend cuda "
                       "has");
    return BT_ERR_INVALID_PARAM;
}

/* Where there is no GPU there is nothing that nv_gpu_* could say. */
static bt_status_t check_gpu_metrics(const bt_config_store_t *store)
{
    if (!store->config.gpu_metrics ||
        (access(BT_CONFIG_GPU_DRIVER, F_OK) != 0)) {
        return BT_OK;
    }
    bt_config_complain(store,
                       "--enable-gpu-metrics: nv_gpu_* is not measured by this "
                       "version; nv_trt_llm_runtime_memory_metrics has the "
                       "memory that workers take of a device");
    return BT_ERR_INVALID_PARAM;
}

static bt_status_t check_prefill(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;

    if ((c->prefill > 0) || (strcmp(c->local_prefill, "on") == 0)) {
        return BT_OK;
    }
    bt_config_complain(
        store,
        "--prefill 0 leaves no worker to run prefill; add --local-prefill on or a prefill worker");
    return BT_ERR_INVALID_PARAM;
}

/* The ports of the last router of --routers exist. */
static bt_status_t check_ports(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;
    const char *const addresses[] = {c->http, c->grpc, c->metrics};
    static const char *const names[] = {"http", "grpc", "metrics"};
    const uint32_t most =
        UINT16_MAX - (c->routers - 1) * BT_CONFIG_ROUTER_PORT_STEP;

    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        const char *const colon = strrchr(addresses[i], ':');

        if ((i == 0) && c->reuse_http_port && (c->routers > 1)) {
            if ((colon != NULL) && (strtoul(colon + 1, NULL, 10) == 0)) {
                bt_config_complain(
                    store, "--reuse-http-port needs a port in --http %s",
                    c->http);
                return BT_ERR_INVALID_PARAM;
            }
            continue; /* one port for all routers */
        }
        if ((colon != NULL) && (strtoul(colon + 1, NULL, 10) > most)) {
            bt_config_complain(store,
                               "--routers %u: the ports from --%s %s on would "
                               "pass 65535",
                               c->routers, names[i], addresses[i]);
            return BT_ERR_INVALID_PARAM;
        }
    }
    return BT_OK;
}

/* One for connections, one for their data. */
static bt_status_t check_kv_ports(const bt_config_store_t *store)
{
    uint16_t first, last;

    if ((bt_config_split_ports(store->config.kv_port_range, &first, &last) ==
         BT_OK) &&
        ((first == 0) || (first < last))) {
        return BT_OK;
    }
    bt_config_complain(store,
                       "--kv-port-range %s: give two ports from 1 to 65535, "
                       "the smaller one first, such as 20000-20100",
                       store->config.kv_port_range);
    return BT_ERR_INVALID_PARAM;
}

static const struct {
    unsigned programs;
    bt_status_t (*check)(const bt_config_store_t *store);
} checks[] = {
    {~0u, check_times},
    {~0u, check_block},
    {~0u, check_chunk},
    {~0u, check_devices},
    {~0u, check_kv_ports},
    {~0u, check_gpu_metrics},
    {BT_PROG_SERVE, check_prefill},
    {BT_PROG_SERVE | BT_PROG_ROUTER, bt_config_check_doors},
    {BT_PROG_SERVE, check_ports},
    {~0u, bt_config_models_check},
};

bt_status_t bt_config_check_together(const bt_config_store_t *store)
{
    bt_status_t status = BT_OK;

    for (size_t i = 0; (i < BT_ARRAY_LEN(checks)) && (status == BT_OK); i++) {
        if ((checks[i].programs & store->program) != 0) {
            status = bt_config_go_on(store, checks[i].check(store));
        }
    }
    return status;
}

/* Targets of models: `--model-targets NAME=TTFT/ITL,...`. */

#define HOUR_MS 3600000u

/* Parses a whole number of ms up to most, and the separator after it. */
static const char *read_ms(const char *text, uint32_t most, uint32_t *ms_p)
{
    uint64_t ms = 0;
    size_t n = 0;

    for (; (text[n] >= '0') && (text[n] <= '9') && (ms <= most); n++) {
        ms = 10 * ms + (uint64_t)(text[n] - '0');
    }
    if ((n == 0) || (ms > most)) {
        return NULL;
    }
    *ms_p = (uint32_t)ms;
    return text + n;
}

bool bt_config_targets_next(const char **text_p, bt_config_targets_t *targets_p)
{
    bt_config_targets_t targets = {.name = *text_p};
    const char *text = strchr(targets.name, '=');

    if (text == NULL) {
        return false;
    }
    targets.n_name = (size_t)(text - targets.name);
    if (!bt_config_is_model_name(targets.name, targets.n_name)) {
        return false;
    }
    text = read_ms(text + 1, 24 * HOUR_MS, &targets.ttft_ms);
    if ((text == NULL) || (*text != '/')) {
        return false;
    }
    text = read_ms(text + 1, HOUR_MS, &targets.itl_ms);
    if ((text == NULL) || ((*text != ',') && (*text != '\0')) ||
        ((text[0] == ',') && (text[1] == '\0'))) {
        return false;
    }
    *text_p = text + ((*text == ',') ? 1 : 0);
    *targets_p = targets;
    return true;
}

void bt_config_model_targets(const bt_config_t *config, const char *model,
                             uint32_t *ttft_ms_p, uint32_t *itl_ms_p)
{
    const char *text = config->model_targets;
    bt_config_targets_t targets;

    *ttft_ms_p = config->ttft_target_ms;
    *itl_ms_p = config->itl_target_ms;
    while ((*text != '\0') && bt_config_targets_next(&text, &targets)) {
        if ((strlen(model) == targets.n_name) &&
            (memcmp(model, targets.name, targets.n_name) == 0)) {
            *ttft_ms_p = targets.ttft_ms;
            *itl_ms_p = targets.itl_ms;
        }
    }
}

/* Sampling that a model's requests have by default:
 * `--override-generation-config JSON`, an option of vLLM. */

typedef struct field {
    const char *name;
    double min, max;
    size_t value; /* a double of bt_config_sampling_t */
    size_t said;  /* its has_* member */
} field_t;

#define FIELD(name, min, max)                                      \
    {                                                              \
#name, (min), (max), offsetof(bt_config_sampling_t, name), \
            offsetof(bt_config_sampling_t, has_##name)             \
    }

static const field_t fields[] = {
    FIELD(temperature, 0.0, 100.0),
    FIELD(top_p, 1e-6, 1.0),
    FIELD(top_k, 0.0, 1e6),
    FIELD(min_p, 0.0, 1.0),
    FIELD(repetition_penalty, 0.01, 100.0),
};

static const field_t *find(const bt_json_node_t *key)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(fields); i++) {
        if (bt_json_is(key, fields[i].name)) {
            return &fields[i];
        }
    }
    return NULL;
}

static bt_status_t read_field(const bt_json_node_t *key,
                              const bt_json_node_t *value,
                              bt_config_sampling_t *sampling, char *why,
                              size_t bytes)
{
    const field_t *field = find(key);
    double number = 0.0;

    if (field == NULL) {
        snprintf(why, bytes,
                 "%.*s is none of temperature, top_p, top_k, min_p and "
                 "repetition_penalty",
                 (int)((key->len < 40) ? key->len : 40), key->text);
        return BT_ERR_INVALID_PARAM;
    }
    if (!bt_json_as_double(value, &number) || (number < field->min) ||
        (number > field->max)) {
        snprintf(why, bytes, "%s is not a number from %g to %g", field->name,
                 field->min, field->max);
        return BT_ERR_INVALID_PARAM;
    }
    memcpy((char *)sampling + field->value, &number, sizeof(number));
    *((bool *)((char *)sampling + field->said)) = true;
    return BT_OK;
}

bt_status_t bt_config_sampling_read(const char *text,
                                    bt_config_sampling_t *sampling_p, char *why,
                                    size_t why_bytes)
{
    bt_config_sampling_t sampling = {0};
    bt_json_doc_t *doc = NULL;
    const bt_json_node_t *root, *key;
    bt_status_t status = BT_OK;

    if (text[0] == '\0') {
        *sampling_p = sampling;
        return BT_OK;
    }
    if (bt_json_doc_parse(text, strlen(text), why, why_bytes, &doc) != BT_OK) {
        return BT_ERR_INVALID_PARAM;
    }
    root = bt_json_doc_root(doc);
    if (!bt_json_is_kind(root, BT_JSON_OBJECT)) {
        snprintf(why, why_bytes, "it is no JSON object");
        status = BT_ERR_INVALID_PARAM;
    } else {
        key = bt_json_first(root);
        for (uint32_t i = 0; (i < root->n) && (status == BT_OK); i++) {
            status = read_field(key, bt_json_next(doc, key), &sampling, why,
                                why_bytes);
            key = bt_json_next(doc, bt_json_next(doc, key));
        }
    }
    bt_json_doc_free(doc);
    if (status == BT_OK) {
        *sampling_p = sampling;
    }
    return status;
}
