/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/admin/admin.h"
#include "common/base/alloc.h"
#include "common/base/status.h"

#define ARGS_BYTES  (256u << 10) /* --lora's may take 120 KiB */
#define CORES_BYTES 8192
/* The longest suffix of a model's name, ".prefill-255", and its zero. */
#define SUFFIX_BYTES 13

static uint32_t share(uint32_t n_cores, uint32_t n_workers)
{
    return ((n_workers == 0) || (n_cores < n_workers)) ? 1
                                                       : n_cores / n_workers;
}

static uint32_t at_least(uint32_t least, uint32_t n)
{
    return (n < least) ? least : n;
}

void bt_plan_threads(const bt_config_t *config, uint32_t n_models,
                     uint32_t n_cores, uint32_t *prefill_p, uint32_t *decode_p)
{
    const uint32_t n_prefill = n_models * config->prefill;
    const uint32_t n_decode = n_models * config->decode;
    uint32_t prefill = config->prefill_threads;
    uint32_t decode = config->decode_threads;

    if ((prefill == 0) && (decode == 0)) {
        prefill = share(n_cores, n_prefill + n_decode);
        decode = prefill;
    } else if (prefill == 0) {
        const uint32_t taken = decode * n_decode;

        prefill = share((n_cores > taken) ? n_cores - taken : 0, n_prefill);
    } else if (decode == 0) {
        const uint32_t taken = prefill * n_prefill;

        decode = share((n_cores > taken) ? n_cores - taken : 0, n_decode);
    }
    *prefill_p = at_least(config->prefill_tp * config->prefill_pp, prefill);
    *decode_p = at_least(config->decode_tp * config->decode_pp, decode);
}

uint32_t bt_plan_find_model(const bt_plan_t *plan, const char *name)
{
    for (uint32_t i = 0; i < plan->n_models; i++) {
        if (strcmp(plan->models[i].name, name) == 0) {
            return i;
        }
    }
    return BT_PLAN_NO_MODEL;
}

uint32_t bt_plan_count(const bt_plan_t *plan, uint32_t model,
                       bt_admin_role_t role)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < plan->n_processes; i++) {
        n += (plan->processes[i]->model == model) &&
             (plan->processes[i]->role == role);
    }
    return n;
}

static void add_arg(bt_strbuf_t *args, const char *name, const char *value)
{
    bt_strbuf_printf(args, "--%s=%s", name, value);
    bt_strbuf_append(args, "", 1);
}

static void add_number(bt_strbuf_t *args, const char *name, uint64_t value)
{
    bt_strbuf_printf(args, "--%s=%" PRIu64, name, value);
    bt_strbuf_append(args, "", 1);
}

/* --model as the program reads it back. */
static void add_model_arg(bt_strbuf_t *args, const char *name, const char *path)
{
    bt_strbuf_puts(args, "--model=");
    bt_config_print_model(name, path, args);
    bt_strbuf_append(args, "", 1);
}

/* URL of router k: "/run/x/router.ipc", or "/run/x/router-1.ipc" of several. */
static void print_url(const bt_plan_t *plan, uint32_t router, bt_strbuf_t *out)
{
    bt_strbuf_printf(out, "ipc://%s/router", plan->run_dir.path);
    if (plan->config->routers > 1) {
        bt_strbuf_printf(out, "-%u", router);
    }
    bt_strbuf_puts(out, ".ipc");
}

/* Adds an address with its port incremented; port 0 stays. */
static void add_moved_address(bt_strbuf_t *args, const char *name,
                              const char *address, uint32_t router)
{
    const char *const colon = strrchr(address, ':');
    char host[256];
    uint16_t port;

    /* The options were checked, so the address is valid. */
    if ((bt_config_split_address(address, host, sizeof(host), &port) !=
         BT_OK) ||
        (port == 0)) {
        return;
    }
    bt_strbuf_printf(args, "--%s=%.*s:%u", name, (int)(colon - address),
                     address,
                     (unsigned)port + router * BT_CONFIG_ROUTER_PORT_STEP);
    bt_strbuf_append(args, "", 1);
}

/* True when every worker has cores of its own. Routers use the other cores, and
 * short moments on the workers'. */
