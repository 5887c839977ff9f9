/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <pthread.h>
#include <string.h>

#include "common/base/containers.h"
#include "common/base/status.h"

static void full_ring_returns_busy(void **state)
{
    bt_ring_t *ring = NULL;
    int items[3];

    (void)state;
    assert_int_equal(bt_ring_create(3, &ring), BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_ring_create(2, &ring), BT_OK);
    assert_null(bt_ring_pop(ring));
    assert_int_equal(bt_ring_push(ring, &items[0]), BT_OK);
    assert_int_equal(bt_ring_push(ring, &items[1]), BT_OK);
    assert_int_equal(bt_ring_push(ring, &items[2]), BT_ERR_BUSY);
    assert_ptr_equal(bt_ring_pop(ring), &items[0]);
    assert_ptr_equal(bt_ring_pop(ring), &items[1]);
    assert_null(bt_ring_pop(ring));
    bt_ring_destroy(ring);
}

#define N_PASSED 200000u

static void *ring_producer(void *arg)
{
    bt_ring_t *ring = arg;

    for (uintptr_t i = 1; i <= N_PASSED; i++) {
        while (bt_ring_push(ring, (void *)i) != BT_OK) {
        }
    }
    return NULL;
}

static void ring_keeps_order_and_wakes_a_sleeper(void **state)
{
    bt_ring_t *ring = NULL;
    pthread_t producer;

    (void)state;
    assert_int_equal(bt_ring_create(64, &ring), BT_OK);
    assert_int_equal(pthread_create(&producer, NULL, ring_producer, ring), 0);
    for (uintptr_t want = 1; want <= N_PASSED;) {
        void *item = bt_ring_pop(ring);

        if (item == NULL) {
            bt_ring_wait(ring, -1);
            continue;
        }
        assert_int_equal((uintptr_t)item, want);
        want++;
    }
    pthread_join(producer, NULL);
    bt_ring_destroy(ring);
}

static void list_removes_twice_without_harm(void **state)
{
    bt_list_t head;
    bt_list_t a;
    bt_list_t b;

    (void)state;
    bt_list_init(&head);
    assert_true(bt_list_empty(&head));
    bt_list_push_back(&head, &a);
    bt_list_push_back(&head, &b);
    bt_list_remove(&a);
    bt_list_remove(&a);
    assert_ptr_equal(head.next, &b);
    bt_list_remove(&b);
    assert_true(bt_list_empty(&head));
}

typedef struct thing {
    uint32_t name;
    bt_list_t link;
} thing_t;

static bool is_thing(bt_list_t *link, const void *name)
{
    return BT_CONTAINER_OF(link, thing_t, link)->name ==
           *(const uint32_t *)name;
}

static thing_t *thing_find(const bt_hmap_t *map, uint64_t hash, uint32_t name)
{
    bt_list_t *link = bt_hmap_find(map, hash, is_thing, &name);

    return (link == NULL) ? NULL : BT_CONTAINER_OF(link, thing_t, link);
}

static void hmap_finds_keys_that_share_a_bucket(void **state)
{
    thing_t things[3] = {{.name = 7}, {.name = 8}, {.name = 7}};
    bt_list_t buckets[4];
    bt_hmap_t map;

    (void)state;
    bt_hmap_init(&map, buckets, 4);
    assert_null(thing_find(&map, 5, 7));
    bt_hmap_insert(&map, 5, &things[0].link); /* 5, 9 and 1: bucket 1 of 4 */
    bt_hmap_insert(&map, 9, &things[1].link);
    bt_hmap_insert(&map, 1, &things[2].link);
    assert_ptr_equal(thing_find(&map, 5, 7), &things[0]); /* the older */
    assert_ptr_equal(thing_find(&map, 9, 8), &things[1]);
    assert_null(thing_find(&map, 9, 9));
    assert_null(thing_find(&map, 6, 7)); /* another bucket */
    bt_list_remove(&things[0].link);
    assert_ptr_equal(thing_find(&map, 1, 7), &things[2]);
    bt_list_remove(&things[2].link);
    assert_null(thing_find(&map, 1, 7));
}

static void hmap_entries_can_be_removed_during_iteration(void **state)
{
    thing_t things[5] = {{.name = 0}};
    bt_list_t buckets[2];
    bt_list_t *head, *pos, *tmp;
    uint32_t n = 0;
    bt_hmap_t map;

    (void)state;
    bt_hmap_init(&map, buckets, 2);
    for (uint32_t i = 0; i < 5; i++) {
        things[i].name = i;
        bt_hmap_insert(&map, i, &things[i].link);
    }
    BT_HMAP_FOR_EACH_BUCKET(head, &map)
    {
        BT_LIST_FOR_EACH(pos, tmp, head)
        {
            bt_list_remove(pos);
            n++;
        }
    }
    assert_int_equal(n, 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_null(thing_find(&map, i, i));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(full_ring_returns_busy),
        BT_TEST(ring_keeps_order_and_wakes_a_sleeper),
        BT_TEST(list_removes_twice_without_harm),
        BT_TEST(hmap_finds_keys_that_share_a_bucket),
        BT_TEST(hmap_entries_can_be_removed_during_iteration),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
