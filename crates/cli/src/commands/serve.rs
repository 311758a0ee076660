//! `serve`: models for other programs, over HTTP. What is answered is in `server`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context as _;
use engine::{DEFAULT_CHUNK, ModelFormat};
use executors::SessionFolders;
use gguf::Gguf;
use models::{LoadedModel, ModelConfig, Pooling};
use program::CacheOptions;
use rooflight::fit as memory;
use server::{
    LoadFailure, ModelAbout, ModelUse, OfferedModel, Offers, PullFailure, PullModel, PullState,
    ReplyLimits, ServedModel, Server, ServerLimits, TextReading,
};
use tokenizer::ChatTemplate;

use crate::access::AccessArgs;
use crate::args::{self, RunArgs};
use crate::chat_templates::TemplateArgs;
use crate::exit::{Failure, code};
use crate::interrupt::Interrupt;
use crate::keeping::KeepArgs;
use crate::limits::Limits;
use crate::listening::{ListenArgs, Listens};
use crate::load::{self, LoadOptions, Loaded};
use crate::logging::LogArgs;
use crate::output::shown;
use crate::{checking, counts, executor, model_details, names, process, sampling, ui, units};

/// Serve models to other programs, over HTTP
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  rooflight serve model.gguf\n  rooflight serve model.gguf --port 0 -np 2 -c 8192\n  \
                  rooflight serve small.gguf qwen2.5:7b --keepalive 10m\n  \
                  rooflight serve ~/models\n  \
                  rooflight serve model.gguf --cors app://obsidian.md\n  \
                  rooflight serve model.gguf --cache-disk ~/.cache/rooflight/conversations\n  \
                  curl http://127.0.0.1:8080/v1/chat/completions \\\n    \
                  -H 'Content-Type: application/json' \\\n    \
                  -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}'\n\n\
                  Programs that speak OpenAI's API use it by the base URL http://127.0.0.1:8080/v1 and any key. \
                  Only this machine is listened to, unless --host says otherwise, which needs a key; \
                  with --socket FILE only this user is. Web pages are blocked, except those of --cors ORIGIN. Without a model the bundled demo model is served. Of several, a request's `model` says which \
                  one; the first is loaded at once, others when they are asked for, and one goes when another needs its memory. \
                  With --cache-disk conversations are found again after a restart, and only what is new is computed. Ctrl-C gives replies \
                  --drain to come to their end; a second one does not. Each request is a line of the log (RUST_LOG, --log-level), without \
                  what is said. \
                  Any client can fill the disk: POST /api/pull downloads models until 16 MiB are left free, and slots saved \
                  under --slot-save-path have no bound."
)]
pub(super) struct Serve {
    /// GGUF files, names of models, or folders with GGUF files
    ///
    /// Requests that name no model use the first. A folder is read once, at the start
    #[arg(value_name = "MODEL")]
    models: Vec<PathBuf>,
    /// A model, instead of the arguments; may be given several times [env: ROOFLIGHT_MODEL]
    #[arg(short, long, value_name = "FILE", conflicts_with = "models")]
    model: Vec<PathBuf>,
    #[command(flatten)]
    listen: ListenArgs,
    #[command(flatten)]
    access: AccessArgs,
    /// Refuse requests with unknown fields
    ///
    /// And with fields or schema keywords that have no effect here, instead of naming them in `warnings`
    #[arg(long)]
    strict: bool,
    /// Serve vectors or scores of texts: mean, cls, last, rank
    ///
    /// How rows of a text are combined into one, also by chat models; by default as the file says
    #[arg(long, value_name = "TYPE", value_parser = pooling)]
    pooling: Option<Pooling>,
    /// The model's names in requests: A,B
    ///
    /// Default: the file's name. For several models, give it once per model in order
    #[arg(short, long, value_name = "NAMES")]
    alias: Vec<String>,
    /// Unload an idle model after this time: 5m, 1h30m
    ///
    /// By default when another needs its memory
    #[arg(long, value_name = "TIME", value_parser = keepalive, allow_hyphen_values = true)]
    keepalive: Option<Keepalive>,
    /// Parallel slots (-np)
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = parallel)]
    parallel: usize,
    /// How long replies may go on when the server is asked to end: 10s, 1m, 0
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = drain)]
    drain: Duration,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    keep: KeepArgs,
    #[command(flatten)]
    template: TemplateArgs,
    #[command(flatten)]
    running: RunArgs,
}

