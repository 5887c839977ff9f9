/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.json, of the tokenizers library: model, normalizer, pre-tokenizer,
 * post-processor and added tokens. What GGUF's keys cannot say is refused. */
#include <string.h>

#include "inference/hf/vocab.h"

#define FILE_NAME  "tokenizer.json"
#define WHY_BYTES  400
#define SPACE_MARK "\xE2\x96\x81" /* U+2581 */
#define SPARE_IDS  65536u         /* ids that no token has, beyond twice them */

static const bt_json_node_t *get(const bt_hf_vocab_t *v,
                                 const bt_json_node_t *node, const char *key)
{
    const bt_json_node_t *const found = bt_json_get(v->doc, node, key);

    return ((found != NULL) && (found->kind != BT_JSON_NULL)) ? found : NULL;
}

static bool is_true(const bt_hf_vocab_t *v, const bt_json_node_t *node,
                    const char *key)
{
    const bt_json_node_t *const found = get(v, node, key);

    return (found != NULL) && (found->kind == BT_JSON_TRUE);
}

static bt_status_t unknown(const bt_hf_t *hf, const char *what,
                           const bt_json_node_t *name)
{
    return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                      FILE_NAME ": the %s %s is not supported", what,
                      ((name != NULL) && (name->kind == BT_JSON_STRING))
                          ? bt_shown(name->text, name->len).text
                          : "without a name");
}

/* ---- vocabulary ---- */

static bt_status_t count_ids(const bt_hf_t *hf, const bt_hf_vocab_t *v,
                             const bt_json_node_t *vocab,
                             const bt_json_node_t *added, uint64_t *n_p)
{
    const uint64_t n_added = (added != NULL) ? added->n : 0;
    const uint64_t most = 2 * ((uint64_t)vocab->n + n_added) + SPARE_IDS;
    const bt_json_node_t *at = bt_json_first(vocab);
    uint64_t n = hf->shape.n_vocab;
    uint64_t id;

    for (uint32_t i = 0; i < vocab->n; i++) {
        if (!bt_json_as_u64(at + 1, &id) || (id >= most)) {
            return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                              FILE_NAME ": the id of token %s is absurd",
                              bt_shown(at->text, at->len).text);
        }
        n = (id >= n) ? id + 1 : n;
        at = bt_json_next(v->doc, at + 1);
    }
    for (uint64_t i = 0; i < n_added; i++) {
        at = (i == 0) ? bt_json_first(added) : bt_json_next(v->doc, at);
        if (!bt_json_as_u64(bt_json_get(v->doc, at, "id"), &id) ||
            (id >= most)) {
            return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                              FILE_NAME ": added token number %llu has no id, "
                                        "or an absurd one",
                              (unsigned long long)i);
        }
        n = (id >= n) ? id + 1 : n;
    }
    if (n > most) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          "config.json: vocab_size is %llu, but " FILE_NAME
                          " has %llu tokens",
                          (unsigned long long)n,
                          (unsigned long long)(vocab->n + n_added));
    }
    *n_p = n;
    return BT_OK;
}

static bt_status_t fill_vocab(const bt_hf_t *hf, bt_hf_vocab_t *v,
                              const bt_json_node_t *vocab)
{
    const bt_json_node_t *at = bt_json_first(vocab);

    for (uint32_t i = 0; i < vocab->n; i++) {
        uint64_t id = 0;
        bt_hf_piece_t *piece;

        if (!bt_json_as_u64(at + 1, &id)) {
            return BT_ERR_BAD_FILE; /* counted before */
        }
        piece = &v->pieces[id];
        if (piece->text != NULL) {
            return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                              FILE_NAME ": two tokens have the id %llu",
                              (unsigned long long)id);
        }
        *piece = (bt_hf_piece_t){
            .text = at->text, .len = at->len, .type = BT_HF_TOKEN_NORMAL};
        bt_hf_vocab_index(v, (uint32_t)id);
        at = bt_json_next(v->doc, at + 1);
    }
    return BT_OK;
}

/* Tokens that are markup, whether or not the file calls them special. */
static bool looks_special(const bt_json_node_t *text)
{
    return (text->len >= 4) && (memcmp(text->text, "<|", 2) == 0) &&
           (memcmp(text->text + text->len - 2, "|>", 2) == 0);
}

