/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of the options, the first or all; the effective values with their
 * sources; constraints between several options. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/status.h"
#include "common/config/config_options.h"

#define TEXT_BYTES       1024
#define VALUE_BYTES      16384
#define WHERE_BYTES      8192
#define MAX_HEADER_BYTES 64

/* ---- errors and notes ---- */

static void keep(bt_config_findings_t *findings, bool is_error,
                 const char *text)
{
    bt_config_finding_t *const list = bt_realloc_array(
        findings->list, (size_t)findings->n + 1, sizeof(*list));

    if (list == NULL) {
        findings->are_cut = true;
        return;
    }
    findings->list = list;
    list[findings->n] =
        (bt_config_finding_t){.is_error = is_error, .text = bt_strdup(text)};
    if (list[findings->n].text == NULL) {
        findings->are_cut = true;
        return;
    }
    findings->n++;
}

/* Kept, if all are collected; else printed. */
__attribute__((format(printf, 3, 0))) static void
tell(const bt_config_store_t *store, bool is_error, const char *fmt,
     va_list args)
{
    char text[TEXT_BYTES];

    vsnprintf(text, sizeof(text), fmt, args);
    if (store->findings != NULL) {
        keep(store->findings, is_error, text);
    } else {
        fprintf(stderr, "%s: %s%s\n", bt_config_program_name(store->program),
                is_error ? "" : "note: ", text);
    }
}

bt_status_t bt_config_complain(const bt_config_store_t *store, const char *fmt,
                               ...)
{
    va_list args;

    va_start(args, fmt);
    tell(store, true, fmt, args);
    va_end(args);
    return BT_ERR_INVALID_PARAM;
}

void bt_config_note(const bt_config_store_t *store, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    tell(store, false, fmt, args);
    va_end(args);
}

bt_status_t bt_config_log_findings(const bt_config_store_t *store)
{
    const bt_config_finding_t *finding;
    bt_status_t status = BT_OK;

    for (uint32_t i = 0; (finding = bt_config_finding(store, i)) != NULL; i++) {
        if (finding->is_error) {
            BT_LOG_ERROR("%s", finding->text);
            status = BT_ERR_INVALID_PARAM;
        }
    }
    return status;
}

bt_status_t bt_config_go_on(const bt_config_store_t *store, bt_status_t status)
{
    if ((store->findings == NULL) || (status != BT_ERR_INVALID_PARAM)) {
        return status;
    }
    return store->findings->are_cut ? BT_ERR_NO_MEMORY : BT_OK;
}

void bt_config_findings_destroy(bt_config_findings_t *findings)
{
    if (findings != NULL) {
        for (uint32_t i = 0; i < findings->n; i++) {
            bt_free(findings->list[i].text);
        }
        bt_free(findings->list);
        bt_free(findings);
    }
}

const bt_config_finding_t *bt_config_finding(const bt_config_store_t *store,
                                             uint32_t i)
{
    return ((store->findings != NULL) && (i < store->findings->n))
               ? &store->findings->list[i]
               : NULL;
}

/* ---- effective values ---- */

static const char *source_name(bt_config_source_t source)
{
    switch (source) {
    case BT_CONFIG_DEFAULT:
        break;
    case BT_CONFIG_REPOSITORY:
        return "model repository";
    case BT_CONFIG_FILE:
        return "file";
    case BT_CONFIG_ENVIRONMENT:
        return "environment";
    case BT_CONFIG_COMMAND_LINE:
        return "command line";
    }
    return "default";
}

/* Omits the key's name behind a position in a file: it is printed already. */
static void print_where(const char *where, bt_strbuf_t *out)
{
    const char *last = NULL;

    if (where == NULL) {
        return;
    }
    for (const char *at = where; (at = strstr(at, ": ")) != NULL; at += 2) {
        last = at;
    }
    if ((last != NULL) &&
        (bt_config_option_find(last + 2, strlen(last + 2)) != NULL)) {
        bt_strbuf_append(out, where, (size_t)(last - where));
    } else {
        bt_strbuf_puts(out, where);
    }
}

/* Hides a name and a password that a user put into a URL from others who may
 * see the options. */
static void hide_user(bt_strbuf_t *value)
{
    char *const scheme = (value->len > 0) ? strstr(value->data, "://") : NULL;
    char *at;
    size_t n;

    if (scheme == NULL) {
        return;
    }
    at = memchr(scheme + 3, '@', strcspn(scheme + 3, "/?#"));
    if (at == NULL) {
        return;
    }
    n = (size_t)(at - (scheme + 3));
    memset(scheme + 3, '*', n);
}

