//! Charts that commands write.

use crate::common::Place;

const PLAN: [&str; 5] = ["plan", "qwen1.5-7b", "--device", "rtx4090", "--article-units"];

#[test]
fn a_plan_is_drawn() {
    let place = Place::new();
    let file = place.path("plan.svg");
    let plain = place.ok(&PLAN);
    let with = |more: &[&str]| {
        place.ok(&[&PLAN[..], &["--plot", file.to_str().unwrap(), "--force"], more].concat())
    };
    assert_eq!(with(&[]), plain, "the text stays as it is");
    let svg = std::fs::read_to_string(&file).unwrap();
    for want in [
        "<title>Plan: Qwen1.5-7B</title>",
        ">inflection: 113<",
        ">second, without tiles of queries: 481<",
        ">read<",
        ">compute<",
        ">kv16<",
        ">kv8<",
        ">weights<",
        ">room in 24 GiB<",
        ">22,072<",
        "prefers-color-scheme:dark",
    ] {
        assert!(svg.contains(want), "{want} in {svg}");
    }
    with(&["--ttft", "1s", "--tps", "10"]);
    let svg = std::fs::read_to_string(&file).unwrap();
    assert!(svg.contains(">wanted: 1 s<") && svg.contains(">wanted: 10 tokens a second<"), "{svg}");
}

/// The lines are limits: where they cross does not depend on how a prompt is cut.
#[test]
fn an_inflection_is_marked_where_the_lines_cross() {
    let place = Place::new();
    let svg = |chunk: &str| {
        let args = ["plan", "qwen2.5-7b", "--device", "rtx4090", "--plot", "plan.svg", "--chunk"];
        place.ok(&[&args[..], &[chunk, "--force"]].concat());
        String::from_utf8(place.read("plan.svg")).unwrap()
    };
    let long = svg("512");
    assert!(long.contains(">inflection: ") && long.contains("in 24 GB"), "{long}");
    assert_eq!(svg("16"), long);
}

#[test]
fn the_ending_decides() {
    let place = Place::new();
    let plot = |name: &str| {
        [&PLAN[..], &["--plot", place.path(name).to_str().unwrap()]].concat().join(" ")
    };
    for name in ["plan.png", "plan.pdf"] {
        let (code, told) = place.fails(&plot(name).split(' ').collect::<Vec<_>>());
        assert!(code == 2 && told.contains(".svg") && !place.path(name).exists(), "{told}");
    }
    let (code, told) = place.fails(&plot("no/folder/plan.svg").split(' ').collect::<Vec<_>>());
    assert!(code == 1 && told.contains("writing"), "{told}");
}
