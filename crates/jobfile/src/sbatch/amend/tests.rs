//! What is put right, and what is left alone.

use super::{BatchJob, Change, Facts, Partition, Past, Trial, command_line, of_environment};

/// A cluster with a partition of GPUs, which is the default, one of processors, and one for short jobs.
fn facts() -> Facts {
    let partition = |name: &str, gpus: u32, cpus: u32| Partition {
        name: name.to_owned(),
        is_default: name == "gpu",
        limit_s: Some(7 * 86_400),
        nodes: 10,
        cpus,
        memory_mb: 256_000,
        gpus,
        least_gpus: gpus,
        ..Partition::default()
    };
    let debug = Partition { limit_s: Some(3_600), ..partition("debug", 4, 16) };
    Facts {
        version: Some((22, 5)),
        partitions: vec![Partition { grace_s: 30, ..partition("gpu", 8, 64) }, partition("cpu", 0, 64), debug],
        ..Facts::default()
    }
}

fn past(jobs: u32, longest_s: u64, p95_s: u64, timed_out: u32) -> Facts {
    Facts { past: Some(Past { jobs, longest_s, p95_s, timed_out }), ..facts() }
}

fn changes(script: &str, words: &str, facts: &Facts) -> Vec<Change> {
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    BatchJob::of(script, command_line(&words).given).changes(facts)
}

fn check(script: &str, words: &str, facts: &Facts, expected: &[&str]) {
    let said: Vec<String> = changes(script, words, facts).iter().map(Change::says).collect();
    assert_eq!(said, expected, "{script} with {words}");
}

#[test]
fn accelerators_that_a_script_uses_are_asked_for() {
    let script = "#!/bin/bash\n#SBATCH -t 10\ntorchrun --nproc_per_node=4 train.py\n";
    check(script, "", &facts(), &["--gres=gpu:4"]);
    for words in ["--gres=gpu:2", "-G1", "--gpus-per-node=1", "-p cpu", "-p nowhere"] {
        check(script, words, &facts(), &[]);
    }
    check("#!/bin/bash\n#SBATCH --gres=gpu:1\ntorchrun --nproc_per_node=4 x\n", "", &facts(), &[]);
    check("#!/bin/bash\ntorchrun --nproc_per_node=16 x\n", "", &facts(), &[]);
}

#[test]
fn a_job_without_accelerators_leaves_nodes_with_them_to_others() {
    let script = "#!/bin/sh\n#SBATCH -c 16 --mem=64G\n./tokenise corpus.txt\n";
    check(script, "", &facts(), &["--partition=cpu"]);
    for words in
        ["-p gpu", "--partition=gpu", "--qos=high", "-w n1", "--cpus-per-task=65", "--mem=400G", "-N 11", "--gpus=1"]
    {
        check(script, words, &facts(), &[]);
    }
    // It may use some after all, or nobody can see whether it does.
    check("#!/bin/sh\nmodule load cuda\n./x\n", "", &facts(), &[]);
    check("#!/usr/bin/env python3\nprint(1)\n", "", &facts(), &[]);
    check("#!/bin/sh\n#SBATCH -p cpu\n./x\n", "", &facts(), &[]);
    let mut closed = facts();
    closed.partitions[1].accounts = vec!["biology".to_owned()];
    check(script, "", &closed, &[]);
    check(script, "-A biology", &closed, &["--partition=cpu"]);
}

