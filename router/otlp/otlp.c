/* SPDX-License-Identifier: Apache-2.0 */
#include "router/otlp/otlp.h"
#include "common/base/thread.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/config/config.h"
#include "common/config/otlp_url.h"
#include "common/crypt/key.h"
#include "common/zip/zip.h"
#include "router/otlp/exchange.h"
#include "router/otlp/headers.h"
#include "router/otlp/queue.h"

#define JOIN_MS       200u /* time for the thread to end after the request */
#define SAY_EVERY_MS  10000u
#define HEAD_BYTES    (BT_OTLP_HEADERS_TEXT_BYTES + 2048)
#define LARGEST_BYTES ((size_t)64 << 20) /* per batch: an item is smaller */

/* State of the receiver last logged. */
typedef enum mood {
    MOOD_WELL,
    MOOD_FAILING,
    MOOD_REFUSED,
} mood_t;

struct bt_otlp {
    bt_otlp_options_t options;
    bt_otlp_url_t url;
    bt_tls_t *tls;      /* owned; NULL: no TLS */
    char *headers_path; /* owned */
    char *before, *behind;
    int wake_fd; /* readable: the state has changed */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t over;
    _Atomic uint64_t end_ms; /* 0: not closed */
    /* Under the lock. */
    bt_otlp_queue_t queue;
    uint64_t since_ms; /* arrival of the queue's first item; while it has any */
    bt_strbuf_t headers;
    bt_otlp_counts_t counts;
    uint64_t n_spans; /* of the batch; changed by the thread only */
    bool ended, abandoned;
    /* The owner's. */
    uint64_t told_dropped, told_ms;
    /* The thread's. */
    bt_otlp_link_t link;
    bt_strbuf_t head, body, packed;
    mood_t mood;
    bool said_partial;
};

void bt_otlp_options_init(bt_otlp_options_t *options)
{
    *options = (bt_otlp_options_t){
        .queue_bytes = 8u << 20,
        .batch_bytes = 512u << 10,
        .batch_ms = 1000,
        .try_ms = 10000,
        .waits = {.first_ms = 1000, .most_ms = 30000},
        .give_up_ms = 300000,
    };
}

/* ---- adding spans ---- */

static void wake(const bt_otlp_t *otlp)
{
    static const uint64_t one = 1;

    (void)!write(otlp->wake_fd, &one, sizeof(one));
}

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
        wake(otlp);
    }
}

static void say_dropped(bt_otlp_t *otlp, uint64_t n_dropped)
{
    const uint64_t now_ms = bt_now_ms();

    if ((n_dropped > otlp->told_dropped) &&
        ((otlp->told_ms == 0) || (now_ms - otlp->told_ms >= SAY_EVERY_MS))) {
        BT_LOG_WARN("otlp %s: %" PRIu64 " spans are lost", otlp->url.authority,
                    n_dropped - otlp->told_dropped);
        otlp->told_dropped = n_dropped;
        otlp->told_ms = now_ms;
    }
}

void bt_otlp_counts(bt_otlp_t *otlp, bt_otlp_counts_t *counts)
{
    pthread_mutex_lock(&otlp->lock);
    *counts = otlp->counts;
    counts->queued_bytes = otlp->queue.used;
    pthread_mutex_unlock(&otlp->lock);
    say_dropped(otlp, counts->n_dropped);
}

/* ---- the thread: waiting ---- */

/* Waits until the state changes, or for @a ms. */
static void wait_ms(const bt_otlp_t *otlp, uint64_t ms)
{
    struct pollfd fd = {.fd = otlp->wake_fd, .events = POLLIN};
    uint64_t count;

    (void)poll(&fd, 1, (ms < 3600000) ? (int)ms : 3600000);
    (void)!read(otlp->wake_fd, &count, sizeof(count)); /* non-blocking */
}

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
        wait_ms(otlp, due_ms);
    }
}

/* ---- the thread: one batch ---- */

/* @return false: out of memory; the batch is removed from the queue */
static bool take_batch(bt_otlp_t *otlp, const bt_otlp_piece_t *piece,
                       size_t from)
{
    bt_strbuf_reset(&otlp->body);
    bt_strbuf_reserve(&otlp->body, strlen(otlp->before) + piece->text_bytes +
                                       strlen(otlp->behind));
    bt_strbuf_puts(&otlp->body, otlp->before);
    bt_otlp_queue_copy(&otlp->queue, from, piece, &otlp->body);
    bt_strbuf_puts(&otlp->body, otlp->behind);

    pthread_mutex_lock(&otlp->lock);
    bt_otlp_queue_drop(&otlp->queue, piece);
    otlp->n_spans = piece->n_spans;
    otlp->since_ms = bt_now_ms(); /* of the items behind it, approximately */
    pthread_mutex_unlock(&otlp->lock);
    return bt_strbuf_status(&otlp->body) == BT_OK;
}

