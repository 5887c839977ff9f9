/* SPDX-License-Identifier: Apache-2.0 */
/* Copies behind a thread's back: what must wait for them, and does not. */
#include <cstdio>
#include <string>
#include <vector>

#include "tests/simt/cuda_runtime.h"
#include "tests/simt/test_expect.h"

namespace
{

const char *const kTooEarly = "a touch before the asynchronous copy has come";

std::vector<uint4> some_words(unsigned n)
{
    std::vector<uint4> words(n);

    for (unsigned i = 0; i < n; i++) {
        words[i] = make_uint4(4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3);
    }
    return words;
}

/* Tiles by turns into two rooms, one ahead, as a kernel would: what comes out
 * is each tile turned round. */
enum Missing { kNothing, kWait, kWaitForAll, kBarrier, kBarrierBehind };

void pipeline(const uint4 *in, unsigned n_tiles, Missing missing, uint4 *out)
{
    BT_SHARED(uint4, rooms, 2 * 64);
    const unsigned t = threadIdx.x;

    bt_copy_async<16>(rooms.address(t), in + t);
    bt_copy_commit();
    for (unsigned tile = 0; tile < n_tiles; tile++) {
        if (tile + 1 < n_tiles) {
            bt_copy_async<16>(rooms.address((tile + 1) % 2 * 64 + t),
                              in + (tile + 1) * 64 + t);
        }
        bt_copy_commit();
        if (missing == kWaitForAll) {
            bt_copy_wait<2>();
        } else if (missing != kWait) {
            bt_copy_wait<1>();
        }
        if (missing != kBarrier) {
            BT_SYNC();
        }
        bt_store(out + tile * 64 + t, rooms.get(tile % 2 * 64 + 63 - t));
        if (missing != kBarrierBehind) {
            BT_SYNC();
        }
    }
}

void tiles_come_one_ahead(void **)
{
    const unsigned n_tiles = 5;
    const std::vector<uint4> in = some_words(n_tiles * 64);
    std::vector<uint4> out(n_tiles * 64);

    expect(nullptr, 1, 64,
           [&] { pipeline(in.data(), n_tiles, kNothing, out.data()); });
    for (unsigned i = 0; i < n_tiles * 64; i++) {
        assert_int_equal(out[i].z, 4 * (i / 64 * 64 + 63 - i % 64) + 2);
    }
    expect(kTooEarly, 1, 64,
           [&] { pipeline(in.data(), n_tiles, kWait, out.data()); });
    expect(kTooEarly, 1, 64,
           [&] { pipeline(in.data(), n_tiles, kWaitForAll, out.data()); });
    /* Another's have come or not, when nobody has waited for it. */
    for (uint64_t seed = 0; seed < kSeeds; seed++) {
        const std::string found = simt::run(simt::Grid{1, 64, seed}, [&] {
            pipeline(in.data(), n_tiles, kBarrier, out.data());
        });

        assert_true((found.find("race: ") != std::string::npos) ||
                    (found.find("before") != std::string::npos));
    }
    /* A room is filled while others still read it. */
    for (uint64_t seed = 0; seed < kSeeds; seed++) {
        const std::string found = simt::run(simt::Grid{1, 64, seed}, [&] {
            pipeline(in.data(), n_tiles, kBarrierBehind, out.data());
        });

        assert_true((found.find("race: ") != std::string::npos) ||
                    (found.find(kTooEarly) != std::string::npos));
    }
}

void what_has_come_is_others_behind_a_barrier_alone(void **)
{
    const std::vector<uint4> in = some_words(32);

    for (int barrier = 0; barrier < 2; barrier++) {
        for (uint64_t seed = 0; seed < kSeeds; seed++) {
            const std::string found = simt::run(simt::Grid{1, 2, seed}, [&] {
                BT_SHARED(uint4, room, 1);

                if (threadIdx.x == 0) {
                    bt_copy_async<16>(room.address(0), in.data());
                    bt_copy_commit();
                    bt_copy_wait<0>();
                    (void)room.get(0); /* its own: at once */
                }
                if (barrier != 0) {
                    BT_SYNC();
                }
                (void)room.get(0);
            });

            /* Read after it came, or before anybody wrote it. */
            assert_true(
                (barrier != 0)
                    ? found.empty()
                    : (found.find("race: ") != std::string::npos) ||
                          (found.find("before it is") != std::string::npos));
        }
    }
}

/* Between the asking and the wait; another thread reads too early, or comes
 * behind the wait but not behind a barrier after it. */
void a_barrier_before_the_wait_is_not_enough(void **)
{
    std::vector<uint4> in = some_words(1);

    for (unsigned what = 0; what < 2; what++) {
        for (uint64_t seed = 0; seed < kSeeds; seed++) {
            const std::string found = simt::run(simt::Grid{1, 2, seed}, [&] {
                BT_SHARED(uint4, room, 1);

                if (threadIdx.x == 0) {
                    bt_copy_async<16>(room.address(0), in.data());
                    bt_copy_commit();
                }
                BT_SYNC();
                if (threadIdx.x == 0) {
                    bt_copy_wait<0>();
                } else if (what == 0) {
                    (void)room.get(0);
                } else {
                    bt_store(in.data(),
                             make_uint4(static_cast<unsigned>(seed), 9, 9, 9));
                }
            });

            assert_true((found.find("race: ") != std::string::npos) ||
                        (found.find(kTooEarly) != std::string::npos) ||
                        (found.find("changed") != std::string::npos));
        }
    }
}

void what_is_not_committed_does_not_come(void **)
{
    const std::vector<uint4> in = some_words(32);

    for (int committed = 0; committed < 2; committed++) {
        expect((committed != 0) ? nullptr : kTooEarly, 1, 32, [&] {
            BT_SHARED(uint4, room, 32);

            bt_copy_async<16>(room.address(threadIdx.x), &in[threadIdx.x]);
            if (committed != 0) {
                bt_copy_commit();
            }
            bt_copy_wait<0>();
            (void)room.get(threadIdx.x);
        });
    }
}

void a_thread_waits_for_all_before_it_ends(void **)
{
    const std::vector<uint4> in = some_words(1);

    expect("a thread ends before its asynchronous copies have come", 1, 1, [&] {
        BT_SHARED(uint4, room, 1);

        bt_copy_async<16>(room.address(0), in.data());
        bt_copy_commit();
    });
}

/* A barrier is not a wait. */
void rooms_that_are_to_be_filled_are_nobodys(void **)
{
    const std::vector<uint4> in = some_words(32);

    for (int act = 0; act < 3; act++) {
        expect(kTooEarly, 1, 32, [&, act] {
            BT_SHARED(uint4, room, 32);
            const unsigned t = threadIdx.x;

            bt_copy_async<16>(room.address(t), &in[t]);
            bt_copy_commit();
            BT_SYNC();
            if (act == 0) {
                (void)room.get(31 - t);
            } else if (act == 1) {
                room.set(t, make_uint4(0, 0, 0, 0));
            } else {
                bt_copy_async<16>(room.address(t), &in[31 - t]);
            }
            bt_copy_wait<0>();
        });
    }
    expect("race: ", 1, 32, [&] { /* two that fill the same one */
                                  BT_SHARED(uint4, room, 1);

                                  bt_copy_async<16>(room.address(0), &in[0]);
                                  bt_copy_commit();
                                  bt_copy_wait<0>();
    });
}

void what_is_to_be_copied_may_not_change(void **)
{
    std::vector<uint4> in = some_words(64);

    expect("has changed under it", 1, 32, [&] {
        BT_SHARED(uint4, room, 32);
        const unsigned t = threadIdx.x;

        bt_copy_async<16>(room.address(t), &in[t]);
        bt_copy_commit();
        bt_store(&in[t], make_uint4(bt_load(&in[t]).x + 1, 0, 0, 0));
        bt_copy_wait<0>();
    });
    expect("race: ", 1, 32, [&] {
        BT_SHARED(uint4, room, 32);
        const unsigned t = threadIdx.x;

        bt_copy_async<16>(room.address(t), &in[t]);
        bt_copy_commit();
        bt_store(&in[31 - t], make_uint4(t, 0, 0, 0));
        bt_copy_wait<0>();
    });
}

void short_copies_end_in_zeros(void **)
{
    std::vector<uint4> in = some_words(32);
    std::vector<uint4> out(32);

    expect(nullptr, 1, 32, [&] {
        BT_SHARED(uint4, room, 32);
        const unsigned t = threadIdx.x;

        bt_copy_async<16>(room.address(t), &in[t], t % 17);
        bt_copy_commit();
        bt_copy_wait<0>();
        bt_store(&out[t], room.get(t));
    });
    for (unsigned t = 0; t < 32; t++) {
        uint4 want = make_uint4(0, 0, 0, 0);

        std::memcpy(&want, &in[t], t % 17);
        assert_memory_equal(&out[t], &want, sizeof(want));
    }
}

void copies_have_a_size_and_a_place(void **)
{
    const std::vector<uint4> in = some_words(4);
    alignas(16) static uint32_t global[8];

    expect("an asynchronous copy that is not aligned, of bytes: 16", 1, 1, [&] {
        BT_SHARED(uint4, room, 1);

        bt_copy_async<16>(room.address(0), &in[0].y);
    });
    expect("an asynchronous copy that is not aligned, of bytes: 8", 1, 1, [&] {
        BT_SHARED(uint32_t, room, 4);

        bt_copy_async<8>(room.address(1), &in[0]);
    });
    expect("not from global to shared memory", 1, 1,
           [&] { bt_copy_async<4>(global, &in[0]); });
    expect("not from global to shared memory", 1, 1, [&] {
        BT_SHARED(uint32_t, room, 6); /* ends in the middle of it */

        bt_copy_async<16>(room.address(4), &in[0]);
    });
    expect(nullptr, 1, 1, [&] {
        BT_SHARED(uint32_t, room, 4);

        bt_copy_async<4>(room.address(0), &in[0].w);
        bt_copy_async<8>(room.address(2), &in[1].z);
        bt_copy_commit();
        bt_copy_wait<0>();
        if ((room.get(0) != 3) || (room.get(2) != 6) || (room.get(3) != 7)) {
            simt::fault("other words have come");
        }
    });
}

/* Even where words are not watched: what is read too early is nothing. */
void bytes_come_no_sooner_than_the_wait(void **)
{
    const std::vector<uint4> in = some_words(32);
    std::vector<uint4> early(32), late(32);

    simt::watch_words(false);
    expect(nullptr, 1, 32, [&] {
        BT_SHARED(uint4, room, 32);
        const unsigned t = threadIdx.x;

        room.set(t, make_uint4(1, 2, 3, 4));
        bt_copy_async<16>(room.address(t), &in[t]);
        bt_copy_commit();
        bt_store(&early[t], room.get(t));
        bt_copy_wait<0>();
        bt_store(&late[t], room.get(t));
    });
    simt::watch_words(true);
    for (unsigned t = 0; t < 32; t++) {
        assert_int_equal(early[t].x, 0xffffffffu);
        assert_int_equal(late[t].x, 4 * t);
    }
}

} // namespace

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_come_one_ahead),
        cmocka_unit_test(what_has_come_is_others_behind_a_barrier_alone),
        cmocka_unit_test(a_barrier_before_the_wait_is_not_enough),
        cmocka_unit_test(what_is_not_committed_does_not_come),
        cmocka_unit_test(a_thread_waits_for_all_before_it_ends),
        cmocka_unit_test(rooms_that_are_to_be_filled_are_nobodys),
        cmocka_unit_test(what_is_to_be_copied_may_not_change),
        cmocka_unit_test(short_copies_end_in_zeros),
        cmocka_unit_test(copies_have_a_size_and_a_place),
        cmocka_unit_test(bytes_come_no_sooner_than_the_wait),
    };

    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
