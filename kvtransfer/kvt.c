/* SPDX-License-Identifier: Apache-2.0 */
#include "kvtransfer/kvt.h"

#include <inttypes.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "kvtransfer/kvt_stage.h"

static bt_status_t own_export_make(bt_kvt_t *kvt)
{
    bt_kvt_export_info_t info = {.oldest = BT_KVT_WIRE_OLDEST,
                                 .newest = BT_KVT_WIRE_VERSION,
                                 .transport = (uint16_t)kvt->ops->id,
                                 .instance = kvt->config.instance,
                                 .pool_bytes = kvt->config.pool_bytes};
    bt_status_t status;

    if (kvt->stage != NULL) {
        info.record_kib = BT_KVT_STAGE_SLOT_BYTES >> 10;
    }
    if (kvt->config.memory == BT_KVT_MEMORY_HOST) {
        info.record_runs = BT_KVT_MAX_RECORD_RUNS;
    }
    kvt->ops->describe(kvt, &info);
    kvt->host = info.host;
    bt_kvt_share_describe(kvt, &info);
    status = bt_kvt_export_encode(&info, kvt->scratch, BT_KVT_MAX_EXPORT,
                                  &kvt->export_bytes);
    if (status != BT_OK) {
        return status;
    }
    kvt->export_blob = bt_memdup(kvt->scratch, kvt->export_bytes);
    return (kvt->export_blob == NULL) ? BT_ERR_NO_MEMORY : BT_OK;
}

static void lists_init(bt_kvt_t *kvt)
{
    bt_list_t *const heads[] = {
        &kvt->links,           &kvt->regions,      &kvt->closed, &kvt->verify,
        &kvt->closing_regions, &kvt->xfers,        &kvt->busy,   &kvt->events,
        &kvt->spare_xfers,     &kvt->spare_regions};

    for (size_t i = 0; i < BT_ARRAY_LEN(heads); i++) {
        bt_list_init(heads[i]);
    }
    bt_kvt_aside_init(&kvt->aside);
    bt_hmap_init(&kvt->regions_by_id, kvt->region_buckets, BT_KVT_N_BUCKETS);
}

static bool memory_ok(const bt_kvt_config_t *config)
{
    const bt_kvt_device_t *device = &config->device;

    switch (config->memory) {
    case BT_KVT_MEMORY_HOST:
        return true;
    case BT_KVT_MEMORY_DEVICE:
        return (device->pool != NULL) &&
               ((device->read != NULL) == (device->write != NULL)) &&
               (((device->copier == NULL) && (device->read != NULL)) ||
                bt_kvt_stage_ok(device));
    case BT_KVT_MEMORY_STAGED:
        return (device->pool != NULL) && bt_kvt_stage_ok(device);
    default:
        return false;
    }
}

static bool config_ok(const bt_kvt_config_t *config)
{
    return (config->transport != NULL) && (config->instance != 0) &&
           (config->pool_bytes > 0) &&
           (config->pool_bytes < SIZE_MAX / 2 - BT_KVT_PROBE_BYTES) &&
           (config->keepalive_ms > 0) &&
           (config->dead_ms > config->keepalive_ms) &&
           (config->quarantine_ms > 0) && (config->path >= BT_KVT_PATH_AUTO) &&
           (config->path <= BT_KVT_PATH_NETWORK) && memory_ok(config);
}

/** Checks the configured path of a pool in device memory, which the CPU cannot
 *  read. */
static bt_status_t path_prepare(bt_kvt_t *kvt)
{
    kvt->asked_path = kvt->config.path;
    if (kvt->config.memory == BT_KVT_MEMORY_HOST) {
        return BT_OK;
    }
    if (kvt->config.path == BT_KVT_PATH_SHM) {
        BT_LOG_ERROR("kv transfer: a pool in device memory cannot be shared "
                     "memory");
        return BT_ERR_UNSUPPORTED;
    }
    if (kvt->config.memory == BT_KVT_MEMORY_DEVICE) {
        kvt->config.path = BT_KVT_PATH_NETWORK;
    }
    return BT_OK;
}

/** Prepares copies to and from a pool in device memory, once the transport has
 *  settled config.memory. */
static bt_status_t memory_prepare(bt_kvt_t *kvt)
{
    bt_status_t status;

    switch (kvt->config.memory) {
    case BT_KVT_MEMORY_DEVICE:
        return bt_kvt_sync_open(kvt);
    case BT_KVT_MEMORY_STAGED:
        status = bt_kvt_stage_open(kvt);
        if (status == BT_OK) {
            bt_kvt_share_offer(kvt);
        }
        return status;
    case BT_KVT_MEMORY_HOST:
        break;
    }
    return BT_OK;
}

