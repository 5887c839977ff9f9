/* SPDX-License-Identifier: Apache-2.0 */
/** @file infer_fixture.h
 *
 * Bodies of calls of tensors, and a written door that streams, as gRPC's does.
 */
#ifndef BT_TESTS_UNIT_ROUTER_INFER_FIXTURE_H
#define BT_TESTS_UNIT_ROUTER_INFER_FIXTURE_H

#include "tests/unit/router/request_fixture.h"

#include "router/triton/infer_json.h"
#include "router/triton/infer_request.h"

#define INFER(model) "/v2/models/" model "/infer"
#define T(name, type, shape, data)                                      \
    "{\"name\":\"" name "\",\"datatype\":\"" type "\",\"shape\":" shape \
    ",\"data\":" data "}"
#define BODY(inputs) "{\"inputs\":[" inputs "]}"

typedef struct stream {
    bt_request_t *request; /* NULL once it has ended */
    unsigned n_pieces, n_finished, n_errors, n_ends_of_rows, n_final;
    unsigned leave_after; /* pieces; 0: stays */
    int status;
    uint32_t n_output;   /* tokens, as the log would say */
    char text[512];      /* "row:text;" of each piece */
    char last[1u << 16]; /* the last response as JSON */
} stream_t;

static void note(stream_t *s, const bt_infer_response_t *response)
{
    bt_strbuf_t out;
    bt_json_t json;

    bt_strbuf_init(&out, sizeof(s->last));
    bt_json_init(&json, &out);
    (void)bt_infer_put_json(response, &json);
    bt_infer_append_raw(response, &out);
    snprintf(s->last, sizeof(s->last), "%s", out.data);
    bt_strbuf_fini(&out);
}

/* A request of the written door. */
typedef struct stream_request {
    bt_request_t base;
    stream_t *s;
} stream_request_t;

static stream_t *stream_of(bt_request_t *request)
{
    return BT_CONTAINER_OF(request, stream_request_t, base)->s;
}

/* The door is done with the request. */
static void leave(stream_t *s)
{
    bt_request_t *request = s->request;

    assert_false(bt_request_is_open(request));
    s->request = NULL;
    s->n_output = request->facts.n_output;
    bt_request_move(request, BT_REQUEST_LOG);
    bt_request_unref(request);
}

static void leave_early(stream_t *s)
{
    bt_request_gone(s->request);
    leave(s);
}

static void on_piece(bt_request_t *request, const bt_infer_response_t *piece)
{
    stream_t *s = stream_of(request);
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
        leave_early(s);
    }
}

static void on_finish(bt_request_t *request, const bt_infer_response_t *whole)
{
    stream_t *s = stream_of(request);

    note(s, whole);
    s->n_finished++;
    leave(s);
}

static void on_error(bt_request_t *request, const bt_api_error_t *error)
{
    stream_t *s = stream_of(request);

    leave(s);
    s->n_errors++;
    s->status = error->http_status;
    snprintf(s->last, sizeof(s->last), "%s", error->message);
}

static const bt_request_ops_t stream_ops = {.error = on_error};
static const bt_infer_ops_t default_ops = {on_piece, on_finish};
static const bt_infer_ops_t *infer_ops = &default_ops;

static void begin(world_t *w, stream_t *s, const char *model,
                  const char *client, const char *text)
{
    const bt_infer_http_t http = {0};
    const bt_infer_source_t source = {
        .ops = infer_ops,
        .may_stream = true,
        .peer = (client != NULL) ? client : "",
        .parse = bt_infer_parse_json,
        .parse_ctx = &http,
        .parse_ctx_bytes = sizeof(http),
    };
    bt_request_t *request =
        bt_request_create(&w->front, &stream_ops, sizeof(stream_request_t));
    bt_strbuf_t body;

    assert_non_null(request);
    *s = (stream_t){.request = request, .leave_after = s->leave_after};
    BT_CONTAINER_OF(request, stream_request_t, base)->s = s;
    request->model = model;
    bt_strbuf_init(&body, 1u << 20);
    bt_strbuf_puts(&body, text);
    bt_infer_begin(request, &source, &body);
}

#endif
