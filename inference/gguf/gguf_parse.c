/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text.h"
#include "inference/gguf/gguf_priv.h"

#define VERSION           3
#define DEFAULT_ALIGNMENT 32
#define MAX_ALIGNMENT     (1u << 24)

/* Smallest encodings: they bound the counts by the file's size before any
 * memory is allocated. */
#define MIN_KV_BYTES     (8 + 4 + 1)
#define MIN_TENSOR_BYTES (8 + 4 + 8 + 4 + 8)
#define MIN_STRING_BYTES 8

typedef struct reader {
    const uint8_t *base;
    size_t bytes;
    size_t pos; /* never beyond bytes */
    char *why;
    size_t why_bytes;
} reader_t;

static bt_status_t fail(const reader_t *rd, bt_status_t status, const char *fmt,
                        ...) __attribute__((format(printf, 3, 4)));

static bt_status_t fail(const reader_t *rd, bt_status_t status, const char *fmt,
                        ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(rd->why, rd->why_bytes, fmt, args);
    va_end(args);
    return status;
}

/* Returns a name of the file in printable form. */
static bt_printable_t show(bt_gguf_str_t str)
{
    return bt_printable(str.data, str.len);
}

static size_t left(const reader_t *rd)
{
    return rd->bytes - rd->pos;
}

static bool take(reader_t *rd, void *dst, size_t n)
{
    if (left(rd) < n) {
        return false;
    }
    memcpy(dst, rd->base + rd->pos, n);
    rd->pos += n;
    return true;
}

static bool take_u32(reader_t *rd, uint32_t *value_p)
{
    return take(rd, value_p, sizeof(*value_p));
}

static bool take_u64(reader_t *rd, uint64_t *value_p)
{
    return take(rd, value_p, sizeof(*value_p));
}

static bool take_str(reader_t *rd, bt_gguf_str_t *str_p)
{
    uint64_t len;

    if (!take_u64(rd, &len) || (len > left(rd))) {
        return false;
    }
    str_p->data = (const char *)rd->base + rd->pos;
    str_p->len = (size_t)len;
    rd->pos += (size_t)len;
    return true;
}

int bt_gguf_str_compare(bt_gguf_str_t a, bt_gguf_str_t b)
{
    const size_t n = (a.len < b.len) ? a.len : b.len;
    const int order = (n == 0) ? 0 : memcmp(a.data, b.data, n);

    if (order != 0) {
        return order;
    }
    return (a.len > b.len) - (a.len < b.len);
}

static bt_status_t read_strings(reader_t *rd, bt_gguf_kv_t *kv)
{
    const size_t start = rd->pos;

    if (kv->n > left(rd) / MIN_STRING_BYTES) {
        return fail(rd, BT_ERR_BAD_FILE,
                    "key %s claims %" PRIu64
                    " strings, but only %zu bytes of the "
                    "file are left",
                    show(kv->key).text, kv->n, left(rd));
    }
    kv->str_offsets = bt_calloc((size_t)kv->n, sizeof(*kv->str_offsets));
    if ((kv->str_offsets == NULL) && (kv->n > 0)) {
        return fail(rd, BT_ERR_NO_MEMORY,
                    "out of memory for the %" PRIu64 " strings of key %s",
                    kv->n, show(kv->key).text);
    }
    for (uint64_t i = 0; i < kv->n; i++) {
        bt_gguf_str_t str;

        kv->str_offsets[i] = rd->pos - start;
        if (!take_str(rd, &str)) {
            return fail(rd, BT_ERR_BAD_FILE,
                        "the file ends inside string %" PRIu64 " of key %s", i,
                        show(kv->key).text);
        }
    }
    return BT_OK;
}

/* Reads one string, or kv->n scalars. */
static bt_status_t read_values(reader_t *rd, bt_gguf_kv_t *kv)
{
    const size_t size = bt_gguf_scalar_bytes(kv->type);
    bt_gguf_str_t str;

    kv->value = rd->base + rd->pos;
    if (kv->type == BT_GGUF_STRING) {
        if (kv->is_array) {
            return read_strings(rd, kv);
        }
        if (!take_str(rd, &str)) {
            return fail(rd, BT_ERR_BAD_FILE,
                        "the file ends inside the text of key %s",
                        show(kv->key).text);
        }
        return BT_OK;
    }
    if (size == 0) {
        return fail(rd, BT_ERR_BAD_FILE, "key %s has the unknown type %u",
                    show(kv->key).text, kv->type);
    }
    if (kv->n > left(rd) / size) {
        return fail(rd, BT_ERR_BAD_FILE,
                    "key %s claims %" PRIu64
                    " values of %zu bytes, but only %zu "
                    "bytes of the file are left",
                    show(kv->key).text, kv->n, size, left(rd));
    }
    rd->pos += (size_t)kv->n * size;
    if ((kv->type == BT_GGUF_BOOL) && !kv->is_array && (*kv->value > 1)) {
        return fail(rd, BT_ERR_BAD_FILE,
                    "key %s is a truth value of %u; 0 and 1 are allowed",
                    show(kv->key).text, *kv->value);
    }
    return BT_OK;
}

