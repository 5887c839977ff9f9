/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/grammar/json_schema_priv.h"

/* Sets of numbers: automata of decimals in canonical spelling, of which each
 * number has one. */

#define MAX_DIGITS    400u /* of a bound, on either side of the point */
#define MAX_MULTIPLE  1000u
#define MAX_RESIDUES  4096u /* with those of the digits of a fraction */
#define WHOLE_DIGITS  20u   /* most digits before the point */
#define REAL_FRACTION 20u   /* most digits behind it, where any number may be */
#define FEW_NUMBERS   1000u /* of a list */
/* Decimals of so many digits have the order of the doubles that readers make of
 * them. */
#define EXACT_DIGITS 15u

/* ---- all numbers ---- */

/* Adds `[0-9]*` at a state. */
static void add_digits(bt_nfa_t *nfa, uint32_t state)
{
    bt_nfa_edge(nfa, state, '0', '9', state);
}

/* Adds 0 or [1-9][0-9]* between two states. */
static void add_whole(bt_nfa_t *nfa, uint32_t from, uint32_t to)
{
    const uint32_t more = bt_nfa_state(nfa);

    bt_nfa_edge(nfa, from, '0', '0', to);
    bt_nfa_edge(nfa, from, '1', '9', more);
    add_digits(nfa, more);
    bt_nfa_epsilon(nfa, more, to);
}

/* Adds `(\.[0-9]*[1-9])?` between two states. */
static void add_fraction(bt_nfa_t *nfa, uint32_t from, uint32_t to)
{
    const uint32_t digits = bt_nfa_state(nfa);

    bt_nfa_epsilon(nfa, from, to);
    bt_nfa_edge(nfa, from, '.', '.', digits);
    add_digits(nfa, digits);
    bt_nfa_edge(nfa, digits, '1', '9', to);
}

/* Returns magnitudes with or without a minus, but not -0. */
static const bt_dfa_t *with_signs(schema_t *s, const bt_dfa_t *magnitudes)
{
    bt_nfa_t *nfa = bt_nfa_create(s->c);
    const uint32_t start = bt_nfa_state(nfa);
    const uint32_t body = bt_nfa_state(nfa);
    const uint32_t end = bt_nfa_state(nfa);
    static const char *const zero[] = {"-0"};
    static const size_t two[] = {2};

    bt_nfa_epsilon(nfa, start, body);
    bt_nfa_edge(nfa, start, '-', '-', body);
    bt_nfa_include(nfa, body, magnitudes, end);
    return bt_dfa_combine(s->c, BT_DFA_MINUS, bt_nfa_to_dfa(nfa, start, end),
                          bt_dfa_of_texts(s->c, zero, two, 1));
}

/* Returns numbers of 0 and above. */
static const bt_dfa_t *magnitudes(schema_t *s)
{
    if (s->magnitudes == NULL) {
        bt_nfa_t *nfa = bt_nfa_create(s->c);
        const uint32_t start = bt_nfa_state(nfa);
        const uint32_t whole = bt_nfa_state(nfa);
        const uint32_t end = bt_nfa_state(nfa);

        add_whole(nfa, start, whole);
        add_fraction(nfa, whole, end);
        s->magnitudes = bt_nfa_to_dfa(nfa, start, end);
    }
    return s->magnitudes;
}

const bt_dfa_t *schema_decimals(schema_t *s)
{
    if (s->decimals == NULL) {
        s->decimals = with_signs(s, magnitudes(s));
    }
    return s->decimals;
}

const bt_dfa_t *schema_integers(schema_t *s)
{
    if (s->integers == NULL) {
        bt_nfa_t *nfa = bt_nfa_create(s->c);
        const uint32_t start = bt_nfa_state(nfa);
        const uint32_t end = bt_nfa_state(nfa);

        add_whole(nfa, start, end);
        s->integers = with_signs(s, bt_nfa_to_dfa(nfa, start, end));
    }
    return s->integers;
}

/* ---- decimals ---- */

/* Number by its digits: whole.fraction, without zeros in front of the first or
 * behind the second. 0 has no digits, and no sign. */
typedef struct decimal {
    bool is_negative;
    uint8_t digits[2 * MAX_DIGITS]; /* '0' … '9' */
    uint32_t n;                     /* digits, with those of the fraction */
    uint32_t n_whole;               /* of them before the point; may be 0 */
} decimal_t;

static void too_many_digits(schema_t *s, const bt_json_node_t *number)
{
    schema_fail(s, BT_ERR_UNSUPPORTED, number,
                "numbers of more than %u digits are not supported", MAX_DIGITS);
}

