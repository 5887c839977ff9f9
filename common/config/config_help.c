/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/process.h"
#include "common/config/config_options.h"

#define HELP_COLUMN 6
#define LAST_COLUMN 79

/* Append words of text, broken at LAST_COLUMN and indented. */
static void print_wrapped(const char *text, bt_strbuf_t *out)
{
    size_t column = 0;

    while (*text != '\0') {
        size_t n;

        /* Help is written for the source tree. */
        if ((strncmp(text, "./baton", 7) == 0) &&
            (bt_process_command()[0] != '.')) {
            text += 2;
        }
        n = strcspn(text, " ");
        if (column == 0) {
            bt_strbuf_printf(out, "%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        } else if (column + 1 + n > LAST_COLUMN) {
            bt_strbuf_printf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        } else {
            bt_strbuf_puts(out, " ");
            column++;
        }
        bt_strbuf_append(out, text, n);
        column += n;
        text += n;
        text += strspn(text, " ");
    }
    bt_strbuf_puts(out, "\n");
}

static void print_option(const bt_option_t *option, bt_strbuf_t *out)
{
    bt_strbuf_t text;

    bt_strbuf_printf(out, "  --%s%s%s\n", option->name,
                     (option->metavar == NULL) ? "" : " ",
                     (option->metavar == NULL) ? "" : option->metavar);

    bt_strbuf_init(&text, 4096);
    bt_strbuf_puts(&text, option->help);
    if (option->choices != NULL) {
        bt_strbuf_printf(&text, ": %s", option->choices);
    }
    if ((option->def[0] != '\0') && (option->type != BT_OPTION_FLAG) &&
        (option->type != BT_OPTION_PORT)) {
        bt_strbuf_printf(&text, " (default %s%s)", option->def,
                         (strcmp(option->unit, "ms") == 0) ? " ms" : "");
    }
    if (bt_strbuf_status(&text) == BT_OK) {
        print_wrapped(text.data, out);
    } else {
        out->status = bt_strbuf_status(&text);
    }
    bt_strbuf_fini(&text);
}

static void print_group(unsigned program, bt_option_tier_t tier, size_t group,
                        bt_strbuf_t *out)
{
    if (!bt_config_group_is_used(group, program, tier)) {
        return;
    }
    bt_strbuf_printf(out, "%s:\n", bt_config_groups[group].title);
    for (size_t i = 0; i < BT_CONFIG_N_OPTIONS; i++) {
        const bt_option_t *const option = &bt_config_options[i];

        if (((option->programs & program) != 0) && (option->tier <= tier) &&
            (bt_config_group_of(option) == group)) {
            print_option(option, out);
        }
    }
    bt_strbuf_puts(out, "\n");
}

void bt_config_help_print(unsigned program, bt_option_tier_t tier,
                          bt_strbuf_t *out)
{
    const char *const name = bt_config_program_name(program);
    const bool serve = (program == BT_PROG_SERVE);

    bt_strbuf_printf(out, "%s: %s\n\nUsage: %s %s[--OPTION VALUE]...\n\n", name,
                     bt_config_program_title(program), name,
                     serve ? "[[NAME=]MODEL]... " : "");
    for (size_t i = 0; i < BT_CONFIG_N_GROUPS; i++) {
        print_group(program, tier, i, out);
    }
    bt_strbuf_puts(
        out,
        "General:\n"
        "  --config FILE\n"
        "      Read options from FILE: lines `kv-memory = 1g`, # comments\n"
        "  --help, --help-all, --version\n"
        "\n");
    bt_strbuf_printf(
        out, "%s",
        (tier == BT_OPTION_COMMON)
            ? "These are the common options; --help-all lists the others too.\n"
            : "The manual page says more about some of them.\n");
    bt_strbuf_puts(
        out,
        "Each option is also a variable: BATON_KV_MEMORY for --kv-memory. The\n"
        "command line wins over the environment, the environment over FILE.\n"
        "Sizes: 512m, 2g, 2GB, 2GiB: powers of 1024, all of them.\n");
}
