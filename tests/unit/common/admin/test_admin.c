/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "common/admin/admin.h"
#include "common/base/alloc.h"

#define BUF_BYTES (4 * BT_ADMIN_LINE_BYTES)

static bt_admin_command_t request;
static char why[256];

static bt_status_t read_request(const char *line)
{
    why[0] = '\0';
    return bt_admin_command_read(line, strlen(line), &request, why,
                                 sizeof(why));
}

static void assert_refused(const char *line, const char *reason)
{
    const bt_admin_command_t before = request;

    assert_int_equal(read_request(line), BT_ERR_INVALID_PARAM);
    assert_string_equal(why, reason);
    assert_memory_equal(&request, &before, sizeof(before));
}

static void assert_written(const char *want)
{
    bt_strbuf_t out;

    bt_strbuf_init(&out, BUF_BYTES);
    bt_admin_command_write(&request, &out);
    assert_int_equal(bt_strbuf_status(&out), BT_OK);
    assert_string_equal(out.data, want);
    bt_strbuf_fini(&out);
}

static void every_order_is_read_and_written_alike(void **state)
{
    static const struct {
        const char *line;
        bt_admin_verb_t verb;
        const char *name;
        bool wait;
    } cases[] = {
        {"status", BT_ADMIN_VERB_STATUS, "", false},
        {"watch", BT_ADMIN_VERB_WATCH, "", false},
        {"start decode-0", BT_ADMIN_VERB_START, "decode-0", false},
        {"stop a.prefill-1", BT_ADMIN_VERB_STOP, "a.prefill-1", false},
        {"drain decode-0", BT_ADMIN_VERB_DRAIN, "decode-0", true},
        {"restart router-1 wait=yes", BT_ADMIN_VERB_RESTART, "router-1", true},
        {"load-model a", BT_ADMIN_VERB_LOAD, "a", false},
        {"unload-model a wait=yes", BT_ADMIN_VERB_UNLOAD, "a", true},
        {"role decode-0 prefill", BT_ADMIN_VERB_ROLE, "decode-0", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char want[64];

        assert_int_equal(read_request(cases[i].line), BT_OK);
        assert_int_equal(request.verb, cases[i].verb);
        assert_string_equal(request.name, cases[i].name);
        assert_int_equal(request.wait, cases[i].wait);
        assert_string_equal(request.path, "");
        assert_int_equal(request.prefill, BT_ADMIN_UNSET);
        snprintf(want, sizeof(want), "%s\n", cases[i].line);
        assert_written(want);
    }
    assert_int_equal(request.role, BT_ADMIN_ROLE_PREFILL);
    assert_int_equal(read_request("role a.decode-0 both wait=yes"), BT_OK);
    assert_int_equal(request.role, BT_ADMIN_ROLE_BOTH);
    assert_true(request.wait);
}

/* A router's watch is written of a structure that is zero but for its verb. */
static void only_load_says_how_many_workers(void **state)
{
    const bt_admin_command_t watch = {.verb = BT_ADMIN_VERB_WATCH};
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 256);
    bt_admin_command_write(&watch, &out);
    assert_string_equal(out.data, "watch\n");
    bt_strbuf_fini(&out);
}

/* %25 is a percent sign, %C3%A9 an e with an acute accent in UTF-8. */
static void a_path_may_have_any_byte_but_zero(void **state)
{
    (void)state;
    assert_int_equal(read_request("load-model b=/m/a%20b=100%25%C3%A9%0A.gguf "
                                  "decode=2 prefill=0"),
                     BT_OK);
    assert_string_equal(request.name, "b");
    assert_string_equal(request.path, "/m/a b=100%\xc3\xa9\n.gguf");
    assert_int_equal(request.prefill, 0);
    assert_int_equal(request.decode, 2);
    assert_written(
        "load-model b=/m/a%20b=100%25%C3%A9%0A.gguf prefill=0 decode=2\n");
}

static void the_longest_path_and_name_travel_in_the_worst_bytes(void **state)
{
    bt_admin_command_t read = {.wait = false};
    bt_strbuf_t out;

    (void)state;
    memset(&request, 0, sizeof(request));
    request.verb = BT_ADMIN_VERB_LOAD;
    request.prefill = BT_ADMIN_UNSET;
    request.decode = 256;
    request.wait = true;
    memset(request.name, '%', sizeof(request.name) - 1);
    memset(request.path, 0xff, sizeof(request.path) - 1);
    bt_strbuf_init(&out, BT_ADMIN_LINE_BYTES);
    bt_admin_command_write(&request, &out);
    assert_int_equal(bt_strbuf_status(&out), BT_OK);
    assert_int_equal(
        bt_admin_command_read(out.data, out.len - 1, &read, why, sizeof(why)),
        BT_OK);
    assert_memory_equal(&read, &request, sizeof(read));
    bt_strbuf_fini(&out);
}

