/* SPDX-License-Identifier: Apache-2.0 */
/** @file space.h
 *
 * Computes the cache namespace (kv_prefix.h) of a client's KV blocks: a client
 * that knows only its own salt must not find, nor detect by timing, what was
 * computed for others.
 *
 *     cluster key ─▶ key of spaces ─▶ BLAKE2b(key, salt) ─▶ 128 bits
 *                                 ├─▶ BLAKE2b(key, tenant, salt)
 *                                 └─▶ BLAKE2b(key, one of these, prompt table)
 *
 * K and V depend on the adapter, too: BLAKE2b(key, that space, adapter).
 *
 * The hash is keyed, so that outsiders can neither choose salts that collide,
 * nor recognize a salt from what a worker shows; the key is derived from the
 * cluster's key, so that all routers of a cluster, also after a restart, map
 * equal salts to equal namespaces.
 *
 * Threads: pure functions.
 * Source:  RFC 7693 (BLAKE2b).
 */
#ifndef BT_ROUTER_FRONTEND_SPACE_H
#define BT_ROUTER_FRONTEND_SPACE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"
#include "common/wire/prompt_table.h"

#define BT_SPACE_KEY_BYTES 32

/** Derives the namespace key.
 *  @param [in]  cluster_key  key_bytes bytes */
void bt_space_key(const uint8_t *cluster_key, size_t key_bytes,
                  uint8_t key[BT_SPACE_KEY_BYTES]);

/** Returns the cache namespace of a tenant, which no other tenant shares,
 *  whatever the salts.
 *  @param [in] tenant  its name
 *  @param [in] salt    NULL: without one */
bt_hash128_t bt_space_of_tenant(const uint8_t key[BT_SPACE_KEY_BYTES],
                                const char *tenant, const char *salt);
/** Returns the cache namespace of a salt; never {0, 0}, the namespace of
 *  requests without a salt. */
bt_hash128_t bt_space_of_salt(const uint8_t key[BT_SPACE_KEY_BYTES],
                              const char *salt);
/** Returns the namespace within @a space of prompts with rows of a table: only
 *  an equal table, with equal extra ids, has the same one.
 *  @param [in] extra_ids  n_extra numbers of the client
 *  @return never {0, 0} */
bt_hash128_t bt_space_of_table(const uint8_t key[BT_SPACE_KEY_BYTES],
                               bt_hash128_t space, const bt_table_rows_t *rows,
                               const uint64_t *extra_ids, uint32_t n_extra);
/** Returns the cache namespace of an adapter's requests within another one,
 *  @a space.
 *  @param [in] adapter  digest of its content */
bt_hash128_t bt_space_of_adapter(const uint8_t key[BT_SPACE_KEY_BYTES],
                                 bt_hash128_t space, bt_hash128_t adapter);

#endif
