/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes that transfer KV through kvt.h, for bench/kvtransfer.py.
 *
 *     kvtransfer-pair shm|network TOTAL_BYTES SENDER_CORE RECEIVER_CORE
 *
 * One command a line on standard input:
 *
 *     RUN_BYTES PIECE_BYTES CHECKSUMS TRANSFERS
 *
 * TOTAL_BYTES (rounded down to whole runs) are in runs of RUN_BYTES that are
 * scattered over the pools of both, in a different order on each side. Every
 * run is split into pieces of PIECE_BYTES, posted in the order in which a
 * prefill finishes layers: the first piece of every run, then the second of
 * every run... so that no two consecutive posts are adjacent. PIECE_BYTES 0: a
 * post per run. CHECKSUMS 0 disables hashing on both sides, to measure its
 * cost.
 *
 * The answer is one line: bytes, pieces, then for each transfer its
 * microseconds from prep to XFER_DONE: all bytes written, the manifest verified
 * by the receiver, its answer received. One more transfer is made first and not
 * reported. After the last one the receiver compares every byte with the
 * expected pattern. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "kvtransfer/kvt_core.h"

#define SENDER    1u
#define RECEIVER  2u
#define BUDGET    (4u << 20) /* of a round, as in the workers */
#define GAP_BYTES 4096u      /* between runs, so that none are adjacent */
#define LIMIT_MS  20000u
#define MAX_TIMES 1000u
#define MAX_DESC  BT_KVT_DESC_BYTES(BT_KVT_MAX_EXTENTS)

/* Sent to the receiver before each transfer. */
typedef struct order {
    uint64_t id, run_bytes, n_runs, pattern;
    uint32_t checksums, fresh, compare;
} order_t;

_Noreturn static void die(const char *what)
{
    fprintf(stderr, "kvtransfer-pair: pid %d: %s (%s)\n", (int)getpid(), what,
            strerror(errno));
    exit(1);
}

static void put(int fd, const void *data, size_t bytes)
{
    if (write(fd, data, bytes) != (ssize_t)bytes) {
        die("write to the other process");
    }
}

/** Receives one message. @return its bytes; 0: the other side ended */
static size_t get(int fd, void *data, size_t cap)
{
    const ssize_t n = recv(fd, data, cap, 0);

    if (n < 0) {
        die("read from the other process");
    }
    return (size_t)n;
}

static void pin(unsigned core)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0) {
        die("cannot be pinned to its core");
    }
}

static bt_kvt_t *kvt_open(const char *path, uint64_t instance, size_t pool)
{
    const bt_kvt_config_t config = {.transport = &bt_kvt_transport_ucx,
                                    .path = (strcmp(path, "shm") == 0)
                                                ? BT_KVT_PATH_SHM
                                                : BT_KVT_PATH_NETWORK,
                                    .net_device = "lo",
                                    .pool_bytes = pool,
                                    .instance = instance,
                                    .keepalive_ms = 250,
                                    .dead_ms = LIMIT_MS,
                                    .quarantine_ms = 5000};
    bt_kvt_t *kvt = NULL;

    if (bt_kvt_open(&config, &kvt) != BT_OK) {
        die("bt_kvt_open");
    }
    return kvt;
}

/** Returns the position of run @a i of @a n: a permutation specific to each
 *  side. */
static uint64_t run_position(uint64_t i, uint64_t n, uint64_t run_bytes,
                             uint64_t side)
{
    /* A step that shares no factor with n visits every position once. */
    uint64_t step = n / 2 + n / 7 + 1 + side;
    uint64_t a = n, b = step;

    for (;;) {
        while (b != 0) {
            const uint64_t rest = a % b;

            a = b;
            b = rest;
        }
        if (a == 1) {
            break;
        }
        step++;
        a = n;
        b = step;
    }
    return ((i * step + 3 * side) % n) * (run_bytes + GAP_BYTES);
}

static uint64_t pattern_word(uint64_t pattern, uint64_t word)
{
    return (pattern + word) * 0x9e3779b97f4a7c15u;
}

static void pattern_fill(uint8_t *pool, const order_t *o)
{
    for (uint64_t r = 0; r < o->n_runs; r++) {
        uint8_t *run = pool + run_position(r, o->n_runs, o->run_bytes, SENDER);

        for (uint64_t i = 0; i < o->run_bytes; i += 8) {
            const uint64_t word =
                pattern_word(o->pattern, (r * o->run_bytes + i) / 8);

            memcpy(run + i, &word, sizeof(word));
        }
    }
}

