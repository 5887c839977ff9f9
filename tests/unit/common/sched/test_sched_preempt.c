/* SPDX-License-Identifier: Apache-2.0 */
/* Who grows, who is paused, who goes on: single decisions, by hand, and lives
 * of a worker through random events with the pool of common/kv and the
 * admission of sched_admit.h. At each step every block is held once or free,
 * the first in order is nobody's victim and draws unless what it needs is held
 * by those who are on their way out or none of the running; in the end all have
 * ended.
 *
 * BATON_TEST_SEED=N    only this life
 * BATON_TEST_EVENTS=N  that many, 1,000,000 otherwise */
#include "tests/support/testsupport.h"

#include <stdlib.h>
#include <string.h>

#include "common/kv/kv_block_pool.h"
#include "common/sched/sched_admit.h"
#include "common/sched/sched_preempt.h"

#define T        4u /* tokens per block */
#define AHEAD    3u
#define MAX_JOBS 24u
#define BLOCKS   40u /* at most */
#define N_ROUNDS 400u
#define N_DRAIN  20000u

/* ---- by hand ---- */

static bt_sched_kv_demand_t grower_of(uint32_t n_known, uint32_t n_held,
                                      uint64_t since_us)
{
    bt_sched_kv_demand_t g = {
        .n_known = n_known, .n_held = n_held, .n_most = 50};

    bt_sched_turn_init(&g.turn, 0, since_us);
    return g;
}

static void sequence_begins_with_its_blocks_and_some_ahead(void **state)
{
    bt_sched_preempt_t pause;
    bt_sched_kv_demand_t g = grower_of(9, 0, 0);

    (void)state;
    bt_sched_preempt_init(&pause, true, T, AHEAD);
    bt_list_init(&g.turn.link);
    /* 9 + 3 tokens; 9 + 6; 9 + 12; all 50 in the end. */
    assert_int_equal(bt_sched_preempt_begins_with(&pause, &g), 3);
    g.n_pauses = 1;
    assert_int_equal(bt_sched_preempt_begins_with(&pause, &g), 4);
    g.n_pauses = 2;
    assert_int_equal(bt_sched_preempt_begins_with(&pause, &g), 6);
    g.n_pauses = 6; /* 9 + 192 tokens are 51 */
    assert_int_equal(bt_sched_preempt_begins_with(&pause, &g), 50);
    g.n_pauses = UINT32_MAX;
    assert_int_equal(bt_sched_preempt_begins_with(&pause, &g), 50);
    bt_sched_preempt_init(&pause, false, T, AHEAD);
    g.n_pauses = 0;
    assert_int_equal(bt_sched_preempt_begins_with(&pause, &g), 50);
}

