/* SPDX-License-Identifier: Apache-2.0 */
/* The llama architecture:
 *
 *     x = embedding of the tokens
 *     each layer:  x += Wo attention(rope(Wqkv norm(x)))
 *                  x += Wdown (silu(Wgate norm(x)) * Wup norm(x))
 *     logits = Wout norm(x)
 *
 * Source: Touvron et al., "LLaMA: Open and Efficient Foundation Language
 *         Models", section 2.2; key names of the GGUF specification. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "inference/model/model_priv.h"

#define NAME_BYTES 96

#define DEFAULT_ROPE_BASE 10000.0f

/* Larger than any model; they keep products of two inside 64 bits. */
#define MAX_LAYERS  4096u
#define MAX_WIDTH   (1u << 20)
#define MAX_HEADS   8192u
#define MAX_VOCAB   (1u << 24)
#define MAX_CONTEXT (1u << 24)

typedef struct layer {
    float *attn_norm;
    float *attn_sinks; /* (n_heads), NULL: none */
    bt_linear_t qkv;
    bt_weight_t *attn_output;
    float *ffn_norm;
    bt_linear_t gate_up;
    bt_weight_t *ffn_down;
} layer_t;

typedef struct llama {
    uint32_t n_layers;
    layer_t *layers;
    bt_weight_t *embedding;
    bt_weight_t *output; /* NULL: the embedding's matrix again */
    float *output_norm;
    float *cos_sin;

    /* Activations, rows of the batch. All but x are free between layers. */
    float *x;      /* dim: what the layers add to */
    float *x_last; /* dim: the rows of x whose logits are wanted */
    float *a;      /* dim, all heads, or ffn_dim */
    float *b;      /* dim, query + key + value, or gate + up */
    float *part;   /* one part of a linear of several, NULL: there is none */
} llama_t;

/* ---- hyper-parameters ---- */

typedef struct wish {
    const char *key;
    uint32_t min;
    uint32_t max;
    uint32_t *value_p;
} wish_t;

