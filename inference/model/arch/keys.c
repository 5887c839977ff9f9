/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/arch/keys.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *bt_key_name(const bt_keys_t *keys, const char *name, char *key)
{
    snprintf(key, BT_KEY_BYTES, "%s.%s", keys->prefix, name);
    return key;
}

bt_status_t bt_keys_refuse(const bt_keys_t *keys, bt_status_t status,
                           const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(keys->why, keys->why_bytes, fmt, args);
    va_end(args);
    return status;
}

bool bt_keys_have(const bt_keys_t *keys, const char *name)
{
    char key[BT_KEY_BYTES];

    return bt_gguf_has(keys->gguf, bt_key_name(keys, name, key));
}

bt_status_t bt_keys_number(const bt_keys_t *keys, const char *name,
                           uint32_t min, uint32_t max, uint32_t *value_p)
{
    char key[BT_KEY_BYTES];
    uint32_t value;
    const bt_status_t status =
        bt_gguf_get_u32(keys->gguf, bt_key_name(keys, name, key), &value);

    if (status == BT_ERR_NOT_FOUND) {
        return bt_keys_refuse(keys, BT_ERR_BAD_FILE,
                              "key %s is missing from the file", key);
    }
    if (status != BT_OK) {
        return bt_keys_refuse(keys, BT_ERR_BAD_FILE,
                              "key %s is not one whole number", key);
    }
    if ((value < min) || (value > max)) {
        return bt_keys_refuse(keys, BT_ERR_BAD_FILE,
                              "key %s is %u; %u to %u are possible", key, value,
                              min, max);
    }
    *value_p = value;
    return BT_OK;
}

bt_status_t bt_keys_number_if(const bt_keys_t *keys, const char *name,
                              uint32_t min, uint32_t max, uint32_t *value_p)
{
    return bt_keys_have(keys, name)
               ? bt_keys_number(keys, name, min, max, value_p)
               : BT_OK;
}

/* @param zero  0 is allowed, and treated as missing */
static bt_status_t read_positive(const bt_keys_t *keys, const char *name,
                                 bool zero, float *value_p)
{
    char key[BT_KEY_BYTES];
    float value;
    const bt_status_t status =
        bt_gguf_get_f32(keys->gguf, bt_key_name(keys, name, key), &value);

    if (status == BT_ERR_NOT_FOUND) {
        return status;
    }
    if (zero && (status == BT_OK) && (value == 0.0f)) {
        return BT_ERR_NOT_FOUND;
    }
    if ((status != BT_OK) || !(value > 0.0f) || !isfinite(value)) {
        return bt_keys_refuse(keys, BT_ERR_BAD_FILE,
                              "key %s is not a positive number", key);
    }
    *value_p = value;
    return BT_OK;
}

bt_status_t bt_keys_positive(const bt_keys_t *keys, const char *name,
                             float *value_p)
{
    return read_positive(keys, name, false, value_p);
}

bt_status_t bt_keys_positive_if(const bt_keys_t *keys, const char *name,
                                float *value_p)
{
    const bt_status_t status = read_positive(keys, name, true, value_p);

    return (status == BT_ERR_NOT_FOUND) ? BT_OK : status;
}

bt_status_t bt_keys_bool_if(const bt_keys_t *keys, const char *name,
                            bool *value_p)
{
    char key[BT_KEY_BYTES];
    bool value;
    const bt_status_t status =
        bt_gguf_get_bool(keys->gguf, bt_key_name(keys, name, key), &value);

    if (status == BT_OK) {
        *value_p = value;
    }
    if ((status == BT_OK) || (status == BT_ERR_NOT_FOUND)) {
        return BT_OK;
    }
    return bt_keys_refuse(keys, BT_ERR_BAD_FILE, "key %s is not a truth value",
                          key);
}

bool bt_str_is(bt_gguf_str_t str, const char *text)
{
    return (strlen(text) == str.len) && (memcmp(text, str.data, str.len) == 0);
}