static void pattern_compare(const uint8_t *pool, const order_t *o)
{
    for (uint64_t r = 0; r < o->n_runs; r++) {
        const uint8_t *run =
            pool + run_position(r, o->n_runs, o->run_bytes, RECEIVER);

        for (uint64_t i = 0; i < o->run_bytes; i += 8) {
            const uint64_t word =
                pattern_word(o->pattern, (r * o->run_bytes + i) / 8);

            if (memcmp(run + i, &word, sizeof(word)) != 0) {
                die("wrong bytes arrived");
            }
        }
    }
}

/* ---- the receiver ---- */

static void region_serve(bt_kvt_t *kvt, int fd, const order_t *o)
{
    static bt_kvt_extent_t extents[BT_KVT_MAX_EXTENTS];
    static uint8_t desc[MAX_DESC];
    const uint64_t limit_ms = bt_now_ms() + LIMIT_MS;
    bt_kvt_region_t *region = NULL;
    bt_kvt_event_t event;
    size_t bytes = 0;
    bool open = true;

    bt_kvt_test_unhashed(kvt, o->checksums == 0);
    for (uint64_t r = 0; r < o->n_runs; r++) {
        extents[r].offset = run_position(r, o->n_runs, o->run_bytes, RECEIVER);
        extents[r].bytes = o->run_bytes;
        if (o->fresh != 0) {
            memset((uint8_t *)bt_kvt_pool(kvt) + extents[r].offset, 0xee,
                   o->run_bytes);
        }
    }
    if (bt_kvt_region_open(kvt, o->id, 1, SENDER, extents, (uint32_t)o->n_runs,
                           NULL, desc, sizeof(desc), &bytes,
                           &region) != BT_OK) {
        die("bt_kvt_region_open");
    }
    put(fd, desc, bytes);
    while (open) {
        (void)bt_kvt_progress(kvt, bt_now_ms(), BUDGET);
        while (bt_kvt_poll(kvt, &event)) {
            if (event.type == BT_KVT_REGION_DONE) {
                bt_kvt_region_close(region);
            } else if (event.type == BT_KVT_REGION_CLOSED) {
                open = false;
            } else {
                die(bt_status_str(event.status));
            }
        }
        if (bt_now_ms() > limit_ms) {
            die("a transfer does not end at the receiver");
        }
    }
    if (o->compare != 0) {
        pattern_compare(bt_kvt_pool(kvt), o);
    }
    put(fd, "ok", 2);
}

_Noreturn static void receiver_run(const char *path, size_t pool, int fd)
{
    bt_kvt_t *kvt = kvt_open(path, RECEIVER, pool);
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    bt_kvt_event_t event;
    size_t bytes = 0;
    order_t order;

    memset(bt_kvt_pool(kvt), 0, pool); /* its pages exist from now on */
    if (bt_kvt_export(kvt, blob, sizeof(blob), &bytes) != BT_OK) {
        die("bt_kvt_export");
    }
    put(fd, blob, bytes);
    for (;;) {
        (void)bt_kvt_progress(kvt, bt_now_ms(), BUDGET);
        while (bt_kvt_poll(kvt, &event)) {
        }
        if (poll(&pfd, 1, 0) != 1) {
            continue;
        }
        if (get(fd, &order, sizeof(order)) != sizeof(order)) {
            bt_kvt_close(kvt);
            exit(0);
        }
        region_serve(kvt, fd, &order);
    }
}

/* ---- the sender ---- */

typedef struct sender {
    bt_kvt_t *kvt;
    bt_kvt_peer_t *peer;
    int fd;
    uint64_t next_id;
} sender_t;

static void pieces_post(const sender_t *s, bt_kvt_xfer_t *x, const order_t *o,
                        uint64_t piece_bytes)
{
    const uint8_t *pool = bt_kvt_pool(s->kvt);

    for (uint64_t at = 0; at < o->run_bytes; at += piece_bytes) {
        const uint64_t rest = o->run_bytes - at;
        const uint64_t bytes = (rest < piece_bytes) ? rest : piece_bytes;

        for (uint64_t r = 0; r < o->n_runs; r++) {
            if (bt_kvt_post(
                    x,
                    pool + run_position(r, o->n_runs, o->run_bytes, SENDER) +
                        at,
                    r * o->run_bytes + at, bytes) != BT_OK) {
                die("bt_kvt_post");
            }
        }
    }
}

