/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/tokenizer/normal.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/base/task.h"
#include "common/base/text.h"
#include "inference/tokenizer/tables.h"
#include "inference/tokenizer/unicode.h"

#define SMALL_CLUSTER 6u   /* bytes that are too many */
#define MAX_KEY_BYTES 256u /* of the charsmap; no published one comes near */

static void fini_step(bt_normal_step_t *step)
{
    bt_free(step->from);
    bt_free(step->to);
    bt_regex_fini(&step->regex);
    bt_alphabet_fini(&step->alphabet);
}

bt_status_t bt_normal_add(bt_normal_t *normal, bt_normal_kind_t kind,
                          bt_normal_form_t form, const char *from,
                          const char *to, char *why, size_t why_bytes)
{
    bt_normal_step_t step = {.kind = kind, .form = form};
    bt_status_t status = BT_ERR_NO_MEMORY;

    if (normal->n == BT_NORMAL_MAX_STEPS) {
        snprintf(why, why_bytes, "the normalizer has more than %u steps",
                 BT_NORMAL_MAX_STEPS);
        return BT_ERR_TOO_LARGE;
    }
    step.from = (from == NULL) ? NULL : bt_memdup(from, strlen(from) + 1);
    step.to = (to == NULL) ? NULL : bt_memdup(to, strlen(to) + 1);
    if (((from != NULL) && (step.from == NULL)) ||
        ((to != NULL) && (step.to == NULL))) {
        goto err;
    }
    if (kind == BT_NORMAL_REPLACE_PATTERN) {
        status = bt_regex_compile(&from, 1, why, why_bytes, &step.alphabet,
                                  &step.regex);
        if (status != BT_OK) {
            goto err;
        }
    }
    normal->steps[normal->n++] = step;
    return BT_OK;

err:
    fini_step(&step);
    return status;
}

static uint32_t read_le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
           (uint32_t)p[3] << 24;
}

bt_status_t bt_normal_set_charsmap(bt_normal_t *normal, const uint8_t *blob,
                                   size_t n)
{
    uint32_t n_bytes;
    uint32_t *units;
    char *texts;

    if (n < sizeof(n_bytes)) {
        return BT_ERR_BAD_FILE;
    }
    n_bytes = read_le32(blob);
    if ((n_bytes % 4 != 0) || (n_bytes == 0) ||
        (n_bytes >= n - sizeof(n_bytes)) || (blob[n - 1] != 0)) {
        return BT_ERR_BAD_FILE;
    }
    blob += sizeof(n_bytes);
    n -= sizeof(n_bytes);
    units = bt_calloc(n_bytes / 4, sizeof(*units));
    texts = bt_memdup(blob + n_bytes, n - n_bytes);
    if ((units == NULL) || (texts == NULL) ||
        !bt_utf8_valid((const uint8_t *)texts, n - n_bytes)) {
        const bool have = (units != NULL) && (texts != NULL);

        bt_free(units);
        bt_free(texts);
        return have ? BT_ERR_BAD_FILE : BT_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < n_bytes / 4; i++) {
        units[i] = read_le32(blob + 4 * i);
    }
    bt_free(normal->units);
    bt_free(normal->texts);
    normal->units = units;
    normal->n_units = n_bytes / 4;
    normal->texts = texts;
    normal->n_texts = n - n_bytes;
    return BT_OK;
}

void bt_normal_fini(bt_normal_t *normal)
{
    for (uint32_t i = 0; i < normal->n; i++) {
        fini_step(&normal->steps[i]);
    }
    bt_free(normal->units);
    bt_free(normal->texts);
    memset(normal, 0, sizeof(*normal));
}

void bt_normal_work_fini(bt_normal_work_t *work)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(work->texts); i++) {
        bt_free(work->texts[i].bytes);
        bt_free(work->texts[i].marks);
    }
    bt_free(work->codes);
    memset(work, 0, sizeof(*work));
}

/* Reserves space for n more bytes, and for their marks if the source has any.
 */
