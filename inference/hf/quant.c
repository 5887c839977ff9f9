/* SPDX-License-Identifier: Apache-2.0 */
/* Quantized folders: classifies the tensors of a matrix, and plans its
 * conversion. Values that a GGUF type represents exactly become that type
 * (Q4_0, Q5_0, Q8_0, BF16, MXFP4); all others become F32. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "inference/hf/floats.h"
#include "inference/hf/hf_priv.h"
#include "inference/hf/quant_rows.h"

#define TYPE_F32   0u
#define TYPE_Q4_0  2u
#define TYPE_Q5_0  6u
#define TYPE_Q8_0  8u
#define TYPE_BF16  30u
#define TYPE_MXFP4 39u
#define BLOCK      32u
#define NAME_BYTES 512

/* Input of plan(). */
typedef struct parts {
    const bt_st_tensor_t *main;
    char base[NAME_BYTES]; /* the matrix's name without ".weight" */
    size_t base_len;
} parts_t;

struct bt_quant {
    const char *method; /* quant_method */
    bt_status_t (*read)(bt_hf_t *hf, const bt_json_node_t *config);
    const char *mains[3]; /* endings of main tensors' names */
    const char *sides[8]; /* of tensors that belong to one */
    bt_status_t (*plan)(bt_hf_t *hf, const parts_t *parts, uint32_t *type_p,
                        bt_recipe_t *recipe);
};

static bt_status_t wrong(bt_hf_t *hf, const parts_t *parts, const char *what)
{
    return bt_hf_fail(hf, BT_ERR_BAD_FILE, "the quantized matrix %s %s",
                      bt_printable(parts->base, parts->base_len).text, what);
}

static const bt_json_node_t *
setting(const bt_hf_t *hf, const bt_json_node_t *config, const char *name)
{
    return bt_hf_not_null(bt_json_get(hf->config.doc, config, name));
}

static bt_status_t refuse(bt_hf_t *hf, const char *name,
                          const bt_json_node_t *node)
{
    const bool shows = (node != NULL) && (node->text != NULL);

    return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                      "config.json: quantization_config with %s %s is not "
                      "supported",
                      name,
                      shows ? bt_printable(node->text, node->len).text : "so");
}

/* Finds a side tensor by its ending. NULL: there is none */
static const bt_st_tensor_t *side(const bt_hf_t *hf, const parts_t *parts,
                                  const char *ending)
{
    char name[NAME_BYTES + 32];
    const int n = snprintf(name, sizeof(name), "%.*s%s", (int)parts->base_len,
                           parts->base, ending);

    return bt_hf_stored(hf->store, name, (size_t)n);
}

static bool is_float(const bt_st_tensor_t *t)
{
    return (t->dtype == BT_ST_F32) || (t->dtype == BT_ST_F16) ||
           (t->dtype == BT_ST_BF16);
}

static bool is_words(const bt_st_tensor_t *t, uint64_t rows, uint64_t cols)
{
    return ((t->dtype == BT_ST_I32) || (t->dtype == BT_ST_U32)) &&
           (t->n_dims == 2) && (t->dims[0] == rows) && (t->dims[1] == cols);
}

/* ---- bytes: FP8 and INT8 ---- */

/* The scale's shape tells its granularity: all, a row, or a block of both. */
static bt_status_t set_blocks(bt_hf_t *hf, const parts_t *parts, bt_recipe_t *r)
{
    const bt_st_tensor_t *const s = r->scale;
    const uint32_t *const block = hf->quant_settings.block;
    const uint32_t group = hf->quant_settings.group;

    if (s->n_elems == 1) {
        r->block[0] = r->n_out;
        r->block[1] = r->n_in;
        return BT_OK;
    }
    if ((s->n_elems == r->n_out) && (s->dims[0] == r->n_out)) {
        r->block[0] = 1;
        r->block[1] = r->n_in;
        return BT_OK;
    }
    r->block[0] = (block[0] != 0) ? block[0] : 1;
    r->block[1] = (block[1] != 0) ? block[1] : group;
    if ((r->block[1] == 0) || (s->n_dims != 2) ||
        (s->dims[0] != (r->n_out + r->block[0] - 1) / r->block[0]) ||
        (s->dims[1] != (r->n_in + r->block[1] - 1) / r->block[1])) {
        return wrong(hf, parts, "has scales of a shape that does not fit it");
    }
    return BT_OK;
}

