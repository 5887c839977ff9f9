/* SPDX-License-Identifier: Apache-2.0 */
/* Mock workers that compute nothing, for bench/router.py: one process with
 * any number of identities, each with a link of its own and the real
 * protocol.
 *
 *     router-mock MODEL URL KEY RUN_DIR N_PREFILL N_DECODE SEATS STEP_US
 *                 auto|nng
 *
 * A prefill worker answers with token #1 and ends the request when it has
 * the grant; a decode worker grants at once and then gives one token to each
 * of its requests, in steps for all of them, STEP_US apart (0: after each
 * poll of its link). All tokens are 'a'. The program ends at the end of its
 * standard input. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "bench/_half.h"
#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/base/thread.h"
#include "common/crypt/key.h"
#include "common/link/link.h"
#include "common/wire/wire.h"
#include "inference/gguf/gguf.h"

#define HEARTBEAT_MS  250u
#define SUSPECT_MS    15000u
#define DEAD_MS       20000u
#define QUEUE_BYTES   (64u << 20)
#define MAX_EVENTS    256
#define CONTEXT       262144u
#define MAX_NUMBER    10000000u
#define BLOCK_TOKENS  16u
#define TOKEN_ID      97u /* a byte, whatever the tokenizer */
#define MOCK_INSTANCE UINT64_C(0x6d6f636b00000000)

typedef struct seq {
    bt_req_key_t key;
    uint32_t next, end; /* indices of tokens */
} seq_t;

typedef struct worker {
    bt_control_t *control;
    bt_link_t *link; /* NULL: not connected */
    bt_wire_decoder_t *decoder;
    uint64_t instance;
    bool decodes;
    seq_t *seqs; /* owned: of a decode worker */
    uint32_t n_seqs, n_free;
    uint64_t step_us; /* when its next step is due */
    uint64_t stats_ms;
} worker_t;

static bt_strbuf_t frame;
static bt_token_t tokens[BT_WIRE_MAX_BATCH];
static uint32_t seats;
static uint64_t step_us;

static void post(const worker_t *w, const bt_msg_t *msg)
{
    bt_strbuf_reset(&frame);
    bt_wire_encode(msg, &frame);
    bt_half_must(bt_strbuf_status(&frame), "encode");
    bt_half_must(bt_link_post(w->link, frame.data, frame.len), "post");
}

static void post_ended(const worker_t *w, bt_req_key_t key)
{
    const bt_msg_t ended = {.type = BT_MSG_ENDED, .u.ended.key = key};

    post(w, &ended);
}

static void prefill(const worker_t *w, const bt_msg_request_t *request)
{
    const bool is_last = request->max_new == 1;
    const bt_token_t token = {.key = request->key,
                              .id = TOKEN_ID,
                              .finish =
                                  is_last ? BT_FINISH_LENGTH : BT_FINISH_NONE};
    const bt_msg_t first = {.type = BT_MSG_TOKENS,
                            .u.tokens = {.n = 1, .tokens = &token}};
    const bt_msg_t prefilled = {
        .type = BT_MSG_PREFILLED,
        .u.prefilled = {.key = request->key, .n_chunks = 1}};

    post(w, &first);
    post(w, &prefilled);
    if (is_last) {
        post_ended(w, request->key);
    }
}

static void generate(worker_t *w, const bt_msg_request_t *request)
{
    const bt_wire_region_t window = {.blob = (const uint8_t *)"w",
                                     .blob_bytes = 1};
    const bt_msg_t grant = {.type = BT_MSG_GRANT,
                            .u.grant = {.key = request->key,
                                        .instance = w->instance,
                                        .regions = &window,
                                        .n_regions = 1}};
    const bt_msg_t joined = {
        .type = BT_MSG_JOINED,
        .u.joined = {.key = request->key, .n_descriptors = 1}};

    post(w, &grant);
    post(w, &joined);
    if (w->n_seqs == w->n_free) {
        w->n_free = (w->n_free == 0) ? 64 : 2 * w->n_free;
        w->seqs = bt_realloc_array(w->seqs, w->n_free, sizeof(*w->seqs));
        if (w->seqs == NULL) {
            bt_half_die(BT_OK, "sequences: no memory");
        }
    }
    if (w->n_seqs == 0) {
        w->step_us = bt_now_us() + step_us;
    }
    w->seqs[w->n_seqs++] =
        (seq_t){.key = request->key, .next = 1, .end = request->max_new};
}

static void cancel(worker_t *w, bt_req_key_t key)
{
    for (uint32_t i = 0; i < w->n_seqs; i++) {
        if ((w->seqs[i].key.id == key.id) &&
            (w->seqs[i].key.attempt == key.attempt)) {
            w->seqs[i] = w->seqs[--w->n_seqs];
            post_ended(w, key);
            return;
        }
    }
}

