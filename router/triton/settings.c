/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of the log and the trace, with Triton's names. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/containers.h"
#include "common/base/json_doc.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "router/triton/metadata.h"

bt_setting_t *bt_settings_add(bt_settings_t *settings, const char *name)
{
    bt_setting_t *setting = &settings->list[settings->n];

    if ((settings->n == BT_SETTINGS_MAX) ||
        (strlen(name) >= sizeof(setting->name))) {
        return NULL;
    }
    *setting = (bt_setting_t){.kind = BT_SETTING_NULL};
    snprintf(setting->name, sizeof(setting->name), "%s", name);
    settings->n++;
    return setting;
}

static void add_number(bt_settings_t *settings, const char *name,
                       enum bt_setting_kind kind, uint64_t value)
{
    bt_setting_t *setting = bt_settings_add(settings, name);

    setting->kind = kind;
    setting->number = value;
}

static void add_text(bt_settings_t *settings, const char *name,
                     enum bt_setting_kind kind, const char *text)
{
    bt_setting_t *setting = bt_settings_add(settings, name);

    setting->kind = kind;
    snprintf(setting->text, sizeof(setting->text), "%s", text);
}

static const bt_setting_t *find(const bt_settings_t *settings, const char *name)
{
    return BT_FIND_NAMED(settings->list, settings->n, name, name);
}

static bt_status_t refuse(bt_api_error_t *error, const char *name,
                          const char *what)
{
    return BT_API_INVALID(error, "%.64s: %.200s", name, what);
}

/* Reads a number, which a protocol may have as text. */
static bool number_of(const bt_setting_t *setting, uint64_t *number_p)
{
    if (setting->kind == BT_SETTING_NUMBER) {
        *number_p = setting->number;
        return true;
    }
    return ((setting->kind == BT_SETTING_TEXT) ||
            (setting->kind == BT_SETTING_LIST)) &&
           (sscanf(setting->text, "%" SCNu64, number_p) == 1);
}

/* True when the requested value is the current one. */
static bool is_same(const bt_setting_t *now, const bt_setting_t *asked)
{
    uint64_t a, b;

    if (asked->kind == BT_SETTING_NULL) {
        return true;
    }
    if (now->kind == BT_SETTING_BOOL) {
        return (asked->kind == BT_SETTING_BOOL) &&
               (asked->number == now->number);
    }
    if (number_of(now, &a) && number_of(asked, &b)) {
        return a == b;
    }
    return ((asked->kind == BT_SETTING_TEXT) ||
            (asked->kind == BT_SETTING_LIST)) &&
           (strcmp(asked->text, now->text) == 0);
}

/* ---- the log ---- */

void bt_describe_log(bt_settings_t *settings)
{
    const bt_log_level_t level = bt_log_level();

    *settings = (bt_settings_t){0};
    add_text(settings, "log_file", BT_SETTING_TEXT, "");
    add_number(settings, "log_info", BT_SETTING_BOOL,
               level >= BT_LOG_LEVEL_INFO ? 1 : 0);
    add_number(settings, "log_warning", BT_SETTING_BOOL,
               level >= BT_LOG_LEVEL_WARN ? 1 : 0);
    add_number(settings, "log_error", BT_SETTING_BOOL, 1);
    add_number(settings, "log_verbose_level", BT_SETTING_NUMBER,
               (level >= BT_LOG_LEVEL_DEBUG) ? 1 : 0);
    add_text(settings, "log_format", BT_SETTING_TEXT, "ISO8601");
}

/* Returns the log level at the start. */
static bt_log_level_t first_level(const bt_frontend_t *front)
{
    bt_log_level_t level = BT_LOG_LEVEL_INFO;

    (void)bt_log_level_parse(front->config->log_level, &level);
    return level;
}

/* @return false: neither true nor false */
static bool flag_of(const bt_settings_t *asked, const char *name, bool *flag)
{
    const bt_setting_t *setting = find(asked, name);

    if ((setting == NULL) || (setting->kind == BT_SETTING_NULL)) {
        return true;
    }
    *flag = setting->number != 0;
    return setting->kind == BT_SETTING_BOOL;
}

/* Baton's levels are ordered: the information level includes warnings, and
 * errors are always logged. */
