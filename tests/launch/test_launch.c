/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the launcher that start no process. */
#include "tests/support/testsupport.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "common/base/exit_code.h"
#include "launcher/process_state.h"
#include "launcher/ready.h"
#include "launcher/restart.h"
#include "launcher/run_dir.h"
#include "launcher/stderr_tail.h"
#include "launcher/watchdog.h"

static void pauses_double_from_half_a_second_to_thirty(void **state)
{
    static const uint32_t want_ms[] = {500,  1000,  2000,  4000,
                                       8000, 16000, 30000, 30000};
    bt_restart_t restart;
    uint32_t pause_ms = 0;

    (void)state;
    bt_restart_init(&restart);
    bt_restart_ready(&restart, 0);
    for (size_t i = 0; i < sizeof(want_ms) / sizeof(want_ms[0]); i++) {
        assert_true(bt_restart_exited(&restart, 1000, false, &pause_ms));
        assert_int_equal(pause_ms, want_ms[i]);
    }
}

static void a_minute_of_health_makes_pauses_short_again(void **state)
{
    bt_restart_t restart;
    uint32_t pause_ms = 0;

    (void)state;
    bt_restart_init(&restart);
    bt_restart_ready(&restart, 1000);
    assert_true(bt_restart_exited(&restart, 2000, false, &pause_ms));
    assert_true(bt_restart_exited(&restart, 3000, false, &pause_ms));
    assert_int_equal(pause_ms, 1000);

    bt_restart_ready(&restart, 10000);
    assert_true(bt_restart_exited(&restart, 69999, false, &pause_ms));
    assert_int_equal(pause_ms, 2000);

    bt_restart_ready(&restart, 70000);
    assert_true(bt_restart_exited(&restart, 130000, false, &pause_ms));
    assert_int_equal(pause_ms, 0);
    assert_true(bt_restart_exited(&restart, 131000, false, &pause_ms));
    assert_int_equal(pause_ms, 500);
    /* A long life without being ready is no health. */
    assert_true(bt_restart_exited(&restart, 999999, false, &pause_ms));
    assert_int_equal(pause_ms, 1000);
}

static void the_fifth_early_end_is_the_last(void **state)
{
    bt_restart_t restart;
    uint32_t pause_ms = 0;

    (void)state;
    bt_restart_init(&restart);
    for (int i = 0; i < 4; i++) {
        assert_true(bt_restart_exited(&restart, 0, false, &pause_ms));
    }
    pause_ms = 77;
    assert_false(bt_restart_exited(&restart, 0, false, &pause_ms));
    assert_int_equal(pause_ms, 77);

    /* Once ready, never given up. */
    bt_restart_init(&restart);
    bt_restart_ready(&restart, 0);
    for (int i = 0; i < 20; i++) {
        assert_true(bt_restart_exited(&restart, 0, false, &pause_ms));
    }
}

static void what_would_end_so_again_is_not_tried_again(void **state)
{
    bt_restart_t restart;
    uint32_t pause_ms = 77;

    (void)state;
    bt_restart_init(&restart);
    assert_false(bt_restart_exited(&restart, 0, true, &pause_ms));
    assert_int_equal(pause_ms, 77);

    /* What was there once may come back. */
    bt_restart_init(&restart);
    bt_restart_ready(&restart, 0);
    assert_true(bt_restart_exited(&restart, 0, true, &pause_ms));
    assert_int_equal(pause_ms, 500);
}

