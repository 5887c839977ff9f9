/* SPDX-License-Identifier: Apache-2.0 */
/* The option table as Markdown, for docs/OPTIONS.md. */
#include <string.h>

#include "common/config/config_options.h"

/* A bar would end the cell; <think> would be HTML, and not shown. */
static void put_cell(const char *text, bt_strbuf_t *out)
{
    for (; *text != '\0'; text++) {
        if (*text == '<') {
            bt_strbuf_puts(out, "&lt;");
            continue;
        }
        if ((*text == '|') || (*text == '*')) {
            bt_strbuf_puts(out, "\\");
        }
        bt_strbuf_append(out, text, 1);
    }
}

static void put_default(const bt_option_t *option, bt_strbuf_t *out)
{
    if ((option->def[0] == '\0') || (option->type == BT_OPTION_PORT)) {
        return;
    }
    bt_strbuf_puts(out, "`");
    put_cell(option->def, out);
    bt_strbuf_printf(out, "`%s",
                     (strcmp(option->unit, "ms") == 0) ? " ms" : "");
}

static void put_programs(const bt_option_t *option, bt_strbuf_t *out)
{
    static const struct {
        unsigned program;
        const char *name;
    } programs[] = {
        {BT_PROG_SERVE, "serve"},
        {BT_PROG_ROUTER, "router"},
        {BT_PROG_PREFILL, "prefill"},
        {BT_PROG_DECODE, "decode"},
    };
    const char *separator = "";

    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
        if ((option->programs & programs[i].program) != 0) {
            bt_strbuf_printf(out, "%s%s", separator, programs[i].name);
            separator = ", ";
        }
    }
}

static void put_option(const bt_option_t *option, bt_strbuf_t *out)
{
    bt_strbuf_printf(out, "| `--%s%s", option->name,
                     (option->metavar == NULL) ? "" : " ");
    put_cell((option->metavar == NULL) ? "" : option->metavar, out);
    bt_strbuf_puts(out, "` | ");
    put_default(option, out);
    bt_strbuf_puts(out, " | ");
    put_programs(option, out);
    bt_strbuf_puts(out, " | ");
    put_cell(option->help, out);
    if (option->details[0] != '\0') {
        bt_strbuf_puts(out, ". ");
        put_cell(option->details, out);
    }
    if (option->choices != NULL) {
        bt_strbuf_puts(out, ". One of: ");
        put_cell(option->choices, out);
    }
    if (option->max > 1) {
        bt_strbuf_puts(out, ". From ");
        bt_config_value_print(option, option->min, out);
        bt_strbuf_puts(out, " to ");
        bt_config_value_print(option, option->max, out);
        bt_strbuf_printf(out, "%s%s", (option->unit[0] == '\0') ? "" : " ",
                         option->unit);
    }
    bt_strbuf_puts(out, " |\n");
}

void bt_config_print_doc(bt_strbuf_t *out)
{
    bt_strbuf_puts(
        out,
        "<!-- made by baton-launch --print-man OPTIONS.md -->\n"
        "# Options\n\n"
        "Of `./baton serve` (serve), `baton-router`, `baton-prefill-worker` and "
        "`baton-decode-worker`;\n`./baton serve` gives its processes what is "
        "theirs. Each option is also a variable, `BATON_KV_MEMORY` for\n"
        "`--kv-memory`, and a line of the file of `--config`, `kv-memory = 1g`. "
        "The command line wins over the\nenvironment, the environment over "
        "the file. Sizes: `512m`, `2g`: powers of 1024. The manual pages in\n"
        "`docs/man` say the same.\n");
    for (size_t group = 0; group < BT_CONFIG_N_GROUPS; group++) {
        bt_strbuf_printf(out,
                         "\n## %s\n\n| Option | Default | Read by | What |\n"
                         "|---|---|---|---|\n",
                         bt_config_groups[group].title);
        for (size_t i = 0; i < BT_CONFIG_N_OPTIONS; i++) {
            if ((bt_config_options[i].tier != BT_OPTION_INTERNAL) &&
                (bt_config_group_of(&bt_config_options[i]) == group)) {
                put_option(&bt_config_options[i], out);
            }
        }
    }
}
