//! The report of a stall: who waits for what.

use allrail_collective::StageRef;
use allrail_core::counted;
use allrail_engine::UnderWay;
use allrail_network::NetworkModel;

use super::Executors;
use super::lowered::Carried;

impl<W: NetworkModel> Executors<W> {
    /// Every chunk that is not over, a line each, until `shown` of them; `name` says what a tag is.
    #[must_use]
    pub(crate) fn waits(&self, shown: usize, name: impl Fn(u64) -> String) -> Vec<String> {
        let mut lines = Vec::new();
        for (rank, actor) in self.actors.iter().enumerate() {
            let mut chunks: Vec<UnderWay> = actor.executor.under_way().collect();
            chunks.sort_by_key(|chunk| {
                let (id, _) = actor.flights[chunk.collective.slot as usize];
                (self.flights[id as usize].tag, chunk.at)
            });
            for chunk in chunks {
                if lines.len() == shown {
                    lines.push("  and more".to_owned());
                    return lines;
                }
                let (id, position) = actor.flights[chunk.collective.slot as usize];
                let flight = &self.flights[id as usize];
                let task = flight.lowered.stages(position).tasks()[chunk.task as usize];
                let at = StageRef { chunk: chunk.at.chunk, stage: task.stage };
                let what = format!(
                    "  rank {rank}: chunk {} of {}, {} on dim{}",
                    at.chunk,
                    name(flight.tag),
                    task.operation,
                    task.port + 1
                );
                if !chunk.running {
                    lines.push(format!("{what}, waits for its turn"));
                    continue;
                }
                if let Some((missing, all)) = self.missing(id, position, at.chunk) {
                    let all = counted(all, "message");
                    lines.push(format!("{what}, waits for {missing} of {all}"));
                    continue;
                }
                let (step, received, expected) = match &flight.lowered.carried {
                    Carried::Stages(_) => (0, 0, 1),
                    Carried::Messages(steps) => {
                        let run = &flight.chunks[flight.place(position, at.chunk)].run;
                        let expected = steps.expected(position, at, run.step());
                        (run.step(), run.received(), expected)
                    }
                };
                let missing = expected.saturating_sub(received);
                let expected = counted(expected, "message");
                lines.push(format!("{what}, step {step}, waits for {missing} of {expected}"));
            }
        }
        lines
    }
}
