// SPDX-License-Identifier: MIT OR Apache-2.0
//! Physical memory and devices through the kernel's direct map.

/// The kernel's address of physical address 0; the first GiB and the fourth are mapped.
const DIRECT: u64 = 0xffff_8000_0000_0000;

/// A pointer to a physical address. Making it is harmless; only the first and the fourth GiB are there.
pub fn at<T>(physical: u64) -> *mut T {
    (DIRECT + physical) as *mut T
}

/// Reads what firmware or a device has at a physical address.
///
/// # Safety
/// The address is mapped, aligned, and reading it has no effect that Rust code would see elsewhere.
pub unsafe fn read<T: Copy>(physical: u64) -> T {
    // SAFETY: the caller's promise.
    unsafe { at::<T>(physical).read_volatile() }
}

/// Writes to a device or to memory that Rust does not use.
///
/// # Safety
/// The address is mapped, aligned, and not memory of the kernel that Rust knows of.
pub unsafe fn write<T: Copy>(physical: u64, value: T) {
    // SAFETY: the caller's promise.
    unsafe { at::<T>(physical).write_volatile(value) }
}
