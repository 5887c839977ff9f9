/* SPDX-License-Identifier: Apache-2.0 */
/** @file matcher_priv.h
 *
 * Tables of a matcher.
 *
 *     node  (state, count, node below)        a stack by its top frame
 *     set   nodes, ascending                  the state of an answer
 *     row   frames, then the set behind       once the set was expanded
 *           each class of bytes, its work,
 *           and origins, if rules count
 *     mask  bits of tokens                    of a canonical set
 *
 * Equal stacks are one node, equal sets are one set. Node 0 is the empty stack:
 * a text that is whole. A frame whose rule ends at once, because its state
 * accepts and has no edge, is left out of its stack: right recursion then takes
 * no depth.
 *
 * Functions that need memory of a table return false or 0 where it is full, and
 * nothing is lost but space: the caller rebases what it needs to an empty table
 * and tries again.
 */
#ifndef BT_INFERENCE_MATCHER_MATCHER_PRIV_H
#define BT_INFERENCE_MATCHER_MATCHER_PRIV_H

#include "common/grammar/bounds.h"
#include "common/grammar/distance.h"
#include "inference/matcher/matcher.h"

#define BT_MATCHER_MAX_FRAMES 512u /* of a set, with those that it calls */
#define BT_MATCHER_MAX_WORK   (1u << 17) /* edges followed for one row */
#define BT_NODE_EMPTY         0u
#define BT_NODE_NONE          UINT32_MAX
#define BT_MATCHER_FAR        (UINT32_MAX - 1) /* from the end: no distance */

/* Which frames of a stack are those of another one that it was made from, by a
 * byte, calls and ends: 2 * k: the lowest k, as they were; 2 * k + 1: those,
 * and above them the next one, which has moved on and perhaps counted. */
typedef uint16_t bt_origin_t;

typedef struct bt_stack_node {
    uint32_t state, count;
    uint32_t below;
    uint16_t depth;     /* frames */
    bt_origin_t origin; /* in the last closing of one stack */
    uint32_t set;       /* this stack alone; 0: not known */
    uint32_t canonical; /* node; 0: not known */
    uint32_t mark;      /* last closing that met it */
    uint32_t bytes;     /* distance + 1; 0: not known */
} bt_stack_node_t;

typedef enum bt_set_flag {
    BT_SET_EXPANDED = 1,
    BT_SET_TAKES = 2,    /* a frame takes a token by its id */
    BT_SET_OVERFLOW = 4, /* over BT_MATCHER_MAX_FRAMES */
} bt_set_flag_t;

typedef struct bt_stack_set {
    uint32_t first;     /* node where n is 1; otherwise index in members */
    uint32_t canonical; /* set; 0: not known */
    uint32_t mask;      /* index + 1 */
    uint32_t bytes;     /* distance + 1; 0: not known */
    uint16_t n;
    uint16_t flags;
} bt_stack_set_t;

/* Row of a set. */
typedef struct bt_row_ref {
    uint32_t at;   /* its first element in rows; 0: none */
    uint32_t walk; /* the last one that came by */
} bt_row_ref_t;

/* Hash table of numbers. It begins small, so that a short answer touches few
 * pages. */
typedef struct bt_id_table {
    uint32_t *slots; /* 0: free */
    uint32_t size;   /* slots in use now, a power of two */
    uint32_t cap;
} bt_id_table_t;

/* Counts of a rule up to `low` are the same to a mask, and those of min to
 * `high`. */
typedef struct bt_rule_clamp {
    int64_t low, high;
} bt_rule_clamp_t;

typedef enum bt_plain_kind {
    BT_PLAIN_NONE,
    BT_PLAIN_ANY,      /* plain text of any length can be read here */
    BT_PLAIN_COUNTED,  /* each plain character counts, up to the rule's max */
    BT_PLAIN_EXACT,    /* plain_chars of them, and no more */
    BT_PLAIN_AT_LEAST, /* plain_chars of them, and perhaps more */
} bt_plain_kind_t;

typedef struct bt_mask_slot {
    uint32_t owner;    /* set; 0: free */
    uint32_t n;        /* tokens */
    uint32_t farthest; /* no token leads further from the end */
    bool used;         /* again, since the clock's hand passed */
} bt_mask_slot_t;

/* Frame of a stack that outlives the tables. */
typedef struct bt_saved_frame {
    uint32_t state, count;
} bt_saved_frame_t;

typedef struct bt_saved_set {
    uint32_t n;
    uint32_t depths[BT_MATCHER_MAX_SET];
    bt_saved_frame_t *frames; /* [BT_MATCHER_MAX_SET * BT_GRAMMAR_MAX_DEPTH],
                                 those of a stack from its bottom */
} bt_saved_set_t;