static bt_status_t refuse(char *why, size_t why_bytes, bt_status_t status,
                          const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static bt_status_t refuse(char *why, size_t why_bytes, bt_status_t status,
                          const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(why, why_bytes, fmt, args);
    va_end(args);
    return status;
}

static bt_status_t read_number(const bt_gguf_t *gguf, const wish_t *wish,
                               char *why, size_t why_bytes)
{
    uint32_t value;
    const bt_status_t status = bt_gguf_get_u32(gguf, wish->key, &value);

    if (status == BT_ERR_NOT_FOUND) {
        return refuse(why, why_bytes, BT_ERR_BAD_FILE,
                      "key %s is missing from the file", wish->key);
    }
    if (status != BT_OK) {
        return refuse(why, why_bytes, BT_ERR_BAD_FILE,
                      "key %s is not one whole number", wish->key);
    }
    if ((value < wish->min) || (value > wish->max)) {
        return refuse(why, why_bytes, BT_ERR_BAD_FILE,
                      "key %s is %u; %u to %u are possible", wish->key, value,
                      wish->min, wish->max);
    }
    *wish->value_p = value;
    return BT_OK;
}

static bt_status_t read_positive(const bt_gguf_t *gguf, const char *key,
                                 char *why, size_t why_bytes, float *value_p)
{
    float value;
    const bt_status_t status = bt_gguf_get_f32(gguf, key, &value);

    if (status == BT_ERR_NOT_FOUND) {
        return status;
    }
    if ((status != BT_OK) || !(value > 0.0f) || !isfinite(value)) {
        return refuse(why, why_bytes, BT_ERR_BAD_FILE,
                      "key %s is not a positive number", key);
    }
    *value_p = value;
    return BT_OK;
}

/* Keys that change the mathematics in ways forward() does not know. */
static bt_status_t check_refused(const bt_gguf_t *gguf, char *why,
                                 size_t why_bytes)
{
    static const char *const counts[] = {"llama.expert_count"};
    static const struct {
        const char *key;
        float neutral; /* and 0, which means "not used" */
    } factors[] = {
        {"llama.attention.clamp_kqv", 0.0f},
        {"llama.attention.max_alibi_bias", 0.0f},
        {"llama.final_logit_softcapping", 0.0f},
        {"llama.logit_scale", 1.0f},
        {"llama.embedding_scale", 1.0f},
        {"llama.residual_scale", 1.0f},
        {"llama.rope.scaling.attn_factor", 1.0f},
    };
    bool causal = true;
    uint32_t n;
    float f;

    for (size_t i = 0; i < BT_ARRAY_LEN(counts); i++) {
        if ((bt_gguf_get_u32(gguf, counts[i], &n) == BT_OK) && (n != 0)) {
            return refuse(why, why_bytes, BT_ERR_UNSUPPORTED,
                          "key %s is %u; such llama models are not supported",
                          counts[i], n);
        }
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(factors); i++) {
        if ((bt_gguf_get_f32(gguf, factors[i].key, &f) == BT_OK) &&
            (f != 0.0f) && (f != factors[i].neutral)) {
            return refuse(why, why_bytes, BT_ERR_UNSUPPORTED,
                          "key %s is %g; such llama models are not supported",
                          factors[i].key, (double)f);
        }
    }
    if ((bt_gguf_get_bool(gguf, "llama.attention.causal", &causal) == BT_OK) &&
        !causal) {
        return refuse(why, why_bytes, BT_ERR_UNSUPPORTED,
                      "the model's attention is not causal, which is not "
                      "supported");
    }
    return BT_OK;
}

static bool str_is(bt_gguf_str_t str, const char *text)
{
    size_t i = 0;

    while ((i < str.len) && (text[i] != '\0') && (str.data[i] == text[i])) {
        i++;
    }
    return (i == str.len) && (text[i] == '\0');
}

static bt_status_t read_rope(const bt_gguf_t *gguf, char *why, size_t why_bytes,
                             bt_hparams_t *hp)
{
    bt_gguf_str_t scaling = {.data = "none", .len = 4};
    uint32_t rotated = hp->head_dim;
    float factor = 1.0f;
    bt_status_t status;

    hp->rope_base = DEFAULT_ROPE_BASE;
    status = read_positive(gguf, "llama.rope.freq_base", why, why_bytes,
                           &hp->rope_base);
    if ((status != BT_OK) && (status != BT_ERR_NOT_FOUND)) {
        return status;
    }
    if ((bt_gguf_get_u32(gguf, "llama.rope.dimension_count", &rotated) ==
         BT_OK) &&
        (rotated != hp->head_dim)) {
        return refuse(why, why_bytes, BT_ERR_UNSUPPORTED,
                      "the model rotates %u of %u dimensions of a head; all "
                      "of them are supported",
                      rotated, hp->head_dim);
    }

    hp->rope_scale = 1.0f;
    if ((bt_gguf_get_str(gguf, "llama.rope.scaling.type", &scaling) == BT_OK) &&
        !str_is(scaling, "none") && !str_is(scaling, "linear")) {
        return refuse(why, why_bytes, BT_ERR_UNSUPPORTED,
                      "the model's positions are scaled in the way %.*s; none "
                      "and linear are supported",
                      (scaling.len > 64) ? 64 : (int)scaling.len, scaling.data);
    }
    status =
        read_positive(gguf, "llama.rope.scale_linear", why, why_bytes, &factor);
    if (str_is(scaling, "linear")) {
        status = read_positive(gguf, "llama.rope.scaling.factor", why,
                               why_bytes, &factor);
    }
    if ((status != BT_OK) && (status != BT_ERR_NOT_FOUND)) {
        return status;
    }
    hp->rope_scale = 1.0f / factor;
    return BT_OK;
}

/* 0 means "not used" in all of them. */
static bt_status_t read_attention(const bt_gguf_t *gguf, char *why,
                                  size_t why_bytes, bt_hparams_t *hp)
{
    static const char *const window = "llama.attention.sliding_window";
    const struct {
        const char *key;
        float *value_p;
    } factors[] = {{"llama.attention.scale", &hp->attn_scale},
                   {"llama.attn_logit_softcapping", &hp->attn_soft_cap}};
    float f;

    hp->attn_scale = 1.0f / sqrtf((float)hp->head_dim);
    hp->attn_soft_cap = 0.0f;
    hp->attn_window = 0;
    for (size_t i = 0; i < BT_ARRAY_LEN(factors); i++) {
        const bt_status_t status = bt_gguf_get_f32(gguf, factors[i].key, &f);

        if ((status == BT_ERR_NOT_FOUND) || ((status == BT_OK) && (f == 0))) {
            continue;
        }
        if ((status != BT_OK) || !(f > 0.0f) || !isfinite(f)) {
            return refuse(why, why_bytes, BT_ERR_BAD_FILE,
                          "key %s is not a positive number", factors[i].key);
        }
        *factors[i].value_p = f;
    }
    if (bt_gguf_has(gguf, window)) {
        const wish_t wish = {window, 0, UINT32_MAX, &hp->attn_window};

        return read_number(gguf, &wish, why, why_bytes);
    }
    return BT_OK;
}

static bt_status_t read_head_dim(const bt_gguf_t *gguf, char *why,
                                 size_t why_bytes, bt_hparams_t *hp)
{
    uint32_t value_dim;

    if (hp->n_heads % hp->n_kv_heads != 0) {
        return refuse(why, why_bytes, BT_ERR_BAD_FILE,
                      "%u query heads cannot share %u key and value heads",
                      hp->n_heads, hp->n_kv_heads);
    }
    hp->head_dim = hp->dim / hp->n_heads;
    if (bt_gguf_has(gguf, "llama.attention.key_length")) {
        const wish_t wish = {.key = "llama.attention.key_length",
                             .min = 2,
                             .max = MAX_WIDTH / MAX_HEADS * 8,
                             .value_p = &hp->head_dim};
        const bt_status_t status = read_number(gguf, &wish, why, why_bytes);

        if (status != BT_OK) {
            return status;
        }
    } else if (hp->dim % hp->n_heads != 0) {
        return refuse(why, why_bytes, BT_ERR_BAD_FILE,
                      "a width of %u cannot be split into %u heads", hp->dim,
                      hp->n_heads);
    }
    if ((hp->head_dim == 0) || (hp->head_dim % 2 != 0)) {
        return refuse(why, why_bytes, BT_ERR_UNSUPPORTED,
                      "heads of %u dimensions are not supported: the number "
                      "must be even",
                      hp->head_dim);
    }
    value_dim = hp->head_dim;
    if ((bt_gguf_get_u32(gguf, "llama.attention.value_length", &value_dim) ==
         BT_OK) &&
        (value_dim != hp->head_dim)) {
        return refuse(why, why_bytes, BT_ERR_UNSUPPORTED,
                      "keys of %u and values of %u dimensions are not "
                      "supported: they must be equal",
                      hp->head_dim, value_dim);
    }
    return BT_OK;
}

static bt_status_t read_vocab(const bt_gguf_t *gguf, char *why,
                              size_t why_bytes, bt_hparams_t *hp)
{
    const bt_gguf_tensor_t *const embedding =
        bt_gguf_tensor(gguf, "token_embd.weight");
    uint64_t n_listed = 0;
    uint64_t n_tokens;

    if (embedding == NULL) {
        return refuse(why, why_bytes, BT_ERR_BAD_FILE,
                      "tensor token_embd.weight is missing from the file");
    }
    if (embedding->dims[1] > MAX_VOCAB) {
        return refuse(why, why_bytes, BT_ERR_BAD_FILE,
                      "a vocabulary of %llu tokens is absurd",
                      (unsigned long long)embedding->dims[1]);
    }
    hp->n_vocab = (uint32_t)embedding->dims[1];
    if ((bt_gguf_array_len(gguf, "tokenizer.ggml.tokens", &n_listed) ==
         BT_OK) &&
        (n_listed > hp->n_vocab)) {
        return refuse(why, why_bytes, BT_ERR_BAD_FILE,
                      "the file lists %llu tokens, but token_embd.weight has "
                      "only %u rows",
                      (unsigned long long)n_listed, hp->n_vocab);
    }
    if ((n_listed > 0) && (bt_gguf_n_vocab(gguf, &n_tokens) == BT_OK)) {
        hp->n_vocab = (uint32_t)n_tokens;
    }
    return BT_OK;
}

static bt_status_t llama_hparams(const bt_gguf_t *gguf, char *why,
                                 size_t why_bytes, bt_hparams_t *hp_p)
{
    bt_hparams_t hp = {0};
    const wish_t wishes[] = {
        {"llama.block_count", 1, MAX_LAYERS, &hp.n_layers},
        {"llama.embedding_length", 1, MAX_WIDTH, &hp.dim},
        {"llama.feed_forward_length", 1, MAX_WIDTH, &hp.ffn_dim},
        {"llama.attention.head_count", 1, MAX_HEADS, &hp.n_heads},
        {"llama.context_length", 1, MAX_CONTEXT, &hp.context_tokens},
    };
    bt_status_t status = check_refused(gguf, why, why_bytes);

    for (size_t i = 0; (status == BT_OK) && (i < BT_ARRAY_LEN(wishes)); i++) {
        status = read_number(gguf, &wishes[i], why, why_bytes);
    }
    hp.n_kv_heads = hp.n_heads;
    if ((status == BT_OK) &&
        bt_gguf_has(gguf, "llama.attention.head_count_kv")) {
        const wish_t wish = {"llama.attention.head_count_kv", 1, hp.n_heads,
                             &hp.n_kv_heads};

        status = read_number(gguf, &wish, why, why_bytes);
    }
    if (status == BT_OK) {
        status = read_head_dim(gguf, why, why_bytes, &hp);
    }
    if (status == BT_OK) {
        status = read_attention(gguf, why, why_bytes, &hp);
    }
    if (status == BT_OK) {
        status = read_rope(gguf, why, why_bytes, &hp);
    }
    if (status == BT_OK) {
        const char *const key = "llama.attention.layer_norm_rms_epsilon";

        status = read_positive(gguf, key, why, why_bytes, &hp.rms_eps);
        if (status == BT_ERR_NOT_FOUND) {
            status = refuse(why, why_bytes, BT_ERR_BAD_FILE,
                            "key %s is missing from the file", key);
        }
    }
    if (status == BT_OK) {
        status = read_vocab(gguf, why, why_bytes, &hp);
    }
    if (status != BT_OK) {
        return status;
    }
    *hp_p = hp;
    return BT_OK;
}

/* ---- loading ---- */

/* Optional. */
static bt_status_t load_sinks(bt_loader_t *ld, uint32_t i, layer_t *layer)
{
    const float there = 0.0f;
    bt_attention_t attention = bt_hparams_attention(ld->hp);
    char name[NAME_BYTES];
    bt_status_t status;

    snprintf(name, sizeof(name), "blk.%u.attn_sinks.weight", i);
    if (bt_gguf_tensor(ld->gguf, name) == NULL) {
        return BT_OK;
    }
    attention.sinks = &there;
    status = bt_kernels_check_attention(ld->be->caps, &attention, ld->why,
                                        ld->why_bytes);
    return (status == BT_OK)
               ? bt_loader_vector(ld, name, ld->hp->n_heads, &layer->attn_sinks)
               : status;
}

static bt_status_t load_layer(bt_loader_t *ld, uint32_t i, layer_t *layer)
{
    static const char *const qkv_names[] = {"attn_q", "attn_k", "attn_v"};
    static const char *const gate_up_names[] = {"ffn_gate", "ffn_up"};
    const bt_hparams_t *const hp = ld->hp;
    const uint32_t q_dim = hp->n_heads * hp->head_dim;
    const uint32_t kv_dim = hp->n_kv_heads * hp->head_dim;
    const uint32_t qkv_dims[] = {q_dim, kv_dim, kv_dim};
    const uint32_t gate_up_dims[] = {hp->ffn_dim, hp->ffn_dim};
    char name[NAME_BYTES];
    bt_status_t status;

    snprintf(name, sizeof(name), "blk.%u.attn_norm.weight", i);
    status = bt_loader_vector(ld, name, hp->dim, &layer->attn_norm);
    if (status == BT_OK) {
        status = bt_loader_linear(ld, i, qkv_names, qkv_dims, 3, hp->dim,
                                  &layer->qkv);
    }
    if (status == BT_OK) {
        snprintf(name, sizeof(name), "blk.%u.attn_output.weight", i);
        status =
            bt_loader_matrix(ld, name, hp->dim, q_dim, &layer->attn_output);
    }
    if (status == BT_OK) {
        status = load_sinks(ld, i, layer);
    }
    if (status == BT_OK) {
        snprintf(name, sizeof(name), "blk.%u.ffn_norm.weight", i);
        status = bt_loader_vector(ld, name, hp->dim, &layer->ffn_norm);
    }
    if (status == BT_OK) {
        status = bt_loader_linear(ld, i, gate_up_names, gate_up_dims, 2,
                                  hp->dim, &layer->gate_up);
    }
    if (status == BT_OK) {
        snprintf(name, sizeof(name), "blk.%u.ffn_down.weight", i);
        status =
            bt_loader_matrix(ld, name, hp->dim, hp->ffn_dim, &layer->ffn_down);
    }
    return status;
}

static size_t widest(size_t a, size_t b, size_t c)
{
    const size_t ab = (a > b) ? a : b;

    return (ab > c) ? ab : c;
}

static bt_status_t load_activations(bt_loader_t *ld, llama_t *llama)
{
    const bt_hparams_t *const hp = ld->hp;
    const size_t units = hp->n_heads + 2 * (size_t)hp->n_kv_heads;
    const size_t q_dim = (size_t)hp->n_heads * hp->head_dim;
    const size_t b_dim =
        widest(hp->dim, units * hp->head_dim, 2 * (size_t)hp->ffn_dim);
    const size_t a_dim = widest(hp->dim, q_dim, hp->ffn_dim);
    const size_t rows = (ld->config->max_rows > ld->config->max_logit_rows)
                            ? ld->config->max_rows
                            : ld->config->max_logit_rows;
    bool in_parts = false;
    bt_status_t status = bt_loader_buffer(ld, rows, hp->dim, &llama->x);

    if (status == BT_OK) {
        status = bt_loader_buffer(ld, ld->config->max_logit_rows, hp->dim,
                                  &llama->x_last);
    }
    if (status == BT_OK) {
        status = bt_loader_buffer(ld, rows, a_dim, &llama->a);
    }
    if (status == BT_OK) {
        status = bt_loader_buffer(ld, rows, b_dim, &llama->b);
    }
    for (uint32_t i = 0; i < llama->n_layers; i++) {
        in_parts = in_parts || (llama->layers[i].qkv.n_parts > 1) ||
                   (llama->layers[i].gate_up.n_parts > 1);
    }
    if ((status == BT_OK) && in_parts) {
        status = bt_loader_buffer(ld, rows, widest(q_dim, hp->ffn_dim, 0),
                                  &llama->part);
    }
    return status;
}

static bt_status_t llama_load(bt_loader_t *ld, void **state_p)
{
    const bt_hparams_t *const hp = ld->hp;
    bt_status_t status;
    llama_t *const llama = bt_calloc(1, sizeof(*llama));

    *state_p = llama;
    if (llama != NULL) {
        llama->layers = bt_calloc(hp->n_layers, sizeof(*llama->layers));
    }
    if ((llama == NULL) || (llama->layers == NULL)) {
        return bt_loader_fail(ld, BT_ERR_NO_MEMORY, "out of memory");
    }
    llama->n_layers = hp->n_layers;
    status = bt_loader_first_rows(ld, "token_embd.weight", hp->n_vocab, hp->dim,
                                  &llama->embedding);
    if ((status == BT_OK) &&
        (bt_gguf_tensor(ld->gguf, "output.weight") != NULL)) {
        status = bt_loader_first_rows(ld, "output.weight", hp->n_vocab, hp->dim,
                                      &llama->output);
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < hp->n_layers); i++) {
        status = load_layer(ld, i, &llama->layers[i]);
    }
    if (status == BT_OK) {
        status = bt_loader_vector(ld, "output_norm.weight", hp->dim,
                                  &llama->output_norm);
    }
    if (status == BT_OK) {
        status = bt_loader_rope(ld, &llama->cos_sin);
    }
    if (status == BT_OK) {
        status = load_activations(ld, llama);
    }
    return status;
}

