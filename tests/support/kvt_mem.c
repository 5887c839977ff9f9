/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/kvt_mem.h"

#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "kvtransfer/kvt_stage.h"

#define DELAY_ROUNDS      50u
#define REORDER_ROUNDS    10u /* when nothing comes behind it */
#define PACKETS_PER_ROUND 4   /* few, so that rounds of the sides interleave */
#define FIRST_PID         1000

typedef struct mem_node mem_node_t;

struct bt_kvt_mem_net {
    bt_list_t nodes;
    uint32_t n_nodes, n_steps;
    uint32_t fault_step; /* 0 = none */
    bt_kvt_mem_fault_t fault;
    bool cut;
    bool no_devices;
};

/* Lives until the net is destroyed: others may have its pool mapped. */
struct mem_node {
    bt_list_t link;
    bt_kvt_mem_net_t *net;
    bt_kvt_t *kvt; /* NULL once closed */
    uint64_t instance;
    uint8_t *pool; /* owned */
    bool shares, dead;
    int32_t pid;
    int fd;
    uint64_t rounds;
    bt_list_t inbox;     /* packet.link */
    bt_list_t landing;   /* packet.link: a buffer is given, bytes to come */
    bt_list_t completed; /* packet.link: own pieces that are through */
};

typedef enum packet_kind {
    PACKET_MESSAGE,
    PACKET_PIECE,
    PACKET_BREAK, /* the connection of `from` ended; gone: its process */
} packet_kind_t;

typedef struct packet {
    bt_list_t link;
    packet_kind_t kind;
    mem_node_t *from;
    bool gone;
    bool swap;           /* to be overtaken by the next */
    uint64_t not_before; /* round of the receiver */
    bt_kvt_xfer_t *xfer; /* piece: completes at `from`; NULL: nobody waits */
    bt_kvt_slot_t *slot; /* ...with it */
    const uint8_t *src;  /* piece: the sender's memory, or data below */
    bt_kvt_region_t *region;
    uint8_t *dst;
    bt_kvt_piece_t piece;
    size_t bytes;
    uint8_t header[BT_KVT_PIECE_BYTES];
    uint8_t data[];
} packet_t;

bt_status_t bt_kvt_mem_net_create(bt_kvt_mem_net_t **net_p)
{
    bt_kvt_mem_net_t *net = bt_calloc(1, sizeof(*net));

    if (net == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_list_init(&net->nodes);
    *net_p = net;
    return BT_OK;
}

void bt_kvt_mem_net_destroy(bt_kvt_mem_net_t *net)
{
    if (net == NULL) {
        return;
    }
    while (!bt_list_empty(&net->nodes)) {
        mem_node_t *node = BT_CONTAINER_OF(net->nodes.next, mem_node_t, link);

        BT_ASSERT_ALWAYS(node->kvt == NULL);
        bt_list_remove(&node->link);
        bt_free(node->pool);
        bt_free(node);
    }
    bt_free(net);
}

void bt_kvt_mem_net_fault(bt_kvt_mem_net_t *net, uint32_t step,
                          bt_kvt_mem_fault_t fault)
{
    net->fault_step = step;
    net->fault = fault;
}

void bt_kvt_mem_net_heal(bt_kvt_mem_net_t *net)
{
    net->cut = false;
}

void bt_kvt_mem_net_takes_devices(bt_kvt_mem_net_t *net, bool takes)
{
    net->no_devices = !takes;
}

uint32_t bt_kvt_mem_net_steps(const bt_kvt_mem_net_t *net)
{
    return net->n_steps;
}

static mem_node_t *node_find(const bt_kvt_mem_net_t *net, uint64_t instance)
{
    bt_list_t *pos, *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &net->nodes)
    {
        mem_node_t *node = BT_CONTAINER_OF(pos, mem_node_t, link);

        if (node->instance == instance) {
            return node;
        }
    }
    return NULL;
}

static bt_kvt_mem_fault_t step(bt_kvt_mem_net_t *net)
{
    net->n_steps++;
    return (net->n_steps == net->fault_step) ? net->fault : BT_KVT_MEM_NONE;
}

static void wake(const mem_node_t *node)
{
    if (node->fd >= 0) {
        (void)eventfd_write(node->fd, 1);
    }
}

static void enqueue(mem_node_t *to, packet_t *p)
{
    bt_list_push_back(&to->inbox, &p->link);
    wake(to);
}

