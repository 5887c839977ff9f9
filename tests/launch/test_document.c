/* SPDX-License-Identifier: Apache-2.0 */
/* The table of ./baton status. */
#include "tests/support/testsupport.h"

#include <string.h>

#include "launcher/document.h"

#define OUT_BYTES 65536
#define NOW_MS    UINT64_C(1700000000000)

static bt_admin_model_t models[1];
static bt_admin_process_t processes[4];

static void set_process(bt_admin_process_t *process, const char *name,
                        uint32_t program, uint32_t state, uint64_t age_ms)
{
    memset(process, 0, sizeof(*process));
    strncpy(process->name, name, sizeof(process->name) - 1);
    process->program = program;
    process->state = state;
    process->since_ms = NOW_MS - age_ms;
    if (program == BT_ADMIN_PROGRAM_ROUTER) {
        strncpy(process->http, "[::1]:8000", 11);
    } else {
        strncpy(process->model, "tiny", 5);
        process->role = program;
    }
    process->pid = (state == BT_ADMIN_PROCESS_READY) ? 4711 : 0;
}

static bt_admin_document_t document(void)
{
    bt_admin_document_t made = {
        .now_unix_ms = NOW_MS,
        .has_launcher = true,
        .launcher = {.pid = 12,
                     .version = "0.1.0",
                     .run_dir = "/tmp/baton-a1b2c3"},
        .models = models,
        .n_models = 1,
        .processes = processes,
        .n_processes = 4,
    };

    models[0] = (bt_admin_model_t){.name = "tiny",
                                   .path = "/m/\"tiny\".gguf",
                                   .prefill = 1,
                                   .decode = 1,
                                   .both = 1,
                                   .loaded = true};
    set_process(&processes[0], "router", BT_ADMIN_PROGRAM_ROUTER,
                BT_ADMIN_PROCESS_READY, 93784000);
    set_process(&processes[1], "prefill-0", BT_ADMIN_PROGRAM_PREFILL,
                BT_ADMIN_PROCESS_READY, 3661000);
    set_process(&processes[2], "prefill-1", BT_ADMIN_PROGRAM_PREFILL,
                BT_ADMIN_PROCESS_STOPPED, 61999);
    set_process(&processes[3], "decode-0", BT_ADMIN_PROGRAM_DECODE,
                BT_ADMIN_PROCESS_WAITING, 999);
    processes[2].role = BT_ADMIN_ROLE_BOTH;
    return made;
}

/* 93784 s = 1 day, 2 h, 3 min, 4 s; 3661 s = 1 h, 1 min, 1 s. */
static void the_table_is_for_people(void **state)
{
    const bt_admin_document_t shown = document();
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, OUT_BYTES);
    bt_document_print_table(&shown, &out);
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
}

static void a_process_that_does_not_serve_is_named_with_the_reason(void **state)
{
    const bt_admin_document_t shown = document();
    bt_strbuf_t out;

    (void)state;
    strncpy(processes[1].why, "linked with 0 of 1 routers", 27);
    strncpy(processes[3].why, "ended by signal 9 (Killed)", 27);
    bt_strbuf_init(&out, OUT_BYTES);
    bt_document_print_table(&shown, &out);
    assert_int_equal(bt_strbuf_status(&out), BT_OK);
    assert_non_null(strstr(out.data, "  0\n"
                                     "\n"
                                     "prefill-0: linked with 0 of 1 routers\n"
                                     "decode-0: ended by signal 9 (Killed)\n"));
    bt_strbuf_fini(&out);
}

static void an_address_with_tls_is_shown_as_the_router_reported_it(void **state)
{
    const bt_admin_document_t shown = document();
    bt_strbuf_t out;

    (void)state;
    strncpy(processes[0].http, "https://[::1]:8000", 19);
    bt_strbuf_init(&out, OUT_BYTES);
    bt_document_print_table(&shown, &out);
    assert_int_equal(bt_strbuf_status(&out), BT_OK);
    assert_non_null(strstr(out.data, " https://[::1]:8000\n"));
    assert_null(strstr(out.data, "http://https"));
    bt_strbuf_fini(&out);
}

/* A clock that was set back makes no age negative. */
static void a_launcher_that_stops_and_an_unloaded_model_are_named(void **state)
{
    bt_admin_document_t shown = document();
    bt_strbuf_t out;

    (void)state;
    shown.launcher.stopping = 1;
    shown.n_processes = 1;
    models[0].loaded = false;
    processes[0].since_ms = NOW_MS + 5;
    bt_strbuf_init(&out, OUT_BYTES);
    bt_document_print_table(&shown, &out);
    assert_non_null(strstr(out.data, " in /tmp/baton-a1b2c3, stopping\n"));
    assert_non_null(strstr(out.data, "model tiny: unloaded, "));
    assert_non_null(strstr(out.data, "  4711  0s "));
    bt_strbuf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(the_table_is_for_people),
        BT_TEST(a_process_that_does_not_serve_is_named_with_the_reason),
        BT_TEST(an_address_with_tls_is_shown_as_the_router_reported_it),
        BT_TEST(a_launcher_that_stops_and_an_unloaded_model_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
