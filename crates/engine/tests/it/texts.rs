//! Readers of texts on a real, if tiny, program.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use std::sync::Arc;

use engine::{Error, TextReader};
use program::interpreter::Interpreter;
use program::{
    Attention, CacheKind, CacheOptions, CacheSpec, CacheType, Executor, HiddenRows, Mask,
    OutputKind, OutputRows, Program, Recorder, Result, Score, WeightSource, WeightSpec,
    read_memory,
};
use quant::GgmlType;

const VOCAB: usize = 31;
const WIDTH: usize = 8;

/// Attention over tokens, whose rows are what it says; means of them if `mean`.
fn record(mask: Mask, mean: bool) -> Result<Program> {
    let r = Recorder::new();
    let table =
        WeightSpec { name: "t".into(), ty: GgmlType::F32, rows: VOCAB, cols: WIDTH, start: 0 };
    let x = r.embed(r.weight(table))?;
    let kind = CacheKind::Heads { n_kv_heads: 1, key_dim: WIDTH, value_dim: WIDTH, window: None };
    let cache = r.cache(CacheSpec { layer: 0, kind });
    let score = Score { mask, ..Score::causal(0.5) };
    let at = Attention { score, ..Attention::causal(cache, None, 1.0) };
    let scaled = |name, factor| r.scale(name, x, factor);
    let a = r.attention("a", at, &[scaled("q", 2.0)?, scaled("k", -1.0)?, x])?;
    let said = if mean { r.mean_rows("rows", a)? } else { r.select_rows("rows", a)? };
    Ok(r.finish(&[(OutputKind::Hidden, said)]))
}

struct Waves;

impl WeightSource for Waves {
    fn read(&self, spec: &WeightSpec, first: usize, out: &mut [u8]) -> Result<()> {
        let number = |i: usize| ((i * i) as f32 * 0.37).sin().to_le_bytes();
        let bytes: Vec<u8> = (0..spec.rows * spec.cols).flat_map(number).collect();
        read_memory(&bytes, spec, first, out)
    }
}

fn reader(mask: Mask, mean: bool, rows: OutputRows, chunk: usize) -> TextReader {
    let program = Arc::new(record(mask, mean).unwrap());
    let model = Interpreter.load(program, &Waves, &mut |_| ()).unwrap();
    let cache = CacheOptions::new(CacheType::F32, CacheType::F32, 40);
    TextReader::new(Arc::from(model), cache, rows, chunk).unwrap()
}

fn text(n: usize) -> Vec<u32> {
    (0..n).map(|i| ((i * 7 + n) % VOCAB) as u32).collect()
}

fn read(reader: &mut TextReader, texts: &[Vec<u32>]) -> Vec<HiddenRows> {
    reader.read(texts, &mut |_| true).unwrap().unwrap()
}

#[test]
fn texts_are_read_alike_alone_together_and_in_parts() {
    use OutputRows::{All, First, Last};
    let texts = [5, 1, 40, 17, 2, 2, 3, 1, 1, 1, 1, 1, 9].map(text);
    for (mask, mean) in [(Mask::Causal, false), (Mask::Full, false), (Mask::Causal, true)] {
        for rows in [First, Last, All] {
            let want = read(&mut reader(mask, mean, rows, 1), &texts[..0]);
            assert!(want.is_empty());
            let mut alone = Vec::new();
            let mut one = reader(mask, mean, rows, 40);
            for text in &texts {
                alone.extend(read(&mut one, std::slice::from_ref(text)));
            }
            for (rows, text) in alone.iter().zip(&texts) {
                let n = if rows.rows().len() == 1 { 1 } else { text.len() };
                assert_eq!((rows.rows().len(), rows.hidden_size), (n, WIDTH));
            }
            for chunk in [1, 7, 40, 0] {
                let found = read(&mut reader(mask, mean, rows, chunk), &texts);
                assert_eq!(found, alone, "{mask:?} {mean} {rows:?} in chunks of {chunk}");
            }
        }
    }
}

#[test]
fn what_cannot_be_read_is_refused_and_the_reader_goes_on() {
    let mut reader = reader(Mask::Full, true, OutputRows::Last, 8);
    let want = read(&mut reader, &[text(9)]);
    let refused = reader.read(&[text(3), text(41)], &mut |_| true);
    assert!(matches!(refused, Err(Error::ContextFull { wanted: 41, capacity: 40 })), "{refused:?}");
    assert!(matches!(reader.read(&[vec![]], &mut |_| true), Err(Error::EmptyPrompt)));
    assert!(reader.read(&[vec![99]], &mut |_| true).is_err(), "a token that is not there");
    assert_eq!(read(&mut reader, &[text(9)]), want);
}

#[test]
fn reading_ends_when_it_is_told_to() {
    let mut reader = reader(Mask::Causal, false, OutputRows::Last, 8);
    let (mut done, texts) = (Vec::new(), [6, 6, 6].map(text));
    let read = reader.read(&texts, &mut |n| {
        done.push(n);
        n < 2
    });
    assert_eq!((read.unwrap(), done), (None, vec![1, 2]));
}