static void on_message(worker_t *w, const bt_link_event_t *event)
{
    bt_msg_t msg;

    bt_half_must(bt_wire_decode(w->decoder, event->data, event->bytes, &msg),
                 "decode");
    switch (msg.type) {
    case BT_MSG_REQUEST:
        if (msg.u.request.kind == BT_REQUEST_PREFILL) {
            prefill(w, &msg.u.request);
        } else {
            generate(w, &msg.u.request);
        }
        break;
    case BT_MSG_GRANT:
        post_ended(w, msg.u.grant.key);
        break;
    case BT_MSG_CANCEL:
        cancel(w, msg.u.cancel.key);
        break;
    default:
        break;
    }
}

/* One token for each of its requests. */
static void step(worker_t *w, uint64_t now_us)
{
    bt_msg_t msg = {.type = BT_MSG_TOKENS, .u.tokens.tokens = tokens};
    uint32_t kept = 0;

    for (uint32_t i = 0; i < w->n_seqs; i++) {
        const seq_t *s = &w->seqs[i];

        tokens[msg.u.tokens.n++] =
            (bt_token_t){.key = s->key,
                         .index = s->next,
                         .id = TOKEN_ID,
                         .finish = (s->next + 1 == s->end) ? BT_FINISH_LENGTH
                                                           : BT_FINISH_NONE};
        if (msg.u.tokens.n == BT_WIRE_MAX_BATCH) {
            bt_half_die(BT_OK, "step: too many requests");
        }
    }
    post(w, &msg);
    for (uint32_t i = 0; i < w->n_seqs; i++) {
        seq_t s = w->seqs[i];

        if (++s.next == s.end) {
            post_ended(w, s.key);
        } else {
            w->seqs[kept++] = s;
        }
    }
    w->n_seqs = kept;
    w->step_us = now_us + step_us;
}

static void tell_stats(worker_t *w, uint64_t now_ms)
{
    const bt_msg_t msg = {.type = BT_MSG_STATS,
                          .u.stats = {.active_requests = w->n_seqs,
                                      .max_requests = seats,
                                      .blocks_max = 1u << 20,
                                      .blocks_free = 1u << 20,
                                      .tokens_per_block = BLOCK_TOKENS}};

    post(w, &msg);
    w->stats_ms = now_ms;
}

static void turn(worker_t *w)
{
    bt_link_event_t event;

    while (bt_control_next(w->control, bt_now_ms(), &event)) {
        switch (event.type) {
        case BT_LINK_UP:
            w->link = event.link;
            break;
        case BT_LINK_DOWN:
            w->link = NULL;
            w->n_seqs = 0;
            break;
        case BT_LINK_MESSAGE:
            on_message(w, &event);
            break;
        default:
            break;
        }
    }
    bt_control_flush(w->control);
}

/* ---- start ---- */

static void say_hello(const worker_t *w, bt_hash128_t model, const char *name)
{
    const bt_wire_rank_t rank = {
        .block_bytes = 4096, .kvt = (const uint8_t *)"e", .kvt_bytes = 1};
    bt_msg_t msg = {.type = BT_MSG_HELLO};
    bt_msg_hello_t *hello = &msg.u.hello;

    hello->protocol = BT_WIRE_PROTOCOL;
    hello->protocol_min = BT_WIRE_PROTOCOL_MIN;
    hello->role = w->decodes ? BT_ROLE_DECODE : BT_ROLE_PREFILL;
    hello->instance = w->instance;
    snprintf(hello->name, sizeof(hello->name), "%s", name);
    hello->model = model;
    snprintf(hello->profile, sizeof(hello->profile), "mock");
    hello->tokens_per_block = BLOCK_TOKENS;
    hello->context_tokens = CONTEXT;
    hello->max_batch = seats;
    hello->n_blocks = 1u << 20;
    hello->tp = hello->pp = 1;
    hello->ranks = &rank;
    hello->n_ranks = 1;
    bt_strbuf_reset(&frame);
    bt_wire_encode(&msg, &frame);
    bt_half_must(bt_strbuf_status(&frame), "hello");
}

