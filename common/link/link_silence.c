/* SPDX-License-Identifier: Apache-2.0 */
/* Silent peers: lost, or only starved of CPU?
 *
 *     silent ──suspect_ms──▶ SUSPECT ──dead_ms that count──▶ the link is over
 *                      └───▶ STARVED   (most of the time does not count)
 *
 * On one host the kernel reports how long the peer's process waited for a
 * core (process.h), and whether it exists: its end of the connection. That
 * time does not count. A process that is stopped, blocked or spinning does
 * not wait.
 *
 * Between hosts the state of the peer's process is unknown. Its kernel
 * acknowledges our heartbeats without it, as long as the connection exists
 * and the host is reachable, so a link that is cut ends after dead_ms; one
 * that is acknowledged, after STARVED_DEADS times as much. */
#include <dirent.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/link/link_priv.h"

#define STARVED_DEADS 4u  /* times dead_ms for a peer whose host answers */
#define LOOK_MS       100 /* between two looks at a silent peer's process */

void bt_link_silence_init(bt_link_t *link)
{
    link->silence = (link_silence_t){.socket = -1};
    if (link->control->tells_starved) {
        link->silence.pid = bt_link_pipe_peer(link->pipe);
    }
    if (link->silence.pid == getpid()) {
        link->silence.pid = 0; /* this process has a core */
    }
}

void bt_link_silence_over(bt_link_t *link)
{
    link->heard_ms = link->control->now_ms;
    link->is = LINK_TOLD_NOTHING;
    link->silence.wait.looked_ms = 0;
    link->silence.first_look_ms = 0;
    link->silence.waited_ms = 0;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return (a < b) ? a : b;
}

void bt_link_silence_slept(bt_link_t *link, uint64_t ms)
{
    const uint64_t now = link->control->now_ms;

    link->heard_ms = earlier(link->heard_ms + ms, now);
    if (link->silence.first_look_ms != 0) {
        link->silence.first_look_ms =
            earlier(link->silence.first_look_ms + ms, now);
    }
}

/* ---- on this host ---- */

static void look_at_process(bt_link_t *link)
{
    link_silence_t *silence = &link->silence;
    const uint64_t now = link->control->now_ms;

    /* A peer that sends each heartbeat_ms is not examined. */
    if ((silence->pid == 0) ||
        (now - link->heard_ms < link->control->suspect_ms / 2) ||
        (now - silence->wait.looked_ms < LOOK_MS)) {
        return;
    }
    if (silence->first_look_ms == 0) {
        silence->first_look_ms = now;
    }
    silence->waited_ms += bt_core_wait_look(&silence->wait, silence->pid, now);
}

/* For half of the time that it was looked at, at least. */
static bool waits_for_a_core(const bt_link_t *link)
{
    const link_silence_t *silence = &link->silence;

    return (silence->waited_ms > 0) &&
           (2 * silence->waited_ms >=
            link->control->now_ms - silence->first_look_ms);
}

/* ---- between hosts ---- */

static bool is_address(const struct sockaddr_storage *found,
                       const nng_sockaddr *wanted)
{
    if ((found->ss_family == AF_INET) && (wanted->s_family == NNG_AF_INET)) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)found;

        return (in->sin_port == wanted->s_in.sa_port) &&
               (in->sin_addr.s_addr == wanted->s_in.sa_addr);
    }
    if ((found->ss_family == AF_INET6) && (wanted->s_family == NNG_AF_INET6)) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)found;

        return (in->sin6_port == wanted->s_in6.sa_port) &&
               (memcmp(&in->sin6_addr, wanted->s_in6.sa_addr,
                       sizeof(in->sin6_addr)) == 0);
    }
    return false;
}

static bool is_socket_of(int fd, const nng_sockaddr *local,
                         const nng_sockaddr *remote)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof(address);

    if ((getpeername(fd, (struct sockaddr *)&address, &bytes) != 0) ||
        !is_address(&address, remote)) {
        return false;
    }
    bytes = sizeof(address);
    return (getsockname(fd, (struct sockaddr *)&address, &bytes) == 0) &&
           is_address(&address, local);
}

/* nng 1.5 does not report it. */
static int find_socket(const nng_sockaddr *local, const nng_sockaddr *remote)
{
    BT_CLEANUP(closedir) DIR *const dir = opendir("/proc/self/fd");
    const struct dirent *entry;

    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        const int fd = (int)strtol(entry->d_name, NULL, 10);

        if ((entry->d_name[0] != '.') && is_socket_of(fd, local, remote)) {
            return fd;
        }
    }
    return -1;
}

/* True when the peer's kernel has acknowledged a frame since suspect_ms. We
 * send one each heartbeat_ms. */
static bool host_answers(bt_link_t *link)
{
    link_silence_t *silence = &link->silence;
    struct tcp_info info = {0};
    socklen_t bytes = sizeof(info);
    nng_sockaddr local, remote;

    if (!link->control->tells_starved ||
        !bt_link_pipe_addresses(link->pipe, &local, &remote)) {
        return false;
    }
    if (!is_socket_of(silence->socket, &local, &remote)) {
        silence->socket = find_socket(&local, &remote);
    }
    return (getsockopt(silence->socket, IPPROTO_TCP, TCP_INFO, &info, &bytes) ==
            0) &&
           (info.tcpi_state == TCP_ESTABLISHED) &&
           (info.tcpi_last_ack_recv < link->control->suspect_ms);
}

/* ---- how long it may be ---- */

static bool is_too_long(bt_link_t *link, uint64_t silent_ms)
{
    const uint64_t dead_ms = link->control->dead_ms;

    if (silent_ms < dead_ms) {
        return false;
    }
    if (link->silence.pid != 0) {
        return silent_ms >= dead_ms + link->silence.waited_ms;
    }
    return (silent_ms >= STARVED_DEADS * dead_ms) || !host_answers(link);
}

void bt_link_silence_tick(bt_link_t *link)
{
    const uint64_t silent_ms = link->control->now_ms - link->heard_ms;
    link_told_t is = LINK_TOLD_SUSPECT;
    char reason[96];

    look_at_process(link);
    if (is_too_long(link, silent_ms)) {
        snprintf(reason, sizeof(reason), "silent for %" PRIu64 " ms",
                 silent_ms);
        if (link->silence.waited_ms > 0) {
            snprintf(reason + strlen(reason), sizeof(reason) - strlen(reason),
                     ", %" PRIu64 " of which it waited for a core",
                     link->silence.waited_ms);
        }
        bt_link_over(link, reason);
        return;
    }
    if (silent_ms < link->control->suspect_ms) {
        return;
    }
    if (waits_for_a_core(link)) {
        is = LINK_TOLD_STARVED;
    }
    if (link->is != is) {
        link->is = is;
        bt_link_mark_ready(link);
    }
}
