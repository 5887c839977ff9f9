/* SPDX-License-Identifier: Apache-2.0 */
/** @file reasoning_parser.h
 *
 * Separates a model's reasoning from its answer: model families mark reasoning
 * at the beginning of the text. A piece of text may end within a marker.
 *
 *       white space   opening marker            closing marker
 *     BEFORE ─────────▶ OPENED ─────▶ INSIDE ─────▶ CLOSED ─────▶ AFTER
 *        │                 white space   │  text is    white space  all is
 *        │ anything else   is dropped    │  reasoning  is dropped   content
 *        └───────────────────────────────┼─────────────────────────▶
 *                                        └ the end: no answer came
 *
 * A marker in any other position is text. Markers may be special tokens of the
 * vocabulary; they arrive here as text. White space around the reasoning is
 * dropped, as far as it is known before the text is output.
 *
 * Threads: one for each object.
 */
#ifndef BT_ROUTER_TEXT_REASONING_PARSER_H
#define BT_ROUTER_TEXT_REASONING_PARSER_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/text.h"

typedef struct bt_reason_marks {
    const char *name; /**< value of --reasoning-parser */
    const char *open, *close;
    /** Messages of the Harmony format: harmony_parser.h reads them, not
     *  bt_reason_push(). */
    bool is_harmony;
} bt_reason_marks_t;

/** Returns the markers of this name, or NULL. */
const bt_reason_marks_t *bt_reason_marks_named(const char *name);
/** Returns the markers that occur in a chat template, or NULL. */
const bt_reason_marks_t *bt_reason_marks_of(const char *chat_template,
                                            size_t bytes);
/** True when a prompt ends with the opening marker, so that the output begins
 *  within the reasoning. */
bool bt_reason_is_opened(const bt_reason_marks_t *marks, const char *prompt,
                         size_t bytes);

/** True when a prompt ends with the closing marker: the output has no
 * reasoning.
 */
bool bt_reason_is_closed(const bt_reason_marks_t *marks, const char *prompt,
                         size_t bytes);

/** Appends the text between reasoning that is cut off and the answer. */
void bt_reason_put_end(const bt_reason_marks_t *marks, bt_strbuf_t *out);

typedef enum bt_reason_state {
    BT_REASON_IS_BEFORE,
    BT_REASON_IS_OPENED,
    BT_REASON_IS_INSIDE,
    BT_REASON_IS_CLOSED,
    BT_REASON_IS_AFTER,
} bt_reason_state_t;

typedef struct bt_reason {
    const bt_reason_marks_t *marks; /**< NULL: all is content */
    bt_reason_state_t state;
    bt_strbuf_t held; /**< text that cannot be classified yet */
} bt_reason_t;

/** Initialises a parser.
 *  @param [in] marks   static; NULL is allowed
 *  @param [in] opened  bt_reason_is_opened() of the prompt */
void bt_reason_init(bt_reason_t *reason, const bt_reason_marks_t *marks,
                    bool opened);
void bt_reason_fini(bt_reason_t *reason);
/** True while the reasoning has begun and not ended. */
static inline bool bt_reason_is_thinking(const bt_reason_t *reason)
{
    return (reason->state != BT_REASON_IS_BEFORE) &&
           (reason->state != BT_REASON_IS_AFTER);
}
/** Processes new text and appends the classified part to @a thought or @a
 *  content. A failed allocation is recorded in the status of these buffers.
 *  @param [in] last  no text follows */
void bt_reason_push(bt_reason_t *reason, const char *text, size_t bytes,
                    bool last, bt_strbuf_t *thought, bt_strbuf_t *content);

#endif
