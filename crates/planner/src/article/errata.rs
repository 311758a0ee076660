//! What the article prints wrong. Tables here show what its own formulas give.

/// A cell that is printed otherwise than computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Erratum {
    /// Section of the table.
    pub section: &'static str,
    /// Name of the model.
    pub model: &'static str,
    /// Column after the name, from 0.
    pub column: usize,
    /// What the article prints.
    pub printed: &'static str,
    /// Why that is wrong.
    pub why: &'static str,
}

/// Something in the text, in code or in a heading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Where.
    pub section: &'static str,
    /// What the article says.
    pub printed: &'static str,
    /// What is right.
    pub correct: &'static str,
}

const fn cell(
    section: &'static str,
    model: &'static str,
    column: usize,
    printed: &'static str,
    why: &'static str,
) -> Erratum {
    Erratum { section, model, column, printed, why }
}

const INTERMEDIATE: &str = "With 24576 the layers would have 65.00B parameters, as those of 72B; the 110.00B printed beside it is that of 49152.";
const CACHE: &str =
    "80 layers x 2 x 8192 / 8 elements; W = 3303 and both inflections are computed with 0.15625M.";
const ACTIVE: &str =
    "Section 5.1.1 has the right number, and the tokens beside it are computed with it.";
const OF_GQA: &str =
    "That of the model with GQA; the tokens beside it are computed with the right one.";
const ROUNDED: &str =
    "The last digit is rounded from a number that was rounded before: 6.1849 and 131.2738.";

/// All of them, by section.
pub static CELLS: &[Erratum] = &[
    cell("3.3", "14B", 0, "12.6B", ACTIVE),
    cell("4.4", "14B", 5, "6.19ms", ROUNDED),
    cell("4.4", "72B", 1, "131.28ms", ROUNDED),
    cell("5.1.1", "110B without GQA", 3, "24576", INTERMEDIATE),
    cell("5.1.2", "110B", 3, "0.125M", CACHE),
    cell("5.1.3", "14B", 0, "12.6B", ACTIVE),
    cell("5.1.3", "32B without GQA", 0, "29.6B", OF_GQA),
    cell("5.1.3", "110B without GQA", 0, "102B", OF_GQA),
    cell("5.1.3", "110B", 1, "0.125M", CACHE),
    cell("5.1.5", "14B", 5, "6.19ms", ROUNDED),
    cell("5.1.5", "72B", 1, "131.28ms", ROUNDED),
];

/// Beside the tables.
pub static REMARKS: &[Remark] = &[
    Remark {
        section: "3.1",
        printed: "0.5B has 442.375M parameters in total; its head is more than 30 % of the total",
        correct: "442.375M are active, 590.75M is the total: the head is 33.5 % of what is active, 25.1 % of the total",
    },
    Remark {
        section: "3.3",
        printed: "the memory holds the active weights and the cache",
        correct: "the embedding, activations, logits and the driver need memory too: 7B in 16 bits has room for 19698 tokens \
                  beside all its weights, not for 22072",
    },
    Remark {
        section: "4.3",
        printed: "exact compute latency = (parameters of the layers * + ...",
        correct: "(parameters of the layers * prompt length + ...; the code beside it is right",
    },
    Remark {
        section: "4.3",
        printed: "the fifth column is headed \"w4kv16 exact\", as the sixth",
        correct: "it is w4kv16 rough; the same in section 5.1.4",
    },
    Remark {
        section: "4.3",
        printed: "reading the cache binds from a second inflection on",
        correct: "true only of attention that reads the cache again for every query; kernels that work in tiles of queries \
                  move that inflection far out",
    },
    Remark {
        section: "4.4",
        printed: "compute latency = (parameters + cache) * 2 / FLOP per second",
        correct: "with GQA the cache counts once per query head of a group",
    },
    Remark {
        section: "4.4",
        printed: "7B w8kv16 at 10000 tokens: 11.56 ms",
        correct: "9999 / 2064.4 + 6.56 = 11.40 ms; the article rounds 4.84 to 5",
    },
    Remark {
        section: "4.4",
        printed: "1008 GB/s and 82.58 TFLOPS, counted as 1008 * 2^30 and 82.58 * 2^40",
        correct: "makers count in powers of ten: times of reading are 1.0737 times those printed, of computing 1.0995 times",
    },
    Remark {
        section: "5.1",
        printed: "o_proj = Linear(num_heads * num_attention_heads, hidden_size)",
        correct: "Linear(num_attention_heads * head_dim, hidden_size)",
    },
];
