//! Tunes the shapes of GPU kernels: measures them when a weight type is first used on an adapter, and stores them.

use std::collections::BTreeSet;
use std::fmt;

use executors::{GpuFacts, Started};
use program::{KernelShape, ProductType, Program};
use quant::GgmlType;
use serde::{Deserialize, Serialize};

use crate::Runtime;
use crate::machine::ceilings::BUILD;
use crate::notices::{Task, Topic};

/// Which weight types to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TuneWhen {
    /// Types without stored shapes, on hardware GPUs. On a software GPU, measuring takes long and gains little.
    OnCards,
    /// Types without stored shapes, on any GPU.
    Always,
    /// All types, on any GPU, including those with stored shapes.
    Again,
}

/// Returns the weight types of a program's matrices.
pub fn types(program: &Program) -> BTreeSet<GgmlType> {
    let weights = program.nodes.iter().flat_map(|node| node.op.facts().weights);
    let matrices = weights.filter(|used| used.reading.is_matrix());
    matrices.map(|used| program.weight(used.id).ty).collect()
}

/// Sets the kernel shapes for models that `started` loads from now on to the fastest for matrices of these types, if it is a
/// GPU. Returns all known shapes of the GPU.
pub fn apply(
    runtime: &Runtime,
    started: &Started,
    types: &BTreeSet<GgmlType>,
    when: TuneWhen,
) -> Vec<KernelShape> {
    let (Some(gpu), Some(tuning)) = (&started.gpu, &started.tuning) else { return Vec::new() };
    let mut shapes = Kept::read(runtime).of(gpu);
    let is_wanted =
        |ty: &&GgmlType| when == TuneWhen::Again || !shapes.iter().any(|shape| shape.ty == **ty);
    let missing: Vec<GgmlType> = match when {
        TuneWhen::OnCards if gpu.is_software => Vec::new(),
        _ => types.iter().filter(is_wanted).copied().collect(),
    };
    if !missing.is_empty() {
        // store default shapes first: if tuning loses the device or crashes the process, it is not tried again
        let others = shapes.iter().copied().filter(|shape| !missing.contains(&shape.ty));
        let untried = missing.iter().flat_map(|ty| usual(*ty));
        Kept::keep(runtime, gpu, &others.chain(untried).collect::<Vec<_>>());
        let progress = runtime.begin(Task::TuneKernels);
        let tuned = tuning.tune(&missing, &mut |part| progress.update_part(part));
        drop(progress);
        match tuned {
            Ok(tuned) => {
                shapes.retain(|shape| !missing.contains(&shape.ty));
                shapes.extend(tuned);
                Kept::keep(runtime, gpu, &shapes);
            }
            // the kernels keep their previous shapes
            Err(why) => {
                let name = gpu.executor;
                let again = format!("rooflight machine --executor {name} --refresh tries it again");
                let text = format!("kernels are not tuned: {why}; {again}");
                runtime.warn(Topic::Tuning, &text);
            }
        }
    }
    tuning.set_shapes(&shapes);
    shapes
}

/// Sets the known kernel shapes, with exact f32 products, for models that `started` loads from now on.
pub fn apply_exact(runtime: &Runtime, started: &Started) {
    if let (Some(gpu), Some(tuning)) = (&started.gpu, &started.tuning) {
        tuning.set_shapes(&exact(&Kept::read(runtime).of(gpu)));
    }
}

/// Returns the default shapes of a type before anything is measured.
fn usual(ty: GgmlType) -> [KernelShape; 3] {
    let (rows, teams, subgroups) = (2, 2, false);
    [1, 4, 32].map(|at_once| KernelShape {
        ty,
        at_once,
        rows,
        teams,
        product: ProductType::F32,
        subgroups,
    })
}

/// Returns these shapes with f32 products, for which inputs are not rounded.
pub fn exact(shapes: &[KernelShape]) -> Vec<KernelShape> {
    let as_it_is = |shape: &KernelShape| match shape.product {
        ProductType::F32 => *shape,
        // kernels with subgroups may not support f32 products
        ProductType::F16 | ProductType::Int8 => {
            KernelShape { product: ProductType::F32, subgroups: false, ..*shape }
        }
    };
    shapes.iter().map(as_it_is).collect()
}

/// Formats each shape as one line.
pub fn told(shapes: &[KernelShape]) -> Vec<String> {
    shapes.iter().map(|shape| KeptShape::from(shape).to_string()).collect()
}

/// Version of the file. Files of other versions are replaced.
const VERSION: u32 = 2;
const FILE: &str = "tuned.json";

