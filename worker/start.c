/* SPDX-License-Identifier: Apache-2.0 */
/* Start-up of a worker, in the order in which things can be refused cheaply:
 * options, model file, memory, back end, weights, pool, links. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/ready_fd.h"
#include "common/base/thread.h"
#include "common/base/topology.h"
#include "common/cluster/cluster.h"
#include "common/kv/kv_layout.h"
#include "common/rpc/key.h"
#include "inference/packed/packed_store.h"
#include "worker/cores.h"
#include "worker/job.h"
#include "worker/loop.h"
#include "worker/memory.h"
#include "worker/worker.h"

#define WHY_BYTES       512
#define URL_BYTES       4096
#define RPC_QUEUE_BYTES (64u << 20)
#define LINK_WAIT_MS    250

static void stop_signals(sigset_t *set_p)
{
    sigemptyset(set_p);
    sigaddset(set_p, SIGTERM);
    sigaddset(set_p, SIGINT);
}

/* What start-up needs besides the worker itself. */
typedef struct bt_start {
    bt_config_store_t *store;
    bt_cluster_t *cluster;
    bt_gguf_t *gguf;
    bt_hparams_t hp;
    bt_kv_shape_t shape;
    bt_kv_type_t kv_type;
    uint32_t cores[BT_MAX_CORES];
    uint32_t n_cores;
    uint32_t n_threads;
    uint8_t key[BT_KEY_BYTES];
    char url[URL_BYTES];
    char weight_dir[PATH_MAX]; /**< "": none */
} bt_start_t;

static bt_status_t open_model_file(bt_worker_t *w, bt_start_t *s)
{
    char why[WHY_BYTES] = "";
    bt_status_t status;

    if (w->config->model[0] == '\0') {
        BT_LOG_ERROR("no model given: use --model PATH");
        return BT_ERR_INVALID_PARAM;
    }
    status = bt_gguf_open(w->config->model, why, sizeof(why), &s->gguf);
    if (status == BT_OK) {
        status = bt_hparams_read(s->gguf, why, sizeof(why), &s->hp);
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("model %s: %s", w->config->model, why);
        return status;
    }
    w->context_tokens = s->hp.context_tokens;
    if (w->config->context_tokens != 0) {
        if (w->config->context_tokens > s->hp.context_tokens) {
            BT_LOG_ERROR("context-tokens %u exceeds the model's %u",
                         w->config->context_tokens, s->hp.context_tokens);
            return BT_ERR_INVALID_PARAM;
        }
        w->context_tokens = w->config->context_tokens;
    }
    return BT_OK;
}

static bt_status_t check_options(bt_worker_t *w, bt_start_t *s)
{
    const bt_config_t *config = w->config;
    const bt_kv_type_info_t *info;
    bt_status_t status;

    if (bt_kv_type_parse(config->kv_type, &s->kv_type) != BT_OK) {
        BT_LOG_ERROR("kv-type %s is unknown", config->kv_type);
        return BT_ERR_INVALID_PARAM;
    }
    if (config->chunk_tokens < config->tokens_per_block) {
        BT_LOG_ERROR("chunk-tokens %u is below tokens-per-block %u",
                     config->chunk_tokens, config->tokens_per_block);
        return BT_ERR_INVALID_PARAM;
    }
    w->tokens_per_block = config->tokens_per_block;
    w->max_seqs = config->max_batch;
    info = bt_kv_type_info(s->kv_type);
    s->shape = (bt_kv_shape_t){
        .n_layers = s->hp.n_layers,
        .n_kv_heads = s->hp.n_kv_heads,
        .tokens_per_block = config->tokens_per_block,
        .head_dim = s->hp.head_dim,
        .elem_bytes = info->elem_bytes,
        .scale_bytes = info->scale_bytes,
    };
    w->n_layers = s->shape.n_layers;
    status = bt_kv_block_bytes(&s->shape, &w->block_bytes);
    if (status == BT_OK) {
        w->layer_bytes = bt_kv_layer_bytes(&s->shape);
    }
    return status;
}

