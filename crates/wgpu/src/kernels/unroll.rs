//! Loops of shaders that are written out before a driver sees them.
//!
//! wgpu gives each loop a counter that ends it, against loops without an end. Few drivers unroll such a loop, however short it
//! is, and an array that is indexed by its variable lies in memory then, and not in registers.

/// What stands behind the head of a loop that is written out:
/// `for (var i = 0u; i < 4u; i++) { // unrolled`. It ends at a product of numbers and of constants of the text.
const MARK: &str = "{ // unrolled\n";
/// The same of a loop that only drivers need written out: `ptx` decides itself.
const MARK_FOR_DRIVERS: &str = "{ // unrolled for drivers\n";

/// The text with all of these written out.
pub(super) fn unrolled(text: &str, is_for_drivers: bool) -> String {
    let plain = if is_for_drivers { MARK } else { "{\n" };
    let text = text.replace(MARK_FOR_DRIVERS, plain);
    within(&text, &text)
}

/// The same of a part of a text.
fn within(part: &str, text: &str) -> String {
    let Some(mark) = part.find(MARK) else { return part.to_owned() };
    let begin = part[..mark].rfind("for (").expect("what is marked is a loop");
    let (head, rest) = (&part[begin..mark], &part[mark + MARK.len() - 1..]);
    let end = block_end(rest);
    let name = head.split_whitespace().nth(2).expect("it has a variable");
    let most = head.split_once("< ").and_then(|(_, rest)| rest.split(';').next());
    let most = most.expect("it has an end").split('*');
    let count: usize = most.map(|factor| number(factor.trim(), text)).product();
    let body = within(&rest[..end], text);
    let copies = (0..count).map(|i| format!("{{ const {name} = {i}u; {body}}}\n"));
    let before = &part[..begin];
    format!("{before}{}{}", copies.collect::<String>(), within(&rest[end + 1..], text))
}

/// Where a block ends whose beginning was left out.
fn block_end(text: &str) -> usize {
    let mut depth = 1;
    let end = text.char_indices().find(|(_, c)| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    end.expect("a block ends").0
}

/// `4u`, or a constant that is said to be such.
fn number(name: &str, text: &str) -> usize {
    let said =
        text.split_once(&format!("const {name} = ")).and_then(|(_, rest)| rest.split(';').next());
    let number = said.unwrap_or(name).trim_end_matches('u');
    number.parse().expect("a number, or a constant that is one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_loops_are_written_out() {
        let text =
            "const N = 2u;\nfor (var i = 0u; i < N; i++) { // unrolled\n a[i] = 1u;\n}\nrest {}";
        let want = "const N = 2u;\n{ const i = 0u; \n a[i] = 1u;\n}\n{ const i = 1u; \n a[i] = 1u;\n}\n\nrest {}";
        assert_eq!(unrolled(text, true), want);
        let nested = "const N = 2u;\nfor (var i = 0u; i < 3u; i++) { // unrolled\nfor (var j = 0u; j < N * 2u; j++) { // unrolled\nx\n}\nif (y) {}\n}";
        let text = unrolled(nested, true);
        assert_eq!((text.matches("\nx").count(), text.matches("if (y) {}").count()), (12, 3));
        let plain = "for (var i = 0u; i < n; i++) { a }";
        assert_eq!(unrolled(plain, true), plain);
        let for_drivers = "for (var i = 0u; i < 2u; i++) { // unrolled for drivers\nx\n}\n";
        assert_eq!(unrolled(for_drivers, true).matches('x').count(), 2);
        assert_eq!(unrolled(for_drivers, false), "for (var i = 0u; i < 2u; i++) {\nx\n}\n");
    }
}
