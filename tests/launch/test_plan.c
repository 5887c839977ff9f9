/* SPDX-License-Identifier: Apache-2.0 */
/* What the launcher decides before it starts a process. */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "launcher/plan.h"

#define MAX_ARGS 16

static const bt_run_dir_t run_dir = {.path = "/run/x",
                                     .key_file = "/run/x/key"};
static const bt_topology_t one_memory;
static const bt_devices_t no_devices;

/* A plan and what it borrows. */
typedef struct planned {
    bt_config_store_t *store;
    bt_plan_t *plan;
} planned_t;

/* For these cores, with the words of @a options after two prefill workers and
 * one decode worker. */
static planned_t plan_with(const cpu_set_t *allowed, uint32_t n_cpus,
                           const bt_topology_t *topology,
                           const bt_devices_t *devices, const char *options)
{
    const bt_config_t *config = NULL;
    planned_t planned = {NULL, NULL};
    char words[512];
    char *argv[MAX_ARGS] = {words};
    char *next = words;
    int argc = 0;

    snprintf(words, sizeof(words), "test --prefill 2 --decode 1 %s", options);
    while ((next != NULL) && (argc < MAX_ARGS - 1)) {
        argv[argc++] = strsep(&next, " ");
    }
    assert_int_equal(bt_config_load(BT_PROG_SERVE, false, argc, argv, &config,
                                    &planned.store),
                     BT_OK);
    assert_int_equal(bt_plan_create(planned.store, config, &run_dir, allowed,
                                    n_cpus, topology, devices, true,
                                    &planned.plan),
                     BT_OK);
    return planned;
}

static planned_t plan_on(const cpu_set_t *allowed,
                         const bt_topology_t *topology,
                         const bt_devices_t *devices, const char *options)
{
    return plan_with(allowed, (uint32_t)CPU_COUNT(allowed), topology, devices,
                     options);
}

static planned_t plan_for(const cpu_set_t *allowed,
                          const bt_topology_t *topology, const char *options)
{
    return plan_on(allowed, topology, &no_devices, options);
}

/* For n_cores cores numbered 1, 2, 4, 5, 7, 8 ... (every third is missing), of
 * one memory. */
static planned_t make_plan(unsigned n_cores, const char *options)
{
    cpu_set_t allowed;

    CPU_ZERO(&allowed);
    for (size_t cpu = 1; n_cores > 0; cpu++) {
        if (cpu % 3 != 0) {
            CPU_SET(cpu, &allowed);
            n_cores--;
        }
    }
    return plan_for(&allowed, &one_memory, options);
}

static void destroy(planned_t *planned)
{
    bt_plan_destroy(planned->plan);
    bt_config_destroy(planned->store);
}

/* The arguments with spaces between them. */
static void assert_args(const bt_plan_t *plan, uint32_t i, const char *name,
                        const char *want)
{
    char args[1024];
    const bt_strbuf_t *const buf = &plan->processes[i]->args;

    assert_string_equal(plan->processes[i]->name, name);
    assert_true(buf->len < sizeof(args));
    for (size_t at = 0; at < buf->len; at++) {
        args[at] = (char)((buf->data[at] == '\0') ? ' ' : buf->data[at]);
    }
    args[buf->len - 1] = '\0';
    assert_string_equal(args, want);
}

/* Is that one of the arguments? */
static bool has_arg(const bt_plan_t *plan, uint32_t i, const char *want)
{
    const bt_strbuf_t *const args = &plan->processes[i]->args;

    for (size_t at = 0; at < args->len; at += strlen(args->data + at) + 1) {
        if (strcmp(args->data + at, want) == 0) {
            return true;
        }
    }
    return false;
}

