//! Kernels as tests: every instruction against plain Rust, control flow, and faults.

mod control;
mod faults;
mod floats;
mod integers;
mod matrices;
mod modules;

use std::sync::Arc;

use crate::device_memory::DeviceMemory;
use crate::exec::{Fault, Launch, Options, launch};
use crate::ptx;

/// Buffer of a test: contents, or only a size in words.
#[derive(Clone, Debug)]
enum Buffer {
    Words(Vec<u32>),
    Unwritten(usize),
}

/// Header and end of a kernel `main` with `n` buffers, whose addresses are in `%b0`, `%b1`...
fn kernel(n: usize, body: &str) -> String {
    let params: Vec<String> = (0..n).map(|i| format!(".param .u64 p{i}")).collect();
    let loads: Vec<String> = (0..n).map(|i| format!("ld.param.u64 %b{i}, [p{i}];\n")).collect();
    format!(
        ".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry main({})\n{{\n\
         .reg .pred %p<16>; .reg .b16 %h<16>; .reg .b32 %r<64>; .reg .b64 %d<16>; .reg .b64 %b<8>;\n\
         {}{body}\nret;\n}}\n",
        params.join(", "),
        loads.concat()
    )
}

/// Executes `main`; the buffers afterwards. Words that were never written read as 0.
fn run_with(
    text: &str,
    [grid, block]: [[u32; 3]; 2],
    buffers: &[Buffer],
    options: &Options,
) -> Result<Vec<Vec<u32>>, Fault> {
    let kernels = ptx::load(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut memory = DeviceMemory::new(1 << 30);
    let mut addresses = Vec::new();
    for buffer in buffers {
        let words = match buffer {
            Buffer::Words(words) => words.len(),
            Buffer::Unwritten(words) => *words,
        };
        let address = memory.allocate(words as u64 * 4).expect("fits");
        if let Buffer::Words(words) = buffer {
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            let (allocation, at) = memory.range(address, bytes.len() as u64).expect("is live");
            allocation.write(at, &bytes);
        }
        addresses.push((address, words));
    }
    let params = addresses.iter().flat_map(|a| a.0.to_le_bytes()).collect();
    let work = Launch { kernel: Arc::clone(&kernels[0]), grid, block, dynamic_shared: 0, params };
    launch(&work, &memory, options, 0)?;
    let read = |&(address, words): &(u64, usize)| {
        let (allocation, at) = memory.range(address, words as u64 * 4).expect("is live");
        (0..words as u64).map(|i| allocation.word(at + i * 4)).collect()
    };
    Ok(addresses.iter().map(read).collect())
}

/// As `run_with`, one block of these threads.
fn run(text: &str, threads: u32, buffers: &[Buffer]) -> Result<Vec<Vec<u32>>, Fault> {
    run_with(text, [[1, 1, 1], [threads, 1, 1]], buffers, &Options::default())
}

/// Small generator of random numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }
}

/// Values at the edges of integers and floats.
const EDGES: [u32; 40] = [
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    15,
    16,
    31,
    32,
    33,
    63,
    64,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0x8000,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0x8000_0001,
    0xffff_fffe,
    0xffff_ffff,
    0x3f80_0000,
    0xbf80_0000,
    0x3f00_0000,
    0x3fc0_0000,
    0x4020_0000,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0x0080_0000,
    0x4f00_0000,
    0xcf00_0000,
    0x4f80_0000,
    0x477f_e000,
];

/// Inputs: pairs of edges, then random bits, then random floats of moderate size.
fn inputs() -> [Vec<u32>; 3] {
    let mut numbers = Numbers(7);
    let mut out = [Vec::new(), Vec::new(), Vec::new()];
    for &a in &EDGES {
        for &b in &EDGES {
            out[0].push(a);
            out[1].push(b);
            let pick = numbers.next() as usize % EDGES.len();
            out[2].push(EDGES[pick]);
        }
    }
    for _ in 0..1500 {
        for values in &mut out {
            values.push(numbers.next());
        }
    }
    for _ in 0..1500 {
        for values in &mut out {
            let value = (numbers.next() as f32 / 4_294_967_296.0 - 0.5) * 64.0;
            values.push(value.to_bits());
        }
    }
    out
}

/// Checks an instruction: `%r1`, `%r2`, `%r3` are inputs, `%r4` and `%r5` results; `want` gives
/// what they must be, bit by bit.
fn check2(code: &str, want: impl Fn(u32, u32, u32) -> [u32; 2]) {
    let inputs = inputs();
    let n = inputs[0].len();
    // Threads of the last warp are missing.
    let block = 250;
    let blocks = n.div_ceil(block);
    let body = format!(
        "mov.u32 %r10, %ctaid.x; mov.u32 %r11, %tid.x; mad.lo.u32 %r12, %r10, {block}, %r11;
         setp.ge.u32 %p15, %r12, {n}; @%p15 ret;
         mul.wide.u32 %d10, %r12, 4;
         add.u64 %d11, %b0, %d10; ld.global.b32 %r1, [%d11];
         add.u64 %d12, %b1, %d10; ld.global.nc.b32 %r2, [%d12];
         add.s64 %d13, %b2, %d10; ld.global.f32 %r3, [%d13+0];
         mov.b32 %r5, 0;
         {code}
         mad.wide.u32 %d14, %r12, 8, %b3; st.global.v2.b32 [%d14], {{%r4, %r5}};"
    );
    let buffers = [
        Buffer::Words(inputs[0].clone()),
        Buffer::Words(inputs[1].clone()),
        Buffer::Words(inputs[2].clone()),
        Buffer::Unwritten(2 * n),
    ];
    let grid = [blocks as u32, 1, 1];
    let sizes = [grid, [block as u32, 1, 1]];
    let portable = Options { portable: true, ..Options::default() };
    let [out, again] = [Options::default(), portable].map(|options| {
        run_with(&kernel(4, &body), sizes, &buffers, &options)
            .unwrap_or_else(|fault| panic!("{code}: {}", fault.text))
    });
    assert!(out == again, "{code}: results differ with vector instructions");
    for i in 0..n {
        let [a, b, c] = [0, 1, 2].map(|j| inputs[j][i]);
        let want = want(a, b, c);
        for (j, want) in want.into_iter().enumerate() {
            let found = out[3][2 * i + j];
            assert!(
                found == want,
                "{code} of {a:#x}, {b:#x}, {c:#x}: {found:#x}, not {want:#x} (%r{})",
                4 + j
            );
        }
    }
}

/// Checks an instruction with one result, bit by bit.
fn check(code: &str, want: impl Fn(u32, u32, u32) -> u32) {
    check2(code, |a, b, c| [want(a, b, c), 0]);
}

/// Checks an instruction whose result is a float: every NaN becomes the canonical one.
fn check_float(code: &str, want: impl Fn(f32, f32, f32) -> f32) {
    check(code, |a, b, c| {
        let value = want(f32::from_bits(a), f32::from_bits(b), f32::from_bits(c));
        if value.is_nan() { 0x7fff_ffff } else { value.to_bits() }
    });
}

/// Predicate `%p1` as a result.
fn predicate(code: &str) -> String {
    format!("{code} selp.b32 %r4, 1, 0, %p1;")
}
