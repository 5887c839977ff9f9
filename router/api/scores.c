/* SPDX-License-Identifier: Apache-2.0 */
#include "router/api/scores.h"

#include <string.h>

#include "common/base/alloc.h"

#define TEXT_LIMIT (64u << 20)

/* Appends the text of a prompt's token. */
static void echo_token(bt_detok_t *detok, uint32_t id, bool is_first,
                       bt_strbuf_t *out)
{
    bool is_special = false;
    size_t n = 0;
    const uint8_t *bytes = bt_token_bytes(detok->tok, id, &n, &is_special);

    if (!is_special) {
        bt_detok_push(detok, id, out);
    } else if (!is_first || (id != bt_tokenizer_bos(detok->tok))) {
        bt_detok_finish(detok, out);
        bt_strbuf_append(out, bytes, n);
    }
}

void bt_echo_ids(const bt_tokenizer_t *tok, const uint32_t *ids, uint32_t n,
                 bt_strbuf_t *out)
{
    bt_detok_t detok;

    bt_detok_init(&detok, tok);
    for (uint32_t i = 0; i < n; i++) {
        echo_token(&detok, ids[i], i == 0, out);
    }
    bt_detok_finish(&detok, out);
}

void bt_score_walk_init(bt_score_walk_t *walk, const bt_tokenizer_t *tok,
                        bool wants_offsets, bool shows_special)
{
    memset(walk, 0, sizeof(*walk));
    walk->tok = tok;
    walk->wants_offsets = wants_offsets;
    walk->shows_special = shows_special;
    bt_strbuf_init(&walk->text, TEXT_LIMIT);
    bt_detok_init(&walk->detok, tok);
    walk->detok.shows_special = shows_special;
}

void bt_score_walk_fini(bt_score_walk_t *walk)
{
    bt_strbuf_fini(&walk->text);
    bt_free(walk->offsets);
    memset(walk, 0, sizeof(*walk));
}

size_t bt_n_characters(const char *text, size_t bytes)
{
    size_t n = 0;

    for (size_t i = 0; i < bytes; i++) { /* bytes that begin one */
        n += (((unsigned char)text[i] & 0xc0) != 0x80) ? 1 : 0;
    }
    return n;
}

/* Starts the answer: an incomplete character at the prompt's end stays
 * incomplete. */
static void cross(bt_score_walk_t *walk)
{
    bt_strbuf_reset(&walk->text);
    bt_detok_finish(&walk->detok, &walk->text);
    walk->n_chars += (uint32_t)bt_n_characters(walk->text.data, walk->text.len);
    bt_detok_init(&walk->detok, walk->tok);
    walk->detok.shows_special = walk->shows_special;
}

static void add_offset(bt_score_walk_t *walk, const bt_gen_rows_t *rows)
{
    const uint32_t id = rows->scores.ids[walk->n];

    if ((walk->n == rows->n_front) && (walk->n > 0)) {
        cross(walk);
    }
    walk->offsets[walk->n] = walk->n_chars;
    bt_strbuf_reset(&walk->text);
    if (walk->n < rows->n_front) {
        echo_token(&walk->detok, id, walk->n == 0, &walk->text);
    } else {
        bt_detok_push(&walk->detok, id, &walk->text);
    }
    walk->n_chars += (uint32_t)bt_n_characters(walk->text.data, walk->text.len);
}

bt_status_t bt_score_walk_on(bt_score_walk_t *walk, const bt_gen_rows_t *rows)
{
    if (walk->wants_offsets &&
        !bt_array_grow(&walk->offsets, &walk->cap, rows->scores.n,
                       sizeof(*walk->offsets))) {
        return BT_ERR_NO_MEMORY;
    }
    for (; walk->n < rows->scores.n; walk->n++) {
        if (walk->wants_offsets &&
            !(walk->skips_front && (walk->n < rows->n_front))) {
            add_offset(walk, rows);
        }
        if (walk->n >= rows->n_front) {
            walk->cum_logprob += rows->scores.logprobs[walk->n];
        }
    }
    return bt_strbuf_status(&walk->text);
}
