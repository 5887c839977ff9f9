/* SPDX-License-Identifier: Apache-2.0 */
/** @file json_scan.h
 *
 * Where an object or a list of JSON ends, byte by byte as it comes, and whether
 * it is one. Nothing is kept of what it says.
 *
 * Threads: one for each object.
 * Source:  RFC 8259. UTF-8 is not looked at.
 */
#ifndef BT_ROUTER_TEXT_JSON_SCAN_H
#define BT_ROUTER_TEXT_JSON_SCAN_H

#include <stdint.h>

#define BT_JSON_SCAN_MAX_DEPTH 64u

typedef enum bt_json_scan_result {
    BT_JSON_SCAN_MORE,
    BT_JSON_SCAN_DONE, /**< the byte was the last one */
    BT_JSON_SCAN_BAD,  /**< it cannot be JSON any more, or is too deep */
} bt_json_scan_result_t;

typedef struct bt_json_scan {
    uint8_t state;
    uint8_t depth;    /**< of objects and lists that are open */
    uint8_t n_hex;    /**< digits that an escape still needs */
    const char *word; /**< what is left of true, false or null */
    uint64_t objects; /**< bit i: level i is an object, else a list */
} bt_json_scan_t;

/** Before the first byte, which is to be a brace or a bracket. */
void bt_json_scan_init(bt_json_scan_t *scan);
/** Not to be called again after DONE or BAD. */
bt_json_scan_result_t bt_json_scan_push(bt_json_scan_t *scan, char c);

#endif
