/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "common/admin/admin.h"
#include "common/base/alloc.h"

#define BUF_BYTES (4 * BT_ADMIN_COMMAND_BYTES)

static bt_admin_reply_t reply;

static bt_status_t read_reply(const char *line)
{
    return bt_admin_reply_read(line, strlen(line), &reply);
}

static void assert_reply(const bt_admin_reply_t *written, const char *want)
{
    bt_strbuf_t out;

    bt_strbuf_init(&out, BUF_BYTES);
    bt_admin_reply_write(written, &out);
    assert_int_equal(bt_strbuf_status(&out), BT_OK);
    assert_string_equal(out.data, want);
    assert_int_equal(bt_admin_reply_read(out.data, out.len - 1, &reply), BT_OK);
    bt_strbuf_reset(&out);
    bt_admin_reply_write(&reply, &out);
    assert_string_equal(out.data, want);
    bt_admin_document_fini(&reply.document);
    bt_strbuf_fini(&out);
}

static void every_reply_is_read_as_it_was_written(void **state)
{
    bt_admin_model_t model = {
        .name = "a", .path = "/m/\"a\".gguf", .prefill = 2, .loaded = true};
    bt_admin_process_t process = {.name = "router",
                                  .state = BT_ADMIN_PROCESS_WAITING,
                                  .restarts = UINT64_MAX,
                                  .since_ms = 1700000000000,
                                  .http = "[::1]:8000"};
    bt_admin_reply_t written = {.result = BT_ADMIN_OK};

    (void)state;
    assert_reply(&written, "{\"ok\":true}\n");
    written.result = BT_ADMIN_ERROR;
    snprintf(written.error, sizeof(written.error), "%s",
             "no process 'a'\n100 %");
    assert_reply(&written,
                 "{\"ok\":false,\"error\":\"no process 'a'\\n100 %\"}\n");
    written =
        (bt_admin_reply_t){.document = {.has_launcher = true,
                                        .launcher = {.pid = 7,
                                                     .version = "0.2.0",
                                                     .run_dir = "/tmp/a b",
                                                     .stopping = 1}}};
    assert_reply(&written,
                 "{\"launcher\":{\"pid\":7,\"version\":\"0.2.0\","
                 "\"run_dir\":\"/tmp/a b\",\"state\":\"stopping\"}}\n");
    written = (bt_admin_reply_t){.result = BT_ADMIN_OK,
                                 .document = {.now_unix_ms = 5,
                                              .models = &model,
                                              .n_models = 1,
                                              .processes = &process,
                                              .n_processes = 1}};
    assert_reply(
        &written,
        "{\"ok\":true,\"now_unix_ms\":5,\"models\":[{\"name\":\"a\","
        "\"loaded\":true,\"path\":\"/m/\\\"a\\\".gguf\",\"prefill\":2,"
        "\"decode\":0,\"both\":0}],\"processes\":[{\"name\":\"router\","
        "\"program\":\"router\",\"role\":null,\"model\":null,\"state\":"
        "\"waiting\",\"pid\":0,\"restarts\":18446744073709551615,"
        "\"since_ms\":1700000000000,\"http\":\"[::1]:8000\",\"metrics\":null,"
        "\"why\":null}]}\n");
}

static void
unknown_members_are_skipped_and_missing_ones_have_defaults(void **state)
{
    (void)state;
    assert_int_equal(
        read_reply("{\"weather\":[1],\"processes\":[{\"name\":\"d\","
                   "\"colour\":\"red\",\"pid\":9},{\"name\":\"e\","
                   "\"state\":\"dancing\"},{\"name\":\"f\"}]}"),
        BT_OK);
    assert_int_equal(reply.result, BT_ADMIN_CHANGE);
    assert_false(reply.document.has_launcher);
    assert_null(reply.document.models);
    assert_int_equal(reply.document.n_processes, 2);
    assert_string_equal(reply.document.processes[0].name, "d");
    assert_int_equal(reply.document.processes[0].pid, 9);
    assert_int_equal(reply.document.processes[0].state,
                     BT_ADMIN_PROCESS_STOPPED);
    assert_string_equal(reply.document.processes[0].model, "");
    assert_string_equal(reply.document.processes[1].name, "f");
    bt_admin_document_fini(&reply.document);
    assert_string_equal(bt_admin_process_state_name(99), "unknown");
    assert_string_equal(bt_admin_program_name(99), "unknown");
    assert_string_equal(bt_admin_role_name(99), "unknown");
    assert_string_equal(bt_admin_role_name(BT_ADMIN_ROLE_NONE), "none");
    assert_string_equal(bt_admin_verb_name((bt_admin_verb_t)99), "unknown");
}

