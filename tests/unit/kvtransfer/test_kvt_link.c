/* SPDX-License-Identifier: Apache-2.0 */
/* A network device whose cable is out. The test is alone in a network of its
 * own, whose loopback device begins without link (network_namespaces(7)). */
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kvtransfer/kvt.h"
#include "tests/support/testsupport.h"

static void link_set(bool up)
{
    struct ifreq request = {.ifr_name = "lo"};
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);

    assert_true(fd >= 0);
    assert_int_equal(ioctl(fd, SIOCGIFFLAGS, &request), 0);
    request.ifr_flags = (short)(up ? (request.ifr_flags | IFF_UP)
                                   : (request.ifr_flags & ~IFF_UP));
    assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &request), 0);
    close(fd);
}

static void net_device_without_link_is_detected(void **state)
{
    const bt_kvt_config_t config = {.transport = &bt_kvt_transport_ucx,
                                    .path = BT_KVT_PATH_NETWORK,
                                    .net_device = "lo",
                                    .pool_bytes = 65536,
                                    .instance = 1,
                                    .keepalive_ms = 100,
                                    .dead_ms = 1000,
                                    .quarantine_ms = 1000};
    bt_kvt_t *kvt = NULL;

    (void)state;
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
        print_message("no network namespace here\n");
        skip();
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(bt_kvt_open(&config, &kvt), BT_ERR_BUSY);
        assert_null(kvt);
        link_set(true);
        assert_int_equal(bt_kvt_open(&config, &kvt), BT_OK);
        bt_kvt_close(kvt);
        kvt = NULL;
        link_set(false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(net_device_without_link_is_detected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
