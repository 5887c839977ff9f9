/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <stdio.h>
#include <string.h>

#include "common/admin/admin.h"
#include "common/base/alloc.h"

#define BUF_BYTES (4 * BT_ADMIN_COMMAND_BYTES)
#define MAX_WORDS 8

static bt_admin_command_t command;
static char why[256];

static bt_status_t read_command(const char *line)
{
    why[0] = '\0';
    return bt_admin_command_read(line, strlen(line), &command, why,
                                 sizeof(why));
}

/* Reads words, separated by single spaces. */
static bt_status_t read_words(const char *text)
{
    static char copy[2 * BT_ADMIN_PATH_BYTES];
    const char *words[MAX_WORDS];
    char *rest = NULL;
    uint32_t n = 0;

    snprintf(copy, sizeof(copy), "%s", text);
    for (char *word = strtok_r(copy, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest)) {
        words[n++] = word;
    }
    why[0] = '\0';
    return bt_admin_command_from_words(n, words, &command, why, sizeof(why));
}

static void assert_rejected(bt_status_t status, const char *reason)
{
    assert_int_equal(status, BT_ERR_INVALID_PARAM);
    assert_string_equal(why, reason);
}

static void assert_written(const char *want)
{
    bt_strbuf_t out;

    bt_strbuf_init(&out, BUF_BYTES);
    bt_admin_command_write(&command, &out);
    assert_int_equal(bt_strbuf_status(&out), BT_OK);
    assert_string_equal(out.data, want);
    bt_strbuf_fini(&out);
}

