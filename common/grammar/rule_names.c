/* SPDX-License-Identifier: Apache-2.0 */
#include "common/grammar/rule_names.h"

#include <string.h>

static uint32_t hash_of(const char *text, uint32_t n)
{
    uint32_t hash = 2166136261u;

    for (uint32_t i = 0; i < n; i++) {
        hash = (hash ^ (uint8_t)text[i]) * 16777619u;
    }
    return hash ^ hash >> 15;
}

static bool rehash(bt_rule_names_t *names, bt_grammar_compiler_t *c)
{
    const uint32_t n = (names->n_table == 0) ? 64 : 2 * names->n_table;
    uint32_t *table = bt_grammar_alloc(c, n, sizeof(*table));

    if (table == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < names->n; i++) {
        uint32_t at = hash_of(names->list[i].text, names->list[i].n) & (n - 1);

        while (table[at] != 0) {
            at = (at + 1) & (n - 1);
        }
        table[at] = i + 1;
    }
    names->table = table;
    names->n_table = n;
    return true;
}

uint32_t bt_rule_names_get(bt_rule_names_t *names, bt_grammar_builder_t *b,
                           bt_grammar_compiler_t *c, const char *text,
                           uint32_t n, uint32_t line)
{
    char *copy;
    uint32_t at;

    if (!bt_grammar_spend(c, 1) ||
        ((2 * names->n >= names->n_table) && !rehash(names, c))) {
        return BT_RULE_NAMES_NONE;
    }
    at = hash_of(text, n) & (names->n_table - 1);
    while (names->table[at] != 0) {
        const bt_rule_name_t *const have = &names->list[names->table[at] - 1];

        if ((have->n == n) && (memcmp(have->text, text, n) == 0)) {
            return names->table[at] - 1;
        }
        at = (at + 1) & (names->n_table - 1);
    }
    copy = bt_grammar_alloc(c, (size_t)n + 1, 1);
    if ((copy == NULL) ||
        !bt_grammar_grow(c, &names->list, &names->cap, names->n + 1,
                         sizeof(*names->list))) {
        return BT_RULE_NAMES_NONE;
    }
    memcpy(copy, text, n);
    names->list[names->n] = (bt_rule_name_t){
        .text = copy, .n = n, .rule = bt_builder_rule(b, copy), .line = line};
    names->table[at] = ++names->n;
    return bt_grammar_ok(c) ? names->n - 1 : BT_RULE_NAMES_NONE;
}

const bt_expr_t *bt_rule_names_root(const bt_rule_names_t *names,
                                    bt_grammar_builder_t *b,
                                    bt_grammar_compiler_t *c, const char *root)
{
    for (uint32_t i = 0; (i < names->n) && bt_grammar_ok(c); i++) {
        if (!names->list[i].is_defined) {
            bt_grammar_fail(c, BT_ERR_INVALID_PARAM,
                            "line %u: rule %s is not defined",
                            names->list[i].line, names->list[i].text);
        }
    }
    for (uint32_t i = 0; (i < names->n) && bt_grammar_ok(c); i++) {
        if (strcmp(names->list[i].text, root) == 0) {
            return bt_expr_rule(b, names->list[i].rule);
        }
    }
    bt_grammar_fail(c, BT_ERR_INVALID_PARAM, "there is no rule %s", root);
    return NULL;
}
