//! Where results go, and in which form.

use crate::process::{Ended, Folder, receiver};
use crate::report::{Report, SEVERAL};

const RUN: &str = "--with-sender --secs 0.1 --rate 5000 --flows 8";

fn has_table(lines: &[String]) -> bool {
    lines.iter().any(|line| line.starts_with("books "))
        && lines.iter().any(|line| line.contains("= received"))
}

#[test]
fn without_flags_for_it_the_table_stands_on_standard_output_alone() {
    let ended = receiver(RUN).end().with_code(0);
    assert!(has_table(&ended.stdout), "{ended:#?}");
    assert_eq!(ended.stderr, [""; 0]);
}

#[test]
fn json_on_standard_output_is_alone_there_and_the_table_goes_beside_it() {
    let ended = receiver(&format!("{RUN} --json -")).end().with_code(0);
    Report::of(&ended);
    assert!(has_table(&ended.stderr), "{ended:#?}");
    assert!(ended.stderr.iter().any(|line| line.contains("kernel drops")), "the live line too: {ended:#?}");
}

#[test]
fn json_csv_and_plot_go_to_files_and_the_table_stays() {
    let folder = Folder::new("outputs");
    let [json, csv, plot] = ["a.json", "a.csv", "a.svg"].map(|name| folder.file(name));
    let ended = receiver(&format!("{RUN} --threads {SEVERAL} --json {json} --csv {csv} --plot {plot}")).end();
    let ended = ended.with_code(0);
    assert!(has_table(&ended.stdout), "{ended:#?}");
    let [json, csv, plot] = [json, csv, plot].map(|path| std::fs::read_to_string(path).unwrap());
    let report = Report::read(&json, &ended.what);
    assert_csv(&csv, &ended);
    assert!(plot.starts_with("<svg") && plot.trim_end().ends_with("</svg>"), "{plot}");
    assert_eq!(report.0["flags"]["rate"], 5_000);
    assert_eq!(report.0["flags"]["with_sender"], "on");
}

/// The article's form: a heading, then a row of whole numbers for each second and thread.
fn assert_csv(text: &str, ended: &Ended) {
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("run,thread,pps"), "{text}");
    let rows: Vec<[u64; 3]> = lines
        .map(|line| {
            let fields: Vec<u64> = line.split(',').map(|field| field.parse().unwrap()).collect();
            fields.try_into().unwrap_or_else(|fields| panic!("{fields:?} in {ended:#?}"))
        })
        .collect();
    assert!(!rows.is_empty(), "{ended:#?}");
    for (place, [second, thread, _]) in (0..).zip(&rows) {
        assert_eq!((*second, *thread), (place / u64::from(SEVERAL), place % u64::from(SEVERAL)), "{text}");
    }
    assert!(rows.iter().map(|[.., pps]| pps).sum::<u64>() > 0, "{text}");
}

#[test]
fn a_file_that_exists_is_replaced() {
    let folder = Folder::new("replaced");
    let json = folder.file("a.json");
    std::fs::write(&json, "x".repeat(100_000)).unwrap();
    let ended = receiver(&format!("{RUN} --json {json}")).end().with_code(0);
    Report::read(&std::fs::read_to_string(json).unwrap(), &ended.what);
}
