/* SPDX-License-Identifier: Apache-2.0 */
/* The whole page, read as strictly as Prometheus' "Exposition formats" (text
 * format 0.0.4) and "Metric and label naming" allow. */
#include "tests/support/testsupport.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/status.h"
#include "tests/unit/router/observe/metrics_fixture.h"

#define LINE_BYTES   1024
#define MAX_SERIES   2000
#define MAX_FAMILIES 200

typedef struct reader {
    char family[LINE_BYTES], type[32];
    char families[MAX_FAMILIES][128];
    unsigned n_families;
    char series[MAX_SERIES][LINE_BYTES]; /* name and labels */
    unsigned n_series, n_samples;        /* all; of this family */
    bool helped;                         /* HELP was there, TYPE was not */
    double le, count;                    /* of the histogram's last bucket */
} reader_t;

static reader_t reader;

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);

    return (n >= m) && (strcmp(text + n - m, end) == 0);
}

static bool is_seed(const char *family)
{
    return strncmp(family, "nv_", 3) == 0;
}

/* @return what follows the name */
static const char *read_name(const char *at, bool label, char *name)
{
    size_t n = 0;

    while (isalpha((unsigned char)at[n]) || (at[n] == '_') ||
           (!label && (at[n] == ':')) ||
           ((n > 0) && isdigit((unsigned char)at[n]))) {
        n++;
    }
    assert_in_range(n, 1, 127);
    memcpy(name, at, n);
    name[n] = '\0';
    return at + n;
}

static void read_help(reader_t *r, const char *at)
{
    char name[LINE_BYTES];

    assert_false(r->helped);
    if (r->n_families > 0) {
        assert_true(r->n_samples > 0); /* of the one before */
    }
    at = read_name(at, false, name);
    for (unsigned i = 0; i < r->n_families; i++) {
        if (strcmp(r->families[i], name) == 0) {
            fail_msg("%s stands in two places", name);
        }
    }
    assert_true(r->n_families < MAX_FAMILIES);
    snprintf(r->families[r->n_families++], sizeof(r->families[0]), "%.127s",
             name);
    assert_int_equal(*at, ' ');
    assert_true(strlen(at) > 10);
    for (at++; *at != '\0'; at++) {
        if (*at == '\\') {
            at++;
            assert_true((*at == '\\') || (*at == 'n'));
        }
    }
    snprintf(r->family, sizeof(r->family), "%s", name);
    r->helped = true;
    r->n_samples = 0;
}

/* Conventions: counters, and nothing else, end in _total; base units. Those
 * that the seeds name, and old names, are as they are. */
static void read_type(reader_t *r, const char *at)
{
    char name[LINE_BYTES];
    bool histogram;

    assert_true(r->helped);
    r->helped = false;
    at = read_name(at, false, name);
    assert_string_equal(name, r->family);
    assert_int_equal(*at, ' ');
    snprintf(r->type, sizeof(r->type), "%s", at + 1);
    histogram = strcmp(r->type, "histogram") == 0;
    assert_true(histogram || (strcmp(r->type, "counter") == 0) ||
                (strcmp(r->type, "gauge") == 0));
    if (!is_seed(name)) {
        assert_int_equal(strcmp(r->type, "counter") == 0,
                         ends_with(name, "_total"));
        assert_false(ends_with(name, "_count") || ends_with(name, "_sum") ||
                     ends_with(name, "_bucket"));
        assert_false(ends_with(name, "_ms") || ends_with(name, "_us"));
    }
}

/* @return what follows the closing brace; the value of le, or NULL, in le_p */
static const char *read_labels(const char *at, char *le)
{
    char names[16][128];
    unsigned n = 0;

    for (;;) {
        const char *value;

        assert_true(n < BT_ARRAY_LEN(names));
        at = read_name(at, true, names[n]);
        for (unsigned i = 0; i < n; i++) {
            assert_string_not_equal(names[i], names[n]);
        }
        assert_memory_equal(at, "=\"", 2);
        value = at + 2;
        for (at = value; *at != '"'; at++) {
            assert_int_not_equal(*at, '\0');
            if (*at == '\\') {
                at++;
                assert_non_null(memchr("\\\"n", *at, 3));
            }
        }
        if (strcmp(names[n], "le") == 0) {
            snprintf(le, 32, "%.*s", (int)(at - value), value);
            assert_int_equal(at[1], '}'); /* the last one */
        }
        n++;
        at++;
        if (*at == '}') {
            return at + 1;
        }
        assert_int_equal(*at, ',');
        at++;
    }
}

static double read_number(const char *text)
{
    char *end = NULL;
    double value;

    if (strcmp(text, "+Inf") == 0) {
        return (double)INFINITY;
    }
    assert_true(isdigit((unsigned char)text[0]) || (text[0] == '-'));
    value = strtod(text, &end);
    assert_string_equal(end, "");
    return value;
}

