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
 * The first model is the default: calls that name none go there, and so do
 * those that name one of the five models of a Triton server with TensorRT-LLM
 * (router/triton/models.h). A model's file stays open: the tokenizer may lend
 * text from it. A model that was unloaded stays known; calls for it are
 * refused.
 *
 * Threads: everything on the event loop's thread, but for bt_served_read() and
 * bt_served_free(). Models that are loaded later come through loads.h.
 */
#ifndef BT_ROUTER_FRONTEND_REGISTRY_H
#define BT_ROUTER_FRONTEND_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/status.h"
#include "common/base/strbuf.h"
#include "common/config/config.h"
#include "inference/gguf/gguf.h"
#include "inference/template/chat.h"
#include "inference/tokenizer/tokenizer.h"
#include "router/core/core.h"
#include "router/frontend/api.h"
#include "router/observe/metrics.h"
#include "router/text/reason.h"
#include "router/text/tools.h"
#include "router/watch/history.h"

#define BT_SERVED_VERSION   "1"
#define BT_SERVED_WHY_BYTES 400

typedef struct bt_frontend bt_frontend_t;

/** bt_core_ops_t.send */
typedef void (*bt_send_t)(void *ctx, bt_instance_t *worker,
                          const bt_msg_t *msg);

typedef struct bt_served {
    bt_list_t link; /**< in bt_registry_t.models */
    bt_frontend_t *front;
    char name[BT_CONFIG_MODEL_NAME_BYTES]; /**< bt_config_model_name() */
    const char *version;                   /**< static */
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;
    const bt_chat_template_t *chat;     /**< NULL: none that can be rendered */
    char chat_why[BT_SERVED_WHY_BYTES]; /**< why there is none, for clients */
    bt_sampling_defaults_t sampling;
    const bt_reason_marks_t *reason; /**< of what it thinks first, or NULL */
    bool takes_tools;                /**< its template shows them */
    const bt_tool_format_t *tools;   /**< of calls of tools, or NULL */
    /** Control tokens that are marks of `reason`; of `reason` and `tools`. */
    bt_token_set_t reason_marks, all_marks;
    bt_hash128_t identity;
    uint32_t context_tokens;
    int64_t created; /**< seconds since 1970, of the file */
    bt_core_t *core;
    bt_model_metrics_t *metrics; /**< owned by the page */
    bt_series_t *series;         /**< owned by front->watch */
    bool was_ready;              /**< when it was looked at last */
    bool unloaded;               /**< by order: new calls are refused */
} bt_served_t;

/** What a model is made from. Borrowed. */
typedef struct bt_served_options {
    const char *name;
    const char *path;
    const char *chat_template; /**< option of the same name; "" = the file's */
    const char
        *content_format;     /**< --chat-template-content-format; NULL: auto */
    const char *reasoning;   /**< option of the same name; NULL: auto */
    const char *tool_format; /**< option of the same name; NULL: auto */
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
/** Closes all models; calls and workers must be gone. */
void bt_registry_fini(bt_registry_t *registry);

/**
 * Open a model file and read what serving it takes: some 100 ms for a large
 * vocabulary, and as long as its disk takes. On any thread.
 *
 * A chat template that is not understood is no error here: chat requests then
 * get one that names --chat-template.
 *
 * @param [out] served_p  for bt_registry_add() or bt_served_free()
 * @retval others  Logged.
 */
BT_MUST_CHECK bt_status_t bt_served_read(const bt_served_options_t *options,
                                         bt_served_t **served_p);
/** What the router's options say of a model of this name and path; borrowed. */
bt_served_options_t bt_served_options_of(const bt_config_t *config,
                                         const char *name, const char *path);
/** One that is in no registry; on any thread. NULL is allowed. */
void bt_served_free(bt_served_t *served);

/**
 * Serve it; the registry's from then on, else it stays the caller's.
 *
 * @param [in] path  of its file, for messages
 * @retval BT_OK
 * @retval BT_ERR_EXISTS  A model of this name, or the same file, is here.
 * @retval others         Logged, as is BT_ERR_EXISTS.
 */
BT_MUST_CHECK bt_status_t bt_registry_add(bt_registry_t *registry,
                                          bt_served_t *served,
                                          const char *path);

/** The model of exactly this name, or NULL. */
bt_served_t *bt_registry_named(const bt_registry_t *registry, const char *name);
/** The model that a client means. @param [in] name  NULL: the default. @return
 * NULL: nothing of this name */
bt_served_t *bt_registry_find(const bt_registry_t *registry, const char *name);
/** The model that a worker with this file computes, or NULL. */
bt_served_t *bt_registry_of_file(const bt_registry_t *registry,
                                 bt_hash128_t identity);
/** Is a worker of that name here, of whichever model? */
bool bt_registry_has_worker(const bt_registry_t *registry, const char *name);
/** The answer to a client who means a model that is not here: 404, naming those
 *  that are. @param [in] name  as the client wrote it */
void bt_registry_refuse(const bt_registry_t *registry, const char *name,
                        bt_api_error_t *error);
/** Append the names, as "a, b". */
void bt_registry_names(const bt_registry_t *registry, bt_strbuf_t *out);

/** --out-of-vocabulary-ids modulo: do ids of a prompt count modulo the
 *  vocabulary? */
bool bt_served_folds_ids(const bt_served_t *served);
/** Make them ids of the vocabulary then. */
void bt_served_fold_ids(const bt_served_t *served, uint32_t *ids, size_t n);
/** Longest sequence, prompt and output, that model and workers take now. */
uint32_t bt_served_context_tokens(const bt_served_t *served);
/** Append what `GET /tokenizer_info` tells: the spellings of the model's own
 *  tokens, and its longest sequence. */
void bt_served_write_tokenizer(const bt_served_t *served, bt_strbuf_t *out);
/** True when a call for it could be answered now. */
bool bt_served_ready(const bt_served_t *served);

/** Walks all models; @a served_p is a bt_served_t *. */
#define BT_REGISTRY_FOR_EACH(served, registry)                            \
    for (bt_served_t *served =                                            \
             BT_CONTAINER_OF((registry)->models.next, bt_served_t, link); \
         &served->link != &(registry)->models;                            \
         served = BT_CONTAINER_OF(served->link.next, bt_served_t, link))

#endif
