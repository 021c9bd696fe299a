# SPDX-License-Identifier: MIT OR Apache-2.0
# The first instructions of all CPUs: from 32 bits (PVH) or 16 bits (another CPU's start-up) to the kernel's own
# addresses. Physical memory that is named here is its own address, for the boot part is linked where it lies.

.section .note.pvh, "a", @note
.align 4
.long 4, 4, 18              # sizes of name and value; XEN_ELFNOTE_PHYS32_ENTRY
.asciz "Xen"
.long start32

.section .boot, "awx", @progbits
.code32
.global start32
start32:
    cld
    mov esi, ebx            # hvm_start_info; kept until Rust
    # the first GiB, 2 MiB pages: present, writable, large, global, not executable
    mov edi, offset boot_low
    mov eax, 0x183
    mov edx, 0x80000000
    call fill
    # the fourth GiB: devices, not cached
    mov edi, offset boot_devices
    mov eax, 0xc0000193
    call fill
    # code can be executed: that of the start, for as long as it runs, and the kernel's, which cannot be written
    mov [boot_low + 4], ecx
    mov [boot_low + 12], ecx
    mov dword ptr [boot_low + 8], 0x200181
    # the direct map; kernel addresses, which are in the last 2 GiB, are one more name of the first GiB
    mov eax, offset boot_low + 3
    mov [boot_direct], eax
    mov [boot_direct + 510*8], eax
    mov eax, offset boot_devices + 3
    mov [boot_direct + 3*8], eax
    # the first GiB at its own address until the kernel runs, the direct map without execution, the kernel
    mov eax, offset boot_direct + 3
    mov [kernel_pml4], eax
    mov [kernel_pml4 + 511*8], eax
    mov [kernel_pml4 + 256*8], eax
    mov [kernel_pml4 + 256*8 + 4], edx
    mov ebp, 0              # CPU 0
    jmp long_mode

fill:                       # 512 entries at edi from edx:eax, each 2 MiB further; ecx is 0 then
    mov ecx, 512
1:  mov [edi], eax
    mov [edi + 4], edx
    add edi, 8
    add eax, 0x200000
    dec ecx
    jnz 1b
    ret

# All CPUs: ebp is the number of this one.
long_mode:
    mov eax, offset kernel_pml4
    mov cr3, eax
    mov eax, cr4
    or eax, 0x620           # PAE, OSFXSR, OSXMMEXCPT; global pages come with the first process
    mov cr4, eax
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x901           # SCE, LME, NXE
    wrmsr
    mov eax, 0x80010023     # PG, WP, NE, MP, PE
    mov cr0, eax
    lgdt [boot_gdtr]
    .byte 0xea              # far jump
    .long start64
    .word 0x10
.code64
start64:
    xor eax, eax
    .irp segment, ds, es, ss, fs, gs
    mov \segment, eax
    .endr
    mov edi, ebp
    shl rbp, {stack_shift}
    mov rsp, offset STACKS + {stack}
    add rsp, rbp
    xor ebp, ebp
    mov rax, offset kernel_start
    call rax                # (cpu, start info)
    ud2

# Where the other CPUs start, in 16 bits: copied to a page below 1 MiB.
.code16
.global trampoline
trampoline:
    cli
    xor ax, ax
    mov ds, ax
    .byte 0x0f, 0x01, 0x16      # lgdt, where the copy has it
    .word {trampoline} + trampoline_gdtr - trampoline
    mov eax, cr0
    or al, 1
    mov cr0, eax
    .byte 0x66, 0xea
    .long trampoline32
    .word 0x08
.align 4
trampoline_gdtr:
    .word 31
    .long boot_gdt
.global trampoline_end
trampoline_end:
.code32
trampoline32:
    mov ax, 0x18
    mov ds, ax
    mov es, ax
    mov ss, ax
    cld
    # the addresses of the start are there only for a CPU that the first one waits for: who is late stays here
    xor eax, eax
    mov ecx, {arrived}
    lock cmpxchg [started_cpu], ecx
    jnz late
    mov ebp, [started_number]
    jmp long_mode
late:
    cli
    hlt
    jmp late

.align 4
.global started_cpu
started_cpu:
    .long 0                     # smp.rs: awaited, arrived, or too late
.global started_number
started_number:
    .long 0                     # of the CPU that is started

.align 8
boot_gdt:
    .quad 0
    .quad 0x00cf9a000000ffff    # 0x08: code of 32 bits
    .quad 0x00209a0000000000    # 0x10: code of 64 bits
    .quad 0x00cf92000000ffff    # 0x18: data
boot_gdtr:
    .word 31
    .long boot_gdt

.section .boot.bss, "aw", @nobits
.align 4096
.global kernel_pml4
kernel_pml4:  .skip 4096
boot_direct:  .skip 4096
.global boot_low
boot_low:     .skip 4096
boot_devices: .skip 4096
.code64