/* Ids of tokens, inclusive. */
typedef struct bt_token_range {
    uint32_t first, last;
} bt_token_range_t;

struct bt_matcher {
    const bt_grammar_t *grammar;
    const bt_token_trie_t *trie;
    bt_grammar_bounds_t *bounds;
    uint32_t max_depth;
    uint32_t max_mask_steps;
    uint32_t epoch;
    uint32_t start; /* state of the empty answer; 0: not there in this epoch */
    bt_matcher_stats_t stats;

    /* Of the grammar. Bytes that no edge tells apart are one class; classes are
     * ranges, ascending. */
    uint16_t class_of[256]; /* from 1 on: their place in a row */
    uint32_t n_classes;
    uint32_t row_size;     /* elements of a row; its work is at n_classes + 1,
                              and origins at n_classes + 2 */
    bool counts;           /* a rule has a min or a max */
    bool *ends;            /* by state: accepts, and has no edge */
    uint8_t *plain;        /* by state: bt_plain_kind_t */
    uint16_t *plain_chars; /* by state */
    bool *reads_plain;     /* by state: some plain character's byte */
    uint32_t
        *plain_height; /* by rule: frames above states of its plain kinds */
    bool *plain_ends;  /* by rule: it may end behind plain text */
    bt_rule_clamp_t *clamps; /* by rule */

    /* Distances, where they are known. Plain text leads from a state to such as
     * are plain_near to plain_far from their rule's end, by ways that need up
     * to plain_ways frames above. */
    bt_grammar_distances_t *distances;
    uint32_t *plain_near, *plain_far; /* by state */
    uint32_t *plain_ways;             /* by rule */
    int64_t *alike_far;  /* by rule: counts from min to this are as far from the
                            end as each other, behind any token too */
    uint64_t *near_mask; /* of bt_matcher_mask_within() */
    bt_token_range_t *taken; /* tokens that some edge takes, ascending */
    uint32_t n_taken;

    /* Tables, all in one area. */
    uint8_t *area;
    bt_stack_node_t *nodes;
    bt_id_table_t node_table;
    uint32_t n_nodes, cap_nodes;
    bt_stack_set_t *sets;
    bt_row_ref_t *row_of; /* by set */
    bt_id_table_t set_table;
    uint32_t n_sets, cap_sets;
    uint32_t *members;
    uint32_t n_members, cap_members;
    uint32_t *rows; /* [cap_rows + 1][row_size], the first one unused */
    uint32_t n_rows, cap_rows;
    uint64_t *masks;     /* [n_slots][mask_words] */
    uint32_t mask_words; /* trie->n_words, and a word for trie->no_token */
    bt_mask_slot_t *slots;
    uint32_t n_slots;
    uint32_t hand; /* of the clock that frees slots */

    /* Scratch. */
    uint32_t mark;
    uint32_t walk;
    uint32_t n_frames;
    uint32_t work; /* edges followed since the last closing began */
    bool overflow;
    bool mixed; /* something was reached by ways of several origins, or there
                   were several stacks to close */
    uint32_t frames[BT_MATCHER_MAX_FRAMES]; /* nodes of the last set closed */
    uint16_t n_targets[257];                /* by class */
    uint32_t target[257];                   /* the first one */
    bt_origin_t target_origin[257];         /* of it */
    uint32_t targets[257][BT_MATCHER_MAX_SET + 1]; /* from two on, all */
    bt_saved_set_t saved;
};

/*
 * matcher_tables.c: nodes and sets
 */

/** Empties the tables. */
void bt_matcher_reset(bt_matcher_t *m);
/** Returns the state of some stacks. @a nodes are sorted, and freed of
 *  duplicates, in place.
 *  @return BT_MATCHER_DEAD: n is 0; BT_MATCHER_FAILED: too many;
 *          BT_NODE_NONE: full */
uint32_t bt_matcher_set(bt_matcher_t *m, uint32_t *nodes, uint32_t n);
/** Returns a stack; BT_NODE_NONE: full. */
uint32_t bt_matcher_node(bt_matcher_t *m, uint32_t state, uint32_t count,
                         uint32_t below);
/** Returns the nodes of a set. */
const uint32_t *bt_matcher_members(const bt_matcher_t *m, uint32_t state,
                                   uint32_t *n_p);
/** Empties the tables and puts one state back.
 *  @return BT_MATCHER_FAILED: the state alone does not fit */
uint32_t bt_matcher_rebase(bt_matcher_t *m, uint32_t state);
/** Returns the state that has the same mask and stands for all such;
 *  BT_NODE_NONE: full. */
