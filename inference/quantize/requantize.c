/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/quantize/quantize.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text.h"
#include "inference/gguf/gguf_meta.h"
#include "kernels/kernels.h"

/* Rows of tensors on several threads, and models whose tensors are quantized as
 * they are read. */

#define MAX_THREADS 256u
#define META_BYTES  ((size_t)1 << 31)
#define KEY_SOURCE  "baton.requantized.source"

/* Rows of a tensor, for one thread. */
typedef struct piece {
    const bt_quantize_step_t *step;
    const uint8_t *data; /* the tensor's */
    uint64_t row;        /* the first */
    uint64_t n_rows;
    uint8_t *out;
    const float *weights; /* (matrices, dims[0]), or NULL */
    float *x;             /* (dims[0]) scratch */
    bt_status_t status;
    pthread_t thread;
} piece_t;

static uint64_t rows_of(const bt_gguf_tensor_t *tensor)
{
    uint64_t n = 1;

    for (uint32_t d = 1; d < tensor->n_dims; d++) {
        n *= tensor->dims[d]; /* checked when the file was opened */
    }
    return n;
}

/* Position of row @a i of the tensor, of one of its matrices. */
static bt_status_t quantize_row(piece_t *piece, uint64_t i, const uint8_t *from,
                                uint8_t *to)
{
    const bt_gguf_tensor_t *const tensor = piece->step->tensor;
    const size_t n = (size_t)tensor->dims[0];
    const float *const weights =
        (piece->weights == NULL)
            ? NULL
            : piece->weights + (size_t)(i / tensor->dims[1]) * n;
    bt_status_t status = bt_dequantize(tensor->type, from, n, piece->x);

    return (status == BT_OK)
               ? bt_quantize(piece->step->type, piece->x, weights, n, to)
               : status;
}

static void *quantize_piece(void *ctx)
{
    piece_t *const piece = ctx;
    const bt_gguf_tensor_t *const tensor = piece->step->tensor;
    const uint64_t all_rows = rows_of(tensor);
    const size_t from_bytes = tensor->bytes / all_rows;
    const size_t to_bytes = piece->step->bytes / all_rows;
    const uint8_t *from = piece->data + (size_t)piece->row * from_bytes;
    uint8_t *to = piece->out;

    piece->status = BT_OK;
    if (tensor->type == piece->step->type) {
        memcpy(to, from, (size_t)piece->n_rows * from_bytes);
        return NULL;
    }
    for (uint64_t i = 0; (i < piece->n_rows) && (piece->status == BT_OK); i++) {
        piece->status = quantize_row(piece, piece->row + i, from, to);
        from += from_bytes;
        to += to_bytes;
    }
    return NULL;
}

static bt_status_t run_pieces(piece_t *pieces, uint32_t n)
{
    bt_status_t status = BT_OK;
    uint32_t n_started = 0;

    for (uint32_t t = 1; t < n; t++) {
        /* Work of threads that cannot be started is done here, after the
         * first. */
        if (pthread_create(&pieces[t].thread, NULL, quantize_piece,
                           &pieces[t]) != 0) {
            break;
        }
        n_started = t;
    }
    (void)quantize_piece(&pieces[0]);
    for (uint32_t t = 1; t < n; t++) {
        if (t <= n_started) {
            pthread_join(pieces[t].thread, NULL);
        } else {
            (void)quantize_piece(&pieces[t]);
        }
    }
    for (uint32_t t = 0; (t < n) && (status == BT_OK); t++) {
        status = pieces[t].status;
    }
    return status;
}

