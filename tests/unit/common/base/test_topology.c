/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/testsupport.h"

static void write_list(const char *root, unsigned node, const char *list)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof(path), "%s/node%u", root, node);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/node%u/cpulist", root, node);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(list, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void remove_list(const char *root, unsigned node)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/node%u/cpulist", root, node);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof(path), "%s/node%u", root, node);
    assert_int_equal(rmdir(path), 0);
}

/* Numbers with a gap, as where a node has been taken out; node 4 has memory
 * alone, node 5 says what nobody understands, node 6 what no core has. */
static void cores_belong_to_the_node_that_lists_them(void **state)
{
    static const char *const lists[] = {"0-3,8\n", NULL,    "4-7\n",
                                        "9,11-12", "\n",    "five\n",
                                        "10-,13",  "5-4\n", "99999999-100\n"};
    char root[] = "/tmp/baton-test-topology-XXXXXX";
    bt_topology_t topology;

    (void)state;
    assert_non_null(mkdtemp(root));
    for (unsigned i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        if (lists[i] != NULL) {
            write_list(root, i, lists[i]);
        }
    }
    bt_topology_read(root, &topology);
    for (uint32_t core = 0; core < CPU_SETSIZE; core++) {
        const uint32_t want = ((core >= 4) && (core <= 7))                  ? 2
                              : (core == 9) || (core == 11) || (core == 12) ? 3
                                                                            : 0;

        assert_int_equal(topology.node[core], want);
    }
    for (unsigned i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        if (lists[i] != NULL) {
            remove_list(root, i);
        }
    }
    assert_int_equal(rmdir(root), 0);
    bt_topology_read(root, &topology); /* it is gone: one node */
    assert_int_equal(topology.node[5], 0);
}

/* Of cpu1 nobody says anything, cpu3 says a list that it is not on, cpu4 none.
 */
static void smt_siblings_are_named_by_their_first_thread(void **state)
{
    static const char *const lists[] = {"0,2\n",  NULL,    "0,2\n", "0-2\n",
                                        "four\n", "5-6\n", "5-6\n"};
    static const uint32_t firsts[] = {0, 1, 0, 3, 4, 5, 5, 7};
    char root[] = "/tmp/baton-test-topology-XXXXXX";
    bt_topology_t topology = {0};
    char path[256];
    FILE *file;

    (void)state;
    assert_non_null(mkdtemp(root));
    for (unsigned i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        if (lists[i] == NULL) {
            continue;
        }
        snprintf(path, sizeof(path), "%s/cpu%u", root, i);
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(path, sizeof(path), "%s/cpu%u/topology", root, i);
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(path, sizeof(path), "%s/cpu%u/topology/thread_siblings_list",
                 root, i);
        file = fopen(path, "w");
        assert_non_null(file);
        assert_true(fputs(lists[i], file) >= 0);
        assert_int_equal(fclose(file), 0);
    }
    bt_topology_read_threads(root, &topology);
    for (uint32_t core = 0; core < 8; core++) {
        assert_int_equal(bt_topology_physical(&topology, core), firsts[core]);
    }
    for (unsigned i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        if (lists[i] == NULL) {
            continue;
        }
        snprintf(path, sizeof(path), "%s/cpu%u/topology/thread_siblings_list",
                 root, i);
        assert_int_equal(unlink(path), 0);
        snprintf(path, sizeof(path), "%s/cpu%u/topology", root, i);
        assert_int_equal(rmdir(path), 0);
        snprintf(path, sizeof(path), "%s/cpu%u", root, i);
        assert_int_equal(rmdir(path), 0);
    }
    assert_int_equal(rmdir(root), 0);
    bt_topology_read_threads(root, &topology); /* it is gone */
    assert_int_equal(bt_topology_physical(&topology, 2), 2);
}

static void memory_is_bound_to_the_nodes_of_the_cores(void **state)
{
    bt_topology_t topology = {0};
    uint32_t cores[1] = {0};
    cpu_set_t before;
    cpu_set_t after;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    while (!CPU_ISSET(cores[0], &before)) {
        cores[0]++;
    }
    bt_topology_stay_near(&topology, cores, 0);
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    bt_topology_stay_near(&topology, cores, 1); /* all are of one node */
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_EQUAL(&before, &after));

    topology.node[cores[0]] = 7;
    bt_topology_stay_near(&topology, cores, 1);
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_int_equal(CPU_COUNT(&after), 1);
    assert_true(CPU_ISSET(cores[0], &after));
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

static void cores_of_one_node_give_that_node(void **state)
{
    static const uint32_t both[] = {3, 4}, second[] = {5, 4}, far[] = {5000000};
    bt_topology_t topology = {0};

    (void)state;
    topology.node[4] = topology.node[5] = 9;
    assert_int_equal(bt_topology_node_of(&topology, second, 2), 9);
    assert_int_equal(bt_topology_node_of(&topology, both, 2), 0);
    assert_int_equal(bt_topology_node_of(&topology, both, 1), 0);
    assert_int_equal(bt_topology_node_of(&topology, second, 0), 0);
    assert_int_equal(bt_topology_node_of(&topology, far, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(cores_belong_to_the_node_that_lists_them),
        BT_TEST(cores_of_one_node_give_that_node),
        BT_TEST(smt_siblings_are_named_by_their_first_thread),
        BT_TEST(memory_is_bound_to_the_nodes_of_the_cores),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
