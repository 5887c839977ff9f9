/* SPDX-License-Identifier: Apache-2.0 */
/* baton-router: accepts clients' requests and distributes them over prefill and
 * decode workers. */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/status.h"
#include "common/base/thread.h"
#include "common/cluster/cluster.h"
#include "common/config/config.h"
#include "common/crypt/key.h"
#include "common/wire/wire.h"
#include "router/frontend/registry.h"
#include "router/http/door.h"
#include "router/loop.h"
#include "router/net/tls.h"
#include "router/observe/metrics.h"
#include "router/otlp/headers.h"
#include "router/tenants/tenants.h"

#define URL_BYTES            512
#define NAME                 "router"
#define DOC_BYTES            (1u << 20)
#define MMAP_THRESHOLD_BYTES (256 * 1024)
/* Default address for workers of one mpirun. */
#define WORLD_LISTEN "tcp://127.0.0.1:0"

typedef struct start {
    bt_config_store_t *store;
    const bt_config_t *config;
    bt_cluster_t *cluster;
    bt_loop_t *loop;
    uint8_t key[BT_KEY_BYTES];
    char url[URL_BYTES];
} start_t;

#define NOTES_AT_A_TIME ((size_t)900) /* limit of a log line */

/* Logs fields and reasons, "field (why), field (why)", on as many lines as
 * needed. */
static void log_notes(const char *model, const char *notes)
{
    static const char between[] = "), ";

    while (notes[0] != '\0') {
        size_t n = strlen(notes);

        if (n > NOTES_AT_A_TIME) {
            n = NOTES_AT_A_TIME;
            while ((n > 1) && (strncmp(notes + n - 1, between,
                                       sizeof(between) - 1) != 0)) {
                n--;
            }
        }
        BT_LOG_INFO("%s: without effect here: %.*s", model, (int)n, notes);
        notes += n;
        notes += strspn(notes, ", ");
    }
}

/* Logs once which settings of a model repository have no meaning here. */
static void log_repository(const bt_config_t *config)
{
    const bt_repository_t *repository = config->repository;

    if (config->gpu_metrics) {
        BT_LOG_INFO("--enable-gpu-metrics: there is no GPU here, so nv_gpu_* "
                    "has no series");
    }
    for (int i = 0; (repository != NULL) && (i < BT_REPO_N_MODELS); i++) {
        if (repository->has[i]) {
            BT_LOG_INFO("%s/%s/config.pbtxt was read", config->model_repository,
                        bt_repo_names[i]);
        }
        log_notes(bt_repo_names[i], repository->notes[i]);
    }
    if ((repository != NULL) && (repository->others[0] != '\0')) {
        BT_LOG_WARN(
            "%s: not served: Baton has only the models preprocessing, tensorrt_llm, postprocessing, ensemble and tensorrt_llm_bls, and runs no other back ends and no model.py: %s",
            config->model_repository, repository->others);
    }
}

/* Finds the cluster key, and the URL for the workers' announcements. Both may
 * be omitted where one mpirun starts router and workers. */
static bt_status_t find_key_and_url(start_t *s)
{
    const bool world = bt_cluster_world_size(s->cluster) > 1;
    const char *url = s->config->listen;
    bt_status_t status;

    if (s->config->cluster_key_file[0] != '\0') {
        status = bt_key_load(s->config->cluster_key_file,
                             s->config->munge_socket, s->key);
        if (status != BT_OK) {
            return status;
        }
    } else if (world) {
        bt_key_random(s->key, sizeof(s->key));
    } else {
        BT_LOG_ERROR("no cluster key: use --cluster-key-file FILE");
        return BT_ERR_INVALID_PARAM;
    }
    if ((url[0] == '\0') && world) {
        url = WORLD_LISTEN;
    }
    if (url[0] == '\0') {
        BT_LOG_ERROR("workers cannot find this router: use --listen URL");
        return BT_ERR_INVALID_PARAM;
    }
    return bt_loop_open_links(s->loop, url, s->key, sizeof(s->key), s->url,
                              sizeof(s->url));
}

static bt_status_t start(start_t *s)
{
    bt_status_t status;

    log_repository(s->config);
    if ((status = bt_loop_create(s->config, &s->loop)) != BT_OK ||
        (status = find_key_and_url(s)) != BT_OK) {
        return status;
    }
    if (bt_cluster_world_size(s->cluster) > 1) {
        status =
            bt_cluster_exchange(s->cluster, s->url, sizeof(s->url), s->key);
        if (status != BT_OK) {
            BT_LOG_ERROR(
                "cannot send the address of this router to the workers: %s",
                bt_status_str(status));
            return status;
        }
    }
    BT_LOG_INFO("workers join at %s", s->url);
    return BT_OK;
}

