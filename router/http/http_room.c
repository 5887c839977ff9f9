/* SPDX-License-Identifier: Apache-2.0 */
/* Who may take how much of the HTTP server: places for connections, memory for
 * requests and for answers that are not read. */
#include <netinet/in.h>
#include <string.h>
#include <sys/random.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "router/http/http_priv.h"

/* So many quiet connections are closed at most for the bytes of one head: a
 * turn of the loop must stay short. */
#define CLOSED_PER_HEAD 16

static bool is_quiet(const bt_conn_t *conn)
{
    return (conn->state == BT_CONN_IDLE) || (conn->state == BT_CONN_HEAD);
}

void bt_http_file(bt_conn_t *conn)
{
    bt_http_t *http = conn->http;
    bt_list_t *list = &http->busy;

    bt_list_remove(&conn->link);
    bt_list_remove(&conn->client_link);
    if (is_quiet(conn)) {
        list = &http->quiet;
        if (conn->client != NULL) {
            bt_list_push_back(&conn->client->quiet, &conn->client_link);
        }
    } else if (conn->state == BT_CONN_BODY) {
        list = &http->reading;
    }
    bt_list_push_back(list, &conn->link);
}

/* ---- connections ---- */

static bool close_first(bt_http_t *http, bt_list_t *list)
{
    if (bt_list_empty(list)) {
        return false;
    }
    bt_conn_close(BT_CONTAINER_OF(list->next, bt_conn_t, link));
    http->use.n_quiet_closed++;
    return true;
}

bool bt_http_close_quiet(bt_http_t *http)
{
    return close_first(http, &http->quiet);
}

static bool close_own_quiet(bt_http_t *http, const bt_http_client_t *client)
{
    if (bt_list_empty(&client->quiet)) {
        return false;
    }
    bt_conn_close(BT_CONTAINER_OF(client->quiet.next, bt_conn_t, client_link));
    http->use.n_quiet_closed++;
    return true;
}

/* An IPv6 client has a /64 of its own at least, so that is what counts. */
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
    return memcmp(BT_CONTAINER_OF(link, bt_http_client_t, link)->key, key,
                  16) == 0;
}

/* @return the client with this address, made when it is new; NULL: no memory */
static bt_http_client_t *client_of(bt_http_t *http,
                                   const struct sockaddr_storage *from)
{
    uint8_t key[16];
    uint64_t hash;
    bt_list_t *link;
    bt_http_client_t *client;

    key_of(from, key);
    hash = bt_hash64(key, sizeof(key), http->client_seed);
    link = bt_hmap_find(&http->clients, hash, same_client, key);
    if (link != NULL) {
        return BT_CONTAINER_OF(link, bt_http_client_t, link);
    }
    client = bt_calloc(1, sizeof(*client));
    if (client != NULL) {
        memcpy(client->key, key, sizeof(key));
        bt_list_init(&client->quiet);
        bt_hmap_insert(&http->clients, hash, &client->link);
    }
    return client;
}

void bt_http_client_leave(bt_http_client_t *client)
{
    if ((client != NULL) && (--client->n_conns == 0)) {
        bt_list_remove(&client->link);
        bt_free(client);
    }
}

int bt_http_admit(bt_http_t *http, const struct sockaddr_storage *from,
                  bt_http_client_t **client_p)
{
    bt_http_client_t *client = NULL;

    if (http->buckets != NULL) {
        client = client_of(http, from);
        if (client == NULL) {
            return 503;
        }
        /* First, so that closing its others leaves it standing. */
        client->n_conns++;
        if ((client->n_conns > http->config.max_per_client) &&
            !close_own_quiet(http, client)) {
            bt_http_client_leave(client);
            return 429;
        }
    }
    if ((http->n_conns >= http->config.max_connections) &&
        !close_first(http, &http->quiet) &&
        !close_first(http, &http->reading)) {
        bt_http_client_leave(client);
        return 503;
    }
    *client_p = client;
    return 0;
}

/* ---- memory ---- */

static void charge(uint64_t *sum, size_t *charged, size_t now)
{
    *sum = *sum - *charged + now;
    *charged = now;
}

void bt_http_charge_in(bt_conn_t *conn)
{
    charge(&conn->http->use.request_bytes, &conn->in_charged, conn->in.cap);
}

void bt_http_charge_exchange(bt_exchange_t *ex)
{
    charge(&ex->http->use.request_bytes, &ex->charged,
           ex->head_bytes + ex->body.cap);
}

void bt_http_charge_out(bt_conn_t *conn)
{
    bt_http_t *http = conn->http;

    charge(&http->use.answer_bytes, &conn->out_charged, conn->out.cap);
    if (conn->out.len == conn->out_sent) {
        bt_list_remove(&conn->behind_link);
    } else if (bt_list_empty(&conn->behind_link)) {
        bt_list_push_back(&http->behind, &conn->behind_link);
    }
    /* Not from here: a handler's write to one client must not end others. */
    if (http->use.answer_bytes > http->config.memory_bytes) {
        event_active(&http->ev_cut, EV_TIMEOUT, 0);
    }
}

static void on_cut(evutil_socket_t fd, short what, void *arg)
{
    bt_http_t *http = arg;

    (void)fd;
    (void)what;
    while ((http->use.answer_bytes > http->config.memory_bytes) &&
           !bt_list_empty(&http->behind)) {
        bt_conn_close(
            BT_CONTAINER_OF(http->behind.next, bt_conn_t, behind_link));
        http->use.n_readers_cut++;
    }
}

bool bt_http_has_room(const bt_http_t *http, uint64_t have, uint64_t more)
{
    uint64_t limit = http->config.memory_bytes;

    if (have + more > BT_HTTP_SMALL_BODY_BYTES) {
        limit -= limit / 4;
    }
    return (http->use.request_bytes <= limit) &&
           (more <= limit - http->use.request_bytes);
}

bool bt_http_make_room(bt_http_t *http, const bt_conn_t *conn)
{
    const uint64_t limit = http->config.memory_bytes;

    for (int i = 0; (i < CLOSED_PER_HEAD) && (http->use.request_bytes > limit);
         i++) {
        bt_list_t *first = http->quiet.next;

        if (first == &conn->link) {
            first = first->next;
        }
        if (first == &http->quiet) {
            break;
        }
        bt_conn_close(BT_CONTAINER_OF(first, bt_conn_t, link));
        http->use.n_quiet_closed++;
    }
    return http->use.request_bytes <= limit;
}

/* ---- birth and end ---- */

bt_status_t bt_http_room_init(bt_http_t *http)
{
    bt_list_init(&http->quiet);
    bt_list_init(&http->reading);
    bt_list_init(&http->busy);
    bt_list_init(&http->dead);
    bt_list_init(&http->behind);
    bt_list_init(&http->gathering);
    evtimer_assign(&http->ev_cut, http->base, on_cut, http);
    bt_http_put_last(http, &http->ev_cut);
    if (http->config.max_per_client == 0) {
        return BT_OK;
    }
    http->buckets = bt_calloc(BT_HTTP_CLIENT_BUCKETS, sizeof(bt_list_t));
    if (http->buckets == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_hmap_init(&http->clients, http->buckets, BT_HTTP_CLIENT_BUCKETS);
    /* Clients must not know which addresses meet in a bucket; without entropy
     * they are as well off as with a fixed seed. */
    if (getrandom(&http->client_seed, sizeof(http->client_seed), 0) < 0) {
        http->client_seed = 0;
    }
    return BT_OK;
}

void bt_http_room_fini(bt_http_t *http)
{
    event_del(&http->ev_cut);
    bt_free(http->buckets);
}
