/* SPDX-License-Identifier: Apache-2.0 */
#include "common/config/config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/config/config_options.h"
#include "common/config/version.h"

#define REASON_BYTES 512
#define ENV_BYTES    64
#define HELP_BYTES   65536
#define NAME_BYTES   128
/* Largest value of --lora: the launcher passes it on in one argument, of which
 * Linux takes 128 KiB. */
#define ADAPTERS_BYTES ((size_t)120 << 10)

/* In the order of the bits BT_PROG_. */
static const struct {
    const char *name;
    const char *title;
} programs[BT_CONFIG_N_PROGRAMS] = {
    {"baton serve", "start and watch a serving cluster on this machine"},
    {"baton-router", "take requests and pass them to the workers"},
    {"baton-prefill-worker", "run the context phase and send its KV blocks"},
    {"baton-decode-worker", "generate tokens with in-flight batching"},
};

static size_t program_index(unsigned program)
{
    size_t i = 0;

    while ((i < BT_CONFIG_N_PROGRAMS - 1) && ((program >> i) != 1)) {
        i++;
    }
    return i;
}

const char *bt_config_program_name(unsigned program)
{
    return programs[program_index(program)].name;
}

const char *bt_config_program_title(unsigned program)
{
    return programs[program_index(program)].title;
}

const char *bt_config_version(void)
{
    return BT_VERSION;
}

