/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the inference service that are answered at once. */
#include <grpc_service.pb-c.h>
#include <string.h>

#include "common/base/clock.h"
#include "router/grpc/gdoor_priv.h"
#include "router/triton/describe.h"

#define MAX_EXTENSIONS 32

/* The message says nothing: it is read all the same. @return false: the call
 * was ended */
static bool skip_message(bt_gcall_t *call, bt_gmessage_t *message,
                         const ProtobufCMessageDescriptor *what)
{
    bt_pb_room_t room;
    ProtobufCMessage *read = bt_gdoor_read(call, message, what, &room);

    if (read == NULL) {
        return false;
    }
    bt_pb_free(&room, read);
    return true;
}

void bt_service_server_live(bt_gcall_t *call, bt_gmessage_t *message)
{
    Inference__ServerLiveResponse answer =
        INFERENCE__SERVER_LIVE_RESPONSE__INIT;

    if (skip_message(call, message,
                     &inference__server_live_request__descriptor)) {
        answer.live = true;
        bt_gdoor_answer(call, &answer.base);
    }
}

/* Balancers ask this, and are waited for when we leave. */
void bt_service_server_ready(bt_gcall_t *call, bt_gmessage_t *message)
{
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    Inference__ServerReadyResponse answer =
        INFERENCE__SERVER_READY_RESPONSE__INIT;

    if (skip_message(call, message,
                     &inference__server_ready_request__descriptor)) {
        door->front->ready_asked_ms = bt_now_ms();
        answer.ready = bt_frontend_ready(door->front);
        bt_gdoor_answer(call, &answer.base);
    }
}

void bt_service_model_ready(bt_gcall_t *call, bt_gmessage_t *message)
{
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    Inference__ModelReadyResponse answer =
        INFERENCE__MODEL_READY_RESPONSE__INIT;
    Inference__ModelReadyRequest *request;
    const bt_served_t *served;
    bt_pb_room_t room;

    request = (Inference__ModelReadyRequest *)bt_gdoor_read(
        call, message, &inference__model_ready_request__descriptor, &room);
    if (request == NULL) {
        return;
    }
    door->front->ready_asked_ms = bt_now_ms();
    served = bt_registry_find(&door->front->models, request->name);
    /* As Triton does: what is not there is not ready, and no error. */
    answer.ready = (served != NULL) && !door->front->leaving &&
                   ((request->version[0] == '\0') ||
                    (strcmp(request->version, served->version) == 0)) &&
                   bt_served_ready(served);
    bt_pb_free(&room, &request->base);
    bt_gdoor_answer(call, &answer.base);
}

void bt_service_server_metadata(bt_gcall_t *call, bt_gmessage_t *message)
{
    Inference__ServerMetadataResponse answer =
        INFERENCE__SERVER_METADATA_RESPONSE__INIT;
    char *extensions[MAX_EXTENSIONS];

    if (skip_message(call, message,
                     &inference__server_metadata_request__descriptor)) {
        for (size_t n = 0;
             (n < MAX_EXTENSIONS) && (bt_describe_extensions[n] != NULL); n++) {
            extensions[n] = bt_pb_text(bt_describe_extensions[n]);
            answer.n_extensions = n + 1;
        }
        answer.extensions = extensions;
        answer.name = bt_pb_text(BT_DESCRIBE_SERVER_NAME);
        answer.version = bt_pb_text(bt_config_version());
        bt_gdoor_answer(call, &answer.base);
    }
}

/* Nothing was registered, so there is nothing to tell or to end: clients end
 * what is left of a run before. The answers have no bytes. */
void bt_service_no_regions(bt_gcall_t *call, bt_gmessage_t *message)
{
    Inference__SystemSharedMemoryUnregisterResponse answer =
        INFERENCE__SYSTEM_SHARED_MEMORY_UNREGISTER_RESPONSE__INIT;

    bt_gmessage_fini(bt_gcall_grpc(call), message);
    bt_gdoor_answer(call, &answer.base);
}

void bt_service_no_memory(bt_gcall_t *call, bt_gmessage_t *message)
{
    bt_gmessage_fini(bt_gcall_grpc(call), message);
    bt_gcall_end(call, BT_GRPC_UNIMPLEMENTED,
                 "system shared memory with clients is not served: send the "
                 "tensors themselves");
}

void bt_service_no_cuda(bt_gcall_t *call, bt_gmessage_t *message)
{
    bt_gmessage_fini(bt_gcall_grpc(call), message);
    bt_gcall_end(
        call, BT_GRPC_UNIMPLEMENTED,
        "CUDA shared memory is not served: tensors are in the router's "
        "memory, which has no device");
}
