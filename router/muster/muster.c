/* SPDX-License-Identifier: Apache-2.0 */
#include "router/muster/muster.h"

#include <stdio.h>
#include <string.h>

static bool is_recent(const bt_muster_place_t *place, uint64_t now_ms)
{
    return (now_ms < place->last_ms) || /* the clock was set back */
           (now_ms - place->last_ms <= BT_MUSTER_KEEP_MS);
}

/* Returns the slot of this name, or a free one, or else the slot of the least
 * recent peer without the cluster key, or of the least recent one if all
 * have it. NULL: a peer without the key when all slots belong to workers
 * with it. */
static bt_muster_place_t *place_of(bt_muster_t *muster, const bt_refused_t *who)
{
    bt_muster_place_t *oldest = NULL, *oldest_stranger = NULL;
    bt_muster_place_t *place;
    uint32_t n_strangers = 0;

    for (uint32_t i = 0; i < muster->n; i++) {
        place = &muster->places[i];
        if ((place->proven == who->proven) &&
            (strncmp(place->name, who->name, sizeof(place->name) - 1) == 0)) {
            return place;
        }
        if (!place->proven) {
            n_strangers++;
            if ((oldest_stranger == NULL) ||
                (place->last_ms < oldest_stranger->last_ms)) {
                oldest_stranger = place;
            }
        }
        if ((oldest == NULL) || (place->last_ms < oldest->last_ms)) {
            oldest = place;
        }
    }
    if ((muster->n < BT_MUSTER_PLACES) &&
        (who->proven || (n_strangers < BT_MUSTER_STRANGERS))) {
        place = &muster->places[muster->n++];
    } else {
        place = (who->proven && (oldest_stranger == NULL)) ? oldest
                                                           : oldest_stranger;
    }
    if (place == NULL) {
        return NULL;
    }
    *place = (bt_muster_place_t){.proven = who->proven};
    snprintf(place->name, sizeof(place->name), "%s", who->name);
    return place;
}

void bt_muster_refuse(bt_muster_t *muster, const bt_refused_t *who,
                      uint64_t now_ms)
{
    bt_muster_place_t *place = place_of(muster, who);

    if (place == NULL) {
        return;
    }
    if ((place->n == 0) || !is_recent(place, now_ms)) {
        place->n = 0;
        place->first_ms = now_ms;
    }
    place->n++;
    place->last_ms = now_ms;
    snprintf(place->why, sizeof(place->why), "%s", who->why);
    if (who->address[0] != '\0') {
        snprintf(place->address, sizeof(place->address), "%s", who->address);
    }
}

void bt_muster_join(bt_muster_t *muster, const char *name)
{
    for (uint32_t i = 0; i < muster->n;) {
        if (strcmp(muster->places[i].name, name) == 0) {
            muster->places[i] = muster->places[--muster->n];
        } else {
            i++;
        }
    }
}

void bt_muster_expect(bt_muster_t *muster, const bt_orders_process_t *processes,
                      uint32_t n)
{
    muster->expected = processes;
    muster->n_expected = n;
}

const bt_orders_process_t *bt_muster_process(const bt_muster_t *muster,
                                             const char *name)
{
    for (uint32_t i = 0; i < muster->n_expected; i++) {
        if (strcmp(muster->expected[i].name, name) == 0) {
            return &muster->expected[i];
        }
    }
    return NULL;
}

/* A worker stopped by an admin command is not expected, and neither is a
 * router. A worker that failed to start has a reason and is expected. */
bool bt_muster_expects(const bt_orders_process_t *process)
{
    return ((process->program == BT_ORDERS_PREFILL) ||
            (process->program == BT_ORDERS_DECODE)) &&
           ((process->state != BT_ORDERS_STOPPED) || (process->why[0] != '\0'));
}

uint32_t bt_muster_role(const bt_orders_process_t *process)
{
    return (process->role != BT_ORDERS_NO_ROLE)
               ? process->role
               : process->program; /* an older launcher's field */
}

static void write_missing(const bt_orders_process_t *process, bt_json_t *json)
{
    bt_json_object(json, NULL);
    bt_json_str(json, "name", process->name);
    bt_json_str(json, "model", process->model);
    bt_json_str(json, "role", bt_orders_role_name(bt_muster_role(process)));
    bt_json_str(json, "state", bt_orders_state_name(process->state));
    bt_json_u64(json, "since_ms", process->since_ms);
    bt_json_str(json, "why", (process->why[0] != '\0') ? process->why : NULL);
    bt_json_end_object(json);
}

static void write_place(const bt_muster_place_t *place, bt_json_t *json)
{
    bt_json_object(json, NULL);
    bt_json_str(json, "name", (place->name[0] != '\0') ? place->name : NULL);
    bt_json_str(json, "address",
                (place->address[0] != '\0') ? place->address : NULL);
    bt_json_str(json, "why", place->why);
    bt_json_bool(json, "proven", place->proven);
    bt_json_u64(json, "times", place->n);
    bt_json_u64(json, "first_ms", place->first_ms);
    bt_json_u64(json, "last_ms", place->last_ms);
    bt_json_end_object(json);
}

void bt_muster_write(const bt_muster_t *muster, uint64_t now_ms,
                     bool (*is_here)(void *ctx, const char *name), void *ctx,
                     bt_json_t *json)
{
    bool is_written[BT_MUSTER_PLACES] = {false};

    bt_json_array(json, "missing");
    for (uint32_t i = 0; i < muster->n_expected; i++) {
        if (bt_muster_expects(&muster->expected[i]) &&
            !is_here(ctx, muster->expected[i].name)) {
            write_missing(&muster->expected[i], json);
        }
    }
    bt_json_end_array(json);
    bt_json_array(json, "refused");
    for (uint32_t n = 0; n < muster->n; n++) {
        uint32_t last = BT_MUSTER_PLACES;

        for (uint32_t i = 0; i < muster->n; i++) {
            if (!is_written[i] &&
                ((last == BT_MUSTER_PLACES) ||
                 (muster->places[i].last_ms > muster->places[last].last_ms))) {
                last = i;
            }
        }
        is_written[last] = true;
        if (is_recent(&muster->places[last], now_ms)) {
            write_place(&muster->places[last], json);
        }
    }
    bt_json_end_array(json);
}
