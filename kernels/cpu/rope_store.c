/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary position embedding, and storing of keys and values into the paged
 * cache. */
#include <string.h>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/cpu.h"

#define MIN_ELEMS_PER_THREAD 4096u

typedef struct rope_job {
    cpu_backend_t *cpu;
    const bt_batch_t *batch;
    const bt_kv_view_t *kv;
    uint32_t layer;
    uint32_t n_heads;
    size_t row_floats; /* of a qkv row */
    float *qkv;
    const bt_rotation_t *rotation;
} rope_job_t;

/* Elements of one vector, contiguous. */
typedef union vector {
    uint16_t words[BT_MAX_HEAD_DIM];
    uint8_t codes[BT_MAX_HEAD_DIM]; /* for any type with scales */
} vector_t;

static void convert(const rope_job_t *job, const float *x, kv_slot_t slot,
                    vector_t *to)
{
    const bt_cpu_isa_t *isa = job->cpu->isa;
    const uint32_t dim = job->kv->head_dim;

    switch (job->kv->type) {
    case BT_KV_F16:
        isa->to_f16(x, dim, to->words);
        break;
    case BT_KV_BF16:
        isa->to_bf16(x, dim, to->words);
        break;
    case BT_KV_INT8:
        *slot.scale = isa->to_i8(x, dim, (int8_t *)to->codes);
        break;
    case BT_KV_FP8:
        *slot.scale = isa->to_e4m3(x, dim, to->codes);
        break;
    }
}

/* Two elements of a key are adjacent, followed by those of the other slots. */
static void key_store(const rope_job_t *job, kv_slot_t slot, const float *x)
{
    const size_t step = 2 * kv_elem_bytes(job->kv) * job->kv->tokens_per_block;
    uint8_t *out = slot.elems;
    vector_t v;

    convert(job, x, slot, &v);
    for (uint32_t d = 0; d < job->kv->head_dim; d += 2) {
        if (bt_cpu_kv_scaled(job->kv->type)) {
            memcpy(out, v.codes + d, 2);
        } else {
            memcpy(out, v.words + d, 4);
        }
        out += step;
    }
}

/* Elements of a value alternate with those of the neighbouring slot. */
static void value_store(const rope_job_t *job, kv_slot_t slot, const float *x)
{
    vector_t v;

    convert(job, x, slot, &v);
    if (bt_cpu_kv_scaled(job->kv->type)) {
        uint8_t *out = slot.elems;

        for (uint32_t d = 0; d < job->kv->head_dim; d++) {
            out[2 * (size_t)d] = v.codes[d];
        }
    } else {
        uint16_t *out = slot.elems;

        for (uint32_t d = 0; d < job->kv->head_dim; d++) {
            out[2 * (size_t)d] = v.words[d];
        }
    }
}

static void rope_row(const rope_job_t *job, const bt_ragged_seq_t *seq,
                     uint32_t row)
{
    const bt_cpu_isa_t *isa = job->cpu->isa;
    const uint32_t dim = job->kv->head_dim;
    const uint32_t n_kv = job->kv->n_kv_heads;
    const uint32_t position = seq->pos + (row - seq->row);
    const bt_rotation_t *rotation = job->rotation;
    const uint32_t turned = rotation->dims;
    float *head = job->qkv + row * job->row_floats;

    for (uint32_t h = 0; (turned > 0) && (h < job->n_heads + n_kv); h++) {
        isa->rope(head + (size_t)h * dim,
                  rotation->cos_sin + (size_t)position * turned, turned,
                  rotation->interleaved);
    }
    head += (size_t)job->n_heads * dim;
    for (uint32_t h = 0; h < n_kv; h++) {
        key_store(job, kv_slot(job->kv, job->layer, seq, 0, h, position), head);
        value_store(job, kv_slot(job->kv, job->layer, seq, 1, h, position),
                    head + (size_t)n_kv * dim);
        head += dim;
    }
}

/* Items are rows of the batch, which the sequences have in order. */
static void rope_items(void *ctx, uint32_t thread, uint32_t begin, uint32_t end)
{
    const rope_job_t *job = ctx;
    const bt_batch_t *batch = job->batch;

    (void)thread;
    for (uint32_t s = 0; (s < batch->n_seqs) && (batch->seqs[s].row < end);
         s++) {
        const bt_cpu_rows_t rows = bt_cpu_rows_in(&batch->seqs[s], begin, end);

        for (uint32_t r = rows.first; r < rows.end; r++) {
            rope_row(job, &batch->seqs[s], r);
        }
    }
}

/* Queries and keys of a row, which are rotated in place. */
static size_t turned_bytes(const rope_job_t *job)
{
    return ((size_t)job->n_heads + job->kv->n_kv_heads) * job->kv->head_dim *
           sizeof(float);
}

static void keep_rows(void *ctx, uint32_t begin, uint32_t end, void *copy,
                      bool back)
{
    const rope_job_t *job = ctx;
    const size_t bytes = turned_bytes(job);
    uint8_t *kept = copy;

    for (size_t r = begin; r < end; r++) {
        float *const row = job->qkv + r * job->row_floats;

        memcpy(back ? (void *)row : kept, back ? kept : (void *)row, bytes);
        kept += bytes;
    }
}

void bt_cpu_rope_store(bt_backend_t *be, float *qkv, uint32_t n_heads,
                       const bt_rotation_t *rotation, const bt_batch_t *batch,
                       const bt_kv_view_t *kv, uint32_t layer)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    rope_job_t job = {
        .cpu = cpu,
        .batch = batch,
        .kv = kv,
        .layer = layer,
        .n_heads = n_heads,
        .row_floats = ((size_t)n_heads + 2 * kv->n_kv_heads) * kv->head_dim,
        .qkv = qkv,
        .rotation = rotation,
    };
    const bt_cpu_job_t pool_job = {
        .fn = rope_items,
        .ctx = &job,
        .n_items = batch->n_rows,
        .grain = (uint32_t)(MIN_ELEMS_PER_THREAD / (job.row_floats + 1) + 1),
        .keeps_ahead = true,
        .lend = true,
        .keep = keep_rows,
        .keep_bytes = turned_bytes(&job),
    };

    kv_check_view(be, kv);
    bt_cpu_pool_run_job(cpu->pool, &pool_job);
}
