/* SPDX-License-Identifier: Apache-2.0 */
/** @file json_schema_priv.h
 *
 * Between the parts of the JSON Schema compiler:
 *
 *     json_schema.c           entry, failures, expressions of values
 *     json_schema_write.c     expressions of arrays and objects
 *     json_schema_refs.c      $id, $anchor, $ref, drafts
 *     json_schema_terms.c     conjunctions of schemas, and which are empty
 *     json_schema_keywords.c  keywords → sets
 *     json_schema_sets.c      and, or, not, oneOf of sets
 *     json_schema_numbers.c   json_schema_strings.c   json_schema_formats.c
 *     json_schema_arrays.c    json_schema_objects.c    json_schema_members.c
 *
 * A *term* is a conjunction of schemas, some of them negated, that one value
 * must satisfy: those of a member, for example, to which several keywords
 * apply. Equal terms are one object, and each becomes one rule, so recursive
 * schemas need nothing special.
 *
 * A *set* is the normal form of a term: the values of each type of JSON by
 * themselves. Numbers and strings are automata, which have all operations.
 * Arrays and objects are lists of alternatives, each a conjunction of
 * constraints; their elements and members have terms, which become sets only
 * where they are looked at. What a set cannot hold is kept as a refusal, by
 * type: it matters only where values of the type are asked for.
 *
 * All objects are constant once made, and live in the compiler's arena.
 * Functions return NULL after a failure (compiler.h).
 */
#ifndef BT_COMMON_GRAMMAR_JSON_SCHEMA_PRIV_H
#define BT_COMMON_GRAMMAR_JSON_SCHEMA_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/grammar/json_schema.h"

#define SCHEMA_NO_LIMIT         UINT32_MAX
#define SCHEMA_MAX_ALTERNATIVES 256u
#define SCHEMA_MAX_TERMS        16384u
#define SCHEMA_MAX_SOME         4u
#define SCHEMA_MAX_FORMATS      24u
#define SCHEMA_MAX_NEST         120u /**< sets made within one another */

/** Types whose values have a form of their own. */
typedef enum schema_type {
    SCHEMA_NUMBERS,
    SCHEMA_STRINGS,
    SCHEMA_ARRAYS,
    SCHEMA_OBJECTS,
    SCHEMA_N_TYPES,
} schema_type_t;

typedef struct schema_set schema_set_t;

/** Schema or value that a term has. */
typedef struct schema_literal {
    const bt_json_node_t *node;
    bool is_value; /**< a value of enum or const */
    bool is_negated;
} schema_literal_t;

typedef enum schema_emptiness {
    SCHEMA_NOT_CHECKED,
    SCHEMA_CHECKING,
    SCHEMA_EMPTY,     /**< no value satisfies the term */
    SCHEMA_MAY_MATCH, /**< none has been ruled out */
} schema_emptiness_t;

/** Conjunction of literals, in ascending order. */
typedef struct schema_term {
    const schema_literal_t *literals;
    uint32_t n; /**< 0: any value */
    bool is_nothing;

    const schema_set_t *set; /**< NULL: not made */
    bool is_open;            /**< the set is being made */
    schema_emptiness_t emptiness;
    uint32_t rule; /**< + 1; 0: none yet */
    struct schema_term *next;
    struct schema_term *undefined; /**< next one whose rule has no definition */
} schema_term_t;

/** Why values of a type cannot be held. */
typedef struct schema_refusal {
    const bt_json_node_t *at;
    const char *format; /**< with up to two numbers */
    uint32_t a, b;
} schema_refusal_t;

/** Texts by their automaton and length. */
typedef struct schema_texts {
    const bt_dfa_t *dfa; /**< NULL: any text */
    uint32_t min, max;   /**< code points */
} schema_texts_t;

typedef struct schema_strings {
    const schema_texts_t *items;
    uint32_t n;
} schema_strings_t;

/** Elements of which some must satisfy a term. */
typedef struct schema_contains {
    schema_term_t *term;
    uint32_t min, max; /**< elements that satisfy it */
    uint32_t from;     /**< index of the first one that counts */
    const bt_json_node_t *at;
} schema_contains_t;

