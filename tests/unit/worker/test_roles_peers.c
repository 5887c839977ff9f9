/* SPDX-License-Identifier: Apache-2.0 */
/* Decode workers as the prefill worker sees them: paths, grants, quarantine. */
#include "tests/unit/worker/sim.h"

#include "common/base/log.h"
#include "common/kv/kv_block_pool.h"
#include "decode_worker/decode.h"
#include "kvtransfer/kvt_core.h"
#include "prefill_worker/prefill.h"

#define HELD_ROUNDS 30u

/* Only the KV network failed: no router saw the decode worker leave, so nobody
 * announces it again, and the prefill worker connects by itself. */
static void lost_kv_link_is_used_again_after_recovery(void **state)
{
    sim_req_t *req;

    (void)state;
    sim_expect_failures();
    sim_open(1, 32, 32, BT_KVT_PATH_NETWORK);
    sim.cut_losses = true;
    req = sim_request_of(0, 0, 1, 21, 6);
    bt_kvt_mem_net_stop(sim.net, sim.nodes[1].w.instance, true);
    sim_rounds(150); /* dead_ms is 100 */
    assert_int_equal(req->legs[0].status, BT_ERR_PEER_LOST);
    bt_kvt_mem_net_stop(sim.net, sim.nodes[1].w.instance, false);
    sim_settle();
    sim_check_empty();

    req = sim_request_of(0, 0, 1, 21, 6);
    sim_settle();
    sim_check_answered(req);
    sim_check_empty();
    sim_close();
    sim_expected();
}

/* The sender gave the path up, and the decode worker, whose blocks it might
 * still write, learns that by a new path and not by the fence. */
static void lost_kv_link_frees_its_leases(void **state)
{
    const bt_decode_t *role;
    bt_kvt_link_t *link;
    sim_req_t *req;

    (void)state;
    sim_expect_failures();
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    sim.cut_losses = true;
    role = sim.nodes[1].w.decode;
    (void)sim_request_of(0, 0, 1, 8, 2); /* they know each other now */
    sim_settle();
    req = sim_request_of(0, 0, 1, 40, 6);
    sim_rounds(4);
    link = bt_kvt_link_find(sim.nodes[0].w.kvt, sim.nodes[1].w.instance);
    bt_kvt_link_lost(link, false, "it failed");
    sim_rounds(3);
    assert_int_equal(req->legs[0].status, BT_ERR_PEER_LOST);
    assert_int_equal(role->n_leases, 1);
    assert_int_equal(role->quarantined_blocks, 12); /* 45 tokens */
    sim_rounds(110); /* dead_ms since the first path, 100 */
    assert_int_equal(role->n_leases, 0);
    assert_int_equal(sim.n_fenced, 0);
    sim_check_empty();

    req = sim_request_of(0, 0, 1, 21, 6);
    sim_settle();
    sim_check_answered(req);
    sim_close();
    sim_expected();
}

/* A router that cannot see a worker speaks for its own requests only. */
static void router_cannot_remove_the_peer_of_another_router(void **state)
{
    sim_req_t *mine;
    sim_req_t *other;

    (void)state;
    sim_expect_failures();
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    mine = sim_request_of(0, 0, 1, 21, 6);
    other = sim_request_of(1, 0, 1, 21, 6);
    mine->hold_grant = true;
    other->hold_grant = true;
    sim_rounds(HELD_ROUNDS);
    sim_peer_gone(1, 0, 1);
    sim_rounds(2);
    assert_int_equal(other->legs[0].status, BT_ERR_PEER_LOST);
    sim_cancel(other);
    sim_pass_grant(mine);
    sim_settle();
    sim_check_answered(mine);

    mine = sim_request_of(0, 0, 1, 21, 6); /* later ones, too */
    sim_settle();
    sim_check_answered(mine);

    mine = sim_request_of(0, 0, 1, 21, 6);
    mine->hold_grant = true;
    sim_rounds(HELD_ROUNDS);
    sim_peer_gone(0, 0, 1);
    sim_rounds(2);
    assert_int_equal(mine->legs[0].status, BT_ERR_PEER_LOST);
    sim_cancel(mine);
    sim_settle();
    sim_check_empty();
    sim_close();
    sim_expected();
}

static void router_may_end_only_its_own_requests(void **state)
{
    sim_req_t *mine;
    sim_req_t *other;

    (void)state;
    sim_expect_failures();
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    mine = sim_request_of(0, 0, 1, 21, 6);
    other = sim_request_of(1, 0, 1, 21, 6);
    mine->hold_grant = true;
    other->hold_grant = true;
    sim_rounds(HELD_ROUNDS);
    sim_peer_gone(1, 1, 0); /* "that prefill worker is gone" */
    sim_rounds(2);
    assert_int_equal(other->legs[1].status, BT_ERR_PEER_LOST);
    sim_cancel(other);
    sim_pass_grant(mine);
    sim_settle();
    sim_check_answered(mine);
    sim_check_empty();
    sim_close();
    sim_expected();
}