/* True when the product with every code is a finite F32: the largest code is
 * the 448 of e4m3. A scale that is NaN is none either. */
static bool scales_are_finite(const bt_st_tensor_t *scale)
{
    for (uint64_t i = 0; i < scale->n_elems; i++) {
        if (!isfinite(bt_recipe_number(scale, i) * 448.0f)) {
            return false;
        }
    }
    return true;
}

/* True when the product with any e4m3 number, which has at most 4 bits of
 * fraction, is a bf16: that has 8. */
static bool is_short(float scale)
{
    uint32_t bits;
    const float size = fabsf(scale);

    memcpy(&bits, &scale, sizeof(bits));
    return ((bits & 0x000fffffu) == 0) && (size > 0x1p-100f) &&
           (size < 0x1p100f);
}

static bool scales_are_short(const bt_st_tensor_t *scale)
{
    for (uint64_t i = 0; i < scale->n_elems; i++) {
        if (!is_short(bt_recipe_number(scale, i))) {
            return false;
        }
    }
    return true;
}

static bool scales_are_f16(const bt_st_tensor_t *scale)
{
    for (uint64_t i = 0; i < scale->n_elems; i++) {
        uint16_t bits;

        if (!bt_exact_f16(bt_recipe_number(scale, i), &bits)) {
            return false;
        }
    }
    return true;
}

/* Chooses the type that represents 8-bit codes exactly. */
static void choose_type_of_bytes(bt_recipe_t *r, uint32_t *type_p)
{
    if (r->data->dtype == BT_ST_F8_E4M3) {
        const bool is_bf16 = scales_are_short(r->scale);

        *type_p = is_bf16 ? TYPE_BF16 : TYPE_F32;
        r->row = is_bf16 ? bt_quant_row_fp8_bf16 : bt_quant_row_fp8;
        r->row_bytes = r->n_in * (is_bf16 ? sizeof(uint16_t) : sizeof(float));
    } else if ((r->block[1] % BLOCK == 0) && (r->n_in % BLOCK == 0) &&
               scales_are_f16(r->scale)) {
        *type_p = TYPE_Q8_0;
        r->row = bt_quant_row_int8_q8_0;
        r->row_bytes = r->n_in / BLOCK * 34;
    } else {
        *type_p = TYPE_F32;
        r->row = bt_quant_row_int8;
        r->row_bytes = r->n_in * sizeof(float);
    }
}

static bt_status_t plan_bytes(bt_hf_t *hf, const parts_t *parts,
                              uint32_t *type_p, bt_recipe_t *recipe)
{
    static const char *const endings[] = {".weight_scale_inv", ".weight_scale"};
    const bt_st_tensor_t *const w = parts->main;
    bt_recipe_t r = {.data = w};
    bt_status_t status;

    for (size_t i = 0; (i < BT_ARRAY_LEN(endings)) && (r.scale == NULL); i++) {
        r.scale = side(hf, parts, endings[i]);
    }
    if ((r.scale == NULL) ||
        (!is_float(r.scale) && (r.scale->dtype != BT_ST_F8_E8M0))) {
        return wrong(hf, parts,
                     "has no scales that are F32, F16, BF16 or F8_E8M0");
    }
    if (!scales_are_finite(r.scale)) {
        return wrong(hf, parts, "has a scale whose products are not finite");
    }
    if ((w->n_dims != 2) || (w->n_elems == 0) ||
        ((w->dtype != BT_ST_F8_E4M3) && (w->dtype != BT_ST_I8))) {
        return wrong(hf, parts, "is no matrix of F8_E4M3 or I8");
    }
    if (side(hf, parts, ".weight_zero_point") != NULL) {
        return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                          "the quantized matrix %s has zero points beside "
                          "bytes, which is not supported",
                          bt_printable(parts->base, parts->base_len).text);
    }
    r.n_out = w->dims[0];
    r.n_in = w->dims[1];
    status = set_blocks(hf, parts, &r);
    if (status == BT_OK) {
        choose_type_of_bytes(&r, type_p);
        *recipe = r;
    }
    return status;
}

/* ---- packed codes ---- */

/* True when GGUF blocks represent (code - zero) * scale exactly. Every scale
 * must be an f16. *least_p .. *most_p: range of code - zero. */
