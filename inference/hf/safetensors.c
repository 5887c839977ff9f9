/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/hf/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/base/text.h"

static const struct {
    const char *name;
    uint32_t bytes;
} dtypes[] = {
    [BT_ST_BOOL] = {"BOOL", 1},       [BT_ST_U8] = {"U8", 1},
    [BT_ST_I8] = {"I8", 1},           [BT_ST_F8_E5M2] = {"F8_E5M2", 1},
    [BT_ST_F8_E4M3] = {"F8_E4M3", 1}, [BT_ST_F8_E8M0] = {"F8_E8M0", 1},
    [BT_ST_I16] = {"I16", 2},         [BT_ST_U16] = {"U16", 2},
    [BT_ST_F16] = {"F16", 2},         [BT_ST_BF16] = {"BF16", 2},
    [BT_ST_I32] = {"I32", 4},         [BT_ST_U32] = {"U32", 4},
    [BT_ST_F32] = {"F32", 4},         [BT_ST_F64] = {"F64", 8},
    [BT_ST_I64] = {"I64", 8},         [BT_ST_U64] = {"U64", 8},
};

typedef struct parse {
    const uint8_t *data; /* behind the header */
    size_t data_bytes;
    bt_safetensors_t *st;
    char *why;
    size_t why_bytes;
} parse_t;

const char *bt_st_dtype_name(bt_st_dtype_t dtype)
{
    return dtypes[dtype].name;
}

uint32_t bt_st_dtype_bytes(bt_st_dtype_t dtype)
{
    return dtypes[dtype].bytes;
}

static bt_status_t bad(const parse_t *p, const bt_json_node_t *key,
                       const char *what)
{
    snprintf(p->why, p->why_bytes, "tensor %s %s",
             bt_printable(key->text, key->len).text, what);
    return BT_ERR_BAD_FILE;
}

static bt_status_t read_dtype(const parse_t *p, const bt_json_node_t *key,
                              bt_st_tensor_t *tensor)
{
    const bt_json_node_t *const node =
        bt_json_get(p->st->doc, key + 1, "dtype");

    if (!bt_json_is_kind(node, BT_JSON_STRING)) {
        return bad(p, key, "has no dtype");
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(dtypes); i++) {
        if (bt_json_is(node, dtypes[i].name)) {
            tensor->dtype = (bt_st_dtype_t)i;
            return BT_OK;
        }
    }
    snprintf(p->why, p->why_bytes,
             "tensor %s has the dtype %s, which is not known",
             bt_printable(key->text, key->len).text,
             bt_printable(node->text, node->len).text);
    return BT_ERR_UNSUPPORTED;
}

static bt_status_t read_shape(const parse_t *p, const bt_json_node_t *key,
                              bt_st_tensor_t *tensor)
{
    const bt_json_node_t *const node =
        bt_json_get(p->st->doc, key + 1, "shape");
    const bt_json_node_t *at;

    if (!bt_json_is_kind(node, BT_JSON_ARRAY)) {
        return bad(p, key, "has no shape");
    }
    if (node->n > BT_ST_MAX_DIMS) {
        snprintf(p->why, p->why_bytes,
                 "tensor %s has %u dimensions; %d are possible",
                 bt_printable(key->text, key->len).text, node->n,
                 BT_ST_MAX_DIMS);
        return BT_ERR_UNSUPPORTED;
    }
    tensor->n_dims = node->n;
    tensor->n_elems = 1;
    at = bt_json_first(node);
    for (uint32_t i = 0; i < node->n; i++) {
        if (!bt_json_as_u64(at, &tensor->dims[i]) ||
            __builtin_mul_overflow(tensor->n_elems, tensor->dims[i],
                                   &tensor->n_elems)) {
            return bad(p, key, "has an absurd shape");
        }
        at = bt_json_next(p->st->doc, at);
    }
    return BT_OK;
}

static bt_status_t read_offsets(const parse_t *p, const bt_json_node_t *key,
                                bt_st_tensor_t *tensor)
{
    const bt_json_node_t *const node =
        bt_json_get(p->st->doc, key + 1, "data_offsets");
    const bt_json_node_t *second;
    uint64_t begin;
    uint64_t end;
    uint64_t bytes;

    if (!bt_json_is_kind(node, BT_JSON_ARRAY) || (node->n != 2)) {
        return bad(p, key, "has no pair of data_offsets");
    }
    second = bt_json_next(p->st->doc, bt_json_first(node));
    if (!bt_json_as_u64(bt_json_first(node), &begin) ||
        !bt_json_as_u64(second, &end) || (begin > end)) {
        return bad(p, key, "has data_offsets that are no range");
    }
    if (end > p->data_bytes) {
        snprintf(p->why, p->why_bytes,
                 "tensor %s ends at byte %" PRIu64
                 " of the data, but there are %zu; "
                 "the file is cut off or was not downloaded completely",
                 bt_printable(key->text, key->len).text, end, p->data_bytes);
        return BT_ERR_BAD_FILE;
    }
    if (__builtin_mul_overflow(tensor->n_elems, dtypes[tensor->dtype].bytes,
                               &bytes) ||
        (bytes != end - begin)) {
        return bad(p, key, "has another number of bytes than its shape");
    }
    tensor->data = p->data + begin;
    tensor->bytes = (size_t)bytes;
    return BT_OK;
}

