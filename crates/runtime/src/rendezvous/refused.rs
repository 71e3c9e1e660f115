//! Why a connection is not one of this job.

use thiserror::Error;

/// The version of this and of the handshake that follows.
pub(super) const VERSION: u8 = 3;

/// Why a connection is not one of this job.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum Refused {
    #[error("it does not speak allrail's protocol")]
    Stranger,
    #[error("it speaks TLS, and this rank does not: give all ranks the same `tls`")]
    Tls,
    #[error("it speaks version {0} of the handshake, and this build version {VERSION}")]
    Version(u8),
    #[error("it does not have the secret of this job")]
    Secret,
    #[error("it repeats what it has overheard")]
    Repeats,
    /// It has the secret, and is another than it should be.
    #[error("{0}")]
    Differs(String),
    #[error("{0}")]
    Io(String),
    #[error("it has said nothing for too long")]
    Late,
}