static void the_plan_pins_workers_to_cores_of_their_own(void **state)
{
    planned_t p = make_plan(6, "--model m.gguf --max-batch-size 9");

    (void)state;
    assert_int_equal(p.plan->n_processes, 4);
    assert_args(
        p.plan, 0, "router",
        "--model=m.gguf --listen=ipc:///run/x/router.ipc "
        "--launcher=/run/x/admin.sock --workers-pinned=yes --run-dir=/run/x "
        "--cluster-key-file=/run/x/key --name=router");
    assert_args(p.plan, 1, "prefill-0",
                "--max-batch-size=9 --model=m.gguf --served-model-name=m "
                "--join=ipc:///run/x/router.ipc --threads=2 --cores=1-2 "
                "--borrowed-cores=4-5,7-8 --run-dir=/run/x "
                "--cluster-key-file=/run/x/key --name=prefill-0");
    assert_args(p.plan, 2, "prefill-1",
                "--max-batch-size=9 --model=m.gguf --served-model-name=m "
                "--join=ipc:///run/x/router.ipc --threads=2 --cores=4-5 "
                "--borrowed-cores=1-2,7-8 --run-dir=/run/x "
                "--cluster-key-file=/run/x/key --name=prefill-1");
    assert_args(p.plan, 3, "decode-0",
                "--max-batch-size=9 --model=m.gguf --served-model-name=m "
                "--join=ipc:///run/x/router.ipc --threads=2 --cores=7-8 "
                "--borrowed-cores=1-2,4-5 --run-dir=/run/x "
                "--cluster-key-file=/run/x/key --name=decode-0");
    destroy(&p);

    /* Three of the six go to decode, so one is left for each prefill worker. */
    p = make_plan(6, "--model m.gguf --decode-threads 3");
    assert_true(has_arg(p.plan, 3, "--threads=3"));
    assert_true(has_arg(p.plan, 3, "--cores=4-5,7"));
    destroy(&p);
}

static void assert_cores(const bt_plan_t *plan, uint32_t i, const char *want)
{
    assert_string_equal(plan->processes[i]->cores, want);
}

/* Two memories of four cores, numbered in turns. Workers of 2, 2 and 3 threads:
 * the second fills the first memory, the third has the other. One of 6 has all
 * of the memory that is still whole and what it needs of the other. */
static void a_worker_has_cores_of_one_memory_where_they_fit(void **state)
{
    bt_topology_t topology = {0};
    cpu_set_t allowed;
    planned_t p;

    (void)state;
    CPU_ZERO(&allowed);
    for (size_t core = 0; core < 8; core++) {
        CPU_SET(core, &allowed);
        topology.node[core] = (uint8_t)(core % 2);
    }
    p = plan_for(&allowed, &topology, "--model m --decode-threads 3");
    assert_cores(p.plan, 1, "0,2");
    assert_cores(p.plan, 2, "4,6");
    assert_cores(p.plan, 3, "1,3,5");
    /* The near ones of others come first. */
    assert_true(has_arg(p.plan, 1, "--borrowed-cores=4,6,1,3,5"));
    assert_true(has_arg(p.plan, 3, "--borrowed-cores=0,2,4,6"));
    destroy(&p);

    p = plan_for(&allowed, &topology, "--model m --decode-threads 6");
    assert_cores(p.plan, 1, "0");
    assert_cores(p.plan, 2, "2");
    assert_cores(p.plan, 3, "1,3-7");
    destroy(&p);
}

/* Eight hardware threads of four physical cores, numbered as Linux does on most
 * machines (0 and 4 are one core), and in pairs. Two workers have two cores
 * each, and not four threads that the other computes on, too. Who asks for more
 * has second threads of cores last. */
static void threads_of_one_core_count_once(void **state)
{
    const char *const two = "--model m --prefill 1";
    bt_topology_t apart = {0}, pairs = {0};
    cpu_set_t allowed;
    planned_t p;

    (void)state;
    CPU_ZERO(&allowed);
    for (size_t core = 0; core < 8; core++) {
        CPU_SET(core, &allowed);
        apart.first[core] = (uint16_t)(core % 4 + 1);
        pairs.first[core] = (uint16_t)(core / 2 * 2 + 1);
    }
    p = plan_for(&allowed, &apart, two);
    assert_int_equal(p.plan->n_physical, 4);
    assert_cores(p.plan, 1, "0-1");
    assert_cores(p.plan, 2, "2-3");
    assert_true(has_arg(p.plan, 2, "--threads=2"));
    destroy(&p);
    p = plan_for(&allowed, &pairs, two);
    assert_cores(p.plan, 1, "0,2");
    assert_cores(p.plan, 2, "4,6");
    destroy(&p);
    p = plan_for(&allowed, &apart, "--model m --decode-threads 6");
    assert_cores(p.plan, 1, "0");
    assert_cores(p.plan, 2, "1");
    assert_cores(p.plan, 3, "2-7");
    destroy(&p);
    /* One thread of each may be used: those are cores like any. */
    for (size_t core = 0; core < 4; core++) {
        CPU_CLR(core, &allowed);
    }
    p = plan_for(&allowed, &apart, two);
    assert_cores(p.plan, 1, "4-5");
    assert_cores(p.plan, 2, "6-7");
    destroy(&p);
    /* Two threads of one: a worker has one each. */
    CPU_ZERO(&allowed);
    CPU_SET(0, &allowed);
    CPU_SET(4, &allowed);
    p = plan_for(&allowed, &apart, two);
    assert_cores(p.plan, 1, "0");
    assert_cores(p.plan, 2, "4");
    destroy(&p);
}

