/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/testsupport.h"

#include <stdio.h>

#include "common/base/alloc.h"
#include "common/config/config.h"

#define PAGE_BYTES 65536

/* The committed page is what the option table says today. To renew them:
 * build, then `baton-launch --print-man NAME > docs/man/NAME`, and the same of
 * OPTIONS.md into docs. */
static void assert_same(const bt_strbuf_t *page, const char *relative)
{
    char *committed = bt_calloc(PAGE_BYTES, 1);
    FILE *file;

    file = fopen(bt_test_path(relative), "r");
    assert_non_null(file);
    assert_non_null(committed);
    assert_true(fread(committed, 1, PAGE_BYTES - 1, file) > 0);
    fclose(file);

    assert_int_equal(bt_strbuf_status(page), BT_OK);
    assert_string_equal(page->data, committed);
    bt_free(committed);
}

static void assert_current(unsigned program, const char *file_name)
{
    char relative[128];
    bt_strbuf_t page;

    snprintf(relative, sizeof(relative), "../docs/man/%s", file_name);
    bt_strbuf_init(&page, PAGE_BYTES);
    bt_config_print_man(program, &page);
    assert_same(&page, relative);
    bt_strbuf_fini(&page);
}

static void committed_man_pages_are_current(void **state)
{
    (void)state;
    assert_current(BT_PROG_SERVE, "baton.1");
    assert_current(BT_PROG_ROUTER, "baton-router.1");
    assert_current(BT_PROG_PREFILL, "baton-prefill-worker.1");
    assert_current(BT_PROG_DECODE, "baton-decode-worker.1");
    assert_current(0, "baton.conf.5");
}

static void committed_options_page_is_current(void **state)
{
    bt_strbuf_t page;

    (void)state;
    bt_strbuf_init(&page, PAGE_BYTES);
    bt_config_print_doc(&page);
    assert_same(&page, "../docs/OPTIONS.md");
    bt_strbuf_fini(&page);
}

static void man_page_over_the_buffer_size_is_an_error(void **state)
{
    bt_strbuf_t page;

    (void)state;
    bt_strbuf_init(&page, 1000);
    bt_config_print_man(BT_PROG_SERVE, &page);
    assert_int_equal(bt_strbuf_status(&page), BT_ERR_TOO_LARGE);
    bt_strbuf_fini(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(committed_man_pages_are_current),
        BT_TEST(committed_options_page_is_current),
        BT_TEST(man_page_over_the_buffer_size_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
