/* SPDX-License-Identifier: Apache-2.0 */
/* Readiness, liveness and the announcement. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "launcher/health.h"

static void a_process_hangs_after_silence_of_the_limit(void **state)
{
    bt_watchdog_t dog;
    uint64_t now_ms = 5000;

    (void)state;
    assert_int_equal(bt_watchdog_period_ms(10000), 1000);
    assert_int_equal(bt_watchdog_period_ms(600), 60);
    assert_int_equal(bt_watchdog_period_ms(3600000), 1000);
    assert_int_equal(bt_watchdog_period_ms(1), 20);

    /* Not before its first heartbeat: it loads a model. */
    bt_watchdog_init(&dog, now_ms);
    for (int i = 0; i < 100; i++) {
        now_ms += 1000;
        assert_false(bt_watchdog_look(&dog, now_ms, false, 0, 10000));
    }
    now_ms += 1000;
    assert_false(bt_watchdog_look(&dog, now_ms, true, 0, 10000));
    for (int i = 0; i < 9; i++) {
        now_ms += 1000;
        assert_false(bt_watchdog_look(&dog, now_ms, false, 0, 10000));
    }
    now_ms += 1000;
    assert_false(bt_watchdog_look(&dog, now_ms, true, 0, 10000)); /* just so */
    for (int i = 0; i < 9; i++) {
        now_ms += 1000;
        assert_false(bt_watchdog_look(&dog, now_ms, false, 0, 10000));
    }
    now_ms += 1000;
    assert_true(bt_watchdog_look(&dog, now_ms, false, 0, 10000));
    now_ms += 1000;
    assert_false(bt_watchdog_look(&dog, now_ms, false, 0, 10000)); /* said */
}

static void a_process_that_loads_hangs_after_half_an_hour(void **state)
{
    bt_watchdog_t dog;
    uint64_t now_ms = 7;

    (void)state;
    bt_watchdog_init(&dog, now_ms);
    assert_false(bt_watchdog_look(&dog, now_ms, true, 0, 10000));
    now_ms += 3600000; /* the launcher slept too: 2 s of it count */
    assert_false(bt_watchdog_look_loading(&dog, now_ms, 10000));
    for (int i = 0; i < 1797; i++) {
        now_ms += 1000;
        assert_false(bt_watchdog_look_loading(&dog, now_ms, 10000));
    }
    now_ms += 1000;
    assert_true(bt_watchdog_look_loading(&dog, now_ms, 10000));

    /* Twice in a row, each shorter, and silence behind it counts anew. */
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < 1000; i++) {
            now_ms += 1000;
            assert_false(bt_watchdog_look_loading(&dog, now_ms, 10000));
        }
        now_ms += 1000;
        assert_false(bt_watchdog_look(&dog, now_ms, true, 0, 10000));
    }
    for (int i = 0; i < 9; i++) {
        now_ms += 1000;
        assert_false(bt_watchdog_look(&dog, now_ms, false, 0, 10000));
    }
    now_ms += 1000;
    assert_true(bt_watchdog_look(&dog, now_ms, false, 0, 10000));
}

static void a_pause_of_the_machine_is_no_silence(void **state)
{
    bt_watchdog_t dog;
    uint64_t now_ms = 0;

    (void)state;
    bt_watchdog_init(&dog, now_ms);
    now_ms += 1000;
    assert_false(bt_watchdog_look(&dog, now_ms, true, 0, 10000));
    for (int i = 0; i < 4; i++) { /* hours, but the launcher slept too */
        now_ms += 3600000;
        assert_false(bt_watchdog_look(&dog, now_ms, false, 0, 10000));
    }
    now_ms += 1999; /* 9999 of 10000 that count */
    assert_false(bt_watchdog_look(&dog, now_ms, false, 0, 10000));
    now_ms += 1;
    assert_true(bt_watchdog_look(&dog, now_ms, false, 0, 10000));
}

