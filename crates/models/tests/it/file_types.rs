//! File types by name, and types of tensors in them.

use models::{MIXTURES, Mixture, find_outline};
use quant::GgmlType;

#[test]
fn names_are_unique_and_found() {
    for (i, m) in MIXTURES.iter().enumerate() {
        assert!(MIXTURES[..i].iter().all(|other| other.name() != m.name()));
        assert_eq!(Mixture::from_name(&m.name().to_lowercase()), Some(m));
    }
    assert_eq!(Mixture::from_name("q4_k").map(Mixture::name), Some("Q4_K_M"));
    assert_eq!(Mixture::from_name("q9"), None);
}

/// What llama.cpp's quantizer (llama-cpp-python 0.3.36) makes of a Qwen2-MoE with eight experts.
#[test]
fn attention_beside_eight_experts_gets_more_bits() {
    let mut outline = find_outline("Qwen1.5-MoE-A2.7B").expect("a published name");
    let config = outline.set("expert_count", 8u32).config().expect("a valid outline");
    for (name, output) in [
        ("Q6_K", GgmlType::Q6K),
        ("Q5_K_M", GgmlType::Q5K),
        ("Q4_K_M", GgmlType::Q5K),
        ("Q4_0", GgmlType::Q4_0),
        ("IQ4_XS", GgmlType::Q5K),
        ("IQ3_S", GgmlType::Q5K),
        ("Q3_K_L", GgmlType::Q3K),
        ("Q3_K_M", GgmlType::Q5K),
        ("Q2_K", GgmlType::Q5K),
    ] {
        let mixture = Mixture::from_name(name).expect("a file type");
        let ty = |tensor: &str| {
            mixture.tensor_type(&config, &format!("blk.0.{tensor}.weight"), &[2048, 2048])
        };
        assert_eq!(ty("attn_k"), Some(GgmlType::Q8_0), "{name}");
        assert_eq!(ty("attn_v"), Some(GgmlType::Q8_0), "{name}");
        assert_eq!(ty("attn_output"), Some(output), "{name}");
    }
}
