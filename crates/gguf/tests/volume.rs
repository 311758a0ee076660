//! Files with very many small things: read in bounded time and memory. One test, so that the peak is its own.

use std::time::{Duration, Instant};

use gguf::Gguf;

/// Miri takes a thousand times as long: a part of all these, which shows the accesses if not the time.
const LESS: u64 = if cfg!(miri) { 2000 } else { 1 };

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn file(n_tensors: u64, n_pairs: u64) -> Vec<u8> {
    let mut out = b"GGUF\x03\0\0\0".to_vec();
    out.extend(n_tensors.to_le_bytes());
    out.extend(n_pairs.to_le_bytes());
    out
}

/// One pair with an array of `n` elements of type `ty`, each with these bytes.
fn array(ty: u32, n: u64, element: &[u8]) -> Vec<u8> {
    let mut out = file(0, 1);
    string(&mut out, "k");
    out.extend(9_u32.to_le_bytes());
    out.extend(ty.to_le_bytes());
    out.extend(n.to_le_bytes());
    out.extend(element.repeat(n as usize));
    out
}

fn pairs(n: u64) -> Vec<u8> {
    let mut out = file(0, n);
    for i in 0..n {
        string(&mut out, &i.to_string());
        out.extend([0, 0, 0, 0, 7]);
    }
    out
}

fn tensors(n: u64) -> Vec<u8> {
    let mut out = file(n, 0);
    for i in 0..n {
        string(&mut out, &format!("blk.{i}.unknown"));
        out.extend([1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        out.extend([0; 12]);
    }
    out.resize(out.len().next_multiple_of(32) + 4, 0);
    out
}

#[test]
fn bounded_time_and_memory() {
    let empty_array = [[0; 4], [0; 4], [0; 4]].concat();
    let cases: [(&str, Vec<u8>, Option<&str>); 8] = [
        ("12e6 u8", array(0, 12_000_000 / LESS, &[1]), None),
        ("10^6 empty arrays", array(9, 1_000_000 / LESS, &empty_array), None),
        ("10^6 empty strings", array(8, 1_000_000 / LESS, &[0; 8]), None),
        ("200,000 pairs", pairs(200_000 / LESS), None),
        ("10^6 pairs", pairs(1_000_000 / LESS), None),
        ("60,000 tensors", tensors(60_000 / LESS), None),
        ("200,000 tensors", tensors(200_000 / LESS), None),
        (
            "100,000 nested arrays",
            array(9, 100_000 / LESS, &[&9_u32.to_le_bytes()[..], &1_u64.to_le_bytes()].concat()),
            Some("deeper than 8"),
        ),
    ];
    for (name, bytes, fragment) in cases {
        let start = Instant::now();
        let result = Gguf::from_bytes(bytes);
        let time = start.elapsed();
        eprintln!("{name}: {time:?}");
        match (fragment, result) {
            (None, result) => drop(result.expect(name)),
            (Some(f), result) => assert!(result.expect_err(name).to_string().contains(f), "{name}"),
        }
        // A hundred times what it takes, for loaded machines.
        assert!(cfg!(miri) || time < Duration::from_secs(5), "{name}: {time:?}");
    }
    if cfg!(miri) {
        return; // the process is Miri
    }
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        let peak = status.lines().find_map(|l| {
            l.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok()
        });
        let peak = peak.expect("Linux shows it");
        eprintln!("peak {peak} KiB");
        assert!(peak < 300 * 1024, "peak {peak} KiB");
    }
}
