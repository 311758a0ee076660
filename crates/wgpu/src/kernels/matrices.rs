//! Products of many rows as matrices that the lanes of a subgroup have together ("cooperative", "simdgroup" or "tensor core"
//! operations), where a device has such of a size and type that there is a kernel for.

use program::ProductType;
use quant::GgmlType;

use super::{MATMAT_TILE, Shader};
use crate::formats::{DeviceFormat, Low};

/// Lanes of a workgroup.
const LANES: u32 = 64;

/// Matrices of a device: so many rows, columns and products summed up; sums are of f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Matrices {
    pub(crate) side: u32,
    /// Most lanes of a subgroup.
    pub(crate) lanes: u32,
    /// Plain arithmetic stands for them, so that all that is around them can be tried where there are none.
    #[cfg(test)]
    pub(crate) played: bool,
}

impl Matrices {
    /// Such matrices.
    pub(crate) fn new(side: u32, lanes: u32) -> Matrices {
        Matrices {
            side,
            lanes,
            #[cfg(test)]
            played: false,
        }
    }

    /// Whether weights of a type are numbers of such a one, or near to some: f32 may be out of the range of f16.
    pub(crate) fn suit(format: &DeviceFormat, product: ProductType) -> bool {
        match product {
            ProductType::F32 => true,
            ProductType::F16 => format.ty != GgmlType::F32,
            ProductType::Int8 => false,
        }
    }

    /// What weights that become f16 are multiplied with: plain ones are as they are.
    pub(super) fn boost(format: &DeviceFormat) -> &'static str {
        if matches!(format.low, Low::Bits(_)) { "64.0" } else { "1.0" }
    }

    /// Whether subgroups suit larger tiles ([`super::WIDE`]) of numbers of such a type.
    pub(crate) fn suit_wide(self, product: ProductType) -> bool {
        #[cfg(test)]
        if self.played {
            return false;
        }
        product == ProductType::F16 && (self.side, self.lanes) == (16, 32)
    }

    /// What `kernels/tiles/matrices.wgsl` leaves open.
    pub(super) fn put_into(self, shader: Shader, format: &DeviceFormat, f16: bool) -> Shader {
        let Matrices { side, lanes, .. } = self;
        let across = MATMAT_TILE as u32 / side;
        let all = across * across;
        let subgroups = (LANES / lanes.clamp(1, LANES)).min(all);
        let boost = if f16 { Matrices::boost(format) } else { "1.0" };
        let number = if f16 { "f16" } else { "f32" };
        let texts = self.operations(number);
        shader
            .with("SIDE", side.to_string())
            .with("ACROSS", across.to_string())
            .with("OWN", (all / subgroups).to_string())
            .with("SUBGROUPS", subgroups.to_string())
            .with("IS_ROUNDED", f16.to_string())
            .with("BOOST", boost)
            .with("NUMBER", number)
            .with("SUM", texts[0].clone())
            .with("BEGIN", texts[1].clone())
            .with("MULTIPLY", texts[2].clone())
            .with("STORE", texts[3].clone())
            .with("LOOP", self.loops())
    }

    /// The type of a matrix of sums, how one begins, how products are added to it, and how it is put down.
    fn operations(self, number: &str) -> [String; 4] {
        let Matrices { side, .. } = self;
        #[cfg(test)]
        if self.played {
            return played(side, self.lanes);
        }
        let ty = |number: &str, role: &str| format!("coop_mat{side}x{side}<{number}, {role}>");
        let (a, b, sum) = (ty(number, "A"), ty(number, "B"), ty("f32", "C"));
        // rows of activations, rows of weights, and rows of sums lie one after another: as for weights, these are columns
        let begin = format!("sums[i] = coopLoadT<{sum}>(&tile_sums[first], PITCH);");
        let multiply = format!(
            "let a = coopLoadT<{a}>(&tile_x[at_x], PITCH);
            let b = coopLoad<{b}>(&tile_w[at_w], PITCH);
            sums[i] = coopMultiplyAdd(a, b, sums[i]);"
        );
        [sum, begin, multiply, "coopStoreT(sums[i], &tile_sums[to], PITCH);".into()]
    }

    /// What a kernel wants to know of the subgroups of its workgroup, and how it says which it is in.
    pub(super) fn who(self) -> (&'static str, String) {
        #[cfg(test)]
        if self.played {
            return ("", format!("thread / {}u", self.lanes));
        }
        ("@builtin(subgroup_id) subgroup: u32,", "subgroup".into())
    }

    /// How short loops begin.
    fn loops(self) -> &'static str {
        #[cfg(test)]
        if self.played {
            return "{";
        }
        "{ // unrolled"
    }
}

/// Each of so many lanes of a subgroup has some numbers of a matrix of sums.
#[cfg(test)]
fn played(side: u32, lanes: u32) -> [String; 4] {
    let n = side * side / lanes;
    let each = |text: &str| {
        format!(
            "for (var e = 0u; e < {n}u; e++) {{
                let row = (thread % {lanes}u * {n}u + e) / SIDE;
                let column = (thread % {lanes}u * {n}u + e) % SIDE;
                {text}
            }}"
        )
    };
    let multiply = "for (var j = 0u; j < SIDE; j++) {
        sums[i][e] += f32(tile_x[at_x + row * PITCH + j]) * f32(tile_w[at_w + column * PITCH + j]);
    }";
    let begin = each("sums[i][e] = tile_sums[first + row * PITCH + column];");
    let store = each("tile_sums[to + row * PITCH + column] = sums[i][e];");
    [format!("array<f32, {n}>"), begin, each(multiply), store]
}
