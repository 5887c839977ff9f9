/* SPDX-License-Identifier: Apache-2.0 */
/** @file settings.h
 *
 * Reads and checks values of config.json, and writes the keys "ARCH.name" that
 * they become. For the files of inference/hf that read settings: config.c,
 * rope.c.
 */
#ifndef BT_INFERENCE_HF_SETTINGS_H
#define BT_INFERENCE_HF_SETTINGS_H

#include "inference/hf/hf_priv.h"

#define BT_HF_KEY_BYTES 128 /* size of a whole key */

/** Returns @a node; NULL if it is JSON null or missing. */
const bt_json_node_t *bt_hf_not_null(const bt_json_node_t *node);

/** Returns the setting of one name of bt_hf_config(), of @a len bytes, fewer
 *  than BT_HF_KEY_BYTES. */
const bt_json_node_t *bt_hf_setting(const bt_hf_t *hf, const char *name,
                                    size_t len);

/** Reports that @a node, the first of @a names, is not a valid number.
 *  @return BT_ERR_BAD_FILE */
bt_status_t bt_hf_bad_number(const bt_hf_t *hf, const char *names,
                             const bt_json_node_t *node);

/** Reads a whole number of @a min to @a max; missing: @a otherwise, unless that
 *  is NULL.
 *  @retval BT_ERR_BAD_FILE */
BT_MUST_CHECK bt_status_t bt_hf_count(const bt_hf_t *hf, const char *names,
                                      uint32_t min, uint32_t max,
                                      const uint32_t *otherwise,
                                      uint32_t *value_p);
/** Reads a finite number; missing: @a otherwise.
 *  @retval BT_ERR_BAD_FILE */
BT_MUST_CHECK bt_status_t bt_hf_float(const bt_hf_t *hf, const char *names,
                                      float otherwise, float *value_p);

/** Writes "ARCH.key". */
void bt_hf_key_name(const bt_hf_t *hf, const char *key,
                    char text[BT_HF_KEY_BYTES]);
void bt_hf_put_u32(bt_hf_t *hf, const char *key, uint32_t value);
void bt_hf_put_f32(bt_hf_t *hf, const char *key, float value);
void bt_hf_put_str(bt_hf_t *hf, const char *key, const char *value);

/** Writes the keys of RoPE.
 *  @retval BT_ERR_UNSUPPORTED  an unknown type
 *  @retval BT_ERR_BAD_FILE */
BT_MUST_CHECK bt_status_t bt_hf_put_rope(bt_hf_t *hf);

#endif
