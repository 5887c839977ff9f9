/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/coll/coll_shm.h"
#include "tests/support/testsupport.h"

#define SLOT_BYTES 8192 /* 2,048 floats: long vectors go in several */
#define MAX_N      5000

typedef struct world {
    uint32_t size;
    void *segment;
    size_t bytes;
    void *(*main)(void *member);
} world_t;

typedef struct member {
    const world_t *world;
    bt_coll_shm_t *shm;
    const bt_collectives_t *coll;
    pthread_t thread;
    unsigned wrong; /* found so; threads do not fail a test */
} member_t;

static void run_groups(uint32_t size, uint32_t stage_size,
                       void *(*what)(void *), member_t *members)
{
    world_t world = {.size = size, .main = what};

    world.bytes = bt_coll_shm_bytes(size, stage_size, SLOT_BYTES);
    world.segment = mmap(NULL, world.bytes, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(world.segment != MAP_FAILED);
    for (uint32_t r = 0; r < size; r++) {
        members[r] = (member_t){.world = &world};
        assert_int_equal(bt_coll_shm_open(world.segment, world.bytes, r, size,
                                          stage_size, SLOT_BYTES,
                                          &members[r].shm),
                         BT_OK);
        members[r].coll = bt_coll_shm_collectives(members[r].shm);
    }
    for (uint32_t r = 0; r < size; r++) {
        assert_int_equal(
            pthread_create(&members[r].thread, NULL, what, &members[r]), 0);
    }
    for (uint32_t r = 0; r < size; r++) {
        assert_int_equal(pthread_join(members[r].thread, NULL), 0);
        assert_int_equal(members[r].wrong, 0);
        bt_coll_shm_close(members[r].shm);
    }
    munmap(world.segment, world.bytes);
}

static void run(uint32_t size, void *(*what)(void *), member_t *members)
{
    run_groups(size, size, what, members);
}

/* Its bits depend on the order of the sum. */
static float number(uint32_t rank, size_t i)
{
    return 1.0f / (float)(1 + (i * 7 + rank * 13) % 101) +
           1000.0f * (float)((i + rank) % 3);
}

static unsigned check_sum(const bt_collectives_t *c, size_t n)
{
    float *vectors = bt_calloc((c->size + 2) * MAX_N, sizeof(*vectors));
    float *mine = vectors + (size_t)c->size * MAX_N;
    float *want = mine + MAX_N;
    const float *parts[8];
    unsigned wrong = 0;

    for (uint32_t r = 0; r < c->size; r++) {
        parts[r] = vectors + (size_t)r * MAX_N;
        for (size_t i = 0; i < n; i++) {
            vectors[(size_t)r * MAX_N + i] = number(r, i);
        }
    }
    memcpy(mine, parts[c->rank], n * sizeof(*mine));
    bt_coll_tree_sum(parts, c->size, n, want);
    wrong += c->all_reduce_sum(c->ctx, mine, n) != BT_OK;
    wrong += memcmp(mine, want, n * sizeof(*mine)) != 0;
    bt_free(vectors);
    return wrong;
}

static void *sum_all(void *arg)
{
    static const size_t lengths[] = {1, 2, 577, 2047, 2048, 2049, MAX_N, 0, 64};
    member_t *m = arg;

    for (int again = 0; again < 50; again++) {
        for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
            m->wrong += check_sum(m->coll, lengths[i]);
        }
    }
    return NULL;
}

static void shm_sums_equal_the_tree_bit_for_bit(void **state)
{
    member_t members[8];

    (void)state;
    for (uint32_t size = 2; size <= 5; size++) {
        run(size, sum_all, members);
    }
}

