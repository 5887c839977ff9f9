/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks on devices that have none: processes with a simulated device each
 * (nccl.h), by the table that the plugin opens. The argument is
 * baton_cuda_sim.so. */
#include "tests/simt/plugin.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/coll/coll.h"
#include "common/coll/coll_shm.h"
#include "kernels/kernels.h"

#define MAX_RANKS  5u
#define FLOATS     1237u
#define LONG_SUM   ((1u << 20) + 77) /* in two pieces */
#define LONG_BYTES 700001u           /* in three, from rank to rank */
#define SHORT_MS   "300"             /* of patience */

typedef enum said { NOTHING, HERE_IT_IS, THERE_IS_NONE } said_t;

/* What processes have in common: the id, and what each was told. */
typedef struct board {
    uint8_t id[BT_COLLECTIVES_ID_BYTES];
    _Atomic said_t said;
    uint64_t n_calls; /* of rank 0's run time */
    bt_status_t status[MAX_RANKS];
    bool answered[MAX_RANKS];
    bool is_left[MAX_RANKS]; /* something was not given back */
} board_t;

static board_t *board;

/* One rank's process. */
typedef struct self {
    uint32_t rank, size;
    uint64_t failing; /* call of the run time; 0: none */
    bt_backend_t *be;
    bt_collectives_t *coll;
    void *a, *b;
} self_t;

/* Numbers whose sum says in which order they were added. */
static float part_of(uint32_t rank, uint32_t i)
{
    static const float scales[MAX_RANKS] = {1.0f, 1e-7f, 3e7f, -1.0f, -3e7f};

    return scales[(rank + i) % MAX_RANKS] * (float)(1 + (i * 31 + rank) % 97);
}

static bt_status_t put(const self_t *s, void *to, const void *from, size_t n)
{
    return s->be->ops->copy_in(s->be, to, from, n);
}

static bt_status_t sum_is_right(const self_t *s, uint32_t n, bool *right_p)
{
    float *parts[MAX_RANKS];
    float *want = calloc(n, sizeof(*want));
    float *got = calloc(n, sizeof(*got));
    bt_status_t status;

    for (uint32_t r = 0; r < s->size; r++) {
        parts[r] = calloc(n, sizeof(**parts));
        for (uint32_t i = 0; i < n; i++) {
            parts[r][i] = part_of(r, i);
        }
    }
    bt_coll_tree_sum((const float *const *)parts, s->size, n, want);
    status = put(s, s->a, parts[s->rank], n * sizeof(*got));
    if (status == BT_OK) {
        status = s->coll->all_reduce_sum(s->coll->ctx, s->a, n);
    }
    if (status == BT_OK) {
        status = s->be->ops->copy_out(s->be, got, s->a, n * sizeof(*got));
    }
    *right_p = (status == BT_OK) && (memcmp(got, want, n * sizeof(*got)) == 0);
    for (uint32_t r = 0; r < s->size; r++) {
        free(parts[r]);
    }
    free(want);
    free(got);
    return status;
}

/* Everyone's bytes at all, then the last one's at all. */
static bt_status_t gather_is_right(const self_t *s, bool *right_p)
{
    uint8_t own[77], all[MAX_RANKS * 77] = {0}, last[77] = {0};
    const uint32_t root = s->size - 1;
    bt_status_t status;

    memset(own, (int)(s->rank + 1), sizeof(own));
    status = put(s, s->a, own, sizeof(own));
    if (status == BT_OK) {
        status = s->coll->all_gather(s->coll->ctx, s->a, s->b, sizeof(own));
    }
    if (status == BT_OK) {
        status = s->coll->broadcast(s->coll->ctx, s->a, sizeof(own), root);
    }
    if (status == BT_OK) {
        status = s->be->ops->copy_out(s->be, all, s->b, s->size * sizeof(own));
    }
    if (status == BT_OK) {
        status = s->be->ops->copy_out(s->be, last, s->a, sizeof(last));
    }
    *right_p = status == BT_OK;
    for (uint32_t i = 0; i < s->size * sizeof(own); i++) {
        *right_p = *right_p && (all[i] == i / sizeof(own) + 1);
    }
    for (uint32_t i = 0; i < sizeof(last); i++) {
        *right_p = *right_p && (last[i] == s->size);
    }
    return status;
}

