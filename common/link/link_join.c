/* SPDX-License-Identifier: Apache-2.0 */
/* Routers that a worker joins: dials each of them, and dials again when the
 * link has ended.
 *
 *     a link that worked ended                   ─▶ at once
 *     nobody listens there                       ─▶ after 50 ms … 0.5 s
 *     refused, or ended before it worked         ─▶ after 0.25 … 2 s
 */
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/link/link_priv.h"

#define WORKED_MS      1000 /* a link that was up for so long has worked */
#define ABSENT_MS      50   /* first pause while no router is found */
#define ABSENT_MAX_MS  500
#define REFUSED_MS     250 /* first pause after a link that did not work */
#define REFUSED_MAX_MS 2000
#define DIAL_MS        5000 /* names are looked up, packets sent again */
#define HINT_DEATHS    2    /* times dead_ms without an answer: it is logged */

bt_status_t bt_link_join_create(bt_control_t *control, const char *url,
                                link_join_t **join_p)
{
    link_join_t *join = bt_calloc(1, sizeof(*join));
    bt_status_t status;

    if (join == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_list_init(&join->in_all);
    join->control = control;
    snprintf(join->url, sizeof(join->url), "%s", url);
    status = bt_link_dial(join);
    if (status != BT_OK) {
        bt_free(join);
        return status;
    }
    *join_p = join;
    return BT_OK;
}

void bt_link_join_free(link_join_t *join)
{
    if (join != NULL) {
        bt_list_remove(&join->in_all);
        bt_free(join);
    }
}

/* @return the pause before the next dial */
static uint64_t next_pause(link_join_t *join, uint64_t first_ms,
                           uint64_t max_ms)
{
    const uint64_t pause_ms =
        (join->pause_ms < first_ms) ? first_ms : join->pause_ms;

    join->pause_ms = (2 * pause_ms > max_ms) ? max_ms : 2 * pause_ms;
    return (pause_ms > max_ms) ? max_ms : pause_ms;
}

/* The router accepted the connection and ended it before it proved itself. */
static void not_answered(link_join_t *join)
{
    if (join->unanswered_ms == 0) {
        join->unanswered_ms = join->control->now_ms;
    }
    if (!join->is_explained) { /* else more than this is known */
        snprintf(join->why, sizeof(join->why),
                 "it is there but does not answer; do both sides have the same "
                 "cluster key?");
    }
}

static void tick_unanswered(link_join_t *join)
{
    const bt_control_t *control = join->control;

    if ((join->unanswered_ms != 0) && !join->complained &&
        (control->now_ms - join->unanswered_ms >=
         (uint64_t)HINT_DEATHS * control->dead_ms)) {
        join->complained = true;
        BT_LOG_WARN("router at %s: %s", join->url, join->why);
    }
}

void bt_link_join_ended(link_join_t *join, const bt_link_t *link)
{
    const uint64_t now = join->control->now_ms;
    uint64_t pause_ms = 0;

    if (link->state == LINK_CONNECTING) {
        snprintf(join->why, sizeof(join->why), "no router answers there");
        join->unanswered_ms = 0;
        pause_ms = next_pause(join, ABSENT_MS, ABSENT_MAX_MS);
    } else if (!link->proven) {
        not_answered(join);
        pause_ms = next_pause(join, REFUSED_MS, REFUSED_MAX_MS);
    } else {
        snprintf(join->why, sizeof(join->why), "%s", link->reason);
        join->unanswered_ms = 0;
        if ((link->up_ms != 0) && (now - link->up_ms >= WORKED_MS)) {
            join->pause_ms = 0;
        } else {
            pause_ms = next_pause(join, REFUSED_MS, REFUSED_MAX_MS);
        }
    }
    join->link = NULL;
    join->next_dial_ms = now + pause_ms;
}

void bt_link_join_tick(link_join_t *join)
{
    const uint64_t now = join->control->now_ms;

    tick_unanswered(join);
    if ((join->link == NULL) && (now >= join->next_dial_ms) &&
        (bt_link_dial(join) != BT_OK)) {
        join->next_dial_ms = now + REFUSED_MAX_MS;
    }
}

uint64_t bt_link_join_deadline(const bt_control_t *control)
{
    return control->now_ms +
           ((control->dead_ms > DIAL_MS) ? control->dead_ms : DIAL_MS);
}

static bool is_up(const link_join_t *join)
{
    const bt_link_t *link = join->link;

    return (link != NULL) && (link->state == LINK_UP) &&
           (join->control->now_ms - link->up_ms >= WORKED_MS);
}

uint32_t bt_control_routers(const bt_control_t *control,
                            bt_control_router_t *list, uint32_t most)
{
    uint32_t n = 0;

    BT_LIST_FOR_EACH_ENTRY(const link_join_t, join, &control->joins, in_all) {
        if (n < most) {
            list[n].url = join->url;
            list[n].is_up = is_up(join);
            list[n].why = list[n].is_up ? "" : join->why;
        }
        n++;
    }
    return n;
}
