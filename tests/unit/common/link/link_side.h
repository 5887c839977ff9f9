/* SPDX-License-Identifier: Apache-2.0 */
/** @file link_side.h  For the control tests: one end of the links, with what
 *  happened to it, and a loop that drives several ends in one thread. */
#ifndef BT_TESTS_UNIT_COMMON_LINK_LINK_SIDE_H
#define BT_TESTS_UNIT_COMMON_LINK_LINK_SIDE_H

#include "tests/support/testsupport.h"

#include <ftw.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/link/link_priv.h"

#define HEARTBEAT_MS 50
/* nng's own threads may wait so long for a core, where others want it, too. A
 * test of what ends by time alone has its own. */
#ifndef DEAD_MS
#define SUSPECT_MS 1000
#define DEAD_MS    2000
#endif
#define PATIENCE_MS 60000 /* for what must happen; only guards a hang */

static const uint8_t key_a[] = "a cluster key for tests, 1";
static const uint8_t key_b[] = "a cluster key for tests, 2";

typedef struct side {
    bt_control_t *control;
    bt_link_t *link; /* the newest that is up */
    unsigned n_up, n_down, n_suspect, n_starved, n_healthy, n_writable;
    size_t queued; /* when it last had room */
    uint64_t up_ms, down_ms, suspect_ms;
    uint64_t incarnation;
    char hello[64];
    char reason[300];
    uint32_t n_messages; /* each must hold its own number from 0 */
    bool in_order;
    size_t last_bytes, most_bytes;
    bool echo;
    const char *refuse; /* close each link that comes up, for this reason */
} side_t;

static inline void side_on_event(side_t *side, const bt_link_event_t *event,
                                 uint64_t now_ms)
{
    uint32_t number = 0;

    switch (event->type) {
    case BT_LINK_UP:
        side->n_up++;
        side->up_ms = now_ms;
        side->link = event->link;
        side->incarnation = event->link->incarnation;
        snprintf(side->hello, sizeof(side->hello), "%.*s", (int)event->bytes,
                 (const char *)event->data);
        if (side->refuse != NULL) {
            bt_link_close(event->link, side->refuse);
        }
        break;
    case BT_LINK_DOWN:
        side->n_down++;
        side->down_ms = now_ms;
        snprintf(side->reason, sizeof(side->reason), "%.*s", (int)event->bytes,
                 (const char *)event->data);
        if (side->link == event->link) {
            side->link = NULL;
        }
        break;
    case BT_LINK_SUSPECT:
        side->n_suspect++;
        side->suspect_ms = now_ms;
        break;
    case BT_LINK_STARVED:
        side->n_starved++;
        break;
    case BT_LINK_HEALTHY:
        side->n_healthy++;
        break;
    case BT_LINK_WRITABLE:
        side->n_writable++;
        side->queued = bt_link_queued(event->link);
        break;
    case BT_LINK_MESSAGE:
        if (side->echo) {
            if (bt_link_post(event->link, event->data, event->bytes) != BT_OK) {
                side->in_order = false;
            }
            break;
        }
        if (event->bytes >= sizeof(number)) {
            memcpy(&number, event->data, sizeof(number));
        }
        side->in_order = side->in_order && (number == side->n_messages);
        side->n_messages++;
        side->last_bytes = event->bytes;
        if (event->bytes > side->most_bytes) {
            side->most_bytes = event->bytes;
        }
        break;
    }
}

/* All that is there, with the time given. */
static inline void side_turn_at(side_t *side, uint64_t now_ms)
{
    bt_link_event_t event;

    while (bt_control_next(side->control, now_ms, &event)) {
        side_on_event(side, &event, now_ms);
    }
    bt_control_tick(side->control, now_ms);
    while (bt_control_next(side->control, now_ms, &event)) {
        side_on_event(side, &event, now_ms);
    }
    bt_control_flush(side->control);
}

static inline void sides_turn(side_t *const *sides, nfds_t n)
{
    struct pollfd fds[4];

    for (nfds_t i = 0; i < n; i++) {
        fds[i].fd = bt_control_fd(sides[i]->control);
        fds[i].events = POLLIN;
    }
    (void)poll(fds, n, HEARTBEAT_MS / 2);
    for (nfds_t i = 0; i < n; i++) {
        side_turn_at(sides[i], bt_now_ms());
    }
}

/* Drive both ends until the condition holds; fail when it never does. */
#define UNTIL(a, b, condition)                                   \
    do {                                                         \
        side_t *const until_sides[] = {(a), (b)};                \
        const uint64_t until_end_ms = bt_now_ms() + PATIENCE_MS; \
                                                                 \
        while (!(condition)) {                                   \
            assert_true(bt_now_ms() < until_end_ms);             \
            sides_turn(until_sides, ((b) == NULL) ? 1 : 2);      \
        }                                                        \
    } while (0)

/* Drive both ends for so long; for what must not happen. */
static inline void run_for(side_t *a, side_t *b, uint64_t ms)
{
    side_t *const sides[] = {a, b};
    const uint64_t end_ms = bt_now_ms() + ms;

    while (bt_now_ms() < end_ms) {
        sides_turn(sides, (b == NULL) ? 1 : 2);
    }
}

/* All of these tests hold whatever way messages take; meson runs them twice. */
static inline bool sides_share(void)
{
    return getenv("LINK_TEST_NNG") == NULL;
}

/* The way of this link's messages does not change any more. */
static inline bool is_settled(const bt_link_t *link)
{
    return !sides_share() || !bt_link_pipe_is_ipc(link->pipe) ||
           ((link->shm.state == LINK_SHM_OPEN) && (link->n_own == 0));
}

static inline bt_control_config_t side_config(const uint8_t *key,
                                              const char *hello)
{
    const bt_control_config_t config = {.key = key,
                                        .key_bytes = sizeof(key_a),
                                        .hello = hello,
                                        .hello_bytes = strlen(hello),
                                        .name = hello,
                                        .range = {.oldest = 4, .newest = 4},
                                        .heartbeat_ms = HEARTBEAT_MS,
                                        .suspect_ms = SUSPECT_MS,
                                        .dead_ms = DEAD_MS,
                                        .max_queue_bytes = 64u << 20,
                                        .share_memory = sides_share()};

    return config;
}

static inline void side_open(side_t *side, const uint8_t *key,
                             const char *hello)
{
    const bt_control_config_t config = side_config(key, hello);

    memset(side, 0, sizeof(*side));
    side->in_order = true;
    assert_int_equal(bt_control_open(&config, &side->control), BT_OK);
}

/* A folder for the sockets of this run, of a name with all that a path may
 * have; children inherit its name. */
static inline int test_dir_make(void)
{
    char dir[] = "/tmp/baton link,\xc3\xa9-XXXXXX";

    return ((mkdtemp(dir) == NULL) || (setenv("LINK_TEST_DIR", dir, 1) != 0))
               ? -1
               : 0;
}

static inline int test_dir_drop(const char *path, const struct stat *st,
                                int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline void test_dir_remove(void)
{
    (void)nftw(getenv("LINK_TEST_DIR"), test_dir_drop, 8, FTW_DEPTH | FTW_PHYS);
}

/* An address that nobody has: a free port, or a new name. */
static inline const char *fresh_url(bool ipc)
{
    static char url[64];
    static unsigned count;

    if (ipc) {
        snprintf(url, sizeof(url), "ipc://%s/router-%u",
                 getenv("LINK_TEST_DIR"), count++);
    } else {
        snprintf(url, sizeof(url), "tcp://127.0.0.1:0");
    }
    return url;
}

#endif
