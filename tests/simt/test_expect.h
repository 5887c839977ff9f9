/* SPDX-License-Identifier: Apache-2.0 */
/** @file test_expect.h
 *
 * What the tests of the machine ask of it. */
#ifndef BT_TESTS_SIMT_TEST_EXPECT_H
#define BT_TESTS_SIMT_TEST_EXPECT_H

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

extern "C" {
#include <cmocka.h>
}

#include "tests/simt/machine.h"

const uint64_t kSeeds = 32;
const unsigned kAll = 0xffffffffu;

/* With each seed, for a fault must not hang on the order. nullptr: none. */
static inline void expect(const char *fault, unsigned blocks, unsigned threads,
                          const std::function<void()> &body)
{
    for (uint64_t seed = 0; seed < kSeeds; seed++) {
        const std::string found =
            simt::run(simt::Grid{blocks, threads, seed}, body);

        if ((fault == nullptr) ? !found.empty()
                               : (found.find(fault) == std::string::npos)) {
            fail_msg("seed %u: \"%s\", not \"%s\"", static_cast<unsigned>(seed),
                     found.c_str(), (fault == nullptr) ? "" : fault);
        }
    }
}

#endif
