/* SPDX-License-Identifier: Apache-2.0 */
/* What the workers of a launch take together. The sums are worked by hand. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "launcher/preflight.h"

#define MIB (UINT64_C(1) << 20)

static bt_diagnostics_t findings;
/* 1 + 1 workers, 100 MiB of weights in one file, 10 MiB and a pool of 50 each:
 * 220 MiB, of which 100 in /dev/shm. */
static const bt_preflight_need_t two[] = {
    {.n = 1,
     .ranks = 1,
     .weight_bytes = 100 * MIB,
     .own_bytes = 10 * MIB,
     .pool_bytes = 50 * MIB,
     .weights_shared = true},
    {.n = 1,
     .ranks = 1,
     .weight_bytes = 100 * MIB,
     .own_bytes = 10 * MIB,
     .pool_bytes = 50 * MIB,
     .weights_shared = true},
};

static int begin(void **state)
{
    findings = (bt_diagnostics_t){0};
    return bt_test_setup(state);
}

static int end(void **state)
{
    bt_diagnostics_fini(&findings);
    return bt_test_teardown(state);
}

static bt_preflight_headroom_t room_of(uint64_t available_mib, uint64_t shm_mib)
{
    return (bt_preflight_headroom_t){.available_bytes = available_mib * MIB,
                                     .shm_bytes = shm_mib * MIB,
                                     .pools_given = true,
                                     .uses_shm = true};
}

static void what_fits_is_no_finding(void **state)
{
    const bt_preflight_headroom_t room = room_of(220, 100);

    (void)state;
    assert_int_equal(bt_preflight_check(two, 2, &room, &findings), 100 * MIB);
    assert_int_equal(findings.n, 0);
}

static void what_is_missing_is_said_with_the_pools_that_would_fit(void **state)
{
    const bt_preflight_headroom_t room = room_of(219, 100);

    (void)state;
    bt_preflight_check(two, 2, &room, &findings);
    assert_int_equal(findings.n, 1);
    assert_int_equal(findings.list[0].level, BT_FINDING_PROBLEM);
    assert_string_equal(findings.list[0].text,
                        "the workers take 220 MiB together (weights 100, their "
                        "own 20, KV pools 100), and 219 MiB are available: 1 "
                        "MiB are missing");
    assert_string_equal(findings.list[0].fix, "--kv-memory 49m");
}

static void pools_of_no_given_size_share_half_of_what_is_left(void **state)
{
    bt_preflight_headroom_t room = room_of(160, 1000);
    bt_preflight_need_t needs[] = {two[0], two[1]};

    (void)state;
    room.pools_given = false;
    /* 40 left: 10 of it each. */
    assert_int_equal(bt_preflight_check(two, 2, &room, &findings), 20 * MIB);
    assert_int_equal(findings.n, 0);
    assert_int_equal(bt_preflight_pool(two, 2, &room, 1), 10 * MIB);
    /* 400 left, and they asked for 50. */
    room.available_bytes = 520 * MIB;
    assert_int_equal(bt_preflight_pool(two, 2, &room, 0), 50 * MIB);
    /* 8 workers: 520 - 100 - 80 = 340 left, a 16th of it each. */
    needs[1].n = 7;
    assert_int_equal(bt_preflight_pool(needs, 2, &room, 0), 340 * MIB / 16);
    needs[0].ranks = 2; /* 100 + 200 + 20 + 70, 130 left */
    assert_int_equal(bt_preflight_pool(needs, 2, &room, 0), 130 * MIB / 16);
    room.available_bytes = 119 * MIB;
    bt_preflight_check(two, 2, &room, &findings);
    assert_int_equal(findings.n, 1);
    assert_non_null(strstr(findings.list[0].fix, "fewer workers"));
}

static void a_file_of_weights_is_counted_once_for_each_shape(void **state)
{
    bt_preflight_need_t needs[] = {two[0], two[1]};
    bt_preflight_headroom_t room;

    (void)state;
    /* 2 ranks with a file each: 200 more, and 10 and 50 more. */
    needs[1].ranks = 2;
    room = room_of(100 + 200 + 30 + 150, 150);
    bt_preflight_check(needs, 2, &room, &findings);
    assert_int_equal(findings.n, 0);
    room.available_bytes--;
    bt_preflight_check(needs, 2, &room, &findings);
    assert_int_equal(findings.n, 1);
}

