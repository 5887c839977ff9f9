/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints between options of client-facing servers: certificates, keys,
 * which addresses may be reached without authentication, and where requests
 * are recorded. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/base/process.h"
#include "common/base/status.h"
#include "common/config/config_options.h"

#define MAX_HEADER_BYTES 64

static bt_status_t check_tls(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;
    const bool has_cert = (c->tls_cert[0] != '\0');

    if (has_cert != (c->tls_key[0] != '\0')) {
        bt_config_complain(store, "--tls-%s needs --tls-%s, too",
                           has_cert ? "cert" : "key",
                           has_cert ? "key" : "cert");
        return BT_ERR_INVALID_PARAM;
    }
    if (!has_cert && (c->tls_client_ca[0] != '\0')) {
        bt_config_complain(store,
                           "--tls-client-ca needs --tls-cert and --tls-key");
        return BT_ERR_INVALID_PARAM;
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
        bt_config_complain(store,
                           "--tenant-header: '%.80s' is no name of a header, "
                           "such as X-Baton-Tenant",
                           c->tenant_header);
        return BT_ERR_INVALID_PARAM;
    }
    if (c->api_keys[0] == '\0') {
        return BT_OK;
    }
    if (c->tenant_header[0] != '\0') {
        bt_config_complain(store,
                           "--tenant-header and --api-keys: with keys the key "
                           "says whose request it is");
        return BT_ERR_INVALID_PARAM;
    }
    if (strcmp(c->shared_memory, "on") == 0) {
        bt_config_complain(store,
                           "--shared-memory on and --api-keys: regions of "
                           "shared memory are not kept apart by tenant");
        return BT_ERR_INVALID_PARAM;
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
            bt_config_complain(
                store, "--otlp-headers-file needs --otlp-traces-endpoint");
            return BT_ERR_INVALID_PARAM;
        }
        return BT_OK;
    }
    /* Not shown: a password may be in it. */
    error = otlp_url_error(c->otlp_traces_endpoint);
    if (error != NULL) {
        bt_config_complain(store, "--otlp-traces-endpoint: %s", error);
        return BT_ERR_INVALID_PARAM;
    }
    return BT_OK;
}

bt_status_t bt_config_check_doors(const bt_config_store_t *store)
{
    bt_status_t status = bt_config_go_on(store, check_tls(store));

    if (status == BT_OK) {
        status = bt_config_go_on(store, check_tenants(store));
    }
    if (status == BT_OK) {
        status = bt_config_go_on(store, check_otlp(store));
    }
    return (status == BT_OK) ? check_reach(store) : status;
}