#[test]
fn limits_come_from_what_earlier_jobs_took() {
    let script = "#!/bin/bash\n#SBATCH --gres=gpu:1 --time=2-00:00:00\npython train.py\n";
    check(script, "", &past(12, 7_200, 6_000, 0), &["--time=03:30:00"]);
    check(script, "", &past(12, 7_200, 3_600, 0), &["--time=03:00:00"]);
    check(script, "", &past(3, 60, 60, 0), &["--time=00:10:00"]);
    // Too few, ended at their limits, a limit that is right, and one that a person chose.
    check(script, "", &past(2, 7_200, 6_000, 0), &[]);
    check(script, "", &past(12, 7_200, 6_000, 1), &[]);
    check(script, "", &past(12, 60_000, 60_000, 0), &[]);
    check(script, "-t 1-0", &past(12, 7_200, 6_000, 0), &[]);
    let without = "#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py\n";
    check(without, "", &past(12, 7_200, 6_000, 0), &["--time=03:30:00"]);
    check(without, "--time=5", &past(12, 7_200, 6_000, 0), &[]);
    // The partition gives less than what was seen: the job would be ended.
    let mut short = past(12, 7_200, 6_000, 4);
    short.partitions[0].default_s = Some(3_600);
    check(without, "", &short, &["--time=03:30:00"]);
    // There is no room for the margin.
    short.partitions[0].limit_s = Some(9_000);
    check(without, "", &short, &[]);
}

#[test]
fn a_limit_is_never_below_one_and_a_half_times_the_longest() {
    for longest in [1, 59, 600, 3_601, 7_199, 40_000, 86_399, 300_000] {
        for p95 in [longest / 3, longest] {
            let said = changes("#!/bin/bash\n#SBATCH --gres=gpu:1\nx\n", "", &past(3, longest, p95, 0));
            let Some(change) = said.first() else { continue };
            let time = crate::sbatch::values::time(&change.says()["--time=".len()..]).ok().flatten();
            let seconds = time.map_or(0, |time| time.0.unsigned_abs() / 1_000);
            assert!(2 * seconds >= 3 * longest && seconds <= 7 * 86_400, "{longest} {p95}: {change:?}");
        }
    }
}

#[test]
fn a_script_that_saves_when_it_is_warned_is_warned() {
    let script = "#!/bin/bash\n#SBATCH --gres=gpu:1 -t 2:00:00\ntrap save USR1\npython train.py & wait\n";
    check(script, "", &facts(), &["--signal=B:USR1@120"]);
    check(script, "-t 10", &facts(), &["--signal=B:USR1@60"]);
    check(script, "--signal=B:USR1@30", &facts(), &[]);
    let reason = &changes(script, "", &facts())[0].reason;
    assert_eq!(
        reason,
        "line 3 traps USR1, and nothing asks Slurm for it: 120 s before the time limit leave time to save; a preempted job has 30 s (GraceTime)"
    );
}

#[test]
fn steps_get_the_processors_of_their_job() {
    let script = "#!/bin/bash\n#SBATCH --gres=gpu:1 -c 8\nsrun python train.py\n";
    check(script, "", &facts(), &["export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK"]);
    check(script, "", &Facts { version: Some((21, 8)), ..facts() }, &[]);
    check("#!/bin/bash\n#SBATCH --gres=gpu:1 -c1\nsrun x\n", "", &facts(), &[]);
}

#[test]
fn a_queue_for_short_jobs_is_taken_where_it_is_clearly_faster() {
    let script = "#!/bin/bash\n#SBATCH --gres=gpu:1 -t 30\npython train.py\n";
    let debug = Some(("partition", "debug".to_owned()));
    let job = BatchJob::of(script, Vec::new());
    assert_eq!(job.worth_a_trial(&facts()), [("partition", "debug".to_owned())]);
    let waits = |present: u64, other: u64| Facts {
        trials: vec![Trial { option: None, wait_s: present }, Trial { option: debug.clone(), wait_s: other }],
        ..facts()
    };
    check(script, "", &waits(7_200, 60), &["--partition=debug"]);
    check(script, "", &waits(900, 400), &[]);
    check(script, "", &waits(7_200, 5_000), &[]);
    check(script, "-p gpu", &waits(7_200, 60), &[]);
    check("#!/bin/bash\n#SBATCH --gres=gpu:1 -t 90\nx\n", "", &waits(7_200, 60), &[]);
}