/** The bytes of @a p are no longer read: tell its sender, or free it. */
static void packet_end(packet_t *p)
{
    bt_list_remove(&p->link);
    if ((p->xfer != NULL) && (p->from->kvt != NULL)) {
        bt_list_push_back(&p->from->completed, &p->link);
        wake(p->from);
    } else {
        bt_free(p);
    }
}

/** What @a from has in others' queues: data is lost, words may be out. */
static void pieces_withdraw(mem_node_t *from, const mem_node_t *to)
{
    bt_list_t *pos, *tmp, *at, *at_tmp;

    BT_LIST_FOR_EACH(pos, tmp, &from->net->nodes)
    {
        mem_node_t *node = BT_CONTAINER_OF(pos, mem_node_t, link);

        if ((to != NULL) && (node != to)) {
            continue;
        }
        BT_LIST_FOR_EACH(at, at_tmp, &node->inbox)
        {
            packet_t *p = BT_CONTAINER_OF(at, packet_t, link);

            if ((p->from == from) && (p->kind == PACKET_PIECE)) {
                packet_end(p);
            }
        }
        BT_LIST_FOR_EACH(at, at_tmp, &node->landing)
        {
            packet_t *p = BT_CONTAINER_OF(at, packet_t, link);

            if (p->from == from) {
                if (node->kvt != NULL) {
                    bt_kvt_region_landed(p->region, p->piece.offset,
                                         p->piece.bytes, false);
                }
                packet_end(p);
            }
        }
    }
}

/** Tell @a to that the connection with @a from ended. */
static void break_send(mem_node_t *from, mem_node_t *to, bool gone)
{
    packet_t *p;

    if ((to == from) || to->dead || (to->kvt == NULL) ||
        (from->net->cut && !gone)) { /* a process' end is seen locally */
        return;
    }
    p = bt_calloc(1, sizeof(*p));
    if ((p == NULL) && gone) { /* the system tells it and needs no memory */
        p = bt_calloc(1, sizeof(*p));
    }
    if (p == NULL) {
        return; /* then the silence tells */
    }
    p->kind = PACKET_BREAK;
    p->from = from;
    p->gone = gone;
    enqueue(to, p);
}

static void node_kill(mem_node_t *node)
{
    bt_list_t *pos, *tmp;

    if (node->dead) {
        return;
    }
    node->dead = true;
    if (node->kvt != NULL) {
        node->kvt->frozen = true;
    }
    pieces_withdraw(node, NULL);
    BT_LIST_FOR_EACH(pos, tmp, &node->inbox)
    {
        packet_end(BT_CONTAINER_OF(pos, packet_t, link));
    }
    BT_LIST_FOR_EACH(pos, tmp, &node->net->nodes)
    {
        break_send(node, BT_CONTAINER_OF(pos, mem_node_t, link), true);
    }
}

void bt_kvt_mem_net_kill(bt_kvt_mem_net_t *net, uint64_t instance)
{
    node_kill(node_find(net, instance));
}

void bt_kvt_mem_net_stop(bt_kvt_mem_net_t *net, uint64_t instance, bool stopped)
{
    mem_node_t *node = node_find(net, instance);

    node->kvt->frozen = stopped || node->dead;
    wake(node);
}

bool bt_kvt_mem_net_is_dead(const bt_kvt_mem_net_t *net, uint64_t instance)
{
    return node_find(net, instance)->dead;
}

