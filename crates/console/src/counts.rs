//! Parses counts on the command line: `8192`, `32k` (times 1024), `1m`, and `-1` where it has a meaning.

/// Parses a non-negative integer. `k` means 1024, and `m` means 1024 times 1024. `1.5k` is an integer, `1.5` is not. Returns
/// `None` for other text.
pub fn whole(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, factor) = match text.char_indices().last()? {
        (end, 'k' | 'K') => (&text[..end], 1 << 10),
        (end, 'm' | 'M') => (&text[..end], 1 << 20),
        _ => (text, 1_u64),
    };
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if let Ok(n) = number.parse::<u64>() {
        return n.checked_mul(factor);
    }
    let digits = |c: char| c.is_ascii_digit() || c == '.';
    let n = number.parse::<f64>().ok().filter(|_| number.chars().all(digits))? * factor as f64;
    // above 2^53, f64 cannot represent all integers
    (factor > 1 && n.fract() == 0.0 && n < 9e15).then_some(n as u64)
}

/// Parses an integer in `least..=most`.
///
/// # Errors
/// A message with the expected range.
pub fn within(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let n = whole(text).and_then(|n| usize::try_from(n).ok());
    n.filter(|n| (least..=most).contains(n)).ok_or_else(|| match most {
        usize::MAX => format!("expected a number from {least}, such as 512 or 4k"),
        _ => format!("expected a number from {least} to {most}"),
    })
}

/// Parses an integer in `least..=most`, or -1 as `None`.
fn or_default(
    text: &str,
    least: usize,
    most: usize,
    meaning: &str,
) -> Result<Option<usize>, String> {
    if text.trim() == "-1" {
        return Ok(None);
    }
    within(text, least, most)
        .map(Some)
        .map_err(|expected| format!("{expected}, or -1 for {meaning}"))
}

/// Maximum number of threads on the command line.
pub const MAX_THREADS: usize = 1024;

/// Number of threads; `None` for the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadCount(pub Option<usize>);

/// Parses a number of threads. -1 means the default, as in llama.cpp.
///
/// # Errors
/// A message with the expected range.
pub fn threads(text: &str) -> Result<ThreadCount, String> {
    or_default(text, 1, MAX_THREADS, "one for each physical core").map(ThreadCount)
}

/// Maximum number of tokens per pass.
pub const MAX_CHUNK: usize = 65_536;

/// Parses the number of tokens per pass.
///
/// # Errors
/// A message with the expected range.
pub fn chunk(text: &str) -> Result<usize, String> {
    within(text, 1, MAX_CHUNK)
}

/// Parses a context in tokens. 0 means the context of the model.
///
/// # Errors
/// A message with the expected values.
pub fn context(text: &str) -> Result<usize, String> {
    within(text, 0, usize::MAX).map_err(|_| {
        "expected a number of tokens such as 8192 or 32k, or 0 for the model's own".into()
    })
}

/// Number of tokens to generate; `None` if only the context limits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyLength(pub Option<usize>);

/// Parses a number of tokens to generate. -1 means that only the context limits it.
///
/// # Errors
/// A message with the expected values.
pub fn predict(text: &str) -> Result<ReplyLength, String> {
    or_default(text, 0, usize::MAX, "no limit but the context").map(ReplyLength).map_err(|_| {
        "expected a number of tokens such as 200 or 4k, or -1 for no limit but the context".into()
    })
}

/// Parses a number of tokens, at least 1.
///
/// # Errors
/// A message with the expected range.
pub fn tokens(text: &str) -> Result<usize, String> {
    within(text, 1, usize::MAX)
}

/// Parses a count, at least 0.
///
/// # Errors
/// A message with the expected range.
pub fn any(text: &str) -> Result<usize, String> {
    within(text, 0, usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_meaning_of_numbers() {
        for (text, want) in [
            ("0", Some(0)),
            ("8192", Some(8192)),
            ("4k", Some(4096)),
            ("1.5K", Some(1536)),
            (" 2m ", Some(2 << 20)),
            ("18446744073709551615", Some(u64::MAX)),
        ] {
            assert_eq!(whole(text), want, "{text}");
        }
        for text in [
            "",
            "k",
            "-1",
            "1.5",
            "1e3",
            "1g",
            "4 k",
            "+3",
            "infk",
            "nan",
            "1.0003k",
            "18446744073709551615k",
            ".5k",
        ] {
            assert_eq!(whole(text), None, "{text}");
        }
    }

    #[test]
    fn ranges_are_said() {
        assert_eq!(threads("-1"), Ok(ThreadCount(None)));
        assert_eq!(threads("2"), Ok(ThreadCount(Some(2))));
        let told = threads("0").unwrap_err();
        assert!(told.contains("from 1 to 1024") && told.contains("-1"), "{told}");
        assert_eq!(chunk("1k"), Ok(1024));
        assert!(chunk("0").unwrap_err().contains("from 1 to 65536"));
        assert_eq!((context("0"), context("4k")), (Ok(0), Ok(4096)));
        assert!(context("-1").unwrap_err().contains("32k"));
        assert_eq!(
            (predict("-1"), predict("0")),
            (Ok(ReplyLength(None)), Ok(ReplyLength(Some(0))))
        );
        assert!(predict("-5").unwrap_err().contains("-1"));
        assert!(tokens("0").is_err() && any("0").is_ok());
    }
}
