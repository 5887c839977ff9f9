/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/gguf/gguf_meta.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "inference/gguf/architectures.h"
#include "inference/gguf/gguf.h"
#include "inference/gguf/gguf_priv.h"

#define N_TENSORS_AT 8 /* behind magic and version */
#define N_KEYS_AT    16

static void put(bt_gguf_meta_t *meta, const void *value, size_t bytes)
{
    bt_strbuf_append(meta->out, value, bytes);
}

static void put_u32(bt_gguf_meta_t *meta, uint32_t value)
{
    put(meta, &value, sizeof(value));
}

static void put_u64(bt_gguf_meta_t *meta, uint64_t value)
{
    put(meta, &value, sizeof(value));
}

static void put_key(bt_gguf_meta_t *meta, const char *key, uint32_t type)
{
    const size_t n = strlen(key);

    put_u64(meta, n);
    put(meta, key, n);
    put_u32(meta, type);
    meta->n_keys++;
}

void bt_gguf_meta_init(bt_gguf_meta_t *meta, bt_strbuf_t *out)
{
    *meta = (bt_gguf_meta_t){.out = out};
    put(meta, "GGUF", 4);
    put_u32(meta, 3);
    put_u64(meta, 0);
    put_u64(meta, 0);
}

void bt_gguf_meta_end(bt_gguf_meta_t *meta)
{
    if (bt_strbuf_status(meta->out) == BT_OK) {
        memcpy(meta->out->data + N_TENSORS_AT, &meta->n_tensors,
               sizeof(meta->n_tensors));
        memcpy(meta->out->data + N_KEYS_AT, &meta->n_keys,
               sizeof(meta->n_keys));
    }
}

void bt_gguf_meta_u32(bt_gguf_meta_t *meta, const char *key, uint32_t value)
{
    put_key(meta, key, BT_GGUF_U32);
    put_u32(meta, value);
}

void bt_gguf_meta_f32(bt_gguf_meta_t *meta, const char *key, float value)
{
    put_key(meta, key, BT_GGUF_F32);
    put(meta, &value, sizeof(value));
}

void bt_gguf_meta_bool(bt_gguf_meta_t *meta, const char *key, bool value)
{
    put_key(meta, key, BT_GGUF_BOOL);
    bt_gguf_meta_item_bool(meta, value);
}

void bt_gguf_meta_str(bt_gguf_meta_t *meta, const char *key, const char *text,
                      size_t bytes)
{
    put_key(meta, key, BT_GGUF_STRING);
    bt_gguf_meta_item_str(meta, text, bytes);
}

void bt_gguf_meta_pair(bt_gguf_meta_t *meta, const bt_gguf_pair_t *pair)
{
    put_u64(meta, pair->key.len);
    put(meta, pair->key.data, pair->key.len);
    if (pair->is_array) {
        put_u32(meta, BT_GGUF_ARRAY);
    }
    put_u32(meta, pair->type);
    if (pair->is_array) {
        put_u64(meta, pair->n);
    }
    put(meta, pair->value, pair->bytes);
    meta->n_keys++;
}

void bt_gguf_meta_array(bt_gguf_meta_t *meta, const char *key, uint32_t type,
                        uint64_t n)
{
    put_key(meta, key, BT_GGUF_ARRAY);
    put_u32(meta, type);
    put_u64(meta, n);
}

void bt_gguf_meta_item_u8(bt_gguf_meta_t *meta, uint8_t value)
{
    put(meta, &value, 1);
}

void bt_gguf_meta_item_i32(bt_gguf_meta_t *meta, int32_t value)
{
    put(meta, &value, sizeof(value));
}

void bt_gguf_meta_item_f32(bt_gguf_meta_t *meta, float value)
{
    put(meta, &value, sizeof(value));
}

void bt_gguf_meta_item_f64(bt_gguf_meta_t *meta, double value)
{
    put(meta, &value, sizeof(value));
}

void bt_gguf_meta_item_bool(bt_gguf_meta_t *meta, bool value)
{
    const uint8_t byte = value ? 1 : 0;

    put(meta, &byte, 1);
}

void bt_gguf_meta_item_str(bt_gguf_meta_t *meta, const char *text, size_t bytes)
{
    put_u64(meta, bytes);
    put(meta, text, bytes);
}

void bt_gguf_meta_tensor(bt_gguf_meta_t *meta, const char *name,
                         uint32_t n_dims, const uint64_t *dims, uint32_t type,
                         uint64_t at)
{
    const size_t n = strlen(name);

    put_u64(meta, n);
    put(meta, name, n);
    put_u32(meta, n_dims);
    for (uint32_t d = 0; d < n_dims; d++) {
        put_u64(meta, dims[d]);
    }
    put_u32(meta, type);
    put_u64(meta, at);
    meta->n_tensors++;
}

#define ENTRY(name) #name,
#define NAME(name)  ", " #name

static const char *const architectures[] = {BT_FAMILIES(ENTRY)};
static const char names[] = BT_FAMILIES(NAME);

bt_status_t bt_gguf_architecture(const bt_gguf_t *gguf, char *why,
                                 size_t why_bytes, bt_gguf_str_t *name_p)
{
    bt_gguf_str_t name;

    if (bt_gguf_get_str(gguf, "general.architecture", &name) != BT_OK) {
        snprintf(why, why_bytes,
                 "the file does not name its model's architecture (key "
                 "general.architecture)");
        return BT_ERR_BAD_FILE;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(architectures); i++) {
        if (bt_gguf_str_is(name, architectures[i])) {
            *name_p = name;
            return BT_OK;
        }
    }
    if (bt_gguf_str_is(name, "eagle3")) {
        snprintf(why, why_bytes,
                 "this is a draft head (eagle3), not a model: give it to "
                 "--draft-model");
        return BT_ERR_UNSUPPORTED;
    }
    snprintf(why, why_bytes,
             "the model's architecture %s is not supported; supported: %s",
             bt_printable(name.data, name.len).text, names + strlen(", "));
    return BT_ERR_UNSUPPORTED;
}