bool bt_config_next_effect(const bt_config_store_t *store, uint32_t *at_io,
                           bt_config_effect_t *effect_p)
{
    const bt_config_t *const c = &store->config;
    const bt_option_t *option = &bt_config_options[0]; /* --model */
    const char *where = NULL;
    uint32_t i = *at_io;

    BT_ASSERT(option->type == BT_OPTION_MODELS);
    if (i >= c->n_models) { /* behind the models */
        i = i - c->n_models + ((c->n_models > 0) ? 1 : 0);
        while ((i < BT_CONFIG_N_OPTIONS) &&
               ((bt_config_options[i].programs & store->program) == 0)) {
            i++;
            ++*at_io;
        }
        if (i >= BT_CONFIG_N_OPTIONS) {
            return false;
        }
        option = &bt_config_options[i];
    }
    ++*at_io;
    effect_p->name = option->name;
    effect_p->source = source_name(store->sources[option - bt_config_options]);
    bt_strbuf_init(&effect_p->value, VALUE_BYTES);
    bt_strbuf_init(&effect_p->where, WHERE_BYTES);
    if ((option->type == BT_OPTION_MODELS) && (c->n_models > 0)) {
        bt_config_print_model(c->models[i].name, c->models[i].path,
                              &effect_p->value);
        where = store->model_wheres[i];
    } else {
        bt_config_option_print(c, option, &effect_p->value);
        hide_user(&effect_p->value);
        where = store->wheres[option - bt_config_options];
    }
    print_where(where, &effect_p->where);
    return true;
}

/* Constraints between options that no single row of the table can express. */

static bt_status_t check_times(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;

    if ((c->suspect_ms > c->heartbeat_ms) && (c->dead_ms > c->suspect_ms)) {
        return BT_OK;
    }
    return bt_config_complain(
        store,
        "--heartbeat-ms %u, --suspect-ms %u and --dead-ms %u "
        "must rise in this order",
        c->heartbeat_ms, c->suspect_ms, c->dead_ms);
}

static bt_status_t check_block(const bt_config_store_t *store)
{
    const uint32_t tokens = store->config.tokens_per_block;

    if (tokens % 2 == 0) { /* values lie by pairs of tokens */
        return BT_OK;
    }
    return bt_config_complain(
        store, "--tokens-per-block %u must be an even number", tokens);
}

static bt_status_t check_chunk(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;

    if ((c->chunk_tokens == 0) || (c->chunk_tokens >= c->tokens_per_block)) {
        return BT_OK;
    }
    return bt_config_complain(store,
                              "--chunk-tokens %u is less than one block: "
                              "--tokens-per-block %u",
                              c->chunk_tokens, c->tokens_per_block);
}

static bt_status_t check_devices(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;

    if ((c->devices[0] == '\0') || (strcmp(c->backend, "cpu") != 0)) {
        return BT_OK;
    }
    return bt_config_complain(
        store, "--devices: the back end cpu has none; --backend cuda "
               "has");
}

/* Without a GPU nv_gpu_* would say nothing. */
static bt_status_t check_gpu_metrics(const bt_config_store_t *store)
{
    if (!store->config.gpu_metrics ||
        (access(BT_CONFIG_GPU_DRIVER, F_OK) != 0)) {
        return BT_OK;
    }
    return bt_config_complain(
        store, "--enable-gpu-metrics: nv_gpu_* is not measured by this "
               "version; nv_trt_llm_runtime_memory_metrics has the "
               "memory that workers take of a device");
}

static bt_status_t check_prefill(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;

    if ((c->prefill > 0) || (strcmp(c->local_prefill, "on") == 0)) {
        return BT_OK;
    }
    return bt_config_complain(
        store,
        "--prefill 0 leaves no worker to run prefill; add --local-prefill on or a prefill worker");
}

/* Experts are dealt to equal groups of ranks, by halves of their sum. */
static bt_status_t check_ep(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;
    const struct {
        const char *ep, *tp;
        uint32_t n_ep, n_ranks;
    } sides[] = {{"--prefill-ep", "--prefill-tp", c->prefill_ep, c->prefill_tp},
                 {"--decode-ep", "--decode-tp", c->decode_ep, c->decode_tp},
                 {"--ep", "--tp", c->ep, c->tp}};
    bt_status_t status = BT_OK;

    for (size_t i = 0; (i < BT_ARRAY_LEN(sides)) && (status == BT_OK); i++) {
        const uint32_t n = sides[i].n_ep;

        if ((n > 0) && (((n & (n - 1)) != 0) || (sides[i].n_ranks % n != 0))) {
            status = bt_config_complain(
                store, "%s %u: it is 1, 2, 4, 8 or 16, and divides %s, here %u",
                sides[i].ep, n, sides[i].tp, sides[i].n_ranks);
        }
    }
    return status;
}

