/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "inference/tokenizer/tokenizer_priv.h"
#include "inference/tokenizer/unicode.h"

#define KEY_MERGES "tokenizer.ggml.merges"
#define KEY_SCORES "tokenizer.ggml.scores"
#define KEY_EXACT  "baton.tokenizer.scores"

/* Decodes a part of a merge to the arena's form. */
static size_t token_text(const bt_tokenizer_t *tok, const uint8_t *text,
                         size_t bytes, uint8_t *out)
{
    return tok->is_spm ? bt_tok_plain_text(tok, text, bytes, out)
                       : bt_bytelevel_decode(text, bytes, out);
}

/* Parses "left right" to the three ids. */
static bool parse_merge(const bt_tokenizer_t *tok, const bt_gguf_str_t *text,
                        uint32_t *left_p, uint32_t *right_p, uint32_t *merged_p)
{
    const uint8_t *bytes = (const uint8_t *)text->data;
    uint8_t buf[2 * BT_TOK_MAX_TOKEN_BYTES];
    const uint8_t *space;
    size_t n_text;
    size_t n_left;
    size_t n_right;

    if ((text->len < 3) || (text->len > sizeof(buf))) {
        return false;
    }
    space = memchr(bytes + 1, ' ', text->len - 1);
    if (space == NULL) {
        return false;
    }
    n_text = (size_t)(space - bytes);
    n_left = token_text(tok, bytes, n_text, buf);
    n_right = token_text(tok, space + 1, text->len - n_text - 1, buf + n_left);
    return bt_text_table_get(&tok->texts, buf, n_left, left_p) &&
           bt_text_table_get(&tok->texts, buf + n_left, n_right, right_p) &&
           bt_text_table_get(&tok->texts, buf, n_left + n_right, merged_p);
}

/* Orders merges without a list, as tiktoken does: of all pairs that make a
 * token, the one whose token has the lower id comes first. */
static bt_status_t merges_by_id(bt_tokenizer_t *tok)
{
    bt_status_t status = bt_pair_table_init(&tok->pairs, tok->arena.n);

    for (uint32_t id = 0; (status == BT_OK) && (id < tok->arena.n); id++) {
        size_t n;
        const uint8_t *p = bt_text_arena_get(&tok->arena, id, &n);
        uint32_t left;
        uint32_t right;

        if ((tok->types[id] != BT_TOKEN_NORMAL) ||
            !bt_text_table_finds(&tok->texts, id)) {
            continue;
        }
        for (size_t at = 1; (status == BT_OK) && (at < n); at++) {
            if (bt_text_table_get(&tok->texts, p, at, &left) &&
                bt_text_table_get(&tok->texts, p + at, n - at, &right)) {
                status = bt_pair_table_put(&tok->pairs, left, right, id, id);
            }
        }
    }
    return status;
}

bt_status_t bt_tok_load_merges(const bt_tok_load_t *load)
{
    bt_tokenizer_t *const tok = load->tok;
    uint64_t n = 0;
    bt_status_t status = bt_gguf_array_len(load->gguf, KEY_MERGES, &n);

    if ((status == BT_ERR_NOT_FOUND) && tok->by_id) {
        return merges_by_id(tok);
    }
    if ((status != BT_OK) || (n >= BT_NO_RANK)) {
        return bt_tok_fail(load, BT_ERR_BAD_FILE, "%s is not a list of merges",
                           KEY_MERGES);
    }
    status = bt_pair_table_init(&tok->pairs, n);
    for (uint32_t rank = 0; (status == BT_OK) && (rank < n); rank++) {
        bt_gguf_str_t text;
        uint32_t left;
        uint32_t right;
        uint32_t merged;

        if ((bt_gguf_array_str(load->gguf, KEY_MERGES, rank, &text) != BT_OK) ||
            !parse_merge(tok, &text, &left, &right, &merged)) {
            return bt_tok_fail(
                load, BT_ERR_BAD_FILE,
                "merge %u of %s does not join two tokens to a third", rank,
                KEY_MERGES);
        }
        status = bt_pair_table_put(&tok->pairs, left, right, rank, merged);
    }
    return status;
}

typedef struct scored {
    double score;
    uint32_t id;
} scored_t;

