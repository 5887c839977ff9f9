/* SPDX-License-Identifier: Apache-2.0 */
/** @file async.h
 *
 * Copies from global to shared memory behind a thread's back (cp.async). What
 * is asked for gets into a group when it is committed; bytes come when the
 * thread waits for the group, as late as a device may bring them:
 *
 *     copy_async()  the room is nobody's, and what is to be copied stays
 *     copy_commit()
 *     copy_wait(0)  the room is the thread's
 *     a barrier     it is everybody's
 */
#ifndef BT_TESTS_SIMT_ASYNC_H
#define BT_TESTS_SIMT_ASYNC_H

#include "tests/simt/machine.h"

namespace simt
{

/** @param bytes  4, 8 or 16; both begin at a multiple of it
 *  @param valid  so many are copied, zeros behind them */
void copy_async(void *shared, const void *global, unsigned bytes,
                unsigned valid, const Place &place);

/** What the thread has asked for since the last one is a group. */
void copy_commit();

/** Its groups are there, but for the last @a n. */
void copy_wait(unsigned n);

/* ---- for the machine ---- */

/** A block begins. */
void copies_begin(unsigned threads);

/** A thread has come to its end: it must not leave copies behind. */
void copies_end();

} // namespace simt

#endif
