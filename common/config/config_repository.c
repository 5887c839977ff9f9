/* SPDX-License-Identifier: Apache-2.0 */
/* Sets options from a model repository, unless a source of higher precedence
 * does. */
#include <string.h>
#include <sys/stat.h>

#include "common/base/status.h"
#include "common/config/config_options.h"

static bool is_given(const bt_config_store_t *store, const bt_option_t *option)
{
    return store->sources[option - bt_config_options] > BT_CONFIG_REPOSITORY;
}

static bool is_first_model(const bt_config_t *config, const char *path)
{
    struct stat served, other;

    return (strcmp(config->model, path) == 0) ||
           ((stat(config->model, &served) == 0) && (stat(path, &other) == 0) &&
            (served.st_dev == other.st_dev) && (served.st_ino == other.st_ino));
}

static bt_status_t set(bt_config_store_t *store,
                       const bt_repo_setting_t *setting)
{
    const bt_option_t *option =
        bt_config_option_find(setting->option, strlen(setting->option));

    BT_ASSERT_ALWAYS(option != NULL); /* a row of the fields' table names it */
    if ((option->type == BT_OPTION_MODELS) &&
        (is_given(store, option) || (store->config.n_models > 0))) {
        /* An additional model does not conflict with the first. */
        if (!is_first_model(&store->config, setting->path)) {
            bt_repository_note(store->repository, BT_REPO_LLM,
                               "parameters.gpt_model_path",
                               "not served: --model names the model");
        }
        return BT_OK;
    }
    return bt_config_store_set(
        store, option, (setting->path != NULL) ? setting->path : setting->value,
        BT_CONFIG_REPOSITORY, setting->where);
}

bt_status_t bt_config_repository_read(bt_config_store_t *store)
{
    const char *dir = store->config.model_repository;
    char why[BT_REPO_WHY_BYTES];
    bt_status_t status;

    if (dir[0] == '\0') {
        return BT_OK;
    }
    status = bt_repository_read(dir, &store->repository, why);
    if (status != BT_OK) {
        bt_config_complain(store, "--model-repository: %s", why);
        return (status == BT_ERR_NO_MEMORY) ? status : BT_ERR_INVALID_PARAM;
    }
    store->config.repository = store->repository;
    for (uint32_t i = 0;
         (status == BT_OK) && (i < store->repository->n_settings); i++) {
        status = set(store, &store->repository->settings[i]);
    }
    return status;
}
