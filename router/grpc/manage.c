/* SPDX-License-Identifier: Apache-2.0 */
/* Loading and unloading of models; the call's user pointer is the order. */
#include <grpc_service.pb-c.h>

#include "router/grpc/gdoor_priv.h"
#include "router/triton/model_control.h"

static void done(void *ctx, const bt_api_error_t *error)
{
    /* Both answers are empty messages. */
    const Inference__RepositoryModelLoadResponse answer =
        INFERENCE__REPOSITORY_MODEL_LOAD_RESPONSE__INIT;
    bt_gcall_t *call = ctx;

    bt_gcall_set_user(call, NULL);
    if (error != NULL) {
        bt_gdoor_fail(call, error);
    } else {
        bt_gdoor_answer(call, &answer.base);
    }
}

static void begin(bt_gcall_t *call, const char *repository, const char *name,
                  bool load)
{
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    bt_api_error_t error = {0};
    bt_model_control_t *order;

    if (repository[0] != '\0') {
        bt_gcall_end(call, BT_GRPC_INVALID_ARGUMENT,
                     "repository_name: there is one repository, without a "
                     "name");
        return;
    }
    if (bt_model_control_begin(door->front, door->base, name, load, done, call,
                               &order, &error) != BT_OK) {
        bt_gdoor_fail(call, &error);
        return;
    }
    bt_gcall_set_user(call, order);
}

/* @return false: the call was ended */
static bool check_parameter(bt_gcall_t *call, const char *name)
{
    bt_api_error_t error = {0};

    if (bt_model_control_check_parameter(name, &error) != BT_OK) {
        bt_gdoor_fail(call, &error);
        return false;
    }
    return true;
}

void bt_manage_load(bt_gcall_t *call, bt_gmessage_t *message)
{
    Inference__RepositoryModelLoadRequest *request;
    bt_pb_room_t room;
    bool good = true;

    request = (Inference__RepositoryModelLoadRequest *)bt_gdoor_read(
        call, message, &inference__repository_model_load_request__descriptor,
        &room);
    if (request == NULL) {
        return;
    }
    for (size_t i = 0; good && (i < request->n_parameters); i++) {
        good = check_parameter(call, request->parameters[i]->key);
    }
    if (good) {
        begin(call, request->repository_name, request->model_name, true);
    }
    bt_pb_free(&room, &request->base);
}

void bt_manage_unload(bt_gcall_t *call, bt_gmessage_t *message)
{
    Inference__RepositoryModelUnloadRequest *request;
    bt_pb_room_t room;
    bool good = true;

    request = (Inference__RepositoryModelUnloadRequest *)bt_gdoor_read(
        call, message, &inference__repository_model_unload_request__descriptor,
        &room);
    if (request == NULL) {
        return;
    }
    for (size_t i = 0; good && (i < request->n_parameters); i++) {
        good = check_parameter(call, request->parameters[i]->key);
    }
    if (good) {
        begin(call, request->repository_name, request->model_name, false);
    }
    bt_pb_free(&room, &request->base);
}

void bt_manage_gone(bt_gcall_t *call)
{
    bt_model_control_t *order = bt_gcall_user(call);

    if (order != NULL) {
        bt_gcall_set_user(call, NULL);
        bt_model_control_leave(order);
    }
}
