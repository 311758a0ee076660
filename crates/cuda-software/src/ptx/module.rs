//! Checks a module's header and makes its kernels.

use std::collections::HashMap;
use std::sync::Arc;

use super::SyntaxError;
use super::decode::Decoder;
use super::instr::{Kernel, special};
use super::operand::{File, Registers};
use super::parse::{Entry, Kind, Module, Operand};
use super::slots::{self, Width};

/// Kernels of a module.
///
/// # Errors
/// The first thing that `ptxas` would refuse, or that this library does not know.
pub(crate) fn load(text: &str) -> Result<Vec<Arc<Kernel>>, SyntaxError> {
    let tokens = super::lex::tokens(text)?;
    let module = super::parse::module(&tokens)?;
    header(&module)?;
    let mut kernels: Vec<Arc<Kernel>> = Vec::new();
    for entry in &module.entries {
        if kernels.iter().any(|k| k.name == entry.name) {
            let reason = format!("kernel `{}` exists twice", entry.name);
            return Err(SyntaxError::new(entry.line, reason));
        }
        kernels.push(Arc::new(kernel(&module, entry)?));
    }
    Ok(kernels)
}

fn header(module: &Module<'_>) -> Result<(), SyntaxError> {
    let Some((major, minor, line)) = module.version else {
        return Err(SyntaxError::new(1, "module has no `.version`"));
    };
    if (major, minor) > (8, 7) {
        let mut error = SyntaxError::new(line, format!("version {major}.{minor} is beyond 8.7"));
        error.unsupported_version = true;
        return Err(error);
    }
    let Some((target, line)) = module.target else {
        return Err(SyntaxError::new(1, "module has no `.target`"));
    };
    let level = target.strip_prefix("sm_").and_then(|n| n.parse::<u32>().ok());
    match level {
        Some(level) if level <= 75 => {}
        _ => {
            let reason = format!("target `{target}` is beyond this device, which is sm_75");
            return Err(SyntaxError::new(line, reason));
        }
    }
    if module.address_size.is_some_and(|n| n != 64) {
        return Err(SyntaxError::new(line, "addresses have 64 bits"));
    }
    Ok(())
}

fn kernel<'a>(module: &Module<'a>, entry: &Entry<'a>) -> Result<Kernel, SyntaxError> {
    let mut decoder = Decoder::new();
    decoder.entry(entry, &module.variables)?;
    let required = entry.required_block;
    for block in [required, entry.max_block].into_iter().flatten() {
        let threads = block.iter().map(|&n| u64::from(n)).product::<u64>();
        if !(1..=1024).contains(&threads) {
            let reason = format!("a block of {threads} threads is not possible");
            return Err(SyntaxError::new(entry.line, reason));
        }
    }
    let max_threads = match entry.max_block.or(required) {
        Some(block) => block.iter().product(),
        None => 1024,
    };
    let n_q = decoder.regs.n_q as usize;
    let stored_params = super::flow::stored_params(&decoder.code, &decoder.exts, n_q);
    let registers = pressure(entry, &decoder.regs);
    let (mut consts_w, mut consts_q) = (decoder.regs.constants_w(), decoder.regs.constants_q());
    let (code, exts) = (&mut decoder.code, &mut decoder.exts);
    let fixed_w: Vec<u32> = consts_w.iter().map(|c| c.0).collect();
    let fixed_q: Vec<u32> = consts_q.iter().map(|c| c.0).collect();
    let n_w = decoder.regs.n_w as usize;
    let w = slots::places(code, exts, Width::W, [n_w, special::COUNT], &fixed_w);
    let q = slots::places(code, exts, Width::Q, [n_q, 0], &fixed_q);
    slots::rename(code, exts, &w, &q);
    consts_w.iter_mut().for_each(|c| c.0 = w.of[c.0 as usize]);
    consts_q.iter_mut().for_each(|c| c.0 = q.of[c.0 as usize]);
    Ok(Kernel {
        name: entry.name.to_owned(),
        code: decoder.code,
        lines: decoder.lines,
        exts: decoder.exts,
        params: decoder.params,
        stored_params,
        param_bytes: decoder.param_bytes,
        n_w: w.count,
        n_q: q.count,
        unwritten_w: w.unwritten,
        unwritten_q: q.unwritten,
        n_p: decoder.regs.n_p as usize,
        consts_w,
        consts_q,
        shared: decoder.shared,
        shared_bytes: decoder.shared_bytes,
        dynamic: decoder.dynamic,
        local: decoder.local,
        local_bytes: decoder.local_bytes,
        granule: decoder.narrowest.trailing_zeros(),
        required_block: required,
        max_threads,
        registers,
    })
}

/// Estimate of the 32-bit registers alive at once: from first to last mention of each, extended
/// to the end of loops that begin after the first and before the last mention.
fn pressure(entry: &Entry<'_>, regs: &Registers<'_>) -> u32 {
    let mut spans: HashMap<&str, (usize, usize)> = HashMap::new();
    let mut labels = HashMap::new();
    let mut loops = Vec::new();
    for (at, statement) in entry.body.iter().enumerate() {
        match &statement.kind {
            Kind::Label(label) => {
                labels.insert(*label, at);
            }
            Kind::Instruction { operands, .. } => {
                for operand in operands {
                    mention(operand, &mut |name| {
                        if let Some(&start) = labels.get(name) {
                            loops.push((start, at));
                        } else {
                            spans.entry(name).or_insert((at, at)).1 = at;
                        }
                    });
                }
            }
            _ => {}
        }
    }
    let mut change = vec![0_i64; entry.body.len() + 1];
    for (name, (first, mut last)) in spans {
        let Some(register) = regs.get(name).filter(|r| !r.special) else { continue };
        let weight = match register.file() {
            File::P => continue,
            File::W => 1,
            File::Q => 2,
        };
        for &(start, end) in &loops {
            if first < start && last >= start && last < end {
                last = end;
            }
        }
        change[first] += weight;
        change[last] -= weight;
    }
    let mut alive = 0;
    let most = change.iter().map(|c| {
        alive += c;
        alive
    });
    u32::try_from(most.max().unwrap_or(0) + 8).unwrap_or(255).min(255)
}

fn mention<'a>(operand: &Operand<'a>, note: &mut impl FnMut(&'a str)) {
    match operand {
        Operand::Word(name) | Operand::Not(name) | Operand::Address(name, _) => note(name),
        Operand::Pair(a, b) => {
            note(a);
            note(b);
        }
        Operand::Vector(parts) => parts.iter().for_each(|part| mention(part, note)),
        Operand::Int(_) | Operand::F32(_) | Operand::F64(_) => {}
    }
}
