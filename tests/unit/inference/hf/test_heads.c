/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of draft heads: the bits of the same head in GGUF, whose logits are
 * PyTorch's (tests/unit/inference/model/test_head.c). */
#include "inference/hf/hf.h"
#include "tests/support/hf_folder.h"
#include "tests/unit/inference/model/heads.h"

#include <stdio.h>

/* In place of pairs side by side, as GGUF has queries and keys, halves of a
 * head, as transformers has them. */
static void put_halves(const float *in, uint32_t n_heads, uint32_t head_dim,
                       uint32_t n_in, float *out)
{
    for (uint32_t r = 0; r < n_heads * head_dim; r++) {
        const uint32_t i = r % head_dim;
        const uint32_t at = (i % 2) * (head_dim / 2) + i / 2;

        memcpy(out + (size_t)(r - i + at) * n_in, in + (size_t)r * n_in,
               n_in * sizeof(*out));
    }
}

static void add_tensor(bt_st_file_t *file, const bt_gguf_t *gguf,
                       const char *name, const char *stored, uint32_t n_heads)
{
    const bt_gguf_tensor_t *const t = bt_gguf_tensor(gguf, name);
    float *const values = bt_calloc(1, t->bytes);
    char shape[64];

    assert_non_null(values);
    snprintf(shape, sizeof(shape), (t->n_dims == 1) ? "%u" : "%u,%u",
             (uint32_t)((t->n_dims == 1) ? t->dims[0] : t->dims[1]),
             (uint32_t)t->dims[0]);
    if (n_heads > 0) {
        put_halves(t->data, n_heads, (uint32_t)t->dims[1] / n_heads,
                   (uint32_t)t->dims[0], values);
    } else {
        memcpy(values, t->data, t->bytes);
    }
    bt_st_file_add(file, stored, "F32", shape, values, t->bytes);
    bt_free(values);
}

/* Distances from the head's ids, as safetensors has them. */
static void add_ids(bt_st_file_t *file, const bt_gguf_t *gguf)
{
    const bt_gguf_tensor_t *const t = bt_gguf_tensor(gguf, "d2t");
    const uint8_t inside[288] = {1};
    int64_t ids[96];

    memcpy(ids, t->data, sizeof(ids));
    for (int64_t i = 0; i < 96; i++) {
        ids[i] -= i;
    }
    bt_st_file_add(file, "d2t", "I64", "96", ids, sizeof(ids));
    bt_st_file_add(file, "t2d", "BOOL", "288", inside, sizeof(inside));
}

/* The head of a case as SafeAILab and AngelSlim publish theirs, or as
 * speculators does. */
static bt_status_t open_folder(const char *config, const char *layer,
                               bt_gguf_t **gguf_p)
{
    static const struct {
        const char *name, *stored;
        uint32_t n_heads;
    } list[] = {
        {"blk.0.attn_norm.weight", "input_layernorm.weight", 0},
        {"blk.0.attn_norm_2.weight", "hidden_norm.weight", 0},
        {"blk.0.attn_q.weight", "self_attn.q_proj.weight", 4},
        {"blk.0.attn_k.weight", "self_attn.k_proj.weight", 2},
        {"blk.0.attn_v.weight", "self_attn.v_proj.weight", 0},
        {"blk.0.attn_output.weight", "self_attn.o_proj.weight", 0},
        {"blk.0.ffn_norm.weight", "post_attention_layernorm.weight", 0},
        {"blk.0.ffn_gate.weight", "mlp.gate_proj.weight", 0},
        {"blk.0.ffn_up.weight", "mlp.up_proj.weight", 0},
        {"blk.0.ffn_down.weight", "mlp.down_proj.weight", 0},
    };
    const head_case_t c = eagle3_case(false);
    bt_gguf_t *const gguf = open_head(&c);
    const char *const dir = bt_hf_folder_make();
    bt_st_file_t file;
    bt_status_t status;
    char name[96];

    bt_st_file_init(&file);
    for (size_t i = 0; i < BT_ARRAY_LEN(list); i++) {
        snprintf(name, sizeof(name), "%s%s", layer, list[i].stored);
        add_tensor(&file, gguf, list[i].name, name, list[i].n_heads);
    }
    add_tensor(&file, gguf, "fc.weight", "fc.weight", 0);
    add_tensor(&file, gguf, "output_norm.weight", "norm.weight", 0);
    add_tensor(&file, gguf, "output.weight", "lm_head.weight", 0);
    add_ids(&file, gguf);
    bt_st_file_write(&file, dir, "model.safetensors");
    bt_hf_folder_text(dir, "config.json", config);
    status = bt_modelfile_open(dir, why, sizeof(why), gguf_p);
    bt_gguf_close(gguf);
    bt_hf_folder_remove(dir);
    return status;
}

