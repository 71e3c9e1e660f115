//! The report of a stall: who waits for what.

use super::Driver;
use crate::lowering::StageAt;

impl Driver<'_> {
    /// Who waits for what.
    pub(super) fn waits(&self) -> String {
        const SHOWN: usize = 12;
        let mut lines = Vec::new();
        for (place, progress) in self.progress.iter().enumerate() {
            let (actor, chunk) = (place / self.chunks.len(), place % self.chunks.len());
            let (collective, index) = self.chunks[chunk];
            let stages = &self.job.plans[collective as usize].chunks[index as usize].stages;
            let Some(stage) = stages.get(progress.stage as usize) else { continue };
            if lines.len() == SHOWN {
                lines.push("  and more".to_owned());
                break;
            }
            let what = format!(
                "  rank {actor}: chunk {index} of collective {collective}, {} on {}",
                stage.operation,
                stage.dimension.name()
            );
            lines.push(if progress.running {
                let at = StageAt { collective, chunk: index, stage: progress.stage };
                let actor = u32::try_from(actor).expect("fewer than 2^32 actors");
                let expected = self.lowering.expected(actor, at, progress.step);
                let arrived = progress.arrived.front().copied().unwrap_or(0);
                format!(
                    "{what}, step {}, waits for {} of {expected} messages",
                    progress.step,
                    expected - arrived
                )
            } else {
                format!("{what}, waits for its turn")
            });
        }
        lines.join("\n")
    }
}
