/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/sched/sched_place.h"

#define N 6u

static bt_list_t workers;
static bt_sched_worker_t all[N];
static uint32_t n_workers;
static uint64_t n_taken;
static bt_sched_placement_t got;

static void begin(void)
{
    bt_list_init(&workers);
    n_workers = 0;
    n_taken = 0;
}

/* 8 seats, 100 blocks. */
static bt_sched_worker_t *add(uint32_t roles)
{
    bt_sched_worker_t *worker = &all[n_workers];

    *worker = (bt_sched_worker_t){
        .id = 100 + n_workers, .roles = roles, .max_seats = 8, .n_blocks = 100};
    n_workers++;
    bt_list_push_back(&workers, &worker->link);
    return worker;
}

static bool place(const bt_sched_request_t *request)
{
    const bool here = bt_sched_place(&workers, request, &got);

    if (here) {
        bt_sched_take(&got, &n_taken);
    }
    return here;
}

/* A request of some tokens. */
static bool take(void)
{
    const bt_sched_request_t request = {.n_tokens = 10, .max_new = 20};

    return place(&request);
}

static bool take_one_token(void)
{
    const bt_sched_request_t request = {.n_tokens = 10, .max_new = 1};

    return place(&request);
}

static void assert_pair(const bt_sched_worker_t *prefill,
                        bt_sched_why_t prefill_why,
                        const bt_sched_worker_t *decode,
                        bt_sched_why_t decode_why)
{
    assert_ptr_equal(got.prefill, prefill);
    assert_ptr_equal(got.decode, decode);
    assert_int_equal(got.cause, BT_SCHED_BY_PHASES);
    assert_int_equal(got.prefill_why, prefill_why);
    assert_int_equal(got.decode_why, decode_why);
}

static void assert_local(const bt_sched_worker_t *worker,
                         bt_sched_cause_t cause)
{
    assert_null(got.prefill);
    assert_ptr_equal(got.decode, worker);
    assert_int_equal(got.cause, cause);
}

static void
prefill_worker_with_fewest_outstanding_tokens_is_chosen(void **state)
{
    bt_sched_worker_t *p0, *p1, *d0;

    (void)state;
    begin();
    assert_false(take());
    p0 = add(BT_SCHED_PREFILL);
    p1 = add(BT_SCHED_PREFILL);
    assert_false(take()); /* nobody decodes */
    d0 = add(BT_SCHED_DECODE);

    p0->prefill_tokens = 500;
    p1->prefill_tokens = 499;
    assert_true(take());
    assert_pair(p1, BT_SCHED_BY_LOAD, d0, BT_SCHED_ONLY_ONE);

    /* Equal: the one that was taken longest ago. */
    p0->prefill_tokens = 499;
    assert_true(take());
    assert_pair(p0, BT_SCHED_BY_TURN, d0, BT_SCHED_ONLY_ONE);
    assert_true(take());
    assert_pair(p1, BT_SCHED_BY_TURN, d0, BT_SCHED_ONLY_ONE);

    /* A queue of others there counts like as many tokens. */
    p0->reported_waiting = 1;
    p0->last_taken = p1->last_taken - 1;
    assert_true(take());
    assert_pair(p1, BT_SCHED_BY_LOAD, d0, BT_SCHED_ONLY_ONE);
}

static void decode_worker_with_most_free_seats_or_blocks_is_chosen(void **state)
{
    bt_sched_worker_t *p0, *d0, *d1;

    (void)state;
    begin();
    p0 = add(BT_SCHED_PREFILL);
    d0 = add(BT_SCHED_DECODE);
    d1 = add(BT_SCHED_DECODE);

    d0->seats = 3; /* 3 of 8 */
    d1->seats = 2; /* 2 of 8, but 50 of 100 blocks */
    d1->blocks = 50;
    assert_true(take());
    assert_pair(p0, BT_SCHED_ONLY_ONE, d0, BT_SCHED_BY_LOAD);

    /* Another router filled d0, as d0 says itself. */
    d0->reported_seats = 7;
    assert_true(take());
    assert_pair(p0, BT_SCHED_ONLY_ONE, d1, BT_SCHED_BY_LOAD);
    d0->reported_seats = 0;
    d0->reported_blocks = 51;
    assert_true(take());
    assert_pair(p0, BT_SCHED_ONLY_ONE, d1, BT_SCHED_BY_LOAD);
}

