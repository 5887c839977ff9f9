/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of the inference service that are answered immediately. */
#include <grpc_service.pb-c.h>
#include <string.h>

#include "common/base/clock.h"
#include "router/grpc/gdoor_priv.h"
#include "router/triton/metadata.h"

/* Reads and ignores an empty message. @return false: the call was ended */
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

/* Load balancers poll this; a shutdown waits for them. */
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
    /* As in Triton, an unknown model is not ready, and no error. */
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
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    const char *list[BT_DESCRIBE_MAX_EXTENSIONS];
    char *extensions[BT_DESCRIBE_MAX_EXTENSIONS];

    if (skip_message(call, message,
                     &inference__server_metadata_request__descriptor)) {
        answer.n_extensions = bt_describe_extensions(door->front, list);
        for (size_t i = 0; i < answer.n_extensions; i++) {
            extensions[i] = bt_pb_text(list[i]);
        }
        answer.extensions = extensions;
        answer.name = bt_pb_text(BT_DESCRIBE_SERVER_NAME);
        answer.version = bt_pb_text(bt_config_version());
        bt_gdoor_answer(call, &answer.base);
    }
}
