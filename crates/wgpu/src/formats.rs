//! How weights of each type lie on the device, and the text of the shaders that read them.
//!
//! Planes, each a buffer or a part of one: the low bits of codes, their high bits where four or two are not enough, then
//! `d` of the blocks and the scales of groups. `pack.rs` writes them, `kernels/weights.wgsl` reads them 16 weights at a time.

use program::ProductType;
use quant::formats::{
    BlockIq3S, BlockIq4Nl, BlockIq4Xs, BlockMxfp4, BlockQ2K, BlockQ3K, BlockQ4_0, BlockQ4_1,
    BlockQ4K, BlockQ5_0, BlockQ5_1, BlockQ5K, BlockQ6K, BlockQ8_0, BlockTq1_0, BlockTq2_0,
};
use quant::{Block, GgmlType, Values};

use crate::pack::{PackRow, pack_bf16, pack_blocks, pack_f16, pack_f32};

const F32_PRODUCTS: &str = include_str!("kernels/products/f32.wgsl");
const F16_PRODUCTS: &str = include_str!("kernels/products/f16.wgsl");
const INT8_PRODUCTS: &str = include_str!("kernels/products/int8.wgsl");
/// How activations are scaled before they are rounded.
pub(crate) const SCALING: &str = include_str!("kernels/products/scaling.wgsl");

/// Weights that a kernel takes at a time; rows are filled up to these with zeros.
pub(crate) const CHUNK: usize = 32;

/// How codes lie in the low plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Low {
    /// No codes: f32.
    F32,
    /// f16.
    F16,
    /// bf16.
    Bf16,
    /// Codes of so many bits: 2, 4 or 8.
    Bits(u32),
}

/// How the factor of a block is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Factor {
    /// None: plain numbers.
    None,
    /// f16, two in a word.
    Half,
    /// f16 beside the factor of mins: a word.
    HalfAndMin,
    /// The exponent of a power of two, four in a word.
    Exponent,
}

/// A weight type on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceFormat {
    /// The type.
    pub(crate) ty: GgmlType,
    /// The plane of low bits.
    pub(crate) low: Low,
    /// Bits of a code in the plane of high bits: 0, 1 or 2.
    pub(crate) high: u32,
    /// Weights in a block; 1 for plain numbers.
    pub(crate) block: usize,
    /// Weights that share a scale; as `block` if blocks have but one.
    pub(crate) group: usize,
    /// The factor of blocks.
    pub(crate) factor: Factor,
    /// Whether a min is subtracted.
    pub(crate) has_min: bool,
    /// How codes become numbers; `None` for plain numbers.
    values: Option<Values>,
    /// Writes a row into the planes.
    pub(crate) pack: PackRow,
}

const fn of<B: Block>() -> DeviceFormat {
    let low = match B::BITS {
        2 | 3 => 2,
        4..=6 => 4,
        _ => 8,
    };
    let factor = match (B::TY, B::HAS_MIN) {
        (GgmlType::Mxfp4, _) => Factor::Exponent,
        (_, true) => Factor::HalfAndMin,
        (_, false) => Factor::Half,
    };
    DeviceFormat {
        ty: B::TY,
        low: Low::Bits(low),
        high: B::BITS.saturating_sub(low),
        block: B::LEN,
        group: B::GROUP,
        factor,
        has_min: B::HAS_MIN,
        values: Some(B::VALUES),
        pack: pack_blocks::<B>,
    }
}

const fn plain(ty: GgmlType, low: Low, pack: PackRow) -> DeviceFormat {
    DeviceFormat {
        ty,
        low,
        high: 0,
        block: 1,
        group: 1,
        factor: Factor::None,
        has_min: false,
        values: None,
        pack,
    }
}

/// Every type that matrices may have here.
pub(crate) static FORMATS: &[DeviceFormat] = &[
    plain(GgmlType::F32, Low::F32, pack_f32),
    plain(GgmlType::F16, Low::F16, pack_f16),
    plain(GgmlType::Bf16, Low::Bf16, pack_bf16),
    of::<BlockQ4_0>(),
    of::<BlockQ4_1>(),
    of::<BlockQ5_0>(),
    of::<BlockQ5_1>(),
    of::<BlockQ8_0>(),
    of::<BlockQ2K>(),
    of::<BlockQ3K>(),
    of::<BlockQ4K>(),
    of::<BlockQ5K>(),
    of::<BlockQ6K>(),
    of::<BlockIq4Nl>(),
    of::<BlockIq4Xs>(),
    of::<BlockIq3S>(),
    of::<BlockTq1_0>(),
    of::<BlockTq2_0>(),
    of::<BlockMxfp4>(),
];

/// The form of a type, if it has one.
pub(crate) fn device_format(ty: GgmlType) -> Option<&'static DeviceFormat> {
    FORMATS.iter().find(|format| format.ty == ty)
}

