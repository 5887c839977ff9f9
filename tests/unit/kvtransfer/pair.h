/* SPDX-License-Identifier: Apache-2.0 */
/** @file pair.h
 *
 * A sender and a receiver in one process, with books on every region and
 * transfer, for the tests of kvtransfer. What must always hold is checked
 * here: each ends exactly once, and no region is accepted with bytes other
 * than those posted.
 */
#ifndef BT_TESTS_UNIT_KVTRANSFER_PAIR_H
#define BT_TESTS_UNIT_KVTRANSFER_PAIR_H

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "kvtransfer/kvt.h"
#include "tests/support/kvt_mem.h"
#include "tests/support/testsupport.h"
#include "tests/unit/kvtransfer/fake_device.h"
#include "tests/unit/kvtransfer/hosts.h"

#define PAIR_SENDER      11u
#define PAIR_RECEIVER    22u
#define PAIR_MAX_TRACKS  1024
#define PAIR_MAX_EXTENTS 512
#define PAIR_BUDGET      (1u << 20)

/* The kinds by number; each_kind.h. */
enum {
    PAIR_MEM_SHM,
    PAIR_MEM_NETWORK,
    PAIR_UCX_SHM,
    PAIR_UCX_NETWORK,
    PAIR_UCX_HOSTS,
    PAIR_MEM_STAGED,
    PAIR_MEM_STAGED_SHM,
    PAIR_MEM_HOST_STAGED,
    PAIR_UCX_STAGED,
    PAIR_UCX_STAGED_SHM,
    PAIR_UCX_HOST_STAGED,
    PAIR_UCX_STAGED_NETWORK,
    PAIR_MEM_SHARED,
    PAIR_UCX_SHARED,
    PAIR_N_KINDS
};

typedef struct pair_kind {
    const char *name;
    const bt_kvt_transport_t *transport;
    bt_kvt_path_t path;
    const char *peer_path; /* what bt_kvt_peer_path() says */
    const char *device;
    bool hosts;                          /* each end on its own: hosts.h */
    bool staged_sender, staged_receiver; /* a pool in a fake device */
    bool shares;                         /* both: from device to device */
} pair_kind_t;

