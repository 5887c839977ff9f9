/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text.h"
#include "inference/model/model_priv.h"

#define NAME_BYTES 96

bt_status_t bt_loader_fail(bt_loader_t *loader, bt_status_t status,
                           const char *fmt, ...)
{
    va_list args;

    if (loader->status == BT_OK) {
        loader->status = status;
        va_start(args, fmt);
        vsnprintf(loader->why, loader->why_bytes, fmt, args);
        va_end(args);
    }
    return loader->status;
}

void bt_loader_check_attention(bt_loader_t *loader,
                               const bt_attention_t *attention)
{
    if (loader->status == BT_OK) {
        loader->status = bt_kernels_check_attention(
            loader->be->caps, attention, loader->why, loader->why_bytes);
    }
}

/* Adds to a count; false when it would overflow. */
static bool count(size_t *total, size_t n, size_t size)
{
    size_t bytes;

    return !__builtin_mul_overflow(n, size, &bytes) &&
           !__builtin_add_overflow(*total, bytes, total);
}

void bt_loader_buffer(bt_loader_t *loader, size_t rows, size_t row_floats,
                      float **ptr_p)
{
    const size_t before = loader->bytes;
    void *ptr = NULL;
    size_t floats;

    if (loader->status != BT_OK) {
        return;
    }
    if (__builtin_mul_overflow(rows, row_floats, &floats) ||
        !count(&loader->bytes, floats, sizeof(float))) {
        bt_loader_fail(loader, BT_ERR_INVALID_PARAM,
                       "a buffer of %zu rows of %zu values is too large", rows,
                       row_floats);
    } else if (!loader->dry &&
               (loader->be->ops->buffer_alloc(
                    loader->be, loader->bytes - before, &ptr) != BT_OK)) {
        bt_loader_fail(loader, BT_ERR_NO_MEMORY,
                       "out of memory: a buffer of %zu MiB does not fit",
                       (loader->bytes - before) >> 20);
    } else {
        *ptr_p = ptr;
    }
}

/* Finds a tensor of n_mats matrices, checks its shape (n_out = 0: a vector),
 * and marks it as used.
 * @param [in] spare  The tensor may have more rows.
 * @return NULL: the loader has failed */
static const bt_gguf_tensor_t *find_mats(bt_loader_t *loader, const char *name,
                                         uint32_t n_in, uint32_t n_out,
                                         bool spare, uint32_t n_mats)
{
    const bt_gguf_tensor_t *const t = bt_gguf_tensor(loader->gguf, name);
    const uint64_t rows = (n_out == 0) ? 1 : n_out;

    if (t == NULL) {
        bt_loader_fail(loader, BT_ERR_BAD_FILE,
                       "tensor %s is missing from the file", name);
    } else if ((t->dims[0] != n_in) || (t->dims[1] < rows) ||
               (!spare && (t->dims[1] != rows)) || (t->dims[2] != n_mats) ||
               (t->dims[3] != 1)) {
        bt_loader_fail(loader, BT_ERR_BAD_FILE,
                       "tensor %s has the shape %" PRIu64 " x %" PRIu64
                       " x %" PRIu64 " x %" PRIu64 ", but the "
                       "model's numbers call for %u x %u x %u",
                       name, t->dims[0], t->dims[1], t->dims[2], t->dims[3],
                       n_in, (uint32_t)rows, n_mats);
    } else if ((loader->be->caps->weight_types & (1ull << t->type)) == 0) {
        bt_loader_fail(loader, BT_ERR_UNSUPPORTED,
                       "the %s back end does not support the type %s of "
                       "tensor %s",
                       loader->be->caps->name, bt_gguf_type_name(t->type),
                       name);
    } else if (loader->used != NULL) {
        loader->used[t - bt_gguf_tensor_at(loader->gguf, 0)] = true;
    }
    return (loader->status == BT_OK) ? t : NULL;
}

static const bt_gguf_tensor_t *find(bt_loader_t *loader, const char *name,
                                    uint32_t n_in, uint32_t n_out, bool spare)
{
    return find_mats(loader, name, n_in, n_out, spare, 1);
}

/* True when the bytes of the model file's matrices are needed. */
static bool reads_matrices(const bt_loader_t *loader)
{
    return (loader->writer != NULL) ||
           (!loader->dry && (loader->packed == NULL));
}

