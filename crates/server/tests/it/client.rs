//! A server of its own for each test, and requests to it as bytes on a socket.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use engine::{ModelFormat, SamplerOptions};
use gguf::Gguf;
use models::GgufWeights;
use program::interpreter::Interpreter;
use program::{CacheOptions, CacheType, Executor, Model};
use rooflight_server::{
    Access, OfferedModel, Offers, ServedModel, Server, ServerLimits, TextReading,
};
use serde_json::Value;
use tokenizer::{ChatTemplate, Tokenizer};
use tokio::sync::oneshot;

/// What all of them serve.
static MODEL: LazyLock<(Arc<dyn Model>, Arc<ModelFormat>)> = LazyLock::new(|| {
    let gguf = Gguf::from_bytes(conformance::demo_gguf()).unwrap();
    let loaded = models::load(&gguf).unwrap();
    let model = Interpreter.load(loaded.program, &GgufWeights(&gguf), &mut |_| ()).unwrap();
    let tokenizer = Tokenizer::from_gguf(gguf.metadata()).unwrap();
    let template = ChatTemplate::from_gguf(gguf.metadata(), &tokenizer).unwrap();
    (Arc::from(model), Arc::new(ModelFormat::new(Arc::new(tokenizer), template)))
});

/// A running server; gone when dropped.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) format: Arc<ModelFormat>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// How long replies may go on when a server ends.
pub(crate) const DRAIN: Duration = Duration::from_secs(30);

/// Positions of a conversation.
pub(crate) const CONTEXT: usize = 1000;

/// The model of all of them under this name, with something in its place.
pub(crate) fn demo(name: &str, made: impl FnOnce(Arc<dyn Model>) -> Arc<dyn Model>) -> ServedModel {
    let (model, format) = &*MODEL;
    ServedModel {
        name: name.into(),
        created: 7,
        family: "qwen2".into(),
        bytes: 9,
        details: Arc::default(),
        memory: 9,
        model: made(Arc::clone(model)),
        drafts: true,
        draft_memory: u64::MAX,
        format: Arc::clone(format),
        cache: CacheOptions::new(CacheType::F32, CacheType::F32, CONTEXT),
        chunk: 64,
        sampler: SamplerOptions::greedy(),
        parallel: 2,
        slots: 2,
        waiting: 4,
        slot_patience: Duration::from_secs(10),
        limits: None,
        reads: None,
        form_checker: None,
    }
}

impl Served {
    pub(crate) fn new() -> Served {
        Served::with(2, 4, Access::new(&[], Some(Vec::new())))
    }

    pub(crate) fn with(parallel: usize, waiting: usize, access: Access) -> Served {
        Served::made(parallel, waiting, access, |model| model)
    }

    /// A model that reads texts as a whole, of those that golden cases have.
    pub(crate) fn reading(name: &str) -> Served {
        let known = conformance::golden::texts().into_iter().find(|known| known.name == name);
        let gguf = Gguf::from_bytes(known.unwrap().file).unwrap();
        let loaded = models::load(&gguf).unwrap();
        let rows = loaded.config.text_rows().unwrap();
        let ranks = loaded.config.text.as_ref().unwrap().pooling == models::Pooling::Rank;
        let model = Interpreter.load(loaded.program, &GgufWeights(&gguf), &mut |_| ()).unwrap();
        let tokenizer = Tokenizer::from_gguf(gguf.metadata()).unwrap();
        let template = ChatTemplate::from_gguf(gguf.metadata(), &tokenizer).unwrap();
        let template_of_pairs = gguf.metadata().str(engine::RERANK_TEMPLATE).unwrap();
        let served = ServedModel {
            name: "demo".into(),
            created: 7,
            family: loaded.config.architecture.clone(),
            bytes: 9,
            details: Arc::default(),
            memory: 9,
            model: Arc::from(model),
            drafts: true,
            draft_memory: u64::MAX,
            format: Arc::new(ModelFormat::new(Arc::new(tokenizer), template)),
            cache: CacheOptions::new(CacheType::F32, CacheType::F32, loaded.config.context_length),
            chunk: 64,
            sampler: SamplerOptions::greedy(),
            parallel: 1,
            slots: 1,
            waiting: 4,
            slot_patience: Duration::from_secs(10),
            limits: None,
            form_checker: None,
            reads: Some(TextReading {
                rows,
                ranks,
                template: template_of_pairs.map(str::to_owned),
            }),
        };
        Served::providing(served)
    }

    /// Conversations of few tokens, and room for many who ask.
    pub(crate) fn small() -> Served {
        let mut model =
            ServedModel { parallel: 4, slots: 4, waiting: 40, ..demo("demo", |model| model) };
        model.cache.capacity = 128;
        Served::providing(model)
    }

    /// Starts a server that refuses fields without effect.
    pub(crate) fn strict() -> Served {
        let limits = ServerLimits { strict: true, ..ServerLimits::default() };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let access = Access::new(&[], Some(Vec::new()));
        let server = Server::start_within(limits, listener, access).unwrap();
        server.provide(demo("demo", |model| model)).unwrap();
        Served::of(server)
    }

