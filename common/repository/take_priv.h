/* SPDX-License-Identifier: Apache-2.0 */
/** @file take_priv.h
 *
 * Private parts of the parsing of a file: take.c (messages), take_values.c
 * (values, and their effects by their rows of the table).
 */
#ifndef BT_COMMON_REPOSITORY_TAKE_PRIV_H
#define BT_COMMON_REPOSITORY_TAKE_PRIV_H

#include "common/repository/repository.h"

/** Size of the path of a field, such as "input.dims". */
#define BT_TAKE_PATH_BYTES 256

/** State of the file being read. The first error sticks: it ends the reading,
 *  and what was read after it does not count. */
typedef struct reading {
    bt_repository_t *repository;
    const bt_pbtxt_t *tree;
    bt_repo_model_t *model;
    const char *name; /**< name of the folder */
    const char *path; /**< path of the file */
    uint32_t index;   /**< index in bt_repo_names */
    bt_status_t status;
    char *why;
} reading_t;

/** Reports that @a field is invalid, unless an error was reported. */
void bt_take_refuse(reading_t *r, const bt_pbtxt_field_t *field,
                    const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/** Allocates a list with room for each field of this name, and one more.
 *  @return NULL: out of memory; sticks */
void *bt_take_list(reading_t *r, uint32_t first, const char *name, size_t size);
/** @return false: the field is a single value; reported */
bool bt_take_is_message(reading_t *r, const bt_pbtxt_field_t *field);
/** @return false: the field is a message; reported */
bool bt_take_is_value(reading_t *r, const bt_pbtxt_field_t *field,
                      const char *path);
/** Reads a field of a message. @param [out] to  the object that is filled */
typedef void bt_take_field_fn(reading_t *r, const bt_pbtxt_field_t *field,
                              void *to);
/** Reads each field of a message, until one is invalid. */
void bt_take_fields(reading_t *r, const bt_pbtxt_field_t *message,
                    bt_take_field_fn *take, void *to);
/** Reads a number within a range. @return 0: invalid; reported */
int64_t bt_take_number(reading_t *r, const bt_pbtxt_field_t *field,
                       const char *path, int64_t min, int64_t max);
/** @return also false: invalid; reported */
bool bt_take_bool(reading_t *r, const bt_pbtxt_field_t *field,
                  const char *path);
/** Sets an option to a number. */
void bt_take_set_number(reading_t *r, const bt_pbtxt_field_t *field,
                        const char *path, const char *option, int64_t value);
/** Applies the value of a parameter with an effect. */
void bt_take_effect(reading_t *r, const bt_repo_field_t *row,
                    const bt_pbtxt_field_t *field, const char *path);
/** Checks the value against its row. */
void bt_take_check_row(reading_t *r, const bt_repo_field_t *row,
                       const bt_pbtxt_field_t *field, const char *path);
/**
 * Finds the row of a field.
 * @param [in]  prefix  the message's name with a dot, or ""
 * @param [in]  name    name of the field or of the parameter
 * @param [out] path    prefix and name
 * @return NULL: none; reported
 */
const bt_repo_field_t *bt_take_find_row(reading_t *r,
                                        const bt_pbtxt_field_t *field,
                                        const char *prefix, const char *name,
                                        char path[BT_TAKE_PATH_BYTES]);
/** True when a value is only a placeholder that is not filled in, and must
 *  be skipped. */
bool bt_take_is_open(const reading_t *r, const bt_pbtxt_field_t *field,
                     const char *path);

/* ---- take_scheduling.c: each reads a message of the file ---- */

void bt_take_steps(reading_t *r, const bt_pbtxt_field_t *message);
void bt_take_instances(reading_t *r, const bt_pbtxt_field_t *message);
void bt_take_batching(reading_t *r, const bt_pbtxt_field_t *message);
void bt_take_transactions(reading_t *r, const bt_pbtxt_field_t *message);
void bt_take_versions(reading_t *r, const bt_pbtxt_field_t *message);

#endif
