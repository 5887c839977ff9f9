/* SPDX-License-Identifier: Apache-2.0 */
/* Hyper-parameters of a dense decoder: the keys of the GGUF specification,
 * under the name of the family. */
#include <math.h>

#include "common/base/assert.h"
#include "inference/model/arch/family.h"
#include "inference/model/arch/keys.h"
#include "inference/model/arch/rope.h"

/* Larger than any model; they keep products of two inside 64 bits. */
#define MAX_WIDTH   (1u << 20)
#define MAX_HEADS   8192u
#define MAX_VOCAB   (1u << 24)
#define MAX_CONTEXT (1u << 24)

/* Keys that change the mathematics in ways the forward pass does not know. */
static bt_status_t check_refused(const bt_keys_t *keys)
{
    static const char *const counts[] = {"expert_count"};
    static const struct {
        const char *name;
        float neutral; /* and 0, which means "not used" */
    } factors[] = {
        {"attention.clamp_kqv", 0.0f},      {"attention.max_alibi_bias", 0.0f},
        {"final_logit_softcapping", 0.0f},  {"logit_scale", 1.0f},
        {"embedding_scale", 1.0f},          {"residual_scale", 1.0f},
        {"rope.scaling.attn_factor", 1.0f},
    };
    char key[BT_KEY_BYTES];
    bool causal = true;
    uint32_t n;
    float f;

    for (size_t i = 0; i < BT_ARRAY_LEN(counts); i++) {
        bt_key_name(keys, counts[i], key);
        if ((bt_gguf_get_u32(keys->gguf, key, &n) == BT_OK) && (n != 0)) {
            return bt_keys_refuse(keys, BT_ERR_UNSUPPORTED,
                                  "key %s is %u; such %s models are not "
                                  "supported",
                                  key, n, keys->prefix);
        }
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(factors); i++) {
        bt_key_name(keys, factors[i].name, key);
        if ((bt_gguf_get_f32(keys->gguf, key, &f) == BT_OK) && (f != 0.0f) &&
            (f != factors[i].neutral)) {
            return bt_keys_refuse(keys, BT_ERR_UNSUPPORTED,
                                  "key %s is %g; such %s models are not "
                                  "supported",
                                  key, (double)f, keys->prefix);
        }
    }
    bt_key_name(keys, "attention.causal", key);
    if ((bt_gguf_get_bool(keys->gguf, key, &causal) == BT_OK) && !causal) {
        return bt_keys_refuse(keys, BT_ERR_UNSUPPORTED,
                              "the model's attention is not causal, which is "
                              "not supported");
    }
    return BT_OK;
}

/* 0 means "not used" in all of them. */
static bt_status_t read_attention(const bt_keys_t *keys, bt_hparams_t *hp)
{
    bt_status_t status;

    hp->attn_scale = 1.0f / sqrtf((float)hp->head_dim);
    status = bt_keys_positive_if(keys, "attention.scale", &hp->attn_scale);
    if (status == BT_OK) {
        status = bt_keys_positive_if(keys, "attn_logit_softcapping",
                                     &hp->attn_soft_cap);
    }
    if (status == BT_OK) {
        status = bt_keys_number_if(keys, "attention.sliding_window", 0,
                                   UINT32_MAX, &hp->attn_window);
    }
    return status;
}

static bt_status_t read_head_dim(const bt_keys_t *keys, bt_hparams_t *hp)
{
    uint32_t value_dim;
    bt_status_t status;

    if (hp->n_heads % hp->n_kv_heads != 0) {
        return bt_keys_refuse(keys, BT_ERR_BAD_FILE,
                              "%u query heads cannot share %u key and value "
                              "heads",
                              hp->n_heads, hp->n_kv_heads);
    }
    hp->head_dim = hp->dim / hp->n_heads;
    if (!bt_keys_have(keys, "attention.key_length") &&
        (hp->dim % hp->n_heads != 0)) {
        return bt_keys_refuse(keys, BT_ERR_BAD_FILE,
                              "a width of %u cannot be split into %u heads",
                              hp->dim, hp->n_heads);
    }
    status = bt_keys_number_if(keys, "attention.key_length", 2,
                               MAX_WIDTH / MAX_HEADS * 8, &hp->head_dim);
    if (status != BT_OK) {
        return status;
    }
    if ((hp->head_dim == 0) || (hp->head_dim % 2 != 0)) {
        return bt_keys_refuse(keys, BT_ERR_UNSUPPORTED,
                              "heads of %u dimensions are not supported: the "
                              "number must be even",
                              hp->head_dim);
    }
    value_dim = hp->head_dim;
    status = bt_keys_number_if(keys, "attention.value_length", 0, UINT32_MAX,
                               &value_dim);
    if ((status == BT_OK) && (value_dim != hp->head_dim)) {
        status = bt_keys_refuse(keys, BT_ERR_UNSUPPORTED,
                                "keys of %u and values of %u dimensions are "
                                "not supported: they must be equal",
                                hp->head_dim, value_dim);
    }
    return status;
}

