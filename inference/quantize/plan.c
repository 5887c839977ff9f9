/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/quantize/quantize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "kernels/half.h"

/* Position of a layer among all, for the types of attn_v and ffn_down. */
typedef struct position {
    uint64_t layer;
    uint64_t n_layers;
} position_t;

/* Errors of a layer pass through attn_v and ffn_down. M mixes give both more
 * bits in the first and last eighth of the layers and in every third between, S
 * mixes in the first few: the rule of published files with these names. */
static bool is_often(const position_t *at)
{
    const uint64_t eighth = at->n_layers / 8;

    return (at->layer < eighth) || (at->layer >= 7 * at->n_layers / 8) ||
           ((at->layer - eighth) % 3 == 2);
}

static bool is_first_eighth(const position_t *at)
{
    return at->layer < at->n_layers / 8;
}

static bool is_first_four(const position_t *at)
{
    return at->layer < 4;
}

struct bt_quantize_mix {
    const char *name;
    uint32_t file_type; /* llama_ftype */
    uint32_t type;      /* type of matrices */
    uint32_t output;    /* type of the output matrix */
    uint32_t finer;     /* type of attn_v and ffn_down, in the layers that: */
    bool (*values)(const position_t *at);
    bool (*down)(const position_t *at);
    uint32_t joined; /* type of fused query, key and value matrices */
};

#define PLAIN(name, file_type, type, output)                  \
    {                                                         \
        name, file_type, type, output, type, NULL, NULL, type \
    }

static const bt_quantize_mix_t mixes[] = {
    PLAIN("f32", 0, BT_QTYPE_F32, BT_QTYPE_F32),
    PLAIN("f16", 1, BT_QTYPE_F16, BT_QTYPE_F16),
    PLAIN("bf16", 32, BT_QTYPE_BF16, BT_QTYPE_BF16),
    PLAIN("q8_0", 7, BT_QTYPE_Q8_0, BT_QTYPE_Q8_0),
    PLAIN("q6_k", 18, BT_QTYPE_Q6_K, BT_QTYPE_Q6_K),
    {"q5_k", 17, BT_QTYPE_Q5_K, BT_QTYPE_Q6_K, BT_QTYPE_Q6_K, is_often,
     is_often, BT_QTYPE_Q6_K},
    {"q5_k_m", 17, BT_QTYPE_Q5_K, BT_QTYPE_Q6_K, BT_QTYPE_Q6_K, is_often,
     is_often, BT_QTYPE_Q6_K},
    PLAIN("q5_k_s", 16, BT_QTYPE_Q5_K, BT_QTYPE_Q6_K),
    PLAIN("q5_1", 9, BT_QTYPE_Q5_1, BT_QTYPE_Q6_K),
    PLAIN("q5_0", 8, BT_QTYPE_Q5_0, BT_QTYPE_Q6_K),
    {"q4_k", 15, BT_QTYPE_Q4_K, BT_QTYPE_Q6_K, BT_QTYPE_Q6_K, is_often,
     is_often, BT_QTYPE_Q5_K},
    {"q4_k_m", 15, BT_QTYPE_Q4_K, BT_QTYPE_Q6_K, BT_QTYPE_Q6_K, is_often,
     is_often, BT_QTYPE_Q5_K},
    {"q4_k_s", 14, BT_QTYPE_Q4_K, BT_QTYPE_Q6_K, BT_QTYPE_Q5_K, is_first_four,
     is_first_eighth, BT_QTYPE_Q4_K},
    PLAIN("q4_1", 3, BT_QTYPE_Q4_1, BT_QTYPE_Q6_K),
    PLAIN("q4_0", 2, BT_QTYPE_Q4_0, BT_QTYPE_Q6_K),
    PLAIN("mxfp4", 38, BT_QTYPE_MXFP4, BT_QTYPE_Q8_0),
    /* no type: plan_same() */
    PLAIN("same", BT_QUANTIZE_TYPES_STAY, 0, 0),
};

