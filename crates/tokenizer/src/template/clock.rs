//! Dates for `strftime_now`, in UTC.

use std::fmt::Write;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// `seconds` since 1970 in the format of C's `strftime`. Directives that templates do not use stay as they are.
pub(super) fn format(pattern: &str, seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day, day_of_year) = date(days);
    let (month_name, day_name) = (MONTHS[month], DAYS[(days + 4).rem_euclid(7) as usize]);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let hour12 = (hour + 11) % 12 + 1;
    let mut text = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        let mut directive = chars.next();
        // `%-d` is `%d` without padding.
        let padded = directive != Some('-');
        if !padded {
            directive = chars.next();
        }
        let mut number = |value: i64, width: usize| {
            let width = if padded { width } else { 1 };
            write!(text, "{value:0width$}").expect("writing to a String cannot fail");
        };
        match directive {
            Some('Y') => number(year, 4),
            Some('y') => number(year.rem_euclid(100), 2),
            Some('m') => number(month as i64 + 1, 2),
            Some('d') => number(day, 2),
            Some('j') => number(day_of_year, 3),
            Some('H') => number(hour, 2),
            Some('I') => number(hour12, 2),
            Some('M') => number(minute, 2),
            Some('S') => number(second, 2),
            Some('B') => text.push_str(month_name),
            Some('b' | 'h') => text.push_str(&month_name[..3]),
            Some('A') => text.push_str(day_name),
            Some('a') => text.push_str(&day_name[..3]),
            Some('p') => text.push_str(if hour < 12 { "AM" } else { "PM" }),
            Some('F') => text.push_str(&format("%Y-%m-%d", seconds)),
            Some('T') => text.push_str(&format("%H:%M:%S", seconds)),
            Some('Z') => text.push_str("UTC"),
            Some('%') | None => text.push('%'),
            Some(other) => text.extend(['%', other]),
        }
    }
    text
}

/// Year, month from 0, day from 1 and day of the year from 1, of a day counted from 1970-01-01 (proleptic Gregorian).
fn date(days: i64) -> (i64, usize, i64, i64) {
    let is_leap = |y: i64| (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
    // 400 years are 146,097 days; 1970 is 370 years after 1600, which starts such a cycle.
    let since_1600 = days + 135_140;
    let mut year = 1600 + 400 * since_1600.div_euclid(146_097);
    let mut left = since_1600.rem_euclid(146_097);
    while left >= 365 + i64::from(is_leap(year)) {
        left -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let day_of_year = left + 1;
    let lengths = [31, 28 + i64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while left >= lengths[month] {
        left -= lengths[month];
        month += 1;
    }
    (year, month, left + 1, day_of_year)
}