/* Where packed weights are kept. Nowhere is no failure. */
static bt_status_t find_weight_dir(const bt_worker_t *w, bt_start_t *s)
{
    const bt_status_t status = bt_packed_dir(
        w->config->weight_cache, s->weight_dir, sizeof(s->weight_dir));

    if (status == BT_ERR_NOT_FOUND) {
        BT_LOG_WARN("packed weights are not kept: neither XDG_CACHE_HOME nor "
                    "HOME is set; use --weight-cache DIR");
        s->weight_dir[0] = '\0';
        return BT_OK;
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("weight-cache: the path is too long");
    }
    return status;
}

static bt_model_config_t model_config(const bt_worker_t *w, const bt_start_t *s)
{
    const bt_model_config_t config = {
        .max_rows = bt_engine_max_rows(w->max_seqs, w->config->chunk_tokens,
                                       w->tokens_per_block),
        .max_logit_rows = w->max_seqs,
        .context_tokens = w->context_tokens,
        .weight_dir = s->weight_dir,
        .n_threads = s->n_threads,
    };

    return config;
}

/* Decide the size of the pool and refuse, before taking any memory, what this
 * machine cannot hold. */
static bt_status_t plan_memory(bt_worker_t *w, const bt_start_t *s)
{
    const bt_model_config_t config = model_config(w, s);
    const uint64_t available = bt_memory_available();
    uint64_t pool = w->config->kv_memory_bytes;
    bt_status_t status;

    status = bt_model_memory_bytes(s->gguf, &config, &w->model_bytes);
    if (status != BT_OK) {
        BT_LOG_ERROR("model %s: cannot tell its memory: %s", w->config->model,
                     bt_status_str(status));
        return status;
    }
    if (pool == 0) {
        pool = bt_memory_default_pool(available, w->model_bytes);
    }
    w->n_blocks =
        (uint32_t)(pool / w->block_bytes > 1000000 ? 1000000
                                                   : pool / w->block_bytes);
    if (w->n_blocks < 2) {
        BT_LOG_ERROR("kv-memory of %llu bytes holds %u KV blocks of %zu bytes; "
                     "at least 2 are needed",
                     (unsigned long long)pool, w->n_blocks, w->block_bytes);
        return BT_ERR_INVALID_PARAM;
    }
    if (w->model_bytes + pool > available) {
        BT_LOG_ERROR(
            "not enough memory: the model takes %zu MiB and the KV "
            "pool %llu MiB, %llu MiB are available, %llu MiB are "
            "missing",
            w->model_bytes >> 20, (unsigned long long)(pool >> 20),
            (unsigned long long)(available >> 20),
            (unsigned long long)(((w->model_bytes + pool - available) >> 20) +
                                 1));
        return BT_ERR_NO_MEMORY;
    }
    return BT_OK;
}

static bt_status_t open_model(bt_worker_t *w, const bt_start_t *s)
{
    const bt_model_config_t config = model_config(w, s);
    const bt_backend_config_t be_config = {
        .n_threads = s->n_threads,
        .cores = (s->n_cores > 0) ? s->cores : NULL,
        .max_rows = config.max_rows,
        .max_dim = bt_worker_max_dim(&s->hp),
    };
    char why[WHY_BYTES] = "";
    bt_status_t status;

    status = bt_backend_open(w->config->backend, &be_config, &w->backend);
    if (status != BT_OK) {
        BT_LOG_ERROR("back end %s: %s", w->config->backend,
                     bt_status_str(status));
        return status;
    }
    if ((w->backend->caps->kv_types >> s->kv_type & 1u) == 0) {
        BT_LOG_ERROR("back end %s does not have kv-type %s",
                     w->backend->caps->name, w->config->kv_type);
        return BT_ERR_UNSUPPORTED;
    }
    status = bt_model_load(s->gguf, w->backend, &config, why, sizeof(why),
                           &w->model);
    if (status != BT_OK) {
        BT_LOG_ERROR("model %s: %s", w->config->model, why);
    }
    return status;
}

static bt_kvt_path_t path_of(const char *transport)
{
    if (strcmp(transport, "shm") == 0) {
        return BT_KVT_PATH_SHM;
    }
    return (strcmp(transport, "network") == 0) ? BT_KVT_PATH_NETWORK
                                               : BT_KVT_PATH_AUTO;
}

/* A worker may be started again while the cable that killed it is still out.
 * @return false when it is to stop instead */
