//! A process that is killed at any moment, or in the middle of a write: the next one finds what was kept before or after,
//! whole, and nothing else.

use std::io::{self, BufRead, BufReader, Write};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kv::{BlockStore, ContentKey, DiskError, DiskOptions, RecordId, RecordMedium};
use rustix::process::{Signal, getpid, kill_process};
use testing::{Dice, mutations};

use crate::block;

/// Where a killed process works.
const DIR: &str = "KV_KILLED_IN";
/// In which change of its file it dies, and after how many 256ths of that; if not, somebody kills it.
const DIES: &str = "KV_DIES_AT";

/// What is kept: a version, and the length and seed of each block.
#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    version: u64,
    blocks: Vec<(u64, u64)>,
}

impl State {
    fn note(&self) -> Vec<u8> {
        let blocks = self.blocks.iter().flat_map(|(len, seed)| [*len, *seed]);
        [self.version].into_iter().chain(blocks).flat_map(u64::to_le_bytes).collect()
    }

    fn of(note: &[u8]) -> State {
        let (numbers, _) = note.as_chunks();
        let numbers: Vec<u64> = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let (blocks, _) = numbers[1..].as_chunks();
        State {
            version: numbers[0],
            blocks: blocks.iter().map(|[len, seed]| (*len, *seed)).collect(),
        }
    }
}

/// A file beneath a process that dies while it changes it.
struct Dies {
    file: Box<dyn RecordMedium>,
    /// Changes until then.
    left: AtomicU64,
    /// How much of the last one is made, in 256ths.
    part: u64,
}

impl Dies {
    /// Above a file, as the environment says.
    fn over(file: Box<dyn RecordMedium>) -> Box<dyn RecordMedium> {
        let Ok(at) = std::env::var(DIES) else { return file };
        let (left, part) = at.split_once(' ').expect("two numbers");
        let number = |text: &str| text.parse().expect("a number");
        Box::new(Dies { file, left: AtomicU64::new(number(left)), part: number(part) })
    }

    /// Make a change, or the given part of it and no more.
    fn change(&self, make: impl FnOnce(u64) -> io::Result<()>) -> io::Result<()> {
        if self.left.fetch_sub(1, Ordering::SeqCst) > 1 {
            return make(256);
        }
        let _ = make(self.part);
        kill_process(getpid(), Signal::KILL).expect("one may kill oneself");
        loop {
            std::thread::park();
        }
    }

    /// Something that is done as a whole, or not.
    fn whole(&self, make: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.change(|part| if part < 128 { Ok(()) } else { make() })
    }
}

impl RecordMedium for Dies {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let part = |part| bytes.len() * part as usize / 256;
        self.change(|made| self.file.write_all_at(&bytes[..part(made)], offset))
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn cut(&self, bytes: u64) -> io::Result<()> {
        self.whole(|| self.file.cut(bytes))
    }

    fn punch(&self, bytes: Range<u64>) -> io::Result<()> {
        self.whole(|| self.file.punch(bytes))
    }

    fn sync(&self) -> io::Result<()> {
        self.whole(|| self.file.sync())
    }
}

const KEPT: DiskOptions = DiskOptions {
    max_bytes: None,
    queue_bytes: 32 << 20,
    ahead_bytes: 32 << 20,
    readers: 4,
    direct: true,
    keep: true,
};

fn open(dir: &Path) -> BlockStore {
    BlockStore::open(dir, KEPT).expect("it opens")
}

/// What is kept in a store, every byte of it checked.
fn state(store: &BlockStore) -> (State, Vec<RecordId>) {
    let kept = match store.restore("state", &ContentKey::default()) {
        Ok(kept) => kept,
        Err(DiskError::Vanished { .. }) => return Default::default(),
        Err(other) => panic!("{other}"),
    };
    let state = State::of(&kept.note);
    assert_eq!(kept.ids.len(), state.blocks.len());
    for (id, (len, seed)) in kept.ids.iter().zip(&state.blocks) {
        assert_eq!(*store.take(*id).expect("it is whole"), block(*len as usize, *seed));
    }
    (state, kept.ids)
}

