/* SPDX-License-Identifier: Apache-2.0 */
/** @file hosts.h
 *
 * Two hosts within this process: network namespaces with a cable between them.
 *
 *     host 1  kv0 10.79.0.1/24 ═══ veth ═══ kv0 10.79.0.2/24  host 2
 *
 * A socket belongs to the host on which the thread was when it was made, so one
 * thread can be both ends in turn. Both have a loopback interface of their own,
 * over which they do not reach each other; the machine's network is not
 * touched. Gone with the process. Needs root.
 *
 * UCX has one more thread in a process, which makes no sockets but looks up
 * whose interface an address is. It is kept in a namespace of its own, the
 * observer's, where an interface of that name has both addresses.
 */
#ifndef BT_TESTS_UNIT_KVTRANSFER_HOSTS_H
#define BT_TESTS_UNIT_KVTRANSFER_HOSTS_H

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/support/testsupport.h"

#define HOSTS_DEVICE "kv0"

enum { HOST_OWN, HOST_OBSERVER, HOST_1, HOST_2, N_HOSTS };

static struct {
    bool tried;
    const char *missing; /* why there are none */
    int fds[N_HOSTS];
    int here;
} hosts;

__attribute__((unused)) static void host_enter(int host)
{
    if (hosts.tried && (hosts.missing == NULL) && (hosts.here != host)) {
        assert_int_equal(setns(hosts.fds[host], CLONE_NEWNET), 0);
        hosts.here = host;
    }
}

static int host_own_fd(void)
{
    /* Inherited by ip(8), which opens it as a file. */
    return open("/proc/thread-self/ns/net", O_RDONLY);
}

/** A cable takes a moment until it carries something. */
static bool device_runs(void)
{
    const uint64_t until_ms = bt_now_ms() + 60000;
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq req = {.ifr_name = HOSTS_DEVICE};

    if (fd < 0) {
        return false;
    }
    while ((ioctl(fd, SIOCGIFFLAGS, &req) == 0) &&
           ((req.ifr_flags & IFF_RUNNING) == 0) && (bt_now_ms() < until_ms)) {
    }
    close(fd);
    return (req.ifr_flags & IFF_RUNNING) != 0;
}

static const char *hosts_make(void)
{
    char command[256];

    if (geteuid() != 0) {
        return "not root";
    }
    /* A /sys of each host's own is needed: UCX looks for devices there. */
    if ((unshare(CLONE_NEWNS) != 0) ||
        (mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) != 0)) {
        return "no mount namespace";
    }
    hosts.fds[HOST_OWN] = host_own_fd();
    for (int i = HOST_OBSERVER; i < N_HOSTS; i++) {
        if (unshare(CLONE_NEWNET) != 0) {
            return "no network namespace";
        }
        hosts.fds[i] = host_own_fd();
    }
    /* On host 2. */
    snprintf(command, sizeof(command),
             "ip link set lo up && "
             "ip link add " HOSTS_DEVICE " type veth peer name " HOSTS_DEVICE
             " netns /proc/self/fd/%d && "
             "ip addr add 10.79.0.2/24 dev " HOSTS_DEVICE " && "
             "ip link set " HOSTS_DEVICE " up",
             hosts.fds[HOST_1]);
    if (system(command) != 0) {
        return "ip(8) makes no cable";
    }
    if ((setns(hosts.fds[HOST_1], CLONE_NEWNET) != 0) ||
        (system("ip link set lo up && "
                "ip addr add 10.79.0.1/24 dev " HOSTS_DEVICE " && "
                "ip link set " HOSTS_DEVICE " up") != 0)) {
        return "ip(8) gives no address";
    }
    if ((setns(hosts.fds[HOST_OBSERVER], CLONE_NEWNET) != 0) ||
        (system("ip link add " HOSTS_DEVICE " type veth peer name kv1 && "
                "ip addr add 10.79.0.1/24 dev " HOSTS_DEVICE " && "
                "ip addr add 10.79.0.2/24 dev " HOSTS_DEVICE " && "
                "ip link set kv1 up && "
                "ip link set " HOSTS_DEVICE " up") != 0)) {
        return "ip(8) gives no addresses";
    }
    for (int i = HOST_OBSERVER; i < N_HOSTS; i++) {
        if ((setns(hosts.fds[i], CLONE_NEWNET) != 0) || !device_runs()) {
            return "the cable carries nothing";
        }
    }
    return NULL;
}

/** Make the hosts, once. @return false: there are none here; skip the test */
__attribute__((unused)) static bool hosts_up(void)
{
    if (!hosts.tried) {
        const char *missing = hosts_make();

        if (hosts.fds[HOST_OWN] > 0) {
            assert_int_equal(setns(hosts.fds[HOST_OWN], CLONE_NEWNET), 0);
        }
        hosts.tried = true;
        hosts.missing = missing;
    }
    if (hosts.missing != NULL) {
        print_message("skipped: no namespaced hosts: %s\n", hosts.missing);
    }
    return hosts.missing == NULL;
}

/** @return to host_devices_hide(): within, /sys shows this host's devices */
__attribute__((unused)) static void host_devices_show(void)
{
    if (hosts.here != HOST_OWN) {
        assert_int_equal(mount("sysfs", "/sys", "sysfs", MS_RDONLY, NULL), 0);
    }
}

__attribute__((unused)) static void host_devices_hide(void)
{
    if (hosts.here != HOST_OWN) {
        assert_int_equal(umount2("/sys", MNT_DETACH), 0);
    }
}

#endif
