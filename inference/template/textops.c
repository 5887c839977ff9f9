/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/template/text.h"

#include <string.h>

#define SIGMA       0x3A3u
#define FINAL_SIGMA 0x3C2u

/* ---- stripping ---- */

static bool goes(uint32_t cp, const bt_tmpl_text_t *chars)
{
    uint32_t at = 0;

    if (chars == NULL) {
        return bt_tmpl_cp_is_space(cp);
    }
    while (at < chars->len) {
        uint32_t other;

        at += bt_tmpl_text_decode(chars, at, &other);
        if (other == cp) {
            return true;
        }
    }
    return false;
}

const bt_tmpl_text_t *bt_tmpl_text_strip(bt_tmpl_run_t *run,
                                         const bt_tmpl_text_t *text,
                                         const bt_tmpl_text_t *chars,
                                         unsigned sides)
{
    const uint64_t cost = (chars != NULL) ? chars->len / 16 : 0;
    uint32_t from = 0;
    uint32_t to = text->len;
    uint32_t cp;

    while (((sides & BT_STRIP_LEFT) != 0) && (from < to) &&
           bt_tmpl_run_step(run, cost)) {
        const uint32_t n = bt_tmpl_text_decode(text, from, &cp);

        if (!goes(cp, chars)) {
            break;
        }
        from += n;
    }
    while (((sides & BT_STRIP_RIGHT) != 0) && (from < to) &&
           bt_tmpl_run_step(run, cost)) {
        const uint32_t n = bt_tmpl_text_before(text, to, &cp);

        if (!goes(cp, chars)) {
            break;
        }
        to -= n;
    }
    return bt_tmpl_run_step_bytes(run, text->len - (to - from))
               ? bt_tmpl_text_slice(run, text, from, to)
               : NULL;
}

/* ---- cases ---- */

static void put_case(bt_tmpl_build_t *build, uint32_t cp, bt_tmpl_case_t to,
                     bool quoted)
{
    uint32_t made[3];
    const unsigned n = bt_tmpl_cp_to_case(cp, to, made);

    for (unsigned i = 0; i < n; i++) {
        bt_tmpl_build_char(build, made[i], quoted);
    }
}

/* A sigma at the end of a word is written otherwise. */
static bool ends_word(const bt_tmpl_text_t *text, uint32_t at, uint32_t n)
{
    uint32_t cp;

    if (at == 0) {
        return false;
    }
    (void)bt_tmpl_text_before(text, at, &cp);
    if (!bt_tmpl_cp_is_cased(cp)) {
        return false;
    }
    if (at + n >= text->len) {
        return true;
    }
    (void)bt_tmpl_text_decode(text, at + n, &cp);
    return !bt_tmpl_cp_is_cased(cp);
}

static void put_lower(bt_tmpl_build_t *build, const bt_tmpl_text_t *text,
                      uint32_t at, uint32_t cp, uint32_t n, bool quoted)
{
    if ((cp == SIGMA) && ends_word(text, at, n)) {
        bt_tmpl_build_char(build, FINAL_SIGMA, quoted);
    } else {
        put_case(build, cp, BT_LOWER, quoted);
    }
}

static bool opens_word(uint32_t cp)
{
    return bt_tmpl_cp_is_space(cp) ||
           ((cp < 0x80) && (cp != 0) && (strchr("-({[<", (int)cp) != NULL));
}

const bt_tmpl_text_t *bt_tmpl_text_change(bt_tmpl_run_t *run,
                                          const bt_tmpl_text_t *text,
                                          bt_tmpl_case_style_t style)
{
    bt_tmpl_build_t build;
    bool begins = true;
    uint32_t at = 0;

    bt_tmpl_build_init(&build, run);
    while ((at < text->len) && bt_tmpl_run_step_bytes(run, 16)) {
        uint32_t cp;
        uint32_t low[3];
        const uint32_t n = bt_tmpl_text_decode(text, at, &cp);
        const bool quoted = bt_tmpl_text_quoted_in(text, at, at + n);
        bool up =
            (style == BT_CASE_UPPER) || ((style >= BT_CASE_TITLE) && begins);

        if (style == BT_CASE_SWAP) {
            up = (bt_tmpl_cp_to_case(cp, BT_LOWER, low) == 1) && (low[0] == cp);
        }
        if (up) {
            put_case(&build, cp,
                     ((style == BT_CASE_TITLE) || (style == BT_CASE_CAPITALIZE))
                         ? BT_TITLE
                         : BT_UPPER,
                     quoted);
        } else {
            put_lower(&build, text, at, cp, n, quoted);
        }
        begins = (style == BT_CASE_TITLE)   ? !bt_tmpl_cp_is_cased(cp)
                 : (style == BT_CASE_WORDS) ? opens_word(cp)
                                            : false;
        at += n;
    }
    return bt_tmpl_build_end(&build);
}

