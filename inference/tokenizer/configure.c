/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "inference/tokenizer/pretok.h"
#include "inference/tokenizer/tokenizer_priv.h"

#define KEY_MODEL       "tokenizer.ggml.model"
#define KEY_PRE         "tokenizer.ggml.pre"
#define KEY_CHARSMAP    "tokenizer.ggml.precompiled_charsmap"
#define KEY_NORMALIZERS "baton.tokenizer.normalizers"
#define KEY_SPLITS      "baton.tokenizer.splits"
#define KEY_PLAIN       "baton.tokenizer.plain_text"
#define KEY_WHOLE       "baton.tokenizer.ignore_merges"
#define KEY_FUSE        "baton.tokenizer.fuse_unknown"
#define KEY_MARK        "baton.tokenizer.space_mark"
#define KEY_FLOAT       "baton.tokenizer.float_sums"
#define KEY_FIRST       "baton.tokenizer.first_space"

#define MAX_CHARSMAP (16u << 20)

/* Names come from the file: shown in full only when short. */
static int shown(const bt_gguf_str_t *text)
{
    return (text->len < 64) ? (int)text->len : 64;
}

/* ---- flags ---- */

/* @param [in,out] flag_p  stays where the file does not say */
static bt_status_t read_flag(const bt_tok_load_t *load, const char *key,
                             bool *flag_p)
{
    const bt_status_t status = bt_gguf_get_bool(load->gguf, key, flag_p);

    if ((status != BT_OK) && (status != BT_ERR_NOT_FOUND)) {
        return bt_tok_fail(load, BT_ERR_BAD_FILE, "%s is not true or false",
                           key);
    }
    return BT_OK;
}

static bt_status_t read_first_space(const bt_tok_load_t *load)
{
    bt_tokenizer_t *const tok = load->tok;
    static const char *const names[] = {"keep", "drop", "drop_all"};
    bt_gguf_str_t text;

    tok->first_space =
        tok->add_space_prefix ? BT_TOK_SPACE_DROPPED : BT_TOK_SPACE_KEPT;
    if (!bt_gguf_has(load->gguf, KEY_FIRST)) {
        return BT_OK;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        if ((bt_gguf_get_str(load->gguf, KEY_FIRST, &text) == BT_OK) &&
            bt_gguf_str_is(text, names[i])) {
            tok->first_space = (bt_tok_first_space_t)i;
            return BT_OK;
        }
    }
    return bt_tok_fail(load, BT_ERR_UNSUPPORTED,
                       "%s is not keep, drop or drop_all", KEY_FIRST);
}

static bt_status_t read_flags(const bt_tok_load_t *load, bool *one_space_p)
{
    bt_tokenizer_t *const tok = load->tok;
    bool prefix = tok->add_space_prefix;
    const char *text_only; /* key of a flag that bytes do not support */
    bt_status_t status = BT_OK;
    const struct {
        const char *key;
        bool *flag;
    } flags[] = {
        {"tokenizer.ggml.add_bos_token", &tok->add_bos},
        {"tokenizer.ggml.add_eos_token", &tok->add_eos},
        {"tokenizer.ggml.add_space_prefix", &prefix},
        {"tokenizer.ggml.remove_extra_whitespaces", one_space_p},
        {KEY_WHOLE, &tok->ignore_merges},
        {KEY_FUSE, &tok->fuses},
        {KEY_MARK, &tok->marks_spaces},
        {KEY_FLOAT, &tok->float_sums},
    };

    tok->fuses = tok->marks_spaces = tok->is_spm;
    for (size_t i = 0; (status == BT_OK) && (i < BT_ARRAY_LEN(flags)); i++) {
        status = read_flag(load, flags[i].key, flags[i].flag);
    }
    if (status != BT_OK) {
        return status;
    }
    text_only = prefix              ? "tokenizer.ggml.add_space_prefix"
                : tok->fuses        ? KEY_FUSE
                : tok->marks_spaces ? KEY_MARK
                                    : NULL;
    if ((text_only != NULL) && !tok->is_spm) {
        return bt_tok_fail(load, BT_ERR_UNSUPPORTED,
                           "%s is set, which byte-level BPE does not support",
                           text_only);
    }
    if (tok->ignore_merges && (tok->model != BT_TOK_BY_MERGES)) {
        return bt_tok_fail(load, BT_ERR_UNSUPPORTED,
                           "%s is set, which only BPE by merges supports",
                           KEY_WHOLE);
    }
    tok->add_space_prefix = prefix;
    return read_first_space(load);
}