#define LAYER_CONFIG                                               \
    "\"model_type\": \"llama\", \"hidden_act\": \"silu\", "        \
    "\"hidden_size\": 64, \"intermediate_size\": 96, "             \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, "     \
    "\"num_hidden_layers\": 1, \"max_position_embeddings\": 512, " \
    "\"rms_norm_eps\": 1e-05, \"rope_theta\": 10000.0, "           \
    "\"vocab_size\": 288"

/* Hidden states are before layers 1, 2 and 3. The setting inside of
 * eagle_config names layers by what they leave, as SGLang reads it (it adds 1);
 * that at the top, speculators', by what they get, as vLLM does. */
static void folder_of_a_head_gives_the_logits_of_its_file(void **state)
{
    static const struct {
        const char *config, *layer;
    } folders[] = {
        {"{" LAYER_CONFIG ", \"architectures\": [\"LlamaForCausalLMEagle3\"], "
         "\"tie_word_embeddings\": false, "
         "\"draft_vocab_size\": 96, \"eagle_config\": "
         "{\"eagle_aux_hidden_state_layer_ids\": [0, 1, 2], "
         "\"use_aux_hidden_state\": true}}",
         "midlayer."},
        /* SpecForge's configs/qwen3-4b-eagle3.json says so of a head that has
         * an output matrix of its own. */
        {"{" LAYER_CONFIG ", \"architectures\": [\"LlamaForCausalLMEagle3\"], "
         "\"tie_word_embeddings\": true, "
         "\"draft_vocab_size\": 96, \"eagle_config\": "
         "{\"eagle_aux_hidden_state_layer_ids\": [0, 1, 2], "
         "\"use_aux_hidden_state\": true}}",
         "midlayer."},
        {"{\"architectures\": [\"Eagle3Speculator\"], \"draft_vocab_size\": 96, "
         "\"speculators_model_type\": \"eagle3\", "
         "\"norm_before_residual\": false, \"target_hidden_size\": null, "
         "\"eagle_aux_hidden_state_layer_ids\": [1, 2, 3], "
         "\"transformer_layer_config\": {" LAYER_CONFIG
         ", \"tie_word_embeddings\": false}}",
         "layers.0."},
    };
    const head_case_t c = eagle3_case(false);
    pair_t p = make_pair(&c);
    const uint32_t n = 20;
    const size_t bytes = (size_t)n * p.n_vocab * sizeof(float);
    float *const fused = bt_calloc((size_t)n * 64, sizeof(float));
    float *const next = bt_calloc((size_t)n * 64, sizeof(float));
    float *const want = bt_calloc(1, bytes);
    uint32_t tokens[N_TOKENS];

    (void)state;
    assert_true((fused != NULL) && (next != NULL) && (want != NULL));
    fill_tokens(tokens, N_TOKENS, p.target.n_vocab);
    run_target(&p, tokens, 0, n);
    bt_model_fuse_hidden(p.head, p.taps.hidden, n, fused);
    memcpy(want, run_head(&p, tokens + 1, 0, n, n, fused, next), bytes);
    for (size_t i = 0; i < BT_ARRAY_LEN(folders); i++) {
        bt_gguf_t *gguf = NULL;
        pair_t other = p;

        assert_int_equal(
            open_folder(folders[i].config, folders[i].layer, &gguf), BT_OK);
        assert_int_equal(load_head(&c, &p.target, gguf, &other.head), BT_OK);
        bt_gguf_close(gguf);
        assert_memory_equal(bt_model_hparams(other.head)->head.taps,
                            p.taps.layers, sizeof(p.taps.layers));
        assert_memory_equal(bt_model_target_ids(other.head),
                            bt_model_target_ids(p.head), 96 * sizeof(uint32_t));
        bt_model_fuse_hidden(other.head, p.taps.hidden, n, fused);
        assert_memory_equal(run_head(&other, tokens + 1, 0, n, n, fused, next),
                            want, bytes);
        bt_model_destroy(other.head);
    }
    bt_free(fused);
    bt_free(next);
    bt_free(want);
    free_pair(&p);
}

