/* SPDX-License-Identifier: Apache-2.0 */
/** @file take_priv.h
 *
 * Inside of the reading of a file: take.c (messages), take_values.c (values,
 * and what becomes of them by their rows of the table).
 */
#ifndef BT_COMMON_REPOSITORY_TAKE_PRIV_H
#define BT_COMMON_REPOSITORY_TAKE_PRIV_H

#include "common/repository/repository.h"

/** One file that is being read. */
typedef struct reading {
    bt_repository_t *repository;
    const bt_pbtxt_t *tree;
    bt_repo_model_t *model;
    const char *name; /**< that the folder has */
    const char *path; /**< of the file */
    char *notes;
    char *why;
} reading_t;

/** Say that @a field cannot be; @return BT_ERR_INVALID_PARAM */
bt_status_t bt_take_refuse(const reading_t *r, const bt_pbtxt_field_t *field,
                           const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/** It is taken and has no effect; once for each field and reason. */
void bt_take_note(const reading_t *r, const char *path, const char *why);

uint32_t bt_take_count(const bt_pbtxt_t *tree, uint32_t first,
                       const char *name);
/** @retval BT_ERR_INVALID_PARAM  It is a single value, said. */
BT_MUST_CHECK bt_status_t bt_take_is_message(const reading_t *r,
                                             const bt_pbtxt_field_t *field);
/** @retval BT_ERR_INVALID_PARAM  It has fields of its own, said. */
BT_MUST_CHECK bt_status_t bt_take_is_value(const reading_t *r,
                                           const bt_pbtxt_field_t *field,
                                           const char *path);
/** @retval BT_ERR_INVALID_PARAM  all of these, said */
BT_MUST_CHECK bt_status_t bt_take_number(const reading_t *r,
                                         const bt_pbtxt_field_t *field,
                                         const char *path, int64_t min,
                                         int64_t max, int64_t *value_p);
BT_MUST_CHECK bt_status_t bt_take_bool(const reading_t *r,
                                       const bt_pbtxt_field_t *field,
                                       const char *path, bool *value_p);
/** The option is to have this value. */
BT_MUST_CHECK bt_status_t bt_take_set_number(const reading_t *r,
                                             const bt_pbtxt_field_t *field,
                                             const char *path,
                                             const char *option, int64_t value);
/** What the value of a parameter with an effect becomes. */
BT_MUST_CHECK bt_status_t bt_take_effect(const reading_t *r,
                                         const bt_repo_field_t *row,
                                         const bt_pbtxt_field_t *field,
                                         const char *path);
/** Does its row allow the value? */
BT_MUST_CHECK bt_status_t bt_take_check_row(const reading_t *r,
                                            const bt_repo_field_t *row,
                                            const bt_pbtxt_field_t *field,
                                            const char *path);
/** @return NULL: there is none, said */
const bt_repo_field_t *bt_take_find_row(const reading_t *r,
                                        const bt_pbtxt_field_t *field,
                                        const char *path);
/** A value that is nothing but left open. @return true: it is to be skipped */
bool bt_take_is_open(const reading_t *r, const bt_pbtxt_field_t *field,
                     const char *path);

/* ---- take_scheduling.c: each a message of the file ---- */

BT_MUST_CHECK bt_status_t bt_take_steps(const reading_t *r,
                                        const bt_pbtxt_field_t *message);
BT_MUST_CHECK bt_status_t bt_take_group(const reading_t *r,
                                        const bt_pbtxt_field_t *message);
BT_MUST_CHECK bt_status_t bt_take_batching(const reading_t *r,
                                           const bt_pbtxt_field_t *message);
BT_MUST_CHECK bt_status_t bt_take_transactions(const reading_t *r,
                                               const bt_pbtxt_field_t *message);
BT_MUST_CHECK bt_status_t bt_take_versions(const reading_t *r,
                                           const bt_pbtxt_field_t *message);

#endif
