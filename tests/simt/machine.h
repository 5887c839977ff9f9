/* SPDX-License-Identifier: Apache-2.0 */
/** @file machine.h
 *
 * A machine that runs kernels of a GPU on the host, one thread after the other,
 * and sees what a GPU would not say:
 *
 *  - two threads of a block that touch the same word, one of them writing, with
 *    no barrier between; two blocks that do, ever;
 *  - shared memory that is read before it was written, or before an
 *    asynchronous copy has brought what was asked for;
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
 * With BATON_SIMT_COUNT=path accesses are counted (count.h).
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
    unsigned threads;        /* of each, 1 to kMaxThreads */
    uint64_t seed;           /* of the order in which threads run */
    const char *kernel = ""; /* its name, for what is counted (count.h) */
};

/* Of the source. As an argument that is left out it is where the call is: by a
 * constructor, as gcc takes braces in a default argument for constant, which is
 * the line of the function then. */
struct Place {
    const char *file;
    int line;

    Place(const char *in_file, int on_line) : file(in_file), line(on_line)
    {
    }
};

#define BT_SIMT_HERE simt::Place(__builtin_FILE(), __builtin_LINE())

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
/* Of the same word, atomics of several threads are no race. */
enum class Access { kRead, kWrite, kAtomic };

/** The running thread reads or writes @a bytes at @a p, a multiple of them. */
void touch(const void *p, size_t bytes, Access access, Space space,
           const Place &place = BT_SIMT_HERE);

/** The same by an instruction that has looked at its addresses itself. */
void watch(const void *p, size_t bytes, Access access, Space space);

/** Are words of shared memory still to come? Then nobody may touch them. */
void await(const void *p, size_t bytes, bool to_come);
/** Ends the run: "block B thread T: " and @a what. Does not return, and nothing
 *  on the stack is taken down. */
[[noreturn]] void fault(const char *what);

/** The same with a number behind it. */
[[noreturn]] void fault_at(const char *what, uint64_t number);

/** All threads of the block meet; @a line is where. */
void sync_threads(int line);
/** The threads of the warp in @a mask meet, the calling one among them. */
void sync_warp(unsigned mask, int line);

/** A lane at an instruction of its warp. */
struct Lane {
    const void *in; /* what it brings; nullptr: it is not in the mask */
    void *out;      /* where that goes which it gets */
};

/** What an instruction does, once for all its lanes.
 *  @return nullptr: done; else what is wrong */
typedef const char *(*Instruction)(const Lane lanes[kWarp]);

/** The threads of the warp in @a mask come to it, all on the same line. It
 *  orders nothing that they do to memory. */
void together(unsigned mask, int line, Instruction what, const void *in,
              void *out);

/** The block's array of that number, the same for all its threads; every byte
 *  of it is 0xff at first. */
void *shared_memory(int number, size_t bytes);

/** Bytes from @a p to the end of its array; 0: it is in none of the block's. */
size_t room_in_shared(const void *p);

template <typename T> T load(const T *p, const Place &place = BT_SIMT_HERE)
{
    touch(p, sizeof(T), Access::kRead, Space::kGlobal, place);
    return *p;
}

template <typename T>
void store(T *p, T value, const Place &place = BT_SIMT_HERE)
{
    touch(p, sizeof(T), Access::kWrite, Space::kGlobal, place);
    *p = value;
}

template <typename T> class Shared
{
  public:
    Shared(int number, size_t n)
        : n_(n), words_(static_cast<T *>(shared_memory(number, n * sizeof(T))))
    {
    }

    T get(size_t i, const Place &place = BT_SIMT_HERE) const
    {
        T *p = address(i);

        touch(p, sizeof(T), Access::kRead, Space::kShared, place);
        return *p;
    }

    void set(size_t i, T value, const Place &place = BT_SIMT_HERE) const
    {
        T *p = address(i);

        touch(p, sizeof(T), Access::kWrite, Space::kShared, place);
        *p = value;
    }

    /** For instructions that take one. */
    T *address(size_t i) const
    {
        if (i >= n_) {
            fault_at("an index outside an array in shared memory:", i);
        }
        return words_ + i;
    }

  private:
    size_t n_;
    T *words_;
};

} // namespace simt

#endif
