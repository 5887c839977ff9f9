/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that say anything at any time, come and go: what holds in the core
 * holds after each step. */
#include "tests/unit/router/core/core_checks.h"

#define WALK_STEPS 150000

static uint32_t draw(uint64_t *rng, uint32_t n)
{
    *rng = *rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*rng >> 33) % n;
}

static bt_instance_t *draw_worker(world_t *w, uint64_t *rng)
{
    const bt_list_t *head = &bt_core_table(w->core)->workers;
    bt_instance_t *worker = NULL;
    uint32_t n = 0;

    for (bt_list_t *pos = head->next; pos != head; pos = pos->next) {
        if (draw(rng, ++n) == 0) {
            worker = BT_CONTAINER_OF(pos, bt_instance_t, link);
        }
    }
    return worker;
}

/* A leg that some worker has, so that most of what is said is about one. */
static bool draw_leg(world_t *w, uint64_t *rng, bt_instance_t **worker_p,
                     bt_req_key_t *key_p)
{
    bt_instance_t *worker = draw_worker(w, rng);
    uint32_t n = 0;

    if (worker == NULL) {
        return false;
    }
    *worker_p = worker;
    for (bt_list_t *pos = worker->legs.next; pos != &worker->legs;
         pos = pos->next) {
        const bt_leg_t *leg = BT_CONTAINER_OF(pos, bt_leg_t, link);

        if (draw(rng, ++n) == 0) {
            key_p->id = leg->gen->id;
            key_p->attempt = leg->attempt;
        }
    }
    return n > 0;
}

static void say_something(world_t *w, uint64_t *rng)
{
    const bt_finish_t finish[] = {BT_FINISH_NONE,  BT_FINISH_NONE,
                                  BT_FINISH_NONE,  BT_FINISH_STOP,
                                  BT_FINISH_ERROR, BT_FINISH_LENGTH};
    const bt_status_t why[] = {BT_ERR_CANCELED, BT_ERR_CANCELED,
                               BT_ERR_PEER_LOST, BT_ERR_TOO_LARGE,
                               BT_ERR_CORRUPT};
    bt_instance_t *worker;
    bt_req_key_t key;

    if (!draw_leg(w, rng, &worker, &key)) {
        return;
    }
    switch (draw(rng, 12)) {
    case 0:
        ended(w, worker, key);
        break;
    case 1:
        failed(w, worker, key, why[draw(rng, BT_ARRAY_LEN(why))], "x");
        break;
    case 2:
    case 3:
        joined(w, worker, key, 1);
        break;
    case 4:
        prefilled(w, worker, key);
        break;
    case 5:
        grant(w, worker, key);
        break;
    default:
        tokens(w, worker, key, draw(rng, 6), "a",
               finish[draw(rng, BT_ARRAY_LEN(finish))]);
        break;
    }
}

/* Some say what things take there: 1 ms a token, or a sequence. */
static void measure(world_t *w, bt_instance_t *worker, uint64_t *rng)
{
    bt_msg_t stats = {.type = BT_MSG_STATS};

    stats.u.stats.generation_requests = (uint32_t)draw(rng, 3);
    stats.u.stats.rates.prefill_token_ns = draw(rng, 3) * 1000000;
    stats.u.stats.rates.decode_seq_ns = draw(rng, 2) * 1000000;
    stats.u.stats.rates.transfer_start_ns = draw(rng, 2) * 5000000;
    say(w, worker, &stats);
}

static void change_workers(world_t *w, uint64_t *rng)
{
    static const uint32_t flags[] = {0, BT_HELLO_LOCAL_PREFILL,
                                     BT_HELLO_LOCAL_PREFILL |
                                         BT_HELLO_LOCAL_WEIGHED |
                                         BT_HELLO_KEEPS_PROMPTS};
    bt_instance_t *worker = draw_worker(w, rng);
    uint32_t n = 0;

    for (bt_list_t *pos = bt_core_table(w->core)->workers.next;
         pos != &bt_core_table(w->core)->workers; pos = pos->next) {
        n++;
    }
    if ((worker != NULL) && (draw(rng, 60) == 0)) {
        lose(w, worker);
    } else if (n < 5) {
        const bool prefills = draw(rng, 2) == 0;

        worker =
            join_flags(w, "w", prefills ? BT_ROLE_PREFILL : BT_ROLE_DECODE,
                       prefills ? 0 : flags[draw(rng, BT_ARRAY_LEN(flags))]);
        measure(w, worker, rng);
    }
}

static void draw_tenant(uint64_t *rng)
{
    next_tenant = (bt_gen_tenant_t){.id = draw(rng, 4)};
    next_tenant.weight = draw(rng, 3);
    next_tenant.kv_percent = draw(rng, 3) * 30;
}

static void walk(uint64_t rng)
{
    static client_t clients[8];
    world_t *w = &world;

    memset(clients, 0, sizeof(clients));
    start(w, BT_ARRAY_LEN(clients));
    for (unsigned step = 0; step < WALK_STEPS; step++) {
        client_t *c = &clients[draw(&rng, BT_ARRAY_LEN(clients))];

        w->n_sent = 0;
        w->now += draw(&rng, 20) * MS;
        switch (draw(&rng, 24)) {
        case 0:
            change_workers(w, &rng);
            break;
        case 1:
            bt_core_tick(w->core, w->now);
            break;
        case 2:
        case 3:
            if (c->gen == NULL) {
                if (has_tenants) {
                    draw_tenant(&rng);
                }
                submit(w, c, "The", 1 + draw(&rng, 6), NULL);
                c->cancel_on_text = draw(&rng, 8) == 0;
            } else if (draw(&rng, 10) == 0) {
                bt_core_cancel(w->core, c->gen, w->now);
                c->gen = NULL;
            }
            break;
        default:
            say_something(w, &rng);
            break;
        }
        assert_consistent(w->core);
    }
    /* Both ways of those that are weighed were gone. */
    assert_true(w->n_sent_so[BT_SCHED_WEIGHED_SO] > 0);
    assert_true(w->n_sent_so[BT_SCHED_BY_PHASES] > 0);
    bt_core_destroy(w->core);
}

static void invariants_hold_in_a_random_run(void **state)
{
    (void)state;
    n_lost = 0;
    walk(7);
    has_tenants = true;
    walk(8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(invariants_hold_in_a_random_run),
    };

    /* Thousands of re-runs are worth a line in life only. */
    bt_log_init("test_core_walk", BT_LOG_LEVEL_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