static bool wait_for_link(const bt_worker_t *w, bool *said_p)
{
    const struct timespec pause = {.tv_nsec = LINK_WAIT_MS * 1000000L};
    sigset_t set;

    if (!*said_p) {
        *said_p = true;
        BT_LOG_WARN("interface %s has no link: waiting for it",
                    w->config->net_device);
    }
    stop_signals(&set);
    return sigtimedwait(&set, NULL, &pause) < 0;
}

static bt_status_t open_pool(bt_worker_t *w)
{
    const bt_kvt_config_t config = {
        .transport = "ucx",
        .path = path_of(w->config->transport),
        .net_device = w->config->net_device,
        .pool_bytes = (size_t)w->n_blocks * w->block_bytes,
        .instance = w->instance,
        .keepalive_ms = w->config->heartbeat_ms,
        .dead_ms = w->config->dead_ms,
        .quarantine_ms = w->config->quarantine_ms,
    };
    bool said = false;
    bt_status_t status;

    do {
        status = bt_kvt_open(&config, &w->kvt);
        if ((status == BT_ERR_BUSY) && !wait_for_link(w, &said)) {
            BT_LOG_INFO("told to stop while waiting for a link");
            return BT_ERR_CANCELED;
        }
    } while (status == BT_ERR_BUSY);
    if (status != BT_OK) {
        BT_LOG_ERROR("KV transfer cannot start on interface %s: %s",
                     w->config->net_device, bt_status_str(status));
        return status;
    }
    w->kv_base = bt_kvt_pool(w->kvt);
    w->pool_is_cold = true;
    status = bt_kv_pool_create(w->n_blocks, &w->pool);
    if ((status == BT_OK) && (strcmp(w->config->prefix_cache, "on") == 0)) {
        uint64_t seed;

        bt_key_random(&seed, sizeof(seed));
        status = bt_kv_prefix_create(w->pool, w->n_blocks, w->tokens_per_block,
                                     seed, &w->prefix);
    }
    return status;
}

static bt_status_t start_engine(bt_worker_t *w, const bt_start_t *s)
{
    const bt_engine_config_t config = {
        .model = w->model,
        .kv =
            {
                .base = w->kv_base,
                .block_bytes = w->block_bytes,
                .type = s->kv_type,
                .n_layers = s->hp.n_layers,
                .n_kv_heads = s->hp.n_kv_heads,
                .head_dim = s->hp.head_dim,
                .tokens_per_block = w->tokens_per_block,
            },
        .max_seqs = w->max_seqs,
        .token_budget = w->config->chunk_tokens,
    };

    return bt_engine_create(&config, &w->engine);
}

/* The router's address and the cluster key: from the launcher's MPI world, or
 * from the options. */
static bt_status_t find_router(bt_worker_t *w, bt_start_t *s)
{
    const char *join = w->config->join;
    bt_status_t status;

    if (w->config->key_file[0] != '\0') {
        status = bt_key_read(w->config->key_file, s->key);
        if (status != BT_OK) {
            BT_LOG_ERROR("cluster key %s: %s", w->config->key_file,
                         bt_status_str(status));
            return status;
        }
    }
    if (bt_cluster_has_router(s->cluster)) {
        status =
            bt_cluster_exchange(s->cluster, s->url, sizeof(s->url), s->key);
        if (status != BT_OK) {
            BT_LOG_ERROR("the router's address did not come: %s",
                         bt_status_str(status));
        }
        return status;
    }
    if ((join[0] == '\0') || (w->config->key_file[0] == '\0')) {
        BT_LOG_ERROR("no router given: use --join URL and --key-file FILE, or "
                     "start router and workers by one mpirun");
        return BT_ERR_INVALID_PARAM;
    }
    if ((size_t)snprintf(s->url, sizeof(s->url), "%s", join) >=
        sizeof(s->url)) {
        return BT_ERR_INVALID_PARAM;
    }
    return BT_OK;
}

/* Under which name it was told to serve; "" = nobody said one. */
static const char *model_name(const bt_config_t *config)
{
    return (config->models[0].name[0] != '\0') ? config->models[0].name
                                               : config->model_name;
}

