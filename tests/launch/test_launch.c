/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the launcher that start no process. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "launcher/last_words.h"
#include "launcher/plan.h"
#include "launcher/ready.h"
#include "launcher/restart.h"
#include "launcher/run_dir.h"

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
        assert_true(bt_restart_exited(&restart, 1000, &pause_ms));
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
    assert_true(bt_restart_exited(&restart, 2000, &pause_ms));
    assert_true(bt_restart_exited(&restart, 3000, &pause_ms));
    assert_int_equal(pause_ms, 1000);

    bt_restart_ready(&restart, 10000);
    assert_true(bt_restart_exited(&restart, 69999, &pause_ms));
    assert_int_equal(pause_ms, 2000);

    bt_restart_ready(&restart, 70000);
    assert_true(bt_restart_exited(&restart, 130000, &pause_ms));
    assert_int_equal(pause_ms, 500);
    /* A long life without being ready is no health. */
    assert_true(bt_restart_exited(&restart, 999999, &pause_ms));
    assert_int_equal(pause_ms, 1000);
}

static void the_fifth_early_end_is_the_last(void **state)
{
    bt_restart_t restart;
    uint32_t pause_ms = 0;

    (void)state;
    bt_restart_init(&restart);
    for (int i = 0; i < 4; i++) {
        assert_true(bt_restart_exited(&restart, 0, &pause_ms));
    }
    pause_ms = 77;
    assert_false(bt_restart_exited(&restart, 0, &pause_ms));
    assert_int_equal(pause_ms, 77);

    /* Once ready, never given up. */
    bt_restart_init(&restart);
    bt_restart_ready(&restart, 0);
    for (int i = 0; i < 20; i++) {
        assert_true(bt_restart_exited(&restart, 0, &pause_ms));
    }
}

static void last_words_are_the_last_twenty_lines(void **state)
{
    bt_last_words_t *words = bt_calloc(1, sizeof(*words));
    char line[32];

    (void)state;
    assert_non_null(words);
    bt_last_words_reset(words);
    assert_null(bt_last_words_line(words, 0));
    for (int i = 0; i < 33; i++) {
        snprintf(line, sizeof(line), "line %d\n", i);
        bt_last_words_add(words, line, 3); /* in two pieces */
        bt_last_words_add(words, line + 3, strlen(line) - 3);
    }
    assert_string_equal(bt_last_words_line(words, 0), "line 13");
    assert_string_equal(bt_last_words_line(words, 19), "line 32");
    assert_null(bt_last_words_line(words, 20));

    /* An open line takes the oldest one's place at once. */
    bt_last_words_add(words, "half", 4);
    assert_string_equal(bt_last_words_line(words, 0), "line 14");
    assert_string_equal(bt_last_words_line(words, 18), "line 32");
    assert_null(bt_last_words_line(words, 19));
    bt_last_words_finish(words);
    bt_last_words_finish(words);
    assert_string_equal(bt_last_words_line(words, 19), "half");
    bt_last_words_add(words, "\n\n", 2);
    assert_string_equal(bt_last_words_line(words, 17), "half");
    assert_string_equal(bt_last_words_line(words, 19), "");
    bt_free(words);
}

static void a_long_last_word_is_cut(void **state)
{
    bt_last_words_t *words = bt_calloc(1, sizeof(*words));

    (void)state;
    assert_non_null(words);
    for (int i = 0; i < 5000; i++) {
        bt_last_words_add(words, "x", 1);
    }
    bt_last_words_add(words, "\nshort\n", 7);
    assert_int_equal(strlen(bt_last_words_line(words, 0)),
                     BT_LAST_WORDS_BYTES - 1);
    assert_string_equal(bt_last_words_line(words, 1), "short");
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
    bt_ready_t ready;
    bt_strbuf_t out;

    (void)state;
    bt_ready_reset(&ready);
    bt_ready_add(&ready, said, sizeof(said) - 1);
    bt_strbuf_init(&out, 4096);
    bt_ready_announce(&ready, &out);
    assert_int_equal(bt_strbuf_status(&out), BT_OK);
    assert_string_equal(
        out.data,
        "\nBaton is ready.\n"
        "  HTTP     http://0.0.0.0:8000\n"
        "  gRPC     [::1]:8001\n"
        "  metrics  http://127.0.0.1:8002/metrics\n"
        "\nTry it:\n"
        "  curl -X POST 127.0.0.1:8000/v2/models/ensemble/generate -d "
        "'{\"text_input\": \"The capital of France is\", \"max_tokens\": "
        "16}'\n"
        "\nCtrl-C stops everything.\n");
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

    /* What a killed process leaves behind; a link is not followed. */
    snprintf(path, sizeof(path), "%s/left", dir.path);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/left/link", dir.path);
    assert_int_equal(symlink(other.path, path), 0);
    bt_run_dir_remove(&dir);
    assert_int_equal(stat(dir.path, &info), -1);
    assert_int_equal(stat(other.key_file, &info), 0);
    bt_run_dir_remove(&other);
    assert_int_equal(stat(other.path, &info), -1);
}

