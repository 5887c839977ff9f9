/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes over UCX, one of which is killed or stopped in the middle. The
 * other process is this program again, started with arguments. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "kvtransfer/kvt.h"
#include "tests/support/testsupport.h"
#include "tests/unit/kvtransfer/fds.h"
#include "tests/unit/kvtransfer/process.h"

#define POOL_BYTES  (16u << 20)
#define PIECE_BYTES 65536u
#define BUDGET      (1u << 20)
#define PARENT      1u
#define CHILD       2u
#define CANARY      0xa5
#define FILL        0x11

/* The time limits are long where they must not end a test on a busy machine,
 * and short where they are what is tested. */
#define LONG_MS  60000u
#define SHORT_MS 1500u

static bt_kvt_config_t config_of(const char *path, uint64_t instance)
{
    const bt_kvt_config_t config = {.transport = &bt_kvt_transport_ucx,
                                    .path = (strcmp(path, "shm") == 0)
                                                ? BT_KVT_PATH_SHM
                                                : BT_KVT_PATH_NETWORK,
                                    .pool_bytes = POOL_BYTES,
                                    .instance = instance,
                                    .keepalive_ms = 50,
                                    .dead_ms = LONG_MS,
                                    .quarantine_ms = LONG_MS};

    return config;
}

/* ---- the child ---- */

/* Says "ready" when it has said hello, and the status when its transfer is
 * over. Never finishes, unless @a finishes. */
static int child_sender(bt_kvt_t *kvt, bool finishes)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    static uint8_t source[PIECE_BYTES];
    bt_kvt_peer_t *peer = NULL;
    bt_kvt_xfer_t *xfer = NULL;
    bt_kvt_event_t event;
    uint64_t at = 0;
    size_t bytes = get(CHILD_IN, blob, sizeof(blob));

    memset(source, FILL, sizeof(source));
    if (bt_kvt_import(kvt, blob, bytes, NULL, &peer) != BT_OK) {
        return 6;
    }
    put(CHILD_OUT, "ready", 5);
    bytes = get(CHILD_IN, blob, sizeof(blob));
    if (bt_kvt_prep(peer, blob, bytes, NULL, &xfer) != BT_OK) {
        return 7;
    }
    for (;;) {
        if ((xfer != NULL) && (at < POOL_BYTES)) {
            /* Refused once the transfer is over: the event tells. */
            (void)!bt_kvt_post(xfer, source, at, PIECE_BYTES);
            at += PIECE_BYTES;
            if (finishes && (at == POOL_BYTES)) {
                (void)!bt_kvt_finish(xfer, "all", 3);
            }
        }
        (void)bt_kvt_progress(kvt, bt_now_ms(), 1);
        while (bt_kvt_poll(kvt, &event)) {
            if (event.type == BT_KVT_XFER_DONE) {
                bt_kvt_release(event.xfer);
                xfer = NULL;
                put(CHILD_OUT, &event.status, sizeof(event.status));
            }
        }
    }
}

/* Opens one region over all of its pool after the other; says its export, then
 * for each region the descriptor and at its end the status. */
static int child_receiver(bt_kvt_t *kvt)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    const bt_kvt_extent_t all = {.offset = 0, .bytes = POOL_BYTES};
    uint8_t desc[BT_KVT_DESC_BYTES(1)];
    bt_kvt_region_t *region = NULL;
    bt_kvt_event_t event;
    size_t bytes = 0;

    if ((bt_kvt_export(kvt, blob, sizeof(blob), &bytes) != BT_OK)) {
        return 6;
    }
    put(CHILD_OUT, blob, bytes);
    for (uint64_t id = 1;; id++) {
        if (bt_kvt_region_open(kvt, id, 1, PARENT, &all, 1, NULL, desc,
                               sizeof(desc), &bytes, &region) != BT_OK) {
            return 7;
        }
        put(CHILD_OUT, desc, bytes);
        while (region != NULL) {
            (void)bt_kvt_progress(kvt, bt_now_ms(), BUDGET);
            while (bt_kvt_poll(kvt, &event)) {
                if (event.type == BT_KVT_REGION_CLOSED) {
                    region = NULL;
                } else {
                    put(CHILD_OUT, &event.status, sizeof(event.status));
                    bt_kvt_region_close(region);
                }
            }
        }
    }
}

