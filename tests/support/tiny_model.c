/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "inference/gguf/gguf.h"
#include "tests/support/tiny_family.h"
#include "tests/support/tiny_quant.h"
#include "tests/support/tiny_writer.h"

#define ALIGNMENT         32
#define HEAD_LIMIT        ((size_t)256 << 20) /* bytes of metadata and table */
#define MAX_LAYER_TENSORS 24u
#define MAX_OTHER_TENSORS 16u

/* Value types of the format. */
enum { U32 = 4, I32 = 5, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9 };

#define I64 27u /* type of a tensor */

/* Kinds of tokens, as tokenizer.ggml.token_type numbers them. */
enum { TOKEN_NORMAL = 1, TOKEN_CONTROL = 3, TOKEN_UNUSED = 5 };

#define LOUD 64.0f /* how much larger weights of rows without a token are */

static const char *const specials[] = {"<|endoftext|>", "<|im_start|>",
                                       "<|im_end|>"};

/* In order of rank; \xC4\xA0 is the byte alphabet's letter for a space. */
#define SP "\xC4\xA0"
static const char *const merges[] = {
    SP " t", SP " a", "h e", "i n", "r e",  "o n",     SP "t he", "e r",
    SP " s", "a t",   "n d", "o r", "in g", SP "a nd", SP " i",   SP " o",
};

static const char *const chat_template =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

bt_tiny_model_t bt_tiny_model_default(void)
{
    const bt_tiny_model_t model = {.n_layers = 2,
                                   .dim = 64,
                                   .n_heads = 4,
                                   .n_kv_heads = 2,
                                   .ffn_dim = 128,
                                   .n_vocab = 288,
                                   .context_tokens = 512,
                                   .mixed_type = BT_TINY_SAME_TYPE,
                                   .up_type = BT_TINY_SAME_TYPE,
                                   .rope_base = 10000.0f,
                                   .seed = 1,
                                   .architecture = "llama"};

    return model;
}

uint32_t bt_tiny_model_min_vocab(void)
{
    return (uint32_t)(BT_ARRAY_LEN(specials) + 256 + BT_ARRAY_LEN(merges));
}

static uint32_t head_dim(const bt_tiny_model_t *m)
{
    return (m->head_dim != 0) ? m->head_dim : m->dim / m->n_heads;
}

/* Of a head, those that turn. */
static uint32_t rope_dims(const bt_tiny_model_t *m)
{
    return (m->rope_dims != 0) ? m->rope_dims : head_dim(m);
}

static bool is_eagle3(const bt_tiny_model_t *m)
{
    return strcmp(m->architecture, "eagle3") == 0;
}

/* Inputs of queries, keys and values. */
static uint64_t attn_in(const bt_tiny_model_t *m)
{
    return (is_eagle3(m) ? 2 : 1) * (uint64_t)m->dim;
}

/* Of token_embd and output. */
static uint32_t n_rows(const bt_tiny_model_t *m)
{
    return m->n_vocab + m->n_unused + m->n_padding;
}

static void put_u32(bt_strbuf_t *buf, uint32_t value)
{
    bt_strbuf_append(buf, &value, sizeof(value));
}

static void put_u64(bt_strbuf_t *buf, uint64_t value)
{
    bt_strbuf_append(buf, &value, sizeof(value));
}

static void put_str(bt_strbuf_t *buf, const char *text)
{
    put_u64(buf, strlen(text));
    bt_strbuf_puts(buf, text);
}

static void put_key(bt_tiny_writer_t *w, const char *key, uint32_t type)
{
    put_str(&w->head, key);
    put_u32(&w->head, type);
    w->n_kvs++;
}

static void put_array_key(bt_tiny_writer_t *w, const char *key, uint32_t type,
                          uint64_t n)
{
    put_key(w, key, ARRAY);
    put_u32(&w->head, type);
    put_u64(&w->head, n);
}

void bt_tiny_kv_u32(bt_tiny_writer_t *w, const char *key, uint32_t value)
{
    put_key(w, key, U32);
    put_u32(&w->head, value);
}