const bt_quantize_mix_t *bt_quantize_mix_find(const char *name)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(mixes); i++) {
        if (strcasecmp(mixes[i].name, name) == 0) {
            return &mixes[i];
        }
    }
    return NULL;
}

const char *bt_quantize_mix_name(uint32_t i)
{
    return (i < BT_ARRAY_LEN(mixes)) ? mixes[i].name : NULL;
}

uint32_t bt_quantize_mix_file_type(const bt_quantize_mix_t *mix)
{
    return mix->file_type;
}

bool bt_quantize_mix_weighs(const bt_quantize_mix_t *mix)
{
    return (mix->file_type != BT_QUANTIZE_TYPES_STAY) &&
           (mix->type != BT_QTYPE_F32) && (mix->type != BT_QTYPE_F16) &&
           (mix->type != BT_QTYPE_BF16);
}

static bool ends_with(bt_gguf_str_t name, const char *end)
{
    const size_t n = strlen(end);

    return (name.len >= n) && (memcmp(name.data + name.len - n, end, n) == 0);
}

/* Parses the layer: "blk.12.attn_v.weight" is layer 12. @return false: no
 * layer */
static bool layer_of(bt_gguf_str_t name, uint64_t *layer_p)
{
    uint64_t layer = 0;
    size_t i = 4;

    if ((name.len < 6) || (memcmp(name.data, "blk.", 4) != 0)) {
        return false;
    }
    for (; (i < name.len) && (i < 12) && (name.data[i] >= '0') &&
           (name.data[i] <= '9');
         i++) {
        layer = layer * 10 + (uint64_t)(name.data[i] - '0');
    }
    if ((i == 4) || (i == name.len) || (name.data[i] != '.')) {
        return false;
    }
    *layer_p = layer;
    return true;
}

static uint64_t count_layers(const bt_gguf_t *gguf)
{
    uint64_t n = 0;
    uint64_t layer;

    for (uint64_t i = 0; i < bt_gguf_n_tensors(gguf); i++) {
        if (layer_of(bt_gguf_tensor_at(gguf, i)->name, &layer) &&
            (layer + 1 > n)) {
            n = layer + 1;
        }
    }
    return n;
}

/* True for vectors, norms, and small critical matrices, which readers expect as
 * floats. */
static bool stays_f32(const bt_gguf_tensor_t *tensor)
{
    return (tensor->n_dims < 2) || !ends_with(tensor->name, ".weight") ||
           ends_with(tensor->name, "_norm.weight") ||
           ends_with(tensor->name, "ffn_gate_inp.weight") ||
           bt_gguf_str_is(tensor->name, "position_embd.weight") ||
           bt_gguf_str_is(tensor->name, "token_types.weight");
}

static uint32_t wanted(const bt_gguf_t *gguf, const bt_quantize_mix_t *mix,
                       const bt_gguf_tensor_t *tensor, uint64_t n_layers)
{
    const bt_gguf_str_t name = tensor->name;
    position_t at = {.n_layers = n_layers};

    if (stays_f32(tensor)) {
        return BT_QTYPE_F32;
    }
    if (bt_gguf_str_is(name, "output.weight") ||
        (bt_gguf_str_is(name, "token_embd.weight") &&
         (bt_gguf_tensor(gguf, "output.weight") == NULL))) {
        return mix->output;
    }
    if (!layer_of(name, &at.layer)) {
        return mix->type;
    }
    if (ends_with(name, ".attn_qkv.weight")) {
        return mix->joined;
    }
    if ((ends_with(name, ".attn_v.weight") && (mix->values != NULL) &&
         mix->values(&at)) ||
        ((ends_with(name, ".ffn_down.weight") ||
          ends_with(name, ".ffn_down_exps.weight")) &&
         (mix->down != NULL) && mix->down(&at))) {
        return mix->finer;
    }
    return mix->type;
}

