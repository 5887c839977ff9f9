/* SPDX-License-Identifier: Apache-2.0 */
#include "router/otlp/otlp.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/zip/zip.h"
#include "router/otlp/client.h"
#include "router/otlp/headers.h"
#include "router/otlp/queue.h"

#define SAY_EVERY_MS  10000u
#define LARGEST_BYTES ((size_t)64 << 20) /* per batch: an item is smaller */

/* State of the receiver last logged. */
typedef enum receiver_state {
    RECEIVER_ACCEPTS,
    RECEIVER_FAILS,
    RECEIVER_REJECTS,
} receiver_state_t;

struct bt_otlp {
    bt_otlp_options_t options;
    bt_otlp_client_t *client; /* the thread's, but for waking it */
    pthread_t thread;
    pthread_mutex_t lock;
    _Atomic uint64_t end_ms; /* 0: not closed */
    /* Under the lock. */
    bt_otlp_queue_t queue;
    uint64_t since_ms; /* arrival of the queue's first item; while it has any */
    bt_strbuf_t headers;
    bool headers_changed;
    bt_otlp_counts_t counts;
    uint64_t n_spans; /* of the batch; changed by the thread only */
    /* The owner's. */
    uint64_t logged_dropped, logged_ms;
    /* The thread's. */
    bt_strbuf_t body, packed;
    receiver_state_t receiver_state;
    bool logged_partial;
};

void bt_otlp_options_init(bt_otlp_options_t *options)
{
    *options = (bt_otlp_options_t){
        .queue_bytes = 8u << 20,
        .batch_bytes = 512u << 10,
        .batch_ms = 1000,
        .try_ms = 10000,
        .backoff = {.first_ms = 1000, .max_ms = 30000},
        .give_up_ms = 300000,
    };
}

/* ---- adding spans ---- */

void bt_otlp_add(bt_otlp_t *otlp, const char *spans, size_t bytes,
                 uint32_t n_spans)
{
    const size_t enough = otlp->options.batch_bytes;
    size_t before;
    bool added;

    pthread_mutex_lock(&otlp->lock);
    before = otlp->queue.used;
    added = bt_otlp_queue_add(&otlp->queue, spans, bytes, n_spans);
    if (!added) {
        otlp->counts.n_dropped += n_spans;
    } else if (before == 0) {
        otlp->since_ms = bt_now_ms();
    }
    pthread_mutex_unlock(&otlp->lock);
    /* The first item starts the batch's timer; later ones wake the thread only
     * when there is enough for a batch. */
    if (added &&
        ((before == 0) || ((before < enough) && (before + bytes >= enough)))) {
        bt_otlp_client_wake(otlp->client);
    }
}

static void log_dropped(bt_otlp_t *otlp, uint64_t n_dropped)
{
    const uint64_t now_ms = bt_now_ms();

    if ((n_dropped > otlp->logged_dropped) &&
        ((otlp->logged_ms == 0) ||
         (now_ms - otlp->logged_ms >= SAY_EVERY_MS))) {
        BT_LOG_WARN("otlp %s: %" PRIu64 " spans are lost",
                    bt_otlp_client_host(otlp->client),
                    n_dropped - otlp->logged_dropped);
        otlp->logged_dropped = n_dropped;
        otlp->logged_ms = now_ms;
    }
}

void bt_otlp_counts(bt_otlp_t *otlp, bt_otlp_counts_t *counts)
{
    pthread_mutex_lock(&otlp->lock);
    *counts = otlp->counts;
    counts->queued_bytes = otlp->queue.used;
    pthread_mutex_unlock(&otlp->lock);
    log_dropped(otlp, counts->n_dropped);
}

/* ---- the thread: waiting ---- */

static bool is_closing(const bt_otlp_t *otlp)
{
    return atomic_load(&otlp->end_ms) != 0;
}

static bool is_over(const bt_otlp_t *otlp)
{
    const uint64_t end_ms = atomic_load(&otlp->end_ms);

    return (end_ms != 0) && (bt_now_ms() >= end_ms);
}

