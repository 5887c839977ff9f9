/* SPDX-License-Identifier: Apache-2.0 */
/* One whole hand-over over the scripted transport, and again with something
 * going wrong at each of its steps: every packet or copy is lost, doubled,
 * overtaken, held up, altered or the last that passes, and each end dies or is
 * stopped before each of its calls of kvt.h. Whatever happens:
 *
 *   - both ends are through within LEASE_MS and a bound, and what the dead had
 *     is free within a second of the death;
 *   - no region is reported done with other bytes than those sent, none changes
 *     afterwards, nothing is written beside it or after it closed;
 *   - regions, transfers, memory and descriptors come back;
 *   - whoever survived goes on at once with another peer, and with the same one
 *     if that lives.
 *
 *      p1 ══ the one that is disturbed ══▶ d1
 *      p1 ── afterwards ──▶ d2     p2 ── afterwards ──▶ d1
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "kvtransfer/kvt.h"
#include "kvtransfer/kvt_core.h"
#include "tests/support/kvt_mem.h"
#include "tests/support/testsupport.h"
#include "tests/unit/kvtransfer/fake_device.h"
#include "tests/unit/kvtransfer/fds.h"

/* Virtual milliseconds; one is a round. */
#define KEEPALIVE_MS  20u
#define DEAD_MS       100u
#define QUARANTINE_MS 200u
#define LEASE_MS      1000u
#define TOLD_MS       20u /* a broken control link is seen */
#define PAUSE_MS      30u
#define COMA_MS       150u /* more than DEAD_MS */
#define BOUND_MS      (LEASE_MS + QUARANTINE_MS + DEAD_MS + COMA_MS + 100u)
#define FREE_MS       1000u

#define N_ALLOCS   100u
#define POOL_BYTES 16384u
#define N_EXTENTS  6u
#define N_BYTES    3072u
#define N_PIECES   4u
#define MAX_BLOB   4096u
#define N_SOURCES  8u /* in a device, behind the pool */
#define N_SLOTS    2u

enum { P1, P2, D1, D2, N_ENDS };

typedef struct end {
    bt_kvt_t *kvt;
    uint64_t instance;
    bool dead, stopped;
    uint64_t died_ms, go_on_ms;
    uint32_t n_calls;
    fake_device_t device; /* staged only */
} end_t;

typedef enum what {
    NOTHING,
    PACKET,    /* fault at a step of the transport */
    NO_MEMORY, /* the step-th allocation fails */
    COPY,      /* the step-th copy of the device of one end fails */
    REFUSAL,   /* ...at once */
    DIE,       /* the rest: before a call of one end */
    PAUSE,
    COMA,
} what_t;

typedef struct disturbance {
    what_t what;
    bt_kvt_mem_fault_t fault;
    uint32_t end;
    uint32_t step; /* from 1 */
} disturbance_t;

typedef struct handover {
    end_t *p, *d;
    uint64_t id;
    uint64_t start_ms;
    uint8_t own_source[N_BYTES], sent[N_BYTES];
    uint8_t *source;     /* where that is, for the test... */
    const uint8_t *from; /* ...and for post() */
    bt_kvt_extent_t extents[N_EXTENTS];
    uint8_t blob[MAX_BLOB], desc[BT_KVT_DESC_BYTES(N_EXTENTS)];
    size_t blob_bytes, desc_bytes;
    uint32_t p_step, d_step;
    bool over; /* nothing new is begun */
    bt_kvt_peer_t *peer;
    bt_kvt_xfer_t *xfer;
    bt_kvt_region_t *region;
    bool close_wanted, closing, release_wanted, cancelled;
    uint32_t n_done, n_failed, n_closed, n_xfer_done;
    uint64_t done_ms, closed_ms;
    bt_status_t xfer_status;
} handover_t;

static struct {
    bt_kvt_mem_net_t *net;
    bt_kvt_path_t path;
    bool staged_p, staged_d;
    uint64_t now_ms, next_id;
    end_t ends[N_ENDS];
    disturbance_t plan;
} world;

