/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "common/base/status.h"
#include "router/observe/metrics.h"
#include "router/observe/metrics_table.h"

#define BEGIN "<!-- made by baton-router --print-metrics-doc -->\n"
#define END   "\n<!-- end -->\n"

static char text[256u << 10];

static void read_doc(const char *name)
{
    char relative[128];
    FILE *file;
    size_t n;

    snprintf(relative, sizeof(relative), "../docs/%s", name);
    file = fopen(bt_test_path(relative), "r");
    assert_non_null(file);
    n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    assert_in_range(n, 1, sizeof(text) - 2);
    text[n] = '\0';
}

/* To renew it: build, and put what `baton-router --print-metrics-doc` prints
 * between the marks. */
static void committed_table_is_current(void **state)
{
    char *begin, *end;
    bt_strbuf_t table;

    (void)state;
    read_doc("METRICS.md");
    begin = strstr(text, BEGIN);
    assert_non_null(begin);
    begin += strlen(BEGIN);
    end = strstr(begin, END);
    assert_non_null(end);
    *end = '\0';
    bt_strbuf_init(&table, sizeof(text));
    bt_router_metrics_print_doc(&table);
    assert_int_equal(bt_strbuf_status(&table), BT_OK);
    assert_string_equal(begin, table.data);
    bt_strbuf_fini(&table);
}

static bool is_family(const char *name, size_t bytes)
{
    static const char *const ends[] = {"", "_bucket", "_sum", "_count"};

    for (uint32_t i = 0; i < bt_metrics_n_families; i++) {
        const bt_family_def_t *family = &bt_metrics_families[i];
        const bool histogram = family->type == BT_METRIC_HISTOGRAM;

        for (size_t k = 0; k < (histogram ? BT_ARRAY_LEN(ends) : 1); k++) {
            char full[256];

            snprintf(full, sizeof(full), "%s%s", family->name, ends[k]);
            if ((strlen(full) == bytes) && (memcmp(full, name, bytes) == 0)) {
                return true;
            }
        }
    }
    return false;
}

/* `baton_kv_*` stands for several. */
static void every_documented_name_is_a_family(void **state)
{
    static const char *const docs[] = {
        "METRICS.md",  "MONITORING.md", "RUN.md",        "DEPLOY.md",
        "FAILURES.md", "MODELS.md",     "SCHEDULING.md", "TENANTS_AND_TLS.md"};
    static const char *const prefixes[] = {"baton_", "process_", "nv_"};
    unsigned n = 0;

    (void)state;
    for (size_t d = 0; d < BT_ARRAY_LEN(docs); d++) {
        read_doc(docs[d]);
        for (size_t i = 0; i < BT_ARRAY_LEN(prefixes); i++) {
            const char *at = text;

            while ((at = strstr(at, prefixes[i])) != NULL) {
                const size_t bytes =
                    strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_");

                if ((at[bytes] != '*') && !is_family(at, bytes)) {
                    fail_msg("%s: %.*s", docs[d], (int)bytes, at);
                }
                at += bytes;
                n++;
            }
        }
    }
    assert_true(n > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(committed_table_is_current),
        BT_TEST(every_documented_name_is_a_family),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
