/* SPDX-License-Identifier: Apache-2.0 */
/** @file keys.h
 *
 * Keys "ARCHITECTURE.name" of a model file, read and checked, with a reason for
 * the user where a value is refused.
 */
#ifndef BT_INFERENCE_MODEL_ARCH_KEYS_H
#define BT_INFERENCE_MODEL_ARCH_KEYS_H

#include "inference/gguf/gguf.h"

typedef struct bt_keys {
    const bt_gguf_t *gguf;
    const char *prefix; /**< architecture name */
    char *why;
    size_t why_bytes;
} bt_keys_t;

#define BT_KEY_BYTES 96 /* of a whole key */

/** Writes "PREFIX.name".
 *  @param key  buffer of BT_KEY_BYTES
 *  @return key */
const char *bt_key_name(const bt_keys_t *keys, const char *name, char *key);

/** Writes the reason and returns @a status. */
bt_status_t bt_keys_refuse(const bt_keys_t *keys, bt_status_t status,
                           const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

bool bt_keys_have(const bt_keys_t *keys, const char *name);

/** Reads a whole number from @a min to @a max.
 *  @retval BT_ERR_BAD_FILE  Out of range, or missing. */
BT_MUST_CHECK bt_status_t bt_keys_number(const bt_keys_t *keys,
                                         const char *name, uint32_t min,
                                         uint32_t max, uint32_t *value_p);
/** Reads a whole number from @a min to @a max; where there is no such key
 *  *value_p is unchanged. */
BT_MUST_CHECK bt_status_t bt_keys_number_if(const bt_keys_t *keys,
                                            const char *name, uint32_t min,
                                            uint32_t max, uint32_t *value_p);

/** Reads a finite number above 0.
 *  @retval BT_ERR_NOT_FOUND  no such key; no reason is written
 *  @retval BT_ERR_BAD_FILE */
BT_MUST_CHECK bt_status_t bt_keys_positive(const bt_keys_t *keys,
                                           const char *name, float *value_p);
/** Reads a finite number above 0; where there is no such key, or it is 0, which
 *  means unused, *value_p is unchanged. */
BT_MUST_CHECK bt_status_t bt_keys_positive_if(const bt_keys_t *keys,
                                              const char *name, float *value_p);

/** Reads a truth value; where there is no such key *value_p is unchanged. */
BT_MUST_CHECK bt_status_t bt_keys_bool_if(const bt_keys_t *keys,
                                          const char *name, bool *value_p);

bool bt_str_is(bt_gguf_str_t str, const char *text);

#endif