/// Words that a row takes in each plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowWords {
    /// Chunks of [`CHUNK`] weights, the last one filled up.
    pub(crate) chunks: usize,
    /// Low bits, or plain numbers.
    pub(crate) low: usize,
    /// High bits.
    pub(crate) high: usize,
    /// Factors of blocks.
    pub(crate) factors: usize,
    /// Scales of groups, and factors of their mins.
    pub(crate) scales: usize,
}

impl RowWords {
    /// Bytes of a row in all planes.
    pub(crate) fn bytes(&self) -> usize {
        4 * (self.low + self.high + self.factors + self.scales)
    }
}

impl DeviceFormat {
    /// What a row of `cols` weights takes.
    pub(crate) fn row_words(&self, cols: usize) -> RowWords {
        let chunks = cols.div_ceil(CHUNK);
        let bits = match self.low {
            Low::F32 => 32,
            Low::F16 | Low::Bf16 => 16,
            Low::Bits(bits) => bits as usize,
        };
        let (blocks, groups) = (cols.div_ceil(self.block), cols.div_ceil(self.group));
        let factors = match self.factor {
            Factor::None => 0,
            Factor::Half => blocks.div_ceil(2),
            Factor::HalfAndMin => blocks,
            Factor::Exponent => blocks.div_ceil(4),
        };
        let scales = if self.has_scales() {
            groups.div_ceil(4) * if self.has_min { 2 } else { 1 }
        } else {
            0
        };
        RowWords { chunks, low: chunks * bits, high: chunks * self.high as usize, factors, scales }
    }

    /// Whether groups have scales of their own.
    pub(crate) fn has_scales(&self) -> bool {
        self.group < self.block
    }

    /// Whether there are such products with its weights: what is rounded to few bits are codes, which are exact in these.
    pub(crate) fn multiplies(&self, product: ProductType) -> bool {
        product == ProductType::F32 || self.values.is_some()
    }