/* ---- replacing ---- */

static void put_new(bt_tmpl_build_t *build, const bt_tmpl_text_t *new_text,
                    bool quoted)
{
    const uint32_t from = build->len;

    bt_tmpl_build_text(build, new_text);
    if (quoted && bt_tmpl_run_ok(build->run)) {
        bt_tmpl_build_quote_from(build, from);
    }
}

/* Replaces nothing: before each character and at the end. */
static const bt_tmpl_text_t *put_between(bt_tmpl_run_t *run,
                                         const bt_tmpl_text_t *text,
                                         const bt_tmpl_text_t *new_text,
                                         int64_t count)
{
    const bool quoted = bt_tmpl_text_quoted(text);
    bt_tmpl_build_t build;
    uint32_t at = 0;

    bt_tmpl_build_init(&build, run);
    for (int64_t i = 0; bt_tmpl_run_step(run, 1); i++) {
        uint32_t cp;
        uint32_t n;

        if ((count < 0) || (i < count)) {
            put_new(&build, new_text, quoted);
        }
        if (at == text->len) {
            break;
        }
        n = bt_tmpl_text_decode(text, at, &cp);
        bt_tmpl_build_slice(&build, text, at, at + n);
        at += n;
    }
    return bt_tmpl_build_end(&build);
}

const bt_tmpl_text_t *bt_tmpl_text_replace(bt_tmpl_run_t *run,
                                           const bt_tmpl_text_t *text,
                                           const bt_tmpl_text_t *old,
                                           const bt_tmpl_text_t *new_text,
                                           int64_t count)
{
    bt_tmpl_build_t build;
    uint32_t from = 0;
    uint32_t at;

    if (old->len == 0) {
        return put_between(run, text, new_text, count);
    }
    at = bt_tmpl_text_find(text, old, 0, text->len);
    if (!bt_tmpl_run_step_bytes(run, text->len)) {
        return NULL;
    }
    if ((at == UINT32_MAX) || (count == 0)) {
        return text;
    }
    bt_tmpl_build_init(&build, run);
    while ((at != UINT32_MAX) && (count != 0) && bt_tmpl_run_step(run, 1)) {
        bt_tmpl_build_slice(&build, text, from, at);
        put_new(&build, new_text,
                bt_tmpl_text_quoted_in(text, at, at + old->len));
        from = at + old->len;
        at = bt_tmpl_text_find(text, old, from, text->len);
        count -= (count > 0) ? 1 : 0;
    }
    bt_tmpl_build_slice(&build, text, from, text->len);
    return bt_tmpl_build_end(&build);
}

/* ---- splitting ---- */

static bool add_slice(bt_tmpl_run_t *run, bt_tmpl_seq_t *seq,
                      const bt_tmpl_text_t *text, uint32_t from, uint32_t to)
{
    const bt_tmpl_text_t *piece = bt_tmpl_text_slice(run, text, from, to);

    return (piece != NULL) && bt_tmpl_seq_add(run, seq, bt_tmpl_v_text(piece));
}

/* Forward or backward over white space, or over all else. */
static uint32_t over(const bt_tmpl_text_t *text, uint32_t at, bool spaces,
                     bool from_end)
{
    uint32_t cp;

    while (from_end ? at > 0 : at < text->len) {
        const uint32_t n = from_end ? bt_tmpl_text_before(text, at, &cp)
                                    : bt_tmpl_text_decode(text, at, &cp);

        if (bt_tmpl_cp_is_space(cp) != spaces) {
            break;
        }
        at = from_end ? at - n : at + n;
    }
    return at;
}

