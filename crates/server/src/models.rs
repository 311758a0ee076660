//! [`Models`]: what is served, by its names: which models there are, which of them are loaded, and until when.
//!
//! A model is loaded when it is first asked for, one at a time, on a thread that may take its time. It goes when nobody asked
//! for it for as long as it is kept, or when another one needs its memory; never while somebody uses it. Who asks for one that
//! is there waits for no other.

mod names;
mod requests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore};

use crate::api::CancelOnDrop;
use crate::error::{ApiError, Result};
use crate::fields::brief_text;
use crate::guard::ClientId;
use crate::metrics::Metrics;
use crate::offers::{LoadFailure, LoadModel, ModelAbout, OfferedModel, Offers};
use crate::pulls::PullModel;
use crate::record::RequestRecord;
use crate::{ServedModel, Serving};

pub(crate) use requests::ModelField;

/// Requests that may wait for models to be loaded.
const WAITING: usize = 32;
/// Requests that may have models brought here at a time.
pub(crate) const PULLS: usize = 4;
/// How often it is looked whether a model is still used.
const LEAST_LOOK: Duration = Duration::from_millis(20);
const MOST_LOOK: Duration = Duration::from_secs(1);

/// All that are served.
pub(crate) struct Models {
    /// The first one is meant where nobody says. None ever goes.
    all: RwLock<Vec<Arc<Entry>>>,
    /// Brings more of them here.
    pub(crate) pull: Option<Box<PullModel>>,
    /// Places of those who have one brought.
    pub(crate) pulls: Arc<Semaphore>,
    /// How long one stays that nobody asks for; `None`: for as long as there is room.
    keep: Option<Duration>,
    /// Held while one is loaded.
    loading: Mutex<()>,
    waiting: Arc<Semaphore>,
    /// That something changed which [`expire`](Self::expire) looks at.
    changed: Notify,
}

struct Entry {
    /// What is loaded when it is asked for; another one when a newer file was brought here.
    offer: Mutex<Arc<Offer>>,
    metrics: Arc<Metrics>,
    loaded: Mutex<Option<LoadedEntry>>,
}

struct Offer {
    about: ModelAbout,
    /// `None`: it was there from the beginning, and stays.
    load: Option<Box<LoadModel>>,
}

struct LoadedEntry {
    /// What it was loaded from.
    of: Arc<Offer>,
    serving: Arc<Serving>,
    keep: Option<Duration>,
    /// When it was last seen in use, or asked for.
    used: Instant,
}

/// What came of making room for a model.
enum Room {
    /// There may be enough now.
    Made,
    /// There will be, when models that are in use may go.
    InUse,
    /// Not even if all others went.
    Never,
}

/// A model that is loaded.
pub(crate) struct LoadedAbout {
    pub(crate) about: ModelAbout,
    /// How long it stays if nobody asks for it; `None`: for as long as there is room.
    pub(crate) left: Option<Duration>,
}

impl Models {
    /// One that stays.
    ///
    /// # Errors
    /// If the system refuses the thread that computes.
    pub(crate) fn fixed(model: ServedModel) -> std::io::Result<Models> {
        let metrics = Arc::<Metrics>::default();
        let about = model.about();
        let serving = Arc::new(Serving::start(model, &metrics)?);
        let of = Arc::new(Offer { about, load: None });
        let offer = Mutex::new(Arc::clone(&of));
        let loaded = LoadedEntry { of, serving, keep: None, used: Instant::now() };
        let loaded = Mutex::new(Some(loaded));
        Ok(Models::of(vec![Entry { offer, metrics, loaded }], None, None))
    }

    /// Several, of which the first is loaded.
    ///
    /// # Errors
    /// If the system refuses the thread that computes.
    ///
    /// # Panics
    /// If there are none.
    pub(crate) fn offered(offers: Offers, first: ServedModel) -> std::io::Result<Models> {
        let Offers { models, keep, pull } = offers;
        let models = Models::of(models.into_iter().map(Entry::of).collect(), keep, pull);
        let entry = &models.entries()[0];
        models.put(entry, &entry.offer(), first, None)?;
        Ok(models)
    }

