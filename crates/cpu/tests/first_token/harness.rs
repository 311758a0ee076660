//! What the fuzz target `first_token` does with bytes: a file from a stranger is opened, loaded and stepped by the
//! interpreter and the CPU. The corpus and mutations of it are run as plain tests too.

use std::sync::{Arc, LazyLock};

use cpu::{Cpu, Options};
use gguf::Gguf;
use models::{GgufWeights, LoadedModel};
use program::interpreter::Interpreter;
use program::{
    CacheOptions, CacheType, Executor, MemoryOptions, Outputs, Prompt, Sequence, Step, StepOut,
};

const CACHE: CacheOptions = CacheOptions::new(CacheType::F32, CacheType::F32, 4);

/// Most memory that is taken: an executor says before it loads how much it would take, as the product asks it.
const MOST_MEMORY: u64 = 48 << 20;

/// One thread, and two for every eighth input, by the sum of its bytes: idle ones spin, which other inputs had better use.
static CPUS: LazyLock<[Cpu; 2]> =
    LazyLock::new(|| [1, 2].map(|n| Cpu::new(&Options { threads: Some(n), ..Options::default() })));

/// Whether both executors came to logits, else why not. What is refused, is refused in one printable line.
///
/// # Panics
/// If something is wrong with how it is refused, or with the logits.
pub(crate) fn first_token(data: &[u8]) -> Result<(), String> {
    let gguf = Gguf::from_bytes(data.to_vec()).map_err(refused)?;
    let loaded = models::load(&gguf).map_err(refused)?;
    let sum = data.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    let cpu = &CPUS[usize::from(sum % 8 == 0)];
    let executors: [&dyn Executor; 2] = [&Interpreter, cpu];
    // Each is asked, whatever the other says.
    let [want, got] = executors.map(|executor| logits(executor, &gguf, &loaded));
    let (want, got) = (want?, got?);
    assert_eq!((want.len(), got.len()), (loaded.config.vocab_size, loaded.config.vocab_size));
    Ok(())
}

fn refused(error: impl std::error::Error) -> String {
    let text = error.to_string();
    assert!(text.chars().count() <= 400 && !text.chars().any(char::is_control), "{text:?}");
    text
}

/// Logits of the last of three tokens.
fn logits(executor: &dyn Executor, gguf: &Gguf, loaded: &LoadedModel) -> Result<Vec<f32>, String> {
    let options = MemoryOptions { cache: CACHE, sessions: 1, chunk: 2 };
    let needs = executor.memory(&loaded.program, &options).map_err(refused)?;
    if needs.total() > MOST_MEMORY {
        return Err(format!("{} bytes are more than {MOST_MEMORY}", needs.total()));
    }
    let program = Arc::clone(&loaded.program);
    let model = executor.load(program, &GgufWeights(gguf), &mut |_| ()).map_err(refused)?;
    let session = model.open(&CACHE).map_err(refused)?;
    let last = (loaded.config.vocab_size - 1) as u32;
    let mut row = Vec::new();
    for (tokens, outputs) in [(&[0, last][..], Outputs::NONE), (&[last / 2], Outputs::LAST)] {
        let prompt = Some(Prompt { start: 0, len: 2 }).filter(|_| tokens.len() == 2);
        let sequence = Sequence { session, tokens, outputs, prompt, rows: &[] };
        let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
        let out = out.map_err(refused)?;
        if outputs == Outputs::LAST {
            row = out.into_logits().logits;
        }
    }
    model.close(session);
    Ok(row)
}