bt_status_t bt_config_keep(char **kept, const char *text)
{
    char *const copy = bt_strdup(text);

    if (copy == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    bt_free(*kept);
    *kept = copy;
    return BT_OK;
}

static void *field_of(bt_config_t *config, const bt_option_t *option)
{
    return (char *)config + option->offset;
}

static const void *field_of_const(const bt_config_t *config,
                                  const bt_option_t *option)
{
    return (const char *)config + option->offset;
}

static bool is_text(const bt_option_t *option)
{
    return (option->type == BT_OPTION_TEXT) ||
           (option->type == BT_OPTION_CHOICE) ||
           (option->type == BT_OPTION_SWITCH) ||
           (option->type == BT_OPTION_ADDRESS) ||
           (option->type == BT_OPTION_TARGETS) ||
           (option->type == BT_OPTION_SAMPLING) ||
           (option->type == BT_OPTION_ADAPTERS) ||
           (option->type == BT_OPTION_MODELS);
}

static uint64_t number_of(const bt_config_t *config, const bt_option_t *option)
{
    const void *const field = field_of_const(config, option);

    switch (option->type) {
    case BT_OPTION_FLAG:
        return *(const bool *)field ? 1 : 0;
    case BT_OPTION_SIZE:
        return *(const uint64_t *)field;
    default:
        return *(const uint32_t *)field;
    }
}

static void store_number(bt_config_t *config, const bt_option_t *option,
                         uint64_t number)
{
    void *const field = field_of(config, option);

    switch (option->type) {
    case BT_OPTION_FLAG:
        *(bool *)field = (number != 0);
        break;
    case BT_OPTION_SIZE:
        *(uint64_t *)field = number;
        break;
    default:
        BT_ASSERT(number <= UINT32_MAX);
        *(uint32_t *)field = (uint32_t)number;
        break;
    }
}

/* Appends to a list that a source gives item by item. */
static bt_status_t append_text(bt_config_store_t *store,
                               const bt_option_t *option, const char *text)
{
    const size_t i = (size_t)(option - bt_config_options);
    bt_strbuf_t list;
    bt_status_t status;

    bt_strbuf_init(&list, ADAPTERS_BYTES);
    bt_strbuf_printf(
        &list, "%s%s%s", store->texts[i],
        ((store->texts[i][0] != '\0') && (text[0] != '\0')) ? ";" : "", text);
    status = bt_strbuf_status(&list);
    if (status == BT_OK) {
        status = bt_config_keep(&store->texts[i], list.data);
    }
    if (status == BT_OK) {
        *(const char **)field_of(&store->config, option) = store->texts[i];
    }
    bt_strbuf_fini(&list);
    return status;
}

/* Checks that a list fits, with @a text appended to what the same source gave
 * before. */
static bt_status_t check_length(const bt_config_store_t *store,
                                const bt_option_t *option, const char *text,
                                bool appends, const char *where)
{
    const size_t i = (size_t)(option - bt_config_options);
    const size_t before = appends ? strlen(store->texts[i]) + 1 : 0;

    return (before + strlen(text) < ADAPTERS_BYTES)
               ? BT_OK
               : bt_config_complain(store,
                                    "%s: the names and paths of all adapters "
                                    "take more than %zu KiB, the most that "
                                    "--lora takes; use shorter paths, or "
                                    "--lora-dir",
                                    where, ADAPTERS_BYTES >> 10);
}

bt_status_t bt_config_store_set(bt_config_store_t *store,
                                const bt_option_t *option, const char *text,
                                bt_config_source_t source, const char *where)
{
    const size_t i = (size_t)(option - bt_config_options);
    bt_option_value_t value;
    char reason[REASON_BYTES];
    bt_status_t status;

    if (bt_config_value_parse(option, text, &value, reason, sizeof(reason)) !=
        BT_OK) {
        return bt_config_complain(store, "%s: %s", where, reason);
    }
    if (((option->programs & store->program) == 0) ||
        (source < store->sources[i])) {
        return BT_OK;
    }
    if (option->type == BT_OPTION_ADAPTERS) {
        status = check_length(store, option, value.text,
                              source == store->sources[i], where);
        if (status != BT_OK) {
            return status;
        }
    }
    status = bt_config_keep(&store->wheres[i], where);
    if (status != BT_OK) {
        return status;
    }
    if (option->type == BT_OPTION_MODELS) {
        status = bt_config_models_add(store, value.text, where);
    } else if ((option->type == BT_OPTION_ADAPTERS) &&
               (source == store->sources[i])) {
        status = append_text(store, option, value.text);
    } else if (is_text(option)) {
        status = bt_config_keep(&store->texts[i], value.text);
        if (status == BT_OK) {
            bt_config_value_spell(option, store->texts[i]);
            *(const char **)field_of(&store->config, option) = store->texts[i];
        }
    } else {
        store_number(&store->config, option, value.number);
    }
    if (status == BT_OK) {
        store->sources[i] = source;
    }
    return status;
}

static bt_option_value_t default_of(const bt_option_t *option)
{
    bt_option_value_t value;
    char reason[REASON_BYTES];

    BT_ASSERT_ALWAYS(bt_config_value_parse(option, option->def, &value, reason,
                                           sizeof(reason)) == BT_OK);
    return value;
}

static void set_defaults(bt_config_store_t *store)
{
    for (size_t i = 0; i < BT_CONFIG_N_OPTIONS; i++) {
        const bt_option_t *option = &bt_config_options[i];
        const bt_option_value_t value = default_of(option);

        if (is_text(option)) {
            *(const char **)field_of(&store->config, option) = option->def;
        } else {
            store_number(&store->config, option, value.number);
        }
    }
}

/* @a name: the text between "--" and "=". */
static void complain_unknown(const bt_config_store_t *store, const char *name,
                             size_t n)
{
    const unsigned program = store->program;
    const bt_option_t *const other = bt_config_option_find(name, n);
    const char *const near = bt_config_word_closest(name, n, program);
    const int shown = (n > NAME_BYTES) ? NAME_BYTES : (int)n;

    if (other != NULL) {
        for (unsigned bit = 1; bit <= BT_PROG_DECODE; bit <<= 1) {
            if ((other->programs & bit) != 0) {
                bt_config_complain(store, "--%s is an option of %s, not of %s",
                                   other->name, bt_config_program_name(bit),
                                   bt_config_program_name(program));
                return;
            }
        }
    }
    if (near != NULL) {
        bt_config_complain(store, "unknown option --%.*s; did you mean --%s?",
                           shown, name, near);
    } else {
        bt_config_complain(store, "unknown option --%.*s; see %s --help", shown,
                           name, bt_config_program_name(program));
    }
}

/* "baton-router 0.2.0 (1a2b3c4d5e6f)" */
static void print_version(unsigned program, bt_strbuf_t *out)
{
    const char *const commit = bt_build_commit;

    bt_strbuf_printf(out, "%s %s", bt_config_program_name(program), BT_VERSION);
    if ((commit != NULL) && (commit[0] != '\0')) {
        bt_strbuf_printf(out, " (%s)", commit);
    }
    bt_strbuf_puts(out, "\n");
}

/* @param [in] tier  of the least common options to print */
static bt_status_t print_and_stop(const bt_config_store_t *store, bool version,
                                  bt_option_tier_t tier)
{
    bt_strbuf_t out;

    bt_strbuf_init(&out, HELP_BYTES);
    if (version) {
        print_version(store->program, &out);
    } else {
        bt_config_help_print(store->program, tier, &out);
    }
    if (!bt_strbuf_print(&out)) {
        return bt_config_complain(store, "cannot write to standard output");
    }
    return BT_ERR_CANCELED;
}

/* For an option whose value is optional: true when the next argument is its
 * value. */
static bool is_value(const bt_option_t *option, const char *next)
{
    char reason[REASON_BYTES];
    bt_option_value_t value;

    return (next != NULL) &&
           (bt_config_value_parse(option, next, &value, reason,
                                  sizeof(reason)) == BT_OK);
}

/* Parses one option at argv[i]; *used_p: argv[i + 1] was its value. */
static bt_status_t take_argument(bt_config_store_t *store, const char *arg,
                                 const char *next, bool *used_p)
{
    const char *const name = arg + 2;
    const size_t n = strcspn(name, "=");
    const char *value = (name[n] == '=') ? name + n + 1 : NULL;
    const bt_option_t *const option = bt_config_option_find(name, n);
    const bool is_file =
        (n == strlen("config")) && (memcmp(name, "config", n) == 0);
    char where[NAME_BYTES];

    *used_p = false;
    if (!is_file &&
        ((option == NULL) || ((option->programs & store->program) == 0))) {
        complain_unknown(store, name, n);
        return BT_ERR_INVALID_PARAM;
    }
    snprintf(where, sizeof(where), "--%.*s", (int)n, name);
    if ((value == NULL) && !is_file && (option->type == BT_OPTION_FLAG)) {
        value = "yes";
    }
    if ((value == NULL) && !is_file && (option->type == BT_OPTION_SWITCH) &&
        !is_value(option, next)) {
        value = "on";
    }
    if (value == NULL) {
        if ((next == NULL) || (strncmp(next, "--", 2) == 0)) {
            return bt_config_complain(store, "%s needs a value: %s %s", where,
                                      where,
                                      is_file ? "FILE" : option->metavar);
        }
        value = next;
        *used_p = true;
    }
    if (is_file) {
        return bt_config_keep(&store->file, value);
    }
    return bt_config_store_set(store, option, value, BT_CONFIG_COMMAND_LINE,
                               where);
}

/* `baton serve MODEL`. A word that is no file is no model: it may be the
 * value of an option that takes none. */
static bt_status_t take_word(bt_config_store_t *store, const char *word)
{
    static const char model[] = "model";
    const char *path = word;

    if ((store->program == BT_PROG_SERVE) && (word[0] != '-')) {
        const uint32_t i = store->config.n_models;

        (void)bt_config_model_split(word, &path);
        if ((path[0] != '\0') && (i < BT_CONFIG_MAX_MODELS)) {
            /* Whether it is one is known when --models-dir is. */
            store->words[i] = true;
            return bt_config_store_set(
                store, bt_config_option_find(model, sizeof(model) - 1), word,
                BT_CONFIG_COMMAND_LINE, "MODEL");
        }
        return bt_config_complain(
            store,
            "unexpected argument '%s': there is no such model "
            "file, and options start with --",
            word);
    }
    return bt_config_complain(
        store, "unexpected argument '%s'; options start with --", word);
}

/* An unknown option may have a value or not: the next argument is
 * one, unless it is an option or a file. */
static bool is_lost_value(const char *arg, const char *next)
{
    return (strncmp(arg, "--", 2) == 0) && (strchr(arg, '=') == NULL) &&
           (strncmp(next, "--", 2) != 0) && (access(next, F_OK) != 0);
}

static bt_status_t read_arguments(bt_config_store_t *store, int argc,
                                  char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *const arg = argv[i];
        const char *const next = (i + 1 < argc) ? argv[i + 1] : NULL;
        bool used = false;
        bt_status_t status;

        if ((strcmp(arg, "--help") == 0) || (strcmp(arg, "-h") == 0)) {
            return print_and_stop(store, false, BT_OPTION_COMMON);
        }
        if (strcmp(arg, "--help-all") == 0) {
            return print_and_stop(store, false, BT_OPTION_ADVANCED);
        }
        if (strcmp(arg, "--version") == 0) {
            return print_and_stop(store, true, BT_OPTION_COMMON);
        }
        if (bt_config_synonyms_know(store, arg)) {
            status = bt_config_synonyms_take(store, arg, next, &used);
        } else if ((strncmp(arg, "--", 2) == 0) && (arg[2] != '\0')) {
            status = take_argument(store, arg, next, &used);
        } else {
            status = take_word(store, arg);
        }
        if ((status == BT_ERR_INVALID_PARAM) && !used && (next != NULL)) {
            used = is_lost_value(arg, next);
        }
        status = bt_config_go_on(store, status);
        if (status != BT_OK) {
            return status;
        }
        i += used ? 1 : 0;
    }
    return BT_OK;
}