/* Its router is gone, and later the decode worker as well. */
static void peer_reported_by_no_router_is_removed(void **state)
{
    const bt_prefill_t *role;

    (void)state;
    sim_expect_failures();
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    role = sim.nodes[0].w.prefill;
    sim_rounds(3);
    bt_link_close(sim.nodes[0].links[0], "gone");
    bt_link_close(sim.nodes[0].links[1], "gone");
    sim_rounds(3);
    assert_false(bt_list_empty(&role->peers)); /* they may come back */
    sim_kill(1);
    sim_rounds(150);
    assert_true(bt_list_empty(&role->peers));
    sim_close();
    sim_expected();
}

/* The same, the other way round. */
static void lost_peer_is_removed_with_its_last_router(void **state)
{
    const bt_prefill_t *role;

    (void)state;
    sim_expect_failures();
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    role = sim.nodes[0].w.prefill;
    sim_rounds(3);
    bt_kvt_mem_net_kill(sim.net, sim.nodes[1].w.instance);
    sim_turn(&sim.nodes[0]);
    bt_link_close(sim.nodes[0].links[0], "gone");
    sim_turn(&sim.nodes[0]);
    assert_false(bt_list_empty(&role->peers)); /* one has not said so yet */
    bt_link_close(sim.nodes[0].links[1], "gone");
    sim_turn(&sim.nodes[0]);
    assert_true(bt_list_empty(&role->peers));
    sim_close();
    sim_expected();
}

static void request_for_a_lost_worker_ends(void **state)
{
    sim_req_t *req;

    (void)state;
    sim_expect_failures();
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    sim_peer_gone(0, 0, 1);
    sim_peer_gone(1, 0, 1);
    sim_rounds(2);
    req = sim_req_new(0, 0, 1, 9, 4);
    sim_send_leg(req, 0, BT_REQUEST_PREFILL, 0, 0);
    sim_rounds(HELD_ROUNDS);
    assert_int_equal(req->legs[0].n_ended, 0); /* waits for its grant */
    sim_peer_gone(0, 0, 1);
    sim_settle();
    assert_int_equal(req->legs[0].status, BT_ERR_PEER_LOST);
    sim_check_empty();
    sim_close();
    sim_expected();
}

/* The sender is stopped and cannot confirm: four leases stay in quarantine, but
 * they are blocks, not seats. Past the limit its process is ended. */
static void quarantined_leases_hold_blocks_but_no_seats(void **state)
{
    const bt_decode_t *role;
    sim_req_t *reqs[SIM_MAX_SEQS];
    sim_req_t *local;

    (void)state;
    sim_open(1, 64, 64, BT_KVT_PATH_AUTO);
    role = sim.nodes[1].w.decode;
    (void)sim_request_of(0, 0, 1, 8, 2); /* they know each other now */
    sim_settle();
    sim_stop(0, true);
    for (uint32_t i = 0; i < SIM_MAX_SEQS; i++) {
        reqs[i] = sim_request_of(0, 0, 1, 8, 9);
    }
    sim_rounds(10);
    assert_int_equal(role->n_leases, SIM_MAX_SEQS);
    for (uint32_t i = 0; i < SIM_MAX_SEQS; i++) {
        sim_cancel(reqs[i]);
    }
    sim_rounds(2);
    assert_int_equal(role->quarantined_blocks, SIM_MAX_SEQS * 4);
    assert_int_equal(role->n_leases, SIM_MAX_SEQS);
    assert_int_equal(sim_n_free(&sim.nodes[1]), 64 - SIM_MAX_SEQS * 4);
    local = sim_request_of(0, 1, 1, 8, 4);
    sim_rounds(30);
    sim_check_answered(local);
    assert_int_equal(sim.n_fenced, 0);
    sim_rounds(200); /* quarantine_ms */
    assert_int_equal(sim.n_fenced, SIM_MAX_SEQS);
    assert_int_equal(sim.fenced_pid, 1000); /* of the first in this net */
    assert_int_equal(role->n_leases, SIM_MAX_SEQS);

    sim_stop(0, false);
    sim_settle();
    sim_check_empty();
    sim_close();
}

