/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/hf/vocab.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "common/base/status.h"
#include "inference/hf/hf_priv.h"

bt_status_t bt_hf_vocab_init(bt_hf_t *hf, bt_hf_vocab_t *vocab, uint64_t n)
{
    uint32_t cap = 16;

    if ((n == 0) || (n > BT_HF_MAX_VOCAB)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          "a vocabulary of %" PRIu64 " tokens is absurd", n);
    }
    while (cap < 2 * n) {
        cap *= 2;
    }
    vocab->n = (uint32_t)n;
    vocab->mask = cap - 1;
    vocab->pieces = bt_calloc((size_t)n, sizeof(*vocab->pieces));
    vocab->table = bt_calloc(cap, sizeof(*vocab->table));
    if ((vocab->pieces == NULL) || (vocab->table == NULL)) {
        return bt_hf_fail(hf, BT_ERR_NO_MEMORY,
                          "out of memory for %" PRIu64 " tokens", n);
    }
    return BT_OK;
}

void bt_hf_vocab_fini(bt_hf_vocab_t *vocab)
{
    bt_free(vocab->table);
    bt_free(vocab->pieces);
    bt_free(vocab->charsmap);
    vocab->charsmap = NULL;
    vocab->table = NULL;
    vocab->pieces = NULL;
}

/* Returns the slot of a text, or the free one where it would be. */
static uint32_t slot_of(const bt_hf_vocab_t *vocab, const char *text,
                        size_t len)
{
    uint32_t slot = (uint32_t)bt_hash64(text, len, 0) & vocab->mask;

    while (vocab->table[slot] != 0) {
        const bt_hf_piece_t *const p = &vocab->pieces[vocab->table[slot] - 1];

        if ((p->len == len) &&
            ((len == 0) || (memcmp(p->text, text, len) == 0))) {
            break;
        }
        slot = (slot + 1) & vocab->mask;
    }
    return slot;
}

void bt_hf_vocab_index(bt_hf_vocab_t *vocab, uint32_t id)
{
    const uint32_t slot =
        slot_of(vocab, vocab->pieces[id].text, vocab->pieces[id].len);

    if (vocab->table[slot] == 0) {
        vocab->table[slot] = id + 1;
    }
}

uint32_t bt_hf_vocab_find(const bt_hf_vocab_t *vocab, const char *text,
                          size_t len)
{
    const uint32_t found = vocab->table[slot_of(vocab, text, len)];

    return (found == 0) ? BT_HF_NO_TOKEN : found - 1;
}

/* ---- writing ---- */

/* Returns a score: in Unigram, a token that is not the model's is never
 * chosen. */
static double score_of(const bt_hf_vocab_t *vocab, uint32_t id)
{
    const bt_hf_piece_t *const p = &vocab->pieces[id];

    return ((vocab->words != BT_HF_UNIGRAM) || !vocab->as_library ||
            p->is_in_model)
               ? p->score
               : -INFINITY;
}

/* Writes scores as floats, which all readers know, and if these lose precision
 * also exactly: sums that are equal but for rounding decide between pieces. */
static void put_scores(bt_gguf_meta_t *meta, const bt_hf_vocab_t *vocab)
{
    bool exact = true;

    bt_gguf_meta_array(meta, "tokenizer.ggml.scores", BT_GGUF_F32, vocab->n);
    for (uint32_t i = 0; i < vocab->n; i++) {
        const double score = score_of(vocab, i);

        bt_gguf_meta_item_f32(meta, (float)score);
        exact = exact && ((double)(float)score == score);
    }
    if (exact) {
        return;
    }
    bt_gguf_meta_array(meta, "baton.tokenizer.scores", BT_GGUF_F64, vocab->n);
    for (uint32_t i = 0; i < vocab->n; i++) {
        bt_gguf_meta_item_f64(meta, score_of(vocab, i));
    }
}