static void llama_free(bt_backend_t *be, void *state)
{
    llama_t *const llama = state;

    if (llama == NULL) {
        return;
    }
    for (uint32_t i = 0; i < llama->n_layers; i++) {
        layer_t *const layer = &llama->layers[i];

        bt_model_buffer_free(be, layer->attn_norm);
        bt_model_buffer_free(be, layer->attn_sinks);
        bt_linear_free(be, &layer->qkv);
        bt_model_weight_free(be, layer->attn_output);
        bt_model_buffer_free(be, layer->ffn_norm);
        bt_linear_free(be, &layer->gate_up);
        bt_model_weight_free(be, layer->ffn_down);
    }
    bt_model_weight_free(be, llama->embedding);
    bt_model_weight_free(be, llama->output);
    bt_model_buffer_free(be, llama->output_norm);
    bt_model_buffer_free(be, llama->cos_sin);
    bt_model_buffer_free(be, llama->x);
    bt_model_buffer_free(be, llama->x_last);
    bt_model_buffer_free(be, llama->a);
    bt_model_buffer_free(be, llama->b);
    bt_model_buffer_free(be, llama->part);
    bt_free(llama->layers);
    bt_free(llama);
}

/* ---- forward ---- */

/* x += Wdown (silu(Wgate norm(x)) * Wup norm(x)); next is read after that. */
static void feed_forward(bt_model_t *model, const bt_forward_t *fwd,
                         const layer_t *layer, float *x, uint32_t n_rows,
                         const bt_weight_t *next)
{
    const bt_hparams_t *const hp = &model->hp;
    const llama_t *const llama = model->state;
    const bt_norm_t norm = {layer->ffn_norm, hp->rms_eps, hp->dim};

    bt_step_norm_linear(model->be, &layer->gate_up, llama->part, x, &norm,
                        n_rows, layer->ffn_down, llama->a, llama->b);
    bt_model_got_on(fwd);
    bt_step_ahead(model->be, next);
    bt_step_silu_matmul_add(model->be, layer->ffn_down, llama->b, n_rows,
                            hp->ffn_dim, hp->dim, llama->a, x);
    bt_model_got_on(fwd);
}

