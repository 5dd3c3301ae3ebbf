//! Keeps every entry point of the core alive, so that the linker must resolve all code that they reach.
//!
//! There is no allocator here, and the panic handler calls an undefined function. So if this links, no path in the
//! core allocates or panics. It never runs. `cargo xtask proofs` builds it, with and without link-time optimisation,
//! and checks its machine code for floats, recursion and stack use.
#![no_std]
#![no_main]

/// Defines functions and `keep`, which takes the address of each, so that neither the compiler nor the linker
/// removes one.
macro_rules! roots {
    ($($(#[$meta:meta])* fn $name:ident $(<$($life:lifetime),+>)? ($($arg:ident: $ty:ty),* $(,)?) -> $out:ty $body:block)*) => {
        $($(#[$meta])* #[inline(never)] fn $name $(<$($life),+>)? ($($arg: $ty),*) -> $out $body)*

        #[inline(never)]
        pub(crate) fn keep() {
            $($(#[$meta])* core::hint::black_box($name as *const ());)*
        }
    };
}

mod budget;
mod hal;
mod node;
mod placement;
mod planted;
mod units;

// The compiler may call these for copies, and a bare machine would provide them. Nothing here runs, so they need not
// work.
core::arch::global_asm!(
    ".globl memcpy, memmove, memset, memcmp, bcmp",
    ".type memcpy, @function",
    "memcpy: memmove: memset: memcmp: bcmp: ret",
);

unsafe extern "C" {
    /// It has no definition.
    fn the_core_can_panic() -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: a build that keeps this call does not link, so it is never made.
    unsafe { the_core_can_panic() }
}

/// The linker's entry point.
#[unsafe(no_mangle)]
extern "C" fn _start() {
    budget::keep();
    hal::keep();
    node::keep();
    placement::keep();
    units::keep();
    planted::keep();
}
