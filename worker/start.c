/* SPDX-License-Identifier: Apache-2.0 */
/* main() of a worker: the steps of start.h in order, the control loop, and the
 * clean-up. */
#include "worker/start.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/status.h"
#include "common/base/thread.h"
#include "common/base/topology.h"
#include "common/config/config.h"
#include "inference/model/shard.h"
#include "worker/admin.h"
#include "worker/fanout.h"
#include "worker/preflight.h"
#include "worker/worker_priv.h"

#define HEAP_BYTES (32 << 20) /* malloc's own limit for one of them */

void bt_start_name_rank(bt_worker_t *w, const char *name, uint32_t rank)
{
    if (rank == 0) {
        snprintf(w->name, sizeof(w->name), "%s", name);
    } else {
        snprintf(w->name, sizeof(w->name), "%.*s:%u", (int)sizeof(w->name) - 12,
                 name, rank);
    }
}

static void name_worker(bt_worker_t *w, const bt_start_t *s)
{
    char name[BT_WIRE_MAX_NAME];

    if (w->config->name[0] != '\0') {
        snprintf(name, sizeof(name), "%s", w->config->name);
    } else {
        snprintf(name, sizeof(name), "%s-%u", bt_role_name(w->program_role),
                 s->team.index);
    }
    bt_start_name_rank(w, name, s->team.rank);
    bt_key_random(&w->instance, sizeof(w->instance));
}

void bt_start_log_as_named(const bt_worker_t *w)
{
    bt_log_level_t level = BT_LOG_LEVEL_INFO;

    (void)bt_log_level_parse(w->config->log_level, &level);
    bt_log_init(w->name, level);
}

/* Opens the board where workers lend each other cores. Without a launcher's
 * directory they lend idle cores only. */
static bt_status_t open_board(bt_worker_t *w, const bt_start_t *s)
{
    bt_status_t status;

    if ((s->n_lent == 0) || (w->config->run_dir[0] == '\0') ||
        (strcmp(w->config->share_idle_cores, "on") != 0)) {
        return BT_OK;
    }
    status = bt_core_demand_open(w->config->run_dir, s->cores, s->n_cores,
                                 s->lent_cores, s->n_lent, &w->board);
    if (status == BT_ERR_IO) {
        BT_LOG_WARN(
            "%s/cores cannot be used: cores are shared only while they are idle",
            w->config->run_dir);
        return BT_OK;
    }
    return status;
}

/* This rank's part of a list of cores. */
static bt_status_t share_cores(const bt_start_t *s, uint32_t *cores,
                               uint32_t *n_io, bool needed)
{
    const bt_share_t own = bt_share_of(*n_io, 1, s->team.rank, s->team.size);

    if (needed && (*n_io > 0) && (*n_io < s->team.size)) {
        BT_LOG_ERROR("cores: %u for %u ranks", *n_io, s->team.size);
        return BT_ERR_INVALID_PARAM;
    }
    memmove(cores, cores + own.first, own.n * sizeof(*cores));
    *n_io = own.n;
    return BT_OK;
}

bt_status_t bt_start_cores_settle(bt_worker_t *w, bt_start_t *s)
{
    bt_topology_t topology;
    uint32_t n_cores = 0; /* of the instance */
    bt_status_t status;

    if (s->n_threads > 0) {
        return BT_OK; /* started again in its process: they are settled */
    }
    if ((status = bt_cores_parse(w->config->cores, s->cores, &s->n_cores)) !=
            BT_OK ||
        (status = bt_cores_parse(w->config->borrowed_cores, s->lent_cores,
                                 &s->n_lent)) != BT_OK ||
        (n_cores = s->n_cores,
         status = share_cores(s, s->cores, &s->n_cores, true)) != BT_OK ||
        (status = share_cores(s, s->lent_cores, &s->n_lent, false)) != BT_OK) {
        return status;
    }
    if (s->n_cores > 0) { /* before large memory is touched */
        bt_topology_read(BT_TOPOLOGY_DIR, &topology);
        bt_topology_stay_near(&topology, s->cores, s->n_cores);
        s->memory_node = bt_topology_node_of(&topology, s->cores, s->n_cores);
        bt_thread_works_in_bursts(); /* beside its own compute threads alone */
    }
    if ((status = bt_worker_use_devices(w->config->devices, s->team.rank,
                                        s->team.size)) != BT_OK) {
        return status;
    }
    /* The threads option counts for the whole instance. */
    s->n_threads = bt_share_of(bt_cores_threads(w->config->threads, n_cores), 1,
                               s->team.rank, s->team.size)
                       .n;
    s->n_threads = (s->n_threads == 0) ? 1 : s->n_threads;
    s->n_lent = bt_cores_lent(s->n_threads, s->n_lent);
    if (w->config->run_dir[0] != '\0') {
        return BT_OK; /* a launcher has checked, for all that it starts */
    }
    return bt_program_threads_check(
        bt_worker_threads(bt_online_cpus(), s->n_threads + s->n_lent));
}

