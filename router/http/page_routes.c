/* SPDX-License-Identifier: Apache-2.0 */
/* Files of the web page, at "/" and below "/page/". They are public and
 * independent of this server, so no key is needed. */
#include <string.h>

#include "router/http/accept.h"
#include "router/http/routes_priv.h"

void bt_http_request_respond_page(bt_http_request_t *r,
                                  const bt_page_file_t *file, const char *vary)
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

    /* The index is at "/", where its paths are right. */
    if ((file == NULL) || (strcmp(r->name, BT_PAGE_INDEX) == 0)) {
        bt_http_request_refuse(r, 404, "the page has no such file");
        return;
    }
    bt_http_request_respond_page(r, file, "Accept-Encoding");
}
