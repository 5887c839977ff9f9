/* SPDX-License-Identifier: Apache-2.0 */
#include "router/watch/membership.h"

#include <stdio.h>
#include <string.h>

static bool is_recent(const bt_rejection_record_t *place, uint64_t now_ms)
{
    return (now_ms < place->last_ms) || /* the clock was set back */
           (now_ms - place->last_ms <= BT_MEMBERS_KEEP_MS);
}

/* Returns the slot of this name, or a free one, or else the slot of the least
 * recent peer without the cluster key, or of the least recent one if all
 * have it. NULL: a peer without the key when all slots belong to workers
 * with it. */
static bt_rejection_record_t *place_of(bt_members_t *members,
                                       const bt_rejection_t *who)
{
    bt_rejection_record_t *oldest = NULL, *oldest_stranger = NULL;
    bt_rejection_record_t *place;
    uint32_t n_strangers = 0;

    for (uint32_t i = 0; i < members->n; i++) {
        place = &members->places[i];
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
    if ((members->n < BT_MEMBERS_REJECTIONS) &&
        (who->proven || (n_strangers < BT_MEMBERS_UNPROVEN))) {
        place = &members->places[members->n++];
    } else {
        place = (who->proven && (oldest_stranger == NULL)) ? oldest
                                                           : oldest_stranger;
    }
    if (place == NULL) {
        return NULL;
    }
    *place = (bt_rejection_record_t){.proven = who->proven};
    snprintf(place->name, sizeof(place->name), "%s", who->name);
    return place;
}

void bt_members_reject(bt_members_t *members, const bt_rejection_t *who,
                       uint64_t now_ms)
{
    bt_rejection_record_t *place = place_of(members, who);

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

void bt_members_join(bt_members_t *members, const char *name)
{
    for (uint32_t i = 0; i < members->n;) {
        if (strcmp(members->places[i].name, name) == 0) {
            members->places[i] = members->places[--members->n];
        } else {
            i++;
        }
    }
}

void bt_members_expect(bt_members_t *members,
                       const bt_admin_process_t *processes, uint32_t n)
{
    members->expected = processes;
    members->n_expected = n;
}

const bt_admin_process_t *bt_members_process(const bt_members_t *members,
                                             const char *name)
{
    for (uint32_t i = 0; i < members->n_expected; i++) {
        if (strcmp(members->expected[i].name, name) == 0) {
            return &members->expected[i];
        }
    }
    return NULL;
}

/* A worker stopped by an admin command is not expected, and neither is a
 * router. A worker that failed to start has a reason and is expected. */
bool bt_members_expects(const bt_admin_process_t *process)
{
    return ((process->program == BT_ADMIN_PROGRAM_PREFILL) ||
            (process->program == BT_ADMIN_PROGRAM_DECODE)) &&
           ((process->state != BT_ADMIN_PROCESS_STOPPED) ||
            (process->why[0] != '\0'));
}

uint32_t bt_members_role(const bt_admin_process_t *process)
{
    return (process->role != BT_ADMIN_ROLE_NONE)
               ? process->role
               : process->program; /* an older launcher's field */
}

static void write_missing(const bt_admin_process_t *process, bt_json_t *json)
{
    bt_json_object(json, NULL);
    bt_json_str(json, "name", process->name);
    bt_json_str(json, "model", process->model);
    bt_json_str(json, "role", bt_admin_role_name(bt_members_role(process)));
    bt_json_str(json, "state", bt_admin_process_state_name(process->state));
    bt_json_u64(json, "since_ms", process->since_ms);
    bt_json_str(json, "why", (process->why[0] != '\0') ? process->why : NULL);
    bt_json_end_object(json);
}

static void write_place(const bt_rejection_record_t *place, bt_json_t *json)
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

void bt_members_write(const bt_members_t *members, uint64_t now_ms,
                      bool (*is_here)(void *ctx, const char *name), void *ctx,
                      bt_json_t *json)
{
    bool is_written[BT_MEMBERS_REJECTIONS] = {false};

    bt_json_array(json, "missing");
    for (uint32_t i = 0; i < members->n_expected; i++) {
        if (bt_members_expects(&members->expected[i]) &&
            !is_here(ctx, members->expected[i].name)) {
            write_missing(&members->expected[i], json);
        }
    }
    bt_json_end_array(json);
    bt_json_array(json, "refused");
    for (uint32_t n = 0; n < members->n; n++) {
        uint32_t last = BT_MEMBERS_REJECTIONS;

        for (uint32_t i = 0; i < members->n; i++) {
            if (!is_written[i] && ((last == BT_MEMBERS_REJECTIONS) ||
                                   (members->places[i].last_ms >
                                    members->places[last].last_ms))) {
                last = i;
            }
        }
        is_written[last] = true;
        if (is_recent(&members->places[last], now_ms)) {
            write_place(&members->places[last], json);
        }
    }
    bt_json_end_array(json);
}
