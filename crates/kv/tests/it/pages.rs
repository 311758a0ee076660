//! Buffers of whole pages.

use kv::internals::PageBuffers;

/// Bytes of a page.
const PAGE: usize = 4096;

#[test]
fn buffers_are_aligned_and_used_again_within_the_bound() {
    let buffers = PageBuffers::new(5 * PAGE);
    let start = |bytes: &[u8]| bytes.as_ptr();
    let (one, four) = (buffers.take(3).unwrap(), buffers.take(4).unwrap());
    assert_eq!((one.bytes().len(), start(one.bytes()).align_offset(PAGE)), (3 * PAGE, 0));
    let at = start(four.bytes());
    buffers.give(one);
    assert_eq!(buffers.kept(), 3 * PAGE);
    buffers.give(four);
    assert_eq!(buffers.kept(), 4 * PAGE, "seven pages are too many");
    assert_ne!(start(buffers.take(1).unwrap().bytes()), at, "a small one would waste it");
    let again = buffers.take(2).unwrap();
    assert_eq!((start(again.bytes()), again.bytes().len()), (at, 2 * PAGE));
}
