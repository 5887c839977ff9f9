/* SPDX-License-Identifier: Apache-2.0 */
/** @file space.h
 *
 * In which space (kv_prefix.h) a client's KV blocks are: whoever knows no more
 * than its own salt must not find, nor time, what was computed for others.
 *
 *     cluster key ─▶ key of spaces ─▶ BLAKE2b(key, salt) ─▶ 128 bits
 *                                 └─▶ BLAKE2b(key, tenant, salt)
 *
 * Keyed, so that nobody outside can choose salts that fall together, or tell
 * one from what a worker shows; by the cluster's key, so that all routers of a
 * cluster, today and after a restart, say the same of the same salt.
 *
 * Threads: pure functions.
 * Source:  RFC 7693 (BLAKE2b).
 */
#ifndef BT_ROUTER_FRONTEND_SPACE_H
#define BT_ROUTER_FRONTEND_SPACE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/hash.h"

#define BT_SPACE_KEY_BYTES 32

/** @param [in]  cluster_key  key_bytes of them */
void bt_space_key(const uint8_t *cluster_key, size_t key_bytes,
                  uint8_t key[BT_SPACE_KEY_BYTES]);

/** The same of a tenant, whose spaces are nobody else's, whatever their salts.
 *  @param [in] tenant  its name
 *  @param [in] salt    NULL: without one */
bt_hash128_t bt_space_of_tenant(const uint8_t key[BT_SPACE_KEY_BYTES],
                                const char *tenant, const char *salt);
/** @return never {0, 0}, which is the space of those without a salt */
bt_hash128_t bt_space_of_salt(const uint8_t key[BT_SPACE_KEY_BYTES],
                              const char *salt);

#endif