bt_status_t bt_quantize_rows(const bt_quantize_step_t *step, const void *data,
                             const float *weights, uint64_t row, uint64_t n,
                             uint32_t n_threads, uint8_t *out)
{
    const uint32_t n_pieces =
        (n_threads < MAX_THREADS) ? n_threads : MAX_THREADS;
    const size_t dim = (size_t)step->tensor->dims[0];
    const size_t to_bytes = step->bytes / rows_of(step->tensor);
    piece_t *const pieces = bt_calloc(n_pieces, sizeof(*pieces));
    float *const x = bt_calloc(n_pieces, (dim + 1) * sizeof(*x));
    bt_status_t status = BT_ERR_NO_MEMORY;

    for (uint32_t t = 0; (pieces != NULL) && (t < n_pieces); t++) {
        const uint64_t begin = n * t / n_pieces;

        pieces[t] = (piece_t){.step = step,
                              .data = data,
                              .weights = weights,
                              .row = row + begin,
                              .n_rows = n * (t + 1) / n_pieces - begin,
                              .out = out + (size_t)begin * to_bytes,
                              .x = x + t * dim};
    }
    if ((pieces != NULL) && (x != NULL)) {
        status = run_pieces(pieces, n_pieces);
    }
    bt_free(x);
    bt_free(pieces);
    return status;
}

/* How a tensor is made. */
typedef struct recipe {
    const bt_quantize_step_t *step;
    uint32_t n_threads;
} recipe_t;

/* All that an opened model points to. */
typedef struct owner {
    bt_quantize_plan_t plan;
    bt_strbuf_t meta;
    recipe_t *recipes;         /* plan.n */
    bt_gguf_tensor_t *tensors; /* plan.n */
} owner_t;

static void free_owner(void *ctx)
{
    owner_t *const owner = ctx;

    if (owner != NULL) {
        bt_quantize_plan_fini(&owner->plan);
        bt_strbuf_fini(&owner->meta);
        bt_free(owner->recipes);
        bt_free(owner->tensors);
        bt_free(owner);
    }
}

static bt_status_t make_tensor(const void *ctx, void *out)
{
    const recipe_t *const recipe = ctx;
    const bt_gguf_tensor_t *const tensor = recipe->step->tensor;
    void *made = NULL;
    bt_status_t status = BT_OK;

    if (recipe->step->bytes == 0) {
        return BT_OK;
    }
    if (tensor->data == NULL) {
        made = bt_calloc(1, tensor->bytes);
        status = (made == NULL) ? BT_ERR_NO_MEMORY
                                : bt_gguf_tensor_copy(tensor, made);
    }
    if (status == BT_OK) {
        status =
            bt_quantize_rows(recipe->step, (made != NULL) ? made : tensor->data,
                             NULL, 0, rows_of(tensor), recipe->n_threads, out);
    }
    bt_free(made);
    return status;
}

/* Copies the metadata, and says of which file they are and how its tensors were
 * changed: so the packed weights have a file of their own. */
static void put_meta(const bt_gguf_t *gguf, const bt_quantize_mix_t *mix,
                     bt_strbuf_t *out)
{
    const bt_hash128_t id = bt_gguf_identity(gguf);
    bt_gguf_meta_t meta;
    char source[128];
    const int n = snprintf(source, sizeof(source),
                           "%016" PRIx64 "%016" PRIx64 " %u %u", id.hi, id.lo,
                           bt_quantize_mix_file_type(mix), BT_QUANTIZE_VERSION);

    bt_gguf_meta_init(&meta, out);
    for (uint64_t i = 0; i < bt_gguf_n_pairs(gguf); i++) {
        const bt_gguf_pair_t pair = bt_gguf_pair_at(gguf, i);

        if (!bt_gguf_str_is(pair.key, KEY_SOURCE) &&
            ((pair.key.len < 6) || (memcmp(pair.key.data, "split.", 6) != 0))) {
            bt_gguf_meta_pair(&meta, &pair);
        }
    }
    bt_gguf_meta_str(&meta, KEY_SOURCE, source, (size_t)n);
    bt_gguf_meta_end(&meta);
}