static void put_pieces(bt_hf_t *hf, const bt_hf_vocab_t *vocab)
{
    bt_gguf_meta_t *const meta = &hf->meta;

    bt_gguf_meta_array(meta, "tokenizer.ggml.tokens", BT_GGUF_STRING, vocab->n);
    for (uint32_t i = 0; i < vocab->n; i++) {
        const bt_hf_piece_t *const p = &vocab->pieces[i];
        char pad[24];

        if (p->text != NULL) {
            bt_gguf_meta_item_str(meta, p->text, p->len);
        } else {
            const int n = snprintf(pad, sizeof(pad), "[PAD%u]", i);

            bt_gguf_meta_item_str(meta, pad, (size_t)n);
        }
    }
    bt_gguf_meta_array(meta, "tokenizer.ggml.token_type", BT_GGUF_I32,
                       vocab->n);
    for (uint32_t i = 0; i < vocab->n; i++) {
        bt_gguf_meta_item_i32(meta, (vocab->pieces[i].text != NULL)
                                        ? vocab->pieces[i].type
                                        : BT_HF_TOKEN_UNUSED);
    }
    if ((vocab->words == BT_HF_SCORES) || (vocab->words == BT_HF_UNIGRAM)) {
        put_scores(meta, vocab);
    }
}

const bt_json_node_t *bt_hf_named_token(const bt_hf_t *hf, const char *name)
{
    const bt_json_node_t *const node =
        bt_json_get(hf->tok_config.doc, hf->tok_config.root, name);

    return bt_json_is_kind(node, BT_JSON_OBJECT)
               ? bt_json_get(hf->tok_config.doc, node, "content")
               : node;
}

static uint32_t named_token(const bt_hf_t *hf, const bt_hf_vocab_t *vocab,
                            const char *name)
{
    const bt_json_node_t *const node = bt_hf_named_token(hf, name);

    if (!bt_json_is_kind(node, BT_JSON_STRING)) {
        return BT_HF_NO_TOKEN;
    }
    return bt_hf_vocab_find(vocab, node->text, node->len);
}

/* Reads an id, or the first of a list. */
static bt_status_t numbered_token(bt_hf_t *hf, const bt_hf_vocab_t *vocab,
                                  const char *name, uint32_t *id_p)
{
    const bt_json_node_t *node = bt_hf_config(hf, name);
    uint64_t id;

    if (bt_json_is_kind(node, BT_JSON_ARRAY)) {
        node = (node->n > 0) ? bt_json_first(node) : NULL;
    }
    if (node == NULL) {
        return BT_OK;
    }
    if (!bt_json_as_u64(node, &id) || (id >= vocab->n)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          "config.json: %s is not one of the %u tokens", name,
                          vocab->n);
    }
    *id_p = (uint32_t)id;
    return BT_OK;
}

/* Writes further tokens that end an answer, as generation_config.json lists
 * them. */
static bt_status_t put_ends(bt_hf_t *hf, const bt_hf_vocab_t *vocab,
                            uint32_t eos)
{
    static const char *const keys[] = {"tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    const bt_json_node_t *const node =
        bt_json_get(hf->generation.doc, hf->generation.root, "eos_token_id");
    const bt_json_node_t *at = node;
    uint32_t n = 1;
    uint32_t n_put = 0;

    if ((node == NULL) || (node->kind == BT_JSON_NULL)) {
        return BT_OK;
    }
    if (node->kind == BT_JSON_ARRAY) {
        n = node->n;
        at = bt_json_first(node);
    }
    for (uint32_t i = 0; i < n; i++) {
        uint64_t id;

        if (!bt_json_as_u64(at, &id) || (id >= vocab->n)) {
            return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                              "generation_config.json: eos_token_id has what "
                              "is not one of the %u tokens",
                              vocab->n);
        }
        if (id != eos) {
            if (n_put == BT_ARRAY_LEN(keys)) {
                return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                                  "generation_config.json: eos_token_id has "
                                  "more than %zu tokens beside eos_token",
                                  BT_ARRAY_LEN(keys));
            }
            bt_gguf_meta_u32(&hf->meta, keys[n_put++], (uint32_t)id);
        }
        at = bt_json_next(hf->generation.doc, at);
    }
    return BT_OK;
}

