/* SPDX-License-Identifier: Apache-2.0 */
/* Merges of BPE: as they stand, or as scores. */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/utf8.h"
#include "inference/hf/vocab.h"

#define FILE_NAME  "tokenizer.json"
#define NO_RANK    UINT32_MAX
#define TEXT_BYTES 1024 /* of a merge, at most */

/* The two parts of a merge: "a b", or ["a","b"]. */
static bool parts_of(const bt_hf_vocab_t *v, const bt_json_node_t *merge,
                     bt_gguf_str_t *left_p, bt_gguf_str_t *right_p)
{
    const bt_json_node_t *a;
    const bt_json_node_t *b;

    if (merge->kind == BT_JSON_STRING) {
        /* A part may be a space only in the newer form. */
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
           (left_p->len + right_p->len < TEXT_BYTES);
}

static bt_status_t bad_merge(const bt_hf_t *hf, uint32_t i)
{
    return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                      FILE_NAME ": merge %u does not join two tokens to a "
                                "third",
                      i);
}

static bt_status_t find_merges(const bt_hf_t *hf, const bt_hf_vocab_t *v,
                               const bt_json_node_t **merges_p)
{
    const bt_json_node_t *const merges =
        bt_json_get(v->doc, v->model, "merges");

    if ((merges == NULL) || (merges->kind != BT_JSON_ARRAY)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          FILE_NAME ": merges is missing or no list");
    }
    *merges_p = merges;
    return BT_OK;
}

bt_status_t bt_hf_put_merges(bt_hf_t *hf, const bt_hf_vocab_t *vocab)
{
    const bt_json_node_t *merges = NULL;
    const bt_json_node_t *at;
    bt_status_t status = find_merges(hf, vocab, &merges);

    if (status != BT_OK) {
        return status;
    }
    bt_gguf_meta_array(&hf->meta, "tokenizer.ggml.merges", BT_GGUF_META_STR,
                       merges->n);
    at = bt_json_first(merges);
    for (uint32_t i = 0; i < merges->n; i++) {
        char text[TEXT_BYTES + 1];
        bt_gguf_str_t left;
        bt_gguf_str_t right;

        /* Byte-level tokens have no spaces: where one is, nothing is joined. */
        if (!parts_of(vocab, at, &left, &right) ||
            (memchr(left.data, ' ', left.len) != NULL) ||
            (memchr(right.data, ' ', right.len) != NULL)) {
            return bad_merge(hf, i);
        }
        memcpy(text, left.data, left.len);
        text[left.len] = ' ';
        memcpy(text + left.len + 1, right.data, right.len);
        bt_gguf_meta_item_str(&hf->meta, text, left.len + 1 + right.len);
        at = bt_json_next(vocab->doc, at);
    }
    return BT_OK;
}

/* ---- scores ---- */

/* Rank of each token's first merge; all of one token's stand together. */
static bt_status_t rank_tokens(const bt_hf_t *hf, const bt_hf_vocab_t *v,
                               const bt_json_node_t *merges, uint32_t *ranks,
                               uint32_t *ways)
{
    const bt_json_node_t *at = bt_json_first(merges);
    uint32_t before = BT_HF_NO_TOKEN;

    for (uint32_t i = 0; i < merges->n; i++) {
        char text[TEXT_BYTES];
        bt_gguf_str_t left;
        bt_gguf_str_t right;
        uint32_t id;

        if (!parts_of(v, at, &left, &right)) {
            return bad_merge(hf, i);
        }
        memcpy(text, left.data, left.len);
        memcpy(text + left.len, right.data, right.len);
        id = bt_hf_vocab_find(v, text, left.len + right.len);
        if ((id == BT_HF_NO_TOKEN) ||
            (bt_hf_vocab_find(v, left.data, left.len) == BT_HF_NO_TOKEN) ||
            (bt_hf_vocab_find(v, right.data, right.len) == BT_HF_NO_TOKEN)) {
            return bad_merge(hf, i);
        }
        if (ranks[id] == NO_RANK) {
            ranks[id] = i;
        } else if (id != before) {
            return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                              FILE_NAME ": merges with byte_fallback that are "
                                        "not in the order of their tokens are "
                                        "not supported (merge %u)",
                              i);
        }
        ways[id]++;
        before = id;
        at = bt_json_next(v->doc, at);
    }
    return BT_OK;
}

/* Ways to make a token of two others, all of which must be among the merges:
 * whoever merges by scores takes any. */
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

bt_status_t bt_hf_score_merges(const bt_hf_t *hf, bt_hf_vocab_t *vocab)
{
    const bt_json_node_t *merges = NULL;
    uint32_t *ranks = NULL;
    uint32_t *ways = NULL;
    bt_status_t status = find_merges(hf, vocab, &merges);

    if (status != BT_OK) {
        return status;
    }
    ranks = bt_calloc(vocab->n, sizeof(*ranks));
    ways = bt_calloc(vocab->n, sizeof(*ways));
    if ((ranks == NULL) || (ways == NULL)) {
        status = bt_hf_fail(hf, BT_ERR_NO_MEMORY, "out of memory");
        goto out;
    }
    memset(ranks, 0xFF, vocab->n * sizeof(*ranks));
    status = rank_tokens(hf, vocab, merges, ranks, ways);
    for (uint32_t i = 0; (status == BT_OK) && (i < vocab->n); i++) {
        bt_hf_piece_t *const p = &vocab->pieces[i];

        if ((p->text == NULL) || (p->type != BT_HF_TOKEN_NORMAL)) {
            continue;
        }
        if (count_ways(vocab, i) != ways[i]) {
            status = bt_hf_fail(
                hf, BT_ERR_UNSUPPORTED,
                FILE_NAME ": merges with byte_fallback that leave out a way to "
                          "make the token %s are not supported",
                bt_shown(p->text, p->len).text);
        }
        p->score = (ranks[i] == NO_RANK) ? 0.0f : -(float)ranks[i];
    }
out:
    bt_free(ways);
    bt_free(ranks);
    return status;
}
