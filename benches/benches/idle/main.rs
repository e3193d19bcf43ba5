//! What connected clients cost that say nothing: `cargo bench --bench idle`.
//!
//! `few`: 2,000 clients, whose CPU has goals; `many`: 100,000, whose memory has. A smoke run has `few` alone, and `--clients` one
//! part of that many; `--workers` says otherwise than one worker. They connect to a server in a process of its own and are silent:
//! they send a keep-alive each 7.5 s, and the server acknowledges it. With one worker the server and the plain receiver are on one
//! core, and this process, which has all clients, is on another. Printed are how long it took
//! until all were there, the memory of the server for each connection, and the CPU of the server's process over windows of
//! keep-alives, beside a plain receiver that takes as many datagrams of the same size from as many sockets at the same moments,
//! in system calls of the same kind, and answers as many. Both are counted over the same windows, and so are the clients. `--quick`
//! is a smoke run.
#![forbid(unsafe_code)]

mod mirror;
mod raw;
mod server;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use drumfire_benches::{
    Child, Cores, Crowd, DropWatch, Extent, Goal, Memory, Options, Results, Spread, Used, Watch, close_books,
    close_way_back, counts_text, ending, memory, missing, print_machine, run_bench, take_number,
};
use drumfire_tools::{clock, host};

use mirror::Mirror;
use server::key;

const SOCKETS: u32 = 8;

/// Connections begun in a second, for each worker: a server takes 2,000.
const RAMP_PER_SECOND: u64 = 1_600;

/// Memory of the server for each connection, in bytes.
const BYTES_GOAL: f64 = 1_024.0;

const BYTES_STRETCH: f64 = 640.0;

/// CPU of the server over that of the plain receiver.
const CPU_GOAL: f64 = 1.3;

/// Of a core, for those of [`FEW`], in percent.
const SHARE_GOAL: f64 = 0.8;

/// The parts and their clients.
const FEW: (&str, u32) = ("few", 2_000);
const MANY: (&str, u32) = ("many", 100_000);

/// How long a thread that has nothing to do rests.
const REST: Duration = Duration::from_micros(500);

/// How long datagrams may still be on their way.
const SETTLE: Duration = Duration::from_millis(300);

/// What is measured, and for how long.
#[derive(Clone, Copy)]
struct Plan {
    part: &'static str,
    clients: u32,
    workers: u32,
    /// The server's and the plain receiver's core.
    core: Option<usize>,
    /// From the last connect to the first window: working memory is given back, and keep-alives have begun.
    quiet: Duration,
    windows: u32,
    window: Duration,
}

fn main() -> ExitCode {
    let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(served) = server::main(&args).or_else(|| raw::main(&args)) {
        return ending(served);
    }
    let flags = take_number(&mut args, "--clients").and_then(|clients| {
        let workers = take_number(&mut args, "--workers")?;
        Ok((clients, workers))
    });
    match flags {
        Ok((clients, workers)) => {
            run_bench(args, &[FEW.0, MANY.0], |options| bench(options, clients, workers))
        }
        Err(line) => {
            eprintln!("error: {line}");
            ExitCode::from(2)
        }
    }
}

fn bench(options: &Options, clients: Option<u32>, workers: Option<u32>) -> Result<(), String> {
    let seconds = Duration::from_secs;
    let (quiet, windows, window) = match options.extent {
        Extent::Quick => (seconds(4), 1, seconds(5)),
        Extent::Default => (seconds(10), 5, seconds(6)),
        Extent::Full => (seconds(20), 5, seconds(30)),
    };
    let workers = workers.unwrap_or(1);
    print_machine();
    let mut results = Results::new("idle", options);
    // Several workers and their load need all cores there are.
    let cores = if workers == 1 { Some(Cores::of_this_process()?) } else { None };
    if let Some(cores) = cores {
        results.pinned(cores);
        host::pin_current_thread(cores.load).map_err(|error| error.to_string())?;
    }
    let core = cores.map(|cores| cores.server);
    for (part, clients) in parts(options, clients) {
        println!(
            "\n{part}\nextent    {}: {clients} clients over {SOCKETS} sockets, {workers} worker(s), {windows} windows of {window:?}",
            options.extent.name(),
        );
        run(&Plan { part, clients, workers, core, quiet, windows, window }, &mut results)?;
    }
    println!("\n{}", results.table());
    println!("written to {}", results.write()?.display());
    Ok(())
}

