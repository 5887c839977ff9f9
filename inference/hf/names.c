/* SPDX-License-Identifier: Apache-2.0 */
/* Maps stored tensors to the names that GGUF has for them. */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "inference/hf/hf_priv.h"
#include "inference/hf/quant_rows.h"

#define MAX_OUTPUTS 3 /* tensors made of one stored tensor */
#define EXTRA       2 /* tensors that no file has: factors */
#define TYPE_F32    0u
#define TYPE_F16    1u
#define TYPE_BF16   30u

#define BAICHUAN_2_WORDS 125696u

static bt_status_t unknown(bt_hf_t *hf, const bt_hf_item_t *item)
{
    return bt_hf_fail(
        hf, BT_ERR_UNSUPPORTED,
        "tensor %s has no place in a %s model; its effect would "
        "be missing",
        bt_printable(item->stored->name.data, item->stored->name.len).text,
        hf->family->model_type);
}

bt_status_t bt_hf_wrong(bt_hf_t *hf, const bt_hf_item_t *item, const char *what)
{
    return bt_hf_fail(
        hf, BT_ERR_BAD_FILE, "tensor %s %s",
        bt_printable(item->stored->name.data, item->stored->name.len).text,
        what);
}

/* ---- tables ---- */

/* Reads a number without zeros before it, of at most 6 digits. */
static bool cut_number(const char **at_p, uint32_t *n_p)
{
    const char *at = *at_p;
    uint32_t n = 0;

    while ((*at >= '0') && (*at <= '9') && (at - *at_p < 6)) {
        n = n * 10 + (uint32_t)(*at - '0');
        at++;
    }
    if ((at == *at_p) || ((at - *at_p > 1) && (**at_p == '0'))) {
        return false;
    }
    *at_p = at;
    *n_p = n;
    return true;
}

static bool matches(const char *pattern, const char *name, bt_hf_match_t *match)
{
    size_t n = strcspn(pattern, "#");

    if (pattern[n] == '#') {
        if (strncmp(pattern, name, n) != 0) {
            return false;
        }
        name += n;
        pattern += n + 1;
        if (!cut_number(&name, &match->expert)) {
            return false;
        }
    }
    n = strlen(pattern);
    if ((n > 0) && (pattern[n - 1] == '*')) {
        const char *const rest = name + n - 1;

        if ((strncmp(pattern, name, n - 1) != 0) ||
            ((strcmp(rest, ".weight") != 0) && (strcmp(rest, ".bias") != 0))) {
            return false;
        }
        match->tail = rest;
        return true;
    }
    match->tail = "";
    return strcmp(pattern, name) == 0;
}

static const bt_hf_name_t *find_in(const bt_hf_name_t *table, const char *name,
                                   bt_hf_match_t *match)
{
    for (; (table != NULL) && (table->hf != NULL); table++) {
        if (matches(table->hf, name, match)) {
            return table;
        }
    }
    return NULL;
}

/* "layers.12.rest" → 12 and "rest". */
static bool cut_layer(const bt_hf_family_t *family, const char *name,
                      uint32_t *layer_p, const char **rest_p)
{
    const char *const layers =
        (family->layers != NULL) ? family->layers : "layers.";
    const size_t n = strlen(layers);
    const char *at = name + n;
    uint32_t layer;

    if ((strncmp(name, layers, n) != 0) || !cut_number(&at, &layer) ||
        (*at != '.')) {
        return false;
    }
    *layer_p = layer;
    *rest_p = at + 1;
    return true;
}

/* ---- recipes ---- */

bt_status_t bt_hf_plain_type(bt_hf_t *hf, const bt_hf_item_t *item,
                             uint32_t *type_p)
{
    switch (item->stored->dtype) {
    case BT_ST_F32:
        *type_p = TYPE_F32;
        return BT_OK;
    case BT_ST_F16:
        *type_p = TYPE_F16;
        return BT_OK;
    case BT_ST_BF16:
        *type_p = TYPE_BF16;
        return BT_OK;
    default:
        return bt_hf_fail(
            hf, BT_ERR_UNSUPPORTED,
            "tensor %s has the dtype %s, which is not "
            "supported without a quantization_config "
            "that says what it means",
            bt_printable(item->stored->name.data, item->stored->name.len).text,
            bt_st_dtype_name(item->stored->dtype));
    }
}

