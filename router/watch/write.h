/* SPDX-License-Identifier: Apache-2.0 */
/** @file write.h  What the pages of this folder, and who writes more of them,
 * put into JSON alike. */
#ifndef BT_ROUTER_WATCH_WRITE_H
#define BT_ROUTER_WATCH_WRITE_H

#include <stdint.h>

#include "common/base/json.h"

/** Milliseconds, with as many decimals as microseconds need. */
void bt_write_ms(bt_json_t *json, const char *key, uint64_t us);
/** The same; null for 0, which means: none. */
void bt_write_some_ms(bt_json_t *json, const char *key, uint64_t us);
/** The id of a request, as text; null for 0. */
void bt_write_id(bt_json_t *json, const char *key, uint64_t number);
/** A text; null for "". */
void bt_write_some_text(bt_json_t *json, const char *key, const char *text);

#endif
