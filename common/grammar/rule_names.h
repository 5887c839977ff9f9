/* SPDX-License-Identifier: Apache-2.0 */
/** @file rule_names.h
 *
 * Names of the rules of a grammar that a client wrote: a rule may be used
 * before it is defined.
 */
#ifndef BT_COMMON_GRAMMAR_RULE_NAMES_H
#define BT_COMMON_GRAMMAR_RULE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/grammar/builder.h"

#define BT_RULE_NAMES_NONE UINT32_MAX

typedef struct bt_rule_name {
    const char *text; /**< n bytes and a NUL, in the compiler's arena */
    uint32_t n;
    uint32_t rule;   /**< the builder's number of it */
    uint32_t line;   /**< where it is used first */
    bool is_defined; /**< set by the reader of the grammar */
} bt_rule_name_t;

/** Names in the order of their first use. Zeroed: none. */
typedef struct bt_rule_names {
    bt_rule_name_t *list;
    uint32_t n, cap;
    uint32_t *table; /**< hash table: index + 1 */
    uint32_t n_table;
} bt_rule_names_t;

/** Returns the index of a name, which is added with a rule of its own where it
 *  is new.
 *  @return BT_RULE_NAMES_NONE: the compilation has failed */
uint32_t bt_rule_names_get(bt_rule_names_t *names, bt_grammar_builder_t *b,
                           bt_grammar_compiler_t *c, const char *text,
                           uint32_t n, uint32_t line);

/** Fails for a name that is used and not defined, with its line. Returns the
 *  expression of the rule with the name of the root; NULL: the compilation has
 *  failed. */
const bt_expr_t *bt_rule_names_root(const bt_rule_names_t *names,
                                    bt_grammar_builder_t *b,
                                    bt_grammar_compiler_t *c, const char *root);

#endif
