/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/rank_transfer.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/containers.h"
#include "common/base/status.h"

typedef struct route {
    bt_list_t link;
    bt_kv_end_t end;
    bt_kv_split_t theirs;
    bt_kv_route_t route;
} route_t;

struct bt_rank_transfer {
    bt_rank_transfer_config_t config;
    bt_list_t routes;
    bt_list_t ins, outs, peers;
    bt_kvt_extent_t *extents; /* scratch: of one region */
    uint8_t *descs;           /* descriptors of a call's regions */
};

/* Receives from one rank. */
typedef struct in_part {
    bt_rank_transfer_in_t *in;
    bt_kvt_region_t *region; /* NULL: closed */
} in_part_t;

struct bt_rank_transfer_in {
    bt_transfer_object_t as; /* first; the id is the lease */
    bt_transfer_in_state_t state;
    bt_transfer_event_t event; /* combined event of its parts */
    uint32_t n_parts;
    uint32_t n_done;
    uint32_t n_open; /* or closing */
    uint8_t note[BT_KVT_MAX_NOTE];
    in_part_t parts[];
};

/* Sends to one rank. */
typedef struct out_part {
    bt_rank_transfer_out_t *out;
    bt_kvt_xfer_t *xfer; /* NULL: over */
    bt_kv_handover_t handover;
} out_part_t;

struct bt_rank_transfer_out {
    bt_transfer_object_t as; /* first */
    bt_rank_transfer_t *own;
    bool is_abandoned; /* its begin failed: nothing is reported */
    bt_transfer_event_t event;
    uint32_t n_parts;
    uint32_t n_open;
    out_part_t parts[];
};

typedef struct peer_part {
    bt_rank_transfer_peer_t *peer;
    const bt_kv_rank_pair_t *pair;
    bt_kvt_peer_t *kvt;
} peer_part_t;

struct bt_rank_transfer_peer {
    bt_transfer_object_t as; /* first */
    bt_rank_transfer_t *own;
    void *user;
    bt_transfer_peer_state_t state;
    uint32_t n_up; /* parts that have answered */
    uint32_t n_parts;
    peer_part_t parts[];
};

/* ---- ids ---- */

void *bt_transfer_find(const bt_list_t *list, uint64_t id)
{
    BT_LIST_FOR_EACH_ENTRY(bt_transfer_object_t, object, list, link) {
        if (object->id == id) {
            return object;
        }
    }
    return NULL;
}

bt_rank_transfer_in_t *bt_rank_transfer_find_in(bt_rank_transfer_t *own,
                                                uint64_t id)
{
    bt_rank_transfer_in_t *in = bt_transfer_find(&own->ins, id);

    return ((in != NULL) && (in->state != BT_TRANSFER_IN_STATE_ABANDONED))
               ? in
               : NULL;
}

bt_rank_transfer_out_t *bt_rank_transfer_find_out(bt_rank_transfer_t *own,
                                                  uint64_t id)
{
    bt_rank_transfer_out_t *out = bt_transfer_find(&own->outs, id);

    return ((out != NULL) && !out->is_abandoned) ? out : NULL;
}