static bt_tmpl_seq_t *split_words(bt_tmpl_run_t *run,
                                  const bt_tmpl_text_t *text, int64_t most,
                                  bool from_end)
{
    bt_tmpl_seq_t *seq = bt_tmpl_seq_make(run, 0);
    const uint32_t end = from_end ? 0 : text->len;
    uint32_t at = over(text, from_end ? text->len : 0, true, from_end);

    while ((seq != NULL) && (at != end)) {
        uint32_t to = over(text, at, false, from_end);

        if (most-- == 0) { /* all that is left, with the space behind it */
            to = end;
        }
        if (!add_slice(run, seq, text, from_end ? to : at,
                       from_end ? at : to)) {
            return NULL;
        }
        at = over(text, to, true, from_end);
    }
    return seq;
}

static bt_tmpl_seq_t *split_at(bt_tmpl_run_t *run, const bt_tmpl_text_t *text,
                               const bt_tmpl_text_t *separator, int64_t most,
                               bool from_end)
{
    bt_tmpl_seq_t *seq = bt_tmpl_seq_make(run, 0);
    uint32_t from = 0;
    uint32_t to = text->len;

    while ((seq != NULL) && bt_tmpl_run_step(run, 1)) {
        const uint32_t at = (most-- == 0) ? UINT32_MAX
                            : from_end
                                ? bt_tmpl_text_rfind(text, separator, from, to)
                                : bt_tmpl_text_find(text, separator, from, to);
        bool added;

        if (at == UINT32_MAX) {
            return add_slice(run, seq, text, from, to) ? seq : NULL;
        }
        if (from_end) {
            added = add_slice(run, seq, text, at + separator->len, to);
            to = at;
        } else {
            added = add_slice(run, seq, text, from, at);
            from = at + separator->len;
        }
        if (!added) {
            return NULL;
        }
    }
    return NULL;
}

bt_tmpl_seq_t *bt_tmpl_text_split(bt_tmpl_run_t *run,
                                  const bt_tmpl_text_t *text,
                                  const bt_tmpl_text_t *separator, int64_t most,
                                  bool from_end)
{
    bt_tmpl_seq_t *seq;

    if ((separator != NULL) && (separator->len == 0)) {
        bt_tmpl_run_fail(run, BT_ERR_INVALID_PARAM, "split at nothing");
        return NULL;
    }
    if (!bt_tmpl_run_step_bytes(run, text->len)) {
        return NULL;
    }
    seq = (separator == NULL) ? split_words(run, text, most, from_end)
                              : split_at(run, text, separator, most, from_end);
    for (uint32_t i = 0; from_end && (seq != NULL) && (i < seq->n / 2); i++) {
        const bt_tmpl_value_t other = seq->items[seq->n - 1 - i];

        seq->items[seq->n - 1 - i] = seq->items[i];
        seq->items[i] = other;
    }
    return seq;
}

static bool ends_line(uint32_t cp)
{
    return ((cp >= 0x0A) && (cp <= 0x0D)) || ((cp >= 0x1C) && (cp <= 0x1E)) ||
           (cp == 0x85) || (cp == 0x2028) || (cp == 0x2029);
}

bt_tmpl_seq_t *bt_tmpl_text_lines(bt_tmpl_run_t *run,
                                  const bt_tmpl_text_t *text, bool keep_ends)
{
    bt_tmpl_seq_t *seq = bt_tmpl_seq_make(run, 0);
    uint32_t from = 0;
    uint32_t at = 0;

    if ((seq == NULL) || !bt_tmpl_run_step_bytes(run, text->len)) {
        return NULL;
    }
    while (at < text->len) {
        uint32_t cp;
        uint32_t n = bt_tmpl_text_decode(text, at, &cp);

        if (!ends_line(cp)) {
            at += n;
            continue;
        }
        n += ((cp == '\r') && (at + 1 < text->len) &&
              (text->data[at + 1] == '\n'))
                 ? 1
                 : 0;
        if (!add_slice(run, seq, text, from, keep_ends ? at + n : at)) {
            return NULL;
        }
        at += n;
        from = at;
    }
    if ((from < text->len) && !add_slice(run, seq, text, from, text->len)) {
        return NULL;
    }
    return seq;
}

