/* SPDX-License-Identifier: Apache-2.0 */
#include "router/triton/settings_json.h"

#include <stdio.h>
#include <string.h>

#include "router/triton/json_in.h"

#define TEXT_BYTES 4096

typedef struct reader {
    bt_json_in_t in;
    bt_strbuf_t key, text;
    bt_settings_t settings;
    bt_api_error_t *error;
} reader_t;

static bt_status_t refuse(reader_t *r, const char *name, const char *what)
{
    bt_api_error_set(r->error, 400, "invalid_request_error", NULL,
                     "%.64s: %.200s", name, what);
    return BT_ERR_INVALID_PARAM;
}

static bt_status_t put_text(reader_t *r, bt_setting_t *setting)
{
    const char *text = (r->text.len > 0) ? r->text.data : "";

    if (bt_strbuf_status(&r->text) == BT_ERR_NO_MEMORY) {
        bt_api_error_set(r->error, 503, "server_error", NULL,
                         "out of memory for this request");
        return BT_ERR_NO_MEMORY;
    }
    if ((bt_strbuf_status(&r->text) != BT_OK) ||
        (r->text.len >= sizeof(setting->text)) ||
        (strlen(text) != r->text.len)) {
        return refuse(r, setting->name, "the value is too long");
    }
    snprintf(setting->text, sizeof(setting->text), "%s", text);
    return BT_OK;
}

static bt_status_t take_list(reader_t *r, bt_setting_t *setting)
{
    bool first = true;

    bt_json_in_enter(&r->in, BT_JSON_IN_ARRAY);
    while (bt_json_in_next(&r->in, &first)) {
        if (bt_json_in_peek(&r->in) != BT_JSON_IN_STRING) {
            return refuse(r, setting->name, "a list of other than texts");
        }
        if (r->text.len > 0) {
            bt_strbuf_puts(&r->text, ",");
        }
        bt_json_in_string(&r->in, &r->text);
    }
    setting->kind = BT_SETTING_LIST;
    return put_text(r, setting);
}

static bt_status_t take_number(reader_t *r, bt_setting_t *setting)
{
    bt_json_number_t number = {0};

    bt_json_in_number(&r->in, &number);
    if (!number.is_integer || number.negative) {
        return refuse(r, setting->name, "not a whole number from 0 on");
    }
    setting->kind = BT_SETTING_NUMBER;
    setting->number = number.magnitude;
    return BT_OK;
}

static bt_status_t take_value(reader_t *r, bt_setting_t *setting)
{
    bt_strbuf_reset(&r->text);
    switch (bt_json_in_peek(&r->in)) {
    case BT_JSON_IN_NULL:
        bt_json_in_skip(&r->in);
        return BT_OK;
    case BT_JSON_IN_BOOL:
        setting->kind = BT_SETTING_BOOL;
        setting->number = bt_json_in_bool(&r->in) ? 1 : 0;
        return BT_OK;
    case BT_JSON_IN_NUMBER:
        return take_number(r, setting);
    case BT_JSON_IN_STRING:
        setting->kind = BT_SETTING_TEXT;
        bt_json_in_string(&r->in, &r->text);
        return put_text(r, setting);
    case BT_JSON_IN_ARRAY:
        return take_list(r, setting);
    default:
        return refuse(r, setting->name, "this value is not one of a setting");
    }
}

static const char *key_of(const reader_t *r)
{
    return (r->key.len > 0) ? r->key.data : "";
}

static bt_status_t take_object(reader_t *r)
{
    bt_status_t status = BT_OK;
    bool first = true;

    if (bt_json_in_peek(&r->in) != BT_JSON_IN_OBJECT) {
        return refuse(r, "body", "not a JSON object");
    }
    bt_json_in_enter(&r->in, BT_JSON_IN_OBJECT);
    while ((status == BT_OK) && bt_json_in_key(&r->in, &first, &r->key)) {
        bt_setting_t *setting = bt_settings_add(&r->settings, key_of(r));

        status = (setting != NULL)
                     ? take_value(r, setting)
                     : refuse(r, key_of(r), "there is no such setting");
    }
    return status;
}

static bt_status_t take_under(reader_t *r, const char *wanted)
{
    bt_status_t status = BT_OK;
    bool first = true;

    if (bt_json_in_peek(&r->in) != BT_JSON_IN_OBJECT) {
        return refuse(r, "body", "not a JSON object");
    }
    bt_json_in_enter(&r->in, BT_JSON_IN_OBJECT);
    while ((status == BT_OK) && bt_json_in_key(&r->in, &first, &r->key)) {
        if (strcmp(key_of(r), wanted) == 0) {
            status = take_object(r);
        } else {
            bt_json_in_skip(&r->in);
        }
    }
    return status;
}

static bt_status_t read(const char *text, size_t bytes, const char *under,
                        bt_settings_t *settings_p, bt_api_error_t *error_p)
{
    reader_t r = {.error = error_p};
    bt_status_t status;

    if (bytes == 0) {
        *settings_p = r.settings;
        return BT_OK;
    }
    bt_strbuf_init(&r.key, TEXT_BYTES);
    bt_strbuf_init(&r.text, TEXT_BYTES);
    bt_json_in_init(&r.in, text, bytes);
    status = (under != NULL) ? take_under(&r, under) : take_object(&r);
    if (status == BT_OK) {
        bt_json_in_end(&r.in);
    }
    if ((status == BT_OK) && (r.in.why != NULL)) {
        status = refuse(&r, "body", r.in.why);
    }
    bt_strbuf_fini(&r.text);
    bt_strbuf_fini(&r.key);
    if (status == BT_OK) {
        *settings_p = r.settings;
    }
    return status;
}

bt_status_t bt_settings_read(const char *text, size_t bytes,
                             bt_settings_t *settings_p, bt_api_error_t *error_p)
{
    return read(text, bytes, NULL, settings_p, error_p);
}

bt_status_t bt_settings_read_under(const char *text, size_t bytes,
                                   const char *key, bt_settings_t *settings_p,
                                   bt_api_error_t *error_p)
{
    return read(text, bytes, key, settings_p, error_p);
}