static void suspect_worker_is_chosen_only_without_a_healthy_one(void **state)
{
    bt_sched_worker_t *p0, *p1, *d0;

    (void)state;
    begin();
    p0 = add(BT_SCHED_PREFILL);
    p1 = add(BT_SCHED_PREFILL);
    d0 = add(BT_SCHED_DECODE);

    p0->health = BT_SCHED_SUSPECT;
    p1->prefill_tokens = 1000000;
    assert_true(take());
    assert_pair(p1, BT_SCHED_BY_HEALTH, d0, BT_SCHED_ONLY_ONE);
    assert_true(bt_sched_placement_is_healthy(&got));

    p1->health = BT_SCHED_DRAINING; /* never */
    assert_true(take());
    assert_pair(p0, BT_SCHED_ONLY_ONE, d0, BT_SCHED_ONLY_ONE);
    assert_false(bt_sched_placement_is_healthy(&got));

    d0->health = BT_SCHED_DRAINING;
    assert_false(take());
}

static void avoided_worker_is_chosen_when_all_others_are_suspect(void **state)
{
    static const uint64_t avoid[] = {100, 102};
    const bt_sched_request_t request = {
        .n_tokens = 1, .max_new = 2, .avoid = avoid, .n_avoid = 2};
    bt_sched_worker_t *p0, *p1, *d0;

    (void)state;
    begin();
    p0 = add(BT_SCHED_PREFILL); /* 100 */
    p1 = add(BT_SCHED_PREFILL);
    d0 = add(BT_SCHED_DECODE); /* 102 */
    p1->prefill_tokens = 5000;
    assert_true(place(&request));
    assert_pair(p1, BT_SCHED_BY_AVOIDING, d0, BT_SCHED_ONLY_ONE);
    p1->health = BT_SCHED_SUSPECT;
    assert_true(place(&request));
    assert_pair(p0, BT_SCHED_BY_HEALTH, d0, BT_SCHED_ONLY_ONE);
}

/* p2 wins by its load against p1, which came closest; p0 is suspect. */
static void placement_reason_names_the_deciding_criterion(void **state)
{
    bt_sched_worker_t *p[3], *d0;

    (void)state;
    for (uint32_t first = 0; first < 3; first++) { /* in any order */
        begin();
        for (uint32_t i = 0; i < 3; i++) {
            p[(first + i) % 3] = add(BT_SCHED_PREFILL);
        }
        d0 = add(BT_SCHED_DECODE);
        p[0]->health = BT_SCHED_SUSPECT;
        p[1]->prefill_tokens = 7;
        assert_true(take());
        assert_pair(p[2], BT_SCHED_BY_LOAD, d0, BT_SCHED_ONLY_ONE);
        p[1]->health = BT_SCHED_SUSPECT;
        assert_true(take());
        assert_pair(p[2], BT_SCHED_BY_HEALTH, d0, BT_SCHED_ONLY_ONE);
    }
}

static void
without_a_healthy_prefill_worker_a_local_one_does_both_phases(void **state)
{
    bt_sched_worker_t *d0, *p0;

    (void)state;
    begin();
    d0 = add(BT_SCHED_DECODE | BT_SCHED_LOCAL);
    assert_true(take());
    assert_local(d0, BT_SCHED_NO_PREFILL);
    assert_true(take_one_token());
    assert_local(d0, BT_SCHED_NO_PREFILL);

    p0 = add(BT_SCHED_PREFILL);
    assert_true(take());
    assert_pair(p0, BT_SCHED_ONLY_ONE, d0, BT_SCHED_ONLY_ONE);

    p0->health = BT_SCHED_SUSPECT;
    assert_true(take());
    assert_local(d0, BT_SCHED_NO_PREFILL);
    d0->health = BT_SCHED_SUSPECT; /* none is better: as they were meant */
    assert_true(take());
    assert_pair(p0, BT_SCHED_ONLY_ONE, d0, BT_SCHED_ONLY_ONE);
    assert_false(bt_sched_placement_is_healthy(&got));
    p0->health = BT_SCHED_DRAINING;
    assert_true(take());
    assert_local(d0, BT_SCHED_NO_PREFILL);
}