static bool fits_blocks(const bt_recipe_t *r, int32_t *least_p, int32_t *most_p)
{
    const uint64_t n_groups = r->n_in / r->group_elems;
    int32_t least_zero = INT32_MAX;
    int32_t most_zero = INT32_MIN;

    if ((r->groups != NULL) || (r->group_elems % BLOCK != 0) ||
        (r->n_in % r->group_elems != 0)) {
        return false;
    }
    for (uint64_t g = 0; g < n_groups; g++) {
        for (uint64_t o = 0; o < r->n_out; o++) {
            const int32_t zero = r->layout->zero(r, o, g);
            uint16_t bits;

            if (!bt_exact_f16(bt_quant_scale(r, o, g), &bits)) {
                return false;
            }
            least_zero = (zero < least_zero) ? zero : least_zero;
            most_zero = (zero > most_zero) ? zero : most_zero;
        }
    }
    *least_p = -most_zero;
    *most_p = (1 << r->bits) - 1 - least_zero;
    return true;
}

/* Chooses the smallest type with that range: codes of 4 bits whose zeros are
 * not all the middle (AWQ) need 5 bits without a zero. */
static void choose_type(bt_recipe_t *r, uint32_t *type_p)
{
    static const struct {
        uint32_t type;
        int32_t most;
        size_t block_bytes;
        bt_recipe_row_fn row;
    } blocks[] = {
        {TYPE_Q4_0, 7, 18, bt_quant_row_q4_0},
        {TYPE_Q5_0, 15, 22, bt_quant_row_q5_0},
        {TYPE_Q8_0, 127, 34, bt_quant_row_q8_0},
    };
    int32_t least = 0;
    int32_t most = 0;
    const bool fits = fits_blocks(r, &least, &most);

    for (size_t i = 0; fits && (i < BT_ARRAY_LEN(blocks)); i++) {
        if ((most <= blocks[i].most) && (least >= -blocks[i].most - 1)) {
            *type_p = blocks[i].type;
            r->row = blocks[i].row;
            r->row_bytes = r->n_in / BLOCK * blocks[i].block_bytes;
            return;
        }
    }
    *type_p = TYPE_F32;
    r->row = bt_quant_row_f32;
    r->row_bytes = r->n_in * sizeof(float);
}

/*
 * Reads the group of each input, where inputs are not in order.
 * @retval BT_ERR_BAD_FILE  a group is beyond the scales
 */
static bt_status_t read_groups(bt_hf_t *hf, const parts_t *parts,
                               const bt_st_tensor_t *index, uint64_t n_groups,
                               bt_recipe_t *r)
{
    bt_hf_store_t *const store = hf->store;
    bool in_order = true;
    uint32_t *groups;

    if ((index->dtype != BT_ST_I32) || (index->n_elems != r->n_in)) {
        return wrong(hf, parts, "has a g_idx that does not fit it");
    }
    groups = bt_calloc((size_t)r->n_in, sizeof(*groups));
    if (groups == NULL) {
        return bt_hf_fail(hf, BT_ERR_NO_MEMORY, "out of memory");
    }
    memcpy(groups, index->data, index->bytes);
    for (uint64_t i = 0; i < r->n_in; i++) {
        if (groups[i] >= n_groups) {
            bt_free(groups);
            return wrong(hf, parts, "has a g_idx beyond its groups");
        }
        in_order = in_order && (groups[i] == i / r->group_elems);
    }
    if (in_order) {
        bt_free(groups);
        return BT_OK;
    }
    if (store->groups == NULL) { /* not more than there are tensors */
        store->groups =
            bt_calloc((size_t)store->n_stored, sizeof(*store->groups));
    }
    if (store->groups == NULL) {
        bt_free(groups);
        return bt_hf_fail(hf, BT_ERR_NO_MEMORY, "out of memory");
    }
    store->groups[store->n_groups++] = groups;
    r->groups = groups;
    return BT_OK;
}

static uint64_t groups_of(const bt_hf_t *hf, bt_recipe_t *r)
{
    r->group_elems = ((hf->quant_settings.group == 0) ||
                      (hf->quant_settings.group > r->n_in))
                         ? r->n_in
                         : hf->quant_settings.group;
    return (r->n_in + r->group_elems - 1) / r->group_elems;
}