bt_rank_transfer_peer_t *bt_rank_transfer_find_peer(bt_rank_transfer_t *own,
                                                    uint64_t id)
{
    return bt_transfer_find(&own->peers, id);
}

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
    bt_status_t status;
    route_t *r;

    BT_LIST_FOR_EACH_ENTRY(route_t, known, &own->routes, link) {
        if ((known->end == end) && (known->theirs.tp == theirs.tp) &&
            (known->theirs.pp == theirs.pp)) {
            *route_p = &known->route;
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
                                    const bt_kv_rank_pair_t *pair,
                                    const bt_transfer_job_t *job)
{
    return (bt_kv_handover_t){.groups = own->config.groups,
                              .pair = pair,
                              .n_tokens = job->n_tokens,
                              .n_cached = job->n_cached};
}

/* ---- receiving ---- */

static void free_in(bt_rank_transfer_in_t *in)
{
    bt_list_remove(&in->as.link);
    bt_free(in);
}

/* Closes the regions; frees an abandoned receive without any. */
static void close_regions(bt_rank_transfer_in_t *in)
{
    if (in->n_open == 0) {
        BT_ASSERT(in->state == BT_TRANSFER_IN_STATE_ABANDONED);
        free_in(in);
        return;
    }
    for (uint32_t i = 0; i < in->n_parts; i++) {
        if (in->parts[i].region != NULL) {
            bt_kvt_region_close(in->parts[i].region);
        }
    }
}

/* Extents of one region that the sender fills. @return extents, 0: too many */
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
                                     const bt_transfer_job_t *job,
                                     const uint32_t *table, uint32_t n_spans,
                                     void *user, bt_wire_region_t *regions,
                                     uint32_t *n_regions_p,
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
    in = bt_calloc(1, sizeof(*in) + route->n_pairs * sizeof(*in->parts));
    if (in == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_list_push_back(&own->ins, &in->as.link);
    in->as.id = lease;
    in->event.user = user;
    in->event.id = lease;
    in->n_parts = route->n_pairs;
    for (uint32_t i = 0; (status == BT_OK) && (i < route->n_pairs); i++) {
        const bt_kv_rank_pair_t *pair = &route->pairs[i];
        const bt_kv_handover_t handover = handover_of(own, pair, job);
        const uint32_t n = lay_extents(own, &handover, table, n_spans);
        size_t bytes = 0;

        in->parts[i].in = in;
        if (n == 0) {
            status = BT_ERR_TOO_LARGE;
            break;
        }
        /* Each region has a lease id of its own. */
        status = bt_kvt_region_open(
            own->config.kvt, lease * BT_WIRE_MAX_RANKS + pair->rank, generation,
            bt_rank_transfer_instance(job->instance, pair->rank), own->extents,
            n, &in->parts[i], own->descs + at, BT_WIRE_MAX_BLOB - at, &bytes,
            &in->parts[i].region);
        regions[i] = (bt_wire_region_t){.to = own->config.rank,
                                        .from = pair->rank,
                                        .blob = own->descs + at,
                                        .blob_bytes = (uint32_t)bytes};
        at += bytes;
        in->n_open += (status == BT_OK);
    }
    if (status != BT_OK) {
        in->state = BT_TRANSFER_IN_STATE_ABANDONED;
        close_regions(in);
        return status;
    }
    *n_regions_p = route->n_pairs;
    *in_p = in;
    return BT_OK;
}

void bt_rank_transfer_in_close(bt_rank_transfer_in_t *in)
{
    in->state = BT_TRANSFER_IN_STATE_CLOSING;
    close_regions(in);
}

static bool take_done(in_part_t *part, const bt_kvt_event_t *event,
                      bt_transfer_event_t *event_p)
{
    bt_rank_transfer_in_t *in = part->in;
    bt_transfer_event_t *sum = &in->event;

    if (part == &in->parts[0]) {
        memcpy(in->note, event->note, event->note_bytes);
        sum->note_bytes = event->note_bytes;
    }
    sum->elapsed_us = (event->elapsed_us > sum->elapsed_us) ? event->elapsed_us
                                                            : sum->elapsed_us;
    sum->arrived_us = (event->arrived_us > sum->arrived_us) ? event->arrived_us
                                                            : sum->arrived_us;
    sum->bytes += event->bytes;
    sum->n_descriptors += event->n_descriptors;
    if ((++in->n_done < in->n_parts) ||
        (in->state != BT_TRANSFER_IN_STATE_OPEN)) {
        return false;
    }
    *event_p = *sum;
    event_p->type = BT_TRANSFER_IN_DONE;
    event_p->note = in->note;
    return true;
}

static bool take_failed(bt_rank_transfer_in_t *in, const bt_kvt_event_t *event,
                        bt_transfer_event_t *event_p)
{
    if (in->state != BT_TRANSFER_IN_STATE_OPEN) {
        return false;
    }
    in->state = BT_TRANSFER_IN_STATE_FAILED;
    *event_p = (bt_transfer_event_t){.type = BT_TRANSFER_IN_FAILED,
                                     .status = event->status,
                                     .user = in->event.user,
                                     .id = in->as.id};
    return true;
}

static bool take_closed(in_part_t *part, bt_transfer_event_t *event_p)
{
    bt_rank_transfer_in_t *in = part->in;
    const bool reported = in->state != BT_TRANSFER_IN_STATE_ABANDONED;

    part->region = NULL;
    if (--in->n_open > 0) {
        return false;
    }
    *event_p = (bt_transfer_event_t){
        .type = BT_TRANSFER_IN_CLOSED, .user = in->event.user, .id = in->as.id};
    free_in(in);
    return reported;
}

/* ---- sending ---- */

static void free_out(bt_rank_transfer_out_t *out)
{
    bt_list_remove(&out->as.link);
    bt_free(out);
}

bt_status_t bt_rank_transfer_connect(bt_rank_transfer_t *own, uint64_t id,
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
    peer = bt_calloc(1, sizeof(*peer) + route->n_pairs * sizeof(*peer->parts));
    if (peer == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    peer->own = own;
    peer->user = user;
    peer->as.id = id;
    bt_list_push_back(&own->peers, &peer->as.link);
    for (uint32_t i = 0; (status == BT_OK) && (i < route->n_pairs); i++) {
        const uint32_t r = route->pairs[i].rank;
        peer_part_t *part = &peer->parts[i];

        *part = (peer_part_t){.peer = peer, .pair = &route->pairs[i]};
        peer->n_parts++;
        status = (r < n_ranks)
                     ? bt_kvt_import(own->config.kvt, ranks[r].kvt,
                                     ranks[r].kvt_bytes, part, &part->kvt)
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
    for (uint32_t i = 0; i < peer->n_parts; i++) {
        if (peer->parts[i].kvt != NULL) {
            bt_kvt_peer_release(peer->parts[i].kvt);
        }
    }
    bt_list_remove(&peer->as.link);
    bt_free(peer);
}

void bt_rank_transfer_disconnect_all(bt_rank_transfer_t *own)
{
    BT_LIST_FOR_EACH_ENTRY(bt_rank_transfer_peer_t, peer, &own->peers,
                           as.link) {
        bt_rank_transfer_disconnect(peer);
    }
}

const char *bt_rank_transfer_path(const bt_rank_transfer_peer_t *peer)
{
    return bt_kvt_peer_path(peer->parts[0].kvt);
}

/* The grant's region from this rank to rank `to`. NULL: there is none. */
static const bt_wire_region_t *region_of(const bt_rank_transfer_t *own,
                                         const bt_wire_region_t *regions,
                                         uint32_t n_regions, uint32_t to)
{
    for (uint32_t i = 0; i < n_regions; i++) {
        if ((regions[i].from == own->config.rank) && (regions[i].to == to)) {
            return &regions[i];
        }
    }
    return NULL;
}

static uint32_t n_from(uint32_t rank, const bt_wire_region_t *regions,
                       uint32_t n_regions)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < n_regions; i++) {
        n += regions[i].from == rank;
    }
    return n;
}

static bt_status_t begin_part(bt_rank_transfer_out_t *out,
                              const peer_part_t *to,
                              const bt_transfer_job_t *job,
                              const bt_wire_region_t *region)
{
    out_part_t *part = &out->parts[out->n_parts++];
    bt_status_t status;

    *part = (out_part_t){.out = out,
                         .handover = handover_of(out->own, to->pair, job)};
    if (region == NULL) {
        return BT_ERR_MISMATCH;
    }
    status = bt_kvt_prep(to->kvt, region->blob, region->blob_bytes, part,
                         &part->xfer);
    if (status != BT_OK) {
        part->xfer = NULL;
        return status;
    }
    out->n_open++;
    return (bt_kvt_xfer_region_bytes(part->xfer) ==
            bt_kv_handover_bytes(&part->handover))
               ? BT_OK
               : BT_ERR_MISMATCH;
}

bt_status_t bt_rank_transfer_out_begin(bt_rank_transfer_peer_t *peer,
                                       uint64_t id,
                                       const bt_transfer_job_t *job,
                                       const bt_wire_region_t *regions,
                                       uint32_t n_regions, void *user,
                                       bt_rank_transfer_out_t **out_p)
{
    bt_rank_transfer_out_t *out =
        bt_calloc(1, sizeof(*out) + peer->n_parts * sizeof(*out->parts));
    bt_status_t status = BT_OK;

    if (out == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_list_push_back(&peer->own->outs, &out->as.link);
    out->own = peer->own;
    out->as.id = id;
    out->event.user = user;
    out->event.id = id;
    if (n_from(peer->own->config.rank, regions, n_regions) != peer->n_parts) {
        status = BT_ERR_MISMATCH;
    }
    for (uint32_t i = 0; (status == BT_OK) && (i < peer->n_parts); i++) {
        const peer_part_t *to = &peer->parts[i];

        status = (to->kvt == NULL)
                     ? BT_ERR_PEER_LOST
                     : begin_part(out, to, job,
                                  region_of(peer->own, regions, n_regions,
                                            to->pair->rank));
    }
    if (status == BT_OK) {
        *out_p = out;
        return BT_OK;
    }
    out->is_abandoned = true;
    bt_rank_transfer_out_cancel(out);
    return status;
}

/* Bytes of each block at this rank, up to @a layers layers of the model. */
static size_t bytes_of(const bt_rank_transfer_t *own, uint32_t group,
                       uint32_t n_layers)
{
    return bt_kv_group_bytes_of(own->config.own, group, n_layers);
}

static bt_status_t post_part(const bt_rank_transfer_t *own,
                             const out_part_t *part, const uint32_t *table,
                             uint32_t first, uint32_t end, uint32_t from,
                             uint32_t to)
{
    for (uint32_t g = 0; g < own->config.groups->n; g++) {
        bt_kv_walk_t walk = bt_kv_handover_walk(&part->handover, g, BT_KV_SRC,
                                                table, first, end);
        bt_kv_piece_t piece;

        bt_kv_walk_clip(&walk, bytes_of(own, g, from), bytes_of(own, g, to));
        while (bt_kv_walk_next(&walk, &piece)) {
            const bt_status_t status =
                bt_kvt_post(part->xfer, own->config.base + piece.pool,
                            piece.region, piece.bytes);

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

    for (uint32_t i = 0; (status == BT_OK) && (i < out->n_parts); i++) {
        status = (out->parts[i].xfer == NULL)
                     ? BT_ERR_CANCELED
                     : post_part(out->own, &out->parts[i], table, first, end,
                                 from, to);
    }
    return status;
}

bt_status_t bt_rank_transfer_out_finish(bt_rank_transfer_out_t *out,
                                        const void *note, size_t note_bytes)
{
    bt_status_t status = BT_OK;

    for (uint32_t i = 0; (status == BT_OK) && (i < out->n_parts); i++) {
        status = (out->parts[i].xfer == NULL)
                     ? BT_ERR_CANCELED
                     : bt_kvt_finish(out->parts[i].xfer, note, note_bytes);
    }
    return status;
}

void bt_rank_transfer_out_cancel(bt_rank_transfer_out_t *out)
{
    if (out->n_open == 0) {
        BT_ASSERT(out->is_abandoned);
        free_out(out);
        return;
    }
    for (uint32_t i = 0; i < out->n_parts; i++) {
        if (out->parts[i].xfer != NULL) {
            bt_kvt_cancel(out->parts[i].xfer);
        }
    }
}

static bool take_sent(out_part_t *part, const bt_kvt_event_t *event,
                      bt_transfer_event_t *event_p)
{
    bt_rank_transfer_out_t *out = part->out;
    bt_transfer_event_t *sum = &out->event;
    const bool reported = !out->is_abandoned;

    bt_kvt_release(part->xfer);
    part->xfer = NULL;
    sum->bytes += event->bytes;
    if ((event->status != BT_OK) && (sum->status == BT_OK)) {
        sum->status = event->status;
        bt_rank_transfer_out_cancel(out); /* the others are of no use */
    }
    if (--out->n_open > 0) {
        return false;
    }
    *event_p = *sum;
    event_p->type = BT_TRANSFER_OUT_DONE;
    free_out(out);
    return reported;
}

/* The peer is up when the last of its ranks is. */
static bool take_peer_up(const peer_part_t *part, bt_transfer_event_t *event_p)
{
    bt_rank_transfer_peer_t *peer = part->peer;

    peer->n_up++;
    if ((peer->state != BT_TRANSFER_PEER_STATE_CONNECTING) ||
        (peer->n_up < peer->n_parts)) {
        return false;
    }
    peer->state = BT_TRANSFER_PEER_STATE_UP;
    *event_p = (bt_transfer_event_t){
        .type = BT_TRANSFER_PEER_UP, .user = peer->user, .id = peer->as.id};
    return true;
}

/* One lost rank loses the peer. */
static bool take_peer_lost(const peer_part_t *part, const bt_kvt_event_t *event,
                           bt_transfer_event_t *event_p)
{
    bt_rank_transfer_peer_t *peer = part->peer;

    if (peer->state == BT_TRANSFER_PEER_STATE_LOST) {
        return false;
    }
    peer->state = BT_TRANSFER_PEER_STATE_LOST;
    *event_p = (bt_transfer_event_t){.type = BT_TRANSFER_PEER_LOST,
                                     .user = peer->user,
                                     .id = peer->as.id,
                                     .at = event->at,
                                     .why = event->why};
    return true;
}

bool bt_rank_transfer_take(const bt_kvt_event_t *event,
                           bt_transfer_event_t *event_p)
{
    switch (event->type) {
    case BT_KVT_REGION_DONE:
        return take_done(event->user, event, event_p);
    case BT_KVT_REGION_FAILED:
        return take_failed(((in_part_t *)event->user)->in, event, event_p);
    case BT_KVT_REGION_CLOSED:
        return take_closed(event->user, event_p);
    case BT_KVT_XFER_DONE:
        return take_sent(event->user, event, event_p);
    case BT_KVT_PEER_LOST:
        return take_peer_lost(event->user, event, event_p);
    case BT_KVT_PEER_UP:
        return take_peer_up(event->user, event_p);
    case BT_KVT_QUARANTINE_STUCK:
        *event_p =
            (bt_transfer_event_t){.type = BT_TRANSFER_STUCK, .pid = event->pid};
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
    bt_list_init(&own->peers);
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
    if (own == NULL) {
        return;
    }
    BT_LIST_FOR_EACH_ENTRY(route_t, r, &own->routes, link) {
        bt_list_remove(&r->link);
        bt_kv_route_fini(&r->route);
        bt_free(r);
    }
    BT_LIST_FOR_EACH_ENTRY(bt_rank_transfer_in_t, in, &own->ins, as.link) {
        free_in(in);
    }
    BT_LIST_FOR_EACH_ENTRY(bt_rank_transfer_out_t, out, &own->outs, as.link) {
        free_out(out);
    }
    bt_free(own->extents);
    bt_free(own->descs);
    bt_free(own);
}
