/* SPDX-License-Identifier: Apache-2.0 */
/** @file text.h
 *
 * Text of templates with marks of its origin, case mapping, string operations.
 */
#ifndef BT_INFERENCE_TEMPLATE_TEXT_H
#define BT_INFERENCE_TEMPLATE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/json_doc.h"
#include "common/base/text.h"
#include "inference/template/value.h"

/*
 * Strings and the builder that makes them. Positions are in bytes unless a name
 * says chars.
 *
 * Threads: as value.h.
 */

/** Most bytes of one string. */
#define BT_TEXT_MAX_BYTES ((uint32_t)1 << 30)

/** String under construction. Errors are recorded in the run. */
typedef struct bt_tmpl_build {
    bt_tmpl_run_t *run;
    char *data; /**< in run->bytes */
    uint32_t len, cap;
    bt_tmpl_mark_t *marks; /**< in run->values */
    uint32_t n_marks, cap_marks;
    uint32_t n_fixed; /**< leading marks that are shared with another string */
} bt_tmpl_build_t;

void bt_tmpl_build_init(bt_tmpl_build_t *build, bt_tmpl_run_t *run);
/** Appends bytes.
 *  @param [in] quoted  they are a client's */
void bt_tmpl_build_bytes(bt_tmpl_build_t *build, const char *data, size_t n,
                         bool quoted);
static inline void bt_tmpl_build_puts(bt_tmpl_build_t *build, const char *text)
{
    bt_tmpl_build_bytes(build, text, strlen(text), false);
}
void bt_tmpl_build_char(bt_tmpl_build_t *build, uint32_t cp, bool quoted);
/** Appends bytes [from, to) of @a text with its marks. */
void bt_tmpl_build_slice(bt_tmpl_build_t *build, const bt_tmpl_text_t *text,
                         uint32_t from, uint32_t to);
static inline void bt_tmpl_build_text(bt_tmpl_build_t *build,
                                      const bt_tmpl_text_t *text)
{
    bt_tmpl_build_slice(build, text, 0, text->len);
}
/** Marks everything built from @a from on as a client's. */
void bt_tmpl_build_quote_from(bt_tmpl_build_t *build, uint32_t from);
/** Completes the string. @return NULL: failed */
const bt_tmpl_text_t *bt_tmpl_build_end(bt_tmpl_build_t *build);
/** Completes the string, and returns it as a value. */
bt_tmpl_value_t bt_tmpl_build_value(bt_tmpl_build_t *build);

extern const bt_tmpl_text_t bt_tmpl_text_empty;

/** Copies bytes to a string. @return NULL: failed */
const bt_tmpl_text_t *bt_tmpl_text_make(bt_tmpl_run_t *run, const char *data,
                                        size_t n, bool quoted);
const bt_tmpl_text_t *bt_tmpl_text_slice(bt_tmpl_run_t *run,
                                         const bt_tmpl_text_t *text,
                                         uint32_t from, uint32_t to);
/** Concatenates two strings, in place where @a a is the newest one. */
const bt_tmpl_text_t *bt_tmpl_text_join(bt_tmpl_run_t *run,
                                        const bt_tmpl_text_t *a,
                                        const bt_tmpl_text_t *b);
static inline bool bt_tmpl_text_quoted(const bt_tmpl_text_t *text)
{
    return text->n_marks > 0;
}
/** True when a byte of [from, to) is a client's. */
bool bt_tmpl_text_quoted_in(const bt_tmpl_text_t *text, uint32_t from,
                            uint32_t to);

static inline bool bt_tmpl_text_equal(const bt_tmpl_text_t *a,
                                      const bt_tmpl_text_t *b)
{
    return (a->len == b->len) &&
           ((a->len == 0) || (memcmp(a->data, b->data, a->len) == 0));
}
bool bt_tmpl_text_is(const bt_tmpl_text_t *text, const char *other);
/** Returns the position of @a needle in [from, to), or UINT32_MAX. */
uint32_t bt_tmpl_text_find(const bt_tmpl_text_t *text,
                           const bt_tmpl_text_t *needle, uint32_t from,
                           uint32_t to);
uint32_t bt_tmpl_text_rfind(const bt_tmpl_text_t *text,
                            const bt_tmpl_text_t *needle, uint32_t from,
                            uint32_t to);
uint32_t bt_tmpl_text_chars(const bt_tmpl_text_t *text);
/** Returns the byte at which character @a n begins; text->len past the last. */
uint32_t bt_tmpl_text_char_at(const bt_tmpl_text_t *text, uint32_t n);
/** Decodes the character at a byte. @return its length */
static inline uint32_t bt_tmpl_text_decode(const bt_tmpl_text_t *text,
                                           uint32_t at, uint32_t *cp_p)
{
    return bt_utf8_decode((const uint8_t *)text->data + at, cp_p);
}
/** Returns the length of the character that ends before byte @a at (> 0). */
uint32_t bt_tmpl_text_before(const bt_tmpl_text_t *text, uint32_t at,
                             uint32_t *cp_p);

/* ---- characters, as classified by Python (case_table.c) ---- */

bool bt_tmpl_cp_is_space(uint32_t cp);
bool bt_tmpl_cp_is_alpha(uint32_t cp);
bool bt_tmpl_cp_is_decimal(uint32_t cp);
bool bt_tmpl_cp_is_digit(uint32_t cp);
bool bt_tmpl_cp_is_numeric(uint32_t cp);
/** True when the character has an upper and a lower form, or is one of
 *  these. */
