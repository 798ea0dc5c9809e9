//! Measures how much of the heap a piece of code uses.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[global_allocator]
static COUNTED: Counted = Counted;

struct Counted;

// Without destructors and without allocations of their own, so that an allocator may use them.
thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: usize, taken: bool) {
    let bytes = bytes.cast_signed();
    let live = LIVE.get() + if taken { bytes } else { -bytes };
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
}

// SAFETY: it is the system's allocator; the counting beside it allocates nothing.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), true);
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(layout.size(), false);
        // SAFETY: the caller's promise is the same.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Runs `work`. Also gives the largest number of bytes that this thread had allocated in it at the same time.
pub(crate) fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let done = work();
    (done, (PEAK.get() - before).cast_unsigned())
}

#[test]
fn it_counts() {
    let (_, peak) = peak_of(|| drop(Vec::<u8>::with_capacity(4711)));
    assert_eq!(peak, 4711);
}
