/* SPDX-License-Identifier: Apache-2.0 */
/** @file thread.h  How the kernel shares a core between our threads. */
#ifndef BT_COMMON_BASE_THREAD_H
#define BT_COMMON_BASE_THREAD_H

/** This thread, and those it makes from now on, wait much and work briefly:
 *  when there is something for them they want a core at once, also where
 *  another thread computes. Needs no privilege. Linux 6.12 and later do it
 *  (EEVDF with a slice of its own), earlier ones ignore it; so do we. */
void bt_thread_works_briefly(void);

/** This thread computes for long: the usual slice again. */
void bt_thread_works_long(void);

#endif