/* Returns the next type with as many bits or more whose blocks are smaller. */
static uint32_t narrower(uint32_t type)
{
    switch (type) {
    case BT_QTYPE_Q4_K:
        return BT_QTYPE_Q5_0;
    case BT_QTYPE_Q5_K:
        return BT_QTYPE_Q5_1;
    case BT_QTYPE_Q6_K:
        return BT_QTYPE_Q8_0;
    default:
        return BT_QTYPE_F16;
    }
}

static bt_status_t measure(const bt_gguf_tensor_t *tensor, uint32_t type,
                           size_t *bytes_p)
{
    uint32_t n_elems = 1;
    uint32_t n_bytes = 0;
    size_t bytes;

    if (bt_quantize_block(type, &n_elems, &n_bytes) != BT_OK) {
        return BT_ERR_INTERNAL;
    }
    if (tensor->dims[0] % n_elems != 0) {
        return BT_ERR_UNSUPPORTED;
    }
    bytes = (size_t)(tensor->dims[0] / n_elems);
    if (__builtin_mul_overflow(bytes, n_bytes, &bytes)) {
        return BT_ERR_OVERFLOW;
    }
    for (uint32_t d = 1; d < tensor->n_dims; d++) {
        if (__builtin_mul_overflow(bytes, tensor->dims[d], &bytes)) {
            return BT_ERR_OVERFLOW;
        }
    }
    *bytes_p = bytes;
    return BT_OK;
}

/* Assigns the next free offset to a step. */
static bt_status_t allot(uint64_t *end, bt_quantize_step_t *step)
{
    step->at = *end;
    if (__builtin_add_overflow(*end, step->bytes, end) ||
        __builtin_add_overflow(*end, BT_QUANTIZE_ALIGNMENT - 1, end) ||
        (*end > INT64_MAX)) {
        return BT_ERR_OVERFLOW;
    }
    *end -= *end % BT_QUANTIZE_ALIGNMENT;
    return BT_OK;
}

/* A copy, which is possible for types that can only be read too, and for what
 * is no matrix of numbers: ids of a draft head. */
static bt_status_t plan_same(uint64_t *end, bt_quantize_step_t *step)
{
    step->wanted = step->tensor->type;
    step->type = step->tensor->type;
    step->bytes = step->tensor->bytes;
    return allot(end, step);
}

static bt_status_t plan_step(uint32_t want, uint64_t *end,
                             bt_quantize_step_t *step)
{
    bt_status_t status;

    step->wanted = want;
    step->type = want;
    status = measure(step->tensor, step->type, &step->bytes);
    while (status == BT_ERR_UNSUPPORTED) {
        step->is_narrow = true;
        step->type = narrower(step->type);
        status = measure(step->tensor, step->type, &step->bytes);
    }
    if (status != BT_OK) {
        return status;
    }
    return allot(end, step);
}

bt_status_t bt_quantize_plan_make(const bt_gguf_t *gguf,
                                  const bt_quantize_mix_t *mix,
                                  bt_quantize_plan_t *plan_p)
{
    const uint64_t n_layers = count_layers(gguf);
    bt_quantize_plan_t plan = {.n = bt_gguf_n_tensors(gguf)};
    bt_status_t status = BT_OK;

    plan.steps = bt_calloc((size_t)plan.n + 1, sizeof(*plan.steps));
    if (plan.steps == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint64_t i = 0; (i < plan.n) && (status == BT_OK); i++) {
        bt_quantize_step_t *const step = &plan.steps[i];

        step->tensor = bt_gguf_tensor_at(gguf, i);
        status = ((mix->file_type == BT_QUANTIZE_TYPES_STAY) ||
                  (step->tensor->type == BT_GGUF_TENSOR_I64))
                     ? plan_same(&plan.bytes, step)
                     : plan_step(wanted(gguf, mix, step->tensor, n_layers),
                                 &plan.bytes, step);
    }
    if (status != BT_OK) {
        bt_quantize_plan_fini(&plan);
        return status;
    }
    *plan_p = plan;
    return BT_OK;
}

void bt_quantize_plan_fini(bt_quantize_plan_t *plan)
{
    bt_free(plan->steps);
    *plan = (bt_quantize_plan_t){0};
}

