//! The settings of a node, from a job file and the rank that reads it.

use allrail_collective::Algorithm;
use allrail_collective::algorithm::{self, OwnPrograms};
use allrail_core::{Bytes, FieldError, counted, either};
use allrail_fabric::Dimension;
use allrail_schedule::tensor::{self, TensorParameters};
use allrail_schedule::{Algorithms, Order, chunk, queue};

use super::here::{Here, usual};
use super::{AUTO, Job, JobSchedule};
use crate::error::RuntimeError;
use crate::settings::{self, DimensionSettings, Settings};
use crate::{interface, partition, plans};

impl Job {
    /// What a node of the rank that is [`Here`] is made with.
    ///
    /// # Errors
    /// [`RuntimeError::Setting`] names the key of the file.
    pub fn settings(&self, here: Here) -> Result<Settings, RuntimeError> {
        let dimensions = if here.ranks > 1 { self.dimensions(&here)? } else { Vec::new() };
        let on_a_network = dimensions.iter().any(|one| !interface::is_loopback(&one.interface));
        if on_a_network && here.secret.is_none() {
            let why = "ranks reach each other over a network, and whoever is on it could take part";
            let hint = "`openssl rand -hex 32 > job.secret && chmod 600 job.secret`, copy it to every \
                        host, and name it in `secret` or `ALLRAIL_SECRET_FILE`; on a network of your own \
                        `secret: store` will do";
            return Err(RuntimeError::setting("secret", "none", why, hint));
        }
        let schedule = self.schedule.clone();
        let JobSchedule { policy, chunks, smallest_chunk, threshold, send_ahead, .. } = schedule;
        let JobSchedule { algorithms, programs, tensor, coordination, .. } = schedule;
        if let Some(said) = &algorithms {
            check_algorithms(said, &programs, &dimensions)?;
        }
        if threshold == 0 {
            let why = "the size of a chunk is divided by it";
            let hint = "16 is the paper's";
            return Err(RuntimeError::setting("schedule.threshold", threshold, why, hint));
        }
        if chunks == 0 {
            let why = "an exchange has one chunk at least";
            return Err(RuntimeError::setting(
                "schedule.chunks",
                chunks,
                why,
                "16 is a good start",
            ));
        }
        let mut settings = Settings {
            rank: here.rank,
            ranks: here.ranks,
            dimensions,
            order: self.order(&here)?,
            policy,
            chunks,
            smallest_chunk,
            threshold,
            algorithms,
            programs,
            plans: here.plans,
            tensor_keys: tensor.keys(),
            // Whoever ranks tensors outside hands them over in that order.
            tensor: tensor.plugin.map_or(tensor.policy, |_| settings::bytescheduler()),
            coordination,
            partition: None,
            pack: settings::pack(),
            send_ahead,
            shared_memory: self.shared_memory,
            tls: self.tls,
            frame_checks: self.checks.frames,
            pin: self.pin.clone(),
            flight_recorder: self.flight_recorder.clone(),
            early: self.early,
            timeouts: self.timeouts,
            secret: here.secret,
            job: here.job,
            epoch: 0,
            group: 0,
            records: settings::records(),
            named_calls: false,
            forget_after: settings::forget_after(),
            elsewhere: false,
        };
        settings.check().map_err(as_in_the_file)?;
        settings.partition = partition_of(&settings, &tensor.partition, here.bytes)?;
        settings.pack = pack_of(&settings, &tensor.pack)?;
        let parameters: TensorParameters = settings.tensor_parameters();
        parameters.policy().map_err(|error| RuntimeError::schedule(&error))?;
        if let Some(coordination) = &settings.coordination {
            coordination.resolved().map_err(|error| RuntimeError::schedule(&error))?;
        }
        Ok(settings)
    }

    fn order(&self, here: &Here) -> Result<Order, RuntimeError> {
        let wrong = |error| RuntimeError::schedule(&error);
        match &self.schedule.order {
            Some(name) => queue::named(name).map_err(wrong),
            None if !here.plans.is_empty() => Ok(Order::PLANNED),
            None => {
                let known = chunk::Plugins::default();
                Ok(known.named(&self.schedule.policy).map_err(wrong)?.default_order())
            }
        }
    }