static bool workers_have_cores(const bt_plan_t *plan)
{
    uint32_t n_workers = 0, n_pinned = 0;

    for (uint32_t i = 0; i < plan->n_processes; i++) {
        n_workers += (plan->processes[i]->model != BT_PLAN_NO_MODEL) &&
                     !plan->processes[i]->is_standby;
        n_pinned += plan->processes[i]->cores != NULL; /* no router is */
    }
    return (n_workers > 0) && (n_pinned == n_workers);
}

static void add_router_args(const bt_plan_t *plan,
                            const bt_plan_process_t *process, bt_strbuf_t *args)
{
    bool none_loaded = true;
    char stem[BT_CONFIG_MODEL_NAME_BYTES];

    for (uint32_t i = 0; i < plan->n_models; i++) {
        none_loaded = none_loaded && plan->models[i].is_unloaded;
    }
    for (uint32_t i = 0; i < plan->n_models; i++) {
        const bt_plan_model_t *const model = &plan->models[i];
        const bt_config_model_t unnamed = {.name = "", .path = model->path};

        if (!model->is_unloaded || none_loaded) {
            bt_config_model_name(&unnamed, "", stem);
            add_model_arg(args,
                          (strcmp(stem, model->name) == 0) ? "" : model->name,
                          model->path);
        }
    }
    if (process->router > 0) {
        if (!plan->config->reuse_http_port) {
            add_moved_address(args, "http", plan->config->http,
                              process->router);
        }
        add_moved_address(args, "grpc", plan->config->grpc, process->router);
        add_moved_address(args, "metrics", plan->config->metrics,
                          process->router);
    }
    bt_strbuf_puts(args, "--listen=");
    print_url(plan, process->router, args);
    bt_strbuf_append(args, "", 1);
    if (plan->has_control_socket) {
        bt_strbuf_printf(args, "--launcher=%s/" BT_ADMIN_SOCKET,
                         plan->run_dir.path);
        bt_strbuf_append(args, "", 1);
    }
    if (workers_have_cores(plan)) {
        add_arg(args, "workers-pinned", "yes");
    }
}

/* Role of the program's name, without --role. */
static bt_admin_role_t role_of(unsigned program)
{
    return (program == BT_PROG_PREFILL)  ? BT_ADMIN_ROLE_PREFILL
           : (program == BT_PROG_DECODE) ? BT_ADMIN_ROLE_DECODE
                                         : BT_ADMIN_ROLE_NONE;
}

/* Cores of all other workers, whatever model they serve. */
static void add_lent_cores(const bt_plan_t *plan,
                           const bt_plan_process_t *process, bt_strbuf_t *args)
{
    cpu_set_t own;
    cpu_set_t others;

    CPU_ZERO(&own);
    CPU_ZERO(&others);
    bt_cores_read(process->cores, &own);
    for (uint32_t i = 0; i < plan->n_processes; i++) {
        if (plan->processes[i]->cores != NULL) {
            bt_cores_read(plan->processes[i]->cores, &others);
        }
    }
    CPU_OR(&others, &others, &own);
    if (CPU_COUNT(&others) > CPU_COUNT(&own)) {
        bt_strbuf_puts(args, "--borrowed-cores=");
        bt_cores_write_others(&plan->cores.topology, &own, &others, args);
        bt_strbuf_append(args, "", 1);
    }
}

static uint32_t tp_of(const bt_plan_t *plan, const bt_plan_process_t *process)
{
    return (process->program == BT_PROG_PREFILL)  ? plan->config->prefill_tp
           : (process->program == BT_PROG_DECODE) ? plan->config->decode_tp
                                                  : 1;
}

static uint32_t pp_of(const bt_plan_t *plan, const bt_plan_process_t *process)
{
    return (process->program == BT_PROG_PREFILL)  ? plan->config->prefill_pp
           : (process->program == BT_PROG_DECODE) ? plan->config->decode_pp
                                                  : 1;
}

static uint32_t ep_of(const bt_plan_t *plan, const bt_plan_process_t *process)
{
    return (process->program == BT_PROG_PREFILL)  ? plan->config->prefill_ep
           : (process->program == BT_PROG_DECODE) ? plan->config->decode_ep
                                                  : 1;
}

uint32_t bt_plan_ranks(const bt_plan_t *plan, const bt_plan_process_t *process)
{
    return tp_of(plan, process) * pp_of(plan, process);
}