static void put_tensors(owner_t *owner, uint32_t n_threads,
                        bt_quantize_size_t *size)
{
    for (uint64_t i = 0; i < owner->plan.n; i++) {
        const bt_quantize_step_t *const step = &owner->plan.steps[i];
        bt_gguf_tensor_t *const tensor = &owner->tensors[i];
        const size_t row_bytes = (size_t)step->tensor->dims[0] * sizeof(float);
        const size_t scratch =
            row_bytes * n_threads +
            ((step->tensor->data == NULL) ? step->tensor->bytes : 0);

        *tensor = *step->tensor;
        size->bytes += step->bytes;
        if (step->type == step->tensor->type) {
            continue;
        }
        owner->recipes[i] = (recipe_t){.step = step, .n_threads = n_threads};
        tensor->type = step->type;
        tensor->bytes = step->bytes;
        tensor->data = NULL;
        tensor->codes = NULL;
        tensor->make = make_tensor;
        tensor->recipe = &owner->recipes[i];
        if (scratch > size->scratch_bytes) {
            size->scratch_bytes = scratch;
        }
    }
}

/* Every tensor's type has to be one that is read as numbers. */
static bt_status_t check_types(const bt_gguf_t *gguf, char *why,
                               size_t why_bytes)
{
    for (uint64_t i = 0; i < bt_gguf_n_tensors(gguf); i++) {
        const bt_gguf_tensor_t *const tensor = bt_gguf_tensor_at(gguf, i);
        uint32_t elems;
        uint32_t bytes;

        if (bt_ktype_block(tensor->type, &elems, &bytes) != BT_OK) {
            snprintf(why, why_bytes, "tensor %.*s: %s cannot be read",
                     (int)tensor->name.len, tensor->name.data,
                     bt_gguf_type_name(tensor->type));
            return BT_ERR_UNSUPPORTED;
        }
    }
    return BT_OK;
}

static bt_status_t assemble(const bt_gguf_t *gguf, owner_t *owner, char *why,
                            size_t why_bytes, bt_gguf_t **out_p)
{
    const bt_gguf_parts_t parts = {.meta = owner->meta.data,
                                   .meta_bytes = owner->meta.len,
                                   .tensors = owner->tensors,
                                   .n_tensors = owner->plan.n,
                                   .made_of = gguf,
                                   .owner = owner,
                                   .free_owner = free_owner};

    return bt_gguf_assemble(&parts, why, why_bytes, out_p);
}

bt_status_t bt_requantize_open(const bt_gguf_t *gguf,
                               const bt_quantize_mix_t *mix, uint32_t n_threads,
                               bt_quantize_size_t *size_p, char *why,
                               size_t why_bytes, bt_gguf_t **out_p)
{
    owner_t *owner;
    bt_quantize_size_t size = {0};
    bt_status_t status = check_types(gguf, why, why_bytes);

    if (status != BT_OK) {
        return status;
    }
    owner = bt_calloc(1, sizeof(*owner));
    if (owner == NULL) {
        snprintf(why, why_bytes, "out of memory");
        return BT_ERR_NO_MEMORY;
    }
    bt_strbuf_init(&owner->meta, META_BYTES);
    put_meta(gguf, mix, &owner->meta);
    status = bt_strbuf_status(&owner->meta);
    if (status == BT_OK) {
        status = bt_quantize_plan_make(gguf, mix, &owner->plan);
    }
    owner->recipes = bt_calloc(owner->plan.n + 1, sizeof(*owner->recipes));
    owner->tensors = bt_calloc(owner->plan.n + 1, sizeof(*owner->tensors));
    if ((owner->recipes == NULL) || (owner->tensors == NULL)) {
        status = BT_ERR_NO_MEMORY;
    }
    if (status != BT_OK) {
        snprintf(why, why_bytes, "%s", bt_status_str(status));
        goto err_owner;
    }
    put_tensors(owner, n_threads, &size);
    status = assemble(gguf, owner, why, why_bytes, out_p);
    if (status != BT_OK) {
        goto err_owner;
    }
    if (size_p != NULL) {
        *size_p = size;
    }
    return BT_OK;

err_owner:
    free_owner(owner);
    return status;
}
