//! What a difference weighs: whether it is in the result, in a trainer's bookkeeping about the run, in the state of
//! random numbers, or only a time. Only the first makes a program unsafe by itself.

use super::tree::{Apartness, Difference};
use regex::Regex;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// What a difference is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// When something happened, or how long it took, or where it ran.
    Run,
    /// What a trainer notes about a run beside its result.
    Books,
    /// The state of random numbers.
    Random,
    /// It could not be read here, so nothing can be said about it.
    Unread,
    /// What the program is run for.
    Result,
}

/// A trainer whose files are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trainer {
    Transformers,
    Lightning,
    Accelerate,
    DeepSpeed,
    TensorFlow,
    Orbax,
    TensorBoard,
}

impl Trainer {
    pub fn name(self) -> &'static str {
        match self {
            Trainer::Transformers => "Transformers",
            Trainer::Lightning => "Lightning",
            Trainer::Accelerate => "Accelerate",
            Trainer::DeepSpeed => "DeepSpeed",
            Trainer::TensorFlow => "TensorFlow",
            Trainer::Orbax => "Orbax",
            Trainer::TensorBoard => "TensorBoard",
        }
    }
}

/// A time further from now than this was not written by this run.
const NEAR_NOW: f64 = 2.0 * 24.0 * 3_600.0;

const TIME_WORDS: &[&str] = &[
    "time",
    "times",
    "timestamp",
    "timestamps",
    "date",
    "datetime",
    "elapsed",
    "wall",
    "walltime",
    "duration",
    "durations",
    "runtime",
    "secs",
    "seconds",
    "ms",
    "millis",
    "nsecs",
    "ns",
    "created",
    "started",
    "finished",
    "clock",
    "throughput",
    "uptime",
];
const RUN_WORDS: &[&str] = &[
    "pid",
    "host",
    "hostname",
    "port",
    "stint",
    "attempt",
    "attempts",
    "restart",
    "restarts",
    "resumed",
    "resumes",
    "preemptions",
    "interruptions",
];

/// The file of a trainer that is bookkeeping as a whole, or in which some keys are.
pub fn trainer_of(path: &Path, is_lightning: bool) -> Option<Trainer> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match name.as_ref() {
        "trainer_state.json" | "training_args.bin" => Some(Trainer::Transformers),
        "_CHECKPOINT_METADATA" | "_METADATA" | "manifest.ocdbt" => Some(Trainer::Orbax),
        "zero_to_fp32.py" => Some(Trainer::DeepSpeed),
        _ if name.starts_with("rng_state") && name.ends_with(".pth") => Some(Trainer::Transformers),
        _ if name.starts_with("random_states_") => Some(Trainer::Accelerate),
        _ if name.starts_with("events.out.tfevents") => Some(Trainer::TensorBoard),
        _ if name.ends_with("_model_states.pt") || name.ends_with("_optim_states.pt") => Some(Trainer::DeepSpeed),
        _ if is_lightning => Some(Trainer::Lightning),
        _ => None,
    }
}

/// What a difference at these keys of a file is about.
pub fn weigh(trainer: Option<Trainer>, path: &Path, difference: &Difference) -> Weight {
    if let Some(weight) = by_trainer(trainer, path, &difference.keys) {
        return weight;
    }
    let random = difference.keys.iter().any(|key| is_random(&words(key)));
    let last: Vec<String> = difference.keys.last().map_or(Vec::new(), |key| words(key));
    match &difference.what {
        Apartness::Single(one, other) if is_time(&last) || (near_now(one) && near_now(other)) => Weight::Run,
        Apartness::Single(..) if has(&last, RUN_WORDS) => Weight::Run,
        Apartness::Single(one, other) if mask(one) == mask(other) => Weight::Run,
        Apartness::Unreadable => Weight::Unread,
        Apartness::Alone if is_time(&last) || has(&last, RUN_WORDS) => Weight::Run,
        _ if random => Weight::Random,
        _ => Weight::Result,
    }
}

