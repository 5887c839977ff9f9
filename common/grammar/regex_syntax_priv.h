/* SPDX-License-Identifier: Apache-2.0 */
/** @file regex_syntax_priv.h
 *
 * Parsed patterns: between regex_syntax_parse.c, which reads them, and
 * regex_syntax.c, which makes automata and expressions of them.
 */
#ifndef BT_COMMON_GRAMMAR_REGEX_SYNTAX_PRIV_H
#define BT_COMMON_GRAMMAR_REGEX_SYNTAX_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/grammar/automaton.h"
#include "common/grammar/code_set.h"
#include "common/grammar/compiler.h"

/* States that make a repetition large. */
#define BT_PATTERN_LARGE 256u

typedef enum bt_pattern_kind {
    BT_PATTERN_SET,    /* one character of a set */
    BT_PATTERN_BEGIN,  /* ^ */
    BT_PATTERN_END,    /* $ */
    BT_PATTERN_SEQ,    /* one part after the other; no part: the empty text */
    BT_PATTERN_ALT,    /* one of the parts */
    BT_PATTERN_REPEAT, /* the part, min to max times */
} bt_pattern_kind_t;

typedef struct bt_pattern {
    bt_pattern_kind_t kind;
    uint32_t min, max;               /* REPEAT; max UINT32_MAX: no limit */
    struct bt_pattern *first, *last; /* parts */
    struct bt_pattern *next;         /* part of the same parent */
    bt_code_set_t set;               /* SET; normalized */
    const bt_dfa_t *dfa;             /* of the set, once it was needed */
    uint64_t size; /* states, about, with repetitions written out; at least 1 */
    bool has_anchor;       /* ^ or $ is in it */
    bool at_begin, at_end; /* of the root's alternatives: ^ and $ were at
                              their ends */
    bool is_large;         /* a repetition with a bound is in it that takes over
                              BT_PATTERN_LARGE states */
} bt_pattern_t;

/* Reads a pattern. @param [in] flags  bt_regex_flags_t
 * @return NULL: the compilation has failed */
bt_pattern_t *bt_pattern_parse(bt_grammar_compiler_t *c, const char *pattern,
                               size_t n, unsigned flags);

#endif