static void kv_f32(bt_tiny_writer_t *w, const char *key, float value)
{
    put_key(w, key, F32);
    bt_strbuf_append(&w->head, &value, sizeof(value));
}

static void kv_bool(bt_tiny_writer_t *w, const char *key, bool value)
{
    const uint8_t byte = value ? 1 : 0;

    put_key(w, key, BOOL);
    bt_strbuf_append(&w->head, &byte, 1);
}

static void kv_str(bt_tiny_writer_t *w, const char *key, const char *value)
{
    put_key(w, key, STRING);
    put_str(&w->head, value);
}

/* Key "ARCHITECTURE.name". */
const char *bt_tiny_arch_key(const bt_tiny_writer_t *w, char *key,
                             const char *name)
{
    snprintf(key, NAME_BYTES, "%s.%s", w->model->architecture, name);
    return key;
}

/* Numbers apart by commas. */
static void put_list(bt_tiny_writer_t *w, const char *key, const char *text)
{
    uint64_t n = 1;
    char *end;

    for (const char *at = text; *at != '\0'; at++) {
        n += (*at == ',') ? 1 : 0;
    }
    put_array_key(w, key, I32, n);
    for (uint64_t i = 0; i < n; i++) {
        put_u32(&w->head, (uint32_t)strtoul(text, &end, 10));
        text = end + 1;
    }
}

static void put_own_key(bt_tiny_writer_t *w, const bt_tiny_key_t *own)
{
    const size_t n = strlen(own->value);
    char key[NAME_BYTES];

    if (strncmp(own->name, "general.", strlen("general.")) == 0) {
        snprintf(key, sizeof(key), "%s", own->name);
    } else {
        bt_tiny_arch_key(w, key, own->name);
    }
    switch (own->type) {
    case 'u':
        bt_tiny_kv_u32(w, key, (uint32_t)strtoul(own->value, NULL, 10));
        break;
    case 'f':
        kv_f32(w, key, strtof(own->value, NULL));
        break;
    case 'b':
        kv_bool(w, key, strcmp(own->value, "true") == 0);
        break;
    case 'l':
        put_list(w, key, own->value);
        break;
    case 'p':
        put_array_key(w, key, BOOL, n);
        for (size_t i = 0; i < n; i++) {
            const uint8_t byte = (own->value[i] == '1') ? 1 : 0;

            bt_strbuf_append(&w->head, &byte, 1);
        }
        break;
    default:
        kv_str(w, key, own->value);
        break;
    }
}

static void put_hparams(bt_tiny_writer_t *w)
{
    const bt_tiny_model_t *const m = w->model;
    char key[NAME_BYTES];

    kv_str(w, "general.architecture", m->architecture);
    kv_str(w, "general.name", "baton tiny");
    bt_tiny_kv_u32(w, "general.alignment", ALIGNMENT);
    bt_tiny_kv_u32(w, bt_tiny_arch_key(w, key, "block_count"), m->n_layers);
    bt_tiny_kv_u32(w, bt_tiny_arch_key(w, key, "context_length"),
                   m->context_tokens);
    bt_tiny_kv_u32(w, bt_tiny_arch_key(w, key, "embedding_length"), m->dim);
    bt_tiny_kv_u32(w, bt_tiny_arch_key(w, key, "feed_forward_length"),
                   m->ffn_dim);
    bt_tiny_kv_u32(w, bt_tiny_arch_key(w, key, "attention.head_count"),
                   m->n_heads);
    bt_tiny_kv_u32(w, bt_tiny_arch_key(w, key, "attention.head_count_kv"),
                   m->n_kv_heads);
    kv_f32(w,
           bt_tiny_arch_key(w, key,
                            w->family->layer_norm
                                ? "attention.layer_norm_epsilon"
                                : "attention.layer_norm_rms_epsilon"),
           1e-5f);
    if (m->head_dim != 0) {
        bt_tiny_kv_u32(w, bt_tiny_arch_key(w, key, "attention.key_length"),
                       m->head_dim);
        bt_tiny_kv_u32(w, bt_tiny_arch_key(w, key, "attention.value_length"),
                       m->head_dim);
    }
    kv_f32(w, bt_tiny_arch_key(w, key, "rope.freq_base"), m->rope_base);
    bt_tiny_kv_u32(w, bt_tiny_arch_key(w, key, "rope.dimension_count"),
                   rope_dims(m));
    bt_tiny_kv_u32(w, bt_tiny_arch_key(w, key, "vocab_size"), n_rows(m));
    for (uint32_t i = 0; i < m->n_keys; i++) {
        put_own_key(w, &m->keys[i]);
    }
    if (m->nextn) {
        bt_tiny_kv_u32(w, bt_tiny_arch_key(w, key, "nextn_predict_layers"), 1);
    }
    if (m->rope_scaling != NULL) {
        kv_str(w, bt_tiny_arch_key(w, key, "rope.scaling.type"),
               m->rope_scaling);
    }
    bt_tiny_put_experts(w);
    if (m->sliding_window > 0) {
        bt_tiny_kv_u32(w, bt_tiny_arch_key(w, key, "attention.sliding_window"),
                       m->sliding_window);
    }
    if (m->attn_soft_cap > 0) {
        kv_f32(w, bt_tiny_arch_key(w, key, "attn_logit_softcapping"),
               m->attn_soft_cap);
    }
    if (m->attn_scale > 0) {
        kv_f32(w, bt_tiny_arch_key(w, key, "attention.scale"), m->attn_scale);
    }
}

