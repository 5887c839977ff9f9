/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/imatrix/imatrix.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "inference/reader/reader.h"

#define PATH_BYTES   4096u
#define SOURCE_BYTES 96u
#define PART_WINDOWS 16u /* windows between two writes of PATH.part */

/* Operations of the back end with a matrix product that records its inputs
 * first. The back end gets this table instead of its own; the recorded calls go
 * on to its own code, with its own object. Fused operations are left out, so
 * that the single ones run, which have the same bits. */
typedef struct watch {
    bt_kernels_ops_t ops; /* first: a back end's table leads to the rest */
    const bt_kernels_ops_t *own;
    const bt_gguf_t *gguf;
    bt_imatrix_t *m;
    const bt_weight_t **weights; /* (m->n_entries) tensor of each entry */
    uint32_t cap;
    bt_status_t status;
} watch_t;

/* Adds the squares of a row that was given to matrix @a mat. */
static void add_squares(bt_imatrix_entry_t *e, uint32_t mat, const float *x)
{
    const uint32_t n = e->n / e->n_mats;
    float *const sums = e->sums + (size_t)mat * n;

    for (uint32_t k = 0; k < n; k++) {
        sums[k] += x[k] * x[k];
    }
}

static void matmul(bt_backend_t *be, const bt_weight_t *w, const float *x,
                   uint32_t n_rows, float *out)
{
    const watch_t *const watch = (const watch_t *)(const void *)be->ops;

    for (uint32_t i = 0; i < watch->m->n_entries; i++) {
        if ((i < watch->cap) && (watch->weights[i] == w)) {
            bt_imatrix_entry_t *const e = &watch->m->entries[i];

            for (size_t r = 0; r < n_rows; r++) {
                add_squares(e, 0, x + r * e->n);
            }
            e->counts[0] += (float)n_rows;
        }
    }
    watch->own->matmul(be, w, x, n_rows, out);
}

/* Adds the rows that each expert of a weight was given. */
static void add_rows(bt_imatrix_entry_t *e, const bt_expert_rows_t *rows,
                     const float *x, bool by_row)
{
    const size_t n = e->n / e->n_mats;

    for (uint32_t mat = 0; mat < e->n_mats; mat++) {
        for (size_t s = rows->first[mat]; s < rows->first[mat + 1]; s++) {
            add_squares(e, mat, x + (by_row ? rows->rows[s] : s) * n);
        }
        e->counts[mat] += (float)(rows->first[mat + 1] - rows->first[mat]);
    }
}

static void matmul_experts(bt_backend_t *be, const bt_weight_t *const *weights,
                           uint32_t n_weights, const bt_expert_rows_t *rows,
                           uint32_t n_rows, const float *x, bool by_row,
                           float *out)
{
    const watch_t *const watch = (const watch_t *)(const void *)be->ops;

    for (uint32_t i = 0; i < watch->m->n_entries; i++) {
        for (uint32_t k = 0; (i < watch->cap) && (k < n_weights); k++) {
            if (watch->weights[i] == weights[k]) {
                add_rows(&watch->m->entries[i], rows, x, by_row);
            }
        }
    }
    watch->own->matmul_experts(be, weights, n_weights, rows, n_rows, x, by_row,
                               out);
}

/* Returns the entry of a name, which exists in a continued run. */
static bt_status_t find_or_add(bt_imatrix_t *m, const bt_gguf_tensor_t *t,
                               uint32_t *i_p)
{
    const bt_imatrix_entry_t *const found = bt_imatrix_find(m, t->name);
    const uint32_t n_mats = (uint32_t)t->dims[2];
    uint32_t n;

    if (__builtin_mul_overflow((uint32_t)t->dims[0], n_mats, &n)) {
        return BT_ERR_OVERFLOW;
    }
    if (found == NULL) {
        return bt_imatrix_add(m, t->name.data, t->name.len, n, n_mats, i_p);
    }
    if ((found->n != n) || (found->n_mats != n_mats)) {
        return BT_ERR_MISMATCH;
    }
    *i_p = (uint32_t)(found - m->entries);
    return BT_OK;
}