/* Call with the lock held. @return 0: due now; UINT64_MAX: there is none */
static uint64_t batch_due_ms(const bt_otlp_t *otlp)
{
    const uint64_t now_ms = bt_now_ms();
    const uint64_t due_ms = otlp->since_ms + otlp->options.batch_ms;

    if (otlp->queue.used == 0) {
        return UINT64_MAX;
    }
    if ((otlp->queue.used >= otlp->options.batch_bytes) || is_closing(otlp) ||
        (now_ms >= due_ms)) {
        return 0;
    }
    return due_ms - now_ms;
}

/* @return false: closed, and the queue is empty */
static bool await_batch(bt_otlp_t *otlp, bt_otlp_piece_t *piece, size_t *from_p)
{
    for (;;) {
        uint64_t due_ms;

        pthread_mutex_lock(&otlp->lock);
        due_ms = batch_due_ms(otlp);
        if (due_ms == 0) {
            bt_otlp_queue_peek(&otlp->queue, otlp->options.batch_bytes, piece);
            *from_p = otlp->queue.from;
        }
        pthread_mutex_unlock(&otlp->lock);
        if (due_ms == 0) {
            return true;
        }
        if (is_closing(otlp)) {
            return false;
        }
        bt_otlp_client_wait(otlp->client, due_ms);
    }
}

/* ---- the thread: one batch ---- */

/* @return false: out of memory; the batch is removed from the queue */
static bool take_batch(bt_otlp_t *otlp, const bt_otlp_piece_t *piece,
                       size_t from)
{
    bt_strbuf_reset(&otlp->body);
    bt_strbuf_reserve(&otlp->body, strlen(otlp->options.before) +
                                       piece->text_bytes +
                                       strlen(otlp->options.behind));
    bt_strbuf_puts(&otlp->body, otlp->options.before);
    bt_otlp_queue_copy(&otlp->queue, from, piece, &otlp->body);
    bt_strbuf_puts(&otlp->body, otlp->options.behind);
    bt_strbuf_reset(&otlp->packed);
    pthread_mutex_lock(&otlp->lock);
    bt_otlp_queue_drop(&otlp->queue, piece);
    otlp->n_spans = piece->n_spans;
    otlp->since_ms = bt_now_ms(); /* of the items behind it, approximately */
    pthread_mutex_unlock(&otlp->lock);
    return (bt_strbuf_status(&otlp->body) == BT_OK) &&
           (bt_zip(BT_ZIP_GZIP, otlp->body.data, otlp->body.len,
                   &otlp->packed) == BT_OK);
}

static void log_failing(bt_otlp_t *otlp, const char *why)
{
    if (otlp->receiver_state != RECEIVER_FAILS) {
        BT_LOG_WARN("otlp %s: %s; spans are kept for now",
                    bt_otlp_client_host(otlp->client), why);
    }
    otlp->receiver_state = RECEIVER_FAILS;
}

static void log_rejected(bt_otlp_t *otlp, int http_status, const char *message)
{
    if (otlp->receiver_state != RECEIVER_REJECTS) {
        BT_LOG_WARN("otlp %s: POST %s was answered with %d%s%s; those spans "
                    "are lost",
                    bt_otlp_client_host(otlp->client),
                    bt_otlp_client_path(otlp->client), http_status,
                    (message[0] != '\0') ? ": " : "", message);
    }
    otlp->receiver_state = RECEIVER_REJECTS;
}

static void log_accepted(bt_otlp_t *otlp, const bt_otlp_result_t *result)
{
    if (otlp->receiver_state != RECEIVER_ACCEPTS) {
        BT_LOG_INFO("otlp %s: spans are taken again",
                    bt_otlp_client_host(otlp->client));
    }
    otlp->receiver_state = RECEIVER_ACCEPTS;
    if (result->is_partial && !otlp->logged_partial) {
        BT_LOG_WARN("otlp %s: %" PRIu64 " of %" PRIu64 " spans were rejected%s"
                    "%s; this is said once, and counted",
                    bt_otlp_client_host(otlp->client), result->n_rejected,
                    otlp->n_spans,
                    (result->message.text[0] != '\0') ? ": " : "",
                    result->message.text);
        otlp->logged_partial = true;
    }
}

static void count_end(bt_otlp_t *otlp, uint64_t n_sent, uint64_t n_rejected,
                      uint64_t n_dropped)
{
    pthread_mutex_lock(&otlp->lock);
    otlp->counts.n_sent += n_sent;
    otlp->counts.n_rejected += n_rejected;
    otlp->counts.n_dropped += n_dropped;
    otlp->n_spans = 0;
    pthread_mutex_unlock(&otlp->lock);
}

