/* SPDX-License-Identifier: Apache-2.0 */
/** @file cpu_relax.h
 *
 * Pause instruction for spin loops that wait for another core.
 */
#ifndef BT_COMMON_BASE_CPU_RELAX_H
#define BT_COMMON_BASE_CPU_RELAX_H

/** Lets this core's other hardware thread run, and saves power. */
static inline void bt_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
