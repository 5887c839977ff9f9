/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/registry.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/repository/repository.h"
#include "inference/gguf/architectures.h"
#include "inference/hf/hf.h"
#include "router/frontend/frontend.h"
#include "router/frontend/served_adapters.h"
#include "router/frontend/watching.h"
#include "router/text/harmony_parser.h"

#define WHY_BYTES           512
#define NAMES_BYTES         1024 /* of models, in an error's text */
#define TEMPLATE_FILE_LIMIT (1u << 20)
/* Number of simultaneous requests for logits of the largest allowed size. */
#define LOGITS_AT_A_TIME 4

static bt_status_t read_context(bt_served_t *served,
                                const bt_served_options_t *options)
{
    bt_gguf_str_t arch = {0};
    char key[128];
    bt_status_t status =
        bt_gguf_get_str(served->gguf, "general.architecture", &arch);

    if (status == BT_OK) {
        snprintf(key, sizeof(key), "%.*s.context_length",
                 (arch.len < 64) ? (int)arch.len : 64, arch.data);
        status = bt_gguf_get_u32(served->gguf, key, &served->context_tokens);
        snprintf(key, sizeof(key), "%.*s.embedding_length",
                 (arch.len < 64) ? (int)arch.len : 64, arch.data);
        if (bt_gguf_get_u32(served->gguf, key, &served->width) != BT_OK) {
            served->width = 0;
        }
    }
    if ((status != BT_OK) || (served->context_tokens == 0)) {
        BT_LOG_ERROR("model %s: no context length in the file", options->path);
        return BT_ERR_BAD_FILE;
    }
    if (options->context_tokens > served->context_tokens) {
        BT_LOG_ERROR("max-seq-len %u exceeds the model's %u",
                     options->context_tokens, served->context_tokens);
        return BT_ERR_INVALID_PARAM;
    }
    if (options->context_tokens != 0) {
        served->context_tokens = options->context_tokens;
    }
    return BT_OK;
}

static bt_status_t read_file(const char *path, bt_strbuf_t *out)
{
    FILE *file = fopen(path, "re");
    char piece[4096];
    size_t n;

    if (file == NULL) {
        return BT_ERR_NOT_FOUND;
    }
    while ((n = fread(piece, 1, sizeof(piece), file)) > 0) {
        bt_strbuf_append(out, piece, n);
    }
    if (ferror(file) != 0) {
        out->status = BT_ERR_IO;
    }
    fclose(file);
    return bt_strbuf_status(out);
}

/* ---- chat templates ---- */

/* Special tokens that a chat template may use: their names for clients, and
 * the keys of the file. */
static const struct {
    const char *name, *key;
} chat_tokens[] = {
    {"bos_token", "tokenizer.ggml.bos_token_id"},
    {"eos_token", "tokenizer.ggml.eos_token_id"},
    {"unk_token", "tokenizer.ggml.unknown_token_id"},
    {"pad_token", "tokenizer.ggml.padding_token_id"},
};

/* Returns the spelling of a special token of the file, or NULL: there is none.
 */
static char *token_text(const bt_served_t *served, const char *key)
{
    const uint8_t *bytes;
    bool is_special;
    uint32_t id;
    size_t n;

    if (bt_gguf_get_u32(served->gguf, key, &id) != BT_OK) {
        return NULL;
    }
    bytes = bt_token_bytes(served->tok, id, &n, &is_special);
    return (bytes != NULL) ? bt_memdup(bytes, n) : NULL;
}

static bt_status_t read_jinja(bt_served_t *served, bt_chat_source_t *source,
                              char why[BT_CHAT_WHY_BYTES],
                              const bt_chat_template_t **chat_p)
{
    char *texts[BT_ARRAY_LEN(chat_tokens)];
    bt_status_t status;

    for (size_t i = 0; i < BT_ARRAY_LEN(texts); i++) {
        texts[i] = token_text(served, chat_tokens[i].key);
    }
    source->tokens = (bt_chat_tokens_t){texts[0], texts[1], texts[2], texts[3]};
    status = bt_chat_template_read(source, why, BT_CHAT_WHY_BYTES, chat_p);
    if (status == BT_OK) {
        const bool own = source->tools_jinja != NULL;

        served->tools =
            bt_tool_format_of(own ? source->tools_jinja : source->jinja,
                              own ? source->tools_bytes : source->bytes);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(texts); i++) {
        bt_free(texts[i]);
    }
    return status;
}

