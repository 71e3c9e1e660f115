//! Which receive takes which send; and if one takes none, who waits for whom.

use super::violation::{Violation, Waiting};
use crate::Program;
use crate::program::{Receive, Send};

/// A send and the receive that takes it.
pub(crate) struct Message<'a> {
    pub(crate) source: u32,
    pub(crate) send: &'a Send,
    pub(crate) receive: &'a Receive,
}

/// The messages of one step.
pub(crate) fn messages(program: &Program, step: usize) -> Result<Vec<Message<'_>>, Violation> {
    let mut sent: Vec<(u32, &Send)> = Vec::new();
    let mut awaited: Vec<(u32, &Receive)> = Vec::new();
    for (rank, steps) in (0..).zip(&program.steps) {
        sent.extend(steps[step].sends.iter().map(|send| (rank, send)));
        awaited.extend(steps[step].receives.iter().map(|receive| (rank, receive)));
    }
    // Stable: several messages between the same two ranks stay in order.
    sent.sort_by_key(|(source, send)| (*source, send.to));
    awaited.sort_by_key(|(rank, receive)| (receive.from, *rank));

    let mut unmatched_send = None;
    let mut messages = Vec::with_capacity(sent.len());
    let mut sends = sent.into_iter().peekable();
    for (rank, receive) in awaited {
        let wanted = (receive.from, rank);
        while let Some((source, send)) = sends.next_if(|(source, send)| (*source, send.to) < wanted)
        {
            unmatched_send.get_or_insert((source, send.to));
        }
        match sends.next_if(|(source, send)| (*source, send.to) == wanted) {
            Some((source, send)) => messages.push(Message { source, send, receive }),
            None => return Err(who_waits(program, step)),
        }
    }
    if let Some((source, destination)) =
        unmatched_send.or_else(|| sends.next().map(|(source, send)| (source, send.to)))
    {
        let awaited = awaited_in(program, source, destination);
        return Err(Violation::NotAwaited { source_rank: source, destination, step, awaited });
    }
    for Message { source, send, receive } in &messages {
        if send.blocks.len() != receive.blocks.len() {
            return Err(Violation::Lengths {
                source_rank: *source,
                destination: send.to,
                step,
                sent: send.blocks.len(),
                awaited: receive.blocks.len(),
            });
        }
    }
    Ok(messages)
}

fn awaited_in(program: &Program, source: u32, destination: u32) -> Vec<usize> {
    let steps = program.steps[destination as usize].iter().enumerate();
    steps
        .filter(|(_, step)| step.receives.iter().any(|receive| receive.from == source))
        .map(|(step, _)| step)
        .collect()
}

/// From the rank that is the first to get stuck, from step `first` on, along "waits for": to one that
/// waits for a message which is never sent, or back to one already named.
fn who_waits(program: &Program, first: usize) -> Violation {
    let stuck = stuck(program, first);
    let mut waits: Vec<Waiting> = Vec::new();
    let mut next = stuck.iter().flatten().min_by_key(|waiting| waiting.step);
    while let Some(waiting) = next {
        if waits.iter().any(|named| named.rank == waiting.rank) {
            return Violation::Deadlock { waits, circle: true };
        }
        waits.push(waiting.clone());
        next = stuck[waiting.on as usize].as_ref().filter(|on| {
            // It never starts the step in which it should send; or it has that message in a step that it
            // never starts.
            let later = waiting.sent_in.iter().any(|step| *step > on.step);
            let awaited = awaited_in(program, waiting.on, waiting.rank).len();
            on.step < waiting.step || (later && waiting.sent_in.len() >= awaited)
        });
    }
    Violation::Deadlock { waits, circle: false }
}

/// Per rank, the first receive from step `first` on that is never served. All steps before match.
fn stuck(program: &Program, first: usize) -> Vec<Option<Waiting>> {
    let mut stuck: Vec<Option<Waiting>> = vec![None; program.ranks as usize];
    for step in first..program.step_count() {
        let before = stuck.clone();
        for (rank, reason) in (0..).zip(&mut stuck) {
            if reason.is_some() {
                continue;
            }
            let receives = &program.steps[rank as usize][step].receives;
            *reason = receives.iter().enumerate().find_map(|(i, receive)| {
                let on = receive.from;
                let nth = receives[..i].iter().filter(|other| other.from == on).count();
                let sends = |at: usize| {
                    let sends = &program.steps[on as usize][at].sends;
                    sends.iter().filter(|send| send.to == rank).count()
                };
                let starts = before[on as usize].is_none();
                if starts && sends(step) > nth {
                    return None;
                }
                let sent_in = (0..program.step_count()).filter(|at| sends(*at) > 0).collect();
                Some(Waiting { rank, step, on, sent_in })
            });
        }
    }
    stuck
}
