/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of control groups, users and CPUs, from files as the kernel writes
 * them (admin-guide/cgroup-v1, cgroup-v2.rst, proc(5)). Numbers are worked by
 * hand. */
#include "tests/support/testsupport.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/limits.h"

#define V1 "/sys/fs/cgroup/memory"
#define V2 "/sys/fs/cgroup"

static char root[64];

static int make_root(void **state)
{
    snprintf(root, sizeof(root), "/tmp/baton-test-limits-XXXXXX");
    assert_non_null(mkdtemp(root));
    return bt_test_setup(state);
}

static int remove_one(const char *path, const struct stat *info, int kind,
                      struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

static int remove_root(void **state)
{
    assert_int_equal(nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
    return bt_test_teardown(state);
}

/* With the folders that it lies in. */
static void put(const char *name, const char *text)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof(path), "%s%s", root, name);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')) != NULL;
         at++) {
        *at = '\0';
        (void)mkdir(path, 0755);
        *at = '/';
    }
    file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static bt_limit_t limit_of(void (*read)(const char *, bt_limit_t *))
{
    bt_limit_t limit;

    read(root, &limit);
    return limit;
}

static void assert_limit(void (*read)(const char *, bt_limit_t *),
                         uint64_t most, uint64_t left, const char *by)
{
    const bt_limit_t limit = limit_of(read);

    assert_string_equal(limit.by, by);
    assert_true(limit.most == most);
    assert_true(limit.left == left);
}

static void no_cgroup_means_no_limit(void **state)
{
    (void)state;
    assert_limit(bt_cgroup_cpus, UINT64_MAX, UINT64_MAX, "");
    put("/proc/self/cgroup", "4:memory:/a\n0::/a\n");
    put(V2 "/a/memory.max", "max\n");
    put(V2 "/a/memory.current", "1000\n");
    put(V2 "/a/cpu.max", "max 100000\n");
    put(V2 "/a/pids.max", "max\n");
    put(V1 "/a/memory.limit_in_bytes", "9223372036854771712\n");
    put(V1 "/a/memory.usage_in_bytes", "4096\n");
    put("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
    assert_limit(bt_cgroup_memory, UINT64_MAX, UINT64_MAX, "");
    assert_limit(bt_cgroup_cpus, UINT64_MAX, UINT64_MAX, "");
    assert_limit(bt_cgroup_tasks, UINT64_MAX, UINT64_MAX, "");
    /* Who cannot be asked how much is used bounds nobody. */
    put(V2 "/a/memory.max", "5000\n");
    put(V2 "/a/memory.current", "nothing\n");
    assert_limit(bt_cgroup_memory, UINT64_MAX, UINT64_MAX, "");
}

static void cgroup_cpu_quota_is_rounded_down_to_whole_cpus(void **state)
{
    static const struct {
        const char *text;
        uint64_t cpus;
    } quotas[] = {{"50000 100000\n", 1},
                  {"100000 100000\n", 1},
                  {"199999 100000\n", 1},
                  {"200000 100000\n", 2},
                  {"1600000 100000\n", 16}};

    (void)state;
    put("/proc/self/cgroup", "0::/\n");
    for (size_t i = 0; i < sizeof(quotas) / sizeof(quotas[0]); i++) {
        put(V2 "/cpu.max", quotas[i].text);
        assert_limit(bt_cgroup_cpus, quotas[i].cpus, quotas[i].cpus,
                     V2 "/cpu.max");
    }
}

static void cgroup_page_cache_counts_as_free(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/\n");
    put(V2 "/memory.max", "5000\n");
    put(V2 "/memory.current", "1000\n");
    assert_limit(bt_cgroup_memory, 5000, 4000, V2 "/memory.max");
    put(V2 "/memory.current", "3000\n");
    put(V2 "/memory.stat", "anon 500\nfile 2500\nfile_mapped 900\n"
                           "inactive_anon 1\nactive_anon 2\n"
                           "inactive_file 700\nactive_file 1300\n");
    assert_limit(bt_cgroup_memory, 5000, 4000, V2 "/memory.max");
    put(V2 "/memory.current", "6000\n");
    put(V2 "/memory.stat", "inactive_file 700\n");
    assert_limit(bt_cgroup_memory, 5000, 0, V2 "/memory.max");
    put(V2 "/memory.current", "600\n");
    assert_limit(bt_cgroup_memory, 5000, 5000, V2 "/memory.max");
}

/* In version 1 with those of the groups below it. */
static void cgroup_v1_is_found_by_its_mount(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/a/b\n"
                             "2:cpu,cpuacct:/q\n0::/\n");
    put("/proc/self/mountinfo",
        "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
        "35 31 0:32 / /mnt/my\\040memory rw shared:9 - cgroup cgroup rw,memory\n"
        "36 31 0:33 / /mnt/cpu rw - cgroup cgroup rw,cpu,cpuacct\n");
    put("/mnt/my memory/a/b/memory.limit_in_bytes", "9000\n");
    put("/mnt/my memory/a/b/memory.usage_in_bytes", "1500\n");
    put("/mnt/my memory/a/b/memory.stat",
        "active_file 1\ninactive_file 2\ntotal_inactive_file 300\n"
        "total_active_file 200\n");
    assert_limit(bt_cgroup_memory, 9000, 8000,
                 "/mnt/my memory/a/b/memory.limit_in_bytes");
    put("/mnt/cpu/q/cpu.cfs_quota_us", "250000\n");
    put("/mnt/cpu/q/cpu.cfs_period_us", "100000\n");
    assert_limit(bt_cgroup_cpus, 2, 2, "/mnt/cpu/q/cpu.cfs_quota_us");
}

