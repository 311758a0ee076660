//! The kernels: what each binds, and how its text is put together from the files in `kernels/`.

mod bodies;
pub(crate) mod ceiling;
mod finish;
mod matrices;
mod products;
pub(crate) mod recurrence;
mod shape;
#[cfg(test)]
mod translated;
mod unroll;

pub(crate) use bodies::{element, group, lists};
pub(crate) use finish::Finish;
pub(crate) use matrices::Matrices;
use program::{CacheType, ProductType};
pub(crate) use shape::{Abilities, Shapes, TeamShape};

use crate::formats::DeviceFormat;
use crate::plan::RouteWork;

/// A kernel: a family of shaders with the same bindings. Binding 0 has its constants, binding 1 the step.
#[derive(Debug)]
pub(crate) struct ShaderKernel {
    /// Its name, and that of its file.
    pub(crate) name: &'static str,
    /// The files it is put together from.
    parts: &'static [&'static str],
    /// Buffers that it reads, from binding 2 on.
    pub(crate) reads: u32,
    /// Buffers that it writes, after those.
    pub(crate) writes: u32,
}

const STEP: &str = include_str!("kernels/step.wgsl");
const ACTS: &str = include_str!("kernels/acts.wgsl");
const FINISH: &str = include_str!("kernels/finish.wgsl");
const WEIGHTS: &str = include_str!("kernels/weights.wgsl");
const LINEAR: &str = include_str!("kernels/linear.wgsl");
const TEAMS: &str = include_str!("kernels/teams.wgsl");
const SLOTS_TEXT: &str = include_str!("kernels/slots.wgsl");
const SUMS: &str = include_str!("kernels/sums.wgsl");
const CACHED: &str = include_str!("kernels/cached.wgsl");

/// Few rows times a matrix.
pub(crate) static MATVEC: ShaderKernel = ShaderKernel {
    name: "matvec",
    parts: &[STEP, ACTS, FINISH, WEIGHTS, LINEAR, TEAMS, include_str!("kernels/matvec.wgsl")],
    reads: 6,
    writes: 1,
};

/// Many rows times a matrix.
pub(crate) static MATMAT: ShaderKernel = ShaderKernel {
    name: "matmat",
    parts: &[STEP, ACTS, FINISH, WEIGHTS, LINEAR, include_str!("kernels/matmat.wgsl")],
    reads: 6,
    writes: 1,
};

/// Rows as larger tiles take them.
pub(crate) static ROUNDED: ShaderKernel = ShaderKernel {
    name: "rounded",
    parts: &[STEP, SUMS, include_str!("kernels/rounded.wgsl")],
    reads: 1,
    writes: 1,
};

/// Many rows times a matrix, in larger tiles.
pub(crate) static WIDE: ShaderKernel = ShaderKernel {
    name: "wide",
    parts: &[STEP, ACTS, FINISH, WEIGHTS, LINEAR, include_str!("kernels/wide.wgsl")],
    reads: 6,
    writes: 1,
};

/// Rows of a table.
pub(crate) static EMBED: ShaderKernel = ShaderKernel {
    name: "embed",
    parts: &[STEP, WEIGHTS, include_str!("kernels/embed.wgsl")],
    reads: 3,
    writes: 1,
};

/// The same, and their norms.
pub(crate) static EMBED_NORMED: ShaderKernel = ShaderKernel {
    name: "embed_normed",
    parts: &[STEP, WEIGHTS, SUMS, include_str!("kernels/embed_normed.wgsl")],
    reads: 4,
    writes: 2,
};

/// Element by element.
pub(crate) static ROWS: ShaderKernel = ShaderKernel {
    name: "rows",
    parts: &[STEP, ACTS, FINISH, include_str!("kernels/rows.wgsl")],
    reads: 3,
    writes: 1,
};

/// Group by group.
pub(crate) static GROUPS: ShaderKernel = ShaderKernel {
    name: "groups",
    parts: &[STEP, SUMS, include_str!("kernels/groups.wgsl")],
    reads: 3,
    writes: 1,
};