/* Reads the digits before an exponent.
 * @param [out] point_p  digits before the point, from the first that counts */
static bool read_digits(schema_t *s, const bt_json_node_t *number,
                        const char **at_p, decimal_t *x, int64_t *point_p)
{
    const char *const end = number->text + number->len;
    const char *at = *at_p;
    bool is_fraction = false;

    for (; (at < end) && (*at != 'e') && (*at != 'E'); at++) {
        if (*at == '.') {
            is_fraction = true;
            continue;
        }
        if ((x->n == 0) && (*at == '0')) {
            *point_p -= is_fraction ? 1 : 0;
            continue;
        }
        if (x->n == MAX_DIGITS) {
            too_many_digits(s, number);
            return false;
        }
        x->digits[x->n++] = (uint8_t)*at;
        *point_p += is_fraction ? 0 : 1;
    }
    *at_p = at;
    return true;
}

/* Reads a number exactly. */
static bool read_decimal(schema_t *s, const bt_json_node_t *number,
                         decimal_t *x)
{
    const char *at = number->text;
    const char *const end = at + number->len;
    int64_t point = 0;
    int64_t exponent = 0;
    bool is_small = false;

    memset(x, 0, sizeof(*x));
    if ((at < end) && (*at == '-')) {
        x->is_negative = true;
        at++;
    }
    if (!read_digits(s, number, &at, x, &point)) {
        return false;
    }
    for (at++; at < end; at++) {
        if ((*at >= '0') && (*at <= '9')) {
            exponent = exponent * 10 + (*at - '0');
            exponent = (exponent < 100000) ? exponent : 100000;
        } else {
            is_small = *at == '-';
        }
    }
    while ((x->n > 0) && (x->digits[x->n - 1] == '0')) {
        x->n--;
    }
    if (x->n == 0) {
        x->is_negative = false;
        return true;
    }
    point += is_small ? -exponent : exponent;
    if ((point > (int64_t)MAX_DIGITS) ||
        ((int64_t)x->n - point > (int64_t)MAX_DIGITS)) {
        too_many_digits(s, number);
        return false;
    }
    if (point < 0) { /* zeros behind the point */
        memmove(x->digits - point, x->digits, x->n);
        memset(x->digits, '0', (size_t)-point);
        x->n += (uint32_t)-point;
        point = 0;
    }
    while (x->n < (uint32_t)point) { /* zeros before it */
        x->digits[x->n++] = '0';
    }
    x->n_whole = (uint32_t)point;
    return true;
}

const char *schema_number_text(schema_t *s, const bt_json_node_t *number,
                               uint32_t *len_p)
{
    decimal_t x;
    char *text = bt_grammar_alloc(s->c, 2 * MAX_DIGITS + 4, 1);
    uint32_t n = 0;

    if ((text == NULL) || !read_decimal(s, number, &x)) {
        return NULL;
    }
    if (x.is_negative) {
        text[n++] = '-';
    }
    if (x.n_whole == 0) {
        text[n++] = '0';
    }
    memcpy(text + n, x.digits, x.n_whole);
    n += x.n_whole;
    if (x.n > x.n_whole) {
        text[n++] = '.';
        memcpy(text + n, x.digits + x.n_whole, x.n - x.n_whole);
        n += x.n - x.n_whole;
    }
    *len_p = n;
    return text;
}

/* ---- bounds ---- */

/* Adds fractions, behind the point, that are above the bound's, or equal to
 * it.
 * @param [in] any  any digits, of which one is not 0, then the end */
static void add_fraction_above(bt_nfa_t *nfa, const decimal_t *x, uint32_t from,
                               uint32_t any, uint32_t end, bool is_exclusive)
{
    for (uint32_t i = x->n_whole; i < x->n; i++) {
        const uint32_t next = bt_nfa_state(nfa);

        if (x->digits[i] < '9') {
            const uint32_t above = bt_nfa_state(nfa);

            bt_nfa_edge(nfa, from, x->digits[i] + 1u, '9', above);
            bt_nfa_epsilon(nfa, above, any);
            bt_nfa_epsilon(nfa, above, end);
        }
        bt_nfa_edge(nfa, from, x->digits[i], x->digits[i], next);
        from = next;
    }
    if (!is_exclusive) {
        bt_nfa_epsilon(nfa, from, end);
    }
    bt_nfa_epsilon(nfa, from, any); /* further digits make it more */
}

