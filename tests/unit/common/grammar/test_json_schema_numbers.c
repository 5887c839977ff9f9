/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "tests/support/schema_texts.h"
#include "tests/support/testsupport.h"

static void
integers_have_no_fraction_no_zeros_in_front_and_no_minus_zero(void **state)
{
    (void)state;
    HAS("{'type':'integer'}", "0", "7", "-7", "10", "99999999999999999999",
        NULL, "-0", "01", "1.0", "1e3", "+1", "-", "", "--1",
        "100000000000000000000");
}

/* Draft 4, 3.5: an integer is "a JSON number without a fraction or exponent
 * part". */
static void integers_beside_other_numbers_have_no_fraction(void **state)
{
    (void)state;
    HAS("{'anyOf':[{'type':'integer'},{'minimum':2}]}", "0", "-7", "2", "2.5",
        "2.50", "30", NULL, "0.0", "0.000", "-7.0", "1.5", "1e1");
    HAS("{'oneOf':[{'type':'integer','maximum':1},{'type':'number','minimum':2}"
        "]}",
        "0", "2", "2.5", NULL, "0.0", "1.5", "0e1");
    HAS("{'anyOf':[{'type':'integer'},{'type':'number','not':{'multipleOf':1}}]"
        "}",
        "0", "1", "1.5", "1.50", NULL, "1.0", "1e0", "1.");
    HAS("{'if':{'type':'integer'},'then':{'minimum':5},'else':true}", "5",
        "null", "1.5", NULL, "4", "4.0", "5.0");
    /* Where a schema of numbers takes them all, they may have one. */
    HAS("{'anyOf':[{'type':'integer'},{'type':'number'}]}", "1", "1.0", "1e1",
        NULL, "01");
    HAS("{'type':['number','integer']}", "1", "1.0", "1e1", NULL, "01");
    HAS("{'type':['integer','number'],'minimum':1}", "1", "1.0", NULL, "0.0");
    HAS("{'anyOf':[{'type':'integer','minimum':7},{'minimum':5}]}", "5", "7.0",
        NULL, "4.0");
}

static void numbers_have_fractions_and_exponents_of_two_digits(void **state)
{
    (void)state;
    HAS("{'type':'number'}", "0", "-0", "-0.50", "12.25", "1e5", "1E+05",
        "-1.5e-10", NULL, "1.", ".5", "1e", "1e100", "01.5", "1.e5", "0x1");
}

static void bounds_are_exact_on_both_sides_of_zero(void **state)
{
    (void)state;
    HAS("{'type':'integer','minimum':-12,'maximum':105}", "-12", "-11", "-9",
        "-1", "0", "9", "10", "99", "100", "105", NULL, "-13", "-20", "-100",
        "106", "110", "200", "1000", "-0");
    HAS("{'type':'integer','exclusiveMinimum':-3,'exclusiveMaximum':3}", "-2",
        "0", "2", NULL, "-3", "3", "-4", "4");
    HAS("{'type':'number','minimum':0.25,'maximum':1.5}", "0.25", "0.250",
        "0.26", "0.3", "1", "1.0", "1.49", "1.5", "1.50", NULL, "0.24", "0.2",
        "0", "-0.3", "1.51", "1.500001", "2", "10");
    HAS("{'type':'number','exclusiveMinimum':0.25,'exclusiveMaximum':1.5}",
        "0.251", "0.3", "1.4999", NULL, "0.25", "0.250", "1.5", "1.50", "1.6");
    HAS("{'type':'number','maximum':-0.5}", "-0.5", "-0.50", "-0.51", "-1",
        "-10.25", NULL, "-0.49", "-0", "0", "0.5", "-0.499");
    HAS("{'type':'number','minimum':-0.5,'exclusiveMaximum':0}", "-0.5", "-0.1",
        "-0.01", NULL, "0", "-0", "-0.51", "0.0", "-0.0");
}

static void bounds_may_be_written_in_any_way(void **state)
{
    (void)state;
    HAS("{'type':'integer','minimum':1e1,'maximum':1.20e1}", "10", "11", "12",
        NULL, "9", "13", "1");
    HAS("{'type':'integer','exclusiveMinimum':9.5,'maximum':1050e-2}", "10",
        NULL, "9", "11");
    HAS("{'type':'integer','minimum':-0.0,'maximum':0}", "0", NULL, "-0", "1",
        "-1");
}

