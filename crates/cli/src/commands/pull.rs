//! `pull`, `list`, `rm`, `ps`: models by name, and where they are.

use std::io::Write;

use comfy_table::Table;
use hub::CachedFile;
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::listening::PORT;
use crate::output::shown;
use crate::{access, names, ui, units};

/// Download a model from Hugging Face
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  rooflight pull qwen2.5:7b\n  rooflight pull bartowski/Llama-3.2-3B-Instruct-GGUF:Q8_0\n\n\
                  Before anything comes, the file's header tells what the model takes and how fast it can be on this \
                  machine; what does not fit is asked about. What was stopped goes on where it was. The path is printed. \
                  HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE are obeyed."
)]
pub(super) struct Pull {
    /// org/repo:TYPE, hf.co/org/repo, or a short name: qwen2.5:7b
    #[arg(value_name = "NAME", required_unless_present = "names")]
    name: Option<String>,
    /// Bring it also if it does not fit
    #[arg(short, long, conflicts_with = "names")]
    yes: bool,
    /// List the short names
    #[arg(long)]
    names: bool,
    /// Print JSON: the file's path, or with --names an array of names and repositories
    #[arg(long)]
    json: bool,
}

/// List the models in the Hugging Face cache
#[derive(clap::Args, Debug)]
#[command(
    visible_alias = "ls",
    after_help = "Examples:\n  rooflight list\n  rooflight list --json\n\n\
                  GGUF files in the Hugging Face cache (HF_HUB_CACHE) are listed, whichever program downloaded them. Models that \
                  Ollama, LM Studio and others keep in folders of their own are not; they are run by the paths of their files."
)]
pub(super) struct List {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Remove models from this machine
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  rooflight rm qwen2.5:7b\n\nBytes that other commits of a model share stay."
)]
pub(super) struct Rm {
    /// Names as `rooflight list` prints them
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    /// Remove without asking for confirmation
    #[arg(short, long)]
    yes: bool,
    /// Print JSON: names and freed bytes
    #[arg(long)]
    json: bool,
}

/// List the models that a running server has loaded
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  rooflight ps\n  rooflight ps --json\n  rooflight ps --port 9000\n  \
                  rooflight ps --url http://192.168.1.5:9000\n  \
                  rooflight ps --url unix:/run/user/1000/rooflight.sock\n\n\
                  Without an address, the server at port 8080 of this machine is asked, or at the port in ROOFLIGHT_PORT, which \
                  serve reads too."
)]
pub(super) struct Ps {
    /// Address of the server: http://HOST:PORT, unix:FILE, or a port of this machine
    /// [default: http://127.0.0.1:8080]
    #[arg(long, value_name = "URL", visible_alias = "port", value_parser = address)]
    url: Option<String>,
    /// Its API key; other users see it in the process list, unlike the variable or a file
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    api_key: Vec<String>,
    /// File with its API key; overrides --api-key
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<std::path::PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Pull {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        if self.names && self.json {
            let pair = |(family, size, repository): &(&str, &str, &str)| json!({ "name": format!("{family}:{size}"), "repository": repository });
            let all: Vec<Value> = hub::SHORT_NAMES.iter().map(pair).collect();
            return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?);
        }
        if self.names {
            for (family, size, repository) in hub::SHORT_NAMES {
                writeln!(out, "{:28} {repository}", format!("{family}:{size}"))?;
            }
            return Ok(());
        }
        let name = self.name.unwrap_or_default();
        let interrupt = Interrupt::install();
        let path = names::pull(&name, self.yes, &interrupt)?;
        Ok(match self.json {
            true => writeln!(out, "{}", json!({ "name": name, "path": path.to_string_lossy() })),
            false => writeln!(out, "{}", path.display()),
        }?)
    }
}

impl List {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let hub::CachedModels { files, unread, .. } = names::hub()?.cached()?;
        for error in unread {
            ui::warn(&format!("not looked into: {error}"));
        }
        if self.json {
            let all: Vec<Value> = files.iter().map(to_json).collect();
            return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?);
        }
        if files.is_empty() {
            ui::note(
                "no models in the Hugging Face cache: rooflight pull llama3.2:3b downloads one; files elsewhere are run by \
                 their paths",
            );
        }
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_header(["NAME", "SIZE", "MODIFIED"]);
        for file in &files {
            let size = units::decimal_bytes(file.bytes as f64);
            let name = gguf::escape(file.name(), 120);
            table.add_row([name, size, units::ago(file.modified)]);
        }
        if !files.is_empty() {
            writeln!(out, "{}", table.trim_fmt())?;
        }
        Ok(())
    }
}