static bt_status_t add_token(const bt_hf_t *hf, bt_hf_vocab_t *v,
                             const bt_json_node_t *token)
{
    static const char *const flags[] = {"single_word", "lstrip", "rstrip"};
    const bt_json_node_t *const text = get(v, token, "content");
    bool special;
    uint64_t id = 0;
    bt_hf_piece_t *piece;

    if ((text == NULL) || (text->kind != BT_JSON_STRING) ||
        !bt_json_as_u64(get(v, token, "id"), &id)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          FILE_NAME ": an added token has no content");
    }
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        if (is_true(v, token, flags[i])) {
            return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                              FILE_NAME ": the added token %s has the rule %s, "
                                        "which is not supported",
                              bt_shown(text->text, text->len).text, flags[i]);
        }
    }
    piece = &v->pieces[id];
    if ((piece->text != NULL) &&
        ((piece->len != text->len) ||
         (memcmp(piece->text, text->text, text->len) != 0))) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          FILE_NAME ": the added token %s has the id of "
                                    "another",
                          bt_shown(text->text, text->len).text);
    }
    special = is_true(v, token, "special") || looks_special(text);
    *piece = (bt_hf_piece_t){.text = text->text,
                             .len = text->len,
                             .type = special ? BT_HF_TOKEN_CONTROL
                                             : BT_HF_TOKEN_USER_DEFINED};
    bt_hf_vocab_index(v, (uint32_t)id);
    return BT_OK;
}

static bt_status_t read_vocab(const bt_hf_t *hf, bt_hf_vocab_t *v)
{
    const bt_json_node_t *const vocab = get(v, v->model, "vocab");
    const bt_json_node_t *const added = get(v, v->root, "added_tokens");
    const bt_json_node_t *at;
    uint64_t n = 0;
    bt_status_t status;

    if ((vocab == NULL) || (vocab->kind != BT_JSON_OBJECT) || (vocab->n == 0) ||
        ((added != NULL) && (added->kind != BT_JSON_ARRAY))) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          FILE_NAME ": vocab or added_tokens is missing or no "
                                    "list");
    }
    status = count_ids(hf, v, vocab, added, &n);
    if (status == BT_OK) {
        status = bt_hf_vocab_init(hf, v, n);
    }
    if (status == BT_OK) {
        status = fill_vocab(hf, v, vocab);
    }
    at = (added != NULL) ? bt_json_first(added) : NULL;
    for (uint32_t i = 0; (status == BT_OK) && (added != NULL) && (i < added->n);
         i++) {
        status = add_token(hf, v, at);
        at = bt_json_next(v->doc, at);
    }
    return status;
}

/* ---- settings of the model ---- */

static bt_status_t check_model(const bt_hf_t *hf, const bt_hf_vocab_t *v)
{
    static const char *const affixes[] = {"continuing_subword_prefix",
                                          "end_of_word_suffix"};
    const bt_json_node_t *const type = get(v, v->model, "type");

    /* Old files leave the type out of a model that has merges. */
    if ((type != NULL) ? !bt_json_is(type, "BPE")
                       : (get(v, v->model, "merges") == NULL)) {
        return unknown(hf, "model", type);
    }
    if (get(v, v->model, "dropout") != NULL) {
        return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                          FILE_NAME ": dropout is not supported");
    }
    for (size_t i = 0; i < sizeof(affixes) / sizeof(affixes[0]); i++) {
        const bt_json_node_t *const affix = get(v, v->model, affixes[i]);

        if ((affix != NULL) && !bt_json_is(affix, "")) {
            return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                              FILE_NAME ": %s is not supported", affixes[i]);
        }
    }
    return BT_OK;
}

/* ---- SentencePiece's ways ---- */

static bool replaces_space(const bt_hf_vocab_t *v, const bt_json_node_t *step)
{
    return bt_json_is(get(v, step, "type"), "Replace") &&
           bt_json_is(get(v, get(v, step, "pattern"), "String"), " ") &&
           bt_json_is(get(v, step, "content"), SPACE_MARK);
}

static bool prepends_space(const bt_hf_vocab_t *v, const bt_json_node_t *step)
{
    return bt_json_is(get(v, step, "type"), "Prepend") &&
           bt_json_is(get(v, step, "prepend"), SPACE_MARK);
}

/* Prepend, then Replace; or Replace alone. */
static bt_status_t read_spm_normalizer(const bt_hf_t *hf, bt_hf_vocab_t *v,
                                       bool *replaced_p)
{
    const bt_json_node_t *step = get(v, v->root, "normalizer");
    const bt_json_node_t *const list = get(v, step, "normalizers");
    uint32_t n = (step != NULL) ? 1 : 0;

    if ((list != NULL) && (list->kind == BT_JSON_ARRAY)) {
        n = list->n;
        step = (n > 0) ? bt_json_first(list) : NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (prepends_space(v, step) && !v->add_space && !*replaced_p) {
            v->add_space = true;
        } else if (replaces_space(v, step)) {
            *replaced_p = true;
        } else {
            return unknown(hf, "normalizer", get(v, step, "type"));
        }
        step = bt_json_next(v->doc, step);
    }
    return BT_OK;
}

