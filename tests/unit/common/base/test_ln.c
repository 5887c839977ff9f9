/* SPDX-License-Identifier: Apache-2.0 */
/* The logarithm of log probabilities: right, and of the same bits wherever it
 * is computed. */
#include "common/base/ln.h"

#include <stdint.h>
#include <string.h>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "tests/support/testsupport.h"

static uint64_t bits_of(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* Units in the last place between two numbers of one sign. */
static uint64_t ulps(double a, double b)
{
    const uint64_t x = bits_of(a), y = bits_of(b);

    return (x > y) ? x - y : y - x;
}

/* Numbers of Python's decimal.Decimal(x).ln() at 60 digits, as doubles. */
static void logarithm_is_within_2_units_in_the_last_place(void **state)
{
    static const struct {
        double x, ln;
    } list[] = {
        {0x1.0000000000000p+0, 0x0.0p+0},
        {0x1.0000000000000p+1, 0x1.62e42fefa39efp-1},
        {0x1.8000000000000p+1, 0x1.193ea7aad030bp+0},
        {0x1.4000000000000p+3, 0x1.26bb1bbb55516p+1},
        {0x1.0000000000000p-1, -0x1.62e42fefa39efp-1},
        {0x1.999999999999ap-4, -0x1.26bb1bbb55515p+1},
        {0x1.6a09e667f3bcdp+0, 0x1.62e42fefa39f0p-2},
        {0x1.6a09e667f3bccp-1, -0x1.62e42fefa39f1p-2},
        {0x1.8001000000000p+15, 0x1.59af943c576a1p+3},
        {0x1.f500c00000000p+16, 0x1.786094264b2f5p+3},
        {0x1.7e43c8800759cp+996, 0x1.5963447f87fb5p+9},
        {0x1.56e1fc2f8f359p-997, -0x1.5963447f87fb5p+9},
        {0x1.0000000000001p+0, 0x1.fffffffffffffp-53},
        {0x1.fffffffffffffp-1, -0x1.0000000000000p-53},
        {0x1.d000000000000p+2, 0x1.fb22e98a1c24ep+0},
        {0x1.0000000000000p+18, 0x1.8f40b5ed9812dp+3},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(list); i++) {
        assert_true(ulps(bt_ln(list[i].x), list[i].ln) <= 2);
    }
    assert_true(bt_ln(1.0) == 0.0);
    assert_true(bt_ln(0.0) == -INFINITY);
    assert_true(bt_ln(INFINITY) == INFINITY);
    assert_true(isnan(bt_ln(NAN)));
    assert_true(isnan(bt_ln(-1.0)));
}

/* The number is what one machine computed. glibc's log() gives two others, with
 * and without fused multiply-add instructions. */
static void logarithm_has_the_same_bits_on_every_machine(void **state)
{
    uint64_t hash = 0;

    (void)state;
    for (uint32_t i = 0; i < 200000; i++) {
        const double x = 1.0 + (double)((i * 2654435761u) >> 8) / 4096.0;
        const double ln = bt_ln(x);

        assert_true(ulps(ln, log(x)) <= 2);
        hash = bt_hash64(&ln, sizeof(ln), hash);
    }
    assert_int_equal(hash, 0xa76747d9314ff375u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(logarithm_is_within_2_units_in_the_last_place),
        BT_TEST(logarithm_has_the_same_bits_on_every_machine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
