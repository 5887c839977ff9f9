/* SPDX-License-Identifier: Apache-2.0 */
/* What a batch is after its process was killed. */
#include "tests/unit/router/batch/batch_fixture.h"

/* What is in the journal is not asked again; what is not, is. */
static void restarted_server_runs_lines_without_answer_only(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    open_world(w, 8);
    begin(w, LINE("a", "") LINE("b", "") LINE("c", ""));
    answer(w, 1, "One.", BT_FINISH_STOP);
    settle(w);
    answer(w, 0, "Lost", BT_FINISH_STOP); /* not written when it is killed */
    close_world(w);
    reopen(w, 8);
    shows(w, "\"status\":\"in_progress\"");
    shows(w, "\"completed\":1,");
    settle(w);
    assert_int_equal(bt_frontend_n_in_flight(&w->front), 2);
    answer(w, 0, "Two.", BT_FINISH_STOP);
    answer(w, 1, "Tri.", BT_FINISH_STOP);
    settle(w);
    shows(w, "\"status\":\"completed\"");
    read_file(w, false, &ex);
    assert_int_equal(times(ex.out, "\n"), 3);
    for (const char *id = "abc"; *id != '\0'; id++) {
        const char part[] = {'_', 'i', 'd', '"', ':', '"', *id, '"', '\0'};

        assert_int_equal(times(ex.out, part), 1);
    }
    has(&ex, "\"text\":\"One\"");
    assert_null(strstr(ex.out, "Los"));
    close_world(w);
    remove_folder();
}

static void each_step_of_the_end_survives_a_kill(void **state)
{
    world_t *w = &world;
    bt_exchange_t ex;

    (void)state;
    open_world(w, 1);
    begin(w, LINE("a", ""));
    answer(w, 0, "Yes.", BT_FINISH_STOP);
    bt_turn_finish(&w->front.turn);
    drain_pool(w); /* the answer is in the journal */
    bt_turn_finish(&w->front.turn);
    bt_turn_finish(&w->front.turn);
    assert_int_equal(batch(w)->status, BT_BATCH_FINALIZING);
    close_world(w); /* the files may be there, the last state is not */
    reopen(w, 1);
    settle(w);
    shows(w, "\"status\":\"completed\"");
    read_file(w, false, &ex);
    assert_int_equal(times(ex.out, "\n"), 1);
    call(w, &ex, BT_HTTP_GET, "/v1/files", "");
    assert_int_equal(times(ex.out, "\"id\":\"file-"), 2); /* and the input */
    close_world(w);
    remove_folder();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(restarted_server_runs_lines_without_answer_only),
        BT_TEST(each_step_of_the_end_survives_a_kill),
    };

    return cmocka_run_group_tests(tests, make_models, remove_models);
}