bool bt_plan_may_replace(const bt_plan_t *plan,
                         const bt_plan_process_t *standby,
                         const bt_plan_process_t *worker)
{
    return standby->is_standby && !worker->is_standby &&
           (standby->model == worker->model) &&
           (tp_of(plan, standby) == tp_of(plan, worker)) &&
           (ep_of(plan, standby) == ep_of(plan, worker)) &&
           (pp_of(plan, standby) == pp_of(plan, worker));
}

/* Parts of an all-reduce: equal for all workers, so that an answer does not
 * depend on which worker computes it. */
static uint32_t sum_parts(const bt_config_t *config)
{
    const uint32_t most = (config->prefill_tp > config->decode_tp)
                              ? config->prefill_tp
                              : config->decode_tp;

    return (config->reduction_parts != 0) ? config->reduction_parts : most;
}

/* Parts of sums over an expert's width, likewise. */
static uint32_t expert_parts(const bt_config_t *config)
{
    const uint32_t prefill = config->prefill_tp / config->prefill_ep;
    const uint32_t decode = config->decode_tp / config->decode_ep;

    return (config->moe_reduction_parts != 0) ? config->moe_reduction_parts
                                              : at_least(prefill, decode);
}

static void add_worker_args(const bt_plan_t *plan,
                            const bt_plan_process_t *process, bt_strbuf_t *args)
{
    const bt_plan_model_t *const model = &plan->models[process->model];

    add_model_arg(args, "", model->path);
    add_arg(args, "served-model-name", model->name);
    bt_strbuf_puts(args, "--join=");
    for (uint32_t i = 0; i < plan->config->routers; i++) {
        bt_strbuf_puts(args, (i == 0) ? "" : ",");
        print_url(plan, i, args);
    }
    bt_strbuf_append(args, "", 1);
    add_number(args, "threads", process->threads);
    if (process->pool_bytes > 0) {
        add_number(args, "kv-memory", process->pool_bytes);
    }
    if (tp_of(plan, process) > 1) {
        add_number(args, "tp", tp_of(plan, process));
    }
    if (ep_of(plan, process) > 1) {
        add_number(args, "ep", ep_of(plan, process));
    }
    if (pp_of(plan, process) > 1) {
        add_number(args, "pp", pp_of(plan, process));
    }
    if (sum_parts(plan->config) > 1) {
        add_number(args, "reduction-parts", sum_parts(plan->config));
    }
    if (expert_parts(plan->config) > 1) { /* ignored without experts */
        add_number(args, "moe-reduction-parts", expert_parts(plan->config));
    }
    if (process->cores != NULL) {
        add_arg(args, "cores", process->cores);
        if ((strcmp(plan->config->share_idle_cores, "off") != 0) &&
            (strcmp(plan->config->backend, "cpu") == 0)) {
            add_lent_cores(plan, process, args);
        }
    }
    if (plan->devices->n > 0) {
        bt_strbuf_puts(args, "--devices=");
        bt_devices_deal(plan->devices, process->first_device,
                        bt_plan_ranks(plan, process), args);
        bt_strbuf_append(args, "", 1);
    }
    if (process->is_standby) {
        add_number(args, "assignment-fd", BT_PLAN_ASSIGNMENT_FD);
    } else if (process->role != role_of(process->program)) {
        add_arg(args, "role", bt_admin_role_name(process->role));
    }
}

bt_status_t bt_plan_renew_args(const bt_plan_t *plan,
                               bt_plan_process_t *process)
{
    bt_strbuf_t args;
    bt_status_t status;

    bt_strbuf_init(&args, ARGS_BYTES);
    status = bt_config_args_for(plan->store, process->program, &args);
    if (status == BT_OK) {
        if (process->model == BT_PLAN_NO_MODEL) {
            add_router_args(plan, process, &args);
        } else {
            add_worker_args(plan, process, &args);
        }
        add_arg(&args, "run-dir", plan->run_dir.path);
        add_arg(&args, "cluster-key-file", plan->run_dir.key_file);
        add_arg(&args, "name", process->name);
        status = bt_strbuf_status(&args);
    }
    if (status != BT_OK) {
        bt_strbuf_fini(&args);
        return status;
    }
    bt_strbuf_fini(&process->args);
    process->args = args;
    return BT_OK;
}