#define LANES 8u
/* Adding and subtracting it rounds to an integer, ties to even, for numbers
 * below 2^22, in vector code of any instruction set. */
#define ROUNDER 12582912.0f
#define TINY    1e-30f /* smaller ones are 0: no inverse may overflow */

/* Candidates: the range of the run over this many codes more or less. */
#define STEPS      9
#define STEP_CODES 0.1f

/* A larger factor is not explained by the rounding of codes. */
#define MOST_LENGTH 1.05f

float bt_fit_f16(float value)
{
    return bt_f16_to_f32(bt_f32_to_f16(value));
}

static float sum_lanes(const float *lane)
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

float bt_fit_codes(const bt_fit_run_t *run, float scale, float min,
                   float *codes)
{
    const float inverse = (fabsf(scale) < TINY) ? 0.0f : 1.0f / scale;
    const float low = run->low;
    const float high = run->high;
    float lane[LANES] = {0};

    for (uint32_t i = 0; i < run->n; i += LANES) {
        const float *const x = run->x + i;
        const float *const w = run->w + i;
        float *const out = codes + i;

        for (uint32_t j = 0; j < LANES; j++) {
            float code = (x[j] - min) * inverse;
            float off;

            code = (code < low) ? low : code;
            code = (code > high) ? high : code;
            code = (code + ROUNDER) - ROUNDER;
            off = x[j] - (scale * code + min);
            out[j] = code;
            lane[j] += w[j] * off * off;
        }
    }
    return sum_lanes(lane);
}

/* Sums for least squares: of w, w q, w q^2, w x, w x q, w x^2. */
typedef struct sums {
    float w, q, qq, x, xq, xx;
} sums_t;

static sums_t sum_up(const bt_fit_run_t *run, const float *codes)
{
    float w[LANES] = {0};
    float q[LANES] = {0};
    float qq[LANES] = {0};
    float x[LANES] = {0};
    float xq[LANES] = {0};
    float xx[LANES] = {0};

    for (uint32_t i = 0; i < run->n; i += LANES) {
        for (uint32_t j = 0; j < LANES; j++) {
            const float weight = run->w[i + j];
            const float code = codes[i + j];
            const float value = weight * run->x[i + j];

            w[j] += weight;
            q[j] += weight * code;
            qq[j] += weight * code * code;
            x[j] += value;
            xq[j] += value * code;
            xx[j] += value * run->x[i + j];
        }
    }
    return (sums_t){sum_lanes(w), sum_lanes(q),  sum_lanes(qq),
                    sum_lanes(x), sum_lanes(xq), sum_lanes(xx)};
}

static float stored(const bt_fit_run_t *run, float value)
{
    return run->as_f16 ? bt_fit_f16(value) : value;
}

/* Keeps (scale, min) if better than the best so far. */
static void consider(const bt_fit_run_t *run, float scale, float min,
                     float *codes, bt_fit_t *best)
{
    const float s = stored(run, scale);
    const float m = stored(run, min);
    const float error = bt_fit_codes(run, s, m, codes);

    if (error < best->error) {
        *best = (bt_fit_t){.scale = s, .min = m, .error = error};
    }
}

/* Returns the value of largest magnitude, with its sign. */
static float furthest(const bt_fit_run_t *run)
{
    float most = 0.0f;

    for (uint32_t i = 0; i < run->n; i++) {
        most = (fabsf(run->x[i]) > fabsf(most)) ? run->x[i] : most;
    }
    return most;
}

