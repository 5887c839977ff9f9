/* SPDX-License-Identifier: Apache-2.0 */
/* Unigram: of all ways to write a text as pieces the one whose scores, the
 * logarithms of how likely each is, have the highest sum.
 *
 * Source: T. Kudo, "Subword Regularization", ACL 2018, section 3.2; a piece's
 *         penalty where a character is none, and ties (the way found first, so
 *         the one whose last piece is longest), as in SentencePiece. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/task.h"
#include "inference/tokenizer/encode.h"
#include "inference/tokenizer/unicode.h"

#define UNKNOWN_PENALTY 10.0
#define LARGE_SUM       100000.0

/* Best path to a position of the text, by its last piece. */
typedef struct bt_unigram_path {
    union {
        double score;
        size_t next; /* next position on the best path, once known */
    };
    uint32_t id;    /* BT_TOKEN_NONE: a character that is no piece */
    uint32_t bytes; /* bytes of the piece; 0: not reached yet */
} path_t;

/* ---- loading ---- */

typedef struct byte_name {
    char text[8];
} byte_name_t;

/* The library adds in double, SentencePiece itself in float, which differs
 * where two ways are as good but for the rounding. */
static double rounded(const bt_tokenizer_t *tok, double sum)
{
    return tok->float_sums ? (double)(float)sum : sum;
}

/* The library also takes the name of a byte's token for a piece. */
static uint32_t collect_bytes(const bt_tokenizer_t *tok, byte_name_t *names,
                              bt_trie_text_t *list)
{
    uint32_t n = 0;

    for (uint32_t b = 0; tok->as_spelled && (b < 256); b++) {
        uint32_t other;

        snprintf(names[b].text, sizeof(names[b].text), "<0x%02X>", b);
        if ((tok->byte_ids[b] != BT_TOKEN_NONE) &&
            !bt_text_table_get(&tok->texts, (const uint8_t *)names[b].text, 6,
                               &other)) {
            list[n++] = (bt_trie_text_t){(const uint8_t *)names[b].text, 6,
                                         tok->byte_ids[b]};
        }
    }
    return n;
}

static bt_status_t collect(const bt_tok_load_t *load, bt_trie_text_t *list,
                           uint32_t *n_p)
{
    bt_tokenizer_t *const tok = load->tok;
    uint32_t n = 0;
    double lowest = INFINITY;

    for (uint32_t i = 0; i < tok->arena.n; i++) {
        size_t bytes;
        const uint8_t *text = bt_text_arena_get(&tok->arena, i, &bytes);

        /* The library counts every piece of the model. */
        if ((tok->as_spelled ? (tok->scores[i] > -INFINITY)
                             : (tok->types[i] == BT_TOKEN_NORMAL)) &&
            (tok->scores[i] < lowest)) {
            lowest = tok->scores[i];
        }
        if (!bt_text_table_finds(&tok->texts, i)) {
            continue; /* a special token, or the double of another */
        }
        if (!bt_utf8_valid(text, bytes)) {
            return bt_tok_fail(load, BT_ERR_BAD_FILE, "token %u is not UTF-8",
                               i);
        }
        if ((tok->types[i] == BT_TOKEN_USER_DEFINED) && tok->as_spelled &&
            (tok->scores[i] == -INFINITY)) {
            continue; /* no piece, only found as an added token */
        }
        if ((tok->types[i] == BT_TOKEN_USER_DEFINED) && !tok->as_spelled) {
            tok->scores[i] = 0.0; /* before all others */
        }
        list[n++] = (bt_trie_text_t){text, (uint32_t)bytes, i};
    }
    tok->unknown_score =
        rounded(tok, ((n == 0) ? 0.0 : lowest) - UNKNOWN_PENALTY);
    *n_p = n;
    return BT_OK;
}

bt_status_t bt_tok_load_unigram(const bt_tok_load_t *load)
{
    bt_tokenizer_t *const tok = load->tok;
    bt_trie_text_t *list = bt_calloc((size_t)tok->arena.n + 256, sizeof(*list));
    byte_name_t names[256];
    uint32_t n = 0;
    bt_status_t status = BT_ERR_NO_MEMORY;

    tok->scores = bt_calloc(tok->arena.n, sizeof(*tok->scores));
    if ((list == NULL) || (tok->scores == NULL)) {
        goto out;
    }
    status = bt_tok_read_scores(load, tok->scores);
    if (status == BT_OK) {
        status = collect(load, list, &n);
    }
    if (status == BT_OK) {
        n += collect_bytes(tok, names, list + n);
        status = bt_trie_init(&tok->trie, list, n);
    }
    if (status == BT_OK) {
        status = bt_pair_table_init(&tok->pairs, 0);
    }
out:
    bt_free(list);
    return status;
}

