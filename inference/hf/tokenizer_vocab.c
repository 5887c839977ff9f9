/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of a tokenizer.json: those of its model, by name or in a list, and the
 * added ones with their rules. */
#include <math.h>
#include <string.h>

#include "common/base/assert.h"
#include "inference/hf/vocab.h"

#define FILE_NAME "tokenizer.json"
/* Unused ids allowed, beyond as many as there are tokens. */
#define SPARE_IDS 65536u

/* ---- how many ---- */

static bt_status_t count_named(const bt_hf_t *hf, const bt_hf_vocab_t *v,
                               const bt_json_node_t *vocab, uint64_t most,
                               uint64_t *n_p)
{
    const bt_json_node_t *at = bt_json_first(vocab);
    uint64_t id;

    for (uint32_t i = 0; i < vocab->n; i++) {
        if (!bt_json_as_u64(at + 1, &id) || (id >= most)) {
            return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                              FILE_NAME ": the id of token %s is absurd",
                              bt_printable(at->text, at->len).text);
        }
        *n_p = (id >= *n_p) ? id + 1 : *n_p;
        at = bt_json_next(v->doc, at + 1);
    }
    return BT_OK;
}

static bt_status_t count_ids(const bt_hf_t *hf, const bt_hf_vocab_t *v,
                             const bt_json_node_t *vocab,
                             const bt_json_node_t *added, uint64_t *n_p)
{
    const uint64_t n_added = (added != NULL) ? added->n : 0;
    const uint64_t most = 2 * ((uint64_t)vocab->n + n_added) + SPARE_IDS;
    const bt_json_node_t *at = NULL;
    uint64_t n = hf->shape.n_vocab;
    uint64_t id;
    bt_status_t status = BT_OK;

    if (vocab->kind == BT_JSON_ARRAY) {
        n = (vocab->n > n) ? vocab->n : n;
    } else {
        status = count_named(hf, v, vocab, most, &n);
    }
    for (uint64_t i = 0; (status == BT_OK) && (i < n_added); i++) {
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
    if ((status == BT_OK) && (n > most)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          "config.json: vocab_size is %llu, but " FILE_NAME
                          " has %llu tokens",
                          (unsigned long long)n,
                          (unsigned long long)(vocab->n + n_added));
    }
    *n_p = n;
    return status;
}

/* ---- the model's ---- */

static bt_status_t put_piece(const bt_hf_t *hf, bt_hf_vocab_t *v, uint64_t id,
                             const bt_json_node_t *text, double score)
{
    bt_hf_piece_t *const piece = &v->pieces[id];

    if (piece->text != NULL) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          FILE_NAME ": two tokens have the id %llu",
                          (unsigned long long)id);
    }
    *piece = (bt_hf_piece_t){.text = text->text,
                             .len = text->len,
                             .type = BT_HF_TOKEN_NORMAL,
                             .is_in_model = true,
                             .score = score};
    bt_hf_vocab_index(v, (uint32_t)id);
    return BT_OK;
}

/* {"a": 0, "b": 1}, of BPE */
static bt_status_t fill_named(const bt_hf_t *hf, bt_hf_vocab_t *v,
                              const bt_json_node_t *vocab)
{
    const bt_json_node_t *at = bt_json_first(vocab);
    bt_status_t status = BT_OK;

    for (uint32_t i = 0; (status == BT_OK) && (i < vocab->n); i++) {
        uint64_t id = 0;

        if (!bt_json_as_u64(at + 1, &id)) {
            return BT_ERR_BAD_FILE; /* counted before */
        }
        status = put_piece(hf, v, id, at, 0.0);
        at = bt_json_next(v->doc, at + 1);
    }
    return status;
}

/* [["a", -1.5], ["b", -2]], of Unigram */
static bt_status_t fill_scored(const bt_hf_t *hf, bt_hf_vocab_t *v,
                               const bt_json_node_t *vocab)
{
    const bt_json_node_t *at = bt_json_first(vocab);
    bt_status_t status = BT_OK;

    for (uint32_t i = 0; (status == BT_OK) && (i < vocab->n); i++) {
        const bt_json_node_t *const text =
            ((at->kind == BT_JSON_ARRAY) && (at->n == 2)) ? bt_json_first(at)
                                                          : NULL;
        double score = 0.0;

        if ((text == NULL) || (text->kind != BT_JSON_STRING) ||
            !bt_json_as_double(bt_json_next(v->doc, text), &score) ||
            !isfinite((float)score)) {
            return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                              FILE_NAME ": token %u is no pair of a text and "
                                        "its score",
                              i);
        }
        status = put_piece(hf, v, i, text, score);
        at = bt_json_next(v->doc, at);
    }
    return status;
}

