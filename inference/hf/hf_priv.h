/* SPDX-License-Identifier: Apache-2.0 */
/** @file hf_priv.h
 *
 * Shared by the files of inference/hf: state while a folder is opened, and data
 * owned by an open one.
 */
#ifndef BT_INFERENCE_HF_HF_PRIV_H
#define BT_INFERENCE_HF_HF_PRIV_H

#include <limits.h>
#include <stdbool.h>

#include "common/base/json_doc.h"
#include "common/base/text.h"
#include "inference/gguf/gguf_meta.h"
#include "inference/hf/families.h"
#include "inference/hf/hf.h"
#include "inference/hf/quant_rows.h"

#define BT_HF_MAX_SHARDS   1024u
#define BT_HF_NAME_BYTES   64u         /* size of a tensor's name in GGUF */
#define BT_HF_CONFIG_BYTES (16u << 20) /* most bytes of a file of settings */
#define BT_HF_TOKENS_BYTES (512u << 20)

/*
 * Access to the files of one folder, and to no others. A name may be a symbolic
 * link within the folder, or, in the Hub's own cache, from snapshots/REVISION/
 * to blobs/:
 *
 *     models--OWNER--NAME/snapshots/0123abcd/config.json ─▶ ../../blobs/4567…
 *
 * Any other link is refused: a downloaded folder must not make a server read
 * its host's files.
 *
 * Threads: a folder belongs to one thread.
 */

typedef struct bt_folder {
    char path[PATH_MAX];              /**< resolved path of the folder */
    char blobs[PATH_MAX];             /**< folder of blobs; "": not in a
                                           cache of the Hub */
    const bt_folder_entry_t *entries; /**< files of a folder in memory; or
                                           NULL */
    uint32_t n_entries;
} bt_folder_t;

typedef struct bt_folder_file {
    const void *base; /**< NULL: the file is empty */
    size_t bytes;
    int fd; /**< -1: memory */
} bt_folder_file_t;

/** Opens a folder of files, or of files in memory.
 *  @param [in] entries  borrowed while the folder is used
 *  @retval BT_ERR_NOT_FOUND  There is no such folder; the reason is in why.
 *  @retval BT_ERR_IO */
BT_MUST_CHECK bt_status_t bt_folder_init(bt_folder_t *folder, const char *path,
                                         char *why, size_t why_bytes);
void bt_folder_init_memory(bt_folder_t *folder,
                           const bt_folder_entry_t *entries, uint32_t n);

/** Looks up a name in the folder. @return whether it exists, of any kind */
bool bt_folder_has(const bt_folder_t *folder, const char *name);

/** Maps a file, read-only.
 *  @param [in] name  One name, without a slash.
 *  @retval BT_ERR_NOT_FOUND    It is not there; the reason is in why.
 *  @retval BT_ERR_UNSUPPORTED  It is a link out of the folder.
 *  @retval BT_ERR_BAD_FILE     The name has a slash, or is no regular file.
 *  @retval BT_ERR_IO           The reason is in why. */
BT_MUST_CHECK bt_status_t bt_folder_map(const bt_folder_t *folder,
                                        const char *name, char *why,
                                        size_t why_bytes,
                                        bt_folder_file_t *file_p);
void bt_folder_unmap(bt_folder_file_t *file); /**< Zeroed is not allowed. */

/** JSON file and its parsed document, whose strings lie in the map. */
typedef struct bt_folder_json {
    bt_folder_file_t file;
    bt_json_doc_t *doc;         /**< NULL: there is no such file */
    const bt_json_node_t *root; /**< an object; NULL: there is no such file */
} bt_folder_json_t;

/** Reads a JSON file whose value is an object. A missing file is no failure.
 *  @retval any of bt_folder_map(), bt_json_doc_parse() */
BT_MUST_CHECK bt_status_t bt_folder_read_json(const bt_folder_t *folder,
                                              const char *name,
                                              size_t max_bytes, char *why,
                                              size_t why_bytes,
                                              bt_folder_json_t *json_p);
void bt_folder_json_fini(bt_folder_json_t *json); /**< Zeroed is allowed. */

