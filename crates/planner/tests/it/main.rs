//! Counts and predictions beside the article, closed forms and what is published.

mod article;
mod beside;
mod expect;
mod mixtures;
mod placement;
mod plan;
mod predict;
mod solve;
mod tables;
