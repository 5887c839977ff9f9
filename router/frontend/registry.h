/* SPDX-License-Identifier: Apache-2.0 */
/** @file registry.h
 *
 * The models that this router serves. Each has a name and a version for
 * clients, the identity of its file for workers, its tokenizer, chat template
 * and limits, and a core of its own: a worker belongs to the one model whose
 * file it computes.
 *
 *     name ──▶ ┌───────── model ─────────┐ ◀── identity (a worker's hello)
 *     alias    │ tokenizer, template,    │
 *              │ limits, metrics, core ──┼──▶ generations, workers
 *              └─────────────────────────┘
 *
 * The first model is the default for requests without a model name, and for
 * those by one of the five model names of a Triton server with TensorRT-LLM
 * (router/triton/models.h). A model's file stays open: the tokenizer may borrow
 * text from it. An unloaded model stays known; requests for it are refused.
 *
 * Threads: everything on the event loop's thread, except bt_served_read() and
 * bt_served_free(). Models that are loaded later come through loads.h.
 */
#ifndef BT_ROUTER_FRONTEND_REGISTRY_H
#define BT_ROUTER_FRONTEND_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/containers.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "common/config/config.h"
#include "inference/gguf/gguf.h"
#include "inference/template/chat.h"
#include "inference/tokenizer/tokenizer.h"
#include "router/api/api.h"
#include "router/core/core.h"
#include "router/observe/metrics.h"
#include "router/text/reasoning_parser.h"
#include "router/text/tools.h"
#include "router/watch/history.h"

#define BT_SERVED_VERSION   "1"
#define BT_SERVED_WHY_BYTES 400

typedef struct bt_frontend bt_frontend_t;
typedef struct bt_weight_update bt_weight_update_t; /**< weight_update.h */
typedef struct bt_adapter_load bt_adapter_load_t;
typedef struct bt_lora_tasks bt_lora_tasks_t;         /**< adapter_loads.h */
typedef struct bt_served_adapter bt_served_adapter_t; /**< served_adapters.h */

/** Message sender, as bt_core_ops_t.send. */
typedef void (*bt_send_t)(void *ctx, bt_instance_t *worker,
                          const bt_msg_t *msg);

typedef struct bt_served {
    bt_list_t link; /**< link in bt_registry_t.models */
    bt_frontend_t *front;
    char name[BT_CONFIG_MODEL_NAME_BYTES]; /**< bt_config_model_name() */
    const char *version;                   /**< static */
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;
    /** NULL: no template that can be rendered. */
    const bt_chat_template_t *chat;
    char chat_why[BT_SERVED_WHY_BYTES]; /**< why `chat` is NULL, for clients */
    bt_sampling_defaults_t sampling;
    const bt_reason_marks_t *reason; /**< marks of reasoning text, or NULL */
    bool is_harmony;    /**< answers of chats are messages (harmony_parser.h) */
    bool shows_tools;   /**< the chat template shows a request's tools */
    bool tools_as_text; /**< as in bt_chat_request_t */
    const bt_tool_format_t *tools; /**< format of tool calls, or NULL */
    /** Control tokens that are marks of `reason`; and of `reason` and `tools`.
     */
    bt_token_set_t reason_marks, all_marks;
    bt_hash128_t identity;
    uint32_t context_tokens;
    uint32_t width;  /**< elements of an embedding; 0: not in the file */
    int64_t created; /**< file time, seconds since 1970 */
    bt_core_t *core;
    bt_model_metrics_t *metrics; /**< owned by the metrics page */
    uint64_t last_update; /**< number of the last replacement begun here */
    bt_weight_update_t *weight_update; /**< being carried out; NULL: none */
    bt_series_t *series;               /**< owned by front->watch */
    bool was_ready;                    /**< readiness at the last check */
    bt_served_adapter_t *adapters;     /**< owned, n_adapters of them */
    uint32_t n_adapters;
    bt_adapter_load_t *adapter_load; /**< under way; NULL: none */
    bt_lora_tasks_t *lora_tasks;     /**< lora_tasks.h; NULL: none */
    bool
        unloaded; /**< unloaded by an admin command: new requests are refused */
} bt_served_t;