/* Returns magnitudes above one, or equal to it. */
static const bt_dfa_t *above(schema_t *s, const decimal_t *x, bool is_exclusive)
{
    bt_nfa_t *nfa = bt_nfa_create(s->c);
    const uint32_t start = bt_nfa_state(nfa);
    const uint32_t end = bt_nfa_state(nfa);
    const uint32_t any = bt_nfa_state(nfa);
    const uint32_t longer = bt_nfa_state(nfa);
    const uint32_t n = (x->n_whole > 0) ? x->n_whole : 1;
    uint32_t *left; /* states with so many digits of the whole part to come */
    uint32_t from = start;
    uint32_t point;

    left = bt_grammar_alloc(s->c, (size_t)n + 1, sizeof(*left));
    if (left == NULL) {
        return NULL;
    }
    add_digits(nfa, any);
    bt_nfa_edge(nfa, any, '1', '9', end);
    for (uint32_t i = 0; i <= n; i++) {
        left[i] = bt_nfa_state(nfa);
        if (i > 0) {
            bt_nfa_edge(nfa, left[i], '0', '9', left[i - 1]);
        }
    }
    add_fraction(nfa, left[0], end);
    bt_nfa_edge(nfa, start, '1', '9', longer); /* more digits are more */
    add_digits(nfa, longer);
    bt_nfa_epsilon(nfa, longer, left[n]);
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t digit = (x->n_whole > 0) ? x->digits[i] : '0';
        const uint32_t next = bt_nfa_state(nfa);

        if (digit < '9') {
            bt_nfa_edge(nfa, from, digit + 1u, '9', left[n - 1 - i]);
        }
        bt_nfa_edge(nfa, from, digit, digit, next);
        from = next;
    }
    if (!is_exclusive && (x->n == x->n_whole)) {
        bt_nfa_epsilon(nfa, from, end);
    }
    point = bt_nfa_state(nfa);
    bt_nfa_edge(nfa, from, '.', '.', point);
    add_fraction_above(nfa, x, point, any, end, is_exclusive);
    return bt_dfa_combine(s->c, BT_DFA_AND, bt_nfa_to_dfa(nfa, start, end),
                          magnitudes(s));
}

/* Returns the negative numbers of some magnitudes, of which none is 0. */
static const bt_dfa_t *negative(schema_t *s, const bt_dfa_t *dfa)
{
    bt_nfa_t *nfa = bt_nfa_create(s->c);
    const uint32_t start = bt_nfa_state(nfa);
    const uint32_t body = bt_nfa_state(nfa);
    const uint32_t end = bt_nfa_state(nfa);

    bt_nfa_edge(nfa, start, '-', '-', body);
    bt_nfa_include(nfa, body, dfa, end);
    return bt_nfa_to_dfa(nfa, start, end);
}

/* Returns numbers above a bound, or equal to it: x > -3 is all but the
 * negative ones of a magnitude of 3 and above. */
static const bt_dfa_t *numbers_above(schema_t *s, const decimal_t *x,
                                     bool is_exclusive)
{
    if (!x->is_negative) {
        return above(s, x, is_exclusive);
    }
    return bt_dfa_combine(s->c, BT_DFA_MINUS, schema_decimals(s),
                          negative(s, above(s, x, !is_exclusive)));
}

const bt_dfa_t *schema_bound(schema_t *s, const bt_json_node_t *number,
                             bool above_it, bool is_exclusive)
{
    decimal_t x;

    if (!bt_json_is_kind(number, BT_JSON_NUMBER)) {
        schema_fail(s, BT_ERR_INVALID_PARAM, number, "must be a number");
        return NULL;
    }
    if (!read_decimal(s, number, &x)) {
        return NULL;
    }
    if (above_it) {
        return numbers_above(s, &x, is_exclusive);
    }
    return bt_dfa_combine(s->c, BT_DFA_MINUS, schema_decimals(s),
                          numbers_above(s, &x, !is_exclusive));
}

/* ---- multiples ---- */

/* Returns multiples of m / 10^n_decimals, by the residue of the digits so far.
 * Row 0 has states of the whole part, row 1 + k those behind the point and k
 * digits. */
