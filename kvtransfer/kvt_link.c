/* SPDX-License-Identifier: Apache-2.0 */
#include "kvtransfer/kvt_core.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "kvtransfer/kvt_stage.h"

bt_kvt_link_t *bt_kvt_link_find(bt_kvt_t *kvt, uint64_t instance)
{
    BT_LIST_FOR_EACH_ENTRY(bt_kvt_link_t, link, &kvt->links, all) {
        if ((link->instance == instance) && !bt_kvt_link_is_lost(link->state)) {
            return link;
        }
    }
    return NULL;
}

bool bt_kvt_link_move(bt_kvt_link_t *link, bt_kvt_link_input_t input)
{
    bt_kvt_link_state_t next;

    if (bt_kvt_link_next(link->state, input, &next) != BT_OK) {
        return false;
    }
    link->state = next;
    if (next == BT_KVT_LINK_IS_BROKEN) {
        link->kvt->broken = true;
    }
    return true;
}

void bt_kvt_link_send(bt_kvt_link_t *link, bt_kvt_msg_t *msg)
{
    bt_kvt_t *kvt = link->kvt;
    size_t bytes = 0;
    bt_status_t status;

    if (link->state >= BT_KVT_LINK_IS_BROKEN) {
        return;
    }
    msg->from = kvt->config.instance;
    msg->nonce = link->nonce;
    if (bt_kvt_msg_greets(msg->type)) {
        msg->to = link->instance;
        memcpy(msg->random, link->random, sizeof(msg->random));
    }
    status = bt_kvt_msg_encode(
        msg, bt_kvt_msg_greets(msg->type) ? link->plane_key : link->key,
        kvt->scratch, BT_KVT_MAX_MSG, &bytes);
    if (status == BT_OK) {
        status = kvt->ops->send(link, kvt->scratch, bytes);
    }
    if (status != BT_OK) {
        /* Not lost at once: callers are in the middle of lists. */
        (void)bt_kvt_link_move(link, BT_KVT_LINK_ON_SEND_FAILED);
    }
}

void bt_kvt_link_send_lease(bt_kvt_link_t *link, bt_kvt_msg_type_t type,
                            const bt_kvt_lease_t *lease, bt_status_t status)
{
    bt_kvt_msg_t msg = {.type = type, .lease = *lease, .status = status};

    msg.floor = bt_kvt_regions_floor(link->kvt);
    bt_kvt_link_send(link, &msg);
}

static void hello_send(bt_kvt_link_t *link)
{
    bt_kvt_t *kvt = link->kvt;
    bt_kvt_msg_t msg = {.type = BT_KVT_MSG_HELLO, .direct = link->map != NULL};

    msg.export.data = kvt->export_blob;
    msg.export.bytes = (uint32_t)kvt->export_bytes;
    (void)bt_kvt_link_move(link, BT_KVT_LINK_ON_HELLO);
    link->last_ping_ms = kvt->now_ms;
    bt_kvt_link_send(link, &msg);
}

static uint32_t max_record_bytes(const bt_kvt_t *kvt,
                                 const bt_kvt_export_info_t *info)
{
    uint32_t bytes = (uint32_t)info->record_kib << 10;

    if ((bytes == 0) || (bytes > BT_KVT_MAX_RECORD_BYTES)) {
        bytes = BT_KVT_MAX_RECORD_BYTES;
    }
    return ((kvt->stage != NULL) && (bytes > BT_KVT_STAGE_SLOT_BYTES))
               ? BT_KVT_STAGE_SLOT_BYTES
               : bytes;
}

static uint32_t max_record_runs(const bt_kvt_export_info_t *info)
{
    const uint32_t most = BT_KVT_MAX_RECORD_RUNS;

    return (info->record_runs == 0)     ? 1
           : (info->record_runs > most) ? most
                                        : info->record_runs;
}

/** Derives our key of the link from the plane key. */
static void plane_key_use(bt_kvt_link_t *link, const uint8_t key[BT_KEY_BYTES])
{
    memcpy(link->plane_key, key, BT_KEY_BYTES);
    bt_kvt_link_key(key, link->kvt->config.instance, link->instance,
                    link->nonce, link->random, link->key);
}