    fn of(all: Vec<Entry>, keep: Option<Duration>, pull: Option<Box<PullModel>>) -> Models {
        let (loading, changed) = Default::default();
        let all = RwLock::new(all.into_iter().map(Arc::new).collect());
        let [waiting, pulls] = [WAITING, PULLS].map(|most| Arc::new(Semaphore::new(most)));
        Models { all, pull, pulls, keep, loading, waiting, changed }
    }

    /// One more, or another file for the one of its name, however that is spelled: who asks from now on gets this one as soon
    /// as nobody uses the one before it.
    pub(crate) fn add(&self, model: OfferedModel) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        match all.iter().find(|entry| entry.offer().is_named(&model.about.name)) {
            Some(entry) => entry.offer_anew(model),
            None => all.push(Arc::new(Entry::of(model))),
        }
    }

    /// Bytes that models which are loaded would give back.
    pub(crate) fn held(&self) -> u64 {
        let held = |entry: &Arc<Entry>| {
            let goes = entry.goes();
            entry.lock().as_ref().filter(|_| goes).map_or(0, |loaded| loaded.serving.memory())
        };
        self.entries().iter().map(held).fold(0, u64::saturating_add)
    }

    /// All that there are now.
    fn entries(&self) -> Vec<Arc<Entry>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is known of each.
    pub(crate) fn about(&self) -> Vec<ModelAbout> {
        self.entries().iter().map(|entry| entry.offer().about.clone()).collect()
    }

    /// What was counted of each, as Prometheus reads it.
    pub(crate) fn metrics(&self) -> String {
        let all = self.entries();
        let all: Vec<_> = all.iter().map(|entry| (entry.offer(), &*entry.metrics)).collect();
        Metrics::render_all(all.iter().map(|(offer, metrics)| (&*offer.about.name, *metrics)))
    }

    /// Those that are loaded.
    pub(crate) fn loaded(&self) -> Vec<LoadedAbout> {
        let one = |entry: &Arc<Entry>| {
            let loaded = entry.lock();
            let loaded = loaded.as_ref()?;
            let left = loaded.keep.map(|keep| keep.saturating_sub(loaded.used.elapsed()));
            Some(LoadedAbout { about: loaded.of.about.clone(), left })
        };
        self.entries().iter().filter_map(one).collect()
    }

    /// What is known of the model of this name, with or without Ollama's tag, in capitals or not, or of the file of this name; the first
    /// one where none is named.
    ///
    /// # Errors
    /// Another name.
    pub(crate) fn named(&self, name: Option<&str>) -> Result<ModelAbout> {
        self.entry(name).map(|entry| entry.offer().about.clone())
    }

    /// The model of this name, if it is loaded.
    ///
    /// # Errors
    /// Another name; that it is not loaded.
    pub(crate) fn there(&self, name: Option<&str>) -> Result<Arc<Serving>> {
        let entry = self.entry(name)?;
        entry.serving().ok_or_else(|| ApiError::not_loaded(&entry.offer().about.name))
    }

    /// The model of this name, which is loaded if it is not.
    ///
    /// # Errors
    /// Another name, memory that has no room for it beside those in use, a file that cannot be loaded, too many who wait.
    pub(crate) async fn serving(
        self: &Arc<Models>,
        name: Option<&str>,
        record: Option<&RequestRecord>,
    ) -> Result<Arc<Serving>> {
        self.serving_noted(self.entry(name)?, record).await
    }

    /// Returns the model of an entry, loaded if it is not, and adds the waiting time to the request's record.
    async fn serving_noted(
        self: &Arc<Models>,
        entry: Arc<Entry>,
        record: Option<&RequestRecord>,
    ) -> Result<Arc<Serving>> {
        if let Some(serving) = entry.serving() {
            return Ok(serving);
        }
        let start = Instant::now();
        let serving = self.serving_of(entry).await;
        record.into_iter().for_each(|record| record.waited_for_model(start.elapsed()));
        serving
    }

    async fn serving_of(self: &Arc<Models>, entry: Arc<Entry>) -> Result<Arc<Serving>> {
        if let Some(serving) = entry.serving() {
            return Ok(serving);
        }
        let Ok(place) = Arc::clone(&self.waiting).try_acquire_owned() else {
            return Err(ApiError::busy(WAITING));
        };
        let models = Arc::clone(self);
        let cancel = CancelOnDrop::default();
        let left = Arc::clone(cancel.flag());
        // whoever waits may leave: what is being loaded is there for the next one, and the thread keeps the place until it is done
        let loaded = tokio::task::spawn_blocking(move || {
            let _place = place;
            models.load(&entry, &left)
        });
        let loaded = loaded.await;
        loaded.unwrap_or_else(|_| Err(ApiError::internal("the model could not be loaded")))
    }

    /// `left`: who asked is gone, and needs it loaded no more.
    fn load(&self, entry: &Arc<Entry>, left: &AtomicBool) -> Result<Arc<Serving>> {
        // one at a time: each is to see the memory that the one before it took
        let _alone = lock(&self.loading);
        if let Some(serving) = entry.serving() {
            return Ok(serving);
        }
        let start = Instant::now();
        let offer = entry.offer();
        let name = &offer.about.name;
        if left.load(Ordering::Relaxed) {
            return Err(ApiError::not_loaded(name));
        }
        let load = offer.load.as_ref().ok_or_else(|| ApiError::not_loaded(name))?;
        entry.unload(|loaded| !Arc::ptr_eq(&loaded.of, &offer));
        let model = loop {
            match load() {
                Ok(model) => break model,
                Err(LoadFailure::NoMemory { problem, missing }) => {
                    match self.make_room(entry, missing) {
                        Room::Made => {}
                        Room::InUse => return Err(ApiError::no_room(name, &problem)),
                        Room::Never => return Err(ApiError::too_large(name, &problem)),
                    }
                }
                Err(LoadFailure::Failed(problem)) => {
                    tracing::warn!(model = brief_text(name), problem, "could not be loaded");
                    return Err(ApiError::internal(format!("{name}: {problem}")));
                }
            }
        };
        self.put(entry, &offer, model, Some(start))
            .map_err(|error| ApiError::internal(error.to_string()))
    }

    /// Makes a loaded model available to requests. `start`: time when loading began, with everything that belongs to it.
    fn put(
        &self,
        entry: &Entry,
        of: &Arc<Offer>,
        model: ServedModel,
        start: Option<Instant>,
    ) -> std::io::Result<Arc<Serving>> {
        let name = brief_text(&model.name);
        let serving = Arc::new(Serving::start(model, &entry.metrics)?);
        let seconds = start.map(|start| (start.elapsed().as_secs_f64() * 1e3).round() / 1e3);
        tracing::info!(model = name, seconds, "loaded");
        let (of, loaded) = (Arc::clone(of), Arc::clone(&serving));
        let loaded = LoadedEntry { of, serving: loaded, keep: self.keep, used: Instant::now() };
        *entry.lock() = Some(loaded);
        self.changed.notify_one();
        Ok(serving)
    }

    /// Unload the one that nobody used for longest, where `missing` bytes come together of those that nobody uses: none goes
    /// in vain.
    fn make_room(&self, wanted: &Arc<Entry>, missing: u64) -> Room {
        let (mut idle, mut all) = (0_u64, 0_u64);
        let mut oldest: Option<(Instant, Arc<Entry>)> = None;
        for entry in self.entries() {
            if Arc::ptr_eq(&entry, wanted) || !entry.goes() {
                continue;
            }
            let seen = entry
                .lock()
                .as_ref()
                .map(|loaded| (loaded.serving.memory(), loaded.is_idle().then_some(loaded.used)));
            let Some((bytes, unused)) = seen else { continue };
            all = all.saturating_add(bytes);
            let Some(used) = unused else { continue };
            idle = idle.saturating_add(bytes);
            if oldest.as_ref().is_none_or(|(earlier, _)| used < *earlier) {
                oldest = Some((used, entry));
            }
        }
        match oldest {
            Some((_, entry)) if idle >= missing => {
                // if somebody has come to use it, the next look sees that
                entry.unload(|_| true);
                Room::Made
            }
            _ if all >= missing => Room::InUse,
            _ => Room::Never,
        }
    }

    /// Nothing is asked any more: what is to be kept of those that are loaded goes to disk.
    pub(crate) fn rest(&self) {
        let serving = |entry: &Arc<Entry>| entry.lock().as_ref().map(|it| Arc::clone(&it.serving));
        self.entries().iter().filter_map(serving).for_each(|serving| serving.rest());
    }

    /// How long one stays where nobody says.
    pub(crate) fn usual_keep(&self) -> Option<Duration> {
        self.keep
    }

    /// Keep a model for so long after its last use from now on; `None`: for as long as there is room. Of a model that other clients use,
    /// too, a client may only have it stay for longer. Whether that is so, and the model can go.
    ///
    /// # Errors
    /// Another name.
    pub(crate) fn keep(
        &self,
        name: Option<&str>,
        keep: Option<Duration>,
        client: ClientId,
    ) -> Result<bool> {
        let entry = self.entry(name)?;
        if let Some(loaded) = entry.lock().as_mut() {
            let forever = |keep: Option<Duration>| keep.unwrap_or(Duration::MAX);
            if loaded.serving.is_of_others(client) && forever(keep) < forever(loaded.keep) {
                return Ok(false);
            }
            loaded.keep = keep;
        }
        self.changed.notify_one();
        Ok(entry.goes())
    }

    /// Unload what nobody asked for as long as it is kept; when to look again, if something may go.
    fn expire(&self) -> Option<Duration> {
        let mut next = None;
        for entry in self.entries().iter().filter(|entry| entry.goes()) {
            let now = Instant::now();
            let look = {
                let mut loaded = entry.lock();
                let Some(loaded) = loaded.as_mut() else { continue };
                if !loaded.is_idle() {
                    loaded.used = now;
                }
                loaded.keep.map(|keep| keep.saturating_sub(now - loaded.used))
            };
            let Some(mut look) = look else { continue };
            if look.is_zero() {
                // who loads one sees memory with this one or without it, and nothing in between
                let alone = self.loading.try_lock();
                if matches!(alone, Err(TryLockError::WouldBlock)) {
                    look = MOST_LOOK;
                } else if entry.unload(LoadedEntry::is_over) {
                    continue;
                }
            }
            look = look.clamp(LEAST_LOOK, MOST_LOOK);
            next = Some(next.map_or(look, |next: Duration| next.min(look)));
        }
        next
    }

    /// Cut all replies that are being made or wait, and have each say so.
    pub(crate) fn end_replies(&self) {
        let loaded = |entry: &Arc<Entry>| Some(Arc::clone(&entry.lock().as_ref()?.serving));
        for serving in self.entries().iter().filter_map(loaded) {
            if let Ok(worker) = serving.writer() {
                worker.end_replies();
            }
        }
    }

    /// Unload models when their time is over, for as long as this is polled.
    pub(crate) async fn watch(self: Arc<Models>) {
        loop {
            let models = Arc::clone(&self);
            // the thread of one that goes is waited for
            let next = tokio::task::spawn_blocking(move || models.expire()).await;
            match next.ok().flatten() {
                Some(time) => {
                    let _ = tokio::time::timeout(time, self.changed.notified()).await;
                }
                None => self.changed.notified().await,
            }
        }
    }
}

