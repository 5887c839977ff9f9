/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>

#include "tests/support/schema_texts.h"
#include "tests/support/testsupport.h"

static void dates_have_the_days_of_their_months(void **state)
{
    (void)state;
    HAS("{'type':'string','format':'date'}", "'2024-02-29'", "'2000-02-29'",
        "'1999-12-31'", "'2023-04-30'", NULL, "'2023-02-29'", "'1900-02-29'",
        "'2023-04-31'", "'2023-13-01'", "'2023-00-10'", "'0000-01-01'",
        "'2023-1-1'", "'2023-01-01 '");
    HAS("{'type':'string','format':'date-time'}", "'2024-02-29T23:59:59Z'",
        "'1999-12-31T00:00:00.25+05:30'", NULL, "'2024-02-30T00:00:00Z'",
        "'2024-02-29'", "'2024-02-29T24:00:00Z'", "'2024-02-29T00:00:00'",
        "'2024-02-29 00:00:00Z'");
    HAS("{'type':'string','format':'time'}", "'23:59:59Z'",
        "'00:00:00.123-08:00'", NULL, "'24:00:00Z'", "'23:60:00Z'", "'12:00'",
        "'12:00:00+24:00'");
    HAS("{'type':'string','format':'duration'}", "'P1Y2M3DT4H5M6S'", "'P4W'",
        "'PT1H'", "'P1DT12H'", "'P1Y'", NULL, "'P'", "'PT'", "'P1'", "'P1YT'",
        "'1Y'", "'P1S'", "'P1W2D'", "'P1D2H'");
}

static void addresses(void **state)
{
    (void)state;
    HAS("{'type':'string','format':'ipv4'}", "'0.0.0.0'", "'192.168.1.255'",
        NULL, "'256.0.0.1'", "'1.2.3'", "'01.2.3.4'", "'1.2.3.4.5'");
    HAS("{'type':'string','format':'ipv6'}", "'::'", "'::1'",
        "'2001:db8::ff00:42:8329'", "'1:2:3:4:5:6:7:8'", "'::ffff:1.2.3.4'",
        NULL, "':'", "':::'", "'1::2::3'", "'1:2:3:4:5:6:7'", "'12345::'",
        "'1:2:3:4:5:6:7:8:9'", "'::1%eth0'");
    HAS("{'type':'string','format':'hostname'}", "'a'", "'www.example.com'",
        "'x-1.y'", NULL, "''", "'-a'", "'a-'", "'a..b'", "'a_b'", "'.a'");
    HAS("{'type':'string','format':'email'}", "'joe.bloggs@example.com'",
        "'a+b@c.de'", NULL, "'a'", "'@b'", "'a@'", "'.a@b'", "'a..b@c'",
        "'a b@c'");
}

static void identifiers(void **state)
{
    (void)state;
    HAS("{'type':'string','format':'uuid'}",
        "'2eb8aa08-AA98-11ea-b4aa-73b441d16380'", NULL,
        "'2eb8aa08aa9811eab4aa73b441d16380'",
        "'2eb8aa08-aa98-11ea-b4aa-73b441d1638'",
        "'2eb8aa0g-aa98-11ea-b4aa-73b441d16380'");
    HAS("{'type':'string','format':'uri'}",
        "'https://u@example.com:8080/a/b?q=1#f'", "'urn:isbn:123'",
        "'mailto:a@b'", NULL, "'example.com'", "'//a/b'", "'http://a b'",
        "'http://a/%zz'", "'1http://a'", "':a'");
    HAS("{'type':'string','format':'uri-reference'}", "'/a/b'", "'../x?y'",
        "'#f'", "'//h/p'", "'http://a'", "''", NULL, "'a b'", "'\\\\a'", "'%'",
        "'1:2'");
    HAS("{'type':'string','format':'iri'}", "'http://é.de/ü'", NULL, "'é'");
    HAS("{'type':'string','format':'json-pointer'}", "''", "'/a~1b/0'", "'/'",
        NULL, "'a'", "'/~2'", "'/a~'");
    HAS("{'type':'string','format':'relative-json-pointer'}", "'1/a'", "'0#'",
        NULL, "'/a'", "'01/a'", "'#'");
    HAS("{'type':'string','format':'uri-template'}", "'/a/{b}/{?c,d*}'", NULL,
        "'{'", "'/{a'");
}

static void regular_expressions_are_simple_ones(void **state)
{
    (void)state;
    HAS("{'type':'string','format':'regex'}", "'^[a-z_]+\\\\.(?:b|c*){2}$'",
        "''", "'a|b'", NULL, "'('", "'['", "'*a'", "'[z-a]'", "'\\\\a'",
        "'a{2,1}'", "')'");
}

static void a_format_is_for_strings_alone(void **state)
{
    (void)state;
    HAS("{'format':'date','type':['string','integer']}", "1", "'2024-01-01'",
        NULL, "'x'");
    HAS("{'type':'string','format':'date','enum':['x','2024-01-01','2024-02-30']}",
        "'2024-01-01'", NULL, "'x'", "'2024-02-30'");
}

static void negated_formats_leave_out_what_any_validator_takes(void **state)
{
    (void)state;
    HAS("{'type':'string','not':{'format':'date'},'pattern':'^[2a]'}", "'a'",
        "'2'", NULL, "'2024-01-01'", "'2024-02-30'");
    HAS("{'type':'string','not':{'format':'uuid'},'maxLength':40}", "'a'", NULL,
        "'2eb8aa08-AA98-11ea-b4aa-73b441d16380'");
    HAS("{'type':'string','oneOf':[{'format':'date'},{'format':'date-time'}]}",
        "'2024-01-01'", "'2024-01-01T00:00:00Z'", NULL, "'x'");
    HAS("{'type':'string','oneOf':[{'format':'ipv4'},{'format':'ipv6'}]}",
        "'1.2.3.4'", "'::1'", NULL, "'1'");
}

static void formats_that_are_not_known_are_refused(void **state)
{
    (void)state;
    REFUSED("{'format':'color'}", "/format: this format is not known");
    REFUSED("{'properties':{'a':{'format':'x'}}}",
            "/properties/a/format: this format is not known");
    WRONG("{'format':1}", "/format: must be a string");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(dates_have_the_days_of_their_months),
        BT_TEST(addresses),
        BT_TEST(identifiers),
        BT_TEST(regular_expressions_are_simple_ones),
        BT_TEST(a_format_is_for_strings_alone),
        BT_TEST(negated_formats_leave_out_what_any_validator_takes),
        BT_TEST(formats_that_are_not_known_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
