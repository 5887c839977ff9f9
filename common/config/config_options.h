/* SPDX-License-Identifier: Apache-2.0 */
/** @file config_options.h
 *
 * Option table. Private to common/config.
 */
#ifndef BT_COMMON_CONFIG_CONFIG_OPTIONS_H
#define BT_COMMON_CONFIG_CONFIG_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "common/config/config.h"

#define BT_CONFIG_N_OPTIONS  160
#define BT_CONFIG_N_PROGRAMS 4

typedef enum bt_option_type {
    BT_OPTION_TEXT,     /**< const char *, any text */
    BT_OPTION_CHOICE,   /**< const char *, one of `choices` */
    BT_OPTION_ADDRESS,  /**< const char *, ADDR:PORT */
    BT_OPTION_COUNT,    /**< uint32_t */
    BT_OPTION_SIZE,     /**< uint64_t bytes, written 512m, 2g, 2GB, 2GiB */
    BT_OPTION_SIZE32,   /**< uint32_t bytes, written as BT_OPTION_SIZE */
    BT_OPTION_PORT,     /**< uint32_t; port of config->http, never in the
                             environment, where Kubernetes sets BATON_PORT
                             for a service called baton */
    BT_OPTION_FLAG,     /**< bool; the bare option means true */
    BT_OPTION_SWITCH,   /**< const char *, one of `choices`, on and off among
                             them; the bare option means on, the words of a
                             flag mean on and off */
    BT_OPTION_MODELS,   /**< [NAME=]PATH, repeatable; config->models */
    BT_OPTION_TARGETS,  /**< const char *, NAME=TTFT/ITL,... */
    BT_OPTION_SAMPLING, /**< const char *, JSON of sampling defaults */
    BT_OPTION_ADAPTERS, /**< const char *, NAME=PATH, repeatable: joined by ;
                             (bt_config_adapter_next()) */
} bt_option_type_t;

/** Readers that an option is meant for. */
typedef enum bt_option_tier {
    BT_OPTION_COMMON,   /**< in --help */
    BT_OPTION_ADVANCED, /**< in --help-all, completions and the manual */
    BT_OPTION_INTERNAL, /**< between the launcher and its programs, or for
                             benchmarks: listed nowhere */
} bt_option_tier_t;

#define BT_OPTION_HELP_CHARS 100 /* tests/lint checks it too */

/** Row of the option table. */
typedef struct bt_option {
    const char *name; /**< without the dashes */
    bt_option_type_t type;
    const char *metavar; /**< value's name in --help; NULL: flag */
    const char *def;     /**< default, as a user would write it */
    uint64_t min, max;   /**< numbers only */
    const char *unit;    /**< unit of a number, for messages; "" = none */
    const char *choices; /**< BT_OPTION_CHOICE: "a, b, c" */
    unsigned programs;   /**< BT_PROG_ bits */
    size_t offset;       /**< into bt_config_t */
    bt_option_tier_t tier;
    const char *help;    /**< one line of at most BT_OPTION_HELP_CHARS, no full
                              stop at the end */
    const char *details; /**< sentences for the manual, no full stop at the
                              end; "" = none */
} bt_option_t;

/** Option table, in the order of --help. */
extern const bt_option_t bt_config_options[BT_CONFIG_N_OPTIONS];

/** Returns the row with the name of @a n bytes, or NULL. */
const bt_option_t *bt_config_option_find(const char *name, size_t n);

/** Returns the option of @a programs whose name is nearest to @a name and
 *  near enough to be meant, or NULL. */
const bt_option_t *bt_config_option_closest(const char *name, size_t n,
                                            unsigned programs);

/** Returns the nearest option name without dashes, near enough to be meant,
 *  or NULL; includes options outside the table (--help, --config ...). */
const char *bt_config_word_closest(const char *name, size_t n,
                                   unsigned programs);

/** Returns the heading of an option in --help and in the manual: one string
 *  for all options of a section, which follow one another in the table. */
