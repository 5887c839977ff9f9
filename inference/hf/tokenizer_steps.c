/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the normalizers of a tokenizer.json as strings of
 * baton.tokenizer.normalizers. */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "inference/hf/vocab.h"

#define FILE_NAME  "tokenizer.json"
#define SPACE_MARK "\xE2\x96\x81" /* U+2581 */

static bt_status_t full(bt_hf_t *hf)
{
    return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                      FILE_NAME ": so many normalizers are not supported");
}

static bt_status_t put(bt_hf_t *hf, bt_hf_vocab_t *v, const char *word)
{
    return bt_hf_put_word(&v->normalizers, word) ? BT_OK : full(hf);
}

static bt_status_t put_pattern(bt_hf_t *hf, bt_hf_vocab_t *v,
                               const char *pattern, const char *to)
{
    return (bt_hf_put_word(&v->normalizers, "replace_pattern") &&
            bt_hf_put_word(&v->normalizers, pattern) &&
            bt_hf_put_word(&v->normalizers, to))
               ? BT_OK
               : full(hf);
}

/* ---- the table of replacements ---- */

static int base64_digit(char c)
{
    return ((c >= 'A') && (c <= 'Z'))   ? c - 'A'
           : ((c >= 'a') && (c <= 'z')) ? c - 'a' + 26
           : ((c >= '0') && (c <= '9')) ? c - '0' + 52
           : (c == '+')                 ? 62
           : (c == '/')                 ? 63
                                        : -1;
}

/* @return bytes, SIZE_MAX: not base64 */
static size_t from_base64(const char *text, size_t len, uint8_t *out)
{
    uint32_t bits = 0;
    unsigned n_bits = 0;
    size_t n = 0;

    while ((len > 0) && (text[len - 1] == '=')) {
        len--;
    }
    for (size_t i = 0; i < len; i++) {
        const int digit = base64_digit(text[i]);

        if (digit < 0) {
            return SIZE_MAX;
        }
        bits = bits << 6 | (uint32_t)digit;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            out[n++] = (uint8_t)(bits >> n_bits);
        }
    }
    return n;
}

static bt_status_t read_charsmap(bt_hf_t *hf, bt_hf_vocab_t *v,
                                 const bt_json_node_t *step, bool is_last)
{
    const bt_json_node_t *const text =
        bt_hf_member(v, step, "precompiled_charsmap");
    size_t n;

    (void)is_last;
    if (text == NULL) {
        return BT_OK; /* no table: nothing is replaced */
    }
    if ((text->kind != BT_JSON_STRING) || (v->charsmap != NULL)) {
        return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                          FILE_NAME ": a second precompiled_charsmap, or one "
                                    "that is no text, is not supported");
    }
    v->charsmap = bt_calloc((size_t)text->len + 1, 1);
    if (v->charsmap == NULL) {
        return bt_hf_fail(hf, BT_ERR_NO_MEMORY, "out of memory");
    }
    n = from_base64(text->text, text->len, v->charsmap);
    if (n == SIZE_MAX) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          FILE_NAME ": precompiled_charsmap is not base64");
    }
    v->charsmap_bytes = n;
    return put(hf, v, "charsmap_clusters");
}

/* ---- the others ---- */

static bt_status_t read_replace(bt_hf_t *hf, bt_hf_vocab_t *v,
                                const bt_json_node_t *step, bool is_last)
{
    const bt_json_node_t *const pattern = bt_hf_member(v, step, "pattern");
    const bt_json_node_t *const text = bt_hf_member(v, pattern, "String");
    const bt_json_node_t *const regex = bt_hf_member(v, pattern, "Regex");
    const bt_json_node_t *const from = (text != NULL) ? text : regex;
    const bt_json_node_t *const to = bt_hf_member(v, step, "content");

    (void)is_last;
    if ((from == NULL) || (from->kind != BT_JSON_STRING) || (to == NULL) ||
        (to->kind != BT_JSON_STRING)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          FILE_NAME ": a Replace has no pattern or content");
    }
    v->marks_spaces = v->marks_spaces ||
                      (bt_json_is(text, " ") && bt_json_is(to, SPACE_MARK));
    return (bt_hf_put_word(&v->normalizers,
                           (text != NULL) ? "replace" : "replace_pattern") &&
            bt_hf_put_text(&v->normalizers, from->text, from->len) &&
            bt_hf_put_text(&v->normalizers, to->text, to->len))
               ? BT_OK
               : full(hf);
}