/* Compresses the body with gzip if memory allows. */
static void pack(bt_otlp_t *otlp, bt_otlp_request_t *request, bool *is_packed_p)
{
    bt_strbuf_reset(&otlp->packed);
    *is_packed_p = bt_zip(BT_ZIP_GZIP, otlp->body.data, otlp->body.len,
                          &otlp->packed) == BT_OK;
    request->body = *is_packed_p ? otlp->packed.data : otlp->body.data;
    request->body_bytes = *is_packed_p ? otlp->packed.len : otlp->body.len;
}

static bt_status_t write_head(bt_otlp_t *otlp, bt_otlp_request_t *request,
                              bool is_packed)
{
    bt_strbuf_t *head = &otlp->head;

    bt_strbuf_reset(head);
    bt_strbuf_printf(head,
                     "POST %s HTTP/1.1\r\nHost: %s\r\n"
                     "User-Agent: baton-router/%s\r\n"
                     "Content-Type: application/json\r\n%s"
                     "Content-Length: %zu\r\n",
                     otlp->url.path, otlp->url.authority, bt_config_version(),
                     is_packed ? "Content-Encoding: gzip\r\n" : "",
                     request->body_bytes);
    pthread_mutex_lock(&otlp->lock);
    bt_strbuf_append(head, otlp->headers.data, otlp->headers.len);
    pthread_mutex_unlock(&otlp->lock);
    bt_strbuf_puts(head, "\r\n");
    request->head = head->data;
    request->head_bytes = head->len;
    return bt_strbuf_status(head);
}

static void say_failing(bt_otlp_t *otlp, const char *why)
{
    if (otlp->mood != MOOD_FAILING) {
        BT_LOG_WARN("otlp %s: %s; spans are kept for now", otlp->url.authority,
                    why);
    }
    otlp->mood = MOOD_FAILING;
}

static void say_refused(bt_otlp_t *otlp, int http_status, const char *message)
{
    if (otlp->mood != MOOD_REFUSED) {
        BT_LOG_WARN("otlp %s: POST %s was answered with %d%s%s; those spans "
                    "are lost",
                    otlp->url.authority, otlp->url.path, http_status,
                    (message[0] != '\0') ? ": " : "", message);
    }
    otlp->mood = MOOD_REFUSED;
}