/* Best score first; qsort() needs no stability, equal scores share a rank. */
static int compare_scored(const void *a, const void *b)
{
    const scored_t *x = a;
    const scored_t *y = b;

    return (x->score < y->score) - (x->score > y->score);
}

bt_status_t bt_tok_read_scores(const bt_tok_load_t *load, double *scores)
{
    const bt_tokenizer_t *const tok = load->tok;
    const char *const key =
        bt_gguf_has(load->gguf, KEY_EXACT) ? KEY_EXACT : KEY_SCORES;
    uint64_t n = 0;

    if ((bt_gguf_array_len(load->gguf, key, &n) != BT_OK) ||
        (n != tok->arena.n)) {
        return bt_tok_fail(load, BT_ERR_BAD_FILE,
                           "%s does not fit the %u tokens", key, tok->arena.n);
    }
    for (uint32_t i = 0; i < n; i++) {
        if ((bt_gguf_array_f64(load->gguf, key, i, &scores[i]) != BT_OK) ||
            isnan(scores[i])) {
            return bt_tok_fail(load, BT_ERR_BAD_FILE,
                               "%s of token %u is not a number", key, i);
        }
    }
    return BT_OK;
}

uint32_t bt_tok_char_symbol(const bt_tokenizer_t *tok, const uint8_t *p,
                            unsigned len, uint32_t cp)
{
    uint32_t id;

    if (len == 1) {
        return tok->ascii_symbols[cp];
    }
    return bt_text_table_get(&tok->texts, p, len, &id) ? id
                                                       : BT_TOK_BARE_CHAR | cp;
}

/* Returns the symbol of a part of a piece, if merging can produce it. */
static bool part_symbol(const bt_tokenizer_t *tok, const uint8_t *p, size_t n,
                        uint32_t *symbol_p)
{
    uint32_t cp;
    const unsigned first = bt_utf8_decode(p, &cp);

    if (first == n) {
        *symbol_p = bt_tok_char_symbol(tok, p, first, cp);
        return true;
    }
    return bt_text_table_get(&tok->texts, p, n, symbol_p);
}

/* Adds every way to make the piece from two parts with the piece's own rank. */
static bt_status_t add_piece(bt_tokenizer_t *tok, uint32_t id, uint32_t rank)
{
    size_t n;
    const uint8_t *p = bt_text_arena_get(&tok->arena, id, &n);
    bt_status_t status = BT_OK;
    uint32_t left;
    uint32_t right;
    uint32_t cp;

    for (size_t at = bt_utf8_decode(p, &cp); (status == BT_OK) && (at < n);
         at += bt_utf8_decode(p + at, &cp)) {
        if (part_symbol(tok, p, at, &left) &&
            part_symbol(tok, p + at, n - at, &right)) {
            status = bt_pair_table_put(&tok->pairs, left, right, rank, id);
        }
    }
    return status;
}

static bt_status_t add_pieces(const bt_tok_load_t *load, const scored_t *list)
{
    bt_tokenizer_t *const tok = load->tok;
    bt_status_t status = BT_OK;
    uint32_t rank = 0;

    for (uint32_t i = 0; (status == BT_OK) && (i < tok->arena.n); i++) {
        const uint32_t id = list[i].id;
        size_t n;
        const uint8_t *text = bt_text_arena_get(&tok->arena, id, &n);

        if ((i > 0) && (list[i].score < list[i - 1].score)) {
            rank++;
        }
        if (!bt_text_table_finds(&tok->texts, id)) {
            continue; /* a special token, or the double of another */
        }
        if (!bt_utf8_valid(text, n)) {
            return bt_tok_fail(load, BT_ERR_BAD_FILE, "token %u is not UTF-8",
                               id);
        }
        status = add_piece(tok, id, rank);
    }
    return status;
}

bt_status_t bt_tok_load_scores(const bt_tok_load_t *load)
{
    bt_tokenizer_t *const tok = load->tok;
    scored_t *list = bt_calloc(tok->arena.n, sizeof(*list));
    double *scores = bt_calloc(tok->arena.n, sizeof(*scores));
    bt_status_t status = BT_ERR_NO_MEMORY;

    if ((list == NULL) || (scores == NULL)) {
        goto out;
    }
    status = bt_tok_read_scores(load, scores);
    if (status != BT_OK) {
        goto out;
    }
    for (uint32_t i = 0; i < tok->arena.n; i++) {
        list[i] = (scored_t){scores[i], i};
    }
    qsort(list, tok->arena.n, sizeof(*list), compare_scored);
    status = bt_pair_table_init(&tok->pairs, tok->arena.n);
    if (status != BT_OK) {
        goto out;
    }
    status = add_pieces(load, list);
out:
    bt_free(scores);
    bt_free(list);
    return status;
}