fn by_trainer(trainer: Option<Trainer>, path: &Path, keys: &[String]) -> Option<Weight> {
    let (first, name) = (keys.first().map_or("", String::as_str), path.file_name().unwrap_or_default());
    match trainer? {
        // Logged losses are means since the last log or the last start, so an interrupted run logs others.
        Trainer::Transformers if name == "trainer_state.json" => match first {
            "global_step" | "max_steps" | "num_train_epochs" => Some(Weight::Result),
            _ => Some(Weight::Books),
        },
        Trainer::Transformers if name == "training_args.bin" => Some(Weight::Books),
        Trainer::Transformers | Trainer::Accelerate => Some(Weight::Random),
        Trainer::Lightning => match first {
            "loops"
            | "callbacks"
            | "pytorch-lightning_version"
            | "hparams_name"
            | "hyper_parameters"
            | "datamodule_hyper_parameters" => Some(Weight::Books),
            _ => None,
        },
        Trainer::DeepSpeed => match first {
            "ds_config" | "ds_version" | "dp_world_size" | "mp_world_size" => Some(Weight::Books),
            _ => None,
        },
        Trainer::TensorFlow | Trainer::Orbax | Trainer::TensorBoard => Some(Weight::Books),
    }
}

/// The words of a key: `train_runtime`, `saved-at` and `wallTime` are two each.
fn words(key: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut was_small = false;
    for letter in key.chars() {
        let new = !letter.is_alphanumeric() || (letter.is_uppercase() && was_small);
        if new {
            found.push(String::new());
        }
        if letter.is_alphanumeric()
            && let Some(last) = found.last_mut()
        {
            last.extend(letter.to_lowercase());
        }
        was_small = letter.is_lowercase();
    }
    found.retain(|word| !word.is_empty());
    found
}

fn has(words: &[String], any: &[&str]) -> bool {
    words.iter().any(|word| any.contains(&word.as_str()))
}

/// `rng`, `random`, `numpy_random_state`; but not `random_forest`.
fn is_random(words: &[String]) -> bool {
    let state = words.len() == 1 || has(words, &["state", "states"]);
    has(words, &["rng", "prng"]) || (has(words, &["random", "generator"]) && state)
}

fn is_time(words: &[String]) -> bool {
    let rate = words.windows(2).any(|pair| pair[0] == "per" && matches!(pair[1].as_str(), "second" | "sec" | "s"));
    // A time step is a place in a sequence.
    let step = has(words, &["step", "steps", "embedding", "index"]);
    rate || (has(words, TIME_WORDS) && !step)
}

/// A number that is the time of day, in seconds or in parts of them.
fn near_now(text: &str) -> bool {
    let Ok(value) = text.parse::<f64>() else { return false };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    [1.0, 1e3, 1e6, 1e9].iter().any(|parts| (value / parts - now).abs() < NEAR_NOW)
}

