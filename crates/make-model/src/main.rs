//! `cargo xtask make-model`: model files with the shapes of published models and random weights.
//!
//! Speed and memory depend on shapes and types, not on what the weights are; so do tests of numerics. The file is
//! written tensor by tensor, in little memory. `shapes.rs` says which models there are, `keys.rs` how a configuration
//! becomes metadata, `vocabulary.rs` and `weights.rs` make up the rest.

#![forbid(unsafe_code)]

mod keys;
mod shapes;
#[cfg(test)]
mod tests;
mod vocabulary;
mod weights;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use gguf::Writer;
use models::Mixture;

use shapes::Shape;
use weights::{Random, Tensor};

const HELP: &str = "\
cargo xtask make-model SHAPE [--type TYPE] [--layers N] [--mtp] [--seed S] [-o FILE] [--force]
cargo xtask make-model --list

Writes a GGUF model with the shape of a published one, random weights and a made-up vocabulary of the right size:
something to measure speed and memory on. The same arguments give the same bytes on every machine.

  SHAPE         a published model in any spelling (qwen2.5-0.5b, Qwen/Qwen2.5-7B-Instruct), or another of --list
  --type TYPE   as llama.cpp's quantizer names them (Q4_K_M unless given): each tensor gets the type it would get there
  --layers N    the first N layers only
  --mtp         and a block behind them that guesses the token after the next one
  --seed S      other weights (0)
  -o FILE       where to (SHAPE-TYPE.gguf)
  --force       over a file that is there
  --list        the shapes and the types

  cargo xtask make-model qwen2.5-0.5b --type Q4_0
  cargo xtask make-model qwen3-30b-a3b --layers 6 -o /tmp/moe.gguf

Large models are made faster by `cargo run --release -p xtask -- make-model`.
";

/// A model to be written: everything but the weights' values.
struct Plan {
    writer: Writer,
    tensors: Vec<Tensor>,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Parse the arguments and write the model.
fn run(args: &[String]) -> anyhow::Result<()> {
    let (mut shape, mut layers, mut seed, mut out) = (None, None, 0, None);
    let (mut guess, mut force) = (false, false);
    let mut mixture = Mixture::from_name("Q4_K_M").context("no type Q4_K_M")?;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} wants a value"));
        match arg.as_str() {
            "-h" | "--help" => {
                eprint!("{HELP}");
                return Ok(());
            }
            "--list" => return list(),
            "--type" => mixture = mixture_of(value()?)?,
            "--layers" => layers = Some(value()?.parse().context("--layers wants a number")?),
            "--seed" => seed = value()?.parse().context("--seed wants a number")?,
            "-o" => out = Some(PathBuf::from(value()?)),
            "--mtp" => guess = true,
            "--force" => force = true,
            flag if flag.starts_with('-') => bail!("unknown flag {flag}\n\n{HELP}"),
            name => ensure!(shape.replace(name).is_none(), "more than one shape\n\n{HELP}"),
        }
    }
    let name = shape.with_context(|| format!("which shape?\n\n{HELP}"))?;
    let mut shape = shapes::find(name)?;
    if let Some(layers) = layers {
        shape.cut(layers)?;
    }
    if guess {
        shape.guess()?;
    }
    let out = out.unwrap_or_else(|| {
        let cut = layers.map_or(String::new(), |n| format!("-{n}l"));
        let mtp = if guess { "-mtp" } else { "" };
        format!("{}{cut}{mtp}-{}.gguf", shape.name, mixture.name()).into()
    });
    let bytes = write(&shape, mixture, seed, Target { path: &out, force })?;
    eprintln!("{}: {:.2} GB", out.display(), bytes as f64 / 1e9);
    Ok(())
}

fn mixture_of(name: &str) -> anyhow::Result<&'static Mixture> {
    Mixture::from_name(name)
        .with_context(|| format!("no type `{name}` that can be made; there are: {}", types()))
}

fn types() -> String {
    models::MIXTURES.iter().map(Mixture::name).collect::<Vec<_>>().join(" ")
}

fn list() -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for shape in shapes::all() {
        writeln!(out, "{:22} {}", shape.name, shape.summary())?;
    }
    writeln!(out, "\ntypes: {}", types())?;
    Ok(())
}

/// Where a model goes.
#[derive(Clone, Copy)]
struct Target<'a> {
    path: &'a Path,
    /// Over what is there.
    force: bool,
}

/// Writes the file beside its place and moves it there; returns its length in bytes.
fn write(shape: &Shape, mixture: &Mixture, seed: u64, target: Target<'_>) -> anyhow::Result<u64> {
    let path = target.path;
    ensure!(
        target.force || !path.exists(),
        "{} is there already; --force writes over it",
        path.display()
    );
    let plan = plan(shape, mixture, seed)?;
    let beside = path.with_extension("gguf.part");
    let written = File::create(&beside)
        .map_err(anyhow::Error::from)
        .and_then(|file| fill(&plan, seed, file))
        .with_context(|| format!("writing {}", beside.display()));
    let placed = written.and_then(|bytes| {
        std::fs::rename(&beside, path).with_context(|| format!("writing {}", path.display()))?;
        Ok(bytes)
    });
    if placed.is_err() {
        // what is not there needs no removal
        let _ = std::fs::remove_file(&beside);
    }
    placed
}

/// The metadata and the tensors, each with its type.
fn plan(shape: &Shape, mixture: &Mixture, seed: u64) -> anyhow::Result<Plan> {
    let mut writer = Writer::new();
    keys::set(&mut writer, shape, mixture)?;
    writer.set("general.description", format!("random weights, seed {seed}"));
    vocabulary::set(&mut writer, shape.vocabulary, shape.config.vocab_size)?;
    let tensors = weights::tensors(shape, mixture)?;
    for tensor in &tensors {
        writer.tensor_later(&tensor.name, tensor.ty, &tensor.dims);
    }
    Ok(Plan { writer, tensors })
}

fn fill(plan: &Plan, seed: u64, file: File) -> anyhow::Result<u64> {
    let total: u64 = plan.tensors.iter().map(Tensor::bytes).sum();
    let mut random = Random::new(seed);
    let mut tensors = plan.tensors.iter();
    let (mut done, mut told) = (0, 0);
    let mut out = BufWriter::with_capacity(1 << 20, file);
    plan.writer.write_with(&mut out, &mut |_, out| {
        let tensor = tensors.next().expect("the writer asks for each tensor once, in order");
        random.write(tensor, out)?;
        done += tensor.bytes();
        let percent = 100 * done / total;
        if percent >= told + 10 {
            told = percent;
            eprintln!("  {percent} % of {:.2} GB", total as f64 / 1e9);
        }
        Ok(())
    })?;
    let file = out.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    Ok(file.metadata()?.len())
}
