/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/text.h"
#include "inference/tokenizer/normal.h"
#include "inference/tokenizer/tables.h"
#include "inference/tokenizer/unicode.h"

/* Hangul syllables are leads × vowels × tails in order; the Unicode Standard,
 * section 3.12. */
#define S_BASE  0xAC00u
#define L_BASE  0x1100u
#define V_BASE  0x1161u
#define T_BASE  0x11A7u
#define L_COUNT 19u
#define V_COUNT 21u
#define T_COUNT 28u
#define S_COUNT (L_COUNT * V_COUNT * T_COUNT)

#define NO_CODE      UINT32_MAX
#define DOTTED_I     0x130u /* the one letter with two in lower case */
#define MAX_PARTS    18u
#define CLASS_SHIFT  21u /* of a code in work->codes: its combining class */
#define CODE(entry)  ((entry)&0x1FFFFFu)
#define CLASS(entry) ((entry) >> CLASS_SHIFT)

/* ---- tables ---- */

/* The last entry of a rising list whose value >> shift is at most key. */
static uint32_t last_at_most(const uint64_t *list, uint32_t n, unsigned shift,
                             uint64_t key)
{
    uint32_t low = 0;

    while (n > 1) {
        const uint32_t half = n / 2;

        if (list[low + half] >> shift <= key) {
            low += half;
            n -= half;
        } else {
            n = half;
        }
    }
    return low;
}

static uint32_t combining(uint32_t cp)
{
    return (cp < 0x300) ? 0
                        : bt_unicode_run(bt_unicode_combining,
                                         bt_unicode_n_combining, 8, cp);
}

/* ---- decomposition ---- */

/* Index in bt_unicode_pairs, plus one, of each code point composed of two. */
static uint16_t pair_of[BT_UNICODE_N_COMPOSED];

__attribute__((constructor)) static void make_pair_of(void)
{
    for (uint32_t i = 0; i < bt_unicode_n_pairs; i++) {
        pair_of[CODE(bt_unicode_pairs[i])] = (uint16_t)(i + 1);
    }
}

/* Appends the parts of a code point, itself if there are none.
 * @return how many there are now */
static uint32_t decompose(uint32_t cp, bool compatible,
                          uint32_t parts[MAX_PARTS], uint32_t n)
{
    uint64_t run;
    uint32_t count;
    const uint32_t *own;

    if ((cp >= S_BASE) && (cp < S_BASE + S_COUNT)) {
        const uint32_t s = cp - S_BASE;

        parts[n++] = L_BASE + s / (V_COUNT * T_COUNT);
        parts[n++] = V_BASE + s % (V_COUNT * T_COUNT) / T_COUNT;
        if (s % T_COUNT != 0) {
            parts[n++] = T_BASE + s % T_COUNT;
        }
        return n;
    }
    if ((cp < BT_UNICODE_N_COMPOSED) && (pair_of[cp] != 0)) {
        const uint64_t pair = bt_unicode_pairs[pair_of[cp] - 1];

        n = decompose((uint32_t)CODE(pair >> 42), compatible, parts, n);
        return decompose((uint32_t)CODE(pair >> 21), compatible, parts, n);
    }
    run = bt_unicode_mapped[last_at_most(bt_unicode_mapped, bt_unicode_n_mapped,
                                         22, cp)];
    count = (uint32_t)(run >> 16 & 31);
    if ((count == 0) || (!compatible && ((run >> 21 & 1) != 0))) {
        parts[n++] = cp;
        return n;
    }
    own = bt_unicode_parts + (run & 0xFFFF) + count * (cp - (run >> 22));
    for (uint32_t i = 0; i < count; i++) {
        n = decompose(own[i], compatible, parts, n);
    }
    return n;
}