/// How long a model stays that nobody asks for.
#[derive(Clone, Debug)]
struct Keepalive {
    /// As given.
    text: String,
    /// `None`: for as long as there is room.
    time: Option<Duration>,
}

fn keepalive(text: &str) -> Result<Keepalive, String> {
    Ok(Keepalive { text: text.to_owned(), time: server::kept_for(text)? })
}

fn drain(text: &str) -> Result<Duration, String> {
    server::kept_for(text)?.ok_or_else(|| "expected a time that ends".to_owned())
}

/// A model that is to be served.
#[derive(Clone, Debug)]
struct Subject {
    /// Its file; the bundled model has none.
    path: Option<PathBuf>,
    /// Names that requests can use; replies use the first.
    names: Vec<String>,
    /// Whether the model is from a folder. Such a model is left out if it cannot be served.
    from_folder: bool,
}

/// Parses a pooling that combines all rows of a text into one row.
fn pooling(name: &str) -> Result<Pooling, String> {
    match super::embed::pooling(name)? {
        Pooling::None => Err("expected mean, cls, last or rank: a text has one vector here".into()),
        pooling => Ok(pooling),
    }
}

fn parallel(text: &str) -> Result<usize, String> {
    counts::within(text, 1, 64)
}

/// Requests that may wait for a place.
const WAITING: usize = 32;
/// How long a reply keeps its slot while others wait and its client does not read it.
const SLOT_PATIENCE: Duration = Duration::from_secs(10);
/// The name of the bundled model.
const DEMO: &str = "rooflight-demo";

impl Serve {
    pub(crate) fn run(self, _: &mut dyn Write) -> anyhow::Result<()> {
        let access = self.access.access(&self.listen)?;
        // a port that is taken is told before a model is loaded
        let Listens { listener, address, socket } = self.listen.bind()?;
        let kept = self.keep.open()?;
        let subjects = self.subjects()?;
        process::keep_to_itself();
        process::allow_many_files();
        let needs_key = access.needs_key();
        let key = if needs_key { "with a key" } else { "no API key" };
        let this = Arc::new(Service { args: self, kept });
        let Service { args, .. } = &*this;
        // the files of all models are checked before the first model is loaded; the first file is opened only once
        let (subjects, about, first) = this.opened(subjects)?;
        let limits = memory::available().map_or_else(ServerLimits::default, ServerLimits::within);
        let release_memory: Option<fn()> = Some(executors::release_free_memory);
        let limits = ServerLimits { release_memory, strict: args.strict, ..limits };
        let server = Server::start_within(limits, listener, access)?;
        ui::note(format_args!("listening on {address}"));
        let log = args.log.start(args.running.verbose.verbose)?;
        let (last, file) = (log.clone(), socket.clone());
        let at_once = move || {
            last.flush();
            if let Some(file) = &file {
                file.remove();
            }
            std::process::exit(code::INTERRUPTED.into())
        };
        let end = server.asked_to_end(process::hears_hangups(), at_once)?;
        let first = this.load(&subjects[0], first)?;
        let parallel = first.parallel;
        let offers = subjects.iter().zip(about).map(|(subject, about)| this.offer(subject, about));
        let keep = args.keepalive.as_ref();
        let keep_for = keep.and_then(|keep| keep.time);
        // who may have models brought here fills a disk: not whoever reaches this machine without a key
        let may_pull = args.listen.is_local() || needs_key;
        let pull = may_pull.then(|| this.puller());
        server.offer(Offers { models: offers.collect(), keep: keep_for, pull }, first)?;
        let goes = keep.filter(|keep| keep.time.is_some());
        let goes = goes.map(|keep| format!(", unloaded after {}", keep.text)).unwrap_or_default();
        let slots = units::counted(parallel, "parallel slot");
        if let Some(pooling) = args.pooling {
            ui::note(format_args!(
                "pooling {}: texts are embedded or ranked, and no replies are made",
                pooling.name()
            ));
        }
        let strict = if args.strict { ", unknown fields refused" } else { "" };
        ui::note(format_args!(
            "serving {}, {slots}, {key}{}{goes}{strict}{}",
            subjects[0].told(),
            args.access.told(),
            args.keep.told()
        ));
        if let [_, others @ ..] = &subjects[..]
            && !others.is_empty()
        {
            let others: Vec<String> = others.iter().map(Subject::told).collect();
            ui::note(format_args!("loaded on demand: {}", others.join(", ")));
        }
        server.run(end, args.drain);
        if let Some(file) = &socket {
            file.remove();
        }
        log.flush();
        Ok(())
    }

