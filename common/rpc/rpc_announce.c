/* SPDX-License-Identifier: Apache-2.0 */
/* Handles announcements of workers at a router, and decides which of them
 * lead to a dial.
 *
 *     mac right? ─▶ socket not older than one known? ─▶ pause over? ─▶ dial
 *
 * A replayed announcement has no more effect than the worker's own
 * repetitions, as long as that socket listens; after that nothing there can
 * answer for it, and the pauses before the next dial of the url grow. */
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/rpc/rpc_inner.h"

#define LATER_MS                                                 \
    1000 /* first pause after a dial on which nothing was proven \
          */

static nng_msg *take_first(bt_rpc_t *rpc)
{
    nng_msg *msg = NULL;

    pthread_mutex_lock(&rpc->mutex);
    if (rpc->n_announces > 0) {
        msg = rpc->announces[rpc->first_announce];
        rpc->first_announce = (rpc->first_announce + 1) % RPC_ANNOUNCES;
        rpc->n_announces--;
    }
    pthread_mutex_unlock(&rpc->mutex);
    return msg;
}

void bt_rpc_announces_drop(bt_rpc_t *rpc)
{
    nng_msg *msg;

    pthread_mutex_lock(&rpc->mutex);
    rpc->closing = true;
    pthread_mutex_unlock(&rpc->mutex);
    while ((msg = take_first(rpc)) != NULL) {
        nng_msg_free(msg);
    }
}

/* ---- known processes ---- */

static rpc_known_t *find_known(bt_rpc_t *rpc, uint64_t incarnation)
{
    for (uint32_t i = 0; i < RPC_KNOWN; i++) {
        if (rpc->known[i].incarnation == incarnation) {
            return &rpc->known[i];
        }
    }
    return NULL;
}

/* Slot of a process: a new one replaces the least recently received. */
static rpc_known_t *known_of(bt_rpc_t *rpc, uint64_t incarnation)
{
    rpc_known_t *known = find_known(rpc, incarnation);

    if (known == NULL) {
        known = &rpc->known[0];
        for (uint32_t i = 1; i < RPC_KNOWN; i++) {
            if (rpc->known[i].seen_ms < known->seen_ms) {
                known = &rpc->known[i];
            }
        }
        *known = (rpc_known_t){.incarnation = incarnation};
    }
    known->seen_ms = rpc->now_ms;
    return known;
}

void bt_rpc_dial_failed(const bt_rpc_link_t *link)
{
    bt_rpc_t *rpc = link->rpc;
    rpc_known_t *known = find_known(rpc, link->incarnation);

    if ((known == NULL) || (known->count != link->count)) {
        return; /* it has a newer socket */
    }
    known->not_before_ms = rpc->now_ms + known->later_ms;
    known->later_ms = (2 * known->later_ms < RPC_LATER_MAX_MS)
                          ? 2 * known->later_ms
                          : RPC_LATER_MAX_MS;
}

/* ---- dialling ---- */

/* A link to that url there is already, or too many have proven nothing yet. */
static bool is_enough(bt_rpc_t *rpc, const char *url)
{
    uint32_t n_unproven = 0;
    bt_list_t *pos;
    bt_list_t *tmp;

    BT_LIST_FOR_EACH(pos, tmp, &rpc->links)
    {
        const bt_rpc_link_t *link = BT_CONTAINER_OF(pos, bt_rpc_link_t, in_all);

        if (link->state == LINK_OVER) {
            continue;
        }
        if (strcmp(link->url, url) == 0) {
            return true;
        }
        n_unproven += !link->proven;
    }
    return n_unproven >= RPC_UNPROVEN;
}

static void say_foreign(bt_rpc_t *rpc, uint64_t incarnation, const char *name,
                        const char *url)
{
    const bt_rpc_refused_t refused = {
        .name = name,
        .url = url,
        .why = "it has another cluster key: both sides need the same key file"};

    bt_rpc_tell_refused(rpc, &refused);
    if (bt_rpc_say_once(rpc, incarnation)) {
        BT_LOG_WARN("a worker announced itself with another cluster key and is "
                    "refused; both sides need the same key file");
    }
}

