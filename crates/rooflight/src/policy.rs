//! Checks and describes cache policies.

use program::{BlockAnchor, ContextMemory, KvPolicy};

use crate::{Error, Result};

/// Checks that the settings of a policy are compatible.
///
/// # Errors
/// [`Error::Options`] that names the options to change.
pub fn check(policy: &KvPolicy) -> Result<()> {
    match policy {
        KvPolicy::Memory(memory) => memory.check().map_err(|error| {
            if memory.certificate.is_some() && memory.anchor != BlockAnchor::Bounds {
                let anchor = memory.anchor.name();
                let why = format!("--kv-eps needs --kv-anchor bounds: {anchor} proves nothing");
                return Error::Options(why);
            }
            if (ContextMemory { smoothing: None, ..*memory }).check().is_ok() {
                return Error::Options(if memory.certificate.is_some() {
                    "--kv-eps proves what each query leaves out: leave out --kv-smooth".into()
                } else {
                    "--kv-smooth needs an anchor: --kv-anchor all reads all keys".into()
                });
            }
            // the settings are valid if each query makes its own choice
            if (ContextMemory { token_step: 1, layer_step: 1, ..*memory }).check().is_ok() {
                return Error::Options(if memory.certificate.is_some() {
                    "--kv-eps proves what each query leaves out: leave out --kv-token-step and --kv-layer-step".into()
                } else {
                    let (blocks, most) = (memory.n_blocks, ContextMemory::MOST_KEPT);
                    format!("--kv-token-step keeps choices of at most {most} blocks: not of {blocks}")
                });
            }
            // the settings are valid without super-blocks
            if (ContextMemory { n_supers: 0, ..*memory }).check().is_ok() {
                let (supers, blocks, size) =
                    (memory.n_supers, memory.n_blocks, ContextMemory::SUPER);
                let all = "looks at all blocks: leave out --kv-supers, or give 0";
                return Error::Options(if memory.certificate.is_some() {
                    format!("--kv-eps {all}")
                } else if memory.anchor == BlockAnchor::All {
                    format!("--kv-anchor all {all}")
                } else {
                    let least = (blocks as usize).div_ceil(size);
                    format!(
                        "--kv-supers {supers}: they have {size} blocks each, of which {blocks} are chosen: give {least} or more, or 0"
                    )
                });
            }
            Error::Options(error.to_string())
        }),
        KvPolicy::Full => Ok(()),
    }
}

/// Describes a policy that omits positions, as the end of a list: `, window of 4096`. Empty for the full policy.
pub fn told(policy: &KvPolicy) -> String {
    match policy {
        KvPolicy::Full => String::new(),
        KvPolicy::Memory(memory) => format!(", {memory}"),
    }
}