/* Sets rows and columns of a tensor that is used as stored: a vector is one row
 * where it is read whole, and rows of one number where its order changes. */
bt_status_t bt_hf_plain_recipe(bt_hf_t *hf, bt_hf_item_t *item)
{
    const bt_st_tensor_t *const s = item->stored;
    bt_status_t status = bt_hf_plain_type(hf, item, &item->type);

    if (status != BT_OK) {
        return status;
    }
    if ((s->n_dims == 0) || (s->n_dims > 2) || (s->n_elems == 0)) {
        return bt_hf_wrong(hf, item, "is neither a vector nor a matrix");
    }
    item->recipe = (bt_recipe_t){
        .row = bt_recipe_row_plain,
        .data = s,
        .n_out = (s->n_dims == 2) ? s->dims[0] : 1,
        .n_in = s->dims[s->n_dims - 1],
    };
    item->recipe.row_bytes = item->recipe.n_in * bt_st_dtype_bytes(s->dtype);
    return BT_OK;
}

static bool is_vector(const bt_hf_item_t *item)
{
    return !item->quantized && (item->stored->n_dims == 1);
}

/* Sets an order of heads; the number of rows must match the heads. */
static bt_status_t set_order(bt_hf_t *hf, bt_hf_item_t *item,
                             const bt_recipe_order_t *order)
{
    bt_recipe_t *const r = &item->recipe;

    if (is_vector(item)) { /* each number is a row */
        r->row_bytes /= r->n_in;
        r->n_out = r->n_in;
        r->n_in = 1;
    }
    if (bt_recipe_order_stored(order) != r->n_out) {
        return bt_hf_wrong(hf, item,
                           "has not the rows that config.json calls for");
    }
    r->order = *order;
    r->n_out = bt_recipe_order_rows(order);
    return BT_OK;
}

bt_recipe_order_t bt_hf_fused_order(const bt_hf_t *hf)
{
    const bt_hf_shape_t *const s = &hf->shape;
    const uint32_t q = s->n_heads / s->n_kv_heads;

    return (bt_recipe_order_t){.head_dim = s->head_dim,
                               .group_heads = q + 2,
                               .n_segments = 3,
                               .segments = {{s->n_heads, q, 0},
                                            {s->n_kv_heads, 1, q},
                                            {s->n_kv_heads, 1, q + 1}}};
}

bt_recipe_order_t bt_hf_halves_order(const bt_hf_t *hf, uint32_t n_heads)
{
    return (bt_recipe_order_t){.head_dim = hf->shape.head_dim,
                               .group_heads = 1,
                               .n_segments = 1,
                               .segments = {{n_heads, 1, 0}},
                               .halves = true};
}

static bt_status_t turn_halves(bt_hf_t *hf, bt_hf_item_t *item,
                               uint32_t n_heads)
{
    const bt_recipe_order_t order = bt_hf_halves_order(hf, n_heads);

    if (!hf->family->turns) {
        return BT_OK;
    }
    if (hf->shape.head_dim % 2 != 0) {
        return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                          "config.json: heads of %u dimensions have no pairs",
                          hf->shape.head_dim);
    }
    return set_order(hf, item, &order);
}

static bt_status_t transpose(bt_hf_t *hf, bt_hf_item_t *item)
{
    bt_recipe_t *const r = &item->recipe;
    const uint64_t n_in = r->n_out;

    if (item->quantized || is_vector(item)) {
        return bt_hf_wrong(hf, item, "is not a matrix of plain numbers");
    }
    r->row = bt_recipe_row_transposed;
    r->n_out = r->n_in;
    r->n_in = n_in;
    r->row_bytes = n_in * bt_st_dtype_bytes(item->stored->dtype);
    return BT_OK;
}

static bt_status_t plus_one(bt_hf_t *hf, bt_hf_item_t *item)
{
    if (!is_vector(item)) {
        return bt_hf_wrong(hf, item, "is not a vector of plain numbers");
    }
    item->recipe.row = bt_recipe_row_plus_one;
    item->recipe.row_bytes = item->recipe.n_in * sizeof(float);
    item->type = TYPE_F32;
    return BT_OK;
}

/* Applies to the vocabulary size of Baichuan 2; the first generation's output
 * is used as stored. */