static bt_status_t read_kv(reader_t *rd, uint64_t i, bt_gguf_kv_t *kv)
{
    if (!take_str(rd, &kv->key)) {
        return fail(rd, BT_ERR_BAD_FILE,
                    "the file ends inside the name of key number %" PRIu64, i);
    }
    kv->n = 1;
    if (!take_u32(rd, &kv->type)) {
        return fail(rd, BT_ERR_BAD_FILE, "the file ends inside key %s",
                    show(kv->key).text);
    }
    if (kv->type == BT_GGUF_ARRAY) {
        kv->is_array = true;
        if (!take_u32(rd, &kv->type) || !take_u64(rd, &kv->n)) {
            return fail(rd, BT_ERR_BAD_FILE, "the file ends inside key %s",
                        show(kv->key).text);
        }
        if (kv->type == BT_GGUF_ARRAY) {
            return fail(rd, BT_ERR_UNSUPPORTED,
                        "key %s is an array of arrays, which is not supported",
                        show(kv->key).text);
        }
    }
    return read_values(rd, kv);
}

static int compare_kvs(const void *a, const void *b)
{
    return bt_gguf_str_compare(((const bt_gguf_kv_t *)a)->key,
                               ((const bt_gguf_kv_t *)b)->key);
}

static bt_status_t read_kvs(reader_t *rd, bt_gguf_t *gguf, uint64_t n_kvs)
{
    bt_status_t status;

    if (n_kvs > left(rd) / MIN_KV_BYTES) {
        return fail(rd, BT_ERR_BAD_FILE,
                    "the file claims %" PRIu64
                    " metadata keys, more than its %zu "
                    "bytes can hold",
                    n_kvs, rd->bytes);
    }
    gguf->kvs = bt_calloc((size_t)n_kvs, sizeof(*gguf->kvs));
    if ((gguf->kvs == NULL) && (n_kvs > 0)) {
        return fail(rd, BT_ERR_NO_MEMORY, "out of memory for %" PRIu64 " keys",
                    n_kvs);
    }
    for (uint64_t i = 0; i < n_kvs; i++) {
        gguf->n_kvs = i + 1; /* so that close frees what read_kv took */
        status = read_kv(rd, i, &gguf->kvs[i]);
        if (status != BT_OK) {
            return status;
        }
    }
    if (n_kvs > 0) {
        qsort(gguf->kvs, (size_t)n_kvs, sizeof(*gguf->kvs), compare_kvs);
    }
    for (uint64_t i = 1; i < n_kvs; i++) {
        if (compare_kvs(&gguf->kvs[i - 1], &gguf->kvs[i]) == 0) {
            return fail(rd, BT_ERR_BAD_FILE, "key %s occurs twice",
                        show(gguf->kvs[i].key).text);
        }
    }
    return BT_OK;
}

/* Computes a tensor's bytes; dims and type are set. */
static bt_status_t tensor_bytes(const reader_t *rd, bt_gguf_tensor_t *tensor)
{
    const bt_printable_t name = show(tensor->name);
    uint64_t n = 1;
    uint32_t block_elems;
    uint32_t block_bytes;

    if (bt_gguf_type_block(tensor->type, &block_elems, &block_bytes) != BT_OK) {
        return fail(rd, BT_ERR_UNSUPPORTED,
                    "tensor %s has the type %u (%s), which is not supported",
                    name.text, tensor->type, bt_gguf_type_name(tensor->type));
    }
    for (uint32_t i = 0; i < BT_GGUF_MAX_DIMS; i++) {
        if ((tensor->dims[i] == 0) ||
            __builtin_mul_overflow(n, tensor->dims[i], &n)) {
            return fail(rd, BT_ERR_BAD_FILE,
                        "dimension %u of tensor %s is %" PRIu64
                        ", which is absurd",
                        i, name.text, tensor->dims[i]);
        }
    }
    if (tensor->dims[0] % block_elems != 0) {
        return fail(rd, BT_ERR_BAD_FILE,
                    "rows of tensor %s have %" PRIu64
                    " elements, not a multiple of "
                    "the %u that a block of %s has",
                    name.text, tensor->dims[0], block_elems,
                    bt_gguf_type_name(tensor->type));
    }
    if (__builtin_mul_overflow(n / block_elems, block_bytes, &tensor->bytes)) {
        return fail(rd, BT_ERR_BAD_FILE, "tensor %s is absurdly large",
                    name.text);
    }
    return BT_OK;
}

