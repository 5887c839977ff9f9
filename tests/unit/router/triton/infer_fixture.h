/* SPDX-License-Identifier: Apache-2.0 */
/** @file infer_fixture.h
 *
 * Bodies of calls of tensors, and a written door that streams, as gRPC's does.
 */
#ifndef BT_TESTS_UNIT_ROUTER_INFER_FIXTURE_H
#define BT_TESTS_UNIT_ROUTER_INFER_FIXTURE_H

#include "tests/unit/router/call_fixture.h"

#include "router/triton/infer_call.h"
#include "router/triton/infer_json.h"

#define INFER(model) "/v2/models/" model "/infer"
#define T(name, type, shape, data)                                      \
    "{\"name\":\"" name "\",\"datatype\":\"" type "\",\"shape\":" shape \
    ",\"data\":" data "}"
#define BODY(inputs) "{\"inputs\":[" inputs "]}"

typedef struct stream {
    bt_infer_reply_t reply;
    unsigned n_pieces, n_finished, n_errors, n_ends_of_rows, n_final;
    unsigned leave_after; /* pieces; 0: stays */
    int status;
    char text[512];      /* "row:text;" of each piece */
    char last[1u << 16]; /* the last response as JSON */
} stream_t;

static void note(stream_t *s, const bt_infer_response_t *response)
{
    bt_strbuf_t out;
    size_t json_bytes;

    bt_strbuf_init(&out, sizeof(s->last));
    bt_infer_write_json(response, &out, &json_bytes);
    snprintf(s->last, sizeof(s->last), "%s", out.data);
    bt_strbuf_fini(&out);
}

static void on_piece(bt_infer_reply_t *reply, const bt_infer_response_t *piece)
{
    stream_t *s = BT_CONTAINER_OF(reply, stream_t, reply);
    const size_t n = strlen(s->text);

    note(s, piece);
    s->n_pieces++;
    s->n_ends_of_rows += piece->ends_row ? 1 : 0;
    s->n_final += piece->final ? 1 : 0;
    if (piece->outputs[0].dtype == BT_DTYPE_BYTES) {
        const char *text = "";
        size_t bytes = 0;
        size_t at = 0;

        assert_true(
            bt_tensor_next_bytes(&piece->outputs[0], &at, &text, &bytes));
        snprintf(s->text + n, sizeof(s->text) - n, "%u:%.*s;", piece->row,
                 (int)bytes, text);
    } else {
        snprintf(s->text + n, sizeof(s->text) - n, "%u:%u;", piece->row,
                 (unsigned)bt_tensor_elements(&piece->outputs[0]));
    }
    if (s->n_pieces == s->leave_after) {
        bt_infer_gone(reply->call);
    }
}

static void on_finish(bt_infer_reply_t *reply, bt_infer_call_t *call,
                      const bt_infer_response_t *whole)
{
    stream_t *s = BT_CONTAINER_OF(reply, stream_t, reply);

    (void)call;
    assert_null(reply->call);
    note(s, whole);
    s->n_finished++;
}

static void on_error(bt_infer_reply_t *reply, const bt_api_error_t *error)
{
    stream_t *s = BT_CONTAINER_OF(reply, stream_t, reply);

    assert_null(reply->call);
    s->n_errors++;
    s->status = error->http_status;
    snprintf(s->last, sizeof(s->last), "%s", error->message);
}

static void on_freed(void *ctx, size_t bytes)
{
    (void)ctx;
    lent_bytes -= bytes;
}

static const bt_infer_reply_ops_t stream_ops = {on_piece, on_finish, on_error};

static void begin(world_t *w, stream_t *s, const char *model,
                  const char *client, const char *text)
{
    const bt_infer_http_t http = {0};
    const bt_infer_source_t source = {
        .model = model,
        .may_stream = true,
        .client = client,
        .parse = bt_infer_parse_json,
        .parse_ctx = &http,
        .parse_ctx_bytes = sizeof(http),
        .body_freed = on_freed,
        .body_bytes = 10,
    };
    bt_strbuf_t body;

    lent_bytes += 10;
    *s = (stream_t){.reply.ops = &stream_ops, .leave_after = s->leave_after};
    bt_strbuf_init(&body, 1u << 20);
    bt_strbuf_puts(&body, text);
    bt_infer_begin(&w->front, &s->reply, &source, &body);
}

#endif