bool bt_tmpl_cp_is_cased(uint32_t cp);
typedef enum bt_tmpl_case { BT_LOWER, BT_UPPER, BT_TITLE } bt_tmpl_case_t;
/** Converts the case of a character.
 *  @param [out] out  the resulting characters
 *  @return how many, 1 to 3 */
unsigned bt_tmpl_cp_to_case(uint32_t cp, bt_tmpl_case_t to, uint32_t out[3]);

/*
 * Prints values byte for byte as Python does: str(), repr() and json.dumps()
 * with the settings of transformers' own tojson; and reads JSON into values.
 *
 * Threads: as value.h.
 */

/** Prints str() of a value. Errors are recorded in the run. */
void bt_tmpl_print_str(bt_tmpl_build_t *out, bt_tmpl_value_t value);

/** Returns str() of a value. @return NULL: failed */
const bt_tmpl_text_t *bt_tmpl_v_str(bt_tmpl_run_t *run, bt_tmpl_value_t value);

typedef struct bt_tmpl_json_style {
    const bt_tmpl_text_t *indent; /**< indentation of one level; NULL: all in
                                       one line */
    const bt_tmpl_text_t *item;   /**< ", " and ": ", or the separators of the
                                       template */
    const bt_tmpl_text_t *key;
    bool ascii; /**< \uXXXX for all other characters */
    bool sorted;
} bt_tmpl_json_style_t;

void bt_tmpl_print_json(bt_tmpl_build_t *out, const bt_tmpl_json_style_t *style,
                        bt_tmpl_value_t value);

/**
 * Reads a JSON text into values, all marked as a client's. Of two members of
 * one name the later counts, as in Python.
 *
 * @return false: the error is in run->why
 */
bool bt_tmpl_json_read(bt_tmpl_run_t *run, const char *json, size_t bytes,
                       bt_tmpl_value_t *value_p);

/*
 * Operations of Python's str, for the filters and methods of templates. All
 * keep the marks of the bytes that they move. NULL is a failure, recorded in
 * the run.
 *
 * Threads: as value.h.
 */

#define BT_STRIP_LEFT  1u
#define BT_STRIP_RIGHT 2u
/** Strips characters from the ends.
 *  @param [in] chars  characters to strip; NULL: white space */
const bt_tmpl_text_t *bt_tmpl_text_strip(bt_tmpl_run_t *run,
                                         const bt_tmpl_text_t *text,
                                         const bt_tmpl_text_t *chars,
                                         unsigned sides);
/** Case of each character, given the one before it. */
typedef enum bt_tmpl_case_style {
    BT_CASE_LOWER,
    BT_CASE_UPPER,
    BT_CASE_SWAP,
    BT_CASE_TITLE,      /**< str.title(): a word begins behind a character
                             without cases */
    BT_CASE_CAPITALIZE, /**< one word */
    BT_CASE_WORDS,      /**< Jinja's filter: words begin behind white space and
                             opening brackets */
} bt_tmpl_case_style_t;
const bt_tmpl_text_t *bt_tmpl_text_change(bt_tmpl_run_t *run,
                                          const bt_tmpl_text_t *text,
                                          bt_tmpl_case_style_t style);
/** Replaces a substring. The replacement of a client's bytes counts as the
 *  client's, since the client chose where it is.
 *  @param [in] count  most replacements, below 0: all */
const bt_tmpl_text_t *bt_tmpl_text_replace(bt_tmpl_run_t *run,
                                           const bt_tmpl_text_t *text,
                                           const bt_tmpl_text_t *old,
                                           const bt_tmpl_text_t *new_text,
                                           int64_t count);
/** Splits a string.
 *  @param [in] separator  NULL: white space
 *  @param [in] most  most splits, below 0: all
 *  @param [in] from_end  split from the end */
bt_tmpl_seq_t *bt_tmpl_text_split(bt_tmpl_run_t *run,
                                  const bt_tmpl_text_t *text,
                                  const bt_tmpl_text_t *separator, int64_t most,
                                  bool from_end);
bt_tmpl_seq_t *bt_tmpl_text_lines(bt_tmpl_run_t *run,
                                  const bt_tmpl_text_t *text, bool keep_ends);
/** Pads a string to a width.
 *  @param [in] side  below 0: fill on the left, above: right, 0: both */
const bt_tmpl_text_t *bt_tmpl_text_pad(bt_tmpl_run_t *run,
                                       const bt_tmpl_text_t *text,
                                       int64_t width,
                                       const bt_tmpl_text_t *fill, int side);
/** Indents like Jinja's filter. */
const bt_tmpl_text_t *bt_tmpl_text_indent(bt_tmpl_run_t *run,
                                          const bt_tmpl_text_t *text,
                                          const bt_tmpl_text_t *by, bool first,
                                          bool blank);
const bt_tmpl_text_t *bt_tmpl_text_escape(bt_tmpl_run_t *run,
                                          const bt_tmpl_text_t *text);
const bt_tmpl_text_t *bt_tmpl_text_reverse(bt_tmpl_run_t *run,
                                           const bt_tmpl_text_t *text);

#endif