/* Leaves the tensor's offset in *offset_p. */
static bt_status_t read_tensor(reader_t *rd, uint64_t i,
                               bt_gguf_tensor_t *tensor, uint64_t *offset_p)
{
    bool ok;

    if (!take_str(rd, &tensor->name)) {
        return fail(rd, BT_ERR_BAD_FILE,
                    "the file ends inside the name of tensor number %" PRIu64,
                    i);
    }
    ok = take_u32(rd, &tensor->n_dims);
    if (ok && ((tensor->n_dims == 0) || (tensor->n_dims > BT_GGUF_MAX_DIMS))) {
        return fail(rd, BT_ERR_BAD_FILE,
                    "tensor %s has %u dimensions; 1 to %d are allowed",
                    show(tensor->name).text, tensor->n_dims, BT_GGUF_MAX_DIMS);
    }
    for (uint32_t d = 0; d < BT_GGUF_MAX_DIMS; d++) {
        tensor->dims[d] = 1;
        if (ok && (d < tensor->n_dims)) {
            ok = take_u64(rd, &tensor->dims[d]);
        }
    }
    if (!ok || !take_u32(rd, &tensor->type) || !take_u64(rd, offset_p)) {
        return fail(rd, BT_ERR_BAD_FILE,
                    "the file ends inside the description of tensor %s",
                    show(tensor->name).text);
    }
    return tensor_bytes(rd, tensor);
}

/* Turns an offset into an address inside the map. */
static bt_status_t locate_tensor(const reader_t *rd, size_t data_start,
                                 uint64_t offset, uint32_t alignment,
                                 bt_gguf_tensor_t *tensor)
{
    size_t begin;
    size_t end;

    if (offset % alignment != 0) {
        return fail(rd, BT_ERR_BAD_FILE,
                    "tensor %s begins at offset %" PRIu64
                    ", not a multiple of the "
                    "file's alignment %u",
                    show(tensor->name).text, offset, alignment);
    }
    if (__builtin_add_overflow(data_start, offset, &begin) ||
        __builtin_add_overflow(begin, tensor->bytes, &end)) {
        return fail(rd, BT_ERR_BAD_FILE,
                    "the offset %" PRIu64 " of tensor %s is absurd", offset,
                    show(tensor->name).text);
    }
    if (end > rd->bytes) {
        return fail(rd, BT_ERR_BAD_FILE,
                    "tensor %s ends at byte %zu, but the file has %zu; it is "
                    "cut off or was not downloaded completely",
                    show(tensor->name).text, end, rd->bytes);
    }
    tensor->data = rd->base + begin;
    return BT_OK;
}

static const bt_gguf_tensor_t *tensor_of(const void *element)
{
    return *(const bt_gguf_tensor_t *const *)element;
}

static int compare_offsets(const void *a, const void *b)
{
    const uint8_t *const x = tensor_of(a)->data;
    const uint8_t *const y = tensor_of(b)->data;

    return (x > y) - (x < y);
}

static int compare_names(const void *a, const void *b)
{
    return bt_gguf_str_compare(tensor_of(a)->name, tensor_of(b)->name);
}

bt_status_t bt_gguf_index_names(bt_gguf_t *gguf, char *why, size_t why_bytes)
{
    const bt_gguf_tensor_t **const list = gguf->by_name;
    const size_t n = (size_t)gguf->n_tensors;

    if (n > 0) {
        qsort(list, n, sizeof(*list), compare_names);
    }
    for (size_t i = 1; i < n; i++) {
        if (compare_names(&list[i - 1], &list[i]) == 0) {
            snprintf(why, why_bytes, "tensor %s occurs twice",
                     show(list[i]->name).text);
            return BT_ERR_BAD_FILE;
        }
    }
    return BT_OK;
}

/* Finds tensors that share bytes or a name; leaves by_name sorted. */
static bt_status_t index_tensors(const reader_t *rd, bt_gguf_t *gguf)
{
    const bt_gguf_tensor_t **const list = gguf->by_name;
    const size_t n = (size_t)gguf->n_tensors;

    qsort(list, n, sizeof(*list), compare_offsets);
    for (size_t i = 1; i < n; i++) {
        if ((const uint8_t *)list[i - 1]->data + list[i - 1]->bytes >
            (const uint8_t *)list[i]->data) {
            return fail(rd, BT_ERR_BAD_FILE,
                        "tensors %s and %s overlap in the file",
                        show(list[i - 1]->name).text, show(list[i]->name).text);
        }
    }
    return bt_gguf_index_names(gguf, rd->why, rd->why_bytes);
}