    /// What is to be served: files that are here, or are brought here now, and their names.
    fn subjects(&self) -> anyhow::Result<Vec<Subject>> {
        let mut given =
            if self.models.is_empty() { self.model.clone() } else { self.models.clone() };
        if given.is_empty() {
            given.extend(args::variable().map(PathBuf::from));
        }
        let mut subjects = Vec::new();
        for given in &given {
            if given.is_dir() {
                subjects.extend(found_in(given)?);
                continue;
            }
            // no handler is installed yet: Ctrl-C ends the process by the system's default
            let path = names::here_or_pulled(given, &Interrupt::default())?;
            // what was asked for by a name has that one, a file its own
            let stem = path.file_stem().filter(|_| path == *given);
            let name = stem.unwrap_or(given.as_os_str()).to_string_lossy().into_owned();
            subjects.push(Subject { path: Some(path), names: vec![name], from_folder: false });
        }
        if subjects.is_empty() {
            subjects.push(Subject { path: None, names: vec![DEMO.to_owned()], from_folder: false });
        }
        self.name(&mut subjects)?;
        let mut taken: Vec<&String> = Vec::new();
        for name in subjects.iter().flat_map(|subject| &subject.names) {
            if taken.contains(&name) {
                let problem = format!("two models are called {name}: --alias names them");
                return Err(Failure::Usage(problem).into());
            }
            taken.push(name);
        }
        Ok(subjects)
    }

    /// Assigns the names of `--alias`: each use of the option names one model, by one name or several.
    fn name(&self, subjects: &mut [Subject]) -> Result<(), Failure> {
        let (n, given) = (subjects.len(), self.alias.len());
        if given > n {
            let problem = format!("--alias: {given} given for {n} models: several names are A,B");
            return Err(Failure::Usage(problem));
        }
        let names = |alias: &str| -> Vec<String> {
            alias
                .split(',')
                .map(str::trim)
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect()
        };
        for (subject, alias) in subjects.iter_mut().zip(&self.alias) {
            let names = names(alias);
            if names.len() > 1 && given < n {
                // comma-separated names would all go to the first model, but the user may mean one name per model
                let each: String = names.iter().map(|name| format!(" -a {name}")).collect();
                return Err(Failure::Usage(format!(
                    "--alias {alias}: commas separate names of one model; give -a for each model:{each}"
                )));
            }
            if names.is_empty() {
                return Err(Failure::Usage("--alias: expected a name, found none".into()));
            }
            subject.names = names;
        }
        Ok(())
    }
}

/// Maximum number of models of a folder that are named in a note.
const NAMED: usize = 4;

/// Returns the models in a folder, and says how many there are.
///
/// # Errors
/// If the folder contains no models or cannot be read.
fn found_in(folder: &Path) -> anyhow::Result<Vec<Subject>> {
    let models = rooflight::file::models_in(folder).with_context(|| shown(folder))?;
    if models.is_empty() {
        let problem = "there are no GGUF files in this folder, which is read once, at the start";
        return Err(rooflight::Error::Malformed(format!("{}: {problem}", shown(folder))).into());
    }
    let subject = |path: PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Subject { path: Some(path), names: vec![name], from_folder: true }
    };
    let subjects: Vec<Subject> = models.into_iter().map(subject).collect();
    let names: Vec<String> =
        subjects.iter().map(|subject| gguf::escape(subject.name(), 60)).collect();
    let (n, listed) = (units::counted(subjects.len(), "model"), units::listed(&names, NAMED));
    ui::note(format_args!("{n} in {}: {listed}", shown(folder)));
    Ok(subjects)
}

