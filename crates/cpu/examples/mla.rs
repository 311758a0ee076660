//! Time and memory of latent attention in each form:
//! `cargo run --release -p rooflight-cpu --example mla -- v2|lite [context,..] [tokens,..] [form,..] [threads]`.

use cpu::{Cpu, MlaBench, MlaDims, MlaForm, MlaLayer, Options};
use program::CacheType;
use quant::GgmlType;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |i: usize| args.get(i).map(String::as_str);
    let numbers = |i: usize, default: &str| -> Vec<usize> {
        let list = arg(i).unwrap_or(default).split(',');
        list.map(|n| n.parse().expect("a number")).collect()
    };
    let v2 = arg(0) != Some("lite");
    let dims = MlaDims {
        n_heads: if v2 { 128 } else { 16 },
        rank: 512,
        nope_dim: 128,
        rope_dim: 64,
        value_dim: 128,
    };
    let layer = MlaLayer {
        dims,
        hidden_size: if v2 { 5120 } else { 2048 },
        q_rank: v2.then_some(1536),
        ty: GgmlType::F16,
        cache: CacheType::F16,
    };
    let forms = arg(3).unwrap_or("expanded,compressed,absorbed,elided");
    let threads = arg(4).map(|n| n.parse().expect("a number of threads"));
    let cpu = Cpu::new(&Options { threads, ..Options::default() });
    for form in forms.split(',').map(|name| MlaForm::parse(name).expect("a form")) {
        let bench = MlaBench::new(&cpu, layer, form).expect("memory");
        for context in numbers(1, "1024,8192") {
            for n in numbers(2, "1,16") {
                let measure = bench.measure(context, n, 3).expect("memory");
                let best = measure.attention.iter().min().expect("repetitions");
                let layer = measure.layer.iter().min().expect("repetitions");
                eprintln!(
                    "{:<10} context {context:>6} tokens {n:>3}: attention {:>9.3} ms, layer {:>9.3} ms, {:>7.1} \
                     GFLOP/s, cache {:>5} MiB, work {:>5.1} MiB",
                    form.name(),
                    best.as_secs_f64() * 1e3,
                    layer.as_secs_f64() * 1e3,
                    measure.flops as f64 / best.as_secs_f64() / 1e9,
                    measure.cache_bytes >> 20,
                    measure.work_bytes as f64 / f64::from(1 << 20),
                );
            }
        }
    }
}