static bt_status_t read_metaspace(const bt_hf_t *hf, bt_hf_vocab_t *v,
                                  bool *replaced_p)
{
    const bt_json_node_t *const pre = get(v, v->root, "pre_tokenizer");
    const bt_json_node_t *scheme;
    const bt_json_node_t *split;

    if ((pre == NULL) ||
        (*replaced_p && bt_json_is(get(v, pre, "type"), "Split") &&
         bt_json_is(get(v, get(v, pre, "pattern"), "String"), " "))) {
        return BT_OK; /* a split at spaces, where none are left */
    }
    scheme = get(v, pre, "prepend_scheme");
    split = get(v, pre, "split");
    if (!bt_json_is(get(v, pre, "type"), "Metaspace") ||
        !bt_json_is(get(v, pre, "replacement"), SPACE_MARK)) {
        return unknown(hf, "pre-tokenizer", get(v, pre, "type"));
    }
    if ((split == NULL) || (split->kind != BT_JSON_FALSE)) {
        return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                          FILE_NAME ": a Metaspace that splits is not "
                                    "supported");
    }
    if (bt_json_is(scheme, "always")) {
        v->add_space = true;
    } else if (!bt_json_is(scheme, "never")) {
        return unknown(hf, "prepend_scheme", scheme);
    }
    *replaced_p = true;
    return BT_OK;
}

static int hex_digit(char c)
{
    return ((c >= '0') && (c <= '9'))   ? c - '0'
           : ((c >= 'A') && (c <= 'F')) ? c - 'A' + 10
                                        : -1;
}

/* The tokens of bytes and the unknown one. */
static bt_status_t mark_spm(const bt_hf_t *hf, bt_hf_vocab_t *v)
{
    const bt_json_node_t *const unk = get(v, v->model, "unk_token");
    uint32_t id;

    for (uint32_t i = 0; i < v->n; i++) {
        const bt_hf_piece_t *const p = &v->pieces[i];

        if ((p->text != NULL) && (p->type == BT_HF_TOKEN_NORMAL) &&
            (p->len == 6) && (memcmp(p->text, "<0x", 3) == 0) &&
            (hex_digit(p->text[3]) >= 0) && (hex_digit(p->text[4]) >= 0) &&
            (p->text[5] == '>')) {
            v->pieces[i].type = BT_HF_TOKEN_BYTE;
        }
    }
    if (unk == NULL) {
        return BT_OK;
    }
    id = (unk->kind == BT_JSON_STRING)
             ? bt_hf_vocab_find(v, unk->text, unk->len)
             : BT_HF_NO_TOKEN;
    if (id == BT_HF_NO_TOKEN) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          FILE_NAME ": unk_token is not one of the tokens");
    }
    v->pieces[id].type = BT_HF_TOKEN_UNKNOWN;
    return BT_OK;
}

static bt_status_t read_spm(bt_hf_t *hf, bt_hf_vocab_t *v)
{
    bool replaced = false;
    bt_status_t status = read_spm_normalizer(hf, v, &replaced);

    if (status == BT_OK) {
        status = read_metaspace(hf, v, &replaced);
    }
    if ((status == BT_OK) && !replaced) {
        status = bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                            FILE_NAME ": byte_fallback without spaces as "
                                      "U+2581 is not supported");
    }
    if (status == BT_OK) {
        status = mark_spm(hf, v);
    }
    if (status == BT_OK) {
        status = bt_hf_score_merges(hf, v);
    }
    return status;
}

/* ---- byte-level BPE ---- */

static bt_status_t read_bytelevel(bt_hf_t *hf, bt_hf_vocab_t *v)
{
    const bt_json_node_t *const normalizer = get(v, v->root, "normalizer");
    bt_status_t status;

    if (normalizer != NULL) {
        return unknown(hf, "normalizer", get(v, normalizer, "type"));
    }
    status = bt_hf_put_pretokenizer(hf, v);
    return (status == BT_OK) ? bt_hf_put_merges(hf, v) : status;
}

/* ---- what stands around a text ---- */

/* The text of a template's item, if it is a special token. */
static const bt_json_node_t *special_of(const bt_hf_vocab_t *v,
                                        const bt_json_node_t *item)
{
    return get(v, get(v, item, "SpecialToken"), "id");
}

static bool is_named(const bt_hf_t *hf, const bt_json_node_t *text,
                     const char *name)
{
    const bt_json_node_t *node =
        bt_json_get(hf->tok_config.doc, hf->tok_config.root, name);

    if ((node != NULL) && (node->kind == BT_JSON_OBJECT)) {
        node = bt_json_get(hf->tok_config.doc, node, "content");
    }
    return (node != NULL) && (node->kind == BT_JSON_STRING) &&
           (node->len == text->len) &&
           (memcmp(node->text, text->text, text->len) == 0);
}