    /// This model, to whoever asks on this machine.
    pub(crate) fn providing(model: ServedModel) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server::start(listener, Access::new(&[], Some(Vec::new()))).unwrap();
        server.provide(model).unwrap();
        Served::of(server)
    }

    /// With something in place of the model.
    pub(crate) fn of_model(made: impl FnOnce(Arc<dyn Model>) -> Arc<dyn Model>) -> Served {
        Served::made(2, 4, Access::new(&[], Some(Vec::new())), made)
    }

    /// With this number of concurrent replies, length of the queue, keys, and a replacement for the model.
    pub(crate) fn made(
        parallel: usize,
        waiting: usize,
        access: Access,
        made: impl FnOnce(Arc<dyn Model>) -> Arc<dyn Model>,
    ) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server::start(listener, access).unwrap();
        let model = demo("demo", made);
        server.provide(ServedModel { parallel, slots: parallel, waiting, ..model }).unwrap();
        Served::of(server)
    }

    /// Several models, of which one that nobody asks for stays for so long.
    pub(crate) fn several(models: Vec<OfferedModel>, keep: Option<Duration>) -> Served {
        Served::offering(Offers { models, keep, pull: None })
    }

    /// The same, of which more may come.
    pub(crate) fn offering(offers: Offers) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server::start(listener, Access::new(&[], Some(Vec::new()))).unwrap();
        let first = (offers.models[0].load)().unwrap();
        server.offer(offers, first).unwrap();
        Served::of(server)
    }

    /// A server as it is.
    pub(crate) fn of(server: Server) -> Served {
        let address = server.address().unwrap();
        let (end, ended) = oneshot::channel();
        let thread = std::thread::spawn(move || server.run(async { drop(ended.await) }, DRAIN));
        let (model, format) = &*MODEL;
        Served {
            address,
            model: Arc::clone(model),
            format: Arc::clone(format),
            end: Some(end),
            thread: Some(thread),
        }
    }

    /// A connection on which these bytes were sent.
    pub(crate) fn open(&self, request: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(request).unwrap();
        stream
    }

    /// What these bytes are answered with.
    pub(crate) fn send(&self, request: &[u8]) -> Answer {
        let mut bytes = Vec::new();
        // who refuses a body may not read it to its end
        let _ = self.open(request).read_to_end(&mut bytes);
        Answer::read(&bytes)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send(head("GET", path, "").as_bytes())
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(&post(path, body))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let joined = thread.join();
            assert!(joined.is_ok() || std::thread::panicking(), "the server ended in a panic");
        }
    }
}

/// A client that asks one thing after another on one connection, for as long as the server keeps it.
pub(crate) struct Kept {
    address: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
}

impl Kept {
    pub(crate) fn of(served: &Served) -> Kept {
        Kept { address: served.address, stream: None }
    }

    /// What these bytes are answered with.
    pub(crate) fn post(&mut self, path: &str, body: &[u8]) -> Answer {
        // one that was closed meanwhile is seen when it is asked
        let again = self.stream.is_some();
        match self.asked(path, body) {
            Ok(answer) => answer,
            Err(_) if again => self.asked(path, body).unwrap(),
            Err(error) => panic!("{path}: {error}"),
        }
    }

    fn asked(&mut self, path: &str, body: &[u8]) -> std::io::Result<Answer> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => BufReader::new(TcpStream::connect(self.address)?),
        };
        stream.get_ref().set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.get_ref().set_nodelay(true)?;
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        request.extend(body);
        stream.get_mut().write_all(&request)?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        let lower = head.to_lowercase();
        let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut bytes = head.clone().into_bytes();
        match length.and_then(|length| length.trim().parse::<usize>().ok()) {
            Some(length) => {
                let start = bytes.len();
                bytes.resize(start + length, 0);
                stream.read_exact(&mut bytes[start..])?;
            }
            None => loop {
                let mut line = String::new();
                stream.read_line(&mut line)?;
                let length = usize::from_str_radix(line.trim(), 16);
                let length = length.map_err(|_| std::io::Error::from(ErrorKind::InvalidData))?;
                bytes.extend(line.as_bytes());
                let start = bytes.len();
                bytes.resize(start + length + 2, 0);
                stream.read_exact(&mut bytes[start..])?;
                if length == 0 {
                    break;
                }
            },
        }
        if !lower.contains("connection: close") {
            self.stream = Some(stream);
        }
        Ok(Answer::read(&bytes))
    }
}

/// The head of a request with these lines among its headers.
pub(crate) fn head(method: &str, path: &str, headers: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n")
}

/// A request with this body.
pub(crate) fn post(path: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let headers = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    (head("POST", path, &headers) + &body).into_bytes()
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn read(bytes: &[u8]) -> Answer {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).map_or(0, |status| status.parse().unwrap());
        let head = head.to_lowercase();
        let body = match head.contains("transfer-encoding: chunked") {
            true => unchunked(body),
            false => body.to_owned(),
        };
        Answer { status, head, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.map(str::trim)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The objects of a stream, and whether it said that it is over.
    pub(crate) fn events(&self) -> (Vec<Value>, bool) {
        let data = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        let (mut events, mut done) = (Vec::new(), false);
        for line in data {
            assert!(!done, "{line} after the end");
            match line {
                "[DONE]" => done = true,
                line => events.push(serde_json::from_str(line).unwrap()),
            }
        }
        (events, done)
    }
}

fn unchunked(mut body: &str) -> String {
    let mut out = String::new();
    while let Some((len, rest)) = body.split_once("\r\n") {
        let len = usize::from_str_radix(len, 16).unwrap();
        out.push_str(&rest[..len.min(rest.len())]);
        body = rest.get(len + 2..).unwrap_or_default();
    }
    out
}
