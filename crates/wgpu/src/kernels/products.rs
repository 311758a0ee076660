//! Shaders of products, by what an adapter multiplies fastest.

use program::ProductType;

use super::{
    Abilities, GROUPED, MATMAT, MATVEC, Matrices, PIECES, ROUNDED, Shader, TeamShape, WIDE,
    sum_lanes,
};
use crate::formats::{DeviceFormat, SCALING};

const TEAMS_MEMORY: &str = include_str!("teams/memory.wgsl");
const TEAMS_SUBGROUPS: &str = include_str!("teams/subgroups.wgsl");
const QUADS: &str = include_str!("tiles/quads.wgsl");
const SIXTEENS: &str = include_str!("tiles/sixteens.wgsl");
const MATRICES: &str = include_str!("tiles/matrices.wgsl");

impl Shader {
    /// Up to `at_once` rows times a matrix of this type.
    pub(crate) fn matvec(format: &DeviceFormat, at_once: usize, shape: TeamShape) -> Shader {
        Shader::new(&MATVEC)
            .with("X", "vec4<f32>")
            .multiplying(format, shape.product)
            .in_teams(at_once, shape)
    }

    /// Any number of rows times a matrix of this type.
    pub(crate) fn matmat(format: &DeviceFormat, shape: TeamShape, able: Abilities) -> Shader {
        Shader::new(&MATMAT).with("X", "vec4<f32>").in_tiles(format, shape, able)
    }

    /// Rows of activations as larger tiles take them.
    pub(crate) fn rounded(cols: usize) -> Shader {
        Shader::new(&ROUNDED).with("LANES", sum_lanes(cols))
    }

    /// Many rows times a matrix of this type, in larger tiles.
    pub(crate) fn wide(format: &DeviceFormat) -> Shader {
        Shader::new(&WIDE)
            .of_weights(format)
            .with("X", "vec4<f16>")
            .with("BOOST", Matrices::boost(format))
    }

    /// Up to `at_once` rows times pieces of a matrix of this type.
    pub(crate) fn pieces(format: &DeviceFormat, at_once: usize, shape: TeamShape) -> Shader {
        Shader::new(&PIECES).multiplying(format, shape.product).in_teams(at_once, shape)
    }

    fn in_teams(self, at_once: usize, shape: TeamShape) -> Shader {
        let TeamShape { rows, teams, lanes, subgroups, .. } = shape;
        let (teamwork, lane, thread) = match subgroups {
            true => (
                TEAMS_SUBGROUPS,
                "@builtin(subgroup_id) subgroup: u32, @builtin(subgroup_size) width: u32, \
                 @builtin(subgroup_invocation_id) within: u32,",
                "subgroup * width + within",
            ),
            false => (TEAMS_MEMORY, "@builtin(local_invocation_index) index: u32,", "index"),
        };
        let shader = self.with("TEAMWORK", teamwork).with("LANE", lane).with("THREAD", thread);
        let sums = rows * at_once;
        let numbers = [
            ("AT_ONCE", at_once),
            ("ROWS", rows),
            ("TEAM", lanes),
            ("TEAMS", teams),
            ("SUMS", sums),
        ];
        numbers.into_iter().fold(shader, |shader, (name, n)| shader.with(name, n.to_string()))
    }

    fn in_tiles(self, format: &DeviceFormat, shape: TeamShape, able: Abilities) -> Shader {
        let product = shape.product;
        let matrices = able.matrices(product).filter(|_| shape.subgroups);
        let (lane, who) = matrices.map_or(("", "0u".into()), Matrices::who);
        let shader = self.with("LANE", lane).with("WHO", who);
        match (matrices, product) {
            (Some(matrices), _) => {
                let shader = shader.with("TILES", [SCALING, MATRICES].concat());
                let f16 = product == ProductType::F16;
                matrices.put_into(shader, format, f16).of_weights(format)
            }
            (None, ProductType::F32) => shader.with("TILES", QUADS).of_weights(format),
            (None, _) => shader.with("TILES", SIXTEENS).multiplying(format, product),
        }
    }

    /// Many rows times the pieces of a matrix of this type that they chose.
    pub(crate) fn grouped(format: &DeviceFormat, shape: TeamShape, able: Abilities) -> Shader {
        Shader::new(&GROUPED).in_tiles(format, shape, able)
    }
}
