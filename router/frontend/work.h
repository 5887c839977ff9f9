/* SPDX-License-Identifier: Apache-2.0 */
/** @file work.h
 *
 * Queues clients' work for the frontend's pool (unpacking, parsing, templates,
 * tokenizing, files) in a fair order: among tenants by their weights, within a
 * tenant among addresses, within an address among connections (sched_fair.h).
 * So a client that sends much delays only itself. The memory of that work is
 * counted (task.h).
 *
 * Threads: the event loop's; the order is kept under the pool's lock.
 */
#ifndef BT_ROUTER_FRONTEND_WORK_H
#define BT_ROUTER_FRONTEND_WORK_H

#include "common/base/pool.h"
#include "common/sched/sched_fair.h"
#include "router/api/api.h"
#include "router/tenants/tenants.h"

/** Bytes of work from which the pool's long, and its background, queue class is
 *  used. */
#define BT_WORK_LONG_BYTES       ((size_t)64 << 10)
#define BT_WORK_BACKGROUND_BYTES ((size_t)768 << 10)

/** Work on so many bytes takes as long as compiling a grammar, roughly. */
#define BT_WORK_COMPILE_BYTES BT_WORK_LONG_BYTES

/** Client that work belongs to, within its tenant; zero: not known. */
typedef struct bt_work_client {
    uint64_t address;    /**< equal for connections of one address */
    uint64_t connection; /**< equal for requests of one connection */
} bt_work_client_t;

/** One job of the pool with its queue position. Embedded in the object that the
 *  job works on; job.run and job.done are the owner's. */
typedef struct bt_work {
    bt_pool_job_t job;
    bt_sched_tree_item_t item;
    bt_sched_tree_path_t path;
} bt_work_t;

/** Queues of a pool's short, long and background class, and of its files. */
#define BT_WORK_N_ORDERS 4
typedef struct bt_work_orders {
    bt_sched_tree_t trees[BT_WORK_N_ORDERS];
} bt_work_orders_t;

/** Attaches the queues to a pool. @a orders must stay until the pool was
 *  stopped. */
void bt_work_orders_init(bt_work_orders_t *orders, bt_pool_t *pool);
/** Frees the queues, after the pool was stopped. Also accepts zeroed ones. */
void bt_work_orders_fini(bt_work_orders_t *orders);

/** Creates a memory account for a request, within its tenant's share at the
 *  client's address.
 *  @return NULL if memory is short: the request is not counted */
bt_account_t *bt_work_account(bt_budget_t *budget, const bt_tenant_t *tenant,
                              const bt_work_client_t *client);
/** Counts @a bytes that the request holds already; NULL: nothing is counted.
 *  @retval BT_ERR_BUSY  refused; error_p says why */
BT_MUST_CHECK bt_status_t bt_work_admit(bt_account_t *account, size_t bytes,
                                        bt_api_error_t *error_p);
/** Fills the client's error if the account was refused memory.
 *  @return false: it was not, and nothing is changed */
bool bt_work_refuse(const bt_account_t *account, bt_api_error_t *error);

/** Initializes work for a client. @param [in] tenant  NULL: no particular
 *  tenant */
void bt_work_init(bt_work_t *work, const bt_tenant_t *tenant,
                  const bt_work_client_t *client);
/** Returns the queue class for work on @a bytes: some milliseconds, up to a
 *  tenth of a second, or more. */
bt_pool_queue_t bt_work_queue(size_t bytes);
/** Posts work on @a bytes with bt_pool_post(). */
void bt_work_post(bt_work_t *work, bt_pool_t *pool, bt_pool_queue_t queue,
                  size_t bytes);

#endif