/* ---- lives ---- */

static void end_dies(end_t *e)
{
    if (e->dead) {
        return;
    }
    e->dead = true;
    e->died_ms = world.now_ms;
    if (e->kvt != NULL) {
        bt_kvt_mem_net_kill(world.net, e->instance);
    }
}

static void end_stops(end_t *e, uint64_t ms)
{
    e->stopped = true;
    e->go_on_ms = world.now_ms + ms;
    if (e->kvt != NULL) {
        bt_kvt_mem_net_stop(world.net, e->instance, true);
    }
}

/** Counts a call of kvt.h that @a e is about to make.
 *  @return false when it cannot: it is dead or stopped */
static bool may(end_t *e)
{
    const disturbance_t *plan = &world.plan;

    if (!e->dead && (e->kvt != NULL) &&
        bt_kvt_mem_net_is_dead(world.net, e->instance)) {
        end_dies(e); /* by a fault of the transport */
    }
    if (e->dead || e->stopped) {
        return false;
    }
    e->n_calls++;
    if ((plan->what < DIE) || (e != &world.ends[plan->end]) ||
        (e->n_calls != plan->step)) {
        return true;
    }
    if (plan->what == DIE) {
        end_dies(e);
    } else {
        end_stops(e, (plan->what == PAUSE) ? PAUSE_MS : COMA_MS);
    }
    return false;
}

static bt_status_t end_open(end_t *e)
{
    bt_kvt_config_t config = {.transport = &bt_kvt_transport_mem,
                              .path = world.path,
                              .pool_bytes = POOL_BYTES,
                              .instance = e->instance,
                              .keepalive_ms = KEEPALIVE_MS,
                              .dead_ms = DEAD_MS,
                              .quarantine_ms = QUARANTINE_MS,
                              .transport_arg = world.net};

    bt_status_t status = BT_OK;

    if (e->device.address != NULL) {
        config.memory = BT_KVT_MEMORY_STAGED;
        config.device.pool = e->device.address;
        config.device.copier = &e->device.copier;
        config.device.n_slots = N_SLOTS;
    }
    if (e->kvt == NULL) {
        status = bt_kvt_open(&config, &e->kvt);
        e->instance += (status == BT_OK) ? 0 : 10; /* the next life */
    }
    return status;
}

/* ---- one hand-over ---- */

/** After anything but success nothing new is begun. Memory may be short only
 *  where the plan says so. */
static void take_status(handover_t *h, bt_status_t status)
{
    if (status == BT_OK) {
        return;
    }
    assert_true(
        (status == BT_ERR_PEER_LOST) || (status == BT_ERR_CANCELED) ||
        (status == BT_ERR_STALE) ||
        ((status == BT_ERR_NO_MEMORY) && (world.plan.what == NO_MEMORY)));
    h->over = true;
    h->close_wanted = true;
}

static void handover_init(handover_t *h, uint32_t p, uint32_t d)
{
    memset(h, 0, sizeof(*h));
    h->p = &world.ends[p];
    h->d = &world.ends[d];
    h->id = world.next_id++;
    h->start_ms = world.now_ms;
    h->source = h->own_source;
    h->from = h->own_source;
    if (world.staged_p) {
        const size_t at = POOL_BYTES + (h->id % N_SOURCES) * N_BYTES;

        h->source = h->p->device.bytes + at;
        h->from = h->p->device.address + at;
    }
    for (uint32_t i = 0; i < N_BYTES; i++) {
        h->source[i] = (uint8_t)(1 + h->id * 31 + i * 7 + (i >> 8) * 13);
    }
    memcpy(h->sent, h->source, N_BYTES);
    /* Two neighbours, then one apart each; another place for each id. */
    for (uint32_t i = 0; i < N_EXTENTS; i++) {
        h->extents[i].offset =
            (h->id % 2) * (POOL_BYTES / 2) + ((i == 0) ? 512u : i * 1024u);
        h->extents[i].bytes = N_BYTES / N_EXTENTS;
    }
}

