/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/simt/machine.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <unordered_map>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace simt
{
namespace
{

const size_t kStackBytes = 256 << 10;
const size_t kGuardBytes = 64 << 10;
const unsigned kNobody = ~0u;

enum class State { kReady, kAtBarrier, kAtWarp, kDone };

struct Thread {
    ucontext_t context;
    State state;
    int line;            /* where it waits */
    unsigned mask;       /* of a warp: with whom */
    uint64_t brought;    /* to a shuffle */
    unsigned from;       /* whose it wants */
    uint64_t result;     /* of a shuffle */
    uint64_t warp_epoch; /* barriers of its warp that it was at */
};

/* Who touched a word last. Epochs of a block never come again, so what is of
 * another one is of another block or before a barrier. */
struct Word {
    uint64_t write_epoch, write_warp_epoch;
    uint64_t read_epoch, read_warp_epoch;
    unsigned writer,
        reader;   /* of the block; reader kNobody: of several warps */
    bool several; /* threads of the reader's warp, in that epoch */
    unsigned write_block, read_block; /* plus one; kNobody: of several blocks */
    bool written;                     /* shared memory: by this block */
};

struct Machine {
    Grid grid;
    const std::function<void()> *body;
    std::vector<Thread> threads;
    std::vector<void *> stacks; /* by thread; kept */
    std::unordered_map<uintptr_t, Word> words;
    std::map<int, std::vector<uint32_t>> shared; /* of the block */
    ucontext_t scheduler;
    unsigned block, current;
    uint64_t epoch;
    uint64_t random;
    std::string fault;
#if defined(__SANITIZE_ADDRESS__)
    void *fake;
    const void *scheduler_stack;
    size_t scheduler_bytes;
#endif
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

/* ---- fibers ---- */

void *stack_of(unsigned thread)
{
    while (machine.stacks.size() <= thread) {
        char *base = static_cast<char *>(
            mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));

        if ((base == MAP_FAILED) ||
            (mprotect(base, kGuardBytes, PROT_NONE) != 0)) {
            std::perror("stack of a fiber");
            std::abort();
        }
        machine.stacks.push_back(base + kGuardBytes);
    }
    return machine.stacks[thread];
}

/* Back to the scheduler; returns when it is this thread's turn again. */
void leave(bool for_good)
{
#if defined(__SANITIZE_ADDRESS__)
    void *fake = nullptr;

    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake,
                                   machine.scheduler_stack,
                                   machine.scheduler_bytes);
#endif
    if (for_good) {
        setcontext(&machine.scheduler);
        std::abort();
    }
    swapcontext(&self().context, &machine.scheduler);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

void begin()
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &machine.scheduler_stack,
                                    &machine.scheduler_bytes);
#endif
    (*machine.body)();
    self().state = State::kDone;
    leave(true);
}

void go_on(unsigned thread)
{
    machine.current = thread;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&machine.fake, machine.stacks[thread],
                                   kStackBytes);
#endif
    swapcontext(&machine.scheduler, &self().context);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(machine.fake, nullptr, nullptr);
#endif
}

/* ---- meeting ---- */

bool is_at_barrier(const Thread &t)
{
    return t.state == State::kAtBarrier;
}

/* All are there: a new epoch. */
bool pass_barrier()
{
    for (const Thread &t : machine.threads) {
        if (!is_at_barrier(t) || (t.line != machine.threads[0].line)) {
            return false;
        }
    }
    machine.epoch++;
    for (Thread &t : machine.threads) {
        t.state = State::kReady;
        t.warp_epoch = 0;
    }
    return true;
}

/* The threads of a mask that there are. */
std::vector<unsigned> members(unsigned thread, unsigned mask)
{
    const unsigned first = thread / kWarp * kWarp;
    std::vector<unsigned> found;

    for (unsigned lane = 0; lane < kWarp; lane++) {
        if (((mask >> lane) & 1) != 0) {
            found.push_back(first + lane);
        }
    }
    return found;
}

