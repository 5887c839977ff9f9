/* SPDX-License-Identifier: Apache-2.0 */
#include "router/text/harmony_parser.h"

#include <string.h>

#include "common/base/containers.h"
#include "router/text/tools_priv.h"

/* A longer text without <|message|> is no header. */
#define MAX_HEADER_BYTES 1024u

#define MARK_START     "<|start|>"
#define MARK_CHANNEL   "<|channel|>"
#define MARK_MESSAGE   "<|message|>"
#define MARK_CONSTRAIN "<|constrain|>"
#define MARK_END       "<|end|>"
#define MARK_CALL      "<|call|>"
#define MARK_RETURN    "<|return|>"
#define RECIPIENT      "to="

static const char *const marks[BT_HARMONY_N_MARKS] = {
    MARK_START, MARK_CHANNEL, MARK_MESSAGE, MARK_CONSTRAIN,
    MARK_END,   MARK_CALL,    MARK_RETURN,
};

const char *bt_harmony_mark(size_t i)
{
    return marks[i];
}

const char *const bt_harmony_ends[BT_HARMONY_N_ENDS] = {
    MARK_END, MARK_CALL, MARK_RETURN, MARK_START, MARK_CHANNEL};

bool bt_harmony_is_in(const char *chat_template, size_t bytes)
{
    return (bytes > 0) &&
           (memmem(chat_template, bytes, MARK_CHANNEL, strlen(MARK_CHANNEL)) !=
            NULL) &&
           (memmem(chat_template, bytes, MARK_MESSAGE, strlen(MARK_MESSAGE)) !=
            NULL);
}

void bt_harmony_init(bt_harmony_t *harmony, const bt_harmony_spec_t *spec)
{
    memset(harmony, 0, sizeof(*harmony));
    harmony->spec = *spec;
    if (spec->is_continued) {
        harmony->kind = BT_HARMONY_CONTENT;
        harmony->state = BT_HARMONY_BODY;
    }
    bt_strbuf_init(&harmony->held, SIZE_MAX / 4);
}

void bt_harmony_fini(bt_harmony_t *harmony)
{
    bt_strbuf_fini(&harmony->held);
}

/* ---- text ---- */

static bt_tools_match_t begins_with(const char *text, size_t n,
                                    const char *word)
{
    const size_t n_word = strlen(word);
    const size_t n_both = (n < n_word) ? n : n_word;

    if (memcmp(text, word, n_both) != 0) {
        return BT_TOOLS_NO;
    }
    return (n_both == n_word) ? BT_TOOLS_YES : BT_TOOLS_MAYBE;
}

/* Returns the position of the first of n marks in a text, or the text's length.
 * No mark overlaps another one.
 * @param [out] mark_p  the mark; NULL: none is there */
static size_t first_mark(const char *text, size_t bytes,
                         const char *const *list, size_t n, const char **mark_p)
{
    size_t at = bytes;

    *mark_p = NULL;
    for (size_t i = 0; i < n; i++) {
        const char *found = memmem(text, at, list[i], strlen(list[i]));

        if (found != NULL) {
            at = (size_t)(found - text);
            *mark_p = list[i];
        }
    }
    return at;
}

/* ---- headers ---- */

/* Words of a header. */
typedef struct header {
    bt_tools_slice_t role, channel, recipient;
} header_t;

/* A word ends with white space or with a mark. */
static bt_tools_slice_t word_at(const char *text, size_t n, size_t at)
{
    size_t end = at;

    while ((end < n) && !bt_tools_is_space(text[end]) && (text[end] != '<')) {
        end++;
    }
    return (bt_tools_slice_t){text + at, end - at};
}

static bool is_word(bt_tools_slice_t word, const char *wanted)
{
    return (word.n == strlen(wanted)) && (memcmp(word.at, wanted, word.n) == 0);
}

/* Returns the bytes behind a word in a text; 0: it is not there. */
static size_t behind(const char *text, size_t n, const char *word)
{
    const char *found = (n > 0) ? memmem(text, n, word, strlen(word)) : NULL;

    return (found != NULL) ? (size_t)(found - text) + strlen(word) : 0;
}

static header_t read_header(const char *text, size_t n)
{
    header_t header = {
        .role = {"", 0}, .channel = {"", 0}, .recipient = {"", 0}};
    size_t at = behind(text, n, MARK_START);

    if (at > 0) {
        header.role = word_at(text, n, at);
    }
    at = behind(text, n, MARK_CHANNEL);
    if (at > 0) {
        header.channel = word_at(text, n, at);
    }
    at = behind(text, n, RECIPIENT);
    if (at > 0) {
        header.recipient = word_at(text, n, at);
    }
    return header;
}

