//! The secret of a job, and how two ranks prove to each other that they have it.
//!
//! Each side draws 32 random bytes for every connection and answers with an HMAC-SHA256 over all that both
//! have said, keyed with the secret; the two sides' answers begin with different words, so that neither can
//! be sent back as the other. Answers are compared in constant time. The secret itself never travels, and
//! what was heard on one connection proves nothing on the next.

use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::RuntimeError;

/// Bytes of a proof, and of what each side draws.
pub(crate) const LENGTH: usize = 32;
/// A secret has as many bytes at least.
const SHORTEST: usize = 16;

/// What only the ranks of a job know. An empty one proves nothing; it is for one machine alone.
#[derive(Clone, Default)]
pub(crate) struct Secret(Vec<u8>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_empty() { "Secret(none)" } else { "Secret(..)" })
    }
}

impl Secret {
    /// From hexadecimal digits.
    pub(crate) fn from_hex(text: &str) -> Result<Self, RuntimeError> {
        let refuse = |why: &str| {
            // Its value is nobody's to read.
            RuntimeError::setting("secret", "...", why, "64 hexadecimal digits, alike on all ranks")
        };
        let digits: Option<Vec<u8>> = text
            .trim()
            .chars()
            .map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()))
            .collect();
        let digits = digits.ok_or_else(|| refuse("it has other characters than 0-9 and a-f"))?;
        let (pairs, rest) = digits.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(refuse("it has an odd number of digits"));
        }
        if pairs.len() < SHORTEST {
            return Err(refuse("it has less than 32 digits, and could be guessed"));
        }
        Ok(Self(pairs.iter().map(|[high, low]| high << 4 | low).collect()))
    }

    pub(crate) fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    fn mac(&self, who: &str, said: [&[u8]; 3]) -> Hmac<Sha256> {
        let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(&self.0).expect("keys have any length");
        mac.update(who.as_bytes());
        for part in said {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }

    /// The proof of one side over what the dialling and the answering side have said, and what only their
    /// connection has, if it has anything.
    pub(crate) fn prove(&self, who: &str, said: [&[u8]; 3]) -> [u8; LENGTH] {
        self.mac(who, said).finalize().into_bytes().into()
    }

    pub(crate) fn is_proved(&self, who: &str, said: [&[u8]; 3], proof: &[u8]) -> bool {
        self.prove(who, said).ct_eq(proof).into()
    }
}

/// Bytes that nobody could know before.
pub(crate) fn nonce() -> Result<[u8; LENGTH], RuntimeError> {
    let mut bytes = [0; LENGTH];
    rustls::crypto::ring::default_provider().secure_random.fill(&mut bytes).map_err(|_| {
        RuntimeError::System {
            what: "random bytes for a connection".to_owned(),
            why: "the system gives none".to_owned(),
            hint: None,
        }
    })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_of_one_side_one_talk_and_one_secret() {
        let one = Secret::from_hex(&"5a".repeat(32)).expect("a secret");
        let other = Secret::from_hex(&"5b".repeat(32)).expect("a secret");
        let proof = one.prove("answer", [b"ab", b"c", b""]);
        assert!(one.is_proved("answer", [b"ab", b"c", b""], &proof));
        assert!(!one.is_proved("dial", [b"ab", b"c", b""], &proof));
        assert!(!one.is_proved("answer", [b"a", b"bc", b""], &proof));
        assert!(!other.is_proved("answer", [b"ab", b"c", b""], &proof));
        // Of another connection.
        assert!(!one.is_proved("answer", [b"ab", b"c", b"d"], &proof));
        assert!(!one.is_proved("answer", [b"ab", b"c", b""], &proof[..31]));
        assert_ne!(nonce().expect("bytes"), nonce().expect("bytes"));
    }

    #[test]
    fn a_secret_is_long_hexadecimal_and_not_shown() {
        for text in ["", "5a", "5", "xy", &"5a".repeat(15), &format!("{}5", "5a".repeat(16))] {
            let error = Secret::from_hex(text).expect_err("no secret");
            let quoted = text.len() > 2 && format!("{error:?}").contains(text);
            assert!(error.hint().is_some() && !quoted);
        }
        let secret = Secret::from_hex(&"5a".repeat(16)).expect("a secret");
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }
}
