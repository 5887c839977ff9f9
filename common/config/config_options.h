/* SPDX-License-Identifier: Apache-2.0 */
/** @file config_options.h
 *
 * The option table and its row. Only common/config includes this.
 */
#ifndef BT_COMMON_CONFIG_CONFIG_OPTIONS_H
#define BT_COMMON_CONFIG_CONFIG_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "common/config/config.h"

#define BT_CONFIG_N_OPTIONS  133
#define BT_CONFIG_N_PROGRAMS 4

typedef enum bt_option_type {
    BT_OPTION_TEXT,     /**< const char *, any text */
    BT_OPTION_CHOICE,   /**< const char *, one of `choices` */
    BT_OPTION_ADDRESS,  /**< const char *, ADDR:PORT */
    BT_OPTION_COUNT,    /**< uint32_t */
    BT_OPTION_SIZE,     /**< uint64_t bytes, written 512m, 2g, 2GB, 2GiB */
    BT_OPTION_SIZE32,   /**< uint32_t bytes, written the same way */
    BT_OPTION_PORT,     /**< uint32_t; stands in config->http, never in the
                             environment, where BATON_PORT is what a cluster says
                             of a service called baton */
    BT_OPTION_FLAG,     /**< bool; the bare option means true */
    BT_OPTION_SWITCH,   /**< const char *, one of `choices`, on and off among
                             them; the bare option means on, the words of a
                             flag mean on and off */
    BT_OPTION_MODELS,   /**< [NAME=]PATH, repeatable; config->models */
    BT_OPTION_TARGETS,  /**< const char *, NAME=TTFT/ITL,... */
    BT_OPTION_SAMPLING, /**< const char *, JSON of sampling defaults */
} bt_option_type_t;

typedef struct bt_option {
    const char *name; /**< without the dashes */
    bt_option_type_t type;
    const char *metavar; /**< what --help prints for the value; NULL: flag */
    const char *def;     /**< the default, as one would write it */
    uint64_t min, max;   /**< numbers only */
    const char *unit;    /**< of a number, for messages; "" = none */
    const char *choices; /**< BT_OPTION_CHOICE: "a, b, c" */
    unsigned programs;   /**< BT_PROG_ bits */
    size_t offset;       /**< into bt_config_t */
    const char *help;    /**< one sentence or two, no full stop at the end */
} bt_option_t;

/** Rows in the order of --help. */
extern const bt_option_t bt_config_options[BT_CONFIG_N_OPTIONS];

/** @return row with that name of @a n bytes, or NULL. */
const bt_option_t *bt_config_option_find(const char *name, size_t n);

/** @return the option of @a programs whose name is nearest to @a name and
 *  near enough to be meant, or NULL. */
const bt_option_t *bt_config_option_closest(const char *name, size_t n,
                                            unsigned programs);

/** @return the same with the options that no table has (--help, --config ...)
 *  among them: a name without dashes, or NULL. */
const char *bt_config_word_closest(const char *name, size_t n,
                                   unsigned programs);

/** A heading of --help and of the manual, with its options in the order of the
 *  table. */
typedef struct bt_option_group {
    const char *title;
    const char *const *names; /**< of options; ends with NULL */
} bt_option_group_t;

#define BT_CONFIG_N_GROUPS 10

/** In the order of --help; the last one has no names: it is for whatever stands
 *  in no other. */
extern const bt_option_group_t bt_config_groups[BT_CONFIG_N_GROUPS];

/** @return the group's index. */
size_t bt_config_group_of(const bt_option_t *option);

/** Does the group have an option of one of these programs (0: of any)? */
bool bt_config_group_is_used(size_t group, unsigned programs);

/** Write the variable's name, `BATON_KV_MEMORY`, into @a out. */
void bt_config_option_env(const bt_option_t *option, char *out, size_t bytes);

/** Say which variables BATON_* have no effect, and what may have been meant. */
void bt_config_note_variables(const bt_config_store_t *store);

/** A checked value. */
typedef struct bt_option_value {
    uint64_t number;  /**< numbers and flags */
    const char *text; /**< the others; borrowed from the input */
} bt_option_value_t;

