/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/float_text.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "common/base/assert.h"

/* Bits of a float. */
#define FRACTION_BITS 23
#define HIDDEN_BIT    (UINT32_C(1) << FRACTION_BITS)
#define EXPONENT_MASK 0xFFu
#define EXPONENT_BIAS (127 + FRACTION_BITS)

/* A float uses exponents of ten from MIN_POWER on. */
#define MIN_POWER (-31)

/* For each power of ten k, floor(10^k * 2^(63 - floor(log2(10^k)))) + 1. */
static const uint64_t powers[] = {
    0x81CEB32C4B43FCF5, 0xA2425FF75E14FC32, 0xCAD2F7F5359A3B3F,
    0xFD87B5F28300CA0E, 0x9E74D1B791E07E49, 0xC612062576589DDB,
    0xF79687AED3EEC552, 0x9ABE14CD44753B53, 0xC16D9A0095928A28,
    0xF1C90080BAF72CB2, 0x971DA05074DA7BEF, 0xBCE5086492111AEB,
    0xEC1E4A7DB69561A6, 0x9392EE8E921D5D08, 0xB877AA3236A4B44A,
    0xE69594BEC44DE15C, 0x901D7CF73AB0ACDA, 0xB424DC35095CD810,
    0xE12E13424BB40E14, 0x8CBCCC096F5088CC, 0xAFEBFF0BCB24AAFF,
    0xDBE6FECEBDEDD5BF, 0x89705F4136B4A598, 0xABCC77118461CEFD,
    0xD6BF94D5E57A42BD, 0x8637BD05AF6C69B6, 0xA7C5AC471B478424,
    0xD1B71758E219652C, 0x83126E978D4FDF3C, 0xA3D70A3D70A3D70B,
    0xCCCCCCCCCCCCCCCD, 0x8000000000000001, 0xA000000000000001,
    0xC800000000000001, 0xFA00000000000001, 0x9C40000000000001,
    0xC350000000000001, 0xF424000000000001, 0x9896800000000001,
    0xBEBC200000000001, 0xEE6B280000000001, 0x9502F90000000001,
    0xBA43B74000000001, 0xE8D4A51000000001, 0x9184E72A00000001,
    0xB5E620F480000001, 0xE35FA931A0000001, 0x8E1BC9BF04000001,
    0xB1A2BC2EC5000001, 0xDE0B6B3A76400001, 0x8AC7230489E80001,
    0xAD78EBC5AC620001, 0xD8D726B7177A8001, 0x878678326EAC9001,
    0xA968163F0A57B401, 0xD3C21BCECCEDA101, 0x84595161401484A1,
    0xA56FA5B99019A5C9, 0xCECB8F27F4200F3B, 0x813F3978F8940985,
    0xA18F07D736B90BE6, 0xC9F2C9CD04674EDF, 0xFC6F7C4045812297,
    0x9DC5ADA82B70B59E, 0xC5371912364CE306, 0xF684DF56C3E01BC7,
    0x9A130B963A6C115D, 0xC097CE7BC90715B4, 0xF0BDC21ABB48DB21,
    0x96769950B50D88F5, 0xBC143FA4E250EB32, 0xEB194F8E1AE525FE,
    0x92EFD1B8D0CF37BF, 0xB7ABC627050305AE, 0xE596B7B0C643C71A,
    0x8F7E32CE7BEA5C70, 0xB35DBF821AE4F38C,
};

/* digits * 10^exponent */
typedef struct decimal {
    uint32_t digits;
    int exponent;
} decimal_t;

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

/* The product's upper part, of which the lowest bit says whether anything was
 * cut off. */
static uint32_t round_to_odd(uint64_t power, uint32_t value)
{
    const unsigned __int128 product = (unsigned __int128)power * value;
    const uint32_t upper = (uint32_t)(product >> 64);
    const uint32_t below = (uint32_t)(product >> 32);

    return upper | ((below > 1) ? 1 : 0);
}

static decimal_t shortest(uint32_t fraction, uint32_t exponent)
{
    const bool lower_is_closer = (fraction == 0) && (exponent > 1);
    const uint32_t c = (exponent != 0) ? (HIDDEN_BIT | fraction) : fraction;
    const int q = (int)((exponent != 0) ? exponent : 1) - EXPONENT_BIAS;
    const uint32_t is_odd = c & 1;
    const int k = log10_of_power_of_2(q, lower_is_closer);
    const int h = q + log2_of_power_of_10(-k) + 1;
    const uint64_t power = powers[-k - MIN_POWER];
    const uint32_t lower =
        round_to_odd(power, (4 * c - 2 + (lower_is_closer ? 1 : 0)) << h) +
        is_odd;
    const uint32_t value = round_to_odd(power, (4 * c) << h);
    const uint32_t upper = round_to_odd(power, (4 * c + 2) << h) - is_odd;
    const uint32_t s = value / 4;
    const uint32_t tens = s / 10;
    const bool tens_fit = lower <= 40 * tens;
    const bool next_tens_fit = 40 * tens + 40 <= upper;
    const bool fits = lower <= 4 * s;
    const bool next_fits = 4 * s + 4 <= upper;
    const uint32_t middle = 4 * s + 2;

    if ((s >= 10) && (tens_fit != next_tens_fit)) {
        return (decimal_t){tens + (next_tens_fit ? 1 : 0), k + 1};
    }
    if (fits != next_fits) {
        return (decimal_t){s + (next_fits ? 1 : 0), k};
    }
    return (decimal_t){
        s + (((value > middle) || ((value == middle) && ((s & 1) != 0))) ? 1
                                                                         : 0),
        k};
}

/* @return how many there are, without zeros at their end */
static int split(decimal_t decimal, char digits[10], int *point_p)
{
    char reversed[10] = "";
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
    *at++ = (char)('0' + magnitude / 10);
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

size_t bt_float_text(float value, char text[BT_FLOAT_TEXT_BYTES])
{
    char digits[10] = "";
    char *at = text;
    uint32_t bits;
    int n;
    int point = 0;

    memcpy(&bits, &value, sizeof(bits));
    BT_ASSERT(((bits >> FRACTION_BITS) & EXPONENT_MASK) != EXPONENT_MASK);
    if ((bits >> 31) != 0) {
        *at++ = '-';
    }
    if ((bits << 1) == 0) {
        *at++ = '0';
    } else {
        n = split(shortest(bits & (HIDDEN_BIT - 1),
                           (bits >> FRACTION_BITS) & EXPONENT_MASK),
                  digits, &point);
        at = ((point < -3) || (point > ((n > 6) ? n : 6)))
                 ? put_scientific(at, digits, n, point - 1)
                 : put_plain(at, digits, n, point);
    }
    *at = '\0';
    return (size_t)(at - text);
}
