/* SPDX-License-Identifier: Apache-2.0 */
/* Hyperparameters of a dense decoder: the keys of the GGUF specification, under
 * the name of the family. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/status.h"
#include "inference/model/arch/decoder.h"
#include "inference/model/arch/experts.h"
#include "inference/model/arch/family.h"
#include "inference/model/head.h"

const char *bt_key_name(const bt_keys_t *keys, const char *name, char *key)
{
    snprintf(key, BT_KEY_BYTES, "%s.%s", keys->prefix, name);
    return key;
}

void bt_keys_refuse(bt_keys_t *keys, bt_status_t status, const char *fmt, ...)
{
    va_list args;

    if (keys->status == BT_OK) {
        keys->status = status;
        va_start(args, fmt);
        vsnprintf(keys->why, keys->why_bytes, fmt, args);
        va_end(args);
    }
}

static bool have(const bt_keys_t *keys, const char *name)
{
    char key[BT_KEY_BYTES];

    return bt_gguf_has(keys->gguf, bt_key_name(keys, name, key));
}

void bt_keys_number(bt_keys_t *keys, const char *name, uint32_t min,
                    uint32_t max, uint32_t *value_p)
{
    char key[BT_KEY_BYTES];
    uint32_t value = min;
    const bt_status_t status =
        bt_gguf_get_u32(keys->gguf, bt_key_name(keys, name, key), &value);

    if (status == BT_ERR_NOT_FOUND) {
        bt_keys_refuse(keys, BT_ERR_BAD_FILE, "key %s is missing from the file",
                       key);
    } else if (status != BT_OK) {
        bt_keys_refuse(keys, BT_ERR_BAD_FILE, "key %s is not one whole number",
                       key);
    } else if ((value < min) || (value > max)) {
        bt_keys_refuse(keys, BT_ERR_BAD_FILE,
                       "key %s is %u; %u to %u are possible", key, value, min,
                       max);
    } else {
        *value_p = value;
    }
}

void bt_keys_number_if(bt_keys_t *keys, const char *name, uint32_t min,
                       uint32_t max, uint32_t *value_p)
{
    if (have(keys, name)) {
        bt_keys_number(keys, name, min, max, value_p);
    }
}

void bt_keys_positive_if(bt_keys_t *keys, const char *name, float *value_p)
{
    char key[BT_KEY_BYTES];
    float value;
    const bt_status_t status =
        bt_gguf_get_f32(keys->gguf, bt_key_name(keys, name, key), &value);

    if ((status == BT_ERR_NOT_FOUND) ||
        ((status == BT_OK) && (value == 0.0f))) {
        return;
    }
    if ((status != BT_OK) || !(value > 0.0f) || !isfinite(value)) {
        bt_keys_refuse(keys, BT_ERR_BAD_FILE, "key %s is not a positive number",
                       key);
        return;
    }
    *value_p = value;
}

/* Larger than any model; they keep products of two inside 64 bits. */
#define MAX_WIDTH   (1u << 20)
#define MAX_HEADS   8192u
#define MAX_VOCAB   (1u << 24)
#define MAX_CONTEXT (1u << 24)

/* ---- features that change the mathematics and that a family may lack ---- */

typedef struct refused {
    const char *name;
    float neutral;  /* and 0 or false, which means "not used" */
    unsigned takes; /* families with this bit have it; 0: none */
} refused_t;

