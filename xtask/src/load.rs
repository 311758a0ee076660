//! `cargo xtask load`: a server of the release profile under load, and what it adds to the engine. The tests are those of
//! `crates/cli/tests/served/load.rs`, for longer, and held to times.

use std::path::Path;

use anyhow::{Context as _, bail, ensure};

use crate::{cargo, without_package};

const HELP: &str = "\
cargo xtask load [OPTIONS]

  --seconds N   how long clients ask [default: 600]
  --clients N   how many [default: 32]
  --threads N   threads of the engine: clients share the cores [default: 1]
  --overhead    what a server adds to `batch`: first token, each token, tokens per CPU second
  --slow        what a client that hardly reads costs another one
  --hostile     requests that once ended a server, each to be refused or answered in 2 s
  --bodies N    so many made-up bodies, of which none may be answered with more than 503
  --cycles N    so many clients that come and leave
";

/// Run what the arguments ask for.
pub(crate) fn run(root: &Path, args: &[String]) -> anyhow::Result<()> {
    let mut args = args.iter().map(String::as_str);
    let mut variables = vec![("ROOFLIGHT_REQUIRE_TIMES", "1".to_owned())];
    let (mut test, mut filter) = (["rooflight-cli", "served"], "load::every_reply_under_load");
    let mut seconds = "600".to_owned();
    while let Some(option) = args.next() {
        let mut number = || -> anyhow::Result<String> {
            let text = args.next().with_context(|| format!("{option} needs a number"))?;
            ensure!(text.parse::<u64>().is_ok(), "{option}: expected a number, found {text}");
            Ok(text.to_owned())
        };
        match option {
            "--seconds" => seconds = number()?,
            "--clients" => variables.push(("ROOFLIGHT_LOAD_CLIENTS", number()?)),
            "--threads" => variables.push(("ROOFLIGHT_LOAD_THREADS", number()?)),
            "--overhead" => filter = "load::overhead::",
            "--slow" => filter = "load::slow::",
            "--hostile" => filter = "hostile::",
            "--bodies" => {
                variables.push(("ROOFLIGHT_BODIES", number()?));
                (test, filter) = (["rooflight-server", "it"], "any_body_is_answered_or_refused");
            }
            "--cycles" => {
                variables.push(("ROOFLIGHT_CYCLES", number()?));
                (test, filter) = (["rooflight-cli", "served"], "serve::c3_");
            }
            "help" | "-h" | "--help" => {
                eprint!("{HELP}");
                return Ok(());
            }
            other => bail!("{other}: no such option\n{HELP}"),
        }
    }
    variables.push(("ROOFLIGHT_LOAD_SECONDS", seconds));
    if test[0] == "rooflight-cli" {
        cargo(&["build", "--release", "--locked", "-p", "rooflight-cli"])?;
        let binary = root.join("target/release/rooflight");
        variables.push(("ROOFLIGHT_SERVED_BINARY", binary.to_string_lossy().into_owned()));
    }
    let [package, name] = test;
    let command = [
        "test",
        "--locked",
        "-p",
        package,
        "--test",
        name,
        filter,
        "--",
        "--include-ignored",
        "--nocapture",
    ];
    let one_by_one = ["--test-threads", "1"];
    let command =
        [&command[..], if filter == "hostile::" { &one_by_one[..] } else { &[] }].concat();
    eprintln!("== cargo {}", command.join(" "));
    let status =
        without_package(env!("CARGO")).args(command).envs(variables).current_dir(root).status()?;
    ensure!(status.success(), "it failed");
    Ok(())
}
