/* SPDX-License-Identifier: Apache-2.0 */
/** @file races.h
 *
 * Who touched which word of a kernel's memory last, and whether who touches it
 * now comes behind. Words are kept by pages, which a hash finds; each kernel
 * begins with none.
 *
 *     words     0 .. 255     256 .. 511     ...
 *     page      [Word x 256] (not touched)
 */
#ifndef BT_TESTS_SIMT_RACES_H
#define BT_TESTS_SIMT_RACES_H

#include <cstddef>
#include <cstdint>

#include "tests/simt/machine.h"

namespace simt
{

/** The thread that touches a word, and when: how many barriers of its block,
 *  which never come again in a kernel, and of its warp it was at. */
struct Moment {
    uint32_t block;
    uint32_t epoch; /* from 1 */
    uint32_t warp_epoch;
    uint16_t thread;
};

/** A kernel begins. */
void races_begin();

/** What lay there before was another's: nobody has written it. */
void races_forget(const void *p, size_t bytes);

/** Whoever touches them does so too early, while they are to come. */
void races_await(const void *p, size_t bytes, bool to_come);

/** @param number  of the word: its address / 4
 *  @return nullptr: all is well; else what is wrong */
const char *races_touch(const Moment &now, uintptr_t number, Access access,
                        Space space);

} // namespace simt

#endif
