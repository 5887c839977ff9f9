/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the pre-tokenizers of a tokenizer.json as strings of
 * baton.tokenizer.splits, and finds GGUF's name for them. */
#include <string.h>

#include "common/base/status.h"
#include "inference/hf/vocab.h"

#define FILE_NAME  "tokenizer.json"
#define SPACE_MARK "\xE2\x96\x81" /* U+2581 */

/* ---- steps as strings ---- */

#define GPT2                                           \
    "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s" \
    "\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define PUNCTUATION "\\p{library_punctuation}"
/* The library's table is of Unicode 17, that of patterns of 16. */
#define DIGIT "[\\p{N}\\x{11DE0}-\\x{11DE9}\\x{16FF4}-\\x{16FF6}]"

static void put(bt_hf_t *hf, bt_hf_vocab_t *v, const char *keep,
                const char *kind, const char *text, size_t len)
{
    if (!bt_hf_put_word(&v->splits, keep) ||
        !bt_hf_put_word(&v->splits, kind) ||
        !bt_hf_put_text(&v->splits, text, len)) {
        bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                   FILE_NAME ": so many pre-tokenizers are not supported");
    }
}

/* Behind a ByteLevel a pattern reads the characters of bytes. */
static void put_pattern(bt_hf_t *hf, bt_hf_vocab_t *v, const char *keep,
                        const char *pattern)
{
    put(hf, v, keep, v->sees_bytes ? "bytes" : "pattern", pattern,
        strlen(pattern));
}

static void put_prefix(bt_hf_t *hf, bt_hf_vocab_t *v, const char *when,
                       const char *text)
{
    for (uint32_t i = 1; i < v->splits.n; i += 3) {
        if (strcmp(v->splits.list[i].data, "prefix") == 0) {
            bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                       FILE_NAME ": two pre-tokenizers that add a space are "
                                 "not supported");
        }
    }
    put(hf, v, when, "prefix", text, strlen(text));
}

/* "Isolated" → "isolated"; with invert "!isolated".
 * @return NULL: not known */
static const char *keep_of(const bt_hf_vocab_t *v, const bt_json_node_t *step,
                           const char *unsaid)
{
    static const char *const keeps[][3] = {
        {"Removed", "removed", "!removed"},
        {"Isolated", "isolated", "!isolated"},
        {"MergedWithPrevious", "merged_with_previous", "!merged_with_previous"},
        {"MergedWithNext", "merged_with_next", "!merged_with_next"},
        {"Contiguous", "contiguous", "!contiguous"},
    };
    const bt_json_node_t *const behavior = bt_hf_member(v, step, "behavior");
    const size_t column = bt_hf_is_true(v, step, "invert") ? 2 : 1;

    for (size_t i = 0; i < BT_ARRAY_LEN(keeps); i++) {
        if ((behavior == NULL) ? (strcmp(keeps[i][1], unsaid) == 0)
                               : bt_json_is(behavior, keeps[i][0])) {
            return keeps[i][column];
        }
    }
    return NULL;
}

/* ---- each kind ---- */

static BT_HF_STEP(read_bytes)
{
    const bt_json_node_t *const regex = bt_hf_member(v, step, "use_regex");

    if (v->sees_bytes) {
        bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                   FILE_NAME ": a second ByteLevel is not supported");
        return;
    }
    if (bt_hf_is_true(v, step, "add_prefix_space")) {
        put_prefix(hf, v, "always", " ");
    }
    /* Old files lack the setting, which defaults to yes. */
    if ((regex == NULL) || (regex->kind == BT_JSON_TRUE)) {
        put_pattern(hf, v, "isolated", GPT2);
    }
    v->sees_bytes = true;
}

/* Patterns that no automaton can express, which the tokenizer implements by
 * hand. */
static const char *kind_of(const bt_json_node_t *regex)
{
    if (bt_json_is(regex, "\\d{1,3}(?=(?:\\d{3})*\\b)")) {
        return "threes";
    }
    return bt_json_is(regex, "(?=(\\d{3})+(?!\\d))") ? "before_threes" : NULL;
}