/* From each to the next one, from the last one to the first. */
static bt_status_t ring_is_right(const self_t *s, size_t n, bool *right_p)
{
    const uint32_t next = (s->rank + 1) % s->size;
    const uint32_t before = (s->rank + s->size - 1) % s->size;
    uint8_t *bytes = calloc(n, 1);
    bt_status_t status;

    memset(bytes, (int)(s->rank + 10), n);
    status = put(s, s->a, bytes, n);
    /* A send may wait until it is taken: one has to take first. */
    if ((status == BT_OK) && (s->rank > 0)) {
        status = s->coll->recv(s->coll->ctx, s->b, n, before);
    }
    if (status == BT_OK) {
        status = s->coll->send(s->coll->ctx, s->a, n, next);
    }
    if ((status == BT_OK) && (s->rank == 0)) {
        status = s->coll->recv(s->coll->ctx, s->b, n, before);
    }
    if (status == BT_OK) {
        status = s->be->ops->copy_out(s->be, bytes, s->b, n);
    }
    *right_p = status == BT_OK;
    for (size_t i = 0; i < n; i++) {
        *right_p = *right_p && (bytes[i] == before + 10);
    }
    free(bytes);
    return status;
}

static bt_status_t open_self(self_t *s)
{
    static const bt_backend_config_t config = {.n_threads = 1, .max_rows = 8};
    bt_status_t status = bt_backend_open("cuda_sim", &config, &s->be);

    if (status == BT_OK) {
        status =
            s->be->ops->buffer_alloc(s->be, LONG_SUM * sizeof(float), &s->a);
    }
    if (status == BT_OK) {
        status =
            s->be->ops->buffer_alloc(s->be, LONG_SUM * sizeof(float), &s->b);
    }
    if ((status == BT_OK) && (s->rank == 0)) {
        status = s->be->ops->collectives_id(s->be, board->id);
    }
    if (s->rank == 0) {
        board->said = (status == BT_OK) ? HERE_IT_IS : THERE_IS_NONE;
    }
    while (board->said == NOTHING) {
        (void)sched_yield();
    }
    if ((status == BT_OK) && (board->said == THERE_IS_NONE)) {
        status = BT_ERR_PEER_LOST;
    }
    if (status == BT_OK) {
        status = s->be->ops->collectives_open(s->be, s->rank, s->size,
                                              board->id, &s->coll);
    }
    return status;
}

static void close_self(self_t *s)
{
    bt_simt_state_t left;

    if (s->be != NULL) {
        s->be->ops->collectives_close(s->coll);
        s->be->ops->buffer_free(s->be, s->a);
        s->be->ops->buffer_free(s->be, s->b);
        bt_backend_close(s->be);
    }
    state_of(&left);
    board->is_left[s->rank] = (left.bytes != 0) || (left.n_streams != 0) ||
                              (left.n_comms != 0) || (left.n_events != 0);
}

static bt_status_t whole_walk(const self_t *s, bool *right_p)
{
    bool right[3] = {false};
    bt_status_t status = sum_is_right(s, FLOATS, &right[0]);

    if (status == BT_OK) {
        status = gather_is_right(s, &right[1]);
    }
    if (status == BT_OK) {
        status = ring_is_right(s, 100, &right[2]);
    }
    *right_p = right[0] && right[1] && right[2];
    return status;
}

static bt_status_t long_walk(const self_t *s, bool *right_p)
{
    bool right[2] = {false};
    bt_status_t status = sum_is_right(s, LONG_SUM, &right[0]);

    if (status == BT_OK) {
        status = ring_is_right(s, LONG_BYTES, &right[1]);
    }
    *right_p = right[0] && right[1];
    return status;
}

/* Rank 1 is gone when the others have queued a sum. */
static bt_status_t walk_without_one(const self_t *s, bool *right_p)
{
    if (s->rank == 1) {
        (void)raise(SIGKILL);
    }
    return whole_walk(s, right_p);
}

/* Rank 1 is there and does not get on. */
static bt_status_t walk_with_one_that_stops(const self_t *s, bool *right_p)
{
    if (s->rank == 1) {
        (void)raise(SIGSTOP);
    }
    return whole_walk(s, right_p);
}

/* Rank 1 makes another call. */
static bt_status_t walk_apart(const self_t *s, bool *right_p)
{
    bool right;

    *right_p = false;
    return (s->rank == 1) ? gather_is_right(s, &right)
                          : sum_is_right(s, FLOATS, &right);
}

typedef bt_status_t (*walk_fn)(const self_t *s, bool *right_p);

static void be_rank(self_t s, walk_fn walk)
{
    bt_status_t status;
    bool right = false;

    fail_at(s.failing);
    status = open_self(&s);
    if (status == BT_OK) {
        status = walk(&s, &right);
    }
    if (s.rank == 0) {
        bt_simt_state_t now;

        state_of(&now);
        board->n_calls = now.n_calls;
    }
    board->status[s.rank] = status;
    board->answered[s.rank] = right;
    close_self(&s);
    _exit(0);
}

/* Each rank is a process of its own, for what fails in one stays there.
 * @param size  that the ranks know of, of which n come */
