/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/metrics/metrics.h"

#define LIMIT_BYTES 65536

/* Compare the rendered registry with the text of the exposition format. */
static void assert_renders(const bt_metrics_t *metrics, const char *want)
{
    bt_strbuf_t out;

    bt_strbuf_init(&out, LIMIT_BYTES);
    bt_metrics_render(metrics, &out);
    assert_int_equal(bt_strbuf_status(&out), BT_OK);
    assert_string_equal(out.data, want);
    bt_strbuf_fini(&out);
}

static bt_metric_family_t *add_family(bt_metrics_t *metrics,
                                      bt_metric_type_t type, const char *name)
{
    bt_metric_family_t *family = NULL;

    assert_int_equal(
        bt_metrics_family(metrics, type, name, "Help.", NULL, 0, &family),
        BT_OK);
    return family;
}

static bt_metric_t *add_series(bt_metric_family_t *family, const char *labels)
{
    bt_metric_t *metric = NULL;

    assert_int_equal(bt_metrics_series(family, labels, &metric), BT_OK);
    return metric;
}

/* Written by hand after "Exposition formats", text format 0.0.4. */
static void
each_value_stands_at_its_own_labels_in_order_of_creation(void **state)
{
    bt_metrics_t *metrics = NULL;
    bt_metric_family_t *serving;
    bt_metric_family_t *gauges;
    bt_metric_t *ms;
    bt_metric_t *count;

    (void)state;
    assert_int_equal(bt_metrics_create(&metrics), BT_OK);
    serving = add_family(metrics, BT_METRIC_COUNTER, "serving");
    gauges = add_family(metrics, BT_METRIC_GAUGE, "free:blocks");
    ms = add_series(serving, "type=\"ms\",model=\"m\",a=\"1\"");
    count = add_series(serving, "type=\"count\",model=\"m\",a=\"1\"");
    (void)add_series(gauges, "");

    bt_metric_add(count, 2);
    bt_metric_add(ms, 0.25);
    bt_metric_add(ms, 1.5);
    assert_renders(metrics, "# HELP serving Help.\n"
                            "# TYPE serving counter\n"
                            "serving{type=\"ms\",model=\"m\",a=\"1\"} 1.75\n"
                            "serving{type=\"count\",model=\"m\",a=\"1\"} 2\n"
                            "# HELP free:blocks Help.\n"
                            "# TYPE free:blocks gauge\n"
                            "free:blocks 0\n");
    bt_metrics_destroy(metrics);
}

/* Values 1, 10, 10.5, 1000 by hand: <=10: 2, <=100: 3, +Inf: 4; sum 1021.5. */
static void histogram_buckets_are_cumulative_and_le_comes_last(void **state)
{
    const double buckets[] = {10, 100, 0.5e3};
    bt_metrics_t *metrics = NULL;
    bt_metric_family_t *family = NULL;
    bt_metric_t *metric;

    (void)state;
    assert_int_equal(bt_metrics_create(&metrics), BT_OK);
    assert_int_equal(bt_metrics_family(metrics, BT_METRIC_HISTOGRAM, "len",
                                       "Two\nlines \\ \"quoted\"", buckets, 3,
                                       &family),
                     BT_OK);
    metric = add_series(family, "model=\"m\",version=\"1\"");
    bt_metric_observe(metric, 1);
    bt_metric_observe(metric, 10);
    bt_metric_observe(metric, 10.5);
    bt_metric_observe(metric, 1000);
    bt_metric_observe(metric, (double)NAN);
    assert_int_equal(bt_metric_count(metric), 4);
    assert_true(bt_metric_value(metric) == 1021.5);
    assert_renders(metrics,
                   "# HELP len Two\\nlines \\\\ \"quoted\"\n"
                   "# TYPE len histogram\n"
                   "len_bucket{model=\"m\",version=\"1\",le=\"10\"} 2\n"
                   "len_bucket{model=\"m\",version=\"1\",le=\"100\"} 3\n"
                   "len_bucket{model=\"m\",version=\"1\",le=\"500\"} 3\n"
                   "len_bucket{model=\"m\",version=\"1\",le=\"+Inf\"} 4\n"
                   "len_sum{model=\"m\",version=\"1\"} 1021.5\n"
                   "len_count{model=\"m\",version=\"1\"} 4\n");
    bt_metrics_destroy(metrics);
}

