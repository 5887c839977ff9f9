/* SPDX-License-Identifier: Apache-2.0 */
/** @file take_priv.h
 *
 * Private parts of the parsing of a file: take.c (messages), take_values.c
 * (values, and their effects by their rows of the table).
 */
#ifndef BT_COMMON_REPOSITORY_TAKE_PRIV_H
#define BT_COMMON_REPOSITORY_TAKE_PRIV_H

#include "common/repository/repository.h"

/** State of the file being read. */
typedef struct reading {
    bt_repository_t *repository;
    const bt_pbtxt_t *tree;
    bt_repo_model_t *model;
    const char *name; /**< name of the folder */
    const char *path; /**< path of the file */
    uint32_t index;   /**< index in bt_repo_names */
    char *why;
} reading_t;

/** Reports that @a field is invalid; @return BT_ERR_INVALID_PARAM */
bt_status_t bt_take_refuse(const reading_t *r, const bt_pbtxt_field_t *field,
                           const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
uint32_t bt_take_count(const bt_pbtxt_t *tree, uint32_t first,
                       const char *name);
/**
 * Checks that a field is a message.
 * @retval BT_ERR_INVALID_PARAM  A single value; reported.
 */
BT_MUST_CHECK bt_status_t bt_take_is_message(const reading_t *r,
                                             const bt_pbtxt_field_t *field);
/** Reads a field of a message. @param [out] to  the object that is filled */
typedef bt_status_t bt_take_field_fn(const reading_t *r,
                                     const bt_pbtxt_field_t *field, void *to);
/** Reads each field of a message, until one is invalid.
 *  @retval BT_ERR_INVALID_PARAM  also a single value; reported */
BT_MUST_CHECK bt_status_t bt_take_fields(const reading_t *r,
                                         const bt_pbtxt_field_t *message,
                                         bt_take_field_fn *take, void *to);
/**
 * Checks that a field is a single value.
 * @retval BT_ERR_INVALID_PARAM  A message; reported.
 */
BT_MUST_CHECK bt_status_t bt_take_is_value(const reading_t *r,
                                           const bt_pbtxt_field_t *field,
                                           const char *path);
/**
 * Read a number within a range, or a bool.
 * @retval BT_ERR_INVALID_PARAM  invalid; reported
 */
BT_MUST_CHECK bt_status_t bt_take_number(const reading_t *r,
                                         const bt_pbtxt_field_t *field,
                                         const char *path, int64_t min,
                                         int64_t max, int64_t *value_p);
BT_MUST_CHECK bt_status_t bt_take_bool(const reading_t *r,
                                       const bt_pbtxt_field_t *field,
                                       const char *path, bool *value_p);
/** Sets an option to a number. */
BT_MUST_CHECK bt_status_t bt_take_set_number(const reading_t *r,
                                             const bt_pbtxt_field_t *field,
                                             const char *path,
                                             const char *option, int64_t value);
/** Applies the value of a parameter with an effect. */
BT_MUST_CHECK bt_status_t bt_take_effect(const reading_t *r,
                                         const bt_repo_field_t *row,
                                         const bt_pbtxt_field_t *field,
                                         const char *path);
/** Checks the value against its row. */
BT_MUST_CHECK bt_status_t bt_take_check_row(const reading_t *r,
                                            const bt_repo_field_t *row,
                                            const bt_pbtxt_field_t *field,
                                            const char *path);
/** Finds the row of a field. @return NULL: none; reported */
const bt_repo_field_t *bt_take_find_row(const reading_t *r,
                                        const bt_pbtxt_field_t *field,
                                        const char *path);
/** True when a value is only a placeholder that is not filled in, and must
 *  be skipped. */
bool bt_take_is_open(const reading_t *r, const bt_pbtxt_field_t *field,
                     const char *path);

/* ---- take_scheduling.c: each reads a message of the file ---- */

BT_MUST_CHECK bt_status_t bt_take_steps(const reading_t *r,
                                        const bt_pbtxt_field_t *message);
BT_MUST_CHECK bt_status_t bt_take_instances(const reading_t *r,
                                            const bt_pbtxt_field_t *message);
/** @param [in] prefix  "dynamic_batching" */
BT_MUST_CHECK bt_status_t bt_take_batching(const reading_t *r,
                                           const char *prefix,
                                           const bt_pbtxt_field_t *message);
BT_MUST_CHECK bt_status_t bt_take_transactions(const reading_t *r,
                                               const bt_pbtxt_field_t *message);
BT_MUST_CHECK bt_status_t bt_take_versions(const reading_t *r,
                                           const bt_pbtxt_field_t *message);

#endif
