/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/philox.h"

#define ROUNDS 10
#define MUL_0  0xD2511F53u
#define MUL_1  0xCD9E8D57u
#define WEYL_0 0x9E3779B9u /* golden ratio */
#define WEYL_1 0xBB67AE85u /* sqrt(3) - 1 */

void bt_philox4x32_10(const uint32_t key[2], uint32_t ctr[4])
{
    uint32_t k0 = key[0];
    uint32_t k1 = key[1];

    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t p0 = (uint64_t)MUL_0 * ctr[0];
        const uint64_t p1 = (uint64_t)MUL_1 * ctr[2];

        ctr[0] = (uint32_t)(p1 >> 32) ^ ctr[1] ^ k0;
        ctr[1] = (uint32_t)p1;
        ctr[2] = (uint32_t)(p0 >> 32) ^ ctr[3] ^ k1;
        ctr[3] = (uint32_t)p0;
        k0 += WEYL_0;
        k1 += WEYL_1;
    }
}