fn to_json(file: &CachedFile) -> Value {
    let modified = file.modified.duration_since(std::time::UNIX_EPOCH);
    json!({
        "name": file.name(),
        "path": file.path.to_string_lossy(),
        "size": file.bytes,
        "commit": file.commit,
        "modified": modified.map_or(0, |time| time.as_secs()),
    })
}

impl Rm {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let hub = names::hub()?;
        let mut files = Vec::new();
        for name in &self.names {
            let parsed = hub::ModelName::parse(name)?;
            let found = match &parsed {
                Some(parsed) => hub.find_cached(parsed)?,
                None => None,
            };
            let found = match found {
                Some(found) => Some(found),
                None => hub.find_by_short_name(name)?,
            };
            let is_file = std::path::Path::new(name).is_file();
            let missing = || Failure::NotPulled { name: gguf::escape(name.as_str(), 80), is_file };
            files.push(found.ok_or_else(missing)?);
        }
        if !self.yes && !wanted_gone(&files)? {
            anyhow::bail!("nothing was removed");
        }
        let mut told = Vec::new();
        for found in &files {
            let removed = hub.remove(found)?;
            if self.json {
                told.push(json!({ "name": found.name(), "bytes": removed.bytes }));
                continue;
            }
            let bytes = units::decimal_bytes(removed.bytes as f64);
            writeln!(out, "removed {}: {bytes} are free", found.name())?;
        }
        if self.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&told)?)?;
        }
        Ok(())
    }
}

/// Asks the user at a terminal whether to remove these files, because other programs use the same Hugging Face cache. Without
/// a terminal, prints a note and returns true.
fn wanted_gone(files: &[CachedFile]) -> std::io::Result<bool> {
    if !names::can_ask() {
        ui::note("the Hugging Face cache is shared: other programs lose these files too");
        return Ok(true);
    }
    for file in files {
        let size = units::decimal_bytes(file.bytes as f64);
        ui::note(format_args!("{}, {size}: {}", gguf::escape(file.name(), 120), shown(&file.path)));
    }
    let question = "remove from the Hugging Face cache, which other programs share? [y/N] ";
    names::ask(question)
}

/// Variable that `serve` reads as its option `--port`.
const PORT_VARIABLE: &str = "ROOFLIGHT_PORT";

/// Returns the address that a text names. A number is a port of this machine.
fn address(text: &str) -> Result<String, String> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(text.to_owned());
    }
    let port = text.parse().map_err(|_| "expected a port, http://HOST:PORT or unix:FILE")?;
    Ok(of_port(port))
}

/// Returns the address of a port of this machine.
fn of_port(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

impl Ps {
    /// Returns the address of the server to ask.
    fn address(&self) -> Result<String, Failure> {
        if let Some(url) = &self.url {
            return Ok(url.clone());
        }
        let given = std::env::var(PORT_VARIABLE).ok().filter(|port| !port.is_empty());
        let Some(given) = given else { return Ok(of_port(PORT)) };
        given.parse().map(of_port).map_err(|_| {
            let given = gguf::escape(&given, 40);
            Failure::Usage(format!("{PORT_VARIABLE}: expected a port, found {given}"))
        })
    }

    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        // a server accepts any of its keys, so the first one is enough
        let key = match &self.api_key_file {
            Some(path) => access::keys_in_file(path)?.into_iter().next(),
            None => {
                self.api_key.iter().map(|key| key.trim().to_owned()).find(|key| !key.is_empty())
            }
        };
        let said = hub::ask_server(&self.address()?, "/api/ps", key.as_deref())?;
        if self.json {
            let models = serde_json::to_string_pretty(&said["models"])?;
            return Ok(writeln!(out, "{models}")?);
        }
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_header(["NAME", "SIZE", "CONTEXT"]);
        for model in said["models"].as_array().into_iter().flatten() {
            let size = model["size"].as_f64().unwrap_or(0.0);
            table.add_row([
                gguf::escape(model["name"].as_str().unwrap_or("?"), 120),
                units::decimal_bytes(size),
                model["context_length"].to_string(),
            ]);
        }
        Ok(writeln!(out, "{}", table.trim_fmt())?)
    }
}
