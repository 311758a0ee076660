//! [`Choice`]: the types of weights and cache that are planned.

use planner::ModelVariant;
use planner::goal::{Answer, Goals, solve};

use super::PlanRequest;
use super::subject::Subject;
use super::target::Target;
use super::weights::{self, Cache, Weights, compared_caches};

/// The types of weights and cache that are planned: those that are asked for, or the best that meet the goals.
pub(super) struct Choice {
    pub(super) chosen: ModelVariant,
    pub(super) weights: Weights,
    /// The same weights with each cache that is compared, and the types of these caches.
    pub(super) variants: Vec<ModelVariant>,
    pub(super) types: Vec<Cache>,
    /// The goals and how the chosen types meet them.
    pub(super) answer: Option<(Goals, Answer)>,
    /// All types of weights and cache that are compared.
    pub(super) compared: Vec<ModelVariant>,
}

impl Choice {
    /// Chooses for a model on a machine.
    ///
    /// # Errors
    /// [`crate::Error::Options`] for unknown types; a machine that was not measured.
    pub(super) fn of(
        subject: &Subject,
        target: &Target,
        request: &PlanRequest,
    ) -> anyhow::Result<Choice> {
        let (units, policy, context) = (target.units, request.policy, request.context_for(subject));
        let at_once = subject.config.reads_at_once().then_some(context);
        let chunk = at_once.or(request.chunk);
        let with = |weights: Weights, caches: &[Cache]| {
            weights::variants(subject, weights, caches, target, chunk)
        };
        let all = |caches: &[Cache]| -> anyhow::Result<Vec<ModelVariant>> {
            let each = Weights::compared(subject, units).into_iter().map(|w| with(w, caches));
            Ok(each.collect::<anyhow::Result<Vec<_>>>()?.concat())
        };
        let [k, v] = request.cache;
        let own = Cache { k, v, policy };
        let compared = compared_caches(policy);
        let asked = request.weights.as_deref();
        let goals = request.goals(context, target.room());
        let caches = match request.other_caches {
            true => &compared[..],
            false => std::slice::from_ref(&own),
        };
        let choice = match (goals, asked) {
            (None, _) => Vec::new(),
            (Some(_), Some(name)) => with(Weights::choose(Some(name), subject, units)?, caches)?,
            (Some(_), None) => all(caches)?,
        };
        let answer = goals.and_then(|goals| Some((goals, solve(&choice, &goals)?)));
        let (chosen, variants, types) = match &answer {
            Some((_, answer)) => {
                let chosen = &choice[answer.index];
                let same = choice.iter().filter(|c| c.weights == chosen.weights).cloned();
                (chosen.clone(), same.collect::<Vec<_>>(), caches.to_vec())
            }
            None => {
                let weights = Weights::choose(asked, subject, units)?;
                let mut caches = vec![own];
                caches.extend(compared.into_iter().filter(|cache| *cache != own));
                let all = with(weights, &caches)?;
                (all[0].clone(), all, caches)
            }
        };
        let weights = Weights::named(&chosen.weights, asked, subject, units)?;
        Ok(Choice { chosen, weights, variants, types, answer, compared: all(&compared)? })
    }
}