typedef struct schema_array {
    schema_term_t **prefix; /**< schemas of the first elements */
    uint32_t n_prefix;
    schema_term_t *rest; /**< the schema of all others */
    uint32_t min, max;
    const bt_json_node_t *unique; /**< uniqueItems; NULL: none */
    const schema_contains_t *contains;
    uint32_t n_contains;
    uint32_t n_evaluated; /**< first elements that unevaluatedItems leaves */
} schema_array_t;

/** Member by its name. */
typedef struct schema_member {
    const char *name; /**< decoded */
    uint32_t len;
    bool is_required;
    bool is_evaluated; /**< unevaluatedProperties leaves it */
    schema_term_t *term;
} schema_member_t;

/** Members whose names are in an automaton. */
typedef struct schema_names {
    const bt_dfa_t *names; /**< decoded; NULL: all */
    bool is_evaluated;
    schema_term_t *term;
    const bt_json_node_t *at; /**< keyword of one of `some`, for messages */
} schema_names_t;

/** Object. Each name is in one of `classes`; for names that are in `members`,
 *  that of `members` counts. */
typedef struct schema_object {
    schema_member_t *members; /**< in the order in which they come */
    uint32_t n_members;
    const schema_names_t *classes; /**< disjoint */
    uint32_t n_classes;
    const schema_names_t *some; /**< each: of at least one member */
    uint32_t n_some;
    uint32_t min, max;
    const bt_json_node_t *min_at; /**< keyword, for messages */
} schema_object_t;

/** Alternatives, each a schema_array_t, or each a schema_object_t. */
typedef struct schema_list {
    const void *const *items;
    uint32_t n;
    bool is_all;  /**< no constraints */
    bool is_part; /**< may lack values, so it has no complement */
} schema_list_t;

struct schema_set {
    bool has_null, has_false, has_true;
    const bt_dfa_t *numbers; /**< canonical decimals */
    bool has_integers;       /**< some numbers are there as values of the type
                                  `integer`: those without a fraction are written
                                  without one, since draft 4 takes 1.0 for none */
    schema_strings_t strings;
    schema_strings_t widest; /**< strings, with those that a format may have */
    schema_list_t lists[2];  /**< arrays, and objects */
    const schema_refusal_t *refused[SCHEMA_N_TYPES]; /**< NULL: held */
};

#define SCHEMA_LIST_OF(type) ((type)-SCHEMA_ARRAYS)

typedef enum schema_draft {
    SCHEMA_DRAFT_4,
    SCHEMA_DRAFT_6,
    SCHEMA_DRAFT_7,
    SCHEMA_DRAFT_2019,
    SCHEMA_DRAFT_2020,
} schema_draft_t;

/** Schema with an URI of its own ($id), or a root. */
typedef struct schema_resource {
    const bt_json_node_t *node;
    const char *uri;
    uint32_t len;
    uint32_t root; /**< index of the root that contains it */
    schema_draft_t draft;
} schema_resource_t;

typedef struct schema_anchor {
    uint32_t resource;
    const char *name;
    uint32_t len;
    bool is_dynamic;
    const bt_json_node_t *node;
} schema_anchor_t;

/** Schema whose text others may have, too. */
typedef struct schema_text {
    uint64_t hash;
    const bt_json_node_t *node;
    uint32_t resource;
    struct schema_text *next;
} schema_text_t;

typedef struct schema {
    bt_grammar_builder_t *b;
    bt_grammar_compiler_t *c;
    const bt_json_doc_t *doc;
    const bt_json_node_t *root;
    bt_json_schema_options_t options;

    schema_resource_t *resources;
    schema_anchor_t *anchors;
    uint32_t n_resources, cap_resources;
    uint32_t root_resource; /* of s->root */
    uint32_t n_anchors, cap_anchors;
    uint32_t n_recursive; /* resources with $recursiveAnchor */

    schema_term_t *terms[1024]; /* by hash */
    schema_text_t *texts[1024]; /* of schemas, by hash */
    uint32_t n_terms;
    schema_term_t *any, *nothing;
    schema_term_t *undefined;
    uint32_t nest, context_depth;
    const bt_json_node_t *loop; /* schema that was met in its own set */

    const schema_set_t *all, *none;
    schema_strings_t formats[SCHEMA_MAX_FORMATS][2]; /* held, widest */
    bool has_format[SCHEMA_MAX_FORMATS];
    const bt_dfa_t *any_text;
    const bt_dfa_t *decimals, *integers, *magnitudes;
    const bt_expr_t *space; /* between tokens */
    const bt_expr_t *string_char;
    const bt_expr_t *real; /* any number */
} schema_t;

