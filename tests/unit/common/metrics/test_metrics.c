/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/metrics/metrics.h"

#define LIMIT_BYTES 65536

/* Written by hand after "Exposition formats", text format 0.0.4. */
static void metric_family_is_help_type_and_samples(void **state)
{
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, LIMIT_BYTES);
    bt_metrics_put_family(&out, BT_METRIC_COUNTER, "serving", "Help.");
    bt_metrics_put_sample(&out, "serving", "type=\"ms\",a=\"1\"", 1.75);
    bt_metrics_put_sample(&out, "serving", "type=\"count\",a=\"1\"", 2);
    bt_metrics_put_family(&out, BT_METRIC_GAUGE, "free:blocks",
                          "Two\nlines \\ \"quoted\"");
    bt_metrics_put_sample(&out, "free:blocks", "", 0);
    assert_int_equal(bt_strbuf_status(&out), BT_OK);
    assert_string_equal(out.data,
                        "# HELP serving Help.\n"
                        "# TYPE serving counter\n"
                        "serving{type=\"ms\",a=\"1\"} 1.75\n"
                        "serving{type=\"count\",a=\"1\"} 2\n"
                        "# HELP free:blocks Two\\nlines \\\\ \"quoted\"\n"
                        "# TYPE free:blocks gauge\n"
                        "free:blocks 0\n");
    bt_strbuf_fini(&out);
}

/* Values 1, 10, 10.5, 1000 by hand: <=10: 2, <=100: 3, +Inf: 4; sum 1021.5. */
static void histogram_buckets_are_cumulative_and_le_comes_last(void **state)
{
    static const double bounds[] = {10, 100, 0.5e3};
    bt_histogram_t hist;
    bt_strbuf_t out;

    (void)state;
    bt_histogram_init(&hist, bounds, 3);
    bt_histogram_observe(&hist, 1);
    bt_histogram_observe(&hist, 10);
    bt_histogram_observe(&hist, 10.5);
    bt_histogram_observe(&hist, 1000);
    bt_histogram_observe(&hist, (double)NAN);
    bt_strbuf_init(&out, LIMIT_BYTES);
    bt_metrics_put_histogram(&out, "len", "model=\"m\"", &hist);
    assert_string_equal(out.data, "len_bucket{model=\"m\",le=\"10\"} 2\n"
                                  "len_bucket{model=\"m\",le=\"100\"} 3\n"
                                  "len_bucket{model=\"m\",le=\"500\"} 3\n"
                                  "len_bucket{model=\"m\",le=\"+Inf\"} 4\n"
                                  "len_sum{model=\"m\"} 1021.5\n"
                                  "len_count{model=\"m\"} 4\n");
    bt_strbuf_fini(&out);
}

static void unlabelled_histogram_has_only_le(void **state)
{
    static const double bound = 0.005;
    bt_histogram_t a;
    bt_strbuf_t out;

    (void)state;
    bt_histogram_init(&a, &bound, 1);
    bt_histogram_observe(&a, 0.005);
    bt_histogram_observe(&a, 0.25);
    bt_strbuf_init(&out, LIMIT_BYTES);
    bt_metrics_put_histogram(&out, "h", "", &a);
    assert_string_equal(out.data, "h_bucket{le=\"0.005\"} 1\n"
                                  "h_bucket{le=\"+Inf\"} 2\n"
                                  "h_sum 0.255\n"
                                  "h_count 2\n");
    bt_strbuf_fini(&out);
}

static void assert_prints(double value, const char *want)
{
    bt_strbuf_t out;

    bt_strbuf_init(&out, LIMIT_BYTES);
    bt_metrics_put_sample(&out, "g", "", value);
    assert_string_equal(out.data + 2, want);
    if (!isnan(value)) {
        assert_true(strtod(out.data + 2, NULL) == value);
    }
    bt_strbuf_fini(&out);
}

/* Wanted texts: Python's repr() for the fractions. */
static void
numbers_have_no_exponent_when_whole_and_read_back_equal(void **state)
{
    (void)state;
    assert_prints(0, "0\n");
    assert_prints(-0.0, "0\n");
    assert_prints(-17, "-17\n");
    assert_prints(1700000000, "1700000000\n");
    assert_prints(98362432000000.0, "98362432000000\n");
    assert_prints(9007199254740992.0, "9007199254740992\n");
    assert_prints(0.1, "0.1\n");
    assert_prints(0.1 + 0.2, "0.30000000000000004\n");
    assert_prints(1.0 / 3.0, "0.3333333333333333\n");
    assert_prints(123456789.125, "123456789.125\n");
    assert_prints(1e300, "1e+300\n");
    assert_prints(5e-324, "5e-324\n"); /* the smallest double */
    assert_prints((double)INFINITY, "+Inf\n");
    assert_prints(-(double)INFINITY, "-Inf\n");
    assert_prints((double)NAN, "NaN\n");
}

/* "\xff" is no UTF-8, "\xc3" the beginning of a character: each U+FFFD. */
static void label_values_are_escaped_and_become_utf8(void **state)
{
    bt_strbuf_t labels;

    (void)state;
    bt_strbuf_init(&labels, LIMIT_BYTES);
    bt_metrics_put_label(&labels, "model", "a\"b\\c\nd");
    bt_metrics_put_label(&labels, "b", "");
    bt_metrics_put_label(&labels, "worker", "\xc3\xa4\xff}\xc3");
    assert_int_equal(bt_strbuf_status(&labels), BT_OK);
    assert_string_equal(labels.data,
                        "model=\"a\\\"b\\\\c\\nd\",b=\"\","
                        "worker=\"\xc3\xa4\xef\xbf\xbd}\xef\xbf\xbd\"");
    bt_strbuf_fini(&labels);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(metric_family_is_help_type_and_samples),
        BT_TEST(histogram_buckets_are_cumulative_and_le_comes_last),
        BT_TEST(unlabelled_histogram_has_only_le),
        BT_TEST(numbers_have_no_exponent_when_whole_and_read_back_equal),
        BT_TEST(label_values_are_escaped_and_become_utf8),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