static bt_status_t reserve_codes(bt_normal_work_t *work, size_t n)
{
    uint32_t *codes =
        bt_array_reserve(work->codes, &work->codes_cap, n, sizeof(*codes));

    if (codes == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    work->codes = codes;
    return BT_OK;
}

static bt_status_t decompose_all(bt_normal_work_t *work, bool compatible,
                                 const uint8_t *text, size_t bytes, size_t *n_p)
{
    size_t n = 0;

    for (size_t at = 0; at < bytes;) {
        uint32_t parts[MAX_PARTS];
        uint32_t cp;
        uint32_t n_parts;
        bt_status_t status;

        at += bt_utf8_decode(text + at, &cp);
        n_parts = decompose(cp, compatible, parts, 0);
        status = reserve_codes(work, n + n_parts);
        if (status != BT_OK) {
            return status;
        }
        for (uint32_t i = 0; i < n_parts; i++) {
            work->codes[n++] = parts[i] | combining(parts[i]) << CLASS_SHIFT;
        }
    }
    *n_p = n;
    return BT_OK;
}

/* ---- order ---- */

/* By class, equal ones as they are: counted, so that any number of marks costs
 * no more than its length. */
static bt_status_t sort_marks(bt_normal_work_t *work, size_t from, size_t to,
                              size_t n)
{
    size_t starts[256] = {0};
    uint32_t *sorted;
    size_t sum = n;
    bool in_order = true;
    const bt_status_t status = reserve_codes(work, n + (to - from));

    if (status != BT_OK) {
        return status;
    }
    for (size_t i = from; i < to; i++) {
        starts[CLASS(work->codes[i])]++;
        in_order = in_order && ((i == from) || (CLASS(work->codes[i - 1]) <=
                                                CLASS(work->codes[i])));
    }
    if (in_order) {
        return BT_OK;
    }
    for (size_t c = 0; c < 256; c++) {
        const size_t count = starts[c];

        starts[c] = sum;
        sum += count;
    }
    sorted = work->codes; /* behind all n */
    for (size_t i = from; i < to; i++) {
        sorted[starts[CLASS(work->codes[i])]++] = work->codes[i];
    }
    memcpy(work->codes + from, work->codes + n, (to - from) * sizeof(*sorted));
    return BT_OK;
}

static bt_status_t order(bt_normal_work_t *work, size_t n)
{
    bt_status_t status = BT_OK;
    size_t at = 0;

    while ((status == BT_OK) && (at < n)) {
        size_t end = at;

        while ((end < n) && (CLASS(work->codes[end]) != 0)) {
            end++;
        }
        if (end - at > 1) {
            status = sort_marks(work, at, end, n);
        }
        at = end + 1;
    }
    return status;
}

/* ---- composition ---- */

static uint32_t compose_pair(uint32_t a, uint32_t b)
{
    const uint64_t key = (uint64_t)a << 21 | b;
    uint64_t entry;

    if ((a - L_BASE < L_COUNT) && (b - V_BASE < V_COUNT)) {
        return S_BASE + ((a - L_BASE) * V_COUNT + (b - V_BASE)) * T_COUNT;
    }
    if ((a - S_BASE < S_COUNT) && ((a - S_BASE) % T_COUNT == 0) &&
        (b > T_BASE) && (b < T_BASE + T_COUNT)) {
        return a + (b - T_BASE);
    }
    entry = bt_unicode_pairs[last_at_most(bt_unicode_pairs, bt_unicode_n_pairs,
                                          21, key)];
    return (entry >> 21 == key) ? (uint32_t)CODE(entry) : NO_CODE;
}

/* Each character joins the last starter unless one between them that stayed is
 * of its class or higher.
 * @return how many are left */
static size_t compose(uint32_t *codes, size_t n)
{
    size_t starter = SIZE_MAX;
    uint32_t last_class = 0; /* of what stayed behind the starter */
    size_t out = 0;

    for (size_t i = 0; i < n; i++) {
        const uint32_t entry = codes[i];
        const bool next_to = (starter != SIZE_MAX) && (out == starter + 1);
        uint32_t composed = NO_CODE;

        if ((starter != SIZE_MAX) && (next_to || (last_class < CLASS(entry)))) {
            composed = compose_pair(CODE(codes[starter]), CODE(entry));
        }
        if (composed != NO_CODE) {
            codes[starter] = composed;
            continue;
        }
        if (CLASS(entry) == 0) {
            starter = out;
        }
        last_class = CLASS(entry);
        codes[out++] = entry;
    }
    return out;
}

/* ---- texts ---- */

/* Bytes before the first run that may change: all up to the ASCII character
 * before it, which never changes but may be composed with. */
static size_t unchanged_end(bt_normal_form_t form, const uint8_t *text,
                            size_t at, size_t bytes)
{
    size_t safe = at;

    while (at < bytes) {
        uint32_t cp;
        unsigned len;

        if (text[at] < 0x80) {
            safe = at++;
            continue;
        }
        len = bt_utf8_decode(text + at, &cp);
        if ((form != BT_NORMAL_NFC) ||
            ((cp >= 0x300) &&
             (bt_unicode_run(bt_unicode_stable, bt_unicode_n_stable, 8, cp) ==
              0))) {
            return safe;
        }
        safe = at;
        at += len;
    }
    return bytes;
}

/* End of the run that changes together: before the next ASCII character. */
static size_t run_end(const uint8_t *text, size_t at, size_t bytes)
{
    at++;
    while ((at < bytes) && (text[at] >= 0x80)) {
        at++;
    }
    return at;
}

/* Marks the bytes that are put next if any byte of this range is marked: which
 * of them each is made of is not known. */
static void mark_as_any(struct bt_normal_text *out, size_t from, size_t to)
{
    const uint8_t *const found =
        (out->marked == NULL) ? NULL : memchr(out->marked + from, 1, to - from);

    out->from = (found == NULL) ? from : (size_t)(found - out->marked);
    out->to = (found == NULL) ? from : out->from + 1;
}

/* text[from … to - 1]. Of what comes out only the ASCII character that may
 * begin it is known to be made of one alone. */
static bt_status_t put_run(bt_normal_form_t form, bt_normal_work_t *work,
                           const uint8_t *text, size_t from, size_t to,
                           struct bt_normal_text *out)
{
    const bool compatible =
        (form == BT_NORMAL_NFKC) || (form == BT_NORMAL_NFKD);
    size_t n = 0;
    bt_status_t status =
        decompose_all(work, compatible, text + from, to - from, &n);
    size_t first = 0;

    if (status == BT_OK) {
        status = order(work, n);
    }
    if ((status == BT_OK) &&
        ((form == BT_NORMAL_NFC) || (form == BT_NORMAL_NFKC))) {
        n = compose(work->codes, n);
    }
    if ((status == BT_OK) && (n > 0) && (CODE(work->codes[0]) == text[from]) &&
        (text[from] < 0x80)) {
        status = bt_normal_copy(out, text, from, from + 1);
        first = 1;
    }
    mark_as_any(out, from + first, to);
    for (size_t i = first; (status == BT_OK) && (i < n); i++) {
        uint8_t utf8[4];
        const unsigned len = bt_utf8_encode(CODE(work->codes[i]), utf8);

        status = bt_normal_put(out, utf8, len);
    }
    return status;
}

bt_status_t bt_normal_to_form(bt_normal_form_t form, bt_normal_work_t *work,
                              const uint8_t *text, size_t bytes,
                              struct bt_normal_text *out, bool *unchanged_p)
{
    size_t at = 0;
    bt_status_t status = BT_OK;

    if (unchanged_end(form, text, 0, bytes) == bytes) {
        *unchanged_p = true;
        return BT_OK;
    }
    while ((status == BT_OK) && (at < bytes)) {
        const size_t safe = unchanged_end(form, text, at, bytes);

        status = bt_normal_copy(out, text, at, safe);
        at = safe;
        if ((status == BT_OK) && (at < bytes)) {
            const size_t end = run_end(text, at, bytes);

            status = put_run(form, work, text, at, end, out);
            at = end;
        }
    }
    return status;
}

bt_status_t bt_normal_lowercase(const uint8_t *text, size_t bytes,
                                struct bt_normal_text *out)
{
    static const char dotted_i[] = "i\u0307";
    bt_status_t status = BT_OK;

    for (size_t at = 0; (status == BT_OK) && (at < bytes);) {
        uint8_t utf8[4];
        uint64_t run;
        uint32_t behind; /* the first of the run */
        uint32_t cp;

        out->from = at;
        at += bt_utf8_decode(text + at, &cp);
        out->to = at;
        if (cp == DOTTED_I) {
            status = bt_normal_put(out, dotted_i, sizeof(dotted_i) - 1);
            continue;
        }
        run = bt_unicode_lower[last_at_most(bt_unicode_lower,
                                            bt_unicode_n_lower, 42, cp)];
        behind = cp - (uint32_t)(run >> 42);
        if ((behind <= (run >> 1 & 0xFFFFF)) && ((behind & run & 1) == 0)) {
            cp = (uint32_t)CODE(run >> 21) + behind;
        }
        status = bt_normal_put(out, utf8, bt_utf8_encode(cp, utf8));
    }
    return status;
}
