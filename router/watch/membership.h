/* SPDX-License-Identifier: Apache-2.0 */
/** @file membership.h
 *
 * Membership of workers: what the launcher runs, and so which workers are
 * missing; and the workers that were rejected. A part of GET /v2/cluster.
 *
 *     rejected ─▶ recorded by name ─▶ it joins, or does not try again for
 *                                     BT_MEMBERS_KEEP_MS ─▶ removed
 *
 * Anyone who can reach the control port can be rejected under any name. So
 * peers that do not know the cluster key get at most half of the slots, and
 * cannot take slots from workers that know it.
 *
 * Pure: the caller passes the time. Threads: the event loop's.
 */
#ifndef BT_ROUTER_WATCH_MEMBERSHIP_H
#define BT_ROUTER_WATCH_MEMBERSHIP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/admin/admin.h"
#include "common/base/json.h"
#include "common/wire/wire.h"

#define BT_MEMBERS_REJECTIONS    32
#define BT_MEMBERS_UNPROVEN      16 /**< slots of peers without the key */
#define BT_MEMBERS_KEEP_MS       600000u
#define BT_MEMBERS_ADDRESS_BYTES 256
#define BT_MEMBERS_WHY_BYTES     512

/** One rejection to record. Text that is too long is truncated. */
typedef struct bt_rejection {
    const char *name;    /**< name that the peer reported; "": unknown */
    const char *address; /**< control link's; "": unchanged, or unknown */
    const char *why;
    bool proven; /**< peer has the cluster key: its name is authentic */
} bt_rejection_t;

typedef struct bt_rejection_record {
    char name[BT_WIRE_MAX_NAME];
    char address[BT_MEMBERS_ADDRESS_BYTES];
    char why[BT_MEMBERS_WHY_BYTES]; /**< reason of the latest rejection */
    bool proven;
    uint64_t first_ms, last_ms; /**< Unix time */
    uint64_t n;                 /**< number of rejections */
} bt_rejection_record_t;

/** Rejected workers, and what the launcher runs. All zero: none. */
typedef struct bt_members {
    bt_rejection_record_t rejections[BT_MEMBERS_REJECTIONS];
    uint32_t n;
    /** Borrowed; what the launcher runs. NULL, or without a launcher in it:
     *  unknown. */
    const bt_admin_document_t *launcher;
} bt_members_t;

/** Records a rejected worker. O(BT_MEMBERS_REJECTIONS).
 *  @param [in] now_ms  Unix time */
void bt_members_reject(bt_members_t *members, const bt_rejection_t *who,
                       uint64_t now_ms);

/** Removes a worker's rejections because it has joined. */
void bt_members_join(bt_members_t *members, const char *name);

/** True when a launcher has reported its processes. */
bool bt_members_are_known(const bt_members_t *members);
/** Returns the launcher's entry of this name; NULL: none. */
const bt_admin_process_t *bt_members_process(const bt_members_t *members,
                                             const char *name);
/** Returns the launcher's entry of a model; NULL: none. */
const bt_admin_model_t *bt_members_model(const bt_members_t *members,
                                         const char *name);
/** True for the entry of a worker that should be present. */
bool bt_members_expects(const bt_admin_process_t *process);

/**
 * Writes three fields of an object: "launcher" (null: unknown), "processes",
 * and "refused", the latest rejection first.
 * @param [in] now_ms  Unix time.
 */
void bt_members_write(const bt_members_t *members, uint64_t now_ms,
                      bt_json_t *json);

#endif