/* The printable letter that stands for a byte: itself where it is printable
 * Latin-1, else the next of U+0100 ... (GPT-2's bytes_to_unicode). Ids follow
 * the alphabet's order: first the printable ones, then the others. */
static bool is_printable(unsigned byte)
{
    return ((byte >= 0x21) && (byte <= 0x7E)) ||
           ((byte >= 0xA1) && (byte <= 0xFF) && (byte != 0xAD));
}

static void put_letter(bt_strbuf_t *buf, unsigned code)
{
    char utf8[3] = "";

    if (code < 0x80) {
        utf8[0] = (char)code;
    } else {
        utf8[0] = (char)(0xC0u | (code >> 6));
        utf8[1] = (char)(0x80u | (code & 0x3Fu));
    }
    put_str(buf, utf8);
}

static void put_byte_tokens(bt_strbuf_t *buf)
{
    unsigned next = 0x100;

    for (unsigned byte = 0; byte < 256; byte++) {
        if (is_printable(byte)) {
            put_letter(buf, byte);
        }
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        if (!is_printable(byte)) {
            put_letter(buf, next++);
        }
    }
}

static void put_merged_token(bt_strbuf_t *buf, const char *merge)
{
    const char *const space = strchr(merge, ' ');
    const size_t first = (size_t)(space - merge);

    put_u64(buf, strlen(merge) - 1);
    bt_strbuf_append(buf, merge, first);
    bt_strbuf_puts(buf, space + 1);
}

/* True for the last two tokens of a model that thinks. */
static bool is_mark(const bt_tiny_model_t *model, uint32_t id)
{
    return model->thinks && (id < model->n_vocab) && (id + 2 >= model->n_vocab);
}

