/* SPDX-License-Identifier: Apache-2.0 */
/* Models whose weights are in the shared file. */
#include "tests/unit/inference/model/families.h"

#include <dirent.h>
#include <stdio.h>

/* Load with packed weights in @a dir, and run the prompt. */
static rig_t load_shared(const bt_gguf_t *gguf, const char *dir,
                         bt_weight_source_t wanted)
{
    bt_model_config_t config = default_config;
    rig_t rig = {.be = open_backend(1)};
    const bt_hparams_t *hp;

    config.weight_dir = dir;
    assert_int_equal(
        bt_model_load(gguf, rig.be, &config, why, sizeof(why), &rig.model),
        BT_OK);
    assert_string_equal(why, "");
    assert_int_equal(bt_model_weight_source(rig.model), wanted);
    hp = bt_model_hparams(rig.model);
    rig.n_vocab = hp->n_vocab;
    rig.kv =
        (bt_kv_view_t){.block_bytes = (size_t)hp->n_layers * 2 *
                                      hp->n_kv_heads * T * hp->head_dim * 2,
                       .type = BT_KV_F16,
                       .n_layers = hp->n_layers,
                       .n_kv_heads = hp->n_kv_heads,
                       .head_dim = hp->head_dim,
                       .tokens_per_block = T};
    rig.kv.base = bt_calloc_aligned(N_BLOCKS, rig.kv.block_bytes);
    assert_non_null(rig.kv.base);
    return rig;
}

static void remove_folder(const char *dir)
{
    char path[300];
    DIR *const stream = opendir(dir);
    const struct dirent *entry;

    assert_non_null(stream);
    while ((entry = readdir(stream)) != NULL) {
        snprintf(path, sizeof(path), "%s/%.255s", dir, entry->d_name);
        (void)unlink(path);
    }
    closedir(stream);
    assert_int_equal(rmdir(dir), 0);
}

static void shared_weights_give_the_bits_of_private_ones(void **state)
{
    (void)state;
    for (size_t v = 0; v < N_VARIANTS + N_FAMILIES; v++) {
        const bt_tiny_model_t tiny =
            (v < N_VARIANTS) ? variant((int)v)
                             : family_tiny(&family_cases[v - N_VARIANTS]);
        bt_gguf_t *const gguf = open_tiny(&tiny);
        char dir[] = "/tmp/baton-test-model-XXXXXX";
        rig_t rigs[3];
        logits_of_prompt_t p[3];

        assert_non_null(mkdtemp(dir));
        rigs[0] = load_shared(gguf, NULL, BT_WEIGHTS_PRIVATE);
        rigs[1] = load_shared(gguf, dir, BT_WEIGHTS_BUILT);
        rigs[2] = load_shared(gguf, dir, BT_WEIGHTS_FOUND);
        for (int i = 0; i < 3; i++) {
            p[i] = run_whole(&rigs[i]);
            assert_memory_equal(p[i].whole, p[0].whole, p[0].bytes);
        }
        remove_folder(dir); /* what is mapped stays */
        for (int i = 0; i < 3; i++) {
            free_logits(&p[i]);
            free_rig(&rigs[i]);
        }
        bt_gguf_close(gguf);
    }
}

/* Without the matrices: those are pages of a file. */
static void shared_weights_take_no_memory_of_the_process(void **state)
{
    bt_tiny_model_t tiny = variant(1);
    char dir[] = "/tmp/baton-test-model-XXXXXX";
    bt_model_config_t config = default_config;
    bt_model_memory_t memory;
    bt_model_t *model = NULL;
    bt_backend_t *be;
    bt_gguf_t *gguf;
    size_t before;
    size_t taken;

    (void)state;
    if (heap_bytes() == 0) {
        skip(); /* a sanitizer's allocator does not tell */
    }
    tiny.n_layers = 24;
    be = open_backend(1);
    gguf = open_tiny(&tiny);
    assert_non_null(mkdtemp(dir));
    config.weight_dir = dir;
    assert_int_equal(
        bt_model_memory(gguf, "cpu", &config, why, sizeof(why), &memory),
        BT_OK);
    for (int i = 0; i < 2; i++) { /* built, then found */
        assert_int_equal(
            bt_model_load(gguf, be, &config, why, sizeof(why), &model), BT_OK);
        bt_model_destroy(model);
    }
    before = heap_bytes();
    assert_int_equal(bt_model_load(gguf, be, &config, why, sizeof(why), &model),
                     BT_OK);
    taken = heap_bytes() - before;
    assert_in_range(taken, memory.private_bytes,
                    memory.private_bytes + memory.private_bytes / 20);
    assert_true(memory.weight_bytes > taken / 4); /* or this shows nothing */
    bt_model_destroy(model);
    remove_folder(dir);
    bt_backend_close(be);
    bt_gguf_close(gguf);
}

/* A back end that keeps its weights where no file can be mapped. */
static void back_end_without_shared_weights_packs_its_own(void **state)
{
    const bt_tiny_model_t tiny = variant(0);
    bt_gguf_t *const gguf = open_tiny(&tiny);
    bt_backend_t *const be = open_backend(1);
    const bt_kernels_caps_t *const caps = be->caps;
    bt_kernels_caps_t other = *caps;
    bt_model_config_t config = default_config;
    bt_model_t *model = NULL;

    (void)state;
    other.pack_version = 0;
    be->caps = &other;
    config.weight_dir = "/nowhere/at/all";
    assert_int_equal(bt_model_load(gguf, be, &config, why, sizeof(why), &model),
                     BT_OK);
    assert_int_equal(bt_model_weight_source(model), BT_WEIGHTS_PRIVATE);
    bt_model_destroy(model);
    be->caps = caps;
    bt_backend_close(be);
    bt_gguf_close(gguf);
}

static void unusable_packed_folder_is_no_failure(void **state)
{
    const bt_tiny_model_t tiny = variant(0);
    bt_gguf_t *const gguf = open_tiny(&tiny);
    rig_t rig;

    (void)state;
    rig = load_shared(gguf, "/proc/nowhere", BT_WEIGHTS_PRIVATE);
    bt_test_expect_log_lines(1);
    free_rig(&rig);
    bt_gguf_close(gguf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(shared_weights_give_the_bits_of_private_ones),
        BT_TEST(shared_weights_take_no_memory_of_the_process),
        BT_TEST(back_end_without_shared_weights_packs_its_own),
        BT_TEST(unusable_packed_folder_is_no_failure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