static bt_chat_content_t content_of(const bt_served_options_t *options)
{
    const char *word = options->content_format;

    if ((word == NULL) || (strcmp(word, "auto") == 0)) {
        return BT_CHAT_CONTENT_AUTO;
    }
    return (strcmp(word, "openai") == 0) ? BT_CHAT_CONTENT_OPENAI
                                         : BT_CHAT_CONTENT_STRING;
}

/* --chat-template: the name of a model family, or a file with a Jinja template.
 */
static bt_status_t chosen_template(bt_served_t *served,
                                   const bt_served_options_t *options)
{
    const char *option = options->chat_template;
    bt_chat_source_t source = {.content = content_of(options)};
    char why[BT_CHAT_WHY_BYTES];
    bt_strbuf_t text;
    bt_status_t status;

    status = bt_chat_template_of_family(option, &served->chat);
    if ((status == BT_OK) && (source.content == BT_CHAT_CONTENT_OPENAI)) {
        BT_LOG_ERROR("chat-template %s supports only strings; "
                     "chat-template-content-format openai needs a Jinja "
                     "template",
                     option);
        return BT_ERR_INVALID_PARAM;
    }
    if (status != BT_ERR_NOT_FOUND) {
        return status;
    }
    bt_strbuf_init(&text, TEMPLATE_FILE_LIMIT);
    status = read_file(option, &text);
    if (status == BT_ERR_NOT_FOUND) {
        BT_LOG_ERROR("chat-template %s is neither a file nor one of %s", option,
                     bt_chat_family_names());
    } else if (status != BT_OK) {
        BT_LOG_ERROR("chat-template %s: %s", option, bt_status_str(status));
    } else {
        source.jinja = (text.len > 0) ? text.data : "";
        source.bytes = text.len;
        status = read_jinja(served, &source, why, &served->chat);
        if (status != BT_OK) {
            BT_LOG_ERROR("chat-template %s: %s", option, why);
        }
    }
    bt_strbuf_fini(&text);
    return status;
}

/* The file's texts; @return false: it has none. */
static bool files_texts(const bt_served_t *served, bt_chat_source_t *source)
{
    bt_gguf_str_t jinja = {0};
    bt_gguf_str_t tools = {0};

    if ((bt_gguf_get_str(served->gguf, "tokenizer.chat_template", &jinja) !=
         BT_OK) ||
        (jinja.len == 0)) {
        return false;
    }
    source->jinja = jinja.data;
    source->bytes = jinja.len;
    if (bt_gguf_get_str(served->gguf, "tokenizer.chat_template.tool_use",
                        &tools) == BT_OK) {
        source->tools_jinja = tools.data;
        source->tools_bytes = tools.len;
    }
    return true;
}

/* A file whose template is not supported is served all the same: only its chats
 * are refused, with the reason. */
static bt_status_t find_template(bt_served_t *served,
                                 const bt_served_options_t *options)
{
    bt_chat_source_t source = {.content = content_of(options)};
    char why[BT_CHAT_WHY_BYTES];

    if (options->chat_template[0] != '\0') {
        return chosen_template(served, options);
    }
    if (!files_texts(served, &source)) {
        snprintf(served->chat_why, sizeof(served->chat_why),
                 "this model's file has no chat template");
        BT_LOG_INFO("model %s: the file has no chat template; chat requests "
                    "need --chat-template",
                    served->name);
    } else if (read_jinja(served, &source, why, &served->chat) != BT_OK) {
        snprintf(served->chat_why, sizeof(served->chat_why),
                 "the chat template of this model is not understood, %.300s",
                 why);
        BT_LOG_WARN("model %s: the file's chat template, %s; chat requests "
                    "need --chat-template",
                    served->name, why);
    }
    return BT_OK;
}