/* The last of a warp's that came lets all go on. */
bool pass_warp(unsigned thread)
{
    const Thread &mine = machine.threads[thread];
    const std::vector<unsigned> all = members(thread, mine.mask);
    uint64_t epoch = 0;

    for (unsigned i : all) {
        if (i >= machine.threads.size()) {
            note_fault("a lane of the mask is no thread");
            return false;
        }
        const Thread &t = machine.threads[i];

        if ((t.state != State::kAtWarp) || (t.mask != mine.mask) ||
            (t.line != mine.line)) {
            return false;
        }
        epoch = (t.warp_epoch > epoch) ? t.warp_epoch : epoch;
    }
    for (unsigned i : all) {
        Thread &t = machine.threads[i];
        const unsigned from = i / kWarp * kWarp + t.from % kWarp;

        if (((mine.mask >> (t.from % kWarp)) & 1) == 0) {
            note_fault("a shuffle from a lane that is not in its mask");
            return false;
        }
        t.result = machine.threads[from].brought;
    }
    for (unsigned i : all) {
        machine.threads[i].state = State::kReady;
        machine.threads[i].warp_epoch = epoch + 1;
    }
    return true;
}

void describe_wait()
{
    unsigned n_done = 0, n_barrier = 0, n_warp = 0;
    int line = 0;

    for (const Thread &t : machine.threads) {
        n_done += (t.state == State::kDone) ? 1 : 0;
        n_barrier += is_at_barrier(t) ? 1 : 0;
        n_warp += (t.state == State::kAtWarp) ? 1 : 0;
        line = (t.state != State::kDone) ? t.line : line;
    }
    machine.fault = "block " + std::to_string(machine.block) + ", line " +
                    std::to_string(line) + ": of " +
                    std::to_string(machine.threads.size()) + " threads " +
                    std::to_string(n_barrier) +
                    " wait at barriers of the block, " +
                    std::to_string(n_warp) + " for others of their warp, " +
                    std::to_string(n_done) + " have ended";
}

/* ---- a block ---- */

/* @return kNobody: none can go on */
unsigned pick_ready()
{
    const unsigned n = static_cast<unsigned>(machine.threads.size());
    const unsigned first = static_cast<unsigned>(draw() % n);

    for (unsigned i = 0; i < n; i++) {
        if (machine.threads[(first + i) % n].state == State::kReady) {
            return (first + i) % n;
        }
    }
    return kNobody;
}

bool is_over()
{
    for (const Thread &t : machine.threads) {
        if (t.state != State::kDone) {
            return false;
        }
    }
    return true;
}

/* On its own, for getcontext() may return twice. */
void make_fiber(unsigned i)
{
    Thread *t = &machine.threads[i];

    *t = Thread();
    t->state = State::kReady;
    getcontext(&t->context);
    t->context.uc_stack.ss_sp = stack_of(i);
    t->context.uc_stack.ss_size = kStackBytes;
    t->context.uc_link = nullptr;
    makecontext(&t->context, begin, 0);
}

void run_block()
{
    machine.shared.clear();
    machine.epoch++;
    for (unsigned i = 0; i < machine.grid.threads; i++) {
        make_fiber(i);
    }
    while (machine.fault.empty() && !is_over()) {
        const unsigned next = pick_ready();

        if (next != kNobody) {
            go_on(next);
        } else if (!pass_barrier()) {
            describe_wait();
        }
        if (machine.fault.empty() &&
            (machine.threads[machine.current].state == State::kAtWarp)) {
            (void)pass_warp(machine.current);
        }
    }
}

/* ---- races ---- */

bool is_before(unsigned other, uint64_t epoch, uint64_t warp_epoch)
{
    const bool same_warp = other / kWarp == machine.current / kWarp;

    return (epoch != machine.epoch) || (other == machine.current) ||
           (same_warp && (warp_epoch < self().warp_epoch));
}

[[noreturn]] void race(const char *what, const void *p)
{
    char text[128];

    std::snprintf(text, sizeof(text), "%s at %p", what, p);
    fault(text);
}

void check_write(const Word &w, const void *p)
{
    const bool same_warp = w.reader / kWarp == machine.current / kWarp;

    if (!is_before(w.writer, w.write_epoch, w.write_warp_epoch)) {
        race("race: two threads write the same word", p);
    }
    if ((w.read_epoch == machine.epoch) &&
        ((w.reader == kNobody) || !same_warp ||
         ((w.read_warp_epoch >= self().warp_epoch) &&
          (w.several || (w.reader != machine.current))))) {
        race("race: a thread writes a word that another one reads", p);
    }
}