/* Finds the matrix in the packed file. */
static bt_status_t adopt(bt_loader_t *loader, const char *name, uint32_t type,
                         uint32_t n_out, uint32_t n_in, size_t bytes,
                         bt_weight_t **weight_p)
{
    size_t found_bytes = 0;
    const void *const data =
        bt_packed_find(loader->packed, name, type, n_out, n_in, &found_bytes);

    if ((data == NULL) || (found_bytes != bytes)) {
        return bt_loader_fail(loader, BT_ERR_NOT_FOUND,
                              "tensor %s is not in the packed file", name);
    }
    return loader->dry
               ? BT_OK
               : loader->be->ops->weight_adopt(loader->be, (bt_ktype_t)type,
                                               n_out, n_in, data, bytes,
                                               weight_p);
}

static void tell(const bt_loader_t *loader, const char *name,
                 const bt_weight_t *weight)
{
    const bt_model_config_t *const config = loader->config;

    if ((config->on_weight != NULL) && (weight != NULL)) {
        config->on_weight(config->on_weight_ctx, name, weight);
    }
}

/* Packs the matrix into the file that is being written. */
static bt_status_t write_packed(bt_loader_t *loader, const char *name,
                                uint32_t type, uint32_t n_out, uint32_t n_in,
                                const void *data, size_t bytes)
{
    const bt_kernels_ops_t *const ops = loader->be->ops;
    bt_weight_t *weight = NULL;
    bt_status_t status =
        (ops->weight_pack_here != NULL)
            ? ops->weight_pack_here(loader->be, (bt_ktype_t)type, n_out, n_in,
                                    data, &weight)
            : ops->weight_pack(loader->be, (bt_ktype_t)type, n_out, n_in, data,
                               &weight);

    if (status != BT_OK) {
        return status;
    }
    status = bt_packed_writer_add(loader->writer, name, type, n_out, n_in,
                                  ops->weight_data(weight), bytes);
    ops->weight_free(loader->be, weight);
    return status;
}

/* Records the input width of a matrix whose product converts its input rows. */
static void note_width(bt_loader_t *loader, uint32_t type, uint32_t n_in)
{
    uint32_t *const widest =
        bt_ktype_is_dense(type) ? &loader->dense_n_in : &loader->quant_n_in;

    *widest = (n_in > *widest) ? n_in : *widest;
}

static void pack(bt_loader_t *loader, const char *name, uint32_t type,
                 uint32_t n_out, uint32_t n_in, const void *data,
                 bt_weight_t **weight_p)
{
    const bt_kernels_ops_t *const ops = loader->be->ops;
    const size_t bytes = ops->weight_bytes((bt_ktype_t)type, n_out, n_in);
    bt_status_t status = BT_OK;

    if ((bytes == 0) || !count(&loader->weight_bytes, bytes, 1)) {
        bt_loader_fail(loader, BT_ERR_UNSUPPORTED,
                       "the %s back end cannot take tensor %s (%s, %u x %u)",
                       loader->be->caps->name, name, bt_ktype_name(type), n_in,
                       n_out);
    }
    if (loader->status != BT_OK) {
        return;
    }
    loader->max_weight =
        (bytes > loader->max_weight) ? bytes : loader->max_weight;
    note_width(loader, type, n_in);
    if (loader->packed != NULL) {
        status = adopt(loader, name, type, n_out, n_in, bytes, weight_p);
    } else if (loader->writer != NULL) {
        status = write_packed(loader, name, type, n_out, n_in, data, bytes);
    } else if (!loader->dry) {
        status = ops->weight_pack(loader->be, (bt_ktype_t)type, n_out, n_in,
                                  data, weight_p);
    }
    if (status != BT_OK) {
        bt_loader_fail(loader, status, "tensor %s (%zu MiB): %s", name,
                       bytes >> 20, bt_status_str(status));
    } else if (!loader->dry) {
        tell(loader, name, *weight_p);
    }
}

static size_t row_bytes(const bt_gguf_tensor_t *t)
{
    return t->bytes / (size_t)(t->dims[1] * t->dims[2] * t->dims[3]);
}

/* Computes where the columns of a row begin, and their bytes; false inside a
 * block. */