/// Rotation and cache.
pub(crate) static KEYS: ShaderKernel = ShaderKernel {
    name: "keys",
    parts: &[STEP, CACHED, SUMS, include_str!("kernels/keys.wgsl")],
    reads: 4,
    writes: 2,
};

/// Attention.
pub(crate) static ATTEND: ShaderKernel = ShaderKernel {
    name: "attend",
    parts: &[STEP, ACTS, CACHED, include_str!("kernels/attend.wgsl")],
    reads: 4,
    writes: 2,
};

/// Attention's stretches joined.
pub(crate) static COMBINE: ShaderKernel = ShaderKernel {
    name: "combine",
    parts: &[STEP, include_str!("kernels/combine.wgsl")],
    reads: 2,
    writes: 1,
};

/// A row times pieces of a matrix, turned.
pub(crate) static TURNED: ShaderKernel = ShaderKernel {
    name: "turned",
    parts: &[STEP, WEIGHTS, include_str!("kernels/turned.wgsl")],
    reads: 4,
    writes: 1,
};

/// Rotation and latents into the cache.
pub(crate) static LATENTS: ShaderKernel = ShaderKernel {
    name: "latents",
    parts: &[STEP, CACHED, include_str!("kernels/latents.wgsl")],
    reads: 4,
    writes: 2,
};

/// The choice of experts.
pub(crate) static ROUTE: ShaderKernel = ShaderKernel {
    name: "route",
    parts: &[STEP, ACTS, SUMS, include_str!("kernels/route.wgsl")],
    reads: 2,
    writes: 1,
};

/// A row times pieces of a matrix.
pub(crate) static PIECES: ShaderKernel = ShaderKernel {
    name: "pieces",
    parts: &[STEP, ACTS, FINISH, WEIGHTS, SLOTS_TEXT, TEAMS, include_str!("kernels/pieces.wgsl")],
    reads: 6,
    writes: 1,
};

/// Many rows times the pieces that they chose.
pub(crate) static GROUPED: ShaderKernel = ShaderKernel {
    name: "grouped",
    parts: &[STEP, ACTS, FINISH, WEIGHTS, SLOTS_TEXT, include_str!("kernels/grouped.wgsl")],
    reads: 6,
    writes: 1,
};

/// Which rows each expert has.
pub(crate) static SORTED: ShaderKernel = ShaderKernel {
    name: "sorted",
    parts: &[STEP, include_str!("kernels/sorted.wgsl")],
    reads: 1,
    writes: 1,
};

/// The weighted sum of experts.
pub(crate) static MIXED: ShaderKernel = ShaderKernel {
    name: "mixed",
    parts: &[STEP, WEIGHTS, include_str!("kernels/mixed.wgsl")],
    reads: 6,
    writes: 1,
};

/// The likeliest tokens.
pub(crate) static BEST: ShaderKernel = ShaderKernel {
    name: "best",
    parts: &[STEP, include_str!("kernels/best.wgsl")],
    reads: 1,
    writes: 1,
};

/// Logits of single tokens.
pub(crate) static TOLD: ShaderKernel = ShaderKernel {
    name: "told",
    parts: &[STEP, include_str!("kernels/told.wgsl")],
    reads: 1,
    writes: 1,
};

/// Rotation of an indexer's queries, and its keys into the cache.
pub(crate) static INDEX_KEYS: ShaderKernel = ShaderKernel {
    name: "index_keys",
    parts: &[STEP, CACHED, include_str!("kernels/index_keys.wgsl")],
    reads: 2,
    writes: 2,
};

/// Its scores.
pub(crate) static INDEX_SCORES: ShaderKernel = ShaderKernel {
    name: "index_scores",
    parts: &[STEP, CACHED, include_str!("kernels/index_scores.wgsl")],
    reads: 3,
    writes: 1,
};

/// Its choice.
pub(crate) static INDEX_CHOOSE: ShaderKernel = ShaderKernel {
    name: "index_choose",
    parts: &[STEP, include_str!("kernels/index_choose.wgsl")],
    reads: 0,
    writes: 2,
};

