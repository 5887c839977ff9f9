/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/hf/quant_rows.h"

#include <math.h>
#include <string.h>

#include "inference/hf/floats.h"

uint64_t bt_recipe_stored_row(const bt_recipe_order_t *order, uint64_t r)
{
    const uint32_t dim = order->head_dim;
    uint64_t head;
    uint64_t at;

    if (order->n_segments == 0) {
        return r;
    }
    head = r / dim;
    at = r % dim;
    if (order->halves) {
        at = at / 2 + (at % 2) * (dim / 2);
    }
    for (uint32_t i = 0; i < order->n_segments; i++) {
        const bt_recipe_segment_t *const s = &order->segments[i];

        if (head < s->n_heads) {
            head =
                head / s->take * order->group_heads + s->first + head % s->take;
            break;
        }
        head -= s->n_heads;
    }
    return head * dim + at;
}

uint64_t bt_recipe_order_rows(const bt_recipe_order_t *order)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < order->n_segments; i++) {
        n += order->segments[i].n_heads;
    }
    return n * order->head_dim;
}

uint64_t bt_recipe_order_stored(const bt_recipe_order_t *order)
{
    const bt_recipe_segment_t *const s = &order->segments[0];

    return (uint64_t)(s->n_heads / s->take) * order->group_heads *
           order->head_dim;
}

float bt_recipe_number(const bt_st_tensor_t *tensor, uint64_t i)
{
    switch (tensor->dtype) {
    case BT_ST_F32:
        return bt_read_f32(tensor->data + 4 * i);
    case BT_ST_F16:
        return bt_read_f16(tensor->data + 2 * i);
    case BT_ST_F8_E8M0:
        return bt_read_e8m0(tensor->data + i);
    default: /* BF16 */
        return bt_read_bf16(tensor->data + 2 * i);
    }
}

void bt_recipe_row_plain(const bt_recipe_t *recipe, uint64_t row, uint8_t *out)
{
    memcpy(out, recipe->data->data + row * recipe->row_bytes,
           recipe->row_bytes);
}

void bt_recipe_row_transposed(const bt_recipe_t *recipe, uint64_t row,
                              uint8_t *out)
{
    const uint32_t size = bt_st_dtype_bytes(recipe->data->dtype);
    const uint64_t width = recipe->data->dims[recipe->data->n_dims - 1];
    const uint64_t first = row / width * recipe->n_in * width + row % width;

    for (uint64_t i = 0; i < recipe->n_in; i++) {
        memcpy(out + i * size, recipe->data->data + (first + i * width) * size,
               size);
    }
}

void bt_recipe_row_plus_one(const bt_recipe_t *recipe, uint64_t row,
                            uint8_t *out)
{
    for (uint64_t i = 0; i < recipe->n_in; i++) {
        const float value =
            bt_recipe_number(recipe->data, row * recipe->n_in + i) + 1.0f;

        memcpy(out + i * sizeof(value), &value, sizeof(value));
    }
}

void bt_recipe_row_unit(const bt_recipe_t *recipe, uint64_t row, uint8_t *out)
{
    const uint64_t first = row * recipe->n_in;
    double sum = 0.0;

    for (uint64_t i = 0; i < recipe->n_in; i++) {
        const double x = (double)bt_recipe_number(recipe->data, first + i);

        sum += x * x;
    }
    sum = fmax(sqrt(sum), 1e-12); /* as torch.nn.functional.normalize() does */
    for (uint64_t i = 0; i < recipe->n_in; i++) {
        const float value =
            (float)((double)bt_recipe_number(recipe->data, first + i) / sum);

        memcpy(out + i * sizeof(value), &value, sizeof(value));
    }
}

bt_status_t bt_recipe_make(const void *recipe, void *out)
{
    const bt_recipe_t *const r = recipe;

    for (uint64_t i = 0; i < r->n_out; i++) {
        r->row(r, bt_recipe_stored_row(&r->order, i),
               (uint8_t *)out + i * r->row_bytes);
    }
    return BT_OK;
}

bt_status_t bt_recipe_stack_make(const void *stack, void *out)
{
    const bt_recipe_stack_t *const s = stack;
    uint8_t *at = out;
    bt_status_t status = BT_OK;

    for (uint64_t i = 0; (status == BT_OK) && (i < s->n); i++) {
        status = bt_recipe_make(&s->parts[i], at);
        at += s->parts[i].n_out * s->parts[i].row_bytes;
    }
    return status;
}

