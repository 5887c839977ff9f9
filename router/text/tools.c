/* SPDX-License-Identifier: Apache-2.0 */
#include "router/text/tools.h"

#include <string.h>

#include "common/base/alloc.h"
#include "router/text/tools_priv.h"

void bt_tools_init(bt_tools_t *tools, const bt_tools_spec_t *spec)
{
    memset(tools, 0, sizeof(*tools));
    tools->spec = *spec;
    tools->state = (spec->format == NULL) ? BT_TOOLS_PLAIN : BT_TOOLS_TEXT;
    bt_strbuf_init(&tools->held, SIZE_MAX / 4);
}

void bt_tools_forget(bt_tools_t *tools, uint32_t n)
{
    while (tools->n_calls > n) {
        bt_tool_call_t *call = &tools->calls[--tools->n_calls];

        bt_free(call->name);
        bt_strbuf_fini(&call->arguments);
    }
}

void bt_tools_fini(bt_tools_t *tools)
{
    bt_tools_forget(tools, 0);
    bt_free(tools->calls);
    bt_strbuf_fini(&tools->held);
}

/* ---- calls ---- */

bool bt_tool_names_have(const char *names, size_t names_bytes, const char *name,
                        size_t bytes)
{
    const char *end = names + names_bytes;

    for (const char *at = names; at < end; at += strlen(at) + 1) {
        if ((strlen(at) == bytes) && (memcmp(at, name, bytes) == 0)) {
            return true;
        }
    }
    return false;
}

bool bt_tools_add(bt_tools_t *tools, bt_tools_slice_t name,
                  bt_tools_slice_t arguments, bt_strbuf_t *content)
{
    bt_tool_call_t *calls;
    bt_tool_call_t *call;

    if ((tools->n_calls == BT_TOOLS_MAX_CALLS) ||
        ((tools->mark_bytes == 0) && tools->spec.format->is_bare &&
         !bt_tool_names_have(tools->spec.names, tools->spec.names_bytes,
                             name.at, name.n))) {
        return false;
    }
    calls = bt_realloc_array(tools->calls, tools->n_calls + 1, sizeof(*calls));
    if (calls == NULL) {
        content->status = BT_ERR_NO_MEMORY;
        return false;
    }
    tools->calls = calls;
    call = &calls[tools->n_calls];
    call->name = bt_memdup(name.at, name.n);
    if (call->name == NULL) {
        content->status = BT_ERR_NO_MEMORY;
        return false;
    }
    call->text_before = tools->n_content;
    bt_strbuf_init(&call->arguments, SIZE_MAX / 4);
    bt_strbuf_append(&call->arguments, arguments.at, arguments.n);
    tools->n_calls++;
    if (bt_strbuf_status(&call->arguments) != BT_OK) {
        content->status = bt_strbuf_status(&call->arguments);
    }
    return true;
}

/* ---- held text ---- */

size_t bt_tools_leading(const char *text, size_t n)
{
    size_t at = 0;

    while ((at < n) && bt_tools_is_space(text[at])) {
        at++;
    }
    return at;
}

size_t bt_tools_trimmed(const char *text, size_t n)
{
    while ((n > 0) && bt_tools_is_space(text[n - 1])) {
        n--;
    }
    return n;
}

static void consume(bt_tools_t *tools, size_t n)
{
    bt_strbuf_consume(&tools->held, n);
    tools->n_opening -= (n < tools->n_opening) ? n : tools->n_opening;
}

static void give(bt_tools_t *tools, size_t n, bt_strbuf_t *content)
{
    const char *text = tools->held.data;
    size_t skipped = (n < tools->n_opening) ? n : tools->n_opening;

    /* White space between calls at the beginning is dropped. */
    while ((tools->n_content == 0) && (tools->n_calls > 0) && (skipped < n) &&
           bt_tools_is_space(text[skipped])) {
        skipped++;
    }
    if (n > skipped) {
        bt_strbuf_append(content, text + skipped, n - skipped);
        tools->n_content += n - skipped;
    }
    if (n > 0) {
        consume(tools, n);
    }
}

static bool skip_spaces(bt_tools_t *tools)
{
    while ((tools->at < tools->held.len) &&
           bt_tools_is_space(tools->held.data[tools->at])) {
        tools->at++;
    }
    return tools->at < tools->held.len;
}

static char byte(const bt_tools_t *tools)
{
    return tools->held.data[tools->at];
}