static const refused_t refused[] = {
    {"attention.clamp_kqv", 0.0f, BT_TAKES_CLAMP},
    {"attention.max_alibi_bias", 0.0f, BT_TAKES_ALIBI},
    {"attention.temperature_length", 0.0f, 0},
    {"attention.temperature_scale", 0.0f, BT_TAKES_TEMPERATURE},
    {"attention.output_scale", 1.0f, 0},
    {"attention.shared_kv_layers", 0.0f, 0},
    {"attention.q_lora_rank", 0.0f, 0},
    {"attention.kv_lora_rank", 0.0f, 0},
    {"attention.relative_buckets_count", 0.0f, 0},
    {"rope.scaling.alpha", 0.0f, 0},
    {"expert_count", 0.0f, BT_TAKES_EXPERTS},
    {"expert_shared_count", 0.0f, BT_TAKES_SHARED_EXPERT},
    {"expert_shared_feed_forward_length", 0.0f, BT_TAKES_SHARED_EXPERT},
    {"expert_group_count", 1.0f, 0},
    {"expert_group_used_count", 1.0f, 0},
    {"expert_group_scale", 0.0f, 0},
    {"experts_per_group", 0.0f, 0},
    {"moe_every_n_layers", 1.0f, 0},
    {"interleave_moe_layer_step", 1.0f, 0},
    {"moe_latent_size", 0.0f, 0},
    {"n_deepstack_layers", 0.0f, 0},
    {"embedding_length_per_layer_input", 0.0f, 0},
    {"altup.num_inputs", 0.0f, 0},
    {"activation_sparsity_scale", 0.0f, 0},
    {"swiglu_clamp_exp", 0.0f, 0},
    {"rescale_every_n_layers", 0.0f, 0},
    {"ssm.conv_kernel", 0.0f, 0},
    {"decoder_block_count", 0.0f, 0},
    {"swin_norm", 0.0f, 0},
    {"attention.sliding_window", 0.0f, BT_TAKES_WINDOW},
    {"final_logit_softcapping", 0.0f, BT_TAKES_LOGIT_CAP},
    {"logit_scale", 1.0f, BT_TAKES_LOGIT_SCALE},
    {"embedding_scale", 1.0f, BT_TAKES_EMBEDDING_SCALE},
    {"residual_scale", 1.0f, BT_TAKES_RESIDUAL_SCALE},
};

/* Reads a number or a truth value. @return false: it is neither */
static bool value_of(const bt_gguf_t *gguf, const char *key, float *value_p)
{
    uint32_t n;
    bool flag;

    if (bt_gguf_get_f32(gguf, key, value_p) == BT_OK) {
        return true;
    }
    if (bt_gguf_get_u32(gguf, key, &n) == BT_OK) {
        *value_p = (float)n;
        return true;
    }
    if (bt_gguf_get_bool(gguf, key, &flag) == BT_OK) {
        *value_p = flag ? 1.0f : 0.0f;
        return true;
    }
    return false;
}

static void check_refused(bt_keys_t *keys, const bt_family_t *family)
{
    char key[BT_KEY_BYTES];
    bool causal = true;
    float f;

    for (size_t i = 0; i < BT_ARRAY_LEN(refused); i++) {
        bt_key_name(keys, refused[i].name, key);
        if (((family->takes & refused[i].takes) != 0) ||
            !bt_gguf_has(keys->gguf, key)) {
            continue;
        }
        if (!value_of(keys->gguf, key, &f)) {
            bt_keys_refuse(keys, BT_ERR_UNSUPPORTED,
                           "key %s is no single number; such %s models are "
                           "not supported",
                           key, keys->prefix);
        } else if ((f != 0.0f) && (f != refused[i].neutral)) {
            bt_keys_refuse(keys, BT_ERR_UNSUPPORTED,
                           "key %s is %g; such %s models are not "
                           "supported",
                           key, (double)f, keys->prefix);
        }
    }
    if (have(keys, "rope.dimension_sections")) {
        bt_keys_refuse(keys, BT_ERR_UNSUPPORTED,
                       "the model's positions have several sections "
                       "(key %s), which is not supported",
                       bt_key_name(keys, "rope.dimension_sections", key));
    }
    bt_key_name(keys, "attention.causal", key);
    if ((bt_gguf_get_bool(keys->gguf, key, &causal) == BT_OK) && !causal) {
        bt_keys_refuse(keys, BT_ERR_UNSUPPORTED,
                       "the model's attention is not causal, which is "
                       "not supported");
    }
}

/* ---- sizes ---- */

static void read_sizes(bt_keys_t *keys, const bt_family_t *family,
                       bt_hparams_t *hp)
{
    const struct {
        const char *name;
        uint32_t max;
        uint32_t *value_p;
    } sizes[] = {
        {"block_count", BT_MAX_LAYERS, &hp->n_layers},
        {"embedding_length", MAX_WIDTH, &hp->dim},
        {"feed_forward_length", MAX_WIDTH, &hp->ffn_dim},
        {"attention.head_count", MAX_HEADS, &hp->n_heads},
        {"context_length", MAX_CONTEXT, &hp->context_tokens},
    };

    (void)family;
    for (size_t i = 0; i < BT_ARRAY_LEN(sizes); i++) {
        bt_keys_number(keys, sizes[i].name, 1, sizes[i].max, sizes[i].value_p);
    }
    /* They count among the blocks. */
    bt_keys_number_if(keys, "nextn_predict_layers", 0, hp->n_layers - 1,
                      &hp->n_nextn);
    hp->n_layers -= hp->n_nextn;
    hp->n_kv_heads = hp->n_heads;
    bt_keys_number_if(keys, "attention.head_count_kv", 1, hp->n_heads,
                      &hp->n_kv_heads);
}