static bool column_bytes(const bt_gguf_tensor_t *t, const bt_cut_t *cut,
                         size_t *at_p, size_t *bytes_p)
{
    uint32_t elems = 1;
    uint32_t bytes = 0;

    if ((bt_ktype_block(t->type, &elems, &bytes) != BT_OK) ||
        (cut->columns.first % elems != 0) || (cut->columns.n % elems != 0)) {
        return false;
    }
    *at_p = (size_t)cut->columns.first / elems * bytes;
    *bytes_p = (size_t)cut->columns.n / elems * bytes;
    return true;
}

/* Returns the tensor, or its codes where the back end reads those and the
 * columns can be cut in them. */
static const bt_gguf_tensor_t *
form_of(bt_loader_t *loader, const bt_gguf_tensor_t *t, const bt_cut_t *cut)
{
    const bt_kernels_caps_t *const caps = loader->be->caps;
    size_t at;
    size_t bytes;

    if ((t->codes == NULL) || !caps->takes_codes ||
        ((caps->weight_types >> t->codes->type & 1u) == 0) ||
        !column_bytes(t->codes, cut, &at, &bytes)) {
        return t;
    }
    loader->has_codes = true;
    return t->codes;
}

/* Takes scratch for a tensor, of @a bytes; NULL: the loader has failed. */
static void *take_scratch(bt_loader_t *loader, const char *name, size_t bytes)
{
    void *const scratch =
        (loader->status == BT_OK) ? bt_calloc_aligned(bytes, 1) : NULL;

    if (scratch == NULL) {
        bt_loader_fail(loader, BT_ERR_NO_MEMORY,
                       "out of memory for tensor %s and its %zu MiB", name,
                       bytes >> 20);
    }
    return scratch;
}

/* Fails unless what was done with a tensor has succeeded. */
static void check(bt_loader_t *loader, const char *name, bt_status_t status)
{
    if (status != BT_OK) {
        bt_loader_fail(loader, status, "tensor %s: %s", name,
                       bt_status_str(status));
    }
}

/* Returns all bytes of the tensor, from the file or made in scratch that the
 * caller frees; NULL: the loader has failed. */
static const void *get_all(bt_loader_t *loader, const char *name,
                           const bt_gguf_tensor_t *t, void **scratch_p)
{
    *scratch_p = NULL;
    if (t->data != NULL) {
        return t->data;
    }
    *scratch_p = take_scratch(loader, name, t->bytes);
    if (*scratch_p != NULL) {
        check(loader, name, bt_gguf_tensor_copy(t, *scratch_p));
    }
    return (loader->status == BT_OK) ? *scratch_p : NULL;
}

static bool is_whole(const bt_gguf_tensor_t *t, const bt_cut_t *cut)
{
    return (cut->rows.n == t->dims[1] * t->dims[2] * t->dims[3]) &&
           (cut->columns.n == t->dims[0]);
}

/* Copies the cut's bytes of the tensor's data, one row behind the other. */
static void copy_rows(const bt_gguf_tensor_t *t, const uint8_t *data,
                      const bt_cut_t *cut, uint8_t *out)
{
    size_t at = 0;
    size_t bytes = 0;

    (void)column_bytes(t, cut, &at, &bytes); /* checked before */
    for (uint32_t i = 0; i < cut->rows.n; i++) {
        memcpy(out + i * bytes,
               data + ((size_t)cut->rows.first + i) * row_bytes(t) + at, bytes);
    }
}

/* Copies the cut's bytes, one row behind the other. */
static void copy_cut(bt_loader_t *loader, const char *name,
                     const bt_gguf_tensor_t *t, const bt_cut_t *cut,
                     uint8_t *out)
{
    const uint8_t *data;
    void *scratch = NULL;

    if (is_whole(t, cut)) { /* made in place */
        check(loader, name, bt_gguf_tensor_copy(t, out));
        return;
    }
    data = get_all(loader, name, t, &scratch);
    if (data != NULL) {
        copy_rows(t, data, cut, out);
    }
    bt_free(scratch);
}

/* Returns the memory beside the cut's own that copying it takes. */
static size_t scratch_bytes(const bt_gguf_tensor_t *t, const bt_cut_t *cut)
{
    return ((t->data == NULL) && !is_whole(t, cut)) ? t->bytes : 0;
}