/* One prompt token here for four there, and none below 1,024. */
static void local_worker_takes_a_share_of_a_long_queue(void **state)
{
    bt_sched_worker_t *d0, *p0, *p1;

    (void)state;
    begin();
    d0 = add(BT_SCHED_DECODE | BT_SCHED_LOCAL);
    p0 = add(BT_SCHED_PREFILL);

    p0->prefill_tokens = 1023;
    assert_true(take());
    assert_pair(p0, BT_SCHED_ONLY_ONE, d0, BT_SCHED_ONLY_ONE);
    p0->prefill_tokens = 1024;
    assert_true(take());
    assert_local(d0, BT_SCHED_RELIEF);

    d0->prefill_tokens = 256;
    p0->prefill_tokens = 1024 + 4 * 256 - 1;
    assert_true(take());
    assert_pair(p0, BT_SCHED_ONLY_ONE, d0, BT_SCHED_ONLY_ONE);
    p0->prefill_tokens++;
    assert_true(take());
    assert_local(d0, BT_SCHED_RELIEF);

    /* Others are free, or the decode worker does not answer. */
    p1 = add(BT_SCHED_PREFILL);
    assert_true(take());
    assert_pair(p1, BT_SCHED_BY_LOAD, d0, BT_SCHED_ONLY_ONE);
    p1->prefill_tokens = 1u << 20;
    d0->health = BT_SCHED_SUSPECT;
    assert_true(take());
    assert_pair(p0, BT_SCHED_BY_LOAD, d0, BT_SCHED_ONLY_ONE);
}

/* The owner weighs it: it is named beside the pair, and takes no share of a
 * queue by itself. */
static void weighed_local_worker_is_returned_beside_the_pair(void **state)
{
    bt_sched_worker_t *d0, *p0;

    (void)state;
    begin();
    d0 = add(BT_SCHED_DECODE | BT_SCHED_LOCAL | BT_SCHED_WEIGHED);
    p0 = add(BT_SCHED_PREFILL);
    p0->prefill_tokens = 100000;
    assert_true(take());
    assert_pair(p0, BT_SCHED_ONLY_ONE, d0, BT_SCHED_ONLY_ONE);
    assert_ptr_equal(got.weighed, d0);
    bt_sched_place_weighed(&got);
    assert_local(d0, BT_SCHED_WEIGHED_SO);
    assert_null(got.weighed);
    assert_int_equal(got.decode_why, BT_SCHED_ONLY_ONE);
    assert_true(take_one_token());
    assert_int_equal(got.cause, BT_SCHED_ONE_TOKEN);
    assert_ptr_equal(got.weighed, d0);

    /* Full, the prefill worker may be worth waiting for; silent, it is not. */
    p0->is_behind = true;
    assert_true(take());
    assert_int_equal(got.cause, BT_SCHED_BY_PHASES);
    assert_ptr_equal(got.weighed, d0);
    assert_false(bt_sched_placement_takes(&got));
    p0->health = BT_SCHED_SUSPECT;
    assert_true(take());
    assert_local(d0, BT_SCHED_NO_PREFILL);
    p0->health = BT_SCHED_UP;
    p0->is_behind = false;

    /* Full itself, it is not named. */
    d0->is_behind = true;
    assert_true(take());
    assert_int_equal(got.cause, BT_SCHED_BY_PHASES);
    assert_null(got.weighed);
}

static void avoided_worker_is_not_weighed(void **state)
{
    const uint64_t avoid[] = {100};
    const bt_sched_request_t request = {
        .n_tokens = 10, .max_new = 20, .avoid = avoid, .n_avoid = 1};

    (void)state;
    begin();
    (void)add(BT_SCHED_DECODE | BT_SCHED_LOCAL | BT_SCHED_WEIGHED);
    (void)add(BT_SCHED_PREFILL);
    assert_true(place(&request));
    assert_int_equal(got.cause, BT_SCHED_BY_PHASES);
    assert_null(got.weighed);
}