bt_fit_t bt_fit_scale(const bt_fit_run_t *run)
{
    /* The value furthest from 0 gets the code furthest from 0; where both ends
     * are equally far the scale is positive. */
    const bool is_even = (-run->low == run->high);
    const float most = is_even ? fabsf(furthest(run)) : furthest(run);
    const float end = (-run->low > run->high) ? run->low : run->high;
    bt_fit_t best = {.scale = 0.0f, .error = INFINITY};
    float codes[BT_FIT_MAX];

    consider(run, 0.0f, 0.0f, codes, &best);
    if (fabsf(most) < TINY) {
        return best;
    }
    for (int k = -STEPS; k <= STEPS; k++) {
        const float reach = fabsf(end) + STEP_CODES * (float)k;
        sums_t s;

        consider(run, most / copysignf(reach, end), 0.0f, codes, &best);
        s = sum_up(run, codes);
        if (s.qq > 0.0f) {
            consider(run, s.xq / s.qq, 0.0f, codes, &best);
        }
    }
    return best;
}

/* Least squares of scale and minimum for given codes. */
static void solve(const sums_t *s, bool min_below, float *scale_p, float *min_p)
{
    const float det = s->w * s->qq - s->q * s->q;
    float scale = 0.0f;
    float min = 0.0f;

    if (det > 0.0f) {
        scale = (s->w * s->xq - s->x * s->q) / det;
        min = (s->qq * s->x - s->q * s->xq) / det;
    }
    if ((det <= 0.0f) || (min_below && (min > 0.0f))) {
        scale = (s->qq > 0.0f) ? s->xq / s->qq : 0.0f;
        min = 0.0f;
    }
    *scale_p = scale;
    *min_p = min;
}

bt_fit_t bt_fit_affine(const bt_fit_run_t *run, bool min_below)
{
    bt_fit_t best = {.error = INFINITY};
    float codes[BT_FIT_MAX];
    float low = run->x[0];
    float high = run->x[0];

    for (uint32_t i = 1; i < run->n; i++) {
        low = (run->x[i] < low) ? run->x[i] : low;
        high = (run->x[i] > high) ? run->x[i] : high;
    }
    if (min_below && (low > 0.0f)) {
        low = 0.0f;
    }
    consider(run, 0.0f, (min_below && (high < 0.0f)) ? high : low, codes,
             &best);
    consider(run, 0.0f, low, codes, &best);
    if (high - low < TINY) {
        return best;
    }
    for (int k = -STEPS; k <= STEPS; k++) {
        const float range = run->high + STEP_CODES * (float)k;
        sums_t s;
        float scale;
        float min;

        consider(run, (high - low) / range, low, codes, &best);
        s = sum_up(run, codes);
        solve(&s, min_below, &scale, &min);
        if (scale > 0.0f) {
            consider(run, scale, min, codes, &best);
        }
    }
    return best;
}

/* Least squares for given codes. */
static float error_of(const bt_fit_run_t *run, float scale, float min,
                      const float *codes)
{
    float lane[LANES] = {0};

    for (uint32_t i = 0; i < run->n; i += LANES) {
        for (uint32_t j = 0; j < LANES; j++) {
            const float off = run->x[i + j] - (scale * codes[i + j] + min);

            lane[j] += run->w[i + j] * off * off;
        }
    }
    return sum_lanes(lane);
}

void bt_fit_lengthen(const bt_fit_run_t *run, bool has_min, const float *codes,
                     bt_fit_t *fit)
{
    const sums_t s = sum_up(run, codes);
    float scale = fit->scale;
    float min = fit->min;
    float error;

    if (has_min && (s.w * s.xq - s.x * s.q > 0.0f)) {
        scale = (s.w * s.xx - s.x * s.x) / (s.w * s.xq - s.x * s.q);
        min = (s.x - scale * s.q) / s.w;
    } else if (!has_min && (fabsf(s.xq) > 0.0f)) {
        scale = s.xx / s.xq;
    }
    scale = stored(run, scale);
    min = stored(run, min);
    error = error_of(run, scale, min, codes);
    if (error <= fit->error * MOST_LENGTH) {
        *fit = (bt_fit_t){.scale = scale, .min = min, .error = error};
    }
}

float bt_fit_length(double xx, double xy)
{
    const bool is_little = (xy > 0.0) && (xx <= xy * (double)MOST_LENGTH) &&
                           (xy <= xx * (double)MOST_LENGTH);

    return is_little ? (float)(xx / xy) : 1.0f;
}
