/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/transfer.h"

#include <poll.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/containers.h"
#include "common/base/log.h"
#include "common/base/status.h"

struct bt_transfer_coordinator {
    bt_transfer_config_t config;
    bt_list_t ins, outs, peers;
    uint64_t last_id; /* of peers and transfers */
    bt_strbuf_t frame;
    bt_wire_region_t regions[BT_WIRE_MAX_RANKS]; /* scratch: of one call */
    bt_wire_rank_t *exports[BT_WIRE_MAX_RANKS];  /* owned; NULL: none yet */
};

/* Regions that the ranks have opened, until all have. */
typedef struct opening {
    bt_wire_region_t *regions; /* owned: regions of all ranks */
    uint32_t n_regions;
    bt_wire_region_t *parts[BT_WIRE_MAX_RANKS]; /* owned: per rank */
    uint32_t n_parts[BT_WIRE_MAX_RANKS];
} opening_t;

/* Sets of ranks are bits: rank r is bit r. */
struct bt_transfer_in {
    bt_transfer_object_t as; /* first; the id is the lease */
    bt_transfer_coordinator_t *coordinator;
    void *user;
    bt_transfer_in_state_t state;
    bt_rank_transfer_in_t *local; /* part of rank 0; NULL: closed */
    uint64_t to_open;             /* ranks that have not answered */
    uint64_t open; /* ranks that have regions, or may come to have */
    uint32_t n_done;
    bt_status_t status; /* of the open */
    bt_transfer_event_t done;
    opening_t *opening; /* owned; NULL: one rank */
};

struct bt_transfer_out {
    bt_transfer_object_t as; /* first */
    bt_transfer_coordinator_t *coordinator;
    void *user;
    bt_rank_transfer_out_t *local; /* part of rank 0; NULL: over */
    uint64_t open;                 /* ranks that are sending */
    bt_status_t status;            /* of the first rank to fail */
    uint64_t bytes;
};

struct bt_transfer_peer {
    bt_transfer_object_t as; /* first */
    bt_transfer_coordinator_t *coordinator;
    void *user;
    bt_transfer_peer_state_t state;
    bt_rank_transfer_peer_t *local;
    uint64_t unproven; /* ranks that the peer has not answered */
};

#define RANK_0 1ull

static uint64_t bit_of(uint32_t rank)
{
    return 1ull << rank;
}

static uint64_t others_of(uint64_t ranks)
{
    return ranks & ~RANK_0;
}

/* ---- frames ---- */

static bt_strbuf_t *new_frame(bt_transfer_coordinator_t *coordinator)
{
    bt_strbuf_reset(&coordinator->frame);
    return &coordinator->frame;
}

/* Sends a frame to a set of ranks, as bits. */
static void tell(bt_transfer_coordinator_t *coordinator, uint64_t ranks,
                 bt_rank_kind_t kind, uint64_t id, const bt_strbuf_t *payload)
{
    for (uint32_t i = 0; i < coordinator->config.n_others; i++) {
        if (((ranks >> (i + 1)) & 1u) != 0) {
            bt_rank_link_send(&coordinator->config.links[i], kind, id, payload);
        }
    }
}

static uint64_t all_others(const bt_transfer_coordinator_t *coordinator)
{
    return ((1ull << coordinator->config.n_others) - 1) << 1;
}

/* Reports an event; the rank's user pointer is replaced. */
static void report(bt_transfer_coordinator_t *coordinator,
                   bt_transfer_event_type_t type, void *user,
                   const bt_transfer_event_t *event)
{
    bt_transfer_event_t copy = *event;

    copy.type = type;
    copy.user = user;
    coordinator->config.on_event(coordinator->config.ctx, &copy);
}

/* ---- receiving ---- */

static void free_opening(opening_t *opening)
{
    if (opening == NULL) {
        return;
    }
    for (uint32_t r = 0; r < BT_WIRE_MAX_RANKS; r++) {
        bt_free(opening->parts[r]);
    }
    bt_free(opening->regions);
    bt_free(opening);
}

static void free_in(bt_transfer_in_t *in)
{
    bt_list_remove(&in->as.link);
    free_opening(in->opening);
    bt_free(in);
}

/* Keeps the regions of a rank. */
static bt_status_t keep_regions(opening_t *opening, uint32_t rank,
                                const bt_wire_region_t *regions, uint32_t n)
{
    opening->n_parts[rank] = n;
    return bt_wire_regions_copy(regions, n, &opening->parts[rank]);
}