static void put_vocabulary(bt_tiny_writer_t *w)
{
    const uint32_t n_vocab = w->model->n_vocab;
    const uint32_t n_listed = n_vocab + w->model->n_unused;
    const char *const own = w->model->chat_template;
    char filler[16];

    kv_str(w, "tokenizer.ggml.model", "gpt2");
    kv_str(w, "tokenizer.ggml.pre", "smollm");
    put_array_key(w, "tokenizer.ggml.tokens", STRING, n_listed);
    for (size_t i = 0; i < BT_ARRAY_LEN(specials); i++) {
        put_str(&w->head, specials[i]);
    }
    put_byte_tokens(&w->head);
    for (size_t i = 0; i < BT_ARRAY_LEN(merges); i++) {
        put_merged_token(&w->head, merges[i]);
    }
    for (uint32_t i = bt_tiny_model_min_vocab(); i < n_vocab; i++) {
        snprintf(filler, sizeof(filler), "w%u", i - bt_tiny_model_min_vocab());
        put_str(&w->head, !is_mark(w->model, i) ? filler
                          : (i + 2 == n_vocab)  ? "<think>"
                                                : "</think>");
    }
    for (uint32_t i = n_vocab; i < n_listed; i++) {
        snprintf(filler, sizeof(filler), "[PAD%u]", i);
        put_str(&w->head, filler);
    }

    put_array_key(w, "tokenizer.ggml.token_type", I32, n_listed);
    for (uint32_t i = 0; i < n_listed; i++) {
        put_u32(&w->head, ((i < BT_ARRAY_LEN(specials)) || is_mark(w->model, i))
                              ? TOKEN_CONTROL
                          : (i < n_vocab) ? TOKEN_NORMAL
                                          : TOKEN_UNUSED);
    }

    put_array_key(w, "tokenizer.ggml.merges", STRING, BT_ARRAY_LEN(merges));
    for (size_t i = 0; i < BT_ARRAY_LEN(merges); i++) {
        put_str(&w->head, merges[i]);
    }
    bt_tiny_kv_u32(w, "tokenizer.ggml.bos_token_id", 1);
    bt_tiny_kv_u32(w, "tokenizer.ggml.eos_token_id", 2);
    bt_tiny_kv_u32(w, "tokenizer.ggml.unknown_token_id", 0);
    bt_tiny_kv_u32(w, "tokenizer.ggml.padding_token_id", 2);
    kv_bool(w, "tokenizer.ggml.add_bos_token", false);
    kv_bool(w, "tokenizer.ggml.add_space_prefix", false);
    if ((own == NULL) || (own[0] != '\0')) {
        kv_str(w, "tokenizer.chat_template",
               (own != NULL) ? own : chat_template);
    }
    if (w->model->sampling) {
        kv_f32(w, "general.sampling.temp", 0.6f);
        bt_tiny_kv_u32(w, "general.sampling.top_k", 20);
        kv_f32(w, "general.sampling.top_p", 0.9f);
        kv_f32(w, "general.sampling.min_p", 2.0f);
        kv_f32(w, "general.sampling.penalty_repeat", 1.125f);
    }
}

bt_tiny_tensor_t *bt_tiny_add_tensor(bt_tiny_writer_t *w, uint32_t type,
                                     uint64_t n_in, uint64_t n_out)
{
    bt_tiny_tensor_t *const t = &w->tensors[w->n_tensors++];

    t->type = type;
    t->n_dims = 2;
    t->n_mats = 1;
    t->n_in = n_in;
    t->n_out = n_out;
    /* Keeps the variance of what passes through, a little more: so that the
     * next token depends visibly on every earlier one. */
    t->reach = 1.5f * sqrtf(3.0f / (float)n_in);
    return t;
}

/* A row for every token, and those without. */
static bt_tiny_tensor_t *add_words(bt_tiny_writer_t *w)
{
    const bt_tiny_model_t *const m = w->model;
    bt_tiny_tensor_t *const t =
        bt_tiny_add_tensor(w, m->embd_type, m->dim, n_rows(m));

    t->loud = (n_rows(m) > m->n_vocab) ? m->n_vocab : 0;
    return t;
}

bt_tiny_tensor_t *bt_tiny_add_vector(bt_tiny_writer_t *w, uint64_t n,
                                     float center, float reach)
{
    bt_tiny_tensor_t *const t = bt_tiny_add_tensor(w, 0 /* F32 */, n, 1);

    t->n_dims = 1;
    t->center = center;
    t->reach = reach;
    return t;
}

/* "blk.LAYER.NAME.KIND" */
void bt_tiny_name_part(bt_tiny_tensor_t *t, uint32_t layer, const char *name,
                       const char *kind)
{
    snprintf(t->name, sizeof(t->name), "blk.%u.%s.%s", layer, name, kind);
}

static void add_norm(bt_tiny_writer_t *w, uint32_t layer, const char *name,
                     uint64_t n)
{
    const bt_tiny_family_t *const f = w->family;

    if (f->bare_norms) {
        return;
    }
    bt_tiny_name_part(bt_tiny_add_vector(w, n, 1.0f, 0.3f), layer, name,
                      "weight");
    if (f->layer_norm && !f->no_norm_bias) {
        bt_tiny_name_part(bt_tiny_add_vector(w, n, 0.0f, 0.3f), layer, name,
                          "bias");
    }
}