static void a_process_that_waits_for_a_core_is_starved_not_hung(void **state)
{
    bt_watchdog_t dog;
    uint64_t now_ms = 0;

    (void)state;
    bt_watchdog_init(&dog, now_ms);
    now_ms += 1000;
    assert_false(bt_watchdog_look(&dog, now_ms, true, 0, 10000));
    for (int i = 0; i < 9; i++) { /* the first look has nothing to compare */
        now_ms += 1000;
        assert_false(bt_watchdog_look(&dog, now_ms, false, 0, 10000));
    }
    assert_false(bt_watchdog_is_starved(&dog, 10000));
    for (int i = 0; i < 100; i++) { /* more than passed is not waited */
        now_ms += 1000;
        assert_false(bt_watchdog_look(&dog, now_ms, false, 1500, 10000));
    }
    assert_true(bt_watchdog_is_starved(&dog, 10000));
    now_ms += 1000; /* it is stopped: as much silence as is left */
    assert_true(bt_watchdog_look(&dog, now_ms, false, 0, 10000));
    assert_false(bt_watchdog_is_starved(&dog, 10000));

    bt_watchdog_init(&dog, now_ms);
    assert_false(bt_watchdog_look(&dog, now_ms, true, 0, 10000));
    for (int i = 0; i < 4; i++) {
        now_ms += 1000;
        assert_false(bt_watchdog_look(&dog, now_ms, false, 900, 10000));
    }
    assert_true(bt_watchdog_is_starved(&dog, 10000));
    assert_false(bt_watchdog_look(&dog, now_ms, true, 0, 10000));
    assert_false(bt_watchdog_is_starved(&dog, 10000)); /* its loop turned */
}

static void last_line_of_loading_counts_and_takes_no_room(void **state)
{
    bt_ready_t ready;

    (void)state;
    bt_ready_reset(&ready);
    bt_ready_add(&ready, "ready\nload", 10);
    assert_false(ready.is_loading);
    bt_ready_add(&ready, "ing\n", 4);
    assert_true(ready.is_loading);
    bt_ready_add(&ready, "loaded\nloading\n", 15);
    assert_true(ready.is_loading);
    for (int i = 0; i < 1000; i++) {
        bt_ready_add(&ready, "loading\nrole both\nloaded\n", 25);
        assert_false(ready.is_loading);
    }
    assert_string_equal(ready.text, "ready\n");
    bt_ready_add(&ready, "loading\n", 8);
    bt_ready_reset(&ready);
    assert_false(ready.is_loading);
}

static void ready_is_a_line_of_its_own(void **state)
{
    bt_ready_t ready;
    char address[32] = "untouched";

    (void)state;
    bt_ready_reset(&ready);
    assert_false(bt_ready_has_line(&ready));
    bt_ready_add(&ready, "http ready", 10);
    assert_false(bt_ready_has_line(&ready));
    assert_false(bt_ready_address(&ready, "http", address, sizeof(address)));
    bt_ready_add(&ready, "\nmetrics [::1]:2\nread", 21);
    assert_true(bt_ready_has_line(&ready));
    assert_false(bt_ready_is_done(&ready));
    bt_ready_add(&ready, "y", 1);
    assert_false(bt_ready_is_done(&ready));
    bt_ready_add(&ready, "\n", 1);
    assert_true(bt_ready_is_done(&ready));

    assert_false(bt_ready_address(&ready, "grpc", address, sizeof(address)));
    assert_false(bt_ready_address(&ready, "metric", address, sizeof(address)));
    assert_false(bt_ready_address(&ready, "metrics", address, 7));
    assert_string_equal(address, "untouched");
    assert_true(bt_ready_address(&ready, "metrics", address, sizeof(address)));
    assert_string_equal(address, "[::1]:2");
}

