/* SPDX-License-Identifier: Apache-2.0 */
/* Targets of models: `--model-targets NAME=TTFT/ITL,...`. */
#include <string.h>

#include "common/config/config_options.h"

#define HOUR_MS 3600000u

/* Parses a whole number of ms up to most, and the separator after it. */
static const char *read_ms(const char *text, uint32_t most, uint32_t *ms_p)
{
    uint64_t ms = 0;
    size_t n = 0;

    for (; (text[n] >= '0') && (text[n] <= '9') && (ms <= most); n++) {
        ms = 10 * ms + (uint64_t)(text[n] - '0');
    }
    if ((n == 0) || (ms > most)) {
        return NULL;
    }
    *ms_p = (uint32_t)ms;
    return text + n;
}

bool bt_config_targets_next(const char **text_p, bt_config_targets_t *targets_p)
{
    bt_config_targets_t targets = {.name = *text_p};
    const char *text = strchr(targets.name, '=');

    if (text == NULL) {
        return false;
    }
    targets.n_name = (size_t)(text - targets.name);
    if (!bt_config_is_model_name(targets.name, targets.n_name)) {
        return false;
    }
    text = read_ms(text + 1, 24 * HOUR_MS, &targets.ttft_ms);
    if ((text == NULL) || (*text != '/')) {
        return false;
    }
    text = read_ms(text + 1, HOUR_MS, &targets.itl_ms);
    if ((text == NULL) || ((*text != ',') && (*text != '\0')) ||
        ((text[0] == ',') && (text[1] == '\0'))) {
        return false;
    }
    *text_p = text + ((*text == ',') ? 1 : 0);
    *targets_p = targets;
    return true;
}

void bt_config_model_targets(const bt_config_t *config, const char *model,
                             uint32_t *ttft_ms_p, uint32_t *itl_ms_p)
{
    const char *text = config->model_targets;
    bt_config_targets_t targets;

    *ttft_ms_p = config->ttft_target_ms;
    *itl_ms_p = config->itl_target_ms;
    while ((*text != '\0') && bt_config_targets_next(&text, &targets)) {
        if ((strlen(model) == targets.n_name) &&
            (memcmp(model, targets.name, targets.n_name) == 0)) {
            *ttft_ms_p = targets.ttft_ms;
            *itl_ms_p = targets.itl_ms;
        }
    }
}
