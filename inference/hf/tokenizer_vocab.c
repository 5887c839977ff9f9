/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "inference/hf/vocab.h"

/* Tokens of a tokenizer.json: those of its model, by name or in a list, and the
 * added ones with their rules. */

#define FILE_NAME "tokenizer.json"
/* Unused ids allowed, beyond as many as there are tokens. */
#define SPARE_IDS 65536u

/* ---- how many ---- */

static uint64_t count_named(bt_hf_t *hf, const bt_hf_vocab_t *v,
                            const bt_json_node_t *vocab, uint64_t most,
                            uint64_t n)
{
    const bt_json_node_t *at = bt_json_first(vocab);
    uint64_t id;

    for (uint32_t i = 0; i < vocab->n; i++) {
        if (!bt_json_as_u64(at + 1, &id) || (id >= most)) {
            bt_hf_fail(hf, BT_ERR_BAD_FILE,
                       FILE_NAME ": the id of token %s is absurd",
                       bt_printable(at->text, at->len).text);
            return 0;
        }
        n = (id >= n) ? id + 1 : n;
        at = bt_json_next(v->doc, at + 1);
    }
    return n;
}

/* Returns a number above all ids. */
static uint64_t count_ids(bt_hf_t *hf, const bt_hf_vocab_t *v,
                          const bt_json_node_t *vocab,
                          const bt_json_node_t *added)
{
    const uint64_t n_added = (added != NULL) ? added->n : 0;
    const uint64_t most = 2 * ((uint64_t)vocab->n + n_added) + SPARE_IDS;
    const bt_json_node_t *at = NULL;
    uint64_t n = hf->shape.n_vocab;
    uint64_t id;

    if (vocab->kind == BT_JSON_ARRAY) {
        n = (vocab->n > n) ? vocab->n : n;
    } else {
        n = count_named(hf, v, vocab, most, n);
    }
    for (uint64_t i = 0; i < n_added; i++) {
        at = (i == 0) ? bt_json_first(added) : bt_json_next(v->doc, at);
        if (!bt_json_as_u64(bt_json_get(v->doc, at, "id"), &id) ||
            (id >= most)) {
            bt_hf_fail(hf, BT_ERR_BAD_FILE,
                       FILE_NAME ": added token number %" PRIu64
                                 " has no id, or an absurd one",
                       i);
            return 0;
        }
        n = (id >= n) ? id + 1 : n;
    }
    if (n > most) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   "config.json: vocab_size is %" PRIu64 ", but " FILE_NAME
                   " has %" PRIu64 " tokens",
                   n, (vocab->n + n_added));
    }
    return n;
}

/* ---- the model's ---- */

static void put_piece(bt_hf_t *hf, bt_hf_vocab_t *v, uint64_t id,
                      const bt_json_node_t *text, double score)
{
    bt_hf_piece_t *const piece = &v->pieces[id];

    if (piece->text != NULL) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   FILE_NAME ": two tokens have the id %" PRIu64, id);
        return;
    }
    *piece = (bt_hf_piece_t){.text = text->text,
                             .len = text->len,
                             .type = BT_HF_TOKEN_NORMAL,
                             .is_in_model = true,
                             .score = score};
    bt_hf_vocab_index(v, (uint32_t)id);
}

/* {"a": 0, "b": 1}, of BPE */
static void fill_named(bt_hf_t *hf, bt_hf_vocab_t *v,
                       const bt_json_node_t *vocab)
{
    const bt_json_node_t *at = bt_json_first(vocab);

    for (uint32_t i = 0; (hf->status == BT_OK) && (i < vocab->n); i++) {
        uint64_t id = 0;

        (void)bt_json_as_u64(at + 1, &id); /* counted before */
        put_piece(hf, v, id, at, 0.0);
        at = bt_json_next(v->doc, at + 1);
    }
}