size_t bt_plan_put_args(const bt_plan_process_t *process, char **argv)
{
    const bt_strbuf_t *const args = &process->args;
    size_t n = 0;

    for (size_t at = 0; at < args->len; at += strlen(args->data + at) + 1) {
        if (argv != NULL) {
            argv[n] = args->data + at;
        }
        n++;
    }
    return n;
}

static void destroy_process(bt_plan_process_t *process)
{
    if (process != NULL) {
        bt_strbuf_fini(&process->args);
        bt_free(process->cores);
        bt_free(process);
    }
}

/* Removes the last process. */
static void drop_process(bt_plan_t *plan)
{
    const bt_plan_process_t *last = plan->processes[--plan->n_processes];

    if (last->program != BT_PROG_ROUTER) {
        plan->n_dealt = last->first_device;
    }
    destroy_process(plan->processes[plan->n_processes]);
    plan->processes[plan->n_processes] = NULL;
}

/* Reserves memory for @a n more processes. */
static bt_status_t grow(bt_plan_t *plan, uint32_t n)
{
    bt_plan_process_t **const processes =
        bt_realloc_array(plan->processes, (size_t)plan->n_processes + n,
                         sizeof(*plan->processes));

    if (processes == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    plan->processes = processes;
    return BT_OK;
}

/* Adds a process, for which the caller has set the known fields, with its
 * arguments; grow() has reserved memory. */
static bt_status_t add_process(bt_plan_t *plan, const bt_plan_process_t *known)
{
    bt_plan_process_t *const process = bt_calloc(1, sizeof(*process));
    bt_status_t status;

    if (process == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    *process = *known;
    bt_strbuf_init(&process->args, ARGS_BYTES);
    process->role =
        process->is_standby ? BT_ADMIN_ROLE_NONE : role_of(process->program);
    status = bt_plan_renew_args(plan, process);
    if (status != BT_OK) {
        process->cores = NULL; /* the caller's */
        destroy_process(process);
        return status;
    }
    plan->processes[plan->n_processes++] = process;
    return BT_OK;
}

static bt_status_t add_router(bt_plan_t *plan, uint32_t index)
{
    bt_plan_process_t process = {
        .program = BT_PROG_ROUTER, .model = BT_PLAN_NO_MODEL, .router = index};

    if (plan->config->routers == 1) {
        snprintf(process.name, sizeof(process.name), "router");
    } else {
        snprintf(process.name, sizeof(process.name), "router-%u", index);
    }
    return add_process(plan, &process);
}

/* A name too long to stand before ".prefill-255" is cut, and made unique by the
 * model's number. */
static void name_worker(const bt_plan_t *plan, uint32_t index,
                        bt_plan_process_t *process)
{
    const bt_plan_model_t *const model = &plan->models[process->model];
    const char *const role = process->is_standby                     ? "standby"
                             : (process->program == BT_PROG_PREFILL) ? "prefill"
                                                                     : "decode";
    const int most = (int)sizeof(process->name) - SUFFIX_BYTES;
    const int digits = 3; /* "~15" */

    if (!model->has_prefix) {
        snprintf(process->name, sizeof(process->name), "%s-%u", role, index);
    } else if (strlen(model->name) <= (size_t)most) {
        snprintf(process->name, sizeof(process->name), "%.*s.%s-%u", most,
                 model->name, role, index);
    } else {
        snprintf(process->name, sizeof(process->name), "%.*s~%u.%s-%u",
                 most - digits, model->name, process->model, role, index);
    }
}

/* True when both roles have equal numbers of ranks, groups of them, and stages:
 * then a standby of one can replace a worker of the other. */
static bool sides_are_alike(const bt_config_t *config)
{
    return (config->prefill_tp == config->decode_tp) &&
           (config->prefill_ep == config->decode_ep) &&
           (config->prefill_pp == config->decode_pp);
}

/* Adds a worker, or a standby with the shape of the workers of a program, which
 * the other role may share. */
static bt_status_t add_worker(bt_plan_t *plan, uint32_t model, unsigned program,
                              uint32_t index, bool is_standby, bool pin)
{
    bt_plan_process_t process = {.program = program,
                                 .is_standby = is_standby,
                                 .model = model,
                                 .first_device = plan->n_dealt,
                                 .threads = (program == BT_PROG_PREFILL)
                                                ? plan->threads_prefill
                                                : plan->threads_decode};
    bt_status_t status = BT_OK;
    bt_strbuf_t cores;

    name_worker(plan, index, &process);
    bt_strbuf_init(&cores, CORES_BYTES);
    if (pin) {
        bt_cores_take(&plan->cores, process.threads, &cores);
        status = bt_strbuf_status(&cores);
        process.cores = cores.data;
    }
    if (status == BT_OK) {
        status = add_process(plan, &process);
    }
    if (status != BT_OK) {
        bt_strbuf_fini(&cores);
        return status;
    }
    plan->n_dealt += is_standby ? 0 : bt_plan_ranks(plan, &process);
    return BT_OK;
}

/* Adds workers of both kinds, numbered after those that the model has. */
static bt_status_t add_pairs(bt_plan_t *plan, uint32_t model, uint32_t prefill,
                             uint32_t decode, bool pin)
{
    bt_plan_model_t *const added = &plan->models[model];
    bt_status_t status = BT_OK;

    for (uint32_t i = 0; (status == BT_OK) && (i < prefill); i++) {
        status = add_worker(plan, model, BT_PROG_PREFILL, added->prefill + i,
                            false, pin);
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < decode); i++) {
        status = add_worker(plan, model, BT_PROG_DECODE, added->decode + i,
                            false, pin);
    }
    if (status == BT_OK) {
        added->prefill += prefill;
        added->decode += decode;
    }
    return status;
}

/* Adds the model's record and its workers. */
static bt_status_t add_workers(bt_plan_t *plan, bool has_prefix,
                               const char *name, const char *path,
                               uint32_t prefill, uint32_t decode, bool pin)
{
    const uint32_t index = plan->n_models;
    const uint32_t n_standby = plan->config->standby;
    bt_plan_model_t *const model = &plan->models[index];
    bt_status_t status = BT_ERR_NO_MEMORY;

    plan->cores_before = plan->cores;
    memset(model, 0, sizeof(*model));
    snprintf(model->name, sizeof(model->name), "%s", name);
    model->has_prefix = has_prefix;
    model->path = bt_strdup(path);
    if (model->path == NULL) {
        return status;
    }
    plan->n_models++;
    status = grow(plan, prefill + decode + 2 * n_standby);
    if (status == BT_OK) {
        status = add_pairs(plan, index, prefill, decode, pin);
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < n_standby); i++) {
        status = add_worker(plan, index, BT_PROG_DECODE, i, true, false);
    }
    for (uint32_t i = 0; (status == BT_OK) && (prefill > 0) &&
                         !sides_are_alike(plan->config) && (i < n_standby);
         i++) {
        status = add_worker(plan, index, BT_PROG_PREFILL, n_standby + i, true,
                            false);
    }
    if (status != BT_OK) {
        bt_plan_drop_model(plan);
    }
    return status;
}

