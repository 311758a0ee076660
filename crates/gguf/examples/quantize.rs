//! Writes a GGUF file again with every matrix of whole blocks in another type; vectors stay as they are.
//!
//! `cargo run --release -p rooflight-gguf --example quantize -- IN.gguf OUT.gguf Q4_K`

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use gguf::{GgmlType, Gguf, TensorInfo, Writer};

/// Types and their numbers in `general.file_type`.
const FILE_TYPES: &[(GgmlType, u32)] = &[
    (GgmlType::F32, 0),
    (GgmlType::F16, 1),
    (GgmlType::Q4_0, 2),
    (GgmlType::Q8_0, 7),
    (GgmlType::Q2K, 10),
    (GgmlType::Q3K, 12),
    (GgmlType::Q4K, 15),
    (GgmlType::Q5K, 17),
    (GgmlType::Q6K, 18),
];

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [source, target, ty] = args.as_slice() else {
        return Err("expected IN.gguf OUT.gguf TYPE".into());
    };
    let ty = GgmlType::from_name(ty).ok_or_else(|| format!("unknown type {ty}"))?;
    let file = Gguf::open(Path::new(source))?;
    let mut writer = Writer::new();
    for (key, value) in file.metadata().iter() {
        writer.set(key, value);
    }
    if let Some(&(_, number)) = FILE_TYPES.iter().find(|row| row.0 == ty) {
        writer.set("general.file_type", number);
    }
    for tensor in file.tensors() {
        let (ty, bytes) = converted(&file, tensor, ty)?;
        writer.tensor(&tensor.name, ty, &tensor.dims, bytes);
    }
    writer.write_to(&mut BufWriter::new(File::create(target)?))?;
    Ok(())
}

/// The tensor's type and bytes in the new file.
fn converted(
    file: &Gguf,
    tensor: &TensorInfo,
    ty: GgmlType,
) -> Result<(GgmlType, Vec<u8>), Box<dyn Error>> {
    let (old, bytes) = (tensor.ty()?, file.bytes(tensor)?);
    let cols = usize::try_from(tensor.cols())?;
    if tensor.rows() < 2 || !cols.is_multiple_of(ty.block_len()) {
        return Ok((old, bytes));
    }
    let mut weights = vec![0.0; usize::try_from(tensor.elements())?];
    let format =
        |ty| quant::format(ty).ok_or_else(|| format!("{} is no type of weights", ty.name()));
    format(old)?.dequantize(&bytes, &mut weights);
    let row_bytes = ty.row_bytes(cols).ok_or("a row that is no whole number of blocks")?;
    let mut out = vec![0; row_bytes * (weights.len() / cols)];
    if !format(ty)?.quantize(&weights, &mut out) {
        return Err(format!("{} has no quantizer", ty.name()).into());
    }
    Ok((ty, out))
}