    fn dimensions(&self, here: &Here) -> Result<Vec<DimensionSettings>, RuntimeError> {
        let fabric = match (&here.fabric, here.plans.first()) {
            (Some(fabric), _) => fabric.clone(),
            (None, Some(plan)) => plan.fabric.clone(),
            (None, None) => usual(here),
        };
        fabric.validate().map_err(|error| {
            RuntimeError::setting(error.field, error.value, error.why, error.hint)
        })?;
        let ranks = u64::from(here.ranks);
        if fabric.npus() != ranks {
            let sizes: Vec<String> = fabric.dimensions.iter().map(|d| d.size.to_string()).collect();
            let field = if here.fabric.is_some() { "fabric" } else { "plan.fabric" };
            let why =
                format!("it joins {}, and this job has {ranks}", counted(fabric.npus(), "rank"));
            let hint = format!(
                "start {} {process}, or give a fabric whose sizes multiply to {ranks}",
                fabric.npus(),
                process = either(&fabric.npus(), "process", "processes")
            );
            return Err(RuntimeError::setting(field, sizes.join("×"), why, hint));
        }
        let count = fabric.dimensions.len();
        let interfaces = match self.interfaces.len() {
            0 if here.one_host => vec!["127.0.0.1".to_owned(); count],
            0 => {
                let why = "ranks are on several hosts, and nothing says how they reach each other";
                let hint = "name the interface that leads there, `interfaces: [eth0]`, or its network, \
                            `interfaces: [10.0.0.0/8]`";
                return Err(RuntimeError::setting("interfaces", "none", why, hint));
            }
            1 => vec![self.interfaces[0].clone(); count],
            given if given == count => self.interfaces.clone(),
            given => {
                let why = format!(
                    "it names {given}, and the fabric has {count}",
                    count = counted(count, "dimension")
                );
                let hint = "one for each dimension, or one for all";
                let value = self.interfaces.join(", ");
                return Err(RuntimeError::setting("interfaces", value, why, hint));
            }
        };
        (0..)
            .zip(fabric.dimensions.iter().zip(interfaces))
            .map(|(d, (one, interface))| {
                let place = if self.interfaces.len() == 1 { 0 } else { d };
                let address = interface::address(&format!("interfaces[{place}]"), &interface)?;
                self.dimension(here, (d, count), one, address.to_string())
            })
            .collect()
    }

    fn dimension(
        &self,
        here: &Here,
        (d, count): (usize, usize),
        one: &Dimension,
        interface: String,
    ) -> Result<DimensionSettings, RuntimeError> {
        if one.in_network_reduction {
            let field = format!("fabric.dimensions[{d}].in_network_reduction");
            let why = "the ranks of a job sum themselves";
            return Err(RuntimeError::setting(field, true, why, "leave it out"));
        }
        let port = match self.port {
            None => 0,
            Some(first) => {
                let port = u64::from(here.local_rank) * count as u64 + d as u64 + u64::from(first);
                let usable = u16::try_from(port).ok().filter(|_| first > 0);
                usable.ok_or_else(|| {
                    let why =
                        format!("dimension {d} of local rank {} gets {port}", here.local_rank);
                    RuntimeError::setting("port", first, why, "ports are 1 to 65535, such as 29600")
                })?
            }
        };
        let Dimension { kind, size, links, bandwidth, latency, .. } = *one;
        let fastest = one.fastest.clone();
        Ok(DimensionSettings { size, interface, port, bandwidth, latency, kind, links, fastest })
    }
}

/// Refuses algorithms that are not known, are not one for each dimension, or are for other ranks.
fn check_algorithms(
    said: &Algorithms,
    programs: &OwnPrograms,
    dimensions: &[DimensionSettings],
) -> Result<(), RuntimeError> {
    for name in said.named() {
        programs.named(name).map_err(|error| {
            let known: Vec<&str> = algorithm::ALL.iter().map(|one| one.tag()).collect();
            let hint = format!("one of {}", known.join(", "));
            RuntimeError::setting("schedule.algorithms", name, error.to_string(), hint)
        })?;
    }
    let each = said.each(dimensions.len()).map_err(|error| RuntimeError::schedule(&error))?;
    for (d, (choice, dimension)) in each.into_iter().zip(dimensions).enumerate() {
        let Some(name) = choice.named() else { continue };
        let only = programs.named(&name).ok().and_then(Algorithm::ranks);
        if let Some(only) = only.filter(|only| *only != dimension.size) {
            let size = dimension.size;
            let why = format!(
                "it is a program for {only}, and dimension {d} joins {size}",
                only = counted(only, "rank")
            );
            let hint = format!(
                "name one that is written for {size}, or `auto`",
                size = counted(size, "rank")
            );
            let field = format!("schedule.algorithms[{d}]");
            return Err(RuntimeError::setting(field, name, why, hint));
        }
    }
    Ok(())
}

/// The same about the key of the file.
fn as_in_the_file(error: RuntimeError) -> RuntimeError {
    match error {
        RuntimeError::Setting(FieldError { field, value, why, hint }) if field == "send_ahead" => {
            RuntimeError::setting("schedule.send_ahead", value, why, hint)
        }
        other => other,
    }
}

fn partition_of(
    settings: &Settings,
    wanted: &str,
    bytes: Option<Bytes>,
) -> Result<Option<Bytes>, RuntimeError> {
    let policy = tensor::named(&settings.tensor).map_err(|error| RuntimeError::schedule(&error))?;
    if wanted != AUTO {
        return size_of("schedule.tensor.partition", wanted).map(Some);
    }
    if settings.ranks == 1 || !policy.reads().contains(&"partition") {
        return Ok(None);
    }
    match plans::largest_all_reduce(settings) {
        Some(size) => Ok(Some(size)),
        None => partition::best(settings, bytes).map(Some),
    }
}

/// A pack is no larger than a piece, or it would be cut again; nor than what costs as much to copy as to send
/// apart.
fn pack_of(settings: &Settings, wanted: &str) -> Result<Bytes, RuntimeError> {
    if wanted != AUTO {
        return size_of("schedule.tensor.pack", wanted);
    }
    Ok(settings.partition.map_or(settings::pack(), |piece| piece.min(settings::pack())))
}

fn size_of(field: &str, wanted: &str) -> Result<Bytes, RuntimeError> {
    wanted.parse::<Bytes>().map_err(|error| {
        let hint = format!("`auto`, or a size: {}", error.hint);
        RuntimeError::setting(field, wanted, error.why, hint)
    })
}