static bt_status_t unit_rows(bt_hf_t *hf, bt_hf_item_t *item)
{
    if (hf->shape.n_vocab != BAICHUAN_2_WORDS) {
        return BT_OK;
    }
    if (item->quantized || is_vector(item)) {
        return bt_hf_wrong(hf, item, "is not a matrix of plain numbers");
    }
    item->recipe.row = bt_recipe_row_unit;
    item->recipe.row_bytes = item->recipe.n_in * sizeof(float);
    item->type = TYPE_F32;
    return BT_OK;
}

static bt_status_t check_zeros(bt_hf_t *hf, const bt_hf_item_t *item)
{
    for (uint64_t i = 0; i < item->stored->n_elems; i++) {
        if (bt_recipe_number(item->stored, i) != 0.0f) {
            return bt_hf_wrong(hf, item, "is not zero, which is not supported");
        }
    }
    return BT_OK;
}

static bt_status_t apply(bt_hf_t *hf, bt_hf_how_t how, bt_hf_item_t *item)
{
    bt_recipe_order_t order;

    switch (how) {
    case BT_HF_QUERY:
        return turn_halves(hf, item, hf->shape.n_heads);
    case BT_HF_KEY:
        return turn_halves(hf, item, hf->shape.n_kv_heads);
    case BT_HF_PLUS_ONE:
        return plus_one(hf, item);
    case BT_HF_UNIT:
        return unit_rows(hf, item);
    case BT_HF_TRANSPOSE:
        return transpose(hf, item);
    case BT_HF_FUSED:
        order = bt_hf_fused_order(hf);
        return set_order(hf, item, &order);
    default:
        return BT_OK;
    }
}

/* ---- outputs ---- */

/* True when the tensor is used as it is in the file; otherwise it is made. */
static bool is_stored_so(const bt_hf_item_t *item)
{
    return (item->recipe.row == bt_recipe_row_plain) &&
           (item->recipe.order.n_segments == 0);
}

/* Adds the tensor's codes. They take fewer bytes than the tensor, and their
 * number is bounded by that of the tensors. */
static void add_codes(bt_hf_store_t *store, uint64_t i)
{
    bt_gguf_tensor_t *const codes = &store->codes[i];
    bt_recipe_t *const r = &store->code_recipes[i];
    uint32_t type = 0;

    if (bt_quant_codes(&store->recipes[i], &type, r)) {
        *codes = store->tensors[i];
        codes->type = type;
        codes->data = NULL;
        codes->bytes = (size_t)r->n_out * r->row_bytes;
        codes->recipe = r;
        store->tensors[i].codes = codes;
    }
}

bt_status_t bt_hf_add_tensor(bt_hf_t *hf, const bt_hf_item_t *item,
                             const bt_hf_match_t *match, const char *name,
                             size_t len, const uint64_t *dims, uint32_t n_dims)
{
    bt_hf_store_t *const store = hf->store;
    const uint64_t i = store->n_tensors;
    bt_gguf_tensor_t *const t = &store->tensors[i];
    bt_recipe_t *const r = &store->recipes[i];
    uint64_t bytes;
    int n;

    n = match->of_layer
            ? snprintf(store->names[i], BT_HF_NAME_BYTES, "blk.%u.%.*s%s",
                       match->layer, (int)len, name, match->tail)
            : snprintf(store->names[i], BT_HF_NAME_BYTES, "%.*s%s", (int)len,
                       name, match->tail);
    *r = item->recipe;
    if (__builtin_mul_overflow(r->n_out, (uint64_t)r->row_bytes, &bytes)) {
        return bt_hf_wrong(hf, item, "is absurdly large");
    }
    *t = (bt_gguf_tensor_t){
        .name = {.data = store->names[i], .len = (size_t)n},
        .n_dims = n_dims,
        .dims = {1, 1, 1, 1},
        .type = item->type,
        .data = is_stored_so(item) ? item->stored->data : NULL,
        .bytes = bytes,
        .make = bt_recipe_make,
        .recipe = r,
    };
    memcpy(t->dims, dims, n_dims * sizeof(*dims));
    add_codes(store, i);
    store->n_tensors++;
    return BT_OK;
}

/* Adds a vector or a matrix. */
static bt_status_t add(bt_hf_t *hf, const bt_hf_item_t *item,
                       const bt_hf_match_t *match, const char *name, size_t len)
{
    const bt_recipe_t *const r = &item->recipe;
    const bool vector = is_vector(item);
    const uint64_t dims[] = {vector ? r->n_in * r->n_out : r->n_in, r->n_out};

    return bt_hf_add_tensor(hf, item, match, name, len, dims, vector ? 1 : 2);
}

