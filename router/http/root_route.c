/* SPDX-License-Identifier: Apache-2.0 */
/* The path /: the web page for people, JSON for programs. */
#include "common/base/json.h"
#include "common/config/config.h"
#include "router/http/accept.h"
#include "router/http/routes_priv.h"

static bool is_serving(bt_http_request_t *r, const bt_served_t *served)
{
    return !r->door->front->leaving && bt_served_ready(served);
}

static void put_json(bt_http_request_t *r, bt_strbuf_t *out)
{
    size_t n = 0;
    bt_json_t json;

    bt_json_init(&json, out);
    bt_json_object(&json, NULL);
    bt_json_str(&json, "name", "baton");
    bt_json_str(&json, "version", bt_config_version());
    bt_json_bool(&json, "ready", bt_frontend_ready(r->door->front));
    bt_json_array(&json, "models");
    BT_REGISTRY_FOR_EACH(served, &r->door->front->models)
    {
        if (!served->unloaded && (n++ < BT_DOOR_MAX_MODELS)) {
            bt_json_object(&json, NULL);
            bt_json_str(&json, "id", served->name);
            bt_json_bool(&json, "ready", is_serving(r, served));
            bt_json_end_object(&json);
        }
    }
    bt_json_end_array(&json);
    bt_json_object(&json, "routes");
    bt_json_str(&json, "openai", "/v1");
    bt_json_str(&json, "triton", "/v2");
    bt_json_str(&json, "metrics", "/metrics");
    bt_json_str(&json, "health", "/health");
    bt_json_end_object(&json);
    bt_json_end_object(&json);
}

/* The page is public, since a browser requests it without a key and it is
 * independent of this server; the JSON for programs requires a key. */
void bt_route_welcome(bt_http_request_t *r)
{
    bt_strbuf_t *const out = &r->door->out;

    if (bt_accept_wants_html(bt_exchange_header(r->ex, "Accept"))) {
        bt_http_request_respond_page(r, bt_page_find(BT_PAGE_INDEX),
                                     "Accept, Accept-Encoding");
        return;
    }
    if (!bt_http_request_admit(r, BT_ACCESS_BY_KEY, false)) {
        return;
    }
    bt_strbuf_reset(out);
    bt_exchange_add_header(r->ex, "Vary", "Accept");
    bt_exchange_add_header(r->ex, "Cache-Control", "no-store");
    put_json(r, out);
    bt_http_request_respond_json(r);
}