static void *gather_and_tell(void *arg)
{
    member_t *m = arg;
    const bt_collectives_t *c = m->coll;
    const size_t each = 3 * SLOT_BYTES + 5; /* several pieces */
    uint8_t *mine = bt_calloc(each, 1);
    uint8_t *all = bt_calloc(each, c->size);

    memset(mine, 10 + (int)c->rank, each);
    m->wrong += c->all_gather(c->ctx, mine, all, each) != BT_OK;
    for (uint32_t r = 0; r < c->size; r++) {
        m->wrong += all[r * each] != 10 + r;
        m->wrong += all[(r + 1) * each - 1] != 10 + r;
    }
    for (uint32_t root = 0; root < c->size; root++) {
        memset(mine, 10 + (int)c->rank, each);
        m->wrong += c->broadcast(c->ctx, mine, each, root) != BT_OK;
        m->wrong += (mine[0] != 10 + root) || (mine[each - 1] != 10 + root);
    }
    m->wrong +=
        c->broadcast(c->ctx, mine, each, c->size) != BT_ERR_INVALID_PARAM;
    bt_free(mine);
    bt_free(all);
    return NULL;
}

static void large_gathers_and_broadcasts_are_cut_into_pieces(void **state)
{
    member_t members[8];

    (void)state;
    run(2, gather_and_tell, members);
    run(3, gather_and_tell, members);
}

/* Groups of 2: sums within them say nothing to the others, and calls of all
 * ranks go on beside. */
static void *sum_in_groups(void *arg)
{
    member_t *m = arg;
    const bt_collectives_t *group = bt_coll_shm_stage(m->shm);
    const uint32_t first = m->coll->rank / 2 * 2;

    m->wrong += (group->size != 2) || (group->rank != m->coll->rank % 2);
    for (uint32_t i = 0; i < 200; i++) {
        float own = (float)(m->coll->rank + i);
        float all = own;

        m->wrong += group->all_reduce_sum(group->ctx, &own, 1) != BT_OK;
        m->wrong += own != (float)(first + i) + (float)(first + 1 + i);
        if (i % 10 == 0) {
            m->wrong += m->coll->all_reduce_sum(m->coll->ctx, &all, 1) != BT_OK;
            m->wrong += all != (float)(15 + 6 * i); /* 0 + … + 5 */
        }
    }
    return NULL;
}

/* Round and round the ring, messages of less than a slot and of more than the
 * whole channel, in order. */
static void *pass_on(void *arg)
{
    static const size_t lengths[] = {1, SLOT_BYTES, SLOT_BYTES + 1,
                                     20 * SLOT_BYTES + 3, 64};
    member_t *m = arg;
    const bt_collectives_t *c = m->coll;
    const uint32_t next = (c->rank + 2) % c->size;
    const uint32_t before = (c->rank + c->size - 2) % c->size;
    uint8_t *data = bt_calloc(24, SLOT_BYTES);

    for (uint32_t i = 0; i < 40; i++) {
        const size_t n = lengths[i % BT_ARRAY_LEN(lengths)];

        /* Whoever is in the first group sends first, as a ring needs. */
        if (c->rank >= 2) {
            m->wrong += c->recv(c->ctx, data, n, before) != BT_OK;
            m->wrong += (data[0] != (uint8_t)(before % 2 + i)) ||
                        (data[n - 1] != (uint8_t)(before % 2 + i));
        }
        memset(data, (int)(c->rank % 2 + i), n);
        m->wrong += c->send(c->ctx, data, n, next) != BT_OK;
        if (c->rank < 2) {
            m->wrong += c->recv(c->ctx, data, n, before) != BT_OK;
            m->wrong += data[n - 1] != (uint8_t)(c->rank + i);
        }
    }
    m->wrong += c->send(c->ctx, data, 1, c->rank) != BT_ERR_INVALID_PARAM;
    m->wrong += c->recv(c->ctx, data, 1, c->rank) != BT_ERR_INVALID_PARAM;
    bt_free(data);
    return NULL;
}

/* Messages of a slot wait in a channel before anybody takes one. */
static void *run_ahead(void *arg)
{
    member_t *m = arg;
    const bt_collectives_t *c = m->coll;
    uint32_t word = 0;

    for (uint32_t i = 0; (c->rank == 0) && (i < BT_COLL_SHM_CHANNEL_SLOTS);
         i++) {
        m->wrong += c->send(c->ctx, &i, sizeof(i), 1) != BT_OK;
    }
    m->wrong += c->broadcast(c->ctx, &word, sizeof(word), 0) != BT_OK;
    for (uint32_t i = 0; (c->rank == 1) && (i < BT_COLL_SHM_CHANNEL_SLOTS);
         i++) {
        m->wrong += c->recv(c->ctx, &word, sizeof(word), 0) != BT_OK;
        m->wrong += word != i;
    }
    m->wrong += bt_coll_shm_stage(m->shm) != NULL; /* of one */
    return NULL;
}