/* Automata are NULL after a failure: that is no text. */

static inline bool schema_dfa_is_empty(const bt_dfa_t *dfa)
{
    return (dfa == NULL) || bt_dfa_is_empty(dfa);
}

static inline bool schema_dfa_accepts(const bt_dfa_t *dfa, const void *bytes,
                                      size_t n)
{
    return (dfa != NULL) && bt_dfa_accepts(dfa, bytes, n);
}

static inline bool schema_dfa_equal(const bt_dfa_t *a, const bt_dfa_t *b)
{
    return (a != NULL) && (b != NULL) && bt_dfa_equal(a, b);
}

/* ---- json_schema.c ---- */

/** Fails with the JSON pointer of a node before the sentence. */
void schema_fail(schema_t *s, bt_status_t status, const bt_json_node_t *node,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));
/** Fails with BT_ERR_UNSUPPORTED. */
void schema_refuse(schema_t *s, const schema_refusal_t *why);
schema_refusal_t *schema_refusal(schema_t *s, const bt_json_node_t *at,
                                 const char *format, uint32_t a, uint32_t b);
/** Returns an expression of the values of a term: a call of its rule. */
const bt_expr_t *schema_value(schema_t *s, schema_term_t *term);

/** Adds the JSON pointer of a node to the sentence of a failure. */
void schema_locate(schema_t *s, const bt_json_node_t *node);

/* ---- json_schema_write.c ---- */

const bt_expr_t *schema_array_expr(schema_t *s, const schema_array_t *x);
const bt_expr_t *schema_object_expr(schema_t *s, const schema_object_t *x);

/* ---- json_schema_refs.c ---- */

/** Finds the resources and anchors of the document. */
void schema_find_resources(schema_t *s);
/** Returns the index of the innermost resource that has a node. */
uint32_t schema_resource_of(const schema_t *s, const bt_json_node_t *node);
schema_draft_t schema_draft_of(const schema_t *s, const bt_json_node_t *node);
/** Returns the schema that a reference names.
 *  @param [in] value  Of the keyword `key`: $ref, $dynamicRef, $recursiveRef.
 *  @return NULL: failed */
const bt_json_node_t *schema_resolve(schema_t *s, const char *key,
                                     const bt_json_node_t *value);

/* ---- json_schema_terms.c ---- */

void schema_terms_init(schema_t *s);
schema_term_t *schema_term_of(schema_t *s, const bt_json_node_t *schema);
schema_term_t *schema_term_of_value(schema_t *s, const bt_json_node_t *value);
schema_term_t *schema_term_and(schema_t *s, schema_term_t *a, schema_term_t *b);
/** Returns the term of one literal, negated. */
schema_term_t *schema_term_not(schema_t *s, const schema_literal_t *literal);
/** Returns the negation of a term of at most one literal. */
schema_term_t *schema_term_not_one(schema_t *s, const schema_term_t *term);
const schema_set_t *schema_term_set(schema_t *s, schema_term_t *term);
/** Narrows a set to the values of a schema, with what is known of them where
 *  that helps to tell alternatives apart. */
const schema_set_t *schema_set_within(schema_t *s, const schema_set_t *x,
                                      const bt_json_node_t *schema);
/** True for schemas for which it helps. */
bool schema_needs_context(schema_t *s, const bt_json_node_t *schema);
/** True where no value satisfies a term; false also where that is not known. */
bool schema_is_empty(schema_t *s, schema_term_t *term);

/* ---- json_schema_keywords.c ---- */

/** Narrows a set to the values of a schema. */
const schema_set_t *schema_set_of(schema_t *s, const schema_set_t *x,
                                  const bt_json_node_t *schema);