/* ---- encoding ---- */

/* Makes a path the best to its end, unless a better one is known. */
static void extend(const bt_tokenizer_t *tok, path_t *path, double score,
                   uint32_t id, uint32_t bytes)
{
    score = rounded(tok, score);
    if ((path->bytes == 0) || (score > path->score)) {
        *path = (path_t){.score = score, .id = id, .bytes = bytes};
    }
}

typedef struct view {
    const uint8_t *text;
    size_t bytes;
} view_t;

/* Prepares the text in the pieces' form, with a space before it and one for
 * each U+2581, and a path to each of its positions. */
static bt_status_t prepare(bt_encoder_t *enc, const uint8_t *text, size_t bytes,
                           bool prefixed, view_t *view_p)
{
    uint8_t *view = bt_array_reserve(enc->view, &enc->view_cap, bytes + 1, 1);
    path_t *paths;

    if (view == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    enc->view = view;
    view[0] = ' ';
    bytes =
        prefixed + bt_tok_plain_text(enc->tok, text, bytes, view + prefixed);
    paths = bt_array_reserve(enc->paths, &enc->paths_cap, bytes + 1,
                             sizeof(*paths));
    if (paths == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    enc->paths = paths;
    for (size_t i = 0; i <= bytes; i++) {
        paths[i].bytes = 0;
    }
    paths[0].score = 0.0;
    *view_p = (view_t){view, bytes};
    return BT_OK;
}

/* Sums of floats lose precision: when one is large SentencePiece restarts from
 * 0, by subtracting it at all positions reached. */
static void rebase_sums(const bt_tokenizer_t *tok, view_t view, size_t at,
                        path_t *paths)
{
    const double score = paths[at].score;
    const size_t most = view.bytes - at;

    if (!tok->float_sums || (fabs(score) <= LARGE_SUM)) {
        return;
    }
    for (size_t i = 0; (i <= most) && ((i < 4) || (i <= tok->max_token_bytes));
         i++) {
        if ((i == 0) || (paths[at + i].bytes != 0)) {
            paths[at + i].score = rounded(tok, paths[at + i].score - score);
        }
    }
}

/* Extends the best path to a position by all pieces that begin there. */
static void extend_by_pieces(const bt_tokenizer_t *tok, view_t view, size_t at,
                             unsigned len, path_t *paths)
{
    const double score = paths[at].score;
    bool has_char = false;
    uint32_t node = 0;

    for (size_t i = at; i < view.bytes; i++) {
        uint32_t id;

        node = bt_trie_child(&tok->trie, node, view.text[i]);
        if (node == BT_TRIE_NONE) {
            break;
        }
        id = tok->trie.nodes[node].id;
        if (id != BT_TRIE_NONE) {
            extend(tok, &paths[i + 1], score + tok->scores[id], id,
                   (uint32_t)(i + 1 - at));
            has_char = has_char || (i + 1 - at == len);
        }
    }
    if (!has_char) {
        extend(tok, &paths[at + len], score + tok->unknown_score, BT_TOKEN_NONE,
               len);
    }
}

static bt_status_t push_best(bt_encoder_t *enc, view_t view)
{
    unsigned steps = 0;
    path_t *paths = enc->paths;
    bt_status_t status = BT_OK;
    size_t next = view.bytes;

    while (next > 0) {
        const size_t from = next - paths[next].bytes;

        paths[from].next = next;
        next = from;
    }
    for (size_t at = 0; (status == BT_OK) && (at < view.bytes); at = next) {
        next = paths[at].next;
        if (bt_task_poll_every(&steps)) {
            return BT_ERR_CANCELED;
        }
        if (paths[next].id == BT_TOKEN_NONE) {
            uint32_t cp;

            bt_utf8_decode(view.text + at, &cp);
            status = bt_encode_bare_char(enc, cp);
        } else {
            enc->in_unknown = false;
            status = bt_encode_push(enc, paths[next].id);
        }
    }
    return status;
}

bt_status_t bt_encode_unigram(bt_encoder_t *enc, const uint8_t *text,
                              size_t bytes, bool prefixed)
{
    view_t view;
    unsigned steps = 0;
    const bt_status_t status = prepare(enc, text, bytes, prefixed, &view);

    if (status != BT_OK) {
        return status;
    }
    for (size_t at = 0; at < view.bytes;) {
        uint32_t cp;
        const unsigned len = bt_utf8_decode(view.text + at, &cp);

        if (bt_task_poll_every(&steps)) {
            return BT_ERR_CANCELED;
        }
        rebase_sums(enc->tok, view, at, enc->paths);
        extend_by_pieces(enc->tok, view, at, len, enc->paths);
        at += len;
    }
    return push_best(enc, view);
}
