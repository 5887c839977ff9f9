/* SPDX-License-Identifier: Apache-2.0 */
/** @file philox.h
 *
 * Philox 4x32-10: a counter-based generator, a keyed bijection of 128 bits. C
 * and CUDA C++ alike.
 * Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
 *         1, 2, 3", SC 2011, section 4.3.
 */
#ifndef BT_KERNELS_PHILOX_H
#define BT_KERNELS_PHILOX_H

#include <stdint.h>

#include "kernels/half.h"

#define BT_PHILOX_ROUNDS 10
#define BT_PHILOX_MUL_0  0xD2511F53u
#define BT_PHILOX_MUL_1  0xCD9E8D57u
#define BT_PHILOX_WEYL_0 0x9E3779B9u /* golden ratio */
#define BT_PHILOX_WEYL_1 0xBB67AE85u /* sqrt(3) - 1 */

/** Replaces @a ctr by its image under @a key. */
BT_FORMULA void bt_philox4x32_10(const uint32_t key[2], uint32_t ctr[4])
{
    uint32_t k0 = key[0];
    uint32_t k1 = key[1];

    for (int round = 0; round < BT_PHILOX_ROUNDS; round++) {
        const uint64_t p0 = (uint64_t)BT_PHILOX_MUL_0 * ctr[0];
        const uint64_t p1 = (uint64_t)BT_PHILOX_MUL_1 * ctr[2];

        ctr[0] = (uint32_t)(p1 >> 32) ^ ctr[1] ^ k0;
        ctr[1] = (uint32_t)p1;
        ctr[2] = (uint32_t)(p0 >> 32) ^ ctr[3] ^ k1;
        ctr[3] = (uint32_t)p0;
        k0 += BT_PHILOX_WEYL_0;
        k1 += BT_PHILOX_WEYL_1;
    }
}

#endif