/** How a keyword contains schemas. */
typedef enum schema_holds {
    SCHEMA_HOLDS_NONE,
    SCHEMA_HOLDS_ONE,
    SCHEMA_HOLDS_LIST,
    SCHEMA_HOLDS_ONE_OR_LIST,
    SCHEMA_HOLDS_MAP,
} schema_holds_t;
schema_holds_t schema_keyword_holds(const bt_json_node_t *key);
/** True for an object, or a boolean. */
bool schema_is_schema(const bt_json_node_t *node);
/** Fails where a node is no schema. @return false then */
bool schema_check_schema(schema_t *s, const bt_json_node_t *node);
/** Reads a number of elements, members or characters; SCHEMA_NO_LIMIT - 1
 * stands for all above. @return false: failed */
bool schema_read_count(schema_t *s, const bt_json_node_t *value, uint32_t *n_p);
/** True for a schema of annotations alone. */
bool schema_is_any(schema_t *s, const bt_json_node_t *schema);
/** Returns the reference of a schema that says nothing else; NULL: none. */
const bt_json_node_t *schema_lone_ref(schema_t *s,
                                      const bt_json_node_t *schema);

/* ---- json_schema_sets.c ---- */

void schema_sets_init(schema_t *s);
/** Returns a set without values, to be filled. */
schema_set_t *schema_set_new(schema_t *s);
/** Returns a set of all values, to be narrowed. */
schema_set_t *schema_set_new_all(schema_t *s);
void schema_set_numbers(schema_set_t *x, const bt_dfa_t *dfa);
void schema_set_strings(schema_set_t *x, schema_strings_t strings);
/** Gives a set one alternative of arrays or objects. */
void schema_set_list(schema_t *s, schema_set_t *x, schema_type_t type,
                     const void *one);
/** Adds an alternative to a list. */
void schema_list_add(schema_t *s, schema_list_t *list, const void *one);
void schema_set_refuse(schema_set_t *x, schema_type_t type,
                       const schema_refusal_t *why);
const schema_set_t *schema_set_and(schema_t *s, const schema_set_t *a,
                                   const schema_set_t *b);
const schema_set_t *schema_set_or(schema_t *s, const schema_set_t *a,
                                  const schema_set_t *b);
/** Returns the values of a that are not in b.
 *  @param [in] at  Keyword, for refusals. */
const schema_set_t *schema_set_minus(schema_t *s, const schema_set_t *a,
                                     const schema_set_t *b,
                                     const bt_json_node_t *at);
/** Returns the values that are in exactly one of n sets. */
const schema_set_t *schema_one_of(schema_t *s, const schema_set_t *const *sets,
                                  uint32_t n, const bt_json_node_t *at);
/** Returns the set of one value. */
const schema_set_t *schema_set_of_value(schema_t *s,
                                        const bt_json_node_t *value);
/** True where a set has no value, as far as is known. */
bool schema_set_is_empty(schema_t *s, const schema_set_t *x);

/* ---- json_schema_numbers.c ---- */

/** Returns all decimals, in canonical spelling: without exponent, zeros at the
 *  end of the fraction, and -0. */
const bt_dfa_t *schema_decimals(schema_t *s);
const bt_dfa_t *schema_integers(schema_t *s);
/** Returns the decimals beyond a bound, or at it. */
const bt_dfa_t *schema_bound(schema_t *s, const bt_json_node_t *number,
                             bool above, bool is_exclusive);
/** @param [out] why_p  Why the multiples cannot be held; NULL: they are. */
const bt_dfa_t *schema_multiples(schema_t *s, const bt_json_node_t *number,
                                 const schema_refusal_t **why_p);
/** Writes the canonical spelling of a number.
 *  @return NULL: failed */
const char *schema_number_text(schema_t *s, const bt_json_node_t *number,
                               uint32_t *len_p);
const bt_expr_t *schema_numbers_expr(schema_t *s, const bt_dfa_t *numbers,
                                     bool has_integers);

/* ---- json_schema_strings.c ---- */

const bt_dfa_t *schema_any_text(schema_t *s);
schema_strings_t schema_any_string(schema_t *s);
schema_strings_t schema_strings_of(schema_t *s, const bt_dfa_t *dfa,
                                   uint32_t min, uint32_t max);
