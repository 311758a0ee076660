//! [`Hybrid`]: the processor and a device as one executor, each with the layers that are its own.

use std::sync::Arc;

use quant::GgmlType;

use crate::{
    CacheStorage, DeviceShare, Division, Error, Executor, MemoryNeeds, MemoryOptions, Model, Op,
    Part, Parts, Program, Progress, Promises, Result, Rows, WeightSource,
};

/// How work is shared between a processor and a device.
#[derive(Clone, Debug)]
pub struct HybridOptions {
    /// What the device is to run.
    pub share: DeviceShare,
    /// Where the caches of all sessions lie. A bound on their memory is dealt out by what each part needs.
    pub storage: CacheStorage,
    /// Sessions that such a bound is dealt out for.
    pub sessions: MemoryOptions,
}

/// Two executors: a step goes through the parts of a program, each where its weights and caches lie.
pub struct Hybrid {
    processor: Box<dyn Executor>,
    device: Box<dyn Executor>,
    options: HybridOptions,
    told: String,
}

impl Hybrid {
    /// Of a `processor` that runs everything and a `device` that runs some of it; `division` is that of the program that it
    /// is made for, and is told of.
    pub fn new(
        processor: Box<dyn Executor>,
        device: Box<dyn Executor>,
        division: &Division,
        options: HybridOptions,
    ) -> Hybrid {
        let (submissions, crossings) = (division.submissions(), division.crossings());
        let count = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let told = format!(
            "{} ({}); {} ({}); {}, {} a step",
            device.describe(),
            division.on_device(),
            processor.describe(),
            division.on_processor(),
            count(crossings, "crossing"),
            count(submissions, "submission"),
        );
        Hybrid { processor, device, options, told }
    }

    fn divide(&self, program: &Program) -> Result<Division> {
        Division::of(program, &*self.device, self.options.share.clone())
    }

    fn of(&self, part: &Part) -> &dyn Executor {
        if Division::is_on_device(part) { &*self.device } else { &*self.processor }
    }

    /// What each part needs.
    fn needs(&self, division: &Division, options: &MemoryOptions) -> Result<Vec<MemoryNeeds>> {
        let needs = |part: &Part| self.of(part).memory(&part.program, options);
        division.parts().iter().map(needs).collect()
    }

    /// What of a bound on caches is each part's: what it needs at least, and of the rest as much in proportion.
    fn bounds(&self, division: &Division) -> Result<Vec<Option<u64>>> {
        let Some(bound) = self.options.storage.memory else {
            return Ok(vec![None; division.parts().len()]);
        };
        let needs = self.needs(division, &self.options.sessions)?;
        let all = needs.iter().map(|its| its.bounded_cache).fold(0, u64::saturating_add);
        let of = |its: &MemoryNeeds| {
            let share = u128::from(bound) * u128::from(its.bounded_cache) / u128::from(all.max(1));
            Some(share as u64)
        };
        Ok(needs.iter().map(of).collect())
    }

    /// An executor for one part whose caches take no more than `bound`, if there is one.
    fn bounded(&self, part: &Part, bound: Option<u64>) -> Result<Option<Box<dyn Executor>>> {
        if bound.is_none() {
            return Ok(None);
        }
        let executor = self.of(part);
        let bounded = executor.beside(&CacheStorage { memory: bound, disk: None });
        let unbounded = || format!("a bound on caches of {}", executor.describe());
        bounded.map(Some).ok_or_else(|| Error::Unsupported(unbounded()))
    }
}

/// Bytes of the rows that a part hands on.
fn handed(part: &Part, options: &MemoryOptions) -> u64 {
    let MemoryOptions { sessions, chunk, .. } = *options;
    let outputs = part.program.outputs.iter().map(|(_, id)| part.program.value(*id).shape);
    let bytes = outputs.map(|shape| {
        let rows = if shape.rows == Rows::Tokens { chunk.max(sessions) } else { sessions };
        4 * (rows as u64).saturating_mul(shape.cols() as u64)
    });
    bytes.fold(0, u64::saturating_add)
}

impl Executor for Hybrid {
    fn supports(&self, op: &Op, types: &[GgmlType]) -> Result<()> {
        self.processor.supports(op, types)
    }

    fn memory(&self, program: &Program, options: &MemoryOptions) -> Result<MemoryNeeds> {
        let division = self.divide(program)?;
        let needs = self.needs(&division, options)?;
        let all = needs.into_iter().reduce(MemoryNeeds::and).unwrap_or_default();
        let handed = division.parts().iter().rev().skip(1).map(|part| handed(part, options));
        let work = handed.fold(all.work, u64::saturating_add);
        let cache = all.cache.min(self.options.storage.memory.unwrap_or(u64::MAX));
        Ok(MemoryNeeds { work, cache, ..all })
    }

    fn promises(&self) -> Promises {
        self.processor.promises().and(&self.device.promises())
    }

    fn load(
        &self,
        program: Arc<Program>,
        weights: &dyn WeightSource,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Model>> {
        if self.options.storage.disk.is_some() {
            return Err(Error::Unsupported("caches on disk with layers on a GPU".into()));
        }
        let division = self.divide(&program)?;
        if let [all] = division.parts() {
            return self.of(all).load(program, weights, progress);
        }
        let bounds = self.bounds(&division)?;
        let of = |(part, bound): (&Part, &Option<u64>)| self.bounded(part, *bound);
        let executors = division.parts().iter().zip(&bounds).map(of).collect::<Result<Vec<_>>>()?;
        let parts = division.parts().iter().zip(&executors);
        let parts = parts.map(|(part, bounded)| {
            (part.clone(), bounded.as_deref().unwrap_or_else(|| self.of(part)))
        });
        let parts = parts.collect();
        let program = Arc::clone(division.program());
        Ok(Box::new(Parts::load_each(program, parts, weights, progress)?))
    }

    fn beside(&self, storage: &CacheStorage) -> Option<Box<dyn Executor>> {
        Some(Box::new(Hybrid {
            processor: self.processor.beside(storage)?,
            device: self.device.beside(storage)?,
            options: HybridOptions { storage: storage.clone(), ..self.options.clone() },
            told: self.told.clone(),
        }))
    }

    fn describe(&self) -> String {
        self.told.clone()
    }
}
