//! What the article says beside its tables, counted: the head's share, FLOP for each byte, queries kept or computed
//! again, memory of the weights.

use super::{ArticleModel, ArticleTable, ArticleValue, FAMILY, WEIGHT_BITS};
use crate::devices::DEVICES;
use crate::formula::{Head, ModelShape, Units};
use crate::predict::Resource;

/// Tables of what the article says without one, in its order.
pub fn beside(units: Units) -> Vec<ArticleTable> {
    vec![heads(), machines(), models(units), queries(), weights(units)]
}

fn columns<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}

/// Section 3.1: the head "takes more than 30 % of 0.5B and less than 2 % of 72B".
fn heads() -> ArticleTable {
    let shares = |m: &ArticleModel| {
        let p = m.shape.parameters();
        let of = |all: u64| ArticleValue::Part(p.head as f64 / all as f64);
        (m.name, vec![of(p.active()), of(p.total())])
    };
    ArticleTable {
        section: "3.1-head",
        title: "Share of the output head",
        of: "model",
        columns: columns(["of what is active", "of the total"]),
        note: "The embedding is not active: of it a token reads one row. The article's 30 % and 2 % are of what is active.",
        rows: FAMILY.iter().map(shares).collect(),
    }
}

/// What section 4.2 prints of machines.
const BALANCES: [(&str, &str); 3] =
    [("H100 SXM", "147:1 f32; 590:1 FP8"), ("RTX 4090", "82:1 f32"), ("Ryzen 9 7950X", "40:1 f32")];

/// Section 4.2: FLOP that a machine does in the time in which its memory yields a byte.
fn machines() -> ArticleTable {
    let kinds = [Resource::F32, Resource::Bf16, Resource::F16, Resource::Int8];
    let rows = DEVICES.iter().map(|device| {
        let balance = device.machine.balance();
        let of = |kind| balance.iter().find(|(of, _)| *of == kind).map_or(f64::NAN, |(_, x)| *x);
        let printed = BALANCES.iter().find(|(name, _)| *name == device.name);
        let printed = ArticleValue::Printed(printed.map_or("", |(_, text)| text));
        let values = kinds.map(|kind| ArticleValue::PerByte(of(kind)));
        (device.name, values.into_iter().chain([printed]).collect())
    });
    ArticleTable {
        section: "4.2-machines",
        title: "FLOP per byte of machines",
        of: "machine",
        columns: columns(["f32", "bf16", "f16", "int8", "the article"]),
        note: "Arithmetic in the time in which memory yields a byte, by makers' figures; f32 as TF32 where matrix units have \
               it, int8 as FP8. Work that needs fewer FLOP per byte waits for memory.",
        rows: rows.collect(),
    }
}

/// Depth of the steps, tokens of the prompt, in the table of models.
const DEPTH: u64 = 4096;
const PROMPT: u64 = 512;

/// Section 4.2: FLOP that a model does for each byte it reads.
fn models(units: Units) -> ArticleTable {
    let row = |m: &ArticleModel| {
        let values = WEIGHT_BITS.into_iter().flat_map(|bits| {
            let roof = m.roofline(units, bits);
            let step = |n| roof.step_flop(n) / (roof.step_read(n) * roof.bandwidth);
            let read = roof.prefill_read(PROMPT) * roof.bandwidth;
            let prompt = roof.prefill_flop(PROMPT, Head::LastToken) / read;
            [step(1), step(DEPTH), prompt].map(ArticleValue::PerByte)
        });
        (m.name, values.collect())
    };
    let names = |bits: u32| {
        let of = |what: &str| format!("w{bits}kv16 {what}");
        [of("step"), of("step at 4096"), of("prompt of 512")]
    };
    ArticleTable {
        section: "4.2-models",
        title: "FLOP per byte of models",
        of: "model",
        columns: WEIGHT_BITS.into_iter().flat_map(names).collect(),
        note: "A step does 2 FLOP for each weight it reads, of 2 bytes in 16 bits, whatever the model: fewer than any machine \
               above has. A prompt shares each weight among its tokens; attention reads the cache for every query.",
        rows: FAMILY.iter().map(row).collect(),
    }
}