static void newest_sequence_is_preempted_and_never_the_oldest(void **state)
{
    bt_sched_kv_demand_t a = grower_of(6, 2, 10); /* lacks one: 9 tokens */
    bt_sched_kv_demand_t b = grower_of(4, 2, 20);
    bt_sched_kv_demand_t c = grower_of(14, 4, 30); /* lacks one: 17 tokens */
    bt_sched_kv_demand_t *who = NULL;
    bt_sched_preempt_t pause;
    uint32_t n = 0;

    (void)state;
    bt_list_init(&a.turn.link);
    bt_list_init(&b.turn.link);
    bt_list_init(&c.turn.link);
    bt_sched_preempt_init(&pause, true, T, AHEAD);
    assert_int_equal(bt_sched_preempt_next(&pause, 0, &who, &n),
                     BT_SCHED_ENOUGH);
    bt_sched_preempt_in(&pause, &c, false);
    bt_sched_preempt_in(&pause, &a, false);
    bt_sched_preempt_in(&pause, &b, false);
    assert_int_equal(bt_sched_preempt_spare(&pause), 3);
    /* The first of those that lack some, whatever is free. */
    assert_int_equal(bt_sched_preempt_next(&pause, 1, &who, &n), BT_SCHED_GROW);
    assert_ptr_equal(who, &a);
    assert_int_equal(n, 1);
    assert_int_equal(bt_sched_preempt_next(&pause, 0, &who, &n),
                     BT_SCHED_PAUSE);
    assert_ptr_equal(who, &c);
    bt_sched_preempt_out(&pause, &c);
    bt_sched_preempt_in(&pause, &c, true);
    assert_int_equal(bt_sched_preempt_next(&pause, 0, &who, &n),
                     BT_SCHED_AWAIT);
    assert_true(pause.lacks);
    assert_false(bt_sched_preempt_is_stuck(&pause));
    bt_sched_preempt_out(&pause, &c);
    assert_int_equal(bt_sched_preempt_next(&pause, 4, &who, &n), BT_SCHED_GROW);
    a.n_held = 3;
    assert_int_equal(bt_sched_preempt_next(&pause, 3, &who, &n),
                     BT_SCHED_ENOUGH);
    assert_false(pause.lacks);
    /* The last one that lacks some sits out, and keeps what it has. */
    b.n_known = 6;
    assert_int_equal(bt_sched_preempt_next(&pause, 0, &who, &n),
                     BT_SCHED_SHORT);
    assert_false(bt_sched_preempt_is_stuck(&pause));
    bt_sched_preempt_out(&pause, &a);
    assert_int_equal(bt_sched_preempt_next(&pause, 0, &who, &n),
                     BT_SCHED_SHORT);
    assert_true(bt_sched_preempt_is_stuck(&pause));
    bt_sched_preempt_out(&pause, &b);
    bt_sched_preempt_out(&pause, &b);
    assert_false(pause.lacks);
    assert_int_equal(bt_sched_preempt_spare(&pause), 0);
}

static void preemption_order_counts_priority_levels(void **state)
{
    bt_sched_kv_demand_t old = grower_of(4, 2, 0);
    bt_sched_kv_demand_t high = grower_of(6, 2, 4999999); /* of level 1 */
    bt_sched_kv_demand_t *who = NULL;
    bt_sched_preempt_t pause;
    uint32_t n = 0;

    (void)state;
    bt_list_init(&old.turn.link);
    bt_list_init(&high.turn.link);
    high.turn.priority = 1;
    bt_sched_preempt_init(&pause, true, T, AHEAD);
    bt_sched_preempt_in(&pause, &old, false);
    bt_sched_preempt_in(&pause, &high, false);
    assert_int_equal(bt_sched_preempt_next(&pause, 0, &who, &n),
                     BT_SCHED_PAUSE);
    assert_ptr_equal(who, &old);
}

/* ---- random lives ---- */

typedef enum life { NONE, WAITS, LEASED, RUNS, LEAVES, STOPS } life_t;

typedef struct job {
    bt_sched_claim_t claim;
    bt_sched_kv_demand_t grower;
    life_t life;
    bool is_lease; /* its KV comes from elsewhere, after a while */
    bool is_paused;
    uint32_t n_answer; /* tokens that it will draw */
    uint32_t n_drawn;
    uint32_t n_small_pauses; /* while it held less than all */
    uint32_t ids[BLOCKS];
} job_t;

static struct world {
    bt_kv_pool_t *pool;
    uint32_t n_blocks;
    bt_sched_admit_t admit;
    bt_sched_preempt_t pause;
    job_t jobs[MAX_JOBS];
    uint32_t n_seats, n_inside;
    uint64_t now_us;
    uint64_t rng;
    uint64_t n_events, n_pauses, n_resumes, n_ended, n_came, n_sat_out;
    uint32_t strange[BLOCKS], n_strange; /* blocks of context phases */
} w;

static uint32_t below(uint32_t n)
{
    w.rng = w.rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w.rng >> 33) % n;
}

static void give_back(job_t *job)
{
    for (uint32_t i = 0; i < job->grower.n_held; i++) {
        bt_kv_pool_unref(w.pool, job->ids[i]);
    }
    job->grower.n_held = 0;
}

static void end(job_t *job)
{
    bt_list_remove(&job->claim.turn.link);
    bt_sched_preempt_out(&w.pause, &job->grower);
    if (job->claim.is_leased) {
        bt_sched_admit_free_lease(&w.admit, &job->claim);
    }
    give_back(job);
    job->life = NONE;
    w.n_ended++;
}

