/* SPDX-License-Identifier: Apache-2.0 */
/** @file regex_priv.h
 *
 * Shared by the steps from patterns to automata.
 */
#ifndef BT_INFERENCE_TOKENIZER_REGEX_PRIV_H
#define BT_INFERENCE_TOKENIZER_REGEX_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inference/tokenizer/regex.h"

#define BT_RX_MAX_SETS  256u
#define BT_RX_MAX_OPS   2048u
#define BT_RX_MAX_NODES 8192u
#define BT_RX_NONE      UINT32_MAX

/* A set of characters is an expression in postfix order. */
typedef enum bt_rx_op_kind {
    BT_RX_RANGE,      /* from a to b */
    BT_RX_CATEGORIES, /* bit c of a: category c */
    BT_RX_PROPERTY,   /* bits a of bt_unicode_prop_t */
    BT_RX_NOTHING,
    BT_RX_NOT,
    BT_RX_OR,
    BT_RX_AND,
} bt_rx_op_kind_t;

typedef struct bt_rx_op {
    uint32_t kind, a, b;
} bt_rx_op_t;

typedef struct bt_rx_set {
    uint32_t first, n; /* range in ops */
} bt_rx_set_t;

typedef enum bt_rx_node_kind {
    BT_RX_EMPTY,
    BT_RX_SET,      /* a character of set a */
    BT_RX_NEXT_IS,  /* and the next character is one of set a */
    BT_RX_NEXT_NOT, /* or the text ends */
    BT_RX_LINE_END, /* the text ends, or the next character is one of set a */
    BT_RX_TEXT_END,
    BT_RX_CAT,        /* a, then b */
    BT_RX_ALT,        /* a, or else b */
    BT_RX_REPEAT,     /* a, from min to max times, greedy */
    BT_RX_POSSESSIVE, /* a, from min to max times, possessive */
} bt_rx_node_kind_t;

typedef struct bt_rx_node {
    uint32_t kind, a, b;
    uint32_t min, max; /* BT_RX_NONE: any number */
} bt_rx_node_t;

/** State of one bt_regex_compile(). */
typedef struct bt_rx {
    bt_rx_op_t ops[BT_RX_MAX_OPS];
    uint32_t n_ops;
    bt_rx_set_t sets[BT_RX_MAX_SETS];
    uint32_t n_sets;
    bt_rx_node_t nodes[BT_RX_MAX_NODES];
    uint32_t n_nodes;
    /* for each class the sets that contain it: bit s of members[class] */
    uint64_t members[256][BT_RX_MAX_SETS / 64];
    char *why;
    size_t why_bytes;
} bt_rx_t;

static inline bool bt_rx_member(const bt_rx_t *rx, uint32_t class_index,
                                uint32_t set)
{
    return (rx->members[class_index][set / 64] >> set % 64 & 1) != 0;
}

/** Parses a pattern (regex_parse.c).
 *  @param [out] root_p  root node */
BT_MUST_CHECK bt_status_t bt_rx_parse(bt_rx_t *rx, const char *pattern,
                                      uint32_t *root_p);

/** Computes the classes that the sets distinguish, and their members
 *  (regex_set.c). */
BT_MUST_CHECK bt_status_t bt_rx_classify(bt_rx_t *rx,
                                         bt_alphabet_t *alphabet_p);

/** Builds the automaton of a tree (regex.c). */
BT_MUST_CHECK bt_status_t bt_rx_build(const bt_rx_t *rx, uint32_t root,
                                      uint32_t n_classes, bt_regex_t *regex_p);

#endif