static void a_bad_order_is_named_with_what_there_is(void **state)
{
    (void)state;
    assert_refused("reboot",
                   "no order 'reboot'; there are: status, watch, start, stop, "
                   "drain, restart, load-model, unload-model, role");
    assert_refused(
        "restat a",
        "no order 'restat' (did you mean restart?); there are: status, "
        "watch, start, stop, drain, restart, load-model, unload-model, role");
    assert_refused("role decode-0 decoed",
                   "no role 'decoed' (did you mean decode?); there are: "
                   "prefill, decode, both");
    assert_refused("load-model a=/m prefil=2",
                   "'prefil=2' does not belong to load-model MODEL[=PATH] "
                   "[prefill=N] [decode=N]; did you mean prefill=N?");
    assert_refused("stop a prefil=2",
                   "'prefil=2' does not belong to stop NAME");
    assert_refused("stop", "it is: stop NAME");
    assert_refused("load-model",
                   "it is: load-model MODEL[=PATH] [prefill=N] [decode=N]");
    assert_refused("role decode-0", "it is: role NAME prefill|decode|both");
    assert_refused("role decode-0 none",
                   "no role 'none'; there are: prefill, decode, both");
    assert_refused("role decode-0 router",
                   "no role 'router'; there are: prefill, decode, both");
    assert_refused("status now", "'now' does not belong to status");
    assert_refused("stop a b", "'b' does not belong to stop NAME");
    assert_refused("stop a prefill=1",
                   "'prefill=1' does not belong to stop NAME");
    assert_refused("load-model a=", "a has no path or one that is too long");
    assert_refused("load-model =/a", "'=/a' is not a name");
    assert_refused("load-model a prefill=257",
                   "'prefill=257': not a whole number from 0 to 256");
    assert_refused("load-model a decode=",
                   "'decode=': not a whole number from 0 to 256");
    assert_refused("load-model a prefill=99999999999999999999",
                   "'prefill=99999999999999999999': not a whole number from 0 "
                   "to 256");
}

static void a_hostile_line_is_refused(void **state)
{
    static const char *const lines[] = {
        "",         " ",         " status",   "status ",
        "stop  a",  "stop %",    "stop %4",   "stop %4g",
        "stop %00", "stop a\tb", "stop \x7f", "stop \xc3\xa9",
        "stop %c3", "stop a\nb",
    };
    static char line[2 * BT_ADMIN_LINE_BYTES];

    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        assert_refused(lines[i], "not a line of words");
    }
    assert_int_equal(
        bt_admin_command_read("stop a\0b", 8, &request, why, sizeof(why)),
        BT_ERR_INVALID_PARAM);
    memset(line, 'x', sizeof(line) - 1);
    assert_refused(line, "not a line of words");
    for (size_t i = 0; i < 60; i++) { /* thirty words */
        line[i] = (i % 2 == 0) ? 'a' : ' ';
    }
    line[59] = '\0';
    assert_refused(line, "not a line of words");

    /* 64 bytes are one too many for a name with its zero, 63 are not. */
    memcpy(line, "stop ", 5);
    memset(line + 5, 'n', 64);
    line[69] = '\0';
    assert_int_equal(read_request(line), BT_ERR_INVALID_PARAM);
    line[68] = '\0';
    assert_int_equal(read_request(line), BT_OK);
}

static void assert_event(const bt_admin_event_t *event, const char *want)
{
    bt_admin_event_t read;
    bt_strbuf_t out;

    bt_strbuf_init(&out, BUF_BYTES);
    bt_admin_event_write(event, &out);
    assert_int_equal(bt_strbuf_status(&out), BT_OK);
    assert_string_equal(out.data, want);
    assert_int_equal(bt_admin_event_read(out.data, out.len - 1, &read), BT_OK);
    assert_memory_equal(&read, event, sizeof(read));
    bt_strbuf_fini(&out);
}

