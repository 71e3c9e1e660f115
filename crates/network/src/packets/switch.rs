//! What happens at a router: packets arrive, choose, ask, cross and leave.

use allrail_fabric::graph::NodeId;
use allrail_fabric::routing::{Hop, RouteState};
use rand::Rng;

use super::Packets;
use super::calendar::Action;
use super::choice::Fork;
use super::state::{self, NONE};

impl Packets {
    /// The first packet on `link` reaches its far end.
    pub(super) fn arrive(&mut self, link: u32) {
        let flight = &mut self.links[link as usize].flight;
        let id = flight.pop(&self.packets);
        let packet = &self.packets[id as usize];
        if !flight.is_empty() {
            self.events.push(packet.next_arrival, link, Action::Arrive);
        }
        if packet.destination == self.inputs[link as usize].node {
            state::prefetch(&self.messages, packet.message);
        }
        let queue = link as usize * self.channels + usize::from(packet.channel);
        let waits = !self.askers[queue].queue.is_empty();
        self.inputs[link as usize].queued += 1;
        self.askers[queue].queue.push(&mut self.packets, id);
        if !waits {
            self.advance(queue);
        }
    }

    /// The far end of `link` may pass on another packet.
    pub(super) fn input_free(&mut self, link: u32) {
        let at = &mut self.inputs[link as usize];
        at.wakes = false;
        let turn = usize::from(at.turn);
        for step in 0..self.channels {
            let at = &self.inputs[link as usize];
            if at.free_at > self.now || at.queued == 0 {
                break;
            }
            let channel = (turn + step) % self.channels;
            let queue = link as usize * self.channels + channel;
            if self.askers[queue].queue.is_empty() {
                continue;
            }
            match self.askers[queue].output {
                NONE => self.advance(queue),
                output => self.serve(output / self.channels as u32),
            }
        }
        // One that is free has no more to be looked at: who is left waits for an output.
        if self.inputs[link as usize].free_at > self.now {
            self.wake_input(link);
        }
    }

    /// `link` may take another packet from the crossbar, or has got credit back.
    pub(super) fn output_free(&mut self, link: u32) {
        let at = &mut self.links[link as usize];
        if at.wakes_at <= self.now {
            at.wakes_at = u64::MAX;
        }
        self.serve(link);
    }

    /// Makes sure that whoever waits at the far end of `link` is looked at when it is free: at once
    /// behind an empty packet, which takes no time to cross.
    fn wake_input(&mut self, link: u32) {
        let at = &mut self.inputs[link as usize];
        if at.queued > 0 && !at.wakes {
            at.wakes = true;
            self.events.push(at.free_at, link, Action::InputFree);
        }
    }

    fn wake_output(&mut self, link: u32, time: u64) {
        let at = &mut self.links[link as usize];
        if time < at.wakes_at {
            at.wakes_at = time;
            self.events.push(time, link, Action::OutputFree);
        }
    }

    /// Chooses for the first packet of a queue that asks for nothing yet. Those that have arrived
    /// leave.
    fn advance(&mut self, queue: usize) {
        let link = (queue / self.channels) as u32;
        loop {
            let id = self.askers[queue].queue.first;
            if id == NONE {
                return;
            }
            let at = &self.inputs[link as usize];
            if at.free_at > self.now {
                return self.wake_input(link);
            }
            let (node, latency) = (at.node, at.latency);
            let packet = &self.packets[id as usize];
            let packet_bytes = packet.bytes;
            let (destination, state) = (packet.destination, packet.state);
            if destination != node {
                let (message, sequence) = (packet.message, packet.sequence);
                let hop = self.choose(node, state, destination, (message, sequence));
                if self.is_crowded(hop.link) && packet_bytes > 0 {
                    self.cut(queue, link, id);
                    continue;
                }
                if let Some(flowlets) = &mut self.flowlets {
                    flowlets.sent();
                }
                self.packets[id as usize].state = hop.state.0;
                return self.ask(queue as u32, hop);
            }
            self.askers[queue].queue.pop(&self.packets);
            self.inputs[link as usize].queued -= 1;
            self.give_back(queue, id, self.now + latency);
            self.deliver(id);
        }
    }

