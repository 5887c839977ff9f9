/* SPDX-License-Identifier: Apache-2.0 */
/* Random lives of one prefill and two decode workers: requests and groups of
 * them, cancels of
 * either leg, routers that leave and come back, deadlines, lost and altered KV
 * messages, memory that runs out, workers that are stopped, killed or told to
 * end, devices that fail, in any order; and the same of three workers of both
 * roles, which requests cross in all directions while their roles change, and
 * of which routers and workers think differently. Whatever happened, every
 * living worker gives everything back, each request ends exactly once at each
 * worker, and no sequence ever runs on KV that is not its own (sim_engine.c).
 *
 * BATON_TEST_SEED=N  only this life, with all its log lines
 * BATON_TEST_LIVES=N as many lives as these (seeds 1 .. N) */
#include "tests/unit/worker/sim.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "decode_worker/decode.h"

#define N_LIVES  300u
#define N_ROUNDS 150u

static uint64_t rng;
static bool ever_stopped; /* in this life */
static bool is_mixed;     /* of workers of both roles */
static bool grows;        /* sequences hold what they have, some are paused */
static uint64_t n_pauses, n_resumes, n_recomputed, n_slid;
static uint32_t n_sat_out;
static uint32_t n_requests, n_answered, n_reused, n_parties, n_shared_batches;

static uint32_t below(uint32_t n)
{
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng >> 33) % n;
}

static bool chance(uint32_t percent)
{
    return below(100) < percent;
}

/* One token, of the prefill worker alone: it is named as its own peer. */
static void send_alone(sim_req_t *req, uint32_t deadline_ms)
{
    bt_msg_t msg;

    sim_make_leg(req, 0, BT_REQUEST_PREFILL, deadline_ms, below(3), &msg);
    msg.u.request.peer = sim.nodes[req->p].w.instance;
    req->legs[0].link = sim.nodes[req->p].links[req->router];
    sim_router_send(req->router, req->p, &msg);
}

static uint32_t a_receiver(void)
{
    return is_mixed ? below(sim.n_nodes) : 1 + below(sim.n_nodes - 1);
}

static uint32_t a_sender(void)
{
    return is_mixed ? below(sim.n_nodes) : 0;
}

static void random_request(void)
{
    const uint32_t router = below(SIM_ROUTERS);
    const uint32_t d = a_receiver();
    const uint32_t p = a_sender();
    const bool local = (p == d) || chance(10);
    const uint32_t deadline_ms = chance(30) ? 1 + below(60) : 400;
    /* One draw a line: a seed means the same life with every compiler. */
    const uint32_t n_tokens = 1 + below(40);
    const uint32_t max_new = 1 + below(chance(grows ? 70 : 20) ? 50 : 8);
    sim_req_t *req = sim_req_new(router, local ? d : p, d, n_tokens, max_new);

    req->hold_grant = chance(5);
    if (local) {
        sim_send_leg(req, 1, BT_REQUEST_LOCAL, deadline_ms, below(3));
        return;
    }
    if ((max_new == 1) && chance(70)) {
        send_alone(req, deadline_ms);
        return;
    }
    if (!chance(3)) {
        sim_send_leg(req, 0, BT_REQUEST_PREFILL, deadline_ms, below(3));
    }
    if (!chance(3)) {
        sim_send_leg(req, 1, BT_REQUEST_GENERATE, deadline_ms, below(3));
    }
}

/* Choices of one prompt, some of which may not come, or to one worker alone. */
static void random_group(void)
{
    const uint32_t router = below(SIM_ROUTERS);
    const uint32_t d = a_receiver();
    const uint32_t p = a_sender();
    const bool local = (p == d) || chance(20);
    const uint32_t deadline_ms = chance(30) ? 1 + below(60) : 400;
    const uint32_t n = 2 + below(SIM_MAX_SEQS - 1);
    const uint32_t n_tokens = 1 + below(40);
    const uint32_t max_new = 1 + below(chance(grows ? 70 : 20) ? 50 : 8);
    const bool is_held = chance(5);
    const uint32_t priority = below(3);
    sim_req_t *first =
        sim_group_new(router, local ? d : p, d, n, n_tokens, max_new);

    first->hold_grant = is_held;
    for (uint32_t i = 0; i < n; i++) {
        if (local) {
            sim_send_leg(&first[i], 1, BT_REQUEST_LOCAL, deadline_ms, priority);
            continue;
        }
        if (!chance(3)) {
            sim_send_leg(&first[i], 0, BT_REQUEST_PREFILL, deadline_ms,
                         priority);
        }
        if (!chance(3)) {
            sim_send_leg(&first[i], 1, BT_REQUEST_GENERATE, deadline_ms,
                         priority);
        }
    }
    n_parties++;
}

