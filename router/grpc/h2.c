/* SPDX-License-Identifier: Apache-2.0 */
#include "router/grpc/h2.h"

#include <nghttp2/nghttp2.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/containers.h"
#include "common/base/text.h"

#define MAX_FIELDS    16
#define RESERVE_BYTES ((size_t)16 * 1024)
/* Memory that a stream keeps between two pieces of its answer. */
#define KEEP_BYTES ((size_t)2 * 1024)
/* Each sent frame of data may be answered with two window updates. */
#define FRAMES_PER_SENT 2

struct bt_h2_stream {
    bt_list_t link; /* in h2->streams */
    bt_h2_t *h2;
    int32_t id;
    void *user;
    bool announced;   /* on_request() was called */
    bool answered;    /* bt_h2_respond() was called */
    bool finished;    /* the body is complete */
    bool waits;       /* nghttp2 waits for more of the body */
    bt_strbuf_t head; /* repeated "name\0value\0" */
    bt_strbuf_t out;
    size_t out_sent;
    bt_strbuf_t trailers; /* like head */
};

/* Header of each allocation of nghttp2. */
typedef struct block {
    size_t bytes;
    size_t unused; /* keeps the block aligned to 16 */
} block_t;

struct bt_h2 {
    nghttp2_session *session;
    nghttp2_mem mem;
    bt_h2_handlers_t handlers;
    bt_list_t streams;
    uint32_t n_streams;
    bool open; /* the client's settings have been received */
    bool in_head;
    bool failed;      /* bt_h2_feed() has failed */
    size_t lib_bytes; /* bytes held by nghttp2 */
    size_t head_bytes, out_bytes, unsent_bytes;
    int64_t idle_frames;  /* token bucket, in thousandths */
    uint64_t filled_ms;   /* time of its last refill */
    bool short_of_memory; /* the reserve was used */
    size_t reserve_used;
    block_t reserve[RESERVE_BYTES / sizeof(block_t)];
};

/* ---- memory of nghttp2: counted and bounded ---- */

/* nghttp2 1.52 has a double free when an allocation fails while it sends. To
 * avoid it, a failed malloc() is served from a reserve, and the connection
 * ends. */
static void *from_reserve(bt_h2_t *h2, size_t bytes)
{
    const size_t at = h2->reserve_used;

    h2->short_of_memory = true;
    bytes = (bytes + sizeof(block_t) - 1) / sizeof(block_t) * sizeof(block_t);
    if (bytes > sizeof(h2->reserve) - at) {
        return NULL;
    }
    h2->reserve_used += bytes;
    return (char *)h2->reserve + at;
}

static bool is_of_reserve(const bt_h2_t *h2, const block_t *block)
{
    return (block >= h2->reserve) &&
           (block < h2->reserve + BT_ARRAY_LEN(h2->reserve));
}

static void lib_free(void *ptr, void *ctx)
{
    bt_h2_t *h2 = ctx;
    block_t *block;

    if (ptr != NULL) {
        block = (block_t *)ptr - 1;
        h2->lib_bytes -= block->bytes;
        if (!is_of_reserve(h2, block)) {
            bt_free(block);
        }
    }
}

static void *lib_realloc(void *ptr, size_t bytes, void *ctx)
{
    bt_h2_t *h2 = ctx;
    block_t *old = (ptr == NULL) ? NULL : (block_t *)ptr - 1;
    const size_t before = (old == NULL) ? 0 : old->bytes;
    const bool reserved = is_of_reserve(h2, old);
    block_t *block = NULL;

    if (bytes > SIZE_MAX / 2) {
        return NULL;
    }
    if (!reserved) {
        block = bt_realloc_array(old, 1, sizeof(*block) + bytes);
    }
    if (block == NULL) {
        block = from_reserve(h2, sizeof(*block) + bytes);
        if (block == NULL) {
            return NULL;
        }
        if (before > 0) {
            memcpy(block + 1, ptr, (before < bytes) ? before : bytes);
        }
        if ((old != NULL) && !reserved) {
            bt_free(old);
        }
    }
    block->bytes = bytes;
    h2->lib_bytes = h2->lib_bytes - before + bytes;
    return block + 1;
}