/* A call's start turned out to be text: so is its marker. */
static bool give_up(bt_tools_t *tools, bt_strbuf_t *content)
{
    tools->state = BT_TOOLS_TEXT;
    tools->in_text = true;
    tools->in_list = false;
    give(tools, tools->mark + tools->mark_bytes, content);
    tools->mark = tools->mark_bytes = 0;
    return true;
}

/* The text ends after a call's start without a name. */
static bool end_unnamed(bt_tools_t *tools, bt_strbuf_t *content)
{
    if ((tools->mark_bytes == 0) && (tools->n_calls == 0) &&
        (tools->n_opening == 0)) {
        return give_up(tools, content);
    }
    consume(tools, tools->held.len);
    return false;
}

/* The text ends within a call's arguments, or before them. */
static bool end_named(bt_tools_t *tools, bt_tools_slice_t name,
                      bt_tools_slice_t arguments, bt_strbuf_t *content)
{
    if (!bt_tools_add(tools, name, arguments, content)) {
        return give_up(tools, content);
    }
    tools->is_cut = true;
    consume(tools, tools->held.len);
    return false;
}

/* Accepts a call that ends at `at`. */
static bool has_call(bt_tools_t *tools, bt_tools_state_t next)
{
    consume(tools, tools->at);
    tools->mark = tools->mark_bytes = tools->at = 0;
    tools->in_text = false;
    tools->state = next;
    return true;
}

static bool begin_object(bt_tools_t *tools)
{
    bt_json_scan_init(&tools->scan);
    tools->begin = tools->at;
    tools->was_no_head = false;
    tools->state = BT_TOOLS_OBJECT;
    return true;
}

/* ---- text and the start of a call ---- */

size_t bt_tools_tail_of(const char *mark, const char *text, size_t bytes)
{
    size_t n = strlen(mark) - 1;

    n = (n < bytes) ? n : bytes;
    while ((n > 0) && (memcmp(text + bytes - n, mark, n) != 0)) {
        n--;
    }
    return n;
}

static bool begin_list(bt_tools_t *tools)
{
    tools->begin = tools->at;
    tools->state = BT_TOOLS_LIST;
    tools->depth = 0;
    tools->quote = '\0';
    tools->is_escaped = false;
    return true;
}

/* Begins a call if one starts here; @a opener is its first byte. */
static bool begin_call(bt_tools_t *tools, char opener)
{
    return (opener == '[') ? begin_list(tools) : begin_object(tools);
}

static char opener_of(const bt_tool_format_t *format)
{
    return (format->kind == BT_TOOLS_PYTHON) ? '[' : '{';
}

/* Without a marker, the text must begin with a call. */
static bool read_beginning(bt_tools_t *tools, bool last, bt_strbuf_t *content)
{
    const char opener = opener_of(tools->spec.format);

    tools->mark = tools->at = 0;
    if (!skip_spaces(tools)) {
        if (last) {
            give(tools, tools->held.len, content);
        }
        return false;
    }
    if (byte(tools) != opener) {
        tools->in_text = true;
        return true;
    }
    return begin_call(tools, opener);
}

static bool read_text(bt_tools_t *tools, bool last, bt_strbuf_t *content)
{
    const char *mark = tools->spec.format->mark;
    const char *text = tools->held.data;
    const size_t n = tools->held.len;
    const char *found;
    size_t n_text;

    if (tools->spec.format->is_bare && !tools->in_text) {
        return read_beginning(tools, last, content);
    }
    found = memmem(text, n, mark, strlen(mark));
    if (found == NULL) {
        const bool all = last && (tools->n_calls == 0);

        give(tools,
             all ? n
                 : bt_tools_trimmed(
                       text, n - (last ? 0 : bt_tools_tail_of(mark, text, n))),
             content);
        return false;
    }
    n_text = bt_tools_trimmed(text, (size_t)(found - text));
    tools->mark = (size_t)(found - text) - n_text;
    tools->mark_bytes = strlen(mark);
    tools->at = tools->mark + tools->mark_bytes;
    tools->state = BT_TOOLS_OPENED;
    give(tools, n_text, content);
    return true;
}

static bool read_opened(bt_tools_t *tools, bool last, bt_strbuf_t *content)
{
    const bool brackets = tools->spec.format->kind == BT_TOOLS_BRACKETS;
    const char opener = opener_of(tools->spec.format);

    if (!skip_spaces(tools)) {
        return last && end_unnamed(tools, content);
    }
    if (byte(tools) == opener) {
        return (!brackets || tools->in_list) ? begin_call(tools, opener)
                                             : give_up(tools, content);
    }
    if (!brackets || tools->in_list) {
        return give_up(tools, content);
    }
    if (byte(tools) == '[') {
        tools->in_list = true;
        tools->at++;
        return true;
    }
    tools->state = BT_TOOLS_NAME;
    return true;
}

