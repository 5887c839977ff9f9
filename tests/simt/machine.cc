/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/simt/machine.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <vector>

#include "tests/simt/async.h"
#include "tests/simt/count.h"
#include "tests/simt/fiber.h"
#include "tests/simt/races.h"

namespace simt
{
namespace
{

const size_t kLine = 128; /* bytes; shared arrays begin where one does */

enum class State { kReady, kAtBarrier, kAtWarp, kDone };

struct Thread {
    Fiber fiber;
    State state;
    int line;            /* where it waits */
    unsigned mask;       /* of a warp: with whom */
    Instruction what;    /* for what; nullptr: a barrier of the warp */
    Lane lane;           /* at it */
    uint32_t warp_epoch; /* barriers of its warp that it was at */
};

struct alignas(kLine) Line {
    uint32_t words[kLine / 4];
};

struct Array {
    size_t bytes;
    std::vector<Line> lines;
};

struct Machine {
    Grid grid;
    const std::function<void()> *body;
    std::vector<Thread> threads; /* of any grid so far; its own come first */
    std::vector<unsigned> ready; /* in any order */
    unsigned n_done;
    std::map<int, Array> shared; /* of the block */
    unsigned block, current;
    uint32_t epoch; /* of the kernel, from 1 */
    uint64_t random;
    std::string fault;
    bool watches;
    bool knows; /* whether to watch */
};

Machine machine;

/* splitmix64 (Steele, Lea, Flood) */
uint64_t draw()
{
    uint64_t z = (machine.random += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

Thread &self()
{
    return machine.threads[machine.current];
}

void note_fault(const char *what)
{
    char text[256];

    std::snprintf(text, sizeof(text), "block %u thread %u: %s", machine.block,
                  machine.current, what);
    machine.fault = text;
}

/* ---- meeting ---- */

/* Until somebody makes it ready again. */
void wait_as(State state, int line)
{
    self().line = line;
    self().state = state;
    fiber_leave(false);
}

void make_ready(unsigned thread)
{
    machine.threads[thread].state = State::kReady;
    machine.ready.push_back(thread);
}

/* All are there: a new epoch. */
bool pass_barrier()
{
    for (unsigned i = 0; i < machine.grid.threads; i++) {
        const Thread &t = machine.threads[i];

        if ((t.state != State::kAtBarrier) ||
            (t.line != machine.threads[0].line)) {
            return false;
        }
    }
    machine.epoch++;
    count_epoch(true);
    for (unsigned i = 0; i < machine.grid.threads; i++) {
        machine.threads[i].warp_epoch = 0;
        make_ready(i);
    }
    return true;
}

bool is_in(unsigned mask, unsigned lane)
{
    return ((mask >> lane) & 1) != 0;
}

/* Does thread @a i wait for the same as @a mine? */
bool waits_with(unsigned i, const Thread &mine)
{
    const Thread &t = machine.threads[i];

    return (t.state == State::kAtWarp) && (t.mask == mine.mask) &&
           (t.line == mine.line) && (t.what == mine.what);
}

/* A barrier of the warp: a new epoch for those in it. */
void begin_warp_epoch(unsigned first, unsigned mask)
{
    uint32_t epoch = 0;

    for (unsigned lane = 0; lane < kWarp; lane++) {
        if (is_in(mask, lane)) {
            const uint32_t its = machine.threads[first + lane].warp_epoch;

            epoch = (its > epoch) ? its : epoch;
        }
    }
    for (unsigned lane = 0; lane < kWarp; lane++) {
        if (is_in(mask, lane)) {
            machine.threads[first + lane].warp_epoch = epoch + 1;
        }
    }
}

/* The last of a warp's that came lets all go on. */
void pass_warp(unsigned thread)
{
    const Thread &mine = machine.threads[thread];
    const unsigned first = thread / kWarp * kWarp;
    const char *wrong = nullptr;

    for (unsigned lane = 0; lane < kWarp; lane++) {
        if (!is_in(mine.mask, lane)) {
            continue;
        }
        if (first + lane >= machine.grid.threads) {
            note_fault("a lane of the mask is no thread");
            return;
        }
        if (!waits_with(first + lane, mine)) {
            return;
        }
    }
    if (mine.what == nullptr) {
        begin_warp_epoch(first, mine.mask);
    } else {
        Lane lanes[kWarp] = {};

        for (unsigned lane = 0; lane < kWarp; lane++) {
            if (is_in(mine.mask, lane)) {
                lanes[lane] = machine.threads[first + lane].lane;
            }
        }
        wrong = mine.what(lanes);
    }
    if (wrong != nullptr) {
        note_fault(wrong);
        return;
    }
    for (unsigned lane = 0; lane < kWarp; lane++) {
        if (is_in(mine.mask, lane)) {
            make_ready(first + lane);
        }
    }
}

void describe_wait()
{
    unsigned n_done = 0, n_barrier = 0, n_warp = 0;
    int line = 0;

    for (unsigned i = 0; i < machine.grid.threads; i++) {
        const Thread &t = machine.threads[i];

        n_done += (t.state == State::kDone) ? 1 : 0;
        n_barrier += (t.state == State::kAtBarrier) ? 1 : 0;
        n_warp += (t.state == State::kAtWarp) ? 1 : 0;
        line = (t.state != State::kDone) ? t.line : line;
    }
    machine.fault =
        "block " + std::to_string(machine.block) + ", line " +
        std::to_string(line) + ": of " + std::to_string(machine.grid.threads) +
        " threads " + std::to_string(n_barrier) +
        " wait at barriers of the block, " + std::to_string(n_warp) +
        " for others of their warp, " + std::to_string(n_done) + " have ended";
}

/* ---- a block ---- */

void live()
{
    (*machine.body)();
    copies_end();
    self().state = State::kDone;
    fiber_leave(true);
}

/* One of those that can go on. */
unsigned pick_ready()
{
    const size_t at = draw() % machine.ready.size();
    const unsigned picked = machine.ready[at];

    machine.ready[at] = machine.ready.back();
    machine.ready.pop_back();
    return picked;
}

void go_on(unsigned thread)
{
    Thread &t = machine.threads[thread];

    machine.current = thread;
    fiber_go_on(&t.fiber);
    if (!machine.fault.empty()) {
        return;
    }
    if (t.state == State::kAtWarp) {
        pass_warp(thread);
    }
    machine.n_done += (t.state == State::kDone) ? 1 : 0;
}

void run_block()
{
    machine.shared.clear();
    machine.epoch++;
    machine.n_done = 0;
    machine.ready.clear();
    copies_begin(machine.grid.threads);
    for (unsigned i = 0; i < machine.grid.threads; i++) {
        Thread &t = machine.threads[i];
        const Fiber fiber = t.fiber;

        t = Thread();
        t.fiber = fiber;
        fiber_start(&t.fiber, live);
        make_ready(i);
    }
    while (machine.fault.empty() && (machine.n_done < machine.grid.threads)) {
        if (!machine.ready.empty()) {
            go_on(pick_ready());
        } else if (!pass_barrier()) {
            describe_wait();
        }
    }
    count_epoch(false);
}

Moment now()
{
    return Moment{machine.block, machine.epoch, self().warp_epoch,
                  static_cast<uint16_t>(machine.current)};
}

} // namespace

/* ---- for what runs in it ---- */

Index thread_index()
{
    return Index{machine.current, 0, 0};
}

Index block_index()
{
    return Index{machine.block, 0, 0};
}

Index block_dim()
{
    return Index{machine.grid.threads, 1, 1};
}

Index grid_dim()
{
    return Index{machine.grid.blocks, 1, 1};
}

void fault(const char *what)
{
    note_fault(what);
    self().state = State::kDone;
    fiber_leave(true);
    std::abort();
}

void fault_at(const char *what, uint64_t number)
{
    char text[160];

    std::snprintf(text, sizeof(text), "%s %llu", what,
                  static_cast<unsigned long long>(number));
    fault(text);
}

void touch(const void *p, size_t bytes, Access access, Space space,
           const Place &place)
{
    if (reinterpret_cast<uintptr_t>(p) % bytes != 0) {
        fault_at("an access that is not aligned, of bytes:", bytes);
    }
    count_access(p, bytes, access, space, place);
    watch(p, bytes, access, space);
}

void watch(const void *p, size_t bytes, Access access, Space space)
{
    const uintptr_t at = reinterpret_cast<uintptr_t>(p);

    for (uintptr_t i = at / 4; machine.watches && (i <= (at + bytes - 1) / 4);
         i++) {
        const char *wrong = races_touch(now(), i, access, space);

        if (wrong != nullptr) {
            char text[128];

            std::snprintf(text, sizeof(text), "%s at %p", wrong,
                          reinterpret_cast<const void *>(i * 4));
            fault(text);
        }
    }
}

void await(const void *p, size_t bytes, bool to_come)
{
    if (machine.watches) {
        races_await(p, bytes, to_come);
    }
}

void sync_threads(int line)
{
    wait_as(State::kAtBarrier, line);
}

void together(unsigned mask, int line, Instruction what, const void *in,
              void *out)
{
    Thread &t = self();

    if (!is_in(mask, machine.current % kWarp)) {
        fault("a thread that is not in its own mask");
    }
    t.mask = mask;
    t.what = what;
    t.lane = Lane{in, out};
    wait_as(State::kAtWarp, line);
}

void sync_warp(unsigned mask, int line)
{
    together(mask, line, nullptr, nullptr, nullptr);
}

void *shared_memory(int number, size_t bytes)
{
    Array &array = machine.shared[number];
    std::vector<Line> &lines = array.lines;

    if (lines.empty()) {
        array.bytes = bytes;
        lines.resize(bytes / kLine + 1);
        std::memset(static_cast<void *>(lines.data()), 0xff,
                    lines.size() * kLine);
        if (machine.watches) {
            races_forget(lines.data(), lines.size() * kLine);
        }
    }
    return lines.data();
}

size_t room_in_shared(const void *p)
{
    const uintptr_t at = reinterpret_cast<uintptr_t>(p);

    for (const auto &entry : machine.shared) {
        const Array &array = entry.second;
        const uintptr_t first = reinterpret_cast<uintptr_t>(array.lines.data());

        if ((at >= first) && (at - first < array.bytes)) {
            return array.bytes - (at - first);
        }
    }
    return 0;
}

void watch_words(bool on)
{
    machine.watches = on;
    machine.knows = true;
}

std::string run(const Grid &grid, const std::function<void()> &thread)
{
    if ((grid.blocks == 0) || (grid.threads == 0) ||
        (grid.threads > kMaxThreads)) {
        return "a grid of " + std::to_string(grid.blocks) + " blocks of " +
               std::to_string(grid.threads) + " threads";
    }
    if (!machine.knows) {
        const char *text = std::getenv("BATON_SIMT_RACES");

        watch_words((text == nullptr) || (std::strcmp(text, "0") != 0));
    }
    machine.grid = grid;
    machine.body = &thread;
    machine.random = grid.seed;
    machine.fault.clear();
    machine.epoch = 0;
    races_begin();
    count_launch(grid);
    if (machine.threads.size() < grid.threads) {
        machine.threads.resize(grid.threads);
    }
    for (machine.block = 0;
         (machine.block < grid.blocks) && machine.fault.empty();
         machine.block++) {
        run_block();
    }
    machine.shared.clear();
    count_launch_end(machine.fault.empty());
    return machine.fault;
}

} // namespace simt