bt_status_t bt_kvt_open(const bt_kvt_config_t *config, bt_kvt_t **kvt_p)
{
    bt_status_t status = BT_ERR_NO_MEMORY;
    bt_kvt_t *kvt;

    if (!config_ok(config)) {
        return BT_ERR_INVALID_PARAM;
    }
    kvt = bt_calloc(1, sizeof(*kvt));
    if (kvt == NULL) {
        goto err;
    }
    kvt->config = *config;
    kvt->ops = config->transport;
    kvt->next_grant = 1;
    kvt->next_nonce = 1;
    kvt->net_piece_bytes = BT_KVT_MAX_RECORD_BYTES;
    lists_init(kvt);
    kvt->scratch = bt_calloc(1, BT_KVT_MAX_MSG);
    if (kvt->scratch == NULL) {
        goto err_kvt;
    }

    status = path_prepare(kvt);
    if (status != BT_OK) {
        goto err_scratch;
    }

    status = kvt->ops->open(kvt);
    if (status != BT_OK) {
        goto err_transport;
    }
    status = memory_prepare(kvt);
    if (status == BT_OK) {
        status = own_export_make(kvt);
    }
    if (status != BT_OK) {
        goto err_transport;
    }

    *kvt_p = kvt;
    return BT_OK;

err_transport:
    kvt->ops->close(kvt);
    bt_kvt_stage_close(kvt);
    bt_kvt_sync_close(kvt);
err_scratch:
    bt_free(kvt->scratch);
err_kvt:
    bt_free(kvt);
err:
    return status;
}

void bt_kvt_close(bt_kvt_t *kvt)
{
    if (kvt == NULL) {
        return;
    }
    BT_LIST_FOR_EACH_ENTRY(bt_kvt_link_t, link, &kvt->links, all) {
        bt_kvt_msg_t msg = {.type = BT_KVT_MSG_BYE};

        bt_kvt_share_unmap(link);
        bt_kvt_link_send(link, &msg);
    }
    kvt->closing = true;
    kvt->ops->close(kvt);
    bt_kvt_stage_close(kvt);
    bt_kvt_sync_close(kvt);

    BT_LIST_FOR_EACH_ENTRY(bt_kvt_xfer_t, xfer, &kvt->spare_xfers, all) {
        bt_kvt_xfer_free(xfer);
    }
    BT_LIST_FOR_EACH_ENTRY(bt_kvt_region_t, region, &kvt->spare_regions, all) {
        bt_kvt_region_free(region);
    }
    BT_LIST_FOR_EACH_ENTRY(bt_kvt_xfer_t, xfer, &kvt->xfers, all) {
        bt_kvt_xfer_free(xfer);
    }
    BT_LIST_FOR_EACH_ENTRY(bt_kvt_region_t, region, &kvt->regions, all) {
        bt_kvt_region_free(region);
    }
    BT_LIST_FOR_EACH_ENTRY(bt_kvt_region_t, region, &kvt->closed, all) {
        bt_kvt_region_free(region);
    }
    BT_LIST_FOR_EACH_ENTRY(bt_kvt_link_t, link, &kvt->links, all) {
        bt_kvt_link_free(link);
    }
    bt_free(kvt->export_blob);
    bt_free(kvt->desc.extents);
    bt_free(kvt->scratch);
    bt_free(kvt->seen);
    bt_key_wipe(kvt, sizeof(*kvt));
    bt_free(kvt);
}

void bt_kvt_rekey(bt_kvt_t *kvt, const uint8_t key[BT_KEY_BYTES],
                  uint64_t now_ms)
{
    if (bt_key_equal(kvt->config.key, key, BT_KEY_BYTES) == 0) {
        memcpy(kvt->key_before, kvt->config.key, BT_KEY_BYTES);
        memcpy(kvt->config.key, key, BT_KEY_BYTES);
        kvt->before_until_ms = now_ms + BT_KVT_KEY_GRACE_MS;
    }
}

static void key_expire(bt_kvt_t *kvt)
{
    if ((kvt->before_until_ms != 0) && (kvt->now_ms >= kvt->before_until_ms)) {
        kvt->before_until_ms = 0;
        bt_key_wipe(kvt->key_before, sizeof(kvt->key_before));
    }
}

void *bt_kvt_pool(const bt_kvt_t *kvt)
{
    return kvt->pool;
}

void bt_kvt_pool_ready(bt_kvt_t *kvt, uint64_t bytes)
{
    if (kvt->warmer != NULL) {
        bt_kvt_warmer_use(kvt->warmer, bytes);
    }
}

bool bt_kvt_pool_warm(bt_kvt_t *kvt)
{
    return (kvt->warmer != NULL) && bt_kvt_warmer_more(kvt->warmer);
}