/* Reports IN_CLOSED when no sender can write any more. */
static void check_closed(bt_transfer_in_t *in)
{
    const bt_transfer_event_t event = {.id = in->as.id};
    const bt_transfer_in_state_t state = in->state;
    bt_transfer_coordinator_t *coordinator = in->coordinator;
    void *const user = in->user;

    if ((in->open != 0) || (state == BT_TRANSFER_IN_STATE_OPEN) ||
        (state == BT_TRANSFER_IN_STATE_FAILED)) {
        return;
    }
    free_in(in);
    if (state == BT_TRANSFER_IN_STATE_CLOSING) {
        report(coordinator, BT_TRANSFER_IN_CLOSED, user, &event);
    }
}

static void close_in(bt_transfer_in_t *in, bt_transfer_in_state_t state)
{
    in->state = state;
    bt_rank_transfer_in_close(in->local);
    tell(in->coordinator, in->open, BT_RANK_IN_CLOSE, in->as.id, NULL);
}

void bt_transfer_in_close(bt_transfer_in_t *in)
{
    close_in(in, BT_TRANSFER_IN_STATE_CLOSING);
}

static void tell_open(bt_transfer_in_t *in, uint32_t generation,
                      const bt_transfer_job_t *job, const uint32_t *table,
                      uint32_t n_spans)
{
    bt_transfer_coordinator_t *coordinator = in->coordinator;
    bt_strbuf_t *frame = new_frame(coordinator);

    bt_strbuf_append(frame, &generation, sizeof(generation));
    bt_strbuf_append(frame, job, sizeof(*job));
    bt_strbuf_append(frame, &n_spans, sizeof(n_spans));
    bt_strbuf_append(
        frame, table,
        (size_t)n_spans *
            bt_rank_transfer_n_groups(coordinator->config.own_rank) *
            sizeof(*table));
    tell(coordinator, in->to_open, BT_RANK_IN_OPEN, in->as.id, frame);
}

bt_status_t bt_transfer_in_open(bt_transfer_coordinator_t *coordinator,
                                uint64_t lease, uint32_t generation,
                                const bt_transfer_job_t *job,
                                const uint32_t *table, uint32_t n_spans,
                                void *user, const bt_wire_region_t **regions_p,
                                uint32_t *n_regions_p, bt_transfer_in_t **in_p)
{
    bt_transfer_in_t *in = bt_calloc(1, sizeof(*in));
    bt_status_t status = BT_ERR_NO_MEMORY;

    if (in == NULL) {
        return status;
    }
    *in = (bt_transfer_in_t){
        .as = {.id = lease}, .coordinator = coordinator, .user = user};
    bt_list_init(&in->as.link);
    if (coordinator->config.n_others > 0) {
        in->opening = bt_calloc(1, sizeof(*in->opening));
        if (in->opening == NULL) {
            goto err_free;
        }
    }
    status = bt_rank_transfer_in_open(
        coordinator->config.own_rank, lease, generation, job, table, n_spans,
        in, coordinator->regions, n_regions_p, &in->local);
    if (status != BT_OK) {
        goto err_free;
    }
    bt_list_push_back(&coordinator->ins, &in->as.link);
    in->open = RANK_0;
    if (in->opening == NULL) {
        *regions_p = coordinator->regions;
        *in_p = in;
        return BT_OK;
    }
    status = keep_regions(in->opening, 0, coordinator->regions, *n_regions_p);
    if (status != BT_OK) {
        close_in(in, BT_TRANSFER_IN_STATE_ABANDONED);
        return status;
    }
    in->to_open = all_others(coordinator);
    in->open |= in->to_open;
    tell_open(in, generation, job, table, n_spans);
    *in_p = in;
    return BT_INPROGRESS;

err_free:
    free_in(in);
    return status;
}

/* Joins all ranks' regions in one list. */
static bt_status_t join_regions(opening_t *opening)
{
    uint32_t n = 0;

    for (uint32_t r = 0; r < BT_WIRE_MAX_RANKS; r++) {
        n += opening->n_parts[r];
    }
    opening->regions = bt_calloc(n, sizeof(*opening->regions));
    if (opening->regions == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t r = 0; r < BT_WIRE_MAX_RANKS; r++) {
        for (uint32_t i = 0; i < opening->n_parts[r]; i++) {
            opening->regions[opening->n_regions++] = opening->parts[r][i];
        }
    }
    return BT_OK;
}