static bt_status_t put_special(bt_hf_t *hf, const bt_hf_vocab_t *vocab)
{
    const struct {
        const char *name;
        const char *number;
        const char *key;
        uint32_t said; /* value of the tokenizer itself */
    } tokens[] = {
        {"bos_token", "bos_token_id", "tokenizer.ggml.bos_token_id",
         vocab->bos},
        {"eos_token", "eos_token_id", "tokenizer.ggml.eos_token_id",
         vocab->eos},
        {"unk_token", "unk_token_id", "tokenizer.ggml.unknown_token_id",
         vocab->unk},
        {"pad_token", "pad_token_id", "tokenizer.ggml.padding_token_id",
         BT_HF_NO_TOKEN},
    };
    uint32_t eos = BT_HF_NO_TOKEN;

    for (size_t i = 0; i < BT_ARRAY_LEN(tokens); i++) {
        uint32_t id = tokens[i].said;
        bt_status_t status = BT_OK;

        if (id == BT_HF_NO_TOKEN) {
            id = named_token(hf, vocab, tokens[i].name);
        }
        if (id == BT_HF_NO_TOKEN) {
            status = numbered_token(hf, vocab, tokens[i].number, &id);
        }
        if (status != BT_OK) {
            return status;
        }
        if (id != BT_HF_NO_TOKEN) {
            bt_gguf_meta_u32(&hf->meta, tokens[i].key, id);
            eos = (i == 1) ? id : eos;
        }
    }
    return put_ends(hf, vocab, eos);
}

/* Uses tokenizer_config.json where the tokenizer itself has no value. */
static bool flag_of(const bt_hf_t *hf, const char *name)
{
    return bt_json_is_kind(
        bt_json_get(hf->tok_config.doc, hf->tok_config.root, name),
        BT_JSON_TRUE);
}

/* ---- settings of tokenizer.json beyond GGUF's keys ---- */

static void put_texts(bt_gguf_meta_t *meta, const char *key,
                      const bt_hf_texts_t *texts)
{
    bt_gguf_meta_array(meta, key, BT_GGUF_STRING, texts->n);
    for (uint32_t i = 0; i < texts->n; i++) {
        bt_gguf_meta_item_str(meta, texts->list[i].data, texts->list[i].len);
    }
}

/*
 * Writes the ids of the tokens with a rule.
 * @param [in] always  write the list even if it is empty
 */
static void put_rule(bt_gguf_meta_t *meta, const bt_hf_vocab_t *vocab,
                     const char *key, unsigned rule, bool always)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < vocab->n; i++) {
        n += (vocab->pieces[i].rules & rule) != 0;
    }
    if ((n == 0) && !always) {
        return;
    }
    bt_gguf_meta_array(meta, key, BT_GGUF_I32, n);
    for (uint32_t i = 0; i < vocab->n; i++) {
        if ((vocab->pieces[i].rules & rule) != 0) {
            bt_gguf_meta_item_i32(meta, (int32_t)i);
        }
    }
}

static void put_rules(bt_gguf_meta_t *meta, const bt_hf_vocab_t *vocab)
{
    put_rule(meta, vocab, "baton.tokenizer.lstrip", BT_HF_LSTRIP, false);
    put_rule(meta, vocab, "baton.tokenizer.rstrip", BT_HF_RSTRIP, false);
    put_rule(meta, vocab, "baton.tokenizer.single_word", BT_HF_SINGLE_WORD,
             false);
    put_rule(meta, vocab, "baton.tokenizer.normalized", BT_HF_NORMALIZED,
             vocab->as_library);
}

static void put_charsmap(bt_gguf_meta_t *meta, const bt_hf_vocab_t *vocab)
{
    if (vocab->charsmap == NULL) {
        return;
    }
    bt_gguf_meta_array(meta, "tokenizer.ggml.precompiled_charsmap", BT_GGUF_U8,
                       vocab->charsmap_bytes);
    for (size_t i = 0; i < vocab->charsmap_bytes; i++) {
        bt_gguf_meta_item_u8(meta, vocab->charsmap[i]);
    }
}

/* Writes normalizers and splits, where the name of a pre-tokenizer or the model
 * does not imply them. */
static void put_steps(bt_gguf_meta_t *meta, const bt_hf_vocab_t *vocab)
{
    if (vocab->pre != NULL) {
        bt_gguf_meta_str(meta, "tokenizer.ggml.pre", vocab->pre,
                         strlen(vocab->pre));
        if (vocab->pre_is_exact) {
            return;
        }
    }
    put_texts(meta, "baton.tokenizer.normalizers", &vocab->normalizers);
    put_texts(meta, "baton.tokenizer.splits", &vocab->splits);
    if (vocab->ignore_merges || (vocab->words == BT_HF_BYTES)) {
        bt_gguf_meta_bool(meta, "baton.tokenizer.ignore_merges",
                          vocab->ignore_merges);
    }
}