/* Ends the plan of a tensor with groups: their order, and the type. */
static bt_status_t plan_groups(bt_hf_t *hf, const parts_t *parts,
                               const bt_st_tensor_t *index, bool fits,
                               uint64_t n_groups, uint32_t *type_p,
                               bt_recipe_t *recipe)
{
    bt_status_t status = BT_OK;

    if (!fits) {
        return wrong(hf, parts,
                     "has scales or zeros of a shape that does not fit it");
    }
    if (index != NULL) {
        status = read_groups(hf, parts, index, n_groups, recipe);
    }
    if (status == BT_OK) {
        choose_type(recipe, type_p);
    }
    return status;
}

/* Plans GPTQ and AWQ: qweight, qzeros, scales, and g_idx of the former. */
static bt_status_t plan_columns(bt_hf_t *hf, const parts_t *parts, bool awq,
                                uint32_t *type_p, bt_recipe_t *recipe)
{
    const bt_st_tensor_t *const w = parts->main;
    const uint32_t n = 32 / hf->quant_settings.bits;
    bt_recipe_t r = {.data = w,
                     .layout = awq ? &bt_quant_awq : &bt_quant_gptq,
                     .scale = side(hf, parts, ".scales"),
                     .zero = side(hf, parts, ".qzeros"),
                     .bits = hf->quant_settings.bits,
                     .zero_add = hf->quant_settings.zero_add};
    uint64_t n_groups;

    if ((w->n_dims != 2) || (w->n_elems == 0) ||
        !is_words(w, w->dims[0], w->dims[1]) || (r.scale == NULL) ||
        (r.zero == NULL) || !is_float(r.scale) || (r.scale->n_dims != 2) ||
        __builtin_mul_overflow(w->dims[0], awq ? 1u : n, &r.n_in) ||
        __builtin_mul_overflow(w->dims[1], awq ? n : 1u, &r.n_out)) {
        return wrong(hf, parts, "lacks qzeros or scales, or has wrong ones");
    }
    n_groups = groups_of(hf, &r);
    r.n_scaled = r.n_out;
    *recipe = r;
    return plan_groups(hf, parts, awq ? NULL : side(hf, parts, ".g_idx"),
                       (r.scale->dims[0] == n_groups) &&
                           (r.scale->dims[1] == r.n_out) &&
                           is_words(r.zero, n_groups, (r.n_out + n - 1) / n),
                       n_groups, type_p, recipe);
}

static bt_status_t plan_gptq(bt_hf_t *hf, const parts_t *parts,
                             uint32_t *type_p, bt_recipe_t *recipe)
{
    return plan_columns(hf, parts, false, type_p, recipe);
}

static bt_status_t plan_awq(bt_hf_t *hf, const parts_t *parts, uint32_t *type_p,
                            bt_recipe_t *recipe)
{
    return plan_columns(hf, parts, true, type_p, recipe);
}

/* Reads weight_shape: two whole numbers. */
static bool read_shape(const bt_st_tensor_t *shape, bt_recipe_t *r)
{
    uint64_t dims[2];

    if ((shape == NULL) || (shape->n_elems != 2) ||
        ((shape->dtype != BT_ST_I64) && (shape->dtype != BT_ST_I32))) {
        return false;
    }
    for (uint32_t i = 0; i < 2; i++) {
        const size_t size = bt_st_dtype_bytes(shape->dtype);

        dims[i] = 0;
        memcpy(&dims[i], shape->data + i * size, size);
    }
    r->n_out = dims[0];
    r->n_in = dims[1];
    return (r->n_out > 0) && (r->n_in > 0) && (r->n_out <= INT32_MAX) &&
           (r->n_in <= INT32_MAX);
}

static bt_status_t plan_packed(bt_hf_t *hf, const parts_t *parts,
                               uint32_t *type_p, bt_recipe_t *recipe)
{
    const bt_st_tensor_t *const w = parts->main;
    const uint32_t n = 32 / hf->quant_settings.bits;
    bt_recipe_t r = {.data = w,
                     .layout = &bt_quant_packed,
                     .scale = side(hf, parts, ".weight_scale"),
                     .zero = side(hf, parts, ".weight_zero_point"),
                     .bits = hf->quant_settings.bits};
    uint64_t n_groups;

    if (!read_shape(side(hf, parts, ".weight_shape"), &r) ||
        !is_words(w, r.n_out, (r.n_in + n - 1) / n)) {
        return wrong(hf, parts, "has not the weight_shape that it says");
    }
    n_groups = groups_of(hf, &r);
    *recipe = r;
    return plan_groups(
        hf, parts, side(hf, parts, ".weight_g_idx"),
        (r.scale != NULL) && is_float(r.scale) && (r.scale->n_dims == 2) &&
            (r.scale->dims[0] == r.n_out) && (r.scale->dims[1] == n_groups) &&
            ((r.zero == NULL) ||
             is_words(r.zero, (r.n_out + n - 1) / n, n_groups)),
        n_groups, type_p, recipe);
}

