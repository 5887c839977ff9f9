/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/notify.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/text.h"

#define MESSAGE_BYTES   1024
#define AGAIN_MS        100u
#define BEATS           3u /* per watchdog interval of the manager */
#define LONGEST_BEAT_MS 60000u

/* A path, or with a @ first an abstract name. */
static bt_status_t read_address(const char *text, bt_notify_t *notify)
{
    struct sockaddr_un *const address = &notify->address;
    const size_t n = strlen(text);

    if (((text[0] != '/') && (text[0] != '@')) || (n < 2) ||
        (n >= sizeof(address->sun_path))) {
        BT_LOG_ERROR("NOTIFY_SOCKET is neither a path nor an abstract name of "
                     "at most %zu bytes: '%s'",
                     sizeof(address->sun_path) - 1, text);
        return BT_ERR_INVALID_PARAM;
    }
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path, text, n + 1);
    notify->address_bytes =
        (uint32_t)(offsetof(struct sockaddr_un, sun_path) + n);
    if (text[0] == '@') {
        address->sun_path[0] = '\0';
    } else {
        notify->address_bytes++;
    }
    return BT_OK;
}

static bool read_number(const char *text, uint64_t *number_p)
{
    char *end;
    unsigned long long number;

    errno = 0;
    number = strtoull(text, &end, 10);
    if ((text[0] < '0') || (text[0] > '9') || (*end != '\0') || (errno != 0)) {
        return false;
    }
    *number_p = number;
    return true;
}

/* WATCHDOG_PID is the process that WATCHDOG_USEC is for: it may be a parent
 * that did not remove it. */
static bt_status_t read_watchdog(bt_notify_t *notify)
{
    const char *const usec = getenv("WATCHDOG_USEC");
    const char *const pid = getenv("WATCHDOG_PID");
    uint64_t number;

    if (usec == NULL) {
        return BT_OK;
    }
    if ((pid != NULL) && (!read_number(pid, &number) || (number == 0))) {
        BT_LOG_ERROR("WATCHDOG_PID is no process: '%s'", pid);
        return BT_ERR_INVALID_PARAM;
    }
    if ((pid != NULL) && (number != (uint64_t)getpid())) {
        return BT_OK;
    }
    if (!read_number(usec, &number) || (number < BEATS * 1000)) {
        BT_LOG_ERROR("WATCHDOG_USEC is no time of at least %u: '%s'",
                     BEATS * 1000, usec);
        return BT_ERR_INVALID_PARAM;
    }
    number /= BEATS * 1000;
    notify->beat_every_ms =
        (number > LONGEST_BEAT_MS) ? LONGEST_BEAT_MS : (uint32_t)number;
    return BT_OK;
}

bt_status_t bt_notify_open(bt_notify_t *notify)
{
    const char *const where = getenv("NOTIFY_SOCKET");
    bt_status_t status = BT_OK;

    *notify = (bt_notify_t){.fd = -1};
    if ((where != NULL) && (where[0] != '\0')) {
        status = read_address(where, notify);
        if (status == BT_OK) {
            status = read_watchdog(notify);
        }
        if (status == BT_OK) {
            notify->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
            if (notify->fd < 0) {
                BT_LOG_ERROR("cannot make a socket for NOTIFY_SOCKET: %m");
                status = BT_ERR_IO;
            }
        }
    }
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    return status;
}

void bt_notify_close(bt_notify_t *notify)
{
    if (notify->fd >= 0) {
        close(notify->fd);
    }
    notify->fd = -1;
}

/* True when clients can be served, now or not long ago. */
static bool is_alive(bt_notify_t *notify, const bt_notify_state_t *state,
                     uint64_t now_ms)
{
    if ((state->n_serving > 0) || (state->n_routers == 0) ||
        state->is_stopping || !state->is_ready) {
        notify->unserved_ms = 0;
        return true;
    }
    if (notify->unserved_ms == 0) {
        notify->unserved_ms = now_ms;
    }
    return now_ms - notify->unserved_ms < BT_NOTIFY_UNSERVED_MS;
}

/* @return whether the manager received it. */
static bool send_text(bt_notify_t *notify, const bt_strbuf_t *text)
{
    if (sendto(notify->fd, text->data, text->len, MSG_DONTWAIT | MSG_NOSIGNAL,
               (const struct sockaddr *)&notify->address,
               notify->address_bytes) == (ssize_t)text->len) {
        notify->complained = false;
        return true;
    }
    if (!notify->complained && (errno != EAGAIN) && (errno != ENOBUFS)) {
        BT_LOG_WARN("cannot notify the service manager: %m");
        notify->complained = true;
    }
    return false;
}

/* Changes to report. */
typedef struct news {
    bool ready, stopping, status, beat;
} news_t;

static bool look(bt_notify_t *notify, const bt_notify_state_t *state,
                 uint64_t now_ms, news_t *news)
{
    const bool is_due =
        (notify->beat_every_ms != 0) && (now_ms >= notify->beat_ms);
    const bool alive = is_alive(notify, state, now_ms);

    if (is_due && !alive) {
        notify->beat_ms = now_ms + notify->beat_every_ms;
    }
    news->ready = state->is_ready && !notify->said_ready;
    news->stopping = state->is_stopping && !notify->said_stopping;
    news->status = strncmp(state->status, notify->said_status,
                           BT_NOTIFY_STATUS_BYTES - 1) != 0;
    news->beat = is_due && alive;
    return news->ready || news->stopping || news->status || news->beat;
}

static void write_news(const news_t *news, const bt_notify_state_t *state,
                       bt_strbuf_t *text)
{
    if (news->ready) {
        bt_strbuf_puts(text, "READY=1\n");
    }
    if (news->stopping) {
        bt_strbuf_printf(text, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%" PRIu64 "\n",
                         UINT64_C(1000) * state->stop_ms);
    }
    if (news->status) {
        bt_strbuf_printf(text, "STATUS=%.*s\n", BT_NOTIFY_STATUS_BYTES - 1,
                         state->status);
    }
    if (news->beat) {
        bt_strbuf_puts(text, "WATCHDOG=1\n");
    }
}

static void was_said(bt_notify_t *notify, const news_t *news,
                     const bt_notify_state_t *state, uint64_t now_ms)
{
    notify->said_ready |= news->ready;
    notify->said_stopping |= news->stopping;
    snprintf(notify->said_status, sizeof(notify->said_status), "%s",
             state->status);
    if (news->beat) {
        notify->beat_ms = now_ms + notify->beat_every_ms;
    }
}

void bt_notify_tell(bt_notify_t *notify, const bt_notify_state_t *state,
                    uint64_t now_ms)
{
    bt_strbuf_t text;
    news_t news;

    if ((notify->fd < 0) || (now_ms < notify->again_ms)) {
        return;
    }
    notify->again_ms = 0; /* even if nothing is left to report */
    if (!look(notify, state, now_ms, &news)) {
        return;
    }
    bt_strbuf_init(&text, MESSAGE_BYTES);
    write_news(&news, state, &text);
    if ((bt_strbuf_status(&text) == BT_OK) && send_text(notify, &text)) {
        was_said(notify, &news, state, now_ms);
    } else {
        notify->again_ms = now_ms + AGAIN_MS;
    }
    bt_strbuf_fini(&text);
}

uint64_t bt_notify_due_ms(const bt_notify_t *notify)
{
    if (notify->fd < 0) {
        return UINT64_MAX;
    }
    if (notify->again_ms != 0) {
        return notify->again_ms;
    }
    /* If no router is ready, it is checked as often. */
    return (notify->beat_every_ms != 0) ? notify->beat_ms : UINT64_MAX;
}
