//! Perplexity against the definition, computed the slow way.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use engine::{Error, PerplexityOptions, perplexity, windows};
use program::Model;

use crate::common::{BOS, Toy, VOCAB, cache, logits_after};

fn text(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| i.wrapping_mul(2_654_435_761) >> 24).collect()
}

/// Negative log likelihoods of the scored tokens, in f64.
fn naive(tokens: &[u32], context: usize, bos: Option<u32>) -> Vec<f64> {
    let mut all = Vec::new();
    for window in tokens.chunks_exact(context) {
        let mut window = window.to_vec();
        window[0] = bos.unwrap_or(window[0]);
        for j in context / 2..context - 1 {
            let row: Vec<f64> = logits_after(&window[..=j]).into_iter().map(f64::from).collect();
            let sum: f64 = row.iter().map(|x| x.exp()).sum();
            all.push(sum.ln() - row[window[j + 1] as usize]);
        }
    }
    all
}

fn options(context: usize, bos: Option<u32>, chunk: usize) -> PerplexityOptions {
    PerplexityOptions { cache: cache(context), bos, chunk }
}

#[test]
fn no_pass_is_longer_than_the_chunk_and_it_changes_nothing() {
    let toy = Toy::new();
    let model: Arc<dyn Model> = toy.clone();
    let go = AtomicBool::new(false);
    let measure =
        |chunk| perplexity(&model, options(300, None, chunk), &text(600), &go, &mut |_| ());
    let whole = measure(0).unwrap();
    toy.state.lock().unwrap().largest_step = Some(7);
    assert!(measure(0).is_err() && measure(8).is_err());
    assert_eq!(measure(7).unwrap(), whole);
}

#[test]
fn equals_the_definition() {
    let toy = Toy::new();
    let model: Arc<dyn Model> = toy.clone();
    let go = AtomicBool::new(false);
    for (n, context, bos) in
        [(64, 16, None), (700, 300, Some(BOS)), (31, 5, Some(BOS)), (16, 16, None)]
    {
        let tokens = text(n);
        let mut seen = 0;
        let got = perplexity(&model, options(context, bos, 0), &tokens, &go, &mut |w| {
            seen += 1;
            assert_eq!((w.total, w.so_far.windows), (n / context, seen));
        })
        .unwrap()
        .unwrap();
        let nll = naive(&tokens, context, bos);
        let count = nll.len() as f64;
        let mean = nll.iter().sum::<f64>() / count;
        let variance = nll.iter().map(|x| x * x).sum::<f64>() / count - mean * mean;
        assert_eq!((got.tokens, got.windows, seen), (nll.len(), windows(n, context), n / context));
        assert!((got.value / mean.exp() - 1.0).abs() < 1e-5, "{got:?} {}", mean.exp());
        let error = (variance / (count - 1.0)).sqrt() * mean.exp();
        assert!((got.error / error - 1.0).abs() < 1e-4, "{got:?} {error}");
    }
    assert!(toy.state.lock().unwrap().sessions.is_empty());
}

#[test]
fn what_cannot_be_measured_is_said() {
    let toy = Toy::new();
    let model: Arc<dyn Model> = toy.clone();
    let go = AtomicBool::new(false);
    let measure = |tokens: &[u32], context| {
        perplexity(&model, options(context, None, 0), tokens, &go, &mut |_| ())
    };
    assert!(matches!(measure(&text(15), 16), Err(Error::TextTooShort { context: 16, found: 15 })));
    assert!(matches!(measure(&text(15), 3), Err(Error::Setting { .. })));
    let outside = [vec![0; 15], vec![VOCAB as u32]].concat();
    assert!(measure(&outside, 16).is_err());
    toy.state.lock().unwrap().nan_at = Some(12);
    assert!(matches!(measure(&text(16), 16), Err(Error::NonFinite { position: 12, token: 3, .. })));
    let stop = AtomicBool::new(true);
    let options = options(16, None, 0);
    assert_eq!(perplexity(&model, options, &text(16), &stop, &mut |_| ()).unwrap(), None);
}