/* Prints the table of docs/METRICS.md. */
static int print_metrics_doc(void)
{
    bt_strbuf_t out;

    bt_strbuf_init(&out, DOC_BYTES);
    bt_router_metrics_print_doc(&out);
    return bt_strbuf_print(&out) ? 0 : 1;
}

/* A launcher has checked this for all its processes. */
static bt_status_t check_threads(const bt_config_t *config)
{
    if (config->launcher[0] != '\0') {
        return BT_OK;
    }
    return bt_program_threads_check(bt_router_threads(
        bt_online_cpus(), bt_parse_threads(config, bt_limits_n_cpus())));
}

/* ---- the check of a start ---- */

static bt_status_t check_key(const bt_config_t *config)
{
    return bt_key_check(config->cluster_key_file, config->munge_socket);
}

static bt_status_t check_models(const bt_config_t *config)
{
    bt_status_t first = BT_OK;

    for (uint32_t i = 0; i < config->n_models; i++) {
        char name[BT_CONFIG_MODEL_NAME_BYTES];
        const bt_served_options_t options =
            bt_served_options_of(config, name, config->models[i].path);
        bt_served_t *served = NULL;
        bt_status_t status;

        bt_config_model_name(&config->models[i],
                             (i == 0) ? config->served_model_name : "", name);
        status = bt_served_read(&options, &served); /* logged */
        bt_served_free(served);
        first = (first == BT_OK) ? status : first;
    }
    return first;
}

static bt_status_t check_tls(const bt_config_t *config)
{
    const bt_tls_files_t files = {.cert = config->tls_cert,
                                  .key = config->tls_key,
                                  .client_ca = config->tls_client_ca};
    char why[BT_TLS_WHY_BYTES];
    bt_tls_t *tls = NULL;
    bt_status_t status;

    if ((config->tls_cert[0] == '\0') || (config->tls_key[0] == '\0')) {
        return BT_OK; /* the missing one was reported */
    }
    status = bt_tls_create(&files, &tls, why);
    if (status != BT_OK) {
        BT_LOG_ERROR("TLS %s", why);
        return status;
    }
    if (bt_tls_has_expired(tls)) {
        BT_LOG_WARN("TLS certificate %s has expired", config->tls_cert);
    }
    bt_tls_destroy(tls);
    return BT_OK;
}

static bt_status_t check_tenants(const bt_config_t *config)
{
    bt_keys_file_t file = {0};
    char warning[BT_KEYS_WHY_BYTES] = "";
    char why[BT_KEYS_WHY_BYTES];
    bt_status_t status;

    if (config->api_keys[0] == '\0') {
        return BT_OK;
    }
    status = bt_keys_file_read(config->api_keys, &file, warning, why);
    if (status != BT_OK) {
        BT_LOG_ERROR("--api-keys %s: %s", config->api_keys, why);
    } else if (warning[0] != '\0') {
        BT_LOG_WARN("--api-keys %s: %s", config->api_keys, warning);
    }
    bt_keys_file_fini(&file);
    return status;
}

static bt_status_t check_store(const bt_config_t *config)
{
    bt_store_config_t store = bt_frontend_store_config(config);
    bt_status_t status =
        (config->store[0] != '\0') ? bt_store_check(&store) : BT_OK;

    if ((status == BT_OK) && (config->response_store_dir[0] != '\0')) {
        store.path = config->response_store_dir;
        status = bt_store_check(&store);
    }
    return status;
}

static bt_status_t check_otlp(const bt_config_t *config)
{
    bt_status_t status;
    bt_strbuf_t headers;

    bt_strbuf_init(&headers, BT_OTLP_HEADERS_TEXT_BYTES);
    status = bt_otlp_headers_load(config->otlp_headers_file, "", &headers);
    bt_otlp_headers_fini(&headers);
    return status;
}

