/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/plan.h"

#include <stdio.h>

#include "common/base/alloc.h"

#define ARGS_BYTES  65536
#define CORES_BYTES 8192

/* Cores that nobody has yet, so that workers get disjoint ones. */
typedef struct core_pool {
    cpu_set_t free;
    const bt_topology_t *topology;
} core_pool_t;

static uint32_t share(uint32_t n_cores, uint32_t n_workers)
{
    return ((n_workers == 0) || (n_cores < n_workers)) ? 1
                                                       : n_cores / n_workers;
}

void bt_plan_threads(const bt_config_t *config, uint32_t n_cores,
                     uint32_t *prefill_p, uint32_t *decode_p)
{
    uint32_t prefill = config->threads_prefill;
    uint32_t decode = config->threads_decode;

    if ((prefill == 0) && (decode == 0)) {
        prefill = share(n_cores, config->prefill + config->decode);
        decode = prefill;
    } else if (prefill == 0) {
        const uint32_t taken = decode * config->decode;

        prefill =
            share((n_cores > taken) ? n_cores - taken : 0, config->prefill);
    } else if (decode == 0) {
        const uint32_t taken = prefill * config->prefill;

        decode = share((n_cores > taken) ? n_cores - taken : 0, config->decode);
    }
    *prefill_p = prefill;
    *decode_p = decode;
}

/* As "0-3,8". */
static void write_cores(const cpu_set_t *cores, bt_strbuf_t *out)
{
    const char *separator = "";

    for (size_t first = 0; first < CPU_SETSIZE; first++) {
        size_t last = first;

        if (!CPU_ISSET(first, cores)) {
            continue;
        }
        while ((last + 1 < CPU_SETSIZE) && CPU_ISSET(last + 1, cores)) {
            last++;
        }
        if (last == first) {
            bt_strbuf_printf(out, "%s%zu", separator, first);
        } else {
            bt_strbuf_printf(out, "%s%zu-%zu", separator, first, last);
        }
        separator = ",";
        first = last;
    }
}

/* The memory node that n cores fit into most tightly; if there is none, the one
 * with the most free cores, so that few nodes share the worker. */
static uint32_t best_node(const core_pool_t *pool, uint32_t n)
{
    uint32_t n_free[BT_TOPOLOGY_NODES] = {0};
    uint32_t best = 0;

    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &pool->free)) {
            n_free[pool->topology->node[core]]++;
        }
    }
    for (uint32_t node = 1; node < BT_TOPOLOGY_NODES; node++) {
        const bool fits = (n_free[node] >= n);

        if ((n_free[best] >= n) ? (fits && (n_free[node] < n_free[best]))
                                : (n_free[node] > n_free[best])) {
            best = node;
        }
    }
    return best;
}

/* Take n free cores (there are as many) and write them. */
static void take_cores(core_pool_t *pool, uint32_t n, bt_strbuf_t *out)
{
    cpu_set_t taken;

    CPU_ZERO(&taken);
    while ((n > 0) && (CPU_COUNT(&pool->free) > 0)) {
        const uint32_t node = best_node(pool, n);

        for (size_t core = 0; (core < CPU_SETSIZE) && (n > 0); core++) {
            if (CPU_ISSET(core, &pool->free) &&
                (pool->topology->node[core] == node)) {
                CPU_CLR(core, &pool->free);
                CPU_SET(core, &taken);
                n--;
            }
        }
    }
    write_cores(&taken, out);
}

static void add_arg(bt_plan_process_t *process, const char *name,
                    const char *value, const char *rest)
{
    bt_strbuf_printf(&process->args, "--%s=%s%s", name, value, rest);
    bt_strbuf_append(&process->args, "", 1);
}

static bt_status_t plan_router(const bt_config_store_t *store,
                               const bt_run_dir_t *run_dir,
                               bt_plan_process_t *process)
{
    char url[BT_RUN_DIR_BYTES + 8];
    bt_status_t status;

    snprintf(process->name, sizeof(process->name), "router");
    process->program = BT_PROG_ROUTER;
    status = bt_config_args_for(store, BT_PROG_ROUTER, &process->args);
    if (status != BT_OK) {
        return status;
    }
    snprintf(url, sizeof(url), "ipc://%s", run_dir->path);
    add_arg(process, "listen", url, "/router.ipc");
    add_arg(process, "run-dir", run_dir->path, "");
    add_arg(process, "key-file", run_dir->key_file, "");
    add_arg(process, "name", process->name, "");
    return bt_strbuf_status(&process->args);
}

