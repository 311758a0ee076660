//! What recurs, over random histories of sessions that fork, go back, let go and have little memory: states are those of the
//! tokens before them, whatever they are reached from, and take no more than is said.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use kv::{
    BlockAccess, BlockKind, BlockPool, Error, Heap, HostMemory, StateRows, StateSpec, StateStep,
    StepPlace, Store, TableSpec, Tables,
};
use proptest::prelude::*;

const CAPACITY: usize = 4000;

/// Less than that many things happen in a history; Miri takes a thousand times as long.
const ACTIONS: usize = if cfg!(miri) { 8 } else { 60 };

type Memory = <Heap as Store>::Memory;

/// A cache whose states are large, and one whose rows are.
const STATES: [StateSpec; 2] = [StateSpec::of(512, 8), StateSpec::of(8, 32)];

/// One cache of rows beside them.
const TABLE: TableSpec =
    TableSpec { positions: 16, bytes: 64, area: 0, window: None, limit: None, chosen: false };

fn open(pool: &BlockPool<Heap>) -> Tables<Heap> {
    Tables::with_states(pool, [TABLE].into(), STATES.into(), CAPACITY, None)
}

/// Bytes of so many states of all caches, and of as many rings as a step needs.
fn state_bytes(states: usize) -> u64 {
    let of = |spec: &StateSpec| {
        (states * spec.state + StateSpec::RINGS * StateSpec::ROWS * spec.row) as u64
    };
    STATES.iter().map(of).sum()
}