/* The ports of the last router of --routers exist. */
static bt_status_t check_ports(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;
    const char *const addresses[] = {c->http, c->grpc, c->metrics};
    static const char *const names[] = {"http", "grpc", "metrics"};
    const uint32_t most =
        UINT16_MAX - (c->routers - 1) * BT_CONFIG_ROUTER_PORT_STEP;

    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        const char *const colon = strrchr(addresses[i], ':');

        if ((i == 0) && c->reuse_http_port && (c->routers > 1)) {
            if ((colon != NULL) && (strtoul(colon + 1, NULL, 10) == 0)) {
                return bt_config_complain(
                    store, "--reuse-http-port needs a port in --http %s",
                    c->http);
            }
            continue; /* one port for all routers */
        }
        if ((colon != NULL) && (strtoul(colon + 1, NULL, 10) > most)) {
            return bt_config_complain(
                store,
                "--routers %u: the ports from --%s %s on would "
                "pass 65535",
                c->routers, names[i], addresses[i]);
        }
    }
    return BT_OK;
}

/* One for connections, one for their data. */
static bt_status_t check_kv_ports(const bt_config_store_t *store)
{
    uint16_t first, last;

    if ((bt_config_split_ports(store->config.kv_port_range, &first, &last) ==
         BT_OK) &&
        ((first == 0) || (first < last))) {
        return BT_OK;
    }
    return bt_config_complain(
        store,
        "--kv-port-range %s: give two ports from 1 to 65535, "
        "the smaller one first, such as 20000-20100",
        store->config.kv_port_range);
}

/* ---- servers for clients: certificates, keys, which addresses may be reached
 * without authentication, and where requests are recorded ---- */

static bt_status_t check_tls(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;
    const bool has_cert = (c->tls_cert[0] != '\0');

    if (has_cert != (c->tls_key[0] != '\0')) {
        return bt_config_complain(store, "--tls-%s needs --tls-%s, too",
                                  has_cert ? "cert" : "key",
                                  has_cert ? "key" : "cert");
    }
    if (!has_cert && (c->tls_client_ca[0] != '\0')) {
        return bt_config_complain(
            store, "--tls-client-ca needs --tls-cert and --tls-key");
    }
    return BT_OK;
}

/* A server reachable from other machines runs without authentication only if
 * the operator allows it explicitly. A required client certificate also
 * counts, but the port of --metrics has none. */
static bt_status_t check_reach(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;
    const char *const addresses[] = {c->http, c->grpc, c->metrics};
    static const char *const names[] = {"http", "grpc", "metrics"};
    const bool has_certs = (c->tls_client_ca[0] != '\0');
    bt_status_t status = BT_OK;

    if (c->insecure || (c->api_keys[0] != '\0')) {
        return BT_OK;
    }
    for (size_t i = 0; (i < BT_ARRAY_LEN(names)) && (status == BT_OK); i++) {
        char host[256];
        uint16_t port;

        /* An invalid address is reported by its row. */
        if ((bt_config_split_address(addresses[i], host, sizeof(host), &port) !=
             BT_OK) ||
            bt_config_is_loopback(host) ||
            (has_certs && (strcmp(names[i], "metrics") != 0))) {
            continue;
        }
        bt_config_complain(
            store,
            "--%s %s is beyond loopback, where clients need no key: add --api-keys FILE (%s key new TENANT makes a key), or --insecure to let every client that reaches it use it",
            names[i], addresses[i], bt_process_command());
        status = bt_config_go_on(store, BT_ERR_INVALID_PARAM);
    }
    return status;
}

/* A name of a header (RFC 9110, 5.1), and none that says something else. */
static bool is_header(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    const size_t n = strlen(name);

    return (n < MAX_HEADER_BYTES) && (strspn(name, letters) == n);
}

