//! Stores and formats measured rates.

use planner::{
    AttentionRate, AttentionShape, LinearRate, MlaRate, MlaShape, Overheads, Rates, ScanRate,
    ScanShape,
};
use program::{CacheKind, CacheType, MlaDims, MlaForm, ScanDims, ScanRule};
use quant::GgmlType;
use serde::{Deserialize, Serialize};

use super::ceilings::NOISE;

/// Rates in the format of the file: times in seconds, types by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeptRates {
    linear: Vec<Linear>,
    attention: Vec<Attention>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    latent: Vec<Latent>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    scans: Vec<Scan>,
    step_seconds: f64,
    logit_seconds: f64,
    element_seconds: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Linear {
    r#type: String,
    /// Numbers of rows per pass that were measured.
    rows: Vec<u64>,
    /// Times per weight, for each number in `rows`.
    seconds_per_weight: Vec<f64>,
    phase_seconds: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Attention {
    n_heads: usize,
    n_kv_heads: usize,
    key_dim: usize,
    value_dim: usize,
    type_k: String,
    type_v: String,
    step_seconds: f64,
    position_seconds: f64,
    token_seconds: f64,
    pair_seconds: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Latent {
    n_heads: usize,
    rank: usize,
    nope_dim: usize,
    rope_dim: usize,
    value_dim: usize,
    type_k: String,
    step_seconds: f64,
    position_seconds: f64,
    /// Time per multiply-add of a prompt.
    elided_seconds: f64,
    compressed_seconds: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Scan {
    rule: String,
    n_heads: usize,
    n_key_heads: usize,
    key_dim: usize,
    value_dim: usize,
    by_turns: bool,
    by_row: bool,
    step_seconds: f64,
    /// Time per token of a prompt.
    token_seconds: f64,
}

/// Rounds to five significant digits. Measurements are not more precise, and these digits survive writing and reading.
fn rounded(seconds: f64) -> f64 {
    format!("{seconds:.4e}").parse().unwrap_or(seconds)
}

impl KeptRates {
    /// Converts rates to the format of the file.
    pub(crate) fn new(rates: &Rates) -> KeptRates {
        let linear = |rate: &LinearRate| Linear {
            r#type: rate.ty.name().to_owned(),
            rows: rate.points.iter().map(|(rows, _)| *rows).collect(),
            seconds_per_weight: rate.points.iter().map(|(_, s)| rounded(*s)).collect(),
            phase_seconds: rounded(rate.phase),
        };
        let attention = |rate: &AttentionRate| Attention {
            n_heads: rate.shape.n_heads,
            n_kv_heads: rate.shape.n_kv_heads,
            key_dim: rate.shape.key_dim,
            value_dim: rate.shape.value_dim,
            type_k: rate.shape.k.name().to_owned(),
            type_v: rate.shape.v.name().to_owned(),
            step_seconds: rounded(rate.step),
            position_seconds: rounded(rate.position),
            token_seconds: rounded(rate.token),
            pair_seconds: rounded(rate.pair),
        };
        let latent = |rate: &MlaRate| {
            let MlaDims { n_heads, rank, nope_dim, rope_dim, value_dim } = rate.shape.dims;
            Latent {
                n_heads,
                rank,
                nope_dim,
                rope_dim,
                value_dim,
                type_k: rate.shape.k.name().to_owned(),
                step_seconds: rounded(rate.step),
                position_seconds: rounded(rate.position),
                elided_seconds: rounded(rate.elided),
                compressed_seconds: rounded(rate.compressed),
            }
        };
        let scan = |rate: &ScanRate| {
            let ScanDims { n_heads, n_key_heads, key_dim, value_dim, by_turns } = rate.shape.dims;
            Scan {
                rule: rate.shape.rule.name().to_owned(),
                n_heads,
                n_key_heads,
                key_dim,
                value_dim,
                by_turns,
                by_row: rate.shape.by_row,
                step_seconds: rounded(rate.step),
                token_seconds: rounded(rate.token),
            }
        };
        let Overheads { step, logit, element } = rates.overheads;
        KeptRates {
            linear: rates.linear.iter().map(linear).collect(),
            attention: rates.attention.iter().map(attention).collect(),
            latent: rates.latent.iter().map(latent).collect(),
            scans: rates.scans.iter().map(scan).collect(),
            step_seconds: rounded(step),
            logit_seconds: rounded(logit),
            element_seconds: rounded(element),
        }
    }

    /// Returns the rates. Returns `None` if a name is unknown, a time is invalid, or rows do not ascend.
    pub(crate) fn rates(&self) -> Option<Rates> {
        let time = |seconds: f64| (seconds.is_finite() && seconds >= 0.0).then_some(seconds);
        let linear = |kept: &Linear| {
            let ascend = kept.rows.windows(2).all(|pair| pair[0] < pair[1]);
            let whole = ascend && kept.rows.first().is_some_and(|rows| *rows > 0);
            let lengths = kept.rows.len() == kept.seconds_per_weight.len();
            let points = kept.rows.iter().zip(&kept.seconds_per_weight);
            let points = points.map(|(rows, seconds)| {
                Some((*rows, time(*seconds).filter(|seconds| *seconds > 0.0)?))
            });
            let points = points.collect::<Option<Vec<_>>>().filter(|_| whole && lengths)?;
            let phase = time(kept.phase_seconds)?;
            Some(LinearRate { ty: GgmlType::from_name(&kept.r#type)?, points, phase })
        };
        let cache = |name: &str| CacheType::ALL.into_iter().find(|ty| ty.name() == name);
        let attention = |kept: &Attention| {
            let shape = AttentionShape {
                n_heads: kept.n_heads,
                n_kv_heads: kept.n_kv_heads,
                key_dim: kept.key_dim,
                value_dim: kept.value_dim,
                k: cache(&kept.type_k)?,
                v: cache(&kept.type_v)?,
            };
            Some(AttentionRate {
                shape,
                step: time(kept.step_seconds)?,
                position: time(kept.position_seconds)?,
                token: time(kept.token_seconds)?,
                pair: time(kept.pair_seconds)?,
            })
        };
        let latent = |kept: &Latent| {
            let Latent { n_heads, rank, nope_dim, rope_dim, value_dim, .. } = *kept;
            let dims = MlaDims { n_heads, rank, nope_dim, rope_dim, value_dim };
            Some(MlaRate {
                shape: MlaShape { dims, k: cache(&kept.type_k)? },
                step: time(kept.step_seconds)?,
                position: time(kept.position_seconds)?,
                elided: time(kept.elided_seconds)?,
                compressed: time(kept.compressed_seconds)?,
            })
        };
        let scan = |kept: &Scan| {
            let Scan { n_heads, n_key_heads, key_dim, value_dim, by_turns, by_row, .. } = *kept;
            let rule = ScanRule::ALL.into_iter().find(|rule| rule.name() == kept.rule)?;
            let dims = ScanDims { n_heads, n_key_heads, key_dim, value_dim, by_turns };
            Some(ScanRate {
                shape: ScanShape { rule, dims, by_row },
                step: time(kept.step_seconds)?,
                token: time(kept.token_seconds)?,
            })
        };
        Some(Rates {
            linear: self.linear.iter().map(linear).collect::<Option<_>>()?,
            attention: self.attention.iter().map(attention).collect::<Option<_>>()?,
            latent: self.latent.iter().map(latent).collect::<Option<_>>()?,
            scans: self.scans.iter().map(scan).collect::<Option<_>>()?,
            overheads: Overheads {
                step: time(self.step_seconds)?,
                logit: time(self.logit_seconds)?,
                element: time(self.element_seconds)?,
            },
        })
    }
}

/// Ceilings of all threads together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Top {
    /// Memory bandwidth in bytes per second.
    pub bytes: f64,
    /// Multiply-adds per second in f32.
    pub f32: f64,
    /// Multiply-adds per second in int8.
    pub int8: f64,
}

/// Formats a percentage of a ceiling. Blank if there is no ceiling, or if the figure exceeds it, since one of them must be
/// wrong.
fn share(reached: f64, ceiling: f64) -> String {
    match reached / ceiling {
        part if ceiling > 0.0 && (0.0..=NOISE).contains(&part) => {
            format!("{:3.0} %", 100.0 * part.min(1.0))
        }
        _ => "     ".into(),
    }
}

/// Formats a rate times `per_unit`, without decimals. A dash if it exceeds its ceiling.
fn rate(reached: f64, ceiling: f64, per_unit: f64) -> String {
    match is_above(reached, ceiling) {
        true => "-".into(),
        false => format!("{:.0}", per_unit * reached),
    }
}

/// Returns whether a figure exceeds its ceiling by more than measurement noise.
fn is_above(reached: f64, ceiling: f64) -> bool {
    ceiling > 0.0 && reached > NOISE * ceiling
}

/// Returns the compute ceiling for matrix products with weights of a type.
fn arithmetic(ty: GgmlType, top: &Top) -> f64 {
    if ty.block_len() == 1 { top.f32 } else { top.int8 }
}

/// Returns the weight types with a figure that exceeds its ceiling.
pub(crate) fn types_above(rates: &Rates, top: &Top) -> Vec<GgmlType> {
    let above = |rate: &&LinearRate| {
        is_above(rate.bytes_per_second(), top.bytes)
            || rate
                .points
                .iter()
                .any(|(rows, _)| is_above(rate.macs_per_second(*rows), arithmetic(rate.ty, top)))
    };
    rates.linear.iter().filter(above).map(|rate| rate.ty).collect()
}

/// Formats the rates by type and shape, with their percentages of the machine's ceilings, one line each.
pub(crate) fn lines(rates: &Rates, top: &Top) -> Vec<String> {
    let mut lines = Vec::new();
    if !rates.linear.is_empty() {
        lines.push(
            "matrices        1 row of limit        16 rows         512 rows of limit  chunk".into(),
        );
    }
    for linear in &rates.linear {
        let macs = |rows| linear.macs_per_second(rows);
        let (ty, bytes) = (linear.ty, linear.bytes_per_second());
        let products = |rows| rate(macs(rows), arithmetic(ty, top), 2e-9);
        let reading = match is_above(bytes, top.bytes) {
            true => "-".to_owned(),
            false => format!("{:.1}", 1e-9 * bytes),
        };
        lines.push(format!(
            "{:8} {reading:>7} GB/s {:>5} {:>8} GOP/s {:>10} GOP/s {:>5} {:6}",
            ty.name(),
            share(bytes, top.bytes),
            products(16),
            products(512),
            share(macs(512), arithmetic(ty, top)),
            linear.chunk(),
        ));
    }
    if !rates.attention.is_empty() {
        lines.push("attention                a step of limit           a prompt of limit".into());
    }
    for rate in &rates.attention {
        let s = &rate.shape;
        let bytes = rate.bytes_per_second();
        // a position is bound by reading it from memory or by multiplying it with every head
        let limit = (bytes * rate.position / top.bytes).max(s.macs() as f64 / top.f32);
        let cache = if s.k == s.v {
            s.k.name().to_owned()
        } else {
            format!("{}/{}", s.k.name(), s.v.name())
        };
        lines.push(format!(
            "{:>2}/{:<2} x {:<4}{cache:>10} {:6.1} GB/s {:>5} {:12.0} GFLOP/s {:>5}",
            s.n_heads,
            s.n_kv_heads,
            s.key_dim,
            1e-9 * bytes,
            share(limit, rate.position),
            2e-9 * rate.macs_per_second(),
            share(rate.macs_per_second(), top.f32),
        ));
    }
    if !rates.latent.is_empty() {
        lines.push("latent attention         a step                    a prompt".into());
    }
    for rate in &rates.latent {
        let MlaDims { n_heads, rank, .. } = rate.shape.dims;
        let kind = CacheKind::Latent { rank, rope_dim: rate.shape.dims.rope_dim };
        let bytes = kind.position_bytes(rate.shape.k, rate.shape.k) as f64 / rate.position;
        let form = |name: MlaForm, seconds: f64| format!("{} {:.0}", name.name(), 2e-9 / seconds);
        lines.push(format!(
            "{n_heads:>4} x {rank:<5}{:>10} {:6.1} GB/s       {}, {} GFLOP/s",
            rate.shape.k.name(),
            1e-9 * bytes,
            form(MlaForm::Compressed, rate.compressed),
            form(MlaForm::Elided, rate.elided),
        ));
    }
    if !rates.scans.is_empty() {
        lines.push("what recurs                                a step of limit           a prompt of limit".into());
    }
    for rate in &rates.scans {
        let ScanShape { rule, dims, by_row } = rate.shape;
        let keys = match (by_row, dims.n_key_heads < dims.n_heads) {
            (true, _) => " by rows".to_owned(),
            (false, true) => format!("/{}", dims.n_key_heads),
            (false, false) => String::new(),
        };
        let macs = (rule.products() * dims.elements()) as f64 / rate.token;
        lines.push(format!(
            "{:<35} {:6.1} GB/s {:>5} {:12.0} GFLOP/s {:>5}",
            format!(
                "{} {}{keys} x {} x {}",
                rule.name(),
                dims.n_heads,
                dims.key_dim,
                dims.value_dim
            ),
            1e-9 * rate.bytes_per_second(),
            share(rate.bytes_per_second(), top.bytes),
            2e-9 * macs,
            share(macs, top.f32),
        ));
    }
    let o = &rates.overheads;
    let micro = |seconds: f64| 1e6 * seconds;
    lines.push(format!(
        "a phase {:.1} us, a step {:.0} us beside its phases",
        micro(rates.phase()),
        micro(o.step)
    ));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates() -> Rates {
        let shape = AttentionShape {
            n_heads: 14,
            n_kv_heads: 2,
            key_dim: 64,
            value_dim: 64,
            k: CacheType::F16,
            v: CacheType::Q8_0,
        };
        let attention =
            AttentionRate { shape, step: 1e-6, position: 1e-8, token: 1e-7, pair: 1e-8 };
        let dims = MlaDims { n_heads: 16, rank: 512, nope_dim: 128, rope_dim: 64, value_dim: 128 };
        let latent = MlaRate {
            shape: MlaShape { dims, k: CacheType::F16 },
            step: 1e-5,
            position: 1.152e-7,
            elided: 1e-11,
            compressed: 2e-11,
        };
        let dims =
            ScanDims { n_heads: 16, n_key_heads: 8, key_dim: 128, value_dim: 64, by_turns: true };
        let shape = ScanShape { rule: ScanRule::Wkv7, dims, by_row: false };
        let scan = ScanRate { shape, step: 2e-5, token: 1e-5 };
        let points = vec![(1, 2e-11), (512, 3e-9)];
        Rates {
            linear: vec![LinearRate { ty: GgmlType::Q4K, points, phase: 2e-6 }],
            attention: vec![attention],
            latent: vec![latent],
            scans: vec![scan],
            overheads: Overheads { step: 1e-5, logit: 1e-10, element: 1e-9 },
        }
    }

    #[test]
    fn rates_are_kept_as_measured_and_nonsense_is_refused() {
        let text = serde_json::to_string(&KeptRates::new(&rates())).expect("plain numbers");
        let back: KeptRates = serde_json::from_str(&text).expect("what was written");
        assert_eq!(back.rates(), Some(rates()));
        let broken = |change: fn(&mut KeptRates)| {
            let mut kept = back.clone();
            change(&mut kept);
            kept.rates()
        };
        assert_eq!(broken(|kept| kept.step_seconds = f64::NAN), None);
        assert_eq!(broken(|kept| kept.linear[0].r#type = "Q99".into()), None);
        assert_eq!(broken(|kept| kept.linear[0].rows = vec![8, 1]), None);
        assert_eq!(broken(|kept| kept.linear[0].rows = vec![1]), None);
        assert_eq!(broken(|kept| kept.latent[0].type_k = "q99".into()), None);
        assert_eq!(broken(|kept| kept.scans[0].rule = "wkv9".into()), None);
        assert_eq!(broken(|kept| kept.scans[0].token_seconds = -1.0), None);
        assert_eq!(broken(|kept| kept.attention[0].pair_seconds = -1.0), None);
    }

    #[test]
    fn lines_name_types_and_shapes() {
        let top = Top { bytes: 56.2e9, f32: 1e12, int8: 341e9 };
        let text = lines(&rates(), &top).join("\n");
        for part in [
            "Q4_K        28.1 GB/s  50 %",
            "341 GOP/s  50 %",
            "14/2  x 64    f16/q8_0",
            "16 x 512         f16   10.0 GB/s       compressed 100, elided 200 GFLOP/s",
            "wkv7 16/8 x 128 x 64                  26.2 GB/s  47 %          131 GFLOP/s   7 %",
            "a phase 2.0 us",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // a figure within the noise is 100 % of its ceiling; a figure above it is not shown
        let near = lines(&rates(), &Top { bytes: 27.5e9, ..top }).join("\n");
        assert!(near.contains("Q4_K        28.1 GB/s 100 %"), "{near}");
        let low = Top { bytes: 9e9, f32: 1e9, int8: 1e9 };
        assert_eq!(types_above(&rates(), &top), []);
        assert_eq!(types_above(&rates(), &low), [GgmlType::Q4K]);
        let text = lines(&rates(), &low).join("\n");
        assert!(text.contains("Q4_K           - GB/s") && text.contains(" - GOP/s"), "{text}");
        for word in text.split_whitespace().collect::<Vec<_>>().windows(2) {
            assert!(word[1] != "%" || word[0].parse::<f64>().is_ok_and(|n| n <= 100.0), "{text}");
        }
    }
}
