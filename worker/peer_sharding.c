/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/peer_sharding.h"

#include "common/base/alloc.h"
#include "common/base/containers.h"

#define MAX_SENDERS 1024u /* then the oldest is dropped */

typedef struct sender {
    bt_list_t link;
    uint64_t instance;
    bt_kv_split_t split;
} sender_t;

static sender_t *sender_at(bt_list_t *link)
{
    return BT_CONTAINER_OF(link, sender_t, link);
}

void bt_peer_sharding_init(bt_worker_t *w)
{
    bt_list_init(&w->senders);
    w->n_senders = 0;
}

static void drop(bt_worker_t *w, sender_t *sender)
{
    bt_list_remove(&sender->link);
    bt_free(sender);
    w->n_senders--;
}

void bt_peer_sharding_fini(bt_worker_t *w)
{
    while (w->n_senders > 0) {
        drop(w, sender_at(w->senders.next));
    }
}

static sender_t *find(const bt_worker_t *w, uint64_t instance)
{
    for (bt_list_t *pos = w->senders.next; pos != &w->senders;
         pos = pos->next) {
        if (sender_at(pos)->instance == instance) {
            return sender_at(pos);
        }
    }
    return NULL;
}

bt_status_t bt_peer_sharding_add(bt_worker_t *w, uint64_t instance,
                                 bt_kv_split_t split)
{
    sender_t *sender = find(w, instance);

    if (sender == NULL) {
        sender = bt_calloc(1, sizeof(*sender));
        if (sender == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        sender->instance = instance;
        bt_list_push_back(&w->senders, &sender->link);
        w->n_senders++;
    }
    sender->split = split;
    if (w->n_senders > MAX_SENDERS) {
        drop(w, sender_at(w->senders.next));
    }
    return BT_OK;
}

bt_kv_split_t bt_peer_sharding_split(const bt_worker_t *w, uint64_t instance)
{
    const sender_t *sender = find(w, instance);

    return (sender != NULL) ? sender->split : (bt_kv_split_t){.tp = 1, .pp = 1};
}
