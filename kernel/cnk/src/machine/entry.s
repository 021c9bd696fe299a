# SPDX-License-Identifier: MIT OR Apache-2.0
# Ways into the kernel and out of it. The user's registers are saved as a `Context` (context.rs) at the top of the
# CPU's stack; the kernel uses no floating point, but the prebuilt `core` moves data through xmm registers, so these
# are saved too. Which CPU it is follows from the stack, or from which copy of the entry was taken: no swapgs.

.macro PUSH_REGISTERS
    .irp register, rdi, rsi, rdx, rcx, rax, r8, r9, r10, r11, rbx, rbp, r12, r13, r14, r15
    push \register
    .endr
    sub rsp, 256
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    movaps [rsp + 16 * \n], xmm\n
    .endr
.endm

.macro POP_REGISTERS
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    movaps xmm\n, [rsp + 16 * \n]
    .endr
    add rsp, 256
    .irp register, r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi
    pop \register
    .endr
.endm

.code64
.section .text.entry, "ax", @progbits

# SYSCALL: rax is the call, rcx the user's rip, r11 the flags; interrupts are masked. Who one is (getpid and the like)
# is answered from the CPU's table at once: a word whose upper half is zero.
.macro SYSCALL_ENTRY cpu
.align 64
.global syscall_entry_\cpu
syscall_entry_\cpu:
    cmp rax, {quick_len}
    jae 1f
    cmp dword ptr [AREAS + \cpu * {area} + {quick} + 4 + rax * 8], 0
    jne 1f
    mov eax, dword ptr [AREAS + \cpu * {area} + {quick} + rax * 8]
    inc qword ptr [AREAS + \cpu * {area} + {local_calls}]
    sysretq
1:  mov [AREAS + \cpu * {area} + {user_rsp}], rsp
    mov rsp, offset STACKS + (\cpu + 1) * {stack}
    push {user_ss}
    push qword ptr [AREAS + \cpu * {area} + {user_rsp}]
    push r11
    push {user_cs}
    push rcx
    push 0
    push rax
    PUSH_REGISTERS
    mov edi, \cpu
    jmp syscall_common
.endm
SYSCALL_ENTRY 0
SYSCALL_ENTRY 1
SYSCALL_ENTRY 2
SYSCALL_ENTRY 3

syscall_common:
    mov rsi, rsp
    call syscall_dispatch       # (cpu, context): whether rcx and r11 must be as they are in the context
    test al, al
    jnz leave_by_iret
    POP_REGISTERS
    add rsp, 16
    pop rcx
    add rsp, 8
    pop r11
    pop rsp
    sysretq

leave_by_iret:
    POP_REGISTERS
    add rsp, 16
    iretq

# (context): to the user, with these registers
.global enter_user
enter_user:
    mov rsp, rdi
    jmp leave_by_iret

# (cpu): back to what the CPU does between processes; whatever is on its stack is forgotten
.global leave_process
leave_process:
    lea rax, [rdi + 1]
    shl rax, {stack_shift}
    mov rsp, offset STACKS
    add rsp, rax
    xor ebp, ebp
    call cpu_loop
    ud2

# Exceptions and interrupts. Those whose processor pushes no error code push a zero.
.altmacro
.macro TRAP n
    .align 16
    .if (\n == 8) || (\n >= 10 && \n <= 14) || (\n == 17) || (\n == 21) || (\n == 29) || (\n == 30)
    .else
    push 0
    .endif
    push \n
    jmp trap_common
.endm
.align 16
.global trap_stubs
trap_stubs:
.set i, 0
.rept {stubs}
    TRAP %i
    .set i, i + 1
.endr

trap_common:
    PUSH_REGISTERS
    push 2                      # no direction, no alignment checks, whatever the user has set
    popfq
    mov rsi, rsp
    mov rdi, rsp
    sub rdi, offset STACKS
    shr rdi, {stack_shift}
    call trap_dispatch          # (cpu, context)
    jmp leave_by_iret

# (area, features, xmm0–15): saves the extended state, of which the kernel has these registers elsewhere.
.global save_state
save_state:
    .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    movaps xmm\n, [rdx + 16 * \n]
    .endr
    mov eax, esi
    xor edx, edx
    test eax, eax
    jz 1f
    xsave64 [rdi]
    ret
1:  fxsave64 [rdi]
    ret

# (area, features, xmm0–15): restores the extended state from memory that the user may have written. rax is 0 if that is no
# state that the processor takes: the fault comes at `restore_at` and goes on at `restore_refused`.
.global restore_state
restore_state:
    mov r8, rdx
    mov eax, esi
    xor edx, edx
    test eax, eax
    jz restore_legacy_at
    .global restore_at
restore_at:
    xrstor64 [rdi]
    jmp 1f
    .global restore_legacy_at
restore_legacy_at:
    fxrstor64 [rdi]
1:  .irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    movaps [r8 + 16 * \n], xmm\n
    .endr
    mov eax, 1
    ret
.global restore_refused
restore_refused:
    xor eax, eax
    ret

# What the compiler calls. 64 bytes a round through general registers: an emulator runs `rep movsb` at about 30 MB/s.
.section .text.mem, "ax", @progbits
.global memcpy
memcpy:
    mov rax, rdi
    mov rcx, rdx
    shr rcx, 6
    jz 2f
1:  .irp at, 0, 8, 16, 24, 32, 40, 48, 56
    mov r8, [rsi + \at]
    mov [rdi + \at], r8
    .endr
    add rsi, 64
    add rdi, 64
    dec rcx
    jnz 1b
2:  and edx, 63
    mov ecx, edx
    shr ecx, 3
    jz 4f
3:  mov r8, [rsi]
    mov [rdi], r8
    add rsi, 8
    add rdi, 8
    dec ecx
    jnz 3b
4:  and edx, 7
    jz 6f
5:  mov r8b, [rsi]
    mov [rdi], r8b
    inc rsi
    inc rdi
    dec edx
    jnz 5b
6:  ret

.global memmove
memmove:
    mov rax, rdi
    sub rax, rsi
    cmp rax, rdx                # a destination before the source, or behind its end, may be copied upwards
    jae memcpy
    mov rax, rdi
1:  cmp rdx, 8
    jb 2f
    mov r8, [rsi + rdx - 8]
    mov [rdi + rdx - 8], r8
    sub rdx, 8
    jmp 1b
2:  test rdx, rdx
    jz 3f
    mov r8b, [rsi + rdx - 1]
    mov [rdi + rdx - 1], r8b
    dec rdx
    jmp 2b
3:  ret

.global memset
memset:
    mov r8, rdi
    movzx eax, sil
    mov r9, 0x0101010101010101
    imul rax, r9
    mov rcx, rdx
    shr rcx, 6
    jz 2f
1:  .irp at, 0, 8, 16, 24, 32, 40, 48, 56
    mov [rdi + \at], rax
    .endr
    add rdi, 64
    dec rcx
    jnz 1b
2:  and edx, 63
    jz 4f
3:  mov [rdi], al
    inc rdi
    dec edx
    jnz 3b
4:  mov rax, r8
    ret

.global bcmp
bcmp:
.global memcmp
memcmp:
    xor eax, eax
    xor ecx, ecx
1:  cmp rcx, rdx
    je 2f
    movzx eax, byte ptr [rdi + rcx]
    movzx r8d, byte ptr [rsi + rcx]
    inc rcx
    sub eax, r8d
    je 1b
2:  ret
