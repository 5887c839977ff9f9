/* SPDX-License-Identifier: Apache-2.0 */
#include "router/check.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/config/config.h"
#include "common/crypt/key.h"
#include "router/frontend/registry.h"
#include "router/http/cors.h"
#include "router/net/hosts.h"
#include "router/net/tls.h"
#include "router/otlp/headers.h"
#include "router/tenants/tenants.h"

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

static bt_status_t check_otlp(const bt_config_t *config)
{
    bt_status_t status;
    bt_strbuf_t headers;

    bt_strbuf_init(&headers, BT_OTLP_HEADERS_TEXT_BYTES);
    status = bt_otlp_headers_load(config->otlp_headers_file, "", &headers);
    bt_otlp_headers_fini(&headers);
    return status;
}

static bt_status_t check_names(const bt_config_t *config)
{
    char origin[BT_CORS_ORIGIN_BYTES];
    char name[BT_HOSTS_NAME_BYTES];
    bt_status_t status = BT_OK;

    if (!bt_cors_are_valid(config->cors_origins, origin)) {
        BT_LOG_ERROR(
            "--cors-origins: \"%s\" is not an origin, such as https://example.org or http://localhost:3000 without a path, nor *",
            origin);
        status = BT_ERR_INVALID_PARAM;
    }
    if (!bt_hosts_are_valid(config->allowed_hosts, name)) {
        BT_LOG_ERROR("--allowed-hosts: \"%s\" is neither a name, nor an "
                     "address, nor *.NAME, nor *",
                     name);
        status = BT_ERR_INVALID_PARAM;
    }
    return status;
}

/* Checks that a log file can be appended to or created. */
static bt_status_t check_log(const char *option, const char *path)
{
    const size_t n = strlen(path);
    char folder[PATH_MAX];
    struct stat info;

    if ((n == 0) || (strcmp(path, "-") == 0)) {
        return BT_OK;
    }
    if (n >= sizeof(folder)) {
        BT_LOG_ERROR("--%s cannot be written: its name has %zu bytes", option,
                     n);
        return BT_ERR_IO;
    }
    memcpy(folder, path, n + 1);
    if ((stat(path, &info) == 0)
            ? (S_ISDIR(info.st_mode) ? (errno = EISDIR, false)
                                     : access(path, W_OK) == 0)
            : (errno == ENOENT) &&
                  (access(dirname(folder), W_OK | X_OK) == 0)) {
        return BT_OK;
    }
    BT_LOG_ERROR("--%s %s cannot be written: %m", option, path);
    return BT_ERR_IO;
}

int bt_router_check(int argc, char **argv)
{
    static bt_status_t (*const checks[])(const bt_config_t *config) = {
        check_key,     check_models, check_tls,
        check_tenants, check_otlp,   check_names};
    const bt_config_t *config = NULL;
    bt_config_store_t *store = NULL;
    bt_status_t first, status;

    first = bt_config_load_all(BT_PROG_ROUTER, argc, argv, &config, &store);
    (void)bt_log_format("json");
    if (first != BT_OK) {
        return (first == BT_ERR_CANCELED) ? BT_EXIT_OK : BT_EXIT_USAGE;
    }
    first = bt_config_log_findings(store);
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        status = checks[i](config);
        first = (first == BT_OK) ? status : first;
    }
    status = check_log("trace-file", config->trace_file);
    first = (first == BT_OK) ? status : first;
    status = check_log("access-log", config->access_log);
    first = (first == BT_OK) ? status : first;
    bt_config_destroy(store);
    return (first == BT_OK) ? BT_EXIT_OK : bt_exit_of_start(first);
}