static void say_taken(bt_otlp_t *otlp, const bt_otlp_told_t *told)
{
    if (otlp->mood != MOOD_WELL) {
        BT_LOG_INFO("otlp %s: spans are taken again", otlp->url.authority);
    }
    otlp->mood = MOOD_WELL;
    if (told->is_partial && !otlp->said_partial) {
        BT_LOG_WARN("otlp %s: %" PRIu64 " of %" PRIu64 " spans were rejected%s"
                    "%s; this is said once, and counted",
                    otlp->url.authority, told->n_rejected, otlp->n_spans,
                    (told->message.text[0] != '\0') ? ": " : "",
                    told->message.text);
        otlp->said_partial = true;
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

/* Sends the batch once. @param [out] asked_ms_p  value of Retry-After */
static bt_otlp_verdict_t try_once(bt_otlp_t *otlp, bool is_packed,
                                  bt_otlp_request_t *request,
                                  uint64_t *asked_ms_p)
{
    const bt_otlp_until_t until = {.try_end_ms =
                                       bt_now_ms() + otlp->options.try_ms,
                                   .end_ms = &otlp->end_ms,
                                   .wake_fd = otlp->wake_fd};
    bt_otlp_answer_t answer = {0};
    bt_otlp_verdict_t verdict;
    bt_otlp_told_t told;
    char why[64];

    *asked_ms_p = 0;
    if (write_head(otlp, request, is_packed) != BT_OK) {
        say_failing(otlp, "out of memory");
        return BT_OTLP_AGAIN;
    }
    if (bt_otlp_exchange(&otlp->link, &otlp->url, request, &until, &answer) !=
        BT_OK) {
        say_failing(otlp, otlp->link.trouble);
        return BT_OTLP_AGAIN;
    }
    bt_otlp_answer_tell(&answer, &told);
    verdict = bt_otlp_judge(answer.http_status);
    if (verdict == BT_OTLP_TAKEN) {
        if (told.n_rejected > otlp->n_spans) {
            told.n_rejected = otlp->n_spans;
        }
        say_taken(otlp, &told);
        count_end(otlp, otlp->n_spans - told.n_rejected, told.n_rejected, 0);
    } else if (verdict == BT_OTLP_REFUSED) {
        say_refused(otlp, answer.http_status, told.message.text);
        count_end(otlp, 0, otlp->n_spans, 0);
    } else {
        snprintf(why, sizeof(why), "it answers with %d", answer.http_status);
        say_failing(otlp, why);
        *asked_ms_p = bt_otlp_retry_after_ms(answer.retry_after, time(NULL));
    }
    return verdict;
}

/* Waits before the next try. @return false: give up */
static bool wait_for_next_try(bt_otlp_t *otlp, uint32_t n_failed,
                              uint64_t asked_ms, uint64_t give_up_ms)
{
    uint64_t ms, now_ms = bt_now_ms(), until_ms;
    uint32_t random = 0;

    if (is_closing(otlp)) { /* that was the last one */
        return false;
    }
    (void)!getrandom(&random, sizeof(random), GRND_NONBLOCK);
    ms = bt_otlp_wait_ms(&otlp->options.waits, n_failed, asked_ms, random);
    until_ms = now_ms + ms;
    if (until_ms > give_up_ms) {
        return false;
    }
    while ((now_ms < until_ms) && !is_closing(otlp)) {
        wait_ms(otlp, until_ms - now_ms);
        now_ms = bt_now_ms();
    }
    return !is_over(otlp);
}

/* @return false: it was dropped */
static bool deliver(bt_otlp_t *otlp)
{
    const uint64_t give_up_ms = bt_now_ms() + otlp->options.give_up_ms;
    bt_otlp_request_t request = {0};
    uint32_t n_failed = 0;
    uint64_t asked_ms;
    bool is_packed;

    pack(otlp, &request, &is_packed);
    while (try_once(otlp, is_packed, &request, &asked_ms) == BT_OTLP_AGAIN) {
        n_failed++;
        pthread_mutex_lock(&otlp->lock);
        otlp->counts.n_failed_tries++;
        pthread_mutex_unlock(&otlp->lock);
        if (!wait_for_next_try(otlp, n_failed, asked_ms, give_up_ms)) {
            count_end(otlp, 0, 0, otlp->n_spans);
            return false;
        }
    }
    return true;
}

/* ---- the thread ---- */

static void otlp_free(bt_otlp_t *otlp)
{
    bt_otlp_link_close(&otlp->link);
    bt_tls_destroy(otlp->tls);
    bt_otlp_queue_fini(&otlp->queue);
    if (otlp->head.data != NULL) {
        bt_key_wipe(otlp->head.data, otlp->head.cap);
    }
    bt_otlp_headers_fini(&otlp->headers);
    bt_strbuf_fini(&otlp->head);
    bt_strbuf_fini(&otlp->body);
    bt_strbuf_fini(&otlp->packed);
    if (otlp->wake_fd >= 0) {
        close(otlp->wake_fd);
    }
    pthread_cond_destroy(&otlp->over);
    pthread_mutex_destroy(&otlp->lock);
    bt_free(otlp->headers_path);
    bt_free(otlp->before);
    bt_free(otlp->behind);
    bt_free(otlp);
}

static void *run(void *arg)
{
    bt_otlp_t *const otlp = arg;
    bt_otlp_piece_t piece;
    bool abandoned, well = true;
    size_t from = 0;

    while (well && await_batch(otlp, &piece, &from)) {
        if (!take_batch(otlp, &piece, from)) {
            count_end(otlp, 0, 0, piece.n_spans);
        } else if (!deliver(otlp) || is_over(otlp)) {
            /* While closing, a failing receiver is not retried. */
            well = !is_closing(otlp);
        }
    }
    pthread_mutex_lock(&otlp->lock);
    otlp->counts.n_dropped += otlp->queue.n_spans;
    otlp->queue.n_spans = 0;
    otlp->queue.used = 0;
    otlp->ended = true;
    abandoned = otlp->abandoned;
    pthread_cond_broadcast(&otlp->over);
    pthread_mutex_unlock(&otlp->lock);
    if (abandoned) {
        otlp_free(otlp);
    }
    return NULL;
}

/* ---- creation and destruction ---- */

void bt_otlp_reload(bt_otlp_t *otlp)
{
    bt_strbuf_t headers, old;

    if (otlp->headers_path[0] == '\0') {
        return;
    }
    bt_strbuf_init(&headers, BT_OTLP_HEADERS_TEXT_BYTES);
    if (bt_otlp_headers_load(otlp->headers_path, "; what was read before stays",
                             &headers) != BT_OK) {
        bt_otlp_headers_fini(&headers);
        return;
    }
    pthread_mutex_lock(&otlp->lock);
    old = otlp->headers;
    otlp->headers = headers;
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

static bt_status_t make_parts(bt_otlp_t *otlp, const bt_otlp_options_t *options)
{
    bt_status_t status = BT_ERR_NO_MEMORY;

    otlp->headers_path = bt_strdup(options->headers);
    otlp->before = bt_strdup(options->before);
    otlp->behind = bt_strdup(options->behind);
    if ((otlp->headers_path == NULL) || (otlp->before == NULL) ||
        (otlp->behind == NULL)) {
        return status;
    }
    if (otlp->url.is_tls) {
        otlp->tls = otlp->link.tls = bt_tls_create_client();
        if (otlp->tls == NULL) {
            return status;
        }
    }
    status = bt_otlp_queue_init(&otlp->queue, options->queue_bytes);
    if (status == BT_OK) {
        status = bt_otlp_headers_load(options->headers, "", &otlp->headers);
    }
    if (status == BT_OK) {
        otlp->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (otlp->wake_fd < 0) {
            BT_LOG_ERROR("otlp: no descriptor: %m");
            status = BT_ERR_IO;
        }
    }
    return (status == BT_OK) ? start_thread(otlp) : status;
}

bt_status_t bt_otlp_open(const bt_otlp_options_t *options, bt_otlp_t **otlp_p)
{
    bt_otlp_t *otlp = bt_calloc(1, sizeof(*otlp));
    bt_status_t status = BT_ERR_NO_MEMORY;
    pthread_condattr_t attr;
    const char *why;

    if (otlp == NULL) {
        return status;
    }
    otlp->options = *options;
    otlp->options.url = otlp->options.headers = NULL;
    otlp->options.before = otlp->options.behind = NULL;
    otlp->wake_fd = -1;
    otlp->link.fd = -1;
    pthread_mutex_init(&otlp->lock, NULL);
    pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&otlp->over, &attr);
    pthread_condattr_destroy(&attr);
    bt_strbuf_init(&otlp->headers, BT_OTLP_HEADERS_TEXT_BYTES);
    bt_strbuf_init(&otlp->head, HEAD_BYTES);
    bt_strbuf_init(&otlp->body, LARGEST_BYTES);
    bt_strbuf_init(&otlp->packed, LARGEST_BYTES);
    status = bt_otlp_url_read(options->url, &otlp->url, &why);
    if (status != BT_OK) {
        BT_LOG_ERROR("--otlp-traces-endpoint: %s", why);
    } else {
        status = make_parts(otlp, options);
    }
    if (status != BT_OK) {
        otlp_free(otlp);
        return status;
    }
    *otlp_p = otlp;
    return BT_OK;
}

/* Call with the lock held. */
static bool wait_until_ended(bt_otlp_t *otlp, uint64_t timeout_ms)
{
    struct timespec when;

    bt_thread_deadline(timeout_ms, &when);
    while (!otlp->ended &&
           (pthread_cond_timedwait(&otlp->over, &otlp->lock, &when) == 0)) {
    }
    return otlp->ended;
}

void bt_otlp_close(bt_otlp_t *otlp, uint32_t timeout_ms,
                   bt_otlp_counts_t *counts)
{
    bt_otlp_counts_t last;
    bool ended;

    if (otlp == NULL) {
        return;
    }
    atomic_store(&otlp->end_ms, bt_now_ms() + timeout_ms);
    wake(otlp);
    pthread_mutex_lock(&otlp->lock);
    ended = wait_until_ended(otlp, (uint64_t)timeout_ms + JOIN_MS);
    last = otlp->counts;
    if (!ended) {
        last.n_dropped += otlp->queue.n_spans + otlp->n_spans;
        otlp->abandoned = true;
        pthread_detach(otlp->thread);
    }
    pthread_mutex_unlock(&otlp->lock);
    if (last.n_dropped > otlp->told_dropped) {
        BT_LOG_WARN("otlp: %" PRIu64 " spans are lost at the end",
                    last.n_dropped - otlp->told_dropped);
    }
    if (counts != NULL) {
        *counts = last;
    }
    if (ended) {
        pthread_join(otlp->thread, NULL);
        otlp_free(otlp);
    }
}