bt_status_t bt_kvt_export(const bt_kvt_t *kvt, void *blob, size_t cap,
                          size_t *bytes_p)
{
    if (kvt->export_bytes > cap) {
        return BT_ERR_TOO_LARGE;
    }
    memcpy(blob, kvt->export_blob, kvt->export_bytes);
    *bytes_p = kvt->export_bytes;
    return BT_OK;
}

bt_status_t bt_kvt_memory_hash(const bt_kvt_t *kvt,
                               const bt_hash_piece_t *pieces, uint32_t n_pieces,
                               uint64_t seed, uint64_t *hash_p)
{
    const bt_kvt_device_t *device = &kvt->config.device;
    bt_status_t status;

    if (kvt->unhashed) {
        *hash_p = 0;
        return BT_OK;
    }
    if (kvt->bounce == NULL) {
        *hash_p = (n_pieces == 1) ? bt_hash64(pieces->src, pieces->n, seed)
                                  : bt_hash64_pieces(pieces, n_pieces, seed);
        return BT_OK;
    }
    if ((n_pieces != 1) || (pieces->n > BT_KVT_MAX_RECORD_BYTES)) {
        return BT_ERR_BAD_MESSAGE;
    }
    status = device->read(device->user, kvt->bounce, pieces->src, pieces->n);
    if (status == BT_OK) {
        *hash_p = bt_hash64(kvt->bounce, pieces->n, seed);
    }
    return status;
}

static void link_message(bt_kvt_link_t *link, const bt_kvt_msg_t *msg)
{
    bt_kvt_msg_t answer = {.type = BT_KVT_MSG_PONG};

    link->last_heard_ms = link->kvt->now_ms;
    switch (msg->type) {
    case BT_KVT_MSG_BEGIN:
    case BT_KVT_MSG_PART:
    case BT_KVT_MSG_CANCEL:
    case BT_KVT_MSG_CONFIRM:
        bt_kvt_region_message(link, msg);
        break;
    case BT_KVT_MSG_BEGIN_ACK:
    case BT_KVT_MSG_RESULT:
    case BT_KVT_MSG_REVOKE:
        bt_kvt_xfer_message(link, msg);
        break;
    case BT_KVT_MSG_PING:
        bt_kvt_link_send(link, &answer);
        break;
    case BT_KVT_MSG_BYE:
        bt_kvt_link_lost(link, true, "it closed");
        break;
    case BT_KVT_MSG_HELLO:
    case BT_KVT_MSG_HELLO_ACK:
    case BT_KVT_MSG_PONG:
    case BT_KVT_MSG_END_:
        break;
    }
}

/** Returns the key for the tag of a message over @a over; NULL: no message is
 *  allowed. */
static const uint8_t *key_of(const bt_kvt_t *kvt, const bt_kvt_link_t *over,
                             const bt_kvt_msg_t *msg)
{
    if (bt_kvt_msg_greets(msg->type)) {
        return (msg->to == kvt->config.instance) ? kvt->config.key : NULL;
    }
    return ((over != NULL) && !bt_kvt_link_is_lost(over->state) &&
            (over->instance == msg->from) && (over->peer_nonce == msg->nonce))
               ? over->peer_key
               : NULL;
}

bt_kvt_link_t *bt_kvt_take_message(bt_kvt_t *kvt, bt_kvt_link_t *over,
                                   const void *data, size_t bytes)
{
    const uint8_t *key;
    bt_kvt_msg_t msg;
    bool proven;

    if (bt_kvt_msg_decode(data, bytes, &msg) != BT_OK) {
        kvt->counters.stale_discarded++;
        BT_LOG_WARN("kv transfer: malformed message of %zu bytes dropped",
                    bytes);
        return NULL;
    }
    key = key_of(kvt, over, &msg);
    if (key == NULL) {
        /* From before a link was lost, or for another process: over. */
        kvt->counters.stale_discarded++;
        return NULL;
    }
    proven = bt_kvt_msg_is_proven(data, bytes, key);
    if (!proven && bt_kvt_msg_greets(msg.type) && (kvt->before_until_ms != 0)) {
        key = kvt->key_before;
        proven = bt_kvt_msg_is_proven(data, bytes, key);
    }
    if (!proven) {
        kvt->counters.foreign_pieces++;
        BT_LOG_WARN(
            "kv transfer: unauthenticated message %d of instance %016" PRIx64
            " dropped",
            (int)msg.type, msg.from);
        return NULL;
    }
    if (msg.type == BT_KVT_MSG_HELLO) {
        return bt_kvt_link_hello(kvt, over, &msg, key);
    }
    if (msg.type != BT_KVT_MSG_HELLO_ACK) {
        link_message(over, &msg);
        return over;
    }
    if ((over == NULL) || bt_kvt_link_is_lost(over->state) ||
        (over->instance != msg.from) || (msg.echo != over->nonce)) {
        kvt->counters.stale_discarded++;
        return NULL;
    }
    bt_kvt_link_hello_ack(over, &msg, key);
    return over;
}