/* True when the cut's rows are contiguous in the file. */
static bool in_place(const bt_gguf_tensor_t *t, const bt_cut_t *cut)
{
    return (t->data != NULL) && (cut->columns.n == t->dims[0]);
}

/* Returns 0 where the tensor cannot be cut so. */
static size_t cut_bytes(const bt_gguf_tensor_t *t, const bt_cut_t *cut)
{
    size_t at = 0;
    size_t bytes = 0;

    return column_bytes(t, cut, &at, &bytes) ? cut->rows.n * bytes : 0;
}

/* Loads one matrix of a part of a tensor. */
static void pack_cut(bt_loader_t *loader, const char *name,
                     const bt_gguf_tensor_t *stored, const bt_cut_t *cut,
                     bt_weight_t **w_p)
{
    const bt_gguf_tensor_t *const t = form_of(loader, stored, cut);
    const size_t bytes = cut_bytes(t, cut);
    const void *data = NULL;
    uint8_t *scratch = NULL;

    if (bytes == 0) {
        bt_loader_fail(loader, BT_ERR_UNSUPPORTED,
                       "tensor %s (%s) cannot be cut into %u of its %u "
                       "columns, inside a block",
                       name, bt_ktype_name(t->type), cut->columns.n,
                       (uint32_t)t->dims[0]);
        return;
    }
    if (!in_place(t, cut) &&
        (scratch_bytes(t, cut) + bytes > loader->max_piece)) {
        loader->max_piece = scratch_bytes(t, cut) + bytes;
    }
    if (reads_matrices(loader) && in_place(t, cut)) {
        data = (const uint8_t *)t->data + cut->rows.first * row_bytes(t);
    } else if (reads_matrices(loader)) {
        scratch = take_scratch(loader, name, bytes);
        if (scratch == NULL) {
            return;
        }
        copy_cut(loader, name, t, cut, scratch);
        data = scratch;
    }
    pack(loader, name, t->type, cut->rows.n, cut->columns.n, data, w_p);
    bt_free(scratch);
}

void bt_loader_matrix(bt_loader_t *loader, const char *name, uint32_t n_out,
                      uint32_t n_in, bt_share_t columns, uint32_t part,
                      bt_weight_t **w_p)
{
    const bt_gguf_tensor_t *const t = find(loader, name, n_in, n_out, false);
    const bt_cut_t cut = {.rows = {0, n_out}, .columns = columns};
    char of_part[NAME_BYTES];

    if (t != NULL) {
        snprintf(of_part, sizeof(of_part), (part == 0) ? "%s" : "%s/%u", name,
                 part);
        pack_cut(loader, of_part, t, &cut, w_p);
    }
}

/* Copies the rows of each matrix of the stack, one behind the other. */
static void copy_stack(const bt_gguf_tensor_t *t, const uint8_t *data,
                       const bt_stack_t *stack, uint8_t *out)
{
    for (uint32_t m = 0; m < stack->mats.n; m++) {
        for (uint32_t i = 0; i < BT_ARRAY_LEN(stack->rows); i++) {
            const bt_cut_t cut = {
                .rows = {(stack->mats.first + m) * stack->n_out +
                             stack->rows[i].first,
                         stack->rows[i].n},
                .columns = stack->columns};

            copy_rows(t, data, &cut, out);
            out += cut_bytes(t, &cut);
        }
    }
}

/* Loads what does not lie in one piece. @a cut has its rows and columns. */
static void pack_stack(bt_loader_t *loader, const char *name,
                       const bt_gguf_tensor_t *stored, const bt_stack_t *stack,
                       const bt_cut_t *cut, bt_weight_t **w_p)
{
    const bt_gguf_tensor_t *const t = form_of(loader, stored, cut);
    const size_t bytes = cut_bytes(t, cut);
    const size_t most = bytes + ((t->data == NULL) ? t->bytes : 0);
    const void *data = NULL;
    void *scratch = NULL;
    uint8_t *joined = NULL;

    if (bytes == 0) {
        bt_loader_fail(loader, BT_ERR_UNSUPPORTED,
                       "tensor %s (%s) cannot be cut into %u of its %u "
                       "columns, inside a block",
                       name, bt_ktype_name(t->type), cut->columns.n,
                       stack->n_in);
        return;
    }
    loader->max_piece = (most > loader->max_piece) ? most : loader->max_piece;
    if (reads_matrices(loader)) {
        data = get_all(loader, name, t, &scratch);
        joined = take_scratch(loader, name, bytes);
        if ((data != NULL) && (joined != NULL)) {
            copy_stack(t, data, stack, joined);
        }
    }
    if (loader->status == BT_OK) {
        pack(loader, name, t->type, cut->rows.n, cut->columns.n, joined, w_p);
    }
    bt_free(scratch);
    bt_free(joined);
}

