//! Files as torch, NumPy, safetensors and the trainers write them, made here by small writers of their own.

use super::*;

/// A value to be written.
enum Said {
    Int(i64),
    Float(f64),
    Text(&'static str),
    Map(Vec<(&'static str, Said)>),
    Tensor(Vec<f32>),
}
use Said::{Float, Int, Map, Tensor, Text};

#[derive(Default)]
struct Writer {
    pickle: Vec<u8>,
    storages: Vec<Vec<u8>>,
    memo: u8,
    /// Put every text into the memo, as a pickler does that may meet it again.
    remembers: bool,
}

impl Writer {
    fn text(&mut self, text: &str) {
        self.pickle.push(b'X');
        self.pickle.extend((text.len() as u32).to_le_bytes());
        self.pickle.extend(text.as_bytes());
        if self.remembers {
            self.pickle.extend([b'q', self.memo]);
            self.memo += 1;
        }
    }

    fn int(&mut self, value: i64) {
        self.pickle.extend([0x8a, 8]);
        self.pickle.extend(value.to_le_bytes());
    }

    fn say(&mut self, said: &Said) {
        match said {
            Int(value) => self.int(*value),
            Float(value) => {
                self.pickle.push(b'G');
                self.pickle.extend(value.to_be_bytes());
            }
            Text(text) => self.text(text),
            Map(entries) => {
                self.pickle.extend(b"ccollections\nOrderedDict\n)R(");
                for (key, value) in entries {
                    self.text(key);
                    self.say(value);
                }
                self.pickle.push(b'u');
            }
            Tensor(values) => {
                self.pickle.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
                self.text("storage");
                self.pickle.extend(b"ctorch\nFloatStorage\n");
                self.text(&self.storages.len().to_string());
                self.text("cpu");
                self.int(values.len() as i64);
                self.pickle.extend(b"tQ");
                self.int(0);
                self.int(values.len() as i64);
                self.pickle.push(0x85);
                self.int(1);
                self.pickle.extend([0x85, 0x89]);
                self.pickle.extend(b"ccollections\nOrderedDict\n)RtR");
                self.storages.push(values.iter().flat_map(|value| value.to_le_bytes()).collect());
            }
        }
    }
}

fn torch(said: &Said, remembers: bool) -> Vec<u8> {
    let mut writer = Writer { pickle: vec![0x80, 2], remembers, ..Writer::default() };
    writer.say(said);
    writer.pickle.push(b'.');
    let mut members = vec![("model/data.pkl".to_owned(), writer.pickle)];
    let storages = writer.storages.into_iter().enumerate();
    members.extend(storages.map(|(at, bytes)| (format!("model/data/{at}"), bytes)));
    zipped(&members, false)
}

fn zipped(members: &[(String, Vec<u8>)], packed: bool) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, plain) in members {
        let bytes = match packed {
            false => plain.clone(),
            true => {
                let mut writer = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
                std::io::Write::write_all(&mut writer, plain).expect("memory");
                writer.finish().expect("memory")
            }
        };
        let method = if packed { 8_u16 } else { 0 };
        let mut both = Vec::new();
        both.extend([20, 0, 0, 0]);
        both.extend(method.to_le_bytes());
        both.extend([0; 8]);
        both.extend((bytes.len() as u32).to_le_bytes());
        both.extend((plain.len() as u32).to_le_bytes());
        both.extend((name.len() as u16).to_le_bytes());
        both.extend([0, 0]);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&both);
        directory.extend([0; 10]);
        directory.extend((archive.len() as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        archive.extend(b"PK\x03\x04");
        archive.extend(&both);
        archive.extend(name.as_bytes());
        archive.extend(bytes);
    }
    let start = archive.len() as u32;
    archive.extend(&directory);
    archive.extend(b"PK\x05\x06\0\0\0\0");
    archive.extend((members.len() as u16).to_le_bytes());
    archive.extend((members.len() as u16).to_le_bytes());
    archive.extend((directory.len() as u32).to_le_bytes());
    archive.extend(start.to_le_bytes());
    archive.extend([0, 0]);
    archive
}

fn npy(values: &[f64]) -> Vec<u8> {
    let header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({},), }}\n", values.len());
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    bytes
}

fn compared(name: &str, one: &[u8], other: &[u8]) -> Compared {
    let (left, right) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    std::fs::write(left.path().join(name), one).expect("written");
    std::fs::write(right.path().join(name), other).expect("written");
    file(Path::new(name), left.path(), right.path(), one == other)
}

fn places(compared: &Compared, weight: Weight) -> Vec<&str> {
    compared.apart.iter().filter(|apart| apart.weight == weight).map(|apart| apart.at.as_str()).collect()
}

