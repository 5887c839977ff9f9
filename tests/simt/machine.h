/* SPDX-License-Identifier: Apache-2.0 */
/** @file machine.h
 *
 * A machine that runs kernels of a GPU on the host, one thread after the other,
 * and sees what a GPU would not say:
 *
 *  - two threads of a block that touch the same word, one of them writing, with
 *    no barrier between; two blocks that do, ever;
 *  - shared memory that is read before it was written;
 *  - a barrier, or a shuffle of a warp, that some of its threads do not reach;
 *  - an index outside a shared array.
 *
 * Each thread is a fiber. A block's run in a random order, which the seed
 * gives, and go on until they wait; races are found by what is ordered, not by
 * what happened: every word has the barrier interval (*epoch*) in which it was
 * touched last, and by whom. A barrier of the block begins a new epoch for all,
 * one of a warp for its threads among themselves. Blocks run one by one, each
 * to its end.
 *
 * One machine for each process; not for several threads of the host.
 *
 * From the environment, read once: with BATON_SIMT_RACES=0 words are not
 * watched, for runs too long for it (a whole model). Then of the list above the
 * barriers, the shuffles and the ends of arrays are left, and what is aligned.
 */
#ifndef BT_TESTS_SIMT_MACHINE_H
#define BT_TESTS_SIMT_MACHINE_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

namespace simt
{

const unsigned kWarp = 32;
const unsigned kMaxThreads = 1024; /* of a block, as every GPU has it */

struct Index {
    unsigned x, y, z;
};

struct Grid {
    unsigned blocks;
    unsigned threads; /* of each, 1 to kMaxThreads */
    uint64_t seed;    /* of the order in which threads run */
};

/** Run @a thread in every thread of the grid. After a fault nothing else runs.
 *  @return "": well; else the first fault, with where */
std::string run(const Grid &grid, const std::function<void()> &thread);

/** Whether words are watched from now on, whatever the environment says. */
void watch_words(bool on);

/* ---- for what runs in it ---- */

Index thread_index();
Index block_index();
Index block_dim();
Index grid_dim();

enum class Space { kGlobal, kShared };
enum class Access { kRead, kWrite };

/** The running thread reads or writes @a bytes at @a p. */
void touch(const void *p, size_t bytes, Access access, Space space);
/** Ends the run: "block B thread T: " and @a what. Does not return, and nothing
 *  on the stack is taken down. */
[[noreturn]] void fault(const char *what);

/** The same with a number behind it. */
[[noreturn]] void fault_at(const char *what, uint64_t number);

/** All threads of the block meet; @a line is where. */
void sync_threads(int line);
/** The threads of the warp in @a mask meet, the calling one among them. */
void sync_warp(unsigned mask, int line);
/** They meet, and each gets what lane @a from has brought. */
uint64_t shuffle(unsigned mask, uint64_t brought, unsigned from, int line);

/** The block's array of that number, the same for all its threads; every byte
 *  of it is 0xff at first. */
void *shared_memory(int number, size_t bytes);

template <typename T> T load(const T *p)
{
    touch(p, sizeof(T), Access::kRead, Space::kGlobal);
    return *p;
}

template <typename T> void store(T *p, T value)
{
    touch(p, sizeof(T), Access::kWrite, Space::kGlobal);
    *p = value;
}

template <typename T> class Shared
{
  public:
    Shared(int number, size_t n)
        : n_(n), words_(static_cast<T *>(shared_memory(number, n * sizeof(T))))
    {
    }

    T get(size_t i) const
    {
        return *at(i, Access::kRead);
    }

    void set(size_t i, T value) const
    {
        *at(i, Access::kWrite) = value;
    }

  private:
    T *at(size_t i, Access access) const
    {
        if (i >= n_) {
            fault_at("an index outside an array in shared memory:", i);
        }
        touch(words_ + i, sizeof(T), access, Space::kShared);
        return words_ + i;
    }

    size_t n_;
    T *words_;
};

template <typename T>
T shuffle_xor(unsigned mask, T value, unsigned lanes, int line)
{
    uint64_t bits = 0;
    T other;

    static_assert(sizeof(T) <= sizeof(bits), "one register or two");
    std::memcpy(&bits, &value, sizeof(value));
    bits = shuffle(mask, bits, (thread_index().x % kWarp) ^ lanes, line);
    std::memcpy(&other, &bits, sizeof(other));
    return other;
}

} // namespace simt

#endif
