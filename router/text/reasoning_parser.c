/* SPDX-License-Identifier: Apache-2.0 */
#include "router/text/reasoning_parser.h"

#include <stdint.h>
#include <string.h>

#include "common/base/containers.h"
#include "router/text/harmony_parser.h"
#include "router/text/tools_priv.h"

#define HARMONY "harmony"

/* In the order in which they are searched in a template. */
static const bt_reason_marks_t families[] = {
    {.name = HARMONY, /* gpt-oss */
     .open = "<|channel|>analysis<|message|>",
     .close = "<|end|>",
     .is_harmony = true},
    {.name = "think", /* DeepSeek-R1, Qwen 3, QwQ, SmolLM3 */
     .open = "<think>",
     .close = "</think>"},
    {.name = "seed", .open = "<seed:think>", .close = "</seed:think>"},
    {.name = "mistral", .open = "[THINK]", .close = "[/THINK]"}, /* Magistral */
    {.name = "thinking", .open = "<thinking>", .close = "</thinking>"},
    {.name = "thought", .open = "<thought>", .close = "</thought>"},
    {.name = "reasoning", .open = "<reasoning>", .close = "</reasoning>"},
    {.name = "granite",
     .open = "Here is my thought process:",
     .close = "Here is my response:"},
};

const bt_reason_marks_t *bt_reason_marks_named(const char *name)
{
    return BT_FIND_NAMED(families, BT_ARRAY_LEN(families), name, name);
}

const bt_reason_marks_t *bt_reason_marks_of(const char *chat_template,
                                            size_t bytes)
{
    if (bt_harmony_is_in(chat_template, bytes)) {
        return bt_reason_marks_named(HARMONY);
    }
    for (size_t i = 0; (bytes > 0) && (i < BT_ARRAY_LEN(families)); i++) {
        const char *close = families[i].close;

        if (!families[i].is_harmony && /* <|end|> is of others, too */
            (memmem(chat_template, bytes, close, strlen(close)) != NULL)) {
            return &families[i];
        }
    }
    return NULL;
}

static bool ends_with(const char *prompt, size_t bytes, const char *mark)
{
    const size_t n = bt_tools_trimmed(prompt, bytes);
    const size_t n_mark = strlen(mark);

    return (n >= n_mark) && (memcmp(prompt + n - n_mark, mark, n_mark) == 0);
}

bool bt_reason_is_opened(const bt_reason_marks_t *marks, const char *prompt,
                         size_t bytes)
{
    return ends_with(prompt, bytes, marks->open);
}

bool bt_reason_is_closed(const bt_reason_marks_t *marks, const char *prompt,
                         size_t bytes)
{
    return ends_with(prompt, bytes, marks->close);
}

void bt_reason_put_end(const bt_reason_marks_t *marks, bt_strbuf_t *out)
{
    bt_strbuf_puts(out, marks->is_harmony ? "" : "\n");
    bt_strbuf_puts(out, marks->close);
    bt_strbuf_puts(out, marks->is_harmony ? BT_HARMONY_ASSISTANT : "\n\n");
}

void bt_reason_init(bt_reason_t *reason, const bt_reason_marks_t *marks,
                    bool opened)
{
    reason->marks = marks;
    reason->state = (marks == NULL) ? BT_REASON_IS_AFTER
                    : opened        ? BT_REASON_IS_OPENED
                                    : BT_REASON_IS_BEFORE;
    bt_strbuf_init(&reason->held, SIZE_MAX / 4);
}

void bt_reason_fini(bt_reason_t *reason)
{
    bt_strbuf_fini(&reason->held);
}

static void give(bt_reason_t *reason, size_t n, bt_strbuf_t *out)
{
    if (n > 0) {
        bt_strbuf_append(out, reason->held.data, n);
        bt_strbuf_consume(&reason->held, n);
    }
}

static void drop_leading(bt_reason_t *reason, bt_reason_state_t next)
{
    bt_strbuf_t *held = &reason->held;

    bt_strbuf_consume(held, bt_tools_leading(held->data, held->len));
    if (held->len > 0) {
        reason->state = next;
    }
}

/* @return true: more of the held text may be processed. */
static bool before(bt_reason_t *reason, bool last)
{
    const bt_strbuf_t *held = &reason->held;
    const char *open = reason->marks->open;
    const size_t n_open = strlen(open);
    const size_t at = bt_tools_leading(held->data, held->len);
    const size_t n = held->len - at;

    if ((n >= n_open) && (memcmp(held->data + at, open, n_open) == 0)) {
        bt_strbuf_consume(&reason->held, at + n_open);
        reason->state = BT_REASON_IS_OPENED;
        return true;
    }
    if (!last && (n < n_open) && (memcmp(held->data + at, open, n) == 0)) {
        return false;
    }
    reason->state = BT_REASON_IS_AFTER;
    return true;
}

/* Counts trailing bytes that may be the start of the closing marker, and the
 * white space before them. */
static size_t uncertain(const bt_strbuf_t *held, const char *close)
{
    const size_t n = bt_tools_tail_of(close, held->data, held->len);

    return held->len - bt_tools_trimmed(held->data, held->len - n);
}

static bool inside(bt_reason_t *reason, bool last, bt_strbuf_t *thought)
{
    const bt_strbuf_t *held = &reason->held;
    const char *close = reason->marks->close;
    const char *found = memmem(held->data, held->len, close, strlen(close));
    size_t n;

    if (found == NULL) {
        n = last ? held->len : held->len - uncertain(held, close);
        give(reason, n, thought);
        return false;
    }
    n = (size_t)(found - held->data);
    bt_strbuf_append(thought, held->data, bt_tools_trimmed(held->data, n));
    bt_strbuf_consume(&reason->held, n + strlen(close));
    reason->state = BT_REASON_IS_CLOSED;
    return true;
}

static bool step(bt_reason_t *reason, bool last, bt_strbuf_t *thought,
                 bt_strbuf_t *content)
{
    switch (reason->state) {
    case BT_REASON_IS_BEFORE:
        return before(reason, last);
    case BT_REASON_IS_OPENED:
        drop_leading(reason, BT_REASON_IS_INSIDE);
        return reason->state == BT_REASON_IS_INSIDE;
    case BT_REASON_IS_INSIDE:
        return inside(reason, last, thought);
    case BT_REASON_IS_CLOSED:
        drop_leading(reason, BT_REASON_IS_AFTER);
        return reason->state == BT_REASON_IS_AFTER;
    case BT_REASON_IS_AFTER:
        give(reason, reason->held.len, content);
        break;
    }
    return false;
}

void bt_reason_push(bt_reason_t *reason, const char *text, size_t bytes,
                    bool last, bt_strbuf_t *thought, bt_strbuf_t *content)
{
    if (reason->state == BT_REASON_IS_AFTER) {
        bt_strbuf_append(content, text, bytes);
        return;
    }
    bt_strbuf_append(&reason->held, text, bytes);
    if (bt_strbuf_status(&reason->held) != BT_OK) {
        content->status = bt_strbuf_status(&reason->held);
        return;
    }
    while ((reason->held.len > 0) && step(reason, last, thought, content)) {
    }
}