    /// What `kernels/weights.wgsl` leaves open for such products, by name.
    pub(crate) fn substitutions(&self, product: ProductType) -> [(&'static str, String); 5] {
        let products = match product {
            ProductType::F32 => F32_PRODUCTS.to_owned(),
            ProductType::F16 => [SCALING, F16_PRODUCTS].concat(),
            ProductType::Int8 => [SCALING, INT8_PRODUCTS].concat(),
        };
        [
            ("PRODUCTS", products),
            ("HAS_MIN", self.has_min.to_string()),
            ("VALUES", self.values_text(product)),
            ("CODES", self.codes_text()),
            ("SCALE", self.scale_text()),
        ]
    }

    /// From four codes in a word to numbers.
    fn values_text(&self, product: ProductType) -> String {
        let Some(values) = self.values else { return "vec4(0.0)".into() };
        // integers, and what is subtracted from them
        let (integers, zero) = match values {
            Values::Linear { zero } => ("unpack4xU8(packed)".to_owned(), zero),
            Values::Table(table) => {
                let words = table.as_chunks::<4>().0.iter().map(|four| {
                    let word = u32::from_le_bytes(four.map(i8::cast_unsigned));
                    format!("{word:#010x}u")
                });
                (format!("tabled(packed, vec4({}))", Vec::from_iter(words).join(", ")), 0)
            }
        };
        let float = |ty: &str, suffix: &str| match zero {
            0 => format!("vec4<{ty}>({integers})"),
            zero => format!("vec4<{ty}>({integers}) - {zero}.0{suffix}"),
        };
        match (product, values) {
            (ProductType::F32, _) => float("f32", ""),
            (ProductType::F16, _) => float("f16", "h"),
            (ProductType::Int8, Values::Table(_)) => format!("pack4xI8({integers})"),
            (ProductType::Int8, Values::Linear { zero: 0 }) => "packed".into(),
            // 128 less is the other sign
            (ProductType::Int8, Values::Linear { zero: 128 }) => "packed ^ 0x80808080u".into(),
            // codes of at most 7 bits: no byte borrows of the next one
            (ProductType::Int8, Values::Linear { zero }) => {
                let zeros = u32::from_le_bytes([zero; 4]);
                format!("((packed | 0x80808080u) - {zeros:#010x}u) ^ 0x80808080u")
            }
        }
    }

    /// 16 weights from the planes.
    fn codes_text(&self) -> String {
        let quads = match self.low {
            Low::F32 => (0..4)
                .map(|i| format!("bitcast<vec4<f32>>(low[8u * chunk + 4u * half + {i}u])"))
                .collect(),
            Low::F16 => pairs(|word| format!("unpack2x16float({word})")),
            Low::Bf16 => pairs(|word| {
                format!("vec2(bitcast<f32>({word} << 16u), bitcast<f32>({word} & 0xffff0000u))")
            }),
            Low::Bits(bits) => self.quads_of_codes(bits),
        };
        let before = match self.low {
            Low::F32 => String::new(),
            Low::F16 | Low::Bf16 => "    let a = low[4u * chunk + 2u * half];\n    let b = low[4u * chunk + 2u * half + 1u];\n".into(),
            Low::Bits(8) => "    let a = low[2u * chunk + half];\n".into(),
            Low::Bits(4) => "    let both = low[chunk];\n    let a = select(both.xy, both.zw, half == 1u);\n".into(),
            Low::Bits(_) => "    let both = low[chunk / 2u];\n    let pair = select(both.xy, both.zw, (chunk & 1u) == 1u);\n    let a = select(pair.x, pair.y, half == 1u);\n".into(),
        };
        let high = match self.high {
            0 => "",
            // a chunk's word: of each byte the low half is the first 16 weights
            1 => "    let h = high[chunk] >> (4u * half);\n",
            _ => "    let h = high[2u * chunk + half];\n",
        };
        format!("{before}{high}    return Codes({});", quads.join(", "))
    }

    fn quads_of_codes(&self, bits: u32) -> Vec<String> {
        let quad = |i: u32| {
            let low = match bits {
                8 => format!("a[{i}]"),
                4 => format!("((a[{}] >> {}u) & 0x0f0f0f0fu)", i / 2, 4 * (i % 2)),
                _ => format!("((a >> {}u) & 0x03030303u)", 2 * i),
            };
            let high = match self.high {
                0 => String::new(),
                1 => format!(" | (((h >> {i}u) & 0x01010101u) << {bits}u)"),
                _ => format!(" | (((h >> {}u) & 0x03030303u) << {bits}u)", 2 * i),
            };
            format!("number4({low}{high})")
        };
        (0..4).map(quad).collect()
    }

    /// The scale and the min of 16 weights.
    fn scale_text(&self) -> String {
        // the number of the block or the group of half a chunk
        let index = |len: usize| match len {
            16 => "2u * chunk + half".to_owned(),
            CHUNK => "chunk".to_owned(),
            len => format!("chunk / {}u", len / CHUNK),
        };
        if self.block == 1 {
            return "    return vec2(1.0, 0.0);".into();
        }
        let (block, group) = (index(self.block), index(self.group));
        let factor = match self.factor {
            Factor::None => "    let d = vec2(1.0, 0.0);\n".to_owned(),
            Factor::Half => format!(
                "    let block = {block};\n    \
                 let d = vec2(half_of(scales[row * c.d_stride + block / 2u], block), 0.0);\n"
            ),
            Factor::HalfAndMin => {
                format!("    let d = unpack2x16float(scales[row * c.d_stride + {block}]);\n")
            }
            Factor::Exponent => format!(
                "    let block = {block};\n    \
                 let e = (scales[row * c.d_stride + block / 4u] >> (8u * (block & 3u))) & 0xffu;\n    \
                 let d = vec2(bitcast<f32>((max(e, 1u) - 1u) << 23u), 0.0);\n"
            ),
        };
        let scaled = match (self.has_scales(), self.has_min) {
            (false, _) => "    return d;".to_owned(),
            (true, false) => format!(
                "    let group = {group};\n    \
                 return vec2(d.x * signed_byte(scales[c.s_base + row * c.s_stride + group / 4u], group), 0.0);"
            ),
            (true, true) => format!(
                "    let group = {group};\n    \
                 let words = c.s_base + row * c.s_stride + group / 4u * 2u;\n    \
                 return d * vec2(signed_byte(scales[words], group), unsigned_byte(scales[words + 1u], group));"
            ),
        };
        factor + &scaled
    }
}

/// Four quads of two pairs, from the eight words of `a` and `b`.
fn pairs(pair: impl Fn(&str) -> String) -> Vec<String> {
    let quad = |words: [&str; 2]| format!("vec4({}, {})", pair(words[0]), pair(words[1]));
    [["a.x", "a.y"], ["a.z", "a.w"], ["b.x", "b.y"], ["b.z", "b.w"]].map(quad).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_weight_type_has_a_form() {
        for format in quant::FORMATS {
            assert!(device_format(format.ty()).is_some(), "{}", format.ty());
        }
    }

    /// What a type takes on the device, beside what it takes in the file.
    #[test]
    fn planes_take_little_more_than_the_file() {
        for format in FORMATS {
            let cols = 4096;
            let device = 8.0 * format.row_words(cols).bytes() as f64 / cols as f64;
            let file = format.ty.bits_per_weight();
            let more = match format.ty {
                // ternary digits become two bits, grid indices four
                GgmlType::Tq1_0 => 0.4,
                GgmlType::Iq3S => 0.9,
                // scales of 4 or 6 bits become bytes
                GgmlType::Q2K | GgmlType::Q3K => 0.51,
                _ => 0.13,
            };
            assert!(device - file <= more, "{}: {device} bits, {file} in the file", format.ty);
        }
    }
}