static void *lib_malloc(size_t bytes, void *ctx)
{
    return lib_realloc(NULL, bytes, ctx);
}

static void *lib_calloc(size_t n, size_t size, void *ctx)
{
    size_t bytes;
    void *ptr;

    if (__builtin_mul_overflow(n, size, &bytes)) {
        return NULL;
    }
    ptr = lib_realloc(NULL, bytes, ctx);
    if (ptr != NULL) {
        memset(ptr, 0, bytes);
    }
    return ptr;
}

/* ---- streams ---- */

static void add_field(bt_strbuf_t *list, const void *name, size_t name_bytes,
                      const void *value, size_t value_bytes)
{
    bt_strbuf_append(list, name, name_bytes);
    bt_strbuf_append(list, "", 1);
    bt_strbuf_append(list, value, value_bytes);
    bt_strbuf_append(list, "", 1);
}

static bt_h2_stream_t *stream_create(bt_h2_t *h2, int32_t id)
{
    bt_h2_stream_t *stream = bt_calloc(1, sizeof(*stream));

    if (stream == NULL) {
        return NULL;
    }
    stream->h2 = h2;
    stream->id = id;
    bt_strbuf_init(&stream->head, BT_H2_HEAD_BYTES);
    bt_strbuf_init(&stream->out, SIZE_MAX / 2);
    bt_strbuf_init(&stream->trailers, BT_H2_HEAD_BYTES);
    bt_list_push_back(&h2->streams, &stream->link);
    h2->n_streams++;
    return stream;
}

static void out_charge(bt_h2_stream_t *stream, size_t before)
{
    stream->h2->out_bytes += stream->out.cap - before;
}

static void stream_free(bt_h2_stream_t *stream)
{
    bt_h2_t *h2 = stream->h2;

    bt_list_remove(&stream->link);
    h2->n_streams--;
    h2->head_bytes -= stream->head.cap;
    h2->out_bytes -= stream->out.cap;
    h2->unsent_bytes -= bt_h2_unsent(stream);
    bt_strbuf_fini(&stream->head);
    bt_strbuf_fini(&stream->out);
    bt_strbuf_fini(&stream->trailers);
    bt_free(stream);
}

static void stream_over(bt_h2_stream_t *stream)
{
    const bt_h2_handlers_t *handlers = &stream->h2->handlers;

    if (stream->announced) {
        handlers->on_closed(handlers->ctx, stream);
    }
    stream_free(stream);
}

