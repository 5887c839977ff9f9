/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/base/status.h"
#include "common/config/config_options.h"

/* Completion of an option's value. */
typedef enum value_kind {
    VALUE_NONE, /* option without value */
    VALUE_WORDS,
    VALUE_FILE,
    VALUE_FOLDER,
    VALUE_MODEL, /* a file, or one of `baton list` */
    VALUE_OTHER, /* nothing to offer */
} value_kind_t;

static value_kind_t kind_of(const bt_option_t *option)
{
    if (option->type == BT_OPTION_FLAG) {
        return VALUE_NONE;
    }
    if (option->type == BT_OPTION_MODELS) {
        return VALUE_MODEL;
    }
    if (option->choices != NULL) {
        return VALUE_WORDS;
    }
    if (bt_ends_with(option->metavar, "FILE")) {
        return VALUE_FILE;
    }
    return bt_ends_with(option->metavar, "DIR") ? VALUE_FOLDER : VALUE_OTHER;
}

static bool is_offered(const bt_option_t *option)
{
    return ((option->programs & BT_PROG_SERVE) != 0) &&
           (option->tier != BT_OPTION_INTERNAL);
}

/* "a, b, c" as "a b c" */
static void print_choices(const bt_option_t *option, bt_strbuf_t *out)
{
    for (const char *c = option->choices; *c != '\0'; c++) {
        if (*c != ',') {
            bt_strbuf_append(out, c, 1);
        }
    }
}

static void print_words(const char *const *words, size_t n, bt_strbuf_t *out)
{
    for (size_t i = 0; i < n; i++) {
        bt_strbuf_printf(out, "%s%s", (i == 0) ? "" : " ", words[i]);
    }
}

/* ---- bash ---- */

/* Prints ` --a | --b)` for all options whose values are of this kind. */
static void print_pattern(value_kind_t kind, const char *more, bt_strbuf_t *out)
{
    bt_strbuf_printf(out, "        %s", more);
    for (size_t i = 0; i < BT_CONFIG_N_OPTIONS; i++) {
        const bt_option_t *const option = &bt_config_options[i];

        if (is_offered(option) && (kind_of(option) == kind)) {
            bt_strbuf_printf(out, " | --%s", option->name);
        }
    }
    bt_strbuf_puts(out, ")\n");
}

/* The function that offers values, and the list of options. */
static void print_bash_values(bt_strbuf_t *out)
{
    bt_strbuf_puts(out, "# The words that may follow option $1 of serve; 1: it "
                        "has none to offer.\n"
                        "_baton_value()\n{\n    case $1 in\n");
    for (size_t i = 0; i < BT_CONFIG_N_OPTIONS; i++) {
        const bt_option_t *const option = &bt_config_options[i];

        if (is_offered(option) && (kind_of(option) == VALUE_WORDS)) {
            bt_strbuf_printf(out, "        --%s)\n            _baton_words \"",
                             option->name);
            print_choices(option, out);
            bt_strbuf_puts(out, "\"\n            ;;\n");
        }
    }
    print_pattern(VALUE_FILE, "--config", out);
    bt_strbuf_puts(out, "            compopt -o filenames\n"
                        "            mapfile -t COMPREPLY < <(compgen -f -- "
                        "\"$cur\")\n            ;;\n");
    print_pattern(VALUE_FOLDER, "--run-dir", out);
    bt_strbuf_puts(out, "            compopt -o filenames\n"
                        "            mapfile -t COMPREPLY < <(compgen -d -- "
                        "\"$cur\")\n            ;;\n");
    print_pattern(VALUE_MODEL, "''", out);
    bt_strbuf_puts(out, "            _baton_models\n            ;;\n");
    print_pattern(VALUE_OTHER, "''", out);
    bt_strbuf_puts(out, "            ;;\n"
                        "        *)\n"
                        "            return 1\n"
                        "            ;;\n    esac\n}\n\n");
}