/** Runs one transfer. @return microseconds */
static uint64_t transfer(sender_t *s, order_t *o, uint64_t piece_bytes)
{
    static uint8_t desc[MAX_DESC];
    static char word[8];
    const uint64_t limit_ms = bt_now_ms() + LIMIT_MS;
    bt_kvt_xfer_t *x = NULL;
    bt_kvt_event_t event = {.type = BT_KVT_REGION_DONE};
    uint64_t start_us, end_us;
    size_t bytes;

    o->id = ++s->next_id;
    put(s->fd, o, sizeof(*o));
    bytes = get(s->fd, desc, sizeof(desc));

    start_us = bt_now_us();
    if (bt_kvt_prep(s->peer, desc, bytes, NULL, &x) != BT_OK) {
        die("bt_kvt_prep");
    }
    pieces_post(s, x, o, piece_bytes);
    if (bt_kvt_finish(x, "note", 4) != BT_OK) {
        die("bt_kvt_finish");
    }
    do {
        (void)bt_kvt_progress(s->kvt, bt_now_ms(), BUDGET);
        if (bt_now_ms() > limit_ms) {
            die("a transfer does not end at the sender");
        }
    } while (!bt_kvt_poll(s->kvt, &event) || (event.type == BT_KVT_PEER_UP));
    end_us = bt_now_us();

    if ((event.type != BT_KVT_XFER_DONE) || (event.status != BT_OK)) {
        die(bt_status_str(event.status));
    }
    bt_kvt_release(x);
    if (get(s->fd, word, sizeof(word)) != 2) {
        die("the receiver ended");
    }
    return end_us - start_us;
}

static void command(sender_t *s, size_t total, const char *line)
{
    static uint64_t times[MAX_TIMES];
    order_t o = {.fresh = 1};
    uint64_t piece, n;
    uint64_t n_pieces;

    if ((sscanf(line, "%" SCNu64 " %" SCNu64 " %" SCNu32 " %" SCNu64,
                &o.run_bytes, &piece, &o.checksums, &n) != 4) ||
        (o.run_bytes < 8) || (o.run_bytes % 8 != 0) || (o.run_bytes > total) ||
        (n == 0) || (n > MAX_TIMES)) {
        die("no such command");
    }
    o.n_runs = total / o.run_bytes;
    if (o.n_runs > BT_KVT_MAX_EXTENTS) {
        die("too many runs");
    }
    piece = ((piece == 0) || (piece > o.run_bytes)) ? o.run_bytes : piece;
    n_pieces = o.n_runs * ((o.run_bytes + piece - 1) / piece);
    o.pattern = s->next_id << 40;
    pattern_fill(bt_kvt_pool(s->kvt), &o);
    bt_kvt_test_unhashed(s->kvt, o.checksums == 0);

    (void)transfer(s, &o, piece);
    o.fresh = 0;
    for (uint64_t i = 0; i < n; i++) {
        o.compare = i + 1 == n;
        times[i] = transfer(s, &o, piece);
    }
    printf("%" PRIu64 " %" PRIu64, o.run_bytes * o.n_runs, n_pieces);
    for (uint64_t i = 0; i < n; i++) {
        printf(" %" PRIu64, times[i]);
    }
    printf("\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    sender_t s = {.next_id = 0};
    char line[256];
    size_t total, pool, bytes;
    int pair[2];
    pid_t child;

    if (argc != 5) {
        fprintf(stderr, "usage: kvtransfer-pair shm|network TOTAL_BYTES "
                        "SENDER_CORE RECEIVER_CORE\n");
        return 2;
    }
    bt_log_init("kvtransfer-pair", BT_LOG_LEVEL_WARN);
    total = strtoull(argv[2], NULL, 10);
    /* Runs of at least 16 KiB, each followed by its gap. */
    pool = total + total / 4 + GAP_BYTES;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) {
        die("socketpair");
    }
    child = fork();
    if (child < 0) {
        die("fork");
    }
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(pair[0]);
        pin((unsigned)strtoul(argv[4], NULL, 10));
        receiver_run(argv[1], pool, pair[1]);
    }
    close(pair[1]);
    pin((unsigned)strtoul(argv[3], NULL, 10));
    s.fd = pair[0];
    s.kvt = kvt_open(argv[1], SENDER, pool);
    bytes = get(s.fd, blob, sizeof(blob));
    if (bt_kvt_import(s.kvt, blob, bytes, NULL, &s.peer) != BT_OK) {
        die("bt_kvt_import");
    }
    while (fgets(line, sizeof(line), stdin) != NULL) {
        command(&s, total, line);
    }
    bt_kvt_close(s.kvt);
    close(s.fd);
    (void)waitpid(child, NULL, 0);
    return 0;
}
