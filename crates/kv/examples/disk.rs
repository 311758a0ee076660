//! What a `BlockStore` does on a disk, beside what the disk does by itself:
//! `cargo run --release -p rooflight-kv --example disk -- FOLDER [KIB of a block] [MIB in all]`.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use kv::{BlockStore, DiskOptions, Heap, HostMemory, RecordId, Store};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Threads that read at once, as many as read ahead.
const READERS: usize = 4;

/// How much is written and read, and how.
#[derive(Clone, Copy)]
struct Work {
    n: usize,
    bytes: usize,
    direct: bool,
}

impl Work {
    /// Do something with all bytes, and print its rate.
    fn rate(&self, what: &str, act: impl FnOnce() -> Outcome<()>) -> Outcome<()> {
        let since = Instant::now();
        act()?;
        let mb = (self.n * self.bytes) as f64 / 1e6;
        Ok(writeln!(io::stdout(), "  {what:<34}{:>8.0} MB/s", mb / since.elapsed().as_secs_f64())?)
    }

    /// All blocks, in an order that no disk foresees.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.n).collect();
        order.sort_unstable_by_key(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        order
    }
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let dir = Path::new(args.first().ok_or("which folder?")?);
    let number = |at: usize, usual: usize| args.get(at).map_or(Ok(usual), |text| text.parse());
    let (bytes, mib) = (number(1, 64)? << 10, number(2, 512)?);
    for direct in [true, false] {
        let work = Work { n: (mib << 20) / bytes, bytes, direct };
        let how = if direct { "past" } else { "through" };
        writeln!(
            io::stdout(),
            "{} blocks of {} KiB {how} the system's cache",
            work.n,
            bytes >> 10
        )?;
        plain(dir, work)?;
        store(dir, work)?;
    }
    Ok(())
}

/// The same bytes without a store.
fn plain(dir: &Path, work: Work) -> Outcome<()> {
    let path = dir.join("plain");
    let flags = if work.direct { rustix::fs::OFlags::DIRECT } else { rustix::fs::OFlags::empty() };
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true);
    let file = options.custom_flags(flags.bits().cast_signed()).open(&path)?;
    let memory = || buffer(work.bytes).ok_or("no memory");
    let at = |i: usize| (i * work.bytes) as u64;
    work.rate("plain writes, synced", || {
        let mut buffer = memory()?;
        buffer.page().fill(0x5A);
        (0..work.n).try_for_each(|i| file.write_all_at(buffer.page(), at(i)))?;
        Ok(file.sync_data()?)
    })?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    let order = work.order();
    work.rate("plain reads, one at a time", || {
        let mut buffer = memory()?;
        Ok(order.iter().try_for_each(|i| file.read_exact_at(buffer.page(), at(*i)))?)
    })?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    work.rate("plain reads, four at a time", || {
        let next = AtomicUsize::new(0);
        let read = || -> io::Result<()> {
            let mut buffer = memory().map_err(io::Error::other)?;
            while let Some(i) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                file.read_exact_at(buffer.page(), at(*i))?;
            }
            Ok(())
        };
        let read = &read;
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(read)).collect();
            readers.into_iter().try_for_each(|r| r.join().expect("a reader does not panic"))
        })?;
        Ok(())
    })?;
    Ok(std::fs::remove_file(path)?)
}

/// Memory that begins at a page.
struct Aligned {
    memory: <Heap as Store>::Memory,
    first: usize,
    bytes: usize,
}

fn buffer(bytes: usize) -> Option<Aligned> {
    let memory = Heap.allocate(kv::BlockKind::of(bytes + 4096), 1)?.pop()?;
    let first = memory.bytes().as_ptr().align_offset(4096);
    Some(Aligned { memory, first, bytes })
}

impl Aligned {
    fn page(&mut self) -> &mut [u8] {
        &mut self.memory.bytes_mut()[self.first..][..self.bytes]
    }
}

fn store(dir: &Path, work: Work) -> Outcome<()> {
    let options = DiskOptions { direct: work.direct, readers: READERS, ..DiskOptions::default() };
    let store = BlockStore::open(dir, options)?;
    let mut block: Vec<u8> = (0..work.bytes).map(|i| (i * 31 % 251) as u8).collect();
    let mut ids: Vec<RecordId> = Vec::new();
    work.rate("put and flush", || {
        for i in 0..work.n {
            block[i % work.bytes] ^= 1;
            ids.push(store.put(&block)?);
        }
        Ok(store.flush()?)
    })?;
    let order: Vec<RecordId> = work.order().into_iter().map(|i| ids[i]).collect();
    work.rate("get", || Ok(order.iter().try_for_each(|id| store.get(*id, &mut block))?))?;
    // as attention would: what comes next is asked for while this is used
    let ahead = (options.ahead_bytes / 2 / (work.bytes + 4096)).max(1);
    work.rate("read ahead and take", || {
        let chunks: Vec<&[RecordId]> = order.chunks(ahead).collect();
        store.read_ahead(chunks[0]);
        for (i, chunk) in chunks.iter().enumerate() {
            if let Some(next) = chunks.get(i + 1) {
                store.read_ahead(next);
            }
            for id in *chunk {
                black_box(store.take(*id)?.first());
            }
        }
        Ok(())
    })?;
    Ok(writeln!(io::stdout(), "  {:?}", store.stats())?)
}
