/* SPDX-License-Identifier: Apache-2.0 */
/** @file device_hash.h
 *
 * The checksum of bytes that go from device to device, which the devices make
 * themselves: XXH3, that of all other ways, is a chain over its bytes, and a
 * device has thousands of threads. So this one is a sum, modulo 2^64:
 *
 *     hash(bytes, seed) = sum over i of mix(word i ^ (seed + (i + 1) g))
 *
 * Word i is the bytes 8 i ... 8 i + 7, little-endian, zeros behind the last;
 * how many there are, and whose, is in the seed (bt_kvt_record_seed()). A sum
 * has no order: any thread may take any words. Mixing is a permutation, so one
 * word that differs is always found; of several, one case in 2^64 is not. It is
 * for accidents, as XXH3 is: who may write is proven otherwise (docs/WIRE.md).
 *
 * g and the mix: Steele, Lea, Flood, "Fast splittable pseudorandom number
 * generators" (OOPSLA 2014), with Stafford's variant 13, as in java.util's
 * SplittableRandom.
 *
 * C and CUDA C++ alike. Another formula is another BT_DEVICE_HASH_VERSION,
 * which handles bring along (kernels/copier.h): who has not the same shares
 * nothing.
 */
#ifndef BT_KERNELS_DEVICE_HASH_H
#define BT_KERNELS_DEVICE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/half.h"

#define BT_DEVICE_HASH_VERSION 1u

/** What word @a i adds. */
BT_FORMULA uint64_t bt_device_hash_term(uint64_t word, uint64_t i,
                                        uint64_t seed)
{
    uint64_t x = word ^ (seed + (i + 1) * 0x9e3779b97f4a7c15u);

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

#if !defined(__CUDACC__)

/** The reference: what every device must make of @a n bytes. */
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
