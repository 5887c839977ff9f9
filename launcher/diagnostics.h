/* SPDX-License-Identifier: Apache-2.0 */
/** @file diagnostics.h
 *
 * Findings of ./baton check: one sentence each, and how to fix it. As lines
 * for a person, or as JSON for a program; cli/findings.py, of ./baton doctor,
 * has equal formats.
 */
#ifndef BT_LAUNCHER_DIAGNOSTICS_H
#define BT_LAUNCHER_DIAGNOSTICS_H

#include <stdint.h>

#include "common/base/json.h"
#include "common/base/status.h"

typedef enum bt_diagnostic_level {
    BT_FINDING_NOTE,    /**< good to know */
    BT_FINDING_WARNING, /**< serves, but not as well as it could */
    BT_FINDING_PROBLEM, /**< does not start, or does not serve */
} bt_diagnostic_level_t;

typedef struct bt_diagnostic {
    bt_diagnostic_level_t level;
    char *about; /**< "configuration", "memory", the name of a process */
    char *text;
    char *fix; /**< how to fix it; "": the text says it */
} bt_diagnostic_t;

/** List of findings. All zero: empty. */
typedef struct bt_diagnostics {
    bt_diagnostic_t *list; /**< owned, with its texts */
    uint32_t n;
    bt_status_t status; /**< BT_ERR_NO_MEMORY: some are missing */
} bt_diagnostics_t;

/** Adds a finding, unless its text is there already. Sets status on errors. */
void bt_diagnostics_add(bt_diagnostics_t *findings, bt_diagnostic_level_t level,
                        const char *about, const char *text, const char *fix);
void bt_diagnostics_fini(bt_diagnostics_t *findings);

/** @return the number of findings of that level. */
uint32_t bt_diagnostics_count(const bt_diagnostics_t *findings,
                              bt_diagnostic_level_t level);

/** Appends "problem memory: TEXT" and, below it, " fix: MEND" for each
 *  finding; then the counts. */
void bt_diagnostics_print(const bt_diagnostics_t *findings, bt_strbuf_t *out);

/** Writes "findings":[{"level":"problem","about":…,"text":…,"fix":…|null},…]
 */
void bt_diagnostics_json(const bt_diagnostics_t *findings, bt_json_t *json);

#endif
