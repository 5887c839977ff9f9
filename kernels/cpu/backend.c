/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "kernels/cpu/backend.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/status.h"

/* Per thread: keys and values of one step in bf16 and their scales, the queries
 * in bf16 and the sums of all pairs of a work item. */
#define ATTN_SCRATCH_FLOATS                                \
    ((BT_ATTN_TILE + BT_ATTN_PAIRS + BT_ATTN_PAIRS / 2u) * \
         (size_t)BT_MAX_HEAD_DIM +                         \
     2u * BT_ATTN_TILE)

static bt_status_t buffer_alloc(bt_backend_t *be, size_t bytes, void **ptr_p)
{
    void *ptr = bt_calloc_aligned(bytes, 1);

    (void)be;
    if (ptr == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    *ptr_p = ptr;
    return BT_OK;
}

static void buffer_free(bt_backend_t *be, void *ptr)
{
    (void)be;
    bt_free(ptr);
}

static bt_status_t copy(bt_backend_t *be, void *dst, const void *src,
                        size_t bytes)
{
    (void)be;
    if (bytes > 0) {
        memcpy(dst, src, bytes);
    }
    return BT_OK;
}

static void clear(bt_backend_t *be, void *ptr, size_t bytes)
{
    (void)be;
    memset(ptr, 0, bytes);
}

static bt_status_t sync_nothing(bt_backend_t *be)
{
    (void)be;
    return BT_OK;
}

/* Makes rows of at least this many bytes, so that operations themselves never
 * allocate. */
static bt_status_t scratch_widen(cpu_scratch_t *scratch, size_t n_rows,
                                 size_t row_bytes)
{
    void *data;

    if (row_bytes <= scratch->row_bytes) {
        return BT_OK;
    }
    data = bt_calloc_aligned(n_rows, row_bytes);
    if (data == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_free(scratch->data);
    *scratch = (cpu_scratch_t){.data = data, .row_bytes = row_bytes};
    return BT_OK;
}

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Scratch for the operations on matrices of this type and width. */
static bt_status_t reserve(cpu_backend_t *cpu, bt_ktype_t type, uint32_t n_in)
{
    const size_t n_threads = bt_cpu_pool_slots(cpu->pool);
    const size_t n_rows = cpu->max_rows + BT_CPU_OWN_ROWS * n_threads;
    const size_t floats = round_up(n_in, 32);
    bt_status_t status = scratch_widen(&cpu->lines, n_threads,
                                       round_up(n_in, 16) * sizeof(float));

    if (status == BT_OK) {
        status = scratch_widen(&cpu->wide, n_threads,
                               round_up(bt_pack_scratch_bytes(type, n_in), 64));
    }
    if (status != BT_OK) {
        return status;
    }
    switch (type) {
    case BT_KTYPE_F32:
    case BT_KTYPE_F16:
    case BT_KTYPE_E4M3:
        status = scratch_widen(&cpu->panels, n_threads,
                               floats * BT_PANEL * sizeof(float));
        return (status != BT_OK)
                   ? status
                   : scratch_widen(&cpu->tiles, n_rows + BT_TILE_ROWS,
                                   floats * sizeof(float));
    case BT_KTYPE_BF16:
    case BT_KTYPE_E4M3_BF16:
        return scratch_widen(&cpu->bf16, n_rows,
                             round_up(n_in, 2) * sizeof(uint16_t));
    default:
        return scratch_widen(&cpu->q8, n_rows,
                             (size_t)n_in / 32 * sizeof(bt_q8_group_t));
    }
}

typedef struct pack_job {
    const bt_weight_t *w;
    const void *data;
} pack_job_t;

static void pack_panels(void *ctx, uint32_t thread, uint32_t begin,
                        uint32_t end)
{
    const pack_job_t *job = ctx;

    (void)thread;
    bt_pack_panels(job->w, job->data, begin, end);
}

static bt_status_t weight_pack(bt_backend_t *be, bt_ktype_t type,
                               uint32_t n_out, uint32_t n_in, const void *data,
                               bt_weight_t **weight_p)
{
    cpu_backend_t *cpu = bt_cpu_of(be);
    bt_weight_t *w = NULL;
    bt_status_t status;
    pack_job_t job;

    if (bt_pack_bytes(type, n_out, n_in) == 0) {
        return BT_ERR_UNSUPPORTED;
    }
    status = reserve(cpu, type, n_in);
    if (status != BT_OK) {
        return status;
    }
    status = bt_pack_create(type, n_out, n_in, &w);
    if (status != BT_OK) {
        return status;
    }
    job = (pack_job_t){.w = w, .data = data};
    bt_cpu_pool_run(cpu->pool, w->n_panels, 1, pack_panels, &job);
    *weight_p = w;
    return BT_OK;
}

static const void *weight_data(const bt_weight_t *weight)
{
    return weight->data;
}

static bt_status_t weight_adopt(bt_backend_t *be, bt_ktype_t type,
                                uint32_t n_out, uint32_t n_in, const void *data,
                                size_t bytes, bt_weight_t **weight_p)
{
    bt_status_t status;

    if (bt_pack_bytes(type, n_out, n_in) == 0) {
        return BT_ERR_UNSUPPORTED;
    }
    status = reserve(bt_cpu_of(be), type, n_in);
    if (status != BT_OK) {
        return status;
    }
    return bt_pack_adopt(type, n_out, n_in, data, bytes, weight_p);
}

static void weight_free(bt_backend_t *be, bt_weight_t *weight)
{
    if (bt_cpu_of(be)->ahead == weight) {
        bt_cpu_of(be)->ahead = NULL;
    }
    bt_pack_destroy(weight);
}

static void lent_stats(bt_backend_t *be, bt_lent_stats_t *stats_p)
{
    bt_cpu_pool_lent_stats(bt_cpu_of(be)->pool, stats_p);
}

static void cpu_close(bt_backend_t *be)
{
    cpu_backend_t *cpu = bt_cpu_of(be);

    bt_cpu_pool_destroy(cpu->pool);
    bt_free(cpu->panels.data);
    bt_free(cpu->wide.data);
    bt_free(cpu->lines.data);
    bt_free(cpu->attn.data);
    bt_free(cpu->tiles.data);
    bt_free(cpu->bf16.data);
    bt_free(cpu->q8.data);
    bt_free(cpu);
}

static const bt_kernels_ops_t cpu_ops = {
    .buffer_alloc = buffer_alloc,
    .buffer_free = buffer_free,
    .copy_in = copy,
    .copy_out = copy,
    .clear = clear,
    .sync = sync_nothing,
    .weight_pack = weight_pack,
    .weight_data = weight_data,
    .weight_adopt = weight_adopt,
    .weight_free = weight_free,
    .weight_bytes = bt_pack_bytes,
    .embed = bt_cpu_embed,
    .matmul = bt_cpu_matmul,
    .matmul_ids = bt_cpu_matmul_ids,
    .lora = bt_cpu_lora,
    .rmsnorm = bt_cpu_rmsnorm,
    .layer_norm = bt_cpu_layer_norm,
    .head_norm = bt_cpu_head_norm,
    .rope_store = bt_cpu_rope_store,
    .add_positions = bt_cpu_add_positions,
    .attention = bt_cpu_attention,
    .activate = bt_cpu_activate,
    .add_bias = bt_cpu_add_bias,
    .scale = bt_cpu_scale,
    .soft_cap = bt_cpu_soft_cap,
    .clamp = bt_cpu_clamp,
    .scale_positions = bt_cpu_scale_positions,
    .add = bt_cpu_add,
    .gather_rows = bt_cpu_gather_rows,
    .copy_columns = bt_cpu_copy_columns,
    .cut_columns = bt_cpu_cut_columns,
    .argmax = bt_cpu_argmax,
    .route = bt_cpu_route,
    .matmul_experts = bt_cpu_matmul_experts,
    .add_expert_bias = bt_cpu_add_expert_bias,
    .gate_rows = bt_cpu_gate_rows,
    .combine = bt_cpu_combine,
    .norm_matmul = bt_cpu_norm_matmul,
    .matmul_add = bt_cpu_matmul_add,
    .silu_matmul_add = bt_cpu_silu_matmul_add,
    .ahead = bt_cpu_ahead,
    .lent_stats = lent_stats,
    .close = cpu_close,
};

#define KV_TYPES \
    (1u << BT_KV_F16 | 1u << BT_KV_BF16 | 1u << BT_KV_INT8 | 1u << BT_KV_FP8)

#define ATTENTION_PARTS                                                 \
    (BT_ATTENTION_WINDOW | BT_ATTENTION_SOFT_CAP | BT_ATTENTION_SINKS | \
     BT_ATTENTION_SLOPES)

#define CAPS(tier_name)                                                   \
    {                                                                     \
        .name = "cpu/" tier_name, .profile = BT_PROFILE_EXACT,            \
        .weight_types = BT_PACK_TYPES, .kv_types = KV_TYPES,              \
        .max_head_dim = BT_MAX_HEAD_DIM, .pack_version = BT_PACK_VERSION, \
        .attention = ATTENTION_PARTS, .kv_layout = BT_KV_LAYOUT_PAIRS,    \
        .kv_align_bytes = sizeof(float), .kv_block_tokens = 2             \
    }

static const bt_kernels_caps_t cpu_caps[] = {
    [BT_CPU_PLAIN] = CAPS("plain"),
    [BT_CPU_AVX2] = CAPS("avx2"),
    [BT_CPU_AVX512] = CAPS("avx512"),
};

/* If the kernel does not allow it, the back end works without. A piece changes
 * at most one panel's outputs of all rows in place. */
static bt_status_t lend(cpu_backend_t *cpu, const bt_backend_config_t *config)
{
    const uint32_t n =
        (config->n_lent < BT_CPU_MAX_LENT) ? config->n_lent : BT_CPU_MAX_LENT;
    const bt_status_t status =
        bt_cpu_pool_lend(cpu->pool, config->lent_cores, n,
                         (size_t)config->max_rows * BT_PANEL * sizeof(float));

    if (status == BT_ERR_UNSUPPORTED) {
        BT_LOG_WARN("no core is borrowed: this kernel has no membarrier");
        return BT_OK;
    }
    return status;
}

bt_status_t bt_cpu_open(const bt_cpu_isa_t *isa,
                        const bt_backend_config_t *config, bt_backend_t **be_p)
{
    bt_status_t status;
    cpu_backend_t *cpu;

    if ((config->n_threads == 0) || (config->max_rows == 0)) {
        return BT_ERR_INVALID_PARAM;
    }
    if (config->numerics != BT_NUMERICS_EXACT) {
        if (config->why != NULL) {
            snprintf(config->why, config->why_bytes,
                     "the CPU has exact numerics only, no tensor cores "
                     "(--numerics)");
        }
        return BT_ERR_UNSUPPORTED;
    }
    cpu = bt_calloc(1, sizeof(*cpu));
    if (cpu == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    status = bt_cpu_pool_create(config->n_threads, config->cores, &cpu->pool);
    if (status != BT_OK) {
        goto err_cpu;
    }
    if (config->n_lent > 0) {
        status = lend(cpu, config);
        if (status != BT_OK) {
            goto err_pool;
        }
    }
    status = scratch_widen(&cpu->attn, bt_cpu_pool_slots(cpu->pool),
                           ATTN_SCRATCH_FLOATS * sizeof(float));
    if (status != BT_OK) {
        goto err_pool;
    }
    cpu->base.ops = &cpu_ops;
    cpu->base.caps = &cpu_caps[isa->tier];
    cpu->isa = isa;
    cpu->max_rows = config->max_rows;
    *be_p = &cpu->base;
    return BT_OK;

err_pool:
    bt_cpu_pool_destroy(cpu->pool);
err_cpu:
    bt_free(cpu);
    return status;
}
