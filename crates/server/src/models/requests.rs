//! From the body of a request to a request of a model that is served.

use std::sync::Arc;

use engine::SamplerOptions;

use super::{Entry, Models};
use crate::Serving;
use crate::body::{Converted, Footprint, JsonBody, RequestBody};
use crate::error::Result;
use crate::fields::Takes;
use crate::offers::ModelAbout;

/// The field of a body that names a model.
pub(crate) type ModelField = fn(&JsonBody) -> Result<Option<&str>>;

/// A request that was read, and the model that it names.
pub(crate) struct ReadRequest<T> {
    entry: Arc<Entry>,
    /// The model, if it is loaded.
    pub(crate) serving: Option<Arc<Serving>>,
    /// The request; with the default sampler if the model is not loaded.
    pub(crate) request: Converted<T>,
}

/// The same while it is read.
struct Addressed<T> {
    entry: Arc<Entry>,
    serving: Option<Arc<Serving>>,
    request: T,
}

impl<T: Footprint> Footprint for Addressed<T> {
    fn footprint(&self) -> u64 {
        self.request.footprint()
    }
}

impl Models {
    /// Convert the body of a request to what `read` makes of it, given the model that the field of `name` names and how that chooses
    /// tokens. No model is loaded.
    ///
    /// # Errors
    /// Another name; those of [`RequestBody::read`] and of `read`.
    pub(crate) async fn read<T: Footprint + Send + 'static>(
        self: &Arc<Models>,
        body: RequestBody,
        takes: Takes,
        name: ModelField,
        read: impl FnOnce(&JsonBody, &ModelAbout, &SamplerOptions) -> Result<T> + Send + 'static,
    ) -> Result<ReadRequest<T>> {
        let models = Arc::clone(self);
        let convert = move |body: &JsonBody| {
            let entry = models.entry(name(body)?)?;
            let serving = entry.serving();
            let usual = SamplerOptions::default();
            let sampler = serving.as_ref().map_or(&usual, |serving| &serving.model.sampler);
            let request = read(body, &entry.offer().about, sampler)?;
            Ok(Addressed { entry, serving, request })
        };
        let Converted { value, claim, notes } = body.read(takes, convert).await?;
        let Addressed { entry, serving, request } = value;
        Ok(ReadRequest { entry, serving, request: Converted { value: request, claim, notes } })
    }

    /// The same, with the model, which is loaded if it is not. An invalid request is refused before a model is loaded for it.
    ///
    /// # Errors
    /// As [`serving`](Self::serving) and [`read`](Self::read).
    pub(crate) async fn serving_for<T: Footprint + Send + 'static>(
        self: &Arc<Models>,
        body: RequestBody,
        takes: Takes,
        name: ModelField,
        read: impl FnOnce(&JsonBody, &ModelAbout, &SamplerOptions) -> Result<T> + Clone + Send + 'static,
    ) -> Result<(Arc<Serving>, Converted<T>)> {
        let first = self.read(body.clone(), takes, name, read.clone()).await?;
        self.load_for(first, body, takes, read).await
    }

    /// The model of a request that was read. If it has to be loaded, the request is nothing but its bytes meanwhile, and read again.
    ///
    /// # Errors
    /// As [`serving_for`](Self::serving_for).
    pub(crate) async fn load_for<T: Footprint + Send + 'static>(
        self: &Arc<Models>,
        first: ReadRequest<T>,
        body: RequestBody,
        takes: Takes,
        read: impl FnOnce(&JsonBody, &ModelAbout, &SamplerOptions) -> Result<T> + Send + 'static,
    ) -> Result<(Arc<Serving>, Converted<T>)> {
        let ReadRequest { entry, serving, request } = first;
        if let Some(serving) = serving {
            return Ok((serving, request));
        }
        drop(request);
        let serving = self.serving_noted(Arc::clone(&entry), body.record()).await?;
        let loaded = Arc::clone(&serving);
        let again = move |body: &JsonBody| read(body, &entry.offer().about, &loaded.model.sampler);
        Ok((serving, body.read(takes, again).await?))
    }
}