fn checkpoint(moment: f32, saved_at: &'static str, weights: f32) -> Said {
    Map(vec![
        ("model", Map(vec![("weight", Tensor(vec![weights, 2.0]))])),
        ("optimizer", Map(vec![("exp_avg", Tensor(vec![moment])), ("lr", Float(0.1))])),
        ("step", Int(7)),
        ("saved_at", Text(saved_at)),
    ])
}

#[test]
fn a_torch_file_that_was_written_in_another_order_is_equal() {
    let Map(mut entries) = checkpoint(0.5, "2026-11-15T10:00:00", 1.0) else { unreachable!() };
    let one = torch(&Map(std::mem::take(&mut entries)), false);
    let Map(mut entries) = checkpoint(0.5, "2026-11-15T10:00:00", 1.0) else { unreachable!() };
    entries.reverse();
    let other = torch(&Map(entries), true);
    assert_ne!(one, other);
    let compared = compared("model.pt", &one, &other);
    assert_eq!(compared.how, How::Content(2, 3));
    assert!(compared.apart.is_empty(), "{compared:?}");
}

#[test]
fn a_torch_file_with_other_moments_and_another_time_differs_in_the_moments_only() {
    let one = torch(&checkpoint(0.5, "2026-11-15T10:00:00", 1.0), false);
    let other = torch(&checkpoint(0.25, "2026-11-15T11:22:33", 1.0), false);
    let compared = compared("model.pt", &one, &other);
    assert_eq!(places(&compared, Weight::Result), ["optimizer.exp_avg"]);
    assert_eq!(places(&compared, Weight::Run), ["saved_at"]);
    let unlike = compared.unlike(&BTreeSet::new()).map(|apart| apart.how.clone()).collect::<Vec<_>>();
    assert_eq!(unlike, ["differs by up to 2.5e-1 in 1 element"]);
}

#[test]
fn what_no_two_runs_have_alike_does_not_hide_the_rest_of_its_file() {
    let one = torch(&checkpoint(0.5, "", 1.0), false);
    let other = torch(&checkpoint(0.25, "", 1.5), false);
    let compared = compared("model.pt", &one, &other);
    let unlike = |volatile: &[&str]| {
        let places = volatile.iter().map(|at| (PathBuf::from("model.pt"), (*at).to_owned())).collect();
        compared.unlike(&places).map(|apart| apart.at.clone()).collect::<Vec<_>>()
    };
    assert_eq!(unlike(&[]), ["model.weight", "optimizer.exp_avg"]);
    assert_eq!(unlike(&["model.weight"]), ["optimizer.exp_avg"]);
    assert_eq!(unlike(&["model"]), ["optimizer.exp_avg"], "what lies below it is meant too");
    assert_eq!(unlike(&[""]), Vec::<String>::new(), "the whole file");
}

#[test]
fn a_key_that_is_missing_is_a_difference() {
    let one = torch(&Map(vec![("step", Int(1)), ("optimizer", Map(vec![]))]), false);
    let compared = compared("model.pt", &one, &torch(&Map(vec![("step", Int(1))]), false));
    assert_eq!(places(&compared, Weight::Result), ["optimizer"]);
}

#[test]
fn npz_files_are_compared_array_by_array_also_when_they_are_compressed() {
    let archive = |values: &[f64], packed| {
        zipped(&[("w.npy".to_owned(), npy(values)), ("b.npy".to_owned(), npy(&[1.0]))], packed)
    };
    let same = compared("state.npz", &archive(&[1.0, 2.0], false), &archive(&[1.0, 2.0], true));
    assert_eq!((same.how, same.apart.len()), (How::Content(2, 0), 0));
    let other = compared("state.npz", &archive(&[1.0, 2.0], false), &archive(&[1.0, 2.5], true));
    assert_eq!(places(&other, Weight::Result), ["w"]);
    let alone = compared("state.npy", &npy(&[1.0]), &npy(&[1.5]));
    assert_eq!(places(&alone, Weight::Result), [""]);
}