impl Subject {
    /// Returns the name that replies use.
    fn name(&self) -> &str {
        &self.names[0]
    }

    /// Returns all names as text.
    fn told(&self) -> String {
        match &self.names[1..] {
            [] => self.name().to_owned(),
            others => format!("{} (also {})", self.name(), others.join(", ")),
        }
    }
}

/// What is served, for as long as the server runs.
struct Service {
    args: Serve,
    /// Where conversations are kept.
    kept: SessionFolders,
}

/// A model whose file is open but whose weights are not loaded.
struct OpenModel {
    gguf: Gguf,
    /// Configuration and programs of the model, read from the file, with the pooling that `--pooling` selects.
    known: LoadedModel,
}

impl Service {
    fn open(&self, subject: &Subject) -> anyhow::Result<OpenModel> {
        let mut gguf = load::open_or_bundled(subject.path.as_deref())?;
        self.args.running.rope.apply(&mut gguf)?;
        self.args.template.apply(&mut gguf)?;
        let known = load::known(&gguf, self.args.pooling)?;
        Ok(OpenModel { gguf, known })
    }

    /// Opens the files of all models. Leaves out models of folders that cannot be served, with a warning. Returns the models, what
    /// is known of each, and the first one.
    ///
    /// # Errors
    /// If a model that was given by its own name cannot be served, or if no model can.
    fn opened(
        &self,
        subjects: Vec<Subject>,
    ) -> anyhow::Result<(Vec<Subject>, Vec<ModelAbout>, OpenModel)> {
        let (mut served, mut about, mut first) = (Vec::new(), Vec::new(), None);
        for subject in subjects {
            match self.open(&subject) {
                Ok(opened) => {
                    about.push(self.about(&subject, &opened));
                    served.push(subject);
                    first.get_or_insert(opened);
                }
                Err(error) if subject.from_folder => {
                    ui::warn(&gguf::escape(format!("not served: {error:#}"), 300));
                }
                Err(error) => return Err(error),
            }
        }
        let none = || rooflight::Error::Malformed("no model can be served".into());
        Ok((served, about, first.ok_or_else(none)?))
    }

    /// What is known of a model before it is loaded.
    fn about(&self, subject: &Subject, OpenModel { gguf, known }: &OpenModel) -> ModelAbout {
        let modified = subject.path.as_ref().and_then(|path| path.metadata().ok()?.modified().ok());
        let created = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        ModelAbout {
            name: subject.name().to_owned(),
            aliases: subject.names[1..].to_vec(),
            created: created.map_or(0, |time| time.as_secs()),
            family: known.config.architecture.clone(),
            bytes: gguf.file_bytes(),
            context: self.args.running.cache_of(&known.config).capacity,
            does: use_of(&known.config),
            details: Arc::new(model_details::of(gguf)),
        }
    }

    /// A model that can be had for as long as the server runs.
    fn offer(self: &Arc<Service>, subject: &Subject, about: ModelAbout) -> OfferedModel {
        let (this, subject) = (Arc::clone(self), subject.clone());
        let load = move || {
            let loaded = this.open(&subject).and_then(|opened| this.load(&subject, opened));
            loaded.map_err(|error| {
                let problem = format!("{error:#}");
                let failure = error.chain().find_map(|cause| cause.downcast_ref());
                match failure {
                    Some(rooflight::Error::DoesNotFit { missing, .. }) => {
                        LoadFailure::NoMemory { problem, missing: *missing }
                    }
                    _ => LoadFailure::Failed(problem),
                }
            })
        };
        OfferedModel { about, load: Box::new(load) }
    }