/* Workers that are left keep their cores. */
static bool has_cores_for(const bt_plan_t *plan, uint32_t prefill,
                          uint32_t decode)
{
    const uint32_t threads =
        plan->threads_prefill * prefill + plan->threads_decode * decode;

    return !plan->has_quota && (threads <= bt_cores_count(&plan->cores));
}

bt_status_t bt_plan_add_workers(bt_plan_t *plan, uint32_t model,
                                uint32_t prefill, uint32_t decode)
{
    const bool pin = has_cores_for(plan, prefill, decode);
    const uint32_t before = plan->n_processes;
    bt_status_t status = grow(plan, prefill + decode);

    plan->cores_before = plan->cores;
    if (status == BT_OK) {
        status = add_pairs(plan, model, prefill, decode, pin);
    }
    if (status != BT_OK) {
        while (plan->n_processes > before) {
            drop_process(plan);
        }
        plan->cores = plan->cores_before;
    }
    return status;
}

void bt_plan_drop_workers(bt_plan_t *plan, uint32_t model, uint32_t prefill,
                          uint32_t decode)
{
    for (uint32_t i = 0; i < prefill + decode; i++) {
        drop_process(plan);
    }
    plan->cores = plan->cores_before;
    plan->models[model].prefill -= prefill;
    plan->models[model].decode -= decode;
}