/// What was chosen, unit by unit.
pub(crate) static MARKS: ShaderKernel = ShaderKernel {
    name: "marks",
    parts: &[STEP, include_str!("kernels/marks.wgsl")],
    reads: 1,
    writes: 1,
};

/// Rows of a table by hashes.
pub(crate) static GRAMS: ShaderKernel = ShaderKernel {
    name: "grams",
    parts: &[STEP, WEIGHTS, include_str!("kernels/grams.wgsl")],
    reads: 5,
    writes: 1,
};

/// A matrix of each row, balanced.
pub(crate) static BALANCE: ShaderKernel = ShaderKernel {
    name: "balance",
    parts: &[STEP, include_str!("kernels/balance.wgsl")],
    reads: 1,
    writes: 1,
};

/// What a device can do at most.
pub(crate) static CEILINGS: ShaderKernel = ShaderKernel {
    name: "ceilings",
    parts: &[include_str!("kernels/ceilings.wgsl")],
    reads: 0,
    writes: 1,
};

impl ShaderKernel {
    /// How many constants it takes: the fields of its `Consts`.
    pub(crate) fn n_consts(&self) -> usize {
        let text = self.parts.iter().find(|part| part.contains("struct Consts {"));
        let fields = text.and_then(|text| text.split("struct Consts {").nth(1)?.split('}').next());
        let fields = fields.expect("every kernel has constants");
        fields
            .lines()
            .filter(|line| line.split("//").next().is_some_and(|l| l.contains(':')))
            .count()
    }
}

/// One shader of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Shader {
    /// Its kernel.
    pub(crate) kernel: &'static ShaderKernel,
    /// What stands for the names in double braces.
    substitutions: Vec<(&'static str, String)>,
}

impl PartialEq for Shader {
    fn eq(&self, other: &Shader) -> bool {
        self.kernel.name == other.kernel.name && self.substitutions == other.substitutions
    }
}

impl Eq for Shader {}

impl std::hash::Hash for Shader {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.kernel.name.hash(state);
        self.substitutions.hash(state);
    }
}

impl Shader {
    fn new(kernel: &'static ShaderKernel) -> Shader {
        Shader { kernel, substitutions: Vec::new() }
    }

    fn with(mut self, name: &'static str, text: impl Into<String>) -> Shader {
        self.substitutions.push((name, text.into()));
        self
    }

    fn of_weights(self, format: &DeviceFormat) -> Shader {
        self.multiplying(format, ProductType::F32)
    }

    fn multiplying(mut self, format: &DeviceFormat, product: ProductType) -> Shader {
        self.substitutions.extend(format.substitutions(product));
        self
    }

    /// The whole WGSL text. For drivers every marked loop is unrolled; the translator to PTX unrolls some loops itself.
    pub(crate) fn text(&self, is_for_drivers: bool) -> String {
        let mut text = self.kernel.parts.concat();
        for (name, value) in &self.substitutions {
            text = text.replace(&format!("{{{{{name}}}}}"), value);
        }
        debug_assert!(!text.contains("{{"), "{}: something is left open", self.kernel.name);
        let text = unroll::unrolled(&text, is_for_drivers);
        let uses = [
            ("enable f16;\n", &["<f16", "= f16"][..]),
            ("enable wgpu_cooperative_matrix;\n", &["coop_mat"]),
        ];
        let used = uses.iter().filter(|(_, by)| by.iter().any(|word| text.contains(word)));
        used.map(|(enable, _)| *enable).collect::<String>() + &text
    }

    /// Rows of a table of this type.
    pub(crate) fn embed(format: &DeviceFormat) -> Shader {
        Shader::new(&EMBED).of_weights(format)
    }

    /// The same, and their norms.
    pub(crate) fn embed_normed(format: &DeviceFormat, dim: usize) -> Shader {
        Shader::new(&EMBED_NORMED).of_weights(format).with("LANES", sum_lanes(dim))
    }

    /// What each element is: an expression of `row` and `i`.
    pub(crate) fn rows(value: &str) -> Shader {
        Shader::new(&ROWS).with("VALUE", value)
    }