/* All that a worker loads before it has a name and role. */
static bt_status_t load(bt_worker_t *w, bt_start_t *s, int signal_fd)
{
    bt_status_t status = BT_OK;

    if ((status = bt_start_file_open(w, s)) != BT_OK ||
        (status = bt_weights_opened(w, s->gguf)) != BT_OK ||
        (status = bt_sleep_opened(w, s->gguf)) != BT_OK ||
        (status = bt_start_grammars_begin(w, s)) != BT_OK ||
        (status = bt_start_options_check(w, s)) != BT_OK ||
        (status = bt_start_cores_settle(w, s)) != BT_OK ||
        (status = bt_start_draft_open(w, s)) != BT_OK ||
        (status = bt_start_memory_plan(w, s)) != BT_OK ||
        (status = bt_start_model_load(w, s)) != BT_OK ||
        (w->config->assignment_fd == 0)) {
        return status;
    }
    status = bt_worker_stand_by(w, bt_instance_ranks_collectives(&s->team),
                                signal_fd);
    bt_start_log_as_named(w);
    return status;
}

/* @retval BT_ERR_CANCELED  stopped meanwhile, which is not an error */
static bt_status_t open_all(bt_worker_t *w, bt_start_t *s, int signal_fd)
{
    bt_status_t status = BT_OK;

    if ((status = load(w, s, signal_fd)) != BT_OK ||
        (status = bt_start_router_find(w, s)) != BT_OK ||
        (status = bt_start_pool_open(w, s)) != BT_OK ||
        (status = bt_wire_decoder_create(&w->decoder)) != BT_OK ||
        (status = open_board(w, s)) != BT_OK ||
        (status = bt_start_engine_open(w, s)) != BT_OK ||
        (status = bt_start_grammars_end(w)) != BT_OK ||
        (status = bt_start_links_open(w, s)) != BT_OK) {
        return status;
    }
    BT_LOG_INFO(
        "ready: %s, %s, %u threads and %u on borrowed cores, %u %s KV blocks of %u tokens (%zu MiB)",
        w->config->model, w->backend->caps->name, s->n_threads, s->n_lent,
        w->n_blocks, w->config->kv_dtype, w->tokens_per_block,
        ((size_t)w->n_blocks * w->block_bytes) >> 20);
    bt_sched_admit_init(&w->admit, w->n_blocks, w->max_seqs,
                        w->config->max_ungranted_kv_percent);
    bt_sched_batch_init(&w->admit.batch,
                        bt_worker_has_static_batches(w->config));
    if (w->admit.batch.is_static) {
        BT_LOG_INFO("static batches, by --batching-strategy V1");
    }
    if ((status = bt_preempt_open(w)) != BT_OK) {
        return status;
    }
    bt_worker_set_roles(w, w->roles);
    for (uint32_t i = 0; i < BT_WORKER_HANDLERS; i++) {
        if ((status = w->ops[i]->open(w)) != BT_OK) {
            return status;
        }
    }
    bt_ready_fd_say(&w->ready_fd, s->is_again ? "loaded\n" : "ready\n");
    return BT_OK;
}

