/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of the inference service that are answered immediately, and those
 * that load and unload models through the launcher. */
#include <grpc_service.pb-c.h>
#include <string.h>

#include "common/base/clock.h"
#include "router/frontend/served_adapters.h"
#include "router/grpc/gdoor_priv.h"
#include "router/triton/metadata.h"
#include "router/triton/model_control.h"

/* ---- the server ---- */

void bt_service_server_live(bt_gcall_t *call, void *request)
{
    Inference__ServerLiveResponse answer =
        INFERENCE__SERVER_LIVE_RESPONSE__INIT;

    (void)request;
    answer.live = true;
    bt_gdoor_answer(call, &answer.base);
}

/* Load balancers poll this; a shutdown waits for them. */
void bt_service_server_ready(bt_gcall_t *call, void *request)
{
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    Inference__ServerReadyResponse answer =
        INFERENCE__SERVER_READY_RESPONSE__INIT;

    (void)request;
    door->front->ready_asked_ms = bt_now_ms();
    answer.ready = bt_frontend_ready(door->front);
    bt_gdoor_answer(call, &answer.base);
}

void bt_service_model_ready(bt_gcall_t *call, void *message)
{
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    const Inference__ModelReadyRequest *request = message;
    bt_served_entry_t entry;
    const bt_served_t *const served =
        bt_served_find(&door->front->models, request->name,
                       bt_gdoor_tenant(call), false, &entry)
            ? entry.served
            : NULL;
    Inference__ModelReadyResponse answer =
        INFERENCE__MODEL_READY_RESPONSE__INIT;

    door->front->ready_asked_ms = bt_now_ms();
    /* As in Triton, an unknown model is not ready, and no error. */
    answer.ready = (served != NULL) && !door->front->leaving &&
                   ((request->version[0] == '\0') ||
                    (strcmp(request->version, served->version) == 0)) &&
                   bt_served_ready(served);
    bt_gdoor_answer(call, &answer.base);
}

void bt_service_server_metadata(bt_gcall_t *call, void *request)
{
    Inference__ServerMetadataResponse answer =
        INFERENCE__SERVER_METADATA_RESPONSE__INIT;
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    const char *list[BT_DESCRIBE_MAX_EXTENSIONS];
    char *extensions[BT_DESCRIBE_MAX_EXTENSIONS];

    (void)request;
    answer.n_extensions = bt_describe_extensions(door->front, list);
    for (size_t i = 0; i < answer.n_extensions; i++) {
        extensions[i] = bt_pb_text(list[i]);
    }
    answer.extensions = extensions;
    answer.name = bt_pb_text(BT_DESCRIBE_SERVER_NAME);
    answer.version = bt_pb_text(bt_config_version());
    bt_gdoor_answer(call, &answer.base);
}

/* ---- loading and unloading; the user pointer of a call is its model control
 * ---- */

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
    bt_model_control_t *control;

    if (repository[0] != '\0') {
        bt_gcall_end(call, BT_GRPC_INVALID_ARGUMENT,
                     "repository_name: there is one repository, without a "
                     "name");
        return;
    }
    if (bt_model_control_begin(door->front, door->base, name, load, done, call,
                               &control, &error) != BT_OK) {
        bt_gdoor_fail(call, &error);
        return;
    }
    bt_gcall_set_user(call, control);
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

void bt_service_model_load(bt_gcall_t *call, void *message)
{
    const Inference__RepositoryModelLoadRequest *request = message;
    bool good = true;

    for (size_t i = 0; good && (i < request->n_parameters); i++) {
        good = check_parameter(call, request->parameters[i]->key);
    }
    if (good) {
        begin(call, request->repository_name, request->model_name, true);
    }
}

void bt_service_model_unload(bt_gcall_t *call, void *message)
{
    const Inference__RepositoryModelUnloadRequest *request = message;
    bool good = true;

    for (size_t i = 0; good && (i < request->n_parameters); i++) {
        good = check_parameter(call, request->parameters[i]->key);
    }
    if (good) {
        begin(call, request->repository_name, request->model_name, false);
    }
}

void bt_service_control_gone(bt_gcall_t *call)
{
    bt_model_control_t *control = bt_gcall_user(call);

    if (control != NULL) {
        bt_gcall_set_user(call, NULL);
        bt_model_control_leave(control);
    }
}

/* ---- shared memory ----
 *
 * With the option off there are no regions: clients that clean up after an
 * earlier run, or query regions, still succeed. */