const char *bt_config_section(const bt_option_t *option);

/** Writes the environment variable's name, `BATON_KV_MEMORY`, into @a out. */
void bt_config_option_env(const bt_option_t *option, char *out, size_t bytes);

/** Notes which BATON_* variables have no effect, with the nearest option. */
void bt_config_note_variables(const bt_config_store_t *store);

/** Replaces a text by a copy of another. @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_config_keep(char **kept, const char *text);

/** Checked value. */
typedef struct bt_option_value {
    uint64_t number;  /**< numbers and flags */
    const char *text; /**< other types; borrowed from the input */
} bt_option_value_t;

/**
 * Checks @a text against an option's row.
 *
 * @param [out] reason  The error, such as "0 is out of range: 1 to 4096 seats".
 * @retval BT_ERR_INVALID_PARAM  reason was written.
 */
BT_MUST_CHECK bt_status_t bt_config_value_parse(const bt_option_t *option,
                                                const char *text,
                                                bt_option_value_t *value_p,
                                                char *reason, size_t bytes);

/** Changes a checked choice to the table's spelling: MAX_UTILIZATION becomes
 *  max_utilization. */
void bt_config_value_spell(const bt_option_t *option, char *text);

/** Appends a number as a user would write it (`2g` for sizes). */
void bt_config_value_print(const bt_option_t *option, uint64_t number,
                           bt_strbuf_t *out);

/** Source of a value; the highest one wins. */
typedef enum bt_config_source {
    BT_CONFIG_DEFAULT,
    BT_CONFIG_REPOSITORY, /**< a config.pbtxt of --model-repository */
    BT_CONFIG_FILE,
    BT_CONFIG_ENVIRONMENT,
    BT_CONFIG_COMMAND_LINE,
} bt_config_source_t;

/** Errors and notes, where all of them are collected. */
typedef struct bt_config_findings {
    bt_config_finding_t *list; /**< owned, with its texts */
    uint32_t n;
    bool are_cut; /**< no memory for one more */
} bt_config_findings_t;

#define BT_CONFIG_N_ADDRESSES   3 /* http, grpc, metrics */
#define BT_CONFIG_ADDRESS_BYTES 128

struct bt_config_store {
    unsigned program;
    bt_config_t config;
    char *file; /**< owned path of --config, or NULL */
    bt_config_source_t sources[BT_CONFIG_N_OPTIONS];
    char *texts[BT_CONFIG_N_OPTIONS];  /**< owned; NULL for numbers */
    char *wheres[BT_CONFIG_N_OPTIONS]; /**< owned; the user's name for it in
                                            its source; NULL: default */
    char *model_wheres[BT_CONFIG_MAX_MODELS]; /**< owned; source of each
                                                   model */
    bt_config_findings_t *findings;     /**< owned; NULL: the first error is
                                             printed, and stops the parse */
    char *models[BT_CONFIG_MAX_MODELS]; /**< owned text of config.models */
    char *pulled[BT_CONFIG_MAX_MODELS]; /**< owned paths of pulled models */
    char pulled_names[BT_CONFIG_MAX_MODELS][BT_CONFIG_MODEL_NAME_BYTES];
    bool words[BT_CONFIG_MAX_MODELS]; /**< given without --model */
    bt_repository_t *repository;      /**< owned, or NULL */
    /** Hosts and ports of --http, --grpc and --metrics that options of other
     *  servers gave, and the last of those for each. */
    char hosts[BT_CONFIG_N_ADDRESSES][BT_CONFIG_ADDRESS_BYTES];
    char ports[BT_CONFIG_N_ADDRESSES][BT_CONFIG_ADDRESS_BYTES];
    char address_wheres[BT_CONFIG_N_ADDRESSES][BT_CONFIG_ADDRESS_BYTES];
};

/** True when @a arg, with its dashes and perhaps `=VALUE`, is an option of
 *  another server with an equivalent or a hint here. False for the program's
 *  own options. */
