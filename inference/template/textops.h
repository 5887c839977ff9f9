/* SPDX-License-Identifier: Apache-2.0 */
/** @file textops.h
 *
 * What Python's str can do, for the filters and methods of templates. All keep
 * the marks of what they move. NULL is a failure, the run's.
 *
 * Threads: as value.h.
 */
#ifndef BT_INFERENCE_TEMPLATE_TEXTOPS_H
#define BT_INFERENCE_TEMPLATE_TEXTOPS_H

#include "inference/template/text.h"

#define BT_STRIP_LEFT  1u
#define BT_STRIP_RIGHT 2u
/** @param [in] chars  taken off; NULL: white space */
const bt_text_t *bt_text_strip(bt_run_t *run, const bt_text_t *text,
                               const bt_text_t *chars, unsigned sides);
const bt_text_t *bt_text_lower(bt_run_t *run, const bt_text_t *text);
const bt_text_t *bt_text_upper(bt_run_t *run, const bt_text_t *text);
const bt_text_t *bt_text_swapcase(bt_run_t *run, const bt_text_t *text);
/** str.title(), and Jinja's filter, which has other ideas of a word. */
const bt_text_t *bt_text_title(bt_run_t *run, const bt_text_t *text);
const bt_text_t *bt_text_title_filter(bt_run_t *run, const bt_text_t *text);
const bt_text_t *bt_text_capitalize(bt_run_t *run, const bt_text_t *text);
/** @param [in] count  most replacements, below 0: all. What is put in the place
 *  of a client's bytes counts as theirs, for they chose where it stands. */
const bt_text_t *bt_text_replace(bt_run_t *run, const bt_text_t *text,
                                 const bt_text_t *old,
                                 const bt_text_t *new_text, int64_t count);
/** @param [in] separator  NULL: white space @param [in] most  cuts, below 0:
 *  all @param [in] from_end  cuts at the end first */
bt_seq_t *bt_text_split(bt_run_t *run, const bt_text_t *text,
                        const bt_text_t *separator, int64_t most,
                        bool from_end);
bt_seq_t *bt_text_lines(bt_run_t *run, const bt_text_t *text, bool keep_ends);
/** @param [in] side  below 0: fill on the left, above: right, 0: both */
const bt_text_t *bt_text_pad(bt_run_t *run, const bt_text_t *text,
                             int64_t width, const bt_text_t *fill, int side);
/** Jinja's filter. */
const bt_text_t *bt_text_indent(bt_run_t *run, const bt_text_t *text,
                                const bt_text_t *by, bool first, bool blank);
const bt_text_t *bt_text_escape(bt_run_t *run, const bt_text_t *text);
const bt_text_t *bt_text_reverse(bt_run_t *run, const bt_text_t *text);

#endif