static void local_worker_takes_no_share_of_other_queues(void **state)
{
    bt_sched_worker_t *p0, *d0;

    (void)state;
    begin();
    d0 = add(BT_SCHED_DECODE);
    p0 = add(BT_SCHED_PREFILL);
    p0->prefill_tokens = 1u << 20;
    assert_true(take());
    assert_pair(p0, BT_SCHED_ONLY_ONE, d0, BT_SCHED_ONLY_ONE);
}

static void one_token_request_takes_no_decode_worker(void **state)
{
    bt_sched_worker_t *p0, *d0;

    (void)state;
    begin();
    assert_false(take_one_token());
    d0 = add(BT_SCHED_DECODE);
    assert_false(take_one_token()); /* it has nobody to get KV from */
    p0 = add(BT_SCHED_PREFILL);
    assert_true(take_one_token());
    assert_ptr_equal(got.prefill, p0);
    assert_null(got.decode);
    assert_int_equal(got.cause, BT_SCHED_ONE_TOKEN);
    assert_int_equal(d0->last_taken, 0);
    d0->health = BT_SCHED_SUSPECT; /* is nothing to it */
    assert_true(take_one_token());
    assert_true(bt_sched_placement_is_healthy(&got));
    d0->health = BT_SCHED_DRAINING;
    assert_true(take_one_token());
    p0->health = BT_SCHED_SUSPECT;
    assert_true(take_one_token());
    assert_false(bt_sched_placement_is_healthy(&got));
}

static void worker_of_both_roles_is_a_candidate_for_both(void **state)
{
    bt_sched_worker_t *both, *p0, *d0;

    (void)state;
    begin();
    both = add(BT_SCHED_PREFILL | BT_SCHED_DECODE);
    assert_true(take());
    assert_local(both, BT_SCHED_BEST_TWICE);
    assert_true(take_one_token());
    assert_ptr_equal(got.prefill, both);
    assert_null(got.decode);

    p0 = add(BT_SCHED_PREFILL); /* taken longest ago */
    assert_true(take());
    assert_pair(p0, BT_SCHED_BY_TURN, both, BT_SCHED_ONLY_ONE);
    p0->prefill_tokens = 10;
    d0 = add(BT_SCHED_DECODE);
    both->seats = 1; /* a seat is a load where it decodes only */
    assert_true(take());
    assert_pair(both, BT_SCHED_BY_LOAD, d0, BT_SCHED_BY_LOAD);
    both->health = BT_SCHED_SUSPECT;
    assert_true(take());
    assert_pair(p0, BT_SCHED_BY_HEALTH, d0, BT_SCHED_BY_HEALTH);
}

/* No KV has to travel between two that can do all. */
static void workers_of_both_roles_are_not_paired(void **state)
{
    const uint32_t roles = BT_SCHED_PREFILL | BT_SCHED_DECODE | BT_SCHED_LOCAL;
    bt_sched_worker_t *a, *b, *d0;

    (void)state;
    begin();
    a = add(roles);
    b = add(roles);
    a->seats = 4;           /* b generates */
    b->prefill_tokens = 10; /* a prefills */
    assert_true(take());
    assert_local(b, BT_SCHED_BOTH_TWICE);
    d0 = add(BT_SCHED_DECODE);
    b->seats = 1;
    assert_true(take());
    assert_pair(a, BT_SCHED_BY_LOAD, d0, BT_SCHED_BY_LOAD);
}

static void every_placement_reason_has_a_name(void **state)
{
    (void)state;
    for (unsigned i = 0; i < BT_SCHED_N_CAUSES; i++) {
        assert_true(strlen(bt_sched_cause_name((bt_sched_cause_t)i)) > 0);
    }
    for (unsigned i = 0; i < BT_SCHED_N_WHYS; i++) {
        assert_true(strlen(bt_sched_why_name((bt_sched_why_t)i)) > 0);
    }
}

/* Prompts of 40 tokens with 24 to draw, in blocks of 16: of 63 positions 2
 * blocks of 4 are whole in the prompt and shared, 2 are each one's own. */
static uint32_t group(uint32_t n, uint32_t tokens_per_block)
{
    const bt_sched_request_t request = {.n_tokens = 40, .max_new = 24};

    assert_true(place(&request));
    return bt_sched_fanout_size(&got, &request, n, tokens_per_block);
}