/* Dimensions of keys and values, of layers with a window too, must be equal. */
static void check_other_dims(bt_keys_t *keys, uint32_t head_dim)
{
    static const char *const names[] = {"attention.value_length",
                                        "attention.key_length_swa",
                                        "attention.value_length_swa"};
    char key[BT_KEY_BYTES];

    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        uint32_t dim = head_dim;

        bt_keys_number_if(keys, names[i], 0, UINT32_MAX, &dim);
        if (dim != head_dim) {
            bt_keys_refuse(keys, BT_ERR_UNSUPPORTED,
                           "keys of %u dimensions and another number, %u (key "
                           "%s), are not supported: they must be equal",
                           head_dim, dim, bt_key_name(keys, names[i], key));
        }
    }
}

static void read_head_dim(bt_keys_t *keys, const bt_family_t *family,
                          bt_hparams_t *hp)
{
    (void)family;
    if (hp->n_heads % hp->n_kv_heads != 0) {
        bt_keys_refuse(keys, BT_ERR_BAD_FILE,
                       "%u query heads cannot share %u key and value heads",
                       hp->n_heads, hp->n_kv_heads);
    }
    hp->head_dim = hp->dim / hp->n_heads;
    if (!have(keys, "attention.key_length") && (hp->dim % hp->n_heads != 0)) {
        bt_keys_refuse(keys, BT_ERR_BAD_FILE,
                       "a width of %u cannot be split into %u heads", hp->dim,
                       hp->n_heads);
    }
    bt_keys_number_if(keys, "attention.key_length", 2,
                      MAX_WIDTH / MAX_HEADS * 8, &hp->head_dim);
    if ((hp->head_dim == 0) || (hp->head_dim % 2 != 0)) {
        bt_keys_refuse(keys, BT_ERR_UNSUPPORTED,
                       "heads of %u dimensions are not supported: the number "
                       "must be even",
                       hp->head_dim);
    }
    check_other_dims(keys, hp->head_dim);
}

static void read_vocab(bt_keys_t *keys, const bt_family_t *family,
                       bt_hparams_t *hp)
{
    const bt_gguf_tensor_t *const embedding =
        bt_gguf_tensor(keys->gguf, "token_embd.weight");
    uint64_t n_listed = 0;
    uint64_t n_tokens;

    if (family->is_eagle3) {
        bt_head_eagle3_read(keys, hp);
        return;
    }
    if (embedding == NULL) {
        bt_keys_refuse(keys, BT_ERR_BAD_FILE,
                       "tensor token_embd.weight is missing from the "
                       "file");
        return;
    }
    if (embedding->dims[1] > MAX_VOCAB) {
        bt_keys_refuse(keys, BT_ERR_BAD_FILE,
                       "a vocabulary of %" PRIu64 " tokens is absurd",
                       embedding->dims[1]);
        return;
    }
    hp->n_vocab = hp->n_words = (uint32_t)embedding->dims[1];
    if ((bt_gguf_array_len(keys->gguf, "tokenizer.ggml.tokens", &n_listed) ==
         BT_OK) &&
        (n_listed > hp->n_vocab)) {
        bt_keys_refuse(keys, BT_ERR_BAD_FILE,
                       "the file lists %" PRIu64 " tokens, but "
                       "token_embd.weight has only %u rows",
                       n_listed, hp->n_vocab);
        return;
    }
    if ((n_listed > 0) && (bt_gguf_n_vocab(keys->gguf, &n_tokens) == BT_OK)) {
        hp->n_vocab = hp->n_words = (uint32_t)n_tokens;
    }
}

/* ---- numbers of the computation ---- */

static void read_eps(bt_keys_t *keys, const bt_family_t *family,
                     bt_hparams_t *hp)
{
    const char *const name = family->layer_norm
                                 ? "attention.layer_norm_epsilon"
                                 : "attention.layer_norm_rms_epsilon";
    char key[BT_KEY_BYTES];

    bt_keys_positive_if(keys, name, &hp->norm_eps);
    if (hp->norm_eps == 0.0f) {
        bt_key_name(keys, name, key);
        bt_keys_refuse(keys, BT_ERR_BAD_FILE,
                       have(keys, name) ? "key %s is not a positive number"
                                        : "key %s is missing from the file",
                       key);
    }
}