static void tightest_cgroup_level_is_the_limit(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/a/b/c\n");
    put(V2 "/a/memory.max", "5000\n");
    put(V2 "/a/memory.current", "4500\n");
    put(V2 "/a/b/memory.max", "2000\n");
    put(V2 "/a/b/memory.current", "10\n");
    put(V2 "/a/b/c/memory.max", "max\n");
    put(V2 "/a/b/c/memory.current", "10\n");
    assert_limit(bt_cgroup_memory, 5000, 500, V2 "/a/memory.max");
    put(V2 "/a/pids.max", "64\n");
    put(V2 "/a/pids.current", "4\n");
    put(V2 "/a/b/c/pids.max", "100\n");
    put(V2 "/a/b/c/pids.current", "4\n");
    assert_limit(bt_cgroup_tasks, 64, 60, V2 "/a/pids.max");
    put(V2 "/a/b/pids.max", "3\n");
    put(V2 "/a/b/pids.current", "4\n");
    assert_limit(bt_cgroup_tasks, 3, 0, V2 "/a/b/pids.max");
    put(V2 "/cpu.max", "300000 100000\n");
    put(V2 "/a/b/cpu.max", "400000 100000\n");
    assert_limit(bt_cgroup_cpus, 3, 3, V2 "/cpu.max");
}

/* The names of a host's groups, as /proc/self/cgroup has them without a
 * namespace of groups, are no folders here. */
static void container_cgroup_is_the_mounted_one(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "4:memory:/docker/0123/inner\n0::/../x\n");
    put("/proc/self/mountinfo",
        "35 31 0:32 /docker/0123 /sys/fs/cgroup/memory ro - cgroup cgroup "
        "rw,memory\n");
    put(V1 "/memory.limit_in_bytes", "7000\n");
    put(V1 "/memory.usage_in_bytes", "1000\n");
    assert_limit(bt_cgroup_memory, 7000, 6000, V1 "/memory.limit_in_bytes");
    put(V1 "/inner/memory.limit_in_bytes", "6000\n");
    put(V1 "/inner/memory.usage_in_bytes", "1000\n");
    assert_limit(bt_cgroup_memory, 6000, 5000,
                 V1 "/inner/memory.limit_in_bytes");
    put("/proc/self/cgroup", "4:memory:/docker/4567\n0::/../x\n");
    assert_limit(bt_cgroup_memory, 7000, 6000, V1 "/memory.limit_in_bytes");
    put(V2 "/pids.max", "20\n");
    assert_limit(bt_cgroup_tasks, 20, 20, V2 "/pids.max");
}

static void hidden_cgroup_mount_is_ignored(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/\n");
    put("/proc/self/mountinfo",
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        "42 23 0:50 / /sys/fs/cgroup rw - tmpfs none rw\n");
    put(V2 "/cpu.max", "100000 100000\n");
    assert_limit(bt_cgroup_cpus, 1, 1, V2 "/cpu.max");
}

