/* SPDX-License-Identifier: Apache-2.0 */
#include "router/triton/metadata.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/status.h"

static const char *const extensions[] = {
    "model_repository",
    "model_configuration",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
    "generate",
    "system_shared_memory", /* must be last */
};

size_t bt_describe_extensions(const bt_frontend_t *front,
                              const char *list[BT_DESCRIBE_MAX_EXTENSIONS])
{
    _Static_assert(BT_ARRAY_LEN(extensions) <= BT_DESCRIBE_MAX_EXTENSIONS,
                   "the list fits");
    memcpy(list, extensions, sizeof(extensions));
    return BT_ARRAY_LEN(extensions) - ((front->regions == NULL) ? 1 : 0);
}

/* ---- an ensemble's steps ---- */

/* Tensors passed between the ensemble's steps, with TensorRT-LLM's names. */
static const bt_repo_pair_t words_in[] = {
    {"QUERY", "text_input"},
    {"DECODER_QUERY", "decoder_text_input"},
    {"REQUEST_OUTPUT_LEN", "max_tokens"},
    {"BAD_WORDS_DICT", "bad_words"},
    {"STOP_WORDS_DICT", "stop_words"},
    {"EMBEDDING_BIAS_WORDS", "embedding_bias_words"},
    {"EMBEDDING_BIAS_WEIGHTS", "embedding_bias_weights"},
    {"END_ID", "end_id"},
    {"PAD_ID", "pad_id"},
};

static const bt_repo_pair_t words_out[] = {
    {"INPUT_ID", "_INPUT_ID"},
    {"REQUEST_INPUT_LEN", "_REQUEST_INPUT_LEN"},
    {"DECODER_INPUT_ID", "_DECODER_INPUT_ID"},
    {"REQUEST_DECODER_INPUT_LEN", "_REQUEST_DECODER_INPUT_LEN"},
    {"REQUEST_OUTPUT_LEN", "_REQUEST_OUTPUT_LEN"},
    {"STOP_WORDS_IDS", "_STOP_WORDS_IDS"},
    {"BAD_WORDS_IDS", "_BAD_WORDS_IDS"},
    {"EMBEDDING_BIAS", "_EMBEDDING_BIAS"},
    {"OUT_END_ID", "_PREPROCESSOR_END_ID"},
    {"OUT_PAD_ID", "_PREPROCESSOR_PAD_ID"},
};

static const bt_repo_pair_t ids_in[] = {
    {"input_ids", "_INPUT_ID"},
    {"decoder_input_ids", "_DECODER_INPUT_ID"},
    {"input_lengths", "_REQUEST_INPUT_LEN"},
    {"decoder_input_lengths", "_REQUEST_DECODER_INPUT_LEN"},
    {"exclude_input_in_output", "exclude_input_in_output"},
    {"request_output_len", "_REQUEST_OUTPUT_LEN"},
    {"end_id", "_PREPROCESSOR_END_ID"},
    {"pad_id", "_PREPROCESSOR_PAD_ID"},
    {"embedding_bias", "_EMBEDDING_BIAS"},
    {"runtime_top_k", "top_k"},
    {"runtime_top_p", "top_p"},
    {"temperature", "temperature"},
    {"len_penalty", "length_penalty"},
    {"repetition_penalty", "repetition_penalty"},
    {"min_length", "min_length"},
    {"presence_penalty", "presence_penalty"},
    {"frequency_penalty", "frequency_penalty"},
    {"random_seed", "random_seed"},
    {"return_log_probs", "return_log_probs"},
    {"return_context_logits", "return_context_logits"},
    {"return_generation_logits", "return_generation_logits"},
    {"beam_width", "beam_width"},
    {"streaming", "stream"},
    {"prompt_embedding_table", "prompt_embedding_table"},
    {"prompt_vocab_size", "prompt_vocab_size"},
    {"stop_words_list", "_STOP_WORDS_IDS"},
    {"bad_words_list", "_BAD_WORDS_IDS"},
    {"lora_task_id", "lora_task_id"},
    {"lora_weights", "lora_weights"},
    {"lora_config", "lora_config"},
};

static const bt_repo_pair_t ids_out[] = {
    {"output_ids", "_TOKENS_BATCH"},
    {"sequence_length", "_SEQUENCE_LENGTH"},
    {"cum_log_probs", "cum_log_probs"},
    {"output_log_probs", "output_log_probs"},
    {"context_logits", "context_logits"},
    {"generation_logits", "generation_logits"},
    {"batch_index", "batch_index"},
};

static const bt_repo_pair_t tokens_in[] = {
    {"TOKENS_BATCH", "_TOKENS_BATCH"},
    {"SEQUENCE_LENGTH", "_SEQUENCE_LENGTH"},
};

static const bt_repo_pair_t tokens_out[] = {
    {"OUTPUT", "text_output"},
};

typedef struct step_def {
    const char *model;
    const bt_repo_pair_t *inputs, *outputs;
    uint32_t n_inputs, n_outputs;
} step_def_t;

