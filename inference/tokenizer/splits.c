/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/tokenizer/pretok.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/task.h"
#include "inference/tokenizer/tokenizer_priv.h"
#include "inference/tokenizer/unicode.h"

/* Pattern in place of those of the steps that have none. */
#define UNUSED "."

typedef struct step {
    bt_split_kind_t kind;
    bt_split_keep_t keep;
    bool invert;
} step_t;

struct bt_splits {
    bt_alphabet_t alphabet;
    bt_regex_t regexes[BT_SPLITS_MAX]; /* one for each step */
    step_t steps[BT_SPLITS_MAX];
    uint32_t n;
    uint8_t bytes[256]; /* classes, for BT_SPLIT_BYTES */
};

bt_status_t bt_splits_create(const bt_split_t *list, size_t n, char *why,
                             size_t why_bytes, bt_splits_t **splits_p)
{
    const char *patterns[BT_SPLITS_MAX];
    bt_splits_t *splits;
    bt_status_t status;

    _Static_assert(BT_SPLITS_MAX <= BT_REGEX_MAX_PATTERNS, "one each");

    if ((n == 0) || (n > BT_SPLITS_MAX)) {
        snprintf(why, why_bytes, "a pre-tokenizer of %zu steps (1 to %u)", n,
                 BT_SPLITS_MAX);
        return BT_ERR_TOO_LARGE;
    }
    splits = bt_calloc(1, sizeof(*splits));
    if (splits == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        splits->steps[i] = (step_t){list[i].kind, list[i].keep, list[i].invert};
        patterns[i] = (list[i].pattern == NULL) ? UNUSED : list[i].pattern;
    }
    splits->n = (uint32_t)n;
    status = bt_regex_compile(patterns, n, why, why_bytes, &splits->alphabet,
                              splits->regexes);
    if (status != BT_OK) {
        bt_free(splits);
        return status;
    }
    for (uint32_t b = 0; b < 256; b++) {
        splits->bytes[b] =
            bt_alphabet_class(&splits->alphabet, bt_bytelevel_char((uint8_t)b));
    }
    *splits_p = splits;
    return BT_OK;
}

void bt_splits_destroy(bt_splits_t *splits)
{
    if (splits == NULL) {
        return;
    }
    for (uint32_t i = 0; i < splits->n; i++) {
        bt_regex_fini(&splits->regexes[i]);
    }
    bt_alphabet_fini(&splits->alphabet);
    bt_free(splits);
}

/* ---- finding ---- */

/* Reads a character and moves *at_p behind it. @return whether it is one of \d
 */
static bool skip_digit(const uint8_t *text, size_t *at_p)
{
    uint32_t cp;

    *at_p += bt_utf8_decode(text + *at_p, &cp);
    return (bt_unicode_class(cp) == BT_UNICODE_NUMBER) &&
           ((bt_unicode_props(cp) & BT_UNICODE_CATEGORY) == BT_UNICODE_ND);
}

/* Finds the pattern's next match. */
static void find_pattern(const bt_splits_scan_t *scan, const step_t *step,
                         bt_split_level_t *level)
{
    const bt_splits_t *splits = scan->splits;
    const uint8_t *mapped =
        (step->kind == BT_SPLIT_BYTES) ? splits->bytes : NULL;
    size_t at = level->at;
    unsigned steps = 0;
    uint32_t cp;

    while (at < level->end) {
        const size_t to = bt_regex_match(&splits->regexes[step - splits->steps],
                                         &splits->alphabet, mapped, scan->text,
                                         at, level->end, &level->runs);

        if (to > at) {
            level->match = at;
            level->match_end = to;
            return;
        }
        at += (mapped != NULL) ? 1 : bt_utf8_decode(scan->text + at, &cp);
        (void)bt_task_poll_every(&steps); /* the caller cancels */
    }
    level->match = level->match_end = level->end;
}

/* Finds the run of digits at or behind at: its begin, end and number. */
static size_t find_digits(const bt_splits_scan_t *scan, size_t at,
                          size_t text_end, size_t *end_p, size_t *n_p)
{
    size_t begin = at;
    size_t n = 0;
    unsigned steps = 0;

    while (at < text_end) {
        size_t next = at;
        const bool is_digit = skip_digit(scan->text, &next);

        (void)bt_task_poll_every(&steps);
        if (!is_digit && (n > 0)) {
            break;
        }
        n += is_digit;
        at = next;
        begin = (n == 0) ? at : begin;
    }
    *end_p = at;
    *n_p = n;
    return begin;
}

static size_t skip_chars(const uint8_t *text, size_t at, size_t n)
{
    uint32_t cp;

    for (; n > 0; n--) {
        at += bt_utf8_decode(text + at, &cp);
    }
    return at;
}

static bool word_follows(const bt_splits_scan_t *scan, size_t at, size_t end)
{
    uint32_t cp;

    if (at >= end) {
        return false;
    }
    bt_utf8_decode(scan->text + at, &cp);
    return (bt_unicode_props(cp) & BT_UNICODE_IS_WORD) != 0;
}

/* Finds the next group of three. A run is counted once: its groups behind the
 * first have three digits each. */