static bt_status_t update_headers(bt_otlp_t *otlp)
{
    bt_status_t status = BT_OK;

    pthread_mutex_lock(&otlp->lock);
    if (otlp->headers_changed) {
        status = bt_otlp_client_set_headers(otlp->client, otlp->headers.data,
                                            otlp->headers.len);
        otlp->headers_changed = status != BT_OK;
    }
    pthread_mutex_unlock(&otlp->lock);
    return status;
}

/* Sends the batch once. @param [out] retry_after_ms_p  of the receiver */
static bt_otlp_verdict_t try_once(bt_otlp_t *otlp, uint64_t *retry_after_ms_p)
{
    const bt_otlp_request_t request = {.body = otlp->packed.data,
                                       .body_bytes = otlp->packed.len,
                                       .try_ms = otlp->options.try_ms,
                                       .end_ms = &otlp->end_ms};
    char error[BT_OTLP_ERROR_BYTES] = "out of memory";
    bt_otlp_response_t response = {0};
    bt_otlp_verdict_t verdict;
    bt_otlp_result_t result;

    *retry_after_ms_p = 0;
    if ((update_headers(otlp) != BT_OK) ||
        (bt_otlp_client_post(otlp->client, &request, &response, error) !=
         BT_OK)) {
        log_failing(otlp, error);
        return BT_OTLP_RETRY;
    }
    bt_otlp_parse_body(response.body, response.body_bytes, &result);
    verdict = bt_otlp_judge(response.http_status);
    switch (verdict) {
    case BT_OTLP_ACCEPTED:
        if (result.n_rejected > otlp->n_spans) {
            result.n_rejected = otlp->n_spans;
        }
        log_accepted(otlp, &result);
        count_end(otlp, otlp->n_spans - result.n_rejected, result.n_rejected,
                  0);
        break;
    case BT_OTLP_REJECTED:
        log_rejected(otlp, response.http_status, result.message.text);
        count_end(otlp, 0, otlp->n_spans, 0);
        break;
    case BT_OTLP_RETRY:
        snprintf(error, sizeof(error), "it answers with %d",
                 response.http_status);
        log_failing(otlp, error);
        *retry_after_ms_p = response.retry_after_ms;
        break;
    }
    return verdict;
}

/* Waits before the next try. @return false: give up */
static bool wait_for_next_try(bt_otlp_t *otlp, uint32_t n_failed,
                              uint64_t retry_after_ms, uint64_t give_up_ms)
{
    uint64_t ms, now_ms = bt_now_ms(), until_ms;
    uint32_t random = 0;

    if (is_closing(otlp)) { /* that was the last one */
        return false;
    }
    (void)!getrandom(&random, sizeof(random), GRND_NONBLOCK);
    ms = bt_otlp_backoff_ms(&otlp->options.backoff, n_failed, retry_after_ms,
                            random);
    until_ms = now_ms + ms;
    if (until_ms > give_up_ms) {
        return false;
    }
    while ((now_ms < until_ms) && !is_closing(otlp)) {
        bt_otlp_client_wait(otlp->client, until_ms - now_ms);
        now_ms = bt_now_ms();
    }
    return !is_over(otlp);
}

/* @return false: it was dropped */
static bool deliver(bt_otlp_t *otlp)
{
    const uint64_t give_up_ms = bt_now_ms() + otlp->options.give_up_ms;
    uint32_t n_failed = 0;
    uint64_t retry_after_ms;

    while (try_once(otlp, &retry_after_ms) == BT_OTLP_RETRY) {
        n_failed++;
        pthread_mutex_lock(&otlp->lock);
        otlp->counts.n_failed_tries++;
        pthread_mutex_unlock(&otlp->lock);
        if (!wait_for_next_try(otlp, n_failed, retry_after_ms, give_up_ms)) {
            count_end(otlp, 0, 0, otlp->n_spans);
            return false;
        }
    }
    return true;
}

/* ---- the thread ---- */

