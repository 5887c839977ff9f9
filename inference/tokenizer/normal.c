/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/tokenizer/normal.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/utf8.h"
#include "inference/tokenizer/unicode.h"

#define FIRST_CAP     256u
#define MAX_KEY_BYTES 256u /* of the charsmap; no published one comes near */

bt_status_t bt_normal_add(bt_normal_t *normal, bt_normal_kind_t kind,
                          bt_normal_form_t form, const char *from,
                          const char *to)
{
    bt_normal_step_t step = {.kind = kind, .form = form};

    if (normal->n == BT_NORMAL_MAX_STEPS) {
        return BT_ERR_TOO_LARGE;
    }
    step.from = (from == NULL) ? NULL : bt_memdup(from, strlen(from) + 1);
    step.to = (to == NULL) ? NULL : bt_memdup(to, strlen(to) + 1);
    if (((from != NULL) && (step.from == NULL)) ||
        ((to != NULL) && (step.to == NULL))) {
        bt_free(step.from);
        bt_free(step.to);
        return BT_ERR_NO_MEMORY;
    }
    normal->steps[normal->n++] = step;
    return BT_OK;
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
    n_bytes = (uint32_t)blob[0] | (uint32_t)blob[1] << 8 |
              (uint32_t)blob[2] << 16 | (uint32_t)blob[3] << 24;
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
        units[i] = (uint32_t)blob[4 * i] | (uint32_t)blob[4 * i + 1] << 8 |
                   (uint32_t)blob[4 * i + 2] << 16 |
                   (uint32_t)blob[4 * i + 3] << 24;
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
        bt_free(normal->steps[i].from);
        bt_free(normal->steps[i].to);
    }
    bt_free(normal->units);
    bt_free(normal->texts);
    memset(normal, 0, sizeof(*normal));
}

void bt_normal_work_fini(bt_normal_work_t *work)
{
    bt_free(work->texts[0].bytes);
    bt_free(work->texts[1].bytes);
    bt_free(work->codes);
    memset(work, 0, sizeof(*work));
}

bt_status_t bt_normal_put(struct bt_normal_text *out, const void *bytes,
                          size_t n)
{
    size_t cap = (out->cap == 0) ? FIRST_CAP : out->cap;
    uint8_t *grown;

    if (n > BT_NORMAL_MAX_BYTES - out->n) {
        return BT_ERR_TOO_LARGE;
    }
    if (n > out->cap - out->n) {
        while (cap - out->n < n) {
            cap *= 2;
        }
        grown = bt_realloc_array(out->bytes, cap, 1);
        if (grown == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        out->bytes = grown;
        out->cap = cap;
    }
    if (n > 0) {
        memcpy(out->bytes + out->n, bytes, n);
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

/* The longest key that the text begins with, and what stands for it.
 * @return its bytes, 0: none */
static size_t longest_key(const bt_normal_t *normal, const uint8_t *text,
                          size_t bytes, const char **value_p)
{
    size_t at = children_of(normal->units[0]);
    size_t found = 0;

    bytes = (bytes < MAX_KEY_BYTES) ? bytes : MAX_KEY_BYTES;
    for (size_t i = 0; (i < bytes) && (text[i] != 0); i++) {
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

static bt_status_t map_chars(const bt_normal_t *normal, const uint8_t *text,
                             size_t bytes, struct bt_normal_text *out)
{
    bt_status_t status = BT_OK;

    for (size_t at = 0; (status == BT_OK) && (at < bytes);) {
        const char *value = NULL;
        size_t n = longest_key(normal, text + at, bytes - at, &value);

        if (n > 0) {
            status = bt_normal_put(out, value, strlen(value));
        } else {
            uint32_t cp;

            n = bt_utf8_decode(text + at, &cp);
            status = bt_normal_put(out, text + at, n);
        }
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
            if (gap && (out->n > 0)) {
                status = bt_normal_put(out, " ", 1);
            }
            if (status == BT_OK) {
                status = bt_normal_put(out, text + at, n - at);
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

static bt_status_t replace(const bt_normal_step_t *step, const uint8_t *text,
                           size_t bytes, struct bt_normal_text *out)
{
    const size_t n_from = strlen(step->from);
    const size_t n_to = strlen(step->to);
    bt_status_t status = BT_OK;
    size_t at = 0;

    while ((status == BT_OK) && (at < bytes)) {
        const uint8_t *found =
            memmem(text + at, bytes - at, step->from, n_from);
        const size_t end = (found == NULL) ? bytes : (size_t)(found - text);

        status = bt_normal_put(out, text + at, end - at);
        at = end;
        if ((status == BT_OK) && (found != NULL)) {
            status = bt_normal_put(out, step->to, n_to);
            at += n_from;
        }
    }
    return status;
}

static bt_status_t prepend(const bt_normal_step_t *step, const uint8_t *text,
                           size_t bytes, struct bt_normal_text *out)
{
    bt_status_t status = BT_OK;

    if (bytes > 0) {
        status = bt_normal_put(out, step->to, strlen(step->to));
    }
    return (status == BT_OK) ? bt_normal_put(out, text, bytes) : status;
}

/* ---- all ---- */

/* One step from a text into another.
 * @param [in,out] text_p, n_p  the text; where nothing needs to be written it
 * is changed in place, else out is the text */
static bt_status_t run_step(const bt_normal_t *normal,
                            const bt_normal_step_t *step,
                            bt_normal_work_t *work, const uint8_t **text_p,
                            size_t *n_p, struct bt_normal_text *out)
{
    bt_status_t status = BT_OK;
    bool unchanged = false;

    out->n = 0;
    switch (step->kind) {
    case BT_NORMAL_FORM:
        status =
            bt_normal_to_form(step->form, work, *text_p, *n_p, out, &unchanged);
        break;
    case BT_NORMAL_CHARSMAP:
        status = map_chars(normal, *text_p, *n_p, out);
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
    case BT_NORMAL_LOWERCASE:
        status = bt_normal_lowercase(*text_p, *n_p, out);
        break;
    }
    if ((status == BT_OK) && !unchanged) {
        *text_p = out->bytes;
        *n_p = out->n;
    }
    return status;
}

bt_status_t bt_normalize(const bt_normal_t *normal, bt_normal_work_t *work,
                         const uint8_t *text, size_t bytes,
                         const uint8_t **out_p, size_t *n_p)
{
    bt_status_t status = BT_OK;

    for (uint32_t i = 0; (status == BT_OK) && (i < normal->n); i++) {
        /* The one that the text is not in. */
        struct bt_normal_text *out = &work->texts[0];

        if ((out->bytes != NULL) && (text >= out->bytes) &&
            (text <= out->bytes + out->cap)) {
            out = &work->texts[1];
        }
        status = run_step(normal, &normal->steps[i], work, &text, &bytes, out);
    }
    if (status == BT_OK) {
        *out_p = text;
        *n_p = bytes;
    }
    return status;
}