/* Splits a fused matrix into query, key and value. */
static bt_status_t split(bt_hf_t *hf, bt_hf_item_t *item,
                         const bt_recipe_order_t *all,
                         const bt_hf_match_t *match, const char *names)
{
    const uint64_t stored_rows = bt_recipe_order_stored(all);

    if (is_vector(item) || (item->recipe.n_out != stored_rows)) {
        return bt_hf_wrong(hf, item,
                           "has not the rows that config.json calls for");
    }
    for (uint32_t i = 0; i < MAX_OUTPUTS; i++) {
        const size_t n = strcspn(names, "|");
        bt_hf_item_t part = *item;
        bt_status_t status;

        part.recipe.order = (bt_recipe_order_t){
            .head_dim = all->head_dim,
            .group_heads = all->group_heads,
            .n_segments = 1,
            .segments = {all->segments[i]},
            .halves = hf->family->turns && (i < 2),
        };
        part.recipe.n_out = bt_recipe_order_rows(&part.recipe.order);
        status = add(hf, &part, match, names, n);
        if (status != BT_OK) {
            return status;
        }
        names += n + 1;
    }
    return BT_OK;
}

bt_recipe_order_t bt_hf_packed_order(const bt_hf_t *hf)
{
    const bt_hf_shape_t *const s = &hf->shape;

    return (bt_recipe_order_t){
        .head_dim = s->head_dim,
        .group_heads = s->n_heads + 2 * s->n_kv_heads,
        .n_segments = 3,
        .segments = {
            {s->n_heads, s->n_heads, 0},
            {s->n_kv_heads, s->n_kv_heads, s->n_heads},
            {s->n_kv_heads, s->n_kv_heads, s->n_heads + s->n_kv_heads}}};
}

/* Handles lm_head of a model whose output matrix is the embedding's. */
static bool is_tied_head(const bt_hf_t *hf, const bt_hf_name_t *line)
{
    return (line->gguf != NULL) && (strcmp(line->gguf, "output") == 0) &&
           !hf->family->own_head && (hf->shape.tied || hf->family->bare_head);
}

/* Skips @a word if the name begins with it. @return whether it did */
static bool cut(const char **name_p, const char *word)
{
    const size_t n = strlen(word);
    const bool is_there = strncmp(*name_p, word, n) == 0;

    *name_p += is_there ? n : 0;
    return is_there;
}

/* True for tensors of the image encoder, which a language model does not
 * need. */
static bool is_of_images(const bt_hf_t *hf, const char *name)
{
    static const char *const parts[] = {"vision_tower.", "vision_model.",
                                        "multi_modal_projector.",
                                        "multimodal_projector."};

    if (hf->text == NULL) {
        return false;
    }
    (void)cut(&name, "model.");
    for (size_t i = 0; i < BT_ARRAY_LEN(parts); i++) {
        if (cut(&name, parts[i])) {
            return true;
        }
    }
    return false;
}

/* Returns the name without the family's prefix, which may be missing. A
 * multimodal model has another prefix before that, or behind its first part. */
static const char *without_prefix(const bt_hf_t *hf, const char *name)
{
    if (hf->text != NULL) {
        if (cut(&name, "model.language_model.")) {
            return name;
        }
        (void)cut(&name, "language_model.");
    }
    (void)cut(&name,
              (hf->family->prefix != NULL) ? hf->family->prefix : "model.");
    return name;
}

const bt_hf_name_t *bt_hf_line_of(const bt_hf_t *hf, const char *full_name,
                                  bt_hf_match_t *match_p)
{
    const bt_hf_family_t *const f = hf->family;
    const char *const name = without_prefix(hf, full_name);
    const char *rest = name;
    bt_hf_match_t match = {.tail = ""};
    const bt_hf_name_t *line;

    match.of_layer = (f->only_layer != NULL) && cut(&rest, f->only_layer);
    if (!match.of_layer) {
        match.of_layer = cut_layer(f, name, &match.layer, &rest);
    }
    if (match.of_layer && (match.layer >= hf->shape.n_layers)) {
        return NULL;
    }
    line = find_in(match.of_layer ? f->names : f->global_names, rest, &match);
    if ((line == NULL) && !f->own_names) {
        line =
            find_in(match.of_layer ? bt_hf_common_names : bt_hf_common_globals,
                    rest, &match);
    }
    *match_p = match;
    return line;
}