/* As often as it likes, in pieces. */
static void
what_keeps_a_worker_from_its_routers_is_kept_and_takes_no_room(void **state)
{
    static const char whole[] = "ready\njoined 0 2 ipc:///r: no router answers "
                                "there\njoined 1 2 tcp://h:1: not yet\n";
    bt_ready_t ready;

    (void)state;
    bt_ready_reset(&ready);
    for (size_t i = 0; i < sizeof(whole) - 1; i++) {
        bt_ready_add(&ready, &whole[i], 1);
    }
    assert_string_equal(ready.why,
                        "linked with 1 of 2 routers; tcp://h:1: not yet");
    assert_true(ready.said_joined);
    assert_true(bt_ready_is_done(&ready));
    for (int i = 0; i < 1000; i++) {
        bt_ready_add(&ready, "joined 0 1\n", 11);
    }
    assert_string_equal(ready.why, "linked with 0 of 1 routers");
    bt_ready_add(&ready, "joined nonsense\n", 16);
    assert_string_equal(ready.why, "");
    bt_ready_add(&ready, "joined 2 2 p cannot reach d: no\n", 32);
    assert_string_equal(ready.why, "p cannot reach d: no");
    bt_ready_add(&ready, "joined 0 1 u: x\njoined 1 1\n", 27);
    assert_string_equal(ready.why, "");
    assert_string_equal(ready.text, "ready\n");
}

/* The role may be said any number of times, in pieces, before and after. */
static void the_last_reported_role_counts_and_takes_no_space(void **state)
{
    bt_ready_t ready;

    (void)state;
    bt_ready_reset(&ready);
    bt_ready_add(&ready, "role decode\nready\nro", 20);
    assert_string_equal(ready.role, "decode");
    assert_true(bt_ready_is_done(&ready));
    bt_ready_add(&ready, "le both\nhttp 1\n", 15);
    assert_string_equal(ready.role, "both");
    assert_true(bt_ready_is_done(&ready));
    for (int i = 0; i < BT_READY_BYTES; i++) {
        bt_ready_add(&ready, "role prefill\nrole both\n", 23);
    }
    bt_ready_add(&ready, "role decode\n", 12);
    assert_string_equal(ready.role, "decode");
    assert_int_equal(ready.len, strlen("ready\nhttp 1\n"));
    bt_ready_add(&ready, "role a-word-that-is-no-role\n", 28);
    assert_string_equal(ready.role, "");
    bt_ready_reset(&ready);
    assert_int_equal(ready.len, 0);
}

static void too_much_on_the_ready_descriptor_is_harmless(void **state)
{
    bt_ready_t ready;

    (void)state;
    bt_ready_reset(&ready);
    for (int i = 0; i < 3 * BT_READY_BYTES; i++) {
        bt_ready_add(&ready, "x", 1);
    }
    bt_ready_add(&ready, "\nready\n", 7);
    assert_false(bt_ready_is_done(&ready));
}

static void the_announcement_has_addresses_and_a_line_to_paste(void **state)
{
    static const char said[] = "http 0.0.0.0:8000\nmetrics 127.0.0.1:8002\n"
                               "grpc [::1]:8001\nready\n";
    static const char *const models[] = {"SmolLM2"};
    bt_ready_t ready;
    const bt_ready_t *const routers[] = {&ready};
    bt_strbuf_t out;

    (void)state;
    bt_ready_reset(&ready);
    bt_ready_add(&ready, said, sizeof(said) - 1);
    bt_strbuf_init(&out, 4096);
    bt_ready_announce(routers, 1, models, 1, &out);
    assert_int_equal(bt_strbuf_status(&out), BT_OK);
    assert_string_equal(
        out.data,
        "\nBaton is ready.\n"
        "  HTTP     http://0.0.0.0:8000\n"
        "  OpenAI   http://127.0.0.1:8000/v1\n"
        "  page     http://127.0.0.1:8000/\n"
        "  gRPC     [::1]:8001\n"
        "  metrics  http://127.0.0.1:8002/metrics\n"
        "  model    SmolLM2\n"
        "\nTry it:\n"
        "  ./baton ask \"Why is the sky blue?\"\n"
        "  curl -X POST 127.0.0.1:8000/v2/models/ensemble/generate -d "
        "'{\"text_input\": \"The capital of France is\", \"max_tokens\": "
        "16}'\n"
        "\nCtrl-C stops everything.\n");
    bt_strbuf_fini(&out);
}

