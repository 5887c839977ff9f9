/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/gguf/gguf_meta.h"

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

void bt_gguf_meta_array(bt_gguf_meta_t *meta, const char *key,
                        bt_gguf_meta_type_t type, uint64_t n)
{
    put_key(meta, key, BT_GGUF_ARRAY);
    put_u32(meta, (uint32_t)type);
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