static int child_main(char **argv)
{
    const char *const role = argv[1];
    const bt_kvt_config_t config =
        config_of(argv[2], CHILD + strtoull(argv[3], NULL, 10));
    bt_kvt_t *kvt = NULL;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    bt_log_init("child", BT_LOG_LEVEL_WARN);
    if (bt_kvt_open(&config, &kvt) != BT_OK) {
        return 2;
    }
    return (strcmp(role, "receiver") == 0)
               ? child_receiver(kvt)
               : child_sender(kvt, strcmp(role, "finisher") == 0);
}

/* ---- the parent ---- */

/* This process, as receiver or as sender. */
typedef struct side {
    bt_kvt_t *kvt;
    child_t child;
    bt_kvt_region_t *region;
    bt_kvt_peer_t *peer;
    bt_kvt_xfer_t *xfer;
    int done, failed, closed, stuck, lost;
    int32_t stuck_pid;
    bt_status_t status; /* of the region or the transfer */
} side_t;

static void side_event(side_t *s, const bt_kvt_event_t *event)
{
    assert_ptr_equal(event->user, s);
    switch (event->type) {
    case BT_KVT_REGION_DONE:
        s->done++;
        break;
    case BT_KVT_REGION_FAILED:
        s->failed++;
        s->status = event->status;
        break;
    case BT_KVT_REGION_CLOSED:
        s->closed++;
        s->region = NULL;
        break;
    case BT_KVT_QUARANTINE_STUCK:
        s->stuck++;
        s->stuck_pid = event->pid;
        break;
    case BT_KVT_XFER_DONE:
        s->done++;
        s->status = event->status;
        bt_kvt_release(event->xfer);
        s->xfer = NULL;
        break;
    case BT_KVT_PEER_LOST:
        s->lost++;
        break;
    case BT_KVT_PEER_UP:
        break;
    }
}

static void side_pump(side_t *s, size_t budget)
{
    bt_kvt_event_t event;

    (void)bt_kvt_progress(s->kvt, bt_now_ms(), budget);
    while (bt_kvt_poll(s->kvt, &event)) {
        side_event(s, &event);
    }
}

#define UNTIL_BUDGET(s, budget, cond)                        \
    do {                                                     \
        const uint64_t start_ms_ = bt_now_ms();              \
        while (!(cond)) {                                    \
            side_pump(s, budget);                            \
            if (bt_now_ms() - start_ms_ > LIMIT_MS) {        \
                fail_msg("waited in vain for " #cond ", %s", \
                         child_state(&(s)->child));          \
            }                                                \
        }                                                    \
    } while (0)
#define UNTIL(s, cond) UNTIL_BUDGET(s, BUDGET, cond)

static uint64_t n_records(const side_t *s)
{
    bt_kvt_counters_t c;

    bt_kvt_counters(s->kvt, &c);
    return c.descriptors;
}

static void side_open(side_t *s, const bt_kvt_config_t *config)
{
    memset(s, 0, sizeof(*s));
    assert_int_equal(bt_kvt_open(config, &s->kvt), BT_OK);
}

static void side_close(side_t *s)
{
    bt_kvt_counters_t c;

    bt_kvt_counters(s->kvt, &c);
    assert_int_equal(c.regions_open, 0);
    assert_int_equal(c.regions_quarantined, 0);
    assert_int_equal(c.xfers_open, 0);
    bt_kvt_close(s->kvt);
}

/** Start a sender and open a region over the whole pool for it. */
static void sender_start(side_t *s, const char *role, const char *path,
                         unsigned nth)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    const bt_kvt_extent_t all = {.offset = 0, .bytes = POOL_BYTES};
    uint8_t desc[BT_KVT_DESC_BYTES(1)];
    size_t bytes = 0;

    assert_int_equal(bt_kvt_export(s->kvt, blob, sizeof(blob), &bytes), BT_OK);
    s->child = child_start(role, path, nth);
    put(s->child.to, blob, bytes);
    assert_int_equal(get(s->child.from, blob, sizeof(blob)), 5);
    s->failed = s->closed = s->done = 0;
    assert_int_equal(bt_kvt_region_open(s->kvt, 7 + nth, 1, CHILD + nth, &all,
                                        1, s, desc, sizeof(desc), &bytes,
                                        &s->region),
                     BT_OK);
    put(s->child.to, desc, bytes);
}

