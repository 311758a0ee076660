//! The pool under every order in which its threads can run: `cargo xtask orders`.

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

use super::sections::{Items, Sections};
use super::*;

/// Try all orders with at most `switches` switches of thread where none is needed, or as many as half a minute allows.
fn all_orders(switches: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut model = Builder::new();
    model.preemption_bound = Some(switches);
    model.max_branches = 20_000;
    model.max_duration = Some(std::time::Duration::from_secs(30));
    model.check(test);
}

/// Numbers that loom guards: a use that is not ordered after the last write by another thread fails the test.
struct Guarded(Vec<UnsafeCell<u32>>);

// SAFETY: what this file is to show; loom fails where it does not hold.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn new(n: usize) -> Guarded {
        Guarded((0..n).map(|_| UnsafeCell::new(0)).collect())
    }

    fn add(&self, i: usize) {
        // SAFETY: loom fails where another thread uses it.
        self.0[i].with_mut(|x| unsafe { *x += 1 });
    }

    fn sum(&self) -> u32 {
        // SAFETY: as above.
        self.0.iter().map(|x| x.with(|x| unsafe { *x })).sum()
    }
}

/// Go through `lists` as worker `index` of `n`: each item is done once, and sees all of the sections before. Who is
/// `polite` steps out of the section after each item, if it may.
fn go_through(sections: &Sections, lists: &[Guarded], index: usize, n: usize, polite: bool) {
    for (i, list) in lists.iter().enumerate() {
        let number = 1 + i as u64;
        let mut inside = sections.enter(number);
        let mut items = Items { sections, number, index, n, len: list.0.len(), done: 0 };
        while let Some(item) = inside.then(|| items.next()).flatten() {
            for before in &lists[..i] {
                assert_eq!(before.sum() as usize, before.0.len());
            }
            list.add(item);
            if polite && sections.step_out(number) {
                inside = sections.enter(number);
            }
        }
        if inside {
            sections.leave(number);
        }
        while sections.open() == number {
            thread::yield_now();
        }
    }
    let done: u32 = lists.iter().map(Guarded::sum).sum();
    assert_eq!(done as usize, lists.iter().map(|list| list.0.len()).sum::<usize>());
}

fn sections_of(workers: usize, lens: &'static [usize], switches: usize, polite: bool) {
    all_orders(switches, move || {
        let sections = Arc::new(Sections::new(workers));
        let lists: Arc<Vec<Guarded>> = Arc::new(lens.iter().map(|n| Guarded::new(*n)).collect());
        let others: Vec<_> = (1..workers)
            .map(|index| {
                let (sections, lists) = (Arc::clone(&sections), Arc::clone(&lists));
                thread::spawn(move || go_through(&sections, &lists, index, workers, polite))
            })
            .collect();
        go_through(&sections, &lists, 0, workers, polite);
        others.into_iter().for_each(|other| other.join().expect("no assertion fails"));
    });
}

#[test]
fn two_workers_share_sections() {
    sections_of(2, &[2, 1, 2], 2, false);
}

#[test]
fn three_workers_share_sections() {
    sections_of(3, &[2, 2], 2, false);
}

#[test]
fn workers_step_out_between_items() {
    sections_of(2, &[2, 2], 2, true);
    sections_of(3, &[3], 2, true);
}

#[test]
fn a_team_runs_jobs_and_ends() {
    all_orders(2, || {
        let team = Team::new(2);
        let lists = [Guarded::new(2), Guarded::new(1)];
        for round in 1..=2 {
            team.run(&|worker| {
                for list in &lists {
                    worker.section(|section| section.take(list.0.len()).for_each(|i| list.add(i)));
                }
            });
            assert_eq!(lists.iter().map(Guarded::sum).sum::<u32>(), 3 * round);
        }
    });
}

#[test]
fn workers_meet() {
    all_orders(2, || {
        let team = Team::new(2);
        let cells = Guarded::new(2);
        team.run(&|worker| {
            cells.add(worker.index);
            worker.sync();
            assert_eq!(cells.sum(), 2);
            worker.sync();
            cells.add(1 - worker.index);
        });
        assert_eq!(cells.sum(), 4);
    });
}

#[test]
fn a_panic_of_any_worker_leaves_the_team_whole() {
    for bad in 0..2 {
        all_orders(2, move || {
            let team = Team::new(2);
            let caught = catch_unwind(AssertUnwindSafe(|| {
                team.run(&|worker| {
                    worker.section(|section| {
                        let index = worker.index;
                        section.take(2).for_each(|_| assert!(index != bad, "gives up"));
                    });
                    worker.section(|_| {});
                });
            }));
            let _ = caught;
            let list = Guarded::new(2);
            team.run(&|worker| {
                worker.section(|section| section.take(2).for_each(|i| list.add(i)));
            });
            assert_eq!(list.sum(), 2);
        });
    }
}
