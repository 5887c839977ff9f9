/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/adapter/adapter.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/alloc.h"
#include "common/base/text.h"
#include "common/crypt/key.h"
#include "inference/adapter/adapter_priv.h"
#include "inference/hf/floats.h"

bt_status_t bt_adapter_fail(bt_adapter_build_t *build, bt_status_t status,
                            const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(build->why, build->why_bytes, fmt, args);
    va_end(args);
    return status;
}

/* ---- one part ---- */

static size_t elem_bytes(uint32_t type)
{
    return (type == BT_ADAPTER_F32) ? 4 : 2;
}

static float number_at(uint32_t type, const uint8_t *at)
{
    switch (type) {
    case BT_ADAPTER_F16:
        return bt_read_f16(at);
    case BT_ADAPTER_BF16:
        return bt_read_bf16(at);
    default:
        return bt_read_f32(at);
    }
}

/* Copies a row, as numbers of the type or, where that is another, as F32. */
static void copy_row(uint32_t type, const uint8_t *from, uint64_t n,
                     uint32_t to_type, uint8_t *to)
{
    if (type == to_type) {
        memcpy(to, from, n * elem_bytes(type));
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        const float value = number_at(type, from + i * elem_bytes(type));

        memcpy(to + i * sizeof(value), &value, sizeof(value));
    }
}

static bool has_bad_number(uint32_t type, const uint8_t *data, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        const float x = number_at(type, data + i * elem_bytes(type));

        if (!(x - x == 0.0f)) {
            return true;
        }
    }
    return false;
}

static bt_status_t check_source(bt_adapter_build_t *build,
                                const bt_adapter_source_t *s)
{
    const bt_printable_t name = bt_printable(s->name, s->len);

    if ((s->rank == 0) || (s->rank > BT_ADAPTER_MAX_RANK)) {
        return bt_adapter_fail(build, BT_ERR_UNSUPPORTED,
                               "%s has rank %" PRIu64 "; 1 to %u are computed",
                               name.text, s->rank, BT_ADAPTER_MAX_RANK);
    }
    if ((s->n_in == 0) || (s->n_out == 0) || (s->n_in > UINT32_MAX / 8) ||
        (s->n_out > UINT32_MAX / 8)) {
        return bt_adapter_fail(build, BT_ERR_BAD_FILE,
                               "%s has matrices of absurd sizes", name.text);
    }
    if (!(s->scale - s->scale == 0.0f)) {
        return bt_adapter_fail(build, BT_ERR_BAD_FILE,
                               "%s has a scale that is not finite: its alpha "
                               "is not, or too large",
                               name.text);
    }
    if (!build->only_sizes &&
        (has_bad_number(s->a_type, s->a, s->rank * s->n_in) ||
         has_bad_number(s->b_type, s->b, s->n_out * s->rank))) {
        return bt_adapter_fail(build, BT_ERR_BAD_FILE,
                               "%s has numbers that are not finite", name.text);
    }
    return BT_OK;
}

/* @return NULL: no memory */
static bt_adapter_part_t *next_part(bt_adapter_build_t *build)
{
    bt_adapter_t *const adapter = build->adapter;

    if (adapter->n_parts == build->capacity) {
        const uint32_t n = (build->capacity > 0) ? 2 * build->capacity : 64;
        bt_adapter_part_t *const parts = bt_calloc(n, sizeof(*parts));

        if (parts == NULL) {
            return NULL;
        }
        if (adapter->n_parts > 0) {
            memcpy(parts, adapter->parts, adapter->n_parts * sizeof(*parts));
        }
        bt_free(adapter->parts);
        adapter->parts = parts;
        build->capacity = n;
    }
    return &adapter->parts[adapter->n_parts];
}

/* Copies A, and behind it n_out rows of B in GGUF's order. */
static void copy_matrices(const bt_adapter_source_t *s,
                          const bt_recipe_order_t *order, uint64_t first,
                          uint64_t n_out, uint32_t type, uint8_t *to)
{
    const size_t row_bytes = (size_t)s->rank * elem_bytes(type);

    copy_row(s->a_type, s->a, s->rank * s->n_in, type, to);
    to += (size_t)s->n_in * row_bytes;
    for (uint64_t r = 0; r < n_out; r++) {
        const uint64_t from = bt_recipe_stored_row(order, first + r);

        copy_row(s->b_type, s->b + from * s->rank * elem_bytes(s->b_type),
                 s->rank, type, to + r * row_bytes);
    }
}

