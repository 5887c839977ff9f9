/* SPDX-License-Identifier: Apache-2.0 */
/* Answers questions of clients about models, the log and the trace. */
#include <grpc_service.pb-c.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "router/frontend/served_adapters.h"
#include "router/grpc/gdoor_priv.h"
#include "router/grpc/pb.h"
#include "router/triton/metadata.h"

#define MAX_MODELS 256 /* in one list */

/* @return NULL: the call was ended */
static bt_served_t *find_model(bt_gcall_t *call, const char *name,
                               const char *version)
{
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    bt_served_entry_t entry;
    bt_api_error_t error = {0};

    if (!bt_served_find(&door->front->models, name, bt_gdoor_tenant(call),
                        false, &entry)) {
        bt_registry_refuse(&door->front->models, name, &error);
        bt_gdoor_fail(call, &error);
        return NULL;
    }
    if ((version[0] != '\0') && (strcmp(version, entry.served->version) != 0)) {
        bt_gcall_end(call, BT_GRPC_NOT_FOUND,
                     "this model has version " BT_SERVED_VERSION " only");
        return NULL;
    }
    return entry.served;
}

/* Finds and describes a model. @return NULL: the call was ended */
static const bt_served_t *describe(bt_gcall_t *call, const char *name,
                                   const char *version, bt_model_view_t *view)
{
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    const bt_served_t *served = find_model(call, name, version);

    if ((served != NULL) &&
        (bt_describe_model(door->front, name, view) != BT_OK)) {
        bt_gcall_end(call, BT_GRPC_UNAVAILABLE,
                     "out of memory for this answer");
        return NULL;
    }
    return served;
}

void bt_service_model_metadata(bt_gcall_t *call, void *message)
{
    const Inference__ModelMetadataRequest *request = message;
    bt_pb_scratch_t scratch = {0};
    bt_model_view_t view;
    const bt_served_t *served =
        describe(call, request->name, request->version, &view);

    if (served != NULL) {
        bt_gdoor_answer_from(
            call, &scratch,
            bt_pb_metadata(&scratch, &view.model, served->version));
        bt_repo_model_fini(&view.own);
    }
}

void bt_service_model_config(bt_gcall_t *call, void *message)
{
    const Inference__ModelConfigRequest *request = message;
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    bt_pb_scratch_t scratch = {0};
    bt_model_view_t view;

    if (describe(call, request->name, request->version, &view) != NULL) {
        bt_gdoor_answer_from(
            call, &scratch,
            bt_pb_config(&scratch, &view.model,
                         bt_describe_is_decoupled(door->front, request->name)));
        bt_repo_model_fini(&view.own);
    }
}

/* ---- statistics ---- */

static void answer_statistics(bt_gcall_t *call, const bt_described_t *list,
                              size_t n)
{
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    Inference__ModelStatisticsResponse answer =
        INFERENCE__MODEL_STATISTICS_RESPONSE__INIT;
    bt_pb_scratch_t scratch = {0};

    answer.model_stats =
        bt_pb_scratch_take(&scratch, n + 1, sizeof(*answer.model_stats));
    for (size_t i = 0; (i < n) && !scratch.failed; i++) {
        bt_statistics_t s;

        bt_describe_statistics(door->front, list[i].served, list[i].name, &s);
        answer.model_stats[i] = (Inference__ModelStatistics *)bt_pb_statistics(
            &scratch, list[i].name, list[i].served->version, &s);
    }
    answer.n_model_stats = n;
    bt_gdoor_answer_from(call, &scratch, &answer.base);
}

void bt_service_model_statistics(bt_gcall_t *call, void *message)
{
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    const Inference__ModelStatisticsRequest *request = message;
    bt_described_t list[MAX_MODELS];
    size_t n = 1;

    if (request->name[0] == '\0') { /* all models */
        n = bt_describe_names(door->front, list, MAX_MODELS);
    } else {
        list[0] = (bt_described_t){
            .name = request->name,
            .served = find_model(call, request->name, request->version)};
        n = (list[0].served == NULL) ? 0 : 1;
    }
    if ((n > 0) || (request->name[0] == '\0')) {
        answer_statistics(call, list, n);
    }
}

/* ---- the repository ---- */

typedef Inference__RepositoryIndexResponse__ModelIndex index_t;

typedef struct index_list {
    const bt_frontend_t *front;
    bool ready_only;
    index_t *entries;
    index_t **pointers;
    size_t n;
} index_list_t;

static void add_to_index(index_list_t *list, const char *name,
                         const bt_served_t *served)
{
    index_t *const entry = &list->entries[list->n];
    const char *why;
    const char *state = bt_describe_state(list->front, served, &why);

    if (list->ready_only && (why[0] != '\0')) {
        return;
    }
    *entry = (index_t)INFERENCE__REPOSITORY_INDEX_RESPONSE__MODEL_INDEX__INIT;
    entry->name = bt_pb_text(name);
    entry->version = bt_pb_text(served->version);
    entry->state = bt_pb_text(state);
    entry->reason = bt_pb_text(why);
    list->pointers[list->n++] = entry;
}

