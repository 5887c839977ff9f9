/* SPDX-License-Identifier: Apache-2.0 */
/** @file tools.h
 *
 * Calls of tools in what a model says, while it says it. Each family has a form
 * of its own:
 *
 *     hermes     text <tool_call>{"name": "f", "arguments": {…}}</tool_call> …
 *     llama3     {"name": "f", "parameters": {…}}; {…}
 *     mistral    text [TOOL_CALLS][{"name": "f", "arguments": {…}}, …]
 *                text [TOOL_CALLS]f[ARGS]{…}[TOOL_CALLS]g[ARGS]{…}
 *     pythonic   [f(a=1, b="x"), g()]
 *
 * Pieces may cut it anywhere; where they do changes nothing of what is told in
 * the end.
 *
 *          what calls begin with         all of it, or, as it streams, its
 *     TEXT ─────────────────────▶ HELD   name and how its arguments begin
 *      ▲  what is before it is     │ └────────────────────────────▶ a call
 *      │  told as content          │                                  │
 *      ├───────────────────────────┘ it is none: its beginning was     │
 *      └───────────────────────────  text, what follows is looked at ◀─┘
 *
 * So what parses as no call stays text. With `streams` arguments are told as
 * they come; those that break off after their beginning was told stay as they
 * are, and have the rest of the text, too. Without it they are no call.
 *
 * llama3 and pythonic have no word that begins a call: there the text must
 * begin with one, and only names of tools that the client gave are calls.
 *
 * White space between text and calls is dropped, but for that between two
 * texts.
 *
 * Threads: one for each object.
 * Source:  the chat templates of Qwen 2.5 and Hermes 2 Pro, Llama 3.1 to 4,
 *          Mistral (7B v0.3 to Small 3.2).
 */
#ifndef BT_ROUTER_TEXT_TOOLS_H
#define BT_ROUTER_TEXT_TOOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/strbuf.h"
#include "router/text/json_scan.h"

#define BT_TOOLS_MAX_CALLS      64
#define BT_TOOLS_MAX_NAME_BYTES 128

typedef struct bt_tool_format bt_tool_format_t; /**< static */

/** One of the names above, or NULL. */
const bt_tool_format_t *bt_tool_format_named(const char *name);
/** That of the calls that a chat template writes, or NULL. */
const bt_tool_format_t *bt_tool_format_of(const char *chat_template,
                                          size_t bytes);
const char *bt_tool_format_name(const bt_tool_format_t *format);
/** Are its marks special tokens, which must be shown as text? */
bool bt_tool_format_is_special(const bt_tool_format_t *format);
/** Bytes of the id of a call that its templates want; 0: any. */
uint32_t bt_tool_format_id_bytes(const bt_tool_format_t *format);
/** Append what an answer begins with that is a call.
 *  @param [in] name  of the tool; NULL: whichever */
void bt_tool_format_open(const bt_tool_format_t *format, const char *name,
                         bt_strbuf_t *out);
/** Can a tool be called so? Letters, digits and "_-.:/", not too many. */
bool bt_tool_name_is_valid(const char *name, size_t bytes);

typedef struct bt_tool_call {
    char *name;            /**< owned */
    bt_strbuf_t arguments; /**< a JSON object, as the model wrote it */
} bt_tool_call_t;

/** What is looked for. Borrowed. */
typedef struct bt_tools_spec {
    const bt_tool_format_t *format; /**< NULL: all is text */
    const char *names;              /**< of the tools, each with its zero */
    size_t names_bytes;
    uint32_t max_calls; /**< what comes behind so many is dropped; 0: any */
    bool streams;
} bt_tools_spec_t;

typedef enum bt_tools_state {
    BT_TOOLS_TEXT,
    BT_TOOLS_OPENED, /**< behind what calls begin with */
    BT_TOOLS_NAME,   /**< mistral: a name and [ARGS] */
    BT_TOOLS_OBJECT, /**< one that is held until it is whole */
    BT_TOOLS_LIST,   /**< pythonic: the same of a list */
    BT_TOOLS_ARGS,   /**< told as they come */
    BT_TOOLS_REST,   /**< of the object behind its arguments */
    BT_TOOLS_TAIL,   /**< behind a call */
    BT_TOOLS_TORN,   /**< all that comes is the last call's */
    BT_TOOLS_PLAIN,  /**< all that comes is text */
    BT_TOOLS_FULL,   /**< all that comes is dropped */
} bt_tools_state_t;

typedef struct bt_tools {
    bt_tools_spec_t spec;
    bt_tools_state_t state;
    bt_strbuf_t held;  /**< what is not certain: white space, mark, call */
    size_t mark;       /**< of it, where the mark is */
    size_t mark_bytes; /**< 0: none was needed */
    size_t begin;      /**< where the object is */
    size_t at;         /**< what was looked at */
    bt_json_scan_t scan;
    uint32_t args_depth; /**< where the arguments end */
    char quote;          /**< pythonic: of the string that is open */
    bool is_escaped;     /**< pythonic: behind a backslash */
    uint32_t depth;      /**< pythonic: of brackets */
    bool in_list;        /**< mistral: calls in brackets */
    bool was_no_head;    /**< this object is held until it is whole */
    bool has_content;    /**< some was told */
    uint32_t n_calls;
    bt_tool_call_t *calls; /**< owned, n_calls; grows */
} bt_tools_t;

void bt_tools_init(bt_tools_t *tools, const bt_tools_spec_t *spec);
void bt_tools_fini(bt_tools_t *tools);
/** Take new text; append what is certain content, and add to the calls. Want of
 *  memory sticks in @a content.
 *  @param [in] last  nothing comes behind it */
void bt_tools_push(bt_tools_t *tools, const char *text, size_t bytes, bool last,
                   bt_strbuf_t *content);

#endif