/* ---- lists of texts ---- */

/* One text of a list, with a 0 at its end.
 * @param [out] text_p  to be freed */
static bt_status_t read_text(const bt_tok_load_t *load, const char *key,
                             uint64_t i, char **text_p)
{
    bt_gguf_str_t str;
    char *text;

    if ((bt_gguf_array_str(load->gguf, key, i, &str) != BT_OK) ||
        (str.len > BT_REGEX_MAX_BYTES) ||
        (memchr(str.data, '\0', str.len) != NULL) ||
        !bt_utf8_valid((const uint8_t *)str.data, str.len)) {
        return bt_tok_fail(load, BT_ERR_BAD_FILE,
                           "%s: text %" PRIu64
                           " is missing, longer than %u bytes or not UTF-8",
                           key, i, BT_REGEX_MAX_BYTES);
    }
    text = bt_calloc(str.len + 1, 1);
    if (text == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    memcpy(text, str.data, str.len);
    *text_p = text;
    return BT_OK;
}

/* ---- normalizers ---- */

static bt_status_t read_charsmap(const bt_tok_load_t *load)
{
    bt_tokenizer_t *const tok = load->tok;
    uint64_t n = 0;
    uint8_t *blob;
    bt_status_t status = bt_gguf_array_len(load->gguf, KEY_CHARSMAP, &n);

    if (status == BT_ERR_NOT_FOUND) {
        return status;
    }
    if ((status != BT_OK) || (n > MAX_CHARSMAP)) {
        return bt_tok_fail(load, BT_ERR_BAD_FILE, "%s is no list of bytes",
                           KEY_CHARSMAP);
    }
    blob = bt_calloc((n == 0) ? 1 : n, 1);
    if (blob == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint64_t i = 0; (status == BT_OK) && (i < n); i++) {
        int64_t byte = 0;

        status = bt_gguf_array_i64(load->gguf, KEY_CHARSMAP, i, &byte);
        if ((byte < -128) || (byte > 255)) {
            status = BT_ERR_BAD_FILE;
        }
        blob[i] = (uint8_t)byte;
    }
    if (status == BT_OK) {
        status = bt_normal_set_charsmap(&tok->normal, blob, n);
    }
    bt_free(blob);
    if ((status != BT_OK) && (status != BT_ERR_NO_MEMORY)) {
        return bt_tok_fail(load, BT_ERR_BAD_FILE,
                           "%s is no table of replacements", KEY_CHARSMAP);
    }
    return status;
}

static const struct {
    const char *name;
    bt_normal_kind_t kind;
    bt_normal_form_t form;
    unsigned n_texts; /* that follow it in the list */
} normalizers[] = {
    {"nfc", BT_NORMAL_FORM, BT_NORMAL_NFC, 0},
    {"nfd", BT_NORMAL_FORM, BT_NORMAL_NFD, 0},
    {"nfkc", BT_NORMAL_FORM, BT_NORMAL_NFKC, 0},
    {"nfkd", BT_NORMAL_FORM, BT_NORMAL_NFKD, 0},
    {"lowercase", BT_NORMAL_LOWERCASE, BT_NORMAL_NONE, 0},
    {"strip_left", BT_NORMAL_STRIP_LEFT, BT_NORMAL_NONE, 0},
    {"strip_right", BT_NORMAL_STRIP_RIGHT, BT_NORMAL_NONE, 0},
    {"one_space", BT_NORMAL_ONE_SPACE, BT_NORMAL_NONE, 0},
    {"charsmap", BT_NORMAL_CHARSMAP, BT_NORMAL_NONE, 0},
    {"charsmap_clusters", BT_NORMAL_CHARSMAP_CLUSTERS, BT_NORMAL_NONE, 0},
    {"prepend", BT_NORMAL_PREPEND, BT_NORMAL_NONE, 1},
    {"replace", BT_NORMAL_REPLACE, BT_NORMAL_NONE, 2},
    {"replace_pattern", BT_NORMAL_REPLACE_PATTERN, BT_NORMAL_NONE, 2},
};

/* Reads a normalizer and its texts, from element *i_p of the list on. */
static bt_status_t read_normalizer(const bt_tok_load_t *load, uint64_t *i_p)
{
    bt_tokenizer_t *const tok = load->tok;
    char *texts[3] = {NULL, NULL, NULL};
    bt_status_t status = read_text(load, KEY_NORMALIZERS, (*i_p)++, &texts[0]);
    size_t k = 0;

    if (status != BT_OK) {
        return status;
    }
    while ((k < BT_ARRAY_LEN(normalizers)) &&
           (strcmp(texts[0], normalizers[k].name) != 0)) {
        k++;
    }
    if (k == BT_ARRAY_LEN(normalizers)) {
        status = bt_tok_fail(load, BT_ERR_UNSUPPORTED,
                             "normalizer \"%.64s\" (%s) is not supported",
                             texts[0], KEY_NORMALIZERS);
        goto out;
    }
    /* The last text is what comes into the text; one before it is replaced. */
    for (unsigned t = 3 - normalizers[k].n_texts; t < 3; t++) {
        status = read_text(load, KEY_NORMALIZERS, (*i_p)++, &texts[t]);
        if (status != BT_OK) {
            goto out;
        }
    }
    if (((texts[1] != NULL) && (texts[1][0] == '\0')) ||
        (((normalizers[k].kind == BT_NORMAL_CHARSMAP) ||
          (normalizers[k].kind == BT_NORMAL_CHARSMAP_CLUSTERS)) &&
         (tok->normal.units == NULL))) {
        status = bt_tok_fail(load, BT_ERR_BAD_FILE,
                             "normalizer \"%s\" (%s) has nothing to find",
                             texts[0], KEY_NORMALIZERS);
        goto out;
    }
    status =
        bt_normal_add(&tok->normal, normalizers[k].kind, normalizers[k].form,
                      texts[1], texts[2], load->why, load->why_bytes);
out:
    for (size_t t = 0; t < BT_ARRAY_LEN(texts); t++) {
        bt_free(texts[t]);
    }
    return status;
}

/* The list, or else what follows from the other keys. */
static bt_status_t read_normalizers(const bt_tok_load_t *load, bool one_space,
                                    bt_normal_form_t form)
{
    bt_tokenizer_t *const tok = load->tok;
    uint64_t n = 0;
    bt_status_t status = read_charsmap(load);
    const struct {
        bt_normal_kind_t kind;
        bool is_on;
    } implied[] = {
        {BT_NORMAL_CHARSMAP, status == BT_OK},
        {BT_NORMAL_FORM, form != BT_NORMAL_NONE},
        {BT_NORMAL_ONE_SPACE, one_space},
    };

    if ((status != BT_OK) && (status != BT_ERR_NOT_FOUND)) {
        return status;
    }
    if (bt_gguf_has(load->gguf, KEY_NORMALIZERS)) {
        status = bt_gguf_array_len(load->gguf, KEY_NORMALIZERS, &n);
        if (status != BT_OK) {
            return bt_tok_fail(load, BT_ERR_BAD_FILE, "%s is no list",
                               KEY_NORMALIZERS);
        }
        for (uint64_t i = 0; (status == BT_OK) && (i < n);) {
            status = read_normalizer(load, &i);
        }
        return status;
    }
    status = BT_OK;
    for (size_t i = 0; (status == BT_OK) && (i < BT_ARRAY_LEN(implied)); i++) {
        if (implied[i].is_on) {
            status = bt_normal_add(&tok->normal, implied[i].kind, form, NULL,
                                   NULL, load->why, load->why_bytes);
        }
    }
    return status;
}

/* ---- splits ---- */

/* A text as the pattern that matches it and nothing else. */
static char *quoted(const char *text)
{
    char *out = bt_calloc(2 * strlen(text) + 1, 1);
    size_t n = 0;

    for (; (out != NULL) && (*text != '\0'); text++) {
        if (strchr("\\.[](){}*+?|^$", *text) != NULL) {
            out[n++] = '\\';
        }
        out[n++] = *text;
    }
    return out;
}

static bool find_name(const char *const *list, size_t n, const char *name,
                      uint32_t *i_p)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(list[i], name) == 0) {
            *i_p = (uint32_t)i;
            return true;
        }
    }
    return false;
}

