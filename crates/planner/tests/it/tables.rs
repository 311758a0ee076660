//! Every cell of the article's computed tables as printed, against ours: they agree, but for the errata listed.

use planner::article::errata::{CELLS, Erratum};
use planner::article::{ArticleValue, tables};
use planner::formula::Units;

/// Does a number of as many decimals as `printed` has, and the same unit, come out as `printed`?
fn agrees(ours: &ArticleValue, printed: &str) -> bool {
    let unit = printed.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = &printed[..printed.len() - unit.len()];
    let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    match ours {
        // Fewer digits in some tables than in others: 66B for 66.16B.
        ArticleValue::Giga(x) if unit == "B" => format!("{x:.decimals$}") == number,
        other => other.to_string().replace(' ', "") == printed,
    }
}

#[test]
fn cells_are_as_printed_but_for_the_errata() {
    let ours = tables(Units::Article);
    let printed = include_str!("../data/article.txt").lines().filter(|line| !line.starts_with('#'));
    let (mut compared, mut rows) = (0, 0);
    let mut wrong: Vec<&Erratum> = Vec::new();
    for line in printed {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [section, name, cells @ ..] = &cells[..] else { panic!("{line}") };
        let table = ours.iter().find(|t| t.section == *section).expect(section);
        let (model, values) = table.rows.iter().find(|(m, _)| m == name).expect(line);
        assert_eq!((values.len(), table.columns.len()), (cells.len(), cells.len()), "{line}");
        for (column, (value, printed)) in values.iter().zip(cells).enumerate() {
            let place = format!("{section} {name} {}", table.columns[column]);
            match table.erratum(model, column) {
                None => assert!(agrees(value, printed), "{place}: {value}, printed {printed}"),
                Some(erratum) => {
                    assert!(!agrees(value, printed), "{place} is no erratum");
                    assert_eq!(erratum.printed, *printed, "{place}");
                    wrong.push(erratum);
                }
            }
            compared += 1;
        }
        rows += 1;
    }
    assert_eq!(compared, 488);
    assert_eq!(rows, ours.iter().map(|table| table.rows.len()).sum::<usize>());
    assert_eq!(wrong, CELLS.iter().collect::<Vec<_>>(), "every erratum is found, in order");
}

/// Erratum by erratum, what is right.
#[test]
fn corrected_cells() {
    let ours = tables(Units::Article);
    let correct = CELLS.iter().map(|e| {
        let table = ours.iter().find(|t| t.section == e.section).unwrap();
        table.rows.iter().find(|(m, _)| *m == e.model).unwrap().1[e.column].to_string()
    });
    let want = [
        "12.47B", "6.18ms", "131.27ms", "49152", "0.15625M", "12.47B", "32.05B", "111.16B",
        "0.15625M", "6.18ms", "131.27ms",
    ];
    assert_eq!(correct.collect::<Vec<_>>(), want);
}

/// Decimal units, which are right: reading takes 1.0737 times as long as printed.
#[test]
fn decimal_units() {
    let seven = |units, section| {
        let table = tables(units).into_iter().find(|t| t.section == section).unwrap();
        table.rows.into_iter().find(|(m, _)| *m == "7B").unwrap().1
    };
    assert_eq!(seven(Units::Decimal, "3.1")[4].to_string(), "6.48B");
    assert_eq!(seven(Units::Decimal, "4.4")[1].to_string(), "14.08ms");
    // A ratio of the two: 82.58 TFLOP/s by 1008 GB/s is less in decimal units, and so is the inflection.
    assert_eq!(seven(Units::Decimal, "4.3")[1].to_string(), "109 \\ 500");
}

#[test]
fn fields_are_in_full() {
    let ours = tables(Units::Article);
    let row = |section: &str, name: &str| {
        let table = ours.iter().find(|t| t.section == section).unwrap();
        let (_, values) = table.rows.iter().find(|(m, _)| *m == name).unwrap();
        values.iter().map(ArticleValue::fields).collect::<Vec<_>>()
    };
    assert_eq!(row("4.3", "0.5B")[0], ["", ""]);
    let turns = &row("4.3", "7B")[1];
    assert!(turns[0].starts_with("113.7") && turns[1].starts_with("481.3"), "{turns:?}");
    assert_eq!(row("3.3", "14B")[2], [""]);
    assert_eq!(row("3.2", "4B")[2], ["0.1953125"]);
}
