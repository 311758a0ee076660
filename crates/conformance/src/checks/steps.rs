//! Choices that serve several tokens, or several layers: who chooses reads what it would for itself, and the others read that.

use std::sync::Arc;

use program::{
    BlockAnchor, BlockSharing, CacheType, Certificate, ContextMemory, Error, Executor,
    FarPositions, Op, Program, Smoothing,
};
use quant::GgmlType;

use super::context::{SMALL, tiny, tokens, with};
use crate::made::all_logits;
use crate::{Made, assert_close, assert_same_bits};

/// The second of two layers chooses alone.
const LAST: ContextMemory = ContextMemory { dense_layers: 1, ..SMALL };
const N: usize = 500;

/// With one layer that chooses, the first token of each run yields what it would without runs, and others do not.
pub(super) fn runs(executor: &dyn Executor) {
    let anchors = [BlockAnchor::Bounds, BlockAnchor::Products, BlockAnchor::Mass, BlockAnchor::All];
    let model = Made::new(executor, &tiny("qwen2", GgmlType::F32), 6).tested;
    let tokens = tokens(N, 53);
    for (i, anchor) in anchors.into_iter().enumerate() {
        let sharing = BlockSharing::ALL[i % 2];
        let each = ContextMemory { anchor, sharing, n_blocks: 1, ..LAST };
        let of = |memory| all_logits(&*model, &with(memory, CacheType::F32), &tokens, 90);
        let want = of(each);
        for token_step in [4, 64] {
            let memory = ContextMemory { token_step, ..each };
            let found = of(memory);
            let rows = || found.chunks_exact(97).zip(want.chunks_exact(97)).enumerate();
            for (position, (found, want)) in rows() {
                if memory.chosen_at(position) == position {
                    assert_same_bits(found, want, &format!("position {position}, {memory}"));
                }
            }
            assert!(rows().any(|(_, (found, want))| found != want), "{memory} changes nothing");
        }
    }
}

/// A layer that follows another one reads what that chose, and changes nothing where all is read.
pub(super) fn layers(executor: &dyn Executor) {
    let made = Made::new(executor, &tiny("qwen2", GgmlType::F32), 6);
    let tokens = tokens(N, 54);
    let of = |memory| all_logits(&*made.tested, &with(memory, CacheType::F32), &tokens, 90);
    let each = ContextMemory { n_blocks: 1, ..SMALL };
    let found = of(ContextMemory { layer_step: 2, ..each });
    assert!(found != of(each), "the second layer chooses for itself");
    // one that begins with the second layer has no other to choose for
    assert_same_bits(&of(ContextMemory { layer_step: 2, ..LAST }), &of(LAST), "one layer");
    for sharing in BlockSharing::ALL {
        let all = ContextMemory { n_blocks: 50, positions: FarPositions::Exact, sharing, ..SMALL };
        let shared = ContextMemory { token_step: 16, layer_step: 2, ..all };
        assert_same_bits(&of(shared), &of(all), "all is read");
    }
}

/// The first token of each block chooses by what it asks for alone, those after it do not; a share of 1 is what there is without.
pub(super) fn smoothing(executor: &dyn Executor) {
    let model = Made::new(executor, &tiny("qwen2", GgmlType::F32), 6).tested;
    let tokens = tokens(N, 57);
    for anchor in [BlockAnchor::Bounds, BlockAnchor::Greatest, BlockAnchor::Products] {
        let each = ContextMemory { anchor, n_blocks: 1, ..LAST };
        let of = |share| {
            let memory = ContextMemory { smoothing: share, ..each };
            all_logits(&*model, &with(memory, CacheType::F32), &tokens, 90)
        };
        let (want, found) = (of(None), of(Smoothing::new(0.1)));
        let rows = || found.chunks_exact(97).zip(want.chunks_exact(97)).enumerate();
        for (position, (found, want)) in rows() {
            if position.is_multiple_of(each.block as usize) {
                assert_same_bits(found, want, &format!("position {position}, {each}"));
            }
        }
        assert!(
            rows().any(|(_, (found, want))| found != want),
            "{each}: smoothing changes nothing"
        );
        assert_same_bits(&of(Smoothing::new(1.0)), &want, "a share of 1");
    }
}

/// A model whose second layer reads what the first appended reads what that chose, too.
pub(super) fn readers(executor: &dyn Executor) {
    let made = Made::new(executor, &reader(), 6);
    let tokens = tokens(N, 55);
    let half = Smoothing::new(0.5);
    for (token_step, layer_step, smoothing) in
        [(1, 1, None), (8, 1, None), (1, 2, None), (4, 3, half), (1, 1, half)]
    {
        for anchor in [BlockAnchor::Bounds, BlockAnchor::Products] {
            let steps = ContextMemory { token_step, layer_step, smoothing, ..SMALL };
            let memory = ContextMemory { anchor, n_blocks: 1, ..steps };
            let options = with(memory, CacheType::F32);
            let want = all_logits(&*made.oracle, &options, &tokens, N);
            let found = all_logits(&*made.tested, &options, &tokens, 70);
            assert_close(&found, &want, 1e-9, &format!("a shared cache, {memory}"));
            let cut = all_logits(&*made.tested, &options, &tokens, 13);
            assert_same_bits(&cut, &found, &format!("a shared cache in parts, {memory}"));
        }
    }
}

/// A tiny model of two layers on one cache.
fn reader() -> Arc<Program> {
    let mut program = tiny("qwen2", GgmlType::F32);
    let changed = Arc::make_mut(&mut program);
    for node in &mut changed.nodes {
        if let Op::Attention(at) = &mut node.op
            && at.cache.0 == 1
        {
            (at.cache.0, at.appends) = (0, false);
            node.inputs.truncate(1);
        }
    }
    changed.caches.truncate(1);
    program
}

/// What does not fit is refused when a session opens.
pub(super) fn refused(executor: &dyn Executor) {
    let model = Made::new(executor, &tiny("qwen2", GgmlType::F32), 4).tested;
    let certificate = Certificate::new(0.1);
    for bad in [
        ContextMemory { token_step: 3, ..SMALL },
        ContextMemory { token_step: 0, ..SMALL },
        ContextMemory { layer_step: 0, ..SMALL },
        ContextMemory { token_step: 2, certificate, ..SMALL },
        ContextMemory { layer_step: 2, certificate, ..SMALL },
        ContextMemory { smoothing: Smoothing::new(0.5), certificate, ..SMALL },
        ContextMemory { smoothing: Smoothing::new(0.5), anchor: BlockAnchor::All, ..SMALL },
        ContextMemory { token_step: 2, n_blocks: ContextMemory::MOST_KEPT + 1, ..SMALL },
    ] {
        let refused = model.open(&with(bad, CacheType::F32));
        assert!(matches!(refused, Err(Error::Unsupported(_))), "{bad} is refused");
    }
}
