/* SPDX-License-Identifier: Apache-2.0 */
/* Messages through the shared memory of a link's two ends.
 *
 *     router                                   worker
 *     OFFER: name of a socket ────────────────▶
 *                             ◀── connects to it
 *     memory, bells ──────────────────────────▶
 *                             ◀── GIVEN: the secret in the memory; RING
 *     RING ───────────────────────────────────▶
 *
 * RING is the last frame with messages over nng: the rest of the stream is
 * in the memory, so nothing is delivered twice or out of order. Where the
 * worker cannot reach the socket everything stays on nng. Heartbeats and BYE
 * stay there in any case. */
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/crypt/key.h"
#include "common/link/link_priv.h"

#define LOOKS 64 /* descriptors reported by one poll */

/* ---- descriptors ---- */

static bool watch(bt_link_t *link, int fd)
{
    struct epoll_event wanted = {.events = EPOLLIN, .data = {.ptr = link}};

    return epoll_ctl(link->control->fd, EPOLL_CTL_ADD, fd, &wanted) == 0;
}

/* Closing is not enough: epoll keeps reporting a descriptor that the other
 * side has open, too. */
static void unwatch(bt_link_t *link, int fd)
{
    (void)epoll_ctl(link->control->fd, EPOLL_CTL_DEL, fd, NULL);
}

static void close_socket(bt_link_t *link)
{
    if (link->shm.socket >= 0) {
        unwatch(link, link->shm.socket);
        close(link->shm.socket);
        link->shm.socket = -1;
    }
}

void bt_link_shm_close(bt_link_t *link)
{
    link_shm_t *shm = &link->shm;

    close_socket(link);
    if (shm->bell >= 0) {
        unwatch(link, shm->bell);
    }
    bt_shm_close(&shm->segment);
    shm->bell = -1;
    shm->state = LINK_SHM_OFF;
    shm->bell_rings = false;
}

static void go_without(bt_link_t *link, const char *why)
{
    BT_LOG_DEBUG("link at %s shares no memory: %s", link->url, why);
    bt_link_shm_close(link);
}

/* ---- how the memory comes ---- */

void bt_link_shm_offer(bt_link_t *link)
{
    link_shm_t *shm = &link->shm;
    uint8_t name[BT_SHM_NAME_BYTES];
    size_t bytes = 0;
    bt_status_t status;

    if (!link->control->share_memory || !bt_link_pipe_is_ipc(link->pipe)) {
        return;
    }
    status = bt_shm_give_open(&shm->segment, name, &bytes, &shm->socket);
    if (status != BT_OK) {
        go_without(link, bt_status_str(status));
        return;
    }
    if (!watch(link, shm->socket)) {
        go_without(link, "its socket cannot be watched");
        return;
    }
    bt_link_send_own(
        link, bt_link_seal(link, LINK_FRAME_OFFER, NULL, 0, name, bytes));
}

/* From now on messages are written there; @a giver selects our half. */
static void begin(bt_link_t *link, bool giver)
{
    link_shm_t *shm = &link->shm;

    shm->bell = shm->segment.bells[giver ? 0 : 1];
    if (!watch(link, shm->bell)) {
        shm->bell = -1;
        bt_link_over(link, "no memory for its bell");
        return;
    }
    bt_shm_ring_init(&shm->out, &shm->segment.memory->rings[giver ? 0 : 1]);
    bt_shm_ring_init(&shm->in, &shm->segment.memory->rings[giver ? 1 : 0]);
    shm->state = LINK_SHM_WRITING;
    bt_link_send_own(link,
                     bt_link_seal(link, LINK_FRAME_RING, NULL, 0, NULL, 0));
}

/* The worker: is it for us? */
static void on_offer(bt_link_t *link, const link_frame_t *frame)
{
    link_shm_t *shm = &link->shm;

    if ((link->join == NULL) || (shm->socket >= 0) ||
        (shm->segment.memory != NULL)) {
        bt_link_over(link, "malformed frame");
        return;
    }
    if (!link->control->share_memory) {
        return;
    }
    if (bt_shm_take_open(frame->body, frame->bytes, &shm->socket) != BT_OK) {
        go_without(link, "it cannot be reached");
    } else if (!watch(link, shm->socket)) {
        go_without(link, "its socket cannot be watched");
    }
}

static void take(bt_link_t *link)
{
    link_shm_t *shm = &link->shm;
    const bt_status_t status = bt_shm_take(&shm->segment, shm->socket);

    close_socket(link);
    if (status != BT_OK) {
        go_without(link, bt_status_str(status));
        return;
    }
    bt_link_send_own(link, bt_link_seal(link, LINK_FRAME_GIVEN, NULL, 0,
                                        shm->segment.memory->secret,
                                        sizeof(shm->segment.memory->secret)));
    begin(link, false);
}

static void give(bt_link_t *link)
{
    switch (bt_shm_give(&link->shm.segment, link->shm.socket)) {
    case BT_OK:
        close_socket(link); /* no other process is accepted */
        break;
    case BT_ERR_UNAUTHORIZED: /* it got nothing; the worker may come yet */
        break;
    default:
        go_without(link, "the one who came went again");
        break;
    }
}