static bt_status_t read_prepend(bt_hf_t *hf, bt_hf_vocab_t *v,
                                const bt_json_node_t *step, bool is_last)
{
    const bt_json_node_t *const text = bt_hf_member(v, step, "prepend");

    (void)is_last;
    if ((text == NULL) || (text->kind != BT_JSON_STRING)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          FILE_NAME ": a Prepend has nothing to prepend");
    }
    return (bt_hf_put_word(&v->normalizers, "prepend") &&
            bt_hf_put_text(&v->normalizers, text->text, text->len))
               ? BT_OK
               : full(hf);
}

static bt_status_t read_strip(bt_hf_t *hf, bt_hf_vocab_t *v,
                              const bt_json_node_t *step, bool is_last)
{
    bt_status_t status = BT_OK;

    (void)is_last;
    if (bt_hf_is_true(v, step, "strip_left")) {
        status = put(hf, v, "strip_left");
    }
    if ((status == BT_OK) && bt_hf_is_true(v, step, "strip_right")) {
        status = put(hf, v, "strip_right");
    }
    return status;
}

/* Drops control characters and replaces others that are like a space by one, as
 * the tokenizers library does, normalizers/unicode.rs. */
static bt_status_t read_nmt(bt_hf_t *hf, bt_hf_vocab_t *v,
                            const bt_json_node_t *step, bool is_last)
{
    const bt_status_t status = put_pattern(
        hf, v, "[\\x01-\\x08\\x0B\\x0E-\\x1F\\x7F\\x{8F}\\x{9F}]", "");

    (void)step;
    (void)is_last;
    return (status == BT_OK)
               ? put_pattern(hf, v,
                             "[\\t\\n\\x0C\\r\\x{1680}\\x{200B}-\\x{200F}"
                             "\\x{2028}\\x{2029}\\x{2581}\\x{FEFF}\\x{FFFD}]",
                             " ")
               : status;
}

static bt_status_t read_normalizer(bt_hf_t *hf, bt_hf_vocab_t *v,
                                   const bt_json_node_t *step, bool is_last)
{
    static const struct {
        const char *type;
        const char *word; /* NULL: read */
        bt_hf_step_fn read;
    } kinds[] = {
        {"NFC", "nfc", NULL},
        {"NFD", "nfd", NULL},
        {"NFKC", "nfkc", NULL},
        {"NFKD", "nfkd", NULL},
        {"Lowercase", "lowercase", NULL},
        {"Strip", NULL, read_strip},
        {"Replace", NULL, read_replace},
        {"Prepend", NULL, read_prepend},
        {"Nmt", NULL, read_nmt},
        {"Precompiled", NULL, read_charsmap},
    };
    const bt_json_node_t *const type = bt_hf_member(v, step, "type");

    for (size_t i = 0; i < BT_ARRAY_LEN(kinds); i++) {
        if (bt_json_is(type, kinds[i].type)) {
            return (kinds[i].word != NULL)
                       ? put(hf, v, kinds[i].word)
                       : kinds[i].read(hf, v, step, is_last);
        }
    }
    if (bt_json_is(type, "StripAccents")) {
        return put_pattern(hf, v, "\\p{library_accent}+", "");
    }
    return bt_hf_not_supported(hf, "normalizer", type);
}

bt_status_t bt_hf_read_normalizers(bt_hf_t *hf, bt_hf_vocab_t *v)
{
    return bt_hf_each_step(hf, v, bt_hf_member(v, v->root, "normalizer"),
                           "normalizers", read_normalizer);
}

/* Decoder of a tokenizer.json. Whether tokens are bytes and whether a mark is a
 * space is already known; the decoder determines only what happens to leading
 * spaces of a text. */

static bt_status_t read_bytes(bt_hf_t *hf, bt_hf_vocab_t *v,
                              const bt_json_node_t *step, bool is_last)
{
    (void)is_last;
    return (v->words == BT_HF_BYTES)
               ? BT_OK
               : bt_hf_not_supported(hf,
                                     "decoder, without a pre-tokenizer "
                                     "like it,",
                                     bt_hf_member(v, step, "type"));
}

