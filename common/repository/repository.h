/* SPDX-License-Identifier: Apache-2.0 */
/** @file repository.h
 *
 * A model repository as Triton with TensorRT-LLM has it: a folder for each of
 * the five models, with a config.pbtxt in it, filled in or as a template.
 *
 *     DIR/tensorrt_llm/config.pbtxt ──▶ field by field, by one table:
 *                                         described   to clients
 *                                         an option   of Baton is set
 *                                         no meaning  here, and is said
 *                                         refused     file, line and name
 *
 * A value that fill_template has left open, ${name}, is as if it were not
 * there. A folder that is not there has what Baton says by itself.
 *
 * What a model is said to be is one structure, bt_repo_model_t, whether a file
 * says it or Baton: the doors put it into their own bytes.
 *
 * Threads: one that is read may be read by any.
 * Source:  Triton's model_config.proto, and the five files of its TensorRT-LLM
 *          backend.
 */
#ifndef BT_COMMON_REPOSITORY_REPOSITORY_H
#define BT_COMMON_REPOSITORY_REPOSITORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/repository/pbtxt.h"

#define BT_REPO_N_MODELS     5
#define BT_REPO_MAX_DIMS     8
#define BT_REPO_MAX_SETTINGS 64
/** What requests may ask for where no file says it. */
#define BT_REPO_MAX_BATCH_SIZE 64
#define BT_REPO_WHY_BYTES      1024
#define BT_REPO_NOTES_BYTES    8192
#define BT_REPO_OTHERS_BYTES   512

/** preprocessing, tensorrt_llm, postprocessing, ensemble, tensorrt_llm_bls. */
extern const char *const bt_repo_names[BT_REPO_N_MODELS];
#define BT_REPO_LLM 1 /**< tensorrt_llm's index there */

/** An input or output. */
typedef struct bt_repo_tensor {
    const char *name;
    const char *type; /**< "TYPE_INT32" */
    int64_t dims[BT_REPO_MAX_DIMS];
    uint32_t n_dims;
    int64_t reshape[BT_REPO_MAX_DIMS];
    uint32_t n_reshape;
    bool has_reshape; /**< which may have no dims */
    bool optional, ragged;
} bt_repo_tensor_t;

typedef struct bt_repo_pair {
    const char *key, *value;
} bt_repo_pair_t;

/** Of an ensemble. */
typedef struct bt_repo_step {
    const char *model;
    int64_t version; /**< -1: the latest */
    bt_repo_pair_t *inputs, *outputs;
    uint32_t n_inputs, n_outputs;
} bt_repo_step_t;

typedef struct bt_repo_group {
    const char *kind; /**< "KIND_CPU" */
    uint32_t count;
} bt_repo_group_t;

/** What a model is said to be. Strings are never NULL. */
typedef struct bt_repo_model {
    const char *name, *platform, *backend;
    uint32_t max_batch_size; /**< 0: a request has no batch dimension */
    bool decoupled;
    bool has_dynamic_batching;
    uint32_t preferred_batch_size; /**< 0: not said */
    uint32_t queue_delay_us;
    uint32_t max_queue_size;
    uint32_t priority_levels; /**< 0: priorities of requests do not count */
    uint32_t default_priority_level; /**< 1 to priority_levels */
    bt_repo_tensor_t *inputs, *outputs;
    uint32_t n_inputs, n_outputs;
    bt_repo_pair_t *parameters;
    uint32_t n_parameters;
    bt_repo_group_t *groups;
    uint32_t n_groups;
    bt_repo_step_t *steps;
    uint32_t n_steps;
} bt_repo_model_t;

/** An option of Baton that a field sets. */
typedef struct bt_repo_setting {
    const char *option; /**< without dashes; static */
    char value[64];     /**< as one would write it; "" is `path` */
    const char *path;   /**< of the arena; NULL: value */
    char where[192];    /**< "FILE:LINE: FIELD" */
} bt_repo_setting_t;

typedef struct bt_repository {
    bt_pbtxt_t trees[BT_REPO_N_MODELS];
    bt_repo_model_t models[BT_REPO_N_MODELS]; /**< as the files say */
    bool has[BT_REPO_N_MODELS];               /**< there is a file */
    bt_repo_setting_t settings[BT_REPO_MAX_SETTINGS];
    uint32_t n_settings;
    /** What was taken and has no meaning here, a line of text for each file, or
     *  "": for whoever starts to log, once. */
    char notes[BT_REPO_N_MODELS][BT_REPO_NOTES_BYTES];
    /** Folders beside the five, "a, b", cut where there is no room: none of
     *  them is served. */
    char others[BT_REPO_OTHERS_BYTES];
} bt_repository_t;

/**
 * @param [in]  dir  Of the repository. Addresses of cloud stores are refused.
 * @param [out] why  What is wrong, for a person: file, line, field.
 * @retval BT_ERR_INVALID_PARAM  It says what cannot be.
 * @retval BT_ERR_NOT_FOUND      There is none of the five.
 * @retval BT_ERR_UNSUPPORTED    A cloud store.
 * @retval BT_ERR_BAD_FILE, BT_ERR_TOO_LARGE, BT_ERR_IO, BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_repository_read(const char *dir,
                                             bt_repository_t **repository_p,
                                             char why[BT_REPO_WHY_BYTES]);
/** Add "FIELD (WHY)" to a model's notes, once.
 *  @param [in] index  of bt_repo_names */
void bt_repository_note(bt_repository_t *repository, uint32_t index,
                        const char *field, const char *why);
/** One file's text, as if it stood at @a path; the same otherwise.
 *  @param [in] index  of bt_repo_names
 *  @param [in,out] repository  one zeroed before; may hold other models */
BT_MUST_CHECK bt_status_t bt_repository_take(bt_repository_t *repository,
                                             uint32_t index, const char *path,
                                             const char *text, size_t n,
                                             char why[BT_REPO_WHY_BYTES]);
void bt_repository_destroy(bt_repository_t *repository); /**< NULL is allowed */
/** Frees what a model holds, not what its strings point to. */
void bt_repo_model_fini(bt_repo_model_t *model);

/** The value of a parameter, or NULL: not there, empty or not filled in. */
const char *bt_repo_parameter(const bt_repo_model_t *model, const char *key);

/* ---- the table, for tests and documentation ---- */

typedef enum bt_repo_fate {
    BT_REPO_DESCRIBED, /**< said to clients, checked for what it is */
    BT_REPO_EFFECT,    /**< sets an option, or changes what requests do */
    BT_REPO_NOTED,     /**< without meaning here: taken, and said once */
    BT_REPO_REFUSED,   /**< refused whatever it is; the note says what to do */
    BT_REPO_ONLY,      /**< these values are taken, any other refused; the
                            first is what is done, of the others that is said */
} bt_repo_fate_t;

typedef struct bt_repo_field {
    const char *model; /**< or "": of any */
    const char *path;  /**< "dynamic_batching.max_queue_delay_microseconds";
                            parameters: "parameters.KEY" */
    bt_repo_fate_t fate;
    const char *option; /**< EFFECT: the option, or "" */
    const char *values; /**< the values taken, "a, b"; "": any */
    const char *note;   /**< what is done, or why it is not */
} bt_repo_field_t;

extern const bt_repo_field_t bt_repo_fields[];
extern const uint32_t bt_repo_n_fields;

/** The row for this field of this model, or NULL. */
const bt_repo_field_t *bt_repo_field_find(const char *model, const char *path);

#endif