static const pair_kind_t pair_kinds[PAIR_N_KINDS] = {
    [PAIR_MEM_SHM] = {.name = "mem shm",
                      .transport = &bt_kvt_transport_mem,
                      .path = BT_KVT_PATH_AUTO,
                      .peer_path = "shm",
                      .device = "lo"},
    [PAIR_MEM_NETWORK] = {.name = "mem network",
                          .transport = &bt_kvt_transport_mem,
                          .path = BT_KVT_PATH_NETWORK,
                          .peer_path = "network",
                          .device = "lo"},
    [PAIR_UCX_SHM] = {.name = "ucx shm",
                      .transport = &bt_kvt_transport_ucx,
                      .path = BT_KVT_PATH_SHM,
                      .peer_path = "shm",
                      .device = "lo"},
    [PAIR_UCX_NETWORK] = {.name = "ucx network",
                          .transport = &bt_kvt_transport_ucx,
                          .path = BT_KVT_PATH_NETWORK,
                          .peer_path = "network",
                          .device = "lo"},
    [PAIR_UCX_HOSTS] = {.name = "ucx hosts",
                        .transport = &bt_kvt_transport_ucx,
                        .path = BT_KVT_PATH_NETWORK,
                        .peer_path = "network",
                        .device = HOSTS_DEVICE,
                        .hosts = true},
    [PAIR_MEM_STAGED] = {.name = "mem staged to staged",
                         .transport = &bt_kvt_transport_mem,
                         .path = BT_KVT_PATH_AUTO,
                         .peer_path = "network",
                         .device = "lo",
                         .staged_sender = true,
                         .staged_receiver = true},
    [PAIR_MEM_STAGED_SHM] = {.name = "mem staged to shm",
                             .transport = &bt_kvt_transport_mem,
                             .path = BT_KVT_PATH_AUTO,
                             .peer_path = "shm",
                             .device = "lo",
                             .staged_sender = true},
    [PAIR_MEM_HOST_STAGED] = {.name = "mem host to staged",
                              .transport = &bt_kvt_transport_mem,
                              .path = BT_KVT_PATH_AUTO,
                              .peer_path = "network",
                              .device = "lo",
                              .staged_receiver = true},
    [PAIR_UCX_STAGED] = {.name = "ucx staged to staged",
                         .transport = &bt_kvt_transport_ucx,
                         .path = BT_KVT_PATH_AUTO,
                         .peer_path = "network",
                         .device = "lo",
                         .staged_sender = true,
                         .staged_receiver = true},
    [PAIR_UCX_STAGED_SHM] = {.name = "ucx staged to shm",
                             .transport = &bt_kvt_transport_ucx,
                             .path = BT_KVT_PATH_AUTO,
                             .peer_path = "shm",
                             .device = "lo",
                             .staged_sender = true},
    [PAIR_UCX_HOST_STAGED] = {.name = "ucx host to staged",
                              .transport = &bt_kvt_transport_ucx,
                              .path = BT_KVT_PATH_AUTO,
                              .peer_path = "network",
                              .device = "lo",
                              .staged_receiver = true},
    [PAIR_UCX_STAGED_NETWORK] = {.name = "ucx staged to network",
                                 .transport = &bt_kvt_transport_ucx,
                                 .path = BT_KVT_PATH_NETWORK,
                                 .peer_path = "network",
                                 .device = "lo",
                                 .staged_sender = true},
    [PAIR_MEM_SHARED] = {.name = "mem device to device",
                         .transport = &bt_kvt_transport_mem,
                         .path = BT_KVT_PATH_AUTO,
                         .peer_path = "fake_ipc",
                         .device = "lo",
                         .staged_sender = true,
                         .staged_receiver = true,
                         .shares = true},
    [PAIR_UCX_SHARED] = {.name = "ucx device to device",
                         .transport = &bt_kvt_transport_ucx,
                         .path = BT_KVT_PATH_AUTO,
                         .peer_path = "fake_ipc",
                         .device = "lo",
                         .staged_sender = true,
                         .staged_receiver = true,
                         .shares = true},
};

/** Slots of staged pools each way; 0: as it comes. */
__attribute__((unused)) static uint32_t pair_n_slots;

/* One region and the transfer into it. */
typedef struct track {
    bt_kvt_region_t *region;
    bt_kvt_xfer_t *xfer;
    bt_kvt_extent_t extents[PAIR_MAX_EXTENTS];
    uint32_t n_extents;
    uint64_t bytes;
    const uint8_t *source; /* bytes posted, by region offset */
    const uint8_t *from;   /* the same for post(): of a device perhaps */
    uint8_t *desc;
    size_t desc_bytes;
    int done, failed, closed, stuck, xfer_done;
    bool closing;
    bool keep_open; /* do not close at the result */
    bt_status_t region_status, xfer_status;
    bt_kvt_event_t result; /* of the region */
    char note[64];
} track_t;

typedef struct pair {
    const pair_kind_t *kind;
    bt_kvt_mem_net_t *net;
    bt_kvt_t *sender, *receiver;
    bt_kvt_peer_t *peer;
    size_t pool_bytes;
    /* pool_bytes of pattern: owned; or behind the pool in the device. */
    uint8_t *source;
    const uint8_t *from; /* the same for post() */
    /* Staged: with as many bytes again behind the pool. */
    fake_device_t sender_device, receiver_device;
    uint64_t now_ms; /* mem: virtual; else the real time, but see pair_pump() */
    uint64_t real_ms; /* of the last round */
    bool still;       /* nothing happens for want of time: both are one thread,
                         and a busy machine may be slow to run it */
    int peers_lost, peers_up;
    bool reuses;     /* regions share bytes: no canaries after they closed */
    track_t *tracks; /* owned */
    uint32_t n_tracks;
} pair_t;