static bt_status_t level_of(const bt_settings_t *asked, bt_log_level_t start,
                            bt_log_level_t *level_p, bt_api_error_t *error_p)
{
    const bt_setting_t *verbose = find(asked, "log_verbose_level");
    bool info = *level_p >= BT_LOG_LEVEL_INFO;
    bool warning = *level_p >= BT_LOG_LEVEL_WARN;
    uint64_t n = (*level_p >= BT_LOG_LEVEL_DEBUG) ? 1 : 0;
    bool error = true;

    if (!flag_of(asked, "log_info", &info)) {
        return refuse(error_p, "log_info", "neither true nor false");
    }
    if (!flag_of(asked, "log_warning", &warning)) {
        return refuse(error_p, "log_warning", "neither true nor false");
    }
    if (!flag_of(asked, "log_error", &error) || !error) {
        return refuse(error_p, "log_error", "errors are always logged");
    }
    if ((verbose != NULL) && (verbose->kind == BT_SETTING_NULL)) {
        n = (start >= BT_LOG_LEVEL_DEBUG) ? 1 : 0;
    } else if ((verbose != NULL) && !number_of(verbose, &n)) {
        return refuse(error_p, "log_verbose_level", "not a number from 0 on");
    }
    if (info && !warning) {
        return refuse(error_p, "log_warning",
                      "warnings are logged where information is");
    }
    if (n > 0) {
        *level_p = BT_LOG_LEVEL_DEBUG;
    } else {
        *level_p = info      ? BT_LOG_LEVEL_INFO
                   : warning ? BT_LOG_LEVEL_WARN
                             : BT_LOG_LEVEL_ERROR;
    }
    return BT_OK;
}

bt_status_t bt_describe_set_log(const bt_frontend_t *front,
                                const bt_settings_t *asked,
                                bt_api_error_t *error_p)
{
    bt_log_level_t level = bt_log_level();
    bt_settings_t now;
    bt_status_t status;

    bt_describe_log(&now);
    for (size_t i = 0; i < asked->n; i++) {
        const bt_setting_t *setting = &asked->list[i];
        const bt_setting_t *known = find(&now, setting->name);

        if (known == NULL) {
            return refuse(error_p, setting->name, "there is no such setting");
        }
        if ((known->kind == BT_SETTING_TEXT) && !is_same(known, setting)) {
            return refuse(error_p, setting->name,
                          "it stays as it was when the server started");
        }
    }
    status = level_of(asked, first_level(front), &level, error_p);
    if ((status == BT_OK) && (level != bt_log_level())) {
        /* Logged while the more verbose of both levels is set. */
        if (level > bt_log_level()) {
            bt_log_set_level(level);
        }
        BT_LOG_INFO("log level changed by a client");
        bt_log_set_level(level);
    }
    return status;
}

/* ---- the trace ---- */

void bt_describe_trace(const bt_frontend_t *front, bt_settings_t *settings)
{
    const bool on = (front->trace != NULL) && !front->trace_is_off;

    *settings = (bt_settings_t){0};
    add_text(settings, "trace_level", BT_SETTING_LIST,
             on ? "TIMESTAMPS" : "OFF");
    add_text(settings, "trace_rate", BT_SETTING_TEXT, "1");
    add_text(settings, "trace_count", BT_SETTING_TEXT, "-1");
    add_text(settings, "log_frequency", BT_SETTING_TEXT, "0");
    add_text(settings, "trace_file", BT_SETTING_TEXT,
             (front->trace != NULL) ? front->config->trace_file : "");
    add_text(settings, "trace_mode", BT_SETTING_TEXT, "opentelemetry");
}

/* @param [in,out] off  set as trace_level requests */
static bt_status_t take_level(const bt_frontend_t *front,
                              const bt_setting_t *setting, bool *off,
                              bt_api_error_t *error_p)
{
    if (setting->kind == BT_SETTING_NULL) {
        *off = false;
        return BT_OK;
    }
    if (strcmp(setting->text, "OFF") == 0) {
        *off = true;
        return BT_OK;
    }
    if (strcmp(setting->text, "TIMESTAMPS") != 0) {
        return refuse(error_p, "trace_level",
                      "there are OFF and TIMESTAMPS alone");
    }
    if (front->trace == NULL) {
        return refuse(
            error_p, "trace_level",
            "the server was started without a place for it: --trace-file "
            "or --otlp-traces-endpoint");
    }
    *off = false;
    return BT_OK;
}

bt_status_t bt_describe_set_trace(bt_frontend_t *front, const char *model,
                                  const bt_settings_t *asked,
                                  bt_api_error_t *error_p)
{
    bool off = front->trace_is_off;
    bt_settings_t now;

    bt_describe_trace(front, &now);
    for (size_t i = 0; i < asked->n; i++) {
        const bt_setting_t *setting = &asked->list[i];
        const bt_setting_t *known = find(&now, setting->name);
        bt_status_t status;

        if (known == NULL) {
            return refuse(error_p, setting->name, "there is no such setting");
        }
        if ((model == NULL) && (strcmp(setting->name, "trace_level") == 0)) {
            status = take_level(front, setting, &off, error_p);
            if (status != BT_OK) {
                return status;
            }
        } else if (!is_same(known, setting)) {
            return refuse(error_p, setting->name,
                          (model != NULL)
                              ? "a model's settings are those of the server"
                              : "it stays as it was when the server started");
        }
    }
    if (off != front->trace_is_off) {
        front->trace_is_off = off;
        BT_LOG_INFO("trace: %s, by a client", off ? "off" : "on");
    }
    return BT_OK;
}

