/* SPDX-License-Identifier: Apache-2.0 */
/* Each way to lose an attempt is counted once, under its own cause. */
#include "tests/support/testsupport.h"
#include "tests/unit/router/core/core_fixture.h"

static world_t world;

/* Phases of drive(): 0 both have the request, then: 1 the lease is granted, 2
 * token #1 is here, 3 KV is there. */
typedef struct failure {
    unsigned phase;
    bool of_decode;
    bt_status_t status;
    bt_gen_loss_t loss;
} failure_t;

/* By hand, from what workers answer: decode.c (take_back), loop.c (refuse,
 * check_deadlines), kvt.h (WINDOW_FAILED, XFER_DONE), job.c. */
static const failure_t failures[] = {
    {1, true, BT_ERR_BUSY, BT_LOSS_LEASE_EXPIRED},
    {2, true, BT_ERR_BUSY, BT_LOSS_LEASE_EXPIRED},
    {1, true, BT_ERR_TIMED_OUT, BT_LOSS_LEASE_EXPIRED},
    {1, false, BT_ERR_TIMED_OUT, BT_LOSS_LEASE_EXPIRED},
    {0, false, BT_ERR_TIMED_OUT, BT_LOSS_DEADLINE},
    {3, true, BT_ERR_TIMED_OUT, BT_LOSS_DEADLINE},
    {0, true, BT_ERR_BUSY, BT_LOSS_REFUSED},
    {0, false, BT_ERR_BUSY, BT_LOSS_REFUSED},
    {0, true, BT_ERR_NO_BLOCKS, BT_LOSS_REFUSED},
    {0, false, BT_ERR_TOO_LARGE, BT_LOSS_REFUSED},
    {1, true, BT_ERR_AMBIGUOUS, BT_LOSS_REFUSED},
    {0, false, BT_ERR_INVALID_PARAM, BT_LOSS_REFUSED},
    {2, true, BT_ERR_CORRUPT, BT_LOSS_TRANSFER},
    {2, true, BT_ERR_BAD_MESSAGE, BT_LOSS_TRANSFER},
    {2, false, BT_ERR_PEER_LOST, BT_LOSS_TRANSFER},
    {1, false, BT_ERR_STALE, BT_LOSS_TRANSFER},
    {3, true, BT_ERR_DEVICE, BT_LOSS_OTHER},
    {1, false, BT_ERR_NO_MEMORY, BT_LOSS_OTHER},
};

static void assert_losses(const world_t *w, bt_gen_loss_t loss, uint32_t n)
{
    for (int i = 0; i < BT_N_LOSSES; i++) {
        assert_int_equal(w->n_losses[i], (i == (int)loss) ? n : 0);
    }
}

static bt_req_key_t begin_and(world_t *w, unsigned phase, bt_instance_t **p_p,
                              bt_instance_t **d_p, client_t *c)
{
    const bt_req_key_t key = begin(w, p_p, d_p, c, 8, NULL);

    if (phase > 0) {
        (void)drive(w, *p_p, *d_p, phase);
    }
    return key;
}

static void worker_failures_are_counted_by_cause(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
        const failure_t *f = &failures[i];
        world_t *w = &world;
        bt_instance_t *p, *d;
        client_t c = {0};
        bt_req_key_t key = begin_and(w, f->phase, &p, &d, &c);

        failed(w, f->of_decode ? d : p, key, f->status, "x");
        assert_losses(w, f->loss, 1);
        /* Of the same attempt, from the other: it is over. */
        failed(w, f->of_decode ? p : d, key, BT_ERR_PEER_LOST, "x");
        assert_losses(w, f->loss, 1);
        bt_core_destroy(w->core);
    }
}

static void deadline_with_a_waiting_lease_counts_as_lease_expired(void **state)
{
    (void)state;
    for (unsigned phase = 0; phase <= 3; phase++) {
        world_t *w = &world;
        bt_instance_t *p, *d;
        client_t c = {0};

        (void)begin_and(w, phase, &p, &d, &c);
        w->now += (uint64_t)DEADLINE_MS * MS;
        bt_core_tick(w->core, w->now);
        assert_int_equal(c.http_status, 504);
        assert_losses(w,
                      ((phase == 1) || (phase == 2)) ? BT_LOSS_LEASE_EXPIRED
                                                     : BT_LOSS_DEADLINE,
                      1);
        bt_core_destroy(w->core);
    }
}

/* A worker that keeps the deadline, too, is heard before the core looks at its
 * clock: the phase is that in which it gave the request up. */
static void deadline_reported_by_worker_names_its_phase(void **state)
{
    static const struct {
        unsigned phase;
        bool of_decode;
        const char *where;
    } rows[] = {
        {0, false, "prefill, worker prefill-0"},
        {1, false, "prefill, worker prefill-0"},
        {2, true, "KV transfer, worker decode-0"},
        {3, true, "decode, worker decode-0"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        world_t *w = &world;
        bt_instance_t *p, *d;
        client_t c = {0};
        const bt_req_key_t key = begin_and(w, rows[i].phase, &p, &d, &c);
        char wanted[128];

        w->now += (uint64_t)DEADLINE_MS * MS;
        failed(w, rows[i].of_decode ? d : p, key, BT_ERR_TIMED_OUT, "x");
        snprintf(wanted, sizeof(wanted),
                 "the request's deadline of %u ms passed in phase %s",
                 DEADLINE_MS, rows[i].where);
        assert_int_equal(c.http_status, 504);
        assert_string_equal(c.message, wanted);
        bt_core_destroy(w->core);
    }
}

static void request_never_sent_counts_no_lost_attempt(void **state)
{
    world_t *w = &world;
    client_t c = {0};

    (void)state;
    start(w, 10);
    submit(w, &c, "The", 8, NULL);
    w->now += (uint64_t)DEADLINE_MS * MS;
    bt_core_tick(w->core, w->now);
    assert_int_equal(c.n_ends, 1);
    assert_losses(w, BT_LOSS_DEADLINE, 0);
    bt_core_destroy(w->core);
}

static void ended_link_counts_as_lost_worker(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t c = {0};

    (void)state;
    (void)begin_and(w, 2, &p, &d, &c);
    bt_core_worker_down(w->core, d, "gone", w->now);
    bt_test_expect_log_lines(1);
    assert_losses(w, BT_LOSS_WORKER, 1);
    bt_core_destroy(w->core);
}

static void worker_ending_early_counts_as_other_loss(void **state)
{
    world_t *w = &world;
    bt_instance_t *p, *d;
    client_t c = {0};
    bt_req_key_t key;

    (void)state;
    key = begin_and(w, 3, &p, &d, &c);
    ended(w, d, key);
    assert_losses(w, BT_LOSS_OTHER, 1);
    bt_core_destroy(w->core);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(worker_failures_are_counted_by_cause),
        BT_TEST(deadline_with_a_waiting_lease_counts_as_lease_expired),
        BT_TEST(deadline_reported_by_worker_names_its_phase),
        BT_TEST(request_never_sent_counts_no_lost_attempt),
        BT_TEST(ended_link_counts_as_lost_worker),
        BT_TEST(worker_ending_early_counts_as_other_loss),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
