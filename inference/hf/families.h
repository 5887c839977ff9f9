/* SPDX-License-Identifier: Apache-2.0 */
/** @file families.h
 *
 * Mapping of config.json and tensor names of a family of models to GGUF's keys
 * and names: one table each, a line for a setting or a name. A new family is
 * one more entry of families.c; behavior of its own code that tables cannot
 * express has a flag here.
 *
 * Source: names of keys and tensors of the gguf package (constants.py,
 *         tensor_mapping.py); names of settings and their defaults, the
 *         families' configuration classes in transformers.
 */
#ifndef BT_INFERENCE_HF_FAMILIES_H
#define BT_INFERENCE_HF_FAMILIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/json_doc.h"

typedef enum bt_hf_kind {
    BT_HF_U32,
    BT_HF_F32,
    BT_HF_BOOL,
} bt_hf_kind_t;

typedef struct bt_hf_key {
    const char *config; /**< names in config.json, of which the first present
                             one counts: "a|b"; see bt_hf_config(). "": none,
                             the default is the value */
    const char *key;    /**< GGUF key without "ARCH." */
    bt_hf_kind_t kind;
    bool needed;
    /** Default number if config.json has no such name; NULL: the key is left
     *  out. */
    const char *otherwise;
} bt_hf_key_t;

/** Transformation of a tensor from safetensors to GGUF. */
typedef enum bt_hf_how {
    BT_HF_AS_IS,
    BT_HF_QUERY, /**< interleave the halves of rotary pairs, where the family
                      does (turns) */
    BT_HF_KEY,
    BT_HF_PLUS_ONE,  /**< add one to the factors, as the model does */
    BT_HF_TRANSPOSE, /**< transpose, stored as (in, out) */
    BT_HF_FUSED,     /**< split groups of query, key and value heads, into one
                          tensor of all query heads, then key heads, then value
                          heads */
    BT_HF_SPLIT,     /**< split groups of query, key and value heads into three
                          tensors */
    BT_HF_PACK, /**< split all query heads, then key heads, then value heads
                     into three tensors */
    BT_HF_UNIT, /**< divide rows by their length, as the model does */
    BT_HF_SKIP, /**< skip: has no effect */
    BT_HF_ZERO, /**< check that all are zeros, and skip */
    BT_HF_IDS,  /**< bt_hf_add_target_ids() */
    /* Experts; GGUF has those of a layer stacked in one tensor. */
    BT_HF_EXPERT,  /**< stack the matrices of the experts, '#' in the name */
    BT_HF_EXPERTS, /**< as stored: (experts, out, in), or (experts, out) */
    BT_HF_EXPERTS_TRANSPOSE, /**< (experts, in, out) */
    BT_HF_EXPERTS_HALVES, /**< split (experts, 2 out, in), or (2 out, in), into
                               the first half of the outputs and the second */
    /** split (experts, in, 2 out), or (experts, 2 out), into the even outputs
     *  and the odd ones; of MXFP4 blocks, (experts, 2 out, in) */
    BT_HF_EXPERTS_TURNS,
} bt_hf_how_t;

typedef struct bt_hf_name {
    const char *hf;   /**< name without the prefix, and without "layers.N." for
                           a layer's; may end in '*' for .weight and .bias,
                           and have '#' for the number of an expert */
    const char *gguf; /**< GGUF name, for a layer's without "blk.N." */
    bt_hf_how_t how;
} bt_hf_name_t;

/** Layers without an attention window, given by layer_types. */
typedef enum bt_hf_windows {
    BT_HF_NO_WINDOW = 0,   /**< no layer has a window */
    BT_HF_ANY_WINDOW = -1, /**< any layer_types, written as a pattern */
    BT_HF_ONE_WINDOW = -2, /**< all layers have a window, or none; the window
                                is in a key */
    /* > 0: every n-th layer has no window, the others have it */
} bt_hf_windows_t;

/** Default value of a setting that config.json may leave out. */
typedef struct bt_hf_default {
    const char *name;
    bt_json_node_t value;
} bt_hf_default_t;

/** Family of models; a member that is 0 means as in llama. */
typedef struct bt_hf_family {
    const char *model_type; /**< model_type of config.json */
    /** Model types that text_config may have, "a|b": it describes a language
     *  model, and tensors of images beside it are left out; NULL: there is no
     *  text_config. */
    const char *inner;
    const char *arch;       /**< general.architecture */
    const char *prefix;     /**< prefix of tensor names, which a file may leave
                                 out; NULL: "model." */
    const char *layers;     /**< NULL: "layers." */
    const char *only_layer; /**< in place of "layers.0."; NULL: never */
    bool own_keys;          /**< bt_hf_common_keys do not count */
    bool own_names;         /**< nor do the common names of tensors */
    bool turns;             /**< rotary pairs are interleaved in GGUF */
    bool tied;              /**< default of tie_word_embeddings */
    bool bare_head;         /**< a stored lm_head is always the embedding */
    bool own_head;          /**< a stored lm_head never is */
    bool long_factors;      /**< rope factors for short and long contexts */
    bool no_rope;           /**< no RoPE */
    bool experts;           /**< layers have experts */
    bool late_windows;      /**< with use_sliding_window, layers from
                                 max_window_layers on have the window */
    int windows;      /**< bt_hf_windows_t, or the period of layers without
                           a window */
    const char *acts; /**< activations that the family can have:
                           "gelu|relu"; NULL: "silu|swish" */
    const char *const *checks; /**< settings with a required value:
                                    "alibi=false"; a missing one is accepted.
                                    NULL: none */
    const bt_hf_default_t
        *defaults;             /**< ends with a name of NULL, or is NULL */
    const bt_hf_key_t *keys;   /**< NULL: none, as below */
    const bt_hf_name_t *names; /**< tensor names within a layer */
    const bt_hf_name_t *global_names; /**< tensor names outside layers */
} bt_hf_family_t;

extern const bt_hf_key_t bt_hf_common_keys[];
extern const bt_hf_name_t bt_hf_common_names[];
extern const bt_hf_name_t bt_hf_common_globals[];

/** Family of EAGLE-3 heads, which no model_type names. */
extern const bt_hf_family_t bt_hf_family_eagle3;

/** Returns the family of a model_type. @return NULL: no such family */
const bt_hf_family_t *bt_hf_family_of(const char *model_type, size_t len);
/** Returns family @a i of those with this general.architecture, for names of
 *  adapters' modules. @return NULL: there are not so many */
const bt_hf_family_t *bt_hf_family_of_arch(const char *arch, size_t len,
                                           uint32_t i);
/** Returns all model_types, for error messages. */
const char *bt_hf_family_names(void);

/*
 * Strings shared by the tables of families: names of settings and activations,
 * and how a table ends.
 */

/* clang-format off: one line for a setting or a name */

#define END_KEYS                           \
    {                                      \
        NULL, NULL, BT_HF_U32, false, NULL \
    }
#define END_NAMES               \
    {                           \
        NULL, NULL, BT_HF_AS_IS \
    }

#define CONTEXT \
    "max_position_embeddings|n_ctx|n_positions|max_sequence_length|max_seq_len|model_max_length"
#define WIDTH   "hidden_size|n_embd|n_embed|d_model"
#define LAYERS  "num_hidden_layers|n_layer|n_layers"
#define HEADS   "num_attention_heads|n_head|n_heads"
#define FFN     "intermediate_size|n_inner"
#define EXPERTS "num_experts|num_local_experts|n_routed_experts"

#define SILU "silu|swish"
#define TANH "gelu_pytorch_tanh|gelu_new|gelu_fast"

/* clang-format on */

#endif
