//! Every shader becomes what drivers take: SPIR-V, MSL and HLSL, each validated by naga. No device is needed.

use naga::back::{hlsl, msl, spv};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use program::{Gating, GroupScore, Groups, NormKind, Router, ScanRule};
use quant::GgmlType;

use super::recurrence::SCAN_INPUTS;
use super::*;
use crate::formats::{FORMATS, device_format};
use crate::plan::{Place, ValueBuffer};

/// Every shader that plans may ask for, with a few widths of heads.
fn all() -> Vec<Shader> {
    let mut all = Vec::new();
    for format in FORMATS {
        all.push(Shader::embed(format));
        all.push(Shader::matmat(format));
        for (at_once, rows, teams) in [(1, 2, 2), (1, 8, 8), (4, 2, 2), (4, 4, 8), (4, 8, 4)] {
            let shape = TeamShape { rows, teams };
            assert!(shape.is_possible(at_once), "{shape:?}");
            all.push(Shader::matvec(format, at_once, shape));
            all.push(Shader::pieces(format, at_once, shape));
        }
        all.push(Shader::mixed(format));
        all.push(Shader::grouped(format));
        all.push(Shader::turned(format));
        all.push(Shader::grams(format));
    }
    all.extend(element::ALL.map(Shader::rows));
    let norms = [NormKind::Rms, NormKind::Layer].map(group::norm);
    let bodies = [norms[0], norms[1], group::RESIZE, group::EXCESS, group::SOFTMAX];
    all.extend(bodies.map(Shader::groups));
    for keys in [Stored::F32, Stored::F16] {
        for values in [Stored::F32, Stored::F16] {
            let kept = StoredTypes { keys, values };
            all.push(Shader::keys(kept));
            all.push(Shader::latents(kept));
            all.push(Shader::index_keys(kept));
            all.push(Shader::index_scores(kept));
            let sizes =
                [(1, 1, false), (32, 32, false), (64, 20, false), (6, 4, true), (144, 128, true)];
            all.extend(sizes.map(|(key_quads, value_quads, are_latents)| {
                Shader::attend(kept, HeadWidths { key_quads, value_quads, are_latents })
            }));
        }
    }
    all.push(Shader::combine());
    let most = [ceiling::floats().text, ceiling::bytes().text];
    all.extend([ceiling::READ, &most[0], &most[1]].map(Shader::ceiling));
    all.push(Shader::sorted(256));
    all.extend([None, Some(8)].map(|groups| Shader::route(&routing(groups))));
    all.push(Shader::conv());
    for rule in ScanRule::ALL {
        let buffers = [[0; SCAN_INPUTS], [0, 1, 2, 3, 1, 2]];
        let sizes = [1, 33, 128];
        let each = buffers.iter().flat_map(|buffers| sizes.map(|n| Shader::scan(rule, n, buffers)));
        all.extend(each);
    }
    all.extend([lists::STRETCHES, lists::FOUND].map(Shader::best));
    all.extend([Shader::told(), Shader::index_choose(), Shader::marks(), Shader::balance()]);
    all
}

/// A choice of 8 of 256 experts.
fn routing(groups: Option<usize>) -> RouteWork {
    let groups = groups.map(|n_groups| Groups { n_groups, n_used: 4, score: GroupScore::Max });
    let router = Router {
        n_used: 8,
        gating: Gating::Sigmoid,
        bias: None,
        groups,
        normalize: true,
        scale: 1.0,
        factors: None,
        per_chunk: 1,
    };
    let place = Place { buffer: ValueBuffer(0), offset: 0 };
    let (scores, out) = (place, place);
    RouteWork { router, n_experts: 256, bias: None, factors: None, scores, out }
}

#[test]
fn every_shader_is_valid_everywhere() {
    for shader in all() {
        let (name, text) = (shader.kernel.name, shader.text());
        let module = naga::front::wgsl::parse_str(&text)
            .unwrap_or_else(|e| panic!("{name}: {}\n{text}", e.emit_to_string(&text)));
        // half floats in words, and nothing else that a device may lack
        let checked =
            Validator::new(ValidationFlags::all(), Capabilities::SHADER_FLOAT16_IN_FLOAT32)
                .validate(&module);
        let found = checked.unwrap_or_else(|e| panic!("{name}: {}", e.emit_to_string(&text)));
        let spirv = spv::write_vec(&module, &found, &spv::Options::default(), None);
        assert!(spirv.is_ok_and(|words| words.len() > 100), "{name}: SPIR-V");
        let metal = msl::Options { fake_missing_bindings: true, ..msl::Options::default() };
        let metal = msl::write_string(&module, &found, &metal, &msl::PipelineOptions::default());
        assert!(metal.is_ok_and(|(text, _)| text.contains("kernel")), "{name}: MSL");
        let (mut direct, options) = (String::new(), hlsl::Options::default());
        let pipeline = hlsl::PipelineOptions::default();
        let written =
            hlsl::Writer::new(&mut direct, &options, &pipeline).write(&module, &found, None);
        assert!(written.is_ok() && direct.contains("numthreads"), "{name}: HLSL");
    }
}

/// For reading: SPIR-V and MSL of the products that steps are made of, in the folder `ROOFLIGHT_SHADERS`.
#[test]
fn products_are_written_for_reading() {
    let Some(folder) = std::env::var_os("ROOFLIGHT_SHADERS") else { return };
    let folder = std::path::PathBuf::from(folder);
    let write = |name: String, bytes: &[u8]| {
        std::fs::write(folder.join(&name), bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
    };
    for ty in [GgmlType::Q4_0, GgmlType::Q8_0, GgmlType::Q4K] {
        let shader =
            Shader::matvec(device_format(ty).expect("every type has a form"), 1, TeamShape::USUAL);
        let module = naga::front::wgsl::parse_str(&shader.text()).expect("it is valid");
        let capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
        let found = Validator::new(ValidationFlags::all(), capabilities).validate(&module);
        let found = found.expect("it is valid");
        let words = spv::write_vec(&module, &found, &spv::Options::default(), None);
        let bytes = words.expect("it becomes SPIR-V").into_iter().flat_map(u32::to_le_bytes);
        write(format!("matvec-{ty}.spv"), &bytes.collect::<Vec<u8>>());
        let metal = msl::Options { fake_missing_bindings: true, ..msl::Options::default() };
        let metal = msl::write_string(&module, &found, &metal, &msl::PipelineOptions::default());
        write(format!("matvec-{ty}.metal"), metal.expect("it becomes MSL").0.as_bytes());
    }
}

/// What a kernel binds is what its text declares, and its constants fit where they are put.
#[test]
fn bindings_are_those_of_the_text() {
    for shader in all() {
        let (kernel, text) = (shader.kernel, shader.text());
        let declared = text.lines().filter(|line| line.starts_with("@group(0) @binding(")).count();
        assert_eq!(declared, kernel.bindings().count(), "{}", kernel.name);
        assert!(kernel.n_consts() * 4 <= crate::dispatch::CONSTS, "{}", kernel.name);
    }
}