/* Returns the tool that a recipient names; no bytes: it names none. */
static bt_tools_slice_t tool_of(const bt_tools_t *tools,
                                bt_tools_slice_t recipient)
{
    static const char prefix[] = "functions.";
    const size_t n = sizeof(prefix) - 1;

    if ((recipient.n > n) && (memcmp(recipient.at, prefix, n) == 0)) {
        recipient.at += n;
        recipient.n -= n;
    } else if (!bt_tool_names_have(tools->spec.names, tools->spec.names_bytes,
                                   recipient.at, recipient.n)) {
        recipient.n = 0;
    }
    if (!bt_tool_name_is_valid(recipient.at, recipient.n)) {
        recipient.n = 0;
    }
    return recipient;
}

static bt_harmony_kind_t begin_call(bt_harmony_t *harmony,
                                    bt_tools_slice_t name, bt_strbuf_t *content,
                                    bt_tools_t *tools)
{
    const uint32_t max = tools->spec.max_calls;

    if (((max > 0) && (tools->n_calls >= max)) ||
        !bt_tools_add(tools, name, (bt_tools_slice_t){"", 0}, content)) {
        return BT_HARMONY_DROPPED;
    }
    bt_json_scan_init(&harmony->scan);
    harmony->scanned = BT_JSON_SCAN_MORE;
    harmony->has_arguments = harmony->is_cut = false;
    return BT_HARMONY_CALL;
}

static bt_harmony_kind_t kind_of_thought(const bt_harmony_t *harmony,
                                         const bt_tools_t *tools)
{
    if (harmony->spec.keeps_reasoning) {
        return BT_HARMONY_CONTENT;
    }
    return (harmony->spec.reasoning_first &&
            (harmony->has_content || (tools->n_calls > 0)))
               ? BT_HARMONY_DROPPED
               : BT_HARMONY_THOUGHT;
}

static bt_harmony_kind_t kind_of(bt_harmony_t *harmony, const header_t *header,
                                 bt_strbuf_t *content, bt_tools_t *tools)
{
    bt_tools_slice_t name;

    if ((header->role.n > 0) && !is_word(header->role, "assistant")) {
        return BT_HARMONY_DROPPED;
    }
    if (header->recipient.n > 0) {
        name = bt_tool_format_is_harmony(tools->spec.format)
                   ? tool_of(tools, header->recipient)
                   : (bt_tools_slice_t){"", 0};
        return (name.n > 0) ? begin_call(harmony, name, content, tools)
                            : kind_of_thought(harmony, tools);
    }
    return is_word(header->channel, "analysis")
               ? kind_of_thought(harmony, tools)
               : BT_HARMONY_CONTENT;
}

static void begin_body(bt_harmony_t *harmony, bt_harmony_kind_t kind)
{
    harmony->kind = kind;
    harmony->is_new = harmony->has_message = true;
    harmony->state = BT_HARMONY_BODY;
}

/* ---- states ---- */

/* White space in front of a mark is dropped.
 * @return true: more of the held text may be processed. */
static bool read_start(bt_harmony_t *harmony, bool last)
{
    static const char *const words[] = {
        MARK_START, MARK_CHANNEL, MARK_MESSAGE, MARK_CONSTRAIN,
        RECIPIENT,  MARK_END,     MARK_CALL,    MARK_RETURN};
    static const size_t n_openers = 5; /* the others end a message */
    const char *text = harmony->held.data;
    const size_t at = bt_tools_leading(text, harmony->held.len);
    bool may_be = false;

    for (size_t i = 0; i < BT_ARRAY_LEN(words); i++) {
        const bool fits = (strcmp(words[i], RECIPIENT) != 0) || (at > 0);
        const bt_tools_match_t match =
            fits ? begins_with(text + at, harmony->held.len - at, words[i])
                 : BT_TOOLS_NO;

        if (match == BT_TOOLS_YES) {
            /* White space of what may be text is kept. */
            bt_strbuf_consume(&harmony->held,
                              (i >= n_openers) ? at + strlen(words[i])
                              : (strcmp(words[i], RECIPIENT) == 0) ? 0
                                                                   : at);
            harmony->state =
                (i < n_openers) ? BT_HARMONY_HEADER : BT_HARMONY_START;
            return true;
        }
        may_be = may_be || (match == BT_TOOLS_MAYBE);
    }
    if (may_be && !last) {
        return false;
    }
    if ((at == harmony->held.len) && harmony->has_message) {
        bt_strbuf_consume(&harmony->held, at);
        return false;
    }
    begin_body(harmony, BT_HARMONY_CONTENT);
    return true;
}

