//! Hunyuan, dense or with experts beside a shared one, and Maincoder: norms on the heads of q and k behind the rotation.
//!
//! Source: arXiv:2411.02265, section 2.2; tensor names of GGUF's `hunyuan-dense`, `hunyuan_vl`, `hunyuan-moe`, `maincoder`.

use gguf::Value;
use program::{RopePairs, RopeScaling};

use super::attention::{HeadNorm, Heads};
use super::decoder::{Norms, blocks};
use super::{Architecture, ffn};
use crate::Error;
use crate::config::experts::{self, Silent, Width};
use crate::config::read;

pub(super) const ROTATED: Heads = Heads { norm: HeadNorm::Rotated, ..Heads::PLAIN };

pub(super) static HUNYUAN_DENSE: Architecture = Architecture {
    name: "hunyuan-dense",
    config: |keys| read::dense(keys, RopePairs::HalfSplit),
    record: |r, w, c| blocks(r, w, c, Norms::PRE, ROTATED, ffn::feed),
};

/// The text part of Hunyuan-VL. Pairs of the last section of the rotation stand for what text has not, and do not turn,
/// as llama.cpp runs it.
pub(super) static HUNYUAN_VL: Architecture = Architecture {
    name: "hunyuan_vl",
    config: |keys| {
        let mut c = read::dense(keys, RopePairs::HalfSplit)?;
        const SECTIONS: &str = "rope.dimension_sections";
        if let Some(Value::Array(sections)) = keys.get(SECTIONS) {
            let add = |sum: u32, n: Value<'_>| sum.checked_add(u32::try_from(n.as_u64()?).ok()?);
            let pairs = sections.iter().take(3).try_fold(0, add);
            let pairs = pairs.filter(|_| sections.len() == 4).ok_or_else(|| {
                Error::key(&keys.name(SECTIONS), "four counts of pairs", "something else")
            })?;
            for rope in c.layers.iter_mut().flat_map(|layer| &mut layer.rope) {
                if rope.scaling == RopeScaling::None && (pairs as usize) < rope.dims / 2 {
                    rope.scaling = RopeScaling::First { pairs };
                }
            }
        }
        Ok(c)
    },
    ..HUNYUAN_DENSE
};

pub(super) static MAINCODER: Architecture = Architecture {
    name: "maincoder",
    config: |keys| read::dense(keys, RopePairs::Interleaved),
    ..HUNYUAN_DENSE
};

pub(super) static HUNYUAN_MOE: Architecture = Architecture {
    name: "hunyuan-moe",
    config: |keys| {
        let mut c = read::decoder(keys, RopePairs::HalfSplit)?;
        experts::read(keys, &mut c, &Silent { width: Width::OfDense, ..Silent::NORMALIZED })?;
        Ok(c)
    },
    ..HUNYUAN_DENSE
};
