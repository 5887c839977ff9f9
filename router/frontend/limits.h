/* SPDX-License-Identifier: Apache-2.0 */
/** @file limits.h  What a tenant's limits come to for a call.
 *  Threads: the event loop's. */
#ifndef BT_ROUTER_FRONTEND_LIMITS_H
#define BT_ROUTER_FRONTEND_LIMITS_H

#include "router/frontend/api.h"
#include "router/frontend/intake.h"
#include "router/tenants/tenants.h"

/** A denial as its client hears it: 429, as OpenAI's servers say it. */
void bt_limits_deny(const bt_tenant_denial_t *denial, bt_api_error_t *error_p);

/** Tokens that the n answers of prompt @a k may take: the prompt once. */
uint64_t bt_limits_tokens(const bt_intake_t *in, size_t k);

/** May the whole call, whose tokens are known now, begin?
 *  @retval BT_OK, BT_ERR_BUSY (error_p says why not) */
BT_MUST_CHECK bt_status_t bt_limits_check(const bt_intake_t *in,
                                          uint64_t now_us,
                                          bt_api_error_t *error_p);

#endif