/* Appends a piece of the last call's arguments. Behind their JSON value nothing
 * is one; what is no JSON stays as it is. */
static void give_arguments(const bt_harmony_t *harmony, const char *text,
                           size_t n, const bt_tools_t *tools)
{
    if (harmony->scanned == BT_JSON_SCAN_BAD) {
        bt_strbuf_append(&tools->calls[tools->n_calls - 1].arguments, text, n);
    }
}

/* True when a byte can follow in the JSON value of the arguments. */
static bool follows(bt_harmony_t *harmony, char c)
{
    bt_json_scan_t scan = harmony->scan;
    const bool first = !harmony->has_arguments;
    const bt_json_scan_result_t result = (first && (c != '{') && (c != '['))
                                             ? BT_JSON_SCAN_BAD
                                             : bt_json_scan_push(&scan, c);

    if (result == BT_JSON_SCAN_BAD) {
        return false;
    }
    harmony->has_arguments = true;
    harmony->scan = scan;
    harmony->scanned = result;
    return true;
}

/* Reads JSON of a call's arguments as far as it goes: marks within its strings
 * are none. */
static void read_arguments(bt_harmony_t *harmony, const bt_tools_t *tools)
{
    bt_strbuf_t *const out = &tools->calls[tools->n_calls - 1].arguments;
    bt_strbuf_t *const held = &harmony->held;
    const size_t begin =
        harmony->has_arguments ? 0 : bt_tools_leading(held->data, held->len);
    size_t n = begin;

    while ((n < held->len) && (harmony->scanned == BT_JSON_SCAN_MORE) &&
           follows(harmony, held->data[n])) {
        n++;
    }
    bt_strbuf_append(out, held->data + begin, n - begin);
    bt_strbuf_consume(held, n);
    /* A mark may begin here, and may not be whole yet. */
    if ((held->len > 0) && (harmony->scanned == BT_JSON_SCAN_MORE) &&
        (held->data[0] != '<')) {
        harmony->scanned = BT_JSON_SCAN_BAD;
    }
}

static void give_text(bt_harmony_t *harmony, const char *text, size_t n,
                      bool *has_p, bt_strbuf_t *out)
{
    if (harmony->is_new && *has_p) {
        bt_strbuf_append(out, "\n", 1);
    }
    bt_strbuf_append(out, text, n);
    harmony->is_new = false;
    *has_p = true;
}

static void give(bt_harmony_t *harmony, size_t n, bt_strbuf_t *thought,
                 bt_strbuf_t *content, bt_tools_t *tools)
{
    const char *text = harmony->held.data;
    const size_t before = content->len;

    if (n == 0) {
        return;
    }
    switch (harmony->kind) {
    case BT_HARMONY_THOUGHT:
        give_text(harmony, text, n, &harmony->has_thought, thought);
        break;
    case BT_HARMONY_CONTENT:
        give_text(harmony, text, n, &harmony->has_content, content);
        if (bt_tool_format_is_harmony(tools->spec.format)) {
            tools->n_content += content->len - before;
        }
        break;
    case BT_HARMONY_CALL:
        give_arguments(harmony, text, n, tools);
        break;
    case BT_HARMONY_DROPPED:
        break;
    }
    bt_strbuf_consume(&harmony->held, n);
}

/* Counts trailing bytes that may be the start of a mark. */
static size_t uncertain(const bt_strbuf_t *held)
{
    size_t most = 0;

    for (size_t i = 0; i < BT_HARMONY_N_MARKS; i++) {
        const size_t n = bt_tools_tail_of(marks[i], held->data, held->len);

        most = (n > most) ? n : most;
    }
    return most;
}

/* A text that is too long for a header is content, its first mark too. */
static bool give_up(bt_harmony_t *harmony, bt_strbuf_t *thought,
                    bt_strbuf_t *content, bt_tools_t *tools)
{
    begin_body(harmony, BT_HARMONY_CONTENT);
    give(harmony, 1, thought, content, tools); /* it is no mark any more */
    return true;
}

static bool has_mark(const bt_strbuf_t *held)
{
    const char *mark;

    (void)first_mark(held->data, held->len, marks, BT_HARMONY_N_MARKS, &mark);
    return mark != NULL;
}