#[test]
fn an_array_without_dimensions_is_a_number_and_may_be_a_time() {
    let number = |value: f64| {
        let bytes = npy(&[value]);
        let text = String::from_utf8_lossy(&bytes[10..bytes.len() - 8]).replace("(1,), ", "(), ");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes.extend(value.to_le_bytes());
        bytes
    };
    let archive = |saved: f64, step: f64| {
        zipped(&[("saved_at.npy".to_owned(), number(saved)), ("step.npy".to_owned(), number(step))], false)
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_secs_f64();
    let compared = compared("state.npz", &archive(now, 7.0), &archive(now + 9.0, 8.0));
    assert_eq!((places(&compared, Weight::Run), places(&compared, Weight::Result)), (vec!["saved_at"], vec!["step"]));
    assert_eq!(compared.apart[1].how, "is 8 instead of 7");
}

#[test]
fn safetensors_are_compared_by_name_wherever_they_lie() {
    let file = |order: [(&str, f32); 2]| {
        let entries: Vec<String> = order
            .iter()
            .enumerate()
            .map(|(at, (name, _))| {
                format!(r#""{name}":{{"dtype":"F32","shape":[1],"data_offsets":[{},{}]}}"#, at * 4, at * 4 + 4)
            })
            .collect();
        let header = format!("{{{}}}", entries.join(","));
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend(order.iter().flat_map(|(_, value)| value.to_le_bytes()));
        bytes
    };
    let one = file([("a", 1.0), ("b", 2.0)]);
    let swapped = compared("model.safetensors", &one, &file([("b", 2.0), ("a", 1.0)]));
    assert_eq!((swapped.how, swapped.apart.len()), (How::Content(2, 0), 0));
    let other = compared("model.safetensors", &one, &file([("a", 1.0), ("b", 3.0)]));
    assert_eq!(places(&other, Weight::Result), ["b"]);
}

#[test]
fn what_the_trainer_of_transformers_logs_is_a_note_and_its_step_is_not() {
    let state = |step: u32, loss: f64, runtime: f64| {
        format!(
            r#"{{"global_step": {step}, "epoch": 1.0, "log_history": [{{"loss": {loss}, "grad_norm": NaN}}], "train_runtime": {runtime}}}"#
        )
    };
    let one = state(40, 0.5, 12.0);
    let logged = compared("trainer_state.json", one.as_bytes(), state(40, 0.6, 14.0).as_bytes());
    assert_eq!(logged.how, How::Books("Transformers"));
    assert_eq!(places(&logged, Weight::Result), Vec::<&str>::new());
    assert_eq!(places(&logged, Weight::Books), ["log_history.0.loss", "train_runtime"]);
    let behind = compared("trainer_state.json", one.as_bytes(), state(39, 0.5, 12.0).as_bytes());
    assert_eq!(places(&behind, Weight::Result), ["global_step"]);
}

#[test]
fn the_loops_of_a_lightning_checkpoint_are_notes_and_its_weights_are_not() {
    let file = |weight: f32, batches: i64| {
        torch(
            &Map(vec![
                ("pytorch-lightning_version", Text("2.5.0")),
                ("loops", Map(vec![("ready", Int(batches))])),
                ("state_dict", Map(vec![("layer.weight", Tensor(vec![weight]))])),
            ]),
            false,
        )
    };
    let loops = compared("last.ckpt", &file(1.0, 3), &file(1.0, 4));
    assert_eq!((places(&loops, Weight::Result), places(&loops, Weight::Books)), (vec![], vec!["loops.ready"]));
    let weights = compared("last.ckpt", &file(1.0, 3), &file(1.5, 3));
    assert_eq!(places(&weights, Weight::Result), ["state_dict.layer.weight"]);
}

#[test]
fn files_of_unknown_formats_are_compared_by_their_bytes_and_said_to_be() {
    let compared = compared("state.bin", b"\x01\x02\xff", b"\x01\x03\xff");
    assert_eq!((compared.how.clone(), places(&compared, Weight::Result).len()), (How::Bytes, 1));
    assert!(compared.words().contains("its format is not known"), "{}", compared.words());
}

#[test]
fn a_store_that_cannot_be_read_here_is_said_not_to_be_compared() {
    let compared = compared("manifest.ocdbt", b"\x0c\xdb\x01", b"\x0c\xdb\x02");
    assert!(matches!(compared.how, How::Not(_)) && compared.apart.is_empty());
}

#[test]
fn text_that_differs_in_times_only_is_a_note() {
    let times = compared("notes.txt", b"step 5 at 2026-11-15 10:00:00\n", b"step 5 at 2026-11-15 10:03:09\n");
    assert_eq!((places(&times, Weight::Run).len(), places(&times, Weight::Result).len()), (1, 0));
    let steps = compared("notes.txt", b"step 5 at 2026-11-15 10:00:00\n", b"step 6 at 2026-11-15 10:03:09\n");
    assert_eq!(places(&steps, Weight::Result).len(), 1);
}

#[test]
fn a_broken_pickle_is_compared_by_its_bytes_and_a_deep_one_is_read() {
    let mut deep = vec![0x80, 2];
    deep.extend(std::iter::repeat_n(b']', 100_000));
    deep.extend(std::iter::repeat_n(b'a', 99_999));
    let mut other = deep.clone();
    deep.push(b'.');
    other.extend(b"K\x01a.");
    assert!(matches!(compared("deep.pkl", &deep, &other).how, How::Content(..)));
    assert_eq!(compared("torn.pkl", b"\x80\x02}q", b"\x80\x02}X\xff\xff\xff\xff").how, How::Bytes);
}

/// A pickle of one dictionary, its keys and values as they are written.
fn dictionary(entries: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut pickle = b"\x80\x02}(".to_vec();
    entries.iter().for_each(|(key, value)| pickle.extend([*key, *value].concat()));
    pickle.extend(b"u.");
    pickle
}

#[test]
fn keys_of_every_kind_and_length_are_told_apart() {
    let tuple = |last: u8| [b"(K\x01K\x02K\x03K\x04K\x05K\x06K\x07K\x08K".as_slice(), &[last], b"t"].concat();
    let (nine, ten) = (tuple(9), tuple(10));
    let values = |first: &[u8], second: &[u8]| {
        let table = dictionary(&[(&nine, first), (&ten, second), (b"C\x02ab", b"K\x05"), (b"C\x02cd", second)]);
        [table[..table.len() - 2].to_vec(), b"K\x01K\x07X\x01\x00\x00\x001K\x08u.".to_vec()].concat()
    };
    let compared = compared("table.pkl", &values(b"K\x01", b"K\x02"), &values(b"K\x03", b"K\x02"));
    assert_eq!(places(&compared, Weight::Result).len(), 1, "{compared:?}");
    assert_eq!(compared.how, How::Content(0, 6), "no entry hides another");
}

#[test]
fn what_follows_a_pickle_is_not_overlooked() {
    let one = [dictionary(&[(b"K\x01", b"K\x02")]), dictionary(&[(b"K\x01", b"K\x03")])].concat();
    let other = [dictionary(&[(b"K\x01", b"K\x02")]), dictionary(&[(b"K\x01", b"K\x04")])].concat();
    let compared = compared("two.pkl", &one, &other);
    assert_eq!((compared.how.clone(), places(&compared, Weight::Result).len()), (How::Bytes, 1));
}

#[test]
fn python_objects_in_an_array_are_compared_to_their_last_part() {
    let array = |value: u8| {
        let header = "{'descr': '|O', 'fortran_order': False, 'shape': (), }\n";
        let pickle = dictionary(&[(b"X\x04\x00\x00\x00adam", &[b'K', value]), (b"X\x01\x00\x00\x00w", b"K\x01")]);
        [b"\x93NUMPY\x01\x00".to_vec(), (header.len() as u16).to_le_bytes().to_vec(), header.into(), pickle].concat()
    };
    let forgotten = compared("state.npy", &array(1), &array(2));
    assert_eq!(places(&forgotten, Weight::Result), ["adam"]);
}

#[test]
fn integers_are_compared_exactly() {
    let array = |value: i64| {
        let header = "{'descr': '<i8', 'fortran_order': False, 'shape': (1,), }\n";
        let start =
            [b"\x93NUMPY\x01\x00".to_vec(), (header.len() as u16).to_le_bytes().to_vec(), header.into()].concat();
        [start, value.to_le_bytes().to_vec()].concat()
    };
    let compared = compared("seen.npy", &array(9_007_199_254_740_993), &array(9_007_199_254_740_992));
    assert_eq!(places(&compared, Weight::Result).len(), 1);
}

#[test]
fn a_checkpoint_called_checkpoint_is_no_list_of_tensorflow() {
    let one = torch(&checkpoint(0.5, "2026-11-15T10:00:00", 1.0), false);
    let other = torch(&checkpoint(0.25, "2026-11-15T10:00:00", 1.0), false);
    assert_eq!(places(&compared("checkpoint", &one, &other), Weight::Result), ["optimizer.exp_avg"]);
    let list = |name: &str| format!("model_checkpoint_path: \"{name}\"\n").into_bytes();
    assert!(places(&compared("checkpoint", &list("ckpt-4"), &list("ckpt-5")), Weight::Result).is_empty());
}

#[test]
fn hostile_files_end_nothing() {
    for pickle in [b"\x80\x02(o.".as_slice(), b"\x80\x02(d.", b"\x80\x02R.", b"\x80\x02\x93.", b"\x80\x02(K\x01u."] {
        let other = [pickle, b"x"].concat();
        assert_eq!(compared("hostile.pkl", pickle, &other).how, How::Bytes);
    }
    // Lists in lists, unlike at the bottom only.
    let deep = |last: u8| {
        let mut deep = vec![0x80, 2];
        deep.extend(std::iter::repeat_n(b']', 100_000));
        deep.extend([b'K', last]);
        deep.extend(std::iter::repeat_n(b'a', 100_000));
        deep.push(b'.');
        deep
    };
    assert_eq!(compared("deep.pkl", &deep(1), &deep(2)).apart.len(), 1);
}