/* Each sends more to the other than a channel holds before it receives: what
 * was begun is taken meanwhile, in a send, and in a sum of the group. */
static void *send_to_each_other(void *arg)
{
    member_t *m = arg;
    const bt_collectives_t *c = m->coll;
    const bt_collectives_t *group = bt_coll_shm_stage(m->shm);
    const size_t n = 20 * SLOT_BYTES + 7;
    const uint32_t over = (c->rank + 2) % 4;
    uint8_t *out = bt_calloc(n, 1);
    uint8_t *in = bt_calloc(n, 3);
    uint8_t word = 0;
    float x = 1.0f;

    for (uint32_t k = 0; k < 3; k++) {
        m->wrong += c->recv_begin(c->ctx, in + k * n, n, over) != BT_OK;
    }
    m->wrong += c->recv(c->ctx, &word, 1, over) != BT_ERR_INVALID_PARAM;
    for (uint32_t k = 0; k < 3; k++) {
        memset(out, (int)(10 * c->rank + k), n);
        if (c->rank == 1) { /* the other of the group waits in its sum */
            m->wrong += c->send(c->ctx, out, n, over) != BT_OK;
        }
        m->wrong += group->all_reduce_sum(group->ctx, &x, 1) != BT_OK;
        if (c->rank != 1) {
            m->wrong += c->send(c->ctx, out, n, over) != BT_OK;
        }
    }
    for (uint32_t k = 0; k < 3; k++) {
        m->wrong += c->recv_end(c->ctx) != BT_OK;
        m->wrong += (in[k * n] != 10 * over + k) ||
                    (in[k * n + n - 1] != 10 * over + k);
    }
    m->wrong += c->recv_end(c->ctx) != BT_ERR_INVALID_PARAM;
    m->wrong += c->recv_begin(c->ctx, in, 1, c->rank) != BT_ERR_INVALID_PARAM;
    for (uint32_t k = 0; k < BT_COLL_MAX_BEGUN; k++) { /* of nothing */
        m->wrong += c->recv_begin(c->ctx, in, 0, over) != BT_OK;
    }
    m->wrong += c->recv_begin(c->ctx, in, 0, over) != BT_ERR_BUSY;
    for (uint32_t k = 0; k < BT_COLL_MAX_BEGUN; k++) {
        m->wrong += c->recv_end(c->ctx) != BT_OK;
    }
    bt_free(out);
    bt_free(in);
    return NULL;
}

static void ranks_that_send_and_receive_at_once_do_not_deadlock(void **state)
{
    member_t members[8];

    (void)state;
    for (int i = 0; i < 20; i++) {
        run_groups(4, 2, send_to_each_other, members);
    }
}

static void groups_of_ranks_sum_independently(void **state)
{
    member_t members[8];

    (void)state;
    run_groups(6, 2, sum_in_groups, members);
}

static void channels_deliver_messages_in_order(void **state)
{
    member_t members[8];

    (void)state;
    run_groups(4, 2, pass_on, members);
    run_groups(6, 2, pass_on, members);
    run_groups(2, 1, run_ahead, members);
}

