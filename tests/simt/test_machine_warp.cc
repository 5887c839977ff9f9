/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions of a warp, of shared words, of bytes and of vectors. */
#include <cstdio>
#include <string>
#include <vector>

#include "tests/simt/cuda_runtime.h"
#include "tests/simt/test_expect.h"

namespace
{

void a_lane_gets_what_the_lane_it_names_has(void **)
{
    std::vector<float> out(64);

    expect(nullptr, 1, 64, [&] {
        const float mine = static_cast<float>(threadIdx.x) + 0.5f;
        const float other = __shfl_xor_sync(kAll, mine, 3);

        bt_store(&out[threadIdx.x],
                 other + 100.0f * __shfl_sync(kAll, mine, 7));
    });
    for (unsigned t = 0; t < 64; t++) {
        const float xored = static_cast<float>(t ^ 3u) + 0.5f;
        const float seventh = (t < 32) ? 7.5f : 39.5f;

        assert_true(out[t] == xored + 100.0f * seventh);
    }
}

void votes_are_of_the_lanes_of_the_mask(void **)
{
    std::vector<unsigned> votes(32), some(32), all(32);

    expect(nullptr, 1, 32, [&] {
        const unsigned t = threadIdx.x;
        const unsigned mask = (t < 8) ? 0xffu : ~0xffu;
        const int vote = (t % 3 == 0) ? 4 : 0; /* not 1: any that is not 0 */

        bt_store(&votes[t], __ballot_sync(mask, vote));
        bt_store(&some[t],
                 static_cast<unsigned>(__any_sync(mask, (t == 9) ? 1 : 0)));
        bt_store(&all[t],
                 static_cast<unsigned>(__all_sync(mask, (t != 9) ? 1 : 0)));
    });
    for (unsigned t = 0; t < 32; t++) {
        /* 0, 3, 6, and 9, 12 … 30 */
        assert_int_equal(votes[t], (t < 8) ? 0x49u : 0x49249200u);
        assert_int_equal(some[t], (t < 8) ? 0 : 1);
        assert_int_equal(all[t], (t < 8) ? 1 : 0);
    }
}

/* A lane that stays away, that comes with another mask, on another line or to
 * another instruction. */
void lanes_that_do_not_come_together_are_found(void **)
{
    expect("31 for others of their warp, 1 have ended", 1, 32, [] {
        if (threadIdx.x != 4) {
            (void)__ballot_sync(kAll, 1);
        }
    });
    expect("32 for others of their warp", 1, 32, [] {
        (void)__shfl_sync((threadIdx.x < 16) ? kAll : 0xfffffffeu, 1, 0);
    });
    expect("32 for others of their warp", 1, 32, [] {
        if (threadIdx.x < 16) {
            __syncwarp();
        } else {
            __syncwarp();
        }
    });
    expect("32 for others of their warp", 1, 32, [] {
        (void)((threadIdx.x < 16) ? __ballot_sync(kAll, 1, 1)
                                  : __shfl_sync(kAll, 1u, 1, 1));
    });
}

/* What a vote or a shuffle brings, it brings by registers: memory has its own
 * barrier. */
void a_vote_is_no_barrier(void **)
{
    for (int barrier = 0; barrier < 2; barrier++) {
        expect((barrier != 0) ? nullptr : "race: ", 1, 32, [=] {
            BT_SHARED(unsigned, x, 32);

            x.set(threadIdx.x, 1);
            (void)__any_sync(kAll, 1);
            (void)__shfl_xor_sync(kAll, 1, 1);
            if (barrier != 0) {
                __syncwarp();
            }
            (void)x.get(threadIdx.x ^ 1);
        });
    }
}

void atomics_of_all_threads_add_up(void **)
{
    unsigned sum = 0, most = 0;
    unsigned long long wide = 0;
    float real = 0.0f;

    for (uint64_t seed = 0; seed < kSeeds; seed++) {
        sum = most = 0;
        wide = 0;
        real = 0.0f;
        const std::string found = simt::run(simt::Grid{4, 64, seed}, [&] {
            BT_SHARED(unsigned, mine, 1);

            if (threadIdx.x == 0) {
                mine.set(0, 0);
            }
            BT_SYNC();
            atomicAdd(mine.address(0), 2u);
            atomicMax(&most, blockIdx.x * 64 + threadIdx.x);
            atomicAdd(&wide, 1ull << 32);
            atomicAdd(&real, 0.5f);
            BT_SYNC();
            if (threadIdx.x == 0) {
                atomicAdd(&sum, mine.get(0));
            }
        });

        assert_string_equal(found.c_str(), "");
        assert_int_equal(sum, 512);
        assert_int_equal(most, 255);
        assert_true(wide == 256ull << 32);
        assert_true(real == 128.0f);
    }
}

void plain_accesses_beside_atomics_are_races(void **)
{
    unsigned word = 0;

    expect("race: ", 1, 64, [&] { /* one thread sets what all add to */
                                  if (threadIdx.x == 9) {
                                      bt_store(&word, 0u);
                                  }
                                  atomicAdd(&word, 1u);
    });
    expect("race: ", 1, 64, [&] { /* the sum is read before all have added */
                                  atomicAdd(&word, 1u);
                                  (void)bt_load(&word);
    });
    expect("race: ", 1, 2, [&] { /* by the one that adds last, or not */
                                 atomicAdd(&word, 1u);
                                 if (threadIdx.x == 0) {
                                     (void)bt_load(&word);
                                 }
    });
    expect("race: blocks share", 2, 1, [&] {
        if (blockIdx.x == 0) {
            bt_store(&word, 0u);
        }
        BT_SYNC();
        atomicAdd(&word, 1u);
    });
    expect("race: blocks share", 2, 1, [&] {
        atomicAdd(&word, 1u);
        BT_SYNC();
        (void)bt_load(&word);
    });
    expect("shared memory is read before it is written", 1, 1, [] {
        BT_SHARED(unsigned, x, 1);

        atomicAdd(x.address(0), 1u);
    });
    expect(nullptr, 1, 32, [] { /* a barrier of the warp parts them */
                                BT_SHARED(unsigned, x, 1);

                                if (threadIdx.x == 3) {
                                    x.set(0, 0);
                                }
                                __syncwarp();
                                atomicAdd(x.address(0), 1u);
                                atomicAdd(x.address(0), 1u);
                                __syncwarp();
                                (void)x.get(0);
    });
    expect("race: ", 1, 64, [] { /* but not those of two warps */
                                 BT_SHARED(unsigned, x, 1);

                                 if (threadIdx.x == 3) {
                                     x.set(0, 0);
                                 }
                                 BT_SYNC();
                                 atomicAdd(x.address(0), 1u);
                                 __syncwarp();
                                 (void)x.get(0);
    });
}

/* Worked by hand: 1·5 − 2·6 + 3·(−7) − 128·127 + 10 = −16274. */
void four_bytes_are_multiplied_and_chosen(void **)
{
    const int a = static_cast<int>(0x8003fe01u); /* 1, -2, 3, -128 */
    const int b = 0x7ff90605;                    /* 5, 6, -7, 127 */

    assert_int_equal(__dp4a(a, b, 10), -16274);
    assert_true(__dp4a(0xff000002u, 0xff000003u, 1u) == 255 * 255 + 7);
    assert_true(__dp4a(0, 0, 0x7fffffff) == 0x7fffffff);
    assert_int_equal(__byte_perm(0x33221100, 0x77665544, 0x3210), 0x33221100);
    assert_int_equal(__byte_perm(0x33221100, 0x77665544, 0x7061), 0x77006611);
    expect("__byte_perm: a selector above 7", 1, 1,
           [] { (void)__byte_perm(0, 0, 0x3218); });
}

void vectors_move_as_one_and_lie_straight(void **)
{
    std::vector<uint4> out(32);
    alignas(16) unsigned words[8] = {0};

    static_assert((sizeof(uint2) == 8) && (alignof(uint2) == 8), "as in CUDA");
    static_assert((sizeof(float4) == 16) && (alignof(float4) == 16), "so too");
    expect(nullptr, 1, 32, [&] {
        const unsigned t = threadIdx.x;
        BT_SHARED(uint4, x, 32);

        x.set(t, make_uint4(t, t + 1, t + 2, t + 3));
        BT_SYNC();
        bt_store(&out[t], x.get(31 - t));
    });
    for (unsigned t = 0; t < 32; t++) {
        assert_int_equal(out[t].x, 31 - t);
        assert_int_equal(out[t].w, 34 - t);
    }
    expect("an access that is not aligned, of bytes: 16", 1, 1,
           [&] { (void)bt_load(reinterpret_cast<const float4 *>(words + 2)); });
    expect("an access that is not aligned, of bytes: 8", 1, 1,
           [&] { (void)bt_load(reinterpret_cast<const int2 *>(words + 1)); });
    expect("race: ", 1, 2,
           [&] { /* the last word of one, the first of two */
                 if (threadIdx.x == 0) {
                     bt_store(reinterpret_cast<uint4 *>(words + 4),
                              make_uint4(1, 2, 3, 4));
                 } else {
                     (void)bt_load(words + 7);
                 }
           });
}

} // namespace

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lane_gets_what_the_lane_it_names_has),
        cmocka_unit_test(votes_are_of_the_lanes_of_the_mask),
        cmocka_unit_test(lanes_that_do_not_come_together_are_found),
        cmocka_unit_test(a_vote_is_no_barrier),
        cmocka_unit_test(atomics_of_all_threads_add_up),
        cmocka_unit_test(plain_accesses_beside_atomics_are_races),
        cmocka_unit_test(four_bytes_are_multiplied_and_chosen),
        cmocka_unit_test(vectors_move_as_one_and_lie_straight),
    };

    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