    /// The least loaded of the hops that are allowed, for the packet of this message and place in it.
    #[inline(always)] // Its hop then stays in registers.
    pub(super) fn choose(
        &mut self,
        node: u32,
        state: u32,
        destination: u32,
        (message, sequence): (u32, u32),
    ) -> Hop {
        let draw = if self.draws > 1 { self.random.random_range(0..self.draws) } else { 0 };
        self.hops.clear();
        let (at, to) = (NodeId(node), NodeId(destination));
        self.routing.hops(at, RouteState(state), to, draw, &mut self.hops);
        if self.hops.len() > 1
            && let Some(choice) = self.choice
        {
            let source = NodeId(self.messages[message as usize].source);
            let flow = (node, source.0, destination);
            let flowlet = self.flowlets.as_mut().map_or(0, |of| of.of(flow, self.now));
            let fork =
                Fork { node: at, source, destination: to, sequence, flowlet, seed: self.seed };
            choice.narrow(&fork, &mut self.hops);
        } else if let Some(flowlets) = &mut self.flowlets {
            flowlets.forget();
        }
        let best = if self.hops.len() > 1 { self.least_loaded(node) } else { 0 };
        *self.hops.get(best).expect("a routing knows a way from every node")
    }

    /// Which of the hops from `node` is.
    fn least_loaded(&mut self, node: u32) -> usize {
        let mut best = (f64::INFINITY, u8::MAX);
        self.equals.clear();
        for (number, hop) in (0u32..).zip(&self.hops) {
            let output =
                &mut self.outputs[hop.link as usize * self.channels + usize::from(hop.channel)];
            output.settle(self.now);
            let link = &self.links[hop.link as usize];
            let rate = self.speeds[usize::from(link.speed)].rate;
            let waiting = link.free_at.saturating_sub(self.now) as f64 * rate;
            let load = (waiting + output.used as f64) * f64::from(hop.weight);
            if load > best.0 {
                continue;
            }
            if (load, hop.weight) < best {
                best = (load, hop.weight);
                self.equals.clear();
            }
            if (load, hop.weight) == best {
                self.equals.push(number);
            }
        }
        // The rules of boards and tori prefer their first hop; uplinks of a switch are alike.
        let drawn = node >= self.graph.npus() && self.equals.len() > 1;
        let place = if drawn { self.random.random_range(0..self.equals.len()) } else { 0 };
        self.equals[place] as usize
    }

    /// `asker` (a queue, or a slot) wants its first packet to take `hop`.
    pub(super) fn ask(&mut self, asker: u32, hop: Hop) {
        let number = hop.link as usize * self.channels + usize::from(hop.channel);
        let at = &mut self.links[hop.link as usize];
        at.asking += 1;
        if at.asking == 1 && at.crossbar_free <= self.now {
            // It is alone: there is no one to serve first. Its input is free, or it would not ask.
            let bytes = self.packets[self.first_packet(asker) as usize].bytes;
            let output = &mut self.outputs[number];
            output.settle(self.now);
            if output.used + u64::from(bytes) <= self.share {
                return self.cross(asker, number);
            }
        }
        self.askers[asker as usize].output = number as u32;
        self.askers[asker as usize].next = NONE;
        let output = &mut self.outputs[number];
        if output.first == NONE {
            output.first = asker;
        } else {
            self.askers[output.last as usize].next = asker;
        }
        output.last = asker;
        self.serve(hop.link);
    }

    /// Lets one of those who ask for `link` send, if one can.
    fn serve(&mut self, link: u32) {
        let at = &self.links[link as usize];
        if at.asking == 0 {
            return;
        }
        if at.crossbar_free > self.now {
            let time = at.crossbar_free;
            return self.wake_output(link, time);
        }
        let turn = usize::from(at.turn);
        for step in 0..self.channels {
            let mut channel = turn + step;
            if channel >= self.channels {
                channel -= self.channels;
            }
            let number = link as usize * self.channels + channel;
            let Some((before, asker)) = self.first_ready(number) else { continue };
            let bytes = self.packets[self.first_packet(asker) as usize].bytes;
            let output = &mut self.outputs[number];
            output.settle(self.now);
            if output.used + u64::from(bytes) > self.share {
                if output.next_return != u64::MAX {
                    let time = output.next_return;
                    self.wake_output(link, time);
                }
                continue;
            }
            let next = self.askers[asker as usize].next;
            if before == NONE {
                output.first = next;
            } else {
                self.askers[before as usize].next = next;
            }
            if output.last == asker {
                output.last = before;
            }
            self.cross(asker, number);
            return;
        }
    }

