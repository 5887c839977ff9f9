/* SPDX-License-Identifier: Apache-2.0 */
/* The plain C tier: the specification that other tiers are compared with. */
#include <string.h>

#include "kernels/cpu/body.h"
#include "kernels/quant/quant.h"

#define REF_ROWS 16u /* for which a group of weights is read once */

static void ref_store(const bt_matmul_job_t *job, size_t i, float sum)
{
    job->out[i] = job->add ? job->out[i] + sum : sum;
}

static void ref_panel(const bt_matmul_job_t *job, uint32_t panel,
                      const float *values)
{
    const bt_weight_t *w = job->w;
    uint32_t first = panel * BT_PANEL;
    uint32_t n = w->n_out - first;

    n = (n > BT_PANEL) ? BT_PANEL : n;
    for (uint32_t r = 0; r < job->n_rows; r++) {
        const float *x = job->x + (size_t)r * w->n_in;

        for (uint32_t o = 0; o < n; o++) {
            float sum = 0.0f;

            for (size_t k = 0; k < w->n_in; k++) {
                sum = fmaf(values[k * BT_PANEL + o], x[k], sum);
            }
            ref_store(job, (size_t)r * w->n_out + first + o, sum);
        }
    }
}

static void ref_matmul(const bt_matmul_job_t *job, uint32_t begin, uint32_t end,
                       float *scratch)
{
    const uint32_t n_groups =
        (job->w->n_in + BT_QUANT_GROUP - 1) / BT_QUANT_GROUP;

    for (uint32_t panel = begin; panel < end; panel++) {
        for (uint32_t g = 0; g < n_groups; g++) {
            bt_pack_read_group(job->w, panel, g,
                               scratch + (size_t)g * BT_QUANT_GROUP * BT_PANEL);
        }
        ref_panel(job, panel, scratch);
    }
}

static float ref_bf16_output(const bt_matmul_job_t *job, uint32_t o,
                             uint32_t row)
{
    const bt_weight_t *w = job->w;
    const uint32_t n_pairs = (w->n_in + 1) / 2;
    const uint16_t *x = job->bf16 + (size_t)row * n_pairs * 2;
    const uint8_t *panel = w->data + o / BT_PANEL * w->panel_bytes;
    float acc = 0.0f;

    for (size_t p = 0; p < n_pairs; p++) {
        uint16_t pair[2];

        memcpy(pair, panel + (p * BT_PANEL + o % BT_PANEL) * 4, sizeof(pair));
        acc = bt_dot_bf16(bf16_pair(pair), bf16_pair(x + 2 * p), acc);
    }
    return acc;
}

static void ref_matmul_bf16(const bt_matmul_job_t *job, uint32_t begin,
                            uint32_t end)
{
    const uint32_t n_out = job->w->n_out;

    for (uint32_t o = begin * BT_PANEL; (o < end * BT_PANEL) && (o < n_out);
         o++) {
        for (uint32_t r = 0; r < job->n_rows; r++) {
            ref_store(job, (size_t)r * n_out + o, ref_bf16_output(job, o, r));
        }
    }
}

/* Adds one group to a sum of products. */
static float ref_q8_add(const bt_pack_format_t *format,
                        const bt_quant_group_t *group, const bt_q8_group_t *x,
                        float acc)
{
    float isum[2];

    for (uint32_t half = 0; half < 2; half++) {
        int32_t sum = 0;

        for (uint32_t k = half * 16; k < half * 16 + 16; k++) {
            sum += group->code[k] * x->code[k];
        }
        isum[half] = (float)sum;
    }
    if (format->two) {
        acc = fmaf(isum[0] * x->scale[0], group->scale[0], acc);
        acc = fmaf(isum[1] * x->scale[1], group->scale[1], acc);
    } else {
        acc = fmaf(fmaf(isum[1], x->scale[1], isum[0] * x->scale[0]),
                   group->scale[0], acc);
    }
    if (format->min && format->two) {
        acc = fmaf(group->min[0], x->sums[0], acc);
        acc = fmaf(group->min[1], x->sums[1], acc);
    } else if (format->min) {
        acc = fmaf(group->min[0], x->sum, acc);
    }
    return acc;
}

/* Output o of @a n rows: each group of weights is read once for all. */
static void ref_q8_outputs(const bt_matmul_job_t *job, uint32_t o,
                           uint32_t first_row, uint32_t n)
{
    const bt_weight_t *w = job->w;
    const bt_pack_format_t format = bt_pack_format(w->pack);
    const uint32_t n_groups = w->n_in / BT_QUANT_GROUP;
    float acc[REF_ROWS] = {0};

    for (uint32_t g = 0; g < n_groups; g++) {
        bt_quant_group_t group;

        bt_pack_read_codes(w, o / BT_PANEL, g, o % BT_PANEL, &group);
        for (uint32_t i = 0; i < n; i++) {
            acc[i] = ref_q8_add(&format, &group,
                                &job->q[(size_t)(first_row + i) * n_groups + g],
                                acc[i]);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        ref_store(job, (size_t)(first_row + i) * w->n_out + o, acc[i]);
    }
}

static void ref_matmul_q8(const bt_matmul_job_t *job, uint32_t begin,
                          uint32_t end, uint8_t *scratch)
{
    const uint32_t n_out = job->w->n_out;

    (void)scratch;
    for (uint32_t o = begin * BT_PANEL; (o < end * BT_PANEL) && (o < n_out);
         o++) {
        for (uint32_t r = 0; r < job->n_rows; r += REF_ROWS) {
            const uint32_t left = job->n_rows - r;

            ref_q8_outputs(job, o, r, (left < REF_ROWS) ? left : REF_ROWS);
        }
    }
}

static void ref_to_f16(const float *x, uint32_t n, uint16_t *out)
{
    for (uint32_t i = 0; i < n; i++) {
        out[i] = bt_f32_to_f16(x[i]);
    }
}

static void ref_to_bf16(const float *x, uint32_t n, uint16_t *out)
{
    for (uint32_t i = 0; i < n; i++) {
        out[i] = bt_f32_to_bf16(x[i]);
    }
}

const bt_cpu_isa_t bt_cpu_plain = {
    .tier = BT_CPU_PLAIN,
    .name = "plain",
    .uses_tiles = false,
    .matmul = ref_matmul,
    .matmul_bf16 = ref_matmul_bf16,
    .matmul_q8 = ref_matmul_q8,
    .quantize = body_quantize,
    .rmsnorm = body_rmsnorm,
    .layer_norm = body_layer_norm,
    .rope = body_rope,
    .load_keys = body_load_keys,
    .load_values = body_load_values,
    .attn_tile = body_attn_tile,
    .activate = body_activate,
    .scale = body_scale,
    .soft_cap = body_soft_cap,
    .clamp = body_clamp,
    .add = body_add,
    .argmax = body_argmax,
    .route = body_route,
    .combine = body_combine,
    .to_f16 = ref_to_f16,
    .to_bf16 = ref_to_bf16,
    .to_i8 = body_to_i8,
    .to_e4m3 = body_to_e4m3,
    .lora_down = body_lora_down,
    .lora_up = body_lora_up,
};