/* Steps of the key's list: those before the prefix, then those behind it. */
typedef struct split_list {
    bt_split_t steps[BT_SPLITS_MAX];
    size_t n;
    size_t n_outer; /* of them, if there is a prefix */
    bool has_prefix;
} split_list_t;

static bt_status_t not_supported(const bt_tok_load_t *load, const char *keep,
                                 const char *kind)
{
    return bt_tok_fail(load, BT_ERR_UNSUPPORTED,
                       "split \"%.32s %.32s\" (%s) is not supported", keep,
                       kind, KEY_SPLITS);
}

/* "always" or "first", "prefix", one character. */
static bt_status_t read_prefix(const bt_tok_load_t *load, const char *keep,
                               const char *text, split_list_t *list)
{
    bt_tokenizer_t *const tok = load->tok;
    const size_t n = strlen(text);
    const bool first = strcmp(keep, "first") == 0;

    if ((!first && (strcmp(keep, "always") != 0)) || list->has_prefix ||
        (n == 0) || (n != (size_t)bt_utf8_scan((const uint8_t *)text, n))) {
        return not_supported(load, keep, "prefix");
    }
    tok->prefix.is_on = true;
    tok->prefix.first_only = first;
    tok->prefix.n = (uint8_t)n;
    memcpy(tok->prefix.bytes, text, n);
    list->has_prefix = true;
    list->n_outer = list->n;
    return BT_OK;
}