static void hostile_reply_is_rejected(void **state)
{
    static const char *const lines[] = {
        "",
        "7",
        "[]",
        "{\"ok\":1}",
        "{\"ok\":false}",
        "{\"ok\":false,\"error\":7}",
        "{\"launcher\":[]}",
        "{\"launcher\":{\"pid\":-1}}",
        "{\"models\":{}}",
        "{\"models\":[7]}",
        "{\"models\":[{\"name\":\"a\",\"loaded\":1}]}",
        "{\"processes\":[{\"name\":\"a\\u0000b\"}]}",
        "{\"processes\":[{\"pid\":18446744073709551616}]}",
        "{\"processes\":[{\"state\":7}]}",
        "{\"processes\":[{}],\"processes\":[]}",
    };
    char line[128];

    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        assert_int_equal(read_reply(lines[i]), BT_ERR_BAD_MESSAGE);
    }
    snprintf(line, sizeof(line), "{\"processes\":[{\"name\":\"%0*d\"}]}",
             BT_ADMIN_NAME_BYTES, 0);
    assert_int_equal(read_reply(line), BT_ERR_BAD_MESSAGE);
}

/* U+FFFD has three bytes, and stands for one that is no UTF-8. */
static void prose_that_grew_by_its_encoding_is_cut(void **state)
{
    bt_admin_reply_t written = {.result = BT_ADMIN_ERROR};
    bt_strbuf_t out;

    (void)state;
    memset(written.error, 0xff, sizeof(written.error) - 1);
    bt_strbuf_init(&out, BUF_BYTES);
    bt_admin_reply_write(&written, &out);
    assert_int_equal(bt_admin_reply_read(out.data, out.len - 1, &reply), BT_OK);
    assert_int_equal(strlen(reply.error), (BT_ADMIN_TEXT_BYTES - 1) / 3 * 3);
    bt_strbuf_fini(&out);
}

static void
a_change_replaces_entries_of_its_names_and_appends_others(void **state)
{
    bt_admin_document_t document = {.now_unix_ms = 0};

    (void)state;
    assert_int_equal(
        read_reply("{\"launcher\":{\"pid\":1},\"models\":[{\"name\":\"m\"}],"
                   "\"processes\":[{\"name\":\"a\",\"pid\":1},{\"name\":\"b\","
                   "\"pid\":2}]}"),
        BT_OK);
    assert_int_equal(bt_admin_document_merge(&document, &reply.document),
                     BT_OK);
    bt_admin_document_fini(&reply.document);
    assert_int_equal(
        read_reply("{\"processes\":[{\"name\":\"b\",\"pid\":3},{\"name\":"
                   "\"c\",\"pid\":4}]}"),
        BT_OK);
    assert_int_equal(bt_admin_document_merge(&document, &reply.document),
                     BT_OK);
    assert_true(document.has_launcher);
    assert_int_equal(document.n_models, 1);
    assert_int_equal(document.n_processes, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(document.processes[i].pid, (i == 0) ? 1 : i + 2);
    }
    reply.document.processes[0].name[0] = 'd';
    bt_alloc_fail_at(1);
    assert_int_equal(bt_admin_document_merge(&document, &reply.document),
                     BT_ERR_NO_MEMORY);
    bt_alloc_fail_at(0);
    assert_int_equal(document.n_processes, 3);
    bt_admin_document_fini(&reply.document);
    bt_admin_document_fini(&document);
}

static void reply_survives_failed_allocations(void **state)
{
    int nth = 1;

    (void)state;
    for (;; nth++) {
        bt_status_t status;

        bt_alloc_fail_at(nth);
        status = read_reply("{\"ok\":true,\"models\":[{\"name\":\"m\"}],"
                            "\"processes\":[{\"name\":\"a\"}]}");
        bt_alloc_fail_at(0);
        if (status == BT_OK) {
            break;
        }
        assert_int_equal(status, BT_ERR_NO_MEMORY);
    }
    assert_true(nth > 3); /* document, models, processes */
    bt_admin_document_fini(&reply.document);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(every_reply_is_read_as_it_was_written),
        BT_TEST(unknown_members_are_skipped_and_missing_ones_have_defaults),
        BT_TEST(hostile_reply_is_rejected),
        BT_TEST(prose_that_grew_by_its_encoding_is_cut),
        BT_TEST(a_change_replaces_entries_of_its_names_and_appends_others),
        BT_TEST(reply_survives_failed_allocations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