schema_strings_t schema_strings_and(schema_t *s, schema_strings_t a,
                                    schema_strings_t b);
schema_strings_t schema_strings_or(schema_t *s, schema_strings_t a,
                                   schema_strings_t b);
schema_strings_t schema_strings_not(schema_t *s, schema_strings_t a);
/** Returns one automaton of all strings of a list.
 *  @return NULL: failed, or lengths are too large; *why_p has why */
const bt_dfa_t *schema_strings_dfa(schema_t *s, schema_strings_t a,
                                   const bt_json_node_t *at,
                                   const schema_refusal_t **why_p);
bool schema_strings_are_any(schema_strings_t a);
/** Returns the texts that a pattern matches anywhere. */
const bt_dfa_t *schema_pattern(schema_t *s, const bt_json_node_t *pattern);
const bt_expr_t *schema_strings_expr(schema_t *s, schema_strings_t a);
/** Returns an expression of a string, quoted, in its canonical spelling. */
const bt_expr_t *schema_quoted(schema_t *s, const char *text, uint32_t len);
/** Counts the texts of an automaton, up to a limit. */
uint32_t schema_count_texts(schema_t *s, const bt_dfa_t *dfa, uint32_t limit);

/* ---- json_schema_formats.c ---- */

/** Gives the strings of a format.
 *  @param [out] widest_p  With those that some validators take.
 *  @return false: the format is not known */
bool schema_format(schema_t *s, const bt_json_node_t *name,
                   schema_strings_t *strings_p, schema_strings_t *widest_p);

/* ---- json_schema_arrays.c ---- */

schema_array_t schema_any_array(schema_t *s);
const void *schema_array_and(schema_t *s, const void *one, const void *other);
/** Adds the arrays that do not satisfy one.
 *  @return a refusal; NULL: all were added */
const schema_refusal_t *schema_array_not(schema_t *s, const void *one,
                                         const bt_json_node_t *at,
                                         schema_list_t *out);
bool schema_array_is_empty(schema_t *s, const void *one);
/** Returns the term of an element. */
schema_term_t *schema_element(const schema_array_t *a, uint32_t index);
const schema_set_t *schema_on_arrays(schema_t *s, const bt_json_node_t *schema);
const schema_set_t *schema_on_unevaluated_items(schema_t *s,
                                                const schema_set_t *x,
                                                const bt_json_node_t *value);

/* ---- json_schema_objects.c ---- */

schema_object_t schema_any_object(schema_t *s);
const void *schema_object_and(schema_t *s, const void *one, const void *other);
const schema_refusal_t *schema_object_not(schema_t *s, const void *one,
                                          const bt_json_node_t *at,
                                          schema_list_t *out);
bool schema_object_is_empty(schema_t *s, const void *one);
/** Returns the member of a name; NULL: none */
const schema_member_t *schema_member(const schema_object_t *x, const char *name,
                                     uint32_t len);
/** Returns the class of a name. */
const schema_names_t *schema_class(const schema_object_t *x, const char *name,
                                   uint32_t len);
schema_object_t *schema_new_object(schema_t *s);
/** Adds a class of names; those of one term become one class. */
void schema_add_class(schema_t *s, schema_object_t *x, schema_names_t one);
/** Returns names, NULL for all, without those of members. */
const bt_dfa_t *schema_other_names(schema_t *s, const schema_object_t *x,
                                   const bt_dfa_t *names);
/** Adds objects that together are those of one, in which `some` are members
 * that are not in `members`. */
void schema_object_expand(schema_t *s, const schema_object_t *a,
                          schema_list_t *out);

/* ---- json_schema_members.c ---- */

/** Returns the set of the keywords that describe objects. */
const schema_set_t *schema_on_objects(schema_t *s,
                                      const bt_json_node_t *schema);
/** Narrows a set. */
const schema_set_t *schema_on_dependencies(schema_t *s, const schema_set_t *x,
                                           const bt_json_node_t *value);
const schema_set_t *
schema_on_unevaluated_properties(schema_t *s, const schema_set_t *x,
                                 const bt_json_node_t *value);

#endif
