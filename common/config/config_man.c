/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/process.h"
#include "common/config/config_options.h"

/* groff: a backslash and a dot or quote at the start of a line have meaning,
 * and a bare dash may be typeset as a hyphen, which breaks copy and paste. */
static void print_escaped(const char *text, bt_strbuf_t *out)
{
    if ((*text == '.') || (*text == '\'')) {
        bt_strbuf_puts(out, "\\&");
    }
    for (; *text != '\0'; text++) {
        if (*text == '\\') {
            bt_strbuf_puts(out, "\\e");
        } else if (*text == '-') {
            bt_strbuf_puts(out, "\\-");
        } else {
            bt_strbuf_append(out, text, 1);
        }
    }
}

/* Nothing, where a value has none. */
static void print_range(const char *before, const bt_option_t *option,
                        const char *behind, bt_strbuf_t *out)
{
    if (option->max > 1) {
        bt_strbuf_puts(out, before);
        bt_config_value_print(option, option->min, out);
        bt_strbuf_puts(out, " to ");
        bt_config_value_print(option, option->max, out);
        bt_strbuf_printf(out, "%s%s%s", (option->unit[0] == '\0') ? "" : " ",
                         option->unit, behind);
    }
}

static void print_description(const bt_option_t *option, bt_strbuf_t *out)
{
    print_escaped(option->help, out);
    bt_strbuf_puts(out, ".\n");
    if (option->details[0] != '\0') {
        print_escaped(option->details, out);
        bt_strbuf_puts(out, ".\n");
    }
    if (option->choices != NULL) {
        bt_strbuf_puts(out, "One of: ");
        print_escaped(option->choices, out);
        bt_strbuf_puts(out, ".\n");
    }
    print_range("From ", option, ".\n", out);
    if ((option->def[0] != '\0') && (option->type != BT_OPTION_PORT)) {
        bt_strbuf_puts(out, "Default: ");
        print_escaped(option->def, out);
        bt_strbuf_puts(out, ".\n");
    }
}

static void print_head(const bt_option_t *option, bool file_key,
                       bt_strbuf_t *out)
{
    /* `./baton serve --help` reads these marks where nothing is built. */
    bt_strbuf_printf(out, ".\\\" %s\n",
                     (option->tier == BT_OPTION_COMMON) ? "common"
                                                        : "advanced");
    bt_strbuf_puts(out, ".TP\n.B ");
    print_escaped(file_key ? "" : "--", out);
    print_escaped(option->name, out);
    if (file_key || (option->metavar != NULL)) {
        bt_strbuf_puts(out, file_key ? "\\fR = \\fI" : "\\fR \\fI");
        print_escaped((option->metavar == NULL) ? "yes|no" : option->metavar,
                      out);
        bt_strbuf_puts(out, "\\fR");
    }
    bt_strbuf_puts(out, "\n");
    print_description(option, out);
}

static void print_option(const bt_option_t *option, bt_strbuf_t *out)
{
    print_head(option, false, out);
}

static void print_key(const bt_option_t *option, bt_strbuf_t *out)
{
    const char *separator = "Read by: ";

    print_head(option, true, out);
    for (unsigned bit = 1; bit <= BT_PROG_DECODE; bit <<= 1) {
        if ((option->programs & bit) != 0) {
            bt_strbuf_puts(out, separator);
            print_escaped(bt_config_program_name(bit), out);
            separator = ", ";
        }
    }
    bt_strbuf_puts(out, ".\n");
}

/* Prints options of any of the programs, up to a tier, under the headings of
 * their sections. */
static void print_sections(unsigned programs, bt_option_tier_t tier,
                           const char *before, const char *behind,
                           void (*print)(const bt_option_t *option,
                                         bt_strbuf_t *out),
                           bt_strbuf_t *out)
{
    const char *title = NULL;

    for (size_t i = 0; i < BT_CONFIG_N_OPTIONS; i++) {
        const bt_option_t *const option = &bt_config_options[i];

        if (((option->programs & programs) == 0) || (option->tier > tier)) {
            continue;
        }
        if (title != bt_config_section(option)) {
            title = bt_config_section(option);
            bt_strbuf_printf(out, "%s%s%s", before, title, behind);
        }
        print(option, out);
    }
}