void bt_loader_stacked(bt_loader_t *loader, const char *name,
                       const bt_stack_t *stack, uint32_t part,
                       bt_weight_t **w_p)
{
    const bt_gguf_tensor_t *const t = find_mats(
        loader, name, stack->n_in, stack->n_out, false, stack->n_mats);
    const uint32_t n_out = stack->rows[0].n + stack->rows[1].n;
    bt_cut_t cut = {.columns = stack->columns};
    uint32_t n_rows;
    char of_part[NAME_BYTES];

    if (t == NULL) {
        return;
    }
    snprintf(of_part, sizeof(of_part), (part == 0) ? "%s" : "%s/%u", name,
             part);
    if (__builtin_mul_overflow(stack->n_mats, stack->n_out, &n_rows)) {
        bt_loader_fail(loader, BT_ERR_UNSUPPORTED,
                       "tensor %s: %u matrices of %u rows are too many", name,
                       stack->n_mats, stack->n_out);
        return;
    }
    cut.rows.n = stack->mats.n * n_out;
    if ((n_out == stack->n_out) && (stack->columns.n == stack->n_in)) {
        cut.rows.first = stack->mats.first * n_out;
        pack_cut(loader, of_part, t, &cut, w_p);
    } else {
        pack_stack(loader, of_part, t, stack, &cut, w_p);
    }
}

void bt_loader_matrix_f32(bt_loader_t *loader, const char *name, uint32_t n_out,
                          uint32_t n_in, bt_weight_t **w_p)
{
    const bt_gguf_tensor_t *const t = find(loader, name, n_in, n_out, false);
    const size_t n = (size_t)n_out * n_in;
    const void *data = NULL;
    void *scratch = NULL;
    float *values = NULL;

    if (t == NULL) {
        return;
    }
    if (n * sizeof(*values) + t->bytes > loader->max_piece) {
        loader->max_piece = n * sizeof(*values) + t->bytes;
    }
    if (reads_matrices(loader)) {
        data = get_all(loader, name, t, &scratch);
        values = take_scratch(loader, name, n * sizeof(*values));
        if ((data != NULL) && (values != NULL)) {
            check(loader, name,
                  bt_dequantize((bt_ktype_t)t->type, data, n, values));
        }
    }
    if (loader->status == BT_OK) {
        pack(loader, name, BT_KTYPE_F32, n_out, n_in, values, w_p);
    }
    bt_free(scratch);
    bt_free(values);
}

void bt_loader_first_rows(bt_loader_t *loader, const char *name, uint32_t n_out,
                          uint32_t n_in, bt_share_t rows, bt_weight_t **w_p)
{
    const bt_gguf_tensor_t *const t = find(loader, name, n_in, n_out, true);
    const bt_cut_t cut = {.rows = rows, .columns = {0, n_in}};

    if (t != NULL) {
        pack_cut(loader, name, t, &cut, w_p);
    }
}

/* Returns a tensor's n values, which the caller frees.
 * @return NULL: the loader has failed */
static float *values_of(bt_loader_t *loader, const char *name,
                        const bt_gguf_tensor_t *t, size_t n)
{
    void *scratch = NULL;
    const void *const data = get_all(loader, name, t, &scratch);
    float *const values = (data != NULL) ? bt_calloc(n, sizeof(*values)) : NULL;

    if (values == NULL) {
        bt_loader_fail(loader, BT_ERR_NO_MEMORY, "out of memory for tensor %s",
                       name);
    } else {
        check(loader, name,
              bt_dequantize((bt_ktype_t)t->type, data, n, values));
    }
    bt_free(scratch);
    return values;
}

