/* SPDX-License-Identifier: Apache-2.0 */
/** @file kv_plan.h
 *
 * Plans the groups in which a model's KV is kept (kv_groups.h), from the
 * attention window of each layer.
 *
 * All pages of the pool are as large as the largest group's block, so a group
 * of few layers leaves most of its pages empty. Therefore the layers of one
 * window size may be spread over several groups, so that all groups have about
 * as many layers. For a model of 26 layers, every sixth with full attention:
 *
 *     2 groups    22 windowed, 4 full           18 of the 22 slots of a page
 *                                               are empty in the full group
 *     7 groups    4 4 4 4 3 3 windowed, 4 full  2 of 28 slots
 *
 * Chosen is the division into at most BT_KV_MAX_GROUPS groups with which the
 * longest sequence takes the fewest bytes: full-attention groups count with the
 * whole context, windowed ones with their window. Among equals, the one with
 * the fewest groups, because each group costs a view, a transfer plan and an id
 * per span.
 *
 * A window no shorter than the context counts as full attention. So a model
 * without windows, and one whose windows are never full, is one group.
 *
 * Threads: pure functions.
 */
#ifndef BT_COMMON_KV_KV_PLAN_H
#define BT_COMMON_KV_KV_PLAN_H

#include <stdint.h>

#include "common/base/status.h"
#include "common/kv/kv_groups.h"

/**
 * Plans the groups of a model.
 *
 * @param [in]  shape           Of all layers together; they differ only in
 *                              their windows.
 * @param [in]  windows         [shape->n_layers] tokens that a token attends
 *                              to, itself included; 0: all before it.
 * @param [in]  context_tokens  Of the longest sequence, at least 1.
 * @param [out] groups_p        Owned by the caller: bt_kv_groups_fini().
 * @retval BT_ERR_UNSUPPORTED  more different windows than groups
 * @retval otherwise as bt_kv_groups_init()
 */
BT_MUST_CHECK bt_status_t bt_kv_groups_plan(const bt_kv_shape_t *shape,
                                            const uint32_t *windows,
                                            uint32_t context_tokens,
                                            bt_kv_groups_t *groups_p);

#endif