static void close_all(bt_worker_t *w, bt_start_t *s)
{
    bt_weights_close(w);
    bt_engine_destroy(w->engine);
    bt_model_drafter_destroy(w->drafter);
    bt_head_drafter_destroy(w->head_drafter);
    bt_ngram_corpus_destroy(w->corpus);
    bt_core_demand_close(w->board);
    bt_jobs_end_all(w);
    bt_grammars_destroy(w->grammars);
    for (uint32_t i = 0; i < BT_WORKER_HANDLERS; i++) {
        w->ops[i]->close(w);
    }
    for (uint32_t i = 0; i < w->n_links; i++) {
        bt_free(w->links[i]->scores);
        bt_free(w->links[i]->drafts);
        bt_free(w->links[i]->tokens);
        bt_free(w->links[i]);
    }
    w->n_links = 0;
    bt_membership_close(w);
    bt_control_close(w->control);
    bt_start_pool_close(w);
    bt_peer_sharding_fini(w);
    bt_kv_groups_fini(&w->groups);
    bt_kv_groups_fini(&w->own_groups);
    if (w->model != NULL) {
        bt_instance_ranks_expect_end(&s->team);
        bt_model_end_ranks(w->model);
    }
    bt_adapters_close(w);
    bt_model_destroy(w->draft_model);
    bt_model_destroy(w->model);
    bt_backend_close(w->backend);
    bt_wire_decoder_destroy(w->decoder);
    bt_strbuf_fini(&w->out);
}

/* Signals come by descriptor; blocked before any thread exists, so that all
 * threads inherit it. */
static int open_signals(void)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* the write returns the error (ulimit -f) */
    bt_stop_block();
    return bt_stop_open();
}

/* When the heap grows or shrinks, the thread waits for all others that use the
 * memory map of this process, also within the kernel (kvt_pages.h). The heap
 * keeps its memory from here on, so that the control thread never waits; memory
 * used for loading is returned. */
static void keep_heap(void)
{
    (void)mallopt(M_TRIM_THRESHOLD, HEAP_BYTES);
    (void)mallopt(M_TOP_PAD, HEAP_BYTES / 4);
    (void)mallopt(M_MMAP_THRESHOLD, HEAP_BYTES);
}

static void worker_init(bt_worker_t *w, bt_role_t role,
                        const bt_worker_ops_t *const ops[BT_WORKER_HANDLERS])
{
    *w = (bt_worker_t){.ops = ops, .program_role = role, .ready_fd = -1};
    w->admin.hangup_fd = -1;
    w->stats.start_unix_s = (uint64_t)time(NULL);
    bt_jobs_init(w);
    bt_sched_cost_init(&w->cost);
    bt_peer_sharding_init(w);
    bt_strbuf_init(&w->out, BT_LINK_MAX_MESSAGE);
}

static bt_worker_t *
worker_new(bt_role_t role, const bt_worker_ops_t *const ops[BT_WORKER_HANDLERS])
{
    bt_worker_t *w = bt_calloc(1, sizeof(*w));

    if (w != NULL) {
        worker_init(w, role, ops);
    }
    return w;
}

/* Settles the identity of the worker, and its log format. */
static void settle(bt_worker_t *w, const bt_start_t *s)
{
    name_worker(w, s);
    if (!bt_role_named(w->config->role, &w->roles)) {
        w->roles = (uint32_t)w->program_role; /* auto */
    }
    bt_start_log_as_named(w);
    (void)bt_log_format(w->config->log_format); /* checked with the options */
    bt_thread_works_briefly(); /* the control thread; compute threads say so */
}

/* From the start to the end of the control loop. @return the exit code */
static int serve(bt_worker_t *w, bt_start_t *s, int signal_fd,
                 bt_status_t *started_p)
{
    const bt_status_t status = open_all(w, s, signal_fd);

    *started_p = status;
    /* The links have what they need of it. */
    bt_key_wipe(s->key, sizeof(s->key));
    if (status != BT_OK) {
        return bt_exit_of_start(status);
    }
    bt_start_draft_close(s);
    bt_gguf_close(s->gguf); /* the weights are packed */
    s->gguf = NULL;
    w->sleep.is_waking = false;
    keep_heap();
    return bt_worker_loop(w, signal_fd);
}

/* Makes a closed worker one that was not started yet, of another instance, with
 * its next weights, or one that sleeps. */