    /// The likeliest tokens of lists.
    pub(crate) fn best(lists: &str) -> Shader {
        Shader::new(&BEST).with("BODY", lists)
    }

    /// Logits of single tokens.
    pub(crate) fn told() -> Shader {
        Shader::new(&TOLD)
    }

    /// What is done to each group.
    pub(crate) fn groups(body: &str, dim: usize) -> Shader {
        Shader::new(&GROUPS).with("BODY", body).with("LANES", sum_lanes(dim))
    }

    /// The choice of experts.
    pub(crate) fn route(work: &RouteWork) -> Shader {
        let groups = work.router.groups.map_or(1, |groups| groups.n_groups);
        Shader::new(&ROUTE)
            .with("LANES", sum_lanes(0))
            .with("EXPERTS", work.n_experts.to_string())
            .with("GROUPS", groups.to_string())
            .with("USED", work.router.n_used.to_string())
    }

    /// Which rows each of so many experts has.
    pub(crate) fn sorted(n_experts: usize) -> Shader {
        Shader::new(&SORTED).with("EXPERTS", n_experts.to_string())
    }

    /// The weighted sum of experts of this type.
    pub(crate) fn mixed(format: &DeviceFormat) -> Shader {
        Shader::new(&MIXED).of_weights(format)
    }

    /// Rotation, and keys and values of these types into the cache.
    pub(crate) fn keys(kept: StoredTypes) -> Shader {
        Shader::new(&KEYS)
            .with("LANES", sum_lanes(0))
            .with("PUT_KEY", put(kept.keys))
            .with("PUT_VALUE", put(kept.values))
            .cached(kept)
    }

    /// Attention over such keys and values.
    pub(crate) fn attend(kept: StoredTypes, widths: HeadWidths) -> Shader {
        let HeadWidths { key_quads, value_quads, are_latents } = widths;
        let (values, value_at) = if are_latents {
            (kept.keys, "key_unit(KEY_QUADS, 0u, quad, position)")
        } else {
            let at =
                "value_unit(c.n_kv_heads, KEY_QUADS, VALUE_QUADS, vec2(kv_head, quad), position)";
            (kept.values, at)
        };
        let near = if key_quads <= NEAR_QUADS { SLOTS * key_quads } else { 1 };
        // whole rounds alone: what lies behind a key is another's
        let at_once = [8, 4, 2].into_iter().find(|n| key_quads % n == 0).unwrap_or(1);
        let own = value_quads.div_ceil(ATTEND_LANES).max(1);
        let value_lanes = value_quads.clamp(1, ATTEND_LANES);
        Shader::new(&ATTEND)
            .with("KEYS_AT_ONCE", at_once.to_string())
            .with("VALUE_LANES", value_lanes.to_string())
            .with("OWN", own.to_string())
            .with("VALUES_AT_ONCE", if own == 1 { "8" } else { "4" })
            .with("KEY_QUADS", key_quads.to_string())
            .with("VALUE_QUADS", value_quads.to_string())
            .with("NEAR", near.to_string())
            .with("KEY", get(kept.keys))
            .with("VALUE", get(values))
            .with("VALUE_AT", value_at)
            .cached(kept)
    }

    /// What a device is to do as fast as it can.
    pub(crate) fn ceiling(body: &str) -> Shader {
        Shader::new(&CEILINGS).with("BODY", body)
    }

    /// Products with pieces of a matrix of this type, turned.
    pub(crate) fn turned(format: &DeviceFormat) -> Shader {
        Shader::new(&TURNED).of_weights(format)
    }

    /// Rotation and latents, of such a type, into the cache.
    pub(crate) fn latents(kept: StoredTypes) -> Shader {
        Shader::new(&LATENTS).with("PUT_KEY", put(kept.keys)).cached(kept)
    }

    /// The join of stretches.
    pub(crate) fn combine() -> Shader {
        Shader::new(&COMBINE)
    }

