/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/rank_link.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#define READ_BYTES (64u << 10)

typedef struct head {
    uint32_t kind;
    uint32_t bytes;
    uint64_t id;
} head_t;

void bt_rank_link_init(bt_rank_link_t *link, int fd)
{
    *link = (bt_rank_link_t){.fd = fd};
    bt_strbuf_init(&link->in, 2 * (size_t)BT_RANK_LINK_MAX_BYTES);
}

void bt_rank_link_is_with(bt_rank_link_t *link, pid_t pid)
{
    link->pid = pid;
}

void bt_rank_link_fini(bt_rank_link_t *link)
{
    if (link->fd >= 0) {
        close(link->fd);
    }
    bt_strbuf_fini(&link->in);
    link->fd = -1;
}

static bool write_all(int fd, const void *data, size_t bytes, uint64_t until_ms)
{
    const uint8_t *at = data;

    while (bytes > 0) {
        const ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        struct pollfd wait = {.fd = fd, .events = POLLOUT};
        const uint64_t now_ms = bt_now_ms();

        if (n > 0) {
            at += n;
            bytes -= (size_t)n;
            continue;
        }
        if (((errno != EAGAIN) && (errno != EINTR)) || (now_ms >= until_ms)) {
            return false;
        }
        (void)poll(&wait, 1, (int)(until_ms - now_ms));
    }
    return true;
}

void bt_rank_link_send(bt_rank_link_t *link, bt_rank_kind_t kind, uint64_t id,
                       const bt_strbuf_t *payload)
{
    const size_t bytes = (payload != NULL) ? payload->len : 0;
    const head_t head = {
        .kind = (uint32_t)kind, .bytes = (uint32_t)bytes, .id = id};
    const uint64_t until_ms = bt_now_ms() + BT_RANK_LINK_WAIT_MS;

    if (link->is_lost) {
        return;
    }
    if (((payload != NULL) && (bt_strbuf_status(payload) != BT_OK)) ||
        (bytes > BT_RANK_LINK_MAX_BYTES) ||
        !write_all(link->fd, &head, sizeof(head), until_ms) ||
        ((bytes > 0) && !write_all(link->fd, payload->data, bytes, until_ms))) {
        BT_LOG_ERROR("a rank of this instance does not read its messages");
        link->is_lost = true;
    }
}

