/* SPDX-License-Identifier: Apache-2.0 */
/* What ./baton status prints. */
#include "tests/support/testsupport.h"

#include <string.h>

#include "launcher/status.h"

#define OUT_BYTES 65536
#define NOW_MS    UINT64_C(1700000000000)

static void add_process(bt_status_report_t *report, const char *name,
                        uint32_t program, uint32_t state, uint64_t age_ms)
{
    bt_admin_event_t event = {.kind = BT_ADMIN_EVENT_PROCESS};

    strncpy(event.u.process.name, name, sizeof(event.u.process.name) - 1);
    event.u.process.program = program;
    event.u.process.state = state;
    event.u.process.since_ms = NOW_MS - age_ms;
    if (program == BT_ADMIN_PROGRAM_ROUTER) {
        strncpy(event.u.process.http, "[::1]:8000", 11);
        strncpy(event.u.process.metrics, "127.0.0.1:8002", 15);
    } else {
        strncpy(event.u.process.model, "tiny", 5);
        event.u.process.role = program;
    }
    event.u.process.pid = (state == BT_ADMIN_PROCESS_READY) ? 4711 : 0;
    assert_int_equal(bt_status_report_add(report, &event), BT_OK);
}

static void fill(bt_status_report_t *report)
{
    bt_admin_event_t event = {.kind = BT_ADMIN_EVENT_LAUNCHER};

    memset(report, 0, sizeof(*report));
    event.u.launcher.pid = 12;
    strncpy(event.u.launcher.version, "0.1.0", 6);
    strncpy(event.u.launcher.run_dir, "/tmp/baton-a1b2c3", 18);
    assert_int_equal(bt_status_report_add(report, &event), BT_OK);
    memset(&event, 0, sizeof(event));
    event.kind = BT_ADMIN_EVENT_MODEL;
    strncpy(event.u.model.name, "tiny", 5);
    strncpy(event.u.model.path, "/m/\"tiny\".gguf", 15);
    event.u.model.prefill = 1;
    event.u.model.decode = 1;
    assert_int_equal(bt_status_report_add(report, &event), BT_OK);
    add_process(report, "router", BT_ADMIN_PROGRAM_ROUTER,
                BT_ADMIN_PROCESS_READY, 93784000);
    add_process(report, "prefill-0", BT_ADMIN_PROGRAM_PREFILL,
                BT_ADMIN_PROCESS_READY, 3661000);
    add_process(report, "prefill-1", BT_ADMIN_PROGRAM_PREFILL,
                BT_ADMIN_PROCESS_STOPPED, 61999);
    add_process(report, "decode-0", BT_ADMIN_PROGRAM_DECODE,
                BT_ADMIN_PROCESS_WAITING, 999);
    report->processes[2].role = BT_ADMIN_ROLE_BOTH;
    report->models[0].both = 1;
}

/* 93784 s = 1 day, 2 h, 3 min, 4 s; 3661 s = 1 h, 1 min, 1 s. */
static void the_table_is_for_people(void **state)
{
    bt_status_report_t report;
    bt_strbuf_t out;

    (void)state;
    fill(&report);
    bt_strbuf_init(&out, OUT_BYTES);
    bt_status_report_table(&report, NOW_MS, &out);
    assert_int_equal(bt_strbuf_status(&out), BT_OK);
    assert_string_equal(
        out.data,
        "Baton 0.1.0, launcher 12 in /tmp/baton-a1b2c3\n"
        "\n"
        "model tiny: loaded, 1 prefill, 1 decode, 1 both, /m/\"tiny\".gguf\n"
        "\n"
        "PROCESS    ROLE     MODEL  STATE    PID   SINCE  RESTARTS  ADDRESS\n"
        "router     router   -      ready    4711  1d 2h  0         "
        "http://[::1]:8000\n"
        "prefill-0  prefill  tiny   ready    4711  1h 1m  0\n"
        "prefill-1  both     tiny   stopped  -     1m 1s  0\n"
        "decode-0   decode   tiny   waiting  -     0s     0\n");
    bt_strbuf_fini(&out);
    bt_status_report_fini(&report);
}