static bool is_any_lent(const bt_plan_t *plan)
{
    bool lent = false;

    for (uint32_t i = 0; i < plan->n_processes; i++) {
        const bt_strbuf_t *const args = &plan->processes[i]->args;

        lent = lent ||
               (memmem(args->data, args->len, "--borrowed-cores", 12) != NULL);
    }
    return lent;
}

static void cores_are_lent_unless_told_otherwise(void **state)
{
    planned_t p = make_plan(6, "--model m.gguf --share-idle-cores off");

    (void)state;
    assert_true(has_arg(p.plan, 1, "--cores=1-2"));
    assert_false(is_any_lent(p.plan));
    destroy(&p);
    p = make_plan(6, "--model m.gguf --backend cuda");
    assert_false(is_any_lent(p.plan));
    destroy(&p);
    p = make_plan(2, "--model m.gguf"); /* nobody has cores of its own */
    assert_false(is_any_lent(p.plan));
    destroy(&p);
    p = make_plan(1, "--model m.gguf --prefill 0 --local-prefill");
    assert_true(has_arg(p.plan, 1, "--cores=1"));
    assert_false(is_any_lent(p.plan)); /* there is nobody else */
    destroy(&p);
}

static void too_few_cores_means_no_pinning(void **state)
{
    planned_t p = make_plan(2, "--model m.gguf");

    (void)state;
    assert_args(
        p.plan, 3, "decode-0",
        "--model=m.gguf --served-model-name=m --join=ipc:///run/x/router.ipc "
        "--threads=1 --run-dir=/run/x --cluster-key-file=/run/x/key "
        "--name=decode-0");
    destroy(&p);
}

/* Of 64 cores, on any of which others may compute as well. */
static void a_quota_is_shared_and_pins_nobody(void **state)
{
    cpu_set_t allowed;
    planned_t p;

    (void)state;
    CPU_ZERO(&allowed);
    for (size_t core = 0; core < 64; core++) {
        CPU_SET(core, &allowed);
    }
    p = plan_with(&allowed, 6, &one_memory, &no_devices, "--model m");
    for (uint32_t i = 1; i < 4; i++) {
        assert_int_equal(p.plan->processes[i]->threads, 2);
        assert_null(p.plan->processes[i]->cores);
    }
    assert_false(is_any_lent(p.plan));
    assert_int_equal(bt_plan_add_model(p.plan, "b", "b.gguf", 1, 1), BT_OK);
    assert_null(p.plan->processes[4]->cores);
    destroy(&p);
    p = plan_with(&allowed, 1, &one_memory, &no_devices, "--model m");
    assert_int_equal(p.plan->processes[1]->threads, 1);
    assert_int_equal(p.plan->processes[3]->threads, 1);
    destroy(&p);
    /* A quota that is no bound changes nothing. */
    p = plan_with(&allowed, 64, &one_memory, &no_devices, "--model m");
    assert_int_equal(p.plan->processes[1]->threads, 21);
    assert_non_null(p.plan->processes[1]->cores);
    destroy(&p);
}

static void workers_are_added_to_a_model_and_taken_back(void **state)
{
    planned_t p = make_plan(6, "--model m.gguf --prefill 1 --decode 1");
    const uint32_t n = p.plan->n_processes;

    (void)state;
    assert_int_equal(bt_plan_add_workers(p.plan, 0, 2, 1), BT_OK);
    assert_int_equal(p.plan->n_processes, n + 3);
    assert_string_equal(p.plan->processes[n]->name, "prefill-1");
    assert_string_equal(p.plan->processes[n + 1]->name, "prefill-2");
    assert_string_equal(p.plan->processes[n + 2]->name, "decode-1");
    assert_true(has_arg(p.plan, n + 2, "--model=m.gguf"));
    assert_int_equal(p.plan->models[0].prefill, 3);
    assert_int_equal(p.plan->models[0].decode, 2);
    bt_plan_drop_workers(p.plan, 0, 2, 1);
    assert_int_equal(p.plan->n_processes, n);
    assert_int_equal(p.plan->models[0].prefill, 1);
    for (int nth = 1;; nth++) { /* without memory all is as before */
        bt_status_t status;

        bt_alloc_fail_at(nth);
        status = bt_plan_add_workers(p.plan, 0, 1, 1);
        bt_alloc_fail_at(0);
        if (status == BT_OK) {
            break;
        }
        assert_int_equal(status, BT_ERR_NO_MEMORY);
        assert_int_equal(p.plan->n_processes, n);
        assert_int_equal(p.plan->models[0].decode, 1);
    }
    assert_int_equal(p.plan->models[0].decode, 2);
    destroy(&p);
}

