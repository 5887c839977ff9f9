/* SPDX-License-Identifier: Apache-2.0 */
/* The headers by which browsers say which page asks and what it would read:
 * lines of an option, a head, and a weight that no text may push out of range.
 */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/http/accept.h"
#include "router/http/cors.h"

#define OUT_BYTES (64u * 1024u)

/* Every header that is written is one line, and nothing else is. */
static void check_lines(const bt_strbuf_t *out)
{
    const char *at = (out->data == NULL) ? "" : out->data;

    BT_ASSERT_ALWAYS(strlen(at) == out->len);
    while (*at != '\0') {
        const char *const end = strstr(at, "\r\n");
        const char *const colon = strchr(at, ':');

        BT_ASSERT_ALWAYS((end != NULL) && (end > at) && (colon != NULL) &&
                         (colon < end));
        BT_ASSERT_ALWAYS(strcspn(at, "\r\n") == (size_t)(end - at));
        at = end + 2;
    }
}

static void check_head(const char *origins, char *text, size_t size)
{
    bt_http1_fault_t fault;
    bt_http1_head_t head;
    bt_strbuf_t out;

    if (bt_http1_parse_head(text, size, &head, &fault) != BT_OK) {
        return;
    }
    bt_strbuf_init(&out, OUT_BYTES);
    bt_cors_add_headers(origins, &head, &out);
    if (bt_cors_preflight(origins, &head, &out)) {
        BT_ASSERT_ALWAYS(
            bt_cors_allows(origins, bt_http1_find(&head, "Origin")));
    }
    check_lines(&out);
    bt_strbuf_fini(&out);
    BT_ASSERT_ALWAYS(bt_accept_weight(bt_http1_find(&head, "Accept"),
                                      "text/html") <= BT_ACCEPT_MOST);
}

/* First line: the option. The rest: a head. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char bad[BT_CORS_ORIGIN_BYTES];
    char *const copy = bt_calloc(size + 1, 1);
    char *head;

    if (copy == NULL) {
        return 0;
    }
    if (size > 0) {
        memcpy(copy, data, size);
    }
    (void)bt_accept_weight(copy, "text/html");
    head = strchr(copy, '\n');
    if (head != NULL) {
        *head++ = '\0';
        if (bt_cors_are_valid(copy, bad)) {
            size_t seen = 0;
            const size_t left = size - (size_t)(head - copy);
            const size_t n = bt_http1_head_end(head, left, &seen);

            if (n > 0) {
                head[n] = '\0';
                check_head(copy, head, n);
            }
        } else {
            BT_ASSERT_ALWAYS(strlen(bad) < sizeof(bad));
        }
    }
    bt_free(copy);
    return 0;
}