static bt_status_t plan_compressed(bt_hf_t *hf, const parts_t *parts,
                                   uint32_t *type_p, bt_recipe_t *recipe)
{
    return ((parts->main->dtype == BT_ST_I8) ||
            (parts->main->dtype == BT_ST_F8_E4M3))
               ? plan_bytes(hf, parts, type_p, recipe)
               : plan_packed(hf, parts, type_p, recipe);
}

/* Plans MXFP4 of experts: blocks of 32 codes (experts, out, in / 32, 16) and
 * their scales (experts, out, in / 32). */
static bt_status_t plan_mxfp4(bt_hf_t *hf, const parts_t *parts,
                              uint32_t *type_p, bt_recipe_t *recipe)
{
    const bt_st_tensor_t *const w = parts->main;
    const bt_st_tensor_t *const s = side(hf, parts, "_scales");

    if ((w->dtype != BT_ST_U8) || (w->n_dims != 4) || (w->n_elems == 0) ||
        (w->dims[3] != BLOCK / 2)) {
        return wrong(hf, parts, "is not of blocks of 16 bytes of U8");
    }
    if ((s == NULL) || (s->dtype != BT_ST_U8) || (s->n_dims != 3) ||
        (memcmp(s->dims, w->dims, 3 * sizeof(s->dims[0])) != 0)) {
        return wrong(hf, parts, "has not a scale of U8 for each block");
    }
    *recipe = (bt_recipe_t){
        .row = bt_quant_row_mxfp4,
        .data = w,
        .scale = s,
        .n_out = w->dims[0] * w->dims[1],
        .n_in = w->dims[2] * BLOCK,
        .row_bytes = w->dims[2] * (1 + BLOCK / 2),
    };
    *type_p = TYPE_MXFP4;
    return BT_OK;
}

/* ---- settings ---- */

static bt_status_t read_mxfp4(bt_hf_t *hf, const bt_json_node_t *config)
{
    (void)hf;
    (void)config; /* modules_to_not_convert are seen by their tensors */
    return BT_OK;
}

static bt_status_t read_bits(bt_hf_t *hf, const bt_json_node_t *config,
                             const char *bits_name, uint32_t least)
{
    const bt_json_node_t *const bits = setting(hf, config, bits_name);
    const bt_json_node_t *const group = setting(hf, config, "group_size");
    uint64_t n_bits;
    int64_t size = -1;

    if (!bt_json_as_u64(bits, &n_bits) || (n_bits < least) || (n_bits > 8) ||
        ((n_bits & (n_bits - 1)) != 0)) {
        return refuse(hf, bits_name, bits);
    }
    if ((group != NULL) && (!bt_json_as_i64(group, &size) || (size == 0) ||
                            (size < -1) || (size > INT32_MAX))) {
        return refuse(hf, "group_size", group);
    }
    hf->quant_settings.bits = (uint32_t)n_bits;
    hf->quant_settings.group = (size > 0) ? (uint32_t)size : 0;
    return BT_OK;
}

static bt_status_t read_gptq(bt_hf_t *hf, const bt_json_node_t *config)
{
    const bt_json_node_t *const format =
        setting(hf, config, "checkpoint_format");

    if ((format != NULL) && !bt_json_is(format, "gptq") &&
        !bt_json_is(format, "gptq_v2")) {
        return refuse(hf, "checkpoint_format", format);
    }
    hf->quant_settings.zero_add = bt_json_is(format, "gptq_v2") ? 0 : 1;
    return read_bits(hf, config, "bits", 2);
}