/* ---- added ones ---- */

/* True for tokens that are markup, whether or not the file marks them
 * special. */
static bool looks_special(const bt_json_node_t *text)
{
    return (text->len >= 4) && (memcmp(text->text, "<|", 2) == 0) &&
           (memcmp(text->text + text->len - 2, "|>", 2) == 0);
}

static uint8_t rules_of(const bt_hf_vocab_t *v, const bt_json_node_t *token)
{
    static const struct {
        const char *name;
        uint8_t rule;
    } flags[] = {{"lstrip", BT_HF_LSTRIP},
                 {"rstrip", BT_HF_RSTRIP},
                 {"single_word", BT_HF_SINGLE_WORD},
                 {"normalized", BT_HF_NORMALIZED}};
    uint8_t rules = 0;

    for (size_t i = 0; i < BT_ARRAY_LEN(flags); i++) {
        if (bt_hf_is_true(v, token, flags[i].name)) {
            rules = (uint8_t)(rules | flags[i].rule);
        }
    }
    return rules;
}

static bt_status_t add_token(const bt_hf_t *hf, bt_hf_vocab_t *v,
                             const bt_json_node_t *token)
{
    const bt_json_node_t *const text = bt_hf_member(v, token, "content");
    uint64_t id = 0;
    bt_hf_piece_t *piece;

    if ((text == NULL) || (text->kind != BT_JSON_STRING) ||
        !bt_json_as_u64(bt_hf_member(v, token, "id"), &id)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          FILE_NAME ": an added token has no content");
    }
    piece = &v->pieces[id];
    if ((piece->text != NULL) &&
        ((piece->len != text->len) ||
         (memcmp(piece->text, text->text, text->len) != 0))) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          FILE_NAME ": the added token %s has the id of "
                                    "another",
                          bt_printable(text->text, text->len).text);
    }
    piece->text = text->text;
    piece->len = text->len;
    piece->rules = rules_of(v, token);
    piece->type = (bt_hf_is_true(v, token, "special") || looks_special(text))
                      ? BT_HF_TOKEN_CONTROL
                      : BT_HF_TOKEN_USER_DEFINED;
    bt_hf_vocab_index(v, (uint32_t)id);
    return BT_OK;
}

/* Drops rules without effect. Without a normalizer they only determine the
 * order of the two searches, and with one kind of tokens there is no order. */
static void drop_idle_rules(bt_hf_vocab_t *v)
{
    uint32_t n[2] = {0, 0};

    for (uint32_t i = 0; i < v->n; i++) {
        const bt_hf_piece_t *const p = &v->pieces[i];

        if ((p->type == BT_HF_TOKEN_CONTROL) ||
            (p->type == BT_HF_TOKEN_USER_DEFINED)) {
            n[(p->rules & BT_HF_NORMALIZED) != 0]++;
        }
    }
    if ((n[0] > 0) || (bt_hf_member(v, v->root, "normalizer") != NULL)) {
        return;
    }
    for (uint32_t i = 0; i < v->n; i++) {
        v->pieces[i].rules =
            (uint8_t)(v->pieces[i].rules & ~(unsigned)BT_HF_NORMALIZED);
    }
}

bt_status_t bt_hf_read_vocab(const bt_hf_t *hf, bt_hf_vocab_t *v)
{
    const bt_json_node_t *const vocab = bt_hf_member(v, v->model, "vocab");
    const bt_json_node_t *const added =
        bt_hf_member(v, v->root, "added_tokens");
    const uint8_t kind =
        (v->words == BT_HF_UNIGRAM) ? BT_JSON_ARRAY : BT_JSON_OBJECT;
    const bt_json_node_t *at;
    uint64_t n = 0;
    bt_status_t status;

    if ((vocab == NULL) || (vocab->kind != kind) || (vocab->n == 0) ||
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
        status = (kind == BT_JSON_ARRAY) ? fill_scored(hf, v, vocab)
                                         : fill_named(hf, v, vocab);
    }
    at = (added != NULL) ? bt_json_first(added) : NULL;
    for (uint32_t i = 0; (status == BT_OK) && (added != NULL) && (i < added->n);
         i++) {
        status = add_token(hf, v, at);
        at = bt_json_next(v->doc, at);
    }
    if (status == BT_OK) {
        drop_idle_rules(v);
    }
    return status;
}