static void on_weight(void *ctx, const char *name, const bt_weight_t *weight)
{
    watch_t *const watch = ctx;
    const bt_gguf_tensor_t *const t = bt_gguf_tensor(watch->gguf, name);
    uint32_t i = 0;

    if ((watch->status != BT_OK) || (t == NULL) ||
        (strcmp(name, "token_embd.weight") == 0)) {
        return;
    }
    watch->status = find_or_add(watch->m, t, &i);
    if ((watch->status == BT_OK) && (i >= watch->cap)) {
        const uint32_t before = watch->cap;

        if (!bt_array_grow(&watch->weights, &watch->cap, i + 1,
                           sizeof(*watch->weights))) {
            watch->status = BT_ERR_NO_MEMORY;
            return;
        }
        memset(watch->weights + before, 0,
               (watch->cap - before) * sizeof(*watch->weights));
    }
    if (watch->status == BT_OK) {
        watch->weights[i] = weight;
    }
}

static void begin_watch(watch_t *watch, bt_backend_t *be)
{
    watch->own = be->ops;
    watch->ops = *be->ops;
    watch->ops.matmul = matmul;
    watch->ops.matmul_experts = matmul_experts;
    watch->ops.norm_matmul = NULL;
    watch->ops.matmul_add = NULL;
    watch->ops.silu_matmul_add = NULL;
    be->ops = &watch->ops;
}

static bt_status_t read_window(bt_reader_t *reader, const uint32_t *tokens,
                               uint32_t n)
{
    bt_status_t status = BT_OK;
    float *logits;

    for (uint32_t pos = 0; (pos < n) && (status == BT_OK);
         pos += BT_READER_ROWS) {
        const uint32_t left = n - pos;

        status = bt_reader_logits(
            reader, tokens + pos,
            (left < BT_READER_ROWS) ? left : BT_READER_ROWS, pos, &logits);
    }
    return status;
}

typedef struct make {
    const bt_imatrix_collect_t *c;
    bt_token_vec_t tokens;
    uint32_t n_windows;
    char source[SOURCE_BYTES];
    char part[PATH_BYTES];
    char *why;
    size_t why_bytes;
} make_t;

static bt_status_t prepare(make_t *make, const bt_gguf_t *gguf)
{
    const bt_imatrix_collect_t *const c = make->c;
    const bt_hash128_t id = bt_gguf_identity(gguf);
    bt_status_t status = bt_reader_tokens(gguf, c->text, &make->tokens,
                                          make->why, make->why_bytes);
    bt_hash128_t text;
    int n;

    if (status != BT_OK) {
        return status;
    }
    text = bt_hash128(make->tokens.ids,
                      make->tokens.n * sizeof(*make->tokens.ids), 0);
    make->n_windows = (uint32_t)(make->tokens.n / c->window);
    make->n_windows += (make->n_windows == 0) ? 1 : 0;
    snprintf(make->source, sizeof(make->source),
             "%016" PRIx64 "%016" PRIx64 " %016" PRIx64 "%016" PRIx64, id.hi,
             id.lo, text.hi, text.lo);
    n = snprintf(make->part, sizeof(make->part), "%s.part", c->path);
    if ((n < 0) || ((size_t)n >= sizeof(make->part))) {
        snprintf(make->why, make->why_bytes, "%.200s: the name is too long",
                 c->path);
        return BT_ERR_INVALID_PARAM;
    }
    return BT_OK;
}

static bool is_of(const make_t *make, const bt_imatrix_t *m)
{
    return (m->source != NULL) && (strcmp(m->source, make->source) == 0) &&
           (m->window == make->c->window) && (m->n_windows <= make->n_windows);
}

/* Reads what exists: the complete matrix, a part, or nothing. */
static bt_status_t resume(make_t *make, bt_imatrix_t *m)
{
    char why[256];
    bt_status_t status = bt_imatrix_read(make->c->path, why, sizeof(why), m);

    if ((status == BT_OK) && is_of(make, m) &&
        (m->n_windows == make->n_windows)) {
        return BT_OK;
    }
    if (status != BT_ERR_NOT_FOUND) {
        snprintf(make->why, make->why_bytes,
                 "%.200s is there and of another model or text: remove it, or "
                 "name another",
                 make->c->path);
        return BT_ERR_EXISTS;
    }
    bt_imatrix_fini(m);
    status = bt_imatrix_read(make->part, why, sizeof(why), m);
    if ((status != BT_OK) || !is_of(make, m)) {
        bt_imatrix_fini(m);
    }
    m->window = make->c->window;
    if (m->source == NULL) {
        m->source = bt_strdup(make->source);
    }
    if (m->text == NULL) {
        m->text = bt_strdup(make->c->text);
    }
    if ((m->source == NULL) || (m->text == NULL)) {
        snprintf(make->why, make->why_bytes, "out of memory");
        return BT_ERR_NO_MEMORY;
    }
    return BT_OK;
}