/// Queries that read the cache together where they are computed again, as our attention does.
const TILE: u64 = 64;

/// Section 4.3: queries are kept between their matrix and attention, or computed again within it.
fn queries() -> ArticleTable {
    let row = |m: &ArticleModel| {
        let ModelShape { hidden_size, n_heads, head_dim, .. } = m.shape;
        let width = n_heads * head_dim;
        let (kept, matrix) = (2 * PROMPT * width, 2 * (hidden_size + 1) * width);
        // reads of the matrix beyond the one that both need
        let again = |tile: u64| (PROMPT.div_ceil(tile) - 1) * matrix;
        let bytes = [matrix, kept, 2 * kept, again(1), again(TILE)];
        let equal = matrix as f64 / (2 * 2 * width) as f64;
        let values = bytes.into_iter().map(|n| ArticleValue::Bytes(n as f64));
        (m.name, values.chain([ArticleValue::Rows(equal)]).collect())
    };
    ArticleTable {
        section: "4.3-queries",
        title: "Queries of a prompt of 512: kept, or computed again",
        of: "model",
        columns: columns([
            "q_proj",
            "kept: memory",
            "kept: moved",
            "again: moved",
            "again by 64: moved",
            "equal at",
        ]),
        note: "One layer, all in 16 bits. Kept, queries take memory, are written and read once. Computed within attention they \
               take none, but q_proj is read again for each query, or for each tile of 64. Both grow with the prompt, so its \
               length decides nothing; equal at: queries that would have to share a read of q_proj, about half of hidden_size. \
               Rooflight keeps them, of one chunk at a time.",
        rows: FAMILY.iter().map(row).collect(),
    }
}

/// Section 6.1.1 as printed: model, theory in GB, file, memory of the RTX 4090 in use.
const MEMORY: [(&str, [&str; 3]); 8] = [
    ("0.5B", ["1.15GB", "1.24GB", "1.07GB"]),
    ("1.8B", ["3.42GB", "3.67GB", "3.83GB"]),
    ("4B", ["7.36GB", "7.9GB", "8.01GB"]),
    ("7B", ["14.38GB", "15.45GB", "14.88GB"]),
    ("14B", ["26.39GB", "28.34GB", "oom"]),
    ("32B", ["60.56GB", "65.04GB", "oom"]),
    ("72B", ["134.64GB", "144.47GB", "oom"]),
    ("110B", ["207.14GB", "222.39GB", "oom"]),
];

/// Section 6.1.1: what the weights in bfloat16 should take, take on disk, and took in memory.
fn weights(units: Units) -> ArticleTable {
    let row = |(name, printed): (&'static str, [&'static str; 3])| {
        let model = FAMILY.iter().find(|m| m.name == name)?;
        let bytes = |shape: ModelShape| 2.0 * shape.parameters().total() as f64;
        let theory = bytes(model.shape) / units.giga(1.0);
        let file = bytes(ModelShape { norms: true, ..model.shape }) / 1e9;
        let [a, b, c] = printed.map(ArticleValue::Printed);
        let total = ArticleValue::Giga(theory / 2.0);
        let [theory, file] = [theory, file].map(ArticleValue::Gigabytes);
        Some((name, vec![total, theory, a, file, b, c]))
    };
    ArticleTable {
        section: "6.1.1",
        title: "Memory of the weights in bfloat16",
        of: "model",
        columns: columns([
            "total",
            "theory",
            "printed theory",
            "file",
            "printed file",
            "measured by the article",
        ]),
        note: "Theory: the total without norms. File: with norms, in powers of ten as files are counted; that is the article's \
               own difference between the two. Measured with Transformers on an RTX 4090, in powers of two; there 0.5B, whose \
               head is its embedding, has one table. `rooflight-lab memory` measures models here.",
        rows: MEMORY.into_iter().filter_map(row).collect(),
    }
}
