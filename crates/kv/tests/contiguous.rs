//! The cache against a plain list of rows, over random histories of two sessions that fork from each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kv::{Allocator, BLOCK, Contiguous, Error, Heap, Layout, Memory, View};
use proptest::prelude::*;

/// Bytes that one position takes in a head's keys and in its values: the test keeps one byte of each.
fn layouts() -> Arc<[Layout]> {
    [(1, 256), (3, 320)]
        .map(|(n_kv_heads, value_bytes)| Layout::new(n_kv_heads, BLOCK, value_bytes))
        .into()
}

const CAPACITY: usize = 1000;
const MOST: u64 = CAPACITY.div_ceil(BLOCK) as u64;

/// What is written at a position: depends on all that tells rows apart.
fn stamp(value: u8, cache: usize, head: usize) -> u8 {
    value.wrapping_mul(31).wrapping_add((cache * 7 + head * 3) as u8)
}

fn append(cache: &mut Contiguous, model: &mut Vec<u8>, values: &[u8]) {
    let (from, to) = (model.len(), model.len() + values.len());
    cache.prepare(to).expect("within capacity");
    let layouts = cache.layouts().to_vec();
    for (c, blocks) in cache.views(from..to).into_iter().enumerate() {
        for (i, view) in blocks.into_iter().enumerate() {
            let View::Exclusive(block) = view else { continue };
            let first = i * BLOCK;
            for head in 0..layouts[c].n_kv_heads() {
                let (keys, out) = (layouts[c].keys(head).start, layouts[c].values(head).start);
                for position in from.max(first)..to.min(first + BLOCK) {
                    let stamp = stamp(values[position - from], c, head);
                    block[keys + position - first] = stamp;
                    block[out + position - first] = !stamp;
                }
            }
        }
    }
    cache.extend(to).expect("just prepared");
    model.extend_from_slice(values);
}

fn check(cache: &Contiguous, model: &[u8]) {
    assert_eq!(cache.len(), model.len());
    let blocks = model.len().div_ceil(BLOCK);
    let block_bytes: usize = cache.layouts().iter().map(Layout::block_bytes).sum();
    let held = (blocks * block_bytes) as u64;
    assert!(
        (held..=MOST * block_bytes as u64).contains(&cache.bytes()),
        "memory of positions held"
    );
    for c in 0..2 {
        let layout = cache.layouts()[c];
        let mut expected_first = 0;
        for segment in cache.segments(c, model.len()) {
            assert_eq!(segment.first, expected_first);
            expected_first += segment.n;
            for (head, (keys, values)) in layout.heads(segment.block).enumerate() {
                for (position, value) in model[segment.first..][..segment.n].iter().enumerate() {
                    assert_eq!(keys[position], stamp(*value, c, head));
                    assert_eq!(values[position], !stamp(*value, c, head));
                }
            }
        }
        assert_eq!(expected_first, model.len());
    }
}

#[derive(Clone, Debug)]
enum Action {
    Append(usize, Vec<u8>),
    Truncate(usize, f64),
    Commit(usize, f64),
    Fork(usize, f64),
}

fn action() -> impl Strategy<Value = Action> {
    let who = 0usize..2;
    prop_oneof![
        4 => (who.clone(), proptest::collection::vec(any::<u8>(), 1..300)).prop_map(|(w, v)| Action::Append(w, v)),
        1 => (who.clone(), 0.0..=1.0).prop_map(|(w, at)| Action::Truncate(w, at)),
        1 => (who.clone(), 0.0..=1.0).prop_map(|(w, at)| Action::Commit(w, at)),
        2 => (who, 0.0..=1.0).prop_map(|(w, at)| Action::Fork(w, at)),
    ]
}

fn part(len: usize, share: f64) -> usize {
    (len as f64 * share).round() as usize
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever two sessions do, each reads back its own rows, and what one writes the other never sees.
    #[test]
    fn histories_match_a_list(actions in proptest::collection::vec(action(), 1..24)) {
        let mut caches = [Contiguous::new(layouts(), CAPACITY, Arc::new(Heap)), Contiguous::new(layouts(), CAPACITY, Arc::new(Heap))];
        let mut models: [Vec<u8>; 2] = [Vec::new(), Vec::new()];
        for action in actions {
            match action {
                Action::Append(who, values) if models[who].len() + values.len() <= CAPACITY => {
                    append(&mut caches[who], &mut models[who], &values);
                }
                Action::Append(who, values) => {
                    let wanted = models[who].len() + values.len();
                    let full = Error::Capacity { capacity: CAPACITY, wanted };
                    prop_assert_eq!(caches[who].prepare(wanted), Err(full));
                }
                Action::Truncate(who, at) => {
                    let len = part(models[who].len(), at);
                    caches[who].truncate(len).unwrap();
                    models[who].truncate(len);
                    prop_assert!(caches[who].committed() <= len);
                }
                Action::Commit(who, at) => {
                    let len = part(models[who].len(), at);
                    let before = caches[who].committed();
                    caches[who].commit(len).unwrap();
                    prop_assert_eq!(caches[who].committed(), before.max(len));
                }
                Action::Fork(who, at) => {
                    let len = part(models[who].len(), at);
                    caches[1 - who] = caches[who].fork(len).unwrap();
                    models[1 - who] = models[who][..len].to_vec();
                }
            }
            for (cache, model) in caches.iter().zip(&models) {
                check(cache, model);
            }
        }
    }
}

