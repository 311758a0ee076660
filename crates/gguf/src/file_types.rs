//! File types: the numbers of `general.file_type` and their names.
//!
//! Source: the list of file types in the GGUF specification and `llama_ftype` of llama.cpp.

/// Quantization of a file as a whole; the types of its tensors differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileType {
    /// Value of `general.file_type`.
    pub number: u32,
    /// Name in file names and on the command line: `Q4_K_M`.
    pub name: &'static str,
    /// Name that llama.cpp's tools print: `Q4_K - Medium`.
    pub description: &'static str,
    /// Whether weights are floating-point numbers, not quantized.
    pub is_float: bool,
}

impl FileType {
    const fn quantized(number: u32, name: &'static str, description: &'static str) -> FileType {
        FileType { number, name, description, is_float: false }
    }

    const fn float(number: u32, name: &'static str) -> FileType {
        FileType { number, name, description: name, is_float: true }
    }

    /// Returns the file type of this number; `None` if the number is unknown or no longer used.
    pub fn from_number(number: u64) -> Option<&'static FileType> {
        FILE_TYPES.iter().find(|ty| u64::from(ty.number) == number)
    }
}

/// All file types in use, by number.
pub const FILE_TYPES: &[FileType] = &[
    FileType::float(0, "F32"),
    FileType::float(1, "F16"),
    FileType::quantized(2, "Q4_0", "Q4_0"),
    FileType::quantized(3, "Q4_1", "Q4_1"),
    FileType::quantized(7, "Q8_0", "Q8_0"),
    FileType::quantized(8, "Q5_0", "Q5_0"),
    FileType::quantized(9, "Q5_1", "Q5_1"),
    FileType::quantized(10, "Q2_K", "Q2_K - Medium"),
    FileType::quantized(11, "Q3_K_S", "Q3_K - Small"),
    FileType::quantized(12, "Q3_K_M", "Q3_K - Medium"),
    FileType::quantized(13, "Q3_K_L", "Q3_K - Large"),
    FileType::quantized(14, "Q4_K_S", "Q4_K - Small"),
    FileType::quantized(15, "Q4_K_M", "Q4_K - Medium"),
    FileType::quantized(16, "Q5_K_S", "Q5_K - Small"),
    FileType::quantized(17, "Q5_K_M", "Q5_K - Medium"),
    FileType::quantized(18, "Q6_K", "Q6_K"),
    FileType::quantized(19, "IQ2_XXS", "IQ2_XXS - 2.0625 bpw"),
    FileType::quantized(20, "IQ2_XS", "IQ2_XS - 2.3125 bpw"),
    FileType::quantized(21, "Q2_K_S", "Q2_K - Small"),
    FileType::quantized(22, "IQ3_XS", "IQ3_XS - 3.3 bpw"),
    FileType::quantized(23, "IQ3_XXS", "IQ3_XXS - 3.0625 bpw"),
    FileType::quantized(24, "IQ1_S", "IQ1_S - 1.5625 bpw"),
    FileType::quantized(25, "IQ4_NL", "IQ4_NL - 4.5 bpw"),
    FileType::quantized(26, "IQ3_S", "IQ3_S - 3.4375 bpw"),
    FileType::quantized(27, "IQ3_M", "IQ3_S mix - 3.66 bpw"),
    FileType::quantized(28, "IQ2_S", "IQ2_S - 2.5 bpw"),
    FileType::quantized(29, "IQ2_M", "IQ2_M - 2.7 bpw"),
    FileType::quantized(30, "IQ4_XS", "IQ4_XS - 4.25 bpw"),
    FileType::quantized(31, "IQ1_M", "IQ1_M - 1.75 bpw"),
    FileType::float(32, "BF16"),
    FileType::quantized(36, "TQ1_0", "TQ1_0 - 1.69 bpw ternary"),
    FileType::quantized(37, "TQ2_0", "TQ2_0 - 2.06 bpw ternary"),
    FileType::quantized(38, "MXFP4_MOE", "MXFP4 MoE"),
];