/* The page of `baton serve` is the page of the whole script. */
static void print_serve_synopsis(bt_strbuf_t *out)
{
    bt_strbuf_puts(
        out,
        ".SH SYNOPSIS\n"
        ".nf\n"
        "\\fBbaton serve\\fR [\\fIMODEL\\fR] [\\fB\\-\\-yes\\fR|\\fB\\-\\-no\\-install\\fR] "
        "[\\fIOPTION\\fR]...\n"
        "\\fBbaton ask\\fR [\\fIWORDS\\fR]... [\\fIOPTION\\fR]...\n"
        "\\fBbaton check\\fR [\\fB\\-\\-json\\fR] [\\fIOPTION\\fR]...\n"
        "\\fBbaton doctor\\fR [\\fB\\-\\-json\\fR] [\\fIOPTION\\fR]...\n"
        "\\fBbaton status\\fR [\\fB\\-\\-json\\fR]\n"
        "\\fBbaton top\\fR [\\fB\\-\\-url\\fR \\fIURL\\fR] "
        "[\\fB\\-\\-once\\fR]\n"
        "\\fBbaton start\\fR|\\fBstop\\fR|\\fBdrain\\fR|\\fBrestart\\fR "
        "\\fINAME\\fR\n"
        "\\fBbaton load\\-model\\fR \\fIMODEL\\fR[=\\fIPATH\\fR] "
        "[prefill=\\fIN\\fR] [decode=\\fIN\\fR]\n"
        "\\fBbaton unload\\-model\\fR \\fIMODEL\\fR\n"
        "\\fBbaton load\\-test\\fR [\\fIOPTION\\fR]...\n"
        "\\fBbaton batch\\fR \\fIFILE\\fR [\\fB\\-o\\fR \\fIOUT\\fR] "
        "[\\fIOPTION\\fR]...\n"
        "\\fBbaton pull\\fR "
        "\\fINAME\\fR|\\fIOWNER\\fR/\\fIREPO\\fR[:\\fIFILE\\fR]|\\fIURL\\fR "
        "[\\fIOPTION\\fR]...\n"
        "\\fBbaton list\\fR [\\fB\\-\\-known\\fR] [\\fB\\-\\-json\\fR]\n"
        "\\fBbaton rm\\fR \\fINAME\\fR...\n"
        "\\fBbaton role\\fR \\fINAME\\fR prefill|decode\n"
        "\\fBbaton key new\\fR \\fITENANT\\fR [\\fB\\-\\-file\\fR "
        "\\fIFILE\\fR]\n"
        "\\fBbaton convert\\fR \\fIMODEL\\fR \\fINEW\\fR "
        "\\fB\\-\\-type\\fR \\fITYPE\\fR [\\fIOPTION\\fR]...\n"
        "\\fBbaton accuracy\\fR \\fIA\\fR \\fIB\\fR "
        "[\\fB\\-\\-text\\fR \\fIFILE\\fR]\n"
        "\\fBbaton completion\\fR bash|zsh\n"
        "\\fBbaton test\\fR [\\fB\\-\\-long\\fR] [\\fINAME\\fR]...\n"
        "\\fBbaton bench\\fR \\fINAME\\fR [\\fB\\-\\-json\\fR]\n"
        "\\fBbaton package deb\\fR [\\fIDIR\\fR]\n"
        "\\fBbaton version\\fR\n"
        ".fi\n");
}