/* True for tensors of layers behind the last one, which draft. */
static bool is_of_nextn(const bt_hf_t *hf, const char *full_name)
{
    const bt_hf_shape_t *const s = &hf->shape;
    const char *rest;
    uint32_t layer;

    return cut_layer(hf->family, without_prefix(hf, full_name), &layer,
                     &rest) &&
           (layer >= s->n_layers) && (layer - s->n_layers < s->n_nextn);
}

static bt_status_t map_item(bt_hf_t *hf, bt_hf_item_t *item)
{
    const bt_hf_name_t *line;
    bt_hf_match_t match;
    bt_status_t status;

    if (is_of_images(hf, item->name) || is_of_nextn(hf, item->name)) {
        return BT_OK;
    }
    line = bt_hf_line_of(hf, item->name, &match);
    if (line == NULL) {
        return unknown(hf, item);
    }
    if ((line->how == BT_HF_SKIP) || is_tied_head(hf, line)) {
        return BT_OK;
    }
    if (line->how == BT_HF_IDS) {
        return bt_hf_add_target_ids(hf, item->stored);
    }
    if (bt_hf_is_of_experts(line->how)) {
        return bt_hf_map_experts(hf, item, line, &match);
    }
    if (!item->quantized) {
        status = bt_hf_plain_recipe(hf, item);
        if (status != BT_OK) {
            return status;
        }
    }
    if (line->how == BT_HF_ZERO) {
        return check_zeros(hf, item);
    }
    if ((line->how == BT_HF_SPLIT) || (line->how == BT_HF_PACK)) {
        const bt_recipe_order_t order = (line->how == BT_HF_SPLIT)
                                            ? bt_hf_fused_order(hf)
                                            : bt_hf_packed_order(hf);

        return split(hf, item, &order, &match, line->gguf);
    }
    status = apply(hf, line->how, item);
    return (status == BT_OK)
               ? add(hf, item, &match, line->gguf, strlen(line->gguf))
               : status;
}

static bt_status_t name_one(bt_hf_t *hf, const bt_st_tensor_t *stored)
{
    bt_hf_item_t item = {.stored = stored};
    bt_quant_part_t part = BT_QUANT_PLAIN;
    bt_status_t status;

    if (stored->name.len >= BT_HF_STORED_BYTES - 16) {
        return bt_hf_wrong(hf, &item, "has an absurdly long name");
    }
    hf->store->spans[hf->store->n_spans++] =
        (bt_gguf_span_t){.data = stored->data, .bytes = stored->bytes};
    status =
        bt_quant_part(hf, stored, item.name, &part, &item.type, &item.recipe);
    if ((status != BT_OK) || (part == BT_QUANT_SIDE)) {
        return status;
    }
    item.quantized = part == BT_QUANT_MAIN;
    return map_item(hf, &item);
}

bt_status_t bt_hf_name_tensors(bt_hf_t *hf)
{
    bt_hf_store_t *const store = hf->store;
    const size_t cap = (size_t)store->n_stored * MAX_OUTPUTS + EXTRA;
    bt_status_t status = BT_OK;

    store->tensors = bt_calloc(cap, sizeof(*store->tensors));
    store->names = bt_calloc(cap, sizeof(*store->names));
    store->recipes = bt_calloc(cap, sizeof(*store->recipes));
    store->codes = bt_calloc(cap, sizeof(*store->codes));
    store->code_recipes = bt_calloc(cap, sizeof(*store->code_recipes));
    store->spans =
        bt_calloc((size_t)store->n_stored + EXTRA, sizeof(*store->spans));
    if ((store->tensors == NULL) || (store->names == NULL) ||
        (store->recipes == NULL) || (store->codes == NULL) ||
        (store->code_recipes == NULL) || (store->spans == NULL)) {
        return bt_hf_fail(hf, BT_ERR_NO_MEMORY, "out of memory for tensors");
    }
    for (uint64_t i = 0; (status == BT_OK) && (i < store->n_stored); i++) {
        status = name_one(hf, store->stored[i]);
    }
    if (status == BT_OK) {
        status = bt_hf_end_experts(hf);
    }
    return (status == BT_OK) ? bt_hf_rope_factors(hf) : status;
}