static void histogram_without_labels_has_only_le(void **state)
{
    const double bucket = 0.005;
    bt_metrics_t *metrics = NULL;
    bt_metric_family_t *family = NULL;

    (void)state;
    assert_int_equal(bt_metrics_create(&metrics), BT_OK);
    assert_int_equal(bt_metrics_family(metrics, BT_METRIC_HISTOGRAM, "h", "",
                                       &bucket, 1, &family),
                     BT_OK);
    bt_metric_observe(add_series(family, ""), 0.005);
    assert_renders(metrics, "# HELP h \n"
                            "# TYPE h histogram\n"
                            "h_bucket{le=\"0.005\"} 1\n"
                            "h_bucket{le=\"+Inf\"} 1\n"
                            "h_sum 0.005\n"
                            "h_count 1\n");
    bt_metrics_destroy(metrics);
}

/* What stands after "g " in the last line. */
static void assert_prints(double value, const char *want)
{
    bt_metrics_t *metrics = NULL;
    bt_metric_t *metric;
    bt_strbuf_t out;

    assert_int_equal(bt_metrics_create(&metrics), BT_OK);
    metric = add_series(add_family(metrics, BT_METRIC_GAUGE, "g"), "");
    bt_metric_set(metric, value);
    bt_strbuf_init(&out, LIMIT_BYTES);
    bt_metrics_render(metrics, &out);
    assert_int_equal(bt_strbuf_status(&out), BT_OK);
    assert_string_equal(strstr(out.data, "\ng ") + 3, want);
    if (!isnan(value)) {
        assert_true(strtod(strstr(out.data, "\ng ") + 3, NULL) == value);
    }
    bt_strbuf_fini(&out);
    bt_metrics_destroy(metrics);
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
    assert_prints(5e-324, "4.94066e-324\n"); /* the smallest double */
    assert_prints((double)INFINITY, "+Inf\n");
    assert_prints(-(double)INFINITY, "-Inf\n");
    assert_prints((double)NAN, "NaN\n");
}

static void a_counter_never_falls(void **state)
{
    bt_metrics_t *metrics = NULL;
    bt_metric_t *metric;

    (void)state;
    assert_int_equal(bt_metrics_create(&metrics), BT_OK);
    metric = add_series(add_family(metrics, BT_METRIC_COUNTER, "c"), "");
    bt_metric_add(metric, 5);
    bt_metric_add(metric, -1);
    bt_metric_add(metric, (double)NAN);
    bt_metric_add(metric, (double)INFINITY);
    assert_true(bt_metric_value(metric) == 5);

    metric = add_series(add_family(metrics, BT_METRIC_GAUGE, "g"), "");
    bt_metric_add(metric, 5);
    bt_metric_add(metric, -7);
    assert_true(bt_metric_value(metric) == -2);
    bt_metrics_destroy(metrics);
}