static bt_h2_stream_t *stream_of(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

/* ---- receiving ---- */

/* @return false: the client has used up its frames */
static bool spend_frame(bt_h2_t *h2)
{
    h2->idle_frames -= 1000;
    return h2->idle_frames >= 0;
}

static void fill_bucket(bt_h2_t *h2, uint64_t now_ms)
{
    const int64_t most = (int64_t)BT_H2_IDLE_FRAMES * 1000;
    const uint64_t passed_ms = now_ms - h2->filled_ms;

    h2->filled_ms = now_ms;
    if (passed_ms > 1000u * 1000u) {
        h2->idle_frames = most;
        return;
    }
    h2->idle_frames += (int64_t)passed_ms * BT_H2_IDLE_FRAMES_S;
    if (h2->idle_frames > most) {
        h2->idle_frames = most;
    }
}

static bool has_no_data(const nghttp2_frame_hd *hd)
{
    switch (hd->type) {
    case NGHTTP2_DATA:
        return (hd->length == 0) &&
               ((hd->flags & NGHTTP2_FLAG_END_STREAM) == 0);
    case NGHTTP2_HEADERS:
    case NGHTTP2_CONTINUATION: /* counted by nghttp2 */
    case NGHTTP2_RST_STREAM:   /* these too */
    case NGHTTP2_GOAWAY:
        return false;
    default:
        return true;
    }
}

static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd,
                          void *ctx)
{
    bt_h2_t *h2 = ctx;

    if (hd->type != NGHTTP2_CONTINUATION) {
        h2->in_head = false;
    }
    if (has_no_data(hd) && !spend_frame(h2)) {
        (void)nghttp2_session_terminate_session(session,
                                                NGHTTP2_ENHANCE_YOUR_CALM);
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    return 0;
}

static int on_begin_headers(nghttp2_session *session,
                            const nghttp2_frame *frame, void *ctx)
{
    bt_h2_t *h2 = ctx;
    bt_h2_stream_t *stream;

    h2->in_head = true;
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
        return 0;
    }
    stream = stream_create(h2, frame->hd.stream_id);
    if (stream == NULL) {
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    if (nghttp2_session_set_stream_user_data(session, stream->id, stream) !=
        0) {
        stream_free(stream);
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame,
                     const uint8_t *name, size_t name_bytes,
                     const uint8_t *value, size_t value_bytes, uint8_t flags,
                     void *ctx)
{
    bt_h2_t *h2 = ctx;
    bt_h2_stream_t *stream = stream_of(session, frame->hd.stream_id);
    size_t before;

    (void)flags;
    if ((frame->headers.cat != NGHTTP2_HCAT_REQUEST) || (stream == NULL)) {
        return 0; /* trailers of a client are ignored */
    }
    before = stream->head.cap;
    add_field(&stream->head, name, name_bytes, value, value_bytes);
    h2->head_bytes += stream->head.cap - before;
    return (bt_strbuf_status(&stream->head) == BT_OK)
               ? 0
               : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* resets the stream */
}

static void announce_request(bt_h2_t *h2, bt_h2_stream_t *stream)
{
    stream->announced = true;
    h2->handlers.on_request(h2->handlers.ctx, stream);
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame,
                         void *ctx)
{
    bt_h2_t *h2 = ctx;
    bt_h2_stream_t *stream;

    switch (frame->hd.type) {
    case NGHTTP2_SETTINGS:
        h2->open = true;
        return 0;
    case NGHTTP2_HEADERS:
        h2->in_head = false;
        break;
    case NGHTTP2_DATA:
        break;
    default:
        return 0;
    }
    stream = stream_of(session, frame->hd.stream_id);
    if (stream == NULL) {
        return 0;
    }
    if ((frame->hd.type == NGHTTP2_HEADERS) &&
        (frame->headers.cat == NGHTTP2_HCAT_REQUEST)) {
        announce_request(h2, stream);
    }
    if (((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) &&
        stream->announced) {
        h2->handlers.on_end(h2->handlers.ctx, stream);
    }
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id,
                   const uint8_t *data, size_t bytes, void *ctx)
{
    bt_h2_t *h2 = ctx;
    bt_h2_stream_t *stream = stream_of(session, id);

    (void)flags;
    if ((stream != NULL) && stream->announced && !stream->finished) {
        h2->handlers.on_data(h2->handlers.ctx, stream, data, bytes);
    }
    /* Fails only when memory is short, which the next pull reports as well. */
    return (nghttp2_session_consume(session, id, bytes) == NGHTTP2_ERR_NOMEM)
               ? NGHTTP2_ERR_CALLBACK_FAILURE
               : 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code,
                           void *ctx)
{
    bt_h2_stream_t *stream = stream_of(session, id);

    (void)code;
    (void)ctx;
    if (stream != NULL) {
        (void)nghttp2_session_set_stream_user_data(session, id, NULL);
        stream_over(stream);
    }
    return 0;
}

/* ---- sending ---- */

/* A client that still sends to a complete answer is told to stop. */
static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame,
                         void *ctx)
{
    bt_h2_t *h2 = ctx;
    const int32_t id = frame->hd.stream_id;

    if (frame->hd.type == NGHTTP2_DATA) {
        h2->idle_frames += FRAMES_PER_SENT * 1000;
    }
    if (((frame->hd.type == NGHTTP2_DATA) ||
         (frame->hd.type == NGHTTP2_HEADERS)) &&
        ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) &&
        (nghttp2_session_get_stream_remote_close(session, id) == 0)) {
        (void)nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id,
                                        NGHTTP2_NO_ERROR);
    }
    return 0;
}