bool bt_kvt_progress(bt_kvt_t *kvt, uint64_t now_ms, size_t budget_bytes)
{
    size_t budget = budget_bytes;
    bool more;

    if (kvt->frozen) {
        return false;
    }
    kvt->now_ms = now_ms;
    more = bt_kvt_stage_progress(kvt);
    more = kvt->ops->progress(kvt, now_ms) || more;
    if (kvt->broken) {
        bt_kvt_links_mend(kvt);
    }
    if (!kvt->ticked || (now_ms != kvt->last_tick_ms)) {
        if (kvt->ticked) {
            bt_kvt_links_slept(kvt, now_ms - kvt->last_tick_ms);
        }
        kvt->ticked = true;
        kvt->last_tick_ms = now_ms;
        key_expire(kvt);
        bt_kvt_regions_tick(kvt);
        bt_kvt_xfers_tick(kvt);
        bt_kvt_links_tick(kvt);
    }
    bt_kvt_xfers_move(kvt, &budget);
    bt_kvt_regions_verify(kvt, &budget);
    return more || kvt->broken || !bt_list_empty(&kvt->busy) ||
           !bt_list_empty(&kvt->verify);
}

void bt_kvt_event_push(bt_kvt_t *kvt, bt_kvt_event_entry_t *entry)
{
    BT_ASSERT(bt_list_empty(&entry->link));
    bt_list_push_back(&kvt->events, &entry->link);
}

static void region_event(bt_kvt_event_t *event, const bt_kvt_region_t *region)
{
    event->status = region->status;
    event->user = region->user;
    event->bytes = region->map.bytes;
    event->n_descriptors = region->n_records;
    event->pid = (region->link == NULL) ? 0 : region->link->pid;
    if (event->type == BT_KVT_REGION_DONE) {
        event->note = region->note;
        event->note_bytes = region->note_bytes;
        event->elapsed_us = region->sender_us + region->verify_us;
        event->arrived_us = region->arrived_us;
    }
}

bool bt_kvt_poll(bt_kvt_t *kvt, bt_kvt_event_t *event_p)
{
    bt_kvt_event_entry_t *entry;
    bt_kvt_event_t event = {.status = BT_OK};

    if (bt_list_empty(&kvt->events)) {
        return false;
    }
    entry = BT_CONTAINER_OF(kvt->events.next, bt_kvt_event_entry_t, link);
    bt_list_remove(&entry->link);
    event.type = entry->type;
    switch (entry->type) {
    case BT_KVT_REGION_DONE:
    case BT_KVT_REGION_FAILED:
    case BT_KVT_QUARANTINE_STUCK:
        event.region = entry->owner;
        region_event(&event, event.region);
        break;
    case BT_KVT_REGION_CLOSED:
        event.region = entry->owner;
        region_event(&event, event.region);
        event.status = BT_OK;
        bt_kvt_region_free(event.region);
        break;
    case BT_KVT_XFER_DONE:
        event.xfer = entry->owner;
        event.peer = event.xfer->peer;
        event.user = event.xfer->user;
        event.status = event.xfer->outcome;
        event.bytes = event.xfer->bytes_moved;
        event.n_descriptors = event.xfer->n_joined;
        break;
    case BT_KVT_PEER_LOST:
        event.peer = entry->owner;
        event.user = event.peer->user;
        event.pid = event.peer->link->pid;
        event.status = BT_ERR_PEER_LOST;
        event.at = event.peer->link->at;
        event.why = event.peer->link->why;
        break;
    case BT_KVT_PEER_UP:
        event.peer = entry->owner;
        event.user = event.peer->user;
        event.pid = event.peer->link->pid;
        break;
    }
    *event_p = event;
    return true;
}

int bt_kvt_fd(const bt_kvt_t *kvt)
{
    return kvt->ops->fd(kvt);
}

bt_status_t bt_kvt_arm(bt_kvt_t *kvt)
{
    if (kvt->broken || !bt_list_empty(&kvt->busy) ||
        !bt_list_empty(&kvt->verify) || !bt_list_empty(&kvt->events) ||
        bt_kvt_stage_busy(kvt)) {
        return BT_INPROGRESS;
    }
    return kvt->ops->arm(kvt);
}

void bt_kvt_counters(const bt_kvt_t *kvt, bt_kvt_counters_t *counters_p)
{
    *counters_p = kvt->counters;
}

void bt_kvt_test_unhashed(bt_kvt_t *kvt, bool unhashed)
{
    kvt->unhashed = unhashed;
}