static void bad_names_labels_and_buckets_are_refused(void **state)
{
    static const char *const bad_labels[] = {
        "a",        "a=",        "a=1",       "a=\"1",
        "a=\"1\",", ",a=\"1\"",  "1a=\"1\"",  "a=\"1\"b=\"2\"",
        "a=\"\n\"", "a=\"\\x\"", "a=\"1\\\"", "=\"1\"",
        "a=\"1\" ", "a:b=\"1\"",
    };
    const double falling[] = {1, 1};
    const double infinite[] = {1, (double)INFINITY};
    bt_metrics_t *metrics = NULL;
    bt_metric_family_t *family = NULL;
    bt_metric_t *metric = NULL;

    (void)state;
    assert_int_equal(bt_metrics_create(&metrics), BT_OK);
    assert_int_equal(
        bt_metrics_family(metrics, BT_METRIC_GAUGE, "1a", "", NULL, 0, &family),
        BT_ERR_INVALID_PARAM);
    assert_int_equal(
        bt_metrics_family(metrics, BT_METRIC_GAUGE, "", "", NULL, 0, &family),
        BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_metrics_family(metrics, BT_METRIC_GAUGE, "a b", "",
                                       NULL, 0, &family),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_metrics_family(metrics, BT_METRIC_GAUGE, "a", "",
                                       falling, 1, &family),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_metrics_family(metrics, BT_METRIC_HISTOGRAM, "a", "",
                                       falling, 2, &family),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(bt_metrics_family(metrics, BT_METRIC_HISTOGRAM, "a", "",
                                       infinite, 2, &family),
                     BT_ERR_INVALID_PARAM);
    assert_null(family);

    family = add_family(metrics, BT_METRIC_GAUGE, "a");
    assert_int_equal(
        bt_metrics_family(metrics, BT_METRIC_GAUGE, "a", "", NULL, 0, &family),
        BT_ERR_EXISTS);
    for (size_t i = 0; i < sizeof(bad_labels) / sizeof(bad_labels[0]); i++) {
        assert_int_equal(bt_metrics_series(family, bad_labels[i], &metric),
                         BT_ERR_INVALID_PARAM);
    }
    assert_null(metric);
    metric = add_series(family, "le=\"1\",b=\"\\\\ \\\" \\n\"");
    assert_int_equal(
        bt_metrics_series(family, "le=\"1\",b=\"\\\\ \\\" \\n\"", &metric),
        BT_ERR_EXISTS);
    family = add_family(metrics, BT_METRIC_HISTOGRAM, "h");
    assert_int_equal(bt_metrics_series(family, "le=\"1\"", &metric),
                     BT_ERR_INVALID_PARAM);
    bt_metrics_destroy(metrics);
}

static void an_escaped_value_is_accepted_as_a_label(void **state)
{
    bt_metrics_t *metrics = NULL;
    bt_metric_family_t *family;
    bt_strbuf_t labels;

    (void)state;
    bt_strbuf_init(&labels, LIMIT_BYTES);
    bt_strbuf_puts(&labels, "model=\"");
    bt_metrics_escape("a\"b\\c\nd", &labels);
    bt_strbuf_puts(&labels, "\"");
    assert_string_equal(labels.data, "model=\"a\\\"b\\\\c\\nd\"");

    assert_int_equal(bt_metrics_create(&metrics), BT_OK);
    family = add_family(metrics, BT_METRIC_GAUGE, "g");
    (void)add_series(family, labels.data);
    assert_renders(metrics, "# HELP g Help.\n# TYPE g gauge\n"
                            "g{model=\"a\\\"b\\\\c\\nd\"} 0\n");
    bt_strbuf_fini(&labels);
    bt_metrics_destroy(metrics);
}

/* registry; family, name, help, buckets; series, labels, counts */
static void create_survives_every_failed_allocation(void **state)
{
    const double bucket = 1;
    bt_status_t status;
    int nth = 0;

    (void)state;
    do {
        bt_metrics_t *metrics = NULL;
        bt_metric_family_t *family = NULL;
        bt_metric_t *metric = NULL;

        bt_alloc_fail_at(++nth);
        status = bt_metrics_create(&metrics);
        if (status == BT_OK) {
            status = bt_metrics_family(metrics, BT_METRIC_HISTOGRAM, "h", "",
                                       &bucket, 1, &family);
        }
        if (status == BT_OK) {
            status = bt_metrics_series(family, "a=\"1\"", &metric);
        }
        assert_true((status == BT_OK) || (status == BT_ERR_NO_MEMORY));
        assert_true((metric != NULL) == (status == BT_OK));
        bt_metrics_destroy(metrics);
    } while (status != BT_OK);
    bt_alloc_fail_at(0);
    assert_int_equal(nth, 9); /* eight allocations, then success */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(each_value_stands_at_its_own_labels_in_order_of_creation),
        BT_TEST(histogram_buckets_are_cumulative_and_le_comes_last),
        BT_TEST(histogram_without_labels_has_only_le),
        BT_TEST(numbers_have_no_exponent_when_whole_and_read_back_equal),
        BT_TEST(a_counter_never_falls),
        BT_TEST(bad_names_labels_and_buckets_are_refused),
        BT_TEST(an_escaped_value_is_accepted_as_a_label),
        BT_TEST(create_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
