//! The exchange of a table's gradient as rows (`rows.rs`).

use allrail_collective::Operation;
use allrail_core::Time;

use super::emit::{Emitter, Span};
use super::gradients::place;
use crate::device::{self, Cost};
use crate::graph::{NodeId, Pass, Purpose};

impl Emitter<'_> {
    /// The exchange of a layer's gradient whose table travels as rows; none where it does not. As
    /// [`Self::exchange`].
    pub(super) fn exchange_rows(
        &mut self,
        position: usize,
        i: usize,
        name: &str,
        (parameters, span): (u64, Span),
        ready: &[NodeId],
    ) -> Option<(Option<NodeId>, Time)> {
        let plan = self.plan;
        let table = *plan.rows.get(&i)?;
        let width = plan.gradient_precision.bytes();
        let ranks = self.ranks(span);
        let kind = (Purpose::Data, Some(place(i)), Pass::Backward);
        let servers = plan.workload.by_servers;
        let what = if servers {
            let parts = plan.layout.together(span.axes());
            let last = parts.iter().map(|part| part.dimension).max();
            let within = parts.iter().filter(|part| Some(part.dimension) != last);
            let npus = within.map(|part| u64::from(part.size)).product();
            (Operation::AllReduce, table.union(npus) * table.row(width), span)
        } else {
            (Operation::AllGather, ranks * table.touched * table.row(width), span)
        };
        let rows = self.collective(position, &format!("{name}, rows"), what, kind, ready);
        let rest = parameters.saturating_sub(table.parameters()) * width;
        let dense =
            self.collective(position, name, (Operation::AllReduce, rest, span), kind, ready);
        let both: Vec<NodeId> = rows.into_iter().chain(dense).collect();
        let last = match both.as_slice() {
            [] => None,
            [one] => Some(*one),
            both => Some(self.instant(position, &format!("{name}, all"), Pass::Backward, both)),
        };
        // Everybody's rows are read, and their sums written.
        let numbers = if servers { 0 } else { ranks * table.touched + table.union(ranks) };
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let bytes = numbers as f64 * (table.columns * width) as f64;
        let sums = device::time(plan.device.picoseconds(Cost { flops: 0.0, bytes }));
        Some((last, if ranks > 1 { sums } else { Time::ZERO }))
    }
}
