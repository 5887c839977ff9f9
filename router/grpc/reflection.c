/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC's reflection service. Both versions have equal messages. */
#include "router/grpc/reflection.h"

#include <reflection.pb-c.h>
#include <stdio.h>

#include "router/grpc/gdoor_priv.h"

typedef Grpc__Reflection__V1__ServerReflectionRequest request_t;
typedef Grpc__Reflection__V1__ServerReflectionResponse response_t;

#define MAX_FILES  8
#define NAME_BYTES 128

static char *services[] = {
    (char[]){"grpc.health.v1.Health"},
    (char[]){"grpc.reflection.v1.ServerReflection"},
    (char[]){"grpc.reflection.v1alpha.ServerReflection"},
    (char[]){"inference.GRPCInferenceService"},
};

static void list_services(bt_gcall_t *call, response_t *response)
{
    Grpc__Reflection__V1__ServiceResponse service[BT_ARRAY_LEN(services)];
    Grpc__Reflection__V1__ServiceResponse *list[BT_ARRAY_LEN(services)];
    Grpc__Reflection__V1__ListServiceResponse answer =
        GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;

    for (size_t i = 0; i < BT_ARRAY_LEN(services); i++) {
        service[i] = (Grpc__Reflection__V1__ServiceResponse)
            GRPC__REFLECTION__V1__SERVICE_RESPONSE__INIT;
        service[i].name = services[i];
        list[i] = &service[i];
    }
    answer.n_service = BT_ARRAY_LEN(services);
    answer.service = list;
    response->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
    response->list_services_response = &answer;
    (void)bt_gdoor_send(call, &response->base);
}

/* The constant is only read. */
static ProtobufCBinaryData borrow(bt_proto_span_t span)
{
    union {
        const unsigned char *from;
        uint8_t *to;
    } cast = {.from = span.data};

    return (ProtobufCBinaryData){.len = span.bytes, .data = cast.to};
}

/* Sends a file and its imports. */
static void send_file(bt_gcall_t *call, response_t *response,
                      bt_proto_span_t file)
{
    Grpc__Reflection__V1__FileDescriptorResponse answer =
        GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
    ProtobufCBinaryData files[MAX_FILES];
    bt_proto_span_t import;
    size_t n = 0;

    files[n++] = borrow(file);
    for (size_t i = 0; (n < MAX_FILES) && bt_proto_import(file, i, &import);
         i++) {
        char name[NAME_BYTES];
        bt_proto_span_t other;

        snprintf(name, sizeof(name), "%.*s", (int)import.bytes,
                 (const char *)import.data);
        if (bt_proto_file_named(name, &other)) {
            files[n++] = borrow(other);
        }
    }
    answer.n_file_descriptor_proto = n;
    answer.file_descriptor_proto = files;
    response->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
    response->file_descriptor_response = &answer;
    (void)bt_gdoor_send(call, &response->base);
}

static void send_error(bt_gcall_t *call, response_t *response,
                       bt_grpc_code_t code, const char *message)
{
    Grpc__Reflection__V1__ErrorResponse answer =
        GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;
    char text[128];

    snprintf(text, sizeof(text), "%s", message);
    answer.error_code = (int32_t)code;
    answer.error_message = text;
    response->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
    response->error_response = &answer;
    (void)bt_gdoor_send(call, &response->base);
}

void bt_reflection_answer(bt_gcall_t *call, void *message)
{
    request_t *request = message;
    response_t response =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    const char *missing = "there are no extensions";
    bt_proto_span_t file;

    response.valid_host = request->host;
    response.original_request = request;
    switch (request->message_request_case) {
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
        list_services(call, &response);
        return;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME:
        if (bt_proto_file_named(request->file_by_filename, &file)) {
            send_file(call, &response, file);
            return;
        }
        missing = "no file of this name";
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
        if (bt_proto_file_of(request->file_containing_symbol, &file)) {
            send_file(call, &response, file);
            return;
        }
        missing = "no file has this symbol";
        break;
    default:
        break;
    }
    send_error(call, &response, BT_GRPC_NOT_FOUND, missing);
}

void bt_reflection_half_close(bt_gcall_t *call)
{
    bt_gcall_end(call, BT_GRPC_OK, NULL);
}