/* K and V of a layer's rows into the cache; their queries stay in llama->b. */
static void store_kv(bt_model_t *model, const bt_forward_t *fwd,
                     const bt_batch_t *batch, uint32_t i, const float *x)
{
    const bt_hparams_t *const hp = &model->hp;
    const llama_t *const llama = model->state;
    const layer_t *const layer = &llama->layers[i];
    const bt_norm_t norm = {layer->attn_norm, hp->rms_eps, hp->dim};
    uint32_t index;
    const bt_kv_view_t kv = bt_model_layer_view(fwd, i, &index);

    bt_step_norm_linear(model->be, &layer->qkv, llama->part, x, &norm,
                        batch->n_rows, layer->attn_output, llama->a, llama->b);
    bt_model_got_on(fwd);
    model->be->ops->rope_store(model->be, llama->b, hp->n_heads, llama->cos_sin,
                               true, batch, &kv, index);
}

/* Heads (n_rows, n_heads * head_dim) of what store_kv() left: llama->a. */
static void attend(bt_model_t *model, const bt_forward_t *fwd,
                   const bt_batch_t *batch, uint32_t i)
{
    const llama_t *const llama = model->state;
    bt_attention_t attention = bt_hparams_attention(&model->hp);
    uint32_t index;
    const bt_kv_view_t kv = bt_model_layer_view(fwd, i, &index);

    attention.sinks = llama->layers[i].attn_sinks;
    model->be->ops->attention(model->be, &attention, llama->b, batch, &kv,
                              index, llama->a);
    bt_model_got_on(fwd);
}

