//! Caches that round: how far they may be off, and what they weigh.

use program::{CacheOptions, CacheType, Executor, Outputs};
use quant::GgmlType;

use crate::made::{EXACT, all_logits, feed};
use crate::{Made, Random, assert_close, tiny_config, tiny_model};

pub(super) fn precision(executor: &dyn Executor) {
    let error = |cache| -> f64 {
        match cache {
            CacheType::F32 => 1e-9,
            CacheType::F16 => 1e-5,
            _ => 1e-3,
        }
    };
    // Heads of 16, 24 and 32: fewer than a block of 32, and one block.
    for (architecture, width) in [("qwen2", 64), ("llama", 96), ("qwen3", 128)] {
        let program = tiny_model(&tiny_config(architecture, width, false), GgmlType::F32);
        let made = Made::new(executor, &program, 6);
        let tokens = Random::new(30).tokens(280, 97);
        let want = all_logits(&*made.oracle, &EXACT, &tokens, 280);
        for k in CacheType::ALL {
            for v in CacheType::ALL {
                let options = CacheOptions::new(k, v, 280);
                let found = all_logits(&*made.tested, &options, &tokens, 100);
                let what = format!(
                    "{architecture} of width {width}, {} keys, {} values",
                    k.name(),
                    v.name()
                );
                assert_close(&found, &want, error(k).max(error(v)), &what);
            }
        }
    }
}

pub(super) fn memory(executor: &dyn Executor) {
    let model =
        Made::new(executor, &tiny_model(&tiny_config("qwen2", 64, false), GgmlType::F32), 6).tested;
    let elements = model.program().cache_elements_per_token();
    for cache in CacheType::ALL {
        let session =
            model.open(&CacheOptions::new(cache, cache, 1 << 20)).expect("a long session opens");
        let bytes =
            |what: &str| model.cache_bytes(session).unwrap_or_else(|e| panic!("{what}: {e}"));
        let whole = CacheType::F32.bytes(elements << 20);
        assert!(
            bytes("empty") <= whole / 64,
            "an empty cache takes {} of {whole} bytes",
            bytes("empty")
        );
        feed(&*model, session, &Random::new(31).tokens(280, 97), Outputs::NONE);
        // An executor may store more than asked for, never less than the rows need.
        let least = CacheType::Q8_0.bytes(elements * 280);
        assert!(
            bytes("280 rows") >= least,
            "280 rows take {} bytes, less than {least}",
            bytes("280 rows")
        );
        assert!(
            bytes("280 rows") <= whole / 64,
            "280 rows take {} of {whole} bytes",
            bytes("280 rows")
        );
        model.close(session);
    }
}
