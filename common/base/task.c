/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/task.h"

#include <stddef.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"

void bt_budget_init(bt_budget_t *budget, uint64_t limit)
{
    budget->limit = limit;
    atomic_init(&budget->used, 0);
    atomic_init(&budget->process_is_full, false);
    for (int i = 0; i < BT_BUDGET_N_REFUSALS; i++) {
        atomic_init(&budget->n_refused[i], 0);
    }
    bt_list_init(&budget->shares);
}

void bt_budget_take(bt_budget_t *budget, uint64_t bytes)
{
    atomic_fetch_add_explicit(&budget->used, bytes, memory_order_relaxed);
}

void bt_budget_give(bt_budget_t *budget, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&budget->used, bytes, memory_order_relaxed);
}

static uint64_t limit_for(const bt_budget_t *budget, uint64_t bytes)
{
    return (bytes > BT_BUDGET_SMALL_BYTES) ? budget->limit - budget->limit / 4
                                           : budget->limit;
}

bool bt_budget_allows(const bt_budget_t *budget, uint64_t have, uint64_t more)
{
    const uint64_t limit = limit_for(budget, have + more);
    const uint64_t used =
        atomic_load_explicit(&budget->used, memory_order_relaxed);

    if ((have + more > BT_BUDGET_SMALL_BYTES) &&
        atomic_load_explicit(&budget->process_is_full, memory_order_relaxed)) {
        return false;
    }
    return (used <= limit) && (more <= limit - used);
}

/* ---- shares ---- */

static bt_budget_share_t *share_of(bt_budget_t *budget, uint64_t tenant,
                                   uint64_t address)
{
    bt_budget_share_t *share;

    BT_LIST_FOR_EACH_ENTRY(bt_budget_share_t, at, &budget->shares, link) {
        if ((at->tenant == tenant) && (at->address == address)) {
            return at;
        }
    }
    share = bt_calloc(1, sizeof(*share));
    if (share != NULL) {
        share->tenant = tenant;
        share->address = address;
        bt_list_push_back(&budget->shares, &share->link);
    }
    return share;
}

static void share_leave(bt_budget_share_t *share)
{
    if (--share->n_accounts == 0) {
        bt_list_remove(&share->link);
        bt_free(share);
    }
}

/* ---- accounts ---- */

