/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/header.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "convert/quantize.h"

#define GGUF_VERSION 3u
/* Version of the block layouts: general.quantization_version
 * (GGML_QNT_VERSION). */
#define QUANTIZATION_VERSION 2u

/* Keys that llama.cpp's quantizer writes for an importance matrix. */
#define KEY_IMATRIX_TEXT    "quantize.imatrix.dataset"
#define KEY_IMATRIX_ENTRIES "quantize.imatrix.entries_count"
#define KEY_IMATRIX_WINDOWS "quantize.imatrix.chunks_count"

/* Keys that are written anew, or describe the old file and not the new one. */
static const char *const replaced[] = {
    "general.alignment",
    "general.quantization_version",
    "split.no",
    "split.count",
    "split.tensors.count",
    BT_CONVERT_KEY_SOURCE,
    KEY_IMATRIX_TEXT,
    KEY_IMATRIX_ENTRIES,
    KEY_IMATRIX_WINDOWS,
    "quantize.imatrix.file",
};
#define KEY_FILE_TYPE   "general.file_type" /* unless it stays */
#define N_NEW_PAIRS     2u
#define N_IMATRIX_PAIRS 3u

static bool is_called(bt_gguf_str_t key, const char *text)
{
    return (key.len == strlen(text)) && (memcmp(key.data, text, key.len) == 0);
}

static bool is_replaced(bt_gguf_str_t key, bool has_file_type)
{
    if (is_called(key, KEY_FILE_TYPE)) {
        return has_file_type;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(replaced); i++) {
        if (is_called(key, replaced[i])) {
            return true;
        }
    }
    return false;
}

static void put_u32(bt_strbuf_t *out, uint32_t value)
{
    bt_strbuf_append(out, &value, sizeof(value));
}

static void put_u64(bt_strbuf_t *out, uint64_t value)
{
    bt_strbuf_append(out, &value, sizeof(value));
}

static void put_str(bt_strbuf_t *out, const char *data, size_t n)
{
    put_u64(out, n);
    bt_strbuf_append(out, data, n);
}

static void put_pair(bt_strbuf_t *out, const bt_gguf_pair_t *pair)
{
    put_str(out, pair->key.data, pair->key.len);
    if (pair->is_array) {
        put_u32(out, BT_GGUF_ARRAY);
    }
    put_u32(out, pair->type);
    if (pair->is_array) {
        put_u64(out, pair->n);
    }
    bt_strbuf_append(out, pair->value, pair->bytes);
}

static void put_number(bt_strbuf_t *out, const char *key, uint32_t value)
{
    put_str(out, key, strlen(key));
    put_u32(out, BT_GGUF_U32);
    put_u32(out, value);
}

static void put_text(bt_strbuf_t *out, const char *key, const char *text)
{
    put_str(out, key, strlen(key));
    put_u32(out, BT_GGUF_STRING);
    put_str(out, text, strlen(text));
}

static void put_new_pairs(bt_strbuf_t *out, const bt_gguf_t *gguf,
                          const bt_convert_mix_t *mix,
                          const bt_imatrix_t *imatrix)
{
    const bt_hash128_t id = bt_gguf_identity(gguf);
    char source[128];
    int n = snprintf(source, sizeof(source), "%016" PRIx64 "%016" PRIx64 " %u",
                     id.hi, id.lo, BT_QUANTIZE_VERSION);

    if (bt_convert_mix_file_type(mix) != BT_CONVERT_FILE_TYPE_STAYS) {
        put_number(out, KEY_FILE_TYPE, bt_convert_mix_file_type(mix));
    }
    put_number(out, "general.quantization_version", QUANTIZATION_VERSION);
    if (imatrix != NULL) {
        const bt_hash128_t hash = bt_imatrix_hash(imatrix);

        snprintf(source + n, sizeof(source) - (size_t)n,
                 " %016" PRIx64 "%016" PRIx64, hash.hi, hash.lo);
        put_text(out, KEY_IMATRIX_TEXT,
                 (imatrix->text != NULL) ? imatrix->text : "");
        put_number(out, KEY_IMATRIX_ENTRIES, imatrix->n_entries);
        put_number(out, KEY_IMATRIX_WINDOWS, imatrix->n_windows);
    }
    put_text(out, BT_CONVERT_KEY_SOURCE, source);
}

void bt_convert_header(const bt_gguf_t *gguf, const bt_convert_mix_t *mix,
                       const bt_imatrix_t *imatrix,
                       const bt_convert_plan_t *plan, bt_strbuf_t *out)
{
    static const char zeros[BT_CONVERT_ALIGNMENT] = {0};
    const bool has_file_type =
        bt_convert_mix_file_type(mix) != BT_CONVERT_FILE_TYPE_STAYS;
    uint64_t n_pairs = N_NEW_PAIRS + (has_file_type ? 1 : 0) +
                       ((imatrix != NULL) ? N_IMATRIX_PAIRS : 0);

    for (uint64_t i = 0; i < bt_gguf_n_pairs(gguf); i++) {
        n_pairs +=
            is_replaced(bt_gguf_pair_at(gguf, i).key, has_file_type) ? 0 : 1;
    }
    bt_strbuf_append(out, "GGUF", 4);
    put_u32(out, GGUF_VERSION);
    put_u64(out, plan->n);
    put_u64(out, n_pairs);
    for (uint64_t i = 0; i < bt_gguf_n_pairs(gguf); i++) {
        const bt_gguf_pair_t pair = bt_gguf_pair_at(gguf, i);

        if (!is_replaced(pair.key, has_file_type)) {
            put_pair(out, &pair);
        }
    }
    put_new_pairs(out, gguf, mix, imatrix);
    for (uint64_t i = 0; i < plan->n; i++) {
        const bt_convert_step_t *const step = &plan->steps[i];

        put_str(out, step->tensor->name.data, step->tensor->name.len);
        put_u32(out, step->tensor->n_dims);
        for (uint32_t d = 0; d < step->tensor->n_dims; d++) {
            put_u64(out, step->tensor->dims[d]);
        }
        put_u32(out, step->type);
        put_u64(out, step->at);
    }
    if (out->len % BT_CONVERT_ALIGNMENT != 0) {
        bt_strbuf_append(
            out, zeros, BT_CONVERT_ALIGNMENT - out->len % BT_CONVERT_ALIGNMENT);
    }
}