static void read_more(bt_rank_link_t *link)
{
    uint8_t bytes[READ_BYTES];
    ssize_t n;

    bt_strbuf_consume(&link->in, link->taken);
    link->taken = 0;
    do {
        n = recv(link->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (n > 0) {
            bt_strbuf_append(&link->in, bytes, (size_t)n);
            link->silent_ms = 0;
            link->wait.looked_ms = 0;
        }
    } while ((n == (ssize_t)sizeof(bytes)) || ((n < 0) && (errno == EINTR)));
    if ((n == 0) || ((n < 0) && (errno != EAGAIN)) ||
        (bt_strbuf_status(&link->in) != BT_OK)) {
        link->is_lost = true;
    }
}

static bool take_one(bt_rank_link_t *link, bt_rank_frame_t *frame_p)
{
    const size_t left = link->in.len - link->taken;
    head_t head;

    if (left < sizeof(head)) {
        return false;
    }
    memcpy(&head, link->in.data + link->taken, sizeof(head));
    if (head.bytes > BT_RANK_LINK_MAX_BYTES) {
        link->is_lost = true;
        return false;
    }
    if (left < sizeof(head) + head.bytes) {
        return false;
    }
    *frame_p = (bt_rank_frame_t){.kind = (bt_rank_kind_t)head.kind,
                                 .id = head.id,
                                 .data = (const uint8_t *)link->in.data +
                                         link->taken + sizeof(head),
                                 .bytes = head.bytes};
    link->taken += sizeof(head) + head.bytes;
    return true;
}

/* Beats are not for the caller. */
static bool take(bt_rank_link_t *link, bt_rank_frame_t *frame_p)
{
    bool is_one;

    do {
        is_one = take_one(link, frame_p);
    } while (is_one && (frame_p->kind == BT_RANK_BEAT));
    return is_one;
}

bool bt_rank_link_next(bt_rank_link_t *link, bt_rank_frame_t *frame_p)
{
    if (take(link, frame_p)) {
        return true;
    }
    if (!link->is_lost) {
        read_more(link);
    }
    return take(link, frame_p);
}

/* Time spent waiting for a core does not count as silence. */
static void pardon_starved(bt_rank_link_t *link, uint64_t now_ms,
                           uint32_t dead_ms)
{
    const bool is_looked_at = link->wait.looked_ms != 0;
    uint64_t waited_ms;

    if ((link->pid == 0) ||
        (!is_looked_at && (link->silent_ms < dead_ms / 4)) ||
        (is_looked_at && (now_ms - link->wait.looked_ms < dead_ms / 16))) {
        return;
    }
    waited_ms = bt_core_wait_look(&link->wait, link->pid, now_ms);
    link->silent_ms -=
        (waited_ms < link->silent_ms) ? waited_ms : link->silent_ms;
}

void bt_rank_link_beat(bt_rank_link_t *link, uint64_t now_ms,
                       uint32_t heartbeat_ms, uint32_t dead_ms)
{
    const uint64_t since_ms =
        (link->looked_ms == 0) ? 0 : now_ms - link->looked_ms;
    const uint64_t most_ms = dead_ms / 8;

    link->looked_ms = now_ms;
    link->silent_ms += (since_ms < most_ms) ? since_ms : most_ms;
    pardon_starved(link, now_ms, dead_ms);
    if (!link->is_lost && (link->silent_ms >= dead_ms)) {
        BT_LOG_ERROR("a rank of this instance is silent for %u ms", dead_ms);
        link->is_lost = true;
    }
    if (now_ms - link->beat_ms >= heartbeat_ms) {
        link->beat_ms = now_ms;
        bt_rank_link_send(link, BT_RANK_BEAT, 0, NULL);
    }
}

/* Returns a pointer to the next bytes in place; NULL: not enough are left. */
static const void *read_bytes(bt_rank_reader_t *reader, size_t bytes)
{
    const void *data = reader->data;

    if (bytes > reader->left) {
        reader->is_short = true;
        return NULL;
    }
    reader->data += bytes;
    reader->left -= bytes;
    return data;
}

void bt_rank_read(bt_rank_reader_t *reader, void *out, size_t bytes)
{
    const void *data = read_bytes(reader, bytes);

    if (data != NULL) {
        memcpy(out, data, bytes);
    } else {
        memset(out, 0, bytes);
    }
}

/* ---- fields of payloads ---- */

void bt_rank_put_ranks(bt_strbuf_t *out, const bt_wire_rank_t *ranks,
                       uint32_t n)
{
    bt_strbuf_append(out, &n, sizeof(n));
    for (uint32_t i = 0; i < n; i++) {
        bt_strbuf_append(out, &ranks[i].block_bytes,
                         sizeof(ranks[i].block_bytes));
        bt_strbuf_append(out, &ranks[i].kvt_bytes, sizeof(ranks[i].kvt_bytes));
        bt_strbuf_append(out, ranks[i].kvt, ranks[i].kvt_bytes);
    }
}

uint32_t bt_rank_read_ranks(bt_rank_reader_t *reader, bt_wire_rank_t *ranks)
{
    uint32_t n = 0;

    bt_rank_read(reader, &n, sizeof(n));
    for (uint32_t i = 0; (i < n) && (n <= BT_WIRE_MAX_RANKS); i++) {
        bt_rank_read(reader, &ranks[i].block_bytes,
                     sizeof(ranks[i].block_bytes));
        bt_rank_read(reader, &ranks[i].kvt_bytes, sizeof(ranks[i].kvt_bytes));
        ranks[i].kvt = read_bytes(reader, ranks[i].kvt_bytes);
    }
    return ((n > BT_WIRE_MAX_RANKS) || reader->is_short) ? 0 : n;
}

void bt_rank_put_regions(bt_strbuf_t *out, const bt_wire_region_t *regions,
                         uint32_t n)
{
    bt_strbuf_append(out, &n, sizeof(n));
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t head[] = {regions[i].to, regions[i].from,
                                 regions[i].blob_bytes};

        bt_strbuf_append(out, head, sizeof(head));
        bt_strbuf_append(out, regions[i].blob, regions[i].blob_bytes);
    }
}

uint32_t bt_rank_read_regions(bt_rank_reader_t *reader,
                              bt_wire_region_t *regions, uint32_t max)
{
    uint32_t n = 0;

    bt_rank_read(reader, &n, sizeof(n));
    for (uint32_t i = 0; (i < n) && (n <= max); i++) {
        uint32_t head[3];

        bt_rank_read(reader, head, sizeof(head));
        regions[i] = (bt_wire_region_t){.to = head[0],
                                        .from = head[1],
                                        .blob = read_bytes(reader, head[2]),
                                        .blob_bytes = head[2]};
    }
    return ((n > max) || reader->is_short) ? 0 : n;
}

void bt_rank_put_text(bt_strbuf_t *out, const char *text)
{
    char padded[BT_RANK_TEXT_BYTES] = "";

    snprintf(padded, sizeof(padded), "%s", (text != NULL) ? text : "");
    bt_strbuf_append(out, padded, sizeof(padded));
}

void bt_rank_read_text(bt_rank_reader_t *reader, char text[BT_RANK_TEXT_BYTES])
{
    bt_rank_read(reader, text, BT_RANK_TEXT_BYTES);
    text[BT_RANK_TEXT_BYTES - 1] = '\0';
}