static bt_status_t add_split(const bt_tok_load_t *load, const char *keep,
                             const char *kind, char **pattern,
                             split_list_t *list)
{
    static const char *const keeps[BT_SPLIT_N_KEEPS] = {
        "isolated", "removed", "merged_with_previous", "merged_with_next",
        "contiguous"};
    static const char *const kinds[] = {"pattern", "bytes", "threes",
                                        "before_threes", "text"};
    uint32_t keep_index = 0;
    uint32_t kind_index = 0;

    if (!find_name(keeps, BT_ARRAY_LEN(keeps), keep + (keep[0] == '!'),
                   &keep_index) ||
        !find_name(kinds, BT_ARRAY_LEN(kinds), kind, &kind_index)) {
        return not_supported(load, keep, kind);
    }
    if (strcmp(kind, "text") == 0) {
        char *plain = *pattern;

        *pattern = quoted(plain);
        bt_free(plain);
        kind_index = BT_SPLIT_PATTERN;
        if (*pattern == NULL) {
            return BT_ERR_NO_MEMORY;
        }
    }
    if ((kind_index == BT_SPLIT_THREES) ||
        (kind_index == BT_SPLIT_BEFORE_THREES)) {
        bt_free(*pattern); /* they have none */
        *pattern = NULL;
    }
    list->steps[list->n++] =
        (bt_split_t){(bt_split_kind_t)kind_index, *pattern,
                     (bt_split_keep_t)keep_index, keep[0] == '!'};
    *pattern = NULL; /* the list's now */
    return BT_OK;
}

/* Three texts of the list: what becomes of matches ("!" before it: of what is
 * none), the kind, the pattern. */
static bt_status_t read_split(const bt_tok_load_t *load, uint64_t i,
                              split_list_t *list)
{
    char *texts[3] = {NULL, NULL, NULL};
    bt_status_t status = BT_OK;

    for (size_t k = 0; (status == BT_OK) && (k < BT_ARRAY_LEN(texts)); k++) {
        status = read_text(load, KEY_SPLITS, i + k, &texts[k]);
    }
    if (status == BT_OK) {
        status = (strcmp(texts[1], "prefix") == 0)
                     ? read_prefix(load, texts[0], texts[2], list)
                     : add_split(load, texts[0], texts[1], &texts[2], list);
    }
    for (size_t k = 0; k < BT_ARRAY_LEN(texts); k++) {
        bt_free(texts[k]);
    }
    return status;
}

/* Steps of the list as splits. Of none: the text is one word, which of tokens
 * that are texts needs no splits. */
static bt_status_t make_splits(const bt_tok_load_t *load,
                               const bt_split_t *steps, size_t n, bool needed,
                               bt_splits_t **splits_p)
{
    static const bt_split_t whole = {BT_SPLIT_PATTERN, "[\\s\\S]+",
                                     BT_SPLIT_ISOLATED, false};

    if ((n == 0) && !needed) {
        return BT_OK;
    }
    return bt_splits_create((n == 0) ? &whole : steps, (n == 0) ? 1 : n,
                            load->why, load->why_bytes, splits_p);
}