void bt_tiny_add_matrix(bt_tiny_writer_t *w, uint32_t layer, const char *name,
                        uint32_t type, uint64_t n_in, uint64_t n_out, bool bias)
{
    bt_tiny_name_part(bt_tiny_add_tensor(w, type, n_in, n_out), layer, name,
                      "weight");
    if (bias) {
        bt_tiny_name_part(bt_tiny_add_vector(w, n_out, 0.0f, 0.5f), layer, name,
                          "bias");
    }
}

static void add_attention(bt_tiny_writer_t *w, uint32_t layer, uint32_t mixed)
{
    const bt_tiny_family_t *const f = w->family;
    const bt_tiny_model_t *const m = w->model;
    const uint64_t q_dim = (uint64_t)head_dim(m) * m->n_heads;
    const uint64_t kv_dim = (uint64_t)head_dim(m) * m->n_kv_heads;
    const bool qkv_bias = f->qkv_bias || m->biases;
    const bool other_bias = f->other_bias || m->biases;

    if (f->fused) {
        bt_tiny_add_matrix(w, layer, "attn_qkv", m->type, attn_in(m),
                           q_dim + 2 * kv_dim, qkv_bias);
    } else {
        bt_tiny_add_matrix(w, layer, "attn_q", m->type, attn_in(m), q_dim,
                           qkv_bias);
        bt_tiny_add_matrix(w, layer, "attn_k", m->type, attn_in(m), kv_dim,
                           qkv_bias);
        bt_tiny_add_matrix(w, layer, "attn_v", mixed, attn_in(m), kv_dim,
                           qkv_bias);
    }
    if (f->qk_norm != 0) {
        const bool all = f->qk_norm == 2;

        bt_tiny_name_part(
            bt_tiny_add_vector(w, all ? q_dim : head_dim(m), 1.0f, 0.3f), layer,
            "attn_q_norm", "weight");
        bt_tiny_name_part(
            bt_tiny_add_vector(w, all ? kv_dim : head_dim(m), 1.0f, 0.3f),
            layer, "attn_k_norm", "weight");
    }
    bt_tiny_add_matrix(w, layer, "attn_output", m->type, q_dim, m->dim,
                       other_bias);
    if (m->attn_sinks) {
        bt_tiny_name_part(bt_tiny_add_vector(w, m->n_heads, 0.5f, 1.5f), layer,
                          "attn_sinks", "weight");
    }
}

static void add_layer(bt_tiny_writer_t *w, uint32_t layer)
{
    const bt_tiny_family_t *const f = w->family;
    const bt_tiny_model_t *const m = w->model;
    const uint32_t mixed =
        (m->mixed_type == BT_TINY_SAME_TYPE) ? m->type : m->mixed_type;
    const bool fused = f->fused && !f->plain_ffn;
    const bool other_bias = f->other_bias || m->biases;

    if (!f->no_norms_before) {
        add_norm(w, layer, "attn_norm", m->dim);
    }
    if (m->second_norm || is_eagle3(m)) {
        add_norm(w, layer, "attn_norm_2", m->dim);
    }
    add_attention(w, layer, mixed);
    if (f->norms_after) {
        add_norm(w, layer, "post_attention_norm", m->dim);
        add_norm(w, layer, "post_ffw_norm", m->dim);
    }
    if (!f->no_norms_before && !f->one_norm) {
        add_norm(w, layer,
                 f->ffn_norm_behind_attention ? "post_attention_norm"
                                              : "ffn_norm",
                 m->dim);
    }
    if ((m->n_experts > 0) && (layer >= m->n_dense)) {
        bt_tiny_add_experts(w, layer, mixed);
        return;
    }
    if (!f->plain_ffn && !fused) {
        bt_tiny_add_matrix(w, layer, "ffn_gate", m->type, m->dim, m->ffn_dim,
                           other_bias);
    }
    bt_tiny_add_matrix(w, layer, "ffn_up", m->type, m->dim,
                       fused ? 2 * (uint64_t)m->ffn_dim : m->ffn_dim,
                       other_bias);
    bt_tiny_add_matrix(w, layer, "ffn_down", mixed, m->ffn_dim, m->dim,
                       other_bias);
}