static void exit_codes_tell_what_may_pass(void **state)
{
    static const struct {
        bt_status_t status;
        int code;
    } starts[] = {
        {BT_OK, 0},
        {BT_ERR_CANCELED, 0},
        {BT_ERR_INVALID_PARAM, 2},
        {BT_ERR_NO_MEMORY, 78},
        {BT_ERR_UNSUPPORTED, 78},
        {BT_ERR_NO_DEVICE, 78},
        {BT_ERR_NOT_FOUND, 78},
        {BT_ERR_UNAUTHORIZED, 78},
        {BT_ERR_BAD_FILE, 78},
        {BT_ERR_IO, 1},
        {BT_ERR_TIMED_OUT, 1},
        {BT_ERR_BUSY, 1},
        {BT_ERR_INTERNAL, 1},
    };
    static const int final[] = {2, 78, 126, 127};

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(starts); i++) {
        assert_int_equal(bt_exit_of_start(starts[i].status), starts[i].code);
    }
    for (int code = 0; code < 256; code++) {
        bool is_final = false;

        for (size_t i = 0; i < BT_ARRAY_LEN(final); i++) {
            is_final = is_final || (code == final[i]);
        }
        assert_int_equal(bt_exit_is_final(code), is_final);
    }
    /* An address in use, by bind(). */
    assert_int_equal(bt_exit_of_start(bt_status_of_bind(EADDRINUSE)), 78);
    assert_int_equal(bt_exit_of_start(bt_status_of_bind(EADDRNOTAVAIL)), 78);
    assert_int_equal(bt_exit_of_start(bt_status_of_bind(EACCES)), 78);
    assert_int_equal(bt_exit_of_start(bt_status_of_bind(ENOBUFS)), 1);
}

static void check_cause(const char *words_said, const char *want)
{
    bt_stderr_tail_t *words = bt_calloc(1, sizeof(*words));
    char cause[BT_LAST_WORDS_BYTES];

    assert_non_null(words);
    bt_stderr_tail_add(words, words_said, strlen(words_said));
    bt_stderr_tail_finish(words);
    bt_stderr_tail_cause(words, cause);
    assert_string_equal(cause, want);
    bt_free(words);
}

static void the_cause_is_the_last_error_among_the_last_words(void **state)
{
    (void)state;
    check_cause("2026-11-22T14:03:07.123+00:00 info  decode-0: loading\n"
                "2026-11-22T14:03:07.124+00:00 error decode-0: first\n"
                "2026-11-22T14:03:07.125+00:00 error decode-0: model m: 3 MiB "
                "are missing\n"
                "2026-11-22T14:03:07.126+00:00 info  decode-0: ended\n",
                "model m: 3 MiB are missing");
    check_cause("{\"time\":\"t\",\"level\":\"error\",\"name\":\"router\","
                "\"pid\":1,\"message\":\"no \\\"a\\\\b\\\" here\"}\n"
                "{\"time\":\"t\",\"level\":\"info\",\"name\":\"router\","
                "\"pid\":1,\"message\":\"ended\"}\n",
                "no \"a\\b\" here");
    /* Of a library or a shell: whatever came last, but no empty line. */
    check_cause("Fatal: it hurts\n\n", "Fatal: it hurts");
    check_cause("", "");
}

static void a_hang_is_as_much_silence_as_the_limit(void **state)
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

static void a_pause_of_the_machine_is_nobodys_silence(void **state)
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

static void who_waits_for_a_core_is_starved_and_not_hung(void **state)
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

static void last_words_are_the_last_twenty_lines(void **state)
{
    bt_stderr_tail_t *words = bt_calloc(1, sizeof(*words));
    char line[32];

    (void)state;
    assert_non_null(words);
    bt_stderr_tail_reset(words);
    assert_null(bt_stderr_tail_line(words, 0));
    for (int i = 0; i < 33; i++) {
        snprintf(line, sizeof(line), "line %d\n", i);
        bt_stderr_tail_add(words, line, 3); /* in two pieces */
        bt_stderr_tail_add(words, line + 3, strlen(line) - 3);
    }
    assert_string_equal(bt_stderr_tail_line(words, 0), "line 13");
    assert_string_equal(bt_stderr_tail_line(words, 19), "line 32");
    assert_null(bt_stderr_tail_line(words, 20));

    /* An open line takes the oldest one's place at once. */
    bt_stderr_tail_add(words, "half", 4);
    assert_string_equal(bt_stderr_tail_line(words, 0), "line 14");
    assert_string_equal(bt_stderr_tail_line(words, 18), "line 32");
    assert_null(bt_stderr_tail_line(words, 19));
    bt_stderr_tail_finish(words);
    bt_stderr_tail_finish(words);
    assert_string_equal(bt_stderr_tail_line(words, 19), "half");
    bt_stderr_tail_add(words, "\n\n", 2);
    assert_string_equal(bt_stderr_tail_line(words, 17), "half");
    assert_string_equal(bt_stderr_tail_line(words, 19), "");
    bt_free(words);
}