/* --reasoning-parser: off, the name of a model family, or as in the file's
 * template.
 */
static const bt_reason_marks_t *find_reason(const bt_served_t *served,
                                            const char *option)
{
    bt_gguf_str_t jinja = {0};

    if ((option != NULL) && (strcmp(option, "auto") != 0)) {
        return bt_reason_marks_named(option); /* NULL for off */
    }
    if (bt_gguf_get_str(served->gguf, "tokenizer.chat_template", &jinja) !=
        BT_OK) {
        return NULL;
    }
    return bt_reason_marks_of(jinja.data, jinja.len);
}

/* --tool-call-parser: off, a format, or the one of the chat template's calls.
 * Where a template shows no tools, or calls of no known format, the tools are
 * text of the messages, and the calls are those that this text asks for. */
static void choose_tools(bt_served_t *served, const char *option)
{
    const bt_tool_format_t *const written = bt_tool_format_named("hermes");
    const bool is_auto = (option == NULL) || (strcmp(option, "auto") == 0);

    served->shows_tools =
        (served->chat != NULL) && bt_chat_template_shows_tools(served->chat);
    if (!is_auto) {
        served->tools = bt_tool_format_named(option); /* NULL for off */
        served->tools_as_text =
            !served->shows_tools && (served->tools == written);
    } else if (!served->shows_tools || (served->tools == NULL)) {
        served->tools_as_text = true;
        served->tools = written;
    }
    if (served->tools_as_text && (served->chat != NULL)) {
        BT_LOG_INFO("model %s: the chat template %s; requests with tools have "
                    "them in the system message, and calls in <tool_call>",
                    served->name,
                    served->shows_tools ? "writes calls in a form that is not "
                                          "known"
                                        : "shows no tools");
    }
}

/* Finds the control tokens that delimit reasoning and tool calls. */
static bt_status_t find_marks(bt_served_t *served)
{
    const char *texts[2 + BT_HARMONY_N_MARKS + BT_TOOLS_MAX_MARKS];
    uint32_t n = 0;
    bt_status_t status;

    served->is_harmony =
        ((served->reason != NULL) && served->reason->is_harmony) ||
        bt_tool_format_is_harmony(served->tools);
    for (size_t i = 0; served->is_harmony && (i < BT_HARMONY_N_MARKS); i++) {
        texts[n++] = bt_harmony_mark(i);
    }
    if (served->reason != NULL) {
        texts[n++] = served->reason->open;
        texts[n++] = served->reason->close;
    }
    status =
        bt_tokenizer_find_special(served->tok, texts, n, &served->reason_marks);
    if (served->tools != NULL) {
        n += bt_tool_format_marks(served->tools, texts + n);
    }
    return (status == BT_OK) ? bt_tokenizer_find_special(served->tok, texts, n,
                                                         &served->all_marks)
                             : status;
}

/* ---- one model ---- */

void bt_served_free(bt_served_t *served)
{
    if (served == NULL) {
        return;
    }
    bt_core_destroy(served->core);
    bt_served_adapters_free(served);
    bt_chat_template_free(served->chat);
    bt_token_set_fini(&served->reason_marks);
    bt_token_set_fini(&served->all_marks);
    bt_tokenizer_destroy(served->tok);
    bt_gguf_close(served->gguf);
    bt_free(served);
}

