/* SPDX-License-Identifier: Apache-2.0 */
#include "common/grammar/code_set.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/unicode.h"

void bt_code_set_add(bt_grammar_compiler_t *c, bt_code_set_t *set, uint32_t lo,
                     uint32_t hi)
{
    if (bt_grammar_spend(c, 1) &&
        bt_grammar_grow(c, &set->ranges, &set->cap, set->n + 1,
                        sizeof(*set->ranges))) {
        set->ranges[set->n++] = (bt_code_range_t){.lo = lo, .hi = hi};
    }
}

void bt_code_set_add_all(bt_grammar_compiler_t *c, bt_code_set_t *set,
                         const bt_code_set_t *others)
{
    for (uint32_t i = 0; i < others->n; i++) {
        bt_code_set_add(c, set, others->ranges[i].lo, others->ranges[i].hi);
    }
}

static int compare_ranges(const void *a_ptr, const void *b_ptr)
{
    const bt_code_range_t *a = a_ptr, *b = b_ptr;

    return (a->lo > b->lo) - (a->lo < b->lo);
}

void bt_code_set_normalize(bt_grammar_compiler_t *c, bt_code_set_t *set)
{
    uint32_t n = 0;

    if ((set->n == 0) || !bt_grammar_spend(c, set->n)) {
        return;
    }
    qsort(set->ranges, set->n, sizeof(*set->ranges), compare_ranges);
    for (uint32_t i = 1; i < set->n; i++) {
        const bt_code_range_t range = set->ranges[i];

        if (range.lo > set->ranges[n].hi + 1) {
            set->ranges[++n] = range;
        } else if (range.hi > set->ranges[n].hi) {
            set->ranges[n].hi = range.hi;
        }
    }
    set->n = n + 1;
}

void bt_code_set_negate(bt_grammar_compiler_t *c, bt_code_set_t *set)
{
    bt_code_set_t others = {0};
    uint32_t lo = 0;

    bt_code_set_normalize(c, set);
    for (uint32_t i = 0; i < set->n; i++) {
        if (set->ranges[i].lo > lo) {
            bt_code_set_add(c, &others, lo, set->ranges[i].lo - 1);
        }
        lo = set->ranges[i].hi + 1;
    }
    if (lo <= BT_CODE_POINT_MAX) {
        bt_code_set_add(c, &others, lo, BT_CODE_POINT_MAX);
    }
    *set = others;
}

bool bt_code_set_intersects(const bt_code_set_t *a, const bt_code_set_t *b)
{
    uint32_t i = 0, j = 0;

    while ((i < a->n) && (j < b->n)) {
        if (a->ranges[i].hi < b->ranges[j].lo) {
            i++;
        } else if (b->ranges[j].hi < a->ranges[i].lo) {
            j++;
        } else {
            return true;
        }
    }
    return false;
}

/* ---- properties ---- */

#define BIT(category) ((uint32_t)1 << (BT_UNICODE_##category))
/* Categories first to last, which are numbered one after the other. */
#define BITS(first, last) ((BIT(last) << 1) - BIT(first))

typedef struct category_name {
    const char *name, *long_name;
    uint32_t categories;
} category_name_t;

/* Names and aliases of PropertyValueAliases.txt. */
static const category_name_t category_names[] = {
    {"L", "Letter", BITS(LU, LO)},
    {"LC", "Cased_Letter", BITS(LU, LT)},
    {"Lu", "Uppercase_Letter", BIT(LU)},
    {"Ll", "Lowercase_Letter", BIT(LL)},
    {"Lt", "Titlecase_Letter", BIT(LT)},
    {"Lm", "Modifier_Letter", BIT(LM)},
    {"Lo", "Other_Letter", BIT(LO)},
    {"M", "Mark", BITS(MN, ME)},
    {"Combining_Mark", "Combining_Mark", BITS(MN, ME)},
    {"Mn", "Nonspacing_Mark", BIT(MN)},
    {"Mc", "Spacing_Mark", BIT(MC)},
    {"Me", "Enclosing_Mark", BIT(ME)},
    {"N", "Number", BITS(ND, NO)},
    {"Nd", "Decimal_Number", BIT(ND)},
    {"digit", "digit", BIT(ND)},
    {"Nl", "Letter_Number", BIT(NL)},
    {"No", "Other_Number", BIT(NO)},
    {"P", "Punctuation", BITS(PC, PO)},
    {"punct", "punct", BITS(PC, PO)},
    {"Pc", "Connector_Punctuation", BIT(PC)},
    {"Pd", "Dash_Punctuation", BIT(PD)},
    {"Ps", "Open_Punctuation", BIT(PS)},
    {"Pe", "Close_Punctuation", BIT(PE)},
    {"Pi", "Initial_Punctuation", BIT(PI)},
    {"Pf", "Final_Punctuation", BIT(PF)},
    {"Po", "Other_Punctuation", BIT(PO)},
    {"S", "Symbol", BITS(SM, SO)},
    {"Sm", "Math_Symbol", BIT(SM)},
    {"Sc", "Currency_Symbol", BIT(SC)},
    {"Sk", "Modifier_Symbol", BIT(SK)},
    {"So", "Other_Symbol", BIT(SO)},
    {"Z", "Separator", BITS(ZS, ZP)},
    {"Zs", "Space_Separator", BIT(ZS)},
    {"Zl", "Line_Separator", BIT(ZL)},
    {"Zp", "Paragraph_Separator", BIT(ZP)},
    {"C", "Other", BITS(CC, CS) | BIT(CN)},
    {"Cc", "Control", BIT(CC)},
    {"cntrl", "cntrl", BIT(CC)},
    {"Cf", "Format", BIT(CF)},
    {"Co", "Private_Use", BIT(CO)},
    {"Cs", "Surrogate", BIT(CS)},
    {"Cn", "Unassigned", BIT(CN)},
    {"Any", "Any", BITS(CN, CS)},
    {"Assigned", "Assigned", BITS(LU, CS)},
};