    /// Of those who ask for an output, the first whose input is free, and who stands before it.
    fn first_ready(&self, output: usize) -> Option<(u32, u32)> {
        let (mut before, mut asker) = (NONE, self.outputs[output].first);
        while asker != NONE {
            let queue = asker as usize;
            if queue >= self.outputs.len() || self.inputs[queue / self.channels].free_at <= self.now
            {
                return Some((before, asker));
            }
            (before, asker) = (asker, self.askers[queue].next);
        }
        None
    }

    fn first_packet(&self, asker: u32) -> u32 {
        self.askers[asker as usize].queue.first
    }

    /// The first packet of `asker` crosses to the output `number`, and is put on its link.
    fn cross(&mut self, asker: u32, number: usize) {
        let now = self.now;
        let link = (number / self.channels) as u32;
        let at = &mut self.askers[asker as usize];
        at.output = NONE;
        let id = at.queue.pop(&self.packets);
        state::prefetch(&self.packets, at.queue.first);
        let bytes = self.packets[id as usize].bytes;
        let speed = self.speeds[usize::from(self.links[link as usize].speed)];
        let crossed = now + speed.crossing(bytes);
        let serialisation = speed.time_for(bytes);

        // It leaves where it was.
        let mut ready = now;
        let queue = asker as usize;
        let own = queue >= self.outputs.len();
        if !own {
            let input = queue / self.channels;
            let tail = self.packets[id as usize].tail;
            // Its last flit passes through both buffers as its first one does.
            let fed = tail + 2 * self.buffer_latency + speed.head(bytes);
            ready = (now + self.buffer_latency).max(fed.saturating_sub(serialisation));
            let at = &mut self.inputs[input];
            at.queued -= 1;
            at.free_at = crossed;
            let turn = queue % self.channels + 1;
            at.turn = if turn == self.channels { 0 } else { turn as u8 };
            let back = tail.max(crossed) + at.latency;
            self.give_back(queue, id, back);
            self.wake_input(input as u32);
        }

        // It takes its place on the link.
        let at = &mut self.links[link as usize];
        let start = ready.max(at.free_at);
        let end = start + serialisation;
        let packet = &mut self.packets[id as usize];
        let arrival = if packet.destination == at.to {
            end + at.latency
        } else {
            start + speed.head(bytes) + at.latency + self.buffer_latency
        };
        // Nothing overtakes on a link.
        let arrival = arrival.max(at.last_arrival);
        (at.free_at, at.last_arrival, at.crossbar_free) = (end, arrival, crossed);
        at.asking -= 1;
        let channel = number % self.channels;
        at.turn = if channel + 1 == self.channels { 0 } else { channel as u8 + 1 };
        (packet.claimed, packet.tail) = (now, end + at.latency);
        packet.channel = channel as u8;
        self.counters.sends(link, packet);
        if at.flight.is_empty() {
            self.events.push(arrival, link, Action::Arrive);
        } else {
            self.packets[at.flight.last as usize].next_arrival = arrival;
        }
        at.flight.push(&mut self.packets, id);
        let output = &mut self.outputs[number];
        output.used += u64::from(bytes);
        self.counters.holds(output.used);
        if own {
            self.events.push(end, link, Action::SourceFree);
        }
        if self.links[link as usize].asking > 0 {
            self.wake_output(link, crossed);
        }
    }

    /// The buffer space of packet `id` is free again; its sender knows at `time`.
    pub(super) fn give_back(&mut self, queue: usize, id: u32, time: u64) {
        let packet = &self.packets[id as usize];
        self.counters.held(u64::from(packet.bytes), time - packet.claimed);
        let output = &mut self.outputs[queue];
        output.give_back(self.now, time, packet.bytes);
        if output.first != NONE {
            self.wake_output((queue / self.channels) as u32, time);
        }
    }
}