static void print_bash(const char *const *commands, size_t n, bt_strbuf_t *out)
{
    bt_strbuf_puts(
        out,
        "# bash completion for baton. Made from the option table: do not "
        "edit.\n\n"
        "_baton_words()\n{\n"
        "    mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$cur\")\n}\n\n"
        "# Names that `baton list` shows, and files.\n"
        "_baton_models()\n{\n"
        "    compopt -o filenames\n"
        "    mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"\n"
        "        compgen -W \"$(\"${COMP_WORDS[0]}\" list 2>/dev/null |\n"
        "            awk 'NR > 1 { print $1 }')\" -- \"$cur\")\n}\n\n"
        "# Processes of the server that runs here.\n"
        "_baton_processes()\n{\n"
        "    _baton_words \"$(\"${COMP_WORDS[0]}\" status --json 2>/dev/null |\n"
        "        grep -o '\"name\": *\"[^\"]*\", *\"program\"' | cut -d'\"' "
        "-f4)\"\n}\n\n");
    print_bash_values(out);
    bt_strbuf_puts(
        out, "_baton()\n{\n"
             "    local cur=${COMP_WORDS[COMP_CWORD]} "
             "before=${COMP_WORDS[COMP_CWORD - 1]}\n"
             "    local command=${COMP_WORDS[1]}\n\n"
             "    COMPREPLY=()\n"
             "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        _baton_words \"");
    print_words(commands, n, out);
    bt_strbuf_puts(
        out,
        "\"\n        return\n    fi\n"
        "    # bash splits --option=value into three words.\n"
        "    if [ \"$cur\" = = ]; then\n"
        "        cur=\n"
        "    elif [ \"$before\" = = ]; then\n"
        "        before=${COMP_WORDS[COMP_CWORD - 2]}\n"
        "    fi\n"
        "    case $command in\n"
        "        serve | check)\n"
        "            _baton_value \"$before\" && return\n"
        "            case $cur in\n"
        "                -*) _baton_words \"--config --help --help-all --version");
    for (size_t i = 0; i < BT_CONFIG_N_OPTIONS; i++) {
        if (is_offered(&bt_config_options[i])) {
            bt_strbuf_printf(out, " --%s", bt_config_options[i].name);
        }
    }
    bt_strbuf_puts(
        out,
        "\" ;;\n"
        "                *) _baton_models ;;\n"
        "            esac\n"
        "            return\n            ;;\n"
        "        start | stop | drain | undrain | restart | role)\n"
        "            if [ \"$COMP_CWORD\" -eq 2 ] && [[ $cur != -* ]]; then\n"
        "                _baton_processes\n                return\n"
        "            elif [ \"$command:$COMP_CWORD\" = role:3 ]; then\n"
        "                _baton_words \"prefill decode both\"\n"
        "                return\n            fi\n            ;;\n"
        "        version | help)\n            return\n            ;;\n"
        "    esac\n"
        "    # The others know their options themselves.\n"
        "    if [[ $cur == -* ]]; then\n"
        "        _baton_words \"$(\"${COMP_WORDS[0]}\" \"$command\" --help "
        "2>/dev/null |\n"
        "            grep -oE -- '--[a-z][a-z0-9-]*' | sort -u)\"\n"
        "    else\n"
        "        compopt -o filenames\n"
        "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
        "    fi\n"
        "}\n\ncomplete -F _baton baton\n");
}

/* ---- zsh ---- */

/* Prints the content of '[…]' in a specification, in single quotes. */
static void print_zsh_text(const char *text, bt_strbuf_t *out)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            bt_strbuf_puts(out, "'\\''");
        } else if (strchr("[]:\\", *text) != NULL) {
            bt_strbuf_printf(out, "\\%c", *text);
        } else {
            bt_strbuf_append(out, text, 1);
        }
    }
}

