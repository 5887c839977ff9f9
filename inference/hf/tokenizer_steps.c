/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the normalizers of a tokenizer.json as strings of
 * baton.tokenizer.normalizers. */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "inference/hf/vocab.h"

#define FILE_NAME  "tokenizer.json"
#define SPACE_MARK "\xE2\x96\x81" /* U+2581 */

/* Appends a normalizer and its texts; NULL: it has fewer. */
static void put(bt_hf_t *hf, bt_hf_vocab_t *v, const char *word,
                const bt_json_node_t *from, const bt_json_node_t *to)
{
    if (!bt_hf_put_word(&v->normalizers, word) ||
        ((from != NULL) &&
         !bt_hf_put_text(&v->normalizers, from->text, from->len)) ||
        ((to != NULL) && !bt_hf_put_text(&v->normalizers, to->text, to->len))) {
        bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                   FILE_NAME ": so many normalizers are not supported");
    }
}

static void put_pattern(bt_hf_t *hf, bt_hf_vocab_t *v, const char *pattern,
                        const char *by)
{
    const bt_json_node_t from = {.text = pattern,
                                 .len = (uint32_t)strlen(pattern)};
    const bt_json_node_t to = {.text = by, .len = (uint32_t)strlen(by)};

    put(hf, v, "replace_pattern", &from, &to);
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

static BT_HF_STEP(read_charsmap)
{
    const bt_json_node_t *const text =
        bt_hf_member(v, step, "precompiled_charsmap");
    size_t n;

    if (text == NULL) {
        return; /* no table: nothing is replaced */
    }
    if ((text->kind != BT_JSON_STRING) || (v->charsmap != NULL)) {
        bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                   FILE_NAME ": a second precompiled_charsmap, or one "
                             "that is no text, is not supported");
        return;
    }
    v->charsmap = bt_calloc((size_t)text->len + 1, 1);
    if (v->charsmap == NULL) {
        bt_hf_fail(hf, BT_ERR_NO_MEMORY, "out of memory");
        return;
    }
    n = from_base64(text->text, text->len, v->charsmap);
    if (n == SIZE_MAX) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   FILE_NAME ": precompiled_charsmap is not base64");
        return;
    }
    v->charsmap_bytes = n;
    put(hf, v, "charsmap_clusters", NULL, NULL);
}

/* ---- the others ---- */

static BT_HF_STEP(read_replace)
{
    const bt_json_node_t *const pattern = bt_hf_member(v, step, "pattern");
    const bt_json_node_t *const text = bt_hf_member(v, pattern, "String");
    const bt_json_node_t *const regex = bt_hf_member(v, pattern, "Regex");
    const bt_json_node_t *const from = (text != NULL) ? text : regex;
    const bt_json_node_t *const to = bt_hf_member(v, step, "content");

    if (!bt_json_is_kind(from, BT_JSON_STRING) ||
        !bt_json_is_kind(to, BT_JSON_STRING)) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   FILE_NAME ": a Replace has no pattern or content");
        return;
    }
    v->marks_spaces = v->marks_spaces ||
                      (bt_json_is(text, " ") && bt_json_is(to, SPACE_MARK));
    put(hf, v, (text != NULL) ? "replace" : "replace_pattern", from, to);
}

static BT_HF_STEP(read_prepend)
{
    const bt_json_node_t *const text = bt_hf_member(v, step, "prepend");

    if (!bt_json_is_kind(text, BT_JSON_STRING)) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   FILE_NAME ": a Prepend has nothing to prepend");
        return;
    }
    put(hf, v, "prepend", text, NULL);
}

static BT_HF_STEP(read_strip)
{
    if (bt_hf_is_true(v, step, "strip_left")) {
        put(hf, v, "strip_left", NULL, NULL);
    }
    if (bt_hf_is_true(v, step, "strip_right")) {
        put(hf, v, "strip_right", NULL, NULL);
    }
}

/* Drops control characters and replaces others that are like a space by one, as
 * the tokenizers library does, normalizers/unicode.rs. */
