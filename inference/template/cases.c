/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/template/case_table.h"
#include "inference/template/text.h"
#include "inference/tokenizer/unicode.h"

/* White space and the four information separators. */
bool bt_tmpl_cp_is_space(uint32_t cp)
{
    return (bt_unicode_class(cp) == BT_UNICODE_SPACE) ||
           ((cp >= 0x1C) && (cp <= 0x1F));
}

bool bt_tmpl_cp_is_alpha(uint32_t cp)
{
    return bt_unicode_class(cp) == BT_UNICODE_LETTER;
}

static bool in_ranges(const bt_tmpl_cp_range_t *ranges, unsigned n, uint32_t cp)
{
    unsigned low = 0;
    unsigned high = n;

    while (low < high) {
        const unsigned mid = low + (high - low) / 2;

        if (ranges[mid].last < cp) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return (low < n) && (ranges[low].first <= cp);
}

bool bt_tmpl_cp_is_cased(uint32_t cp)
{
    return in_ranges(bt_tmpl_cp_cased, bt_tmpl_cp_cased_n, cp);
}

bool bt_tmpl_cp_is_decimal(uint32_t cp)
{
    return in_ranges(bt_tmpl_cp_decimal, bt_tmpl_cp_decimal_n, cp);
}

bool bt_tmpl_cp_is_digit(uint32_t cp)
{
    return in_ranges(bt_tmpl_cp_digit, bt_tmpl_cp_digit_n, cp);
}

bool bt_tmpl_cp_is_numeric(uint32_t cp)
{
    return in_ranges(bt_tmpl_cp_numeric, bt_tmpl_cp_numeric_n, cp);
}

static unsigned move_alone(uint32_t cp, bt_tmpl_case_t to, uint32_t out[3])
{
    const bt_tmpl_case_run_t *runs = (to == BT_LOWER)   ? bt_tmpl_case_lower
                                     : (to == BT_UPPER) ? bt_tmpl_case_upper
                                                        : bt_tmpl_case_title;
    const unsigned n = (to == BT_LOWER)   ? bt_tmpl_case_lower_n
                       : (to == BT_UPPER) ? bt_tmpl_case_upper_n
                                          : bt_tmpl_case_title_n;
    unsigned low = 0;
    unsigned high = n;

    while (low < high) {
        const unsigned mid = low + (high - low) / 2;

        if (runs[mid].last < cp) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    /* Two runs of every second character can lie within each other. */
    for (; (low < n) && (runs[low].first <= cp); low++) {
        if ((runs[low].last >= cp) &&
            ((cp - runs[low].first) % runs[low].step == 0)) {
            out[0] = cp + (uint32_t)runs[low].delta;
            return 1;
        }
    }
    out[0] = cp;
    return 1;
}

unsigned bt_tmpl_cp_to_case(uint32_t cp, bt_tmpl_case_t to, uint32_t out[3])
{
    if (cp < 0x80) {
        const bool upper = (cp >= 'A') && (cp <= 'Z');
        const bool lower = (cp >= 'a') && (cp <= 'z');

        out[0] = (upper && (to == BT_LOWER))   ? cp + 0x20
                 : (lower && (to != BT_LOWER)) ? cp - 0x20
                                               : cp;
        return 1;
    }
    for (unsigned i = 0; i < bt_tmpl_case_many_n; i++) {
        const bt_tmpl_case_many_t *many = &bt_tmpl_case_many[i];

        if ((many->cp == cp) && (many->to == (uint32_t)to)) {
            unsigned n = 0;

            while ((n < 3) && (many->made[n] != 0)) {
                out[n] = many->made[n];
                n++;
            }
            return n;
        }
        if (many->cp > cp) {
            break;
        }
    }
    return move_alone(cp, to, out);
}
