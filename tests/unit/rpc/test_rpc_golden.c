/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of a link as the landed version sends them, kept in
 * tests/golden/wire_v2/frames.txt: written by Python, whose hashlib made the
 * proofs. A change of any byte here is a break of the wire (docs/WIRE.md). */
#include <string.h>

#include "common/rpc/rpc_frame.h"
#include "tests/support/testsupport.h"

#define FRAMES    "golden/wire_v2/frames.txt"
#define MAX_BYTES 256

#define OF_ROUTER 0x1112131415161718u
#define OF_WORKER 0x2122232425262728u

typedef struct golden {
    uint8_t bytes[MAX_BYTES];
    rpc_frame_t frame;
} golden_t;

static void take(golden_t *g, const char *name, rpc_kind_t kind,
                 uint64_t incarnation, uint64_t sequence)
{
    const size_t n = bt_test_read_hex(FRAMES, name, g->bytes, sizeof(g->bytes));

    assert_int_equal(bt_rpc_frame_parse(g->bytes, n, &g->frame), BT_OK);
    assert_int_equal(g->frame.kind, kind);
    assert_int_equal(g->frame.incarnation, incarnation);
    assert_int_equal(g->frame.sequence, sequence);
}

static void link_key(uint8_t key[BT_KEY_BYTES])
{
    for (uint8_t i = 0; i < BT_KEY_BYTES; i++) {
        key[i] = i;
    }
}

static rpc_side_t side_of(const golden_t *hello)
{
    rpc_side_t side = {.incarnation = hello->frame.incarnation};
    uint8_t key[BT_KEY_BYTES];

    link_key(key);
    memcpy(side.nonce, hello->frame.body, RPC_NONCE_BYTES);
    bt_key_proof(key, sizeof(key), hello->frame.body + RPC_NONCE_BYTES,
                 hello->frame.bytes - RPC_NONCE_BYTES, side.payload_hash);
    return side;
}

static void proofs_of_the_landed_version_are_taken(void **state)
{
    golden_t hello_router, hello_worker, proof_router, proof_worker;
    uint8_t proof[BT_PROOF_BYTES];
    uint8_t key[BT_KEY_BYTES];
    rpc_side_t router, worker;

    (void)state;
    link_key(key);
    take(&hello_router, "hello_router", RPC_HELLO, OF_ROUTER, 0);
    take(&hello_worker, "hello_worker", RPC_HELLO, OF_WORKER, 0);
    take(&proof_router, "proof_router", RPC_PROOF, OF_ROUTER, 0);
    take(&proof_worker, "proof_worker", RPC_PROOF, OF_WORKER, 0);
    assert_int_equal(hello_router.frame.bytes, RPC_NONCE_BYTES + 10);
    assert_memory_equal(hello_router.frame.body + RPC_NONCE_BYTES, "the router",
                        10);
    router = side_of(&hello_router);
    worker = side_of(&hello_worker);
    bt_rpc_proof(key, true, &router, &worker, proof);
    assert_memory_equal(proof, proof_router.frame.body, sizeof(proof));
    bt_rpc_proof(key, false, &worker, &router, proof);
    assert_memory_equal(proof, proof_worker.frame.body, sizeof(proof));
}

static void data_and_farewells_of_the_landed_version_are_read(void **state)
{
    const void *data;
    golden_t g;
    size_t at = 0;
    size_t n;

    (void)state;
    take(&g, "heartbeat", RPC_DATA, OF_WORKER, 1);
    assert_false(bt_rpc_frame_next(&g.frame, &at, &data, &n));
    take(&g, "messages", RPC_DATA, OF_WORKER, 2);
    assert_true(bt_rpc_frame_next(&g.frame, &at, &data, &n));
    assert_int_equal(n, 2);
    assert_memory_equal(data, "hi", 2);
    assert_true(bt_rpc_frame_next(&g.frame, &at, &data, &n));
    assert_int_equal(n, 0);
    assert_false(bt_rpc_frame_next(&g.frame, &at, &data, &n));
    take(&g, "bye", RPC_BYE, OF_ROUTER, 3);
    assert_int_equal(g.frame.bytes, 14);
    assert_memory_equal(g.frame.body, "model mismatch", 14);
}

static void announcements_of_the_landed_version_are_taken(void **state)
{
    uint8_t bytes[MAX_BYTES];
    const size_t n = bt_test_read_hex(FRAMES, "announce", bytes, sizeof(bytes));
    uint8_t ours[RPC_MAX_ANNOUNCE];
    uint8_t key[BT_KEY_BYTES];
    char url[RPC_MAX_URL];
    uint64_t incarnation;

    (void)state;
    link_key(key);
    assert_int_equal(bt_rpc_announce_check(key, bytes, n, &incarnation, url),
                     BT_OK);
    assert_int_equal(incarnation, OF_WORKER);
    assert_string_equal(url, "tcp://127.0.0.1:4711");
    assert_int_equal(bt_rpc_announce_put(key, OF_WORKER, url, ours), n);
    assert_memory_equal(ours, bytes, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(proofs_of_the_landed_version_are_taken),
        BT_TEST(data_and_farewells_of_the_landed_version_are_read),
        BT_TEST(announcements_of_the_landed_version_are_taken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