static void start_anew(bt_worker_t *w, bt_start_t *s)
{
    const bt_worker_t before = *w;
    const bt_start_t started = *s;

    worker_init(w, before.program_role, before.ops);
    memcpy(w->name, before.name, sizeof(w->name));
    w->roles = before.roles;
    bt_key_random(&w->instance, sizeof(w->instance));
    w->wishes = before.wishes;
    w->ready_fd = before.ready_fd;
    w->beat = before.beat;
    w->admin = before.admin;
    w->weights = before.weights;
    if (before.weights.are_due && !before.sleep.is_due) {
        w->weights.now = before.weights.next;
    } /* else its routers order them again when it wakes */
    w->weights.are_due = false;
    w->sleep = before.sleep;
    bt_sleep_go(&w->sleep);
    *s = (bt_start_t){.store = started.store,
                      .model = started.model,
                      .is_again = true,
                      .own_config = *before.config,
                      .cluster = started.cluster,
                      .team = started.team,
                      .n_cores = started.n_cores,
                      .n_threads = started.n_threads,
                      .n_lent = started.n_lent,
                      .memory_node = started.memory_node};
    memcpy(s->cores, started.cores, sizeof(s->cores));
    memcpy(s->lent_cores, started.lent_cores, sizeof(s->lent_cores));
    s->own_config.model =
        (w->weights.now.update != 0) ? w->weights.now.path : s->model;
    s->own_config.assignment_fd = 0; /* the assignment is taken */
    w->config = &s->own_config;
}

/* True when the worker is to be started again in its process. */
static bool goes_on(bt_worker_t *w, bt_status_t started, int code)
{
    if (started != BT_OK) {
        return bt_sleep_failed(w, started) || bt_weights_failed(w, started);
    }
    return (code == BT_EXIT_OK) && !w->draining &&
           (w->weights.are_due || w->sleep.is_due);
}

/* Rank 0: serves routers and the launcher. @return the exit code */
static int run(bt_worker_t *w, bt_start_t *s, int signal_fd)
{
    bool is_over = false;
    int code = BT_EXIT_FAILURE;

    s->model = w->config->model;
    w->weights.start = s;
    w->weights.trial = &bt_start_trial_ops;
    w->ready_fd = bt_ready_fd_open();
    bt_heartbeat_open(&w->beat);
    w->sleep.is_possible =
        (s->team.size == 1) && !bt_cluster_has_router(s->cluster);
    w->weights.are_replaceable =
        (w->config->allow_weight_updates[0] != '\0') && w->sleep.is_possible;
    while (!is_over) {
        bt_status_t started = BT_OK;

        code = w->sleep.is_asleep ? bt_sleep_run(w, s, signal_fd)
                                  : serve(w, s, signal_fd, &started);
        is_over = !goes_on(w, started, code);
        if (!is_over) { /* it is not hung, though it beats no more */
            bt_ready_fd_say(&w->ready_fd, "loading\n");
        }
        close_all(w, s);
        if (!is_over) {
            bt_start_draft_close(s);
            bt_gguf_close(s->gguf);
            start_anew(w, s);
            (void)malloc_trim(0);
        }
    }
    bt_ready_fd_close(&w->ready_fd);
    bt_heartbeat_close(&w->beat);
    return code;
}

/* @return the exit code */
static int join_team(bt_worker_t *w, bt_start_t *s, int argc, char **argv,
                     int signal_fd)
{
    if (bt_cluster_open((uint32_t)w->program_role, &argc, &argv, &s->cluster) !=
        BT_OK) {
        return BT_EXIT_FAILURE;
    }
    if (bt_instance_ranks_open(w->config->tp, w->config->pp, argv,
                               w->config->rank_host, s->cluster,
                               &s->team) != BT_OK) {
        return BT_EXIT_USAGE;
    }
    settle(w, s);
    return (s->team.rank > 0) ? bt_rank_main_run(w, s) : run(w, s, signal_fd);
}

/* Runs --check and the like, which start nothing. @return false: none was asked
 * for */
static bool answers(bt_worker_t *w, unsigned program, int argc, char **argv,
                    int *code_p)
{
    if ((argc >= 2) && (strcmp(argv[1], "--check") == 0)) {
        *code_p = bt_worker_check(w, program, argc - 1, argv + 1);
        return true;
    }
    if ((argc >= 2) && (strcmp(argv[1], "--probe") == 0)) {
        *code_p = bt_worker_probe((argc > 2) ? argv[2] : "lo");
        return true;
    }
    return false;
}