/**
 * Check @a text against the row.
 *
 * @param [out] reason  Why not, such as "0 is out of range: 1 to 4096 seats".
 * @retval BT_ERR_INVALID_PARAM  reason was written.
 */
BT_MUST_CHECK bt_status_t bt_config_value_parse(const bt_option_t *option,
                                                const char *text,
                                                bt_option_value_t *value_p,
                                                char *reason, size_t bytes);

/** A checked value of a choice in the table's spelling: MAX_UTILIZATION is
 *  max_utilization. */
void bt_config_value_spell(const bt_option_t *option, char *text);

/** Append a number as the user would write it (`2g` for sizes). */
void bt_config_value_print(const bt_option_t *option, uint64_t number,
                           bt_strbuf_t *out);

/** Where a value came from; the higher one wins. */
typedef enum bt_config_source {
    BT_CONFIG_DEFAULT,
    BT_CONFIG_REPOSITORY, /**< a config.pbtxt of --model-repository */
    BT_CONFIG_FILE,
    BT_CONFIG_ENVIRONMENT,
    BT_CONFIG_COMMAND_LINE,
} bt_config_source_t;

/** What is wrong, where all of it is wanted. */
typedef struct bt_config_findings {
    bt_config_finding_t *list; /**< owned, with its texts */
    uint32_t n;
    bool are_cut; /**< there was no memory for one more */
} bt_config_findings_t;

#define BT_CONFIG_N_ADDRESSES  3 /* http, grpc, metrics */
#define BT_CONFIG_TRITON_BYTES 128

struct bt_config_store {
    unsigned program;
    bt_config_t config;
    char *file; /**< owned path of --config, or NULL */
    bt_config_source_t sources[BT_CONFIG_N_OPTIONS];
    char *texts[BT_CONFIG_N_OPTIONS];  /**< owned; NULL for numbers */
    char *wheres[BT_CONFIG_N_OPTIONS]; /**< owned; how it was named where the
                                            value came from; NULL: default */
    char *model_wheres[BT_CONFIG_MAX_MODELS]; /**< owned; of each model */
    bt_config_findings_t *findings; /**< owned; NULL: the first thing that is
                                         wrong is said, and ends the reading */
    char *models[BT_CONFIG_MAX_MODELS]; /**< owned text of config.models */
    char *pulled[BT_CONFIG_MAX_MODELS]; /**< owned paths of pulled models */
    char pulled_names[BT_CONFIG_MAX_MODELS][BT_CONFIG_MODEL_NAME_BYTES];
    bool words[BT_CONFIG_MAX_MODELS]; /**< named without --model */
    bt_repository_t *repository;      /**< owned, or NULL */
    /** Of --http, --grpc and --metrics, as tritonserver's options say it. */
    char triton_hosts[BT_CONFIG_N_ADDRESSES][BT_CONFIG_TRITON_BYTES];
    char triton_ports[BT_CONFIG_N_ADDRESSES][BT_CONFIG_TRITON_BYTES];
    bool says_host; /**< triton_hosts[0] was named by --host */
};

/** Is @a arg, with its dashes and perhaps `=VALUE`, an option of another server
 *  that has a meaning here, or an answer? Not where it is the program's own. */
bool bt_config_synonyms_know(const bt_config_store_t *store, const char *arg);
/** Take one.
 *  @param [in]  next    the next argument, or NULL
 *  @param [out] used_p  @a next was the value
 *  @retval BT_ERR_INVALID_PARAM  Said.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_config_synonyms_take(bt_config_store_t *store,
                                                  const char *arg,
                                                  const char *next,
                                                  bool *used_p);
/** @return the option that another server calls @a name, without dashes; NULL:
 *  none. */
const bt_option_t *bt_config_synonym_of(const char *name, size_t n);

/** Is it an option of tritonserver that baton serve knows? */
bool bt_config_triton_knows(const char *name, size_t n);
/** @return the option that it is one of, by another name; NULL: none. */
const bt_option_t *bt_config_triton_of(const char *name, size_t n);
/** Take one that it knows.
 *  @param [in]  value   behind "=", or NULL
 *  @param [out] used_p  @a next was the value
 *  @retval BT_ERR_INVALID_PARAM  Said. */
