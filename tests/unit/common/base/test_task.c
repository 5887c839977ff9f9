/* SPDX-License-Identifier: Apache-2.0 */
/* Budgets of memory; sums by hand. */
#include "tests/support/testsupport.h"

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/task.h"

#define MIB ((uint64_t)1 << 20)

static bt_account_t *account_of(bt_budget_t *budget, uint64_t tenant,
                                uint64_t address)
{
    bt_account_t *account = NULL;

    assert_int_equal(bt_account_create(budget, tenant, address, &account),
                     BT_OK);
    return account;
}

static void budget_refusal_names_its_cause(void **state)
{
    bt_budget_t budget;
    bt_account_t *a, *b, *c, *d;

    (void)state;
    bt_budget_init(&budget, 8 * MIB);
    a = account_of(&budget, 1, 1);
    assert_false(bt_account_take(a, 5 * MIB)); /* over a half */
    assert_int_equal(bt_account_refusal(a), BT_BUDGET_REQUEST);
    assert_int_equal(budget.used, 0);
    assert_true(bt_account_take(a, 3 * MIB));
    b = account_of(&budget, 1, 1);
    assert_false(bt_account_take(b, 2 * MIB)); /* its client's are 5 */
    assert_int_equal(bt_account_refusal(b), BT_BUDGET_CLIENT);
    c = account_of(&budget, 2, 1);
    assert_true(bt_account_take(c, 3 * MIB)); /* 6 of 8: three quarters */
    d = account_of(&budget, 3, 1);
    assert_false(bt_account_take(d, MIB));
    assert_int_equal(bt_account_refusal(d), BT_BUDGET_SERVER);
    assert_true(bt_account_take(d, BT_BUDGET_SMALL_BYTES)); /* what is small */
    assert_false(bt_budget_allows(&budget, 0, MIB));
    assert_true(bt_budget_allows(&budget, 0, BT_BUDGET_SMALL_BYTES));
    bt_account_destroy(a);
    bt_account_destroy(c);
    budget.process_is_full = true;
    assert_false(bt_account_take(d, MIB));
    assert_false(bt_budget_allows(&budget, 0, MIB));
    assert_int_equal(bt_account_refusal(d), BT_BUDGET_SERVER); /* the first */
    assert_int_equal(budget.used, BT_BUDGET_SMALL_BYTES);
    bt_account_destroy(b);
    bt_account_destroy(d);
    assert_int_equal(budget.used, 0);
    assert_true(bt_list_empty(&budget.shares));
    for (int i = BT_BUDGET_REQUEST; i <= BT_BUDGET_SERVER; i++) {
        assert_int_equal(budget.n_refused[i], 1);
    }
}

static void task_allocations_are_charged_to_its_account(void **state)
{
    bt_budget_t budget;
    bt_account_t *account;
    bt_task_t task;
    bt_task_t *before;
    char *outside = bt_calloc(1, MIB);
    char *kept, *freed;

    (void)state;
    bt_budget_init(&budget, 8 * MIB);
    account = account_of(&budget, 0, 0);
    bt_task_init(&task);
    task.account = account;
    before = bt_task_enter(&task);
    kept = bt_calloc(1, MIB);
    freed = bt_calloc(1, MIB);
    assert_non_null(kept);
    assert_non_null(freed);
    assert_null(bt_calloc(1, 3 * MIB)); /* 5 of the 4 that one may have */
    freed = bt_realloc_array(freed, 1, 2 * MIB);
    assert_non_null(freed);
    bt_free(freed);
    bt_free(outside); /* it was never taken */
    bt_task_leave(before);
    assert_in_range(account->held, 0, MIB + 65536);
    bt_free(kept);
    bt_account_give(account, 8 * MIB);
    assert_int_equal(account->held, 0); /* never below */
    assert_int_equal(budget.used, 0);
    bt_account_destroy(account);
    assert_int_equal(budget.used, 0);
}

/* Works until the thread has had 2 ms more. */
static void use_cpu(void)
{
    const uint64_t end_ns = bt_thread_cpu_ns() + 2000000;

    while (bt_thread_cpu_ns() < end_ns) {
    }
}

static void use_cpu_for_others(void *ctx)
{
    bt_task_t *task = ctx;
    const uint64_t start_ns = bt_thread_cpu_ns();

    use_cpu();
    task->away_ns += bt_thread_cpu_ns() - start_ns;
}

static void cpu_time_of_a_task_is_without_other_work(void **state)
{
    const uint64_t outside_ns = bt_task_cpu_ns();
    bt_task_t task;
    bt_task_t *before;
    uint64_t start_ns, took_ns;

    (void)state;
    bt_task_init(&task);
    task.yield = use_cpu_for_others;
    task.ctx = &task;
    before = bt_task_enter(&task);
    start_ns = bt_task_cpu_ns();
    use_cpu();
    (void)bt_task_poll();
    (void)bt_task_poll();
    assert_true(task.away_ns >= 4000000);
    took_ns = bt_task_cpu_ns() - start_ns;
    assert_true(took_ns >= 2000000);
    assert_true(took_ns + task.away_ns <= bt_thread_cpu_ns() - start_ns);
    bt_task_leave(before);
    assert_true(bt_task_cpu_ns() - outside_ns >= 6000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(budget_refusal_names_its_cause),
        BT_TEST(task_allocations_are_charged_to_its_account),
        BT_TEST(cpu_time_of_a_task_is_without_other_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