/** Model sizes of config.json that tensor names and orders depend on. */
typedef struct bt_hf_shape {
    uint32_t n_layers;
    uint32_t dim;
    uint32_t n_heads;
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t n_vocab;   /**< 0: not given */
    uint32_t n_experts; /**< experts of a layer; 0: the family has none */
    uint32_t n_nextn;   /**< layers behind these that draft */
    bool tied;          /**< output matrix is the embedding's */
} bt_hf_shape_t;

/** One safetensors file. */
typedef struct bt_hf_shard {
    bt_folder_file_t file;
    bt_safetensors_t st;
} bt_hf_shard_t;

/** Matrices of one name in a layer that a folder stores as one tensor for each
 *  expert, and GGUF stacked. */
typedef struct bt_hf_stack {
    bt_recipe_stack_t made;
    bt_recipe_stack_t codes;     /**< n 0: there are none */
    const bt_st_tensor_t *first; /**< first one found; NULL: none yet */
    uint32_t n_found;
    uint32_t type;   /**< ggml_type of all parts */
    uint64_t tensor; /**< index in bt_hf_store_t.tensors */
} bt_hf_stack_t;

/** Data owned by an open model; addresses are stable. */
typedef struct bt_hf_store {
    bt_strbuf_t meta;
    bt_hf_shard_t *shards;
    bt_gguf_file_t *files; /**< the shards as mapped files */
    uint32_t n_shards;
    const bt_st_tensor_t **stored; /**< tensors of all shards, ascending by
                                        name */
    uint64_t n_stored;

    bt_gguf_tensor_t *tensors;
    char (*names)[BT_HF_NAME_BYTES];
    bt_recipe_t *recipes;
    bt_gguf_tensor_t *codes; /**< tensors as codes, where available */
    bt_recipe_t *code_recipes;
    uint64_t n_tensors;
    bt_hf_stack_t *stacks; /**< experts.c: of each layer and name; NULL: no
                                expert is in a tensor of its own */
    uint64_t n_stacks;
    bt_recipe_t *parts;      /**< parts of all stacks, one behind another */
    bt_recipe_t *code_parts; /**< parts as codes */
    uint64_t n_parts;
    bt_gguf_span_t *spans;
    uint64_t n_spans;
    float *rope_factors[2]; /**< owned data of tensors that no file has */
    int64_t *target_ids;    /**< owned data of d2t; NULL: none */
    uint32_t **groups;      /**< owned, group tables of recipes */
    uint64_t n_groups;
} bt_hf_store_t;

/** Quantization method, quant.c. */
typedef struct bt_quant bt_quant_t;

/** Parameters of the quantization method from quantization_config. */
typedef struct bt_quant_settings {
    uint32_t bits;
    uint32_t group; /**< inputs that share a scale; 0: a whole row */
    int32_t zero_add;
    uint32_t block[2]; /**< rows and inputs that share a scale; 0: no blocks */
} bt_quant_settings_t;

/** State of one call of bt_hf_open(). */
typedef struct bt_hf {
    bt_folder_t folder;
    bt_folder_json_t config;
    bt_folder_json_t generation; /**< may be absent */
    bt_folder_json_t tok_config; /**< may be absent */
    /** Settings of the language model within a multimodal model's config.json;
     *  those of the file itself are the fallback. NULL: none. */
    const bt_json_node_t *text;
    const bt_hf_family_t *family;
    bt_hf_shape_t shape;
    const bt_quant_t *quant; /**< NULL: not quantized */
    bt_quant_settings_t quant_settings;
    bt_gguf_meta_t meta;
    bt_hf_store_t *store;
    bt_status_t status; /**< the first failure; its reason is in why */
    char *why;
    size_t why_bytes;
} bt_hf_t;

/** Records a failure and its reason, if it is the first. Functions that return
 *  nothing may go on after one. @return hf->status */
