/* SPDX-License-Identifier: Apache-2.0 */
/* Mixture of experts: routing, and what is computed between the products of
 * the experts and after them. The products are matmul_experts.cu. */
#include <cmath>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/order.h"
#include "kernels/cuda/sums.h"
#include "kernels/formula.h"

namespace
{

const uint32_t kThreads = 256;
const uint32_t kWarps = kThreads / 32;
const uint32_t kAllLanes = 0xffffffffu;

/* ---- the experts of each row ---- */

/* bt_routing_t, without padding: calls are compared by their bytes. */
struct Router {
    uint32_t n_experts;
    uint32_t n_used;
    uint32_t gating;
    uint32_t normed;
    float least;
    float scale;
    const float *bias;
};

/* Order in which experts are chosen: the larger number first. A NaN is behind
 * all values, and equal values are ordered by the experts' numbers. */
__device__ uint64_t choice_of(float value, uint32_t expert)
{
    uint32_t bits = 0;

    if (value == value) {
        bits = bt_f32_bits((value == 0.0f) ? 0.0f : value); /* -0 equals 0 */
        bits = ((bits >> 31) != 0) ? ~bits : bits | 0x80000000u;
    }
    return (static_cast<uint64_t>(bits) << 32) | (0xffffffffu - expert);
}

__device__ __forceinline__ float sigmoid(float x)
{
    return __fdiv_rn(1.0f, __fadd_rn(1.0f, bt_expf(-x)));
}

/* Computes the gate values of a row's scores, by the block: thread t has those
 * of experts t, t + kThreads and so on.
 * @return true when a score is a NaN */
__device__ bool make_gates(const Router &router, const float *z,
                           const bt_shared<float> &gates,
                           const bt_shared<uint64_t> &parts)
{
    const uint32_t n = router.n_experts;
    const bool is_softmax = router.gating == BT_GATING_SOFTMAX;
    uint64_t best = BT_RANK_NONE;
    uint64_t is_nan = 0;
    float most = 0.0f;
    float sum = 1.0f;

    for (uint32_t e = threadIdx.x; e < n; e += kThreads) {
        const float score = bt_load(z + e);
        const uint64_t choice = choice_of(score, e);

        best = (choice > best) ? choice : best;
        is_nan = (score != score) ? 1 : is_nan;
    }
    is_nan = bt_largest(parts, is_nan);
    if (is_softmax) {
        most = bt_load(z + bt_rank_id(bt_largest(parts, best)));
    }
    for (uint32_t e = threadIdx.x; e < n; e += kThreads) {
        const float score = bt_load(z + e);

        gates.set(e, is_softmax ? bt_expf(__fadd_rn(score, -most))
                     : (router.gating == BT_GATING_SIGMOID) ? sigmoid(score)
                                                            : score);
    }
    if (is_softmax) {
        sum = bt_lane_sum(
            n, [=](uint32_t e) { return gates.get(e); },
            [](float value, float before) { return __fadd_rn(before, value); });
    }
    for (uint32_t e = threadIdx.x; is_softmax && (e < n); e += kThreads) {
        gates.set(e, __fdiv_rn(gates.get(e), sum));
    }
    return is_nan != 0;
}

/* Weight number @a i of the chosen experts, whose gate values are in the order
 * of their numbers. */
__device__ float weight_of(const Router &router, const bt_shared<float> &chosen,
                           uint32_t i)
{
    const bool is_chosen = router.gating == BT_GATING_CHOSEN;
    float most = chosen.get(0);
    float weight = 0.0f;
    float sum = 0.0f;

    for (uint32_t j = 1; j < router.n_used; j++) {
        const float gate = chosen.get(j);

        most = (gate > most) ? gate : most;
    }
    for (uint32_t j = 0; j < router.n_used; j++) {
        float gate = chosen.get(j);

        gate = is_chosen ? bt_expf(__fadd_rn(gate, -most)) : gate;
        sum = __fadd_rn(sum, gate);
        weight = (j == i) ? gate : weight;
    }
    sum = is_chosen ? sum : __fadd_rn(sum, router.least);
    if (is_chosen || (router.normed != 0)) {
        weight = __fdiv_rn(weight, sum);
    }
    return __fmul_rn(weight, router.scale);
}

/* One block per row. */
__global__ void route_kernel(Router router, const float *z, uint32_t *ids,
                             float *weights)
{
    BT_SHARED(float, gates, BT_MAX_EXPERTS);
    BT_SHARED(uint64_t, list, BT_MAX_EXPERTS);
    BT_SHARED(float, chosen, BT_MAX_EXPERTS_USED);
    BT_SHARED(uint64_t, parts, kWarps);
    const uint32_t k = router.n_used;
    const uint32_t t = threadIdx.x;
    const size_t row = blockIdx.x;
    const bool is_nan =
        make_gates(router, z + row * router.n_experts, gates, parts);

    for (uint32_t e = t; e < router.n_experts; e += kThreads) {
        float value = gates.get(e);

        if (router.bias != nullptr) {
            value = __fadd_rn(value, bt_load(router.bias + e));
        }
        list.set(e, choice_of(value, e));
    }
    bt_put_in_order(list, router.n_experts);
    if (t < k) {
        const uint32_t id = bt_rank_id(list.get(t));
        uint32_t at = 0; /* among the chosen, by number */

        for (uint32_t j = 0; j < k; j++) {
            at += (bt_rank_id(list.get(j)) < id) ? 1 : 0;
        }
        chosen.set(at, gates.get(id));
        bt_store(ids + row * k + at, id);
    }
    BT_SYNC();
    if (t < k) {
        bt_store(weights + row * k + t, is_nan ? bt_f32_from_bits(0x7fc00000u)
                                               : weight_of(router, chosen, t));
    }
}

/* Returns the sum of all threads' values, to all threads. */
__device__ uint32_t sum_of_all(const bt_shared<uint32_t> &parts, uint32_t value)
{
    for (uint32_t lanes = 16; lanes > 0; lanes /= 2) {
        value += __shfl_xor_sync(kAllLanes, value, lanes);
    }
    if (threadIdx.x % 32 == 0) {
        parts.set(threadIdx.x / 32, value);
    }
    BT_SYNC();
    value = 0;
    for (uint32_t w = 0; w < kWarps; w++) {
        value += parts.get(w);
    }
    BT_SYNC(); /* the parts may be written again */
    return value;
}

/* Experts first .. first + n - 1, whose slots are numbered. */
struct Own {
    uint32_t first, n;
};

/* Numbers the slots of one own expert, whose rows stay in order: a counting
 * sort in which each expert counts the entries of lower own numbers itself.
 * Block e has own expert e; the first one marks the entries of others. */
__global__ void number_kernel(const uint32_t *ids, uint32_t n, uint32_t n_used,
                              Own own, uint32_t *slots, uint32_t *first,
                              uint32_t *rows)
{
    BT_SHARED(uint32_t, parts, kWarps);
    const uint32_t expert = blockIdx.x;
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t warp = threadIdx.x / 32;
    uint32_t before = 0;

    for (uint32_t i = threadIdx.x; i < n; i += kThreads) {
        const uint32_t id = bt_load(ids + i) - own.first; /* else huge */

        before += (id < expert) ? 1 : 0;
        if ((expert == 0) && (id >= own.n)) {
            bt_store(slots + i, BT_NO_SLOT);
        }
    }
    before = sum_of_all(parts, before);
    if (threadIdx.x == 0) {
        bt_store(first + expert, before);
    }
    if (own.n == 0) {
        return;
    }
    for (uint32_t begin = 0; begin < n; begin += kThreads) {
        const uint32_t i = begin + threadIdx.x;
        const bool is_mine =
            (i < n) && (bt_load(ids + i) - own.first == expert);
        const uint32_t lanes = __ballot_sync(kAllLanes, is_mine);
        uint32_t slot = before + __popc(lanes & ((1u << lane) - 1));

        if (lane == 0) {
            parts.set(warp, __popc(lanes));
        }
        BT_SYNC();
        for (uint32_t w = 0; w < kWarps; w++) {
            slot += (w < warp) ? parts.get(w) : 0;
            before += parts.get(w);
        }
        if (is_mine) {
            bt_store(slots + i, slot);
            bt_store(rows + slot, i / n_used);
        }
        BT_SYNC();
    }
    if ((threadIdx.x == 0) && (expert == own.n - 1)) {
        bt_store(first + own.n, before);
    }
}

void route(bt_backend_t *be, const bt_routing_t *routing, const float *z,
           uint32_t n_rows, const bt_expert_rows_t *rows)
{
    const Router router = {routing->n_experts,
                           routing->n_used,
                           static_cast<uint32_t>(routing->gating),
                           routing->normed ? 1u : 0u,
                           routing->least,
                           routing->scale,
                           routing->bias};
    const Own own = {bt_own_experts_first(rows), bt_own_experts(rows)};

    if (n_rows > 0) {
        BT_LAUNCH(route_kernel, n_rows, kThreads, be, router, z, rows->ids,
                  rows->weights);
    }
    BT_LAUNCH(number_kernel, (own.n == 0) ? 1 : own.n, kThreads, be, rows->ids,
              n_rows * rows->n_used, rows->n_used, own, rows->slots,
              rows->first, rows->rows);
}

/* ---- between the products ---- */

/* One block per entry of the rows' experts. */
__global__ void add_expert_bias_kernel(const uint32_t *ids,
                                       const uint32_t *slots, const float *bias,
                                       uint32_t first_own, uint32_t dim,
                                       float *x)
{
    const size_t expert = bt_load(ids + blockIdx.x) - first_own;
    const size_t slot = bt_load(slots + blockIdx.x);

    if (slot == BT_NO_SLOT) {
        return;
    }
    for (uint32_t i = threadIdx.x; i < dim; i += kThreads) {
        float *const at = x + slot * dim + i;

        bt_store(at, __fadd_rn(bt_load(at), bt_load(bias + expert * dim + i)));
    }
}

void add_expert_bias(bt_backend_t *be, const bt_expert_rows_t *rows,
                     uint32_t n_rows, const float *bias, uint32_t dim, float *x)
{
    if ((n_rows > 0) && (dim > 0)) {
        BT_LAUNCH(add_expert_bias_kernel,
                  static_cast<size_t>(n_rows) * rows->n_used, kThreads, be,
                  rows->ids, rows->slots, bias, bt_own_experts_first(rows), dim,
                  x);
    }
}

/* One block per row. */
__global__ void gate_rows_kernel(float *x, const float *z, uint32_t dim)
{
    const float factor = sigmoid(bt_load(z + blockIdx.x));
    float *row = x + static_cast<size_t>(blockIdx.x) * dim;

    for (uint32_t i = threadIdx.x; i < dim; i += kThreads) {
        bt_store(row + i, __fmul_rn(bt_load(row + i), factor));
    }
}

void gate_rows(bt_backend_t *be, float *x, const float *z, uint32_t n_rows,
               uint32_t dim)
{
    if ((n_rows > 0) && (dim > 0)) {
        BT_LAUNCH(gate_rows_kernel, n_rows, kThreads, be, x, z, dim);
    }
}

/* ---- sums ---- */

/* Tables of a row's experts, on the device. */
struct Used {
    const uint32_t *ids;
    const uint32_t *slots;
    const float *weights;
    uint32_t n_experts;
    uint32_t n_used;
    uint32_t first_leaf;
};

/* Adds the leaves from @a p to p + N - 1, pairs of neighbours first. The
 * experts of a row are ascending, and so are their leaves: @a j is the next
 * one. */
template <uint32_t N>
__device__ __forceinline__ float
sum_leaves(const bt_shared<float> &weights, const bt_shared<uint32_t> &slots,
           const bt_shared<uint32_t> &leaves, uint32_t n_used, uint32_t p,
           const float *x, uint32_t dim, uint32_t *j)
{
    if constexpr (N > 1) {
        const float low =
            sum_leaves<N / 2>(weights, slots, leaves, n_used, p, x, dim, j);
        const float high = sum_leaves<N / 2>(weights, slots, leaves, n_used,
                                             p + N / 2, x, dim, j);

        return __fadd_rn(low, high);
    } else {
        float acc = 0.0f;

        for (; (*j < n_used) && (leaves.get(*j) == p); (*j)++) {
            acc = fmaf(weights.get(*j),
                       bt_load(x + static_cast<size_t>(slots.get(*j)) * dim),
                       acc);
        }
        return acc;
    }
}

/* One block per row and kThreads values of it; the sum of N leaves. */
template <uint32_t N>
__global__ void combine_kernel(Used used, const float *x, uint32_t dim,
                               float *out)
{
    BT_SHARED(float, weights, BT_MAX_EXPERTS_USED);
    BT_SHARED(uint32_t, slots, BT_MAX_EXPERTS_USED);
    BT_SHARED(uint32_t, leaves, BT_MAX_EXPERTS_USED);
    const uint32_t n_parts = (dim + kThreads - 1) / kThreads;
    const size_t row = blockIdx.x / n_parts;
    const uint32_t i = blockIdx.x % n_parts * kThreads + threadIdx.x;
    const uint32_t t = threadIdx.x;
    uint32_t j = 0;

    if (t < used.n_used) {
        const size_t at = row * used.n_used + t;
        const uint32_t id = bt_load(used.ids + at);

        weights.set(t, bt_load(used.weights + at));
        slots.set(t, bt_load(used.slots + at));
        leaves.set(t, (BT_EXPERT_LEAVES * (id + 1) - 1) / used.n_experts);
    }
    BT_SYNC();
    while ((j < used.n_used) && (leaves.get(j) < used.first_leaf)) {
        j++; /* experts of other ranks, as those behind the last leaf */
    }
    if (i < dim) {
        bt_store(out + row * dim + i,
                 sum_leaves<N>(weights, slots, leaves, used.n_used,
                               used.first_leaf, x + i, dim, &j));
    }
}

void combine(bt_backend_t *be, const bt_expert_rows_t *rows, uint32_t n_rows,
             const float *x, uint32_t dim, float *out)
{
    const Used used = {rows->ids,       rows->slots,  rows->weights,
                       rows->n_experts, rows->n_used, rows->first_leaf};
    const size_t n_blocks =
        n_rows * static_cast<size_t>((dim + kThreads - 1) / kThreads);

    if (n_blocks == 0) {
        return;
    }
    switch (bt_expert_leaves(rows)) {
    case 1:
        BT_LAUNCH(combine_kernel<1>, n_blocks, kThreads, be, used, x, dim, out);
        break;
    case 2:
        BT_LAUNCH(combine_kernel<2>, n_blocks, kThreads, be, used, x, dim, out);
        break;
    case 4:
        BT_LAUNCH(combine_kernel<4>, n_blocks, kThreads, be, used, x, dim, out);
        break;
    case 8:
        BT_LAUNCH(combine_kernel<8>, n_blocks, kThreads, be, used, x, dim, out);
        break;
    default:
        BT_LAUNCH(combine_kernel<BT_EXPERT_LEAVES>, n_blocks, kThreads, be,
                  used, x, dim, out);
        break;
    }
}

} // namespace

extern "C" void bt_cuda_experts_ops(bt_kernels_ops_t *ops)
{
    ops->route = route;
    ops->add_expert_bias = add_expert_bias;
    ops->gate_rows = gate_rows;
    ops->combine = combine;
}
