/* SPDX-License-Identifier: Apache-2.0 */
/* The times that a transfer reports of itself, against the clock around it. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "kvtransfer/kvt_core.h"
#include "tests/unit/kvtransfer/each_kind.h"

#define HALF   (MIB / 2)
#define GAP_US 30000u

/* All that was posted is away. */
static bool is_idle(const track_t *t)
{
    assert_non_null(t->xfer);
    return t->xfer->busy_us == 0;
}

/* ...and there, and so much of it checked: that takes data time too, and how
 * much of it only the scheduler knows. Who writes directly is not seen to. */
static bool is_checked(const track_t *t, const pair_kind_t *kind,
                       uint64_t bytes)
{
    return (t->region->proven.bytes == bytes) &&
           ((strcmp(kind->peer_path, "network") != 0) ||
            (t->region->landed.bytes == bytes));
}

/* Nothing happens for longer than all of what was before may have counted.
 * @return how long */
static uint64_t wait_idle(pair_t *pair, uint64_t start_us)
{
    const uint64_t idle_us = bt_now_us();
    const uint64_t until_us = idle_us + GAP_US + 2 * (idle_us - start_us);

    while (bt_now_us() < until_us) {
        (void)pair_pump(pair);
    }
    return bt_now_us() - idle_us;
}

/* Moving and checking go on beside each other, and each counts. */
static bool leaves_out(const track_t *t, uint64_t gap_us, uint64_t whole_us)
{
    return t->result.elapsed_us <= 2 * (whole_us - gap_us);
}

/* As where a chunk of the prompt is computed between two posts. */
static void
data_time_leaves_out_what_the_sender_did_between(const pair_kind_t *kind)
{
    uint64_t start_us, gap_us, second_us, whole_us;
    pair_t pair;
    track_t *t;

    pair_open(&pair, kind, 2 * MIB);
    pair_import(&pair);
    t = pair_region(&pair, 1, PAIR_SENDER, 0, MIB, 0, 1);
    prep(&pair, t);
    start_us = bt_now_us();
    post(t, 0, HALF);
    PAIR_UNTIL(&pair, is_idle(t) && is_checked(t, kind, HALF));
    gap_us = wait_idle(&pair, start_us);
    second_us = bt_now_us();
    post(t, HALF, HALF);
    finish(t, "");
    PAIR_UNTIL(&pair, over(t));
    whole_us = bt_now_us() - start_us;

    assert_int_equal(t->done, 1);
    assert_true(t->result.elapsed_us > 0);
    assert_true(leaves_out(t, gap_us, whole_us));
    assert_true(t->result.arrived_us >= second_us);
    assert_true(t->result.arrived_us <= start_us + whole_us);
    pair_close(&pair);
}
EACH_KIND(data_time_leaves_out_what_the_sender_did_between)

/* The hand-over is counted from the last byte, not from the note that the
 * sender may add later. */
static void a_late_finish_takes_no_data_time(const pair_kind_t *kind)
{
    uint64_t start_us, gap_us, finish_us, whole_us;
    pair_t pair;
    track_t *t;

    pair_open(&pair, kind, 2 * MIB);
    pair_import(&pair);
    t = pair_region(&pair, 1, PAIR_SENDER, 0, MIB, 0, 1);
    prep(&pair, t);
    start_us = bt_now_us();
    post(t, 0, MIB);
    PAIR_UNTIL(&pair, is_idle(t) && is_checked(t, kind, t->bytes));
    gap_us = wait_idle(&pair, start_us);
    finish_us = bt_now_us();
    finish(t, "");
    PAIR_UNTIL(&pair, over(t));
    whole_us = bt_now_us() - start_us;

    assert_int_equal(t->done, 1);
    assert_true(leaves_out(t, gap_us, whole_us));
    assert_true(t->result.arrived_us > start_us);
    /* Who writes directly says so with the note only. */
    if (strcmp(kind->peer_path, "network") == 0) {
        assert_true(t->result.arrived_us < finish_us);
    } else {
        assert_true(t->result.arrived_us >= finish_us);
    }
    pair_close(&pair);
}
EACH_KIND(a_late_finish_takes_no_data_time)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_EACH(data_time_leaves_out_what_the_sender_did_between),
        TEST_EACH(a_late_finish_takes_no_data_time),
    };

    bt_log_init("test_kvt_times", BT_LOG_LEVEL_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