bt_status_t bt_hf_fail(bt_hf_t *hf, bt_status_t status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- settings.c, config.c, rope.c ---- */

/** Returns a value of config.json, by the first of the names ("a|b") that is
 *  present and not null, or the family's default; NULL: none. Names ".a" are in
 *  rope_parameters, names "a.b" in the object a. */
const bt_json_node_t *bt_hf_config(const bt_hf_t *hf, const char *names);

/** Fills family and shape, and writes the keys of the architecture. */
BT_MUST_CHECK bt_status_t bt_hf_read_config(bt_hf_t *hf);

/** Computes the data of rope_freqs.weight or the LongRoPE factors, which no
 *  file has; owned by the store. Does nothing where the model has none. */
BT_MUST_CHECK bt_status_t bt_hf_rope_factors(bt_hf_t *hf);

/* ---- heads.c ---- */

/** True for the folder of an EAGLE-3 head. */
bool bt_hf_is_eagle3(const bt_hf_t *hf);
/** Fails with the name of another kind of draft head, if it is one. */
BT_MUST_CHECK bt_status_t bt_hf_refuse_heads(bt_hf_t *hf);
/** Writes the layers of the target that an EAGLE-3 head reads, if config.json
 *  names them. */
void bt_hf_put_eagle3(bt_hf_t *hf);
/** Adds d2t, which GGUF has with the target's ids, not with their distances
 *  from the head's. */
BT_MUST_CHECK bt_status_t bt_hf_add_target_ids(bt_hf_t *hf,
                                               const bt_st_tensor_t *stored);

/* ---- weights.c ---- */

/** Maps the shards and sorts their tensors by name. */
BT_MUST_CHECK bt_status_t bt_hf_map_weights(bt_hf_t *hf);
/** Finds a stored tensor by name. @return NULL: no shard has it */
const bt_st_tensor_t *bt_hf_stored(const bt_hf_store_t *store, const char *name,
                                   size_t len);
void bt_hf_store_free(void *store); /**< NULL is allowed. */

/* ---- names.c ---- */

#define BT_HF_STORED_BYTES 512 /* size of a stored tensor's name */

/** Parts of a stored tensor's name that vary within a line of a table. */
typedef struct bt_hf_match {
    bool of_layer;
    uint32_t layer;
    uint32_t expert;  /**< number in place of '#' */
    const char *tail; /**< ".weight" or ".bias" in place of '*'; "" */
} bt_hf_match_t;

/** State of one stored tensor while it is mapped. */
typedef struct bt_hf_item {
    const bt_st_tensor_t *stored;
    char name[BT_HF_STORED_BYTES]; /**< without quantization */
    bt_recipe_t recipe;
    uint32_t type; /**< ggml_type of the recipe's result */
    bool quantized;
} bt_hf_item_t;

/** Finds the family's line for a tensor. @return NULL: there is none */
const bt_hf_name_t *bt_hf_line_of(const bt_hf_t *hf, const char *full_name,
                                  bt_hf_match_t *match_p);
/** Fails: the stored tensor @a what. */
bt_status_t bt_hf_wrong(bt_hf_t *hf, const bt_hf_item_t *item,
                        const char *what);
/** Plans a tensor that is used as stored: a vector or a matrix. */
BT_MUST_CHECK bt_status_t bt_hf_plain_recipe(bt_hf_t *hf, bt_hf_item_t *item);
/** Finds the ggml_type of a stored tensor's numbers. */
BT_MUST_CHECK bt_status_t bt_hf_plain_type(bt_hf_t *hf,
                                           const bt_hf_item_t *item,
                                           uint32_t *type_p);
/** Adds a tensor that the item's recipe makes.
 *  @param [in] name  in GGUF, of @a len bytes; a layer's without "blk.N.", and
 *          all without the tail
 *  @param [in] dims  shape in GGUF's order; the product of all but the first
 *          is the recipe's n_out */
BT_MUST_CHECK bt_status_t bt_hf_add_tensor(
    bt_hf_t *hf, const bt_hf_item_t *item, const bt_hf_match_t *match,
    const char *name, size_t len, const uint64_t *dims, uint32_t n_dims);
/** Return the orders of rows that BT_HF_FUSED and BT_HF_SPLIT, BT_HF_PACK, and
 *  BT_HF_QUERY and BT_HF_KEY stand for. */
bt_recipe_order_t bt_hf_fused_order(const bt_hf_t *hf);
bt_recipe_order_t bt_hf_packed_order(const bt_hf_t *hf);
bt_recipe_order_t bt_hf_halves_order(const bt_hf_t *hf, uint32_t n_heads);

/** Fills the store's tensors from the stored ones. */
BT_MUST_CHECK bt_status_t bt_hf_name_tensors(bt_hf_t *hf);

/* ---- experts.c ---- */

/** True for a transformation of experts' tensors. */
bool bt_hf_is_of_experts(bt_hf_how_t how);
/** Maps a tensor of one expert, or of all experts of a layer; a fused one is
 *  split. A quantized item has its recipe. */
BT_MUST_CHECK bt_status_t bt_hf_map_experts(bt_hf_t *hf, bt_hf_item_t *item,
                                            const bt_hf_name_t *line,
                                            const bt_hf_match_t *match);
/** Completes the stacked tensors; no expert may be missing. */
BT_MUST_CHECK bt_status_t bt_hf_end_experts(bt_hf_t *hf);

/* ---- quant.c ---- */

/** Reads quantization_config.
 *  @retval BT_ERR_UNSUPPORTED  A method, or a setting of it, that this reader
 *          does not know. */
BT_MUST_CHECK bt_status_t bt_quant_read(bt_hf_t *hf);

typedef enum bt_quant_part {
    BT_QUANT_PLAIN, /**< ordinary tensor */
    BT_QUANT_MAIN,  /**< codes of a quantized matrix */
    BT_QUANT_SIDE,  /**< scales or other auxiliary data of a quantized matrix */
} bt_quant_part_t;

/** Classifies a stored tensor. For a main one, returns the name that the matrix
 *  has without quantization, its ggml_type and its recipe, without the order.
 *  @param [out] name  at least stored->name.len + 8 bytes; also set for plain
 *          ones */
BT_MUST_CHECK bt_status_t bt_quant_part(bt_hf_t *hf,
                                        const bt_st_tensor_t *stored,
                                        char *name, bt_quant_part_t *part_p,
                                        uint32_t *type_p, bt_recipe_t *recipe);

/* ---- tokenizer_json.c, vocab.c ---- */

BT_MUST_CHECK bt_status_t bt_hf_read_tokenizer(bt_hf_t *hf);
/** Reads the sampling defaults of generation_config.json, and the chat
 *  template. */
BT_MUST_CHECK bt_status_t bt_hf_read_texts(bt_hf_t *hf);

/*
 * Reads and checks values of config.json, and writes the keys "ARCH.name" that
 * they become. For the files of inference/hf that read settings: config.c,
 * rope.c.
 */

#define BT_HF_KEY_BYTES 128 /* size of a whole key */

/** Returns @a node; NULL if it is JSON null or missing. */
const bt_json_node_t *bt_hf_not_null(const bt_json_node_t *node);

/** Returns the setting of one name of bt_hf_config(), of @a len bytes, fewer
 *  than BT_HF_KEY_BYTES. */
const bt_json_node_t *bt_hf_setting(const bt_hf_t *hf, const char *name,
                                    size_t len);

/** Returns whether a string is one of @a words, "a|b". */
bool bt_hf_is_one_of(const bt_json_node_t *node, const char *words);
/** Returns a string for a message, which says so if it is none. */
bt_printable_t bt_hf_printable(const bt_json_node_t *node);

/** Fails: @a node, the first of @a names, is not a valid number. */
void bt_hf_bad_number(bt_hf_t *hf, const char *names,
                      const bt_json_node_t *node);

/** Returns a whole number of @a min to @a max; missing: @a otherwise, unless
 * that is NULL; on failure @a min. */
uint32_t bt_hf_count(bt_hf_t *hf, const char *names, uint32_t min, uint32_t max,
                     const uint32_t *otherwise);
/** Returns a finite number; missing, and on failure: @a otherwise. */
float bt_hf_float(bt_hf_t *hf, const char *names, float otherwise);

/** Writes "ARCH.key". */
void bt_hf_key_name(const bt_hf_t *hf, const char *key,
                    char text[BT_HF_KEY_BYTES]);
void bt_hf_put_u32(bt_hf_t *hf, const char *key, uint32_t value);
void bt_hf_put_f32(bt_hf_t *hf, const char *key, float value);
void bt_hf_put_str(bt_hf_t *hf, const char *key, const char *value);

/** Writes the keys of RoPE. */
void bt_hf_put_rope(bt_hf_t *hf);

#endif