/* In a sum of its group, at an empty channel, at a full one. */
static void *break_elsewhere(void *arg)
{
    member_t *m = arg;
    const bt_collectives_t *c = m->coll;
    const bt_collectives_t *group = bt_coll_shm_stage(m->shm);
    float x = 1.0f;
    bt_status_t status = BT_OK;

    if (c->rank == 1) {
        bt_coll_shm_break(m->shm);
    } else if (c->rank == 0) {
        m->wrong +=
            group->all_reduce_sum(group->ctx, &x, 1) != BT_ERR_PEER_LOST;
    } else if (c->rank == 2) {
        for (int i = 0; (i < 100) && (status == BT_OK); i++) {
            status = c->send(c->ctx, &x, sizeof(x), 0);
        }
        m->wrong += status != BT_ERR_PEER_LOST;
    } else {
        m->wrong += c->recv_begin(c->ctx, &x, sizeof(x), 1) != BT_OK;
        m->wrong += c->recv_end(c->ctx) != BT_ERR_PEER_LOST;
        m->wrong += c->recv(c->ctx, &x, sizeof(x), 1) != BT_ERR_PEER_LOST;
    }
    return NULL;
}

static void lost_rank_ends_waits_in_groups_and_channels(void **state)
{
    member_t members[8];

    (void)state;
    run_groups(4, 2, break_elsewhere, members);
}

/* Rank 1 never comes; rank 0 waits until somebody says so. */
static void *wait_or_break(void *arg)
{
    member_t *m = arg;
    float x = 1.0f;

    if (m->coll->rank == 1) {
        bt_coll_shm_break(m->shm);
    } else {
        m->wrong +=
            m->coll->all_reduce_sum(m->coll->ctx, &x, 1) != BT_ERR_PEER_LOST;
    }
    return NULL;
}

static void lost_rank_ends_a_collective_with_an_error(void **state)
{
    member_t members[8];

    (void)state;
    run(2, wait_or_break, members);
    run(4, wait_or_break, members);
}

/* Rank 0 says its last word, and is gone before the others have looked. */
static void *say_and_go(void *arg)
{
    member_t *m = arg;
    uint32_t word = (m->coll->rank == 0) ? 42 : 0;

    m->wrong +=
        m->coll->broadcast(m->coll->ctx, &word, sizeof(word), 0) != BT_OK;
    m->wrong += word != 42;
    if (m->coll->rank == 0) {
        bt_coll_shm_break(m->shm);
    }
    return NULL;
}

static void messages_sent_before_a_loss_are_received(void **state)
{
    member_t members[8];

    (void)state;
    for (int i = 0; i < 200; i++) {
        run(2, say_and_go, members);
    }
}

static void coll_sizes_over_the_limit_are_refused(void **state)
{
    static uint8_t memory[65536] __attribute__((aligned(64)));
    bt_coll_shm_t *shm = NULL;

    (void)state;
    assert_int_equal(bt_coll_shm_bytes(1, 1, 4096), 0);
    assert_int_equal(bt_coll_shm_bytes(65, 65, 4096), 0);
    assert_int_equal(bt_coll_shm_bytes(2, 2, 0), 0);
    assert_int_equal(bt_coll_shm_bytes(4, 3, 4096), 0);
    assert_int_equal(bt_coll_shm_bytes(4, 0, 4096), 0);
    assert_int_equal(bt_coll_shm_bytes(4, 1, SIZE_MAX / 32), 0);
    assert_int_equal(bt_coll_shm_bytes(2, 2, SIZE_MAX), 0);
    assert_int_equal(
        bt_coll_shm_open(memory, sizeof(memory), 2, 2, 2, 4096, &shm),
        BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_coll_shm_open(memory, 4096, 0, 2, 2, 4096, &shm),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(
        bt_coll_shm_open(memory + 1, sizeof(memory) - 1, 0, 2, 2, 4096, &shm),
        BT_ERR_INVALID_PARAM);
    assert_null(shm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(shm_sums_equal_the_tree_bit_for_bit),
        BT_TEST(large_gathers_and_broadcasts_are_cut_into_pieces),
        BT_TEST(groups_of_ranks_sum_independently),
        BT_TEST(channels_deliver_messages_in_order),
        BT_TEST(ranks_that_send_and_receive_at_once_do_not_deadlock),
        BT_TEST(lost_rank_ends_waits_in_groups_and_channels),
        BT_TEST(lost_rank_ends_a_collective_with_an_error),
        BT_TEST(messages_sent_before_a_loss_are_received),
        BT_TEST(coll_sizes_over_the_limit_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