static size_t fields_of(const bt_strbuf_t *list, nghttp2_nv nv[MAX_FIELDS])
{
    size_t n = 0;

    for (size_t at = 0; (at < list->len) && (n < MAX_FIELDS); n++) {
        char *name = list->data + at;
        const size_t name_bytes = strlen(name);
        char *value = name + name_bytes + 1;
        const size_t value_bytes = strlen(value);

        nv[n] = (nghttp2_nv){.name = (uint8_t *)name,
                             .value = (uint8_t *)value,
                             .namelen = name_bytes,
                             .valuelen = value_bytes};
        at += name_bytes + value_bytes + 2;
    }
    return n;
}

static void drop_sent(bt_h2_stream_t *stream)
{
    bt_strbuf_t *out = &stream->out;
    const size_t before = out->cap;

    if (stream->out_sent == out->len) {
        stream->out_sent = 0;
        if (out->cap > KEEP_BYTES) {
            bt_strbuf_fini(out);
        } else {
            bt_strbuf_reset(out);
        }
        out_charge(stream, before);
    } else if ((stream->out_sent > KEEP_BYTES) &&
               (stream->out_sent > out->len / 2)) {
        bt_strbuf_consume(out, stream->out_sent);
        stream->out_sent = 0;
    }
}

static ssize_t read_body(nghttp2_session *session, int32_t id, uint8_t *buf,
                         size_t length, uint32_t *flags,
                         nghttp2_data_source *source, void *ctx)
{
    bt_h2_stream_t *stream = source->ptr;
    const size_t left = stream->out.len - stream->out_sent;
    const size_t n = (left < length) ? left : length;
    nghttp2_nv nv[MAX_FIELDS];

    (void)ctx;
    if ((left == 0) && !stream->finished) {
        stream->waits = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (n > 0) {
        memcpy(buf, stream->out.data + stream->out_sent, n);
        stream->out_sent += n;
        stream->h2->unsent_bytes -= n;
        drop_sent(stream);
    }
    if (stream->finished && (n == left)) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (nghttp2_submit_trailer(session, id, nv,
                                   fields_of(&stream->trailers, nv)) != 0) {
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        }
    }
    return (ssize_t)n;
}

static void fail_stream(bt_h2_stream_t *stream)
{
    bt_h2_reset(stream, BT_H2_INTERNAL_ERROR);
}

void bt_h2_respond(bt_h2_stream_t *stream, const bt_h2_field_t *fields,
                   size_t n, bool last)
{
    const nghttp2_data_provider body = {.source = {.ptr = stream},
                                        .read_callback = read_body};
    nghttp2_nv nv[MAX_FIELDS];
    bt_strbuf_t list;

    if (stream->answered || stream->finished) {
        return;
    }
    stream->answered = true;
    stream->finished = last;
    bt_strbuf_init(&list, BT_H2_HEAD_BYTES);
    for (size_t i = 0; i < n; i++) {
        add_field(&list, fields[i].name, strlen(fields[i].name),
                  fields[i].value, strlen(fields[i].value));
    }
    if ((bt_strbuf_status(&list) != BT_OK) ||
        (nghttp2_submit_response(stream->h2->session, stream->id, nv,
                                 fields_of(&list, nv),
                                 last ? NULL : &body) != 0)) {
        fail_stream(stream);
    }
    bt_strbuf_fini(&list);
}

static void resume_body(bt_h2_stream_t *stream)
{
    if (stream->waits) {
        stream->waits = false;
        if (nghttp2_session_resume_data(stream->h2->session, stream->id) ==
            NGHTTP2_ERR_NOMEM) {
            fail_stream(stream);
        }
    }
}

void bt_h2_write(bt_h2_stream_t *stream, const void *data, size_t bytes)
{
    const size_t before = stream->out.cap;

    BT_ASSERT(stream->answered);
    if (stream->finished || (bytes == 0)) {
        return;
    }
    bt_strbuf_append(&stream->out, data, bytes);
    out_charge(stream, before);
    if (bt_strbuf_status(&stream->out) != BT_OK) {
        fail_stream(stream);
        return;
    }
    stream->h2->unsent_bytes += bytes;
    resume_body(stream);
}