static bt_status_t read_awq(bt_hf_t *hf, const bt_json_node_t *config)
{
    const bt_json_node_t *const version = setting(hf, config, "version");
    const bt_json_node_t *const zero = setting(hf, config, "zero_point");
    bt_status_t status;

    if ((version != NULL) && !bt_json_is(version, "gemm") &&
        !bt_json_is(version, "GEMM")) {
        return refuse(hf, "version", version);
    }
    if ((zero != NULL) && (zero->kind != BT_JSON_TRUE)) {
        return refuse(hf, "zero_point", zero);
    }
    status = read_bits(hf, config, "bits", 4);
    return ((status == BT_OK) && (hf->quant_settings.bits != 4))
               ? refuse(hf, "bits", setting(hf, config, "bits"))
               : status;
}

static bt_status_t read_block_size(bt_hf_t *hf, const bt_json_node_t *list)
{
    const bt_json_node_t *at;

    if (list == NULL) {
        return BT_OK;
    }
    if ((list->kind != BT_JSON_ARRAY) || (list->n != 2)) {
        return refuse(hf, "block sizes", list);
    }
    at = bt_json_first(list);
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t size;

        if (!bt_json_as_u64(at, &size) || (size == 0) || (size > INT32_MAX)) {
            return refuse(hf, "a block size of", at);
        }
        hf->quant_settings.block[i] = (uint32_t)size;
        at = bt_json_next(hf->config.doc, at);
    }
    return BT_OK;
}

static bt_status_t read_fp8(bt_hf_t *hf, const bt_json_node_t *config)
{
    const bt_json_node_t *const format = setting(hf, config, "fmt");

    if ((format != NULL) && !bt_json_is(format, "e4m3")) {
        return refuse(hf, "fmt", format);
    }
    return read_block_size(hf, setting(hf, config, "weight_block_size"));
}

/* FBGEMM's: always a scale for each row. */
static bt_status_t read_fbgemm(bt_hf_t *hf, const bt_json_node_t *config)
{
    (void)hf;
    (void)config; /* activation_scale_ub is of activations */
    return BT_OK;
}

static bt_status_t read_modelopt(bt_hf_t *hf, const bt_json_node_t *config)
{
    const bt_json_node_t *const algo = setting(hf, config, "quant_algo");

    return bt_json_is(algo, "FP8") ? BT_OK : refuse(hf, "quant_algo", algo);
}

/* Reads the only scheme of weights; a model with several is refused. */
static bt_status_t read_compressed(bt_hf_t *hf, const bt_json_node_t *config)
{
    static const char *const formats[] = {"pack-quantized", "int-quantized",
                                          "float-quantized", "naive-quantized"};
    const bt_json_node_t *const format = setting(hf, config, "format");
    const bt_json_node_t *const groups = setting(hf, config, "config_groups");
    const bt_json_node_t *const rotations =
        setting(hf, config, "transform_config");
    const bt_json_node_t *weights;
    bool known = false;
    bt_status_t status;

    for (size_t i = 0; i < BT_ARRAY_LEN(formats); i++) {
        known = known || bt_json_is(format, formats[i]);
    }
    if (!known) {
        return refuse(hf, "format", format);
    }
    if (!bt_json_is_kind(groups, BT_JSON_OBJECT) || (groups->n != 1)) {
        return refuse(hf, "config_groups that are not one,", NULL);
    }
    if (bt_json_is_kind(rotations, BT_JSON_OBJECT) && (rotations->n > 0)) {
        return refuse(hf, "transform_config", NULL);
    }
    weights = setting(hf, bt_json_first(groups) + 1, "weights");
    status = read_bits(hf, weights, "num_bits", 4);
    return (status == BT_OK)
               ? read_block_size(hf, setting(hf, weights, "block_structure"))
               : status;
}

static const bt_quant_t methods[] = {
    {"fp8",
     read_fp8,
     {".weight"},
     {".weight_scale_inv", ".weight_scale", ".input_scale",
      ".activation_scale"},
     plan_bytes},
    {"fbgemm_fp8",
     read_fbgemm,
     {".weight"},
     {".weight_scale", ".input_scale_ub"},
     plan_bytes},
    {"modelopt",
     read_modelopt,
     {".weight"},
     {".weight_scale", ".input_scale"},
     plan_bytes},
    {"gptq",
     read_gptq,
     {".qweight"},
     {".qzeros", ".scales", ".g_idx"},
     plan_gptq},
    {"awq", read_awq, {".qweight"}, {".qzeros", ".scales"}, plan_awq},
    {"compressed-tensors",
     read_compressed,
     {".weight_packed", ".weight"},
     {".weight_scale", ".weight_zero_point", ".weight_shape", ".weight_g_idx",
      ".input_scale", ".input_zero_point"},
     plan_compressed},
    {"mxfp4", read_mxfp4, {"_blocks"}, {"_scales"}, plan_mxfp4},
};

