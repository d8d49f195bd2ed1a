//! A job's own rules, seen from outside: its budget, the saves it is asked for, a deadline that is lost.

use super::testbed::{Testbed, eventually};

const BUDGET: &str = "name: thrifty\nbudget: 0.12\nrun: sleep 600\n";

#[test]
fn a_budget_pauses_and_a_higher_one_lets_it_go_on() {
    let testbed = Testbed::steady_at(20);
    testbed.write("job.yaml", BUDGET);
    let paused = testbed.run(&["run", "--json", "job.yaml"]).ends_with(130).lines();
    let bill = paused.last().unwrap();
    assert_eq!((&bill["type"], &bill["state"]), (&"bill".into(), &"paused".into()), "{bill}");
    let cost = bill["cost_usd"].as_f64().unwrap();
    assert!(cost > 0.03 && cost < 0.12, "{bill}");
    let id = bill["id"].to_string();
    let said = testbed.run(&["attach", &id]).ends_with(130).out;
    assert!(said.contains("would exceed its budget of $0.12") && said.contains("windfall budget"), "{said}");

    for (dollars, code, words) in [("0.01", 2, "has cost"), ("-1", 2, "budget"), ("much", 2, "is no budget")] {
        let said = testbed.run(&["budget", "--", &id, dollars]);
        assert!(said.code == Some(code) && said.err.contains(words), "{dollars}: {said:?}");
    }
    assert_eq!(testbed.job(id.parse().unwrap())["state"], "paused");
    testbed.run(&["budget", &id, "none"]).ends_with(0);
    testbed.until(id.parse().unwrap(), &["running"]);
    let explained = testbed.run(&["explain", &id]).ends_with(0).out;
    assert!(explained.contains("pause: hold nothing") && explained.contains("took its budget away"), "{explained}");
}

/// Saves when it is asked to, and says so; looks at the file that the agent names.
const LISTENS: &str = "name: listens\nwork: { steps: 100000 }\nprogress: 'step (\\d+)'\nrun: |\n  \
for i in $(seq 1 100000); do echo step $i; sleep 0.05; \
if [ -s \"$WINDFALL_SAVE_REQUEST\" ]; then cat \"$WINDFALL_SAVE_REQUEST\" > \"$WINDFALL_CHECKPOINT_DIR/new\"; \
mv \"$WINDFALL_CHECKPOINT_DIR/new\" \"$WINDFALL_CHECKPOINT_DIR/state\"; rm \"$WINDFALL_SAVE_REQUEST\"; fi; done\n";

#[test]
fn a_lease_at_risk_has_the_program_save_at_once() {
    let testbed = Testbed::steady();
    let id = testbed.submit(LISTENS);
    testbed.until(id, &["running"]);
    let stint = testbed.job(id)["stints"].as_u64().unwrap();
    testbed.post("/v1/interrupt", &serde_json::json!({ "job": id, "how": "at-risk" }));
    let mut explained = String::new();
    eventually("the save is durable", || {
        explained = testbed.run(&["explain", &id.to_string()]).ends_with(0).out;
        explained.contains("is durable")
    });
    let at = |what: &str| explained.find(what).unwrap_or_else(|| panic!("no {what:?} in {explained}"));
    assert!(at("may soon be taken away") < at(&format!("ask stint {stint} to save")), "{explained}");
    assert!(explained.rfind("ask stint") < explained.rfind("is durable"), "{explained}");
    assert_eq!(testbed.job(id)["interruptions"], 0, "it goes on where it is");
}

#[test]
fn a_deadline_that_is_lost_is_said_at_once_and_stopped_if_so_wished() {
    let testbed = Testbed::steady();
    testbed.write("job.yaml", "work: { hours: 10 }\ndeadline: 1h\nlate: stop\nrun: sleep 600\n");
    let said = testbed.run(&["run", "job.yaml"]).ends_with(3);
    assert!(said.err.contains("the earliest finish is 9h 3m after it, for another $"), "{said:?}");
    assert!(said.out.contains("stopped by its own rule `late`"), "{said:?}");
    let bill = testbed.run(&["jobs", "--all", "--json"]).json();
    assert_eq!(bill[0]["cost_nanousd"], 0, "nothing was bought");
    assert_eq!(bill[0]["told"]["infeasible"]["then"], "stop", "{bill}");
}
