//! Random histories of what is kept, over restarts.

use std::collections::{BTreeMap, HashMap};

use kv::{DiskError, KeptRecords, RecordId};
use proptest::prelude::*;

use crate::block;
use crate::kept::{folder, key, open};

#[derive(Clone, Debug)]
enum Action {
    Put(usize),
    Free(prop::sample::Index),
    Keep(u8, Vec<prop::sample::Index>),
    Restore(u8),
    Discard(u8),
    Reopen,
}

fn action() -> impl Strategy<Value = Action> {
    let which = any::<prop::sample::Index>;
    prop_oneof![
        6 => (0usize..20_000).prop_map(Action::Put),
        3 => which().prop_map(Action::Free),
        2 => (0u8..4, proptest::collection::vec(which(), 0..6)).prop_map(|(n, ids)| Action::Keep(n, ids)),
        2 => (0u8..4).prop_map(Action::Restore),
        1 => (0u8..4).prop_map(Action::Discard),
        1 => Just(Action::Reopen),
    ]
}

fn history(actions: Vec<Action>) {
    let dir = folder();
    let mut store = open(&dir);
    let mut held: HashMap<RecordId, u64> = HashMap::new();
    let mut kept: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut lens: Vec<usize> = Vec::new();
    let pick = |held: &HashMap<RecordId, u64>, which: &prop::sample::Index| {
        let mut ids: Vec<_> = held.keys().copied().collect();
        ids.sort_unstable();
        (!ids.is_empty()).then(|| ids[which.index(ids.len())])
    };
    for action in actions {
        match action {
            Action::Put(len) => {
                let seed = lens.len() as u64;
                lens.push(len);
                held.insert(store.put(&block(len, seed)).expect("there is room"), seed);
            }
            Action::Free(which) => {
                if let Some(id) = pick(&held, &which) {
                    store.free(id).expect("it is held");
                    held.remove(&id);
                }
            }
            Action::Keep(n, which) => {
                let ids: Vec<_> = which.iter().filter_map(|which| pick(&held, which)).collect();
                store.keep(&n.to_string(), &key(), &ids, &[n]).expect("there is room");
                kept.insert(n.to_string(), ids.iter().map(|id| held[id]).collect());
            }
            Action::Restore(n) => {
                let restored = store.restore(&n.to_string(), &key());
                let Some(seeds) = kept.get(&n.to_string()) else {
                    assert!(matches!(restored, Err(DiskError::Vanished { .. })));
                    continue;
                };
                let KeptRecords { ids, note } = restored.expect("it is kept");
                assert_eq!((ids.len(), note), (seeds.len(), vec![n]));
                held.extend(ids.into_iter().zip(seeds.iter().copied()));
            }
            Action::Discard(n) => {
                let gone = kept.remove(&n.to_string());
                assert_eq!(store.discard(&n.to_string()).is_ok(), gone.is_some());
            }
            Action::Reopen => {
                drop(store);
                store = open(&dir);
                held.clear();
            }
        }
        assert_eq!(store.kept_names(), kept.keys().cloned().collect::<Vec<_>>());
        for (id, seed) in &held {
            assert_eq!(*store.take(*id).expect("it is held"), block(lens[*seed as usize], *seed));
        }
    }
    let mut all: Vec<u64> = held.into_values().chain(kept.into_values().flatten()).collect();
    all.sort_unstable();
    all.dedup();
    store.flush().expect("there is room");
    let pages = |seed: u64| 4096 + lens[seed as usize].next_multiple_of(4096) as u64;
    assert_eq!(store.stats().bytes, all.into_iter().map(pages).sum::<u64>(), "nothing leaks");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// What is put, freed, kept, restored and discarded, over restarts, is what a list of it says.
    #[test]
    fn histories_match_lists(actions in proptest::collection::vec(action(), 1..40)) {
        history(actions);
    }
}