bool bt_config_synonyms_know(const bt_config_store_t *store, const char *arg);
/**
 * Applies an option of another server.
 * @param [in]  next    the next argument, or NULL
 * @param [out] used_p  @a next was the value
 * @retval BT_ERR_INVALID_PARAM  Printed.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_config_synonyms_take(bt_config_store_t *store,
                                                  const char *arg,
                                                  const char *next,
                                                  bool *used_p);
/** Returns the option that another server calls @a name, without dashes;
 *  NULL: none. */
const bt_option_t *bt_config_synonym_of(const char *name, size_t n);

/** Combines the collected hosts and ports into addresses, after all sources
 *  are read. */
BT_MUST_CHECK bt_status_t
bt_config_addresses_complete(bt_config_store_t *store);

/**
 * Checks and stores one value unless a source of higher precedence has set it.
 *
 * @param [in] where  The user's name for it, for the message.
 * @retval BT_ERR_INVALID_PARAM  Printed on standard error.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_config_store_set(bt_config_store_t *store,
                                              const bt_option_t *option,
                                              const char *text,
                                              bt_config_source_t source,
                                              const char *where);

/**
 * Resolves models that are no paths in the folder of models.
 * @retval BT_ERR_INVALID_PARAM  A model given without --model is neither;
 *                               printed on standard error.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_config_pulled_resolve(bt_config_store_t *store);

/** Finds the path in `[NAME=]PATH`. @return bytes of NAME, 0 = none. */
size_t bt_config_model_split(const char *text, const char **path_p);

/**
 * Adds one model, checked by bt_config_value_parse(); "" adds none.
 *
 * @retval BT_ERR_INVALID_PARAM  Too many for this program; printed.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_config_models_add(bt_config_store_t *store,
                                               const char *text,
                                               const char *where);

/**
 * Checks that all models have distinct names.
 * @retval BT_ERR_INVALID_PARAM  No; printed.
 */
BT_MUST_CHECK bt_status_t
bt_config_models_check(const bt_config_store_t *store);

/**
 * Reads `key = value` lines into @a store.
 *
 * @retval BT_ERR_INVALID_PARAM  Printed on standard error with file and line.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_config_file_read(bt_config_store_t *store,
                                              const char *path);

/**
 * Reads --model-repository, if given, and sets the values of its files that no
 * source of higher precedence sets.
 *
 * @retval BT_ERR_INVALID_PARAM  Printed on standard error with file and line.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_config_repository_read(bt_config_store_t *store);

/** Checks constraints between several options. @retval BT_ERR_INVALID_PARAM
 *  No; printed. */
BT_MUST_CHECK bt_status_t
bt_config_check_together(const bt_config_store_t *store);

/** Prints the text of --help or --help-all for one program.
 *  @param [in] tier  of the least common options to print */
void bt_config_help_print(unsigned program, bt_option_tier_t tier,
                          bt_strbuf_t *out);

/** Returns one line that describes the program. */
const char *bt_config_program_title(unsigned program);

/** Reports an error: prints `PROGRAM: text` on standard error, or keeps it
 *  if all errors are collected. @return BT_ERR_INVALID_PARAM */
bt_status_t bt_config_complain(const bt_config_store_t *store, const char *fmt,
                               ...) __attribute__((format(printf, 2, 3)));
/** Reports a note, which is no error: `PROGRAM: note: text`. */
void bt_config_note(const bt_config_store_t *store, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/** Returns BT_OK for an error that was reported with bt_config_complain()
 *  while all errors are collected, which is no reason to stop; else @a
 *  status. */
BT_MUST_CHECK bt_status_t bt_config_go_on(const bt_config_store_t *store,
                                          bt_status_t status);

void bt_config_findings_destroy(bt_config_findings_t *findings);

/** Appends the value as a user would write it; nothing if it is "". */
void bt_config_option_print(const bt_config_t *config,
                            const bt_option_t *option, bt_strbuf_t *out);

#endif
