/* SPDX-License-Identifier: Apache-2.0 */
/** @file value.h
 *
 * What a template computes with: Python's values as far as chat templates see
 * them. All memory is of the rendering's arena, none is given back before its
 * end, and nothing but a namespace is changed once it is made.
 *
 * Each text knows which of its bytes a client wrote (`marks`):
 *
 *     data   "<|im_start|>user\nHello</s>"
 *     marks                    [17,    26)
 *
 * so that what comes out of the template can be tokenized with special tokens
 * in the template's own bytes alone. Whoever makes a text of others keeps the
 * marks; where bytes cannot be followed, all that is made is marked. Numbers,
 * booleans, lists and mappings of a client are marked as a whole.
 *
 * Threads: values of one rendering belong to its thread; those in a parsed
 * template are never changed.
 */
#ifndef BT_INFERENCE_TEMPLATE_VALUE_H
#define BT_INFERENCE_TEMPLATE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inference/template/run.h"

typedef struct bt_tmpl_mark {
    uint32_t begin, end; /**< bytes */
} bt_tmpl_mark_t;

/** Valid UTF-8, not zero-terminated. */
typedef struct bt_tmpl_text {
    const char *data;
    uint32_t len;
    uint32_t n_marks;
    const bt_tmpl_mark_t *marks; /**< rising */
} bt_tmpl_text_t;

typedef enum bt_tmpl_kind {
    BT_V_UNDEFINED, /**< sub: BT_UNDEF_… */
    BT_V_NONE,
    BT_V_BOOL,
    BT_V_INT,
    BT_V_BIG_INT, /**< of over 64 bits: its digits; printed, not computed with
                   */
    BT_V_FLOAT,
    BT_V_TEXT,
    BT_V_SEQ, /**< sub: BT_SEQ_… */
    BT_V_DICT,
    BT_V_NAMESPACE,
    BT_V_MACRO,
    BT_V_BUILTIN, /**< sub: BT_CALL_… of globals.c */
    BT_V_METHOD,  /**< sub: row of the table in methods.c */
    BT_V_LOOP,
    BT_V_STATE, /**< a cycler or joiner; sub: which */
} bt_tmpl_kind_t;

typedef enum bt_tmpl_seq_kind {
    BT_SEQ_LIST,
    BT_SEQ_TUPLE,
    BT_SEQ_RANGE,
    BT_SEQ_KEYS,
    BT_SEQ_VALUES,
    BT_SEQ_ITEMS,
    BT_SEQ_ITERATOR, /**< what filters give: no length, read once */
} bt_tmpl_seq_kind_t;

typedef enum bt_tmpl_undef {
    BT_UNDEF_NAME,      /**< 'x' is undefined */
    BT_UNDEF_ATTRIBUTE, /**< ... has no attribute 'x' */
    BT_UNDEF_UNSAFE,    /**< a method that would change a value */
    BT_UNDEF_PARAMETER, /**< parameter 'x' was not provided */
    BT_UNDEF_OTHER,     /**< the name is the whole text */
} bt_tmpl_undef_t;

typedef struct bt_tmpl_seq bt_tmpl_seq_t;
typedef struct bt_tmpl_dict bt_tmpl_dict_t;
typedef struct bt_tmpl_macro bt_tmpl_macro_t;
typedef struct bt_tmpl_loop bt_tmpl_loop_t;
typedef struct bt_tmpl_method bt_tmpl_method_t;
typedef struct bt_tmpl_state bt_tmpl_state_t;

typedef struct bt_tmpl_value {
    uint8_t kind;
    uint8_t sub;
    bool quoted; /**< of a client; texts have marks instead */
    bool used;   /**< of a client's member: the template has looked at it */
    union {
        bool truth;
        int64_t i;
        double f;
        const bt_tmpl_text_t *text; /**< also the name of what is undefined, and
                                         the digits of a large integer */
        bt_tmpl_seq_t *seq;
        bt_tmpl_dict_t *dict;
        const bt_tmpl_macro_t *macro;
        const bt_tmpl_method_t *method;
        bt_tmpl_loop_t *loop;
        bt_tmpl_state_t *state;
    } u;
} bt_tmpl_value_t;