static void put_plain(bt_gguf_meta_t *meta, const bt_hf_vocab_t *vocab)
{
    bt_gguf_meta_str(meta, "tokenizer.ggml.pre", "default", 7);
    bt_gguf_meta_bool(meta, "tokenizer.ggml.add_space_prefix", false);
    bt_gguf_meta_bool(meta, "baton.tokenizer.fuse_unknown", vocab->fuses);
    bt_gguf_meta_bool(meta, "baton.tokenizer.space_mark", vocab->marks_spaces);
    bt_gguf_meta_str(meta, "baton.tokenizer.first_space", vocab->first_space,
                     strlen(vocab->first_space));
    if (vocab->words == BT_HF_MERGES) {
        bt_gguf_meta_bool(meta, "baton.tokenizer.plain_text", true);
    }
}

/* Writes the settings of SentencePiece's own models and equivalent ones. */
static void put_sentencepiece(bt_gguf_meta_t *meta, const bt_hf_vocab_t *vocab)
{
    bt_gguf_meta_str(meta, "tokenizer.ggml.pre", "default", 7);
    bt_gguf_meta_bool(meta, "tokenizer.ggml.add_space_prefix",
                      vocab->add_space);
    if (vocab->words == BT_HF_UNIGRAM) {
        bt_gguf_meta_bool(meta, "baton.tokenizer.float_sums", true);
    }
    if (vocab->extra_spaces) {
        bt_gguf_meta_bool(meta, "tokenizer.ggml.remove_extra_whitespaces",
                          true);
    }
}

bt_status_t bt_hf_vocab_put(bt_hf_t *hf, const bt_hf_vocab_t *vocab)
{
    static const char *const models[] = {[BT_HF_BYTES] = "gpt2",
                                         [BT_HF_SCORES] = "llama",
                                         [BT_HF_MERGES] = "gpt2",
                                         [BT_HF_UNIGRAM] = "t5"};
    bt_gguf_meta_t *const meta = &hf->meta;
    const char *const model = models[vocab->words];

    bt_gguf_meta_str(meta, "tokenizer.ggml.model", model, strlen(model));
    put_pieces(hf, vocab);
    bt_gguf_meta_bool(meta, "tokenizer.ggml.add_bos_token",
                      vocab->has_ends ? vocab->add_bos
                                      : flag_of(hf, "add_bos_token"));
    bt_gguf_meta_bool(meta, "tokenizer.ggml.add_eos_token",
                      vocab->has_ends ? vocab->add_eos
                                      : flag_of(hf, "add_eos_token"));
    put_rules(meta, vocab);
    put_charsmap(meta, vocab);
    if (!vocab->as_library || (vocab->words == BT_HF_SCORES)) {
        put_sentencepiece(meta, vocab);
    } else {
        if (vocab->words != BT_HF_BYTES) {
            put_plain(meta, vocab);
        }
        put_steps(meta, vocab);
    }
    return put_special(hf, vocab);
}

/* Writes generation_config.json as general.sampling.*, and the chat
 * template. */

#define TEMPLATE_BYTES (1u << 20)
#define WHY_BYTES      400
#define KEY_TEMPLATE   "tokenizer.chat_template"

/* ---- sampling ---- */

/* Without do_sample the file's sampling numbers are unused by transformers. */
static bt_status_t put_sampling(bt_hf_t *hf)
{
    static const struct {
        const char *name;
        const char *key;
        bool whole;
    } settings[] = {
        {"temperature", "general.sampling.temp", false},
        {"top_p", "general.sampling.top_p", false},
        {"min_p", "general.sampling.min_p", false},
        {"repetition_penalty", "general.sampling.penalty_repeat", false},
        {"top_k", "general.sampling.top_k", true},
    };
    const bt_folder_json_t *const g = &hf->generation;
    const bt_json_node_t *const sample =
        bt_json_get(g->doc, g->root, "do_sample");

    if (!bt_json_is_kind(sample, BT_JSON_TRUE)) {
        return BT_OK;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(settings); i++) {
        const bt_json_node_t *const node =
            bt_json_get(g->doc, g->root, settings[i].name);
        double value = 0.0;
        uint64_t count = 0;

        if ((node == NULL) || (node->kind == BT_JSON_NULL)) {
            continue;
        }
        if (settings[i].whole
                ? (!bt_json_as_u64(node, &count) || (count > INT32_MAX))
                : (!bt_json_as_double(node, &value) ||
                   !isfinite((float)value))) {
            return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                              "generation_config.json: %s is not a number "
                              "that it can be",
                              settings[i].name);
        }
        if (settings[i].whole) {
            bt_gguf_meta_u32(&hf->meta, settings[i].key, (uint32_t)count);
        } else {
            bt_gguf_meta_f32(&hf->meta, settings[i].key, (float)value);
        }
    }
    return BT_OK;
}

