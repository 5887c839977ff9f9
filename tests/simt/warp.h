/* SPDX-License-Identifier: Apache-2.0 */
/** @file warp.h
 *
 * Instructions that the lanes of a warp carry out together, and those on words
 * that threads share. All lanes of a mask must come to the same one on the same
 * line, with the same mask; what one gets does not order what they do to
 * memory, which sync_warp() alone does (CUDA C++ Programming Guide, "Warp Vote
 * Functions", "Warp Shuffle Functions").
 */
#ifndef BT_TESTS_SIMT_WARP_H
#define BT_TESTS_SIMT_WARP_H

#include "tests/simt/machine.h"

namespace simt
{

/** Each gets what lane @a from % kWarp has brought. */
uint64_t shuffle(unsigned mask, uint64_t brought, unsigned from, int line);

/** Bit i of what each gets: what lane i has brought; 0 of lanes that are not in
 *  the mask. */
unsigned ballot(unsigned mask, bool brought, int line);

/** Where an atomic instruction may be at work: global memory or shared. */
Space space_of(const void *p);

template <typename T>
T shuffle_from(unsigned mask, T value, unsigned from, int line)
{
    uint64_t bits = 0;
    T other;

    static_assert(sizeof(T) <= sizeof(bits), "one register or two");
    std::memcpy(&bits, &value, sizeof(value));
    bits = shuffle(mask, bits, from, line);
    std::memcpy(&other, &bits, sizeof(other));
    return other;
}

template <typename T>
T shuffle_xor(unsigned mask, T value, unsigned lanes, int line)
{
    return shuffle_from(mask, value, (thread_index().x % kWarp) ^ lanes, line);
}

/** @a next of what is there goes there.
 *  @return what was there */
template <typename T, typename Next>
T atomically(T *p, const Next &next, const Place &place)
{
    static_assert((sizeof(T) == 4) || (sizeof(T) == 8), "a word or two");
    touch(p, sizeof(T), Access::kAtomic, space_of(p), place);

    const T before = *p;

    *p = next(before);
    return before;
}

} // namespace simt

#endif