/** Options for opening a model. Borrowed. */
typedef struct bt_served_options {
    const char *name;
    const char *path;
    const char *chat_template; /**< --chat-template; "" = the file's */
    /** --chat-template-content-format; NULL: auto. */
    const char *content_format;
    const char *reasoning;         /**< --reasoning-parser; NULL: auto */
    const char *tool_format;       /**< --tool-call-parser; NULL: auto */
    bt_config_sampling_t sampling; /**< --override-generation-config */
    uint32_t context_tokens;       /**< 0 = the file's */
} bt_served_options_t;

typedef struct bt_registry {
    bt_list_t models; /**< the first is the default */
    bt_frontend_t *front;
    bt_send_t send;
    void *send_ctx;
} bt_registry_t;

void bt_registry_init(bt_registry_t *registry, bt_frontend_t *front,
                      bt_send_t send, void *send_ctx);
/** Closes all models; requests and workers must be gone. */
void bt_registry_fini(bt_registry_t *registry);

/**
 * Opens a model file and reads everything needed to serve it: takes some 100 ms
 * for a large vocabulary, plus disk time. May be called on any thread.
 *
 * An unsupported chat template is not an error here: chat requests then get one
 * that names --chat-template.
 *
 * @param [out] served_p  for bt_registry_add() or bt_served_free()
 * @retval others  Logged.
 */
BT_MUST_CHECK bt_status_t bt_served_read(const bt_served_options_t *options,
                                         bt_served_t **served_p);
/** Returns the router's options for a model of this name and path; borrowed. */
bt_served_options_t bt_served_options_of(const bt_config_t *config,
                                         const char *name, const char *path);
/** Frees a model that is in no registry; on any thread. NULL is allowed. */
void bt_served_free(bt_served_t *served);

/**
 * Starts serving a model. On success the registry owns the model, otherwise the
 * caller does.
 *
 * @param [in] path  of its file, for messages
 * @retval BT_OK
 * @retval BT_ERR_EXISTS  A model of this name, or with this file, is here.
 * @retval others         Logged, as is BT_ERR_EXISTS.
 */
BT_MUST_CHECK bt_status_t bt_registry_add(bt_registry_t *registry,
                                          bt_served_t *served,
                                          const char *path);

/** Returns the model of exactly this name, or NULL. */
bt_served_t *bt_registry_named(const bt_registry_t *registry, const char *name);
/** Returns the model for a client's model name. @param [in] name  NULL: the
 *  default. @return NULL: no such model */
bt_served_t *bt_registry_find(const bt_registry_t *registry, const char *name);
/** Returns the model that a worker with this file computes, or NULL. */
bt_served_t *bt_registry_of_file(const bt_registry_t *registry,
                                 bt_hash128_t identity);
/** True when a worker of that name is connected, for any model. */
bool bt_registry_has_worker(const bt_registry_t *registry, const char *name);
/** Fills a 404 error for an unknown model, naming the known ones.
 *  @param [in] name  as the client wrote it */
void bt_registry_refuse(const bt_registry_t *registry, const char *name,
                        bt_api_error_t *error);
/** Appends the model names, as "a, b". */
void bt_registry_names(const bt_registry_t *registry, bt_strbuf_t *out);

/** True when prompt ids count modulo the vocabulary (--out-of-vocabulary-ids
 *  modulo). */
bool bt_served_folds_ids(const bt_served_t *served);
/** Reduces ids modulo the vocabulary if that option is set. */
void bt_served_fold_ids(const bt_served_t *served, uint32_t *ids, size_t n);
/** Returns the longest sequence, prompt and output, that model and workers
 *  accept now. */
uint32_t bt_served_context_tokens(const bt_served_t *served);
/** Appends the answer of `GET /tokenizer_info`: the spellings of the model's
 *  own tokens, and its longest sequence. */
void bt_served_write_tokenizer(const bt_served_t *served, bt_strbuf_t *out);
/** True when a request for the model could be answered now. */
bool bt_served_ready(const bt_served_t *served);

/** Walks all models; @a served_p is a bt_served_t *. */
#define BT_REGISTRY_FOR_EACH(served, registry)                            \
    for (bt_served_t *served =                                            \
             BT_CONTAINER_OF((registry)->models.next, bt_served_t, link); \
         &served->link != &(registry)->models;                            \
         served = BT_CONTAINER_OF(served->link.next, bt_served_t, link))

#endif
