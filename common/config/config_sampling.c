/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling that a model's requests have by default:
 * `--override-generation-config JSON`, an option of vLLM. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/base/json_doc.h"
#include "common/base/status.h"
#include "common/config/config_options.h"

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
