/* SPDX-License-Identifier: Apache-2.0 */
/** @file unicode_props.h
 *
 * What patterns ask of characters (\p{Lu}, \s, \w, \p{Han}), as runs of code
 * points that have the same of all: bt_unicode_runs[i] is the first one <<
 * BT_UNICODE_RUN_BITS | the bt_unicode_prop_t bits of all up to the next run's.
 *
 * Source: make_unicode_props.py.
 */
#ifndef BT_INFERENCE_TOKENIZER_UNICODE_PROPS_H
#define BT_INFERENCE_TOKENIZER_UNICODE_PROPS_H

#include <stdint.h>

/** Bits 0 … 4: the general category, as numbered here. */
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
    /** A token that is to be a word of its own is none beside it: the letters,
     *  marks and digits of another engine than that of \w, so few others. The
     *  library's Whitespace takes the same for words. */
    BT_UNICODE_IS_BESIDE = 0x100,
    /** What two steps of the library take, by tables of other versions of
     *  Unicode than that of patterns. */
    BT_UNICODE_IS_PUNCTUATION = 0x200,
    BT_UNICODE_IS_ACCENT = 0x400,
} bt_unicode_prop_t;

#define BT_UNICODE_RUN_BITS  11u
#define BT_UNICODE_RUN_PROPS ((1u << BT_UNICODE_RUN_BITS) - 1)
extern const uint32_t bt_unicode_n_runs;
extern const uint32_t bt_unicode_runs[];

/** The bits of one character. Cost: a search in the runs. */
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