/// Text without dates, times of day, clock readings, measured times and the folders of one run.
pub fn mask(text: &str) -> String {
    static PARTS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
        let patterns = [
            r"\S*/(jobs/[^/\s]+/(saves|folder)|leases/[^/\s]+/[a-z]+)-?\d*",
            r"(?i)\b(mon|tue|wed|thu|fri|sat|sun)[a-z]*,? ",
            r"(?i)\b(jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?|oct(ober)?|nov(ember)?|dec(ember)?)[ _-]\d{1,2}\b",
            r"\b\d{4}[-/]\d{2}[-/]\d{2}([T_ ]\d{2}[:-]\d{2}([:-]\d{2}([.,]\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?",
            r"\b\d{1,2}:\d{2}:\d{2}([.,]\d+)?\b",
            // A bar of progress: how long it has taken, and how long it will.
            r"\b(\d+:)?\d{1,2}:\d{2}<((\d+:)?\d{1,2}:\d{2}|\?)",
            r"\b\d+(\.\d+)?\s?(ns|us|µs|ms|s|sec|secs|seconds|min|minutes|h|hours|it/s|s/it|steps/s|tokens/s)\b",
            r#"(?i)\b(time|elapsed|wall|duration|runtime|took)["']?\s*[:=]?\s*\d+(\.\d+)?"#,
            r"\bETA:?\s*[\d:.]+",
        ];
        patterns.iter().filter_map(|pattern| Regex::new(pattern).ok()).collect()
    });
    static NUMBER: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\b\d{9,20}(\.\d+)?\b").ok());
    let masked = PARTS.iter().fold(text.to_owned(), |text, part| part.replace_all(&text, "…").into_owned());
    let clock = |found: &regex::Captures<'_>| if near_now(&found[0]) { "…".to_owned() } else { found[0].to_owned() };
    NUMBER.as_ref().map_or(masked.clone(), |number| number.replace_all(&masked, clock).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(keys: &[&str], one: &str, other: &str) -> Weight {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        let what = Apartness::Single(one.to_owned(), other.to_owned());
        weigh(None, Path::new("state.json"), &Difference { keys, what })
    }

    #[test]
    fn times_are_told_from_results_by_their_names_and_values() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        assert_eq!(of(&["saved"], &now.to_string(), &(now - 60).to_string()), Weight::Run);
        assert_eq!(of(&["saved"], &format!("{}", now * 1_000), &format!("{}", now * 1_000 + 5)), Weight::Run);
        assert_eq!(of(&["meta", "wall_time"], "12.5", "13.1"), Weight::Run);
        assert_eq!(of(&["timeline"], "12.5", "13.1"), Weight::Result, "the whole word counts");
        assert_eq!(of(&["trainRuntime"], "12.5", "13.1"), Weight::Run);
        assert_eq!(of(&["train_runtime"], "12.5", "13.1"), Weight::Run);
        assert_eq!(of(&["steps_per_second"], "12.5", "13.1"), Weight::Run);
        assert_eq!(of(&["written"], "2026-11-15T22:57:01Z", "2026-11-15 23:02:11"), Weight::Run);
        assert_eq!(of(&["time_step"], "12", "13"), Weight::Result);
        assert_eq!(of(&["loss"], "0.25", "0.26"), Weight::Result);
        assert_eq!(of(&["seen"], "1700", "1701"), Weight::Result);
        assert_eq!(of(&["random", "state"], "1", "2"), Weight::Random);
        assert_eq!(of(&["random_forest", "depth"], "1", "2"), Weight::Result);
        let large = Difference { keys: vec!["weight".to_owned()], what: Apartness::Unreadable };
        assert_eq!(weigh(None, Path::new("model.pt"), &large), Weight::Unread);
    }

    #[test]
    fn text_is_compared_without_its_times_but_with_its_numbers() {
        assert_eq!(mask("2026-11-15 10:00:01 step 5 in 12.5 s"), mask("2026-11-16 11:30:59 step 5 in 9 s"));
        assert_ne!(mask("step 5 loss 0.25"), mask("step 5 loss 0.26"));
        assert_ne!(mask("step 5 of 10"), mask("step 6 of 10"));
        assert_ne!(mask("decay 10"), mask("decay 11"), "no month");
        assert_ne!(mask("0:12 1:33"), mask("0:13 1:33"), "no time of day");
        assert_ne!(mask("eta 0.25"), mask("eta 0.30"), "a learning rate");
        assert_eq!(mask("45%|█ | [00:12<00:15, 3.1it/s]"), mask("45%|█ | [00:13<00:16, 2.9it/s]"));
        assert_eq!(mask("/tmp/x/jobs/abc/saves-1/checkpoint-4"), mask("/tmp/x/jobs/def/saves-3/checkpoint-4"));
    }
}
