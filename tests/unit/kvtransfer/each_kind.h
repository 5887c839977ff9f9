/* SPDX-License-Identifier: Apache-2.0 */
/** @file each_kind.h  One test function per case, transport and path, and short
 *  words for what the cases do. */
#ifndef BT_TESTS_UNIT_KVTRANSFER_EACH_KIND_H
#define BT_TESTS_UNIT_KVTRANSFER_EACH_KIND_H

#include <string.h>

#include "tests/unit/kvtransfer/pair.h"

#define MIB (1024u * 1024u)

/* One test function per case and kind. */
#define ONE_KIND(name, kind, number)        \
    static void name##_##kind(void **state) \
    {                                       \
        (void)state;                        \
        name(&pair_kinds[number]);          \
    }
#define EACH_KIND(name)                                            \
    ONE_KIND(name, mem_shm, PAIR_MEM_SHM)                          \
    ONE_KIND(name, mem_network, PAIR_MEM_NETWORK)                  \
    ONE_KIND(name, ucx_shm, PAIR_UCX_SHM)                          \
    ONE_KIND(name, ucx_network, PAIR_UCX_NETWORK)                  \
    ONE_KIND(name, mem_staged, PAIR_MEM_STAGED)                    \
    ONE_KIND(name, mem_staged_to_shm, PAIR_MEM_STAGED_SHM)         \
    ONE_KIND(name, mem_host_to_staged, PAIR_MEM_HOST_STAGED)       \
    ONE_KIND(name, ucx_staged, PAIR_UCX_STAGED)                    \
    ONE_KIND(name, ucx_staged_to_shm, PAIR_UCX_STAGED_SHM)         \
    ONE_KIND(name, ucx_host_to_staged, PAIR_UCX_HOST_STAGED)       \
    ONE_KIND(name, ucx_staged_to_network, PAIR_UCX_STAGED_NETWORK) \
    ONE_KIND(name, mem_shared, PAIR_MEM_SHARED)                    \
    ONE_KIND(name, ucx_shared, PAIR_UCX_SHARED)                    \
    static void name##_ucx_hosts(void **state)                     \
    {                                                              \
        bt_kvt_t *observer;                                        \
                                                                   \
        (void)state;                                               \
        if (!hosts_up()) {                                         \
            skip();                                                \
        }                                                          \
        observer = pair_observer(&pair_kinds[PAIR_UCX_HOSTS]);     \
        name(&pair_kinds[PAIR_UCX_HOSTS]);                         \
        bt_kvt_close(observer);                                    \
    }
#define TEST_EACH(name)                                                        \
    BT_TEST(name##_mem_shm), BT_TEST(name##_mem_network),                      \
        BT_TEST(name##_ucx_shm), BT_TEST(name##_ucx_network),                  \
        BT_TEST(name##_mem_staged), BT_TEST(name##_mem_staged_to_shm),         \
        BT_TEST(name##_mem_host_to_staged), BT_TEST(name##_ucx_staged),        \
        BT_TEST(name##_ucx_staged_to_shm), BT_TEST(name##_ucx_host_to_staged), \
        BT_TEST(name##_ucx_staged_to_network), BT_TEST(name##_mem_shared),     \
        BT_TEST(name##_ucx_shared), BT_TEST(name##_ucx_hosts)

__attribute__((unused)) static void prep(pair_t *pair, track_t *t)
{
    assert_int_equal(pair_prep(pair, t), BT_OK);
    assert_int_equal(bt_kvt_xfer_region_bytes(t->xfer), t->bytes);
}

__attribute__((unused)) static void post(track_t *t, uint64_t offset,
                                         uint64_t bytes)
{
    assert_int_equal(pair_post(t, offset, bytes), BT_OK);
}

__attribute__((unused)) static void finish(track_t *t, const char *note)
{
    assert_int_equal(bt_kvt_finish(t->xfer, note, strlen(note)), BT_OK);
}

__attribute__((unused)) static bool over(const track_t *t)
{
    return (t->xfer == NULL) && (t->region == NULL);
}

__attribute__((unused)) static bt_kvt_counters_t counters(const bt_kvt_t *kvt)
{
    bt_kvt_counters_t c;

    bt_kvt_counters(kvt, &c);
    return c;
}

#endif
