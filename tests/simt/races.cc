/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/simt/races.h"

#include <memory>
#include <vector>

namespace simt
{
namespace
{

const uint16_t kNobody = 0xffff;
const uint32_t kManyBlocks = 0xffffffff;
const unsigned kPageWords = 256;

/* Epochs of a block never come again, so what is of another one is of another
 * block or before a barrier. */
struct Touch {
    uint32_t epoch, warp_epoch;
    uint16_t thread; /* kNobody: of several warps */
    bool several;    /* of the thread's warp, in that epoch of it */
};

struct Word {
    Touch write, atomic, read;
    uint32_t write_block, read_block; /* plus one; kManyBlocks: several */
    bool to_come;                     /* by an asynchronous copy */
    bool written;                     /* shared memory: by this block */
    bool plain; /* some write of the kernel was not atomic */
};

struct Page {
    Word words[kPageWords];
};

/* Open addressing; a slot of another generation is empty. */
struct Slot {
    uintptr_t number;
    uint32_t generation;
    uint32_t page;
};

class Words
{
  public:
    Words() : slots_(1024)
    {
    }

    void clear()
    {
        generation_++;
        n_used_ = 0;
        last_ = nullptr;
        if (generation_ == 0) { /* it has come round */
            slots_.assign(slots_.size(), Slot());
            generation_ = 1;
        }
    }

    Word &at(uintptr_t number)
    {
        const uintptr_t page = number / kPageWords;

        if ((last_ == nullptr) || (last_number_ != page)) {
            last_ = find(page);
            last_number_ = page;
        }
        return last_->words[number % kPageWords];
    }

  private:
    Slot &slot_of(uintptr_t number)
    {
        const size_t mask = slots_.size() - 1;
        size_t i = (number * 0x9e3779b97f4a7c15u >> 20) & mask;

        while ((slots_[i].generation == generation_) &&
               (slots_[i].number != number)) {
            i = (i + 1) & mask;
        }
        return slots_[i];
    }

    void grow()
    {
        const std::vector<Slot> old = slots_;

        slots_.assign(2 * old.size(), Slot());
        for (const Slot &slot : old) {
            if (slot.generation == generation_) {
                slot_of(slot.number) = slot;
            }
        }
    }

    Page *find(uintptr_t number)
    {
        Slot *slot = &slot_of(number);

        if (slot->generation == generation_) {
            return pages_[slot->page].get();
        }
        if (2 * n_used_ >= slots_.size()) {
            grow();
            slot = &slot_of(number);
        }
        if (n_used_ == pages_.size()) {
            pages_.push_back(std::make_unique<Page>());
        }
        *slot = Slot{number, generation_, static_cast<uint32_t>(n_used_)};
        *pages_[n_used_] = Page();
        return pages_[n_used_++].get();
    }

    std::vector<Slot> slots_; /* a power of two */
    std::vector<std::unique_ptr<Page>> pages_;
    size_t n_used_ = 0;
    uint32_t generation_ = 1;
    Page *last_ = nullptr;
    uintptr_t last_number_ = 0;
};

Words words;

/* Is all of it ordered before what the thread does now? */
bool is_before(const Touch &touch, const Moment &now)
{
    if (touch.epoch != now.epoch) {
        return true;
    }
    if ((touch.thread == kNobody) ||
        (touch.thread / kWarp != now.thread / kWarp)) {
        return false;
    }
    return (touch.warp_epoch < now.warp_epoch) ||
           (!touch.several && (touch.thread == now.thread));
}

/* One more of those that may touch it at the same time. */
void join(Touch *touch, const Moment &now)
{
    if (touch->epoch != now.epoch) {
        touch->thread = now.thread;
        touch->several = false;
    } else if ((touch->thread == kNobody) ||
               (touch->thread / kWarp != now.thread / kWarp)) {
        touch->thread = kNobody;
    } else if (touch->warp_epoch != now.warp_epoch) {
        touch->thread = now.thread;
        touch->several = false;
    } else {
        touch->several = touch->several || (touch->thread != now.thread);
    }
    touch->epoch = now.epoch;
    touch->warp_epoch = now.warp_epoch;
}

bool is_of_others(uint32_t block, uint32_t me)
{
    return (block != 0) && (block != me);
}

/* Blocks have no order at all. */
bool blocks_meet(Word *w, const Moment &now, Access access)
{
    const uint32_t me = now.block + 1;
    const bool writes = access != Access::kRead;

    if ((is_of_others(w->write_block, me) &&
         ((access != Access::kAtomic) || w->plain)) ||
        (writes && is_of_others(w->read_block, me))) {
        return true;
    }
    if (writes) {
        w->write_block = is_of_others(w->write_block, me) ? kManyBlocks : me;
    } else {
        w->read_block = is_of_others(w->read_block, me) ? kManyBlocks : me;
    }
    return false;
}

} // namespace

void races_begin()
{
    words.clear();
}

void races_forget(const void *p, size_t bytes)
{
    const uintptr_t at = reinterpret_cast<uintptr_t>(p);

    for (uintptr_t i = at / 4; i <= (at + bytes - 1) / 4; i++) {
        words.at(i) = Word();
    }
}

void races_await(const void *p, size_t bytes, bool to_come)
{
    const uintptr_t at = reinterpret_cast<uintptr_t>(p);

    for (uintptr_t i = at / 4; i <= (at + bytes - 1) / 4; i++) {
        words.at(i).to_come = to_come;
    }
}

const char *races_touch(const Moment &now, uintptr_t number, Access access,
                        Space space)
{
    const bool writes = access != Access::kRead;
    Word &w = words.at(number);

    if (w.to_come) {
        return "a touch before the asynchronous copy has come";
    }
    if ((space == Space::kGlobal) && blocks_meet(&w, now, access)) {
        return "race: blocks share a word that one of them writes";
    }
    if ((space == Space::kShared) && (access != Access::kWrite) && !w.written) {
        return "shared memory is read before it is written";
    }
    if (!is_before(w.write, now) ||
        ((access != Access::kAtomic) && !is_before(w.atomic, now))) {
        return writes ? "race: two threads write the same word"
                      : "race: a thread reads a word that another one writes";
    }
    if (!writes) {
        join(&w.read, now);
        return nullptr;
    }
    if (!is_before(w.read, now)) {
        return "race: a thread writes a word that another one reads";
    }
    if (access == Access::kAtomic) {
        join(&w.atomic, now);
    } else {
        w.write = Touch{now.epoch, now.warp_epoch, now.thread, false};
        w.plain = true;
    }
    w.written = true;
    return nullptr;
}

} // namespace simt