/* [["a", -1.5], ["b", -2]], of Unigram */
static void fill_scored(bt_hf_t *hf, bt_hf_vocab_t *v,
                        const bt_json_node_t *vocab)
{
    const bt_json_node_t *at = bt_json_first(vocab);

    for (uint32_t i = 0; i < vocab->n; i++) {
        const bt_json_node_t *const text =
            ((at->kind == BT_JSON_ARRAY) && (at->n == 2)) ? bt_json_first(at)
                                                          : NULL;
        double score = 0.0;

        if (!bt_json_is_kind(text, BT_JSON_STRING) ||
            !bt_json_as_double(bt_json_next(v->doc, text), &score) ||
            !isfinite((float)score)) {
            bt_hf_fail(hf, BT_ERR_BAD_FILE,
                       FILE_NAME ": token %u is no pair of a text and its "
                                 "score",
                       i);
            return;
        }
        put_piece(hf, v, i, text, score);
        at = bt_json_next(v->doc, at);
    }
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

static void add_token(bt_hf_t *hf, bt_hf_vocab_t *v,
                      const bt_json_node_t *token)
{
    const bt_json_node_t *const text = bt_hf_member(v, token, "content");
    uint64_t id = 0;
    bt_hf_piece_t *piece;

    if (!bt_json_is_kind(text, BT_JSON_STRING) ||
        !bt_json_as_u64(bt_hf_member(v, token, "id"), &id)) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   FILE_NAME ": an added token has no content");
        return;
    }
    piece = &v->pieces[id];
    if ((piece->text != NULL) &&
        ((piece->len != text->len) ||
         (memcmp(piece->text, text->text, text->len) != 0))) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   FILE_NAME ": the added token %s has the id of "
                             "another",
                   bt_printable(text->text, text->len).text);
        return;
    }
    piece->text = text->text;
    piece->len = text->len;
    piece->rules = rules_of(v, token);
    piece->type = (bt_hf_is_true(v, token, "special") || looks_special(text))
                      ? BT_HF_TOKEN_CONTROL
                      : BT_HF_TOKEN_USER_DEFINED;
    bt_hf_vocab_index(v, (uint32_t)id);
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

bt_status_t bt_hf_read_vocab(bt_hf_t *hf, bt_hf_vocab_t *v)
{
    const bt_json_node_t *const vocab = bt_hf_member(v, v->model, "vocab");
    const bt_json_node_t *const added =
        bt_hf_member(v, v->root, "added_tokens");
    const uint8_t kind =
        (v->words == BT_HF_UNIGRAM) ? BT_JSON_ARRAY : BT_JSON_OBJECT;
    const bt_json_node_t *at;
    uint64_t n;

    if ((vocab == NULL) || (vocab->kind != kind) || (vocab->n == 0) ||
        ((added != NULL) && (added->kind != BT_JSON_ARRAY))) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          FILE_NAME ": vocab or added_tokens is missing or no "
                                    "list");
    }
    n = count_ids(hf, v, vocab, added);
    if ((hf->status != BT_OK) || (bt_hf_vocab_init(hf, v, n) != BT_OK)) {
        return hf->status;
    }
    if (kind == BT_JSON_ARRAY) {
        fill_scored(hf, v, vocab);
    } else {
        fill_named(hf, v, vocab);
    }
    at = (added != NULL) ? bt_json_first(added) : NULL;
    for (uint32_t i = 0; (added != NULL) && (i < added->n); i++) {
        add_token(hf, v, at);
        at = bt_json_next(v->doc, at);
    }
    drop_idle_rules(v);
    return hf->status;
}

/* Writes merges of BPE: as a list, or as scores. */

#define NO_RANK    UINT32_MAX
#define TEXT_BYTES 2048 /* most bytes of a merge */

/* Reads the two parts of a merge: "a b", or ["a","b"]. */
static bool parts_of(const bt_hf_vocab_t *v, const bt_json_node_t *merge,
                     bt_gguf_str_t *left_p, bt_gguf_str_t *right_p)
{
    const bt_json_node_t *a;
    const bt_json_node_t *b;

    if (merge->kind == BT_JSON_STRING) {
        /* Only in the newer form a part may contain a space. */
        const char *const space =
            (merge->len > 2) ? memchr(merge->text + 1, ' ', merge->len - 1)
                             : NULL;

        if (space == NULL) {
            return false;
        }
        *left_p = (bt_gguf_str_t){merge->text, (size_t)(space - merge->text)};
        *right_p = (bt_gguf_str_t){
            space + 1, merge->len - (size_t)(space - merge->text) - 1};
    } else {
        if ((merge->kind != BT_JSON_ARRAY) || (merge->n != 2)) {
            return false;
        }
        a = bt_json_first(merge);
        b = bt_json_next(v->doc, a);
        if ((a->kind != BT_JSON_STRING) || (b->kind != BT_JSON_STRING)) {
            return false;
        }
        *left_p = (bt_gguf_str_t){a->text, a->len};
        *right_p = (bt_gguf_str_t){b->text, b->len};
    }
    return (left_p->len > 0) && (right_p->len > 0) &&
           (left_p->len + right_p->len <= TEXT_BYTES);
}

