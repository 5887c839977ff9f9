/* SPDX-License-Identifier: Apache-2.0 */
/* Input: a config.pbtxt, taken as that of each of the five models. What is read
 * points into the tree's memory, holds what it says, and is freed whole. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/repository/repository.h"

static size_t sum; /* what is looked at is not optimised away */

static void look(const char *text)
{
    sum += strlen(text);
}

static void look_at_pairs(const bt_repo_pair_t *pairs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        look(pairs[i].key);
        look(pairs[i].value);
    }
}

static void look_at_tensors(const bt_repo_tensor_t *tensors, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        look(tensors[i].name);
        look(tensors[i].type);
        BT_ASSERT_ALWAYS(tensors[i].n_dims <= BT_REPO_MAX_DIMS);
        BT_ASSERT_ALWAYS(tensors[i].n_reshape <= BT_REPO_MAX_DIMS);
    }
}

static void look_at_model(const bt_repo_model_t *model)
{
    look(model->name);
    look(model->platform);
    look(model->backend);
    BT_ASSERT_ALWAYS(model->max_batch_size <= BT_REPO_MAX_BATCH_SIZE);
    look_at_tensors(model->inputs, model->n_inputs);
    look_at_tensors(model->outputs, model->n_outputs);
    look_at_pairs(model->parameters, model->n_parameters);
    for (uint32_t i = 0; i < model->n_instances; i++) {
        look(model->instances[i].kind);
    }
    for (uint32_t i = 0; i < model->n_steps; i++) {
        look(model->steps[i].model);
        look_at_pairs(model->steps[i].inputs, model->steps[i].n_inputs);
        look_at_pairs(model->steps[i].outputs, model->steps[i].n_outputs);
    }
}

static void take_as(uint32_t index, const char *text, size_t size)
{
    bt_repository_t *repository = bt_calloc(1, sizeof(*repository));
    char why[BT_REPO_WHY_BYTES] = "";

    if (repository == NULL) {
        return;
    }
    if (bt_repository_take(repository, index, "config.pbtxt", text, size,
                           why) == BT_OK) {
        look_at_model(&repository->models[index]);
        for (uint32_t i = 0; i < repository->n_settings; i++) {
            const bt_repo_setting_t *setting = &repository->settings[i];

            look((setting->path != NULL) ? setting->path : setting->value);
            BT_ASSERT_ALWAYS(setting->where[0] != '\0');
        }
    } else {
        BT_ASSERT_ALWAYS(why[0] != '\0');
    }
    look(repository->notes[index]);
    bt_repository_destroy(repository);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (uint32_t i = 0; i < BT_REPO_N_MODELS; i++) {
        take_as(i, (const char *)data, size);
    }
    return 0;
}
