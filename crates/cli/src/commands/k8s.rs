//! `windfall k8s`: what a Kubernetes cluster needs. Answered here: no cluster is asked, and nothing is changed.

use crate::args::{K8sCommand, K8sInstallArgs};
use crate::here::Here;
use serde_json::{Value, json};
use windfall_exec::{KubernetesSetup, ServerInPod};
use windfall_server::client::{Code, Failure};

/// Kubernetes has no longer names for most things, and one of ours is made of two.
const LONGEST_NAME: usize = 63;

pub fn k8s(here: &Here, command: &K8sCommand) -> Result<Code, Failure> {
    let K8sCommand::Install(args) = command;
    let objects = setup(args)?.objects();
    if here.json {
        println!("{}", json!({ "apiVersion": "v1", "kind": "List", "items": objects }));
    } else {
        print!("{}", yaml(&objects)?);
    }
    Ok(Code::Done)
}

/// Objects as `kubectl apply -f -` reads them.
fn yaml(objects: &[Value]) -> Result<String, Failure> {
    let mut text = String::new();
    for object in objects {
        let one = serde_saphyr::to_string(object).map_err(|error| Failure::new(Code::Bug, error.to_string()))?;
        text += &format!("---\n{}\n", one.trim_end());
    }
    Ok(text)
}

fn setup(args: &K8sInstallArgs) -> Result<KubernetesSetup, Failure> {
    let jobs_in = args.jobs_in.as_ref().unwrap_or(&args.namespace);
    for (flag, name) in [("--name", &args.name), ("--namespace", &args.namespace), ("--jobs-in", jobs_in)] {
        if !is_name(name) {
            let text = format!("{flag}: {name:?} is no name in Kubernetes");
            return Err(Failure::new(Code::BadInput, text).hint("1 to 63 of a-z, 0-9 and -, with no - at either end"));
        }
    }
    let image = |flag: &str, image: &Option<String>| {
        let image = image.clone().unwrap_or_default();
        match image.is_empty() || image.chars().any(|c| c.is_whitespace() || c.is_control() || c == '"' || c == '\\') {
            true => {
                let text = format!("{flag}: {image:?} is no image");
                Err(Failure::new(Code::BadInput, text).hint("write it as in a pod: registry/name:tag"))
            }
            false => Ok(image),
        }
    };
    if !is_amount(&args.storage) {
        let text = format!("--storage: {:?} is no size", args.storage);
        return Err(Failure::new(Code::BadInput, text).hint("write it as Kubernetes does: 20Gi, 1Ti"));
    }
    let server = match args.account_only {
        true => None,
        false => Some(ServerInPod {
            image: image("--image", &args.image)?,
            program_image: image("--program-image", &args.program_image)?,
            port: args.port,
            storage: args.storage.clone(),
        }),
    };
    let (name, namespace) = (args.name.clone(), args.namespace.clone());
    Ok(KubernetesSetup { name, namespace, jobs_in: jobs_in.clone(), server })
}

fn is_name(text: &str) -> bool {
    let fits = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    fits && (1..=LONGEST_NAME).contains(&text.len()) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_amount(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let units = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "k", "M", "G", "T", "P"];
    digits < 10 && number.parse::<u64>().is_ok_and(|number| number > 0) && units.contains(&unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> K8sInstallArgs {
        K8sInstallArgs {
            image: Some("lab/windfall:1".to_owned()),
            program_image: Some("pytorch:2".to_owned()),
            name: "windfall".to_owned(),
            namespace: "lab".to_owned(),
            jobs_in: None,
            port: 7_443,
            storage: "20Gi".to_owned(),
            account_only: false,
        }
    }

    #[test]
    fn what_is_printed_is_read_again_as_the_same_objects() {
        let objects = setup(&asked()).expect("right").objects();
        let text = yaml(&objects).expect("YAML");
        let read: Vec<Value> = text
            .split("---\n")
            .filter(|one| !one.is_empty())
            .map(|one| serde_saphyr::from_str(one).expect("YAML"))
            .collect();
        assert_eq!(read, objects);
    }

    #[test]
    fn what_is_no_name_or_image_is_refused_with_a_hint() {
        let refused = |change: fn(&mut K8sInstallArgs)| {
            let mut args = asked();
            change(&mut args);
            let failure = setup(&args).expect_err("wrong");
            assert!(failure.code == Code::BadInput && failure.hint.is_some(), "{failure:?}");
            failure.message
        };
        assert!(refused(|args| args.name = "Wind_fall".to_owned()).starts_with("--name"));
        assert!(refused(|args| args.namespace = "-".to_owned()).starts_with("--namespace"));
        assert!(refused(|args| args.jobs_in = Some("a b".to_owned())).starts_with("--jobs-in"));
        assert!(refused(|args| args.image = Some("a\"\n[server]".to_owned())).starts_with("--image"));
        assert!(refused(|args| args.program_image = Some(String::new())).starts_with("--program-image"));
        assert!(refused(|args| args.storage = "many".to_owned()).starts_with("--storage"));
    }
}