static uint8_t *pool_of(const end_t *e)
{
    return (e->device.address != NULL) ? e->device.bytes : bt_kvt_pool(e->kvt);
}

static void bytes_check(const handover_t *h)
{
    const uint8_t *pool = pool_of(h->d);

    for (uint32_t i = 0; i < N_EXTENTS; i++) {
        assert_memory_equal(pool + h->extents[i].offset,
                            h->sent + i * (N_BYTES / N_EXTENTS),
                            N_BYTES / N_EXTENTS);
    }
}

static void d_acts(handover_t *h)
{
    end_t *d = h->d;
    bt_status_t status;

    if (h->region != NULL) {
        /* Some rounds after it is done: nothing may change any more. */
        if (h->close_wanted && !h->closing &&
            ((h->n_done == 0) || h->over ||
             (world.now_ms - h->done_ms >= 10)) &&
            may(d)) {
            if (h->n_done > 0) {
                bytes_check(h);
            }
            h->closing = true;
            bt_kvt_region_close(h->region);
        }
        return;
    }
    if (h->over || (h->d_step >= 3) || !may(d)) {
        return;
    }
    switch (h->d_step++) {
    case 0:
        status = end_open(d);
        break;
    case 1:
        status = bt_kvt_export(d->kvt, h->blob, MAX_BLOB, &h->blob_bytes);
        break;
    default:
        status = bt_kvt_region_open(
            d->kvt, h->id, 1, h->p->instance, h->extents, N_EXTENTS, h, h->desc,
            sizeof(h->desc), &h->desc_bytes, &h->region);
        break;
    }
    take_status(h, status);
}

static void p_posts(handover_t *h, uint32_t piece)
{
    /* Of unequal length, across extents, not in order. */
    static const uint32_t ends[N_PIECES + 1] = {0, 700, 1024, 2500, N_BYTES};
    const uint32_t i = piece ^ 1u;

    take_status(h, bt_kvt_post(h->xfer, h->from + ends[i], ends[i],
                               ends[i + 1] - ends[i]));
}

static void p_begins(handover_t *h)
{
    end_t *p = h->p;
    bt_status_t status;

    if (h->p_step == 0) {
        status = end_open(p);
    } else if (h->p_step == 1) {
        status = bt_kvt_import(p->kvt, h->blob, h->blob_bytes, h, &h->peer);
    } else {
        status = bt_kvt_prep(h->peer, h->desc, h->desc_bytes, h, &h->xfer);
    }
    h->p_step++;
    take_status(h, status);
}

static void p_acts(handover_t *h)
{
    end_t *p = h->p;

    if (h->release_wanted) {
        if (may(p)) {
            bt_kvt_release(h->xfer);
            h->xfer = NULL;
            h->release_wanted = false;
        }
        return;
    }
    if (h->over) {
        if ((h->xfer != NULL) && !h->cancelled && may(p)) {
            h->cancelled = true;
            bt_kvt_cancel(h->xfer);
        }
        return;
    }
    if (((h->p_step == 1) && (h->blob_bytes == 0)) ||
        ((h->p_step == 2) && (h->desc_bytes == 0)) ||
        ((h->p_step >= 3) && (h->xfer == NULL)) || (h->p_step > 3 + N_PIECES) ||
        !may(p)) {
        return;
    }
    if (h->p_step < 3) {
        p_begins(h);
    } else if (h->p_step < 3 + N_PIECES) {
        p_posts(h, h->p_step++ - 3);
    } else {
        take_status(h, bt_kvt_finish(h->xfer, "note", 4));
        h->p_step++;
    }
}

static void canary(const handover_t *h, bool check)
{
    uint8_t *pool = pool_of(h->d);

    for (uint32_t i = 0; i < N_EXTENTS; i++) {
        for (uint64_t k = 0; k < h->extents[i].bytes; k++) {
            if (!check) {
                pool[h->extents[i].offset + k] = 0xa5;
            } else if (pool[h->extents[i].offset + k] != 0xa5) {
                fail_msg("written after the region closed");
            }
        }
    }
}