static void weights_of_their_own_are_counted_for_each(void **state)
{
    bt_preflight_need_t needs[] = {two[0], two[1]};
    bt_preflight_headroom_t room = room_of(320, 100);

    (void)state;
    needs[0].weights_shared = needs[1].weights_shared = false;
    bt_preflight_check(needs, 2, &room, &findings);
    assert_int_equal(findings.n, 0);
    needs[0].n_standby = 1; /* 110 more, and no pool */
    bt_preflight_check(needs, 2, &room, &findings);
    assert_non_null(strstr(findings.list[0].text, " 110 MiB are missing"));
}

static void a_small_dev_shm_is_a_warning_unless_it_is_needed(void **state)
{
    bt_preflight_headroom_t room = room_of(1000, 64);

    (void)state;
    bt_preflight_check(two, 2, &room, &findings);
    assert_int_equal(findings.n, 1);
    assert_int_equal(findings.list[0].level, BT_FINDING_WARNING);
    assert_non_null(strstr(findings.list[0].text,
                           "take 100 MiB of /dev/shm, which has 64 MiB left"));
    assert_non_null(
        strstr(findings.list[0].fix, "mount -o remount,size=164m /dev/shm"));
    bt_diagnostics_fini(&findings);
    room.needs_shm = true;
    bt_preflight_check(two, 2, &room, &findings);
    assert_int_equal(findings.list[0].level, BT_FINDING_PROBLEM);
    bt_diagnostics_fini(&findings);
    room.uses_shm = false;
    bt_preflight_check(two, 2, &room, &findings);
    assert_int_equal(findings.n, 0);
}

static void the_limit_of_a_cgroup_is_named(void **state)
{
    bt_preflight_headroom_t room = room_of(219, 100);

    (void)state;
    room.limit_bytes = 300 * MIB;
    room.limit_by = "/sys/fs/cgroup/memory.max";
    bt_preflight_check(two, 2, &room, &findings);
    assert_int_equal(findings.n, 1);
    assert_non_null(strstr(findings.list[0].text,
                           "and 219 MiB are available of the cgroup's 300 "
                           "(/sys/fs/cgroup/memory.max): 1 MiB are missing"));
}

static uint64_t threads_of(const char *options, uint32_t n_models,
                           const bt_preflight_cpus_t *cpus)
{
    const bt_config_t *config = NULL;
    bt_config_store_t *store = NULL;
    char words[256];
    char *argv[16] = {words};
    char *next = words;
    uint64_t n;
    int argc = 0;

    snprintf(words, sizeof(words), "test%s", options);
    while ((next != NULL) && (argc < 15)) {
        argv[argc++] = strsep(&next, " ");
    }
    assert_int_equal(
        bt_config_load(BT_PROG_SERVE, false, argc, argv, &config, &store),
        BT_OK);
    n = bt_preflight_threads(config, n_models, cpus);
    bt_config_destroy(store);
    return n;
}

/* Each process but the launcher has 7 + min(16, 2 n) + min(8, n) threads of nng
 * on n CPUs; a router 9 and 2 to 8 that parse, a worker 7 and those that
 * compute; the launcher 4. */
static void threads_are_those_of_all_processes(void **state)
{
    const bt_preflight_cpus_t two_cpus = {
        .n_cpus = 2, .n_online = 2, .lends = true};
    const bt_preflight_cpus_t quota = {.n_cpus = 1, .n_online = 64};
    const bt_preflight_cpus_t many = {
        .n_cpus = 64, .n_online = 64, .lends = true};

    (void)state;
    assert_int_equal(threads_of("", 1, &two_cpus), 4 + 24 + 2 * 22);
    assert_int_equal(threads_of("", 2, &two_cpus), 4 + 24 + 4 * 22);
    assert_int_equal(threads_of(" --share-idle-cores off", 1, &quota),
                     4 + 42 + 2 * 39);
    assert_int_equal(threads_of("", 1, &many), 4 + 48 + 2 * 102);
    assert_int_equal(
        threads_of(" --routers 2 --tokenizer-threads 5 --prefill-threads 3 "
                   "--decode-threads 3 --standby 1 --decode 2",
                   1, &quota),
        4 + 2 * 45 + 4 * 41);
    /* 2 ranks with a thread each. */
    assert_int_equal(
        threads_of(" --prefill 0 --local-prefill on --decode-tp 2", 1, &quota),
        4 + 42 + 2 * 39);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_fits_is_no_finding),
        TEST(what_is_missing_is_said_with_the_pools_that_would_fit),
        TEST(pools_of_no_given_size_share_half_of_what_is_left),
        TEST(a_file_of_weights_is_counted_once_for_each_shape),
        TEST(weights_of_their_own_are_counted_for_each),
        TEST(a_small_dev_shm_is_a_warning_unless_it_is_needed),
        TEST(the_limit_of_a_cgroup_is_named),
        TEST(threads_are_those_of_all_processes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