/// What is killed: it keeps version after version, says so, and writes what is not kept all the while.
#[test]
#[ignore = "what other tests start and kill"]
fn writer() {
    let dir = std::env::var_os(DIR).expect("started by another test");
    let dir = Path::new(&dir);
    let store = BlockStore::open_with(dir, KEPT, Dies::over).expect("it opens");
    let (mut state, mut ids) = state(&store);
    let tell = |version| writeln!(std::io::stdout(), "\nkept {version}").expect("somebody listens");
    tell(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let store = BlockStore::open(dir, DiskOptions::default()).expect("it opens");
            for seed in 0.. {
                let id = store.put(&block(50_000, seed)).expect("there is room");
                if seed % 3 > 0 {
                    store.free(id).expect("it is held");
                }
            }
        });
        loop {
            state.version += 1;
            let mut dice = Dice::new(state.version);
            for i in 0..1 + dice.below(5) as u64 {
                let (len, seed) = (dice.below(60_000) as u64, state.version * 10 + i);
                ids.push(store.put(&block(len as usize, seed)).expect("there is room"));
                state.blocks.push((len, seed));
            }
            while ids.len() > 20 {
                let gone = dice.below(ids.len());
                state.blocks.remove(gone);
                store.free(ids.remove(gone)).expect("it is held");
            }
            let kept = store.keep("state", &ContentKey::default(), &ids, &state.note());
            kept.expect("there is room");
            tell(state.version);
        }
    });
}

/// How a writer ends.
#[derive(Clone, Copy)]
enum End {
    /// It is killed so long after its so-manieth line.
    Killed { lines: usize, after: Duration },
    /// It dies in such a change of its file, after so many 256ths of it.
    Dies { change: usize, part: usize },
}

/// Start the writer and have it end; the last version that it said was kept.
fn kill_one(dir: &Path, end: End) -> Option<u64> {
    let mut command = Command::new(std::env::current_exe().expect("this test is a program"));
    command.args(["--exact", "kills::writer", "--ignored", "--nocapture"]).env(DIR, dir);
    if let End::Dies { change, part } = end {
        command.env(DIES, format!("{change} {part}"));
    }
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let out = BufReader::new(child.stdout.take().expect("it was asked for"));
    let told = out.lines().map_while(Result::ok);
    let mut told = told.filter_map(|line| line.strip_prefix("kept ")?.parse().ok());
    let mut before = None;
    if let End::Killed { lines, after } = end {
        before = told.by_ref().take(lines).last();
        std::thread::sleep(after);
        child.kill().expect("it runs until it is killed");
    }
    let last = told.last();
    let status = child.wait().expect("it was started");
    assert_eq!(status.code(), None, "it ran until it was killed");
    last.or(before).filter(|version| *version > 0)
}

#[test]
fn nothing_wrong_is_found_after_kills() {
    let dir = tempfile::tempdir().expect("a temporary folder can be made");
    let mut dice = Dice::new(1);
    let (mut swept, mut between, mut versions) = (0, 0, 0);
    let kills = mutations(200);
    let mut before = State::default();
    for kill in 0..kills {
        let end = if kill % 2 == 0 {
            // before it has opened the store, just after, and after some versions
            let lines = dice.below(10).min(3);
            End::Killed { lines, after: Duration::from_micros(dice.bits() % 20_000) }
        } else {
            End::Dies { change: 1 + dice.below(40), part: dice.below(257) }
        };
        let told = kill_one(dir.path(), end);
        let store = open(dir.path());
        let (found, ids) = state(&store);
        let told = told.unwrap_or(before.version);
        assert!(
            found.version == told || found.version == told + 1,
            "kill {kill}: version {told} was told, {} is there",
            found.version
        );
        between += u64::from(found.version > told);
        versions += found.version - before.version;
        if found.version == before.version {
            assert_eq!(found, before);
        }
        // no page is lost, no file is left
        let pages = |len: &u64| 4096 + len.next_multiple_of(4096);
        let stats = store.stats();
        assert_eq!(stats.bytes, found.blocks.iter().map(|(len, _)| pages(len)).sum::<u64>());
        swept += stats.swept_folders;
        ids.into_iter().for_each(|id| store.free(id).expect("it is held"));
        let entries = std::fs::read_dir(dir.path()).expect("it is there").flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.sort_unstable();
        let is_left =
            |name: &std::ffi::OsString| name != "rooflight-kept" && name != ".rooflight-lock";
        assert_eq!(names.iter().find(|name| is_left(name)), None, "kill {kill}");
        before = found;
    }
    testing::covered(&format!(
        "{kills} kills: {versions} versions kept, {between} times the one not told yet, {swept} folders swept"
    ));
    assert!(versions > kills / 4 && swept as u64 > kills / 4, "most kills met it at work");
}
