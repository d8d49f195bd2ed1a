//! A report on NCCL's logs on one screen.

use super::NcclReport;
use crate::text::wrapped;
use std::fmt::Write;
use windfall_core::english::counted;

/// The report on one screen of so many columns.
pub fn screen(report: &NcclReport, width: usize) -> String {
    let width = width.max(60);
    let mut text = String::new();
    for line in wrapped(&format!("{}: {}", report.verdict, report.because), width) {
        let _ = writeln!(text, "{line}");
    }
    let mut facts = Vec::new();
    facts.extend(report.ranks.map(|ranks| counted(ranks, "rank")));
    facts.extend(report.nodes.map(|nodes| counted(nodes, "node")));
    facts.extend(report.version.as_ref().map(|version| format!("NCCL {version}")));
    facts.extend(report.network.as_ref().map(|network| format!("network {network}")));
    let _ = writeln!(text, "{}", facts.join("   "));
    if !report.fixes.is_empty() {
        let _ = writeln!(text, "\nWhat to change");
        for fix in &report.fixes {
            for (at, line) in wrapped(fix, width - 4).iter().enumerate() {
                let _ = writeln!(text, "  {}{line}", if at == 0 { "" } else { "  " });
            }
        }
    }
    if !report.links.is_empty() {
        let _ = writeln!(text, "\n{:<28} {:<16} {:>7} {:>12}", "Transport", "between", "pairs", "connections");
        for link in &report.links {
            let between = match link.within_node {
                Some(true) => "ranks of a node",
                Some(false) => "nodes",
                None => "not said",
            };
            let _ = writeln!(text, "  {:<26} {between:<16} {:>7} {:>12}", link.transport, link.pairs, link.connections);
        }
    }
    for communicator in report.communicators.iter().filter(|communicator| communicator.ranks > 1).take(8) {
        let mut said = vec![format!("communicator of {} ranks", communicator.ranks)];
        said.extend(communicator.channels.map(|channels| format!("{channels} channels")));
        said.extend(
            communicator.nvls_channels.filter(|channels| *channels > 0).map(|channels| format!("{channels} with NVLS")),
        );
        if !communicator.ring.is_empty() && communicator.ring.len() <= 16 {
            let ring: Vec<String> = communicator.ring.iter().map(u64::to_string).collect();
            said.push(format!("ring {}", ring.join("-")));
        }
        if communicator.trees {
            said.push("trees".to_owned());
        }
        let _ = writeln!(text, "{}", said.join(", "));
    }
    if !report.environment.is_empty() {
        let set: Vec<String> = report.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        for line in wrapped(&format!("environment: {}", set.join(" ")), width) {
            let _ = writeln!(text, "{line}");
        }
    }
    for (warning, count) in &report.warnings {
        for line in wrapped(&format!("warning ({count} times): {warning}"), width) {
            let _ = writeln!(text, "{line}");
        }
    }
    for note in &report.notes {
        for line in wrapped(&format!("note: {note}"), width) {
            let _ = writeln!(text, "{line}");
        }
    }
    text
}