/* Answers with the models, Triton's names of them, and the adapters. */
static void answer_index(bt_gcall_t *call, bool ready_only,
                         const bt_served_entry_t *entries, size_t n_entries)
{
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    Inference__RepositoryIndexResponse answer =
        INFERENCE__REPOSITORY_INDEX_RESPONSE__INIT;
    bt_described_t names[MAX_MODELS];
    const size_t n = bt_describe_names(door->front, names, MAX_MODELS);
    bt_pb_scratch_t scratch = {0};
    index_list_t list = {.front = door->front, .ready_only = ready_only};

    list.entries =
        bt_pb_scratch_take(&scratch, n + n_entries + 1, sizeof(*list.entries));
    list.pointers =
        bt_pb_scratch_take(&scratch, n + n_entries + 1, sizeof(*list.pointers));
    for (size_t i = 0; (i < n) && !scratch.failed; i++) {
        add_to_index(&list, names[i].name, names[i].served);
    }
    for (size_t i = 0; (i < n_entries) && !scratch.failed; i++) {
        if (entries[i].adapter != NULL) {
            add_to_index(&list, entries[i].adapter->name, entries[i].served);
        }
    }
    answer.models = list.pointers;
    answer.n_models = list.n;
    bt_gdoor_answer_from(call, &scratch, &answer.base);
}

void bt_service_repository_index(bt_gcall_t *call, void *message)
{
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    const Inference__RepositoryIndexRequest *request = message;
    bt_served_entry_t *entries = NULL;
    size_t n = 0;

    if (request->repository_name[0] != '\0') {
        bt_gcall_end(call, BT_GRPC_INVALID_ARGUMENT,
                     "repository_name: there is one repository, without a "
                     "name");
    } else if (bt_served_list(&door->front->models, bt_gdoor_tenant(call),
                              &entries, &n) != BT_OK) {
        bt_gcall_end(call, BT_GRPC_UNAVAILABLE,
                     "out of memory for this answer");
    } else {
        answer_index(call, request->ready, entries, n);
    }
    bt_free(entries);
}

/* ---- settings of the log ---- */

typedef Inference__LogSettingsRequest log_request_t;
typedef Inference__LogSettingsRequest__SettingValue log_asked_t;
typedef Inference__LogSettingsResponse__SettingValue log_value_t;
typedef Inference__LogSettingsResponse__SettingsEntry log_entry_t;

/* @return false: invalid form of a setting */
static bool set_text(bt_setting_t *setting, const char *text)
{
    const size_t n = strlen(text);

    if (n >= sizeof(setting->text)) {
        return false;
    }
    memcpy(setting->text, text, n + 1);
    return true;
}

static bool read_log(const log_request_t *request, bt_settings_t *settings)
{
    settings->n = 0;
    for (size_t i = 0; i < request->n_settings; i++) {
        const log_asked_t *value = request->settings[i]->value;
        bt_setting_t *setting =
            bt_settings_add(settings, request->settings[i]->key);

        if (setting == NULL) {
            return false;
        }
        setting->kind = BT_SETTING_NULL;
        switch ((value == NULL) ? 0 : (int)value->parameter_choice_case) {
        case INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_BOOL_PARAM:
            setting->kind = BT_SETTING_BOOL;
            setting->number = value->bool_param ? 1 : 0;
            break;
        case INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_UINT32_PARAM:
            setting->kind = BT_SETTING_NUMBER;
            setting->number = value->uint32_param;
            break;
        case INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_STRING_PARAM:
            setting->kind = BT_SETTING_TEXT;
            if (!set_text(setting, value->string_param)) {
                return false;
            }
            break;
        default:
            break;
        }
    }
    return true;
}

static void answer_log(bt_gcall_t *call)
{
    Inference__LogSettingsResponse answer =
        INFERENCE__LOG_SETTINGS_RESPONSE__INIT;
    log_value_t values[BT_SETTINGS_MAX];
    log_entry_t entries[BT_SETTINGS_MAX];
    log_entry_t *pointers[BT_SETTINGS_MAX];
    bt_settings_t settings;

    bt_describe_log(&settings);
    for (size_t i = 0; i < settings.n; i++) {
        bt_setting_t *from = &settings.list[i];

        values[i] =
            (log_value_t)INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__INIT;
        entries[i] =
            (log_entry_t)INFERENCE__LOG_SETTINGS_RESPONSE__SETTINGS_ENTRY__INIT;
        if (from->kind == BT_SETTING_BOOL) {
            values[i].parameter_choice_case =
                INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_BOOL_PARAM;
            values[i].bool_param = from->number != 0;
        } else if (from->kind == BT_SETTING_NUMBER) {
            values[i].parameter_choice_case =
                INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_UINT32_PARAM;
            values[i].uint32_param = (uint32_t)from->number;
        } else {
            values[i].parameter_choice_case =
                INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_STRING_PARAM;
            values[i].string_param = from->text;
        }
        entries[i].key = from->name;
        entries[i].value = &values[i];
        pointers[i] = &entries[i];
    }
    answer.settings = pointers;
    answer.n_settings = settings.n;
    bt_gdoor_answer(call, &answer.base);
}