#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    version: u32,
    adapters: Vec<KeptAdapter>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptAdapter {
    adapter: String,
    driver: String,
    build: String,
    shapes: Vec<KeptShape>,
}

/// A kernel shape in the format of the file, which is also used to print it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptShape {
    r#type: String,
    at_once: usize,
    rows: usize,
    teams: usize,
    product: String,
    subgroups: bool,
}

impl From<&KernelShape> for KeptShape {
    fn from(shape: &KernelShape) -> KeptShape {
        let KernelShape { ty, at_once, rows, teams, product, subgroups } = *shape;
        let (r#type, product) = (ty.name().to_owned(), product.name().to_owned());
        KeptShape { r#type, at_once, rows, teams, product, subgroups }
    }
}

impl KeptShape {
    /// Returns the kernel shape, or `None` if it has a type that no longer exists.
    fn shape(&self) -> Option<KernelShape> {
        let KeptShape { r#type, at_once, rows, teams, product, subgroups } = self;
        let (at_once, rows, teams, subgroups) = (*at_once, *rows, *teams, *subgroups);
        let (ty, product) = (GgmlType::from_name(r#type)?, ProductType::from_name(product)?);
        Some(KernelShape { ty, at_once, rows, teams, product, subgroups })
    }
}

impl fmt::Display for KeptShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KeptShape { r#type, at_once, rows, teams, product, subgroups } = self;
        write!(f, "shape  {type:<9} x {at_once:<2} {product:<4} products")?;
        // the rows per team are matrix rows; tiles have as many rows as columns
        match (at_once, subgroups) {
            (1..=4, false) => write!(f, ", {rows} rows a team, {teams} a workgroup"),
            (1..=4, true) => write!(f, ", {rows} rows a team, {teams} a workgroup, subgroups"),
            (_, false) => write!(f, " in tiles"),
            (_, true) => write!(f, " in tiles of a subgroup's matrices"),
        }
    }
}

impl KeptAdapter {
    fn is_of(&self, gpu: &GpuFacts) -> bool {
        (&*self.adapter, &*self.driver, &*self.build) == (&*gpu.adapter, &*gpu.driver, BUILD)
    }
}

impl Kept {
    fn read(runtime: &Runtime) -> Kept {
        let kept: Option<Kept> = runtime.read(FILE);
        kept.filter(|kept| kept.version == VERSION).unwrap_or_default()
    }

    /// Returns the known shapes of an adapter.
    fn of(&self, gpu: &GpuFacts) -> Vec<KernelShape> {
        let its = self.adapters.iter().find(|adapter| adapter.is_of(gpu));
        its.map(|its| its.shapes.iter().filter_map(KeptShape::shape).collect()).unwrap_or_default()
    }

    fn keep(runtime: &Runtime, gpu: &GpuFacts, shapes: &[KernelShape]) {
        let mut all = Kept { version: VERSION, ..Kept::read(runtime) };
        all.adapters.retain(|adapter| !adapter.is_of(gpu));
        all.adapters.push(KeptAdapter {
            adapter: gpu.adapter.clone(),
            driver: gpu.driver.clone(),
            build: BUILD.to_owned(),
            shapes: shapes.iter().map(KeptShape::from).collect(),
        });
        runtime.write(FILE, &all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_kept_and_told_as_they_are() {
        let of = |at_once, product, subgroups| {
            let (ty, rows, teams) = (GgmlType::Q4K, 8, 2);
            KernelShape { ty, at_once, rows, teams, product, subgroups }
        };
        let shapes = [
            of(1, ProductType::Int8, true),
            of(4, ProductType::F32, false),
            of(32, ProductType::F16, true),
            of(32, ProductType::F32, false),
        ];
        let want = [
            "shape  Q4_K      x 1  int8 products, 8 rows a team, 2 a workgroup, subgroups",
            "shape  Q4_K      x 4  f32  products, 8 rows a team, 2 a workgroup",
            "shape  Q4_K      x 32 f16  products in tiles of a subgroup's matrices",
            "shape  Q4_K      x 32 f32  products in tiles",
        ];
        assert_eq!(told(&shapes), want);
        for shape in shapes {
            let text = serde_json::to_string(&KeptShape::from(&shape)).unwrap();
            let kept: KeptShape = serde_json::from_str(&text).unwrap();
            assert_eq!(kept.shape(), Some(shape));
        }
        let exact = exact(&shapes);
        assert!(exact.iter().all(|shape| shape.product == ProductType::F32));
        assert_eq!((exact[1], exact[3]), (shapes[1], shapes[3]));
    }
}