static void draft_4_has_exclusive_bounds_as_booleans(void **state)
{
    (void)state;
    HAS("{'type':'integer','minimum':3,'exclusiveMinimum':true,'maximum':5}",
        "4", "5", NULL, "3", "6");
    HAS("{'type':'integer','minimum':3,'exclusiveMinimum':false,'maximum':5}",
        "3", "5", NULL, "2");
}

static void multiples_are_told_by_their_residue(void **state)
{
    (void)state;
    HAS("{'type':'integer','multipleOf':7}", "0", "7", "-14", "70", "343",
        "1001", NULL, "1", "8", "15", "-6", "1000", "00");
    HAS("{'type':'integer','multipleOf':12,'minimum':100,'maximum':140}", "108",
        "120", "132", NULL, "96", "144", "110", "100");
    HAS("{'type':'number','multipleOf':0.01}", "0", "1", "1.5", "1.50", "-0.25",
        "12.34", NULL, "0.001", "1.234", "0.005");
    HAS("{'type':'number','multipleOf':2.5}", "2.5", "5", "7.5", "-10", "12.50",
        NULL, "2", "2.4", "1", "2.55");
    HAS("{'type':'integer','multipleOf':0.5}", "3", "4", NULL, "0.5", "1.5");
    HAS("{'multipleOf':1000}", "1000", "-3000", "0", "true", NULL, "100",
        "1500", "1001");
}

static void multiples_of_too_much_are_refused_by_name(void **state)
{
    (void)state;
    REFUSED("{'multipleOf':1001}", "/multipleOf: multiples of");
    REFUSED("{'multipleOf':0.123456789}", "/multipleOf: multiples of");
    HAS("{'type':'string','multipleOf':1001,'maxLength':1}", "'a'", NULL,
        "1001");
    WRONG("{'multipleOf':0}", "/multipleOf: must be above 0");
    WRONG("{'multipleOf':'2'}", "/multipleOf: must be a number");
}

static void values_are_equal_by_their_number(void **state)
{
    (void)state;
    HAS("{'enum':[1.0,2e1,-0.0,0.50]}", "1", "20", "0", "0.5", NULL, "1.0",
        "-0", "2e1", "0.50");
    HAS("{'const':-1.250}", "-1.25", NULL, "-1.250", "1.25");
}

static void
numbers_beyond_the_digits_are_written_if_nothing_else_is(void **state)
{
    (void)state;
    HAS("{'type':'integer','minimum':1e30}", "1000000000000000000000000000000",
        NULL, "999999999999999999999999999999", "1");
    HAS("{'const':1e25}", "10000000000000000000000000", NULL, "1e25", "1");
    REFUSED("{'minimum':1e999}", "/minimum: numbers of more than");
    REFUSED("{'minimum':1e-999}", "/minimum: numbers of more than");
    WRONG("{'minimum':'1'}", "/minimum: must be a number");
}

/* With more than 15 digits it might be rounded to the bound. */
static void a_double_of_a_fraction_has_the_order_of_its_digits(void **state)
{
    (void)state;
    HAS("{'type':'number','exclusiveMaximum':1}", "0.99999999999999", NULL,
        "0.99999999999999999");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(integers_have_no_fraction_no_zeros_in_front_and_no_minus_zero),
        BT_TEST(integers_beside_other_numbers_have_no_fraction),
        BT_TEST(numbers_have_fractions_and_exponents_of_two_digits),
        BT_TEST(bounds_are_exact_on_both_sides_of_zero),
        BT_TEST(bounds_may_be_written_in_any_way),
        BT_TEST(draft_4_has_exclusive_bounds_as_booleans),
        BT_TEST(multiples_are_told_by_their_residue),
        BT_TEST(multiples_of_too_much_are_refused_by_name),
        BT_TEST(values_are_equal_by_their_number),
        BT_TEST(numbers_beyond_the_digits_are_written_if_nothing_else_is),
        BT_TEST(a_double_of_a_fraction_has_the_order_of_its_digits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