/* Loads the tokens that are matched as text before any other step, their rules,
 * and the tokens that end a turn. */

#define KEY_TOKENS "tokenizer.ggml.tokens"
#define KEY_NAME   "general.name"
#define NORMALIZED 8u /* flag beside bt_special_rule_bits_t */

static const struct {
    const char *key;
    unsigned rule;
} rule_keys[] = {
    {"baton.tokenizer.lstrip", BT_SPECIAL_LSTRIP},
    {"baton.tokenizer.rstrip", BT_SPECIAL_RSTRIP},
    {"baton.tokenizer.single_word", BT_SPECIAL_SINGLE_WORD},
    {BT_TOK_KEY_NORMALIZED, NORMALIZED},
};

static bool is_added(const bt_tokenizer_t *tok, uint32_t id)
{
    return bt_token_is_special(tok->types[id]) ||
           (tok->types[id] == BT_TOKEN_USER_DEFINED);
}

static bool is_phi3(const bt_gguf_t *gguf)
{
    bt_gguf_str_t name;

    if (bt_gguf_get_str(gguf, KEY_NAME, &name) != BT_OK) {
        return false;
    }
    for (size_t i = 0; i + 4 <= name.len; i++) {
        if ((strncasecmp(name.data + i, "phi3", 4) == 0) ||
            ((i + 5 <= name.len) &&
             (strncasecmp(name.data + i, "phi-3", 5) == 0))) {
            return true;
        }
    }
    return false;
}

static bool text_is(const bt_tokenizer_t *tok, uint32_t id, const char *text)
{
    size_t n;
    const uint8_t *bytes = bt_text_arena_get(&tok->arena, id, &n);

    return (n == strlen(text)) && (memcmp(bytes, text, n) == 0);
}

/* Rule that published files of Phi-3 omit: white space behind all of its
 * special tokens but three is part of them. */
static void use_phi3_rules(const bt_tokenizer_t *tok, uint8_t *rules)
{
    static const char *const others[] = {"<unk>", "<s>", "<|endoftext|>"};

    for (uint32_t id = 0; id < tok->arena.n; id++) {
        rules[id] = BT_SPECIAL_RSTRIP;
        for (size_t i = 0; is_added(tok, id) && (i < BT_ARRAY_LEN(others));
             i++) {
            if (text_is(tok, id, others[i])) {
                rules[id] = 0;
            }
        }
    }
}

static bt_status_t read_rules(const bt_tok_load_t *load, uint8_t *rules)
{
    const bt_tokenizer_t *const tok = load->tok;
    if (!tok->as_spelled && is_phi3(load->gguf)) {
        use_phi3_rules(tok, rules);
    }
    for (size_t r = 0; r < BT_ARRAY_LEN(rule_keys); r++) {
        uint64_t n = 0;

        if (!bt_gguf_has(load->gguf, rule_keys[r].key)) {
            continue;
        }
        if (bt_gguf_array_len(load->gguf, rule_keys[r].key, &n) != BT_OK) {
            n = 1; /* not even a list: said below */
        }
        for (uint64_t i = 0; i < n; i++) {
            int64_t id = -1;

            if ((bt_gguf_array_i64(load->gguf, rule_keys[r].key, i, &id) !=
                 BT_OK) ||
                (id < 0) || (id >= tok->arena.n) ||
                !is_added(tok, (uint32_t)id)) {
                return bt_tok_fail(
                    load, BT_ERR_BAD_FILE,
                    "%s is no list of special or user-defined tokens",
                    rule_keys[r].key);
            }
            rules[id] = (uint8_t)(rules[id] | rule_keys[r].rule);
        }
    }
    return BT_OK;
}

/* Adds a token by the text that it is matched by: the file's, since the arena's
 * has spaces for their marks, which is right only for files without further
 * keys. */
