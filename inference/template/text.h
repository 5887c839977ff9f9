/* SPDX-License-Identifier: Apache-2.0 */
/** @file text.h
 *
 * Texts and the builder that all of them come from. Places are bytes unless a
 * name says chars.
 *
 * Threads: as value.h.
 */
#ifndef BT_INFERENCE_TEMPLATE_TEXT_H
#define BT_INFERENCE_TEMPLATE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/base/utf8.h"
#include "inference/template/value.h"

/** Most bytes of one text. */
#define BT_TEXT_MAX_BYTES ((uint32_t)1 << 30)

/** A text in the making. Errors are the run's. */
typedef struct bt_tmpl_build {
    bt_tmpl_run_t *run;
    char *data; /**< in run->bytes */
    uint32_t len, cap;
    bt_tmpl_mark_t *marks; /**< in run->values */
    uint32_t n_marks, cap_marks;
    uint32_t n_fixed; /**< the first of them are another text's, too */
} bt_tmpl_build_t;

void bt_tmpl_build_init(bt_tmpl_build_t *build, bt_tmpl_run_t *run);
/** @param [in] quoted  a client's */
void bt_tmpl_build_bytes(bt_tmpl_build_t *build, const char *data, size_t n,
                         bool quoted);
static inline void bt_tmpl_build_puts(bt_tmpl_build_t *build, const char *text)
{
    bt_tmpl_build_bytes(build, text, strlen(text), false);
}
void bt_tmpl_build_char(bt_tmpl_build_t *build, uint32_t cp, bool quoted);
/** Bytes [from, to) of @a text with its marks. */
void bt_tmpl_build_slice(bt_tmpl_build_t *build, const bt_tmpl_text_t *text,
                         uint32_t from, uint32_t to);
static inline void bt_tmpl_build_text(bt_tmpl_build_t *build,
                                      const bt_tmpl_text_t *text)
{
    bt_tmpl_build_slice(build, text, 0, text->len);
}
/** Everything that was built, from @a from on, is a client's. */
void bt_tmpl_build_quote_from(bt_tmpl_build_t *build, uint32_t from);
/** @return NULL: failed */
const bt_tmpl_text_t *bt_tmpl_build_end(bt_tmpl_build_t *build);
/** The same as a value. */
bt_tmpl_value_t bt_tmpl_build_value(bt_tmpl_build_t *build);

extern const bt_tmpl_text_t bt_tmpl_text_empty;

/** A copy. @return NULL: failed */
const bt_tmpl_text_t *bt_tmpl_text_make(bt_tmpl_run_t *run, const char *data,
                                        size_t n, bool quoted);
const bt_tmpl_text_t *bt_tmpl_text_slice(bt_tmpl_run_t *run,
                                         const bt_tmpl_text_t *text,
                                         uint32_t from, uint32_t to);
/** In place where @a a is the newest text. */
const bt_tmpl_text_t *bt_tmpl_text_join(bt_tmpl_run_t *run,
                                        const bt_tmpl_text_t *a,
                                        const bt_tmpl_text_t *b);
static inline bool bt_tmpl_text_quoted(const bt_tmpl_text_t *text)
{
    return text->n_marks > 0;
}
/** A byte of [from, to) is a client's. */
bool bt_tmpl_text_quoted_in(const bt_tmpl_text_t *text, uint32_t from,
                            uint32_t to);

static inline bool bt_tmpl_text_equal(const bt_tmpl_text_t *a,
                                      const bt_tmpl_text_t *b)
{
    return (a->len == b->len) &&
           ((a->len == 0) || (memcmp(a->data, b->data, a->len) == 0));
}
bool bt_tmpl_text_is(const bt_tmpl_text_t *text, const char *other);
/** Place of @a needle in [from, to), or UINT32_MAX. */
uint32_t bt_tmpl_text_find(const bt_tmpl_text_t *text,
                           const bt_tmpl_text_t *needle, uint32_t from,
                           uint32_t to);
uint32_t bt_tmpl_text_rfind(const bt_tmpl_text_t *text,
                            const bt_tmpl_text_t *needle, uint32_t from,
                            uint32_t to);
uint32_t bt_tmpl_text_chars(const bt_tmpl_text_t *text);
/** Byte at which character @a n begins; text->len past the last. */
uint32_t bt_tmpl_text_char_at(const bt_tmpl_text_t *text, uint32_t n);
/** The character at a byte. @return its length */
static inline uint32_t bt_tmpl_text_decode(const bt_tmpl_text_t *text,
                                           uint32_t at, uint32_t *cp_p)
{
    return bt_utf8_decode((const uint8_t *)text->data + at, cp_p);
}
/** Bytes of the character that ends before byte @a at (> 0). */
uint32_t bt_tmpl_text_before(const bt_tmpl_text_t *text, uint32_t at,
                             uint32_t *cp_p);

/* ---- characters, as Python sees them (cases.c) ---- */

bool bt_tmpl_cp_is_space(uint32_t cp);
bool bt_tmpl_cp_is_alpha(uint32_t cp);
bool bt_tmpl_cp_is_decimal(uint32_t cp);
bool bt_tmpl_cp_is_digit(uint32_t cp);
bool bt_tmpl_cp_is_numeric(uint32_t cp);
/** Has an upper and a lower form, or is one of them. */
bool bt_tmpl_cp_is_cased(uint32_t cp);
typedef enum bt_tmpl_case { BT_LOWER, BT_UPPER, BT_TITLE } bt_tmpl_case_t;
/** @param [out] out  what the character becomes
 *  @return how many, 1 to 3 */
unsigned bt_tmpl_cp_to_case(uint32_t cp, bt_tmpl_case_t to, uint32_t out[3]);

#endif
