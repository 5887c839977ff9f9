/* SPDX-License-Identifier: Apache-2.0 */
/** @file before_check.h
 *
 * Sees bytes that came right before the receiver takes their checksum, where
 * they lie. The linker puts this in front of bt_kvt_memory_hash(): a program
 * that includes it links kvt_before_check_dep.
 */
#ifndef BT_TESTS_KVT_BEFORE_CHECK_H
#define BT_TESTS_KVT_BEFORE_CHECK_H

#include "kvtransfer/kvt_core.h"

static struct {
    const bt_kvt_t *receiver; /* NULL: nobody looks */
    void (*look)(void *user, uint8_t *bytes, size_t n);
    void *user;
} before_check;

bt_status_t __real_bt_kvt_memory_hash(const bt_kvt_t *kvt, const void *bytes,
                                      size_t n, uint64_t seed, const void *next,
                                      uint64_t *hash_p);
bt_status_t __wrap_bt_kvt_memory_hash(const bt_kvt_t *kvt, const void *bytes,
                                      size_t n, uint64_t seed, const void *next,
                                      uint64_t *hash_p);

bt_status_t __wrap_bt_kvt_memory_hash(const bt_kvt_t *kvt, const void *bytes,
                                      size_t n, uint64_t seed, const void *next,
                                      uint64_t *hash_p)
{
    if ((kvt != NULL) && (kvt == before_check.receiver)) {
        before_check.look(before_check.user, (uint8_t *)(uintptr_t)bytes, n);
    }
    return __real_bt_kvt_memory_hash(kvt, bytes, n, seed, next, hash_p);
}

/** @a look at what @a receiver checks from now on; NULL: no more, which is due
 *  before the receiver is closed: another one may get its address. */
static void before_check_set(const bt_kvt_t *receiver,
                             void (*look)(void *user, uint8_t *bytes, size_t n),
                             void *user)
{
    before_check.receiver = receiver;
    before_check.look = look;
    before_check.user = user;
}

#endif
