/* SPDX-License-Identifier: Apache-2.0 */
/* The path /: the web page for people, JSON for programs; and the page's other
 * files, below /page/. They are public and independent of this server, so no
 * key is needed. The description of the API, embedded beside them. */
#include <string.h>

#include "common/config/config.h"
#include "router/http/accept.h"
#include "router/http/routes_priv.h"

/* Answers with a file, compressed if the client accepts that, or with 304 if
 * the client has it. The request is over.
 * @param [in] vary  names of headers on which the answer depends */
static void respond_page(bt_http_request_t *r, const bt_page_file_t *file,
                         const char *vary)
{
    const bool packs = bt_accept_has_coding(
        bt_exchange_header(r->ex, "Accept-Encoding"), "gzip");
    const char *const tag = packs ? file->tag_packed : file->tag;

    bt_exchange_add_header(r->ex, "ETag", tag);
    bt_exchange_add_header(r->ex, "Vary", vary);
    /* Cached, but revalidated each time: a new version shows at once. */
    bt_exchange_add_header(r->ex, "Cache-Control", "no-cache");
    bt_exchange_add_header(r->ex, "Content-Security-Policy", BT_PAGE_POLICY);
    bt_exchange_add_header(r->ex, "X-Content-Type-Options", "nosniff");
    bt_exchange_add_header(r->ex, "Referrer-Policy", "no-referrer");
    bt_exchange_add_header(r->ex, "Cross-Origin-Resource-Policy",
                           "same-origin");
    if (bt_page_is_known(bt_exchange_header(r->ex, "If-None-Match"), tag)) {
        bt_http_request_respond(r, 304, file->type, "", 0);
        return;
    }
    if (packs) {
        bt_exchange_add_header(r->ex, "Content-Encoding", "gzip");
        bt_http_request_respond(r, 200, file->type, file->packed,
                                file->packed_bytes);
        return;
    }
    bt_http_request_respond(r, 200, file->type, file->plain, file->plain_bytes);
}

void bt_route_page(bt_http_request_t *r)
{
    const bt_page_file_t *file = bt_page_find(r->name);

    /* The index is at "/", where its paths are right; the description of the
     * API is no part of the page. */
    if ((file == NULL) || (strcmp(r->name, BT_PAGE_INDEX) == 0) ||
        (strcmp(r->name, BT_PAGE_OPENAPI) == 0)) {
        bt_http_request_refuse(r, 404, "the page has no such file");
        return;
    }
    respond_page(r, file, "Accept-Encoding");
}

void bt_route_openapi(bt_http_request_t *r)
{
    respond_page(r, bt_page_find(BT_PAGE_OPENAPI), "Accept-Encoding");
}

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
        respond_page(r, bt_page_find(BT_PAGE_INDEX), "Accept, Accept-Encoding");
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
