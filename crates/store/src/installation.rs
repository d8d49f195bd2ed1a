//! The name of a store: random, minted once, short enough for cloud tags and idempotency keys (AWS takes 64 characters).

use std::{
    fs::File,
    hash::{BuildHasher, RandomState},
    io::Read,
};

/// Sixteen random hexadecimal digits.
pub(crate) fn mint() -> String {
    let mut bytes = [0u8; 8];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    // Where there is no such device, the standard library still has keys from the operating system.
    let number = match read {
        Ok(()) => u64::from_be_bytes(bytes),
        Err(_) => RandomState::new().hash_one(std::process::id()),
    };
    format!("{number:016x}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_installations_have_two_ids() {
        let (one, other) = (super::mint(), super::mint());
        assert_ne!(one, other);
        assert!(one.len() == 16 && one.bytes().all(|byte| byte.is_ascii_hexdigit()), "{one}");
    }
}
