/* SPDX-License-Identifier: Apache-2.0 */
/** @file ln.h
 *
 * Natural logarithm with the same bits on every machine. The last bit of the C
 * library's log() depends on the library's version and on the instructions of
 * the machine; log probabilities must not (I1).
 *
 * The compiler must not contract products and sums (-ffp-contract=off).
 */
#ifndef BT_COMMON_BASE_LN_H
#define BT_COMMON_BASE_LN_H

#include <math.h>

/** Returns ln m for sqrt(1/2) <= m <= sqrt(2): twice the series of artanh s,
 *  with s = (m - 1) / (m + 1), |s| < 0.172, so 12 terms leave less than
 *  2^-60. */
static inline double bt_ln_near_one(double m)
{
    const double s = (m - 1.0) / (m + 1.0);
    const double square = s * s;
    double sum = 0.0;

    for (int k = 23; k >= 1; k -= 2) {
        sum = sum * square + 1.0 / k;
    }
    return 2.0 * s * sum;
}

/** Returns ln x within 2 units in the last place; what log() returns for 0,
 *  negative numbers, infinity and NaN. */
static inline double bt_ln(double x)
{
    int exponent = 0;
    double m;

    if (!(x > 0.0) || isinf(x)) {
        return log(x); /* exact in every library */
    }
    m = frexp(x, &exponent);        /* exact */
    if (m < 0x1.6a09e667f3bcdp-1) { /* sqrt(1/2) */
        m *= 2.0;
        exponent--;
    }
    /* ln 2 in two parts; the first has trailing zeros: its product is exact. */
    return exponent * 0x1.62e42fefa0000p-1 +
           (exponent * 0x1.cf79abc9e3b39p-40 + bt_ln_near_one(m));
}

#endif
