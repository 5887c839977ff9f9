/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <string.h>

#include "common/base/status.h"
#include "router/frontend/turn.h"

typedef struct note {
    bt_turn_work_t work;
    char name;
    bt_turn_t *again; /* put off again when it runs */
} note_t;

static char done[32];

static void run(bt_turn_work_t *work)
{
    note_t *note = BT_CONTAINER_OF(work, note_t, work);

    done[strlen(done)] = note->name;
    if (note->again != NULL) {
        bt_turn_put_off(note->again, work, 77);
    }
}

static note_t note_of(char name)
{
    return (note_t){.name = name};
}

static void deferred_work_runs_once_in_order(void **state)
{
    note_t a = note_of('a'), b = note_of('b');
    bt_turn_t turn;

    (void)state;
    memset(done, 0, sizeof(done));
    bt_turn_init(&turn);
    bt_turn_work_init(&a.work, run);
    bt_turn_work_init(&b.work, run);
    bt_turn_put_off(&turn, &b.work, 10);
    bt_turn_put_off(&turn, &a.work, 11);
    bt_turn_put_off(&turn, &b.work, 12);
    assert_string_equal(done, "");
    bt_turn_finish(&turn);
    assert_string_equal(done, "ba");
    bt_turn_finish(&turn);
    assert_string_equal(done, "ba");
}

static void deferred_work_runs_within_limit(void **state)
{
    note_t a = note_of('a'), b = note_of('b');
    bt_turn_t turn;

    (void)state;
    memset(done, 0, sizeof(done));
    bt_turn_init(&turn);
    bt_turn_work_init(&a.work, run);
    bt_turn_work_init(&b.work, run);
    bt_turn_put_off(&turn, &a.work, 1000);
    bt_turn_put_off(&turn, &b.work, 1400); /* goes with the first */
    bt_turn_step(&turn, 1000 + BT_TURN_US - 1);
    assert_string_equal(done, "");
    bt_turn_step(&turn, 1000 + BT_TURN_US);
    assert_string_equal(done, "ab");
    bt_turn_put_off(&turn, &a.work, 5000); /* the time begins anew */
    bt_turn_step(&turn, 5000 + BT_TURN_US - 1);
    assert_string_equal(done, "ab");
}

static void running_work_can_be_deferred_again_and_removed(void **state)
{
    note_t a = note_of('a'), b = note_of('b');
    bt_turn_t turn;

    (void)state;
    memset(done, 0, sizeof(done));
    bt_turn_init(&turn);
    a.again = &turn;
    bt_turn_work_init(&a.work, run);
    bt_turn_work_init(&b.work, run);
    bt_turn_put_off(&turn, &a.work, 10);
    bt_turn_put_off(&turn, &b.work, 10);
    bt_turn_forget(&b.work);
    bt_turn_forget(&b.work);
    bt_turn_finish(&turn);
    assert_string_equal(done, "a"); /* its second time is of the next turn */
    bt_turn_finish(&turn);
    assert_string_equal(done, "aa");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(deferred_work_runs_once_in_order),
        BT_TEST(deferred_work_runs_within_limit),
        BT_TEST(running_work_can_be_deferred_again_and_removed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
