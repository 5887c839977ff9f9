/* SPDX-License-Identifier: Apache-2.0 */
/** @file fuzz.h  What every fuzz target defines, as libFuzzer wants it. */
#ifndef BT_TESTS_FUZZ_FUZZ_H
#define BT_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/** Feed @a data to the code under test. @return 0 */
__attribute__((visibility("default"))) int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
