/* SPDX-License-Identifier: Apache-2.0 */
/** @file work.h
 *
 * Clients' work at the frontend's pool (unpacking, parsing, templates,
 * tokenizing) in a fair order: among tenants by their weights, within a tenant
 * among addresses, within an address among connections (sched_tree.h). So a
 * client that sends much waits for itself. The memory that it takes is counted
 * (budget.h).
 *
 * Threads: the event loop's; the order is kept under the pool's lock.
 */
#ifndef BT_ROUTER_FRONTEND_WORK_H
#define BT_ROUTER_FRONTEND_WORK_H

#include "common/base/pool.h"
#include "common/sched/sched_tree.h"
#include "router/frontend/api.h"
#include "router/tenants/tenants.h"

/** Work on so many bytes and more has the pool's long lane, and the
 *  background. */
#define BT_WORK_LONG_BYTES       ((size_t)64 << 10)
#define BT_WORK_BACKGROUND_BYTES ((size_t)768 << 10)

/** The client that work belongs to, beside its tenant; zero: not known. */
typedef struct bt_work_client {
    uint64_t address;    /**< equal for connections of one address */
    uint64_t connection; /**< equal for requests of one connection */
} bt_work_client_t;

/** Embedded in whatever the work is about; job.run and job.done are the
 *  owner's. */
typedef struct bt_work {
    bt_pool_job_t job;
    bt_sched_tree_item_t item;
    bt_sched_tree_path_t path;
} bt_work_t;

/** The orders of a pool's short, long and background lane. */
typedef struct bt_work_orders {
    bt_sched_tree_t small, large, background;
} bt_work_orders_t;

/** Must stay until the pool was stopped. */
void bt_work_orders_init(bt_work_orders_t *orders, bt_pool_t *pool);
/** After the pool was stopped. Also of zeroed ones. */
void bt_work_orders_fini(bt_work_orders_t *orders);

/** An account of a request, of the share that its tenant has at its client's
 *  address.
 *  @return NULL, for want of memory: it is not counted */
bt_account_t *bt_work_account(bt_budget_t *budget, const bt_tenant_t *tenant,
                              const bt_work_client_t *client);
/** So many bytes of it are there already; NULL: nothing is counted.
 *  @retval BT_ERR_BUSY  refused; error_p says why */
BT_MUST_CHECK bt_status_t bt_work_admit(bt_account_t *account, size_t bytes,
                                        bt_api_error_t *error_p);
/** Was the account refused something? Then that is what the client hears.
 *  @return false: no, and nothing is changed */
bool bt_work_refuse(const bt_account_t *account, bt_api_error_t *error);

/** @param [in] tenant  NULL: nobody's in particular */
void bt_work_init(bt_work_t *work, const bt_tenant_t *tenant,
                  const bt_work_client_t *client);
/** The lane of work on so many bytes: some milliseconds, up to a tenth of a
 *  second, or more. */
bt_pool_lane_t bt_work_lane(size_t bytes);
/** bt_pool_post() of work on so many bytes. */
void bt_work_post(bt_work_t *work, bt_pool_t *pool, bt_pool_lane_t lane,
                  size_t bytes);

#endif