int bt_worker_main(bt_role_t role,
                   const bt_worker_ops_t *const ops[BT_WORKER_HANDLERS],
                   int argc, char **argv)
{
    const unsigned program =
        (role == BT_ROLE_PREFILL) ? BT_PROG_PREFILL : BT_PROG_DECODE;
    bt_start_t *start = bt_calloc(1, sizeof(*start));
    bt_worker_t *w = worker_new(role, ops);
    int signal_fd = -1;
    int code = BT_EXIT_FAILURE;
    bt_status_t status;

    bt_log_init(bt_role_name(role), BT_LOG_LEVEL_INFO);
    if ((start == NULL) || (w == NULL)) {
        BT_LOG_ERROR("out of memory");
        goto end;
    }
    if (answers(w, program, argc, argv, &code)) {
        bt_free(start);
        bt_free(w);
        return code;
    }
    status =
        bt_config_load(program, false, argc, argv, &w->config, &start->store);
    if (status != BT_OK) {
        code = (status == BT_ERR_CANCELED) ? BT_EXIT_OK : BT_EXIT_USAGE;
        goto end;
    }
    if (!w->config->core_dumps) {
        bt_core_dump_forbid();
    }
    if (strcmp(w->config->backend, "cpu") == 0) { /* before other threads */
        bt_thread_lower_priority(w->config->worker_nice);
    }
    (void)bt_raise_open_fds(); /* a connection and more for each peer */
    signal_fd = open_signals();
    if (signal_fd < 0) {
        BT_LOG_ERROR("signals: %m");
        goto end;
    }
    if ((bt_log_start() == BT_OK) && (bt_sighup_open(w) == BT_OK)) {
        code = join_team(w, start, argc, argv, signal_fd);
    }

end:
    bt_log_flush();
    if ((code != BT_EXIT_OK) && (start != NULL) && (start->team.size > 1) &&
        bt_process_is_of_mpi()) {
        _exit(code); /* the other ranks may not be there to end together */
    }
    if (start != NULL) {
        bt_instance_ranks_close(&start->team);
        bt_start_draft_close(start);
        bt_gguf_close(start->gguf);
        bt_cluster_close(start->cluster);
        bt_config_destroy(start->store);
    }
    if (signal_fd >= 0) {
        close(signal_fd);
    }
    if (w != NULL) {
        bt_sighup_close(w);
    }
    bt_free(w);
    bt_free(start);
    return code;
}

/* The KV pool of a worker, in memory that KV transfers reach. */

#define LINK_WAIT_MS 250

static bt_kvt_path_t path_of(const char *transport)
{
    if (strcmp(transport, "shm") == 0) {
        return BT_KVT_PATH_SHM;
    }
    return (strcmp(transport, "network") == 0) ? BT_KVT_PATH_NETWORK
                                               : BT_KVT_PATH_AUTO;
}

/* A worker may be restarted while the network cable is still out.
 * @return false when it is to stop instead */
static bool wait_for_link(const char *interface, bool *said_p)
{
    const struct timespec pause = {.tv_nsec = LINK_WAIT_MS * 1000000L};
    sigset_t set;

    if (!*said_p) {
        *said_p = true;
        BT_LOG_WARN("interface %s has no link: waiting for it", interface);
    }
    bt_stop_signals(&set);
    return sigtimedwait(&set, NULL, &pause) < 0;
}

/* A back end with memory of its own has the pool there and provides the copies;
 * else the pool is kvt's shared memory, which both access. */
static bt_status_t choose_memory(bt_worker_t *w, bt_kvt_config_t *config)
{
    const bt_kernels_ops_t *ops = w->backend->ops;
    const char *what = "KV pool";
    bt_status_t status;

    if (ops->copier_open == NULL) {
        return BT_OK;
    }
    status = ops->buffer_alloc(
        w->backend, config->pool_bytes + BT_KVT_PROBE_BYTES, &w->kv_memory);
    if (status == BT_OK) {
        what = "copies to and from its KV pool";
        status = ops->copier_open(w->backend, 2 * BT_KVT_STAGE_SLOTS + 1,
                                  &w->copier);
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("back end %s: no %s: %s", w->backend->caps->name, what,
                     bt_status_str(status));
        return status;
    }
    /* For the network only, UCX may access the pool itself if it can; else
     * slots are used. A pool that devices of this host write into is staged. */
    config->memory = (config->path == BT_KVT_PATH_NETWORK)
                         ? BT_KVT_MEMORY_DEVICE
                         : BT_KVT_MEMORY_STAGED;
    config->device.pool = w->kv_memory;
    config->device.spare_bytes = BT_KVT_PROBE_BYTES;
    config->device.copier = &w->copier;
    config->device.n_slots = BT_KVT_STAGE_SLOTS;
    BT_LOG_INFO("KV blocks are in the memory of %s", w->backend->caps->name);
    return BT_OK;
}

