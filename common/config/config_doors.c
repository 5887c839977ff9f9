/* SPDX-License-Identifier: Apache-2.0 */
/* Constraints between options of client-facing servers: certificates, keys,
 * which addresses may be reached without authentication, and where requests
 * are recorded. */
#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/process.h"
#include "common/config/config_options.h"
#include "common/config/otlp_url.h"

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

static bt_status_t check_otlp(const bt_config_store_t *store)
{
    const bt_config_t *const c = &store->config;
    bt_otlp_url_t url;
    const char *why;

    if (c->otlp_traces_endpoint[0] == '\0') {
        if (c->otlp_headers_file[0] != '\0') {
            bt_config_complain(
                store, "--otlp-headers-file needs --otlp-traces-endpoint");
            return BT_ERR_INVALID_PARAM;
        }
        return BT_OK;
    }
    /* Not shown: a password may be in it. */
    if (bt_otlp_url_read(c->otlp_traces_endpoint, &url, &why) != BT_OK) {
        bt_config_complain(store, "--otlp-traces-endpoint: %s", why);
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
