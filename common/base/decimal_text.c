/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/decimal_text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/decimal_powers.h"

#define FLOAT_FRACTION_BITS  23
#define FLOAT_EXPONENT_MASK  0xFFu
#define FLOAT_BIAS           (127 + FLOAT_FRACTION_BITS)
#define FLOAT_MIN_DIGITS     6 /* before an exponent is written */
#define DOUBLE_FRACTION_BITS 52
#define DOUBLE_EXPONENT_MASK 0x7FFu
#define DOUBLE_BIAS          (1023 + DOUBLE_FRACTION_BITS)
#define DOUBLE_MIN_DIGITS    15
#define MAX_DIGITS           20

/* digits * 10^exponent */
typedef struct decimal {
    uint64_t digits;
    int exponent;
} decimal_t;

/* Number and bounds of its rounding interval, all times 4 and 10^-exponent. */
typedef struct interval {
    uint64_t lower, value, upper;
    int exponent;
} interval_t;

/* floor(log10(2^e)), and of 3/4 * 2^e where the lower neighbour is closer. */
static int log10_of_power_of_2(int e, bool lower_is_closer)
{
    return (e * 1262611 - (lower_is_closer ? 524031 : 0)) >> 22;
}

/* floor(log2(10^e)) */
static int log2_of_power_of_10(int e)
{
    return (e * 1741647) >> 19;
}

/* The upper part of the product, of which the lowest bit says whether anything
 * was cut off. */
static uint64_t float_product(int k, uint64_t value)
{
    const unsigned __int128 product =
        (unsigned __int128)bt_float_powers[k - BT_FLOAT_MIN_POWER] * value;
    const uint64_t upper = (uint64_t)(product >> 64);
    const uint32_t below = (uint32_t)(product >> 32);

    return upper | ((below > 1) ? 1 : 0);
}

static uint64_t double_product(int k, uint64_t value)
{
    const uint64_t *power = bt_double_powers[k - BT_DOUBLE_MIN_POWER];
    const unsigned __int128 low = (unsigned __int128)power[1] * value;
    const unsigned __int128 product =
        (unsigned __int128)power[0] * value + (uint64_t)(low >> 64);

    return (uint64_t)(product >> 64) | (((uint64_t)product > 1) ? 1 : 0);
}

/* Of c * 2^q. */
static interval_t interval_of(uint64_t c, int q, bool lower_is_closer,
                              uint64_t (*product)(int k, uint64_t value))
{
    const uint64_t is_odd = c & 1;
    const int k = log10_of_power_of_2(q, lower_is_closer);
    const int h = q + log2_of_power_of_10(-k) + 1;

    return (interval_t){
        .lower =
            product(-k, (4 * c - 2 + (lower_is_closer ? 1 : 0)) << h) + is_odd,
        .value = product(-k, (4 * c) << h),
        .upper = product(-k, (4 * c + 2) << h) - is_odd,
        .exponent = k,
    };
}

/* One digit less where that is enough; else the nearer of the two there are. */
static decimal_t shortest(interval_t in)
{
    const uint64_t s = in.value / 4;
    const uint64_t tens = s / 10;
    const bool tens_fit = in.lower <= 40 * tens;
    const bool next_tens_fit = 40 * tens + 40 <= in.upper;
    const bool fits = in.lower <= 4 * s;
    const bool next_fits = 4 * s + 4 <= in.upper;
    const uint64_t middle = 4 * s + 2;
    bool up;

    if ((s >= 10) && (tens_fit != next_tens_fit)) {
        return (decimal_t){tens + (next_tens_fit ? 1 : 0), in.exponent + 1};
    }
    up = (fits != next_fits)
             ? next_fits
             : (in.value > middle) || ((in.value == middle) && ((s & 1) != 0));
    return (decimal_t){s + (up ? 1 : 0), in.exponent};
}

/* ---- text ---- */

/* @return number of digits, without trailing zeros */
static int split(decimal_t decimal, char digits[MAX_DIGITS], int *point_p)
{
    char reversed[MAX_DIGITS] = "";
    int n = 0;
    int zeros = 0;

    do {
        reversed[n++] = (char)('0' + decimal.digits % 10);
        decimal.digits /= 10;
    } while (decimal.digits > 0);
    while ((zeros < n - 1) && (reversed[zeros] == '0')) {
        zeros++;
    }
    for (int i = 0; i < n - zeros; i++) {
        digits[i] = reversed[n - 1 - i];
    }
    *point_p = n + decimal.exponent; /* digits before the decimal point */
    return n - zeros;
}

