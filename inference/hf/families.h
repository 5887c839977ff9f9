/* SPDX-License-Identifier: Apache-2.0 */
/** @file families.h
 *
 * What config.json and the tensors' names of a family of models say in GGUF's
 * words: one table each, a line for a setting or a name. A new family is a
 * table more in families_llama.c or families_gpt.c; what only its own code
 * could do has a flag here.
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
    const char *config; /**< names in config.json, the first that is there:
                             "a|b"; see bt_hf_config() */
    const char *key;    /**< behind "ARCH." */
    bt_hf_kind_t kind;
    bool needed;
    /** Where config.json does not say: the number, or NULL: no key then. */
    const char *otherwise;
} bt_hf_key_t;

/** What happens to a tensor on its way. */
typedef enum bt_hf_how {
    BT_HF_AS_IS,
    BT_HF_QUERY, /**< halves of rotary pairs in turns, where the family does */
    BT_HF_KEY,
    BT_HF_PLUS_ONE,  /**< the model adds one to these factors */
    BT_HF_TRANSPOSE, /**< stored (in, out) */
    BT_HF_FUSED, /**< groups of query, key and value heads: one tensor of all
                      query heads, then key heads, then value heads */
    BT_HF_SPLIT, /**< the same: three tensors */
    BT_HF_PACK,  /**< all query heads, then key heads, then value heads: three
                      tensors */
    BT_HF_UNIT,  /**< rows that the model divides by their length */
    BT_HF_SKIP,  /**< has no effect */
    BT_HF_ZERO,  /**< must be zeros, and is skipped */
} bt_hf_how_t;

typedef struct bt_hf_name {
    const char *hf; /**< behind the prefix, and "layers.N." of a layer's; it may
                         end in '*' for .weight and .bias */
    const char *gguf; /**< of a layer's, behind "blk.N." */
    bt_hf_how_t how;
} bt_hf_name_t;

/** Which layers look at all positions, as layer_types says. */
typedef enum bt_hf_windows {
    BT_HF_NO_WINDOW = 0,   /**< all of them */
    BT_HF_ANY_WINDOW = -1, /**< whatever it says is written down as a pattern */
    BT_HF_ONE_WINDOW = -2, /**< all or none; a key has the window */
    /* > 0: every n-th does, the others have the window */
} bt_hf_windows_t;

/** What config.json may leave out. */
typedef struct bt_hf_default {
    const char *name;
    bt_json_node_t value;
} bt_hf_default_t;

typedef struct bt_hf_family {
    const char *model_type; /**< in config.json */
    /** Model types that its text_config may have, "a|b", a language model
     * beside which tensors of images are left out; NULL: there is no
     * text_config. */
    const char *inner;
    const char *arch;   /**< general.architecture */
    const char *prefix; /**< of tensors, may be missing: "model." */
    const char *layers; /**< "layers." */
    bool common_keys;   /**< those of bt_hf_common_keys, too */
    bool common_names;
    bool turns;        /**< rotary pairs lie in turns in GGUF */
    bool tied;         /**< unless tie_word_embeddings says otherwise */
    bool bare_head;    /**< a stored lm_head is the embedding, always */
    bool long_factors; /**< rope factors for short and long contexts */
    bool no_rope;      /**< nothing turns */
    bool late_windows; /**< with use_sliding_window, layers from
                            max_window_layers on have the window */
    int windows;       /**< bt_hf_windows_t, or every how many */
    const char *acts;  /**< activations that it can have: "silu|swish" */
    const char *const *checks; /**< settings with a value that must hold:
                                    "alibi=false"; missing is as good */
    const bt_hf_default_t
        *defaults; /**< ends with a name of NULL, or is NULL */
    const bt_hf_key_t *keys;
    const bt_hf_name_t *names;        /**< of a layer */
    const bt_hf_name_t *global_names; /**< of none */
} bt_hf_family_t;

extern const bt_hf_key_t bt_hf_common_keys[];
extern const bt_hf_name_t bt_hf_common_names[];
extern const bt_hf_name_t bt_hf_common_globals[];

/** All families; each table ends with a model_type of NULL. */
extern const bt_hf_family_t bt_hf_llamas[];
extern const bt_hf_family_t bt_hf_gpts[];

/** @return NULL: no such family */
const bt_hf_family_t *bt_hf_family_of(const char *model_type, size_t len);
/** All model_types, for an error's text. */
const char *bt_hf_family_names(void);

#endif