/* vLLM's, and EAGLE's own, of 4 layers: 2, 4 / 2 and 4 - 3. */
static void folder_without_layers_of_its_target_has_the_usual_ones(void **state)
{
    static const char *const configs[] = {
        "{" LAYER_CONFIG ", \"draft_vocab_size\": 96}",
        "{" LAYER_CONFIG ", \"draft_vocab_size\": 96, "
        "\"eagle_aux_hidden_state_layer_ids\": []}",
        "{" LAYER_CONFIG ", \"draft_vocab_size\": 96, \"eagle_config\": "
        "{\"eagle_aux_hidden_state_layer_ids\": []}}",
    };
    const head_case_t c = eagle3_case(false);
    rig_t target = make_rig(&c.target, 1);
    const uint32_t want[] = {2, 2, 1};
    bt_hparams_t few = *bt_model_hparams(target.model);
    bt_hparams_t hp;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(configs); i++) {
        bt_gguf_t *gguf = NULL;

        few.n_layers = 4;
        assert_int_equal(open_folder(configs[i], "midlayer.", &gguf), BT_OK);
        assert_int_equal(bt_head_hparams_read(gguf, BT_HEAD_EAGLE3, &few, why,
                                              sizeof(why), &hp),
                         BT_OK);
        assert_memory_equal(hp.head.taps, want, sizeof(want));
        few.n_layers = 2;
        assert_int_equal(bt_head_hparams_read(gguf, BT_HEAD_EAGLE3, &few, why,
                                              sizeof(why), &hp),
                         BT_ERR_MISMATCH);
        assert_non_null(strstr(why, "it names no layers of its target"));
        bt_gguf_close(gguf);
    }
    free_rig(&target);
}

static void other_heads_are_refused_by_name(void **state)
{
    static const struct {
        const char *config, *reason;
    } list[] = {
        {"{\"model_type\": \"medusa\", \"medusa_num_heads\": 4}",
         "Medusa heads"},
        {"{\"architectures\": [\"MedusaModel\"]}", "Medusa heads"},
        {"{\"model_type\": \"recurrent_drafting_drafter\"}", "ReDrafter heads"},
        {"{\"architectures\": [\"MLPSpeculatorPreTrainedModel\"]}",
         "MLP heads"},
        {"{\"model_type\": \"eagle\"}", "EAGLE heads"},
        {"{\"architectures\": [\"EagleLlamaForCausalLM\"]}", "EAGLE heads"},
        {"{" LAYER_CONFIG
         ", \"draft_vocab_size\": 96, \"sliding_window\": 512}",
         "sliding_window is not null"},
        {"{" LAYER_CONFIG ", \"draft_vocab_size\": 96, \"fc_norm\": true}",
         "fc_norm is not false"},
        {"{" LAYER_CONFIG ", \"draft_vocab_size\": 96, \"eagle_config\": "
         "{\"eagle_aux_hidden_state_layer_ids\": [\"x\"]}}",
         "has an entry that is no layer"},
        {"{" LAYER_CONFIG ", \"draft_vocab_size\": 96, \"eagle_config\": "
         "{\"eagle_aux_hidden_state_layer_ids\": [2147483647]}}",
         "has an entry that is no layer"},
        {"{" LAYER_CONFIG ", \"draft_vocab_size\": 96, "
         "\"eagle_aux_hidden_state_layer_ids\": 3}",
         "is no list"},
    };

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(list); i++) {
        bt_gguf_t *gguf = NULL;

        assert_int_not_equal(open_folder(list[i].config, "midlayer.", &gguf),
                             BT_OK);
        if (strstr(why, list[i].reason) == NULL) {
            fail_msg("\"%s\" does not say \"%s\"", why, list[i].reason);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(folder_of_a_head_gives_the_logits_of_its_file),
        BT_TEST(folder_without_layers_of_its_target_has_the_usual_ones),
        BT_TEST(other_heads_are_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