/** NULL: its pool is in the host's memory */
__attribute__((unused)) static const fake_device_t *
pair_device(const pair_t *pair, uint64_t instance)
{
    const fake_device_t *d = (instance == PAIR_SENDER) ? &pair->sender_device
                                                       : &pair->receiver_device;

    return (d->address == NULL) ? NULL : d;
}

/** The pool, as a test can read it. */
__attribute__((unused)) static uint8_t *pair_pool(const pair_t *pair,
                                                  uint64_t instance)
{
    const fake_device_t *d = pair_device(pair, instance);

    return (d != NULL)
               ? d->bytes
               : bt_kvt_pool((instance == PAIR_SENDER) ? pair->sender
                                                       : pair->receiver);
}

__attribute__((unused)) static bt_kvt_config_t pair_config(const pair_t *pair,
                                                           uint64_t instance)
{
    const fake_device_t *d = pair_device(pair, instance);
    bt_kvt_config_t config = {.transport = pair->kind->transport,
                              .path = pair->kind->path,
                              .net_device = pair->kind->device,
                              .pool_bytes = pair->pool_bytes,
                              .instance = instance,
                              .key = {0x6b, 0x65, 0x79},
                              .keepalive_ms = 100,
                              .dead_ms = 1000,
                              .quarantine_ms = 2000,
                              .transport_arg = pair->net};

    if (d != NULL) {
        config.memory = BT_KVT_MEMORY_STAGED;
        config.device.pool = d->address;
        config.device.copier = &d->copier;
        config.device.n_slots = pair_n_slots;
        config.device.spare_bytes = pair->kind->shares ? BT_KVT_PROBE_BYTES : 0;
    }
    return config;
}

/** From here on this thread makes the sockets of that end. */
__attribute__((unused)) static void pair_at(const pair_t *pair,
                                            uint64_t instance)
{
    if (pair->kind->hosts) {
        host_enter((instance == PAIR_SENDER) ? HOST_1 : HOST_2);
    }
}

__attribute__((unused)) static bt_status_t
pair_kvt_open(const pair_t *pair, uint64_t instance, bt_kvt_t **kvt_p)
{
    const bt_kvt_config_t config = pair_config(pair, instance);
    bt_status_t status;

    pair_at(pair, instance);
    host_devices_show();
    status = bt_kvt_open(&config, kvt_p);
    host_devices_hide();
    return status;
}

/** Put UCX's own thread where hosts.h wants it: it lives as long as anything is
 *  open. @return to be closed after the pair */
__attribute__((unused)) static bt_kvt_t *pair_observer(const pair_kind_t *kind)
{
    const pair_t pair = {.kind = kind, .pool_bytes = 4096};
    const bt_kvt_config_t config = pair_config(&pair, 999);
    bt_kvt_t *kvt = NULL;

    host_enter(HOST_OBSERVER);
    host_devices_show();
    assert_int_equal(bt_kvt_open(&config, &kvt), BT_OK);
    host_devices_hide();
    host_enter(HOST_OWN);
    return kvt;
}

__attribute__((unused)) static void pair_import(pair_t *pair)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    size_t bytes = 0;

    assert_int_equal(bt_kvt_export(pair->sender, blob, sizeof(blob), &bytes),
                     BT_OK);
    assert_int_equal(bt_kvt_admit(pair->receiver, blob, bytes), BT_OK);
    assert_int_equal(bt_kvt_export(pair->receiver, blob, sizeof(blob), &bytes),
                     BT_OK);
    pair_at(pair, PAIR_SENDER);
    assert_int_equal(
        bt_kvt_import(pair->sender, blob, bytes, pair, &pair->peer), BT_OK);
}

/** Where a device has as many bytes again behind the pool. */
static size_t source_at(const pair_kind_t *kind, size_t pool_bytes)
{
    return pool_bytes + (kind->shares ? BT_KVT_PROBE_BYTES : 0);
}