static void say_nonsense(bt_rpc_t *rpc)
{
    const bt_rpc_refused_t refused = {
        .name = "",
        .url = "",
        .why = "something that is not a worker of ours talks to the control "
               "port"};

    bt_rpc_tell_refused(rpc, &refused);
    if (bt_rpc_say_once(rpc, 0)) {
        BT_LOG_WARN("something that is not a worker of ours talks to the "
                    "control port");
    }
}

/* @return a link that is dialling, or NULL: it is announced again */
static bt_rpc_link_t *dial(bt_rpc_t *rpc, const char *url)
{
    bt_rpc_link_t *link;

    if (is_enough(rpc, url) || (bt_rpc_link_create(rpc, &link) != BT_OK)) {
        return NULL;
    }
    if (bt_rpc_link_dial(link, url) != BT_OK) {
        bt_rpc_link_free(link);
        return NULL;
    }
    link->deadline_ms = rpc->now_ms + rpc->dead_ms;
    bt_list_push_back(&rpc->links, &link->in_all);
    return link;
}

static void on_announcement(bt_rpc_t *rpc, const void *data, size_t bytes)
{
    bt_rpc_link_t *link;
    rpc_known_t *known;
    rpc_intro_t intro;

    switch (bt_rpc_announce_check(
        bt_rpc_ring_find(&rpc->ring, bt_rpc_intro_key_id(data, bytes)), data,
        bytes, &intro)) {
    case BT_OK:
        break;
    case BT_ERR_UNAUTHORIZED:
        say_foreign(rpc, intro.incarnation, intro.name, intro.url);
        return;
    default:
        say_nonsense(rpc);
        return;
    }
    known = known_of(rpc, intro.incarnation);
    if (intro.count < known->count) {
        return;
    }
    if (intro.count > known->count) {
        known->count = intro.count;
        known->not_before_ms = 0;
        known->later_ms = LATER_MS;
    }
    if (rpc->now_ms < known->not_before_ms) {
        return;
    }
    link = dial(rpc, intro.url);
    if (link == NULL) {
        return;
    }
    link->incarnation = intro.incarnation;
    link->count = intro.count;
    link->version = bt_wire_common(rpc->range, intro.range);
    memcpy(link->name, intro.name, sizeof(link->name));
    memcpy(link->announce, data, bytes);
    link->announce_bytes = bytes;
}

/* Worker of protocol 2: it is dialled to be refused, but not again at once.
 * A worker that also announces itself in this protocol is a current one. */
static void on_old_announcement(bt_rpc_t *rpc, const void *data, size_t bytes)
{
    char url[RPC_MAX_URL];
    uint64_t incarnation;
    bt_rpc_link_t *link;
    rpc_known_t *known;

    switch (bt_rpc_old_announce_check(rpc->ring.now.old, data, bytes,
                                      &incarnation, url)) {
    case BT_OK:
        break;
    case BT_ERR_UNAUTHORIZED:
        say_foreign(rpc, incarnation, "", url);
        return;
    default:
        say_nonsense(rpc);
        return;
    }
    known = known_of(rpc, incarnation);
    if ((known->count > 0) || (rpc->now_ms < known->next_old_ms)) {
        return;
    }
    link = dial(rpc, url);
    if (link != NULL) {
        known->next_old_ms = rpc->now_ms + RPC_OLD_EVERY_MS;
        link->incarnation = incarnation;
        link->old = true;
    }
}

void bt_rpc_announces_take(bt_rpc_t *rpc)
{
    nng_msg *msg;

    while ((msg = take_first(rpc)) != NULL) {
        const void *data = nng_msg_body(msg);
        const size_t bytes = nng_msg_len(msg);

        if (bt_rpc_old_is(data, bytes)) {
            on_old_announcement(rpc, data, bytes);
        } else {
            on_announcement(rpc, data, bytes);
        }
        nng_msg_free(msg);
    }
}