static bt_status_t reserve(struct bt_normal_text *out, size_t n)
{
    uint8_t *bytes;
    uint8_t *marks;

    if (n > BT_NORMAL_MAX_BYTES - out->n) {
        return BT_ERR_TOO_LARGE;
    }
    bytes = bt_array_reserve(out->bytes, &out->cap, out->n + n, 1);
    if (bytes == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    out->bytes = bytes;
    if (out->marked == NULL) {
        return BT_OK;
    }
    marks = bt_array_reserve(out->marks, &out->marks_cap, out->n + n, 1);
    if (marks == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    out->marks = marks;
    return BT_OK;
}

bt_status_t bt_normal_put(struct bt_normal_text *out, const void *bytes,
                          size_t n)
{
    const bt_status_t status = reserve(out, n);

    if ((status != BT_OK) || (n == 0)) {
        return status;
    }
    memcpy(out->bytes + out->n, bytes, n);
    if (out->marked != NULL) {
        memset(out->marks + out->n,
               memchr(out->marked + out->from, 1, out->to - out->from) != NULL,
               n);
    }
    out->n += n;
    return BT_OK;
}

bt_status_t bt_normal_copy(struct bt_normal_text *out, const uint8_t *text,
                           size_t from, size_t to)
{
    const size_t n = to - from;
    const bt_status_t status = reserve(out, n);

    if ((status != BT_OK) || (n == 0)) {
        return status;
    }
    memcpy(out->bytes + out->n, text + from, n);
    if (out->marked != NULL) {
        memcpy(out->marks + out->n, out->marked + from, n);
    }
    out->n += n;
    return BT_OK;
}

/* ---- the charsmap ---- */

/* A unit: bits 0-7 the byte it is reached by, 8 whether a key ends here, 9 and
 * 10-30 where its children are; a value has bit 31. */
static size_t children_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & (1u << 9)) >> 6);
}

/* The longest key that the text begins with, or the shortest, and what stands
 * for it.
 * @return its bytes, 0: none */
static size_t find_key(const bt_normal_t *normal, const uint8_t *text,
                       size_t bytes, bool shortest, const char **value_p)
{
    size_t at = children_of(normal->units[0]);
    size_t found = 0;

    bytes = (bytes < MAX_KEY_BYTES) ? bytes : MAX_KEY_BYTES;
    for (size_t i = 0;
         (i < bytes) && (text[i] != 0) && !(shortest && (found > 0)); i++) {
        uint32_t unit;

        at ^= text[i];
        if (at >= normal->n_units) {
            break;
        }
        unit = normal->units[at];
        if ((unit & (1u << 31 | 0xFFu)) != text[i]) {
            break;
        }
        at ^= children_of(unit);
        if (((unit >> 8 & 1) != 0) && (at < normal->n_units)) {
            const size_t value = normal->units[at] & ~(1u << 31);

            if ((value < normal->n_texts) &&
                ((i + 1 == bytes) || ((text[i + 1] & 0xC0) != 0x80))) {
                *value_p = normal->texts + value;
                found = i + 1;
            }
        }
    }
    return found;
}

/* Appends what replaces text[at … at + n - 1]; NULL: it stays. */
static bt_status_t put_mapped(struct bt_normal_text *out, const uint8_t *text,
                              size_t at, size_t n, const char *value)
{
    if (value == NULL) {
        return bt_normal_copy(out, text, at, at + n);
    }
    out->from = at;
    out->to = at + n;
    return bt_normal_put(out, value, strlen(value));
}

static bt_status_t map_chars(const bt_normal_t *normal, const uint8_t *text,
                             size_t bytes, struct bt_normal_text *out)
{
    bt_status_t status = BT_OK;

    for (size_t at = 0; (status == BT_OK) && (at < bytes);) {
        const char *value = NULL;
        size_t n = find_key(normal, text + at, bytes - at, false, &value);

        uint32_t cp;

        n = (n > 0) ? n : bt_utf8_decode(text + at, &cp);
        status = put_mapped(out, text, at, n, value);
        at += n;
    }
    return status;
}

static bt_unicode_cluster_t cluster_kind(uint32_t cp)
{
    return (bt_unicode_cluster_t)bt_unicode_run(
        bt_unicode_cluster_runs, bt_unicode_n_cluster_runs, 2, cp);
}

/* Bytes of the cluster that the text begins with. */
static size_t cluster_bytes(const uint8_t *text, size_t bytes)
{
    uint32_t cp;
    size_t n = bt_utf8_decode(text, &cp);
    bt_unicode_cluster_t kind = cluster_kind(cp);

    if ((cp == '\r') && (n < bytes) && (text[n] == '\n')) {
        return n + 1;
    }
    while ((kind != BT_UNICODE_CONTROL) && (n < bytes)) {
        const unsigned len = bt_utf8_decode(text + n, &cp);
        const bt_unicode_cluster_t next = cluster_kind(cp);

        if ((next == BT_UNICODE_CONTROL) ||
            ((next != BT_UNICODE_JOINS) && (kind != BT_UNICODE_PREPEND))) {
            break;
        }
        n += len;
        kind = next;
    }
    return n;
}