/* Buckets rise to +Inf, then come sum and count. */
static void read_histogram(reader_t *r, const char *suffix, const char *le,
                           double value)
{
    if (strcmp(suffix, "_bucket") == 0) {
        const double bound = read_number(le);

        assert_true(isinf(r->le) ? (value >= 0)
                                 : (bound > r->le) && (value >= r->count));
        r->le = bound;
        r->count = value;
    } else if (strcmp(suffix, "_sum") == 0) {
        assert_true(isinf(r->le));
    } else {
        assert_string_equal(suffix, "_count");
        assert_true(isinf(r->le) && (value == r->count));
    }
}

static void read_sample(reader_t *r, const char *line)
{
    char name[LINE_BYTES], le[32] = "";
    const char *at = read_name(line, false, name);
    double value;

    assert_false(r->helped);
    assert_memory_equal(name, r->family, strlen(r->family));
    if (*at == '{') {
        at = read_labels(at + 1, le);
    }
    assert_int_equal(*at, ' ');
    assert_true(r->n_series < MAX_SERIES);
    snprintf(r->series[r->n_series], LINE_BYTES, "%.*s", (int)(at - line),
             line);
    for (unsigned i = 0; i < r->n_series; i++) {
        if (strcmp(r->series[i], r->series[r->n_series]) == 0) {
            fail_msg("%s stands in two places", r->series[i]);
        }
    }
    r->n_series++;
    value = read_number(at + 1);
    if (strcmp(r->type, "histogram") == 0) {
        if (r->n_samples == 0) {
            r->le = (double)INFINITY;
        }
        read_histogram(r, name + strlen(r->family), le, value);
    } else {
        assert_string_equal(name, r->family);
        assert_string_equal(le, "");
        if (strcmp(r->type, "counter") == 0) {
            assert_true(value >= 0);
        }
    }
    r->n_samples++;
}

static void read_page(reader_t *r, const bt_strbuf_t *page)
{
    const char *at = page->data;

    memset(r, 0, sizeof(*r));
    while (*at != '\0') {
        const char *end = strchr(at, '\n');
        char line[LINE_BYTES];

        assert_non_null(end);
        assert_true(end - at < LINE_BYTES);
        snprintf(line, sizeof(line), "%.*s", (int)(end - at), at);
        if (strncmp(line, "# HELP ", 7) == 0) {
            read_help(r, line + 7);
        } else if (strncmp(line, "# TYPE ", 7) == 0) {
            read_type(r, line + 7);
        } else {
            read_sample(r, line);
        }
        at = end + 1;
    }
    assert_false(r->helped);
    assert_true(r->n_samples > 0);
}

/* Whatever can stand on a page, and names that need care. */
static void fullest_page_parses(void **state)
{
    static const char nasty[] = "a\"b\\c\nd{e=\"f\"},g} 1";
    const bt_metrics_expected_t expected[] = {{nasty, BT_ROLE_DECODE, 2},
                                              {"tiny", BT_ROLE_PREFILL, 1}};
    const bt_metrics_restarts_t restarts[] = {{"d-0", 3}, {nasty, 1}};
    const bt_metrics_fleet_t fleet = {expected, 2, restarts, 2};
    bt_model_metrics_t *other = NULL;
    bt_metrics_view_t views[2];
    bt_strbuf_t page;
    world_t w;

    (void)state;
    begin(&w);
    play(&w);
    (void)add_worker(&w, BT_ROLE_DECODE, nasty);
    (void)add_worker(&w, BT_ROLE_DECODE, nasty);
    assert_int_equal(bt_router_metrics_model(w.m, nasty, &other), BT_OK);
    assert_int_equal(bt_metrics_fleet(w.m, &fleet), BT_OK);
    bt_router_metrics_http(w.m, "/v1/models/{model}", "GET", 200);
    bt_router_metrics_http(w.m, "/v1/models/{model}", "GET", 404);
    bt_router_metrics_refused(w.m, other, 429);
    bt_router_metrics_refused(w.m, NULL, 404);
    views[0] = w.view;
    views[1] = (bt_metrics_view_t){.model = other};
    bt_strbuf_init(&page, 1u << 20);
    render_views(w.m, views, 2, &page);
    assert_int_equal(bt_strbuf_status(&page), BT_OK);
    read_page(&reader, &page);
    assert_true(reader.n_families > 60);
    bt_strbuf_fini(&page);
    bt_router_metrics_destroy(w.m);
}

static void page_without_models_or_workers_parses(void **state)
{
    bt_router_metrics_t *m = NULL;
    bt_strbuf_t page;

    (void)state;
    assert_int_equal(bt_router_metrics_create(&m), BT_OK);
    bt_strbuf_init(&page, 1u << 20);
    render_views(m, NULL, 0, &page);
    assert_int_equal(bt_strbuf_status(&page), BT_OK);
    read_page(&reader, &page);
    assert_null(strstr(page.data, "nv_"));
    bt_strbuf_fini(&page);
    bt_router_metrics_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(fullest_page_parses),
        BT_TEST(page_without_models_or_workers_parses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
