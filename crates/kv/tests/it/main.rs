//! Tables, states and sessions from outside: random histories beside plain lists.

mod histories;
mod image;
mod kept_sessions;
mod layout;
mod manifest;
mod pages;
mod space;
mod spilled;
mod states;
