/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "common/base/status.h"
#include "inference/gguf/gguf_priv.h"

#define SAMPLE_BYTES 256 /* hashed at the start, middle and end of a tensor */

static int compare_key(const void *want, const void *kv)
{
    return bt_gguf_str_compare(*(const bt_gguf_str_t *)want,
                               ((const bt_gguf_kv_t *)kv)->key);
}

/* Metadata and names of tensors are ascending. */
static const bt_gguf_kv_t *find(const bt_gguf_t *gguf, const char *key)
{
    const bt_gguf_str_t want = {.data = key, .len = strlen(key)};

    return (gguf->n_kvs > 0) ? bsearch(&want, gguf->kvs, gguf->n_kvs,
                                       sizeof(*gguf->kvs), compare_key)
                             : NULL;
}

/* Finds a scalar, i: 0, or the array that element i is of. */
static bt_status_t find_value(const bt_gguf_t *gguf, const char *key,
                              bool is_array, uint64_t i,
                              const bt_gguf_kv_t **kv_p)
{
    const bt_gguf_kv_t *const kv = find(gguf, key);

    if (kv == NULL) {
        return BT_ERR_NOT_FOUND;
    }
    if (kv->is_array != is_array) {
        return BT_ERR_BAD_FILE;
    }
    if (i >= kv->n) {
        return BT_ERR_INVALID_PARAM;
    }
    *kv_p = kv;
    return BT_OK;
}

/* Reads an integer as its magnitude and sign. Other types: BT_ERR_BAD_FILE. */
static bt_status_t load_integer(const bt_gguf_kv_t *kv, uint64_t i,
                                bool *negative_p, uint64_t *value_p)
{
    const size_t size = bt_gguf_scalar_bytes(kv->type);
    const bool is_signed =
        (kv->type == BT_GGUF_I8) || (kv->type == BT_GGUF_I16) ||
        (kv->type == BT_GGUF_I32) || (kv->type == BT_GGUF_I64);
    uint64_t raw = 0;

    if (!is_signed && (kv->type != BT_GGUF_U8) && (kv->type != BT_GGUF_U16) &&
        (kv->type != BT_GGUF_U32) && (kv->type != BT_GGUF_U64)) {
        return BT_ERR_BAD_FILE;
    }
    memcpy(&raw, kv->value + i * size, size);
    if (is_signed) {
        const unsigned shift = (unsigned)(64 - 8 * size);

        raw = (uint64_t)((int64_t)(raw << shift) >> shift);
    }
    *negative_p = is_signed && ((int64_t)raw < 0);
    *value_p = raw;
    return BT_OK;
}

static bt_status_t load_double(const bt_gguf_kv_t *kv, uint64_t i,
                               double *value_p)
{
    float narrow;

    if (kv->type == BT_GGUF_F32) {
        memcpy(&narrow, kv->value + i * sizeof(narrow), sizeof(narrow));
        *value_p = (double)narrow;
        return BT_OK;
    }
    if (kv->type == BT_GGUF_F64) {
        memcpy(value_p, kv->value + i * sizeof(*value_p), sizeof(*value_p));
        return BT_OK;
    }
    return BT_ERR_BAD_FILE;
}

static bt_gguf_str_t load_str(const uint8_t *at)
{
    bt_gguf_str_t str;
    uint64_t len;

    memcpy(&len, at, sizeof(len));
    str.data = (const char *)at + sizeof(len);
    str.len = (size_t)len;
    return str;
}

bool bt_gguf_has(const bt_gguf_t *gguf, const char *key)
{
    return find(gguf, key) != NULL;
}

bt_status_t bt_gguf_get_u64(const bt_gguf_t *gguf, const char *key,
                            uint64_t *value_p)
{
    const bt_gguf_kv_t *kv;
    uint64_t value;
    bool negative;
    bt_status_t status = find_value(gguf, key, false, 0, &kv);

    if (status == BT_OK) {
        status = load_integer(kv, 0, &negative, &value);
    }
    if (status != BT_OK) {
        return status;
    }
    if (negative) {
        return BT_ERR_BAD_FILE;
    }
    *value_p = value;
    return BT_OK;
}

bt_status_t bt_gguf_get_u32(const bt_gguf_t *gguf, const char *key,
                            uint32_t *value_p)
{
    uint64_t value;
    const bt_status_t status = bt_gguf_get_u64(gguf, key, &value);

    if (status != BT_OK) {
        return status;
    }
    if (value > UINT32_MAX) {
        return BT_ERR_BAD_FILE;
    }
    *value_p = (uint32_t)value;
    return BT_OK;
}