#[test]
fn scripts_that_are_not_understood_are_left_alone() {
    for script in [
        "#!/bin/bash\n#SBATCH -c8\n#SBATCH hetjob\nsrun x\n",
        "#!/bin/bash\n#SBATCH -c8 --nonsense\nsrun x\n",
        "#SBATCH -c8\nsrun x\n",
        "#!/bin/bash\r\n#SBATCH -c8\r\nsrun x\r\n",
    ] {
        check(script, "", &facts(), &[]);
        assert!(BatchJob::of(script, Vec::new()).untouched().is_some(), "{script}");
    }
}

#[test]
fn what_variables_of_the_environment_say_is_a_choice_as_well() {
    let of = |name: &str| (name == "SBATCH_TIMELIMIT").then(|| "5".to_owned());
    let job = BatchJob::of("#!/bin/bash\n#SBATCH --gres=gpu:1\nx\n", of_environment(of));
    assert_eq!(job.changes(&past(12, 7_200, 6_000, 0)), []);
}

#[test]
fn changes_are_shown_as_a_diff_and_the_rest_stays_byte_for_byte() {
    let script = "#!/bin/bash\n# trains\n#SBATCH --gres=gpu:1 -t 2-0 -c 8 # two days\n#SBATCH -J x\n\nset -e\ntrap save TERM\nsrun python train.py\necho done";
    let facts = past(12, 7_200, 3_000, 0);
    let job = BatchJob::of(script, Vec::new());
    let changes = job.changes(&facts);
    let expected = "--- train.sh\n+++ train.sh (as submitted)\n@@ -1,8 +1,10 @@\n #!/bin/bash\n # trains\n\
        -#SBATCH --gres=gpu:1 -t 2-0 -c 8 # two days\n+#SBATCH --gres=gpu:1 --time=03:00:00 -c 8 # two days\n #SBATCH -J x\n\
        +#SBATCH --signal=B:TERM@120\n \n+export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\n set -e\n trap save TERM\n srun python train.py\n";
    assert_eq!(job.diff(&changes, "train.sh"), expected);
    assert!(job.changed(&changes).ends_with("\necho done"));
    assert_eq!((job.changed(&[]).as_str(), job.diff(&[], "x").as_str()), (script, ""));
    // What was put right stays right.
    let changed = job.changed(&changes);
    assert_eq!(BatchJob::of(&changed, Vec::new()).changes(&facts), []);
}

#[test]
fn changes_far_apart_are_shown_apart() {
    let script = format!("#!/bin/bash\n#SBATCH -c 8 --gres=gpu:1\n{}srun x\n", "# a line\n".repeat(20));
    let job = BatchJob::of(&script, command_line(&["-J".to_owned(), "x".to_owned()]).given);
    let diff = job.diff(&job.changes(&past(5, 600, 600, 0)), "x.sh");
    assert_eq!(diff.matches("@@ -").count(), 2, "{diff}");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 500, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_script_can_be_changed_and_what_was_not_changed_is_still_there(
        pieces in proptest::collection::vec(proptest::sample::select(vec![
            "#SBATCH -c 8", " -t 2-0", " --signal=USR1", "\n", "srun x", "trap a USR1", "torchrun --nproc_per_node=2", " ", "é", "#", "'", "\"", "\\", "\t",
        ]), 0..30),
    ) {
        let script = format!("#!/bin/bash\n{}", pieces.concat());
        let job = BatchJob::of(&script, Vec::new());
        let facts = past(12, 7_200, 3_000, 0);
        let changes = job.changes(&facts);
        let changed = job.changed(&changes);
        job.diff(&changes, "x.sh");
        proptest::prop_assert!(changes.iter().all(|change| changed.contains(&change.says())), "{changes:?}\n{changed}");
        proptest::prop_assert!(changed.lines().count() >= script.lines().count());
    }
}
