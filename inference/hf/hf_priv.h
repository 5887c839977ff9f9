/* SPDX-License-Identifier: Apache-2.0 */
/** @file hf_priv.h  What the files of inference/hf share while a folder is
 *  opened, and what an open one owns. */
#ifndef BT_INFERENCE_HF_HF_PRIV_H
#define BT_INFERENCE_HF_HF_PRIV_H

#include "common/base/printable.h"
#include "inference/gguf/gguf_assemble.h"
#include "inference/gguf/gguf_meta.h"
#include "inference/hf/families.h"
#include "inference/hf/folder.h"
#include "inference/hf/hf.h"
#include "inference/hf/recipe.h"

#define BT_HF_MAX_SHARDS   1024u
#define BT_HF_NAME_BYTES   64u         /* of a tensor's name in GGUF */
#define BT_HF_CONFIG_BYTES (16u << 20) /* of a file of settings */
#define BT_HF_TOKENS_BYTES (512u << 20)

/** Numbers of config.json that names and orders need. */
typedef struct bt_hf_shape {
    uint32_t n_layers;
    uint32_t dim;
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t n_vocab; /**< 0: not said */
    bool tied;        /**< the output matrix is the embedding's */
} bt_hf_shape_t;

/** One shard. */
typedef struct bt_hf_shard {
    bt_folder_file_t file;
    bt_safetensors_t st;
} bt_hf_shard_t;

/** What an open model owns; all of it lies still. */
typedef struct bt_hf_store {
    bt_strbuf_t meta;
    bt_hf_shard_t *shards;
    bt_gguf_file_t *files; /**< of the shards */
    uint32_t n_shards;
    const bt_st_tensor_t **stored; /**< of all shards, ascending by name */
    uint64_t n_stored;

    bt_gguf_tensor_t *tensors;
    char (*names)[BT_HF_NAME_BYTES];
    bt_recipe_t *recipes;
    bt_gguf_tensor_t *codes; /**< of tensors, where they have some */
    bt_recipe_t *code_recipes;
    uint64_t n_tensors;
    uint64_t cap_tensors;
    bt_gguf_span_t *spans;
    uint64_t n_spans;
    float *rope_factors[2]; /**< owned data of tensors that no file has */
    uint32_t **groups;      /**< owned, of recipes */
    uint64_t n_groups;
} bt_hf_store_t;

/** A method of quantization, quant.c. */
typedef struct bt_quant bt_quant_t;

/** What quantization_config says of it. */
typedef struct bt_quant_settings {
    uint32_t bits;
    uint32_t group; /**< inputs that share a scale; 0: all of a row */
    int32_t zero_add;
    uint32_t block[2]; /**< rows and inputs that share a scale; 0: not so */
} bt_quant_settings_t;

/** One call of bt_hf_open(). */
typedef struct bt_hf {
    bt_folder_t folder;
    bt_folder_json_t config;
    bt_folder_json_t generation; /**< may be absent */
    bt_folder_json_t tok_config; /**< may be absent */
    /** The language model's own settings in a file that is of a model of texts
     *  and images; those of the file stand behind them. NULL: there are none */
    const bt_json_node_t *text;
    const bt_hf_family_t *family;
    bt_hf_shape_t shape;
    const bt_quant_t *quant; /**< NULL: not quantized */
    bt_quant_settings_t quant_settings;
    bt_gguf_meta_t meta;
    bt_hf_store_t *store;
    char *why;
    size_t why_bytes;
} bt_hf_t;

/** Say why. @return @a status */
bt_status_t bt_hf_fail(const bt_hf_t *hf, bt_status_t status, const char *fmt,
                       ...) __attribute__((format(printf, 3, 4)));

/* ---- settings.c, config.c, rope.c ---- */

/** A value of config.json, by the first of the names ("a|b") that is there and
 *  not null, or the family's where it has one; NULL: none is. Names ".a" are in
 *  rope_parameters, names "a.b" in the object a. */
const bt_json_node_t *bt_hf_config(const bt_hf_t *hf, const char *names);

/** Fills family and shape, and writes the keys of the architecture. */
BT_MUST_CHECK bt_status_t bt_hf_read_config(bt_hf_t *hf);

/** rope_freqs.weight and its like, which no file has.
 *  @param [out] factors_p  owned by the store; NULL: the model has none */
BT_MUST_CHECK bt_status_t bt_hf_rope_factors(bt_hf_t *hf);

/* ---- weights.c ---- */

/** Maps the shards and sorts what is in them. */
BT_MUST_CHECK bt_status_t bt_hf_map_weights(bt_hf_t *hf);
/** @return NULL: no shard has it */
const bt_st_tensor_t *bt_hf_stored(const bt_hf_store_t *store, const char *name,
                                   size_t len);
void bt_hf_store_free(void *store); /**< NULL is allowed. */

/* ---- names.c ---- */

/** Fills the store's tensors from what is stored. */
BT_MUST_CHECK bt_status_t bt_hf_name_tensors(bt_hf_t *hf);

/* ---- quant.c ---- */

/** Reads quantization_config.
 *  @retval BT_ERR_UNSUPPORTED  A method, or a setting of it, that is not read.
 */
BT_MUST_CHECK bt_status_t bt_quant_read(bt_hf_t *hf);

typedef enum bt_quant_part {
    BT_QUANT_PLAIN, /**< a tensor as of any model */
    BT_QUANT_MAIN,  /**< the numbers of a quantized matrix */
    BT_QUANT_SIDE,  /**< its scales and the like */
} bt_quant_part_t;

/** What a stored tensor is. Of a main one, the name that the matrix has
 *  without quantization, its ggml_type and its recipe but for the order.
 *  @param [out] name  at least stored->name.len + 8 bytes; also of plain ones
 */
BT_MUST_CHECK bt_status_t bt_quant_part(bt_hf_t *hf,
                                        const bt_st_tensor_t *stored,
                                        char *name, bt_quant_part_t *part_p,
                                        uint32_t *type_p, bt_recipe_t *recipe);

/* ---- tokenizer_json.c, texts.c ---- */

BT_MUST_CHECK bt_status_t bt_hf_read_tokenizer(bt_hf_t *hf);
/** Sampling of generation_config.json, and the chat template. */
BT_MUST_CHECK bt_status_t bt_hf_read_texts(bt_hf_t *hf);

#endif