static void open_worker(worker_t *w, uint32_t number, char **argv,
                        const uint8_t *key, bt_hash128_t model, int epoll_fd)
{
    struct epoll_event wanted = {.events = EPOLLIN, .data = {.ptr = w}};
    char name[32];
    bt_control_config_t config = {.key = key,
                                  .key_bytes = BT_KEY_BYTES,
                                  .name = name,
                                  .range = bt_wire_range_ours(),
                                  .heartbeat_ms = HEARTBEAT_MS,
                                  .suspect_ms = SUSPECT_MS,
                                  .dead_ms = DEAD_MS,
                                  .max_queue_bytes = QUEUE_BYTES,
                                  .share_memory = strcmp(argv[8], "auto") == 0};

    w->instance = MOCK_INSTANCE + ((uint64_t)getpid() << 12) + number;
    snprintf(name, sizeof(name), "mock-%s-%u", w->decodes ? "d" : "p", number);
    say_hello(w, model, name);
    config.hello = frame.data;
    config.hello_bytes = frame.len;
    bt_half_must(bt_wire_decoder_create(&w->decoder), "decoder");
    bt_half_must(bt_control_open(&config, &w->control), "links");
    bt_half_must(bt_control_join(w->control, argv[2]), "join");
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, bt_control_fd(w->control),
                  &wanted) != 0) {
        bt_half_die(BT_OK, "epoll: %m");
    }
}

/* ---- the loop ---- */

static void tick(worker_t *workers, uint32_t n)
{
    const uint64_t now_ms = bt_now_ms();

    for (uint32_t i = 0; i < n; i++) {
        worker_t *w = &workers[i];

        bt_control_tick(w->control, now_ms);
        if ((w->link != NULL) && (now_ms - w->stats_ms >= HEARTBEAT_MS)) {
            tell_stats(w, now_ms);
        }
        turn(w);
    }
}

/* @return microseconds until the next step is due; 0: now */
static uint64_t step_all(worker_t *workers, uint32_t n)
{
    const uint64_t now_us = bt_now_us();
    uint64_t wait_us = HEARTBEAT_MS * 1000 / 2;

    for (uint32_t i = 0; i < n; i++) {
        worker_t *w = &workers[i];

        if (w->n_seqs == 0) {
            continue;
        }
        if (w->step_us <= now_us) {
            step(w, now_us);
            bt_control_flush(w->control);
        }
        if (w->n_seqs > 0) {
            const uint64_t left =
                (w->step_us > now_us) ? w->step_us - now_us : 0;

            wait_us = (left < wait_us) ? left : wait_us;
        }
    }
    return wait_us;
}

static void serve(worker_t *workers, uint32_t n, int epoll_fd)
{
    struct epoll_event events[MAX_EVENTS];
    uint64_t tick_ms = 0;

    for (;;) {
        const uint64_t wait_us = step_all(workers, n);
        const int found = epoll_wait(epoll_fd, events, MAX_EVENTS,
                                     (int)((wait_us + 999) / 1000));

        for (int i = 0; i < found; i++) {
            if (events[i].data.ptr == NULL) {
                char byte;

                if (read(STDIN_FILENO, &byte, 1) <= 0) {
                    return;
                }
                continue;
            }
            turn(events[i].data.ptr);
        }
        if (bt_now_ms() - tick_ms >= HEARTBEAT_MS / 2) {
            tick(workers, n);
            tick_ms = bt_now_ms();
        }
    }
}

int main(int argc, char **argv)
{
    struct epoll_event ends = {.events = EPOLLIN};
    uint8_t key[BT_KEY_BYTES];
    char why[BT_KEY_WHY_BYTES > 256 ? BT_KEY_WHY_BYTES : 256];
    bt_gguf_t *gguf = NULL;
    uint32_t n_prefill, n;
    worker_t *workers;
    int epoll_fd;

    if (argc != 9) {
        bt_half_die(BT_OK, "usage: MODEL URL KEY N_PREFILL N_DECODE SEATS "
                           "STEP_US auto|nng");
    }
    bt_log_init("router-mock", BT_LOG_LEVEL_WARN);
    bt_thread_works_briefly(); /* as a worker's control thread */
    (void)bt_raise_open_fds();
    bt_strbuf_init(&frame, BT_WIRE_MAX_BYTES);
    bt_half_must(bt_gguf_open(argv[1], why, sizeof(why), &gguf), argv[1]);
    bt_half_must(bt_key_read(argv[3], NULL, key, why), argv[3]);
    n_prefill = bt_half_number(argv[4], 0, MAX_NUMBER);
    n = n_prefill + bt_half_number(argv[5], 0, MAX_NUMBER);
    seats = bt_half_number(argv[6], 0, MAX_NUMBER);
    step_us = bt_half_number(argv[7], 0, MAX_NUMBER);
    workers = bt_half_zeros(n, sizeof(*workers));
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if ((epoll_fd < 0) ||
        (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, STDIN_FILENO, &ends) != 0)) {
        bt_half_die(BT_OK, "start: %m");
    }
    for (uint32_t i = 0; i < n; i++) {
        workers[i].decodes = i >= n_prefill;
        open_worker(&workers[i], i, argv, key, bt_gguf_identity(gguf),
                    epoll_fd);
    }
    serve(workers, n, epoll_fd);
    return 0; /* the router notices the end by our closed sockets */
}