bt_status_t bt_quant_read(bt_hf_t *hf)
{
    const bt_json_node_t *const config =
        bt_hf_config(hf, "quantization_config|compression_config");
    const bt_json_node_t *method;

    if (config == NULL) {
        return BT_OK;
    }
    method = setting(hf, config, "quant_method");
    for (size_t i = 0; i < BT_ARRAY_LEN(methods); i++) {
        if (bt_json_is(method, methods[i].method)) {
            hf->quant = &methods[i];
            return methods[i].read(hf, config);
        }
    }
    return refuse(hf, "quant_method", method);
}

/* ---- which part a tensor is ---- */

static bool ends_in(const bt_st_tensor_t *t, const char *ending, size_t *n_p)
{
    const size_t n = strlen(ending);

    if ((t->name.len <= n) ||
        (memcmp(t->name.data + t->name.len - n, ending, n) != 0)) {
        return false;
    }
    *n_p = t->name.len - n;
    return true;
}

/* True for a main tensor. A plain ".weight" may also be in a quantized model,
 * of a layer that was left out. */
static bool is_main(const bt_quant_t *quant, const bt_st_tensor_t *t,
                    size_t *base_p)
{
    for (size_t i = 0;
         (i < BT_ARRAY_LEN(quant->mains)) && (quant->mains[i] != NULL); i++) {
        if (ends_in(t, quant->mains[i], base_p) && !is_float(t)) {
            return true;
        }
    }
    return false;
}

/* True for a side tensor of a main one: without the main one it would be left
 * out silently. */
static bool is_side(const bt_hf_t *hf, const bt_st_tensor_t *t)
{
    const bt_quant_t *const quant = hf->quant;
    size_t base = 0;

    for (size_t i = 0;
         (i < BT_ARRAY_LEN(quant->sides)) && (quant->sides[i] != NULL); i++) {
        if (!ends_in(t, quant->sides[i], &base)) {
            continue;
        }
        for (size_t k = 0;
             (k < BT_ARRAY_LEN(quant->mains)) && (quant->mains[k] != NULL);
             k++) {
            parts_t parts = {.base_len = base};
            const bt_st_tensor_t *main;

            memcpy(parts.base, t->name.data, base);
            main = side(hf, &parts, quant->mains[k]);
            if ((main != NULL) && !is_float(main)) {
                return true;
            }
        }
    }
    return false;
}

/* True for the scale of an FP8 KV cache: --kv-dtype has scales of its own.
 * Source: the names of vLLM's maybe_remap_kv_scale_name(). */
static bool is_cache_scale(const bt_st_tensor_t *t)
{
    static const char *const endings[] = {
        ".self_attn.k_scale", ".self_attn.v_scale", ".self_attn.kv_scale",
        ".self_attn.k_proj.k_scale", ".self_attn.v_proj.v_scale"};
    size_t base;

    for (size_t i = 0; i < BT_ARRAY_LEN(endings); i++) {
        if (ends_in(t, endings[i], &base)) {
            return is_float(t) && (t->n_elems == 1);
        }
    }
    return false;
}

bt_status_t bt_quant_part(bt_hf_t *hf, const bt_st_tensor_t *stored, char *name,
                          bt_quant_part_t *part_p, uint32_t *type_p,
                          bt_recipe_t *recipe)
{
    parts_t parts = {.main = stored};
    bt_status_t status = BT_OK;

    memcpy(name, stored->name.data, stored->name.len);
    name[stored->name.len] = '\0';
    *part_p = BT_QUANT_PLAIN;
    if (hf->quant == NULL) {
        return BT_OK;
    }
    if (is_main(hf->quant, stored, &parts.base_len)) {
        memcpy(parts.base, stored->name.data, parts.base_len);
        status = hf->quant->plan(hf, &parts, type_p, recipe);
        if (status == BT_OK) {
            memcpy(name + parts.base_len, ".weight", sizeof(".weight"));
            *part_p = BT_QUANT_MAIN;
        }
        return status;
    }
    if (is_side(hf, stored) || is_cache_scale(stored)) {
        *part_p = BT_QUANT_SIDE;
    }
    return BT_OK;
}
