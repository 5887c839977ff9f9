/* SPDX-License-Identifier: Apache-2.0 */
/* Resource limits of a client port: connections, memory for requests and for
 * unread answers. */
#include <netinet/in.h>
#include <string.h>
#include <sys/random.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "router/net/net_priv.h"

/* Maximum of quiet connections closed for the bytes of one head: a turn of the
 * loop must stay short. */
#define CLOSED_PER_HEAD 16

void bt_stream_set_class(bt_stream_t *stream, bt_stream_class_t class)
{
    bt_net_t *net = stream->net;
    bt_list_t *list = &net->busy;

    bt_list_remove(&stream->link);
    bt_list_remove(&stream->client_link);
    stream->class = class;
    if (class == BT_STREAM_QUIET) {
        list = &net->quiet;
        if (stream->client != NULL) {
            bt_list_push_back(&stream->client->quiet, &stream->client_link);
        }
    } else if (class == BT_STREAM_READING) {
        list = &net->reading;
    }
    bt_list_push_back(list, &stream->link);
}

/* ---- connections ---- */

bool bt_net_close_first(bt_net_t *net, bt_list_t *list)
{
    if (bt_list_empty(list)) {
        return false;
    }
    bt_stream_close(BT_CONTAINER_OF(list->next, bt_stream_t, link));
    net->use.n_quiet_closed++;
    return true;
}

static bool close_own_quiet(bt_net_t *net, const bt_net_client_t *client)
{
    if (bt_list_empty(&client->quiet)) {
        return false;
    }
    bt_stream_close(
        BT_CONTAINER_OF(client->quiet.next, bt_stream_t, client_link));
    net->use.n_quiet_closed++;
    return true;
}

/* An IPv6 client has at least a /64 network, so that is counted. */
static void key_of(const struct sockaddr_storage *from, uint8_t key[16])
{
    memset(key, 0, 16);
    if (from->ss_family == AF_INET) {
        key[10] = 0xff;
        key[11] = 0xff;
        memcpy(key + 12, &((const struct sockaddr_in *)from)->sin_addr, 4);
    } else if (from->ss_family == AF_INET6) {
        const struct in6_addr *addr =
            &((const struct sockaddr_in6 *)from)->sin6_addr;

        memcpy(key, addr, IN6_IS_ADDR_V4MAPPED(addr) ? 16 : 8);
    }
}

static bool same_client(bt_list_t *link, const void *key)
{
    return memcmp(BT_CONTAINER_OF(link, bt_net_client_t, link)->key, key, 16) ==
           0;
}

/* @return the client with this address, created if new; NULL: no memory */
static bt_net_client_t *client_of(bt_net_t *net,
                                  const struct sockaddr_storage *from)
{
    uint8_t key[16];
    uint64_t hash;
    bt_list_t *link;
    bt_net_client_t *client;

    key_of(from, key);
    hash = bt_hash64(key, sizeof(key), net->client_seed);
    link = bt_hmap_find(&net->clients, hash, same_client, key);
    if (link != NULL) {
        return BT_CONTAINER_OF(link, bt_net_client_t, link);
    }
    client = bt_calloc(1, sizeof(*client));
    if (client != NULL) {
        memcpy(client->key, key, sizeof(key));
        bt_list_init(&client->quiet);
        bt_hmap_insert(&net->clients, hash, &client->link);
    }
    return client;
}

void bt_net_client_leave(bt_net_client_t *client)
{
    if ((client != NULL) && (--client->n_conns == 0)) {
        bt_list_remove(&client->link);
        bt_free(client);
    }
}

bt_net_refusal_t bt_net_admit(bt_net_t *net,
                              const struct sockaddr_storage *from,
                              bt_net_client_t **client_p)
{
    bt_net_client_t *client = NULL;

    if (net->buckets != NULL) {
        client = client_of(net, from);
        if (client == NULL) {
            return BT_NET_FULL;
        }
        /* Counted first, so that closing its other connections does not free
         * it. */
        client->n_conns++;
        if ((client->n_conns > net->config.max_per_client) &&
            !close_own_quiet(net, client)) {
            bt_net_client_leave(client);
            return BT_NET_OVER_SHARE;
        }
    }
    if ((net->n_conns >= net->config.max_connections) &&
        !bt_net_close_first(net, &net->quiet) &&
        !bt_net_close_first(net, &net->reading)) {
        bt_net_client_leave(client);
        return BT_NET_FULL;
    }
    *client_p = client;
    return BT_NET_NOT_REFUSED;
}

