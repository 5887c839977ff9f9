/* SPDX-License-Identifier: Apache-2.0 */
/** @file device_hash.h
 *
 * Checksum of bytes that are copied from device to device, computed by the
 * devices themselves. XXH3, used for all other transports, is a sequential
 * chain over its bytes, while a device has thousands of threads. This checksum
 * is a sum modulo 2^64 instead:
 *
 *     hash(bytes, seed) = sum over i of mix(word i ^ (seed + (i + 1) g))
 *
 * Word i is the bytes 8 i ... 8 i + 7, little-endian, zero-padded at the end.
 * The length and the identity of the bytes are in the seed
 * (bt_kvt_record_seed()). A sum has no order, so any thread may process any
 * words. Mixing is a permutation, so one differing word is always detected;
 * several are missed in one case in 2^64. Like XXH3 the checksum detects
 * accidents only: authorisation is proven separately (docs/WIRE.md).
 *
 * g and the mix: Steele, Lea, Flood, "Fast splittable pseudorandom number
 * generators" (OOPSLA 2014), with Stafford's variant 13, as in java.util's
 * SplittableRandom.
 *
 * C and CUDA C++ alike. A change of the formula needs a new
 * BT_DEVICE_HASH_VERSION, which handles carry (kernels/copier.h): peers with
 * different versions share nothing.
 */
#ifndef BT_KERNELS_DEVICE_HASH_H
#define BT_KERNELS_DEVICE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/half.h"

#define BT_DEVICE_HASH_VERSION 1u

/** Returns the term that word @a i adds to the sum. */
BT_FORMULA uint64_t bt_device_hash_term(uint64_t word, uint64_t i,
                                        uint64_t seed)
{
    uint64_t x = word ^ (seed + (i + 1) * 0x9e3779b97f4a7c15u);

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

#if !defined(__CUDACC__)

/** Returns the reference hash of @a n bytes, which every device must match. */
static inline uint64_t bt_device_hash(const void *bytes, size_t n,
                                      uint64_t seed)
{
    const uint8_t *p = (const uint8_t *)bytes;
    uint64_t sum = 0;

    for (size_t at = 0; at < n; at += 8) {
        const size_t here = (n - at < 8) ? n - at : 8;
        uint64_t word = 0;

        for (size_t k = 0; k < here; k++) {
            word |= (uint64_t)p[at + k] << (8 * k);
        }
        sum += bt_device_hash_term(word, at / 8, seed);
    }
    return sum;
}

#endif

#endif
