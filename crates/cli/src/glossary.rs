//! The words that people meet on the screen, and what they mean.

use crate::fitted::labelled;

/// What the words on the screen mean, in the order in which a newcomer meets them.
pub const WORDS: &[(&str, &str)] = &[
    ("job", "a program with its work, its deadline and its budget; counted 1, 2, 3 …"),
    ("work", "how much there is to do: hours, steps or tokens; progress is the part that is done"),
    ("saved", "the part of the work that is in a checkpoint: what no interruption can take"),
    ("checkpoint", "the files from which the program can go on, complete and on the store"),
    ("shard", "what one machine of a gang saved: a checkpoint of the gang is made of all of them, or not at all"),
    ("store", "where checkpoints are kept: a folder, or a bucket on S3, GCS or Azure"),
    (
        "parcel",
        "what a folder held when it was sent: a job's `workdir` on its way out, its `outputs` on their way back",
    ),
    ("lease", "a machine that is paid for, from the moment it is up until it is given back"),
    ("offer", "what can be leased: a kind of machine in a place, on a market, at a price"),
    ("spot", "machines that are cheap because the cloud may take them back, with a short notice"),
    ("on-demand", "machines at the list price that stay until they are given back"),
    ("owned", "machines of one's own, given in parts: so many accelerators, or a processor"),
    ("node", "a machine that has joined a server over the network, with a key of its own"),
    ("label", "a word about a node, such as rack=r7; zone, block, rack and nvlink say where it is"),
    ("drained", "of a node that takes nothing new: its operator said so, or something is wrong with it"),
    ("XID", "the number under which NVIDIA's driver reports an error; some are a program's fault, some the machine's"),
    (
        "dead-man time",
        "how long work on a node goes on without the server; after it the work is ended there, then begun elsewhere",
    ),
    ("interruption", "a spot lease that the cloud took back while the job needed it"),
    ("stint", "one run of the program, from a start to a stop; a job has as many as it was started"),
    ("start, restart", "from asking for a machine until the program makes progress"),
    (
        "pilot",
        "a job of Slurm's or Kubernetes' whose processes join as nodes and run a job of Windfall's, as machines of its own would",
    ),
    (
        "drill",
        "a small job that goes the whole way through an engine, an interruption included, and leaves nothing there",
    ),
    ("gang, rank", "machines that run one job together, and the place of each among them, from 0"),
    ("slack", "time to the deadline that is left over when the rest of the work runs without a pause"),
    ("safety net", "the rule that moves a job to on-demand while there is still enough slack"),
    ("cushion", "slack that the safety net keeps for a start that takes long or fails"),
    ("drought", "a time in which no spot machine can be had"),
    ("policy", "the rule that decides between running and waiting, spot and on-demand"),
    ("foresight", "the usual policy: weighs what each choice is expected to cost to the end"),
    ("levi-safe", "the policy that decides until foresight has a plan: spot while there is slack, then on-demand"),
    ("least possible", "the cost of somebody who had known the whole market beforehand"),
    ("band", "how many of a kind of spot machine a cloud says it takes back in a month"),
    ("recorded", "of a market whose every change was written down, and which can be played again"),
    ("ledger", "every second of every lease, its price, and who it is charged to: what `windfall cost` adds up"),
    ("idle, overhead", "what was paid for and nobody's work is charged: unused, or found and given back"),
];

/// Where the meanings begin.
const INDENT: usize = 17;

/// The glossary in lines of at most `width` characters.
pub fn glossary(width: usize) -> String {
    let mut text = "What the words on the screen mean:\n\n".to_owned();
    for (word, meaning) in WORDS {
        text.push_str(&labelled(&format!("  {word}"), meaning, INDENT, width));
    }
    text
}
