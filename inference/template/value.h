/* SPDX-License-Identifier: Apache-2.0 */
/** @file value.h
 *
 * Rendering of one template: its memory, its bounds, its error, and its values,
 * which are Python's as far as chat templates use them. All memory is in the
 * rendering's arena, none is freed before its end, and only a namespace is ever
 * changed once it is made.
 *
 * Each text records which of its bytes a client wrote (`marks`):
 *
 *     data   "<|im_start|>user\nHello</s>"
 *     marks                    [17,    26)
 *
 * so that the output can be tokenized with special tokens only in the
 * template's own bytes. An operation that makes a text of others keeps the
 * marks; where bytes cannot be followed, the whole result is marked. Numbers,
 * booleans, lists and mappings of a client are marked as a whole.
 *
 * Threads: values of one rendering belong to its thread; those in a parsed
 *         template are never changed.
 */
#ifndef BT_INFERENCE_TEMPLATE_VALUE_H
#define BT_INFERENCE_TEMPLATE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

typedef struct bt_tmpl_mark {
    uint32_t begin, end; /**< byte positions */
} bt_tmpl_mark_t;

/*
 * Arena of one template, or of one rendering: memory is allocated piece by
 * piece, freed all at once, and never exceeds a limit. The newest piece can
 * grow in place, so a text that is appended to repeatedly is not copied each
 * time.
 *
 * Threads: an arena belongs to one thread.
 */

typedef struct bt_tmpl_arena_chunk bt_tmpl_arena_chunk_t;

typedef struct bt_tmpl_arena {
    bt_tmpl_arena_chunk_t *chunks; /**< owned, the newest first */
    char *at;                      /**< next free byte of the newest chunk */
    char *end;
    size_t used_bytes;  /**< bytes of all chunks */
    size_t limit_bytes; /**< most bytes of all chunks */
    bt_status_t status; /**< reason for the last refused piece */
} bt_tmpl_arena_t;

/** Initializes an arena; allocates nothing. */
void bt_tmpl_arena_init(bt_tmpl_arena_t *arena, size_t limit_bytes);
void bt_tmpl_arena_fini(bt_tmpl_arena_t *arena);

/** Allocates @a n elements, zeroed, aligned for any type.
 *  @return NULL: the limit is reached or memory is short; arena->status says
 *          which */
void *bt_tmpl_arena_take(bt_tmpl_arena_t *arena, size_t n, size_t size);
/** Allocates bytes that are neither zeroed nor aligned. */
char *bt_tmpl_arena_take_bytes(bt_tmpl_arena_t *arena, size_t n);
/** Extends the newest piece, which must end at @a end, by @a n bytes.
 *  @return false: another piece is there, or no space; nothing was changed */
bool bt_tmpl_arena_extend(bt_tmpl_arena_t *arena, const char *end, size_t n);

/*
 * Common state of one rendering: its memory, its remaining budget, and its
 * error. Errors stick: the first one is kept, with its line in the template,
 * and from then on all operations do nothing; loops must check bt_tmpl_run_ok()
 * or bt_tmpl_run_step().
 *
 * Threads: a run belongs to one thread.
 */

#define BT_RUN_WHY_BYTES 512

/** Most levels of nested values and blocks, including macro calls. */
#define BT_RUN_MAX_DEPTH 200u

typedef struct bt_tmpl_run {
    bt_tmpl_arena_t values; /**< nodes, lists, marks */
    bt_tmpl_arena_t bytes;  /**< texts: the newest can grow */
    /** Reserved space behind the text that is appended to repeatedly,
     *  unaffected by other allocations. */
    char *grows_at, *grows_end;
    uint32_t grows_len;          /**< length of that text; only one at least as
                                      long replaces it */
    bt_tmpl_mark_t *grows_marks; /**< marks of that text; other texts share
                                         a prefix of them */
    uint32_t n_grows_marks, cap_grows_marks;
    uint64_t steps_left;
    uint32_t depth;
    uint32_t line; /**< current line of the template */
    bt_status_t status;
    bool raised; /**< by the template itself: why is its message */
    char why[BT_RUN_WHY_BYTES];
} bt_tmpl_run_t;

/** Initializes a rendering.
 *  @param [in] bytes  most bytes of values, and of texts */
void bt_tmpl_run_init(bt_tmpl_run_t *run, size_t bytes, uint64_t steps);
void bt_tmpl_run_fini(bt_tmpl_run_t *run);

static inline bool bt_tmpl_run_ok(const bt_tmpl_run_t *run)
{
    return run->status == BT_OK;
}

/** Records a failure, if it is the first.
 *  @param [in] fmt  one sentence, without the line
 *  @return false */
bool bt_tmpl_run_fail(bt_tmpl_run_t *run, bt_status_t status, const char *fmt,
                      ...) __attribute__((format(printf, 3, 4)));
/** Records that the arena refused memory. */
void bt_tmpl_run_fail_memory(bt_tmpl_run_t *run, const bt_tmpl_arena_t *arena);

