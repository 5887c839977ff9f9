/* SPDX-License-Identifier: Apache-2.0 */
/** @file keys_file.h
 *
 * Parses the file of --api-keys: the tenants that may use the server, and
 * their limits. A line is a tenant with its limits, or a key with its tenant:
 *
 *     # weight and limits; a missing one has the default
 *     tenant acme   weight=4 tokens-per-second=2000 burst-tokens=60000
 *     tenant batch  requests=8 kv-percent=50 priority=0
 *     tenant ops    admin
 *     key acme  blake2b:0f8c…64 digits  made 2026-11-24, for the web shop
 *     key batch sha256:5e88…
 *
 * The file has hashes of keys, not keys: a key is long and random (`./baton
 * key new TENANT` makes one), so it cannot be found from its hash, and no salt
 * is needed. Tenants may come before or after their keys. Every byte is
 * checked, an error names line and cause, and sizes and counts are bounded.
 *
 * Threads: pure, except for bt_keys_file_read().
 */
#ifndef BT_ROUTER_TENANTS_KEYS_FILE_H
#define BT_ROUTER_TENANTS_KEYS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/crypt/key.h"

#define BT_KEYS_MAX_BYTES    ((size_t)2 << 20) /**< limit per file */
#define BT_KEYS_MAX_LINE     1024u
#define BT_KEYS_MAX_TENANTS  1024u
#define BT_KEYS_MAX_KEYS     8192u
#define BT_KEYS_WHY_BYTES    256
#define BT_TENANT_NAME_BYTES 64 /**< with the zero byte */

#define BT_TENANT_MAX_WEIGHT     1000u
#define BT_TENANT_MAX_PRIORITY   24u     /**< higher levels have no effect */
#define BT_TENANT_MAX_GRAMMAR_MS 600000u /**< ten cores */
#define BT_TENANT_MAX_TTFT_MS    86400000u
#define BT_TENANT_MAX_ITL_MS     3600000u

/** Limits of a tenant. */
typedef struct bt_tenant_limits {
    uint32_t weight;       /**< share relative to other tenants, 1 */
    uint32_t rate;         /**< tokens per second; 0: no limit */
    uint32_t burst;        /**< tokens; default: rate times 60 s */
    uint32_t requests;     /**< concurrent requests; 0: no limit */
    uint32_t grammar_ms;   /**< CPU time per minute to compile grammars; 0: no
                                limit */
    uint32_t kv_percent;   /**< percent of the workers' KV blocks, 100 */
    uint32_t max_priority; /**< levels above the default one */
    uint32_t ttft_target_ms, itl_target_ms; /**< 0: the model's */
    bool admin; /**< may send admin commands: load models, settings */
} bt_tenant_limits_t;

typedef struct bt_keys_tenant {
    char name[BT_TENANT_NAME_BYTES];
    bt_tenant_limits_t limits;
    uint32_t line;
} bt_keys_tenant_t;

typedef struct bt_keys_entry {
    uint8_t hash[BT_KEY_BYTES];
    bt_key_hash_kind_t kind;
    uint32_t tenant; /**< index in tenants */
    uint32_t line;
} bt_keys_entry_t;

/** Content of a file. Zero-initialise; free with bt_keys_file_fini(). */
typedef struct bt_keys_file {
    bt_keys_tenant_t *tenants; /**< owned, in the file's order */
    uint32_t n_tenants;
    bt_keys_entry_t *keys; /**< owned, ascending by hash */
    uint32_t n_keys;
} bt_keys_file_t;

/** Sets the default limits of a tenant. */
void bt_tenant_limits_init(bt_tenant_limits_t *limits);
/** True for a valid tenant name: letters, digits, `.`, `_` and `-`, at most 63
 *  of them, and no dot first. */
bool bt_tenant_name_is_valid(const char *name, size_t bytes);

/**
 * Parses a file's text.
 *
 * @param [in]  text    @a bytes long; need not end with a zero byte
 * @param [out] file_p  Only on BT_OK.
 * @param [out] why     On failure: line and cause, one phrase, without any
 *                      part of a hash.
 * @retval BT_OK, BT_ERR_BAD_FILE, BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_keys_file_parse(const char *text, size_t bytes,
                                             bt_keys_file_t *file_p,
                                             char why[BT_KEYS_WHY_BYTES]);
/** Reads and parses a file. A file that everybody may write is rejected, since
 *  any user could add a key.
 *  @param [out] warning  A phrase when others may read the file; "" otherwise.
 *  @retval BT_ERR_NOT_FOUND, BT_ERR_IO, BT_ERR_UNAUTHORIZED, BT_ERR_BAD_FILE,
 *          BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_keys_file_read(const char *path,
                                            bt_keys_file_t *file_p,
                                            char warning[BT_KEYS_WHY_BYTES],
                                            char why[BT_KEYS_WHY_BYTES]);
void bt_keys_file_fini(bt_keys_file_t *file);

/** Longest key; a longer one is never valid. */
#define BT_KEYS_MAX_KEY_BYTES 512u
/** Finds the tenant of a key. Computes a hash of each kind; O(log n), the last
 *  step in constant time.
 *  @return index of the tenant, or n_tenants: unknown key */
uint32_t bt_keys_file_find(const bt_keys_file_t *file, const char *key,
                           size_t bytes);

#endif