#[test]
fn full_blocks_are_shared_and_the_extended_one_is_copied() {
    let mut cache = Contiguous::new(layouts(), CAPACITY, Arc::new(Heap));
    let mut model = Vec::new();
    append(&mut cache, &mut model, &[5; 300]);
    let mut fork = cache.fork(280).unwrap();
    let at = |cache: &Contiguous, i| cache.segments(1, 280).nth(i).map(|s| s.block.as_ptr());
    let same = |a: &Contiguous, b: &Contiguous, i| at(a, i) == at(b, i);
    assert!(
        same(&cache, &fork, 0) && same(&cache, &fork, 1),
        "nothing is copied before it is written"
    );
    let mut fork_model = model[..280].to_vec();
    append(&mut fork, &mut fork_model, &[9; 10]);
    assert!(same(&cache, &fork, 0) && !same(&cache, &fork, 1));
    check(&cache, &model);
    check(&fork, &fork_model);
}

#[test]
fn a_step_that_fails_leaves_the_length() {
    let mut cache = Contiguous::new(layouts(), CAPACITY, Arc::new(Heap));
    cache.prepare(10).unwrap();
    assert!(cache.is_empty());
    assert_eq!(cache.segments(0, 10).map(|s| s.n).sum::<usize>(), 10);
    cache.truncate(0).unwrap();
    assert!(cache.is_empty() && cache.committed() == 0);
}

#[test]
fn what_truncation_frees_serves_again() {
    let mut cache = Contiguous::new(layouts(), CAPACITY, Arc::new(Heap));
    let mut model = Vec::new();
    append(&mut cache, &mut model, &[5; 600]);
    let all = cache.bytes();
    let fork = cache.fork(600).unwrap();
    cache.truncate(0).unwrap();
    assert_eq!(cache.bytes(), 0, "the fork has all of it");
    check(&fork, &model);
    drop(fork);
    let mut again = Vec::new();
    for value in [1, 2] {
        append(&mut cache, &mut again, &[value; 600]);
        check(&cache, &again);
        assert_eq!(cache.bytes(), all);
        cache.truncate(0).unwrap();
        again.clear();
        assert_eq!(cache.bytes(), all, "kept for the positions to come");
    }
}

#[test]
fn lengths_out_of_range_are_errors() {
    let mut cache = Contiguous::new(layouts(), CAPACITY, Arc::new(Heap));
    append(&mut cache, &mut Vec::new(), &[1; 20]);
    let beyond = Error::Length { len: 20, wanted: 21 };
    assert_eq!(cache.truncate(21), Err(beyond.clone()));
    assert_eq!(cache.commit(21), Err(beyond.clone()));
    assert_eq!(cache.fork(21).err(), Some(beyond.clone()));
    assert_eq!(beyond.to_string(), "cache holds 20 positions, 21 named");
    assert_eq!(
        cache.extend(BLOCK + 1),
        Err(Error::Length { len: BLOCK, wanted: BLOCK + 1 }),
        "not prepared"
    );
    assert_eq!(cache.extend(19), Err(Error::Length { len: BLOCK, wanted: 19 }));
}

#[test]
fn blocks_start_as_zeros() {
    let mut cache = Contiguous::new(layouts(), CAPACITY, Arc::new(Heap));
    cache.prepare(1).unwrap();
    let zeros = cache.segments(1, 1).next().expect("one block").block;
    assert!(zeros.iter().all(|b| *b == 0));
}

#[test]
fn views_are_exclusive_exactly_where_a_step_writes() {
    let mut cache = Contiguous::new(layouts(), CAPACITY, Arc::new(Heap));
    append(&mut cache, &mut Vec::new(), &[3; 300]);
    let mut fork = cache.fork(300).unwrap();
    fork.prepare(600).unwrap();
    let kinds: Vec<Vec<bool>> = fork
        .views(300..600)
        .into_iter()
        .map(|blocks| blocks.into_iter().map(|view| matches!(view, View::Exclusive(_))).collect())
        .collect();
    assert_eq!(kinds, [[false, true, true], [false, true, true]]);
}

/// Memory for so many blocks.
struct Scarce(AtomicUsize);

impl Allocator for Scarce {
    fn zeroed(&self, bytes: usize) -> Option<Box<dyn Memory>> {
        let take = |left: usize| left.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Heap.zeroed(bytes)
    }
}

#[test]
fn without_memory_the_blocks_are_as_before() {
    let mut cache = Contiguous::new(layouts(), CAPACITY, Arc::new(Scarce(2.into())));
    let mut model = Vec::new();
    append(&mut cache, &mut model, &[3; 10]);
    let before = cache.bytes();
    assert!(matches!(cache.prepare(600), Err(Error::Memory { .. })));
    assert_eq!(cache.bytes(), before, "what was new goes back");
    check(&cache, &model);
    // what was free before stays so
    cache.truncate(0).unwrap();
    assert!(cache.prepare(600).is_err());
    assert_eq!((cache.bytes(), cache.len()), (before, 0));
    cache.prepare(256).unwrap();
}