static void add_factors(bt_tiny_writer_t *w, const char *name)
{
    snprintf(bt_tiny_add_vector(w, rope_dims(w->model) / 2, 4.0f, 3.0f)->name,
             NAME_BYTES, "%s", name);
}

static void add_global_norm(bt_tiny_writer_t *w, const char *name)
{
    const bt_tiny_family_t *const f = w->family;
    const uint32_t dim = w->model->dim;

    if (f->bare_norms) {
        return;
    }
    snprintf(bt_tiny_add_vector(w, dim, 1.0f, 0.3f)->name, NAME_BYTES,
             "%s.weight", name);
    if (f->layer_norm && !f->no_norm_bias) {
        snprintf(bt_tiny_add_vector(w, dim, 0.0f, 0.3f)->name, NAME_BYTES,
                 "%s.bias", name);
    }
}

/* Makes what a layer adds to what passes through zero. */
static void silence(const bt_tiny_writer_t *w, uint32_t first)
{
    for (uint32_t i = first; i < w->n_tensors; i++) {
        bt_tiny_tensor_t *const t = &w->tensors[i];

        if ((strstr(t->name, ".attn_output.") != NULL) ||
            (strstr(t->name, ".ffn_down.") != NULL) ||
            (strstr(t->name, ".ffn_down_exps.") != NULL)) {
            t->center = t->reach = 0;
        }
    }
}