static bt_status_t add_one(const bt_tok_load_t *load, bt_normal_work_t *work,
                           uint32_t id, unsigned rules)
{
    bt_tokenizer_t *const tok = load->tok;
    size_t n;
    const uint8_t *text = bt_text_arena_get(&tok->arena, id, &n);
    bt_special_t *const into =
        ((rules & NORMALIZED) != 0) ? &tok->special_normal : &tok->special;
    bt_gguf_str_t spelled;

    if (tok->as_spelled) {
        if (bt_gguf_array_str(load->gguf, KEY_TOKENS, id, &spelled) != BT_OK) {
            return BT_ERR_BAD_FILE;
        }
        text = (const uint8_t *)spelled.data;
        n = spelled.len;
    }
    if (((rules & NORMALIZED) != 0) && bt_utf8_valid(text, n)) {
        const bt_status_t status =
            bt_normalize(&tok->normal, work, text, n, &text, &n, NULL);

        if (status != BT_OK) {
            return status;
        }
    }
    return bt_special_add(into, text, n, id,
                          bt_token_is_special(tok->types[id]),
                          rules & ~NORMALIZED);
}

static bt_status_t add_all(const bt_tok_load_t *load, const uint8_t *rules)
{
    bt_tokenizer_t *const tok = load->tok;
    bt_normal_work_t work = {0};
    bt_status_t status = bt_special_init(&tok->special);

    if (status == BT_OK) {
        status = bt_special_init(&tok->special_normal);
    }
    for (uint32_t id = 0; (status == BT_OK) && (id < tok->arena.n); id++) {
        if (is_added(tok, id)) {
            status = add_one(load, &work, id, rules[id]);
        }
    }
    bt_normal_work_fini(&work);
    return status;
}

/* Returns the id of an added token; arena.n: there is none. */
static uint32_t find_added(const bt_tokenizer_t *tok, const char *text)
{
    uint32_t id = 0;

    while ((id < tok->arena.n) &&
           !(is_added(tok, id) && text_is(tok, id, text))) {
        id++;
    }
    return id;
}

/* In vocabularies of the Harmony format <|end|> ends a message, which others
 * may follow. */
static void drop_message_end(bt_tokenizer_t *tok)
{
    const uint32_t id = find_added(tok, "<|end|>");
    uint32_t n = 0;

    for (uint32_t i = 0; i < tok->n_end_ids; i++) {
        if (tok->end_ids[i] != id) {
            tok->end_ids[n++] = tok->end_ids[i];
        }
    }
    tok->n_end_ids = n;
}

static void add_end_id(bt_tokenizer_t *tok, const char *text)
{
    const uint32_t id = find_added(tok, text);
    bool have = (id == tok->arena.n);

    for (uint32_t k = 0; !have && (k < tok->n_end_ids); k++) {
        have = (tok->end_ids[k] == id);
    }
    if (!have && (tok->n_end_ids < BT_TOK_MAX_END_IDS)) {
        tok->end_ids[tok->n_end_ids++] = id;
    }
}

/* Tokens that end a turn in known families, whether or not the file says so. */
static void add_known_end_ids(bt_tokenizer_t *tok)
{
    static const char *const known[] = {
        "<|im_end|>", "<|eot_id|>",    "<|eom_id|>",      "<end_of_turn>",
        "<|end|>",    "<|endoftext|>", "<|end_of_text|>", "</s>",
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(known); i++) {
        add_end_id(tok, known[i]);
    }
    if ((find_added(tok, "<|channel|>") < tok->arena.n) &&
        (find_added(tok, "<|return|>") < tok->arena.n)) {
        drop_message_end(tok);
        add_end_id(tok, "<|return|>");
        add_end_id(tok, "<|call|>");
    }
}

bt_status_t bt_tok_load_added(const bt_tok_load_t *load)
{
    bt_tokenizer_t *const tok = load->tok;
    uint8_t *const rules = bt_calloc(tok->arena.n, 1);
    bt_status_t status;

    if (rules == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    status = read_rules(load, rules);
    if (status == BT_OK) {
        status = add_all(load, rules);
    }
    if (status == BT_OK) {
        add_known_end_ids(tok);
    }
    bt_free(rules);
    return status;
}