/// A state after these tokens.
fn state(tokens: &[u32], cache: usize) -> u64 {
    let next = |state: u64, token: &u32| {
        (state ^ u64::from(*token)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
    };
    tokens.iter().fold(cache as u64 + 1, next)
}

/// What a row gives: its token in each of its words.
fn row(memory: &Memory, cache: usize, position: usize) -> &[u8] {
    let bytes = STATES[cache].row;
    &memory.bytes()[StateStep::slot(position) * bytes..][..bytes]
}

fn words(token: u32, cache: usize) -> Vec<u8> {
    std::iter::repeat_n(token.to_le_bytes(), STATES[cache].row / 4).flatten().collect()
}

/// Check what a step reads, and write what it writes.
fn step_of(cache: usize, step: &StateStep, rows: StateRows<'_, Memory>, all: &[u32]) {
    let StateRows { base, fold, ring, next } = rows;
    let read =
        |memory: &Memory| u64::from_le_bytes(memory.bytes()[..8].try_into().expect("eight bytes"));
    assert_eq!(base.is_some(), step.base > 0);
    if let Some(base) = base {
        assert_eq!(read(base), state(&all[..step.base], cache), "the state at {}", step.base);
    }
    let known = match &ring {
        BlockAccess::Read(memory) => &**memory,
        BlockAccess::Write(memory) => &**memory,
    };
    for (i, token) in all[step.base..step.new.start].iter().enumerate() {
        let position = step.base + i;
        assert_eq!(row(known, cache, position), words(*token, cache), "row {position}");
    }
    assert_eq!(fold.is_some(), step.fold.is_some());
    if let (Some(memory), Some(fold)) = (fold, step.fold) {
        assert!(fold > step.base && fold <= step.new.end);
        memory.bytes_mut()[..8].copy_from_slice(&state(&all[..fold], cache).to_le_bytes());
    }
    let stored = match (next, ring) {
        (Some(next), _) => next,
        (None, BlockAccess::Write(ring)) => ring,
        (None, BlockAccess::Read(_)) => panic!("rows have to go somewhere"),
    };
    let bytes = STATES[cache].row;
    for (i, token) in all[step.stored_from..step.new.end].iter().enumerate() {
        let at = StateStep::slot(step.stored_from + i) * bytes;
        stored.bytes_mut()[at..at + bytes].copy_from_slice(&words(*token, cache));
    }
}

/// Compute the rows up to `to`, the first of which are missing.
fn compute(tables: &mut Tables<Heap>, all: &[u32], to: usize) {
    let held = tables.held();
    let (blocks, (step, states)) = tables.step_of_all(to);
    blocks.for_each(|(_, rows)| rows.for_each(drop));
    let step = step.expect("it has states");
    assert_eq!(step.new, held..to);
    for (cache, rows) in states.into_iter().enumerate() {
        step_of(cache, &step, rows, all);
    }
}

/// A step of `more`; rows that are missing are computed before it.
fn append(tables: &mut Tables<Heap>, more: &[u32], place: StepPlace) -> kv::Result<()> {
    let len = tables.len();
    let all = [tables.tokens(), more].concat();
    while tables.held() < len {
        let end = len.min(tables.held() + 50);
        tables.prepare(end)?;
        compute(tables, &all, end);
        tables.restore(end)?;
    }
    tables.prepare_step(all.len(), place, &mut || false)?;
    compute(tables, &all, all.len());
    tables.extend(more)
}

fn commit(tables: &mut Tables<Heap>) {
    tables.commit(tables.len()).expect("it holds that many");
}

#[derive(Clone, Debug)]
enum Action {
    Append(usize, [bool; 2]),
    Abandon(usize),
    Truncate(f64),
    Commit(f64),
    Fork(usize, f64),
    LetGo,
    Close,
}

fn action() -> impl Strategy<Value = (usize, Action)> {
    let n = prop_oneof![4 => 1usize..4, 3 => 1usize..40, 1 => 40usize..400];
    let action = prop_oneof![
        8 => (n, any::<[bool; 2]>()).prop_map(|(n, ends)| Action::Append(n, ends)),
        1 => (1usize..60).prop_map(Action::Abandon),
        2 => (0.0..=1.0).prop_map(Action::Truncate),
        2 => (0.9..=1.0).prop_map(Action::Truncate),
        6 => (0.9..=1.0).prop_map(Action::Commit),
        2 => (0usize..3, 0.0..=1.0).prop_map(|(to, at)| Action::Fork(to, at)),
        1 => Just(Action::LetGo),
        1 => Just(Action::Close),
    ];
    (0usize..3, action)
}

fn part(len: usize, share: f64) -> usize {
    (len as f64 * share).round() as usize
}

/// What a session must hold.
#[derive(Clone, Default)]
struct Plain {
    tokens: Vec<u32>,
    committed: usize,
    /// Where its latest prompt ended, if it did not go back since and has let go of nothing.
    prompt_end: Option<usize>,
}

impl Plain {
    fn cut(&mut self, len: usize) {
        self.tokens.truncate(len);
        self.committed = self.committed.min(len);
        self.prompt_end = self.prompt_end.filter(|end| *end <= len);
    }
}

/// Positions that going back to the end of the latest prompt may cost.
const BACK: usize = 16;

fn run(actions: Vec<(usize, Action)>, budget: Option<u64>) {
    let pool = BlockPool::new(Heap, budget);
    let mut sessions = [open(&pool), open(&pool), open(&pool)];
    let mut plain = [Plain::default(), Plain::default(), Plain::default()];
    let mut token = 0;
    for (who, action) in actions {
        let len = plain[who].tokens.len();
        match action {
            Action::Append(n, [begins_prompt, ends_prompt]) => {
                let more: Vec<u32> = (token..).take(n).collect();
                token += n as u32;
                let place = StepPlace { begins_prompt, ends_prompt, made_up: false };
                match append(&mut sessions[who], &more, place) {
                    Ok(()) => {
                        plain[who].tokens.extend(more);
                        if ends_prompt {
                            plain[who].prompt_end = Some(len + n);
                        }
                    }
                    Err(Error::Capacity { .. }) => assert!(len + n > CAPACITY),
                    Err(Error::Budget { .. }) => assert!(budget.is_some()),
                    Err(other) => panic!("{other}"),
                }
            }
            Action::Abandon(more) => {
                if sessions[who].held() == len {
                    let _ = sessions[who].prepare((len + more).min(CAPACITY));
                }
                sessions[who].abandon();
            }
            Action::Truncate(at) => {
                let at = part(len, at);
                let reached = sessions[who].truncate(at).expect("it holds that many");
                let plain = &mut plain[who];
                assert!(reached <= at && (reached == at || at < plain.committed));
                if let Some(end) = plain.prompt_end.filter(|end| budget.is_none() && *end <= at + 1)
                {
                    assert!(reached + BACK >= end, "{reached} reached of a prompt to {end}");
                }
                plain.cut(reached);
            }
            Action::Commit(at) => {
                let at = part(len, at);
                sessions[who].commit(at).expect("it holds that many");
                plain[who].committed = plain[who].committed.max(at);
            }
            Action::Fork(to, at) => {
                let fork = sessions[who].fork(part(len, at)).expect("it holds that many");
                plain[to] = plain[who].clone();
                plain[to].cut(fork.len());
                sessions[to] = fork;
            }
            Action::LetGo => {
                sessions[who].let_go();
                assert_eq!((sessions[who].held(), sessions[who].bytes()), (0, 0));
                plain[who].prompt_end = None;
            }
            Action::Close => {
                sessions[who] = open(&pool);
                plain[who] = Plain::default();
            }
        }
        for (tables, plain) in sessions.iter().zip(&plain) {
            assert_eq!(tables.tokens(), plain.tokens);
            let rows = TABLE.most_bytes(plain.tokens.len(), 0);
            let most = rows + state_bytes(StateSpec::MOST_STATES);
            assert!(tables.bytes() <= most, "{} bytes, {most} at most", tables.bytes());
        }
    }
    drop(sessions);
    assert_eq!(pool.in_use(), 0, "nobody holds a block");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 400 }))]

    /// Whatever sessions do, a step reads the state of the tokens before it, and ends of prompts are near.
    #[test]
    fn histories_match_recurrences(actions in proptest::collection::vec(action(), 1..ACTIONS)) {
        run(actions, None);
    }

    /// The same where memory is short: what does not fit is refused and changes nothing.
    #[test]
    fn short_memory_changes_nothing(
        actions in proptest::collection::vec(action(), 1..ACTIONS),
        budget in 2000u64..30_000,
    ) {
        run(actions, Some(budget));
    }

    /// One session never takes more than the most, steps within, and needs no more than the least.
    #[test]
    fn a_session_stays_between_least_and_most(
        steps in proptest::collection::vec((action(), any::<bool>()), 1..2 * ACTIONS),
        more in 0u64..8000,
    ) {
        let rows = TABLE.most_bytes(CAPACITY, 0);
        let least = rows + state_bytes(StateSpec::LEAST_STATES);
        let most = rows + state_bytes(StateSpec::MOST_STATES);
        for budget in [None, Some(least), Some(least + more)] {
            let pool = BlockPool::new(Heap, budget);
            let mut tables = open(&pool);
            for ((_, action), commits) in steps.clone() {
                let len = tables.len();
                match action {
                    Action::Append(n, [begins_prompt, ends_prompt]) if len + n <= CAPACITY => {
                        let more: Vec<u32> = (len as u32..).take(n).collect();
                        let place = StepPlace { begins_prompt, ends_prompt, made_up: false };
                        if tables.held() == len {
                            let prepared = tables.prepare_step(len + n, place, &mut || false);
                            prepared.expect("the least is enough");
                            prop_assert!(pool.in_use() <= most, "{} of {most}", pool.in_use());
                        }
                        append(&mut tables, &more, place).expect("the least is enough");
                        if commits {
                            commit(&mut tables);
                        }
                    }
                    Action::Truncate(at) => {
                        tables.truncate(part(len, at)).expect("it holds that many");
                    }
                    Action::LetGo => tables.let_go(),
                    _ => {}
                }
            }
        }
    }
}