typedef struct type_info {
    const char *name;
    uint16_t n_elems; /* 0: known by name only */
    uint16_t n_bytes;
} type_info_t;

/* Source: the GGUF specification's ggml_type list and the block layouts of
 * ggml-common.h. A Q4_1 block, for example, is two f16 and 32 half bytes. */
static const type_info_t types[] = {
    [0] = {"F32", 1, 4},         [1] = {"F16", 1, 2},
    [2] = {"Q4_0", 32, 18},      [3] = {"Q4_1", 32, 20},
    [4] = {"Q4_2", 0, 0},        [5] = {"Q4_3", 0, 0},
    [6] = {"Q5_0", 32, 22},      [7] = {"Q5_1", 32, 24},
    [8] = {"Q8_0", 32, 34},      [9] = {"Q8_1", 0, 0},
    [10] = {"Q2_K", 256, 84},    [11] = {"Q3_K", 256, 110},
    [12] = {"Q4_K", 256, 144},   [13] = {"Q5_K", 256, 176},
    [14] = {"Q6_K", 256, 210},   [15] = {"Q8_K", 0, 0},
    [16] = {"IQ2_XXS", 256, 66}, [17] = {"IQ2_XS", 256, 74},
    [18] = {"IQ3_XXS", 256, 98}, [19] = {"IQ1_S", 256, 50},
    [20] = {"IQ4_NL", 32, 18},   [21] = {"IQ3_S", 256, 110},
    [22] = {"IQ2_S", 256, 82},   [23] = {"IQ4_XS", 256, 136},
    [24] = {"I8", 0, 0},         [25] = {"I16", 0, 0},
    [26] = {"I32", 0, 0},        [27] = {"I64", 1, 8},
    [28] = {"F64", 0, 0},        [29] = {"IQ1_M", 256, 56},
    [30] = {"BF16", 1, 2},       [31] = {"Q4_0_4_4", 0, 0},
    [32] = {"Q4_0_4_8", 0, 0},   [33] = {"Q4_0_8_8", 0, 0},
    [34] = {"TQ1_0", 256, 54},   [35] = {"TQ2_0", 256, 66},
    [36] = {"IQ4_NL_4_4", 0, 0}, [37] = {"IQ4_NL_4_8", 0, 0},
    [38] = {"IQ4_NL_8_8", 0, 0}, [39] = {"MXFP4", 32, 17},
    [40] = {"NVFP4", 64, 36},    [41] = {"Q1_0", 0, 0},
};

bt_status_t bt_gguf_type_block(uint32_t type, uint32_t *n_elems_p,
                               uint32_t *n_bytes_p)
{
    if ((type >= BT_ARRAY_LEN(types)) || (types[type].n_elems == 0)) {
        return BT_ERR_UNSUPPORTED;
    }
    *n_elems_p = types[type].n_elems;
    *n_bytes_p = types[type].n_bytes;
    return BT_OK;
}

const char *bt_gguf_type_name(uint32_t type)
{
    return (type < BT_ARRAY_LEN(types)) ? types[type].name : "unknown";
}

size_t bt_gguf_scalar_bytes(uint32_t type)
{
    switch (type) {
    case BT_GGUF_U8:
    case BT_GGUF_I8:
    case BT_GGUF_BOOL:
        return 1;
    case BT_GGUF_U16:
    case BT_GGUF_I16:
        return 2;
    case BT_GGUF_U32:
    case BT_GGUF_I32:
    case BT_GGUF_F32:
        return 4;
    case BT_GGUF_U64:
    case BT_GGUF_I64:
    case BT_GGUF_F64:
        return 8;
    default:
        return 0;
    }
}

#define KEY_TOKENS  "tokenizer.ggml.tokens"
#define KEY_TYPES   "tokenizer.ggml.token_type"
#define TYPE_UNUSED 5

/* Returns the end of the ids that the file refers to. */
static uint64_t named_end(const bt_gguf_t *gguf, uint64_t n_listed)
{
    static const char *const keys[] = {
        "tokenizer.ggml.bos_token_id",     "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.eot_token_id",
        "tokenizer.ggml.eom_token_id",
    };
    uint64_t end = 0;

    for (size_t i = 0; i < BT_ARRAY_LEN(keys); i++) {
        uint32_t id;

        if ((bt_gguf_get_u32(gguf, keys[i], &id) == BT_OK) && (id < n_listed) &&
            (id >= end)) {
            end = (uint64_t)id + 1;
        }
    }
    return end;
}

static bool is_unused(const bt_gguf_t *gguf, uint64_t id)
{
    int64_t type = 0;

    return (bt_gguf_array_i64(gguf, KEY_TYPES, id, &type) == BT_OK) &&
           (type == TYPE_UNUSED);
}

bt_status_t bt_gguf_n_vocab(const bt_gguf_t *gguf, uint64_t *n_p)
{
    uint64_t n_listed = 0;
    const bt_status_t status = bt_gguf_array_len(gguf, KEY_TOKENS, &n_listed);
    uint64_t named;
    uint64_t n;

    if (status != BT_OK) {
        return status;
    }
    named = named_end(gguf, n_listed);
    n = n_listed;
    while ((n > named) && is_unused(gguf, n - 1)) {
        n--;
    }
    *n_p = (n > 0) ? n : n_listed;
    return BT_OK;
}