/** Before the two are opened. */
__attribute__((unused)) static void
pair_devices_open(pair_t *pair, const pair_kind_t *kind, size_t pool_bytes)
{
    const size_t bytes = source_at(kind, pool_bytes) + pool_bytes;

    if (kind->staged_sender) {
        fake_open(&pair->sender_device, bytes, 1);
    }
    if (kind->staged_receiver) {
        fake_open(&pair->receiver_device, bytes, 2);
    }
    if (kind->shares) {
        fake_shares(&pair->sender_device);
        fake_shares(&pair->receiver_device);
    }
}

__attribute__((unused)) static void pair_devices_close(pair_t *pair)
{
    fake_close(&pair->sender_device);
    fake_close(&pair->receiver_device);
}

__attribute__((unused)) static void
pair_open(pair_t *pair, const pair_kind_t *kind, size_t pool_bytes)
{
    memset(pair, 0, sizeof(*pair));
    pair->kind = kind;
    pair->pool_bytes = pool_bytes;
    pair->real_ms = bt_now_ms();
    pair->now_ms =
        (kind->transport == &bt_kvt_transport_mem) ? 1000 : pair->real_ms;
    pair_devices_open(pair, kind, pool_bytes);
    assert_int_equal(bt_kvt_mem_net_create(&pair->net), BT_OK);
    assert_int_equal(pair_kvt_open(pair, PAIR_SENDER, &pair->sender), BT_OK);
    assert_int_equal(pair_kvt_open(pair, PAIR_RECEIVER, &pair->receiver),
                     BT_OK);
    pair->tracks = bt_calloc(PAIR_MAX_TRACKS, sizeof(*pair->tracks));
    if (kind->staged_sender) {
        pair->source = pair->sender_device.bytes + source_at(kind, pool_bytes);
        pair->from = pair->sender_device.address + source_at(kind, pool_bytes);
    } else {
        pair->source = bt_calloc(pool_bytes, 1);
        pair->from = pair->source;
    }
    assert_non_null(pair->tracks);
    assert_non_null(pair->source);
    for (size_t i = 0; i < pool_bytes; i++) {
        pair->source[i] = (uint8_t)(1 + i * 7 + (i >> 8) * 13 + (i >> 16));
    }
    if (kind->staged_receiver) { /* for the other way */
        memcpy(pair->receiver_device.bytes + source_at(kind, pool_bytes),
               pair->source, pool_bytes);
    }
}

static void pair_canary(const pair_t *pair, const track_t *t, bool check);

__attribute__((unused)) static void pair_close(pair_t *pair)
{
    for (uint32_t i = 0; i < pair->n_tracks; i++) {
        if ((pair->tracks[i].closed > 0) && (pair->receiver != NULL)) {
            pair_canary(pair, &pair->tracks[i], true);
        }
    }
    bt_kvt_close(pair->sender);
    bt_kvt_close(pair->receiver);
    host_enter(HOST_OWN);
    bt_kvt_mem_net_destroy(pair->net);
    for (uint32_t i = 0; i < pair->n_tracks; i++) {
        bt_free(pair->tracks[i].desc);
    }
    bt_free(pair->tracks);
    if (!pair->kind->staged_sender) {
        bt_free(pair->source);
    }
    pair_devices_close(pair);
}

/** Open a region of @a n extents of @a bytes each, @a stride apart. */
__attribute__((unused)) static track_t *
pair_region(pair_t *pair, uint64_t id, uint64_t sender, uint64_t first,
            uint64_t bytes, uint64_t stride, uint32_t n)
{
    track_t *t = &pair->tracks[pair->n_tracks++];

    assert_true(pair->n_tracks <= PAIR_MAX_TRACKS);
    assert_true(n <= PAIR_MAX_EXTENTS);
    for (uint32_t i = 0; i < n; i++) {
        t->extents[i].offset = first + i * stride;
        t->extents[i].bytes = bytes;
    }
    t->n_extents = n;
    t->bytes = bytes * n;
    t->source = pair->source + id % 64;
    t->from = pair->from + id % 64;
    t->desc = bt_calloc(1, BT_KVT_DESC_BYTES(n));
    assert_non_null(t->desc);
    assert_int_equal(bt_kvt_region_open(pair->receiver, id, 1, sender,
                                        t->extents, n, t, t->desc,
                                        BT_KVT_DESC_BYTES(n), &t->desc_bytes,
                                        &t->region),
                     BT_OK);
    return t;
}