/// A prompt of `prompt` tokens, fed in `chunk`s, and a reply of `reply`, a step each, all committed.
fn turn(tables: &mut Tables<Heap>, prompt: usize, chunk: usize, reply: usize) {
    let start = tables.len();
    let tokens: Vec<u32> = (start as u32..).take(prompt + reply).collect();
    for chunk in tokens[..prompt].chunks(chunk) {
        let len = tables.len();
        let place = StepPlace {
            begins_prompt: len == start,
            ends_prompt: len + chunk.len() == start + prompt,
            made_up: false,
        };
        append(tables, chunk, place).expect("no bound");
        commit(tables);
    }
    for token in &tokens[prompt..] {
        append(tables, &[*token], StepPlace::default()).expect("no bound");
        commit(tables);
    }
}

/// Where a session with this many positions can go on that goes back to `len`.
fn reached(tables: &Tables<Heap>, len: usize) -> usize {
    tables.fork(len).expect("it holds more").len()
}

/// A reply is begun anew at the end of its prompt, however short that was and long the reply; an edited question at the end
/// of the turn before it.
#[test]
#[cfg_attr(miri, ignore = "thousands of steps, of which histories have every kind")]
fn ends_of_prompts_and_turns_are_near() {
    let pool = BlockPool::new(Heap, None);
    for (prompt, reply) in [(5, 100), (17, 40), (30, 700), (100, 9000), (700, 33)] {
        let mut tables = Tables::with_states(&pool, [].into(), STATES.into(), 1 << 14, None);
        turn(&mut tables, prompt, 512, reply);
        let again = reached(&tables, prompt - 1);
        assert!(again + BACK >= prompt, "a prompt of {prompt}: {again}");
        let end = tables.len();
        for (prompt, reply) in [(3, 200), (40, 40)] {
            let start = tables.len();
            turn(&mut tables, prompt, 512, reply);
            let again = reached(&tables, start + prompt - 1);
            assert!(again + BACK >= start + prompt, "a second prompt of {prompt}: {again}");
            let edited = reached(&tables, start);
            assert!(edited + StateSpec::ROWS >= start, "a turn that ended at {start}: {edited}");
        }
        let first = reached(&tables, end);
        assert!(first + StateSpec::ROWS >= end, "two turns back, to {end}: {first}");
    }
}