static bt_status_t encode_hello(bt_worker_t *w, const bt_start_t *s,
                                bt_strbuf_t *out)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    bt_msg_t msg = {.type = BT_MSG_HELLO};
    bt_msg_hello_t *hello = &msg.u.hello;
    size_t blob_bytes = 0;
    bt_status_t status;

    status = bt_kvt_export(w->kvt, blob, sizeof(blob), &blob_bytes);
    if (status != BT_OK) {
        return status;
    }
    hello->protocol = BT_WIRE_PROTOCOL;
    hello->role = w->ops->role;
    hello->instance = w->instance;
    memcpy(hello->name, w->name, sizeof(hello->name));
    hello->model = bt_gguf_identity(s->gguf);
    strncpy(hello->profile, w->backend->caps->profile,
            sizeof(hello->profile) - 1);
    hello->kv_type = s->kv_type;
    hello->tokens_per_block = w->tokens_per_block;
    hello->layout = bt_kv_layout_identity(&s->shape, s->kv_type);
    hello->context_tokens = w->context_tokens;
    hello->max_batch = w->max_seqs;
    hello->n_blocks = w->n_blocks;
    hello->flags = w->config->local_prefill ? w->ops->hello_flags : 0;
    hello->kvt = blob;
    hello->kvt_bytes = (uint32_t)blob_bytes;
    hello->protocol_min = BT_WIRE_PROTOCOL_MIN;
    strncpy(hello->model_name, model_name(w->config),
            sizeof(hello->model_name) - 1);
    strncpy(hello->version_text, bt_config_version(),
            sizeof(hello->version_text) - 1);
    bt_wire_encode(&msg, out);
    return bt_strbuf_status(out);
}

static bt_status_t join_routers(bt_worker_t *w, bt_start_t *s)
{
    bt_status_t status = BT_OK;
    char *save = NULL;

    for (char *url = strtok_r(s->url, ",", &save);
         (url != NULL) && (status == BT_OK); url = strtok_r(NULL, ",", &save)) {
        status = bt_rpc_join(w->rpc, url);
        if (status != BT_OK) {
            BT_LOG_ERROR("cannot join a router at %s: %s", url,
                         bt_status_str(status));
        }
    }
    return status;
}

static bt_status_t open_links(bt_worker_t *w, bt_start_t *s)
{
    bt_rpc_config_t config = {
        .key = s->key,
        .key_bytes = sizeof(s->key),
        .listen_dir = w->config->run_dir,
        .listen_host = w->config->listen_host,
        .heartbeat_ms = w->config->heartbeat_ms,
        .suspect_ms = w->config->suspect_ms,
        .dead_ms = w->config->dead_ms,
        .max_queue_bytes = RPC_QUEUE_BYTES,
    };
    bt_strbuf_t hello;
    bt_status_t status;

    bt_strbuf_init(&hello, BT_RPC_MAX_PAYLOAD);
    status = encode_hello(w, s, &hello);
    if (status == BT_OK) {
        config.hello = hello.data;
        config.hello_bytes = hello.len;
        status = bt_rpc_open(&config, &w->rpc);
    }
    bt_strbuf_fini(&hello);
    if (status == BT_OK) {
        status = join_routers(w, s);
    }
    return status;
}

static void say_ready(void)
{
    int fd = bt_ready_fd_open();

    bt_ready_fd_say(&fd, "ready\n");
    bt_ready_fd_close(&fd);
}

static void name_worker(bt_worker_t *w, const bt_start_t *s)
{
    if (w->config->name[0] != '\0') {
        snprintf(w->name, sizeof(w->name), "%s", w->config->name);
    } else {
        snprintf(w->name, sizeof(w->name), "%s-%u",
                 (w->ops->role == BT_ROLE_PREFILL) ? "prefill" : "decode",
                 bt_cluster_role_rank(s->cluster));
    }
    bt_key_random(&w->instance, sizeof(w->instance));
    bt_log_init(w->name, BT_LOG_LEVEL_INFO);
}