bt_status_t bt_account_create(bt_budget_t *budget, uint64_t tenant,
                              uint64_t address, bt_account_t **account_p)
{
    bt_account_t *account = bt_calloc(1, sizeof(*account));

    if (account == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    account->share = share_of(budget, tenant, address);
    if (account->share == NULL) {
        bt_free(account);
        return BT_ERR_NO_MEMORY;
    }
    account->share->n_accounts++;
    account->budget = budget;
    atomic_init(&account->refusal, BT_BUDGET_N_REFUSALS);
    *account_p = account;
    return BT_OK;
}

void bt_account_destroy(bt_account_t *account)
{
    if (account == NULL) {
        return;
    }
    bt_account_give(account, account->held);
    share_leave(account->share);
    bt_free(account);
}

/* Decides whether an account may have @a held bytes, with its client at
 * @a of_client and all accounts at @a used. @return the refusal, or
 * BT_BUDGET_N_REFUSALS */
static bt_budget_refusal_t judge(const bt_budget_t *budget, uint64_t held,
                                 uint64_t of_client, uint64_t used)
{
    if (used > limit_for(budget, held)) {
        if (held > budget->limit / 2) {
            return BT_BUDGET_REQUEST;
        }
        return (of_client > budget->limit / 2) ? BT_BUDGET_CLIENT
                                               : BT_BUDGET_SERVER;
    }
    if (held <= BT_BUDGET_SMALL_BYTES) {
        return BT_BUDGET_N_REFUSALS;
    }
    if (atomic_load_explicit(&budget->process_is_full, memory_order_relaxed)) {
        return BT_BUDGET_PROCESS;
    }
    if (held > budget->limit / 2) {
        return BT_BUDGET_REQUEST;
    }
    return (of_client > budget->limit / 2) ? BT_BUDGET_CLIENT
                                           : BT_BUDGET_N_REFUSALS;
}

static uint64_t add(_Atomic uint64_t *sum, uint64_t bytes)
{
    return atomic_fetch_add_explicit(sum, bytes, memory_order_relaxed) + bytes;
}

static void take_off(_Atomic uint64_t *sum, uint64_t bytes)
{
    atomic_fetch_sub_explicit(sum, bytes, memory_order_relaxed);
}

void bt_account_give(bt_account_t *account, uint64_t bytes)
{
    uint64_t held = atomic_load_explicit(&account->held, memory_order_relaxed);
    uint64_t given;

    /* Memory allocated elsewhere may be freed here: clamped at 0. */
    do {
        given = (bytes < held) ? bytes : held;
    } while (
        !atomic_compare_exchange_weak(&account->held, &held, held - given));
    take_off(&account->share->used, given);
    take_off(&account->budget->used, given);
}

/* Bytes that exist already: never refused. */
static void account_add(bt_account_t *account, uint64_t bytes)
{
    (void)add(&account->held, bytes);
    (void)add(&account->share->used, bytes);
    (void)add(&account->budget->used, bytes);
}

bool bt_account_take(bt_account_t *account, uint64_t bytes)
{
    bt_budget_t *budget = account->budget;
    const uint64_t held = add(&account->held, bytes);
    const uint64_t of_client = add(&account->share->used, bytes);
    const uint64_t used = add(&budget->used, bytes);
    const bt_budget_refusal_t why = judge(budget, held, of_client, used);
    uint32_t none = BT_BUDGET_N_REFUSALS;

    if (why == BT_BUDGET_N_REFUSALS) {
        return true;
    }
    bt_account_give(account, bytes);
    if (atomic_compare_exchange_strong(&account->refusal, &none,
                                       (uint32_t)why)) {
        (void)add(&budget->n_refused[why], 1);
    }
    return false;
}

bt_budget_refusal_t bt_account_refusal(const bt_account_t *account)
{
    return (account != NULL) ? (bt_budget_refusal_t)account->refusal
                             : BT_BUDGET_N_REFUSALS;
}

/* Taken from the account at a time, so that small allocations are cheap. */
#define CREDIT_BYTES ((int64_t)16 * 1024)

static _Thread_local bt_task_t *current;

void bt_task_init(bt_task_t *task)
{
    atomic_init(&task->canceled, false);
    task->yield = NULL;
    task->ctx = NULL;
    task->account = NULL;
    task->credit = 0;
    task->away_ns = 0;
}

void bt_task_cancel(bt_task_t *task)
{
    atomic_store_explicit(&task->canceled, true, memory_order_relaxed);
}

bool bt_task_is_canceled(const bt_task_t *task)
{
    return atomic_load_explicit(&task->canceled, memory_order_relaxed);
}

bt_task_t *bt_task_enter(bt_task_t *task)
{
    bt_task_t *before = current;

    current = task;
    return before;
}

/* Settles the credit with the account: unused bytes go back; a negative
 * credit, which the rounding of sizes causes, is charged. */
static void settle(bt_task_t *task)
{
    if (task->credit > 0) {
        bt_account_give(task->account, (uint64_t)task->credit);
    } else if (task->credit < 0) {
        account_add(task->account, (uint64_t)-task->credit);
    }
    task->credit = 0;
}

void bt_task_leave(bt_task_t *before)
{
    if ((current != NULL) && (current->account != NULL)) {
        settle(current);
    }
    current = before;
}

bool bt_task_may_allocate(size_t bytes)
{
    int64_t lacks;

    if (current == NULL) {
        return true;
    }
    if (bt_task_is_canceled(current)) {
        return false;
    }
    if (current->account == NULL) {
        return true;
    }
    if (bytes > INT64_MAX / 2) {
        return false;
    }
    lacks = (int64_t)bytes - current->credit;
    if (lacks <= 0) {
        return true;
    }
    lacks = (lacks < CREDIT_BYTES) ? CREDIT_BYTES : lacks;
    if (!bt_account_take(current->account, (uint64_t)lacks)) {
        return false;
    }
    current->credit += lacks;
    return true;
}

void bt_task_allocated(size_t bytes)
{
    if ((current != NULL) && (current->account != NULL)) {
        current->credit -= (int64_t)bytes;
    }
}

void bt_task_freed(size_t bytes)
{
    if ((current == NULL) || (current->account == NULL)) {
        return;
    }
    current->credit += (int64_t)bytes;
    if (current->credit > 4 * CREDIT_BYTES) {
        bt_account_give(current->account,
                        (uint64_t)(current->credit - CREDIT_BYTES));
        current->credit = CREDIT_BYTES;
    }
}

bool bt_task_poll(void)
{
    if ((current != NULL) && (current->yield != NULL)) {
        current->yield(current->ctx);
    }
    return (current != NULL) && bt_task_is_canceled(current);
}

uint64_t bt_task_cpu_ns(void)
{
    return bt_thread_cpu_ns() - ((current != NULL) ? current->away_ns : 0);
}