static void who_does_not_serve_is_named_with_the_reason(void **state)
{
    bt_status_report_t report;
    bt_strbuf_t out;

    (void)state;
    fill(&report);
    strncpy(report.processes[1].why, "linked with 0 of 1 routers", 27);
    strncpy(report.processes[3].why, "ended by signal 9 (Killed)", 27);
    bt_strbuf_init(&out, OUT_BYTES);
    bt_status_report_table(&report, NOW_MS, &out);
    assert_int_equal(bt_strbuf_status(&out), BT_OK);
    assert_non_null(strstr(out.data, "  0\n"
                                     "\n"
                                     "prefill-0: linked with 0 of 1 routers\n"
                                     "decode-0: ended by signal 9 (Killed)\n"));
    bt_strbuf_fini(&out);
    bt_status_report_fini(&report);
}

static void an_address_with_tls_is_shown_as_the_router_said_it(void **state)
{
    bt_admin_event_t event = {.kind = BT_ADMIN_EVENT_PROCESS,
                              .u.process = {.name = "router",
                                            .program = BT_ADMIN_PROGRAM_ROUTER,
                                            .state = BT_ADMIN_PROCESS_READY,
                                            .pid = 7,
                                            .http = "https://[::1]:8000",
                                            .since_ms = NOW_MS}};
    bt_status_report_t report;
    bt_strbuf_t out;

    (void)state;
    fill(&report);
    assert_int_equal(bt_status_report_add(&report, &event), BT_OK);
    bt_strbuf_init(&out, OUT_BYTES);
    bt_status_report_table(&report, NOW_MS, &out);
    assert_non_null(out.data);
    assert_non_null(strstr(out.data, " https://[::1]:8000\n"));
    assert_null(strstr(out.data, "http://https"));
    bt_strbuf_fini(&out);
    bt_status_report_fini(&report);
}

static void the_json_is_for_programs(void **state)
{
    bt_status_report_t report;
    bt_strbuf_t out;

    (void)state;
    fill(&report);
    report.n_processes = 2;
    report.launcher.stopping = 1;
    report.models[0].unloaded = 1;
    report.processes[1].since_ms = NOW_MS + 5; /* the clock was set back */
    strncpy(report.processes[1].why, "ended, \"so\"", 13);
    bt_strbuf_init(&out, OUT_BYTES);
    bt_status_report_json(&report, NOW_MS, &out);
    assert_int_equal(bt_strbuf_status(&out), BT_OK);
    assert_string_equal(
        out.data,
        "{\"launcher\":{\"pid\":12,\"version\":\"0.1.0\",\"run_dir\":"
        "\"/tmp/baton-a1b2c3\",\"state\":\"stopping\"},\"models\":[{\"name\":"
        "\"tiny\",\"path\":\"/m/\\\"tiny\\\".gguf\",\"prefill\":1,\"decode\":1,"
        "\"both\":1,\"state\":\"unloaded\"}],\"processes\":[{\"name\":\"router\","
        "\"program\":\"router\",\"role\":null,\"model\":null,\"state\":\"ready\",\"pid\":"
        "4711,\"restarts\":0,\"since_ms\":1699906216000,\"age_ms\":93784000,"
        "\"http\":\"[::1]:8000\",\"metrics\":\"127.0.0.1:8002\",\"why\":null},{\"name\":"
        "\"prefill-0\",\"program\":\"prefill\",\"role\":\"prefill\",\"model\":\"tiny\",\"state\":"
        "\"ready\",\"pid\":4711,\"restarts\":0,\"since_ms\":1700000000005,"
        "\"age_ms\":0,\"http\":null,\"metrics\":null,\"why\":\"ended, \\\"so\\\"\"}]}\n");
    bt_strbuf_fini(&out);
    bt_status_report_fini(&report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(the_table_is_for_people),
        BT_TEST(who_does_not_serve_is_named_with_the_reason),
        BT_TEST(an_address_with_tls_is_shown_as_the_router_said_it),
        BT_TEST(the_json_is_for_programs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
