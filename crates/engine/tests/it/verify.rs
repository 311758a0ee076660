//! The matrix of runs: equal where a model keeps its bits, and not where it does not.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::{Error, Verified, VerifyMatrix, VerifyState, VerifyStorage, verify};
use program::Model;

use crate::common::{Toy, cache};

fn matrix() -> VerifyMatrix {
    VerifyMatrix {
        threads: vec![1, 2],
        chunks: vec![1, 7, 64],
        together: vec![1, 2, 5],
        states: VerifyState::ALL.to_vec(),
        prompt: 50,
        tokens: 20,
    }
}

fn run(toy: &Arc<Toy>) -> Vec<Verified> {
    let mut found = Vec::new();
    let mut load = |_, _| Ok::<_, Error>(Arc::clone(toy) as Arc<dyn Model>);
    let matrix = matrix();
    verify(&matrix, cache(matrix.capacity()), &mut load, &mut |one| {
        found.push(one);
        Ok(())
    })
    .unwrap();
    found
}

fn digests(found: &[Verified]) -> BTreeSet<u64> {
    found.iter().map(|one| one.digest).collect()
}

#[test]
fn all_runs_of_an_honest_model_are_equal() {
    let toy = Toy::new();
    let found = run(&toy);
    assert_eq!(found.len(), matrix().runs());
    assert_eq!(digests(&found).len(), 1, "{found:?}");
    assert_eq!(toy.state.lock().unwrap().sessions.len(), 0);
    // another model, another digest
    let other = Toy::with_vocab(300);
    assert_ne!(digests(&run(&other)), digests(&found));
}

/// One bit of one logit, where a pass has several rows of one text: only drafts have that.
#[test]
fn a_bit_that_depends_on_the_pass_is_found() {
    let toy = Toy::new();
    toy.state.lock().unwrap().several_rows_differ = true;
    let found = run(&toy);
    let of = |state| -> BTreeSet<u64> {
        found.iter().filter(|one| one.run.state == state).map(|one| one.digest).collect()
    };
    assert_eq!(of(VerifyState::Cold).len(), 1);
    assert!(of(VerifyState::Drafted).is_disjoint(&of(VerifyState::Cold)), "{found:?}");
}

/// What lies on disk is run on a model of its own, and compared with the others.
#[test]
fn a_bit_that_the_disk_changes_is_found() {
    let (toy, other) = (Toy::new(), Toy::with_vocab(300));
    let states = [&VerifyState::ALL[..], &[VerifyState::Spilled]].concat();
    let matrix = VerifyMatrix { states, ..matrix() };
    for (on_disk, n) in [(&toy, 1), (&other, 2)] {
        let mut found = Vec::new();
        let mut load = |_, storage| {
            let spills = storage == VerifyStorage::Spills;
            Ok::<_, Error>(Arc::clone(if spills { on_disk } else { &toy }) as Arc<dyn Model>)
        };
        verify(&matrix, cache(matrix.capacity()), &mut load, &mut |one| {
            found.push(one);
            Ok(())
        })
        .unwrap();
        assert_eq!(found.len(), matrix.runs());
        assert_eq!(digests(&found).len(), n);
        let spilled = found.iter().filter(|one| one.run.state == VerifyState::Spilled);
        assert_eq!(spilled.count(), matrix.runs() / 4);
    }
}

#[test]
fn whole_and_quick_are_what_they_say() {
    assert_eq!(VerifyMatrix::whole().runs(), 360);
    assert_eq!(VerifyMatrix::quick(2).runs(), 24);
    assert_eq!(VerifyMatrix::quick(1).threads, [1, 2]);
}