struct bt_tmpl_seq {
    bt_tmpl_value_t *items;
    uint32_t n, cap;
    uint32_t taken; /**< of an iterator: how many were read */
    bool quoted;
};

typedef struct bt_tmpl_entry {
    bt_tmpl_value_t key, value;
    uint64_t hash;
} bt_tmpl_entry_t;

/** In the order of insertion. */
struct bt_tmpl_dict {
    bt_tmpl_entry_t *entries;
    uint32_t *index; /**< 1 + place in entries, 0: free; NULL while small */
    uint32_t n, cap, n_index;
    bool quoted;
    /** A text that the mapping was read from, and which it is where a text is
     *  wanted: printed, joined, asked for a text's methods. NULL: none. */
    const bt_tmpl_text_t *text;
};

/* ---- making ---- */

static inline bt_tmpl_value_t bt_tmpl_v_none(void)
{
    return (bt_tmpl_value_t){.kind = BT_V_NONE};
}
static inline bt_tmpl_value_t bt_tmpl_v_bool(bool truth)
{
    return (bt_tmpl_value_t){.kind = BT_V_BOOL, .u.truth = truth};
}
static inline bt_tmpl_value_t bt_tmpl_v_int(int64_t i)
{
    return (bt_tmpl_value_t){.kind = BT_V_INT, .u.i = i};
}
static inline bt_tmpl_value_t bt_tmpl_v_big_int(const bt_tmpl_text_t *digits)
{
    return (bt_tmpl_value_t){.kind = BT_V_BIG_INT, .u.text = digits};
}
static inline bt_tmpl_value_t bt_tmpl_v_float(double f)
{
    return (bt_tmpl_value_t){.kind = BT_V_FLOAT, .u.f = f};
}
static inline bt_tmpl_value_t bt_tmpl_v_text(const bt_tmpl_text_t *text)
{
    return (bt_tmpl_value_t){.kind = BT_V_TEXT, .u.text = text};
}
static inline bt_tmpl_value_t bt_tmpl_v_seq(bt_tmpl_seq_kind_t kind,
                                            bt_tmpl_seq_t *seq)
{
    return (bt_tmpl_value_t){
        .kind = BT_V_SEQ, .sub = (uint8_t)kind, .u.seq = seq};
}
static inline bt_tmpl_value_t bt_tmpl_v_dict(bt_tmpl_dict_t *dict)
{
    return (bt_tmpl_value_t){.kind = BT_V_DICT, .u.dict = dict};
}
/** @param [in] name  a text that outlives the value, or NULL */
static inline bt_tmpl_value_t bt_tmpl_v_undefined(bt_tmpl_undef_t why,
                                                  const bt_tmpl_text_t *name)
{
    return (bt_tmpl_value_t){
        .kind = BT_V_UNDEFINED, .sub = (uint8_t)why, .u.text = name};
}
/** What a function that failed returns; run->status says that it did. */
static inline bt_tmpl_value_t bt_tmpl_v_failed(void)
{
    return (bt_tmpl_value_t){.kind = BT_V_NONE};
}

/** Empty; NULL: run->status says why. */
bt_tmpl_seq_t *bt_tmpl_seq_make(bt_tmpl_run_t *run, uint32_t cap);
/** @return false: run->status says why */
bool bt_tmpl_seq_add(bt_tmpl_run_t *run, bt_tmpl_seq_t *seq,
                     bt_tmpl_value_t item);
bt_tmpl_dict_t *bt_tmpl_dict_make(bt_tmpl_run_t *run);
/** Adds or replaces. @return false: run->status says why (memory, or a key that
 *  Python could not hash) */
