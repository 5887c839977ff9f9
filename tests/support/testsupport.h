/* SPDX-License-Identifier: Apache-2.0 */
/** @file testsupport.h  What every unit test includes: cmocka, and a runner
 *  that fails when a test logged a warning or an error it did not announce. */
#ifndef BT_TESTS_SUPPORT_TESTSUPPORT_H
#define BT_TESTS_SUPPORT_TESTSUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/** For cmocka_unit_test_setup_teardown: remember and compare log counts. */
int bt_test_setup(void **state);
int bt_test_teardown(void **state);

/** This test will log @a n lines of warning or error. */
void bt_test_expect_log_lines(unsigned long n);

#define BT_TEST(fn) \
    cmocka_unit_test_setup_teardown(fn, bt_test_setup, bt_test_teardown)

/** Returns the stride of a test through its cases: 1, but @a n under
 *  AddressSanitizer, where a case takes many times as long. With
 *  BATON_TEST_LONG, as `./baton test --long` sets it, all cases run there too.
 */
uint32_t bt_test_stride(uint32_t n);

/** Returns how many random cases a test draws: n with BATON_TEST_LONG, else an
 *  eighth of them. */
uint32_t bt_test_rounds(uint32_t n);

/** Absolute path of a file under the source tree's tests/ (static buffer of
 *  the call; BATON_TESTS_DIR, set by meson). */
const char *bt_test_path(const char *relative);

/** The bytes of a file of lines `name hex` under tests/; fails when there is no
 *  such line or it has more than @a cap bytes. @return bytes */
size_t bt_test_read_hex(const char *relative, const char *name, uint8_t *out,
                        size_t cap);

#endif
