/* SPDX-License-Identifier: Apache-2.0 */
/** @file tools.h
 *
 * Parses tool calls in a model's output while it streams. Each model family
 * has its own format:
 *
 *     hermes     text <tool_call>{"name": "f", "arguments": {…}}</tool_call> …
 *     llama3     {"name": "f", "parameters": {…}}; {…}
 *                text <|python_tag|>{"name": "f", "parameters": {…}}
 *     mistral    text [TOOL_CALLS][{"name": "f", "arguments": {…}}, …]
 *                text [TOOL_CALLS]f[ARGS]{…}[TOOL_CALLS]g[ARGS]{…}
 *     pythonic   [f(a=1, b="x"), g()]
 *                text <|python_start|>[f(a=1, b="x"), g()]<|python_end|>
 *
 * Calls in messages of the Harmony format are parsed by harmony_parser.h.
 *
 * Markers may be special tokens of the vocabulary; they arrive here as text.
 * Pieces may split the text anywhere without changing the result, so a whole
 * answer and a stream have equal calls.
 *
 *          start of a call               name complete and arguments
 *     TEXT ─────────────────────▶ HELD   begun
 *      ▲  text before it is        │ └────────────────────────────▶ a call
 *      │  output as content        │                                  │
 *      ├───────────────────────────┘ not a call: its start was         │
 *      └───────────────────────────  text, the rest is parsed again ◀──┘
 *
 * Text that does not parse as a call stays text. Arguments are output as they
 * arrive; arguments that turn out not to be JSON stay as they are, up to the
 * marker that ends the call, or to the end.
 *
 * If the text ends within a call, the call has the received part: its name, if
 * complete, and its arguments so far, perhaps none. A call's start without a
 * name is dropped after a marker or another call, and is text elsewhere.
 *
 * In llama3 and pythonic a text may also begin with a call without a marker:
 * there only names of the client's tools are calls.
 *
 * White space between text and calls is dropped; white space between two texts
 * is kept.
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

#include "common/base/text.h"
#include "router/text/json_scan.h"

#define BT_TOOLS_MAX_CALLS      64
#define BT_TOOLS_MAX_NAME_BYTES 128
#define BT_TOOLS_MAX_MARKS      4 /**< markers of a format */

typedef struct bt_tool_format bt_tool_format_t; /**< static */

/** Returns the format of this name (hermes, llama3, mistral, pythonic,
 *  harmony), or NULL. */
const bt_tool_format_t *bt_tool_format_named(const char *name);
/** Returns the format of the calls that a chat template writes, or NULL. */
const bt_tool_format_t *bt_tool_format_of(const char *chat_template,
                                          size_t bytes);
/** Lists the markers of a format's calls.
 *  @return number of markers */
uint32_t bt_tool_format_marks(const bt_tool_format_t *format,
                              const char *marks[BT_TOOLS_MAX_MARKS]);
/** True for calls in messages of the Harmony format; false for NULL. */
bool bt_tool_format_is_harmony(const bt_tool_format_t *format);
/** Returns the bytes of a call id that the format's templates require; 0:
 *  any. */
uint32_t bt_tool_format_id_bytes(const bt_tool_format_t *format);
/** Appends the beginning of an answer that is a call.
 *  @param [in] name  name of the tool; NULL: any tool
 *  @return position in @a out at which the name begins, or is to */
size_t bt_tool_format_open(const bt_tool_format_t *format, const char *name,
                           bt_strbuf_t *out);
/** True for a valid tool name: letters, digits and "_-.:/", at most
 *  BT_TOOLS_MAX_NAME_BYTES. */
bool bt_tool_name_is_valid(const char *name, size_t bytes);
/** True when a name is among @a names, each of which has its zero. */
bool bt_tool_names_have(const char *names, size_t names_bytes, const char *name,
                        size_t bytes);

typedef struct bt_tool_call {
    char *name;            /**< owned */
    bt_strbuf_t arguments; /**< a JSON object, as the model wrote it */
    size_t text_before;    /**< bytes of content that stand before it */
} bt_tool_call_t;

/** Configuration of a parser. Borrowed. */
typedef struct bt_tools_spec {
    const bt_tool_format_t *format; /**< NULL: all is text */
    const char *names; /**< names of the tools, each with its zero */
    size_t names_bytes;
    uint32_t max_calls; /**< further calls are dropped; 0: no limit */
} bt_tools_spec_t;

typedef enum bt_tools_state {
    BT_TOOLS_TEXT,
    BT_TOOLS_OPENED, /**< after a start of a call */
    BT_TOOLS_NAME,   /**< mistral: a name and [ARGS] */
    BT_TOOLS_OBJECT, /**< an object that is held until complete */
    BT_TOOLS_LIST,   /**< pythonic: a list that is held until complete */
    BT_TOOLS_ARGS,   /**< arguments, output as they arrive */
    BT_TOOLS_REST,   /**< rest of the object after its arguments */
    BT_TOOLS_TAIL,   /**< after a call */
    BT_TOOLS_TORN,   /**< arguments that are not JSON */
    BT_TOOLS_PLAIN,  /**< all further text is content */
    BT_TOOLS_FULL,   /**< all further text is dropped */
} bt_tools_state_t;

typedef struct bt_tools {
    bt_tools_spec_t spec;
    bt_tools_state_t state;
    bt_strbuf_t held;  /**< unclassified text: white space, marker, call */
    size_t mark;       /**< position of the marker in `held` */
    size_t mark_bytes; /**< 0: no marker was needed */
    size_t begin;      /**< position of the object */
    size_t at;         /**< position up to which `held` was parsed */
    bt_json_scan_t scan;
    uint32_t args_depth; /**< nesting depth at which the arguments end */
    char quote;          /**< pythonic: quote of the open string */
    bool is_escaped;     /**< pythonic: after a backslash */
    uint32_t depth;      /**< pythonic: open brackets */
    bool in_list;        /**< mistral: calls in brackets */
    bool was_no_head;    /**< the object is held until complete */
    bool in_text;        /**< a call needs a marker here */
    size_t n_content;    /**< bytes of content that were output */
    bool is_cut;         /**< see bt_tools_is_cut() */
    size_t n_opening;    /**< bytes of `held` from bt_tools_open() */
    uint32_t n_calls;
    bt_tool_call_t *calls; /**< owned; n_calls entries */
} bt_tools_t;

void bt_tools_init(bt_tools_t *tools, const bt_tools_spec_t *spec);
void bt_tools_fini(bt_tools_t *tools);
/** Starts with the beginning of a call that ends the prompt. If it does not
 *  become a call, this text is dropped, since the model did not generate it.
 *  Call before any bt_tools_push(); parameters are those of bt_tools_push(). */
void bt_tools_open(bt_tools_t *tools, const char *text, size_t bytes,
                   bt_strbuf_t *content);
/** True, after the end, when the text ended within its last call. */
static inline bool bt_tools_is_cut(const bt_tools_t *tools)
{
    return tools->is_cut || (tools->state == BT_TOOLS_ARGS);
}
/** Processes new text: appends content that is certain, and adds calls. A
 *  failed allocation is recorded in the status of @a content.
 *  @param [in] last  no text follows */
void bt_tools_push(bt_tools_t *tools, const char *text, size_t bytes, bool last,
                   bt_strbuf_t *content);

#endif
