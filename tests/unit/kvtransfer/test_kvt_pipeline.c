/* SPDX-License-Identifier: Apache-2.0 */
/* The receiver verifies while the sender still sends. */
#include "common/base/log.h"
#include "kvtransfer/kvt_core.h"
#include "tests/unit/kvtransfer/before_check.h"
#include "tests/unit/kvtransfer/each_kind.h"

#define REGION_BYTES (8u * MIB)

static void count_verified(void *user, uint8_t *bytes, size_t n)
{
    uint64_t *verified = user;

    (void)bytes;
    *verified += n;
}

static void transfer_while_verifying(const pair_kind_t *kind)
{
    uint64_t verified = 0;
    uint64_t before = 0;
    pair_t pair;
    track_t *t;

    pair_open(&pair, kind, REGION_BYTES + MIB);
    pair_import(&pair);
    before_check_set(pair.receiver, count_verified, &verified);
    t = pair_region(&pair, 7, PAIR_SENDER, 0, MIB, MIB, 8);
    prep(&pair, t);
    post(t, 0, REGION_BYTES);
    finish(t, "");
    while (counters(pair.sender).bytes_sent < REGION_BYTES) {
        before = verified;
        (void)pair_pump(&pair);
    }
    /* A round moves PAIR_BUDGET, a megabyte. */
    assert_true(before >= REGION_BYTES / 2);
    PAIR_UNTIL(&pair, over(t));
    assert_int_equal(t->done, 1);
    assert_int_equal(verified, REGION_BYTES);
    before_check_set(NULL, NULL, NULL);
    pair_close(&pair);
}

static void most_bytes_are_verified_during_the_transfer_shm(void **state)
{
    (void)state;
    transfer_while_verifying(&pair_kinds[PAIR_MEM_SHM]);
}

static void most_bytes_are_verified_during_the_transfer_network(void **state)
{
    (void)state;
    transfer_while_verifying(&pair_kinds[PAIR_MEM_NETWORK]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(most_bytes_are_verified_during_the_transfer_shm),
        BT_TEST(most_bytes_are_verified_during_the_transfer_network),
    };

    bt_log_init("test_kvt_pipeline", BT_LOG_LEVEL_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