#define STEP(name, in, out)                                \
    {                                                      \
        name, in, out, BT_ARRAY_LEN(in), BT_ARRAY_LEN(out) \
    }

static const step_def_t step_defs[] = {
    STEP("preprocessing", words_in, words_out),
    STEP("tensorrt_llm", ids_in, ids_out),
    STEP("postprocessing", tokens_in, tokens_out),
};

static bt_repo_pair_t *copy_pairs(const bt_repo_pair_t *pairs, uint32_t n)
{
    return bt_memdup(pairs, n * sizeof(*pairs));
}

static bt_status_t add_steps(bt_repo_model_t *model)
{
    model->steps = bt_calloc(BT_ARRAY_LEN(step_defs), sizeof(*model->steps));
    if (model->steps == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(step_defs); i++) {
        const step_def_t *def = &step_defs[i];
        bt_repo_step_t *step = &model->steps[model->n_steps++];

        *step = (bt_repo_step_t){
            .model = def->model,
            .version = -1,
            .inputs = copy_pairs(def->inputs, def->n_inputs),
            .outputs = copy_pairs(def->outputs, def->n_outputs),
            .n_inputs = def->n_inputs,
            .n_outputs = def->n_outputs,
        };
        if ((step->inputs == NULL) || (step->outputs == NULL)) {
            return BT_ERR_NO_MEMORY;
        }
    }
    return BT_OK;
}

/* ---- a model from Baton's state ---- */

static bt_repo_tensor_t *copy_tensors(const bt_model_tensor_t *tensors,
                                      size_t n, uint32_t *n_p)
{
    bt_repo_tensor_t *list = bt_calloc(n + 1, sizeof(*list));

    if (list == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        const bt_model_tensor_t *tensor = &tensors[i];
        bt_repo_tensor_t *to = &list[*n_p];

        if (tensor->hidden) {
            continue;
        }
        to->name = tensor->name;
        to->type = bt_dtype_config_name(tensor->dtype);
        to->n_dims = tensor->n_dims;
        memcpy(to->dims, tensor->dims, tensor->n_dims * sizeof(to->dims[0]));
        to->optional = tensor->optional;
        (*n_p)++;
    }
    return list;
}

static const char *backend_of(const char *name)
{
    if (strcmp(name, "ensemble") == 0) {
        return "";
    }
    return ((strcmp(name, "preprocessing") == 0) ||
            (strcmp(name, "postprocessing") == 0) ||
            (strcmp(name, "tensorrt_llm_bls") == 0))
               ? "python"
               : "tensorrtllm";
}