/* ---- chat template ---- */

/*
 * Reads chat_template.jinja.
 * @param [out] found_p  whether it exists
 */
static bt_status_t put_template_file(bt_hf_t *hf, bool *found_p)
{
    static const char *const name = "chat_template.jinja";
    bt_folder_file_t file = {.fd = -1};
    char reason[WHY_BYTES] = "";
    bt_status_t status = BT_OK;

    *found_p = bt_folder_has(&hf->folder, name);
    if (!*found_p) {
        return BT_OK;
    }
    status = bt_folder_map(&hf->folder, name, reason, sizeof(reason), &file);
    if (status != BT_OK) {
        return bt_hf_fail(hf, status, "%s", reason);
    }
    if (file.bytes > TEMPLATE_BYTES) {
        status = bt_hf_fail(hf, BT_ERR_BAD_FILE,
                            "%s has %zu bytes; at most %u are read", name,
                            file.bytes, TEMPLATE_BYTES);
    } else {
        bt_gguf_meta_str(&hf->meta, KEY_TEMPLATE, file.base, file.bytes);
    }
    bt_folder_unmap(&file);
    return status;
}

/* Reads a list of templates by name: the default one, and that for tools. */
static void put_named(bt_hf_t *hf, const bt_json_doc_t *doc,
                      const bt_json_node_t *list)
{
    static const char *const names[][2] = {
        {"default", KEY_TEMPLATE}, {"tool_use", KEY_TEMPLATE ".tool_use"}};

    for (size_t k = 0; k < BT_ARRAY_LEN(names); k++) {
        const bt_json_node_t *at = bt_json_first(list);

        for (uint32_t i = 0; i < list->n; i++) {
            const bt_json_node_t *const text = bt_json_get(doc, at, "template");

            if (bt_json_is_kind(text, BT_JSON_STRING) &&
                bt_json_is(bt_json_get(doc, at, "name"), names[k][0])) {
                bt_gguf_meta_str(&hf->meta, names[k][1], text->text, text->len);
                break;
            }
            at = bt_json_next(doc, at);
        }
    }
}

static bool put_template_of(bt_hf_t *hf, const bt_folder_json_t *json)
{
    const bt_json_node_t *const node =
        bt_json_get(json->doc, json->root, "chat_template");

    if ((node == NULL) || (node->kind == BT_JSON_NULL)) {
        return false;
    }
    if (node->kind == BT_JSON_STRING) {
        bt_gguf_meta_str(&hf->meta, KEY_TEMPLATE, node->text, node->len);
    } else if (node->kind == BT_JSON_ARRAY) {
        put_named(hf, json->doc, node);
    }
    return true;
}

/* Uses the lookup order of transformers: the separate file first. */
static bt_status_t put_template(bt_hf_t *hf)
{
    bt_folder_json_t json = {0};
    char reason[WHY_BYTES] = "";
    bool found = false;
    bt_status_t status = put_template_file(hf, &found);

    if ((status != BT_OK) || found) {
        return status;
    }
    status =
        bt_folder_read_json(&hf->folder, "chat_template.json",
                            BT_HF_CONFIG_BYTES, reason, sizeof(reason), &json);
    if (status != BT_OK) {
        return bt_hf_fail(hf, status, "%s", reason);
    }
    if (!put_template_of(hf, &json)) {
        (void)put_template_of(hf, &hf->tok_config);
    }
    bt_folder_json_fini(&json);
    return BT_OK;
}

bt_status_t bt_hf_read_texts(bt_hf_t *hf)
{
    const bt_status_t status = put_sampling(hf);

    return (status == BT_OK) ? put_template(hf) : status;
}
