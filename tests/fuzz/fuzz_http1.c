/* SPDX-License-Identifier: Apache-2.0 */
/* A head, and what follows it as a chunked body: cutting the input must change
 * nothing. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "router/http/http1.h"

static bt_status_t decode(const char *data, size_t size, size_t step,
                          bt_strbuf_t *body)
{
    bt_http1_chunked_t decoder;
    bool done = false;

    memset(&decoder, 0, sizeof(decoder));
    for (size_t at = 0; (at < size) && !done;) {
        const size_t n = (size - at < step) ? size - at : step;
        const char *piece;
        size_t n_piece;
        size_t used;
        const bt_status_t status = bt_http1_chunked_feed(
            &decoder, data + at, n, &used, &piece, &n_piece, &done);

        if (status != BT_OK) {
            return status;
        }
        BT_ASSERT_ALWAYS((used > 0) && (used <= n) && (n_piece <= used));
        bt_strbuf_append(body, piece, n_piece);
        at += used;
    }
    return done ? BT_OK : BT_INPROGRESS;
}

static void check_body(const char *data, size_t size)
{
    bt_strbuf_t whole;
    bt_strbuf_t pieces;

    bt_strbuf_init(&whole, size);
    bt_strbuf_init(&pieces, size);
    BT_ASSERT_ALWAYS(decode(data, size, size, &whole) ==
                     decode(data, size, 3, &pieces));
    BT_ASSERT_ALWAYS((whole.len == pieces.len) &&
                     ((whole.len == 0) ||
                      (memcmp(whole.data, pieces.data, whole.len) == 0)));
    bt_strbuf_fini(&whole);
    bt_strbuf_fini(&pieces);
}

static void check_head(const char *data, size_t size)
{
    char *const copy = bt_memdup(data, size);
    bt_http1_head_t head;
    bt_http1_fault_t fault = {0, NULL};

    if (copy == NULL) {
        return;
    }
    if (bt_http1_parse_head(copy, size, &head, &fault) == BT_OK) {
        BT_ASSERT_ALWAYS((head.method[0] != '\0') &&
                         (head.n_headers <= BT_HTTP1_MAX_HEADERS) &&
                         ((head.path[0] == '/') || (head.path[0] == '*')));
        BT_ASSERT_ALWAYS(!head.chunked || (head.length == 0));
        for (uint32_t i = 0; i < head.n_headers; i++) {
            BT_ASSERT_ALWAYS(
                (head.headers[i].name >= copy) &&
                (head.headers[i].value + strlen(head.headers[i].value) <=
                 copy + size));
            BT_ASSERT_ALWAYS(bt_http1_find(&head, head.headers[i].name) !=
                             NULL);
        }
    } else {
        BT_ASSERT_ALWAYS((fault.http_status >= 400) && (fault.why != NULL));
    }
    bt_free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *const text = (const char *)data;
    size_t seen = 0;
    size_t seen_slowly = 0;
    size_t slowly = 0;
    const size_t end = bt_http1_head_end(text, size, &seen);

    for (size_t n = 1; (n <= size) && (slowly == 0); n++) {
        slowly = bt_http1_head_end(text, n, &seen_slowly);
    }
    BT_ASSERT_ALWAYS(slowly == end);
    if (end > 0) {
        check_head(text, end);
        check_body(text + end, size - end);
    } else if (size > 0) {
        check_body(text, size);
    }
    return 0;
}
