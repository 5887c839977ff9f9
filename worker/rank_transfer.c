/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/rank_transfer.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/assert.h"
#include "common/base/list.h"

typedef struct route {
    bt_list_t link;
    bt_kv_end_t end;
    bt_kv_split_t theirs;
    bt_kv_route_t route;
} route_t;

struct bt_rank_transfer {
    bt_rank_transfer_config_t config;
    bt_list_t routes;
    bt_list_t ins, outs;      /* open ones */
    bt_kvt_extent_t *extents; /* scratch: of one window */
    uint8_t *descs;           /* descriptors of a call's windows */
};

/* One lane of a KV transfer. */
typedef struct in_lane {
    bt_rank_transfer_in_t *in;
    bt_kvt_window_t *window; /* NULL: closed */
} in_lane_t;

struct bt_rank_transfer_in {
    bt_list_t link;
    bt_rank_transfer_event_t event; /* combined event of its lanes */
    uint32_t n_lanes;
    uint32_t n_done;
    uint32_t n_open; /* or closing */
    bool failed;
    bool closing;
    uint8_t note[BT_KVT_MAX_NOTE];
    in_lane_t lanes[];
};

typedef struct out_lane {
    bt_rank_transfer_out_t *out;
    bt_kvt_xfer_t *xfer; /* NULL: over */
    bt_kv_handover_t handover;
} out_lane_t;

struct bt_rank_transfer_out {
    bt_list_t link;
    bt_rank_transfer_t *all;
    bt_rank_transfer_event_t event;
    uint32_t n_lanes;
    uint32_t n_open;
    out_lane_t lanes[];
};

typedef struct peer_lane {
    bt_rank_transfer_peer_t *peer;
    const bt_kv_lane_t *lane;
    bt_kvt_peer_t *kvt;
} peer_lane_t;

struct bt_rank_transfer_peer {
    bt_rank_transfer_t *all;
    void *user;
    bool is_lost;  /* was reported */
    uint32_t n_up; /* lanes on which it has answered */
    uint32_t n_lanes;
    peer_lane_t lanes[];
};

uint32_t bt_rank_transfer_n_groups(const bt_rank_transfer_t *own)
{
    return own->config.groups->n;
}

/* ---- routes ---- */