static bt_status_t read_splits(const bt_tok_load_t *load)
{
    bt_tokenizer_t *const tok = load->tok;
    split_list_t list = {.n = 0};
    uint64_t n = 0;
    bt_status_t status = bt_gguf_array_len(load->gguf, KEY_SPLITS, &n);

    if ((status != BT_OK) || (n % 3 != 0) || (n > 3 * BT_SPLITS_MAX)) {
        return bt_tok_fail(load, BT_ERR_BAD_FILE,
                           "%s is no list of at most %u splits", KEY_SPLITS,
                           BT_SPLITS_MAX);
    }
    for (uint64_t i = 0; (status == BT_OK) && (i < n); i += 3) {
        status = read_split(load, i, &list);
    }
    if (status == BT_OK) {
        status =
            make_splits(load, list.steps, list.n_outer, false, &tok->outer);
    }
    if (status == BT_OK) {
        status = make_splits(load, list.steps + list.n_outer,
                             list.n - list.n_outer, !tok->is_spm, &tok->splits);
        tok->pretok = BT_PRETOK_SPLITS;
    }
    for (size_t i = 0; i < list.n; i++) {
        bt_free((void *)(uintptr_t)list.steps[i].pattern);
    }
    return status;
}

/* ---- kinds ---- */

/* Reads the name of the pre-tokenizer, and uses what it stands for.
 * @param [out] form_p  what the family's texts are brought into */
static bt_status_t choose_pretok(const bt_tok_load_t *load,
                                 bt_normal_form_t *form_p)
{
    bt_tokenizer_t *const tok = load->tok;
    const bt_pretok_names_t *known;
    bt_gguf_str_t name;

    if (bt_gguf_get_str(load->gguf, KEY_PRE, &name) != BT_OK) {
        return bt_tok_fail(load, BT_ERR_UNSUPPORTED,
                           "the file does not name its pre-tokenizer (%s)",
                           KEY_PRE);
    }
    known = bt_pretok_find(name.data, name.len);
    if (known == NULL) {
        return bt_tok_fail(load, BT_ERR_UNSUPPORTED,
                           "pre-tokenizer \"%.*s\" (%s) is not supported",
                           shown(&name), name.data, KEY_PRE);
    }
    tok->ignore_merges = known->ignore_merges;
    tok->add_bos = known->add_bos;
    tok->by_id = known->by_id;
    tok->is_spm = known->plain_text;
    *form_p = known->form;
    if (tok->is_spm) {
        return BT_OK;
    }
    tok->pretok = known->rule.scanner;
    return (tok->pretok != BT_PRETOK_SPLITS)
               ? BT_OK
               : bt_splits_create(known->rule.splits, known->rule.n_splits,
                                  load->why, load->why_bytes, &tok->splits);
}

static bt_status_t choose_model(const bt_tok_load_t *load)
{
    bt_tokenizer_t *const tok = load->tok;
    bt_gguf_str_t model;

    if (bt_gguf_get_str(load->gguf, KEY_MODEL, &model) != BT_OK) {
        return bt_tok_fail(load, BT_ERR_BAD_FILE,
                           "the file has no tokenizer (%s)", KEY_MODEL);
    }
    if (bt_gguf_str_is(model, "gpt2")) {
        tok->model = BT_TOK_BY_MERGES;
        return read_flag(load, KEY_PLAIN, &tok->is_spm);
    }
    if (bt_gguf_str_is(model, "gemma4")) {
        tok->model = BT_TOK_BY_MERGES;
    } else if (bt_gguf_str_is(model, "llama")) {
        tok->model = BT_TOK_BY_SCORES;
        tok->add_bos = true;
        tok->add_space_prefix = true;
    } else if (bt_gguf_str_is(model, "t5")) {
        tok->model = BT_TOK_UNIGRAM;
        tok->add_eos = true;
        tok->add_space_prefix = true;
    } else {
        return bt_tok_fail(load, BT_ERR_UNSUPPORTED,
                           "tokenizer \"%.*s\" (%s) is not supported",
                           shown(&model), model.data, KEY_MODEL);
    }
    tok->is_spm = true;
    return BT_OK;
}

bt_status_t bt_tok_configure(const bt_tok_load_t *load)
{
    bt_tokenizer_t *const tok = load->tok;
    bt_normal_form_t form = BT_NORMAL_NONE;
    bool one_space = false;
    bt_status_t status = choose_model(load);

    tok->as_spelled = bt_gguf_has(load->gguf, BT_TOK_KEY_NORMALIZED);
    if ((status == BT_OK) && bt_gguf_has(load->gguf, KEY_SPLITS)) {
        status = read_splits(load);
    } else if ((status == BT_OK) && !tok->is_spm) {
        status = choose_pretok(load, &form);
    }
    if (status == BT_OK) {
        status = read_flags(load, &one_space);
    }
    if (status == BT_OK) {
        status = read_normalizers(load, one_space, form);
    }
    return status;
}
