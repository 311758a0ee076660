//! Where the heads of one cache are in a block.

use kv::{BlockKind, Heap, HostMemory, Layout, Store};

#[test]
fn regions_are_disjoint_and_aligned() {
    let layout = Layout::new(3, 100, 130);
    assert_eq!((layout.head_bytes(), layout.block_bytes()), (128 + 192, 3 * 320));
    let mut blocks = Heap.allocate(BlockKind::of(layout.block_bytes()), 1).unwrap();
    let block = blocks[0].bytes_mut();
    assert_eq!((block.len(), block.as_ptr().align_offset(64)), (layout.block_bytes(), 0));
    for head in 0..3 {
        block[layout.keys(head)].fill(1 + 2 * head as u8);
        block[layout.values(head)].fill(2 + 2 * head as u8);
    }
    for head in 0..3 {
        let (keys, values) = (layout.keys(head), layout.values(head));
        assert!(keys.start.is_multiple_of(64) && values.start.is_multiple_of(64));
        assert!(block[keys].iter().all(|b| *b == 1 + 2 * head as u8));
        assert!(block[values].iter().all(|b| *b == 2 + 2 * head as u8));
    }
}
