/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/template/text.h"

#include <string.h>

#define FIRST_BYTES 64u
/* Shorter ones are copied. */
#define GROWS_FROM 1024u

const bt_tmpl_text_t bt_tmpl_text_empty = {.data = ""};

void bt_tmpl_build_init(bt_tmpl_build_t *build, bt_tmpl_run_t *run)
{
    memset(build, 0, sizeof(*build));
    build->run = run;
}

/* Space for n more bytes. What is grown out of stays behind in the arena: all
 * of the former copies of a text together are as large as the text. */
static bool reserve(bt_tmpl_build_t *build, size_t n)
{
    bt_tmpl_run_t *run = build->run;
    size_t cap = (size_t)build->cap * 2;
    char *data;

    if (!bt_tmpl_run_ok(run)) {
        return false;
    }
    if (n > BT_TEXT_MAX_BYTES - build->len) {
        return bt_tmpl_run_fail(run, BT_ERR_TOO_LARGE,
                                "a text of the template is over "
                                "1 GiB");
    }
    if (n <= build->cap - build->len) {
        return true;
    }
    cap = (cap < FIRST_BYTES) ? FIRST_BYTES : cap;
    cap = (cap < build->len + n) ? build->len + n : cap;
    if ((build->cap > 0) &&
        bt_tmpl_arena_extend(&run->bytes, build->data + build->cap,
                             cap - build->cap)) {
        build->cap = (uint32_t)cap;
        return true;
    }
    data = bt_tmpl_arena_take_bytes(&run->bytes, cap);
    if (data == NULL) {
        bt_tmpl_run_fail_memory(run, &run->bytes);
        return false;
    }
    if (build->len > 0) {
        memcpy(data, build->data, build->len);
    }
    build->data = data;
    build->cap = (uint32_t)cap;
    return true;
}

static void add_mark(bt_tmpl_build_t *build, uint32_t begin, uint32_t end)
{
    bt_tmpl_run_t *run = build->run;

    if (begin == end) {
        return;
    }
    if ((build->n_marks > build->n_fixed) &&
        (build->marks[build->n_marks - 1].end == begin)) {
        build->marks[build->n_marks - 1].end = end;
        return;
    }
    if (build->n_marks == build->cap_marks) {
        bt_tmpl_mark_t *marks =
            bt_tmpl_run_grow(run, build->marks, build->n_marks,
                             &build->cap_marks, 2, sizeof(*marks));

        if (marks == NULL) {
            return;
        }
        build->marks = marks;
        build->n_fixed = 0;
    }
    build->marks[build->n_marks++] = (bt_tmpl_mark_t){begin, end};
}

void bt_tmpl_build_bytes(bt_tmpl_build_t *build, const char *data, size_t n,
                         bool quoted)
{
    if ((n == 0) || !reserve(build, n)) {
        return;
    }
    memcpy(build->data + build->len, data, n);
    build->len += (uint32_t)n;
    if (quoted) {
        add_mark(build, build->len - (uint32_t)n, build->len);
    }
}

void bt_tmpl_build_char(bt_tmpl_build_t *build, uint32_t cp, bool quoted)
{
    uint8_t bytes[4];
    const unsigned n = bt_utf8_encode(cp, bytes);

    bt_tmpl_build_bytes(build, (const char *)bytes, n, quoted);
}