void bt_h2_finish(bt_h2_stream_t *stream, const bt_h2_field_t *trailers,
                  size_t n)
{
    BT_ASSERT(stream->answered);
    if (stream->finished) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        add_field(&stream->trailers, trailers[i].name, strlen(trailers[i].name),
                  trailers[i].value, strlen(trailers[i].value));
    }
    if (bt_strbuf_status(&stream->trailers) != BT_OK) {
        fail_stream(stream);
        return;
    }
    stream->finished = true;
    resume_body(stream);
}

void bt_h2_reset(bt_h2_stream_t *stream, bt_h2_code_t code)
{
    const size_t before = stream->out.cap;

    stream->answered = true;
    stream->finished = true;
    /* Drops the unsent body. */
    stream->h2->unsent_bytes -= bt_h2_unsent(stream);
    bt_strbuf_fini(&stream->out);
    stream->out_sent = 0;
    out_charge(stream, before);
    if (nghttp2_submit_rst_stream(stream->h2->session, NGHTTP2_FLAG_NONE,
                                  stream->id, (uint32_t)code) != 0) {
        /* Out of memory: the connection is unusable. */
        bt_h2_terminate(stream->h2, BT_H2_INTERNAL_ERROR);
    }
}

/* ---- the connection ---- */

static bt_status_t make_callbacks(nghttp2_session_callbacks **callbacks_p)
{
    nghttp2_session_callbacks *callbacks;

    if (nghttp2_session_callbacks_new(&callbacks) != 0) {
        return BT_ERR_NO_MEMORY;
    }
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks,
                                                          on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks,
                                                            on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks,
                                                         on_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks,
                                                              on_data);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks,
                                                         on_frame_send);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks,
                                                           on_stream_close);
    *callbacks_p = callbacks;
    return BT_OK;
}

static bt_status_t make_session(bt_h2_t *h2)
{
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    int rc = NGHTTP2_ERR_NOMEM;

    if (make_callbacks(&callbacks) != BT_OK) {
        return BT_ERR_NO_MEMORY;
    }
    if (nghttp2_option_new(&option) == 0) {
        nghttp2_option_set_no_auto_window_update(option, 1);
        nghttp2_option_set_no_closed_streams(option, 1);
        nghttp2_option_set_stream_reset_rate_limit(option, BT_H2_RESETS,
                                                   BT_H2_RESETS_S);
        rc = nghttp2_session_server_new3(&h2->session, callbacks, h2, option,
                                         &h2->mem);
        nghttp2_option_del(option);
        if (rc != 0) {
            h2->session = NULL; /* freed by nghttp2, which leaves it set */
        }
    }
    nghttp2_session_callbacks_del(callbacks);
    return (rc == 0) ? BT_OK : BT_ERR_NO_MEMORY;
}

bt_status_t bt_h2_create(const bt_h2_handlers_t *handlers, uint32_t max_streams,
                         bt_h2_t **h2_p)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, max_streams},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, BT_H2_WINDOW_BYTES},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, BT_H2_HEAD_BYTES},
        {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
    };
    bt_h2_t *h2 = bt_calloc(1, sizeof(*h2));

    if (h2 == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    h2->handlers = *handlers;
    bt_list_init(&h2->streams);
    h2->idle_frames = (int64_t)BT_H2_IDLE_FRAMES * 1000;
    h2->mem = (nghttp2_mem){.mem_user_data = h2,
                            .malloc = lib_malloc,
                            .free = lib_free,
                            .calloc = lib_calloc,
                            .realloc = lib_realloc};
    if ((make_session(h2) != BT_OK) ||
        (nghttp2_submit_settings(h2->session, NGHTTP2_FLAG_NONE, settings,
                                 BT_ARRAY_LEN(settings)) != 0) ||
        (nghttp2_session_set_local_window_size(h2->session, NGHTTP2_FLAG_NONE,
                                               0,
                                               BT_H2_CONN_WINDOW_BYTES) != 0)) {
        nghttp2_session_del(h2->session);
        bt_free(h2);
        return BT_ERR_NO_MEMORY;
    }
    *h2_p = h2;
    return BT_OK;
}