/* x of a layer from its heads; tmp is llama->a or b, whichever heads is not. */
static void finish_layer(bt_model_t *model, const bt_forward_t *fwd, uint32_t i,
                         const float *heads, uint32_t n_rows, float *tmp,
                         float *x)
{
    const llama_t *const llama = model->state;
    const layer_t *const layer = &llama->layers[i];
    const bt_weight_t *const output =
        (llama->output != NULL) ? llama->output : llama->embedding;

    bt_step_ahead(model->be, layer->gate_up.weights[0]);
    bt_step_matmul_add(model->be, layer->attn_output, heads, n_rows,
                       model->hp.dim, tmp, x);
    bt_model_got_on(fwd);
    feed_forward(model, fwd, layer, x, n_rows,
                 (i + 1 < llama->n_layers) ? layer[1].qkv.weights[0] : output);
}

/* Rows that came in when n_layers were done, through these. */
static void catch_up(bt_model_t *model, const bt_forward_t *fwd,
                     const bt_model_late_t *late, uint32_t n_layers)
{
    const llama_t *const llama = model->state;
    float *const x =
        llama->x + ((size_t)fwd->first_row + late->row) * model->hp.dim;

    model->be->ops->embed(model->be, llama->embedding, &late->batch, x);
    for (uint32_t i = 0; i < n_layers; i++) {
        store_kv(model, fwd, &late->batch, i, x);
        attend(model, fwd, &late->batch, i);
        finish_layer(model, fwd, i, llama->a, late->batch.n_rows, llama->b, x);
    }
}