static const char *const plan_args[] = {
    "test", "--model", "m.gguf", "--prefill", "2", "--decode", "1",
};

/* A plan for these cores, with extra arguments. */
static bt_plan_t *plan_for(const cpu_set_t *allowed,
                           const bt_topology_t *topology, const char *extra,
                           const char *extra_value)
{
    const bt_run_dir_t dir = {.path = "/run/x", .key_file = "/run/x/key"};
    const bt_config_t *config = NULL;
    bt_config_store_t *store = NULL;
    bt_plan_t *plan = NULL;
    char *argv[16] = {0};
    int argc = 0;

    for (; argc < 7; argc++) {
        argv[argc] = bt_strdup(plan_args[argc]);
    }
    if (extra != NULL) {
        argv[argc++] = bt_strdup(extra);
        argv[argc++] = bt_strdup(extra_value);
    }
    assert_int_equal(bt_config_load(BT_PROG_SERVE, argc, argv, &config, &store),
                     BT_OK);
    assert_int_equal(
        bt_plan_create(store, config, &dir, allowed, topology, &plan), BT_OK);
    bt_config_destroy(store);
    for (int i = 0; i < argc; i++) {
        bt_free(argv[i]);
    }
    return plan;
}

/* For n_cores cores numbered 1, 2, 4, 5, 7, 8 ... (every third is missing), of
 * one memory. */
static bt_plan_t *make_plan(unsigned n_cores, const char *extra,
                            const char *extra_value)
{
    static const bt_topology_t one_node;
    cpu_set_t allowed;

    CPU_ZERO(&allowed);
    for (size_t cpu = 1; n_cores > 0; cpu++) {
        if (cpu % 3 != 0) {
            CPU_SET(cpu, &allowed);
            n_cores--;
        }
    }
    return plan_for(&allowed, &one_node, extra, extra_value);
}

/* The arguments with spaces between them. */
static void assert_args(const bt_plan_t *plan, uint32_t i, const char *name,
                        const char *want)
{
    char args[1024];
    const bt_strbuf_t *const buf = &plan->processes[i].args;

    assert_string_equal(plan->processes[i].name, name);
    assert_true(buf->len < sizeof(args));
    for (size_t at = 0; at < buf->len; at++) {
        args[at] = (char)((buf->data[at] == '\0') ? ' ' : buf->data[at]);
    }
    args[buf->len - 1] = '\0';
    assert_string_equal(args, want);
}

static void the_plan_pins_workers_to_cores_of_their_own(void **state)
{
    bt_plan_t *plan = make_plan(6, "--max-batch", "9");

    (void)state;
    assert_int_equal(plan->n_processes, 4);
    assert_args(plan, 0, "router",
                "--model=m.gguf --listen=ipc:///run/x/router.ipc "
                "--run-dir=/run/x --key-file=/run/x/key --name=router");
    assert_args(plan, 1, "prefill-0",
                "--model=m.gguf --model-name=m --join=ipc:///run/x/router.ipc "
                "--run-dir=/run/x --key-file=/run/x/key --name=prefill-0 "
                "--threads=2 --cores=1-2");
    assert_args(plan, 2, "prefill-1",
                "--model=m.gguf --model-name=m --join=ipc:///run/x/router.ipc "
                "--run-dir=/run/x --key-file=/run/x/key --name=prefill-1 "
                "--threads=2 --cores=4-5");
    assert_args(
        plan, 3, "decode-0",
        "--max-batch=9 --model=m.gguf --model-name=m "
        "--join=ipc:///run/x/router.ipc --run-dir=/run/x --key-file=/run/x/key --name=decode-0 "
        "--threads=2 --cores=7-8");
    bt_plan_destroy(plan);

    /* Three of the six go to decode, so one is left for each prefill worker. */
    plan = make_plan(6, "--threads-decode", "3");
    assert_non_null(strstr(plan->processes[3].args.data, "--model"));
    assert_args(plan, 3, "decode-0",
                "--model=m.gguf --model-name=m --join=ipc:///run/x/router.ipc "
                "--run-dir=/run/x --key-file=/run/x/key --name=decode-0 "
                "--threads=3 --cores=4-5,7");
    bt_plan_destroy(plan);
}

static void assert_cores(const bt_plan_t *plan, uint32_t i, const char *want)
{
    const bt_strbuf_t *const args = &plan->processes[i].args;
    const char *last = args->data; /* --cores stands last */

    for (size_t at = 0; at + 1 < args->len; at++) {
        if (args->data[at] == '\0') {
            last = args->data + at + 1;
        }
    }
    assert_string_equal(last, want);
}

/* Two memories of four cores, numbered in turns. Workers of 2, 2 and 3 threads:
 * the second fills the first memory, the third has the other. One of 6 has all
 * of the memory that is still whole and what it needs of the other. */