static void take_opened(bt_transfer_in_t *in, uint32_t rank,
                        bt_rank_reader_t *reader)
{
    bt_transfer_coordinator_t *coordinator = in->coordinator;
    bt_transfer_event_t event = {.id = in->as.id};
    bt_status_t status = BT_OK;
    uint32_t n;

    bt_rank_read(reader, &status, sizeof(status));
    in->to_open &= ~bit_of(rank);
    if (status == BT_OK) {
        n = bt_rank_read_regions(reader, coordinator->regions,
                                 BT_WIRE_MAX_RANKS);
        status = (n == 0)
                     ? BT_ERR_BAD_MESSAGE
                     : keep_regions(in->opening, rank, coordinator->regions, n);
    } else {
        in->open &= ~bit_of(rank);
    }
    in->status = (in->status == BT_OK) ? status : in->status;
    if (in->state == BT_TRANSFER_IN_STATE_CLOSING) {
        check_closed(in);
        return;
    }
    if (in->to_open != 0) {
        return;
    }
    if (in->status == BT_OK) {
        in->status = join_regions(in->opening);
    }
    event.status = in->status;
    event.regions = in->opening->regions;
    event.n_regions = in->opening->n_regions;
    report(coordinator, BT_TRANSFER_OPENED, in->user, &event);
}

static void take_in_done(bt_transfer_in_t *in, uint32_t rank,
                         const bt_transfer_event_t *event)
{
    bt_transfer_event_t *sum = &in->done;

    if (rank == 0) {
        sum->note = event->note; /* valid as long as in->local */
        sum->note_bytes = event->note_bytes;
        sum->arrived_us = event->arrived_us;
    }
    sum->elapsed_us = (event->elapsed_us > sum->elapsed_us) ? event->elapsed_us
                                                            : sum->elapsed_us;
    sum->bytes += event->bytes;
    sum->n_descriptors += event->n_descriptors;
    in->n_done++;
    if ((in->n_done > in->coordinator->config.n_others) &&
        (in->state == BT_TRANSFER_IN_STATE_OPEN)) {
        report(in->coordinator, BT_TRANSFER_IN_DONE, in->user, sum);
    }
}

static void take_in_failed(bt_transfer_in_t *in,
                           const bt_transfer_event_t *event)
{
    if (in->state == BT_TRANSFER_IN_STATE_OPEN) {
        in->state = BT_TRANSFER_IN_STATE_FAILED;
        report(in->coordinator, BT_TRANSFER_IN_FAILED, in->user, event);
    }
}

static void take_in_closed(bt_transfer_in_t *in, uint32_t rank)
{
    in->open &= ~bit_of(rank);
    in->local = (rank == 0) ? NULL : in->local;
    check_closed(in);
}

/* ---- sending ---- */

bt_status_t bt_transfer_connect(bt_transfer_coordinator_t *coordinator,
                                bt_kv_split_t theirs,
                                const bt_wire_rank_t *ranks, uint32_t n_ranks,
                                void *user, bt_transfer_peer_t **peer_p)
{
    bt_transfer_peer_t *peer = bt_calloc(1, sizeof(*peer));
    bt_strbuf_t *frame;
    bt_status_t status;

    if (peer == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    peer->coordinator = coordinator;
    peer->user = user;
    peer->as.id = ++coordinator->last_id;
    status =
        bt_rank_transfer_connect(coordinator->config.own_rank, peer->as.id,
                                 theirs, ranks, n_ranks, peer, &peer->local);
    if (status != BT_OK) {
        bt_free(peer);
        return status;
    }
    peer->unproven = all_others(coordinator) | RANK_0;
    bt_list_push_back(&coordinator->peers, &peer->as.link);
    frame = new_frame(coordinator);
    bt_strbuf_append(frame, &theirs, sizeof(theirs));
    bt_rank_put_ranks(frame, ranks, n_ranks);
    tell(coordinator, all_others(coordinator), BT_RANK_PEER, peer->as.id,
         frame);
    *peer_p = peer;
    return BT_OK;
}

void bt_transfer_disconnect(bt_transfer_peer_t *peer)
{
    if (peer == NULL) {
        return;
    }
    tell(peer->coordinator, all_others(peer->coordinator), BT_RANK_PEER_GONE,
         peer->as.id, NULL);
    bt_rank_transfer_disconnect(peer->local);
    bt_list_remove(&peer->as.link);
    bt_free(peer);
}

const char *bt_transfer_path(const bt_transfer_peer_t *peer)
{
    return bt_rank_transfer_path(peer->local);
}

static void take_peer_up(bt_transfer_peer_t *peer, uint32_t rank,
                         const bt_transfer_event_t *event)
{
    peer->unproven &= ~bit_of(rank);
    if ((peer->state == BT_TRANSFER_PEER_STATE_CONNECTING) &&
        (peer->unproven == 0)) {
        peer->state = BT_TRANSFER_PEER_STATE_UP;
        report(peer->coordinator, BT_TRANSFER_PEER_UP, peer->user, event);
    }
}

static void take_peer_lost(bt_transfer_peer_t *peer,
                           const bt_transfer_event_t *event)
{
    if (peer->state != BT_TRANSFER_PEER_STATE_LOST) {
        peer->state = BT_TRANSFER_PEER_STATE_LOST;
        report(peer->coordinator, BT_TRANSFER_PEER_LOST, peer->user, event);
    }
}

static bool come_from_here(const bt_transfer_coordinator_t *coordinator,
                           const bt_wire_region_t *regions, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (regions[i].from > coordinator->config.n_others) {
            return false;
        }
    }
    return true;
}