static void llama_forward(bt_model_t *model, bt_batch_t *batch,
                          bt_forward_t *fwd)
{
    const bt_kernels_ops_t *const ops = model->be->ops;
    const bt_hparams_t *const hp = &model->hp;
    const llama_t *const llama = model->state;
    const bt_norm_t out_norm = {llama->output_norm, hp->rms_eps, hp->dim};
    const bt_weight_t *const output =
        (llama->output != NULL) ? llama->output : llama->embedding;
    const uint32_t last = llama->n_layers - 1;
    float *const x = llama->x + (size_t)fwd->first_row * hp->dim;
    bt_backend_t *const be = model->be;
    bt_model_late_t late;

    ops->embed(be, llama->embedding, batch, x);
    for (uint32_t i = 0; i < last; i++) {
        store_kv(model, fwd, batch, i, x);
        bt_model_layers_stored(model, fwd, i + 1);
        attend(model, fwd, batch, i);
        finish_layer(model, fwd, i, llama->a, batch->n_rows, llama->b, x);
        if (bt_model_take_late(model, fwd, i + 1, batch, &late)) {
            catch_up(model, fwd, &late, i + 1);
        }
        bt_model_between_layers(model, fwd, i + 1);
    }
    store_kv(model, fwd, batch, last, x);
    bt_model_layers_stored(model, fwd, last + 1);
    if (batch->n_logit_rows == 0) {
        return; /* the cache is all that was asked for */
    }
    attend(model, fwd, batch, last);
    /* From here on only the rows with logits matter. */
    ops->gather_rows(be, x, batch, hp->dim, llama->x_last);
    ops->gather_rows(be, llama->a, batch, hp->n_heads * hp->head_dim, llama->b);
    finish_layer(model, fwd, last, llama->b, batch->n_logit_rows, llama->a,
                 llama->x_last);
    bt_step_norm_matmul(be, output, llama->x_last, &out_norm,
                        batch->n_logit_rows, llama->a, model->logits);
}

const bt_arch_t bt_arch_llama = {
    .name = "llama",
    .hparams = llama_hparams,
    .load = llama_load,
    .forward = llama_forward,
    .free_state = llama_free,
};