static void a_worker_has_cores_of_one_memory_where_they_fit(void **state)
{
    bt_topology_t topology = {0};
    cpu_set_t allowed;
    bt_plan_t *plan;

    (void)state;
    CPU_ZERO(&allowed);
    for (size_t core = 0; core < 8; core++) {
        CPU_SET(core, &allowed);
        topology.node[core] = (uint8_t)(core % 2);
    }
    plan = plan_for(&allowed, &topology, "--threads-decode", "3");
    assert_cores(plan, 1, "--cores=0,2");
    assert_cores(plan, 2, "--cores=4,6");
    assert_cores(plan, 3, "--cores=1,3,5");
    bt_plan_destroy(plan);

    plan = plan_for(&allowed, &topology, "--threads-decode", "6");
    assert_cores(plan, 1, "--cores=0");
    assert_cores(plan, 2, "--cores=2");
    assert_cores(plan, 3, "--cores=1,3-7");
    bt_plan_destroy(plan);
}

static void too_few_cores_means_no_pinning(void **state)
{
    bt_plan_t *plan = make_plan(2, NULL, NULL);

    (void)state;
    assert_args(plan, 3, "decode-0",
                "--model=m.gguf --model-name=m --join=ipc:///run/x/router.ipc "
                "--run-dir=/run/x --key-file=/run/x/key --name=decode-0 "
                "--threads=1");
    bt_plan_destroy(plan);
}

static void threads_share_the_cores_evenly(void **state)
{
    static const struct {
        uint32_t prefill, decode, threads_prefill, threads_decode, cores;
        uint32_t want_prefill, want_decode;
    } cases[] = {
        {1, 1, 0, 0, 2, 1, 1}, {1, 1, 0, 0, 9, 4, 4}, {2, 2, 0, 0, 3, 1, 1},
        {1, 1, 6, 0, 8, 6, 2}, {1, 2, 0, 3, 8, 2, 3}, {1, 1, 8, 0, 8, 8, 1},
        {1, 1, 9, 0, 8, 9, 1}, {0, 1, 0, 0, 8, 8, 8}, {1, 1, 3, 5, 2, 3, 5},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const bt_config_t config = {
            .prefill = cases[i].prefill,
            .decode = cases[i].decode,
            .threads_prefill = cases[i].threads_prefill,
            .threads_decode = cases[i].threads_decode,
        };
        uint32_t prefill = 0;
        uint32_t decode = 0;

        bt_plan_threads(&config, cases[i].cores, &prefill, &decode);
        assert_int_equal(prefill, cases[i].want_prefill);
        assert_int_equal(decode, cases[i].want_decode);
    }
}

static void a_plan_survives_every_failed_allocation(void **state)
{
    const bt_run_dir_t dir = {.path = "/run/x", .key_file = "/run/x/key"};
    const bt_config_t *config = NULL;
    bt_config_store_t *store = NULL;
    char name[] = "test";
    char model[] = "--model=m.gguf";
    char *argv[] = {name, model, NULL};
    const bt_topology_t topology = {0};
    bt_status_t status;
    cpu_set_t allowed;
    int nth = 0;

    (void)state;
    CPU_ZERO(&allowed);
    CPU_SET(0, &allowed);
    CPU_SET(1, &allowed);
    assert_int_equal(bt_config_load(BT_PROG_SERVE, 2, argv, &config, &store),
                     BT_OK);
    do {
        bt_plan_t *plan = NULL;

        bt_alloc_fail_at(++nth);
        status =
            bt_plan_create(store, config, &dir, &allowed, &topology, &plan);
        assert_true((status == BT_OK) == (plan != NULL));
        assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
        bt_plan_destroy(plan);
    } while (status != BT_OK);
    bt_alloc_fail_at(0);
    /* the plan, its processes, three argument lists, two core lists */
    assert_int_equal(nth, 8);
    bt_config_destroy(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(pauses_double_from_half_a_second_to_thirty),
        BT_TEST(a_minute_of_health_makes_pauses_short_again),
        BT_TEST(the_fifth_early_end_is_the_last),
        BT_TEST(last_words_are_the_last_twenty_lines),
        BT_TEST(a_long_last_word_is_cut),
        BT_TEST(ready_is_a_line_of_its_own),
        BT_TEST(too_much_on_the_ready_descriptor_is_harmless),
        BT_TEST(the_announcement_has_addresses_and_a_line_to_paste),
        BT_TEST(the_run_directory_is_private_and_leaves_nothing),
        BT_TEST(the_plan_pins_workers_to_cores_of_their_own),
        BT_TEST(a_worker_has_cores_of_one_memory_where_they_fit),
        BT_TEST(too_few_cores_means_no_pinning),
        BT_TEST(threads_share_the_cores_evenly),
        BT_TEST(a_plan_survives_every_failed_allocation),
    };

    bt_config_unset_environment();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