static bt_status_t check_tenants(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;

    if (!is_header(c->tenant_header)) {
        return bt_config_complain(
            store,
            "--tenant-header: '%.80s' is no name of a header, "
            "such as X-Baton-Tenant",
            c->tenant_header);
    }
    if (c->api_keys[0] == '\0') {
        return BT_OK;
    }
    if (c->tenant_header[0] != '\0') {
        return bt_config_complain(
            store, "--tenant-header and --api-keys: with keys the key "
                   "says whose request it is");
    }
    if (strcmp(c->shared_memory, "on") == 0) {
        return bt_config_complain(
            store, "--shared-memory on and --api-keys: regions of "
                   "shared memory are not kept apart by tenant");
    }
    return BT_OK;
}

/* A folder of objects has one router, and its options have a folder. */
static bt_status_t check_store(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;

    if ((c->store[0] == '\0') && (c->response_store_dir[0] == '\0') &&
        (c->store_key[0] != '\0')) {
        return bt_config_complain(
            store, "--store-key needs --store or --response-store-dir, too");
    }
    if ((c->response_store_dir[0] != '\0') &&
        (c->response_store_limit_bytes == 0)) {
        return bt_config_complain(
            store, "--response-store-dir: --response-store-limit 0 stores no "
                   "responses");
    }
    if ((c->store[0] != '\0') && (c->routers > 1)) {
        return bt_config_complain(
            store, "--store is for one router: --routers %u", c->routers);
    }
    return BT_OK;
}

/* Returns what is wrong with a collector's URL, or NULL; the router's HTTP
 * client checks host and port. */
static const char *otlp_url_error(const char *url)
{
    const char *const scheme_end = strstr(url, "://");
    const size_t n_scheme =
        (scheme_end != NULL) ? (size_t)(scheme_end - url) : 0;

    if (((n_scheme != 4) || (strncasecmp(url, "http", 4) != 0)) &&
        ((n_scheme != 5) || (strncasecmp(url, "https", 5) != 0))) {
        return "the URL does not begin with http:// or https://";
    }
    if (memchr(scheme_end + 3, '@', strcspn(scheme_end + 3, "/")) != NULL) {
        return "the URL has a name or password, which everybody could see: "
               "use --otlp-headers-file";
    }
    if (strpbrk(url, "?#") != NULL) {
        return "the URL has a query or a fragment";
    }
    for (const char *at = url; *at != '\0'; at++) {
        if ((*at <= ' ') || (*at > '~')) {
            return "the URL has a space, or a byte that is not ASCII";
        }
    }
    return NULL;
}

static bt_status_t check_otlp(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;
    const char *error;

    if (c->otlp_traces_endpoint[0] == '\0') {
        if (c->otlp_headers_file[0] != '\0') {
            return bt_config_complain(
                store, "--otlp-headers-file needs --otlp-traces-endpoint");
        }
        return BT_OK;
    }
    /* Not shown: a password may be in it. */
    error = otlp_url_error(c->otlp_traces_endpoint);
    if (error != NULL) {
        return bt_config_complain(store, "--otlp-traces-endpoint: %s", error);
    }
    return BT_OK;
}

static bt_status_t check_adapters(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;
    const char *rest = c->lora;
    const char *others;
    bt_config_adapter_t adapter, other;

    if (((c->lora[0] != '\0') || (c->lora_dir[0] != '\0') ||
         (c->lora_cache_host_bytes > 0)) &&
        (c->n_models > 1)) {
        return bt_config_complain(
            store, "%s: adapters are those of one model; %u are given",
            (c->lora[0] != '\0')       ? "--lora"
            : (c->lora_dir[0] != '\0') ? "--lora-dir"
                                       : "--lora-cache-host-memory",
            c->n_models);
    }
    if ((c->lora_task_dir[0] != '\0') && (c->lora_cache_host_bytes == 0)) {
        return bt_config_complain(
            store, "--lora-task-dir needs --lora-cache-host-memory");
    }
    if ((store->config.lora_prefetch_dir[0] != '\0') &&
        (c->lora_cache_host_bytes == 0)) {
        return bt_config_complain(
            store, "--lora-prefetch-dir needs --lora-cache-host-memory");
    }
    while (bt_config_adapter_next(&rest, &adapter) == BT_OK) {
        others = rest;
        while (bt_config_adapter_next(&others, &other) == BT_OK) {
            if (strcmp(adapter.name, other.name) == 0) {
                return bt_config_complain(
                    store, "--lora: two adapters have the name %s",
                    adapter.name);
            }
        }
    }
    return BT_OK;
}

