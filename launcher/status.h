/* SPDX-License-Identifier: Apache-2.0 */
/** @file status.h  Status of a launcher, for a person or a program to read. */
#ifndef BT_LAUNCHER_STATUS_H
#define BT_LAUNCHER_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/admin/admin.h"
#include "common/base/status.h"
#include "common/config/config.h"

/** Collected status. All zero: nothing is known yet. */
typedef struct bt_status_report {
    bt_admin_launcher_t launcher;
    bt_admin_model_t models[BT_CONFIG_MAX_MODELS];
    uint32_t n_models;
    bt_admin_process_t *processes; /**< owned */
    uint32_t n_processes;
} bt_status_report_t;

/** Adds an event. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_status_report_add(bt_status_report_t *report,
                                               const bt_admin_event_t *event);

void bt_status_report_fini(bt_status_report_t *report);

/** Appends the status as a table. @param [in] now_ms  Unix time. */
void bt_status_report_table(const bt_status_report_t *report, uint64_t now_ms,
                            bt_strbuf_t *out);

/** Appends the status as one JSON object:
 *  {"launcher":{...},"models":[{...}],"processes":[{...}]} */
void bt_status_report_json(const bt_status_report_t *report, uint64_t now_ms,
                           bt_strbuf_t *out);

/** Prints the status to standard output. @return false: that failed, and was
 *  logged. */
bool bt_status_report_print(const bt_status_report_t *report, bool json);

#endif
