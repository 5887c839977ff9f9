/* SPDX-License-Identifier: Apache-2.0 */
/* What stands at the path / : a short page for people, JSON for programs. */
#include <string.h>

#include "common/base/json.h"
#include "common/config/config.h"
#include "router/http/accept.h"
#include "router/http/routes_priv.h"

#define HTML_TYPE "text/html; charset=utf-8"
/* Nothing is loaded, nothing runs, nobody puts it into a frame. */
#define POLICY \
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"

static const char page_head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width\">\n"
    "<title>Baton</title>\n"
    "<style>body{font:16px/1.5 sans-serif;max-width:44rem;margin:2rem auto;"
    "padding:0 1rem}pre{background:#f2f2f2;padding:.7rem;overflow-x:auto}"
    "</style></head><body>\n<h1>Baton</h1>\n";

/* Text of others (a model's name, the Host) as text alone. */
static void put_escaped(const char *text, bt_strbuf_t *out)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<':
            bt_strbuf_puts(out, "&lt;");
            break;
        case '>':
            bt_strbuf_puts(out, "&gt;");
            break;
        case '&':
            bt_strbuf_puts(out, "&amp;");
            break;
        case '"':
            bt_strbuf_puts(out, "&quot;");
            break;
        case '\'':
            bt_strbuf_puts(out, "&#39;");
            break;
        default:
            bt_strbuf_append(out, text, 1);
            break;
        }
    }
}

/* How this client calls us. */
static void put_base(const bt_request_t *r, bt_strbuf_t *out)
{
    const char *const host = bt_exchange_header(r->ex, "Host");

    bt_strbuf_puts(out, r->door->secure ? "https://" : "http://");
    put_escaped((host != NULL) ? host : r->door->http_at, out);
}

static bool is_serving(const bt_request_t *r, const bt_served_t *served)
{
    return !r->door->front->leaving && bt_served_ready(served);
}

static const char *put_models(const bt_request_t *r, bt_strbuf_t *out)
{
    const char *first = "MODEL";
    size_t n = 0;

    bt_strbuf_puts(out, "<ul>\n");
    BT_REGISTRY_FOR_EACH(served, &r->door->front->models)
    {
        if (served->unloaded || (n == BT_DOOR_MAX_MODELS)) {
            continue;
        }
        first = (n++ == 0) ? served->name : first;
        bt_strbuf_puts(out, "<li><b>");
        put_escaped(served->name, out);
        bt_strbuf_puts(out, is_serving(r, served)
                                ? "</b>\n"
                                : "</b> (waits for its workers)\n");
    }
    bt_strbuf_puts(out, "</ul>\n");
    return first;
}

static void put_page(const bt_request_t *r, bt_strbuf_t *out)
{
    const char *first;

    bt_strbuf_puts(out, page_head);
    bt_strbuf_printf(out, "<p>Version %s serves:</p>\n", bt_config_version());
    first = put_models(r, out);
    bt_strbuf_puts(out, "<p>Clients of OpenAI's API find it at <code>");
    put_base(r, out);
    bt_strbuf_puts(out, "/v1</code>:</p>\n<pre>curl ");
    put_base(r, out);
    bt_strbuf_puts(out, "/v1/chat/completions \\\n  -H 'Content-Type: "
                        "application/json' \\\n  -d '{\"model\": \"");
    put_escaped(first, out);
    bt_strbuf_puts(
        out,
        "\", \"messages\": [{\"role\": \"user\", \"content\": \"Why is the "
        "sky blue?\"}]}'</pre>\n<pre>BATON_HTTP=");
    put_base(r, out);
    bt_strbuf_puts(
        out,
        "/v1 ./baton ask \"Why is the sky blue?\"</pre>\n"
        "<p>Clients of Triton's: <a href=\"/v2\">/v2</a>. Also: <a "
        "href=\"/v1/models\">models</a>, <a href=\"/metrics\">metrics</a>, "
        "<a href=\"/health\">health</a>.</p>\n</body></html>\n");
}

static void put_json(const bt_request_t *r, bt_strbuf_t *out)
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

void bt_route_welcome(const bt_request_t *r)
{
    const bool html = bt_accept_wants_html(bt_exchange_header(r->ex, "Accept"));
    bt_strbuf_t *const out = &r->door->out;

    bt_strbuf_reset(out);
    bt_exchange_add_header(r->ex, "Vary", "Accept");
    bt_exchange_add_header(r->ex, "Cache-Control", "no-store");
    if (!html) {
        put_json(r, out);
        bt_request_respond_json(r);
        return;
    }
    put_page(r, out);
    if (bt_strbuf_status(out) != BT_OK) {
        bt_request_refuse(r, 503, "out of memory for this answer");
        return;
    }
    bt_exchange_add_header(r->ex, "Content-Security-Policy", POLICY);
    bt_exchange_add_header(r->ex, "X-Content-Type-Options", "nosniff");
    bt_visit_respond(r->visit, 200, HTML_TYPE, out->data, out->len);
}
