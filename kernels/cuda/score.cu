/* SPDX-License-Identifier: Apache-2.0 */
/* score() of kernels.h: a block per scoring. Each thread has a lane of the sum
 * and one of 32 stretches of 256 values and sums in float; then 16 threads, one
 * per lane, add these sums in double, in order. */
#include <cmath>

#include "kernels/batch.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/order.h"
#include "kernels/draw.h"

namespace
{

const uint32_t kThreads = 512;
const uint32_t kWarps = kThreads / 32;
const uint32_t kLanes = 16;                 /* lanes of the sum */
const uint32_t kStretch = 256;              /* values, kLanes of a sum */
const uint32_t kAtOnce = kThreads / kLanes; /* stretches */
const uint32_t kWords = sizeof(bt_scoring_t) / sizeof(uint32_t);

/* The best logit as sequential comparisons find it: a NaN as the first value
 * stays, other NaNs are skipped. At all threads. */
__device__ float best_of(const float *x, uint32_t dim)
{
    BT_SHARED(uint64_t, parts, kWarps);
    const float first = bt_load(x);
    const uint64_t best = bt_best_rank(x, dim, parts);

    return ((best == BT_RANK_NONE) || (first != first)) ? first
                                                        : bt_rank_value(best);
}

/* The sum of a lane. Only threads 0 to 15 have it. */
__device__ double lane_sum(const float *x, uint32_t dim, float best)
{
    BT_SHARED(float, parts, kThreads);
    const uint32_t t = threadIdx.x;
    const uint32_t whole = dim - dim % kLanes;
    double sum = 0.0;

    for (uint32_t begin = 0; begin < whole; begin += kAtOnce * kStretch) {
        const uint32_t own = begin + t / kLanes * kStretch + t % kLanes;
        float part = 0.0f;

        for (uint32_t i = 0; i < kStretch; i += kLanes) {
            if (own + i < whole) {
                part += bt_scored_term(bt_load(x + own + i), best);
            }
        }
        parts.set(t, part);
        BT_SYNC();
        for (uint32_t s = 0;
             (t < kLanes) && (s < kAtOnce) && (begin + s * kStretch < whole);
             s++) {
            sum += static_cast<double>(parts.get(s * kLanes + t));
        }
        BT_SYNC();
    }
    if (t < dim - whole) {
        sum +=
            static_cast<double>(bt_scored_term(bt_load(x + whole + t), best));
    }
    return sum;
}

__global__ void score_kernel(const float *logits, uint32_t dim,
                             const uint32_t *scorings, const uint32_t *ids,
                             bt_scored_t *out)
{
    BT_SHARED(double, lanes, kLanes);
    const uint32_t *scoring = scorings + blockIdx.x * kWords;
    const float *x = logits + static_cast<size_t>(bt_load(scoring)) * dim;
    const uint32_t draw = bt_load(scoring + 1);
    const float best = best_of(x, dim);
    const double own = lane_sum(x, dim, best);

    if (threadIdx.x < kLanes) {
        lanes.set(threadIdx.x, own);
    }
    BT_SYNC();
    if (threadIdx.x == 0) {
        const uint32_t id = (draw == BT_SCORING_NO_DRAW) ? bt_load(scoring + 2)
                                                         : bt_load(ids + draw);
        bt_scored_t *to = out + blockIdx.x;
        double sum = 0.0;

        for (uint32_t i = 0; i < kLanes; i++) {
            sum += lanes.get(i);
        }
        bt_store(&to->best, best);
        bt_store(&to->logit, bt_load(x + id));
        bt_store(&to->sum, sum);
    }
}

void score(bt_backend_t *be, const float *logits, const bt_batch_t *batch,
           uint32_t dim, const uint32_t *ids, bt_scored_t *out)
{
    if (batch->n_scorings > 0) {
        const uint32_t *words = bt_cuda_words(be);

        BT_LAUNCH(score_kernel, batch->n_scorings, kThreads, be, logits, dim,
                  words + bt_batch_layout(batch).scoring, ids, out);
    }
}

} // namespace

extern "C" void bt_cuda_score_ops(bt_kernels_ops_t *ops)
{
    ops->score = score;
}