static bt_status_t read_model(bt_served_t *served,
                              const bt_served_options_t *options)
{
    char why[WHY_BYTES] = "";
    bt_gguf_str_t arch;
    struct stat info;
    bt_status_t status =
        bt_modelfile_open(options->path, why, sizeof(why), &served->gguf);

    if (status == BT_OK) {
        status = bt_gguf_architecture(served->gguf, why, sizeof(why), &arch);
    }
    if (status == BT_OK) {
        status =
            bt_tokenizer_load(served->gguf, why, sizeof(why), &served->tok);
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("model %s: %s", options->path, why);
        return status;
    }
    snprintf(served->name, sizeof(served->name), "%s", options->name);
    served->version = BT_SERVED_VERSION;
    bt_sampling_defaults_read(served->gguf, served->name, &served->sampling);
    bt_sampling_defaults_override(&served->sampling, &options->sampling);
    served->reason = find_reason(served, options->reasoning);
    served->identity = bt_gguf_identity(served->gguf);
    if (stat(options->path, &info) == 0) {
        served->created = info.st_mtim.tv_sec;
    }
    status = read_context(served, options);
    if (status == BT_OK) {
        status = find_template(served, options);
    }
    choose_tools(served, options->tool_format);
    return (status == BT_OK) ? find_marks(served) : status;
}

/* Events of the core; `ctx` is the model. */

static void on_ledger(void *ctx, const bt_ledger_t *ledger)
{
    const bt_served_t *served = ctx;

    bt_router_metrics_ledger(served->metrics, ledger);
    bt_series_ledger(served->series, ledger);
}

static void on_transfer(void *ctx, const bt_msg_joined_t *joined, bool first)
{
    const bt_served_t *served = ctx;

    bt_router_metrics_transfer(served->metrics, joined, first);
}

static void on_time(void *ctx, bt_gen_time_kind_t which, uint64_t us)
{
    const bt_served_t *served = ctx;

    bt_router_metrics_time(served->metrics, which, us);
    if (which == BT_TIME_NEXT_TOKEN) {
        bt_series_next_token(served->series, us);
    } else if (which == BT_TIME_FIRST_TOKEN) {
        bt_series_first_token(served->series, us);
    }
}

static void on_sent(void *ctx, bt_sched_cause_t cause)
{
    const bt_served_t *served = ctx;

    bt_router_metrics_sent(served->metrics, cause);
}

static void on_loss(void *ctx, bt_gen_loss_t loss)
{
    const bt_served_t *served = ctx;

    bt_router_metrics_loss(served->metrics, loss);
}

static void on_record(void *ctx, const bt_gen_record_t *record)
{
    bt_served_t *served = ctx;

    bt_watching_record(served, record);
    bt_names_ledger(&served->front->names, (bt_name_t)record->origin->name,
                    record->ledger);
    if ((served->front->trace != NULL) && !served->front->trace_is_off) {
        bt_trace_add(served->front->trace, served->name, record,
                     bt_unix_minus_monotonic_ns());
    }
}

static bt_status_t make_core(bt_served_t *served, bt_send_t send,
                             void *send_ctx)
{
    const bt_config_t *config = served->front->config;
    bt_status_t status;
    bt_core_config_t core = {
        .model = served->identity,
        .tok = served->tok,
        .n_vocab = bt_tokenizer_n_vocab(served->tok),
        .max_queue = config->max_concurrent_requests,
        .max_logits_bytes = LOGITS_AT_A_TIME * config->max_logits_bytes,
        .worker_wait_ms = config->worker_wait_ms,
        .request_timeout_ms = config->request_timeout_ms,
        .still_ms = config->dead_ms,
        .has_tenants = bt_tenants_are_many(&served->front->tenants),
        .mixes_profiles = config->allow_mixed_numerics,
    };
    const bt_core_ops_t ops = {
        .send = send,
        .send_ctx = send_ctx,
        .on_placed = served->front->ops->on_placed,
        .on_text = served->front->ops->on_text,
        .on_end = served->front->ops->on_end,
        .on_ledger = on_ledger,
        .on_record = on_record,
        .on_transfer = on_transfer,
        .on_time = on_time,
        .on_sent = on_sent,
        .on_loss = on_loss,
        .on_rerun = bt_watching_rerun,
        .on_handover = bt_watching_handover,
        .on_worker = bt_watching_worker,
        .detok_init = bt_detok_init,
        .detok_push = bt_detok_push,
        .detok_finish = bt_detok_finish,
        .ctx = served,
    };

    bt_config_model_targets(config, served->name, &core.target.ttft_ms,
                            &core.target.itl_ms);
    if (!bt_sched_order_find(config->prefill_order, &core.order)) {
        return BT_ERR_INVALID_PARAM; /* excluded by the option's table */
    }

    status = bt_core_create(&core, &ops, &served->core);
    if ((status == BT_OK) && served->front->pause.is_begun) {
        bt_core_hold(served->core, BT_CORE_HOLD_PAUSE);
    }
    if (status == BT_OK) {
        bt_router_sleep_add(served->front, served->core);
    }
    return status;
}

