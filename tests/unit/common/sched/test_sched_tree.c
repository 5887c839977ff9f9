/* SPDX-License-Identifier: Apache-2.0 */
/* Hierarchical fair queueing; orders worked out by hand from the shares. */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/sched/sched_fair.h"

typedef struct work {
    bt_sched_tree_item_t item;
    char name;
} work_t;

static void push(bt_sched_tree_t *tree, work_t *work, char name,
                 uint64_t tenant, uint64_t address, uint64_t connection,
                 uint64_t cost)
{
    const bt_sched_tree_path_t path = {
        .ids = {tenant, address, connection},
        .weight = (tenant == 9) ? 2 : 1,
    };

    work->name = name;
    bt_sched_tree_push(tree, &work->item, &path, cost);
}

static char pop(bt_sched_tree_t *tree, uint64_t most)
{
    bt_sched_tree_item_t *item = bt_sched_tree_pop(tree, most);
    char name = '-';

    if (item != NULL) {
        name = BT_CONTAINER_OF(item, work_t, item)->name;
        bt_sched_tree_end(tree, item, item->cost);
    }
    return name;
}

static void pop_all(bt_sched_tree_t *tree, char *out)
{
    while ((*out++ = pop(tree, UINT64_MAX)) != '-') {
    }
    *out = '\0';
}

/* Six of one tenant from three addresses; then two of another one. */
static void late_tenant_is_served_next(void **state)
{
    bt_sched_tree_t tree;
    work_t work[8];
    char order[16];

    (void)state;
    bt_sched_tree_init(&tree);
    for (uint64_t i = 0; i < 6; i++) {
        push(&tree, &work[i], 'a', 1, i % 3, i, 10);
    }
    assert_int_equal(pop(&tree, UINT64_MAX), 'a');
    push(&tree, &work[6], 'b', 2, 7, 7, 10);
    push(&tree, &work[7], 'b', 2, 7, 8, 10);
    pop_all(&tree, order);
    assert_string_equal(order, "babaaaa-");
    bt_sched_tree_fini(&tree);
}

/* One address with four connections beside one with one. */
static void connections_share_what_their_address_gets(void **state)
{
    bt_sched_tree_t tree;
    work_t work[8];
    char order[16];

    (void)state;
    bt_sched_tree_init(&tree);
    for (uint64_t i = 0; i < 4; i++) {
        push(&tree, &work[i], (char)('a' + i), 0, 1, i, 10);
    }
    for (uint64_t i = 4; i < 6; i++) {
        push(&tree, &work[i], 'z', 0, 2, 99, 10);
    }
    pop_all(&tree, order);
    assert_string_equal(order, "azbzcd-");
    bt_sched_tree_fini(&tree);
}

static void tenant_with_weight_two_gets_twice_as_much(void **state)
{
    bt_sched_tree_t tree;
    work_t work[9];
    char order[16];

    (void)state;
    bt_sched_tree_init(&tree);
    for (uint64_t i = 0; i < 9; i++) {
        push(&tree, &work[i], (i < 3) ? 'a' : 'b', (i < 3) ? 1 : 9, 0, 0, 10);
    }
    pop_all(&tree, order);
    /* times of a and b: 0 0, 10 0, 10 5, 10 10, 20 10, 20 15, 20 20, ... */
    assert_string_equal(order, "abbabbabb-");
    bt_sched_tree_fini(&tree);
}

static void pop_with_limit_returns_only_small_items(void **state)
{
    bt_sched_tree_t tree;
    work_t work[4];

    (void)state;
    bt_sched_tree_init(&tree);
    push(&tree, &work[0], 'a', 0, 1, 1, 1000);
    push(&tree, &work[1], 'b', 0, 2, 2, 400);
    push(&tree, &work[2], 'c', 0, 2, 2, 100); /* behind b */
    push(&tree, &work[3], 'd', 0, 3, 3, 300);
    assert_int_equal(pop(&tree, 299), '-');
    assert_int_equal(pop(&tree, 399), 'd');
    assert_int_equal(pop(&tree, 400), 'b');
    assert_int_equal(pop(&tree, 400), 'c');
    assert_int_equal(pop(&tree, 400), '-');
    assert_int_equal(pop(&tree, 1000), 'a');
    assert_null(tree.root); /* nothing is kept */
    bt_sched_tree_fini(&tree);
}

/* Two were thought to be equal; the first took ten times as much. */
static void excess_cost_is_charged_when_work_ends(void **state)
{
    bt_sched_tree_t tree;
    bt_sched_tree_item_t *first;
    work_t work[6];
    char order[16];

    (void)state;
    bt_sched_tree_init(&tree);
    for (uint64_t i = 0; i < 6; i++) {
        push(&tree, &work[i], (i % 2 == 0) ? 'a' : 'b', 0, i % 2, 0, 10);
    }
    first = bt_sched_tree_pop(&tree, UINT64_MAX);
    assert_ptr_equal(first, &work[0].item);
    bt_sched_tree_end(&tree, first, 100);
    pop_all(&tree, order);
    assert_string_equal(order, "bbbaa-");
    bt_sched_tree_fini(&tree);
}

static void removed_item_is_not_popped(void **state)
{
    bt_sched_tree_t tree;
    work_t work[3];
    char order[16];

    (void)state;
    bt_sched_tree_init(&tree);
    for (uint64_t i = 0; i < 3; i++) {
        push(&tree, &work[i], (char)('a' + i), i, 0, 0, 10);
    }
    bt_sched_tree_remove(&tree, &work[1].item);
    assert_int_equal(tree.n_waiting, 2);
    pop_all(&tree, order);
    assert_string_equal(order, "ac-");
    bt_sched_tree_fini(&tree);
}

static void fair_tree_without_memory_serves_all(void **state)
{
    for (int nth = 1; nth <= 8; nth++) {
        bt_sched_tree_t tree;
        work_t work[2];
        char order[16];

        (void)state;
        bt_sched_tree_init(&tree);
        bt_alloc_fail_at(nth);
        push(&tree, &work[0], 'a', 1, 1, 1, 10);
        push(&tree, &work[1], 'a', 2, 2, 2, 10);
        bt_alloc_fail_at(0);
        pop_all(&tree, order);
        assert_string_equal(order, "aa-");
        bt_sched_tree_fini(&tree);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(late_tenant_is_served_next),
        BT_TEST(connections_share_what_their_address_gets),
        BT_TEST(tenant_with_weight_two_gets_twice_as_much),
        BT_TEST(pop_with_limit_returns_only_small_items),
        BT_TEST(excess_cost_is_charged_when_work_ends),
        BT_TEST(removed_item_is_not_popped),
        BT_TEST(fair_tree_without_memory_serves_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