/* Checks that a log file can be appended to or created. */
static bt_status_t check_log(const char *option, const char *path)
{
    const size_t n = strlen(path);
    char folder[PATH_MAX];
    struct stat info;
    bool is_fine;

    if ((n == 0) || (strcmp(path, "-") == 0)) {
        return BT_OK;
    }
    if (n >= sizeof(folder)) {
        BT_LOG_ERROR("--%s cannot be written: its name has %zu bytes", option,
                     n);
        return BT_ERR_IO;
    }
    memcpy(folder, path, n + 1);
    if (stat(path, &info) == 0) {
        is_fine = !S_ISDIR(info.st_mode) && (access(path, W_OK) == 0);
        errno = S_ISDIR(info.st_mode) ? EISDIR : errno;
    } else {
        is_fine =
            (errno == ENOENT) && (access(dirname(folder), W_OK | X_OK) == 0);
    }
    if (is_fine) {
        return BT_OK;
    }
    BT_LOG_ERROR("--%s %s cannot be written: %m", option, path);
    return BT_ERR_IO;
}

static bt_status_t check_logs(const bt_config_t *config)
{
    const bt_status_t status = check_log("trace-file", config->trace_file);
    const bt_status_t next = check_log("access-log", config->access_log);

    return (status == BT_OK) ? next : status;
}

/* Checks whether a router could start, without starting it: `--check` as the
 * first argument, before the options. All problems are logged on standard
 * error, as JSON. No port is opened, no file written. @return the exit code
 * that a start would have ended with, or 0 */
static int check_all(int argc, char **argv)
{
    static bt_status_t (*const checks[])(const bt_config_t *config) = {
        check_key,   check_models, check_tls,           check_tenants,
        check_store, check_otlp,   bt_door_check_names, check_logs};
    const bt_config_t *config = NULL;
    bt_config_store_t *store = NULL;
    bt_status_t first, status;

    first = bt_config_load(BT_PROG_ROUTER, true, argc, argv, &config, &store);
    (void)bt_log_format("json");
    if (first != BT_OK) {
        return (first == BT_ERR_CANCELED) ? BT_EXIT_OK : BT_EXIT_USAGE;
    }
    first = bt_config_log_findings(store);
    for (size_t i = 0; i < BT_ARRAY_LEN(checks); i++) {
        status = checks[i](config);
        first = (first == BT_OK) ? status : first;
    }
    bt_config_destroy(store);
    return (first == BT_OK) ? BT_EXIT_OK : bt_exit_of_start(first);
}

int main(int argc, char **argv)
{
    bt_log_level_t level = BT_LOG_LEVEL_INFO;
    const char *name = NAME;
    start_t s = {0};
    int code = BT_EXIT_FAILURE;
    bt_status_t status;

    if ((argc == 2) && (strcmp(argv[1], "--print-metrics-doc") == 0)) {
        return print_metrics_doc();
    }
    bt_log_init(NAME, level);
    if ((argc >= 2) && (strcmp(argv[1], "--check") == 0)) {
        return check_all(argc - 1, argv + 1);
    }
    bt_thread_works_briefly();
    /* Request bodies are separate mappings, which grow without being copied and
     * return to the system when they are freed. By default the first large one
     * that is freed raises the threshold, and later ones are copied: 2 ms for 8
     * MiB. */
    (void)mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES);
    status =
        bt_config_load(BT_PROG_ROUTER, false, argc, argv, &s.config, &s.store);
    if (status != BT_OK) {
        return (status == BT_ERR_CANCELED) ? BT_EXIT_OK : BT_EXIT_USAGE;
    }
    if (s.config->name[0] != '\0') {
        name = s.config->name;
    }
    if (s.config->workers_pinned) {
        bt_thread_works_in_bursts();
    }
    if (bt_log_level_parse(s.config->log_level, &level) == 0) {
        bt_log_init(name, level);
    }
    (void)bt_log_format(
        s.config->log_format); /* validated by the options' table */
    if (!s.config->core_dumps) {
        bt_core_dump_forbid();
    }
    bt_stop_block(); /* before any thread */
    if (bt_log_start() != BT_OK) {
        goto end;
    }
    status = check_threads(s.config);
    if (status != BT_OK) {
        code = bt_exit_of_start(status);
        goto end;
    }
    status = bt_cluster_open(BT_ROLE_ROUTER, &argc, &argv, &s.cluster);
    if (status != BT_OK) {
        goto end;
    }
    status = start(&s);
    bt_key_wipe(s.key,
                sizeof(s.key)); /* the links have copied what they need */
    if (status == BT_OK) {
        code = bt_loop_run(s.loop);
    } else {
        code = bt_exit_of_start(status);
    }
    bt_loop_destroy(s.loop);
    bt_cluster_close(s.cluster);
    BT_LOG_INFO("ended with %d", code);

end:
    bt_log_flush();
    /* The log borrows the name from the options. */
    bt_log_init(NAME, level);
    bt_config_destroy(s.store);
    return code;
}