/* ---- filling and the rest ---- */

const bt_tmpl_text_t *bt_tmpl_text_pad(bt_tmpl_run_t *run,
                                       const bt_tmpl_text_t *text,
                                       int64_t width,
                                       const bt_tmpl_text_t *fill, int side)
{
    const int64_t n = bt_tmpl_text_chars(text);
    const int64_t missing = (width > n) ? width - n : 0;
    /* As str.center() shares out an odd one. */
    const int64_t left = (side < 0)   ? missing
                         : (side > 0) ? 0
                                      : missing / 2 + (missing & width & 1);
    bt_tmpl_build_t build;

    if ((missing == 0) || !bt_tmpl_run_step_bytes(run, text->len)) {
        return text;
    }
    bt_tmpl_build_init(&build, run);
    for (int64_t i = 0; (i < left) && bt_tmpl_run_step(run, 1); i++) {
        bt_tmpl_build_text(&build, fill);
    }
    bt_tmpl_build_text(&build, text);
    for (int64_t i = left; (i < missing) && bt_tmpl_run_step(run, 1); i++) {
        bt_tmpl_build_text(&build, fill);
    }
    return bt_tmpl_build_end(&build);
}

const bt_tmpl_text_t *bt_tmpl_text_indent(bt_tmpl_run_t *run,
                                          const bt_tmpl_text_t *text,
                                          const bt_tmpl_text_t *by, bool first,
                                          bool blank)
{
    static const bt_tmpl_text_t newline = {.data = "\n", .len = 1};
    const bt_tmpl_text_t *ended = bt_tmpl_text_join(run, text, &newline);
    const bt_tmpl_seq_t *lines =
        (ended != NULL) ? bt_tmpl_text_lines(run, ended, false) : NULL;
    bt_tmpl_build_t build;

    if (lines == NULL) {
        return NULL;
    }
    bt_tmpl_build_init(&build, run);
    if (first) {
        bt_tmpl_build_text(&build, by);
    }
    for (uint32_t i = 0; i < lines->n; i++) {
        const bt_tmpl_text_t *line = lines->items[i].u.text;

        if (i > 0) {
            bt_tmpl_build_text(&build, &newline);
            if (blank || (line->len > 0)) {
                bt_tmpl_build_text(&build, by);
            }
        }
        bt_tmpl_build_text(&build, line);
    }
    return bt_tmpl_build_end(&build);
}

const bt_tmpl_text_t *bt_tmpl_text_escape(bt_tmpl_run_t *run,
                                          const bt_tmpl_text_t *text)
{
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    bt_tmpl_build_t build;
    uint32_t begin = 0;

    bt_tmpl_build_init(&build, run);
    for (uint32_t at = 0; at < text->len; at++) {
        const char c = text->data[at];
        const char *found = (c != '\0') ? strchr(from, c) : NULL;

        if (found != NULL) {
            const char *word = to[found - from];

            bt_tmpl_build_slice(&build, text, begin, at);
            bt_tmpl_build_bytes(&build, word, strlen(word),
                                bt_tmpl_text_quoted_in(text, at, at + 1));
            begin = at + 1;
        }
    }
    bt_tmpl_build_slice(&build, text, begin, text->len);
    return bt_tmpl_build_end(&build);
}

const bt_tmpl_text_t *bt_tmpl_text_reverse(bt_tmpl_run_t *run,
                                           const bt_tmpl_text_t *text)
{
    bt_tmpl_build_t build;
    uint32_t at = text->len;

    bt_tmpl_build_init(&build, run);
    while ((at > 0) && bt_tmpl_run_step(run, 1)) {
        uint32_t cp;
        const uint32_t n = bt_tmpl_text_before(text, at, &cp);

        bt_tmpl_build_slice(&build, text, at - n, at);
        at -= n;
    }
    return bt_tmpl_build_end(&build);
}