static bool has_key(const bt_tiny_model_t *m, const char *name)
{
    for (uint32_t i = 0; i < m->n_keys; i++) {
        if (strcmp(m->keys[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* What an EAGLE-3 head has beside its layer. */
static void add_eagle3(bt_tiny_writer_t *w)
{
    const bt_tiny_model_t *const m = w->model;
    bt_tiny_tensor_t *t =
        bt_tiny_add_tensor(w, m->type, 3 * (uint64_t)m->dim, m->dim);

    snprintf(t->name, sizeof(t->name), "fc.weight");
    if (has_key(m, "norm_before_fc")) {
        t = bt_tiny_add_vector(w, 3 * (uint64_t)m->dim, 1.0f, 0.3f);
        snprintf(t->name, sizeof(t->name), "enc.output_norm.weight");
    }
    if (!m->tied) {
        t = add_words(w);
        snprintf(t->name, sizeof(t->name), "token_embd.weight");
    }
    add_layer(w, 0);
    add_global_norm(w, "output_norm");
    if (m->draft_vocab > 0) {
        t = bt_tiny_add_tensor(w, m->embd_type, m->dim, m->draft_vocab);
        snprintf(t->name, sizeof(t->name), "output.weight");
    }
    if ((m->draft_vocab > 0) && (m->draft_vocab < m->n_vocab)) {
        t = bt_tiny_add_vector(w, m->draft_vocab, 0, 0);
        t->type = I64;
        snprintf(t->name, sizeof(t->name), "d2t");
    }
}

static void add_nextn(bt_tiny_writer_t *w)
{
    const bt_tiny_model_t *const m = w->model;
    const uint32_t layer = m->n_layers - 1;

    bt_tiny_add_matrix(w, layer, "nextn.eh_proj", m->type, 2 * (uint64_t)m->dim,
                       m->dim, false);
    add_norm(w, layer, "nextn.enorm", m->dim);
    add_norm(w, layer, "nextn.hnorm", m->dim);
    if (m->nextn_own) {
        bt_tiny_name_part(add_words(w), layer, "nextn.embed_tokens", "weight");
        bt_tiny_name_part(add_words(w), layer, "nextn.shared_head_head",
                          "weight");
        add_norm(w, layer, "nextn.shared_head_norm", m->dim);
    }
}

static void add_tensors(bt_tiny_writer_t *w)
{
    const bt_tiny_family_t *const f = w->family;
    const bt_tiny_model_t *const m = w->model;
    bt_tiny_tensor_t *t;

    if (is_eagle3(m)) {
        add_eagle3(w);
        return;
    }
    t = add_words(w);
    snprintf(t->name, sizeof(t->name), "token_embd.weight");
    if (f->positions) {
        t = bt_tiny_add_tensor(w, 0 /* F32 */, m->dim, m->context_tokens);
        snprintf(t->name, sizeof(t->name), "position_embd.weight");
    }
    if (f->embedding_norm) {
        add_global_norm(w, "token_embd_norm");
    }
    if (m->rope_factors) {
        add_factors(w, "rope_freqs.weight");
    }
    if (m->long_factors) {
        add_factors(w, "rope_factors_long.weight");
        add_factors(w, "rope_factors_short.weight");
    }
    for (uint32_t layer = 0; layer < m->n_layers; layer++) {
        const uint32_t first = w->n_tensors;

        add_layer(w, layer);
        if (layer + m->n_silent >= m->n_layers) {
            silence(w, first);
        }
    }
    if (m->nextn) {
        add_nextn(w);
    }
    add_global_norm(w, "output_norm");
    if (!m->tied) {
        t = add_words(w);
        snprintf(t->name, sizeof(t->name), "output.weight");
    }
}

static bt_status_t tensor_bytes(const bt_tiny_tensor_t *t, uint64_t *bytes_p)
{
    uint32_t elems;
    uint32_t bytes;

    if (bt_gguf_type_block(t->type, &elems, &bytes) != BT_OK) {
        return BT_ERR_UNSUPPORTED;
    }
    if (t->n_in % elems != 0) {
        return BT_ERR_INVALID_PARAM;
    }
    *bytes_p = t->n_in / elems * bytes * t->n_out;
    return BT_OK;
}

static uint64_t padded(uint64_t n)
{
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static bt_status_t put_table(bt_tiny_writer_t *w)
{
    uint64_t offset = 0;

    for (uint32_t i = 0; i < w->n_tensors; i++) {
        const bt_tiny_tensor_t *const t = &w->tensors[i];
        const uint64_t dims[] = {t->n_in, t->n_out / t->n_mats, t->n_mats};
        uint64_t bytes = 0;
        const bt_status_t status = tensor_bytes(t, &bytes);

        if (status != BT_OK) {
            return status;
        }
        put_str(&w->head, t->name);
        put_u32(&w->head, t->n_dims);
        for (uint32_t d = 0; d < t->n_dims; d++) {
            put_u64(&w->head, dims[d]);
        }
        put_u32(&w->head, t->type);
        put_u64(&w->head, offset);
        offset += padded(bytes);
    }
    return BT_OK;
}

static bool write_zeros(FILE *file, uint64_t n)
{
    static const uint8_t zeros[ALIGNMENT];

    return (n == 0) || (fwrite(zeros, (size_t)n, 1, file) == 1);
}

/* Ids of the target spread over its vocabulary, for each of a head. */
static bt_status_t write_ids(const bt_tiny_writer_t *w,
                             const bt_tiny_tensor_t *t, FILE *file)
{
    const uint64_t n_vocab = w->model->n_vocab;
    const uint64_t bytes = t->n_in * sizeof(int64_t);

    for (uint64_t i = 0; i < t->n_in; i++) {
        const int64_t id = (int64_t)(i * n_vocab / t->n_in);

        if (fwrite(&id, sizeof(id), 1, file) != 1) {
            return BT_ERR_IO;
        }
    }
    return write_zeros(file, padded(bytes) - bytes) ? BT_OK : BT_ERR_IO;
}

/* Row by row. The values depend on the seed and the tensor's name only. */
static bt_status_t write_tensor(const bt_tiny_writer_t *w,
                                const bt_tiny_tensor_t *t, FILE *file)
{
    uint64_t random = bt_hash64(t->name, strlen(t->name), w->model->seed);
    uint64_t bytes = 0;
    bt_status_t status = tensor_bytes(t, &bytes);
    size_t row_bytes;
    float *row = NULL;
    uint8_t *encoded = NULL;

    if (status != BT_OK) {
        return status;
    }
    row_bytes = (size_t)(bytes / t->n_out);
    row = bt_calloc((size_t)t->n_in, sizeof(*row));
    encoded = bt_calloc(row_bytes, 1);
    if ((row == NULL) || (encoded == NULL)) {
        status = BT_ERR_NO_MEMORY;
        goto out;
    }
    for (uint64_t r = 0; (status == BT_OK) && (r < t->n_out); r++) {
        const bool loud = (t->loud != 0) && (r >= t->loud);

        for (uint64_t i = 0; i < t->n_in; i++) {
            const float unit =
                (float)(bt_tiny_random(&random) >> 40) * 0x1p-23f - 1.0f;

            row[i] = (t->center + t->reach * unit) * (loud ? LOUD : 1.0f);
        }
        status =
            bt_tiny_quantize(t->type, row, (size_t)t->n_in, &random, encoded);
        if ((status == BT_OK) && (fwrite(encoded, row_bytes, 1, file) != 1)) {
            status = BT_ERR_IO;
        }
    }
    if ((status == BT_OK) && !write_zeros(file, padded(bytes) - bytes)) {
        status = BT_ERR_IO;
    }
out:
    bt_free(encoded);
    bt_free(row);
    return status;
}

static bt_status_t write_file(const bt_tiny_writer_t *w, const char *path)
{
    const uint32_t version = 3;
    const uint64_t counts[2] = {w->n_tensors, w->n_kvs};
    const uint64_t head_bytes = 4 + sizeof(version) + sizeof(counts);
    const uint64_t total = head_bytes + w->head.len;
    bt_status_t status = BT_OK;
    FILE *const file = fopen(path, "we");

    if (file == NULL) {
        return BT_ERR_IO;
    }
    if ((fwrite("GGUF", 4, 1, file) != 1) ||
        (fwrite(&version, sizeof(version), 1, file) != 1) ||
        (fwrite(counts, sizeof(counts), 1, file) != 1) ||
        (fwrite(w->head.data, w->head.len, 1, file) != 1) ||
        !write_zeros(file, padded(total) - total)) {
        status = BT_ERR_IO;
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < w->n_tensors); i++) {
        status = (w->tensors[i].type == I64)
                     ? write_ids(w, &w->tensors[i], file)
                     : write_tensor(w, &w->tensors[i], file);
    }
    if ((fclose(file) != 0) && (status == BT_OK)) {
        status = BT_ERR_IO;
    }
    return status;
}

static bool is_possible(const bt_tiny_model_t *m)
{
    return (m->n_layers > 0) && (m->n_layers < 10000) && (m->dim > 0) &&
           (m->n_heads > 0) &&
           ((m->head_dim != 0) || (m->dim % m->n_heads == 0)) &&
           (head_dim(m) % 2 == 0) && (m->n_kv_heads > 0) &&
           (m->n_heads % m->n_kv_heads == 0) && (m->ffn_dim > 0) &&
           (m->context_tokens > 0) &&
           (m->n_vocab >= bt_tiny_model_min_vocab()) &&
           (!is_eagle3(m) || (m->n_layers == 1)) &&
           (!m->nextn || (m->n_layers > 1)) &&
           (strlen(m->architecture) < NAME_BYTES / 2);
}

bt_status_t bt_tiny_model_write(const bt_tiny_model_t *model, const char *path)
{
    bt_tiny_writer_t w = {.model = model,
                          .family = bt_tiny_family((model->tensors_of != NULL)
                                                       ? model->tensors_of
                                                       : model->architecture)};
    bt_status_t status;

    if (!is_possible(model)) {
        return BT_ERR_INVALID_PARAM;
    }
    bt_strbuf_init(&w.head, HEAD_LIMIT);
    w.tensors = bt_calloc((size_t)model->n_layers * MAX_LAYER_TENSORS +
                              MAX_OTHER_TENSORS,
                          sizeof(*w.tensors));
    if (w.tensors == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    put_hparams(&w);
    put_vocabulary(&w);
    add_tensors(&w);
    status = put_table(&w);
    if (status == BT_OK) {
        status = bt_strbuf_status(&w.head);
    }
    if (status == BT_OK) {
        status = write_file(&w, path);
    }
    bt_strbuf_fini(&w.head);
    bt_free(w.tensors);
    return status;
}