static void take_event(end_t *e, const bt_kvt_event_t *event)
{
    handover_t *h = event->user;

    switch (event->type) {
    case BT_KVT_REGION_DONE:
        bytes_check(h);
        assert_int_equal(event->note_bytes, 4);
        assert_memory_equal(event->note, "note", 4);
        h->n_done++;
        h->done_ms = world.now_ms;
        h->close_wanted = true;
        break;
    case BT_KVT_REGION_FAILED:
        h->n_failed++;
        h->close_wanted = true;
        break;
    case BT_KVT_REGION_CLOSED:
        h->n_closed++;
        h->closed_ms = world.now_ms;
        h->region = NULL;
        canary(h, false);
        break;
    case BT_KVT_QUARANTINE_STUCK:
        end_dies(h->p); /* as the launcher does */
        break;
    case BT_KVT_XFER_DONE:
        h->n_xfer_done++;
        h->xfer_status = event->status;
        h->release_wanted = true;
        memset(h->source, 0xee, N_BYTES); /* ours again */
        break;
    case BT_KVT_PEER_LOST:
    case BT_KVT_PEER_UP:
        assert_ptr_equal(e, h->p);
        break;
    }
    assert_true(h->n_done + h->n_failed <= 1);
    assert_true((h->n_closed <= 1) && (h->n_xfer_done <= 1));
}

static void end_pump(end_t *e)
{
    bt_kvt_event_t event;

    if (e->stopped && !e->dead && (world.now_ms >= e->go_on_ms)) {
        e->stopped = false;
        if (e->kvt != NULL) {
            bt_kvt_mem_net_stop(world.net, e->instance, false);
        }
    }
    if ((e->kvt == NULL) || !may(e)) {
        return;
    }
    (void)bt_kvt_progress(e->kvt, world.now_ms, 1u << 20);
    while (may(e) && bt_kvt_poll(e->kvt, &event)) {
        take_event(e, &event);
    }
}

static bool p_through(const handover_t *h)
{
    return h->p->dead || ((h->xfer == NULL) && (h->over || h->n_xfer_done));
}

static bool d_through(const handover_t *h)
{
    return h->d->dead || ((h->region == NULL) && (h->over || h->n_closed));
}

/** What their owners hear by other ways: a broken control link, the time. */
static void owners_look(handover_t *h)
{
    const uint64_t now = world.now_ms;

    if ((now - h->start_ms >= LEASE_MS) ||
        (h->p->dead && (now - h->p->died_ms >= TOLD_MS)) ||
        (h->d->dead && (now - h->d->died_ms >= TOLD_MS))) {
        h->over = true;
        h->close_wanted = true;
    }
}

static void handover_release(handover_t *h)
{
    if ((h->peer != NULL) && may(h->p)) {
        bt_kvt_peer_release(h->peer);
        h->peer = NULL;
    }
}

static void handover_run(handover_t *h)
{
    while (!p_through(h) || !d_through(h)) {
        world.now_ms++;
        if (world.now_ms - h->start_ms > BOUND_MS) {
            fail_msg("not over after %u ms: sender %s receiver %s", BOUND_MS,
                     p_through(h) ? "through" : "hangs",
                     d_through(h) ? "through" : "hangs");
        }
        owners_look(h);
        p_acts(h);
        d_acts(h);
        for (uint32_t i = 0; i < N_ENDS; i++) {
            end_pump(&world.ends[i]);
        }
    }
    if (h->p->dead && !h->d->dead && (h->n_closed > 0) &&
        (h->closed_ms > h->p->died_ms)) {
        assert_true(h->closed_ms - h->p->died_ms <= FREE_MS);
    }
    handover_release(h);
}

/* ---- what must be true at the end ---- */