/* The first mark that ends after a byte. */
static uint32_t mark_after(const bt_tmpl_text_t *text, uint32_t at)
{
    uint32_t low = 0;
    uint32_t high = text->n_marks;

    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;

        if (text->marks[mid].end <= at) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

void bt_tmpl_build_slice(bt_tmpl_build_t *build, const bt_tmpl_text_t *text,
                         uint32_t from, uint32_t to)
{
    const uint32_t base = build->len;

    if ((from >= to) || !bt_tmpl_run_step_bytes(build->run, to - from)) {
        return;
    }
    bt_tmpl_build_bytes(build, text->data + from, to - from, false);
    if (!bt_tmpl_run_ok(build->run)) {
        return;
    }
    for (uint32_t i = mark_after(text, from); i < text->n_marks; i++) {
        const bt_tmpl_mark_t *m = &text->marks[i];

        if (m->begin >= to) {
            break;
        }
        add_mark(build, base + ((m->begin > from) ? m->begin - from : 0),
                 base + ((m->end < to) ? m->end : to) - from);
    }
}

void bt_tmpl_build_quote_from(bt_tmpl_build_t *build, uint32_t from)
{
    while ((build->n_marks > 0) &&
           (build->marks[build->n_marks - 1].begin >= from)) {
        build->n_marks--;
    }
    if ((build->n_marks > 0) && (build->marks[build->n_marks - 1].end > from)) {
        build->marks[build->n_marks - 1].end = build->len;
        return;
    }
    add_mark(build, from, build->len);
}

const bt_tmpl_text_t *bt_tmpl_build_end(bt_tmpl_build_t *build)
{
    bt_tmpl_text_t *text;

    if (build->len == 0) {
        return bt_tmpl_run_ok(build->run) ? &bt_tmpl_text_empty : NULL;
    }
    text = bt_tmpl_run_take(build->run, 1, sizeof(*text));
    if (text == NULL) {
        return NULL;
    }
    text->data = build->data;
    text->len = build->len;
    text->marks = build->marks;
    text->n_marks = build->n_marks;
    return text;
}

bt_tmpl_value_t bt_tmpl_build_value(bt_tmpl_build_t *build)
{
    return bt_tmpl_v_text(bt_tmpl_build_end(build));
}

const bt_tmpl_text_t *bt_tmpl_text_make(bt_tmpl_run_t *run, const char *data,
                                        size_t n, bool quoted)
{
    bt_tmpl_build_t build;

    bt_tmpl_build_init(&build, run);
    bt_tmpl_build_bytes(&build, data, n, quoted);
    return bt_tmpl_build_end(&build);
}

/* The bytes are shared. */
const bt_tmpl_text_t *bt_tmpl_text_slice(bt_tmpl_run_t *run,
                                         const bt_tmpl_text_t *text,
                                         uint32_t from, uint32_t to)
{
    bt_tmpl_build_t build;
    bt_tmpl_text_t *made;

    if (from >= to) {
        return &bt_tmpl_text_empty;
    }
    if ((from == 0) && (to == text->len)) {
        return text;
    }
    bt_tmpl_build_init(&build, run);
    for (uint32_t i = mark_after(text, from);
         (i < text->n_marks) && bt_tmpl_run_step(run, i % 8 == 0); i++) {
        const bt_tmpl_mark_t *m = &text->marks[i];

        if (m->begin >= to) {
            break;
        }
        add_mark(&build, (m->begin > from) ? m->begin - from : 0,
                 ((m->end < to) ? m->end : to) - from);
    }
    made = bt_tmpl_run_take(run, 1, sizeof(*made));
    if (made != NULL) {
        made->data = text->data + from;
        made->len = to - from;
        made->marks = build.marks;
        made->n_marks = build.n_marks;
    }
    return made;
}

/* Space for n bytes right behind a: in the arena, or in what was kept for it.
 */
static bool grow_behind(bt_tmpl_run_t *run, const bt_tmpl_text_t *a, uint32_t n)
{
    const char *end = a->data + a->len;

    if (bt_tmpl_arena_extend(&run->bytes, end, n)) {
        return true;
    }
    if ((run->grows_at == NULL) || (end != run->grows_at) ||
        (n > (size_t)(run->grows_end - run->grows_at))) {
        return false;
    }
    run->grows_at += n;
    return true;
}

/* A copy of a in twice the space that both take. */
static void copy_to_grow(bt_tmpl_run_t *run, bt_tmpl_build_t *build,
                         const bt_tmpl_text_t *a, uint32_t n)
{
    const size_t bytes = 2 * ((size_t)a->len + n);
    char *data = bt_tmpl_arena_take_bytes(&run->bytes, bytes);

    if (data == NULL) {
        bt_tmpl_run_fail_memory(run, &run->bytes);
        return;
    }
    build->data = data;
    build->cap = a->len + n;
    run->grows_at = data + build->cap;
    run->grows_end = data + bytes;
}

/* The marks of a, in place where a is what grew last. */
static void take_marks(bt_tmpl_run_t *run, bt_tmpl_build_t *build,
                       const bt_tmpl_text_t *a)
{
    if ((a->n_marks > 0) && (a->marks == run->grows_marks) &&
        (a->n_marks == run->n_grows_marks)) {
        build->marks = run->grows_marks;
        build->n_marks = build->n_fixed = a->n_marks;
        build->cap_marks = run->cap_grows_marks;
        return;
    }
    (void)bt_tmpl_run_step(run, a->n_marks / 8);
    for (uint32_t i = 0; i < a->n_marks; i++) {
        add_mark(build, a->marks[i].begin, a->marks[i].end);
    }
}

const bt_tmpl_text_t *bt_tmpl_text_join(bt_tmpl_run_t *run,
                                        const bt_tmpl_text_t *a,
                                        const bt_tmpl_text_t *b)
{
    const bool grows = (a->len >= GROWS_FROM) && (a->len >= run->grows_len);
    bt_tmpl_build_t build;

    if ((a->len == 0) || (b->len == 0)) {
        return (a->len == 0) ? b : a;
    }
    bt_tmpl_build_init(&build, run);
    if (b->len > BT_TEXT_MAX_BYTES - a->len) {
        bt_tmpl_run_fail(run, BT_ERR_TOO_LARGE,
                         "a text of the template is over 1 GiB");
        return NULL;
    }
    if (grow_behind(run, a, b->len)) {
        /* Behind a, whose holders see as much of it as before. */
        build.len = a->len;
        build.cap = a->len + b->len;
        take_marks(run, &build, a);
        memcpy(&build.data, &a->data, sizeof(build.data)); /* not const here */
    } else {
        if (grows) {
            copy_to_grow(run, &build, a, b->len);
        }
        bt_tmpl_build_text(&build, a);
    }
    bt_tmpl_build_text(&build, b);
    if (grows) {
        run->grows_len = build.len;
        run->grows_marks = build.marks;
        run->n_grows_marks = build.n_marks;
        run->cap_grows_marks = build.cap_marks;
    }
    return bt_tmpl_build_end(&build);
}

bool bt_tmpl_text_quoted_in(const bt_tmpl_text_t *text, uint32_t from,
                            uint32_t to)
{
    const uint32_t i = mark_after(text, from);

    return (i < text->n_marks) && (text->marks[i].begin < to);
}

bool bt_tmpl_text_is(const bt_tmpl_text_t *text, const char *other)
{
    const size_t n = strlen(other);

    return (text->len == n) && (memcmp(text->data, other, n) == 0);
}

uint32_t bt_tmpl_text_find(const bt_tmpl_text_t *text,
                           const bt_tmpl_text_t *needle, uint32_t from,
                           uint32_t to)
{
    const char *found;

    if ((from > to) || (needle->len > to - from)) {
        return UINT32_MAX;
    }
    found = memmem(text->data + from, to - from, needle->data, needle->len);
    return (found == NULL) ? UINT32_MAX : (uint32_t)(found - text->data);
}

uint32_t bt_tmpl_text_rfind(const bt_tmpl_text_t *text,
                            const bt_tmpl_text_t *needle, uint32_t from,
                            uint32_t to)
{
    uint32_t at;

    if ((from > to) || (needle->len > to - from)) {
        return UINT32_MAX;
    }
    at = to - needle->len;
    while (memcmp(text->data + at, needle->data, needle->len) != 0) {
        if (at == from) {
            return UINT32_MAX;
        }
        at--;
    }
    return at;
}

uint32_t bt_tmpl_text_chars(const bt_tmpl_text_t *text)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < text->len; i++) {
        n += ((uint8_t)text->data[i] & 0xC0) != 0x80;
    }
    return n;
}

uint32_t bt_tmpl_text_char_at(const bt_tmpl_text_t *text, uint32_t n)
{
    uint32_t at = 0;

    while ((at < text->len) && (n > 0)) {
        at++;
        while ((at < text->len) && (((uint8_t)text->data[at] & 0xC0) == 0x80)) {
            at++;
        }
        n--;
    }
    return at;
}

uint32_t bt_tmpl_text_before(const bt_tmpl_text_t *text, uint32_t at,
                             uint32_t *cp_p)
{
    uint32_t start = at - 1;

    while ((start > 0) && (((uint8_t)text->data[start] & 0xC0) == 0x80)) {
        start--;
    }
    bt_tmpl_text_decode(text, start, cp_p);
    return at - start;
}
