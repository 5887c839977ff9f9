/* SPDX-License-Identifier: Apache-2.0 */
/** @file write.h
 *
 * JSON helpers shared by the files of this folder and other writers of the
 * live view.
 */
#ifndef BT_ROUTER_WATCH_WRITE_H
#define BT_ROUTER_WATCH_WRITE_H

#include <stdint.h>

#include "common/base/json.h"

/** Writes milliseconds, with as many decimals as microseconds need. */
void bt_write_ms(bt_json_t *json, const char *key, uint64_t us);
/** Writes milliseconds, or null for 0, which means none. */
void bt_write_some_ms(bt_json_t *json, const char *key, uint64_t us);
/** Writes the id of a request as text; null for 0. */
void bt_write_id(bt_json_t *json, const char *key, uint64_t number);
/** Writes a text; null for "". */
void bt_write_some_text(bt_json_t *json, const char *key, const char *text);

#endif