/* Opens the KV transfers of this rank, and of the instance. */
static bt_status_t open_transfers(bt_worker_t *w, const bt_start_t *s)
{
    const bt_rank_transfer_config_t own = {.kvt = w->kvt,
                                           .groups = &w->groups,
                                           .own = &w->own_groups,
                                           .split = w->split,
                                           .rank = s->team.rank,
                                           .base = w->kv_base};
    bt_transfer_config_t all = {.links = s->team.links,
                                .n_others = s->team.size - 1,
                                .heartbeat_ms = w->config->heartbeat_ms,
                                .dead_ms = w->config->dead_ms,
                                .on_event = bt_worker_on_transfer,
                                .ctx = w};
    bt_status_t status = bt_rank_transfer_open(&own, &w->rank_transfers);

    all.own_rank = w->rank_transfers;
    if ((status == BT_OK) && (s->team.rank == 0)) {
        status = bt_transfer_open(&all, &w->transfers);
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("out of memory for hand-overs");
    }
    return status;
}

bt_status_t bt_start_pool_open(bt_worker_t *w, const bt_start_t *s)
{
    char interface[BT_INTERFACE_BYTES];
    bt_kvt_config_t config = {
        .transport = &bt_kvt_transport_ucx,
        .path = path_of(w->config->kv_transport),
        .net_device = interface,
        .pool_bytes = (size_t)w->n_blocks * w->block_bytes,
        .instance = w->instance,
        .keepalive_ms = w->config->heartbeat_ms,
        .dead_ms = w->config->dead_ms,
        .tells_starved = true,
        .quarantine_ms = w->config->quarantine_ms,
    };
    bool said = false;
    bt_status_t status = bt_interface_of(w->config->kv_net_devices,
                                         s->team.rank, interface, NULL);

    if (status == BT_OK) {
        status = bt_config_split_ports(w->config->kv_port_range,
                                       &config.first_port, &config.last_port);
    }
    if (status == BT_OK) {
        status = choose_memory(w, &config);
    }
    if (status != BT_OK) {
        return status;
    }
    bt_kvt_plane_key(s->key, config.key);
    do {
        status = bt_kvt_open(&config, &w->kvt);
        if ((status == BT_ERR_BUSY) && !wait_for_link(interface, &said)) {
            BT_LOG_INFO("stopped while waiting for a link");
            bt_key_wipe(config.key, sizeof(config.key));
            return BT_ERR_CANCELED;
        }
    } while (status == BT_ERR_BUSY);
    bt_key_wipe(config.key, sizeof(config.key));
    if (status != BT_OK) {
        BT_LOG_ERROR("KV transfer cannot start on interface %s: %s", interface,
                     bt_status_str(status));
        return status;
    }
    w->kv_base = bt_kvt_pool(w->kvt);
    status = open_transfers(w, s);
    if (status != BT_OK) {
        return status;
    }
    w->pool_is_cold = w->kv_memory == NULL;
    if (s->team.rank > 0) {
        return BT_OK; /* rank 0 decides on blocks */
    }
    status = bt_kv_pool_create(w->n_blocks, &w->pool);
    if ((status == BT_OK) && (strcmp(w->config->prefix_cache, "on") == 0)) {
        uint64_t seed;

        bt_key_random(&seed, sizeof(seed));
        status = bt_kv_prefix_create(w->pool, w->n_blocks, &w->groups, seed,
                                     &w->prefix);
    }
    if (status == BT_OK) {
        w->acquired = bt_calloc(w->n_blocks, sizeof(*w->acquired));
        status = (w->acquired == NULL) ? BT_ERR_NO_MEMORY : BT_OK;
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("cannot create the table of %u KV blocks: %s", w->n_blocks,
                     bt_status_str(status));
    }
    return status;
}

void bt_start_pool_close(bt_worker_t *w)
{
    bt_transfer_close(w->transfers);
    bt_kvt_close(w->kvt);
    bt_rank_transfer_close(w->rank_transfers);
    if (w->copier.user != NULL) {
        w->backend->ops->copier_close(&w->copier);
    }
    if (w->kv_memory != NULL) {
        w->backend->ops->buffer_free(w->backend, w->kv_memory);
    }
    bt_kv_prefix_destroy(w->prefix);
    bt_kv_pool_destroy(w->pool);
    bt_free(w->acquired);
}