/* ---- settings in a body of JSON ---- */

/* Adds a string, and a comma before it unless it is the first one. */
static bt_status_t add_string(bt_setting_t *setting,
                              const bt_json_node_t *value,
                              bt_api_error_t *error)
{
    const size_t at = strlen(setting->text);
    const size_t comma = (at > 0) ? 1 : 0;

    if (value->kind != BT_JSON_STRING) {
        return refuse(error, setting->name, "a list of other than texts");
    }
    if ((at + comma + value->len >= sizeof(setting->text)) ||
        (memchr(value->text, '\0', value->len) != NULL)) {
        return refuse(error, setting->name, "the value is too long");
    }
    snprintf(setting->text + at, sizeof(setting->text) - at, "%.*s%.*s",
             (int)comma, ",", (int)value->len, value->text);
    return BT_OK;
}

static bt_status_t read_value(const bt_json_doc_t *doc,
                              const bt_json_node_t *value,
                              bt_setting_t *setting, bt_api_error_t *error)
{
    const bt_json_node_t *element = bt_json_first(value);
    bt_status_t status = BT_OK;

    switch ((bt_json_kind_t)value->kind) {
    case BT_JSON_NULL:
        return BT_OK;
    case BT_JSON_TRUE:
    case BT_JSON_FALSE:
        setting->kind = BT_SETTING_BOOL;
        setting->number = (value->kind == BT_JSON_TRUE) ? 1 : 0;
        return BT_OK;
    case BT_JSON_NUMBER:
        setting->kind = BT_SETTING_NUMBER;
        return bt_json_as_u64(value, &setting->number)
                   ? BT_OK
                   : refuse(error, setting->name,
                            "not a whole number from 0 on");
    case BT_JSON_STRING:
        setting->kind = BT_SETTING_TEXT;
        return add_string(setting, value, error);
    case BT_JSON_ARRAY:
        setting->kind = BT_SETTING_LIST;
        for (uint32_t i = 0; (i < value->n) && (status == BT_OK); i++) {
            status = add_string(setting, element, error);
            element = bt_json_next(doc, element);
        }
        return status;
    default:
        return refuse(error, setting->name,
                      "this value is not one of a setting");
    }
}

static bt_status_t read_object(const bt_json_doc_t *doc,
                               const bt_json_node_t *object,
                               bt_settings_t *settings, bt_api_error_t *error)
{
    const bt_json_node_t *key = bt_json_first(object);
    bt_status_t status = BT_OK;
    char name[sizeof(settings->list[0].name) + 1];

    if (!bt_json_is_kind(object, BT_JSON_OBJECT)) {
        return refuse(error, "body", "not a JSON object");
    }
    for (uint32_t i = 0; (i < object->n) && (status == BT_OK); i++) {
        bt_setting_t *setting;

        if (!bt_json_counts(key)) { /* a later one is equal */
            key = bt_json_next(doc, key + 1);
            continue;
        }
        snprintf(name, sizeof(name), "%.*s", (int)key->len, key->text);
        setting = bt_settings_add(settings, name);
        status = (setting != NULL)
                     ? read_value(doc, key + 1, setting, error)
                     : refuse(error, name, "there is no such setting");
        key = bt_json_next(doc, key + 1);
    }
    return status;
}

bt_status_t bt_settings_read(const char *text, size_t bytes, const char *under,
                             bt_settings_t *settings_p, bt_api_error_t *error_p)
{
    bt_settings_t settings = {0};
    bt_json_doc_t *doc = NULL;
    bt_json_fault_t fault;
    const bt_json_node_t *object;
    bt_status_t status = BT_OK;

    if (bytes > 0) {
        status = bt_json_doc_parse_client(text, bytes, BT_API_MAX_VALUES,
                                          &fault, &doc);
        if (status != BT_OK) {
            return (status == BT_ERR_NO_MEMORY)
                       ? bt_api_error_no_memory(error_p)
                       : refuse(error_p, "body", fault.what);
        }
        object = bt_json_doc_root(doc);
        if (under != NULL) {
            if (!bt_json_is_kind(object, BT_JSON_OBJECT)) {
                status = refuse(error_p, "body", "not a JSON object");
            }
            object = bt_json_get(doc, object, under);
        }
        if ((status == BT_OK) && (object != NULL)) {
            status = read_object(doc, object, &settings, error_p);
        }
        bt_json_doc_free(doc);
    }
    if (status == BT_OK) {
        *settings_p = settings;
    }
    return status;
}