void bt_loader_values(bt_loader_t *loader, const char *name, uint32_t n,
                      float **values_p)
{
    const bt_gguf_tensor_t *const t = find(loader, name, n, 0, false);
    float *const values = (t == NULL) ? NULL : values_of(loader, name, t, n);

    if (values != NULL) {
        *values_p = values;
    }
}

/* Reads whole numbers that are ids below n_ids, each at most once. */
static bool read_ids(const void *data, uint32_t n, uint32_t n_ids, bool *seen,
                     uint32_t *ids)
{
    for (uint32_t i = 0; i < n; i++) {
        int64_t id;

        memcpy(&id, (const uint8_t *)data + i * sizeof(id), sizeof(id));
        if ((id < 0) || (id >= (int64_t)n_ids) || seen[id]) {
            return false;
        }
        seen[id] = true;
        ids[i] = (uint32_t)id;
    }
    return true;
}

/* Finds a vector of n numbers of 64 bits, and marks it as used. */
static const bt_gguf_tensor_t *find_ids(bt_loader_t *loader, const char *name,
                                        uint32_t n)
{
    const bt_gguf_tensor_t *const t = bt_gguf_tensor(loader->gguf, name);

    if ((t == NULL) || (t->type != BT_GGUF_TENSOR_I64) || (t->dims[0] != n) ||
        (t->dims[1] != 1) || (t->dims[2] != 1) || (t->dims[3] != 1)) {
        bt_loader_fail(loader, BT_ERR_BAD_FILE,
                       "tensor %s is no vector of %u ids of 64 bits", name, n);
        return NULL;
    }
    bt_loader_leave(loader, name);
    return t;
}

void bt_loader_ids(bt_loader_t *loader, const char *name, uint32_t n,
                   uint32_t n_ids, uint32_t **ids_p)
{
    const bt_gguf_tensor_t *const t = find_ids(loader, name, n);
    const void *data = NULL;
    void *scratch = NULL;
    uint32_t *ids;
    bool *seen;

    loader->host_bytes += (size_t)n * sizeof(*ids);
    if ((t == NULL) || loader->dry) {
        return;
    }
    data = get_all(loader, name, t, &scratch);
    ids = bt_calloc(n, sizeof(*ids));
    seen = bt_calloc(n_ids, sizeof(*seen));
    if ((ids == NULL) || (seen == NULL)) {
        bt_loader_fail(loader, BT_ERR_NO_MEMORY, "out of memory for tensor %s",
                       name);
    } else if ((data != NULL) && !read_ids(data, n, n_ids, seen, ids)) {
        bt_loader_fail(loader, BT_ERR_BAD_FILE,
                       "tensor %s is no list of different ids below %u", name,
                       n_ids);
    }
    bt_free(seen);
    bt_free(scratch);
    if (loader->status != BT_OK) {
        bt_free(ids);
        return;
    }
    *ids_p = ids;
}

void bt_loader_table(bt_loader_t *loader, const char *what, float *values,
                     size_t n, float **ptr_p)
{
    bt_status_t status;

    bt_loader_buffer(loader, 1, n, ptr_p);
    if ((values == NULL) && !loader->dry) {
        bt_loader_fail(loader, BT_ERR_NO_MEMORY, "out of memory for %s", what);
    }
    if ((loader->status == BT_OK) && !loader->dry) {
        status = loader->be->ops->copy_in(loader->be, *ptr_p, values,
                                          n * sizeof(*values));
        if (status != BT_OK) {
            bt_loader_fail(loader, status, "%s: %s", what,
                           bt_status_str(status));
        }
    }
    bt_free(values);
}

void bt_loader_vector_part(bt_loader_t *loader, const char *name, uint32_t n,
                           bt_share_t part, float **ptr_p)
{
    float *values = NULL;

    if (loader->dry) {
        (void)find(loader, name, n, 0, false);
        bt_loader_buffer(loader, 1, part.n, ptr_p);
        return;
    }
    bt_loader_values(loader, name, n, &values);
    if (values != NULL) {
        memmove(values, values + part.first, part.n * sizeof(*values));
        bt_loader_table(loader, name, values, part.n, ptr_p);
    }
}

