/* SPDX-License-Identifier: Apache-2.0 */
/** @file fiber.h
 *
 * Fibers of one scheduler, the stack that calls fiber_go_on(): it goes on with
 * one until that one leaves. A switch is a function that saves the registers
 * that a call keeps, and takes another stack, for x86-64 and AArch64; elsewhere
 * it is POSIX's swapcontext(), with two system calls each.
 */
#ifndef BT_TESTS_SIMT_FIBER_H
#define BT_TESTS_SIMT_FIBER_H

/* With a shadow stack of return addresses a bare switch would trap. */
#if defined(__ELF__) && (defined(__x86_64__) || defined(__aarch64__)) && \
    !(defined(__CET__) && ((__CET__ & 2) != 0)) && !defined(BT_SIMT_UCONTEXT)
#define BT_SIMT_OWN_SWITCH 1
#else
#define BT_SIMT_OWN_SWITCH 0
#include <ucontext.h>
#endif

namespace simt
{

struct Fiber {
    void *stack; /* its lowest byte; nullptr: none yet; kept for the next */
#if BT_SIMT_OWN_SWITCH
    void *top; /* of what is on it, while it does not run */
#else
    ucontext_t context;
#endif
};

/** From the start, when it goes on next; what was on its stack is gone.
 *  @param fiber  all zero, or started before
 *  @param body   does not return, but leaves for good */
void fiber_start(Fiber *fiber, void (*body)());

/** Returns when it leaves. */
void fiber_go_on(Fiber *fiber);

/** Back to the scheduler, by the fiber that runs; returns when it goes on, and
 *  @a for_good never. */
void fiber_leave(bool for_good);

} // namespace simt

#endif
