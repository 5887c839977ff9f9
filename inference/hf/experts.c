/* SPDX-License-Identifier: Apache-2.0 */
/* Maps tensors of experts. GGUF has one tensor for all experts of a layer; a
 * folder has
 *
 *     experts.0.gate_proj, experts.1.gate_proj …   a matrix for each: stacked
 *     experts.gate_up_proj (experts, 2 out, in)    all, with gate and up fused:
 *                                                  split
 */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "inference/hf/hf_priv.h"
#include "inference/hf/quant_rows.h"

#define TYPE_F32  0u
#define MAX_WIDTH (1u << 20)

/* Names of stacked tensors. */
static const char *const stacked[] = {"ffn_gate_exps", "ffn_up_exps",
                                      "ffn_down_exps"};

#define N_STACKED BT_ARRAY_LEN(stacked)

bool bt_hf_is_of_experts(bt_hf_how_t how)
{
    return how >= BT_HF_EXPERT;
}

static bt_status_t out_of_memory(bt_hf_t *hf)
{
    return bt_hf_fail(hf, BT_ERR_NO_MEMORY, "out of memory for experts");
}

/* ---- a tensor for each expert ---- */

/* Allocates room for the stacks, at the first expert; parts are as many as
 * there are stored tensors at most. */
static bt_status_t reserve(bt_hf_t *hf)
{
    bt_hf_store_t *const store = hf->store;
    const size_t n_stacks = (size_t)hf->shape.n_layers * N_STACKED;
    const size_t n_parts = (size_t)store->n_stored;

    if (store->stacks != NULL) {
        return BT_OK;
    }
    store->parts = bt_calloc(n_parts, sizeof(*store->parts));
    store->code_parts = bt_calloc(n_parts, sizeof(*store->code_parts));
    store->stacks = bt_calloc(n_stacks, sizeof(*store->stacks));
    store->n_stacks = n_stacks;
    return ((store->parts != NULL) && (store->code_parts != NULL) &&
            (store->stacks != NULL))
               ? BT_OK
               : out_of_memory(hf);
}

static bt_recipe_t *parts_of(const bt_hf_store_t *store,
                             const bt_hf_stack_t *stack)
{
    return &store->parts[stack->made.parts - store->parts];
}

/* Begins the stack of a tensor's first expert. */
static bt_status_t begin_stack(bt_hf_t *hf, const bt_hf_item_t *item,
                               const bt_hf_match_t *match, const char *name,
                               bt_hf_stack_t *stack)
{
    bt_hf_store_t *const store = hf->store;
    const uint32_t n = hf->shape.n_experts;
    const uint64_t dims[] = {item->recipe.n_in, item->recipe.n_out, 1};
    const uint64_t at = store->n_tensors;
    bt_status_t status;

    if (n > store->n_stored - store->n_parts) {
        return bt_hf_fail(
            hf, BT_ERR_BAD_FILE,
            "tensor %s: config.json calls for %u such experts, and the folder "
            "has not as many tensors",
            bt_printable(item->stored->name.data, item->stored->name.len).text,
            n);
    }
    status = bt_hf_add_tensor(hf, item, match, name, strlen(name), dims, 3);
    if (status == BT_OK) {
        *stack = (bt_hf_stack_t){
            .made = {.parts = &store->parts[store->n_parts], .n = n},
            .first = item->stored,
            .type = item->type,
            .tensor = at};
        store->n_parts += n;
    }
    return status;
}

/* Makes one type of several: F32. */
static void unify(bt_hf_store_t *store, bt_hf_stack_t *stack,
                  bt_hf_item_t *item)
{
    bt_recipe_t *const parts = parts_of(store, stack);

    if (item->type == stack->type) {
        return;
    }
    for (uint64_t i = 0; i < stack->made.n; i++) {
        if ((stack->type != TYPE_F32) && (parts[i].row != NULL)) {
            bt_recipe_to_f32(&parts[i]);
        }
    }
    if (item->type != TYPE_F32) {
        bt_recipe_to_f32(&item->recipe);
    }
    stack->type = TYPE_F32;
    item->type = TYPE_F32;
}

static bt_status_t put_part(bt_hf_t *hf, bt_hf_item_t *item, uint32_t expert,
                            bt_hf_stack_t *stack)
{
    const bt_gguf_tensor_t *const t = &hf->store->tensors[stack->tensor];
    bt_recipe_t *const part = &parts_of(hf->store, stack)[expert];

    if (part->row != NULL) {
        return bt_hf_wrong(hf, item, "is there under a second name");
    }
    if ((item->recipe.n_in != t->dims[0]) ||
        (item->recipe.n_out != t->dims[1])) {
        return bt_hf_wrong(hf, item,
                           "has another shape than those of other experts");
    }
    unify(hf->store, stack, item);
    *part = item->recipe;
    stack->n_found++;
    return BT_OK;
}

