/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/process.h"
#include "common/cluster/cluster.h"

static int no_argc;
static char **no_argv;

/* A singleton of MPI would start a helper process. */
static void assert_no_children(void)
{
    char path[64];
    char text[64] = "";
    FILE *file;

    snprintf(path, sizeof(path), "/proc/self/task/%ld/children",
             (long)getpid());
    file = fopen(path, "r");
    assert_non_null(file);
    assert_null(fgets(text, sizeof(text), file));
    fclose(file);
}

static void process_without_mpirun_is_a_world_of_one(void **state)
{
    (void)state;
    assert_false(bt_process_is_of_mpi());
    for (uint32_t role = 0; role <= 2; role++) {
        bt_cluster_t *cl = NULL;
        bt_cluster_team_t team;

        assert_int_equal(bt_cluster_open(role, &no_argc, &no_argv, &cl), BT_OK);
        assert_int_equal(bt_cluster_world_size(cl), 1);
        assert_false(bt_cluster_has_router(cl));
        assert_int_equal(bt_cluster_team(cl, 1, 1, &team), BT_OK);
        assert_null(team.coll);
        assert_no_children();
        bt_cluster_close(cl);
    }
    bt_cluster_close(NULL);
}

static void world_without_router_has_no_address(void **state)
{
    char url[64] = "tcp://127.0.0.1:9";
    uint8_t key[32] = {1, 2, 3};
    bt_cluster_t *cl = NULL;

    (void)state;
    assert_int_equal(bt_cluster_open(2, &no_argc, &no_argv, &cl), BT_OK);
    assert_int_equal(bt_cluster_exchange(cl, url, sizeof(url), key),
                     BT_ERR_NOT_FOUND);
    bt_cluster_close(cl);

    assert_int_equal(bt_cluster_open(0, &no_argc, &no_argv, &cl), BT_OK);
    assert_int_equal(bt_cluster_exchange(cl, url, sizeof(url), key), BT_OK);
    assert_string_equal(url, "tcp://127.0.0.1:9");
    assert_int_equal(key[0], 1);
    assert_int_equal(bt_cluster_exchange(cl, url, sizeof(url), key),
                     BT_ERR_NOT_FOUND); /* once */
    bt_cluster_close(cl);
}

static void cluster_reports_bad_parameters_and_failed_allocations(void **state)
{
    bt_cluster_t *cl = NULL;

    (void)state;
    assert_int_equal(bt_cluster_open(3, &no_argc, &no_argv, &cl),
                     BT_ERR_INVALID_PARAM);
    bt_alloc_fail_at(1);
    assert_int_equal(bt_cluster_open(0, &no_argc, &no_argv, &cl),
                     BT_ERR_NO_MEMORY);
    assert_null(cl);
}

static void mpirun_and_srun_are_known_by_their_environment(void **state)
{
    (void)state;
    assert_int_equal(setenv("PMIX_RANK", "0", 1), 0);
    assert_true(bt_process_is_of_mpi());
    assert_int_equal(unsetenv("PMIX_RANK"), 0);
    assert_int_equal(setenv("OMPI_COMM_WORLD_SIZE", "1", 1), 0);
    assert_true(bt_process_is_of_mpi());
    assert_int_equal(unsetenv("OMPI_COMM_WORLD_SIZE"), 0);
    assert_false(bt_process_is_of_mpi());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(process_without_mpirun_is_a_world_of_one),
        BT_TEST(world_without_router_has_no_address),
        BT_TEST(cluster_reports_bad_parameters_and_failed_allocations),
        BT_TEST(mpirun_and_srun_are_known_by_their_environment),
    };

    /* the tests may themselves run in a Slurm or MPI job */
    (void)unsetenv("PMIX_RANK");
    (void)unsetenv("OMPI_COMM_WORLD_SIZE");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