__attribute__((unused)) static bt_status_t pair_prep(pair_t *pair, track_t *t)
{
    return bt_kvt_prep(pair->peer, t->desc, t->desc_bytes, t, &t->xfer);
}

__attribute__((unused)) static bt_status_t
pair_post(track_t *t, uint64_t offset, uint64_t bytes)
{
    /* Some tests give offsets that are refused. */
    const void *data = (const void *)((uintptr_t)t->from + offset);

    return bt_kvt_post(t->xfer, data, offset, bytes);
}

__attribute__((unused)) static void pair_bytes_check(const pair_t *pair,
                                                     const track_t *t)
{
    const uint8_t *pool = pair_pool(pair, PAIR_RECEIVER);
    uint64_t at = 0;

    for (uint32_t i = 0; i < t->n_extents; i++) {
        assert_memory_equal(pool + t->extents[i].offset, t->source + at,
                            t->extents[i].bytes);
        at += t->extents[i].bytes;
    }
}

/** From REGION_CLOSED on the bytes are the receiver's alone. */
static void pair_canary(const pair_t *pair, const track_t *t, bool check)
{
    uint8_t *pool = pair_pool(pair, PAIR_RECEIVER);

    for (uint32_t i = 0; !pair->reuses && (i < t->n_extents); i++) {
        uint8_t *bytes = pool + t->extents[i].offset;

        if (!check) {
            memset(bytes, 0xa5, t->extents[i].bytes);
        }
        for (uint64_t k = 0; k < t->extents[i].bytes; k++) {
            if (bytes[k] != 0xa5) {
                fail_msg("%s: written after the region closed",
                         pair->kind->name);
            }
        }
    }
}

static void pair_receiver_event(pair_t *pair, const bt_kvt_event_t *event)
{
    track_t *t = event->user;

    switch (event->type) {
    case BT_KVT_REGION_DONE:
        assert_int_equal(event->status, BT_OK);
        assert_int_equal(event->bytes, t->bytes);
        pair_bytes_check(pair, t);
        t->done++;
        break;
    case BT_KVT_PEER_UP: /* both may send */
        return;
    case BT_KVT_REGION_FAILED:
        assert_int_not_equal(event->status, BT_OK);
        t->failed++;
        break;
    case BT_KVT_REGION_CLOSED:
        assert_true(t->closing);
        t->closed++;
        t->region = NULL;
        pair_canary(pair, t, false);
        break;
    case BT_KVT_QUARANTINE_STUCK:
        t->stuck++;
        break;
    default:
        fail_msg("event %d at the receiver", (int)event->type);
    }
    assert_true(t->done + t->failed <= 1);
    assert_true(t->closed <= 1);
    if ((event->type == BT_KVT_REGION_DONE) ||
        (event->type == BT_KVT_REGION_FAILED)) {
        assert_false(t->closing);
        t->region_status = event->status;
        t->result = *event;
        snprintf(t->note, sizeof(t->note), "%.*s", (int)event->note_bytes,
                 (event->note == NULL) ? "" : (const char *)event->note);
        if (!t->keep_open) {
            t->closing = true;
            bt_kvt_region_close(event->region);
        }
    }
}