/// What runs, with how many clients.
fn parts(options: &Options, clients: Option<u32>) -> Vec<(&'static str, u32)> {
    if let Some(clients) = clients {
        return vec![("clients", clients)];
    }
    let is_wanted = |(part, _): &(&str, u32)| match options.only {
        Some(_) => options.wants(part),
        None => *part == FEW.0 || options.extent != Extent::Quick,
    };
    [FEW, MANY].into_iter().filter(is_wanted).collect()
}

fn run(plan: &Plan, results: &mut Results) -> Result<(), String> {
    let dropped = DropWatch::begin();
    let server = server::start(plan.workers, plan.clients, plan.core)?;
    let address = server.address()?;
    let mut crowd = Crowd::bind(SOCKETS, plan.clients)?;
    let empty = memory(server.id()).ok_or("the server's memory cannot be read")?;
    let per_second = RAMP_PER_SECOND * u64::from(plan.workers);
    let ramped = crowd.connect((address, key().public()), plan.clients.into(), per_second, |_, _| {})?;
    println!(
        "\nconnected {} of {} in {:.1} s ({:.0}/s; {per_second}/s were begun), failed: {:?}",
        ramped.connected,
        plan.clients,
        ramped.took.as_secs_f64(),
        ramped.connected as f64 / ramped.took.as_secs_f64(),
        ramped.failed
    );
    let full = memory(server.id()).ok_or("the server's memory cannot be read")?;
    let mut silence = Silence::begin(crowd, &server, plan.core)?;
    silence.last(plan.quiet)?;
    let idle = memory(server.id()).ok_or("the server's memory cannot be read")?;
    show_memory(plan, [empty, full, idle], results);
    silence.measure(plan, results)?;

    let Silence { mut crowd, raw, .. } = silence;
    // Nobody sends any more, so that both ends can be held against each other.
    clock::pause(SETTLE);
    let sent = crowd.carried().sent;
    let drops = dropped.count();
    let (served, echoed) = (server.finish_counts()?, raw.finish_counts()?);
    println!("books     {}", close_books(sent, &served, drops)?);
    println!("server    {}", counts_text(&served));
    println!("plain     {}", counts_text(&echoed));
    clock::pause(SETTLE);
    let drops = drops.saturating_sub(missing(sent, &served));
    println!("books     {}", close_way_back(&served, crowd.drain(), plan.clients.into(), drops)?);
    let part = plan.part;
    results.figure(
        format!("{part}: connects that failed"),
        Some(ramped.failed_count() as f64),
        "",
        Goal::AtMost(0.0),
        &format!("{:?}", ramped.failed),
    );
    results.figure(
        format!("{part}: until all were connected"),
        Some(ramped.took.as_secs_f64()),
        "s",
        Goal::Shown,
        "",
    );
    Ok(())
}

fn show_memory(plan: &Plan, [empty, full, idle]: [Memory; 3], results: &mut Results) {
    let per = |memory: Memory, of: fn(&Memory) -> u64| {
        (of(&memory) as f64 - of(&empty) as f64) / f64::from(plan.clients)
    };
    let resident = |memory: &Memory| memory.resident_bytes;
    let anonymous = |memory: &Memory| memory.anonymous_bytes;
    println!(
        "memory    {} KiB resident before, {} KiB with all there, {} KiB when they were silent",
        empty.resident_bytes / 1_024,
        full.resident_bytes / 1_024,
        idle.resident_bytes / 1_024
    );
    println!(
        "          in it beside the connections: tables for all of them on both sides of the server, which grow in powers of\n          \
         two, queues at their longest, code that was first used, and what was freed and is kept by the allocator"
    );
    let part = plan.part;
    let mut figure = |name: &str, value, goal, note| {
        results.figure(format!("{part}: {name} per connection"), Some(value), "B", goal, note);
    };
    // Among few, what the process has beside its connections is most of it.
    let goal = |most| if part == FEW.0 { Goal::Shown } else { Goal::AtMost(most) };
    let all = "all that came since no client was there";
    figure("resident memory", per(idle, resident), goal(BYTES_GOAL), all);
    figure("resident memory, to reach for,", per(idle, resident), goal(BYTES_STRETCH), all);
    figure("anonymous memory", per(idle, anonymous), Goal::Shown, "");
    figure("resident memory just after connecting,", per(full, resident), Goal::Shown, "");
}

/// Clients that say nothing, and what is fed beside.
struct Silence {
    crowd: Crowd,
    mirror: Mirror,
    raw: Child,
    server: u32,
}

