/* SPDX-License-Identifier: Apache-2.0 */
/* Input: length of the text, u16 | the text | a GGUF file with a vocabulary.
 * So both what clients send and what files hold is altered. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "inference/tokenizer/normal.h"
#include "inference/tokenizer/pretok.h"
#include "inference/tokenizer/tokenizer_priv.h"
#include "inference/tokenizer/unicode.h"

#define MAX_TOKENS 100000

static void cut_into_words(const uint8_t *text, size_t bytes)
{
    static const bt_pretok_t all[] = {BT_PRETOK_GPT2, BT_PRETOK_SMOLLM,
                                      BT_PRETOK_LLAMA_BPE, BT_PRETOK_QWEN2};

    for (size_t i = 0; i < BT_ARRAY_LEN(all); i++) {
        size_t at = 0;

        while (at < bytes) {
            const size_t n = bt_pretok_next(all[i], text + at, bytes - at);

            BT_ASSERT_ALWAYS((n > 0) && (n <= bytes - at));
            BT_ASSERT_ALWAYS(bt_utf8_valid(text + at, n));
            at += n;
        }
    }
}

/* One rule after the other, each made once and kept: the whole text comes back
 * in words, in order. */
static void cut_by_rules(const uint8_t *text, size_t bytes)
{
    static bt_splits_t *made[128];
    static size_t next;
    const bt_pretok_names_t *kind = bt_pretok_names_at(next);
    bt_splits_scan_t scan;
    char why[200];
    size_t at = 0;
    size_t from;
    size_t to;

    if (kind == NULL) {
        next = 0;
        kind = bt_pretok_names_at(0);
    }
    BT_ASSERT_ALWAYS(next < BT_ARRAY_LEN(made));
    if (kind->plain_text) {
        next++;
        return;
    }
    if ((made[next] == NULL) &&
        (bt_splits_create(kind->rule.splits, kind->rule.n_splits, why,
                          sizeof(why), &made[next]) != BT_OK)) {
        return;
    }
    bt_splits_start(&scan, made[next++], text, bytes);
    while (bt_splits_next(&scan, &from, &to)) {
        BT_ASSERT_ALWAYS((from == at) && (to > from) && (to <= bytes));
        BT_ASSERT_ALWAYS(bt_utf8_valid(text + from, to - from));
        at = to;
    }
    BT_ASSERT_ALWAYS(at == bytes);
}

/* A form of a form is the same. */
static void normalize(const uint8_t *text, size_t bytes)
{
    static const bt_normal_form_t forms[] = {BT_NORMAL_NFC, BT_NORMAL_NFD,
                                             BT_NORMAL_NFKC, BT_NORMAL_NFKD};

    for (size_t i = 0; i < BT_ARRAY_LEN(forms); i++) {
        bt_normal_t normal = {0};
        bt_normal_work_t work = {0};
        bt_normal_work_t again = {0};
        const uint8_t *once;
        const uint8_t *twice;
        size_t n;
        size_t n_twice;

        BT_ASSERT_ALWAYS(bt_normal_add(&normal, BT_NORMAL_FORM, forms[i], NULL,
                                       NULL, NULL, 0) == BT_OK);
        BT_ASSERT_ALWAYS(bt_normalize(&normal, &work, text, bytes, &once, &n,
                                      NULL) == BT_OK);
        BT_ASSERT_ALWAYS(bt_utf8_valid(once, n));
        BT_ASSERT_ALWAYS(bt_normalize(&normal, &again, once, n, &twice,
                                      &n_twice, NULL) == BT_OK);
        BT_ASSERT_ALWAYS((n == n_twice) &&
                         ((n == 0) || (memcmp(once, twice, n) == 0)));
        bt_normal_work_fini(&work);
        bt_normal_work_fini(&again);
        bt_normal_fini(&normal);
    }
}

/* Whole characters after every push. */
static void back_to_text(const bt_tokenizer_t *tok, const bt_token_vec_t *ids)
{
    bt_strbuf_t out;
    bt_detok_t detok;

    bt_strbuf_init(&out, 1u << 24);
    bt_detok_init(&detok, tok);
    bt_detok_init(&detok, tok);
    for (size_t i = 0; i < ids->n; i++) {
        const size_t before = out.len;

        BT_ASSERT_ALWAYS(ids->ids[i] < bt_tokenizer_n_vocab(tok));
        bt_detok_push(&detok, ids->ids[i], &out);
        BT_ASSERT_ALWAYS((out.len == before) ||
                         bt_utf8_valid((const uint8_t *)out.data + before,
                                       out.len - before));
    }
    bt_detok_finish(&detok, &out);
    BT_ASSERT_ALWAYS(bt_utf8_valid((const uint8_t *)out.data, out.len));
    bt_strbuf_fini(&out);
}

