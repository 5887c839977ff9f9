/* SPDX-License-Identifier: Apache-2.0 */
/** @file repository.h
 *
 * Model repository of Triton with TensorRT-LLM: a folder for each of the five
 * models, with a config.pbtxt in it, filled in or as a template.
 *
 *     DIR/tensorrt_llm/config.pbtxt ──▶ field by field, by one table:
 *                                         described   to clients
 *                                         an option   of Baton is set
 *                                         no meaning  here, and is noted
 *                                         refused     file, line and name
 *
 * A value that fill_template has left open, ${name}, counts as absent. A
 * missing folder gets Baton's own description.
 *
 * Every model's description is one structure, bt_repo_model_t, whether it comes
 * from a file or from Baton: the client-facing servers encode it for their
 * protocols.
 *
 * Threads: a repository may be read by any after it is parsed.
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
/** Default of max_batch_size, if no file sets it. */
#define BT_REPO_MAX_BATCH_SIZE 64
#define BT_REPO_WHY_BYTES      1024
#define BT_REPO_NOTES_BYTES    8192
#define BT_REPO_OTHERS_BYTES   512

/** Names of the five models: preprocessing, tensorrt_llm, postprocessing,
 *  ensemble, tensorrt_llm_bls. */
extern const char *const bt_repo_names[BT_REPO_N_MODELS];
#define BT_REPO_LLM 1 /**< index of tensorrt_llm */
/** True for the name of one of the five models. */
bool bt_repo_is_name(const char *name);

/** Input or output of a model. */
typedef struct bt_repo_tensor {
    const char *name;
    const char *type; /**< "TYPE_INT32" */
    int64_t dims[BT_REPO_MAX_DIMS];
    uint32_t n_dims;
    int64_t reshape[BT_REPO_MAX_DIMS];
    uint32_t n_reshape;
    bool has_reshape; /**< present, possibly without dims */
    bool optional, ragged;
} bt_repo_tensor_t;

/** Key and value of a parameter or mapping. */
typedef struct bt_repo_pair {
    const char *key, *value;
} bt_repo_pair_t;

/** Step of an ensemble. */
typedef struct bt_repo_step {
    const char *model;
    int64_t version; /**< -1: the latest */
    bt_repo_pair_t *inputs, *outputs;
    uint32_t n_inputs, n_outputs;
} bt_repo_step_t;

/** Instance group. */
typedef struct bt_repo_instances {
    const char *kind; /**< "KIND_CPU" */
    uint32_t count;
} bt_repo_instances_t;

/** Description of a model. Strings are never NULL. */
typedef struct bt_repo_model {
    const char *name, *platform, *backend;
    uint32_t max_batch_size; /**< 0: a request has no batch dimension */
    bool decoupled;
    bool has_dynamic_batching;
    uint32_t preferred_batch_size; /**< 0: not given */
    uint32_t queue_delay_us;
    uint32_t max_queue_size;
    uint32_t priority_levels; /**< 0: priorities of requests are ignored */
    uint32_t default_priority_level; /**< 1 to priority_levels */
    bt_repo_tensor_t *inputs, *outputs;
    uint32_t n_inputs, n_outputs;
    bt_repo_pair_t *parameters;
    uint32_t n_parameters;
    char *text; /**< owned; values of parameters that are nowhere else; or NULL
                 */
    bt_repo_instances_t *instances;
    uint32_t n_instances;
    bt_repo_step_t *steps;
    uint32_t n_steps;
} bt_repo_model_t;

/** Option of Baton that a field sets. */
typedef struct bt_repo_setting {
    const char *option; /**< without dashes; static */
    char value[64];     /**< as a user would write it; "" means `path` */
    const char *path;   /**< in the arena; NULL: use value */
    char where[192];    /**< "FILE:LINE: FIELD" */
} bt_repo_setting_t;

/** Parsed model repository. */
typedef struct bt_repository {
    bt_pbtxt_t trees[BT_REPO_N_MODELS];
    bt_repo_model_t models[BT_REPO_N_MODELS]; /**< as the files describe them */
    bool has[BT_REPO_N_MODELS];               /**< the file exists */
    bt_repo_setting_t settings[BT_REPO_MAX_SETTINGS];
    uint32_t n_settings;
    /** Fields that were accepted and have no meaning here, a line of text
     *  for each file, or "": to be logged once, when logging starts. */
    char notes[BT_REPO_N_MODELS][BT_REPO_NOTES_BYTES];
    /** Folders beside the five, "a, b", truncated at the buffer's size: they
     *  are not served. */
    char others[BT_REPO_OTHERS_BYTES];
} bt_repository_t;

/**
 * Reads a repository.
 *
 * @param [in]  dir  Of the repository. Addresses of cloud stores are refused.
 * @param [out] why  The error, for people: file, line, field.
 * @retval BT_ERR_INVALID_PARAM  A value is not supported.
 * @retval BT_ERR_NOT_FOUND      None of the five exists.
 * @retval BT_ERR_UNSUPPORTED    A cloud store.
 * @retval BT_ERR_BAD_FILE, BT_ERR_TOO_LARGE, BT_ERR_IO, BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_repository_read(const char *dir,
                                             bt_repository_t **repository_p,
                                             char why[BT_REPO_WHY_BYTES]);
/**
 * Adds "FIELD (WHY)" to a model's notes, once.
 * @param [in] index  of bt_repo_names
 */
void bt_repository_note(bt_repository_t *repository, uint32_t index,
                        const char *field, const char *why);
/**
 * Parses one file's text as if it were at @a path; errors as
 * bt_repository_read().
 * @param [in] index  of bt_repo_names
 * @param [in,out] repository  zeroed before the first call; may contain other
 *                             models
 */
BT_MUST_CHECK bt_status_t bt_repository_take(bt_repository_t *repository,
                                             uint32_t index, const char *path,
                                             const char *text, size_t n,
                                             char why[BT_REPO_WHY_BYTES]);
void bt_repository_destroy(bt_repository_t *repository); /**< NULL is allowed */
/** Frees the arrays of a model, not its strings. */
void bt_repo_model_fini(bt_repo_model_t *model);

/** Returns the value of a parameter, or NULL: absent, empty or not filled
 *  in. */
const char *bt_repo_parameter(const bt_repo_model_t *model, const char *key);

/* ---- the field table, for tests and documentation ---- */

typedef enum bt_repo_fate {
    BT_REPO_DESCRIBED, /**< described to clients, checked for its type */
    BT_REPO_EFFECT,    /**< sets an option, or changes requests */
    BT_REPO_NOTED,     /**< no meaning here: accepted, and noted once */
    BT_REPO_REFUSED,   /**< always refused; the note has the remedy */
    BT_REPO_ONLY,      /**< these values are accepted, others refused; the
                            first is what is done, the others are noted */
} bt_repo_fate_t;

/** Row of the field table. */
typedef struct bt_repo_field {
    const char *model; /**< or "": any model */
    const char *path;  /**< "dynamic_batching.max_queue_delay_microseconds";
                            parameters: "parameters.KEY" */
    bt_repo_fate_t fate;
    const char *option; /**< EFFECT: the option, or "" */
    const char *values; /**< accepted values, "a, b"; "": any */
    const char *note;   /**< effect, or why there is none */
} bt_repo_field_t;

extern const bt_repo_field_t bt_repo_fields[];
extern const uint32_t bt_repo_n_fields;

/** Returns the row for this field of this model, or NULL. */
const bt_repo_field_t *bt_repo_field_find(const char *model, const char *path);

#endif