static void wait_for_turn(job_t *job)
{
    job->life = WAITS;
    job->claim.n_blocks = bt_sched_preempt_begins_with(&w.pause, &job->grower);
    bt_sched_queue_insert(&w.admit.leases, &job->claim.turn);
}

static void arrive(void)
{
    const uint32_t n_prompt = 1 + below(30);
    const uint32_t max_new = 1 + below(60);
    const uint32_t priority = below(3);
    job_t *job = NULL;

    for (uint32_t i = 0; i < MAX_JOBS; i++) {
        job = (w.jobs[i].life == NONE) ? &w.jobs[i] : job;
    }
    if ((job == NULL) || ((n_prompt + max_new - 1 + T - 1) / T > w.n_blocks)) {
        return;
    }
    memset(job, 0, sizeof(*job));
    w.n_came++;
    job->is_lease = below(2) == 0;
    job->claim.want = job->is_lease ? BT_SCHED_LEASE : BT_SCHED_BOTH_PHASES;
    job->n_answer = (below(3) == 0) ? max_new : 1 + below(max_new);
    job->grower.n_known = n_prompt;
    job->grower.n_most = (n_prompt + max_new - 1 + T - 1) / T;
    bt_sched_turn_init(&job->claim.turn, priority, w.now_us);
    bt_sched_turn_init(&job->grower.turn, priority, w.now_us);
    wait_for_turn(job);
}

static void begin_to_run(job_t *job)
{
    if (job->claim.is_leased) {
        bt_sched_admit_free_lease(&w.admit, &job->claim);
    }
    job->life = RUNS;
    w.n_inside++;
    bt_sched_preempt_in(&w.pause, &job->grower, false);
}

static void on_way_out(job_t *job, life_t life)
{
    job->life = life;
    bt_sched_preempt_out(&w.pause, &job->grower);
    bt_sched_preempt_in(&w.pause, &job->grower, true);
}

static job_t *job_of(bt_sched_kv_demand_t *grower)
{
    return BT_CONTAINER_OF(grower, job_t, grower);
}

static void check_victim(const job_t *victim)
{
    const bt_sched_kv_demand_t *first =
        bt_sched_kv_demand_of(bt_sched_queue_first(&w.pause.running));

    assert_int_equal(victim->life, RUNS);
    for (bt_list_t *pos = w.pause.running.next; pos != &w.pause.running;
         pos = pos->next) {
        const bt_sched_kv_demand_t *g =
            bt_sched_kv_demand_of(bt_sched_turn_of(pos));

        /* Nobody who stays stands behind it, nobody else is on its way. */
        assert_true(!g->leaves &&
                    !bt_sched_turn_before(&victim->grower.turn, &g->turn));
    }
    assert_ptr_not_equal(&victim->grower, first);
}

/* As worker/preempt.c. */
static bool serve(void)
{
    bt_sched_kv_demand_t *who = NULL;
    uint32_t n = 0;

    for (;;) {
        switch (bt_sched_preempt_next(&w.pause, bt_kv_pool_n_free(w.pool), &who,
                                      &n)) {
        case BT_SCHED_ENOUGH:
            return true;
        case BT_SCHED_GROW:
            assert_in_range(n, 1, bt_kv_pool_n_free(w.pool));
            assert_int_equal(
                bt_kv_pool_acquire(w.pool, n, job_of(who)->ids + who->n_held),
                BT_OK);
            who->n_held += n;
            assert_true(who->n_held <= who->n_most);
            break;
        case BT_SCHED_PAUSE:
            check_victim(job_of(who));
            job_of(who)->n_small_pauses += (who->n_held < who->n_most);
            on_way_out(job_of(who), LEAVES);
            w.n_pauses++;
            break;
        case BT_SCHED_AWAIT:
        case BT_SCHED_SHORT:
            return false;
        }
    }
}