static void pool_fill(const side_t *s, uint8_t byte)
{
    memset(bt_kvt_pool(s->kvt), byte, POOL_BYTES);
}

static void pool_check(const side_t *s, uint8_t byte)
{
    const uint8_t *pool = bt_kvt_pool(s->kvt);

    for (size_t i = 0; i < POOL_BYTES; i++) {
        if (pool[i] != byte) {
            fail_msg("byte %zu is %#x, not %#x", i, pool[i], byte);
        }
    }
}

/* ---- senders ---- */

static void killed_senders(const char *path)
{
    const bt_kvt_config_t config = config_of(path, PARENT);
    unsigned nth = 0;
    unsigned fds;
    side_t s;

    side_open(&s, &config);
    fds = n_open_fds();
    /* 0: while it connects; then after more and more records. */
    for (uint64_t moment = 0; moment <= 12; moment += 3) {
        uint64_t before = n_records(&s);

        sender_start(&s, "sender", path, nth++);
        UNTIL(&s, n_records(&s) - before >= moment);
        child_end(&s.child);
        if (moment > 0) {
            UNTIL(&s, s.failed == 1);
            assert_int_equal(s.status, BT_ERR_PEER_LOST);
        } /* else: it may never have said hello, and only we end the region */
        bt_kvt_region_close(s.region);
        UNTIL(&s, s.closed == 1);
        assert_int_equal(s.stuck, 0);
        pool_fill(&s, CANARY);
        pool_check(&s, CANARY);
    }
    /* And the next one is served by the same process. */
    sender_start(&s, "finisher", path, nth);
    UNTIL(&s, s.done == 1);
    pool_check(&s, FILL);
    bt_kvt_region_close(s.region);
    UNTIL(&s, s.closed && readable(s.child.from, 0));
    assert_int_equal(get_status(s.child.from), BT_OK);
    child_end(&s.child);
    UNTIL(&s, n_open_fds() <= fds);
    side_close(&s);
}

static void sender_killed_mid_transfer_frees_the_region_shm(void **state)
{
    (void)state;
    killed_senders("shm");
}

static void sender_killed_mid_transfer_frees_the_region_network(void **state)
{
    (void)state;
    killed_senders("network");
}

/* An abort of UCX in the surviving process was seen here. */
static void
sender_killed_while_connecting_leaves_others_unaffected(void **state)
{
    static const char *const paths[] = {"network", "shm"};
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    size_t bytes = 0;

    (void)state;
    for (size_t k = 0; k < 2; k++) {
        const bt_kvt_config_t config = config_of(paths[k], PARENT);
        side_t s;

        side_open(&s, &config);
        assert_int_equal(bt_kvt_export(s.kvt, blob, sizeof(blob), &bytes),
                         BT_OK);
        for (int rounds = 0; rounds < 40; rounds += 4) {
            char word[8];

            s.child = child_start("sender", paths[k], (unsigned)rounds);
            put(s.child.to, blob, bytes);
            assert_int_equal(get(s.child.from, word, sizeof(word)), 5);
            for (int i = 0; i < rounds; i++) {
                side_pump(&s, BUDGET);
            }
            child_end(&s.child);
            for (int i = 0; i < 200; i++) {
                side_pump(&s, BUDGET);
            }
        }
        side_close(&s);
    }
}

static void stopped_sender_keeps_its_region_in_quarantine(void **state)
{
    bt_kvt_config_t config = config_of("shm", PARENT);
    side_t s;

    (void)state;
    config.quarantine_ms = SHORT_MS;
    side_open(&s, &config);
    sender_start(&s, "sender", "shm", 0);
    UNTIL(&s, n_records(&s) >= 5);
    child_stop(&s.child);
    bt_kvt_region_close(s.region);
    UNTIL(&s, s.stuck == 1);
    assert_int_equal(s.stuck_pid, s.child.pid);
    assert_int_equal(s.closed, 0);

    child_go_on(&s.child);
    UNTIL(&s, s.closed == 1);
    pool_fill(&s, CANARY);
    /* The sender knows: its transfer ended, and nothing comes after. */
    UNTIL(&s, readable(s.child.from, 0));
    assert_int_equal(get_status(s.child.from), BT_ERR_STALE);
    pool_check(&s, CANARY);
    assert_int_equal(s.stuck, 1);
    assert_int_equal(s.failed, 0);
    child_end(&s.child);
    side_close(&s);
}

