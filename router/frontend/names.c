/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/names.h"

#include <string.h>

#include "common/repository/repository.h"
#include "router/frontend/frontend.h"

/* Indexes of the names in bt_repo_names. */
static const int of_repository[BT_N_NAMES] = {
    [BT_NAME_OWN] = BT_REPO_LLM,
    [BT_NAME_PREPROCESSING] = 0,
    [BT_NAME_POSTPROCESSING] = 2,
    [BT_NAME_ENSEMBLE] = 3,
    [BT_NAME_BLS] = 4,
};

bt_status_t bt_names_init(bt_names_t *names, const bt_config_t *config,
                          bt_router_metrics_t *metrics)
{
    const bt_repository_t *repository = config->repository;
    bt_status_t status = BT_OK;

    *names = (bt_names_t){0};
    for (int i = BT_NAME_OWN + 1; (i < BT_N_NAMES) && (status == BT_OK); i++) {
        const int at = of_repository[i];

        status = bt_router_metrics_name(
            metrics, bt_repo_names[at],
            (repository == NULL) || repository->has[at], &names->metrics[i]);
    }
    return status;
}

bt_name_t bt_name_of(const bt_frontend_t *front, const char *name)
{
    if ((name == NULL) || (bt_registry_named(&front->models, name) != NULL)) {
        return BT_NAME_OWN;
    }
    for (int i = 0; i < BT_N_NAMES; i++) {
        if (strcmp(name, bt_repo_names[of_repository[i]]) == 0) {
            return (bt_name_t)i;
        }
    }
    return BT_NAME_OWN;
}

static bool is_chain(bt_name_t name)
{
    return (name == BT_NAME_ENSEMBLE) || (name == BT_NAME_BLS);
}

void bt_names_end(const bt_names_t *names, bt_name_t name, bool ok,
                  uint32_t n_prompt, uint32_t n_output)
{
    if (!is_chain(name)) {
        return;
    }
    /* Generation began, so the prompt was tokenized. */
    bt_router_metrics_end(names->metrics[BT_NAME_PREPROCESSING], n_prompt, 0);
    if (ok) {
        bt_router_metrics_end(names->metrics[name], n_prompt, n_output);
        bt_router_metrics_end(names->metrics[BT_NAME_POSTPROCESSING], 0,
                              n_output);
    }
}

void bt_names_request(const bt_names_t *names, bt_name_t name, bool ok)
{
    if (!is_chain(name)) {
        return;
    }
    bt_router_metrics_request(names->metrics[name], ok);
    bt_router_metrics_request(names->metrics[BT_NAME_PREPROCESSING], true);
    if (ok) {
        bt_router_metrics_request(names->metrics[BT_NAME_POSTPROCESSING], true);
    }
}

void bt_names_refused(const bt_names_t *names, bt_name_t name, int http_status)
{
    if ((names->metrics[name] != NULL) &&
        ((http_status == 429) || (http_status >= 500))) {
        bt_router_metrics_request(names->metrics[name], false);
    }
}

void bt_names_ledger(const bt_names_t *names, bt_name_t name,
                     const bt_ledger_t *ledger)
{
    const bt_ledger_t words_to_tokens = {
        .parse_us = ledger->parse_us,
        .total_us = ledger->parse_us + ledger->tokenize_us,
        .n_of_request = ledger->n_of_request,
        .ok = true,
    };

    if (is_chain(name)) {
        bt_router_metrics_ledger(names->metrics[name], ledger);
        bt_router_metrics_ledger(names->metrics[BT_NAME_PREPROCESSING],
                                 &words_to_tokens);
    }
}

void bt_names_output(const bt_names_t *names, bt_name_t name, uint64_t us)
{
    const bt_ledger_t tokens_to_words = {.total_us = us, .ok = true};

    if (is_chain(name)) {
        bt_router_metrics_output(names->metrics[name], us);
        bt_router_metrics_ledger(names->metrics[BT_NAME_POSTPROCESSING],
                                 &tokens_to_words);
    }
}

void bt_names_response(const bt_names_t *names, bt_name_t name, uint32_t index,
                       uint64_t us)
{
    if (is_chain(name)) {
        bt_router_metrics_response(names->metrics[name], index, us);
    }
}

void bt_names_part(const bt_names_t *names, bt_name_t name, uint64_t us)
{
    bt_model_metrics_t *metrics = names->metrics[name];
    const bt_ledger_t ledger = {.total_us = us, .ok = true};

    if (metrics != NULL) {
        bt_router_metrics_end(metrics, 0, 0);
        bt_router_metrics_request(metrics, true);
        bt_router_metrics_ledger(metrics, &ledger);
    }
}
