/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory of a model besides its buffers and weights. Scratch is shared
 * by all operations, which run one after the other: the largest counts. */
#include "kernels/workload.h"

#include "kernels/cuda/attention.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/halves.h"
#include "kernels/cuda/stage.h"
#include "kernels/cuda/steps.h"

namespace
{

/* Scratch for parts of attention. When so many long sequences exist that they
 * would need more, all multiprocessors are busy without splitting. */
const size_t kMostParts = size_t(256) << 20;

/* NCCL has buffers for each of its channels and neighbours: some hundred MiB
 * for ranks on one host. */
const size_t kTableBytes = size_t(512) << 20;
/* 64 graphs of some hundred launches, and kernels that are loaded at their
 * first launch. */
const size_t kGraphBytes = size_t(64) << 20;

void keep_larger(size_t bytes, size_t *most)
{
    *most = (bytes > *most) ? bytes : *most;
}

size_t scratch_of(const bt_workload_t *w, bt_numerics_t numerics)
{
    size_t most = 0;

    if (w->dense_n_in > 0) {
        keep_larger(static_cast<size_t>(w->max_rows) * w->dense_n_in *
                        sizeof(float),
                    &most);
        keep_larger(bt_cuda_halves_bytes(w->max_rows, w->dense_n_in), &most);
    }
    if (w->quant_n_in > 0) {
        keep_larger(bt_cuda_q8_bytes(w->max_rows, w->quant_n_in), &most);
    }
    if (most > 0) {
        most += bt_cuda_tiles_bytes(w->max_rows);
    }
    if (w->n_ranks > 1) {
        keep_larger(w->n_ranks * BT_CUDA_SUM_BYTES, &most);
    }
    if (numerics == BT_NUMERICS_TENSOR) {
        const size_t parts = bt_cuda_attention_bytes(w);

        keep_larger((parts < kMostParts) ? parts : kMostParts, &most);
    }
    return most;
}

void workload_memory(const bt_workload_t *workload, bt_numerics_t numerics,
                     bt_workload_memory_t *memory_p)
{
    memory_p->scratch = scratch_of(workload, numerics);
    memory_p->later = kGraphBytes + workload->n_tables * kTableBytes;
    memory_p->pinned = BT_STAGE_SLOTS * BT_STAGE_SLOT_BYTES;
}

bt_status_t workload_reserve(bt_backend_t *be, const bt_workload_t *workload)
{
    return bt_cuda_scratch_reserve(be,
                                   scratch_of(workload, bt_cuda_numerics(be)));
}

} // namespace

extern "C" void bt_cuda_workload_ops(bt_kernels_ops_t *ops)
{
    ops->workload_memory = workload_memory;
    ops->workload_reserve = workload_reserve;
}