static bool is_name(const char *name, size_t n, const char *other)
{
    return (strlen(other) == n) && (memcmp(name, other, n) == 0);
}

/* Where `name` begins with the name of a property and =, drops these. */
static bool drop_key(const char **name_p, size_t *n_p, const char *key)
{
    const size_t n = strlen(key);

    if ((*n_p <= n) || (memcmp(*name_p, key, n) != 0) ||
        ((*name_p)[n] != '=')) {
        return false;
    }
    *name_p += n + 1;
    *n_p -= n + 1;
    return true;
}

static bool wanted(uint32_t props, uint32_t categories, uint32_t others)
{
    return ((categories >> (props & BT_UNICODE_CATEGORY) & 1) != 0) ||
           ((props & others) != 0);
}

/* Adds the code points of some categories, and those with other bits. */
static void add_props(bt_grammar_compiler_t *c, bt_code_set_t *set,
                      uint32_t categories, uint32_t others)
{
    for (uint32_t i = 0; i < bt_unicode_n_merged; i++) {
        const uint32_t run = bt_unicode_merged[i];
        const uint32_t lo = run >> BT_UNICODE_RUN_BITS;
        const uint32_t end =
            (i + 1 < bt_unicode_n_merged)
                ? bt_unicode_merged[i + 1] >> BT_UNICODE_RUN_BITS
                : BT_CODE_POINT_MAX + 1;
        /* Neighbours of a run by turns differ, all others do not. */
        const bool first =
            wanted(bt_unicode_run_props(run, lo), categories, others);
        const bool second =
            wanted(bt_unicode_run_props(run, lo + 1), categories, others);

        if (first == second) {
            if (first) {
                bt_code_set_add(c, set, lo, end - 1);
            }
            continue;
        }
        for (uint32_t cp = first ? lo : lo + 1; cp < end; cp += 2) {
            bt_code_set_add(c, set, cp, cp);
        }
    }
    bt_grammar_spend(c, bt_unicode_n_merged / 4); /* looked at */
}

static bool add_category(bt_grammar_compiler_t *c, bt_code_set_t *set,
                         const char *name, size_t n)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(category_names); i++) {
        if (is_name(name, n, category_names[i].name) ||
            is_name(name, n, category_names[i].long_name)) {
            add_props(c, set, category_names[i].categories, 0);
            return bt_grammar_ok(c);
        }
    }
    return false;
}

static bool add_script(bt_grammar_compiler_t *c, bt_code_set_t *set,
                       const char *name, size_t n)
{
    if (is_name(name, n, "Han") || is_name(name, n, "Hani")) {
        add_props(c, set, 0, BT_UNICODE_IS_HAN);
        return bt_grammar_ok(c);
    }
    return false;
}

bool bt_code_set_add_property(bt_grammar_compiler_t *c, bt_code_set_t *set,
                              const char *name, size_t n)
{
    if (drop_key(&name, &n, "General_Category") || drop_key(&name, &n, "gc")) {
        return !is_name(name, n, "Any") && !is_name(name, n, "Assigned") &&
               add_category(c, set, name, n);
    }
    if (drop_key(&name, &n, "Script") || drop_key(&name, &n, "sc")) {
        return add_script(c, set, name, n);
    }
    if (is_name(name, n, "ASCII")) {
        bt_code_set_add(c, set, 0, 0x7F);
        return bt_grammar_ok(c);
    }
    if (is_name(name, n, "White_Space") || is_name(name, n, "space")) {
        add_props(c, set, 0, BT_UNICODE_IS_SPACE);
        return bt_grammar_ok(c);
    }
    return add_category(c, set, name, n) || add_script(c, set, name, n);
}

void bt_code_set_add_escape(bt_grammar_compiler_t *c, bt_code_set_t *set,
                            int letter, bool widest)
{
    static const struct {
        int letter;
        const char *beyond[6]; /* properties */
    } sets[] = {{'d', {"Nd"}},
                {'w', {"L", "M", "N", "Pc", "So", "Cf"}},
                {'s', {"White_Space"}}};

    for (size_t i = 0; widest && (i < BT_ARRAY_LEN(sets)); i++) {
        for (size_t k = 0;
             (letter == sets[i].letter) && (k < BT_ARRAY_LEN(sets[i].beyond)) &&
             (sets[i].beyond[k] != NULL);
             k++) {
            (void)bt_code_set_add_property(c, set, sets[i].beyond[k],
                                           strlen(sets[i].beyond[k]));
        }
    }
    if (letter == 's') {
        bt_code_set_add(c, set, '\t', '\r');
        bt_code_set_add(c, set, ' ', ' ');
        if (widest) {
            bt_code_set_add(c, set, 0x1C, 0x1F);
            bt_code_set_add(c, set, 0xFEFF, 0xFEFF);
        }
        return;
    }
    bt_code_set_add(c, set, '0', '9');
    if (letter == 'w') {
        bt_code_set_add(c, set, 'A', 'Z');
        bt_code_set_add(c, set, '_', '_');
        bt_code_set_add(c, set, 'a', 'z');
    }
}
