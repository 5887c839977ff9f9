/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "common/base/status.h"
#include "router/grpc/reflection.h"
#include "tests/support/testsupport.h"

/* The file's name is its first field: tag, length, text. */
static void assert_file(bt_proto_span_t file, const char *name)
{
    assert_int_equal(file.data[0], 0x0a);
    assert_int_equal(file.data[1], strlen(name));
    assert_memory_equal(file.data + 2, name, strlen(name));
}

static void each_symbol_is_found_in_its_file(void **state)
{
    static const struct {
        const char *symbol, *file;
    } rows[] = {
        {"inference.GRPCInferenceService", "grpc_service.proto"},
        {"inference.GRPCInferenceService.ModelInfer", "grpc_service.proto"},
        {"inference.ModelInferRequest", "grpc_service.proto"},
        {"inference.ModelInferRequest.InferInputTensor", "grpc_service.proto"},
        {"inference.ModelConfig", "model_config.proto"},
        {"inference.DataType", "model_config.proto"},
        {"inference.ModelInstanceGroup.Kind", "model_config.proto"},
        {"grpc.health.v1.Health", "grpc/health/v1/health.proto"},
        {"grpc.reflection.v1.ServerReflection",
         "grpc/reflection/v1/reflection.proto"},
        {"grpc.reflection.v1alpha.ServerReflectionRequest",
         "grpc/reflection/v1alpha/reflection.proto"},
    };
    static const char *const none[] = {"",
                                       ".",
                                       "inference",
                                       "inference.",
                                       "inference.Model",
                                       "inference.ModelInferRequest.",
                                       "inference.ModelInferRequest.X",
                                       "Inference.ModelInferRequest",
                                       "grpc.health.v1.Healthy"};
    bt_proto_span_t file;

    (void)state;
    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        if (!bt_proto_file_of(rows[i].symbol, &file)) {
            fail_msg("%s is not found", rows[i].symbol);
        }
        assert_file(file, rows[i].file);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(none); i++) {
        if (bt_proto_file_of(none[i], &file)) {
            fail_msg("\"%s\" is found", none[i]);
        }
    }
}

static void files_have_names_and_imports(void **state)
{
    bt_proto_span_t file;
    bt_proto_span_t name;
    size_t n = 0;

    (void)state;
    while (bt_proto_file(n, &file)) {
        n++;
    }
    assert_int_equal(n, 5);
    assert_false(bt_proto_file_named("service.proto", &file));
    assert_true(bt_proto_file_named("grpc_service.proto", &file));
    assert_true(bt_proto_import(file, 0, &name));
    assert_int_equal(name.bytes, strlen("model_config.proto"));
    assert_memory_equal(name.data, "model_config.proto", name.bytes);
    assert_false(bt_proto_import(file, 1, &name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(each_symbol_is_found_in_its_file),
        BT_TEST(files_have_names_and_imports),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
