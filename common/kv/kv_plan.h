/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_plan.h
 *
 * From what each layer of a model sees to the groups that its KV is kept in
 * (kv_groups.h).
 *
 * All pages of the pool are as large as the largest group's block, so a group
 * of few layers leaves most of its pages empty. Therefore the layers of one
 * window may be spread over several groups, so that all come out about alike.
 * Of a model of 26 layers, each sixth of which sees everything:
 *
 *     2 groups    22 windowed, 4 whole          18 of the 22 places of a page
 *                                               are empty in the whole group
 *     7 groups    4 4 4 4 3 3 windowed, 4 whole  2 of 28 places
 *
 * Of all divisions into at most BT_KV_MAX_GROUPS groups it is the one with
 * which the longest sequence takes the fewest bytes: whole groups count with
 * the whole context, windowed ones with their window. Among equals, the one of
 * fewest groups: each is a view, a plan of a hand-over and an id a span.
 *
 * A window no shorter than the context is none. So a model without windows, and
 * one whose windows are never full, is one group, as it always was.
 *
 * Threads: pure functions.
 */
#ifndef BT_COMMON_KV_KV_PLAN_H
#define BT_COMMON_KV_KV_PLAN_H

#include <stdint.h>

#include "common/base/status.h"
#include "common/kv/kv_groups.h"

/**
 * @param [in]  shape           Of all layers together; they differ in nothing
 *                              but their windows.
 * @param [in]  windows         [shape->n_layers] tokens that one sees, itself
 *                              counted in; 0: all before it.
 * @param [in]  context_tokens  Of the longest sequence, at least 1.
 * @param [out] groups_p        Owned by the caller: bt_kv_groups_fini().
 * @retval BT_ERR_UNSUPPORTED  more different windows than groups
 * @retval  otherwise as bt_kv_groups_init()
 */
BT_MUST_CHECK bt_status_t bt_kv_groups_plan(const bt_kv_shape_t *shape,
                                            const uint32_t *windows,
                                            uint32_t context_tokens,
                                            bt_kv_groups_t *groups_p);

#endif