static bt_status_t map_clusters(const bt_normal_t *normal, const uint8_t *text,
                                size_t bytes, struct bt_normal_text *out)
{
    bt_status_t status = BT_OK;
    size_t as_chars = 0; /* up to here each character by itself */

    for (size_t at = 0; (status == BT_OK) && (at < bytes);) {
        const char *value = NULL;
        uint32_t cp;
        size_t n = bt_utf8_decode(text + at, &cp);

        if (at >= as_chars) {
            const size_t all = cluster_bytes(text + at, bytes - at);

            if ((all < SMALL_CLUSTER) &&
                (find_key(normal, text + at, all, true, &value) > 0)) {
                n = all;
            } else {
                as_chars = at + all;
            }
        }
        if (value == NULL) {
            (void)find_key(normal, text + at, n, true, &value);
        }
        status = put_mapped(out, text, at, n, value);
        at += n;
    }
    return status;
}

/* ---- spaces ---- */

static bool ends_with(const struct bt_normal_text *text, const char *end)
{
    const size_t n = strlen(end);

    return (text->n >= n) && (memcmp(text->bytes + text->n - n, end, n) == 0);
}

/* SentencePiece: only the space itself counts, but at the end also the mark
 * that it puts in its place. */
static bt_status_t one_space(const uint8_t *text, size_t bytes,
                             struct bt_normal_text *out)
{
    bt_status_t status = BT_OK;
    bool gap = false;

    for (size_t at = 0; (status == BT_OK) && (at < bytes);) {
        size_t n = at;

        while ((n < bytes) && (text[n] != ' ')) {
            n++;
        }
        if (n > at) {
            if (gap && (out->n > 0)) { /* the last space of them */
                status = bt_normal_copy(out, text, at - 1, at);
            }
            if (status == BT_OK) {
                status = bt_normal_copy(out, text, at, n);
            }
            gap = false;
        }
        gap = gap || (n < bytes);
        at = n + 1;
    }
    while (ends_with(out, " ") || ends_with(out, "\u2581")) {
        out->n -= (out->bytes[out->n - 1] == ' ') ? 1 : sizeof("\u2581") - 1;
    }
    return status;
}

static void strip_left(const uint8_t **text_p, size_t *bytes_p)
{
    while (*bytes_p > 0) {
        uint32_t cp;
        const unsigned n = bt_utf8_decode(*text_p, &cp);

        if (bt_unicode_class(cp) != BT_UNICODE_SPACE) {
            return;
        }
        *text_p += n;
        *bytes_p -= n;
    }
}

static void strip_right(const uint8_t *text, size_t *bytes_p)
{
    size_t at = *bytes_p;

    while (at > 0) {
        uint32_t cp;

        do {
            at--;
        } while ((text[at] & 0xC0) == 0x80);
        bt_utf8_decode(text + at, &cp);
        if (bt_unicode_class(cp) != BT_UNICODE_SPACE) {
            return;
        }
        *bytes_p = at;
    }
}

/* ---- the others ---- */

/* Appends the text before a match, and the text that replaces it. */
static bt_status_t put_match(const bt_normal_step_t *step, const uint8_t *text,
                             size_t at, size_t from, size_t to,
                             struct bt_normal_text *out)
{
    const bt_status_t status = bt_normal_copy(out, text, at, from);

    return ((status != BT_OK) || (from == to))
               ? status
               : put_mapped(out, text, from, to - from, step->to);
}

static bt_status_t replace(const bt_normal_step_t *step, const uint8_t *text,
                           size_t bytes, struct bt_normal_text *out)
{
    const size_t n_from = strlen(step->from);
    bt_status_t status = BT_OK;
    size_t at = 0;

    while ((status == BT_OK) && (at < bytes)) {
        const uint8_t *found =
            memmem(text + at, bytes - at, step->from, n_from);
        const size_t from = (found == NULL) ? bytes : (size_t)(found - text);
        const size_t to = (found == NULL) ? bytes : from + n_from;

        status = put_match(step, text, at, from, to, out);
        at = to;
    }
    return status;
}