static void random_cancel(void)
{
    const sim_req_t *req;

    if (sim.n_reqs == 0) {
        return;
    }
    req = &sim.reqs[below(sim.n_reqs)];
    if (chance(70)) {
        sim_cancel(req);
    } else {
        sim_cancel_leg(req, below(2));
    }
}

/* May the one send to the other? */
static bool knows(uint32_t p, uint32_t d)
{
    return (p != d) && sim_is(p, BT_ROLE_PREFILL) && sim_is(d, BT_ROLE_DECODE);
}

static void random_link(void)
{
    const uint32_t router = below(SIM_ROUTERS);
    const uint32_t n = below(sim.n_nodes);
    bt_link_t *link = sim.nodes[n].links[router];

    if (link != NULL) {
        bt_link_close(link, "cut");
        for (uint32_t p = 0; p < sim.n_nodes; p++) {
            if (knows(p, n) && chance(80)) {
                sim_peer_gone(router, p, n);
            }
        }
    }
    if (chance(90) && !sim.nodes[n].dead) {
        sim_link_up(router, n);
        for (uint32_t p = 0; p < sim.n_nodes; p++) {
            for (uint32_t d = 0; d < sim.n_nodes; d++) {
                if (((n == p) || (n == d)) && knows(p, d)) {
                    sim_peer(router, p, d);
                }
            }
        }
    }
}

static void random_round(uint32_t *stopped)
{
    if (chance(25) && (sim.n_reqs + 1 < SIM_MAX_REQS)) {
        random_request();
    }
    if (chance(8) && (sim.n_reqs + SIM_MAX_SEQS + 1 < SIM_MAX_REQS)) {
        random_group();
    }
    if (chance(8)) {
        random_cancel();
    }
    if (chance(2)) {
        random_link();
    }
    if (is_mixed && chance(5)) {
        const uint32_t n = below(sim.n_nodes);

        sim_role(below(SIM_ROUTERS), n, 1 + below(BT_ROLES_BOTH));
    }
    if (chance(1) && (*stopped == 0)) {
        *stopped = 1 + below(sim.n_nodes);
        sim_stop(*stopped - 1, true);
        ever_stopped = true;
    } else if (chance(3) && (*stopped != 0)) {
        sim_stop(*stopped - 1, false);
        *stopped = 0;
    }
    if (chance(2)) {
        sim.fail_node = &sim.nodes[below(sim.n_nodes)];
        sim.fail_nth = 1 + (int)below(6);
    }
    sim_round();
    sim.fail_node = NULL;
}

/* What ends a process, in the middle of a life. */
static void random_blow(void)
{
    const uint32_t n = below(sim.n_nodes);

    switch (below(12)) {
    case 0:
    case 1:
        sim_kill(n);
        break;
    case 2:
        sim.nodes[n].engine.broken = true;
        break;
    case 3:
        sim_terminate(&sim.nodes[n]);
        break;
    default:
        break;
    }
}

/* Who was in a closed batch at the last look. */
#define MOST_IN_BATCH 64u
static struct {
    uint32_t n;
    uint64_t ids[MOST_IN_BATCH];
} closed[SIM_MAX_NODES];

static bool was_in(uint32_t node, uint64_t id)
{
    for (uint32_t i = 0; i < closed[node].n; i++) {
        if (closed[node].ids[i] == id) {
            return true;
        }
    }
    return false;
}