static void an_address_with_tls_is_announced_as_such(void **state)
{
    static const char said[] = "http https://0.0.0.0:8000\n"
                               "metrics 127.0.0.1:8002\nready\n";
    bt_ready_t ready;
    const bt_ready_t *const routers[] = {&ready};
    bt_strbuf_t out;

    (void)state;
    bt_ready_reset(&ready);
    bt_ready_add(&ready, said, sizeof(said) - 1);
    bt_strbuf_init(&out, 4096);
    bt_ready_announce(routers, 1, NULL, 0, &out);
    assert_non_null(strstr(out.data,
                           "\n  HTTP     https://0.0.0.0:8000\n"
                           "  OpenAI   https://127.0.0.1:8000/v1\n"
                           "  page     https://127.0.0.1:8000/\n"
                           "  metrics  http://127.0.0.1:8002/metrics\n"
                           "\nTry it:\n"
                           "  BATON_URL=https://127.0.0.1:8000 ./baton ask "
                           "--cacert FILE \"Why is the sky blue?\"\n"
                           "  curl -X POST --cacert FILE "
                           "https://127.0.0.1:8000/v2/"));
    bt_strbuf_fini(&out);
}

static void a_demonstration_model_is_announced_as_such(void **state)
{
    static const char said[] = "http 127.0.0.1:8000\nready\n";
    static const char *const models[] = {"SmolLM2-135M-Instruct.Q4_1"};
    bt_ready_t ready;
    const bt_ready_t *const routers[] = {&ready};
    bt_strbuf_t out;

    (void)state;
    bt_ready_reset(&ready);
    bt_ready_add(&ready, said, sizeof(said) - 1);
    bt_strbuf_init(&out, 4096);
    bt_ready_announce(routers, 1, models, 1, &out);
    assert_non_null(strstr(
        out.data, "  model    SmolLM2-135M-Instruct.Q4_1\n"
                  "           (a small one, to try things out: its answers are "
                  "often wrong.\n"
                  "           ./baton list --known names better ones, ./baton "
                  "pull NAME fetches one,\n"
                  "           ./baton serve NAME serves it)\n"));
    bt_strbuf_fini(&out);
}

static void several_routers_are_announced_with_all_their_addresses(void **state)
{
    static const char *const said[] = {
        "http 127.0.0.1:8003\nmetrics 127.0.0.1:8002\nready\n",
        "http 127.0.0.1:8010\nmetrics 127.0.0.1:8012\nready\n",
    };
    static const char *const models[] = {"a", "b"};
    bt_ready_t ready[2];
    const bt_ready_t *const routers[] = {&ready[0], &ready[1]};
    bt_strbuf_t out;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        bt_ready_reset(&ready[i]);
        bt_ready_add(&ready[i], said[i], strlen(said[i]));
    }
    bt_strbuf_init(&out, 4096);
    bt_ready_announce(routers, 2, models, 2, &out);
    assert_non_null(strstr(out.data,
                           "\n  HTTP     http://127.0.0.1:8003\n"
                           "           http://127.0.0.1:8010\n"
                           "  OpenAI   http://127.0.0.1:8003/v1\n"
                           "  page     http://127.0.0.1:8003/\n"
                           "  metrics  http://127.0.0.1:8002/metrics\n"
                           "           http://127.0.0.1:8012/metrics\n"
                           "  models   a\n"
                           "           b\n"
                           "\nTry it:\n"
                           "  BATON_URL=127.0.0.1:8003 ./baton ask \"Why is "
                           "the sky blue?\"\n"
                           "  curl -X POST 127.0.0.1:8003/"));
    bt_strbuf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(what_keeps_a_worker_from_its_routers_is_kept_and_takes_no_room),
        BT_TEST(a_process_hangs_after_silence_of_the_limit),
        BT_TEST(a_process_that_loads_hangs_after_half_an_hour),
        BT_TEST(a_pause_of_the_machine_is_no_silence),
        BT_TEST(a_process_that_waits_for_a_core_is_starved_not_hung),
        BT_TEST(ready_is_a_line_of_its_own),
        BT_TEST(last_line_of_loading_counts_and_takes_no_room),
        BT_TEST(the_last_reported_role_counts_and_takes_no_space),
        BT_TEST(too_much_on_the_ready_descriptor_is_harmless),
        BT_TEST(the_announcement_has_addresses_and_a_line_to_paste),
        BT_TEST(an_address_with_tls_is_announced_as_such),
        BT_TEST(a_demonstration_model_is_announced_as_such),
        BT_TEST(several_routers_are_announced_with_all_their_addresses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