static bt_status_t map_one(bt_hf_t *hf, bt_hf_item_t *item,
                           const bt_hf_name_t *line, const bt_hf_match_t *match)
{
    bt_status_t status = item->quantized ? BT_OK : bt_hf_plain_recipe(hf, item);
    bt_hf_stack_t *stack;
    size_t kind = 0;

    if ((status == BT_OK) && !item->quantized && (item->stored->n_dims != 2)) {
        status = bt_hf_wrong(hf, item, "is not a matrix");
    }
    if ((status == BT_OK) && (match->expert >= hf->shape.n_experts)) {
        status = bt_hf_fail(
            hf, BT_ERR_BAD_FILE,
            "tensor %s is of an expert beyond the %u of config.json",
            bt_printable(item->stored->name.data, item->stored->name.len).text,
            hf->shape.n_experts);
    }
    if (status == BT_OK) {
        status = reserve(hf);
    }
    if (status != BT_OK) {
        return status;
    }
    while (strcmp(stacked[kind], line->gguf) != 0) {
        kind++;
        BT_ASSERT_ALWAYS(kind < N_STACKED); /* the table has no others */
    }
    stack = &hf->store->stacks[match->layer * N_STACKED + kind];
    if (stack->first == NULL) {
        status = begin_stack(hf, item, match, line->gguf, stack);
    }
    return (status == BT_OK) ? put_part(hf, item, match->expert, stack)
                             : status;
}

static bt_status_t refuse_missing(bt_hf_t *hf, const bt_hf_stack_t *stack)
{
    const bt_gguf_str_t name = stack->first->name;
    uint32_t expert = 0;

    while (stack->made.parts[expert].row != NULL) {
        expert++;
    }
    return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                      "expert %u of the %u that config.json calls for is "
                      "missing beside tensor %s",
                      expert, hf->shape.n_experts,
                      bt_printable(name.data, name.len).text);
}

/* Adds the codes of a stack, if all parts have some. */
static void add_codes(bt_hf_store_t *store, bt_hf_stack_t *stack)
{
    bt_gguf_tensor_t *const codes = &store->codes[stack->tensor];
    bt_recipe_t *const parts =
        &store->code_parts[stack->made.parts - store->parts];
    uint32_t type = 0;

    for (uint64_t i = 0; i < stack->made.n; i++) {
        if (!bt_quant_codes(&stack->made.parts[i], &type, &parts[i])) {
            return;
        }
    }
    stack->codes = (bt_recipe_stack_t){.parts = parts, .n = stack->made.n};
    *codes = store->tensors[stack->tensor];
    codes->type = type;
    codes->bytes =
        (size_t)(stack->made.n * parts[0].n_out * parts[0].row_bytes);
    codes->recipe = &stack->codes;
    store->tensors[stack->tensor].codes = codes;
}

static bt_status_t end_stack(bt_hf_t *hf, bt_hf_stack_t *stack)
{
    bt_gguf_tensor_t *const t = &hf->store->tensors[stack->tensor];
    const bt_recipe_t *const part = &stack->made.parts[0];
    uint64_t bytes;

    if (stack->n_found < stack->made.n) {
        return refuse_missing(hf, stack);
    }
    if (__builtin_mul_overflow(part->n_out, (uint64_t)part->row_bytes,
                               &bytes) ||
        __builtin_mul_overflow(bytes, stack->made.n, &bytes)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          "the experts of %.*s are absurdly large",
                          (int)t->name.len, t->name.data);
    }
    t->dims[2] = stack->made.n;
    t->type = stack->type;
    t->data = NULL;
    t->bytes = (size_t)bytes;
    t->make = bt_recipe_stack_make;
    t->recipe = &stack->made;
    t->codes = NULL;
    add_codes(hf->store, stack);
    return BT_OK;
}

bt_status_t bt_hf_end_experts(bt_hf_t *hf)
{
    bt_status_t status = BT_OK;

    for (uint64_t i = 0; (status == BT_OK) && (i < hf->store->n_stacks); i++) {
        if (hf->store->stacks[i].first != NULL) {
            status = end_stack(hf, &hf->store->stacks[i]);
        }
    }
    return status;
}

/* ---- one tensor for all experts ---- */

/* How a tensor for all experts, or of the shared one, is divided. */
typedef struct whole {
    uint64_t n_mats;
    bool is_stack; /* false: the shared expert's, a matrix */
    bool is_bias;  /* each number is a row */
    bool transposed;
    bool turns; /* outputs of gate and up alternate */
} whole_t;

