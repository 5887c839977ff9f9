/* SPDX-License-Identifier: Apache-2.0 */
/** @file textops.h
 *
 * Operations of Python's str, for the filters and methods of templates. All
 * keep the marks of the bytes that they move. NULL is a failure, recorded in
 * the run.
 *
 * Threads: as value.h.
 */
#ifndef BT_INFERENCE_TEMPLATE_TEXTOPS_H
#define BT_INFERENCE_TEMPLATE_TEXTOPS_H

#include "inference/template/text.h"

#define BT_STRIP_LEFT  1u
#define BT_STRIP_RIGHT 2u
/** Strips characters from the ends.
 *  @param [in] chars  characters to strip; NULL: white space */
const bt_tmpl_text_t *bt_tmpl_text_strip(bt_tmpl_run_t *run,
                                         const bt_tmpl_text_t *text,
                                         const bt_tmpl_text_t *chars,
                                         unsigned sides);
const bt_tmpl_text_t *bt_tmpl_text_lower(bt_tmpl_run_t *run,
                                         const bt_tmpl_text_t *text);
const bt_tmpl_text_t *bt_tmpl_text_upper(bt_tmpl_run_t *run,
                                         const bt_tmpl_text_t *text);
const bt_tmpl_text_t *bt_tmpl_text_swapcase(bt_tmpl_run_t *run,
                                            const bt_tmpl_text_t *text);
/** Converts like str.title(). bt_tmpl_text_title_filter() is Jinja's filter,
 *  which delimits words differently. */
const bt_tmpl_text_t *bt_tmpl_text_title(bt_tmpl_run_t *run,
                                         const bt_tmpl_text_t *text);
const bt_tmpl_text_t *bt_tmpl_text_title_filter(bt_tmpl_run_t *run,
                                                const bt_tmpl_text_t *text);
const bt_tmpl_text_t *bt_tmpl_text_capitalize(bt_tmpl_run_t *run,
                                              const bt_tmpl_text_t *text);
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
