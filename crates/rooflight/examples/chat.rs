//! A conversation at the terminal: `cargo run --release --example chat -- MODEL.gguf`.

#![expect(clippy::print_stdout, reason = "replies are for people")]

use std::io::{BufRead, Write};

use rooflight::{Event, Model};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: chat MODEL.gguf")?;
    let model = Model::builder(path.as_str()).load()?;
    eprintln!("context {}, {}", model.context(), model.executor());
    let mut chat = model.chat()?;
    for line in std::io::stdin().lock().lines() {
        for event in chat.send(line?)? {
            if let Event::Text(text) = event? {
                print!("{text}");
                std::io::stdout().flush()?;
            }
        }
        println!();
    }
    Ok(())
}