static void end_check_empty(const end_t *e)
{
    bt_kvt_counters_t c;

    if (e->dead || (e->kvt == NULL)) {
        return;
    }
    bt_kvt_counters(e->kvt, &c);
    assert_int_equal(c.regions_open, 0);
    assert_int_equal(c.regions_quarantined, 0);
    assert_int_equal(c.xfers_open, 0);
    assert_int_equal(c.peers, 0);
    assert_int_equal(c.stage_slots, 0);
}

/** Nothing beside the extents was ever written. */
static void rest_check(const handover_t *h)
{
    const uint8_t *pool = pool_of(h->d);

    for (uint32_t at = 0; at < POOL_BYTES; at++) {
        const uint32_t slot = at % (POOL_BYTES / 2);
        const bool inside = (slot >= 512) && (slot < 6 * 1024) &&
                            ((slot < 1024) || (slot % 1024 < 512));

        if (!inside && (pool[at] != 0)) {
            fail_msg("byte %u beside the region was written", at);
        }
    }
}

static void handover_check(const handover_t *h)
{
    if (!h->d->dead && (h->d->kvt != NULL)) {
        if (h->n_closed > 0) {
            canary(h, true);
        }
        rest_check(h);
    }
}

static bool handover_good(const handover_t *h)
{
    return (h->n_done == 1) && (h->n_closed == 1) && (h->n_xfer_done == 1) &&
           (h->xfer_status == BT_OK);
}

static void rounds(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        world.now_ms++;
        for (uint32_t k = 0; k < N_ENDS; k++) {
            end_pump(&world.ends[k]);
        }
    }
}

/** Whoever lives goes on. */
static void afterwards(handover_t *first)
{
    static handover_t other[2], again;

    world.plan.what = NOTHING;
    bt_kvt_mem_net_fault(world.net, 0, BT_KVT_MEM_NONE);
    bt_kvt_mem_net_heal(world.net);
    bt_alloc_fail_at(0);
    rounds(COMA_MS + 2); /* whoever is stopped comes back */
    handover_release(first);
    if (!first->p->dead) {
        handover_init(&other[0], P1, D2);
        handover_run(&other[0]);
        assert_true(handover_good(&other[0]));
    }
    if (!first->d->dead) {
        handover_init(&other[1], P2, D1);
        handover_run(&other[1]);
        assert_true(handover_good(&other[1]));
    }
    for (int i = 0; (i < 3) && !first->p->dead && !first->d->dead; i++) {
        handover_init(&again, P1, D1);
        again.id = 9; /* the same bytes */
        handover_run(&again);
        if (handover_good(&again)) {
            break;
        }
        /* One end may have to find out first that the link was lost. */
        assert_true(i < 2);
        rounds(DEAD_MS);
    }
}

typedef struct steps {
    uint32_t n_packets, n_calls[N_ENDS], n_copies[N_ENDS];
    bool good;
} steps_t;

/* What is disturbed: path and memory. */
typedef struct place {
    const char *name;
    bt_kvt_path_t path;
    bool staged_p, staged_d;
} place_t;

static void world_make(const place_t *place, const disturbance_t *plan)
{
    memset(&world, 0, sizeof(world));
    world.path = place->path;
    world.staged_p = place->staged_p;
    world.staged_d = place->staged_d;
    world.now_ms = 1000;
    world.next_id = 1;
    world.plan = *plan;
    assert_int_equal(bt_kvt_mem_net_create(&world.net), BT_OK);
    for (uint32_t i = 0; i < N_ENDS; i++) {
        end_t *e = &world.ends[i];

        e->instance = 100 + i;
        if ((i <= P2) ? world.staged_p : world.staged_d) {
            fake_open(&e->device, POOL_BYTES + N_SOURCES * N_BYTES, i);
        }
    }
    if ((plan->what == COPY) || (plan->what == REFUSAL)) {
        world.ends[plan->end].device.fail_at = plan->step;
        world.ends[plan->end].device.refuses = plan->what == REFUSAL;
    }
}