/** Spends @a n steps. @return false: none are left, or the run has failed */
bool bt_tmpl_run_step(bt_tmpl_run_t *run, uint64_t n);
/** Spends steps for work on @a n bytes. */
static inline bool bt_tmpl_run_step_bytes(bt_tmpl_run_t *run, uint64_t n)
{
    return bt_tmpl_run_step(run, 1 + n / 64);
}

/** Enters one more level of nesting; pair with bt_tmpl_run_leave() when
 *  true. */
bool bt_tmpl_run_enter(bt_tmpl_run_t *run);
static inline void bt_tmpl_run_leave(bt_tmpl_run_t *run)
{
    run->depth--;
}

/** Makes space for one more element behind @a n, by moving to an array of twice
 *  the capacity, or of @a first elements where there is none.
 *  @param [in,out] cap_p  capacity of the array
 *  @return the array; NULL: failed */
void *bt_tmpl_run_grow(bt_tmpl_run_t *run, const void *array, uint32_t n,
                       uint32_t *cap_p, uint32_t first, size_t size);
/** Allocates zeroed memory of the rendering, or returns NULL and fails. */
void *bt_tmpl_run_take(bt_tmpl_run_t *run, size_t n, size_t size);

/** Valid UTF-8, not zero-terminated. */
typedef struct bt_tmpl_text {
    const char *data;
    uint32_t len;
    uint32_t n_marks;
    const bt_tmpl_mark_t *marks; /**< ascending */
} bt_tmpl_text_t;

typedef enum bt_tmpl_kind {
    BT_V_UNDEFINED, /**< sub: BT_UNDEF_… */
    BT_V_NONE,
    BT_V_BOOL,
    BT_V_INT,
    BT_V_BIG_INT, /**< decimal digits of an integer of over 64 bits; can be
                       printed, not computed with */
    BT_V_FLOAT,
    BT_V_TEXT,
    BT_V_SEQ, /**< sub: BT_SEQ_… */
    BT_V_DICT,
    BT_V_NAMESPACE,
    BT_V_MACRO,
    BT_V_BUILTIN, /**< sub: BT_CALL_… of builtins.c */
    BT_V_METHOD,  /**< sub: row of the table in methods.c */
    BT_V_LOOP,
    BT_V_STATE, /**< a cycler or joiner; sub: which of the two */
} bt_tmpl_kind_t;

typedef enum bt_tmpl_seq_kind {
    BT_SEQ_LIST,
    BT_SEQ_TUPLE,
    BT_SEQ_RANGE,
    BT_SEQ_KEYS,
    BT_SEQ_VALUES,
    BT_SEQ_ITEMS,
    BT_SEQ_ITERATOR, /**< result of filters: no length, can be read once */
} bt_tmpl_seq_kind_t;

