/* SPDX-License-Identifier: Apache-2.0 */
/** @file keys_file.h
 *
 * The file of --api-keys: who may use the server, and how much of it. A line is
 * a tenant with its limits, or a key with the tenant that it stands for:
 *
 *     # weight and limits; what is not said has the default
 *     tenant acme   weight=4 tokens-per-second=2000 burst-tokens=60000
 *     tenant batch  requests=8 kv-percent=50 priority=0
 *     tenant ops    admin
 *     key acme  blake2b:0f8c…64 digits  made 2026-11-24, for the web shop
 *     key batch sha256:5e88…
 *
 * Keys are not in it, only their hashes: a key is long and random (`./baton key
 * new TENANT` makes one), so nobody finds it from its hash, and no salt is
 * needed. Tenants stand before or behind their keys. Every byte is checked, an
 * error names line and cause, and sizes and counts are bounded.
 *
 * Threads: pure, but for bt_keys_file_read().
 */
#ifndef BT_ROUTER_TENANTS_KEYS_FILE_H
#define BT_ROUTER_TENANTS_KEYS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/crypt/key.h"

#define BT_KEYS_MAX_BYTES    ((size_t)2 << 20) /**< of a file */
#define BT_KEYS_MAX_LINE     1024u
#define BT_KEYS_MAX_TENANTS  1024u
#define BT_KEYS_MAX_KEYS     8192u
#define BT_KEYS_WHY_BYTES    256
#define BT_TENANT_NAME_BYTES 64 /**< with the zero byte */

#define BT_TENANT_MAX_WEIGHT   1000u
#define BT_TENANT_MAX_PRIORITY 24u /**< more levels count for nobody */
#define BT_TENANT_MAX_TTFT_MS  86400000u
#define BT_TENANT_MAX_ITL_MS   3600000u

/** What a tenant may have. */
typedef struct bt_tenant_limits {
    uint32_t weight;       /**< its share beside others, 1 */
    uint32_t rate;         /**< tokens a second; 0: no limit */
    uint32_t burst;        /**< tokens; what rate brings in 60 s */
    uint32_t requests;     /**< under way at once; 0: no limit */
    uint32_t kv_percent;   /**< of the workers' KV blocks, 100 */
    uint32_t max_priority; /**< levels above the default one */
    uint32_t ttft_target_ms, itl_target_ms; /**< 0: those of the model */
    bool admin; /**< may give orders: load models, settings */
} bt_tenant_limits_t;

typedef struct bt_keys_tenant {
    char name[BT_TENANT_NAME_BYTES];
    bt_tenant_limits_t limits;
    uint32_t line;
} bt_keys_tenant_t;

typedef struct bt_keys_entry {
    uint8_t hash[BT_KEY_BYTES];
    bt_key_hash_kind_t kind;
    uint32_t tenant; /**< index */
    uint32_t line;
} bt_keys_entry_t;

/** What a file says. Zero-initialise; free with bt_keys_file_fini(). */
typedef struct bt_keys_file {
    bt_keys_tenant_t *tenants; /**< owned, in the file's order */
    uint32_t n_tenants;
    bt_keys_entry_t *keys; /**< owned, ascending by hash */
    uint32_t n_keys;
} bt_keys_file_t;

/** Those of a tenant of which nothing is said. */
void bt_tenant_limits_init(bt_tenant_limits_t *limits);
/** Letters, digits, `.`, `_` and `-`, at most 63 of them, and no dot first. */
bool bt_tenant_name_is_valid(const char *name, size_t bytes);

/**
 * @param [in]  text    bytes of them; need not end with a zero byte
 * @param [out] file_p  Only on BT_OK.
 * @param [out] why     Otherwise the line and the cause, one phrase; nothing of
 *                      a hash.
 * @retval BT_OK, BT_ERR_BAD_FILE, BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_keys_file_parse(const char *text, size_t bytes,
                                             bt_keys_file_t *file_p,
                                             char why[BT_KEYS_WHY_BYTES]);
/** Read and parse a file. One that everybody may write is refused, for whoever
 *  may, lets himself in.
 *  @param [out] warning  A phrase where others may read it; "" otherwise.
 *  @retval BT_ERR_NOT_FOUND, BT_ERR_IO, BT_ERR_UNAUTHORIZED, BT_ERR_BAD_FILE,
 *          BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_keys_file_read(const char *path,
                                            bt_keys_file_t *file_p,
                                            char warning[BT_KEYS_WHY_BYTES],
                                            char why[BT_KEYS_WHY_BYTES]);
void bt_keys_file_fini(bt_keys_file_t *file);

/** Longest key that anybody can have; a longer one is none. */
#define BT_KEYS_MAX_KEY_BYTES 512u
/** Whose key is this? A hash of each kind, O(log n), the last step in constant
 *  time. @return the tenant's index, or n_tenants: nobody's */
uint32_t bt_keys_file_find(const bt_keys_file_t *file, const char *key,
                           size_t bytes);

#endif
