//! What the commands of a script tell about the job: how many accelerators it uses, which signals it waits for. A number that
//! is not written out is not guessed.

/// A figure, and the line of the script that shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub count: u32,
    pub what: String,
    pub line: usize,
}

/// Flags of launchers and trainers that say how many accelerators of a node are used.
const FLAGS: &[&str] = &[
    "--nproc_per_node",
    "--nproc-per-node",
    "--num_gpus",
    "--num-gpus",
    "--gpus",
    "--n_gpus",
    "--n-gpus",
    "--ngpus",
    "--gpus_per_node",
    "--num_gpus_per_node",
    "--trainer.gpus",
    "--trainer.devices",
];

/// Words of which one is enough for a job not to count as one without accelerators.
const HINTS: &[&str] = &[
    "cuda",
    "gpu",
    "nvidia",
    "nccl",
    "rocm",
    "torch",
    "tensorflow",
    "jax",
    "deepspeed",
    "accelerate",
    "vllm",
    "triton",
    "nsys",
    "ncu",
];

/// Lines of commands with their numbers in the file, comments left out.
fn lines(commands: &str, above: usize) -> impl Iterator<Item = (usize, &str)> {
    let numbered = commands.lines().enumerate().map(move |(at, line)| (above + at + 1, line));
    numbered.filter(|(_, line)| !line.trim_start().starts_with('#'))
}

fn plain(word: &str) -> &str {
    word.trim_matches(['"', '\'', ';', '\\'])
}

/// The most accelerators of a node that the commands use, as they say themselves.
pub(super) fn gpus(commands: &str, above: usize) -> Option<Seen> {
    let mut most: Option<Seen> = None;
    for (line, text) in lines(commands, above) {
        // Options of a step's own are between Slurm and the step.
        let is_step = text.split_whitespace().any(|word| word == "srun");
        let words: Vec<&str> = text.split_whitespace().collect();
        for (at, word) in words.iter().enumerate() {
            let (name, inline) = match plain(word).split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (plain(word), None),
            };
            let value = inline.or(words.get(at + 1).copied()).map(plain).unwrap_or_default();
            let count = match name {
                "CUDA_VISIBLE_DEVICES" => devices(inline.map(plain).unwrap_or_default()),
                _ if FLAGS.contains(&name) && !(is_step && name == "--gpus") => value.parse().ok(),
                _ => None,
            };
            let Some(count) = count.filter(|count| (1..=64).contains(count)) else { continue };
            let what = if name.starts_with("--") { format!("{name} {count}") } else { format!("{name}={value}") };
            if most.as_ref().is_none_or(|most| most.count < count) {
                most = Some(Seen { count, what: what.replace(char::is_control, "?"), line });
            }
        }
    }
    most
}

/// How many devices a list such as `0,1,2,3` names; none where it is not one of numbers.
fn devices(list: &str) -> Option<u32> {
    let all =
        !list.is_empty() && list.split(',').all(|one| !one.is_empty() && one.bytes().all(|byte| byte.is_ascii_digit()));
    all.then(|| list.split(',').count() as u32)
}

/// Whether anything in the commands may have to do with accelerators.
pub(super) fn may_use_gpus(commands: &str) -> bool {
    let lower = commands.to_ascii_lowercase();
    HINTS.iter().any(|hint| lower.contains(hint))
}

/// The signal that the script traps, and its line: USR1, USR2 or TERM.
pub(super) fn trap(commands: &str, above: usize) -> Option<(&'static str, usize)> {
    for (line, text) in lines(commands, above) {
        let Some((before, after)) = text.split_once("trap ") else { continue };
        let is_command = before.is_empty() || before.ends_with([' ', '\t', ';', '&']);
        let ignores = after.trim_start().starts_with(['-'])
            || after.trim_start().starts_with("''")
            || after.trim_start().starts_with("\"\"");
        if !is_command || ignores {
            continue;
        }
        for signal in ["USR1", "USR2", "TERM"] {
            let mut words = after.split(|c: char| c.is_whitespace() || c == ';');
            if words.any(|word| word.strip_prefix("SIG").unwrap_or(word) == signal) {
                return Some((signal, line));
            }
        }
    }
    None
}

/// The first line whose `srun` says nothing of processors.
pub(super) fn step_without_cpus(commands: &str, above: usize) -> Option<usize> {
    if commands.contains("SRUN_CPUS_PER_TASK") {
        return None;
    }
    let says = |word: &str| word.starts_with("--cpus-per-t") || word.starts_with("--exact") || word.starts_with("-c");
    let mut found = lines(commands, above).filter(|(_, text)| {
        let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || "();&|`".contains(c)).collect();
        words.contains(&"srun") && !words.iter().any(|word| says(word))
    });
    found.next().map(|(line, _)| line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accelerators_are_counted_where_their_number_is_written_out() {
        for (commands, expected) in [
            ("torchrun --nproc_per_node=4 train.py", Some(4)),
            ("torchrun --nnodes 2 \\\n  --nproc-per-node 8 train.py", Some(8)),
            ("CUDA_VISIBLE_DEVICES=0,1 python a.py\ndeepspeed --num_gpus 4 b.py", Some(4)),
            ("export CUDA_VISIBLE_DEVICES=\"0,1,2\"", Some(3)),
            ("python train.py --gpus 2", Some(2)),
            ("srun --gpus 2 python train.py", None),
            ("torchrun --nproc_per_node=$SLURM_GPUS_ON_NODE train.py", None),
            ("torchrun --nproc_per_node gpu train.py", None),
            ("# torchrun --nproc_per_node=4", None),
            ("CUDA_VISIBLE_DEVICES=$X python a.py", None),
            ("python train.py", None),
        ] {
            assert_eq!(gpus(commands, 0).map(|seen| seen.count), expected, "{commands}");
        }
        let seen = gpus("echo\ntorchrun --nproc_per_node=4 x", 10);
        assert_eq!(seen, Some(Seen { count: 4, what: "--nproc_per_node 4".to_owned(), line: 12 }));
    }

    #[test]
    fn traps_and_steps_are_found() {
        for (commands, expected) in [
            ("trap save USR1", Some("USR1")),
            ("trap 'touch stop' SIGTERM EXIT", Some("TERM")),
            ("x; trap \"kill $p\" SIGUSR2", Some("USR2")),
            ("trap cleanup EXIT", None),
            ("trap - TERM", None),
            ("trap '' USR1", None),
            ("# trap save USR1", None),
            ("mousetrap save USR1", None),
        ] {
            assert_eq!(trap(commands, 0).map(|(signal, _)| signal), expected, "{commands}");
        }
        for (commands, expected) in [
            ("srun python x", Some(1)),
            ("echo\ntime srun x", Some(2)),
            ("srun -c8 x", None),
            ("srun --cpus-per-task=8 x", None),
            ("export SRUN_CPUS_PER_TASK=8\nsrun x", None),
            ("python x", None),
        ] {
            assert_eq!(step_without_cpus(commands, 0), expected, "{commands}");
        }
    }
}
