//! Counts on the command line, all by one parser: `8192`, `32k` of 1024 each, `1m`, `-1` where that means something.

/// A whole number that is not negative. `k` is 1024 and `m` 1024 times that; `1.5k` is whole, `1.5` is not.
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
    // beyond 2^53 a float has no units
    (factor > 1 && n.fract() == 0.0 && n < 9e15).then_some(n as u64)
}

/// A count within `least..=most`; what is wrong with another, said with the range.
pub fn within(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let n = whole(text).and_then(|n| usize::try_from(n).ok());
    n.filter(|n| (least..=most).contains(n)).ok_or_else(|| match most {
        usize::MAX => format!("expected a number from {least}, such as 512 or 4k"),
        _ => format!("expected a number from {least} to {most}"),
    })
}

/// A count, or `None` for -1.
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

/// Most threads that may be asked for.
pub const MAX_THREADS: usize = 1024;

/// A number of threads that may be left to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadCount(pub Option<usize>);

/// A number of threads; -1, as in llama.cpp, for the default.
pub fn threads(text: &str) -> Result<ThreadCount, String> {
    or_default(text, 1, MAX_THREADS, "one for each physical core").map(ThreadCount)
}

/// Most tokens per pass.
pub const MAX_CHUNK: usize = 65_536;

/// Tokens per pass.
pub fn chunk(text: &str) -> Result<usize, String> {
    within(text, 1, MAX_CHUNK)
}

/// Positions of a context, 0 for the model's own.
pub fn context(text: &str) -> Result<usize, String> {
    within(text, 0, usize::MAX).map_err(|_| {
        "expected a number of tokens such as 8192 or 32k, or 0 for the model's own".into()
    })
}

/// Tokens to generate; `None` for no limit but the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyLength(pub Option<usize>);

/// Tokens to generate, -1 for no limit but the context.
pub fn predict(text: &str) -> Result<ReplyLength, String> {
    or_default(text, 0, usize::MAX, "no limit but the context").map(ReplyLength).map_err(|_| {
        "expected a number of tokens such as 200 or 4k, or -1 for no limit but the context".into()
    })
}

/// Tokens of something that has at least one.
pub fn tokens(text: &str) -> Result<usize, String> {
    within(text, 1, usize::MAX)
}

/// A count that may be 0.
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