static void find_threes(const bt_splits_scan_t *scan, bt_split_level_t *level)
{
    size_t at = level->at;

    if (at < level->digits_end) { /* inside of a run */
        level->match = at;
        level->match_end = skip_chars(scan->text, at, 3);
        return;
    }
    for (;;) {
        size_t end;
        size_t n;
        const size_t begin = find_digits(scan, at, level->end, &end, &n);

        if (n == 0) {
            break;
        }
        if (!word_follows(scan, end, level->end)) {
            level->match = begin;
            level->match_end =
                skip_chars(scan->text, begin, (n % 3 == 0) ? 3 : n % 3);
            level->digits_end = end;
            return;
        }
        at = end;
    }
    level->match = level->match_end = level->end;
}

/* Finds the piece up to the next split before three, six … digits. */
static void find_before_threes(const bt_splits_scan_t *scan,
                               bt_split_level_t *level)
{
    size_t at = level->at;
    size_t cut = level->end;

    if (at < level->digits_end) { /* behind a cut inside of a run */
        at = skip_chars(scan->text, at, 3);
        if (at < level->digits_end) {
            cut = at;
        }
    }
    while ((cut == level->end) && (at < level->end)) {
        size_t end;
        size_t n;
        const size_t begin = find_digits(scan, at, level->end, &end, &n);
        size_t first = skip_chars(scan->text, begin, n % 3);

        if ((first == level->at) && (first < end)) {
            first = skip_chars(scan->text, first, 3);
        }
        if (first < end) {
            cut = first;
            level->digits_end = end;
        }
        at = end;
    }
    level->match = level->at;
    level->match_end = cut;
}

static void find(const bt_splits_scan_t *scan, const step_t *step,
                 bt_split_level_t *level)
{
    switch (step->kind) {
    case BT_SPLIT_THREES:
        find_threes(scan, level);
        break;
    case BT_SPLIT_BEFORE_THREES:
        find_before_threes(scan, level);
        break;
    default:
        find_pattern(scan, step, level);
        break;
    }
}

/* ---- pieces ---- */

/*
 * Finds the match that begins the rest of the piece, or the text before it.
 * @return whether it is a match
 */
static bool take_part(const bt_splits_scan_t *scan, const step_t *step,
                      bt_split_level_t *level, size_t *to_p)
{
    if (level->at >= level->match_end) {
        find(scan, step, level);
    }
    if (level->at < level->match) {
        *to_p = level->match;
        return step->invert;
    }
    *to_p = level->match_end;
    return !step->invert;
}

/* Whether the next part is a match, if there is one. */
static bool next_matches(const bt_splits_scan_t *scan, const step_t *step,
                         bt_split_level_t *level, size_t *to_p)
{
    return (level->at < level->end) && take_part(scan, step, level, to_p);
}

/* @return false for a piece that is left out */
static bool take_piece(const bt_splits_scan_t *scan, const step_t *step,
                       bt_split_level_t *level, size_t *to_p)
{
    size_t to;
    const bool matches = take_part(scan, step, level, &to);

    level->at = to;
    *to_p = to;
    switch (step->keep) {
    case BT_SPLIT_REMOVED:
        return !matches;
    case BT_SPLIT_WITH_PREVIOUS:
        if (!matches && next_matches(scan, step, level, &to)) {
            level->at = *to_p = to;
        }
        break;
    case BT_SPLIT_WITH_NEXT:
        if (matches && (level->at < level->end) &&
            !take_part(scan, step, level, &to)) {
            level->at = *to_p = to;
        }
        break;
    case BT_SPLIT_CONTIGUOUS:
        while (matches && next_matches(scan, step, level, &to)) {
            level->at = *to_p = to;
        }
        break;
    default:
        break;
    }
    return true;
}

static void start_level(bt_splits_scan_t *scan, uint32_t i, size_t from,
                        size_t to)
{
    bt_split_level_t *level = &scan->levels[i];
    const bt_regex_t *regex = &scan->splits->regexes[i];

    level->at = level->match = level->match_end = from;
    level->end = to;
    level->digits_end = 0;
    for (uint32_t k = 0; k < regex->n_runs; k++) {
        level->runs.runs[k].begin = level->runs.runs[k].end = 0;
    }
}

void bt_splits_start(bt_splits_scan_t *scan, const bt_splits_t *splits,
                     const uint8_t *text, size_t bytes)
{
    scan->splits = splits;
    scan->text = text;
    for (uint32_t i = 0; i < splits->n; i++) {
        start_level(scan, i, 0, (i == 0) ? bytes : 0);
        scan->levels[i].runs.n_steps = 0;
    }
}

bool bt_splits_next(bt_splits_scan_t *scan, size_t *from_p, size_t *to_p)
{
    const uint32_t last = scan->splits->n - 1;
    uint32_t i = last;

    for (;;) {
        bt_split_level_t *level = &scan->levels[i];
        size_t from;
        size_t to;

        if (level->at == level->end) {
            if (i == 0) {
                return false;
            }
            i--;
            continue;
        }
        from = level->at;
        if (!take_piece(scan, &scan->splits->steps[i], level, &to)) {
            continue;
        }
        if (i == last) {
            *from_p = from;
            *to_p = to;
            return true;
        }
        start_level(scan, ++i, from, to);
    }
}
