/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the tokens that are matched as text before any other step, their rules,
 * and the tokens that end a turn. */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "inference/tokenizer/tokenizer_priv.h"

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
        const char *p = name.data + i;
        const size_t dash = ((p[3] == '-') && (i + 5 <= name.len)) ? 1 : 0;

        if (((p[0] | 0x20) == 'p') && ((p[1] | 0x20) == 'h') &&
            ((p[2] | 0x20) == 'i') && (p[3 + dash] == '3')) {
            return true;
        }
    }
    return false;
}

static bool text_is(const bt_tokenizer_t *tok, uint32_t id, const char *text)
{
    const uint32_t from = tok->arena.offsets[id];
    const size_t n = tok->arena.offsets[id + 1] - from;

    return (n == strlen(text)) &&
           (memcmp(tok->arena.bytes + from, text, n) == 0);
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

static bt_status_t read_rules(const bt_tokenizer_t *tok, const bt_gguf_t *gguf,
                              char *why, size_t why_bytes, uint8_t *rules)
{
    if (!tok->as_spelled && is_phi3(gguf)) {
        use_phi3_rules(tok, rules);
    }
    for (size_t r = 0; r < BT_ARRAY_LEN(rule_keys); r++) {
        uint64_t n = 0;

        if (!bt_gguf_has(gguf, rule_keys[r].key)) {
            continue;
        }
        if (bt_gguf_array_len(gguf, rule_keys[r].key, &n) != BT_OK) {
            n = 1; /* not even a list: said below */
        }
        for (uint64_t i = 0; i < n; i++) {
            int64_t id = -1;

            if ((bt_gguf_array_i64(gguf, rule_keys[r].key, i, &id) != BT_OK) ||
                (id < 0) || (id >= tok->arena.n) ||
                !is_added(tok, (uint32_t)id)) {
                snprintf(why, why_bytes,
                         "%s is no list of special or user-defined tokens",
                         rule_keys[r].key);
                return BT_ERR_BAD_FILE;
            }
            rules[id] = (uint8_t)(rules[id] | rule_keys[r].rule);
        }
    }
    return BT_OK;
}

/* Adds a token by the text that it is matched by: the file's, since the arena's
 * has spaces for their marks, which is right only for files without further
 * keys. */
static bt_status_t add_one(bt_tokenizer_t *tok, const bt_gguf_t *gguf,
                           bt_normal_work_t *work, uint32_t id, unsigned rules)
{
    const uint8_t *text = tok->arena.bytes + tok->arena.offsets[id];
    size_t n = tok->arena.offsets[id + 1] - tok->arena.offsets[id];
    bt_special_t *const into =
        ((rules & NORMALIZED) != 0) ? &tok->special_normal : &tok->special;
    bt_gguf_str_t spelled;

    if (tok->as_spelled) {
        if (bt_gguf_array_str(gguf, KEY_TOKENS, id, &spelled) != BT_OK) {
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

static bt_status_t add_all(bt_tokenizer_t *tok, const bt_gguf_t *gguf,
                           const uint8_t *rules)
{
    bt_normal_work_t work = {0};
    bt_status_t status = bt_special_init(&tok->special);

    if (status == BT_OK) {
        status = bt_special_init(&tok->special_normal);
    }
    for (uint32_t id = 0; (status == BT_OK) && (id < tok->arena.n); id++) {
        if (is_added(tok, id)) {
            status = add_one(tok, gguf, &work, id, rules[id]);
        }
    }
    bt_normal_work_fini(&work);
    return status;
}

/* Tokens that end a turn in known families, whether or not the file says so. */
static void add_known_end_ids(bt_tokenizer_t *tok)
{
    static const char *const known[] = {
        "<|im_end|>", "<|eot_id|>",    "<|eom_id|>",      "<end_of_turn>",
        "<|end|>",    "<|endoftext|>", "<|end_of_text|>", "</s>",
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(known); i++) {
        uint32_t id = 0;
        bool have;

        while ((id < tok->arena.n) &&
               !(is_added(tok, id) && text_is(tok, id, known[i]))) {
            id++;
        }
        have = (id == tok->arena.n);
        for (uint32_t k = 0; !have && (k < tok->n_end_ids); k++) {
            have = (tok->end_ids[k] == id);
        }
        if (!have && (tok->n_end_ids < BT_TOK_MAX_END_IDS)) {
            tok->end_ids[tok->n_end_ids++] = id;
        }
    }
}

bt_status_t bt_tok_load_added(bt_tokenizer_t *tok, const bt_gguf_t *gguf,
                              char *why, size_t why_bytes)
{
    uint8_t *const rules = bt_calloc(tok->arena.n, 1);
    bt_status_t status;

    if (rules == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    status = read_rules(tok, gguf, why, why_bytes, rules);
    if (status == BT_OK) {
        status = add_all(tok, gguf, rules);
    }
    if (status == BT_OK) {
        add_known_end_ids(tok);
    }
    bt_free(rules);
    return status;
}