/* pool: NULL = do not pin. */
static bt_status_t plan_worker(const bt_config_store_t *store,
                               const bt_config_t *config,
                               const bt_run_dir_t *run_dir, unsigned program,
                               uint32_t index, uint32_t threads,
                               core_pool_t *pool, bt_plan_process_t *process)
{
    char model_name[BT_CONFIG_MODEL_NAME_BYTES];
    char text[BT_RUN_DIR_BYTES + 8];
    bt_status_t status;

    snprintf(process->name, sizeof(process->name), "%s-%u",
             (program == BT_PROG_PREFILL) ? "prefill" : "decode", index);
    process->program = program;
    status = bt_config_args_for(store, program, &process->args);
    if (status != BT_OK) {
        return status;
    }
    bt_strbuf_puts(&process->args, "--model=");
    bt_config_print_model("", config->model, &process->args);
    bt_strbuf_append(&process->args, "", 1);
    bt_config_model_name(&config->models[0], config->model_name, model_name);
    add_arg(process, "model-name", model_name, "");
    snprintf(text, sizeof(text), "ipc://%s", run_dir->path);
    add_arg(process, "join", text, "/router.ipc");
    add_arg(process, "run-dir", run_dir->path, "");
    add_arg(process, "key-file", run_dir->key_file, "");
    add_arg(process, "name", process->name, "");
    snprintf(text, sizeof(text), "%u", threads);
    add_arg(process, "threads", text, "");
    if (pool != NULL) {
        bt_strbuf_t cores;

        bt_strbuf_init(&cores, CORES_BYTES);
        take_cores(pool, threads, &cores);
        status = bt_strbuf_status(&cores);
        if (status == BT_OK) {
            add_arg(process, "cores", cores.data, "");
        }
        bt_strbuf_fini(&cores);
    }
    return (status == BT_OK) ? bt_strbuf_status(&process->args) : status;
}

bt_status_t bt_plan_create(const bt_config_store_t *store,
                           const bt_config_t *config,
                           const bt_run_dir_t *run_dir,
                           const cpu_set_t *allowed,
                           const bt_topology_t *topology, bt_plan_t **plan_p)
{
    const uint32_t n_workers = config->prefill + config->decode;
    const uint32_t n_cores = (uint32_t)CPU_COUNT(allowed);
    core_pool_t pool = {.free = *allowed, .topology = topology};
    bt_status_t status = BT_ERR_NO_MEMORY;
    uint32_t threads_prefill;
    uint32_t threads_decode;
    bt_plan_t *plan;
    bool pin;

    plan = bt_calloc(1, sizeof(*plan));
    if (plan == NULL) {
        goto err;
    }
    plan->processes =
        bt_calloc((size_t)n_workers + 1, sizeof(*plan->processes));
    if (plan->processes == NULL) {
        goto err_plan;
    }
    plan->n_processes = n_workers + 1;
    for (uint32_t i = 0; i < plan->n_processes; i++) {
        bt_strbuf_init(&plan->processes[i].args, ARGS_BYTES);
    }

    /* At most 256 workers of 1024 threads each: no product overflows. */
    bt_plan_threads(config, n_cores, &threads_prefill, &threads_decode);
    pin =
        (threads_prefill * config->prefill + threads_decode * config->decode <=
         n_cores);

    status = plan_router(store, run_dir, &plan->processes[0]);
    for (uint32_t i = 0; (status == BT_OK) && (i < n_workers); i++) {
        const bool is_prefill = (i < config->prefill);

        status = plan_worker(store, config, run_dir,
                             is_prefill ? BT_PROG_PREFILL : BT_PROG_DECODE,
                             is_prefill ? i : i - config->prefill,
                             is_prefill ? threads_prefill : threads_decode,
                             pin ? &pool : NULL, &plan->processes[i + 1]);
    }
    if (status != BT_OK) {
        goto err_plan;
    }
    *plan_p = plan;
    return BT_OK;

err_plan:
    bt_plan_destroy(plan);
err:
    return status;
}

void bt_plan_destroy(bt_plan_t *plan)
{
    if (plan == NULL) {
        return;
    }
    for (uint32_t i = 0; i < plan->n_processes; i++) {
        bt_strbuf_fini(&plan->processes[i].args);
    }
    bt_free(plan->processes);
    bt_free(plan);
}