static bt_status_t link_create(bt_kvt_t *kvt, const bt_kvt_export_info_t *info,
                               bt_kvt_link_t **link_p)
{
    bt_kvt_link_t *link = bt_calloc(1, sizeof(*link));
    bt_status_t status;

    if (link == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    link->kvt = kvt;
    link->instance = info->instance;
    link->pool_bytes = info->pool_bytes;
    link->nonce = kvt->next_nonce++;
    bt_key_random(link->random, sizeof(link->random));
    plane_key_use(link, kvt->config.key);
    link->max_record_bytes = max_record_bytes(kvt, info);
    link->max_record_runs = max_record_runs(info);
    bt_list_init(&link->waiting);
    bt_list_init(&link->all);
    bt_list_init(&link->peers);
    bt_list_init(&link->xfers);
    bt_list_init(&link->regions);
    status = kvt->ops->connect(link, info);
    if (status != BT_OK) {
        bt_free(link);
        return status;
    }
    if (kvt->ops->locate != NULL) {
        kvt->ops->locate(kvt, info, link->at);
    }
    bt_list_push_back(&kvt->links, &link->all);
    *link_p = link;
    return BT_OK;
}

void bt_kvt_link_free(bt_kvt_link_t *link)
{
    BT_LIST_FOR_EACH_ENTRY(bt_kvt_peer_t, peer, &link->peers, of_link) {
        bt_free(peer);
    }
    if (!link->kvt->closing) {
        link->kvt->ops->forget(link);
    }
    bt_list_remove(&link->all);
    bt_free(link->over);
    bt_key_wipe(link, sizeof(*link));
    bt_free(link);
}

static void unmap(bt_kvt_link_t *link)
{
    bt_kvt_share_unmap(link);
    if (link->map != NULL) {
        link->kvt->ops->unmap(link);
        link->map = NULL;
    }
}

void bt_kvt_link_lost(bt_kvt_link_t *link, bool gone, const char *why)
{
    bt_kvt_t *kvt = link->kvt;
    const bool first = !bt_kvt_link_is_lost(link->state);

    if (!bt_kvt_link_move(link,
                          gone ? BT_KVT_LINK_ON_GONE : BT_KVT_LINK_ON_LOSE)) {
        return;
    }
    if (first) {
        snprintf(link->why, sizeof(link->why), "%s", why);
        BT_LOG_INFO("kv transfer: link to instance %016" PRIx64
                    " pid %d lost: %s",
                    link->instance, link->pid, why);
        kvt->ops->disconnect(link);
        BT_LIST_FOR_EACH_ENTRY(bt_kvt_xfer_t, xfer, &link->xfers, of_link) {
            bt_kvt_xfer_end(xfer, BT_ERR_PEER_LOST);
        }
        unmap(link);
    }
    BT_LIST_FOR_EACH_ENTRY(bt_kvt_region_t, region, &link->regions, of_link) {
        bt_kvt_region_link_lost(region, link->state == BT_KVT_LINK_IS_GONE);
    }
    if (first) {
        BT_LIST_FOR_EACH_ENTRY(bt_kvt_peer_t, peer, &link->peers, of_link) {
            bt_kvt_event_push(kvt, &peer->lost);
        }
    }
}

/** Drops links of earlier incarnations of this sender, which has given them up.
 */
static void links_supersede(bt_kvt_t *kvt, uint64_t instance, uint64_t nonce)
{
    BT_LIST_FOR_EACH_ENTRY(bt_kvt_link_t, link, &kvt->links, all) {
        if ((link->instance == instance) && (link->peer_nonce != 0) &&
            (link->peer_nonce < nonce)) {
            bt_kvt_link_lost(link, true, "it connected anew");
        }
    }
}

/** Sets the identity of the peer, and the key of its tags. */
static void peer_know(bt_kvt_link_t *link, const bt_kvt_msg_t *msg,
                      const uint8_t key[BT_KEY_BYTES])
{
    const bool other_key =
        bt_key_equal(link->plane_key, key, BT_KEY_BYTES) == 0;

    if (other_key) {
        plane_key_use(link, key);
    }
    if (other_key || (link->peer_nonce != msg->nonce)) {
        link->peer_nonce = msg->nonce;
        bt_kvt_link_key(key, link->instance, link->kvt->config.instance,
                        msg->nonce, msg->random, link->peer_key);
    }
    link->last_heard_ms = link->kvt->now_ms;
}

static bt_kvt_seen_t *seen_find(const bt_kvt_t *kvt, uint64_t instance)
{
    for (uint32_t i = 0; i < kvt->n_seen; i++) {
        if (kvt->seen[i].instance == instance) {
            return &kvt->seen[i];
        }
    }
    return NULL;
}

/** @return an entry for a new instance, or NULL: no memory */
static bt_kvt_seen_t *seen_get(bt_kvt_t *kvt)
{
    if (kvt->n_seen == BT_KVT_MAX_SEEN) {
        return &kvt->seen[kvt->next_seen++ % BT_KVT_MAX_SEEN];
    }
    return bt_array_grow(&kvt->seen, &kvt->seen_cap, kvt->n_seen + 1,
                         sizeof(*kvt->seen))
               ? &kvt->seen[kvt->n_seen++]
               : NULL;
}

/** Remembers the incarnation of a HELLO. @return false: the HELLO is no newer
 *  than the last one, or there is no memory to detect the next replay */
static bool is_news(bt_kvt_t *kvt, const bt_kvt_msg_t *msg)
{
    bt_kvt_seen_t *seen = seen_find(kvt, msg->from);

    if ((seen != NULL) && (msg->nonce <= seen->nonce)) {
        return false;
    }
    if (seen == NULL) {
        seen = seen_get(kvt);
    }
    if (seen == NULL) {
        return false;
    }
    seen->instance = msg->from;
    seen->nonce = msg->nonce;
    return true;
}

/** Returns the link of a new HELLO, created if needed. @return NULL: none */
static bt_kvt_link_t *link_of_news(bt_kvt_t *kvt, const bt_kvt_msg_t *msg,
                                   const bt_kvt_export_info_t *info)
{
    bt_kvt_link_t *link;
    bt_status_t status;

    if (!is_news(kvt, msg)) {
        kvt->counters.stale_discarded++; /* delayed, or a replay */
        return NULL;
    }
    links_supersede(kvt, msg->from, msg->nonce);
    link = bt_kvt_link_find(kvt, msg->from);
    if (link != NULL) { /* older than the message that acknowledged ours:
                         * delayed */
        return (msg->nonce < link->peer_nonce) ? NULL : link;
    }
    status = link_create(kvt, info, &link);
    if (status != BT_OK) {
        BT_LOG_WARN("kv transfer: cannot connect back to instance %016" PRIx64
                    ": %s",
                    msg->from, bt_status_str(status));
        return NULL;
    }
    return link;
}

/** True when peers may write into this pool directly. */
static bool may_be_written(const bt_kvt_t *kvt)
{
    return (kvt->config.memory == BT_KVT_MEMORY_HOST) ||
           bt_kvt_share_is_offered(kvt);
}

bt_kvt_link_t *bt_kvt_link_hello(bt_kvt_t *kvt, bt_kvt_link_t *over,
                                 const bt_kvt_msg_t *msg,
                                 const uint8_t key[BT_KEY_BYTES])
{
    bt_kvt_msg_t ack = {.type = BT_KVT_MSG_HELLO_ACK, .echo = msg->nonce};
    bt_kvt_export_info_t info;
    bt_kvt_link_t *link = over;

    if ((bt_kvt_export_decode(msg->export.data, msg->export.bytes, &info) !=
         BT_OK) ||
        (info.instance != msg->from) || (info.transport != kvt->ops->id) ||
        (info.instance == kvt->config.instance)) {
        kvt->counters.stale_discarded++;
        BT_LOG_WARN("kv transfer: malformed hello of instance %016" PRIx64
                    " dropped",
                    msg->from);
        return NULL;
    }
    /* A repeated HELLO is answered again; otherwise it must be a new one. */
    if ((link == NULL) || bt_kvt_link_is_lost(link->state) ||
        (link->remote == BT_KVT_REMOTE_UNKNOWN) ||
        (link->instance != msg->from) || (link->peer_nonce != msg->nonce)) {
        link = link_of_news(kvt, msg, &info);
    }
    if (link == NULL) {
        return NULL;
    }

    peer_know(link, msg, key);
    if (link->remote == BT_KVT_REMOTE_UNKNOWN) {
        link->remote = (msg->direct && may_be_written(kvt) &&
                        (kvt->ops->watch(link, &info) == BT_OK))
                           ? BT_KVT_REMOTE_WRITES
                           : BT_KVT_REMOTE_SENDS;
        bt_kvt_regions_bind(link);
    }
    ack.direct = link->remote == BT_KVT_REMOTE_WRITES;
    bt_kvt_link_send(link, &ack);
    return link;
}

void bt_kvt_link_hello_ack(bt_kvt_link_t *link, const bt_kvt_msg_t *msg,
                           const uint8_t key[BT_KEY_BYTES])
{
    if ((link->peer_nonce != 0) && (link->peer_nonce != msg->nonce)) {
        if (msg->nonce > link->peer_nonce) {
            bt_kvt_link_lost(link, true, "it connected anew");
        }
        return;
    }
    peer_know(link, msg, key);
    if (!bt_kvt_link_move(link, BT_KVT_LINK_ON_ACK)) {
        return; /* repeated, or never asked for */
    }
    if ((link->map != NULL) && !msg->direct) {
        unmap(link);
        if (link->kvt->config.path == BT_KVT_PATH_SHM) {
            bt_kvt_link_lost(link, false, "it refused shared memory");
            return;
        }
    }
    BT_LIST_FOR_EACH_ENTRY(bt_kvt_peer_t, peer, &link->peers, of_link) {
        bt_kvt_event_push(link->kvt, &peer->up);
    }
    bt_kvt_xfers_wake(link);
}

void bt_kvt_links_mend(bt_kvt_t *kvt)
{
    kvt->broken = false;
    BT_LIST_FOR_EACH_ENTRY(bt_kvt_link_t, link, &kvt->links, all) {
        if (link->state == BT_KVT_LINK_IS_BROKEN) {
            bt_kvt_link_lost(link, false, "a message could not be sent");
        }
    }
}

/* Silence while the peer's process, on this host, waits for a core does not
 * count (process.h). */
static void pardon_starved(bt_kvt_link_t *link)
{
    const uint64_t now = link->kvt->now_ms;
    const uint32_t keepalive_ms = link->kvt->config.keepalive_ms;

    if (!link->kvt->config.tells_starved || (link->pid == 0) ||
        (now - link->last_heard_ms < keepalive_ms)) {
        link->wait.looked_ms = 0;
        return;
    }
    if (now - link->wait.looked_ms >= keepalive_ms / 2) {
        link->last_heard_ms += bt_core_wait_look(&link->wait, link->pid, now);
        if (link->last_heard_ms > now) {
            link->last_heard_ms = now;
        }
    }
}

static void lose_silent(bt_kvt_link_t *link)
{
    char why[BT_KVT_WHY_BYTES];

    snprintf(why, sizeof(why), "no answer for %g s (a firewall?)",
             link->kvt->config.dead_ms / 1e3);
    bt_kvt_link_lost(link, false, why);
}

/* Nothing is in flight to this peer: is it still there? A path that was cut
 * meanwhile is detected before the next transfer. */
static void idle_tick(bt_kvt_link_t *link)
{
    const bt_kvt_config_t *config = &link->kvt->config;
    const uint64_t now = link->kvt->now_ms;
    bt_kvt_msg_t ping = {.type = BT_KVT_MSG_PING};

    if ((link->probe == BT_KVT_PROBE_ASKED) &&
        (link->last_heard_ms >= link->asked_ms)) {
        link->probe = BT_KVT_PROBE_IDLE;
    }
    if (link->probe == BT_KVT_PROBE_ASKED) {
        if (now - link->asked_ms >= config->dead_ms) {
            lose_silent(link);
            return;
        }
        if (now - link->last_ping_ms < config->keepalive_ms) {
            return;
        }
    } else if (now - link->last_heard_ms >= config->dead_ms) {
        link->probe = BT_KVT_PROBE_ASKED;
        link->asked_ms = now;
    } else {
        return;
    }
    link->last_ping_ms = now;
    bt_kvt_link_send(link, &ping);
}

static void link_tick(bt_kvt_link_t *link)
{
    bt_kvt_t *kvt = link->kvt;
    const uint64_t now = kvt->now_ms;
    const bool greeting = link->state == BT_KVT_LINK_IS_GREETING;
    const bool active = greeting || !bt_list_empty(&link->xfers) ||
                        !bt_list_empty(&link->regions);
    /* A stopped process on this host keeps its connection and may go on
     * writing: only its end counts there, see bt_kvt_link_lost(gone). */
    const bool silence_counts =
        greeting ||
        ((link->map == NULL) && (link->remote != BT_KVT_REMOTE_WRITES));
    bt_kvt_msg_t ping = {.type = BT_KVT_MSG_PING};

    if (!active) {
        if (link->probe == BT_KVT_PROBE_KEEPALIVE) {
            link->probe = BT_KVT_PROBE_IDLE;
        }
        if ((link->state == BT_KVT_LINK_IS_OPEN) && silence_counts) {
            idle_tick(link);
        }
        return;
    }
    if (link->probe != BT_KVT_PROBE_KEEPALIVE) {
        link->probe = BT_KVT_PROBE_KEEPALIVE;
        link->last_heard_ms = now;
        link->last_ping_ms = now;
        return;
    }
    if (silence_counts) {
        pardon_starved(link);
    }
    if (silence_counts && (now - link->last_heard_ms >= kvt->config.dead_ms)) {
        lose_silent(link);
        return;
    }
    if ((now - link->last_heard_ms >= kvt->config.keepalive_ms) &&
        (now - link->last_ping_ms >= kvt->config.keepalive_ms)) {
        if (greeting) {
            /* Perhaps the peer has not learnt the new key yet. */
            if (kvt->before_until_ms != 0) {
                plane_key_use(link, bt_key_equal(link->plane_key,
                                                 kvt->config.key, BT_KEY_BYTES)
                                        ? kvt->key_before
                                        : kvt->config.key);
            }
            hello_send(link);
        } else {
            link->last_ping_ms = now;
            bt_kvt_link_send(link, &ping);
        }
    }
}

void bt_kvt_links_slept(bt_kvt_t *kvt, uint64_t pause_ms)
{
    const uint64_t keepalive_ms = kvt->config.keepalive_ms;

    if (pause_ms <= 2 * keepalive_ms) {
        return;
    }
    BT_LIST_FOR_EACH_ENTRY(bt_kvt_link_t, link, &kvt->links, all) {
        link->last_heard_ms += pause_ms - keepalive_ms;
        if (link->last_heard_ms > kvt->now_ms) {
            link->last_heard_ms = kvt->now_ms;
        }
        if (link->probe == BT_KVT_PROBE_ASKED) { /* and its time to answer */
            link->asked_ms = kvt->now_ms;
        }
    }
}

void bt_kvt_links_tick(bt_kvt_t *kvt)
{
    BT_LIST_FOR_EACH_ENTRY(bt_kvt_link_t, link, &kvt->links, all) {
        if (!bt_kvt_link_is_lost(link->state)) {
            link_tick(link);
        } else if (bt_list_empty(&link->peers) && bt_list_empty(&link->xfers) &&
                   bt_list_empty(&link->regions)) {
            bt_kvt_link_free(link);
        }
    }
}

void bt_kvt_link_over_add(bt_kvt_link_t *link, uint64_t grant)
{
    if (bt_kvt_link_over_has(link, grant)) {
        return;
    }
    if (bt_array_grow(&link->over, &link->over_cap, link->n_over + 1,
                      sizeof(*link->over))) {
        link->over[link->n_over++] = grant;
    } else {
        link->over_lost = true;
    }
}

void bt_kvt_link_over_trim(bt_kvt_link_t *link, uint64_t floor)
{
    uint32_t kept = 0;

    if (floor <= link->over_floor) {
        return;
    }
    link->over_floor = floor;
    for (uint32_t i = 0; i < link->n_over; i++) {
        if (link->over[i] >= floor) {
            link->over[kept++] = link->over[i];
        }
    }
    link->n_over = kept;
}

bool bt_kvt_link_over_has(const bt_kvt_link_t *link, uint64_t grant)
{
    if (grant < link->over_floor) {
        return true;
    }
    for (uint32_t i = 0; i < link->n_over; i++) {
        if (link->over[i] == grant) {
            return true;
        }
    }
    return false;
}

static void admit(bt_kvt_t *kvt, const bt_kvt_export_info_t *info)
{
    if (kvt->ops->admit != NULL) {
        kvt->ops->admit(kvt, info);
    }
}

bt_status_t bt_kvt_admit(bt_kvt_t *kvt, const void *blob, size_t bytes)
{
    bt_kvt_export_info_t info;
    const bt_status_t status = bt_kvt_export_decode(blob, bytes, &info);

    if (status == BT_OK) {
        admit(kvt, &info);
    }
    return status;
}

bt_status_t bt_kvt_import(bt_kvt_t *kvt, const void *blob, size_t bytes,
                          void *user, bt_kvt_peer_t **peer_p)
{
    bt_kvt_export_info_t info;
    bt_kvt_link_t *link;
    bt_kvt_peer_t *peer;
    bool created = false;
    bt_status_t status = bt_kvt_export_decode(blob, bytes, &info);

    if ((status != BT_OK) || (info.transport != kvt->ops->id) ||
        (info.instance == 0)) {
        return BT_ERR_BAD_MESSAGE;
    }
    if ((info.instance == kvt->config.instance) || /* to oneself: memcpy */
        (info.oldest > BT_KVT_WIRE_VERSION) ||
        (info.newest < BT_KVT_WIRE_OLDEST)) {
        return BT_ERR_UNSUPPORTED;
    }
    peer = bt_calloc(1, sizeof(*peer));
    if (peer == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    admit(kvt, &info); /* the peer may connect to us too */

    link = bt_kvt_link_find(kvt, info.instance);
    if (link == NULL) {
        status = link_create(kvt, &info, &link);
        if (status != BT_OK) {
            goto err_peer;
        }
        created = true;
    }
    if (link->state == BT_KVT_LINK_IS_NEW) {
        if (kvt->config.path != BT_KVT_PATH_NETWORK) {
            status = kvt->ops->map(link, &info);
            if (link->map == NULL) {
                bt_kvt_share_map(link, &info);
            }
        }
        if ((kvt->config.path == BT_KVT_PATH_SHM) && (status != BT_OK)) {
            goto err_link;
        }
        if ((link->map != NULL) && (kvt->ops->watch(link, &info) != BT_OK)) {
            BT_LOG_DEBUG("kv transfer: cannot watch pid %u", info.host.pid);
        }
        hello_send(link);
    }

    peer->link = link;
    peer->user = user;
    peer->lost.type = BT_KVT_PEER_LOST;
    peer->lost.owner = peer;
    bt_list_init(&peer->lost.link);
    peer->up.type = BT_KVT_PEER_UP;
    peer->up.owner = peer;
    bt_list_init(&peer->up.link);
    bt_list_push_back(&link->peers, &peer->of_link);
    kvt->counters.peers++;
    if (link->state == BT_KVT_LINK_IS_OPEN) {
        bt_kvt_event_push(kvt, &peer->up);
    }
    *peer_p = peer;
    return BT_OK;

err_link:
    if (created) {
        kvt->ops->disconnect(link);
        bt_kvt_link_free(link);
    }
err_peer:
    bt_free(peer);
    return status;
}

void bt_kvt_peer_release(bt_kvt_peer_t *peer)
{
    if (peer == NULL) {
        return;
    }
    BT_LIST_FOR_EACH_ENTRY(bt_kvt_xfer_t, xfer, &peer->link->kvt->xfers, all) {
        if (xfer->peer == peer) {
            bt_kvt_cancel(xfer);
            xfer->peer = NULL;
        }
    }
    peer->link->kvt->counters.peers--;
    bt_list_remove(&peer->lost.link);
    bt_list_remove(&peer->up.link);
    bt_list_remove(&peer->of_link);
    bt_free(peer);
}

const char *bt_kvt_peer_path(const bt_kvt_peer_t *peer)
{
    const bt_kvt_link_t *link = peer->link;

    return (link->map == NULL) ? "network"
           : link->by_device   ? link->kvt->stage->copier->share_name
                               : "shm";
}