static steps_t run(const place_t *place, const disturbance_t *plan)
{
    static handover_t h;
    steps_t steps = {0};

    world_make(place, plan);
    bt_kvt_mem_net_fault(world.net, (plan->what == PACKET) ? plan->step : 0,
                         plan->fault);
    handover_init(&h, P1, D1);
    bt_alloc_fail_at((plan->what == NO_MEMORY) ? (int)plan->step : 0);
    handover_run(&h);
    steps.good = handover_good(&h);
    steps.n_packets = bt_kvt_mem_net_steps(world.net);
    for (uint32_t i = 0; i < N_ENDS; i++) {
        steps.n_calls[i] = world.ends[i].n_calls;
        steps.n_copies[i] = world.ends[i].device.n_begun;
    }
    handover_check(&h);
    afterwards(&h);
    for (uint32_t i = 0; i < N_ENDS; i++) {
        end_check_empty(&world.ends[i]);
    }
    for (uint32_t i = 0; i < N_ENDS; i++) {
        bt_kvt_close(world.ends[i].kvt);
        fake_close(&world.ends[i].device);
    }
    bt_kvt_mem_net_destroy(world.net);
    return steps;
}

static const char *const fault_names[BT_KVT_MEM_N_FAULTS] = {
    [BT_KVT_MEM_LOSE] = "lost",
    [BT_KVT_MEM_DUPLICATE] = "doubled",
    [BT_KVT_MEM_REORDER] = "overtaken",
    [BT_KVT_MEM_DELAY] = "held up",
    [BT_KVT_MEM_CORRUPT] = "altered",
    [BT_KVT_MEM_KILL_FROM] = "death of who sends it",
    [BT_KVT_MEM_KILL_TO] = "death of who gets it",
    [BT_KVT_MEM_CUT] = "the link is cut",
};

typedef struct books {
    size_t memory;
    unsigned fds;
    uint32_t n_runs, n_whole;
} books_t;

/** Bytes allocated. Memory that malloc keeps per thread counts as allocated, so
 *  this is exact only without (see meson.build); else AddressSanitizer tells.
 */
static size_t memory_now(void)
{
    return (getenv("GLIBC_TUNABLES") == NULL) ? 0 : mallinfo2().uordblks;
}

static void run_counted(const place_t *place, const disturbance_t *plan,
                        books_t *books)
{
    books->n_whole += run(place, plan).good;
    books->n_runs++;
    assert_int_equal(memory_now(), books->memory);
    assert_int_equal(n_open_fds(), books->fds);
}

/** A copy of either end's device fails: the hand-over does. */
static void every_copy(const place_t *place, const steps_t *steps,
                       books_t *books)
{
    static const uint32_t ends[] = {P1, D1};
    const uint32_t whole = books->n_whole;
    const uint32_t n_runs = books->n_runs;

    for (size_t i = 0; i < 2; i++) {
        for (uint32_t step = 1; step <= 2 * steps->n_copies[ends[i]]; step++) {
            const disturbance_t plan = {.what = (step % 2) ? COPY : REFUSAL,
                                        .end = ends[i],
                                        .step = (step + 1) / 2};

            run_counted(place, &plan, books);
        }
    }
    assert_int_equal(books->n_whole, whole);
    printf("  each copy of a device fails, late or at once: %u runs\n",
           books->n_runs - n_runs);
}

static unsigned long n_logged(void)
{
    return bt_log_count(BT_LOG_LEVEL_WARN) + bt_log_count(BT_LOG_LEVEL_ERROR);
}

