//! The report of a stall: who waits for what.

use super::state::Driver;
use crate::training::driver::record::Ran;

impl Driver<'_> {
    /// Who waits for what.
    pub(super) fn waits(&self) -> String {
        const SHOWN: usize = 12;
        let name = |ran: &Ran| {
            let actor = &self.graph.actors()[self.players.actors[ran.player as usize].index()];
            format!("{} (iteration {})", actor.name, ran.iteration)
        };
        let mut lines: Vec<String> = Vec::new();
        for ((process_group, ..), came) in &self.gatherings {
            let process_group = &self.players.process_groups[*process_group as usize];
            let missing = process_group
                .players
                .iter()
                .find(|player| came.iter().all(|ran| ran.player != **player));
            let Some(first) = came.first() else { continue };
            lines.push(format!(
                "  {}: `{}` waits in group `{}` for {} of {} players, among them {}",
                name(first),
                self.graph.name(first.node),
                self.graph.groups()[process_group.group.index()].name,
                process_group.players.len() - came.len(),
                process_group.players.len(),
                missing.map_or_else(String::new, |player| {
                    let actor = self.players.actors[*player as usize];
                    self.graph.actors()[actor.index()].name.clone()
                }),
            ));
        }
        for mailbox in self.mailboxes.values() {
            let Some(receiver) = &mailbox.receiver else { continue };
            lines.push(format!(
                "  {}: `{}` waits for a message",
                name(receiver),
                self.graph.name(receiver.node)
            ));
        }
        lines.extend(self.tensors.waits());
        if lines.len() > SHOWN {
            lines.truncate(SHOWN);
            lines.push("  and more".to_owned());
        }
        lines.join("\n")
    }
}