static void group_takes_at_most_half_of_a_worker(void **state)
{
    bt_sched_worker_t *p, *d;

    (void)state;
    begin();
    p = add(BT_SCHED_PREFILL | BT_SCHED_FANOUT);
    d = add(BT_SCHED_DECODE | BT_SCHED_FANOUT);
    assert_int_equal(group(1, 16), 1);
    assert_int_equal(group(3, 16), 3);
    assert_int_equal(group(9, 16), 4); /* of 8 seats */
    d->max_seats = 1000;
    p->max_seats = 14;
    assert_int_equal(group(9, 16), 7);
    p->max_seats = 1000;
    assert_int_equal(group(99, 16), 24); /* 2 + 24 x 2 of 50 blocks */
    d->n_blocks = 9;
    assert_int_equal(group(9, 16), 1); /* 2 + 1 x 2 of 4 */
    d->n_blocks = 7;
    assert_int_equal(group(9, 16), 1); /* not even that */
    p->n_blocks = 1;                   /* the prompt alone is there, once */
    d->n_blocks = 1000;
    assert_int_equal(group(9, 16), 9);
    d->n_blocks = 1000000;
    assert_int_equal(group(1000, 16), BT_SCHED_MAX_FANOUT);
    assert_int_equal(group(9, 1), 9); /* 40 shared, 23 of each one's own */
}

/* Drawn tokens that are never fed back need no room. */
static void one_token_choices_share_all_whole_blocks(void **state)
{
    const bt_sched_request_t request = {.n_tokens = 32, .max_new = 1};
    bt_sched_worker_t *d;

    (void)state;
    begin();
    d = add(BT_SCHED_DECODE | BT_SCHED_LOCAL | BT_SCHED_FANOUT);
    d->max_seats = 100;
    d->n_blocks = 4;
    assert_true(place(&request));
    assert_null(got.prefill);
    assert_int_equal(bt_sched_fanout_size(&got, &request, 9, 16), 9);
}

static void workers_without_group_support_get_no_groups(void **state)
{
    bt_sched_worker_t *p, *d;

    (void)state;
    begin();
    p = add(BT_SCHED_PREFILL | BT_SCHED_FANOUT);
    d = add(BT_SCHED_DECODE);
    assert_int_equal(group(3, 16), 1);
    d->roles |= BT_SCHED_FANOUT;
    assert_int_equal(group(3, 16), 3);
    p->roles = BT_SCHED_PREFILL;
    assert_int_equal(group(3, 16), 1);
}

static void full_worker_is_chosen_last(void **state)
{
    bt_sched_worker_t *p, *d, *d2;

    (void)state;
    begin();
    p = add(BT_SCHED_PREFILL);
    d = add(BT_SCHED_DECODE);
    d2 = add(BT_SCHED_DECODE);
    d->seats = 2 * 8 + BT_SCHED_AHEAD - 1;
    d2->seats = 2 * 8 + BT_SCHED_AHEAD;
    assert_true(take());
    assert_ptr_equal(got.prefill, p);
    assert_ptr_equal(got.decode, d);
    assert_true(bt_sched_placement_takes(&got));
    d->is_behind = true;
    d2->seats = 0;
    assert_true(take());
    assert_ptr_equal(got.prefill, p);
    assert_ptr_equal(got.decode, d2);
    /* All of a role are full: there is a placement, for later. */
    d2->is_behind = true;
    assert_true(take());
    assert_false(bt_sched_placement_takes(&got));
    assert_true(bt_sched_placement_is_healthy(&got));
    d2->is_behind = false;
    p->is_behind = true;
    assert_true(take());
    assert_false(bt_sched_placement_takes(&got));
    p->is_behind = false;
    assert_true(take());
    assert_true(bt_sched_placement_takes(&got));
    /* A full healthy one rather than a silent one. */
    d2->is_behind = true;
    d->is_behind = false;
    d->health = BT_SCHED_SUSPECT;
    assert_true(take());
    assert_ptr_equal(got.prefill, p);
    assert_ptr_equal(got.decode, d2);
    assert_false(bt_sched_placement_takes(&got));
}

/* ---- KV links ---- */

