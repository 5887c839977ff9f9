/* SPDX-License-Identifier: Apache-2.0 */
/* Back ends that come from plugins, by the one of the tests: a device whose
 * memory the host must not touch (tests/support/trap_backend.h). The argument
 * is its baton_trap.so. */
#include "tests/support/testsupport.h"

#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/status.h"
#include "kernels/kernels.h"

#define BYTES 1000u

static const bt_backend_config_t config = {.n_threads = 1, .max_rows = 4};

static char plugin_dir[PATH_MAX];

static void plugins_in(const char *folder)
{
    assert_int_equal(setenv("BATON_PLUGIN_DIR", folder, 1), 0);
}

static bt_backend_t *open_trap(void)
{
    bt_backend_t *be = NULL;

    assert_int_equal(bt_backend_open("trap", &config, &be), BT_OK);
    assert_string_equal(be->caps->name, "test/trap");
    return be;
}

static void plugin_is_found_only_by_its_name(void **state)
{
    static const char *const names[] = {
        "",  "/trap", "../support/trap", "./trap",     "trap.so", "Trap",
        "t", "trap ", "trap\n",          "baton_trap", "%s%s%n"};
    bt_backend_t *be = NULL;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        assert_int_equal(bt_backend_open(names[i], &config, &be),
                         BT_ERR_NOT_FOUND);
    }
    plugins_in("/nonexistent");
    assert_int_equal(bt_backend_open("trap", &config, &be), BT_ERR_NOT_FOUND);
    assert_int_equal(unsetenv("BATON_PLUGIN_DIR"), 0);
    assert_int_equal(bt_backend_open("trap", &config, &be), BT_ERR_NOT_FOUND);
    assert_null(be);
    plugins_in(plugin_dir);
    be = open_trap();
    bt_backend_close(be);
}

static void invalid_plugin_is_named_in_the_log(void **state)
{
    char dir[] = "/tmp/baton-test-plugin-XXXXXX";
    char path[sizeof(dir) + 32];
    bt_backend_t *be = NULL;
    FILE *file;

    (void)state;
    bt_test_expect_log_lines(1);
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/baton_text.so", dir);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs("not a library\n", file) >= 0);
    assert_int_equal(fclose(file), 0);
    plugins_in(dir);
    assert_int_equal(bt_backend_open("text", &config, &be), BT_ERR_NOT_FOUND);
    assert_null(be);
    plugins_in(plugin_dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

static volatile uint8_t sink;

static bool touch_ends_the_process(uint8_t *at, bool write)
{
    const struct rlimit no_core = {0, 0};
    int status = 0;
    const pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        (void)setrlimit(RLIMIT_CORE, &no_core);
        (void)signal(SIGSEGV, SIG_DFL);
        if (write) {
            *(volatile uint8_t *)at = 1;
        } else {
            sink = *(volatile uint8_t *)at;
        }
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV);
}

static void host_access_to_trap_back_end_memory_faults(void **state)
{
    bt_backend_t *be = open_trap();
    uint8_t out[BYTES], in[BYTES];
    void *buffer = NULL;

    (void)state;
    assert_int_equal(be->ops->buffer_alloc(be, BYTES, &buffer), BT_OK);
    assert_true(touch_ends_the_process(buffer, false));
    assert_true(touch_ends_the_process((uint8_t *)buffer + BYTES - 1, true));
    assert_int_equal(be->ops->copy_out(be, out, buffer, BYTES), BT_OK);
    for (uint32_t i = 0; i < BYTES; i++) {
        assert_int_equal(out[i], 0);
        in[i] = (uint8_t)(i * 7 + 1);
    }
    assert_int_equal(be->ops->copy_in(be, buffer, in, BYTES), BT_OK);
    be->ops->clear(be, (uint8_t *)buffer + 10, 20);
    memset(in + 10, 0, 20);
    assert_int_equal(be->ops->copy_out(be, out, buffer, BYTES), BT_OK);
    assert_memory_equal(out, in, BYTES);
    assert_true(touch_ends_the_process(buffer, false));
    be->ops->buffer_free(be, buffer);
    bt_backend_close(be);
}

/* What kernels/copier.h promises. */
static void trap_back_end_copies_end_when_requested(void **state)
{
    bt_backend_t *be = open_trap();
    bt_copier_t copier = {0};
    void *buffer = NULL;
    void *host = NULL;
    uint8_t out[BYTES];

    (void)state;
    assert_int_equal(be->ops->buffer_alloc(be, BYTES, &buffer), BT_OK);
    assert_int_equal(be->ops->copier_open(be, 2, &copier), BT_OK);
    assert_int_equal(copier.n_tickets, 2);
    assert_int_equal(copier.host_alloc(copier.user, BYTES, &host), BT_OK);
    memset(host, 0x5a, BYTES);
    assert_int_equal(copier.to_device(copier.user, buffer, host, BYTES, 1),
                     BT_OK);
    assert_int_equal(be->ops->copy_out(be, out, buffer, BYTES), BT_OK);
    assert_int_equal(out[0], 0);
    assert_int_equal(copier.query(copier.user, 1), BT_INPROGRESS);
    assert_int_equal(copier.query(copier.user, 1), BT_OK);
    assert_int_equal(be->ops->copy_out(be, out, buffer, BYTES), BT_OK);
    assert_int_equal(out[0], 0x5a);
    assert_int_equal(out[BYTES - 1], 0x5a);

    be->ops->clear(be, buffer, 1);
    assert_int_equal(copier.to_host(copier.user, host, buffer, BYTES, 0),
                     BT_OK);
    copier.wait_all(copier.user);
    assert_int_equal(((uint8_t *)host)[0], 0);
    assert_int_equal(((uint8_t *)host)[1], 0x5a);
    copier.host_free(copier.user, host);
    be->ops->copier_close(&copier);
    assert_null(copier.user);
    be->ops->buffer_free(be, buffer);
    bt_backend_close(be);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(plugin_is_found_only_by_its_name),
        BT_TEST(invalid_plugin_is_named_in_the_log),
        BT_TEST(host_access_to_trap_back_end_memory_faults),
        BT_TEST(trap_back_end_copies_end_when_requested),
    };

    if ((argc != 2) || (strlen(argv[1]) >= sizeof(plugin_dir))) {
        fprintf(stderr, "usage: test_plugin PATH/baton_trap.so\n");
        return 2;
    }
    snprintf(plugin_dir, sizeof(plugin_dir), "%s", argv[1]);
    (void)dirname(plugin_dir); /* cuts it there */
    plugins_in(plugin_dir);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