/* Adds n_out rows of a module's product, the first of which is @a first. */
static bt_status_t add_part(bt_adapter_build_t *build,
                            const bt_adapter_source_t *s,
                            const bt_hf_module_part_t *module,
                            bt_adapter_product_t product, uint64_t first,
                            uint64_t n_out)
{
    const uint32_t type = (s->a_type == s->b_type) ? s->a_type : BT_ADAPTER_F32;
    const size_t a_bytes = (size_t)(s->rank * s->n_in) * elem_bytes(type);
    const size_t b_bytes = (size_t)(n_out * s->rank) * elem_bytes(type);
    bt_adapter_part_t *const part = next_part(build);
    uint8_t *data = NULL;

    if ((part != NULL) && !build->only_sizes) {
        data = bt_calloc(1, a_bytes + b_bytes);
    }
    if ((part == NULL) || ((data == NULL) && !build->only_sizes)) {
        return bt_adapter_fail(build, BT_ERR_NO_MEMORY, "out of memory");
    }
    if (data != NULL) {
        copy_matrices(s, &module->order, first, n_out, type, data);
    }
    *part = (bt_adapter_part_t){
        .layer = module->layer,
        .product = product,
        .rank = (uint32_t)s->rank,
        .n_in = (uint32_t)s->n_in,
        .n_out = (uint32_t)n_out,
        .type = type,
        .scale = s->scale,
        .a = data,
        .b = (data != NULL) ? data + a_bytes : NULL,
    };
    build->adapter->n_parts++;
    build->adapter->bytes += a_bytes + b_bytes;
    if (part->rank > build->adapter->max_rank) {
        build->adapter->max_rank = part->rank;
    }
    return BT_OK;
}

/* Adds the query, key and value rows of one product. */
static bt_status_t add_fused(bt_adapter_build_t *build,
                             const bt_adapter_source_t *s,
                             const bt_hf_module_part_t *module)
{
    const bt_hf_modules_t *const m = &build->model;
    const uint64_t q = (uint64_t)m->n_heads * m->head_dim;
    const uint64_t kv = (uint64_t)m->n_kv_heads * m->head_dim;
    bt_status_t status;

    status = add_part(build, s, module, BT_ADAPTER_Q, 0, q);
    if (status == BT_OK) {
        status = add_part(build, s, module, BT_ADAPTER_K, q, kv);
    }
    return (status == BT_OK)
               ? add_part(build, s, module, BT_ADAPTER_V, q + kv, kv)
               : status;
}

bt_status_t bt_adapter_add(bt_adapter_build_t *build,
                           const bt_adapter_source_t *s,
                           const bt_hf_module_part_t *module)
{
    const bt_hf_modules_t *const m = &build->model;
    const bt_recipe_order_t *const order = &module->order;
    const bool ordered = order->n_segments > 0;
    const uint64_t n_out = ordered ? bt_recipe_order_rows(order) : s->n_out;
    const uint64_t qkv =
        ((uint64_t)m->n_heads + 2 * (uint64_t)m->n_kv_heads) * m->head_dim;
    bt_status_t status = check_source(build, s);

    if (status != BT_OK) {
        return status;
    }
    if (ordered && (bt_recipe_order_stored(order) != s->n_out)) {
        return bt_adapter_fail(build, BT_ERR_MISMATCH,
                               "%s has %" PRIu64
                               " outputs, the model's has %" PRIu64,
                               bt_printable(s->name, s->len).text, s->n_out,
                               bt_recipe_order_stored(order));
    }
    if ((strcmp(module->product, "attn_qkv") == 0) && (n_out == qkv)) {
        return add_fused(build, s, module);
    }
    if ((strcmp(module->product, "ffn_up") == 0) &&
        (n_out == 2 * (uint64_t)m->ffn_dim)) {
        status = add_part(build, s, module, BT_ADAPTER_GATE, 0, m->ffn_dim);
        return (status == BT_OK) ? add_part(build, s, module, BT_ADAPTER_UP,
                                            m->ffn_dim, m->ffn_dim)
                                 : status;
    }
    for (uint32_t i = 0; i < BT_ADAPTER_N_PRODUCTS; i++) {
        if (strcmp(module->product,
                   bt_adapter_product_name((bt_adapter_product_t)i)) == 0) {
            return add_part(build, s, module, (bt_adapter_product_t)i, 0,
                            n_out);
        }
    }
    return bt_adapter_fail(build, BT_ERR_UNSUPPORTED,
                           "%s: adapters of %s are not computed",
                           bt_printable(s->name, s->len).text, module->product);
}

bt_status_t bt_adapter_add_product(bt_adapter_build_t *build,
                                   const bt_adapter_source_t *s,
                                   const bt_hf_module_part_t *module,
                                   bt_adapter_product_t product)
{
    const bt_status_t status = check_source(build, s);

    return (status == BT_OK) ? add_part(build, s, module, product, 0, s->n_out)
                             : status;
}

/* ---- all of it ---- */

static int compare_parts(const void *a, const void *b)
{
    const bt_adapter_part_t *const x = a;
    const bt_adapter_part_t *const y = b;

    if (x->layer != y->layer) {
        return (x->layer < y->layer) ? -1 : 1;
    }
    return (x->product > y->product) - (x->product < y->product);
}