static const bt_dfa_t *multiples(schema_t *s, uint32_t m, uint32_t n_decimals)
{
    bt_nfa_t *nfa = bt_nfa_create(s->c);
    const uint32_t start = bt_nfa_state(nfa);
    const uint32_t end = bt_nfa_state(nfa);
    const uint32_t first = end + 1;
    const uint32_t n_rows = (n_decimals > 0) ? n_decimals + 2 : 1;
    uint32_t scale = 1; /* 10^(digits that may follow) */

    for (uint32_t i = 0; (i < m * n_rows) && bt_grammar_ok(s->c); i++) {
        (void)bt_nfa_state(nfa);
    }
    bt_nfa_epsilon(nfa, start, first);
    bt_nfa_edge(nfa, start, '-', '-', first);
    for (uint32_t row = n_rows; row-- > 0;) {
        const uint32_t here = first + row * m;
        const bool is_last = row + 1 == n_rows;

        for (uint32_t r = 0; (r < m) && bt_grammar_ok(s->c); r++) {
            if ((row != 1) && ((uint64_t)r * scale % m == 0)) {
                bt_nfa_epsilon(nfa, here + r, end);
            }
            if ((row == 0) && !is_last) {
                bt_nfa_edge(nfa, here + r, '.', '.', here + m + r);
            }
            for (uint32_t d = 0; (row == 0 || !is_last) && (d <= 9); d++) {
                bt_nfa_edge(nfa, here + r, '0' + d, '0' + d,
                            here + ((row > 0) ? m : 0) + (r * 10 + d) % m);
            }
        }
        if (row > 1) {
            scale = (uint32_t)((uint64_t)scale * 10 % m);
        }
    }
    return bt_dfa_combine(s->c, BT_DFA_AND, bt_nfa_to_dfa(nfa, start, end),
                          schema_decimals(s));
}

const bt_dfa_t *schema_multiples(schema_t *s, const bt_json_node_t *number,
                                 const schema_refusal_t **why_p)
{
    decimal_t x;
    uint32_t m = 0;
    uint32_t n_decimals;

    if (!bt_json_is_kind(number, BT_JSON_NUMBER)) {
        schema_fail(s, BT_ERR_INVALID_PARAM, number, "must be a number");
        return NULL;
    }
    if (!read_decimal(s, number, &x)) {
        return NULL;
    }
    if (x.is_negative || (x.n == 0)) {
        schema_fail(s, BT_ERR_INVALID_PARAM, number, "must be above 0");
        return NULL;
    }
    n_decimals = x.n - x.n_whole;
    for (uint32_t i = 0; (i < x.n) && (m <= MAX_MULTIPLE); i++) {
        m = m * 10 + (x.digits[i] - '0');
    }
    if ((m > MAX_MULTIPLE) || (m * (n_decimals + 2ull) > MAX_RESIDUES)) {
        *why_p = schema_refusal(
            s, number,
            "multiples of a number of which the digits are more than %u are "
            "not supported",
            MAX_MULTIPLE, 0);
        return schema_decimals(s);
    }
    return multiples(s, m, n_decimals);
}

/* ---- expressions ---- */

/* Adds `[1-9][0-9]*` or 0, of at most n digits, and where a point may follow
 * that and digits, at most n + behind of both. */
static void add_short(schema_t *s, bt_nfa_t *nfa, uint32_t from, uint32_t end,
                      uint32_t n, bool has_point, uint32_t behind)
{
    const uint32_t n_behind = has_point ? n + behind : 0;
    uint32_t *left = bt_grammar_alloc(s->c, (size_t)n_behind + 2,
                                      sizeof(*left)); /* digits to come */
    uint32_t zero;

    if (left == NULL) {
        return;
    }
    for (uint32_t i = 0; i <= n_behind; i++) {
        left[i] = bt_nfa_state(nfa);
        bt_nfa_epsilon(nfa, left[i], end);
        if (i > 0) {
            bt_nfa_edge(nfa, left[i], '0', '9', left[i - 1]);
        }
    }
    zero = bt_nfa_state(nfa);
    bt_nfa_edge(nfa, from, '0', '0', zero);
    for (uint32_t i = 1; i <= n; i++) {
        const uint32_t next = bt_nfa_state(nfa);
        const uint32_t more = n_behind - ((behind > 0) ? n : i);

        bt_nfa_edge(nfa, from, (i == 1) ? '1' : '0', '9', next);
        bt_nfa_epsilon(nfa, next, end);
        if (i == 1) {
            bt_nfa_epsilon(nfa, zero, end);
        }
        if (has_point && (more > 0)) {
            const uint32_t point = bt_nfa_state(nfa);

            bt_nfa_edge(nfa, next, '.', '.', point);
            bt_nfa_edge(nfa, point, '0', '9', left[more - 1]);
            if (i == 1) {
                bt_nfa_edge(nfa, zero, '.', '.', point);
            }
        }
        from = next;
    }
}

/* Returns spellings without exponent: at most WHOLE_DIGITS without a point, or
 * EXACT_DIGITS with one. */