/* Its key is what the note in the manifest is compared with. */
static void grant_of_another_request_is_refused(void **state)
{
    sim_req_t *a;
    sim_req_t *b;
    bt_msg_t msg;

    (void)state;
    sim_expect_failures();
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    a = sim_request_of(0, 0, 1, 21, 6);
    b = sim_request_of(0, 0, 1, 21, 6);
    a->hold_grant = true;
    b->hold_grant = true;
    sim_rounds(HELD_ROUNDS);
    assert_int_equal(
        bt_wire_decode(sim.decoder, a->grant, a->grant_bytes, &msg), BT_OK);
    msg.u.grant.key = b->key;
    sim_router_send(0, 0, &msg);
    sim_rounds(10);
    assert_int_equal(a->legs[1].status, BT_ERR_BAD_MESSAGE);
    assert_int_equal(a->n_joined, 0);
    sim_cancel(a);
    sim_cancel(b);
    sim_settle();
    sim_check_empty();
    sim_close();
    sim_expected();
}

static void grant_of_another_worker_fails_the_request(void **state)
{
    sim_req_t *req;
    bt_msg_t msg;

    (void)state;
    sim_expect_failures();
    sim_open(2, 32, 32, BT_KVT_PATH_AUTO);
    req = sim_request_of(0, 0, 1, 21, 6);
    req->hold_grant = true;
    sim_rounds(HELD_ROUNDS);
    assert_int_equal(
        bt_wire_decode(sim.decoder, req->grant, req->grant_bytes, &msg), BT_OK);
    msg.u.grant.instance = sim.nodes[2].w.instance;
    sim_router_send(0, 0, &msg);
    sim_rounds(3);
    assert_int_equal(req->legs[0].status, BT_ERR_MISMATCH);
    sim_cancel(req);
    sim_settle();
    sim_check_empty();
    sim_close();
    sim_expected();
}

/* One that claims to hold what is no whole block, or all of the prompt. */
static void grant_without_blocks_to_send_fails_the_request(void **state)
{
    static const uint32_t n_cached[] = {SIM_T - 1, 20, 24};

    (void)state;
    sim_expect_failures();
    for (size_t i = 0; i < 3; i++) {
        sim_req_t *req;
        bt_msg_t msg;

        sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
        req = sim_request_of(0, 0, 1, 20, 6);
        req->hold_grant = true;
        sim_rounds(HELD_ROUNDS);
        assert_int_equal(
            bt_wire_decode(sim.decoder, req->grant, req->grant_bytes, &msg),
            BT_OK);
        msg.u.grant.n_cached = n_cached[i];
        sim_router_send(0, 0, &msg);
        sim_rounds(3);
        assert_int_equal(req->legs[0].status, BT_ERR_MISMATCH);
        sim_cancel(req);
        sim_settle();
        sim_check_empty();
        sim_close();
    }
    sim_expected();
}

static void empty_grant_fails_the_request(void **state)
{
    sim_req_t *req;
    bt_msg_t msg;

    (void)state;
    sim_expect_failures();
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    req = sim_request_of(0, 0, 1, 20, 6);
    req->hold_grant = true;
    sim_rounds(HELD_ROUNDS);
    assert_int_equal(
        bt_wire_decode(sim.decoder, req->grant, req->grant_bytes, &msg), BT_OK);
    msg.u.grant.n_regions = 0;
    sim_router_send(0, 0, &msg);
    sim_rounds(3);
    assert_int_equal(req->legs[0].status, BT_ERR_BAD_MESSAGE);
    sim_cancel(req);
    sim_settle();
    sim_check_empty();
    sim_close();
    sim_expected();
}

/* What a router says of a decode worker that KV cannot go to: another model's
 * layers or heads, blocks of another size, more ranks than heads. The request
 * is refused for that and not as if the worker were lost; and once it is told
 * rightly of it, it is sent to. */