/// A long conversation keeps few ways back, the denser the later.
#[test]
#[cfg_attr(miri, ignore = "thousands of steps, of which histories have every kind")]
fn what_is_long_ago_is_further_apart() {
    let pool = BlockPool::new(Heap, None);
    let mut tables = Tables::with_states(&pool, [].into(), STATES.into(), 1 << 20, None);
    for i in 0..100 {
        turn(&mut tables, 50 + i * 7 % 300, 512, 300);
        assert!(pool.in_use() <= state_bytes(StateSpec::MOST_STATES));
    }
    let len = tables.len();
    for back in [len / 50, len / 10, len / 2] {
        let lost = len - back - reached(&tables, len - back);
        assert!(lost <= 4 * back, "{lost} of {back} positions back lost");
    }
}

/// Nobody can compute again what was made up: going back to its end needs a state there, after what a measurement adds.
#[test]
fn the_end_of_what_is_made_up_is_reached_exactly() {
    for more in [vec![1; 40], vec![60], vec![500, 500, 3]] {
        for commits in [false, true] {
            let pool = BlockPool::new(Heap, None);
            let mut tables = open(&pool);
            let made_up: Vec<u32> = (0..1000).collect();
            let place = StepPlace { made_up: true, ..StepPlace::default() };
            append(&mut tables, &made_up, place).expect("no bound");
            commit(&mut tables);
            for n in &more {
                append(&mut tables, &vec![7; *n], StepPlace::default()).expect("no bound");
                if commits {
                    commit(&mut tables);
                }
            }
            assert_eq!(tables.truncate(1000), Ok(1000), "{more:?}");
            assert_eq!(tables.held(), 1000, "{more:?}: nothing has to be computed again");
        }
    }
}

/// Whatever the latest step was, all of it can be taken back and nothing has to be computed again, until another step or a
/// commit beyond where it began.
#[test]
fn the_latest_step_is_taken_back_whole() {
    for [before, n] in [[5, 40], [40, 1], [40, 9], [70, 300], [31, 33], [0, 80]] {
        for committed in [0, before] {
            let pool = BlockPool::new(Heap, None);
            let mut tables = open(&pool);
            let all: Vec<u32> = (0..500).collect();
            for part in all[..before].chunks(20) {
                append(&mut tables, part, StepPlace::default()).expect("no bound");
            }
            tables.commit(committed).expect("it holds that many");
            let held = tables.held();
            for place in
                [StepPlace::default(), StepPlace { ends_prompt: true, ..StepPlace::default() }]
            {
                append(&mut tables, &all[before..before + n], place).expect("no bound");
                assert_eq!(tables.truncate(before), Ok(before), "{before}, {n}");
                assert_eq!(tables.held(), held, "{before}, {n}: nothing has to be computed again");
            }
            append(&mut tables, &all[before..before + n], StepPlace::default()).expect("no bound");
            let rings = tables.bytes();
            commit(&mut tables);
            let one = state_bytes(0) / StateSpec::RINGS as u64;
            let gone = if n > StateSpec::ROWS { one } else { 0 };
            assert_eq!(
                rings - tables.bytes(),
                gone,
                "{before}, {n}: the rows before are let go of"
            );
        }
    }
}

/// A prompt that was to come and did not leaves the end of the one before what it was.
#[test]
fn a_prompt_that_never_came_marks_nothing() {
    let pool = BlockPool::new(Heap, None);
    let mut tables = Tables::with_states(&pool, [].into(), STATES.into(), 1 << 14, None);
    turn(&mut tables, 100, 512, 30);
    let place = StepPlace { begins_prompt: true, ends_prompt: true, made_up: false };
    tables.prepare_step(tables.len() + 3, place, &mut || false).expect("no bound");
    tables.abandon();
    let steps = if cfg!(miri) { 100 } else { 5000 };
    for token in 0..steps {
        append(&mut tables, &[token], StepPlace::default()).expect("no bound");
        commit(&mut tables);
    }
    let again = reached(&tables, 99);
    assert!(again + BACK >= 100, "a prompt of 100: {again}");
}