void bt_loader_rows(bt_loader_t *loader, const char *name, uint32_t n_rows,
                    uint32_t n, const bt_cut_t *cut, float **ptr_p)
{
    const bt_gguf_tensor_t *const t = find(loader, name, n, n_rows, false);
    const size_t width = cut->columns.n;
    float *values = NULL;

    if ((t == NULL) || loader->dry) {
        bt_loader_buffer(loader, cut->rows.n, width, ptr_p);
        return;
    }
    values = values_of(loader, name, t, (size_t)n_rows * n);
    for (uint32_t i = 0; (values != NULL) && (i < cut->rows.n); i++) {
        memmove(values + i * width,
                values + ((size_t)cut->rows.first + i) * n + cut->columns.first,
                width * sizeof(*values));
    }
    if (values != NULL) {
        bt_loader_table(loader, name, values, cut->rows.n * width, ptr_p);
    }
}

void bt_loader_vector(bt_loader_t *loader, const char *name, uint32_t n,
                      float **ptr_p)
{
    bt_loader_vector_part(loader, name, n, (bt_share_t){0, n}, ptr_p);
}

bool bt_loader_has(const bt_loader_t *loader, const char *name)
{
    return bt_gguf_tensor(loader->gguf, name) != NULL;
}

void bt_loader_biases(bt_loader_t *loader, uint32_t layer,
                      const bt_piece_t *pieces, uint32_t n_pieces,
                      float **ptr_p)
{
    char name[NAME_BYTES];
    size_t total = 0;
    size_t at = 0;

    for (uint32_t i = 0; i < n_pieces; i++) {
        snprintf(name, sizeof(name), "blk.%u.%s.bias", layer, pieces[i].name);
        (void)find(loader, name, pieces[i].n_out, 0, false);
        total += pieces[i].rows.n;
    }
    bt_loader_buffer(loader, 1, total, ptr_p);
    for (uint32_t i = 0; !loader->dry && (i < n_pieces); i++) {
        const bt_share_t rows = pieces[i].rows;
        float *values = NULL;

        snprintf(name, sizeof(name), "blk.%u.%s.bias", layer, pieces[i].name);
        bt_loader_values(loader, name, pieces[i].n_out, &values);
        if (values != NULL) {
            check(loader, name,
                  loader->be->ops->copy_in(loader->be, *ptr_p + at,
                                           values + rows.first,
                                           rows.n * sizeof(*values)));
        }
        bt_free(values);
        at += rows.n;
    }
}

/* Loads one matrix of all pieces' rows: their bytes one after the other. */
static void pack_together(bt_loader_t *loader, const char *name,
                          const bt_gguf_tensor_t *const *tensors,
                          const bt_piece_t *pieces, uint32_t n_pieces,
                          uint32_t n_in, bt_linear_t *linear)
{
    uint8_t *joined = NULL;
    uint32_t n_out = 0;
    size_t scratch = 0;
    size_t bytes = 0;
    size_t at = 0;

    for (uint32_t i = 0; i < n_pieces; i++) {
        const bt_cut_t cut = {.rows = pieces[i].rows, .columns = {0, n_in}};
        const size_t beside = scratch_bytes(tensors[i], &cut);

        bytes += pieces[i].rows.n * row_bytes(tensors[i]);
        n_out += pieces[i].rows.n;
        scratch = (beside > scratch) ? beside : scratch;
    }
    if (bytes + scratch > loader->max_piece) {
        loader->max_piece = bytes + scratch;
    }
    if (reads_matrices(loader)) {
        joined = take_scratch(loader, name, bytes);
        for (uint32_t i = 0; (joined != NULL) && (i < n_pieces); i++) {
            const bt_cut_t cut = {.rows = pieces[i].rows, .columns = {0, n_in}};

            copy_cut(loader, name, tensors[i], &cut, joined + at);
            at += pieces[i].rows.n * row_bytes(tensors[i]);
        }
    }
    linear->n_parts = 1;
    linear->n_out[0] = n_out;
    pack(loader, name, tensors[0]->type, n_out, n_in, joined,
         &linear->weights[0]);
    bt_free(joined);
}