static BT_HF_STEP(read_nmt)
{
    put_pattern(hf, v, "[\\x01-\\x08\\x0B\\x0E-\\x1F\\x7F\\x{8F}\\x{9F}]", "");
    put_pattern(hf, v,
                "[\\t\\n\\x0C\\r\\x{1680}\\x{200B}-\\x{200F}"
                "\\x{2028}\\x{2029}\\x{2581}\\x{FEFF}\\x{FFFD}]",
                " ");
}

static BT_HF_STEP(read_accents)
{
    put_pattern(hf, v, "\\p{library_accent}+", "");
}

/* Normalizers that have no settings. */
static BT_HF_STEP(read_plain)
{
    static const char *const words[][2] = {{"NFC", "nfc"},
                                           {"NFD", "nfd"},
                                           {"NFKC", "nfkc"},
                                           {"NFKD", "nfkd"},
                                           {"Lowercase", "lowercase"}};

    for (size_t i = 0; i < BT_ARRAY_LEN(words); i++) {
        if (bt_json_is(bt_hf_member(v, step, "type"), words[i][0])) {
            put(hf, v, words[i][1], NULL, NULL);
        }
    }
}

bt_status_t bt_hf_read_normalizers(bt_hf_t *hf, bt_hf_vocab_t *v)
{
    static const bt_hf_step_kind_t kinds[] = {
        {"NFC", read_plain},
        {"NFD", read_plain},
        {"NFKC", read_plain},
        {"NFKD", read_plain},
        {"Lowercase", read_plain},
        {"Strip", read_strip},
        {"Replace", read_replace},
        {"Prepend", read_prepend},
        {"Nmt", read_nmt},
        {"Precompiled", read_charsmap},
        {"StripAccents", read_accents},
        {NULL, NULL},
    };

    return bt_hf_each_step(hf, v, "normalizer", "normalizers", "normalizer",
                           kinds);
}

/* Decoder of a tokenizer.json. Whether tokens are bytes and whether a mark is a
 * space is already known; the decoder determines only what happens to leading
 * spaces of a text. */

static BT_HF_STEP(read_bytes)
{
    if (v->words != BT_HF_BYTES) {
        bt_hf_not_supported(hf, "decoder, without a pre-tokenizer like it,",
                            bt_hf_member(v, step, "type"));
    }
}

/* Accepts a step that is implied by tokens that are text. */
static BT_HF_STEP(read_nothing)
{
}

static BT_HF_STEP(read_fuse)
{
    v->is_fused = true;
}

static BT_HF_STEP(read_decoder_replace)
{
    const bt_json_node_t *const pattern = bt_hf_member(v, step, "pattern");

    if (!v->marks_spaces ||
        !bt_json_is(bt_hf_member(v, pattern, "String"), SPACE_MARK) ||
        !bt_json_is(bt_hf_member(v, step, "content"), " ")) {
        bt_hf_not_supported(hf, "Replace of the decoder, of",
                            bt_hf_member(v, pattern, "String"));
        return;
    }
}

static BT_HF_STEP(read_metaspace)
{
    const bt_json_node_t *const adds =
        bt_hf_member(v, step, "add_prefix_space");

    if (!v->marks_spaces ||
        !bt_json_is(bt_hf_member(v, step, "replacement"), SPACE_MARK)) {
        bt_hf_not_supported(hf, "Metaspace of the decoder, of",
                            bt_hf_member(v, step, "replacement"));
        return;
    }
    if (!bt_json_is_kind(adds, BT_JSON_FALSE) &&
        !bt_json_is(bt_hf_member(v, step, "prepend_scheme"), "never")) {
        v->first_space = "drop_all";
    }
}

static BT_HF_STEP(read_decoder_strip)
{
    uint64_t start = 0;
    uint64_t stop = 0;

    if (!bt_json_as_u64(bt_hf_member(v, step, "start"), &start) ||
        !bt_json_as_u64(bt_hf_member(v, step, "stop"), &stop) || (start > 1) ||
        !v->is_fused || (stop != 0) ||
        !bt_json_is(bt_hf_member(v, step, "content"), " ")) {
        bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                   FILE_NAME ": a Strip of the decoder of more than the "
                             "first space is not supported");
        return;
    }
    if (start == 1) {
        v->first_space = "drop";
    }
}