/* Writes F32 numbers: the stored row of F32, F16 or BF16. */
static void row_as_f32(const bt_recipe_t *recipe, uint64_t row, uint8_t *out)
{
    for (uint64_t i = 0; i < recipe->n_in; i++) {
        const float value =
            bt_recipe_number(recipe->data, row * recipe->n_in + i);

        memcpy(out + i * sizeof(value), &value, sizeof(value));
    }
}

void bt_recipe_to_f32(bt_recipe_t *recipe)
{
    if (recipe->row == bt_recipe_row_plain) {
        recipe->row = row_as_f32;
    } else if (recipe->row == bt_quant_row_fp8_bf16) {
        recipe->row = bt_quant_row_fp8;
    } else if (recipe->row == bt_quant_row_int8_q8_0) {
        recipe->row = bt_quant_row_int8;
    } else if ((recipe->row == bt_quant_row_q4_0) ||
               (recipe->row == bt_quant_row_q5_0) ||
               (recipe->row == bt_quant_row_q8_0)) {
        recipe->row = bt_quant_row_f32;
    } /* others are of F32 */
    recipe->row_bytes = recipe->n_in * sizeof(float);
}

#define BLOCK 32u /* numbers of a block of Q4_0, Q5_0 and Q8_0 */

/* numbers of a block of BT_KTYPE_E4M3, kernels.h */
#define TYPE_E4M3      60u
#define TYPE_E4M3_BF16 61u
#define CODES          64u
#define CODES_BYTES    68u

static uint32_t word_at(const bt_st_tensor_t *tensor, uint64_t i)
{
    uint32_t word;

    memcpy(&word, tensor->data + 4 * i, sizeof(word));
    return word;
}

static uint32_t bits_of(uint32_t word, uint32_t bits, uint64_t i)
{
    return (word >> (bits * (uint32_t)i)) & ((1u << bits) - 1u);
}

static int32_t middle(const bt_recipe_t *r)
{
    return 1 << (r->bits - 1);
}

/* ---- GPTQ ---- */

static uint32_t gptq_code(const bt_recipe_t *r, uint64_t out, uint64_t in)
{
    const uint32_t n = 32 / r->bits;

    return bits_of(word_at(r->data, in / n * r->data->dims[1] + out), r->bits,
                   in % n);
}

static int32_t gptq_zero(const bt_recipe_t *r, uint64_t out, uint64_t group)
{
    const uint32_t n = 32 / r->bits;
    const uint32_t word = word_at(r->zero, group * r->zero->dims[1] + out / n);

    return (int32_t)bits_of(word, r->bits, out % n) + r->zero_add;
}

const bt_quant_layout_t bt_quant_gptq = {gptq_code, gptq_zero, true};

/* ---- AWQ ---- */