impl Silence {
    fn begin(crowd: Crowd, server: &Child, core: Option<usize>) -> Result<Self, String> {
        let raw = raw::start(core)?;
        let address = raw.address()?;
        let mirror = Mirror::connect(address, SOCKETS)?;
        Ok(Self { crowd, mirror, raw, server: server.id() })
    }

    /// Lets time pass; what the clients send meanwhile is sent to the plain receiver too.
    fn last(&mut self, time: Duration) -> Result<(), String> {
        let until = clock::now() + time;
        while clock::now() < until {
            let mut came = false;
            for place in 0..self.crowd.sockets() {
                let before = self.crowd.carried_by(place);
                came |= self.crowd.look_at(place, |_| {});
                // At once, so that the plain receiver gets them as bunched as the server.
                self.mirror.follow(place, before, self.crowd.carried_by(place))?;
            }
            if self.crowd.ended() > 0 {
                return Err(format!("{} connections ended", self.crowd.ended()));
            }
            if !came {
                clock::pause(REST);
            }
        }
        Ok(())
    }

    fn measure(&mut self, plan: &Plan, results: &mut Results) -> Result<(), String> {
        let (mut ours, mut plain, mut here) = (Vec::new(), Vec::new(), Vec::new());
        let (mut rates, mut delays) = (Vec::new(), Vec::new());
        for _ in 0..plan.windows {
            let (sent_before, fed_before) = (self.crowd.carried().sent, self.mirror.fed());
            let watch = [self.server, self.raw.id(), std::process::id()].map(Watch::begin);
            self.last(plan.window)?;
            let [Some(server), Some(raw), Some(clients)] = watch.map(|watch| watch.used()) else {
                return Err("the processes' clocks cannot be read".to_owned());
            };
            let sent = self.crowd.carried().sent - sent_before;
            let fed = self.mirror.fed() - fed_before;
            if sent != fed {
                return Err(format!("{sent} datagrams to the server, {fed} to the plain receiver"));
            }
            ours.push(server);
            plain.push(raw);
            here.push(clients);
            rates.push(sent as f64 / plan.window.as_secs_f64());
            delays.extend(server.cpu.run_delay_share(server.window));
        }
        show_cpu(plan.part, [&ours, &plain, &here], (&rates, &delays), results);
        Ok(())
    }
}

fn show_cpu(
    part: &str,
    [ours, plain, here]: [&[Used]; 3],
    (rates, delays): (&[f64], &[f64]),
    results: &mut Results,
) {
    let share = |used: &[Used]| Spread::of(used.iter().map(|used| used.core_share() * 100.0));
    let text = |spread: Option<Spread>| {
        spread.map_or_else(
            || "-".to_owned(),
            |spread| format!("{:.2} ({:.2}-{:.2})", spread.median, spread.least, spread.most),
        )
    };
    let busy = delays.iter().copied().fold(0.0, f64::max);
    println!("\nkeep-alives per second    {}", text(Spread::of(rates.iter().copied())));
    println!("% of a core, server       {}", text(share(ours)));
    println!("% of a core, plain        {}", text(share(plain)));
    println!("% of a core, clients      {}, those that feed the plain receiver too", text(share(here)));
    println!("waited for a core, server {:.1} % of a window at most", busy * 100.0);
    let ratios = ours.iter().zip(plain).map(|(ours, plain)| ours.cpu_s() / plain.cpu_s());
    let ratio = Spread::of(ratios);
    let note = ratio.map_or_else(String::new, |ratio| format!("{:.2} to {:.2}", ratio.least, ratio.most));
    results.figure(
        format!("{part}: CPU over a plain receiver's"),
        ratio.map(|ratio| ratio.median),
        "x",
        Goal::AtMost(CPU_GOAL),
        &note,
    );
    let goal = if part == FEW.0 { Goal::AtMost(SHARE_GOAL) } else { Goal::Shown };
    results.figure(format!("{part}: server"), share(ours).map(|share| share.median), "% of a core", goal, "");
    let note = "with those of the plain receiver";
    let shown = share(here).map(|share| share.median);
    results.figure(format!("{part}: clients"), shown, "% of a core", Goal::Shown, note);
    results.figure(
        format!("{part}: keep-alives per second"),
        Spread::of(rates.iter().copied()).map(|rate| rate.median),
        "",
        Goal::Shown,
        "",
    );
}