/** Send @a p, or let the script have its way. */
static bt_status_t packet_send(packet_t *p, mem_node_t *to)
{
    mem_node_t *from = p->from;
    const bt_kvt_mem_fault_t fault = step(from->net);
    const uint8_t *bytes = (p->kind == PACKET_PIECE) ? p->src : p->data;
    packet_t *twin;

    switch (fault) {
    case BT_KVT_MEM_DUPLICATE:
        twin = bt_calloc(1, sizeof(*twin) + p->bytes);
        if (twin == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        *twin = *p;
        memcpy(twin->data, bytes, p->bytes);
        twin->src = twin->data;
        twin->xfer = NULL;
        twin->slot = NULL;
        enqueue(to, p);
        enqueue(to, twin);
        return BT_OK;
    case BT_KVT_MEM_REORDER:
        p->swap = true;
        p->not_before = to->rounds + REORDER_ROUNDS;
        break;
    case BT_KVT_MEM_DELAY:
        p->not_before = to->rounds + DELAY_ROUNDS;
        break;
    case BT_KVT_MEM_CORRUPT:
        if (p->kind == PACKET_MESSAGE) {
            p->data[p->bytes / 2] ^= 0x10;
        } else {
            p->header[BT_KVT_PIECE_BYTES / 2] ^= 0x10;
        }
        break;
    case BT_KVT_MEM_CUT:
        from->net->cut = true;
        break;
    case BT_KVT_MEM_KILL_FROM:
        node_kill(from);
        break;
    case BT_KVT_MEM_KILL_TO:
        node_kill(to);
        break;
    default:
        break;
    }
    if ((fault == BT_KVT_MEM_LOSE) || from->net->cut || from->dead ||
        to->dead || (to->kvt == NULL)) {
        packet_end(p);
        return BT_OK;
    }
    enqueue(to, p);
    return BT_OK;
}

/* ---- what the core calls ---- */

static bt_status_t mem_open(bt_kvt_t *kvt)
{
    bt_kvt_mem_net_t *net = kvt->config.transport_arg;
    mem_node_t *node;

    if ((net == NULL) || (node_find(net, kvt->config.instance) != NULL)) {
        return BT_ERR_INVALID_PARAM;
    }
    if (net->no_devices && (kvt->config.memory == BT_KVT_MEMORY_DEVICE)) {
        if (kvt->config.device.copier == NULL) {
            return BT_ERR_UNSUPPORTED;
        }
        kvt->config.memory = BT_KVT_MEMORY_STAGED;
        kvt->config.path = kvt->asked_path;
    }
    node = bt_calloc(1, sizeof(*node));
    if (node == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    if (kvt->config.memory == BT_KVT_MEMORY_HOST) {
        node->pool =
            bt_calloc_aligned(1, kvt->config.pool_bytes + BT_KVT_PROBE_BYTES);
        if (node->pool == NULL) {
            bt_free(node);
            return BT_ERR_NO_MEMORY;
        }
    }
    node->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (node->fd < 0) {
        bt_free(node->pool);
        bt_free(node);
        return BT_ERR_IO;
    }
    node->net = net;
    node->kvt = kvt;
    node->instance = kvt->config.instance;
    node->shares = (kvt->config.path != BT_KVT_PATH_NETWORK) &&
                   (kvt->config.memory == BT_KVT_MEMORY_HOST);
    node->pid = FIRST_PID + (int32_t)net->n_nodes++;
    bt_list_init(&node->inbox);
    bt_list_init(&node->landing);
    bt_list_init(&node->completed);
    bt_list_push_back(&net->nodes, &node->link);
    kvt->transport = node;
    kvt->pool = (node->pool == NULL) ? kvt->config.device.pool : node->pool;
    return BT_OK;
}

static void packets_free(bt_list_t *head)
{
    while (!bt_list_empty(head)) {
        packet_t *p = BT_CONTAINER_OF(head->next, packet_t, link);

        bt_list_remove(&p->link);
        bt_free(p);
    }
}

static void mem_close(bt_kvt_t *kvt)
{
    mem_node_t *node = kvt->transport;
    bt_list_t *pos, *tmp;

    if (node == NULL) {
        return;
    }
    BT_LIST_FOR_EACH(pos, tmp, &node->inbox)
    {
        packet_end(BT_CONTAINER_OF(pos, packet_t, link));
    }
    BT_LIST_FOR_EACH(pos, tmp, &node->landing)
    {
        packet_end(BT_CONTAINER_OF(pos, packet_t, link));
    }
    node->kvt = NULL;
    pieces_withdraw(node, NULL);
    packets_free(&node->completed);
    if (!node->dead) {
        BT_LIST_FOR_EACH(pos, tmp, &node->net->nodes)
        {
            break_send(node, BT_CONTAINER_OF(pos, mem_node_t, link), false);
        }
    }
    close(node->fd);
    node->fd = -1;
    kvt->transport = NULL;
    kvt->pool = NULL;
}

static void mem_describe(bt_kvt_t *kvt, bt_kvt_export_info_t *info_p)
{
    const mem_node_t *node = kvt->transport;

    info_p->host.pid = (uint32_t)node->pid;
    info_p->shm_base = node->shares ? 1 : 0;
}

static bt_status_t mem_connect(bt_kvt_link_t *link,
                               const bt_kvt_export_info_t *info)
{
    const mem_node_t *node = link->kvt->transport;

    link->transport = node_find(node->net, info->instance);
    return (link->transport == NULL) ? BT_ERR_PEER_LOST : BT_OK;
}

static void mem_disconnect(bt_kvt_link_t *link)
{
    mem_node_t *node = link->kvt->transport;

    pieces_withdraw(node, link->transport);
    break_send(node, link->transport, false);
}

static void mem_forget(bt_kvt_link_t *link)
{
    link->transport = NULL;
}

static bt_status_t mem_map(bt_kvt_link_t *link,
                           const bt_kvt_export_info_t *info)
{
    mem_node_t *to = link->transport;

    if (!to->shares || (info->shm_base == 0) || to->dead) {
        return BT_ERR_UNSUPPORTED;
    }
    link->map = to->pool;
    return BT_OK;
}

static void mem_unmap(bt_kvt_link_t *link)
{
    (void)link;
}

static bt_status_t mem_watch(bt_kvt_link_t *link,
                             const bt_kvt_export_info_t *info)
{
    const mem_node_t *to = link->transport;

    if (to->dead) {
        return BT_ERR_PEER_LOST;
    }
    link->pid = (int32_t)info->host.pid;
    return BT_OK;
}

static bt_status_t mem_send(bt_kvt_link_t *link, const void *msg, size_t bytes)
{
    packet_t *p = bt_calloc(1, sizeof(*p) + bytes);

    if (p == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_list_init(&p->link);
    p->kind = PACKET_MESSAGE;
    p->from = link->kvt->transport;
    p->bytes = bytes;
    memcpy(p->data, msg, bytes);
    return packet_send(p, link->transport);
}

static bt_status_t mem_send_data(bt_kvt_xfer_t *xfer,
                                 const uint8_t header[BT_KVT_PIECE_BYTES],
                                 const void *src, size_t bytes,
                                 bt_kvt_slot_t *slot)
{
    const bt_kvt_config_t *config = &xfer->kvt->config;
    const bool device = config->memory == BT_KVT_MEMORY_DEVICE;
    packet_t *p = bt_calloc(1, sizeof(*p) + (device ? bytes : 0));

    if (p == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    if (device) {
        const bt_status_t status =
            config->device.read(config->device.user, p->data, src, bytes);

        if (status != BT_OK) {
            bt_free(p);
            return status;
        }
        src = p->data;
    }
    bt_list_init(&p->link);
    p->kind = PACKET_PIECE;
    p->from = xfer->kvt->transport;
    p->xfer = xfer;
    p->slot = slot;
    p->src = src;
    p->bytes = bytes;
    memcpy(p->header, header, sizeof(p->header));
    return packet_send(p, xfer->link->transport);
}

static uint64_t mem_copy(bt_kvt_link_t *link, const bt_hash_piece_t *pieces,
                         uint32_t n_pieces, uint64_t seed)
{
    mem_node_t *node = link->kvt->transport;
    const bt_hash_piece_t *const middle = &pieces[n_pieces / 2];
    const bt_kvt_mem_fault_t fault = step(node->net);
    uint64_t hash;

    switch (fault) {
    case BT_KVT_MEM_LOSE:
        return bt_hash64_pieces(pieces, n_pieces, seed);
    case BT_KVT_MEM_KILL_FROM: /* in the middle of it */
        memcpy(pieces[0].dst, pieces[0].src, pieces[0].n / 2);
        node_kill(node);
        return 0;
    case BT_KVT_MEM_KILL_TO:
        node_kill(link->transport);
        break;
    case BT_KVT_MEM_CUT:
        node->net->cut = true;
        break;
    default:
        break;
    }
    hash = bt_hash64_copy_pieces(pieces, n_pieces, seed);
    if (fault == BT_KVT_MEM_CORRUPT) {
        ((uint8_t *)middle->dst)[middle->n / 2] ^= 0x10;
    }
    return hash;
}

/* ---- progress ---- */

static void piece_deliver(mem_node_t *node, packet_t *p)
{
    p->dst = bt_kvt_region_take(node->kvt, p->header, sizeof(p->header),
                                p->bytes, &p->piece, &p->region);
    if (p->dst == NULL) {
        packet_end(p);
        return;
    }
    /* The bytes come in another round, as with a rendezvous. */
    bt_list_remove(&p->link);
    bt_list_push_back(&node->landing, &p->link);
}

/** The end of a connection is that of the link in use; the end of a process is
 *  that of all it ever had: what it held by one that was lost before is free
 *  now. */
static void break_deliver(mem_node_t *node, const packet_t *p)
{
    bt_list_t *pos, *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &node->kvt->links)
    {
        bt_kvt_link_t *link = BT_CONTAINER_OF(pos, bt_kvt_link_t, all);

        if ((link->instance == p->from->instance) &&
            (p->gone || !bt_kvt_link_is_lost(link->state))) {
            bt_kvt_link_lost(link, p->gone,
                             p->gone ? "its process ended"
                                     : "its connection ended");
        }
    }
}

static void packet_deliver(mem_node_t *node, packet_t *p)
{
    switch (p->kind) {
    case PACKET_PIECE:
        piece_deliver(node, p);
        break;
    case PACKET_MESSAGE:
        bt_list_remove(&p->link);
        (void)bt_kvt_take_message(
            node->kvt, bt_kvt_link_find(node->kvt, p->from->instance), p->data,
            p->bytes);
        bt_free(p);
        break;
    case PACKET_BREAK:
        bt_list_remove(&p->link);
        break_deliver(node, p);
        bt_free(p);
        break;
    }
}

static packet_t *packet_next(mem_node_t *node)
{
    packet_t *p;

    if (bt_list_empty(&node->inbox)) {
        return NULL;
    }
    p = BT_CONTAINER_OF(node->inbox.next, packet_t, link);
    if (p->not_before <= node->rounds) {
        return p;
    }
    if (p->swap && (p->link.next != &node->inbox)) {
        p->not_before = 0;
        return BT_CONTAINER_OF(p->link.next, packet_t, link);
    }
    return NULL;
}

static void landings_finish(mem_node_t *node)
{
    bt_list_t *pos, *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &node->landing)
    {
        packet_t *p = BT_CONTAINER_OF(pos, packet_t, link);

        if (bt_kvt_stage_full(node->kvt)) {
            return;
        }
        bt_kvt_region_put(p->region, p->dst, p->src, p->piece.offset,
                          p->piece.bytes);
        packet_end(p);
    }
}

static void completions_report(mem_node_t *node)
{
    while (!bt_list_empty(&node->completed)) {
        packet_t *p = BT_CONTAINER_OF(node->completed.next, packet_t, link);

        bt_list_remove(&p->link);
        bt_kvt_xfer_sent(p->xfer, p->bytes, p->slot);
        bt_free(p);
    }
}

static bool mem_progress(bt_kvt_t *kvt, uint64_t now_ms)
{
    mem_node_t *node = kvt->transport;
    packet_t *p;

    (void)now_ms;
    node->rounds++;
    landings_finish(node);
    completions_report(node);
    for (int i = 0; i < PACKETS_PER_ROUND; i++) {
        p = packet_next(node);
        if (p == NULL) {
            break;
        }
        packet_deliver(node, p);
    }
    return !bt_list_empty(&node->inbox) || !bt_list_empty(&node->landing) ||
           !bt_list_empty(&node->completed);
}

static int mem_fd(const bt_kvt_t *kvt)
{
    const mem_node_t *node = kvt->transport;

    return node->fd;
}

static bt_status_t mem_arm(bt_kvt_t *kvt)
{
    mem_node_t *node = kvt->transport;
    eventfd_t count;

    if (!bt_list_empty(&node->inbox) || !bt_list_empty(&node->landing) ||
        !bt_list_empty(&node->completed)) {
        return BT_INPROGRESS;
    }
    (void)eventfd_read(node->fd, &count);
    return BT_OK;
}

const bt_kvt_transport_t bt_kvt_transport_mem = {
    .id = 2, /* kvt_wire.h */
    .open = mem_open,
    .close = mem_close,
    .describe = mem_describe,
    .connect = mem_connect,
    .disconnect = mem_disconnect,
    .forget = mem_forget,
    .map = mem_map,
    .unmap = mem_unmap,
    .watch = mem_watch,
    .send = mem_send,
    .send_data = mem_send_data,
    .copy = mem_copy,
    .progress = mem_progress,
    .fd = mem_fd,
    .arm = mem_arm,
};
