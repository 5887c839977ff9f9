/* SPDX-License-Identifier: Apache-2.0 */
/** @file api_lift.h
 *
 * Private to router/frontend: the token ids of a prompt, taken out of a body
 * before the JSON parser makes an object of each.
 *
 *     {"prompt": [5, 17, …], "max_tokens": 1}  ─▶  ids 5, 17, …
 *                       └────────────────────────▶  {"prompt": "⟨mark⟩", "max…
 *
 * Only what could not be understood in another way is lifted: one member
 * "prompt" of the outermost object, whose value is a list of plain decimal
 * numbers up to INT32_MAX, in a body that has the mark (U+FDD0, which is no
 * character) nowhere. All else stays as it is, so that errors, too, are those
 * of the parser. Pure.
 */
#ifndef BT_ROUTER_FRONTEND_API_LIFT_H
#define BT_ROUTER_FRONTEND_API_LIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/strbuf.h"

#define BT_API_LIFT_MARK "\xEF\xB7\x90" /**< U+FDD0 */

typedef struct bt_api_lift {
    bt_strbuf_t text; /**< the body with the mark in place of the list */
    uint32_t *ids;    /**< owned, until somebody takes them */
    size_t n_ids;     /**< at least 1 */
} bt_api_lift_t;

/** @param [in] text   a body that bt_api_scan() has passed
 *  @param [out] lift_p  bt_api_lift_fini() is due where it was lifted
 *  @return false: nothing was, also for want of memory */
bool bt_api_lift(const char *text, size_t bytes, bt_api_lift_t *lift_p);
void bt_api_lift_fini(bt_api_lift_t *lift);

#endif