static void every_command_is_read_as_words_and_json_alike(void **state)
{
    static const struct {
        const char *words, *line;
        bt_admin_verb_t verb;
        const char *name;
        bool wait;
    } cases[] = {
        {"status", "{\"command\":\"status\"}\n", BT_ADMIN_VERB_STATUS, "",
         false},
        {"watch", "{\"command\":\"watch\"}\n", BT_ADMIN_VERB_WATCH, "", false},
        {"start decode-0", "{\"command\":\"start\",\"name\":\"decode-0\"}\n",
         BT_ADMIN_VERB_START, "decode-0", false},
        {"stop a.prefill-1",
         "{\"command\":\"stop\",\"name\":\"a.prefill-1\"}\n",
         BT_ADMIN_VERB_STOP, "a.prefill-1", false},
        {"drain decode-0",
         "{\"command\":\"drain\",\"name\":\"decode-0\",\"wait\":true}\n",
         BT_ADMIN_VERB_DRAIN, "decode-0", true},
        {"restart router-1 wait=yes",
         "{\"command\":\"restart\",\"name\":\"router-1\",\"wait\":true}\n",
         BT_ADMIN_VERB_RESTART, "router-1", true},
        {"load-model a", "{\"command\":\"load-model\",\"name\":\"a\"}\n",
         BT_ADMIN_VERB_LOAD, "a", false},
        {"unload-model a wait=yes",
         "{\"command\":\"unload-model\",\"name\":\"a\",\"wait\":true}\n",
         BT_ADMIN_VERB_UNLOAD, "a", true},
        {"role decode-0 prefill",
         "{\"command\":\"role\",\"name\":\"decode-0\",\"role\":\"prefill\"}\n",
         BT_ADMIN_VERB_ROLE, "decode-0", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bt_admin_command_t of_words;

        assert_int_equal(read_words(cases[i].words), BT_OK);
        of_words = command;
        assert_written(cases[i].line);
        memset(&command, 0, sizeof(command));
        assert_int_equal(bt_admin_command_read(cases[i].line,
                                               strlen(cases[i].line) - 1,
                                               &command, why, sizeof(why)),
                         BT_OK);
        assert_memory_equal(&command, &of_words, sizeof(command));
        assert_int_equal(command.verb, cases[i].verb);
        assert_string_equal(command.name, cases[i].name);
        assert_int_equal(command.wait, cases[i].wait);
        assert_string_equal(command.path, "");
        assert_int_equal(command.prefill, BT_ADMIN_UNSET);
    }
    assert_int_equal(command.role, BT_ADMIN_ROLE_PREFILL);
    assert_int_equal(read_words("role a.decode-0 both wait=yes"), BT_OK);
    assert_int_equal(command.role, BT_ADMIN_ROLE_BOTH);
    assert_true(command.wait);
}

static void load_model_has_path_and_counts(void **state)
{
    static const char line[] =
        "{\"command\":\"load-model\",\"name\":\"b\",\"path\":"
        "\"/m/a b=100%\xc3\xa9\\n.gguf\",\"prefill\":0,\"decode\":2}";

    (void)state;
    assert_int_equal(read_command(line), BT_OK);
    assert_string_equal(command.name, "b");
    assert_string_equal(command.path, "/m/a b=100%\xc3\xa9\n.gguf");
    assert_int_equal(command.prefill, 0);
    assert_int_equal(command.decode, 2);
    assert_int_equal(read_words("load-model b=/m/a=b.gguf decode=256"), BT_OK);
    assert_string_equal(command.path, "/m/a=b.gguf");
    assert_int_equal(command.decode, 256);
    assert_written("{\"command\":\"load-model\",\"name\":\"b\",\"path\":"
                   "\"/m/a=b.gguf\",\"decode\":256}\n");
}

/* 0x01 is the worst byte: it is written \u0001. */
static void longest_path_and_name_fit_in_a_line(void **state)
{
    bt_admin_command_t read = {.wait = false};
    bt_strbuf_t out;

    (void)state;
    memset(&command, 0, sizeof(command));
    command.verb = BT_ADMIN_VERB_LOAD;
    command.prefill = BT_ADMIN_UNSET;
    command.decode = 256;
    command.wait = true;
    memset(command.name, 1, sizeof(command.name) - 1);
    memset(command.path, 1, sizeof(command.path) - 1);
    bt_strbuf_init(&out, BT_ADMIN_COMMAND_BYTES);
    bt_admin_command_write(&command, &out);
    assert_int_equal(bt_strbuf_status(&out), BT_OK);
    assert_int_equal(
        bt_admin_command_read(out.data, out.len - 1, &read, why, sizeof(why)),
        BT_OK);
    assert_memory_equal(&read, &command, sizeof(read));
    bt_strbuf_fini(&out);
}

static void bad_command_is_explained_with_the_choices(void **state)
{
    static const struct {
        const char *words, *why;
    } cases[] = {
        {"", "no command"},
        {"reboot",
         "no command 'reboot'; there are: status, watch, start, stop, drain, "
         "restart, load-model, unload-model, role"},
        {"restat a",
         "no command 'restat' (did you mean restart?); there are: status, "
         "watch, start, stop, drain, restart, load-model, unload-model, role"},
        {"role decode-0 decoed",
         "no role 'decoed' (did you mean decode?); there are: prefill, decode, "
         "both"},
        {"load-model a=/m prefil=2",
         "'prefil=2' does not belong to load-model MODEL[=PATH] [prefill=N] "
         "[decode=N]; did you mean prefill=N?"},
        {"stop a prefil=2", "'prefil=2' does not belong to stop NAME"},
        {"stop", "usage: stop NAME"},
        {"load-model", "usage: load-model MODEL[=PATH] [prefill=N] [decode=N]"},
        {"role decode-0", "usage: role NAME prefill|decode|both"},
        {"role decode-0 none",
         "no role 'none'; there are: prefill, decode, both"},
        {"status now", "'now' does not belong to status"},
        {"stop a b", "'b' does not belong to stop NAME"},
        {"load-model a=",
         "a has no path, or one that is too long or not UTF-8"},
        {"load-model a=/\xff",
         "a has no path, or one that is too long or not UTF-8"},
        {"load-model =/a", "'=/a' is not a name"},
        {"load-model a prefill=257",
         "'prefill=257': not a whole number from 0 to 256"},
        {"load-model a decode=", "'decode=': not a whole number from 0 to 256"},
        {"load-model a prefill=99999999999999999999",
         "'prefill=99999999999999999999': not a whole number from 0 to 256"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_rejected(read_words(cases[i].words), cases[i].why);
    }
}

static void hostile_json_is_rejected(void **state)
{
    static const struct {
        const char *line, *why;
    } cases[] = {
        {"[]", "not an object with a \"command\""},
        {"{}", "not an object with a \"command\""},
        {"{\"command\":7}", "not an object with a \"command\""},
        {"{\"command\":\"stop\"}", "usage: stop NAME"},
        {"{\"command\":\"stop\",\"name\":7}", "'' is not a name"},
        {"{\"command\":\"stop\",\"name\":\"a\\u0000b\"}", "'' is not a name"},
        {"{\"command\":\"stop\",\"name\":\"a\",\"role\":\"both\"}",
         "'role' does not belong to stop NAME"},
        {"{\"command\":\"stop\",\"name\":\"a\",\"wait\":1}",
         "'wait' does not belong to stop NAME"},
        {"{\"command\":\"role\",\"name\":\"a\"}",
         "usage: role NAME prefill|decode|both"},
        {"{\"command\":\"load-model\",\"name\":\"a\",\"prefill\":-1}",
         "'prefill': not a whole number from 0 to 256"},
        {"{\"command\":\"load-model\",\"name\":\"a\",\"decode\":\"2\"}",
         "'decode': not a whole number from 0 to 256"},
        {"{\"command\":\"load-model\",\"name\":\"a\",\"path\":\"\"}",
         "a has no path, or one that is too long or not UTF-8"},
    };
    char line[160];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_rejected(read_command(cases[i].line), cases[i].why);
    }
    assert_int_equal(read_command(""), BT_ERR_INVALID_PARAM);
    assert_int_equal(strncmp(why, "not JSON: ", 10), 0);
    assert_int_equal(read_command("{\"command\":\"stop\",\"name\":\"\xff\"}"),
                     BT_ERR_INVALID_PARAM);
    assert_int_equal(strncmp(why, "not JSON: ", 10), 0);

    /* 64 bytes are one too many for a name with its zero, 63 are not. */
    for (int n = 63; n <= 64; n++) {
        snprintf(line, sizeof(line), "{\"command\":\"stop\",\"name\":\"%0*d\"}",
                 n, 0);
        assert_int_equal(read_command(line),
                         (n == 63) ? BT_OK : BT_ERR_INVALID_PARAM);
    }
    bt_alloc_fail_at(1);
    assert_int_equal(read_command("{\"command\":\"status\"}"),
                     BT_ERR_NO_MEMORY);
    bt_alloc_fail_at(0);
    assert_string_equal(why, "out of memory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(every_command_is_read_as_words_and_json_alike),
        BT_TEST(load_model_has_path_and_counts),
        BT_TEST(longest_path_and_name_fit_in_a_line),
        BT_TEST(bad_command_is_explained_with_the_choices),
        BT_TEST(hostile_json_is_rejected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