/* Position of output 0, 1 … of eight in its word. */
static const uint8_t awq_positions[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static uint32_t awq_code(const bt_recipe_t *r, uint64_t out, uint64_t in)
{
    return bits_of(word_at(r->data, in * r->data->dims[1] + out / 8), 4,
                   awq_positions[out % 8]);
}

static int32_t awq_zero(const bt_recipe_t *r, uint64_t out, uint64_t group)
{
    return (int32_t)bits_of(
        word_at(r->zero, group * r->zero->dims[1] + out / 8), 4,
        awq_positions[out % 8]);
}

const bt_quant_layout_t bt_quant_awq = {awq_code, awq_zero, true};

/* ---- compressed-tensors ---- */

static uint32_t packed_code(const bt_recipe_t *r, uint64_t out, uint64_t in)
{
    const uint32_t n = 32 / r->bits;

    return bits_of(word_at(r->data, out * r->data->dims[1] + in / n), r->bits,
                   in % n);
}

/* Returns a zero; a word has those of n outputs. */
static int32_t packed_zero(const bt_recipe_t *r, uint64_t out, uint64_t group)
{
    const uint32_t n = 32 / r->bits;

    return (r->zero == NULL)
               ? middle(r)
               : (int32_t)bits_of(
                     word_at(r->zero, out / n * r->zero->dims[1] + group),
                     r->bits, out % n);
}

const bt_quant_layout_t bt_quant_packed = {packed_code, packed_zero, false};

/* ---- numbers ---- */

float bt_quant_scale(const bt_recipe_t *r, uint64_t out, uint64_t group)
{
    const uint64_t n_groups = (r->n_in + r->group_elems - 1) / r->group_elems;

    return bt_recipe_number(r->scale, r->layout->scale_by_group
                                          ? group * r->n_scaled + out
                                          : out * n_groups + group);
}

static uint64_t group_of(const bt_recipe_t *r, uint64_t in)
{
    return (r->groups != NULL) ? r->groups[in] : in / r->group_elems;
}

void bt_quant_row_f32(const bt_recipe_t *r, uint64_t row, uint8_t *out)
{
    uint64_t known = UINT64_MAX;
    float scale = 0.0f;
    int32_t zero = 0;

    for (uint64_t i = 0; i < r->n_in; i++) {
        const uint64_t group = group_of(r, i);
        float value;

        if (group != known) {
            known = group;
            scale = bt_quant_scale(r, row, group);
            zero = r->layout->zero(r, row, group);
        }
        value = (float)((int32_t)r->layout->code(r, row, i) - zero) * scale;
        memcpy(out + 4 * i, &value, sizeof(value));
    }
}

/* Writes the scale of a block's group, as f16 bits. */
static uint8_t *put_scale(const bt_recipe_t *r, uint64_t row, uint64_t in,
                          uint8_t *out)
{
    uint16_t bits = 0;

    (void)bt_exact_f16(bt_quant_scale(r, row, in / r->group_elems), &bits);
    memcpy(out, &bits, sizeof(bits));
    return out + sizeof(bits);
}

/* Reads code less zero of inputs in .. of a block. */
static void read_block(const bt_recipe_t *r, uint64_t row, uint64_t in,
                       int32_t *values)
{
    const int32_t zero = r->layout->zero(r, row, in / r->group_elems);

    for (uint32_t i = 0; i < BLOCK; i++) {
        values[i] = (int32_t)r->layout->code(r, row, in + i) - zero;
    }
}

static uint8_t nibbles(const int32_t *values, uint32_t i, int32_t bias)
{
    const uint32_t low = (uint32_t)(values[i] + bias) & 15u;
    const uint32_t high = (uint32_t)(values[i + BLOCK / 2] + bias) & 15u;

    return (uint8_t)(low | high << 4);
}

void bt_quant_row_q4_0(const bt_recipe_t *r, uint64_t row, uint8_t *out)
{
    int32_t values[BLOCK];

    for (uint64_t at = 0; at < r->n_in; at += BLOCK) {
        read_block(r, row, at, values);
        out = put_scale(r, row, at, out);
        for (uint32_t i = 0; i < BLOCK / 2; i++) {
            *out++ = nibbles(values, i, 8);
        }
    }
}

void bt_quant_row_q5_0(const bt_recipe_t *r, uint64_t row, uint8_t *out)
{
    int32_t values[BLOCK];

    for (uint64_t at = 0; at < r->n_in; at += BLOCK) {
        uint32_t fifth = 0;

        read_block(r, row, at, values);
        out = put_scale(r, row, at, out);
        for (uint32_t i = 0; i < BLOCK; i++) {
            fifth |= ((uint32_t)(values[i] + 16) >> 4) << i;
        }
        memcpy(out, &fifth, sizeof(fifth));
        out += sizeof(fifth);
        for (uint32_t i = 0; i < BLOCK / 2; i++) {
            *out++ = nibbles(values, i, 16);
        }
    }
}

void bt_quant_row_q8_0(const bt_recipe_t *r, uint64_t row, uint8_t *out)
{
    int32_t values[BLOCK];

    for (uint64_t at = 0; at < r->n_in; at += BLOCK) {
        read_block(r, row, at, values);
        out = put_scale(r, row, at, out);
        for (uint32_t i = 0; i < BLOCK; i++) {
            *out++ = (uint8_t)values[i];
        }
    }
}

/* ---- bytes with a scale for a block ---- */

static float block_scale(const bt_recipe_t *r, uint64_t row, uint64_t in)
{
    const uint64_t across = (r->n_in + r->block[1] - 1) / r->block[1];

    return bt_recipe_number(r->scale,
                            row / r->block[0] * across + in / r->block[1]);
}

static inline void scaled_row(const bt_recipe_t *r, uint64_t row, bool is_fp8,
                              uint8_t *out)
{
    const uint8_t *const bytes = r->data->data + row * r->n_in;
    float scale = 0.0f;

    for (uint64_t i = 0; i < r->n_in; i++) {
        float value;

        if (i % r->block[1] == 0) {
            scale = block_scale(r, row, i);
        }
        value = is_fp8 ? bt_read_e4m3(bytes[i]) : (float)(int8_t)bytes[i];
        value *= scale;
        memcpy(out + 4 * i, &value, sizeof(value));
    }
}

void bt_quant_row_fp8(const bt_recipe_t *r, uint64_t row, uint8_t *out)
{
    scaled_row(r, row, true, out);
}

void bt_quant_row_int8(const bt_recipe_t *r, uint64_t row, uint8_t *out)
{
    scaled_row(r, row, false, out);
}

void bt_quant_row_fp8_bf16(const bt_recipe_t *r, uint64_t row, uint8_t *out)
{
    const uint8_t *const bytes = r->data->data + row * r->n_in;

    for (uint64_t i = 0; i < r->n_in; i++) {
        const float value = bt_read_e4m3(bytes[i]) * block_scale(r, row, i);
        uint32_t bits;
        uint16_t half;

        memcpy(&bits, &value, sizeof(bits));
        half = (uint16_t)(bits >> 16); /* the rest is zeros */
        memcpy(out + 2 * i, &half, sizeof(half));
    }
}

static void row_e4m3(const bt_recipe_t *r, uint64_t row, uint8_t *out)
{
    const uint8_t *const bytes = r->data->data + row * r->n_in;

    for (uint64_t at = 0; at < r->n_in; at += CODES) {
        float scale = block_scale(r, row, at);

        for (uint32_t i = 0; i < CODES; i++) {
            if ((bytes[at + i] & 0x7F) == 0x7F) {
                scale = bt_read_e4m3(0x7F);
            }
        }
        memcpy(out, &scale, sizeof(scale));
        memcpy(out + sizeof(scale), bytes + at, CODES);
        out += CODES_BYTES;
    }
}

bool bt_quant_codes(const bt_recipe_t *r, uint32_t *type_p,
                    bt_recipe_t *codes_p)
{
    const bool is_bf16 = r->row == bt_quant_row_fp8_bf16;

    if ((!is_bf16 && (r->row != bt_quant_row_fp8)) || (r->n_in % CODES != 0) ||
        (r->block[1] % CODES != 0)) {
        return false;
    }
    *type_p = is_bf16 ? TYPE_E4M3_BF16 : TYPE_E4M3;
    *codes_p = *r;
    codes_p->row = row_e4m3;
    codes_p->row_bytes = r->n_in / CODES * CODES_BYTES;
    return true;
}

void bt_quant_row_int8_q8_0(const bt_recipe_t *r, uint64_t row, uint8_t *out)
{
    const uint8_t *const bytes = r->data->data + row * r->n_in;

    for (uint64_t at = 0; at < r->n_in; at += BLOCK) {
        uint16_t bits = 0;

        (void)bt_exact_f16(block_scale(r, row, at), &bits);
        memcpy(out, &bits, sizeof(bits));
        memcpy(out + sizeof(bits), bytes + at, BLOCK);
        out += sizeof(bits) + BLOCK;
    }
}

void bt_quant_row_mxfp4(const bt_recipe_t *r, uint64_t row, uint8_t *out)
{
    const uint64_t n_blocks = r->n_in / BLOCK;
    const uint32_t half = BLOCK / 2;

    for (uint64_t b = row * n_blocks; b < (row + 1) * n_blocks; b++) {
        const uint8_t *const stored = r->data->data + b * half;

        *out++ = r->scale->data[b];
        for (uint32_t i = 0; i < half; i++) {
            const uint32_t shift = 4 * (i % 2);
            const uint32_t low = (uint32_t)stored[i / 2] >> shift & 15u;
            const uint32_t high =
                (uint32_t)stored[i / 2 + half / 2] >> shift & 15u;

            *out++ = (uint8_t)(low | high << 4);
        }
    }
}
