/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "tests/unit/router/observe/metrics_fixture.h"

static void expect_line(world_t *w, const char *line, bool is_there)
{
    bt_strbuf_t out;
    char whole[256];

    snprintf(whole, sizeof(whole), "\n%s\n", line);
    render(w, &out);
    if ((strstr(out.data, whole) != NULL) != is_there) {
        fail_msg("%s line %s", is_there ? "no" : "there is a", line);
    }
    bt_strbuf_fini(&out);
}

static void series_go_on_when_an_adapter_comes_back(void **state)
{
    world_t w;
    bt_adapter_metrics_t *am;

    (void)state;
    begin(&w);
    am = bt_router_metrics_adapter(w.mm, "sql", false);
    assert_non_null(am);
    bt_adapter_metrics_add(am, BT_AC_REQUESTS, 2);
    assert_ptr_equal(bt_router_metrics_adapter(w.mm, "sql", false), am);
    assert_ptr_not_equal(bt_router_metrics_adapter(w.mm, "SQL", false), am);
    expect_line(&w,
                "baton_adapter_requests_total{model=\"tiny\",adapter=\"sql\"} "
                "2",
                true);
    expect_line(&w,
                "baton_adapter_requests_total{model=\"tiny\",adapter=\"SQL\"} "
                "0",
                true);
    bt_router_metrics_destroy(w.m);
}

/* A name is of any bytes; a page is not (Prometheus, "Text format details"). */
static void bytes_of_a_name_are_escaped(void **state)
{
    world_t w;

    (void)state;
    begin(&w);
    assert_non_null(bt_router_metrics_adapter(w.mm, "a\"b\\c\nd", false));
    expect_line(&w,
                "baton_adapter_requests_total{model=\"tiny\",adapter="
                "\"a\\\"b\\\\c\\nd\"} 0",
                true);
    bt_router_metrics_destroy(w.m);
}

static void adapters_behind_the_last_series_share_one(void **state)
{
    world_t w;
    bt_adapter_metrics_t *other;
    char name[16];

    (void)state;
    begin(&w);
    for (uint32_t i = 0; i < BT_METRICS_MAX_ADAPTERS; i++) {
        snprintf(name, sizeof(name), "a%u", i);
        assert_non_null(bt_router_metrics_adapter(w.mm, name, false));
    }
    other = bt_router_metrics_adapter(w.mm, "b", false);
    assert_non_null(other);
    assert_ptr_equal(bt_router_metrics_adapter(w.mm, "c", false), other);
    assert_ptr_equal(bt_router_metrics_adapter(w.mm, "other", false), other);
    assert_ptr_not_equal(bt_router_metrics_adapter(w.mm, "a0", false), other);
    bt_adapter_metrics_add(other, BT_AC_GENERATION_TOKENS, 5);
    expect_line(&w,
                "baton_adapter_generation_tokens_total{model=\"tiny\",adapter="
                "\"other\"} 5",
                true);
    expect_line(&w,
                "baton_adapter_requests_total{model=\"tiny\",adapter=\"b\"} 0",
                false);
    bt_router_metrics_destroy(w.m);
}

/* A tenant that sends adapters takes no series from those with names. */
static void adapters_of_clients_leave_half_of_the_series(void **state)
{
    world_t w;
    bt_adapter_metrics_t *other;
    char name[16];

    (void)state;
    begin(&w);
    for (uint32_t i = 0; i < BT_METRICS_MAX_SENT_ADAPTERS; i++) {
        snprintf(name, sizeof(name), "sent %u", i);
        assert_non_null(bt_router_metrics_adapter(w.mm, name, true));
    }
    other = bt_router_metrics_adapter(w.mm, "one more", true);
    assert_ptr_equal(bt_router_metrics_adapter(w.mm, "another", true), other);
    assert_ptr_not_equal(bt_router_metrics_adapter(w.mm, "sent 0", true),
                         other);
    assert_ptr_not_equal(bt_router_metrics_adapter(w.mm, "named", false),
                         other);
    expect_line(&w,
                "baton_adapter_requests_total{model=\"tiny\",adapter="
                "\"other\"} 0",
                true);
    bt_router_metrics_destroy(w.m);
}

static void adapters_of_no_model_are_not_counted(void **state)
{
    (void)state;
    assert_null(bt_router_metrics_adapter(NULL, "a", false));
    bt_adapter_metrics_add(NULL, BT_AC_REQUESTS, 1);
    bt_router_metrics_adapter_load(NULL, true);
}

static void loads_are_counted_by_result(void **state)
{
    world_t w;

    (void)state;
    begin(&w);
    bt_router_metrics_adapter_load(w.mm, true);
    bt_router_metrics_adapter_load(w.mm, true);
    bt_router_metrics_adapter_load(w.mm, false);
    expect_line(&w, "baton_adapter_loads_total{model=\"tiny\",result=\"ok\"} 2",
                true);
    expect_line(&w,
                "baton_adapter_loads_total{model=\"tiny\",result=\"failed\"} 1",
                true);
    bt_router_metrics_destroy(w.m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(series_go_on_when_an_adapter_comes_back),
        cmocka_unit_test(bytes_of_a_name_are_escaped),
        cmocka_unit_test(adapters_behind_the_last_series_share_one),
        cmocka_unit_test(adapters_of_clients_leave_half_of_the_series),
        cmocka_unit_test(adapters_of_no_model_are_not_counted),
        cmocka_unit_test(loads_are_counted_by_result),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
