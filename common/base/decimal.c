/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/decimal.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "common/base/status.h"

/* Upper 192 bits of every 27th power of ten, from 10^-297 on:
 * floor(10^k * 2^(191 - floor(log2(10^k)))). Made by
 * tests/golden/make_decimal_powers.py. */
#define FIRST_POWER (-297)
#define POWER_STEP  27
static const uint64_t powers[][3] = {
    {0xA76C582338ED2621, 0xAF2AF2B80AF6F24E, 0x657C8F4D43323A36},
    {0x873E4F75E2224E68, 0x5A7744A6E804A291, 0xCC35EDDFCF0996D7},
    {0xDA7F5BF590966848, 0xAF39A475506A899E, 0xA30294CC2934E662},
    {0xB080392CC4349DEC, 0xBD8D794D96AACFB3, 0xFE13A5C86AF64418},
    {0x8E938662882AF53E, 0x547EB47B7282EE9C, 0x41B0230E1421487D},
    {0xE65829B3046B0AFA, 0x0CB4A5A3112A5112, 0xA3B561B1CB208396},
    {0xBA121A4650E4DDEB, 0x92F34D62616CE413, 0x21A0183E10583CD3},
    {0x964E858C91BA2655, 0x3A6A07F8D510F86F, 0xE9082F25E9C5E9EC},
    {0xF2D56790AB41C2A2, 0xFAE27299423FB9C3, 0x3695DAD7E8858901},
    {0xC428D05AA4751E4C, 0xAA97E14C3C26B886, 0x96842DC95323F5A8},
    {0x9E74D1B791E07E48, 0x775EA264CF55347D, 0xCA49F1C05120C9C7},
    {0x8000000000000000, 0x0000000000000000, 0x0000000000000000},
    {0xCECB8F27F4200F3A, 0x0000000000000000, 0x0000000000000000},
    {0xA70C3C40A64E6C51, 0x999090B65F67D924, 0x0000000000000000},
    {0x86F0AC99B4E8DAFD, 0x69A028BB3DED71A3, 0xDF9F915627C04E28},
    {0xDA01EE641A708DE9, 0xE80E6F4820CC9495, 0xD74BAAD03BC1D8D3},
    {0xB01AE745B101E9E4, 0x5EC05DCFF72E7F8F, 0xC04C79FFE324301F},
    {0x8E41ADE9FBEBC27D, 0x14588F13BE847307, 0x23BD6A2059C002F5},
    {0xE5D3EF282A242E81, 0x8F1668C8A86DA5FA, 0xF0B5CCF5176ECC7C},
    {0xB9A74A0637CE2EE1, 0x6D953E2BD7173692, 0x88EFB0037AC08BDE},
    {0x95F83D0A1FB69CD9, 0x4ABDAF101564F98E, 0x0D5A4AF7B3A98E47},
    {0xF24A01A73CF2DCCF, 0xBC633B39673C8CEC, 0x3D9C44CD2F36917C},
    {0xC3B8358109E84F07, 0x0A862F80EC4700C8, 0x02606EA01029DC37},
    {0x9E19DB92B4E31BA9, 0x6C07A2C26A8346D1, 0x4944D9F52CD0DEC2},
};

static const uint64_t powers_of_5[POWER_STEP] = {
    1,
    5,
    25,
    125,
    625,
    3125,
    15625,
    78125,
    390625,
    1953125,
    9765625,
    48828125,
    244140625,
    1220703125,
    6103515625,
    30517578125,
    152587890625,
    762939453125,
    3814697265625,
    19073486328125,
    95367431640625,
    476837158203125,
    2384185791015625,
    11920928955078125,
    59604644775390625,
    298023223876953125,
    1490116119384765625,
};

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

/* Upper 128 bits of 10^k: floor(10^k * 2^(127 - floor(log2(10^k)))) + 1, the
 * upper half first. The 192 bits of the table suffice for all of k. */
