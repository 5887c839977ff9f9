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

bt_status_t __real_bt_kvt_memory_hash(const bt_kvt_t *kvt,
                                      const bt_hash_piece_t *pieces,
                                      uint32_t n_pieces, uint64_t seed,
                                      uint64_t *hash_p);
bt_status_t __wrap_bt_kvt_memory_hash(const bt_kvt_t *kvt,
                                      const bt_hash_piece_t *pieces,
                                      uint32_t n_pieces, uint64_t seed,
                                      uint64_t *hash_p);

bt_status_t __wrap_bt_kvt_memory_hash(const bt_kvt_t *kvt,
                                      const bt_hash_piece_t *pieces,
                                      uint32_t n_pieces, uint64_t seed,
                                      uint64_t *hash_p)
{
    for (uint32_t i = 0;
         (kvt != NULL) && (kvt == before_check.receiver) && (i < n_pieces);
         i++) {
        before_check.look(before_check.user,
                          (uint8_t *)(uintptr_t)pieces[i].src, pieces[i].n);
    }
    return __real_bt_kvt_memory_hash(kvt, pieces, n_pieces, seed, hash_p);
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
