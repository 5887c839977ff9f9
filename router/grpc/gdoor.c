/* SPDX-License-Identifier: Apache-2.0 */
#include "router/grpc/gdoor.h"

#include <grpc_service.pb-c.h>
#include <health.pb-c.h>
#include <reflection.pb-c.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/config/config.h"
#include "common/zip/zip.h"
#include "router/grpc/gdoor_priv.h"
#include "router/observe/metrics.h"

#define REQUEST_ID  "x-request-id"
#define SMALL_BYTES 65536u /* of messages that are no inference requests */

/* ---- the methods ---- */

/* Access levels where keys are configured; by default, any valid key. */
typedef enum access {
    BY_KEY,
    ANYBODY,
    CONTROL, /* tenants with `admin`; without keys, the own user */
} access_t;

static void on_message(bt_gcall_t *call, bt_gmessage_t *message);

/* clang-format off */
/* Methods whose messages on_message() reads. */
#define METHOD(path, takes_many, half_close, gone, access, type, answer)   \
    {path, takes_many, SMALL_BYTES, on_message, half_close, gone, access,  \
     &type##__descriptor, answer}
#define UNARY(who, name, type, fn) \
    METHOD(BT_INFERENCE name, false, NULL, NULL, who, inference__##type, fn)
#define MODEL_CONTROL(name, type, fn)                                      \
    METHOD(BT_INFERENCE name, false, NULL, bt_service_control_gone, CONTROL, \
           inference__##type, fn)
#define REFLECTION(version)                                                \
    METHOD("/grpc.reflection." version ".ServerReflection/"                \
           "ServerReflectionInfo", true, bt_reflection_half_close, NULL,   \
           BY_KEY, grpc__reflection__v1__server_reflection_request,        \
           bt_reflection_answer)
#define HEALTH(name, gone, fn)                                             \
    METHOD("/grpc.health.v1.Health/" name, false, NULL, gone, ANYBODY,     \
           grpc__health__v1__health_check_request, fn)
/* clang-format on */

static const bt_gmethod_t methods[] = {
    UNARY(ANYBODY, "ServerLive", server_live_request, bt_service_server_live),
    UNARY(ANYBODY, "ServerReady", server_ready_request,
          bt_service_server_ready),
    UNARY(BY_KEY, "ModelReady", model_ready_request, bt_service_model_ready),
    UNARY(BY_KEY, "ServerMetadata", server_metadata_request,
          bt_service_server_metadata),
    UNARY(BY_KEY, "ModelMetadata", model_metadata_request,
          bt_service_model_metadata),
    UNARY(BY_KEY, "ModelConfig", model_config_request, bt_service_model_config),
    UNARY(BY_KEY, "ModelStatistics", model_statistics_request,
          bt_service_model_statistics),
    UNARY(BY_KEY, "RepositoryIndex", repository_index_request,
          bt_service_repository_index),
    MODEL_CONTROL("RepositoryModelLoad", repository_model_load_request,
                  bt_service_model_load),
    MODEL_CONTROL("RepositoryModelUnload", repository_model_unload_request,
                  bt_service_model_unload),
    /* Such a message may only query; this is known when it is read. */
    UNARY(CONTROL, "TraceSetting", trace_setting_request,
          bt_service_trace_setting),
    UNARY(CONTROL, "LogSettings", log_settings_request,
          bt_service_log_settings),
    UNARY(BY_KEY, "SystemSharedMemoryStatus",
          system_shared_memory_status_request, bt_service_memory_status),
    UNARY(BY_KEY, "SystemSharedMemoryRegister",
          system_shared_memory_register_request, bt_service_memory_register),
    UNARY(BY_KEY, "SystemSharedMemoryUnregister",
          system_shared_memory_unregister_request,
          bt_service_memory_unregister),
    UNARY(BY_KEY, "CudaSharedMemoryStatus", cuda_shared_memory_status_request,
          bt_service_cuda_memory_none),
    UNARY(BY_KEY, "CudaSharedMemoryRegister",
          cuda_shared_memory_register_request, bt_service_cuda_memory_register),
    UNARY(BY_KEY, "CudaSharedMemoryUnregister",
          cuda_shared_memory_unregister_request, bt_service_cuda_memory_none),
    {BT_INFERENCE "ModelInfer", false, 0, bt_infer_unary, NULL,
     bt_infer_unary_gone, BY_KEY, NULL, NULL},
    {BT_INFERENCE "ModelStreamInfer", true, 0, bt_infer_stream,
     bt_infer_stream_half_close, bt_infer_stream_gone, BY_KEY, NULL, NULL},
    HEALTH("Check", NULL, bt_health_check),
    HEALTH("Watch", bt_health_watch_gone, bt_health_watch),
    REFLECTION("v1"),
    REFLECTION("v1alpha"),
};

static const char *field_of(const void *call, const char *name)
{
    return bt_gcall_field(call, name);
}

const bt_tenant_t *bt_gdoor_tenant(const bt_gcall_t *call)
{
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    bt_tenants_t *const tenants = &door->front->tenants;
    bt_tenant_t *tenant = NULL;
    const char *why = NULL;

    return (bt_tenants_find(tenants, field_of, call, &tenant, &why) == BT_OK)
               ? tenant
               : tenants->plain;
}

/* ---- log and metrics ---- */

/* Messages of a stream that stays open while keys change are checked again, in
 * infer.c. */
static const char *on_admit(void *ctx, const bt_gmethod_t *method,
                            const bt_stream_t *client, bt_grpc_field_fn field,
                            const void *head, bt_grpc_code_t *code_p)
{
    bt_gdoor_t *door = ctx;
    bt_tenants_t *tenants = &door->front->tenants;
    bt_tenant_t *tenant = NULL;
    const char *why = NULL;

    if (method->access == ANYBODY) {
        return NULL;
    }
    if (!bt_tenants_are_keyed(tenants)) {
        if ((method->access != CONTROL) ||
            bt_frontend_admits_anybody(door->front) ||
            bt_stream_is_of_own_user(client)) {
            return NULL;
        }
        *code_p = BT_GRPC_PERMISSION_DENIED;
        return BT_ADMIN_REFUSED;
    }
    if (bt_tenants_find(tenants, field, head, &tenant, &why) != BT_OK) {
        bt_router_metrics_add(tenants->metrics, BT_PC_UNAUTHORIZED, 1);
        *code_p = BT_GRPC_UNAUTHENTICATED;
        return why;
    }
    if ((method->access == CONTROL) && !tenant->limits.admin) {
        *code_p = BT_GRPC_PERMISSION_DENIED;
        return "this needs the key of a tenant that is `admin` in the file of "
               "--api-keys";
    }
    return NULL;
}

/* The answer's header has the client's X-Request-Id, or a new one. */
static void on_begin(void *ctx, bt_gcall_t *call)
{
    bt_gdoor_t *door = ctx;

    _Static_assert(BT_REQUEST_ID_BYTES <= BT_GCALL_MEMO_BYTES, "it fits");
    bt_request_id(&door->front->ids, bt_gcall_field(call, REQUEST_ID),
                  bt_gcall_memo(call));
    bt_gcall_add_field(call, REQUEST_ID, bt_gcall_memo(call));
}

static const char *on_check(void *ctx, const char *authority,
                            const char *origin)
{
    const bt_gdoor_t *door = ctx;
    const char *why = bt_hosts_check(door->hosts, authority);

    if ((why == NULL) && (origin != NULL)) {
        why = bt_hosts_check_origin(door->hosts, origin, authority);
    }
    return why;
}

void bt_gdoor_note(bt_gdoor_t *door, bt_gcall_t *call, const char *id,
                   const char *path, const bt_request_t *request,
                   uint64_t start_us, int http_status)
{
    char client[BT_NET_PEER_BYTES] = "";
    bt_access_t access = {
        .id = (call != NULL) ? bt_gcall_memo(call) : id,
        .client = client,
        .method = "GRPC",
        .route = path,
        .path = path,
        .tenant = ((request != NULL) && (request->tenant != NULL))
                      ? request->tenant->name
                      : NULL,
    };

    if ((call != NULL) && (door->front->access != NULL)) {
        bt_gcall_peer(call, client);
    }
    bt_request_log(door->front, &access,
                   (request != NULL) ? &request->facts : NULL, start_us,
                   http_status);
}

/* A refused call also has an id, by which it is found in the log. */
static void on_refused(void *ctx, const char *given, bt_grpc_code_t code,
                       char id[BT_GCALL_MEMO_BYTES])
{
    bt_gdoor_t *door = ctx;

    bt_request_id(&door->front->ids, given, id);
    bt_gdoor_note(door, NULL, id, "none", NULL, bt_now_us(),
                  bt_grpc_http_of_code(code));
}

/* Inference requests are recorded by infer.c, one by one. */
static void on_end(void *ctx, bt_gcall_t *call, bt_grpc_code_t code)
{
    const char *path = bt_gcall_method(call)->path;
    bt_gdoor_t *door = ctx;

    if ((strcmp(path, BT_INFERENCE "ModelInfer") == 0) ||
        (strcmp(path, BT_INFERENCE "ModelStreamInfer") == 0)) {
        return;
    }
    bt_gdoor_note(door, call, NULL, path, NULL, bt_gcall_start_us(call),
                  bt_grpc_http_of_code(code));
}

/* ---- messages ---- */

/* Reads a message, which is consumed in any case. @return NULL: the call was
 * ended */
static ProtobufCMessage *read_message(bt_gcall_t *call, bt_gmessage_t *message,
                                      bt_pb_budget_t *budget)
{
    ProtobufCMessage *read = NULL;
    bt_strbuf_t plain;
    const bt_strbuf_t *body = &message->body;
    bt_status_t status = BT_OK;

    bt_strbuf_init(&plain, SMALL_BYTES);
    if (message->compressed) {
        status = bt_unzip(BT_ZIP_GZIP, body->data, body->len, &plain);
        body = &plain;
    }
    if (status == BT_OK) {
        bt_pb_budget_init(budget, body->len);
        status = bt_pb_read(budget, bt_gcall_method(call)->request_type,
                            body->data, body->len, &read);
    }
    bt_strbuf_fini(&plain);
    bt_gmessage_fini(bt_gcall_grpc(call), message);
    if (status == BT_ERR_TOO_LARGE) {
        bt_gcall_end(call, BT_GRPC_RESOURCE_EXHAUSTED,
                     "the message is too large when it is unpacked and read");
    } else if (status != BT_OK) {
        bt_gcall_end(call, BT_GRPC_INVALID_ARGUMENT,
                     "the message is not what this method takes");
    }
    return (status == BT_OK) ? read : NULL;
}

/* Reads a request and answers it. */
static void on_message(bt_gcall_t *call, bt_gmessage_t *message)
{
    bt_pb_budget_t budget;
    ProtobufCMessage *request = read_message(call, message, &budget);

    if (request != NULL) {
        bt_gcall_method(call)->answer(call, request);
        bt_pb_free(&budget, request);
    }
}

bool bt_gdoor_send(bt_gcall_t *call, const ProtobufCMessage *message)
{
    bt_gdoor_t *door = bt_gcall_ctx(call);
    bt_strbuf_t *out = &door->out;

    bt_strbuf_reset(out);
    bt_pb_write(message, out);
    if (bt_strbuf_status(out) != BT_OK) {
        bt_gcall_end(call, BT_GRPC_UNAVAILABLE,
                     "out of memory for this answer");
        return false;
    }
    return bt_gcall_send(call, (out->len > 0) ? out->data : "", out->len);
}

void bt_gdoor_answer(bt_gcall_t *call, const ProtobufCMessage *message)
{
    if (bt_gdoor_send(call, message)) {
        bt_gcall_end(call, BT_GRPC_OK, NULL);
    }
}

void bt_gdoor_answer_from(bt_gcall_t *call, bt_pb_scratch_t *scratch,
                          const ProtobufCMessage *message)
{
    if ((message == NULL) || scratch->failed) {
        bt_gcall_end(call, BT_GRPC_UNAVAILABLE,
                     "out of memory for this answer");
    } else {
        bt_gdoor_answer(call, message);
    }
    bt_pb_scratch_fini(scratch);
}

void bt_gdoor_fail(bt_gcall_t *call, const bt_api_error_t *error)
{
    bt_gcall_end(call, bt_grpc_code_of_http(error->http_status),
                 error->message);
}

/* ---- creation and destruction ---- */

static void flush(bt_turn_work_t *work)
{
    bt_net_flush(bt_grpc_net(BT_CONTAINER_OF(work, bt_gdoor_t, flush)->grpc));
}

static void on_gather(void *ctx)
{
    bt_gdoor_t *door = ctx;

    bt_turn_put_off(&door->front->turn, &door->flush, bt_now_us());
}

static void on_turn(void *ctx)
{
    const bt_gdoor_t *door = ctx;

    bt_frontend_turn(door->front);
}

bt_status_t bt_gdoor_open(bt_gdoor_t *door, struct event_base *base,
                          bt_frontend_t *front, const bt_net_config_t *net,
                          const bt_hosts_t *hosts)
{
    const bt_config_t *config = front->config;
    const bt_grpc_config_t limits = {
        .net = *net,
        .max_message_bytes = config->max_body_bytes,
        .header_timeout_ms = config->header_timeout_ms,
        .body_timeout_ms = config->body_timeout_ms,
        .idle_timeout_ms = config->idle_timeout_ms,
        .client_buffer_bytes = config->client_buffer_bytes,
    };
    const bt_grpc_handlers_t handlers = {
        .methods = methods,
        .n_methods = BT_ARRAY_LEN(methods),
        .ctx = door,
        .on_check = on_check,
        .on_admit = on_admit,
        .on_begin = on_begin,
        .on_refused = on_refused,
        .id_field = REQUEST_ID,
        .on_end = on_end,
        .on_turn = on_turn,
        .on_gather = on_gather,
    };
    bt_status_t status;

    *door = (bt_gdoor_t){.front = front, .base = base, .hosts = hosts};
    bt_strbuf_init(&door->out, BT_ANSWER_LIMIT);
    bt_list_init(&door->watches);
    bt_turn_work_init(&door->flush, flush);
    status = bt_grpc_create(base, &limits, &handlers, &door->grpc);
    if (status != BT_OK) {
        BT_LOG_ERROR("cannot create the gRPC server: %s",
                     bt_status_str(status));
        return status;
    }
    return bt_net_listen_at(bt_grpc_net(door->grpc), "grpc", config->grpc,
                            door->at);
}

void bt_gdoor_close(bt_gdoor_t *door)
{
    bt_grpc_destroy(door->grpc);
    if (door->flush.run != NULL) {
        bt_turn_forget(&door->flush);
    }
    bt_strbuf_fini(&door->out);
    *door = (bt_gdoor_t){0};
}