static void take_digest(bt_adapter_t *adapter)
{
    static const char domain[] = "baton lora 1";
    uint8_t hash[BT_KEY_BYTES] = {0};

    for (uint32_t i = 0; i < adapter->n_parts; i++) {
        const bt_adapter_part_t *const p = &adapter->parts[i];
        uint32_t head[7] = {p->layer, p->product, p->rank,
                            p->n_in,  p->n_out,   p->type};
        const bt_key_part_t parts[] = {
            {head, sizeof(head)},
            {p->a, (size_t)p->rank * p->n_in * elem_bytes(p->type)},
            {p->b, (size_t)p->n_out * p->rank * elem_bytes(p->type)},
        };

        memcpy(&head[6], &p->scale, sizeof(p->scale));
        bt_key_derive(hash, domain, parts, BT_ARRAY_LEN(parts), hash);
    }
    memcpy(&adapter->digest.lo, hash, sizeof(adapter->digest.lo));
    memcpy(&adapter->digest.hi, hash + sizeof(adapter->digest.lo),
           sizeof(adapter->digest.hi));
    if ((adapter->digest.lo == 0) && (adapter->digest.hi == 0)) {
        adapter->digest.lo = 1; /* {0, 0}: no adapter */
    }
}

static bt_status_t finish(bt_adapter_build_t *build)
{
    bt_adapter_t *const adapter = build->adapter;

    if (adapter->n_parts == 0) {
        return bt_adapter_fail(build, BT_ERR_BAD_FILE, "it has no matrices");
    }
    qsort(adapter->parts, adapter->n_parts, sizeof(*adapter->parts),
          compare_parts);
    for (uint32_t i = 1; i < adapter->n_parts; i++) {
        const bt_adapter_part_t *const p = &adapter->parts[i];

        if (compare_parts(p - 1, p) == 0) {
            return bt_adapter_fail(
                build, BT_ERR_BAD_FILE, "it has %s of layer %u twice",
                bt_adapter_product_name(p->product), p->layer);
        }
    }
    if (adapter->parts[adapter->n_parts - 1].layer >= build->model.n_layers) {
        return bt_adapter_fail(
            build, BT_ERR_MISMATCH, "it has layer %u, the model has %u",
            adapter->parts[adapter->n_parts - 1].layer, build->model.n_layers);
    }
    if (!build->only_sizes) {
        take_digest(adapter);
    }
    return BT_OK;
}

bt_status_t bt_adapter_begin(bt_adapter_build_t *build)
{
    build->adapter = bt_calloc(1, sizeof(*build->adapter));
    return (build->adapter != NULL)
               ? BT_OK
               : bt_adapter_fail(build, BT_ERR_NO_MEMORY, "out of memory");
}

bt_status_t bt_adapter_end(bt_adapter_build_t *build, bt_status_t status,
                           bt_adapter_t **adapter_p)
{
    if (status == BT_OK) {
        status = finish(build);
    }
    if (status != BT_OK) {
        bt_adapter_free(build->adapter);
        return status;
    }
    *adapter_p = build->adapter;
    return BT_OK;
}

bt_status_t bt_adapter_open(const char *path, const bt_gguf_t *base, char *why,
                            size_t why_bytes, bt_adapter_t **adapter_p)
{
    bt_hf_modules_t model;
    const bt_status_t status = bt_hf_modules_read(base, why, why_bytes, &model);

    return (status == BT_OK)
               ? bt_adapter_open_for(path, &model, why, why_bytes, adapter_p)
               : status;
}

static bt_status_t open_any(const char *path, const bt_hf_modules_t *model,
                            bool only_sizes, char *why, size_t why_bytes,
                            bt_adapter_t **adapter_p)
{
    bt_adapter_build_t build = {.model = *model,
                                .only_sizes = only_sizes,
                                .why = why,
                                .why_bytes = why_bytes};
    struct stat st;
    const bool is_folder = (stat(path, &st) == 0) && S_ISDIR(st.st_mode);
    bt_status_t status = bt_adapter_begin(&build);

    if (status == BT_OK) {
        status = is_folder ? bt_adapter_read_peft(&build, path)
                           : bt_adapter_read_gguf(&build, path);
    }
    return bt_adapter_end(&build, status, adapter_p);
}

bt_status_t bt_adapter_open_for(const char *path, const bt_hf_modules_t *model,
                                char *why, size_t why_bytes,
                                bt_adapter_t **adapter_p)
{
    return open_any(path, model, false, why, why_bytes, adapter_p);
}

bt_status_t bt_adapter_open_sizes(const char *path,
                                  const bt_hf_modules_t *model, char *why,
                                  size_t why_bytes, bt_adapter_t **adapter_p)
{
    return open_any(path, model, true, why, why_bytes, adapter_p);
}

void bt_adapter_free(bt_adapter_t *adapter)
{
    if (adapter == NULL) {
        return;
    }
    for (uint32_t i = 0; i < adapter->n_parts; i++) {
        bt_free((void *)(uintptr_t)adapter->parts[i].a); /* B lies behind it */
    }
    bt_free(adapter->parts);
    bt_free(adapter);
}