void bt_loader_linear(bt_loader_t *loader, uint32_t layer,
                      const bt_piece_t *pieces, uint32_t n_pieces,
                      uint32_t n_in, bt_linear_t *linear)
{
    const bt_gguf_tensor_t *tensors[BT_MAX_PARTS];
    char name[BT_MAX_PARTS][NAME_BYTES];
    bool same_type = true;

    for (uint32_t i = 0; i < n_pieces; i++) {
        const bt_cut_t cut = {.rows = pieces[i].rows, .columns = {0, n_in}};

        snprintf(name[i], NAME_BYTES, "blk.%u.%s.weight", layer,
                 pieces[i].name);
        tensors[i] = find(loader, name[i], n_in, pieces[i].n_out, false);
        if (tensors[i] == NULL) {
            return;
        }
        tensors[i] = form_of(loader, tensors[i], &cut);
        same_type = same_type && (tensors[i]->type == tensors[0]->type);
    }
    if (same_type && (n_pieces > 1)) {
        pack_together(loader, name[0], tensors, pieces, n_pieces, n_in, linear);
        for (uint32_t i = 1; (loader->status == BT_OK) && (i < n_pieces); i++) {
            tell(loader, name[i], linear->weights[0]);
        }
        return;
    }
    linear->n_parts = n_pieces;
    for (uint32_t i = 0; i < n_pieces; i++) {
        const bt_cut_t cut = {.rows = pieces[i].rows, .columns = {0, n_in}};

        linear->n_out[i] = pieces[i].rows.n;
        pack_cut(loader, name[i], tensors[i], &cut, &linear->weights[i]);
    }
}

void bt_loader_leave(bt_loader_t *loader, const char *name)
{
    const bt_gguf_tensor_t *const t = bt_gguf_tensor(loader->gguf, name);

    if ((t != NULL) && (loader->used != NULL)) {
        loader->used[t - bt_gguf_tensor_at(loader->gguf, 0)] = true;
    }
}

/* True for a layer of another stage, which checks it, and for one that predicts
 * further tokens; where such a layer is loaded, for all but it. */
static bool is_elsewhere(const bt_loader_t *loader, bt_gguf_str_t name)
{
    const bt_share_t own = loader->shard.layers;
    const bool is_nextn = loader->hp->head.kind == BT_HEAD_NEXTN;
    char text[32];
    uint32_t layer;

    snprintf(text, sizeof(text), "%.*s",
             (name.len < sizeof(text)) ? (int)name.len : (int)sizeof(text) - 1,
             name.data);
    if (sscanf(text, "blk.%u.", &layer) != 1) {
        return is_nextn;
    }
    return (is_nextn || (layer < loader->hp->n_layers + loader->hp->n_nextn)) &&
           (layer - own.first >= own.n);
}

void bt_loader_check_all_used(bt_loader_t *loader)
{
    for (uint64_t i = 0;
         (loader->status == BT_OK) && (i < bt_gguf_n_tensors(loader->gguf));
         i++) {
        const bt_gguf_str_t name = bt_gguf_tensor_at(loader->gguf, i)->name;

        if (!loader->used[i] && !is_elsewhere(loader, name)) {
            bt_loader_fail(loader, BT_ERR_UNSUPPORTED,
                           "tensor %s has no place in this "
                           "architecture; its effect would be missing",
                           bt_printable(name.data, name.len).text);
        }
    }
}

bt_workload_t bt_loader_workload(const bt_loader_t *loader)
{
    const bt_model_config_t *const c = loader->config;
    const bt_collectives_t *const all = c->host_coll;
    const bt_collectives_t *const stage = c->host_stage;
    const bool has_stages = (all != NULL) && (c->n_stages > 1);

    return (bt_workload_t){
        .max_rows = c->max_rows,
        .max_seqs = (c->max_seqs != 0) ? c->max_seqs : c->max_rows,
        .context_tokens = c->context_tokens,
        .n_heads = loader->own.n_heads,
        .n_kv_heads = loader->own.n_kv_heads,
        .head_dim = loader->own.head_dim,
        .dense_n_in = loader->dense_n_in,
        .quant_n_in = loader->quant_n_in,
        .n_ranks = (all != NULL) ? all->size : 1,
        .n_tables = ((all != NULL) ? 1u : 0u) +
                    ((has_stages && (stage != NULL)) ? 1u : 0u),
    };
}