/* All that have begun to generate, or are to, of one worker. */
static uint32_t list_batch(const sim_node_t *node, uint64_t *ids)
{
    uint32_t n = 0;

    for (bt_list_t *pos = node->w.jobs.next; pos != &node->w.jobs;
         pos = pos->next) {
        const bt_job_t *job = BT_CONTAINER_OF(pos, bt_job_t, link);
        const bt_decode_job_t *dj = (const bt_decode_job_t *)job;

        if ((job->ops == &bt_decode_ops) &&
            ((job->claim.part != BT_SCHED_OUTSIDE) ||
             (dj->phase == BT_DECODE_SHARING))) {
            assert_true(n < MOST_IN_BATCH);
            ids[n++] = job->key.id; /* of one attempt each */
        }
    }
    return n;
}

/* As long as one of a closed batch is left, nobody comes to it. */
static void check_batches(void)
{
    for (uint32_t i = 0; i < sim.n_nodes; i++) {
        const sim_node_t *node = &sim.nodes[i];
        uint64_t ids[MOST_IN_BATCH];
        uint32_t n_old = 0;
        uint32_t n;

        if (node->dead || node->over) {
            closed[i].n = 0;
            continue;
        }
        n = list_batch(node, ids);
        for (uint32_t k = 0; k < n; k++) {
            n_old += was_in(i, ids[k]);
        }
        assert_true((n_old == 0) || (n_old == n));
        assert_true(node->w.admit.batch.is_static ||
                    !node->w.admit.batch.is_closed);
        closed[i].n = node->w.admit.batch.is_closed ? n : 0;
        memcpy(closed[i].ids, ids, n * sizeof(*ids));
        n_shared_batches += closed[i].n > 1;
    }
}

/* Everything that still lives is told to stop. */
static void cancel_all(void)
{
    for (uint32_t i = 0; i < sim.n_reqs; i++) {
        sim_cancel(&sim.reqs[i]);
    }
}

static void one_life(uint32_t seed)
{
    static const bt_kvt_mem_fault_t faults[] = {
        BT_KVT_MEM_NONE,    BT_KVT_MEM_DUPLICATE, BT_KVT_MEM_REORDER,
        BT_KVT_MEM_DELAY,   BT_KVT_MEM_CORRUPT,   BT_KVT_MEM_LOSE,
        BT_KVT_MEM_KILL_TO, BT_KVT_MEM_KILL_FROM,
    };
    static const uint32_t groups[] = {1, 2, 1, SIM_LAYERS};
    static const uint32_t roles[] = {BT_ROLES_BOTH, BT_ROLES_BOTH,
                                     BT_ROLES_BOTH};
    const uint32_t n_groups = groups[seed % 4];
    const uint32_t window = (seed / 4 % 2 == 0) ? 0 : 2 + seed / 8 % 16;
    uint32_t stopped = 0;
    uint32_t p_blocks;
    uint32_t d_blocks;
    bt_kvt_path_t path;
    uint32_t step;

    rng = seed;
    (void)below(2);
    p_blocks = 8 + below(30);
    d_blocks = grows ? 14 + below(8) : 16 + below(30);
    path = chance(50) ? BT_KVT_PATH_AUTO : BT_KVT_PATH_NETWORK;
    sim_set_window(window);
    if (is_mixed) {
        sim_open_mixed(n_groups, 3, roles, d_blocks * n_groups, path);
    } else {
        sim_open_groups(n_groups, 2, p_blocks * n_groups, d_blocks * n_groups,
                        path);
    }
    if (grows) {
        sim_let_grow();
    }
    if (seed % 3 == 0) {
        sim_batch_statically();
    }
    sim.cut_losses = true;
    sim.ends_are_deaths = true;
    sim.lend_prompts = (seed / 4 % 2 == 1);
    sim_order_prompts((bt_sched_order_t)(seed / 8 % BT_SCHED_N_ORDERS));
    ever_stopped = false;
    memset(closed, 0, sizeof(closed));
    step = 1 + below(400);
    bt_kvt_mem_net_fault(sim.net, step,
                         faults[below(sizeof(faults) / sizeof(faults[0]))]);
    for (uint32_t i = 0; i < N_ROUNDS; i++) {
        random_round(&stopped);
        check_batches();
        if (i == N_ROUNDS / 2) {
            random_blow();
        }
    }
    if (stopped != 0) {
        sim_stop(stopped - 1, false);
    }
    if (chance(70)) {
        cancel_all(); /* else: deadlines and ends */
    }
    sim_settle();
    sim_check_empty();
    /* Whoever runs confirms: the fence is for the stopped only. */
    assert_true(ever_stopped || (sim.n_fenced == 0));
    n_requests += sim.n_reqs;
    for (uint32_t i = 0; i < sim.n_reqs; i++) {
        n_answered += sim.reqs[i].finished ? 1 : 0;
    }
    for (uint32_t i = 0; i < sim.n_nodes; i++) {
        n_reused += sim.nodes[i].w.stats.n_blocks_reused;
        n_slid += sim.nodes[i].w.stats.n_blocks_slid;
        n_pauses += sim.nodes[i].w.preemption.n_pauses;
        n_resumes += sim.nodes[i].w.preemption.n_resumes;
        n_recomputed += sim.nodes[i].w.preemption.tokens_recomputed;
        n_sat_out += sim.nodes[i].engine.n_sat_out;
    }
    sim_close();
}