typedef enum bt_tmpl_undef {
    BT_UNDEF_NAME,      /**< 'x' is undefined */
    BT_UNDEF_ATTRIBUTE, /**< ... has no attribute 'x' */
    BT_UNDEF_UNSAFE,    /**< a method that would modify a value */
    BT_UNDEF_PARAMETER, /**< parameter 'x' was not provided */
    BT_UNDEF_OTHER,     /**< the name is the whole message */
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
    bool quoted; /**< from a client; texts have marks instead */
    bool used;   /**< a client's member that the template has read */
    union {
        bool truth;
        int64_t i;
        double f;
        const bt_tmpl_text_t *text; /**< also the name of an undefined value,
                                         and the digits of a large integer */
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
    uint32_t taken; /**< number of items read from an iterator */
    bool quoted;
};

typedef struct bt_tmpl_entry {
    bt_tmpl_value_t key, value;
    uint64_t hash;
} bt_tmpl_entry_t;

/** Mapping, in insertion order. */
struct bt_tmpl_dict {
    bt_tmpl_entry_t *entries;
    uint32_t *index; /**< 1 + index in entries, 0: free; NULL while small */
    uint32_t n, cap, n_index;
    bool quoted;
    /** Source text of a mapping that was read from one, used where a string is
     *  wanted: when it is printed, joined, or a string method is called. NULL:
     *  none. */
    const bt_tmpl_text_t *text;
};

/* ---- construction ---- */

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
/* NULL as text, sequence or mapping: it could not be made, and the run has
 * failed. */
static inline bt_tmpl_value_t bt_tmpl_v_text(const bt_tmpl_text_t *text)
{
    return (bt_tmpl_value_t){.kind = (text != NULL) ? BT_V_TEXT : BT_V_NONE,
                             .u.text = text};
}
static inline bt_tmpl_value_t bt_tmpl_v_seq(bt_tmpl_seq_kind_t kind,
                                            bt_tmpl_seq_t *seq)
{
    return (bt_tmpl_value_t){.kind = (seq != NULL) ? BT_V_SEQ : BT_V_NONE,
                             .sub = (uint8_t)kind,
                             .u.seq = seq};
}
static inline bt_tmpl_value_t bt_tmpl_v_dict(bt_tmpl_dict_t *dict)
{
    return (bt_tmpl_value_t){.kind = (dict != NULL) ? BT_V_DICT : BT_V_NONE,
                             .u.dict = dict};
}
/** Makes an undefined value.
 *  @param [in] name  a text that outlives the value, or NULL */
static inline bt_tmpl_value_t bt_tmpl_v_undefined(bt_tmpl_undef_t why,
                                                  const bt_tmpl_text_t *name)
{
    return (bt_tmpl_value_t){
        .kind = BT_V_UNDEFINED, .sub = (uint8_t)why, .u.text = name};
}
/** Returns the value of a function that failed; the failure is in
 *  run->status. */
static inline bt_tmpl_value_t bt_tmpl_v_failed(void)
{
    return (bt_tmpl_value_t){.kind = BT_V_NONE};
}
/** Records that the template does what it may not, and returns the value of a
 *  function that failed. */
#define BT_TMPL_REFUSE(run, ...)                                 \
    (bt_tmpl_run_fail((run), BT_ERR_INVALID_PARAM, __VA_ARGS__), \
     bt_tmpl_v_failed())

/** Makes an empty list; NULL: the reason is in run->status. */
bt_tmpl_seq_t *bt_tmpl_seq_make(bt_tmpl_run_t *run, uint32_t cap);
/** Appends an item. @return false: the reason is in run->status */
bool bt_tmpl_seq_add(bt_tmpl_run_t *run, bt_tmpl_seq_t *seq,
                     bt_tmpl_value_t item);
bt_tmpl_dict_t *bt_tmpl_dict_make(bt_tmpl_run_t *run);
/** Adds or replaces an entry.
 *  @return false: the reason is in run->status (memory, or a key that Python
 *          could not hash) */
bool bt_tmpl_dict_put(bt_tmpl_run_t *run, bt_tmpl_dict_t *dict,
                      bt_tmpl_value_t key, bt_tmpl_value_t value);
/** Returns a member's value and records that the template has read it; every
 *  access for a template must use it. */
static inline bt_tmpl_value_t bt_tmpl_entry_use(const bt_tmpl_dict_t *dict,
                                                uint32_t i)
{
    if (dict->quoted) { /* other entries may be shared with a parsed template */
        dict->entries[i].value.used = true;
    }
    return dict->entries[i].value;
}
/** Finds a value and records that the template has read it.
 *  @return NULL: not there, or no possible key */
const bt_tmpl_value_t *bt_tmpl_dict_find(const bt_tmpl_dict_t *dict,
                                         bt_tmpl_value_t key);
const bt_tmpl_value_t *bt_tmpl_dict_find_name(const bt_tmpl_dict_t *dict,
                                              const char *name);

/* ---- queries ---- */

bool bt_tmpl_v_truth(bt_tmpl_value_t value);
/** Compares like Python's ==; never fails. Values are nested no deeper than the
 *  run's depth. */
bool bt_tmpl_v_equal(bt_tmpl_run_t *run, bt_tmpl_value_t a, bt_tmpl_value_t b);
/** Compares like Python's <, for sorting and comparing: below 0, 0, above 0.
 *  Fails for kinds that have no order; @a op is for the error. */
int bt_tmpl_v_compare(bt_tmpl_run_t *run, bt_tmpl_value_t a, bt_tmpl_value_t b,
                      const char *op);
/** Returns the Python type name: "str", "int", "dict" ... */
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
/** Returns the value as a string: a text, or the source text of a mapping.
 *  @return NULL: neither */
static inline const bt_tmpl_text_t *bt_tmpl_v_as_text(bt_tmpl_value_t value)
{
    return (value.kind == BT_V_TEXT)   ? value.u.text
           : (value.kind == BT_V_DICT) ? value.u.dict->text
                                       : NULL;
}
/** True when the value, or a part of it, is a client's. */
bool bt_tmpl_v_quoted(bt_tmpl_value_t value);
bool bt_tmpl_v_text_is(bt_tmpl_value_t value, const char *text);
/** Fails with the error message for using this undefined value. */
void bt_tmpl_v_fail_undefined(bt_tmpl_run_t *run, bt_tmpl_value_t value);

/**
 * Returns the items that Python's iter() would give: an iterator is read to its
 * end.
 *
 * @param [out] seq_p  not to be changed; may be the value's own
 * @return false: the reason is in run->status (not iterable)
 */
bool bt_tmpl_v_items(bt_tmpl_run_t *run, bt_tmpl_value_t value,
                     const bt_tmpl_seq_t **seq_p, uint32_t *first_p);
/** Returns len() of the value. @return false: failed */
bool bt_tmpl_v_length(bt_tmpl_run_t *run, bt_tmpl_value_t value, int64_t *n_p);
/** True when Python's `in` is. */
bool bt_tmpl_v_contains(bt_tmpl_run_t *run, bt_tmpl_value_t container,
                        bt_tmpl_value_t item);

#endif