static bt_status_t data_begin(const reader_t *rd, const bt_gguf_t *gguf,
                              uint32_t *alignment_p, size_t *start_p)
{
    const char *const key = "general.alignment";
    uint32_t alignment = DEFAULT_ALIGNMENT;

    if (bt_gguf_has(gguf, key) &&
        (bt_gguf_get_u32(gguf, key, &alignment) != BT_OK)) {
        return fail(rd, BT_ERR_BAD_FILE, "key %s is not a number of bytes",
                    key);
    }
    if ((alignment == 0) || (alignment > MAX_ALIGNMENT) ||
        ((alignment & (alignment - 1)) != 0)) {
        return fail(rd, BT_ERR_BAD_FILE,
                    "key %s is %u; it must be a power of two, at most %u", key,
                    alignment, MAX_ALIGNMENT);
    }
    *alignment_p = alignment;
    if (__builtin_add_overflow(rd->pos, (size_t)(alignment - 1), start_p)) {
        return fail(rd, BT_ERR_BAD_FILE, "the file is absurdly large");
    }
    *start_p &= ~(size_t)(alignment - 1);
    return BT_OK;
}

static bt_status_t read_tensors(reader_t *rd, bt_gguf_t *gguf,
                                uint64_t n_tensors)
{
    bt_status_t status;
    uint64_t *offsets = NULL;
    uint32_t alignment = DEFAULT_ALIGNMENT;

    if (n_tensors > left(rd) / MIN_TENSOR_BYTES) {
        return fail(rd, BT_ERR_BAD_FILE,
                    "the file claims %" PRIu64
                    " tensors, more than its %zu bytes "
                    "can hold",
                    n_tensors, rd->bytes);
    }
    if (n_tensors > 0) {
        offsets = bt_calloc((size_t)n_tensors, sizeof(*offsets));
        gguf->tensors = bt_calloc((size_t)n_tensors, sizeof(*gguf->tensors));
        gguf->by_name = bt_calloc((size_t)n_tensors, sizeof(*gguf->by_name));
        if ((offsets == NULL) || (gguf->tensors == NULL) ||
            (gguf->by_name == NULL)) {
            status = fail(rd, BT_ERR_NO_MEMORY,
                          "out of memory for %" PRIu64 " tensors", n_tensors);
            goto out;
        }
    }
    gguf->n_tensors = n_tensors;
    gguf->n_own = n_tensors;
    for (uint64_t i = 0; i < n_tensors; i++) {
        gguf->by_name[i] = &gguf->tensors[i];
        status = read_tensor(rd, i, &gguf->tensors[i], &offsets[i]);
        if (status != BT_OK) {
            goto out;
        }
    }
    status = data_begin(rd, gguf, &alignment, &gguf->data_start);
    for (uint64_t i = 0; (status == BT_OK) && (i < n_tensors); i++) {
        status = locate_tensor(rd, gguf->data_start, offsets[i], alignment,
                               &gguf->tensors[i]);
    }
    if ((status == BT_OK) && (n_tensors > 0)) {
        status = index_tensors(rd, gguf);
    }
out:
    bt_free(offsets);
    return status;
}

static bt_status_t read_magic(reader_t *rd)
{
    char magic[4];
    uint32_t version;

    if (!take(rd, magic, sizeof(magic)) || (memcmp(magic, "GGUF", 4) != 0)) {
        return fail(rd, BT_ERR_BAD_FILE,
                    "this is not a GGUF file: it does not begin with GGUF");
    }
    if (!take_u32(rd, &version)) {
        return fail(rd, BT_ERR_BAD_FILE, "the file ends inside its header");
    }
    if (version == __builtin_bswap32(VERSION)) {
        return fail(rd, BT_ERR_UNSUPPORTED,
                    "this GGUF file was written for a big-endian machine");
    }
    if (version != VERSION) {
        return fail(rd, BT_ERR_UNSUPPORTED,
                    "this is GGUF version %u; version %u is supported", version,
                    VERSION);
    }
    return BT_OK;
}

bt_status_t bt_gguf_parse(bt_gguf_t *gguf, char *why, size_t why_bytes)
{
    reader_t rd = {.base = gguf->base,
                   .bytes = gguf->bytes,
                   .why = why,
                   .why_bytes = why_bytes};
    bt_status_t status = read_magic(&rd);
    uint64_t n_tensors;
    uint64_t n_kvs;

    if (status != BT_OK) {
        return status;
    }
    if (!take_u64(&rd, &n_tensors) || !take_u64(&rd, &n_kvs)) {
        return fail(&rd, BT_ERR_BAD_FILE, "the file ends inside its header");
    }
    status = read_kvs(&rd, gguf, n_kvs);
    if (status != BT_OK) {
        return status;
    }
    return read_tensors(&rd, gguf, n_tensors);
}