static void print_serve_head(bt_strbuf_t *out)
{
    print_serve_synopsis(out);
    bt_strbuf_puts(
        out,
        ".SH DESCRIPTION\n"
        ".B baton serve\n"
        "fetches and checks the default model where no other was named, and\n"
        "runs routers, prefill workers and decode workers until it gets SIGINT\n"
        "or SIGTERM; then running requests are finished and every process is\n"
        "stopped. A worker that dies is started again, after pauses that grow\n"
        "from 0.5 s to 30 s. In a source tree it first installs what Baton\n"
        "needs, and builds it.\n"
        ".PP\n"
        ".B baton ask\n"
        "sends its words, and what is piped into it, to the running server and\n"
        "prints the answer as it comes; without either, on a terminal, it is a\n"
        "conversation. \\fBBATON_URL\\fR says where the server is, such as\n"
        "http://127.0.0.1:8000/v1; \\fBbaton ask \\-\\-help\\fR tells its options.\n"
        ".PP\n"
        ".B baton load\\-test\n"
        "sends requests to a server at a rate, and prints latencies and\n"
        "goodput; \\fBbaton load\\-test \\-\\-help\\fR tells its options.\n"
        ".PP\n"
        ".B baton batch\n"
        "has the requests of a file run when the server has room beside those\n"
        "of clients, and writes their answers into another file; the server\n"
        "needs \\fB\\-\\-store\\fR. \\fBbaton batch \\-\\-help\\fR tells its options.\n"
        ".PP\n"
        ".B baton doctor\n"
        "tells what this machine can do, what stands in the way of serving on "
        "it, and\n"
        "the lines that fix it.\n"
        ".B baton check\n"
        "tells what options of\n"
        ".B baton serve\n"
        "come to, where each was said, and all that is wrong with them; it "
        "starts\n"
        "nothing. Both end with 1 where there are problems.\n"
        ".PP\n"
        ".B baton status\n"
        "lists the processes and models of the running server, and says why "
        "one of them\n"
        "does not serve;\n"
        ".BR start ,\\  stop ,\\  drain ,\\  restart ,\\  load\\-model ,\\  unload\\-model\n"
        "and\n"
        ".B role\n"
        "change them. \\fB\\-\\-run\\-dir\\fR \\fIDIR\\fR or "
        "\\fBBATON_RUN_DIR\\fR names one of\n"
        "several servers; \\fBbaton status \\-\\-help\\fR tells more.\n"
        ".PP\n"
        ".B baton top\n"
        "shows in a terminal how the cluster stands, as it goes on;\n"
        "\\fBbaton top \\-\\-help\\fR tells its keys and options.\n"
        ".PP\n"
        ".B baton pull\n"
        "fetches a model of a server with the API of the Hugging Face Hub\n"
        "(\\fBHF_ENDPOINT\\fR, \\fBHF_TOKEN\\fR) or a .gguf file of any, "
        "checks it, and goes\n"
        "on where it was stopped; \\fBbaton serve \\-\\-model\\fR "
        "\\fINAME\\fR finds it.\n"
        ".B baton list\n"
        "shows the models that are here, or with \\fB\\-\\-known\\fR the "
        "names that\n"
        ".B baton pull\n"
        "knows;\n"
        ".B baton rm\n"
        "removes some. \\fBbaton pull \\-\\-help\\fR tells more.\n"
        ".PP\n"
        ".B baton key new\n"
        "makes an API key for the file of \\fB\\-\\-api\\-keys\\fR: the key is "
        "printed once,\n"
        "and the line for the file has its hash.\n"
        ".PP\n"
        ".B baton convert\n"
        "writes a model as a GGUF file of another type, and\n"
        ".B baton accuracy\n"
        "tells how far one model file is from another over a text; "
        "\\fB\\-\\-help\\fR of either\n"
        "tells more.\n"
        ".PP\n"
        ".B baton completion\n"
        "prints what a shell reads to complete these words, such as by\n"
        "\\fBsource <(baton completion bash)\\fR.\n"
        ".PP\n"
        "In a source tree alone,\n"
        ".B baton test\n"
        "runs all tests and ends with one total,\n"
        ".B baton bench\n"
        "runs a benchmark, and\n"
        ".B baton package deb\n"
        "makes a Debian package.\n"
        ".SH OPTIONS OF BATON SERVE\n"
        ".TP\n"
        ".B \\-\\-yes\n"
        "In a source tree: install missing packages without asking.\n"
        ".TP\n"
        ".B \\-\\-no\\-install\n"
        "In a source tree: install nothing; say what is missing.\n");
}

static void print_tail(unsigned program, bt_strbuf_t *out)
{
    bt_strbuf_puts(
        out,
        ".SS General\n"
        ".TP\n"
        ".B \\-\\-config\\fR \\fIFILE\\fR\n"
        "Read options from a file; see\n"
        ".BR baton.conf (5).\n"
        ".TP\n"
        ".BR \\-\\-help ,\\  \\-\\-help\\-all ,\\  \\-\\-version\n"
        "Print and stop: the common options, all options, the version.\n"
        ".SH ENVIRONMENT\n"
        "Each option is also a variable: \\fBBATON_KV_MEMORY\\fR for\n"
        "\\fB\\-\\-kv\\-memory\\fR. The command line wins over the environment,\n"
        "the environment over the file. An empty variable counts as unset.\n");
    if (program == BT_PROG_SERVE) {
        bt_strbuf_puts(
            out, "The default model is kept in \\fB$XDG_CACHE_HOME/baton\\fR\n"
                 "(\\fB~/.cache/baton\\fR), where those of\n"
                 ".B baton pull\n"
                 "are too, without \\fB\\-\\-models\\-dir\\fR.\n");
    }
    bt_strbuf_puts(
        out,
        ".SH EXIT STATUS\n"
        "0 after a clean stop or an order that was carried out, 1 after an\n"
        "error that was reported on standard error, 2 after an order that\n"
        "was not understood.\n"
        ".SH SEE ALSO\n"
        ".BR baton (1),\n"
        ".BR baton\\-router (1),\n"
        ".BR baton\\-prefill\\-worker (1),\n"
        ".BR baton\\-decode\\-worker (1),\n"
        ".BR baton.conf (5)\n");
}

