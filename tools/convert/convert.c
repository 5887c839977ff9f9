/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/convert/convert.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text.h"

#define SLAB_ELEMS (4u << 20) /* values between two reports, about */
#define MAX_HEADER ((size_t)1 << 31)

typedef struct work {
    const bt_convert_options_t *options;
    bt_convert_progress_t progress;
    uint32_t n_threads;
    bt_part_file_t file;
    uint8_t *made;  /* converted data of a tensor that is not stored as GGUF
                     * would */
    float *weights; /* weights of its columns, if the importance matrix has
                     * them */
    char *why;
    size_t why_bytes;
} work_t;

static uint64_t rows_of(const bt_gguf_tensor_t *tensor)
{
    uint64_t n = 1;

    for (uint32_t d = 1; d < tensor->n_dims; d++) {
        n *= tensor->dims[d]; /* checked when the file was opened */
    }
    return n;
}

static bt_status_t refuse(work_t *w, bt_status_t status)
{
    const bt_quantize_step_t *const step = w->progress.step;
    const bt_printable_t name =
        bt_printable(step->tensor->name.data, step->tensor->name.len);

    switch (status) {
    case BT_ERR_INVALID_PARAM:
        snprintf(w->why, w->why_bytes, "tensor %s has an infinity or a NaN",
                 name.text);
        break;
    case BT_ERR_TOO_LARGE:
        snprintf(w->why, w->why_bytes,
                 "tensor %s has numbers that %s does not hold; bf16 and f32 "
                 "do",
                 name.text, bt_gguf_type_name(step->type));
        break;
    case BT_ERR_UNSUPPORTED:
        snprintf(w->why, w->why_bytes, "tensor %s: %s cannot be read",
                 name.text, bt_gguf_type_name(step->tensor->type));
        break;
    case BT_ERR_IO:
        snprintf(w->why, w->why_bytes, "%s: %m", w->file.part);
        break;
    default:
        snprintf(w->why, w->why_bytes, "tensor %s: %s", name.text,
                 bt_status_str(status));
        break;
    }
    return status;
}

static bt_status_t report(work_t *w, bool is_kept, bool is_done)
{
    w->progress.is_kept = is_kept;
    w->progress.is_done = is_done;
    if ((w->options->on_progress != NULL) &&
        !w->options->on_progress(w->options->ctx, &w->progress)) {
        snprintf(w->why, w->why_bytes, "stopped; the same command goes on");
        return BT_ERR_CANCELED;
    }
    return BT_OK;
}

/* Computes the weights of all columns of the tensor's matrices. */
static bt_status_t take_weights(work_t *w, uint32_t n)
{
    const bt_gguf_tensor_t *const tensor = w->progress.step->tensor;
    const uint64_t n_mats = tensor->dims[2] * tensor->dims[3];
    const bt_imatrix_entry_t *const entry =
        (w->options->imatrix == NULL)
            ? NULL
            : bt_imatrix_find(w->options->imatrix, tensor->name);

    if (entry == NULL) {
        return BT_OK;
    }
    w->weights = bt_calloc((size_t)n_mats * n, sizeof(*w->weights));
    if (w->weights == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint64_t i = 0; i < n_mats; i++) {
        bt_imatrix_weights(entry, i, n, w->weights + (size_t)i * n);
    }
    return BT_OK;
}