static void a_pool_of_given_size_is_an_argument(void **state)
{
    planned_t p = make_plan(6, "--model m.gguf");

    (void)state;
    p.plan->processes[3]->pool_bytes = UINT64_C(5) << 30;
    assert_int_equal(bt_plan_renew_args(p.plan, p.plan->processes[3]), BT_OK);
    assert_true(has_arg(p.plan, 3, "--kv-memory=5368709120"));
    destroy(&p);
}

static void a_long_list_of_adapters_is_passed_on(void **state)
{
    static char list[120 * 1024];
    planned_t p;

    (void)state;
    snprintf(list, sizeof(list), "--lora=");
    for (size_t at = strlen(list); at + 64 < sizeof(list); at += 64) {
        snprintf(list + at, sizeof(list) - at, "a%06zu=/%054u;", at, 0u);
    }
    list[strlen(list) - 1] = '\0';
    setenv("BATON_LORA", list + strlen("--lora="), 1);
    p = make_plan(6, "--model m.gguf");
    unsetenv("BATON_LORA");
    assert_true(has_arg(p.plan, 0, list)); /* the router */
    assert_true(has_arg(p.plan, 1, list)); /* a worker */
    destroy(&p);
}

static void threads_share_the_cores_evenly(void **state)
{
    static const struct {
        uint32_t models, prefill, decode, threads_prefill, threads_decode;
        uint32_t cores, want_prefill, want_decode;
    } cases[] = {
        {1, 1, 1, 0, 0, 2, 1, 1},  {1, 1, 1, 0, 0, 9, 4, 4},
        {1, 2, 2, 0, 0, 3, 1, 1},  {1, 1, 1, 6, 0, 8, 6, 2},
        {1, 1, 2, 0, 3, 8, 2, 3},  {1, 1, 1, 8, 0, 8, 8, 1},
        {1, 1, 1, 9, 0, 8, 9, 1},  {1, 0, 1, 0, 0, 8, 8, 8},
        {1, 1, 1, 3, 5, 2, 3, 5},  {2, 1, 1, 0, 0, 9, 2, 2},
        {3, 1, 2, 4, 0, 24, 4, 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const bt_config_t config = {
            .prefill = cases[i].prefill,
            .decode = cases[i].decode,
            .prefill_threads = cases[i].threads_prefill,
            .decode_threads = cases[i].threads_decode,
        };
        uint32_t prefill = 0;
        uint32_t decode = 0;

        bt_plan_threads(&config, cases[i].models, cases[i].cores, &prefill,
                        &decode);
        assert_int_equal(prefill, cases[i].want_prefill);
        assert_int_equal(decode, cases[i].want_decode);
    }
}

static void each_of_several_models_has_workers_of_its_own(void **state)
{
    planned_t p =
        make_plan(8, "--model a=A.gguf --model /d/B=1.gguf --prefill 1");

    (void)state;
    assert_int_equal(p.plan->n_processes, 5);
    assert_args(
        p.plan, 0, "router",
        "--model=a=A.gguf --model=/d/B=1.gguf "
        "--listen=ipc:///run/x/router.ipc --launcher=/run/x/admin.sock "
        "--workers-pinned=yes --run-dir=/run/x --cluster-key-file=/run/x/key --name=router");
    assert_args(p.plan, 1, "a.prefill-0",
                "--model=A.gguf --served-model-name=a "
                "--join=ipc:///run/x/router.ipc --threads=2 --cores=1-2 "
                "--borrowed-cores=4-5,7-8,10-11 --run-dir=/run/x "
                "--cluster-key-file=/run/x/key --name=a.prefill-0");
    assert_args(p.plan, 4, "B-1.decode-0",
                "--model=/d/B=1.gguf --served-model-name=B-1 "
                "--join=ipc:///run/x/router.ipc --threads=2 --cores=10-11 "
                "--borrowed-cores=1-2,4-5,7-8 --run-dir=/run/x "
                "--cluster-key-file=/run/x/key --name=B-1.decode-0");
    destroy(&p);
}

static void several_routers_have_ports_and_sockets_of_their_own(void **state)
{
    planned_t p = make_plan(1, "--model m.gguf --routers 3 --http [::1]:9000 "
                               "--grpc 127.0.0.1:0");

    (void)state;
    assert_int_equal(p.plan->n_processes, 6);
    assert_args(
        p.plan, 0, "router-0",
        "--http=[::1]:9000 --grpc=127.0.0.1:0 --model=m.gguf "
        "--listen=ipc:///run/x/router-0.ipc --launcher=/run/x/admin.sock "
        "--run-dir=/run/x --cluster-key-file=/run/x/key --name=router-0");
    /* The last one of an option counts. */
    assert_args(
        p.plan, 2, "router-2",
        "--http=[::1]:9000 --grpc=127.0.0.1:0 --model=m.gguf "
        "--http=[::1]:9020 --metrics=127.0.0.1:8022 "
        "--listen=ipc:///run/x/router-2.ipc --launcher=/run/x/admin.sock "
        "--run-dir=/run/x --cluster-key-file=/run/x/key --name=router-2");
    assert_true(has_arg(p.plan, 5,
                        "--join=ipc:///run/x/router-0.ipc,"
                        "ipc:///run/x/router-1.ipc,"
                        "ipc:///run/x/router-2.ipc"));
    destroy(&p);
}

static void each_router_has_a_port_for_grpc(void **state)
{
    planned_t p = make_plan(1, "--model m.gguf --routers 2");

    (void)state;
    assert_true(has_arg(p.plan, 1, "--grpc=127.0.0.1:8011"));
    destroy(&p);
}

static void dropped_workers_give_back_cores_and_devices(void **state)
{
    planned_t p = make_plan(8, "--model m.gguf --prefill-threads 1 "
                               "--decode-threads 2");
    bt_plan_t *const plan = p.plan;
    const uint32_t n_cores = bt_cores_count(&plan->cores);
    const uint32_t n_dealt = plan->n_dealt;

    (void)state;
    assert_int_equal(bt_plan_add_model(plan, "b", "b.gguf", 1, 1), BT_OK);
    assert_int_equal(bt_cores_count(&plan->cores), n_cores - 3);
    bt_plan_drop_model(plan);
    assert_int_equal(bt_cores_count(&plan->cores), n_cores);
    assert_int_equal(plan->n_dealt, n_dealt);
    assert_int_equal(bt_plan_add_workers(plan, 0, 0, 1), BT_OK);
    assert_int_equal(bt_cores_count(&plan->cores), n_cores - 2);
    bt_plan_drop_workers(plan, 0, 0, 1);
    assert_int_equal(bt_cores_count(&plan->cores), n_cores);
    assert_int_equal(plan->n_dealt, n_dealt);
    destroy(&p);
}

static void a_model_added_later_gets_what_cores_are_left(void **state)
{
    planned_t p = make_plan(8, "--model m.gguf --prefill-threads 1 "
                               "--decode-threads 2");
    bt_plan_t *const plan = p.plan;
    uint32_t n_dealt;

    (void)state;
    assert_int_equal(bt_plan_add_model(plan, "b", "b=1.gguf", 1, 1), BT_OK);
    assert_int_equal(plan->n_processes, 6);
    assert_int_equal(bt_plan_find_model(plan, "b"), 1);
    assert_int_equal(bt_plan_find_model(plan, "x"), BT_PLAN_NO_MODEL);
    assert_int_equal(bt_plan_count(plan, 0, BT_ADMIN_ROLE_PREFILL), 2);
    assert_int_equal(bt_plan_count(plan, 1, BT_ADMIN_ROLE_PREFILL), 1);
    assert_args(plan, 4, "b.prefill-0",
                "--model=./b=1.gguf --served-model-name=b "
                "--join=ipc:///run/x/router.ipc --threads=1 --cores=7 "
                "--borrowed-cores=1-2,4-5 --run-dir=/run/x "
                "--cluster-key-file=/run/x/key --name=b.prefill-0");
    /* Before it starts the one behind it is known too. */
    assert_int_equal(bt_plan_renew_args(plan, plan->processes[4]), BT_OK);
    assert_true(has_arg(plan, 4, "--borrowed-cores=1-2,4-5,8,10"));
    assert_cores(plan, 5, "8,10");

    /* One core is left for three threads. */
    n_dealt = plan->n_dealt;
    assert_int_equal(bt_plan_add_model(plan, "c", "c", 1, 1), BT_OK);
    assert_null(plan->processes[6]->cores);
    assert_true(has_arg(plan, 7, "--threads=2"));
    bt_plan_drop_model(plan);
    assert_int_equal(plan->n_processes, 6);
    assert_int_equal(plan->n_dealt, n_dealt); /* its devices are free again */
    assert_int_equal(bt_plan_find_model(plan, "c"), BT_PLAN_NO_MODEL);

    /* A router that starts now serves both; one that is unloaded it does not,
     * and without any it names them all the same. */
    assert_true(has_arg(plan, 0, "--model=m.gguf"));
    assert_false(has_arg(plan, 0, "--model=b=b=1.gguf"));
    assert_int_equal(bt_plan_renew_args(plan, plan->processes[0]), BT_OK);
    assert_true(has_arg(plan, 0, "--model=b=b=1.gguf"));
    plan->models[0].is_unloaded = true;
    assert_int_equal(bt_plan_renew_args(plan, plan->processes[0]), BT_OK);
    assert_false(has_arg(plan, 0, "--model=m.gguf"));
    plan->models[1].is_unloaded = true;
    assert_int_equal(bt_plan_renew_args(plan, plan->processes[0]), BT_OK);
    assert_true(has_arg(plan, 0, "--model=m.gguf"));
    assert_true(has_arg(plan, 0, "--model=b=b=1.gguf"));
    destroy(&p);
}

static void sixteen_models_are_the_most(void **state)
{
    planned_t p = make_plan(1, "--model m.gguf");
    char name[8];

    (void)state;
    for (int i = 1; i < BT_CONFIG_MAX_MODELS; i++) {
        snprintf(name, sizeof(name), "m%d", i);
        assert_int_equal(bt_plan_add_model(p.plan, name, "f", 1, 1), BT_OK);
    }
    assert_int_equal(bt_plan_add_model(p.plan, "one", "f", 1, 1),
                     BT_ERR_TOO_LARGE);
    destroy(&p);
}

static void a_new_role_keeps_name_threads_and_cores(void **state)
{
    planned_t p = make_plan(6, "--model m.gguf --max-batch-size 9");

    (void)state;
    p.plan->processes[1]->role = BT_ADMIN_ROLE_BOTH;
    assert_int_equal(bt_plan_renew_args(p.plan, p.plan->processes[1]), BT_OK);
    assert_args(p.plan, 1, "prefill-0",
                "--max-batch-size=9 --model=m.gguf --served-model-name=m "
                "--join=ipc:///run/x/router.ipc --threads=2 --cores=1-2 "
                "--borrowed-cores=4-5,7-8 --role=both --run-dir=/run/x "
                "--cluster-key-file=/run/x/key --name=prefill-0");
    assert_int_equal(bt_plan_count(p.plan, 0, BT_ADMIN_ROLE_PREFILL), 1);
    assert_int_equal(bt_plan_count(p.plan, 0, BT_ADMIN_ROLE_DECODE), 1);
    assert_int_equal(bt_plan_count(p.plan, 0, BT_ADMIN_ROLE_BOTH), 1);
    p.plan->processes[1]->role = BT_ADMIN_ROLE_PREFILL; /* its name's */
    assert_int_equal(bt_plan_renew_args(p.plan, p.plan->processes[1]), BT_OK);
    assert_false(has_arg(p.plan, 1, "--role=prefill"));
    destroy(&p);
}

/* Workers' names have 63 bytes: 48 of the model's, ~ and its number. */
static void a_long_models_workers_have_names_that_fit_and_differ(void **state)
{
    char options[256];
    char name[64];
    planned_t p;

    (void)state;
    memset(name, 'n', 63);
    name[63] = '\0';
    snprintf(options, sizeof(options), "--model %s=a --model m%.62s=b", name,
             name);
    p = make_plan(1, options);
    assert_string_equal(p.plan->processes[1]->name,
                        "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn~0"
                        ".prefill-0");
    assert_string_equal(p.plan->processes[4]->name,
                        "mnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn~1"
                        ".prefill-0");
    destroy(&p);

    name[51] = '\0'; /* fits: 51 + ".prefill-255" = 63 */
    snprintf(options, sizeof(options), "--model %s=a --model b", name);
    p = make_plan(1, options);
    assert_int_equal(strlen(p.plan->processes[1]->name), 51 + 10);
    destroy(&p);
}

/* Behind the workers, on no cores of its own, which the workers have all the
 * same. */
static void a_standby_is_planned_behind_the_workers(void **state)
{
    planned_t p = make_plan(6, "--model m.gguf --standby 1");

    (void)state;
    assert_int_equal(p.plan->n_processes, 5);
    assert_args(
        p.plan, 4, "standby-0",
        "--model=m.gguf --served-model-name=m "
        "--join=ipc:///run/x/router.ipc --threads=2 --assignment-fd=5 "
        "--run-dir=/run/x --cluster-key-file=/run/x/key --name=standby-0");
    assert_true(has_arg(p.plan, 0, "--workers-pinned=yes"));
    assert_true(has_arg(p.plan, 3, "--cores=7-8"));
    assert_int_equal(bt_plan_count(p.plan, 0, BT_ADMIN_ROLE_DECODE), 1);
    assert_true(bt_plan_may_replace(p.plan, p.plan->processes[4],
                                    p.plan->processes[1]));
    assert_false(bt_plan_may_replace(p.plan, p.plan->processes[4],
                                     p.plan->processes[4]));
    assert_false(bt_plan_may_replace(p.plan, p.plan->processes[3],
                                     p.plan->processes[1]));
    destroy(&p);

    p = make_plan(6, "--model m.gguf --standby 1 --decode-tp 2");
    assert_int_equal(p.plan->n_processes, 6); /* one of each shape */
    assert_true(has_arg(p.plan, 4, "--tp=2"));
    assert_true(bt_plan_may_replace(p.plan, p.plan->processes[4],
                                    p.plan->processes[3]));
    assert_false(bt_plan_may_replace(p.plan, p.plan->processes[4],
                                     p.plan->processes[1]));
    assert_true(has_arg(p.plan, 5, "--name=standby-1"));
    assert_false(has_arg(p.plan, 5, "--tp=2"));
    assert_true(bt_plan_may_replace(p.plan, p.plan->processes[5],
                                    p.plan->processes[1]));
    assert_false(bt_plan_may_replace(p.plan, p.plan->processes[5],
                                     p.plan->processes[3]));
    destroy(&p);

    p = make_plan(6, "--model m.gguf --standby 1 --decode-tp 2 --prefill-tp 2");
    assert_int_equal(p.plan->n_processes, 5);
    destroy(&p);

    p = make_plan(6, "--model m.gguf --standby 1 --decode-tp 2 --prefill-tp 2 "
                     "--decode-ep 2");
    assert_int_equal(p.plan->n_processes, 6); /* one of each grid */
    assert_false(bt_plan_may_replace(p.plan, p.plan->processes[4],
                                     p.plan->processes[1]));
    destroy(&p);
}

/* Sums over an expert's width have as many parts as the most ranks of one, on
 * both sides. */
static void workers_are_told_their_groups_of_experts(void **state)
{
    planned_t p = make_plan(8, "--model m.gguf --prefill-tp 4 --prefill-ep 2");

    (void)state;
    assert_true(has_arg(p.plan, 2, "--tp=4"));
    assert_true(has_arg(p.plan, 2, "--ep=2"));
    assert_true(has_arg(p.plan, 2, "--moe-reduction-parts=2"));
    assert_false(has_arg(p.plan, 3, "--ep=2"));
    assert_true(has_arg(p.plan, 3, "--reduction-parts=4"));
    assert_true(has_arg(p.plan, 3, "--moe-reduction-parts=2"));
    destroy(&p);

    p = make_plan(8, "--model m.gguf --decode-tp 4 --decode-ep 4");
    assert_true(has_arg(p.plan, 3, "--ep=4"));
    assert_true(has_arg(p.plan, 3, "--reduction-parts=4"));
    assert_false(has_arg(p.plan, 3, "--moe-reduction-parts=1"));
    destroy(&p);

    p = make_plan(8, "--model m.gguf --moe-reduction-parts 4");
    assert_true(has_arg(p.plan, 2, "--moe-reduction-parts=4"));
    destroy(&p);
}

/* Each rank has one of its own, and from the first on again where there are not
 * enough. */
static void devices_are_dealt_out(void **state)
{
    bt_devices_t devices;
    cpu_set_t allowed;
    planned_t p;

    (void)state;
    CPU_ZERO(&allowed);
    CPU_SET(0, &allowed);
    assert_int_equal(
        bt_devices_find(" 3, GPU-8932 ,MIG-a/1/0,-1,9", "0", "/", &devices),
        BT_OK);
    assert_int_equal(devices.n, 3);
    p = plan_on(&allowed, &one_memory, &devices,
                "--model m.gguf --backend cuda --decode-tp 2 "
                "--devices 3,GPU-8932,MIG-a/1/0");
    assert_true(has_arg(p.plan, 1, "--devices=3"));
    assert_true(has_arg(p.plan, 2, "--devices=GPU-8932"));
    assert_true(has_arg(p.plan, 3, "--devices=MIG-a/1/0,3"));
    destroy(&p);
    bt_devices_fini(&devices);
}

static void make_file(const char *dir, const char *name)
{
    char path[128];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
}

static void devices_are_those_that_are_visible_or_there(void **state)
{
    static const char *const files[] = {"nvidia0",   "nvidia1",    "nvidia12",
                                        "nvidiactl", "nvidia-uvm", "nvidia"};
    char dir[] = "/tmp/baton-test-devices-XXXXXX";
    bt_devices_t devices;
    bt_strbuf_t names;
    char path[128];

    (void)state;
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < BT_ARRAY_LEN(files); i++) {
        make_file(dir, files[i]);
    }
    assert_int_equal(bt_devices_find("", NULL, dir, &devices), BT_OK);
    assert_int_equal(devices.n, 3);
    bt_strbuf_init(&names, 64);
    bt_devices_deal(&devices, 2, 3, &names);
    assert_string_equal(names.data, "2,0,1"); /* CUDA's numbers */
    bt_strbuf_fini(&names);
    bt_devices_fini(&devices);
    assert_int_equal(bt_devices_find("", "", dir, &devices), BT_OK);
    assert_int_equal(devices.n, 0); /* CUDA hides all then */
    bt_devices_fini(&devices);
    assert_int_equal(bt_devices_find("", "1", dir, &devices), BT_OK);
    assert_int_equal(devices.n, 1);
    bt_devices_fini(&devices);
    for (size_t i = 0; i < BT_ARRAY_LEN(files); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(dir), 0);
}

