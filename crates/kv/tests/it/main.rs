//! Tables, states and sessions from outside: random histories beside plain lists.

mod histories;
mod kept_sessions;
mod spilled;
mod states;