    /// Rotation of an indexer's queries, and its keys, of such a type, into the cache.
    pub(crate) fn index_keys(kept: StoredTypes) -> Shader {
        Shader::new(&INDEX_KEYS).with("PUT_KEY", put(kept.keys)).cached(kept)
    }

    /// Its scores, of such keys.
    pub(crate) fn index_scores(kept: StoredTypes) -> Shader {
        Shader::new(&INDEX_SCORES).with("KEY", get(kept.keys)).cached(kept)
    }

    /// Its choice.
    pub(crate) fn index_choose() -> Shader {
        Shader::new(&INDEX_CHOOSE)
    }

    /// What was chosen, unit by unit.
    pub(crate) fn marks() -> Shader {
        Shader::new(&MARKS)
    }

    /// Rows of a table of this type by hashes.
    pub(crate) fn grams(format: &DeviceFormat) -> Shader {
        Shader::new(&GRAMS).of_weights(format)
    }

    /// A matrix of each row, balanced.
    pub(crate) fn balance() -> Shader {
        Shader::new(&BALANCE)
    }

    fn cached(self, kept: StoredTypes) -> Shader {
        self.with("KEY_WORDS", kept.keys.words().to_string())
            .with("VALUE_WORDS", kept.values.words().to_string())
    }
}

/// How four numbers `x` are put into the cache from word `to` on.
fn put(ty: Stored) -> &'static str {
    match ty {
        Stored::F32 => {
            "    for (var i = 0u; i < 4u; i++) {\n        blocks[to + i] = bitcast<u32>(x[i]);\n    }"
        }
        Stored::F16 => {
            "    blocks[to] = pack2x16float(x.xy);\n    blocks[to + 1u] = pack2x16float(x.zw);"
        }
    }
}

/// Four numbers of the cache from word `unit` on.
fn get(ty: Stored) -> &'static str {
    match ty {
        Stored::F32 => {
            "vec4(bitcast<vec2<f32>>(blocks[unit / 2u]), bitcast<vec2<f32>>(blocks[unit / 2u + 1u]))"
        }
        Stored::F16 => {
            "vec4(unpack2x16float(blocks[unit / 2u].x), unpack2x16float(blocks[unit / 2u].y))"
        }
    }
}

/// Lanes of a workgroup that sums up so many numbers: more where that is waited for.
fn sum_lanes(numbers: usize) -> &'static str {
    if numbers > 512 { "256" } else { "64" }
}

/// Lanes of a workgroup of [`ATTEND`].
const ATTEND_LANES: usize = 64;
/// Quads of a key up to which [`ATTEND`] has room for queries in workgroup memory.
const NEAR_QUADS: usize = 64;

/// What [`ATTEND`] reads of a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadWidths {
    pub(crate) key_quads: usize,
    pub(crate) value_quads: usize,
    /// Values are the first numbers of keys.
    pub(crate) are_latents: bool,
}

/// Rows of a matrix that a workgroup of [`MIXED`] has.
pub(crate) const MIXED_TILE: usize = 4;
/// Rows of a matrix, and rows of activations, that a workgroup of [`MATMAT`] has; and of [`GROUPED`] with pairs.
pub(crate) const MATMAT_TILE: usize = 32;
/// Rows and columns of a tile of [`WIDE`].
pub(crate) const WIDE_TILE: usize = 64;
/// Queries that a workgroup of [`ATTEND`] has.
pub(crate) const SLOTS: usize = 8;

/// How numbers of a cache are kept here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stored {
    F32,
    F16,
}

impl Stored {
    /// What is asked for, or more exact.
    pub(crate) fn of(ty: CacheType) -> Stored {
        match ty {
            CacheType::F32 => Stored::F32,
            CacheType::F16 | CacheType::Q8_0 => Stored::F16,
        }
    }

    /// Words of four numbers.
    pub(crate) fn words(self) -> usize {
        match self {
            Stored::F32 => 4,
            Stored::F16 => 2,
        }
    }
}

/// How keys and values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StoredTypes {
    pub(crate) keys: Stored,
    pub(crate) values: Stored,
}