static void power_of_10(int k, uint64_t power[2])
{
    const uint64_t *base = powers[(k - FIRST_POWER) / POWER_STEP];
    const uint64_t five = powers_of_5[(k - FIRST_POWER) % POWER_STEP];
    const unsigned __int128 low = (unsigned __int128)base[2] * five;
    const unsigned __int128 middle =
        (unsigned __int128)base[1] * five + (uint64_t)(low >> 64);
    const unsigned __int128 high =
        (unsigned __int128)base[0] * five + (uint64_t)(middle >> 64);
    const uint64_t first = (uint64_t)(high >> 64);

    power[0] = (uint64_t)high;
    power[1] = (uint64_t)middle;
    if (first != 0) {
        const int zeros = __builtin_clzll(first); /* at least 3 */

        power[0] = (first << zeros) | (power[0] >> (64 - zeros));
        power[1] = ((uint64_t)high << zeros) | (power[1] >> (64 - zeros));
    }
    power[1]++; /* of no k are these bits all ones */
}

/* The upper part of the product, of which the lowest bit says whether anything
 * was cut off. */
static uint64_t multiply(const uint64_t power[2], uint64_t value)
{
    const unsigned __int128 low = (unsigned __int128)power[1] * value;
    const unsigned __int128 product =
        (unsigned __int128)power[0] * value + (uint64_t)(low >> 64);

    return (uint64_t)(product >> 64) | (((uint64_t)product > 1) ? 1 : 0);
}

/* Interval of c * 2^q. */
static interval_t interval_of(uint64_t c, int q, bool lower_is_closer)
{
    const uint64_t is_odd = c & 1;
    const int k = log10_of_power_of_2(q, lower_is_closer);
    const int h = q + log2_of_power_of_10(-k) + 1;
    uint64_t power[2];

    power_of_10(-k, power);
    return (interval_t){
        .lower = multiply(power, (4 * c - 2 + (lower_is_closer ? 1 : 0)) << h) +
                 is_odd,
        .value = multiply(power, (4 * c) << h),
        .upper = multiply(power, (4 * c + 2) << h) - is_odd,
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

/* @param [in] fraction, exponent  its bits of a finite number
 * @param [in] n_bits              of the fraction
 * @param [in] bias                of the exponent of a whole fraction */
static size_t put_number(bool is_negative, uint64_t fraction, uint32_t exponent,
                         unsigned n_bits, int bias, int min_digits, char *text)
{
    char *at = text;

    if (is_negative) {
        *at++ = '-';
    }
    if ((exponent | fraction) == 0) {
        *at++ = '0';
    } else {
        const uint64_t hidden = (exponent != 0) ? UINT64_C(1) << n_bits : 0;
        const interval_t in = interval_of(
            hidden | fraction, (int)((exponent != 0) ? exponent : 1) - bias,
            (fraction == 0) && (exponent > 1));

        at = put_decimal(at, shortest(in), min_digits);
    }
    *at = '\0';
    return (size_t)(at - text);
}

size_t bt_float_text(float value, char text[BT_DECIMAL_TEXT_BYTES])
{
    uint32_t bits, exponent;

    memcpy(&bits, &value, sizeof(bits));
    exponent = (bits >> FLOAT_FRACTION_BITS) & FLOAT_EXPONENT_MASK;
    BT_ASSERT(exponent != FLOAT_EXPONENT_MASK);
    return put_number(
        (bits >> 31) != 0, bits & ((UINT32_C(1) << FLOAT_FRACTION_BITS) - 1),
        exponent, FLOAT_FRACTION_BITS, FLOAT_BIAS, FLOAT_MIN_DIGITS, text);
}

size_t bt_double_text(double value, char text[BT_DECIMAL_TEXT_BYTES])
{
    uint64_t bits;
    uint32_t exponent;

    memcpy(&bits, &value, sizeof(bits));
    exponent = (uint32_t)(bits >> DOUBLE_FRACTION_BITS) & DOUBLE_EXPONENT_MASK;
    BT_ASSERT(exponent != DOUBLE_EXPONENT_MASK);
    return put_number(
        (bits >> 63) != 0, bits & ((UINT64_C(1) << DOUBLE_FRACTION_BITS) - 1),
        exponent, DOUBLE_FRACTION_BITS, DOUBLE_BIAS, DOUBLE_MIN_DIGITS, text);
}