static void pair_sender_event(pair_t *pair, const bt_kvt_event_t *event)
{
    track_t *t = event->user;

    if (event->type == BT_KVT_PEER_LOST) {
        pair->peers_lost++;
        return;
    }
    if (event->type == BT_KVT_PEER_UP) {
        pair->peers_up++;
        return;
    }
    assert_int_equal(event->type, BT_KVT_XFER_DONE);
    assert_ptr_equal(event->xfer, t->xfer);
    t->xfer_done++;
    assert_int_equal(t->xfer_done, 1);
    t->xfer_status = event->status;
    bt_kvt_release(event->xfer);
    t->xfer = NULL;
}

__attribute__((unused)) static uint64_t pair_clock_ms(const pair_t *pair)
{
    return (pair->kind->transport == &bt_kvt_transport_mem) ? pair->now_ms
                                                            : bt_now_ms();
}

/** One round of both, which takes a millisecond at most by their clock: where
 *  others have the processor a round may take hundreds, and who was not asked
 * in them is not silent. @return true when either has more to do. */
__attribute__((unused)) static bool pair_pump(pair_t *pair)
{
    bt_kvt_event_t event;
    bool more = false;

    if (!pair->still) {
        const uint64_t real_ms = bt_now_ms();

        pair->now_ms += (pair->kind->transport == &bt_kvt_transport_mem) ||
                        (real_ms > pair->real_ms);
        pair->real_ms = real_ms;
    }
    if (pair->sender != NULL) {
        pair_at(pair, PAIR_SENDER);
        more = bt_kvt_progress(pair->sender, pair->now_ms, PAIR_BUDGET);
        while (bt_kvt_poll(pair->sender, &event)) {
            pair_sender_event(pair, &event);
        }
    }
    if (pair->receiver != NULL) {
        pair_at(pair, PAIR_RECEIVER);
        more =
            bt_kvt_progress(pair->receiver, pair->now_ms, PAIR_BUDGET) || more;
        while (bt_kvt_poll(pair->receiver, &event)) {
            pair_receiver_event(pair, &event);
        }
    }
    return more;
}

/** Longest wait by the pair's clock. The real one goes on while others have the
 *  processor: there it guards against hanging alone. */
__attribute__((unused)) static uint64_t pair_patience_ms(const pair_t *pair)
{
    return (pair->kind->transport == &bt_kvt_transport_mem) ? 10000 : 60000;
}

#define PAIR_IDLE_ROUNDS 500u /* some milliseconds */

/** One round of a wait. Who waits for a time to pass, and not for the other end
 *  alone, leaves the processor to others meanwhile. */
__attribute__((unused)) static void pair_wait(pair_t *pair, uint32_t *idle_p)
{
    *idle_p = pair_pump(pair) ? 0 : *idle_p + 1;
    if ((*idle_p > PAIR_IDLE_ROUNDS) &&
        (pair->kind->transport != &bt_kvt_transport_mem)) {
        (void)usleep(200);
    }
}

/** Pump until @a cond. */
#define PAIR_UNTIL(pair, cond)                                                 \
    do {                                                                       \
        const uint64_t start_ms_ = pair_clock_ms(pair);                        \
        uint32_t idle_ = 0;                                                    \
        while (!(cond)) {                                                      \
            pair_wait(pair, &idle_);                                           \
            if (pair_clock_ms(pair) - start_ms_ > pair_patience_ms(pair)) {    \
                fail_msg("%s: waited in vain for " #cond, (pair)->kind->name); \
            }                                                                  \
        }                                                                      \
    } while (0)

/** Nothing open on either side. */
__attribute__((unused)) static void pair_assert_empty(const pair_t *pair)
{
    bt_kvt_counters_t c;

    if (pair->receiver != NULL) {
        bt_kvt_counters(pair->receiver, &c);
        assert_int_equal(c.regions_open, 0);
        assert_int_equal(c.regions_quarantined, 0);
        assert_int_equal(c.stage_slots, 0);
    }
    if (pair->sender != NULL) {
        bt_kvt_counters(pair->sender, &c);
        assert_int_equal(c.xfers_open, 0);
        assert_int_equal(c.stage_slots, 0);
    }
}

#endif