static void killing_a_stopped_sender_ends_the_quarantine(void **state)
{
    bt_kvt_config_t config = config_of("shm", PARENT);
    side_t s;

    (void)state;
    config.quarantine_ms = SHORT_MS;
    side_open(&s, &config);
    sender_start(&s, "sender", "shm", 0);
    UNTIL(&s, n_records(&s) >= 5);
    child_stop(&s.child);
    bt_kvt_region_close(s.region);
    UNTIL(&s, s.stuck == 1);
    assert_int_equal(s.closed, 0);
    assert_int_equal(s.stuck_pid, s.child.pid);
    child_end(&s.child);
    UNTIL(&s, s.closed == 1);
    side_close(&s);
}

/* UCX, with put over TCP, aborted the sender that woke. */
static void silent_network_sender_is_lost(void **state)
{
    bt_kvt_config_t config = config_of("network", PARENT);
    side_t s;

    (void)state;
    config.dead_ms = SHORT_MS;
    side_open(&s, &config);
    sender_start(&s, "sender", "network", 0);
    UNTIL(&s, n_records(&s) >= 5);
    child_stop(&s.child);
    UNTIL(&s, s.failed == 1);
    assert_int_equal(s.status, BT_ERR_PEER_LOST);
    bt_kvt_region_close(s.region);
    UNTIL(&s, s.closed == 1);
    assert_int_equal(s.stuck, 0);
    pool_fill(&s, CANARY);

    child_go_on(&s.child);
    UNTIL(&s, readable(s.child.from, 0));
    assert_int_equal(get_status(s.child.from), BT_ERR_PEER_LOST);
    for (int i = 0; i < 1000; i++) {
        side_pump(&s, BUDGET);
    }
    pool_check(&s, CANARY);
    child_end(&s.child);
    side_close(&s);
}

/* ---- receivers ---- */

static uint8_t *source_create(void)
{
    uint8_t *source = bt_calloc(1, POOL_BYTES);

    assert_non_null(source);
    memset(source, FILL, POOL_BYTES);
    return source;
}

/** Import @a blob and begin a transfer into the child's next region. */
static void receiver_begin(side_t *s, const void *blob, size_t bytes)
{
    uint8_t desc[BT_KVT_DESC_BYTES(1)];
    size_t desc_bytes = get(s->child.from, desc, sizeof(desc));

    s->done = s->lost = 0;
    assert_int_equal(bt_kvt_import(s->kvt, blob, bytes, s, &s->peer), BT_OK);
    assert_int_equal(bt_kvt_prep(s->peer, desc, desc_bytes, s, &s->xfer),
                     BT_OK);
}

static void killed_receivers(const char *path)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    const bt_kvt_config_t config = config_of(path, PARENT);
    uint8_t *source = source_create();
    unsigned nth = 0;
    unsigned fds, maps;
    side_t s;

    side_open(&s, &config);
    fds = n_open_fds();
    maps = n_shared_maps();
    for (uint64_t moment = 0; moment < 16; moment += 5) {
        const uint64_t before = n_records(&s);
        size_t bytes;

        s.child = child_start("receiver", path, nth++);
        bytes = get(s.child.from, blob, sizeof(blob));
        receiver_begin(&s, blob, bytes);
        assert_string_equal(bt_kvt_peer_path(s.peer), path);
        assert_int_equal(bt_kvt_post(s.xfer, source, 0, POOL_BYTES), BT_OK);
        UNTIL_BUDGET(&s, 1, n_records(&s) - before >= moment);
        child_end(&s.child);
        UNTIL_BUDGET(&s, 1, (s.done == 1) && (s.lost == 1));
        assert_int_equal(s.status, BT_ERR_PEER_LOST);
        bt_kvt_peer_release(s.peer);
    }
    UNTIL(&s, n_open_fds() <= fds);
    assert_int_equal(n_shared_maps(), maps); /* nothing of the dead is kept */
    side_close(&s);
    bt_free(source);
}

static void killed_receiver_ends_transfers_shm(void **state)
{
    (void)state;
    killed_receivers("shm");
}

static void killed_receiver_ends_transfers_network(void **state)
{
    (void)state;
    killed_receivers("network");
}

