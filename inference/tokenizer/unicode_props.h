/* SPDX-License-Identifier: Apache-2.0 */
/** @file unicode_props.h
 *
 * Character properties that patterns refer to (\p{Lu}, \s, \w, \p{Han}), as
 * runs of code points with equal properties: bt_unicode_runs[i] is the first
 * code point << BT_UNICODE_RUN_BITS | the bt_unicode_prop_t bits of all up to
 * the next run.
 *
 * Source: make_unicode_props.py.
 */
#ifndef BT_INFERENCE_TOKENIZER_UNICODE_PROPS_H
#define BT_INFERENCE_TOKENIZER_UNICODE_PROPS_H

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
    BT_UNICODE_N_CATEGORIES,
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
extern const uint32_t bt_unicode_n_runs;
extern const uint32_t bt_unicode_runs[];

/** Returns the bits of one character. Cost: a binary search in the runs. */
static inline uint32_t bt_unicode_props(uint32_t cp)
{
    uint32_t low = 0;
    uint32_t n = bt_unicode_n_runs;

    while (n > 1) {
        const uint32_t half = n / 2;

        if (bt_unicode_runs[low + half] >> BT_UNICODE_RUN_BITS <= cp) {
            low += half;
            n -= half;
        } else {
            n = half;
        }
    }
    return bt_unicode_runs[low] & BT_UNICODE_RUN_PROPS;
}

#endif