static void bad_merge(bt_hf_t *hf, uint32_t i)
{
    bt_hf_fail(hf, BT_ERR_BAD_FILE,
               FILE_NAME ": merge %u does not join two tokens to a third", i);
}

/* @return NULL: there is no list, and the folder has failed */
static const bt_json_node_t *find_merges(bt_hf_t *hf, const bt_hf_vocab_t *v)
{
    const bt_json_node_t *const merges =
        bt_json_get(v->doc, v->model, "merges");

    if (!bt_json_is_kind(merges, BT_JSON_ARRAY)) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   FILE_NAME ": merges is missing or no list");
        return NULL;
    }
    return merges;
}

static bool is_special(const bt_hf_vocab_t *v, const char *text, size_t len)
{
    const uint32_t id = bt_hf_vocab_find(v, text, len);

    return (id != BT_HF_NO_TOKEN) &&
           ((v->pieces[id].type == BT_HF_TOKEN_CONTROL) ||
            (v->pieces[id].type == BT_HF_TOKEN_UNKNOWN));
}

/* Copies a part. In vocabularies of text a space is written as its mark, which
 * is equivalent. */
static size_t copy_part(const bt_hf_vocab_t *v, const bt_gguf_str_t *part,
                        char *out)
{
    static const char mark[] = "\xE2\x96\x81"; /* U+2581 */
    size_t n = 0;

    for (size_t i = 0; i < part->len; i++) {
        if ((part->data[i] == ' ') && v->marks_spaces) {
            memcpy(out + n, mark, sizeof(mark) - 1);
            n += sizeof(mark) - 1;
        } else {
            out[n++] = part->data[i];
        }
    }
    return n;
}

/* True when the part can be written: a space in a part could not be
 * distinguished from the separator. */
static bool can_be_written(const bt_hf_vocab_t *v, const bt_gguf_str_t *part)
{
    return v->marks_spaces || (memchr(part->data, ' ', part->len) == NULL);
}

/* @return false: the merge makes a special token of text, which no text
 *         becomes */
static bool is_of_text(const bt_hf_vocab_t *v, const bt_gguf_str_t *left,
                       const bt_gguf_str_t *right)
{
    char text[TEXT_BYTES];

    memcpy(text, left->data, left->len);
    memcpy(text + left->len, right->data, right->len);
    return !is_special(v, left->data, left->len) &&
           !is_special(v, right->data, right->len) &&
           !is_special(v, text, left->len + right->len);
}

static uint64_t count_merges(bt_hf_t *hf, const bt_hf_vocab_t *v,
                             const bt_json_node_t *merges)
{
    const bt_json_node_t *at = bt_json_first(merges);
    uint64_t n = 0;

    for (uint32_t i = 0; i < merges->n; i++) {
        bt_gguf_str_t left;
        bt_gguf_str_t right;

        if (!parts_of(v, at, &left, &right)) {
            bad_merge(hf, i);
            return 0;
        }
        if (!can_be_written(v, &left) || !can_be_written(v, &right)) {
            bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                       FILE_NAME ": merges of tokens with spaces are not "
                                 "supported (merge %u)",
                       i);
            return 0;
        }
        n += is_of_text(v, &left, &right);
        at = bt_json_next(v->doc, at);
    }
    return n;
}

bt_status_t bt_hf_put_merges(bt_hf_t *hf, const bt_hf_vocab_t *vocab)
{
    const bt_json_node_t *const merges = find_merges(hf, vocab);
    const bt_json_node_t *at;
    uint64_t n_merges = 0;

    if (merges != NULL) {
        n_merges = count_merges(hf, vocab, merges);
    }
    if (hf->status != BT_OK) {
        return hf->status;
    }
    bt_gguf_meta_array(&hf->meta, "tokenizer.ggml.merges", BT_GGUF_STRING,
                       n_merges);
    at = bt_json_first(merges);
    for (uint32_t i = 0; i < merges->n; i++) {
        char text[3 * TEXT_BYTES + 1];
        bt_gguf_str_t left;
        bt_gguf_str_t right;
        size_t n;

        if (parts_of(vocab, at, &left, &right) &&
            is_of_text(vocab, &left, &right)) {
            n = copy_part(vocab, &left, text);
            text[n++] = ' ';
            n += copy_part(vocab, &right, text + n);
            bt_gguf_meta_item_str(&hf->meta, text, n);
        }
        at = bt_json_next(vocab->doc, at);
    }
    return BT_OK;
}