static void oom_kills_are_counted_by_the_own_cgroup(void **state)
{
    (void)state;
    assert_int_equal(bt_cgroup_oom_kills(root), 0);
    put("/proc/vmstat", "nr_free_pages 7\noom_kill 5\n");
    put("/proc/self/cgroup", "4:memory:/a\n0::/b\n");
    assert_int_equal(bt_cgroup_oom_kills(root), 5);
    put(V2 "/b/memory.events", "low 1\noom 9\noom_kill 4\noom_group_kill 2\n");
    assert_int_equal(bt_cgroup_oom_kills(root), 4);
    put(V1 "/a/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
    assert_int_equal(bt_cgroup_oom_kills(root), 3);
}

static void cpu_limit_is_the_smaller_of_affinity_and_quota(void **state)
{
    (void)state;
    put("/proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-3,8,10-11\n");
    assert_limit(bt_limits_cpus, 7, 7, "");
    put("/proc/self/cgroup", "0::/\n");
    put(V2 "/cpu.max", "700000 100000\n");
    assert_limit(bt_limits_cpus, 7, 7, "");
    put(V2 "/cpu.max", "699999 100000\n");
    assert_limit(bt_limits_cpus, 6, 6, V2 "/cpu.max");
    assert_true(bt_limits_n_cpus() >= 1);
}

static void memory_limit_is_the_smaller_of_machine_and_cgroup(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemTotal:       8 kB\nMemAvailable:   4 kB\n");
    assert_limit(bt_limits_memory, 8192, 4096, "");
    put("/proc/self/cgroup", "0::/\n");
    put(V2 "/memory.max", "6000\n");
    put(V2 "/memory.current", "1000\n");
    assert_limit(bt_limits_memory, 8192, 4096, "");
    put(V2 "/memory.current", "2000\n");
    assert_limit(bt_limits_memory, 6000, 4000, V2 "/memory.max");
}

static void put_process(unsigned pid, unsigned uid, unsigned threads)
{
    char name[64];
    char text[128];

    snprintf(name, sizeof(name), "/proc/%u/status", pid);
    snprintf(text, sizeof(text), "Name:\ty\nUid:\t%u\t0\t0\t0\nThreads:\t%u\n",
             uid, threads);
    put(name, text);
}

static void thread_limit_is_the_users_limit_less_its_processes(void **state)
{
    (void)state;
    put("/proc/self/limits",
        "Limit                     Soft Limit           Hard Limit\n"
        "Max processes             60                   70      processes\n");
    put("/proc/self/status", "Uid:\t1000\t1000\t1000\t1000\n"
                             "CapEff:\t0000000000000000\n");
    put_process(7, 1000, 9);
    put_process(8, 1000, 1);
    put_process(9, 1001, 30);
    assert_limit(bt_limits_threads, 60, 50, BT_LIMITS_OF_USER);
    put_process(9, 1000, 90);
    assert_limit(bt_limits_threads, 60, 0, BT_LIMITS_OF_USER);
    /* CAP_SYS_RESOURCE is bit 24. */
    put("/proc/self/status", "Uid:\t1000\t1000\t1000\t1000\n"
                             "CapEff:\t0000000001000000\n");
    assert_limit(bt_limits_threads, UINT64_MAX, UINT64_MAX, "");
    put("/proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t0\n");
    assert_limit(bt_limits_threads, UINT64_MAX, UINT64_MAX, "");
    put("/proc/self/uid_map", "         0       1000          1\n");
    assert_limit(bt_limits_threads, 60, 60, BT_LIMITS_OF_USER);
    put("/proc/self/uid_map", "         0          0 4294967295\n");
    assert_limit(bt_limits_threads, UINT64_MAX, UINT64_MAX, "");
    put("/proc/self/cgroup", "0::/\n");
    put(V2 "/pids.max", "50\n");
    put(V2 "/pids.current", "20\n");
    assert_limit(bt_limits_threads, 50, 30, V2 "/pids.max");
    put("/proc/self/limits", "Max processes             unlimited unlimited\n");
    assert_limit(bt_limits_threads, 50, 30, V2 "/pids.max");
}

#define IN_ROOT(fn) cmocka_unit_test_setup_teardown(fn, make_root, remove_root)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_ROOT(no_cgroup_means_no_limit),
        IN_ROOT(cgroup_cpu_quota_is_rounded_down_to_whole_cpus),
        IN_ROOT(cgroup_page_cache_counts_as_free),
        IN_ROOT(cgroup_v1_is_found_by_its_mount),
        IN_ROOT(tightest_cgroup_level_is_the_limit),
        IN_ROOT(container_cgroup_is_the_mounted_one),
        IN_ROOT(hidden_cgroup_mount_is_ignored),
        IN_ROOT(oom_kills_are_counted_by_the_own_cgroup),
        IN_ROOT(cpu_limit_is_the_smaller_of_affinity_and_quota),
        IN_ROOT(memory_limit_is_the_smaller_of_machine_and_cgroup),
        IN_ROOT(thread_limit_is_the_users_limit_less_its_processes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