static void *run(void *arg)
{
    bt_otlp_t *const otlp = arg;
    bt_otlp_piece_t piece;
    bool accepts = true;
    size_t from = 0;

    while (accepts && await_batch(otlp, &piece, &from)) {
        if (!take_batch(otlp, &piece, from)) {
            count_end(otlp, 0, 0, piece.n_spans);
        } else if (!deliver(otlp) || is_over(otlp)) {
            /* While closing, a failing receiver is not retried. */
            accepts = !is_closing(otlp);
        }
    }
    pthread_mutex_lock(&otlp->lock);
    otlp->counts.n_dropped += otlp->queue.n_spans;
    otlp->queue.n_spans = 0;
    otlp->queue.used = 0;
    pthread_mutex_unlock(&otlp->lock);
    return NULL;
}

/* ---- creation and destruction ---- */

void bt_otlp_reload(bt_otlp_t *otlp)
{
    bt_strbuf_t headers, old;

    if (otlp->options.headers[0] == '\0') {
        return;
    }
    bt_strbuf_init(&headers, BT_OTLP_HEADERS_TEXT_BYTES);
    if (bt_otlp_headers_load(otlp->options.headers,
                             "; what was read before stays",
                             &headers) != BT_OK) {
        bt_otlp_headers_fini(&headers);
        return;
    }
    pthread_mutex_lock(&otlp->lock);
    old = otlp->headers;
    otlp->headers = headers;
    otlp->headers_changed = true;
    pthread_mutex_unlock(&otlp->lock);
    bt_otlp_headers_fini(&old);
}

static bt_status_t start_thread(bt_otlp_t *otlp)
{
    const int error = bt_thread_start(&otlp->thread, run, otlp);

    if (error != 0) {
        BT_LOG_ERROR("otlp: no thread could be made: %s", strerror(error));
        return BT_ERR_IO;
    }
    return BT_OK;
}

static void otlp_free(bt_otlp_t *otlp)
{
    bt_otlp_client_destroy(otlp->client);
    bt_otlp_queue_fini(&otlp->queue);
    bt_otlp_headers_fini(&otlp->headers);
    bt_strbuf_fini(&otlp->body);
    bt_strbuf_fini(&otlp->packed);
    pthread_mutex_destroy(&otlp->lock);
    bt_free(otlp);
}

static bt_status_t create_client(bt_otlp_t *otlp, const char *url)
{
    char error[BT_OTLP_ERROR_BYTES];
    const bt_status_t status = bt_otlp_client_create(url, &otlp->client, error);

    if (status != BT_OK) {
        BT_LOG_ERROR("--otlp-traces-endpoint: %s", error);
    }
    return status;
}

bt_status_t bt_otlp_open(const bt_otlp_options_t *options, bt_otlp_t **otlp_p)
{
    bt_otlp_t *otlp = bt_calloc(1, sizeof(*otlp));
    bt_status_t status;

    if (otlp == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    otlp->options = *options;
    otlp->headers_changed = true;
    pthread_mutex_init(&otlp->lock, NULL);
    bt_strbuf_init(&otlp->headers, BT_OTLP_HEADERS_TEXT_BYTES);
    bt_strbuf_init(&otlp->body, LARGEST_BYTES);
    bt_strbuf_init(&otlp->packed, LARGEST_BYTES);
    if ((status = create_client(otlp, options->url)) != BT_OK ||
        (status = bt_otlp_queue_init(&otlp->queue, options->queue_bytes)) !=
            BT_OK ||
        (status = bt_otlp_headers_load(options->headers, "", &otlp->headers)) !=
            BT_OK ||
        (status = start_thread(otlp)) != BT_OK) {
        otlp_free(otlp);
        return status;
    }
    *otlp_p = otlp;
    return BT_OK;
}

void bt_otlp_close(bt_otlp_t *otlp, uint32_t timeout_ms,
                   bt_otlp_counts_t *counts)
{
    if (otlp == NULL) {
        return;
    }
    atomic_store(&otlp->end_ms, bt_now_ms() + timeout_ms);
    bt_otlp_client_wake(otlp->client);
    pthread_join(otlp->thread, NULL); /* it ends by then */
    if (otlp->counts.n_dropped > otlp->logged_dropped) {
        BT_LOG_WARN("otlp: %" PRIu64 " spans are lost at the end",
                    otlp->counts.n_dropped - otlp->logged_dropped);
    }
    if (counts != NULL) {
        *counts = otlp->counts;
    }
    otlp_free(otlp);
}