static void print_conf_page(bt_strbuf_t *out)
{
    bt_strbuf_printf(out, ".TH BATON.CONF 5 \"\" \"Baton %s\" Baton\n",
                     bt_config_version());
    bt_strbuf_puts(
        out,
        ".SH NAME\n"
        "baton.conf \\- options of Baton's programs in a file\n"
        ".SH DESCRIPTION\n"
        "Named by\n"
        ".BR \\-\\-config .\n"
        "Lines are \\fIkey\\fR = \\fIvalue\\fR; a # at the start of a line or\n"
        "after a space begins a comment. One file may serve all programs: each\n"
        "takes its own keys. An unknown key, a key given twice or a value out\n"
        "of range is an error. Sizes are written 512m, 2g, 2GB or 2GiB (powers\n"
        "of 1024, all of them).\n"
        ".SH EXAMPLE\n"
        ".nf\n"
        "# two prefill workers for one decode worker\n"
        "prefill = 2\n"
        "kv\\-memory = 1g\n"
        "http = 0.0.0.0:8000\n"
        "api\\-keys = /etc/baton/keys\n"
        ".fi\n"
        ".SH KEYS\n");
    print_sections(~0u, BT_OPTION_ADVANCED, ".SS ", "\n", print_key, out);
    bt_strbuf_puts(out, ".SH SEE ALSO\n.BR baton (1)\n");
}

void bt_config_print_man(unsigned program, bt_strbuf_t *out)
{
    const bool serve = (program == BT_PROG_SERVE);
    const char *const name = serve ? "baton" : bt_config_program_name(program);

    bt_strbuf_puts(out,
                   ".\\\" Generated from the option table: do not edit.\n");
    if (program == 0) {
        print_conf_page(out);
        return;
    }

    bt_strbuf_puts(out, ".TH ");
    for (const char *c = name; *c != '\0'; c++) {
        const char upper = (char)(((*c >= 'a') && (*c <= 'z')) ? *c - 32 : *c);

        bt_strbuf_append(out, &upper, 1);
    }
    bt_strbuf_printf(out, " 1 \"\" \"Baton %s\" Baton\n.SH NAME\n",
                     bt_config_version());
    print_escaped(name, out);
    bt_strbuf_puts(out, " \\- ");
    print_escaped(bt_config_program_title(program), out);
    bt_strbuf_puts(out, "\n");
    if (serve) {
        print_serve_head(out);
    } else {
        bt_strbuf_puts(out, ".SH SYNOPSIS\n.B ");
        print_escaped(name, out);
        bt_strbuf_puts(out, "\n[\\fIOPTION\\fR]...\n.SH OPTIONS\n");
    }
    print_sections(program, BT_OPTION_ADVANCED, ".SS ", "\n", print_option,
                   out);
    print_tail(program, out);
}

/* The option table as Markdown, for docs/OPTIONS.md. */

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
    print_range(". From ", option, "", out);
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
    print_sections(~0u, BT_OPTION_ADVANCED, "\n## ",
                   "\n\n| Option | Default | Read by | What "
                   "|\n|---|---|---|---|\n",
                   put_option, out);
}

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

static void print_help_option(const bt_option_t *option, bt_strbuf_t *out)
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

void bt_config_help_print(unsigned program, bt_option_tier_t tier,
                          bt_strbuf_t *out)
{
    const char *const name = bt_config_program_name(program);
    const bool serve = (program == BT_PROG_SERVE);

    bt_strbuf_printf(out, "%s: %s\n\nUsage: %s %s[--OPTION VALUE]...\n", name,
                     bt_config_program_title(program), name,
                     serve ? "[[NAME=]MODEL]... " : "");
    print_sections(program, tier, "\n", ":\n", print_help_option, out);
    bt_strbuf_puts(
        out,
        "\nGeneral:\n"
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
