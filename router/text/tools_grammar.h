/* SPDX-License-Identifier: Apache-2.0 */
/** @file tools_grammar.h
 *
 * Writes what an answer with tool calls may be, as a format of a structural tag
 * (common/grammar/structural_tag.h): the writer's side of tools.h.
 *
 *     hermes     text <tool_call>\n{"name": "f", "arguments": A}\n</tool_call>
 * … mistral    text [TOOL_CALLS][{"name": "f", "arguments": A}, …] llama3
 * {"name": "f", "parameters": A}; … text <|python_tag|>{"name": "f",
 * "parameters": A}; …
 *
 *     harmony    a message of the Harmony format (harmony_parser.h) to
 *                functions.f with A as its body
 *
 * where A follows the tool's schema, or is any object. Behind a mark there may
 * be one blank or line break. Calls in Python's syntax (pythonic) have none.
 *
 * Threads: pure.
 */
#ifndef BT_ROUTER_TEXT_TOOLS_GRAMMAR_H
#define BT_ROUTER_TEXT_TOOLS_GRAMMAR_H

#include "common/base/json.h"
#include "router/text/tools.h"

/** Tool that an answer may call. Borrowed. */
typedef struct bt_tool_def {
    const char *name; /**< bt_tool_name_is_valid() */
    size_t name_bytes;
    const char
        *schema; /**< schema of the arguments, as JSON; NULL: any object */
    size_t schema_bytes;
    bool is_strict; /**< keywords of the schema that are not known are refused,
                         not annotations */
    /** Format of the arguments as a structural tag has it, in place of a
     * schema; NULL: none. */
    const char *format;
} bt_tool_def_t;

#define BT_TOOLS_NO_TOKEN UINT32_MAX

/** Special token of a mark. */
typedef struct bt_mark_token {
    const char *mark;
    uint32_t token; /**< BT_TOOLS_NO_TOKEN: the mark is text */
} bt_mark_token_t;

/** Writes a text of which marks are special tokens, as elements of a list.
 *  @param [in] marks  n */
void bt_marked_text_write(const bt_mark_token_t *marks, size_t n,
                          const char *text, bt_json_t *json);

/** Writes the format of a body of the Harmony format: text in which nothing
 *  ends it. */
void bt_harmony_body_write(bt_json_t *json);

/** Description of an answer. */
typedef struct bt_tools_answer {
    const bt_tool_format_t *format; /**< bt_tool_format_has_grammar() */
    const bt_tool_def_t *tools;     /**< n_tools, at least one */
    size_t n_tools;
    /** The answer begins behind bt_tool_format_open(): of tools[0] when this is
     *  named, of any tool otherwise. */
    bool is_opened, is_named;
    bool only_one; /**< at most one call */
    uint32_t mark; /**< token of the format's mark; BT_TOOLS_NO_TOKEN: its
                        tokens are text */
    const bt_mark_token_t *marks; /**< harmony: its marks; n_marks */
    size_t n_marks;
    /** Format of an answer that calls no tool, as JSON; NULL: any text. Not
     *  with is_opened. */
    const char *text;
} bt_tools_answer_t;

/** True when the calls of a format can be written; false for NULL. */
bool bt_tool_format_has_grammar(const bt_tool_format_t *format);
/** Returns the mark with which a call begins. */
const char *bt_tool_format_mark(const bt_tool_format_t *format);
/** Writes the format. */
void bt_tools_grammar_write(const bt_tools_answer_t *answer, bt_json_t *json);

#endif