bool bt_served_ready(const bt_served_t *served)
{
    return !served->unloaded && bt_table_ready(bt_core_table(served->core));
}

bool bt_served_folds_ids(const bt_served_t *served)
{
    const char *choice = served->front->config->out_of_vocabulary_ids;

    return strcmp(choice, "modulo") == 0;
}

void bt_served_fold_ids(const bt_served_t *served, uint32_t *ids, size_t n)
{
    const uint32_t n_vocab = bt_tokenizer_n_vocab(served->tok);

    for (size_t i = 0; bt_served_folds_ids(served) && (i < n); i++) {
        ids[i] %= n_vocab;
    }
}

uint32_t bt_served_context_tokens(const bt_served_t *served)
{
    const uint32_t workers =
        bt_table_context_tokens(bt_core_table(served->core));

    return (workers < served->context_tokens) ? workers
                                              : served->context_tokens;
}

void bt_served_write_tokenizer(const bt_served_t *served, bt_strbuf_t *out)
{
    bt_json_t json;

    bt_json_init(&json, out);
    bt_json_object(&json, NULL);
    bt_json_str(&json, "model", served->name);
    for (size_t i = 0; i < BT_ARRAY_LEN(chat_tokens); i++) {
        char *text = token_text(served, chat_tokens[i].key);

        bt_json_str(&json, chat_tokens[i].name, text);
        bt_free(text);
    }
    bt_json_u64(&json, "model_max_length", bt_served_context_tokens(served));
    bt_json_end_object(&json);
}

/* ---- all models ---- */

void bt_registry_init(bt_registry_t *registry, bt_frontend_t *front,
                      bt_send_t send, void *send_ctx)
{
    bt_list_init(&registry->models);
    registry->front = front;
    registry->send = send;
    registry->send_ctx = send_ctx;
}

void bt_registry_fini(bt_registry_t *registry)
{
    while (!bt_list_empty(&registry->models)) {
        bt_served_t *served =
            BT_CONTAINER_OF(registry->models.next, bt_served_t, link);

        bt_list_remove(&served->link);
        bt_served_free(served);
    }
}

/* Name and file identify a model: a worker reports its file only. */
static bt_status_t check_new(const bt_registry_t *registry,
                             const bt_served_t *made, const char *path)
{
    const bt_served_t *same = bt_registry_of_file(registry, made->identity);
    bt_served_entry_t entry;

    if (same != NULL) {
        BT_LOG_ERROR("model %s (%s) is already served as model %s", made->name,
                     path, same->name);
        return BT_ERR_EXISTS;
    }
    if (bt_registry_named(registry, made->name) != NULL) {
        BT_LOG_ERROR("two models are named %s; name them with --model "
                     "NAME=PATH",
                     made->name);
        return BT_ERR_EXISTS;
    }
    if (bt_served_find(registry, made->name, NULL, false, &entry) &&
        (entry.adapter != NULL)) {
        BT_LOG_ERROR("model %s (%s): an adapter of %s has this name",
                     made->name, path, entry.served->name);
        return BT_ERR_EXISTS;
    }
    return BT_OK;
}