static void every_event_is_written_and_read_alike(void **state)
{
    bt_admin_event_t event;

    (void)state;
    memset(&event, 0, sizeof(event));
    event.kind = BT_ADMIN_EVENT_OK;
    assert_event(&event, "ok\n");

    event.kind = BT_ADMIN_EVENT_ERROR;
    strncpy(event.u.error, "no process 'a  b'\n100 %", 30);
    assert_event(&event, "error no process 'a  b'%0A100 %25\n");

    memset(&event, 0, sizeof(event));
    event.kind = BT_ADMIN_EVENT_LAUNCHER;
    event.u.launcher.pid = 7;
    event.u.launcher.stopping = 1;
    strncpy(event.u.launcher.version, "0.1.0", 6);
    strncpy(event.u.launcher.run_dir, "/tmp/a b", 9);
    assert_event(&event, "launcher pid=7 version=0.1.0 run_dir=/tmp/a%20b "
                         "state=stopping\n");

    memset(&event, 0, sizeof(event));
    event.kind = BT_ADMIN_EVENT_MODEL;
    strncpy(event.u.model.name, "a", 2);
    strncpy(event.u.model.path, "/m/a=b.gguf", 12);
    event.u.model.prefill = 2;
    assert_event(&event, "model name=a path=/m/a=b.gguf prefill=2 decode=0 "
                         "both=0 state=loaded\n");

    memset(&event, 0, sizeof(event));
    event.kind = BT_ADMIN_EVENT_PROCESS;
    strncpy(event.u.process.name, "router", 7);
    event.u.process.state = BT_ADMIN_PROCESS_WAITING;
    event.u.process.restarts = UINT64_MAX;
    event.u.process.since_ms = 1700000000000;
    strncpy(event.u.process.http, "[::1]:8000", 11);
    assert_event(&event, "process name=router program=router role=none "
                         "state=waiting pid=0 restarts=18446744073709551615 "
                         "since_ms=1700000000000 http=[::1]:8000\n");
    event.u.process.role = BT_ADMIN_ROLE_BOTH;
    memset(event.u.process.http, 0, sizeof(event.u.process.http));
    assert_event(&event, "process name=router program=router role=both "
                         "state=waiting pid=0 restarts=18446744073709551615 "
                         "since_ms=1700000000000\n");
}

static bt_status_t read_event(const char *line, bt_admin_event_t *event_p)
{
    return bt_admin_event_read(line, strlen(line), event_p);
}

static void
what_is_new_is_skipped_and_what_is_missing_has_defaults(void **state)
{
    bt_admin_event_t event;

    (void)state;
    assert_int_equal(read_event("process name=d colour=red pid=9 lone", &event),
                     BT_OK);
    assert_int_equal(event.kind, BT_ADMIN_EVENT_PROCESS);
    assert_string_equal(event.u.process.name, "d");
    assert_int_equal(event.u.process.pid, 9);
    assert_int_equal(event.u.process.state, BT_ADMIN_PROCESS_STOPPED);
    assert_int_equal(event.u.process.role, BT_ADMIN_ROLE_NONE);
    assert_string_equal(event.u.process.model, "");
    assert_int_equal(read_event("weather name=d", &event), BT_ERR_UNSUPPORTED);
    assert_int_equal(read_event("process name=d state=dancing", &event),
                     BT_ERR_UNSUPPORTED);
    assert_string_equal(bt_admin_process_state_name(99), "unknown");
    assert_string_equal(bt_admin_program_name(99), "unknown");
    assert_string_equal(bt_admin_role_name(99), "unknown");
}

static void a_hostile_event_is_refused(void **state)
{
    static const char *const lines[] = {
        "",
        "process name=%00",
        "process pid=-1",
        "process pid=18446744073709551616",
        "process pid=",
        "process pid=1x",
        "error a%0",
        "error \x01",
        "model  name=a",
    };
    bt_admin_event_t event = {.kind = BT_ADMIN_EVENT_OK};
    bt_strbuf_t line;

    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        assert_int_equal(read_event(lines[i], &event), BT_ERR_BAD_MESSAGE);
    }
    bt_strbuf_init(&line, BUF_BYTES);
    bt_strbuf_puts(&line, "process name=");
    for (int i = 0; i < BT_ADMIN_NAME_BYTES; i++) {
        bt_strbuf_puts(&line, "n");
    }
    assert_int_equal(read_event(line.data, &event), BT_ERR_BAD_MESSAGE);
    bt_strbuf_reset(&line);
    bt_strbuf_puts(&line, "error ");
    for (int i = 0; i < BT_ADMIN_TEXT_BYTES; i++) {
        bt_strbuf_puts(&line, "n");
    }
    assert_int_equal(read_event(line.data, &event), BT_ERR_BAD_MESSAGE);
    bt_strbuf_fini(&line);
    assert_int_equal(event.kind, BT_ADMIN_EVENT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(every_order_is_read_and_written_alike),
        BT_TEST(only_load_says_how_many_workers),
        BT_TEST(a_path_may_have_any_byte_but_zero),
        BT_TEST(the_longest_path_and_name_travel_in_the_worst_bytes),
        BT_TEST(a_bad_order_is_named_with_what_there_is),
        BT_TEST(a_hostile_line_is_refused),
        BT_TEST(every_event_is_written_and_read_alike),
        BT_TEST(what_is_new_is_skipped_and_what_is_missing_has_defaults),
        BT_TEST(a_hostile_event_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