/* A prefill worker that tells whom it reaches: nobody yet. */
static bt_sched_worker_t *add_telling(uint32_t roles, uint32_t number)
{
    bt_sched_worker_t *worker = add(roles);

    worker->number = number;
    worker->tells_links = true;
    return worker;
}

static bt_sched_worker_t *add_numbered(uint32_t roles, uint32_t number)
{
    bt_sched_worker_t *worker = add(roles);

    worker->number = number;
    return worker;
}

static void link_to(bt_sched_worker_t *prefill, const bt_sched_worker_t *decode)
{
    assert_int_equal(bt_sched_links_add(&prefill->links, decode->number),
                     BT_OK);
}

static void end(void)
{
    for (uint32_t i = 0; i < n_workers; i++) {
        bt_sched_links_fini(&all[i].links);
    }
}

static void pair_without_kv_link_is_not_chosen(void **state)
{
    bt_sched_worker_t *p, *d;

    (void)state;
    begin();
    p = add_telling(BT_SCHED_PREFILL, 0);
    d = add_numbered(BT_SCHED_DECODE, 70);
    assert_false(take());
    assert_true(take_one_token()); /* its KV stays where it is */
    assert_ptr_equal(got.prefill, p);
    link_to(p, d);
    assert_true(take());
    assert_ptr_equal(got.prefill, p);
    assert_ptr_equal(got.decode, d);
    bt_sched_links_remove(&p->links, d->number);
    assert_false(take());
    end();
}

static void
the_best_decode_worker_gets_the_prefill_worker_that_reaches_it(void **state)
{
    bt_sched_worker_t *cut, *linked, *d;

    (void)state;
    begin();
    cut = add_telling(BT_SCHED_PREFILL, 0);
    linked = add_telling(BT_SCHED_PREFILL, 1);
    d = add_numbered(BT_SCHED_DECODE, 2);
    link_to(linked, d);
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(take());
        assert_ptr_equal(got.prefill, linked);
        linked->prefill_us += 1000000; /* however busy it is */
    }
    link_to(cut, d);
    assert_true(take());
    assert_ptr_equal(got.prefill, cut);
    end();
}

static void
the_best_prefill_worker_gets_the_decode_worker_that_it_reaches(void **state)
{
    bt_sched_worker_t *p, *cut, *linked;

    (void)state;
    begin();
    p = add_telling(BT_SCHED_PREFILL, 0);
    cut = add_numbered(BT_SCHED_DECODE, 1);
    linked = add_numbered(BT_SCHED_DECODE, 2);
    link_to(p, linked);
    linked->seats = 4; /* the other one is idle, and not to be reached */
    assert_true(take());
    assert_ptr_equal(got.decode, linked);
    assert_ptr_not_equal(got.decode, cut);
    end();
}

static void best_linked_pair_is_found_when_no_single_best_is(void **state)
{
    bt_sched_worker_t *p0, *p1, *d0, *d1;

    (void)state;
    begin();
    p0 = add_telling(BT_SCHED_PREFILL, 0); /* the best, reaches nobody */
    p1 = add_telling(BT_SCHED_PREFILL, 1);
    d0 = add_numbered(BT_SCHED_DECODE, 2); /* the best, reached by nobody */
    d1 = add_numbered(BT_SCHED_DECODE, 3);
    p1->prefill_us = 1000;
    d1->seats = 2;
    link_to(p1, d1);
    assert_true(take());
    assert_ptr_equal(got.prefill, p1);
    assert_ptr_equal(got.decode, d1);
    assert_true(bt_sched_placement_takes(&got));
    (void)p0;
    (void)d0;
    end();
}

/* The one that is left is full: it is waited for, and no other is tried. */
static void request_waits_for_the_only_linked_pair(void **state)
{
    bt_sched_worker_t *cut, *p, *d;

    (void)state;
    begin();
    cut = add_telling(BT_SCHED_PREFILL, 0);
    p = add_telling(BT_SCHED_PREFILL, 1);
    d = add_numbered(BT_SCHED_DECODE, 2);
    link_to(p, d);
    p->is_behind = true;
    assert_true(take());
    assert_ptr_equal(got.prefill, p);
    assert_false(bt_sched_placement_takes(&got));
    (void)cut;
    end();
}