/* `;` separates several models. */
static bt_status_t take_variable(bt_config_store_t *store,
                                 const bt_option_t *option, const char *text,
                                 const char *name)
{
    BT_CLEANUP(free) char *copy = NULL;
    bt_status_t status = BT_OK;
    char *next;

    if (option->type != BT_OPTION_MODELS) {
        return bt_config_store_set(store, option, text, BT_CONFIG_ENVIRONMENT,
                                   name);
    }
    copy = bt_strdup(text);
    if (copy == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    next = copy;
    while ((status == BT_OK) && (next != NULL)) {
        status = bt_config_store_set(store, option, strsep(&next, ";"),
                                     BT_CONFIG_ENVIRONMENT, name);
    }
    return status;
}

static bt_status_t read_environment(bt_config_store_t *store)
{
    const char *const file = getenv("BATON_CONFIG");

    for (size_t i = 0; i < BT_CONFIG_N_OPTIONS; i++) {
        char name[ENV_BYTES];
        const char *text;

        if (bt_config_options[i].type == BT_OPTION_PORT) {
            continue;
        }
        bt_config_option_env(&bt_config_options[i], name, sizeof(name));
        text = getenv(name);
        if ((text != NULL) && (text[0] != '\0')) {
            const bt_status_t status = bt_config_go_on(
                store, take_variable(store, &bt_config_options[i], text, name));

            if (status != BT_OK) {
                return status;
            }
        }
    }
    bt_config_note_variables(store);
    if ((file != NULL) && (file[0] != '\0') && (store->file == NULL)) {
        return bt_config_keep(&store->file, file);
    }
    return BT_OK;
}

static size_t index_of(const char *name)
{
    return (size_t)(bt_config_option_find(name, strlen(name)) -
                    bt_config_options);
}

/* --port goes into the address of --http, unless a stronger source has said
 * that. */
static bt_status_t put_port(bt_config_store_t *store)
{
    const size_t port = index_of("port");
    const size_t http = index_of("http");
    const char *const address = store->config.http;
    const char *const colon = strrchr(address, ':');
    char whole[REASON_BYTES];

    if ((store->sources[port] == BT_CONFIG_DEFAULT) ||
        (store->sources[port] < store->sources[http]) || (colon == NULL)) {
        return BT_OK;
    }
    /* A text that is too long is no address, and is refused as such. */
    snprintf(whole, sizeof(whole), "%.*s:%u", (int)(colon - address), address,
             store->config.port);
    return bt_config_store_set(store, &bt_config_options[http], whole,
                               store->sources[port], store->wheres[port]);
}

/* "auto" becomes the back end for this host's hardware. An unusable driver
 * is then an error, with the reason: a user who asked for available hardware
 * must not silently get the CPU. */
static void find_backend(bt_config_store_t *store)
{
    if (strcmp(store->config.backend, "auto") == 0) {
        store->config.backend =
            (access(BT_CONFIG_GPU_DRIVER, F_OK) == 0) ? "cuda" : "cpu";
    }
}

static bt_status_t read_file(bt_config_store_t *store)
{
    return (store->file != NULL) ? bt_config_file_read(store, store->file)
                                 : BT_OK;
}

static bt_status_t load(bt_config_store_t *store, int argc, char **argv)
{
    static bt_status_t (*const steps[])(bt_config_store_t *) = {
        read_environment,
        read_file,
        put_port,
        bt_config_addresses_complete,
        bt_config_repository_read,
        bt_config_pulled_resolve,
    };
    bt_status_t status = read_arguments(store, argc, argv);

    for (size_t i = 0; (i < BT_ARRAY_LEN(steps)) && (status == BT_OK); i++) {
        status = bt_config_go_on(store, steps[i](store));
    }
    if (status == BT_OK) {
        find_backend(store);
        status = bt_config_check_together(store);
    }
    return status;
}

bt_status_t bt_config_load(unsigned program, bool finds_all, int argc,
                           char **argv, const bt_config_t **config_p,
                           bt_config_store_t **store_p)
{
    bt_config_store_t *store = bt_calloc(1, sizeof(*store));
    bt_status_t status = BT_ERR_NO_MEMORY;

    if (store == NULL) {
        goto err;
    }
    store->program = program;
    set_defaults(store);
    if (finds_all) {
        store->findings = bt_calloc(1, sizeof(*store->findings));
        if (store->findings == NULL) {
            goto err_store;
        }
    }
    status = load(store, argc, argv);
    if (status != BT_OK) {
        goto err_store;
    }
    *config_p = &store->config;
    *store_p = store;
    return BT_OK;

err_store:
    bt_config_destroy(store);
err:
    if (status == BT_ERR_NO_MEMORY) {
        fprintf(stderr, "%s: out of memory\n", bt_config_program_name(program));
    }
    return status;
}

void bt_config_destroy(bt_config_store_t *store)
{
    if (store == NULL) {
        return;
    }
    for (size_t i = 0; i < BT_CONFIG_N_OPTIONS; i++) {
        bt_free(store->texts[i]);
        bt_free(store->wheres[i]);
    }
    bt_config_findings_destroy(store->findings);
    for (size_t i = 0; i < BT_CONFIG_MAX_MODELS; i++) {
        bt_free(store->models[i]);
        bt_free(store->model_wheres[i]);
        bt_free(store->pulled[i]);
    }
    bt_repository_destroy(store->repository);
    bt_free(store->file);
    bt_free(store);
}

/* --model and --served-model-name. */
static bool is_of_model(const bt_option_t *option)
{
    return (option->type == BT_OPTION_MODELS) ||
           (option->offset == offsetof(bt_config_t, served_model_name));
}

bt_status_t bt_config_args_for(const bt_config_store_t *store, unsigned target,
                               bt_strbuf_t *out)
{
    for (size_t i = 0; i < BT_CONFIG_N_OPTIONS; i++) {
        const bt_option_t *const option = &bt_config_options[i];

        if (((option->programs & target) == 0) ||
            (store->sources[i] == BT_CONFIG_DEFAULT) || is_of_model(option) ||
            (option->type == BT_OPTION_PORT)) { /* included in --http */
            continue;
        }
        if (is_text(option)) {
            const char *const text =
                *(const char *const *)field_of_const(&store->config, option);

            if (strcmp(text, option->def) != 0) {
                bt_strbuf_printf(out, "--%s=%s", option->name, text);
                bt_strbuf_append(out, "", 1);
            }
        } else if (number_of(&store->config, option) !=
                   default_of(option).number) {
            bt_strbuf_printf(out, "--%s=", option->name);
            bt_config_value_print(option, number_of(&store->config, option),
                                  out);
            bt_strbuf_append(out, "", 1);
        }
    }
    return bt_strbuf_status(out);
}

void bt_config_option_print(const bt_config_t *config,
                            const bt_option_t *option, bt_strbuf_t *out)
{
    if (is_text(option)) {
        bt_strbuf_puts(out,
                       *(const char *const *)field_of_const(config, option));
    } else {
        bt_config_value_print(option, number_of(config, option), out);
    }
}

void bt_config_unset_environment(void)
{
    char name[ENV_BYTES];

    for (size_t i = 0; i < BT_CONFIG_N_OPTIONS; i++) {
        bt_config_option_env(&bt_config_options[i], name, sizeof(name));
        unsetenv(name);
    }
    unsetenv("BATON_CONFIG");
}