void note_read(Word *w)
{
    const uint64_t warp_epoch = self().warp_epoch;

    if ((w->read_epoch != machine.epoch)) {
        w->reader = machine.current;
        w->several = false;
    } else if ((w->reader == kNobody) ||
               (w->reader / kWarp != machine.current / kWarp)) {
        w->reader = kNobody;
    } else if (w->read_warp_epoch != warp_epoch) {
        w->reader = machine.current;
        w->several = false;
    } else {
        w->several = w->several || (w->reader != machine.current);
    }
    w->read_epoch = machine.epoch;
    w->read_warp_epoch = warp_epoch;
}

void check_blocks(Word *w, bool writes, const void *p)
{
    const unsigned me = machine.block + 1;

    if (((w->write_block != 0) && (w->write_block != me)) ||
        (writes && (w->read_block != 0) && (w->read_block != me))) {
        race("race: blocks share a word that one of them writes", p);
    }
    if (writes) {
        w->write_block = me;
    } else {
        w->read_block =
            ((w->read_block == 0) || (w->read_block == me)) ? me : kNobody;
    }
}

void touch_word(uintptr_t number, bool writes, Space space)
{
    const void *p = reinterpret_cast<const void *>(number * 4);
    Word &w = machine.words[number];

    if (space == Space::kGlobal) {
        check_blocks(&w, writes, p);
    } else if (!writes && !w.written) {
        race("shared memory is read before it is written", p);
    }
    if (writes) {
        check_write(w, p);
        w.writer = machine.current;
        w.write_epoch = machine.epoch;
        w.write_warp_epoch = self().warp_epoch;
        w.written = true;
        return;
    }
    if (!is_before(w.writer, w.write_epoch, w.write_warp_epoch)) {
        race("race: a thread reads a word that another one writes", p);
    }
    note_read(&w);
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
    leave(true);
    std::abort();
}

void fault_at(const char *what, uint64_t number)
{
    char text[160];

    std::snprintf(text, sizeof(text), "%s %llu", what,
                  static_cast<unsigned long long>(number));
    fault(text);
}

void touch(const void *p, size_t bytes, bool writes, Space space)
{
    const uintptr_t first = reinterpret_cast<uintptr_t>(p) / 4;
    const uintptr_t last = (reinterpret_cast<uintptr_t>(p) + bytes - 1) / 4;

    if (reinterpret_cast<uintptr_t>(p) % bytes != 0) {
        fault_at("an access that is not aligned, of bytes:", bytes);
    }
    for (uintptr_t number = first; number <= last; number++) {
        touch_word(number, writes, space);
    }
}

void sync_threads(int line)
{
    self().line = line;
    self().state = State::kAtBarrier;
    leave(false);
}

uint64_t shuffle(unsigned mask, uint64_t brought, unsigned from, int line)
{
    Thread &t = self();

    if (((mask >> (machine.current % kWarp)) & 1) == 0) {
        fault("a thread that is not in its own mask");
    }
    t.line = line;
    t.mask = mask;
    t.brought = brought;
    t.from = from;
    t.state = State::kAtWarp;
    leave(false);
    return self().result;
}

void sync_warp(unsigned mask, int line)
{
    (void)shuffle(mask, 0, machine.current % kWarp, line);
}

void *shared_memory(int number, size_t bytes)
{
    std::vector<uint32_t> &array = machine.shared[number];

    if (array.empty()) {
        array.assign((bytes + 3) / 4 + 1, 0xffffffffu);
        for (uint32_t &word : array) { /* what lay there before is another's */
            machine.words.erase(reinterpret_cast<uintptr_t>(&word) / 4);
        }
    }
    return array.data();
}

std::string run(const Grid &grid, const std::function<void()> &thread)
{
    if ((grid.blocks == 0) || (grid.threads == 0) ||
        (grid.threads > kMaxThreads)) {
        return "a grid of " + std::to_string(grid.blocks) + " blocks of " +
               std::to_string(grid.threads) + " threads";
    }
    machine.grid = grid;
    machine.body = &thread;
    machine.random = grid.seed;
    machine.fault.clear();
    machine.words.clear();
    machine.threads.resize(grid.threads);
    for (machine.block = 0;
         (machine.block < grid.blocks) && machine.fault.empty();
         machine.block++) {
        run_block();
    }
    machine.shared.clear();
    return machine.fault;
}

} // namespace simt
