/* SPDX-License-Identifier: Apache-2.0 */
/** @file unicode.h
 *
 * Character properties that patterns refer to (\p{Lu}, \s, \w, \p{Han}), as
 * runs of code points with equal properties.
 *
 * Source: make_unicode_props.py.
 */
#ifndef BT_COMMON_BASE_UNICODE_H
#define BT_COMMON_BASE_UNICODE_H

#include <stdint.h>

/** General category in bits 0 … 4, as numbered here. */
typedef enum bt_unicode_category {
    BT_UNICODE_CN,
    BT_UNICODE_LU,
    BT_UNICODE_LL,
    BT_UNICODE_LT,
    BT_UNICODE_LM,
    BT_UNICODE_LO,
    BT_UNICODE_MN,
    BT_UNICODE_MC,
    BT_UNICODE_ME,
    BT_UNICODE_ND,
    BT_UNICODE_NL,
    BT_UNICODE_NO,
    BT_UNICODE_PC,
    BT_UNICODE_PD,
    BT_UNICODE_PS,
    BT_UNICODE_PE,
    BT_UNICODE_PI,
    BT_UNICODE_PF,
    BT_UNICODE_PO,
    BT_UNICODE_SM,
    BT_UNICODE_SC,
    BT_UNICODE_SK,
    BT_UNICODE_SO,
    BT_UNICODE_ZS,
    BT_UNICODE_ZL,
    BT_UNICODE_ZP,
    BT_UNICODE_CC,
    BT_UNICODE_CF,
    BT_UNICODE_CO,
    BT_UNICODE_CS,
    /* In bt_unicode_merged alone: even code points are LU and odd ones LL, or
     * the other way round. */
    BT_UNICODE_LU_LL,
    BT_UNICODE_LL_LU,
} bt_unicode_category_t;

typedef enum bt_unicode_prop {
    BT_UNICODE_IS_SPACE = 0x20,
    BT_UNICODE_IS_WORD = 0x40,
    BT_UNICODE_IS_HAN = 0x80,
    /** Letters, marks and digits next to which a single-word token does not
     *  match: those of another engine than that of \w, with few differences.
     *  The library's Whitespace takes these for words, too. */
    BT_UNICODE_IS_BESIDE = 0x100,
    /** Properties for two steps of the library, which use tables of other
     *  Unicode versions than patterns do. */
    BT_UNICODE_IS_PUNCTUATION = 0x200,
    BT_UNICODE_IS_ACCENT = 0x400,
} bt_unicode_prop_t;

#define BT_UNICODE_RUN_BITS  11u
#define BT_UNICODE_RUN_PROPS ((1u << BT_UNICODE_RUN_BITS) - 1)
#define BT_UNICODE_CATEGORY  31u /**< mask of the general category */

/** Runs of all code points, in ascending order: the first code point <<
 *  BT_UNICODE_RUN_BITS | the bt_unicode_prop_t bits of all up to the next
 *  run. Upper and lower case by turns are one run. */
extern const uint32_t bt_unicode_n_merged;
extern const uint32_t bt_unicode_merged[];

/** Finds the run of a list of runs, in ascending order, that a code point is
 *  in: the first code point of each is in the bits from @a shift on.
 *  @return its other bits */
static inline uint32_t bt_unicode_run(const uint32_t *runs, uint32_t n,
                                      unsigned shift, uint32_t cp)
{
    uint32_t low = 0;

    while (n > 1) {
        const uint32_t half = n / 2;

        if (runs[low + half] >> shift <= cp) {
            low += half;
            n -= half;
        } else {
            n = half;
        }
    }
    return runs[low] & (((uint32_t)1 << shift) - 1);
}

/** Returns the bits of a code point in a run of bt_unicode_merged. */
static inline uint32_t bt_unicode_run_props(uint32_t run, uint32_t cp)
{
    const uint32_t category = run & BT_UNICODE_CATEGORY;

    run &= BT_UNICODE_RUN_PROPS;
    return (category < BT_UNICODE_LU_LL)
               ? run
               : run - category + BT_UNICODE_LU + ((cp ^ category) & 1);
}

#endif
