//! `serve`: a model for other programs, over HTTP. What is answered is in `server`.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use anyhow::Context as _;
use engine::{DEFAULT_CHUNK, ModelFormat};
use gguf::Gguf;
use models::Pooling;
use program::CacheOptions;
use server::{Access, ReplyLimits, ServedModel, Server, TextReading};
use tokenizer::ChatTemplate;

use crate::args::{ModelArgs, RunArgs};
use crate::exit::{Failure, code};
use crate::limits::Limits;
use crate::load::{self, LoadOptions, Loaded};
use crate::output::shown;
use crate::{bundled, ceilings, counts, executing, names, sampling, ui};

/// Serve a model to other programs, over HTTP
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  rooflight serve model.gguf\n  rooflight serve model.gguf --port 0 -np 2 -c 8192\n  \
                  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n    \
                  -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}'\n\n\
                  Programs that speak OpenAI's API use it by the base URL http://127.0.0.1:8080/v1 and any key. \
                  Only this machine is listened to, and no web page, unless --host says otherwise, \
                  which needs a key. Without a model the bundled demo model is served. Ctrl-C gives replies 30 s to come to their end; \
                  a second one does not."
)]
pub(super) struct Serve {
    #[command(flatten)]
    model: ModelArgs,
    /// Address to listen at
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// Port to listen at, 0 for any that is free
    #[arg(long, value_name = "N", default_value_t = 8080)]
    port: u16,
    /// A file with keys, one a line, one of which every request must have
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Another name by which requests may address this machine; may be given several times
    #[arg(long, value_name = "NAME")]
    allowed_host: Vec<String>,
    /// Let whoever reaches this machine use it without a key
    #[arg(long)]
    insecure_no_auth: bool,
    /// The model's name in requests; by default that of its file
    #[arg(short, long, value_name = "NAME")]
    alias: Option<String>,
    /// Replies side by side (-np)
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = parallel)]
    parallel: usize,
    #[command(flatten)]
    running: RunArgs,
}

fn parallel(text: &str) -> Result<usize, String> {
    counts::within(text, 1, 64)
}

/// Requests that may wait for a place.
const WAITING: usize = 32;
/// The name of the bundled model.
const DEMO: &str = "rooflight-demo";

impl Serve {
    pub(crate) fn run(self, _: &mut dyn Write) -> anyhow::Result<()> {
        let access = self.access()?;
        // a port that is taken is told before a model is loaded
        let listener = TcpListener::bind((self.host, self.port))
            .with_context(|| format!("listening at {}:{}", self.host, self.port))?;
        let key = if access.needs_key() { "with a key" } else { "no key needed" };
        let server = Server::start(listener, access)?;
        let end = server.asked_to_end(|| std::process::exit(code::INTERRUPTED.into()))?;
        ui::note(format_args!("listening on http://{}", server.address()));
        let model = self.load()?;
        let (name, parallel) = (model.name.clone(), model.parallel);
        server.provide(model)?;
        let names: String =
            self.allowed_host.iter().map(|name| format!(", also as {name}")).collect();
        ui::note(format_args!("serving {name}, {parallel} replies side by side, {key}{names}"));
        server.run(end);
        Ok(())
    }