bt_status_t bt_hf_read_decoder(bt_hf_t *hf, bt_hf_vocab_t *v)
{
    static const bt_hf_step_kind_t kinds[] = {
        {"ByteLevel", read_bytes},
        {"ByteFallback", read_nothing},
        {"Fuse", read_fuse},
        {"Replace", read_decoder_replace},
        {"Metaspace", read_metaspace},
        {"Strip", read_decoder_strip},
        {NULL, NULL},
    };

    v->first_space = "keep";
    return bt_hf_each_step(hf, v, "decoder", "decoders", "decoder", kinds);
}

/* Post-processors of a tokenizer.json: BOS before a text and EOS behind it,
 * each optional. */

/* True when the token is the one of this name in tokenizer_config.json, or that
 * file has none. */
static bool may_be(const bt_hf_t *hf, const bt_json_node_t *text,
                   const char *name)
{
    const bt_json_node_t *const node = bt_hf_named_token(hf, name);

    return !bt_json_is_kind(node, BT_JSON_STRING) ||
           ((node->len == text->len) &&
            (memcmp(node->text, text->text, text->len) == 0));
}

/* @param [in] is_behind  EOS, else BOS */
static void put_end(bt_hf_t *hf, bt_hf_vocab_t *v, const bt_json_node_t *text,
                    bool is_behind)
{
    bool *const adds_p = is_behind ? &v->add_eos : &v->add_bos;
    uint32_t id = BT_HF_NO_TOKEN;

    if (bt_json_is_kind(text, BT_JSON_STRING) && !*adds_p &&
        may_be(hf, text, is_behind ? "eos_token" : "bos_token")) {
        id = bt_hf_vocab_find(v, text->text, text->len);
    }
    if (id == BT_HF_NO_TOKEN) {
        bt_hf_not_supported(
            hf, is_behind ? "end behind a text" : "beginning before a text",
            text);
        return;
    }
    *adds_p = true;
    *(is_behind ? &v->eos : &v->bos) = id;
}

/* Reads "single": tokens, the text, tokens. */
static BT_HF_STEP(read_template)
{
    const bt_json_node_t *const list = bt_hf_member(v, step, "single");
    const bt_json_node_t *at;
    bool is_behind = false;

    v->has_ends = true;
    if (!bt_json_is_kind(list, BT_JSON_ARRAY) || (list->n == 0)) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE,
                   FILE_NAME ": TemplateProcessing has no list \"single\"");
        return;
    }
    at = bt_json_first(list);
    for (uint32_t i = 0; (hf->status == BT_OK) && (i < list->n); i++) {
        if ((bt_hf_member(v, at, "Sequence") != NULL) && !is_behind) {
            is_behind = true;
        } else {
            put_end(hf, v,
                    bt_hf_member(v, bt_hf_member(v, at, "SpecialToken"), "id"),
                    is_behind);
        }
        at = bt_json_next(v->doc, at);
    }
}

/* Reads "cls" and "sep": a pair of a text and its id each. */
static BT_HF_STEP(read_pair)
{
    static const char *const names[] = {"cls", "sep"};

    v->has_ends = true;
    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        const bt_json_node_t *const pair = bt_hf_member(v, step, names[i]);

        put_end(hf, v,
                (bt_json_is_kind(pair, BT_JSON_ARRAY) && (pair->n > 0))
                    ? bt_json_first(pair)
                    : NULL,
                i == 1);
    }
}

/* ByteLevel changes offsets, not tokens. */
static BT_HF_STEP(read_offsets)
{
    v->has_ends = true;
}

bt_status_t bt_hf_read_ends(bt_hf_t *hf, bt_hf_vocab_t *v)
{
    static const bt_hf_step_kind_t kinds[] = {
        {"TemplateProcessing", read_template},
        {"RobertaProcessing", read_pair},
        {"BertProcessing", read_pair},
        {"ByteLevel", read_offsets},
        {NULL, NULL},
    };

    return bt_hf_each_step(hf, v, "post_processor", "processors",
                           "post-processor", kinds);
}
