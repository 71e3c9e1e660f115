//! Stages that wait for their links, once ports have handed them over ([`super::send_ahead`]).

use allrail_core::Time;
use allrail_network::NetworkModel;

use super::Executors;
use super::flight::{BEFORE, Inner, Service};

impl<W: NetworkModel> Executors<W> {
    /// In `dims`: a stage was chosen, and waits for its link. Returns when its port may choose again.
    pub(super) fn hand_over(&mut self, now: Time, actor: u32, service: Service) -> Time {
        let Service { run, times, overhead, .. } = service;
        let place = actor as usize * self.dimensions + run.port as usize;
        let Some(ahead) = &mut self.ahead else { return now };
        let link = &mut ahead.links[place];
        link.waiting.push_back(service);
        // Where stages run side by side, none keeps the link from another.
        let served = times.served.min(times.occupancy);
        let bytes = if served > Time::ZERO { times.sent } else { 0.0 };
        let limit = ahead.limit.count() as f64;
        link.hand_over(now, limit, (overhead + times.occupancy, served), bytes)
    }

    /// In `dims`: links that have sent all begin what they were handed.
    pub(super) fn begin_handed(&mut self, now: Time, actor: u32) {
        let first = actor as usize * self.dimensions;
        for (port, place) in (0u32..).zip(first..first + self.dimensions) {
            while let Some(link) = self.ahead.as_mut().map(|ahead| &mut ahead.links[place]) {
                if link.free_at > now {
                    if !link.wakes && !link.waiting.is_empty() {
                        link.wakes = true;
                        self.timers.push(link.free_at, BEFORE, Inner::LinkFree { actor, port });
                    }
                    break;
                }
                let Some(service) = link.waiting.pop_front() else { break };
                let free_at = self.serve(now, actor, service);
                if let Some(ahead) = &mut self.ahead {
                    ahead.links[place].free_at = free_at;
                }
            }
        }
    }

    /// In `dims`: a link can begin the next stage.
    pub(super) fn link_free(&mut self, actor: u32, port: u32) {
        if let Some(ahead) = &mut self.ahead {
            ahead.links[actor as usize * self.dimensions + port as usize].wakes = false;
        }
        // Whether or not its executor has anything to choose.
        let state = &mut self.actors[actor as usize];
        if !state.unsettled {
            state.unsettled = true;
            self.unsettled.push(actor);
        }
    }
}