static void silent_network_receiver_is_lost_and_reconnects(void **state)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    bt_kvt_config_t config = config_of("network", PARENT);
    uint8_t *source = source_create();
    size_t bytes;
    side_t s;

    (void)state;
    config.dead_ms = SHORT_MS;
    side_open(&s, &config);
    s.child = child_start("receiver", "network", 0);
    bytes = get(s.child.from, blob, sizeof(blob));
    receiver_begin(&s, blob, bytes);
    assert_int_equal(bt_kvt_post(s.xfer, source, 0, POOL_BYTES), BT_OK);
    UNTIL_BUDGET(&s, 1, n_records(&s) >= 3);
    child_stop(&s.child);
    UNTIL(&s, (s.done == 1) && (s.lost == 1));
    assert_int_equal(s.status, BT_ERR_PEER_LOST);
    bt_kvt_peer_release(s.peer);

    child_go_on(&s.child);
    UNTIL(&s, readable(s.child.from, 0));
    assert_int_equal(get_status(s.child.from), BT_ERR_PEER_LOST);
    for (int tries = 1;; tries++) {
        receiver_begin(&s, blob, bytes);
        assert_int_equal(bt_kvt_post(s.xfer, source, 0, POOL_BYTES), BT_OK);
        assert_int_equal(bt_kvt_finish(s.xfer, NULL, 0), BT_OK);
        UNTIL(&s, s.done == 1);
        if ((s.status == BT_OK) || (tries == 5)) {
            break;
        }
        /* On a loaded machine it may be silent for SHORT_MS again. */
        assert_int_equal(s.status, BT_ERR_PEER_LOST);
        bt_kvt_peer_release(s.peer);
        UNTIL(&s, readable(s.child.from, 0));
        (void)get_status(s.child.from);
    }
    assert_int_equal(s.status, BT_OK);
    assert_int_equal(get_status(s.child.from), BT_OK);
    child_end(&s.child);
    side_close(&s);
    bt_free(source);
}

/* Over shared memory only the end of the process counts. */
static void stopped_receiver_of_this_host_is_waited_for(void **state)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    bt_kvt_config_t config = config_of("shm", PARENT);
    uint8_t *source = source_create();
    uint64_t stopped_ms;
    size_t bytes;
    side_t s;

    (void)state;
    config.dead_ms = SHORT_MS;
    side_open(&s, &config);
    s.child = child_start("receiver", "shm", 0);
    bytes = get(s.child.from, blob, sizeof(blob));
    receiver_begin(&s, blob, bytes);
    assert_int_equal(bt_kvt_post(s.xfer, source, 0, POOL_BYTES), BT_OK);
    UNTIL_BUDGET(&s, 1, n_records(&s) >= 3);
    child_stop(&s.child);
    stopped_ms = bt_now_ms();
    assert_int_equal(bt_kvt_finish(s.xfer, NULL, 0), BT_OK);
    UNTIL(&s, bt_now_ms() - stopped_ms > SHORT_MS + SHORT_MS / 4);
    assert_int_equal(s.done + s.lost, 0);
    child_go_on(&s.child);
    UNTIL(&s, s.done == 1);
    assert_int_equal(s.status, BT_OK);
    assert_int_equal(get_status(s.child.from), BT_OK);
    child_end(&s.child);
    side_close(&s);
    bt_free(source);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(sender_killed_mid_transfer_frees_the_region_shm),
        BT_TEST(sender_killed_mid_transfer_frees_the_region_network),
        BT_TEST(sender_killed_while_connecting_leaves_others_unaffected),
        BT_TEST(stopped_sender_keeps_its_region_in_quarantine),
        BT_TEST(killing_a_stopped_sender_ends_the_quarantine),
        BT_TEST(silent_network_sender_is_lost),
        BT_TEST(killed_receiver_ends_transfers_shm),
        BT_TEST(killed_receiver_ends_transfers_network),
        BT_TEST(silent_network_receiver_is_lost_and_reconnects),
        BT_TEST(stopped_receiver_of_this_host_is_waited_for),
    };

    (void)signal(SIGPIPE, SIG_IGN);
    if (argc == 4) {
        return child_main(argv);
    }
    bt_log_init("test_kvt_process", BT_LOG_LEVEL_WARN);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
