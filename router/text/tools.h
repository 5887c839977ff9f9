/* SPDX-License-Identifier: Apache-2.0 */
/** @file tools.h
 *
 * Calls of tools in what a model says, while it says it. Each family has a form
 * of its own:
 *
 *     hermes     text <tool_call>{"name": "f", "arguments": {…}}</tool_call> …
 *     llama3     {"name": "f", "parameters": {…}}; {…}
 *                text <|python_tag|>{"name": "f", "parameters": {…}}
 *     mistral    text [TOOL_CALLS][{"name": "f", "arguments": {…}}, …]
 *                text [TOOL_CALLS]f[ARGS]{…}[TOOL_CALLS]g[ARGS]{…}
 *     pythonic   [f(a=1, b="x"), g()]
 *                text <|python_start|>[f(a=1, b="x"), g()]<|python_end|>
 *
 * Marks may be control tokens of the vocabulary: they come here as they are
 * spelled. Pieces may cut the text anywhere; where they do changes nothing of
 * the result, so a whole answer and a stream have the same calls.
 *
 *          what calls begin with         its name is there, and how its
 *     TEXT ─────────────────────▶ HELD   arguments begin
 *      ▲  what is before it is     │ └────────────────────────────▶ a call
 *      │  told as content          │                                  │
 *      ├───────────────────────────┘ it is none: its beginning was     │
 *      └───────────────────────────  text, what follows is looked at ◀─┘
 *
 * Text that parses as no call stays text. Arguments are told as they come;
 * those that turn out to be no JSON stay as they are, up to the mark that ends
 * the call, or to the end.
 *
 * Where the text ends within a call, the call has what is there of it: its
 * name, if that is whole, and its arguments so far, perhaps none. A beginning
 * without a name is dropped where a mark or another call stands before it, and
 * is text elsewhere.
 *
 * In llama3 and pythonic a text may also begin with a call, without a mark:
 * there only names of tools that the client gave are calls.
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
#define BT_TOOLS_MAX_MARKS      4 /**< of a format */

typedef struct bt_tool_format bt_tool_format_t; /**< static */

/** One of the names above, or NULL. */
const bt_tool_format_t *bt_tool_format_named(const char *name);
/** That of the calls that a chat template writes, or NULL. */
const bt_tool_format_t *bt_tool_format_of(const char *chat_template,
                                          size_t bytes);
const char *bt_tool_format_name(const bt_tool_format_t *format);
/** The marks that its calls are found by. @return how many */
uint32_t bt_tool_format_marks(const bt_tool_format_t *format,
                              const char *marks[BT_TOOLS_MAX_MARKS]);
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
    BT_TOOLS_TORN,   /**< arguments that are no JSON */
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
    bool in_text;        /**< a call needs a mark here */
    bool has_content;    /**< some was told */
    bool is_cut;         /**< bt_tools_is_cut() */
    size_t n_opening;    /**< bytes of `held` that bt_tools_open() gave */
    uint32_t n_calls;
    bt_tool_call_t *calls; /**< owned, n_calls; grows */
} bt_tools_t;

void bt_tools_init(bt_tools_t *tools, const bt_tools_spec_t *spec);
void bt_tools_fini(bt_tools_t *tools);
/** The text begins with the beginning of a call that the prompt ends with. What
 *  becomes no call of it is dropped: the model did not say it. Before any
 *  bt_tools_push(), of whose parameters these are. */
void bt_tools_open(bt_tools_t *tools, const char *text, size_t bytes,
                   bt_strbuf_t *content);
/** After the end: the text ended within its last call. */
static inline bool bt_tools_is_cut(const bt_tools_t *tools)
{
    return tools->is_cut || (tools->state == BT_TOOLS_ARGS);
}
/** Take new text; append what is certain content, and add to the calls. Want of
 *  memory sticks in @a content.
 *  @param [in] last  nothing comes behind it */
void bt_tools_push(bt_tools_t *tools, const char *text, size_t bytes, bool last,
                   bt_strbuf_t *content);

#endif