static void a_plan_survives_every_failed_allocation(void **state)
{
    const bt_config_t *config = NULL;
    bt_config_store_t *store = NULL;
    char name[] = "test";
    char model[] = "--model=m.gguf";
    char *argv[] = {name, model, NULL};
    bt_plan_t *plan = NULL;
    bt_status_t status;
    cpu_set_t allowed;
    int nth = 0;

    (void)state;
    CPU_ZERO(&allowed);
    for (size_t core = 0; core < 4; core++) {
        CPU_SET(core, &allowed);
    }
    assert_int_equal(
        bt_config_load(BT_PROG_SERVE, false, 2, argv, &config, &store), BT_OK);
    do {
        bt_alloc_fail_at(++nth);
        status = bt_plan_create(store, config, &run_dir, &allowed, 6,
                                &one_memory, &no_devices, true, &plan);
        assert_true((status == BT_OK) == (plan != NULL));
        assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
    } while (status != BT_OK);
    /* at least: the plan, its list twice, the model's path, three processes
     * with their arguments, two of them with cores */
    assert_true(nth > 12);

    nth = 0;
    do {
        bt_alloc_fail_at(++nth);
        status = bt_plan_add_model(plan, "b", "/b", 1, 1);
        assert_int_equal(plan->n_models, (status == BT_OK) ? 2 : 1);
        assert_int_equal(plan->n_processes, (status == BT_OK) ? 5 : 3);
        assert_int_equal(bt_cores_count(&plan->cores), 0);
    } while (status != BT_OK);
    bt_alloc_fail_at(0);
    bt_plan_destroy(plan);
    bt_config_destroy(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(the_plan_pins_workers_to_cores_of_their_own),
        BT_TEST(a_worker_has_cores_of_one_memory_where_they_fit),
        BT_TEST(threads_of_one_core_count_once),
        BT_TEST(cores_are_lent_unless_told_otherwise),
        BT_TEST(too_few_cores_means_no_pinning),
        BT_TEST(threads_share_the_cores_evenly),
        BT_TEST(a_quota_is_shared_and_pins_nobody),
        BT_TEST(workers_are_added_to_a_model_and_taken_back),
        BT_TEST(a_pool_of_given_size_is_an_argument),
        BT_TEST(a_long_list_of_adapters_is_passed_on),
        BT_TEST(each_of_several_models_has_workers_of_its_own),
        BT_TEST(several_routers_have_ports_and_sockets_of_their_own),
        BT_TEST(each_router_has_a_port_for_grpc),
        BT_TEST(dropped_workers_give_back_cores_and_devices),
        BT_TEST(a_model_added_later_gets_what_cores_are_left),
        BT_TEST(sixteen_models_are_the_most),
        BT_TEST(a_new_role_keeps_name_threads_and_cores),
        BT_TEST(a_long_models_workers_have_names_that_fit_and_differ),
        BT_TEST(a_standby_is_planned_behind_the_workers),
        BT_TEST(workers_are_told_their_groups_of_experts),
        BT_TEST(devices_are_dealt_out),
        BT_TEST(devices_are_those_that_are_visible_or_there),
        BT_TEST(a_plan_survives_every_failed_allocation),
    };

    bt_config_unset_environment();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
