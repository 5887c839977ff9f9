/* SPDX-License-Identifier: Apache-2.0 */
/* What accesses cost, against numbers worked by hand: a warp that reads 32
 * words side by side reads 128 bytes, which are four sectors of 32. */
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/simt/count.h"
#include "tests/simt/cuda_runtime.h"
#include "tests/simt/test_expect.h"

using simt::Counts;

namespace
{

alignas(128) float words[4096];

/* The same with each seed, for the order of threads must not matter. */
Counts counted(unsigned blocks, unsigned threads,
               const std::function<void()> &body)
{
    static unsigned n_kernels;
    Counts first = Counts();

    simt::count(true);
    for (uint64_t seed = 0; seed < kSeeds; seed++) {
        const std::string name = "kernel " + std::to_string(n_kernels++);
        const std::string found =
            simt::run(simt::Grid{blocks, threads, seed, name.c_str()}, body);
        const Counts counts = simt::counts_of(name);

        assert_string_equal(found.c_str(), "");
        first = (seed == 0) ? counts : first;
        assert_memory_equal(&counts, &first, sizeof(first));
    }
    simt::count(false);
    return first;
}

/* Before the others: nothing has looked at the environment yet. */
void the_table_is_written_when_the_process_ends(void **)
{
    char path[] = "/tmp/simt_count_XXXXXX";
    const int fd = mkstemp(path);
    char line[2][512] = {"", ""};

    assert_true(fd >= 0);
    const pid_t child = fork();

    if (child == 0) {
        (void)setenv("BATON_SIMT_COUNT", path, 1);
        for (int i = 0; i < 2; i++) {
            (void)simt::run(simt::Grid{3, 32, 1, "sum<float>"}, [] {
                (void)bt_load(&words[threadIdx.x]);
                BT_SYNC();
            });
        }
        std::exit(0);
    }
    assert_true(waitpid(child, nullptr, 0) == child);

    std::FILE *file = fdopen(fd, "r");

    assert_non_null(std::fgets(line[0], sizeof(line[0]), file));
    assert_non_null(std::fgets(line[1], sizeof(line[1]), file));
    (void)std::fclose(file);
    (void)unlink(path);
    (void)unlink((std::string(path) + ".lines").c_str());
    assert_string_equal(
        line[0],
        "kernel\tlaunches\tblocks\tthreads\tload_requests\tload_sectors\t"
        "load_bytes\tload_sectors_once\tstore_requests\tstore_sectors\t"
        "store_bytes\tstore_sectors_once\tshared_requests\twavefronts\t"
        "conflicts\tatomics\tdivergent\tproducts\tbarriers\n");
    assert_string_equal(line[1], "sum<float>\t2\t6\t192\t6\t24\t768\t8\t0\t0\t0"
                                 "\t0\t0\t0\t0\t0\t0\t0\t6\n");
}

void words_side_by_side_use_all_of_their_sectors(void **)
{
    const Counts c = counted(2, 64, [] {
        const unsigned i = blockIdx.x * 64 + threadIdx.x;

        bt_store(&words[i], bt_load(&words[1024 + i]));
    });

    assert_int_equal(c.launches, 1);
    assert_int_equal(c.blocks, 2);
    assert_int_equal(c.threads, 128);
    assert_int_equal(c.load_requests, 4);
    assert_int_equal(c.load_sectors, 16);
    assert_int_equal(c.load_bytes, 512);
    assert_int_equal(c.load_sectors_once, 16);
    assert_int_equal(c.store_requests, 4);
    assert_int_equal(c.store_sectors, 16);
    assert_int_equal(c.store_bytes, 512);
    assert_int_equal(c.store_sectors_once, 16);
    assert_int_equal(c.divergent, 0);
}

void words_apart_waste_theirs(void **)
{
    Counts c = counted(1, 32, [] { (void)bt_load(&words[2 * threadIdx.x]); });

    assert_int_equal(c.load_sectors, 8); /* of 256 bytes 128 */
    assert_int_equal(c.load_bytes, 128);
    c = counted(1, 32, [] { bt_store(&words[8 * threadIdx.x], 1.0f); });
    assert_int_equal(c.store_sectors, 32);
    assert_int_equal(c.store_bytes, 128);
    /* One word off: a fifth sector. */
    c = counted(1, 32, [] { (void)bt_load(&words[1 + threadIdx.x]); });
    assert_int_equal(c.load_sectors, 5);
    /* All the same one. */
    c = counted(1, 32, [] { (void)bt_load(&words[7]); });
    assert_int_equal(c.load_sectors, 1);
    assert_int_equal(c.load_bytes, 4);
}

void vectors_are_one_request(void **)
{
    const Counts c = counted(1, 32, [] {
        (void)bt_load(reinterpret_cast<const float4 *>(words) + threadIdx.x);
    });

    assert_int_equal(c.load_requests, 1);
    assert_int_equal(c.load_sectors, 16);
    assert_int_equal(c.load_bytes, 512);
}

/* Three rounds over 128 bytes, by two blocks: 3 · 2 · 4 sectors, but four that
 * differ. */
void what_comes_again_must_be_moved_but_once(void **)
{
    const Counts c = counted(2, 32, [] {
        for (unsigned round = 0; round < 3; round++) {
            (void)bt_load(&words[threadIdx.x]);
        }
    });

    assert_int_equal(c.load_requests, 6);
    assert_int_equal(c.load_sectors, 24);
    assert_int_equal(c.load_sectors_once, 4);
}

/* Two loads of a line are two requests. */
void loads_of_one_line_are_kept_apart(void **)
{
    const Counts c = counted(1, 32, [] {
        (void)(bt_load(&words[threadIdx.x]) + bt_load(&words[1024]));
    });

    assert_int_equal(c.load_requests, 2);
    assert_int_equal(c.load_sectors, 5);
    assert_int_equal(c.divergent, 0);
}

void words_of_one_bank_wait_for_each_other(void **)
{
    /* Words 0, 32, 64 ... are all of bank 0. */
    Counts c = counted(1, 32, [] {
        BT_SHARED(float, x, 1024);

        x.set(32 * threadIdx.x, 1.0f);
    });

    assert_int_equal(c.shared_requests, 1);
    assert_int_equal(c.wavefronts, 32);
    assert_int_equal(c.conflicts, 31);
    /* 0, 33, 66 ...: banks 0, 1, 2 ... */
    c = counted(1, 32, [] {
        BT_SHARED(float, x, 1056);

        x.set(33 * threadIdx.x, 1.0f);
    });
    assert_int_equal(c.wavefronts, 1);
    assert_int_equal(c.conflicts, 0);
    /* Two words of each even bank. */
    c = counted(1, 32, [] {
        BT_SHARED(float, x, 64);

        x.set(2 * threadIdx.x, 1.0f);
    });
    assert_int_equal(c.conflicts, 1);
    /* One word for all: one wavefront for the store, one for the load. */
    c = counted(1, 32, [] {
        BT_SHARED(float, x, 64);

        if (threadIdx.x == 0) {
            x.set(40, 1.0f);
        }
        BT_SYNC();
        (void)x.get(40);
    });
    assert_int_equal(c.shared_requests, 2);
    assert_int_equal(c.wavefronts, 2);
    assert_int_equal(c.conflicts, 0);
    assert_int_equal(c.divergent, 1);
}

void vectors_go_by_parts_of_the_warp(void **)
{
    Counts c = counted(1, 32, [] {
        BT_SHARED(float4, x, 32);

        x.set(threadIdx.x, make_float4(1, 2, 3, 4));
    });

    assert_int_equal(c.shared_requests, 1);
    assert_int_equal(c.wavefronts, 4); /* of eight lanes, 128 bytes */
    assert_int_equal(c.conflicts, 0);
    c = counted(1, 32, [] {
        BT_SHARED(float2, x, 32);

        x.set(threadIdx.x, make_float2(1, 2));
    });
    assert_int_equal(c.wavefronts, 2);
    assert_int_equal(c.conflicts, 0);
    /* Every second one: lanes 4 .. 7 of each quarter meet lanes 0 .. 3. */
    c = counted(1, 32, [] {
        BT_SHARED(float4, x, 64);

        x.set(2 * threadIdx.x, make_float4(1, 2, 3, 4));
    });
    assert_int_equal(c.wavefronts, 8);
    assert_int_equal(c.conflicts, 4);
}

void vectors_that_lanes_share_in_pairs_go_by_halves(void **)
{
    const Counts c = counted(1, 32, [] {
        BT_SHARED(float4, x, 32);

        x.set(threadIdx.x, make_float4(1, 2, 3, 4));
        BT_SYNC();
        (void)x.get(0);
    });

    assert_int_equal(c.shared_requests, 2);
    assert_int_equal(c.wavefronts, 4 + 2);
    assert_int_equal(c.conflicts, 0);
}

void what_lanes_do_elsewhere_is_no_part_of_a_request(void **)
{
    /* Half of them have loaded once more when they come to the last line. */
    const Counts c = counted(1, 32, [] {
        if (threadIdx.x < 16) {
            (void)bt_load(&words[1024 + threadIdx.x]);
        }
        (void)bt_load(&words[threadIdx.x]);
    });

    assert_int_equal(c.load_requests, 2);
    assert_int_equal(c.load_sectors, 2 + 4);
    assert_int_equal(c.divergent, 1);
}

void barriers_are_counted_by_blocks(void **)
{
    const Counts c = counted(3, 64, [] {
        BT_SYNC();
        BT_SYNC();
    });

    assert_int_equal(c.barriers, 6);
    assert_int_equal(c.load_requests, 0);
}

void lanes_that_stay_away_make_requests_divergent(void **)
{
    Counts c = counted(1, 64, [] {
        if (threadIdx.x < 48) { /* one whole warp, and half of the other */
            bt_store(&words[threadIdx.x], 1.0f);
        }
    });

    assert_int_equal(c.store_requests, 2);
    assert_int_equal(c.store_sectors, 6);
    assert_int_equal(c.divergent, 1);
    /* Lane t makes t + 1 rounds: the first is that of all. */
    c = counted(1, 32, [] {
        for (unsigned i = 0; i <= threadIdx.x; i++) {
            (void)bt_load(&words[32 * i + threadIdx.x]);
        }
    });
    assert_int_equal(c.load_requests, 32);
    assert_int_equal(c.divergent, 31);
    assert_int_equal(c.load_bytes, 4 * 32 * 33 / 2);
    /* A warp of twenty is whole with twenty. */
    c = counted(1, 20, [] { (void)bt_load(&words[threadIdx.x]); });
    assert_int_equal(c.load_sectors, 3);
    assert_int_equal(c.divergent, 0);
}

void atomics_are_stores_that_are_counted_apart(void **)
{
    const Counts c = counted(1, 64, [] { atomicAdd(&words[0], 1.0f); });

    assert_int_equal(c.atomics, 2);
    assert_int_equal(c.store_requests, 2);
    assert_int_equal(c.store_sectors, 2);
    assert_int_equal(c.store_sectors_once, 1);
    assert_int_equal(c.load_requests, 0);
}

/* Copies are loads of global memory and stores of shared memory; ldmatrix takes
 * eight rows of 16 bytes at a time. */
void matrices_and_copies_cost_what_they_move(void **)
{
    for (unsigned pitch = 1; pitch <= 8; pitch += 7) { /* rows, of 16 bytes */
        const Counts c = counted(1, 32, [=] {
            BT_SHARED(float4, x, 256);
            uint32_t r[4], one[1];
            int32_t d[4] = {0};

            bt_copy_async<16>(x.address(pitch * threadIdx.x),
                              reinterpret_cast<const float4 *>(words) +
                                  threadIdx.x);
            bt_copy_commit();
            bt_copy_wait<0>();
            __syncwarp();
            bt_ldmatrix(r, x.address(pitch * threadIdx.x));
            bt_ldmatrix_trans(one, x.address(pitch * threadIdx.x));
            bt_mma_s8(d, {r[0], r[1]}, one[0], d);
        });

        assert_int_equal(c.load_requests, 1);
        assert_int_equal(c.load_sectors, 16);
        assert_int_equal(c.load_bytes, 512);
        assert_int_equal(c.shared_requests, 3);
        /* 4 for the copy, 4 and 1 for the matrices; 128 bytes apart all rows of
         * a matrix lie in the same four banks: eight for each. */
        assert_int_equal(c.wavefronts, (pitch == 1) ? 9 : 72);
        assert_int_equal(c.conflicts, (pitch == 1) ? 0 : 63);
        assert_int_equal(c.divergent, 0);
        assert_int_equal(c.products, 1);
    }
}

void what_fails_is_not_counted(void **)
{
    simt::count(true);
    (void)simt::run(simt::Grid{1, 32, 1, "fails"}, [] {
        (void)bt_load(&words[0]);
        BT_SYNC();
        bt_store(&words[0], 1.0f);
    });
    assert_int_equal(simt::counts_of("fails").launches, 0);
    assert_int_equal(simt::counts_of("fails").load_requests, 0);
    simt::count(false);
    (void)simt::run(simt::Grid{1, 32, 1, "off"},
                    [] { (void)bt_load(&words[0]); });
    assert_int_equal(simt::counts_of("off").launches, 0);
}

} // namespace

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_written_when_the_process_ends),
        cmocka_unit_test(words_side_by_side_use_all_of_their_sectors),
        cmocka_unit_test(words_apart_waste_theirs),
        cmocka_unit_test(vectors_are_one_request),
        cmocka_unit_test(what_comes_again_must_be_moved_but_once),
        cmocka_unit_test(loads_of_one_line_are_kept_apart),
        cmocka_unit_test(words_of_one_bank_wait_for_each_other),
        cmocka_unit_test(vectors_go_by_parts_of_the_warp),
        cmocka_unit_test(vectors_that_lanes_share_in_pairs_go_by_halves),
        cmocka_unit_test(what_lanes_do_elsewhere_is_no_part_of_a_request),
        cmocka_unit_test(barriers_are_counted_by_blocks),
        cmocka_unit_test(lanes_that_stay_away_make_requests_divergent),
        cmocka_unit_test(atomics_are_stores_that_are_counted_apart),
        cmocka_unit_test(matrices_and_copies_cost_what_they_move),
        cmocka_unit_test(what_fails_is_not_counted),
    };

    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