/* Accepts a step that is implied by tokens that are text. */
static bt_status_t read_nothing(bt_hf_t *hf, bt_hf_vocab_t *v,
                                const bt_json_node_t *step, bool is_last)
{
    (void)hf;
    (void)v;
    (void)step;
    (void)is_last;
    return BT_OK;
}

static bt_status_t read_fuse(bt_hf_t *hf, bt_hf_vocab_t *v,
                             const bt_json_node_t *step, bool is_last)
{
    v->is_fused = true;
    return read_nothing(hf, v, step, is_last);
}

static bt_status_t read_decoder_replace(bt_hf_t *hf, bt_hf_vocab_t *v,
                                        const bt_json_node_t *step,
                                        bool is_last)
{
    const bt_json_node_t *const pattern = bt_hf_member(v, step, "pattern");

    (void)is_last;
    if (!v->marks_spaces ||
        !bt_json_is(bt_hf_member(v, pattern, "String"), SPACE_MARK) ||
        !bt_json_is(bt_hf_member(v, step, "content"), " ")) {
        return bt_hf_not_supported(hf, "Replace of the decoder, of",
                                   bt_hf_member(v, pattern, "String"));
    }
    return BT_OK;
}

static bt_status_t read_metaspace(bt_hf_t *hf, bt_hf_vocab_t *v,
                                  const bt_json_node_t *step, bool is_last)
{
    const bt_json_node_t *const adds =
        bt_hf_member(v, step, "add_prefix_space");

    (void)is_last;
    if (!v->marks_spaces ||
        !bt_json_is(bt_hf_member(v, step, "replacement"), SPACE_MARK)) {
        return bt_hf_not_supported(hf, "Metaspace of the decoder, of",
                                   bt_hf_member(v, step, "replacement"));
    }
    if (!((adds != NULL) && (adds->kind == BT_JSON_FALSE)) &&
        !bt_json_is(bt_hf_member(v, step, "prepend_scheme"), "never")) {
        v->first_space = "drop_all";
    }
    return BT_OK;
}

static bt_status_t read_decoder_strip(bt_hf_t *hf, bt_hf_vocab_t *v,
                                      const bt_json_node_t *step, bool is_last)
{
    uint64_t start = 0;
    uint64_t stop = 0;

    (void)is_last;
    if (!bt_json_as_u64(bt_hf_member(v, step, "start"), &start) ||
        !bt_json_as_u64(bt_hf_member(v, step, "stop"), &stop) || (start > 1) ||
        !v->is_fused || (stop != 0) ||
        !bt_json_is(bt_hf_member(v, step, "content"), " ")) {
        return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                          FILE_NAME ": a Strip of the decoder of more than the "
                                    "first space is not supported");
    }
    if (start == 1) {
        v->first_space = "drop";
    }
    return BT_OK;
}

static bt_status_t read_decoder_step(bt_hf_t *hf, bt_hf_vocab_t *v,
                                     const bt_json_node_t *step, bool is_last)
{
    static const struct {
        const char *type;
        bt_hf_step_fn read;
    } kinds[] = {
        {"ByteLevel", read_bytes},     {"ByteFallback", read_nothing},
        {"Fuse", read_fuse},           {"Replace", read_decoder_replace},
        {"Metaspace", read_metaspace}, {"Strip", read_decoder_strip},
    };
    const bt_json_node_t *const type = bt_hf_member(v, step, "type");

    for (size_t i = 0; i < BT_ARRAY_LEN(kinds); i++) {
        if (bt_json_is(type, kinds[i].type)) {
            return kinds[i].read(hf, v, step, is_last);
        }
    }
    return bt_hf_not_supported(hf, "decoder", type);
}

bt_status_t bt_hf_read_decoder(bt_hf_t *hf, bt_hf_vocab_t *v)
{
    v->first_space = "keep";
    return bt_hf_each_step(hf, v, bt_hf_member(v, v->root, "decoder"),
                           "decoders", read_decoder_step);
}

/* Post-processors of a tokenizer.json: BOS before a text and EOS behind it,
 * each optional. */

/* True when the token is the one of this name in tokenizer_config.json, or that
 * file has none. */