/* What is somebody's own words, all of it or the second half, has no control
 * token. The unknown one is of text. */
static void quote(const bt_tokenizer_t *tok, const char *text, size_t bytes)
{
    size_t half = bytes / 2;

    while ((half < bytes) && (((uint8_t)text[half] & 0xC0) == 0x80)) {
        half++;
    }
    for (size_t begin = 0; begin <= half; begin += (half == 0) ? 1 : half) {
        bt_quote_t list = {begin, bytes};
        const bt_quotes_t quotes = {&list, begin < bytes, 1};
        bt_token_vec_t ids = {0};
        const bt_status_t status =
            bt_tokenize_quoting(tok, text, bytes, &quotes, MAX_TOKENS, &ids);

        for (size_t i = 0; (status == BT_OK) && (begin == 0) && (i < ids.n);
             i++) {
            BT_ASSERT_ALWAYS((ids.ids[i] == tok->unk) ||
                             (tok->types[ids.ids[i]] != BT_TOKEN_CONTROL));
        }
        bt_free(ids.ids);
    }
}

static void use(const bt_tokenizer_t *tok, const char *text, size_t bytes)
{
    const bool valid = bt_utf8_valid((const uint8_t *)text, bytes);
    bt_token_vec_t ids = {0};
    bt_detok_t detok;
    bt_strbuf_t out;

    for (unsigned flags = 0; flags <= 3; flags++) {
        const bt_status_t status =
            bt_tokenize(tok, text, bytes, flags, MAX_TOKENS, &ids);

        BT_ASSERT_ALWAYS((status == BT_ERR_INVALID_PARAM) == !valid);
        BT_ASSERT_ALWAYS((status == BT_OK) || (ids.n == 0));
        back_to_text(tok, &ids);
        if ((status == BT_OK) && (ids.n > 0)) {
            const size_t n = ids.n; /* a limit one lower must be told */

            ids.n = 0;
            BT_ASSERT_ALWAYS(bt_tokenize(tok, text, bytes, flags, n - 1,
                                         &ids) == BT_ERR_TOO_LARGE);
        }
        ids.n = 0;
    }
    bt_free(ids.ids);
    if (valid) {
        quote(tok, text, bytes);
    }
    bt_strbuf_init(&out, 1u << 24);
    bt_detok_init(&detok, tok);
    for (uint32_t id = 0; id < bt_tokenizer_n_vocab(tok); id++) {
        bt_detok_push(&detok, id, &out);
    }
    bt_detok_finish(&detok, &out);
    BT_ASSERT_ALWAYS(bt_strbuf_status(&out) == BT_OK);
    bt_strbuf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[200];
    bt_gguf_t *gguf = NULL;
    bt_tokenizer_t *tok = NULL;
    size_t bytes;
    char *text;

    if (size < 2) {
        return 0;
    }
    bytes = (size_t)data[0] | (size_t)data[1] << 8;
    bytes = (bytes < size - 2) ? bytes : size - 2;
    text = bt_memdup(data + 2, bytes);
    if (text == NULL) {
        return 0;
    }
    if (bt_utf8_valid((const uint8_t *)text, bytes)) {
        cut_into_words((const uint8_t *)text, bytes);
        cut_by_rules((const uint8_t *)text, bytes);
        normalize((const uint8_t *)text, bytes);
    }
    if (bt_gguf_open_memory(data + 2 + bytes, size - 2 - bytes, why,
                            sizeof(why), &gguf) == BT_OK) {
        if (bt_tokenizer_load(gguf, why, sizeof(why), &tok) == BT_OK) {
            use(tok, text, bytes);
        } else {
            BT_ASSERT_ALWAYS((tok == NULL) && (why[0] != '\0'));
        }
    }
    bt_tokenizer_destroy(tok);
    bt_gguf_close(gguf);
    bt_free(text);
    return 0;
}