static char *put(char *at, const char *digits, int n)
{
    memcpy(at, digits, (size_t)n);
    return at + n;
}

static char *put_zeros(char *at, int n)
{
    memset(at, '0', (size_t)n);
    return at + n;
}

static char *put_scientific(char *at, const char *digits, int n, int exponent)
{
    const unsigned magnitude =
        (unsigned)((exponent < 0) ? -exponent : exponent);

    *at++ = digits[0];
    if (n > 1) {
        *at++ = '.';
        at = put(at, digits + 1, n - 1);
    }
    *at++ = 'e';
    *at++ = (exponent < 0) ? '-' : '+';
    if (magnitude >= 100) {
        *at++ = (char)('0' + magnitude / 100);
    }
    *at++ = (char)('0' + magnitude / 10 % 10);
    *at++ = (char)('0' + magnitude % 10);
    return at;
}

static char *put_plain(char *at, const char *digits, int n, int point)
{
    if (point <= 0) {
        *at++ = '0';
        *at++ = '.';
        at = put_zeros(at, -point);
        return put(at, digits, n);
    }
    if (point >= n) {
        at = put(at, digits, n);
        return put_zeros(at, point - n);
    }
    at = put(at, digits, point);
    *at++ = '.';
    return put(at, digits + point, n - point);
}

static char *put_decimal(char *at, decimal_t decimal, int min_digits)
{
    char digits[MAX_DIGITS] = "";
    int point = 0;
    const int n = split(decimal, digits, &point);

    return ((point < -3) || (point > ((n > min_digits) ? n : min_digits)))
               ? put_scientific(at, digits, n, point - 1)
               : put_plain(at, digits, n, point);
}

size_t bt_float_text(float value, char text[BT_DECIMAL_TEXT_BYTES])
{
    const uint32_t hidden = UINT32_C(1) << FLOAT_FRACTION_BITS;
    uint32_t bits, fraction, exponent;
    char *at = text;

    memcpy(&bits, &value, sizeof(bits));
    fraction = bits & (hidden - 1);
    exponent = (bits >> FLOAT_FRACTION_BITS) & FLOAT_EXPONENT_MASK;
    BT_ASSERT(exponent != FLOAT_EXPONENT_MASK);
    if ((bits >> 31) != 0) {
        *at++ = '-';
    }
    if ((exponent | fraction) == 0) {
        *at++ = '0';
    } else {
        const interval_t in =
            interval_of((exponent != 0) ? (hidden | fraction) : fraction,
                        (int)((exponent != 0) ? exponent : 1) - FLOAT_BIAS,
                        (fraction == 0) && (exponent > 1), float_product);

        at = put_decimal(at, shortest(in), FLOAT_MIN_DIGITS);
    }
    *at = '\0';
    return (size_t)(at - text);
}

size_t bt_double_text(double value, char text[BT_DECIMAL_TEXT_BYTES])
{
    const uint64_t hidden = UINT64_C(1) << DOUBLE_FRACTION_BITS;
    uint64_t bits, fraction;
    uint32_t exponent;
    char *at = text;

    memcpy(&bits, &value, sizeof(bits));
    fraction = bits & (hidden - 1);
    exponent = (uint32_t)(bits >> DOUBLE_FRACTION_BITS) & DOUBLE_EXPONENT_MASK;
    BT_ASSERT(exponent != DOUBLE_EXPONENT_MASK);
    if ((bits >> 63) != 0) {
        *at++ = '-';
    }
    if ((exponent | fraction) == 0) {
        *at++ = '0';
    } else {
        const interval_t in =
            interval_of((exponent != 0) ? (hidden | fraction) : fraction,
                        (int)((exponent != 0) ? exponent : 1) - DOUBLE_BIAS,
                        (fraction == 0) && (exponent > 1), double_product);

        at = put_decimal(at, shortest(in), DOUBLE_MIN_DIGITS);
    }
    *at = '\0';
    return (size_t)(at - text);
}