static bt_status_t replace_pattern(const bt_normal_step_t *step,
                                   const uint8_t *text, size_t bytes,
                                   struct bt_normal_text *out)
{
    bt_regex_runs_t runs = {0};
    bt_status_t status = BT_OK;
    size_t done = 0; /* what is in out */
    size_t at = 0;

    while ((status == BT_OK) && (at < bytes)) {
        const size_t to = bt_regex_match(&step->regex, &step->alphabet, NULL,
                                         text, at, bytes, &runs);
        uint32_t cp;

        if (to == at) {
            at += bt_utf8_decode(text + at, &cp);
            continue;
        }
        status = put_match(step, text, done, at, to, out);
        done = at = to;
    }
    return (status == BT_OK) ? bt_normal_copy(out, text, done, bytes) : status;
}

static bt_status_t prepend(const bt_normal_step_t *step, const uint8_t *text,
                           size_t bytes, struct bt_normal_text *out)
{
    bt_status_t status = BT_OK;

    if (bytes > 0) {
        out->from = out->to = 0;
        status = bt_normal_put(out, step->to, strlen(step->to));
    }
    return (status == BT_OK) ? bt_normal_copy(out, text, 0, bytes) : status;
}

/* ---- all ---- */

/* One step from a text into another.
 * @param [in,out] text_p, n_p, marks_p  the text; where nothing needs to be
 * written it is changed in place, else out is the text */
static bt_status_t run_step(const bt_normal_t *normal,
                            const bt_normal_step_t *step,
                            bt_normal_work_t *work, const uint8_t **text_p,
                            size_t *n_p, const uint8_t **marks_p,
                            struct bt_normal_text *out)
{
    const uint8_t *const before = *text_p;
    bt_status_t status = BT_OK;
    bool unchanged = false;

    out->n = 0;
    out->marked = *marks_p;
    switch (step->kind) {
    case BT_NORMAL_FORM:
        status =
            bt_normal_to_form(step->form, work, *text_p, *n_p, out, &unchanged);
        break;
    case BT_NORMAL_CHARSMAP:
        status = map_chars(normal, *text_p, *n_p, out);
        break;
    case BT_NORMAL_CHARSMAP_CLUSTERS:
        status = map_clusters(normal, *text_p, *n_p, out);
        break;
    case BT_NORMAL_ONE_SPACE:
        status = one_space(*text_p, *n_p, out);
        break;
    case BT_NORMAL_STRIP_LEFT:
        strip_left(text_p, n_p);
        unchanged = true;
        break;
    case BT_NORMAL_STRIP_RIGHT:
        strip_right(*text_p, n_p);
        unchanged = true;
        break;
    case BT_NORMAL_PREPEND:
        status = prepend(step, *text_p, *n_p, out);
        break;
    case BT_NORMAL_REPLACE:
        status = replace(step, *text_p, *n_p, out);
        break;
    case BT_NORMAL_REPLACE_PATTERN:
        status = replace_pattern(step, *text_p, *n_p, out);
        break;
    case BT_NORMAL_LOWERCASE:
        status = bt_normal_lowercase(*text_p, *n_p, out);
        break;
    }
    if ((status == BT_OK) && !unchanged) {
        *text_p = out->bytes;
        *n_p = out->n;
        *marks_p = (*marks_p == NULL) ? NULL : out->marks;
    } else if (*marks_p != NULL) {
        *marks_p += *text_p - before;
    }
    return status;
}

bt_status_t bt_normalize(const bt_normal_t *normal, bt_normal_work_t *work,
                         const uint8_t *text, size_t bytes,
                         const uint8_t **out_p, size_t *n_p,
                         const uint8_t **marks_p)
{
    const uint8_t *marks = (marks_p == NULL) ? NULL : *marks_p;
    bt_status_t status = BT_OK;

    for (uint32_t i = 0; (status == BT_OK) && (i < normal->n); i++) {
        /* The one that the text is not in. */
        struct bt_normal_text *out = &work->texts[0];

        if (bt_task_poll()) {
            return BT_ERR_CANCELED;
        }
        if ((out->bytes != NULL) && (text >= out->bytes) &&
            (text <= out->bytes + out->cap)) {
            out = &work->texts[1];
        }
        status = run_step(normal, &normal->steps[i], work, &text, &bytes,
                          &marks, out);
    }
    if (status == BT_OK) {
        *out_p = text;
        *n_p = bytes;
        if (marks_p != NULL) {
            *marks_p = marks;
        }
    }
    return status;
}