static uint32_t number_of(const char *name, uint32_t otherwise)
{
    const char *text = getenv(name);

    return (text == NULL) ? otherwise : (uint32_t)strtoul(text, NULL, 10);
}

static void all_lives(void)
{
    const uint32_t only = number_of("BATON_TEST_SEED", 0);
    const uint32_t n =
        number_of("BATON_TEST_LIVES", N_LIVES / bt_test_stride(3));

    n_requests = n_answered = n_reused = n_parties = n_sat_out = 0;
    n_shared_batches = 0;
    n_pauses = n_resumes = n_recomputed = n_slid = 0;
    sim_expect_failures(); /* they are what this is about: each is logged */
    bt_log_init("sim", (only != 0) ? BT_LOG_LEVEL_DEBUG : BT_LOG_LEVEL_ERROR);
    for (uint32_t i = 0; i < ((only != 0) ? 1 : n); i++) {
        const uint32_t seed = (only != 0) ? only : 1 + i;

        print_message("seed %u\n", seed);
        one_life(seed);
    }
    bt_log_init("sim", BT_LOG_LEVEL_INFO);
    print_message("%u of %u requests were answered, %u groups, %u blocks "
                  "reused\n",
                  n_answered, n_requests, n_parties, n_reused);
    print_message("%llu pauses, %llu resumes, %llu tokens computed again, "
                  "%u iterations sat out\n",
                  (unsigned long long)n_pauses, (unsigned long long)n_resumes,
                  (unsigned long long)n_recomputed, n_sat_out);
    print_message("%llu blocks slid out of windows\n",
                  (unsigned long long)n_slid);
    assert_true((only != 0) || (n_reused > 0));
    assert_true((only != 0) || (n_slid > 0));
    assert_true((only != 0) || (n_shared_batches > 0));
    assert_true((only != 0) || (grows == (n_resumes > 0)));
    assert_true(n_resumes <= n_pauses);
    /* Those that grow are longer here, and more of them meet their deadline. */
    assert_true((only != 0) || (n_answered > n_requests / (grows ? 8 : 4)));
    sim_expected();
}

static void random_lives_release_everything(void **state)
{
    (void)state;
    is_mixed = false;
    grows = false;
    all_lives();
}

static void random_lives_in_both_roles_release_everything(void **state)
{
    (void)state;
    is_mixed = true;
    grows = false;
    all_lives();
}

static void random_lives_with_preemption_release_everything(void **state)
{
    (void)state;
    is_mixed = false;
    grows = true;
    all_lives();
}

static void
random_lives_with_preemption_in_both_roles_release_everything(void **state)
{
    (void)state;
    is_mixed = true;
    grows = true;
    all_lives();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(random_lives_release_everything),
        BT_TEST(random_lives_in_both_roles_release_everything),
        BT_TEST(random_lives_with_preemption_release_everything),
        BT_TEST(random_lives_with_preemption_in_both_roles_release_everything),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