static BT_HF_STEP(read_split)
{
    const bt_json_node_t *const pattern = bt_hf_member(v, step, "pattern");
    const bt_json_node_t *const text = bt_hf_member(v, pattern, "String");
    const bt_json_node_t *const regex = bt_hf_member(v, pattern, "Regex");
    const bt_json_node_t *const what = (text != NULL) ? text : regex;
    const char *const keep = keep_of(v, step, "");
    const char *const by_hand = (text == NULL) ? kind_of(regex) : NULL;

    if (!bt_json_is_kind(what, BT_JSON_STRING)) {
        bt_hf_fail(hf, BT_ERR_BAD_FILE, FILE_NAME ": a Split has no pattern");
        return;
    }
    if (keep == NULL) {
        bt_hf_not_supported(hf, "behavior of a Split",
                            bt_hf_member(v, step, "behavior"));
        return;
    }
    if (bt_json_is(text, " ") && v->marks_spaces) {
        return; /* none are left */
    }
    if (v->sees_bytes && ((text != NULL) || (by_hand != NULL))) {
        bt_hf_not_supported(hf, "Split behind ByteLevel", what);
        return;
    }
    if ((by_hand != NULL) && (strcmp(keep, "isolated") == 0)) {
        put(hf, v, keep, by_hand, "", 0);
        return;
    }
    put(hf, v, keep,
        (text != NULL)  ? "text"
        : v->sees_bytes ? "bytes"
                        : "pattern",
        what->text, what->len);
}

static BT_HF_STEP(read_digits)
{
    put_pattern(hf, v, "isolated",
                bt_hf_is_true(v, step, "individual_digits") ? DIGIT
                                                            : DIGIT "+");
}

static BT_HF_STEP(read_punctuation)
{
    const char *const keep = keep_of(v, step, "isolated");

    if (keep == NULL) {
        bt_hf_not_supported(hf, "behavior of a Punctuation",
                            bt_hf_member(v, step, "behavior"));
        return;
    }
    put_pattern(hf, v, keep, PUNCTUATION);
}

/* The space is marked in later steps; where a later step could notice, it must
 * be marked before. */
static void mark_spaces(bt_hf_t *hf, bt_hf_vocab_t *v)
{
    v->marks_spaces = true;
    if (v->is_last_step) {
        return;
    }
    if (v->splits.n > 0) {
        bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                   FILE_NAME ": a Metaspace between other pre-tokenizers is "
                             "not supported");
    }
    if (!bt_hf_put_word(&v->normalizers, "replace") ||
        !bt_hf_put_word(&v->normalizers, " ") ||
        !bt_hf_put_word(&v->normalizers, SPACE_MARK)) {
        bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                   FILE_NAME ": so many normalizers are not supported");
    }
}

static BT_HF_STEP(read_metaspace)
{
    const bt_json_node_t *const scheme =
        bt_hf_member(v, step, "prepend_scheme");
    const bt_json_node_t *const adds =
        bt_hf_member(v, step, "add_prefix_space");
    const bt_json_node_t *const split = bt_hf_member(v, step, "split");
    /* Old files have only add_prefix_space, which is true by default. */
    const bool never =
        bt_json_is_kind(adds, BT_JSON_FALSE) || bt_json_is(scheme, "never");

    if (!bt_json_is(bt_hf_member(v, step, "replacement"), SPACE_MARK)) {
        bt_hf_not_supported(hf, "replacement of Metaspace",
                            bt_hf_member(v, step, "replacement"));
        return;
    }
    if (!never && (scheme != NULL) && !bt_json_is(scheme, "always") &&
        !bt_json_is(scheme, "first")) {
        bt_hf_not_supported(hf, "prepend_scheme", scheme);
        return;
    }
    mark_spaces(hf, v);
    if (!never) {
        put_prefix(hf, v, bt_json_is(scheme, "first") ? "first" : "always",
                   SPACE_MARK);
    }
    if ((split == NULL) || (split->kind == BT_JSON_TRUE)) {
        put_pattern(hf, v, "merged_with_next", "[ " SPACE_MARK "]");
    }
}

static BT_HF_STEP(read_spaces)
{
    put_pattern(hf, v, "removed", "\\s+");
}

static BT_HF_STEP(read_words)
{
    put_pattern(hf, v, "!removed",
                "\\p{library_word}+|[^\\p{library_word}\\s]+");
}

static BT_HF_STEP(read_bert)
{
    read_spaces(hf, v, step);
    put_pattern(hf, v, "isolated", PUNCTUATION);
}

static BT_HF_STEP(read_delimiter)
{
    const bt_json_node_t *const text = bt_hf_member(v, step, "delimiter");

    if (!bt_json_is_kind(text, BT_JSON_STRING) || (text->len == 0) ||
        v->sees_bytes) {
        bt_hf_not_supported(hf, "delimiter", text);
        return;
    }
    put(hf, v, "removed", "text", text->text, text->len);
}

static const bt_hf_step_kind_t kinds[] = {
    {"ByteLevel", read_bytes},
    {"Split", read_split},
    {"Digits", read_digits},
    {"Punctuation", read_punctuation},
    {"Metaspace", read_metaspace},
    {"WhitespaceSplit", read_spaces},
    {"Whitespace", read_words},
    {"BertPreTokenizer", read_bert},
    {"CharDelimiterSplit", read_delimiter},
    {NULL, NULL},
};