impl Entry {
    /// One that is not loaded.
    fn of(model: OfferedModel) -> Entry {
        let (metrics, loaded) = Default::default();
        Entry { offer: Mutex::new(Arc::new(Offer::of(model))), metrics, loaded }
    }

    fn offer(&self) -> Arc<Offer> {
        Arc::clone(&lock(&self.offer))
    }

    /// From now on this is meant, unless it is the same.
    fn offer_anew(&self, model: OfferedModel) {
        let mut offer = lock(&self.offer);
        let ModelAbout { name, aliases, .. } = offer.about.clone();
        let same = ModelAbout { name, aliases, ..model.about.clone() };
        if offer.load.is_some() && same != offer.about {
            *offer = Arc::new(Offer::of(model));
        }
    }

    /// Whether it can go: it can be loaded again.
    fn goes(&self) -> bool {
        self.offer().load.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Option<LoadedEntry>> {
        lock(&self.loaded)
    }

    /// It, if it is loaded; not of an older file that nobody uses.
    fn serving(&self) -> Option<Arc<Serving>> {
        let offer = self.offer();
        let mut loaded = self.lock();
        let loaded = loaded.as_mut()?;
        if loaded.is_idle() && !Arc::ptr_eq(&loaded.of, &offer) {
            return None;
        }
        loaded.used = Instant::now();
        Some(Arc::clone(&loaded.serving))
    }

    /// Unload it if nobody uses it, and `may` says so; whether it is gone, its memory with it.
    fn unload(&self, may: impl FnOnce(&LoadedEntry) -> bool) -> bool {
        let mut loaded = self.lock();
        // whoever uses it has it from here: nobody comes to it meanwhile
        let goes = loaded.as_ref().is_some_and(|loaded| loaded.is_idle() && may(loaded));
        let gone = if goes { loaded.take() } else { None };
        drop(loaded);
        let Some(serving) = gone.and_then(|gone| Arc::into_inner(gone.serving)) else {
            return false;
        };
        let name = brief_text(&serving.model.name);
        serving.end();
        tracing::info!(model = name, "unloaded");
        true
    }
}

impl Offer {
    fn of(OfferedModel { about, load }: OfferedModel) -> Offer {
        Offer { about, load: Some(load) }
    }