/* "single": BOS, the text, EOS, each of the outer ones or not. */
static bt_status_t read_template(const bt_hf_t *hf, bt_hf_vocab_t *v,
                                 const bt_json_node_t *processor)
{
    const bt_json_node_t *const list = get(v, processor, "single");
    const bt_json_node_t *at;
    bool text = false;

    if ((list == NULL) || (list->kind != BT_JSON_ARRAY) || (list->n == 0)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          FILE_NAME ": TemplateProcessing has no list "
                                    "\"single\"");
    }
    v->has_ends = true;
    at = bt_json_first(list);
    for (uint32_t i = 0; i < list->n; i++) {
        const bt_json_node_t *const token = special_of(v, at);

        if (get(v, at, "Sequence") != NULL) {
            text = true;
        } else if ((token != NULL) && (token->kind == BT_JSON_STRING) &&
                   !text && !v->add_bos && is_named(hf, token, "bos_token")) {
            v->add_bos = true;
        } else if ((token != NULL) && (token->kind == BT_JSON_STRING) && text &&
                   !v->add_eos && is_named(hf, token, "eos_token")) {
            v->add_eos = true;
        } else {
            return unknown(hf, "template around a text with", token);
        }
        at = bt_json_next(v->doc, at);
    }
    return BT_OK;
}

static bt_status_t read_processor(const bt_hf_t *hf, bt_hf_vocab_t *v)
{
    const bt_json_node_t *step = get(v, v->root, "post_processor");
    const bt_json_node_t *const list = get(v, step, "processors");
    uint32_t n = (step != NULL) ? 1 : 0;
    bt_status_t status = BT_OK;

    if ((list != NULL) && (list->kind == BT_JSON_ARRAY)) {
        n = list->n;
        step = (n > 0) ? bt_json_first(list) : NULL;
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < n); i++) {
        const bt_json_node_t *const type = get(v, step, "type");

        if (bt_json_is(type, "TemplateProcessing")) {
            status = read_template(hf, v, step);
        } else if (bt_json_is(type, "ByteLevel")) {
            v->has_ends = true; /* it changes offsets, no tokens */
        } else {
            status = unknown(hf, "post-processor", type);
        }
        step = bt_json_next(v->doc, step);
    }
    return status;
}

/* ---- the whole ---- */

static bt_status_t read_document(bt_hf_t *hf, bt_hf_vocab_t *v)
{
    bt_status_t status = BT_OK;

    if ((v->model == NULL) || (v->model->kind != BT_JSON_OBJECT)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE, FILE_NAME " has no model");
    }
    v->spm = is_true(v, v->model, "byte_fallback");
    status = check_model(hf, v);
    if (status == BT_OK) {
        status = read_vocab(hf, v);
    }
    if (status == BT_OK) {
        status = read_processor(hf, v);
    }
    if (status == BT_OK) {
        status = v->spm ? read_spm(hf, v) : read_bytelevel(hf, v);
    }
    return (status == BT_OK) ? bt_hf_vocab_put(hf, v) : status;
}

static bt_status_t read_tokenizer_model(bt_hf_t *hf)
{
    bt_hf_vocab_t vocab = {0};
    bt_folder_file_t file = {.fd = -1};
    char reason[WHY_BYTES] = "";
    bt_status_t status = bt_folder_map(&hf->folder, "tokenizer.model", reason,
                                       sizeof(reason), &file);

    if (status != BT_OK) {
        return bt_hf_fail(hf, status, "%s", reason);
    }
    status = bt_hf_read_sentencepiece(hf, file.base, file.bytes, &vocab);
    if (status == BT_OK) {
        status = bt_hf_vocab_put(hf, &vocab);
    }
    bt_hf_vocab_fini(&vocab);
    bt_folder_unmap(&file);
    return status;
}

bt_status_t bt_hf_read_tokenizer(bt_hf_t *hf)
{
    bt_folder_json_t json = {0};
    bt_hf_vocab_t vocab = {0};
    char reason[WHY_BYTES] = "";
    bt_status_t status =
        bt_folder_read_json(&hf->folder, FILE_NAME, BT_HF_TOKENS_BYTES, reason,
                            sizeof(reason), &json);

    if (status != BT_OK) {
        return bt_hf_fail(hf, status, "%s", reason);
    }
    if (json.root == NULL) {
        return bt_folder_has(&hf->folder, "tokenizer.model")
                   ? read_tokenizer_model(hf)
                   : bt_hf_fail(hf, BT_ERR_BAD_FILE,
                                "the folder has no tokenizer: neither "
                                "tokenizer.json nor tokenizer.model");
    }
    vocab.doc = json.doc;
    vocab.root = json.root;
    vocab.model = bt_json_get(json.doc, json.root, "model");
    status = read_document(hf, &vocab);
    bt_hf_vocab_fini(&vocab);
    bt_folder_json_fini(&json);
    return status;
}