bt_served_options_t bt_served_options_of(const bt_config_t *config,
                                         const char *name, const char *path)
{
    bt_served_options_t options = {
        .name = name,
        .path = path,
        .chat_template = config->chat_template,
        .content_format = config->content_format,
        .reasoning = config->reasoning_parser,
        .tool_format = config->tool_call_parser,
        .context_tokens = config->max_seq_len,
    };
    char why[WHY_BYTES];

    /* Validated when the options were read. */
    if (bt_config_sampling_read(config->override_generation_config,
                                &options.sampling, why, sizeof(why)) != BT_OK) {
        BT_LOG_ERROR("--override-generation-config: %s", why);
    }
    return options;
}

bt_status_t bt_served_read(const bt_served_options_t *options,
                           bt_served_t **served_p)
{
    bt_served_t *served = bt_calloc(1, sizeof(*served));
    bt_status_t status;

    if (served == NULL) {
        BT_LOG_ERROR("out of memory for model %s", options->path);
        return BT_ERR_NO_MEMORY;
    }
    bt_list_init(&served->link);
    status = read_model(served, options);
    if (status != BT_OK) {
        bt_served_free(served);
        return status;
    }
    *served_p = served;
    return BT_OK;
}

bt_status_t bt_registry_add(bt_registry_t *registry, bt_served_t *served,
                            const char *path)
{
    bt_status_t status = check_new(registry, served, path);

    if (status != BT_OK) {
        return status;
    }
    served->front = registry->front;
    status = bt_router_metrics_model(registry->front->metrics, served->name,
                                     &served->metrics);
    if (status == BT_OK) {
        status = bt_history_series(registry->front->watch->history,
                                   served->name, &served->series);
    }
    if (status == BT_OK) {
        status = make_core(served, registry->send, registry->send_ctx);
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("model %s: %s", path, bt_status_str(status));
        return status;
    }
    bt_list_push_back(&registry->models, &served->link);
    return BT_OK;
}

bt_served_t *bt_registry_named(const bt_registry_t *registry, const char *name)
{
    BT_REGISTRY_FOR_EACH(served, registry)
    {
        if (strcmp(name, served->name) == 0) {
            return served;
        }
    }
    return NULL;
}

bt_served_t *bt_registry_find(const bt_registry_t *registry, const char *name)
{
    bt_served_t *served;

    if (name != NULL) {
        served = bt_registry_named(registry, name);
        if ((served != NULL) || !bt_repo_is_name(name)) {
            return served;
        }
    }
    if (bt_list_empty(&registry->models)) {
        return NULL;
    }
    return BT_CONTAINER_OF(registry->models.next, bt_served_t, link);
}

bt_served_t *bt_registry_of_file(const bt_registry_t *registry,
                                 bt_hash128_t identity)
{
    BT_REGISTRY_FOR_EACH(served, registry)
    {
        if (bt_hash128_equal(served->identity, identity)) {
            return served;
        }
    }
    return NULL;
}

bool bt_registry_has_worker(const bt_registry_t *registry, const char *name)
{
    BT_REGISTRY_FOR_EACH(served, registry)
    {
        BT_LIST_FOR_EACH_ENTRY(const bt_instance_t, worker,
                               &bt_core_table(served->core)->workers, link) {
            if (strcmp(worker->hello.name, name) == 0) {
                return true;
            }
        }
    }
    return false;
}

void bt_registry_refuse(const bt_registry_t *registry, const char *name,
                        bt_api_error_t *error)
{
    bt_strbuf_t names;

    bt_strbuf_init(&names, NAMES_BYTES);
    bt_registry_names(registry, &names);
    bt_api_error_set(error, 404, "model",
                     "model '%.200s' is not served here; this is '%s'", name,
                     (names.len > 0) ? names.data : "");
    bt_strbuf_fini(&names);
}

void bt_registry_names(const bt_registry_t *registry, bt_strbuf_t *out)
{
    const char *separator = "";

    BT_REGISTRY_FOR_EACH(served, registry)
    {
        bt_strbuf_printf(out, "%s%s", separator, served->name);
        separator = ", ";
        for (uint32_t i = 0; i < served->n_adapters; i++) {
            if (served->adapters[i].tenant[0] == '\0') {
                bt_strbuf_printf(out, ", %s", served->adapters[i].name);
            }
        }
    }
}