static bt_status_t read_vocab(const bt_keys_t *keys, bt_hparams_t *hp)
{
    const bt_gguf_tensor_t *const embedding =
        bt_gguf_tensor(keys->gguf, "token_embd.weight");
    uint64_t n_listed = 0;
    uint64_t n_tokens;

    if (embedding == NULL) {
        return bt_keys_refuse(keys, BT_ERR_BAD_FILE,
                              "tensor token_embd.weight is missing from the "
                              "file");
    }
    if (embedding->dims[1] > MAX_VOCAB) {
        return bt_keys_refuse(keys, BT_ERR_BAD_FILE,
                              "a vocabulary of %llu tokens is absurd",
                              (unsigned long long)embedding->dims[1]);
    }
    hp->n_vocab = (uint32_t)embedding->dims[1];
    if ((bt_gguf_array_len(keys->gguf, "tokenizer.ggml.tokens", &n_listed) ==
         BT_OK) &&
        (n_listed > hp->n_vocab)) {
        return bt_keys_refuse(keys, BT_ERR_BAD_FILE,
                              "the file lists %llu tokens, but "
                              "token_embd.weight has only %u rows",
                              (unsigned long long)n_listed, hp->n_vocab);
    }
    if ((n_listed > 0) && (bt_gguf_n_vocab(keys->gguf, &n_tokens) == BT_OK)) {
        hp->n_vocab = (uint32_t)n_tokens;
    }
    return BT_OK;
}

static bt_status_t read_sizes(const bt_keys_t *keys, bt_hparams_t *hp)
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
    bt_status_t status = BT_OK;

    for (size_t i = 0; (status == BT_OK) && (i < BT_ARRAY_LEN(sizes)); i++) {
        status = bt_keys_number(keys, sizes[i].name, 1, sizes[i].max,
                                sizes[i].value_p);
    }
    if (status == BT_OK) {
        hp->n_kv_heads = hp->n_heads;
        status = bt_keys_number_if(keys, "attention.head_count_kv", 1,
                                   hp->n_heads, &hp->n_kv_heads);
    }
    return status;
}

static bt_status_t read_eps(const bt_keys_t *keys, bt_hparams_t *hp)
{
    const char *const name = "attention.layer_norm_rms_epsilon";
    char key[BT_KEY_BYTES];
    const bt_status_t status = bt_keys_positive(keys, name, &hp->norm_eps);

    return (status == BT_ERR_NOT_FOUND)
               ? bt_keys_refuse(keys, BT_ERR_BAD_FILE,
                                "key %s is missing from the file",
                                bt_key_name(keys, name, key))
               : status;
}

bt_status_t bt_decoder_hparams(const bt_arch_t *arch, const bt_gguf_t *gguf,
                               char *why, size_t why_bytes, bt_hparams_t *hp_p)
{
    static bt_status_t (*const readers[])(const bt_keys_t *, bt_hparams_t *) = {
        read_sizes,   read_head_dim, read_attention,
        bt_rope_read, read_eps,      read_vocab};
    const bt_keys_t keys = {gguf, arch->name, why, why_bytes};
    bt_hparams_t hp = {0};
    bt_status_t status = check_refused(&keys);

    for (size_t i = 0; (status == BT_OK) && (i < BT_ARRAY_LEN(readers)); i++) {
        status = readers[i](&keys, &hp);
    }
    if (status == BT_OK) {
        *hp_p = hp;
    }
    return status;
}