BT_MUST_CHECK bt_status_t bt_config_triton_take(bt_config_store_t *store,
                                                const char *name, size_t n,
                                                const char *value,
                                                const char *next, bool *used_p);
/** Hosts and ports that were taken go into the addresses, when all is read. */
BT_MUST_CHECK bt_status_t bt_config_triton_addresses(bt_config_store_t *store);

/**
 * Check and store one value unless a stronger source has set it.
 *
 * @param [in] where  How the user named it, for the message.
 * @retval BT_ERR_INVALID_PARAM  Said on standard error.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_config_store_set(bt_config_store_t *store,
                                              const bt_option_t *option,
                                              const char *text,
                                              bt_config_source_t source,
                                              const char *where);

/** Models that are no paths become those of the folder of models.
 *  @retval BT_ERR_INVALID_PARAM  One that stood without --model is neither;
 * said on standard error.
 *  @retval BT_ERR_NO_MEMORY */
BT_MUST_CHECK bt_status_t bt_config_pulled_resolve(bt_config_store_t *store);

/** One entry of --model-targets. */
typedef struct bt_config_targets {
    const char *name; /**< inside the option's text */
    size_t n_name;
    uint32_t ttft_ms, itl_ms;
} bt_config_targets_t;

/** Read the first entry of a text that is not empty. @return false: it is none;
 *  else @a text_p is behind it and its comma */
bool bt_config_targets_next(const char **text_p,
                            bt_config_targets_t *targets_p);

/** Find the path in `[NAME=]PATH`. @return bytes of NAME, 0 = none. */
size_t bt_config_model_split(const char *text, const char **path_p);

/**
 * One more model, checked by bt_config_value_parse(); "" adds none.
 *
 * @retval BT_ERR_INVALID_PARAM  Too many for this program; said.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_config_models_add(bt_config_store_t *store,
                                               const char *text,
                                               const char *where);

/** Do all models have names of their own?
 *  @retval BT_ERR_INVALID_PARAM  No; said. */
BT_MUST_CHECK bt_status_t
bt_config_models_check(const bt_config_store_t *store);

/**
 * Read `key = value` lines into @a store.
 *
 * @retval BT_ERR_INVALID_PARAM  Said on standard error with file and line.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_config_file_read(bt_config_store_t *store,
                                              const char *path);

/**
 * Read --model-repository, if it is given, and set what its files say and no
 * stronger source does.
 *
 * @retval BT_ERR_INVALID_PARAM  Said on standard error with file and line.
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_config_repository_read(bt_config_store_t *store);

/** What the options of the clients' doors say together.
 *  @retval BT_ERR_INVALID_PARAM  No; said. */
BT_MUST_CHECK bt_status_t bt_config_check_doors(const bt_config_store_t *store);

/** What no single row can say. @retval BT_ERR_INVALID_PARAM  No; said. */
BT_MUST_CHECK bt_status_t
bt_config_check_together(const bt_config_store_t *store);

/** The text of --help for one program. */
void bt_config_help_print(unsigned program, bt_strbuf_t *out);

/** One line that says what the program is. */
const char *bt_config_program_title(unsigned program);

/** Something is wrong: print `PROGRAM: text` on standard error, or keep it
 * where all of it is wanted. The caller then returns BT_ERR_INVALID_PARAM. */
void bt_config_complain(const bt_config_store_t *store, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/** The same of what is no error: `PROGRAM: note: text`. */
void bt_config_note(const bt_config_store_t *store, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/** @return BT_OK for what was said with bt_config_complain() and is no reason
 *  to stop, where all that is wrong is wanted; else @a status. */
BT_MUST_CHECK bt_status_t bt_config_go_on(const bt_config_store_t *store,
                                          bt_status_t status);

void bt_config_findings_destroy(bt_config_findings_t *findings);

/** Append the value as it would be given; nothing where it is "". */
void bt_config_option_print(const bt_config_t *config,
                            const bt_option_t *option, bt_strbuf_t *out);

#endif
