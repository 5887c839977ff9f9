/* SPDX-License-Identifier: Apache-2.0 */
#include "router/watch/membership.h"

#include <stdio.h>
#include <string.h>

#include "common/base/containers.h"

static bool is_recent(const bt_rejection_record_t *slot, uint64_t now_ms)
{
    return (now_ms < slot->last_ms) || /* the clock was set back */
           (now_ms - slot->last_ms <= BT_MEMBERS_KEEP_MS);
}

/* Returns the slot of this name, or a free one, or else the slot of the least
 * recent peer without the cluster key, or of the least recent one if all
 * have it. NULL: a peer without the key when all slots belong to workers
 * with it. */
static bt_rejection_record_t *slot_of(bt_members_t *members,
                                      const bt_rejection_t *who)
{
    bt_rejection_record_t *oldest = NULL, *oldest_unproven = NULL;
    bt_rejection_record_t *slot;
    uint32_t n_unproven = 0;

    for (uint32_t i = 0; i < members->n; i++) {
        slot = &members->rejections[i];
        if ((slot->proven == who->proven) &&
            (strncmp(slot->name, who->name, sizeof(slot->name) - 1) == 0)) {
            return slot;
        }
        if (!slot->proven) {
            n_unproven++;
            if ((oldest_unproven == NULL) ||
                (slot->last_ms < oldest_unproven->last_ms)) {
                oldest_unproven = slot;
            }
        }
        if ((oldest == NULL) || (slot->last_ms < oldest->last_ms)) {
            oldest = slot;
        }
    }
    if ((members->n < BT_MEMBERS_REJECTIONS) &&
        (who->proven || (n_unproven < BT_MEMBERS_UNPROVEN))) {
        slot = &members->rejections[members->n++];
    } else {
        slot = (who->proven && (oldest_unproven == NULL)) ? oldest
                                                          : oldest_unproven;
    }
    if (slot == NULL) {
        return NULL;
    }
    *slot = (bt_rejection_record_t){.proven = who->proven};
    snprintf(slot->name, sizeof(slot->name), "%s", who->name);
    return slot;
}

void bt_members_reject(bt_members_t *members, const bt_rejection_t *who,
                       uint64_t now_ms)
{
    bt_rejection_record_t *slot = slot_of(members, who);

    if (slot == NULL) {
        return;
    }
    if ((slot->n == 0) || !is_recent(slot, now_ms)) {
        slot->n = 0;
        slot->first_ms = now_ms;
    }
    slot->n++;
    slot->last_ms = now_ms;
    snprintf(slot->why, sizeof(slot->why), "%s", who->why);
    if (who->address[0] != '\0') {
        snprintf(slot->address, sizeof(slot->address), "%s", who->address);
    }
}

void bt_members_join(bt_members_t *members, const char *name)
{
    for (uint32_t i = 0; i < members->n;) {
        if (strcmp(members->rejections[i].name, name) == 0) {
            members->rejections[i] = members->rejections[--members->n];
        } else {
            i++;
        }
    }
}

bool bt_members_are_known(const bt_members_t *members)
{
    return (members->launcher != NULL) && members->launcher->has_launcher;
}

const bt_admin_process_t *bt_members_process(const bt_members_t *members,
                                             const char *name)
{
    const bt_admin_document_t *launcher = members->launcher;

    return (launcher == NULL)
               ? NULL
               : BT_FIND_NAMED(launcher->processes, launcher->n_processes, name,
                               name);
}

const bt_admin_model_t *bt_members_model(const bt_members_t *members,
                                         const char *name)
{
    const bt_admin_document_t *launcher = members->launcher;

    return (launcher == NULL) ? NULL
                              : BT_FIND_NAMED(launcher->models,
                                              launcher->n_models, name, name);
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

static void write_rejection(const bt_rejection_record_t *slot, bt_json_t *json)
{
    bt_json_object(json, NULL);
    bt_json_str(json, "name", (slot->name[0] != '\0') ? slot->name : NULL);
    bt_json_str(json, "address",
                (slot->address[0] != '\0') ? slot->address : NULL);
    bt_json_str(json, "why", slot->why);
    bt_json_bool(json, "proven", slot->proven);
    bt_json_u64(json, "times", slot->n);
    bt_json_u64(json, "first_ms", slot->first_ms);
    bt_json_u64(json, "last_ms", slot->last_ms);
    bt_json_end_object(json);
}

void bt_members_write(const bt_members_t *members, uint64_t now_ms,
                      bt_json_t *json)
{
    bool is_written[BT_MEMBERS_REJECTIONS] = {false};

    if (bt_members_are_known(members)) {
        bt_admin_write_launcher(&members->launcher->launcher, json);
        bt_admin_write_processes(members->launcher->processes,
                                 members->launcher->n_processes, json);
    } else {
        bt_json_null(json, "launcher");
        bt_admin_write_processes(NULL, 0, json);
    }
    bt_json_array(json, "refused");
    for (uint32_t n = 0; n < members->n; n++) {
        uint32_t last = BT_MEMBERS_REJECTIONS;

        for (uint32_t i = 0; i < members->n; i++) {
            if (!is_written[i] && ((last == BT_MEMBERS_REJECTIONS) ||
                                   (members->rejections[i].last_ms >
                                    members->rejections[last].last_ms))) {
                last = i;
            }
        }
        is_written[last] = true;
        if (is_recent(&members->rejections[last], now_ms)) {
            write_rejection(&members->rejections[last], json);
        }
    }
    bt_json_end_array(json);
}