typedef Inference__SystemSharedMemoryStatusResponse status_t;
typedef Inference__SystemSharedMemoryStatusResponse__RegionsEntry entry_t;
typedef Inference__SystemSharedMemoryStatusResponse__RegionStatus region_t;

static void set_entry(entry_t *entry, region_t *region,
                      const bt_region_info_t *info)
{
    *entry = (entry_t)
        INFERENCE__SYSTEM_SHARED_MEMORY_STATUS_RESPONSE__REGIONS_ENTRY__INIT;
    *region = (region_t)
        INFERENCE__SYSTEM_SHARED_MEMORY_STATUS_RESPONSE__REGION_STATUS__INIT;
    region->name = bt_pb_text(info->name);
    region->key = bt_pb_text(info->key);
    region->offset = info->offset;
    region->byte_size = info->bytes;
    entry->key = region->name;
    entry->value = region;
}

void bt_service_memory_status(bt_gcall_t *call, void *message)
{
    const Inference__SystemSharedMemoryStatusRequest *request = message;
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    const bt_regions_t *regions = door->front->regions;
    const char *name = request->name; /* "": all */
    status_t answer = INFERENCE__SYSTEM_SHARED_MEMORY_STATUS_RESPONSE__INIT;
    const size_t n = (regions != NULL) ? bt_regions_count(regions) : 0;
    bt_pb_scratch_t scratch = {0};
    entry_t *entries = bt_pb_scratch_take(&scratch, n + 1, sizeof(*entries));
    region_t *items = bt_pb_scratch_take(&scratch, n + 1, sizeof(*items));
    entry_t **list = bt_pb_scratch_take(&scratch, n + 1, sizeof(*list));

    answer.regions = list;
    for (size_t i = 0; (list != NULL) && (i < n); i++) {
        const bt_region_info_t *info = bt_regions_at(regions, i);

        if ((name[0] == '\0') || (strcmp(name, info->name) == 0)) {
            set_entry(&entries[i], &items[i], info);
            list[answer.n_regions++] = &entries[i];
        }
    }
    if ((list != NULL) && (name[0] != '\0') && (answer.n_regions == 0)) {
        bt_gcall_end(call, BT_GRPC_NOT_FOUND,
                     "no region of shared memory of this name is registered");
        bt_pb_scratch_fini(&scratch);
    } else {
        bt_gdoor_answer_from(call, &scratch, &answer.base);
    }
}

void bt_service_memory_register(bt_gcall_t *call, void *message)
{
    static const Inference__SystemSharedMemoryRegisterResponse answer =
        INFERENCE__SYSTEM_SHARED_MEMORY_REGISTER_RESPONSE__INIT;
    const Inference__SystemSharedMemoryRegisterRequest *request = message;
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    bt_api_error_t error = {0};

    if (door->front->regions == NULL) {
        bt_gcall_end(call, BT_GRPC_UNIMPLEMENTED,
                     "shared memory with clients is not served "
                     "(--shared-memory off): send the tensors themselves");
    } else if (bt_regions_register(door->front->regions, request->name,
                                   request->key, request->offset,
                                   request->byte_size, &error) == BT_OK) {
        bt_gdoor_answer(call, &answer.base);
    } else {
        bt_gdoor_fail(call, &error);
    }
}

/* Unregistering an absent region succeeds. */
void bt_service_memory_unregister(bt_gcall_t *call, void *message)
{
    static const Inference__SystemSharedMemoryUnregisterResponse answer =
        INFERENCE__SYSTEM_SHARED_MEMORY_UNREGISTER_RESPONSE__INIT;
    const Inference__SystemSharedMemoryUnregisterRequest *request = message;
    const bt_gdoor_t *door = bt_gcall_ctx(call);

    if (door->front->regions != NULL) {
        bt_regions_unregister(door->front->regions, (request->name[0] == '\0')
                                                        ? NULL
                                                        : request->name);
    }
    bt_gdoor_answer(call, &answer.base);
}

/* Nothing was registered, so there is nothing to report or to remove. The
 * answers are empty messages. */
void bt_service_cuda_memory_none(bt_gcall_t *call, void *request)
{
    static const Inference__CudaSharedMemoryUnregisterResponse answer =
        INFERENCE__CUDA_SHARED_MEMORY_UNREGISTER_RESPONSE__INIT;

    (void)request;
    bt_gdoor_answer(call, &answer.base);
}

void bt_service_cuda_memory_register(bt_gcall_t *call, void *request)
{
    (void)request;
    bt_gcall_end(
        call, BT_GRPC_UNIMPLEMENTED,
        "CUDA shared memory is not served: tensors are in the router's "
        "memory, which has no device");
}