bt_status_t bt_transfer_out_begin(bt_transfer_peer_t *peer,
                                  const bt_transfer_job_t *job,
                                  const bt_wire_region_t *regions,
                                  uint32_t n_regions, void *user,
                                  bt_transfer_out_t **out_p)
{
    bt_transfer_coordinator_t *coordinator = peer->coordinator;
    bt_transfer_out_t *out;
    bt_strbuf_t *frame;
    bt_status_t status;

    if (!come_from_here(coordinator, regions, n_regions)) {
        return BT_ERR_MISMATCH;
    }
    out = bt_calloc(1, sizeof(*out));
    if (out == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    out->coordinator = coordinator;
    out->user = user;
    out->as.id = ++coordinator->last_id;
    status = bt_rank_transfer_out_begin(peer->local, out->as.id, job, regions,
                                        n_regions, out, &out->local);
    if (status != BT_OK) {
        bt_free(out);
        return status;
    }
    bt_list_push_back(&coordinator->outs, &out->as.link);
    out->open = all_others(coordinator) | RANK_0;
    if (others_of(out->open) != 0) {
        frame = new_frame(coordinator);
        bt_strbuf_append(frame, &peer->as.id, sizeof(peer->as.id));
        bt_strbuf_append(frame, job, sizeof(*job));
        bt_rank_put_regions(frame, regions, n_regions);
        tell(coordinator, out->open, BT_RANK_OUT_BEGIN, out->as.id, frame);
    }
    *out_p = out;
    return BT_OK;
}

bt_status_t bt_transfer_out_post(bt_transfer_out_t *out, const uint32_t *table,
                                 uint32_t first, uint32_t end, uint32_t from,
                                 uint32_t to)
{
    const uint32_t head[] = {first, end, from, to};
    bt_transfer_coordinator_t *coordinator = out->coordinator;
    const size_t n_groups =
        bt_rank_transfer_n_groups(coordinator->config.own_rank);
    bt_strbuf_t *frame;

    if (others_of(out->open) != 0) {
        frame = new_frame(coordinator);
        bt_strbuf_append(frame, head, sizeof(head));
        bt_strbuf_append(frame, table + first * n_groups,
                         (end - first) * n_groups * sizeof(*table));
        tell(coordinator, out->open, BT_RANK_OUT_POST, out->as.id, frame);
    }
    return (out->local == NULL) ? BT_ERR_CANCELED
                                : bt_rank_transfer_out_post(
                                      out->local, table, first, end, from, to);
}

bt_status_t bt_transfer_out_finish(bt_transfer_out_t *out, const void *note,
                                   size_t note_bytes)
{
    bt_transfer_coordinator_t *coordinator = out->coordinator;
    bt_strbuf_t *frame;

    if (others_of(out->open) != 0) {
        frame = new_frame(coordinator);
        bt_strbuf_append(frame, note, note_bytes);
        tell(coordinator, out->open, BT_RANK_OUT_FINISH, out->as.id, frame);
    }
    return (out->local == NULL)
               ? BT_ERR_CANCELED
               : bt_rank_transfer_out_finish(out->local, note, note_bytes);
}

void bt_transfer_out_cancel(bt_transfer_out_t *out)
{
    tell(out->coordinator, out->open, BT_RANK_OUT_CANCEL, out->as.id, NULL);
    if (out->local != NULL) {
        bt_rank_transfer_out_cancel(out->local);
    }
}

/* A rank has ended its part; the first failure makes all parts useless. */
static void take_out_done(bt_transfer_out_t *out, uint32_t rank,
                          const bt_transfer_event_t *event)
{
    bt_transfer_coordinator_t *coordinator = out->coordinator;
    bt_transfer_event_t done = {.id = out->as.id};
    void *const user = out->user;

    out->open &= ~bit_of(rank);
    out->local = (rank == 0) ? NULL : out->local;
    out->bytes += event->bytes;
    if ((event->status != BT_OK) && (out->status == BT_OK)) {
        out->status = event->status;
        bt_transfer_out_cancel(out);
    }
    if (out->open != 0) {
        return;
    }
    done.status = out->status;
    done.bytes = out->bytes;
    bt_list_remove(&out->as.link);
    bt_free(out);
    report(coordinator, BT_TRANSFER_OUT_DONE, user, &done);
}

/* ---- events of ranks ---- */

/* Handles an event of a rank. @param object  NULL: it is gone */
static void take_event(bt_transfer_coordinator_t *coordinator, uint32_t rank,
                       void *object, const bt_transfer_event_t *event)
{
    if (event->type == BT_TRANSFER_STUCK) {
        report(coordinator, BT_TRANSFER_STUCK, NULL, event);
        return;
    }
    if (object == NULL) {
        return;
    }
    switch (event->type) {
    case BT_TRANSFER_IN_DONE:
        take_in_done(object, rank, event);
        break;
    case BT_TRANSFER_IN_FAILED:
        take_in_failed(object, event);
        break;
    case BT_TRANSFER_IN_CLOSED:
        take_in_closed(object, rank);
        break;
    case BT_TRANSFER_OUT_DONE:
        take_out_done(object, rank, event);
        break;
    case BT_TRANSFER_PEER_LOST:
        take_peer_lost(object, event);
        break;
    case BT_TRANSFER_PEER_UP:
        take_peer_up(object, rank, event);
        break;
    case BT_TRANSFER_OPENED: /* not an event of one rank */
    case BT_TRANSFER_STUCK:
        break;
    }
}

void bt_transfer_take_kvt(bt_transfer_coordinator_t *coordinator,
                          const bt_kvt_event_t *event)
{
    bt_transfer_event_t own;

    if (bt_rank_transfer_take(event, &own)) {
        take_event(coordinator, 0, own.user, &own);
    }
}

/* Finds the object of another rank's event. NULL: it is gone */
static void *object_of(bt_transfer_coordinator_t *coordinator,
                       bt_transfer_event_type_t type, uint64_t id)
{
    switch (type) {
    case BT_TRANSFER_IN_DONE:
    case BT_TRANSFER_IN_FAILED:
    case BT_TRANSFER_IN_CLOSED:
        return bt_transfer_find(&coordinator->ins, id);
    case BT_TRANSFER_OUT_DONE:
        return bt_transfer_find(&coordinator->outs, id);
    case BT_TRANSFER_PEER_LOST:
    case BT_TRANSFER_PEER_UP:
        return bt_transfer_find(&coordinator->peers, id);
    case BT_TRANSFER_OPENED:
    case BT_TRANSFER_STUCK:
        break;
    }
    return NULL;
}

static void take_rank_event(bt_transfer_coordinator_t *coordinator,
                            uint32_t rank, bt_rank_reader_t *reader)
{
    char at[BT_RANK_TEXT_BYTES] = "", why[BT_RANK_TEXT_BYTES] = "";
    bt_transfer_event_t event = {0};

    bt_rank_read(reader, &event, sizeof(event));
    /* Pointers of the other process are not valid here. */
    event.note = NULL;
    event.note_bytes = 0;
    event.regions = NULL;
    event.n_regions = 0;
    event.at = at;
    event.why = why;
    if (event.type == BT_TRANSFER_PEER_LOST) {
        bt_rank_read_text(reader, at);
        bt_rank_read_text(reader, why);
    }
    take_event(coordinator, rank, object_of(coordinator, event.type, event.id),
               &event);
}

static void take_export(bt_transfer_coordinator_t *coordinator, uint32_t rank,
                        bt_rank_reader_t *reader)
{
    bt_wire_rank_t ranks[BT_WIRE_MAX_RANKS];

    if ((coordinator->exports[rank] != NULL) ||
        (bt_rank_read_ranks(reader, ranks) != 1) ||
        (bt_wire_ranks_copy(ranks, 1, &coordinator->exports[rank]) != BT_OK)) {
        BT_LOG_WARN("rank %u: invalid description of its KV pool", rank);
    }
}

static void take_frame(bt_transfer_coordinator_t *coordinator, uint32_t rank,
                       const bt_rank_frame_t *frame)
{
    bt_rank_reader_t reader = bt_rank_reader(frame);
    bt_transfer_in_t *in;

    switch (frame->kind) {
    case BT_RANK_EXPORT:
        take_export(coordinator, rank, &reader);
        break;
    case BT_RANK_OPENED:
        in = bt_transfer_find(&coordinator->ins, frame->id);
        if (in != NULL) {
            take_opened(in, rank, &reader);
        }
        break;
    case BT_RANK_EVENT:
        take_rank_event(coordinator, rank, &reader);
        break;
    default:
        BT_LOG_WARN("rank %u: unexpected message of type %u", rank,
                    (unsigned)frame->kind);
        break;
    }
}

bool bt_transfer_take_ranks(bt_transfer_coordinator_t *coordinator)
{
    const uint64_t now_ms =
        (coordinator->config.n_others > 0) ? bt_now_ms() : 0;

    for (uint32_t i = 0; i < coordinator->config.n_others; i++) {
        bt_rank_frame_t frame;

        while (bt_rank_link_next(&coordinator->config.links[i], &frame)) {
            take_frame(coordinator, i + 1, &frame);
        }
        bt_rank_link_beat(&coordinator->config.links[i], now_ms,
                          coordinator->config.heartbeat_ms,
                          coordinator->config.dead_ms);
        if (coordinator->config.links[i].is_lost) {
            return false;
        }
    }
    return true;
}

bt_status_t bt_transfer_await_export(bt_transfer_coordinator_t *coordinator,
                                     uint32_t rank, bt_wire_rank_t *rank_p)
{
    struct pollfd fd = {.fd = coordinator->config.links[rank - 1].fd,
                        .events = POLLIN};

    while (coordinator->exports[rank] == NULL) {
        if (!bt_transfer_take_ranks(coordinator)) {
            return BT_ERR_PEER_LOST;
        }
        if (coordinator->exports[rank] == NULL) {
            (void)poll(&fd, 1, -1);
        }
    }
    *rank_p = *coordinator->exports[rank];
    return BT_OK;
}

uint32_t bt_transfer_n_links(const bt_transfer_coordinator_t *coordinator)
{
    return coordinator->config.n_others;
}

int bt_transfer_link_fd(const bt_transfer_coordinator_t *coordinator,
                        uint32_t i)
{
    return coordinator->config.links[i].fd;
}

void bt_transfer_admit(bt_transfer_coordinator_t *coordinator,
                       const bt_wire_rank_t *ranks, uint32_t n_ranks)
{
    bt_strbuf_t *frame = new_frame(coordinator);

    bt_rank_put_ranks(frame, ranks, n_ranks);
    tell(coordinator, all_others(coordinator), BT_RANK_ADMIT, 0, frame);
}

/* ---- life ---- */

bt_status_t bt_transfer_open(const bt_transfer_config_t *config,
                             bt_transfer_coordinator_t **coordinator_p)
{
    bt_transfer_coordinator_t *coordinator = bt_calloc(1, sizeof(*coordinator));

    if (coordinator == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    coordinator->config = *config;
    bt_list_init(&coordinator->ins);
    bt_list_init(&coordinator->outs);
    bt_list_init(&coordinator->peers);
    bt_strbuf_init(&coordinator->frame, BT_RANK_LINK_MAX_BYTES);
    *coordinator_p = coordinator;
    return BT_OK;
}

void bt_transfer_close(bt_transfer_coordinator_t *coordinator)
{
    if (coordinator == NULL) {
        return;
    }
    BT_LIST_FOR_EACH_ENTRY(bt_transfer_in_t, in, &coordinator->ins, as.link) {
        free_in(in);
    }
    BT_LIST_FOR_EACH_ENTRY(bt_transfer_out_t, out, &coordinator->outs,
                           as.link) {
        bt_list_remove(&out->as.link);
        bt_free(out);
    }
    BT_LIST_FOR_EACH_ENTRY(bt_transfer_peer_t, peer, &coordinator->peers,
                           as.link) {
        bt_transfer_disconnect(peer);
    }
    for (uint32_t r = 0; r < BT_WIRE_MAX_RANKS; r++) {
        bt_free(coordinator->exports[r]);
    }
    bt_strbuf_fini(&coordinator->frame);
    bt_free(coordinator);
}