static void locally_prefilling_worker_needs_no_kv_link(void **state)
{
    const uint32_t kinds[] = {BT_SCHED_LOCAL,
                              BT_SCHED_LOCAL | BT_SCHED_WEIGHED};

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        bt_sched_worker_t *p, *d;

        begin();
        p = add_telling(BT_SCHED_PREFILL, 0);
        d = add_numbered(BT_SCHED_DECODE | kinds[i], 1);
        assert_true(take());
        assert_local(d, BT_SCHED_NO_PREFILL);
        link_to(p, d);
        assert_true(take());
        assert_ptr_equal(got.prefill, p);
        end();
    }
}

static void worker_without_link_report_reaches_all(void **state)
{
    bt_sched_worker_t *p, *d;

    (void)state;
    begin();
    p = add(BT_SCHED_PREFILL);
    d = add_numbered(BT_SCHED_DECODE, 5);
    assert_true(take());
    assert_ptr_equal(got.prefill, p);
    assert_ptr_equal(got.decode, d);
    end();
}

static void number_set_contains_what_was_added(void **state)
{
    bt_sched_links_t links = {0};

    (void)state;
    assert_int_equal(bt_sched_links_free(&links), 0);
    for (uint32_t i = 0; i < 64; i++) {
        assert_int_equal(bt_sched_links_add(&links, i), BT_OK);
    }
    assert_int_equal(bt_sched_links_free(&links), 64);
    assert_int_equal(bt_sched_links_add(&links, 200), BT_OK);
    assert_int_equal(bt_sched_links_add(&links, 200), BT_OK);
    assert_int_equal(links.n, 65);
    assert_int_equal(bt_sched_links_free(&links), 64);
    assert_true(bt_sched_links_has(&links, 200));
    assert_false(bt_sched_links_has(&links, 199));
    assert_false(bt_sched_links_has(&links, 100000));
    bt_sched_links_remove(&links, 100000);
    bt_sched_links_remove(&links, 7);
    bt_sched_links_remove(&links, 7);
    assert_int_equal(links.n, 64);
    assert_int_equal(bt_sched_links_free(&links), 7);
    bt_sched_links_fini(&links);
    assert_int_equal(links.n, 0);
    assert_false(bt_sched_links_has(&links, 200));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(prefill_worker_with_fewest_outstanding_tokens_is_chosen),
        BT_TEST(decode_worker_with_most_free_seats_or_blocks_is_chosen),
        BT_TEST(suspect_worker_is_chosen_only_without_a_healthy_one),
        BT_TEST(avoided_worker_is_chosen_when_all_others_are_suspect),
        BT_TEST(placement_reason_names_the_deciding_criterion),
        BT_TEST(without_a_healthy_prefill_worker_a_local_one_does_both_phases),
        BT_TEST(local_worker_takes_a_share_of_a_long_queue),
        BT_TEST(weighed_local_worker_is_returned_beside_the_pair),
        BT_TEST(avoided_worker_is_not_weighed),
        BT_TEST(local_worker_takes_no_share_of_other_queues),
        BT_TEST(one_token_request_takes_no_decode_worker),
        BT_TEST(worker_of_both_roles_is_a_candidate_for_both),
        BT_TEST(workers_of_both_roles_are_not_paired),
        BT_TEST(every_placement_reason_has_a_name),
        BT_TEST(group_takes_at_most_half_of_a_worker),
        BT_TEST(one_token_choices_share_all_whole_blocks),
        BT_TEST(workers_without_group_support_get_no_groups),
        BT_TEST(full_worker_is_chosen_last),
        BT_TEST(pair_without_kv_link_is_not_chosen),
        BT_TEST(the_best_decode_worker_gets_the_prefill_worker_that_reaches_it),
        BT_TEST(the_best_prefill_worker_gets_the_decode_worker_that_it_reaches),
        BT_TEST(best_linked_pair_is_found_when_no_single_best_is),
        BT_TEST(request_waits_for_the_only_linked_pair),
        BT_TEST(locally_prefilling_worker_needs_no_kv_link),
        BT_TEST(worker_without_link_report_reaches_all),
        BT_TEST(number_set_contains_what_was_added),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