static bt_status_t take_scratch(work_t *w, size_t n)
{
    const bt_gguf_tensor_t *const tensor = w->progress.step->tensor;
    bt_status_t status;

    if ((tensor->data == NULL) && (tensor->bytes > 0)) {
        w->made = bt_calloc(1, tensor->bytes);
        if (w->made == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        status = bt_gguf_tensor_copy(tensor, w->made);
        if (status != BT_OK) {
            return status;
        }
    }
    return take_weights(w, (uint32_t)n);
}

static void free_scratch(work_t *w)
{
    bt_free(w->made);
    w->made = NULL;
    bt_free(w->weights);
    w->weights = NULL;
}

/* Runs the current step, from its first row. */
static bt_status_t convert_tensor(work_t *w)
{
    const bt_quantize_step_t *const step = w->progress.step;
    const uint64_t dim = step->tensor->dims[0];
    const uint64_t n_rows = (step->bytes > 0) ? rows_of(step->tensor) : 0;
    const uint64_t slab =
        (dim > SLAB_ELEMS) ? 1 : SLAB_ELEMS / ((dim > 0) ? dim : 1);
    const uint64_t most = (slab < n_rows) ? slab : n_rows;
    const size_t to_bytes = (n_rows > 0) ? step->bytes / n_rows : 0;
    uint8_t *const out = bt_calloc((size_t)most + 1, to_bytes + 1);
    bt_status_t status =
        (out == NULL) ? BT_ERR_NO_MEMORY : take_scratch(w, (size_t)dim);

    for (uint64_t row = 0; (row < n_rows) && (status == BT_OK); row += most) {
        const uint64_t n = (n_rows - row < most) ? n_rows - row : most;

        status = bt_quantize_rows(
            step, (w->made != NULL) ? w->made : step->tensor->data, w->weights,
            row, n, w->n_threads, out);
        if (status == BT_OK) {
            status = bt_part_file_write(&w->file, out, (size_t)n * to_bytes);
        }
        if (status == BT_OK) {
            w->progress.done_bytes += (size_t)n * to_bytes;
            if (row + n < n_rows) {
                status = report(w, false, false);
            }
        }
    }
    free_scratch(w);
    bt_free(out);
    return ((status == BT_OK) || (status == BT_ERR_CANCELED))
               ? status
               : refuse(w, status);
}

static bt_status_t convert_all(work_t *w, const bt_quantize_plan_t *plan,
                               uint64_t head_bytes)
{
    const uint64_t found = w->file.bytes;
    bool is_kept = true;
    bt_status_t status = BT_OK;

    for (uint64_t i = 0; (i < plan->n) && (status == BT_OK); i++) {
        const bt_quantize_step_t *const step = &plan->steps[i];
        const uint64_t begin = head_bytes + step->at;

        w->progress.step = step;
        w->progress.i = i;
        if (is_kept && (found >= begin + step->bytes)) {
            w->progress.done_bytes += step->bytes;
        } else {
            is_kept = false;
            /* Discards a partially written tensor; missing padding before it is
             * written as zeros. */
            status = bt_part_file_cut(&w->file, begin);
            status = (status == BT_OK) ? convert_tensor(w) : refuse(w, status);
        }
        if (status == BT_OK) {
            status = report(w, is_kept, true);
        }
    }
    if (status != BT_OK) {
        return status;
    }
    status = bt_part_file_cut(&w->file, head_bytes + plan->bytes);
    if (status == BT_OK) {
        status = bt_part_file_finish(&w->file);
    }
    if (status != BT_OK) {
        snprintf(w->why, w->why_bytes, "%s: %m", w->file.part);
    }
    return status;
}

/* Refuses an output file that is a file of the model, since it would overwrite
 * its own input. */
static bt_status_t check_output(const bt_gguf_t *gguf, const char *name,
                                char *why, size_t why_bytes)
{
    const size_t n = strlen(name) + sizeof(".part");
    BT_CLEANUP(free) char *part = bt_calloc(1, n);

    if (part == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    snprintf(part, n, "%s.part", name);
    if (bt_gguf_reads_from(gguf, name) || bt_gguf_reads_from(gguf, part)) {
        snprintf(why, why_bytes, "%s is a file of the model itself",
                 bt_gguf_reads_from(gguf, name) ? name : part);
        return BT_ERR_INVALID_PARAM;
    }
    return BT_OK;
}

bt_status_t bt_convert(const bt_gguf_t *gguf, const char *name,
                       const bt_convert_options_t *options, char *why,
                       size_t why_bytes)
{
    work_t *const w = bt_calloc(1, sizeof(*w));
    bt_quantize_plan_t plan = {0};
    bt_strbuf_t head;
    bt_status_t status = BT_ERR_NO_MEMORY;

    bt_strbuf_init(&head, MAX_HEADER);
    if (w != NULL) {
        w->options = options;
        w->n_threads = options->n_threads;
        w->file.fd = -1;
        w->why = why;
        w->why_bytes = why_bytes;
        status = bt_quantize_plan_make(gguf, options->mix, &plan);
    }
    if (status == BT_OK) {
        bt_convert_header(gguf, options->mix, options->imatrix, &plan, &head);
        status = bt_strbuf_status(&head);
    }
    if (status != BT_OK) {
        snprintf(why, why_bytes, "%s", bt_status_str(status));
        goto out;
    }
    status = check_output(gguf, name, why, why_bytes);
    if (status == BT_OK) {
        status = bt_part_file_open(name, head.data, head.len, why, why_bytes,
                                   &w->file);
    }
    if (status == BT_OK) {
        w->progress.n = plan.n;
        for (uint64_t i = 0; i < plan.n; i++) {
            w->progress.all_bytes += plan.steps[i].bytes;
        }
        status = convert_all(w, &plan, head.len);
    }
out:
    if (w != NULL) {
        bt_part_file_close(&w->file);
    }
    bt_free(w);
    bt_quantize_plan_fini(&plan);
    bt_strbuf_fini(&head);
    return status;
}