static bt_status_t add_instances(bt_repo_model_t *model)
{
    model->instances = bt_calloc(1, sizeof(*model->instances));
    if (model->instances == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    model->n_instances = 1;
    model->instances[0] = (bt_repo_instances_t){.kind = "KIND_CPU", .count = 1};
    return BT_OK;
}

/* Parameters of all models, documented for tensorrt_llm, by the parameters'
 * names. */
static bt_status_t add_parameters(const bt_config_t *config,
                                  bt_repo_model_t *model)
{
    char width[16];
    bt_repo_pair_t pairs[] = {
        {"gpt_model_type", config->batching_strategy},
        {"batch_scheduler_policy", config->scheduler_policy},
        {"max_beam_width", NULL},
        {"exclude_input_in_output",
         config->exclude_input_in_output ? "true" : "false"},
    };

    snprintf(width, sizeof(width), "%u", config->max_beam_width);
    model->text = bt_strdup(width);
    if (model->text == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    pairs[2].value = model->text;
    model->parameters = copy_pairs(pairs, BT_ARRAY_LEN(pairs));
    model->n_parameters = BT_ARRAY_LEN(pairs);
    return (model->parameters != NULL) ? BT_OK : BT_ERR_NO_MEMORY;
}

static bt_status_t describe_own(const bt_config_t *config, const char *name,
                                bt_repo_model_t *model)
{
    const bt_model_spec_t *spec = bt_model_spec(name);
    const bool is_ensemble = strcmp(name, "ensemble") == 0;

    *model = (bt_repo_model_t){
        .name = name,
        .platform = is_ensemble ? "ensemble" : "",
        .backend = backend_of(name),
        .max_batch_size = BT_REPO_MAX_BATCH_SIZE,
        .decoupled = spec->decoupled,
    };
    model->inputs =
        copy_tensors(spec->inputs, spec->n_inputs, &model->n_inputs);
    model->outputs =
        copy_tensors(spec->outputs, spec->n_outputs, &model->n_outputs);
    if ((model->inputs == NULL) || (model->outputs == NULL)) {
        return BT_ERR_NO_MEMORY;
    }
    if (is_ensemble) {
        return add_steps(model);
    }
    if ((spec->role == BT_ROLE_IDS) &&
        (add_parameters(config, model) != BT_OK)) {
        return BT_ERR_NO_MEMORY;
    }
    return add_instances(model);
}

/* ---- a model from its file ---- */

/* Finds a model of the repository. @return NULL: there is none */
static const bt_repo_model_t *in_repository(const bt_frontend_t *front,
                                            const char *name)
{
    const bt_repository_t *repository = front->config->repository;

    for (int i = 0; (repository != NULL) && (i < BT_REPO_N_MODELS); i++) {
        if (repository->has[i] && (strcmp(bt_repo_names[i], name) == 0) &&
            (bt_registry_named(&front->models, name) == NULL)) {
            return &repository->models[i];
        }
    }
    return NULL;
}

/* The path that is served counts, not one that the file has besides --model. */
static bt_status_t copy_parameters(const bt_config_t *config,
                                   const bt_repo_model_t *file,
                                   bt_repo_model_t *own)
{
    bt_free(own->parameters);
    own->n_parameters = file->n_parameters;
    own->parameters = copy_pairs(file->parameters, file->n_parameters);
    if (own->parameters == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < own->n_parameters; i++) {
        if (strcmp(own->parameters[i].key, "gpt_model_path") == 0) {
            own->parameters[i].value = config->model;
        }
    }
    return BT_OK;
}

/* Returns the file's model, with what Baton knows and a file may leave out. */
static bt_repo_model_t complete(const bt_repo_model_t *file,
                                const bt_repo_model_t *own)
{
    bt_repo_model_t model = *file;

    model.name = own->name;
    model.parameters = own->parameters;
    if (model.n_inputs == 0) {
        model.inputs = own->inputs;
        model.n_inputs = own->n_inputs;
    }
    if (model.n_outputs == 0) {
        model.outputs = own->outputs;
        model.n_outputs = own->n_outputs;
    }
    /* An ensemble without its steps breaks clients that walk them. */
    if ((model.n_steps == 0) && (own->n_steps > 0)) {
        model.steps = own->steps;
        model.n_steps = own->n_steps;
        model.platform = "ensemble";
    }
    if (model.backend[0] == '\0') {
        model.backend = own->backend;
    }
    return model;
}

bt_status_t bt_describe_model(const bt_frontend_t *front, const char *name,
                              bt_model_view_t *view_p)
{
    const bt_repo_model_t *file = in_repository(front, name);
    bt_model_view_t view = {0};
    bt_status_t status = describe_own(front->config, name, &view.own);

    if ((status == BT_OK) && (file != NULL)) {
        status = copy_parameters(front->config, file, &view.own);
    }
    if (status != BT_OK) {
        bt_repo_model_fini(&view.own);
        return status;
    }
    view.model = (file != NULL) ? complete(file, &view.own) : view.own;
    *view_p = view;
    return BT_OK;
}

uint32_t bt_describe_max_batch(const bt_frontend_t *front, const char *name)
{
    const bt_repo_model_t *file = in_repository(front, name);

    return (file != NULL) ? file->max_batch_size : BT_REPO_MAX_BATCH_SIZE;
}

bool bt_describe_is_decoupled(const bt_frontend_t *front, const char *name)
{
    const bt_repo_model_t *file = in_repository(front, name);
    const bt_model_spec_t *spec = bt_model_spec(name);

    /* The ensemble is decoupled if the generating model is. */
    if (strcmp(name, "ensemble") == 0) {
        file = in_repository(front, "tensorrt_llm");
    }
    return (file != NULL) ? (spec->decoupled && file->decoupled)
                          : spec->decoupled;
}

/* ---- names, counts and states ---- */

size_t bt_describe_names(const bt_frontend_t *front, bt_described_t *list,
                         size_t cap)
{
    size_t n = 0;

    BT_REGISTRY_FOR_EACH(served, &front->models)
    {
        if (n < cap) {
            list[n++] = (bt_described_t){served->name, served};
        }
    }
    for (int i = 0; (n > 0) && (i < BT_REPO_N_MODELS); i++) {
        const char *name = bt_repo_names[i];

        if ((n < cap) && (bt_registry_named(&front->models, name) == NULL)) {
            list[n++] =
                (bt_described_t){name, bt_registry_find(&front->models, name)};
        }
    }
    return n;
}

void bt_describe_statistics(const bt_frontend_t *front,
                            const bt_served_t *served, const char *name,
                            bt_statistics_t *statistics)
{
    const bt_model_metrics_t *metrics =
        front->names.metrics[bt_name_of(front, name)];

    bt_router_metrics_statistics((metrics != NULL) ? metrics : served->metrics,
                                 statistics);
}

const char *bt_describe_state(const bt_frontend_t *front,
                              const bt_served_t *served, const char **why_p)
{
    *why_p = "";
    if (served->unloaded) {
        *why_p = "unloaded";
    } else if (front->leaving) {
        *why_p = "the server is stopping";
    } else if (!bt_served_ready(served)) {
        *why_p = "no worker for it is here";
    }
    return ((*why_p)[0] == '\0') ? "READY" : "UNAVAILABLE";
}
