/* SPDX-License-Identifier: Apache-2.0 */
/** @file assert.h
 *
 * Assertions of our own invariants, never of outside input.
 */
#ifndef BT_COMMON_BASE_ASSERT_H
#define BT_COMMON_BASE_ASSERT_H

_Noreturn void bt_assert_fail(const char *expr, const char *file, int line);

/** Assertion that stays in release builds: only where continuing would leak
 *  or corrupt another tenant's data. */
#define BT_ASSERT_ALWAYS(expr) \
    ((expr) ? (void)0 : bt_assert_fail(#expr, __FILE__, __LINE__))

#ifdef NDEBUG
#define BT_ASSERT(expr) ((void)sizeof((expr) ? 1 : 0))
#else
#define BT_ASSERT(expr) BT_ASSERT_ALWAYS(expr)
#endif

#define BT_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