static bool begin(job_t *job)
{
    const uint32_t n_spare = bt_sched_preempt_spare(&w.pause);
    const uint32_t n_free = bt_kv_pool_n_free(w.pool);
    const uint32_t n = job->claim.n_blocks;

    if (bt_sched_admit_judge(&w.admit, &job->claim, n,
                             (n_free > n_spare) ? n_free - n_spare : 0) !=
        BT_SCHED_BEGIN) {
        return false;
    }
    assert_false(w.pause.lacks);
    bt_list_remove(&job->claim.turn.link);
    assert_int_equal(bt_kv_pool_acquire(w.pool, n, job->ids), BT_OK);
    job->grower.n_held = n;
    if (job->is_lease && !job->is_paused) {
        job->life = LEASED;
        bt_sched_admit_hold_lease(&w.admit, &job->claim);
    } else {
        w.n_resumes += job->is_paused;
        begin_to_run(job);
    }
    return true;
}

/* As worker/preempt.c. */
static void admit(void)
{
    bt_sched_claim_t *claim = NULL;

    do {
        if (!serve()) {
            return;
        }
        claim = bt_sched_admit_next(&w.admit, w.n_seats - w.n_inside -
                                                  w.admit.leased_seats);
    } while ((claim != NULL) && begin(BT_CONTAINER_OF(claim, job_t, claim)));
}

/* One iteration of the engine. */
static void iterate(void)
{
    for (uint32_t i = 0; i < MAX_JOBS; i++) {
        job_t *job = &w.jobs[i];

        if ((job->life == LEAVES) || (job->life == STOPS)) {
            w.n_inside--;
            if (job->life == STOPS) {
                end(job);
                continue;
            }
            bt_sched_preempt_out(&w.pause, &job->grower);
            give_back(job);
            job->is_paused = true;
            job->grower.n_pauses++;
            job->claim.want = BT_SCHED_BOTH_PHASES;
            wait_for_turn(job);
        } else if ((job->life == RUNS) &&
                   (job->grower.n_known <= job->grower.n_held * T)) {
            job->n_drawn++;
            job->grower.n_known++;
            if (job->n_drawn == job->n_answer) {
                w.n_inside--;
                end(job);
            }
        } else if (job->life == RUNS) {
            w.n_sat_out++;
        }
    }
    w.now_us += 1000;
}

/* The first that runs has room for its next token, or others hold it. */
static void check_first(void)
{
    const bt_sched_turn_t *turn = bt_sched_queue_first(&w.pause.running);
    const bt_sched_kv_demand_t *first;
    bool others = w.n_strange > 0;

    for (uint32_t i = 0; i < MAX_JOBS; i++) {
        others = others || (w.jobs[i].life == LEASED) ||
                 (w.jobs[i].life == LEAVES) || (w.jobs[i].life == STOPS);
    }
    if ((turn == NULL) || others) {
        return;
    }
    first = bt_sched_kv_demand_of((bt_sched_turn_t *)(uintptr_t)turn);
    assert_true(first->n_known <= first->n_held * T);
}

static void check_blocks(void)
{
    uint8_t seen[BLOCKS] = {0};
    uint32_t n = bt_kv_pool_n_free(w.pool) + w.n_strange;

    for (uint32_t i = 0; i < w.n_strange; i++) {
        assert_int_equal(seen[w.strange[i]]++, 0);
    }
    for (uint32_t i = 0; i < MAX_JOBS; i++) {
        const job_t *job = &w.jobs[i];

        if (job->life == NONE) {
            continue;
        }
        assert_true((job->life != WAITS) || (job->grower.n_held == 0));
        /* 3 << 5 tokens ahead are more than any answer has. */
        assert_true(job->n_small_pauses <= 6);
        n += job->grower.n_held;
        for (uint32_t k = 0; k < job->grower.n_held; k++) {
            assert_int_equal(seen[job->ids[k]]++, 0);
        }
    }
    assert_int_equal(n, w.n_blocks);
}

static void context_phases(void)
{
    if ((w.n_strange > 0) && (below(3) > 0)) {
        bt_kv_pool_unref(w.pool, w.strange[--w.n_strange]);
    } else if (!w.pause.lacks && (bt_kv_pool_n_free(w.pool) > 0) &&
               (w.n_strange < 6)) {
        assert_int_equal(bt_kv_pool_acquire(w.pool, 1, &w.strange[w.n_strange]),
                         BT_OK);
        w.n_strange++;
    }
}

