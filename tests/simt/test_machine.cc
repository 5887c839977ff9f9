/* SPDX-License-Identifier: Apache-2.0 */
/* The machine itself: what it must find, planted, and what it must not. */
#include <cstdio>
#include <string>
#include <vector>

#include "tests/simt/test_expect.h"
#include "tests/simt/warp.h"

using simt::Grid;

namespace
{

void sums_come_out_right(void **)
{
    for (unsigned threads = 1; threads <= 256; threads *= 2) {
        std::vector<uint32_t> in(3 * threads), out(3);

        for (size_t i = 0; i < in.size(); i++) {
            in[i] = static_cast<uint32_t>(i * i);
        }
        expect(nullptr, 3, threads, [&] {
            const simt::Shared<uint32_t> sum(1, simt::block_dim().x);
            const unsigned t = simt::thread_index().x;
            const size_t at = simt::block_index().x * simt::block_dim().x + t;

            sum.set(t, simt::load(&in[at]));
            simt::sync_threads(1);
            for (unsigned half = simt::block_dim().x / 2; half > 0; half /= 2) {
                if (t < half) {
                    sum.set(t, sum.get(t) + sum.get(t + half));
                }
                simt::sync_threads(2);
            }
            if (t == 0) {
                simt::store(&out[simt::block_index().x], sum.get(0));
            }
        });
        for (unsigned b = 0; b < 3; b++) {
            uint32_t want = 0;

            for (unsigned t = 0; t < threads; t++) {
                want += in[b * threads + t];
            }
            assert_int_equal(out[b], want);
        }
    }
}

/* By butterflies within a warp, of which no barrier of the block knows. */
void shuffles_bring_each_lane_the_right_value(void **)
{
    std::vector<uint32_t> sums(64);

    expect(nullptr, 1, 64, [&] {
        const unsigned t = simt::thread_index().x;
        uint32_t x = t + 1;

        for (unsigned lanes = 16; lanes > 0; lanes /= 2) {
            x += simt::shuffle_xor(kAll, x, lanes, 1);
        }
        simt::store(&sums[t], x);
    });
    for (unsigned t = 0; t < 64; t++) { /* 1 + … + 32, and 33 + … + 64 */
        assert_int_equal(sums[t], (t < 32) ? 528 : 1552);
    }
}

void a_missing_barrier_is_a_race(void **)
{
    expect("race: ", 1, 64, [] {
        const simt::Shared<float> x(1, 64);
        const unsigned t = simt::thread_index().x;

        x.set(t, 1.0f);
        simt::sync_threads(1);
        x.set(t, x.get(t) + x.get(63 - t)); /* of the other warp */
    });
}

/* Reading ends before the next round's writing begins, or not. */
void a_barrier_before_it_is_not_enough(void **)
{
    for (int with = 0; with < 2; with++) {
        expect((with != 0) ? nullptr : "a word that another one", 1, 32, [=] {
            const simt::Shared<int> x(1, 1);

            for (int round = 0; round < 3; round++) {
                if (simt::thread_index().x == 0) {
                    x.set(0, round);
                }
                simt::sync_threads(1);
                (void)x.get(0);
                if (with != 0) {
                    simt::sync_threads(2);
                }
            }
        });
    }
}

void a_barrier_of_the_warp_is_one_for_the_warp_alone(void **)
{
    for (unsigned apart = 1; apart <= 32; apart *= 32) { /* lanes, warps */
        expect((apart == 1) ? nullptr : "race: ", 1, 64, [=] {
            const simt::Shared<int> x(1, 64);
            const unsigned t = simt::thread_index().x;

            x.set(t, 0);
            simt::sync_threads(1);
            x.set(t, 1);
            simt::sync_warp(kAll, 2);
            (void)x.get(t ^ apart);
        });
    }
}

void two_threads_that_write_one_word_are_a_race(void **)
{
    float out = 0.0f;

    expect("race: two threads write", 1, 2, [&] { simt::store(&out, 1.0f); });
    /* Halves of a word. */
    std::vector<uint16_t> halves(2);
    expect("race: two threads write", 1, 2,
           [&] { simt::store(&halves[simt::thread_index().x], uint16_t(1)); });
}

void blocks_must_not_meet(void **)
{
    float word = 0.0f;

    expect("race: blocks share", 2, 1, [&] { simt::store(&word, 1.0f); });
    expect("race: blocks share", 2, 1, [&] {
        if (simt::block_index().x == 0) {
            (void)simt::load(&word);
        } else {
            simt::store(&word, 1.0f);
        }
    });
    expect(nullptr, 8, 32, [&] { (void)simt::load(&word); });
}

void barriers_that_not_all_reach_are_found(void **)
{
    expect(
        "31 wait at barriers of the block, 0 for others of their warp, 1 have ended",
        1, 32, [] {
            if (simt::thread_index().x != 7) {
                simt::sync_threads(5);
            }
        });
    expect("32 wait at barriers", 1, 32, [] { /* but at different ones */
                                              if (simt::thread_index().x < 16) {
                                                  simt::sync_threads(5);
                                              } else {
                                                  simt::sync_threads(6);
                                              }
    });
    expect("1 for others of their warp, 31 have ended", 1, 32, [] {
        if (simt::thread_index().x == 3) {
            simt::sync_warp(kAll, 9);
        }
    });
}

void masks_that_lie_are_found(void **)
{
    expect("not in its own mask", 1, 32,
           [] { simt::sync_warp(kAll & ~(1u << simt::thread_index().x), 1); });
    expect("a lane of the mask is no thread", 1, 16,
           [] { simt::sync_warp(kAll, 1); });
    expect("a lane that is not in its mask", 1, 32, [] {
        if (simt::thread_index().x < 16) {
            (void)simt::shuffle(0xffff, 1, 20, 1);
        }
    });
}

void shared_memory_is_nothing_at_first_and_has_an_end(void **)
{
    /* What a block has written is not there for the next one. */
    expect("block 1 thread 0: shared memory is read before it is written", 2, 1,
           [] {
               const simt::Shared<int> x(1, 4);

               if (simt::block_index().x == 0) {
                   x.set(2, 1);
               }
               (void)x.get(2);
           });
    expect("an index outside an array in shared memory: 4", 1, 1,
           [] { simt::Shared<int>(1, 4).set(4, 0); });
}

void crooked_accesses_are_found(void **)
{
    alignas(8) uint8_t bytes[16] = {0};

    expect("an access that is not aligned, of bytes: 4", 1, 1, [&] {
        simt::touch(bytes + 2, 4, simt::Access::kRead, simt::Space::kGlobal);
    });
    expect("a grid of 1 blocks of 1025 threads", 1, 1025, [] {});
}

/* For long runs: what costs little is still found, races are not. */
void words_may_go_unwatched(void **)
{
    float word = 0.0f;

    simt::watch_words(false);
    expect(nullptr, 2, 64, [&] { simt::store(&word, 1.0f); });
    expect("an access that is not aligned", 1, 1, [&] {
        simt::touch(reinterpret_cast<char *>(&word) + 2, 4, simt::Access::kRead,
                    simt::Space::kGlobal);
    });
    expect("1 wait at barriers of the block", 1, 64, [] {
        if (simt::thread_index().x == 7) {
            simt::sync_threads(5);
        }
    });
    simt::watch_words(true);
    expect("race: ", 2, 64, [&] { simt::store(&word, 1.0f); });
}

/* More pages of words than the machine has room for at first, and again. */
void many_words_are_kept_apart(void **)
{
    const unsigned kThreads = 512;
    std::vector<uint32_t> words(size_t(kThreads) * 1024);

    for (unsigned same = 0; same < 2; same++) {
        expect((same == 0) ? nullptr : "race: ", 1, kThreads, [&, same] {
            const size_t t = simt::thread_index().x;

            for (size_t i = 0; i < 4; i++) {
                simt::store(&words[t * 1024 + i * 256], 1u);
            }
            if ((same != 0) && (t == 5)) {
                simt::store(&words[(t + 1) * 1024 + 512], 1u);
            }
        });
    }
}

/* Otherwise what the order changes would never show. */
void the_order_hangs_on_the_seed(void **)
{
    std::string orders[2];

    for (uint64_t seed = 0; seed < 2; seed++) {
        const std::string found = simt::run(Grid{1, 8, seed}, [&] {
            orders[seed] += static_cast<char>('0' + simt::thread_index().x);
        });

        assert_true(found.empty());
        assert_int_equal(orders[seed].size(), 8);
    }
    assert_true(orders[0] != orders[1]);
}

} // namespace

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_come_out_right),
        cmocka_unit_test(shuffles_bring_each_lane_the_right_value),
        cmocka_unit_test(a_missing_barrier_is_a_race),
        cmocka_unit_test(a_barrier_before_it_is_not_enough),
        cmocka_unit_test(a_barrier_of_the_warp_is_one_for_the_warp_alone),
        cmocka_unit_test(two_threads_that_write_one_word_are_a_race),
        cmocka_unit_test(blocks_must_not_meet),
        cmocka_unit_test(barriers_that_not_all_reach_are_found),
        cmocka_unit_test(masks_that_lie_are_found),
        cmocka_unit_test(shared_memory_is_nothing_at_first_and_has_an_end),
        cmocka_unit_test(crooked_accesses_are_found),
        cmocka_unit_test(words_may_go_unwatched),
        cmocka_unit_test(many_words_are_kept_apart),
        cmocka_unit_test(the_order_hangs_on_the_seed),
    };

    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