bt_status_t bt_rank_transfer_route(bt_rank_transfer_t *own, bt_kv_end_t end,
                                   bt_kv_split_t theirs,
                                   const bt_kv_route_t **route_p)
{
    const bt_rank_transfer_config_t *c = &own->config;
    bt_list_t *pos;
    bt_list_t *tmp;
    bt_status_t status;
    route_t *r;

    BT_LIST_FOR_EACH(pos, tmp, &own->routes)
    {
        r = BT_CONTAINER_OF(pos, route_t, link);
        if ((r->end == end) && (r->theirs.tp == theirs.tp) &&
            (r->theirs.pp == theirs.pp)) {
            *route_p = &r->route;
            return BT_OK;
        }
    }
    r = bt_calloc(1, sizeof(*r));
    if (r == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    r->end = end;
    r->theirs = theirs;
    status = bt_kv_route_make(c->groups, end, &c->split, c->rank, &theirs,
                              &r->route);
    if (status != BT_OK) {
        bt_free(r);
        return status;
    }
    bt_list_push_back(&own->routes, &r->link);
    *route_p = &r->route;
    return BT_OK;
}

static bt_kv_handover_t handover_of(const bt_rank_transfer_t *own,
                                    const bt_kv_lane_t *lane,
                                    const bt_rank_transfer_job_t *job)
{
    return (bt_kv_handover_t){.groups = own->config.groups,
                              .lane = lane,
                              .n_tokens = job->n_tokens,
                              .n_cached = job->n_cached};
}

/* ---- receiving ---- */

static void free_in(bt_rank_transfer_in_t *in)
{
    bt_list_remove(&in->link);
    bt_free(in);
}

/* Extents of one window that the sender fills. @return extents, 0: too many */
static uint32_t lay_extents(const bt_rank_transfer_t *own,
                            const bt_kv_handover_t *handover,
                            const uint32_t *table, uint32_t n_spans)
{
    uint32_t n = 0;

    for (uint32_t g = 0; g < own->config.groups->n; g++) {
        bt_kv_walk_t walk =
            bt_kv_handover_walk(handover, g, BT_KV_DST, table, 0, n_spans);
        bt_kv_piece_t piece;

        while (bt_kv_walk_next(&walk, &piece)) {
            if (n == BT_KVT_MAX_EXTENTS) {
                return 0;
            }
            own->extents[n++] =
                (bt_kvt_extent_t){.offset = piece.pool, .bytes = piece.bytes};
        }
    }
    return n;
}

bt_status_t bt_rank_transfer_in_open(bt_rank_transfer_t *own, uint64_t lease,
                                     uint32_t generation,
                                     const bt_rank_transfer_job_t *job,
                                     const uint32_t *table, uint32_t n_spans,
                                     void *user, bt_wire_window_t *windows,
                                     uint32_t *n_windows_p,
                                     bt_rank_transfer_in_t **in_p)
{
    const bt_kv_route_t *route = NULL;
    bt_status_t status =
        bt_rank_transfer_route(own, BT_KV_DST, job->theirs, &route);
    bt_rank_transfer_in_t *in;
    size_t at = 0;

    if (status != BT_OK) {
        return status;
    }
    in = bt_calloc(1, sizeof(*in) + route->n_lanes * sizeof(*in->lanes));
    if (in == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_list_push_back(&own->ins, &in->link);
    in->event.user = user;
    in->n_lanes = route->n_lanes;
    for (uint32_t i = 0; (status == BT_OK) && (i < route->n_lanes); i++) {
        const bt_kv_lane_t *lane = &route->lanes[i];
        const bt_kv_handover_t handover = handover_of(own, lane, job);
        const uint32_t n = lay_extents(own, &handover, table, n_spans);
        size_t bytes = 0;

        in->lanes[i].in = in;
        if (n == 0) {
            status = BT_ERR_TOO_LARGE;
            break;
        }
        /* Each window has a lease id of its own. */
        status = bt_kvt_window_open(
            own->config.kvt, lease * BT_WIRE_MAX_RANKS + lane->rank, generation,
            bt_rank_transfer_instance(job->instance, lane->rank), own->extents,
            n, &in->lanes[i], own->descs + at, BT_WIRE_MAX_BLOB - at, &bytes,
            &in->lanes[i].window);
        windows[i] = (bt_wire_window_t){.to = own->config.rank,
                                        .from = lane->rank,
                                        .blob = own->descs + at,
                                        .blob_bytes = (uint32_t)bytes};
        at += bytes;
        in->n_open += (status == BT_OK);
    }
    if (status != BT_OK) {
        in->event.user = NULL; /* never reported */
        bt_rank_transfer_in_close(in);
        return status;
    }
    *n_windows_p = route->n_lanes;
    *in_p = in;
    return BT_OK;
}

void bt_rank_transfer_in_close(bt_rank_transfer_in_t *in)
{
    in->closing = true;
    if (in->n_open == 0) {
        BT_ASSERT(in->event.user == NULL);
        free_in(in);
        return;
    }
    for (uint32_t i = 0; i < in->n_lanes; i++) {
        if (in->lanes[i].window != NULL) {
            bt_kvt_window_close(in->lanes[i].window);
        }
    }
}

static bool take_done(in_lane_t *lane, const bt_kvt_event_t *event,
                      bt_rank_transfer_event_t *event_p)
{
    bt_rank_transfer_in_t *in = lane->in;
    bt_rank_transfer_event_t *sum = &in->event;

    if (lane == &in->lanes[0]) {
        memcpy(in->note, event->note, event->note_bytes);
        sum->note_bytes = event->note_bytes;
    }
    sum->elapsed_us = (event->elapsed_us > sum->elapsed_us) ? event->elapsed_us
                                                            : sum->elapsed_us;
    sum->arrived_us = (event->arrived_us > sum->arrived_us) ? event->arrived_us
                                                            : sum->arrived_us;
    sum->bytes += event->bytes;
    sum->n_descriptors += event->n_descriptors;
    if ((++in->n_done < in->n_lanes) || in->failed || in->closing) {
        return false;
    }
    *event_p = *sum;
    event_p->type = BT_RANK_TRANSFER_IN_DONE;
    event_p->note = in->note;
    return true;
}

static bool take_failed(bt_rank_transfer_in_t *in, const bt_kvt_event_t *event,
                        bt_rank_transfer_event_t *event_p)
{
    if (in->failed || in->closing) {
        return false;
    }
    in->failed = true;
    *event_p = (bt_rank_transfer_event_t){.type = BT_RANK_TRANSFER_IN_FAILED,
                                          .status = event->status,
                                          .user = in->event.user};
    return true;
}

static bool take_closed(in_lane_t *lane, bt_rank_transfer_event_t *event_p)
{
    bt_rank_transfer_in_t *in = lane->in;
    void *user = in->event.user;

    lane->window = NULL;
    if (--in->n_open > 0) {
        return false;
    }
    free_in(in);
    *event_p = (bt_rank_transfer_event_t){.type = BT_RANK_TRANSFER_IN_CLOSED,
                                          .user = user};
    return user != NULL;
}

/* ---- sending ---- */

static void free_out(bt_rank_transfer_out_t *out)
{
    bt_list_remove(&out->link);
    bt_free(out);
}

bt_status_t bt_rank_transfer_connect(bt_rank_transfer_t *own,
                                     bt_kv_split_t theirs,
                                     const bt_wire_rank_t *ranks,
                                     uint32_t n_ranks, void *user,
                                     bt_rank_transfer_peer_t **peer_p)
{
    const bt_kv_route_t *route = NULL;
    bt_status_t status = bt_rank_transfer_route(own, BT_KV_SRC, theirs, &route);
    bt_rank_transfer_peer_t *peer;

    if (status != BT_OK) {
        return status;
    }
    peer = bt_calloc(1, sizeof(*peer) + route->n_lanes * sizeof(*peer->lanes));
    if (peer == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    peer->all = own;
    peer->user = user;
    for (uint32_t i = 0; (status == BT_OK) && (i < route->n_lanes); i++) {
        const uint32_t r = route->lanes[i].rank;
        peer_lane_t *lane = &peer->lanes[i];

        *lane = (peer_lane_t){.peer = peer, .lane = &route->lanes[i]};
        peer->n_lanes++;
        status = (r < n_ranks)
                     ? bt_kvt_import(own->config.kvt, ranks[r].kvt,
                                     ranks[r].kvt_bytes, lane, &lane->kvt)
                     : BT_ERR_BAD_MESSAGE;
    }
    if (status != BT_OK) {
        bt_rank_transfer_disconnect(peer);
        return status;
    }
    *peer_p = peer;
    return BT_OK;
}

void bt_rank_transfer_disconnect(bt_rank_transfer_peer_t *peer)
{
    if (peer == NULL) {
        return;
    }
    for (uint32_t i = 0; i < peer->n_lanes; i++) {
        if (peer->lanes[i].kvt != NULL) {
            bt_kvt_peer_release(peer->lanes[i].kvt);
        }
    }
    bt_free(peer);
}

const char *bt_rank_transfer_path(const bt_rank_transfer_peer_t *peer)
{
    return bt_kvt_peer_path(peer->lanes[0].kvt);
}

/* The grant's window from this rank to that of a lane. NULL: there is none. */
static const bt_wire_window_t *window_of(const bt_rank_transfer_t *own,
                                         const bt_wire_window_t *windows,
                                         uint32_t n_windows, uint32_t to)
{
    for (uint32_t i = 0; i < n_windows; i++) {
        if ((windows[i].from == own->config.rank) && (windows[i].to == to)) {
            return &windows[i];
        }
    }
    return NULL;
}

static uint32_t n_from(uint32_t rank, const bt_wire_window_t *windows,
                       uint32_t n_windows)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < n_windows; i++) {
        n += windows[i].from == rank;
    }
    return n;
}

static bt_status_t begin_lane(bt_rank_transfer_out_t *out,
                              const peer_lane_t *to,
                              const bt_rank_transfer_job_t *job,
                              const bt_wire_window_t *window)
{
    out_lane_t *lane = &out->lanes[out->n_lanes++];
    bt_status_t status;

    *lane = (out_lane_t){.out = out,
                         .handover = handover_of(out->all, to->lane, job)};
    if (window == NULL) {
        return BT_ERR_MISMATCH;
    }
    status = bt_kvt_prep(to->kvt, window->blob, window->blob_bytes, lane,
                         &lane->xfer);
    if (status != BT_OK) {
        lane->xfer = NULL;
        return status;
    }
    out->n_open++;
    return (bt_kvt_xfer_window_bytes(lane->xfer) ==
            bt_kv_handover_bytes(&lane->handover))
               ? BT_OK
               : BT_ERR_MISMATCH;
}

bt_status_t bt_rank_transfer_out_begin(bt_rank_transfer_peer_t *peer,
                                       const bt_rank_transfer_job_t *job,
                                       const bt_wire_window_t *windows,
                                       uint32_t n_windows, void *user,
                                       bt_rank_transfer_out_t **out_p)
{
    bt_rank_transfer_out_t *out =
        bt_calloc(1, sizeof(*out) + peer->n_lanes * sizeof(*out->lanes));
    bt_status_t status = BT_OK;

    if (out == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_list_push_back(&peer->all->outs, &out->link);
    out->all = peer->all;
    out->event.user = user;
    if (n_from(peer->all->config.rank, windows, n_windows) != peer->n_lanes) {
        status = BT_ERR_MISMATCH;
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < peer->n_lanes); i++) {
        const peer_lane_t *to = &peer->lanes[i];

        status = (to->kvt == NULL)
                     ? BT_ERR_PEER_LOST
                     : begin_lane(out, to, job,
                                  window_of(peer->all, windows, n_windows,
                                            to->lane->rank));
    }
    if (status == BT_OK) {
        *out_p = out;
        return BT_OK;
    }
    out->event.user = NULL; /* never reported */
    bt_rank_transfer_out_cancel(out);
    return status;
}

/* Bytes of each block at this rank, up to @a layers layers of the model. */
static size_t bytes_of(const bt_rank_transfer_t *own, uint32_t group,
                       uint32_t n_layers)
{
    return bt_kv_group_bytes_of(own->config.own, group, n_layers);
}

static bt_status_t post_lane(const bt_rank_transfer_t *own,
                             const out_lane_t *lane, const uint32_t *table,
                             uint32_t first, uint32_t end, uint32_t from,
                             uint32_t to)
{
    for (uint32_t g = 0; g < own->config.groups->n; g++) {
        bt_kv_walk_t walk = bt_kv_handover_walk(&lane->handover, g, BT_KV_SRC,
                                                table, first, end);
        bt_kv_piece_t piece;

        bt_kv_walk_clip(&walk, bytes_of(own, g, from), bytes_of(own, g, to));
        while (bt_kv_walk_next(&walk, &piece)) {
            const bt_status_t status =
                bt_kvt_post(lane->xfer, own->config.base + piece.pool,
                            piece.window, piece.bytes);

            if (status != BT_OK) {
                return status;
            }
        }
    }
    return BT_OK;
}

bt_status_t bt_rank_transfer_out_post(bt_rank_transfer_out_t *out,
                                      const uint32_t *table, uint32_t first,
                                      uint32_t end, uint32_t from, uint32_t to)
{
    bt_status_t status = BT_OK;

    for (uint32_t i = 0; (status == BT_OK) && (i < out->n_lanes); i++) {
        status = (out->lanes[i].xfer == NULL)
                     ? BT_ERR_CANCELED
                     : post_lane(out->all, &out->lanes[i], table, first, end,
                                 from, to);
    }
    return status;
}

bt_status_t bt_rank_transfer_out_finish(bt_rank_transfer_out_t *out,
                                        const void *note, size_t note_bytes)
{
    bt_status_t status = BT_OK;

    for (uint32_t i = 0; (status == BT_OK) && (i < out->n_lanes); i++) {
        status = (out->lanes[i].xfer == NULL)
                     ? BT_ERR_CANCELED
                     : bt_kvt_finish(out->lanes[i].xfer, note, note_bytes);
    }
    return status;
}

void bt_rank_transfer_out_cancel(bt_rank_transfer_out_t *out)
{
    if (out->n_open == 0) {
        BT_ASSERT(out->event.user == NULL);
        free_out(out);
        return;
    }
    for (uint32_t i = 0; i < out->n_lanes; i++) {
        if (out->lanes[i].xfer != NULL) {
            bt_kvt_cancel(out->lanes[i].xfer);
        }
    }
}

static bool take_sent(out_lane_t *lane, const bt_kvt_event_t *event,
                      bt_rank_transfer_event_t *event_p)
{
    bt_rank_transfer_out_t *out = lane->out;
    bt_rank_transfer_event_t *sum = &out->event;

    bt_kvt_release(lane->xfer);
    lane->xfer = NULL;
    sum->bytes += event->bytes;
    if ((event->status != BT_OK) && (sum->status == BT_OK)) {
        sum->status = event->status;
        bt_rank_transfer_out_cancel(out); /* the others are of no use */
    }
    if (--out->n_open > 0) {
        return false;
    }
    *event_p = *sum;
    event_p->type = BT_RANK_TRANSFER_OUT_DONE;
    free_out(out);
    return event_p->user != NULL;
}

/* The peer is up when the last of its lanes is. */
static bool take_peer_up(const peer_lane_t *lane,
                         bt_rank_transfer_event_t *event_p)
{
    bt_rank_transfer_peer_t *peer = lane->peer;

    peer->n_up++;
    if (peer->is_lost || (peer->n_up < peer->n_lanes)) {
        return false;
    }
    *event_p = (bt_rank_transfer_event_t){.type = BT_RANK_TRANSFER_PEER_UP,
                                          .user = peer->user};
    return true;
}

/* One lost lane loses the peer. */
static bool take_peer_lost(const peer_lane_t *lane, const bt_kvt_event_t *event,
                           bt_rank_transfer_event_t *event_p)
{
    bt_rank_transfer_peer_t *peer = lane->peer;

    if (peer->is_lost) {
        return false;
    }
    peer->is_lost = true;
    *event_p = (bt_rank_transfer_event_t){.type = BT_RANK_TRANSFER_PEER_LOST,
                                          .user = peer->user,
                                          .at = event->at,
                                          .why = event->why};
    return true;
}

bool bt_rank_transfer_take(const bt_kvt_event_t *event,
                           bt_rank_transfer_event_t *event_p)
{
    switch (event->type) {
    case BT_KVT_WINDOW_DONE:
        return take_done(event->user, event, event_p);
    case BT_KVT_WINDOW_FAILED:
        return take_failed(((in_lane_t *)event->user)->in, event, event_p);
    case BT_KVT_WINDOW_CLOSED:
        return take_closed(event->user, event_p);
    case BT_KVT_XFER_DONE:
        return take_sent(event->user, event, event_p);
    case BT_KVT_PEER_LOST:
        return take_peer_lost(event->user, event, event_p);
    case BT_KVT_PEER_UP:
        return take_peer_up(event->user, event_p);
    case BT_KVT_QUARANTINE_STUCK:
        *event_p = (bt_rank_transfer_event_t){.type = BT_RANK_TRANSFER_STUCK,
                                              .pid = event->pid};
        return true;
    }
    return false;
}

/* ---- life ---- */

bt_status_t bt_rank_transfer_open(const bt_rank_transfer_config_t *config,
                                  bt_rank_transfer_t **own_p)
{
    bt_rank_transfer_t *own = bt_calloc(1, sizeof(*own));

    if (own == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    own->config = *config;
    bt_list_init(&own->routes);
    bt_list_init(&own->ins);
    bt_list_init(&own->outs);
    own->extents = bt_calloc(BT_KVT_MAX_EXTENTS, sizeof(*own->extents));
    own->descs = bt_calloc(BT_WIRE_MAX_BLOB, 1);
    if ((own->extents == NULL) || (own->descs == NULL)) {
        bt_rank_transfer_close(own);
        return BT_ERR_NO_MEMORY;
    }
    *own_p = own;
    return BT_OK;
}

void bt_rank_transfer_close(bt_rank_transfer_t *own)
{
    bt_list_t *pos;
    bt_list_t *tmp;

    if (own == NULL) {
        return;
    }
    BT_LIST_FOR_EACH(pos, tmp, &own->routes)
    {
        route_t *r = BT_CONTAINER_OF(pos, route_t, link);

        bt_list_remove(&r->link);
        bt_kv_route_fini(&r->route);
        bt_free(r);
    }
    BT_LIST_FOR_EACH(pos, tmp, &own->ins)
    {
        free_in(BT_CONTAINER_OF(pos, bt_rank_transfer_in_t, link));
    }
    BT_LIST_FOR_EACH(pos, tmp, &own->outs)
    {
        free_out(BT_CONTAINER_OF(pos, bt_rank_transfer_out_t, link));
    }
    bt_free(own->extents);
    bt_free(own->descs);
    bt_free(own);
}
