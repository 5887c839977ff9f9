/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/simt/fiber.h"

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BT_SIMT_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define BT_SIMT_ASAN 1
#endif
#if defined(BT_SIMT_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if BT_SIMT_OWN_SWITCH
/* (save, top): what a call keeps is pushed, the stack's top goes to *save, and
 * what lies on the stack at top is popped. Rounding modes are everybody's. */
extern "C" __attribute__((visibility("hidden"))) void
bt_simt_switch(void **save, void *top);

#if defined(__x86_64__)
__asm__(".text\n"
        ".p2align 4\n"
        ".globl bt_simt_switch\n"
        ".hidden bt_simt_switch\n"
        ".type bt_simt_switch, @function\n"
        "bt_simt_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size bt_simt_switch, .-bt_simt_switch\n");
#else
__asm__(".text\n"
        ".p2align 4\n"
        ".globl bt_simt_switch\n"
        ".hidden bt_simt_switch\n"
        ".type bt_simt_switch, %function\n"
        "bt_simt_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x2, sp\n"
        "    str x2, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size bt_simt_switch, .-bt_simt_switch\n");
#endif
#endif

namespace simt
{
namespace
{

const size_t kStackBytes = 256 << 10;
const size_t kGuardBytes = 64 << 10;

struct Scheduler {
    Fiber fiber; /* its own, of which the stack is the host's */
    Fiber *running;
    void (*body)();
    void *fake; /* the sanitizer's, of the stack that is left */
    const void *stack;
    size_t stack_bytes;
};

Scheduler scheduler;

void *new_stack()
{
    char *base = static_cast<char *>(
        mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));

    if ((base == MAP_FAILED) || (mprotect(base, kGuardBytes, PROT_NONE) != 0)) {
        std::perror("stack of a fiber");
        std::abort();
    }
    return base + kGuardBytes;
}

void switch_to(Fiber *from, Fiber *to)
{
#if BT_SIMT_OWN_SWITCH
    bt_simt_switch(&from->top, to->top);
#else
    swapcontext(&from->context, &to->context);
#endif
}

void begin()
{
#if defined(BT_SIMT_ASAN)
    __sanitizer_finish_switch_fiber(nullptr, &scheduler.stack,
                                    &scheduler.stack_bytes);
#endif
    scheduler.body();
    std::abort();
}

} // namespace

void fiber_start(Fiber *fiber, void (*body)())
{
    scheduler.body = body;
    if (fiber->stack == nullptr) {
        fiber->stack = new_stack();
    }
#if defined(BT_SIMT_ASAN)
    /* What a fault left there was not taken down. */
    __asan_unpoison_memory_region(fiber->stack, kStackBytes);
#endif
#if BT_SIMT_OWN_SWITCH
    uintptr_t *top = reinterpret_cast<uintptr_t *>(
        static_cast<char *>(fiber->stack) + kStackBytes);

#if defined(__x86_64__)
    /* What is popped first, then where to return to, then begin()'s caller:
     * none. */
    top -= 8;
    for (int i = 0; i < 8; i++) {
        top[i] = 0;
    }
    top[6] = reinterpret_cast<uintptr_t>(&begin);
#else
    top -= 20;
    for (int i = 0; i < 20; i++) {
        top[i] = 0;
    }
    top[11] = reinterpret_cast<uintptr_t>(&begin); /* x30 */
#endif
    fiber->top = top;
#else
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = kStackBytes;
    fiber->context.uc_link = nullptr;
    makecontext(&fiber->context, begin, 0);
#endif
}

void fiber_go_on(Fiber *fiber)
{
    scheduler.running = fiber;
#if defined(BT_SIMT_ASAN)
    __sanitizer_start_switch_fiber(&scheduler.fake, fiber->stack, kStackBytes);
#endif
    switch_to(&scheduler.fiber, fiber);
#if defined(BT_SIMT_ASAN)
    __sanitizer_finish_switch_fiber(scheduler.fake, nullptr, nullptr);
#endif
}

void fiber_leave(bool for_good)
{
#if defined(BT_SIMT_ASAN)
    void *fake = nullptr;

    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake, scheduler.stack,
                                   scheduler.stack_bytes);
#endif
    switch_to(scheduler.running, &scheduler.fiber);
    if (for_good) {
        std::abort();
    }
#if defined(BT_SIMT_ASAN)
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

} // namespace simt