static void every_step(const place_t *place)
{
    static const char *const call_names[] = {
        [DIE] = "death", [PAUSE] = "a pause", [COMA] = "a long stop"};
    const disturbance_t none = {.what = NOTHING};
    const unsigned long before = n_logged();
    books_t books = {0};
    steps_t steps;

    steps = run(place, &none); /* what the libraries keep is kept from here */
    assert_true(steps.good);
    printf("%s: a hand-over is %u packets and copies, %u calls of the sender, "
           "%u of the receiver\n",
           place->name, steps.n_packets, steps.n_calls[P1], steps.n_calls[D1]);
    books.memory = memory_now();
    books.fds = n_open_fds();
    assert_true((steps.n_packets >= 10) && (steps.n_calls[P1] > 20) &&
                (steps.n_calls[D1] > 20));
    assert_int_equal(steps.n_copies[P1] >= N_PIECES, place->staged_p);
    assert_int_equal(steps.n_copies[D1] >= N_PIECES, place->staged_d);
    every_copy(place, &steps, &books);

    for (int fault = BT_KVT_MEM_LOSE; fault < BT_KVT_MEM_N_FAULTS; fault++) {
        const uint32_t whole = books.n_whole;

        for (uint32_t step = 1; step <= steps.n_packets; step++) {
            const disturbance_t plan = {.what = PACKET,
                                        .fault = (bt_kvt_mem_fault_t)fault,
                                        .step = step};

            run_counted(place, &plan, &books);
        }
        printf("  each packet, %s: %u runs, %u ended whole\n",
               fault_names[fault], steps.n_packets, books.n_whole - whole);
    }
    for (uint32_t step = 1; step <= N_ALLOCS; step++) {
        const disturbance_t plan = {.what = NO_MEMORY, .step = step};

        run_counted(place, &plan, &books);
    }
    printf("  each of the first %u allocations fails: %u runs\n", N_ALLOCS,
           N_ALLOCS);
    for (what_t what = DIE; what <= COMA; what++) {
        const uint32_t whole = books.n_whole;

        for (uint32_t step = 1; step <= steps.n_calls[P1]; step++) {
            const disturbance_t plan = {.what = what, .end = P1, .step = step};

            run_counted(place, &plan, &books);
        }
        for (uint32_t step = 1; step <= steps.n_calls[D1]; step++) {
            const disturbance_t plan = {.what = what, .end = D1, .step = step};

            run_counted(place, &plan, &books);
        }
        printf("  each call, %s before it: %u runs, %u ended whole\n",
               call_names[what], steps.n_calls[P1] + steps.n_calls[D1],
               books.n_whole - whole);
    }
    printf("  %u disturbed runs: hung 0, wrong bytes 0, leaked 0\n",
           books.n_runs);
    /* Altered messages, and what memory was short for, are named in the log. */
    assert_true(n_logged() - before <= steps.n_packets + N_ALLOCS);
    bt_test_expect_log_lines(n_logged() - before);
}

static void
any_step_of_a_hand_over_may_go_wrong_over_shared_memory(void **state)
{
    const place_t place = {"shared memory", BT_KVT_PATH_AUTO, false, false};

    (void)state;
    every_step(&place);
}

static void every_fault_between_staged_pools_is_handled(void **state)
{
    const place_t place = {"staged to staged", BT_KVT_PATH_AUTO, true, true};

    (void)state;
    every_step(&place);
}

static void every_fault_from_staged_to_shared_pool_is_handled(void **state)
{
    const place_t place = {"staged to shared memory", BT_KVT_PATH_AUTO, true,
                           false};

    (void)state;
    every_step(&place);
}

static void every_fault_into_a_staged_pool_is_handled(void **state)
{
    const place_t place = {"host to staged", BT_KVT_PATH_AUTO, false, true};

    (void)state;
    every_step(&place);
}

static void every_fault_of_a_network_transfer_is_handled(void **state)
{
    const place_t place = {"network", BT_KVT_PATH_NETWORK, false, false};

    (void)state;
    every_step(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(any_step_of_a_hand_over_may_go_wrong_over_shared_memory),
        BT_TEST(every_fault_of_a_network_transfer_is_handled),
        BT_TEST(every_fault_between_staged_pools_is_handled),
        BT_TEST(every_fault_from_staged_to_shared_pool_is_handled),
        BT_TEST(every_fault_into_a_staged_pool_is_handled),
    };

    bt_log_init("test_kvt_steps", BT_LOG_LEVEL_ERROR);
    tzset(); /* the log's first line would allocate it */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
