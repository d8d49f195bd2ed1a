//! Batch scripts on a real Slurm cluster: what is put right is shown and submitted, a person's choice wins, and what `sbatch`
//! says and ends with is what is said. And without Slurm: a script is a job as any other.

use super::slurm::Cluster;
use super::testbed::{Said, Testbed, eventually, is_root};

const TRAIN: &str = "#!/bin/bash\n#SBATCH --job-name=train --output=/dev/null\n#SBATCH --cpus-per-task=2 --time=30\n\n\
                     trap 'exit 0' USR1\nCUDA_VISIBLE_DEVICES=0,1 srun -n1 sleep 60 &\nwait\n";

fn sbatch(testbed: &Testbed, cluster: &Cluster, args: &[&str]) -> Said {
    let mut command = testbed.command(&["sbatch"]);
    command.args(args).env("SLURM_CONF", cluster.config());
    testbed.finish(command)
}

/// What the controller says of a job.
fn shown(cluster: &Cluster, id: &str) -> String {
    cluster.says("scontrol", &["show", "job", id])
}

#[test]
fn a_script_is_submitted_with_what_its_writer_got_wrong_put_right() {
    if !is_root("a Slurm cluster") {
        return;
    }
    let testbed = Testbed::bare();
    let Some(cluster) = Cluster::start(&testbed, "a_script_is_submitted_with_what_its_writer_got_wrong_put_right")
    else {
        return;
    };
    let script = testbed.write("train.sh", TRAIN);
    let dry = sbatch(&testbed, &cluster, &["--dry-run", "train.sh"]).ends_with(0);
    for line in
        ["+#SBATCH --gres=gpu:2", "+#SBATCH --signal=B:USR1@120", "+export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK"]
    {
        assert!(dry.err.contains(line), "{line}: {}", dry.err);
    }
    assert_eq!((dry.out.as_str(), cluster.says("squeue", &["-h"])), ("", String::new()));

    // Scripts that read the number of the job go on as before.
    let said = sbatch(&testbed, &cluster, &["train.sh"]).ends_with(0);
    let id = said.out.strip_prefix("Submitted batch job ").map(str::trim).expect("what sbatch says");
    let job = shown(&cluster, id);
    for part in ["JobName=train", "TresPerNode=gres:gpu:2", "TimeLimit=00:30:00"] {
        assert!(job.contains(part), "{part}: {job}");
    }
    let submitted = cluster.says("scontrol", &["write", "batch_script", id, "-"]);
    assert!(submitted.contains("export SRUN_CPUS_PER_TASK"), "{submitted}");
    eventually("the job runs", || shown(&cluster, id).contains("JobState=RUNNING"));
    eventually("its step has two processors", || {
        cluster.says("scontrol", &["show", "step", &format!("{id}.0")]).contains("CPUs=2")
    });
    assert_eq!(std::fs::read_to_string(&script).unwrap(), TRAIN, "the file stays as it is");

    // A person's choice wins, and the script's arguments are its own.
    let said =
        sbatch(&testbed, &cluster, &["--parsable", "--gres=gpu:1", "--signal=B:TERM@10", "train.sh", "--time=5"])
            .ends_with(0);
    let id = said.out.trim().to_owned();
    assert!(id.bytes().all(|byte| byte.is_ascii_digit()) && !id.is_empty(), "{said:?}");
    let job = shown(&cluster, &id);
    assert!(job.contains("TresPerNode=gres:gpu:1") && job.contains("TimeLimit=00:30:00"), "{job}");
    assert!(!said.err.contains("--gres=gpu:2") && !said.err.contains("--signal=B:USR1"), "{}", said.err);

    // Nothing is changed, and nothing is said.
    let as_is = sbatch(&testbed, &cluster, &["--as-is", "--parsable", "train.sh"]).ends_with(0);
    assert_eq!(as_is.err, "");
    assert!(!shown(&cluster, as_is.out.trim()).contains("TresPerNode"), "{}", shown(&cluster, as_is.out.trim()));
    let json = sbatch(&testbed, &cluster, &["--json", "train.sh"]).ends_with(0).json();
    assert_eq!((json["changes"].as_array().map(Vec::len), json["job"].is_u64()), (Some(3), true), "{json}");

    // What is wrong sbatch itself says, and ends as it does.
    for words in
        [&["--nonsense", "train.sh"][..], &["-p", "nowhere", "train.sh"], &["nowhere.sh"], &["--time=soon", "train.sh"]]
    {
        let ours = sbatch(&testbed, &cluster, words);
        let mut theirs = std::process::Command::new("sbatch");
        theirs.args(words).current_dir(&testbed.work).env("SLURM_CONF", cluster.config());
        let theirs = testbed.finish(theirs);
        assert_eq!((ours.code, ours.out.as_str()), (theirs.code, theirs.out.as_str()), "{words:?}");
        assert!(ours.code != Some(0) && ours.err.ends_with(&theirs.err), "{words:?}: {} {}", ours.err, theirs.err);
    }
}

#[test]
fn a_script_is_a_job_as_any_other() {
    let testbed = Testbed::of_eight();
    let script = "#!/bin/bash\n#SBATCH --job-name=counts\n#SBATCH --gres=gpu:v100:1 --time=4:00:00\n#SBATCH --partition=gpu\n\
                  #SBATCH --account=nlp\n#SBATCH --export=ALL,FROM=3\n\nfor n in {1..3}; do echo $((FROM + n)) of $0; done\n";
    testbed.write("counts.sh", script);
    let plan = testbed.run(&["plan", "counts.sh"]).ends_with(0);
    assert!(plan.out.contains("the work is taken to be 4h 0m"), "{plan:?}");
    let said = testbed.run(&["submit", "counts.sh"]).ends_with(0);
    for note in [
        "--time=4:00:00 is a limit of the cluster",
        "--account=nlp is the team that is charged",
        "not used: --partition=gpu",
    ] {
        assert!(said.err.contains(note), "{note}: {}", said.err);
    }
    testbed.until(1, &["succeeded"]);
    assert_eq!(testbed.job(1)["name"], "counts");
    let output = testbed.run(&["logs", "1"]).ends_with(0).out;
    assert!(output.contains("4 of counts.sh") && output.contains("6 of counts.sh"), "{output}");
    // One task of many cannot be one job.
    testbed.write("array.sh", "#!/bin/sh\n#SBATCH --array=1-9\necho\n");
    assert!(testbed.run(&["submit", "array.sh"]).ends_with(2).err.contains("--array cannot be honoured"));
    testbed.leaves_nothing();
}