    /// Brings models here that requests ask for, and offers them.
    fn puller(self: &Arc<Service>) -> Box<PullModel> {
        let this = Arc::clone(self);
        Box::new(move |name: &str, held: u64, tell: &mut dyn FnMut(PullState<'_>) -> bool| {
            let path = names::pull_for(name, held, tell)?;
            let subject =
                Subject { path: Some(path), names: vec![name.to_owned()], from_folder: false };
            let about = this.open(&subject).map(|opened| this.about(&subject, &opened));
            let about = about.map_err(|error| PullFailure::Failed(format!("{error:#}")))?;
            Ok(this.offer(&subject, about))
        })
    }

    fn load(&self, subject: &Subject, opened: OpenModel) -> anyhow::Result<ServedModel> {
        let about = self.about(subject, &opened);
        let OpenModel { gguf, known } = opened;
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
        let sampler = sampling::recommended(gguf.metadata());
        let (loaded, cache, reads) = match writes {
            true => {
                let options = self.args.running.load_options();
                let options = LoadOptions { kept: self.kept.clone(), ..options };
                let known = load::writer(known)?;
                let (loaded, cache) = self.args.running.load_known(&gguf, known, &options)?;
                self.args.keep.check(&*loaded.model, &loaded.executor.describe())?;
                (loaded, cache, None)
            }
            false => self.reading(&gguf, known)?,
        };
        let program = loaded.model.program();
        let needs = memory::needs(&*loaded.executor, program, &cache, loaded.chunk)?;
        let limits = Limits::of(&loaded, &cache).filter(|_| reads.is_none());
        let storage = &self.args.running.cache.storage;
        let parallel = storage.side_by_side(self.args.parallel, &loaded, &cache);
        // those that rest give way to those that run: what they had goes to disk
        let gives_way = storage.gives_way() && loaded.gpu.is_none();
        Ok(ServedModel {
            name: about.name,
            created: about.created,
            family: about.family,
            bytes: about.bytes,
            details: about.details,
            memory: needs.weights.saturating_add(needs.work),
            parallel,
            slots: if gives_way { self.args.parallel } else { parallel },
            waiting: WAITING,
            slot_patience: SLOT_PATIENCE,
            model: Arc::clone(&loaded.model),
            drafts: executor::promises_cuts(&*loaded.executor),
            draft_memory: storage.draft_memory(),
            format: Arc::new(format),
            cache,
            chunk: loaded.chunk,
            sampler,
            reads,
            limits: limits.map(|limits| Arc::new(limits) as Arc<dyn ReplyLimits>),
            form_checker: checking::form_checker(),
        })
    }

    /// A model that reads texts and writes none, the cache of a text, and what it says of texts.
    fn reading(
        &self,
        gguf: &Gguf,
        known: LoadedModel,
    ) -> anyhow::Result<(Loaded, CacheOptions, Option<TextReading>)> {
        self.args.keep.idle().into_iter().for_each(ui::warn);
        let known = load::reader(known)?;
        let rows = known.config.text_rows().context("the model says nothing of texts")?;
        let reading = TextReading {
            rows,
            ranks: use_of(&known.config) == ModelUse::Ranks,
            template: gguf
                .metadata()
                .str(engine::RERANK_TEMPLATE)
                .context("reading the rerank template")?
                .map(str::to_owned),
        };
        let cache = self.args.running.cache_of(&known.config);
        let options = self.args.running.load_options();
        let chunk = options.chunk.unwrap_or(DEFAULT_CHUNK);
        // where a text goes through at once, the longest one must
        let whole = known.config.reads_at_once();
        let chunk = if whole { chunk.max(cache.capacity) } else { chunk };
        let options = LoadOptions { chunk: Some(chunk), ceilings: false, ..options };
        let loaded = load::ready(gguf, known, &self.args.running.executor, &options, &cache)?;
        Ok((loaded, cache, Some(reading)))
    }
}

/// What a model is for.
fn use_of(config: &ModelConfig) -> ModelUse {
    match &config.text {
        None => ModelUse::Writes,
        Some(text) if text.pooling == Pooling::Rank => ModelUse::Ranks,
        Some(_) => ModelUse::Embeds,
    }
}