static void a_long_last_word_is_cut(void **state)
{
    bt_stderr_tail_t *words = bt_calloc(1, sizeof(*words));

    (void)state;
    assert_non_null(words);
    for (int i = 0; i < 5000; i++) {
        bt_stderr_tail_add(words, "x", 1);
    }
    bt_stderr_tail_add(words, "\nshort\n", 7);
    assert_int_equal(strlen(bt_stderr_tail_line(words, 0)),
                     BT_LAST_WORDS_BYTES - 1);
    assert_string_equal(bt_stderr_tail_line(words, 1), "short");
    bt_free(words);
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
static void the_role_said_last_counts_and_takes_no_room(void **state)
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

static void a_model_for_demonstration_is_said_to_be_one(void **state)
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

static void the_run_directory_is_private_and_leaves_nothing(void **state)
{
    bt_run_dir_t dir;
    bt_run_dir_t other;
    struct stat info;
    char keys[2][80] = {"", ""};
    char path[128];
    FILE *file;

    (void)state;
    assert_int_equal(bt_run_dir_create(&dir), BT_OK);
    assert_int_equal(bt_run_dir_create(&other), BT_OK);
    assert_int_equal(stat(dir.path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0700);
    assert_int_equal(stat(dir.key_file, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);

    file = fopen(dir.key_file, "r");
    assert_non_null(fgets(keys[0], sizeof(keys[0]), file));
    fclose(file);
    file = fopen(other.key_file, "r");
    assert_non_null(fgets(keys[1], sizeof(keys[1]), file));
    fclose(file);
    assert_int_equal(strspn(keys[0], "0123456789abcdef"), 64);
    assert_string_not_equal(keys[0], keys[1]);

    /* What a killed process leaves behind. */
    snprintf(path, sizeof(path), "%s/baton-a1b2c3", dir.path);
    assert_int_equal(mkdir(path, 0700), 0);
    bt_run_dir_remove(&dir);
    assert_int_equal(stat(dir.path, &info), -1);
    assert_int_equal(stat(other.key_file, &info), 0);
    bt_run_dir_remove(&other);
    assert_int_equal(stat(other.path, &info), -1);
}

/* A file, a folder with one, a link: none of them was made by a launcher. */
static void what_is_not_ours_stays_in_a_run_directory(void **state)
{
    static const char *const names[] = {"notes", "baton-backup/notes",
                                        "baton-a1b2c3"};
    bt_run_dir_t dir;
    struct stat info;
    char path[128];

    (void)state;
    bt_test_expect_log_lines(BT_ARRAY_LEN(names));
    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        char *slash;

        assert_int_equal(bt_run_dir_create(&dir), BT_OK);
        snprintf(path, sizeof(path), "%s/%s", dir.path, names[i]);
        slash = strrchr(path, '/');
        if (i == 1) {
            *slash = '\0';
            assert_int_equal(mkdir(path, 0700), 0);
            *slash = '/';
        }
        if (i == 2) {
            assert_int_equal(symlink("/tmp", path), 0);
        } else {
            fclose(fopen(path, "w"));
        }
        bt_run_dir_remove(&dir);
        assert_int_equal(lstat(path, &info), 0);
        assert_int_equal(stat(dir.key_file, &info), -1);
        assert_int_equal(unlink(path), 0);
        if (i == 1) {
            *slash = '\0';
            assert_int_equal(rmdir(path), 0);
        }
        assert_int_equal(rmdir(dir.path), 0);
    }
}

/* Every state with every event, by the drawing in process_state.h; what is not
 * listed changes nothing. */
static void a_life_has_the_arrows_of_its_drawing_and_no_others(void **state)
{
    static const struct {
        bt_process_state_t from;
        bt_process_state_event_t event;
        bt_process_state_t to;
    } arrows[] = {
        {BT_LIFE_STOPPED, BT_LIFE_START, BT_LIFE_STARTING},
        {BT_LIFE_STOPPED, BT_LIFE_RESTART, BT_LIFE_STARTING},
        {BT_LIFE_STOPPED, BT_LIFE_HOLD, BT_LIFE_WAITING},
        {BT_LIFE_STARTING, BT_LIFE_STOP, BT_LIFE_STOPPING},
        {BT_LIFE_STARTING, BT_LIFE_RESTART, BT_LIFE_CHANGING},
        {BT_LIFE_STARTING, BT_LIFE_SAID_READY, BT_LIFE_READY},
        {BT_LIFE_STARTING, BT_LIFE_ENDED, BT_LIFE_WAITING},
        {BT_LIFE_STARTING, BT_LIFE_GAVE_UP, BT_LIFE_STOPPED},
        {BT_LIFE_READY, BT_LIFE_STOP, BT_LIFE_STOPPING},
        {BT_LIFE_READY, BT_LIFE_RESTART, BT_LIFE_CHANGING},
        {BT_LIFE_READY, BT_LIFE_ENDED, BT_LIFE_WAITING},
        {BT_LIFE_STOPPING, BT_LIFE_START, BT_LIFE_CHANGING},
        {BT_LIFE_STOPPING, BT_LIFE_RESTART, BT_LIFE_CHANGING},
        {BT_LIFE_STOPPING, BT_LIFE_ENDED, BT_LIFE_STOPPED},
        {BT_LIFE_CHANGING, BT_LIFE_STOP, BT_LIFE_STOPPING},
        {BT_LIFE_CHANGING, BT_LIFE_ENDED, BT_LIFE_STARTING},
        {BT_LIFE_WAITING, BT_LIFE_START, BT_LIFE_STARTING},
        {BT_LIFE_WAITING, BT_LIFE_RESTART, BT_LIFE_STARTING},
        {BT_LIFE_WAITING, BT_LIFE_PAUSE_OVER, BT_LIFE_STARTING},
        {BT_LIFE_WAITING, BT_LIFE_STOP, BT_LIFE_STOPPED},
    };
    const size_t n_arrows = sizeof(arrows) / sizeof(arrows[0]);

    (void)state;
    for (unsigned from = 0; from < BT_LIFE_STATES; from++) {
        bool is_edge[BT_LIFE_STATES] = {false};

        for (unsigned event = 0; event < BT_LIFE_EVENTS; event++) {
            bt_process_state_t want = (bt_process_state_t)from;

            for (size_t i = 0; i < n_arrows; i++) {
                if ((arrows[i].from == from) && (arrows[i].event == event)) {
                    want = arrows[i].to;
                    is_edge[want] = true;
                }
            }
            assert_int_equal(
                bt_process_state_after((bt_process_state_t)from,
                                       (bt_process_state_event_t)event),
                want);
        }
        for (unsigned to = 0; to < BT_LIFE_STATES; to++) {
            assert_int_equal(bt_process_state_is_edge((bt_process_state_t)from,
                                                      (bt_process_state_t)to),
                             is_edge[to]);
        }
    }
    assert_false(bt_process_state_runs(BT_LIFE_STOPPED));
    assert_false(bt_process_state_runs(BT_LIFE_WAITING));
    assert_true(bt_process_state_runs(BT_LIFE_STARTING));
    assert_true(bt_process_state_runs(BT_LIFE_READY));
    assert_true(bt_process_state_runs(BT_LIFE_STOPPING));
    assert_true(bt_process_state_runs(BT_LIFE_CHANGING));
}

/* How often each of two directories was listed, and how many others were. */
typedef struct listed {
    const char *paths[2];
    int n[2], n_others;
} listed_t;

static void on_run_dir(void *arg, const char *path)
{
    listed_t *const listed = arg;

    for (size_t i = 0; i < 2; i++) {
        if (strcmp(path, listed->paths[i]) == 0) {
            listed->n[i]++;
            return;
        }
    }
    listed->n_others += (strstr(path, "/tmp/baton-test-") == path);
}

static void run_directories_are_found_where_they_are_made(void **state)
{
    char parent[] = "/tmp/baton-test-XXXXXX";
    bt_run_dir_t dirs[2];
    listed_t listed = {.paths = {dirs[0].path, dirs[1].path}};
    char link[64];
    char file[64];

    (void)state;
    assert_non_null(mkdtemp(parent));
    setenv("TMPDIR", parent, 1);
    setenv("XDG_RUNTIME_DIR", parent, 1);
    assert_int_equal(bt_run_dir_create(&dirs[0]), BT_OK);
    assert_int_equal(bt_run_dir_create(&dirs[1]), BT_OK);
    /* Neither a link nor a file with such a name is one. */
    snprintf(link, sizeof(link), "%s/baton-a1b2c3", parent);
    assert_int_equal(symlink(dirs[0].path, link), 0);
    snprintf(file, sizeof(file), "%s/baton-d4e5f6", parent);
    fclose(fopen(file, "w"));
    bt_run_dir_each(on_run_dir, &listed);
    assert_int_equal(listed.n[0], 1);
    assert_int_equal(listed.n[1], 1);
    assert_int_equal(listed.n_others, 0);

    unlink(link);
    unlink(file);
    bt_run_dir_remove(&dirs[0]);
    bt_run_dir_remove(&dirs[1]);
    assert_int_equal(rmdir(parent), 0);
    unsetenv("TMPDIR");
    unsetenv("XDG_RUNTIME_DIR");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(what_keeps_a_worker_from_its_routers_is_kept_and_takes_no_room),
        BT_TEST(pauses_double_from_half_a_second_to_thirty),
        BT_TEST(a_minute_of_health_makes_pauses_short_again),
        BT_TEST(the_fifth_early_end_is_the_last),
        BT_TEST(what_would_end_so_again_is_not_tried_again),
        BT_TEST(a_hang_is_as_much_silence_as_the_limit),
        BT_TEST(a_pause_of_the_machine_is_nobodys_silence),
        BT_TEST(who_waits_for_a_core_is_starved_and_not_hung),
        BT_TEST(exit_codes_tell_what_may_pass),
        BT_TEST(the_cause_is_the_last_error_among_the_last_words),
        BT_TEST(last_words_are_the_last_twenty_lines),
        BT_TEST(a_long_last_word_is_cut),
        BT_TEST(ready_is_a_line_of_its_own),
        BT_TEST(the_role_said_last_counts_and_takes_no_room),
        BT_TEST(too_much_on_the_ready_descriptor_is_harmless),
        BT_TEST(the_announcement_has_addresses_and_a_line_to_paste),
        BT_TEST(an_address_with_tls_is_announced_as_such),
        BT_TEST(a_model_for_demonstration_is_said_to_be_one),
        BT_TEST(several_routers_are_announced_with_all_their_addresses),
        BT_TEST(a_life_has_the_arrows_of_its_drawing_and_no_others),
        BT_TEST(run_directories_are_found_where_they_are_made),
        BT_TEST(the_run_directory_is_private_and_leaves_nothing),
        BT_TEST(what_is_not_ours_stays_in_a_run_directory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
