//! Compares the code with the files in `crates/wire/vectors`: it must compute their outputs from their inputs, byte
//! for byte.
//!
//! Another implementation checks the same files (`cargo xtask interop`). After an intended change of the standard,
//! `WRITE_VECTORS=1 cargo test -p drumfire-proto --test vectors` rewrites the outputs.

mod keyed;
mod session;
mod tokens;

use std::fs;
use std::path::PathBuf;

use serde_json::{Map, Value};

/// Computes the outputs of the entries of a file from their inputs, and compares them. `None` skips an entry.
fn check(file: &str, outputs_of: impl Fn(&Inputs<'_>) -> Option<Value>) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../wire/vectors").join(file);
    let text = fs::read_to_string(&path).unwrap();
    let mut entries: Map<String, Value> = serde_json::from_str(&text).unwrap();
    let is_rewritten = std::env::var_os("WRITE_VECTORS").is_some();
    let mut count = 0;
    for (name, entry) in &mut entries {
        let Some(computed) = outputs_of(&Inputs(&entry["inputs"])) else { continue };
        count += 1;
        if is_rewritten {
            entry["outputs"] = computed;
        } else {
            assert_eq!(entry["outputs"], computed, "{file}, {name}");
        }
    }
    assert!(count > 0, "{file} holds nothing for this build");
    if is_rewritten {
        fs::write(&path, format!("{:#}\n", Value::Object(entries))).unwrap();
    }
}

/// The inputs of one entry.
struct Inputs<'a>(&'a Value);

impl Inputs<'_> {
    fn number<N: TryFrom<u64>>(&self, name: &str) -> N {
        let number = self.0[name].as_u64().unwrap_or_else(|| panic!("no number {name}"));
        N::try_from(number).unwrap_or_else(|_| panic!("{name} is too large"))
    }

    fn text(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_else(|| panic!("no text {name}"))
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        from_hex(self.text(name))
    }

    fn array<const N: usize>(&self, name: &str) -> [u8; N] {
        self.bytes(name).try_into().unwrap_or_else(|_| panic!("{name} is not {N} bytes"))
    }
}

fn from_hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "half a byte in {text}");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn to_hex(bytes: impl AsRef<[u8]>) -> Value {
    Value::String(bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}
