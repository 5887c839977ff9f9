/* SPDX-License-Identifier: Apache-2.0 */
/** @file harmony_parser.h
 *
 * Parses the messages of OpenAI's Harmony format, which gpt-oss writes, in an
 * output while it streams. A message is a header and a body:
 *
 *     <|channel|>analysis<|message|>T<|end|>             reasoning
 *     <|start|>assistant<|channel|>commentary<|message|>T<|end|>   content
 *     <|start|>assistant<|channel|>commentary to=functions.f
 *         <|constrain|>json<|message|>{…}<|call|>        a call of tool f
 *     <|start|>assistant<|channel|>final<|message|>T<|return|>     content
 *
 *             header's mark             <|message|>
 *     START ────────────────▶ HEADER ───────────────▶ BODY
 *      ▲ │ any other text                              │ text of the message
 *      │ └─────────────────────────────────────────────┤
 *      └── <|end|>, <|call|>, <|return|>, <|start|>, <|channel|>
 *
 * The recipient (to=) may stand in front of the channel or behind it: it is
 * functions.f, or the name of one of the client's tools. A message to any other
 * recipient is reasoning, and so is a call
 * where the request has no tools, or where tools have another format. Messages
 * of other roles are dropped. Text without a header is content. Between two
 * messages of reasoning, and between two of content, there is a line break.
 *
 * Marks may be special tokens of the vocabulary; they arrive here as text, and
 * text that spells a mark is one. In the strings of a call's arguments there
 * are no marks.
 * Pieces may split the text anywhere without changing the result.
 *
 * Threads: one for each object.
 * Source:  OpenAI, "OpenAI harmony response format"; the chat template of
 *          gpt-oss.
 */
#ifndef BT_ROUTER_TEXT_HARMONY_PARSER_H
#define BT_ROUTER_TEXT_HARMONY_PARSER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/text.h"
#include "router/text/tools.h"

#define BT_HARMONY_N_MARKS 7 /**< marks of the format */

/** Begins a message of the model; its channel follows. */
#define BT_HARMONY_ASSISTANT "<|start|>assistant"
/** Begins a message to the user that calls follow. */
#define BT_HARMONY_PREAMBLE "<|channel|>commentary<|message|>"
/** Begins the answer to the user. */
#define BT_HARMONY_FINAL "<|channel|>final<|message|>"
/** Ends a message that another one follows. */
#define BT_HARMONY_END "<|end|>"

/** Returns mark i of the format; i < BT_HARMONY_N_MARKS. */
const char *bt_harmony_mark(size_t i);
/** Marks that end the body of a message; BT_HARMONY_N_ENDS. */
extern const char *const bt_harmony_ends[];
#define BT_HARMONY_N_ENDS 5

/** True when a chat template writes messages of this format. */
bool bt_harmony_is_in(const char *chat_template, size_t bytes);

typedef enum bt_harmony_state {
    BT_HARMONY_START,  /**< between messages */
    BT_HARMONY_HEADER, /**< up to <|message|> */
    BT_HARMONY_BODY,
} bt_harmony_state_t;

/** Kind of a message. */
typedef enum bt_harmony_kind {
    BT_HARMONY_THOUGHT,
    BT_HARMONY_CONTENT,
    BT_HARMONY_CALL,
    BT_HARMONY_DROPPED,
} bt_harmony_kind_t;

/** Options of a parser. */
typedef struct bt_harmony_spec {
    bool keeps_reasoning; /**< reasoning is part of the content */
    bool reasoning_first; /**< reasoning behind content or a call is dropped */
    bool is_continued;    /**< the prompt ends within a message to the user */
} bt_harmony_spec_t;

typedef struct bt_harmony {
    bt_harmony_spec_t spec;
    bool has_message; /**< a message has begun */
    bt_harmony_state_t state;
    bt_harmony_kind_t kind;        /**< kind of the message being read */
    bt_strbuf_t held;              /**< text that cannot be classified yet */
    bool has_thought, has_content; /**< earlier messages had some */
    bool is_new;                   /**< the body has had no text yet */
    bt_json_scan_t scan;           /**< arguments of a call */
    bt_json_scan_result_t scanned; /**< result of its last byte */
    bool has_arguments;            /**< their first byte was read */
    bool is_cut; /**< a mark ended the last call within its arguments */
} bt_harmony_t;

void bt_harmony_init(bt_harmony_t *harmony, const bt_harmony_spec_t *spec);
void bt_harmony_fini(bt_harmony_t *harmony);
/** True while the body of a message of reasoning is being read. */
static inline bool bt_harmony_is_thinking(const bt_harmony_t *harmony)
{
    return (harmony->state == BT_HARMONY_BODY) &&
           (harmony->kind == BT_HARMONY_THOUGHT);
}
/** Processes new text: appends reasoning to @a thought, content to @a content,
 *  and adds calls, and arguments of the last one, to @a tools. A failed
 *  allocation is recorded in the status of these buffers.
 *  @param [in] last  no text follows
 *  @param [in,out] tools  with the request's tools. Calls are added where its
 *         format is harmony; of another format it may process @a content. */
void bt_harmony_push(bt_harmony_t *harmony, const char *text, size_t bytes,
                     bool last, bt_strbuf_t *thought, bt_strbuf_t *content,
                     bt_tools_t *tools);

#endif
