/* SPDX-License-Identifier: Apache-2.0 */
#include "router/api/sampling.h"

#include "common/base/log.h"
#include "common/base/status.h"

static const bt_sampling_defaults_t nothing_said = {
    .temperature = 1.0f, .top_p = 1.0f, .repetition_penalty = 1.0f};

float bt_sampling_temperature(float given)
{
    return (given < 1e-5f) ? 0.0f : given;
}

/* Names: gguf's own constants for its writers (general.sampling.*). A number
 * may be an integer there. */
static bool number_of(const bt_gguf_t *gguf, const char *key, float *number_p)
{
    uint64_t integer = 0;

    if (bt_gguf_get_f32(gguf, key, number_p) == BT_OK) {
        return true;
    }
    if (bt_gguf_get_u64(gguf, key, &integer) == BT_OK) {
        *number_p = (float)integer;
        return true;
    }
    return false;
}

/* @return whether the file has it, and it can be used. Never with NaN. */
static bool read_one(const bt_gguf_t *gguf, const char *model_name,
                     const char *key, float min, float max, float *value_p)
{
    float number = 0.0f;

    if (!bt_gguf_has(gguf, key)) {
        return false;
    }
    if (!number_of(gguf, key, &number) || !(number >= min) ||
        !(number <= max)) {
        BT_LOG_WARN("model %s: %s of the file is not a number from %g to %g; "
                    "it is not used",
                    model_name, key, (double)min, (double)max);
        return false;
    }
    *value_p = number;
    return true;
}

void bt_sampling_defaults_read(const bt_gguf_t *gguf, const char *model_name,
                               bt_sampling_defaults_t *defaults_p)
{
    bt_sampling_defaults_t file = nothing_said;
    bool is_said = false;
    float top_k = 0.0f;
    const struct {
        const char *key;
        float min, max;
        float *value;
    } keys[] = {
        {"general.sampling.temp", 0.0f, 100.0f, &file.temperature},
        {"general.sampling.top_p", 1e-6f, 1.0f, &file.top_p},
        {"general.sampling.min_p", 0.0f, 1.0f, &file.min_p},
        {"general.sampling.penalty_repeat", 0.01f, 100.0f,
         &file.repetition_penalty},
        {"general.sampling.top_k", 0.0f, 1e6f, &top_k},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(keys); i++) {
        is_said |= read_one(gguf, model_name, keys[i].key, keys[i].min,
                            keys[i].max, keys[i].value);
    }
    file.source = is_said ? BT_SAMPLING_OF_FILE : BT_SAMPLING_OF_SERVER;
    file.top_k = (uint32_t)top_k;
    file.temperature = bt_sampling_temperature(file.temperature);
    if (!is_said) {
        file.temperature = BT_SAMPLING_TEMPERATURE;
        file.top_p = BT_SAMPLING_TOP_P;
        file.min_p = BT_SAMPLING_MIN_P;
    }
    *defaults_p = file;
}

void bt_sampling_defaults_override(bt_sampling_defaults_t *defaults,
                                   const bt_config_sampling_t *option)
{
    if (!option->has_temperature && !option->has_top_p && !option->has_top_k &&
        !option->has_min_p && !option->has_repetition_penalty) {
        return;
    }
    if (defaults->source == BT_SAMPLING_OF_SERVER) {
        *defaults = nothing_said;
    }
    defaults->source = BT_SAMPLING_OF_OPTION;
    if (option->has_temperature) {
        defaults->temperature =
            bt_sampling_temperature((float)option->temperature);
    }
    if (option->has_top_p) {
        defaults->top_p = (float)option->top_p;
    }
    if (option->has_top_k) {
        defaults->top_k = (uint32_t)option->top_k;
    }
    if (option->has_min_p) {
        defaults->min_p = (float)option->min_p;
    }
    if (option->has_repetition_penalty) {
        defaults->repetition_penalty = (float)option->repetition_penalty;
    }
}

void bt_sampling_defaults_apply(const bt_sampling_defaults_t *defaults,
                                uint32_t given, bt_sampling_t *sampling)
{
    if ((defaults->source == BT_SAMPLING_OF_SERVER) &&
        ((given & BT_GIVEN_A_DISTRIBUTION) != 0)) {
        return;
    }
    if ((given & BT_GIVEN_TEMPERATURE) == 0) {
        sampling->temperature = defaults->temperature;
    }
    if ((given & BT_GIVEN_TOP_P) == 0) {
        sampling->top_p = defaults->top_p;
    }
    if ((given & BT_GIVEN_TOP_K) == 0) {
        sampling->top_k = defaults->top_k;
    }
    if ((given & BT_GIVEN_MIN_P) == 0) {
        sampling->min_p = defaults->min_p;
    }
    if ((given & BT_GIVEN_REPETITION_PENALTY) == 0) {
        sampling->repetition_penalty = defaults->repetition_penalty;
    }
}

void bt_sampling_apply_triton(uint32_t given, bt_sampling_t *sampling)
{
    const bool asks =
        (sampling->top_k > 1) || ((given & BT_GIVEN_TOP_P) != 0) ||
        (sampling->min_p > 0.0f) || (sampling->processors.top_n_sigma > 0.0f) ||
        (sampling->processors.typical_p > 0.0f) ||
        (sampling->processors.xtc_probability > 0.0f);

    if (!asks || (sampling->top_k == 1)) {
        sampling->temperature = 0.0f;
    } else if ((given & BT_GIVEN_TEMPERATURE) == 0) {
        sampling->temperature = 1.0f;
    }
}