/* A header in which another message's end stands is dropped. */
static bool read_message_header(bt_harmony_t *harmony, bool last,
                                bt_strbuf_t *thought, bt_strbuf_t *content,
                                bt_tools_t *tools)
{
    static const char *const ends[] = {MARK_MESSAGE, MARK_END, MARK_CALL,
                                       MARK_RETURN};
    const bt_strbuf_t *held = &harmony->held;
    const char *mark;
    const size_t n =
        first_mark(held->data, held->len, ends, BT_ARRAY_LEN(ends), &mark);

    if (((mark != NULL) ? n : n - uncertain(held)) > MAX_HEADER_BYTES) {
        return give_up(harmony, thought, content, tools);
    }
    if (mark == NULL) {
        if (last && !has_mark(held)) {
            return give_up(harmony, thought, content, tools);
        }
        if (last) {
            bt_strbuf_consume(&harmony->held, n);
        }
        return false;
    }
    if (strcmp(mark, MARK_MESSAGE) == 0) {
        const header_t header = read_header(held->data, n);

        begin_body(harmony, kind_of(harmony, &header, content, tools));
    } else {
        harmony->state = BT_HARMONY_START;
    }
    bt_strbuf_consume(&harmony->held, n + strlen(mark));
    return true;
}

/* Reads what follows where a call's arguments are not whole and a mark may
 * begin.
 * @return true: it is no mark, and the arguments are no JSON */
static bool begins_no_mark(bt_harmony_t *harmony, bool last)
{
    const bt_strbuf_t *held = &harmony->held;
    bt_tools_match_t match = BT_TOOLS_NO;

    for (size_t i = 0; (i < BT_HARMONY_N_ENDS) && (match != BT_TOOLS_YES);
         i++) {
        const bt_tools_match_t one =
            begins_with(held->data, held->len, bt_harmony_ends[i]);

        match = (one != BT_TOOLS_NO) ? one : match;
    }
    if (match == BT_TOOLS_YES) {
        harmony->is_cut = harmony->has_arguments;
        harmony->state = BT_HARMONY_START;
    }
    return (match == BT_TOOLS_NO) || ((match == BT_TOOLS_MAYBE) && last);
}

static bool read_body(bt_harmony_t *harmony, bool last, bt_strbuf_t *thought,
                      bt_strbuf_t *content, bt_tools_t *tools)
{
    const bt_strbuf_t *held = &harmony->held;
    const char *mark;
    size_t n;

    if ((harmony->kind == BT_HARMONY_CALL) &&
        (harmony->scanned == BT_JSON_SCAN_MORE)) {
        read_arguments(harmony, tools);
        if (held->len == 0) {
            return false;
        }
        if (harmony->scanned == BT_JSON_SCAN_MORE) {
            if (!begins_no_mark(harmony, last)) {
                return harmony->state == BT_HARMONY_START;
            }
            harmony->scanned = BT_JSON_SCAN_BAD;
        }
    }
    n = first_mark(held->data, held->len, bt_harmony_ends, BT_HARMONY_N_ENDS,
                   &mark);
    if (mark == NULL) {
        give(harmony, last ? n : n - uncertain(held), thought, content, tools);
        return false;
    }
    give(harmony, n, thought, content, tools);
    harmony->state = BT_HARMONY_START;
    return true;
}

static bool step(bt_harmony_t *harmony, bool last, bt_strbuf_t *thought,
                 bt_strbuf_t *content, bt_tools_t *tools)
{
    switch (harmony->state) {
    case BT_HARMONY_START:
        return read_start(harmony, last);
    case BT_HARMONY_HEADER:
        return read_message_header(harmony, last, thought, content, tools);
    case BT_HARMONY_BODY:
        return read_body(harmony, last, thought, content, tools);
    }
    return false;
}

void bt_harmony_push(bt_harmony_t *harmony, const char *text, size_t bytes,
                     bool last, bt_strbuf_t *thought, bt_strbuf_t *content,
                     bt_tools_t *tools)
{
    bt_strbuf_append(&harmony->held, text, bytes);
    if (bt_strbuf_status(&harmony->held) != BT_OK) {
        content->status = bt_strbuf_status(&harmony->held);
        return;
    }
    while ((harmony->held.len > 0) && (bt_strbuf_status(content) == BT_OK) &&
           step(harmony, last, thought, content, tools)) {
    }
    if ((tools->n_calls > 0) &&
        (bt_strbuf_status(&tools->calls[tools->n_calls - 1].arguments) !=
         BT_OK)) {
        content->status = BT_ERR_NO_MEMORY;
    }
    if (last && bt_tool_format_is_harmony(tools->spec.format)) {
        tools->is_cut =
            harmony->is_cut || ((harmony->state == BT_HARMONY_BODY) &&
                                (harmony->kind == BT_HARMONY_CALL) &&
                                (harmony->scanned == BT_JSON_SCAN_MORE));
    }
}
