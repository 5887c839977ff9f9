/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/work.h"

#include <inttypes.h>

/* Bytes that a thread processes per us: tokenizing, which takes longest. The
 * actual cost is charged at the end. */
#define BYTES_PER_US 8u

static bt_work_t *work_of(bt_pool_job_t *job)
{
    return job->position;
}

static void push(void *ctx, bt_pool_job_t *job)
{
    bt_work_t *work = work_of(job);

    bt_sched_tree_push(ctx, &work->item, &work->path, job->cost_us);
}

static bt_pool_job_t *pop(void *ctx, uint64_t most_us)
{
    bt_sched_tree_item_t *item = bt_sched_tree_pop(ctx, most_us);

    return (item != NULL) ? &BT_CONTAINER_OF(item, bt_work_t, item)->job : NULL;
}

static void take_out(void *ctx, bt_pool_job_t *job)
{
    bt_sched_tree_remove(ctx, &work_of(job)->item);
}

static void ended(void *ctx, bt_pool_job_t *job, uint64_t took_us)
{
    bt_sched_tree_end(ctx, &work_of(job)->item, took_us);
}

static const bt_pool_order_t fair = {
    .push = push,
    .pop = pop,
    .remove = take_out,
    .ended = ended,
};

void bt_work_orders_init(bt_work_orders_t *orders, bt_pool_t *pool)
{
    static const bt_pool_queue_t queues[BT_WORK_N_ORDERS] = {
        BT_POOL_SHORT, BT_POOL_LONG, BT_POOL_BACKGROUND, BT_POOL_FILES};

    for (int i = 0; i < BT_WORK_N_ORDERS; i++) {
        bt_sched_tree_init(&orders->trees[i]);
        bt_pool_set_order(pool, queues[i], &fair, &orders->trees[i]);
    }
}

void bt_work_orders_fini(bt_work_orders_t *orders)
{
    for (int i = 0; i < BT_WORK_N_ORDERS; i++) {
        bt_sched_tree_fini(&orders->trees[i]);
    }
}

bt_account_t *bt_work_account(bt_budget_t *budget, const bt_tenant_t *tenant,
                              const bt_work_client_t *client)
{
    bt_account_t *account = NULL;

    return (bt_account_create(budget, (tenant != NULL) ? tenant->id : 0,
                              client->address, &account) == BT_OK)
               ? account
               : NULL;
}

bool bt_work_refuse(const bt_account_t *account, bt_api_error_t *error)
{
    uint64_t half_mib;

    if (bt_account_refusal(account) == BT_BUDGET_N_REFUSALS) {
        return false;
    }
    half_mib = account->budget->limit / 2 >> 20;
    switch (bt_account_refusal(account)) {
    case BT_BUDGET_REQUEST:
        bt_api_error_set(error, 413, NULL,
                         "this request takes more than %" PRIu64
                         " MiB of memory, "
                         "half of the server's option http-memory",
                         half_mib);
        break;
    case BT_BUDGET_CLIENT:
        bt_api_error_set(
            error, 429, NULL,
            "this client's requests together take more than %" PRIu64
            " MiB of memory, half of the server's option "
            "http-memory; try again later",
            half_mib);
        error->retry_after_s = 1;
        break;
    default:
        bt_api_error_set(error, 503, NULL,
                         "the requests in flight leave no memory for this one "
                         "(%s), try again later",
                         (bt_account_refusal(account) == BT_BUDGET_PROCESS)
                             ? "router-memory"
                             : "http-memory");
        error->retry_after_s = 1;
        break;
    }
    return true;
}

bt_status_t bt_work_admit(bt_account_t *account, size_t bytes,
                          bt_api_error_t *error_p)
{
    if ((account == NULL) || bt_account_take(account, bytes)) {
        return BT_OK;
    }
    (void)bt_work_refuse(account, error_p);
    return BT_ERR_BUSY;
}

void bt_work_init(bt_work_t *work, const bt_tenant_t *tenant,
                  const bt_work_client_t *client)
{
    work->job.position = work;
    work->path = (bt_sched_tree_path_t){
        .ids = {(tenant != NULL) ? tenant->id : 0, client->address,
                client->connection},
        .weight = (tenant != NULL) ? tenant->limits.weight : 1,
    };
}

bt_pool_queue_t bt_work_queue(size_t bytes)
{
    if (bytes >= BT_WORK_BACKGROUND_BYTES) {
        return BT_POOL_BACKGROUND;
    }
    return (bytes >= BT_WORK_LONG_BYTES) ? BT_POOL_LONG : BT_POOL_SHORT;
}

void bt_work_post(bt_work_t *work, bt_pool_t *pool, bt_pool_queue_t queue,
                  size_t bytes)
{
    work->job.cost_us = 1 + bytes / BYTES_PER_US;
    bt_pool_post(pool, &work->job, queue);
}
