/* SPDX-License-Identifier: Apache-2.0 */
/* First byte: the family of marks and whether the prompt opened it; second: how
 * the pieces are cut; the rest: what a model says. However it is cut, and
 * whether the end is told with the last piece or behind it, the parts are the
 * same. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/status.h"
#include "common/base/text.h"
#include "router/text/reasoning_parser.h"

#define LIMIT ((size_t)64 << 20)

typedef struct parts {
    bt_strbuf_t thought, content;
} parts_t;

static const bt_reason_marks_t *marks_of(uint8_t byte)
{
    static const char *const names[] = {"think",   "seed",      "mistral",
                                        "thought", "reasoning", "thinking",
                                        "granite", "off"};

    return bt_reason_marks_named(names[byte % BT_ARRAY_LEN(names)]);
}

static void init(parts_t *parts)
{
    bt_strbuf_init(&parts->thought, LIMIT);
    bt_strbuf_init(&parts->content, LIMIT);
}

static void fini(parts_t *parts)
{
    bt_strbuf_fini(&parts->thought);
    bt_strbuf_fini(&parts->content);
}

/* Bytes of the next piece: 1 to 16, now and then none. */
static size_t next_bytes(uint32_t *seed)
{
    *seed = *seed * 1103515245u + 12345u;
    return (*seed >> 20) % 17;
}

/* @param seed  of the cuts; 0: all in one piece */
static void split(uint8_t how, uint32_t seed, const char *text, size_t n,
                  parts_t *parts)
{
    bt_reason_t reason;
    size_t at = 0;

    bt_reason_init(&reason, marks_of(how), (how & 0x80) != 0);
    while (at < n) {
        const size_t want = (seed == 0) ? n : next_bytes(&seed);
        const size_t piece = (want < n - at) ? want : n - at;
        const bool last = (at + piece == n) && ((seed & 1) == 0);

        bt_reason_push(&reason, text + at, piece, last, &parts->thought,
                       &parts->content);
        at += piece;
        if (last) {
            break;
        }
    }
    bt_reason_push(&reason, "", 0, true, &parts->thought, &parts->content);
    bt_reason_fini(&reason);
    BT_ASSERT_ALWAYS(bt_strbuf_status(&parts->thought) == BT_OK);
    BT_ASSERT_ALWAYS(bt_strbuf_status(&parts->content) == BT_OK);
}

static bool is_same(const bt_strbuf_t *a, const bt_strbuf_t *b)
{
    return (a->len == b->len) &&
           ((a->len == 0) || (memcmp(a->data, b->data, a->len) == 0));
}

/* What was thought stands in the text, and the content ends it. */
static void check(const parts_t *parts, const char *text, size_t n)
{
    const bt_strbuf_t *thought = &parts->thought, *content = &parts->content;

    BT_ASSERT_ALWAYS(thought->len + content->len <= n);
    BT_ASSERT_ALWAYS(
        (content->len == 0) ||
        (memcmp(text + n - content->len, content->data, content->len) == 0));
    BT_ASSERT_ALWAYS(
        (thought->len == 0) ||
        (memmem(text, n - content->len, thought->data, thought->len) != NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data + 2;
    parts_t whole, cut;

    if (size < 2) {
        return 0;
    }
    init(&whole);
    split(data[0], 0, text, size - 2, &whole);
    check(&whole, text, size - 2);
    for (uint32_t k = 1; k <= 4; k++) {
        init(&cut);
        split(data[0], 256 * k + data[1], text, size - 2, &cut);
        BT_ASSERT_ALWAYS(is_same(&whole.thought, &cut.thought));
        BT_ASSERT_ALWAYS(is_same(&whole.content, &cut.content));
        fini(&cut);
    }
    fini(&whole);
    return 0;
}