/* ---- calls as objects ---- */

/* Begins the arguments at @a args; the bytes before have been scanned. */
static void begin_args(bt_tools_t *tools, size_t args, uint32_t depth)
{
    consume(tools, args);
    tools->mark = tools->mark_bytes = tools->at = 0;
    tools->args_depth = depth;
    tools->state = BT_TOOLS_ARGS;
}

/* Reads a call's start: its name is complete, and arguments follow. */
static bool read_head(bt_tools_t *tools,
                      bt_tools_match_t (*match)(const char *, size_t,
                                                bt_tools_slice_t *, size_t *),
                      bt_strbuf_t *content, bt_tools_match_t *match_p)
{
    const char *text = tools->held.data + tools->begin;
    bt_tools_slice_t name;
    size_t args;

    *match_p = match(text, tools->held.len - tools->begin, &name, &args);
    if ((*match_p != BT_TOOLS_YES) ||
        !bt_tools_add(tools, name, (bt_tools_slice_t){"", 0}, content)) {
        return false;
    }
    bt_json_scan_init(&tools->scan);
    for (size_t i = 0; (text[0] == '{') && (i < args); i++) {
        (void)bt_json_scan_push(&tools->scan, text[i]);
    }
    begin_args(tools, tools->begin + args, tools->scan.depth);
    return true;
}

static bt_tools_state_t behind_call(const bt_tools_t *tools)
{
    return ((tools->spec.max_calls > 0) &&
            (tools->n_calls >= tools->spec.max_calls))
               ? BT_TOOLS_FULL
               : BT_TOOLS_TAIL;
}

/* Reads f[ARGS]null, with {} as arguments. */
static bool read_nothing(bt_tools_t *tools, bt_strbuf_t *content,
                         bt_tools_match_t *match_p)
{
    bt_tools_slice_t name;
    size_t end;

    *match_p =
        bt_tools_bare_nothing(tools->held.data + tools->begin,
                              tools->held.len - tools->begin, &name, &end);
    if ((*match_p != BT_TOOLS_YES) ||
        !bt_tools_add(tools, name, (bt_tools_slice_t){"{}", 2}, content)) {
        return false;
    }
    tools->at = tools->begin + end;
    return has_call(tools, behind_call(tools));
}

/* Reads f[ARGS]{…}. */
static bool read_name(bt_tools_t *tools, bool last, bt_strbuf_t *content)
{
    bt_tools_match_t match;
    const char *name;
    size_t n;

    tools->begin = tools->at;
    if (read_head(tools, bt_tools_bare_head, content, &match)) {
        return true;
    }
    if ((match == BT_TOOLS_NO) && read_nothing(tools, content, &match)) {
        return true;
    }
    if (match != BT_TOOLS_MAYBE) {
        return give_up(tools, content);
    }
    if (!last) {
        return false;
    }
    name = tools->held.data + tools->begin;
    n = strcspn(name, "[");
    return (name[n] == '[') ? end_named(tools, (bt_tools_slice_t){name, n},
                                        (bt_tools_slice_t){"", 0}, content)
                            : end_unnamed(tools, content);
}

/* Takes an object that ends at `at`, or the beginning of a truncated one. */
static bool take_object(bt_tools_t *tools, bool is_cut, bt_strbuf_t *content)
{
    bt_tools_slice_t arguments = {"", 0};
    bt_tools_slice_t name = {0};
    bt_tools_match_t match;
    bt_strbuf_t decoded;
    bool more;

    bt_strbuf_init(&decoded, SIZE_MAX / 4);
    match = bt_tools_of_object(tools->held.data + tools->begin,
                               tools->at - tools->begin, is_cut, &name,
                               &arguments, &decoded);
    if (match == BT_TOOLS_MAYBE) {
        more = end_unnamed(tools, content);
    } else if (match == BT_TOOLS_NO) {
        more = give_up(tools, content);
    } else if (is_cut) {
        more = end_named(tools, name, arguments, content);
    } else {
        more = bt_tools_add(tools, name, arguments, content)
                   ? has_call(tools, behind_call(tools))
                   : give_up(tools, content);
    }
    if (bt_strbuf_status(&decoded) == BT_ERR_NO_MEMORY) {
        content->status = BT_ERR_NO_MEMORY;
    }
    bt_strbuf_fini(&decoded);
    return more;
}