bool bt_tmpl_dict_put(bt_tmpl_run_t *run, bt_tmpl_dict_t *dict,
                      bt_tmpl_value_t key, bt_tmpl_value_t value);
/** Whoever gives a member's value to a template. */
static inline bt_tmpl_value_t bt_tmpl_entry_use(const bt_tmpl_dict_t *dict,
                                                uint32_t i)
{
    if (dict->quoted) { /* others may be a parsed template's, and shared */
        dict->entries[i].value.used = true;
    }
    return dict->entries[i].value;
}
/** Uses what it finds. @return NULL: not there, or no possible key */
const bt_tmpl_value_t *bt_tmpl_dict_find(const bt_tmpl_dict_t *dict,
                                         bt_tmpl_value_t key);
const bt_tmpl_value_t *bt_tmpl_dict_find_name(const bt_tmpl_dict_t *dict,
                                              const char *name);

/* ---- asking ---- */

bool bt_tmpl_v_truth(bt_tmpl_value_t value);
/** Python's ==; never fails. Nothing nests deeper than the run's depth. */
bool bt_tmpl_v_equal(bt_tmpl_run_t *run, bt_tmpl_value_t a, bt_tmpl_value_t b);
/** Python's < for sorting and comparing: below 0, 0, above 0. Fails for kinds
 *  that have no order among them; @a op is for the error. */
int bt_tmpl_v_compare(bt_tmpl_run_t *run, bt_tmpl_value_t a, bt_tmpl_value_t b,
                      const char *op);
/** "str", "int", "dict" ... */
const char *bt_tmpl_v_kind_name(bt_tmpl_value_t value);
static inline bool bt_tmpl_v_is_number(bt_tmpl_value_t value)
{
    return (value.kind == BT_V_BOOL) || (value.kind == BT_V_INT) ||
           (value.kind == BT_V_FLOAT);
}
static inline bool bt_tmpl_v_is_integer(bt_tmpl_value_t value)
{
    return (value.kind == BT_V_BOOL) || (value.kind == BT_V_INT);
}
static inline int64_t bt_tmpl_v_as_int(bt_tmpl_value_t value)
{
    return (value.kind == BT_V_BOOL) ? value.u.truth : value.u.i;
}
static inline double bt_tmpl_v_as_float(bt_tmpl_value_t value)
{
    return (value.kind == BT_V_FLOAT) ? value.u.f
                                      : (double)bt_tmpl_v_as_int(value);
}
/** Itself, or the text that a mapping was read from. @return NULL: neither */
static inline const bt_tmpl_text_t *bt_tmpl_v_as_text(bt_tmpl_value_t value)
{
    return (value.kind == BT_V_TEXT)   ? value.u.text
           : (value.kind == BT_V_DICT) ? value.u.dict->text
                                       : NULL;
}
/** The value, or something within it, is a client's. */
bool bt_tmpl_v_quoted(bt_tmpl_value_t value);
bool bt_tmpl_v_text_is(bt_tmpl_value_t value, const char *text);
/** Fails with what is wrong about using this undefined value. */
void bt_tmpl_v_fail_undefined(bt_tmpl_run_t *run, bt_tmpl_value_t value);

/**
 * The items that Python's iter() would give: an iterator is read to its end.
 * @param [out] seq_p  not to be changed; may be the value's own
 * @return false: run->status says why (not iterable)
 */
bool bt_tmpl_v_items(bt_tmpl_run_t *run, bt_tmpl_value_t value,
                     const bt_tmpl_seq_t **seq_p, uint32_t *first_p);
/** len(). @return false: failed */
bool bt_tmpl_v_length(bt_tmpl_run_t *run, bt_tmpl_value_t value, int64_t *n_p);
/** Python's `in`. */
bool bt_tmpl_v_contains(bt_tmpl_run_t *run, bt_tmpl_value_t container,
                        bt_tmpl_value_t item);

#endif