static const bt_dfa_t *plain_spellings(schema_t *s)
{
    bt_nfa_t *nfa = bt_nfa_create(s->c);
    const uint32_t start = bt_nfa_state(nfa);
    const uint32_t body = bt_nfa_state(nfa);
    const uint32_t end = bt_nfa_state(nfa);

    bt_nfa_epsilon(nfa, start, body);
    bt_nfa_edge(nfa, start, '-', '-', body);
    add_short(s, nfa, body, end, EXACT_DIGITS, true, 0);
    add_short(s, nfa, body, end, WHOLE_DIGITS, false, 0);
    return bt_nfa_to_dfa(nfa, start, end);
}

/* Returns an expression of any number. Exponents have two digits, so that
 * readers have the number as a double. */
static const bt_expr_t *any_number(schema_t *s)
{
    if (s->real == NULL) {
        bt_nfa_t *nfa = bt_nfa_create(s->c);
        const uint32_t start = bt_nfa_state(nfa);
        const uint32_t body = bt_nfa_state(nfa);
        const uint32_t mantissa = bt_nfa_state(nfa);
        const uint32_t sign = bt_nfa_state(nfa);
        const uint32_t exponent = bt_nfa_state(nfa);
        const uint32_t digit = bt_nfa_state(nfa);
        const uint32_t end = bt_nfa_state(nfa);

        bt_nfa_epsilon(nfa, start, body);
        bt_nfa_edge(nfa, start, '-', '-', body);
        add_short(s, nfa, body, mantissa, WHOLE_DIGITS, true, REAL_FRACTION);
        bt_nfa_epsilon(nfa, mantissa, end);
        bt_nfa_edge(nfa, mantissa, 'e', 'e', sign);
        bt_nfa_edge(nfa, mantissa, 'E', 'E', sign);
        bt_nfa_epsilon(nfa, sign, exponent);
        bt_nfa_edge(nfa, sign, '+', '+', exponent);
        bt_nfa_edge(nfa, sign, '-', '-', exponent);
        bt_nfa_edge(nfa, exponent, '0', '9', digit);
        bt_nfa_epsilon(nfa, digit, end);
        bt_nfa_edge(nfa, digit, '0', '9', end);
        s->real = bt_expr_dfa(s->b, bt_nfa_to_dfa(nfa, start, end));
    }
    return s->real;
}

/* Adds spellings with zeros at the end of a fraction, which whole numbers get
 * where they are not integers. */
static const bt_dfa_t *with_zeros(schema_t *s, const bt_dfa_t *numbers,
                                  const bt_dfa_t *whole, bool has_integers)
{
    bt_nfa_t *nfa = bt_nfa_create(s->c);
    const uint32_t start = bt_nfa_state(nfa);
    const uint32_t behind = bt_nfa_state(nfa);
    const uint32_t point = bt_nfa_state(nfa);
    const uint32_t zeros = bt_nfa_state(nfa);
    const uint32_t end = bt_nfa_state(nfa);

    bt_nfa_include(nfa, start, whole, behind);
    bt_nfa_epsilon(nfa, behind, end);
    if (!has_integers) {
        bt_nfa_edge(nfa, behind, '.', '.', point);
    }
    bt_nfa_edge(nfa, point, '0', '0', zeros);
    bt_nfa_include(
        nfa, start,
        bt_dfa_combine(s->c, BT_DFA_MINUS, numbers, schema_integers(s)), zeros);
    bt_nfa_edge(nfa, zeros, '0', '0', zeros);
    bt_nfa_epsilon(nfa, zeros, end);
    return bt_nfa_to_dfa(nfa, start, end);
}

const bt_expr_t *schema_numbers_expr(schema_t *s, const bt_dfa_t *numbers,
                                     bool has_integers)
{
    const bt_dfa_t *whole;
    const bt_dfa_t *spelled = numbers;
    const bt_dfa_t *some;

    if (!bt_grammar_ok(s->c)) {
        return NULL;
    }
    if (!has_integers && schema_dfa_equal(numbers, schema_decimals(s))) {
        return any_number(s);
    }
    if (schema_count_texts(s, numbers, FEW_NUMBERS) < FEW_NUMBERS) {
        return bt_expr_dfa(s->b, numbers);
    }
    whole = bt_dfa_combine(s->c, BT_DFA_AND, numbers, schema_integers(s));
    if ((whole != NULL) && !schema_dfa_equal(whole, numbers)) {
        spelled = with_zeros(s, numbers, whole, has_integers);
    }
    some = bt_dfa_combine(s->c, BT_DFA_AND, spelled, plain_spellings(s));
    if ((some != NULL) && schema_dfa_is_empty(some)) { /* all are longer */
        some = numbers;
    }
    return bt_expr_dfa(s->b, some);
}