static const char bad_settings[] =
    "there are more settings than there can be, or a name or value is too long";

void bt_service_log_settings(bt_gcall_t *call, void *request)
{
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    bt_api_error_t error = {0};
    bt_settings_t settings;

    if (!read_log(request, &settings)) {
        bt_gcall_end(call, BT_GRPC_INVALID_ARGUMENT, bad_settings);
    } else if (bt_describe_set_log(door->front, &settings, &error) != BT_OK) {
        bt_gdoor_fail(call, &error);
    } else {
        answer_log(call);
    }
}

/* ---- settings of the trace ---- */

typedef Inference__TraceSettingRequest trace_request_t;
typedef Inference__TraceSettingResponse__SettingValue trace_value_t;
typedef Inference__TraceSettingResponse__SettingsEntry trace_entry_t;

/* Values are lists of strings; an empty list resets to the start value. */
static bool read_trace(const trace_request_t *request, bt_settings_t *settings)
{
    settings->n = 0;
    for (size_t i = 0; i < request->n_settings; i++) {
        const Inference__TraceSettingRequest__SettingValue *value =
            request->settings[i]->value;
        bt_setting_t *setting =
            bt_settings_add(settings, request->settings[i]->key);
        bt_strbuf_t list;

        if (setting == NULL) {
            return false;
        }
        setting->kind = BT_SETTING_NULL;
        if ((value == NULL) || (value->n_value == 0)) {
            continue;
        }
        setting->kind = BT_SETTING_LIST;
        bt_strbuf_init_fixed(&list, setting->text, sizeof(setting->text));
        for (size_t k = 0; k < value->n_value; k++) {
            bt_strbuf_puts(&list, (k > 0) ? "," : "");
            bt_strbuf_puts(&list, value->value[k]);
        }
        if (bt_strbuf_status(&list) != BT_OK) {
            return false;
        }
    }
    return true;
}

static void set_trace_value(bt_pb_scratch_t *scratch, const bt_setting_t *from,
                            trace_value_t *to)
{
    char *copy = bt_pb_scratch_take(scratch, 1, sizeof(from->text) + 24);
    char **list =
        bt_pb_scratch_take(scratch, sizeof(from->text), sizeof(*list));

    if (list == NULL) {
        return;
    }
    if ((from->kind == BT_SETTING_BOOL) || (from->kind == BT_SETTING_NUMBER)) {
        snprintf(copy, 24, "%" PRIu64, from->number);
    } else {
        memcpy(copy, from->text, sizeof(from->text));
    }
    to->value = list;
    while (*copy != '\0') {
        const size_t n = strcspn(copy, ",");
        const bool more = copy[n] == ',';

        list[to->n_value++] = copy;
        copy[n] = '\0';
        copy += n + (more ? 1 : 0);
    }
}

static void answer_trace(bt_gcall_t *call)
{
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    Inference__TraceSettingResponse answer =
        INFERENCE__TRACE_SETTING_RESPONSE__INIT;
    trace_value_t values[BT_SETTINGS_MAX];
    trace_entry_t entries[BT_SETTINGS_MAX];
    trace_entry_t *pointers[BT_SETTINGS_MAX];
    bt_pb_scratch_t scratch = {0};
    bt_settings_t settings;

    bt_describe_trace(door->front, &settings);
    for (size_t i = 0; i < settings.n; i++) {
        values[i] = (trace_value_t)
            INFERENCE__TRACE_SETTING_RESPONSE__SETTING_VALUE__INIT;
        entries[i] = (trace_entry_t)
            INFERENCE__TRACE_SETTING_RESPONSE__SETTINGS_ENTRY__INIT;
        set_trace_value(&scratch, &settings.list[i], &values[i]);
        entries[i].key = settings.list[i].name;
        entries[i].value = &values[i];
        pointers[i] = &entries[i];
    }
    answer.settings = pointers;
    answer.n_settings = settings.n;
    bt_gdoor_answer_from(call, &scratch, &answer.base);
}

void bt_service_trace_setting(bt_gcall_t *call, void *message)
{
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    const trace_request_t *request = message;
    const char *model =
        (request->model_name[0] == '\0') ? NULL : request->model_name;
    bt_api_error_t error = {0};
    bt_settings_t settings;

    if ((model != NULL) && (find_model(call, model, "") == NULL)) {
        /* The error was sent. */
    } else if (!read_trace(request, &settings)) {
        bt_gcall_end(call, BT_GRPC_INVALID_ARGUMENT, bad_settings);
    } else if ((settings.n > 0) &&
               (bt_describe_set_trace(door->front, model, &settings, &error) !=
                BT_OK)) {
        bt_gdoor_fail(call, &error);
    } else {
        answer_trace(call);
    }
}
