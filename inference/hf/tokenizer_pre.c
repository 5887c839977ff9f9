/* SPDX-License-Identifier: Apache-2.0 */
/* How byte-level BPE cuts a text before it merges: the steps that
 * tokenizer.json lists, written as one line, and the name that GGUF has for
 * it. */
#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "inference/hf/vocab.h"

#define FILE_NAME  "tokenizer.json"
#define LINE_BYTES 2048
#define MAX_STEPS  8u

/* Written as in the patterns: what follows a letter in a word, a number … */
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
#define SPLIT(pattern) "split " pattern "\nbytes\n"

/* Source: the pre_tokenizer of each model's published tokenizer.json, and the
 * names that llama.cpp's converter gives them. */
static const struct {
    const char *line;
    const char *name;
    bool ignore_merges;
    bool nfc; /* the text is to be composed; readers know it by the name */
} lines[] = {
    {"words\n", "gpt-2", false, false},
    {"digits 1\nwords\n", "smollm", false, false},
    {SPLIT(SUFFIX "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" REST),
     "llama-bpe", true, false},
    {SPLIT(SUFFIX "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" REST), "dbrx",
     false, false},
    {SPLIT(SUFFIX "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" REST), "qwen2", false,
     true},
    {SPLIT(SUFFIX "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
                  "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!"
                  "\\S)|\\s+"),
     "qwen35", false, true},
    {SPLIT(CASES_A "|" CASES_B "|\\p{N}" REST_SLASH), "tekken", true, false},
    {SPLIT(CASES_A SUFFIX "?|" CASES_B SUFFIX "?|\\p{N}{1,3}" REST_SLASH),
     "gpt-4o", false, false},
    {"punctuation\nwords\ndigits\nsplit [0-9][0-9][0-9]\n", "falcon", false,
     false},
};

typedef struct writer {
    const bt_hf_vocab_t *v;
    char line[LINE_BYTES];
    size_t n;
    const char *why; /* what cannot be written */
} writer_t;

static const bt_json_node_t *get(const writer_t *w, const bt_json_node_t *node,
                                 const char *key)
{
    return bt_json_get(w->v->doc, node, key);
}

static bool is(const writer_t *w, const bt_json_node_t *node, const char *key,
               bt_json_kind_t kind)
{
    const bt_json_node_t *const found = get(w, node, key);

    return (found != NULL) && (found->kind == (uint8_t)kind);
}

static void put(writer_t *w, const char *text, size_t n)
{
    if (n >= sizeof(w->line) - w->n) {
        w->why = "a pattern is too long";
        return;
    }
    memcpy(w->line + w->n, text, n);
    w->n += n;
    w->line[w->n] = '\0';
}

static void put_word(writer_t *w, const char *text)
{
    put(w, text, strlen(text));
}

static void put_split(writer_t *w, const bt_json_node_t *step)
{
    const bt_json_node_t *const pattern =
        get(w, get(w, step, "pattern"), "Regex");

    if ((pattern == NULL) || (pattern->kind != BT_JSON_STRING) ||
        !bt_json_is(get(w, step, "behavior"), "Isolated") ||
        is(w, step, "invert", BT_JSON_TRUE)) {
        w->why = "a Split that does not isolate what a Regex matches";
        return;
    }
    put_word(w, "split ");
    put(w, pattern->text, pattern->len);
    put_word(w, "\n");
}

static void put_bytes(writer_t *w, const bt_json_node_t *step)
{
    if (is(w, step, "add_prefix_space", BT_JSON_TRUE)) {
        w->why = "a ByteLevel with add_prefix_space";
        return;
    }
    /* Old files do not have it, and mean yes. */
    put_word(w,
             is(w, step, "use_regex", BT_JSON_FALSE) ? "bytes\n" : "words\n");
}

static void put_step(writer_t *w, const bt_json_node_t *step)
{
    const bt_json_node_t *const type = get(w, step, "type");

    if (bt_json_is(type, "ByteLevel")) {
        put_bytes(w, step);
    } else if (bt_json_is(type, "Split")) {
        put_split(w, step);
    } else if (bt_json_is(type, "Digits")) {
        put_word(w, is(w, step, "individual_digits", BT_JSON_TRUE)
                        ? "digits 1\n"
                        : "digits\n");
    } else if (bt_json_is(type, "Punctuation") &&
               bt_json_is(get(w, step, "behavior"), "Contiguous")) {
        put_word(w, "punctuation\n");
    } else {
        w->why = "a step of another type than ByteLevel, Split and Digits";
    }
}

static void put_steps(writer_t *w)
{
    const bt_json_node_t *const pre = get(w, w->v->root, "pre_tokenizer");
    const bt_json_node_t *const list = get(w, pre, "pretokenizers");
    const bt_json_node_t *step = pre;
    uint32_t n = 1;

    if ((pre == NULL) || (pre->kind != BT_JSON_OBJECT)) {
        w->why = "none";
        return;
    }
    if ((list != NULL) && (list->kind == BT_JSON_ARRAY)) {
        n = list->n;
        step = bt_json_first(list);
    }
    if (n > MAX_STEPS) {
        w->why = "too many steps";
        return;
    }
    for (uint32_t i = 0; (w->why == NULL) && (i < n); i++) {
        put_step(w, step);
        step = bt_json_next(w->v->doc, step);
    }
}

bt_status_t bt_hf_put_pretokenizer(bt_hf_t *hf, const bt_hf_vocab_t *vocab)
{
    writer_t w = {.v = vocab, .line = ""};
    const bool ignore_merges =
        is(&w, vocab->model, "ignore_merges", BT_JSON_TRUE);
    const bt_json_node_t *const normalizer = get(&w, vocab->root, "normalizer");
    const bool nfc =
        (normalizer != NULL) && bt_json_is(get(&w, normalizer, "type"), "NFC");
    bool known = false;

    put_steps(&w);
    if (w.why != NULL) {
        return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                          FILE_NAME ": the pre-tokenizer has %s, which is not "
                                    "supported",
                          w.why);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(lines); i++) {
        if (strcmp(w.line, lines[i].line) != 0) {
            continue;
        }
        known = true;
        if ((lines[i].ignore_merges == ignore_merges) &&
            (lines[i].nfc || !nfc)) {
            bt_gguf_meta_str(&hf->meta, "tokenizer.ggml.pre", lines[i].name,
                             strlen(lines[i].name));
            return BT_OK;
        }
    }
    return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                      FILE_NAME ": the pre-tokenizer %s%s is not supported",
                      bt_shown(w.line, w.n).text,
                      known ? " with this ignore_merges or normalizer" : "");
}