/// Sessions without states that take what memory there is.
fn fill(pool: &BlockPool<Heap>) -> Vec<Tables<Heap>> {
    let mut all = Vec::new();
    loop {
        let mut tables = Tables::new(pool, [TABLE].into(), TABLE.positions, None);
        match tables.prepare(TABLE.positions) {
            Ok(()) => tables.extend(&[1; TABLE.positions]).expect("it was prepared"),
            Err(Error::Budget { .. }) => return all,
            Err(other) => panic!("{other}"),
        }
        all.push(tables);
    }
}

/// Steps of one token each, for which `make_room` may do something.
fn grow(tables: &mut Tables<Heap>, n: usize, make_room: &mut dyn FnMut() -> bool) {
    for _ in 0..n {
        let prepared = tables.prepare_step(tables.len() + 1, StepPlace::default(), make_room);
        prepared.expect("something can go");
        append(tables, &[1], StepPlace::default()).expect("there is room now");
        commit(tables);
    }
}

/// Where memory is short, others go before ways back do; of these the end of the prompt is the last.
#[test]
#[cfg_attr(miri, ignore = "thousands of steps, of which histories have every kind")]
fn ways_back_go_after_others_and_the_end_of_the_prompt_last() {
    for others_go in [true, false] {
        let pool = BlockPool::new(Heap, Some(40_000));
        let mut tables = open(&pool);
        turn(&mut tables, 700, 512, 1300);
        let mut others = fill(&pool);
        let there = others.len();
        grow(&mut tables, 48, &mut || others_go && others.pop().is_some());
        assert_eq!(others.len() < there, others_go);
        let again = reached(&tables, 699);
        assert!(again + BACK >= 700, "{again} reached of a prompt of 700");
        let middle = reached(&tables, 1800);
        assert_eq!(middle > 1700, others_go, "{middle} reached of 1800");
    }
}

/// What a fork has too frees nothing: what is this session's own goes before it.
#[test]
#[cfg_attr(miri, ignore = "thousands of steps, of which histories have every kind")]
fn shared_ways_back_go_after_those_of_ones_own() {
    let pool = BlockPool::new(Heap, Some(40_000));
    let mut tables = open(&pool);
    turn(&mut tables, 700, 512, 1300);
    let _fork = tables.fork(2000).expect("it holds that many");
    grow(&mut tables, 1100, &mut || false);
    assert!(reached(&tables, 3000) > 2700);
    let _others = fill(&pool);
    grow(&mut tables, 48, &mut || false);
    assert!(reached(&tables, 3000) < 2700, "its own went");
    assert!(reached(&tables, 1800) > 1700, "the shared one is there");
}

#[test]
fn who_lets_go_keeps_nothing() {
    let pool = BlockPool::new(Heap, None);
    let mut tables = open(&pool);
    turn(&mut tables, 300, 100, 50);
    tables.let_go();
    assert_eq!((pool.in_use(), tables.bytes(), tables.len()), (0, 0, 350));
    append(&mut tables, &[1], StepPlace::default()).expect("no bound");
    assert_eq!(tables.held(), 351);
}

/// A heap of several memories, that knows what was asked of each.
#[derive(Clone, Default)]
struct Areas(Arc<Mutex<BTreeSet<(usize, usize)>>>);

impl Store for Areas {
    type Memory = Memory;

    fn allocate(&self, kind: BlockKind, most: usize) -> Option<Vec<Memory>> {
        self.0.lock().expect("nobody panics").insert((kind.area, kind.bytes));
        Heap.allocate(kind, most)
    }

    fn copy(&self, from: &Memory, to: &mut Memory) {
        Heap.copy(from, to);
    }

    fn save(&self, from: &Memory, take: &mut dyn FnMut(&[u8])) {
        Heap.save(from, take);
    }

    fn load(&self, bytes: &[u8], to: &mut Memory) {
        Heap.load(bytes, to);
    }
}

/// States, and rows since them, lie in the memory that is told of their cache, as blocks of rows do.
#[test]
fn each_cache_has_a_memory_of_its_own() {
    let store = Areas::default();
    let pool = BlockPool::new(store.clone(), None);
    let table = TableSpec { area: 1, ..TABLE };
    let states = [(0, STATES[0]), (2, STATES[1])];
    let states = states.map(|(area, spec)| StateSpec { area, ..spec });
    let mut tables = Tables::with_states(&pool, [table].into(), states.into(), CAPACITY, None);
    assert_eq!(&**tables.state_specs(), &states[..]);
    tables.prepare(100).expect("no bound");
    let rows = StateSpec::ROWS;
    let wanted = [(0, 512), (0, 8 * rows), (1, 64), (2, 8), (2, 32 * rows)];
    assert_eq!(*store.0.lock().expect("nobody panics"), wanted.into());
}