/* ---- scores ---- */

/* Records the rank of each token's first merge; the merges of one token must be
 * consecutive. */
static void rank_tokens(bt_hf_t *hf, const bt_hf_vocab_t *v,
                        const bt_json_node_t *merges, uint32_t *ranks,
                        uint32_t *ways, bool *same_p)
{
    const bt_json_node_t *at = bt_json_first(merges);
    uint32_t before = BT_HF_NO_TOKEN;

    for (uint32_t i = 0; i < merges->n; i++) {
        char text[TEXT_BYTES];
        bt_gguf_str_t left;
        bt_gguf_str_t right;
        uint32_t id;

        if (!parts_of(v, at, &left, &right)) {
            bad_merge(hf, i);
            return;
        }
        memcpy(text, left.data, left.len);
        memcpy(text + left.len, right.data, right.len);
        id = bt_hf_vocab_find(v, text, left.len + right.len);
        if ((id == BT_HF_NO_TOKEN) ||
            (bt_hf_vocab_find(v, left.data, left.len) == BT_HF_NO_TOKEN) ||
            (bt_hf_vocab_find(v, right.data, right.len) == BT_HF_NO_TOKEN)) {
            bad_merge(hf, i);
            return;
        }
        if (ranks[id] == NO_RANK) {
            ranks[id] = i;
        } else if (id != before) {
            *same_p = false;
        }
        ways[id]++;
        before = id;
        at = bt_json_next(v->doc, at);
    }
}

/* Ways to make a token of two others must all be among the merges, since
 * merging by scores uses any of them. */
static uint32_t count_ways(const bt_hf_vocab_t *v, uint32_t id)
{
    const bt_hf_piece_t *const p = &v->pieces[id];
    const uint8_t *const text = (const uint8_t *)p->text;
    uint32_t n = 0;
    uint32_t cp;

    for (size_t at = (p->len > 0) ? bt_utf8_decode(text, &cp) : 0; at < p->len;
         at += bt_utf8_decode(text + at, &cp)) {
        n += (bt_hf_vocab_find(v, p->text, at) != BT_HF_NO_TOKEN) &&
             (bt_hf_vocab_find(v, p->text + at, p->len - at) != BT_HF_NO_TOKEN);
    }
    return n;
}

/* Merging by scores makes every token that is not special. */
static bool is_made(const bt_hf_piece_t *p)
{
    return (p->text != NULL) && ((p->type == BT_HF_TOKEN_NORMAL) ||
                                 (p->type == BT_HF_TOKEN_USER_DEFINED));
}

bt_status_t bt_hf_score_merges(bt_hf_t *hf, bt_hf_vocab_t *vocab, bool *same_p)
{
    const bt_json_node_t *const merges = find_merges(hf, vocab);
    BT_CLEANUP(free) uint32_t *ranks = NULL;
    BT_CLEANUP(free) uint32_t *ways = NULL;
    bool same = true;

    if (merges == NULL) {
        return hf->status;
    }
    ranks = bt_calloc(vocab->n, sizeof(*ranks));
    ways = bt_calloc(vocab->n, sizeof(*ways));
    if ((ranks == NULL) || (ways == NULL)) {
        return bt_hf_fail(hf, BT_ERR_NO_MEMORY, "out of memory");
    }
    memset(ranks, 0xFF, vocab->n * sizeof(*ranks));
    rank_tokens(hf, vocab, merges, ranks, ways, &same);
    if (hf->status != BT_OK) {
        return hf->status;
    }
    for (uint32_t i = 0; same && (i < vocab->n); i++) {
        same = !is_made(&vocab->pieces[i]) || (count_ways(vocab, i) == ways[i]);
    }
    for (uint32_t i = 0; same && (i < vocab->n); i++) {
        if (is_made(&vocab->pieces[i])) {
            vocab->pieces[i].score =
                (ranks[i] == NO_RANK) ? 0.0 : -(double)ranks[i];
        }
    }
    *same_p = same;
    return BT_OK;
}