/* Router: the worker has the memory, and no other process has. */
static void on_given(bt_link_t *link, const link_frame_t *frame)
{
    link_shm_t *shm = &link->shm;

    if ((link->join != NULL) || (shm->segment.memory == NULL) ||
        (shm->socket >= 0) || bt_link_shm_writes(link) ||
        !bt_key_equal(frame->body, shm->segment.memory->secret, frame->bytes)) {
        bt_link_over(link, "malformed frame");
        return;
    }
    begin(link, true);
}

void bt_link_shm_frame(bt_link_t *link, const link_frame_t *frame)
{
    switch (frame->kind) {
    case LINK_FRAME_OFFER:
        on_offer(link, frame);
        break;
    case LINK_FRAME_GIVEN:
        on_given(link, frame);
        break;
    default:
        if (link->shm.state != LINK_SHM_WRITING) {
            bt_link_over(link, "malformed frame");
            return;
        }
        link->shm.state = LINK_SHM_OPEN;
        break;
    }
}

void bt_link_shm_tick(bt_link_t *link)
{
    if ((link->shm.socket >= 0) &&
        (link->control->now_ms - link->up_ms >= link->control->dead_ms)) {
        go_without(link, "nobody came for it");
    }
}

/* ---- messages ---- */

static void is_nonsense(bt_link_t *link)
{
    bt_link_over(link, "its shared memory makes no sense");
}

static void ring(const link_shm_t *shm)
{
    const bool giver = shm->bell == shm->segment.bells[0];

    bt_shm_ring(shm->segment.bells[giver ? 1 : 0]);
}

void bt_link_shm_write(bt_link_t *link)
{
    link_shm_t *shm = &link->shm;
    bool wrote = false;

    while (bt_link_queued(link) > 0) {
        size_t n = 0;

        if (bt_shm_ring_write(&shm->out, link->out.data + link->out_at,
                              bt_link_queued(link), &n) != BT_OK) {
            is_nonsense(link);
            return;
        }
        wrote |= (n > 0);
        bt_link_drop_queued(link, n);
        if ((n == 0) && bt_shm_ring_wait(&shm->out)) {
            break;
        }
    }
    if (wrote && bt_shm_ring_wakes_reader(&shm->out)) {
        ring(shm);
    }
}

/* Before the last check: later rings are noticed. */
static void silence(link_shm_t *shm)
{
    uint64_t count;

    if (shm->bell_rings) {
        (void)!read(shm->bell, &count, sizeof(count));
        shm->bell_rings = false;
    }
}

static void hand_out(bt_link_t *link, size_t bytes)
{
    bt_control_t *control = link->control;

    control->current = link;
    control->current_frame = (link_frame_t){
        .kind = LINK_FRAME_DATA, .body = control->ring_bytes, .bytes = bytes};
    control->current_at = 0;
}

bool bt_link_shm_read(bt_link_t *link)
{
    link_shm_t *shm = &link->shm;
    size_t most = LINK_RING_READ;
    size_t n = 0;

    if (!bt_link_shm_reads(link)) {
        return false;
    }
    if ((shm->state == LINK_SHM_DRAINING) && (shm->n_left < most)) {
        most = shm->n_left;
    }
    for (;;) {
        if (bt_shm_ring_read(&shm->in, link->control->ring_bytes, most, &n) !=
            BT_OK) {
            is_nonsense(link);
            return false;
        }
        if ((n > 0) || (most == 0)) {
            break;
        }
        silence(shm);
        if (bt_shm_ring_sleep(&shm->in)) {
            /* The bell that was cleared may have signalled space. */
            bt_link_shm_write(link);
            return false;
        }
    }
    if (n == 0) {
        return false;
    }
    if (bt_shm_ring_wakes_writer(&shm->in)) {
        ring(shm);
    }
    shm->n_left -= (shm->state == LINK_SHM_DRAINING) ? n : 0;
    hand_out(link, n);
    return true;
}

bool bt_link_shm_any(const bt_link_t *link)
{
    return bt_link_shm_reads(link) && bt_shm_ring_any(&link->shm.in);
}

bool bt_link_shm_last(bt_link_t *link)
{
    link_shm_t *shm = &link->shm;

    if (shm->state == LINK_SHM_OPEN) {
        shm->state = LINK_SHM_DRAINING;
        shm->n_left = BT_SHM_RING_BYTES; /* there is no more; the position is
                                          invalid */
    }
    return (link->state == LINK_UP) && (shm->n_left > 0) &&
           bt_link_shm_any(link);
}

static void on_ring(bt_link_t *link)
{
    link_shm_t *shm = &link->shm;

    if (shm->socket >= 0) {
        if (link->state != LINK_UP) {
            close_socket(link);
        } else if (link->join != NULL) {
            take(link);
        } else {
            give(link);
        }
        return;
    }
    shm->bell_rings = true;
    if (!bt_link_shm_reads(link) || (link->state != LINK_UP)) {
        silence(shm); /* there is space, RING is in flight, or it is
                           spurious */
    }
}

bool bt_link_look(bt_control_t *control)
{
    struct epoll_event found[LOOKS];
    const int n = epoll_wait(control->fd, found, LOOKS, 0);

    for (int i = 0; i < n; i++) {
        bt_link_t *link = found[i].data.ptr;

        if (link == NULL) {
            continue; /* nng's threads: control->ready */
        }
        on_ring(link);
        bt_link_queue_ready(link);
    }
    return n > 0;
}