bt_status_t bt_gguf_get_f32(const bt_gguf_t *gguf, const char *key,
                            float *value_p)
{
    const bt_gguf_kv_t *kv;
    double wide;
    bt_status_t status = find_value(gguf, key, false, 0, &kv);

    if (status == BT_OK) {
        status = load_double(kv, 0, &wide);
    }
    if (status == BT_OK) {
        *value_p = (float)wide;
    }
    return status;
}

bt_status_t bt_gguf_get_bool(const bt_gguf_t *gguf, const char *key,
                             bool *value_p)
{
    const bt_gguf_kv_t *kv;
    const bt_status_t status = find_value(gguf, key, false, 0, &kv);

    if (status != BT_OK) {
        return status;
    }
    if (kv->type != BT_GGUF_BOOL) {
        return BT_ERR_BAD_FILE;
    }
    *value_p = (*kv->value != 0);
    return BT_OK;
}

bt_status_t bt_gguf_get_str(const bt_gguf_t *gguf, const char *key,
                            bt_gguf_str_t *value_p)
{
    const bt_gguf_kv_t *kv;
    const bt_status_t status = find_value(gguf, key, false, 0, &kv);

    if (status != BT_OK) {
        return status;
    }
    if (kv->type != BT_GGUF_STRING) {
        return BT_ERR_BAD_FILE;
    }
    *value_p = load_str(kv->value);
    return BT_OK;
}

bt_status_t bt_gguf_array_len(const bt_gguf_t *gguf, const char *key,
                              uint64_t *n_p)
{
    const bt_gguf_kv_t *const kv = find(gguf, key);

    if (kv == NULL) {
        return BT_ERR_NOT_FOUND;
    }
    if (!kv->is_array) {
        return BT_ERR_BAD_FILE;
    }
    *n_p = kv->n;
    return BT_OK;
}

bt_status_t bt_gguf_array_str(const bt_gguf_t *gguf, const char *key,
                              uint64_t i, bt_gguf_str_t *value_p)
{
    const bt_gguf_kv_t *kv;
    const bt_status_t status = find_value(gguf, key, true, i, &kv);

    if (status != BT_OK) {
        return status;
    }
    if (kv->type != BT_GGUF_STRING) {
        return BT_ERR_BAD_FILE;
    }
    *value_p = load_str(kv->value + kv->str_offsets[i]);
    return BT_OK;
}

bt_status_t bt_gguf_array_i64(const bt_gguf_t *gguf, const char *key,
                              uint64_t i, int64_t *value_p)
{
    const bt_gguf_kv_t *kv;
    uint64_t value;
    bool negative;
    bt_status_t status = find_value(gguf, key, true, i, &kv);

    if (status == BT_OK) {
        status = load_integer(kv, i, &negative, &value);
    }
    if (status != BT_OK) {
        return status;
    }
    if (!negative && (value > INT64_MAX)) {
        return BT_ERR_BAD_FILE;
    }
    *value_p = (int64_t)value;
    return BT_OK;
}

bt_status_t bt_gguf_array_bool(const bt_gguf_t *gguf, const char *key,
                               uint64_t i, bool *value_p)
{
    const bt_gguf_kv_t *kv;
    uint64_t value;
    bool negative;
    bt_status_t status = find_value(gguf, key, true, i, &kv);

    if (status != BT_OK) {
        return status;
    }
    if (kv->type == BT_GGUF_BOOL) {
        *value_p = (kv->value[i] != 0);
        return BT_OK;
    }
    status = load_integer(kv, i, &negative, &value);
    if (status == BT_OK) {
        *value_p = (value != 0);
    }
    return status;
}

bt_status_t bt_gguf_array_f64(const bt_gguf_t *gguf, const char *key,
                              uint64_t i, double *value_p)
{
    const bt_gguf_kv_t *kv;
    const bt_status_t status = find_value(gguf, key, true, i, &kv);

    return (status == BT_OK) ? load_double(kv, i, value_p) : status;
}

uint64_t bt_gguf_n_pairs(const bt_gguf_t *gguf)
{
    return gguf->n_kvs;
}

bt_gguf_pair_t bt_gguf_pair_at(const bt_gguf_t *gguf, uint64_t i)
{
    const bt_gguf_kv_t *kv;
    bt_gguf_pair_t pair;

    BT_ASSERT_ALWAYS(i < gguf->n_kvs);
    kv = &gguf->kvs[i];
    pair = (bt_gguf_pair_t){.key = kv->key,
                            .is_array = kv->is_array,
                            .type = kv->type,
                            .n = kv->n,
                            .value = kv->value};
    if (kv->type != BT_GGUF_STRING) {
        pair.bytes = (size_t)kv->n * bt_gguf_scalar_bytes(kv->type);
    } else if (kv->n > 0) {
        const size_t last =
            kv->is_array ? (size_t)kv->str_offsets[kv->n - 1] : 0;

        pair.bytes = last + sizeof(uint64_t) + load_str(kv->value + last).len;
    }
    return pair;
}

