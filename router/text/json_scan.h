/* SPDX-License-Identifier: Apache-2.0 */
/** @file json_scan.h
 *
 * Finds the end of a JSON object or array, byte by byte as the text arrives,
 * and checks its syntax. Values are not kept.
 *
 * Threads: one for each object.
 * Source:  RFC 8259. UTF-8 is not checked.
 */
#ifndef BT_ROUTER_TEXT_JSON_SCAN_H
#define BT_ROUTER_TEXT_JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>

#define BT_JSON_SCAN_MAX_DEPTH 64u

typedef enum bt_json_scan_result {
    BT_JSON_SCAN_MORE,
    BT_JSON_SCAN_DONE, /**< the byte was the last one */
    BT_JSON_SCAN_BAD,  /**< invalid JSON, or nested too deeply */
} bt_json_scan_result_t;

typedef struct bt_json_scan {
    uint8_t state;
    uint8_t depth;    /**< open objects and arrays */
    uint8_t n_hex;    /**< hex digits that an escape still needs */
    const char *word; /**< rest of true, false or null */
    uint64_t objects; /**< bit i: level i is an object, else an array */
} bt_json_scan_t;

/** Initialises a scan. The first byte must be a brace or a bracket. */
void bt_json_scan_init(bt_json_scan_t *scan);
/** Processes one byte. Must not be called after DONE or BAD. */
bt_json_scan_result_t bt_json_scan_push(bt_json_scan_t *scan, char c);

/** True for the white space of JSON. */
bool bt_json_is_space(char c);

#endif