    /// Names are the same in capitals and not, as they are where models come from.
    fn is_named(&self, name: &str) -> bool {
        self.about.names().any(|own| own.eq_ignore_ascii_case(name))
    }
}

impl LoadedEntry {
    /// Whether nobody uses it.
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.serving) == 1
    }

    /// Whether nobody used it for as long as it is kept.
    fn is_over(&self) -> bool {
        self.keep.is_some_and(|keep| self.used.elapsed() >= keep)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // what is there is whole, whatever happened beside it
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::offers::ModelUse;

    fn until(what: &str, is: impl Fn() -> bool) {
        let start = Instant::now();
        while !is() {
            assert!(start.elapsed() < Duration::from_secs(20), "never: {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// So many may wait, also of those that left, and what fails is not tried again for these.
    #[test]
    fn who_left_keeps_a_place_and_has_nothing_loaded() {
        let (tries, open) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let load = {
            let (tries, open) = (Arc::clone(&tries), Arc::clone(&open));
            move || {
                tries.fetch_add(1, Ordering::SeqCst);
                until("the file is there", || open.load(Ordering::SeqCst));
                Err(LoadFailure::Failed("it is no model".into()))
            }
        };
        let about = ModelAbout {
            name: "m".into(),
            aliases: Vec::new(),
            created: 0,
            family: "none".into(),
            bytes: 1,
            context: 1,
            does: ModelUse::Writes,
            details: Arc::default(),
        };
        let entry = Entry::of(OfferedModel { about, load: Box::new(load) });
        let models = Arc::new(Models::of(vec![entry], None, None));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build();
        let runtime = runtime.unwrap();
        let asks = || {
            let models = Arc::clone(&models);
            runtime.spawn(async move { models.serving(None, None).await.map(drop) })
        };
        let asked: Vec<_> = (0..WAITING).map(|_| asks()).collect();
        let free = || models.waiting.available_permits();
        until("all wait", || free() == 0 && tries.load(Ordering::SeqCst) == 1);
        let refused = runtime.block_on(asks()).unwrap().unwrap_err();
        assert_eq!(refused.status(), 503, "{refused}");
        for task in asked {
            task.abort();
            assert!(runtime.block_on(task).unwrap_err().is_cancelled());
        }
        assert_eq!(free(), 0, "their threads wait still");
        open.store(true, Ordering::SeqCst);
        until("all are gone", || free() == WAITING);
        assert_eq!(tries.load(Ordering::SeqCst), 1, "nobody wanted it any more");
        let refused = runtime.block_on(asks()).unwrap().unwrap_err();
        assert_eq!((refused.status(), tries.load(Ordering::SeqCst)), (500, 2));
    }
}
