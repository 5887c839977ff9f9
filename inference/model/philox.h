/* SPDX-License-Identifier: Apache-2.0 */
/** @file philox.h
 *
 * Philox 4x32-10: a counter-based generator, a keyed bijection of 128 bits.
 * Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
 *         1, 2, 3", SC 2011, section 4.3.
 */
#ifndef BT_INFERENCE_MODEL_PHILOX_H
#define BT_INFERENCE_MODEL_PHILOX_H

#include <stdint.h>

/** Replace @a ctr by its image under @a key. */
void bt_philox4x32_10(const uint32_t key[2], uint32_t ctr[4]);

#endif