static void cancel(job_t *job)
{
    switch (job->life) {
    case WAITS:
    case LEASED:
        end(job);
        break;
    case RUNS:
    case LEAVES:
        on_way_out(job, STOPS);
        break;
    case NONE:
    case STOPS:
        break;
    }
}

static void random_event(uint32_t load)
{
    const uint32_t what = below(100);
    job_t *job = &w.jobs[below(MAX_JOBS)];

    w.n_events++;
    if (what < load) {
        arrive();
    } else if (what < load + 3) {
        cancel(job);
    } else if (what < load + 10) {
        context_phases();
    } else if (what < load + 25) {
        if (job->life == LEASED) { /* its KV is there */
            begin_to_run(job);
            job->grower.n_known++;
            job->n_drawn++;
            if (job->n_drawn == job->n_answer) {
                w.n_inside--;
                end(job);
            }
        }
    } else {
        iterate();
    }
    admit();
    check_blocks();
    check_first();
}

static bool is_idle(void)
{
    for (uint32_t i = 0; i < MAX_JOBS; i++) {
        if (w.jobs[i].life != NONE) {
            return false;
        }
    }
    return true;
}

static void one_life(uint32_t seed)
{
    uint32_t load;
    uint32_t n = 0;

    w.rng = seed;
    memset(w.jobs, 0, sizeof(w.jobs));
    w.n_blocks = 12 + below(BLOCKS - 12 + 1);
    w.n_seats = 2 + below(8);
    w.n_inside = w.n_strange = 0;
    load = 2 + below(30);
    assert_int_equal(bt_kv_pool_create(w.n_blocks, &w.pool), BT_OK);
    bt_sched_admit_init(&w.admit, w.n_blocks, w.n_seats, 50);
    bt_sched_preempt_init(&w.pause, true, T, AHEAD);
    for (uint32_t i = 0; i < N_ROUNDS; i++) {
        random_event(load);
    }
    while (!is_idle()) { /* leases come, strangers end, all draw */
        for (uint32_t i = 0; i < MAX_JOBS; i++) {
            if (w.jobs[i].life == LEASED) {
                begin_to_run(&w.jobs[i]);
            }
        }
        if (w.n_strange > 0) {
            bt_kv_pool_unref(w.pool, w.strange[--w.n_strange]);
        }
        iterate();
        admit();
        check_blocks();
        check_first();
        assert_true(n++ < N_DRAIN);
    }
    while (w.n_strange > 0) {
        bt_kv_pool_unref(w.pool, w.strange[--w.n_strange]);
    }
    assert_int_equal(bt_kv_pool_n_free(w.pool), w.n_blocks);
    bt_kv_pool_destroy(w.pool);
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return (text == NULL) ? otherwise : strtoull(text, NULL, 10);
}

static void every_sequence_progresses_under_preemption(void **state)
{
    const uint64_t only = number_of("BATON_TEST_SEED", 0);
    const uint64_t n = number_of("BATON_TEST_EVENTS", 1000000);

    (void)state;
    memset(&w, 0, sizeof(w));
    for (uint32_t seed = 1; w.n_events < ((only != 0) ? 1 : n); seed++) {
        one_life((only != 0) ? (uint32_t)only : seed);
    }
    print_message("%llu events: %llu came, %llu ended, %llu pauses, %llu "
                  "resumes, %llu iterations sat out\n",
                  (unsigned long long)w.n_events, (unsigned long long)w.n_came,
                  (unsigned long long)w.n_ended, (unsigned long long)w.n_pauses,
                  (unsigned long long)w.n_resumes,
                  (unsigned long long)w.n_sat_out);
    assert_int_equal(w.n_came, w.n_ended);
    assert_true((only != 0) || (w.n_resumes > w.n_events / 1000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(sequence_begins_with_its_blocks_and_some_ahead),
        BT_TEST(newest_sequence_is_preempted_and_never_the_oldest),
        BT_TEST(preemption_order_counts_priority_levels),
        BT_TEST(every_sequence_progresses_under_preemption),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