static bool read_object(bt_tools_t *tools, bool last, bt_strbuf_t *content)
{
    bt_json_scan_result_t result = BT_JSON_SCAN_MORE;

    if (!tools->was_no_head) {
        bt_tools_match_t match;

        if (read_head(tools, bt_tools_head, content, &match)) {
            return true;
        }
        tools->was_no_head = match != BT_TOOLS_MAYBE;
    }
    while ((tools->at < tools->held.len) && (result == BT_JSON_SCAN_MORE)) {
        result = bt_json_scan_push(&tools->scan, byte(tools));
        tools->at++;
    }
    switch (result) {
    case BT_JSON_SCAN_DONE:
        return take_object(tools, false, content);
    case BT_JSON_SCAN_BAD:
        return give_up(tools, content);
    default:
        return last && take_object(tools, true, content);
    }
}

static bool read_args(bt_tools_t *tools)
{
    bt_strbuf_t *out = &tools->calls[tools->n_calls - 1].arguments;
    const char *text = tools->held.data;
    bt_json_scan_result_t result = BT_JSON_SCAN_MORE;
    bool ended = false;
    size_t n = 0;

    while ((n < tools->held.len) && !ended && (result == BT_JSON_SCAN_MORE)) {
        result = bt_json_scan_push(&tools->scan, text[n]);
        n += (result != BT_JSON_SCAN_BAD) ? 1 : 0;
        ended = (tools->scan.depth == tools->args_depth) &&
                (result != BT_JSON_SCAN_BAD);
    }
    bt_strbuf_append(out, text, n);
    consume(tools, n);
    if (result == BT_JSON_SCAN_BAD) {
        tools->state = BT_TOOLS_TORN;
    } else if (ended) {
        tools->state =
            (result == BT_JSON_SCAN_DONE) ? behind_call(tools) : BT_TOOLS_REST;
    }
    return ended || (result == BT_JSON_SCAN_BAD);
}

/* Further text belongs to the last call, up to a marker. */
static bool read_torn(bt_tools_t *tools, bool last)
{
    bt_strbuf_t *out = &tools->calls[tools->n_calls - 1].arguments;
    const char *mark = tools->spec.format->torn_end;
    const char *text = tools->held.data;
    size_t n = tools->held.len;
    const char *found =
        (mark != NULL) ? memmem(text, n, mark, strlen(mark)) : NULL;

    if (found != NULL) {
        n = (size_t)(found - text);
        tools->in_list = false;
        tools->state = behind_call(tools);
    } else if ((mark != NULL) && !last) {
        n -= bt_tools_tail_of(mark, text, n);
    }
    if (mark != NULL) { /* without white space before the marker */
        const size_t n_out = bt_tools_trimmed(text, n);

        bt_strbuf_append(out, text, n_out);
        consume(tools, (last || (found != NULL)) ? n : n_out);
    } else {
        bt_strbuf_append(out, text, n);
        consume(tools, n);
    }
    return found != NULL;
}

/* Reads the rest of an object whose arguments have been output. */
static bool read_rest(bt_tools_t *tools)
{
    bt_json_scan_result_t result = BT_JSON_SCAN_MORE;
    size_t n = 0;

    while ((n < tools->held.len) && (result == BT_JSON_SCAN_MORE)) {
        result = bt_json_scan_push(&tools->scan, tools->held.data[n]);
        n += (result != BT_JSON_SCAN_BAD) ? 1 : 0;
    }
    consume(tools, n);
    if (result != BT_JSON_SCAN_MORE) {
        tools->state = behind_call(tools);
    }
    return result != BT_JSON_SCAN_MORE;
}

/* ---- after a call ---- */

/* The end marker of a call is optional. */
static bool read_tail(bt_tools_t *tools, bool last)
{
    const bt_tool_format_t *format = tools->spec.format;
    const size_t n_end = strlen(format->end);
    size_t n;

    tools->mark = tools->at = 0;
    if (!skip_spaces(tools)) {
        if (last) {
            consume(tools, tools->held.len);
        }
        return false;
    }
    if (tools->in_list) {
        const char c = byte(tools);

        tools->at++;
        if (c == ',') {
            return has_call(tools, BT_TOOLS_OPENED);
        }
        tools->in_list = false;
        tools->at -= (c == ']') ? 0 : 1;
        return has_call(tools, BT_TOOLS_TEXT);
    }
    n = tools->held.len - tools->at;
    n = (n < n_end) ? n : n_end;
    if ((n > 0) &&
        (memcmp(tools->held.data + tools->at, format->end, n) == 0)) {
        if ((n < n_end) && !last) {
            return false;
        }
        tools->at += n;
    } else {
        tools->at = 0;
    }
    return has_call(tools, BT_TOOLS_TEXT);
}

