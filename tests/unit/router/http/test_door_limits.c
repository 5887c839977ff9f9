/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of all clients together. The figures are worked by hand. */
#include "tests/support/testsupport.h"

#include <string.h>
#include <sys/resource.h>

#include "router/http/door_limits.h"

#define MIB (UINT64_C(1) << 20)

static const bt_config_t defaults = {.max_body_bytes = 8 * MIB,
                                     .client_buffer_bytes = 1 * MIB,
                                     .max_connections_per_address = 4096};
static const bt_door_means_t large = {
    .descriptors = 1048576, .in_use = 30, .memory_bytes = 8192 * MIB};

static bt_door_limits_t limits_of(const bt_config_t *config,
                                  const bt_door_means_t *means)
{
    bt_door_limits_t limits;
    char why[BT_DOOR_WHY_BYTES];

    assert_int_equal(bt_door_limits_derive(config, means, &limits, why), BT_OK);
    return limits;
}

static void refused_with(const bt_config_t *config,
                         const bt_door_means_t *means, const char *words)
{
    bt_door_limits_t limits = {.connections = 77};
    char why[BT_DOOR_WHY_BYTES] = "";

    assert_int_equal(bt_door_limits_derive(config, means, &limits, why),
                     BT_ERR_INVALID_PARAM);
    assert_non_null(strstr(why, words));
    assert_int_equal(limits.connections, 77);
}

static void descriptor_limit_sets_connection_limits(void **state)
{
    bt_door_means_t means = large;
    bt_door_limits_t limits = limits_of(&defaults, &means);

    (void)state;
    assert_int_equal(limits.connections, 16384);
    assert_int_equal(limits.metrics_connections, 64);
    assert_int_equal(limits.grpc_connections, 1024);
    assert_int_equal(limits.per_client, 4096);

    means.descriptors = 4096; /* 4096 - 30 - 1024 = 3042: 64 for metrics,
                                 an eighth, 380, for gRPC */
    assert_int_equal(limits_of(&defaults, &means).connections, 2598);

    means.descriptors = 256; /* 256 - 30 - 64 = 162: an eighth for each */
    limits = limits_of(&defaults, &means);
    assert_int_equal(limits.metrics_connections, 20);
    assert_int_equal(limits.grpc_connections, 20);
    assert_int_equal(limits.connections, 122);

    means.descriptors = 66; /* 66 - 30 - 16 = 20, 2 for each: just enough */
    assert_int_equal(limits_of(&defaults, &means).connections, 16);
    means.descriptors = 65;
    refused_with(&defaults, &means, "65 file descriptors");
    means.descriptors = 20;
    refused_with(&defaults, &means, "ulimit -n");
}

static void max_connections_option_applies_within_descriptor_limit(void **state)
{
    bt_config_t config = defaults;
    bt_door_means_t means = large;

    (void)state;
    config.max_connections = 100000;
    config.max_connections_per_address = 0;
    assert_int_equal(limits_of(&config, &means).connections, 100000);
    assert_int_equal(limits_of(&config, &means).per_client, 0);
    means.descriptors = 4096;
    refused_with(&config, &means, "--max-connections 100000");
    config.max_connections = 2598; /* as above */
    assert_int_equal(limits_of(&config, &means).connections, 2598);
    config.max_connections = 2599;
    refused_with(&config, &means, "2598");
}

static void http_memory_defaults_to_share_of_available(void **state)
{
    bt_config_t config = defaults;
    bt_door_means_t means = large;

    (void)state;
    assert_int_equal(limits_of(&config, &means).memory_bytes, 512 * MIB);
    means.memory_bytes = 65536 * MIB;
    assert_int_equal(limits_of(&config, &means).memory_bytes, 1024 * MIB);
    means.memory_bytes = 100 * MIB;
    assert_int_equal(limits_of(&config, &means).memory_bytes, 64 * MIB);
    means.memory_bytes = UINT64_MAX; /* not known */
    assert_int_equal(limits_of(&config, &means).memory_bytes, 64 * MIB);
    config.max_body_bytes = 500 * MIB; /* at least four of them */
    assert_int_equal(limits_of(&config, &means).memory_bytes, 2000 * MIB);

    config.http_memory_bytes = 1999 * MIB;
    refused_with(&config, &means, "--http-memory");
    config.http_memory_bytes = 2000 * MIB;
    assert_int_equal(limits_of(&config, &means).memory_bytes, 2000 * MIB);
    config.client_buffer_bytes = 2001u * (uint32_t)MIB;
    refused_with(&config, &means, "--client-buffer-bytes");
}

static void soft_descriptor_limit_is_raised(void **state)
{
    struct rlimit limit;
    struct rlimit low;
    bt_door_means_t means;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = limit.rlim_max / 2;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    bt_door_means_read(&means);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &low), 0);
    assert_true(low.rlim_cur == limit.rlim_max);
    assert_true(means.descriptors == limit.rlim_max);
    assert_true((means.in_use > 2) && (means.in_use < 100));
    assert_true(means.memory_bytes > 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void limits_are_printed_in_one_line(void **state)
{
    const bt_door_limits_t limits = limits_of(&defaults, &large);
    bt_strbuf_t out;

    (void)state;
    bt_strbuf_init(&out, 1024);
    bt_door_limits_print(&defaults, &large, &limits, &out);
    assert_string_equal(
        out.data,
        "clients may have 16384 connections (4096 from one address), 1024 to "
        "the gRPC port and 64 to the metrics port, out of 1048576 file "
        "descriptors; 512 MiB for requests (a body: 8.0 MiB; a client: half), "
        "as much for answers that are written, and at each of HTTP and gRPC "
        "for unread ones (one: 1.0 MiB); over 4096 MiB of the whole router "
        "requests are refused");
    bt_strbuf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(descriptor_limit_sets_connection_limits),
        BT_TEST(max_connections_option_applies_within_descriptor_limit),
        BT_TEST(http_memory_defaults_to_share_of_available),
        BT_TEST(soft_descriptor_limit_is_raised),
        BT_TEST(limits_are_printed_in_one_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
