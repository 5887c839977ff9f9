/* SPDX-License-Identifier: Apache-2.0 */
/** @file limits.h
 *
 * Applies a tenant's limits to a call.
 *
 * Threads: the event loop's.
 */
#ifndef BT_ROUTER_FRONTEND_LIMITS_H
#define BT_ROUTER_FRONTEND_LIMITS_H

#include "router/frontend/api.h"
#include "router/frontend/intake.h"
#include "router/tenants/tenants.h"

/** Turns a denial into a 429 error, worded as OpenAI's servers do. */
void bt_limits_deny(const bt_tenant_denial_t *denial, bt_api_error_t *error_p);

/** Returns the tokens that the n answers of prompt @a k may take; the prompt
 *  counts once. */
uint64_t bt_limits_tokens(const bt_intake_t *in, size_t k);

/** Checks whether a call, whose token counts are known now, is within its
 *  tenant's limits.
 *  @retval BT_OK, BT_ERR_BUSY (error_p says why not) */
BT_MUST_CHECK bt_status_t bt_limits_check(const bt_intake_t *in,
                                          uint64_t now_us,
                                          bt_api_error_t *error_p);

#endif