uint32_t bt_matcher_canonical(bt_matcher_t *m, uint32_t state);

/*
 * matcher_expand.c: steps
 */

/** Lists a state's frames, called and popped ones too, in m->frames.
 *  @return false: full */
bool bt_matcher_close(bt_matcher_t *m, const uint32_t *nodes, uint32_t n);
/** Makes the row of a state. @return false: full */
bool bt_matcher_expand(bt_matcher_t *m, uint32_t state);
/** Follows an edge of a frame that is not a call.
 *  @param [out] next_p  Stack behind it; BT_NODE_NONE: it may not be taken.
 *  @return false: full */
bool bt_matcher_follow(bt_matcher_t *m, uint32_t node, uint32_t to, bool counts,
                       uint32_t *next_p);
/** Expands a state, emptying the tables for it if need be.
 *  @return false: the state has failed */
bool bt_matcher_ready(bt_matcher_t *m, uint32_t *state_p);

static inline const uint32_t *bt_matcher_row(const bt_matcher_t *m,
                                             uint32_t state)
{
    return &m->rows[m->row_of[state].at];
}

static inline bool bt_matcher_is_expanded(const bt_matcher_t *m, uint32_t state)
{
    return (m->sets[state].flags & BT_SET_EXPANDED) != 0;
}

/* Origins of a row, by class, a byte each: 0: not known; otherwise bit 0 is
 * that of the target's bt_origin_t, and bits 1 … are the frames of the row's
 * stack that are not as they were. Where there is one, the byte leads to one
 * stack, and by ways of that origin alone. */
static inline const uint8_t *bt_matcher_origins(const bt_matcher_t *m,
                                                const uint32_t *row)
{
    return (const uint8_t *)&row[m->n_classes + 2];
}

/*
 * matcher_distance.c: how far states are from the end
 */

/** Returns the bytes from a stack to the end of a text, or BT_MATCHER_FAR. */
uint32_t bt_matcher_node_bytes(bt_matcher_t *m, uint32_t node);
/** True when each token leads as far from the end from a state as from its
 *  canonical one; false where that is not known. */
bool bt_matcher_is_alike_far(const bt_matcher_t *m, uint32_t state,
                             uint32_t canonical);
/** Computes the bytes from a state to the end of a text. */
uint32_t bt_matcher_find_bytes(bt_matcher_t *m, uint32_t state);

static inline uint32_t bt_matcher_set_bytes(bt_matcher_t *m, uint32_t state)
{
    const uint32_t bytes = m->sets[state].bytes;

    return (bytes != 0) ? bytes - 1 : bt_matcher_find_bytes(m, state);
}

/*
 * matcher_walk.c: tries
 */

/** Walk of a trie from a state. Where tables are full the walk begins again
 * with empty ones; where that is not enough it empties them as often as need
 * be, and walks again to where it was. So what a walk costs, and whether it
 * reaches a limit, does not depend on what the tables have. */
typedef struct bt_walk {
    bt_matcher_t *m;
    const bt_trie_part_t *part;
    uint32_t *state_p; /* whose mask it is; changed where tables are emptied */
    bool canonical;    /* the walk begins at the canonical state */
    uint32_t root;     /* that state, or the state itself */
    uint64_t *mask;
    uint32_t n_tokens;
    uint64_t steps, max_steps;
    bool begins_empty; /* tables had no more than the state */
    bool is_full;      /* and the walk has to begin again */
    /* With distances: tokens that lead further from the end than `need` are
     * left out. */
    uint32_t need, farthest;
    /* Behind the bytes of `path`. A row is not there yet where nothing is
     * below. */
    const uint32_t *rows[BT_TRIE_MAX_BYTES + 2];
    uint8_t path[BT_TRIE_MAX_BYTES + 1];
} bt_walk_t;

/** Begins at a state. @param [out] over_p  It is over a limit.
 *  @return false: full */
bool bt_walk_begin(bt_walk_t *w, uint32_t state, bool *over_p);
void bt_walk_set(bt_walk_t *w, uint32_t id); /**< puts a token into the mask */
/** Puts the tokens of a trie that can be read into the mask, which has none of
 *  them. @return false: a limit is reached */
bool bt_walk_part(bt_walk_t *w, const bt_trie_part_t *part);
/** Puts the tokens that are in no trie into the mask. @return as above */
bool bt_walk_long(bt_walk_t *w);

/*
 * matcher_plain.c: strings
 */

/** Finds the states that read plain text (token_trie.h). @return false: no
 *  memory */
bool bt_matcher_find_plain(bt_matcher_t *m);
/** Finds plain_near and plain_far, once there are distances. */
void bt_matcher_find_plain_distances(bt_matcher_t *m);

#endif