/* ---- calls as Python ---- */

/* Scans for the end of the list. @return false: not yet */
static bool end_of_list(bt_tools_t *tools)
{
    while (tools->at < tools->held.len) {
        const char c = byte(tools);

        tools->at++;
        if (tools->quote != '\0') {
            if (tools->is_escaped) {
                tools->is_escaped = false;
            } else if (c == '\\') {
                tools->is_escaped = true;
            } else if (c == tools->quote) {
                tools->quote = '\0';
            }
        } else if ((c == '"') || (c == '\'')) {
            tools->quote = c;
        } else if ((c == '[') || (c == '(') || (c == '{')) {
            tools->depth++;
        } else if ((c == ']') || (c == ')') || (c == '}')) {
            tools->depth--;
            if (tools->depth == 0) {
                return true;
            }
        }
    }
    return false;
}

static bool read_list(bt_tools_t *tools, bool last, bt_strbuf_t *content)
{
    const bool is_whole = end_of_list(tools);
    const uint32_t n_before = tools->n_calls;
    bt_tools_match_t match;

    if (!is_whole && !last) {
        return false;
    }
    match = bt_tools_of_python(tools, tools->held.data + tools->begin,
                               tools->at - tools->begin, !is_whole, content);
    if (match == BT_TOOLS_NO) {
        return give_up(tools, content);
    }
    if (tools->n_calls == n_before) {
        return end_unnamed(tools, content);
    }
    if ((tools->spec.max_calls > 0) &&
        (tools->n_calls > tools->spec.max_calls)) {
        bt_tools_forget(tools, tools->spec.max_calls);
        tools->is_cut = false;
    }
    return has_call(tools, behind_call(tools));
}

/* ---- all of it ---- */

/* @return true: more of the held text may be processed. */
static bool step(bt_tools_t *tools, bool last, bt_strbuf_t *content)
{
    switch (tools->state) {
    case BT_TOOLS_TEXT:
        return read_text(tools, last, content);
    case BT_TOOLS_OPENED:
        return read_opened(tools, last, content);
    case BT_TOOLS_NAME:
        return read_name(tools, last, content);
    case BT_TOOLS_OBJECT:
        return read_object(tools, last, content);
    case BT_TOOLS_LIST:
        return read_list(tools, last, content);
    case BT_TOOLS_ARGS:
        return read_args(tools);
    case BT_TOOLS_REST:
        return read_rest(tools);
    case BT_TOOLS_TAIL:
        return read_tail(tools, last);
    case BT_TOOLS_TORN:
        return read_torn(tools, last);
    case BT_TOOLS_PLAIN:
        give(tools, tools->held.len, content);
        break;
    case BT_TOOLS_FULL:
        consume(tools, tools->held.len);
        break;
    }
    return false;
}

void bt_tools_push(bt_tools_t *tools, const char *text, size_t bytes, bool last,
                   bt_strbuf_t *content)
{
    if ((tools->state == BT_TOOLS_PLAIN) && (tools->held.len == 0) &&
        (tools->n_calls == 0)) {
        bt_strbuf_append(content, text, bytes);
        tools->n_content += bytes;
        return;
    }
    bt_strbuf_append(&tools->held, text, bytes);
    if (bt_strbuf_status(&tools->held) != BT_OK) {
        content->status = bt_strbuf_status(&tools->held);
        return;
    }
    while ((tools->held.len > 0) && (bt_strbuf_status(content) == BT_OK) &&
           step(tools, last, content)) {
    }
    if ((tools->n_calls > 0) &&
        (bt_strbuf_status(&tools->calls[tools->n_calls - 1].arguments) !=
         BT_OK)) {
        content->status = BT_ERR_NO_MEMORY;
    }
}

void bt_tools_open(bt_tools_t *tools, const char *text, size_t bytes,
                   bt_strbuf_t *content)
{
    tools->n_opening = bytes;
    bt_tools_push(tools, text, bytes, false, content);
}
