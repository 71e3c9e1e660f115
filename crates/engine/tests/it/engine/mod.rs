//! What an engine decides, without bytes: which operations begin, under which names, in which order.

mod agreement;
mod bad_input;
mod calls;
mod forget;
mod names;
mod ranks;
mod stop;
mod tuning;