static bt_status_t check_draft(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;
    const bool is_self =
        (strcmp(c->draft, "self") == 0) || (strncmp(c->draft, "self:", 5) == 0);
    const bool is_mtp = strcmp(c->draft, "mtp") == 0;
    const bool is_off = strcmp(c->draft, "off") == 0;

    if (!is_self && !is_mtp && !is_off && (strcmp(c->draft, "ngram") != 0)) {
        return bt_config_complain(
            store, "--draft %s: it is ngram, self, self:TYPE, mtp or off",
            c->draft);
    }
    if ((is_self || is_mtp || is_off) && (c->draft_model[0] != '\0')) {
        return bt_config_complain(store,
                                  "--draft-model %s contradicts --draft %s",
                                  c->draft_model, c->draft);
    }
    return BT_OK;
}

static const struct {
    unsigned programs;
    bt_status_t (*check)(const bt_config_store_t *store);
} checks[] = {
    {~0u, check_times},
    {~0u, check_block},
    {~0u, check_chunk},
    {~0u, check_devices},
    {~0u, check_kv_ports},
    {~0u, check_gpu_metrics},
    {BT_PROG_SERVE | BT_PROG_PREFILL | BT_PROG_DECODE, check_draft},
    {~0u, check_adapters},
    {~0u, check_ep},
    {BT_PROG_SERVE, check_prefill},
    {BT_PROG_SERVE | BT_PROG_ROUTER, check_tls},
    {BT_PROG_SERVE | BT_PROG_ROUTER, check_tenants},
    {BT_PROG_SERVE | BT_PROG_ROUTER, check_store},
    {BT_PROG_SERVE | BT_PROG_ROUTER, check_otlp},
    {BT_PROG_SERVE | BT_PROG_ROUTER, check_reach},
    {BT_PROG_SERVE, check_ports},
    {~0u, bt_config_models_check},
};

bt_status_t bt_config_check_together(const bt_config_store_t *store)
{
    bt_status_t status = BT_OK;

    for (size_t i = 0; (i < BT_ARRAY_LEN(checks)) && (status == BT_OK); i++) {
        if ((checks[i].programs & store->program) != 0) {
            status = bt_config_go_on(store, checks[i].check(store));
        }
    }
    return status;
}

/* ---- threads ---- */

/* Numbers as counted of running processes; tests/integration/test_limits.py
 * counts them again.
 *
 * Of nng (1.5.2) four threads resolve names, and three poll, reap and keep
 * time. The others depend on the CPUs that are online: twice as many run
 * tasks, 16 at most, and as many again expire, 8 at most. */
#define NNG_THREADS 7
#define NNG_TASKS   16
#define NNG_EXPIRE  8
/* A router itself; its main, access and trace logs, an OTLP exporter; links;
 * the background and file threads of the parsing pool. */
#define ROUTER_THREADS 9
/* A worker itself, its log, links, the directory of routers, what touches
 * the pool's pages, UCX, a team of ranks. */
#define WORKER_THREADS 7

static uint64_t nng_threads(uint32_t n_online)
{
    const uint32_t tasks = 2 * n_online;

    return NNG_THREADS + ((tasks < NNG_TASKS) ? tasks : NNG_TASKS) +
           ((n_online < NNG_EXPIRE) ? n_online : NNG_EXPIRE);
}

/* Tokenizing is the pool's main work: some 10 MB/s a thread. */
uint32_t bt_parse_threads(const bt_config_t *config, uint32_t n_cpus)
{
    uint32_t n = config->tokenizer_threads;

    if (n == 0) {
        n = n_cpus / 4;
        n = (n > 8) ? 8 : n;
    }
    return (n < 2) ? 2 : n;
}

uint64_t bt_router_threads(uint32_t n_online, uint64_t n_parse)
{
    return nng_threads(n_online) + ROUTER_THREADS + n_parse;
}

uint64_t bt_worker_threads(uint32_t n_online, uint64_t n_compute)
{
    return nng_threads(n_online) + WORKER_THREADS + n_compute;
}

uint32_t bt_online_cpus(void)
{
    const long n = sysconf(_SC_NPROCESSORS_ONLN);

    return (n < 1) ? 1 : (uint32_t)n;
}

bt_status_t bt_program_threads_check(uint64_t n)
{
    bt_limit_t limit;

    bt_limits_threads("", &limit);
    if (n <= limit.left) {
        return BT_OK;
    }
    BT_LOG_ERROR("up to %" PRIu64 " threads are needed, and %" PRIu64
                 " of %" PRIu64 " are left "
                 "(%s)",
                 n, limit.left, limit.most, limit.by);
    return BT_ERR_NO_MEMORY;
}
