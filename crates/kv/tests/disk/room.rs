//! A disk with room for so many pages, however many that are: what has none is told, what was there stays, and what comes when
//! there is room again is kept.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use kv::{
    BlockPool, ContentKey, DiskError, DiskLayer, Error, Heap, RecordMedium, SessionStore,
    SessionStoreOptions,
};

use crate::full::{check_filled, filled};

/// What has room on a disk, and what has it.
#[derive(Default)]
struct Room {
    most: usize,
    pages: BTreeSet<u64>,
}

/// A file on it. Of what is written the pages are written that have room.
struct Limited(Box<dyn RecordMedium>, Arc<Mutex<Room>>);

impl Limited {
    fn free(&self, pages: Range<u64>) {
        let mut room = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        room.pages.retain(|page| !pages.contains(page));
    }
}

impl RecordMedium for Limited {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut room = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        for (page, bytes) in (offset / 4096..).zip(bytes.chunks(4096)) {
            if !room.pages.contains(&page) && room.pages.len() >= room.most {
                return Err(io::ErrorKind::StorageFull.into());
            }
            room.pages.insert(page);
            self.0.write_all_at(bytes, page * 4096)?;
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }

    fn cut(&self, bytes: u64) -> io::Result<()> {
        self.free(bytes / 4096..u64::MAX);
        self.0.cut(bytes)
    }

    fn punch(&self, bytes: Range<u64>) -> io::Result<()> {
        self.free(bytes.start / 4096..bytes.end / 4096);
        self.0.punch(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

/// Blocks of a session, and bytes of each: with its header one takes three pages.
const SHAPE: (usize, usize) = (5, 6000);
const PAGES: usize = 3 * SHAPE.0;

#[test]
fn whatever_room_there_is_nothing_is_lost() {
    let (key, pool) = (ContentKey::default(), BlockPool::new(Heap, None));
    let (mut kept, mut refused, mut went) = (0, 0, 0);
    for more in 0..=PAGES + 1 {
        for lets_go in [false, true] {
            let dir = tempfile::tempdir().expect("a temporary folder can be made");
            let room = Arc::new(Mutex::new(Room { most: usize::MAX, ..Room::default() }));
            let shared = Arc::clone(&room);
            let layer = DiskLayer::new(move |file| Box::new(Limited(file, Arc::clone(&shared))));
            let limit = |most| room.lock().unwrap_or_else(PoisonError::into_inner).most = most;
            let options = SessionStoreOptions { max_bytes: None, lets_go };
            let open = || SessionStore::open_over(dir.path(), options, &layer).expect("it opens");
            let store = open();
            let keep = |store: &SessionStore, name: &str, fill| {
                let tables = filled(&pool, SHAPE, fill);
                store.keep((name, &key), &tables, &[], &|| true).map(|kept| kept.let_go)
            };
            assert_eq!(keep(&store, "old", 1), Ok(0));
            let fits = more >= PAGES;
            limit(PAGES + more);
            let mut names = vec!["new", "old"];
            match keep(&store, "new", 2) {
                Ok(0) => {
                    assert!(fits, "{more}");
                    kept += 1;
                }
                // the old one went for it
                Ok(1) => {
                    assert!(lets_go && !fits, "{more}");
                    names.pop();
                    went += 1;
                }
                Err(Error::Disk(DiskError::NoSpace { .. })) => {
                    assert!(!lets_go && !fits, "{more}");
                    names.remove(0);
                    refused += 1;
                }
                other => panic!("{other:?}"),
            }
            let check = |store: &SessionStore, names: &[&str]| {
                let mut found = store.names();
                found.sort_unstable();
                assert_eq!(found, names, "{more}");
                names.iter().for_each(|name| {
                    check_filled(store, name, SHAPE, if *name == "old" { 1 } else { 2 });
                });
            };
            check(&store, &names);
            drop(store);
            check(&open(), &names);
            // with room again all are kept
            limit(usize::MAX);
            let store = open();
            assert_eq!(keep(&store, "new", 2), Ok(0));
            assert_eq!(keep(&store, "old", 1), Ok(0));
            check(&store, &["new", "old"]);
        }
    }
    testing::covered(&format!("{kept} kept, {refused} refused, {went} in place of another"));
    assert_eq!((kept, refused, went), (4, PAGES, PAGES));
}