/* @retval BT_ERR_CANCELED  told to stop meanwhile, which is no failure */
static bt_status_t open_all(bt_worker_t *w, bt_start_t *s)
{
    bt_status_t status = BT_OK;
    bt_topology_t topology;

    if ((status = open_model_file(w, s)) != BT_OK ||
        (status = check_options(w, s)) != BT_OK ||
        (status = find_weight_dir(w, s)) != BT_OK ||
        (status = plan_memory(w, s)) != BT_OK ||
        (status = bt_cores_parse(w->config->cores, s->cores, &s->n_cores)) !=
            BT_OK) {
        return status;
    }
    if (s->n_cores > 0) { /* before any memory of size is touched */
        bt_topology_read(BT_TOPOLOGY_DIR, &topology);
        bt_topology_stay_near(&topology, s->cores, s->n_cores);
    }
    s->n_threads = bt_cores_threads(w->config->threads, s->n_cores);
    if ((status = open_model(w, s)) != BT_OK ||
        (status = open_pool(w)) != BT_OK ||
        (status = bt_wire_decoder_create(&w->decoder)) != BT_OK ||
        (status = find_router(w, s)) != BT_OK ||
        (status = start_engine(w, s)) != BT_OK ||
        (status = open_links(w, s)) != BT_OK) {
        return status;
    }
    BT_LOG_INFO(
        "ready: %s, %s, %u threads, %u %s KV blocks of %u tokens (%zu MiB)",
        w->config->model, w->backend->caps->name, s->n_threads, w->n_blocks,
        w->config->kv_type, w->tokens_per_block,
        ((size_t)w->n_blocks * w->block_bytes) >> 20);
    return w->ops->open(w);
}

static void close_all(bt_worker_t *w)
{
    bt_engine_destroy(w->engine);
    bt_jobs_end_all(w);
    w->ops->close(w);
    for (uint32_t i = 0; i < w->n_links; i++) {
        bt_free(w->links[i]->tokens);
        bt_free(w->links[i]);
    }
    w->n_links = 0;
    bt_rpc_close(w->rpc);
    bt_kvt_close(w->kvt);
    bt_kv_prefix_destroy(w->prefix);
    bt_kv_pool_destroy(w->pool);
    bt_model_destroy(w->model);
    bt_backend_close(w->backend);
    bt_wire_decoder_destroy(w->decoder);
    bt_strbuf_fini(&w->out);
}

/* Signals come by descriptor; blocked before any thread exists, so that all
 * threads inherit it. */
static int open_signals(void)
{
    sigset_t set;

    signal(SIGPIPE, SIG_IGN);
    stop_signals(&set);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0) {
        return -1;
    }
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

static bt_worker_t *worker_new(const bt_worker_ops_t *ops)
{
    bt_worker_t *w = bt_calloc(1, sizeof(*w));

    if (w == NULL) {
        return NULL;
    }
    w->ops = ops;
    w->start_unix_s = (uint64_t)time(NULL);
    bt_jobs_init(w);
    bt_strbuf_init(&w->out, BT_RPC_MAX_FRAME);
    return w;
}

int bt_worker_main(const bt_worker_ops_t *ops, int argc, char **argv)
{
    bt_start_t *start = bt_calloc(1, sizeof(*start));
    bt_worker_t *w = worker_new(ops);
    bt_log_level_t level = BT_LOG_LEVEL_INFO;
    int signal_fd = -1;
    int code = 1;
    bt_status_t status;

    bt_log_init(ops->program_name, BT_LOG_LEVEL_INFO);
    if ((start == NULL) || (w == NULL)) {
        BT_LOG_ERROR("out of memory");
        goto end;
    }
    status =
        bt_config_load(ops->program, argc, argv, &w->config, &start->store);
    if (status != BT_OK) {
        code = (status == BT_ERR_CANCELED) ? 0 : 2;
        goto end;
    }
    signal_fd = open_signals();
    if (signal_fd < 0) {
        BT_LOG_ERROR("signals: %m");
        goto end;
    }
    if (bt_cluster_open((uint32_t)ops->role, &argc, &argv, &start->cluster) !=
        BT_OK) {
        goto end;
    }
    name_worker(w, start);
    bt_thread_works_briefly(); /* the control thread; compute threads say so */
    if (bt_log_level_parse(w->config->log_level, &level) == 0) {
        bt_log_init(w->name, level);
    }
    status = open_all(w, start);
    if (status == BT_OK) {
        bt_gguf_close(start->gguf); /* the weights are packed */
        start->gguf = NULL;
        say_ready();
        code = bt_worker_loop(w, signal_fd);
    } else if (status == BT_ERR_CANCELED) {
        code = 0;
    }
    close_all(w);

end:
    if (start != NULL) {
        bt_gguf_close(start->gguf);
        bt_cluster_close(start->cluster);
        bt_config_destroy(start->store);
    }
    if (signal_fd >= 0) {
        close(signal_fd);
    }
    bt_free(w);
    bt_free(start);
    return code;
}