/* Reads one truth value per layer, true where it has the window. */
static void read_windowed_list(bt_keys_t *keys, const char *key, uint64_t n,
                               bt_hparams_t *hp)
{
    if (n < hp->n_layers) {
        bt_keys_refuse(keys, BT_ERR_BAD_FILE,
                       "key %s has %" PRIu64 " values for %u layers", key, n,
                       hp->n_layers);
        return;
    }
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        bool has_window = false;

        if (bt_gguf_array_bool(keys->gguf, key, i, &has_window) != BT_OK) {
            bt_keys_refuse(keys, BT_ERR_BAD_FILE,
                           "key %s is no list of truth values", key);
            return;
        }
        if (has_window) {
            bt_layer_add(&hp->windowed, i);
        }
    }
}

static void read_windowed(bt_keys_t *keys, const bt_family_t *family,
                          bt_hparams_t *hp)
{
    const char *const name = "attention.sliding_window_pattern";
    uint32_t period = family->window_period;
    char key[BT_KEY_BYTES];
    uint64_t n;

    if (hp->attn_window == 0) {
        return;
    }
    bt_key_name(keys, name, key);
    if (bt_gguf_array_len(keys->gguf, key, &n) == BT_OK) {
        read_windowed_list(keys, key, n, hp);
        return;
    }
    bt_keys_number_if(keys, name, 0, BT_MAX_LAYERS, &period);
    for (uint32_t i = 0; i < hp->n_layers; i++) {
        if ((period == 0) || (i % period < period - 1)) {
            bt_layer_add(&hp->windowed, i);
        }
    }
}

static void read_attention(bt_keys_t *keys, const bt_family_t *family,
                           bt_hparams_t *hp)
{
    const bool wide = (family->wide_scale_layers != 0) &&
                      (hp->n_layers == family->wide_scale_layers);

    hp->attn_scale = wide ? 1.0f / sqrtf((float)(hp->dim / hp->n_heads))
                          : 1.0f / sqrtf((float)hp->head_dim);
    bt_keys_positive_if(keys, "attention.scale", &hp->attn_scale);
    bt_keys_positive_if(keys, "attn_logit_softcapping", &hp->attn_soft_cap);
    hp->attn_window = family->window;
    bt_keys_number_if(keys, "attention.sliding_window", 0, UINT32_MAX,
                      &hp->attn_window);
    read_windowed(keys, family, hp);
}

static void read_scales(bt_keys_t *keys, const bt_family_t *family,
                        bt_hparams_t *hp)
{
    const char *const parallel = "use_parallel_residual";
    char key[BT_KEY_BYTES];
    bt_status_t status;

    hp->embedding_scale =
        family->scaled_embedding ? sqrtf((float)hp->dim) : 1.0f;
    hp->residual_scale = 1.0f;
    hp->logit_scale = 1.0f;
    bt_keys_positive_if(keys, "embedding_scale", &hp->embedding_scale);
    bt_keys_positive_if(keys, "residual_scale", &hp->residual_scale);
    bt_keys_positive_if(keys, "logit_scale", &hp->logit_scale);
    bt_keys_positive_if(keys, "final_logit_softcapping", &hp->logit_soft_cap);
    bt_keys_positive_if(keys, "attention.clamp_kqv", &hp->clamp_qkv);
    if (family->logit_scale_divides) {
        hp->logit_scale = 1.0f / hp->logit_scale;
    }
    hp->parallel = family->parallel || family->parallel_key;
    if (family->parallel_key) {
        status = bt_gguf_get_bool(keys->gguf, bt_key_name(keys, parallel, key),
                                  &hp->parallel);
        if ((status != BT_OK) && (status != BT_ERR_NOT_FOUND)) {
            bt_keys_refuse(keys, BT_ERR_BAD_FILE, "key %s is not a truth value",
                           key);
        }
    }
}

bt_status_t bt_decoder_hparams(const bt_family_t *family, const bt_gguf_t *gguf,
                               char *why, size_t why_bytes, bt_hparams_t *hp_p)
{
    static void (*const readers[])(bt_keys_t *, const bt_family_t *,
                                   bt_hparams_t *) = {
        read_sizes,  read_head_dim, read_attention, bt_positions_read,
        read_scales, read_eps,      read_vocab,     bt_experts_read};
    bt_keys_t keys = {gguf, family->name, BT_OK, why, why_bytes};
    bt_hparams_t hp = {0};

    check_refused(&keys, family);
    for (size_t i = 0; (keys.status == BT_OK) && (i < BT_ARRAY_LEN(readers));
         i++) {
        readers[i](&keys, family, &hp);
    }
    if (keys.status == BT_OK) {
        *hp_p = hp;
    }
    return keys.status;
}