void bt_plan_drop_model(bt_plan_t *plan)
{
    plan->n_models--;
    while ((plan->n_processes > 0) &&
           (plan->processes[plan->n_processes - 1]->model == plan->n_models)) {
        drop_process(plan);
    }
    plan->cores = plan->cores_before;
    bt_free(plan->models[plan->n_models].path);
    plan->models[plan->n_models].path = NULL;
}

bt_status_t bt_plan_add_model(bt_plan_t *plan, const char *name,
                              const char *path, uint32_t prefill,
                              uint32_t decode)
{
    BT_ASSERT(bt_plan_find_model(plan, name) == BT_PLAN_NO_MODEL);
    if (plan->n_models == BT_CONFIG_MAX_MODELS) {
        return BT_ERR_TOO_LARGE;
    }
    return add_workers(plan, true, name, path, prefill, decode,
                       has_cores_for(plan, prefill, decode));
}

/* Routers come first, but name the models, and workers name the cores of later
 * ones: arguments are written again at the end. */
static bt_status_t plan_all(bt_plan_t *plan)
{
    const bt_config_t *const config = plan->config;
    const uint32_t n_models = config->n_models;
    const uint32_t n_cores = plan->n_cpus;
    char name[BT_CONFIG_MODEL_NAME_BYTES];
    bt_status_t status = grow(plan, config->routers);
    bool pin;

    for (uint32_t i = 0; (status == BT_OK) && (i < config->routers); i++) {
        status = add_router(plan, i);
    }
    /* At most 16 models with 512 workers of 1024 threads: nothing overflows. */
    plan->n_physical = bt_cores_count_physical(&plan->cores);
    bt_plan_threads(config, n_models,
                    (plan->n_physical < n_cores) ? plan->n_physical : n_cores,
                    &plan->threads_prefill, &plan->threads_decode);
    pin = !plan->has_quota &&
          (n_models * (plan->threads_prefill * config->prefill +
                       plan->threads_decode * config->decode) <=
           n_cores);
    for (uint32_t i = 0; (status == BT_OK) && (i < n_models); i++) {
        bt_config_model_name(&config->models[i],
                             (i == 0) ? config->served_model_name : "", name);
        status = add_workers(plan, n_models > 1, name, config->models[i].path,
                             config->prefill, config->decode, pin);
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < plan->n_processes); i++) {
        status = bt_plan_renew_args(plan, plan->processes[i]);
    }
    return status;
}

bt_status_t bt_plan_find_devices(const bt_config_t *config,
                                 bt_devices_t *devices_p)
{
    if (strcmp(config->backend, "cpu") == 0) {
        *devices_p = (bt_devices_t){0};
        return BT_OK;
    }
    return bt_devices_find(config->devices, getenv("CUDA_VISIBLE_DEVICES"),
                           BT_DEVICES_DIR, devices_p);
}

bt_status_t bt_plan_create(const bt_config_store_t *store,
                           const bt_config_t *config,
                           const bt_run_dir_t *run_dir,
                           const cpu_set_t *allowed, uint32_t n_cpus,
                           const bt_topology_t *topology,
                           const bt_devices_t *devices, bool has_control_socket,
                           bt_plan_t **plan_p)
{
    bt_plan_t *const plan = bt_calloc(1, sizeof(*plan));
    bt_status_t status;

    if (plan == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    plan->store = store;
    plan->has_control_socket = has_control_socket;
    plan->devices = devices;
    plan->config = config;
    plan->run_dir = *run_dir;
    plan->cores.free = *allowed;
    plan->cores.topology = *topology;
    plan->has_quota = n_cpus < bt_cores_count(&plan->cores);
    plan->n_cpus = plan->has_quota ? n_cpus : bt_cores_count(&plan->cores);
    status = plan_all(plan);
    if (status != BT_OK) {
        bt_plan_destroy(plan);
        return status;
    }
    *plan_p = plan;
    return BT_OK;
}

void bt_plan_destroy(bt_plan_t *plan)
{
    if (plan == NULL) {
        return;
    }
    while (plan->n_processes > 0) {
        drop_process(plan);
    }
    for (uint32_t i = 0; i < plan->n_models; i++) {
        bt_free(plan->models[i].path);
    }
    bt_free(plan->processes);
    bt_free(plan);
}
