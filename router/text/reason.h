/* SPDX-License-Identifier: Apache-2.0 */
/** @file reason.h
 *
 * What a model thinks before it answers, apart from the answer: families mark
 * it at the beginning of a text. Pieces may cut a marker anywhere.
 *
 *       white space   the opening marker        the closing one
 *     BEFORE ─────────▶ OPENED ─────▶ INSIDE ─────▶ CLOSED ─────▶ AFTER
 *        │                 white space   │  its text   white space  all is
 *        │ anything else   is dropped    │  is told    is dropped   content
 *        └───────────────────────────────┼─────────────────────────▶
 *                                        └ the end: no answer came
 *
 * A marker that stands anywhere else is text. Markers may be control tokens of
 * the vocabulary: they come here as they are spelled. White space around what
 * is inside is dropped, as far as it can be seen before it is told.
 *
 * Threads: one for each object.
 */
#ifndef BT_ROUTER_TEXT_REASON_H
#define BT_ROUTER_TEXT_REASON_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/strbuf.h"

typedef struct bt_reason_marks {
    const char *name; /**< of --reasoning */
    const char *open, *close;
} bt_reason_marks_t;

/** Those of a name, or NULL. */
const bt_reason_marks_t *bt_reason_marks_named(const char *name);
/** Those that a chat template knows, or NULL. */
const bt_reason_marks_t *bt_reason_marks_of(const char *chat_template,
                                            size_t bytes);
/** Does a prompt end with the opening marker, so that the answer begins behind
 *  it? */
bool bt_reason_is_opened(const bt_reason_marks_t *marks, const char *prompt,
                         size_t bytes);

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
    bt_strbuf_t held; /**< what is not certain yet */
} bt_reason_t;

/** @param [in] marks   static; NULL is allowed
 *  @param [in] opened  bt_reason_is_opened() of its prompt */
void bt_reason_init(bt_reason_t *reason, const bt_reason_marks_t *marks,
                    bool opened);
void bt_reason_fini(bt_reason_t *reason);
/** Has it begun to think, and not ended? */
static inline bool bt_reason_is_thinking(const bt_reason_t *reason)
{
    return (reason->state != BT_REASON_IS_BEFORE) &&
           (reason->state != BT_REASON_IS_AFTER);
}
/** Take new text; append what is certain. Want of memory sticks in the outputs.
 *  @param [in] last  nothing comes behind it */
void bt_reason_push(bt_reason_t *reason, const char *text, size_t bytes,
                    bool last, bt_strbuf_t *thought, bt_strbuf_t *content);

#endif