    /// Who may ask.
    fn access(&self) -> anyhow::Result<Access> {
        let mut keys: Vec<String> = Vec::new();
        if let Some(path) = &self.api_key_file {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("reading {}", shown(path)))?;
            keys.extend(text.lines().map(|line| line.trim().to_owned()));
            keys.retain(|key| !key.is_empty());
            if keys.is_empty() {
                let problem = format!("--api-key-file {}: there is no key in it", shown(path));
                return Err(Failure::Usage(problem).into());
            }
        }
        if self.host.is_loopback() {
            return Ok(Access::new(&keys, Some(self.allowed_host.clone())));
        }
        if keys.is_empty() && !self.insecure_no_auth {
            let problem = format!(
                "--host {}: others would reach it; give a key by --api-key-file FILE, or --insecure-no-auth",
                self.host
            );
            return Err(Failure::Usage(problem).into());
        }
        // whoever has the key is no page that took a name of ours
        let hosts = if keys.is_empty() && !self.allowed_host.is_empty() {
            Some(self.allowed_host.clone())
        } else {
            None
        };
        Ok(Access::new(&keys, hosts))
    }

    fn load(&self) -> anyhow::Result<ServedModel> {
        let given = self.model.clone().given();
        let path = given.as_ref().map(|given| names::here_or_pulled(given)).transpose()?;
        let gguf = match &path {
            Some(path) => load::open(path)?,
            None => bundled::open()?,
        };
        let created = path
            .as_ref()
            .and_then(|path| path.metadata().ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok())
            .map_or(0, |time| time.as_secs());
        // what was asked for by a name has that one, a file its own
        let named = given.as_ref().filter(|given| path.as_ref() != Some(given));
        let name = match (named, path.as_ref().and_then(|path| path.file_stem())) {
            (Some(name), _) => name.to_string_lossy().into_owned(),
            (None, Some(stem)) => stem.to_string_lossy().into_owned(),
            (None, None) => DEMO.to_owned(),
        };
        let known = models::load(&gguf).context("reading the model")?;
        let writes = known.config.text.is_none();
        let format = match writes {
            true => load::chat_format(&gguf)?,
            // who writes nothing needs no template: that there is none is no news
            false => {
                let tokenizer = load::tokenizer(&gguf)?;
                let template = ChatTemplate::from_gguf(gguf.metadata(), &tokenizer)?;
                ModelFormat::new(Arc::new(tokenizer), template)
            }
        };
        let (sampler, problems) = sampling::recommended_options(gguf.metadata());
        problems.iter().for_each(|problem| ui::warn(problem));
        let (mut loaded, cache, reads) = match writes {
            true => {
                let (loaded, cache) = self.running.load(&gguf)?;
                (loaded, cache, None)
            }
            false => self.reading(&gguf)?,
        };
        // what was measured before is known wherever it is told
        loaded.ceilings = loaded.ceilings.take().or_else(|| ceilings::known(&*loaded.executor));
        let limits = Limits::of(&loaded, &cache).filter(|_| reads.is_none());
        Ok(ServedModel {
            name: self.alias.clone().unwrap_or(name),
            created,
            family: loaded.config.architecture.clone(),
            bytes: gguf.file_bytes(),
            parallel: self.running.cache.storage.side_by_side(self.parallel, &loaded, &cache),
            waiting: WAITING,
            model: Arc::clone(&loaded.model),
            drafts: executing::promises_cuts(&*loaded.executor),
            format: Arc::new(format),
            cache,
            chunk: loaded.chunk,
            sampler,
            reads,
            limits: limits.map(|limits| Arc::new(limits) as Arc<dyn ReplyLimits>),
        })
    }

    /// A model that reads texts and writes none, the cache of a text, and what it says of texts.
    fn reading(&self, gguf: &Gguf) -> anyhow::Result<(Loaded, CacheOptions, Option<TextReading>)> {
        let known = load::reader(gguf, None)?;
        let rows = known.config.text_rows().context("the model says nothing of texts")?;
        let text = known.config.text.as_ref();
        let reading = TextReading {
            rows,
            ranks: text.is_some_and(|text| text.pooling == Pooling::Rank),
            template: gguf
                .metadata()
                .str(engine::RERANK_TEMPLATE)
                .context("reading the rerank template")?
                .map(str::to_owned),
        };
        let cache = self.running.cache_of(&known.config);
        let options = self.running.load_options();
        let chunk = options.chunk.unwrap_or(DEFAULT_CHUNK);
        // where a text goes through at once, the longest one must
        let whole = known.config.reads_at_once();
        let chunk = if whole { chunk.max(cache.capacity) } else { chunk };
        let options = LoadOptions { chunk: Some(chunk), ceilings: false, ..options };
        let loaded = load::ready(gguf, known, &self.running.executor, &options, &|_| cache)?;
        Ok((loaded, cache, Some(reading)))
    }
}