static bool may_be(const bt_hf_t *hf, const bt_json_node_t *text,
                   const char *name)
{
    const bt_json_node_t *node =
        bt_json_get(hf->tok_config.doc, hf->tok_config.root, name);

    if ((node != NULL) && (node->kind == BT_JSON_OBJECT)) {
        node = bt_json_get(hf->tok_config.doc, node, "content");
    }
    return (node == NULL) || (node->kind != BT_JSON_STRING) ||
           ((node->len == text->len) &&
            (memcmp(node->text, text->text, text->len) == 0));
}

/* @param [in] is_behind  EOS, else BOS */
static bt_status_t put_end(bt_hf_t *hf, bt_hf_vocab_t *v,
                           const bt_json_node_t *text, bool is_behind)
{
    bool *const adds_p = is_behind ? &v->add_eos : &v->add_bos;
    uint32_t id = BT_HF_NO_TOKEN;

    if ((text != NULL) && (text->kind == BT_JSON_STRING) && !*adds_p &&
        may_be(hf, text, is_behind ? "eos_token" : "bos_token")) {
        id = bt_hf_vocab_find(v, text->text, text->len);
    }
    if (id == BT_HF_NO_TOKEN) {
        return bt_hf_not_supported(
            hf, is_behind ? "end behind a text" : "beginning before a text",
            text);
    }
    *adds_p = true;
    *(is_behind ? &v->eos : &v->bos) = id;
    return BT_OK;
}

/* Reads "single": tokens, the text, tokens. */
static bt_status_t read_template(bt_hf_t *hf, bt_hf_vocab_t *v,
                                 const bt_json_node_t *processor)
{
    const bt_json_node_t *const list = bt_hf_member(v, processor, "single");
    const bt_json_node_t *at;
    bt_status_t status = BT_OK;
    bool is_behind = false;

    if ((list == NULL) || (list->kind != BT_JSON_ARRAY) || (list->n == 0)) {
        return bt_hf_fail(hf, BT_ERR_BAD_FILE,
                          FILE_NAME ": TemplateProcessing has no list "
                                    "\"single\"");
    }
    at = bt_json_first(list);
    for (uint32_t i = 0; (status == BT_OK) && (i < list->n); i++) {
        if ((bt_hf_member(v, at, "Sequence") != NULL) && !is_behind) {
            is_behind = true;
        } else {
            status = put_end(
                hf, v,
                bt_hf_member(v, bt_hf_member(v, at, "SpecialToken"), "id"),
                is_behind);
        }
        at = bt_json_next(v->doc, at);
    }
    return status;
}

/* Reads "cls" and "sep": a pair of a text and its id each. */
static bt_status_t read_pair(bt_hf_t *hf, bt_hf_vocab_t *v,
                             const bt_json_node_t *processor)
{
    static const char *const names[] = {"cls", "sep"};
    bt_status_t status = BT_OK;

    for (size_t i = 0; (status == BT_OK) && (i < 2); i++) {
        const bt_json_node_t *const pair = bt_hf_member(v, processor, names[i]);

        status = put_end(
            hf, v,
            ((pair != NULL) && (pair->kind == BT_JSON_ARRAY) && (pair->n > 0))
                ? bt_json_first(pair)
                : NULL,
            i == 1);
    }
    return status;
}

static bt_status_t read_processor(bt_hf_t *hf, bt_hf_vocab_t *v,
                                  const bt_json_node_t *step, bool is_last)
{
    const bt_json_node_t *const type = bt_hf_member(v, step, "type");

    (void)is_last;
    v->has_ends = true;
    if (bt_json_is(type, "TemplateProcessing")) {
        return read_template(hf, v, step);
    }
    if (bt_json_is(type, "RobertaProcessing") ||
        bt_json_is(type, "BertProcessing")) {
        return read_pair(hf, v, step);
    }
    /* changes offsets, not tokens */
    return bt_json_is(type, "ByteLevel")
               ? BT_OK
               : bt_hf_not_supported(hf, "post-processor", type);
}

bt_status_t bt_hf_read_ends(bt_hf_t *hf, bt_hf_vocab_t *v)
{
    return bt_hf_each_step(hf, v, bt_hf_member(v, v->root, "post_processor"),
                           "processors", read_processor);
}