uint64_t bt_gguf_n_tensors(const bt_gguf_t *gguf)
{
    return gguf->n_tensors;
}

const bt_gguf_tensor_t *bt_gguf_tensor_at(const bt_gguf_t *gguf, uint64_t i)
{
    return (i < gguf->n_tensors) ? &gguf->tensors[i] : NULL;
}

static int compare_name(const void *want, const void *tensor)
{
    return bt_gguf_str_compare(
        *(const bt_gguf_str_t *)want,
        (*(const bt_gguf_tensor_t *const *)tensor)->name);
}

const bt_gguf_tensor_t *bt_gguf_tensor(const bt_gguf_t *gguf, const char *name)
{
    const bt_gguf_str_t want = {.data = name, .len = strlen(name)};
    const bt_gguf_tensor_t **const found =
        (gguf->n_tensors > 0)
            ? bsearch(&want, gguf->by_name, gguf->n_tensors,
                      sizeof(const bt_gguf_tensor_t *), compare_name)
            : NULL;

    return (found != NULL) ? *found : NULL;
}

size_t bt_gguf_bytes(const bt_gguf_t *gguf)
{
    size_t bytes = gguf->bytes;

    if (gguf->made_of != NULL) {
        return bt_gguf_bytes(gguf->made_of);
    }
    for (uint32_t i = 0; i < gguf->n_more; i++) {
        bytes += gguf->more[i]->bytes;
    }
    return bytes;
}

bt_status_t bt_gguf_tensor_copy(const bt_gguf_tensor_t *tensor, void *out)
{
    if (tensor->data == NULL) {
        return tensor->make(tensor->recipe, out);
    }
    memcpy(out, tensor->data, tensor->bytes);
    return BT_OK;
}

void bt_gguf_chain(bt_hash128_t *hash, const void *data, size_t n)
{
    const bt_hash128_t piece = bt_hash128(data, n, 0);
    const uint64_t both[] = {hash->lo, hash->hi, piece.lo, piece.hi};

    *hash = bt_hash128(both, sizeof(both), 0);
}

void bt_gguf_chain_samples(bt_hash128_t *hash, const void *data, size_t n)
{
    const uint8_t *const bytes = data;

    if (n <= 3 * SAMPLE_BYTES) {
        bt_gguf_chain(hash, bytes, n);
        return;
    }
    bt_gguf_chain(hash, bytes, SAMPLE_BYTES);
    bt_gguf_chain(hash, bytes + n / 2, SAMPLE_BYTES);
    bt_gguf_chain(hash, bytes + n - SAMPLE_BYTES, SAMPLE_BYTES);
}

/* Computes the identity of one file and its tensors. */
static bt_hash128_t file_identity(const bt_gguf_t *gguf)
{
    const uint64_t bytes = gguf->bytes;
    const size_t head_bytes =
        (gguf->data_start < gguf->bytes) ? gguf->data_start : gguf->bytes;
    bt_hash128_t hash = bt_hash128(&bytes, sizeof(bytes), 0);

    bt_gguf_chain(&hash, gguf->base, head_bytes);
    for (uint64_t i = 0; i < gguf->n_own; i++) {
        bt_gguf_chain_samples(&hash, gguf->tensors[i].data,
                              gguf->tensors[i].bytes);
    }
    return hash;
}

bt_hash128_t bt_gguf_identity(const bt_gguf_t *gguf)
{
    bt_hash128_t hash;

    if (gguf->made_of != NULL) {
        hash = bt_gguf_identity(gguf->made_of);
        bt_gguf_chain_head(gguf, &hash);
        return hash;
    }
    if (gguf->files != NULL) {
        return bt_gguf_files_identity(gguf);
    }
    hash = file_identity(gguf);
    for (uint32_t i = 0; i < gguf->n_more; i++) {
        const bt_hash128_t part = file_identity(gguf->more[i]);

        bt_gguf_chain(&hash, &part, sizeof(part));
    }
    return hash;
}

bt_hash128_t bt_gguf_content(const bt_gguf_t *gguf)
{
    bt_hash128_t hash;

    if (gguf->made_of != NULL) {
        hash = bt_gguf_content(gguf->made_of);
        bt_gguf_chain_head(gguf, &hash);
        return hash;
    }
    if (gguf->files != NULL) {
        return bt_gguf_files_content(gguf);
    }
    hash = bt_hash128(gguf->base, gguf->bytes, 0);
    for (uint32_t i = 0; i < gguf->n_more; i++) {
        bt_gguf_chain(&hash, gguf->more[i]->base, gguf->more[i]->bytes);
    }
    return hash;
}
