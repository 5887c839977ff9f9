/* SPDX-License-Identifier: Apache-2.0 */
/** @file document.h
 *
 * Document of the launcher (common/admin/admin.h): made from the state of the
 * supervisor, sent to the clients that watch whenever a part of it changes, and
 * printed as the table of `baton status`.
 */
#ifndef BT_LAUNCHER_DOCUMENT_H
#define BT_LAUNCHER_DOCUMENT_H

#include "common/admin/admin.h"

struct bt_supervisor;
struct bt_child;

/** Describes the launcher, all models and all processes.
 *  @param [out] document_p  Free with bt_admin_document_fini().
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_supervisor_document(
    const struct bt_supervisor *s, bt_admin_document_t *document_p);

/** Sends the state of the launcher, a model or a process to all who watch. */
void bt_supervisor_publish_launcher(struct bt_supervisor *s);
void bt_supervisor_publish_model(struct bt_supervisor *s, uint32_t model);
void bt_supervisor_publish_process(struct bt_supervisor *s,
                                   const struct bt_child *child);

/** Appends a document as a table. Ages are relative to its time. */
void bt_document_print_table(const bt_admin_document_t *document,
                             bt_strbuf_t *out);

#endif
