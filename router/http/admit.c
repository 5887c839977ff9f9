/* SPDX-License-Identifier: Apache-2.0 */
#include "router/http/admit.h"

#include "router/http/door_priv.h"

#define CHALLENGE       "WWW-Authenticate"
#define CHALLENGE_VALUE "Bearer realm=\"baton\""

static const char *field_of_head(const void *ctx, const char *name)
{
    return bt_http1_find(ctx, name);
}

static const char *field_of_exchange(const void *ctx, const char *name)
{
    return bt_exchange_header(ctx, name);
}

/* On any route: requests with bodies need a key. */
const char *bt_door_admit(void *ctx, const bt_http1_head_t *head,
                          bt_strbuf_t *out)
{
    bt_tenants_t *tenants = &((bt_door_t *)ctx)->front->tenants;
    bt_tenant_t *tenant = NULL;
    const char *why = NULL;

    if (!bt_tenants_are_keyed(tenants) ||
        (!head->chunked && (head->length == 0)) ||
        (bt_tenants_find(tenants, field_of_head, head, &tenant, &why) ==
         BT_OK)) {
        return NULL;
    }
    bt_strbuf_puts(out, CHALLENGE ": " CHALLENGE_VALUE "\r\n");
    bt_router_metrics_add(tenants->metrics, BT_PC_UNAUTHORIZED, 1);
    return why;
}

static void refuse(bt_http_request_t *r, int http_status, const char *why)
{
    if (http_status == 401) {
        bt_exchange_add_header(r->ex, CHALLENGE, CHALLENGE_VALUE);
        bt_router_metrics_add(r->door->front->metrics, BT_PC_UNAUTHORIZED, 1);
    }
    bt_http_request_error(r, http_status, NULL, "%s", why);
}

static int http_of(bt_status_t status)
{
    switch (status) {
    case BT_ERR_UNAUTHORIZED:
        return 401;
    case BT_ERR_INVALID_PARAM:
        return 400;
    default:
        return 503;
    }
}

static bool is_inside(const bt_http_request_t *r)
{
    char client[BT_HTTP_CLIENT_BYTES] = "";

    bt_exchange_client(r->ex, client);
    return bt_config_is_loopback(client);
}

bool bt_http_request_admit(bt_http_request_t *r, bt_access_kind_t kind,
                           bool changes)
{
    bt_tenants_t *tenants = &r->door->front->tenants;
    const bool is_keyed = bt_tenants_are_keyed(tenants);
    bt_tenant_t *tenant = NULL;
    const char *why = NULL;
    bt_status_t status;

    bt_request_move(&r->base, BT_REQUEST_AUTHENTICATE);
    if ((kind == BT_ACCESS_ANYBODY) ||
        ((kind == BT_ACCESS_INSIDE) && (!is_keyed || is_inside(r)))) {
        return true;
    }
    status = bt_tenants_find(tenants, field_of_exchange, r->ex, &tenant, &why);
    if (status != BT_OK) {
        refuse(r, http_of(status), why);
        return false;
    }
    if (!is_keyed && changes &&
        ((kind == BT_ACCESS_ADMIN) || (kind == BT_ACCESS_CONTROL)) &&
        !bt_frontend_admits_anybody(r->door->front) &&
        !bt_exchange_is_of_own_user(r->ex)) {
        refuse(r, 403, BT_ADMIN_REFUSED);
        return false;
    }
    if (is_keyed && !tenant->limits.admin &&
        ((kind == BT_ACCESS_INSIDE) || (kind == BT_ACCESS_ADMIN) ||
         ((kind == BT_ACCESS_CONTROL) && changes))) {
        refuse(r, 403,
               "this needs the key of a tenant that is `admin` in the file of "
               "--api-keys");
        return false;
    }
    r->base.tenant = bt_tenant_ref(tenant);
    return true;
}