/* ---- memory ---- */

static void charge(uint64_t *sum, size_t *charged, size_t now)
{
    *sum = *sum - *charged + now;
    *charged = now;
}

void bt_net_charge(bt_net_t *net, size_t *charged, size_t now)
{
    if (net->config.budget != NULL) {
        bt_budget_take(net->config.budget, now);
        bt_budget_give(net->config.budget, *charged);
    }
    charge(&net->use.request_bytes, charged, now);
}

void bt_net_give_back(bt_net_t *net, size_t bytes)
{
    if (net->config.budget != NULL) {
        bt_budget_give(net->config.budget, bytes);
    }
    net->use.request_bytes -= bytes;
}

void bt_net_count_refused(bt_net_t *net)
{
    net->use.n_bodies_refused++;
}

void bt_net_charge_out(bt_stream_t *stream)
{
    bt_net_t *net = stream->net;

    charge(&net->use.answer_bytes, &stream->out_charged,
           stream->out.cap + stream->next.cap + stream->held);
    if ((bt_stream_unsent(stream) == 0) && (stream->held == 0)) {
        bt_list_remove(&stream->behind_link);
    } else if (bt_list_empty(&stream->behind_link)) {
        bt_list_push_back(&net->behind, &stream->behind_link);
    }
    /* Deferred: a handler's write to one client must not close others. */
    if (net->use.answer_bytes > net->config.memory_bytes) {
        event_active(&net->ev_cut, EV_TIMEOUT, 0);
    }
}

static void on_cut(evutil_socket_t fd, short what, void *arg)
{
    bt_net_t *net = arg;

    (void)fd;
    (void)what;
    while ((net->use.answer_bytes > net->config.memory_bytes) &&
           !bt_list_empty(&net->behind)) {
        bt_stream_close(
            BT_CONTAINER_OF(net->behind.next, bt_stream_t, behind_link));
        net->use.n_readers_cut++;
    }
}

bool bt_net_has_headroom(const bt_net_t *net, uint64_t have, uint64_t more)
{
    uint64_t limit = net->config.memory_bytes;

    if (have + more > BT_NET_SMALL_BYTES) {
        limit -= limit / 4;
    }
    if ((net->config.budget != NULL) &&
        !bt_budget_allows(net->config.budget, have, more)) {
        return false;
    }
    return (net->use.request_bytes <= limit) &&
           (more <= limit - net->use.request_bytes);
}

bool bt_net_reclaim(bt_net_t *net, const bt_stream_t *stream)
{
    const uint64_t limit = net->config.memory_bytes;

    for (int i = 0; (i < CLOSED_PER_HEAD) && (net->use.request_bytes > limit);
         i++) {
        bt_list_t *first = net->quiet.next;

        if (first == &stream->link) {
            first = first->next;
        }
        if (first == &net->quiet) {
            break;
        }
        bt_stream_close(BT_CONTAINER_OF(first, bt_stream_t, link));
        net->use.n_quiet_closed++;
    }
    return net->use.request_bytes <= limit;
}

/* ---- birth and end ---- */

bt_status_t bt_net_limits_init(bt_net_t *net)
{
    bt_list_init(&net->quiet);
    bt_list_init(&net->reading);
    bt_list_init(&net->busy);
    bt_list_init(&net->dead);
    bt_list_init(&net->behind);
    bt_list_init(&net->gathering);
    bt_list_init(&net->in_handshake);
    evtimer_assign(&net->ev_cut, net->base, on_cut, net);
    bt_net_put_last(net, &net->ev_cut);
    if (net->config.max_per_client == 0) {
        return BT_OK;
    }
    net->buckets = bt_calloc(BT_NET_CLIENT_BUCKETS, sizeof(bt_list_t));
    if (net->buckets == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_hmap_init(&net->clients, net->buckets, BT_NET_CLIENT_BUCKETS);
    /* Clients must not know which addresses share a bucket; without entropy a
     * fixed seed is used. */
    if (getrandom(&net->client_seed, sizeof(net->client_seed), 0) < 0) {
        net->client_seed = 0;
    }
    return BT_OK;
}

void bt_net_limits_fini(bt_net_t *net)
{
    event_del(&net->ev_cut);
    bt_free(net->buckets);
}