/* ---- names ---- */

/* Written as in the patterns: parts of words, numbers … */
#define SUFFIX "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define REST   "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CASES_A                                                   \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*" \
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
#define CASES_B                                                   \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+" \
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
#define REST_SLASH \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define STEP(keep, kind, text) keep "\n" kind "\n" text "\n"
#define CUT(pattern)           STEP("isolated", "pattern", pattern)

/* Source: the pre_tokenizer of each model's published tokenizer.json, and the
 * names that llama.cpp's converter gives them. */
static const struct {
    const char *steps;
    const char *name;
    bool ignore_merges;
    bool nfc;   /* GGUF readers compose the text, by the name */
    bool exact; /* else GGUF readers do not do all of the steps */
} names[] = {
    {CUT(GPT2), "gpt-2", false, false, true},
    {CUT(GPT2), "olmo", false, true, true},
    {CUT(DIGIT) CUT(GPT2), "smollm", false, false, true},
    {CUT(DIGIT) CUT(GPT2), "command-r", false, true, true},
    {CUT(SUFFIX "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" REST), "llama-bpe",
     true, false, true},
    {CUT(SUFFIX "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" REST), "dbrx",
     false, false, true},
    {CUT(SUFFIX "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" REST), "qwen2", false,
     true, true},
    {CUT(SUFFIX "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
                "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!"
                "\\S)|\\s+"),
     "qwen35", false, true, true},
    {CUT(CASES_A "|" CASES_B "|\\p{N}" REST_SLASH), "tekken", true, false,
     true},
    {CUT(CASES_A SUFFIX "?|" CASES_B SUFFIX "?|\\p{N}{1,3}" REST_SLASH),
     "gpt-4o", false, false, true},
    /* Behind ByteLevel the last two read bytes, which GGUF readers do not
     * support. */
    {STEP("contiguous", "pattern", PUNCTUATION) CUT(GPT2)
         STEP("isolated", "bytes", DIGIT "+")
             STEP("isolated", "bytes", "[0-9][0-9][0-9]"),
     "falcon", false, false, false},
};

static bool steps_are(const bt_hf_texts_t *texts, const char *steps)
{
    for (uint32_t i = 0; i < texts->n; i++) {
        const bt_gguf_str_t *const text = &texts->list[i];

        if ((strlen(steps) <= text->len) ||
            (memcmp(steps, text->data, text->len) != 0) ||
            (steps[text->len] != '\n')) {
            return false;
        }
        steps += text->len + 1;
    }
    return *steps == '\0';
}

/* Finds the name that also implies the other settings, else the first for the
 * steps. */
static void find_name(bt_hf_vocab_t *v)
{
    const bool nfc = (v->normalizers.n == 1) &&
                     (strcmp(v->normalizers.list[0].data, "nfc") == 0);

    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        const bool same = (names[i].ignore_merges == v->ignore_merges) &&
                          (names[i].nfc == nfc) &&
                          (v->normalizers.n == (nfc ? 1 : 0));

        if (steps_are(&v->splits, names[i].steps) &&
            ((v->pre == NULL) || same)) {
            v->pre = names[i].name;
            v->pre_is_exact = names[i].exact && same;
        }
    }
}

/* ---- all ---- */

static bool finds_bytes(const bt_hf_vocab_t *v, const bt_json_node_t *step)
{
    const bt_json_node_t *const list = bt_hf_member(v, step, "pretokenizers");
    const bt_json_node_t *at;

    if (bt_json_is(bt_hf_member(v, step, "type"), "ByteLevel")) {
        return true;
    }
    if (!bt_json_is_kind(list, BT_JSON_ARRAY) || (list->n == 0)) {
        return false;
    }
    at = bt_json_first(list);
    for (uint32_t i = 0; i < list->n; i++) {
        if (finds_bytes(v, at)) { /* nesting is bounded by the JSON reader */
            return true;
        }
        at = bt_json_next(v->doc, at);
    }
    return false;
}

bool bt_hf_has_bytes(const bt_hf_vocab_t *v)
{
    return finds_bytes(v, bt_hf_member(v, v->root, "pre_tokenizer"));
}

bt_status_t bt_hf_read_pretokenizer(bt_hf_t *hf, bt_hf_vocab_t *v)
{
    const bt_status_t status = bt_hf_each_step(
        hf, v, "pre_tokenizer", "pretokenizers", "pre-tokenizer", kinds);

    if ((status == BT_OK) && (v->words == BT_HF_BYTES)) {
        find_name(v);
    }
    return status;
}