static void peer_with_another_layout_or_split_is_refused_by_name(void **state)
{
    static const uint8_t blob[] = {1};
    static const bt_wire_rank_t three[] = {{.kvt = blob, .kvt_bytes = 1},
                                           {.kvt = blob, .kvt_bytes = 1},
                                           {.kvt = blob, .kvt_bytes = 1}};

    (void)state;
    sim_expect_failures();
    for (uint32_t i = 0; i < 5; i++) {
        bt_msg_t msg = {.type = BT_MSG_PEER};
        bt_wire_rank_t rank;
        sim_req_t *req;

        sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
        sim_peer_gone(0, 0, 1);
        sim_peer_gone(1, 0, 1);
        sim_rounds(3);
        sim_make_peer(1, &msg.u.peer);
        rank = msg.u.peer.ranks[0];
        if (i == 0) {
            msg.u.peer.layout.hi ^= 1;
        } else if (i == 1) {
            rank.block_bytes /= 2;
            msg.u.peer.ranks = &rank;
        } else if (i == 2) {
            msg.u.peer.ranks = three; /* of 2 heads */
            msg.u.peer.n_ranks = msg.u.peer.tp = 3;
        } else if (i == 3) {
            msg.u.peer.tp = 3; /* of 2 heads; and no list */
            msg.u.peer.n_ranks = 0;
        } else {
            msg.u.peer.n_ranks = 0;
        }
        sim_router_send(0, 0, &msg);
        sim_rounds(2);
        req = sim_request_of(0, 0, 1, 21, 6);
        sim_rounds(HELD_ROUNDS);
        assert_int_equal(req->legs[0].status, BT_ERR_MISMATCH);
        sim_cancel(req);
        sim_settle();
        sim_check_empty();

        sim_peer(1, 0, 1);
        req = sim_request_of(1, 0, 1, 21, 6);
        sim_settle();
        sim_check_answered(req);
        sim_check_empty();
        sim_close();
    }
    sim_expected();
}

/* As a build without lists and layouts tells of it. */
static void peer_with_an_address_only_receives_kv(void **state)
{
    bt_msg_t msg = {.type = BT_MSG_PEER};
    bt_wire_rank_t rank;
    sim_req_t *req;

    (void)state;
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    sim_peer_gone(0, 0, 1);
    sim_peer_gone(1, 0, 1);
    sim_make_peer(1, &msg.u.peer);
    rank = msg.u.peer.ranks[0];
    rank.block_bytes = 0;
    msg.u.peer.ranks = &rank;
    msg.u.peer.layout = (bt_hash128_t){0};
    sim_router_send(0, 0, &msg);
    sim_rounds(2);
    req = sim_request_of(0, 0, 1, 21, 6);
    sim_settle();
    sim_check_answered(req);
    sim_check_empty();
    sim_close();
}

/* Between one rank and one there is one window, from rank 0 to rank 0. */
static void grant_for_other_ranks_fails_the_request(void **state)
{
    (void)state;
    sim_expect_failures();
    for (uint32_t i = 0; i < 3; i++) {
        bt_wire_region_t regions[2];
        sim_req_t *req;
        bt_msg_t msg;

        sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
        req = sim_request_of(0, 0, 1, 20, 6);
        req->hold_grant = true;
        sim_rounds(HELD_ROUNDS);
        assert_int_equal(
            bt_wire_decode(sim.decoder, req->grant, req->grant_bytes, &msg),
            BT_OK);
        regions[0] = msg.u.grant.regions[0];
        regions[1] = regions[0];
        regions[0].to = (i == 0);
        regions[0].from = (i == 1);
        regions[1].to = 1;
        msg.u.grant.regions = regions;
        msg.u.grant.n_regions = (i == 2) ? 2 : 1;
        sim_router_send(0, 0, &msg);
        sim_rounds(3);
        assert_int_equal(req->legs[0].status, BT_ERR_MISMATCH);
        sim_cancel(req);
        sim_settle();
        sim_check_empty();
        sim_close();
    }
    sim_expected();
}

static void duplicate_grant_is_used_once(void **state)
{
    sim_req_t *req;

    (void)state;
    sim_expect_failures();
    sim_open(1, 32, 32, BT_KVT_PATH_AUTO);
    req = sim_request_of(0, 0, 1, 40, 6);
    req->hold_grant = true;
    sim_rounds(2);
    sim_pass_grant(req);
    sim_pass_grant(req);
    sim_settle();
    sim_check_answered(req);
    sim_check_empty();
    sim_close();
    sim_expected();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(lost_kv_link_is_used_again_after_recovery),
        BT_TEST(lost_kv_link_frees_its_leases),
        BT_TEST(router_cannot_remove_the_peer_of_another_router),
        BT_TEST(router_may_end_only_its_own_requests),
        BT_TEST(peer_reported_by_no_router_is_removed),
        BT_TEST(lost_peer_is_removed_with_its_last_router),
        BT_TEST(request_for_a_lost_worker_ends),
        BT_TEST(quarantined_leases_hold_blocks_but_no_seats),
        BT_TEST(grant_of_another_request_is_refused),
        BT_TEST(grant_of_another_worker_fails_the_request),
        BT_TEST(grant_without_blocks_to_send_fails_the_request),
        BT_TEST(empty_grant_fails_the_request),
        BT_TEST(peer_with_another_layout_or_split_is_refused_by_name),
        BT_TEST(peer_with_an_address_only_receives_kv),
        BT_TEST(grant_for_other_ranks_fails_the_request),
        BT_TEST(duplicate_grant_is_used_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