static void run(uint32_t size, uint32_t n, uint64_t failing, walk_fn walk)
{
    pid_t pids[MAX_RANKS];
    int how;

    memset(board, 0, sizeof(*board));
    for (uint32_t r = 0; r < n; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] == 0) {
            be_rank((self_t){.rank = r,
                             .size = size,
                             .failing = (r == 0) ? failing : 0},
                    walk);
        }
    }
    for (uint32_t i = n; i > 0; i--) { /* one that stopped ends at the end */
        const uint32_t r = i % n;

        if ((walk == walk_with_one_that_stops) && (r == 1)) {
            assert_int_equal(kill(pids[r], SIGKILL), 0);
        }
        assert_int_equal(waitpid(pids[r], &how, 0), pids[r]);
    }
}

static void patience(const char *ms)
{
    if (ms == NULL) {
        (void)unsetenv("BATON_SIMT_NCCL_MS");
    } else {
        assert_int_equal(setenv("BATON_SIMT_NCCL_MS", ms, 1), 0);
    }
}

static void all_are_right(uint32_t size, walk_fn walk)
{
    run(size, size, 0, walk);
    for (uint32_t r = 0; r < size; r++) {
        assert_int_equal(board->status[r], BT_OK);
        assert_true(board->answered[r]);
        assert_false(board->is_left[r]);
    }
}

static void ranks_add_in_the_order_of_the_tree_and_exchange(void **state)
{
    (void)state;
    for (uint32_t size = 2; size <= MAX_RANKS; size++) {
        all_are_right(size, whole_walk);
    }
}

static void what_is_long_goes_in_pieces(void **state)
{
    (void)state;
    if (BT_SIMT_EVERY > 1) {
        skip(); /* millions of fibers, each with a sanitizer's stack */
    }
    all_are_right(2, long_walk);
    all_are_right(3, long_walk);
}

/* Ranks 0 and 2, of three, are told, and have given all back. */
static void check_told(walk_fn walk)
{
    run(3, 3, 0, walk);
    for (uint32_t r = 0; r < 3; r += 2) {
        assert_int_equal(board->status[r], BT_ERR_DEVICE);
        assert_false(board->answered[r]);
        assert_false(board->is_left[r]);
    }
}

static void nobody_waits_for_a_rank_that_died(void **state)
{
    (void)state;
    patience(NULL); /* the time limit of the test is not it */
    check_told(walk_without_one);
}

static void nobody_waits_long_for_a_rank_that_stopped(void **state)
{
    (void)state;
    patience(SHORT_MS);
    check_told(walk_with_one_that_stops);
    patience(NULL);
}

static void ranks_that_make_different_calls_are_told(void **state)
{
    (void)state;
    check_told(walk_apart);
    assert_int_equal(board->status[1], BT_ERR_DEVICE);
}

static void ranks_that_do_not_all_come_are_told(void **state)
{
    (void)state;
    patience(SHORT_MS);
    run(3, 2, 0, whole_walk);
    patience(NULL);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(board->status[r], BT_ERR_DEVICE);
        assert_false(board->is_left[r]);
    }
}

/* Rank 0's calls; rank 1 comes out of it, whatever it was told. */
static void every_call_that_fails_is_told_and_leaves_nothing(void **state)
{
    uint64_t n_calls;

    (void)state;
    all_are_right(2, whole_walk);
    n_calls = board->n_calls;
    assert_true(n_calls >= 30);
    patience(SHORT_MS);
    for (uint64_t n = 1; n <= n_calls; n += BT_SIMT_EVERY) {
        run(2, 2, n, whole_walk);
        if ((board->status[0] != BT_ERR_NO_MEMORY) &&
            (board->status[0] != BT_ERR_DEVICE) &&
            (board->status[0] != BT_ERR_NO_DEVICE)) {
            fail_msg("call %u of %u failed: \"%s\"", (unsigned)n,
                     (unsigned)n_calls, bt_status_str(board->status[0]));
        }
        assert_int_equal(board->answered[1], board->status[1] == BT_OK);
        assert_false(board->is_left[0] || board->is_left[1]);
    }
    patience(NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(ranks_add_in_the_order_of_the_tree_and_exchange),
        BT_TEST(what_is_long_goes_in_pieces),
        BT_TEST(nobody_waits_for_a_rank_that_died),
        BT_TEST(nobody_waits_long_for_a_rank_that_stopped),
        BT_TEST(ranks_that_make_different_calls_are_told),
        BT_TEST(ranks_that_do_not_all_come_are_told),
        BT_TEST(every_call_that_fails_is_told_and_leaves_nothing),
    };
    int failed;

    plugin_open(argc, argv);
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(board != MAP_FAILED);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)munmap(board, sizeof(*board));
    return failed;
}