void bt_h2_destroy(bt_h2_t *h2)
{
    if (h2 == NULL) {
        return;
    }
    while (!bt_list_empty(&h2->streams)) {
        bt_h2_stream_t *stream =
            BT_CONTAINER_OF(h2->streams.next, bt_h2_stream_t, link);

        (void)nghttp2_session_set_stream_user_data(h2->session, stream->id,
                                                   NULL);
        stream_over(stream);
    }
    nghttp2_session_del(h2->session);
    BT_ASSERT(h2->lib_bytes == 0);
    bt_free(h2);
}

bt_status_t bt_h2_feed(bt_h2_t *h2, const void *data, size_t bytes,
                       uint64_t now_ms)
{
    ssize_t used;

    if (h2->failed) {
        return BT_ERR_BAD_MESSAGE;
    }
    fill_bucket(h2, now_ms);
    used = h2->short_of_memory
               ? NGHTTP2_ERR_NOMEM
               : nghttp2_session_mem_recv(h2->session, data, bytes);
    if ((used >= 0) && (h2->lib_bytes > BT_H2_MEMORY_BYTES)) {
        bt_h2_terminate(h2, BT_H2_ENHANCE_YOUR_CALM);
        used = NGHTTP2_ERR_FLOODED;
    }
    if ((used >= 0) && !h2->short_of_memory) {
        return BT_OK;
    }
    h2->failed = true;
    if (h2->short_of_memory || (used == NGHTTP2_ERR_NOMEM)) {
        return BT_ERR_NO_MEMORY;
    }
    /* No effect if already sent. */
    (void)nghttp2_session_terminate_session(
        h2->session, (used == NGHTTP2_ERR_FLOODED) ? NGHTTP2_ENHANCE_YOUR_CALM
                                                   : NGHTTP2_PROTOCOL_ERROR);
    return BT_ERR_BAD_MESSAGE;
}

bt_status_t bt_h2_pull(bt_h2_t *h2, const void **data_p, size_t *bytes_p)
{
    const uint8_t *data = NULL;
    ssize_t n = NGHTTP2_ERR_NOMEM;

    if (!h2->short_of_memory) {
        n = nghttp2_session_mem_send(h2->session, &data);
    }
    if ((n < 0) || h2->short_of_memory) {
        return BT_ERR_NO_MEMORY;
    }
    *data_p = data;
    *bytes_p = (size_t)n;
    return BT_OK;
}

bool bt_h2_is_over(const bt_h2_t *h2)
{
    return (nghttp2_session_want_read(h2->session) == 0) &&
           (nghttp2_session_want_write(h2->session) == 0);
}

bt_h2_state_t bt_h2_state(const bt_h2_t *h2)
{
    return (bt_h2_state_t){
        .is_open = h2->open,
        .in_head = h2->in_head,
        .n_streams = h2->n_streams,
        .bytes = sizeof(*h2) + h2->lib_bytes + h2->head_bytes,
        .out_bytes = (h2->unsent_bytes > 0) ? h2->out_bytes : 0,
    };
}

void bt_h2_announce_end(bt_h2_t *h2)
{
    (void)nghttp2_submit_shutdown_notice(h2->session);
}

void bt_h2_refuse_more(bt_h2_t *h2)
{
    (void)nghttp2_submit_goaway(
        h2->session, NGHTTP2_FLAG_NONE,
        nghttp2_session_get_last_proc_stream_id(h2->session), NGHTTP2_NO_ERROR,
        NULL, 0);
}

void bt_h2_terminate(bt_h2_t *h2, bt_h2_code_t code)
{
    (void)nghttp2_session_terminate_session(h2->session, (uint32_t)code);
}

void bt_h2_stream_set_user(bt_h2_stream_t *stream, void *user)
{
    stream->user = user;
}

void *bt_h2_stream_user(const bt_h2_stream_t *stream)
{
    return stream->user;
}

const char *bt_h2_field(const bt_h2_stream_t *stream, const char *name)
{
    const bt_strbuf_t *head = &stream->head;

    for (size_t at = 0; at < head->len;) {
        const char *found = head->data + at;
        const char *value = found + strlen(found) + 1;

        if (strcmp(found, name) == 0) {
            return value;
        }
        at = (size_t)(value - head->data) + strlen(value) + 1;
    }
    return NULL;
}

size_t bt_h2_unsent(const bt_h2_stream_t *stream)
{
    return stream->out.len - stream->out_sent;
}