static whole_t whole_of(const bt_hf_t *hf, const bt_hf_name_t *line)
{
    const bool is_stack = strstr(line->gguf, "_exps") != NULL;
    const bool turns = line->how == BT_HF_EXPERTS_TURNS;

    return (whole_t){
        .n_mats = is_stack ? hf->shape.n_experts : 1,
        .is_stack = is_stack,
        .is_bias = strstr(line->gguf, ".bias") != NULL,
        .transposed = turns || (line->how == BT_HF_EXPERTS_TRANSPOSE),
        .turns = turns,
    };
}

static bool fits(const bt_hf_item_t *item, const whole_t *w)
{
    const bt_st_tensor_t *const s = item->stored;
    const uint32_t n_dims = (w->is_stack ? 2u : 1u) + (w->is_bias ? 0u : 1u);

    return (item->quantized ? item->recipe.n_out % w->n_mats == 0
                            : (s->n_dims == n_dims) && (s->n_elems > 0)) &&
           (!w->is_stack || (s->dims[0] == w->n_mats));
}

/* Sets the recipe of a plain tensor, whose rows are the outputs of all
 * experts. */
static bt_status_t set_rows(bt_hf_t *hf, bt_hf_item_t *item, const whole_t *w)
{
    const bt_st_tensor_t *const s = item->stored;
    bt_recipe_t *const r = &item->recipe;

    *r = (bt_recipe_t){.row = bt_recipe_row_plain, .data = s, .n_in = 1};
    if (!w->is_bias) {
        r->row = w->transposed ? bt_recipe_row_transposed : bt_recipe_row_plain;
        r->n_in = s->dims[s->n_dims - (w->transposed ? 2 : 1)];
    }
    r->n_out = s->n_elems / r->n_in;
    r->row_bytes = r->n_in * bt_st_dtype_bytes(s->dtype);
    return bt_hf_plain_type(hf, item, &item->type);
}

/* Adds all rows, or those of a part of a fused tensor. */
static bt_status_t add_rows(bt_hf_t *hf, const bt_hf_item_t *item,
                            const whole_t *w, const bt_hf_match_t *match,
                            const char *name, size_t len)
{
    const bt_recipe_t *const r = &item->recipe;
    const uint64_t width = r->n_out / w->n_mats;
    const uint64_t of_bias[] = {width, w->n_mats};
    const uint64_t of_mats[] = {r->n_in, width, w->n_mats};

    return bt_hf_add_tensor(hf, item, match, name, len,
                            w->is_bias ? of_bias : of_mats,
                            (w->is_stack && !w->is_bias) ? 3 : 2);
}

/* Splits into gate and up. */
static bt_status_t split(bt_hf_t *hf, const bt_hf_item_t *item,
                         const whole_t *w, const bt_hf_match_t *match,
                         const char *names)
{
    const uint64_t both = item->recipe.n_out / w->n_mats;
    const uint32_t width = (uint32_t)(both / 2);
    bt_status_t status = BT_OK;

    if ((both == 0) || (both % 2 != 0) || (both / 2 > MAX_WIDTH)) {
        return bt_hf_wrong(hf, item, "is not two matrices of equal size");
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < 2); i++) {
        const size_t len = strcspn(names, "|");
        bt_hf_item_t part = *item;

        part.recipe.order = (bt_recipe_order_t){
            .head_dim = w->turns ? 1 : width,
            .group_heads = 2,
            .n_segments = 1,
            .segments = {{(uint32_t)w->n_mats * (w->turns ? width : 1), 1, i}},
        };
        part.recipe.n_out = w->n_mats * width;
        status = add_rows(hf, &part, w, match, names, len);
        names += len + 1;
    }
    return status;
}

static bt_status_t map_all(bt_hf_t *hf, bt_hf_item_t *item,
                           const bt_hf_name_t *line, const bt_hf_match_t *match)
{
    const whole_t w = whole_of(hf, line);
    bt_status_t status = BT_OK;

    if (!fits(item, &w)) {
        return bt_hf_wrong(hf, item,
                           "has not the shape that the experts of config.json "
                           "call for");
    }
    if (!item->quantized) {
        status = set_rows(hf, item, &w);
    }
    if (status != BT_OK) {
        return status;
    }
    return (strchr(line->gguf, '|') != NULL)
               ? split(hf, item, &w, match, line->gguf)
               : add_rows(hf, item, &w, match, line->gguf, strlen(line->gguf));
}

bt_status_t bt_hf_map_experts(bt_hf_t *hf, bt_hf_item_t *item,
                              const bt_hf_name_t *line,
                              const bt_hf_match_t *match)
{
    return (line->how == BT_HF_EXPERT) ? map_one(hf, item, line, match)
                                       : map_all(hf, item, line, match);
}