static void print_zsh_option(const bt_option_t *option, bt_strbuf_t *out)
{
    const value_kind_t kind = kind_of(option);

    bt_strbuf_printf(out, "        '%s--%s%s[",
                     (kind == VALUE_MODEL) ? "*" : "", option->name,
                     (kind == VALUE_NONE) ? "" : "=");
    print_zsh_text(option->help, out);
    bt_strbuf_puts(out, "]");
    if (kind != VALUE_NONE) {
        bt_strbuf_puts(out, ":");
        print_zsh_text(option->metavar, out);
        bt_strbuf_puts(out, ":");
    }
    switch (kind) {
    case VALUE_WORDS:
        bt_strbuf_puts(out, "(");
        print_choices(option, out);
        bt_strbuf_puts(out, ")");
        break;
    case VALUE_FILE:
        bt_strbuf_puts(out, "_files");
        break;
    case VALUE_FOLDER:
        bt_strbuf_puts(out, "_files -/");
        break;
    case VALUE_MODEL:
        bt_strbuf_puts(out, "_baton_models");
        break;
    case VALUE_NONE:
    case VALUE_OTHER:
        break;
    }
    bt_strbuf_puts(out, "'\n");
}

static void print_zsh(const char *const *commands, size_t n, bt_strbuf_t *out)
{
    bt_strbuf_puts(
        out,
        "#compdef baton\n"
        "# zsh completion for baton. Made from the option table: do not edit.\n"
        "\n"
        "_baton_models() {\n"
        "    compadd -- ${(f)\"$($words_of_baton[1] list 2>/dev/null |\n"
        "        awk 'NR > 1 { print $1 }')\"}\n"
        "    _files\n}\n\n"
        "_baton_processes() {\n"
        "    compadd -- ${(f)\"$($words_of_baton[1] status --json 2>/dev/null "
        "|\n"
        "        grep -o '\"name\": *\"[^\"]*\", *\"program\"' | cut -d'\"' "
        "-f4)\"}\n}\n\n"
        "_baton_serve() {\n"
        "    _arguments \\\n        ${serve_options[@]} \\\n"
        "        '*:model:_baton_models'\n}\n\n"
        "_baton() {\n"
        "    local -a words_of_baton=($words) serve_options\n"
        "    if ((CURRENT == 2)); then\n"
        "        compadd -- ");
    print_words(commands, n, out);
    bt_strbuf_puts(out, "\n        return\n    fi\n"
                        "    serve_options=(\n"
                        "        '--config=[Read options from a file]:FILE:"
                        "_files'\n"
                        "        '--help[Print the common options]'\n"
                        "        '--help-all[Print all options]'\n"
                        "        '--version[Print the version]'\n");
    for (size_t i = 0; i < BT_CONFIG_N_OPTIONS; i++) {
        if (is_offered(&bt_config_options[i])) {
            print_zsh_option(&bt_config_options[i], out);
        }
    }
    bt_strbuf_puts(
        out,
        "    )\n"
        "    local command=$words[2]\n"
        "    case $command in\n"
        "        serve|check)\n"
        "            shift words\n"
        "            ((CURRENT--))\n"
        "            _baton_serve\n"
        "            return\n            ;;\n"
        "        start|stop|drain|undrain|restart|role)\n"
        "            if ((CURRENT == 3)) && [[ $words[CURRENT] != -* ]]; then\n"
        "                _baton_processes\n                return\n"
        "            elif [[ $command$CURRENT == role4 ]]; then\n"
        "                compadd -- prefill decode both\n"
        "                return\n            fi\n            ;;\n"
        "        version|help) return ;;\n"
        "    esac\n"
        "    # The others know their options themselves.\n"
        "    if [[ $words[CURRENT] == -* ]]; then\n"
        "        compadd -- ${(fu)\"$($words[1] $command --help 2>/dev/null |\n"
        "            grep -oE -- '--[a-z][a-z0-9-]*')\"}\n"
        "    else\n"
        "        _files\n"
        "    fi\n"
        "}\n\n"
        "if [ \"$funcstack[1]\" = _baton ]; then\n"
        "    _baton \"$@\"\n"
        "else\n"
        "    compdef _baton baton\n"
        "fi\n");
}

bt_status_t bt_config_print_completion(const char *shell,
                                       const char *const *commands, size_t n,
                                       bt_strbuf_t *out)
{
    if (strcmp(shell, "bash") == 0) {
        print_bash(commands, n, out);
    } else if (strcmp(shell, "zsh") == 0) {
        print_zsh(commands, n, out);
    } else {
        return BT_ERR_NOT_FOUND;
    }
    return BT_OK;
}