static bt_status_t read_windows(make_t *make, bt_reader_t *reader,
                                bt_imatrix_t *m)
{
    const bt_imatrix_collect_t *const c = make->c;
    bt_status_t status = BT_OK;

    while ((status == BT_OK) && (m->n_windows < make->n_windows)) {
        const size_t at = (size_t)m->n_windows * c->window;
        const size_t left = make->tokens.n - at;

        if (!c->on_progress(c->ctx, m->n_windows, make->n_windows)) {
            status =
                bt_imatrix_write(m, make->part, make->why, make->why_bytes);
            if (status == BT_OK) {
                snprintf(make->why, make->why_bytes,
                         "stopped; the same command goes on");
                status = BT_ERR_CANCELED;
            }
            return status;
        }
        status = read_window(reader, make->tokens.ids + at,
                             (left < c->window) ? (uint32_t)left : c->window);
        if (status != BT_OK) {
            snprintf(make->why, make->why_bytes, "forward pass: %s",
                     bt_status_str(status));
            return status;
        }
        m->n_windows++;
        if (m->n_windows % PART_WINDOWS == 0) {
            status =
                bt_imatrix_write(m, make->part, make->why, make->why_bytes);
        }
    }
    (void)c->on_progress(c->ctx, m->n_windows, make->n_windows);
    return status;
}

static bt_status_t check(const make_t *make, const bt_imatrix_t *m)
{
    for (uint32_t i = 0; i < m->n_entries; i++) {
        for (uint32_t k = 0; k < m->entries[i].n; k++) {
            if (!isfinite(m->entries[i].sums[k])) {
                snprintf(make->why, make->why_bytes,
                         "what %.200s is given over this text is not finite",
                         m->entries[i].name);
                return BT_ERR_BAD_FILE;
            }
        }
    }
    return BT_OK;
}

static bt_status_t collect(make_t *make, const bt_gguf_t *gguf, bt_imatrix_t *m)
{
    watch_t watch = {.gguf = gguf, .m = m};
    const bt_reader_config_t config = {.window = make->c->window,
                                       .n_threads = make->c->n_threads,
                                       .on_weight = on_weight,
                                       .ctx = &watch};
    bt_reader_t reader = {0};
    bt_status_t status =
        bt_reader_open(&reader, gguf, &config, make->why, make->why_bytes);

    if ((status == BT_OK) && (watch.status != BT_OK)) {
        status = watch.status;
        snprintf(make->why, make->why_bytes, "importance matrix: %s",
                 bt_status_str(status));
    }
    if (status == BT_OK) {
        begin_watch(&watch, reader.be);
        status = read_windows(make, &reader, m);
        reader.be->ops = watch.own;
    }
    bt_reader_close(&reader);
    bt_free(watch.weights);
    return status;
}

bt_status_t bt_imatrix_make(const bt_gguf_t *gguf,
                            const bt_imatrix_collect_t *c, char *why,
                            size_t why_bytes, bt_imatrix_t *m)
{
    make_t make = {.c = c, .why = why, .why_bytes = why_bytes};
    bt_status_t status;

    if ((c->window < 2) || (c->window > BT_READER_MAX_WINDOW)) {
        snprintf(why, why_bytes, "a window of %u tokens is not from 2 to %u",
                 c->window, BT_READER_MAX_WINDOW);
        return BT_ERR_INVALID_PARAM;
    }
    status = prepare(&make, gguf);
    if (status == BT_OK) {
        status = resume(&make, m);
    }
    if ((status == BT_OK) && (m->n_windows < make.n_windows)) {
        status = collect(&make, gguf, m);
        if (status == BT_OK) {
            status = check(&make, m);
        }
        if (status == BT_OK) {
            status = bt_imatrix_write(m, c->path, why, why_bytes);
        }
        if (status == BT_OK) {
            (void)unlink(make.part);
        }
    }
    bt_free(make.tokens.ids);
    return status;
}