static bt_status_t read_tensor(const parse_t *p, const bt_json_node_t *key,
                               bt_st_tensor_t *tensor)
{
    bt_status_t status;

    if ((key + 1)->kind != BT_JSON_OBJECT) {
        return bad(p, key, "is not described by an object");
    }
    if ((key->len == 0) || (memchr(key->text, '\0', key->len) != NULL)) {
        return bad(p, key, "has a name that is none");
    }
    tensor->name = (bt_gguf_str_t){.data = key->text, .len = key->len};
    status = read_dtype(p, key, tensor);
    if (status == BT_OK) {
        status = read_shape(p, key, tensor);
    }
    return (status == BT_OK) ? read_offsets(p, key, tensor) : status;
}

static int compare_offsets(const void *a, const void *b)
{
    const bt_st_tensor_t *const x = a;
    const bt_st_tensor_t *const y = b;

    if (x->data != y->data) {
        return (x->data > y->data) ? 1 : -1;
    }
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Leaves the tensors in the order of their data. */
static bt_status_t check_cover(const parse_t *p)
{
    const bt_safetensors_t *const st = p->st;
    const uint8_t *end = p->data;

    if (st->n > 0) {
        qsort(st->tensors, st->n, sizeof(*st->tensors), compare_offsets);
    }
    for (uint32_t i = 0; i < st->n; i++) {
        const bt_st_tensor_t *const t = &st->tensors[i];

        if (t->data != end) {
            snprintf(p->why, p->why_bytes, "tensor %s %s",
                     bt_printable(t->name.data, t->name.len).text,
                     (t->data < end) ? "overlaps another"
                                     : "begins behind bytes of no tensor");
            return BT_ERR_BAD_FILE;
        }
        end += t->bytes;
    }
    if (end != p->data + p->data_bytes) {
        snprintf(p->why, p->why_bytes, "%zu bytes at the end are of no tensor",
                 (size_t)(p->data + p->data_bytes - end));
        return BT_ERR_BAD_FILE;
    }
    return BT_OK;
}

static bt_status_t read_tensors(const parse_t *p)
{
    const bt_json_node_t *const root = bt_json_doc_root(p->st->doc);
    const bt_json_node_t *key = bt_json_first(root);
    bt_status_t status = BT_OK;

    if (root->kind != BT_JSON_OBJECT) {
        snprintf(p->why, p->why_bytes, "its header is no JSON object");
        return BT_ERR_BAD_FILE;
    }
    p->st->tensors = bt_calloc((size_t)root->n + 1, sizeof(*p->st->tensors));
    if (p->st->tensors == NULL) {
        snprintf(p->why, p->why_bytes, "out of memory for %u tensors", root->n);
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < root->n); i++) {
        if (!bt_json_is(key, "__metadata__")) {
            status = read_tensor(p, key, &p->st->tensors[p->st->n]);
            p->st->n++;
        }
        key = bt_json_next(p->st->doc, key + 1);
    }
    return (status == BT_OK) ? check_cover(p) : status;
}

bt_status_t bt_safetensors_parse(const void *base, size_t bytes, char *why,
                                 size_t why_bytes, bt_safetensors_t *st_p)
{
    bt_safetensors_t st = {0};
    parse_t p = {.st = &st, .why = why, .why_bytes = why_bytes};
    const char *const header = (const char *)base + sizeof(uint64_t);
    char reason[160] = "";
    uint64_t n = 0;
    bt_status_t status;

    if (bytes < sizeof(n)) {
        snprintf(why, why_bytes, "it is too short for a safetensors file");
        return BT_ERR_BAD_FILE;
    }
    memcpy(&n, base, sizeof(n));
    if ((n > bytes - sizeof(n)) || (n > BT_ST_HEADER_BYTES)) {
        snprintf(why, why_bytes,
                 "its header is said to have %" PRIu64 " bytes; this is no "
                 "safetensors file, or it is cut off",
                 n);
        return BT_ERR_BAD_FILE;
    }
    status =
        bt_json_doc_parse(header, (size_t)n, reason, sizeof(reason), &st.doc);
    if (status != BT_OK) {
        snprintf(why, why_bytes, "in its header, %s", reason);
        return status;
    }
    p.data = (const uint8_t *)base + sizeof(n) + n;
    p.data_bytes = bytes - sizeof(n) - (size_t)n;
    status = read_tensors(&p);
    if (status != BT_OK) {
        bt_safetensors_fini(&st);
        return status;
    }
    *st_p = st;
    return BT_OK;
}

void bt_safetensors_fini(bt_safetensors_t *st)
{
    bt_free(st->tensors);
    bt_json_doc_free(st->doc);
    *st = (bt_safetensors_t){0};
}
